//! Jobs under `portolan run` and under MPICH's launcher: exit statuses, messages, and that nothing is left.
//!
//! Every process of a job holds the job's standard output, so reading it to its end returns only when
//! none is left.

mod others;

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

/// The bound for "within seconds": SIGTERM's grace time is 2 s.
const SOON: Duration = Duration::from_secs(8);

fn command(line: &str) -> Command {
    // Whoever runs the tests in the background may ignore signals, and a launcher keeps that.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM", PORTOLAN]);
    command.args(line.split(' ')).stdin(Stdio::null());
    for name in [
        "PORTOLAN_FABRIC",
        "PORTOLAN_DEVICE",
        "PORTOLAN_MACHINE",
        "PORTOLAN_LOG",
        "GASNET_SUPERNODE_MAXSIZE",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(line: &str) -> Output {
    command(line).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a probe with a fault and checks status and the launcher's line.
fn fault(faults: &str, status: i32, words: &str) {
    let start = Instant::now();
    let output = run(&format!("run -n 4 -- portolan probe {faults}"));
    let lines = stderr(&output);
    assert_eq!(output.status.code(), Some(status), "{faults}: {lines}");
    let said: Vec<&str> = lines
        .lines()
        .filter(|l| l.starts_with("portolan run:"))
        .collect();
    assert_eq!(said, [format!("portolan run: {words}")], "{faults}");
    assert!(
        start.elapsed() < SOON,
        "{faults} took {:?}",
        start.elapsed()
    );
}

/// A job whose ranks hang after they have exchanged values, and the processes it consists of.
struct Hanging {
    launcher: Child,
    output: BufReader<std::process::ChildStdout>,
    /// (rank, process, its descriptor) in the order of appearance.
    processes: Vec<(u32, Pid, OwnedFd)>,
}

impl Hanging {
    fn start(more: &str, lines: usize) -> Self {
        let command = command(&format!(
            "run -n 4 -- portolan probe --pids --fault hang@0{more}"
        ));
        Self::from_command(command, lines)
    }

    /// Starts `command` and reads `lines` lines that name processes.
    fn from_command(mut command: Command, lines: usize) -> Self {
        let mut launcher = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap());
        let mut processes = Vec::new();
        while processes.len() < lines {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0, "{processes:?}");
            let words: Vec<&str> = line.split_whitespace().collect();
            let ["rank", rank, "process", pid] = words[..] else {
                panic!("{line}")
            };
            let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
            let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
            processes.push((rank.parse().unwrap(), pid, pidfd));
        }
        Self {
            launcher,
            output,
            processes,
        }
    }

    fn rank(&self, rank: u32) -> Pid {
        self.processes.iter().find(|(r, ..)| *r == rank).unwrap().1
    }

    fn launcher(&self) -> Pid {
        Pid::from_child(&self.launcher)
    }

    /// Reads what is left of the output, which is nothing, until no process holds it any more.
    fn read_to_end(&mut self, deadline: Instant) {
        let limit = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(limit).unwrap();
        let ready = poll(
            &mut [PollFd::new(self.output.get_ref(), PollFlags::IN)],
            Some(&limit),
        );
        if ready != Ok(1) {
            for (_, _, pidfd) in &self.processes {
                let _ = pidfd_send_signal(pidfd, Signal::KILL);
            }
            panic!("a process still holds the output");
        }
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
    }

    /// Waits for the end; returns the launcher's status as a shell counts and its stderr.
    fn end(mut self, since: Instant) -> (i32, String) {
        self.read_to_end(since + SOON);
        let output = self.launcher.wait_with_output().unwrap();
        assert!(since.elapsed() < SOON, "took {:?}", since.elapsed());
        let status = output.status;
        // A launcher that was killed cannot wait for its ranks.
        let limit = if status.signal().is_some() {
            SOON
        } else {
            Duration::ZERO
        };
        for (rank, pid, pidfd) in &self.processes {
            assert!(ends(pidfd, limit), "process {pid:?} of rank {rank} is left");
        }
        let code = status
            .code()
            .unwrap_or_else(|| 128 + status.signal().unwrap());
        (code, String::from_utf8(output.stderr).unwrap())
    }
}

/// Whether the process of `pidfd` ends within `limit`. It may remain as a zombie: without a launcher its
/// collection is up to the system.
fn ends(pidfd: &OwnedFd, limit: Duration) -> bool {
    let limit = Timespec::try_from(limit).unwrap();
    poll(&mut [PollFd::new(pidfd, PollFlags::IN)], Some(&limit)).unwrap() == 1
}

#[test]
fn four_ranks_exchange_values() {
    let output = run("run -n 4 -- portolan probe");
    assert!(output.status.success(), "{}", stderr(&output));
    let mut lines: Vec<_> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(String::from)
        .collect();
    lines.sort();
    let jobs: Vec<_> = lines
        .iter()
        .map(|l| l.split_once("job ").unwrap().1)
        .collect();
    assert!(jobs.iter().all(|job| *job == jobs[0]), "{jobs:?}");
    assert_eq!(lines.len(), 4);
    assert!(lines[3].starts_with("rank 3 of 4: ok, 4 here"), "{lines:?}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn ranks_that_fail_end_the_job_with_their_status() {
    fault(
        "--fault kill@2",
        137,
        "rank 2 was killed by signal 9 (SIGKILL); ending the job",
    );
    fault(
        "--fault exit3@1",
        3,
        "rank 1 exited with status 3; ending the job",
    );
    fault(
        "--fault exit0@1",
        1,
        "rank 1 exited with status 0 without finalizing; ending the job",
    );
    fault(
        "--fault abort7@3",
        7,
        "rank 3 aborted the job with status 7: asked to by --fault",
    );
    fault("--fault late5@3", 5, "rank 3 exited with status 5");
    fault(
        "--fault outside@3 --fault hang@0",
        1,
        "rank 3 exited with status 0 and never joined the job that rank 0 joined; ending the job",
    );
}

/// What several processes say to one standard error must not mix: a datagram socket keeps each write apart.
#[test]
fn a_line_for_people_is_one_write() {
    for (line, ours) in [
        (
            "run -n 2 -- portolan probe --fault exit3@1",
            "rank 1 exited with status 3",
        ),
        (
            "run -n 2 -- portolan probe --fault abort7@1",
            "rank 1 aborted the job",
        ),
    ] {
        let (mut read, write) = UnixDatagram::pair().unwrap();
        let mut job = command(line).stderr(OwnedFd::from(write)).spawn().unwrap();
        job.wait().unwrap();
        read.set_nonblocking(true).unwrap();
        let said = pieces(&mut read);
        assert!(said.iter().any(|piece| piece.contains(ours)), "{said:?}");
        for piece in &said {
            assert!(piece.ends_with('\n'), "{piece:?} of {said:?}");
        }
    }
}

/// What each write to the other end was.
fn pieces(socket: &mut UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 4096];
    std::iter::from_fn(|| {
        socket
            .recv(&mut buffer)
            .ok()
            .map(|len| String::from_utf8_lossy(&buffer[..len]).into_owned())
    })
    .collect()
}

#[test]
fn programs_that_never_join_are_pointed_out() {
    let output = run("run -n 3 -- true");
    assert!(output.status.success());
    let line = stderr(&output);
    assert!(
        line.starts_with("portolan run: no rank called init: "),
        "{line}"
    );
    assert!(
        line.ends_with("/true ran as 3 separate processes\n"),
        "{line}"
    );
    assert_eq!(stderr(&run("run -n 1 -- true")), "");
    fault_of_stranger("run -n 1 -- false", 1);
    fault_of_stranger("run -n 3 -- sh -c exit\t4", 4);
}

fn fault_of_stranger(line: &str, status: i32) {
    let mut command = Command::new(PORTOLAN);
    let output = command
        .args(line.split(' ').map(|w| w.replace('\t', " ")))
        .output()
        .unwrap();
    assert_eq!(
        output.status.code(),
        Some(status),
        "{line}: {}",
        stderr(&output)
    );
}

#[test]
fn a_rank_killed_from_outside_ends_the_job_and_nothing_is_left() {
    let job = Hanging::start("", 4);
    let since = Instant::now();
    kill_process(job.rank(2), Signal::KILL).unwrap();
    let (status, line) = job.end(since);
    assert_eq!(status, 137);
    let words = "portolan run: rank 2 was killed by signal 9 (SIGKILL); ending the job\n";
    assert_eq!(line, words);
}

/// Rank 1 closes its line and takes a while to be killed; rank 0 notices, and fails before.
#[test]
fn a_killed_rank_is_the_cause_though_one_that_notices_ends_first() {
    const PROGRAM: &str = r#"
        echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD
        read -r answer <&$PMI_FD
        [ $PMI_RANK = 0 ] && { read -r noticed < "$FIFO"; exit 1; }
        eval "exec $PMI_FD>&-"
        echo noticed > "$FIFO"
        sleep 0.5
        kill -KILL $$"#;
    let fifo = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("notices.fifo");
    let _ = fs::remove_file(&fifo);
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let output = command("run -n 2 -- bash -c")
        .arg(PROGRAM)
        .env("FIFO", &fifo)
        .output()
        .unwrap();
    let line = stderr(&output);
    assert_eq!(output.status.code(), Some(137), "{line}");
    assert!(line.contains("rank 1 was killed by signal 9"), "{line}");
}

/// Rank 1 ends, rank 0 notices and asks for the end of the job, and the launcher sees all of it in one look.
#[test]
fn of_news_that_come_in_one_look_the_first_is_the_cause() {
    const PROGRAM: &str = r#"
        echo cmd=init pmi_version=1 pmi_subversion=1 >&$PMI_FD
        read -r answer <&$PMI_FD
        if [ $PMI_RANK = 1 ]; then
            echo $$ > "$FIFO.1"
            read -r go < "$FIFO.2"
            eval "$END"
        fi
        read -r peer < "$FIFO.1"
        kill -STOP $PPID
        echo go > "$FIFO.2"
        until [ "$state" = Z ]; do read -r pid name state rest < /proc/$peer/stat; done
        echo cmd=abort exitcode=1 message=node_1_cannot_be_reached >&$PMI_FD
        kill -CONT $PPID
        exec sleep 1000"#;
    let fifo = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("look.fifo");
    for way in [1, 2] {
        let fifo = fifo.with_extension(format!("fifo.{way}"));
        let _ = fs::remove_file(&fifo);
        let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
    }
    for (end, status) in [("kill -KILL $$", 137), ("exit 3", 3), ("exit 0", 1)] {
        let output = command("run -n 2 -- bash -c")
            .arg(PROGRAM)
            .env("FIFO", &fifo)
            .env("END", end)
            .output()
            .unwrap();
        let line = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{end}: {line}");
        assert!(line.starts_with("portolan run: rank 1 "), "{end}: {line}");
    }
}

#[test]
fn a_stopped_rank_is_ended_too() {
    let job = Hanging::start("", 4);
    let since = Instant::now();
    kill_process(job.rank(1), Signal::STOP).unwrap();
    kill_process(job.rank(2), Signal::KILL).unwrap();
    assert_eq!(job.end(since).0, 137);
}

#[test]
fn processes_that_left_their_ranks_group_are_ended() {
    let job = Hanging::start(" --stray", 8);
    let since = Instant::now();
    kill_process(job.launcher(), Signal::TERM).unwrap();
    let (status, line) = job.end(since);
    assert_eq!(status, 143);
    assert_eq!(
        line,
        "portolan run: stopped by signal 15 (SIGTERM); ending the job\n"
    );
}

#[test]
fn an_interrupt_ends_the_job() {
    let job = Hanging::start("", 4);
    let since = Instant::now();
    kill_process(job.launcher(), Signal::INT).unwrap();
    let (status, line) = job.end(since);
    assert_eq!(status, 130);
    assert_eq!(
        line,
        "portolan run: stopped by signal 2 (SIGINT); ending the job\n"
    );
}

#[test]
fn ranks_die_with_a_killed_launcher() {
    let script = "echo rank $PMI_RANK process $$; exec sleep 3600";
    let mut strangers = command("run -n 4 -- sh -c");
    strangers.arg(script);
    for job in [Hanging::start("", 4), Hanging::from_command(strangers, 4)] {
        let since = Instant::now();
        kill_process(job.launcher(), Signal::KILL).unwrap();
        assert_eq!(job.end(since).0, 137);
    }
}

/// A daemon's children inherit that the signal is ignored.
#[test]
fn a_job_runs_where_the_end_of_children_is_ignored() {
    let ignoring = |program: &[&str]| {
        let output = Command::new("env")
            .args(["--ignore-signal=CHLD", PORTOLAN, "run", "-n", "2", "--"])
            .args(program)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        (output.status.code(), output)
    };
    let (status, output) = ignoring(&["grep", "SigIgn", "/proc/self/status"]);
    assert_eq!(status, Some(0), "{}", stderr(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    for line in said.lines() {
        let set = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_ne!(set & 1 << 16, 0, "the ranks do not inherit it: {line}");
    }
    assert_eq!(said.lines().count(), 2);
    let (status, output) = ignoring(&["sh", "-c", "[ $PMI_RANK = 0 ] || exit 4; exec sleep 3600"]);
    assert_eq!(status, Some(4));
    assert_eq!(
        stderr(&output),
        "portolan run: rank 1 exited with status 4; ending the job\n"
    );
}

/// What a script has started before it became the launcher, and what that starts, is not the job's to end.
#[test]
fn processes_of_the_shell_that_became_the_launcher_live_on() {
    // The last is started while the job runs, and left to the launcher by its parent.
    const SCRIPT: &str = r#"
        exec 3>&1 >/dev/null
        sleep 3600 & echo $! >&3
        setsid sleep 3600 & echo $! >&3
        (read -r go < "$FIFO.1"; sleep 3600 & echo $! >&3; echo $! > "$FIFO.2") &
        exec "$0" run -n 1 -- bash -c "$1" 3>&-"#;
    const RANK: &str = r#"
        echo go > "$FIFO.1"
        read -r left < "$FIFO.2"
        front=$(ps -o ppid= $PPID)
        until [ $(ps -o ppid= $left) = $front ]; do :; done"#;
    let fifo = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("others.fifo");
    for way in [1, 2] {
        let fifo = fifo.with_extension(format!("fifo.{way}"));
        let _ = fs::remove_file(&fifo);
        assert!(
            Command::new("mkfifo")
                .arg(&fifo)
                .status()
                .unwrap()
                .success()
        );
    }
    let mut launcher = Command::new("bash")
        .args(["-c", SCRIPT, PORTOLAN, RANK])
        .env("FIFO", &fifo)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let others: Vec<OwnedFd> = (0..3)
        .map(|_| {
            let pid = said.next().unwrap().unwrap().parse().unwrap();
            pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap()
        })
        .collect();
    let status = launcher.wait().unwrap();
    let ended: Vec<bool> = others.iter().map(|o| ends(o, Duration::ZERO)).collect();
    for other in &others {
        let _ = pidfd_send_signal(other, Signal::KILL);
    }
    assert_eq!((status.code(), ended), (Some(0), vec![false; 3]));
}

/// A rank, a process in its group, one that has left it and its session, and one that takes no signal but SIGKILL.
const FAMILY: &str = r#"
    say='echo rank $PMI_RANK process $$; exec sleep 3600'
    sh -c "$say" &
    setsid sh -c "$say" &
    (trap '' HUP INT TERM; exec setsid sh -c "$say") &
    eval "$say""#;

fn child_of(pid: Pid) -> Pid {
    let pid = pid.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let first = children.split_whitespace().next().unwrap();
    Pid::from_raw(first.parse().unwrap()).unwrap()
}

#[test]
fn nothing_outlives_a_launcher_that_was_killed() {
    let start = || {
        let mut family = command("run -n 3 -- sh -c");
        family.arg(FAMILY);
        Hanging::from_command(family, 12)
    };
    let job = start();
    let since = Instant::now();
    kill_process(job.launcher(), Signal::KILL).unwrap();
    assert_eq!(job.end(since), (137, String::new()));

    // The process below it, which has the ranks.
    let job = start();
    let since = Instant::now();
    kill_process(child_of(job.launcher()), Signal::KILL).unwrap();
    let words = "portolan run: the supervisor of the job was killed by signal 9 (SIGKILL)\n";
    assert_eq!(job.end(since), (137, words.to_owned()));
}

#[test]
fn more_ranks_than_the_soft_limit_of_descriptors_allows_are_started() {
    let limited =
        "ulimit -Sn 40; exec \"$0\" run -n 40 -- sh -c 'echo limit $(ulimit -Sn) of $(ulimit -Hn)'";
    let output = Command::new("sh")
        .args(["-c", limited, PORTOLAN])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(said.lines().count(), 40);
    for line in said.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[1], words[3], "{line}");
        assert_ne!(
            words[1], "40",
            "the hard limit is no higher than the soft one"
        );
    }
}

/// A first thread whose stack may not grow leaves the work to another one; the job has its front and its supervisor all the same.
#[test]
fn a_small_stack_changes_nothing() {
    let limited = |line: &str| {
        let script = format!("ulimit -s 64; echo $$; exec \"$0\" {line}");
        let output = Command::new("sh")
            .args(["-c", &script, PORTOLAN])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), said, stderr(&output))
    };
    let (status, said, error) = limited("run -n 2 -- portolan probe");
    assert_eq!(status, Some(0), "{error}");
    assert_eq!(said.matches(" of 2: ok, 2 here").count(), 2, "{said}");
    // The parent of the rank's parent is what the shell has started.
    let (status, said, error) =
        limited("run -n 1 -- sh -c 'cut -d\" \" -f4 /proc/$PPID/stat; exit 7'");
    assert_eq!(status, Some(7), "{error}");
    let numbers: Vec<&str> = said.lines().collect();
    assert!(numbers.len() == 2 && numbers[0] == numbers[1], "{said}");
    let (status, _, error) = limited("run --nonsense");
    assert_eq!(status, Some(2), "{error}");
}

