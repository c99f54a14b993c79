//! `portolan probe`: joins a job and exchanges values, with no fabric.
//!
//! It tests a launcher (`srun portolan probe`), and by `--fault` what a launcher does about a rank that
//! fails. Each rank of a good run prints `rank R of N: ok`.

use std::io::Write as _;
use std::str::FromStr;
use std::thread;
use std::time::Duration;

use clap::Args;
use portals_shim::job::{Job, JobError};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::error::CmdError;

/// Options of `portolan probe`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What some rank does wrong after the exchange, as KIND@RANK: exit3, exit0, kill, abort7, hang,
    /// outside (exits without joining), late5 (exits with 5 after it finalized), drop3 (drops its job and exits with 3,
    /// after the other ranks of this machine have ended)
    #[arg(long, value_name = "KIND@RANK")]
    fault: Vec<Fault>,
    /// Bytes of each rank's value
    #[arg(long, default_value_t = 3000, value_name = "N")]
    bytes: usize,
    /// Print the process id of each rank once it has joined
    #[arg(long)]
    pids: bool,
    /// Also start a process in a session of its own and print its id
    #[arg(long)]
    stray: bool,
    /// Never join the job
    #[arg(long)]
    outside: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    kind: String,
    rank: u32,
}

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, rank) = text.split_once('@').ok_or("KIND@RANK is expected")?;
        let rank = rank.parse().map_err(|_| format!("{rank:?} is no rank"))?;
        Ok(Self {
            kind: kind.to_owned(),
            rank,
        })
    }
}

/// Runs one rank of the probe.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    if options.outside {
        return Ok(0);
    }
    // Known without joining under launchers of the PMI_FD style and of PMIx, which the tests of this
    // fault have.
    let rank = ["PMIX_RANK", "PMI_RANK"]
        .iter()
        .find_map(|name| std::env::var(name).ok());
    let rank = rank.and_then(|r| r.parse().ok());
    if options
        .fault
        .iter()
        .any(|f| f.kind == "outside" && Some(f.rank) == rank)
    {
        return Ok(0);
    }
    exchange(options)
        .map_err(|error| CmdError::Failed(format!("probe: {}", portals_shim::with_causes(&error))))
}

/// Prints a line, where that can be done.
fn print(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn exchange(options: &Options) -> Result<u8, JobError> {
    let job = Job::from_env()?;
    let (rank, size) = (job.rank(), job.size());
    if options.stray {
        let stray = std::process::Command::new("setsid")
            .args(["sleep", "3600"])
            .spawn();
        match stray {
            Ok(child) => print(format_args!("rank {rank} process {}", child.id())),
            Err(error) => job.abort(2, &format!("cannot start setsid: {error}")),
        }
    }
    if options.pids {
        print(format_args!("rank {rank} process {}", std::process::id()));
    }
    job.put(&format!("value.{rank}"), pattern(rank, options.bytes))?;
    job.put(&format!("process.{rank}"), std::process::id().to_string())?;
    job.fence()?;
    let wrong: Vec<u32> = (0..size)
        .filter_map(|r| match job.get_bytes(&format!("value.{r}")) {
            Ok(value) if value == pattern(r, options.bytes) => None,
            Ok(_) => Some(Ok(r)),
            Err(error) => Some(Err(error)),
        })
        .collect::<Result<_, _>>()?;
    if !wrong.is_empty() {
        job.abort(
            1,
            &format!("the values of ranks {wrong:?} came back changed"),
        );
    }
    let local = job.local_ranks()?.len();
    let mut end = None;
    for fault in options.fault.iter().filter(|f| f.rank == rank) {
        let (kind, code) = split_code(&fault.kind);
        match kind {
            "exit" => std::process::exit(code),
            "kill" => {
                let _ = host::ids::signal_own(rustix::process::Signal::KILL);
            }
            "abort" => job.abort(code, "asked to by --fault"),
            "hang" => hang(),
            "late" | "drop" => end = Some((kind, code)),
            _ => job.abort(2, &format!("unknown fault {:?}", fault.kind)),
        }
    }
    job.barrier()?;
    let id = job.id().to_owned();
    match end {
        Some(("drop", code)) => {
            if code != 0 {
                // Launchers that kill the job meanwhile may have no answer to a rank that leaves, and fail by that.
                await_ends(&job)?;
            }
            drop(job);
        }
        _ => job.finish()?,
    }
    match end {
        None | Some(("drop", 0)) => print(format_args!(
            "rank {rank} of {size}: ok, {local} here, job {id}"
        )),
        Some((_, code)) => std::process::exit(code),
    }
    Ok(0)
}

/// Waits until the other ranks have ended, as far as their processes have numbers here.
fn await_ends(job: &Job) -> Result<(), JobError> {
    for rank in (0..job.size()).filter(|rank| *rank != job.rank()) {
        let pid = job.get(&format!("process.{rank}"))?;
        let pid = pid.parse().ok().and_then(Pid::from_raw);
        if let Some(Ok(other)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            let mut fds = [PollFd::new(&other, PollFlags::IN)];
            while rustix::event::poll(&mut fds, None) == Err(Errno::INTR) {}
        }
    }
    Ok(())
}

/// Splits `exit3` into `exit` and 3; no digits mean 0.
fn split_code(kind: &str) -> (&str, i32) {
    let digits = kind
        .find(|c: char| c.is_ascii_digit())
        .unwrap_or(kind.len());
    let (kind, code) = kind.split_at(digits);
    (kind, code.parse().unwrap_or(0))
}

/// A value that differs for each rank and holds every byte.
fn pattern(rank: u32, bytes: usize) -> Vec<u8> {
    let start = rank.wrapping_mul(37);
    (start..).map(|n| n.to_le_bytes()[0]).take(bytes).collect()
}

/// Waits until the launcher ends the process.
fn hang() -> ! {
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}
