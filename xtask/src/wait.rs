//! Waiting for processes and files by what the kernel says of them.

use anyhow::{Context, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Sleeps until one of `fds` is readable or `until` has come; says of each whether it is.
fn readable<const N: usize>(fds: [BorrowedFd<'_>; N], until: Instant) -> io::Result<[bool; N]> {
    let mut fds = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => return Ok(fds.map(|fd| !fd.revents().is_empty())),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// A process, whose number stays its own.
pub(crate) struct Process(OwnedFd);

impl Process {
    /// # Errors
    /// There is none of this number.
    pub(crate) fn open(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// # Errors
    /// It has ended.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }

    /// Whether it has ended, or ends within `limit`.
    pub(crate) fn ends_within(&self, limit: Duration) -> io::Result<bool> {
        let [ended] = readable([self.0.as_fd()], Instant::now() + limit)?;
        Ok(ended)
    }
}

/// How a child ended; none if it goes on after `limit`.
pub(crate) fn end(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    if let Some(status) = child.try_wait()? {
        return Ok(Some(status));
    }
    if Process::open(child.id())?.ends_within(limit)? {
        return child.wait().map(Some);
    }
    Ok(None)
}

/// What happens to a file, or to those in a folder.
pub(crate) struct Changes(OwnedFd);

impl Changes {
    /// Tells of writes to it, and of files that are made in it.
    pub(crate) fn of(path: &Path) -> Result<Self> {
        let events = inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE;
        Self::watch(path, events)
    }

    /// Tells that it is opened or started.
    pub(crate) fn uses(program: &Path) -> Result<Self> {
        Self::watch(program, inotify::WatchFlags::OPEN)
    }

    fn watch(path: &Path, events: inotify::WatchFlags) -> Result<Self> {
        let flags = inotify::CreateFlags::CLOEXEC | inotify::CreateFlags::NONBLOCK;
        let fd = inotify::init(flags).context("inotify")?;
        inotify::add_watch(&fd, path, events).with_context(|| path.display().to_string())?;
        Ok(Self(fd))
    }

    /// Forgets what it has told.
    fn clear(&self) {
        let mut room = [0; 4096];
        while matches!(
            rustix::io::read(&self.0, &mut room),
            Ok(1..) | Err(Errno::INTR)
        ) {}
    }

    /// Looks now and after every change until there is something to see; none if `process` ends before, or `limit` passes.
    pub(crate) fn until<T>(
        &self,
        process: &Process,
        limit: Duration,
        mut look: impl FnMut() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let deadline = Instant::now() + limit;
        let mut over = false;
        loop {
            self.clear();
            let seen = look()?;
            if seen.is_some() || over {
                return Ok(seen);
            }
            let [changed, ended] = readable([self.0.as_fd(), process.0.as_fd()], deadline)?;
            // What it did last is still looked at.
            over = ended || !changed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const LONG: Duration = Duration::from_secs(60);

    fn cat() -> Child {
        let mut cat = Command::new("cat");
        cat.stdin(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn an_end_is_seen_and_a_limit_passes() {
        let mut child = cat();
        let process = Process::open(child.id()).unwrap();
        assert!(end(&mut child, Duration::ZERO).unwrap().is_none());
        assert!(!process.ends_within(Duration::ZERO).unwrap());
        process.signal(Signal::TERM).unwrap();
        assert!(!end(&mut child, LONG).unwrap().unwrap().success());
        assert!(process.ends_within(Duration::ZERO).unwrap());
        assert!(process.signal(Signal::TERM).is_err());
        assert!(end(&mut child, LONG).unwrap().is_some());
    }

    #[test]
    fn words_in_a_file_are_waited_for_until_the_writer_ends() {
        let file = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        let changes = Changes::of(&file).unwrap();
        let mut writer = Command::new("sh");
        writer.args(["-c", "read go; echo one; read go; echo two; read go"]);
        let out = std::fs::File::options().append(true).open(&file).unwrap();
        let mut writer = writer.stdin(Stdio::piped()).stdout(out).spawn().unwrap();
        let process = Process::open(writer.id()).unwrap();
        let mut input = writer.stdin.take().unwrap();
        let wait = |word: &str, limit| {
            let has = || {
                let words = std::fs::read_to_string(&file)?;
                Ok(words.contains(word).then_some(()))
            };
            changes.until(&process, limit, has).unwrap().is_some()
        };
        assert!(!wait("one", Duration::ZERO));
        for word in ["one", "two"] {
            io::Write::write_all(&mut input, b"go\n").unwrap();
            assert!(wait(word, LONG), "{word}");
        }
        drop(input);
        assert!(!wait("three", LONG));
        writer.wait().unwrap();
    }
}
