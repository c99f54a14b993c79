//! Jobs without segments whose ranks say which memory they open: programs without unsafe code.

use crate::am::HandlerEntry;
use crate::conduit::Conduit;
use crate::error::AttachError;
use crate::rma::segments::Segments;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Conduit {
    /// Registers handlers, with no segment: puts, gets and Longs name memory of other ranks by its address, where these
    /// have opened it ([`Conduit::open`]); all else is no memory to them. What of it is pinned, and when, is decided by
    /// firehoses; sources and destinations of the own side are pinned for each message. Collective, and instead of
    /// [`Conduit::attach`].
    pub fn attach_open(&self, handlers: Vec<HandlerEntry>) -> Result<Vec<u8>, AttachError> {
        if self.gate.is_some() {
            return Err(AttachError::Shared);
        }
        self.attach_pinning(handlers, Segments::Opened, 0)
    }

    /// Opens words of the heap to all ranks and gives their address, which is good as long as the process lives: the
    /// memory is never freed. In a job of [`Conduit::attach_open`]; elsewhere it changes nothing.
    ///
    /// Other ranks write them at any time; what is written before a barrier is read after it.
    pub fn open(&self, words: &Arc<[AtomicU64]>) -> u64 {
        let addr = words.as_ptr().expose_provenance() as u64;
        if let Some(home) = self.core.borrow_mut().home.as_mut() {
            home.maps
                .open(addr, size_of_val::<[AtomicU64]>(words) as u64);
            std::mem::forget(words.clone());
        }
        addr
    }
}
