//! `cargo xtask growth`: resident memory over many operations of each kind, as a table.

use crate::cargo;
use anyhow::Result;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Operations of each kind; buffers that wrap are resident in whole only after thousands
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(100_000..))]
    operations: u64,
    /// Operations of each kind on the SeaStar model, which simulates every packet: a quarter if not given
    #[arg(long)]
    modelled: Option<u64>,
    /// Rows whose `operation, fabric` contains each of these words
    #[arg(long, value_name = "WORDS")]
    only: Option<String>,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let growth = cargo::release_exe("portolan-tests", "growth")?;
    let operations = options.operations.to_string();
    let mut command = Command::new(growth);
    command.arg("--nocapture");
    command.env("PORTOLAN_GROWTH_OPERATIONS", operations);
    if let Some(modelled) = options.modelled {
        command.env("PORTOLAN_GROWTH_MODELLED", modelled.to_string());
    }
    if let Some(only) = &options.only {
        command.env("PORTOLAN_GROWTH_ONLY", only);
    }
    cargo::run(&mut command)
}
