//! What a case body works with: its interface, buffers with guards, waits with an end, a barrier.

use crate::harness::Effort;
use portals_shim::fabric::Opened;
use portals_shim::{
    AckRequest, ClockKind, EqHandle, Event, EventKind, InsertPosition, Interface, MdHandle,
    MdMemory, MdOptions, MdSpec, MeHandle, MeSpec, NiFail, ProcessId, Region, Segment,
    THRESHOLD_INFINITE, Target, Unlink, Wait,
};
use std::cell::Cell;

pub(super) use portals_shim::AckRequest::{Ack, NoAck};
pub(super) use portals_shim::EventKind::*;
pub(super) use portals_shim::InsertPosition::{After, Before};

/// The environment variable that sets how often the cases that look for races repeat themselves,
/// 1000000 in a long run.
pub const ROUNDS: &str = "PORTOLAN_CONFORMANCE_ROUNDS";

pub(super) fn rounds() -> Option<u64> {
    std::env::var(ROUNDS).ok()?.parse().ok()
}

pub(super) const PUT: MdOptions = MdOptions::OP_PUT;
pub(super) const GET: MdOptions = MdOptions::OP_GET;
pub(super) const REMOTE: MdOptions = MdOptions::MANAGE_REMOTE;
pub(super) const TRUNCATE: MdOptions = MdOptions::TRUNCATE;
pub(super) const NO_START: MdOptions = MdOptions::EVENT_START_DISABLE;
pub(super) const NO_END: MdOptions = MdOptions::EVENT_END_DISABLE;
pub(super) const NONE: MdOptions = MdOptions::empty();
/// The event; `Ack` is the request.
pub(super) const ACKED: EventKind = EventKind::Ack;
/// The event; `Unlink` is the rule.
pub(super) const UNLINKED: EventKind = EventKind::Unlink;

/// What fills memory that nobody wrote.
pub(super) const FILL: u8 = 0xee;
const GUARD: usize = 64;

/// The portal that cases use, and the one that the barrier does.
pub(super) const PORTAL: u32 = 4;
pub(super) const BARRIER_PORTAL: u32 = 62;
const PROBE_PORTAL: u32 = 61;
/// The bits that targets match unless a case says otherwise.
pub(super) const BITS: u64 = 0x1122_3344_5566_7788;

/// Memory with guards on both sides.
#[derive(Clone, Debug)]
pub(super) struct Buf {
    region: Region,
    shift: usize,
    len: usize,
}

impl Buf {
    /// `len` bytes whose address is `shift` past a multiple of the page size and 64 bytes.
    pub(super) fn at(len: usize, shift: usize) -> Self {
        let shift = GUARD + shift;
        let region = Region::new(shift + len + GUARD).expect("memory");
        region.fill(0, region.len(), FILL).expect("in range");
        Self { region, shift, len }
    }

    pub(super) fn new(len: usize) -> Self {
        Self::at(len, 0)
    }

    /// Bytes that depend on their place and on `seed`.
    pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
        (0..len)
            .map(|i| (i as u8).wrapping_mul(7).wrapping_add((i >> 8) as u8) ^ seed)
            .collect()
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    pub(super) fn segment(&self) -> Segment {
        Segment {
            addr: self.region.addr() + self.shift as u64,
            len: self.len as u64,
        }
    }

    pub(super) fn memory(&self) -> MdMemory {
        MdMemory::Region {
            region: self.region.clone(),
            offset: self.shift,
            len: self.len,
        }
    }

    pub(super) fn write(&self, at: usize, data: &[u8]) {
        self.region.write(self.shift + at, data).expect("in range");
    }

    pub(super) fn fill(&self, value: u8) {
        self.region
            .fill(self.shift, self.len, value)
            .expect("in range");
    }

    pub(super) fn read(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.region.read(self.shift, &mut out).expect("in range");
        out
    }

    /// The bytes on both sides are as they were made.
    pub(super) fn check_guards(&self) {
        let mut all = vec![0; self.region.len()];
        self.region.read(0, &mut all).expect("in range");
        let outside = all[..self.shift]
            .iter()
            .chain(&all[self.shift + self.len..]);
        assert!(
            outside.into_iter().all(|b| *b == FILL),
            "bytes beside the memory were written"
        );
    }
}

