//! Operations do not allocate, once queues and lists are made.

use portals_core::{Header, Incoming, NiFail};
use portolan_benches::endpoints::Endpoints;
use portolan_benches::tags::Tagged;
use portolan_benches::turns::Over;
use portolan_benches::{Before, Joined, Pair};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;
use tagged::{Options, TagMode};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Calls of the allocator while `work` runs.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(ALLOCATOR);
    work();
    let stats = region.change();
    stats.allocations + stats.reallocations + stats.deallocations
}

/// The other threads of this process: the lines that say whether each sleeps, and how often it has.
fn others() -> Vec<String> {
    let own = std::fs::read_link("/proc/thread-self").unwrap();
    let of = |task: std::fs::DirEntry| {
        let other = Some(task.file_name().as_os_str()) != own.file_name();
        // A thread that ends meanwhile has no status.
        let status = std::fs::read_to_string(task.path().join("status")).ok();
        status.filter(|_| other)
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let told = |l: &&str| l.starts_with("State:") || l.starts_with("voluntary_ctxt_switches:");
    let lines = |status: String| status.lines().filter(told).collect::<Vec<_>>().join(" ");
    tasks.filter_map(of).map(lines).collect()
}

/// Waits until a fabric's own threads have ended their part of a connection, for which no operation waits: all sleep, and none
/// has run since the look before.
fn settle() {
    let mut before = Vec::new();
    loop {
        let now = others();
        if now == before && now.iter().all(|thread| thread.contains("(sleeping)")) {
            return;
        }
        before = now;
        std::thread::yield_now();
    }
}

/// `work` makes no call of the allocator.
#[track_caller]
fn no_allocations(what: &str, work: impl FnOnce()) {
    settle();
    assert_eq!(allocations(work), 0, "{what}");
}

/// Without the test harness: the counter sees every thread, and the harness has one of its own.
fn main() {
    operations_do_not_allocate();
    println!("operations_do_not_allocate ... ok");
}

fn operations_do_not_allocate() {
    assert!(allocations(|| drop(Box::new(1))) > 0, "the counter counts");
    for before in [
        Before::Exact(0),
        Before::Exact(10),
        Before::Exact(1000),
        Before::Masked(1000),
    ] {
        let mut pair = Pair::new(before, true).unwrap();
        let mut work = |times| {
            for _ in 0..times {
                assert!(pair.deliver().is_some());
                assert!(pair.put_and_ack());
            }
        };
        // Rings grow to their size the first time they are filled.
        work(20);
        no_allocations(&format!("{before:?}"), || work(1000));
    }

    // Many operations under way at once, ended in another order than they began.
    let mut pair = Pair::new(Before::Exact(100), true).unwrap();
    let header = Header::decode(&pair.put_header()).unwrap();
    let mut under_way = Vec::with_capacity(1000);
    let mut work = || {
        for _ in 0..1000 {
            let Incoming::Deposit(d) = pair.target.handle_header(&header) else {
                panic!("not taken");
            };
            under_way.push(d.op);
        }
        for op in under_way.drain(..) {
            pair.target.deposit_end(op, NiFail::OK);
        }
    };
    work();
    no_allocations("many under way", work);

    through_the_interface(&Joined::new().unwrap());
    through_the_interface(&Joined::over_memory().unwrap());

    for over in [Over::Process, Over::Memory] {
        for mode in [TagMode::Full, TagMode::Tag1] {
            let tagged = Tagged::new(over, mode).unwrap();
            messages(&tagged, &format!("{over:?} {mode:?}"));
        }
        overflow_turns(over);
    }
    endpoints();
}

/// The libfabric provider's engine: messages of frames, of puts and of gets, remote memory, atomic operations.
fn endpoints() {
    let none = |work: &dyn Fn() -> bool, what: &str| {
        let many = |times| (0..times).for_each(|_| assert!(work(), "{what}"));
        // Tables grow to their size, the last after some two hundred windows.
        many(400);
        no_allocations(&format!("libfabric, {what}"), || many(500));
    };
    for len in [8, 3000, 100_000] {
        let pair = Endpoints::new(len).unwrap();
        none(&|| pair.round_trip(), &format!("messages of {len}"));
        none(&|| pair.window(), &format!("windows of {len}"));
        none(
            &|| pair.unexpected_round_trip(),
            &format!("unexpected of {len}"),
        );
        none(&|| pair.write_and_read(), &format!("write, read of {len}"));
    }
    let pair = Endpoints::new(8).unwrap();
    none(&|| pair.injected_round_trip(), "injected messages");
    none(&|| pair.fetch_add(), "atomic operations");
}

/// Overflow buffers that are full after a few messages, and a message that stays while they are posted anew.
fn overflow_turns(over: Over) {
    let options = Options {
        short: 64,
        overflow: 2048,
        ..Options::default()
    };
    let tagged = Tagged::with(over, &options).unwrap();
    let work = |times| (0..times).for_each(|_| assert!(tagged.passed(600)));
    // A buffer is a page, 512 messages: each has been full, and a message has been moved. Each turn makes a descriptor, and a
    // table grows to 256 slots before it gives one again.
    work(256);
    let before = tagged.moved();
    no_allocations(&format!("{over:?}"), || work(10));
    assert!(tagged.moved() >= before + 10, "no buffer was full");
}

/// Tagged messages, into receives that are posted and into an overflow buffer.
fn messages(tagged: &Tagged, what: &str) {
    let posted = |times| (0..times).for_each(|_| assert!(tagged.round_trip()));
    let unexpected = |times| (0..times).for_each(|_| assert!(tagged.unexpected_round_trip()));
    posted(20);
    no_allocations(what, || posted(1000));
    unexpected(20);
    no_allocations(&format!("{what}, unexpected"), || unexpected(1000));
}

/// The same between two interfaces of the in-process fabric and of shared memory, as a program calls them.
fn through_the_interface(joined: &Joined) {
    let work = |times| {
        for _ in 0..times {
            assert!(joined.put() && joined.put_and_ack() && joined.look());
        }
    };
    work(20);
    no_allocations("through the interface", || work(1000));
}
