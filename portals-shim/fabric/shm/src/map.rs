// UNSAFETY: maps memory that other processes write, hands out its atomic words, and copies between it and the
// memory of descriptors through raw pointers, because no Rust reference may ever point into bytes that others write.
#![expect(
    unsafe_code,
    reason = "maps memory that other processes write, and copies through raw pointers"
)]
//! Shared memory: anonymous files that are sealed against shrinking, mapped, read and written in checked ranges.
//!
//! # Invariants
//!
//! * A file is sealed before anybody maps it, and every mapper looks at the seal: no peer can cut it off under a
//!   mapping and so end this process with a bus error.
//! * Nothing has a name in any file system; the memory is gone with its last mapping and descriptor.
//! * Every access is within the mapping: ranges are checked here, whatever the caller worked out from a peer's words.
//! * A file that one rank writes can be mapped for reading only by whoever is handed it, from before it is handed over.

use host::shared_file::look_at;
use portals_core::Segment;
use rustix::mm::{MapFlags, ProtFlags};
use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Bytes that processors hand to one another together.
pub(super) const LINE: usize = 64;

/// A mapping of one or several shared files.
#[derive(Debug)]
pub(super) struct Map {
    base: NonNull<u8>,
    len: usize,
    /// Whole lines.
    lines: usize,
}

