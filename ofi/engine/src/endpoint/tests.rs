//! Endpoints of this process, and what they say to each other.

mod accesses;
mod bounds;
mod closed;
mod frames;
mod losses;
mod multi;
mod removals;
mod rendezvous;
mod waits;

use super::*;
use crate::addresses::Addresses;
use crate::completion::{
    Counter, End, Entry, ErrorEntry, HasFailed, Level, Queue, Reports, ReportsId, flags,
};
use crate::peers::Backlog;
use portals_shim::Region;
use portals_shim::fabric::FabricKind;
use std::sync::Arc;
use std::time::Instant;

const LIMIT: Duration = Duration::from_secs(60);

struct Side {
    endpoint: Arc<Endpoint>,
    queue: Arc<Queue>,
    counter: Arc<Counter>,
    addresses: Arc<Addresses>,
    /// All of these.
    reports: ReportsId,
    /// Number 0 is this side, 1 the other.
    peers: Vec<ProcessId>,
}

impl Drop for Side {
    fn drop(&mut self) {
        self.endpoint.close();
    }
}

fn sides(count: usize) -> Vec<Side> {
    // Over the device that is to be tested, in the simulation that is to be joined, or over shared memory.
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let device = variable("PORTOLAN_TEST_DEVICE");
    let config = FabricConfig {
        fabric: match device {
            Some(_) => FabricKind::Verbs,
            None if variable("PORTOLAN_SIMULATION").is_some() => FabricKind::Seastar,
            None => FabricKind::Shm,
        }
        .into(),
        device,
        ..FabricConfig::default()
    };
    sides_over(&config, count)
}

fn sides_over(config: &FabricConfig, count: usize) -> Vec<Side> {
    let open = || {
        let endpoint = Arc::new(Endpoint::open(config).unwrap());
        let reports = Reports {
            queue: Some(Arc::default()),
            counter: Some(Arc::default()),
            addresses: Some(Arc::default()),
        };
        Side {
            queue: reports.queue.clone().unwrap(),
            counter: reports.counter.clone().unwrap(),
            addresses: reports.addresses.clone().unwrap(),
            reports: endpoint.report_to(reports),
            peers: Vec::new(),
            endpoint,
        }
    };
    let mut all: Vec<Side> = (0..count).map(|_| open()).collect();
    let addresses: Vec<_> = all.iter().map(|side| side.endpoint.address()).collect();
    for side in &mut all {
        for bytes in &addresses {
            let (_, address) = side.addresses.insert(bytes).unwrap();
            side.peers.push(side.endpoint.connect(&address).unwrap());
        }
    }
    all
}

fn pair() -> [Side; 2] {
    sides(2).try_into().ok().unwrap()
}

fn buffer(region: &Region, offset: usize, len: usize) -> Buffer {
    Buffer::of_region(region, offset, len)
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + 1) as u8).collect()
}

fn filled(len: usize, seed: usize) -> Region {
    let region = Region::new(len.max(1)).unwrap();
    region.write(0, &bytes(len, seed)).unwrap();
    region
}

fn has(region: &Region, len: usize, seed: usize) {
    let mut seen = vec![0; len];
    region.read(0, &mut seen).unwrap();
    assert!(seen == bytes(len, seed), "{len} bytes");
}

fn tagged(tag: u64) -> Message {
    Message {
        tag: Some(tag),
        data: None,
        inject: false,
    }
}

const fn exactly(from: Option<ProcessId>, tag: u64) -> Wanted {
    Wanted {
        from,
        tag,
        ignore: 0,
    }
}

impl Side {
    fn op(&self, context: usize, flags: u64) -> Op {
        Op {
            context,
            flags,
            told: true,
            level: Level::Injected,
            reports: Some(self.reports),
        }
    }

    fn send(&self, to: usize, tag: u64, region: &Region, len: usize) {
        let op = self.op(1000, flags::SEND | flags::TAGGED);
        let buffer = buffer(region, 0, len);
        let sent = self.endpoint.send(self.peers[to], tagged(tag), buffer, op);
        sent.unwrap();
    }

