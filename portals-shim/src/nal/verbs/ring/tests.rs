//! When there are rings, and how long one may sleep beside them.

use super::*;

#[test]
fn sleeps_get_longer_while_no_peer_answers() {
    let mut rings = Rings::new(8);
    assert!(rings.sleep().is_empty() && rings.nap().is_none());
    assert_eq!(rings.next_look(), None);
    assert_eq!(rings.sleeps, 1);
}
