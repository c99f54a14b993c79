//! Short messages between endpoints that share memory go past Portals.

use super::*;
use crate::frames::Frames;
use portals_shim::Lane;

/// Two sides that look for each other's frames; none where they share no memory.
pub(super) fn linked() -> Option<[Side; 2]> {
    let [a, b] = pair();
    let region = filled(8, 1);
    for (from, to, peer) in [(&a, &b, 1), (&b, &a, 0)] {
        to.receive(exactly(None, 0), &region, 8, 0);
        from.send(peer, 0, &region, 8);
        next(&[to, from]).unwrap();
        next(&[from, to]).unwrap();
    }
    let has_link = |side: &Side, id| {
        let mut core = side.endpoint.core();
        let at = core.peers.number(id);
        core.peers.link(at).is_some()
    };
    let both = has_link(&a, a.peers[1]) && has_link(&b, b.peers[0]);
    if !both {
        let shared = std::env::var_os("PORTOLAN_TEST_DEVICE").is_none()
            && std::env::var_os("PORTOLAN_SIMULATION").is_none();
        assert!(!shared, "endpoints that share memory have no frames");
        println!("skipped: these endpoints share no memory");
    }
    both.then_some([a, b])
}

/// Messages that went by the library of Portals.
pub(super) fn by_portals(side: &Side) -> u64 {
    let paths = side.endpoint.core().ni.paths().unwrap();
    paths.by_memory
}

fn send_short(a: &Side, b: &Side, tag: u64, len: usize) {
    let (from, to) = (filled(len, 4), Region::new(len).unwrap());
    b.receive(exactly(None, tag), &to, len, 1);
    a.send(1, tag, &from, len);
    assert_eq!(next(&[b, a]).unwrap().0.len, len);
    next(&[a, b]).unwrap();
    has(&to, len, 4);
}

#[test]
fn short_messages_and_their_credits_make_no_message_of_portals() {
    let Some([a, b]) = linked() else { return };
    let before = [by_portals(&a), by_portals(&b)];
    for tag in 1..300 {
        send_short(&a, &b, tag, 8 * (1 + tag as usize % 250));
    }
    send_short(&a, &b, 1, EAGER);
    assert_eq!([by_portals(&a), by_portals(&b)], before);
}

#[test]
fn a_message_of_several_pieces_is_one_frame() {
    let Some([a, b]) = linked() else { return };
    let before = by_portals(&a);
    let (from, to) = (filled(100, 2), Region::new(100).unwrap());
    let segment = |at: u64, len| portals_shim::Segment {
        addr: from.addr() + at,
        len,
    };
    let pieces = Buffer::of_segments(&[segment(0, 33), segment(33, 1), segment(34, 66)]);
    b.receive(exactly(None, 1), &to, 100, 1);
    let op = a.op(1000, flags::SEND | flags::TAGGED);
    a.endpoint.send(a.peers[1], tagged(1), pieces, op).unwrap();
    assert_eq!(next(&[&b, &a]).unwrap().0.len, 100);
    has(&to, 100, 2);
    assert_eq!(by_portals(&a), before);
}

#[test]
fn what_a_peer_has_sent_before_it_is_given_up_is_received() {
    let Some([a, b]) = linked() else { return };
    let from = filled(8, 1);
    for tag in 1..=10 {
        a.send(1, tag, &from, 8);
    }
    b.endpoint.core().gone(b.peers[0]);
    let to = Region::new(8).unwrap();
    for tag in 1..=10 {
        b.receive(exactly(None, tag), &to, 8, 1);
        let (entry, _) = b.poll().expect("it was not handled").unwrap();
        assert_eq!(entry.tag, tag);
    }
}

#[test]
fn frames_that_no_engine_sends_are_passed_over() {
    let Some([a, b]) = linked() else { return };
    {
        let mut core = a.endpoint.core();
        let at = core.peers.number(a.peers[1]);
        let link = core.peers.link(at).unwrap();
        for nonsense in [&[][..], &[0xff; 15], &[0xff; 16], &[0; 40], &[0x10; 2048]] {
            assert!(link.try_send(Lane::Requests, 7, nonsense, &[]));
        }
    }
    for tag in 1..100 {
        send_short(&a, &b, tag, 8);
    }
}

