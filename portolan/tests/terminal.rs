//! `portolan run` as a job of a shell: stopped and continued, in the background, with signals that are passed on or were
//! ignored before, and with nobody to read what it says.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

const PORTOLAN: &str = env!("CARGO_BIN_EXE_portolan");

/// For anything that is to happen, on a busy machine.
const SOON: Duration = Duration::from_secs(20);

/// A command line of this process, with the signals of terminals doing what they do by default: a test may have been
/// started in a background in which some are ignored.
fn fresh(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP,INT,QUIT,TERM,TSTP,TTIN,TTOU,USR1,USR2,WINCH,CONT"]);
    for name in ["PORTOLAN_FABRIC", "PORTOLAN_LOG", "PMI_FD", "PMI_RANK"] {
        command.env_remove(name);
    }
    command.arg(program);
    command
}

/// An interactive shell on a terminal of its own, by script(1).
struct Shell {
    script: Child,
    keys: ChildStdin,
    screen: ChildStdout,
    seen: String,
}

impl Shell {
    /// None, with the reason, where there is no script(1).
    fn start() -> Option<Self> {
        let mut command = fresh("script");
        command
            .args(["-qfec", "bash --norc --noprofile -i", "/dev/null"])
            .env("PORTOLAN", PORTOLAN)
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if Command::new("script").arg("--version").output().is_err() {
            println!("skipped: there is no script(1), which makes terminals");
            return None;
        }
        let mut script = command.spawn().unwrap();
        let mut shell = Self {
            keys: script.stdin.take().unwrap(),
            screen: script.stdout.take().unwrap(),
            script,
            seen: String::new(),
        };
        // In two parts, so that the prompt differs from its own words on the screen.
        shell.types("PS1='shell''> '\n");
        shell.prompt();
        Some(shell)
    }

