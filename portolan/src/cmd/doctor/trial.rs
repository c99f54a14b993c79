//! The trials: commands that have to end in time and well.

use super::Tried;
use portals_shim::fabric::FabricKind;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::io::{self, Read as _, Seek as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// A launcher, and how it starts two ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launcher {
    pub(super) name: &'static str,
    words: &'static [&'static str],
    /// Words that name what it speaks with ranks, where that is a choice, the better one first.
    pub(super) choices: &'static [&'static str],
}

pub(super) const LAUNCHERS: [Launcher; 3] = [
    Launcher {
        name: "mpiexec.hydra",
        words: &["-n", "2"],
        choices: &[],
    },
    Launcher {
        name: "mpirun",
        words: &["-n", "2"],
        choices: &[],
    },
    // Which of them it takes by itself is MpiDefault of slurm.conf: often none, and then ranks cannot meet.
    Launcher {
        name: "srun",
        words: &["-n", "2", "--overlap"],
        choices: &["--mpi=pmi2", "--mpi=pmix"],
    },
];

/// How trials are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial {
    limit: Duration,
}

/// The first line that says something, and the last one: the cause comes first, and what a launcher makes of it last.
fn gist(text: &str) -> String {
    let says = |line: &&str| line.contains(char::is_alphanumeric);
    let mut lines = text.lines().map(str::trim).filter(says);
    match (lines.next(), lines.next_back()) {
        (None, _) => String::new(),
        (Some(only), None) => only.to_owned(),
        (Some(first), Some(last)) => format!("{first} … {last}"),
    }
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

    /// Two ranks started by a launcher, which exchange what they have to say; `choice` is one of its choices, if any.
    pub(super) fn launch(
        self,
        launcher: &Launcher,
        file: &Path,
        choice: Option<&str>,
        own: &Path,
    ) -> Tried {
        let mut command = Command::new(file);
        command.args(launcher.words).args(choice);
        command.arg(own).arg("probe");
        let said = self.output(&mut command)?;
        for rank in 0..2 {
            let line = format!("rank {rank} of 2: ok");
            if !said.contains(&line) {
                return Err(format!("the ranks did not meet: {}", gist(&said)));
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
        let none = host::null_stdio::input();
        let none = none.map_err(|error| format!("no descriptor for its input: {error}"))?;
        let child = command
            .stdin(none)
            .stdout(to_out)
            .stderr(to_err)
            .process_group(0)
            .spawn();
        let mut child = child.map_err(|error| format!("cannot start {program}: {error}"))?;
        let status = self.end(&mut child);
        let status = status.map_err(|error| format!("cannot wait for {program}: {error}"))?;
        let read = |file: &mut std::fs::File| {
            let mut bytes = Vec::new();
            let _ = file.rewind().and_then(|()| file.read_to_end(&mut bytes));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (said, complaint) = (read(&mut out), read(&mut err));
        match status {
            Some(status) if status.success() => Ok(said),
            Some(status) => {
                let complaint = gist(&complaint);
                let why = Some(complaint).filter(|why| !why.is_empty());
                Err(format!("{status}: {}", why.unwrap_or_else(|| gist(&said))))
            }
            None => Err(format!(
                "it had not ended after {} s: {}",
                self.limit.as_secs(),
                gist(&complaint)
            )),
        }
    }

    /// The status of a child; `None` if it had to be killed, with all that it started in its group.
    fn end(self, child: &mut Child) -> io::Result<Option<ExitStatus>> {
        let pid = Pid::from_child(child);
        let (tell, ended) = channel();
        let waiting = thread::Builder::new().spawn(move || {
            // The child stays a zombie, so that its number is its own until this process has waited for it.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            while matches!(waitid(WaitId::Pid(pid), options), Err(Errno::INTR)) {}
            // Nobody asks any more where the time is over.
            let _ = tell.send(());
        });
        if waiting.is_ok() && ended.recv_timeout(self.limit).is_ok() {
            return child.wait().map(Some);
        }
        let _ = kill_process_group(pid, Signal::KILL);
        child.wait()?;
        waiting.map(|_| None)
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
        assert_eq!(trial.end(&mut child).unwrap(), None);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).unwrap();
        let said = trial.output(&mut shell("echo begun >&2; sleep 1000"));
        let said = said.unwrap_err();
        assert!(
            said.contains("had not ended") && said.contains("begun"),
            "{said}"
        );
    }

    /// An executable of these words of the shell.
    fn script(folder: &Path, words: &str) -> std::path::PathBuf {
        let file = folder.join("script");
        std::fs::write(&file, format!("#!/bin/sh\n{words}\n")).unwrap();
        let all = <std::fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
        std::fs::set_permissions(&file, all).unwrap();
        file
    }

    #[test]
    fn a_launcher_is_good_if_both_ranks_have_met() {
        let folder = tempfile::tempdir().unwrap();
        let trial = Trial::new(30);
        let own = Path::new("/own/portolan");
        // Who is started with other words says nothing.
        let says = |lines: &str| {
            let words = format!("[ \"$*\" = '-n 2 /own/portolan probe' ] && printf '{lines}'");
            trial.launch(&LAUNCHERS[0], &script(folder.path(), &words), None, own)
        };
        assert_eq!(says("rank 1 of 2: ok\\nrank 0 of 2: ok\\n"), Ok(()));
        let alone = says("rank 0 of 1: ok\\nrank 0 of 1: ok\\n").unwrap_err();
        assert!(
            alone.contains("the ranks did not meet: rank 0 of 1"),
            "{alone}"
        );
        assert!(says("rank 0 of 2: ok\\n").is_err());
    }

    #[test]
    fn libfabric_is_asked_for_the_provider_of_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let words = "[ \"$*\" = '-p portolan' ] && [ \"$FI_PROVIDER_PATH\" = /p/libfabric ]";
        let fi_info = script(folder.path(), words);
        let trial = Trial::new(30);
        assert_eq!(trial.offers(&fi_info, Path::new("/p/libfabric")), Ok(()));
        assert!(trial.offers(&fi_info, Path::new("/q")).is_err());
    }

    #[test]
    fn the_cause_and_what_a_launcher_makes_of_it_are_told() {
        assert_eq!(
            gist("-----\n cause\nb\n\nthe job ends \n-----\n"),
            "cause … the job ends"
        );
        assert_eq!(gist("cause\n\n"), "cause");
        assert_eq!(gist("---\n"), "");
    }
}
