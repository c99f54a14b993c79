//! Every way a job can end, on both fabrics that work everywhere: in time, with the right status, and
//! with no process left.
//!
//! The numbers are those of GASNet's test of exits; `portolan/src/cmd/exits.rs` plays them.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

/// More than the exit's limit of 2 s, its grace and the launcher's together, on a busy machine; a job
/// that hangs would be ended by `--timeout`, with status 124.
const IN_TIME: Duration = Duration::from_secs(40);

/// Runs a job of four ranks. Reading its output to the end returns only when no process of it is left.
fn end(fabric: &str, way: &str) -> (Output, Duration) {
    let start = Instant::now();
    let output = Command::new(PORTOLAN)
        .args(["run", "-n", "4", "--fabric", fabric, "--timeout", "60"])
        .args(["--env", "GASNET_EXITTIMEOUT=2", "--"])
        .args([PORTOLAN, "exits", way])
        .env_remove("PORTOLAN_LOG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output, start.elapsed())
}

fn matrix(fabric: &str) {
    let list = Command::new(PORTOLAN)
        .args(["exits", "ways"])
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let ways: Vec<(String, i32)> = list
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let column = if fabric == "seastar" { 2 } else { 1 };
            (words[0].to_owned(), words[column].parse().unwrap())
        })
        .collect();
    assert_eq!(ways.len(), 33);
    let mut wrong = Vec::new();
    for (way, status) in ways {
        let (output, took) = end(fabric, &way);
        println!("{fabric} {way}: {:?} in {took:.1?}", output.status.code());
        let code = output
            .status
            .code()
            .filter(|c| (*c, &*way) != (101, "panic"));
        if code.unwrap_or(1) != status || took > IN_TIME {
            let said = String::from_utf8_lossy(&output.stderr);
            wrong.push(format!(
                "{way}: {:?}, not {status}, in {took:.1?}: {said}",
                output.status.code()
            ));
        }
    }
    assert!(wrong.is_empty(), "{fabric}: {wrong:#?}");
}

/// A process of no launcher that never calls again; the limit of an exit and its grace are waited for.
#[test]
fn a_rank_alone_that_never_calls_ends_by_the_signal() {
    for (fabric, way, status) in [
        ("shm", "deaf-INT", 130),
        ("shm", "deaf-TERM", 143),
        ("shm", "twice-INT", 1),
        ("seastar", "deaf-INT", 130),
        ("seastar", "deaf-TERM", 143),
    ] {
        let output = Command::new(PORTOLAN)
            .args(["exits", way])
            .env("PORTOLAN_FABRIC", fabric)
            .env("GASNET_EXITTIMEOUT", "0.1")
            .env_remove("PORTOLAN_LOG")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        let signal = output.status.signal().map(|s| 128 + s);
        assert_eq!(code.or(signal), Some(status), "{fabric}, {way}: {said}");
    }
}

#[test]
fn every_way_to_end_over_shared_memory() {
    matrix("shm");
}

#[test]
fn every_way_to_end_on_the_model() {
    matrix("seastar");
}
