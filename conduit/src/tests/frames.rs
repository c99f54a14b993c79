//! Ranks that share memory: every active message as a frame.

use super::{am, flow, pattern, returned};
use crate::frames::{Tag, place};
use crate::matchbits::Category;
use crate::threads::{self, RankEnd};
use crate::{AmError, BarrierName, Conduit, HandlerEntry, MAX_MEDIUM, Par, ParHandler};
use portals_shim::Lane;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

const SHM: (&str, &str) = ("PORTOLAN_FABRIC", "shm");
const TAKE: u8 = 130;
const BACK: u8 = 131;

#[test]
fn every_category_count_and_size() {
    am::every_message(&[SHM]);
}

#[test]
fn every_message_one_frame_in_a_poll() {
    am::every_message(&[
        SHM,
        ("GASNET_PORTAL_SAFE_LIMIT", "1"),
        ("GASNET_PORTAL_AM_LIMIT", "1"),
    ]);
}

#[test]
fn every_message_with_frames_switched_off() {
    am::every_message(&[SHM, ("GASNET_PORTAL_NEAR", "no")]);
}

/// Ranks that share memory have neighbours, unless that is switched off; then messages take credits as between machines.
#[test]
fn frames_are_used_unless_they_are_switched_off() {
    for (variables, has_frames) in [
        (&[SHM][..], true),
        (&[SHM, ("GASNET_PORTAL_NEAR", "0")], false),
    ] {
        let ends = threads::run_in(2, variables, |conduit| {
            let taken = Rc::new(Cell::new(0));
            let t = taken.clone();
            let take = HandlerEntry::new(TAKE, move |_, _, _| t.set(t.get() + 1));
            conduit.attach(vec![take], 0).unwrap();
            for _ in 0..5 {
                let peer = 1 - conduit.mynode();
                conduit.am_request_short(peer, TAKE, &[]).unwrap();
            }
            conduit.block_until(|| taken.get() == 5);
            conduit.barrier(BarrierName::Anonymous).unwrap();
            let report = conduit.core.borrow().credits.report().to_string();
            let peer = report.lines().last().unwrap();
            let most_in_use: u32 = peer.split(' ').nth(5).unwrap().parse().unwrap();
            (frames(conduit), most_in_use > 0)
        });
        for (rank, (frames, took_credits)) in returned(ends).into_iter().enumerate() {
            // Sent and taken.
            let line = format!("frames {} 5 0 0 5 0 0", 1 - rank);
            let last = frames.lines().last();
            assert_eq!(last, has_frames.then_some(line.as_str()));
            assert_eq!(took_credits, !has_frames);
        }
    }
}

#[test]
fn longs_from_the_segment_both_ways() {
    am::longs_from_the_segment(&[SHM]);
}

#[test]
fn what_is_wrong_is_refused_as_elsewhere() {
    am::bad_arguments(&[SHM]);
    am::a_message_to_no_handler(&[SHM]);
    am::a_handler_that_waits(&[SHM]);
}

/// Requests and replies of every size fill the lanes both ways, among more ranks than processors.
#[test]
fn ranks_flood_each_other() {
    flow::flood(2, 20_000, &[SHM]);
    flow::flood(5, 1_000, &[SHM]);
}

fn frames(conduit: &Conduit) -> String {
    let neighbours = conduit.neighbours.get();
    neighbours.map_or(String::new(), |n| n.report().to_string())
}

/// Every request is answered with the largest Medium, in both directions at once: replies fill their lanes, and no
/// rank may wait in a handler. What is counted is what was sent, and no credit was taken.
#[test]
fn replies_fill_their_lanes_and_none_waits() {
    const COUNT: usize = 3000;
    let ends = threads::run_in(2, &[SHM], |conduit| {
        let (taken, back) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let (t, b) = (taken.clone(), back.clone());
        let handlers = vec![
            HandlerEntry::new(TAKE, move |token, payload, args| {
                let len = payload.bytes().len();
                assert_eq!(payload.bytes(), pattern(args[15] as usize, len));
                t.set(t.get() + 1);
                let answer = pattern(args[15] as usize + 1, MAX_MEDIUM);
                token.reply_medium(BACK, &answer, args).unwrap();
            }),
            HandlerEntry::new(BACK, move |_, payload, args| {
                assert_eq!(payload.bytes(), pattern(args[15] as usize + 1, MAX_MEDIUM));
                // Replies come in the order of the requests.
                assert_eq!(args[15], b.get());
                b.set(b.get() + 1);
            }),
        ];
        conduit.attach(handlers, 0).unwrap();
        let peer = 1 - conduit.mynode();
        for i in 0..COUNT {
            let mut args = [3; 16];
            args[15] = i as i32;
            let payload = pattern(i, i * 53 % (MAX_MEDIUM + 1));
            conduit
                .am_request_medium(peer, TAKE, &payload, &args)
                .unwrap();
        }
        conduit.block_until(|| taken.get() == COUNT && back.get() == COUNT as i32);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let in_use = conduit.core.borrow().credits.report().to_string();
        (frames(conduit), in_use)
    });
    for (frames, credits) in returned(ends) {
        let line = frames.lines().last().unwrap().to_owned();
        let words: Vec<u64> = line
            .split(' ')
            .skip(1)
            .map(|w| w.parse().unwrap())
            .collect();
        let [
            _,
            requests,
            _,
            replies,
            requests_taken,
            replies_taken,
            dropped,
        ] = words[..]
        else {
            panic!("{line}")
        };
        let all = COUNT as u64;
        assert_eq!(
            [requests, replies, requests_taken, replies_taken, dropped],
            [all, all, all, all, 0]
        );
        assert!(
            credits.contains("# stalls 0 granted 0 short 0"),
            "{credits}"
        );
    }
}

