//! Messages as `portals-core` sees them, for measuring: no fabric, no memory behind the addresses.
//!
//! One *delivery* is what the library does at the target for a put of 8 bytes: the 80-byte header
//! is decoded and matched, the descriptor accounts it, the operation ends, the program reads
//! PUT_END.

pub mod count;
pub mod device;
pub mod endpoints;
mod joined;
pub mod tags;
pub mod turns;

pub use joined::Joined;

use portals_core::header::WIRE_LEN;
use portals_core::{
    AckRequest, EqHandle, Error, EventKind, Header, InPlace, Incoming, InsertPosition, Limits,
    MdDesc, MdHandle, MdOptions, MeSpec, Memory, Ni, NiConfig, NiFail, ProcessId,
    THRESHOLD_INFINITE, Unlink,
};

/// Portal of every entry.
const PORTAL: u32 = 4;
/// Bytes of every put.
const BYTES: u64 = 8;
/// Match bits of the messages.
const BITS: u64 = 0x5EED_0000_0000_0001;

const SENDER: ProcessId = ProcessId::new(1, 7);
const TARGET: ProcessId = ProcessId::new(2, 9);

/// What stands on the list before the entry that takes the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// Entries that compare every bit, for the same sender, other bits.
    Exact(u32),
    /// Entries that ignore some bits but not those in which the message differs.
    Masked(u32),
}

/// Two interfaces: `sender` has a source descriptor, `target` a list.
#[derive(Debug)]
pub struct Pair {
    /// The initiator.
    pub sender: Ni,
    /// The owner of the list.
    pub target: Ni,
    source: MdHandle,
    sent: EqHandle,
    arrived: EqHandle,
    put: [u8; WIRE_LEN],
}

/// An interface of process `id` with the library's limits.
#[must_use]
pub fn interface(id: ProcessId) -> Ni {
    Ni::new(NiConfig {
        id,
        uid: 1000,
        jid: 1,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    })
}

fn memory(options: MdOptions, eq: Option<EqHandle>) -> MdDesc {
    MdDesc {
        memory: Memory::contiguous(0x1000, BYTES),
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: options | MdOptions::EVENT_START_DISABLE,
        user_ptr: 0,
        eq,
    }
}

fn entry(match_bits: u64, ignore_bits: u64) -> MeSpec {
    MeSpec {
        match_id: SENDER,
        match_bits,
        ignore_bits,
        unlink: Unlink::Retain,
    }
}

/// Match bits of the `i`th entry before the one that takes the messages.
fn other_bits(i: u32) -> u64 {
    !BITS ^ u64::from(i) << 16
}

impl Pair {
    /// A list with `before` and, when `takes`, one entry at its end that takes the messages.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the list would be longer than the library allows.
    pub fn new(before: Before, takes: bool) -> Result<Self, Error> {
        let (mut sender, mut target) = (interface(SENDER), interface(TARGET));
        let arrived = target.eq_alloc(8)?;
        let options = MdOptions::OP_PUT | MdOptions::MANAGE_REMOTE;
        let attach = |ni: &mut Ni, spec| {
            let me = ni.me_attach(PORTAL, spec, InsertPosition::After)?;
            ni.md_attach(me, memory(options, Some(arrived)), Unlink::Retain)
        };
        let (count, ignore) = match before {
            Before::Exact(count) => (count, 0),
            Before::Masked(count) => (count, 0xff00),
        };
        for i in 0..count {
            attach(&mut target, entry(other_bits(i), ignore))?;
        }
        if takes {
            attach(&mut target, entry(BITS, 0))?;
        }
        let sent = sender.eq_alloc(8)?;
        let source = sender.md_bind(memory(MdOptions::empty(), Some(sent)), Unlink::Retain)?;
        let mut pair = Self {
            sender,
            target,
            source,
            sent,
            arrived,
            put: [0; WIRE_LEN],
        };
        pair.put = pair.start(AckRequest::NoAck)?;
        Ok(pair)
    }

    /// Starts a put and ends its sending; the header as it travels.
    fn start(&mut self, ack: AckRequest) -> Result<[u8; WIRE_LEN], Error> {
        let put = self
            .sender
            .ready_put(self.source, None, ack, TARGET, PORTAL, 0, BITS, 0, 0)?;
        self.sender.pass_put(&put, NiFail::OK, false);
        self.sender.eq_next(self.sent)?;
        Ok(put.header.encode())
    }

    /// The header of the put that [`Pair::deliver`] delivers, as it travels.
    #[must_use]
    pub fn put_header(&self) -> [u8; WIRE_LEN] {
        self.put
    }

    /// One delivery; the entries looked at, or `None` when PUT_END was not read.
    pub fn deliver(&mut self) -> Option<u32> {
        let put = self.put;
        self.arrive(&put).map(|(searched, _)| searched)
    }

    /// One delivery to the `i`th of the [`Before::Exact`] entries.
    pub fn deliver_to(&mut self, i: u32) -> Option<u32> {
        let mut header = Header::decode(&self.put).ok()?;
        header.match_bits = other_bits(i);
        self.arrive(&header.encode()).map(|(searched, _)| searched)
    }

    /// The entries looked at and the ack. Part of each caller: an ack that nobody looks at is not
    /// moved about.
    #[inline(always)]
    fn arrive(&mut self, wire: &[u8]) -> Option<(u32, Option<Header>)> {
        let header = Header::decode(wire).ok()?;
        let taken = self.target.deposit_put(&header, |places, length| {
            let there = matches!(places, [one] if one.len == length);
            if there { NiFail::OK } else { NiFail::FAIL }
        })?;
        let (event, _) = self.target.eq_next(self.arrived).ok()??;
        (event.kind == EventKind::PutEnd).then_some((taken.searched, taken.ack))
    }

