//! The command `portolan`: runs and measures Portals and GASNet programs on the fabrics of this machine.

mod bench;
mod calibration;
mod choice;
mod cli;
mod cmd;
mod error;
mod guest;
mod installed;
mod log;
mod page;
mod run;
mod stack;
mod summary;
mod sweep;
mod waiting;
mod words;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use cli::{Cli, Command};
use error::CmdError;

fn main() -> ExitCode {
    ExitCode::from(stack::with_enough(whole))
}

/// What this command does, and its exit status.
fn whole() -> u8 {
    let words = words::of_mpi(&Cli::command(), std::env::args_os().collect());
    let cli = Cli::try_parse_from(&words)
        .unwrap_or_else(|error| words::advised(&Cli::command(), &words, error).exit());
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
            Command::Sweep(options) => cmd::sweep::run(&options),
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
            Command::View(options) => cmd::view::run(&options),
            Command::Report(options) => cmd::report::run(&options),
            Command::Completions(options) => cmd::shell::completions(&Cli::command(), &options),
            Command::Man(options) => cmd::shell::man(&Cli::command(), &options),
            Command::SeastarDevice(options) => cmd::seastar_device::run(&options),
        }
    });
    conclude(&words, done)
}

/// Says why a command failed, if it did; the exit status.
fn conclude(words: &[OsString], done: Result<u8, CmdError>) -> u8 {
    match done {
        Err(CmdError::Usage(message)) => words::refused(Cli::command(), words, &message).exit(),
        done => error::conclude(done),
    }
}
