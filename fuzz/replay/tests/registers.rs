//! Any bytes as acts of a host on its chip; a failing input is shrunk.

use portolan_replay::registers;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_act_of_a_host_panics(bytes in vec(any::<u8>(), 0..800)) {
        registers::run(&bytes);
    }
}
