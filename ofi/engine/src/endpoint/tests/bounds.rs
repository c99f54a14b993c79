//! What a peer can make this side keep.

use super::*;
use crate::core::{MOST_PENDING, Pending};
use crate::peers::Backlog;
use crate::queue::Queue as Outgoings;

const BOTH: Access = Access {
    read: true,
    write: true,
};

/// Starts a fetching atomic addition of one.
pub(super) fn add(from: &Side, to: usize, (one, was): (&Region, &Region)) -> Result<(), Refused> {
    let call = AtomicCall {
        datatype: Datatype::U64,
        operation: Operation::Sum,
        compare: None,
        result: Some(buffer(was, 0, 8)),
    };
    let remote = Remote { offset: 0, key: 1 };
    let op = from.op(5, flags::READ);
    let operand = buffer(one, 0, 8);
    from.endpoint
        .atomic(from.peers[to], remote, &operand, call, op)
}

/// A word that others may add to, the number one, and where what was there before goes.
fn words(side: &Side) -> [Region; 3] {
    let [memory, one, was] = [0u64, 1, 0].map(|word| {
        let region = Region::new(8).unwrap();
        region.write(0, &word.to_ne_bytes()).unwrap();
        region
    });
    let lent = buffer(&memory, 0, 8);
    side.endpoint.register(1, &lent, BOTH).unwrap();
    [memory, one, was]
}

fn word(region: &Region) -> u64 {
    let mut bytes = [0; 8];
    region.read(0, &mut bytes).unwrap();
    u64::from_ne_bytes(bytes)
}

/// What waits at the first side for its peer of this number, and how often that has left the protocol.
fn waiting(at: &Side, peer: usize) -> (usize, u32) {
    let mut core = at.endpoint.core();
    let number = core.peers.number(at.peers[peer]);
    let peer = core.peers.get(number);
    (peer.queue.len().1, peer.departures)
}

/// A message of the first side is received by the second one.
fn speak(from: &Side, to: &Side, (of, number): (usize, usize)) {
    let region = filled(8, 1);
    to.receive(exactly(Some(to.peers[of]), 3), &region, 8, 8);
    from.send(number, 3, &region, 8);
    assert_eq!(next(&[to, from]).unwrap().0.context, 8);
    next(&[from, to]).unwrap();
}

/// Three sides over shared memory, where messages arrive that their sender never looks after: a peer that handles nothing gets no
/// further over an adapter, which has credits of its own.
fn three() -> [Side; 3] {
    let config = FabricConfig {
        fabric: FabricKind::Shm.into(),
        ..FabricConfig::default()
    };
    sides_over(&config, 3).try_into().ok().unwrap()
}

/// Has the first side send what it starts whatever the second has granted. It handles nothing that arrives.
fn force(hostile: &Side, target: &Side, start: impl FnOnce()) {
    let mut core = hostile.endpoint.core();
    let at = core.peers.number(hostile.peers[1]);
    core.peers.get(at).credits = 1;
    // It waits for no answer.
    core.pending
        .retain(|_, p| !matches!(p, Pending::Atomic { .. }));
    drop(core);
    start();
    target.endpoint.progress(Duration::ZERO);
}

fn note(data: u64) -> Outgoing {
    let op = Op::default();
    Outgoing::Written { data, op, len: 0 }
}

#[test]
fn a_peer_that_asks_for_atomics_and_grants_nothing_is_given_up() {
    let sides = three();
    let [hostile, target, third] = &sides;
    let [memory, one, was] = words(target);
    speak(hostile, target, (0, 1));
    speak(third, target, (2, 1));
    let mut most = 0;
    for _ in 0..Outgoings::MOST_ANSWERS + 200 {
        force(hostile, target, || add(hostile, 1, (&one, &was)).unwrap());
        let (answers, departures) = waiting(target, 0);
        most = most.max(answers);
        if departures > 0 {
            break;
        }
    }
    assert_eq!(waiting(target, 0), (0, 1), "after {most} answers");
    assert!((1000..=Outgoings::MOST_ANSWERS).contains(&most), "{most}");
    let before = word(&memory);
    add(third, 1, (&one, &was)).unwrap();
    next(&[third, target]).unwrap();
    assert_eq!((word(&was), word(&memory)), (before, before + 1));
    speak(third, target, (2, 1));
    speak(target, third, (1, 2));
}

fn backlog(at: &Side, peer: usize) -> Backlog {
    let mut core = at.endpoint.core();
    let number = core.peers.number(at.peers[peer]);
    core.peers.get(number).backlog
}

