//! Signals for the ranks.

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCONT, SIGTSTP};

use super::reap;

/// Sends `signal` to ranks that nobody has waited for, so that the numbers are theirs.
///
/// `SIGTSTP` becomes `SIGSTOP`: a session without a terminal cannot be stopped by the former. That, and `SIGCONT`, are
/// for the groups of the ranks. Other signals are for the ranks alone: what a rank has started may not know them, and
/// end by them.
pub(super) fn send(ranks: impl Iterator<Item = Pid>, signal: i32) {
    for rank in ranks {
        match signal {
            SIGTSTP => reap::signal_group(rank, Signal::STOP),
            SIGCONT => reap::signal_group(rank, Signal::CONT),
            signal => {
                if let Some(signal) = Signal::from_named_raw(signal) {
                    // One that has ended is no failure.
                    let _ = kill_process(rank, signal);
                }
            }
        }
    }
}