    fn receive(&self, wanted: Wanted, region: &Region, len: usize, context: usize) {
        let op = self.op(context, flags::RECV | flags::TAGGED);
        let buffer = buffer(region, 0, len);
        self.endpoint.receive(true, wanted, buffer, None, op);
    }

    fn poll(&self) -> Option<Result<(Entry, u64), ErrorEntry>> {
        self.endpoint.progress(Duration::ZERO);
        let mut found = None;
        match self
            .queue
            .take(1, |entry, source| found = Some((*entry, source)))
        {
            Ok(_) => found.map(Ok),
            Err(HasFailed) => self.queue.take_failed().map(Err),
        }
    }
}

/// Returns when a message with this tag, of the first side, waits for a receive at the second.
fn waits_unexpected(from: &Side, to: &Side, tag: u64) {
    let begun = Instant::now();
    let wanted = exactly(None, tag);
    while to.endpoint.core().lists[1].find(&wanted).is_none() {
        assert!(begun.elapsed() < LIMIT, "no message waits");
        from.endpoint.progress(Duration::ZERO);
        to.endpoint.progress(Duration::ZERO);
    }
}

/// The next completion of the first; the others make progress meanwhile, and their completions are kept.
fn next(sides: &[&Side]) -> Result<(Entry, u64), ErrorEntry> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if let Some(found) = sides[0].poll() {
            return found;
        }
        for other in &sides[1..] {
            other.endpoint.progress(Duration::ZERO);
        }
    }
    panic!("nothing ended")
}

const SIZES: [usize; 9] = [0, 1, 64, 4095, EAGER, EAGER + 1, 10_000, 100_000, 1_000_003];

#[test]
fn messages_of_every_size_arrive_expected_and_unexpected() {
    let [a, b] = pair();
    for (seed, len) in SIZES.into_iter().enumerate() {
        for expected in [true, false] {
            let (from, to) = (filled(len, seed), Region::new(len.max(1)).unwrap());
            let wanted = exactly(Some(b.peers[0]), 5);
            if expected {
                b.receive(wanted, &to, len, 7);
                a.send(1, 5, &from, len);
            } else {
                a.send(1, 5, &from, len);
                waits_unexpected(&a, &b, 5);
                b.receive(wanted, &to, len, 7);
            }
            let (entry, source) = next(&[&b, &a]).unwrap();
            assert_eq!(
                (entry.context, entry.len, entry.tag, source),
                (7, len, 5, 0)
            );
            assert_eq!(entry.flags, flags::RECV | flags::TAGGED);
            has(&to, len, seed);
            let (entry, _) = next(&[&a, &b]).unwrap();
            assert_eq!(
                (entry.context, entry.flags),
                (1000, flags::SEND | flags::TAGGED)
            );
        }
    }
    assert_eq!(a.counter.done(), 18);
}

#[test]
fn a_program_may_ask_for_the_last_of_many_messages_first() {
    const MANY: usize = 3000;
    let [a, b] = pair();
    let (from, to) = (filled(1024, 1), Region::new(1024).unwrap());
    for n in 0..MANY {
        a.send(1, n as u64, &from, 1024);
    }
    // Until all has come that may come without being asked for.
    let came = || {
        let mut core = b.endpoint.core();
        let at = core.peers.number(b.peers[0]);
        core.peers.get(at).backlog.bytes
    };
    let begun = Instant::now();
    while came() < Backlog::MARKS.0 || begun.elapsed() < Duration::from_millis(50) {
        assert!(begun.elapsed() < LIMIT);
        a.endpoint.progress(Duration::ZERO);
        b.endpoint.progress(Duration::ZERO);
    }
    assert!(came() <= Backlog::MARKS.0 + 64 * 1024, "{} bytes", came());
    for n in (0..MANY).rev() {
        b.receive(exactly(None, n as u64), &to, 1024, n);
        let (entry, _) = next(&[&b, &a]).unwrap();
        assert_eq!((entry.context, entry.len), (n, 1024));
        has(&to, 1024, 1);
    }
    // What nobody had asked for stayed with its sender, but for a mebibyte and what was granted.
    let mut done = 0;
    while done < MANY {
        done += usize::from(next(&[&a, &b]).is_ok());
    }
}

