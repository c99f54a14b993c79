//! The trials: commands that have to end in time and well.

use super::Tried;
use portals_shim::fabric::FabricKind;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Launchers, and the words by which each starts two ranks.
pub(super) const LAUNCHERS: [(&str, &[&str]); 3] = [
    ("mpiexec.hydra", &["-n", "2"]),
    ("mpirun", &["-n", "2"]),
    ("srun", &["-n", "2", "--overlap"]),
];

/// How trials are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    limit: Duration,
}

/// The last line that says something.
fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

impl Trial {
    pub(super) fn new(seconds: u32) -> Self {
        Self {
            limit: Duration::from_secs(seconds.into()),
        }
    }

    /// A job of two ranks that exchange messages of all kinds.
    pub(super) fn job(self, own: &Path, kind: FabricKind) -> Tried {
        let mut command = Command::new(own);
        command.args(["run", "-n", "2", "--fabric", kind.name()]);
        if kind == FabricKind::Verbs {
            command.arg("--no-shm");
        }
        command.arg("--").arg(own).arg("messages");
        self.output(&mut command).map(drop)
    }

    /// Two ranks started by a launcher, which exchange what they have to say.
    pub(super) fn launch(self, launcher: &Path, words: &[&str], own: &Path) -> Tried {
        let mut command = Command::new(launcher);
        command.args(words).arg(own).arg("probe");
        let said = self.output(&mut command)?;
        for rank in 0..2 {
            let line = format!("rank {rank} of 2: ok");
            if !said.contains(&line) {
                return Err(format!("the ranks did not meet: {}", last_line(&said)));
            }
        }
        Ok(())
    }

    /// Whether libfabric offers the provider of a folder.
    pub(super) fn offers(self, fi_info: &Path, folder: &Path) -> Tried {
        let mut command = Command::new(fi_info);
        command
            .args(["-p", "portolan"])
            .env("FI_PROVIDER_PATH", folder)
            .env_remove("FI_PROVIDER");
        self.output(&mut command).map(drop)
    }

    /// What a command printed on its standard output, once it has ended well.
    fn output(self, command: &mut Command) -> Result<String, String> {
        let program = command.get_program().display().to_string();
        let file = || tempfile::tempfile().map_err(|error| format!("no temporary file: {error}"));
        let (mut out, mut err) = (file()?, file()?);
        let given = |file: &std::fs::File| file.try_clone().map(Stdio::from);
        let streams = given(&out).and_then(|out| Ok((out, given(&err)?)));
        let (to_out, to_err) = streams.map_err(|error| format!("no temporary file: {error}"))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(to_out)
            .stderr(to_err)
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| format!("cannot start {program}: {error}"))?;
        let status = self.end(&mut child);
        let read = |file: &mut std::fs::File| {
            let mut bytes = Vec::new();
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (said, complaint) = (read(&mut out), read(&mut err));
        match status {
            Some(status) if status.success() => Ok(said),
            Some(status) => {
                let line = last_line(&complaint);
                let line = if line.is_empty() {
                    last_line(&said)
                } else {
                    line
                };
                Err(format!("{status}: {line}"))
            }
            None => Err(format!(
                "it had not ended after {} s: {}",
                self.limit.as_secs(),
                last_line(&complaint)
            )),
        }
    }

    /// The status of a child; `None` if it had to be killed, with all that it started in its group.
    fn end(self, child: &mut Child) -> Option<ExitStatus> {
        let until = Instant::now() + self.limit;
        while Instant::now() < until {
            match child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(20)),
                Err(_) => break,
            }
        }
        // The child is not waited for yet, so that the number is its own.
        if let Some(group) = Pid::from_raw(child.id().cast_signed()) {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = child.wait();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(text: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", text]);
        command
    }

    #[test]
    fn what_ends_well_says_what_it_printed() {
        let trial = Trial::new(30);
        assert_eq!(
            trial.output(&mut shell("echo a; echo b >&2")),
            Ok("a\n".to_owned())
        );
        let failed = trial.output(&mut shell("echo out; echo why >&2; exit 3"));
        assert_eq!(failed, Err("exit status: 3: why".to_owned()));
        let mute = trial.output(&mut shell("echo out; exit 3"));
        assert_eq!(mute, Err("exit status: 3: out".to_owned()));
        let missing = trial.output(&mut Command::new("/no/such/program"));
        assert!(
            missing
                .unwrap_err()
                .starts_with("cannot start /no/such/program")
        );
    }

    #[test]
    fn what_does_not_end_is_killed_with_what_it_started() {
        let trial = Trial {
            limit: Duration::from_millis(300),
        };
        // Who reads sees the end once nobody is left who could write.
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut parent = shell("sleep 1000 & sleep 1000");
        let mut child = parent.stdout(writer).process_group(0).spawn().unwrap();
        drop(parent);
        assert_eq!(trial.end(&mut child), None);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        let said = trial.output(&mut shell("echo begun >&2; sleep 1000"));
        let said = said.unwrap_err();
        assert!(
            said.contains("had not ended") && said.contains("begun"),
            "{said}"
        );
    }

    #[test]
    fn the_last_line_that_says_something_counts() {
        assert_eq!(last_line("a\nb \n\n"), "b");
        assert_eq!(last_line(""), "");
    }
}
