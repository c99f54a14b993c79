//! `cargo xtask hostile`: one program in environments that people run in and tests usually do not. Prints a table of
//! environments and fabrics; each cell is the same result as in the first row, or a refusal with status 3 and its reason.

mod environments;
mod page;
pub(crate) mod strangers;

use crate::cargo::{self, debug_dir, release_dir, root};
use crate::packages;
use crate::wait::{self, Process};
use anyhow::{Context, Result, bail};
use environments::{ALL, Copy, Environment, Event, Need};
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only environments whose name has this word
    #[arg(long)]
    only: Option<String>,
    /// Over verbs too, in a guest
    #[arg(long)]
    verbs: bool,
    /// Write the page of the book
    #[arg(long, conflicts_with = "only")]
    page: bool,
    /// Only strangers, in this many pairs of jobs: beside one that connects, and beside one that only looks
    #[arg(long, value_name = "PAIRS", conflicts_with_all = ["only", "verbs", "page"])]
    strangers: Option<usize>,
}

#[derive(clap::Args)]
pub(crate) struct InGuest {
    /// The RDMA device
    #[arg(long)]
    device: String,
    /// Only environments whose name has this word
    #[arg(long)]
    only: Option<String>,
}

/// How long a job may take on a busy machine; none needs a tenth of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a process of a job may outlive its launcher.
const GONE: Duration = Duration::from_secs(1);
const RANKS: &str = "2";
/// Marks the processes of a job, in their environment.
const MARK: &str = "PORTOLAN_HOSTILE_MARK";
/// Built here and run in a guest.
const PROGRAM: &str = "hostile-program";
const DENY: &str = "hostile-deny";

/// A fabric, and the words that choose it.
struct Fabric<'a> {
    name: &'static str,
    words: Vec<&'a str>,
}

/// How a job ended, and what it said on both outputs.
struct Ended {
    code: i32,
    words: String,
    result: Option<String>,
}

/// What a cell of the table says.
enum Cell {
    Same,
    Refused {
        /// What the reason has to have.
        words: &'static str,
        /// What was said.
        line: String,
    },
    /// Not what is due; why.
    Wrong(String),
    /// The environment cannot be made here; why.
    Skipped(String),
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Same => "same result".to_owned(),
            Self::Refused { line, .. } => format!("status 3: {line}"),
            Self::Wrong(what) => format!("**WRONG**: {what}"),
            Self::Skipped(why) => format!("skipped: {why}"),
        }
    }
}

/// A row of the table.
struct Row {
    name: &'static str,
    cells: Vec<Cell>,
}

/// Where jobs are run, and how many were.
struct Stage {
    folder: tempfile::TempDir,
    round: u32,
}

impl Stage {
    /// A folder that every user may enter, with the copies of the program.
    fn new() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("portolan-hostile-")
            .tempdir()?;
        let at = folder.path();
        fs::set_permissions(at, fs::Permissions::from_mode(0o755))?;
        for (copy, mode) in [
            (Copy::Plain, 0o755),
            (Copy::NotReadable, 0o711),
            (Copy::Capable, 0o755),
        ] {
            let to = at.join(file_of(copy));
            fs::copy(debug_dir().join(PROGRAM), &to)?;
            fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
        }
        // Users start the command from here, whoever may enter the folder it was built in.
        fs::copy(release_dir().join("portolan"), at.join("portolan"))?;
        fs::copy(debug_dir().join(DENY), at.join(DENY))?;
        if packages::is_there("setcap") {
            let capable = at.join(file_of(Copy::Capable));
            cargo::run(
                Command::new("setcap")
                    .arg("cap_net_bind_service=+ep")
                    .arg(&capable),
            )?;
        }
        Ok(Self { folder, round: 0 })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The words of the whole command.
    fn words(&self, environment: &Environment, fabric: &Fabric<'_>, results: &Path) -> Vec<String> {
        let path = |name: &str| self.path(name).to_string_lossy().into_owned();
        let word = |word: &&str| match *word {
            "DENY" => path(DENY),
            "N" => RANKS.to_owned(),
            other => other.to_owned(),
        };
        let mut words: Vec<String> = environment.outside.iter().map(word).collect();
        if environment.launcher.is_empty() {
            words.extend([path("portolan"), "run".into(), "-n".into(), RANKS.into()]);
            words.extend(fabric.words.iter().map(|w| (*w).to_owned()));
            words.push("--".into());
        } else {
            words.extend(environment.launcher.iter().map(word));
        }
        words.extend(environment.inside.iter().map(word));
        words.extend([
            path(file_of(environment.copy)),
            results.to_string_lossy().into_owned(),
            environment.way.into(),
        ]);
        words
    }

