//! Memory outside of segments that are pinned as a whole: it is pinned by units that stay.
// UNSAFETY: promises that memory is forgotten before it goes; what each test names is freed after its end, or forgotten.
#![expect(unsafe_code, reason = "`promise_to_forget` is unsafe")]

use super::everything::stats;
use super::{pattern, returned};
use crate::threads::RankEnd;
use crate::{BarrierName, Conduit, FirehoseStats, HandlerEntry, Par, Payload, threads};
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

const LEN: usize = 1 << 20;

/// Ranks with segments of [`LEN`] bytes, which promise; the other end of each test's messages is the next rank.
fn job<R: Send + std::fmt::Debug>(
    ranks: u32,
    variables: &[(&str, &str)],
    handlers: impl Fn() -> Vec<HandlerEntry> + Sync,
    body: impl Fn(&Conduit, u32, u64) -> R + Sync,
) -> Vec<R> {
    returned(threads::run_in(ranks, variables, |conduit| {
        // SAFETY: memory that a test names outlives its job, or is forgotten before it goes.
        unsafe { conduit.promise_to_forget() };
        conduit.attach(handlers(), LEN).unwrap();
        let peer = (conduit.mynode() + 1) % ranks;
        let there = conduit.segment(peer).addr;
        let result = body(conduit, peer, there);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        result
    }))
}

/// Far from the stack of the thread, whose memory does not stay pinned.
const FAR: usize = 16 << 20;

