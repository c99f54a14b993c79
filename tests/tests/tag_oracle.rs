//! Tag matching under random use on every fabric, judged by MPI's rules: sends, synchronous sends, receives, probes,
//! matched probes and cancels on three ranks.
//!
//! The order in which messages of different sources arrive is the fabric's; everything else is decided:
//!
//! * a receive gets a message that it matches, whole or its beginning, with its source, tag and length;
//! * of two messages of one source that match a receive, it gets the first, unless an earlier receive (or probe) has that;
//! * of two receives that match a message, the earlier one gets it, unless it has another one;
//! * every message is received exactly once; a cancelled receive has none.
//!
//! Over queues within the process one thread plays all ranks, so that a seed is one schedule; elsewhere each rank has a
//! thread. `PORTOLAN_TAG_OPERATIONS=1000000` makes so many operations on each fabric.

use portals_shim::Region;
use portals_shim::fabric::{Opened, in_process};
use portolan_tests::harness::mode;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tagged::{Comm, Message, Options, Request, RequestError, Slice, Status, TagMode, World};

const RANKS: u32 = 3;
const SIZES: [usize; 6] = [8, 9, 40, 64, 65, 300];
const ROOM: usize = 512;
const SHORT: usize = 64;
/// Operations of a rank between two judgements.
const BATCH: usize = 70;
/// Batches of one world.
const BATCHES: usize = 50;
/// Longer than a world takes anywhere.
const LIMIT: Duration = Duration::from_secs(120);

/// Of a batch: who sent it, and the how many-th of that rank it is.
type Number = (u32, usize);

/// A message as its sender knows it.
#[derive(Clone, Copy, Debug)]
struct Sent {
    to: u32,
    comm: usize,
    tag: i32,
    len: usize,
}

/// A receive, or the taking of a message by a probe, as it was asked for.
#[derive(Clone, Copy, Debug)]
struct Wish {
    comm: usize,
    source: Option<u32>,
    tag: Option<i32>,
    room: usize,
    /// A probe that took a message; receives alone are ordered among each other.
    probe: bool,
}

/// What a receive has.
#[derive(Clone, Copy, Debug)]
struct Got {
    number: Number,
    status: Status,
    /// Bytes of the message, of which the receive may have only the beginning.
    sent: usize,
}

/// One rank of a batch, for the judge.
#[derive(Clone, Debug, Default)]
struct Log {
    sent: Vec<Sent>,
    received: Vec<(Wish, Option<Got>)>,
}

struct Player {
    rank: u32,
    rng: fastrand::Rng,
    /// Of ten operations about so many are sends, and receives.
    sends: u8,
    receives: u8,
    comms: Vec<Comm>,
    log: Log,
    /// By index of the log: what is under way.
    sending: Vec<(Option<Request>, Region)>,
    receiving: Vec<(Option<Request>, Region)>,
    cancelled: Vec<bool>,
    taken: Vec<(Message, usize)>,
    spare: Vec<Region>,
}

fn byte((source, number): Number, at: usize) -> u8 {
    (source as usize * 17 + number * 31 + at * 7) as u8
}

impl Player {
    fn new(world: &World, rank: u32, seed: u64) -> Self {
        Self {
            rank,
            rng: fastrand::Rng::with_seed(seed * 64 + u64::from(rank)),
            sends: 1,
            receives: 1,
            comms: vec![world.comm()],
            log: Log::default(),
            sending: Vec::new(),
            receiving: Vec::new(),
            cancelled: Vec::new(),
            taken: Vec::new(),
            spare: Vec::new(),
        }
    }

    fn buffer(&mut self) -> Region {
        let spare = self.spare.pop();
        spare.unwrap_or_else(|| Region::new(ROOM).unwrap())
    }

    fn any_comm(&mut self) -> usize {
        self.rng.usize(0..self.comms.len())
    }

