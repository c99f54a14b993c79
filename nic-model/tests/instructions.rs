//! What simulating packets costs the host, in instructions: they do not depend on what else the
//! machine does. Needs a release build and valgrind.

mod fidelity;

use std::process::Command;

use nic_model::Fidelity;

/// Traffic of 64 nodes with messages of 4 KiB, and the greatest number of instructions of a run,
/// the start of the process included: 5 % above what was measured.
const RUNS: [(&str, u64); 2] = [("neighbour", NEIGHBOUR), ("shift 2,2,2", SHIFT)];
const NEIGHBOUR: u64 = 86_400_000;
const SHIFT: u64 = 282_000_000;

const PATTERN: &str = "NIC_MODEL_PATTERN";

#[test]
#[ignore = "run by the test below, under valgrind"]
fn one_run() {
    if let Ok(pattern) = std::env::var(PATTERN) {
        fidelity::run(&pattern, 4_096, Fidelity::Packet);
    }
}

#[test]
fn packets_cost_no_more_instructions_than_recorded() {
    if cfg!(debug_assertions) {
        println!("skipped: not a release build");
        return;
    }
    let this = std::env::current_exe().unwrap();
    for (pattern, limit) in RUNS {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(&this)
            .args(["--exact", "one_run", "--ignored", "--test-threads=1"])
            .env(PATTERN, pattern)
            .output();
        let Ok(output) = output else {
            println!("skipped: no valgrind");
            return;
        };
        let text = String::from_utf8_lossy(&output.stderr);
        let count = text.lines().find_map(|line| {
            line.split_once("Collected : ")?
                .1
                .trim()
                .parse::<u64>()
                .ok()
        });
        let count = count.unwrap_or_else(|| panic!("valgrind said: {text}"));
        println!("{pattern}: {count} instructions");
        assert!(
            count <= limit,
            "{pattern}: {count} instructions, {limit} recorded"
        );
        assert!(count > limit / 2, "{pattern}: {count}: record the gain");
    }
}
