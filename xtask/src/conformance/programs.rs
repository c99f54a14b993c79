//! The C programs of `tests/c` as cases: compiled here, run on every fabric.

use super::numbers;
use crate::cargo::{self, release_dir, root};
use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Where a program runs.
#[derive(Clone, Copy, Debug)]
pub(super) enum On<'a> {
    /// The interface that reaches its own process only.
    InProcess,
    Seastar,
    /// This device.
    Verbs(&'a str),
}

impl On<'_> {
    const fn mode(self) -> &'static str {
        match self {
            Self::InProcess => "in-process",
            Self::Seastar => "seastar",
            Self::Verbs(_) => "verbs",
        }
    }
}

struct Program {
    name: &'static str,
    ranks: &'static str,
    args: &'static [&'static str],
    /// Why it does not run over the interface of the own process, if it does not.
    not_in_process: Option<&'static str>,
}

const fn alone(name: &'static str) -> Program {
    Program {
        name,
        ranks: "1",
        args: &[],
        not_in_process: None,
    }
}

/// Ranks of a job.
const fn job(name: &'static str, args: &'static [&'static str]) -> Program {
    Program {
        name,
        ranks: "2",
        args,
        not_in_process: Some("ranks are processes, and this interface reaches the own one only"),
    }
}

const PROGRAMS: &[Program] = &[
    alone("layout"),
    Program {
        not_in_process: Some("the names are those of the job's interface"),
        ..alone("compat")
    },
    alone("errors"),
    alone("entries"),
    alone("registers"),
    alone("queues"),
    alone("maps"),
    alone("fastpath"),
    job("smoke", &[]),
    job("ranks", &[]),
    job("threads", &[]),
    job("ends", &["fork"]),
    job("ends", &["handler and _exit"]),
];

/// Compiles all; gives their folder.
pub(super) fn compile_all() -> Result<PathBuf> {
    let built = release_dir();
    let folder = built.join("conformance-c");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for p in PROGRAMS {
        let mut command = Command::new("cc");
        command
            .args([
                "-std=gnu99",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-pthread",
                "-I",
            ])
            .arg(root().join("portals-shim/include"))
            .arg(source(p))
            .arg("-o")
            .arg(folder.join(p.name))
            .arg("-L")
            .arg(&built)
            // Cargo has its commands look for libraries in its own folders first, where an older build may lie; this path
            // comes before those.
            .arg(format!(
                "-Wl,--disable-new-dtags,-rpath,{}",
                built.display()
            ))
            .arg("-lportals3");
        let output = command.output().with_context(|| cargo::line(&command))?;
        if !output.status.success() {
            bail!(
                "{}: {}\n{}",
                cargo::line(&command),
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
    Ok(folder)
}

fn source(p: &Program) -> PathBuf {
    root().join("tests/c").join(format!("{}.c", p.name))
}

/// The numbers that a program's comments name, as the suite writes them.
fn covers(p: &Program) -> Result<String> {
    let path = source(p);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let (mut scenarios, mut rules) = (BTreeSet::new(), BTreeSet::new());
    for line in text.lines().map(|l| l.trim_start_matches(['/', '*', ' '])) {
        if line.starts_with("Scenario") || line.starts_with("Rule") {
            let (s, r) = numbers(line);
            scenarios.extend(s);
            rules.extend(r);
        }
    }
    let list = |numbers: BTreeSet<u32>| {
        let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
        words.join(", ")
    };
    let mut parts = vec![list(scenarios)];
    if !rules.is_empty() {
        parts.push(format!("rules {}", list(rules)));
    }
    parts.retain(|p| !p.is_empty());
    Ok(parts.join(", "))
}

fn run(folder: &Path, p: &Program, on: On<'_>) -> Result<String> {
    if let (On::InProcess, Some(why)) = (on, p.not_in_process) {
        return Ok(format!("n/a: {why}"));
    }
    let mut command = Command::new(release_dir().join("portolan"));
    command.args(["run", "-n", p.ranks, "--timeout", "120", "--fabric"]);
    match on {
        On::Verbs(device) => command.args(["verbs", "--no-shm", "--device", device]),
        On::Seastar | On::InProcess => command.arg("seastar"),
    };
    if let On::InProcess = on {
        command.env("PORTOLAN_TEST_SELF", "1");
    }
    command.arg("--").arg(folder.join(p.name)).args(p.args);
    let temporary = tempfile::tempdir()?;
    command.env("TMPDIR", temporary.path());
    let output = command.output().with_context(|| cargo::line(&command))?;
    if output.status.success() {
        return Ok("pass".to_owned());
    }
    eprintln!(
        "{}: {}\n{}{}",
        cargo::line(&command),
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok("FAIL".to_owned())
}

/// Runs all; gives their results as the suite gives its own.
pub(super) fn run_all(folder: &Path, on: On<'_>) -> Result<Vec<String>> {
    let mut out = Vec::new();
    for p in PROGRAMS {
        let started = Instant::now();
        let result = run(folder, p, on)?;
        out.push(format!(
            "conformance | {} | {} | `tests/c/{}.c` | {result} | {} ms",
            on.mode(),
            covers(p)?,
            p.name,
            started.elapsed().as_millis()
        ));
    }
    Ok(out)
}
