//! `cargo xtask perf --fabric shm`: the shared-memory fabric on this machine beside Debian's UCX and Open MPI, each
//! row with its bound.
//!
//! A repetition measures ours and the peer's one after the other, because processors change their pace within
//! minutes; the table shows medians over the repetitions. A peer that is not installed leaves its rows without a
//! verdict.

use crate::cargo;
use crate::packages::is_there;
use crate::perf::median;
use crate::wait;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// What a row's bound is made of.
enum Bound {
    /// So much, in the row's unit.
    At(f64),
    /// So many times the peer's figure.
    Times(f64, Peer),
    /// Nothing: the peer's figure stands beside.
    Beside(Peer),
}

impl Bound {
    const fn peer(&self) -> Option<Peer> {
        match self {
            Self::At(_) => None,
            Self::Times(_, peer) | Self::Beside(peer) => Some(*peer),
        }
    }
}

/// Who is compared with.
#[derive(Clone, Copy)]
enum Peer {
    /// `ucx_perftest -t am_lat` over posix shared memory, which gives half of a round trip.
    Ucx,
    /// A ping-pong of this many bytes between two ranks of Open MPI, the whole round trip.
    MpiPingPong(u64),
    /// Messages of this many bytes between two ranks of Open MPI in windows of [`WINDOW`], one of them.
    MpiFlood(u64),
    /// The barrier of so many ranks of Open MPI.
    MpiBarrier(u32),
    /// A copy of this many bytes in the process that puts.
    Memcpy,
}

struct Row {
    what: &'static str,
    /// Words of `portolan bench`: name, ranks, bytes, durations.
    bench: &'static str,
    ranks: u32,
    bytes: u64,
    iterations: u64,
    bound: Bound,
    /// How the bound reads.
    rule: &'static str,
}

const ROWS: &[Row] = &[
    Row {
        what: "AM short, round trip",
        bench: "am-short",
        ranks: 2,
        bytes: 0,
        iterations: 100_000,
        bound: Bound::Times(2.0 * 0.85, Peer::Ucx),
        rule: "0.85 x 2 x ucx am_lat",
    },
    Row {
        what: "AM short, flood, per message",
        bench: "am-flood",
        ranks: 2,
        bytes: 0,
        iterations: 300,
        bound: Bound::At(0.050),
        rule: "50 ns",
    },
    Row {
        what: "blocking put, 8 B",
        bench: "segment-put",
        ranks: 2,
        bytes: 8,
        iterations: 2000,
        bound: Bound::At(0.010),
        rule: "10 ns",
    },
    Row {
        what: "put, 64 KiB",
        bench: "segment-put",
        ranks: 2,
        bytes: 64 << 10,
        iterations: 3000,
        bound: Bound::Times(1.0 / 0.95, Peer::Memcpy),
        rule: "memcpy / 0.95",
    },
    Row {
        what: "put, 1 MiB",
        bench: "segment-put",
        ranks: 2,
        bytes: 1 << 20,
        iterations: 1000,
        bound: Bound::Times(1.0 / 0.95, Peer::Memcpy),
        rule: "memcpy / 0.95",
    },
    Row {
        // The longest that a Medium may be.
        what: "AM medium 1984 B, round trip",
        bench: "am-medium",
        ranks: 2,
        bytes: 1984,
        iterations: 20_000,
        bound: Bound::Times(0.8, Peer::MpiPingPong(1984)),
        rule: "0.8 x Open MPI, there and back",
    },
    Row {
        what: "AM long 4 KiB, round trip",
        bench: "am-long",
        ranks: 2,
        bytes: 4096,
        iterations: 20_000,
        bound: Bound::Times(0.8, Peer::MpiPingPong(4096)),
        rule: "0.8 x Open MPI, there and back",
    },
    Row {
        what: "tagged message 8 B, one way",
        bench: "tag-pingpong",
        ranks: 2,
        bytes: 8,
        iterations: 50_000,
        bound: Bound::Times(1.5 / 2.0, Peer::MpiPingPong(8)),
        rule: "1.5 x Open MPI, one way",
    },
    Row {
        what: "tagged messages 8 B, windows of 64, one",
        bench: "tag-bandwidth",
        ranks: 2,
        bytes: 8,
        iterations: 20_000,
        bound: Bound::Beside(Peer::MpiFlood(8)),
        rule: "none; beside Open MPI's",
    },
    Row {
        what: "barrier of 2",
        bench: "barrier",
        ranks: 2,
        bytes: 0,
        iterations: 2000,
        bound: Bound::Times(1.0, Peer::MpiBarrier(2)),
        rule: "Open MPI's",
    },
    Row {
        what: "barrier of 8",
        bench: "barrier",
        ranks: 8,
        bytes: 0,
        iterations: 300,
        bound: Bound::At(100.0),
        rule: "100 us on 2 cores",
    },
];

