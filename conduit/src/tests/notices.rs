//! Ranks that share memory: who sleeps is woken by room, threads that write to one peer take turns, and a pair that
//! cannot copy uses no frames.

use super::returned;
use crate::conduit::Scope;
use crate::frames::{self, Neighbours, Tag};
use crate::matchbits::Category;
use crate::threads;
use crate::{Conduit, HandlerEntry, MAX_MEDIUM};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes as _;

const SHM: (&str, &str) = ("PORTOLAN_FABRIC", "shm");
const TAKE: u8 = 130;
const BACK: u8 = 131;
/// Less than a sleep of nobody who is woken, after which it looks by itself: 200 ms, from a moment ago.
const WOKEN: Duration = Duration::from_millis(100);
/// Rounds of which the shortest counts, on a machine that has other things to do.
const ROUNDS: usize = 5;
/// A job that goes on for so long goes on for ever.
const HANGS: Duration = Duration::from_secs(60);

/// The result of a job that ends.
pub(super) fn in_time<R: Send + 'static>(job: impl FnOnce() -> R + Send + 'static) -> R {
    let (tell, told) = channel();
    std::thread::spawn(move || tell.send(job()));
    told.recv_timeout(HANGS).expect("nobody waits for ever")
}

/// The thread of a rank that is about to wait.
#[derive(Default)]
struct Sleeper(AtomicI32);

impl Sleeper {
    fn is_me(&self) {
        let id = portals_shim::ids::thread().unwrap().as_raw_nonzero().get();
        self.0.store(id, Ordering::SeqCst);
    }

