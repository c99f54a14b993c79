//! The tests that need an RDMA device: here if there is one, else on SoftRoCE in a guest.

use crate::cargo;
use crate::endtoend;
use crate::faults;
use crate::hosts;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tests that take a device from `PORTOLAN_TEST_DEVICE`: the package, the test executable, of which at least one test must run on
/// the device, and the filter that picks those tests (empty for all).
type Suite = (&'static str, &'static str, &'static str);

/// Those of each of two guests side by side, which take about as long as those of the other one with the programs.
const FIRST: [Suite; 2] = [
    ("ofi-engine", "ofi_engine", "endpoint::tests"),
    ("portals-shim", "endpoints", ""),
];
const SECOND: [Suite; 2] = [
    ("fabric-verbs", "fabric_verbs", "device_"),
    ("portolan-tests", "conformance", "verbs"),
];
/// Those of a guest alone, of several processors: what threads and the device do at one time, and then what counts how often ranks
/// sleep and what waiting costs, which is more when something else has the processors.
const ALONE: [Suite; 9] = [
    ("verbs-backend", "device", ""),
    ("portolan-tests", "conduit_device", ""),
    ("portals-shim", "regions", "device_"),
    ("portals-shim", "operations", "device_"),
    ("portolan-tests", "tag_oracle", "verbs"),
    ("fabric-both", "fabric_both", "device_"),
    ("portolan", "bound", "verbs"),
    ("fabric-verbs", "fabric_verbs", "alone_"),
    ("fabric-both", "fabric_both", "alone_"),
];
/// SoftRoCE's name in a guest.
const DEVICE: &str = "rxe0";
/// For a guest, seconds: twice what one takes beside the other on two processors that do nothing else.
const LIMIT: u32 = 1200;
/// For one executable, seconds; the longest takes half of it.
const SUITE_LIMIT: &str = "600";
const DEVICE_VARIABLE: &str = "PORTOLAN_TEST_DEVICE";
/// Run once more with connections made by the connection manager, by the rules of iWARP: an executable with its filter, and those of its
/// tests that are about what goes over connections.
const IWARP: ((&str, &str), &[&str]) = (
    ("fabric_verbs", "device_"),
    &[
        "tests::device_",
        "tests::relaxed::",
        "tests::hostile::",
        "tests::keys::",
        "tests::late::",
        "tests::quiet::",
        "tests::rings::device_",
        "tests::rma_write_send::",
    ],
);
const CONNECT_VARIABLE: &str = "PORTOLAN_CONNECT";

#[derive(clap::Args)]
pub(crate) struct InGuest {
    /// The RDMA device
    #[arg(long)]
    device: String,
    /// Test executable and the filter for it, as `path=filter`
    #[arg(long = "tests")]
    tests: Vec<String>,
    /// Programs too, and the faults
    #[arg(long)]
    programs: bool,
}

/// The arguments of [`in_guest`] for these tests, of the executables that are built.
fn arguments(suites: &[Suite], built: &[cargo::TestExe]) -> Result<Vec<String>> {
    let argument = |&(package, target, filter): &Suite| {
        let exe = built
            .iter()
            .find(|exe| exe.package == package && exe.target == target);
        let exe = exe.with_context(|| format!("{package} has no test executable {target}"))?;
        Ok(format!("--tests={}={filter}", exe.path.display()))
    };
    suites.iter().map(argument).collect()
}

/// Runs the tests on the device that a variable names, or in guests. They are the executables that run here too: those have more
/// checks than a release build, and are there already.
///
/// A guest runs one test at a time, and that keeps one processor busy at most: two guests take half of the time of one. Each has one
/// processor, as the emulated processors of a guest wait for each other: with two they take half as long again on two of the machine's.
///
/// Processes of the first one start at the same addresses, as the emulation translates a program again for other addresses. Those of the
/// other guests start at random ones.
pub(crate) fn run() -> Result<()> {
    let built = cargo::workspace_tests()?;
    let (mut first, second) = (arguments(&FIRST, &built)?, arguments(&SECOND, &built)?);
    let alone = arguments(&ALONE, &built)?;
    first.push("--programs".to_owned());
    let native = std::env::var(DEVICE_VARIABLE);
    if let Ok(device) = native
        && !device.is_empty()
    {
        let mut command = Command::new(cargo::own_exe()?);
        command.args(["in-guest", "--device", &device]);
        return cargo::run(command.args(first).args(second).args(alone))
            .context("tests on an RDMA device");
    }
    let guest = |options: &[&str], by: &[&str], arguments: Vec<String>| -> Result<Command> {
        let mut command = cargo::guest_by(LIMIT, options, by)?;
        command.args(["in-guest", "--device", DEVICE]);
        command.args(arguments);
        Ok(command)
    };
    let one = ["--cpus", "1"];
    let fixed = ["setarch", "--addr-no-randomize"];
    cargo::run_together(vec![guest(&one, &fixed, first)?, guest(&one, &[], second)?])
        .context("tests on an RDMA device")?;
    cargo::run(&mut guest(&[], &[], alone)?).context("tests on an RDMA device")?;
    hosts::heat3d().context("two guests")
}

/// The names of the tests that passed in libtest's output; an error names one that did not.
fn passed(output: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    let mut skipped = false;
    for line in output.lines() {
        skipped |= line.contains("skipped: no RDMA device");
        // With output shown, a test's own lines may stand between its name and its result.
        if let Some(rest) = line.strip_prefix("test ")
            && let Some((name, result)) = rest.split_once(" ... ")
        {
            if result.trim_end().ends_with("FAILED") {
                bail!("test {name} failed");
            }
            names.push(name.to_owned());
        }
    }
    if skipped {
        bail!("a test was skipped although there is a device");
    }
    Ok(names)
}

/// The test that had begun and not ended when libtest's output, of one test at a time, ended.
fn running(output: &str) -> Option<&str> {
    const RESULTS: [&str; 3] = ["ok", "FAILED", "ignored"];
    let mut running = None;
    for line in output.lines() {
        let begun = line
            .strip_prefix("test ")
            .and_then(|l| l.split_once(" ... "));
        let said = match begun {
            Some((name, rest)) => {
                running = Some(name);
                rest
            }
            None => line,
        };
        // A test's own lines may stand between its name and its result.
        if RESULTS.contains(&said.trim()) {
            running = None;
        }
    }
    running
}

/// Whether a guest's kernel counts on the rate of its clock that it was told: another has other time limits and figures.
fn has_told_clock(command_line: &str, processors: &str) -> bool {
    let told = command_line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("tsc_early_khz="))
        .and_then(|khz| khz.parse::<f64>().ok());
    let mhz = processors
        .lines()
        .find_map(|line| line.strip_prefix("cpu MHz"))
        .and_then(|rest| rest.split_once(':'))
        .and_then(|(_, mhz)| mhz.trim().parse::<f64>().ok());
    told.zip(mhz)
        .is_some_and(|(khz, mhz)| (mhz * 1000.0 / khz - 1.0).abs() < 0.01)
}

