//! What a fabric is: how messages of one [`Ni`] reach another.
//!
//! A fabric lives below the library: it is called with the library's lock held, moves headers and
//! bytes, and reports completions to [`Ni`].

use super::bell::Bell;
use super::call::{Paths, RemoteKey, Target};
use super::region::Region;
use portals_core::{Error, Header, Landing, MdHandle, Ni, OpId, ProcessId, Segment, Transmit};
use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// [`Nal::looks`] of fabrics that are polled by a look at memory, where every rank has a core.
pub const LOOKS: u32 = 16;

/// What threads sleep on while a fabric has nothing to do.
#[derive(Debug)]
pub struct Attendance {
    /// Readable after [`Nal::arm`] when something has arrived or completed.
    pub alarm: Vec<OwnedFd>,
    /// Readable when [`Nal::attend`] has something to do.
    pub control: Vec<OwnedFd>,
    /// Wakes the thread that calls [`Nal::attend`].
    pub bell: Arc<Bell>,
    /// A thread is to make progress while the program makes no calls.
    pub thread: bool,
    /// The longest that a thread may sleep on the alarm without looking for work.
    pub longest: Option<Duration>,
}

/// How threads sleep on a fabric whose peers wake them through memory.
pub trait Nap: Send + Sync + std::fmt::Debug {
    /// Sleeps until somebody has rung since [`Nal::arm`], or the time has come; may return early.
    fn sleep(&self, until: Option<Instant>);
    /// Wakes the threads of this process that sleep.
    fn wake(&self);
}

/// What has become of an operation whose caller waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaiting {
    /// It is under way.
    Yet,
    /// The data is where it belongs.
    Done,
    /// It has failed.
    Failed,
}

