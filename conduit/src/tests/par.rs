//! Several threads in each rank.

use super::{pattern, returned};
use crate::threads::{self, RankEnd};
use crate::{AttachError, BarrierName, HandlerEntry, Hsl, Par, ParHandler};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const TAKE: u8 = 130;
const BACK: u8 = 131;

/// Three threads in each of three ranks send requests to all ranks, and every one is answered.
#[test]
fn threads_send_together() {
    const THREADS: usize = 3;
    const EACH: usize = 300;
    let ends = threads::run_par(3, &[], |par: &Par| {
        let (taken, back) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let lock = Arc::new(Hsl::new());
        let (t, b, l) = (taken.clone(), back.clone(), lock.clone());
        let handlers = vec![
            ParHandler::new(TAKE, move |token, payload, args| {
                assert_eq!(
                    payload.bytes(),
                    pattern(args[0] as usize, payload.bytes().len())
                );
                l.lock().unwrap();
                t.store(t.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                l.unlock().unwrap();
                token.reply_short(BACK, &[]).unwrap();
            }),
            ParHandler::new(BACK, move |_, _, _| {
                b.fetch_add(1, Ordering::SeqCst);
            }),
        ];
        par.attach(handlers, 0).unwrap();
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                s.spawn(move || {
                    for i in 0..EACH {
                        let to = (par.mynode() + (thread + i) as u32) % par.nodes();
                        let bytes = pattern(i, i * 7 % 1500);
                        par.with(|c| c.am_request_medium(to, TAKE, &bytes, &[i as i32]))
                            .unwrap();
                    }
                });
            }
            s.spawn(|| {
                par.with(|c| c.block_until(|| back.load(Ordering::SeqCst) == THREADS * EACH))
            });
        });
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
        lock.lock().unwrap();
        let all = taken.load(Ordering::Relaxed);
        lock.unlock().unwrap();
        all
    });
    assert_eq!(returned(ends).iter().sum::<usize>(), 3 * THREADS * EACH);
}

/// A thread that waits in a barrier does not keep another of its rank from what the barrier of the
/// others waits for.
#[test]
fn a_wait_lets_other_threads_in() {
    let ends = threads::run_par(2, &[], |par: &Par| {
        let told = Arc::new(AtomicUsize::new(0));
        let t = told.clone();
        let tell = ParHandler::new(TAKE, move |_, _, _| {
            t.fetch_add(1, Ordering::SeqCst);
        });
        par.attach(vec![tell], 1 << 16).unwrap();
        if par.mynode() == 0 {
            std::thread::scope(|s| {
                s.spawn(|| par.with(|c| c.barrier(BarrierName::Named(1))).unwrap());
                s.spawn(|| par.with(|c| c.am_request_short(1, TAKE, &[])).unwrap());
            });
        } else {
            // Rank 0 may be in the barrier long before its other thread sends.
            par.with(|c| c.block_until(|| told.load(Ordering::SeqCst) == 1));
            par.with(|c| c.barrier(BarrierName::Named(1))).unwrap();
        }
    });
    returned(ends);
}

#[test]
fn puts_and_gets_of_threads() {
    let ends = threads::run_par(2, &[], |par: &Par| {
        par.attach(vec![], 1 << 20).unwrap();
        let peer = 1 - par.mynode();
        std::thread::scope(|s| {
            for thread in 0..4usize {
                s.spawn(move || {
                    let at = par.segment(peer).addr + (thread << 17) as u64;
                    for i in 0..50 {
                        let bytes = pattern(thread * 100 + i, 1 + i * 997);
                        par.put(peer, at, &bytes).unwrap();
                        let mut got = vec![0; bytes.len()];
                        par.get(&mut got, peer, at).unwrap();
                        assert!(got == bytes);
                    }
                });
            }
        });
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
    });
    returned(ends);
}

fn aborted(ends: &[RankEnd<()>], words: &str) {
    let said = |e: &RankEnd<()>| matches!(e, RankEnd::Aborted(m) if m.contains(words));
    assert!(ends.iter().any(said), "{ends:?}");
}

#[test]
fn rules_of_locks_are_kept() {
    let held = "a handler-safe lock is held";
    // In a request.
    let ends = threads::run_par(2, &[], |par: &Par| {
        par.attach(vec![], 0).unwrap();
        let lock = Hsl::new();
        lock.lock().unwrap();
        assert!(par.mynode() < par.nodes(), "looking is allowed");
        par.with(|c| c.poll());
    });
    aborted(&ends, held);
    // At the end of a handler, and in a reply.
    for reply in [false, true] {
        let ends = threads::run_par(2, &[], |par: &Par| {
            let lock = Hsl::new();
            let keep = ParHandler::new(TAKE, move |token, _, _| {
                lock.lock().unwrap();
                if reply {
                    token.reply_short(BACK, &[]).unwrap();
                }
            });
            par.attach(vec![keep], 0).unwrap();
            if par.mynode() == 0 {
                par.with(|c| c.am_request_short(1, TAKE, &[])).unwrap();
            }
            par.with(|c| c.block_until(|| false));
        });
        let place = if reply {
            "a reply: "
        } else {
            "the end of a handler: "
        };
        aborted(&ends, &format!("{place}{held}"));
    }
}

#[test]
fn handlers_of_one_thread_are_refused() {
    let ends = threads::run_par(1, &[], |par: &Par| {
        let entry = HandlerEntry::new(0, |_, _, _| {});
        let refused = par.with(|c| c.attach(vec![entry], 0));
        assert!(matches!(refused, Err(AttachError::Shared)));
        par.attach(vec![], 0).unwrap();
    });
    returned(ends);
}
