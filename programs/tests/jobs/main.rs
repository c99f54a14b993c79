//! The programs as jobs on the SeaStar model and over shared memory, started as users start them: equal to their
//! serial runs under `portolan run` and under MPICH's launcher, and gone within seconds when a rank dies.
//!
//! `portolan` is taken from beside the programs: `cargo test --workspace` puts it there.

mod auto;
mod privileged;
mod said;

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempPath;

const HEAT3D: &str = env!("CARGO_BIN_EXE_heat3d");
const GUPS: &str = env!("CARGO_BIN_EXE_gups");
const LIFE: &str = env!("CARGO_BIN_EXE_life");

fn portolan() -> PathBuf {
    let path = Path::new(HEAT3D).with_file_name("portolan");
    assert!(
        path.exists(),
        "{} is not built: cargo build --workspace",
        path.display()
    );
    path
}

fn clean(mut command: Command) -> Command {
    for name in [
        "PORTOLAN_FABRIC",
        "PORTOLAN_DEVICE",
        "PORTOLAN_MACHINE",
        "PORTOLAN_EXE",
        "PORTOLAN_LOG",
    ] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn succeed(command: Command) -> String {
    let mut command = clean(command);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    let text = String::from_utf8_lossy(&stdout).into_owned();
    assert!(
        status.success(),
        "{command:?}: {status} {text} {}",
        String::from_utf8_lossy(&stderr)
    );
    text
}

fn program(name: &str, args: &[&str]) -> Command {
    let mut c = Command::new(name);
    c.args(args);
    c
}

fn job(ranks: u32, program: &str, args: &[&str]) -> Command {
    job_over("seastar", ranks, program, args)
}

fn job_over(fabric: &str, ranks: u32, program: &str, args: &[&str]) -> Command {
    let mut c = Command::new(portolan());
    c.args([
        "run",
        "-n",
        &ranks.to_string(),
        "--fabric",
        fabric,
        "--",
        program,
    ])
    .args(args);
    c
}

/// The word after `checksum`, which is printed once.
fn checksum(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let at: Vec<usize> = (0..words.len())
        .filter(|&i| words[i] == "checksum")
        .collect();
    assert_eq!(at.len(), 1, "{text}");
    words[at[0] + 1].to_owned()
}

/// An initial state in a file that is removed in the end.
struct Input(TempPath);

impl Input {
    fn new(name: &str) -> Self {
        Self::of(name, ["18", "14", "11"])
    }

    /// Of these sizes.
    fn of(name: &str, [x, y, z]: [&str; 3]) -> Self {
        let path = tempfile::NamedTempFile::with_prefix(name).unwrap();
        let path = path.into_temp_path();
        let p = path.to_str().unwrap();
        succeed(program(HEAT3D, &["--generate", x, y, z, "3", p]));
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

#[test]
fn heat3d_equals_its_serial_run_on_every_number_of_ranks() {
    let input = Input::new("heat3d-seastar");
    let serial = checksum(&succeed(program(HEAT3D, &["--serial", input.path()])));
    for ranks in [1, 2, 3, 4] {
        for exchange in ["am", "put"] {
            let text = succeed(job(ranks, HEAT3D, &[input.path(), "--exchange", exchange]));
            assert_eq!(checksum(&text), serial, "{ranks} ranks, {exchange}");
        }
    }
}

#[test]
fn life_equals_its_serial_run() {
    // Rows of 10,000 cells are long messages.
    for size in [["--rows", "24"], ["--columns", "10000"]] {
        let few = ["--generations", "6"];
        let mut serial = program(LIFE, &size);
        serial.args(few).arg("--serial");
        let expected = checksum(&succeed(serial));
        for (fabric, ranks) in [("seastar", 3), ("shm", 2), ("shm", 5)] {
            let mut run = job_over(fabric, ranks, LIFE, &size);
            run.args(few);
            assert_eq!(checksum(&succeed(run)), expected, "{fabric}, {ranks} ranks");
        }
    }
}

#[test]
fn gups_equals_its_serial_run() {
    let size = ["--log2-table", "10", "--updates", "2048"];
    let serial = checksum(&succeed(program(
        GUPS,
        &[&["--serial"][..], &size].concat(),
    )));
    for ranks in [2, 4] {
        assert_eq!(
            checksum(&succeed(job(ranks, GUPS, &size))),
            serial,
            "{ranks} ranks"
        );
    }
}

/// Tables and faces on the heap, pinned where they are used: with room for all, and for a little.
#[test]
fn memory_of_the_heap_gives_the_serial_results() {
    let input = Input::new("heat3d-heap");
    let heat = checksum(&succeed(program(HEAT3D, &["--serial", input.path()])));
    let size = ["--log2-table", "14", "--updates", "3000"];
    let serial = [&["--serial"][..], &size].concat();
    let gups = checksum(&succeed(program(GUPS, &serial)));
    let heap = ["--memory", "everything"];
    let small = [
        ("GASNET_FIREHOSE_M", "96K"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "64K"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "8K"),
    ];
    for (fabric, ranks) in [("seastar", 2), ("seastar", 4), ("shm", 3)] {
        for room in [&[][..], &small] {
            for exchange in ["am", "put"] {
                let args = [&[input.path(), "--exchange", exchange][..], &heap].concat();
                let mut job = job_over(fabric, ranks, HEAT3D, &args);
                job.envs(room.iter().copied());
                let found = checksum(&succeed(job));
                assert_eq!(found, heat, "{fabric}, {ranks} ranks, {exchange}, {room:?}");
            }
            let mut job = job_over(fabric, ranks, GUPS, &[&size[..], &heap].concat());
            job.envs(room.iter().copied());
            let found = checksum(&succeed(job));
            assert_eq!(found, gups, "{fabric}, {ranks} ranks, {room:?}");
        }
    }
}

/// Also with many more ranks than processors.
#[test]
fn shared_memory_gives_the_serial_results() {
    let input = Input::new("heat3d-shm");
    let size = ["--log2-table", "10", "--updates", "2048"];
    let serial = |input: &Input| checksum(&succeed(program(HEAT3D, &["--serial", input.path()])));
    let heat = serial(&input);
    // A block of at least 4 x 4 x 4 for each of 64 ranks.
    let cube = Input::of("heat3d-shm-64", ["16", "17", "18"]);
    let cube_heat = serial(&cube);
    let gups = checksum(&succeed(program(
        GUPS,
        &[&["--serial"][..], &size].concat(),
    )));
    for ranks in [1, 2, 8, 64] {
        let (input, heat) = if ranks <= 8 {
            (&input, &heat)
        } else {
            (&cube, &cube_heat)
        };
        for exchange in ["am", "put"] {
            let args = [input.path(), "--exchange", exchange];
            let text = succeed(job_over("shm", ranks, HEAT3D, &args));
            assert_eq!(checksum(&text), *heat, "{ranks} ranks, {exchange}");
        }
        let text = succeed(job_over("shm", ranks, GUPS, &size));
        assert_eq!(checksum(&text), gups, "{ranks} ranks");
    }
}

/// Size and place of `/dev/shm` do not matter: the memory has no name.
#[test]
fn shared_memory_needs_no_dev_shm() {
    let size = ["--log2-table", "10", "--updates", "2048"];
    let serial = checksum(&succeed(program(
        GUPS,
        &[&["--serial"][..], &size].concat(),
    )));
    for mount in [
        "mount -t tmpfs -o size=4k,ro none /dev/shm",
        "mount --bind /proc/self/fdinfo /dev/shm",
    ] {
        let private = |words: &str| program("unshare", &["-m", "sh", "-c", words]);
        if !private(mount).output().is_ok_and(|o| o.status.success()) {
            println!("skipped: no private mounts here (unshare -m)");
            return;
        }
        let run = portolan();
        let words = format!(
            "{mount} && exec {} run -n 4 --fabric shm -- {GUPS} {}",
            run.display(),
            size.join(" ")
        );
        assert_eq!(checksum(&succeed(private(&words))), serial, "{mount}");
    }
}

/// A wrapper that forbids the kernel's copies between processes, as a container does.
const NO_ATTACH: &str = r#"
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(int argc, char **argv) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {5, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
    return 99;
  execv(argv[1], argv + 1);
  return 98;
}
"#;

#[test]
fn where_the_kernel_may_not_copy_results_are_the_same_and_it_is_said_once() {
    let folder = tempfile::tempdir().unwrap();
    let (source, wrapper) = (folder.path().join("w.c"), folder.path().join("w"));
    fs::write(&source, NO_ATTACH).unwrap();
    let mut compiler = Command::new("cc");
    compiler.arg(&source).arg("-o").arg(&wrapper);
    if !compiler.output().is_ok_and(|o| o.status.success()) {
        println!("skipped: no C compiler, or no seccomp in its headers");
        return;
    }
    let input = Input::of("heat3d-no-attach", ["40", "40", "24"]);
    let serial = checksum(&succeed(program(HEAT3D, &["--serial", input.path()])));
    let mut job = clean(job_over(
        "shm",
        3,
        wrapper.to_str().unwrap(),
        &[HEAT3D, input.path()],
    ));
    let output = job.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert_eq!(checksum(&String::from_utf8_lossy(&output.stdout)), serial);
    let words = "the kernel does not copy between processes";
    assert_eq!(said.matches(words).count(), 1, "{said}");
    // It is a note, and no error: what is copied twice arrives.
    assert!(said.contains(&format!("portolan: {words}")), "{said}");
    let output = job.env("PORTOLAN_QUIET", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains(words), "{said}");
}

#[test]
fn ranks_of_different_users_are_refused_in_one_line() {
    let nobody = ["--reuid", "65534", "--clear-groups"];
    let mut may = Command::new("setpriv");
    may.args(nobody).args([GUPS, "--help"]);
    if !may.output().is_ok_and(|o| o.status.success()) {
        println!("skipped: this user cannot become another one (setpriv)");
        return;
    }
    let script = format!(
        "[ $PMI_RANK = 0 ] || exec setpriv {} {GUPS}; exec {GUPS}",
        nobody.join(" ")
    );
    let output = clean(job_over("shm", 2, "sh", &["-c", &script]))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let words = "the ranks must belong to one user";
    assert!(said.contains(words), "{said}");
}

/// Whenever a rank is killed, in start-up too, the job ends at once and leaves nothing.
#[test]
fn a_rank_killed_at_any_moment_ends_a_job_over_shared_memory() {
    let mut rng = fastrand::Rng::with_seed(23);
    let memory_files = || fs::read_dir("/dev/shm").map_or(0, Iterator::count);
    let before = memory_files();
    for round in 0..12 {
        let updates = format!("3{:07}{round:02}", std::process::id());
        let args = ["--log2-table", "14", "--updates", &updates];
        let child = clean(job_over("shm", rng.u32(2..=6), GUPS, &args))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let begun = Instant::now();
        let own = i32::try_from(child.id()).unwrap();
        let at = Duration::from_millis(rng.u64(0..150));
        let victim = loop {
            let ranks: Vec<i32> = processes(&updates)
                .into_iter()
                .filter(|p| *p != own)
                .collect();
            match rng.choice(&ranks) {
                Some(rank) if begun.elapsed() >= at => break *rank,
                _ => assert!(begun.elapsed() < Duration::from_secs(60), "no rank starts"),
            }
            std::thread::yield_now();
        };
        succeed(program("kill", &["-KILL", &victim.to_string()]));
        let killed = Instant::now();
        let output = child.wait_with_output().unwrap();
        let took = killed.elapsed();
        assert!(took < Duration::from_secs(10), "round {round}: {took:?}");
        assert!(!output.status.success(), "round {round}");
        while !processes(&updates).is_empty() {
            assert!(
                killed.elapsed() < Duration::from_secs(10),
                "processes are left"
            );
            std::thread::yield_now();
        }
    }
    assert_eq!(memory_files(), before, "something is left in /dev/shm");
}

/// The trace and statistics of a program, added up: calls by the lines of its source, counters of all ranks.
#[test]
fn trace_and_statistics_of_heat3d_are_summarised() {
    let input = Input::new("heat3d-trace");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).display().to_string();
    for fabric in ["shm", "seastar"] {
        let (trace, stats) = (
            file(&format!("{fabric}.%")),
            file(&format!("{fabric}-stats.%")),
        );
        let mut run = job_over(fabric, 4, HEAT3D, &[input.path(), "--exchange", "put"]);
        run.env("GASNET_TRACEFILE", &trace)
            .env("GASNET_STATSFILE", &stats);
        succeed(run);
        let summary = |files: &[&str], options: &[&str]| {
            let mut c = Command::new(portolan());
            c.arg("summary").args(options).args(files);
            succeed(c)
        };
        let both = summary(&[&trace, &stats], &["--sort", "calls"]);
        assert!(both.starts_with("4 of 4 ranks"), "{both}");
        let row = |text: &str, kind: &str| -> u64 {
            let rows = text.lines().filter(|l| {
                let mut words = l.split_whitespace();
                words.next().is_some_and(|w| w.contains(".rs:")) && words.next() == Some(kind)
            });
            rows.map(|l| l.split_whitespace().nth(2).unwrap().parse::<u64>().unwrap())
                .sum()
        };
        let counter = |text: &str, kind: &str| -> u64 {
            let mut lines = text
                .lines()
                .filter(|l| l.split_whitespace().next() == Some(kind));
            lines
                .next_back()
                .unwrap()
                .split_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap()
        };
        // Four ranks that meet in every one of ten steps, each in a barrier of the program's source.
        assert!(row(&both, "BARRIER_WAIT") >= 40, "{both}");
        let kinds = [
            "PUT",
            "PUT_NB",
            "PUT_NBI",
            "PUT_BULK",
            "PUT_NB_BULK",
            "PUT_NBI_BULK",
        ];
        let put = kinds.iter().find(|k| row(&both, k) > 0).unwrap();
        assert_eq!(row(&both, put), counter(&both, put), "{both}");
        assert_eq!(
            row(&both, "BARRIER_WAIT"),
            counter(&both, "BARRIER_WAIT"),
            "{both}"
        );
        // Statistics alone have the counters and no lines; ranks can be told apart; a rank may be missing.
        let alone = summary(&[&stats], &[]);
        assert_eq!(counter(&alone, put), counter(&both, put));
        assert!(!alone.contains(".rs:"), "{alone}");
        assert!(summary(&[&trace], &["--per-rank"]).contains("rank"));
        let one = summary(&[&trace.replace('%', "2")], &[]);
        assert!(
            one.starts_with("1 of 4 ranks") && one.contains("files of 3 ranks are missing"),
            "{one}"
        );
    }
}

#[test]
fn the_same_job_prints_the_same_twice() {
    let size = ["--log2-table", "10", "--updates", "1024"];
    assert_eq!(succeed(job(3, GUPS, &size)), succeed(job(3, GUPS, &size)));
}

#[test]
fn mpichs_launcher_starts_the_same_program() {
    let found = Command::new("mpiexec.hydra").arg("--version").output();
    if !found.is_ok_and(|o| o.status.success()) {
        println!("skipped: no mpiexec.hydra (Debian package mpich)");
        return;
    }
    let input = Input::new("heat3d-hydra");
    let serial = checksum(&succeed(program(HEAT3D, &["--serial", input.path()])));
    let mut mpiexec = Command::new("mpiexec.hydra");
    mpiexec.args(["-n", "4", "-env", "PORTOLAN_FABRIC", "seastar"]);
    mpiexec.args([HEAT3D, input.path()]);
    assert_eq!(checksum(&succeed(mpiexec)), serial);
}

/// Processes whose command line contains `word`.
fn processes(word: &str) -> Vec<i32> {
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|e| e.file_name().to_str()?.parse().ok())
        .filter(|pid: &i32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(word)
        })
        .collect()
}

