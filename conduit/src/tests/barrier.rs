//! The client's barrier.

use super::returned;
use crate::BarrierName::{Anonymous, Mismatch, Named};
use crate::{BarrierError, threads};
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn nobody_passes_before_everybody_came() {
    for ranks in 1..=4 {
        let came = AtomicU32::new(0);
        let ends = threads::run(ranks, |conduit| {
            conduit.attach(vec![], 0).unwrap();
            for round in 1..=200 {
                came.fetch_add(1, Ordering::SeqCst);
                conduit.barrier_notify(Named(round)).unwrap();
                conduit.barrier_wait(Named(round)).unwrap();
                assert!(came.load(Ordering::SeqCst) >= ranks * round as u32);
                assert_eq!(conduit.barrier_result(), Some(Named(round)));
            }
        });
        returned(ends);
    }
}

#[test]
fn names_must_agree() {
    let ends = threads::run(3, |conduit| {
        conduit.attach(vec![], 0).unwrap();
        let me = conduit.mynode() as i32;
        let odd = |name, other| if me == 1 { name } else { other };
        let mut results = vec![
            conduit.barrier(odd(Anonymous, Named(3))),
            conduit.barrier(Named(me)),
            conduit.barrier(odd(Mismatch, Anonymous)),
            conduit.barrier(Anonymous),
        ];
        conduit.barrier_notify(Named(7)).unwrap();
        results.push(conduit.barrier_wait(odd(Named(8), Named(7))));
        results
    });
    for (rank, results) in returned(ends).into_iter().enumerate() {
        let mismatch = Err(BarrierError::Mismatch);
        let own = if rank == 1 { mismatch } else { Ok(()) };
        assert_eq!(
            results,
            [Ok(()), mismatch, mismatch, Ok(()), own],
            "rank {rank}"
        );
    }
}

#[test]
fn try_and_misuse() {
    let ends = threads::run(2, |conduit| {
        assert_eq!(
            conduit.barrier_notify(Anonymous),
            Err(BarrierError::NotAttached)
        );
        conduit.attach(vec![], 0).unwrap();
        assert_eq!(
            conduit.barrier_wait(Anonymous),
            Err(BarrierError::NotNotified)
        );
        assert_eq!(
            conduit.barrier_try(Anonymous),
            Err(BarrierError::NotNotified)
        );
        if conduit.mynode() == 0 {
            conduit.barrier_notify(Anonymous).unwrap();
            assert_eq!(
                conduit.barrier_notify(Anonymous),
                Err(BarrierError::Notified)
            );
            while !conduit.barrier_try(Anonymous).unwrap() {}
        } else {
            conduit.barrier(Anonymous).unwrap();
        }
    });
    returned(ends);
}

/// Every rank learns the least value, whoever has it, and the start-up exchange comes after it.
#[test]
fn all_learn_the_least_value() {
    for nodes in [1, 2, 3, 5, 8] {
        for lowest in 0..nodes {
            let ends = threads::run(nodes, |conduit| {
                let own = u64::MAX - u64::from((conduit.mynode() + nodes - lowest) % nodes);
                let value = if conduit.mynode() == lowest {
                    1 << 40
                } else {
                    own
                };
                let least = conduit.least(value);
                conduit.attach(vec![], 4096).unwrap();
                conduit.barrier(Anonymous).unwrap();
                least
            });
            assert!(returned(ends).into_iter().all(|least| least == 1 << 40));
        }
    }
}
