//! How known clients use the interface (scenarios 108-110).

use super::world::*;
use crate::{MdDesc, MdOptions, MeSpec, Unlink};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Scenario 108: buffers retired by max_size before a catch-all that takes no bytes.
#[test]
fn request_buffers_fill_in_order_and_the_catch_all_sees_the_rest() {
    let mut w = World::new();
    let eq = w[1].eq(64);
    let nothing = w[1].memory(0);
    let last = w[1].me(4, 0);
    let catch_all = MdDesc {
        eq: Some(eq),
        user_ptr: 9,
        ..desc(nothing, PUT | TRUNCATE | MdOptions::ACK_DISABLE | NO_START)
    };
    w[1].attach(last, catch_all);
    let buffer = |w: &mut World, name| {
        let rule = MeSpec {
            unlink: Unlink::Unlink,
            ..spec(0)
        };
        let me = w[1].ni.me_insert(last, rule, Before).unwrap();
        let memory = w[1].memory(100);
        let d = MdDesc {
            eq: Some(eq),
            user_ptr: name,
            max_size: 30,
            ..desc(memory, PUT | MdOptions::MAX_SIZE | NO_START)
        };
        w[1].ni.md_attach(me, d, Unlink::Unlink).unwrap();
    };
    buffer(&mut w, 1);
    buffer(&mut w, 2);
    let src = w.source(30);
    let mut seen = Vec::new();
    for i in 0..8 {
        w.put(0, src.md, None, Ack, to(1), i).unwrap();
        w.run();
        for e in w[1].events(eq) {
            seen.push((e.kind, e.md.user_ptr, e.mlength));
            if e.kind == UNLINKED && e.md.user_ptr == 2 {
                // Recycled only after the next message, which finds every buffer full.
                w.put(0, src.md, None, Ack, to(1), 0).unwrap();
                w.run();
                buffer(&mut w, 3);
            }
        }
    }
    let put = |name, length| (PutEnd, name, length);
    assert_eq!(
        seen,
        [
            put(1, 30),
            put(1, 30),
            put(1, 30),
            (UNLINKED, 1, 30),
            put(2, 30),
            put(2, 30),
            put(2, 30),
            (UNLINKED, 2, 30),
            put(9, 0),
            put(3, 30),
            put(3, 30),
        ]
    );
    let acks = w[0].kinds(src.eq).iter().filter(|k| **k == ACKED).count();
    assert_eq!(acks, 8, "all but the caught one");
}

/// Scenario 109: a message refused with an empty ack is sent again until it is whole.
#[test]
fn a_rejected_message_arrives_in_the_end() {
    let mut w = World::new();
    let nothing = w[1].memory(0);
    let last = w[1].me(4, 0);
    w[1].attach(last, desc(nothing, PUT | TRUNCATE | NO_START | NO_END));
    let eq = w[1].eq(64);
    let src = w.source_with(8, |d| d.options = NO_START | NO_END, Unlink::Retain);
    let mut delivered = BTreeMap::new();
    let mut todo: Vec<u64> = (0..10).collect();
    let mut tries = 0;
    while let Some(hdr) = todo.pop() {
        tries += 1;
        if tries % 3 == 0 {
            let memory = w[1].memory(8);
            let rule = MeSpec {
                unlink: Unlink::Unlink,
                ..spec(0)
            };
            let me = w[1].ni.me_insert(last, rule, Before).unwrap();
            let d = MdDesc {
                eq: Some(eq),
                threshold: 1,
                ..desc(memory, PUT | NO_START)
            };
            w[1].ni.md_attach(me, d, Unlink::Unlink).unwrap();
        }
        w.put(0, src.md, None, Ack, to(1), hdr).unwrap();
        w.run();
        let ack = w[0].events(src.eq)[0];
        assert_eq!(ack.kind, ACKED);
        if ack.mlength == 0 {
            todo.insert(0, hdr);
        }
        for e in w[1].events(eq).iter().filter(|e| e.kind == PutEnd) {
            *delivered.entry(e.hdr_data).or_insert(0) += 1;
        }
    }
    assert_eq!(delivered, (0..10).map(|h| (h, 1)).collect());
    assert_eq!(tries, 30);
}

/// Scenario 110; rule 24: a get started after a put's ack, or just after the put, sees its data.
#[test]
fn a_get_sees_the_put_before_it() {
    let mut w = World::new();
    let t = w.target(8, PUT | GET | REMOTE);
    let (src, dst) = (w.source(8), w.source(8));
    w[0].write(dst.memory, &[0; 8]);
    w.put(0, src.md, None, Ack, to(1), 0).unwrap();
    w.get(0, dst.md, None, to(1)).unwrap();
    w.run();
    assert_eq!(w[0].read(dst.memory), w[0].read(src.memory));
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd, GetStart, GetEnd]);
}
