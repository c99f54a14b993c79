//! Waits for pins: of this rank's own memory, and of what peers must do in calls of theirs.
//!
//! A peer answers when it polls, however long it computes before (GASNet asks of programs that they poll). Whoever wants to
//! hear of one that does not sets `GASNET_FIREHOSE_TIMEOUT`, of time in which this rank runs.

use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::fault::Fault;
use portals_shim::TimeLeft;
use std::time::Duration;

impl Conduit {
    /// Waits, and sends requests of pinning meanwhile.
    pub(super) fn wait_flushing<T>(&self, ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        self.wait_for_peer("pinning", None, ready)
    }

    /// Waits ([`Conduit::wait_flushing`]) for what `node`, or an unknown number of peers, must do in a call of theirs. The job
    /// ends if `GASNET_FIREHOSE_TIMEOUT` passes before.
    pub(super) fn wait_for_peer<T>(
        &self,
        call: &str,
        node: Option<u32>,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> T {
        let mut time: Option<TimeLeft> = None;
        loop {
            self.flush_pinning();
            let timeout = {
                let mut core = self.core.borrow_mut();
                if let Some(found) = ready(&mut core) {
                    return found;
                }
                core.env.firehose.timeout
            };
            // Without a limit no wait has an end of its own, which would cost virtual time.
            let left = timeout.map(|timeout| {
                let now = self.now();
                let time = time.get_or_insert_with(|| TimeLeft::new(self.clock(), now, timeout));
                let left = time.at(now);
                (left, time.slice(left))
            });
            let (left, slice) = left.unzip();
            if let (Some(timeout), Some(Duration::ZERO)) = (timeout, left) {
                let seconds = timeout.as_secs_f64();
                let fault = node.map_or(Fault::NotGivenBack { seconds }, |node| {
                    Fault::Unanswered { node, seconds }
                });
                self.fatal(call, &fault);
            }
            self.wait_step_or(call, Scope::Full, slice, None);
        }
    }
}
