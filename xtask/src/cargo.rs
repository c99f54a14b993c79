//! Calls of cargo, and where it puts what it builds.

use anyhow::{Context, Result, bail};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Instant;

/// Where cargo puts what it builds, if not in the workspace.
const TARGET_DIR: &str = "CARGO_TARGET_DIR";

/// When the first command was told of.
static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Tells of a command that begins, and how many minutes and seconds the first one has been going.
fn tell(command: &Command) {
    let seconds = BEGUN.elapsed().as_secs();
    println!(
        "[{:02}:{:02}] $ {}",
        seconds / 60,
        seconds % 60,
        line(command)
    );
}

/// The workspace's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map_or_else(PathBuf::new, Path::to_path_buf)
}

/// Runs a command in the root; an error when it fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    run_in(&root(), command)
}

/// The same in another folder.
pub(crate) fn run_in(folder: &Path, command: &mut Command) -> Result<()> {
    tell(command);
    let status = command
        .current_dir(folder)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !status.success() {
        bail!("{} failed: {status}", line(command));
    }
    Ok(())
}

/// Runs commands side by side, whose lines come as they are printed; the first error if some fail. Nobody is ended for another's
/// failure: what it prints may say more.
pub(crate) fn run_together(commands: Vec<Command>) -> Result<()> {
    let threads: Vec<_> = commands
        .into_iter()
        .map(|command| std::thread::spawn(|| run_by_lines(command)))
        .collect();
    let ends: Vec<_> = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| bail!("what runs a command panicked"))
        })
        .collect();
    ends.into_iter().collect()
}

/// As [`run`], and prints whole lines, between which others may stand.
fn run_by_lines(mut command: Command) -> Result<()> {
    tell(&command);
    let mut child = command
        .current_dir(root())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let printed = child.stdout.take().context("no pipe")?;
    for text in BufReader::new(printed).split(b'\n') {
        println!("{}", String::from_utf8_lossy(&text?).trim_end());
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{} failed: {status}", line(&command));
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

/// Builds debug executables, libraries and examples that `words` name.
pub(crate) fn build_debug(words: &[&str]) -> Result<()> {
    run(cargo(&["build", "--quiet"]).args(words))
}

/// The folder of release executables.
pub(crate) fn release_dir() -> PathBuf {
    std::env::var_os(TARGET_DIR)
        .map_or_else(|| root().join("target"), PathBuf::from)
        .join("release")
}

/// The folder of debug executables.
pub(crate) fn debug_dir() -> PathBuf {
    release_dir().with_file_name("debug")
}

/// Where this executable is. An error if it was built anew since it began: the file that runs is gone then.
pub(crate) fn own_exe() -> Result<PathBuf> {
    let own = std::env::current_exe().context("where this executable is")?;
    if !own.exists() {
        bail!("{} was built anew while it ran", own.display());
    }
    Ok(own)
}

/// The start of a guest's command line, for a command of this executable that finds there what was built here.
pub(crate) fn guest(timeout: u32) -> Result<Command> {
    guest_by(timeout, &[], &[])
}

/// As [`guest`], of a guest with these options, in which `by` starts this executable.
pub(crate) fn guest_by(timeout: u32, options: &[&str], by: &[&str]) -> Result<Command> {
    let own = own_exe()?;
    let mut guest = Command::new(release_dir().join("portolan"));
    guest.args(["guest", "--timeout", &timeout.to_string()]);
    guest.args(options);
    if std::env::var_os(TARGET_DIR).is_some() {
        guest.args(["--env", TARGET_DIR]);
    }
    guest.arg("--").args(by).arg(own);
    Ok(guest)
}

/// The packages of a call that builds release tests. With which features a library is built depends on all packages of a call, so that
/// each call names them all, and what several of them use is built once.
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

/// A test executable: of which package, the name of its target, and where it is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TestExe {
    pub(crate) package: String,
    pub(crate) target: String,
    pub(crate) path: PathBuf,
}

impl TestExe {
    /// What a line of cargo's tells of, if that is one.
    fn read(message: &str) -> Option<Self> {
        let message: serde_json::Value = serde_json::from_str(message).ok()?;
        if message["profile"]["test"].as_bool() != Some(true) {
            return None;
        }
        // `path+file:///folder#0.1.0`, or `path+file:///folder#name@0.1.0` where the folder has another name.
        let (folder, version) = message["package_id"].as_str()?.rsplit_once('#')?;
        let package = match version.split_once('@') {
            Some((name, _)) => name,
            None => folder.rsplit_once('/')?.1,
        };
        Some(Self {
            package: package.to_owned(),
            target: message["target"]["name"].as_str()?.to_owned(),
            path: message["executable"].as_str()?.into(),
        })
    }
}

/// Has a command of cargo's build test executables, and gives them.
fn built(mut command: Command) -> Result<Vec<TestExe>> {
    command.args(["--no-run", "--message-format=json"]);
    tell(&command);
    let output = command
        .current_dir(root())
        .stderr(Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("{} failed: {}", line(&command), output.status);
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(said.lines().filter_map(TestExe::read).collect())
}

/// The arguments of the tests of all crates, debug build.
pub(crate) const WORKSPACE_TESTS: [&str; 3] = ["test", "--workspace", "--quiet"];

/// Builds all of the workspace in debug: the tests, and what tests and pages start that cargo builds for no test, libraries of C and
/// programs of other packages. In one call, as features of a library depend on all packages of a call.
pub(crate) fn build_for_tests() -> Result<()> {
    run(cargo(&WORKSPACE_TESTS).arg("--no-run"))?;
    run(&mut cargo(&[
        "build",
        "--workspace",
        "--quiet",
        "--lib",
        "--tests",
    ]))
}

/// What tells tests that [`build_for_tests`] has built what they start.
pub(crate) const BUILT: (&str, &str) = ("PORTOLAN_TEST_BUILT", "1");

/// The debug test executables of all crates, which `cargo test` has built, or builds now.
pub(crate) fn workspace_tests() -> Result<Vec<TestExe>> {
    built(cargo(&WORKSPACE_TESTS))
}

/// Builds the release executable of one test of a package.
pub(crate) fn release_exe(package: &str, test: &str) -> Result<PathBuf> {
    let built = built(release_test(&["--test", test]))?;
    let mut built = built.into_iter();
    let exe = built.find(|exe| exe.package == package && exe.target == test);
    Ok(exe
        .with_context(|| format!("no test executable {test}"))?
        .path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_executable_is_told_of() {
        let told = |id: &str, test: bool| {
            let message = format!(
                r#"{{"package_id":"{id}","target":{{"name":"some"}},"profile":{{"test":{test}}},"executable":"/t/some-1"}}"#
            );
            TestExe::read(&message).map(|exe| (exe.package, exe.target, exe.path))
        };
        let expected =
            |package: &str| Some((package.to_owned(), "some".to_owned(), "/t/some-1".into()));
        assert_eq!(
            told("path+file:///a/tagged#0.1.0", true),
            expected("tagged")
        );
        assert_eq!(
            told("path+file:///a/tests#portolan-tests@0.1.0", true),
            expected("portolan-tests")
        );
        assert_eq!(told("path+file:///a/tagged#0.1.0", false), None);
        assert_eq!(TestExe::read("warning: no line of JSON"), None);
    }
}
