//! Lending the client's memory to an operation, and the calls that take raw addresses.
// UNSAFETY: turns slices, and the raw addresses of C callers, into memory that the interface may
// touch after the call that named it returned.
#![expect(
    unsafe_code,
    reason = "slices and addresses become memory that the interface uses after the call"
)]

use crate::conduit::{Conduit, Scope};
use crate::error::RmaError;
use crate::extended::Counted;
use crate::ops::Handle;
use crate::tmpmd::UserMem;
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

/// Refuses null for memory that is used.
#[inline]
pub(crate) fn given(p: *const u8, len: usize) -> Result<(), RmaError> {
    if p.is_null() && len > 0 {
        return Err(RmaError::Null { len });
    }
    Ok(())
}

impl Conduit {
    fn lending(&self) -> u64 {
        let id = self.lendings.get() + 1;
        self.lendings.set(id);
        id
    }

    /// The same memory, whose operations can be waited for.
    fn lent(&self, mut memory: UserMem) -> UserMem {
        memory.lending = self.lending();
        memory
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

    /// Puts a slice at once, if that can be; see [`Conduit::put_at_once`].
    #[inline]
    pub(crate) fn put_slice_at_once(
        &self,
        node: u32,
        dest: u64,
        data: &[u8],
        counted: Counted,
    ) -> Option<Handle> {
        // SAFETY: `data` is borrowed until this function returns, by when the put has copied it or not begun.
        let memory = unsafe { UserMem::new(data.as_ptr().cast_mut(), data.len(), 0) };
        self.put_at_once(node, dest, &memory, counted)
    }

    /// Puts a slice for a caller that waits for it; see [`Conduit::put_awaited`].
    #[inline]
    pub(crate) fn put_slice_awaited(&self, node: u32, dest: u64, data: &[u8]) -> Option<Handle> {
        // SAFETY: `data` is borrowed until this function returns, by when the put has copied it or not begun.
        let memory = unsafe { UserMem::new(data.as_ptr().cast_mut(), data.len(), 0) };
        self.put_awaited(node, dest, &memory)
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
        let memory = unsafe { UserMem::new(out.as_mut_ptr(), out.len(), self.lending()) };
        let result = match self.get_awaited(&memory, node, src) {
            Some(handle) => Ok(handle),
            None => self.start_get(memory, node, src),
        };
        if let Ok(handle) = result {
            self.wait_done(handle);
            std::mem::forget(guard);
            return Ok(());
        }
        std::mem::forget(guard);
        result.map(|_| ())
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
        given(src, len)?;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { UserMem::new(src.cast_mut(), len, 0) };
        match self.put_at_once(node, dest, &memory, Counted::Explicit) {
            Some(handle) => Ok(handle),
            None => self.start_put_raw(node, dest, self.lent(memory), bulk, false),
        }
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
        given(src, len)?;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { UserMem::new(src.cast_mut(), len, 0) };
        match self.put_awaited(node, dest, &memory) {
            Some(handle) => Ok(handle),
            None => self.start_put_raw(node, dest, self.lent(memory), true, false),
        }
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
        given(dest, len)?;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { UserMem::new(dest, len, 0) };
        match self.get_awaited(&memory, node, src) {
            Some(handle) => Ok(handle),
            None => self.start_get(self.lent(memory), node, src),
        }
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
        given(src, len)?;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { UserMem::new(src.cast_mut(), len, 0) };
        match self.put_at_once(node, dest, &memory, Counted::Implicit) {
            Some(_) => Ok(()),
            None => self
                .start_put_raw(node, dest, self.lent(memory), bulk, true)
                .map(|_| ()),
        }
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
        given(dest, len)?;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { UserMem::new(dest, len, self.lending()) };
        self.start_get(memory, node, src)
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
        given(dest, len)?;
        // SAFETY: the caller's promise is that of `UserMem::new`, up to synchronisation.
        let memory = unsafe { UserMem::new(dest, len, self.lending()) };
        self.start_get_nbi(memory, node, src)
    }
}