/// The fabric below one interface.
///
/// Calls come one at a time, from any thread.
pub trait Nal: Send + std::fmt::Debug {
    /// Sends a message. Calls `ni.send_end(op, …)` exactly once for `tx.op`, now or from a later
    /// [`Nal::progress`], when the payload memory may be reused. May call `progress` when it is out
    /// of resources; may take what it needs out of `tx`. Messages to one target are delivered to it in the order of these calls.
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit);

    /// Sends a put if its payload can be taken at once: after `true` the memory of the payload is free, and what
    /// [`Nal::send`] promises of delivery and order holds. After `false` nothing has happened, and the put is to be
    /// given to [`Nal::send`], which does not fail for want of resources.
    fn send_now(&mut self, _header: &Header, _payload: &[Segment]) -> bool {
        false
    }

    /// Sends a put whose payload is of `md`, if it can leave at once although its memory is read from then on: after a
    /// number, which [`Nal::begun`] is to follow before anything else, what [`Nal::send`] promises holds. After `None`
    /// nothing has happened.
    fn lend_now(&mut self, _header: &Header, _payload: &[Segment], _md: MdHandle) -> Option<u64> {
        None
    }

    /// The operation of what [`Nal::lend_now`] has sent under this number.
    fn begun(&mut self, _number: u64, _op: OpId) {}

    /// Whether [`Nal::send_made`] may ever be true.
    fn makes_puts(&self) -> bool {
        false
    }

    /// Sends a put at once ([`Nal::send_now`]), whose bytes `fill` writes to where they are sent from, which has the length of the
    /// payload. After `false` it was not called.
    fn send_made(&mut self, _header: &Header, _fill: &mut dyn FnMut(&mut [u8])) -> bool {
        false
    }

    /// Whether a put with this header can be written into its target's memory by the adapters alone, so that whatever is
    /// sent to that process afterwards comes after the data; see [`Nal::write_ahead`].
    fn writes_ahead(&self, _header: &Header, _payload: &[Segment]) -> bool {
        false
    }

    /// Sends a put so, of which [`Nal::writes_ahead`] has just been true. It may have its effect before messages that were
    /// sent earlier. Ends `tx.op` as [`Nal::send`] does.
    fn write_ahead(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        self.send(ni, tx);
    }

    /// Makes a get into a region of `md`, as [`Ni::get`] has it, if it can leave at once: after `true` what [`Nal::send`]
    /// promises of it holds, and the get has begun ([`Ni::pass_get`]). After `false`, which is also the answer to one that
    /// is to be refused, nothing has happened.
    fn fetch_now(
        &mut self,
        _ni: &mut Ni,
        _md: MdHandle,
        _region: Option<(u64, u64)>,
        _from: &Target,
    ) -> bool {
        false
    }

    /// Makes the get of a landing whose caller waits for it, as [`Nal::fetch_now`] does; but no event says that it has ended:
    /// [`Nal::await_end`] does, until [`Nal::unawait`]. Nothing else is sent meanwhile. After `false` nothing has happened.
    fn fetch_awaited(&mut self, _landing: &Landing, _from: &Target) -> bool {
        false
    }

    /// Makes a put with an ack whose caller waits for that, of memory that is free again when this returns; otherwise as
    /// [`Nal::fetch_awaited`].
    fn send_awaited(&mut self, _source: &Landing, _to: &Target) -> bool {
        false
    }

    /// A look for the end of the operation that is waited for, which may leave out what [`Nal::progress`] does when it finds
    /// nothing: what has become of it, and whether there was anything. Only a fabric that makes such operations is asked.
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        (Awaiting::Yet, self.progress(ni))
    }

    /// Nobody waits any more: the operation's events come from here on, at once if it has failed. It has begun by then, as
    /// after [`Ni::pass_get`] or [`Ni::pass_put`].
    fn unawait(&mut self, _ni: &mut Ni) {}

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

    /// What to sleep on; `None` for a fabric that must be polled. Asked once, at the start.
    fn attendance(&self) -> Option<Attendance> {
        None
    }

    /// How to sleep where there is no [`Attendance`]. Asked once, at the start.
    fn nap(&self) -> Option<Arc<dyn Nap>> {
        None
    }

    /// How long a wait polls before it sleeps, if the fabric knows better than the library; asked again after [`Nal::attend`].
    fn spin(&self) -> Option<Duration> {
        None
    }

    /// Makes progress for a wait that has just done so ([`Nal::progress`]) and will again soon: may look only where an answer is
    /// likely to be, if that takes less.
    fn glance(&mut self, ni: &mut Ni) -> bool {
        self.progress(ni)
    }

    /// Polls that a wait makes in a row while it holds the lock: more than one where a poll is only a look at memory,
    /// since taking the lock costs as much as several of them, and every rank here has a core of its own, so that
    /// none is kept waiting by another one's polls. Other threads of the process wait that long at most. Asked again
    /// after [`Nal::attend`].
    fn looks(&self) -> u32 {
        1
    }

    /// From now on what arrives or completes makes the alarm readable, or ends a nap. `false` if it cannot be done.
    fn arm(&mut self) -> bool {
        false
    }

    /// The longest that a thread may sleep on the alarm now, after [`Nal::arm`]; `None`: as long as the attendance says.
    fn longest(&self) -> Option<Duration> {
        None
    }

    /// Handles what must not wait for the program's calls: connections, events of the device, timers. Returns
    /// whether there was anything.
    fn attend(&mut self, _ni: &mut Ni) -> bool {
        false
    }

    /// When [`Nal::attend`] has something to do even if nothing wakes it.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Whether somebody must make progress now although the program may make no call.
    fn is_busy(&self) -> bool {
        false
    }

    /// Whether the fabric has failed for good: nothing will come any more.
    fn is_gone(&self) -> bool {
        false
    }

    /// Static distance to a process; `None` if it cannot exist.
    fn distance(&self, to: ProcessId) -> Option<u64>;

    /// Whether peers can map regions that are made to be shared.
    fn shares(&self) -> bool {
        false
    }

    /// The memory of a peer that a message to `to` would reach, mapped here; its offset in the region, and its
    /// length. `None` where that memory cannot be mapped.
    fn window(&mut self, _to: &Target) -> Option<(Region, u64, u64)> {
        None
    }

    /// See `Interface::remote_key`; 0 where peers' adapters need nothing.
    fn remote_key(&mut self, _ni: &Ni, _md: MdHandle) -> Result<u32, Error> {
        Ok(0)
    }

    /// The put or get that is sent next is for memory that this key reaches; `None`: it was sent, or not.
    fn aim(&mut self, _key: Option<RemoteKey>) {}

    /// See `Interface::pins`.
    fn pins(&self) -> bool {
        false
    }

    /// See `Interface::pinnable`.
    fn pinnable(&self) -> Option<u64> {
        None
    }

    /// See `Interface::exposable`.
    fn exposable(&self) -> Option<u64> {
        None
    }

    /// What this fabric offers to programs that know its type, past the library; once.
    fn extension(&mut self) -> Option<Box<dyn Any>> {
        None
    }

    /// Which way the messages of this process went; a fabric with one way counts none.
    fn paths(&self) -> Paths {
        Paths::default()
    }

    /// The interface closes.
    fn close(&mut self, _ni: &mut Ni) {}
}

