//! Trace and statistics files: what the variables choose is in them, and nothing else.

use super::returned;
use crate::trace::Mask;
use crate::{BarrierName, Conduit, HandlerEntry, Par, threads};
use std::path::Path;
use tempfile::TempDir;

/// A folder for the files of one test.
pub(super) struct Files(TempDir);

impl Files {
    pub(super) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(super) fn folder(&self) -> &Path {
        self.0.path()
    }

    /// The name that ranks are given.
    fn pattern(&self, what: &str) -> String {
        self.0
            .path()
            .join(format!("{what}.%"))
            .display()
            .to_string()
    }

    /// What a rank has written.
    fn read(&self, what: &str, rank: u32) -> Option<String> {
        std::fs::read_to_string(self.0.path().join(format!("{what}.{rank}"))).ok()
    }
}

/// The rest of a line of the summary, after its name and a colon.
fn rest<'a>(file: &'a str, name: &str) -> Option<&'a str> {
    file.lines().find_map(|line| {
        let (_, text) = line.split_once(">  ")?;
        let (found, rest) = text.split_once(':')?;
        (found == name).then_some(rest)
    })
}

fn count(file: &str, name: &str) -> Option<u64> {
    rest(file, name)?.split_whitespace().next()?.parse().ok()
}

/// Lines with a time that name an event.
fn lines(file: &str, event: &str) -> usize {
    file.lines()
        .filter(|l| l.contains("s> ") && l.contains(&format!(") {event}:")))
        .count()
}

fn meet(conduit: &Conduit) {
    conduit.barrier(BarrierName::Anonymous).unwrap();
}

/// Operations on the own rank have no lines if none are wanted, and are counted all the same; ranks that are not
/// listed write no file; messages are counted as they were sent.
#[test]
fn lines_counters_and_ranks_are_chosen() {
    let files = Files::new();
    for local in ["0", "1"] {
        let (trace, stats) = (format!("t{local}"), format!("s{local}"));
        let (trace_file, stats_file) = (files.pattern(&trace), files.pattern(&stats));
        let variables = [
            ("GASNET_TRACEFILE", trace_file.as_str()),
            ("GASNET_STATSFILE", stats_file.as_str()),
            ("GASNET_TRACELOCAL", local),
            ("GASNET_STATSNODES", "1"),
        ];
        let ends = threads::run_in(2, &variables, |conduit| {
            let idle = HandlerEntry::new(200, |_, _, _| {});
            conduit.attach(vec![idle], 4096).unwrap();
            let (me, peer) = (conduit.mynode(), 1 - conduit.mynode());
            for (node, times) in [(me, 3), (peer, 2)] {
                let at = conduit.segment(node).addr;
                for _ in 0..times {
                    conduit.put(node, at, &[1; 8]).unwrap();
                }
            }
            for _ in 0..5 {
                conduit.am_request_short(peer, 200, &[]).unwrap();
            }
            meet(conduit);
        });
        returned(ends);
        assert_eq!(files.read(&stats, 0), None, "rank 0 is not listed");
        let stats = files.read(&stats, 1).unwrap();
        for rank in [0, 1] {
            let trace = files.read(&trace, rank).unwrap();
            let seen = if local == "1" { 3 } else { 0 };
            // A line of the operation, and one of the data.
            assert_eq!(lines(&trace, "PUT_LOCAL"), 2 * seen, "{trace}");
            assert_eq!(lines(&trace, "PUT"), 2 * 2, "{trace}");
            for file in [&trace, &stats] {
                assert_eq!(count(file, "PUT_LOCAL"), Some(3), "{file}");
                assert_eq!(count(file, "PUT"), Some(2), "{file}");
                assert_eq!(count(file, "AMREQUEST_SHORT cnt"), Some(5), "{file}");
            }
        }
    }
}

/// A mask that changes while the program runs counts from there on; what was counted at any time is in the summary.
#[test]
fn masks_of_statistics_change_while_a_program_runs() {
    let files = Files::new();
    let file = files.pattern("s");
    let variables = [
        ("GASNET_STATSFILE", file.as_str()),
        ("GASNET_STATSMASK", "G"),
    ];
    let ends = threads::run_in(1, &variables, |conduit| {
        conduit.attach(vec![], 4096).unwrap();
        let at = conduit.segment(0).addr;
        for mask in ["G", "P", "G", "P", "G"] {
            conduit.tracer().unwrap().set_stats_mask(Mask::parse(mask));
            conduit.put(0, at, &[1; 8]).unwrap();
            conduit.get(&mut [0; 8], 0, at).unwrap();
        }
    });
    returned(ends);
    let file = files.read("s", 0).unwrap();
    assert_eq!(count(&file, "PUT_LOCAL"), Some(2), "{file}");
    assert_eq!(count(&file, "GET_LOCAL"), Some(3), "{file}");
    assert_eq!(rest(&file, "BARRIER_NOTIFY cnt"), None, "{file}");
}

/// Waits are as long as they took: together no longer than the run.
#[test]
fn waits_add_up_to_less_than_the_run() {
    let files = Files::new();
    let file = files.pattern("s");
    let ends = threads::run_in(2, &[("GASNET_STATSFILE", file.as_str())], |conduit| {
        conduit.attach(vec![], 0).unwrap();
        for _ in 0..300 {
            meet(conduit);
        }
    });
    returned(ends);
    let file = files.read("s", 0).unwrap();
    let run = file.lines().find_map(|l| l.split_once("run time:"));
    let run: f64 = run.unwrap().1.trim().trim_end_matches('s').parse().unwrap();
    let waits = rest(&file, "BARRIER_WAIT").unwrap();
    let total: f64 = waits.rsplit('/').next().unwrap().trim().parse().unwrap();
    assert_eq!(count(&file, "BARRIER_WAIT"), Some(300), "{file}");
    assert!(total > 0.0 && total <= run * 1e6, "{total} us of {run} s");
}

/// With `GASNET_TRACEFLUSH` a line is in the file when the call that wrote it returns; lines of ranks with threads name
/// the thread.
#[test]
fn lines_are_there_at_once_and_name_their_thread() {
    let files = Files::new();
    let file = files.pattern("t");
    let variables = [
        ("GASNET_TRACEFILE", file.as_str()),
        ("GASNET_TRACEFLUSH", "1"),
    ];
    let ends = threads::run_par(1, &variables, |par: &Par| {
        par.attach(vec![], 0).unwrap();
        let say = |text: &'static str| {
            par.with(|c| c.tracer().unwrap().message(text));
            let now = files.read("t", 0).unwrap();
            let line = now.lines().rfind(|l| l.contains(text)).unwrap().to_owned();
            let (thread, _) = line.strip_prefix("0(").unwrap().split_once(") ").unwrap();
            thread.to_owned()
        };
        let here = say("of this thread");
        let there = std::thread::scope(|s| s.spawn(|| say("of another")).join().unwrap());
        assert!(here != there && here == say("of this one again"));
    });
    returned(ends);
}
