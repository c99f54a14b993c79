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

use fabric_api::call::RemoteKey;
use fabric_api::call::{Paths, Target};
use fabric_api::nal::{Attendance, Awaiting, Nal};
use fabric_api::region::Region;
use fabric_shm::Shm;
use fabric_verbs::channel::Far;
use host::awake::Awake;
use portals_core::{Error, Header, Landing, MdHandle, Ni, OpId, ProcessId, Segment, Transmit};
use std::any::Any;
use std::time::{Duration, Instant};

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
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        match self.shm.peer(tx.header.target) {
            Some(peer) => self.shm.send_to(ni, peer, tx),
            None => self.verbs.send(ni, tx),
        }
    }

    #[inline]
    fn send_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        match self.shm.peer(header.target) {
            Some(_) => self.shm.send_now(header, payload),
            None => self.verbs.send_now(header, payload),
        }
    }

    #[inline]
    fn lend_now(&mut self, header: &Header, payload: &[Segment], md: MdHandle) -> Option<u64> {
        match self.shm.peer(header.target) {
            Some(_) => None,
            None => self.verbs.lend_now(header, payload, md),
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.verbs.begun(number, op);
    }

    fn makes_puts(&self) -> bool {
        self.verbs.makes_puts()
    }

    fn send_made(&mut self, header: &Header, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        self.shm.peer(header.target).is_none() && self.verbs.send_made(header, fill)
    }

    fn writes_ahead(&self, header: &Header, payload: &[Segment]) -> bool {
        self.shm.peer(header.target).is_none() && self.verbs.writes_ahead(header, payload)
    }

    fn write_ahead(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.verbs.write_ahead(ni, tx);
    }

    #[inline(always)]
    fn fetch_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        // Memory has no such way.
        self.shm.peer(from.process).is_none() && self.verbs.fetch_now(ni, md, region, from)
    }

    #[inline]
    fn fetch_awaited(&mut self, landing: &Landing, from: &Target) -> bool {
        self.shm.peer(from.process).is_none() && self.verbs.fetch_awaited(landing, from)
    }

    #[inline]
    fn send_awaited(&mut self, source: &Landing, to: &Target) -> bool {
        self.shm.peer(to.process).is_none() && self.verbs.send_awaited(source, to)
    }

    #[inline]
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        let near = self.shm.progress(ni);
        let (awaiting, far) = self.verbs.await_end(ni);
        (awaiting, near | far)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        self.verbs.unawait(ni);
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni) -> bool {
        let near = self.shm.progress(ni);
        self.verbs.progress(ni) | near
    }

    #[inline]
    fn lists_changed(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        self.shm.publish(ni, portals);
        self.verbs.tell_peers(ni, portals);
    }

    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.shm.retire(ni, md)?;
        self.verbs.retire(ni, md)
    }

    fn attendance(&self) -> Option<Attendance> {
        let mut attendance = self.verbs.attendance()?;
        attendance.alarm.push(self.shm.alarm()?);
        attendance.longest = Some(fabric_shm::LONGEST);
        Some(attendance)
    }

    fn spin(&self) -> Option<Duration> {
        self.spin
    }

    fn looks(&self) -> u32 {
        self.verbs.looks()
    }

    fn arm(&mut self) -> bool {
        self.shm.arm() & self.verbs.arm()
    }

    fn longest(&self) -> Option<Duration> {
        self.verbs.longest()
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.verbs.attend(ni)
    }

    fn due(&self) -> Option<Instant> {
        self.verbs.due()
    }

    fn is_busy(&self) -> bool {
        self.verbs.is_busy()
    }

    fn is_gone(&self) -> bool {
        self.verbs.is_gone()
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.verbs.remote_key(ni, md)
    }

    fn aim(&mut self, key: Option<RemoteKey>) {
        self.verbs.aim(key);
    }

    fn pinnable(&self) -> Option<u64> {
        self.verbs.pinnable()
    }

    fn exposable(&self) -> Option<u64> {
        self.far.then(|| self.verbs.exposable()).flatten()
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        self.verbs.distance(to)
    }

    fn shares(&self) -> bool {
        self.shm.shares()
    }

    fn window(&mut self, to: &Target) -> Option<(Region, u64, u64)> {
        self.shm.window(to)
    }

    fn extension(&mut self) -> Option<Box<dyn Any>> {
        self.shm.extension()
    }

    fn paths(&self) -> Paths {
        self.shm.paths().and(self.verbs.paths())
    }

    fn close(&mut self, ni: &mut Ni) {
        let mut left = Awake::new(self.verbs.closing_time());
        while !((self.shm.is_drained() && self.verbs.is_drained()) || left.is_over()) {
            // Connections that are being made or mended are the attendance's.
            let any = self.progress(ni);
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
