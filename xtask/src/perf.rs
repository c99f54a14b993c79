//! `cargo xtask perf`: our operations beside Debian's perftest, in the same guest, as ratios; with `--fabric shm`
//! beside UCX and Open MPI on this machine (`perf_shm.rs`).
//!
//! Ours and the peer's are measured in turns, each as much as the other. The table has the ratio of the two medians, and the
//! quartiles of the ratios of each of ours to the peer's after it: on a machine that others use, how far apart they are says
//! what the ratio is worth. Of latencies it has the ratio of the two least rounds too: a machine that is slow for most of the
//! time of one and not of the other moves medians, but hardly those. Bounds are for the medians.
//!
//! Every figure is refused unless the device's own packet counter moved by at least what the
//! payload needs: traffic that did not cross the device measures something else.

use crate::cargo::{self, release_dir};
use crate::{packages, perf_shm};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; the table shows medians
    #[arg(long, default_value_t = 3)]
    repeat: u32,
    /// What to measure: verbs, in a guest, or shm, on this machine
    #[arg(long, default_value = "verbs", value_parser = ["verbs", "shm"])]
    fabric: String,
    /// Over verbs, only measurements whose name contains this
    #[arg(long, value_name = "WORD", default_value = "")]
    only: String,
}

#[derive(clap::Args)]
pub(crate) struct InGuest {
    #[arg(long)]
    device: String,
    #[arg(long)]
    bin: PathBuf,
    #[arg(long)]
    repeat: u32,
    #[arg(long)]
    only: String,
}

/// For the guest: its start, and a repetition of all rows. Most take a minute and a half.
const SECONDS: u32 = 300;
const SECONDS_A_REPETITION: u32 = 300;

pub(crate) fn run(options: &Options) -> Result<()> {
    if options.fabric == "shm" {
        cargo::build(&["--package", "portolan"])?;
        return perf_shm::run(&release_dir(), options.repeat);
    }
    if !ROWS.iter().any(|row| row.bench.contains(&options.only)) {
        bail!("no measurement has {:?} in its name", options.only);
    }
    packages::ensure()?;
    cargo::build(&[])?;
    let own = cargo::own_exe()?;
    let bin = release_dir();
    let mut command = Command::new(bin.join("portolan"));
    let seconds = SECONDS + options.repeat * SECONDS_A_REPETITION;
    command
        .args(["guest", "--timeout", &seconds.to_string(), "--"])
        .arg(own)
        .args([
            "perf-in-guest",
            "--device",
            "rxe0",
            "--repeat",
            &options.repeat.to_string(),
        ])
        .arg(format!("--only={}", options.only))
        .arg("--bin")
        .arg(&bin);
    cargo::run(&mut command)
}

/// Packets the device has sent.
pub(crate) fn sent_packets(device: &str) -> Result<u64> {
    let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.trim()
        .parse()
        .with_context(|| format!("{path} says {text:?}"))
}

/// What a run of one side gave.
#[derive(Clone, Copy)]
struct Figures {
    /// The median of a latency; a bandwidth or rate.
    typical: f64,
    /// The least of a latency.
    least: Option<f64>,
}

/// A perftest program between two processes of this machine; from its last line of figures the number in column `column`, and
/// the least round if that is a latency.
fn perftest(
    device: &str,
    tool: &str,
    bytes: u64,
    iterations: u64,
    column: Column,
) -> Result<Figures> {
    let (size, iterations) = (bytes.to_string(), iterations.to_string());
    let common = [
        "-d",
        device,
        "-x",
        "1",
        "-s",
        &size,
        "-n",
        &iterations,
        "-F",
    ];
    // A tool may have words of its own: `ib_send_bw -c UD`.
    let start = || {
        let mut words = tool.split(' ');
        let mut command = Command::new(words.next().unwrap_or(tool));
        command.args(words).args(common);
        command
    };
    let mut server = start()
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {tool}"))?;
    // The client is refused until the server listens.
    let mut last = String::new();
    for _ in 0..200 {
        let client = start().arg("127.0.0.1").output()?;
        last = String::from_utf8_lossy(&client.stdout).into_owned();
        let figures = last.lines().rfind(|l| {
            l.split_whitespace()
                .next()
                .is_some_and(|w| w.parse::<u64>().is_ok())
        });
        let at = |column: usize| figures?.split_whitespace().nth(column)?.parse().ok();
        if let (true, Some(typical)) = (client.status.success(), at(column.place())) {
            server.wait()?;
            let least = column.is_latency().then(|| at(LEAST)).flatten();
            return Ok(Figures { typical, least });
        }
        if server.try_wait()?.is_some() {
            break;
        }
        std::thread::yield_now();
    }
    let _ = server.kill();
    let _ = server.wait();
    bail!("{tool} -s {bytes} gave no figure: {last}")
}

