//! What a fabric is: how messages of one [`Ni`] reach another.
//!
//! A fabric lives below the library: it is called with the library's lock held, moves headers and
//! bytes, and reports completions to [`Ni`].
//!
//! | methods | what for |
//! |---|---|
//! | [`send`](Nal::send) | any message; all that a simple fabric has |
//! | [`put`](Nal::put), [`begun`](Nal::begun), [`get`](Nal::get) | an operation that can leave at once, before the library keeps any record of it |
//! | [`transfer`](Nal::transfer), [`await_end`](Nal::await_end), [`unawait`](Nal::unawait) | an operation whose caller waits for it |
//! | [`progress`](Nal::progress), [`attend`](Nal::attend), [`schedule`](Nal::schedule) | what has arrived; what must not wait for the program |
//! | [`waiter`](Nal::waiter), [`arm`](Nal::arm) | what to sleep on |
//! | [`publish`](Nal::publish), [`withdraw`](Nal::withdraw), [`remote_key`](Nal::remote_key), [`window`](Nal::window) | memory that peers reach by themselves |
//! | [`capabilities`](Nal::capabilities), [`distance`](Nal::distance), [`statistics`](Nal::statistics), [`close`](Nal::close) | the rest |

use super::bell::Bell;
use super::call::{Paths, RemoteKey, Target};
use super::op::{Capabilities, Put};
use super::region::Region;
use portals_core::{Error, Landing, MdHandle, Ni, OpId, ProcessId, ReadyPut, Transmit};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// [`Schedule::looks`] of fabrics that are polled by a look at memory, where every rank has a core.
pub const LOOKS: u32 = 16;

/// What threads sleep on while a fabric has nothing to do.
#[derive(Debug)]
pub enum Waiter {
    /// Nothing: the fabric must be polled.
    Poll,
    /// Descriptors.
    Descriptors(Attendance),
    /// Memory, through which peers wake.
    Memory(Arc<dyn Nap>),
}

/// The descriptors that threads sleep on.
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

/// When a fabric has to be looked at, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// When [`Nal::attend`] has something to do even if nothing wakes it.
    pub due: Option<Instant>,
    /// Somebody must make progress now although the program may make no call.
    pub busy: bool,
    /// The fabric has failed for good: nothing will come any more.
    pub gone: bool,
    /// How long a wait polls before it sleeps, if the fabric knows better than the library.
    pub spin: Option<Duration>,
    /// Polls that a wait makes in a row while it holds the lock: more than one where a poll is only a look at memory,
    /// since taking the lock costs as much as several of them, and every rank here has a core of its own, so that
    /// none is kept waiting by another one's polls. Other threads of the process wait that long at most.
    pub looks: u32,
}

impl Schedule {
    /// Of a fabric that needs no attention.
    pub const NEVER: Self = Self {
        due: None,
        busy: false,
        gone: false,
        spin: None,
        looks: 1,
    };
}

/// What ends a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Armed {
    /// What arrives or completes does.
    pub rings: bool,
    /// The longest sleep; `None`: as long as the attendance says.
    pub longest: Option<Duration>,
}

impl Armed {
    /// Nothing does.
    pub const NOT: Self = Self::ringing(false);

    /// Whether what arrives or completes does, after however long.
    pub const fn ringing(rings: bool) -> Self {
        Self {
            rings,
            longest: None,
        }
    }
}

/// What has become of a put that was to leave at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing has happened.
    Declined,
    /// It has left, and the memory of its payload is free. What [`Nal::send`] promises of delivery and order holds.
    Taken,
    /// It has left, and its memory is read from now on. [`Nal::begun`] is to follow with this number before anything else.
    Lent(u64),
}

/// Which way the data of an operation goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From here to the target: a put with an ack.
    Write,
    /// From the target to here: a get.
    Read,
}

/// Where a look for arrivals looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Everywhere.
    All,
    /// Where an answer is likely to be, if that takes less: of a wait that has just looked everywhere, and will again soon.
    Likely,
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
/// Calls come one at a time, from any thread. A fabric without a way of its own for something leaves out the method.
pub trait Nal: Send + std::fmt::Debug {
    /// Whether messages to the own process go through [`Nal::send`] too; otherwise the library keeps
    /// them, which needs the process's memory to be the caller's.
    const CARRIES_OWN: bool = false;

