//! Long messages are read where they are, or got by Portals.

use super::frames::{by_portals, linked};
use super::*;
use crate::core::Pending;
use crate::peers::Outgoing;
use crate::rendezvous::Shown;

const LONG: usize = 50_000;

/// A long message, and what is to come of it at both ends.
fn send_long(a: &Side, b: &Side, tag: u64, len: usize) {
    let (from, to) = (filled(len, tag as usize), Region::new(len).unwrap());
    b.receive(exactly(None, tag), &to, len, 7);
    a.send(1, tag, &from, len);
    let (entry, _) = next(&[b, a]).unwrap();
    assert_eq!((entry.context, entry.len, entry.tag), (7, len, tag));
    has(&to, len, tag as usize);
    assert_eq!(next(&[a, b]).unwrap().0.context, 1000);
}

/// Long messages of a side that no peer has taken: how many are exposed, and how many are not.
fn shown(side: &Side) -> (usize, usize) {
    let core = side.endpoint.core();
    let mut count = (0, 0);
    for pending in core.pending.values() {
        match pending {
            Pending::Exposed {
                shown: Shown::Exposed(_),
                ..
            } => count.0 += 1,
            Pending::Exposed { .. } => count.1 += 1,
            _ => {}
        }
    }
    count
}

/// Messages of a side that it waits to see exposed.
fn awaited(side: &Side) -> usize {
    let core = side.endpoint.core();
    let all = core.pending.values();
    all.filter(|pending| matches!(pending, Pending::Awaited { .. }))
        .count()
}

#[test]
fn long_messages_make_no_message_of_portals() {
    let Some([a, b]) = linked() else { return };
    let before = [by_portals(&a), by_portals(&b)];
    for (tag, len) in (1..).zip([EAGER + 1, LONG, 3_000_001, EAGER + 8]) {
        send_long(&a, &b, tag, len);
        send_long(&a, &b, tag, len);
    }
    assert_eq!([by_portals(&a), by_portals(&b)], before);
}

#[test]
fn what_a_peer_reads_by_itself_is_exposed_the_first_time_only() {
    let Some([a, b]) = linked() else { return };
    let from = filled(LONG, 3);
    let (to, mut of_a) = (Region::new(LONG).unwrap(), Vec::new());
    for tag in 0..6 {
        // The kernel refuses the fourth.
        b.endpoint.core().frames.reads = tag != 3;
        a.send(1, tag, &from, LONG);
        of_a.push(shown(&a));
        b.receive(exactly(None, tag), &to, LONG, 7);
        next(&[&b, &a]).unwrap();
        next(&[&a, &b]).unwrap();
    }
    let (exposed, lent) = ((1, 0), (0, 1));
    assert_eq!(of_a, [exposed, lent, lent, lent, exposed, lent]);
    assert_eq!(shown(&a), (0, 0));
    // Nothing is known of one that was given up.
    a.endpoint.core().lose(a.peers[1]);
    a.send(1, 9, &from, LONG);
    waits_unexpected(&a, &b, 9);
    assert_eq!(shown(&a), exposed);
    b.receive(exactly(None, 9), &to, LONG, 7);
    next(&[&b, &a]).unwrap();
    next(&[&a, &b]).unwrap();
}

#[test]
fn a_long_message_of_several_pieces_is_got_by_portals() {
    let Some([a, b]) = linked() else { return };
    send_long(&a, &b, 1, LONG);
    let before = by_portals(&b);
    let (from, to) = (filled(LONG, 2), Region::new(LONG).unwrap());
    let half = LONG / 2;
    let segment = |at: usize| portals_shim::Segment {
        addr: from.addr() + at as u64,
        len: half as u64,
    };
    let pieces = Buffer::of_segments(&[segment(0), segment(half)]);
    b.receive(exactly(None, 1), &to, LONG, 1);
    let op = a.op(1000, flags::SEND | flags::TAGGED);
    a.endpoint.send(a.peers[1], tagged(1), pieces, op).unwrap();
    assert_eq!(shown(&a), (1, 0));
    assert_eq!(next(&[&b, &a]).unwrap().0.len, LONG);
    next(&[&a, &b]).unwrap();
    has(&to, LONG, 2);
    assert_eq!(by_portals(&b), before + 1, "the get");
}

