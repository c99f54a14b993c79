//! `cargo xtask conformance`: runs the conformance suite in every mode, and the C programs on every
//! fabric, and writes what they said as a page of the book. What needs a device runs in the guest, or
//! here where there is one.
//!
//! A result is a line that the suite prints (`tests/src/conformance/mod.rs`); results of C programs
//! are made to look the same:
//!
//! ```text
//! conformance | MODE | SCENARIOS AND RULES | CASE | pass, FAIL or n/a: WHY | TIME
//! ```

mod page;
mod programs;

use crate::cargo::{self, release_dir, root};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out what needs a device or a guest; its columns say so
    #[arg(long)]
    no_guest: bool,
    /// Instead: the cases as jobs of processes over verbs between two guests, with packets lost (1 %), then reordered
    #[arg(long, conflicts_with = "no_guest")]
    netem: bool,
}

/// Runs inside the guest.
#[derive(clap::Args)]
pub(crate) struct InGuest {
    /// The RDMA device
    #[arg(long)]
    device: String,
    /// The suite's executable
    #[arg(long)]
    suite: PathBuf,
    /// Folder of the compiled C programs
    #[arg(long)]
    programs: PathBuf,
}

const PAGE: &str = "docs/src/conformance.md";
/// Names the RDMA device for the suite.
const DEVICE_VARIABLE: &str = "PORTOLAN_TEST_DEVICE";
/// SoftRoCE's name in the guest.
const GUEST_DEVICE: &str = "rxe0";

/// A column of the table: a way to run the suite. The list is `tests/src/harness.rs`.
#[derive(Debug, PartialEq, Eq)]
struct Mode {
    test: String,
    name: String,
    device: bool,
}

/// One result.
#[derive(Debug)]
struct Line {
    mode: String,
    numbers: String,
    case: String,
    result: String,
}

/// What becomes of a test's output when results are looked for: libtest puts the test's name before
/// the first line that a test prints.
fn fields<'a>(line: &'a str, mark: &str) -> Option<Vec<&'a str>> {
    let from = line.find(mark)?;
    let fields = line[from + mark.len()..].split('|').map(str::trim);
    Some(fields.collect())
}

/// Scenario and rule numbers of a text such as `14, 17-20, rules 5, 8`.
fn numbers(text: &str) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut scenarios, mut rules, mut of_rules) = (BTreeSet::new(), BTreeSet::new(), false);
    for word in text.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '.' | ':')) {
        match word.trim_end_matches('s').to_lowercase().as_str() {
            "rule" => of_rules = true,
            "scenario" => of_rules = false,
            "row" | "section" => break,
            _ => {}
        }
        let range = word.split_once(['-', '–']).unwrap_or((word, word));
        if let (Ok(from), Ok(to)) = (range.0.parse::<u32>(), range.1.parse::<u32>()) {
            if of_rules { &mut rules } else { &mut scenarios }.extend(from..=to);
        }
    }
    (scenarios, rules)
}

fn lines(output: &str) -> Vec<Line> {
    let parse = |line: &str| match fields(line, "conformance | ")?[..] {
        [mode, numbers, case, result, _time] => Some(Line {
            mode: mode.to_owned(),
            numbers: numbers.to_owned(),
            case: case.to_owned(),
            result: result.to_owned(),
        }),
        _ => None,
    };
    output.lines().filter_map(parse).collect()
}

/// The suite's modes, as its executable lists them.
fn modes(suite: &Path) -> Result<Vec<Mode>> {
    let mut command = Command::new(suite);
    command.args(["modes_are_listed", "--nocapture"]);
    let output = command.output().with_context(|| cargo::line(&command))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let parse = |line: &str| match fields(line, "mode | ")?[..] {
        [test, name, device] => Some(Mode {
            test: test.to_owned(),
            name: name.to_owned(),
            device: device == "true",
        }),
        _ => None,
    };
    let found: Vec<Mode> = text.lines().filter_map(parse).collect();
    if !output.status.success() || found.is_empty() {
        bail!("{}: {}\n{text}", cargo::line(&command), output.status);
    }
    Ok(found)
}

/// Runs the suite in a mode and prints what it says.
fn run_mode(suite: &Path, mode: &Mode, device: Option<&str>) -> Result<String> {
    let mut command = Command::new(suite);
    command.args(["--exact", &mode.test, "--nocapture"]);
    if let Some(device) = device {
        command.env(DEVICE_VARIABLE, device);
    }
    println!("$ {}", cargo::line(&command));
    let output = command.output().with_context(|| cargo::line(&command))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = lines(&text);
    if found.is_empty() || !output.status.success() {
        print!("{}", String::from_utf8_lossy(&output.stderr));
    }
    if found.is_empty() {
        bail!("conformance, {}: {}\n{text}", mode.name, output.status);
    }
    Ok(text)
}