#[test]
fn a_peer_that_sends_what_it_may_not_to_a_program_that_does_not_receive_is_given_up() {
    for long in [false, true] {
        let sides = three();
        let [hostile, target, third] = &sides;
        speak(hostile, target, (0, 1));
        speak(third, target, (2, 1));
        let region = filled(EAGER + 1, 1);
        let mut most = Backlog::default();
        // Twice what an honest peer may have there: of empty messages, by the bytes that each is counted for.
        for _ in 0..33_000 {
            let len = if long { EAGER + 1 } else { 0 };
            force(hostile, target, || hostile.send(1, 7, &region, len));
            // What it exposed is gone.
            for (_, pending) in hostile.endpoint.core().pending.drain() {
                drop(pending);
            }
            if waiting(target, 0).1 > 0 {
                break;
            }
            most = backlog(target, 0);
        }
        assert_eq!(
            (waiting(target, 0).1, backlog(target, 0)),
            (1, Backlog::default())
        );
        assert!(!most.overflows() && most != Backlog::default(), "{most:?}");
        assert!(
            target.endpoint.core().lists[1]
                .find(&exactly(None, 7))
                .is_none()
        );
        speak(third, target, (2, 1));
    }
}

/// Messages without a byte cost the receiver memory too.
#[test]
fn empty_messages_that_nobody_asks_for_stay_at_their_sender() {
    const MANY: usize = 12_000;
    let [a, b] = pair();
    let region = filled(1, 1);
    for _ in 0..MANY {
        a.send(1, 7, &region, 0);
    }
    let begun = Instant::now();
    while backlog(&b, 0).envelopes == 0 {
        assert!(begun.elapsed() < LIMIT, "{:?}", backlog(&b, 0));
        a.endpoint.progress(Duration::ZERO);
        b.endpoint.progress(Duration::ZERO);
    }
    for n in 0..MANY {
        b.receive(exactly(None, 7), &region, 0, n);
        let (entry, _) = next(&[&b, &a]).unwrap();
        assert_eq!((entry.context, entry.len), (n, 0));
    }
    for _ in 0..MANY {
        next(&[&a, &b]).unwrap();
    }
    assert_eq!(backlog(&b, 0), Backlog::default());
}

/// More than each may have under way, so that requests and answers wait for each other.
#[test]
fn two_peers_that_flood_each_other_with_atomics_both_end() {
    const MANY: usize = MOST_PENDING + 4000;
    let [a, b] = pair();
    for side in [&a, &b] {
        let mut core = side.endpoint.core();
        for id in &side.peers {
            let at = core.peers.number(*id);
            core.peers.get(at).window = 2;
        }
    }
    let (of_a, of_b) = (words(&a), words(&b));
    for _ in 0..MANY {
        add(&a, 1, (&of_a[1], &of_a[2])).unwrap();
        add(&b, 0, (&of_b[1], &of_b[2])).unwrap();
    }
    for _ in 0..MANY {
        next(&[&a, &b]).unwrap();
        next(&[&b, &a]).unwrap();
    }
    for (side, other, memory) in [(&a, 1, &of_a[0]), (&b, 0, &of_b[0])] {
        assert_eq!(word(memory), MANY as u64);
        assert_eq!(waiting(side, other), (0, 0));
    }
}

#[test]
fn only_the_peer_that_was_asked_ends_an_atomic_operation() {
    let sides = three();
    let [third, asker, asked] = &sides;
    let (own, _lent) = (words(asker), words(asked));
    speak(asked, asker, (2, 1));
    speak(third, asker, (0, 1));
    add(asker, 2, (&own[1], &own[2])).unwrap();
    let number = *asker.endpoint.core().pending.keys().next().unwrap();
    let forged = Outgoing::AtomicDone(number, Some(vec![7; 8]));
    let to = third.peers[1];
    third.endpoint.core().submit(to, forged).unwrap();
    // Its next message is not overtaken by what it forged.
    speak(third, asker, (0, 1));
    next(&[asker, asked]).unwrap();
    assert_eq!(word(&own[2]), 0);
}

#[test]
fn an_operation_that_was_held_back_begins_when_an_atomic_has_ended() {
    let [a, b] = pair();
    let of_a = words(&a);
    let _of_b = words(&b);
    for n in 1..MOST_PENDING as u64 {
        let other = crate::core::Pending::Fetch {
            op: Op::default(),
            end: End::default(),
            missing: 0,
        };
        a.endpoint.core().pending.insert(u64::MAX - n, other);
    }
    for _ in 0..2 {
        add(&a, 1, (&of_a[1], &of_a[2])).unwrap();
    }
    for before in 0..2 {
        next(&[&a, &b]).unwrap();
        assert_eq!(word(&of_a[2]), before);
    }
}