#[test]
fn a_frame_ends_the_wait_of_a_side_that_looks_at_portals() {
    let Some([a, b]) = linked() else { return };
    let (from, to) = (filled(8, 1), Region::new(8).unwrap());
    for tag in 1..200 {
        b.receive(exactly(None, tag), &to, 8, 1);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| b.endpoint.progress(LIMIT));
            while b.endpoint.try_core().is_some() {
                std::thread::yield_now();
            }
            a.send(1, tag, &from, 8);
            assert!(waits.join().unwrap(), "it has waited in vain");
        });
        assert_eq!(b.poll().unwrap().unwrap().0.tag, tag);
        next(&[&a]).unwrap();
    }
}

#[test]
fn a_message_is_not_handled_before_a_write_that_was_made_before_it() {
    let Some([a, b]) = linked() else { return };
    let memory = Region::new(8).unwrap();
    let lent = buffer(&memory, 0, 8);
    let access = Access {
        read: false,
        write: true,
    };
    b.endpoint.register(1, &lent, access).unwrap();
    // Memory whose accesses are counted is written by messages of Portals, which its owner handles.
    let counts = Counts {
        write: Some(Arc::default()),
        ..Counts::default()
    };
    b.endpoint.count(Some(1), counts).unwrap();
    let to = Region::new(8).unwrap();
    for tag in 1..100 {
        let from = filled(8, tag as usize);
        let remote = Remote { offset: 0, key: 1 };
        let op = a.op(1, flags::WRITE);
        let written = buffer(&from, 0, 8);
        let begun = a
            .endpoint
            .write(a.peers[1], remote, written, (None, false), op);
        begun.unwrap();
        a.send(1, tag, &from, 8);
        b.receive(exactly(None, tag), &to, 8, 1);
        assert_eq!(next(&[&b]).unwrap().0.tag, tag);
        has(&memory, 8, tag as usize);
        for _ in 0..2 {
            next(&[&a, &b]).unwrap();
        }
    }
}

#[test]
fn frames_that_keep_coming_hold_up_nothing_else() {
    let Some([a, b]) = linked() else { return };
    let (short, long) = (filled(8, 1), filled(50_000, 2));
    let (little, to) = (Region::new(8).unwrap(), Region::new(50_000).unwrap());
    b.endpoint.core().frames.reads = false;
    b.receive(exactly(None, 1), &to, 50_000, 1);
    a.send(1, 1, &long, 50_000);
    let mut came = false;
    for tag in 2..200 {
        b.receive(exactly(None, tag), &little, 8, 2);
        a.send(1, tag, &short, 8);
        // A frame is there at each look of the receiver.
        came |= b.poll().is_some_and(|end| end.unwrap().0.context == 1);
        while a.poll().is_some() {}
    }
    assert!(came, "the long message, whose data comes by Portals");
    has(&to, 50_000, 2);
}

/// An operation of the first side that is to come so far.
fn so_far(a: &Side, level: Level) -> Op {
    Op {
        level,
        ..a.op(5, flags::SEND | flags::TAGGED)
    }
}

/// A message from memory that the caller keeps.
fn send_so_far(a: &Side, from: &Region, level: Level) {
    let (lent, op) = (buffer(from, 0, 8), so_far(a, level));
    a.endpoint.send(a.peers[1], tagged(1), lent, op).unwrap();
}

/// What is under way ends when the second side looks, and not before.
fn ends_by_a_look(a: &Side, b: &Side) {
    for _ in 0..100 {
        assert!(a.poll().is_none(), "its peer has not looked");
    }
    assert_eq!(next(&[a, b]).unwrap().0.context, 5);
}

/// Two sides of which the first sends no frames any more: Portals may keep a message until its sender is served again.
fn unlinked() -> Option<[Side; 2]> {
    let [a, b] = linked()?;
    let mut core = a.endpoint.core();
    let at = core.peers.number(a.peers[1]);
    core.unlink(at);
    drop(core);
    Some([a, b])
}

#[test]
fn a_message_that_is_to_be_delivered_has_no_end_before_that() {
    let Some([a, b]) = linked() else { return };
    let from = filled(8, 1);
    send_so_far(&a, &from, Level::Delivered);
    ends_by_a_look(&a, &b);
}

#[test]
fn a_message_that_is_to_be_transmitted_ends_where_its_peer_finds_it() {
    let Some([a, b]) = linked() else { return };
    let from = filled(8, 1);
    send_so_far(&a, &from, Level::Transmitted);
    assert_eq!(next(&[&a]).unwrap().0.context, 5);
    // Its sender is served no more.
    let to = Region::new(8).unwrap();
    b.receive(exactly(None, 1), &to, 8, 6);
    assert_eq!(next(&[&b]).unwrap().0.context, 6);
}

