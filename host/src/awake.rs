//! Time that counts only while this process runs.
//!
//! A job that Ctrl-Z or a debugger has stopped for an hour has waited for nobody: its peers stood still too. Limits of
//! clocks on the wall would be over the moment it goes on.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// The most that counts between two looks: whoever looks rarely did not run.
pub const STEP: Duration = Duration::from_millis(100);

/// What is left of a time to wait.
#[derive(Debug)]
pub struct Awake {
    left: Duration,
    looked: Instant,
}

impl Awake {
    /// All of it.
    pub fn new(all: Duration) -> Self {
        Self::since(all, Instant::now())
    }

    /// All of it at that instant, which was the last look.
    pub const fn since(all: Duration, looked: Instant) -> Self {
        Self { left: all, looked }
    }

    /// Whether it is over; to be asked at least ten times a second.
    pub fn is_over(&mut self) -> bool {
        self.is_over_at(Instant::now())
    }

    /// How long to sleep until it is asked again, at most.
    pub fn slice(&self) -> Duration {
        self.left.min(STEP)
    }

    fn is_over_at(&mut self, now: Instant) -> bool {
        let step = now.saturating_duration_since(self.looked);
        self.looked = now;
        self.left = self.left.saturating_sub(step.min(STEP));
        self.left.is_zero()
    }
}

/// What comes over a channel within `all`.
///
/// # Errors
/// Nothing has come, or nobody can send any more.
pub fn recv_within<T>(from: &Receiver<T>, all: Duration) -> Result<T, RecvTimeoutError> {
    let mut left = Awake::new(all);
    loop {
        match from.recv_timeout(left.slice()) {
            Err(RecvTimeoutError::Timeout) if !left.is_over() => {}
            received => return received,
        }
    }
}

/// A clock for timers that somebody looks after: the time by which a look is later than it was due does not count.
#[derive(Debug)]
pub struct Clock {
    /// When it would have begun, had it never stood.
    origin: Instant,
    read: Duration,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            read: Duration::ZERO,
        }
    }
}

impl Clock {
    /// The time now; `due`: when a timer ends, which somebody would have looked after if the process had run.
    pub fn read(&mut self, due: Option<Duration>) -> Duration {
        self.read_at(Instant::now(), due)
    }

    /// When it will read `at`.
    pub fn instant(&self, at: Duration) -> Option<Instant> {
        self.origin.checked_add(at)
    }

    fn read_at(&mut self, now: Instant, due: Option<Duration>) -> Duration {
        let latest = due.map_or(Duration::MAX, |due| due.max(self.read).saturating_add(STEP));
        let time = now.saturating_duration_since(self.origin);
        self.origin += time.saturating_sub(latest);
        self.read = self.read.max(time.min(latest));
        self.read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::io::{BufRead as _, BufReader, Write as _, stdin};
    use std::process::{Command, Stdio};
    use std::sync::mpsc::channel;
    use std::thread;

    /// Set for a process that is stopped while it waits.
    const WAITS: &str = "PORTOLAN_TEST_WAITS";
    const LONGEST: Duration = Duration::from_secs(2);

    #[test]
    fn a_channel_is_waited_for_as_long_as_was_said() {
        let (sender, receiver) = channel();
        let all = 10 * STEP;
        let begun = Instant::now();
        let nothing = recv_within(&receiver, all);
        assert_eq!(nothing, Err(RecvTimeoutError::Timeout));
        assert!((all..3 * all).contains(&begun.elapsed()));
        sender.send(5).unwrap();
        assert_eq!(recv_within(&receiver, Duration::ZERO), Ok(5));
        drop(sender);
        let nobody = recv_within(&receiver, Duration::MAX);
        assert_eq!(nobody, Err(RecvTimeoutError::Disconnected));
    }

    /// A process is stopped for longer than it waits, and what it waits for comes when it has gone on.
    #[test]
    fn a_stopped_process_has_not_waited_for_a_channel() {
        const NAME: &str = "awake::tests::a_stopped_process_has_not_waited_for_a_channel";
        if std::env::var_os(WAITS).is_some() {
            let (sender, receiver) = channel();
            let waits = crate::ids::thread().unwrap();
            let asleep = move || {
                while !is_asleep(waits) {
                    thread::yield_now();
                }
            };
            thread::spawn(move || {
                asleep();
                println!("\nwaits");
                let _ = stdin().read_line(&mut String::new());
                // It has looked at the time since it has gone on, and waits again.
                asleep();
                let _ = sender.send(());
            });
            assert_eq!(recv_within(&receiver, LONGEST), Ok(()));
            return;
        }
        let mut waiting = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(WAITS, "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(waiting.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "waits"));
        let pid = Pid::from_child(&waiting);
        kill_process(pid, Signal::STOP).unwrap();
        let (_nobody, nothing) = channel::<()>();
        assert!(recv_within(&nothing, LONGEST + 5 * STEP).is_err());
        kill_process(pid, Signal::CONT).unwrap();
        writeln!(waiting.stdin.take().unwrap(), "go on").unwrap();
        lines.for_each(drop);
        assert!(waiting.wait().unwrap().success());
    }

    /// Whether a thread of this process waits for something.
    fn is_asleep(thread: Pid) -> bool {
        let stat = format!("/proc/self/task/{thread}/stat");
        let stat = std::fs::read_to_string(stat).unwrap();
        // Behind the name, which may have any character.
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" S"))
    }

    #[test]
    fn a_clock_stands_while_a_timer_that_is_due_is_not_looked_after() {
        let mut clock = Clock::default();
        let start = clock.origin;
        let seconds = Duration::from_secs;
        let mut read =
            |at: u64, due: Option<u64>| clock.read_at(start + seconds(at), due.map(seconds));
        assert_eq!(read(7, None), seconds(7), "no timer runs");
        assert_eq!(read(8, Some(9)), seconds(8));
        assert_eq!(read(3608, Some(9)), seconds(9) + STEP, "it was stopped");
        assert_eq!(read(3608, Some(9)), seconds(9) + STEP);
        assert_eq!(read(3609, Some(12)), seconds(10) + STEP);
        assert_eq!(read(9000, None), clock.read);
        assert_eq!(clock.instant(clock.read), Some(start + seconds(9000)));
    }

    #[test]
    fn the_time_in_which_the_process_stood_still_does_not_count() {
        let mut awake = Awake::new(Duration::from_secs(5));
        let mut now = awake.looked;
        let mut after = |step: Duration| {
            now += step;
            awake.is_over_at(now)
        };
        let look = Duration::from_millis(10);
        for _ in 0..400 {
            assert!(!after(look));
        }
        assert!(!after(Duration::from_secs(3600)), "it was stopped");
        for _ in 0..89 {
            assert!(!after(look));
        }
        assert!(after(look));
    }
}
