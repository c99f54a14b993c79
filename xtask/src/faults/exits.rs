//! `cargo xtask exits`: every way in which a job can end: in time, with the right status, and with nothing left. Over shared
//! memory and on the model by `portolan/tests/exits.rs`, over verbs in a guest, alone and beside shared memory, from here.

use super::DEVICE;
use super::job::{Job, Traces};
use crate::cargo::{self, cargo, release_dir};
use crate::endtoend::succeed;
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Duration;

/// More than an exit's limit of 2 s, its grace, the start of four processes in a guest, and the launcher's together.
const LIMIT: Duration = Duration::from_secs(40);
/// Ways that are part of the device tests: one in good order, one by a handler, by threads, by signals.
pub(crate) const FEW: [&str; 6] = ["3", "4", "10", "18", "INT", "KILL"];
/// How ranks reach each other: a name, and words for the launcher.
const WAYS: [(&str, &[&str]); 2] = [
    ("verbs", &["--no-shm"]),
    ("verbs and shm", &["--ranks-per-node", "2"]),
];

pub(crate) fn run() -> Result<()> {
    cargo::run(&mut cargo(&[
        "test",
        "--release",
        "--quiet",
        "-p",
        "portolan",
        "--test",
        "exits",
        "--",
        "--nocapture",
        "--test-threads=1",
    ]))?;
    cargo::build(&["-p", "portolan"])?;
    cargo::run(cargo::guest(1200)?.arg("exits-in-guest"))
}

pub(crate) fn in_guest() -> Result<()> {
    let done = all(DEVICE, |_| true)?;
    println!("{} of {} ended as they should", done.len(), done.len());
    Ok(())
}

/// Plays the ways that are `wanted`, over all that is below; the names of what ended as it should, which all must.
pub(crate) fn all(device: &str, wanted: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let portolan = release_dir().join("portolan");
    let list = succeed(Command::new(&portolan).args(["exits", "ways"]))?;
    let mut done = Vec::new();
    let mut wrong = Vec::new();
    for (fabric, words) in WAYS {
        for line in list.lines() {
            let (way, rest) = line.split_once(' ').context("a line of ways")?;
            let status: i32 = rest.split(' ').next().unwrap_or_default().parse()?;
            if !wanted(way) {
                continue;
            }
            let before = Traces::now(device);
            let mut command = Command::new(&portolan);
            command
                .args(["run", "-n", "4", "--fabric", "verbs", "--device", device])
                .args(words)
                .args(["--timeout", "60", "--env", "GASNET_EXITTIMEOUT=2", "--"])
                .arg(&portolan)
                .args(["exits", way]);
            let mark = format!("exit-{}-{way}", words.len());
            let end = Job::start(command, &mark)?.end(LIMIT, &before)?;
            // A rank that panics may be seen by its own status first.
            let right = end.status == Some(status) || way == "panic" && end.status == Some(101);
            let seconds = end.took.as_secs_f64();
            let ended = end
                .status
                .map_or_else(|| "hung".to_owned(), |s| format!("status {s}"));
            println!("{fabric}, {way}: {ended} after {seconds:.1} s");
            if right && end.left.is_empty() {
                done.push(format!("exit {way} on {fabric}"));
            } else {
                let left = end.left.join(", ");
                let said = end.said.join(" / ");
                wrong.push(format!(
                    "{fabric}, {way}: {ended}, not {status}; left: {left}; said: {said}"
                ));
            }
        }
    }
    if !wrong.is_empty() {
        bail!("{}", wrong.join("\n"));
    }
    Ok(done)
}
