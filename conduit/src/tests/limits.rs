//! Variables that limit what a rank has under way or does in one poll: what a program sees of each.

use super::wire::{self, Wire};
use super::{pattern, returned};
use crate::matchbits::{AmBits, Kind, SysMsg, kind};
use crate::{BarrierName, Conduit, HandlerEntry, MAX_MEDIUM, threads};
use portals_shim::core::{Body, Header};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Barrier;

const TAKE: u8 = 140;
const BACK: u8 = 141;
const OTHER: u8 = 142;
const SIZE: usize = 1 << 20;

type Variables<'a> = &'a [(&'a str, &'a str)];

fn meet(conduit: &Conduit) {
    conduit.barrier(BarrierName::Anonymous).unwrap();
}

/// A handler that counts, and the count.
fn counting(index: u8) -> (HandlerEntry, Rc<Cell<usize>>) {
    let count = Rc::new(Cell::new(0));
    let c = count.clone();
    let entry = HandlerEntry::new(index, move |_, _, _| c.set(c.get() + 1));
    (entry, count)
}

fn is(wanted: Kind) -> impl Fn(&Header) -> bool {
    move |h| kind(h.match_bits) == Some(wanted) && matches!(h.body, Body::Put { .. })
}

/// A request's header, or a reply's.
fn is_header(request: bool) -> impl Fn(&Header) -> bool {
    move |h| {
        let bits = AmBits::decode(h.match_bits).filter(|_| is(Kind::AmHeader)(h));
        bits.is_some_and(|bits| bits.request == request)
    }
}

/// How many messages of a kind rank 0 sends before it waits for rank 1, which looks for none until then.
pub(super) fn sent_to_the_deaf(
    variables: Variables<'_>,
    such: impl Fn(&Header) -> bool + Sync,
    send: impl Fn(&Conduit, &Wire) + Sync,
) -> usize {
    let turn = Barrier::new(2);
    let sent = wire::run(2, variables, |conduit, wire| {
        conduit.attach(vec![counting(TAKE).0], SIZE).unwrap();
        meet(conduit);
        // From here on rank 1 has no more looks to do for the meeting.
        turn.wait();
        let mut sent = 0;
        if conduit.mynode() == 0 {
            send(conduit, wire);
        } else {
            wire.until_waits(0);
            sent = wire.count(0, &such);
            wire.keep(0, false);
        }
        meet(conduit);
        sent
    });
    sent[1]
}

/// Of the tickets two are kept for a reply.
#[test]
fn puts_under_way_are_as_many_as_the_message_limit_says() {
    let limit = |n| ("GASNET_PORTAL_MSG_LIMIT", n);
    for (variables, puts) in [
        (&[limit("12")][..], 10),
        (&[limit("40")], 38),
        (&[limit("1")], 10),
        (&[], 248),
    ] {
        let sent = sent_to_the_deaf(variables, is(Kind::Put), |conduit, _| {
            let there = conduit.segment(1).addr;
            for i in 0..400 {
                conduit
                    .put_from_segment_nbi(1, there + 8 * i, 0, 8)
                    .unwrap();
            }
            conduit.wait_nbi_all();
        });
        assert_eq!(sent, puts, "{variables:?}");
    }
}

/// A long put from a slice has a descriptor of its own until it is acknowledged; one is kept for a reply.
#[test]
fn long_puts_under_way_are_as_many_as_there_are_temporary_descriptors() {
    let messages = ("GASNET_PORTAL_MSG_LIMIT", "3000");
    let descriptors = |n| ("GASNET_PORTAL_NUM_TMPMD", n);
    for (variables, puts) in [
        (&[messages, descriptors("5")][..], 4),
        (&[messages, descriptors("100")], 99),
        (&[messages, descriptors("0")], 1),
        (&[messages], 1023),
    ] {
        let sent = sent_to_the_deaf(variables, is(Kind::Put), |conduit, _| {
            let there = conduit.segment(1).addr;
            let data = pattern(1, 4096);
            for _ in 0..1100 {
                conduit.put_nbi(1, there, &data).unwrap();
            }
            conduit.wait_nbi_all();
        });
        assert_eq!(sent, puts, "{variables:?}");
    }
}

/// A request has its chunk until it is answered.
#[test]
fn requests_under_way_are_as_many_as_there_are_chunks() {
    let chunks = |n| ("GASNET_PORTAL_SB_CHUNKS", n);
    let credits = ("GASNET_PORTAL_CRED_PER_NODE", "5000");
    for (variables, requests) in [
        (&[credits, chunks("3")][..], 3),
        (&[credits, chunks("40")], 40),
        (&[credits], 2048),
        (&[credits, chunks("100000")], 4096),
    ] {
        let sent = sent_to_the_deaf(variables, is_header(true), |conduit, _| {
            for _ in 0..4500 {
                conduit.am_request_short(1, TAKE, &[]).unwrap();
            }
        });
        assert_eq!(sent, requests, "{variables:?}");
    }
}