    /// Runs the program once.
    fn job(&mut self, environment: &Environment, fabric: &Fabric<'_>) -> Result<Ended> {
        self.round += 1;
        let mark = format!("{}-{}", std::process::id(), self.round);
        let results = self.path(&format!("results-{}", self.round));
        fs::create_dir(&results)?;
        fs::set_permissions(&results, fs::Permissions::from_mode(0o777))?;
        let result = results.join("result");
        let words = self.words(environment, fabric, &result);
        let said = self.path(&format!("said-{}", self.round));
        let out = fs::File::create(&said)?;
        let mut command = Command::new(&words[0]);
        for name in ["PMI_FD", "PMI_PORT", "PMIX_NAMESPACE", "PMIX_RANK"] {
            command.env_remove(name);
        }
        if !environment.launcher.is_empty() {
            command.env("PORTOLAN_FABRIC", fabric.name);
        }
        if environment.event == Event::StopAndContinue {
            // The system stops no group whose parents are all outside of its session, as nobody could have it go on.
            command.process_group(0);
        }
        let mut child = command
            .args(&words[1..])
            .current_dir(&results)
            .env("PORTOLAN_EXE", self.path("portolan"))
            .env(MARK, &mark)
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out)
            .spawn()
            .with_context(|| words.join(" "))?;
        if environment.event == Event::StopAndContinue {
            stop_and_continue(&mut child, &mark)?;
        }
        let status = wait::end(&mut child, PATIENCE)?;
        let left = if status.is_some() {
            GONE
        } else {
            Duration::ZERO
        };
        let left = end_all(&mark, left)?;
        let Some(status) = status else {
            child.wait()?;
            bail!("goes on after {PATIENCE:?}: {}", last(&read(&said)));
        };
        if !left.is_empty() {
            bail!("left after {GONE:?}: {}", left.join(", "));
        }
        Ok(Ended {
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or_default()),
            words: read(&said),
            result: fs::read_to_string(&result).ok(),
        })
    }

    /// One cell: `right` is the result of the first row.
    fn cell(
        &mut self,
        environment: &Environment,
        fabric: &Fabric<'_>,
        right: Option<&str>,
    ) -> Cell {
        if let Some(why) = environment.needs.iter().find_map(|need| missing(*need)) {
            return Cell::Skipped(why);
        }
        let ended = match self.job(environment, fabric) {
            Ok(ended) => ended,
            Err(error) => return Cell::Wrong(format!("{error:#}")),
        };
        let refused = environment.refused.iter().find(|(f, _)| *f == fabric.name);
        let said = || format!("status {}: {}", ended.code, last(&ended.words));
        match (ended.code, refused, &ended.result) {
            (0, None, Some(result)) if right.is_none_or(|right| right == result) => Cell::Same,
            (0, None, Some(result)) => Cell::Wrong(format!("another result: {}", result.trim())),
            (3, Some((_, words)), None) => {
                let line = ended.words.lines().find(|line| line.contains(words));
                let refused = |line: &str| Cell::Refused {
                    words,
                    line: line.to_owned(),
                };
                line.map_or_else(|| Cell::Wrong(said()), refused)
            }
            _ => Cell::Wrong(said()),
        }
    }
}

fn file_of(copy: Copy) -> &'static str {
    match copy {
        Copy::Plain => PROGRAM,
        Copy::NotReadable => "hostile-program-0711",
        Copy::Capable => "hostile-program-capable",
    }
}

