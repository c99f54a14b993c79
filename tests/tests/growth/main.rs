//! Memory does not grow with the number of operations: resident memory before and after many of each kind, on fabrics that
//! are there within a process.
//!
//! `PORTOLAN_GROWTH_OPERATIONS` says how many, `PORTOLAN_GROWTH_MODELLED` how many on the model, and `PORTOLAN_GROWTH_ONLY` which rows,
//! by words of `operation, fabric`; `cargo xtask growth` prints the table of a million.

mod conduit;
mod portals;
mod tags;

use portals_shim::Region;
use portals_shim::fabric::{self, FabricConfig, Opened};
use portals_shim::nal::{seastar, shm};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// What memory may grow by, KiB, after the warm-up, however many operations follow: the allocator's own.
const BOUND: u64 = 2048;
/// Operations of the warm-up, of one thread.
const WARM: u64 = 3000;
/// Of so many operations of one thread one of ranks that wait for each other, on a machine that may have other work.
const RATIO: u64 = 30;
/// Of so many on the other fabrics one on the model, which simulates every packet.
const MODELLED: u64 = 4;

/// Resident memory, KiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let words = line.unwrap().trim().trim_end_matches("kB");
    words.trim().parse().unwrap()
}

/// How many were asked for by a variable.
fn given(name: &str) -> Option<u64> {
    let given = std::env::var(name).ok();
    given.map(|n| n.parse().unwrap())
}

/// How many of each kind on a fabric, without the warm-up.
#[derive(Clone, Copy)]
struct Counts {
    /// Of one thread.
    operations: u64,
    /// Of ranks that wait for each other.
    exchanges: u64,
}

impl Counts {
    fn new() -> Self {
        let given = given("PORTOLAN_GROWTH_OPERATIONS");
        Self {
            operations: given.unwrap_or(10_000),
            exchanges: given.unwrap_or(10_000 / RATIO),
        }
    }

    fn modelled(self) -> Self {
        let given = given("PORTOLAN_GROWTH_MODELLED");
        Self {
            operations: given.unwrap_or(self.operations / MODELLED),
            exchanges: given.unwrap_or(self.exchanges / MODELLED),
        }
    }
}

/// The rows of one fabric, printed as they come.
struct Table {
    fabric: &'static str,
    counts: Counts,
    only: String,
    /// Rows that were measured.
    rows: AtomicUsize,
    /// Rows that grew by more than the bound.
    over: Mutex<Vec<String>>,
}

impl Table {
    fn new(fabric: &'static str, counts: Counts) -> Self {
        Self {
            fabric,
            counts,
            only: std::env::var("PORTOLAN_GROWTH_ONLY").unwrap_or_default(),
            rows: AtomicUsize::new(0),
            over: Mutex::default(),
        }
    }

    /// Whether the row is asked for; the same answer at each rank.
    fn has(&self, what: &str) -> bool {
        let row = format!("{what}, {}", self.fabric);
        self.only.split(' ').all(|word| row.contains(word))
    }

    /// The growth by many calls of one thread.
    fn measure(&self, what: &str, operation: impl FnMut()) {
        if self.has(what) {
            let count = self.counts.operations;
            self.measure_of(what, (warm(WARM, count), count), operation);
        }
    }

    /// Many calls that wait for another rank, at each rank; the growth by them at rank 0.
    fn exchange(&self, what: &str, rank: u32, mut operation: impl FnMut()) {
        let count = self.counts.exchanges;
        let warm = warm(WARM / RATIO, count);
        if !self.has(what) {
        } else if rank == 0 {
            self.measure_of(what, (warm, count), operation);
        } else {
            (0..warm + count).for_each(|_| operation());
        }
    }

    fn measure_of(&self, what: &str, (warm, count): (u64, u64), mut operation: impl FnMut()) {
        self.rows.fetch_add(1, Ordering::Relaxed);
        (0..warm).for_each(|_| operation());
        let (before, begun) = (resident(), Instant::now());
        (0..count).for_each(|_| operation());
        let growth = resident().saturating_sub(before);
        let (fabric, each) = (
            self.fabric,
            begun.elapsed().as_secs_f64() * 1e6 / count as f64,
        );
        println!("| {what} | {fabric} | {count} | {each:.2} | {growth} |");
        if growth > BOUND {
            let row = format!("{what}, {fabric}: {growth} KiB more after {count}");
            let mut over = self.over.lock().unwrap_or_else(PoisonError::into_inner);
            over.push(row);
        }
    }
}

/// Calls before memory is looked at: at least so many, and an eighth of what is measured. Memory that is taken once, when something
/// rare has happened for the first time, is none that grows with the number.
fn warm(least: u64, count: u64) -> u64 {
    least.max(count / 8)
}

/// Memory that has been written, and so is resident.
fn touched(len: usize) -> Region {
    let region = Region::new(len).unwrap();
    region.fill(0, len, 1).unwrap();
    region
}

/// Two ranks of the model.
fn modelled() -> Vec<Opened> {
    let ranks = seastar::in_threads_of(2, &FabricConfig::default()).unwrap();
    std::thread::scope(|s| {
        let joined: Vec<_> = ranks.into_iter().map(|r| s.spawn(|| r.join())).collect();
        joined
            .into_iter()
            .map(|j| j.join().unwrap().unwrap().into())
            .collect()
    })
}

/// One test, because it measures the whole process.
#[test]
fn memory_does_not_grow_with_the_number_of_operations() {
    type Open = fn() -> Vec<Opened>;
    let counts = Counts::new();
    let fabrics: [(&str, Counts, Open); 3] = [
        ("in process", counts, || fabric::in_process(2)),
        ("shared memory", counts, || {
            fabric::interfaces(shm::in_threads(2).unwrap())
        }),
        ("SeaStar model", counts.modelled(), modelled),
    ];
    println!("resident memory, KiB (at most {BOUND})");
    println!("| operation | fabric | number | µs each | growth |\n|---|---|--:|--:|--:|");
    // The measurement sees what a region of each operation would come to.
    let (check, mut lost) = (Table::new("none", counts), Vec::new());
    let all = (0, counts.operations.min(10_000));
    check.measure_of("a page lost", all, || lost.push(touched(64)));
    let over = check.over.into_inner().unwrap();
    assert!(!over.is_empty(), "a page lost each time is not seen");
    drop(lost);

    let (mut over, mut rows) = (Vec::new(), 0);
    for (name, counts, open) in fabrics {
        let table = Table::new(name, counts);
        // Each rank of the model holds its time, so that one thread cannot drive two.
        if name != "SeaStar model" {
            portals::rows(&table, open());
        }
        tags::rows(&table, open());
        conduit::rows(&table, open());
        rows += table.rows.into_inner();
        over.extend(table.over.into_inner().unwrap());
    }
    assert!(rows > 0, "PORTOLAN_GROWTH_ONLY picks no row");
    assert!(over.is_empty(), "{}", over.join("\n"));
}