/// What one of our measurements gave, and the packets it sent.
fn ours(options: &InGuest, row: &Row, bench: &str) -> Result<(Figures, u64)> {
    let (bytes, iterations) = (row.bytes, row.iterations);
    let before = sent_packets(&options.device)?;
    let mut command = Command::new(options.bin.join("portolan"));
    command.arg("bench").args(bench.split(' ')).args([
        "--fabric",
        "verbs",
        "--no-shm",
        "--device",
        &options.device,
    ]);
    command.args([
        "--sizes",
        &bytes.to_string(),
        "--iters",
        &iterations.to_string(),
        "--json",
        "-",
    ]);
    let output = command.output().context("cannot start portolan bench")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        bail!(
            "{}: {text}{}",
            cargo::line(&command),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let sent = sent_packets(&options.device)? - before;
    let line = text.lines().last().context("no result")?;
    let result: serde_json::Value = serde_json::from_str(line)?;
    let done = result["iters"].as_u64().unwrap_or(0);
    let needed = done * row.window * bytes.div_ceil(4096).max(1);
    if sent < needed {
        bail!(
            "{bench} of {bytes} B claims {done} times {} operations but the device sent {sent} packets, fewer than {needed}",
            row.window
        );
    }
    let typical = result["median"].as_f64().context("no median")?;
    let latency = row.column.is_latency();
    let least = latency.then(|| result["min"].as_f64()).flatten();
    Ok((Figures { typical, least }, sent))
}

/// The peer's figure, as its tool gives it.
fn peers(options: &InGuest, row: &Row) -> Result<Figures> {
    if row.tool == OVER_RC {
        let bench = row.bench.split(' ').next().unwrap_or(row.bench);
        return Ok(ours(options, row, bench)?.0);
    }
    perftest(
        &options.device,
        row.tool,
        row.peer_bytes,
        row.peer_iterations(),
        row.column,
    )
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The quartiles of the ratios of what was measured in turns: of four, one is below the first and one above the second.
fn quartiles(own: &[f64], peer: &[f64]) -> (f64, f64) {
    let mut ratios: Vec<f64> = own.iter().zip(peer).map(|(o, p)| o / p).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |part: usize| ratios[(ratios.len() - 1) * part / 4];
    (at(1), at(3))
}

/// The ratio of the least rounds of both, the peer's times `factor`; of latencies.
fn ratio_of_least(own: &[Figures], peer: &[Figures], factor: f64) -> Option<f64> {
    let of = |figures: &[Figures]| {
        figures
            .iter()
            .filter_map(|f| f.least)
            .min_by(f64::total_cmp)
    };
    Some(of(own)? / (of(peer)? * factor))
}

/// What a ratio of ours to the peer's is to be.
#[derive(Clone, Copy)]
enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Bound {
    fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtMost(bound) => ratio <= bound,
            Self::AtLeast(bound) => ratio >= bound,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, bound) = match self {
            Self::AtMost(bound) => ("<=", bound),
            Self::AtLeast(bound) => (">=", bound),
        };
        f.pad(&format!("{sign} {bound:.2}"))
    }
}

/// One row: ours, the peer's figure, and what the peer's is multiplied by to be the same thing.
struct Row {
    bench: &'static str,
    bytes: u64,
    iterations: u64,
    /// Operations of one iteration.
    window: u64,
    tool: &'static str,
    peer_bytes: u64,
    column: Column,
    factor: f64,
    what: &'static str,
    bound: Bound,
}