/// In the guest: runs each executable's tests one by one, then the programs.
pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
    let in_guest = std::env::var_os("PORTOLAN_GUEST").is_some();
    if in_guest && !has_told_clock(&read("/proc/cmdline")?, &read("/proc/cpuinfo")?) {
        bail!("the guest's clock runs at another rate than the machine's");
    }
    let mut done = Vec::new();
    for pair in &options.tests {
        let (exe, filter) = pair.split_once('=').context("--tests wants path=filter")?;
        let exe = PathBuf::from(exe);
        let name = exe
            .file_stem()
            .map(|n| n.to_string_lossy().into_owned())
            .unwrap_or_default();
        let name = name
            .rsplit_once('-')
            .map_or(name.clone(), |(n, _)| n.to_owned());
        done.extend(suite(&exe, &name, &[filter], &options.device, None)?);
        if (name.as_str(), filter) == IWARP.0 {
            let iwarp = suite(&exe, &name, IWARP.1, &options.device, Some("iwarp"))?;
            done.extend(iwarp);
        }
    }
    if options.programs {
        done.extend(programs(&options.device)?);
    }
    if done.is_empty() {
        bail!("no test ran on {}", options.device);
    }
    println!("\ntests that ran on {}:", options.device);
    for name in &done {
        println!("  {name} ... ok");
    }
    println!("{} passed, 0 failed", done.len());
    Ok(())
}

