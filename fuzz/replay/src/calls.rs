//! Sequences of API calls on two interfaces, with messages between them that arrive late.
//!
//! Arguments are objects that were made, objects that are gone, and raw numbers.

use crate::input::Input;
use portals_core::{
    AcEntry, AckRequest, EqHandle, Header, Incoming, InsertPosition, Limits, MdDesc, MdHandle,
    MdOptions, MeHandle, MeSpec, Memory, Ni, NiConfig, NiFail, OpId, ProcessId, Segment, Segments,
    Unlink,
};
use std::collections::VecDeque;

/// Calls of one run.
const STEPS: usize = 400;
/// Memory is `BASE .. BASE + SPAN`.
const BASE: u64 = 0x1000;
const SPAN: u64 = 0x1000;

/// What ends an operation.
#[derive(Clone, Copy, Debug)]
enum End {
    Send(OpId),
    Deposit(OpId),
    Reply(OpId, Header),
    Swap(OpId, Header),
}

struct Node {
    ni: Ni,
    mes: Vec<MeHandle>,
    mds: Vec<MdHandle>,
    eqs: Vec<EqHandle>,
    under_way: Vec<End>,
}

struct World<'a> {
    input: Input<'a>,
    nodes: [Node; 2],
    wire: VecDeque<Header>,
    taken: u32,
}

fn name(i: u8) -> ProcessId {
    ProcessId::new(u32::from(i), 4)
}

impl Node {
    /// An interface with a queue, a source, and a target for everything on portal 0.
    fn new(i: u8) -> Self {
        let limits = Limits {
            max_mes: 60,
            max_mds: 60,
            max_eqs: 6,
            ..Limits::LIBRARY
        };
        let mut node = Self {
            ni: Ni::new(NiConfig {
                id: name(i),
                uid: 7,
                jid: 1,
                interface: i,
                limits,
                get_send_events: i == 1,
            }),
            mes: Vec::new(),
            mds: Vec::new(),
            eqs: Vec::new(),
            under_way: Vec::new(),
        };
        let spec = MeSpec {
            match_id: ProcessId::ANY,
            match_bits: 0,
            ignore_bits: u64::MAX,
            unlink: Unlink::Unlink,
        };
        let ni = &mut node.ni;
        node.eqs.extend(ni.eq_alloc(20));
        let eq = node.eqs.first().copied();
        let desc = |len, options| MdDesc {
            memory: Memory::contiguous(BASE, len),
            threshold: 30,
            max_size: 0,
            options,
            user_ptr: 0,
            eq,
        };
        let all = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
        node.mds.extend(ni.md_bind(desc(8, all), Unlink::Unlink));
        node.mes
            .extend(ni.me_attach(0, spec, InsertPosition::After));
        for me in &node.mes {
            let md = ni.md_attach(*me, desc(SPAN, all), Unlink::Unlink);
            node.mds.extend(md);
        }
        node
    }
}

/// One of `made`, or what `raw` makes of a number.
fn pick<T: Copy>(input: &mut Input<'_>, made: &[T], raw: fn(u32) -> T) -> T {
    let i = usize::from(input.byte());
    match (i, made.len()) {
        (0..250, 1..) => made[made.len() - 1 - i % made.len()],
        _ => raw(u32::from_le_bytes(input.take())),
    }
}

fn inside(segments: &Segments) -> u64 {
    for s in segments {
        let end = s.addr.checked_add(s.len).expect("checked when it was made");
        assert!(
            s.len == 0 || (s.addr >= BASE && end <= BASE + SPAN),
            "{s:?}"
        );
    }
    segments.iter().map(|s| s.len).sum()
}

