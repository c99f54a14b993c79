//! Jobs of several hosts: a stand-in for ssh runs the agents on this machine.
//!
//! `cargo xtask launchers` starts the same through a real sshd.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

/// The bound for "within seconds": two grace times of 2 s, and room.
const SOON: Duration = Duration::from_secs(12);

/// A script, made once.
fn script(name: &str, text: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let new = path.with_extension(format!("{}", std::process::id()));
    fs::write(&new, text).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&new, &path).unwrap();
    path
}

/// Runs the command line of a host in this machine's shell, as ssh does in the host's.
fn stand_in() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let text = "#!/bin/sh\ncd /\nshift\nexec sh -c \"$*\"\n";
        script("stand-in-ssh", text).display().to_string()
    })
}

fn command(ssh: &str, line: &str) -> Command {
    // Whoever runs the tests in the background may ignore signals, and a launcher keeps that.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP,INT,QUIT,TERM", PORTOLAN])
        .args(["run", "--fabric", "shm", "--ssh", ssh])
        .args(line.split(' '))
        .stdin(Stdio::null());
    for name in [
        "PORTOLAN_DEVICE",
        "PORTOLAN_MACHINE",
        "PORTOLAN_LOG",
        "PORTOLAN_ADDRESS",
    ] {
        command.env_remove(name);
    }
    command
}

fn run(line: &str) -> Output {
    command(stand_in(), line).output().unwrap()
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).into_owned()
}

/// A job of two hosts that hangs after its ranks have exchanged values.
struct Hanging {
    launcher: Child,
    ranks: Vec<OwnedFd>,
}

impl Hanging {
    fn start() -> Self {
        let line = "--hosts a,b -n 4 -- portolan probe --pids --fault hang@0";
        let mut launcher = command(stand_in(), line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(launcher.stdout.take().unwrap());
        let mut ranks = Vec::new();
        while ranks.len() < 4 {
            let mut line = String::new();
            assert!(output.read_line(&mut line).unwrap() > 0);
            let pid = line.split_whitespace().last().unwrap().parse().unwrap();
            let pid = Pid::from_raw(pid).unwrap();
            ranks.push(pidfd_open(pid, PidfdFlags::empty()).unwrap());
        }
        Self { launcher, ranks }
    }

    /// The stand-ins, which have become the agents.
    fn agents(&self) -> Vec<Pid> {
        let supervisor = children(self.launcher.id().cast_signed())[0];
        let pids = children(supervisor);
        pids.into_iter().filter_map(Pid::from_raw).collect()
    }

    /// The launcher's status and words once it and all ranks have ended, which must be soon.
    fn end(self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let output = self.launcher.wait_with_output().unwrap();
        for rank in &self.ranks {
            let left = SOON.saturating_sub(begun.elapsed());
            let timeout = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap(),
                tv_nsec: 0,
            };
            let mut fds = [PollFd::new(rank, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&timeout)).unwrap(), 1, "a rank is left");
        }
        assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
        (output.status.code(), said(&output))
    }
}

fn children(pid: i32) -> Vec<i32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let pids = children.split_whitespace();
    pids.map(|p| p.parse().unwrap()).collect()
}

#[test]
fn ranks_of_two_hosts_exchange_values() {
    let output = run("--hosts a,b -n 4 -- portolan probe");
    let words = said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    for rank in 0..4 {
        assert!(
            words.contains(&format!("rank {rank} of 4: ok, 4 here")),
            "{words}"
        );
    }
}

