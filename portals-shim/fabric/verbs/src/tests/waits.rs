//! Blocking waits, several waiting threads, and the progress thread.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Processor time of this process.
fn used() -> Duration {
    let t = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Two ranks wait, one for ever and one with a limit: both sleep.
#[test]
fn alone_an_idle_wait_uses_no_core() {
    const IDLE: Duration = Duration::from_secs(3);
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        if rank == 1 {
            wait(o, s.eq, EventKind::PutEnd, BELL);
            return;
        }
        // The own SEND_END may still come.
        let _ = o
            .interface
            .eq_poll(&[s.eq], Wait::Nanos(200_000_000))
            .unwrap();
        let (start, before) = (Instant::now(), used());
        let nanos = u64::try_from(IDLE.as_nanos()).unwrap();
        let event = o.interface.eq_poll(&[s.eq], Wait::Nanos(nanos)).unwrap();
        let (waited, cpu) = (start.elapsed(), used() - before);
        assert!(event.is_none(), "{event:?}");
        assert!(waited >= IDLE && waited < IDLE * 2, "{waited:?}");
        let share = cpu.as_secs_f64() / waited.as_secs_f64();
        println!(
            "two idle ranks used {:.3} % of a core in {:.1} s",
            share * 100.0,
            waited.as_secs_f64()
        );
        assert!(share < 0.02, "{share} of a core for two idle ranks");
        ring(o, s, peer);
    });
}

/// Each of several threads waits for its own queue: each gets its event, whoever of them polled it in, and
/// also one that another thread of the process causes.
#[test]
fn device_several_threads_wait() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 20;
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        let ni = &o.interface;
        let nothing = ni.eq_alloc(1).unwrap();
        let queues: Vec<EqHandle> = (0..THREADS)
            .map(|t| {
                // Two puts a round make a start and an end each; none may be overwritten, however late the thread is.
                let eq = ni.eq_alloc(4 * ROUNDS).unwrap();
                let me = ni.me_attach(4, entry(100 + t), InsertPosition::After);
                ni.md_attach(me.unwrap(), spec(MdMemory::Empty, Some(eq)), Unlink::Retain)
                    .unwrap();
                eq
            })
            .collect();
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        let own = o.peers[rank as usize];
        std::thread::scope(|scope| {
            for eq in queues {
                scope.spawn(move || {
                    let mut ends = 0;
                    // One in two comes from the peer, the other from this process.
                    while ends < 2 * ROUNDS {
                        let polled = ni.eq_wait(eq).unwrap();
                        assert!(!polled.dropped);
                        ends += u64::from(polled.event.kind == EventKind::PutEnd);
                    }
                });
            }
            for round in 0..ROUNDS {
                for t in 0..THREADS {
                    for to_whom in [peer, own] {
                        let there = to(to_whom, 100 + t, 0);
                        ni.put_region(s.source, (0, 0), AckRequest::NoAck, there, round)
                            .unwrap();
                    }
                }
                // Long enough for the threads to fall asleep.
                assert!(
                    ni.eq_poll(&[nothing], Wait::Nanos(1_000_000))
                        .unwrap()
                        .is_none()
                );
            }
        });
        // The peer's threads may still need this side.
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
    });
}

/// Waits end when their time has come: not earlier, and not much later than a sleep of the same length beside them.
#[test]
fn device_waits_end_in_time() {
    ranks(1, 8, |_, o, _| {
        let eq = o.interface.eq_alloc(8).unwrap();
        for ms in [1, 20, 300] {
            let limit = Duration::from_millis(ms);
            let (waited, slept) = std::thread::scope(|s| {
                let sleep = s.spawn(|| {
                    let start = Instant::now();
                    std::thread::sleep(limit);
                    start.elapsed()
                });
                let start = Instant::now();
                let polled = o.interface.eq_poll(&[eq], Wait::Nanos(ms * 1_000_000));
                let waited = start.elapsed();
                assert!(polled.unwrap().is_none());
                (waited, sleep.join().unwrap())
            });
            assert!(waited >= limit, "{waited:?} of {limit:?}");
            let late = waited.saturating_sub(slept);
            assert!(
                late < Duration::from_millis(500),
                "{waited:?}, a sleep {slept:?}"
            );
        }
    });
}