#[test]
fn messages_of_a_pair_keep_their_order_whatever_their_length() {
    let [a, b] = pair();
    let mut random = fastrand::Rng::with_seed(5);
    let sizes: Vec<usize> = (0..300).map(|_| random.usize(0..3 * EAGER)).collect();
    let from: Vec<Region> = sizes
        .iter()
        .enumerate()
        .map(|(n, len)| filled(*len, n))
        .collect();
    for (region, len) in from.iter().zip(&sizes) {
        a.send(1, 9, region, *len);
    }
    for (n, len) in sizes.iter().enumerate() {
        let to = Region::new(3 * EAGER).unwrap();
        b.receive(exactly(None, 9), &to, 3 * EAGER, n);
        let (entry, _) = next(&[&b, &a]).unwrap();
        assert_eq!((entry.context, entry.len), (n, *len));
        has(&to, *len, n);
    }
}

#[test]
fn a_message_that_is_too_long_is_cut_and_says_so() {
    let [a, b] = pair();
    for len in [100, 50_000] {
        let (from, to) = (filled(len, 3), Region::new(len).unwrap());
        b.receive(exactly(None, 1), &to, 40, 7);
        a.send(1, 1, &from, len);
        let failed = next(&[&b, &a]).unwrap_err();
        assert_eq!(
            (failed.why, failed.entry.len, failed.missing),
            (Failure::Truncated, 40, len - 40)
        );
        has(&to, 40, 3);
        assert!(next(&[&a, &b]).is_ok(), "its sender is not concerned");
    }
}

#[test]
fn a_receive_is_cancelled_or_takes_its_message() {
    let [a, b] = pair();
    let (from, to) = (filled(8, 1), Region::new(8).unwrap());
    b.receive(exactly(None, 1), &to, 8, 5);
    assert!(b.endpoint.cancel(5) && !b.endpoint.cancel(5));
    let failed = next(&[&b]).unwrap_err();
    assert_eq!((failed.why, failed.entry.context), (Failure::Canceled, 5));
    a.send(1, 1, &from, 8);
    b.receive(exactly(None, 1), &to, 8, 6);
    assert_eq!(next(&[&b, &a]).unwrap().0.context, 6);
}

#[test]
fn a_message_is_peeked_at_claimed_and_discarded() {
    let [a, b] = pair();
    let wanted = exactly(None, 3);
    let peek = |claim| {
        let op = b.op(77, flags::RECV | flags::TAGGED);
        b.endpoint.peek(true, &wanted, claim, &op);
    };
    peek(false);
    let failed = next(&[&b]).unwrap_err();
    assert_eq!(failed.why, Failure::NoMessage);
    for len in [16, 20_000] {
        let (from, to) = (filled(len, 2), Region::new(len).unwrap());
        for n in 0..3 {
            a.send(1, 3, &from, len);
            let begun = Instant::now();
            loop {
                a.endpoint.progress(Duration::ZERO);
                peek(n == 1);
                match b.queue.take(1, |entry, _| assert_eq!(entry.len, len)) {
                    Ok(count) => assert_eq!(count, 1),
                    Err(HasFailed) => assert!(b.queue.take_failed().is_some()),
                }
                if b.queue.is_empty() && begun.elapsed() > Duration::from_millis(20) {
                    break;
                }
                if n == 1 {
                    break;
                }
            }
            match n {
                0 => b.receive(wanted, &to, len, 9),
                1 => {
                    // Claimed, or not there yet.
                    let op = b.op(77, flags::RECV);
                    let begun = Instant::now();
                    while b
                        .endpoint
                        .take_claimed(true, &buffer(&to, 0, len), op)
                        .is_err()
                    {
                        assert!(begun.elapsed() < LIMIT);
                        a.endpoint.progress(Duration::ZERO);
                        peek(true);
                        let _ = b.queue.take(1, |_, _| {});
                        let _ = b.queue.take_failed();
                    }
                }
                _ => b
                    .endpoint
                    .discard(true, &wanted, false, b.op(9, flags::RECV)),
            }
            assert!(next(&[&b, &a]).is_ok());
            assert!(next(&[&a, &b]).is_ok(), "the sender's");
        }
    }
}

