//! Access control.

use super::world::*;
use crate::{DropReason, Incoming, NiConfig};

/// Scenario 26: entry 0 as made.
#[test]
fn the_first_entry_lets_no_other_user_in() {
    let stranger = NiConfig {
        uid: 1001,
        ..config(0)
    };
    let mut w = World::of([stranger, config(1)]);
    let t = w.target(8, PUT);
    w.knock(to(1));
    assert!(w[1].events(t.eq).is_empty());
    assert_eq!(w[1].drops(), 1);
}

/// The fabric is told why a request is dropped.
#[test]
fn a_dropped_request_has_its_reason() {
    let mut w = World::new();
    w.target(8, PUT);
    let src = w.source(3);
    for (ac, pt, bits, reason) in [
        (8, 4, 0, DropReason::AccessControl),
        (u32::MAX, 4, 0, DropReason::AccessControl),
        (0, 64, 0, DropReason::PtIndex),
        (0, u32::MAX, 0, DropReason::PtIndex),
        (0, 4, 1, DropReason::NoMatch),
    ] {
        let dest = To {
            ac,
            pt,
            bits,
            ..to(1)
        };
        w.put(0, src.md, None, NoAck, dest, 0).unwrap();
        assert!(
            matches!(w.arrive(), Some((1, Incoming::Dropped(r), _)) if r == reason),
            "{ac} {pt} {bits}"
        );
    }
}