    fn send(&mut self) {
        let buffer = self.buffer();
        let sent = Sent {
            to: self.rng.u32(0..RANKS),
            comm: self.any_comm(),
            tag: self.rng.i32(0..3),
            len: SIZES[self.rng.usize(0..SIZES.len())],
        };
        let number = (self.rank, self.log.sent.len());
        let mut bytes: Vec<u8> = (0..sent.len).map(|at| byte(number, at)).collect();
        bytes[..4].copy_from_slice(&number.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&(number.1 as u32).to_le_bytes());
        buffer.write(0, &bytes).unwrap();
        let data = Slice::new(&buffer, 0, sent.len).unwrap();
        let comm = &self.comms[sent.comm];
        let request = match self.rng.u8(0..4) {
            0 => comm.issend(data, sent.to, sent.tag),
            _ => comm.isend(data, sent.to, sent.tag),
        };
        self.log.sent.push(sent);
        self.sending.push((Some(request.unwrap()), buffer));
    }

    fn wish(&mut self) -> Wish {
        Wish {
            comm: self.any_comm(),
            source: (self.rng.u8(0..3) > 0).then(|| self.rng.u32(0..RANKS)),
            tag: (self.rng.u8(0..3) > 0).then(|| self.rng.i32(0..3)),
            room: if self.rng.u8(0..5) == 0 { 8 } else { ROOM },
            probe: false,
        }
    }

    fn began(&mut self, wish: Wish, request: Option<Request>, buffer: Region) {
        self.log.received.push((wish, None));
        self.receiving.push((request, buffer));
        self.cancelled.push(false);
    }

    fn receive(&mut self, wish: Wish) {
        let buffer = self.buffer();
        self.receive_into(wish, buffer);
    }

    /// A receive like one of the last, in the same memory; `false` if that is still used.
    fn receive_again(&mut self) -> bool {
        let back = self.rng.usize(1..4);
        let Some(index) = self.receiving.len().checked_sub(back) else {
            return false;
        };
        let (wish, got) = self.log.received[index];
        let used = self.receiving[index].0.is_some() || got.is_none() && !self.cancelled[index];
        if wish.probe || used {
            return false;
        }
        // Each place of the batch has memory of its own.
        let other = self.buffer();
        let buffer = std::mem::replace(&mut self.receiving[index].1, other);
        self.receive_into(wish, buffer);
        true
    }

    fn receive_into(&mut self, wish: Wish, buffer: Region) {
        let into = Slice::new(&buffer, 0, wish.room).unwrap();
        let request = self.comms[wish.comm].irecv(into, wish.source, wish.tag);
        self.began(wish, Some(request.unwrap()), buffer);
    }

    /// Looks for a message, or takes one, which counts as a receive that began then.
    fn probe(&mut self) {
        let wish = Wish {
            room: ROOM,
            probe: true,
            ..self.wish()
        };
        let comm = &self.comms[wish.comm];
        let found = |status: Status| {
            assert!(wish.source.is_none_or(|s| s == status.source));
            assert!(wish.tag.is_none_or(|t| t == status.tag));
            assert!(SIZES.contains(&status.len));
        };
        if self.rng.bool() {
            let status = comm.iprobe(wish.source, wish.tag).unwrap();
            status.into_iter().for_each(found);
        } else if let Some(message) = comm.improbe(wish.source, wish.tag).unwrap() {
            found(message.status());
            let buffer = self.buffer();
            self.taken.push((message, self.log.received.len()));
            self.began(wish, None, buffer);
        }
    }

    fn receive_taken(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let at = self.rng.usize(0..self.taken.len());
        let (message, index) = self.taken.swap_remove(at);
        let (request, buffer) = &mut self.receiving[index];
        let into = Slice::new(buffer, 0, ROOM).unwrap();
        let comm = &self.comms[self.log.received[index].0.comm];
        *request = Some(comm.imrecv(message, into).unwrap());
    }

    fn cancel(&mut self, index: usize) {
        let comm = &self.comms[self.log.received[index].0.comm];
        if let (Some(request), _) = &self.receiving[index] {
            let done = comm.cancel(request).unwrap();
            assert!(!(done && self.cancelled[index]), "cancelled twice");
            self.cancelled[index] |= done;
        }
    }

    fn step(&mut self) {
        let (sends, receives) = (self.sends, self.receives);
        match self.rng.u8(0..sends + receives + 4) {
            n if n < sends => self.send(),
            n if n < sends + receives => {
                if self.rng.bool() || !self.receive_again() {
                    let wish = self.wish();
                    self.receive(wish);
                }
            }
            n => match n - sends - receives {
                0 => self.probe(),
                1 => self.receive_taken(),
                2 if !self.receiving.is_empty() => {
                    let index = self.rng.usize(0..self.receiving.len());
                    self.cancel(index);
                }
                _ => {
                    self.receives_are_under_way();
                    self.sends_are_under_way();
                }
            },
        }
    }

