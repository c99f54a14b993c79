//! Help for finding errors: ranks that wait for a debugger (`GASNET_FREEZE`, `GASNET_FREEZE_ON_ERROR`), and stack
//! traces where a job fails (`GASNET_BACKTRACE`, `GASNET_BACKTRACE_NODES`).

use crate::conduit::Conduit;
use crate::trace::lists;
use signal_hook::consts::SIGCONT;
use signal_hook::iterator::Signals;
use std::backtrace::Backtrace;

/// What the environment asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// Ranks wait when they have joined the job.
    pub(crate) freeze: bool,
    /// A rank waits when it fails.
    pub(crate) freeze_on_error: bool,
    /// A rank that fails says where it is.
    pub(crate) backtrace: bool,
    /// The ranks that do; all where unset.
    pub(crate) backtrace_nodes: Option<String>,
}

/// What a rank does when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OnError {
    rank: u32,
    /// It waits for a debugger.
    pub freeze: bool,
    /// It says where it is.
    pub backtrace: bool,
}

impl OnError {
    /// Says and does what was asked for.
    pub fn act(self) {
        if self.backtrace {
            for line in Backtrace::force_capture().to_string().lines() {
                crate::say(format_args!("[{}] {line}", self.rank));
            }
        }
        if self.freeze {
            freeze(self.rank);
        }
    }
}

/// Waits for SIGCONT, which a debugger sends when it lets the process go on.
fn freeze(rank: u32) {
    // From here on a signal is kept for the wait, so that one that follows the line below is not missed.
    let Ok(mut gone_on) = Signals::new([SIGCONT]) else {
        return;
    };
    let pid = std::process::id();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    crate::say(format_args!(
        "rank {rank} waits for a debugger: on {} `gdb -p {pid}`, then `signal SIGCONT` (or `kill -CONT {pid}`)",
        host.trim()
    ));
    gone_on.forever().next();
}

impl Conduit {
    /// Waits for a debugger, if the environment says so.
    pub(crate) fn freeze_if_asked(&self) {
        let asked = self.core.borrow().env.debugging.freeze;
        if asked {
            freeze(self.mynode());
        }
    }

    /// What this rank is to do when it fails.
    pub fn on_error(&self) -> OnError {
        let rank = self.mynode();
        // A fault may come while the state is in use; then nothing is known.
        let wishes = self.core.try_borrow().map(|c| c.env.debugging.clone());
        let w = wishes.unwrap_or_default();
        OnError {
            rank,
            freeze: w.freeze_on_error,
            backtrace: w.backtrace && lists(w.backtrace_nodes.as_deref(), rank),
        }
    }

    /// Whether `GASNET_NO_CATCH_SIGNAL` names a signal.
    pub fn leaves_alone(&self, signal: i32) -> bool {
        crate::signals::is_left_alone(&self.core.borrow().env.no_catch, signal)
    }
}