/// Everything that needs the device.
pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    for mode in modes(&options.suite)?.iter().filter(|m| m.device) {
        print!("{}", run_mode(&options.suite, mode, Some(&options.device))?);
    }
    for line in programs::run_all(&options.programs, programs::On::Verbs(&options.device))? {
        println!("{line}");
    }
    Ok(())
}

fn results(options: &Options, suite: &Path, modes: &[Mode]) -> Result<Vec<Line>> {
    let mut text = String::new();
    for mode in modes.iter().filter(|m| !m.device) {
        text += &run_mode(suite, mode, None)?;
    }
    let folder = programs::compile_all()?;
    for on in [programs::On::InProcess, programs::On::Seastar] {
        for line in programs::run_all(&folder, on)? {
            text += &line;
            text.push('\n');
        }
    }
    if !options.no_guest {
        let own = cargo::own_exe()?;
        let native = std::env::var(DEVICE_VARIABLE).ok();
        let device = native.as_deref().filter(|d| !d.is_empty());
        let mut command = match device {
            Some(_) => Command::new(own),
            None => {
                let mut c = Command::new(release_dir().join("portolan"));
                c.args(["guest", "--timeout", "900", "--"]).arg(own);
                c
            }
        };
        command
            .args(["conformance-in-guest", "--device"])
            .arg(device.unwrap_or(GUEST_DEVICE))
            .arg("--suite")
            .arg(suite)
            .arg("--programs")
            .arg(&folder);
        println!("$ {}", cargo::line(&command));
        let output = command.output().with_context(|| cargo::line(&command))?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() || said.contains("| FAIL |") {
            print!("{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        if !output.status.success() {
            bail!("conformance on a device: {}", output.status);
        }
        text += &said;
    }
    Ok(lines(&text))
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.netem {
        return crate::hosts::netem();
    }
    let suite = &cargo::release_exe("portolan-tests", "conformance")?;
    let build = [
        "build",
        "--release",
        "--quiet",
        "-p",
        "portolan",
        "-p",
        "portals-c",
    ];
    cargo::run(&mut cargo::cargo(&build))?;
    let modes = modes(suite)?;
    let results = results(options, suite, &modes)?;
    let (text, gaps) = page::write(&modes, &results, &page::other_tests()?)?;
    std::fs::write(root().join(PAGE), text).with_context(|| format!("cannot write {PAGE}"))?;
    for mode in &modes {
        let count = |word| {
            let of_mode = results.iter().filter(|l| l.mode == mode.name);
            of_mode.filter(|l| l.result.starts_with(word)).count()
        };
        println!(
            "{}: {} pass, {} n/a, {} FAIL",
            mode.name,
            count("pass"),
            count("n/a"),
            count("FAIL")
        );
    }
    println!("{PAGE} is written");
    let failed = results.iter().filter(|l| l.result == "FAIL").count();
    if failed > 0 {
        bail!("{failed} results are failures");
    }
    if !gaps.is_empty() && !options.no_guest {
        bail!("no result and no reason for {}", gaps.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cases_and_of_comments() {
        let of = |text| {
            let (s, r) = numbers(text);
            (Vec::from_iter(s), Vec::from_iter(r))
        };
        assert_eq!(
            of("14, 17-20, rules 5, 8"),
            (vec![14, 17, 18, 19, 20], vec![5, 8])
        );
        assert_eq!(
            of("Scenario 75; rules 2 and 3: both"),
            (vec![75], vec![2, 3])
        );
        assert_eq!(
            of("Scenario 51; rules 16, 30 and row 5 of"),
            (vec![51], vec![16, 30])
        );
        assert_eq!(of("Rule 12."), (vec![], vec![12]));
    }

    #[test]
    fn a_line_of_the_suite() {
        let out = "test in_process ... conformance | in-process | 14, rule 5 | entries are searched | pass | 1 ms\n\
                   conformance | seastar | 29 | entries are checked when set | n/a: no: reason | 0 ms\nok\n";
        let l = lines(out);
        assert_eq!(l.len(), 2);
        assert_eq!(
            (
                l[0].numbers.as_str(),
                l[0].case.as_str(),
                l[0].result.as_str()
            ),
            ("14, rule 5", "entries are searched", "pass")
        );
        assert_eq!(
            (l[1].mode.as_str(), l[1].result.as_str()),
            ("seastar", "n/a: no: reason")
        );
    }
}
