//! `cargo xtask growth`: resident memory over many operations of each kind, as a table.

use crate::cargo;
use anyhow::{Context, Result};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Operations of each kind
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let tests = cargo::release_tests(&["portolan-tests"], &["--test", "growth"])?;
    let test = tests.into_iter().find(|(name, _)| name == "growth");
    let (_, growth) = test.context("no test executable growth")?;
    let operations = options.operations.to_string();
    cargo::run(
        Command::new(growth)
            .arg("--nocapture")
            .env("PORTOLAN_GROWTH_OPERATIONS", operations),
    )
}
