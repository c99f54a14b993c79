//! Compiles the workspace for processors that this machine does not have.

use crate::cargo::{self, cargo};
use crate::wait;
use anyhow::Result;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// A `char` of C has no sign there, and memory is ordered as the program says alone.
const OTHERS: [&str; 1] = ["aarch64-unknown-linux-gnu"];
/// For a standard library to come over a network.
const PATIENCE: Duration = Duration::from_secs(120);

/// Whether the compiler that builds the workspace has a standard library for `target`.
fn is_there(target: &str) -> bool {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let folder = Command::new(compiler)
        .args(["--print", "target-libdir", "--target", target])
        .current_dir(cargo::root())
        .output();
    folder.is_ok_and(|said| Path::new(String::from_utf8_lossy(&said.stdout).trim()).is_dir())
}

/// Fetches the standard library for `target`; whether it is there then.
fn fetch(target: &str) -> Result<bool> {
    let rustup = Command::new("rustup")
        .args(["target", "add", target])
        .current_dir(cargo::root())
        .stdin(Stdio::null())
        .spawn();
    let Ok(mut rustup) = rustup else {
        return Ok(false);
    };
    if wait::end(&mut rustup, PATIENCE)?.is_none() {
        rustup.kill()?;
        rustup.wait()?;
    }
    Ok(is_there(target))
}

/// Checks libraries and executables for each of them. Continuous integration fetches what is missing.
pub(crate) fn check() -> Result<()> {
    for target in OTHERS {
        let fetches = std::env::var_os("CI").is_some();
        let there = is_there(target) || (fetches && fetch(target)?);
        if !there {
            println!("skipped: no standard library for {target} (`rustup target add {target}`)");
            continue;
        }
        cargo::run(&mut cargo(&[
            "check",
            "--workspace",
            "--quiet",
            "--target",
            target,
        ]))?;
    }
    Ok(())
}
