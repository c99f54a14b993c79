//! Jobs without segments: any memory of any rank, pinned when it is needed.
// UNSAFETY: attaches without a segment; each test keeps what it names alive, and reads it after a barrier.
#![expect(
    unsafe_code,
    reason = "`attach_everything` and the calls that name memory by its address are unsafe"
)]

use super::notices::in_time;
use super::{pattern, returned};
use crate::threads::RankEnd;
use crate::{
    AmError, BarrierName, Conduit, FirehoseStats, HandlerEntry, MAX_PACKED, Payload, RmaError,
    threads,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};

const SMALL: &[(&str, &str)] = &[
    ("GASNET_FIREHOSE_M", "1M"),
    ("GASNET_FIREHOSE_MAXVICTIM_M", "1M"),
    ("GASNET_FIREHOSE_MAXREGION_SIZE", "64K"),
];

/// Every rank makes `len` bytes and learns where those of the others are.
fn with<R: Send + std::fmt::Debug>(
    ranks: u32,
    variables: &[(&str, &str)],
    len: usize,
    body: impl Fn(&Conduit, &mut Vec<u8>, &[u64]) -> R + Sync,
) -> Vec<R> {
    let ends = threads::run_in(ranks, variables, |conduit| {
        let mut memory = vec![0u8; len];
        let addrs = attach(conduit, memory.as_mut_ptr().expose_provenance() as u64);
        let result = body(conduit, &mut memory, &addrs);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        result
    });
    returned(ends)
}

pub(super) fn attach(conduit: &Conduit, addr: u64) -> Vec<u64> {
    attach_with(conduit, addr, vec![])
}

/// Attaches with more handlers than [`attach`], whose indexes are fixed.
pub(super) fn attach_with(
    conduit: &Conduit,
    addr: u64,
    mut handlers: Vec<HandlerEntry>,
) -> Vec<u64> {
    let addrs = Rc::new(RefCell::new(vec![0; conduit.nodes() as usize]));
    let seen = addrs.clone();
    let tell = HandlerEntry::new(0, move |token, _, args| {
        let whole = |at: usize| u64::from(args[at].cast_unsigned());
        seen.borrow_mut()[token.source() as usize] = whole(0) | whole(1) << 32;
    });
    handlers.insert(0, tell);
    // SAFETY: the tests name only memory that lives until their last barrier.
    let tell = unsafe { conduit.attach_everything(handlers) }.unwrap()[0];
    for node in 0..conduit.nodes() {
        let halves = [addr as u32, (addr >> 32) as u32];
        let args = halves.map(u32::cast_signed);
        conduit.am_request_short(node, tell, &args).unwrap();
    }
    conduit.block_until(|| addrs.borrow().iter().all(|a| *a != 0));
    addrs.borrow().clone()
}

pub(super) fn stats(conduit: &Conduit) -> FirehoseStats {
    conduit.firehose_stats().unwrap()
}

fn all_sizes(variables: &[(&str, &str)]) -> Vec<FirehoseStats> {
    const LEN: usize = 4 << 20;
    with(3, variables, LEN, |conduit, _, addrs| {
        let me = conduit.mynode();
        for node in 0..3 {
            let window = addrs[node as usize] + u64::from(me) * (LEN as u64 / 4);
            for (i, len) in [0, 1, 8, 2040, 2049, 4096, 65_537, 300_001, 1 << 20]
                .into_iter()
                .enumerate()
            {
                let data = pattern(i + 7 * me as usize, len);
                let mut back = vec![0xee; len];
                conduit.put(node, window, &data).unwrap();
                conduit.get(&mut back, node, window).unwrap();
                assert!(back == data, "{len} bytes");
                let at = window + 13;
                let len = len.min(1000);
                let handle = conduit.put_nb(node, at, &data[..len]).unwrap();
                conduit.wait(handle);
                conduit.put_nbi(node, at + 2000, &data[..len]).unwrap();
                conduit.wait_nbi_all();
                conduit.get(&mut back[..len], node, at + 2000).unwrap();
                assert!(back[..len] == data[..len]);
            }
        }
        stats(conduit)
    })
}

#[test]
fn all_sizes_between_plain_vectors() {
    for s in all_sizes(&[]) {
        assert!(
            s.remote.hits > 0 && s.remote.misses > 0 && s.copies == 0,
            "{s:?}"
        );
        assert_eq!(s.remote.evictions, 0, "{s:?}");
    }
}

