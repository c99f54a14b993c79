//! `cargo xtask launchers`: the same C programs started by every launcher that start-up knows, and how jobs of
//! each end. Prints a table; fails when a launcher fails. One that cannot be had here is in the table
//! with the reason, and in continuous integration that is a failure too.

mod server;
mod slurm;
mod sshd;

use crate::cargo::{self, release_dir, root};
use crate::packages;
use crate::wait::{self, Changes, Process};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use slurm::Slurm;
use sshd::Sshd;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only launchers whose name has this word
    #[arg(long)]
    only: Option<String>,
}

/// How long a job may take: four ranks of every call of GASNet take some seconds on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long processes may live on after their job was ended.
const GONE: Duration = Duration::from_secs(15);
/// What is set for the launcher alone, to see whether ranks get it.
const MARK: (&str, &str) = ("GASNET_LAUNCHERS_MARK", "is here");

/// The fault of a rank that exits with 0 and never joins its job.
const OUTSIDE: &str = "outside";

/// A program that a launcher starts and that knows nothing of launchers; it says its process as the others do.
const PLAIN: [&str; 3] = ["sh", "-c", "echo \"plain process $$\"; exec sleep 1000"];
/// Jobs of it, where one of ours ended wrongly.
const COMPARED: usize = 20;

/// Starts a rank and appends its status to the file named first. Launchers signal a rank's process group, so this gets what
/// the rank gets: it takes signals, which the rank does not inherit, and goes on to wait. Where it cannot take them no
/// status is in the file: then the rank was killed with it.
const RECORDED: &str = "trap : HUP INT QUIT TERM; file=$1; shift; echo \"recorder process $$\"; \"$@\"; \
                        status=$?; echo $status >> \"$file\"; exit $status";

/// The statuses that a launcher gives a job of which a rank ends wrongly.
#[derive(Clone, Copy)]
enum Statuses {
    /// The rank's own; 1 for a rank that leaves without leaving the job.
    Own,
    /// Some that is not 0: of ranks that the launcher has killed.
    Any,
    /// The same, but where the launcher itself is sent a signal, or a rank exits with 0 too early, it may give 0, whatever
    /// it starts: there the ranks' own statuses count.
    Unsure,
}

/// A way to start a job.
struct Launcher<'a> {
    name: &'static str,
    statuses: Statuses,
    /// Why it cannot be had here.
    absent: Option<String>,
    /// The launcher for so many ranks, without the program.
    command: Box<dyn Fn(u32) -> Command + 'a>,
}

/// A launcher whose jobs end with the status of the rank that failed.
fn own<'a>(
    name: &'static str,
    absent: Option<String>,
    command: Box<dyn Fn(u32) -> Command + 'a>,
) -> Launcher<'a> {
    Launcher {
        name,
        statuses: Statuses::Own,
        absent,
        command,
    }
}

/// What is started.
struct Programs {
    portolan: PathBuf,
    /// Every call of GASNet, any number of ranks.
    gasnet: PathBuf,
    /// Portals, two ranks.
    portals: PathBuf,
    folder: TempDir,
}

/// How a job ended, and what it said.
struct Ended {
    status: ExitStatus,
    words: String,
}

impl Ended {
    /// The status as a shell gives it.
    fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt as _;
        let signal = self.status.signal().unwrap_or_default();
        self.status.code().unwrap_or(128 + signal)
    }

    fn last(&self) -> String {
        let lines: Vec<&str> = self.words.lines().rev().take(6).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n  ")
    }
}

impl Programs {
    fn build(built: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let compile = |name: &str, include: &str, library: &str| -> Result<PathBuf> {
            let program = folder.path().join(name);
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu99", "-O1", "-DGASNET_SEQ", "-I"])
                .arg(root().join(include))
                .arg(root().join("tests/c").join(format!("{name}.c")))
                .arg(built.join(library))
                .args(["-lpthread", "-ldl", "-lm", "-o"])
                .arg(&program);
            cargo::run(&mut cc)?;
            Ok(program)
        };
        Ok(Self {
            portolan: built.join("portolan"),
            gasnet: compile(
                "gasnet_calls",
                "conduit/capi/include",
                "libgasnet_portals_seq.a",
            )?,
            portals: compile("smoke", "portals-shim/include", "libportals3.a")?,
            folder,
        })
    }