impl World<'_> {
    fn me(&mut self, n: usize) -> MeHandle {
        pick(&mut self.input, &self.nodes[n].mes, MeHandle::from_raw)
    }

    fn md(&mut self, n: usize) -> MdHandle {
        pick(&mut self.input, &self.nodes[n].mds, MdHandle::from_raw)
    }

    fn eq(&mut self, n: usize) -> EqHandle {
        pick(&mut self.input, &self.nodes[n].eqs, EqHandle::from_raw)
    }

    fn maybe_eq(&mut self, n: usize) -> Option<EqHandle> {
        self.input.flag().then(|| self.eq(n))
    }

    fn id(&mut self) -> ProcessId {
        match self.input.below(8) {
            0 => ProcessId::ANY,
            1 => ProcessId::new(0, u32::MAX),
            2 => ProcessId::new(u32::MAX, 4),
            i => name(i & 1),
        }
    }

    fn unlink(&mut self) -> Unlink {
        if self.input.flag() {
            Unlink::Unlink
        } else {
            Unlink::Retain
        }
    }

    fn position(&mut self) -> InsertPosition {
        if self.input.flag() {
            InsertPosition::Before
        } else {
            InsertPosition::After
        }
    }

    fn spec(&mut self) -> MeSpec {
        MeSpec {
            match_id: self.id(),
            match_bits: u64::from(self.input.below(4)),
            ignore_bits: match self.input.below(6) {
                0 => u64::MAX,
                1 => 1,
                _ => 0,
            },
            unlink: self.unlink(),
        }
    }

    /// Legal memory lies in the span; illegal memory wraps or is null.
    fn segment(&mut self) -> Segment {
        if self.input.below(16) == 0 {
            return Segment {
                addr: u64::MAX - u64::from(self.input.byte()),
                len: 0x1000,
            };
        }
        Segment {
            addr: BASE + u64::from(self.input.byte()) * 8,
            len: u64::from(self.input.byte()),
        }
    }

    fn desc(&mut self, n: usize) -> MdDesc {
        let memory = if self.input.below(4) == 0 {
            let pieces = self.input.below(5);
            Memory::Iovec {
                start: BASE,
                segments: (0..pieces).map(|_| self.segment()).collect(),
            }
        } else {
            Memory::Contiguous(self.segment())
        };
        let [low, high] = self.input.take();
        MdDesc {
            memory,
            threshold: i32::from(self.input.below(6)) - 2,
            max_size: u64::from(self.input.byte()),
            options: MdOptions::from_bits_retain(u32::from(u16::from_le_bytes([low, high]))),
            user_ptr: 0,
            eq: self.maybe_eq(n),
        }
    }

    fn step(&mut self) {
        let n = usize::from(self.input.flag());
        let portal = u32::from(self.input.below(3)) * 33;
        match self.input.below(24) {
            0..=2 => {
                let (spec, position) = (self.spec(), self.position());
                let me = self.nodes[n].ni.me_attach(portal, spec, position);
                self.nodes[n].mes.extend(me);
            }
            3 | 4 => {
                let (base, spec, position) = (self.me(n), self.spec(), self.position());
                let me = self.nodes[n].ni.me_insert(base, spec, position);
                self.nodes[n].mes.extend(me);
            }
            5 => {
                let spec = self.spec();
                let made = self.nodes[n].ni.me_attach_any(spec);
                self.nodes[n].mes.extend(made.map(|(_, me)| me));
            }
            6 => {
                let me = self.me(n);
                if self.nodes[n].ni.me_unlink(me).is_ok() {
                    assert!(self.nodes[n].ni.me_unlink(me).is_err());
                }
            }
            7..=10 => {
                let (me, desc, unlink) = (self.me(n), self.desc(n), self.unlink());
                let md = self.nodes[n].ni.md_attach(me, desc, unlink);
                self.nodes[n].mds.extend(md);
            }
            11 => {
                let (desc, unlink) = (self.desc(n), self.unlink());
                let md = self.nodes[n].ni.md_bind(desc, unlink);
                self.nodes[n].mds.extend(md);
            }
            12 => {
                let md = self.md(n);
                if self.nodes[n].ni.md_unlink(md).is_ok() {
                    assert!(self.nodes[n].ni.md_unlink(md).is_err());
                }
            }
            13 => {
                let (md, desc, test) = (self.md(n), self.desc(n), self.maybe_eq(n));
                // Refusal leaves the descriptor as it was.
                let before = self.nodes[n].ni.md_query(md);
                let node = &mut self.nodes[n];
                let refused = match desc.threshold {
                    again @ 3 => node.ni.md_renew(md, again, desc.user_ptr, test).is_err(),
                    _ => node.ni.md_update(md, desc, test).is_err(),
                };
                if refused {
                    assert_eq!(self.nodes[n].ni.md_query(md), before);
                }
            }
            14 => {
                let (base, spec, position) = (self.me(n), self.spec(), self.position());
                let (desc, unlink, test) = (self.desc(n), self.unlink(), self.maybe_eq(n));
                let node = &mut self.nodes[n];
                if let Ok((me, md)) = node.ni.me_md_post(base, spec, position, desc, unlink, test) {
                    node.mes.push(me);
                    node.mds.push(md);
                }
            }
            15 => {
                let count = self.input.number();
                // A queue of a million events tests the allocator, not the library.
                let count = if count > 1 << 12 { u64::MAX } else { count };
                let eq = self.nodes[n].ni.eq_alloc(count);
                self.nodes[n].eqs.extend(eq);
            }
            16 => {
                let eq = self.eq(n);
                if self.input.flag() {
                    let _ = self.nodes[n].ni.eq_free(eq);
                } else {
                    let peeked = self.nodes[n].ni.eq_peek(eq);
                    assert_eq!(self.nodes[n].ni.eq_get(eq), peeked);
                }
            }
            17 => {
                let entry = AcEntry {
                    match_id: self.id(),
                    uid: if self.input.below(8) == 0 { 8 } else { 7 },
                    jid: u32::MAX,
                    pt_index: if self.input.flag() { u32::MAX } else { portal },
                };
                let index = u32::from(self.input.below(10));
                let _ = self.nodes[n].ni.ac_entry(index, entry);
            }
            18..=20 => self.initiate(n, portal),
            21 | 22 => self.arrive(),
            _ => self.end(n),
        }
        assert!(self.nodes[n].ni.adverts(portal, 1000).len() <= 60);
    }

    fn initiate(&mut self, n: usize, portal: u32) {
        let (md, target) = (self.md(n), name(self.input.below(2)));
        let bits = u64::from(self.input.below(4));
        let ac = u32::from(self.input.below(16) / 14);
        let offset = self.input.number();
        let region = (self.input.below(3) == 0).then(|| (self.input.number(), self.input.number()));
        let ack = if self.input.flag() {
            AckRequest::Ack
        } else {
            AckRequest::NoAck
        };
        let kind = self.input.below(4);
        let other = self.md(n);
        let node = &mut self.nodes[n];
        let sent = match kind {
            0 | 1 => node
                .ni
                .put(md, region, ack, target, portal, ac, bits, offset, 5),
            2 => node.ni.get(md, region, target, portal, ac, bits, offset),
            _ => {
                let regions = region.map(|(at, len)| (at, at, len));
                node.ni
                    .get_put(md, other, regions, target, portal, ac, bits, offset, 6)
            }
        };
        if let Ok(t) = sent {
            assert_eq!(inside(&t.payload), t.header.payload_len());
            inside(&t.landing);
            node.under_way.extend(t.op.map(End::Send));
            // A send ends before its answer comes.
            self.end_sends(n);
            self.wire.push_back(t.header);
        }
    }

    fn end_sends(&mut self, n: usize) {
        let node = &mut self.nodes[n];
        let ni = &mut node.ni;
        node.under_way.retain(|end| {
            if let End::Send(op) = end {
                ni.send_end(*op, NiFail::OK);
            }
            !matches!(end, End::Send(_))
        });
    }

    fn arrive(&mut self) {
        let Some(h) = self.wire.pop_front() else {
            return;
        };
        assert_eq!(Header::decode(&h.encode()), Ok(h));
        let node = &mut self.nodes[h.target.nid as usize % 2];
        let end = match node.ni.handle_header(&h) {
            Incoming::Dropped(_) | Incoming::Acked => return,
            Incoming::Deposit(d) => {
                assert_eq!(inside(&d.segments), d.length);
                assert!(d.searched <= 60);
                End::Deposit(d.op)
            }
            Incoming::Reply(r) => {
                assert_eq!(inside(&r.segments), r.header.payload_len());
                End::Reply(r.op, r.header)
            }
            Incoming::Swap(s) => {
                assert_eq!(inside(&s.segments), s.length);
                End::Swap(s.op, s.header)
            }
        };
        node.under_way.push(end);
        self.taken += 1;
    }

    fn end(&mut self, n: usize) {
        let (which, fail) = (usize::from(self.input.byte()), self.input.below(8) == 0);
        let fail = if fail { NiFail::FAIL } else { NiFail::OK };
        let node = &mut self.nodes[n];
        if node.under_way.is_empty() {
            return;
        }
        match node.under_way.remove(which % node.under_way.len()) {
            End::Send(op) => node.ni.send_end(op, fail),
            End::Deposit(op) => self.wire.extend(node.ni.deposit_end(op, fail)),
            End::Reply(op, h) => {
                node.ni.reply_end(op, fail);
                self.wire.push_back(h);
            }
            End::Swap(op, h) => {
                node.ni.swap_end(op, fail);
                self.wire.push_back(h);
            }
        }
    }
}

