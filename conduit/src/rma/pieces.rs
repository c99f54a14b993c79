//! Operations of many pieces, and memset.
// UNSAFETY: turns the raw addresses of C callers into memory that the interface may touch after the
// call that named it returned.
#![expect(
    unsafe_code,
    reason = "addresses of C callers become memory that the interface uses after the call"
)]

use super::op::{Completion, Counted, Rma};
use super::protocol::Protocol;
use super::raw::memory_at;
use crate::conduit::{Conduit, Scope};
use crate::error::RmaError;
use crate::fault::Fault;
use crate::memory::Source;
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
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let lent = |p: &Piece| unsafe { memory_at(p.local, p.len) };
        for p in pieces.clone() {
            self.check_remote(node, p.remote, p.len)?;
            lent(&p)?;
        }
        let mut key = None;
        for p in pieces {
            let (memory, all) = (lent(&p)?, Completion::from(counted));
            let op = if get {
                Rma::get(node, p.remote, memory, all)
            } else {
                Rma::put(node, p.remote, memory, all)
            };
            self.start_piece(&op, counted, &mut key)?;
        }
        Ok(self.handle_of(counted, key))
    }

    /// Starts a piece of the operation `key`, which is taken when a piece first needs it.
    fn start_piece(
        &self,
        piece: &Rma,
        counted: Counted,
        key: &mut Option<Key>,
    ) -> Result<(), RmaError> {
        let protocol = self.core.borrow().choose(piece)?;
        let part = match protocol {
            Protocol::Nothing | Protocol::Copy { .. } => *piece,
            _ => piece.part_of(self.operation(counted, key)?),
        };
        let started = self.core.borrow_mut().start_now(&part, protocol);
        self.go_on(&part, started).map(drop)
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
        let filled = {
            let core = self.core.borrow();
            let near = core.near(node);
            near.map(|(region, start)| region.fill(start + remote as usize, len, value))
        };
        if let Some(filled) = filled {
            self.check("memset", filled.map_err(Fault::from));
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
}
