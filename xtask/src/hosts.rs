//! What needs two machines with a wire between them: `cargo xtask two-hosts`, and `cargo xtask conformance --netem`.
//!
//! On one machine SoftRoCE hands packets to itself, past the network interface; loss and reordering there would change
//! nothing. Between two guests every packet crosses the interface on which netem sits, in both directions.

use crate::cargo::{self, cargo, release_dir};
use crate::endtoend::{checksum, succeed};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// SoftRoCE's name in a guest, and that of the interface below it.
const DEVICE: &str = "rxe0";
const NETDEV: &str = "d0";
/// Runs words on the other machine.
const REMOTE: &str = "/run/portolan-guest/rsh";
/// Cells along each axis and the seed of the grid, and the sum of what becomes of it in ten steps.
const GRID: [&str; 4] = ["24", "20", "16", "7"];
const CHECKSUM: &str = "0x4ce3b20cafed55f7";
/// Sizes of jobs for which the suite has cases, fewest first: ranks in all, and on a machine.
const JOBS: [(&str, &str); 3] = [("2", "1"), ("3", "2"), ("8", "4")];
/// A name, and what netem does to each packet that leaves a machine.
const NETEMS: [(&str, &[&str]); 2] = [
    ("loss of 1 %", &["loss", "1%"]),
    // A packet in four is sent at once, and overtakes those that wait.
    ("reordering", &["delay", "3ms", "reorder", "25%", "50%"]),
];

#[derive(clap::Args)]
pub(crate) struct InGuest {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// heat3d over both machines
    Heat3d {
        /// Folder of the executables
        bin: PathBuf,
        /// The grid, which both machines see
        grid: PathBuf,
    },
    /// The conformance suite under netem
    Netem {
        /// Folder of the executables
        bin: PathBuf,
    },
}

/// The guest's command line so far: two machines, on the first of which this executable runs.
fn guests(seconds: u32) -> Result<Command> {
    let own = std::env::current_exe().context("where this executable is")?;
    let mut command = Command::new(release_dir().join("portolan"));
    command
        .args(["guest", "--hosts", "2", "--memory", "1024"])
        .args(["--timeout", &seconds.to_string(), "--"])
        .arg(own)
        .arg("hosts-in-guest");
    Ok(command)
}

/// Removes a folder at the end of its use.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// heat3d on four ranks of two machines, started by mpiexec on one of them.
pub(crate) fn two_hosts() -> Result<()> {
    cargo::run(&mut cargo(&[
        "build",
        "--release",
        "--quiet",
        "-p",
        "portolan",
        "-p",
        "programs",
    ]))?;
    heat3d()
}

