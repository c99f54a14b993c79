//! Word on the terminal of what a command waits for, where that lasts.

use std::io::{self, IsTerminal as _};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

/// How long a command may be silent.
const SILENCE: Duration = Duration::from_secs(2);

/// A wait that is going on, until this is dropped.
#[derive(Debug)]
pub(crate) struct Waiting {
    _goes_on: Sender<()>,
}

impl Waiting {
    /// Begins a wait. Once it has lasted 2 s `line` says so on standard error, where that is a terminal.
    pub(crate) fn begin(line: String) -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let (goes_on, ended) = channel();
        let say = move || portals_shim::say(format_args!("{line}"));
        let told = thread::Builder::new().spawn(move || tell(&ended, SILENCE, say));
        told.ok().map(|_| Self { _goes_on: goes_on })
    }
}

/// Does `say` if the wait has not ended after `silence`.
fn tell(ended: &Receiver<()>, silence: Duration, say: impl FnOnce()) {
    if ended.recv_timeout(silence) == Err(RecvTimeoutError::Timeout) {
        say();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_told_of_while_it_lasts_and_not_after_its_end() {
        for lasts in [true, false] {
            let (goes_on, ended) = channel();
            let kept = lasts.then_some(goes_on);
            let mut said = false;
            let silence = if lasts { Duration::ZERO } else { Duration::MAX };
            tell(&ended, silence, || said = true);
            assert_eq!(said, lasts);
            drop(kept);
        }
    }
}