/// Nothing panics, nothing lands outside the memory that was described, and when every operation
/// has ended every object can be removed.
pub fn run(data: &[u8]) -> u32 {
    let mut w = World {
        input: Input::new(data),
        nodes: [Node::new(0), Node::new(1)],
        wire: VecDeque::new(),
        taken: 0,
    };
    for _ in 0..STEPS {
        if w.input.is_done() {
            break;
        }
        w.step();
    }
    for n in [0, 1] {
        while !w.nodes[n].under_way.is_empty() {
            w.end(n);
        }
        let node = &mut w.nodes[n];
        for md in &node.mds {
            let gone = node.ni.md_unlink(*md);
            assert!(matches!(gone, Ok(()) | Err(portals_core::Error::MdInvalid)));
        }
        for me in &node.mes {
            let gone = node.ni.me_unlink(*me);
            assert!(matches!(gone, Ok(()) | Err(portals_core::Error::MeInvalid)));
        }
        for eq in &node.eqs {
            let gone = node.ni.eq_free(*eq);
            assert!(matches!(gone, Ok(()) | Err(portals_core::Error::EqInvalid)));
        }
        node.ni.close();
    }
    let taken = w.taken;
    while !w.wire.is_empty() {
        w.arrive();
    }
    assert_eq!(w.taken, taken, "a closed interface took a message");
    taken
}
