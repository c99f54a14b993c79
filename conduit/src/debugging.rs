//! Help for finding errors: ranks that wait for a debugger (`GASNET_FREEZE`, `GASNET_FREEZE_ON_ERROR`), and stack
//! traces where a job fails (`GASNET_BACKTRACE`, `GASNET_BACKTRACE_NODES`).

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
    /// What the environment asks for of a rank.
    pub(crate) fn new(rank: u32, wishes: &Wishes) -> Self {
        Self {
            rank,
            freeze: wishes.freeze_on_error,
            backtrace: wishes.backtrace && lists(wishes.backtrace_nodes.as_deref(), rank),
        }
    }

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
pub(crate) fn freeze(rank: u32) {
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
