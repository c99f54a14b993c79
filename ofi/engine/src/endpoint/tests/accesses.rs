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

/// What waits for memory to change is told of an operation that changes it and fetches what was there, as OpenSHMEM's is.
#[test]
fn a_fetching_atomic_is_a_read_to_the_endpoint_and_a_write_to_the_memory_that_it_modifies() {
    let [a, b] = pair();
    let [memory, one, was] = [(); 3].map(|()| Region::new(8).unwrap());
    let lent = buffer(&memory, 0, 8);
    let (all, of_one, together) = (counts(), counts(), Arc::<Counter>::default());
    b.endpoint.count(None, all.clone()).unwrap();
    for key in [1, 2] {
        b.endpoint.register(key, &lent, BOTH).unwrap();
    }
    b.endpoint.count(Some(1), of_one.clone()).unwrap();
    let both = Some(Arc::clone(&together));
    let (read, write) = (both.clone(), both);
    b.endpoint.count(Some(2), Counts { read, write }).unwrap();
    for key in [1, 2] {
        let make = |operation, fetch: bool| {
            let call = AtomicCall {
                datatype: Datatype::U64,
                operation,
                compare: None,
                result: fetch.then(|| buffer(&was, 0, 8)),
            };
            let (remote, operand) = (Remote { offset: 0, key }, buffer(&one, 0, 8));
            let op = a.op(1, flags::READ);
            let begun = a.endpoint.atomic(a.peers[1], remote, &operand, call, op);
            begun.unwrap();
            next(&[&a, &b]).unwrap();
        };
        make(Operation::Sum, false);
        make(Operation::Sum, true);
        make(Operation::Read, true);
    }
    assert_eq!((told(&all), told(&of_one)), ([4, 2], [2, 2]));
    assert_eq!(together.done(), 3, "each operation once");
}

/// The library of the target takes part in more accesses than there is room for events, and its program looks at none.
#[test]
fn accesses_that_nobody_could_count_are_a_failure_of_the_counter() {
    const MANY: u64 = 17_000;
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
    assert_eq!((counter.done(), counter.failed()), (16_384, 1));
    // Those that follow are counted.
    access(&a, &here, 1, true);
    while counter.done() == 16_384 {
        assert!(begun.elapsed() < LIMIT);
        b.endpoint.progress(Duration::ZERO);
    }
    assert_eq!((counter.done(), counter.failed()), (16_385, 1));
}

const LONG: usize = 100_000;

/// Two sides that share memory, and what the first is reading of the second, which has not heard of the end yet; where it comes from and
/// goes to, and who counts it.
fn being_read() -> Option<([Side; 2], [Region; 2], Counts)> {
    let [a, b] = frames::linked()?;
    let (memory, to) = (filled(LONG, 3), Region::new(LONG).unwrap());
    let lent = buffer(&memory, 0, LONG);
    b.endpoint.register(1, &lent, BOTH).unwrap();
    // Memory whose accesses are counted is read by messages, which its owner handles.
    let counted = counts();
    b.endpoint.count(Some(1), counted.clone()).unwrap();
    read(&a, &to, LONG, 5);
    // The request is there already.
    for _ in 0..100 {
        b.endpoint.progress(Duration::ZERO);
    }
    Some(([a, b], [memory, to], counted))
}

fn read(from: &Side, to: &Region, len: usize, context: usize) {
    let (remote, op) = (Remote { offset: 0, key: 1 }, from.op(context, flags::READ));
    let into = buffer(to, 0, len);
    from.endpoint.read(from.peers[1], remote, into, op).unwrap();
}

#[test]
fn memory_is_taken_back_when_its_readers_have_what_they_read() {
    let Some(([a, b], [memory, to], counted)) = being_read() else {
        return;
    };
    assert_eq!(next(&[&a]).unwrap().0.context, 5);
    has(&to, LONG, 3);
    let now = b.endpoint.core().deregister(1);
    assert_eq!(now, Err(Refused::InUse), "its owner has not looked yet");
    b.endpoint.deregister(1, || ()).unwrap();
    assert_eq!(told(&counted), [1, 0], "it was counted all the same");
    read(&a, &to, LONG, 6);
    assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
    // The key is free for another purpose.
    let lent = buffer(&memory, 0, 8);
    b.endpoint.register(1, &lent, BOTH).unwrap();
}

#[test]
fn memory_that_is_being_read_is_counted_from_now_on() {
    let Some(([a, b], [_memory, to], _)) = being_read() else {
        return;
    };
    next(&[&a]).unwrap();
    let all = counts();
    b.endpoint.count(None, all.clone()).unwrap();
    read(&a, &to, 8, 6);
    next(&[&a, &b]).unwrap();
    let begun = Instant::now();
    while told(&all)[0] == 0 {
        assert!(begun.elapsed() < LIMIT);
        b.endpoint.progress(Duration::ZERO);
    }
}

#[test]
fn a_reader_that_does_not_end_keeps_nobody_for_ever_and_no_other_begins() {
    let Some(([a, b], [memory, to], _)) = being_read() else {
        return;
    };
    let kept = b
        .endpoint
        .deregister_within(1, Duration::from_millis(300), || ());
    assert_eq!(kept, Err(Refused::InUse));
    let lent = buffer(&memory, 0, 8);
    let again = b.endpoint.register(1, &lent, BOTH);
    assert_eq!(again, Err(Refused::Invalid), "the key is taken");
    // The access that was under way has its data, the next one none.
    assert_eq!(next(&[&a]).unwrap().0.context, 5);
    has(&to, LONG, 3);
    read(&a, &to, LONG, 6);
    assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
    let (one, was) = (filled(8, 1), Region::new(8).unwrap());
    bounds::add(&a, 1, (&one, &was)).unwrap();
    assert_eq!(next(&[&a, &b]).unwrap_err().why, Failure::Key);
    b.endpoint.deregister(1, || ()).unwrap();
    b.endpoint.register(1, &lent, BOTH).unwrap();
}
