//! `cargo xtask am-trip`: an active message's round trip on the SeaStar model, as a table of the book.
//!
//! Two traces of the same job, one with more round trips than the other, are counted; the difference is free of the
//! start and the end of the job. The model is deterministic, and every round trip is like the other: what does not
//! divide evenly is an error.

use crate::cargo::{self, release_dir, root};
use crate::endtoend::succeed;
use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::Command;
use tempfile::NamedTempFile;

/// Round trips of the shorter job, and further ones of the longer.
const FEW: u64 = 20;
const MORE: u64 = 40;
const TABLE: &str = "docs/src/mechanisms/am-table.txt";
/// How the NIC is used, for the command line and for the table.
const MODES: [(&str, &str); 2] = [
    ("generic", "generic mode"),
    ("accelerated", "accelerated mode"),
];

/// What is counted of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    traps: u64,
    interrupts: u64,
    packets: u64,
}

impl Counts {
    fn of(trace: &Value) -> Result<Self> {
        let events = trace
            .get("traceEvents")
            .unwrap_or(trace)
            .as_array()
            .context("a trace has events")?;
        let text = |e: &Value, key: &str| e[key].as_str().unwrap_or_default().to_owned();
        let mut tracks = BTreeMap::new();
        for e in events.iter().filter(|e| text(e, "name") == "thread_name") {
            let name = e["args"]["name"].as_str().unwrap_or_default().to_owned();
            tracks.insert((e["pid"].to_string(), e["tid"].to_string()), name);
        }
        let mut counts = Self::default();
        for e in events.iter().filter(|e| text(e, "ph") == "X") {
            let track = tracks.get(&(e["pid"].to_string(), e["tid"].to_string()));
            let track = track.map_or("", String::as_str);
            counts.traps += u64::from(track.starts_with("rank "));
            counts.packets += u64::from(track.starts_with("link "));
            counts.interrupts += u64::from(track == "host" && text(e, "name") == "interrupt");
        }
        Ok(counts)
    }

    /// What one of `times` more costs.
    fn each(self, fewer: Self, times: u64) -> Result<Self> {
        let one = |more: u64, fewer: u64| {
            let all = more.saturating_sub(fewer);
            if !all.is_multiple_of(times) {
                bail!("{all} things in {times} round trips");
            }
            Ok(all / times)
        };
        Ok(Self {
            traps: one(self.traps, fewer.traps)?,
            interrupts: one(self.interrupts, fewer.interrupts)?,
            packets: one(self.packets, fewer.packets)?,
        })
    }
}

fn traced(mode: &str, times: u64) -> Result<Counts> {
    let portolan = release_dir().join("portolan");
    let file = NamedTempFile::new()?;
    let times = times.to_string();
    succeed(
        Command::new(&portolan)
            .args(["trace", "-n", "2", "--mode", mode, "--out"])
            .arg(file.path())
            .arg("--")
            .arg(&portolan)
            .args(["messages", "--round-trips", &times]),
    )?;
    let text = std::fs::read_to_string(file.path()).context("the trace")?;
    let trace: Value = serde_json::from_str(&text)?;
    Counts::of(&trace)
}

/// The median of a round trip, in microseconds of virtual time.
fn microseconds(mode: &str) -> Result<f64> {
    let line = succeed(Command::new(release_dir().join("portolan")).args([
        "bench", "am-short", "-n", "2", "--fabric", "seastar", "--mode", mode, "--json", "-",
    ]))?;
    let record: Value = serde_json::from_str(line.lines().next().unwrap_or_default())?;
    record["median"].as_f64().context("a median")
}

/// Builds the command, counts, and writes the table.
pub(crate) fn run() -> Result<()> {
    cargo::build(&["-p", "portolan"])?;
    let mut table = String::from(
        "| | time, µs (virtual) | traps of the two ranks | packets on links | interrupts of the two hosts |\n\
         |---|---|---|---|---|\n",
    );
    for (mode, words) in MODES {
        let one = traced(mode, FEW + MORE)?.each(traced(mode, FEW)?, MORE)?;
        let Counts {
            traps,
            interrupts,
            packets,
        } = one;
        let time = microseconds(mode)?;
        writeln!(
            table,
            "| {words} | {time:.2} | {traps} | {packets} | {interrupts} |"
        )?;
    }
    print!("{table}");
    std::fs::write(root().join(TABLE), &table).context(TABLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_counted_by_its_tracks() {
        let track = |tid: u32, name: &str| {
            serde_json::json!({"ph": "M", "name": "thread_name", "pid": 1, "tid": tid,
                "args": {"name": name}})
        };
        let event = |tid: u32, name: &str| serde_json::json!({"ph": "X", "name": name, "pid": 1, "tid": tid});
        let trace = serde_json::json!({"traceEvents": [
            track(1, "rank 0"), track(2, "host"), track(3, "link x+"), track(4, "port node"),
            event(1, "put"), event(1, "eq wait"), event(2, "interrupt"), event(2, "put"),
            event(3, "0 to 1"), event(4, "0 to 1"),
            {"ph": "i", "name": "interrupt", "pid": 1, "tid": 2},
        ]});
        let counts = Counts::of(&trace).unwrap();
        let expected = Counts {
            traps: 2,
            interrupts: 1,
            packets: 1,
        };
        assert_eq!(counts, expected);
        let none = Counts::default();
        assert_eq!(counts.each(none, 1).unwrap(), expected);
        assert!(counts.each(none, 2).is_err());
    }
}
