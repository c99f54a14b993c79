//! The command `portolan`: runs and measures Portals and GASNet programs on the fabrics of this machine.

mod bench;
mod calibration;
mod choice;
mod cli;
mod cmd;
mod error;
mod guest;
mod log;
mod run;
mod summary;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};

use cli::{Cli, Command};
use error::CmdError;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let kept = run::keep_children().map_err(|source| CmdError::System {
        what: "cannot have the system keep how children end".to_owned(),
        source,
    });
    let begun = kept.and_then(|()| log::install(cli.command.as_ref()));
    let done = begun.and_then(|()| {
        match cli
            .command
            .unwrap_or(Command::Demo(cmd::demo::Options::default()))
        {
            Command::Demo(options) => cmd::demo::run(&options),
            Command::Run(options) => cmd::run::run(&options),
            Command::Bench(options) => cmd::bench::run(&options),
            Command::Firehose(options) => cmd::firehose::run(&options),
            Command::FirehoseRank(options) => cmd::firehose::rank(&options),
            Command::Info(options) => cmd::info::run(&options),
            Command::Doctor(options) => cmd::doctor::run(&options),
            Command::Guest(options) => Ok(guest::run(&options)?),
            Command::Agent => run::hosts::agent::run(),
            Command::Probe(options) => cmd::probe::run(&options),
            Command::Messages(options) => cmd::messages::run(&options),
            Command::Exits(options) => cmd::exits::run(&options),
            Command::Credits(options) => cmd::credits::run(&options),
            Command::Calibration(options) => calibration::run(&options),
            Command::BenchRank(options) => cmd::bench::rank(&options),
            Command::SeastarSim(options) => cmd::seastar_sim::run(&options),
            Command::Simulate(options) => cmd::simulate::run(&options),
            Command::Trace(options) => cmd::trace::run(&options),
            Command::Summary(options) => cmd::summary::run(&options),
            Command::SeastarDevice(options) => cmd::seastar_device::run(&options),
        }
    });
    ExitCode::from(conclude(done))
}

/// Says why a command failed, if it did; the exit status.
fn conclude(done: Result<u8, CmdError>) -> u8 {
    match done {
        Err(CmdError::Usage(message)) => Cli::command()
            .error(ErrorKind::ValueValidation, message)
            .exit(),
        done => error::conclude(done),
    }
}
