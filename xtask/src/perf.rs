//! `cargo xtask perf`: our operations beside Debian's perftest, in the same guest, as ratios.
//!
//! Every figure is refused unless the device's own packet counter moved by at least what the
//! payload needs: traffic that did not cross the device measures something else.

use crate::cargo::{self, cargo, release_dir};
use crate::packages;
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How often everything is measured; the table shows medians
    #[arg(long, default_value_t = 3)]
    repeat: u32,
}

#[derive(clap::Args)]
pub(crate) struct InGuest {
    #[arg(long)]
    device: String,
    #[arg(long)]
    bin: PathBuf,
    #[arg(long)]
    repeat: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure()?;
    cargo::run(&mut cargo(&["build", "--release", "--quiet"]))?;
    let own = std::env::current_exe().context("where this executable is")?;
    let bin = release_dir();
    let mut command = Command::new(bin.join("portolan"));
    command
        .args(["guest", "--timeout", "1200", "--"])
        .arg(own)
        .args([
            "perf-in-guest",
            "--device",
            "rxe0",
            "--repeat",
            &options.repeat.to_string(),
            "--bin",
        ])
        .arg(&bin);
    cargo::run(&mut command)
}

/// Packets the device has sent.
fn sent_packets(device: &str) -> Result<u64> {
    let path = format!("/sys/class/infiniband/{device}/ports/1/hw_counters/sent_pkts");
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    text.trim()
        .parse()
        .with_context(|| format!("{path} says {text:?}"))
}

/// A perftest program between two processes of this machine; the number in column `column` of the
/// last line of figures.
fn perftest(device: &str, tool: &str, bytes: u64, iterations: u64, column: usize) -> Result<f64> {
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
    let mut server = Command::new(tool)
        .args(common)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .with_context(|| format!("cannot start {tool}"))?;
    // The client is refused until the server listens.
    let mut last = String::new();
    for _ in 0..200 {
        let client = Command::new(tool).args(common).arg("127.0.0.1").output()?;
        last = String::from_utf8_lossy(&client.stdout).into_owned();
        let figures = last
            .lines()
            .rfind(|l| {
                l.split_whitespace()
                    .next()
                    .is_some_and(|w| w.parse::<u64>().is_ok())
            })
            .and_then(|l| l.split_whitespace().nth(column)?.parse().ok());
        if let (true, Some(figure)) = (client.status.success(), figures) {
            server.wait()?;
            return Ok(figure);
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

/// The median of one of our measurements, and the packets it sent.
fn ours(options: &InGuest, bench: &str, bytes: u64, iterations: u64) -> Result<(f64, u64)> {
    let before = sent_packets(&options.device)?;
    let mut command = Command::new(options.bin.join("portolan"));
    command.args([
        "bench",
        bench,
        "--fabric",
        "verbs",
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
    let needed = done * bytes.div_ceil(4096).max(1);
    if sent < needed {
        bail!(
            "{bench} of {bytes} B claims {done} operations but the device sent {sent} packets, fewer than {needed}"
        );
    }
    let median = result["median"].as_f64().context("no median")?;
    Ok((median, sent))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One row: ours, the peer's figure, and what the peer's is multiplied by to be the same thing.
struct Row {
    bench: &'static str,
    bytes: u64,
    iterations: u64,
    tool: &'static str,
    peer_bytes: u64,
    /// Column of perftest's line: typical latency 4, average bandwidth 3.
    column: usize,
    factor: f64,
    what: &'static str,
}

const LATENCY: usize = 4;
const BANDWIDTH: usize = 3;
/// perftest's MB are 2^20 bytes; ours are 10^6.
const MIB: f64 = 1.048_576;

const ROWS: &[Row] = &[
    Row {
        bench: "pingpong",
        bytes: 8,
        iterations: 1000,
        tool: "ib_send_lat",
        peer_bytes: 8,
        column: LATENCY,
        factor: 1.0,
        what: "ib_send_lat",
    },
    Row {
        bench: "pingpong",
        bytes: 8192,
        iterations: 300,
        tool: "ib_send_lat",
        peer_bytes: 8192,
        column: LATENCY,
        factor: 1.0,
        what: "ib_send_lat",
    },
    Row {
        bench: "put-latency",
        bytes: 8,
        iterations: 1000,
        tool: "ib_write_lat",
        peer_bytes: 8,
        column: LATENCY,
        factor: 2.0,
        what: "2 x ib_write_lat",
    },
    Row {
        bench: "get-latency",
        bytes: 8,
        iterations: 1000,
        tool: "ib_read_lat",
        peer_bytes: 8,
        column: LATENCY,
        factor: 1.0,
        what: "ib_read_lat",
    },
    Row {
        bench: "am-short",
        bytes: 0,
        iterations: 1000,
        tool: "ib_send_lat",
        peer_bytes: 8,
        column: LATENCY,
        factor: 2.0,
        what: "2 x ib_send_lat",
    },
    Row {
        bench: "put-bandwidth",
        bytes: 65_536,
        iterations: 500,
        tool: "ib_write_bw",
        peer_bytes: 65_536,
        column: BANDWIDTH,
        factor: MIB,
        what: "ib_write_bw",
    },
    Row {
        bench: "put-bandwidth",
        bytes: 1 << 20,
        iterations: 60,
        tool: "ib_write_bw",
        peer_bytes: 1 << 20,
        column: BANDWIDTH,
        factor: MIB,
        what: "ib_write_bw",
    },
];

pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    println!(
        "{:<14} {:>8} {:>10} {:>10}  {:<18} {:>6} {:>9}",
        "ours", "bytes", "ours", "peer", "peer's tool", "ratio", "packets"
    );
    for row in ROWS {
        let mut own = Vec::new();
        let mut peer = Vec::new();
        let mut packets = 0;
        for _ in 0..options.repeat.max(1) {
            let (figure, sent) = ours(options, row.bench, row.bytes, row.iterations)?;
            own.push(figure);
            packets = sent;
            let figure = perftest(
                &options.device,
                row.tool,
                row.peer_bytes,
                row.iterations.max(100),
                row.column,
            )?;
            peer.push(figure * row.factor);
        }
        let (own, peer) = (median(own), median(peer));
        println!(
            "{:<14} {:>8} {own:>10.2} {peer:>10.2}  {:<18} {:>6.2} {packets:>9}",
            row.bench,
            row.bytes,
            row.what,
            own / peer
        );
    }
    println!(
        "latencies in us (lower is better), bandwidths in MB/s (higher is better); medians of {}; packets of the last run",
        options.repeat
    );
    Ok(())
}
