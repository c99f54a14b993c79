//! What layers above the conduit build their own calls from: operations of many pieces, memset,
//! handlers of their own, and the implicit operations of several threads.
// UNSAFETY: turns the raw addresses of C callers into memory that the interface may touch after the
// call that named it returned.
#![expect(
    unsafe_code,
    reason = "addresses of C callers become memory that the interface uses after the call"
)]

use crate::am::HandlerEntry;
use crate::conduit::{Conduit, Scope};
use crate::error::{AttachError, RmaError};
use crate::lend::given;
use crate::ops::{Handle, Implicit, Key};
use crate::tmpmd::UserMem;
use crate::trace::Transfer;

/// One contiguous part of a put or get.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Address in the segment of the remote rank.
    pub remote: u64,
    /// Address of this process.
    pub local: *mut u8,
    /// Bytes.
    pub len: usize,
}

/// How an operation is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// It has a handle.
    Explicit,
    /// With the implicit operations.
    Implicit,
}

/// Bytes a memset sends in one message: what fits a chunk.
const FILL: usize = crate::chunks::CHUNK;

impl Conduit {
    /// Registers handlers of a layer between the conduit and the client, at indexes 64 to 127.
    /// Before [`Conduit::attach`], and the same on all ranks.
    pub fn register_extended(&self, handlers: Vec<HandlerEntry>) -> Result<(), AttachError> {
        if self.is_attached() {
            return Err(AttachError::Attached);
        }
        self.handlers.borrow_mut().register_extended(handlers)
    }

    /// Starts a get (or put) of many pieces as one operation. Nothing starts if a piece is bad, or
    /// goes beyond the segment of `node`.
    ///
    /// # Safety
    ///
    /// The local memory of every piece is readable and does not change (for a put), or is writable
    /// and not borrowed (for a get), until the operation is synchronised.
    pub unsafe fn transfer_pieces(
        &self,
        node: u32,
        get: bool,
        counted: Counted,
        pieces: impl Iterator<Item = Piece> + Clone,
    ) -> Result<Handle, RmaError> {
        for p in pieces.clone() {
            self.check_remote(node, p.remote, p.len)?;
            given(p.local, p.len)?;
        }
        let base = self.segment(node).addr;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let lend = |p: &Piece| unsafe { UserMem::new(p.local, p.len, 0) };
        let mut key = None;
        for p in pieces.filter(|p| p.len > 0) {
            let local = self.core.borrow().locate(lend(&p));
            let remote = p.remote - base;
            if self.copied(node, &local, remote, get) {
                continue;
            }
            let op = self.operation(counted, &mut key)?;
            self.transfer(node, remote, local, get, Some(op), false)?;
        }
        Ok(self.handle_of(counted, key))
    }

    /// The operation that messages count on; takes an explicit one when first needed. All messages of an implicit
    /// one count on the same, whatever thread's operations are counted when a wait between them ends.
    fn operation(&self, counted: Counted, key: &mut Option<Key>) -> Result<Key, RmaError> {
        if let Some(key) = key {
            return Ok(*key);
        }
        let mut core = self.core.borrow_mut();
        let new = match counted {
            Counted::Explicit => core.explicit_op()?,
            Counted::Implicit => core.ops.implicit(),
        };
        Ok(*key.insert(new))
    }

    /// The handle of an operation whose messages have begun, if it is not an implicit one.
    fn handle_of(&self, counted: Counted, key: Option<Key>) -> Handle {
        match key.filter(|_| counted == Counted::Explicit) {
            Some(key) => self.begun(key),
            None => Handle::DONE,
        }
    }

    /// Starts to set `len` bytes at address `dest` of the segment of `node` to `value`.
    #[track_caller]
    pub fn memset(
        &self,
        node: u32,
        dest: u64,
        value: u8,
        len: usize,
        counted: Counted,
    ) -> Result<Handle, RmaError> {
        if let Some(t) = &self.tracer {
            let name = match counted {
                Counted::Explicit => "MEMSET_NB",
                Counted::Implicit => "MEMSET_NBI",
            };
            t.transfer(&Transfer {
                name,
                node,
                remote: dest,
                local: 0,
                len,
                data: &[value],
            });
        }
        self.memset_quietly(node, dest, value, len, counted)
    }

    /// Sets memory of a peer without a line in a trace: for layers that write their own.
    #[doc(hidden)]
    pub fn memset_quietly(
        &self,
        node: u32,
        dest: u64,
        value: u8,
        len: usize,
        counted: Counted,
    ) -> Result<Handle, RmaError> {
        let remote = self.check_remote(node, dest, len)?;
        if len == 0 {
            return Ok(Handle::DONE);
        }
        if let Some((region, start)) = self.window_of(node) {
            let at = start + remote as usize;
            let filled = region.fill(at, len, value);
            self.check("memset", filled.map_err(crate::fault::Fault::from));
            return Ok(Handle::DONE);
        }
        let mut key = None;
        let op = self.operation(counted, &mut key)?;
        let data = [value; FILL];
        self.lend(&data, Scope::Full, |memory| -> Result<(), RmaError> {
            let mut done = 0;
            while done < len {
                let n = (len - done).min(FILL);
                let source = crate::am::request::Source::User(memory.part(0, n));
                self.transfer(node, remote + done as u64, source, false, Some(op), false)?;
                done += n;
            }
            Ok(())
        })?;
        Ok(self.handle_of(counted, key))
    }

    /// Looks whether an operation is complete, without polling; `Err` gives the handle back.
    #[inline]
    pub fn check_sync(&self, handle: Handle) -> Result<(), Handle> {
        let Handle(Some(key)) = handle else {
            return Ok(());
        };
        if self.core.borrow_mut().ops.finish(key) {
            return Ok(());
        }
        Err(Handle(Some(key)))
    }

    /// Whether the implicit operations that are asked about are complete, without polling.
    pub fn check_nbi(&self, puts: bool, gets: bool) -> bool {
        self.core.borrow().ops.implicit_done(puts, gets)
    }

    /// Whether this rank has left the job, or is leaving it.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Whether a call is at work on the state of this conduit, as one may be that a handler of the system's signals interrupted.
    pub fn is_in_use(&self) -> bool {
        self.core.try_borrow_mut().is_err()
    }

    /// The memory of the segment of `node` and where in it that begins, if it is reached by a copy.
    fn window_of(&self, node: u32) -> Option<(portals_shim::Region, usize)> {
        let core = self.core.borrow();
        let attached = core.attached.as_ref()?;
        attached.near.get(node as usize)?.clone()
    }

    /// Implicit operations of one more thread of the client; `None` when there is no slot for it.
    pub fn new_implicit(&self) -> Option<Implicit> {
        self.core.borrow_mut().ops.new_implicit()
    }

    /// Implicit operations count on `other` from here on, which becomes what they counted on.
    pub fn swap_implicit(&self, other: &mut Implicit) {
        self.core.borrow_mut().ops.swap_implicit(other);
    }

    /// The access region that is open, if one is, has no handle: its thread has ended.
    pub fn abandon_nbi_region(&self) {
        self.core.borrow_mut().ops.abandon_region();
    }
}
