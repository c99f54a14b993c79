//! `cargo xtask kills`: jobs of which one process is killed at a random moment, start-up included: a rank, the front of the
//! launcher, its supervisor, or the simulation. Each must end by itself, and within a second nothing may be left: no
//! process, nothing in `/dev/shm`.
//!
//! What is left of a job has a variable that only this job had. It is a child of this process too, whatever its
//! environment, group and session: orphans below come to it.

use crate::cargo::{self, release_dir};
use crate::wait::{self, Changes, Process};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitOptions, set_child_subreaper};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many jobs
    #[arg(long, default_value_t = 200)]
    runs: u32,
    /// The same number gives the same moments and victims, as far as time repeats itself
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Folder of portolan and gups that are built already
    #[arg(long)]
    built: Option<PathBuf>,
}

/// How long a job may take to end after the kill.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long anything of a job may be there after its launcher has ended.
const GONE: Duration = Duration::from_secs(1);
/// The kill comes within so many milliseconds of the start; a job is in its work after some 50.
const MOMENTS: u64 = 250;
/// The variable that marks the processes of a job.
const MARK: &str = "XTASK_KILLS_MARK";

/// Who is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Rank,
    Front,
    Supervisor,
    Simulation,
}

impl Victim {
    const ALL: [Self; 4] = [Self::Rank, Self::Front, Self::Supervisor, Self::Simulation];

    fn name(self) -> &'static str {
        match self {
            Self::Rank => "a rank",
            Self::Front => "the launcher",
            Self::Supervisor => "the supervisor",
            Self::Simulation => "the simulation",
        }
    }

    /// The victim in the job of `launcher`, if it is there.
    fn find(self, launcher: u32, random: &mut Random) -> Option<u32> {
        let supervisor = || children(launcher).first().copied();
        let below = || supervisor().map(children).unwrap_or_default();
        let is_simulation = |pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|word| word == b"seastar-sim")
        };
        match self {
            Self::Front => Some(launcher),
            Self::Supervisor => supervisor(),
            Self::Rank => {
                let mut ranks = below();
                ranks.retain(|pid| !is_simulation(pid));
                let at = random.below(ranks.len() as u64) as usize;
                ranks.get(at).copied()
            }
            Self::Simulation => {
                let ranks = below();
                let all = ranks.iter().flat_map(|rank| children(*rank));
                let all: Vec<u32> = all.chain(ranks.iter().copied()).collect();
                all.into_iter().find(is_simulation)
            }
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % end.max(1)
    }
}

fn shared_memory() -> BTreeSet<OsString> {
    let entries = std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten();
    entries.map(|e| e.file_name()).collect()
}

fn children(parent: u32) -> Vec<u32> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect()
}

/// Processes with this mark in their environment.
fn marked(mark: &str) -> Vec<u32> {
    let variable = format!("{MARK}={mark}");
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let set = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            set.split(|b| *b == 0).any(|v| v == variable.as_bytes())
        })
        .collect()
}

/// What is left of the job of this mark. Orphans that have ended are collected.
fn left(mark: &str) -> Vec<u32> {
    while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
    let mut left = children(std::process::id());
    left.extend(marked(mark));
    left.sort_unstable();
    left.dedup();
    left
}

/// What became of a job.
struct Ended {
    fabric: &'static str,
    ranks: u64,
    victim: Victim,
    /// From its start to the kill, at least.
    moment: Duration,
    /// From the kill to its end.
    took: Duration,
    /// From that to the end of its last process.
    rest: Duration,
}