/// In some containers the system knows no descriptors of processes, or refuses them.
#[test]
fn a_launcher_does_without_descriptors_of_processes() {
    if Command::new("strace").arg("-V").output().is_err() {
        println!("skipped: there is no strace, which has the system refuse calls");
        return;
    }
    for error in ["ENOSYS", "EPERM"] {
        for (script, status) in [("exit 0", 0), ("kill -KILL $$", 137), ("exit 4", 4)] {
            let script = format!("[ $PMI_RANK = 0 ] || {{ {script}; }}");
            let output = Command::new("strace")
                .args(["-fqq", "-o", "/dev/null", "-e", "trace=pidfd_open", "-e"])
                .arg(format!("inject=pidfd_open:error={error}"))
                .args([PORTOLAN, "run", "-n", "2", "--", "sh", "-c", &script])
                .stdin(Stdio::null())
                .output()
                .unwrap();
            let words = stderr(&output);
            if words.contains("ptrace") || words.contains("PTRACE") {
                println!("skipped: nothing may be traced here: {words}");
                return;
            }
            assert_eq!(output.status.code(), Some(status), "{error}: {words}");
        }
    }
}

#[test]
fn standard_descriptors_that_are_closed_are_taken_by_nothing() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("closed-stdio");
    let job = r#""$0" run -n 2 -- sh -c '
        exec 9>> "$1"
        for fd in 0 1 2; do echo $fd is $(readlink /proc/$$/fd/$fd) >&9; done; exit 3' sh "$1" <&- >&- 2>&-"#;
    let _ = fs::remove_file(&file);
    let status = Command::new("sh")
        .args(["-c", job, PORTOLAN])
        .arg(&file)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(3));
    let said = fs::read_to_string(&file).unwrap();
    assert!(said.lines().count() >= 3, "{said}");
    assert!(said.lines().all(|l| l.ends_with(" is /dev/null")), "{said}");
}

