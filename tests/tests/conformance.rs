//! The conformance suite in every mode: one test for each line of [`MODES`].

use portolan_tests::conformance;
use portolan_tests::harness::{MODES, mode};

/// The tests of this file that run the suite.
const TESTS: [&str; 12] = [
    "in_process",
    "seastar",
    "seastar_accelerated",
    "shm",
    "shm_one_sided",
    "shm_without_attach",
    "verbs",
    "verbs_one_sided",
    "verbs_shm",
    "verbs_ud",
    "verbs_auto",
    "verbs_auto_moving",
];

#[test]
fn in_process() {
    conformance::run(mode("in_process"));
}

#[test]
fn seastar() {
    conformance::run(mode("seastar"));
}

#[test]
fn seastar_accelerated() {
    conformance::run(mode("seastar_accelerated"));
}

#[test]
fn shm() {
    conformance::run(mode("shm"));
}

#[test]
fn shm_one_sided() {
    conformance::run(mode("shm_one_sided"));
}

#[test]
fn shm_without_attach() {
    conformance::run(mode("shm_without_attach"));
}

#[test]
fn verbs() {
    conformance::run(mode("verbs"));
}

#[test]
fn verbs_one_sided() {
    conformance::run(mode("verbs_one_sided"));
}

#[test]
fn verbs_shm() {
    conformance::run(mode("verbs_shm"));
}

#[test]
fn verbs_ud() {
    conformance::run(mode("verbs_ud"));
}

#[test]
fn verbs_auto() {
    conformance::run(mode("verbs_auto"));
}

#[test]
fn verbs_auto_moving() {
    conformance::run(mode("verbs_auto_moving"));
}

/// Prints the list too, for `cargo xtask conformance`.
#[test]
fn modes_are_listed_and_have_a_test_each() {
    assert_eq!(MODES.iter().map(|m| m.test).collect::<Vec<_>>(), TESTS);
    for m in MODES {
        println!("mode | {} | {} | {}", m.test, m.name, m.device);
    }
}