fn read(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The last lines, on one.
fn last(words: &str) -> String {
    let lines: Vec<&str> = words.lines().rev().take(3).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
}

/// Whether this is root, whose files root's processes show in `/proc`.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Why the environment cannot be made here, if it cannot.
fn missing(need: Need) -> Option<String> {
    match need {
        Need::Root => (!is_root()).then(|| "needs root".to_owned()),
        Need::Command(name) => (!packages::is_there(name)).then(|| format!("no {name}")),
        Need::UserNamespaces => {
            let mut made = Command::new("unshare");
            made.args(["--user", "--map-root-user", "true"]);
            made.uid(strangers::STRANGER).gid(strangers::STRANGER);
            made.stdin(Stdio::null()).stderr(Stdio::null());
            let is_made = made.status().is_ok_and(|status| status.success());
            (!is_made).then(|| "no user namespaces here".to_owned())
        }
        Need::Processors(n) => {
            let has = std::thread::available_parallelism().map_or(1, usize::from);
            (has < n).then(|| format!("needs {n} processors"))
        }
    }
}

/// Processes whose environment has the mark, with the state and the name of each.
fn marked(mark: &str) -> Vec<(u32, char, String)> {
    let variable = format!("{MARK}={mark}");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let block = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            block.split(|b| *b == 0).any(|v| v == variable.as_bytes())
        })
        .filter_map(|pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            let (head, tail) = stat.rsplit_once(") ")?;
            let name = head.split_once('(')?.1.to_owned();
            Some((pid, tail.chars().next()?, name))
        })
        // One that has ended and is not reaped has left nothing.
        .filter(|(_, state, _)| *state != 'Z' && *state != 'X')
        .collect()
}

/// Waits so long for the processes with the mark; ends those that are left, and gives their names.
fn end_all(mark: &str, limit: Duration) -> Result<Vec<String>> {
    let begun = Instant::now();
    let mut left = Vec::new();
    while let Some((pid, _, name)) = marked(mark).into_iter().next() {
        // One that cannot be opened has ended since.
        let Ok(process) = Process::open(pid) else {
            continue;
        };
        if !process.ends_within(limit.saturating_sub(begun.elapsed()))? {
            left.push(format!("{name} ({pid})"));
            let _ = process.signal(Signal::KILL);
            process.ends_within(PATIENCE)?;
        }
    }
    Ok(left)
}