/// The most that 256 ranks may have together, MB of 10^6 bytes.
const MEMORY: f64 = 512.0;

/// Messages of a window, as in `portolan bench tag-bandwidth`.
const WINDOW: u32 = 64;

/// The program that Open MPI runs: rows of barriers, of messages to and fro, or of windows of messages with an empty one
/// back; the second row counts.
const MPI_PROGRAM: &str = r#"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  int me, rounds = atoi(argv[1]), bytes = atoi(argv[2]), window = atoi(argv[3]);
  MPI_Request under_way[window > 0 ? window : 1];
  MPI_Comm all = MPI_COMM_WORLD;
  MPI_Comm_rank(all, &me);
  char *data = calloc(1, bytes > 0 ? bytes : 1);
  double took = 0;
  for (int row = 0; row < 2; row++) {
    MPI_Barrier(all);
    double start = MPI_Wtime();
    for (int i = 0; i < rounds; i++) {
      if (bytes < 0) {
        MPI_Barrier(all);
      } else if (window > 0) {
        for (int k = 0; k < window; k++)
          if (me == 0)
            MPI_Isend(data, bytes, MPI_BYTE, 1, 0, all, &under_way[k]);
          else
            MPI_Irecv(data, bytes, MPI_BYTE, 0, 0, all, &under_way[k]);
        MPI_Waitall(window, under_way, MPI_STATUSES_IGNORE);
        if (me == 0)
          MPI_Recv(data, 0, MPI_BYTE, 1, 1, all, MPI_STATUS_IGNORE);
        else
          MPI_Send(data, 0, MPI_BYTE, 0, 1, all);
      } else if (me == 0) {
        MPI_Send(data, bytes, MPI_BYTE, 1, 0, all);
        MPI_Recv(data, bytes, MPI_BYTE, 1, 0, all, MPI_STATUS_IGNORE);
      } else if (me == 1) {
        MPI_Recv(data, bytes, MPI_BYTE, 0, 0, all, MPI_STATUS_IGNORE);
        MPI_Send(data, bytes, MPI_BYTE, 0, 0, all);
      }
    }
    took = MPI_Wtime() - start;
  }
  if (me == 0)
    printf("us %.6f\n", took / rounds / (window > 0 ? window : 1) * 1e6);
  MPI_Finalize();
  free(data);
  return 0;
}
"#;

/// What there is to compare with.
struct Peers {
    ucx: bool,
    /// The program above, built.
    mpi: Option<PathBuf>,
    folder: TempDir,
}