/// A reply has its chunk until the fabric is done with it; without one no request is taken.
#[test]
fn replies_under_way_are_as_many_as_there_are_chunks() {
    for (variables, replies) in [
        (&[("GASNET_PORTAL_RPL_CHUNKS", "3")][..], 3),
        (&[("GASNET_PORTAL_RPL_CHUNKS", "0")], 1),
        (&[("GASNET_PORTAL_MSG_LIMIT", "1000")], 256),
    ] {
        const REQUESTS: usize = 300;
        let credits = [("GASNET_PORTAL_CRED_PER_NODE", "400")];
        let variables = [&credits, variables].concat();
        let turn = Barrier::new(2);
        let sent = wire::run(2, &variables, |conduit, wire| {
            let (take, taken) = counting(TAKE);
            conduit.attach(vec![take], 0).unwrap();
            meet(conduit);
            let mut sent = 0;
            if conduit.mynode() == 1 {
                wire.keep(1, true);
                turn.wait();
                conduit.block_until(|| taken.get() == REQUESTS);
            } else {
                turn.wait();
                for _ in 0..REQUESTS {
                    conduit.am_request_short(1, TAKE, &[]).unwrap();
                }
                wire.until_waits(1);
                sent = wire.count(1, is_header(false));
                wire.keep(1, false);
            }
            meet(conduit);
            sent
        });
        assert_eq!(sent[0], replies, "{variables:?}");
    }
}

/// What of each queue's events a rank has handled: system messages, ends of own puts, requests.
type Handled = (usize, usize, usize);

/// What rank 0 has handled after each of some `steps`, of `puts` that were acknowledged, then `requests`, then system
/// messages, which have all come before the first step.
fn handled<const N: usize>(
    variables: Variables<'_>,
    (system, puts, requests): Handled,
    step: impl Fn(&Conduit) + Sync,
) -> [Handled; N] {
    /// No job is so large that it has rounds from here on.
    const ROUND: u8 = 20;
    let turn = Barrier::new(2);
    let done = wire::run(2, variables, |conduit, _| {
        let (take, taken) = counting(TAKE);
        conduit.attach(vec![take], SIZE).unwrap();
        meet(conduit);
        turn.wait();
        let mut done = [(0, 0, 0); N];
        if conduit.mynode() == 0 {
            let there = conduit.segment(1).addr;
            let mut handles: Vec<_> = (0..puts)
                .map(|_| conduit.put_nb(1, there, &[7; 8]).unwrap())
                .collect();
            turn.wait();
            turn.wait();
            for done in &mut done {
                step(conduit);
                handles = handles
                    .into_iter()
                    .filter_map(|h| conduit.check_sync(h).err())
                    .collect();
                let heard = |round| conduit.core.borrow().start_up.least_after(round);
                let system = (ROUND..32).filter(|round| heard(*round).is_some()).count();
                *done = (system, puts - handles.len(), taken.get());
            }
        } else {
            let (interface, queue) = (conduit.interface(), conduit.safe_queue());
            let received = || interface.status().unwrap().recv_count;
            let all = received() + puts as u64;
            turn.wait();
            while received() < all {
                interface.eq_peek(queue).unwrap();
            }
            for _ in 0..requests {
                conduit.am_request_short(0, TAKE, &[]).unwrap();
            }
            for round in (ROUND..).take(system) {
                let message = SysMsg::Least {
                    round,
                    value: u64::MAX,
                    sender: 1,
                };
                conduit.core.borrow().send_sys(0, message).unwrap();
            }
            turn.wait();
        }
        // What rank 1 sends to finish is no part of it.
        turn.wait();
        done
    });
    done[0]
}

#[test]
fn a_poll_handles_of_each_queue_what_its_limit_says() {
    let (sys, safe, am) = (
        |n| ("GASNET_PORTAL_SYS_LIMIT", n),
        |n| ("GASNET_PORTAL_SAFE_LIMIT", n),
        |n| ("GASNET_PORTAL_AM_LIMIT", n),
    );
    for (variables, polls) in [
        (&[][..], [(6, 12, 8), (6, 24, 16)]),
        (&[sys("2")], [(2, 12, 8), (4, 24, 16)]),
        (&[safe("3")], [(6, 3, 8), (6, 6, 16)]),
        (&[am("5")], [(6, 12, 5), (6, 24, 10)]),
        (&[sys("1"), safe("20"), am("1")], [(1, 20, 1), (2, 30, 2)]),
        (&[safe("0"), am("0")], [(6, 30, 30), (6, 30, 30)]),
    ] {
        let all = (6, 30, 30);
        assert_eq!(
            handled(variables, all, Conduit::poll),
            polls,
            "{variables:?}"
        );
    }
}