    /// A delivery whose data comes after the match: the way of fabrics that deposit it themselves.
    pub fn deliver_in_steps(&mut self) -> Option<u32> {
        let put = self.put;
        self.arrive_in_steps(&put).map(|(searched, _)| searched)
    }

    #[inline(always)]
    fn arrive_in_steps(&mut self, wire: &[u8]) -> Option<(u32, Option<Header>)> {
        let header = Header::decode(wire).ok()?;
        let Incoming::Deposit(d) = self.target.handle_header(&header) else {
            return None;
        };
        let ack = self.target.deposit_end(d.op, NiFail::OK);
        let (event, _) = self.target.eq_get(self.arrived).ok()??;
        (event.kind == EventKind::PutEnd).then_some((d.searched, ack))
    }

    /// A put and its ack by an operation that begins and ends in calls of their own at both sides.
    pub fn put_and_ack_in_steps(&mut self) -> bool {
        self.acked_in_steps()
            .is_some_and(|kind| kind == EventKind::Ack)
    }

    fn acked_in_steps(&mut self) -> Option<EventKind> {
        let t = self
            .sender
            .put(
                self.source,
                None,
                AckRequest::Ack,
                TARGET,
                PORTAL,
                0,
                BITS,
                0,
                0,
            )
            .ok()?;
        if let Some(op) = t.op {
            self.sender.send_end(op, NiFail::OK);
        }
        self.sender.eq_get(self.sent).ok()?;
        let (_, ack) = self.arrive_in_steps(&t.header.encode())?;
        let ack = Header::decode(&ack?.encode()).ok()?;
        self.sender.handle_header(&ack);
        let (event, _) = self.sender.eq_get(self.sent).ok()??;
        Some(event.kind)
    }

    /// A put whose data a fabric places: from its call to the two events of the initiator.
    pub fn put_in_place(&mut self) -> bool {
        let (md, ack) = (self.source, AckRequest::Ack);
        let Ok(put) = self
            .sender
            .ready_put(md, None, ack, TARGET, PORTAL, 0, BITS, 0, 0)
        else {
            return false;
        };
        self.sender.pass_put(&put, NiFail::OK, false);
        self.sender.ack_in_place(&InPlace {
            md,
            target: TARGET,
            pt_index: PORTAL,
            match_bits: BITS,
            offset: 0,
            length: BYTES,
        });
        self.two_events(EventKind::SendEnd, EventKind::Ack)
    }

    /// A get whose data a fabric places: from its call to the event of its reply.
    pub fn get_in_place(&mut self) -> bool {
        let md = self.source;
        let Ok(Some(landing)) = self.sender.landing(md, None) else {
            return false;
        };
        self.sender.pass_get(&landing);
        let answer = InPlace {
            md,
            target: TARGET,
            pt_index: PORTAL,
            match_bits: BITS,
            offset: 0,
            length: BYTES,
        };
        self.sender.reply_in_place(&answer, NiFail::OK);
        let event = self.sender.eq_next(self.sent);
        event.is_ok_and(|e| e.is_some_and(|(e, _)| e.kind == EventKind::ReplyEnd))
    }

    fn two_events(&mut self, first: EventKind, second: EventKind) -> bool {
        [first, second].iter().all(|kind| {
            let event = self.sender.eq_next(self.sent);
            event.is_ok_and(|e| e.is_some_and(|(e, _)| e.kind == *kind))
        })
    }

    /// A put from its call to its ACK event, both sides and both headers; whether the ack came.
    pub fn put_and_ack(&mut self) -> bool {
        self.acked().is_some_and(|kind| kind == EventKind::Ack)
    }

    fn acked(&mut self) -> Option<EventKind> {
        let put = self.start(AckRequest::Ack).ok()?;
        let (_, ack) = self.arrive(&put)?;
        let ack = Header::decode(&ack?.encode()).ok()?;
        self.sender.handle_header(&ack);
        let (event, _) = self.sender.eq_get(self.sent).ok()??;
        Some(event.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delivery_is_one_put_end_whatever_stands_before() {
        for (before, searched) in [
            (Before::Exact(0), 1),
            (Before::Exact(10), 11),
            (Before::Exact(1000), 1),
            (Before::Masked(1000), 1),
        ] {
            let mut pair = Pair::new(before, true).unwrap();
            // After that a long list has an index.
            assert!(pair.deliver().is_some());
            for _ in 0..3 {
                assert_eq!(pair.deliver(), Some(searched), "{before:?}");
                assert!(pair.put_and_ack());
                assert_eq!(pair.deliver_in_steps(), Some(searched), "{before:?}");
                assert!(pair.put_and_ack_in_steps());
                assert!(pair.put_in_place() && pair.get_in_place());
            }
            assert_eq!(pair.target.status().recv_count, 13);
            assert_eq!(pair.target.status().recv_length, 104);
        }
    }

    #[test]
    fn a_list_without_the_entry_drops() {
        let mut pair = Pair::new(Before::Masked(5), false).unwrap();
        assert_eq!(pair.deliver(), None);
        assert_eq!(pair.target.status().drop_count, 1);
    }

    #[test]
    fn a_list_holds_100_000_entries() {
        let mut pair = Pair::new(Before::Exact(100_000), true).unwrap();
        assert_eq!(pair.deliver(), Some(100_001));
        assert_eq!(pair.deliver(), Some(1));
        assert_eq!(pair.deliver_to(77_777), Some(1));
        assert_eq!(pair.deliver_to(100_000), None);
    }
}