#[test]
fn a_message_without_a_frame_that_is_to_be_transmitted_has_no_end_before_its_peer_has_it() {
    let Some([a, b]) = unlinked() else { return };
    let from = filled(8, 1);
    send_so_far(&a, &from, Level::Injected);
    assert_eq!(next(&[&a]).unwrap().0.context, 5, "its memory is free");
    send_so_far(&a, &from, Level::Transmitted);
    ends_by_a_look(&a, &b);
}

#[test]
fn a_write_with_data_that_is_to_be_transmitted_has_no_end_before_its_peer_has_the_data() {
    let Some([a, b]) = unlinked() else { return };
    let memory = Region::new(8).unwrap();
    let access = Access {
        read: false,
        write: true,
    };
    let offered = buffer(&memory, 0, 8);
    b.endpoint.register(1, &offered, access).unwrap();
    let remote = Remote { offset: 0, key: 1 };
    // Returns when the peer's memory has it; the first side has not looked since.
    let write = |from: &Region, seed, level| {
        let (lent, data) = (buffer(from, 0, 8), (Some(99), false));
        let op = so_far(&a, level);
        a.endpoint
            .write(a.peers[1], remote, lent, data, op)
            .unwrap();
        let (begun, mut first) = (Instant::now(), [0]);
        while first[0] != bytes(8, seed)[0] {
            assert!(begun.elapsed() < LIMIT, "nothing is written");
            b.endpoint.progress(Duration::ZERO);
            memory.read(0, &mut first).unwrap();
        }
    };
    let from = [5, 6].map(|seed| filled(8, seed));
    write(&from[0], 5, Level::Injected);
    assert_eq!(next(&[&a]).unwrap().0.context, 5, "its memory is free");
    write(&from[1], 6, Level::Transmitted);
    ends_by_a_look(&a, &b);
}

#[test]
fn a_message_that_is_to_be_matched_has_no_end_before_its_receive() {
    let Some([a, b]) = linked() else { return };
    let (from, to) = (filled(8, 1), Region::new(8).unwrap());
    send_so_far(&a, &from, Level::Matched);
    waits_unexpected(&a, &b, 1);
    for _ in 0..100 {
        assert!(a.poll().is_none(), "nobody receives it");
        assert!(b.poll().is_none());
    }
    b.receive(exactly(None, 1), &to, 8, 6);
    assert_eq!(next(&[&a, &b]).unwrap().0.context, 5);
    assert_eq!(next(&[&b, &a]).unwrap().0.context, 6);
    has(&to, 8, 1);
}

#[test]
fn a_peer_that_looks_for_no_frames_is_sent_none() {
    let [a, b] = pair();
    b.endpoint.core().frames = Frames::new(None);
    for tag in 1..100 {
        send_short(&a, &b, tag, 8);
    }
    let mut core = a.endpoint.core();
    let at = core.peers.number(a.peers[1]);
    assert!(core.peers.link(at).is_none());
}

#[test]
fn what_is_sent_to_a_program_that_does_not_receive_is_bounded() {
    const MANY: u64 = 2000;
    let Some([a, b]) = linked() else { return };
    let from = filled(2000, 1);
    for tag in 0..MANY {
        a.send(1, tag, &from, 2000);
        // So that none waits for another.
        a.poll();
        b.poll();
        a.poll();
    }
    let mut core = b.endpoint.core();
    let at = core.peers.number(b.peers[0]);
    let kept = core.peers.get(at).backlog.bytes;
    assert!(
        (Backlog::MARKS.0..Backlog::MARKS.0 + 64 * 2000).contains(&kept),
        "{kept} bytes"
    );
}

#[test]
fn credits_are_neither_lost_nor_given_twice() {
    let Some([a, b]) = linked() else { return };
    for tag in 1..200 {
        send_short(&a, &b, tag, 8);
        if tag % 3 == 0 {
            let (from, to) = (filled(8, 4), Region::new(8).unwrap());
            a.receive(exactly(None, tag), &to, 8, 1);
            b.send(0, tag, &from, 8);
            next(&[&a, &b]).unwrap();
            next(&[&b, &a]).unwrap();
        }
        // What one side may send, and what the other owes it for.
        let counts = |side: &Side, id| {
            let mut core = side.endpoint.core();
            let at = core.peers.number(id);
            let peer = core.peers.get(at);
            (peer.credits, peer.owed, peer.window)
        };
        let (of_a, of_b) = (counts(&a, a.peers[1]), counts(&b, b.peers[0]));
        assert_eq!(
            (of_a.0 + of_b.1, of_b.0 + of_a.1),
            (of_b.2, of_a.2),
            "{tag}"
        );
    }
}
