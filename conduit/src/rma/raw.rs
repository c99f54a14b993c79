//! Lending the client's memory to an operation, and puts and gets of raw addresses.
// UNSAFETY: turns slices, and the raw addresses of C callers, into memory that the interface may
// touch after the call that named it returned.
#![expect(
    unsafe_code,
    reason = "slices and addresses become memory that the interface uses after the call"
)]

use super::op::{Completion, Rma};
use crate::conduit::{Conduit, Scope};
use crate::error::RmaError;
use crate::memory::{Source, UserMem};
use crate::ops::Handle;
use crate::trace::Transfer;

/// Closes the interface if a handler unwinds while memory is lent, so that nothing touches the
/// memory once its frame is gone.
struct CloseOnUnwind<'c>(&'c Conduit);

impl Drop for CloseOnUnwind<'_> {
    fn drop(&mut self) {
        if let Ok(core) = self.0.core.try_borrow() {
            let _ = core.ni.close();
        }
        self.0.ended.set(true);
    }
}

/// Memory at an address of C; null is refused where there are bytes.
///
/// # Safety
///
/// That of [`UserMem::new`].
#[inline(always)]
pub(super) unsafe fn memory_at(addr: *mut u8, len: usize) -> Result<Source, RmaError> {
    if addr.is_null() && len > 0 {
        return Err(RmaError::Null { len });
    }
    // SAFETY: the promise of this function.
    Ok(Source::User(unsafe { UserMem::new(addr, len, 0) }))
}

impl Conduit {
    pub(super) fn lending(&self) -> u64 {
        let id = self.lendings.get() + 1;
        self.lendings.set(id);
        id
    }

    /// Lends `data` as a source to the operations that `start` starts; returns when none reads it
    /// any more.
    pub(crate) fn lend<R>(&self, data: &[u8], scope: Scope, start: impl FnOnce(UserMem) -> R) -> R {
        let guard = CloseOnUnwind(self);
        let lending = self.lending();
        // SAFETY: `data` is borrowed until this function returns, which is after the wait below for
        // every descriptor of this lending to be sent; an unwinding handler closes the interface
        // first (guard). As a source the memory is only read.
        let memory = unsafe { UserMem::new(data.as_ptr().cast_mut(), data.len(), lending) };
        let result = start(memory);
        self.wait_in("sending from lent memory", scope, |c| {
            (!c.touches(lending)).then_some(())
        });
        std::mem::forget(guard);
        result
    }

    /// Puts a slice, which is free when this returns; a blocking put is complete then.
    #[inline(always)]
    pub(super) fn put_slice(
        &self,
        node: u32,
        dest: u64,
        data: &[u8],
        completion: Completion,
    ) -> Result<Handle, RmaError> {
        let guard = CloseOnUnwind(self);
        // SAFETY: `data` is borrowed until this function returns, by when no operation reads it: the put is buffered
        // (`Conduit::rma`). An unwinding handler closes the interface first (guard).
        let memory = unsafe { UserMem::new(data.as_ptr().cast_mut(), data.len(), 0) };
        let put = Rma::put(node, dest, Source::User(memory), completion).buffered();
        let begun = self.rma(&put).map(|handle| match completion {
            Completion::Blocking => {
                self.wait_done(handle);
                Handle::DONE
            }
            _ => handle,
        });
        std::mem::forget(guard);
        begun
    }

    /// Gets into `out`; returns when all of it is there.
    #[track_caller]
    pub fn get(&self, out: &mut [u8], node: u32, src: u64) -> Result<(), RmaError> {
        if let Some(t) = &self.tracer {
            t.transfer(&Transfer {
                name: "GET",
                node,
                remote: src,
                local: out.as_ptr().addr() as u64,
                len: out.len(),
                data: &[],
            });
        }
        let guard = CloseOnUnwind(self);
        // SAFETY: `out` is borrowed mutably until this function returns, which is after the wait
        // below for the operation to be complete; an unwinding handler closes the interface first.
        let memory = unsafe { UserMem::new(out.as_mut_ptr(), out.len(), 0) };
        let get = Rma::get(node, src, Source::User(memory), Completion::Blocking);
        let done = self.rma(&get).map(|handle| self.wait_done(handle));
        std::mem::forget(guard);
        done
    }

