//! The conformance suite on every fabric.

use portolan_tests::conformance;
use portolan_tests::harness::{InProcess, Seastar, Verbs};

#[test]
fn in_process() {
    conformance::run(&InProcess);
}

#[test]
fn seastar() {
    conformance::run(&Seastar("xt4"));
}

#[test]
fn verbs() {
    conformance::run(&Verbs::from_env());
}
