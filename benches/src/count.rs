//! Instructions of one delivery, counted by valgrind's callgrind, against the recorded figure.
//!
//! A run of N deliveries and one of 2N are counted; the difference divided by N is free of the
//! start of the program and the making of the list.

use crate::device::{self, Written};
use crate::endpoints::{self, Endpoints};
use crate::tags::{self, Fold, Tagged};
use crate::turns::{Doing, Over, round_trips};
use crate::{Before, Joined, Pair};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use tagged::TagMode;

/// Deliveries of the shorter run.
pub const DELIVERIES: u64 = 10_000;

/// What is counted, by the names of `instructions.toml`.
pub const WORKLOADS: [&str; 33] = [
    "deliver-1",
    "deliver-10",
    "deliver-1000",
    "put-and-ack",
    "deliver-1-in-steps",
    "deliver-10-in-steps",
    "deliver-1000-in-steps",
    "put-and-ack-in-steps",
    "put-in-place",
    "get-in-place",
    "interface-look",
    "interface-put",
    "interface-put-and-ack",
    "am-short",
    STATIC,
    "am-short-shm",
    "conduit-put",
    HELD,
    "conduit-get",
    GET_HELD,
    "segment-put-shm",
    "segment-get-shm",
    "tag-round-trip",
    "tag-round-trip-source",
    "tag-round-trip-behind-10",
    "tag-round-trip-behind-1000",
    WINDOW,
    LIBFABRIC_WINDOW,
    FETCH_ADD,
    "tag-bits",
    "tag-bits-source",
    "tag-bits-branching",
    VERBS,
];

/// `am-short` with credits that do not move.
pub const STATIC: &str = "am-short-static";
/// What credits that move may cost where none moves, percent of `am-short-static`.
pub const DYNAMIC_PERCENT: u64 = 2;

/// A put to memory that is pinned where it is used, and is: `conduit-put` is one to memory that is pinned as a whole.
pub const HELD: &str = "conduit-put-held";
/// A get of 4 KiB from memory that is pinned where it is used; `conduit-get` is one from memory that is pinned as a whole.
pub const GET_HELD: &str = "conduit-get-held";
/// What a put may cost more where its memory has to be looked for among what is held, instructions.
pub const HIT: u64 = 450;
/// The same of a get, whose memory is looked for at both ends.
pub const GET_HIT: u64 = 550;

/// A tagged message of a window over shared memory.
const WINDOW: &str = "tag-window-shm";
/// The same of the libfabric provider's engine.
const LIBFABRIC_WINDOW: &str = "libfabric-window-shm";
/// A fetching atomic operation of that engine over shared memory.
const FETCH_ADD: &str = "libfabric-fetch-add-shm";

/// A put of 8 bytes over verbs, and its ack; counted where there is a device.
const VERBS: &str = "verbs-put-and-ack";
/// Puts of the shorter run of that, each of which waits for the device.
const PUTS: u64 = 500;

/// What of a workload is not counted: two threads that take turns doing nothing else.
const TURNS: &str = "turns";

