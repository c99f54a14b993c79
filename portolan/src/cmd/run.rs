//! `portolan run`: a program on N ranks.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;
use portals_shim::fabric::{self, FabricKind};

use crate::cli::FabricArgs;
use crate::error::CmdError;
use crate::run::{JobSpec, find_program, launch};

/// The most ranks one machine is asked to hold.
const RANKS_MAX: i64 = 4096;

/// Options of `portolan run`.
///
/// The exit status is 0 when every rank succeeded, a rank's own status if one failed, 128 + the signal if
/// one was killed, 124 after --timeout, 2 for bad usage, 3 when the fabric cannot be used here.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=RANKS_MAX))]
    ranks: u32,
    #[command(flatten)]
    fabric: FabricArgs,
    /// Set a variable for every rank; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = variable)]
    env: Vec<(OsString, OsString)>,
    /// End the job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// The program and its arguments; looked for as given, in PATH, and beside portolan
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl Options {
    /// The choice of a fabric, made where the words leave it open: all ranks are on this machine.
    pub(crate) fn fabric(&self) -> FabricArgs {
        self.fabric.on_one_machine()
    }
}

/// Runs the program and returns the job's exit status.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let Some((program, args)) = options.program.split_first() else {
        return Err(CmdError::Usage("no program to run".to_owned()));
    };
    if find_program(program).is_none() {
        let message = format!("no program {program:?} here, in PATH or beside portolan");
        return Err(CmdError::Usage(message));
    }
    let chosen = options.fabric();
    if chosen.no_shm && chosen.kind() == FabricKind::Shm {
        let message = "--no-shm is for --fabric verbs; here the fabric is shm".to_owned();
        return Err(CmdError::Usage(message));
    }
    fabric::check_for(&chosen.config(), Some(options.ranks))?;
    let mut env = chosen.variables();
    env.extend(options.env.iter().cloned());
    launch(&JobSpec {
        title: "portolan run",
        ranks: options.ranks,
        program: program.clone(),
        args: args.to_vec(),
        env,
        timeout: options.timeout,
    })
}

/// Parses `K=V`.
pub(crate) fn variable(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("K=V is expected".to_owned()),
    }
}

/// Parses a time of more than nothing, in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number of seconds is expected".to_owned())?;
    let limit = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if limit.is_zero() {
        Err("more than 0 is expected".to_owned())
    } else {
        Ok(limit)
    }
}
