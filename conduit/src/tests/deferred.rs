//! Puts and gets that miss, and whose calls return before the peer answers.

use super::everything::{attach, stats};
use super::notices::in_time;
use super::{pattern, returned};
use crate::threads::RankEnd;
use crate::{BarrierName, Conduit, Counted, FirehoseStats, Handle, threads};
use std::sync::Mutex;
use std::sync::mpsc::channel;

const LEN: usize = 8 << 20;
/// Units of 64 KiB, of which a rank may hold 8 at each of two peers.
const SMALL: [(&str, &str); 3] = [
    ("GASNET_FIREHOSE_M", "1M"),
    ("GASNET_FIREHOSE_MAXVICTIM_M", "1M"),
    ("GASNET_FIREHOSE_MAXREGION_SIZE", "64K"),
];

/// Rank 0 does `calls` while rank 1 makes none, and then `wait`.
fn past_a_deaf_peer<T>(
    variables: &[(&str, &str)],
    calls: impl Fn(&Conduit) -> T + Sync,
    wait: impl Fn(&Conduit, T) + Sync,
    look: impl Fn(&Conduit) + Sync,
) -> FirehoseStats {
    let (tell, told) = channel::<()>();
    let ends_of = Mutex::new((Some(tell), Some(told)));
    let ends = threads::run_in(2, variables, |conduit| {
        conduit.attach_large(vec![], LEN).unwrap();
        let own = conduit.local_segment().unwrap();
        own.write(0, &pattern(conduit.mynode() as usize, LEN))
            .unwrap();
        conduit.barrier(BarrierName::Anonymous).unwrap();
        if conduit.mynode() == 0 {
            let tell = ends_of.lock().unwrap().0.take();
            let begun = calls(conduit);
            drop(tell);
            wait(conduit, begun);
        } else {
            let told = ends_of.lock().unwrap().1.take().unwrap();
            assert!(told.recv().is_err(), "nothing is sent");
        }
        conduit.barrier(BarrierName::Anonymous).unwrap();
        look(conduit);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        stats(conduit)
    });
    returned(ends)[0]
}

fn own(conduit: &Conduit, at: usize, len: usize) -> Vec<u8> {
    let mut got = vec![0; len];
    conduit.local_segment().unwrap().read(at, &mut got).unwrap();
    got
}

/// Of each kind one that begins in cold memory: what is copied on the call, what leaves from the own segment, and what lands there.
fn kinds(variables: &'static [(&str, &str)]) -> FirehoseStats {
    const FAR: usize = 300_000;
    in_time(move || {
        past_a_deaf_peer(
            variables,
            |conduit| {
                let there = |at: usize| conduit.segment(1).addr + at as u64;
                let mut data = *b"lent";
                let put = conduit.put_nb(1, there(1 << 20), &data).unwrap();
                conduit.put_nbi(1, there(2 << 20), &data).unwrap();
                data.fill(0);
                let far = conduit.put_from_segment_nb(1, there(3 << 20), 100, FAR);
                let set = conduit.memset(1, there(4 << 20), 7, 3000, Counted::Explicit);
                let got = conduit.get_to_segment_nb(5 << 20, 1, there(6 << 20), FAR);
                [put, far.unwrap(), set.unwrap(), got.unwrap()]
            },
            |conduit, handles| {
                assert!(!conduit.check_nbi(true, false), "it has not begun");
                for handle in handles {
                    conduit.wait(handle);
                }
                conduit.wait_nbi_all();
            },
            |conduit| {
                if conduit.mynode() == 0 {
                    let theirs = pattern(1, LEN);
                    assert!(own(conduit, 5 << 20, FAR) == theirs[6 << 20..][..FAR]);
                } else {
                    assert_eq!(own(conduit, 1 << 20, 4), b"lent");
                    assert_eq!(own(conduit, 2 << 20, 4), b"lent");
                    assert!(own(conduit, 3 << 20, FAR) == pattern(0, LEN)[100..][..FAR]);
                    assert_eq!(own(conduit, 4 << 20, 3000), [7; 3000]);
                }
            },
        )
    })
}

#[test]
fn a_miss_waits_for_nobody_in_a_call_that_need_not_wait() {
    let s = kinds(&[]);
    assert!(s.copies == 0 && s.remote.misses > 0, "{s:?}");
    // Room for four units: most parts wait for it.
    let s = kinds(&[
        ("GASNET_FIREHOSE_M", "256K"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "1M"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "64K"),
    ]);
    assert!(s.copies == 0 && s.remote.evictions > 0, "{s:?}");
}

/// The owner sends what is asked for, and nobody waits for that either.
#[test]
fn a_copy_waits_for_nobody_in_a_call_that_need_not_wait() {
    let s = kinds(&[("GASNET_RDMA_GETS", "0"), ("GASNET_USE_FIREHOSE", "0")]);
    assert!(s.copies > 0, "{s:?}");
}

