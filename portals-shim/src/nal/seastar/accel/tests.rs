//! Programs in accelerated mode: the same events as elsewhere, in less time; and the way back to the
//! kernel.

use super::super::sim::Setting;
use super::super::{Mode, in_threads_on};
use crate::call::{Target, Wait};
use crate::fabric::{Opened, Placement, in_process};
use crate::interface::{Interface, MdMemory, MdSpec};
use crate::region::Region;
use nic_model::Machine;
use portals_core::{
    AckRequest, EqHandle, Event, EventKind, InsertPosition, MdHandle, MdOptions, MeHandle, MeSpec,
    NiFail, ProcessId, Status, Unlink,
};
use std::sync::Barrier;

fn machine() -> Machine {
    Machine::named("xt4").unwrap()
}

/// Runs one body per rank on the model.
fn ranks_on<R: Send>(
    n: u32,
    mode: Mode,
    machine: Machine,
    place: Placement,
    body: impl Fn(u32, &Opened) -> R + Sync,
) -> Vec<R> {
    let setting = Setting {
        machine,
        topology: None,
        mode,
        faults: nic_model::Faults::none(),
    };
    let body = &body;
    let waiting = in_threads_on(n, place, setting).unwrap();
    std::thread::scope(|s| {
        let threads: Vec<_> = waiting
            .into_iter()
            .map(|w| {
                s.spawn(move || {
                    let rank = w.rank();
                    let opened = w.join().unwrap();
                    let result = body(rank, &opened);
                    opened.interface.close().unwrap();
                    result
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn ranks<R: Send>(n: u32, mode: Mode, body: impl Fn(u32, &Opened) -> R + Sync) -> Vec<R> {
    ranks_on(n, mode, machine(), Placement::ONE, body)
}

const ALL: MeSpec = MeSpec {
    match_id: ProcessId::ANY,
    match_bits: 0,
    ignore_bits: u64::MAX,
    unlink: Unlink::Retain,
};

fn spec(memory: MdMemory, options: MdOptions, eq: Option<EqHandle>) -> MdSpec {
    MdSpec {
        memory,
        threshold: -1,
        max_size: 0,
        options,
        user_ptr: 0,
        eq,
    }
}

const OPEN: MdOptions = MdOptions::OP_PUT
    .union(MdOptions::OP_GET)
    .union(MdOptions::MANAGE_REMOTE);

fn to(process: ProcessId, pt_index: u32, remote_offset: u64) -> Target {
    Target {
        process,
        pt_index,
        ac_index: 0,
        match_bits: 0,
        remote_offset,
    }
}

/// Waits until everybody has come here.
fn meet(ni: &Interface, all: &Barrier) {
    ni.outside(|| all.wait()).unwrap();
}

// ---- time ----

/// Nanoseconds of a put with an ack, a get, and one of many puts, by size.
fn times(mode: Mode, len: usize) -> (u64, u64, u64) {
    let all = Barrier::new(2);
    let results = ranks(2, mode, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(512).unwrap();
        let region = Region::new(len.max(8)).unwrap();
        let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
        let options = OPEN | MdOptions::EVENT_START_DISABLE;
        let part = MdMemory::Region {
            region: region.clone(),
            offset: 0,
            len,
        };
        let own = (rank == 0).then_some(eq);
        let md = ni
            .md_attach(me, spec(part, options, own), Unlink::Retain)
            .unwrap();
        meet(ni, &all);
        if rank == 1 {
            meet(ni, &all);
            return (0, 0, 0);
        }
        let there = to(opened.peers[1], 4, 0);
        let until = |kind| while ni.eq_wait(eq).unwrap().event.kind != kind {};
        let start = ni.now();
        ni.put(md, AckRequest::Ack, there, 0).unwrap();
        until(EventKind::Ack);
        let put = ni.now() - start;
        let start = ni.now();
        ni.get(md, there).unwrap();
        until(EventKind::ReplyEnd);
        let get = ni.now() - start;
        let start = ni.now();
        const MANY: u64 = 100;
        for _ in 0..MANY {
            ni.put(md, AckRequest::NoAck, there, 0).unwrap();
        }
        let mut ends = 0;
        while ends < MANY {
            ends += u64::from(ni.eq_wait(eq).unwrap().event.kind == EventKind::SendEnd);
        }
        let many = (ni.now() - start) / MANY;
        meet(ni, &all);
        (put, get, many)
    });
    results[0]
}

#[test]
fn without_traps_and_interrupts_a_small_message_takes_less_time() {
    for len in [0, 8, 64, 1024] {
        let generic = times(Mode::Generic, len);
        let accelerated = times(Mode::Accelerated, len);
        let shorter = |g: u64, a: u64| a * 10 < g * 8;
        assert!(
            shorter(generic.0, accelerated.0) && shorter(generic.1, accelerated.1),
            "{len} B: {generic:?} against {accelerated:?}"
        );
    }
}

#[test]
fn the_same_program_takes_the_same_time_twice() {
    for len in [8, 5000] {
        assert_eq!(times(Mode::Accelerated, len), times(Mode::Accelerated, len));
    }
}

// ---- memory that is not there ----

/// Every operation of `len` bytes with memory that is not there at one of its ends, and the failures of
/// its events, as `initiator` and as `target` sees them.
fn with_bad_memory(mode: Mode, len: u64) -> Vec<Vec<(EventKind, NiFail)>> {
    const SYNC: u32 = 5;
    let all = Barrier::new(2);
    ranks(2, mode, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(64).unwrap();
        let nowhere = || {
            MdMemory::Raw(crate::region::RawMemory {
                memory: portals_core::Memory::contiguous(0x1000, len),
            })
        };
        let good = Region::new(64).unwrap();
        let here = || MdMemory::Region {
            region: good.clone(),
            offset: 0,
            len: len as usize,
        };
        let options = OPEN | MdOptions::EVENT_START_DISABLE;
        for (pt, memory) in [(4, here()), (6, nowhere())] {
            let me = ni.me_attach(pt, ALL, InsertPosition::After).unwrap();
            ni.md_attach(me, spec(memory, options, Some(eq)), Unlink::Retain)
                .unwrap();
        }
        let me = ni.me_attach(SYNC, ALL, InsertPosition::After).unwrap();
        ni.md_attach(me, spec(MdMemory::Empty, options, Some(eq)), Unlink::Retain)
            .unwrap();
        let bound = |memory| {
            let md = spec(memory, options, Some(eq));
            ni.md_bind(md, Unlink::Retain).unwrap()
        };
        let (whole, bad) = (bound(here()), bound(nowhere()));
        let empty = bound(MdMemory::Empty);
        meet(ni, &all);
        let mut seen = Vec::new();
        if rank == 1 {
            // The last operation has no bytes, so that it fails nowhere.
            loop {
                let event = ni.eq_wait(eq).unwrap().event;
                if event.pt_index == SYNC {
                    meet(ni, &all);
                    return seen;
                }
                seen.push((event.kind, event.ni_fail));
            }
        }
        let until = |ends: usize, seen: &mut Vec<_>| {
            for _ in 0..ends {
                let event = ni.eq_wait(eq).unwrap().event;
                seen.push((event.kind, event.ni_fail));
            }
        };
        let there = |pt| to(opened.peers[1], pt, 0);
        // To it, out of it, into it, and the exchange with it.
        ni.put(whole, AckRequest::Ack, there(6), 0).unwrap();
        until(2, &mut seen);
        ni.put(bad, AckRequest::NoAck, there(4), 0).unwrap();
        until(1, &mut seen);
        ni.get(bad, there(4)).unwrap();
        until(1, &mut seen);
        ni.get(whole, there(6)).unwrap();
        until(1, &mut seen);
        ni.get_put(whole, whole, there(6), 0).unwrap();
        until(2, &mut seen);
        // All is well afterwards.
        ni.put(whole, AckRequest::Ack, there(4), 0).unwrap();
        until(2, &mut seen);
        ni.put(empty, AckRequest::NoAck, there(SYNC), 0).unwrap();
        meet(ni, &all);
        seen
    })
}

#[test]
fn memory_that_is_not_there_fails_alike_in_every_mode() {
    for len in [4, 8] {
        let generic = with_bad_memory(Mode::Generic, len);
        let failed = |rank: usize| {
            let failed = |(_, fail): &&(EventKind, NiFail)| *fail != NiFail::OK;
            generic[rank].iter().filter(failed).count()
        };
        assert!(failed(0) >= 4 && failed(1) >= 2, "{generic:?}");
        assert_eq!(with_bad_memory(Mode::Accelerated, len), generic, "{len} B");
    }
}

// ---- the way back ----

/// A machine with room for about this many entries with descriptors in each NIC.
fn small(pairs: u32) -> Machine {
    let mut machine = machine();
    let p = &machine.protocol;
    let tables = 28 * 1024 + p.image + machine.firmware.sources * p.source_size;
    let pendings = (u32::from(super::super::ssnal::PENDINGS) + machine.accelerated.pendings) * 32;
    let pair = machine.accelerated.me_size + machine.accelerated.md_size;
    machine.accelerated.sram = tables + pendings + pairs * pair;
    machine.accelerated.take_over = nic_model::SimDuration::from_us(1_000);
    machine
}

fn pattern(n: u64, len: usize) -> Vec<u8> {
    (0..len as u64)
        .map(|i| (i * 7 + n * 13 + 1) as u8)
        .collect()
}

/// Numbered messages of all kinds of length stream into rank 0 while its NIC runs out of SRAM. None is
/// lost, none overtakes another, and what was made before goes on.
#[test]
fn a_full_nic_gives_its_process_to_the_kernel_in_mid_traffic() {
    const MESSAGES: u64 = 400;
    const LONGEST: usize = 5000;
    const LENGTHS: [usize; 6] = [0, 8, 16, 17, 1000, LONGEST];
    let length = |n: u64| LENGTHS[n as usize % LENGTHS.len()];
    let all = Barrier::new(2);
    let fell = ranks_on(
        2,
        Mode::Accelerated,
        small(20),
        Placement::ONE,
        |rank, opened| {
            let ni = &opened.interface;
            let eq = ni.eq_alloc(1024).unwrap();
            let peer = opened.peers[1 - rank as usize];
            let size = LONGEST * MESSAGES as usize;
            let inbox = Region::new(size).unwrap();
            let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
            let md = ni
                .md_attach(
                    me,
                    spec(MdMemory::whole(&inbox), OPEN, Some(eq)),
                    Unlink::Retain,
                )
                .unwrap();
            let outbox = Region::new(size).unwrap();
            let out_eq = ni.eq_alloc(64).unwrap();
            let out = ni
                .md_bind(
                    spec(MdMemory::whole(&outbox), OPEN, Some(out_eq)),
                    Unlink::Retain,
                )
                .unwrap();
            meet(ni, &all);
            if rank == 1 {
                // The source: at most 30 messages without ack, so that no queue overflows.
                let (mut sent, mut acked) = (0, 0);
                while acked < MESSAGES {
                    while sent < MESSAGES && sent < acked + 15 {
                        let at = sent * LONGEST as u64;
                        let len = length(sent);
                        outbox.write(at as usize, &pattern(sent, len)).unwrap();
                        ni.put_region(
                            out,
                            (at, len as u64),
                            AckRequest::Ack,
                            to(peer, 4, at),
                            sent,
                        )
                        .unwrap();
                        sent += 1;
                    }
                    let polled = ni.eq_wait(out_eq).unwrap();
                    assert!(!polled.dropped);
                    assert_eq!(polled.event.ni_fail, NiFail::OK);
                    if polled.event.kind == EventKind::Ack {
                        acked += 1;
                    }
                }
                // What rank 0 sent while it fell.
                let mut ends = 0;
                while ends < 2 {
                    ends += u32::from(ni.eq_wait(eq).unwrap().event.kind == EventKind::PutEnd);
                }
                let mut got = vec![0; 100_000];
                inbox.read(0, &mut got).unwrap();
                assert!(got == pattern(77, 100_000));
                meet(ni, &all);
                return 0;
            }
            let (mut started, mut ended) = (0, 0);
            let (mut fell, mut own) = (0, Vec::new());
            outbox.write(0, &pattern(77, 100_000)).unwrap();
            while ended < MESSAGES {
                let polled = ni.eq_wait(eq).unwrap();
                assert!(!polled.dropped);
                let event = polled.event;
                assert_eq!(event.ni_fail, NiFail::OK);
                match event.kind {
                    EventKind::PutStart => {
                        assert_eq!(event.hdr_data, started, "messages in order");
                        started += 1;
                    }
                    EventKind::PutEnd => {
                        let n = event.hdr_data;
                        let mut data = vec![0; length(n)];
                        inbox.read(event.offset as usize, &mut data).unwrap();
                        assert!(data == pattern(n, length(n)), "message {n}");
                        ended += 1;
                    }
                    other => panic!("{other:?}"),
                }
                if ended == 100 && own.is_empty() {
                    // A long message is on its way out while the NIC fills.
                    ni.put_region(out, (0, 100_000), AckRequest::Ack, to(peer, 4, 0), 1)
                        .unwrap();
                    while fell == 0 {
                        let before = ni.now();
                        let me = ni.me_attach(9, ALL, InsertPosition::After).unwrap();
                        own.push(me);
                        let md = spec(MdMemory::Empty, OPEN, Some(eq));
                        ni.md_attach(me, md, Unlink::Retain).unwrap();
                        if ni.now() - before > 1_000_000 {
                            fell = own.len();
                        }
                    }
                    ni.put_region(out, (0, 4), AckRequest::Ack, to(peer, 4, 200_000), 2)
                        .unwrap();
                }
            }
            // Handles of both times are good, and what was under way has ended.
            let mut kinds = Vec::new();
            while kinds.iter().filter(|k| **k == EventKind::Ack).count() < 2 {
                kinds.push(ni.eq_wait(out_eq).unwrap().event.kind);
            }
            use EventKind::{Ack, SendEnd, SendStart};
            assert_eq!(kinds.iter().filter(|k| **k == SendStart).count(), 2);
            assert_eq!(kinds.iter().filter(|k| **k == SendEnd).count(), 2);
            assert_eq!(kinds.iter().filter(|k| **k == Ack).count(), 2);
            for me in own {
                ni.me_unlink(me).unwrap();
            }
            ni.md_query(md).unwrap();
            ni.md_unlink(md).unwrap();
            ni.me_unlink(me).unwrap();
            ni.md_unlink(out).unwrap();
            assert_eq!(ni.status().unwrap().drop_count, 0);
            meet(ni, &all);
            fell
        },
    );
    assert!((5..=20).contains(&fell[0]), "{fell:?}");
}

/// More processes than mailboxes, and messages between processes of one node in every combination.
#[test]
fn processes_beyond_the_mailboxes_stay_with_the_kernel() {
    let place = Placement::new(5).unwrap();
    let all = Barrier::new(10);
    let sums = ranks_on(10, Mode::Accelerated, machine(), place, |rank, opened| {
        let ni = &opened.interface;
        let eq = ni.eq_alloc(256).unwrap();
        let region = Region::new(4096).unwrap();
        let me = ni.me_attach(4, ALL, InsertPosition::After).unwrap();
        ni.md_attach(
            me,
            spec(MdMemory::whole(&region), OPEN, Some(eq)),
            Unlink::Retain,
        )
        .unwrap();
        let source = Region::new(256).unwrap();
        source.write(0, &[rank as u8 + 1; 256]).unwrap();
        let md = ni
            .md_bind(spec(MdMemory::whole(&source), OPEN, None), Unlink::Retain)
            .unwrap();
        meet(ni, &all);
        for peer in &opened.peers {
            let there = to(*peer, 4, u64::from(rank) * 256);
            ni.put_region(md, (0, 256), AckRequest::NoAck, there, 0)
                .unwrap();
        }
        let mut ends = 0;
        while ends < opened.peers.len() {
            ends += usize::from(ni.eq_wait(eq).unwrap().event.kind == EventKind::PutEnd);
        }
        let mut data = vec![0; 2560];
        region.read(0, &mut data).unwrap();
        meet(ni, &all);
        data.chunks(256)
            .enumerate()
            .all(|(n, chunk)| chunk.iter().all(|b| *b == n as u8 + 1))
    });
    assert!(sums.iter().all(|ok| *ok), "{sums:?}");
}

// ---- the same events as elsewhere ----

/// What a program can see of one rank, apart from time: events by what they are about, in an order
/// where the API promises one.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    /// START events of messages that arrived, in order.
    arrived: Vec<String>,
    /// All other events, sorted.
    others: Vec<String>,
    memory: Vec<u8>,
    status: Status,
    refusals: Vec<String>,
}

fn show(event: &Event, from: u32) -> String {
    use EventKind::{GetPutStart, GetStart, PutStart, Unlink};
    match event.kind {
        Unlink => format!("Unlink md {}", event.md.user_ptr),
        kind => {
            let threshold = match kind {
                PutStart | GetStart | GetPutStart => event.md.threshold,
                _ => 0,
            };
            format!(
                "{kind:?} from {from} bits {} pt {} r {} m {} at {} data {} md {} left {threshold} {:?}",
                event.match_bits,
                event.pt_index,
                event.rlength,
                event.mlength,
                event.offset,
                event.hdr_data,
                event.md.user_ptr,
                event.ni_fail,
            )
        }
    }
}

/// One rank of a random program. The numbers that decide are the same on every rank and fabric.
struct Player<'a> {
    rank: u32,
    opened: &'a Opened,
    eq: EqHandle,
    bell: EqHandle,
    bells: u64,
    ring: MdHandle,
    memory: Region,
    mes: Vec<MeHandle>,
    mds: Vec<MdHandle>,
    made: u64,
    seen: Seen,
}

const PT: u32 = 7;
const BELL: u32 = 8;
const SIZE: usize = 1 << 20;
/// Longest descriptor of a target; each has memory of its own, so that no two messages meet.
const LONGEST: usize = 9000;

impl<'a> Player<'a> {
    fn new(rank: u32, opened: &'a Opened) -> Self {
        let ni = &opened.interface;
        let bell = ni.eq_alloc(64).unwrap();
        let me = ni.me_attach(BELL, ALL, InsertPosition::After).unwrap();
        let quiet = OPEN | MdOptions::EVENT_START_DISABLE;
        ni.md_attach(me, spec(MdMemory::Empty, quiet, Some(bell)), Unlink::Retain)
            .unwrap();
        let ring = ni
            .md_bind(spec(MdMemory::Empty, quiet, None), Unlink::Retain)
            .unwrap();
        let memory = Region::new(SIZE).unwrap();
        let first: Vec<u8> = (0..SIZE).map(|i| (i as u32 * 31 + rank) as u8).collect();
        memory.write(0, &first).unwrap();
        Self {
            rank,
            opened,
            eq: ni.eq_alloc(4096).unwrap(),
            bell,
            bells: 0,
            ring,
            memory,
            mes: Vec::new(),
            mds: Vec::new(),
            made: 0,
            seen: Seen {
                arrived: Vec::new(),
                others: Vec::new(),
                memory: Vec::new(),
                status: Status::default(),
                refusals: Vec::new(),
            },
        }
    }

    fn ni(&self) -> &'a Interface {
        &self.opened.interface
    }

    /// Everybody tells everybody else, and waits for all; messages before that have arrived.
    fn barrier(&mut self) {
        let ni = self.ni();
        for peer in self.opened.peers.iter().filter(|p| **p != ni.id()) {
            ni.put(self.ring, AckRequest::NoAck, to(*peer, BELL, 0), 0)
                .unwrap();
        }
        self.bells += self.opened.peers.len() as u64 - 1;
        while self.bells > 0 {
            let event = ni.eq_wait(self.bell).unwrap().event;
            self.bells -= u64::from(event.kind == EventKind::PutEnd);
        }
    }

    fn take_events(&mut self) {
        // Long messages may end after the bells that came behind them.
        let patience = Wait::Nanos(30_000);
        while let Some(polled) = self.ni().eq_poll(&[self.eq], patience).unwrap() {
            assert!(!polled.dropped);
            let event = polled.event;
            let mut peers = self.opened.peers.iter();
            let from = peers.position(|p| *p == event.initiator).unwrap() as u32;
            let line = show(&event, from);
            use EventKind::{GetPutStart, GetStart, PutStart};
            match event.kind {
                PutStart | GetStart | GetPutStart => self.seen.arrived.push(line),
                _ => self.seen.others.push(line),
            }
        }
    }

    fn note<T>(&mut self, result: Result<T, portals_core::Error>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.seen.refusals.push(format!("{error:?}"));
                None
            }
        }
    }

    fn memory_at(&self, rng: &mut fastrand::Rng) -> MdMemory {
        MdMemory::Region {
            region: self.memory.clone(),
            offset: ((self.made as usize * (LONGEST + 24)) % (SIZE / 2 - LONGEST)) & !3,
            len: [0, 8, 64, 700, LONGEST][rng.usize(0..5)],
        }
    }

    /// Changes of the own lists and descriptors; `rng` decides the same on every fabric.
    fn rebuild(&mut self, rng: &mut fastrand::Rng) {
        for _ in 0..rng.usize(1..6) {
            self.made += 1;
            let ni = self.ni();
            let me = MeSpec {
                match_bits: rng.u64(0..3),
                ignore_bits: [0, 0, 1, u64::MAX][rng.usize(0..4)],
                unlink: [Unlink::Retain, Unlink::Unlink][rng.usize(0..2)],
                match_id: ProcessId::ANY,
            };
            let at = [InsertPosition::Before, InsertPosition::After][rng.usize(0..2)];
            let mut md = spec(self.memory_at(rng), OPEN, Some(self.eq));
            md.user_ptr = self.made;
            md.threshold = [-1, 1, 2, 5][rng.usize(0..4)];
            for option in [
                MdOptions::TRUNCATE,
                MdOptions::ACK_DISABLE,
                MdOptions::MANAGE_REMOTE,
            ] {
                md.options.set(option, rng.bool());
            }
            let spent = [Unlink::Retain, Unlink::Unlink][rng.usize(0..2)];
            match rng.u8(0..8) {
                0 if !self.mes.is_empty() => {
                    let base = self.mes[rng.usize(0..self.mes.len())];
                    let made = ni.me_insert(base, me, at);
                    if let Some(me) = self.note(made) {
                        self.mes.push(me);
                        let made = ni.md_attach(me, md, spent);
                        let md = self.note(made);
                        self.mds.extend(md);
                    }
                }
                1 if !self.mes.is_empty() => {
                    let me = self.mes.swap_remove(rng.usize(0..self.mes.len()));
                    let done = ni.me_unlink(me);
                    self.note(done);
                }
                2 if !self.mds.is_empty() => {
                    let md = self.mds.swap_remove(rng.usize(0..self.mds.len()));
                    let done = ni.md_unlink(md);
                    self.note(done);
                }
                3 if !self.mds.is_empty() => {
                    let old = self.mds[rng.usize(0..self.mds.len())];
                    let test = rng.bool().then_some(self.eq);
                    let done = ni.md_update(old, md, test).map(|old| old.user_ptr);
                    if let Some(old) = self.note(done) {
                        self.seen.others.push(format!("updated {old}"));
                    }
                }
                4 if !self.mes.is_empty() => {
                    let base = self.mes[rng.usize(0..self.mes.len())];
                    let test = rng.bool().then_some(self.eq);
                    let made = ni.me_md_post(base, me, at, md, spent, test);
                    if let Some((me, md)) = self.note(made) {
                        self.mes.push(me);
                        self.mds.push(md);
                    }
                }
                _ => {
                    let made = ni.me_attach(PT, me, at);
                    if let Some(me) = self.note(made) {
                        self.mes.push(me);
                        let made = ni.md_attach(me, md, spent);
                        let md = self.note(made);
                        self.mds.extend(md);
                    }
                }
            }
        }
    }

    /// Operations of one kind towards the other rank, so that none reads what another writes.
    fn operate(&mut self, rng: &mut fastrand::Rng) {
        let kind = rng.u8(0..3);
        let from = rng.u32(0..2);
        let count = rng.u64(1..12);
        let options = MdOptions::empty();
        let part = MdMemory::Region {
            region: self.memory.clone(),
            offset: SIZE / 2,
            len: SIZE / 2,
        };
        let mut md = spec(part, options, Some(self.eq));
        md.user_ptr = 1_000_000;
        let ni = self.ni();
        let md = ni.md_bind(md, Unlink::Retain).unwrap();
        let peer = self.opened.peers[1 - self.rank as usize];
        for n in 0..count {
            let len = [0, 3, 8, 16, 17, 60, 700, 3000][rng.usize(0..8)];
            let there = Target {
                match_bits: rng.u64(0..4),
                ac_index: [0, 0, 0, 0, 0, 7, 8][rng.usize(0..7)],
                ..to(peer, [PT, PT, PT, 60, 200][rng.usize(0..5)], n * 3000)
            };
            let ack = [AckRequest::Ack, AckRequest::NoAck][rng.usize(0..2)];
            if self.rank != from {
                continue;
            }
            // A target's window is smaller than 12 messages apart; each has its own place here.
            let at = n * 2500;
            let done = match kind {
                0 => ni.put_region(md, (at, len.min(2500)), ack, there, n),
                1 => ni.get_region(md, (at, len.min(2500)), there),
                _ => ni.get_put_region(md, md, (at, at + 100, len.min(100)), there, n),
            };
            self.note(done);
        }
        self.barrier();
        self.barrier();
        self.take_events();
        // What has been dropped is never answered, so the descriptor may be unlinked now.
        ni.md_unlink(md).unwrap();
    }

    fn play(mut self, seed: u64) -> Seen {
        let mut rng = fastrand::Rng::with_seed(seed);
        for _ in 0..8 {
            let mut own = fastrand::Rng::with_seed(rng.u64(..) ^ u64::from(self.rank));
            self.rebuild(&mut own);
            self.barrier();
            self.operate(&mut rng);
        }
        self.take_events();
        self.seen.others.sort();
        let mut memory = vec![0; SIZE];
        self.memory.read(0, &mut memory).unwrap();
        self.seen.memory = memory;
        // The bells of a barrier may have come or not.
        self.seen.status = Status {
            recv_count: 0,
            ..self.ni().status().unwrap()
        };
        self.barrier();
        self.seen
    }
}