/// Starts gups on 4 ranks for longer than any test waits; gives the launcher, and rank 2 once it has
/// joined the simulation, as the others have. `updates` is a number that nobody else uses: it marks the processes.
fn endless_gups(updates: &str) -> (Child, i32) {
    let mut command = clean(job(4, GUPS, &["--log2-table", "16", "--updates", updates]));
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    let rank = |pid: &i32| {
        let env = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let mut words = env.split(|b| *b == 0);
        let rank = words.find_map(|v| v.strip_prefix(b"PMI_RANK="))?;
        String::from_utf8_lossy(rank).parse::<usize>().ok()
    };
    // A rank that holds a socket besides that of the launcher, and its duplicate of that, has joined the simulation.
    let has_joined = |pid: &i32| {
        let fds = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        let is_socket = |l: PathBuf| l.to_string_lossy().starts_with("socket:");
        fds.filter(|f| fs::read_link(f.path()).is_ok_and(is_socket))
            .count()
            >= 3
    };
    let rank_2 = loop {
        let joined: BTreeMap<usize, i32> = processes(updates)
            .into_iter()
            .filter(has_joined)
            .filter_map(|pid| Some((rank(&pid)?, pid)))
            .collect();
        if joined.len() == 4 {
            break joined[&2];
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "only {joined:?} have joined"
        );
        std::thread::yield_now();
    };
    // The simulation lets ranks in one after the other, which takes it no time to speak of; it runs once it has used some.
    let simulates = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let times = after.split(' ').skip(11).take(2);
        times.filter_map(|t| t.parse::<u64>().ok()).sum::<u64>() >= 20
    };
    while !simulations_of(rank_2).iter().any(simulates) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the simulation does not run"
        );
        std::thread::yield_now();
    }
    (child, rank_2)
}