impl Peers {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut peers = Self {
            ucx: is_there("ucx_perftest"),
            mpi: None,
            folder,
        };
        if !peers.ucx {
            println!("skipped: ucx_perftest is not installed (Debian: ucx-utils)");
        }
        if is_there("mpirun.openmpi") && is_there("mpicc.openmpi") {
            let source = peers.folder.path().join("peer.c");
            let program = peers.folder.path().join("peer");
            std::fs::write(&source, MPI_PROGRAM)?;
            let mut compiler = Command::new("mpicc.openmpi");
            compiler.arg("-O2").arg(&source).arg("-o").arg(&program);
            output(&mut compiler)?;
            peers.mpi = Some(program);
        } else {
            println!("skipped: Open MPI is not installed (Debian: openmpi-bin libopenmpi-dev)");
        }
        Ok(peers)
    }

    /// The figure of a peer, microseconds; `None` if it is not here.
    fn measure(&self, peer: Peer, row: &Row, bin: &Path) -> Result<Option<f64>> {
        match peer {
            Peer::Ucx if self.ucx => ucx().map(Some),
            Peer::Ucx => Ok(None),
            Peer::MpiPingPong(bytes) => self.mpi(2, 20_000, bytes as i64, 0),
            Peer::MpiFlood(bytes) => self.mpi(2, 20_000, bytes as i64, WINDOW),
            Peer::MpiBarrier(ranks) => self.mpi(ranks, 20_000, -1, 0),
            Peer::Memcpy => {
                let both = bench(bin, &[row.bench, "memcpy"], row)?;
                Ok(both.get(1).copied())
            }
        }
    }

    fn mpi(&self, ranks: u32, rounds: u32, bytes: i64, window: u32) -> Result<Option<f64>> {
        let Some(program) = &self.mpi else {
            return Ok(None);
        };
        let mut command = Command::new("mpirun.openmpi");
        command
            .args([
                "--oversubscribe",
                "--bind-to",
                "none",
                "-n",
                &ranks.to_string(),
            ])
            .args(["--mca", "pml", "ob1", "--mca", "btl", "self,vader"])
            .arg(program)
            .args([rounds.to_string(), bytes.to_string(), window.to_string()])
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        let text = output(&mut command)?;
        let figure = text
            .lines()
            .find_map(|l| l.strip_prefix("us ")?.parse().ok());
        figure
            .map(Some)
            .with_context(|| format!("{}: no figure in {text:?}", cargo::line(&command)))
    }
}

/// What a command prints; an error if it fails.
fn output(command: &mut Command) -> Result<String> {
    let out = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr);
        bail!("{}: {}\n{text}{errors}", cargo::line(command), out.status);
    }
    Ok(text)
}

/// Half a round trip of UCX's active messages of 8 bytes over posix shared memory.
fn ucx() -> Result<f64> {
    // A port that nobody else takes at the same time, as far as process ids go.
    let port = (20_000 + std::process::id() % 20_000).to_string();
    let mut server = Command::new("ucx_perftest")
        .args(["-p", &port])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start ucx_perftest")?;
    let mut last = String::new();
    // The client is refused until the server listens.
    for _ in 0..200 {
        let mut client = Command::new("ucx_perftest");
        client
            .args(["127.0.0.1", "-p", &port, "-d", "memory", "-x", "posix"])
            .args([
                "-t", "am_lat", "-s", "8", "-n", "200000", "-w", "10000", "-f",
            ]);
        let out = client.output()?;
        last = String::from_utf8_lossy(&out.stdout).into_owned();
        let typical = last.lines().rev().find_map(|l| {
            let mut words = l.split_whitespace();
            words.next()?.parse::<u64>().ok()?;
            words.next()?.parse().ok()
        });
        if let (true, Some(typical)) = (out.status.success(), typical) {
            server.wait()?;
            return Ok(typical);
        }
        if wait::end(&mut server, Duration::from_millis(10))?.is_some() {
            break;
        }
    }
    let _ = server.kill();
    let _ = server.wait();
    bail!("ucx_perftest gave no figure: {last}")
}

fn bench_command(bin: &Path, names: &[&str], row: &Row) -> Command {
    let mut command = Command::new(bin.join("portolan"));
    command
        .arg("bench")
        .args(names)
        .args(["--fabric", "shm", "--json", "-"])
        .args(["-n", &row.ranks.to_string()])
        .args(["--sizes", &row.bytes.to_string()])
        .args(["--iters", &row.iterations.to_string()]);
    command
}

/// The medians of our measurements, one process for all.
fn bench(bin: &Path, names: &[&str], row: &Row) -> Result<Vec<f64>> {
    let text = output(&mut bench_command(bin, names, row))?;
    let medians: Vec<f64> = text
        .lines()
        .map(|line| {
            let result: serde_json::Value = serde_json::from_str(line)?;
            let median = result["median"].as_f64().context("no median")?;
            // A MB/s is a byte a microsecond.
            let is_rate = result["unit"].as_str() == Some("MB/s");
            Ok(if is_rate {
                row.bytes as f64 / median
            } else {
                median
            })
        })
        .collect::<Result<_>>()?;
    if medians.len() != names.len() {
        bail!("{names:?}: {text}");
    }
    Ok(medians)
}