/// Programs on the device, and what becomes of those that a fault meets.
fn programs(device: &str) -> Result<Vec<String>> {
    let mut done = endtoend::on_verbs(device)?;
    let few = |way: &str| faults::exits::FEW.contains(&way);
    done.extend(faults::exits::all(device, few)?);
    if std::env::var_os("PORTOLAN_GUEST").is_some() {
        done.extend(faults::in_guest(&faults::InGuest::few())?);
    } else {
        println!("skipped: faults are made in a guest only");
    }
    Ok(done)
}

/// Runs the tests of an executable that one of `filters` picks, or all if it is empty, with connections made as `connect` says; the names of those that
/// passed.
fn suite(
    exe: &Path,
    name: &str,
    filters: &[&str],
    device: &str,
    connect: Option<&str>,
) -> Result<Vec<String>> {
    // A suite that hangs is ended, and what it printed names the test.
    let mut command = Command::new("timeout");
    command.args(["--signal=ABRT", SUITE_LIMIT]).arg(exe);
    command.args(filters.iter().filter(|filter| !filter.is_empty()));
    command
        .args(["--test-threads", "1", "--nocapture"])
        .env(DEVICE_VARIABLE, device);
    let way = connect.map_or(String::new(), |by| format!("{by}::"));
    if let Some(by) = connect {
        command.env(CONNECT_VARIABLE, by);
    }
    let started = std::time::Instant::now();
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", exe.display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        print!("{text}");
        match running(&text) {
            Some(test) => bail!(
                "{name}: test {way}{test} had not ended when {name} did, after {:.0} s of at most {SUITE_LIMIT}: {}",
                started.elapsed().as_secs_f64(),
                output.status
            ),
            None => bail!("{way}{name}: {}", output.status),
        }
    }
    println!("{way}{name}: {:.1} s", started.elapsed().as_secs_f64());
    let passed = passed(&text)?;
    if let Some(filter) = without_test(filters, &passed) {
        bail!("{way}{name}: the filter {filter:?} picks no test");
    }
    let passed = passed.into_iter();
    Ok(passed.map(|t| format!("{name}::{way}{t}")).collect())
}

/// A filter that picks none of these tests: a module that was renamed must not pass as nothing to do.
fn without_test<'a>(filters: &[&'a str], tests: &[String]) -> Option<&'a str> {
    let picks = |filter: &&str| tests.iter().any(|test| test.contains(filter));
    filters.iter().copied().find(|filter| !picks(filter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_that_hangs_is_named() {
        let ended = "running 2 tests\ntest a::b ... ok\ntest c ... a line\nok\n";
        assert_eq!(running(ended), None);
        let hung = format!("{ended}test d::e ... said this\nand that\n");
        assert_eq!(running(&hung), Some("d::e"));
        assert_eq!(running("test f ... FAILED\n\nfailures:\n"), None);
    }

    #[test]
    fn a_filter_that_picks_no_test_is_named() {
        let tests = ["tests::late::a".to_owned(), "tests::keys::b".to_owned()];
        assert_eq!(without_test(&["tests::keys::", "late"], &tests), None);
        let renamed = without_test(&["tests::late::", "tests::written::"], &tests);
        assert_eq!(renamed, Some("tests::written::"));
        assert_eq!(without_test(&[""], &[]), Some(""));
    }

    #[test]
    fn a_clock_of_another_rate_is_seen() {
        let processors = "processor\t: 0\ncpu MHz\t\t: 414.424\n";
        assert!(!has_told_clock("console=ttyS0 quiet", processors));
        assert!(has_told_clock("tsc_early_khz=414000 quiet", processors));
        assert!(!has_told_clock(
            "tsc=reliable tsc_early_khz=2596108",
            processors
        ));
    }
}
