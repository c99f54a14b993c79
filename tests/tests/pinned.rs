//! Memory that stays pinned on a machine whose kernel pins the pages of each message: the conduit's segment and its buffers.

use conduit::threads::{RankEnd, run_over};
use conduit::{BarrierName, Conduit, HandlerEntry, MAX_MEDIUM};
use portals_shim::fabric::FabricConfig;
use portals_shim::nal::seastar;
use std::cell::Cell;
use std::rc::Rc;

const COUNT: u8 = 200;
const LEN: usize = 1 << 20;

/// Nanoseconds of virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    get: u64,
    put: u64,
    medium: u64,
    long: u64,
}

/// What rank 0 of two takes for each, all of it between the segments.
fn times(set: &[&str]) -> Times {
    let config = FabricConfig {
        machine: "xt4-linux".to_owned(),
        set: set.iter().map(|s| (*s).to_owned()).collect(),
        ..FabricConfig::default()
    };
    let ranks = seastar::in_threads_of(2, &config).unwrap();
    let opened = std::thread::scope(|s| {
        let joined: Vec<_> = ranks.into_iter().map(|r| s.spawn(|| r.join())).collect();
        let opened = joined.into_iter();
        opened.map(|j| j.join().unwrap().unwrap().into()).collect()
    });
    let ends = run_over(opened, &[], |conduit| {
        let times = measured(&conduit);
        conduit.finish();
        times
    });
    match ends.into_iter().next() {
        Some(RankEnd::Returned(times)) => times,
        other => panic!("{other:?}"),
    }
}

fn measured(c: &Conduit) -> Times {
    let seen = Rc::new(Cell::new(0));
    let counter = seen.clone();
    let count = HandlerEntry::new(COUNT, move |_, _, _| counter.set(counter.get() + 1));
    let answer = HandlerEntry::new(COUNT + 1, |token, _, _| {
        token.reply_short(COUNT, &[]).unwrap();
    });
    c.attach(vec![count, answer], 2 * LEN).unwrap();
    let meet = || c.barrier(BarrierName::Anonymous).unwrap();
    let took = |call: &dyn Fn()| {
        meet();
        let start = c.now();
        if c.mynode() == 0 {
            call();
        }
        let took = c.now() - start;
        meet();
        took
    };
    let there = c.segment(1).addr + LEN as u64;
    let answered = |send: &dyn Fn()| {
        let before = seen.get();
        send();
        c.block_until(|| seen.get() > before);
    };
    Times {
        get: took(&|| c.get_to_segment(0, 1, there, LEN).unwrap()),
        put: took(&|| c.put_from_segment(1, there, 0, LEN).unwrap()),
        medium: took(&|| {
            answered(&|| {
                c.am_request_medium(1, COUNT + 1, &[7; MAX_MEDIUM], &[])
                    .unwrap();
            });
        }),
        long: took(&|| {
            answered(&|| {
                c.am_request_long_from_segment(1, COUNT + 1, 0, LEN, there, &[])
                    .unwrap();
            });
        }),
    }
}

/// Each takes as long as where pinning costs nothing.
#[test]
fn memory_that_stays_pinned_is_not_pinned_for_a_message() {
    assert_eq!(times(&[]), times(&["host.pin_page=0"]));
}