/// Stops the launcher as a terminal does, and continues it when no process of the job runs.
fn stop_and_continue(child: &mut Child, mark: &str) -> Result<()> {
    let launcher = Process::open(child.id())?;
    let ranks: usize = RANKS.parse()?;
    let begun = Instant::now();
    let mut stopped = false;
    while begun.elapsed() < PATIENCE {
        let all = marked(mark);
        if all.is_empty() {
            bail!("the job ended before it was stopped");
        }
        let programs = all
            .iter()
            .filter(|(.., name)| PROGRAM.starts_with(name.as_str()));
        if !stopped && programs.count() == ranks {
            launcher.signal(Signal::TSTP)?;
            stopped = true;
        }
        let still = |(_, state, name): &&(u32, char, String)| {
            PROGRAM.starts_with(name.as_str()) && *state == 'T'
        };
        // A shell continues what it has seen stop: the launcher, which stops after its ranks.
        let launcher_too = all
            .iter()
            .any(|(pid, state, _)| *pid == child.id() && *state == 'T');
        if stopped && launcher_too && all.iter().filter(still).count() == ranks {
            launcher.signal(Signal::CONT)?;
            return Ok(());
        }
        // Nothing tells of a stop of a process that is no child.
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = launcher.signal(Signal::CONT);
    bail!("the ranks do not stop with their launcher")
}

/// Compiles the programs, with the library as `cargo build` leaves it: that has more checks than a release.
pub(crate) fn compile() -> Result<()> {
    let built = debug_dir();
    let source = |name: &str| root().join("tests/c").join(name);
    cargo::run(
        Command::new("cc")
            .args(["-std=gnu99", "-O2", "-DGASNET_SEQ", "-I"])
            .arg(root().join("conduit/capi/include"))
            .arg(source("gasnet_hostile.c"))
            .arg("-o")
            .arg(built.join(PROGRAM))
            .arg(built.join("libgasnet_portals_seq.a"))
            .args(["-lpthread", "-ldl", "-lm"]),
    )?;
    cargo::run(
        Command::new("cc")
            .args(["-std=gnu99", "-O2"])
            .arg(source("deny.c"))
            .arg("-o")
            .arg(built.join(DENY)),
    )
}

/// Every environment on these fabrics, as a table that is printed row by row.
fn table(fabrics: &[Fabric<'_>], only: Option<&str>) -> Result<Vec<Row>> {
    if let Some(word) = only
        && !ALL
            .iter()
            .any(|environment| environment.name.contains(word))
    {
        bail!("no environment has {word:?} in its name");
    }
    let mut stage = Stage::new()?;
    let names: Vec<_> = fabrics.iter().map(|f| f.name).collect();
    println!("| environment | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(fabrics.len()));
    let mut rows: Vec<Row> = Vec::new();
    // What the first job of all has given.
    let mut right: Option<String> = None;
    for environment in ALL {
        if !rows.is_empty() && only.is_some_and(|word| !environment.name.contains(word)) {
            continue;
        }
        let mut cells = Vec::new();
        for fabric in fabrics {
            cells.push(stage.cell(environment, fabric, right.as_deref()));
            if right.is_none() {
                right = Some(read(&stage.path("results-1").join("result")));
            }
        }
        let words: Vec<_> = cells.iter().map(|c| c.text().replace('|', "/")).collect();
        println!("| {} | {} |", environment.name, words.join(" | "));
        rows.push(Row {
            name: environment.name,
            cells,
        });
    }
    Ok(rows)
}

/// Counts the cells; fails when one is wrong, or in continuous integration where most were skipped.
fn judge(rows: &[Row]) -> Result<()> {
    let (mut good, mut wrong, mut skipped) = (0, 0, 0);
    for cell in rows.iter().flat_map(|row| &row.cells) {
        match cell {
            Cell::Same | Cell::Refused { .. } => good += 1,
            Cell::Wrong(_) => wrong += 1,
            Cell::Skipped(_) => skipped += 1,
        }
    }
    println!("\n{good} cells are right, {wrong} are wrong, {skipped} were skipped");
    if wrong > 0 {
        bail!("{wrong} cells are neither the same result nor a refusal with its reason");
    }
    if std::env::var_os("CI").is_some() && good <= skipped {
        bail!("continuous integration has to make more environments than it skips");
    }
    Ok(())
}

/// Builds what the jobs run.
pub(crate) fn build() -> Result<()> {
    cargo::build(&["-p", "portolan"])?;
    cargo::build_debug(&["-p", "gasnet-c-seq"])?;
    compile()
}

/// On shared memory and the model here; over verbs in a guest.
pub(crate) fn run(options: &Options) -> Result<()> {
    build()?;
    if let Some(pairs) = options.strangers {
        return strangers::run(pairs);
    }
    let mut rows = without_device(options.only.as_deref())?;
    let mut fabrics = vec!["shm", "seastar"];
    if options.verbs {
        over_verbs(options.only.as_deref(), &mut rows)?;
        fabrics.push("verbs");
    }
    if options.page {
        page::write(&fabrics, &rows)?;
    }
    judge(&rows)?;
    if options.only.is_none() {
        strangers::run(strangers::PAIRS)?;
    }
    Ok(())
}

/// For `cargo xtask test`; everything is built.
pub(crate) fn test() -> Result<()> {
    judge(&without_device(None)?)?;
    strangers::run(strangers::PAIRS)
}

fn without_device(only: Option<&str>) -> Result<Vec<Row>> {
    let fabric = |name| Fabric {
        name,
        words: vec!["--fabric", name],
    };
    table(&[fabric("shm"), fabric("seastar")], only)
}

/// Runs the table in a guest, and adds its cells to the rows.
fn over_verbs(only: Option<&str>, rows: &mut [Row]) -> Result<()> {
    let mut guest = cargo::guest(1200)?;
    guest.args(["hostile-in-guest", "--device", "rxe0"]);
    if let Some(word) = only {
        guest.args(["--only", word]);
    }
    let output = guest.stderr(Stdio::inherit()).output().context("a guest")?;
    let words = String::from_utf8_lossy(&output.stdout);
    print!("{words}");
    for row in rows {
        let begins = format!("| {} | ", row.name);
        let cell = words
            .lines()
            .find_map(|line| line.trim().strip_prefix(&begins));
        let cell = cell.and_then(|cell| cell.strip_suffix(" |"));
        let environment = ALL.iter().find(|e| e.name == row.name);
        let refused = environment.and_then(|e| e.refused.iter().find(|(f, _)| *f == "verbs"));
        row.cells.push(match (cell, refused) {
            (Some("same result"), None) => Cell::Same,
            (Some(said), Some((_, words))) if said.contains(words) => Cell::Refused {
                words,
                line: said.to_owned(),
            },
            (Some(said), _) if said.starts_with("skipped: ") => Cell::Skipped(said.to_owned()),
            (Some(said), _) => Cell::Wrong(said.to_owned()),
            (None, _) => Cell::Wrong("the guest has not said".to_owned()),
        });
    }
    Ok(())
}

pub(crate) fn in_guest(options: &InGuest) -> Result<()> {
    let device = options.device.as_str();
    let words = vec!["--fabric", "verbs", "--device", device];
    let verbs = Fabric {
        name: "verbs",
        words,
    };
    judge(&table(&[verbs], options.only.as_deref())?)
}
