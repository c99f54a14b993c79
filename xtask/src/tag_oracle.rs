//! `cargo xtask tag-oracle`: tag matching under random use, judged by MPI's rules, on every fabric: here, and over RDMA in a
//! guest.

use crate::cargo::{self, release_dir};
use crate::packages;
use anyhow::{Result, bail};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Operations on each fabric
    #[arg(long, default_value_t = 1_000_000)]
    operations: u64,
    /// Only tests whose name contains this, such as `seastar` or `datagrams`
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds for all fabrics over RDMA together
    #[arg(long, default_value_t = 3600)]
    timeout: u32,
}

/// Part of the names of the tests that need a device, and of no others.
const ON_A_DEVICE: &str = "verbs_";
const VARIABLE: &str = "PORTOLAN_TAG_OPERATIONS";

pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure()?;
    cargo::build(&["--package", "portolan"])?;
    let oracle = cargo::release_exe("portolan-tests", "tag_oracle")?;
    let listed = Command::new(&oracle).arg("--list").output()?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let chosen = names.filter(|name| name.contains(&options.only));
    let (device, here): (Vec<&str>, Vec<&str>) =
        chosen.partition(|name| name.starts_with(ON_A_DEVICE));
    if device.is_empty() && here.is_empty() {
        bail!("no test of the oracle has {:?} in its name", options.only);
    }
    let operations = options.operations.to_string();
    let mut all = Vec::new();
    for name in here {
        let mut test = Command::new(&oracle);
        test.env(VARIABLE, &operations);
        all.push(lines(test.args(["--exact", name, "--nocapture"]))?);
    }
    if !device.is_empty() {
        let mut guest = Command::new(release_dir().join("portolan"));
        guest.args(["guest", "--timeout", &options.timeout.to_string()]);
        guest.args(["--env", &format!("{VARIABLE}={operations}")]);
        guest.args(["--env", "PORTOLAN_TEST_DEVICE=rxe0", "--"]);
        guest.arg(&oracle).arg("--exact").args(&device);
        all.push(lines(guest.args(["--nocapture", "--test-threads=1"]))?);
    }
    let said = all.concat();
    let ran = said
        .iter()
        .filter(|l| l.starts_with("tag oracle |"))
        .count();
    said.iter().for_each(|line| println!("{line}"));
    println!("{ran} fabrics, at least {operations} operations each");
    Ok(())
}

/// What the oracle says of each fabric; an error if it found a rule broken, or a fabric did not run.
fn lines(command: &mut Command) -> Result<Vec<String>> {
    println!("$ {}", cargo::line(command));
    let out = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr);
        bail!("{}: {}\n{text}{errors}", cargo::line(command), out.status);
    }
    if let Some(skipped) = text.lines().find(|line| line.contains("skipped:")) {
        bail!("{}: {skipped}", cargo::line(command));
    }
    let said = text.lines().filter_map(|line| {
        let at = line.find("tag oracle |")?;
        line.get(at..).map(|said| said.trim_end().to_owned())
    });
    Ok(said.collect())
}
