//! Random programs see the same events in every mode as in process, and across a fall to the kernel.

use super::*;

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
