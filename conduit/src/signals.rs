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
//! Where time is wall time a thread wakes a rank that waits. Where it is virtual there is none: the
//! model counts on what threads a rank has; a rank that waits sees the signal with its next event,
//! and TERM keeps its default.

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::{Handle, Signals as Arriving};
use signal_hook::{flag, low_level};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Called on a thread of its own when a signal arrives.
pub(crate) type Wake = Box<dyn Fn() + Send>;

/// The signals of this process, while it is in a job.
#[derive(Debug)]
pub(crate) struct Signals {
    seen: Arc<AtomicBool>,
    /// Whoever sent the signal waits, and kills in the end.
    hasty: Arc<AtomicBool>,
    /// The job is over: signals do again what they do by default.
    over: Arc<AtomicBool>,
    handle: Option<Handle>,
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
    pub(crate) fn catch(left_alone: &[String], wake: Option<Wake>) -> io::Result<Self> {
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
        let handle = match wake {
            None => None,
            Some(wake) => {
                let mut arriving = Arriving::new(&caught)?;
                let handle = arriving.handle();
                std::thread::Builder::new()
                    .name("signals".into())
                    .spawn(move || arriving.forever().for_each(|_| wake()))?;
                Some(handle)
            }
        };
        Ok(Self {
            seen,
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

impl Drop for Signals {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(handle) = &self.handle {
            handle.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