    fn ended(&mut self, index: usize, end: Result<Status, RequestError>) {
        let (status, sent) = match end {
            Ok(status) => (status, status.len),
            Err(RequestError::Truncated { status, sent }) => (status, sent as usize),
            Err(RequestError::Cancelled) => {
                assert!(self.cancelled[index]);
                return;
            }
            Err(other) => panic!("{other}"),
        };
        assert!(!self.cancelled[index]);
        let mut bytes = vec![0; status.len];
        self.receiving[index].1.read(0, &mut bytes).unwrap();
        let word = |at| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let number = (word(0), word(4) as usize);
        let rest = bytes.iter().enumerate().skip(8);
        assert!(rest.into_iter().all(|(at, b)| *b == byte(number, at)));
        self.log.received[index].1 = Some(Got {
            number,
            status,
            sent,
        });
    }

    fn receives_are_under_way(&mut self) -> bool {
        let mut some = false;
        for index in 0..self.receiving.len() {
            let Some(request) = self.receiving[index].0.take() else {
                continue;
            };
            let comm = &self.comms[self.log.received[index].0.comm];
            match comm.test(&request).unwrap() {
                Some(end) => self.ended(index, end),
                None => {
                    self.receiving[index].0 = Some(request);
                    some = true;
                }
            }
        }
        some
    }

    fn sends_are_under_way(&mut self) -> bool {
        let mut some = false;
        for (sent, (sending, _)) in self.log.sent.iter().zip(&mut self.sending) {
            let Some(request) = sending.take() else {
                continue;
            };
            match self.comms[sent.comm].test(&request).unwrap() {
                Some(end) => assert!(end.is_ok(), "{end:?}"),
                None => {
                    *sending = Some(request);
                    some = true;
                }
            }
        }
        some
    }

    /// A batch begins.
    fn begin(&mut self) {
        self.log = Log::default();
        let used = self.sending.drain(..).chain(self.receiving.drain(..));
        self.spare.extend(used.map(|(_, buffer)| buffer));
        self.cancelled.clear();
        (self.sends, self.receives) = (self.rng.u8(1..8), self.rng.u8(1..8));
    }

    /// Takes back what has no message.
    fn take_back(&mut self) {
        while !self.taken.is_empty() {
            self.receive_taken();
        }
        for index in 0..self.receiving.len() {
            self.cancel(index);
        }
    }

    /// Receives what all of them have sent to this rank and it has not received.
    fn receive_rest(&mut self, all: &[Log]) {
        for comm in 0..self.comms.len() {
            let sent = all.iter().flat_map(|log| &log.sent);
            let sent = sent.filter(|s| s.to == self.rank && s.comm == comm).count();
            let received = self.log.received.iter();
            let received = received.filter(|(w, got)| w.comm == comm && got.is_some());
            for _ in received.count()..sent {
                self.receive(Wish {
                    comm,
                    source: None,
                    tag: None,
                    room: ROOM,
                    probe: false,
                });
            }
        }
    }
}

