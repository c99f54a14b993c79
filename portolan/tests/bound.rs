//! Ranks that are bound one to a processor poll as unbound ones do: in the same exchange they give their processors up as
//! often, by the counts of the kernel.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use portals_shim::allowed_processors;
use portals_shim::fabric::{self, FabricConfig};
use portals_shim::job::Job;
use rustix::thread::{CpuSet, sched_setaffinity};
use tagged::{Options, World};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");
/// Makes this executable a rank: how often it meets the other one, and whether it is bound.
const RANK: &str = "PORTOLAN_TEST_RANK";
/// What a rank calls its result.
const RESULT: &str = "voluntary switches: ";
/// One job may meet with other work of the machine, which makes everybody sleep: the least of these many counts.
const JOBS: usize = 5;
/// Of so many waits one may end in a sleep whoever is bound.
const RARE: u64 = 50;

/// How often this thread has given its processor up.
fn switches() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    let count = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

/// A rank of the jobs below; nothing where this executable is not one.
#[test]
fn rank_of_a_job() {
    let Ok(said) = std::env::var(RANK) else {
        return;
    };
    let (meetings, bound) = said.split_once(' ').unwrap();
    let job = Job::from_env().unwrap();
    if bound == "bound" {
        let mut own = CpuSet::new();
        own.set(allowed_processors()[job.rank() as usize]);
        sched_setaffinity(None, &own).unwrap();
    }
    let opened = fabric::open(&job, &FabricConfig::from_env().unwrap()).unwrap();
    let world = World::open(opened, job.rank(), &Options::default(), || job.fence()).unwrap();
    let comm = world.comm();
    // One computes for longer than looks that find nothing take, and for less than a rank with a processor polls.
    let work = || {
        let until = Instant::now() + Duration::from_micros(20);
        while job.rank() == 1 && Instant::now() < until {
            std::hint::spin_loop();
        }
    };
    let meet = |times: u64| {
        (0..times).for_each(|_| {
            work();
            comm.barrier().unwrap();
        });
    };
    meet(100);
    let before = switches();
    meet(meetings.parse().unwrap());
    println!("\n{RESULT}{}", switches() - before);
    world.finish(|| job.fence()).unwrap();
    job.finalize().unwrap();
}

/// How often the ranks of a job of two have given their processors up.
fn job(words: &[&str], meetings: u64, bound: &str) -> u64 {
    let own = std::env::current_exe().unwrap();
    let output = Command::new(PORTOLAN)
        .args(["run", "-n", "2", "--timeout", "120"])
        .args(words)
        .arg("--")
        .arg(own)
        .args(["--exact", "rank_of_a_job", "--nocapture"])
        .env(RANK, format!("{meetings} {bound}"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}{error}");
    let counts = said
        .lines()
        .filter_map(|line| line.split_once(RESULT))
        .map(|(_, count)| count.trim().parse::<u64>().unwrap());
    let counts: Vec<u64> = counts.collect();
    assert_eq!(counts.len(), 2, "{said}");
    counts.iter().sum()
}

/// Compares jobs of ranks that meet so often.
fn bound_ranks_poll(words: &[&str], meetings: u64) {
    if allowed_processors().len() < 2 {
        println!("skipped: one processor only");
        return;
    }
    let (mut free, mut bound) = (u64::MAX, u64::MAX);
    for _ in 0..JOBS {
        free = free.min(job(words, meetings, "free"));
        bound = bound.min(job(words, meetings, "bound"));
        println!("{words:?}: at least {free} switches of unbound ranks, {bound} of bound ones");
        if bound <= 2 * free.max(meetings / RARE) {
            return;
        }
    }
    panic!("{words:?}: {bound} switches of bound ranks, {free} of unbound ones");
}

#[test]
fn bound_ranks_poll_over_shared_memory() {
    bound_ranks_poll(&["--fabric", "shm"], 5000);
}

/// Over the device alone by each of its channels, and where memory is shared.
#[test]
fn bound_ranks_poll_over_verbs() {
    let device = std::env::var("PORTOLAN_TEST_DEVICE").unwrap_or_default();
    if device.is_empty() {
        println!("skipped: no RDMA device");
        return;
    }
    let over = ["--fabric", "verbs", "--device", &device];
    for channel in ["rc", "ud", "auto"] {
        bound_ranks_poll(
            &[&over[..], &["--no-shm", "--channel", channel]].concat(),
            200,
        );
    }
    bound_ranks_poll(&over, 2000);
}
