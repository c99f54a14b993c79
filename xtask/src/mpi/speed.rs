//! How long messages of an MPI take over shared memory by this provider, and by libfabric's own `shm`, in turn.

use super::{Built, LIMIT, Mpi, outcome};
use anyhow::{Result, bail};
use std::path::Path;
use std::process::Command;

/// What is timed: the program's first argument, bytes, and what the table says.
const CASES: [(&str, u32, &str); 6] = [
    ("pingpong", 8, "ping-pong, 8 B, half a round trip"),
    ("rate", 8, "window of 64, 8 B, a message"),
    ("pingpong", 1024, "ping-pong, 1 KiB"),
    ("pingpong", 4096, "ping-pong, 4 KiB"),
    ("pingpong", 65_536, "ping-pong, 64 KiB"),
    ("pingpong", 1 << 20, "ping-pong, 1 MiB"),
];
/// The peer: libfabric's provider of this name.
const PEER: &str = "shm";

/// Runs a job; the microseconds that it says.
pub(super) fn microseconds(command: &mut Command) -> Result<f64> {
    let Some((status, said)) = outcome(command)? else {
        bail!("a job was not over after {} s", LIMIT.as_secs());
    };
    let time = said.lines().find_map(|line| {
        let (_, time) = line.strip_prefix("median of ")?.split_once(": ")?;
        time.strip_suffix(" us")?.parse().ok()
    });
    match time {
        Some(time) if status.success() => Ok(time),
        _ => bail!("a job that is timed: {status}\n{said}"),
    }
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

/// Times every case so often by each of the two, and prints the medians.
pub(super) fn table(mpi: &Mpi, built: &Built, programs: &Path, rounds: u32) -> Result<()> {
    let program = mpi.compile("speed", programs)?;
    println!(
        "\n{}, 2 ranks on one machine, medians of {rounds} runs by turns, us:\n",
        mpi.version
    );
    println!("| | portolan | libfabric {PEER} | ratio |\n|---|--:|--:|--:|");
    for (what, bytes, name) in CASES {
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            for (provider, times) in ["portolan", PEER].into_iter().zip(&mut times) {
                let mut job = mpi.job(built, "shm", 2, &program);
                job.args([what, &bytes.to_string()]);
                job.env("FI_PROVIDER", provider);
                // Open MPI leaves some out by itself.
                job.env("OMPI_MCA_mtl_ofi_provider_include", provider);
                times.push(microseconds(&mut job)?);
            }
        }
        let [ours, peer] = times.each_mut().map(|times| median(times));
        println!("| {name} | {ours:.3} | {peer:.3} | {:.2} |", ours / peer);
    }
    Ok(())
}
