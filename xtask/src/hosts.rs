//! What needs two machines with a wire between them: `cargo xtask two-hosts`, `cargo xtask conformance --netem`, and
//! `cargo xtask datagrams --netem`.
//!
//! On one machine SoftRoCE hands packets to itself, past the network interface; loss and reordering there would change
//! nothing. Between two guests every packet crosses the interface on which netem sits, in both directions.

use crate::cargo::{self, release_dir};
use crate::endtoend::{checksum, succeed, succeed_saying};
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

/// What netem does to datagrams: of 100 packets one is lost, one comes twice, and five wait and are overtaken.
const NETEM_OF_DATAGRAMS: (&str, &[&str]) = (
    "loss of 1 %, reordering of 5 %, duplication of 1 %",
    &[
        "delay",
        "3ms",
        "reorder",
        "95%",
        "loss",
        "1%",
        "duplicate",
        "1%",
    ],
);
/// Of the counts that ranks print of their datagrams: which are not 0 where packets are treated so.
const COUNTS: [&str; 3] = ["resends", "held", "window_low"];
/// Of the counts that ranks print of their connections.
const RING_FRAMES: &str = "ring_frames";
/// Words of the table of gups as a power of two, and updates.
const GUPS: [&str; 4] = ["--log2-table", "12", "--updates", "8192"];

/// What one rank of a job that names no fabric says.
const TAKEN: &str =
    "portolan: fabric verbs: 4 ranks are on 2 machines, and those of one machine share memory";

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
    /// heat3d, gups and the conformance suite under netem
    Netem {
        /// Folder of the executables
        bin: PathBuf,
        /// The grid, which both machines see
        grid: PathBuf,
    },
    /// The conformance suite, heat3d and gups over datagrams under netem
    Datagrams {
        /// Folder of the executables
        bin: PathBuf,
        /// The grid, which both machines see
        grid: PathBuf,
    },
}

/// The guest's command line so far: two machines, on the first of which this executable runs.
fn guests(seconds: u32) -> Result<Command> {
    let own = cargo::own_exe()?;
    let mut command = Command::new(release_dir().join("portolan"));
    command
        .args(["guest", "--hosts", "2", "--memory", "1024"])
        .args(["--timeout", &seconds.to_string(), "--"])
        .arg(own)
        .arg("hosts-in-guest");
    Ok(command)
}

/// Removes a folder at the end of its use.
/// heat3d on four ranks of two machines, started by mpiexec on one of them.
pub(crate) fn two_hosts() -> Result<()> {
    cargo::build(&["-p", "portolan", "-p", "programs"])?;
    heat3d()
}

/// The same, of executables that are there.
pub(crate) fn heat3d() -> Result<()> {
    with_grid("heat3d", 300)
}

/// Runs words in the guests that get a grid, and checks what heat3d makes of it on this machine.
fn with_grid(what: &str, seconds: u32) -> Result<()> {
    let bin = release_dir();
    // What a guest writes the other one does not see: the grid is made outside.
    let folder = tempfile::tempdir()?;
    let grid = folder.path().join("grid");
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
    let mut command = guests(seconds)?;
    command.arg(what).arg(&bin).arg(&grid);
    cargo::run(&mut command)?;
    println!("two hosts: {:.1} s", started.elapsed().as_secs_f64());
    Ok(())
}

/// The conformance suite, heat3d and gups over datagrams and two machines, under netem.
pub(crate) fn datagrams() -> Result<()> {
    cargo::build(&[
        "-p",
        "portolan",
        "-p",
        "programs",
        "-p",
        "portolan-tests",
        "--bins",
        "--example",
        "conformance_job",
    ])?;
    with_grid("datagrams", 900)
}

/// The conformance suite, heat3d and gups over two machines under netem.
pub(crate) fn netem() -> Result<()> {
    cargo::build(&[
        "-p",
        "portolan",
        "-p",
        "programs",
        "-p",
        "portolan-tests",
        "--bins",
        "--example",
        "conformance_job",
    ])?;
    with_grid("netem", 3600)
}