#[test]
fn all_sizes_with_a_small_budget() {
    for s in all_sizes(SMALL) {
        assert!(s.remote.evictions > 0 && s.copies == 0, "{s:?}");
        assert!(s.pinned <= s.limits.0 + s.limits.2, "{s:?}");
        assert_eq!(s.limits, (1 << 20, 1 << 19, 1 << 20));
    }
}

#[test]
fn all_sizes_by_pages() {
    let pages = [
        ("GASNET_FIREHOSE_M", "1"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "1"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "4K"),
    ];
    for s in all_sizes(&pages) {
        assert!(s.remote.evictions > 0, "{s:?}");
    }
}

/// The owner sends what is asked for.
#[test]
fn gets_without_the_adapter() {
    for s in all_sizes(&[("GASNET_RDMA_GETS", "0"), ("GASNET_USE_FIREHOSE", "0")]) {
        assert!(s.copies > 0, "{s:?}");
    }
}

#[test]
fn a_hit_takes_no_message() {
    with(2, &[], 1 << 20, |conduit, _, addrs| {
        if conduit.mynode() == 0 {
            for _ in 0..100 {
                conduit.put(1, addrs[1] + 5, &[1; 64]).unwrap();
            }
            let s = stats(conduit);
            assert_eq!((s.remote.moves, s.remote.misses, s.remote.hits), (1, 1, 99));
        }
    });
}

#[test]
fn memory_that_is_not_there_is_an_error_and_nothing_is_touched() {
    with(2, SMALL, 1 << 20, |conduit, memory, addrs| {
        let peer = 1 - conduit.mynode();
        let unmapped = RmaError::Unmapped {
            node: peer,
            addr: 8,
            len: 16,
        };
        assert_eq!(conduit.put(peer, 8, &[1; 16]), Err(unmapped));
        for addr in [0u64, 8, 0x10_0000, (1 << 47) - 8, u64::MAX - 3] {
            // What leaves the addresses of processes is no memory of any.
            let refused = |node, len: usize| match addr.checked_add(len as u64) {
                Some(end) if end <= 1 << 47 => Err(RmaError::Unmapped { node, addr, len }),
                _ => Err(RmaError::Remote { node, addr, len }),
            };
            let (me, mut kept) = (conduit.mynode(), [9; 3000]);
            assert_eq!(conduit.put(peer, addr, &[1; 8]), refused(peer, 8));
            assert_eq!(conduit.get(&mut kept, peer, addr), refused(peer, 3000));
            assert_eq!(kept, [9; 3000]);
            let put = conduit.put_nbi(peer, addr, &[1; 3000]);
            assert_eq!(put, refused(peer, 3000));
            assert_eq!(conduit.put(me, addr, &[1; 8]), refused(me, 8));
        }
        conduit.wait_nbi_all();
        let to = addrs[peer as usize];
        for (len, addr) in [(8, u64::MAX - 3), (3000, 8)] {
            let node = peer;
            assert_eq!(
                conduit.am_request_long(peer, 128, &vec![1; len], addr, &[]),
                Err(AmError::Destination { node, addr, len })
            );
        }
        assert_eq!(
            conduit.am_request_long_from_segment(peer, 128, 64, 8, to, &[]),
            Err(AmError::Source { offset: 64, len: 8 })
        );
        conduit.put(peer, to, b"works").unwrap();
        conduit.barrier(BarrierName::Anonymous).unwrap();
        assert_eq!(&memory[..5], b"works");
    });
}

