//! `cargo xtask calibration`: the SeaStar model beside published measurements, as a page of the book.

use crate::cargo::{self, release_dir, root};
use anyhow::Result;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Search for the fitted parameters first and write them into the machine files
    #[arg(long)]
    fit: bool,
}

/// Builds the command, fits if asked, and writes the page with the machine files as they then are.
pub(crate) fn run(options: &Options) -> Result<()> {
    let build = || cargo::build(&["-p", "portolan"]);
    let portolan = |arguments: &[&str]| {
        let mut command = Command::new(release_dir().join("portolan"));
        command.arg("calibration").args(arguments);
        cargo::run(command.current_dir(root()))
    };
    build()?;
    if options.fit {
        portolan(&["--fit", "nic-model/machines"])?;
        // Machine files are part of the executable.
        build()?;
    }
    portolan(&["--page", "docs/src"])
}
