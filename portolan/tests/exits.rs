//! Every way a job can end, on both fabrics that work everywhere: in time, with the right status, and
//! with no process left.
//!
//! The numbers are those of GASNet's test of exits; `portolan/src/cmd/exits.rs` plays them.

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
    // Returning from main drops the conduit, which does not know the status: the rank's own status
    // counts, or 1 where the others cannot be told (9).
    let numbered = (1..=18).map(|way| {
        let status = match way {
            4 | 9 => 1,
            code => code,
        };
        (way.to_string(), status)
    });
    let signals = [
        ("ABRT", 128 + 6),
        ("SEGV", 128 + 11),
        ("BUS", 128 + 7),
        ("FPE", 128 + 8),
        ("KILL", 128 + 9),
        ("INT", 1),
        ("QUIT", 1),
        ("HUP", 1),
        // On the model this signal keeps its default.
        ("TERM", if fabric == "shm" { 1 } else { 128 + 15 }),
        // The job's status, or the rank's own if that is the first that the launcher sees.
        ("panic", 1),
    ];
    let signals = signals.map(|(way, status)| (way.to_owned(), status));
    let mut wrong = Vec::new();
    for (way, status) in numbered.chain(signals) {
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

#[test]
fn every_way_to_end_over_shared_memory() {
    matrix("shm");
}

#[test]
fn every_way_to_end_on_the_model() {
    matrix("seastar");
}
