//! `cargo xtask faults`: jobs over verbs in a guest, each with one fault in the middle of its traffic, and whether
//! they end or go on as `docs/src/porting-to-clusters.md`, *When something fails*, says.
//!
//! Every round is a job of four processes (`tests/examples/fault_traffic.rs`) that put and get 1 MiB pieces. It has a
//! time limit, and must leave no process, object of the device or file behind. A round is a line; a table and what was
//! printed, each message once, follow.

pub(crate) mod exits;
mod job;
mod kinds;

use crate::cargo;
use anyhow::{Context, Result, bail};
use job::{End, Traces};
pub(crate) use kinds::limited;
use kinds::{FAULTS, Fault, Place};
use std::collections::BTreeMap;
use std::time::Duration;

/// What rounds of the device tests make.
pub(crate) const FEW: u32 = 1;
/// SoftRoCE's name in the guest.
const DEVICE: &str = "rxe0";
/// For the guest, a round. Most take two or three seconds.
const SECONDS_A_ROUND: u64 = 20;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often each fault is made
    #[arg(long, default_value_t = 50)]
    rounds: u32,
    /// Only faults whose name contains this
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
    /// Of the random moments, ranks and lengths
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print everything that the ranks print
    #[arg(long)]
    verbose: bool,
}

#[derive(clap::Args)]
pub(crate) struct InGuest {
    #[command(flatten)]
    options: Options,
}

impl InGuest {
    /// A run as a part of the device tests.
    pub(crate) fn few() -> Self {
        Self {
            options: Options {
                rounds: FEW,
                only: String::new(),
                seed: 1,
                verbose: false,
            },
        }
    }
}

/// Builds what the rounds need. The program has the checks of a debug build, as the tests of the workspace have built it.
fn build() -> Result<()> {
    cargo::build(&["-p", "portolan"])?;
    cargo::build_debug(&["-p", "portolan-tests", "--example", "fault_traffic"])
}

pub(crate) fn run(options: &Options) -> Result<()> {
    build()?;
    let rounds = options.rounds.to_string();
    let seconds = 120 + u64::from(options.rounds) * FAULTS.len() as u64 * SECONDS_A_ROUND;
    let seconds = u32::try_from(seconds).context("too many rounds")?;
    let mut command = cargo::guest(seconds)?;
    command
        .args(["faults-in-guest", "--rounds", &rounds])
        .args(["--seed", &options.seed.to_string()])
        .arg(format!("--only={}", options.only));
    if options.verbose {
        command.arg("--verbose");
    }
    cargo::run(&mut command)
}

/// A fault's rounds.
#[derive(Default)]
struct Tally {
    good: u32,
    bad: u32,
    hung: u32,
    left: u32,
    longest: Duration,
    statuses: BTreeMap<i32, u32>,
    /// Messages without their numbers, and how often each came.
    messages: BTreeMap<String, u32>,
}

impl Tally {
    fn add(&mut self, end: &End, wrong: &[String]) {
        self.longest = self.longest.max(end.took);
        self.hung += u32::from(end.status.is_none());
        self.left += u32::from(!end.left.is_empty());
        if wrong.is_empty() && end.left.is_empty() && end.status.is_some() {
            self.good += 1;
        } else {
            self.bad += 1;
        }
        if let Some(status) = end.status {
            *self.statuses.entry(status).or_default() += 1;
        }
        for line in &end.said {
            if !line.ends_with(": traffic") && !line.trim().is_empty() {
                *self.messages.entry(plain(line)).or_default() += 1;
            }
        }
    }
}

/// A message with `N` for each number, so that those of different rounds are one.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line.trim();
    while let Some(c) = rest.chars().next() {
        let number = match rest.strip_prefix("0x") {
            Some(hex) => {
                2 + hex.len()
                    - hex
                        .trim_start_matches(|c: char| c.is_ascii_hexdigit())
                        .len()
            }
            None => rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len(),
        };
        if number > 0 {
            out.push('N');
            rest = &rest[number..];
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// In the guest: all rounds of all faults.
pub(crate) fn in_guest(guest: &InGuest) -> Result<Vec<String>> {
    let options = &guest.options;
    if std::env::var_os("PORTOLAN_GUEST").is_none() {
        bail!("faults are made in a guest only: cargo xtask faults");
    }
    if !FAULTS.iter().any(|f| f.name.contains(&options.only)) {
        bail!("no fault has {:?} in its name", options.only);
    }
    let place = Place::new(DEVICE)?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut tallies: Vec<(&Fault, Tally)> = Vec::new();
    for fault in FAULTS.iter().filter(|f| f.name.contains(&options.only)) {
        let mut tally = Tally::default();
        println!("\n{}: {}", fault.name, fault.expected);
        for round in 1..=options.rounds {
            let before = Traces::now(DEVICE);
            let name = format!("{}-{round}", fault.name);
            let (what, end) = (fault.make)(&place, &name, &mut random, &before)
                .with_context(|| format!("{}, round {round}", fault.name))?;
            let wrong = (fault.check)(&what, &end);
            let status = end
                .status
                .map_or_else(|| "hung".to_owned(), |s| format!("exit {s}"));
            let verdict = match (&*wrong, &*end.left) {
                ([], []) => "as documented".to_owned(),
                (wrong, left) => format!("WRONG: {} left: {}", wrong.join("; "), left.join(", ")),
            };
            println!(
                "  {round:3} {}: {status} after {:.1} s, {verdict}",
                what.words,
                end.took.as_secs_f64()
            );
            if options.verbose || verdict != "as documented" {
                for line in &end.said {
                    println!("        | {line}");
                }
            }
            tally.add(&end, &wrong);
        }
        tallies.push((fault, tally));
    }
    report(&tallies)
}

fn report(tallies: &[(&Fault, Tally)]) -> Result<Vec<String>> {
    println!("\nfault | rounds | as documented | hung | left something | longest | exit statuses");
    let mut done = Vec::new();
    for (fault, t) in tallies {
        let statuses: Vec<String> = t
            .statuses
            .iter()
            .map(|(s, n)| format!("{s} × {n}"))
            .collect();
        println!(
            "{} | {} | {} | {} | {} | {:.1} s | {}",
            fault.name,
            t.good + t.bad,
            t.good,
            t.hung,
            t.left,
            t.longest.as_secs_f64(),
            statuses.join(", ")
        );
        done.push(format!(
            "fault {}: {} of {} rounds as documented",
            fault.name,
            t.good,
            t.good + t.bad
        ));
    }
    for (fault, t) in tallies {
        println!("\n{}: what was printed, with N for numbers", fault.name);
        for (message, times) in &t.messages {
            println!("  {times:5} × {message}");
        }
    }
    let bad: u32 = tallies.iter().map(|(_, t)| t.bad).sum();
    if bad > 0 {
        bail!("{bad} rounds did not end as documented");
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_differ_by_words_only() {
        assert_eq!(plain(" rank 12: 3 of 44 "), "rank N: N of N");
        assert_eq!(plain("at 0x7fa0: nõne"), "at N: nõne");
    }
}