#[test]
fn remote_memory_is_written_and_read_by_its_key_alone() {
    let [a, b] = pair();
    let memory = Region::new(200_000).unwrap();
    let both = Access {
        read: true,
        write: true,
    };
    b.endpoint
        .register(42, &buffer(&memory, 0, 200_000), both)
        .unwrap();
    assert!(
        b.endpoint
            .register(42, &buffer(&memory, 0, 8), both)
            .is_err()
    );
    let at = |offset, key| Remote { offset, key };
    for (seed, len) in [0, 8, EAGER, 100_000].into_iter().enumerate() {
        let (from, to) = (filled(len, seed), Region::new(len.max(1)).unwrap());
        let op = a.op(1, flags::RMA | flags::WRITE);
        let remote = at(10, 42);
        let buffer = |r| buffer(r, 0, len);
        let wrote = a
            .endpoint
            .write(a.peers[1], remote, buffer(&from), (Some(6), false), op);
        wrote.unwrap();
        assert_eq!(next(&[&a, &b]).unwrap().0.flags, flags::RMA | flags::WRITE);
        let op = a.op(2, flags::RMA | flags::READ);
        a.endpoint
            .read(a.peers[1], remote, buffer(&to), op)
            .unwrap();
        assert_eq!(next(&[&a, &b]).unwrap().0.context, 2);
        has(&to, len, seed);
    }
    let small = filled(8, 1);
    for remote in [at(0, 43), at(199_999, 42), at(u64::MAX, 42)] {
        let op = || a.op(3, flags::RMA);
        let write = a.endpoint.write(
            a.peers[1],
            remote,
            buffer(&small, 0, 8),
            (None, false),
            op(),
        );
        write.unwrap();
        assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
        a.endpoint
            .read(a.peers[1], remote, buffer(&small, 0, 8), op())
            .unwrap();
        assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
    }
    b.endpoint.deregister(42, || ()).unwrap();
    let op = a.op(4, flags::RMA);
    a.endpoint
        .read(a.peers[1], at(0, 42), buffer(&small, 0, 8), op)
        .unwrap();
    assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
}

/// However much a program starts before it asks for an end, every operation has one.
#[test]
fn more_operations_than_there_are_events_all_end() {
    const MANY: usize = 17_000;
    let [a, b] = pair();
    let (memory, here) = (Region::new(8).unwrap(), Region::new(8).unwrap());
    let access = Access {
        read: true,
        write: false,
    };
    let lent = buffer(&memory, 0, 8);
    b.endpoint.register(1, &lent, access).unwrap();
    let remote = Remote { offset: 0, key: 1 };
    let read = |context| {
        let op = a.op(context, flags::READ);
        a.endpoint.read(a.peers[1], remote, buffer(&here, 0, 8), op)
    };
    for n in 0..MANY {
        read(n).unwrap();
    }
    let mut ended = vec![false; MANY];
    for _ in 0..MANY {
        let (entry, _) = next(&[&a, &b]).unwrap();
        assert!(!std::mem::replace(&mut ended[entry.context], true));
    }
    // And one that cannot be kept is refused, and nothing has happened.
    let refused = (0..).find_map(|n| read(n).err()).unwrap();
    assert_eq!(refused, Refused::Again);
}

