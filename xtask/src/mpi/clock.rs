//! What an MPI's own clock says of messages on the model, in virtual time, and whether it says the same again.

use super::speed::microseconds;
use super::{Built, Mpi};
use crate::cargo;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

const SIZES: [u32; 6] = [0, 8, 512, 4096, 65_536, 1 << 20];
/// What the MPI's figure may be more than the bench's, which has the time of Catamount's MPI library in it, not of this one: a factor. Another
/// clock than the model's is wrong by far more.
const ALLOWED: f64 = 2.0;

/// What `portolan bench` says of the same on the model, microseconds.
fn modelled(built: &Built, bytes: u32) -> Result<f64> {
    let mut bench = Command::new(&built.portolan);
    bench.args(["bench", "pingpong", "--fabric", "seastar", "--json", "-"]);
    bench.args(["--sizes", &bytes.to_string()]);
    let out = bench.output().context("portolan bench")?;
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr);
        bail!("{}: {}\n{errors}", cargo::line(&bench), out.status);
    }
    let result: serde_json::Value = serde_json::from_slice(&out.stdout)?;
    result["median"].as_f64().context("no median")
}

/// Prints the times of every size; gives the number of those that differ from run to run by a nanosecond or more, or are far from the model's.
pub(super) fn table(mpi: &Mpi, built: &Built, programs: &Path, runs: u32) -> Result<usize> {
    let program = mpi.compile("speed", programs)?;
    println!(
        "\n{}, 2 ranks of a modelled XT4 (simulated), ping-pong by MPI_Wtime, half a round trip, us:\n",
        mpi.version
    );
    println!(
        "| bytes | least of {runs} runs | most | portolan bench pingpong | |\n|--:|--:|--:|--:|---|"
    );
    let mut wrong = 0;
    for bytes in SIZES {
        let mut times = Vec::new();
        for _ in 0..runs {
            let virtual_clock = ("seastar", &["--clock", "virtual"][..]);
            let mut job = mpi.job_by(built, virtual_clock, 2, &program);
            job.args(["pingpong", &bytes.to_string()]);
            times.push(microseconds(&mut job)?);
        }
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(0.0, f64::max);
        let model = modelled(built, bytes)?;
        let verdict = match () {
            () if most - least >= 1e-3 => "**differs**",
            () if most > ALLOWED * model || least < model / ALLOWED => "**another time**",
            () => "the same",
        };
        wrong += usize::from(verdict != "the same");
        println!("| {bytes} | {least:.3} | {most:.3} | {model:.3} | {verdict} |");
    }
    Ok(wrong)
}
