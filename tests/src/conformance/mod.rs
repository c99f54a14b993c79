//! One body for each scenario of `docs/src/scenarios.md` that involves two processes, run on every
//! fabric.
//!
//! A case is a function that every rank calls on its own thread. Rank 0 initiates, rank 1 is the
//! target; the few cases with more ranks say so. Ranks meet by `Rank::barrier`, which is made of
//! Portals messages: a rank that waited outside the fabric would stop virtual time for the others.
//!
//! A line of output is one result, for people and for `cargo xtask conformance`:
//!
//! ```text
//! conformance | MODE | SCENARIOS AND RULES | CASE | pass, FAIL or n/a: WHY | TIME
//! ```

mod access;
mod case;
mod events;
mod get;
mod interfaces;
mod iovec;
mod lifetime;
mod matching;
mod patterns;
mod pieces;
mod put;
mod quiet;
mod rank;
mod serves;
mod threads;
mod threshold;
mod transfer;
mod update;

use crate::harness::{Effort, Harness, Join, Mode};
use case::{Case, OneSided};
use portals_shim::Interface;
use portals_shim::fabric::{self, FabricConfig};
use portals_shim::job::Job;
pub use rank::ROUNDS;
use rank::{Rank, rounds};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

fn cases() -> impl Iterator<Item = &'static Case> {
    [
        interfaces::CASES,
        matching::CASES,
        access::CASES,
        put::CASES,
        transfer::CASES,
        get::CASES,
        threshold::CASES,
        lifetime::CASES,
        events::CASES,
        update::CASES,
        iovec::CASES,
        quiet::CASES,
        serves::CASES,
        threads::CASES,
        patterns::CASES,
    ]
    .into_iter()
    .flatten()
}

/// The environment variable that restricts a run to cases whose name or numbers contain its value.
pub const FILTER: &str = "PORTOLAN_CASE";

/// Those of [`cases`] that [`FILTER`] picks.
///
/// # Panics
/// It picks none.
fn chosen() -> Vec<&'static Case> {
    let filter = std::env::var(FILTER).unwrap_or_default();
    let picks = |case: &&Case| case.name.contains(&filter) || case.covers.contains(&filter);
    let chosen: Vec<_> = cases().filter(picks).collect();
    assert!(!chosen.is_empty(), "{FILTER}: no case has {filter:?}");
    chosen
}

/// Runs every case and prints a table.
///
/// # Panics
/// When a case fails, after all have run; the message names those that did.
pub fn run(mode: &Mode) {
    let harness = (mode.harness)();
    let mut failed = Vec::new();
    for case in chosen() {
        let started = std::time::Instant::now();
        let left_out = harness.leaves_out(case.name).or(match case.one_sided {
            OneSided::No(why) if harness.one_sided() => Some(why),
            _ => None,
        });
        let word = match left_out {
            Some(why) => format!("n/a: {why}"),
            None => {
                let joins = match harness.open(case.ranks) {
                    Ok(joins) => joins,
                    Err(reason) => {
                        println!("skipped: {} ({reason})", mode.name);
                        return;
                    }
                };
                let run = AssertUnwindSafe(|| run_case(harness.as_ref(), case, joins));
                if catch_unwind(run).is_ok() {
                    "pass".to_owned()
                } else {
                    failed.push(case.name);
                    "FAIL".to_owned()
                }
            }
        };
        println!(
            "conformance | {} | {} | {} | {word} | {} ms",
            mode.name,
            case.covers,
            case.name,
            started.elapsed().as_millis()
        );
    }
    assert!(
        failed.is_empty(),
        "{} cases failed on {}: {}",
        failed.len(),
        mode.name,
        failed.join("; ")
    );
}

/// Runs every case made for as many ranks as the job has, each rank a process, over the fabric that the environment
/// names; rank 0 prints the table. A case that fails ends the job.
///
/// # Panics
/// When the fabric cannot be opened.
pub fn run_job(job: Job) {
    let config = FabricConfig::from_env().expect("variables of the fabric");
    let config = fabric::resolve(&job, &config).expect("the ranks agree on a fabric");
    let job = Arc::new(job);
    let mut passed = 0;
    for case in chosen() {
        if case.ranks != job.size() {
            continue;
        }
        let started = std::time::Instant::now();
        let opened = fabric::open(&job, &config).expect("the fabric opens");
        let run = Run {
            effort: Effort::Small,
            one_sided: false,
            gate: Gate::Processes(Arc::clone(&job)),
            served: AtomicU64::new(0),
        };
        let body = AssertUnwindSafe(|| run_rank(case, &run, job.rank(), Box::new(|| Ok(opened))));
        if catch_unwind(body).is_err() {
            job.abort(1, &format!("case \"{}\" failed", case.name));
        }
        passed += 1;
        if job.rank() == 0 {
            println!(
                "conformance | {} processes | {} | {} | pass | {} ms",
                config.fabric,
                case.covers,
                case.name,
                started.elapsed().as_millis()
            );
        }
    }
    if job.rank() == 0 {
        println!("{passed} cases passed over {} ranks", job.size());
    }
    job.finalize().expect("the launcher takes the end");
}

