//! Ways to end.

use crate::threads::{self, RankEnd};
use crate::{Conduit, HandlerEntry};
use std::time::Duration;

fn codes(ends: &[RankEnd<()>]) -> Vec<i32> {
    ends.iter()
        .map(|e| match e {
            RankEnd::Exited(code) => *code,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn one_ranks_exit_ends_all_with_its_code() {
    for ranks in 1..=4 {
        for who in 0..ranks {
            let ends = threads::run(ranks, |conduit| {
                conduit.attach(vec![], 0).unwrap();
                if conduit.mynode() == who {
                    conduit.exit(42);
                }
                conduit.block_until(|| false);
            });
            assert_eq!(codes(&ends), vec![42; ranks as usize]);
        }
    }
}

#[test]
fn the_largest_code_counts() {
    // Nobody hears of another's exit before its own.
    let all_here = std::sync::Barrier::new(4);
    let ends = threads::run(4, |conduit| {
        conduit.attach(vec![], 0).unwrap();
        all_here.wait();
        conduit.exit(10 + conduit.mynode() as i32);
    });
    assert_eq!(codes(&ends), [13; 4]);
}

#[test]
fn before_attach_and_in_a_handler() {
    let ends = threads::run(3, |conduit| {
        if conduit.mynode() == 1 {
            conduit.exit(5);
        }
        // The others are stuck in here without rank 1.
        conduit.attach(vec![], 0).unwrap();
    });
    assert_eq!(codes(&ends), [5; 3]);

    let ends = threads::run(3, |conduit| {
        let leave = HandlerEntry::new(200, |token, _, args| token.conduit().exit(args[0]));
        conduit.attach(vec![leave], 0).unwrap();
        if conduit.mynode() == 0 {
            conduit.am_request_short(2, 200, &[9]).unwrap();
        }
        conduit.block_until(|| false);
    });
    assert_eq!(codes(&ends), [9; 3]);
}

#[test]
fn a_rank_that_never_polls_is_not_waited_for() {
    let variables = [("GASNET_EXITTIMEOUT", "0.05")];
    let (tell, told) = std::sync::mpsc::channel();
    let told = std::sync::Mutex::new(told);
    let ends = threads::run_in(2, &variables, |conduit| {
        conduit.attach(vec![], 0).unwrap();
        if conduit.mynode() == 0 {
            let _on_drop = Tell(tell.clone());
            conduit.exit(0);
        }
        // Deaf until the other rank has given up.
        let _ = told.lock().unwrap().recv();
        conduit.block_until(|| false);
    });
    for end in ends {
        let RankEnd::Aborted(message) = end else {
            panic!("{end:?}")
        };
        assert_eq!(
            message,
            "rank 0 of 2: failed to coordinate shutdown after 50 milliseconds"
        );
    }
}

struct Tell(std::sync::mpsc::Sender<()>);

impl Drop for Tell {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

/// Ranks that finish at one time hear of the others' leaving at any point of their own meeting.
#[test]
fn finish_returns_on_every_rank() {
    for round in 0..400 {
        let ranks = 3 + round % 6;
        let ends = threads::run(ranks, |conduit| conduit.mynode());
        let all: Vec<_> = (0..ranks).map(RankEnd::Returned).collect();
        assert_eq!(ends, all, "round {round}");
    }
}

/// `finish` returns on all ranks or on none: an exit ends those that wait in it, also one with 0.
#[test]
fn an_exit_ends_ranks_that_wait_in_finish() {
    for code in [0, 7] {
        for round in 0..50 {
            let ranks = 2 + round % 4;
            let ends = threads::run(ranks, |conduit| {
                if conduit.mynode() == round % ranks {
                    conduit.exit(code);
                }
            });
            assert_eq!(codes(&ends), vec![code; ranks as usize], "round {round}");
        }
    }
}

/// Panics of rank 0, or of both, wherever they are: `run` panics with the words of one, and nothing else ends.
#[test]
fn a_panic_of_a_rank_is_a_panic_of_its_test() {
    const REPLY: u8 = 130;
    const PANIC: u8 = 131;
    let ways = [
        "plain",
        "both",
        "put",
        "own handler",
        "handler",
        "reply",
        "late",
    ];
    for fabric in [vec![], vec![("PORTOLAN_FABRIC", "shm")]] {
        for way in ways {
            let run = || {
                threads::run_in(2, &fabric, |conduit| {
                    let table = vec![
                        HandlerEntry::new(REPLY, |token, _, _| {
                            token.reply_short(PANIC, &[]).unwrap();
                        }),
                        HandlerEntry::new(PANIC, |_, _, _| panic!("on purpose")),
                    ];
                    conduit.attach(table, 1 << 20).unwrap();
                    let to = conduit.segment(1).addr;
                    if way == "both" {
                        panic!("on purpose");
                    }
                    if conduit.mynode() == 1 {
                        if way == "late" {
                            return;
                        }
                        conduit.block_until(|| false);
                    }
                    match way {
                        "put" => {
                            let _ = conduit.put_nb(1, to, &[1; 1 << 19]).unwrap();
                        }
                        "own handler" => conduit.am_request_short(0, PANIC, &[]).unwrap(),
                        "handler" => conduit.am_request_short(1, PANIC, &[]).unwrap(),
                        "reply" => conduit.am_request_short(1, REPLY, &[]).unwrap(),
                        _ => {}
                    }
                    if ["handler", "reply"].contains(&way) {
                        conduit.block_until(|| false);
                    }
                    panic!("on purpose");
                })
            };
            let end = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            let words = end.unwrap_err();
            let words = words.downcast_ref::<&str>();
            assert_eq!(words, Some(&"on purpose"), "{way}, {fabric:?}");
        }
    }
}

/// A rank that does not hear of an exit is given up after the time that the variables say, and two seconds more.
#[test]
fn how_long_an_exit_may_take_follows_the_variables() {
    for (variables, ms) in [
        // 5 s, and a quarter of one for each rank.
        (&[][..], 7500),
        (&[("GASNET_EXITTIMEOUT", "3")][..], 5000),
        (
            &[
                ("GASNET_EXITTIMEOUT_FACTOR", "10"),
                ("GASNET_EXITTIMEOUT_MAX", "9"),
            ][..],
            11_000,
        ),
    ] {
        for end in threads::run_in(2, variables, Conduit::longest_exit) {
            let RankEnd::Returned(longest) = end else {
                panic!("{end:?}");
            };
            assert_eq!(longest, Duration::from_millis(ms), "{variables:?}");
        }
    }
}
