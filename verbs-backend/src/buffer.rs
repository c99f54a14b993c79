// UNSAFETY: memory that an adapter reads and writes cannot be plain Rust memory throughout.
//! Registered memory of our own: slots that requests own while posted, and windows open to peers.

#![expect(
    unsafe_code,
    reason = "memory shared with the adapter is reached by address"
)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::batch::Segment;
use crate::mr::{Access, Mr, MrError};
use crate::pd::Pd;

/// Buffers start on page boundaries, so that none shares a registered page with other data.
const PAGE: usize = 4096;
/// Slots start on cache lines.
const LINE: usize = 64;

/// A place in a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Remote {
    /// Address in the peer's address space.
    pub address: u64,
    /// The peer's key of the region that holds it.
    pub rkey: u32,
}

/// Zeroed pages.
#[derive(Debug)]
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the pages are owned, and this type gives no access to their bytes.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    fn new(length: usize) -> Result<Self, MrError> {
        let layout = Layout::from_size_align(length.max(1), PAGE)
            .map_err(|_| MrError::Memory { length })?
            .pad_to_align();
        // SAFETY: the layout is not empty, `max` sees to that.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(MrError::Memory { length })?;
        Ok(Self { start, layout })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Equal slots of one registered region, for sends and receives. Peers have no access to it. Clones are
/// handles of the same pool.
#[derive(Clone, Debug)]
pub struct BufferPool(Arc<Pool>);

#[derive(Debug)]
struct Pool {
    // Before the pages: the adapter loses its access before the memory is freed.
    mr: Option<Mr>,
    pages: Pages,
    /// Bytes of a slot that are for use, and bytes from one slot to the next.
    size: usize,
    stride: usize,
    count: u32,
    free: Mutex<Vec<u32>>,
}

impl BufferPool {
    /// Makes `count` slots of `size` bytes, registered on `pd`.
    ///
    /// # Errors
    ///
    /// There is no memory for it, or the device refuses to register it.
    pub fn new(pd: &Pd, count: u32, size: usize) -> Result<Self, MrError> {
        let (pages, stride) = Self::pages(count, size)?;
        let (start, length) = (pages.start.as_ptr(), pages.layout.size());
        // SAFETY: the pages live as long as the region (`Pool` drops it first); peers get no right.
        let mr = unsafe { Mr::register_raw(pd, start, length, Access::LOCAL_WRITE) }?;
        Ok(Self::build(Some(mr), pages, count, size, stride))
    }

    /// A pool for tests of what is done with buffers, without a device.
    #[cfg(test)]
    pub(crate) fn unregistered(count: u32, size: usize) -> Self {
        let (pages, stride) = Self::pages(count, size).expect("memory for a test");
        Self::build(None, pages, count, size, stride)
    }

    fn pages(count: u32, size: usize) -> Result<(Pages, usize), MrError> {
        let length = size
            .max(1)
            .checked_next_multiple_of(LINE)
            .and_then(|stride| Some((stride, stride.checked_mul(usize::try_from(count).ok()?)?)));
        let (stride, length) = length.ok_or(MrError::Memory { length: size })?;
        Ok((Pages::new(length)?, stride))
    }

    fn build(mr: Option<Mr>, pages: Pages, count: u32, size: usize, stride: usize) -> Self {
        let free = Mutex::new((0..count).rev().collect());
        Self(Arc::new(Pool {
            mr,
            pages,
            size,
            stride,
            count,
            free,
        }))
    }

    /// A free slot, with whatever bytes its last user left; `None` if all are in use.
    pub fn take(&self) -> Option<Buffer> {
        let slot = self.free().pop()?;
        Some(Buffer {
            pool: Arc::clone(&self.0),
            slot,
        })
    }

    /// Slots that are free now.
    pub fn available(&self) -> usize {
        self.free().len()
    }

    /// Slots in all.
    pub fn count(&self) -> u32 {
        self.0.count
    }

    /// Bytes of a slot.
    pub fn slot_size(&self) -> usize {
        self.0.size
    }

    fn free(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A slot of a [`BufferPool`]: plain bytes while it is held, the adapter's while it is posted. Dropping it
/// returns the slot to the pool.
///
/// Posting moves the buffer, so that its bytes cannot be touched before the completion:
///
/// ```compile_fail,E0382
/// # use verbs_backend::{Buffer, Qp, SendFlags, SendOp};
/// fn send(qp: &Qp, mut buffer: Buffer) {
///     qp.post_owned(0, SendOp::Send, buffer, 0..8, SendFlags::empty());
///     buffer[0] = 1; // the adapter may be reading it
/// }
/// ```
#[derive(Debug)]
pub struct Buffer {
    pool: Arc<Pool>,
    slot: u32,
}

impl Buffer {
    /// The segment of the bytes `range`, if the buffer has them.
    pub(crate) fn segment(&self, range: Range<usize>) -> Option<Segment> {
        if range.start > range.end || range.end > self.pool.size {
            return None;
        }
        let lkey = self.pool.mr.as_ref().map_or(0, Mr::lkey);
        let address = self.start().as_ptr().addr() + range.start;
        Segment::new(address, range.end - range.start, lkey)
    }

    fn start(&self) -> NonNull<u8> {
        // The slot is below the count and the pages hold count × stride bytes, so neither step overflows.
        let offset = self.pool.stride * usize::try_from(self.slot).unwrap_or(0);
        // SAFETY: the offset lies inside the pages, by the line above.
        unsafe { self.pool.pages.start.add(offset) }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the slot is this buffer's alone (the free list hands each out once), lives as long as the
        // pool, is zeroed memory, and the adapter has no request on it: posting moves the buffer away.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.pool.size) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.pool.size) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.pool
            .free
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(self.slot);
    }
}

/// Registered memory that peers may read and write at any time. Its bytes are copied in and out, never lent.
///
/// It is `Send` and not `Sync`: two threads of this side would race.
///
/// ```
/// # use verbs_backend::Window;
/// fn send<T: Send>() {}
/// send::<Window>();
/// ```
///
/// ```compile_fail,E0277
/// # use verbs_backend::Window;
/// fn share<T: Sync>() {}
/// share::<Window>();
/// ```
#[derive(Debug)]
pub struct Window {
    // Before the pages: the adapter loses its access before the memory is freed.
    mr: Mr,
    pages: Pages,
    length: usize,
    _one_thread: PhantomData<std::cell::Cell<u8>>,
}

/// A range outside a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bytes {offset} to {offset} + {length} are outside a window of {window} bytes")]
pub struct WindowRangeError {
    /// Start of the range.
    pub offset: usize,
    /// Bytes of the range.
    pub length: usize,
    /// Bytes of the window.
    pub window: usize,
}

impl Window {
    /// Makes a window of `length` zero bytes, which peers may read and write.
    ///
    /// # Errors
    ///
    /// There is no memory for it, or the device refuses to register it.
    pub fn new(pd: &Pd, length: usize) -> Result<Self, MrError> {
        let pages = Pages::new(length)?;
        let access = Access::LOCAL_WRITE
            | Access::REMOTE_READ
            | Access::REMOTE_WRITE
            | Access::REMOTE_ATOMIC;
        // SAFETY: the pages live as long as the region (the field order drops it first), and no reference to
        // their bytes is ever made.
        let mr = unsafe { Mr::register_raw(pd, pages.start.as_ptr(), length, access) }?;
        Ok(Self {
            mr,
            pages,
            length,
            _one_thread: PhantomData,
        })
    }

    /// Bytes of the window.
    pub fn length(&self) -> usize {
        self.length
    }

    /// The region behind the window.
    pub fn mr(&self) -> &Mr {
        &self.mr
    }

    /// What a peer needs to reach the byte at `offset`.
    pub fn remote(&self, offset: usize) -> Option<Remote> {
        self.mr.remote(offset)
    }

    /// Copies bytes from `offset` to `to`. A peer that writes at the same time may be seen in part.
    ///
    /// # Errors
    ///
    /// The range is not inside the window.
    pub fn read(&self, offset: usize, to: &mut [u8]) -> Result<(), WindowRangeError> {
        let from = self.check(offset, to.len())?;
        for (index, byte) in to.iter_mut().enumerate() {
            // SAFETY: `check` found the whole range inside the pages.
            let place = unsafe { from.add(index) };
            // SAFETY: valid memory; volatile, because peers change it behind the compiler's back.
            *byte = unsafe { place.read_volatile() };
        }
        Ok(())
    }

    /// Copies `from` to the bytes at `offset`.
    ///
    /// # Errors
    ///
    /// The range is not inside the window.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<(), WindowRangeError> {
        let to = self.check(offset, from.len())?;
        for (index, byte) in from.iter().enumerate() {
            // SAFETY: `check` found the whole range inside the pages.
            let place = unsafe { to.add(index) };
            // SAFETY: valid memory; volatile, because peers read it behind the compiler's back.
            unsafe { place.write_volatile(*byte) };
        }
        Ok(())
    }

    /// The byte at `offset`, with all that the peer wrote before it in the same message (polling for the last
    /// byte of a write is how one waits for it without the target's help; adapters write in order of address).
    ///
    /// # Errors
    ///
    /// The byte is not inside the window.
    pub fn load(&self, offset: usize) -> Result<u8, WindowRangeError> {
        let place = self.check(offset, 1)?;
        // SAFETY: `check` found the byte inside the pages; an atomic byte has no alignment to keep.
        let byte = unsafe { std::sync::atomic::AtomicU8::from_ptr(place.as_ptr()) };
        Ok(byte.load(std::sync::atomic::Ordering::Acquire))
    }

    fn check(&self, offset: usize, length: usize) -> Result<NonNull<u8>, WindowRangeError> {
        if offset
            .checked_add(length)
            .is_none_or(|end| end > self.length)
        {
            return Err(WindowRangeError {
                offset,
                length,
                window: self.length,
            });
        }
        // SAFETY: the offset is at most the window's length, which the pages have.
        Ok(unsafe { self.pages.start.add(offset) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_apart_and_come_back() {
        let pool = BufferPool::unregistered(3, 100);
        let mut held: Vec<Buffer> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((held.len(), pool.available()), (3, 0));
        for (value, buffer) in (1..).zip(&mut held) {
            assert_eq!(buffer.len(), 100);
            buffer.fill(value);
        }
        for (value, buffer) in (1..).zip(&held) {
            assert!(buffer.iter().all(|&byte| byte == value));
        }
        held.pop();
        assert_eq!(pool.available(), 1);
        drop(held);
        assert_eq!(pool.available(), 3);
    }

    #[test]
    fn segments_stay_inside_their_buffer() {
        let pool = BufferPool::unregistered(1, 100);
        let buffer = pool.take().unwrap();
        assert!(buffer.segment(0..100).is_some());
        assert!(buffer.segment(100..100).is_some());
        assert!(buffer.segment(0..101).is_none());
        #[expect(clippy::reversed_empty_ranges, reason = "the wrong range is the test")]
        let reversed = 5..4;
        assert!(buffer.segment(reversed).is_none());
    }

    #[test]
    fn a_buffer_outlives_its_pool_handle() {
        let pool = BufferPool::unregistered(1, 8);
        let mut buffer = pool.take().unwrap();
        drop(pool);
        buffer.fill(9);
        assert_eq!(&*buffer, [9; 8]);
    }
}
