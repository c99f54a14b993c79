//! `cargo xtask slides`: the pictures of the published comparison of conduits (Cray User Group 2009, slides 9, 10 and 15),
//! measured over SoftRoCE in a guest and modelled on the SeaStar, and what the small operations cost over messages beside
//! what they cost over Portals. `--gasnet DIR` has GASNet's own programs run instead.

mod checkout;
mod printed;
mod programs;
mod table;

use crate::cargo::{self, release_dir, root};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where the pictures go
    #[arg(long, default_value = "docs/src/mechanisms")]
    into: PathBuf,
    /// Durations of each small operation, measured
    #[arg(long, default_value_t = 300)]
    iters: u32,
    /// Leave out what is measured, in a guest, and draw the model alone
    #[arg(long)]
    modelled: bool,
    /// A checkout of GASNet-1: its testsmall, testlarge and testam run on the model, over its own portals-conduit and over ours
    #[arg(long, value_name = "DIR", conflicts_with_all = ["iters", "modelled"])]
    gasnet: Option<PathBuf>,
}

/// What is drawn: the measurement, and the picture's name.
const PICTURES: [(&str, &str); 3] = [
    ("segment-put", "slides-put-latency"),
    ("segment-put-bandwidth", "slides-put-bandwidth"),
    ("am-medium", "slides-am-medium"),
];

/// Measurements, sizes, and durations where they are not for the caller to say.
type Part = (&'static [&'static str], &'static str, Option<&'static str>);

const PARTS: [Part; 2] = [
    (
        &["segment-put", "am-medium", "tag-ping-ack"],
        "8,32,128,512,1K",
        None,
    ),
    (
        &["segment-put-bandwidth", "tag-bandwidth"],
        "2K,8K,32K,128K,512K",
        Some("5"),
    ),
];

/// What the slides say of a small put.
const PUBLISHED: &str = "about 2";

/// The results of one part: lines of JSON.
fn part((names, sizes, iters): &Part, small: u32, modelled: bool) -> Result<String> {
    let portolan = release_dir().join("portolan");
    let mut command = if modelled {
        Command::new(&portolan)
    } else {
        let mut guest = Command::new(&portolan);
        guest.args(["guest", "--"]).arg(&portolan);
        guest
    };
    command.arg("bench").args(*names);
    command.args(["--conduit", "portals,mpi", "--sizes", sizes]);
    if modelled {
        command.args(["--fabric", "seastar", "--machine", "xt4"]);
    } else {
        command.args(["--fabric", "verbs", "--no-shm", "--device", "rxe0"]);
        let small = small.to_string();
        command.args(["--iters", iters.unwrap_or(&small), "--turns", "3"]);
    }
    command.args(["--json", "-"]);
    println!("$ {}", cargo::line(&command));
    let out = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&out.stdout);
    if !out.status.success() {
        let errors = String::from_utf8_lossy(&out.stderr);
        anyhow::bail!("{}: {}\n{text}{errors}", cargo::line(&command), out.status);
    }
    // The guest's own lines stand between.
    let lines = text.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|line| line.starts_with('{')).collect();
    Ok(lines.join("\n") + "\n")
}

/// The median of a measurement at 8 bytes over a conduit.
fn median(results: &str, bench: &str, conduit: &str) -> Result<f64> {
    let found = table::benched(results, (bench, Some(conduit)), 8)?;
    found.with_context(|| format!("no {bench} of 8 bytes over the {conduit}-conduit"))
}

fn ratios(results: &str, fabric: &str) -> Result<()> {
    for (bench, what) in [
        ("segment-put", "blocking put"),
        ("am-medium", "Medium and its reply"),
    ] {
        let (portals, mpi) = (
            median(results, bench, "portals")?,
            median(results, bench, "mpi")?,
        );
        let published = if bench == "segment-put" {
            PUBLISHED
        } else {
            "-"
        };
        println!(
            "{fabric:<20} {what:<22} {portals:>10.2} {mpi:>10.2} {:>13.2} {published:>9}",
            mpi / portals
        );
    }
    Ok(())
}

/// Draws results of the bench in `folder`, and copies the pictures of these measurements into another one by these names.
fn pictures(results: &str, names: &[(&str, &str)], (folder, into): (&Path, &Path)) -> Result<()> {
    let (all, drawn) = (folder.join("all.json"), folder.join("drawn"));
    std::fs::write(&all, results)?;
    // The run that the drawings are made by adds nothing: its measurement is none of the pictures'.
    let mut drawing = Command::new(release_dir().join("portolan"));
    drawing.args(["bench", "tag-pingpong", "--sizes", "8", "--iters", "1"]);
    drawing.args(["--fabric", "seastar", "--plot"]).arg(&drawn);
    cargo::run(drawing.arg("--beside").arg(&all))?;
    for (bench, picture) in names {
        let from = drawn.join(format!("{bench}.svg"));
        let to = into.join(format!("{picture}.svg"));
        std::fs::copy(&from, &to)
            .with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
        println!("{}", to.display());
    }
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(checkout) = &options.gasnet {
        return programs::run(checkout, &options.into);
    }
    cargo::build(&["--package", "portolan"])?;
    let folder = tempfile::tempdir()?;
    draw(options, folder.path())
}

fn draw(options: &Options, folder: &Path) -> Result<()> {
    let results = |modelled| -> Result<String> {
        let parts = PARTS.iter().map(|p| part(p, options.iters, modelled));
        parts.collect::<Result<Vec<String>>>().map(|p| p.concat())
    };
    let modelled = results(true)?;
    let measured = if options.modelled {
        String::new()
    } else {
        results(false)?
    };
    let into = root().join(&options.into);
    pictures(&format!("{measured}{modelled}"), &PICTURES, (folder, &into))?;
    println!(
        "{:<20} {:<22} {:>10} {:>10} {:>13} {:>9}",
        "8 bytes, us", "", "portals", "mpi", "mpi / portals", "slides"
    );
    ratios(&modelled, "xt4, modelled")?;
    if !options.modelled {
        ratios(&measured, "SoftRoCE, measured")?;
    }
    Ok(())
}