#[test]
fn programs_that_ignore_sigterm_are_killed_after_the_grace_time() {
    let script = "trap '' TERM; echo up; while :; do read x < /dev/zero; done";
    let mut command = command("run -n 2 --timeout 0.3 -- sh -c");
    let start = Instant::now();
    let output = command.arg(script).output().unwrap();
    assert_eq!(output.status.code(), Some(124));
    assert_eq!(output.stdout, b"up\nup\n");
    assert_eq!(
        stderr(&output),
        "portolan run: the job ran longer than 0.3 s; ending it\n"
    );
    assert!(start.elapsed() > Duration::from_secs(2) && start.elapsed() < SOON);
}

#[test]
fn standard_input_goes_to_rank_0_alone() {
    let script = "echo $PMI_RANK of $PMI_SIZE: $(cat)";
    let mut command = command("run -n 3 -- sh -c");
    let mut job = command
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    job.stdin.take().unwrap().write_all(b"words").unwrap();
    let output = job.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 of 3: words", "1 of 3:", "2 of 3:"]);
}

#[test]
fn ranks_see_the_choice_of_fabric_and_the_users_variables() {
    let said = |words: &str, script: &str| {
        let line = format!("run -n 1 {words} -- sh -c");
        let output = command(line.trim()).arg(script).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let script = "echo $PORTOLAN_FABRIC $PORTOLAN_MACHINE $A $B";
    assert_eq!(said("--env A=1 --env B=x=y", script), "shm xt4 1 x=y\n");
    assert_eq!(said("--machine xt3", script), "seastar xt3\n");
    assert_eq!(
        said("--fault-seed 7:lost_packets=1", script),
        "seastar xt4\n"
    );
    let script = "echo $PORTOLAN_FABRIC $GASNET_SUPERNODE_MAXSIZE";
    assert_eq!(said("--fabric seastar --no-shm", script), "seastar 1\n");
}

#[test]
fn more_ranks_than_share_memory_are_refused_before_any_starts() {
    let output = run("run -n 1025 -- echo started");
    assert_eq!(output.status.code(), Some(3));
    assert!(output.stdout.is_empty());
    let words = "fabric shm cannot be used here: 1025 ranks; 1 to 1024 ranks can share memory";
    assert!(stderr(&output).contains(words), "{}", stderr(&output));
}

/// A limit of the size of files holds for shared memory, which is a file: the system's own answer is a signal.
#[test]
fn a_limit_of_files_is_named() {
    let limited = "ulimit -f 0; exec \"$0\" run -n 2 --fabric shm -- portolan probe";
    let output = Command::new("sh")
        .args(["-c", limited, PORTOLAN])
        .output()
        .unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("the limit of files (ulimit -f) is 0"),
        "{said}"
    );
}