#[test]
fn a_long_message_into_several_pieces_is_read_at_once() {
    let Some([a, b]) = linked() else { return };
    let (from, to) = (filled(LONG, 2), Region::new(LONG).unwrap());
    let segment = |at: usize, len: usize| portals_shim::Segment {
        addr: to.addr() + at as u64,
        len: len as u64,
    };
    let pieces = Buffer::of_segments(&[segment(0, 7), segment(7, 0), segment(7, LONG - 7)]);
    let op = b.op(7, flags::RECV | flags::TAGGED);
    b.endpoint.receive(true, exactly(None, 1), pieces, None, op);
    a.send(1, 1, &from, LONG);
    assert_eq!(next(&[&b, &a]).unwrap().0.len, LONG);
    has(&to, LONG, 2);
}

#[test]
fn a_kernel_that_refuses_at_any_time_loses_nothing() {
    const UNDER_WAY: u64 = 8;
    let Some([a, b]) = linked() else { return };
    let mut rng = fastrand::Rng::with_seed(5);
    let mut waited = 0;
    for round in 0..60 {
        let lens: Vec<usize> = (0..UNDER_WAY).map(|_| rng.usize(1..LONG)).collect();
        let from: Vec<_> = (0..).zip(&lens).map(|(n, len)| filled(*len, n)).collect();
        let to: Vec<_> = lens.iter().map(|len| Region::new(*len).unwrap()).collect();
        let mut done = 0;
        for (n, len) in lens.iter().enumerate() {
            b.endpoint.core().frames.reads = rng.bool();
            a.send(1, n as u64, &from[n], *len);
            b.receive(exactly(None, n as u64), &to[n], *len, n);
            done += usize::from(b.poll().is_some_and(|end| end.is_ok()));
            waited += awaited(&b);
        }
        while done < lens.len() {
            next(&[&b, &a]).unwrap();
            done += 1;
        }
        for _ in 0..UNDER_WAY {
            assert_eq!(next(&[&a, &b]).unwrap().0.context, 1000);
        }
        for (n, len) in lens.iter().enumerate() {
            has(&to[n], *len, n);
        }
        assert_eq!((shown(&a), awaited(&b)), ((0, 0), 0), "round {round}");
    }
    assert!(waited > 0, "no message was ever asked for again");
}

#[test]
fn a_short_receive_takes_what_it_has_room_for_and_ends_the_message() {
    let Some([a, b]) = linked() else { return };
    send_long(&a, &b, 1, LONG);
    for reads in [true, false] {
        b.endpoint.core().frames.reads = reads;
        let (from, to) = (filled(LONG, 4), Region::new(LONG).unwrap());
        b.receive(exactly(None, 2), &to, 1000, 7);
        a.send(1, 2, &from, LONG);
        let error = next(&[&b, &a]).unwrap_err();
        assert_eq!(error.missing, LONG - 1000);
        next(&[&a, &b]).unwrap();
        has(&to, 1000, 4);
        let mut behind = [1; 8];
        to.read(1000, &mut behind).unwrap();
        assert_eq!(behind, [0; 8]);
        // Without any room at all.
        b.receive(exactly(None, 2), &to, 0, 7);
        a.send(1, 2, &from, LONG);
        assert_eq!(next(&[&b, &a]).unwrap_err().missing, LONG);
        next(&[&a, &b]).unwrap();
    }
}