#[test]
fn a_simulation_that_ends_is_named_by_the_ranks() {
    let (child, rank_2) = endless_gups(&format!("2{:09}", std::process::id()));
    let simulation = simulations_of(rank_2);
    assert_eq!(simulation.len(), 1, "one process holds the simulation");
    succeed(program("kill", &["-KILL", &simulation[0].to_string()]));
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let event = "error: the SeaStar simulation of this job has ended; every further call fails";
    assert!(
        (0..4).any(|r| said.contains(&format!("gups: rank {r}: {event}\n"))),
        "{said}"
    );
}

#[test]
fn a_log_level_that_is_none_is_bad_usage() {
    let mut command = clean(program(GUPS, &[]));
    let output = command.env("PORTOLAN_LOG", "a=b=c").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("gups: PORTOLAN_LOG is \"a=b=c\""),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn a_killed_rank_ends_the_job_and_leaves_nothing() {
    let updates = format!("1{:09}", std::process::id());
    let (child, rank_2) = endless_gups(&updates);
    let names = || fs::read_to_string("/proc/net/unix").unwrap_or_default();
    assert!(
        names().contains("@portolan-"),
        "the simulation has a socket"
    );
    let simulation = simulations_of(rank_2);
    assert_eq!(simulation.len(), 1, "one process holds the simulation");
    succeed(program("kill", &["-KILL", &rank_2.to_string()]));
    let killed = Instant::now();
    let output = child.wait_with_output().unwrap();
    assert!(
        killed.elapsed() < Duration::from_secs(10),
        "{:?}",
        killed.elapsed()
    );
    assert_eq!(output.status.code(), Some(137));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("rank 2 was killed by signal 9"), "{said}");
    while !processes(&updates).is_empty() || alive(simulation[0]) {
        assert!(
            killed.elapsed() < Duration::from_secs(10),
            "processes are left"
        );
        std::thread::yield_now();
    }
}

