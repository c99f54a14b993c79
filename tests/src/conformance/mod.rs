//! One body for each scenario of `docs/src/scenarios.md` that involves two processes, run on every
//! fabric.
//!
//! A case is a function that every rank calls on its own thread. Rank 0 initiates, rank 1 is the
//! target; the few cases with more ranks say so. Ranks meet by `Rank::barrier`, which is made of
//! Portals messages: a rank that waited outside the fabric would stop virtual time for the others.

mod access;
mod events;
mod get;
mod iovec;
mod lifetime;
mod matching;
mod patterns;
mod pieces;
mod put;
mod rank;
mod threshold;
mod transfer;
mod update;

use crate::harness::{Effort, Harness, Join};
use portals_shim::Interface;
use rank::Rank;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Barrier, mpsc};
use std::time::Duration;

/// One scenario.
struct Case {
    /// What is true, in words.
    name: &'static str,
    /// Scenarios (`docs/src/scenarios.md`) and rules (`docs/src/mechanisms`).
    covers: &'static str,
    ranks: u32,
    /// The body closes an interface, so that the ranks cannot meet afterwards.
    closes: bool,
    body: fn(&Rank),
}

/// A case of two ranks.
const fn case(name: &'static str, covers: &'static str, body: fn(&Rank)) -> Case {
    Case {
        name,
        covers,
        ranks: 2,
        closes: false,
        body,
    }
}

fn cases() -> impl Iterator<Item = &'static Case> {
    [
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
        patterns::CASES,
    ]
    .into_iter()
    .flatten()
}

/// The environment variable that restricts a run to cases whose name or numbers contain its value.
pub const FILTER: &str = "PORTOLAN_CASE";

/// Runs every case and prints a table.
///
/// # Panics
/// When a case fails, after all have run; the message names those that did.
pub fn run(harness: &dyn Harness) {
    let filter = std::env::var(FILTER).unwrap_or_default();
    let mut failed = Vec::new();
    for case in cases() {
        if !case.name.contains(&filter) && !case.covers.contains(&filter) {
            continue;
        }
        let joins = match harness.open(case.ranks) {
            Ok(joins) => joins,
            Err(reason) => {
                println!("skipped: {} ({reason})", harness.name());
                return;
            }
        };
        let started = std::time::Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| run_case(harness, case, joins)));
        let word = if result.is_ok() { "pass" } else { "FAIL" };
        println!(
            "{:<12} {:<28} {:<60} {word} ({} ms)",
            harness.name(),
            case.covers,
            case.name,
            started.elapsed().as_millis()
        );
        if result.is_err() {
            failed.push(case.name);
        }
    }
    assert!(
        failed.is_empty(),
        "{} cases failed on {}: {}",
        failed.len(),
        harness.name(),
        failed.join("; ")
    );
}

/// Waits for all ranks, outside the fabric: when a rank has failed, messages would not come.
fn meet(gate: &Barrier, ni: Option<&Interface>) {
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

fn run_rank(case: &Case, effort: Effort, rank: u32, join: Join, gate: &Barrier) {
    let made = catch_unwind(AssertUnwindSafe(|| {
        let opened = join().unwrap_or_else(|e| panic!("rank {rank} cannot join: {e}"));
        Rank::new(rank, opened, effort)
    }));
    // Every rank's bell hangs before any is rung.
    meet(gate, made.as_ref().ok().map(|r| &r.ni));
    let done = made.and_then(|r| {
        let body = catch_unwind(AssertUnwindSafe(|| {
            (case.body)(&r);
            if !case.closes {
                r.barrier();
            }
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
const LIMIT: Duration = Duration::from_secs(120);

fn run_case(harness: &dyn Harness, case: &'static Case, joins: Vec<Join>) {
    let gate = Arc::new(Barrier::new(joins.len()));
    let effort = harness.effort();
    let ranks = joins.len();
    let (done, results) = mpsc::channel();
    for (rank, join) in (0..).zip(joins) {
        let (gate, done) = (Arc::clone(&gate), done.clone());
        let body = move || {
            let run = AssertUnwindSafe(|| run_rank(case, effort, rank, join, &gate));
            // The receiver is gone if another rank never came back.
            let _ = done.send(catch_unwind(run));
        };
        std::thread::Builder::new()
            .name(format!("{}, rank {rank}", case.name))
            .spawn(body)
            .expect("a thread starts");
    }
    let mut failed = None;
    for _ in 0..ranks {
        match results.recv_timeout(LIMIT) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => failed = Some(e),
            Err(_) => panic!("\"{}\": a rank has not returned in {LIMIT:?}", case.name),
        }
    }
    if let Some(e) = failed {
        resume_unwind(e);
    }
}
