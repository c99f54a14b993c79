//! `cargo xtask mpi`: MPIs that were compiled elsewhere over the libfabric provider, as a table: each program of `xtask/mpi` checks
//! what it gets. An MPI is a folder with `bin/mpicc` and `bin/mpiexec`; without one, it is Debian's Open MPI:
//!
//! ```console
//! $ python3 -m venv mpi && mpi/bin/pip install mpich
//! $ cargo xtask mpi --mpi mpi
//! ```

use crate::cargo::{self, debug_dir, release_dir, root};
use crate::packages;
use crate::wait::{self, Process};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

mod clock;
mod speed;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Folder of an MPI, with bin/mpicc and bin/mpiexec; several times for several. Without it, Debian's Open MPI
    #[arg(long, value_name = "DIR")]
    mpi: Vec<PathBuf>,
    /// Fabrics: shm, seastar; verbs where a device is
    #[arg(long, value_delimiter = ',', default_value = "shm,seastar")]
    fabric: Vec<String>,
    /// Ranks of each job
    #[arg(long, value_delimiter = ',', default_value = "2,4")]
    ranks: Vec<u32>,
    /// Only programs whose name has this word
    #[arg(long)]
    only: Option<String>,
    /// Jobs on each fabric of which a rank is killed in the middle
    #[arg(long, default_value_t = 0)]
    kills: u32,
    /// Runs of each size, by turns with libfabric's own provider `shm`, of which the times are compared
    #[arg(long, value_name = "RUNS", default_value_t = 0)]
    speed: u32,
    /// Ping-pongs of each size on the model, timed by the MPI's own clock in virtual time, and compared with each other
    #[arg(long, value_name = "RUNS", default_value_t = 0)]
    clock: u32,
    /// Over verbs too, in a guest
    #[arg(long)]
    verbs: bool,
    /// Folder of portolan and the provider that are built already
    #[arg(long)]
    built: Option<PathBuf>,
}

/// Programs, each with the fabrics that it is left out on. Calls of a rank's threads are steps of one simulation on the model, which takes
/// too long.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("messages", &[]),
    ("onesided", &[]),
    ("threads", &["seastar"]),
];
/// How long a job may take; one on the model is simulated.
const LIMIT: Duration = Duration::from_secs(300);
/// How long a job may go on whose rank was killed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Variables of Open MPI and their values, with each of which its first program runs once more: how it folds communicator, rank and tag
/// into the bits that the provider matches, how many completions it takes at once, and how it numbers peers.
const OPEN_MPI: [(&str, &str); 6] = [
    ("mtl_ofi_tag_mode", "ofi_tag_1"),
    ("mtl_ofi_tag_mode", "ofi_tag_2"),
    ("mtl_ofi_tag_mode", "ofi_tag_full"),
    ("mtl_ofi_progress_event_cnt", "1"),
    ("mtl_ofi_av", "table"),
    ("mtl_ofi_data_progress", "auto"),
];

/// An MPI, and what its launcher is told.
struct Mpi {
    launcher: PathBuf,
    compiler: PathBuf,
    version: String,
    options: &'static [&'static str],
    /// Variables whose names have `OMPI_MCA_` before them.
    variables: &'static [(&'static str, &'static str)],
}

impl Mpi {
    /// That of a folder.
    fn find(folder: &Path) -> Result<Self> {
        let folder = folder
            .canonicalize()
            .with_context(|| folder.display().to_string())?;
        Self::of(folder.join("bin/mpiexec"), folder.join("bin/mpicc"))
    }

    /// Those of the system that run over its libfabric: Open MPI, by the names that Debian gives it. Debian's MPICH is over UCX.
    fn of_system() -> Result<Vec<Self>> {
        let open_mpi = packages::place("mpirun.openmpi").zip(packages::place("mpicc.openmpi"));
        let found = open_mpi.map(|(launcher, compiler)| Self::of(launcher, compiler));
        found.into_iter().collect()
    }

