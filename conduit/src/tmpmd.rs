//! Temporary descriptors over the client's own memory.
// UNSAFETY: tells the interface addresses of memory that Rust slices and C callers own, and copies
// answers into it.
#![expect(
    unsafe_code,
    reason = "addresses of slices and of C callers' memory go to the interface, and answers are copied there"
)]

use portals_shim::{
    EqHandle, Error, Interface, MdHandle, MdMemory, MdOptions, MdSpec, Memory, RawMemory, Region,
    RegionError, THRESHOLD_INFINITE, Unlink,
};

use crate::descriptors::Md;
use ::firehose::Unit;

/// Memory of the client, lent to the conduit for one operation.
///
/// Whoever makes one promises with [`UserMem::new`]; everything here relies on that promise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserMem {
    addr: *mut u8,
    len: usize,
    /// Which lending this memory belongs to; 0 when nobody counts.
    pub(crate) lending: u64,
}

impl UserMem {
    /// # Safety
    ///
    /// The operations started with this value touch `len` bytes at `addr`. For a put these stay readable
    /// until its local completion; for a get they stay writable and unborrowed until it is complete.
    pub(crate) unsafe fn new(addr: *mut u8, len: usize, lending: u64) -> Self {
        Self { addr, len, lending }
    }

    pub(crate) fn addr(&self) -> u64 {
        self.addr.expose_provenance() as u64
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes `from .. from + len`, or what of them exists.
    pub(crate) fn part(&self, from: usize, len: usize) -> Self {
        let from = from.min(self.len);
        Self {
            addr: self.addr.wrapping_add(from),
            len: len.min(self.len - from),
            lending: self.lending,
        }
    }

    pub(crate) fn describe(&self) -> RawMemory {
        let memory = Memory::contiguous(self.addr(), self.len as u64);
        // SAFETY: the maker of this value promised the range for as long as an operation touches it
        // (`UserMem::new`); the descriptor made of it initiates that one operation and is unlinked
        // when the operation is complete.
        unsafe { RawMemory::new(memory) }
    }

    /// Copies the memory to `to`, which it may be part of: programs name memory of their own segment.
    pub(crate) fn copy_to(&self, to: &Region, offset: usize) -> Result<(), RegionError> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: readable by the promise of `UserMem::new`.
        unsafe { to.write_raw(offset, self.addr, self.len) }
    }

    /// Copies the memory to `to`, which has its length.
    pub(crate) fn copy_to_slice(&self, to: &mut [u8]) {
        if self.len == 0 {
            return;
        }
        // SAFETY: readable by the promise of `UserMem::new`; the borrow ends with this call.
        let from = unsafe { std::slice::from_raw_parts(self.addr, self.len) };
        to.copy_from_slice(from);
    }

    /// Fills the memory with `data`, which has its length.
    pub(crate) fn fill(&self, data: &[u8]) {
        if self.len == 0 || data.len() != self.len {
            return;
        }
        // SAFETY: writable and unborrowed by the promise of `UserMem::new`; the borrow ends with
        // this call.
        let to = unsafe { std::slice::from_raw_parts_mut(self.addr, self.len) };
        to.copy_from_slice(data);
    }

    /// Fills the memory from `from`, which it may be part of.
    pub(crate) fn copy_from(&self, from: &Region, offset: usize) -> Result<(), RegionError> {
        if self.len == 0 {
            return Ok(());
        }
        // SAFETY: writable and unborrowed by the promise of `UserMem::new`.
        unsafe { from.read_raw(offset, self.addr, self.len) }
    }
}

/// One temporary descriptor.
#[derive(Debug)]
struct Tmp {
    md: MdHandle,
    lending: u64,
    /// The message no longer reads the memory, or never does (a get).
    sent: bool,
    /// The answer that ends the operation came, or none is expected.
    answered: bool,
    /// The memory is written by the answer.
    get: bool,
    /// Pinned for it.
    here: Option<Unit>,
}

/// What one that is done with gives back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TmpEnd {
    pub(crate) here: Option<Unit>,
}

/// All temporary descriptors.
#[derive(Debug, Default)]
pub(crate) struct TmpMds {
    slots: Vec<Option<Tmp>>,
    free: Vec<usize>,
}

/// What a temporary descriptor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TmpUse {
    /// A put that is acknowledged.
    Put,
    /// A put that is not (the payload of a Long).
    PutNoAck,
    /// A get.
    Get,
}

/// What an event says of a temporary descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TmpEvent {
    /// SEND_END.
    Sent,
    /// ACK or REPLY_END.
    Answered,
}

impl TmpMds {
    /// A descriptor over `memory`, which a unit holds if one is named; its index goes into the events' `user_ptr`.
    pub(crate) fn bind(
        &mut self,
        ni: &Interface,
        safe: EqHandle,
        memory: &UserMem,
        (what, here): (TmpUse, Option<Unit>),
    ) -> Result<MdHandle, Error> {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let bound = ni.md_bind(
            MdSpec {
                memory: MdMemory::Raw(memory.describe()),
                threshold: THRESHOLD_INFINITE,
                max_size: 0,
                options: MdOptions::EVENT_START_DISABLE,
                user_ptr: Md::Tmp(index).encode(),
                eq: Some(safe),
            },
            Unlink::Retain,
        );
        match bound {
            Ok(md) => {
                self.slots[index] = Some(Tmp {
                    md,
                    lending: memory.lending,
                    sent: what == TmpUse::Get,
                    answered: what == TmpUse::PutNoAck,
                    get: what == TmpUse::Get,
                    here,
                });
                Ok(md)
            }
            Err(e) => {
                self.free.push(index);
                Err(e)
            }
        }
    }

    /// Takes an event; `Some` of the end when the descriptor is done with and gone, `None` when there is
    /// no such descriptor.
    pub(crate) fn handle(
        &mut self,
        ni: &Interface,
        index: usize,
        event: TmpEvent,
    ) -> Option<Result<Option<TmpEnd>, Error>> {
        let slot = self.slots.get_mut(index)?;
        let tmp = slot.as_mut()?;
        match event {
            TmpEvent::Sent => tmp.sent = true,
            TmpEvent::Answered => tmp.answered = true,
        }
        if !(tmp.sent && tmp.answered) {
            return Some(Ok(None));
        }
        let (md, end) = (tmp.md, TmpEnd { here: tmp.here });
        *slot = None;
        self.free.push(index);
        Some(ni.md_unlink(md).map(|()| Some(end)))
    }

    /// Whether some descriptor still reads or writes the memory of a lending.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.slots
            .iter()
            .flatten()
            .any(|t| t.lending == lending && if t.get { !t.answered } else { !t.sent })
    }
}
