//! Threads that sleep until there is a completion, while nobody but the endpoint's own thread makes progress.

use super::*;
use crate::wait::Woken;
use std::sync::atomic::Ordering;

/// Two sides whose threads can wait for their programs; none on the model, where that is refused.
fn waiting() -> Option<[Side; 2]> {
    let sides = pair();
    if !sides[0].endpoint.core().simulated {
        return Some(sides);
    }
    for refused in [sides[0].endpoint.watch(), sides[0].endpoint.watch_always()] {
        let kind = refused.map_err(|error| error.kind());
        assert_eq!(kind, Err(std::io::ErrorKind::Unsupported));
    }
    println!("skipped: on the model no thread waits for a program");
    None
}

fn watched() -> Option<[Side; 2]> {
    let sides = waiting()?;
    for side in &sides {
        side.endpoint.serve(side.queue.wait_object());
        side.endpoint.serve(side.counter.wait_object());
    }
    Some(sides)
}

impl Side {
    /// The next completion, for which this thread sleeps.
    fn sleep(&self) -> Entry {
        loop {
            let mut found = None;
            let taken = self.queue.take(1, |entry, _| found = Some(*entry));
            taken.expect("no failure");
            if let Some(entry) = found {
                return entry;
            }
            let sleeper = self.queue.wait_object().enter();
            self.endpoint.watch().unwrap();
            let until = Some(Instant::now() + LIMIT);
            let woken = sleeper.sleep(until, || !self.queue.is_empty());
            assert_eq!(woken, Woken::Ready);
        }
    }
}

/// Returns when the thread of this side waits with its lock.
fn is_asleep(side: &Side) {
    let begun = Instant::now();
    while !side.endpoint.is_watched() {
        assert!(begun.elapsed() < LIMIT);
        std::thread::yield_now();
    }
}

#[test]
fn sleeping_threads_take_turns_and_no_wake_up_is_lost() {
    const ROUNDS: usize = 3000;
    let Some(sides) = watched() else {
        return;
    };
    let turn = |me: usize| {
        let (side, first) = (&sides[me], me == 0);
        let (out, into) = (filled(8, me), Region::new(8).unwrap());
        for round in 0..ROUNDS {
            let wanted = exactly(None, round as u64);
            side.receive(wanted, &into, 8, 1);
            if first {
                side.send(1 - me, round as u64, &out, 8);
            }
            let mut ends = [side.sleep(), Entry::default()];
            if first {
                ends[1] = side.sleep();
            } else {
                // Its receive is all that can have ended.
                assert_eq!(ends[0].flags, flags::RECV | flags::TAGGED, "{round}");
                side.send(1 - me, round as u64, &out, 8);
                ends[1] = side.sleep();
            }
            let received = ends.iter().filter(|e| e.flags & flags::RECV != 0);
            assert_eq!(received.count(), 1, "{round}");
            has(&into, 8, 1 - me);
        }
        assert_eq!(side.counter.done(), 2 * ROUNDS as u64);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| turn(0));
        scope.spawn(|| turn(1));
    });
}

/// The thread waits with the lock of its endpoint, for an hour if nothing comes.
#[test]
fn calls_are_not_kept_waiting_by_the_thread_that_waits() {
    let Some([a, b]) = watched() else {
        return;
    };
    for round in 0..100 {
        assert!(a.queue.arm());
        // The first message needs the peer's answer.
        assert!(b.queue.arm());
        for side in [&a, &b] {
            side.endpoint.watch().unwrap();
        }
        is_asleep(&a);
        assert!(!a.endpoint.cancel(5));
        is_asleep(&a);
        let out = filled(8, round);
        a.send(1, 7, &out, 8);
        // Its end is the thread's to find, and ends its watch.
        let begun = Instant::now();
        while a.queue.wait_object().is_awaited() {
            assert!(begun.elapsed() < LIMIT);
            std::thread::yield_now();
        }
        assert_eq!(a.sleep().flags, flags::SEND | flags::TAGGED);
        let into = Region::new(8).unwrap();
        b.receive(exactly(None, 7), &into, 8, 1);
        assert_eq!(b.sleep().flags, flags::RECV | flags::TAGGED);
        has(&into, 8, round);
    }
}

