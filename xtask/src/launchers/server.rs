//! Processes that end with what started them.

use crate::wait::{self, Changes, Process};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// How long a server has to end.
const GRACE: Duration = Duration::from_secs(5);

/// A program that serves until it is dropped, and its words in a file.
pub(crate) struct Server {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    pub(crate) fn start(command: &mut Command, log: PathBuf) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        let file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name, child, log })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The last words of its log.
    fn words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(3).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }

    /// Waits until `ready` says so, which is asked again whenever the log, or the folder it is in, changes; an error with its
    /// last words if that does not come.
    pub(crate) fn wait(&mut self, limit: Duration, ready: impl Fn() -> bool) -> Result<()> {
        let folder = self.log.parent().unwrap_or(&self.log);
        let changes = Changes::of(folder)?;
        let process = Process::open(self.child.id())?;
        let look = || Ok(ready().then_some(()));
        if changes.until(&process, limit, look)?.is_some() {
            return Ok(());
        }
        match self.child.try_wait()? {
            Some(status) => bail!("{} ended ({status}): {}", self.name, self.words()),
            None => bail!(
                "{} is not ready after {limit:?}: {}",
                self.name,
                self.words()
            ),
        }
    }

    /// Whether its log has `words`.
    pub(crate) fn said(log: &Path, words: &str) -> bool {
        std::fs::read_to_string(log).is_ok_and(|log| log.contains(words))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(process) = Process::open(self.child.id()) {
            let _ = process.signal(Signal::TERM);
        }
        if !matches!(wait::end(&mut self.child, GRACE), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