/// A descriptor without limit or queue.
pub(super) fn md(memory: MdMemory, options: MdOptions) -> MdSpec {
    MdSpec {
        memory,
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options,
        user_ptr: 0,
        eq: None,
    }
}

/// An entry for everybody with exactly these bits.
pub(super) const fn entry(match_bits: u64) -> MeSpec {
    MeSpec {
        match_id: ProcessId::ANY,
        match_bits,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    }
}

/// A target of messages.
#[derive(Clone, Debug)]
pub(super) struct Posted {
    pub(super) buf: Buf,
    pub(super) eq: EqHandle,
    pub(super) me: MeHandle,
    pub(super) md: MdHandle,
}

/// A source of messages, or where replies go.
#[derive(Clone, Debug)]
pub(super) struct Bound {
    pub(super) buf: Buf,
    pub(super) eq: EqHandle,
    pub(super) md: MdHandle,
}

/// A byte at every rank that others may get, and where they put it.
#[derive(Debug)]
struct Probe {
    eq: EqHandle,
    md: MdHandle,
    /// Messages that adapters served and that belong to no case.
    served: Cell<u64>,
}

impl Probe {
    fn new(ni: &Interface) -> Self {
        let (theirs, mine) = (Buf::new(1), Buf::new(1));
        let me = ni
            .me_attach(PROBE_PORTAL, entry(0), After)
            .expect("an entry");
        ni.md_attach(me, md(theirs.memory(), GET | REMOTE), Unlink::Retain)
            .expect("a descriptor");
        let eq = ni.eq_alloc(8).expect("a queue");
        let spec = MdSpec {
            eq: Some(eq),
            ..md(mine.memory(), NO_START)
        };
        let md = ni.md_bind(spec, Unlink::Retain).expect("a descriptor");
        Self {
            eq,
            md,
            served: Cell::new(0),
        }
    }
}

/// One rank of a case.
#[derive(Debug)]
pub(super) struct Rank {
    pub(super) rank: u32,
    pub(super) ni: Interface,
    pub(super) peers: Vec<ProcessId>,
    effort: Effort,
    bell: EqHandle,
    hammer: MdHandle,
    rung: Cell<u64>,
    /// In a mode that looks at the path of messages.
    probe: Option<Probe>,
}

impl Rank {
    pub(super) fn new(rank: u32, opened: Opened, effort: Effort, one_sided: bool) -> Self {
        let ni = opened.interface;
        let bell = ni.eq_alloc(64).expect("a queue");
        let me = ni
            .me_attach(BARRIER_PORTAL, entry(0), After)
            .expect("an entry");
        let heard = MdSpec {
            eq: Some(bell),
            ..md(MdMemory::Empty, PUT | NO_START | MdOptions::ACK_DISABLE)
        };
        ni.md_attach(me, heard, Unlink::Retain)
            .expect("a descriptor");
        let hammer = ni
            .md_bind(md(MdMemory::Empty, NONE), Unlink::Retain)
            .expect("a descriptor");
        let probe = one_sided.then(|| Probe::new(&ni));
        Self {
            rank,
            ni,
            peers: opened.peers,
            effort,
            bell,
            hammer,
            rung: Cell::new(0),
            probe,
        }
    }

    /// Rank 1, to which the others send.
    pub(super) fn is_target(&self) -> bool {
        self.rank == 1
    }

    fn ring(&self, rank: usize) {
        let to = Target {
            process: self.peers[rank],
            pt_index: BARRIER_PORTAL,
            ac_index: 0,
            match_bits: 0,
            remote_offset: 0,
        };
        self.ni
            .put(self.hammer, NoAck, to, self.rung.get())
            .expect("the bell rings");
    }

    fn listen(&self) -> Event {
        self.next(self.bell)
    }

    /// All ranks have come here; every message that a rank sent before has been matched or dropped
    /// at a target that is past here, if it was sent to that target.
    pub(super) fn barrier(&self) {
        let n = self.peers.len();
        self.rung.set(self.rung.get() + 1);
        if self.rank == 0 {
            for _ in 1..n {
                self.listen();
            }
            for r in 1..n {
                self.ring(r);
            }
        } else {
            self.ring(0);
            self.listen();
        }
    }

