//! Portals over RDMA verbs and shared memory at once: ranks of one machine through memory, the others through the
//! device. One interface, one library; what is matched where does not depend on the way.
//!
//! ```text
//!   message to a rank ──► of this memory?  ├─ yes: fabric-shm
//!                                          └─ no:  fabric-verbs
//!   progress:  both, one after the other
//!   a sleep:   on the device's completion channel and on the pipe that ranks of this memory write to (shm/alarm.rs)
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `group.rs` | who shares memory with whom |
//! | `location.rs` | what ranks say of where they run, and whether one has a processor of its own |
//! | `open.rs` | the start, and the way back to the device alone where memory cannot be shared |
//! | this one | which way a message goes ([`Composite::send`](Nal::send)) |
//!
//! # Invariants
//!
//! * **A pair of ranks uses one way for the life of the interface**, and both agree which: answers go the way of
//!   their question, and the order of a pair's messages is that of the one way (rule 24 included, because one-sided
//!   operations of a pair are settled against messages of the same way).
//! * What a descriptor's owner takes back is taken back on both ways before the call returns.
//! * **No wake-up is lost.** Arming does both: completions after it make the channel readable, cells after it make the
//!   pipe readable, and the poll that follows looks at both. A sleeper waits for either.
//! * **Nobody waits for progress on one way while it withholds it on the other.** The close makes progress on both
//!   until both are drained. Waits within verbs (a withdrawal, a want of send buffers) make progress on verbs only;
//!   they end through verbs alone, as whoever they wait for handles verbs in every wait of its own. Within memory,
//!   only copies under way are waited for, which end by themselves.

mod group;
mod location;
mod open;
mod trusted;

pub use open::in_threads;
pub use open::open;

use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::nal::{Armed, Awaiting, Direction, Look, Nal, Outcome, Schedule, Waiter};
use fabric_api::op::{Capabilities, Put};
use fabric_api::region::Region;
use fabric_shm::Shm;
use fabric_verbs::channel::Far;
use host::awake::Awake;
use portals_core::{Error, Landing, MdHandle, Ni, OpId, ProcessId, ReadyPut, Transmit};
use std::time::Duration;

/// The fabric below one interface.
#[derive(Debug)]
struct Composite {
    shm: Shm,
    verbs: Far,
    /// There are ranks that do not share memory with this one.
    far: bool,
    /// How long a wait polls, where this rank has no processor of its own.
    spin: Option<Duration>,
}

impl Nal for Composite {
    #[inline]
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        match self.shm.peer(tx.header.target) {
            Some(peer) => self.shm.send_to(ni, peer, tx),
            None => self.verbs.send(ni, tx, key),
        }
    }

    #[inline]
    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        match self.shm.peer(ready.header.target) {
            Some(_) => self.shm.put(ni, ready, put),
            None => self.verbs.put(ni, ready, put),
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.verbs.begun(number, op);
    }

    #[inline(always)]
    fn get(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        // Memory has no such way.
        self.shm.peer(from.process).is_none() && self.verbs.get(ni, md, region, from)
    }

    #[inline]
    fn transfer(&mut self, way: Direction, local: &Landing, remote: &Target) -> bool {
        self.shm.peer(remote.process).is_none() && self.verbs.transfer(way, local, remote)
    }

    #[inline]
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        let near = self.shm.progress(ni, Look::All);
        let (awaiting, far) = self.verbs.await_end(ni);
        (awaiting, near | far)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        self.verbs.unawait(ni);
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni, _: Look) -> bool {
        let near = self.shm.progress(ni, Look::All);
        self.verbs.progress(ni, Look::All) | near
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.verbs.attend(ni)
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            spin: self.spin,
            ..self.verbs.schedule()
        }
    }

    fn waiter(&self) -> Waiter {
        match (self.verbs.waiter(), self.shm.alarm()) {
            (Waiter::Descriptors(mut attendance), Some(alarm)) => {
                attendance.alarm.push(alarm);
                attendance.longest = Some(fabric_shm::LONGEST);
                Waiter::Descriptors(attendance)
            }
            _ => Waiter::Poll,
        }
    }

    fn arm(&mut self) -> Armed {
        let (near, far) = (self.shm.arm(), self.verbs.arm());
        Armed {
            rings: near.rings && far.rings,
            ..far
        }
    }

    #[inline]
    fn publish(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        self.shm.publish_portals(ni, portals);
        self.verbs.tell_peers(ni, portals);
    }

    fn withdraw(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.shm.withdraw(ni, md)?;
        self.verbs.withdraw(ni, md)
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.verbs.remote_key(ni, md)
    }

    fn window(&mut self, to: &Target) -> Option<(Region, u64, u64)> {
        self.shm.window(to)
    }

    /// Memory that only ranks of this machine reach needs no pinning by programs.
    fn capabilities(&self) -> Capabilities {
        let far = self.verbs.capabilities();
        Capabilities {
            shares: true,
            pins: false,
            exposable: far.exposable.filter(|_| self.far),
            ..far
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.verbs.distance(to)
    }

    fn statistics(&self) -> Paths {
        self.shm.statistics().and(self.verbs.statistics())
    }

    fn close(&mut self, ni: &mut Ni) {
        let mut left = Awake::new(self.verbs.closing_time());
        while !((self.shm.is_drained() && self.verbs.is_drained()) || left.is_over()) {
            // Connections that are being made or mended are the attendance's.
            let any = self.progress(ni, Look::All);
            if !(self.verbs.attend(ni) | any) {
                std::thread::yield_now();
            }
        }
        self.shm.close(ni);
        self.verbs.close(ni);
    }
}

#[cfg(test)]
mod tests;