#[test]
fn nobody_but_the_receiver_ends_a_long_message() {
    let all: [Side; 3] = sides(3).try_into().ok().unwrap();
    let [a, b, c] = &all;
    let from = filled(LONG, 6);
    a.send(1, 5, &from, LONG);
    waits_unexpected(a, b, 5);
    let before = shown(a);
    assert_eq!(before.0 + before.1, 1);
    let key = *a.endpoint.core().pending.keys().next().unwrap();
    for (key, read) in [(key, true), (key, false), (key + 1, true), (0, false)] {
        let mut core = c.endpoint.core();
        core.submit(c.peers[0], Outgoing::Fetched(key, read))
            .unwrap();
        core.submit(c.peers[0], Outgoing::Exposed(key)).unwrap();
    }
    // What comes behind that is handled after it.
    let (short, to) = (filled(8, 1), Region::new(LONG).unwrap());
    a.receive(exactly(None, 1), &to, 8, 3);
    c.send(0, 1, &short, 8);
    assert_eq!(next(&[a, c, b]).unwrap().0.context, 3);
    assert_eq!(shown(a), before);
    // A get of what is not to be had any more would fail.
    b.endpoint.core().frames.reads = false;
    b.receive(exactly(None, 5), &to, LONG, 7);
    assert_eq!(next(&[b, a]).unwrap().0.len, LONG);
    has(&to, LONG, 6);
    assert_eq!(next(&[a, b]).unwrap().0.context, 1000);
}

#[test]
fn a_message_is_got_from_nobody_but_its_sender() {
    let all: [Side; 3] = sides(3).try_into().ok().unwrap();
    let [a, b, c] = &all;
    if !a.endpoint.core().frames.are_taken() {
        return println!("skipped: these endpoints share no memory");
    }
    // The second is not exposed.
    send_long(a, b, 1, LONG);
    let (from, to) = (filled(LONG, 3), Region::new(LONG).unwrap());
    a.send(1, 2, &from, LONG);
    let key = *a.endpoint.core().pending.keys().next().unwrap();
    b.endpoint.core().frames.reads = false;
    b.receive(exactly(None, 2), &to, LONG, 7);
    while awaited(b) == 0 {
        assert!(b.poll().is_none());
    }
    {
        let mut core = c.endpoint.core();
        core.submit(c.peers[1], Outgoing::Exposed(key)).unwrap();
    }
    let (short, little) = (filled(8, 1), Region::new(8).unwrap());
    b.receive(exactly(None, 1), &little, 8, 3);
    c.send(1, 1, &short, 8);
    assert_eq!(next(&[b, c]).unwrap().0.context, 3);
    assert_eq!(awaited(b), 1);
    assert_eq!(next(&[b, a]).unwrap().0.context, 7);
    has(&to, LONG, 3);
}

#[test]
fn what_a_sender_has_given_up_is_not_to_be_had() {
    let [a, b] = pair();
    let (from, to) = (filled(LONG, 3), Region::new(LONG).unwrap());
    a.send(1, 2, &from, LONG);
    waits_unexpected(&a, &b, 2);
    a.endpoint.core().lose(a.peers[1]);
    assert!(a.poll().unwrap().is_err());
    b.endpoint.core().frames.reads = false;
    b.receive(exactly(None, 2), &to, LONG, 7);
    // So many that its sender has looked at Portals.
    for tag in 10..60 {
        let (short, little) = (filled(8, 1), Region::new(8).unwrap());
        b.receive(exactly(None, tag), &little, 8, 3);
        a.send(1, tag, &short, 8);
        assert_eq!(next(&[&b, &a]).unwrap().0.context, 3);
        next(&[&a, &b]).unwrap();
    }
    let mut seen = [1; LONG];
    to.read(0, &mut seen).unwrap();
    assert!(seen == [0; LONG]);
}

#[test]
fn a_receive_whose_peer_ends_before_it_exposes_fails() {
    let Some([a, b]) = linked() else { return };
    send_long(&a, &b, 1, LONG);
    let (from, to) = (filled(LONG, 4), Region::new(LONG).unwrap());
    a.send(1, 2, &from, LONG);
    b.endpoint.core().frames.reads = false;
    b.receive(exactly(None, 2), &to, LONG, 7);
    while awaited(&b) == 0 {
        assert!(b.poll().is_none());
    }
    b.endpoint.core().gone(b.peers[0]);
    let error = b.poll().unwrap().unwrap_err();
    assert_eq!((error.entry.context, awaited(&b)), (7, 0));
    // Nor does the message end at its sender before that one is given up.
    assert_eq!(shown(&a), (0, 1));
    a.endpoint.core().gone(a.peers[1]);
    assert!(a.poll().unwrap().is_err());
}
