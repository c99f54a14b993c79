//! Operations of many pieces, and memset.
// UNSAFETY: turns the raw addresses of C callers into memory that the interface may touch after the
// call that named it returned.
#![expect(
    unsafe_code,
    reason = "addresses of C callers become memory that the interface uses after the call"
)]

use super::op::{Completion, Counted, Rma};
use super::protocol::Protocol;
use super::raw::given;
use crate::conduit::{Conduit, Scope};
use crate::error::RmaError;
use crate::memory::{Source, UserMem};
use crate::ops::{Handle, Key};
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

/// Bytes a memset sends in one message: what fits a chunk.
const FILL: usize = crate::chunks::CHUNK;

impl Conduit {
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
        let mut key = None;
        for p in pieces {
            // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
            let memory = Source::User(unsafe { UserMem::new(p.local, p.len, 0) });
            let all = Completion::from(counted);
            let op = if get {
                Rma::get(node, p.remote, memory, all)
            } else {
                Rma::put(node, p.remote, memory, all)
            };
            let protocol = self.core.borrow().choose(&op)?;
            self.start_part(&op, protocol, counted, &mut key)?;
        }
        Ok(self.handle_of(counted, key))
    }

    /// Starts a part of an operation, which is taken when something of it first begins.
    fn start_part(
        &self,
        op: &Rma,
        protocol: Protocol,
        counted: Counted,
        key: &mut Option<Key>,
    ) -> Result<(), RmaError> {
        match protocol {
            Protocol::Nothing => Ok(()),
            Protocol::Copy { at } => {
                let copied = self.core.borrow().copy_near(op, at);
                self.check(op.name(), copied);
                Ok(())
            }
            _ => {
                let all = self.operation(counted, key)?;
                self.rma(&op.part_of(all)).map(drop)
            }
        }
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
                let part = Source::User(memory.part(0, n));
                let part = Rma::put(node, dest + done as u64, part, Completion::Part(op));
                let _ = self.rma(&part)?;
                done += n;
            }
            Ok(())
        })?;
        Ok(self.handle_of(counted, key))
    }

    /// The memory of the segment of `node` and where in it that begins, if it is reached by a copy.
    fn window_of(&self, node: u32) -> Option<(portals_shim::Region, usize)> {
        let core = self.core.borrow();
        let attached = core.attached.as_ref()?;
        attached.near.get(node as usize)?.clone()
    }
}
