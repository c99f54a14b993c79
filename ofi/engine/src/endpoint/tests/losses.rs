//! A message is lost, and its peer lives.

use super::*;
use crate::core::{Pending, Use};
use crate::landing::{CONTROL, PENDING, SLOT};
use crate::peers::Acquaintance;
use crate::rendezvous::Shown;
use portals_shim::{Brief, EventKind, MdMemory, NiFail};

/// Two sides that have met: the first has sent the second a message.
fn acquainted() -> [Side; 2] {
    let [a, b] = pair();
    let region = filled(8, 1);
    b.receive(exactly(None, 0), &region, 8, 0);
    a.send(1, 0, &region, 8);
    next(&[&b, &a]).unwrap();
    next(&[&a, &b]).unwrap();
    [a, b]
}

/// Messages with these tags arrive in this order.
fn arrive(a: &Side, b: &Side, tags: impl Iterator<Item = u64>) {
    let into = Region::new(8).unwrap();
    for tag in tags {
        let any = Wanted {
            ignore: u64::MAX,
            ..exactly(None, 0)
        };
        b.receive(any, &into, 8, 1);
        assert_eq!(next(&[b, a]).unwrap().0.tag, tag);
    }
}

/// A message of the first side that never arrives; its end is told later, by what this returns.
fn lose_one(a: &Side) -> Brief {
    let op = a.op(77, flags::SEND);
    let mut core = a.endpoint.core();
    let at = core.peers.number(a.peers[1]);
    let slot = core.slots.take().unwrap();
    let (len, tag) = (8, 1);
    core.uses[slot] = Some((at, Use::Message { op, len, tag }));
    core.peers.get(at).order.sent();
    Brief {
        kind: EventKind::SendEnd,
        ni_fail: NiFail::FAIL,
        user_ptr: SLOT | slot as u64,
        ..Brief::default()
    }
}

#[test]
fn after_a_message_that_is_lost_those_behind_it_arrive_in_order() {
    let [a, b] = acquainted();
    let event = lose_one(&a);
    let region = filled(8, 1);
    for tag in 2..6 {
        a.send(1, tag, &region, 8);
        next(&[&a, &b]).unwrap();
    }
    b.endpoint.progress(Duration::ZERO);
    assert!(b.endpoint.core().lists[1].find(&exactly(None, 2)).is_none());
    a.endpoint.core().handle(&event);
    let failed = next(&[&a, &b]).unwrap_err();
    assert_eq!(
        (failed.entry.context, failed.why),
        (77, Failure::Unreachable)
    );
    for tag in 6..9 {
        a.send(1, tag, &region, 8);
    }
    arrive(&a, &b, 2..9);
}

#[test]
fn operations_of_a_lost_peer_end_in_the_order_in_which_they_began() {
    let [a, b] = acquainted();
    let long = EAGER + 1;
    let region = filled(long, 1);
    for tag in 0..20 {
        a.send(1, tag, &region, long);
    }
    b.endpoint.progress(Duration::ZERO);
    a.endpoint.core().lose(a.peers[1]);
    for tag in 0..20 {
        let failed = next(&[&a]).unwrap_err();
        assert_eq!((failed.entry.tag, failed.why), (tag, Failure::Unreachable));
    }
}

#[test]
fn a_peer_that_was_taken_for_lost_goes_on() {
    let [a, b] = acquainted();
    // Credits, say, that nobody waits for.
    let _ = lose_one(&a);
    a.endpoint.core().lose(a.peers[1]);
    let count = 300;
    let region = filled(8, 1);
    for tag in 0..count {
        b.send(0, tag, &region, 8);
    }
    let into = Region::new(8).unwrap();
    for tag in 0..count {
        a.receive(exactly(None, tag), &into, 8, 1);
        assert_eq!(next(&[&a, &b]).unwrap().0.tag, tag);
    }
}

#[test]
fn a_peer_that_begins_anew_is_granted_no_more_than_its_window() {
    let [a, b] = acquainted();
    let region = filled(8, 1);
    for tag in 0..20 {
        a.send(1, tag, &region, 8);
    }
    arrive(&a, &b, 0..20);
    let (of_a, of_b) = (b.peers[0], a.peers[1]);
    let owed = |side: &Side, id| {
        let mut core = side.endpoint.core();
        let at = core.peers.number(id);
        core.peers.get(at).owed
    };
    assert!(owed(&b, of_a) > 0);
    let state = |side: &Side, id| {
        let mut core = side.endpoint.core();
        let at = core.peers.number(id);
        core.peers.get(at).state
    };
    {
        let mut core = a.endpoint.core();
        let at = core.peers.number(of_b);
        core.restart(at);
    }
    let begun = Instant::now();
    while state(&a, of_b) != Acquaintance::Open && begun.elapsed() < LIMIT {
        a.endpoint.progress(Duration::ZERO);
        b.endpoint.progress(Duration::ZERO);
    }
    let mut core = a.endpoint.core();
    let at = core.peers.number(of_b);
    let peer = core.peers.get(at);
    assert_eq!((peer.credits + owed(&b, of_a), peer.owed), (peer.window, 0));
}

