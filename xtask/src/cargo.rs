//! Calls of cargo, and where it puts what it builds.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Runs a command in the root; an error when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", line(command));
    let status = command
        .current_dir(root())
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// The command as one would type it.
pub(crate) fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}

/// A cargo command.
pub(crate) fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args);
    command
}

/// Builds release executables: of the workspace, or of what `words` name.
pub(crate) fn build(words: &[&str]) -> Result<()> {
    run(cargo(&["build", "--release", "--quiet"]).args(words))
}

/// The folder of release executables.
pub(crate) fn release_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root().join("target"), PathBuf::from)
        .join("release")
}

/// The packages that are built for tests on devices and for counts. With which features a library is built depends on all
/// packages of a call, so that each call names them all, and what several of them use is built once.
const TOGETHER: [&str; 9] = [
    "portolan",
    "programs",
    "verbs-backend",
    "fabric-verbs",
    "fabric-both",
    "portals-shim",
    "ofi-engine",
    "portolan-tests",
    "portolan-benches",
];

/// `cargo test --release` of what `targets` choose (`--lib`, `--test NAME`).
pub(crate) fn release_test(targets: &[&str]) -> Command {
    let mut command = cargo(&["test", "--release"]);
    for package in TOGETHER {
        command.args(["--package", package]);
    }
    command.args(targets);
    command
}

/// Builds the release test executables that `targets` choose and gives (target name, path) of those of `packages`.
pub(crate) fn release_tests(packages: &[&str], targets: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let mut command = release_test(targets);
    command.args(["--no-run", "--message-format=json"]);
    println!("$ {}", line(&command));
    let output = command
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("{} failed: {}", line(&command), output.status);
    }
    let mut found = Vec::new();
    for message in String::from_utf8_lossy(&output.stdout).lines() {
        let Ok(message) = serde_json::from_str::<serde_json::Value>(message) else {
            continue;
        };
        let test = message["profile"]["test"].as_bool() == Some(true);
        // `path+file:///folder#0.1.0`, or `path+file:///folder#name@0.1.0` where the folder has another name.
        let package = message["package_id"].as_str().unwrap_or_default();
        let wanted = packages
            .iter()
            .any(|p| package.contains(&format!("/{p}#")) || package.contains(&format!("#{p}@")));
        if let (true, Some(exe)) = (test && wanted, message["executable"].as_str()) {
            let name = message["target"]["name"].as_str().unwrap_or("?").to_owned();
            found.push((name, exe.into()));
        }
    }
    Ok(found)
}
