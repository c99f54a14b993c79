//! The launcher: starts the ranks of a job on this machine, serves them PMI-1, and ends all of them when
//! one fails. It is two processes, the front and the supervisor (`front`).
//!
//! ```text
//!   spawn ── starts ──▶ rank processes ◀── lines ──▶ socket ──▶ pmi_server   (what ranks say)
//!                            │ end                                 │ end
//!                            ▼                                     ▼
//!                     supervise (epoll) ──────────────────────▶ policy       (what it means)
//!                            │
//!                            ▼
//!                          reap                                              (ends what is left)
//! ```
//!
//! Every rank leads a session of its own and dies with the supervisor (`edge`).

mod bind;
pub(crate) mod clock;
mod edge;
mod end;
mod front;
pub(crate) mod hosts;
mod interrupts;
mod pmi_server;
mod policy;
mod reap;
mod signals;
mod socket;
mod spawn;
mod standstill;
mod supervise;
mod tags;
mod wait;
mod watch;

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::thread::CpuSet;

use crate::error::{CmdError, conclude};
pub(crate) use edge::{keep_children, same_addresses};
use front::Part;
use interrupts::Interrupts;
use pmi_server::PmiServer;
use policy::{Policy, Verdict};
use spawn::Own;
pub(crate) use spawn::{find_program, no_program};
use supervise::Supervisor;
use tags::Tags;

/// Variable of the ranks that names their job.
pub(crate) const JOB_VARIABLE: &str = "PORTOLAN_JOB_ID";

/// A job to run.
#[derive(Debug, Clone)]
pub(crate) struct JobSpec {
    /// Which command speaks in messages: `portolan run`.
    pub(crate) title: &'static str,
    /// Number of ranks, at least 1.
    pub(crate) ranks: u32,
    /// Whether the processes are ranks, and so are told of the launcher; a program that is none may be a launcher itself.
    pub(crate) pmi: bool,
    /// The program, as the user gave it.
    pub(crate) program: OsString,
    /// Its arguments.
    pub(crate) args: Vec<OsString>,
    /// Variables set for every rank, on top of this process's.
    pub(crate) env: Vec<(OsString, OsString)>,
    /// How long the job may run.
    pub(crate) timeout: Option<Duration>,
    /// Whether each rank runs on a core of its own.
    pub(crate) bind: bool,
    /// Whether each line of ranks' output begins with the rank.
    pub(crate) tag_output: bool,
}

/// How long a line for people may take before the job's end goes on without it.
const SAYING: Duration = Duration::from_secs(1);

fn failed(what: &str) -> impl FnOnce(std::io::Error) -> CmdError {
    let what = format!("cannot {what}");
    move |source| CmdError::System { what, source }
}

/// Parts this process into a front, which returns the exit status of the other, and a supervisor, which does `work` and
/// ends.
fn with_front(
    title: &'static str,
    work: impl FnOnce(Option<UnixStream>) -> Result<u8, CmdError>,
) -> Result<u8, CmdError> {
    match front::part().map_err(failed("start the supervisor"))? {
        Part::Front(front) => front.run(title).map_err(failed("watch the supervisor")),
        Part::Supervisor(None) => work(None),
        Part::Supervisor(Some(line)) => {
            // Open until this process has ended.
            let kept = line.try_clone();
            let status = conclude(work(Some(line)));
            drop(kept);
            std::process::exit(status.into())
        }
    }
}

/// Says how a job ended and ends it, by dropping it. Whoever is to read the line may not do so: the job ends all the
/// same, and the line waits for them after it.
fn end_with<T>(job: T, title: &'static str, verdict: Verdict, lost: impl FnOnce(T) -> bool) -> u8 {
    let (said, done) = mpsc::channel();
    let line = verdict.line;
    let say = move || {
        if let Some(line) = line {
            portals_shim::say(format_args!("{title}: {line}"));
        }
        let _ = said.send(());
    };
    let told = thread::Builder::new().spawn(say).is_err() || done.recv_timeout(SAYING).is_ok();
    let lost = lost(job);
    if !told && !lost {
        let _ = done.recv();
    }
    verdict.status
}

/// Runs a job to its end and returns the exit status for it.
///
/// Must be called from the main thread: ranks die with the thread that starts them.
///
/// # Errors
/// The program does not exist ([`CmdError::Usage`]) or processes cannot be started.
pub(crate) fn launch(spec: &JobSpec) -> Result<u8, CmdError> {
    let program =
        find_program(&spec.program).ok_or_else(|| CmdError::Usage(no_program(&spec.program)))?;
    let cores = match spec.bind {
        true => bind::cores(spec.ranks)?,
        false => Vec::new(),
    };
    with_front(spec.title, |line| supervise(spec, &program, &cores, line))
}

fn supervise(
    spec: &JobSpec,
    program: &Path,
    cores: &[CpuSet],
    line: Option<UnixStream>,
) -> Result<u8, CmdError> {
    front::take_in_orphans();
    spawn::raise_descriptors();
    let interrupts = Interrupts::catch(line).map_err(failed("catch signals"))?;
    let server = PmiServer::new(spec.ranks, &job_id(&spec.env));
    let policy = Policy::new(spec.ranks, program.display().to_string());
    let watching = failed("watch the job");
    let mut job = Supervisor::new(server, policy, interrupts).map_err(watching)?;
    let limit = spec.timeout.unwrap_or_default();
    let deadline = spec
        .timeout
        .and_then(|limit| Instant::now().checked_add(limit));
    let mut verdict = None;
    let mut cores = cores.iter().copied();
    let mut tags = spec.tag_output.then(Tags::default);
    for rank in 0..spec.ranks {
        let written = tags.as_mut().map(|tags| tags.add(rank)).transpose();
        let processors = cores.next();
        let started = written
            .and_then(|written| {
                let own = Own {
                    processors,
                    written,
                };
                spawn::rank(spec, program, rank, own)
            })
            .and_then(|(process, socket)| job.add_rank(process, socket));
        started.map_err(|source| not_started(rank, program, source))?;
        verdict = job.interrupted();
        if verdict.is_some() {
            break;
        }
    }
    if let Some(tags) = tags {
        let forwarding = tags.forward();
        job.forward(forwarding.map_err(failed("read the output of ranks"))?);
    }
    let verdict = match verdict {
        Some(verdict) => verdict,
        None => job.run(deadline, limit).map_err(failed("watch the job"))?,
    };
    Ok(end_with(job, spec.title, verdict, Supervisor::end))
}

/// Why a rank cannot be started, with what to do where the program is the cause.
fn not_started(rank: u32, program: &Path, source: std::io::Error) -> CmdError {
    let program = program.display();
    let advice = match source.kind() {
        ErrorKind::ExecutableFileBusy => "; another process writes the file",
        ErrorKind::NotFound => "; the file names an interpreter that is not there",
        _ => "",
    };
    CmdError::Failed(format!(
        "cannot start rank {rank} ({program}): {source}{advice}"
    ))
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
