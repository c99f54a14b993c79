//! The launcher: starts the ranks of a job on this machine, serves them PMI-1, and ends all of them when
//! one fails.
//!
//! ```text
//!   spawn ── starts ──▶ rank processes ◀── lines ──▶ socket ──▶ pmi_server   (what ranks say)
//!                            │ end                                 │ end
//!                            ▼                                     ▼
//!                     supervise (poll) ───────────────────────▶ policy       (what it means)
//!                            │
//!                            ▼
//!                          reap                                              (ends what is left)
//! ```
//!
//! Every rank leads a process group of its own and dies with the launcher (`edge`).

mod edge;
mod end;
pub(crate) mod hosts;
mod pmi_server;
mod policy;
mod reap;
mod socket;
mod spawn;
mod supervise;
mod wait;

use std::ffi::OsString;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::CmdError;
pub(crate) use edge::same_addresses;
use pmi_server::PmiServer;
use policy::Policy;
pub(crate) use spawn::find_program;
use supervise::{Interrupts, Supervisor};

/// Variable of the ranks that names their job.
pub(crate) const JOB_VARIABLE: &str = "PORTOLAN_JOB_ID";

/// A job to run.
#[derive(Debug, Clone)]
pub(crate) struct JobSpec {
    /// Which command speaks in messages: `portolan run`.
    pub(crate) title: &'static str,
    /// Number of ranks, at least 1.
    pub(crate) ranks: u32,
    /// The program, as the user gave it.
    pub(crate) program: OsString,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Variables set for every rank, on top of this process's.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// How long the job may run.
    pub(crate) timeout: Option<Duration>,
}

/// Runs a job to its end and returns the exit status for it.
///
/// Must be called from the main thread: ranks die with the thread that starts them.
///
/// # Errors
/// The program does not exist ([`CmdError::Usage`]) or processes cannot be started.
pub(crate) fn launch(spec: &JobSpec) -> Result<u8, CmdError> {
    let program = find_program(&spec.program).ok_or_else(|| {
        CmdError::Usage(format!(
            "no program {:?} here, in PATH or beside portolan",
            spec.program
        ))
    })?;
    let failed = |what: &str| {
        let what = format!("cannot {what}");
        move |source| CmdError::System { what, source }
    };
    // Processes that leave their rank's group come back to the launcher when their parent ends.
    let me = rustix::process::getpid();
    if let Err(errno) = rustix::process::set_child_subreaper(Some(me)) {
        tracing::warn!(%errno, "processes that detach from their rank may outlive the job");
    }
    let interrupts = Interrupts::catch().map_err(failed("catch signals"))?;
    let server = PmiServer::new(spec.ranks, &job_id(&spec.env));
    let policy = Policy::new(spec.ranks, program.display().to_string());
    let mut job = Supervisor::new(server, policy, interrupts);
    for rank in 0..spec.ranks {
        let (process, socket) = spawn::rank(spec, &program, rank).map_err(failed(&format!(
            "start rank {rank} ({})",
            program.display()
        )))?;
        job.add_rank(process, socket);
    }
    let limit = spec.timeout.unwrap_or_default();
    let deadline = spec
        .timeout
        .and_then(|limit| Instant::now().checked_add(limit));
    let verdict = job.run(deadline, limit).map_err(failed("watch the job"))?;
    if let Some(line) = &verdict.line {
        // Nobody may be left to read it; the job's end comes first.
        portals_shim::say(format_args!("{}: {line}", spec.title));
    }
    drop(job);
    Ok(verdict.status)
}

/// Names the job, where a variable of the ranks does not, so that no other job of this machine has
/// the name at this time.
fn job_id(env: &[(OsString, OsString)]) -> String {
    let named = env.iter().rev().find(|(name, _)| name == JOB_VARIABLE);
    // A word of the lines that ranks read.
    let word = |name: &&str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        (1..=64).contains(&name.len()) && name.bytes().all(plain)
    };
    if let Some(name) = named.and_then(|(_, v)| v.to_str()).filter(word) {
        return name.to_owned();
    }
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    format!("kvs_{}_{:x}", std::process::id(), since.as_micros())
}