/// More than are kept for later, to more units than may be held.
#[test]
fn many_misses_all_end() {
    const MANY: usize = 3000;
    in_time(|| {
        let ends = threads::run_in(3, &SMALL, |conduit| {
            conduit.attach_large(vec![], LEN).unwrap();
            conduit.barrier(BarrierName::Anonymous).unwrap();
            let me = conduit.mynode() as usize;
            let place = |from: usize, i: usize| (i * 2560) % (LEN - 4096) + 16 * from;
            for i in 0..MANY {
                let to = (conduit.mynode() + 1 + i as u32 % 2) % 3;
                let dest = conduit.segment(to).addr + place(me, i) as u64;
                conduit.put_nbi(to, dest, &pattern(i + me, 16)).unwrap();
            }
            conduit.wait_nbi_all();
            conduit.barrier(BarrierName::Anonymous).unwrap();
            for from in (0..3).filter(|from| *from != me) {
                for i in (0..MANY).filter(|i| (from + 1 + i % 2) % 3 == me) {
                    assert_eq!(own(conduit, place(from, i), 16), pattern(i + from, 16));
                }
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
            stats(conduit)
        });
        for s in returned(ends) {
            assert!(s.remote.evictions > 0 && s.copies == 0, "{s:?}");
        }
    });
}

/// Random operations of three ranks, each in its own part of the others' segments, against a copy of what they did.
fn against_an_oracle(variables: &'static [(&str, &str)]) {
    const PART: usize = LEN / 4;
    in_time(move || {
        let ends = threads::run_in(3, variables, |conduit| {
            conduit.attach_large(vec![], LEN).unwrap();
            conduit.barrier(BarrierName::Anonymous).unwrap();
            let me = conduit.mynode() as usize;
            let mut rng = fastrand::Rng::with_seed(me as u64 + 7);
            let segment = conduit.local_segment().unwrap();
            // Puts leave from the last part of the own segment, where nobody writes.
            let source = pattern(me + 50, PART / 2);
            segment.write(3 * PART, &source).unwrap();
            let mut shadow = vec![vec![0u8; PART]; 3];
            for _ in 0..60 {
                let mut handles: Vec<Handle> = Vec::new();
                // Disjoint within a round, since puts have no order.
                let mut at = 0;
                while at < PART - 70_000 {
                    let to = (me + rng.usize(1..3)) % 3;
                    let most = [64, 5000, 70_000][rng.usize(0..3)];
                    let len = rng.usize(1..most);
                    let dest = conduit.segment(to as u32).addr + (me * PART + at) as u64;
                    let there = &mut shadow[to][at..at + len];
                    let from = rng.usize(0..source.len() - len);
                    match rng.u8(0..4) {
                        0 => {
                            let value = rng.u8(..);
                            there.fill(value);
                            let how = Counted::Implicit;
                            let set = conduit.memset(to as u32, dest, value, len, how);
                            handles.push(set.unwrap());
                        }
                        1 => {
                            there.copy_from_slice(&source[from..][..len]);
                            let data = there.to_vec();
                            handles.push(conduit.put_nb(to as u32, dest, &data).unwrap());
                        }
                        _ => {
                            there.copy_from_slice(&source[from..][..len]);
                            let from = 3 * PART + from;
                            let put = conduit.put_from_segment_nb(to as u32, dest, from, len);
                            handles.push(put.unwrap());
                        }
                    }
                    at += len + rng.usize(0..60_000);
                }
                for handle in handles {
                    conduit.wait(handle);
                }
                conduit.wait_nbi_all();
                let to = (me + rng.usize(1..3)) % 3;
                let (at, len) = (rng.usize(0..PART - 100_000), rng.usize(1..100_000));
                let src = conduit.segment(to as u32).addr + (me * PART + at) as u64;
                let landing = 3 * PART + PART / 2;
                let got = conduit.get_to_segment_nb(landing, to as u32, src, len);
                conduit.wait(got.unwrap());
                assert!(own(conduit, landing, len) == shadow[to][at..at + len]);
            }
            conduit.barrier(BarrierName::Anonymous).unwrap();
        });
        returned(ends);
    });
}

#[test]
fn random_operations_that_miss_do_what_they_say() {
    against_an_oracle(&SMALL);
}

#[test]
fn random_operations_without_the_adapter_do_what_they_say() {
    against_an_oracle(&[("GASNET_RDMA_GETS", "0"), ("GASNET_USE_FIREHOSE", "0")]);
}

/// Nobody is left to return an error to.
#[test]
fn memory_that_is_not_there_ends_the_job_if_the_call_has_returned() {
    let ends = threads::run(2, |conduit| {
        let memory = vec![0u8; 4096];
        attach(conduit, memory.as_ptr().expose_provenance() as u64);
        conduit.barrier(BarrierName::Anonymous).unwrap();
        if conduit.mynode() == 0 {
            let put = conduit.put_nb(1, 0x10_0000, &[1; 8]).unwrap();
            conduit.wait(put);
        }
        conduit.block_until(|| false);
    });
    for end in ends {
        let RankEnd::<()>::Aborted(message) = end else {
            panic!("{end:?}")
        };
        let said = "rank 0 of 2: a put or get: node 1 has no memory of 8 bytes at 0x100000";
        assert!(message.starts_with(said), "{message}");
    }
}
