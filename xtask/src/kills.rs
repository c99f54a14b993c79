//! `cargo xtask kills`: jobs over shared memory of which one rank is killed at a random moment, start-up included.
//! Each must end by itself, and nothing may be left: no process, nothing in `/dev/shm`.

use crate::cargo::{self, release_dir};
use crate::wait::{self, Changes, Process};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::ffi::OsString;
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
}

/// How long a job may take to end after the kill.
const PATIENCE: Duration = Duration::from_secs(10);
/// The kill comes within so many milliseconds of the start; a job is in its work after some 50.
const MOMENTS: u64 = 250;

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

/// Processes whose command line has this word.
fn marked(word: &str) -> Vec<u32> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.split(|b| *b == 0).any(|w| w == word.as_bytes())
        })
        .collect()
}

/// What became of a job.
struct Ended {
    ranks: u64,
    /// From its start to the kill, at least.
    moment: Duration,
    /// From the kill to its end.
    took: Duration,
}

/// One job.
fn job(random: &mut Random, round: u32) -> Result<Ended> {
    let bin = release_dir();
    // A number that nobody else uses marks the processes.
    let mark = format!("9{:07}{round:04}", std::process::id());
    let ranks = 2 + random.below(7);
    let moment = Duration::from_millis(random.below(MOMENTS));
    let program = bin.join("gups");
    let starts = Changes::uses(&program)?;
    let mut launcher = Command::new(bin.join("portolan"))
        .args(["run", "--fabric", "shm", "-n", &ranks.to_string(), "--"])
        .arg(&program)
        .args(["--log2-table", "14", "--updates", &mark])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start portolan run")?;
    let running = Process::open(launcher.id())?;
    if running.ends_within(moment)? {
        bail!("round {round}: the job ended before a rank was killed");
    }
    let there = || Ok(Some(children(launcher.id())).filter(|pids| !pids.is_empty()));
    let there = starts.until(&running, PATIENCE, there)?;
    let there = there.with_context(|| format!("round {round}: no rank started"))?;
    let victim = there[random.below(there.len() as u64) as usize];
    Process::open(victim)
        .and_then(|process| process.signal(Signal::KILL))
        .with_context(|| format!("round {round}: rank {victim} had ended before it was killed"))?;
    let killed = Instant::now();
    let Some(status) = wait::end(&mut launcher, PATIENCE)? else {
        let _ = launcher.kill();
        let _ = launcher.wait();
        bail!("round {round}: {ranks} ranks go on {PATIENCE:?} after one was killed at {moment:?}");
    };
    let took = killed.elapsed();
    if status.success() {
        bail!("round {round}: the job says that it succeeded");
    }
    while let Some(pid) = marked(&mark).first() {
        let left = PATIENCE.saturating_sub(killed.elapsed());
        // One that cannot be opened has ended since.
        if let Ok(process) = Process::open(*pid)
            && !process.ends_within(left)?
        {
            bail!("round {round}: processes are left: {:?}", marked(&mark));
        }
    }
    Ok(Ended {
        ranks,
        moment,
        took,
    })
}

pub(crate) fn run(options: &Options) -> Result<()> {
    cargo::build(&["--package", "portolan", "--package", "programs"])?;
    let before = shared_memory();
    let mut random = Random(options.seed);
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    for round in 0..options.runs {
        let job = job(&mut random, round)?;
        longest = longest.max(job.took);
        println!(
            "{:>4} of {}: {} ranks, one killed after {:>3} ms, ended {:>4} ms later",
            round + 1,
            options.runs,
            job.ranks,
            job.moment.as_millis(),
            job.took.as_millis()
        );
    }
    let left: Vec<_> = shared_memory().difference(&before).cloned().collect();
    if !left.is_empty() {
        bail!("left in /dev/shm: {left:?}");
    }
    println!(
        "{} jobs ended after the kill of a rank, the slowest within {:.2} s, all in {:.0} s; no process left, nothing in /dev/shm",
        options.runs,
        longest.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    Ok(())
}