/// Memory that goes and comes back, while peers hold firehoses on it.
#[test]
fn memory_is_forgotten_before_it_goes() {
    with(2, SMALL, 8 << 20, |conduit, memory, addrs| {
        let (me, peer) = (conduit.mynode(), 1 - conduit.mynode());
        for round in 0..20u8 {
            let at = addrs[peer as usize] + u64::from(round) * 100_000;
            conduit.put(peer, at, &[round + 1; 5000]).unwrap();
            conduit.barrier(BarrierName::Anonymous).unwrap();
            let here = usize::from(round) * 100_000;
            assert!(memory[here..here + 5000].iter().all(|b| *b == round + 1));
            if round % 2 == me as u8 {
                conduit.forget(addrs[me as usize], 8 << 20);
                // What is left are sources of own puts.
                let s = stats(conduit);
                assert!(s.own.unpins > u64::from(round / 2), "{s:?}");
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
        }
    });
}

/// What a wait sends of pinning before it blocks may poll, and so handle what the wait is for; nothing else comes then.
#[test]
fn a_wait_looks_again_after_it_sent_of_pinning() {
    const TOLD: u8 = 140;
    in_time(|| {
        let (memory, meet) = (AtomicU64::new(0), Barrier::new(2));
        let ends = threads::run_in(2, &[], |conduit| {
            let told = Rc::new(Cell::new(0));
            let t = told.clone();
            let tell = HandlerEntry::new(TOLD, move |_, _, _| t.set(t.get() + 1));
            // SAFETY: memory of rank 0, which lives until the last barrier.
            unsafe { conduit.attach_everything(vec![tell]) }.unwrap();
            let mut mine = vec![0u8; 4096];
            if conduit.mynode() == 0 {
                let addr = mine.as_mut_ptr().expose_provenance() as u64;
                memory.store(addr, Ordering::SeqCst);
                meet.wait();
                // Serves rank 1 until its put is done.
                conduit.barrier(BarrierName::Anonymous).unwrap();
                meet.wait();
                conduit.am_request_short(1, TOLD, &[]).unwrap();
                meet.wait();
                // Rank 1 must come back while nobody answers it.
                meet.wait();
            } else {
                meet.wait();
                let there = memory.load(Ordering::SeqCst);
                conduit.put(0, there, &[1; 64]).unwrap();
                conduit.barrier(BarrierName::Anonymous).unwrap();
                conduit.poll();
                meet.wait();
                meet.wait();
                // Every second request polls: not this one.
                conduit.am_request_short(0, TOLD, &[]).unwrap();
                assert_eq!(told.get(), 0);
                let moves = stats(conduit).remote.moves;
                conduit.let_go_later(0);
                conduit.block_until(|| told.get() == 1);
                assert_eq!(stats(conduit).remote.moves, moves + 1);
                meet.wait();
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
        });
        returned(ends);
    });
}

#[test]
fn budgets_that_make_no_sense_end_the_start() {
    let ends = |variables: &[(&str, &str)]| {
        let ends = threads::run_in(2, variables, |conduit| {
            // SAFETY: nothing is put or got.
            let attached = unsafe { conduit.attach_everything(vec![]) };
            attached.map(|_| ()).map_err(|e| e.to_string())
        });
        match ends.into_iter().next() {
            Some(RankEnd::Returned(Err(text))) => text,
            other => panic!("{other:?}"),
        }
    };
    let max = ("GASNET_PHYSMEM_MAX", "100M");
    let text = ends(&[
        max,
        ("GASNET_FIREHOSE_M", "50"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "50"),
    ]);
    assert!(text.contains("are more than the"), "{text}");
    let text = ends(&[("GASNET_FIREHOSE_M", "1K")]);
    assert!(text.contains("at least 131072 bytes are needed"), "{text}");
    let text = ends(&[("GASNET_FIREHOSE_MAXVICTIM_M", "1K")]);
    assert!(text.contains("less than 4 units"), "{text}");
}

/// Longs of all sizes to any memory, in both directions and to the own rank.
fn longs(ranks: u32, attach: impl Fn(&Conduit, Vec<HandlerEntry>) -> u64 + Sync) {
    const LEN: usize = 1 << 20;
    let ends = threads::run_in(ranks, SMALL, |conduit| {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let addrs = Rc::new(RefCell::new(vec![0u64; ranks as usize]));
        let (s, a, r) = (seen.clone(), addrs.clone(), seen.clone());
        let handlers = vec![
            HandlerEntry::new(200, move |token, _, args| {
                let whole = |at: usize| u64::from(args[at].cast_unsigned());
                a.borrow_mut()[token.source() as usize] = whole(0) | whole(1) << 32;
            }),
            HandlerEntry::new(201, move |token, payload, args| {
                let Payload::Long { addr, len, .. } = payload else {
                    panic!("{payload:?}")
                };
                s.borrow_mut().push((token.source(), addr, len));
                let back =
                    u64::from(args[0].cast_unsigned()) | u64::from(args[1].cast_unsigned()) << 32;
                let data = pattern(len, len.min(MAX_PACKED));
                if len > MAX_PACKED {
                    let too_long = token.reply_long(202, &pattern(1, len), back, &[]);
                    assert!(matches!(
                        too_long,
                        Err(AmError::Payload {
                            max: MAX_PACKED,
                            ..
                        })
                    ));
                }
                token.reply_long(202, &data, back, &[7]).unwrap();
            }),
            HandlerEntry::new(202, move |token, payload, args| {
                let Payload::Long { addr, len, .. } = payload else {
                    panic!("{payload:?}")
                };
                assert_eq!(args, [7]);
                r.borrow_mut().push((token.source() + ranks, addr, len));
            }),
        ];
        let mine = attach(conduit, handlers);
        for node in 0..ranks {
            let halves = [mine as u32, (mine >> 32) as u32];
            conduit
                .am_request_short(node, 200, &halves.map(u32::cast_signed))
                .unwrap();
        }
        conduit.block_until(|| addrs.borrow().iter().all(|a| *a != 0));
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let to = (conduit.mynode() + 1) % ranks;
        let from = (conduit.mynode() + ranks - 1) % ranks;
        for len in [0, 1, 1976, 1977, 2049, 70_000, 300_000] {
            let there = addrs.borrow()[to as usize] + 13;
            let back = mine + (LEN / 2) as u64;
            let halves = [back as u32, (back >> 32) as u32].map(u32::cast_signed);
            conduit
                .am_request_long(to, 201, &pattern(len + to as usize, len), there, &halves)
                .unwrap();
            conduit.block_until(|| seen.borrow().len() == 2);
            let mut both = seen.take();
            both.sort_unstable();
            let short = len.min(MAX_PACKED);
            assert_eq!(both, [(from, mine + 13, len), (to + ranks, back, short)]);
            let me = conduit.mynode();
            let mut got = vec![0; len];
            conduit.get(&mut got, me, mine + 13).unwrap();
            assert!(got == pattern(len + me as usize, len), "{len} bytes");
            conduit.get(&mut got[..short], me, back).unwrap();
            assert!(got[..short] == pattern(len, short), "{len} bytes back");
            conduit.barrier(BarrierName::Anonymous).unwrap();
        }
    });
    returned(ends);
}

#[test]
fn longs_to_plain_memory() {
    for ranks in [1, 2, 3] {
        longs(ranks, |conduit, handlers| {
            let memory = vec![0u8; 1 << 20].leak();
            // SAFETY: the memory named is never freed.
            unsafe { conduit.attach_everything(handlers) }.unwrap();
            memory.as_mut_ptr().expose_provenance() as u64
        });
    }
}

#[test]
fn longs_to_large_segments() {
    for ranks in [1, 2, 3] {
        longs(ranks, |conduit, handlers| {
            conduit.attach_large(handlers, 1 << 20).unwrap();
            conduit.segment(conduit.mynode()).addr
        });
    }
}

/// A segment of which a small part is pinned at a time, in and out of segments.
#[test]
fn large_segments_are_pinned_where_they_are_used() {
    const LEN: usize = 16 << 20;
    let ends = threads::run_in(2, SMALL, |conduit| {
        conduit.attach_large(vec![], LEN).unwrap();
        let peer = 1 - conduit.mynode();
        let there = conduit.segment(peer);
        assert_eq!(there.size, LEN as u64);
        for round in 0..32 {
            let at = round * (LEN / 32) + 100;
            conduit
                .put(peer, there.addr + at as u64, &pattern(round, 40_000))
                .unwrap();
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let own = conduit.local_segment().unwrap();
        for round in 0..32 {
            let mut got = vec![0; 40_000];
            own.read(round * (LEN / 32) + 100, &mut got).unwrap();
            assert!(got == pattern(round, 40_000));
        }
        // From segment to segment.
        conduit
            .get_to_segment(1 << 20, peer, there.addr + 100, 40_000)
            .unwrap();
        conduit
            .put_from_segment(peer, there.addr + (3 << 20), 1 << 20, 40_000)
            .unwrap();
        conduit.barrier(BarrierName::Anonymous).unwrap();
        let mut got = vec![0; 40_000];
        own.read(3 << 20, &mut got).unwrap();
        assert!(got == pattern(0, 40_000));
        let beyond = conduit.put(peer, there.addr + LEN as u64 - 7, &[1; 8]);
        assert_eq!(
            beyond,
            Err(RmaError::Remote {
                node: peer,
                addr: there.addr + LEN as u64 - 7,
                len: 8
            })
        );
        assert_eq!(
            conduit.put_from_segment(peer, there.addr, LEN, 1),
            Err(RmaError::Local {
                offset: LEN,
                len: 1
            })
        );
        conduit.barrier(BarrierName::Anonymous).unwrap();
        stats(conduit)
    });
    for s in returned(ends) {
        assert!(s.remote.evictions > 0 && s.copies == 0, "{s:?}");
        assert!(s.pinned <= 2 << 20, "{s:?}");
    }
}

/// A rank that computes and never calls is named, and ends the job, once it has been waited for as long as was said.
#[test]
fn a_peer_that_never_answers_a_request_of_pinning_ends_the_job() {
    type Body = fn(&Conduit, u64);
    let calls: [(&str, Body); 3] = [
        ("pinning", |c, there| c.put(1, there, &[1; 8]).unwrap()),
        ("pinning", |c, there| {
            let put = c.put_nb(1, there, &[1; 8]).unwrap();
            c.wait(put);
        }),
        ("a copy", |c, there| c.get(&mut [0; 8], 1, there).unwrap()),
    ];
    for (call, body) in calls {
        let said = format!("{call}: node 1 has not answered a request of pinning for 0.05 s");
        with_a_deaf_peer(|_, _| {}, |conduit, addrs| body(conduit, addrs[1]), &said);
    }
}

/// Memory that a peer holds is given back in a call of the peer.
#[test]
fn a_peer_that_never_gives_memory_back_ends_the_job() {
    with_a_deaf_peer(
        |conduit, addrs| conduit.put(0, addrs[0], &[1; 8]).unwrap(),
        |conduit, addrs| conduit.forget(addrs[0], 4096),
        "pinning: memory is not given back for 0.05 s",
    );
}

/// Rank 1 does `first`, and makes no call while rank 0 does `body`, which ends the job with a line that begins with `said`.
fn with_a_deaf_peer(
    first: impl Fn(&Conduit, &[u64]) + Sync,
    body: impl Fn(&Conduit, &[u64]) + Sync,
    said: &str,
) {
    let (tell, told) = std::sync::mpsc::channel::<()>();
    let ends_of = Mutex::new((Some(tell), Some(told)));
    let variables = [
        ("GASNET_FIREHOSE_TIMEOUT", "0.05"),
        ("GASNET_RDMA_GETS", "0"),
    ];
    let ends = threads::run_in(2, &variables, |conduit| {
        let mut memory = vec![0u8; 4096];
        let addrs = attach(conduit, memory.as_mut_ptr().expose_provenance() as u64);
        if conduit.mynode() == 1 {
            first(conduit, &addrs);
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        if conduit.mynode() == 0 {
            // Goes with this rank, however it ends.
            let _tell = ends_of.lock().unwrap().0.take();
            body(conduit, &addrs);
        } else {
            let told = ends_of.lock().unwrap().1.take().unwrap();
            assert!(told.recv().is_err(), "nothing is sent");
        }
        conduit.block_until(|| false);
    });
    for end in ends {
        let RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        assert!(
            message.starts_with(&format!("rank 0 of 2: {said}")),
            "{message}"
        );
    }
}

/// A short Long needs no pin unless the limit says so; either way it arrives.
#[test]
fn long_requests_are_packed_up_to_the_limit() {
    let puts = |limit: &str| {
        let variables = [("GASNET_PACKEDLONG_LIMIT", limit)];
        let ends = threads::run_in(2, &variables, |conduit| {
            let seen = Rc::new(RefCell::new(Vec::new()));
            let s = seen.clone();
            let handler = HandlerEntry::new(200, move |_, payload, _| {
                let Payload::Long { len, .. } = payload else {
                    panic!("{payload:?}")
                };
                s.borrow_mut().push(len);
            });
            conduit.attach_large(vec![handler], 1 << 20).unwrap();
            let peer = 1 - conduit.mynode();
            let there = conduit.segment(peer).addr;
            for len in [100, 101] {
                conduit
                    .am_request_long(peer, 200, &pattern(len, len), there, &[])
                    .unwrap();
                conduit.block_until(|| seen.borrow().last() == Some(&len));
                let mut got = vec![0; len];
                let own = conduit.local_segment().unwrap();
                own.read(0, &mut got).unwrap();
                assert!(got == pattern(len, len));
                conduit.barrier(BarrierName::Anonymous).unwrap();
            }
            let s = stats(conduit).remote;
            s.hits + s.misses
        });
        returned(ends)
    };
    assert_eq!(puts("2K"), [0, 0]);
    assert_eq!(puts("100"), [1, 1]);
    assert_eq!(puts("0"), [2, 2]);
}

/// The target of a Long that travels with its header finds out that there is no memory; the job ends with who sent it.
#[test]
fn a_short_long_to_no_memory_ends_the_job() {
    let ends = threads::run_in(2, SMALL, |conduit| {
        let handler = HandlerEntry::new(200, |_, _, _| panic!("a handler without memory"));
        // SAFETY: nothing is put or got.
        unsafe { conduit.attach_everything(vec![handler]) }.unwrap();
        if conduit.mynode() == 0 {
            conduit.am_request_long(1, 200, &[1; 8], 8, &[]).unwrap();
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        conduit.block_until(|| false);
    });
    for end in ends {
        let RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        assert!(
            message.contains("its destination is no memory"),
            "{message}"
        );
    }
}