/// Entries of a queue that nobody has given a size.
const FULL: usize = 16_384;
/// Of a peer that is granted 64 messages, and once more if it begins anew.
const OVER: usize = 2 * 64;

/// A word that others may write, whose owner is told of it.
fn written(side: &Side) -> Region {
    let memory = Region::new(8).unwrap();
    let lent = buffer(&memory, 0, 8);
    side.endpoint.register(1, &lent, BOTH).unwrap();
    let kind = flags::RMA | flags::REMOTE_WRITE;
    side.endpoint.tell_writes(side.op(0, kind));
    memory
}

/// Says hello again to the peer of number 1.
fn begin_anew(side: &Side) {
    let mut core = side.endpoint.core();
    let at = core.peers.number(side.peers[1]);
    core.restart(at);
}

/// A program that takes no completions holds its peers up; once it takes them, none is missing, and everything goes on.
#[test]
fn writes_of_which_nobody_takes_note_wait_at_their_initiator() {
    const MANY: usize = FULL + 1000;
    let [a, b] = pair();
    let _memory = written(&b);
    let from = filled(8, 5);
    let write = |n: usize| {
        let op = Op {
            told: false,
            ..a.op(1, flags::WRITE)
        };
        let remote = Remote { offset: 0, key: 1 };
        let data = (Some(n as u64), false);
        let buffer = buffer(&from, 0, 8);
        a.endpoint.write(a.peers[1], remote, buffer, data, op)
    };
    let both = || {
        a.endpoint.progress(Duration::ZERO);
        b.endpoint.progress(Duration::ZERO);
    };
    for n in 0..MANY {
        while write(n) == Err(Refused::Again) {
            both();
        }
        both();
    }
    let begun = Instant::now();
    let waits = || {
        let mut core = a.endpoint.core();
        let at = core.peers.number(a.peers[1]);
        core.peers.get(at).queue.len().0
    };
    let (mut before, mut idle) = (waits(), 0);
    while idle < 1000 {
        assert!(begun.elapsed() < LIMIT);
        both();
        idle = if waits() == before { idle + 1 } else { 0 };
        before = waits();
    }
    assert!(before > 0);
    begin_anew(&a);
    (0..1000).for_each(|_| both());
    let mut noted = vec![false; MANY];
    let mut take = |most| {
        let taken = b.queue.take(most, |entry, _| {
            let before = std::mem::replace(&mut noted[entry.data as usize], true);
            assert!(!before, "{entry:?}");
        });
        taken.unwrap()
    };
    let there = take(usize::MAX);
    assert!((FULL..=FULL + OVER).contains(&there), "{there}");
    let mut taken = there;
    while taken < MANY {
        assert!(begun.elapsed() < LIMIT, "{taken}");
        both();
        taken += take(1);
    }
    speak(&a, &b, (0, 1));
    speak(&b, &a, (1, 0));
    // What was held when it began anew is not granted twice.
    let mut core = a.endpoint.core();
    let at = core.peers.number(a.peers[1]);
    let credits = core.peers.get(at).credits;
    assert!((1..=64).contains(&credits), "{credits}");
}

#[test]
fn a_peer_that_tells_more_than_it_may_to_a_program_that_takes_nothing_is_given_up() {
    let sides = three();
    let [hostile, target, third] = &sides;
    let _memory = written(target);
    speak(hostile, target, (0, 1));
    speak(third, target, (2, 1));
    let to = hostile.peers[1];
    for round in 1..=3 {
        for _ in 0..FULL + 2 * OVER {
            force(hostile, target, || {
                let told = hostile.endpoint.core().submit(to, note(7));
                told.unwrap();
            });
            if waiting(target, 0).1 == round {
                break;
            }
        }
        assert_eq!(waiting(target, 0).1, round);
        begin_anew(hostile);
        for _ in 0..100 {
            hostile.endpoint.progress(Duration::ZERO);
            target.endpoint.progress(Duration::ZERO);
        }
    }
    let mut there = 0;
    target.queue.take(usize::MAX, |_, _| there += 1).unwrap();
    assert!((FULL..=FULL + OVER).contains(&there), "{there}");
    speak(third, target, (2, 1));
    speak(target, third, (1, 2));
}