#[test]
fn blocks_of_ranks_are_where_they_belong() {
    let which = script(
        "which-host",
        "#!/bin/sh\nexport HOST_IS=$1\nshift\nexec sh -c \"$*\"\n",
    );
    let which = which.display().to_string();
    let show = script("show-host", "#!/bin/sh\necho $PMI_RANK $HOST_IS\n");
    let hosts = |args: &str| {
        let output = command(&which, &format!("{args} -- {}", show.display()))
            .output()
            .unwrap();
        let mut lines: Vec<String> = String::from_utf8_lossy(&output.stdout)
            .lines()
            .map(str::to_owned)
            .collect();
        lines.sort();
        assert!(output.status.success(), "{}", said(&output));
        lines.join(", ")
    };
    assert_eq!(hosts("--hosts a,b,c -N 2 -n 3"), "0 a, 1 a, 2 b");
    assert_eq!(hosts("--hosts a:1,b:2 -n 3"), "0 a, 1 b, 2 b");
    let file = script("gm-conf", "3\na 2\nb 2\na 4\n");
    assert_eq!(
        hosts(&format!("--gm-conf {}", file.display())),
        "0 a, 1 b, 2 a"
    );
    let file = script("host-file", "a slots=2 # big\nb\n");
    assert_eq!(
        hosts(&format!("--hostfile {} -n 3", file.display())),
        "0 a, 1 a, 2 b"
    );
}

#[test]
fn variables_folder_and_input_reach_the_ranks() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let show = script(
        "show-place",
        "#!/bin/sh\nread line\necho \"$PMI_RANK $GASNET_SHOW $FROM_ENV $line $PWD\"\n",
    );
    let args = format!("--hosts a,b -n 2 --env FROM_ENV=y -- {}", show.display());
    let mut launcher = command(stand_in(), &args)
        .env("GASNET_SHOW", "x y'z")
        .current_dir(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    launcher
        .stdin
        .take()
        .unwrap()
        .write_all(b"hello\n")
        .unwrap();
    let output = launcher.wait_with_output().unwrap();
    let words = said(&output);
    let folder = folder.canonicalize().unwrap();
    assert!(
        words.contains(&format!("0 x y'z y hello {}", folder.display())),
        "{words}"
    );
    assert!(
        words.contains(&format!("1 x y'z y  {}", folder.display())),
        "{words}"
    );
}

#[test]
fn ranks_that_fail_end_the_job_with_their_status() {
    for (fault, status, words) in [
        ("exit3@1", 3, "rank 1 exited with status 3; ending the job"),
        ("abort7@2", 7, "rank 2 aborted the job with status 7"),
        (
            "exit0@3",
            1,
            "rank 3 exited with status 0 without finalizing",
        ),
        ("kill@2", 137, "rank 2 was killed by signal 9 (SIGKILL)"),
        (
            "outside@1",
            1,
            "rank 1 exited with status 0 and never joined",
        ),
        ("late5@1", 5, "rank 1 exited with status 5"),
    ] {
        let output = run(&format!(
            "--hosts a,b -n 4 -- portolan probe --fault {fault}"
        ));
        let lines = said(&output);
        assert_eq!(output.status.code(), Some(status), "{fault}: {lines}");
        assert!(lines.contains(words), "{fault}: {lines}");
    }
}

#[test]
fn a_program_or_a_host_that_is_not_there_is_named() {
    let output = run("--hosts a,b -n 2 -- no-such-program");
    assert_eq!(output.status.code(), Some(1));
    let words = said(&output);
    assert!(
        words.contains("cannot start its ranks: no program \"no-such-program\""),
        "{words}"
    );
    let output = command("false", "--hosts a,b -n 2 -- portolan probe")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = said(&output);
    assert!(
        words.contains("exited with status 1 before its ranks started"),
        "{words}"
    );
    for line in [
        "--hosts a,b -n 4 -N 3 -- true",
        "--hosts -x -n 1 -- true",
        "--hosts a:1 -n 2 -- true",
    ] {
        assert_eq!(run(line).status.code(), Some(2), "{line}");
    }
}

