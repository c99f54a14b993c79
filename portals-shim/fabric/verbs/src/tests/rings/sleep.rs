//! Ranks that sleep beside rings.

use super::*;
use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicU64, Ordering};

fn is_rung(raw: &Raw) -> bool {
    raw.library.nal.queues.has_event()
}

/// A rank goes to sleep: its peer leaves the ring when it polls, which wakes; until then the sleeper looks now and then, and
/// finds what was written before.
#[test]
fn device_a_sleeper_has_no_ring() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    for round in 0..20 {
        activate(&mut raws, 0, 1);
        assert_eq!(raws[1].nal().rings.nap(), None, "awake");
        for naps in [1, 2, 4, 8, 16, 16] {
            assert!(raws[1].nal().arm().rings);
            assert_eq!(raws[1].nal().rings.nap(), Some(Duration::from_millis(naps)));
            // Rank 0 computes.
            raws[1].look();
        }
        let all = raws[1].seen(EventKind::PutEnd, LOUD).0 + 1;
        let before = taken(&raws[1]);
        let there = to(raws[1].id(), LOUD, 0);
        raws[0].put(there, 8, AckRequest::NoAck, round);
        let end = Instant::now() + Duration::from_secs(20);
        while raws[1].seen(EventKind::PutEnd, LOUD).0 < all {
            assert!(Instant::now() < end, "what was written is found");
            raws[1].look();
        }
        assert_eq!(taken(&raws[1]), before + 1);
        // It polls, and the sleeper wakes.
        assert!(raws[1].nal().arm().rings);
        let end = Instant::now() + Duration::from_secs(20);
        while !is_rung(&raws[1]) {
            assert!(Instant::now() < end, "nothing wakes");
            raws[0].look();
        }
        awake(&mut raws, "the ring is left", |r| {
            r[1].library.nal.rings.counts().0 == 0
        });
        assert_eq!(raws[1].nal().rings.nap(), None);
        assert!(raws[1].nal().arm().rings);
        raws[1].look();
        raws[0].put(there, 8, AckRequest::NoAck, round);
        let end = Instant::now() + Duration::from_secs(20);
        while !is_rung(&raws[1]) {
            assert!(Instant::now() < end, "a message wakes");
            std::thread::yield_now();
        }
        awake(&mut raws, "it is there", |r| {
            r[1].seen(EventKind::PutEnd, LOUD).0 == all + 1
        });
        raws[1].events.clear();
    }
    assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[1])), (0, 0));
    close(raws);
}

/// A peer that computes is asked by a datagram to look, which its attendant does: it leaves the ring, and the sleeper sleeps for
/// as long as nothing comes.
#[test]
fn device_a_computing_peer_is_asked_to_leave() {
    let Some(mut raws) = connected(2, 8) else {
        return;
    };
    for _ in 0..10 {
        activate(&mut raws, 0, 1);
        for naps in [1, 2] {
            assert!(raws[1].nal().arm().rings);
            assert_eq!(raws[1].nal().rings.nap(), Some(Duration::from_millis(naps)));
        }
        let end = Instant::now() + Duration::from_secs(20);
        while !is_rung(&raws[1]) {
            assert!(Instant::now() < end, "nothing wakes");
            // What an attendant does while its program computes.
            raws[0].library.attend(false);
            std::thread::yield_now();
        }
        while raws[1].nal().rings.counts().0 > 0 {
            assert!(Instant::now() < end, "the ring is left");
            raws[1].look();
        }
        assert!(raws[1].nal().arm().rings);
        assert_eq!(raws[1].nal().rings.nap(), None, "as long as nothing comes");
        raws[1].look();
    }
    assert_eq!((bad_frames(&raws[0]), bad_frames(&raws[1])), (0, 0));
    close(raws);
}

/// Bursts between ranks that fall asleep between them: no message is waited for in vain.
#[test]
fn device_sleepers_with_rings_wake() {
    const ROUNDS: u32 = 60;
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        let nothing = o.interface.eq_alloc(1).unwrap();
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        for round in 0..ROUNDS {
            for _ in 0..ACTIVE + round {
                if rank == 0 {
                    ring(o, s, peer);
                }
                wait(o, s.eq, EventKind::PutEnd, BELL);
                if rank == 1 {
                    ring(o, s, peer);
                }
            }
            if rank == round % 2 {
                // Long enough for the other one to fall asleep; how far it gets varies.
                let nanos = u64::from(round) * 40_000;
                let polled = o.interface.eq_poll(&[nothing], Wait::Nanos(nanos));
                assert!(polled.unwrap().is_none());
            }
        }
    });
}

/// A rank computes, and sends between two calls of nothing: what it has written reaches the sleeper although it has not
/// heard that the ring is to be left; and the sleeper uses no core meanwhile.
#[test]
fn device_what_a_computing_peer_has_written_is_found() {
    const ROUNDS: u64 = 12;
    // Without a ring, which is opened by and by, and most likely with one.
    const LONG: [u64; 3] = [0, ROUNDS - 2, ROUNDS - 1];
    let done = AtomicU64::new(0);
    let computes = |time: Duration| {
        let start = Instant::now();
        while start.elapsed() < time {
            std::hint::spin_loop();
        }
    };
    ranks(2, 4096, |rank, o, s| {
        let peer = o.peers[1 - rank as usize];
        ring(o, s, peer);
        wait(o, s.eq, EventKind::PutEnd, BELL);
        for round in 0..ROUNDS {
            for _ in 0..ACTIVE + 8 {
                if rank == 0 {
                    ring(o, s, peer);
                }
                wait(o, s.eq, EventKind::PutEnd, BELL);
                if rank == 1 {
                    ring(o, s, peer);
                }
            }
            if rank == 0 {
                let long = if LONG.contains(&round) { 1500 } else { round };
                computes(Duration::from_millis(long));
                ring(o, s, peer);
                while done.load(Ordering::Acquire) == round {
                    std::hint::spin_loop();
                }
                continue;
            }
            let (start, before) = (Instant::now(), thread_time());
            wait(o, s.eq, EventKind::PutEnd, BELL);
            let (waited, used) = (start.elapsed(), thread_time() - before);
            if waited > Duration::from_secs(1) {
                let share = used.as_secs_f64() / waited.as_secs_f64();
                println!("beside a ring: {:.3} % of a core", share * 100.0);
                assert!(share < 0.02, "{share} of a core");
            }
            done.store(round + 1, Ordering::Release);
        }
    });
}

/// Processor time of this thread.
fn thread_time() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}