/// Whether the rules were kept in a batch; `logs` by rank.
fn judge(logs: &[Log]) {
    let sent = |(source, number): Number| logs[source as usize].sent[number];
    let matches = |rank: usize, wish: &Wish, number: Number| {
        let sent = sent(number);
        rank == sent.to as usize
            && wish.comm == sent.comm
            && wish.source.is_none_or(|s| s == number.0)
            && wish.tag.is_none_or(|t| t == sent.tag)
    };
    // The receive, of its rank, that has each message.
    let mut by: Vec<Vec<Option<usize>>> = logs.iter().map(|l| vec![None; l.sent.len()]).collect();
    for (rank, log) in logs.iter().enumerate() {
        for (index, (wish, got)) in log.received.iter().enumerate() {
            let Some(Got {
                number,
                status,
                sent: len,
            }) = *got
            else {
                continue;
            };
            let message = sent(number);
            assert!(matches(rank, wish, number), "{wish:?} got {message:?}");
            assert_eq!((status.source, status.tag), (number.0, message.tag));
            assert_eq!(len, message.len);
            assert_eq!(status.len, message.len.min(wish.room));
            let slot = &mut by[number.0 as usize][number.1];
            assert_eq!(*slot, None, "{number:?} was received twice");
            *slot = Some(index);
        }
    }
    for (source, row) in by.iter().enumerate() {
        let lost = row.iter().position(Option::is_none);
        assert_eq!(lost, None, "nobody has a message of rank {source}");
    }
    for (rank, log) in logs.iter().enumerate() {
        for (index, (wish, got)) in log.received.iter().enumerate() {
            let Some(number) = got.map(|got| got.number) else {
                continue;
            };
            // Messages of this source before it, which the receive matches, have earlier receives.
            for earlier in (0..number.1).map(|n| (number.0, n)) {
                if matches(rank, wish, earlier) {
                    let other = by[earlier.0 as usize][earlier.1].unwrap();
                    assert!(
                        other < index,
                        "{index} got {number:?}, {other} got {earlier:?}"
                    );
                }
            }
            // Receives before it, which match the message, have another message or were taken back.
            for (earlier, (wish, other)) in log.received[..index].iter().enumerate() {
                if let Some(other) = other
                    && !wish.probe
                    && matches(rank, wish, number)
                {
                    let passed = other.number.0 == number.0 && other.number.1 > number.1;
                    assert!(!passed, "{earlier} got {other:?}, {index} got {number:?}");
                }
            }
        }
    }
}

fn options(seed: u64) -> Options {
    let mut rng = fastrand::Rng::with_seed(seed);
    Options {
        mode: [TagMode::Full, TagMode::Tag1, TagMode::Tag2][seed as usize % 3],
        short: SHORT,
        // From one credit a peer to more than are ever used.
        overflow: SHORT * 2 * RANKS as usize * [1, 2, 5, 64][rng.usize(0..4)],
        requests: 4096,
        // With few events a call, messages wait in the queues while receives are posted.
        events_per_call: [1, 2, 100][rng.usize(0..3)],
        ..Options::default()
    }
}

fn open(opened: Opened, rank: u32, seed: u64, meet: impl FnOnce()) -> World {
    let fence = || {
        meet();
        Ok::<(), Infallible>(())
    };
    World::open(opened, rank, &options(seed), fence).unwrap()
}

fn until(mut done: impl FnMut() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < LIMIT, "something never ends");
    }
}

/// All ranks by one thread, in turns that the seed decides.
fn play_alone(seed: u64, batches: usize) {
    let opened = (0..).zip(in_process(RANKS));
    let worlds: Vec<World> = opened.map(|(r, o)| open(o, r, seed, || ())).collect();
    let players = (0..).zip(&worlds).map(|(r, w)| Player::new(w, r, seed));
    let mut players: Vec<Player> = players.collect();
    let mut turns = fastrand::Rng::with_seed(seed);
    for _ in 0..batches {
        players.iter_mut().for_each(Player::begin);
        for _ in 0..BATCH * RANKS as usize {
            players[turns.usize(0..RANKS as usize)].step();
        }
        players.iter_mut().for_each(Player::take_back);
        let all = |players: &mut [Player], under_way: fn(&mut Player) -> bool| {
            let some = players.iter_mut().map(under_way);
            !some.fold(false, |some, one| some | one)
        };
        let receives: fn(&mut Player) -> bool = |player| {
            player.sends_are_under_way();
            player.receives_are_under_way()
        };
        until(|| all(&mut players, receives));
        let logs: Vec<Log> = players.iter().map(|p| p.log.clone()).collect();
        players.iter_mut().for_each(|p| p.receive_rest(&logs));
        until(|| all(&mut players, receives));
        until(|| all(&mut players, Player::sends_are_under_way));
        let logs: Vec<Log> = players.iter().map(|p| p.log.clone()).collect();
        judge(&logs);
    }
    for world in &worlds {
        assert_eq!(world.counts()[0].forged, 0);
    }
}

/// What the ranks' threads share: the log of each for the others to read.
struct Table {
    meeting: Barrier,
    logs: Mutex<Vec<Log>>,
}

