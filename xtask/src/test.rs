//! `cargo xtask test`: the one command that tells whether the tree is good.

use crate::cargo::{self, cargo};
use crate::{book, device, packages};
use anyhow::{Result, bail};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out formatting, lints and documentation
    #[arg(long)]
    no_lint: bool,
    /// Leave out the guest; the tests on a device are then missing
    #[arg(long)]
    no_guest: bool,
}

fn lint() -> Result<()> {
    cargo::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    cargo::run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    cargo::run(
        cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    book::check()
}

/// The guard against slower delivery, which counts instructions and so needs the optimized build and
/// valgrind. Continuous integration does not pass without it.
fn costs() -> Result<()> {
    if !packages::is_there("valgrind") {
        println!("skipped: no valgrind, so nothing counts the instructions of a delivery");
        if std::env::var_os("CI").is_some() {
            bail!("continuous integration has to count the instructions of a delivery");
        }
        return Ok(());
    }
    let mut counts = cargo::release_test(&["--test", "instructions"]);
    cargo::run(counts.args(["--quiet", "--", "--nocapture"]))
}

/// Runs everything; the last lines say what was tested on which device.
pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure()?;
    if !options.no_lint {
        lint()?;
    }
    // The executables that the end-to-end tests start, and the tests themselves.
    cargo::build(&[])?;
    cargo::run(&mut cargo(&[
        "test",
        "--workspace",
        "--quiet",
        "--no-fail-fast",
    ]))?;
    costs()?;
    book::example()?;
    if !options.no_guest {
        device::run()?;
    }
    Ok(())
}