/// The same, of executables that are there.
pub(crate) fn heat3d() -> Result<()> {
    let bin = release_dir();
    // What a guest writes the other one does not see: the grid is made outside.
    let folder = std::env::temp_dir().join(format!("portolan-two-hosts-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let folder = Folder(folder);
    let grid = folder.0.join("grid");
    let program = bin.join("heat3d");
    succeed(
        Command::new(&program)
            .arg("--generate")
            .args(GRID)
            .arg(&grid),
    )?;
    let serial = checksum(&succeed(Command::new(&program).arg("--serial").arg(&grid))?)?;
    if serial != CHECKSUM {
        bail!("heat3d --serial: checksum {serial}, not {CHECKSUM}");
    }
    let started = Instant::now();
    let mut command = guests(300)?;
    command.arg("heat3d").arg(&bin).arg(&grid);
    cargo::run(&mut command)?;
    println!("two hosts: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The conformance suite over two machines under netem.
pub(crate) fn netem() -> Result<()> {
    cargo::run(&mut cargo(&[
        "build",
        "--release",
        "--quiet",
        "-p",
        "portolan",
        "-p",
        "portolan-tests",
        "--bin",
        "portolan",
        "--example",
        "conformance_job",
    ]))?;
    let mut command = guests(3600)?;
    command.arg("netem").arg(release_dir());
    cargo::run(&mut command)
}

/// On the first machine.
pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    match &options.what {
        What::Heat3d { bin, grid } => heat3d_in_guest(bin, grid),
        What::Netem { bin } => netem_in_guest(bin),
    }
}

/// Runs words on both machines; what they print.
fn both(words: &[&str]) -> Result<[String; 2]> {
    let here = succeed(Command::new(words[0]).args(&words[1..]))?;
    let there = succeed(Command::new(REMOTE).arg("host1").args(words))?;
    Ok([here, there])
}

/// Packets that both devices have sent.
fn sent() -> Result<[u64; 2]> {
    let counter = format!("/sys/class/infiniband/{DEVICE}/ports/1/hw_counters/sent_pkts");
    let mut sent = [0; 2];
    for (n, text) in sent.iter_mut().zip(both(&["cat", &counter])?) {
        *n = text
            .trim()
            .parse()
            .with_context(|| format!("{counter} says {text:?}"))?;
    }
    Ok(sent)
}

fn mpiexec(ranks: &str, a_host: &str) -> Command {
    let mut c = Command::new("mpiexec.hydra");
    c.args(["-n", ranks, "-ppn", a_host]);
    c.args(["-genv", "PORTOLAN_FABRIC", "verbs"]);
    c.args(["-genv", "PORTOLAN_DEVICE", DEVICE]);
    c
}

fn heat3d_in_guest(bin: &Path, grid: &Path) -> Result<()> {
    for exchange in ["am", "put"] {
        let before = sent()?;
        let mut command = mpiexec("4", "2");
        command.arg(bin.join("heat3d")).arg(grid);
        let text = succeed(command.args(["--exchange", exchange]))?;
        let after = sent()?;
        let sum = checksum(&text)?;
        if sum != CHECKSUM {
            bail!("heat3d --exchange {exchange} on two hosts: {text}, not {CHECKSUM}");
        }
        let packets = [after[0] - before[0], after[1] - before[1]];
        println!(
            "heat3d --exchange {exchange} on 4 ranks of 2 hosts: checksum {sum}, packets {packets:?}"
        );
        // Faces of the grid alone are more.
        if packets.iter().any(|n| *n < 100) {
            bail!("the ranks have not talked over {DEVICE}");
        }
    }
    Ok(())
}

/// Packets that netem has dropped or reordered on both machines, from `tc -s qdisc`.
fn disturbed(word: &str) -> Result<u64> {
    let mut sum = 0;
    for text in both(&["tc", "-s", "qdisc", "show", "dev", NETDEV])? {
        // ` Sent 100 bytes 2 pkt (dropped 3, overlimits 0 requeues 4)`
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        while let Some(found) = words.next() {
            if found == word {
                sum += words
                    .next()
                    .and_then(|n| n.parse::<u64>().ok())
                    .unwrap_or(0);
            }
        }
    }
    Ok(sum)
}

fn netem_in_guest(bin: &Path) -> Result<()> {
    let job = bin.join("examples").join("conformance_job");
    let mut table = Vec::new();
    for (name, words) in NETEMS {
        let add = ["tc", "qdisc", "add", "dev", NETDEV, "root", "netem"];
        both(&[&add, words].concat())?;
        let before = sent()?;
        let started = Instant::now();
        let mut passed = 0;
        for (ranks, a_host) in JOBS {
            let mut command = mpiexec(ranks, a_host);
            println!(
                "$ {} (netem: {})",
                cargo::line(command.arg(&job)),
                words.join(" ")
            );
            let text = succeed(&mut command)?;
            print!("{text}");
            let cases = text.lines().filter(|l| l.contains("| pass |")).count();
            if !text.contains(&format!("{cases} cases passed")) {
                bail!("the suite under {name} has not come to its end");
            }
            passed += cases;
        }
        let after = sent()?;
        let packets = after[0] - before[0] + after[1] - before[1];
        let dropped = disturbed("dropped")?;
        table.push(format!(
            "{name}: {passed} cases passed in {:.0} s, {packets} packets sent, {dropped} dropped",
            started.elapsed().as_secs_f64()
        ));
        if passed == 0 || packets < 1000 {
            bail!("{passed} cases and {packets} packets say nothing");
        }
        if name.starts_with("loss") && dropped == 0 {
            bail!("netem has dropped nothing");
        }
        both(&["tc", "qdisc", "del", "dev", NETDEV, "root"])?;
    }
    println!();
    for line in table {
        println!("{line}");
    }
    Ok(())
}
