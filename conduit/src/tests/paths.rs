//! The ways that data may go, and the variables that choose between them.

use super::pattern;
use super::wire::{self, Wire};
use crate::matchbits::{Kind, kind};
use crate::{AmError, BarrierName, Conduit, HandlerEntry};
use portals_shim::core::{Body, Header};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};

const TAKE: u8 = 140;
const SIZE: usize = 1 << 20;

fn attach(conduit: &Conduit) {
    let take = HandlerEntry::new(TAKE, |_, _, _| {});
    conduit.attach(vec![take], SIZE).unwrap();
    meet(conduit);
}

fn meet(conduit: &Conduit) {
    conduit.barrier(BarrierName::Anonymous).unwrap();
}

/// The payload of a Long in a message of its own.
fn is_payload(h: &Header) -> bool {
    kind(h.match_bits) == Some(Kind::AmData)
}

/// Of three Longs whose memory the fabric is not done with: calls that return, and payloads that are sent.
fn longs_in_a_row(send: impl Fn(&Conduit, u64) -> Result<(), AmError> + Sync) -> (usize, usize) {
    let returned = AtomicUsize::new(0);
    let turn = Barrier::new(2);
    let seen = wire::run(2, &[], |conduit, wire| {
        attach(conduit);
        turn.wait();
        let mut seen = (0, 0);
        if conduit.mynode() == 0 {
            wire.keep(0, true);
            for i in 0..3 {
                send(conduit, conduit.segment(1).addr + 8192 * i).unwrap();
                returned.fetch_add(1, Ordering::SeqCst);
            }
        } else {
            wire.until_waits(0);
            seen = (returned.load(Ordering::SeqCst), wire.count(0, is_payload));
            wire.keep(0, false);
        }
        meet(conduit);
        seen
    });
    seen[1]
}

/// A Long returns when its memory is free again; one that is asynchronous does not wait for that.
#[test]
fn an_asynchronous_long_returns_while_its_memory_is_in_use() {
    const LEN: usize = 4096;
    let later =
        longs_in_a_row(|c, to| c.am_request_long_async_from_segment(1, TAKE, 0, LEN, to, &[]));
    assert_eq!(later, (3, 3));
    let at_once = longs_in_a_row(|c, to| c.am_request_long_from_segment(1, TAKE, 0, LEN, to, &[]));
    assert_eq!(at_once, (0, 1));
    let data = pattern(1, LEN);
    let of_a_slice = longs_in_a_row(|c, to| c.am_request_long(1, TAKE, &data, to, &[]));
    assert_eq!(of_a_slice, (0, 1));
    // What fits the header's message is copied there.
    let packed = longs_in_a_row(|c, to| c.am_request_long(1, TAKE, &data[..100], to, &[]));
    assert_eq!(packed, (3, 0));
}

/// What rank 0 does and rank 1 answers, and what rank 0 has sent for it.
fn sent<R: Send + std::fmt::Debug>(
    variables: &[(&str, &str)],
    ask: impl Fn(&Conduit, &Wire) -> R + Sync,
) -> R {
    let seen = wire::run(2, variables, |conduit, wire| {
        attach(conduit);
        let seen = (conduit.mynode() == 0).then(|| ask(conduit, wire));
        meet(conduit);
        seen
    });
    seen.into_iter().flatten().next().unwrap()
}

#[test]
fn a_long_is_one_message_up_to_the_limit_of_packing() {
    let (on, limit) = (
        |n| ("GASNET_PORTAL_PACKED_LONG", n),
        |n| ("GASNET_PACKEDLONG_LIMIT", n),
    );
    for (variables, most) in [
        // 8 bytes of a chunk are the address.
        (&[][..], 2040),
        (&[limit("100")], 100),
        (&[limit("5000")], 2040),
        (&[on("0")], 0),
    ] {
        let payloads = sent(variables, |conduit, wire| {
            let to = conduit.segment(1).addr;
            [most, most + 1].map(|len| {
                wire.forget(0);
                let data = pattern(2, len);
                conduit.am_request_long(1, TAKE, &data, to, &[]).unwrap();
                wire.count(0, is_payload)
            })
        });
        // Off means that none is packed, one without data neither.
        let first = usize::from(most == 0);
        assert_eq!(payloads, [first, 1], "{variables:?}");
    }
}

/// Up to these lengths a put or get of a slice is copied through a chunk of the request send buffer; longer ones have a
/// descriptor of their own.
#[test]
fn puts_and_gets_go_through_chunks_up_to_their_limits() {
    let (both, put, get) = (
        |n| ("GASNET_PORTAL_PUTGET_BOUNCE_LIMIT", n),
        |n| ("GASNET_PORTAL_PUT_BOUNCE_LIMIT", n),
        |n| ("GASNET_PORTAL_GET_BOUNCE_LIMIT", n),
    );
    for (variables, puts, gets) in [
        (&[][..], 2048, 2040),
        (&[both("1000")], 1000, 1000),
        (&[both("100")], 100, 100),
        (&[put("300")], 300, 2040),
        (&[get("300")], 2048, 300),
        (&[both("100"), put("400"), get("500")], 400, 500),
        (&[both("1M")], 2048, 2040),
        (&[both("0")], 0, 0),
    ] {
        let ways = sent(variables, |conduit, wire| {
            let chunks = conduit.core.borrow().descriptors.reqsb;
            let there = conduit.segment(1).addr;
            let through = |h: &Header| match h.body {
                Body::Put { ack_md, .. } => ack_md == Some(chunks),
                Body::Get { reply_md, .. } => reply_md == chunks,
                _ => false,
            };
            let mut ways = Vec::new();
            let data = pattern(3, 4096);
            conduit.put(1, there, &data).unwrap();
            for len in [1, puts, puts + 1] {
                wire.forget(0);
                conduit.put(1, there + 8192, &data[..len]).unwrap();
                ways.push((wire.count(0, |_| true), wire.count(0, through)));
            }
            for len in [1, gets, gets + 1] {
                wire.forget(0);
                let mut back = vec![0xEE; len];
                conduit.get(&mut back, 1, there).unwrap();
                assert_eq!(back, data[..len], "{len} bytes");
                ways.push((wire.count(0, |_| true), wire.count(0, through)));
            }
            ways
        });
        let (one, none) = ((1, 1), (1, 0));
        let want = |most: usize| match most {
            0 => [none, (0, 0), none],
            _ => [one, one, none],
        };
        assert_eq!(ways, [want(puts), want(gets)].concat(), "{variables:?}");
    }
}
