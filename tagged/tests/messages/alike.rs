//! Receives like the one before, which share one entry: in their order, and taken back.

use super::{slice, worlds};
use portals_shim::Region;
use tagged::{Options, RequestError, Slice, TagError};

#[test]
fn receives_like_the_one_before_match_in_their_order_and_are_taken_back() {
    let worlds = worlds(2, &Options::default());
    let [from, to] = [worlds[0].comm(), worlds[1].comm()];
    let (first, second) = (Region::new(8).unwrap(), Region::new(8).unwrap());
    let like = || to.irecv(Slice::whole(&first), Some(0), Some(1)).unwrap();
    let any = || to.irecv(Slice::whole(&second), None, None).unwrap();
    let send = |n: u64| from.send(slice(&n.to_le_bytes()), 1, 1).unwrap();
    let got = |request, into: &Region| {
        assert_eq!(to.wait(request).unwrap().len, 8);
        let mut bytes = [0; 8];
        into.read(0, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let entries = || worlds[1].interface().list_lengths(44).unwrap().0;
    let none = entries();
    for n in 0..9 {
        let request = like();
        assert_eq!(entries(), none + 1);
        send(n);
        assert_eq!(got(request, &first), n);
    }
    // A message that is there before its receive.
    send(9);
    assert!(to.iprobe(None, None).unwrap().is_some());
    assert_eq!(got(like(), &first), 9);
    // Two wait; then one of them, ahead of which a third must not get.
    let (one, two) = (like(), any());
    send(10);
    assert_eq!(got(one, &first), 10);
    let three = like();
    send(11);
    send(12);
    assert_eq!((got(two, &second), got(three, &first)), (11, 12));
    // Taken back without its message, and with it.
    for _ in 0..3 {
        let request = like();
        assert!(to.cancel(&request).unwrap());
        let end = to.wait(request);
        assert_eq!(end, Err(TagError::Request(RequestError::Cancelled)));
        assert_eq!(entries(), none);
    }
    for n in 13..19 {
        let request = like();
        send(n);
        assert!(!to.cancel(&request).unwrap());
        assert_eq!(got(request, &first), n);
    }
    // Another kind ends it.
    let request = any();
    assert_eq!(entries(), none + 1);
    send(19);
    assert_eq!(got(request, &second), 19);
    assert_eq!(entries(), none);
}

#[test]
fn receives_alike_are_posted_over_one_that_waits_longer() {
    let worlds = worlds(2, &Options::default());
    let [from, to] = [worlds[0].comm(), worlds[1].comm()];
    let into = Region::new(8).unwrap();
    let receive = |tag| to.irecv(Slice::whole(&into), Some(0), Some(tag)).unwrap();
    let send = |tag, n: u64| from.send(slice(&n.to_le_bytes()), 1, tag).unwrap();
    let got = |request| {
        let tag = to.wait(request).unwrap().tag;
        let mut bytes = [0; 8];
        into.read(0, &mut bytes).unwrap();
        (tag, u64::from_le_bytes(bytes))
    };
    let entries = || worlds[1].interface().list_lengths(44).unwrap().0;
    let none = entries();
    let several = |tag| {
        for n in 0..4 {
            let request = receive(tag);
            send(tag, n);
            assert_eq!(got(request), (tag, n));
        }
    };
    for end in ["message", "cancelled", "cancelled with its message"] {
        several(1);
        // What is left in the list for the next of its kind waits now, and one behind it.
        let (waits, behind) = (receive(1), receive(2));
        several(3);
        // Those two, and the one that is left for the next of tag 3.
        assert_eq!(entries(), none + 3);
        // A message of tag 1 is for the first that awaits one.
        let second = receive(1);
        match end {
            "message" => {
                send(1, 10);
                assert_eq!(got(waits), (1, 10));
            }
            "cancelled" => {
                assert!(to.cancel(&waits).unwrap());
                let end = to.wait(waits);
                assert_eq!(end, Err(TagError::Request(RequestError::Cancelled)));
            }
            _ => {
                send(1, 10);
                assert!(!to.cancel(&waits).unwrap());
                assert_eq!(got(waits), (1, 10));
            }
        }
        send(1, 11);
        assert_eq!(got(second), (1, 11));
        send(2, 12);
        assert_eq!(got(behind), (2, 12));
        several(3);
        // One of another kind, and nothing is left.
        let request = receive(4);
        send(4, 13);
        assert_eq!(got(request), (4, 13));
        assert_eq!(entries(), none);
    }
}
