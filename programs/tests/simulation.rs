//! The process that holds the simulated machine of a job, as users meet it: it ends with its job, whatever ends that, and
//! reaches ranks that are shut in; where it cannot it says why.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const GUPS: &str = env!("CARGO_BIN_EXE_gups");
/// Marks the processes of a job in their environments.
const MARK: &str = "PORTOLAN_TEST_MARK";
/// Less than ranks have to join (30 s), and more than any of this takes on a machine that is busy.
const SOON: Duration = Duration::from_secs(20);

fn portolan() -> PathBuf {
    let path = Path::new(GUPS).with_file_name("portolan");
    assert!(
        path.exists(),
        "{} is not built: cargo build --workspace",
        path.display()
    );
    path
}

/// A job of two ranks on the model, each the program of `words`.
fn job(words: &[&str]) -> Command {
    let mut command = Command::new(portolan());
    command.args(["run", "-n", "2", "--fabric", "seastar", "--"]);
    command.args(words).stdin(Stdio::null());
    for name in ["PORTOLAN_DEVICE", "PORTOLAN_MACHINE", "PORTOLAN_LOG"] {
        command.env_remove(name);
    }
    command.env("PORTOLAN_EXE", portolan());
    command
}

/// The processes that have this word in their command line, and these variables in their environment.
fn processes(word: &str, variables: &[&str]) -> Vec<i32> {
    let of = |pid: &i32| {
        let file = |name| fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let has = |text: &[u8], word: &str| text.split(|b| *b == 0).any(|w| w == word.as_bytes());
        let environment = file("environ");
        has(&file("cmdline"), word) && variables.iter().all(|v| has(&environment, v))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|e| e.file_name().to_str()?.parse().ok());
    numbers.filter(of).collect()
}

/// The simulations of the job that is marked so.
fn simulations(mark: &str) -> Vec<i32> {
    processes("seastar-sim", &[&format!("{MARK}={mark}")])
}

/// Rank 0 of the job that is marked so. The process that it starts the simulation by looks like it for a moment, and the simulation
/// is the child of neither.
fn rank_0(mark: &str) -> i32 {
    let marked = format!("{MARK}={mark}");
    let ranks = || processes("--updates", &[&marked, "PMI_RANK=0"]);
    assert!(soon(|| ranks().len() == 1), "{:?}", ranks());
    ranks()[0]
}

/// Looks again and again until it is so; whether it was, in time.
fn soon(so: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        if so() {
            return true;
        }
        std::thread::yield_now();
    }
    false
}

/// Rank 1 of a job in the test of this name: it meets the others by the launcher, as a rank does to learn where the simulation
/// is, and comes no further.
const OUTSIDE: &str = "rank_that_meets_and_does_not_join";

#[test]
fn rank_that_meets_and_does_not_join() {
    if std::env::var_os(OUTSIDE).is_none() {
        return;
    }
    let job = launch::Job::from_env().unwrap();
    job.fence().unwrap();
    loop {
        std::thread::park();
    }
}

/// A job whose rank 1 does this and never comes to the fabric, and whose simulation has been started.
fn job_with_rank_1(rank_1: &str, mark: &str) -> Child {
    let late = format!("[ \"$PMI_RANK\" = 1 ] && exec {rank_1}; exec \"$@\"");
    let job = job(&["sh", "-c", &late, "sh", GUPS, "--updates", "64"])
        .env(MARK, mark)
        .env(OUTSIDE, "")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert!(soon(|| simulations(mark).len() == 1), "no simulation");
    job
}

/// A job whose rank 1 never comes, not even to the launcher.
fn job_that_waits(mark: &str) -> Child {
    job_with_rank_1("sleep 1000", mark)
}

#[test]
fn the_simulation_ends_with_its_launcher_before_all_ranks_are_there() {
    let mark = format!("launcher-{}", std::process::id());
    let mut job = job_that_waits(&mark);
    job.kill().unwrap();
    job.wait().unwrap();
    assert!(soon(|| simulations(&mark).is_empty()), "it goes on");
}

/// Sends a signal to these processes.
fn signal(name: &str, pids: &[i32]) {
    let pids = pids.iter().map(i32::to_string);
    let sent = Command::new("kill").arg(name).args(pids).status();
    assert!(sent.unwrap().success(), "{name}");
}