    fn of(launcher: PathBuf, compiler: PathBuf) -> Result<Self> {
        let said = Command::new(&launcher)
            .arg("--version")
            .output()
            .with_context(|| launcher.display().to_string())?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let open = said.contains("Open MPI") || said.contains("OpenRTE");
        let words: Vec<&str> = said.split_whitespace().collect();
        let number = words
            .iter()
            .find(|w| w.contains('.') && w.starts_with(|c: char| c.is_ascii_digit()));
        let name = match open {
            true => "Open MPI",
            false if said.contains("Intel") => "Intel MPI",
            false => "MPICH",
        };
        Ok(Self {
            launcher,
            compiler,
            version: format!("{name} {}", number.unwrap_or(&"")),
            options: match open {
                true => &[
                    "--oversubscribe",
                    "--mca",
                    "pml",
                    "cm",
                    "--mca",
                    "mtl",
                    "ofi",
                ],
                false => &[],
            },
            variables: if open { &OPEN_MPI } else { &[] },
        })
    }

    fn compile(&self, program: &str, to: &Path) -> Result<PathBuf> {
        let exe = to.join(program);
        let source = root().join("xtask/mpi").join(format!("{program}.c"));
        let status = Command::new(&self.compiler)
            .args(["-O2", "-pthread", "-o"])
            .args([&exe, &source])
            .status()
            .with_context(|| self.compiler.display().to_string())?;
        if !status.success() {
            bail!("{} of {program}.c: {status}", self.compiler.display());
        }
        Ok(exe)
    }

    /// A job of that many ranks. The variables are those of MPICH, Open MPI and its launcher; each reads its own.
    fn job(&self, built: &Built, fabric: &str, ranks: u32, program: &Path) -> Command {
        self.job_by(built, (fabric, &[]), ranks, program)
    }

    /// The same with these options of `portolan run`, which starts the simulation on the model.
    fn job_by(
        &self,
        built: &Built,
        (fabric, options): (&str, &[&str]),
        ranks: u32,
        program: &Path,
    ) -> Command {
        let mut command = match fabric {
            "seastar" => {
                let mut run = Command::new(&built.portolan);
                // Open MPI opens a second endpoint in a rank, for one-sided communication.
                let places = (2 * ranks).to_string();
                run.args(["run", "--fabric", "seastar", "--places", &places]);
                run.args(options).arg("--").arg(&self.launcher);
                run
            }
            _ => Command::new(&self.launcher),
        };
        command
            .args(self.options)
            .args(["-n", &ranks.to_string()])
            .arg(program)
            .env("FI_PROVIDER_PATH", built.providers.path())
            .env("FI_PROVIDER", "portolan")
            .env("FI_PORTOLAN_FABRIC", fabric)
            .env("MPIR_CVAR_CH4_NETMOD", "ofi")
            .env("MPIR_CVAR_NOLOCAL", "1")
            .stdin(Stdio::null());
        for user in ["OMPI_ALLOW_RUN_AS_ROOT", "PRTE_ALLOW_RUN_AS_ROOT"] {
            command.env(user, "1").env(format!("{user}_CONFIRM"), "1");
        }
        command
    }
}

/// What the jobs use of this project.
struct Built {
    portolan: PathBuf,
    /// Where libfabric looks.
    providers: tempfile::TempDir,
}

impl Built {
    fn new(folder: &Path) -> Result<Self> {
        let providers = tempfile::tempdir()?;
        // The name by which libfabric knows that it is a provider.
        let name = providers.path().join("libportolan-fi.so");
        fs::copy(folder.join("libportolan_fi.so"), &name).context("the provider")?;
        Ok(Self {
            portolan: folder.join("portolan"),
            providers,
        })
    }
}

/// Ends a launcher, which ends its ranks if it gets the time.
fn stop(launcher: &mut Child) -> Result<()> {
    Process::open(launcher.id())?.signal(Signal::TERM)?;
    if wait::end(launcher, Duration::from_secs(5))?.is_none() {
        launcher.kill()?;
        launcher.wait()?;
    }
    Ok(())
}

/// Runs a job: how it ended, and what it said. `None`: it had to be stopped.
fn outcome(command: &mut Command) -> Result<Option<(ExitStatus, String)>> {
    let folder = tempfile::tempdir()?;
    let said = folder.path().join("out");
    let file = fs::File::create(&said)?;
    command.stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().context("an MPI's launcher")?;
    let Some(status) = wait::end(&mut child, LIMIT)? else {
        stop(&mut child)?;
        return Ok(None);
    };
    Ok(Some((status, fs::read_to_string(&said)?)))
}

