//! How long one may sleep where there are no rings; beside rings: `tests/rings/sleep.rs`.

use super::*;

#[test]
fn without_rings_a_sleep_is_counted_and_has_no_end() {
    let mut rings = Rings::new(8);
    for sleeps in 1..4 {
        assert!(rings.sleep().is_empty() && rings.late().is_empty());
        assert_eq!((rings.nap(), rings.next_look()), (None, None));
        assert_eq!(rings.sleeps, sleeps);
    }
}
