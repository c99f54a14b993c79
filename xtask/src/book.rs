//! The book says what is true, and its programs work.

use crate::cargo::{self, cargo, debug_dir, release_dir, root};
use crate::{install, packages};
use anyhow::{Context, Result, bail};
use std::process::Command;

#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Only pages whose path has this word
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
    /// Write into the pages what comes out, and the pictures
    #[arg(long)]
    write: bool,
}

/// What the programs of the pages are compiled and started with.
const NEEDED: [&str; 4] = ["python3", "cc", "pkg-config", "mpiexec.hydra"];

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
    cargo::run(Command::new("python3").args(["-B", "docs/test_blocks.py"]))?;
    cargo::run(Command::new("python3").arg("docs/check.py"))
}

/// Builds the Rust programs of the pages the way programs outside this repository would be.
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
        .arg(release_dir().with_file_name(""))
        // Nobody debugs it.
        .env("CARGO_PROFILE_DEV_DEBUG", "none"),
    )
}

/// The C libraries, as debug builds: the tests of the workspace have compiled almost all of it.
fn build_libraries() -> Result<()> {
    cargo::run(&mut cargo(&[
        "build",
        "--quiet",
        "-p",
        "portals-c",
        "-p",
        "gasnet-c-seq",
        "-p",
        "gasnet-c-parsync",
        "-p",
        "gasnet-c-par",
    ]))
}

/// Runs the blocks of README and book, and compares what they print with the pages. Needs the release executables, the C libraries and
/// the programs of the pages.
pub(crate) fn blocks(options: &Options) -> Result<()> {
    if let Some(missing) = NEEDED.into_iter().find(|name| !packages::is_there(name)) {
        println!("skipped: no {missing}, so nothing runs the blocks of the book");
        if std::env::var_os("CI").is_some() {
            bail!("continuous integration has to run the blocks of the book");
        }
        return Ok(());
    }
    let (home, release, debug) = (tempfile::tempdir()?, release_dir(), debug_dir());
    install::libraries(&debug, (&home.path().join("portolan"), "lib"))?;
    let mut command = Command::new("python3");
    command.args(["docs/blocks.py", "--run", "--bin"]);
    command.arg(release).arg("--debug").arg(debug);
    command.arg("--home").arg(home.path());
    command.args(options.only.iter().flat_map(|word| ["--only", word]));
    if options.write {
        command.arg("--write");
    }
    cargo::run(&mut command)
}

/// Builds what the blocks run, and runs them.
pub(crate) fn run(options: &Options) -> Result<()> {
    cargo::build(&[])?;
    build_example()?;
    build_libraries()?;
    blocks(options)
}