    /// Every message before has had its effect, so that adapters may serve the next one. The other
    /// ranks must be polling. Does nothing where the path of messages is not looked at.
    pub(super) fn settle(&self) {
        let Some(probe) = &self.probe else { return };
        let served = || self.ni.paths().expect("paths").one_sided;
        for rank in (0..self.peers.len()).filter(|r| *r as u32 != self.rank) {
            let from = Target {
                pt_index: PROBE_PORTAL,
                match_bits: 0,
                ..self.to_rank(rank)
            };
            loop {
                let before = served();
                self.ni.get(probe.md, from).expect("the get starts");
                self.take(probe.eq, &[ReplyEnd]);
                if served() > before {
                    probe.served.set(probe.served.get() + 1);
                    break;
                }
            }
        }
    }

    /// Messages of the case that adapters served.
    pub(super) fn served(&self) -> u64 {
        let Some(probe) = &self.probe else { return 0 };
        // An interface that the case has closed says nothing any more.
        let all = self.ni.paths().map_or(0, |p| p.one_sided + p.get_by_am);
        all.saturating_sub(probe.served.get())
    }

    /// How often to repeat what may show a race; [`ROUNDS`] overrides it.
    pub(super) fn rounds(&self, full: u64, small: u64) -> u64 {
        rounds().unwrap_or_else(|| self.many(full, small))
    }

    /// How often to do something.
    pub(super) fn many(&self, full: u64, small: u64) -> u64 {
        match self.effort {
            Effort::Full => full,
            Effort::Small => small,
        }
    }

    pub(super) fn eq(&self, count: u64) -> EqHandle {
        self.ni.eq_alloc(count).expect("a queue")
    }

    /// The other of two ranks.
    pub(super) fn peer(&self) -> ProcessId {
        self.peers[usize::from(self.rank == 0)]
    }

    /// The target of most messages: the peer's portal [`PORTAL`], bits [`BITS`].
    pub(super) fn to(&self) -> Target {
        self.to_rank(usize::from(self.rank == 0))
    }

    pub(super) fn to_rank(&self, rank: usize) -> Target {
        Target {
            process: self.peers[rank],
            pt_index: PORTAL,
            ac_index: 0,
            match_bits: BITS,
            remote_offset: 0,
        }
    }

    /// The same at an offset.
    pub(super) fn at(&self, remote_offset: u64) -> Target {
        Target {
            remote_offset,
            ..self.to()
        }
    }

    pub(super) fn drops(&self) -> u64 {
        self.ni.status().expect("a status").drop_count
    }

    /// Waits until one message more than `before` was dropped; nothing comes to `eq` meanwhile. An ack that is a message may come
    /// after those of later operations that went without the target.
    #[track_caller]
    pub(super) fn one_more_drop(&self, before: u64, eq: EqHandle) {
        while self.drops() == before {
            self.none(eq);
        }
        self.none(eq);
        assert_eq!(self.drops(), before + 1);
    }

    /// The next event, which comes within a time that only a failure exceeds.
    pub(super) fn next(&self, eq: EqHandle) -> Event {
        let limit = match self.ni.clock() {
            ClockKind::Virtual => 2_000_000_000,
            ClockKind::Wall => 20_000_000_000,
        };
        // In a long run a rank may wait for all rounds of another one.
        let limit = limit + 1_000_000 * rounds().unwrap_or(0);
        let polled = self
            .ni
            .eq_poll(&[eq], Wait::Nanos(limit))
            .expect("the queue is one")
            .unwrap_or_else(|| panic!("rank {}: no event came", self.rank));
        assert!(
            !polled.dropped,
            "events before {:?} were lost",
            polled.event
        );
        polled.event
    }

    /// The next events, which are of these kinds in this order.
    #[track_caller]
    pub(super) fn take(&self, eq: EqHandle, kinds: &[EventKind]) -> Vec<Event> {
        kinds
            .iter()
            .map(|kind| {
                let e = self.next(eq);
                assert_eq!(e.kind, *kind, "{e:?}");
                e
            })
            .collect()
    }

