//! Headers from the wire, for an interface with targets of every kind.
//!
//! The bytes are a sequence of records: one byte of flags and 80 bytes of header. Flag 1 sets magic
//! and version, flag 2 brings ids and portal into reach, flag 4 names a descriptor that exists, flag
//! 8 lets the operation fail.

use crate::input::Input;
use portals_core::header::WIRE_LEN;
use portals_core::{
    Ack, AckRequest, Body, EqHandle, Header, Incoming, InsertPosition, Limits, MdDesc, MdHandle,
    MdOptions, MeSpec, Memory, Ni, NiConfig, NiFail, ProcessId, Segment, Segments, Status,
    THRESHOLD_INFINITE, Unlink,
};

const LEN: u64 = 64;
const BASE: u64 = 0x1000;
const SPACING: u64 = 0x1000;
const PEER: ProcessId = ProcessId::new(1, 1);
const OWN: ProcessId = ProcessId::new(0, 0);

/// The interface under attack.
struct Victim {
    ni: Ni,
    eq: EqHandle,
    mds: Vec<MdHandle>,
}

impl Victim {
    fn desc(&self, options: MdOptions, threshold: i32) -> MdDesc {
        let at = BASE + self.mds.len() as u64 * SPACING;
        let memory = if self.mds.len() % 5 == 4 {
            let piece = |i: u64| Segment {
                addr: at + 32 * i,
                len: LEN / 4,
            };
            Memory::Iovec {
                start: at,
                segments: (0..4).map(piece).collect(),
            }
        } else {
            Memory::contiguous(at, LEN)
        };
        MdDesc {
            memory,
            threshold,
            max_size: 16,
            options,
            user_ptr: 0,
            eq: (self.mds.len() % 3 != 2).then_some(self.eq),
        }
    }

    fn new() -> Option<Self> {
        let mut ni = Ni::new(NiConfig {
            id: OWN,
            uid: 0,
            jid: 0,
            interface: 0,
            limits: Limits::LIBRARY,
            get_send_events: false,
        });
        let eq = ni.eq_alloc(16).ok()?;
        let mut v = Self {
            ni,
            eq,
            mds: Vec::new(),
        };
        // Portal 0 is short and walked, portal 1 long and indexed.
        for i in 0..40u64 {
            let masked = i % 7 == 3;
            let spec = MeSpec {
                match_id: match i % 4 {
                    0 => ProcessId::ANY,
                    1 => PEER,
                    2 => ProcessId::new(1, u32::MAX),
                    _ => ProcessId::new(u32::MAX, 1),
                },
                match_bits: i % 6,
                ignore_bits: if masked { 1 } else { 0 },
                unlink: Unlink::Unlink,
            };
            let portal = u32::from(i >= 8);
            let me = v.ni.me_attach(portal, spec, InsertPosition::After).ok()?;
            let options = MdOptions::from_bits_retain(i as u32 * 0x1b % 0x200)
                .difference(MdOptions::IOVEC)
                | MdOptions::OP_PUT;
            let threshold = if i % 3 == 0 { 2 } else { THRESHOLD_INFINITE };
            let desc = v.desc(options, threshold);
            v.mds.push(v.ni.md_attach(me, desc, Unlink::Unlink).ok()?);
        }
        // One more awaits an ack and a reply.
        let desc = v.desc(MdOptions::empty(), 100);
        let source = v.ni.md_bind(desc, Unlink::Retain).ok()?;
        v.mds.push(source);
        for _ in 0..4 {
            let put = v.ni.put(source, None, AckRequest::Ack, PEER, 0, 0, 0, 0, 0);
            v.ni.send_end(put.ok()?.op?, NiFail::OK);
            v.ni.get(source, Some((0, 8)), PEER, 0, 0, 0, 0).ok()?;
        }
        Some(v)
    }

    /// The pieces lie in one descriptor's memory and have `length` bytes.
    fn inside(&self, segments: &Segments, length: u64) {
        assert_eq!(segments.iter().map(|s| s.len).sum::<u64>(), length);
        for s in segments {
            let (md, at) = ((s.addr - BASE) / SPACING, (s.addr - BASE) % SPACING);
            assert!(md < self.mds.len() as u64, "{s:?}");
            let end = if md % 5 == 4 { 128 } else { LEN };
            assert!(s.len == 0 || at + s.len <= end, "{s:?}");
        }
    }

    /// Whether the message was taken.
    fn arrive(&mut self, h: &Header, fail: NiFail) -> bool {
        let before = self.ni.status();
        match self.ni.handle_header(h) {
            Incoming::Dropped(_) => {
                let dropped = Status {
                    drop_count: before.drop_count + 1,
                    drop_length: self.ni.status().drop_length,
                    ..before
                };
                assert_eq!(self.ni.status(), dropped);
                return false;
            }
            Incoming::Acked => assert!(matches!(h.body, Body::Ack { .. })),
            Incoming::Deposit(d) => {
                self.inside(&d.segments, d.length);
                assert!(d.searched <= 32);
                let ack = self.ni.deposit_end(d.op, fail);
                assert!(fail == NiFail::OK || ack.is_none());
                assert!(ack.is_none_or(|a| a.target == h.source));
                assert!(self.ni.deposit_end(d.op, fail).is_none());
            }
            Incoming::Reply(r) => {
                self.inside(&r.segments, r.header.payload_len());
                self.ni.reply_end(r.op, fail);
            }
            Incoming::Swap(s) => {
                self.inside(&s.segments, s.length);
                assert_eq!(s.length, s.header.payload_len());
                self.ni.swap_end(s.op, fail);
            }
        }
        true
    }
}

/// Nothing panics, nothing lands outside a descriptor, a dropped message changes the drop counters
/// alone, and at the end every object can be removed.
pub fn run(data: &[u8]) -> u32 {
    let mut v = Victim::new().expect("the limits allow it");
    let mut input = Input::new(data);
    let mut taken = 0;
    while !input.is_done() {
        let flags = input.byte();
        let mut wire: [u8; WIRE_LEN] = input.take();
        if flags & 1 != 0 {
            wire[..3].copy_from_slice(&[0x50, 0x33, 1]);
            wire[3] %= 6;
        }
        let Ok(mut h) = Header::decode(&wire) else {
            continue;
        };
        assert_eq!(Header::decode(&h.encode()), Ok(h));
        if flags & 2 != 0 {
            h.pt_index %= 3;
            h.match_bits %= 7;
            (h.uid, h.jid) = (0, 0);
            h.source = ProcessId::new(h.source.nid % 2, h.source.pid % 2);
            match &mut h.body {
                Body::Put { ac_index, .. }
                | Body::Get { ac_index, .. }
                | Body::GetPut { ac_index, .. } => *ac_index %= 9,
                _ => {}
            }
        }
        if flags & 4 != 0 {
            let i = usize::from(wire[WIRE_LEN - 1]) % v.mds.len();
            match &mut h.body {
                Body::Ack(Ack { md, .. }) | Body::Reply { md, .. } => *md = v.mds[i],
                _ => {}
            }
        }
        let fail = if flags & 8 != 0 {
            NiFail::FAIL
        } else {
            NiFail::OK
        };
        taken += u32::from(v.arrive(&h, fail));
        while let Ok(Some(_)) = v.ni.eq_get(v.eq) {}
    }
    for md in &v.mds {
        // Gone by itself, or not in use.
        let gone = v.ni.md_unlink(*md);
        assert!(matches!(gone, Ok(()) | Err(portals_core::Error::MdInvalid)));
    }
    assert_eq!(v.ni.eq_free(v.eq), Ok(()));
    taken
}
