//! One job in which a fault is made: its launcher, what it prints, its processes, and what it may leave behind.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Where the processes of a job make temporary files; see [`temporary`].
static TEMPORARY: OnceLock<PathBuf> = OnceLock::new();
/// Marks the processes of a job, in their environment.
const MARK: &str = "PORTOLAN_FAULT_ROUND";

/// A folder that nobody can guess; the guest's own, unlike `/tmp`, below which the host's shows.
fn temporary() -> Result<&'static Path> {
    if TEMPORARY.get().is_none() {
        let made = tempfile::Builder::new()
            .tempdir_in("/run")
            .context("/run")?;
        // It goes with the guest.
        let _ = TEMPORARY.set(made.keep());
    }
    TEMPORARY.get().map(PathBuf::as_path).context("no folder")
}

/// A job that runs.
pub(super) struct Job {
    launcher: Child,
    mark: String,
    lines: Receiver<String>,
    /// What has been printed.
    said: Vec<String>,
    started: Instant,
}

/// How a job ended.
pub(super) struct End {
    /// None when it had to be ended.
    pub(super) status: Option<i32>,
    pub(super) said: Vec<String>,
    pub(super) took: Duration,
    /// What it left behind, in words.
    pub(super) left: Vec<String>,
}

fn read(from: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(from).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&line).into_owned();
            if to.send(text).is_err() {
                return;
            }
        }
    });
}

/// 128 + n for a signal, as shells say it.
fn code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt as _;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

impl Job {
    /// Starts `command`, a launcher; its processes are known by `round`.
    pub(super) fn start(mut command: Command, round: &str) -> Result<Self> {
        let what = crate::cargo::line(&command);
        let mark = format!("{MARK}={round}");
        let mut launcher = command
            .env(MARK, round)
            .env("TMPDIR", temporary()?)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {what}"))?;
        let (sender, lines) = channel();
        if let Some(out) = launcher.stdout.take() {
            read(out, sender.clone());
        }
        if let Some(err) = launcher.stderr.take() {
            read(err, sender);
        }
        Ok(Self {
            launcher,
            mark,
            lines,
            said: Vec::new(),
            started: Instant::now(),
        })
    }

    /// Waits until so many lines contain `word`; `false` if the job ends, or `limit` passes, before.
    pub(super) fn said(&mut self, word: &str, times: usize, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        loop {
            let seen = self.said.iter().filter(|l| l.contains(word)).count();
            if seen >= times {
                return true;
            }
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.said.push(line),
                Err(_) => return false,
            }
        }
    }

    /// Lets the job run for so long; returns early when nothing of it prints any more.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(Instant::now()))
            {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// The process of a rank.
    pub(super) fn rank(&self, rank: u32, program: &str) -> Result<u32> {
        let wanted = format!("PMI_RANK={rank}");
        for pid in processes(&self.mark) {
            let dir = Path::new("/proc").join(pid.to_string());
            let name = std::fs::read_to_string(dir.join("comm")).unwrap_or_default();
            // The kernel keeps 15 bytes of a name.
            let is_program = program.starts_with(name.trim_end()) && !name.trim().is_empty();
            if is_program && has_variable(&dir, &wanted) {
                return Ok(pid);
            }
        }
        bail!("rank {rank} has no process");
    }

    /// Whether the launcher ends within this time.
    pub(super) fn ends_within(&mut self, limit: Duration) -> Result<bool> {
        let end = Instant::now() + limit;
        loop {
            if self.launcher.try_wait()?.is_some() {
                return Ok(true);
            }
            if Instant::now() >= end {
                return Ok(false);
            }
            self.run_for(Duration::from_millis(5));
        }
    }

    /// Waits for the launcher's end, for at most `limit` from its start; then looks at what is left.
    pub(super) fn end(mut self, limit: Duration, before: &Traces) -> Result<End> {
        let end = self.started + limit;
        let mut status = None;
        while Instant::now() < end {
            status = self.launcher.try_wait()?.map(code);
            if status.is_some() {
                break;
            }
            self.run_for(Duration::from_millis(5));
        }
        let took = self.started.elapsed();
        let mut left = Vec::new();
        if status.is_none() {
            let all = processes(&self.mark);
            // Before the first is killed, since the launcher then ends the others.
            left.extend(
                all.iter()
                    .map(|pid| format!("process {pid}, {}", waits_in(*pid))),
            );
            all.into_iter().for_each(kill);
            let _ = self.launcher.kill();
            let _ = self.launcher.wait();
        }
        // A launcher has collected its ranks when it ends; what was killed by the system may need a moment.
        let moment = Instant::now() + Duration::from_secs(2);
        while !processes(&self.mark).is_empty() && Instant::now() < moment {
            self.run_for(Duration::from_millis(5));
        }
        for pid in processes(&self.mark) {
            left.push(format!("process {pid}"));
            kill(pid);
        }
        // The pipes end with the last process.
        while let Ok(line) = self.lines.recv_timeout(Duration::from_secs(5)) {
            self.said.push(line);
        }
        left.extend(Traces::now(&before.device).since(before));
        Ok(End {
            status,
            said: self.said,
            took,
            left,
        })
    }
}

/// Where a process that hangs is, as far as the system says it.
fn waits_in(pid: u32) -> String {
    let read = |file: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        text.trim().to_owned()
    };
    format!("{} in {}", read("comm"), read("wchan"))
}

fn has_variable(process: &Path, wanted: &str) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    environment
        .split(|b| *b == 0)
        .any(|v| v == wanted.as_bytes())
}

/// Live processes with this variable in their environment.
fn processes(variable: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry.file_name().to_str().and_then(|n| n.parse().ok());
        if let Some(pid) = pid
            && has_variable(&entry.path(), variable)
        {
            found.push(pid);
        }
    }
    found
}

/// Ends a process at once.
pub(super) fn kill(pid: u32) {
    let _ = Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// What jobs may leave behind: objects of the device, files of shared memory and temporary ones.
pub(super) struct Traces {
    device: String,
    objects: Vec<(String, u64)>,
    files: BTreeSet<String>,
}

impl Traces {
    pub(super) fn now(device: &str) -> Self {
        let shown = Command::new("rdma")
            .args(["resource", "show", device])
            .output();
        let text = shown.map_or_else(
            |_| String::new(),
            |o| String::from_utf8_lossy(&o.stdout).into_owned(),
        );
        // `0: rxe0: qp 1 cq 0 pd 0 mr 0 ctx 0 srq 0`
        let words: Vec<&str> = text.split_whitespace().collect();
        let objects = words
            .windows(2)
            .filter_map(|w| Some((w[0].to_owned(), w[1].parse().ok()?)))
            .collect();
        let mut files = BTreeSet::new();
        let folders = TEMPORARY.get().map(PathBuf::as_path);
        for folder in folders.into_iter().chain([Path::new("/dev/shm")]) {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                files.insert(entry.path().display().to_string());
            }
        }
        Self {
            device: device.to_owned(),
            objects,
            files,
        }
    }

    /// What there is more of than `before`.
    fn since(&self, before: &Self) -> Vec<String> {
        let mut more = Vec::new();
        for (what, count) in &self.objects {
            let was = before.objects.iter().find(|(w, _)| w == what);
            let was = was.map_or(0, |(_, n)| *n);
            if *count > was {
                more.push(format!("{} {what} of {}", count - was, self.device));
            }
        }
        more.extend(self.files.difference(&before.files).cloned());
        more
    }
}
