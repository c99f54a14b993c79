//! Signals that end a job.
//!
//! A handler only records the signal. What follows happens in the next call that polls, on the
//! thread that makes it, where the conduit may be used:
//!
//! ```text
//!   INT, TERM, HUP ─► recorded ─► next poll: raises QUIT ─► the client's handler, if it has one
//!   QUIT ───────────► recorded ─┘                        └► else exit(1), or what `set_signal_status` said
//!   a second INT, TERM or HUP ends the process at once with status 1
//! ```
//!
//! Where time is wall time a thread wakes a rank that waits. Where it is virtual the thread makes no
//! call, as a call would wait for the rank's; a rank that waits sees the signal with its next event, and
//! TERM keeps its default.
//!
//! A rank may never call again. Then the thread ends it, and so the job:
//!
//! ```text
//!   recorded ── longest exit passes ─► QUIT for the process ─► ours has run, or it passes again ─► end
//! ```

use portals_shim::ids::signal_own;
use portals_shim::{Awake, spawn_bystander, spawn_own_thread};
use rustix::process::Signal;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::backend::{Handle, SignalDelivery};
use signal_hook::iterator::exfiltrator::SignalOnly;
use signal_hook::{flag, low_level};
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Called on a thread of its own when a signal arrives.
pub(crate) type Wake = Box<dyn Fn() + Send>;

/// Ends the job because of a signal of this number; called on a thread of its own.
pub(crate) type End = Box<dyn FnOnce(i32) + Send>;

/// For a rank that makes no call in which it could see a signal.
pub(crate) struct Deaf {
    /// How long it has to make one, and a client's handler of SIGQUIT to end the job; of wall time.
    pub(crate) patience: Duration,
    pub(crate) end: End,
}

/// The signals of this process, while it is in a job.
#[derive(Debug)]
pub(crate) struct Signals {
    seen: Arc<AtomicBool>,
    /// The rank sees to its end itself.
    answered: Arc<AtomicBool>,
    /// Whoever sent the signal waits, and kills in the end.
    hasty: Arc<AtomicBool>,
    /// The job is over: signals do again what they do by default.
    over: Arc<AtomicBool>,
    handle: Handle,
}

/// Whether `list`, of `GASNET_NO_CATCH_SIGNAL`, names `signal`: `SIGINT`, `int`, `2`, or `*` for all.
pub(crate) fn is_left_alone(list: &[String], signal: i32) -> bool {
    let name = low_level::signal_name(signal).unwrap_or_default();
    list.iter().any(|word| {
        word == "*"
            || word.parse() == Ok(signal)
            || word.eq_ignore_ascii_case(name)
            || name
                .strip_prefix("SIG")
                .is_some_and(|short| word.eq_ignore_ascii_case(short))
    })
}

impl Signals {
    /// Records signals from here on; `wake` is there where a waiting rank can be woken.
    pub(crate) fn catch(left_alone: &[String], wake: Option<Wake>, deaf: Deaf) -> io::Result<Self> {
        let caught = [SIGINT, SIGTERM, SIGHUP, SIGQUIT]
            .into_iter()
            .filter(|s| !is_left_alone(left_alone, *s))
            .filter(|s| *s != SIGTERM || wake.is_some());
        let caught: Vec<i32> = caught.collect();
        let seen = Arc::new(AtomicBool::new(false));
        let hasty = Arc::new(AtomicBool::new(false));
        let over = Arc::new(AtomicBool::new(false));
        let again = Arc::new(AtomicBool::new(false));
        // Actions of a signal run in this order.
        for &signal in &caught {
            flag::register_conditional_default(signal, over.clone())?;
            if signal != SIGQUIT {
                flag::register_conditional_shutdown(signal, 1, again.clone())?;
                flag::register(signal, again.clone())?;
            }
            if signal == SIGTERM {
                flag::register(signal, hasty.clone())?;
            }
            flag::register(signal, seen.clone())?;
        }
        let answered = Arc::new(AtomicBool::new(false));
        let (read, write) = UnixStream::pair()?;
        let mut arriving = SignalDelivery::with_pipe(read, write, SignalOnly, &caught)?;
        let handle = arriving.handle();
        let mut listener = Listener::Idle(deaf, answered.clone());
        let makes_no_calls = wake.is_none();
        let listen = move || {
            while has_come(arriving.get_read_mut()) && !arriving.handle().is_closed() {
                for signal in arriving.pending() {
                    if let Some(wake) = &wake {
                        wake();
                    }
                    listener = listener.hear(signal);
                }
            }
        };
        if makes_no_calls {
            spawn_bystander("signals", listen)?;
        } else {
            spawn_own_thread("signals", listen)?;
        }
        Ok(Self {
            seen,
            answered,
            hasty,
            over,
            handle,
        })
    }