#[test]
fn an_endpoint_closes_while_its_thread_waits() {
    let (mut took, mut without) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..20 {
        let Some([a, b]) = watched() else {
            return;
        };
        assert!(a.queue.arm());
        let sleeper = a.queue.wait_object().enter();
        a.endpoint.watch().unwrap();
        is_asleep(&a);
        // Long enough for the thread to look in vain and to fall asleep.
        let until = Some(Instant::now() + Duration::from_millis(5));
        assert_eq!(sleeper.sleep(until, || false), Woken::TimedOut);
        let begun = Instant::now();
        a.endpoint.close();
        took += begun.elapsed();
        // Nobody is left to end another thread.
        a.endpoint.watch().unwrap();
        assert_eq!(Arc::strong_count(&a.endpoint), 1);
        let begun = Instant::now();
        b.endpoint.close();
        without += begun.elapsed();
    }
    // Portals by itself looks up every 100 ms or less often.
    let longer = took.saturating_sub(without);
    assert!(
        longer < Duration::from_secs(1),
        "{took:?}, without a thread {without:?}"
    );
}

/// A thread that tried again at once would use up a processor.
#[test]
fn a_wait_that_portals_refuses_says_so() {
    let [a, _b] = pair();
    a.endpoint.core().ni.close().unwrap();
    assert!(a.endpoint.wait_for_completions().is_err());
    assert!(!a.endpoint.is_watched());
}

/// The thread sleeps as long as a call wants the lock, and no longer.
#[test]
fn calls_that_want_the_lock_get_it_before_the_thread() {
    let [a, _b] = pair();
    let (endpoint, begun) = (&a.endpoint, Instant::now());
    let until = |what: &dyn Fn() -> bool| {
        while !what() && begun.elapsed() < LIMIT {
            std::thread::yield_now();
        }
        what()
    };
    let wanted = || endpoint.watch.wanted.load(Ordering::SeqCst);
    std::thread::scope(|scope| {
        let core = endpoint.core();
        scope.spawn(|| drop(endpoint.core()));
        assert!(until(&|| wanted() == 1));
        let thread = scope.spawn(|| {
            endpoint.let_others_first();
            wanted()
        });
        until(&|| thread.is_finished() || endpoint.watch.yields.load(Ordering::SeqCst));
        drop(core);
        let ended = until(&|| thread.is_finished());
        if !ended {
            endpoint.end_watch();
        }
        assert_eq!((ended, thread.join().unwrap()), (true, 0));
    });
}

#[test]
fn a_peer_that_makes_no_call_answers_if_its_progress_is_automatic() {
    let Some([a, b]) = watched() else {
        return;
    };
    b.endpoint.watch_always().unwrap();
    let (out, into) = (filled(200_000, 1), Region::new(200_000).unwrap());
    for round in 0..20 {
        b.receive(exactly(None, round), &into, 200_000, 1);
        a.send(1, round, &out, 200_000);
        // A long message ends when the peer has fetched it.
        assert_eq!(a.sleep().flags, flags::SEND | flags::TAGGED);
        let begun = Instant::now();
        while b.queue.take(1, |_, _| {}).expect("no failure") == 0 {
            assert!(begun.elapsed() < LIMIT);
        }
        has(&into, 200_000, 1);
    }
}

#[test]
fn an_endpoint_that_comes_later_serves_who_sleeps_already() {
    let Some([a, b]) = waiting() else {
        return;
    };
    assert!(b.queue.arm());
    b.endpoint.serve(b.queue.wait_object());
    let (out, into) = (filled(8, 1), Region::new(8).unwrap());
    b.receive(exactly(None, 3), &into, 8, 1);
    a.send(1, 3, &out, 8);
    let begun = Instant::now();
    while b.queue.wait_object().is_awaited() {
        assert!(begun.elapsed() < LIMIT);
        a.endpoint.progress(Duration::ZERO);
    }
    assert!(!b.queue.is_empty());
    has(&into, 8, 1);
}

#[test]
fn a_counter_that_is_armed_tells_each_change_once() {
    let Some([a, _b]) = watched() else {
        return;
    };
    assert!(a.counter.arm());
    a.counter.add(2);
    assert!(!a.counter.wait_object().is_awaited());
    assert!(!a.counter.arm());
    assert!(a.counter.arm());
    a.counter.add_failed(1);
    assert!(!a.counter.arm());
    assert!(a.counter.arm());
    assert_eq!((a.counter.done(), a.counter.failed()), (2, 1));
}