#[test]
fn a_write_with_data_is_told_to_its_target_after_it() {
    let [a, b] = pair();
    let memory = Region::new(8).unwrap();
    let access = Access {
        read: false,
        write: true,
    };
    b.endpoint
        .register(1, &buffer(&memory, 0, 8), access)
        .unwrap();
    b.endpoint
        .tell_writes(b.op(0, flags::RMA | flags::REMOTE_WRITE));
    let from = filled(8, 5);
    let remote = Remote { offset: 0, key: 1 };
    let op = a.op(1, flags::WRITE);
    a.endpoint
        .write(
            a.peers[1],
            remote,
            buffer(&from, 0, 8),
            (Some(99), false),
            op,
        )
        .unwrap();
    let begun = Instant::now();
    let mut first = [0];
    while first[0] != bytes(8, 5)[0] {
        assert!(begun.elapsed() < LIMIT, "nothing is written");
        b.endpoint.progress(Duration::ZERO);
        memory.read(0, &mut first).unwrap();
    }
    // Whoever ends with the completion of its write would take along what the target is to be told.
    for _ in 0..100 {
        assert!(a.poll().is_none(), "its target has not been told");
    }
    let (entry, source) = next(&[&b, &a]).unwrap();
    let kind = flags::RMA | flags::REMOTE_WRITE | flags::REMOTE_CQ_DATA;
    assert_eq!((entry.data, entry.flags, source), (99, kind, 0));
    assert_eq!(entry.len, 8);
    has(&memory, 8, 5);
    assert_eq!(next(&[&a, &b]).unwrap().0.context, 1);
}