#[test]
fn bad_usage_is_2_and_starts_nothing() {
    for (line, words) in [
        ("run -n 0 -- true", "0 is not in 1..=4096"),
        ("run -n 2 --fabric myrinet -- true", "unknown fabric"),
        (
            "run -n 2 -- no-such-program",
            "no program \"no-such-program\"",
        ),
        (
            "run -n 2 -- /etc/passwd",
            "/etc/passwd cannot be executed: permission denied",
        ),
        ("run -n 2 --timeout 0 -- true", "more than 0"),
        ("run -n 2 --timeout abc -- true", "a number of seconds"),
        (
            "run -n 2 --no-shm -- true",
            "--no-shm is for --fabric verbs",
        ),
        ("dance", "unrecognized subcommand"),
    ] {
        let output = run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(
            stderr(&output).contains(words),
            "{line}: {}",
            stderr(&output)
        );
    }
}

#[test]
fn a_fabric_that_cannot_be_used_is_3_before_any_rank_starts() {
    if fs::read_dir("/sys/class/infiniband").is_ok_and(|mut d| d.next().is_some()) {
        println!("skipped: this machine has an RDMA device");
        return;
    }
    let output = run("run -n 2 --fabric verbs -- echo started");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(output.stdout, b"");
    assert_eq!(stderr(&output).lines().count(), 1, "{}", stderr(&output));
    assert!(
        stderr(&output).contains("verbs cannot be used here"),
        "{}",
        stderr(&output)
    );
}