    /// Sends a message. Calls `ni.send_end(op, …)` exactly once for `tx.op`, now or from a later
    /// [`Nal::progress`], when the payload memory may be reused. May call `progress` when it is out
    /// of resources; may take what it needs out of `tx`. Messages to one target are delivered to it in the order of these calls.
    /// `key` reaches the memory that a put or get is for.
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>);

    /// Sends a put that can leave at once; `ready` has its header and the memory of its descriptor. One that is declined is given to
    /// [`Nal::send`] in [`Mode::Standard`](super::op::Mode), and not made in the others. It may be lent only where [`Ni::has_room`], and not in
    /// [`Mode::AtOnce`](super::op::Mode).
    fn put(&mut self, _ni: &mut Ni, _ready: &ReadyPut, _put: &mut Put<'_>) -> Outcome {
        Outcome::Declined
    }

    /// The operation of what [`Nal::put`] has sent under this number.
    fn begun(&mut self, _number: u64, _op: OpId) {}

    /// Makes a get into a region of `md`, as [`Ni::get`] has it, if it can leave at once: after `true` what [`Nal::send`]
    /// promises of it holds, and the get has begun ([`Ni::pass_get`]). After `false`, which is also the answer to one that
    /// is to be refused, nothing has happened.
    fn get(
        &mut self,
        _ni: &mut Ni,
        _md: MdHandle,
        _region: Option<(u64, u64)>,
        _from: &Target,
    ) -> bool {
        false
    }

    /// Makes the operation of a landing whose caller waits for it, a put of memory that is free again when this returns. No
    /// event says that it has ended: [`Nal::await_end`] does, until [`Nal::unawait`]. Nothing else is sent meanwhile. After `false`
    /// nothing has happened.
    fn transfer(&mut self, _way: Direction, _local: &Landing, _remote: &Target) -> bool {
        false
    }

    /// A look for the end of the operation that is waited for, which may leave out what [`Nal::progress`] does when it finds
    /// nothing: what has become of it, and whether there was anything. Only a fabric that makes such operations is asked.
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        (Awaiting::Yet, self.progress(ni, Look::All))
    }

    /// Nobody waits any more: the operation's events come from here on, at once if it has failed. It has begun by then, as
    /// after [`Ni::pass_get`] or [`Ni::pass_put`].
    fn unawait(&mut self, _ni: &mut Ni) {}

    /// Handles what has arrived and completed, without blocking. Returns whether there was
    /// anything.
    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool;

    /// Handles what must not wait for the program's calls: connections, events of the device, timers. Returns
    /// whether there was anything.
    fn attend(&mut self, _ni: &mut Ni) -> bool {
        false
    }

    /// When the fabric has to be looked at. Only who calls [`Nal::attend`] asks, before the first time and after each, and keeps to it.
    fn schedule(&self) -> Schedule {
        Schedule::NEVER
    }

    /// What to sleep on. Asked once, at the start.
    fn waiter(&self) -> Waiter {
        Waiter::Poll
    }

    /// From now on what arrives or completes ends a sleep, if that can be.
    fn arm(&mut self) -> Armed {
        Armed::NOT
    }

    /// Match lists changed since the last call; a NAL with remote access publishes or withdraws
    /// descriptors here ([`Ni::take_dirty_portals`]).
    fn publish(&mut self, _ni: &mut Ni) {}

    /// `md` is about to be unlinked or changed: after the return no peer's NIC reaches its memory
    /// without the target's library.
    ///
    /// # Errors
    /// [`Error::MdInUse`] when a peer does not confirm that in time.
    fn withdraw(&mut self, _ni: &mut Ni, _md: MdHandle) -> Result<(), Error> {
        Ok(())
    }

    /// See `Interface::remote_key`; 0 where peers' adapters need nothing.
    fn remote_key(&mut self, _ni: &Ni, _md: MdHandle) -> Result<u32, Error> {
        Ok(0)
    }

    /// The memory of a peer that a message to `to` would reach, mapped here; its offset in the region, and its
    /// length. `None` where that memory cannot be mapped.
    fn window(&mut self, _to: &Target) -> Option<(Region, u64, u64)> {
        None
    }

    /// What the fabric can do; what of it are limits may change.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Static distance to a process; `None` if it cannot exist.
    fn distance(&self, to: ProcessId) -> Option<u64>;

    /// Which way the messages of this process went; a fabric with one way counts none.
    fn statistics(&self) -> Paths {
        Paths::default()
    }

    /// The interface closes.
    fn close(&mut self, _ni: &mut Ni) {}
}