impl Nal for Box<dyn Nal> {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        (**self).send(ni, tx);
    }
    fn send_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        (**self).send_now(header, payload)
    }
    fn lend_now(&mut self, header: &Header, payload: &[Segment], md: MdHandle) -> Option<u64> {
        (**self).lend_now(header, payload, md)
    }
    fn begun(&mut self, number: u64, op: OpId) {
        (**self).begun(number, op);
    }
    fn makes_puts(&self) -> bool {
        (**self).makes_puts()
    }
    fn send_made(&mut self, header: &Header, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        (**self).send_made(header, fill)
    }
    fn writes_ahead(&self, header: &Header, payload: &[Segment]) -> bool {
        (**self).writes_ahead(header, payload)
    }
    fn write_ahead(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        (**self).write_ahead(ni, tx);
    }
    fn fetch_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        (**self).fetch_now(ni, md, region, from)
    }
    fn fetch_awaited(&mut self, landing: &Landing, from: &Target) -> bool {
        (**self).fetch_awaited(landing, from)
    }
    fn send_awaited(&mut self, source: &Landing, to: &Target) -> bool {
        (**self).send_awaited(source, to)
    }
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        (**self).await_end(ni)
    }
    fn unawait(&mut self, ni: &mut Ni) {
        (**self).unawait(ni);
    }
    fn progress(&mut self, ni: &mut Ni) -> bool {
        (**self).progress(ni)
    }
    fn glance(&mut self, ni: &mut Ni) -> bool {
        (**self).glance(ni)
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
    fn attendance(&self) -> Option<Attendance> {
        (**self).attendance()
    }
    fn nap(&self) -> Option<Arc<dyn Nap>> {
        (**self).nap()
    }
    fn spin(&self) -> Option<Duration> {
        (**self).spin()
    }
    fn looks(&self) -> u32 {
        (**self).looks()
    }
    fn shares(&self) -> bool {
        (**self).shares()
    }
    fn window(&mut self, to: &Target) -> Option<(Region, u64, u64)> {
        (**self).window(to)
    }
    fn extension(&mut self) -> Option<Box<dyn Any>> {
        (**self).extension()
    }
    fn arm(&mut self) -> bool {
        (**self).arm()
    }
    fn longest(&self) -> Option<Duration> {
        (**self).longest()
    }
    fn attend(&mut self, ni: &mut Ni) -> bool {
        (**self).attend(ni)
    }
    fn due(&self) -> Option<Instant> {
        (**self).due()
    }
    fn is_busy(&self) -> bool {
        (**self).is_busy()
    }
    fn is_gone(&self) -> bool {
        (**self).is_gone()
    }
    fn distance(&self, to: ProcessId) -> Option<u64> {
        (**self).distance(to)
    }
    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        (**self).remote_key(ni, md)
    }
    fn aim(&mut self, key: Option<RemoteKey>) {
        (**self).aim(key);
    }
    fn pins(&self) -> bool {
        (**self).pins()
    }
    fn pinnable(&self) -> Option<u64> {
        (**self).pinnable()
    }
    fn exposable(&self) -> Option<u64> {
        (**self).exposable()
    }
    fn paths(&self) -> Paths {
        (**self).paths()
    }
    fn close(&mut self, ni: &mut Ni) {
        (**self).close(ni);
    }
}