/// Runs a job; "right", or why not.
fn cell(command: &mut Command, ranks: u32) -> Result<String> {
    let Some((status, said)) = outcome(command)? else {
        return Ok(format!("not over after {} s", LIMIT.as_secs()));
    };
    if status.success() && said.contains(&format!("{ranks} ranks, 0 failures")) {
        return Ok("right".to_owned());
    }
    let last = said.lines().rev().find(|l| !l.trim().is_empty());
    Ok(format!("**{status}**: {}", last.unwrap_or("nothing said")))
}

/// The processes of a job that run this program.
fn ranks_of(program: &Path) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid: &u32| {
            fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe == program)
        })
        .collect()
}

/// Jobs of which a rank is killed: each must end by itself, with an error, and no rank may be left.
fn kill(mpi: &Mpi, built: &Built, fabric: &str, program: &Path, times: u32) -> Result<String> {
    const RANKS: u32 = 4;
    let mut random = fastrand::Rng::with_seed(1);
    let mut slowest = Duration::ZERO;
    for time in 0..times {
        let mut command = mpi.job(built, fabric, RANKS, program);
        let mut child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let running = Process::open(child.id())?;
        while ranks_of(program).len() < RANKS as usize {
            if running.ends_within(Duration::from_millis(10))? {
                bail!("{} on {fabric}: a job did not start", mpi.version);
            }
        }
        if running.ends_within(Duration::from_millis(random.u64(0..1500)))? {
            bail!("{} on {fabric}: a job ended before the kill", mpi.version);
        }
        let ranks = ranks_of(program);
        let victim = ranks.get(random.usize(0..ranks.len().max(1)));
        let victim = Process::open(*victim.context("a rank")?)?;
        victim.signal(Signal::KILL)?;
        let killed = Instant::now();
        let Some(status) = wait::end(&mut child, PATIENCE)? else {
            stop(&mut child)?;
            return Ok(format!("**job {time} went on**"));
        };
        slowest = slowest.max(killed.elapsed());
        let left: Vec<Process> = ranks_of(program)
            .into_iter()
            .filter_map(|pid| Process::open(pid).ok())
            .collect();
        for rank in &left {
            if !rank.ends_within(Duration::from_secs(1))? {
                return Ok(format!("**job {time} left a rank**"));
            }
        }
        if status.success() {
            return Ok(format!("**job {time} says that it succeeded**"));
        }
    }
    Ok(format!(
        "{times} of {times} ended, in {:.1} s at most",
        slowest.as_secs_f64()
    ))
}

fn in_guest(options: &Options, built: &Path) -> Result<()> {
    let own = cargo::own_exe()?;
    let mut guest = Command::new(built.join("portolan"));
    guest
        .args(["guest", "--timeout", "2400", "--", "env", "HOME=/tmp"])
        .arg(own);
    guest
        .args(["mpi", "--fabric", "verbs", "--built"])
        .arg(built);
    for mpi in &options.mpi {
        guest.arg("--mpi").arg(mpi.canonicalize()?);
    }
    let ranks: Vec<String> = options.ranks.iter().map(u32::to_string).collect();
    guest.args([
        "--ranks",
        &ranks.join(","),
        "--kills",
        &options.kills.to_string(),
    ]);
    if let Some(word) = &options.only {
        guest.args(["--only", word]);
    }
    cargo::run(&mut guest)
}

/// Folders of MPIs for `cargo xtask test`, as a search path has them.
const VARIABLE: &str = "PORTOLAN_TEST_MPI";

/// The short form: every program on 2 ranks over shared memory and on the model, with the MPIs that the environment names or that of the system. The
/// provider is the debug build that is there, which has more checks.
pub(crate) fn test() -> Result<()> {
    let folders = std::env::var_os(VARIABLE).unwrap_or_default();
    let mpi: Vec<PathBuf> = std::env::split_paths(&folders)
        .filter(|folder| !folder.as_os_str().is_empty())
        .collect();
    if mpi.is_empty() && Mpi::of_system()?.is_empty() {
        println!(
            "skipped: neither {VARIABLE} nor mpirun.openmpi: no MPI runs over the libfabric provider"
        );
        return Ok(());
    }
    run(&Options {
        mpi,
        fabric: vec!["shm".to_owned(), "seastar".to_owned()],
        ranks: vec![2],
        only: None,
        kills: 0,
        speed: 0,
        clock: 0,
        verbs: false,
        built: Some(debug_dir()),
    })
}