impl Table {
    fn logs(&self) -> MutexGuard<'_, Vec<Log>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One rank by its own thread.
fn play(opened: Opened, rank: u32, seed: u64, batches: usize, table: &Table) {
    let meet = || {
        table.meeting.wait();
    };
    let interface = opened.interface.clone();
    let world = open(opened, rank, seed, meet);
    let mut player = Player::new(&world, rank, seed);
    let all = world.comm();
    let publish = |player: &Player| {
        table.logs()[rank as usize] = player.log.clone();
        // By messages, so that time goes on for the others and their messages are handled here.
        all.barrier().unwrap();
    };
    for _ in 0..batches {
        player.begin();
        (0..BATCH).for_each(|_| player.step());
        publish(&player);
        player.take_back();
        until(|| !player.receives_are_under_way());
        let logs = table.logs().clone();
        player.receive_rest(&logs);
        until(|| !player.receives_are_under_way());
        until(|| !player.sends_are_under_way());
        // Nobody changes a log that another one still reads.
        all.barrier().unwrap();
        publish(&player);
        if rank == 0 {
            judge(&table.logs());
        }
        all.barrier().unwrap();
    }
    assert_eq!(world.counts()[0].forged, 0);
    interface.outside(meet).unwrap();
    interface.close().unwrap();
}

/// Operations for a fabric that simulates or emulates, where nobody says how many.
const FEW: usize = 10_000;

fn wanted(few: usize) -> usize {
    let told = std::env::var("PORTOLAN_TAG_OPERATIONS").ok();
    told.and_then(|n| n.parse().ok()).unwrap_or(few)
}

/// Worlds one after the other, each with a seed, until there were so many operations; an error says why there are none.
fn repeat(name: &str, operations: usize, mut world: impl FnMut(u64, usize) -> Result<(), String>) {
    let (mut done, mut seed) = (0, 0);
    while done < operations {
        let batch = BATCH * RANKS as usize;
        let batches = (operations - done).div_ceil(batch).min(BATCHES);
        if let Err(reason) = world(seed, batches) {
            println!("skipped: {name} ({reason})");
            return;
        }
        done += batches * batch;
        seed += 1;
    }
    println!(
        "tag oracle | {name} | {done} operations, seeds 0 to {}",
        seed.max(1) - 1
    );
}

/// On a mode of the conformance suite.
fn on(test: &str, few: usize) {
    let mode = mode(test);
    let harness = (mode.harness)();
    repeat(mode.name, wanted(few), |seed, batches| {
        let table = Arc::new(Table {
            meeting: Barrier::new(RANKS as usize),
            logs: Mutex::new(vec![Log::default(); RANKS as usize]),
        });
        let (ended, ends) = mpsc::channel();
        for (rank, join) in (0..).zip(harness.open(RANKS)?) {
            let (table, ended) = (Arc::clone(&table), ended.clone());
            thread::spawn(move || {
                let run = || play(join().unwrap(), rank, seed, batches, &table);
                let _ = ended.send(catch_unwind(AssertUnwindSafe(run)).is_ok());
            });
        }
        // A rank that fails leaves the others waiting for it.
        for _ in 0..RANKS {
            let end = ends.recv_timeout(LIMIT);
            assert_eq!(end, Ok(true), "a rank failed or hangs, seed {seed}");
        }
        Ok(())
    });
}

#[test]
fn a_million_operations_in_process_keep_the_rules() {
    repeat(
        "in-process, one thread",
        wanted(1_000_000),
        |seed, batches| {
            play_alone(seed, batches);
            Ok(())
        },
    );
}

#[test]
fn threads_in_process_keep_the_rules() {
    on("in_process", FEW);
}

#[test]
fn kernels_of_the_seastar_keep_the_rules() {
    on("seastar", FEW);
}

#[test]
fn the_firmware_of_the_seastar_keeps_the_rules() {
    on("seastar_accelerated", FEW);
}

#[test]
fn shared_memory_keeps_the_rules() {
    on("shm", FEW);
}

#[test]
fn verbs_keep_the_rules() {
    on("verbs", FEW);
}

#[test]
fn verbs_and_shared_memory_keep_the_rules() {
    on("verbs_shm", FEW);
}

#[test]
fn verbs_datagrams_keep_the_rules() {
    on("verbs_ud", FEW);
}
