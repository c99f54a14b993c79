//! What looks for undefined behaviour and data races in what needs no device: Miri, and ThreadSanitizer.

use crate::cargo::{self, root};
use anyhow::Result;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Compilers that may have them: that of the workspace first.
const TOOLCHAINS: [&[&str]; 2] = [&[], &["+nightly"]];
/// Packages, what is tested of them, and names of their tests that need no device: regions, how long they live, and the fabric
/// within a process.
const TESTS: [(&str, &[&str], &[&str]); 4] = [
    ("portals-core", &["--lib"], &[]),
    ("fabric-api", &["--lib"], &["region::"]),
    ("fabric-seastar", &["--lib"], &["kept::"]),
    (
        "portals-shim",
        &["--test", "regions"],
        &[
            "an_interface_that_is_dropped",
            "regions_are_freed_in_process",
        ],
    ),
];

/// What is found in `PATH`, which knows toolchains by name; those of this process have chosen one.
fn tool(name: &str, toolchain: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(toolchain);
    command.env_remove("RUSTUP_TOOLCHAIN");
    for variable in ["CARGO", "RUSTC", "RUSTDOC"] {
        command.env_remove(variable);
    }
    command.current_dir(root());
    command
}

fn says(mut command: Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs the tests with Miri, where there is one.
pub(crate) fn miri() -> Result<()> {
    let there = |toolchain: &&&[&str]| {
        let mut miri = tool("cargo", toolchain);
        miri.args(["miri", "--version"]);
        says(miri).is_some()
    };
    let Some(toolchain) = TOOLCHAINS.iter().find(there) else {
        println!(
            "skipped: no Miri (`cargo miri` is in no toolchain here), so nothing interprets the unsafe code of regions"
        );
        return Ok(());
    };
    for (package, targets, tests) in TESTS {
        let mut miri = tool("cargo", toolchain);
        miri.args(["miri", "test", "--quiet", "--package", package]);
        miri.args(targets).arg("--").args(tests);
        // Memory is mapped, descriptors name it by address, and time passes.
        miri.env(
            "MIRIFLAGS",
            "-Zmiri-disable-isolation -Zmiri-permissive-provenance",
        );
        cargo::run(&mut miri)?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Tests whose names contain one of these; regions and the fabric within a process if there is none
    tests: Vec<String>,
}

/// Runs the tests with ThreadSanitizer, where a nightly toolchain has it. Regions are copied by atomic operations of the language
/// then, as for Miri: the sanitizer does not see what an instruction of the processor's own does.
pub(crate) fn races(options: &Options) -> Result<()> {
    let mut folder = tool("rustc", &["+nightly"]);
    folder.args(["--print", "target-libdir"]);
    let folder = says(folder).map(PathBuf::from);
    let runtime = folder.filter(|f| f.join("librustc-nightly_rt.tsan.a").is_file());
    if runtime.is_none() || !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        println!(
            "skipped: no nightly toolchain with ThreadSanitizer, so nothing looks for data races"
        );
        return Ok(());
    }
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg miri";
    let mut test = tool("cargo", &["+nightly"]);
    test.args(["test", "--quiet", "--lib", "--test", "regions"]);
    for (package, ..) in TESTS {
        test.args(["--package", package]);
    }
    test.args(["--target", "x86_64-unknown-linux-gnu", "--target-dir"]);
    test.arg(root().join("target/races")).arg("--");
    if options.tests.is_empty() {
        test.args(TESTS.iter().flat_map(|(.., names)| *names));
    } else {
        test.args(&options.tests);
    }
    test.env("RUSTFLAGS", flags);
    test.env("TSAN_OPTIONS", "halt_on_error=1");
    cargo::run(&mut test)
}