/// One job.
fn job(bin: &Path, random: &mut Random, round: u32) -> Result<Ended> {
    let victim = Victim::ALL[round as usize % Victim::ALL.len()];
    // A number that nobody else uses.
    let mark = format!("9{:07}{round:04}", std::process::id());
    let ranks = 2 + random.below(7);
    let moment = Duration::from_millis(random.below(MOMENTS));
    let fabric = match victim {
        Victim::Simulation => "seastar",
        _ if random.below(2) == 0 => "seastar",
        _ => "shm",
    };
    let what = format!(
        "round {round}, {} of {ranks} ranks on {fabric}",
        victim.name()
    );
    let program = bin.join("gups");
    let starts = Changes::uses(&bin.join("portolan"))?;
    let mut launcher = Command::new(bin.join("portolan"))
        .args(["run", "--fabric", fabric, "-n", &ranks.to_string(), "--"])
        .arg(&program)
        .args(["--log2-table", "14", "--updates", &mark])
        .env(MARK, &mark)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start portolan run")?;
    let running = Process::open(launcher.id())?;
    if running.ends_within(moment)? {
        bail!("{what}: the job ended before the kill");
    }
    let began = Instant::now();
    let pid = loop {
        if let Some(pid) = victim.find(launcher.id(), random) {
            break pid;
        }
        // Nothing tells of a process that becomes the child of another.
        let soon = Duration::from_millis(5);
        let found = || Ok(victim.find(launcher.id(), random));
        if let Some(pid) = starts.until(&running, soon, found)? {
            break pid;
        }
        if began.elapsed() > PATIENCE || running.ends_within(Duration::ZERO)? {
            bail!("{what}: it did not start");
        }
    };
    Process::open(pid)
        .and_then(|process| process.signal(Signal::KILL))
        .with_context(|| format!("{what}: process {pid} had ended before it was killed"))?;
    let killed = Instant::now();
    let Some(status) = wait::end(&mut launcher, PATIENCE)? else {
        let _ = launcher.kill();
        let _ = launcher.wait();
        bail!("{what}: the job goes on {PATIENCE:?} after the kill at {moment:?}");
    };
    let took = killed.elapsed();
    if status.success() {
        bail!("{what}: the job says that it succeeded");
    }
    let ended = Instant::now();
    loop {
        let left = left(&mark);
        let Some(one) = left.first() else { break };
        if ended.elapsed() >= GONE {
            let line = std::fs::read_to_string(format!("/proc/{one}/cmdline"));
            let line = line.unwrap_or_default().replace('\0', " ");
            bail!(
                "{what}, killed at {moment:?}: processes are left after {GONE:?}: {left:?}, {line}"
            );
        }
        if let Ok(process) = Process::open(*one) {
            process.ends_within(GONE.saturating_sub(ended.elapsed()))?;
        }
    }
    Ok(Ended {
        fabric,
        ranks,
        victim,
        moment,
        took,
        rest: ended.elapsed(),
    })
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let bin = match &options.built {
        Some(folder) => folder.canonicalize()?,
        None => {
            cargo::build(&["--package", "portolan", "--package", "programs"])?;
            release_dir()
        }
    };
    set_child_subreaper(Some(Pid::INIT))?;
    let before = shared_memory();
    let mut random = Random(options.seed);
    let began = Instant::now();
    let mut counts = Victim::ALL.map(|victim| (victim, 0_u32, Duration::ZERO, Duration::ZERO));
    for round in 0..options.runs {
        let job = job(&bin, &mut random, round)?;
        println!(
            "{:>4} of {}: {} ranks on {}, {} killed after {:>3} ms, ended {:>4} ms later, nothing left after {:>3} ms",
            round + 1,
            options.runs,
            job.ranks,
            job.fabric,
            job.victim.name(),
            job.moment.as_millis(),
            job.took.as_millis(),
            job.rest.as_millis()
        );
        for (victim, count, took, rest) in &mut counts {
            if *victim == job.victim {
                *count += 1;
                *took = job.took.max(*took);
                *rest = job.rest.max(*rest);
            }
        }
    }
    let left: Vec<_> = shared_memory().difference(&before).cloned().collect();
    if !left.is_empty() {
        bail!("left in /dev/shm: {left:?}");
    }
    for (victim, count, took, rest) in counts {
        println!(
            "{count} kills of {}: all jobs ended, the slowest within {:.2} s, and their last process {:.2} s after them",
            victim.name(),
            took.as_secs_f64(),
            rest.as_secs_f64()
        );
    }
    println!(
        "{} jobs in {:.0} s; no process left, nothing in /dev/shm",
        options.runs,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
