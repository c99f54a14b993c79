//! A peer is removed from the address vector.

use super::*;

#[test]
fn a_peer_that_is_removed_loses_nothing_and_is_forgotten_when_it_has_ended() {
    let [a, b] = pair();
    let region = filled(8, 1);
    // It waits for a message, has sent one that nobody has fetched, and sends another one.
    b.receive(exactly(Some(b.peers[0]), 7), &region, 8, 55);
    let long = filled(100_000, 3);
    b.send(0, 1, &long, 100_000);
    waits_unexpected(&b, &a, 1);
    let id = a.peers[1];
    a.endpoint.remove(id);
    let into = Region::new(100_000).unwrap();
    a.receive(exactly(Some(id), 1), &into, 100_000, 66);
    next(&[&a, &b]).unwrap();
    next(&[&b, &a]).unwrap();
    has(&into, 100_000, 3);
    b.send(0, 2, &region, 8);
    a.receive(exactly(Some(id), 2), &into, 8, 67);
    next(&[&a, &b]).unwrap();
    next(&[&b, &a]).unwrap();
    a.receive(exactly(Some(id), 3), &into, 8, 68);
    let own = Address::from_bytes(&a.endpoint.address()).unwrap();
    a.endpoint.connect(&own).unwrap();
    assert!(b.endpoint.cancel(55));
    drop(b);
    // A receive of it alone says that it has ended.
    assert_eq!(next(&[&a]).unwrap_err().why, Failure::Unreachable);
    a.endpoint.connect(&own).unwrap();
    assert!(!a.endpoint.portals.disconnect(id), "it is known still");
}

#[test]
fn a_peer_that_is_inserted_again_stays_known() {
    let [a, b] = pair();
    let region = filled(8, 1);
    a.send(1, 1, &region, 8);
    next(&[&a, &b]).unwrap();
    let id = a.peers[1];
    let address = Address::from_bytes(&b.endpoint.address()).unwrap();
    a.endpoint.remove(id);
    a.endpoint.connect(&address).unwrap();
    a.receive(exactly(Some(id), 3), &region, 8, 68);
    drop(b);
    assert_eq!(next(&[&a]).unwrap_err().why, Failure::Unreachable);
    let own = Address::from_bytes(&a.endpoint.address()).unwrap();
    a.endpoint.connect(&own).unwrap();
    assert!(a.endpoint.portals.disconnect(id));
}
