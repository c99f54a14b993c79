//! Endpoints that have closed, while another thread still has them.

use super::frames::linked;
use super::*;

#[test]
fn a_closed_endpoint_tells_nobody_any_more() {
    let [a, _b] = pair();
    let memory = filled(8, 1);
    let counter: Arc<Counter> = Arc::default();
    let counts = || Counts {
        read: Some(Arc::clone(&counter)),
        write: None,
    };
    a.endpoint.count(None, counts()).unwrap();
    a.endpoint
        .register(1, &buffer(&memory, 0, 8), Access::NONE)
        .unwrap();
    a.endpoint.count(Some(1), counts()).unwrap();
    a.endpoint.close();
    // Queue and counters may be closed after it, whoever still has the endpoint.
    assert_eq!(Arc::strong_count(&a.queue), 1);
    assert_eq!(Arc::strong_count(&a.counter), 1);
    assert_eq!(Arc::strong_count(&counter), 1);
}

#[test]
fn a_closed_endpoint_touches_no_memory_of_its_program() {
    for len in [8, 50_000] {
        let [a, b] = linked().unwrap_or_else(pair);
        let (from, to) = (filled(len, 1), Region::new(len).unwrap());
        b.receive(exactly(None, 1), &to, len, 7);
        a.send(1, 1, &from, len);
        b.endpoint.close();
        for _ in 0..100 {
            a.endpoint.progress(Duration::ZERO);
            assert!(!b.endpoint.progress(Duration::ZERO));
        }
        let mut seen = vec![0; len];
        to.read(0, &mut seen).unwrap();
        assert_eq!(seen, vec![0; len]);
    }
}

#[test]
fn memory_and_peers_come_and_go_whichever_endpoints_have_closed() {
    let [a, b] = pair();
    let memory = filled(8, 1);
    let access = Access {
        read: true,
        write: true,
    };
    let register = |side: &Side, key| {
        let lent = buffer(&memory, 0, 8);
        side.endpoint.register(key, &lent, access).unwrap();
    };
    register(&a, 1);
    let peer = Address::from_bytes(&b.endpoint.address()).unwrap();
    a.endpoint.close();
    assert_eq!(a.endpoint.connect(&peer).unwrap(), peer.id());
    for side in [&a, &b] {
        register(side, 2);
        side.endpoint.count(Some(2), Counts::default()).unwrap();
        side.endpoint.count(None, Counts::default()).unwrap();
        side.endpoint.deregister(1, || ()).unwrap();
        side.endpoint.deregister(2, || ()).unwrap();
    }
}

/// Another thread closes it, which may take a while.
#[test]
fn memory_is_not_free_before_an_endpoint_that_closes_has_closed() {
    let [a, _b] = pair();
    let within = || {
        let serve = || ();
        a.endpoint
            .deregister_within(1, Duration::from_millis(20), serve)
    };
    a.endpoint.core().close();
    assert_eq!(within(), Err(Refused::InUse));
    a.endpoint.close();
    assert_eq!(within(), Ok(()));
}