    /// Takes the next event, of what has not failed.
    #[track_caller]
    pub(super) fn take_well(&self, eq: EqHandle, kinds: &[EventKind]) -> Vec<Event> {
        let events = self.take(eq, kinds);
        let failed = events.iter().find(|e| e.ni_fail != NiFail::OK);
        assert_eq!(failed, None, "it failed");
        events
    }

    /// No event is there. After a barrier this tells what the messages before it did not do.
    #[track_caller]
    pub(super) fn none(&self, eq: EqHandle) {
        let seen = self.ni.eq_get(eq).expect("the queue is one");
        assert_eq!(seen, None);
    }

    /// Attaches `len` bytes to portal [`PORTAL`] for puts, with a queue; `change` makes it special.
    pub(super) fn target(&self, len: usize, change: impl FnOnce(&mut MdSpec)) -> Posted {
        self.target_with(len, Unlink::Retain, change)
    }

    pub(super) fn target_with(
        &self,
        len: usize,
        unlink: Unlink,
        change: impl FnOnce(&mut MdSpec),
    ) -> Posted {
        let me = self
            .ni
            .me_attach(PORTAL, entry(BITS), After)
            .expect("an entry");
        self.give(me, len, unlink, change)
    }

    /// Attaches memory to an entry.
    pub(super) fn give(
        &self,
        me: MeHandle,
        len: usize,
        unlink: Unlink,
        change: impl FnOnce(&mut MdSpec),
    ) -> Posted {
        let (buf, eq) = (Buf::new(len), self.eq(256));
        let mut spec = MdSpec {
            eq: Some(eq),
            ..md(buf.memory(), PUT)
        };
        change(&mut spec);
        let md = self.ni.md_attach(me, spec, unlink).expect("a descriptor");
        Posted { buf, eq, me, md }
    }

    /// Binds `len` patterned bytes with a queue; `change` makes it special.
    pub(super) fn source(&self, len: usize, change: impl FnOnce(&mut MdSpec)) -> Bound {
        self.source_with(len, Unlink::Retain, change)
    }

    pub(super) fn source_with(
        &self,
        len: usize,
        unlink: Unlink,
        change: impl FnOnce(&mut MdSpec),
    ) -> Bound {
        let (buf, eq) = (Buf::new(len), self.eq(256));
        buf.write(0, &Buf::pattern(len, 0));
        let mut spec = MdSpec {
            eq: Some(eq),
            ..md(buf.memory(), NONE)
        };
        change(&mut spec);
        let md = self.ni.md_bind(spec, unlink).expect("a descriptor");
        Bound { buf, eq, md }
    }

    /// A put whose SEND pair is taken from the queue.
    #[track_caller]
    pub(super) fn put(&self, s: &Bound, region: (u64, u64), ack: AckRequest, to: Target, hdr: u64) {
        self.ni
            .put_region(s.md, region, ack, to, hdr)
            .expect("the put starts");
        self.take(s.eq, &[SendStart, SendEnd]);
    }

    /// A put of everything, acknowledged.
    #[track_caller]
    pub(super) fn put_acked(&self, s: &Bound, to: Target, hdr: u64) -> Event {
        self.ni.put(s.md, Ack, to, hdr).expect("the put starts");
        self.take(s.eq, &[SendStart, SendEnd, ACKED])[2]
    }

    /// A zero-byte put from a descriptor without a queue.
    #[track_caller]
    pub(super) fn knock(&self, to: Target, hdr: u64) {
        self.ni
            .put(self.hammer, NoAck, to, hdr)
            .expect("the put starts");
    }

    /// An entry whose descriptor posts PUT_END alone to `eq` and is told by `user_ptr`.
    pub(super) fn listener(
        &self,
        eq: EqHandle,
        at: Result<(MeHandle, InsertPosition), (u32, InsertPosition)>,
        spec: MeSpec,
        user_ptr: u64,
    ) -> MeHandle {
        let me = match at {
            Ok((base, position)) => self.ni.me_insert(base, spec, position),
            Err((pt_index, position)) => self.ni.me_attach(pt_index, spec, position),
        }
        .expect("an entry");
        let spec = MdSpec {
            eq: Some(eq),
            user_ptr,
            ..md(MdMemory::Empty, PUT | NO_START)
        };
        self.ni
            .md_attach(me, spec, Unlink::Unlink)
            .expect("a descriptor");
        me
    }
}