    /// Starts a job whose words go to a file, and gives it to `watch` with the file.
    fn job<T>(
        &self,
        launcher: &Launcher<'_>,
        (ranks, fabric): (u32, &str),
        program: &[&str],
        watch: impl FnOnce(&std::process::Child, &Path) -> Result<T>,
    ) -> Result<(Ended, T)> {
        let file = self.folder.path().join("words");
        let out = File::create(&file)?;
        let mut command = (launcher.command)(ranks);
        // A rank that ends well without ever joining is nothing to most launchers. The others wait for it, until
        // a time that the launcher is given: of the job, or after its first end.
        if program.last().is_some_and(|word| word.starts_with(OUTSIDE)) {
            command.env("MPIEXEC_TIMEOUT", "4").env("SLURM_WAIT", "2");
        }
        for name in [
            "PMI_FD",
            "PMI_PORT",
            "PMIX_NAMESPACE",
            "PMIX_RANK",
            "PORTOLAN_LOG",
        ] {
            command.env_remove(name);
        }
        let mut child = command
            .args(program)
            .env("PORTOLAN_FABRIC", fabric)
            .env("PORTOLAN_EXE", &self.portolan)
            .env(MARK.0, MARK.1)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| cargo::line(&command))?;
        let watched = watch(&child, &file);
        let Some(status) = wait::end(&mut child, PATIENCE)? else {
            let _ = child.kill();
            let _ = child.wait();
            let words = std::fs::read_to_string(&file).unwrap_or_default();
            let said = words.lines().last().unwrap_or_default();
            bail!("{} goes on after {PATIENCE:?}: {said}", program.join(" "));
        };
        let words = String::from_utf8_lossy(&std::fs::read(&file)?).into_owned();
        Ok((Ended { status, words }, watched?))
    }

    /// Runs a job that must succeed and in which each rank says `line`.
    fn passes(
        &self,
        launcher: &Launcher<'_>,
        ranks: u32,
        fabric: &str,
        program: &[&str],
        line: Option<&str>,
    ) -> Result<String> {
        let (ended, ()) = self.job(launcher, (ranks, fabric), program, |_, _| Ok(()))?;
        if ended.code() != 0 {
            bail!(
                "{ranks} ranks on {fabric}: status {}:\n  {}",
                ended.code(),
                ended.last()
            );
        }
        let said = line.map(|line| ended.words.matches(line).count());
        if said.is_some_and(|n| n != ranks as usize) {
            bail!(
                "{said:?} of {ranks} ranks said {line:?}:\n  {}",
                ended.last()
            );
        }
        Ok("passes".to_owned())
    }

    /// Whether ranks see a variable that only the launcher has.
    fn forwards(&self, launcher: &Launcher<'_>) -> Result<String> {
        let show = format!("echo \"[${}]\"", MARK.0);
        let (ended, ()) = self.job(launcher, (2, "shm"), &["sh", "-c", &show], |_, _| Ok(()))?;
        match ended.words.matches(&format!("[{}]", MARK.1)).count() {
            2 => Ok("yes".to_owned()),
            0 => Ok("no".to_owned()),
            n => bail!("{n} of 2 ranks have the variable:\n  {}", ended.last()),
        }
    }

    /// Which fabric a job takes that names none, as one of its ranks says once.
    fn takes(&self, launcher: &Launcher<'_>, program: &str) -> Result<String> {
        let (ended, ()) = self.job(launcher, (4, "auto"), &[program], |_, _| Ok(()))?;
        let lines = ended.words.lines();
        let said: Vec<&str> = lines
            .filter_map(|line| Some(line.split_once("portolan: fabric ")?.1))
            .collect();
        match (ended.code(), said.as_slice()) {
            (0, ["shm: all 4 ranks are on one machine"]) => Ok("shm".to_owned()),
            (code, _) => bail!(
                "without a fabric: status {code}, {said:?}:\n  {}",
                ended.last()
            ),
        }
    }

    /// A rank that ends wrongly: the status of the job.
    fn fault(&self, launcher: &Launcher<'_>, fault: &str, own: i32) -> Result<String> {
        let portolan = self.portolan.to_string_lossy();
        let program = [&*portolan, "probe", "--fault", fault];
        if matches!(launcher.statuses, Statuses::Unsure) && fault.starts_with("exit0") {
            return self.recorded(&program, 1, |program| {
                let (ended, ()) = self.job(launcher, (4, "shm"), program, |_, _| Ok(()))?;
                Ok(ended.code())
            });
        }
        let (ended, ()) = self.job(launcher, (4, "shm"), &program, |_, _| Ok(()))?;
        let code = ended.code();
        let notices = launcher.name.starts_with("portolan") || !fault.starts_with(OUTSIDE);
        let right = match launcher.statuses {
            Statuses::Own if notices => code == own,
            _ => code != 0,
        };
        if !right {
            bail!(
                "{fault}: status {code} where {own} was due:\n  {}",
                ended.last()
            );
        }
        Ok(code.to_string())
    }

    /// How a job of ranks that wait for ever ends by a signal to the launcher, or to a rank. Where that goes wrong, what the
    /// launcher does with a program that joins no job is said too.
    fn signalled(&self, launcher: &Launcher<'_>, signal: Signal, rank: bool) -> Result<String> {
        let portolan = self.portolan.to_string_lossy();
        let program = [&*portolan, "probe", "--pids", "--fault", "hang@0"];
        let recorded = matches!(launcher.statuses, Statuses::Unsure) && !rank;
        let ended = if recorded {
            // Four ranks and their recorders.
            self.recorded(&program, 0, |program| {
                self.ended_by(launcher, program, (8, signal, false))
            })
        } else {
            self.ended_by(launcher, &program, (4, signal, rank))
                .and_then(|code| match code {
                    0 => bail!("{signal:?}: the job says that it succeeded"),
                    code => Ok(code.to_string()),
                })
        };
        let error = match ended {
            Ok(status) => return Ok(status),
            Err(error) => error,
        };
        let mut plain = Vec::new();
        for _ in 0..COMPARED {
            match self.ended_by(launcher, &PLAIN, (4, signal, rank)) {
                Ok(status) => plain.push(status.to_string()),
                Err(error) => plain.push(format!("{error:#}")),
            }
        }
        Err(error.context(format!("of a plain program: {}", plain.join(", "))))
    }

    /// A job of four ranks with a recorder each, which `start` starts: its status, which may be anything, and those of its ranks,
    /// of which `good` may say that they succeeded.
    fn recorded(
        &self,
        program: &[&str],
        good: usize,
        start: impl FnOnce(&[&str]) -> Result<i32>,
    ) -> Result<String> {
        let file = self.folder.path().join("statuses");
        std::fs::write(&file, "")?;
        let path = file.to_string_lossy();
        let mut recorder = vec!["sh", "-c", RECORDED, "recorder", &*path];
        recorder.extend(program);
        let code = start(&recorder)?;
        let statuses = std::fs::read_to_string(&file)?;
        let statuses: Vec<&str> = statuses.lines().collect();
        let zeros = statuses.iter().filter(|status| **status == "0").count();
        if statuses.len() > 4 || zeros > good {
            bail!("ranks ended with {}", statuses.join(" "));
        }
        let killed = 4 - statuses.len();
        let own = if statuses.is_empty() {
            "none"
        } else {
            &statuses.join(" ")
        };
        Ok(format!("{code}; ranks' own: {own}, {killed} killed"))
    }

    /// A job of which the launcher, or a rank, is sent a signal once so many processes have said that they are there: the
    /// status, once nothing is left.
    fn ended_by(
        &self,
        launcher: &Launcher<'_>,
        program: &[&str],
        (processes, signal, rank): (usize, Signal, bool),
    ) -> Result<i32> {
        let watch = |child: &std::process::Child, file: &Path| {
            let launched = Process::open(child.id())?;
            let changes = Changes::of(file)?;
            let words = || std::fs::read_to_string(file).context("what the job said");
            let pids = || {
                let pids = named(&words()?);
                Ok((pids.len() == processes).then_some(pids))
            };
            let Some(pids) = changes.until(&launched, PATIENCE, pids)? else {
                bail!("{processes} processes did not start: {}", words()?);
            };
            let ranks = pids.into_iter().map(|pid| Ok((pid, Process::open(pid)?)));
            let ranks = ranks.collect::<Result<Vec<_>>>()?;
            if rank {
                ranks[2].1.signal(signal)?;
                return Ok(ranks);
            }
            launched.signal(signal)?;
            if signal == Signal::INT && launcher.name.starts_with("srun") {
                // It wants to be asked twice, and says within what time.
                let again = || Ok(words()?.contains("one more within 1 sec").then_some(()));
                if changes.until(&launched, PATIENCE, again)?.is_some() {
                    launched.signal(signal)?;
                }
            }
            Ok(ranks)
        };
        let (ended, ranks) = self.job(launcher, (4, "shm"), program, watch)?;
        let begun = Instant::now();
        for (pid, process) in &ranks {
            if !process.ends_within(GONE.saturating_sub(begun.elapsed()))? {
                bail!("{signal:?}: process {pid} is left");
            }
        }
        Ok(ended.code())
    }

    /// The columns of a launcher's row.
    fn row(&self, launcher: &Launcher<'_>) -> Result<Vec<String>> {
        let text = |p: &Path| p.to_string_lossy().into_owned();
        let (gasnet, portals) = (text(&self.gasnet), text(&self.portals));
        let all_right = Some(": all right");
        let mut row = vec![self.forwards(launcher)?, self.takes(launcher, &gasnet)?];
        let fours = self.passes(launcher, 4, "shm", &[&gasnet], all_right)?;
        self.passes(launcher, 2, "shm", &[&gasnet], all_right)?;
        self.passes(launcher, 2, "seastar", &[&gasnet], all_right)?;
        self.passes(launcher, 2, "seastar", &[&portals], None)?;
        row.push(fours);
        row.push(self.passes(launcher, 2, "shm", &[&portals], None)?);
        for (fault, own) in [
            ("exit3@1", 3),
            ("abort7@1", 7),
            ("exit0@1", 1),
            ("outside@1", 1),
        ] {
            row.push(self.fault(launcher, fault, own)?);
        }
        row.push(self.signalled(launcher, Signal::KILL, true)?);
        for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
            row.push(self.signalled(launcher, signal, false)?);
        }
        Ok(row)
    }
}

