//! `cargo xtask credits`: how credits move in a large job, as a picture and a table of the book.

use crate::cargo::{self, release_dir, root};
use anyhow::Result;
use std::process::Command;

/// Builds the command and plays the job.
pub(crate) fn run() -> Result<()> {
    cargo::build(&["-p", "portolan"])?;
    let mut command = Command::new(release_dir().join("portolan"));
    command.args(["credits", "--into", "docs/src/mechanisms"]);
    cargo::run(command.current_dir(root()))
}