#[test]
fn an_agent_with_another_token_is_not_heard() {
    let text = "#!/bin/sh\nshift\nsed 's/\"token\":\"./\"token\":\"x/' | sh -c \"$*\"\n";
    let ssh = script("wrong-token-ssh", text).display().to_string();
    let output = command(&ssh, "--hosts a -n 1 -- portolan probe")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let words = said(&output);
    assert!(words.contains("before its ranks started"), "{words}");
    assert!(!words.contains("ok"), "{words}");
}

#[test]
fn a_lost_host_ends_the_job_and_nothing_is_left() {
    let job = Hanging::start();
    let agents = job.agents();
    assert_eq!(agents.len(), 2);
    kill_process(agents[1], Signal::KILL).unwrap();
    let (status, words) = job.end();
    assert_eq!(status, Some(1), "{words}");
    assert!(words.contains("host b"), "{words}");
}

#[test]
fn an_interrupt_ends_the_ranks_of_all_hosts() {
    for (signal, status) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let job = Hanging::start();
        kill_process(Pid::from_child(&job.launcher), signal).unwrap();
        let (code, words) = job.end();
        assert_eq!(code, Some(status), "{words}");
        assert!(words.contains("stopped by signal"), "{words}");
    }
}

#[test]
fn ranks_of_all_hosts_die_with_a_killed_launcher() {
    let job = Hanging::start();
    kill_process(Pid::from_child(&job.launcher), Signal::KILL).unwrap();
    let (code, _) = job.end();
    assert_eq!(code, None);
}

/// Before its agent comes, a host has strangers connect who say nothing, half a line, or something else; each of them is
/// there until the job's end.
#[test]
fn strangers_who_connect_end_no_job_and_delay_none() {
    let crowd = script(
        "crowd-ssh",
        r#"#!/bin/bash
        cd /
        shift
        read -r order
        port=$(printf %s "$order" | sed 's/.*"port":\([0-9]*\).*/\1/')
        for stranger in $(seq 150); do
            exec {line}<>/dev/tcp/127.0.0.1/$port || exit 1
            case $((stranger % 3)) in
                1) printf '{"Hello":{"version"' >&$line ;;
                2) printf 'GET / HTTP/1.1\r\n\r\n' >&$line ;;
            esac
        done
        { printf '%s\n' "$order"; exec cat; } | exec bash -c "$*"
        "#,
    );
    let begun = Instant::now();
    let line = "--hosts a,b -n 4 -- portolan probe";
    let output = command(&crowd.display().to_string(), line)
        .output()
        .unwrap();
    let words = said(&output);
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert_eq!(words.matches(": ok, 4 here").count(), 4, "{words}");
    assert!(begun.elapsed() < SOON, "took {:?}", begun.elapsed());
}

/// The agents' ends of the lines are not open to anybody: the launcher listens where its hosts are, and no more once they
/// have come.
#[test]
fn nobody_can_connect_to_a_job_that_has_begun() {
    let job = Hanging::start();
    let supervisor = children(job.launcher.id().cast_signed())[0];
    let listening = || {
        let fds = fs::read_dir(format!("/proc/{supervisor}/fd")).unwrap();
        let links = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
        let sockets: Vec<String> = links
            .filter_map(|l| {
                Some(
                    l.to_str()?
                        .strip_prefix("socket:[")?
                        .strip_suffix(']')?
                        .to_owned(),
                )
            })
            .collect();
        let tcp = ["tcp", "tcp6"].map(|f| fs::read_to_string(format!("/proc/net/{f}")));
        let tcp = tcp.map(Result::unwrap_or_default).concat();
        let listening = |l: &&str| {
            let words: Vec<&str> = l.split_whitespace().collect();
            words.get(3) == Some(&"0A") && sockets.iter().any(|s| words.get(9) == Some(&s.as_str()))
        };
        tcp.lines().filter(listening).count()
    };
    assert_eq!(listening(), 0);
    kill_process(Pid::from_child(&job.launcher), Signal::TERM).unwrap();
    assert_eq!(job.end().0, Some(143));
}