    /// Returns when the kernel says that it sleeps.
    fn is_asleep(&self) {
        loop {
            let id = self.0.load(Ordering::SeqCst);
            let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat"));
            if stat.is_ok_and(|s| s.rsplit(") ").next().is_some_and(|s| s.starts_with('S'))) {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Sends requests of `len` bytes until there is no room for more; how many.
fn fill(conduit: &Conduit, node: u32, len: usize) -> usize {
    let to = conduit.neighbour(node).unwrap();
    let category = if len == 0 {
        Category::Short
    } else {
        Category::Medium
    };
    let body = vec![0; len];
    let tag = Tag::new(category, TAKE, 0);
    (0..)
        .take_while(|_| to.try_request(false, tag, &[], &body))
        .count()
}

/// Of several rounds one is short: who slept was woken.
fn one_is_short(round: impl Fn() -> Duration) {
    let shortest = (0..ROUNDS).map(|_| round()).min();
    assert!(shortest.is_some_and(|s| s < WOKEN), "{shortest:?}");
}

/// Rank 0 sleeps for want of room; rank 1 takes all its requests, one in each poll, and with `idle` polls on. How long
/// it takes from the sleep on.
fn woken_by_room(len: usize, idle: bool) -> Duration {
    let limits = [SHM, ("GASNET_PORTAL_AM_LIMIT", "1")];
    let (sleeper, sent) = (Sleeper::default(), AtomicUsize::new(0));
    let woken = AtomicBool::new(false);
    let ends = threads::run_in(2, &limits, |conduit| {
        let taken = Rc::new(Cell::new(0));
        let t = taken.clone();
        let take = HandlerEntry::new(TAKE, move |_, _, _| t.set(t.get() + 1));
        conduit.attach(vec![take], 0).unwrap();
        if conduit.mynode() == 0 {
            sent.store(fill(conduit, 1, len), Ordering::SeqCst);
            sleeper.is_me();
            let to = conduit.neighbour(1).unwrap();
            while !to.has_room(false, len) {
                conduit.wait_step_or(
                    "waiting",
                    Scope::Full,
                    None,
                    Some(&|| to.has_room(false, len)),
                );
            }
            woken.store(true, Ordering::SeqCst);
            Duration::ZERO
        } else {
            while sent.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            sleeper.is_asleep();
            let begun = Instant::now();
            while taken.get() < sent.load(Ordering::SeqCst) {
                conduit.poll();
            }
            while !woken.load(Ordering::SeqCst) {
                if idle {
                    conduit.poll();
                }
                std::thread::yield_now();
            }
            begun.elapsed()
        }
    });
    returned(ends)[1]
}

/// The room of many short frames is told while they are taken.
#[test]
fn room_is_told_while_frames_come() {
    in_time(|| one_is_short(|| woken_by_room(0, false)));
}

/// A few long ones fill a lane, too few to tell of each: their room is told when no more come.
#[test]
fn room_is_told_when_no_more_frames_come() {
    in_time(|| one_is_short(|| woken_by_room(MAX_MEDIUM, true)));
}

/// A rank that has no room for a reply leaves the request where it is and sleeps; the requester takes replies.
#[test]
fn who_has_no_room_for_a_reply_is_woken_by_it() {
    let round = || {
        let sleeper = Sleeper::default();
        let sent = AtomicUsize::new(0);
        let ends = threads::run_in(2, &[SHM], |conduit| {
            let (taken, back) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
            let (t, b) = (taken.clone(), back.clone());
            let handlers = vec![
                HandlerEntry::new(TAKE, move |token, _, _| {
                    t.set(t.get() + 1);
                    token.reply_medium(BACK, &[0; MAX_MEDIUM], &[]).unwrap();
                }),
                HandlerEntry::new(BACK, move |_, _, _| b.set(b.get() + 1)),
            ];
            conduit.attach(handlers, 0).unwrap();
            if conduit.mynode() == 0 {
                let all = fill(conduit, 1, 0);
                sent.store(all, Ordering::SeqCst);
                sleeper.is_asleep();
                let begun = Instant::now();
                conduit.block_until(|| back.get() == all);
                begun.elapsed()
            } else {
                while sent.load(Ordering::SeqCst) == 0 {
                    std::thread::yield_now();
                }
                sleeper.is_me();
                conduit.block_until(|| taken.get() == sent.load(Ordering::SeqCst));
                Duration::ZERO
            }
        });
        returned(ends)[0]
    };
    in_time(move || one_is_short(round));
}

/// Threads write to one peer at the same time; each one's frames arrive whole, once, and in its order.
#[test]
fn threads_that_write_to_one_peer_take_turns() {
    const THREADS: usize = 4;
    const EACH: i32 = 300_000;
    let job = || {
        let ends = threads::run_in(2, &[SHM], |conduit| {
            let next = Rc::new(Cell::new([0; THREADS]));
            let n = next.clone();
            let take = HandlerEntry::new(TAKE, move |_, _, args| {
                let mut all = n.get();
                let of = &mut all[args[0] as usize];
                assert_eq!((args[1], args[2]), (*of, !*of));
                *of += 1;
                n.set(all);
            });
            conduit.attach(vec![take], 0).unwrap();
            if conduit.mynode() == 1 {
                return conduit.block_until(|| next.get() == [EACH; THREADS]);
            }
            let all = conduit.neighbours.get().unwrap().clone();
            std::thread::scope(|s| {
                for thread in 0..THREADS {
                    let to = all.find(1).unwrap();
                    s.spawn(move || {
                        for i in 0..EACH {
                            let args = [thread as i32, i, !i];
                            let tag = Tag::new(Category::Short, TAKE, 3);
                            while !to.try_request(true, tag, args.as_bytes(), &[]) {
                                std::thread::yield_now();
                            }
                        }
                    });
                }
            });
        });
        returned(ends);
    };
    in_time(job);
}

/// Frames that come without an end do not keep a rank from the events of the interface.
#[test]
fn the_interface_is_looked_at_once_in_sixteen_frames() {
    let ends = threads::run_in(2, &[SHM], |conduit| {
        conduit.attach(vec![], 0).unwrap();
        let neighbours = conduit.neighbours.get().unwrap();
        let due: Vec<bool> = (0..160).map(|_| neighbours.is_due()).collect();
        due.chunks(16)
            .all(|c| c.iter().filter(|d| **d).count() == 1)
    });
    assert_eq!(returned(ends), [true; 2]);
}

/// The statistics say how many requests waited for room.
#[test]
fn requests_that_wait_for_room_are_counted() {
    let polls = Arc::new(AtomicBool::new(false));
    let ends = threads::run_in(2, &[SHM], |conduit| {
        let p = polls.clone();
        let handlers = vec![
            HandlerEntry::new(TAKE, |_, _, _| {}),
            // Runs when rank 0 polls, which it does where it waits.
            HandlerEntry::new(BACK, move |_, _, _| p.store(true, Ordering::SeqCst)),
        ];
        conduit.attach(handlers, 0).unwrap();
        if conduit.mynode() == 0 {
            fill(conduit, 1, 0);
            conduit.am_request_short(1, TAKE, &[]).unwrap();
        } else {
            let to = conduit.neighbour(0).unwrap();
            let tag = Tag::new(Category::Short, BACK, 0);
            assert!(to.try_request(false, tag, &[], &[]));
            while !polls.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
        let report = conduit.neighbours.get().unwrap().report().to_string();
        let words: Vec<String> = report
            .lines()
            .last()
            .unwrap()
            .split(' ')
            .map(str::to_owned)
            .collect();
        words[3].clone()
    });
    assert_eq!(returned(ends), ["1", "0"]);
}

/// A rank that cannot copy to another's segment takes no frames of it, and so sends it none.
#[test]
fn a_pair_that_cannot_copy_uses_no_frames() {
    for mapped in [true, false] {
        let variables = [SHM, ("GASNET_PORTAL_NEAR", "no")];
        let ends = threads::run_in(2, &variables, |conduit| {
            conduit.attach(vec![], 4096).unwrap();
            assert!(conduit.neighbours.get().is_none());
            {
                let mut core = conduit.core.borrow_mut();
                core.env.near = true;
                if core.ranks.me() == 0 && !mapped {
                    core.attached.as_mut().unwrap().near[1] = None;
                }
            }
            let near = frames::offer(&conduit.core.borrow()).unwrap();
            conduit.meet();
            let found = Neighbours::new(near, &conduit.core.borrow());
            found.find(1 - conduit.mynode()).is_some()
        });
        assert_eq!(returned(ends), [mapped; 2]);
    }
}
