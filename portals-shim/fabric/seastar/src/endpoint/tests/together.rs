//! Endpoints of the ranks of a launcher's job.

use super::*;
use crate::owner::JobRank;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::scope;

fn of_job(rank: u32, size: u32) -> Owner {
    Owner {
        process: 100 + u64::from(rank),
        job_rank: JobRank::new(rank, size),
    }
}

/// Two ranks that have joined in this order, the second after the first was busy for a while.
fn joined(served: &Served, order: [u32; 2]) -> [Endpoint; 2] {
    let mut joined: Vec<(u32, Endpoint)> = Vec::new();
    for rank in order {
        if let Some((_, first)) = joined.first() {
            first.hears_nothing();
        }
        joined.push((rank, served.join_as(of_job(rank, 2))));
    }
    joined.sort_by_key(|(rank, _)| *rank);
    let [one, other] = <[_; 2]>::try_from(joined).ok().unwrap();
    [one.1, other.1]
}

/// The times that two ranks see of messages from rank 0 to rank 1.
fn times(order: [u32; 2]) -> Vec<[u64; 2]> {
    let served = Served::with(2, Placement::ONE, None);
    let [one, other] = joined(&served, order);
    one.meets(&other);
    other.meets(&one);
    let times = scope(|s| {
        let second = s.spawn(|| {
            let _end = EndOnPanic::guard();
            let take = |_| {
                assert_eq!(other.next(EventKind::PutEnd), NiFail::OK);
                other.ni.now()
            };
            let times: Vec<u64> = (0..4).map(take).collect();
            // A rank that makes no call more holds the time of the other.
            other.ni.close().unwrap();
            times
        });
        let _end = EndOnPanic::guard();
        let send = |round| {
            one.put(other.id(), &[round; 40]);
            assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
            assert_eq!(one.next(EventKind::Ack), NiFail::OK);
            one.ni.now()
        };
        let first: Vec<u64> = (0..4).map(send).collect();
        one.ni.close().unwrap();
        let second = second.join().unwrap();
        first.into_iter().zip(second).map(|(a, b)| [a, b]).collect()
    });
    served.end().unwrap();
    times
}

/// A program of several processes sees the same times however they came.
#[test]
fn ranks_see_the_same_times_in_whatever_order_they_join() {
    let first = times([0, 1]);
    assert_eq!(times([0, 1]), first);
    assert_eq!(times([1, 0]), first);
}

/// Further endpoints of a rank have places behind the first ones; a process without a rank takes what is free.
#[test]
fn an_endpoint_has_the_place_of_its_rank() {
    let served = Served::new(5);
    let join = |owner| served.join_as(owner);
    let (two, one) = (join(of_job(1, 2)), join(of_job(0, 2)));
    let (four, three) = (join(of_job(1, 2)), join(of_job(0, 2)));
    let last = join(Owner::alone(1));
    let nids = [one, two, three, four, last].map(|e| e.id().nid);
    assert!(nids.is_sorted_by(|a, b| a < b), "{nids:?}");
    served.end().unwrap();
}

/// A rank that another process has, or one beyond the places, costs nobody a place.
#[test]
fn a_wrong_rank_gets_the_next_place() {
    let served = Served::new(3);
    let impostor = Owner {
        process: 7,
        ..of_job(1, 2)
    };
    let join = |owner| served.join_as(owner);
    let first = join(of_job(1, 2));
    let second = join(impostor);
    let third = join(of_job(900, 1000));
    let nids = [&second, &first, &third].map(|e| e.id().nid);
    assert!(nids.is_sorted_by(|a, b| a < b), "{nids:?}");
    assert!(served.refusal().contains("is taken"));
    served.end().unwrap();
}

/// A rank that never comes is waited for no longer than a rank may be silent, also while another endpoint goes on making calls.
#[test]
fn who_does_not_come_is_not_waited_for() {
    let served = Served::with(4, Placement::ONE, Some(Duration::from_millis(100)));
    let [one, other] = joined(&served, [0, 1]);
    let (here, busy) = (served.join(7), served.join(8));
    one.meets(&here);
    let done = &AtomicBool::new(false);
    scope(|s| {
        s.spawn(|| {
            let _end = EndOnPanic::guard();
            while !done.load(Ordering::SeqCst) {
                busy.hears_nothing();
            }
        });
        let _end = EndOnPanic::guard();
        one.hears_nothing();
        // Nor is one that comes later waiting for anybody.
        other.meets(&here);
        other.hears_nothing();
        done.store(true, Ordering::SeqCst);
    });
    served.end().unwrap();
}