/// What went wrong with counting.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// There is no such workload.
    #[error("workload {0:?} is none of {all}", all = WORKLOADS.join(", "))]
    Workload(String),
    /// The workload did not do what it counts.
    #[error("delivery {0} of {1} did not arrive")]
    Lost(u64, String),
    /// The library refused.
    #[error("the list cannot be made: {0}")]
    Library(#[from] portals_core::Error),
    /// A tagged message was refused.
    #[error(transparent)]
    Tag(#[from] tagged::CallError),
    /// Tag matching cannot be opened.
    #[error(transparent)]
    Tags(#[from] tagged::OpenError),
    /// There is no pair of endpoints.
    #[error(transparent)]
    Device(#[from] device::DeviceError),
    /// There are no endpoints of the libfabric provider.
    #[error(transparent)]
    Endpoints(#[from] endpoints::PairError),
    /// There is no device.
    #[error("PORTOLAN_TEST_DEVICE names no RDMA device")]
    NoDevice,
    /// Valgrind or a file could not be used.
    #[error("{0}: {1}")]
    Io(String, #[source] io::Error),
    /// Valgrind ran and said no.
    #[error("valgrind failed: {0}")]
    Valgrind(String),
    /// The recorded figures are not readable.
    #[error("{0}: {1}")]
    Record(String, #[source] toml::de::Error),
}

/// The committed figures.
#[derive(Debug, Deserialize, Serialize)]
pub struct Record {
    /// The rise, in percent, from which on the check fails.
    pub tolerance_percent: u64,
    /// Instructions of one delivery of each workload.
    pub instructions: BTreeMap<String, u64>,
}

impl Record {
    /// Reads `path`.
    ///
    /// # Errors
    /// When the file is missing or not of this form.
    pub fn read(path: &Path) -> Result<Self, CountError> {
        let name = || path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| CountError::Io(name(), e))?;
        toml::from_str(&text).map_err(|e| CountError::Record(name(), e))
    }

    /// The most that `workload` may cost; `None` for one that is not recorded.
    #[must_use]
    pub fn limit(&self, workload: &str) -> Option<u64> {
        let recorded = self.instructions.get(workload)?;
        Some(recorded * (100 + self.tolerance_percent) / 100)
    }
}

/// Does `one` so often; whether each was done.
fn repeat(workload: &str, times: u64, mut one: impl FnMut() -> bool) -> Result<(), CountError> {
    let lost = (0..times).find(|_| !one());
    lost.map_or(Ok(()), |i| Err(CountError::Lost(i, workload.to_owned())))
}

/// So many round trips of active messages; whether each had its reply.
fn replies(workload: &str, times: u64, over: Over, doing: Doing) -> Result<(), CountError> {
    let came = round_trips(over, doing, times).unwrap_or(0);
    (came == times)
        .then_some(())
        .ok_or_else(|| CountError::Lost(came, workload.to_owned()))
}

/// So many messages' bits; whether each was right.
fn folds(workload: &str, times: u64, fold: Fold) -> Result<(), CountError> {
    let right = fold.repeat(times);
    (right == times)
        .then_some(())
        .ok_or_else(|| CountError::Lost(right, workload.to_owned()))
}

/// Does `workload` `times` times.
///
/// # Errors
/// When one of them is not delivered.
pub fn run(workload: &str, times: u64) -> Result<(), CountError> {
    let before = match workload {
        "deliver-10" | "deliver-10-in-steps" => 9,
        "deliver-1000" | "deliver-1000-in-steps" => 999,
        _ => 0,
    };
    let mut pair = Pair::new(Before::Exact(before), true)?;
    let joined = Joined::new()?;
    match workload {
        "deliver-1" | "deliver-10" | "deliver-1000" => {
            repeat(workload, times, || pair.deliver().is_some())
        }
        "deliver-1-in-steps" | "deliver-10-in-steps" | "deliver-1000-in-steps" => {
            repeat(workload, times, || pair.deliver_in_steps().is_some())
        }
        "put-and-ack" => repeat(workload, times, || pair.put_and_ack()),
        "put-and-ack-in-steps" => repeat(workload, times, || pair.put_and_ack_in_steps()),
        "put-in-place" => repeat(workload, times, || pair.put_in_place()),
        "get-in-place" => repeat(workload, times, || pair.get_in_place()),
        "interface-look" => repeat(workload, times, || joined.look()),
        "interface-put" => repeat(workload, times, || joined.put()),
        "interface-put-and-ack" => repeat(workload, times, || joined.put_and_ack()),
        "am-short" | STATIC => replies(workload, times, Over::Process, Doing::Request),
        "am-short-shm" => replies(workload, times, Over::Memory, Doing::Request),
        "conduit-put" => replies(workload, times, Over::Process, Doing::PutInSegment),
        HELD => replies(workload, times, Over::Process, Doing::PutHeld),
        "conduit-get" => replies(workload, times, Over::Process, Doing::GetInSegment),
        GET_HELD => replies(workload, times, Over::Process, Doing::GetHeld),
        "segment-put-shm" => replies(workload, times, Over::Memory, Doing::PutAlone),
        "segment-get-shm" => replies(workload, times, Over::Memory, Doing::GetAlone),
        "tag-round-trip" | "tag-round-trip-source" => {
            let mode = match workload {
                "tag-round-trip" => TagMode::Full,
                _ => TagMode::Tag1,
            };
            let tagged = Tagged::new(Over::Process, mode)?;
            repeat(workload, times, || tagged.round_trip())
        }
        "tag-round-trip-behind-10" | "tag-round-trip-behind-1000" => {
            let mut tagged = Tagged::new(Over::Process, TagMode::Full)?;
            let ahead = if workload.ends_with("-1000") {
                1000
            } else {
                10
            };
            tagged.post_ahead(ahead)?;
            repeat(workload, times, || tagged.round_trip())
        }
        WINDOW => {
            let tagged = Tagged::new(Over::Memory, TagMode::Full)?;
            let windows = times.div_ceil(tags::WINDOW);
            repeat(workload, windows, || tagged.window())
        }
        LIBFABRIC_WINDOW => {
            let pair = Endpoints::new(8)?;
            let windows = times.div_ceil(endpoints::WINDOW);
            repeat(workload, windows, || pair.window())
        }
        FETCH_ADD => {
            let pair = Endpoints::new(8)?;
            repeat(workload, times, || pair.fetch_add())
        }
        "tag-bits" => folds(workload, times, Fold::Full),
        "tag-bits-source" => folds(workload, times, Fold::Source),
        "tag-bits-branching" => folds(workload, times, Fold::Branching),
        VERBS => {
            let mut pair = Written::over(&device::device().ok_or(CountError::NoDevice)?)?;
            repeat(workload, times, || pair.put())
        }
        TURNS => round_trips(Over::Process, Doing::Nothing, times)
            .map(|_| ())
            .ok_or_else(|| CountError::Lost(0, workload.to_owned())),
        other => Err(CountError::Workload(other.to_owned())),
    }
}

/// What the turns of [`DELIVERIES`] take.
static TURNS_COST: OnceLock<u64> = OnceLock::new();

/// Runs of a job of ranks, of which the least counts. Single runs differ by up to 5 instructions a delivery; what is over its limit
/// is counted again.
const RUNS: u32 = 2;

/// Whether a workload cannot be counted here, and why.
#[must_use]
pub fn is_missing(workload: &str) -> Option<&'static str> {
    (workload == VERBS && device::device().is_none()).then_some("no RDMA device to test with")
}

/// Whether valgrind can be started.
#[must_use]
pub fn has_valgrind() -> bool {
    let version = Command::new("valgrind").arg("--version").output();
    version.is_ok_and(|o| o.status.success())
}

/// Keeps this process, and what it starts, to one processor. Ranks take turns, so one is all they need; on two, how they hand
/// over varies by some tens of instructions a delivery from run to run.
///
/// # Errors
/// The system's.
pub fn keep_to_one_processor() -> Result<(), CountError> {
    let failed = |e: rustix::io::Errno| CountError::Io("one processor".to_owned(), e.into());
    let allowed = sched_getaffinity(None).map_err(failed)?;
    let mut one = CpuSet::new();
    if let Some(cpu) = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)) {
        one.set(cpu);
    }
    sched_setaffinity(None, &one).map_err(failed)
}

/// The instructions that `program` executes for `times` deliveries.
fn total(program: &Path, workload: &str, times: u64) -> Result<u64, CountError> {
    let counted: &[&str] = match workload {
        VERBS => &["--collect-atstart=no", "--toggle-collect=*device*counted_*"],
        _ => &[],
    };
    let out = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .args(counted)
        .arg(program)
        .args(["run", workload, &times.to_string()])
        .env(
            "GASNET_PORTAL_DYNAMIC_CREDITS",
            if workload == STATIC { "0" } else { "1" },
        )
        .output()
        .map_err(|e| CountError::Io("valgrind".to_owned(), e))?;
    let said = String::from_utf8_lossy(&out.stderr);
    let last = || said.lines().last().unwrap_or_default().to_owned();
    let done = String::from_utf8_lossy(&out.stdout).trim() == format!("{times} deliveries");
    if !out.status.success() || !done {
        return Err(CountError::Valgrind(last()));
    }
    said.lines()
        .find_map(|line| line.split_once("Collected : ")?.1.trim().parse().ok())
        .ok_or_else(|| CountError::Valgrind(last()))
}

/// The instructions of one delivery of `workload` by `program`, rounded up. Counted again it is better known, by the runs
/// before too.
///
/// # Errors
/// When valgrind cannot run it to its end.
pub fn per_delivery(program: &Path, workload: &str) -> Result<u64, CountError> {
    if workload == VERBS {
        let all = difference(program, workload, RUNS, PUTS)?;
        return Ok(all.div_ceil(PUTS));
    }
    if !(workload.starts_with("am-") || workload.starts_with("conduit-")) {
        let all = difference(program, workload, 1, DELIVERIES)?;
        return Ok(all.div_ceil(DELIVERIES));
    }
    let all = difference(program, workload, RUNS, DELIVERIES)?;
    // Once for all workloads, so that those that are compared have the same taken off.
    let turns = match TURNS_COST.get() {
        Some(turns) => *turns,
        None => {
            let turns = difference(program, TURNS, RUNS, DELIVERIES)?;
            *TURNS_COST.get_or_init(|| turns)
        }
    };
    Ok(all.saturating_sub(turns).div_ceil(DELIVERIES))
}

/// The fewest instructions that were seen, of each workload and number of deliveries.
static LEAST: Mutex<BTreeMap<(String, u64), u64>> = Mutex::new(BTreeMap::new());

/// The least of so many runs, and of those before.
fn least(program: &Path, workload: &str, times: u64, runs: u32) -> Result<u64, CountError> {
    let mut least = u64::MAX;
    for _ in 0..runs {
        least = least.min(total(program, workload, times)?);
    }
    let mut known = LEAST.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known
        .entry((workload.to_owned(), times))
        .or_insert(u64::MAX);
    *known = least.min(*known);
    Ok(*known)
}

/// What so many `deliveries` more of a workload cost, by the least of so many runs of each number: ranks that wait for each
/// other at the start of a run execute some hundred thousand instructions more or fewer, as valgrind lets them run in turn.
fn difference(
    program: &Path,
    workload: &str,
    runs: u32,
    deliveries: u64,
) -> Result<u64, CountError> {
    let one = least(program, workload, deliveries, runs)?;
    let two = least(program, workload, 2 * deliveries, runs)?;
    Ok(two.saturating_sub(one))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_percent_more_passes_and_six_does_not() {
        let record = Record {
            tolerance_percent: 5,
            instructions: BTreeMap::from([("deliver-1".to_owned(), 1000)]),
        };
        assert_eq!(record.limit("deliver-1"), Some(1050));
        assert_eq!(record.limit("deliver-2"), None);
    }

    #[test]
    fn every_workload_is_recorded_and_runs() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("instructions.toml");
        let record = Record::read(&path).unwrap();
        assert_eq!(record.tolerance_percent, 5);
        for workload in WORKLOADS {
            assert!(record.limit(workload).is_some(), "{workload}");
            match is_missing(workload) {
                Some(why) => println!("skipped: {workload}: {why}"),
                None => run(workload, 3).unwrap(),
            }
        }
        assert!(run("other", 1).is_err());
    }
}