// SAFETY: the mapping is plain memory owned by this value and reached through raw copies and atomics only.
unsafe impl Send for Map {}
// SAFETY: as for Send; concurrent copies of the same bytes mix them, which their users expect of a peer anyway.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: base and len are those of the successful mmap in `Map::new`; every pointer handed out borrows
        // this value, so none is left.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl Map {
    /// Maps a file of exactly `len` bytes that cannot shrink.
    pub(super) fn new(fd: impl AsFd, len: usize) -> io::Result<Self> {
        let fd = fd.as_fd();
        look_at(fd, len)?;
        // SAFETY: a shared mapping at an address the kernel chooses overlaps nothing; the seal looked at above keeps
        // all of it backed by the file for its whole life.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                fd,
                0,
            )
        }?;
        // SAFETY: mapped above.
        unsafe { host::dump::leave_out(base, len) };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            len,
            lines: len / LINE,
        })
    }

    /// Room for `len` bytes, in which files are to be [placed](Map::place) everywhere before it is used.
    pub(super) fn reserve(len: usize) -> io::Result<Self> {
        // SAFETY: an anonymous private mapping at an address the kernel chooses overlaps nothing; nothing can be read or
        // written there.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        }?;
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            base,
            len,
            lines: len / LINE,
        })
    }

    /// Maps a file of exactly `len` bytes that cannot shrink at `at`, for writing too or for reading only.
    pub(super) fn place(
        &mut self,
        fd: impl AsFd,
        (at, len): (usize, usize),
        write: bool,
    ) -> io::Result<()> {
        let fd = fd.as_fd();
        look_at(fd, len)?;
        let to = self.at(at, len).cast::<c_void>();
        let write = if write {
            ProtFlags::WRITE
        } else {
            ProtFlags::empty()
        };
        // SAFETY: the range is within the mapping that this value owns, by `at`, and nobody has a pointer into that, as
        // this borrow is exclusive; the seal looked at above keeps all of it backed by the file.
        unsafe {
            rustix::mm::mmap(
                to,
                len,
                ProtFlags::READ | write,
                MapFlags::SHARED | MapFlags::FIXED,
                fd,
                0,
            )
        }?;
        // SAFETY: mapped above.
        unsafe { host::dump::leave_out(to, len) };
        Ok(())
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether the range is within the mapping.
    #[inline]
    fn holds(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }

    /// The first byte of a range. A range outside the mapping is a fault of this module's users, who check what
    /// peers say against the layout.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> *mut u8 {
        if !self.holds(offset, len) {
            outside(offset, len, self.len);
        }
        self.base.as_ptr().wrapping_add(offset)
    }

    /// Line `number`, which begins at so many times [`LINE`].
    #[inline]
    pub(super) fn line(&self, number: usize) -> Line<'_> {
        if number >= self.lines {
            outside(number, 1, self.lines);
        }
        Line {
            base: self.base.as_ptr().wrapping_add(number * LINE),
            map: PhantomData,
        }
    }

    /// The 32-bit word at `offset`, a multiple of 4.
    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        if !offset.is_multiple_of(4) {
            uneven(offset);
        }
        let at = self.at(offset, 4);
        // SAFETY: in range by `at`, aligned by the check above (the base is page aligned), alive as long as `self`;
        // other processes use the word through atomics only, or are hostile, which an atomic bears.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// The 64-bit word at `offset`, a multiple of 8.
    #[inline]
    pub(super) fn long(&self, offset: usize) -> &AtomicU64 {
        if !offset.is_multiple_of(8) {
            uneven(offset);
        }
        let at = self.at(offset, 8);
        // SAFETY: as in `word`.
        unsafe { AtomicU64::from_ptr(at.cast()) }
    }

    /// Asks for line `number`, which is to be written soon. A hint.
    #[inline]
    pub(super) fn prepare_write(&self, number: usize) {
        let at = self.base.as_ptr().wrapping_add(number.wrapping_mul(LINE));
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: a prefetch has no effect that a program sees, whatever the address.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(at.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Asks for line `number`, which is to be read soon. A hint.
    #[inline]
    pub(super) fn prepare_read(&self, number: usize) {
        let at = self.base.as_ptr().wrapping_add(number.wrapping_mul(LINE));
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: as in `prepare_write`.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// Copies bytes out, once.
    #[inline]
    pub(super) fn read(&self, offset: usize, out: &mut [u8]) {
        let from = self.at(offset, out.len());
        // SAFETY: `at` checked the source range; `out` is exclusive, so it does not overlap memory that nobody has
        // references to.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes in.
    #[inline]
    pub(super) fn write(&self, offset: usize, data: &[u8]) {
        let to = self.at(offset, data.len());
        // SAFETY: `at` checked the destination range; see `read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    /// Copies `len` bytes of a descriptor's memory in; the cursor moves on. Stops where the cursor ends.
    #[inline]
    pub(super) fn gather(&self, offset: usize, from: &mut Cursor<'_>, len: usize) {
        assert!(self.holds(offset, len), "{offset}+{len} of {}", self.len);
        let mut done = 0;
        while let Some(piece) = from.next(len - done) {
            let to = self.at(offset + done, piece.len as usize);
            let source = std::ptr::with_exposed_provenance::<u8>(piece.addr as usize);
            // SAFETY: `at` checked the destination; the source is valid by the promise of the descriptor's maker,
            // which `Ni` keeps until the operation's `*_end`. The two may overlap where a rank sends to memory
            // that it maps itself.
            unsafe { std::ptr::copy(source, to, piece.len as usize) };
            done += piece.len as usize;
        }
    }

    /// Copies `len` bytes out to a descriptor's memory; the cursor moves on. Stops where the cursor ends.
    #[inline]
    pub(super) fn scatter(&self, offset: usize, to: &mut Cursor<'_>, len: usize) {
        assert!(self.holds(offset, len), "{offset}+{len} of {}", self.len);
        let mut done = 0;
        while let Some(piece) = to.next(len - done) {
            let from = self.at(offset + done, piece.len as usize);
            let target = std::ptr::with_exposed_provenance_mut::<u8>(piece.addr as usize);
            // SAFETY: as in `gather`, in the other direction.
            unsafe { std::ptr::copy(from, target, piece.len as usize) };
            done += piece.len as usize;
        }
    }
}

// Apart from the checks, so that a check is a comparison and no more.
#[cold]
#[inline(never)]
fn outside(offset: usize, len: usize, all: usize) -> ! {
    panic!("{offset}+{len} of {all}");
}

#[cold]
#[inline(never)]
fn uneven(offset: usize) -> ! {
    panic!("{offset} is not where a word begins");
}

/// A line of a mapping: looked up and checked once, used several times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    base: *mut u8,
    map: PhantomData<&'a Map>,
}

impl<'a> Line<'a> {
    /// Its 32-bit word `index`.
    #[inline]
    pub(super) fn word(self, index: usize) -> &'a AtomicU32 {
        if index >= LINE / 4 {
            outside(4 * index, 4, LINE);
        }
        let at = self.base.wrapping_add(4 * index);
        // SAFETY: `Map::line` checked that the line is within the mapping, whose base is page aligned, and the word is
        // within the line; the borrow of the mapping keeps it alive. See `Map::word` for other processes.
        unsafe { AtomicU32::from_ptr(at.cast()) }
    }

    /// Copies bytes out, from its byte `at` on, once.
    #[inline]
    pub(super) fn read(self, at: usize, out: &mut [u8]) {
        let from = self.part(at, out.len());
        // SAFETY: `part` checked the source range; see `Map::read`.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    /// Copies bytes in, from its byte `at` on.
    #[inline]
    pub(super) fn write(self, at: usize, data: &[u8]) {
        let to = self.part(at, data.len());
        // SAFETY: `part` checked the destination range; see `Map::read`.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
    }

    #[inline]
    fn part(self, at: usize, len: usize) -> *mut u8 {
        if at > LINE || len > LINE - at {
            outside(at, len, LINE);
        }
        self.base.wrapping_add(at)
    }
}

/// A place in a list of pieces of memory.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    pieces: &'a [Segment],
    /// Bytes of the first piece that are done.
    done: u64,
}

impl<'a> Cursor<'a> {
    /// `skip` bytes past the start.
    pub(super) fn new(pieces: &'a [Segment], skip: u64) -> Self {
        let mut cursor = Self { pieces, done: 0 };
        let mut left = usize::try_from(skip).unwrap_or(usize::MAX);
        while let Some(piece) = cursor.next(left) {
            left -= piece.len as usize;
        }
        cursor
    }

    /// The next contiguous piece, of 1 to `most` bytes.
    #[inline]
    fn next(&mut self, most: usize) -> Option<Segment> {
        if most == 0 {
            return None;
        }
        while let Some((first, rest)) = self.pieces.split_first() {
            let left = first.len.saturating_sub(self.done);
            if left == 0 {
                self.pieces = rest;
                self.done = 0;
                continue;
            }
            let len = left.min(most as u64);
            let addr = first.addr + self.done;
            self.done += len;
            return Some(Segment { addr, len });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::shared_file::{create, create_own, seal_for_others};
    use rustix::fs::MemfdFlags;
    use rustix::fs::{Mode, OFlags};

    fn place(bytes: &mut [u8]) -> Segment {
        Segment {
            addr: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
        }
    }

    #[test]
    fn two_mappings_of_a_file_are_one_memory() {
        let fd = create("test", 8192).unwrap();
        let (a, b) = (Map::new(&fd, 8192).unwrap(), Map::new(&fd, 8192).unwrap());
        a.write(100, b"abc");
        let mut out = [0; 3];
        b.read(100, &mut out);
        assert_eq!(&out, b"abc");
        b.word(8).store(7, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(a.long(8).load(std::sync::atomic::Ordering::Relaxed), 7);
    }

    #[test]
    fn memory_that_could_shrink_is_not_mapped() {
        let fd = rustix::fs::memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&fd, 4096).unwrap();
        assert!(Map::new(&fd, 4096).is_err());
        let fd = create("test", 4096).unwrap();
        assert!(rustix::fs::ftruncate(&fd, 0).is_err());
        assert!(Map::new(&fd, 8192).is_err(), "another size");
    }

    #[test]
    fn what_is_sealed_for_others_is_written_by_its_owner_alone() {
        let fd = create_own("test", 8192).unwrap();
        let mut own = Map::reserve(16384).unwrap();
        own.place(&fd, (8192, 8192), true).unwrap();
        if seal_for_others(&fd).is_err() {
            println!("skipped: this kernel has no F_SEAL_FUTURE_WRITE");
            return;
        }
        let mut others = Map::reserve(8192).unwrap();
        assert!(others.place(&fd, (0, 8192), true).is_err(), "for writing");
        assert!(Map::new(&fd, 8192).is_err());
        assert!(rustix::io::write(&fd, b"x").is_err(), "by a system call");
        // Not even through another description of the file.
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&fd));
        if let Ok(again) = rustix::fs::open(path, OFlags::RDWR, Mode::empty()) {
            assert!(others.place(&again, (0, 8192), true).is_err());
        }
        others.place(&fd, (0, 8192), false).unwrap();
        own.write(8192, b"own");
        let mut seen = [0; 3];
        others.read(0, &mut seen);
        assert_eq!(&seen, b"own");
        assert!(others.place(&fd, (0, 4096), false).is_err(), "another size");
    }

    #[test]
    fn pieces_of_memory_are_filled_in_order() {
        let fd = create("test", 4096).unwrap();
        let map = Map::new(&fd, 4096).unwrap();
        let (mut a, mut b) = ([1, 2, 3, 4], [5, 6, 7, 8]);
        let pieces = [place(&mut a), Segment { addr: 0, len: 0 }, place(&mut b)];
        let mut from = Cursor::new(&pieces, 2);
        map.gather(10, &mut from, 3);
        map.gather(13, &mut from, 100);
        let mut out = [0; 6];
        map.read(10, &mut out);
        assert_eq!(out, [3, 4, 5, 6, 7, 8]);
        map.scatter(10, &mut Cursor::new(&pieces, 0), 6);
        assert_eq!((a, b), ([3, 4, 5, 6], [7, 8, 7, 8]));
    }

    #[test]
    fn a_line_is_its_bytes() {
        let fd = create("test", 4096).unwrap();
        let map = Map::new(fd, 4096).unwrap();
        let line = map.line(4096 / LINE - 1);
        line.write(LINE - 3, b"abc");
        line.word(14).store(9, std::sync::atomic::Ordering::Relaxed);
        let mut out = [0; 8];
        map.read(4096 - 8, &mut out);
        assert_eq!(out, *b"\x09\0\0\0\0abc");
        line.read(LINE - 2, &mut out[..2]);
        assert_eq!(&out[..2], b"bc");
        let refused = |f: &dyn Fn()| {
            let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            assert!(caught.is_err());
        };
        refused(&|| {
            map.line(4096 / LINE);
        });
        refused(&|| {
            line.word(LINE / 4);
        });
        refused(&|| line.write(LINE - 2, b"abc"));
        refused(&|| line.read(usize::MAX, &mut [0; 2]));
    }

    #[test]
    #[should_panic(expected = "of 4096")]
    fn nothing_is_read_past_the_end() {
        let fd = create("test", 4096).unwrap();
        Map::new(&fd, 4096).unwrap().read(4000, &mut [0; 100]);
    }
}