/// Whatever came first: a system message goes before the end of a put, and that before a request.
#[test]
fn system_messages_go_before_completions_and_these_before_requests() {
    let order = handled(&[], (2, 2, 2), Conduit::service);
    // The ends of own messages that lie behind the first are handled with it.
    assert_eq!(
        order,
        [(1, 0, 0), (2, 0, 0), (2, 2, 0), (2, 2, 1), (2, 2, 2)]
    );
}

/// Frames of a neighbour that one poll takes: replies, and requests.
#[test]
fn a_poll_takes_of_a_neighbour_what_its_limits_say() {
    const EACH: usize = 30;
    let (safe, am) = (
        |n| ("GASNET_PORTAL_SAFE_LIMIT", n),
        |n| ("GASNET_PORTAL_AM_LIMIT", n),
    );
    for (variables, polls) in [
        (&[][..], [(12, 8), (24, 16)]),
        (&[safe("3")], [(3, 8), (6, 16)]),
        (&[am("5")], [(12, 5), (24, 10)]),
    ] {
        let variables = [&[("PORTOLAN_FABRIC", "shm")], variables].concat();
        let turn = Barrier::new(2);
        let ends = threads::run_in(2, &variables, |conduit| {
            let served = Rc::new(Cell::new(0));
            let s = served.clone();
            let answer = HandlerEntry::new(TAKE, move |token, _, _| {
                token.reply_short(BACK, &[]).unwrap();
                s.set(s.get() + 1);
            });
            let (back, answered) = counting(BACK);
            let (other, taken) = counting(OTHER);
            conduit.attach(vec![answer, back, other], 0).unwrap();
            meet(conduit);
            turn.wait();
            let mut done = [(0, 0); 2];
            if conduit.mynode() == 0 {
                for _ in 0..EACH {
                    conduit.am_request_short(1, TAKE, &[]).unwrap();
                }
                turn.wait();
                turn.wait();
                for done in &mut done {
                    conduit.poll();
                    *done = (answered.get(), taken.get());
                }
            } else {
                turn.wait();
                while served.get() < EACH {
                    conduit.poll();
                }
                for _ in 0..EACH {
                    conduit.am_request_short(0, OTHER, &[]).unwrap();
                }
                turn.wait();
            }
            meet(conduit);
            done
        });
        assert_eq!(returned(ends)[0], polls, "{variables:?}");
    }
}

/// Rank 0 is lent no more than this by rank 1, whose bank is large, however often it has to wait for credits. Shorts that
/// it can send without an answer are counted.
fn lent_in_the_end(variables: Variables<'_>, times: usize) -> usize {
    let turn = Barrier::new(2);
    let few = [("GASNET_PORTAL_CRED_PER_NODE", "8")];
    let variables = [&few, variables].concat();
    let lent = wire::run(2, &variables, |conduit, wire| {
        let (take, taken) = counting(TAKE);
        let (other, _) = counting(OTHER);
        conduit.attach(vec![take, other], 0).unwrap();
        meet(conduit);
        let mut lent = 0;
        if conduit.mynode() == 0 {
            for _ in 0..times {
                conduit
                    .am_request_medium(1, TAKE, &[0; MAX_MEDIUM], &[0; 16])
                    .unwrap();
            }
            // The answers of all have come by then.
            meet(conduit);
            turn.wait();
            for _ in 0..2000 {
                conduit.am_request_short(1, OTHER, &[]).unwrap();
            }
        } else {
            // Deaf until the other rank has run out of credits, again and again.
            while taken.get() < times {
                wire.until_waits(0);
                while taken.get() < wire.count(0, is_header(true)) {
                    conduit.poll();
                }
            }
            meet(conduit);
            wire.forget(0);
            turn.wait();
            wire.until_waits(0);
            lent = wire.count(0, is_header(true));
        }
        meet(conduit);
        lent
    });
    lent[1]
}

#[test]
fn no_rank_is_lent_more_credits_than_may_be() {
    let most = |n| ("GASNET_PORTAL_MAX_CRED_PER_NODE", n);
    let epoch = ("GASNET_PORTAL_EPOCH_DURATION", "8");
    for (variables, lent) in [
        (&[most("20")][..], 20),
        (&[most("0")], 8),
        (&[epoch, most("100")], 100),
        (&[epoch], 400),
    ] {
        assert_eq!(lent_in_the_end(variables, 1500), lent, "{variables:?}");
    }
}

/// At most 32 are lent on top in one epoch.
#[test]
fn epochs_are_as_long_as_they_are_said_to_be() {
    let epoch = |n| ("GASNET_PORTAL_EPOCH_DURATION", n);
    assert_eq!(lent_in_the_end(&[], 500), 40);
    assert_eq!(lent_in_the_end(&[epoch("100000")], 1500), 40);
    assert!(lent_in_the_end(&[epoch("8")], 500) > 100);
}
