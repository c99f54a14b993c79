//! `cargo xtask calibration`: the SeaStar model beside published measurements, as a page of the book.

use crate::cargo::{self, release_dir, root};
use anyhow::Result;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Search for the fitted parameters of all machines together first
    #[arg(long)]
    fit: bool,
    /// Write what the last fit has found into the machine files
    #[arg(long)]
    apply: bool,
}

/// What the last fit has found; part of the executable, as machine files are.
const FOUND: &str = "portolan/src/calibration/joint.json";

/// Builds the command, fits and applies the fit if asked, and writes the page with the machine files as they then are.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = || cargo::build(&["-p", "portolan"]);
    let portolan = |arguments: &[&str]| {
        let mut command = Command::new(release_dir().join("portolan"));
        command.arg("calibration").args(arguments);
        cargo::run(command.current_dir(root()))
    };
    build()?;
    if options.fit {
        portolan(&["--fit", FOUND])?;
        build()?;
    }
    if options.apply {
        portolan(&["--apply", "nic-model/machines"])?;
        build()?;
    }
    portolan(&["--page", "docs/src"])
}