fn alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, s)| !s.starts_with('Z'))
}

/// The simulation process among the relatives of a rank: a child of its parent, which adopts what rank 0 has started detached. Rank 2
/// may be seen before rank 0 has started it.
fn simulations_of(rank: i32) -> Vec<i32> {
    let begun = Instant::now();
    loop {
        let found = relatives_that_simulate(rank);
        if !found.is_empty() || begun.elapsed() > Duration::from_secs(60) {
            return found;
        }
        std::thread::yield_now();
    }
}

fn relatives_that_simulate(rank: i32) -> Vec<i32> {
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(") ")?
            .1
            .split_whitespace()
            .nth(1)?
            .parse::<i32>()
            .ok()
    };
    let launcher = parent(rank);
    processes("seastar-sim")
        .into_iter()
        .filter(|p| parent(*p) == launcher)
        .collect()
}

#[test]
fn credit_statistics_replace_a_link_and_leave_its_target() {
    let own = tempfile::tempdir().unwrap();
    let folder = own.path();
    let precious = folder.join("precious");
    fs::write(&precious, "as it was").unwrap();
    std::os::unix::fs::symlink(&precious, folder.join("portals-credits.0")).unwrap();
    let mut counted = job_over("shm", 1, GUPS, &["--log2-table", "8", "--updates", "64"]);
    counted.env("GASNET_PORTAL_CREDIT_STATS", "1");
    counted.env("GASNET_TMPDIR", folder);
    succeed(counted);
    let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(text("precious"), "as it was");
    assert!(
        text("portals-credits.0").contains("credits"),
        "{}",
        text("portals-credits.0")
    );
}