#[test]
fn atomic_operations_are_made_at_the_peer_and_say_what_was_there() {
    const MANY: u64 = 500;
    let [a, b] = pair();
    let memory = Region::new(64).unwrap();
    memory.fill(0, 64, 0).unwrap();
    let both = Access {
        read: true,
        write: true,
    };
    b.endpoint
        .register(9, &buffer(&memory, 0, 64), both)
        .unwrap();
    let (one, was) = (Region::new(8).unwrap(), Region::new(8).unwrap());
    one.write(0, &1u64.to_ne_bytes()).unwrap();
    let call = |operation, compare: Option<&Region>, fetch: bool| AtomicCall {
        datatype: Datatype::U64,
        operation,
        compare: compare.map(|region| buffer(region, 0, 8)),
        result: fetch.then(|| buffer(&was, 0, 8)),
    };
    let remote = |offset| Remote { offset, key: 9 };
    let start = |side: &Side, to: usize, offset, call| {
        let op = side.op(1, flags::READ);
        let operand = buffer(&one, 0, 8);
        side.endpoint
            .atomic(side.peers[to], remote(offset), &operand, call, op)
    };
    for n in 0..MANY {
        // Its own memory, too.
        start(&b, 1, 8, call(Operation::Sum, None, false)).unwrap();
        start(&a, 1, 8, call(Operation::Sum, None, n % 2 == 0)).unwrap();
    }
    for _ in 0..MANY {
        next(&[&a, &b]).unwrap();
        next(&[&b, &a]).unwrap();
    }
    let word = |region: &Region, at| {
        let mut bytes = [0; 8];
        region.read(at, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    };
    assert_eq!(word(&memory, 8), 2 * MANY);
    start(&a, 1, 8, call(Operation::Read, None, true)).unwrap();
    next(&[&a, &b]).unwrap();
    assert_eq!(word(&was, 0), 2 * MANY);
    for (with, due) in [(7, 2 * MANY), (2 * MANY, 1)] {
        let compare = Region::new(8).unwrap();
        compare.write(0, &u64::to_ne_bytes(with)).unwrap();
        start(&a, 1, 8, call(Operation::SwapIfEqual, Some(&compare), true)).unwrap();
        next(&[&a, &b]).unwrap();
        assert_eq!((word(&was, 0), word(&memory, 8)), (2 * MANY, due));
    }
    start(&a, 1, 60, call(Operation::Sum, None, false)).unwrap();
    assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
    let invalid = start(&a, 1, 0, call(Operation::Read, None, false));
    assert_eq!(invalid, Err(Refused::Invalid));
}

#[test]
fn everybody_talks_to_everybody() {
    let sides = sides(6);
    let (from, to) = (filled(EAGER, 1), Region::new(EAGER).unwrap());
    for (n, side) in sides.iter().enumerate() {
        for peer in (0..6).filter(|peer| *peer != n) {
            side.send(peer, n as u64, &from, EAGER);
        }
    }
    for n in 0..6 {
        let mut all: Vec<&Side> = sides.iter().collect();
        all.swap(0, n);
        for peer in (0..6).filter(|peer| *peer != n) {
            let wanted = exactly(Some(sides[n].peers[peer]), peer as u64);
            all[0].receive(wanted, &to, EAGER, 50 + peer);
        }
        let mut received = [false; 6];
        for _ in 0..10 {
            let (entry, source) = next(&all).unwrap();
            if entry.flags & flags::RECV != 0 {
                assert_eq!(entry.context as u64 - 50, source);
                received[source as usize] = true;
            }
        }
        received[n] = true;
        assert_eq!(received, [true; 6]);
    }
}

#[test]
fn what_is_under_way_to_a_peer_that_closes_fails() {
    let [a, b] = pair();
    let from = filled(100_000, 1);
    a.send(1, 1, &from, 8);
    next(&[&a, &b]).unwrap();
    // Long ones, which nobody fetches.
    for tag in 2..5 {
        a.send(1, tag, &from, 100_000);
    }
    for tag in 2..5 {
        waits_unexpected(&a, &b, tag);
    }
    drop(b);
    for _ in 0..3 {
        assert_eq!(next(&[&a]).unwrap_err().why, Failure::Unreachable);
    }
    a.send(1, 9, &from, 8);
    assert_eq!(next(&[&a]).unwrap_err().why, Failure::Unreachable);
}

#[test]
fn a_receive_from_a_peer_that_closes_fails_and_one_from_anybody_waits() {
    for sender_closes in [false, true] {
        let [a, b] = pair();
        let region = filled(8, 1);
        a.send(1, 1, &region, 8);
        next(&[&a, &b]).unwrap();
        waits_unexpected(&a, &b, 1);
        let (closes, stays, from) = if sender_closes { (a, b, 0) } else { (b, a, 1) };
        let from = stays.peers[from];
        stays.receive(exactly(Some(from), 5), &region, 8, 55);
        stays.receive(exactly(None, 5), &region, 8, 56);
        drop(closes);
        let failed = next(&[&stays]).unwrap_err();
        assert_eq!(failed.why, Failure::Unreachable);
        assert_eq!((failed.entry.context, failed.entry.tag), (55, 5));
        assert!(stays.endpoint.cancel(56));
    }
}

#[test]
fn a_receive_that_is_taken_back_before_anybody_has_looked_ends_so_and_its_message_stays() {
    let [a, b] = pair();
    let (from, into) = (filled(8, 1), Region::new(8).unwrap());
    a.send(1, 1, &from, 8);
    next(&[&a, &b]).unwrap();
    waits_unexpected(&a, &b, 1);
    // It lies in memory that both share, if they do.
    b.receive(exactly(Some(b.peers[0]), 2), &into, 8, 55);
    a.send(1, 2, &from, 8);
    next(&[&a]).unwrap();
    assert!(b.endpoint.cancel(55));
    let failed = next(&[&b]).unwrap_err();
    assert_eq!((failed.entry.context, failed.why), (55, Failure::Canceled));
    b.receive(exactly(Some(b.peers[0]), 2), &into, 8, 56);
    assert_eq!(next(&[&b, &a]).unwrap().0.context, 56);
    has(&into, 8, 1);
}
