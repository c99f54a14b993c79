//! What a supervisor or an agent is told from outside the job: signals of its own, and words of the front.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGWINCH,
};

/// Signals by which a user or a batch system ends a job.
pub(super) const ENDING: [i32; 4] = [SIGINT, SIGTERM, SIGHUP, SIGQUIT];
/// Signals that are for the ranks.
pub(super) const PASSED: [i32; 3] = [SIGUSR1, SIGUSR2, SIGWINCH];

/// Signals, each as a socket that becomes readable.
#[derive(Debug)]
pub(super) struct Caught(Vec<(i32, UnixStream)>);

impl Caught {
    /// Takes over `signals`, but those that this process was started to ignore, as nohup(1) and shells have it: they stay
    /// ignored, here and in what is started from here.
    pub(super) fn of(signals: impl IntoIterator<Item = i32>) -> io::Result<Self> {
        let ignored = ignored();
        let mut caught = Vec::new();
        for signal in signals {
            if ignored & (1 << (signal - 1)) != 0 {
                continue;
            }
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal, writer)?;
            caught.push((signal, reader));
        }
        Ok(Self(caught))
    }

    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|(_, reader)| reader.as_fd())
    }

    /// The signals that have arrived since the last call.
    pub(super) fn take(&mut self) -> impl Iterator<Item = i32> + '_ {
        self.0.iter_mut().filter_map(|(signal, reader)| {
            matches!(reader.read(&mut [0; 64]), Ok(1..)).then_some(*signal)
        })
    }
}

/// The signals that this process ignores, signal 1 in the lowest bit.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_in(&status)
}

fn ignored_in(status: &str) -> u64 {
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok())
        .unwrap_or(0)
}

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    /// This signal ends the job.
    End(i32),
    /// Ranks are to stop, and [`Interrupts::answer`] is waited for.
    Stop,
    /// They are to go on.
    Continue,
    /// This signal is for the ranks.
    Pass(i32),
    /// The front is gone: the job ends at once.
    Lost,
}

impl Told {
    fn of(signal: i32) -> Self {
        match signal {
            SIGTSTP => Self::Stop,
            SIGCONT => Self::Continue,
            signal if PASSED.contains(&signal) => Self::Pass(signal),
            signal => Self::End(signal),
        }
    }
}

/// The line to the front, whose words are numbers of signals, and signals of this process itself.
#[derive(Debug)]
pub(super) struct Interrupts {
    caught: Caught,
    front: Option<UnixStream>,
    told: Vec<Told>,
    lost: bool,
}

impl Interrupts {
    /// Takes over the signals a user or a batch system ends a job with. `front` does not block.
    pub(super) fn catch(front: Option<UnixStream>) -> io::Result<Self> {
        Ok(Self {
            caught: Caught::of(ENDING)?,
            front,
            told: Vec::new(),
            lost: false,
        })
    }

    /// What becomes readable when there is something to take.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let front = self.front.as_ref().filter(|_| !self.lost);
        self.caught.fds().chain(front.map(AsFd::as_fd))
    }

    /// The next that was told.
    pub(super) fn take(&mut self) -> Option<Told> {
        if self.told.is_empty() {
            self.told.extend(self.caught.take().map(Told::End));
            self.hear();
            self.told.reverse();
        }
        self.told.pop()
    }

    fn hear(&mut self) {
        let mut words = [0; 64];
        let Some(front) = self.front.as_mut().filter(|_| !self.lost) else {
            return;
        };
        match front.read(&mut words) {
            Ok(count @ 1..) => {
                let words = words.iter().take(count);
                self.told.extend(words.map(|word| Told::of((*word).into())));
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(0) | Err(_) => {
                self.lost = true;
                self.told.push(Told::Lost);
            }
        }
    }

    /// Says that the ranks have stopped.
    pub(super) fn answer(&mut self) {
        if let Some(front) = &mut self.front {
            // Its end is noticed elsewhere.
            let _ = front.write(&[0]);
        }
    }

    /// Whether the front is gone.
    pub(super) fn is_lost(&self) -> bool {
        self.lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_is_read() {
        let status = "Name:\tx\nSigBlk:\tffff\nSigIgn:\t0000000000001001\nSigCgt:\t1\n";
        assert_eq!(ignored_in(status), 0x1001);
        assert_eq!(ignored_in(""), 0);
    }

    #[test]
    fn words_of_the_front_come_in_order_and_its_end_last() {
        let (mut front, line) = UnixStream::pair().unwrap();
        line.set_nonblocking(true).unwrap();
        let mut told = Interrupts {
            caught: Caught(Vec::new()),
            front: Some(line),
            told: Vec::new(),
            lost: false,
        };
        assert_eq!(told.take(), None);
        let words = [SIGTSTP, SIGCONT, SIGUSR2, SIGTERM];
        front.write_all(&words.map(|w| w as u8)).unwrap();
        let expected = [
            Told::Stop,
            Told::Continue,
            Told::Pass(SIGUSR2),
            Told::End(SIGTERM),
        ];
        assert_eq!(expected.map(Some), [0; 4].map(|_| told.take()));
        assert_eq!(told.take(), None);
        told.answer();
        front.read_exact(&mut [0]).unwrap();
        drop(front);
        assert_eq!(told.fds().count(), 1);
        assert_eq!(told.take(), Some(Told::Lost));
        assert!(told.is_lost());
        assert_eq!((told.take(), told.fds().count()), (None, 0));
    }
}