/// What is asked for, or that of the system.
fn mpis(options: &Options) -> Result<Vec<Mpi>> {
    if !options.mpi.is_empty() {
        return options.mpi.iter().map(|folder| Mpi::find(folder)).collect();
    }
    let found = Mpi::of_system()?;
    if found.is_empty() {
        bail!(
            "no mpirun.openmpi and mpicc.openmpi here: name an MPI by --mpi DIR, such as one that `pip install mpich` has put in a virtual environment"
        );
    }
    Ok(found)
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = match &options.built {
        Some(folder) => folder.canonicalize()?,
        None => {
            let packages = ["portolan", "portolan-ofi", "portolan-clock"];
            let words = packages.iter().flat_map(|package| ["--package", *package]);
            cargo::build(&words.collect::<Vec<_>>())?;
            release_dir()
        }
    };
    let built = Built::new(&folder)?;
    let programs = tempfile::tempdir()?;
    let wanted = |name: &str| {
        options
            .only
            .as_deref()
            .is_none_or(|word| name.contains(word))
    };
    let kills = (options.kills > 0).then_some("endless");
    let speed = (options.speed > 0).then_some("speed");
    let clock = (options.clock > 0).then_some("clock");
    let mut names = PROGRAMS
        .iter()
        .map(|(name, _)| *name)
        .chain(kills)
        .chain(speed)
        .chain(clock);
    if !names.any(wanted) {
        bail!("no program has {:?} in its name", options.only);
    }
    let (mut wrong, mut timed) = (0, Vec::new());
    println!("| MPI | program | ranks | {} |", options.fabric.join(" | "));
    println!("|---|---|---|{}", "---|".repeat(options.fabric.len()));
    for (number, mpi) in mpis(options)?.into_iter().enumerate() {
        let to = programs.path().join(number.to_string());
        fs::create_dir(&to)?;
        for (name, not_on) in PROGRAMS.iter().filter(|(name, _)| wanted(name)) {
            let program = mpi.compile(name, &to)?;
            let mut row = |ranks, variable: Option<(&str, &str)>| -> Result<()> {
                let mut cells = Vec::new();
                for fabric in &options.fabric {
                    let mut job = mpi.job(&built, fabric, ranks, &program);
                    job.envs(variable.map(|(name, value)| (format!("OMPI_MCA_{name}"), value)));
                    cells.push(match not_on.contains(&fabric.as_str()) {
                        true => "–".to_owned(),
                        false => cell(&mut job, ranks)?,
                    });
                }
                wrong += cells.iter().filter(|c| *c != "right" && *c != "–").count();
                let with = variable.map(|(name, value)| format!(", {name} {value}"));
                let with = with.unwrap_or_default();
                let (version, cells) = (&mpi.version, cells.join(" | "));
                println!("| {version} | {name}{with} | {ranks} | {cells} |");
                Ok(())
            };
            for ranks in &options.ranks {
                row(*ranks, None)?;
            }
            if let (Some(ranks), "messages") = (options.ranks.first(), *name) {
                for variable in mpi.variables {
                    row(*ranks, Some(*variable))?;
                }
            }
        }
        if options.kills > 0 && wanted("endless") {
            let program = mpi.compile("endless", &to)?.canonicalize()?;
            let kills = |fabric: &String| kill(&mpi, &built, fabric, &program, options.kills);
            let cells = options
                .fabric
                .iter()
                .map(kills)
                .collect::<Result<Vec<_>>>()?;
            wrong += cells.iter().filter(|c| c.starts_with("**")).count();
            println!(
                "| {} | a rank killed | 4 | {} |",
                mpi.version,
                cells.join(" | ")
            );
        }
        timed.push((mpi, to));
    }
    for (mpi, to) in &timed {
        if options.speed > 0 && wanted("speed") {
            speed::table(mpi, &built, to, options.speed)?;
        }
        if options.clock > 0 && wanted("clock") {
            wrong += clock::table(mpi, &built, to, options.clock)?;
        }
    }
    if options.verbs {
        in_guest(options, &folder)?;
    }
    if wrong > 0 {
        bail!("{wrong} cells are not right");
    }
    Ok(())
}
