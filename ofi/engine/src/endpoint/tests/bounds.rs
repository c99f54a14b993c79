//! What a peer can make this side keep.

use super::*;
use crate::core::MOST_PENDING;

const BOTH: Access = Access {
    read: true,
    write: true,
};

/// Starts a fetching atomic addition of one.
fn add(from: &Side, to: usize, (one, was): (&Region, &Region)) -> Result<(), Refused> {
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
    for memory in [&of_a[0], &of_b[0]] {
        assert_eq!(word(memory), MANY as u64);
    }
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