/// The processes that `portolan probe --pids` names in whole lines.
fn named(words: &str) -> Vec<u32> {
    let whole = words.rfind('\n').and_then(|end| words.get(..end));
    let lines = whole.unwrap_or_default().lines();
    let lines = lines.filter(|line| line.contains(" process "));
    lines
        .filter_map(|line| line.split_whitespace().last()?.parse().ok())
        .collect()
}

const COLUMNS: [&str; 12] = [
    "environment",
    "without a fabric",
    "GASNet, 4 ranks",
    "Portals",
    "exit 3",
    "abort 7",
    "exit 0 early",
    "never joins",
    "rank killed",
    "SIGTERM",
    "SIGINT",
    "SIGKILL",
];

/// The reason why none of `programs` can be started, if one is not there.
fn missing(programs: &[&str]) -> Option<String> {
    let gone = programs.iter().find(|p| !packages::is_there(p))?;
    Some(format!("no {gone}"))
}

/// Starts the launchers that are `wanted` with the programs in `built`; the table and whether all is right.
fn table(built: &Path, wanted: impl Fn(&str) -> bool) -> Result<(String, bool)> {
    const SLURM: [&str; 3] = [
        "srun --mpi=pmi2",
        "srun --mpi=pmi2, as PMI-1",
        "srun --mpi=pmix",
    ];
    const SSH: [&str; 2] = ["portolan run --hosts (ssh)", "portolan run --gm-conf (ssh)"];
    let not_wanted = |names: &[&str]| {
        let none = !names.iter().any(|name| wanted(name));
        none.then(|| "not wanted".to_owned())
    };
    let programs = Programs::build(built)?;
    let portolan = &programs.portolan;
    let missing_slurm = || missing(&["munged", "slurmctld", "slurmd", "srun"]);
    let slurm = match not_wanted(&SLURM).or_else(missing_slurm) {
        Some(reason) => Err(reason),
        None => Slurm::start().map_err(|error| format!("Slurm does not start: {error:#}")),
    };
    let missing_sshd = || missing(&["/usr/sbin/sshd", "ssh", "ssh-keygen", "unshare", "nsenter"]);
    let sshd = match not_wanted(&SSH).or_else(missing_sshd) {
        Some(reason) => Err(reason),
        None if !sshd::may_unshare() => Err("no network namespace can be made here".to_owned()),
        None => Sshd::start().map_err(|error| format!("sshd does not start: {error:#}")),
    };
    let srun =
        |mpi: &'static str, protocol: Option<&'static str>| -> Box<dyn Fn(u32) -> Command + '_> {
            let slurm = slurm.as_ref().ok();
            Box::new(move |n| {
                let mut srun = slurm.map_or_else(|| Command::new("srun"), Slurm::srun);
                srun.args(["--kill-on-bad-exit=1", mpi, "-n", &n.to_string()]);
                match protocol {
                    Some(protocol) => srun.env("PORTOLAN_LAUNCHER", protocol),
                    None => srun.env_remove("PORTOLAN_LAUNCHER"),
                };
                srun
            })
        };
    let ssh = |words: &'static [&'static str]| -> Box<dyn Fn(u32) -> Command + '_> {
        let sshd = sshd.as_ref().ok();
        Box::new(move |n| {
            let Some(sshd) = sshd else {
                return Command::new("ssh");
            };
            let mut run = sshd.inside(portolan);
            run.args(["run", "--ssh", &sshd.ssh()]);
            if words.is_empty() {
                let hosts = ["127.0.0.1", "127.0.0.2"];
                let lines =
                    (0..n).map(|r| format!("{} {}\n", hosts[r as usize % 2], 2 + r / 2 * 2));
                let file = sshd.folder().join(format!("gm-conf-{n}"));
                let _ = std::fs::write(&file, format!("{n}\n{}", lines.collect::<String>()));
                run.arg("--gm-conf").arg(&file);
            } else {
                run.args(words).args(["-n", &n.to_string()]);
            }
            run.arg("--");
            run
        })
    };
    let no_slurm = slurm.as_ref().err();
    let no_sshd = sshd.as_ref().err();
    let launchers = [
        own(
            "portolan run",
            None,
            Box::new(|n| {
                let mut run = Command::new(portolan);
                run.args(["run", "-n", &n.to_string(), "--"]);
                run
            }),
        ),
        own(
            SSH[0],
            no_sshd.cloned(),
            ssh(&["--hosts", "127.0.0.1,127.0.0.2"]),
        ),
        own(SSH[1], no_sshd.cloned(), ssh(&[])),
        Launcher {
            name: "mpiexec.hydra",
            statuses: Statuses::Unsure,
            absent: missing(&["mpiexec.hydra"]),
            command: Box::new(|n| {
                let mut mpiexec = Command::new("mpiexec.hydra");
                mpiexec.args(["-n", &n.to_string()]);
                mpiexec
            }),
        },
        own(
            "mpirun.openmpi",
            missing(&["mpirun.openmpi"]),
            Box::new(|n| {
                let mut mpirun = Command::new("mpirun.openmpi");
                mpirun.args([
                    "--allow-run-as-root",
                    "--oversubscribe",
                    "-n",
                    &n.to_string(),
                ]);
                mpirun
            }),
        ),
        Launcher {
            name: SLURM[0],
            statuses: Statuses::Any,
            absent: no_slurm.cloned(),
            command: srun("--mpi=pmi2", None),
        },
        Launcher {
            name: SLURM[1],
            statuses: Statuses::Any,
            absent: no_slurm.cloned(),
            command: srun("--mpi=pmi2", Some("pmi1")),
        },
        Launcher {
            name: SLURM[2],
            statuses: Statuses::Any,
            absent: no_slurm.cloned(),
            command: srun("--mpi=pmix", None),
        },
    ];
    let mut lines = vec![
        format!("| launcher | {} |", COLUMNS.join(" | ")),
        format!("|---|{}", "---|".repeat(COLUMNS.len())),
    ];
    let mut right = true;
    for launcher in &launchers {
        if !wanted(launcher.name) {
            continue;
        }
        let begun = Instant::now();
        let cells = match &launcher.absent {
            Some(reason) => {
                right &= std::env::var_os("CI").is_none();
                format!("skipped: {reason}")
            }
            None => match programs.row(launcher) {
                Ok(row) => row.join(" | "),
                Err(error) => {
                    right = false;
                    println!("{}: {error:#}", launcher.name);
                    "FAILED".to_owned()
                }
            },
        };
        println!("{}: {:.1} s", launcher.name, begun.elapsed().as_secs_f64());
        lines.push(format!("| `{}` | {cells} |", launcher.name));
    }
    Ok((lines.join("\n"), right))
}

fn check(wanted: impl Fn(&str) -> bool) -> Result<()> {
    let packages = ["portolan", "portals-c", "gasnet-c-seq"];
    let words: Vec<&str> = packages.iter().flat_map(|p| ["--package", p]).collect();
    cargo::build(&words)?;
    let (table, right) = table(&release_dir(), wanted)?;
    println!("{table}");
    if !right {
        bail!("a launcher failed");
    }
    Ok(())
}

pub(crate) fn run(options: &Options) -> Result<()> {
    packages::ensure_launchers()?;
    let only = options.only.as_deref();
    check(|name| only.is_none_or(|word| name.contains(word)))
}
