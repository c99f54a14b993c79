//! Network abstraction layers: how messages of one [`Ni`] reach another.
//!
//! | module | fabric |
//! |---|---|
//! | `inproc` | threads of one process, for tests |
//! | `verbs` | RDMA |
//! | `seastar` | the simulated SeaStar: node kernels, host driver, ranks |
//!
//! A NAL lives below the library: it is called with the library's lock held, moves headers and
//! bytes, and reports completions to [`Ni`].

pub mod inproc;
pub mod seastar;
pub mod verbs;

use portals_core::{Error, MdHandle, Ni, ProcessId, Transmit};

/// The fabric below one interface.
///
/// Calls come one at a time, from any thread.
pub trait Nal: Send + std::fmt::Debug {
    /// Sends a message. Calls `ni.send_end(op, …)` exactly once for `tx.op`, now or from a later
    /// [`Nal::progress`], when the payload memory may be reused. May call `progress` when it is out
    /// of resources. Messages to one target are delivered to it in the order of these calls.
    fn send(&mut self, ni: &mut Ni, tx: Transmit);

    /// Handles what has arrived and completed, without blocking. Returns whether there was
    /// anything.
    fn progress(&mut self, ni: &mut Ni) -> bool;

    /// Whether messages to the own process go through [`Nal::send`] too; otherwise the library keeps
    /// them, which needs the process's memory to be the caller's.
    fn carries_own(&self) -> bool {
        false
    }

    /// Match lists changed since the last call; a NAL with remote access publishes or withdraws
    /// descriptors here ([`Ni::take_dirty_portals`]).
    fn lists_changed(&mut self, _ni: &mut Ni) {}

    /// `md` is about to be unlinked or changed: after the return no peer's NIC reaches its memory
    /// without the target's library.
    ///
    /// # Errors
    /// [`Error::MdInUse`] when a peer does not confirm that in time.
    fn retire(&mut self, _ni: &mut Ni, _md: MdHandle) -> Result<(), Error> {
        Ok(())
    }

    /// Static distance to a process; `None` if it cannot exist.
    fn distance(&self, to: ProcessId) -> Option<u64>;

    /// The interface closes.
    fn close(&mut self, _ni: &mut Ni) {}
}

impl Nal for Box<dyn Nal> {
    fn send(&mut self, ni: &mut Ni, tx: Transmit) {
        (**self).send(ni, tx);
    }
    fn progress(&mut self, ni: &mut Ni) -> bool {
        (**self).progress(ni)
    }
    fn carries_own(&self) -> bool {
        (**self).carries_own()
    }
    fn lists_changed(&mut self, ni: &mut Ni) {
        (**self).lists_changed(ni);
    }
    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        (**self).retire(ni, md)
    }
    fn distance(&self, to: ProcessId) -> Option<u64> {
        (**self).distance(to)
    }
    fn close(&mut self, ni: &mut Ni) {
        (**self).close(ni);
    }
}