#[test]
fn messages_from_before_a_peer_begins_anew_are_not_granted_a_second_time() {
    let [a, b] = acquainted();
    let region = filled(8, 1);
    for tag in 0..20 {
        b.send(0, tag, &region, 8);
        next(&[&b]).unwrap();
    }
    let (of_a, of_b) = (b.peers[0], a.peers[1]);
    {
        let mut core = a.endpoint.core();
        let at = core.peers.number(of_b);
        core.restart(at);
    }
    let peer = |side: &Side, id| {
        let mut core = side.endpoint.core();
        let at = core.peers.number(id);
        let peer = core.peers.get(at);
        (peer.state, peer.credits, peer.owed, peer.window)
    };
    let begun = Instant::now();
    while peer(&a, of_b).0 != Acquaintance::Open && begun.elapsed() < LIMIT {
        a.endpoint.progress(Duration::ZERO);
        b.endpoint.progress(Duration::ZERO);
    }
    let (state, _, owed, window) = peer(&a, of_b);
    let (_, credits, ..) = peer(&b, of_a);
    assert_eq!((state, credits + owed), (Acquaintance::Open, window));
    arrive(&b, &a, 0..20);
}

/// What own memory ends is `FI_EFAULT` and no word against the peer, at whichever end of a message it is.
#[test]
fn what_own_memory_ends_does_not_blame_the_peer() {
    assert_eq!(Failure::Memory as i32, 14, "FI_EFAULT");
    let [a, b] = acquainted();
    let op = |context| a.op(context, flags::SEND);
    let number = {
        let mut core = a.endpoint.core();
        let peer = core.peers.number(a.peers[1]);
        let number = core.next();
        let exposed = Pending::Exposed {
            peer,
            op: op(1),
            len: 8,
            tag: 0,
            shown: Shown::Lent(MdMemory::Empty),
            _copy: None,
        };
        core.pending.insert(number, exposed);
        let (end, missing) = (End::default(), 0);
        let fetch = Pending::Fetch {
            op: op(2),
            end,
            missing,
        };
        core.pending.insert(number + 1, fetch);
        number
    };
    let event = |kind, user_ptr| Brief {
        kind,
        ni_fail: NiFail::SEGV,
        initiator: a.peers[1],
        user_ptr,
        ..Brief::default()
    };
    let mut lost = lose_one(&a);
    lost.ni_fail = NiFail::SEGV;
    for (context, event) in [
        (1, event(EventKind::GetEnd, PENDING | number)),
        (2, event(EventKind::ReplyEnd, PENDING | (number + 1))),
        (77, lost),
    ] {
        a.endpoint.core().handle(&event);
        let failed = next(&[&a, &b]).unwrap_err();
        assert_eq!(
            (failed.entry.context, failed.why),
            (context, Failure::Memory)
        );
    }
    // A receive of this peer alone still waits, and gets what comes.
    let into = Region::new(8).unwrap();
    a.receive(exactly(Some(a.peers[1]), 5), &into, 8, 3);
    a.endpoint
        .core()
        .handle(&event(EventKind::SendEnd, CONTROL));
    b.send(0, 5, &filled(8, 1), 8);
    let arrived = std::iter::repeat_with(|| next(&[&a, &b]).unwrap().0);
    let arrived = arrived.take(2).find(|entry| entry.context == 3);
    assert_eq!(arrived.map(|entry| entry.tag), Some(5));
}

/// A server whose clients come and go: what it has for peers is that of those who are there at once.
#[test]
fn who_comes_takes_the_place_of_who_has_ended() {
    let server = sides(1).pop().unwrap();
    let known = Address::from_bytes(&server.endpoint.address()).unwrap();
    let (from, into) = (filled(8, 1), Region::new(8).unwrap());
    for _ in 0..10 {
        let mut client = sides(1).pop().unwrap();
        client.peers.push(client.endpoint.connect(&known).unwrap());
        for _ in 0..2 {
            server.receive(exactly(None, 5), &into, 8, 7);
            client.send(1, 5, &from, 8);
            assert_eq!(next(&[&server, &client]).unwrap().0.context, 7);
            next(&[&client, &server]).unwrap();
        }
        drop(client);
        let begun = Instant::now();
        while server.endpoint.core().departed.is_empty() {
            assert!(begun.elapsed() < LIMIT, "nobody has ended");
            server.endpoint.progress(Duration::ZERO);
        }
    }
    // The next one finds the place of the last one still taken.
    let core = server.endpoint.core();
    assert!(core.peers.len() <= 2, "{}", core.peers.len());
    assert_eq!(core.peers.granted(), 64 * core.peers.len() as u64);
}
