//! Counts of what peers do with memory.

use super::*;

const BOTH: Access = Access {
    read: true,
    write: true,
};

fn counts() -> Counts {
    let counter = || Some(Arc::<Counter>::default());
    Counts {
        read: counter(),
        write: counter(),
    }
}

/// Reads and writes so far.
fn told(counts: &Counts) -> [u64; 2] {
    [&counts.read, &counts.write].map(|c| c.as_ref().unwrap().done())
}

fn access(from: &Side, here: &Region, key: u64, write: bool) {
    let (buffer, remote) = (buffer(here, 0, 8), Remote { offset: 0, key });
    let op = from.op(1, 0);
    let begun = match write {
        true => {
            let without = (None, false);
            let to = from.peers[1];
            from.endpoint.write(to, remote, buffer, without, op)
        }
        false => from.endpoint.read(from.peers[1], remote, buffer, op),
    };
    begun.unwrap();
}

#[test]
fn accesses_are_counted_by_their_memory_and_by_their_endpoint() {
    let [a, b] = pair();
    let (memory, here) = (Region::new(8).unwrap(), Region::new(8).unwrap());
    let (all, one) = (counts(), counts());
    let both = |key, write| {
        access(&a, &here, key, write);
        assert!(next(&[&a, &b]).is_ok());
    };
    for key in [1, 2] {
        let lent = buffer(&memory, 0, 8);
        b.endpoint.register(key, &lent, BOTH).unwrap();
    }
    both(1, true);
    // From now on.
    b.endpoint.count(Some(1), one.clone()).unwrap();
    both(1, true);
    both(2, true);
    both(1, false);
    b.endpoint.count(None, all.clone()).unwrap();
    let lent = buffer(&memory, 0, 8);
    b.endpoint.register(3, &lent, BOTH).unwrap();
    for key in [1, 2, 3] {
        both(key, true);
        both(key, true);
        both(key, false);
    }
    // What was told to the initiator may come to the target's program a look later.
    let begun = Instant::now();
    while told(&all) != [3, 6] || told(&one) != [2, 3] {
        assert!(begun.elapsed() < LIMIT, "{:?} {:?}", told(&all), told(&one));
        b.endpoint.progress(Duration::ZERO);
    }
    let nobody = b.endpoint.count(Some(4), one);
    assert_eq!(nobody, Err(Refused::Invalid));
}

/// The library of the target takes part in more accesses than there is room for events, and its program looks at none.
#[test]
fn accesses_that_nobody_could_count_are_a_failure_of_the_counter() {
    const MANY: u64 = 70_000;
    let [a, b] = pair();
    let (memory, here) = (Region::new(8).unwrap(), Region::new(8).unwrap());
    let all = counts();
    let lent = buffer(&memory, 0, 8);
    b.endpoint.register(1, &lent, BOTH).unwrap();
    b.endpoint.count(Some(1), all.clone()).unwrap();
    let mut ended = 0;
    let begun = Instant::now();
    for _ in 0..MANY {
        access(&a, &here, 1, true);
        let mut seen = 0;
        while seen == 0 {
            assert!(begun.elapsed() < LIMIT);
            b.endpoint
                .portals
                .interface()
                .progress(Wait::Nanos(0))
                .unwrap();
            a.endpoint.progress(Duration::ZERO);
            seen = a.queue.take(100, |_, _| {}).expect("no failure");
        }
        ended += seen;
    }
    assert_eq!(ended as u64, MANY);
    while b.endpoint.progress(Duration::ZERO) {}
    let counter = all.write.unwrap();
    assert_eq!((counter.done(), counter.failed()), (1 << 16, 1));
    // Those that follow are counted.
    access(&a, &here, 1, true);
    while counter.done() == 1 << 16 {
        assert!(begun.elapsed() < LIMIT);
        b.endpoint.progress(Duration::ZERO);
    }
    assert_eq!((counter.done(), counter.failed()), ((1 << 16) + 1, 1));
}
