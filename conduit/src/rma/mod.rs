//! Puts and gets.
//!
//! ```text
//!   calls, raw, pieces ─► Rma ─► Core::choose ─► Protocol ─► Core::start_now ─► Started
//!                        a value  the only choice              └─ Waits ─► Conduit::start_waiting, which polls for what it needs
//! ```
//!
//! | protocol | when | file |
//! |---|---|---|
//! | copy | the segment is memory of this process too | `copy.rs` |
//! | bounce | a short put, and a chunk and a ticket are free | `short.rs` |
//! | awaited | a short get whose caller waits for it | `short.rs` |
//! | messages | any other to a segment that is pinned as a whole | `messages.rs` |
//! | held | one message to a unit that this rank holds | `../pinning/messages.rs` |
//! | units | any other to memory that is pinned by units | `../pinning/transfer.rs` |
//!
//! The remote side is RAR, reached by an offset in the peer's segment, or the descriptor of a unit.
//!
//! # Invariants
//!
//! * A protocol that does not begin without a wait has had no effect, and the operation goes by the general one.
//! * Whoever chooses chooses once: what changes while a call waits changes what the general protocol does, not which it is.

mod calls;
mod copy;
mod messages;
mod near;
mod op;
mod pieces;
mod protocol;
mod raw;
pub(crate) mod segments;
mod short;
mod sync;
pub(crate) mod temporary;

use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::error::RmaError;
use crate::fault::Fault;
use crate::memory::Source;
use crate::ops::{Handle, Key, Ops};
pub use near::Near;
pub use op::Counted;
pub(crate) use op::{Completion, Rma};
pub use pieces::Piece;
use protocol::{General, Protocol};

/// How far an operation has come without a wait.
#[derive(Debug)]
pub(crate) enum Started {
    /// It is done; whether there are events to handle.
    Done { events: bool },
    /// It is under way, or done.
    Begun(Handle),
    /// It has to wait for what it needs, and nothing has happened.
    Waits(General),
}

impl Core {
    /// Starts an operation by the protocol that was chosen for it, as far as nothing has to be waited for.
    #[inline(always)]
    fn start_now(&mut self, op: &Rma, protocol: Protocol) -> Result<Started, Fault> {
        let (started, otherwise) = match protocol {
            Protocol::Nothing => return Ok(Started::Begun(Handle::DONE)),
            Protocol::Copy { at } => {
                self.copy_near(op, at)?;
                return Ok(Started::Begun(Handle::DONE));
            }
            Protocol::Bounce { at, chunk } => {
                (self.put_bounced(op, at, chunk)?, General::Messages { at })
            }
            Protocol::Awaited { at, landing } => {
                let started = self.get_awaited(op, at, landing)?;
                (started, General::Messages { at })
            }
            Protocol::Held => (self.start_held(op)?, General::Units),
            Protocol::General(general) => (None, general),
        };
        Ok(started.unwrap_or(Started::Waits(otherwise)))
    }

    /// The slot that an operation counts on, if there is one without a wait.
    #[inline(always)]
    pub(crate) fn slot_of(&mut self, completion: Completion) -> Option<Key> {
        match completion {
            Completion::Blocking | Completion::Explicit => self.ops.explicit(),
            Completion::Implicit => Some(self.ops.implicit()),
            Completion::Part(key) => Some(key),
        }
    }

    /// An explicit operation for messages that begin now, whose handle is that of [`Conduit::begun`].
    fn explicit_op(&mut self) -> Result<Key, RmaError> {
        let op = self.ops.explicit().or_else(|| self.ops.within_call());
        op.ok_or(RmaError::TooManyOperations)
    }

    /// Whether some message still needs the memory of a lending.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.tmpmds.touches(lending) || self.pinning.touches(lending)
    }
}

impl Conduit {
    /// Starts a put or get; what its caller gets to wait for.
    #[inline(always)]
    pub(crate) fn rma(&self, op: &Rma) -> Result<Handle, RmaError> {
        if self.handler_depth.get() > 0 {
            return Err(RmaError::InHandler);
        }
        let started = {
            let core = &mut *self.core.borrow_mut();
            let protocol = core.choose(op)?;
            core.start_now(op, protocol)
        };
        self.go_on(op, started)
    }

    /// What is left to do of an operation that has been started as far as nothing had to be waited for.
    #[inline(always)]
    fn go_on(&self, op: &Rma, started: Result<Started, Fault>) -> Result<Handle, RmaError> {
        match self.check(op.name(), started) {
            Started::Begun(handle) => Ok(handle),
            Started::Done { events } => {
                self.after_awaited(events);
                Ok(Handle::DONE)
            }
            Started::Waits(general) => self.start_waiting(op, general),
        }
    }

    /// Starts an operation that needs what may have to be waited for.
    #[inline(never)]
    fn start_waiting(&self, op: &Rma, general: General) -> Result<Handle, RmaError> {
        let key = {
            let core = &mut *self.core.borrow_mut();
            match op.completion {
                Completion::Blocking | Completion::Explicit => core.explicit_op()?,
                Completion::Implicit => core.ops.implicit(),
                Completion::Part(key) => key,
            }
        };
        let mut local = op.local;
        let lending = match &mut local {
            Source::User(memory) if op.buffered => {
                memory.lending = self.lending();
                Some(memory.lending)
            }
            _ => None,
        };
        let op = Rma { local, ..*op };
        let begun = match general {
            General::Messages { at } => {
                self.start_messages(&op, at, key);
                Ok(())
            }
            General::Units => self.start_units(&op, key),
        };
        let handle = match begun {
            Ok(()) if op.completion.has_handle() => Ok(self.begun(key)),
            Ok(()) => Ok(Handle::DONE),
            Err(error) => {
                // What of it is under way ends first.
                if op.completion.has_handle() {
                    self.wait_done(Handle(Some(key)));
                }
                Err(error)
            }
        };
        if let Some(lending) = lending {
            self.wait_in("sending from lent memory", Scope::Full, |c| {
                (!c.touches(lending)).then_some(())
            });
        }
        handle
    }

    /// The handle of an explicit operation whose messages have all begun; waits for one that may not outlive its call.
    #[inline]
    fn begun(&self, key: Key) -> Handle {
        if Ops::ends_in_call(key) {
            self.wait_done(Handle(Some(key)));
            return Handle::DONE;
        }
        Handle(Some(key))
    }

    /// Where `len` bytes at `addr` are in the segment of `node`, for a call that may move them.
    pub(crate) fn check_remote(&self, node: u32, addr: u64, len: usize) -> Result<u64, RmaError> {
        if self.handler_depth.get() > 0 {
            return Err(RmaError::InHandler);
        }
        self.core.borrow().reach(node, addr, len)
    }

    /// Memory of the own segment by its offset, if this rank has a segment and it is that long.
    pub(crate) fn own_segment(&self, offset: usize, len: usize) -> Option<Source> {
        let has = self.core.borrow().has_own(offset, len);
        has.then_some(Source::Segment { offset, len })
    }

    /// The segment mode of the job.
    #[inline]
    pub(crate) fn segments(&self) -> segments::Segments {
        self.core.borrow().segments
    }
}
