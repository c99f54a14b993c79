//! `cargo xtask test`: the one command that tells whether the tree is good.

use crate::cargo::{self, WORKSPACE_TESTS, cargo};
use crate::{architectures, book, device, hostile, mpi, packages, sound};
use anyhow::{Result, bail};

/// Tests at one time, at the least: those of jobs wait for processes more than they compute.
const TESTS_AT_ONCE: usize = 4;
/// How many libtest runs at one time, of the environment.
const TEST_THREADS: &str = "RUST_TEST_THREADS";

/// The target that counts instructions.
const COUNTS: [&str; 2] = ["--test", "instructions"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave out formatting, lints and documentation
    #[arg(long)]
    no_lint: bool,
    /// Leave out the guest; the tests on a device are then missing
    #[arg(long)]
    no_guest: bool,
    /// Only the tests on a device
    #[arg(long, conflicts_with_all = ["no_guest", "no_lint"])]
    only_guest: bool,
}

fn lint() -> Result<()> {
    cargo::run(&mut cargo(&["fmt", "--all", "--check"]))?;
    cargo::run(&mut cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--quiet",
        "--",
        "-D",
        "warnings",
    ]))?;
    // A program is built with the fabrics that it asks for, and with nothing of others.
    for (package, features) in [
        ("tagged", ""),
        ("portals-shim", "verbs"),
        ("portals-shim", "seastar"),
    ] {
        cargo::run(&mut cargo(&[
            "clippy",
            "--package",
            package,
            "--no-default-features",
            "--features",
            features,
            "--quiet",
            "--",
            "-D",
            "warnings",
        ]))?;
    }
    architectures::check()?;
    cargo::run(
        cargo(&["doc", "--workspace", "--no-deps", "--quiet"]).env("RUSTDOCFLAGS", "-D warnings"),
    )?;
    book::check()
}

/// The guard against slower delivery, which counts instructions and so needs the optimized build and
/// valgrind. Continuous integration does not pass without it.
fn costs() -> Result<()> {
    if !packages::is_there("valgrind") {
        println!("skipped: no valgrind, so nothing counts the instructions of a delivery");
        if std::env::var_os("CI").is_some() {
            bail!("continuous integration has to count the instructions of a delivery");
        }
        return Ok(());
    }
    let mut counts = cargo::release_test(&COUNTS);
    cargo::run(counts.args(["--quiet", "--", "--nocapture"]))
}

/// Does what needs no quiet machine while the tests of the workspace run: the blocks of the book, the MPIs, the count of instructions,
/// which does not depend on what else runs, and Miri. Those tests wait for each other's processes more than they compute, and this
/// takes only what they leave of the processors: on Linux the niceness is the calling thread's, and what it starts has it.
fn meanwhile() -> Result<()> {
    rustix::process::nice(19)?;
    book::build_example()?;
    book::blocks(&book::Options::default())?;
    mpi::test()?;
    costs()?;
    sound::miri()
}

/// What is looked at without being run, and everything that is built for the tests. Release and debug have folders of their own, and
/// neither build keeps two processors busy all the time.
fn look_and_build(options: &Options) -> Result<()> {
    let lints = !options.no_lint;
    let debug = std::thread::spawn(move || {
        if lints {
            lint()?;
        }
        cargo::build_for_tests()
    });
    // The executables that tests, tables and the guest start.
    let released = cargo::build(&[]);
    let debug = debug
        .join()
        .unwrap_or_else(|_| bail!("a lint or a build panicked"));
    debug.and(released)?;
    hostile::compile()
}

/// The tests of all crates, debug build, and meanwhile what needs no quiet machine.
fn workspace() -> Result<()> {
    let other = std::thread::spawn(meanwhile);
    let (name, value) = cargo::BUILT;
    let mut tests = cargo(&WORKSPACE_TESTS);
    tests.arg("--no-fail-fast").env(name, value);
    if std::env::var_os(TEST_THREADS).is_none() {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        tests.env(TEST_THREADS, processors.max(TESTS_AT_ONCE).to_string());
    }
    let tests = cargo::run(&mut tests);
    let done = other
        .join()
        .unwrap_or_else(|_| bail!("what is done beside the tests panicked"));
    tests.and(done)
}

/// Runs everything; the last lines say what was tested on which device.
pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure()?;
    if options.only_guest {
        cargo::build(&[])?;
        cargo::build_for_tests()?;
        return device::run();
    }
    look_and_build(options)?;
    workspace()?;
    hostile::test()?;
    if !options.no_guest {
        device::run()?;
    }
    Ok(())
}