/// On the first machine.
pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    match &options.what {
        What::Heat3d { bin, grid } => heat3d_in_guest(bin, grid),
        What::Netem { bin, grid } => netem_in_guest(bin, grid),
        What::Datagrams { bin, grid } => datagrams_in_guest(bin, grid),
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

fn mpiexec(ranks: &str, a_host: &str, channel: &str) -> Command {
    mpiexec_over("verbs", ranks, a_host, channel)
}

fn mpiexec_over(fabric: &str, ranks: &str, a_host: &str, channel: &str) -> Command {
    let mut c = Command::new("mpiexec.hydra");
    c.args(["-n", ranks, "-ppn", a_host]);
    c.args(["-genv", "PORTOLAN_FABRIC", fabric]);
    c.args(["-genv", "PORTOLAN_DEVICE", DEVICE]);
    c.args(["-genv", "PORTOLAN_CHANNEL", channel]);
    c.args(["-genv", "PORTOLAN_DATAGRAM_STATS", "1"]);
    c.args(["-genv", "PORTOLAN_CONNECTION_STATS", "1"]);
    // Of the channel auto: pairs move early, and in the larger jobs not all do.
    c.args(["-genv", "PORTOLAN_CHATTY", "3"]);
    c.args(["-genv", "PORTOLAN_CONNECTIONS", "4"]);
    c
}

fn heat3d_in_guest(bin: &Path, grid: &Path) -> Result<()> {
    for exchange in ["am", "put"] {
        let before = sent()?;
        // Nobody names the fabric: the ranks find out that they are on two machines, and that both have a device.
        let mut command = mpiexec_over("auto", "4", "2", "rc");
        command.arg(bin.join("heat3d")).arg(grid);
        let (text, errors) = succeed_saying(command.args(["--exchange", exchange]))?;
        let after = sent()?;
        if errors.matches(TAKEN).count() != 1 {
            bail!("no rank, or more than one, has said {TAKEN:?}: {errors}");
        }
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

/// The conformance suite; how many cases passed, and what the ranks said beside it.
fn suite(bin: &Path, channel: &str, netem: &str) -> Result<(usize, String)> {
    let job = bin.join("examples").join("conformance_job");
    let mut passed = 0;
    let mut said = String::new();
    for (ranks, a_host) in JOBS {
        let mut command = mpiexec(ranks, a_host, channel);
        println!("$ {} (netem: {netem})", cargo::line(command.arg(&job)));
        let (text, errors) = succeed_saying(&mut command)?;
        print!("{text}");
        let cases = text.lines().filter(|l| l.contains("| pass |")).count();
        if !text.contains(&format!("{cases} cases passed")) {
            bail!("the suite under {netem} has not come to its end");
        }
        passed += cases;
        said.push_str(&errors);
    }
    Ok((passed, said))
}

/// Does `work`, which says how many cases passed, while netem does that to each packet; a line of what happened.
fn under(name: &str, words: &[&str], work: impl FnOnce(&str) -> Result<usize>) -> Result<String> {
    let add = ["tc", "qdisc", "add", "dev", NETDEV, "root", "netem"];
    both(&[&add, words].concat())?;
    let before = sent()?;
    let started = Instant::now();
    let passed = work(&words.join(" "))?;
    let after = sent()?;
    let packets = after[0] - before[0] + after[1] - before[1];
    let dropped = disturbed("dropped")?;
    if passed == 0 || packets < 1000 {
        bail!("{passed} cases and {packets} packets say nothing");
    }
    if name.starts_with("loss") && dropped == 0 {
        bail!("netem has dropped nothing");
    }
    both(&["tc", "qdisc", "del", "dev", NETDEV, "root"])?;
    Ok(format!(
        "{name}: {passed} cases passed in {:.0} s, {packets} packets sent, {dropped} dropped",
        started.elapsed().as_secs_f64()
    ))
}

fn netem_in_guest(bin: &Path, grid: &Path) -> Result<()> {
    let serial = serial(bin)?;
    let mut table = Vec::new();
    for (name, words) in NETEMS {
        let mut in_rings = 0;
        table.push(under(name, words, |netem| {
            // A rank for each machine: a job of more ranks than processors has no rings.
            let said = programs(bin, grid, &serial, ["2", "1"], "rc", netem)?;
            in_rings = counted(&said, RING_FRAMES);
            suite(bin, "rc", netem).map(|(passed, _)| passed)
        })?);
        println!("{RING_FRAMES}: {in_rings}");
        if in_rings == 0 {
            bail!("no short frame was written into a ring");
        }
    }
    println!("\n{}", table.join("\n"));
    Ok(())
}

fn datagrams_in_guest(bin: &Path, grid: &Path) -> Result<()> {
    let serial = serial(bin)?;
    for channel in ["ud", "auto"] {
        over_datagrams(bin, grid, &serial, channel)?;
    }
    Ok(())
}

/// The checksum of gups without a fabric.
fn serial(bin: &Path) -> Result<String> {
    let mut command = Command::new(bin.join("gups"));
    checksum(&succeed(command.arg("--serial").args(GUPS))?)
}

/// heat3d and gups on so many ranks, so many of them on a machine; what the ranks said beside their results, which are those
/// of one rank.
fn programs(
    bin: &Path,
    grid: &Path,
    serial: &str,
    [ranks, a_host]: [&str; 2],
    channel: &str,
    netem: &str,
) -> Result<String> {
    let mut said = String::new();
    for (program, expected) in [("heat3d", CHECKSUM), ("gups", serial)] {
        let mut command = mpiexec(ranks, a_host, channel);
        command.arg(bin.join(program));
        match program {
            "gups" => command.args(GUPS),
            _ => command.arg(grid),
        };
        let (text, errors) = succeed_saying(&mut command)?;
        said.push_str(&errors);
        let sum = checksum(&text)?;
        println!("{program} on {ranks} ranks (netem: {netem}): checksum {sum}");
        if sum != expected {
            bail!("{program} over {channel}: checksum {sum}, not {expected}");
        }
    }
    Ok(said)
}

/// Two programs and the suite over a channel that has datagrams, of which netem loses, delays and repeats some.
fn over_datagrams(bin: &Path, grid: &Path, serial: &str, channel: &str) -> Result<()> {
    let (name, words) = NETEM_OF_DATAGRAMS;
    let mut said = String::new();
    let line = under(name, words, |netem| {
        said = programs(bin, grid, serial, ["4", "2"], channel, netem)?;
        let (passed, errors) = suite(bin, channel, netem)?;
        said.push_str(&errors);
        Ok(passed)
    })?;
    println!("\n{channel}, {line}");
    let moves = (channel == "auto").then_some("moves");
    for name in COUNTS.into_iter().chain(moves) {
        let count = counted(&said, name);
        println!("{name}: {count}");
        if count == 0 {
            bail!("all ranks count no {name}: nothing has happened to them");
        }
    }
    Ok(())
}

/// The sum of one of the counts that ranks print at their close.
fn counted(said: &str, name: &str) -> u64 {
    let name = format!(" {name}: ");
    let after = |found: &str| found.split([',', ' ']).next()?.parse::<u64>().ok();
    said.split(&name).skip(1).filter_map(after).sum()
}