/// The children of a process, by number.
fn children(parent: &str) -> Vec<String> {
    let file = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(file).unwrap_or_default();
    children.split_whitespace().map(str::to_owned).collect()
}

/// What the ranks of a launcher have together, MB: their memory, that which they share counted once, and the tables
/// that map it. They are the children of its supervisor, which is its child.
fn memory_of_ranks(launcher: u32) -> f64 {
    let field = |pid: &str, file: &str, name: &str| -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let found = text.lines().find_map(|l| l.strip_prefix(name));
        let number = found.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
        number.unwrap_or(0.0)
    };
    let supervisors = children(&launcher.to_string());
    let ranks = supervisors.iter().flat_map(|pid| children(pid));
    let kib: f64 = ranks
        .map(|pid| field(&pid, "smaps_rollup", "Pss:") + field(&pid, "status", "VmPTE:"))
        .sum();
    kib * 1024e-6
}

/// The most that 256 ranks have together while they start and run barriers, as far as looks at it show.
fn memory(bin: &Path) -> Result<f64> {
    let row = Row {
        what: "",
        bench: "barrier",
        ranks: 256,
        bytes: 0,
        iterations: 20,
        bound: Bound::At(MEMORY),
        rule: "",
    };
    let mut job: Child = bench_command(bin, &[row.bench], &row)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start portolan bench")?;
    let mut most = 0f64;
    let status = loop {
        most = most.max(memory_of_ranks(job.id()));
        if let Some(status) = wait::end(&mut job, Duration::from_millis(100))? {
            break status;
        }
    };
    if !status.success() {
        bail!("barrier of 256 ranks: {status}");
    }
    Ok(most)
}

fn verdict(ours: f64, bound: Option<f64>) -> &'static str {
    match bound {
        Some(bound) if ours <= bound => "met",
        Some(_) => "missed",
        None => "no peer",
    }
}

/// Measures everything, in release executables of `bin`, `repeat` times.
pub(crate) fn run(bin: &Path, repeat: u32) -> Result<()> {
    let peers = Peers::new()?;
    println!(
        "{:<39} {:>10} {:>10} {:>10} {:>10}  {:<8} bound is",
        "microseconds", "ours", "peer", "ours/peer", "bound", ""
    );
    for row in ROWS {
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..repeat.max(1) {
            own.push(bench(bin, &[row.bench], row)?[0]);
            if let Some(peer) = row.bound.peer() {
                theirs.extend(peers.measure(peer, row, bin)?);
            }
        }
        let own = median(own);
        let peer = (!theirs.is_empty()).then(|| median(theirs));
        let bound = match row.bound {
            Bound::At(bound) => Some(bound),
            Bound::Times(times, _) => peer.map(|peer| times * peer),
            Bound::Beside(_) => None,
        };
        let verdict = match row.bound {
            Bound::Beside(_) if peer.is_some() => "beside",
            _ => verdict(own, bound),
        };
        let ratio = peer.map_or("-".to_owned(), |peer| format!("{:.2}", own / peer));
        let show = |figure: Option<f64>| figure.map_or("-".to_owned(), |f| format!("{f:.4}"));
        println!(
            "{:<39} {own:>10.4} {:>10} {ratio:>10} {:>10}  {verdict:<8} {}",
            row.what,
            show(peer),
            show(bound),
            row.rule
        );
    }
    let used: Vec<f64> = (0..repeat.max(1))
        .map(|_| memory(bin))
        .collect::<Result<_>>()?;
    let used = median(used);
    println!(
        "{:<39} {used:>10.1} {:>10} {:>10} {MEMORY:>10.1}  {:<8} 512 MB",
        "memory of 256 ranks, MB",
        "-",
        "-",
        verdict(used, Some(MEMORY))
    );
    println!(
        "medians of {repeat}; peers' figures as they print them (am_lat is half a round trip)"
    );
    Ok(())
}