    /// Starts a put from raw memory; null is refused. With `bulk` the memory is in use until the handle is
    /// synchronised, without it is free on return.
    ///
    /// # Safety
    ///
    /// `len` bytes at `src` are readable, with `bulk` and until the handle is synchronised they stay
    /// so and are not changed.
    #[inline]
    pub unsafe fn put_nb_raw(
        &self,
        node: u32,
        dest: u64,
        src: *const u8,
        len: usize,
        bulk: bool,
    ) -> Result<Handle, RmaError> {
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { memory_at(src.cast_mut(), len) }?;
        self.put_memory(node, dest, memory, (Completion::Explicit, bulk))
    }

    /// Starts a bulk put for a caller that waits for the handle at once.
    ///
    /// # Safety
    ///
    /// `len` bytes at `src` are readable and do not change until the handle is synchronised.
    #[inline]
    pub unsafe fn put_awaited_raw(
        &self,
        node: u32,
        dest: u64,
        src: *const u8,
        len: usize,
    ) -> Result<Handle, RmaError> {
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { memory_at(src.cast_mut(), len) }?;
        self.put_memory(node, dest, memory, (Completion::Blocking, true))
    }

    /// Starts a get for a caller that waits for the handle at once.
    ///
    /// # Safety
    ///
    /// That of [`Conduit::get_nb_raw`].
    #[inline]
    pub unsafe fn get_awaited_raw(
        &self,
        dest: *mut u8,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<Handle, RmaError> {
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { memory_at(dest, len) }?;
        self.rma(&Rma::get(node, src, memory, Completion::Blocking))
    }

    /// Starts a put that is counted with the implicit operations.
    ///
    /// # Safety
    ///
    /// That of [`Conduit::put_nb_raw`], up to the call that synchronises implicit puts.
    #[inline]
    pub unsafe fn put_nbi_raw(
        &self,
        node: u32,
        dest: u64,
        src: *const u8,
        len: usize,
        bulk: bool,
    ) -> Result<(), RmaError> {
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { memory_at(src.cast_mut(), len) }?;
        self.put_memory(node, dest, memory, (Completion::Implicit, bulk))
            .map(drop)
    }

    /// Starts a get into raw memory, whose contents are undefined until the handle is synchronised; null is
    /// refused.
    ///
    /// # Safety
    ///
    /// `len` bytes at `dest` are writable and not borrowed until the handle is synchronised.
    pub unsafe fn get_nb_raw(
        &self,
        dest: *mut u8,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<Handle, RmaError> {
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { memory_at(dest, len) }?;
        self.rma(&Rma::get(node, src, memory, Completion::Explicit))
    }

    /// Starts a get that is counted with the implicit operations.
    ///
    /// # Safety
    ///
    /// That of [`Conduit::get_nb_raw`], up to the call that synchronises implicit gets.
    pub unsafe fn get_nbi_raw(
        &self,
        dest: *mut u8,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<(), RmaError> {
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { memory_at(dest, len) }?;
        self.rma(&Rma::get(node, src, memory, Completion::Implicit))
            .map(drop)
    }

    /// Starts a put of lent memory, which with `bulk` is in use until the put is complete.
    #[inline(always)]
    fn put_memory(
        &self,
        node: u32,
        dest: u64,
        memory: Source,
        (completion, bulk): (Completion, bool),
    ) -> Result<Handle, RmaError> {
        let put = Rma::put(node, dest, memory, completion);
        self.rma(&if bulk { put } else { put.buffered() })
    }
}
