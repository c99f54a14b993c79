//! The book says what is true, and its example works.

use crate::cargo::{self, cargo, release_dir, root};
use crate::packages;
use anyhow::{Context, Result, bail};
use std::process::Command;

const EXAMPLE: &str = "docs/example/Cargo.toml";

/// Formatting of the example, which is a workspace of its own, and what `docs/check.py` looks at.
pub(crate) fn check() -> Result<()> {
    cargo::run(&mut cargo(&[
        "fmt",
        "--manifest-path",
        EXAMPLE,
        "--",
        "--check",
    ]))?;
    if !packages::is_there("python3") {
        println!("skipped: no python3 for docs/check.py");
        return Ok(());
    }
    cargo::run(Command::new("python3").arg("docs/check.py"))
}

/// Builds the example of the page "Writing a program" the way a program outside this repository would be.
pub(crate) fn build_example() -> Result<()> {
    // The versions of the workspace: nothing is looked up, and what is built is built once.
    let lock = root().join(EXAMPLE).with_file_name("Cargo.lock");
    std::fs::copy(root().join("Cargo.lock"), &lock)
        .with_context(|| format!("cannot write {}", lock.display()))?;
    cargo::run(
        cargo(&[
            "build",
            "--quiet",
            "--manifest-path",
            EXAMPLE,
            "--target-dir",
        ])
        .arg(release_dir().with_file_name("")),
    )
}

/// Runs that example on two ranks, as the page says. Needs the release executables.
pub(crate) fn example() -> Result<()> {
    build_example()?;
    let release = release_dir();
    let mut command = Command::new(release.join("portolan"));
    command
        .args(["run", "-n", "2", "--"])
        .arg(release.with_file_name("debug").join("greetings"));
    for name in ["PORTOLAN_FABRIC", "PORTOLAN_DEVICE", "PORTOLAN_MACHINE"] {
        command.env_remove(name);
    }
    println!("$ {}", cargo::line(&command));
    let output = command.current_dir(root()).output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    for (me, other) in [(0, 1), (1, 0)] {
        let words = format!("rank {me} of 2: greetings from rank {other}; own put took ");
        if !output.status.success() || !said.contains(&words) {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("the book's example: {}\n{said}{errors}", output.status);
        }
    }
    Ok(())
}
