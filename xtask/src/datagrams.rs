//! `cargo xtask datagrams`: what the reliable datagrams do in virtual time, printed; with `--netem` Portals over them
//! between two guests.

use crate::cargo::{self, cargo};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Write the table of the book anew
    #[arg(long)]
    write: bool,
    /// The conformance suite, heat3d and gups over two guests instead, with packets lost, reordered and duplicated
    #[arg(long, conflicts_with = "write")]
    netem: bool,
}

/// Plays the simulations of `verbs-backend/tests/rd`, or the network between two guests.
pub(crate) fn run(options: &Options) -> Result<()> {
    if options.netem {
        return crate::hosts::datagrams();
    }
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
    if options.write {
        command.env("PORTOLAN_BLESS", "1");
    }
    cargo::run(&mut command)
}