/// Whether the simulation has let this rank in: it holds the rank's memory, and waits for others.
fn has_joined(mark: &str, rank: i32) -> bool {
    let held = |simulation: &i32| {
        let memory = PathBuf::from(format!("/proc/{rank}/mem"));
        let descriptors = fs::read_dir(format!("/proc/{simulation}/fd"));
        let mut files = descriptors.into_iter().flatten().flatten();
        files.any(|fd| fs::read_link(fd.path()).is_ok_and(|file| file == memory))
    };
    let waits = |simulation: &i32| {
        let stat = fs::read_to_string(format!("/proc/{simulation}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|s| s.starts_with(" S"))
    };
    simulations(mark).iter().any(|s| held(s) && waits(s))
}

#[test]
fn the_simulation_ends_with_rank_0_before_all_ranks_are_there() {
    ends_with_rank_0("early", "sleep 1000", |_, _| true);
}

/// The first of the ranks that have joined is held as the others are.
#[test]
fn the_simulation_ends_with_a_rank_0_that_has_joined() {
    let tests = std::env::current_exe().unwrap();
    let rank_1 = format!("{} --exact {OUTSIDE}", tests.display());
    ends_with_rank_0("joined", &rank_1, has_joined);
}

/// Kills rank 0 of a job with this rank 1 once `ready` says so of the job's mark and of rank 0. Whoever has started a rank need not notice its end: here a
/// launcher that stands still.
fn ends_with_rank_0(name: &str, rank_1: &str, ready: impl Fn(&str, i32) -> bool) {
    let mark = format!("{name}-{}", std::process::id());
    let mut job = job_with_rank_1(rank_1, &mark);
    let rank_0 = rank_0(&mark);
    assert!(soon(|| ready(&mark, rank_0)), "rank 0 does not join");
    let launcher = processes("run", &[&format!("{MARK}={mark}")]);
    assert!(!launcher.is_empty());
    signal("-STOP", &launcher);
    signal("-KILL", &[rank_0]);
    let ended = soon(|| simulations(&mark).is_empty());
    signal("-CONT", &launcher);
    assert!(ended, "it goes on");
    // Rank 0 and not the launcher is what was killed.
    assert_eq!(job.wait().unwrap().code(), Some(128 + 9));
}

fn checksum(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    let mut words = text.split_whitespace();
    assert!(words.any(|w| w == "checksum"), "{text}");
    words.next().unwrap().to_owned()
}

/// A process in namespaces as rootless containers have them.
#[test]
fn ranks_in_namespaces_of_their_own_are_reached() {
    let gups = [GUPS, "--log2-table", "8", "--updates", "64"];
    let right = checksum(&job(&gups).output().unwrap());
    for flags in [
        &["--user", "--map-root-user"][..],
        &["--user", "--map-root-user", "--pid", "--fork"],
        &[
            "--user",
            "--map-root-user",
            "--pid",
            "--fork",
            "--mount-proc",
        ],
    ] {
        let works = Command::new("unshare").args(flags).arg("true").output();
        if !works.is_ok_and(|tried| tried.status.success()) {
            eprintln!("skipped: unshare {flags:?} is not permitted here");
            continue;
        }
        let words = [&["unshare"], flags, &gups].concat();
        let output = job(&words).output().unwrap();
        assert_eq!(checksum(&output), right, "{flags:?}");
    }
}

/// The kernel closes a process's memory to everybody, itself included, where its user may not read its program.
#[test]
fn a_program_that_may_not_be_read_is_told_so_at_the_start() {
    let own = tempfile::tempdir().unwrap();
    let folder = own.path();
    let copy = folder.join("gups");
    fs::copy(GUPS, &copy).unwrap();
    fs::copy(portolan(), folder.join("portolan")).unwrap();
    for (file, mode) in [(folder, 0o755), (&copy, 0o711)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode)).unwrap();
    }
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    let runs = |command: &mut Command| command.output().is_ok_and(|o| o.status.success());
    let mut tried = Command::new("setpriv");
    tried.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    if !root || !runs(tried.arg(&copy).arg("--version")) {
        eprintln!("skipped: another user's programs are tried as root, with setpriv");
        return;
    }
    command.arg(folder.join("portolan"));
    command.args(["run", "-n", "2", "--fabric", "seastar", "--"]);
    command.arg(&copy).args(["--updates", "64"]);
    let output = command
        .env("PORTOLAN_EXE", folder.join("portolan"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(errors.contains("may run, but not read"), "{errors}");
}