/// A process as in a container, whose first process has its group and session outside; also with the `/proc` of the machine around it,
/// which has other numbers.
#[test]
fn a_launcher_whose_session_is_outside_of_its_namespace_leaves_nothing() {
    // The rank ends when what it leaves is in a session of its own.
    const RANK: &str = r#"
        setsid sh -c 'echo $$ > "$1"; exec sleep 3600' sh "$1" &
        until [ -s "$1" ]; do :; done"#;
    const SCRIPT: &str = r#"
        "$0" run -n 1 -- sh -c "$2" sh "$1" >&2
        echo $?
        kill -0 "$(cat "$1")" 2>&1 && echo left"#;
    let new = ["--pid", "--fork", "--kill-child"];
    for proc in [&["--mount-proc"][..], &[]] {
        let inside = [&new[..], proc].concat();
        let made = Command::new("unshare").args(&inside).arg("true").output();
        if !made.is_ok_and(|made| made.status.success()) {
            println!("skipped: no PID namespace can be made here");
            return;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        let output = Command::new("unshare")
            .args(&inside)
            .args(["sh", "-c", SCRIPT, PORTOLAN])
            .arg(file.path())
            .arg(RANK)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("0\n"), "{inside:?}: {said}{error}");
        assert!(said.contains("No such process"), "{inside:?}: {said}");
    }
}