    /// Waits until the shell reads again: what is typed before goes to the job.
    fn prompt(&mut self) {
        self.sees("shell> ");
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits for something on the screen after what was waited for before; what is there up to its end.
    fn sees(&mut self, words: &str) -> String {
        let deadline = Instant::now() + SOON;
        loop {
            if let Some(at) = self.seen.find(words) {
                let rest = self.seen.split_off(at + words.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap();
            let mut fds = [PollFd::new(&self.screen, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&left)).unwrap();
            assert!(ready > 0, "no {words:?} in {:?}", self.seen);
            let mut bytes = [0; 4096];
            let count = self.screen.read(&mut bytes).unwrap();
            assert!(count > 0, "no {words:?} in {:?}", self.seen);
            self.seen += &String::from_utf8_lossy(&bytes[..count]);
        }
    }

    /// Starts a job and gives its ranks' processes, each of which says one as `process PID.`.
    fn job(&mut self, ranks: usize, script: &str) -> Vec<i32> {
        self.types(&format!("$PORTOLAN run -n {ranks} -- sh -c '{script}'\n"));
        let word = |seen: String| {
            seen.rsplit(' ')
                .next()
                .unwrap()
                .trim_end_matches('.')
                .parse()
        };
        let mut pids = Vec::new();
        while pids.len() < ranks {
            self.sees("process ");
            if let Ok(pid) = word(self.sees(".")) {
                pids.push(pid);
            }
        }
        pids
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// `R`, `S`, `T` and so on.
fn state(pid: i32) -> char {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(") ").map(|(_, after)| after.to_owned());
    after.and_then(|a| a.chars().next()).unwrap_or('-')
}

/// Waits until all are stopped, or none is.
fn wait_until(pids: &[i32], stopped: bool) {
    let deadline = Instant::now() + SOON;
    while pids.iter().any(|pid| (state(*pid) == 'T') != stopped) {
        assert!(Instant::now() < deadline, "stopped: not {stopped}");
        std::thread::yield_now();
    }
}

const WAITS: &str = "echo process $$.; while :; do read x < /dev/zero; done";

#[test]
fn a_job_is_stopped_from_the_terminal_and_goes_on() {
    let Some(mut shell) = Shell::start() else {
        return;
    };
    let ranks = shell.job(2, WAITS);
    shell.types("\x1a");
    shell.sees("Stopped");
    wait_until(&ranks, true);
    shell.types("bg\n");
    wait_until(&ranks, false);
    shell.types("kill -TSTP %1; wait %1\n");
    wait_until(&ranks, true);
    shell.types("fg\n");
    wait_until(&ranks, false);
    // Twice in a row, and the job still ends as it should.
    shell.types("\x1a");
    shell.sees("Stopped");
    wait_until(&ranks, true);
    shell.types("fg\n");
    wait_until(&ranks, false);
    shell.types("\x03");
    shell.sees("stopped by signal 2 (SIGINT)");
    shell.prompt();
    shell.types("echo status $?\n");
    shell.sees("status 130");
    assert!(ranks.iter().all(|pid| state(*pid) == '-'), "a rank is left");
}

#[test]
fn a_sweep_tells_its_points_and_an_interrupt_names_the_one_that_it_ended() {
    let Some(mut shell) = Shell::start() else {
        return;
    };
    let bench = "bench put-bandwidth --sizes 1M --iters 1000000";
    shell.types(&format!(
        "TERM=xterm $PORTOLAN sweep --set host.trap=0.1,0.2 -- {bench}\n"
    ));
    shell.sees("point 1 of 2: host.trap=0.1");
    // The bar of a rank.
    shell.sees("0/1 put-bandwidth");
    shell.types("\x03");
    shell.sees("portolan sweep: point 1 of 2: host.trap=0.1: ended with status 130");
    shell.prompt();
    shell.types("echo status $?\n");
    shell.sees("status 130");
}

/// The limit is shorter than the time in which the job stands still, and longer than what it needs otherwise.
#[test]
fn time_in_which_a_job_is_stopped_is_none_of_its_own() {
    let Some(mut shell) = Shell::start() else {
        return;
    };
    let program = "echo process $$.; read word; echo got $word.";
    shell.types(&format!(
        "$PORTOLAN run -n 1 --timeout 6 -- sh -c '{program}'\n"
    ));
    // The shell's own words are on the screen too.
    shell.sees("process $$.");
    shell.sees("process ");
    shell.types("\x1a");
    shell.sees("Stopped");
    shell.prompt();
    shell.types("sleep 7; fg; echo status $?\n");
    shell.sees("run -n 1");
    shell.types("a word\n");
    shell.sees("got a word.");
    shell.sees("status 0");
}

#[test]
fn ranks_write_to_a_terminal_that_stops_who_writes_in_the_background() {
    let Some(mut shell) = Shell::start() else {
        return;
    };
    shell.types("stty tostop -echo; echo ready\n");
    shell.sees("ready\r\n");
    for end in ["", " & wait"] {
        let program = "echo one of $PMI_SIZE.; echo tw$((1+1)) >&2";
        shell.types(&format!(
            "$PORTOLAN run -n 2 -- sh -c '{program}'{end}; echo status $?\n"
        ));
        let said = shell.sees("status 0");
        assert_eq!(said.matches("one of 2.").count(), 2, "{said}");
        assert_eq!(said.matches("tw2").count(), 2, "{said}");
    }
}

#[test]
fn what_is_typed_goes_to_rank_0_while_the_job_is_in_the_foreground() {
    let Some(mut shell) = Shell::start() else {
        return;
    };
    let ranks = shell.job(
        2,
        "echo process $$.; read word; echo $PMI_RANK: got \"$word\".",
    );
    shell.types("\x1a");
    shell.sees("Stopped");
    shell.types("bg\n");
    wait_until(&ranks, false);
    // For the shell, as the job is in the background.
    shell.types("echo for the sh''ell\n");
    shell.sees("for the shell");
    shell.types("fg\n");
    shell.sees("run -n 2");
    shell.types("a word\n");
    shell.sees("0: got a word.");
    // What is typed before the job has ended is for the job.
    shell.sees("2 separate processes");
    shell.prompt();
    shell.types("echo status $?\n");
    shell.sees("status 0");
}

/// Ranks that say which signals they have got, each once, and end when they have got all. The last one ends what they wait for,
/// so that it is not missed where it comes before the `wait`. A shell says nothing of a child that SIGPIPE ended.
const TRAPS: &str = r#"
    for signal in USR1 USR2 WINCH CONT; do
        trap "echo got $signal; trap : $signal; left=\${left#?}; [ \"\$left\" ] || kill -PIPE \$!" $signal
    done
    left=1234; sleep 1000 & echo up
    while [ "$left" ]; do wait; done
    exit 0"#;

#[test]
fn signals_for_the_program_go_to_the_ranks() {
    let mut command = fresh(PORTOLAN);
    command.args(["run", "-n", "3", "--", "bash", "-c", TRAPS]);
    let mut job = command.stdout(Stdio::piped()).spawn().unwrap();
    let launcher = Pid::from_child(&job);
    let mut output = job.stdout.take().unwrap();
    let mut said = String::new();
    let mut until = |word: &str, said: &mut String| {
        let deadline = Instant::now() + SOON;
        while said.matches(word).count() < 3 {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap();
            let ready = poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&left));
            assert_eq!(ready, Ok(1), "no 3 x {word}: {said}");
            let mut bytes = [0; 512];
            let count = output.read(&mut bytes).unwrap();
            assert!(count > 0, "no 3 x {word}: {said}");
            *said += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    until("up", &mut said);
    for (signal, name) in [
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::WINCH, "WINCH"),
        (Signal::CONT, "CONT"),
    ] {
        kill_process(launcher, signal).unwrap();
        until(&format!("got {name}"), &mut said);
    }
    assert_eq!(job.wait().unwrap().code(), Some(0), "{said}");
}

#[test]
fn signals_that_were_ignored_before_stay_ignored() {
    let mut command = fresh("sh");
    let job = "trap '' HUP INT; exec \"$PORTOLAN\" run -n 2 -- sh -c \
               'grep SigIgn /proc/self/status; echo up; [ $PMI_RANK = 0 ] && read go; exit 0'";
    command.args(["-c", job]).env("PORTOLAN", PORTOLAN);
    let mut job = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let launcher = Pid::from_child(&job);
    let mut go = job.stdin.take().unwrap();
    let mut output = job.stdout.take().unwrap();
    let mut said = Vec::new();
    while said.windows(2).filter(|w| w == b"up").count() < 2 {
        let mut byte = [0];
        assert_eq!(output.read(&mut byte).unwrap(), 1);
        said.push(byte[0]);
    }
    for signal in [Signal::HUP, Signal::INT] {
        kill_process(launcher, signal).unwrap();
    }
    go.write_all(b"go\n").unwrap();
    drop(go);
    let ended = job.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(0), "{words}");
    let said = String::from_utf8(said).unwrap();
    let masks = said.lines().filter_map(|l| l.strip_prefix("SigIgn:"));
    let masks: Vec<u64> = masks
        .map(|m| u64::from_str_radix(m.trim(), 16).unwrap())
        .collect();
    assert_eq!(masks.len(), 2, "{said}");
    assert!(masks.iter().all(|m| m & 3 == 3), "{masks:?}");
}

fn run_with(stderr: Stdio, script: &str) -> Output {
    let mut command = fresh(PORTOLAN);
    command
        .args(["run", "-n", "2", "--", "sh", "-c", script])
        .stdin(Stdio::null())
        .stderr(stderr);
    command.output().unwrap()
}

#[test]
fn a_job_nobody_listens_to_ends_as_it_would() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    let closed = || -> OwnedFd {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        write.into()
    };
    for (script, status) in [("exit 3", 3), ("exit 0", 0), ("kill -KILL $$", 137)] {
        let ended = run_with(full().into(), script);
        assert_eq!(ended.status.code(), Some(status), "full: {script}");
        let ended = run_with(closed().into(), script);
        assert_eq!(ended.status.code(), Some(status), "closed: {script}");
    }
    // A rank that writes where nobody reads ends by SIGPIPE, as everywhere.
    let line = "\"$PORTOLAN\" run -n 2 -- yes | head -n 1; echo ${PIPESTATUS[0]}";
    let mut command = fresh("bash");
    let output = command
        .args(["-c", line])
        .env("PORTOLAN", PORTOLAN)
        .output();
    let output = output.unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "y\n141\n");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        words.contains("was killed by signal 13 (SIGPIPE)"),
        "{words}"
    );
    // Of the command line too.
    for words in [&["--help"][..], &["run"], &["no-such-command"]] {
        let output = fresh(PORTOLAN)
            .args(words)
            .stdout(closed())
            .stderr(full())
            .status()
            .unwrap();
        assert!(
            output.code().is_some_and(|code| code < 3),
            "{words:?}: {output}"
        );
    }
}

/// A standard error that takes nothing: the job ends all the same.
#[test]
fn a_job_ends_though_its_last_line_finds_no_room() {
    let (read, mut write) = std::io::pipe().unwrap();
    rustix::io::ioctl_fionbio(&write, true).unwrap();
    while write.write(&[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&write, false).unwrap();
    let mut command = fresh(PORTOLAN);
    command.args(["run", "-n", "2", "--", "sh", "-c"]);
    command.arg("[ $PMI_RANK = 0 ] && exit 3; echo $$; exec sleep 1000");
    let mut job = command
        .stdout(Stdio::piped())
        .stderr(OwnedFd::from(write))
        .spawn()
        .unwrap();
    let mut output = job.stdout.take().unwrap();
    let mut said = [0; 64];
    let count = output.read(&mut said).unwrap();
    let pid = String::from_utf8_lossy(&said[..count]);
    let pid = pid.trim().parse().unwrap();
    let deadline = Instant::now() + SOON;
    while state(pid) != '-' {
        assert!(Instant::now() < deadline, "rank 1 is left");
        std::thread::yield_now();
    }
    drop(read);
    assert_eq!(job.wait().unwrap().code(), Some(3));
}