/// Where all ranks of a run meet, outside the fabric.
#[derive(Debug)]
enum Gate {
    Threads(Barrier),
    Processes(Arc<Job>),
}

impl Gate {
    fn wait(&self) {
        match self {
            Self::Threads(barrier) => {
                barrier.wait();
            }
            Self::Processes(job) => job.barrier().expect("the launcher keeps the barrier"),
        }
    }
}

/// Waits for all ranks, outside the fabric: when a rank has failed, messages would not come.
fn meet(gate: &Gate, ni: Option<&Interface>) {
    let met = Cell::new(false);
    let wait = || {
        gate.wait();
        met.set(true);
    };
    if let Some(ni) = ni {
        let _ = ni.outside(wait);
    }
    if !met.get() {
        wait();
    }
}

/// What the ranks of a run have in common.
#[derive(Debug)]
struct Run {
    effort: Effort,
    one_sided: bool,
    gate: Gate,
    /// Messages that adapters served, over all ranks.
    served: AtomicU64,
}

fn run_rank(case: &Case, run: &Run, rank: u32, join: Join) {
    let gate = &run.gate;
    let made = catch_unwind(AssertUnwindSafe(|| {
        let opened = join().unwrap_or_else(|e| panic!("rank {rank} cannot join: {e}"));
        Rank::new(rank, opened, run.effort, run.one_sided)
    }));
    // Every rank's bell hangs before any is rung.
    meet(gate, made.as_ref().ok().map(|r| &r.ni));
    let done = made.and_then(|r| {
        let body = catch_unwind(AssertUnwindSafe(|| {
            (case.body)(&r);
            if !case.closes {
                r.barrier();
            }
            run.served.fetch_add(r.served(), Ordering::Relaxed);
        }));
        if body.is_err() {
            // A failed rank leaves the fabric, so that time goes on for the others.
            let _ = r.ni.close();
        }
        body.map(|()| r.ni.clone())
    });
    // Nobody closes while another may still need its progress.
    meet(gate, done.as_ref().ok());
    match done {
        Ok(ni) if case.closes => drop(ni.close()),
        Ok(ni) => ni.close().expect("the interface closes"),
        Err(e) => resume_unwind(e),
    }
}

/// Longer than any case takes; a call that never returns is a failure, not the end of the run.
fn limit() -> Duration {
    Duration::from_secs(120) + Duration::from_millis(rounds().unwrap_or(0))
}

fn run_case(harness: &dyn Harness, case: &'static Case, joins: Vec<Join>) {
    let run = Arc::new(Run {
        effort: harness.effort(),
        one_sided: harness.one_sided(),
        gate: Gate::Threads(Barrier::new(joins.len())),
        served: AtomicU64::new(0),
    });
    let ranks = joins.len();
    let (done, results) = mpsc::channel();
    for (rank, join) in (0..).zip(joins) {
        let (run, done) = (Arc::clone(&run), done.clone());
        let body = move || {
            let body = AssertUnwindSafe(|| run_rank(case, &run, rank, join));
            // The receiver is gone if another rank never came back.
            let _ = done.send(catch_unwind(body));
        };
        std::thread::Builder::new()
            .name(format!("{}, rank {rank}", case.name))
            .spawn(body)
            .expect("a thread starts");
    }
    let mut failed = None;
    for _ in 0..ranks {
        match results.recv_timeout(limit()) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => failed = Some(e),
            Err(_) => panic!(
                "\"{}\": a rank has not returned in {:?}",
                case.name,
                limit()
            ),
        }
    }
    if let Some(e) = failed {
        resume_unwind(e);
    }
    if let OneSided::Serves(least) = case.one_sided
        && run.one_sided
    {
        let served = run.served.load(Ordering::Relaxed);
        assert!(
            served >= least,
            "\"{}\": adapters served {served} messages, not {least}",
            case.name
        );
    }
}