fn put_and_get(variables: &[(&str, &str)]) -> Vec<FirehoseStats> {
    job(3, variables, Vec::new, |conduit, peer, there| {
        let mut memory = vec![0; 2 * FAR];
        let (data, back) = memory[FAR..].split_at_mut(2 * LEN);
        for round in 0..6 {
            for (i, len) in [8, 2048, 4096, 65_537, 300_001, LEN]
                .into_iter()
                .enumerate()
            {
                let (data, back) = (&mut data[i..][..len], &mut back[3 * i..][..len]);
                data.copy_from_slice(&pattern(i + round + 7 * peer as usize, len));
                back.fill(0xee);
                let handle = conduit.put_nb(peer, there, data).unwrap();
                conduit.wait(handle);
                conduit.get(back, peer, there).unwrap();
                assert!(back == data, "{len} bytes");
                conduit.put_nbi(peer, there, back).unwrap();
                conduit.wait_nbi_all();
            }
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let s = stats(conduit);
        let (addr, len) = (memory.as_ptr().addr() as u64, memory.len() as u64);
        conduit.forget(addr, len);
        assert_eq!(stats(conduit).pinned, 0);
        s
    })
}

#[test]
fn local_memory_stays_pinned() {
    for s in put_and_get(&[]) {
        assert!(s.own.misses > 0 && s.own.hits > 4 * s.own.misses, "{s:?}");
        assert_eq!((s.remote.moves, s.own.evictions), (0, 0), "{s:?}");
        assert_eq!(s.limits, (0, 0, 128 << 20));
    }
}

#[test]
fn local_memory_stays_pinned_as_far_as_there_is_room() {
    let small = [
        ("GASNET_FIREHOSE_MAXVICTIM_M", "512K"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "64K"),
    ];
    for s in put_and_get(&small) {
        assert!(s.own.evictions > 0 && s.pinned <= 512 << 10, "{s:?}");
    }
    // Of 4 KiB each.
    let pages = [("GASNET_FIREHOSE_MAXREGION_SIZE", "4K")];
    for s in put_and_get(&pages) {
        assert!(s.own.hits > s.own.misses, "{s:?}");
    }
}

#[test]
fn local_memory_is_pinned_for_each_message_where_that_is_asked_or_nothing_promised() {
    let off = [("GASNET_USE_FIREHOSE", "0")];
    let none = job(2, &off, Vec::new, |conduit, peer, there| {
        conduit.put(peer, there, &vec![1; 100_000]).unwrap();
        conduit.firehose_stats()
    });
    assert_eq!(none, [None, None]);
    let none = threads::run_in(2, &[], |conduit| {
        conduit.attach(vec![], LEN).unwrap();
        let data = vec![1; 100_000];
        let peer = 1 - conduit.mynode();
        conduit
            .put(peer, conduit.segment(peer).addr, &data)
            .unwrap();
        conduit.barrier(BarrierName::Anonymous).unwrap();
        conduit.firehose_stats()
    });
    assert_eq!(returned(none), [None, None]);
}

/// Payloads in one unit, in several, and in a handler, which cannot wait.
#[test]
fn payloads_of_longs_stay_pinned() {
    let mut memory = vec![0; 2 * FAR];
    let mut at = FAR;
    let sources: Vec<_> = [3000, 60_000, 300_000, 900_000]
        .into_iter()
        .map(|len| {
            memory[at..][..len].copy_from_slice(&pattern(len, len));
            at += len;
            at - len..at
        })
        .collect();
    thread_local!(static SEEN: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) });
    let reply = pattern(5, 40_000);
    let handlers = || {
        let reply = reply.clone();
        vec![
            HandlerEntry::new(200, move |token, payload, args| {
                let Payload::Long { len, .. } = payload else {
                    panic!("{payload:?}")
                };
                SEEN.with_borrow_mut(|s| s.push(len));
                let back =
                    u64::from(args[0].cast_unsigned()) | u64::from(args[1].cast_unsigned()) << 32;
                token.reply_long(201, &reply, back, &[]).unwrap();
            }),
            HandlerEntry::new(201, |_, payload, _| {
                let Payload::Long { len, .. } = payload else {
                    panic!("{payload:?}")
                };
                SEEN.with_borrow_mut(|s| s.push(len + 1));
            }),
        ]
    };
    let said = job(2, &[], handlers, |conduit, peer, there| {
        let own = conduit.segment(conduit.mynode()).addr;
        let back = own + (LEN - 50_000) as u64;
        let halves = [back as u32, (back >> 32) as u32].map(u32::cast_signed);
        for range in &sources {
            let data = &memory[range.clone()];
            for _ in 0..3 {
                SEEN.take();
                conduit
                    .am_request_long(peer, 200, data, there, &halves)
                    .unwrap();
                conduit.block_until(|| SEEN.with_borrow(|s| s.len() == 2));
                let mut all = SEEN.take();
                all.sort_unstable();
                let mut expected = [data.len(), 40_001];
                expected.sort_unstable();
                assert_eq!(all, expected);
                let mut got = vec![0; data.len()];
                let segment = conduit.local_segment().unwrap();
                segment.read(0, &mut got).unwrap();
                assert!(got == data, "{} bytes", data.len());
                let mut got = vec![0; 40_000];
                segment.read(LEN - 50_000, &mut got).unwrap();
                assert!(got == pattern(5, 40_000));
                conduit.barrier(BarrierName::Anonymous).unwrap();
            }
        }
        stats(conduit)
    });
    for s in said {
        assert!(s.own.hits > s.own.misses && s.own.misses > 8, "{s:?}");
    }
}

