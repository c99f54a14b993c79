//! Event queues that the interface's owner keeps.

use super::world::*;
use crate::{Error, Event, Ni, NiFail, Segment, UnreadEvents};
use alloc::vec;
use alloc::vec::Vec;

const MEMORY: Segment = Segment {
    addr: 0x1000,
    len: 8,
};

fn exporting() -> Ni {
    let mut ni = Ni::new(config(0));
    ni.export_events();
    ni
}

fn drain(ni: &mut Ni) -> Vec<Event> {
    core::iter::from_fn(|| ni.poll_exported())
        .map(|(_, event)| event)
        .collect()
}

/// Starts a put; its operation.
fn put(ni: &mut Ni, md: crate::MdHandle) -> crate::OpId {
    let tx = ni.put(md, None, NoAck, id(1), 4, 0, 0, 0, 0).unwrap();
    tx.op.unwrap()
}

#[test]
fn exported_events_have_numbers_and_links_and_come_back() {
    let mut ni = exporting();
    let eq = ni.eq_alloc(4).unwrap();
    let first = 4u32.wrapping_neg();
    assert_eq!(ni.eq_sequence(eq), Ok(first));
    let with_queue = crate::MdDesc {
        eq: Some(eq),
        ..desc(MEMORY, NONE)
    };
    let md = ni.md_bind(with_queue, crate::Unlink::Retain).unwrap();
    for _ in 0..2 {
        let op = put(&mut ni, md);
        ni.send_end(op, NiFail::OK);
    }
    let seen = drain(&mut ni);
    let kinds: Vec<_> = seen.iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [SendStart, SendEnd, SendStart, SendEnd]);
    for (n, e) in (0u32..).zip(&seen) {
        assert_eq!(e.sequence, first.wrapping_add(n));
    }
    assert_eq!(seen[1].link, seen[0].sequence);
    assert_eq!(ni.eq_get(eq), Ok(None), "the owner keeps the events");

    // The process had read two; a fifth was not handed out; the sixth finds the queue back.
    let op = put(&mut ni, md);
    ni.import_events(vec![UnreadEvents {
        eq,
        events: seen[2..].to_vec(),
        lost: false,
    }]);
    ni.send_end(op, NiFail::OK);
    let numbers: Vec<_> = core::iter::from_fn(|| ni.eq_get(eq).unwrap())
        .map(|(e, lost)| (e.sequence, lost))
        .collect();
    let expected = [u32::MAX - 1, u32::MAX, 0, 1].map(|n| (n, false));
    assert_eq!(numbers, expected);
}

#[test]
fn an_update_asks_how_far_the_owner_has_read() {
    let mut ni = exporting();
    let eq = ni.eq_alloc(8).unwrap();
    let new = crate::MdDesc {
        eq: Some(eq),
        ..desc(MEMORY, NONE)
    };
    let md = ni.md_bind(new.clone(), crate::Unlink::Retain).unwrap();
    let op = put(&mut ni, md);
    ni.send_end(op, NiFail::OK);
    let first = ni.eq_sequence(eq).unwrap().wrapping_sub(2);
    for taken in 0..2 {
        ni.eq_taken(eq, first.wrapping_add(taken)).unwrap();
        let refused = ni.md_update(md, new.clone(), Some(eq));
        assert_eq!(refused, Err(Error::MdNoUpdate));
    }
    ni.eq_taken(eq, first.wrapping_add(2)).unwrap();
    assert!(ni.md_update(md, new, Some(eq)).is_ok());
}
