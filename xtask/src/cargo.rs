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

/// Builds the release test executables of packages and gives (target name, path) of each.
pub(crate) fn release_tests(packages: &[&str]) -> Result<Vec<(String, PathBuf)>> {
    let mut command = cargo(&["test", "--release", "--no-run", "--message-format=json"]);
    for package in packages {
        command.args(["--package", package]);
    }
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
        if let (true, Some(exe)) = (test, message["executable"].as_str()) {
            let name = message["target"]["name"].as_str().unwrap_or("?").to_owned();
            found.push((name, exe.into()));
        }
    }
    Ok(found)
}