    /// Whether a signal arrived since the last call.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.seen.load(Ordering::Relaxed) && self.seen.swap(false, Ordering::Relaxed)
    }

    /// The rank is on its way out, with a limit of its own.
    pub(crate) fn answer(&self) {
        self.answered.store(true, Ordering::Relaxed);
    }

    /// Whether the job is to end at once.
    pub(crate) fn is_hasty(&self) -> bool {
        self.hasty.load(Ordering::Relaxed)
    }

    /// Lets the client's handler of SIGQUIT run, if it has one; ours only records.
    pub(crate) fn tell_client(&self) {
        if let Err(e) = low_level::raise(SIGQUIT) {
            tracing::debug!("cannot raise SIGQUIT: {e}");
        }
    }
}

/// Waits for news of signals; whether there can be any. A program may close all its descriptors, and ours with them.
fn has_come(mut news: &UnixStream) -> bool {
    loop {
        match news.read(&mut [0; 64]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            read => return matches!(read, Ok(1..)),
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.handle.close();
    }
}

/// What is done about a rank that may be deaf.
enum Listener {
    /// No signal yet.
    Idle(Deaf, Arc<AtomicBool>),
    /// A thread waits, and is told of further signals. It ends when the other end is dropped.
    Waiting(Sender<i32>),
    /// Without a thread for it nothing can be done.
    Without,
}

impl Listener {
    fn hear(self, signal: i32) -> Self {
        match self {
            Self::Idle(deaf, answered) => {
                let (tell, told) = channel();
                match spawn_own_thread("deadline", move || deaf.wait(signal, &told, &answered)) {
                    Ok(_) => Self::Waiting(tell),
                    Err(_) => Self::Without,
                }
            }
            Self::Waiting(tell) => {
                // Nobody listens any more when the rank has answered.
                let _ = tell.send(signal);
                Self::Waiting(tell)
            }
            Self::Without => Self::Without,
        }
    }
}

impl Deaf {
    /// Ends the job on account of `signal`, unless the rank answers or leaves the job; `told` has the signals after it.
    fn wait(self, signal: i32, told: &Receiver<i32>, answered: &AtomicBool) {
        let is_deaf = || !answered.load(Ordering::Relaxed);
        if !passes(self.patience, told, |_| false) || !is_deaf() {
            return;
        }
        if signal != SIGQUIT {
            // A client's handler runs on the rank's own thread, if that takes signals, and may end the job from there.
            if let Err(e) = signal_own(Signal::QUIT) {
                tracing::debug!("cannot send SIGQUIT: {e}");
            }
            if !passes(self.patience, told, |s| s == SIGQUIT) || !is_deaf() {
                return;
            }
        }
        (self.end)(signal);
    }
}

/// Waits so long, or until a signal is `enough`; `false` when there is nobody left to wait for. A program that was stopped
/// meanwhile could make no call, so that its standstill does not count.
fn passes(time: Duration, told: &Receiver<i32>, enough: impl Fn(i32) -> bool) -> bool {
    let mut left = Awake::new(time);
    loop {
        match told.recv_timeout(left.slice()) {
            Ok(signal) if enough(signal) => return true,
            Err(RecvTimeoutError::Disconnected) => return false,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
        }
        if left.is_over() {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A signal that is not enough neither ends the wait nor begins it anew.
    #[test]
    fn a_wait_ends_by_its_time_by_a_signal_or_by_nobody() {
        let (tell, told) = channel();
        tell.send(SIGTERM).unwrap();
        tell.send(SIGQUIT).unwrap();
        let long = Duration::from_secs(3600);
        assert!(passes(long, &told, |s| s == SIGQUIT));
        tell.send(SIGTERM).unwrap();
        assert!(passes(Duration::from_millis(1), &told, |s| s == SIGQUIT));
        drop(tell);
        assert!(!passes(long, &told, |_| true));
    }

    #[test]
    fn names_of_signals_left_alone() {
        let list = |words: &str| words.split(',').map(str::to_owned).collect::<Vec<_>>();
        for words in ["SIGINT", "INT", "int", "2", "SEGV,int", "*"] {
            assert!(is_left_alone(&list(words), SIGINT), "{words}");
        }
        for words in ["", "SIGTERM,15", "INTS", "22"] {
            assert!(!is_left_alone(&list(words), SIGINT), "{words}");
        }
    }
}