/// A rank that takes nothing holds up those who send to it, and nobody else.
#[test]
fn a_rank_that_does_not_poll_holds_up_nobody_else() {
    let free = Barrier::new(2);
    let ends = threads::run_in(3, &[SHM], |conduit| {
        let back = Rc::new(Cell::new(0));
        let b = back.clone();
        let handlers = vec![
            HandlerEntry::new(TAKE, |token, _, _| token.reply_short(BACK, &[]).unwrap()),
            HandlerEntry::new(BACK, move |_, _, _| b.set(b.get() + 1)),
        ];
        conduit.attach(handlers, 0).unwrap();
        let me = conduit.mynode();
        if me == 2 {
            // Room for a few requests, then the others have met by messages of their own.
            free.wait();
        } else {
            for _ in 0..20 {
                conduit.am_request_short(2, TAKE, &[]).unwrap();
            }
            for _ in 0..2000 {
                conduit.am_request_short(1 - me, TAKE, &[]).unwrap();
            }
            // Of rank 2 there may be answers before the last of the other one.
            conduit.block_until(|| back.get() >= 2000);
            if me == 0 {
                free.wait();
            }
            conduit.block_until(|| back.get() == 2020);
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}

/// A rank that sleeps is woken by a frame, and one that waits for room by room.
#[test]
fn sleepers_are_woken() {
    let ends = threads::run_in(4, &[SHM], |conduit| {
        let seen = Rc::new(Cell::new(0u32));
        let s = seen.clone();
        let take = HandlerEntry::new(TAKE, move |_, _, _| s.set(s.get() + 1));
        conduit.attach(vec![take], 0).unwrap();
        let (me, n) = (conduit.mynode(), conduit.nodes());
        // A frame goes round; who does not have it sleeps, since there are more ranks than processors.
        for round in 0..200 {
            if me == 0 {
                conduit.am_request_short(1, TAKE, &[]).unwrap();
            }
            conduit.block_until(|| seen.get() > round);
            if me != 0 {
                conduit.am_request_short((me + 1) % n, TAKE, &[]).unwrap();
            }
        }
        // All send to one, far more than fits.
        if me == 0 {
            conduit.block_until(|| seen.get() == 200 + 3 * 5000);
        } else {
            for _ in 0..5000 {
                conduit.am_request_short(0, TAKE, &[]).unwrap();
            }
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
    });
    returned(ends);
}

/// Who waits for room towards a rank that has closed ends the job, as with any message that fails.
#[test]
fn room_at_a_rank_that_is_gone_is_not_waited_for() {
    let ends = threads::run_in(2, &[SHM], |conduit| {
        conduit
            .attach(vec![HandlerEntry::new(TAKE, |_, _, _| {})], 0)
            .unwrap();
        if conduit.mynode() == 1 {
            conduit.interface().close().unwrap();
            // Until the other one has ended the job.
            let _ = conduit.job.fence();
            return;
        }
        loop {
            conduit.am_request_short(1, TAKE, &[]).unwrap();
        }
    });
    let RankEnd::Aborted(message) = &ends[0] else {
        panic!("{ends:?}")
    };
    assert!(
        message.contains("sending a request: node 1 cannot be reached"),
        "{message}"
    );
}

/// A frame that no rank of ours writes ends the job with a line that says whose it was; none is followed.
#[test]
fn frames_of_a_hostile_rank() {
    let long = |category, args| Tag::new(category, TAKE, args).encode();
    let outside = place(4096 - 7, 8);
    let wrapped = place(u64::MAX, 8);
    let cases: [(u16, &[u8]); 8] = [
        (0xffff, &[]),
        (31 << 8, &[0; 124]),
        (long(Category::Short, 4), &[0; 15]),
        (long(Category::Short, 0), &[0; 4]),
        (long(Category::Medium, 0), &[0; MAX_MEDIUM + 1]),
        (long(Category::Long, 0), &[0; 15]),
        (long(Category::Long, 0), &outside),
        (long(Category::Long, 0), &wrapped),
    ];
    for lane in [Lane::Requests, Lane::Replies] {
        for (tag, body) in cases {
            let ends = threads::run_in(2, &[SHM], |conduit| {
                let ran = HandlerEntry::new(TAKE, |_, _, _| panic!("the handler ran"));
                conduit.attach(vec![ran], 4096).unwrap();
                if conduit.mynode() == 0 {
                    let to = conduit.neighbour(1).unwrap();
                    assert!(to.link().try_send(lane, tag, &[], body));
                }
                conduit.block_until(|| false);
            });
            let said = |end: &RankEnd<()>| {
                matches!(end, RankEnd::Aborted(m)
                    if m.starts_with("rank 1 of 2: polling: malformed message from node 0"))
            };
            assert!(ends.iter().all(said), "{tag:#x} {ends:?}");
        }
    }
}

/// While a thread keeps the conduit for itself, another one sends to a rank that shares memory: the two meet in no
/// lock.
#[test]
fn threads_send_frames_without_the_gate() {
    // All of them find room, whatever the other rank does.
    const COUNT: usize = 60;
    let (inside, sent) = (Barrier::new(2), Barrier::new(2));
    let ends = threads::run_par(2, &[SHM], |par: &Par| {
        let taken = Arc::new(AtomicUsize::new(0));
        let t = taken.clone();
        let take = ParHandler::new(TAKE, move |_, _, _| {
            t.fetch_add(1, Ordering::SeqCst);
        });
        par.attach(vec![take], 1 << 16).unwrap();
        if par.mynode() == 0 {
            std::thread::scope(|s| {
                s.spawn(|| {
                    par.with(|_| {
                        inside.wait();
                        sent.wait();
                    });
                });
                inside.wait();
                let dest = par.segment(1).addr;
                for i in 0..COUNT {
                    let bytes = pattern(i, 100);
                    par.am_request_short(1, TAKE, &[i as i32]).unwrap();
                    par.am_request_medium(1, TAKE, &bytes, &[]).unwrap();
                    par.am_request_long(1, TAKE, &bytes, dest, &[]).unwrap();
                }
                sent.wait();
            });
        }
        if par.mynode() == 1 {
            par.block_until(|| taken.load(Ordering::SeqCst) == 3 * COUNT);
        }
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
    });
    returned(ends);
}

/// A Long that breaks a rule is refused, and writes nothing.
#[test]
fn a_long_of_a_thread_that_is_refused_writes_nothing() {
    let ends = threads::run_par(2, &[SHM], |par: &Par| {
        par.attach(vec![], 4096).unwrap();
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
        let (me, peer) = (par.mynode(), 1 - par.mynode());
        let dest = par.segment(peer).addr;
        let many = [0; 17];
        let args = AmError::Args { count: 17 };
        assert_eq!(
            par.am_request_long(peer, TAKE, &[7; 64], dest, &many),
            Err(args)
        );
        let own = par.with(|c| c.local_segment().unwrap());
        own.fill(64, 64, 7).unwrap();
        for refused in [
            par.am_request_long_from_segment(peer, TAKE, 64, 64, dest, &many),
            par.am_request_long_async_from_segment(peer, TAKE, 64, 64, dest, &many),
        ] {
            assert_eq!(refused, Err(args));
        }
        let outside = par.am_request_long_from_segment(peer, TAKE, 4090, 64, dest, &[]);
        assert_eq!(
            outside,
            Err(AmError::Source {
                offset: 4090,
                len: 64
            })
        );
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
        let mut bytes = [1; 64];
        own.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 64], "rank {me}");
    });
    returned(ends);
}

/// Threads of every rank send to every other rank, wait for answers, and poll for each other.
#[test]
fn threads_flood_each_other() {
    const THREADS: usize = 3;
    const EACH: usize = 1500;
    let ends = threads::run_par(3, &[SHM], |par: &Par| {
        let (taken, back) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let running = Arc::new(AtomicBool::new(false));
        let (t, b) = (taken.clone(), back.clone());
        let handlers = vec![
            ParHandler::new(TAKE, move |token, payload, args| {
                assert!(
                    !running.swap(true, Ordering::SeqCst),
                    "two handlers at a time"
                );
                let len = payload.bytes().len();
                assert_eq!(payload.bytes(), pattern(args[0] as usize, len));
                t.fetch_add(1, Ordering::SeqCst);
                running.store(false, Ordering::SeqCst);
                token.reply_short(BACK, &[]).unwrap();
            }),
            ParHandler::new(BACK, move |_, _, _| {
                b.fetch_add(1, Ordering::SeqCst);
            }),
        ];
        par.attach(handlers, 0).unwrap();
        std::thread::scope(|s| {
            for thread in 0..THREADS {
                let back = back.clone();
                s.spawn(move || {
                    for i in 0..EACH {
                        let to = (par.mynode() + (thread + i) as u32) % par.nodes();
                        let bytes = pattern(i, i * 7 % 1500);
                        par.am_request_medium(to, TAKE, &bytes, &[i as i32])
                            .unwrap();
                    }
                    par.block_until(|| back.load(Ordering::SeqCst) == THREADS * EACH);
                });
            }
        });
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
        taken.load(Ordering::SeqCst)
    });
    assert_eq!(returned(ends).iter().sum::<usize>(), 3 * THREADS * EACH);
}