/// What of perftest's line is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    /// The typical one.
    Latency,
    /// The average.
    Bandwidth,
    /// In millions a second.
    Rate,
}

impl Column {
    fn place(self) -> usize {
        match self {
            Self::Latency | Self::Rate => 4,
            Self::Bandwidth => 3,
        }
    }

    fn is_latency(self) -> bool {
        self == Self::Latency
    }
}

/// Where perftest's line has the least latency.
const LEAST: usize = 2;
/// perftest's MB are 2^20 bytes; ours are 10^6.
const MIB: f64 = 1.048_576;

impl Row {
    /// The number of messages that move what ours do.
    fn peer_iterations(&self) -> u64 {
        self.iterations * self.window * (self.bytes / self.peer_bytes).max(1)
    }
}

/// Rounds of a latency. The emulated processor has to translate what it meets first, which perftest does not leave out of
/// what it counts; and it changes between a fast state and a slow one within milliseconds, of which a median needs many.
const LONG: u64 = 50_000;

/// In place of a tool: the same measurement of ours over connections.
const OVER_RC: &str = "rc";

/// A put or get of 8 bytes until its caller knows that it is done.
const PUT: Row = Row {
    bench: "put-latency",
    bytes: 8,
    iterations: LONG,
    window: 1,
    tool: "ib_write_lat",
    peer_bytes: 8,
    column: Column::Latency,
    factor: 2.0,
    what: "2 x ib_write_lat",
    bound: Bound::AtMost(1.00),
};

const GET: Row = Row {
    bench: "get-latency",
    bytes: 8,
    iterations: LONG,
    window: 1,
    tool: "ib_read_lat",
    peer_bytes: 8,
    column: Column::Latency,
    factor: 1.0,
    what: "ib_read_lat",
    bound: Bound::AtMost(1.05),
};

const ROWS: &[Row] = &[
    Row {
        bench: "put-latency --channel ud",
        bytes: 8,
        iterations: LONG,
        window: 1,
        tool: OVER_RC,
        peer_bytes: 8,
        column: Column::Latency,
        factor: 1.0,
        what: "ours over rc",
        bound: Bound::AtMost(1.25),
    },
    // What of that is the wire's: a datagram there, and one back.
    Row {
        bench: "put-latency --channel ud",
        bytes: 8,
        iterations: LONG,
        window: 1,
        tool: "ib_send_lat -c UD",
        peer_bytes: 8,
        column: Column::Latency,
        factor: 2.0,
        what: "2 x ib_send_lat -c UD",
        bound: Bound::AtMost(1.25),
    },
    Row {
        bench: "put-bandwidth --channel ud",
        bytes: 65_536,
        iterations: 125,
        window: 16,
        // The longest message that a datagram carries is its best.
        tool: "ib_send_bw -c UD",
        peer_bytes: 4096,
        column: Column::Bandwidth,
        factor: MIB,
        what: "ib_send_bw -c UD",
        bound: Bound::AtLeast(0.85),
    },
    Row {
        bench: "pingpong",
        bytes: 8,
        iterations: LONG,
        window: 1,
        tool: "ib_send_lat",
        peer_bytes: 8,
        column: Column::Latency,
        factor: 1.0,
        what: "ib_send_lat",
        bound: Bound::AtMost(1.15),
    },
    Row {
        bench: "tag-pingpong",
        bytes: 8,
        iterations: LONG,
        window: 1,
        tool: "ib_send_lat",
        peer_bytes: 8,
        column: Column::Latency,
        factor: 1.0,
        what: "ib_send_lat",
        bound: Bound::AtMost(1.3),
    },
    Row {
        bench: "pingpong",
        bytes: 8192,
        iterations: LONG / 2,
        window: 1,
        tool: "ib_send_lat",
        peer_bytes: 8192,
        column: Column::Latency,
        factor: 1.0,
        what: "ib_send_lat",
        bound: Bound::AtMost(1.08),
    },
    PUT,
    GET,
    // What programs of the conduit call, which needs no event.
    Row {
        bench: "segment-put",
        ..PUT
    },
    Row {
        bench: "segment-get",
        ..GET
    },
    Row {
        bench: "am-short",
        bytes: 0,
        iterations: LONG,
        window: 1,
        tool: "ib_send_lat",
        peer_bytes: 8,
        column: Column::Latency,
        factor: 2.0,
        what: "2 x ib_send_lat",
        bound: Bound::AtMost(1.15),
    },
    Row {
        bench: "put-rate",
        bytes: 8,
        iterations: 300,
        window: 64,
        tool: "ib_write_bw",
        peer_bytes: 8,
        column: Column::Rate,
        factor: 1e6,
        what: "ib_write_bw, op/s",
        bound: Bound::AtLeast(1.20),
    },
    Row {
        bench: "put-bandwidth",
        bytes: 65_536,
        iterations: 125,
        window: 16,
        tool: "ib_write_bw",
        peer_bytes: 65_536,
        column: Column::Bandwidth,
        factor: MIB,
        what: "ib_write_bw",
        bound: Bound::AtLeast(0.98),
    },
    Row {
        bench: "put-bandwidth",
        bytes: 1 << 20,
        iterations: 30,
        window: 4,
        tool: "ib_write_bw",
        peer_bytes: 1 << 20,
        column: Column::Bandwidth,
        factor: MIB,
        what: "ib_write_bw",
        bound: Bound::AtLeast(0.98),
    },
];

pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    println!(
        "{:<26} {:>8} {:>10} {:>10}  {:<21} {:>6} {:>11} {:>8} {:<6} {:>6} {:>9}",
        "ours",
        "bytes",
        "ours",
        "peer",
        "peer's tool",
        "ratio",
        "quartiles",
        "bound",
        "",
        "least",
        "packets"
    );
    for row in ROWS.iter().filter(|row| row.bench.contains(&options.only)) {
        let mut own = Vec::new();
        let mut peer = Vec::new();
        let mut packets = 0;
        for _ in 0..options.repeat.max(1) {
            let (figures, sent) = ours(options, row, row.bench)?;
            own.push(figures);
            packets = sent;
            peer.push(peers(options, row)?);
        }
        let least = ratio_of_least(&own, &peer, row.factor);
        let least = least.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"));
        let own: Vec<f64> = own.iter().map(|f| f.typical).collect();
        let peer: Vec<f64> = peer.iter().map(|f| f.typical * row.factor).collect();
        let (first, third) = quartiles(&own, &peer);
        let quartiles = format!("{first:.2}-{third:.2}");
        let (own, peer) = (median(own), median(peer));
        let ratio = own / peer;
        let met = if row.bound.is_met(ratio) {
            "met"
        } else {
            "missed"
        };
        println!(
            "{:<26} {:>8} {own:>10.2} {peer:>10.2}  {:<21} {ratio:>6.2} {quartiles:>11} {:>8} {met:<6} {least:>6} {packets:>9}",
            row.bench, row.bytes, row.what, row.bound
        );
    }
    println!(
        "latencies in us (lower is better), bandwidths in MB/s and rates in operations a second (higher is better); \
         medians of {}, quartiles of the ratios of each two; least: the ratio of the least rounds of all; packets of the last run",
        options.repeat.max(1)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Figures, quartiles, ratio_of_least};

    #[test]
    fn the_least_rounds_of_all_repetitions_are_compared() {
        let run = |least| Figures {
            typical: 9.0,
            least,
        };
        let (own, peer) = (
            [run(Some(3.0)), run(Some(2.0))],
            [run(Some(1.0)), run(Some(4.0))],
        );
        assert_eq!(ratio_of_least(&own, &peer, 2.0), Some(1.0));
        assert_eq!(ratio_of_least(&own, &[run(None)], 2.0), None);
    }

    #[test]
    fn quartiles_are_of_the_ratios_of_each_two() {
        let own = [2.0, 9.0, 4.0, 3.0, 100.0];
        let peer = [1.0, 3.0, 1.0, 3.0, 10.0];
        assert_eq!(quartiles(&own, &peer), (2.0, 4.0));
        assert_eq!(quartiles(&[3.0], &[2.0]), (1.5, 1.5));
    }
}