fn in_process_ranks(seed: u64) -> Vec<Seen> {
    std::thread::scope(|s| {
        let opened = in_process(2).into_iter().enumerate();
        let threads: Vec<_> = opened
            .map(|(rank, opened)| s.spawn(move || Player::new(rank as u32, &opened).play(seed)))
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn compare(name: &str, seen: &[Seen], oracle: &[Seen]) {
    for (rank, (seen, oracle)) in seen.iter().zip(oracle).enumerate() {
        let name = format!("{name}, rank {rank}");
        assert_eq!(seen.arrived, oracle.arrived, "{name}");
        let only = |a: &Seen, b: &Seen| -> Vec<String> {
            a.others
                .iter()
                .filter(|e| !b.others.contains(e))
                .cloned()
                .collect()
        };
        let (more, less) = (only(seen, oracle), only(oracle, seen));
        assert!(
            more.is_empty() && less.is_empty(),
            "{name}: {more:#?} for {less:#?}"
        );
        assert_eq!(seen.others, oracle.others, "{name}");
        assert_eq!(seen.refusals, oracle.refusals, "{name}");
        assert_eq!(seen.status, oracle.status, "{name}");
        assert!(seen.memory == oracle.memory, "{name}");
    }
}

#[test]
fn random_programs_see_the_same_in_every_mode() {
    let mut arrived = 0;
    for seed in 0..12 {
        let oracle = in_process_ranks(seed);
        for mode in Mode::ALL {
            let seen = ranks(2, mode, |rank, opened| Player::new(rank, opened).play(seed));
            compare(&format!("seed {seed}, {mode}"), &seen, &oracle);
            arrived += seen.iter().map(|s| s.arrived.len()).sum::<usize>();
        }
    }
    assert!(arrived > 200, "{arrived}");
}

/// The same, with so little SRAM that the processes fall back somewhere in the middle.
#[test]
fn random_programs_see_the_same_across_a_fall() {
    for seed in 0..10 {
        let oracle = in_process_ranks(seed);
        let machine = small(2 + seed as u32 % 7);
        let seen = ranks_on(
            2,
            Mode::Accelerated,
            machine,
            Placement::ONE,
            |rank, opened| Player::new(rank, opened).play(seed),
        );
        compare(&format!("seed {seed}, falling"), &seen, &oracle);
    }
}