/// The header and the payload, which no unit cuts, are two messages; the payload is pinned once.
#[test]
fn a_payload_in_one_unit_stays_pinned() {
    let handlers = || vec![HandlerEntry::new(200, |_, _, _| {})];
    let said = job(2, &[], handlers, |conduit, peer, there| {
        let memory = vec![3; 2 * FAR];
        for _ in 0..10 {
            let data = &memory[FAR..][..60_000];
            conduit
                .am_request_long(peer, 200, data, there, &[])
                .unwrap();
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let s = stats(conduit);
        let (addr, len) = (memory.as_ptr().addr() as u64, memory.len() as u64);
        conduit.forget(addr, len);
        s
    });
    for s in said {
        assert_eq!((s.own.misses, s.own.hits), (1, 9), "{s:?}");
    }
}

#[test]
fn forgotten_memory_is_not_pinned() {
    job(2, &[], Vec::new, |conduit, peer, there| {
        for round in 0..5 {
            let mut data = vec![0; 2 * FAR];
            data[FAR..][..200_000].copy_from_slice(&pattern(round, 200_000));
            conduit.put(peer, there, &data[FAR..][..200_000]).unwrap();
            assert!(stats(conduit).pinned > 0);
            conduit.forget(data.as_ptr().addr() as u64, data.len() as u64);
            assert_eq!(stats(conduit).pinned, 0);
        }
    });
}

/// Two threads transfer from and to one unit, of which one takes its part away: when it goes it is not pinned, and nobody
/// else has the turn.
#[test]
fn memory_goes_within_the_turn_of_the_thread_that_takes_it_away() {
    returned(threads::run_par(2, &[], |par: &Par| {
        // SAFETY: what is named is of one vector, which outlives the transfers; its parts are given as taken away, and stay.
        par.with(|c| unsafe { c.promise_to_forget() });
        par.attach(Vec::new(), LEN).unwrap();
        let peer = 1 - par.mynode();
        let there = par.segment(peer).addr;
        let memory = vec![7; 2 * FAR];
        let (goes, stays) = memory[FAR..][..32_768].split_at(16_384);
        let put = |bytes: &[u8]| par.with(|c| c.put(peer, there, bytes)).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    put(stays);
                }
            });
            for _ in 0..200 {
                put(goes);
                let range = (goes.as_ptr().addr() as u64, goes.len() as u64);
                let gone = par.take_away(&[(0, 0), range], || {
                    assert!(par.is_inside());
                    par.with(|c| stats(c).pinned)
                });
                assert_eq!(gone, Some(0));
            }
            done.store(true, Ordering::Relaxed);
        });
        par.with(|c| c.barrier(BarrierName::Anonymous)).unwrap();
    }));
}

/// Where the system gives memory nothing was, so what is pinned there is stale; what lies elsewhere is not.
#[test]
fn what_is_pinned_where_memory_comes_is_forgotten() {
    job(2, &[], Vec::new, |conduit, peer, there| {
        let memory = vec![0; 2 * FAR];
        let data = &memory[FAR..][..200_000];
        let addr = data.as_ptr().addr() as u64;
        for _ in 0..3 {
            conduit.put(peer, there, data).unwrap();
            let pinned = stats(conduit).pinned;
            assert!(pinned > 0);
            conduit.renew_mapped(addr + (FAR as u64) / 2, 4096);
            assert_eq!(stats(conduit).pinned, pinned);
            conduit.renew_mapped(addr, data.len() as u64);
            assert_eq!(stats(conduit).pinned, 0);
        }
    });
}

#[test]
fn a_budget_that_makes_no_sense_ends_the_start() {
    let end = |variables: &[(&str, &str)]| {
        let ends = threads::run_in(2, variables, |conduit| {
            // SAFETY: nothing is put or got.
            unsafe { conduit.promise_to_forget() };
            let attached = conduit.attach(vec![], LEN);
            attached.map(|_| ()).map_err(|e| e.to_string())
        });
        match ends.into_iter().next() {
            Some(RankEnd::Returned(result)) => result,
            other => panic!("{other:?}"),
        }
    };
    let text = end(&[("GASNET_FIREHOSE_MAXVICTIM_M", "1K")]).unwrap_err();
    assert!(text.contains("less than 4 units"), "{text}");
    let text = end(&[
        ("GASNET_PHYSMEM_MAX", "100M"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "90M"),
    ]);
    let text = text.unwrap_err();
    assert!(text.contains("are more than the"), "{text}");
    // Where nothing was said, too little is no error: memory is pinned for each message.
    assert_eq!(end(&[("GASNET_PHYSMEM_MAX", "2M")]), Ok(()));
}
