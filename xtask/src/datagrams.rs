//! `cargo xtask datagrams`: what the reliable datagrams do in virtual time, printed.

use crate::cargo::{self, cargo};
use anyhow::Result;

/// Plays the simulations of `verbs-backend/tests/rd`; with `write` the table of the book is written anew.
pub(crate) fn run(write: bool) -> Result<()> {
    let words = [
        "test",
        "--release",
        "--quiet",
        "-p",
        "verbs-backend",
        "--test",
        "rd",
        "--",
    ];
    let mut command = cargo(&words);
    command.args(["--nocapture", "--test-threads=1"]);
    if write {
        command.env("PORTOLAN_BLESS", "1");
    }
    cargo::run(&mut command)
}
