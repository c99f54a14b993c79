//! What the conduit needs of the job it runs in: who it is, one meeting before the fabric carries
//! messages, and the ways to end.

use portals_shim::job::{Job, end_process};
use std::fmt;
use std::sync::Arc;

/// The exchange with the other ranks failed.
#[derive(Debug, thiserror::Error)]
#[error("start-up of the job failed: {reason}")]
pub struct ExchangeError {
    /// What the launcher said.
    pub reason: String,
}

/// A rank's side of its job. [`Job`] is the real one; [`crate::threads`] has one for ranks that
/// are threads.
pub trait Exchange: fmt::Debug + Send + Sync {
    /// This rank.
    fn rank(&self) -> u32;
    /// Ranks of the job.
    fn size(&self) -> u32;
    /// Returns when every rank is here.
    fn fence(&self) -> Result<(), ExchangeError>;
    /// Leaves the job in good order; the process goes on.
    fn leave(&self);
    /// Leaves the job in good order and ends this rank with `code`.
    fn end(&self, code: i32) -> !;
    /// Says `message` and ends all ranks at once.
    fn abort(&self, code: i32, message: &str) -> !;
    /// Ends the job from a thread beside the rank's, which may be anywhere: what the program left for its
    /// exit is not run.
    fn abort_beside(&self, code: i32, message: &str) -> ! {
        self.abort(code, message)
    }
    /// Ends the job with status 1, from a handler of a signal, which may have interrupted anything.
    fn abort_at_once(&self, message: &str) -> ! {
        self.abort(1, message)
    }
    /// This rank's thread unwinds from a panic. True if the job is ended by that: then the rank does not part from the
    /// others, which may have panicked too, and end it once more from within a destructor.
    fn panicked(&self) -> bool {
        false
    }
}

/// A job whose rank uses it for more than the conduit.
impl<E: Exchange> Exchange for Arc<E> {
    fn rank(&self) -> u32 {
        (**self).rank()
    }

    fn size(&self) -> u32 {
        (**self).size()
    }

    fn fence(&self) -> Result<(), ExchangeError> {
        (**self).fence()
    }

    fn leave(&self) {
        (**self).leave();
    }

    fn end(&self, code: i32) -> ! {
        (**self).end(code)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        (**self).abort(code, message)
    }

    fn abort_beside(&self, code: i32, message: &str) -> ! {
        (**self).abort_beside(code, message)
    }

    fn abort_at_once(&self, message: &str) -> ! {
        (**self).abort_at_once(message)
    }

    fn panicked(&self) -> bool {
        (**self).panicked()
    }
}

impl Exchange for Job {
    fn rank(&self) -> u32 {
        Job::rank(self)
    }

    fn size(&self) -> u32 {
        Job::size(self)
    }

    fn fence(&self) -> Result<(), ExchangeError> {
        Job::fence(self).map_err(|e| ExchangeError {
            reason: e.to_string(),
        })
    }

    fn leave(&self) {
        if let Err(e) = self.finalize() {
            tracing::warn!("leaving the job: {e}");
        }
    }

    fn end(&self, code: i32) -> ! {
        self.leave();
        end_process(code)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        Job::abort(self, code, message)
    }

    fn abort_beside(&self, code: i32, message: &str) -> ! {
        self.ask_to_end(code, message);
        signal_hook::low_level::exit(code)
    }

    fn abort_at_once(&self, message: &str) -> ! {
        self.say_last_words(message);
        signal_hook::low_level::exit(1)
    }
}
