//! Memory that a NIC, a peer or the simulation may read and write at any time.
// UNSAFETY: maps anonymous memory and copies through raw pointers, because other agents write it
// concurrently and no Rust reference may ever point into it.
#![expect(
    unsafe_code,
    reason = "maps memory that other agents write, and copies through raw pointers"
)]

mod bytes;

use host::fork::Own;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Why a region call was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The system has no memory to map.
    #[error("cannot map {len} bytes of memory")]
    Map {
        /// Bytes wanted.
        len: usize,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// An access past the end.
    #[error("bytes {offset}..{offset}+{len} are not within a region of {size} bytes")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Size of the region.
        size: usize,
    },
    /// An atomic access at an odd place.
    #[error("offset {offset} is not a multiple of 8")]
    Unaligned {
        /// Byte offset.
        offset: usize,
    },
}

#[derive(Debug)]
struct Mapping {
    base: NonNull<c_void>,
    len: usize,
    /// Its file, if others may map it.
    _file: Option<Arc<OwnedFd>>,
}

/// Where other processes can map a region's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The descriptor of its file in this process.
    pub fd: i32,
    /// The file's inode, by which a mapper knows that it opened the right one.
    pub inode: u64,
    /// Bytes of the file.
    pub len: u64,
    /// Where the memory asked for begins in it.
    pub offset: u64,
}

#[derive(Clone, Debug)]
struct Known {
    len: u64,
    number: u64,
    /// With its inode.
    file: Option<(Weak<OwnedFd>, u64)>,
}

/// The mappings of this process's regions. A forked child finds none of its parent's.
#[derive(Debug, Default)]
struct Mappings {
    /// How many there were so far; a mapping's number is not used twice.
    made: u64,
    /// By first address.
    live: BTreeMap<u64, Known>,
}

static MAPPINGS: Own<Mutex<Mappings>> = Own::unset();

fn mappings() -> MutexGuard<'static, Mappings> {
    let mappings = MAPPINGS.get().lock();
    mappings.unwrap_or_else(PoisonError::into_inner)
}

/// The region's mapping that holds all of `memory`, and where in it.
fn known(memory: portals_core::Segment) -> Option<(u64, Known)> {
    let mappings = mappings();
    let (start, known) = mappings.live.range(..=memory.addr).next_back()?;
    let offset = memory.addr - start;
    let within = offset.checked_add(memory.len)? <= known.len;
    within.then(|| (offset, known.clone()))
}

/// Where `memory` can be mapped from; `None` if it is not in a region that was made for it.
pub fn share_of(memory: portals_core::Segment) -> Option<Share> {
    let (offset, known) = known(memory)?;
    let (file, inode) = known.file?;
    Some(Share {
        fd: file.upgrade()?.as_raw_fd(),
        inode,
        len: known.len,
        offset,
    })
}

/// The file of the region that holds all of `memory`, and its inode; `None` if others cannot map it.
pub fn file_of(memory: portals_core::Segment) -> Option<(u64, Arc<OwnedFd>)> {
    let (file, inode) = known(memory)?.1.file?;
    Some((inode, file.upgrade()?))
}

/// The number of the region's mapping that holds all of `memory`; `None` if it is not a region's.
pub fn mapping_of(memory: portals_core::Segment) -> Option<u64> {
    known(memory).map(|(_, known)| known.number)
}

// SAFETY: the mapping is plain memory owned by this value; every access goes through atomic copies (`bytes`) or atomic
// words, none through references, so threads may share it.
unsafe impl Send for Mapping {}
// SAFETY: as for Send.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.len > 0 {
            // Before the memory is gone, so that nobody takes a new mapping of the same addresses for this one.
            let addr = self.base.as_ptr().addr() as u64;
            let mut mappings = mappings();
            mappings.live.remove(&addr);
            drop(mappings);
            // SAFETY: base and len are those of the successful mmap in `Region::new` or `of_file`, and this is
            // the last owner (Arc), so nothing uses the range any more.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr(), self.len) };
        }
    }
}

/// Page-aligned zeroed memory, shared by clones, freed with the last one.
///
/// Any thread may call every method; concurrent accesses to the same bytes, local or remote, see
/// some mixture of old and new bytes unless the program orders them (events, barriers). Among the threads of a process that
/// is no data race: each byte is copied as by a relaxed atomic operation. What other processes, the kernel and network adapters do to
/// the bytes is outside of what Rust's memory model describes; no Rust reference points there, so it changes bytes and nothing
/// else.
///
/// A descriptor over a region keeps it mapped, see `MdMemory::Region`.
#[derive(Clone, Debug)]
pub struct Region {
    mapping: Arc<Mapping>,
}

impl Region {
    /// Maps `len` bytes (rounded up to pages).
    pub fn new(len: usize) -> Result<Self, RegionError> {
        let page = rustix::param::page_size();
        let map_len = len
            .max(1)
            .checked_next_multiple_of(page)
            .unwrap_or(usize::MAX & !(page - 1));
        // SAFETY: an anonymous private mapping at an address the kernel chooses overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                map_len,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::PRIVATE,
            )
        };
        Self::mapped(base, map_len, None)
    }

    /// A region in memory that other processes of this machine can map; where the system has none of
    /// that, one of [`Region::new`].
    ///
    /// A child process after a fork shares it too, and does not have a copy.
    pub fn shared(len: usize) -> Result<Self, RegionError> {
        let page = rustix::param::page_size();
        let rounded = len.max(1).checked_next_multiple_of(page);
        let file = rounded.and_then(|len| host::shared_file::create("portolan-region", len).ok());
        match (file, rounded) {
            (Some(file), Some(len)) => {
                Self::of_file(file, len as u64, true).or_else(|_| Self::new(len))
            }
            _ => Self::new(len),
        }
    }

    /// All of a file of `len` bytes that is sealed against shrinking; with `open` the file stays open, for others to
    /// map.
    pub fn of_file(file: OwnedFd, len: u64, open: bool) -> Result<Self, RegionError> {
        let bytes = usize::try_from(len).unwrap_or(usize::MAX);
        let failed = |source: io::Error| RegionError::Map { len: bytes, source };
        let stat = rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?;
        let seals = rustix::fs::fcntl_get_seals(&file).map_err(|e| failed(e.into()))?;
        if u64::try_from(stat.st_size) != Ok(len) || !seals.contains(rustix::fs::SealFlags::SHRINK)
        {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        // SAFETY: a shared mapping at an address the kernel chooses overlaps nothing; the file has all of its bytes
        // for ever, by the size and the seal looked at above.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &file,
                0,
            )
        };
        Self::mapped(base, bytes, open.then_some((file, stat.st_ino)))
    }

    fn mapped(
        base: rustix::io::Result<*mut c_void>,
        len: usize,
        file: Option<(OwnedFd, u64)>,
    ) -> Result<Self, RegionError> {
        let failed = |source: io::Error| RegionError::Map { len, source };
        let base = base.map_err(|e| failed(e.into()))?;
        let base = NonNull::new(base).ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?;
        // SAFETY: mapped by the caller, who has nothing of it yet.
        unsafe { host::dump::leave_out(base.as_ptr(), len) };
        let file = file.map(|(fd, inode)| (Arc::new(fd), inode));
        let mut mappings = mappings();
        mappings.made += 1;
        let known = Known {
            len: len as u64,
            number: mappings.made,
            file: (file.as_ref()).map(|(fd, inode)| (Arc::downgrade(fd), *inode)),
        };
        mappings.live.insert(base.as_ptr().addr() as u64, known);
        drop(mappings);
        Ok(Self {
            mapping: Arc::new(Mapping {
                base,
                len,
                _file: file.map(|(fd, _)| fd),
            }),
        })
    }

    /// Address of the first byte; stable for the region's life.
    pub fn addr(&self) -> u64 {
        self.mapping.base.as_ptr().expose_provenance() as u64
    }

    /// Bytes, a multiple of the page size.
    pub fn len(&self) -> usize {
        self.mapping.len
    }

    /// Clones of this region, this one included, and descriptors over its memory: 1 if dropping this one frees it. Other
    /// threads may change the number at any time.
    pub fn owners(&self) -> usize {
        Arc::strong_count(&self.mapping)
    }

    /// Whether both are the same memory.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.mapping, &other.mapping)
    }

    /// A way to ask for it that does not keep it.
    pub fn downgrade(&self) -> WeakRegion {
        WeakRegion(Arc::downgrade(&self.mapping))
    }

    /// Never true: a region has at least one page.
    pub fn is_empty(&self) -> bool {
        self.mapping.len == 0
    }

    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<*mut u8, RegionError> {
        match offset.checked_add(len) {
            // `wrapping_add` keeps the mapping's provenance and needs no promise; the range check
            // of this line is what the copies below rely on.
            Some(end) if end <= self.mapping.len => {
                Ok(self.mapping.base.as_ptr().cast::<u8>().wrapping_add(offset))
            }
            _ => Err(RegionError::OutOfRange {
                offset,
                len,
                size: self.mapping.len,
            }),
        }
    }

    /// Copies out.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), RegionError> {
        let from = self.at(offset, out.len())?;
        // SAFETY: `at` checked the source range against the live mapping; `out` is an exclusive
        // Rust slice, so it cannot overlap memory nobody has references to.
        unsafe { bytes::copy(from, out.as_mut_ptr(), out.len()) };
        Ok(())
    }

    /// Copies in.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), RegionError> {
        let to = self.at(offset, data.len())?;
        // SAFETY: `at` checked the destination range against the live mapping; see `read`.
        unsafe { bytes::copy(data.as_ptr(), to, data.len()) };
        Ok(())
    }

    /// Copies out to an address, which may be within the region; overlap is allowed.
    ///
    /// # Safety
    ///
    /// `len` bytes at `to` are writable and not borrowed, and nobody else uses them meanwhile.
    #[inline]
    pub unsafe fn read_raw(
        &self,
        offset: usize,
        to: *mut u8,
        len: usize,
    ) -> Result<(), RegionError> {
        let from = self.at(offset, len)?;
        // SAFETY: `at` checked the source range, the caller promises the destination; the copy allows overlap.
        unsafe { bytes::copy(from, to, len) };
        Ok(())
    }

    /// Copies in from an address, which may be within the region; overlap is allowed.
    ///
    /// # Safety
    ///
    /// `len` bytes at `from` are readable, and nobody changes them meanwhile.
    #[inline]
    pub unsafe fn write_raw(
        &self,
        offset: usize,
        from: *const u8,
        len: usize,
    ) -> Result<(), RegionError> {
        let to = self.at(offset, len)?;
        // SAFETY: `at` checked the destination range, the caller promises the source; the copy allows overlap.
        unsafe { bytes::copy(from, to, len) };
        Ok(())
    }

    /// Copies within or between regions; overlap is allowed.
    pub fn copy_from(
        &self,
        offset: usize,
        from: &Region,
        from_offset: usize,
        len: usize,
    ) -> Result<(), RegionError> {
        let src = from.at(from_offset, len)?;
        let dst = self.at(offset, len)?;
        // SAFETY: both ranges were checked by `at`; the copy allows overlap.
        unsafe { bytes::copy(src, dst, len) };
        Ok(())
    }

    /// Sets bytes.
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), RegionError> {
        let to = self.at(offset, len)?;
        // SAFETY: `at` checked the range.
        unsafe { bytes::fill(to, len, value) };
        Ok(())
    }

    fn word(&self, offset: usize) -> Result<&AtomicU64, RegionError> {
        if !offset.is_multiple_of(8) {
            return Err(RegionError::Unaligned { offset });
        }
        let p = self.at(offset, 8)?;
        // SAFETY: in range by `at`, 8-aligned by the check above (the base is page aligned), and
        // alive as long as `self`; an atomic may be written by others at any time.
        Ok(unsafe { AtomicU64::from_ptr(p.cast()) })
    }

    /// An 8-byte aligned load.
    pub fn load_u64(&self, offset: usize, order: Ordering) -> Result<u64, RegionError> {
        Ok(self.word(offset)?.load(order))
    }

    /// An 8-byte aligned store.
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) -> Result<(), RegionError> {
        self.word(offset)?.store(value, order);
        Ok(())
    }

    /// An 8-byte aligned exclusive-or; returns the old value.
    pub fn fetch_xor_u64(
        &self,
        offset: usize,
        value: u64,
        order: Ordering,
    ) -> Result<u64, RegionError> {
        Ok(self.word(offset)?.fetch_xor(value, order))
    }
}

/// A region that this value does not keep.
#[derive(Clone, Debug)]
pub struct WeakRegion(Weak<Mapping>);

impl WeakRegion {
    /// See [`Region::owners`]; 0 if it is gone.
    pub fn owners(&self) -> usize {
        self.0.strong_count()
    }
}

/// A promise that addresses may be read and written by the library.
#[derive(Clone, Debug)]
pub struct RawMemory {
    memory: portals_core::Memory,
}

impl RawMemory {
    /// # Safety
    ///
    /// Every byte of `memory` stays mapped, and is not borrowed by Rust references that forbid the
    /// accesses, from now until the MD made of it is unlinked and no operation is under way on it.
    /// Destinations (targets of puts, and where replies go) are writable; what is read (sources of puts, and what gets
    /// ask for) has been written before.
    pub unsafe fn new(memory: portals_core::Memory) -> Self {
        Self { memory }
    }

    /// Memory that a fabric's own promise covers.
    pub fn trusted(memory: portals_core::Memory, _: Trust) -> Self {
        Self { memory }
    }

    /// The addresses.
    pub fn into_memory(self) -> portals_core::Memory {
        self.memory
    }
}

/// A promise about memory that others than the calls of an `Interface` tell a fabric of.
///
/// Descriptors are made by calls of the interface over a [`Region`] or a [`RawMemory`], so whoever writes no `unsafe` cannot make
/// the library touch memory that is not the program's to give:
///
/// ```compile_fail,E0423
/// #![forbid(unsafe_code)]
/// use portals_shim::core::{MdDesc, Memory, Ni, NiConfig};
/// use portals_shim::nal::inproc::{Hub, InProc};
/// use portals_shim::place::Placement;
/// use portals_shim::{Interface, Limits, MdOptions, ProcessId, Trust, Unlink};
///
/// let id = ProcessId::new(0, 1);
/// let limits = Limits::LIBRARY;
/// let mut ni = Ni::new(NiConfig { id, uid: 0, jid: 0, interface: 0, limits, get_send_events: false });
/// let memory = Memory::contiguous(0xdead_0000, 64);
/// let options = MdOptions::empty();
/// let md = MdDesc { memory, threshold: -1, max_size: 0, options, user_ptr: 0, eq: None };
/// ni.md_bind(md, Unlink::Retain).unwrap();
/// let trust = Trust(());
/// let fabric = InProc::new(Hub::new(vec![id], Placement::ONE), 0, trust);
/// let interface = Interface::over(ni, fabric, trust);
/// ```
///
/// A test that puts a fabric of its own under an interface has an [`portals_core::Ni`] in its hands, and promises by this value what
/// the type of a descriptor's memory promises elsewhere. It takes `unsafe` to make one:
///
/// ```compile_fail,E0133
/// portals_shim::Trust::new();
/// ```
///
/// ```
/// use portals_shim::core::{Ni, NiConfig};
/// use portals_shim::nal::inproc::{Hub, InProc};
/// use portals_shim::place::Placement;
/// use portals_shim::{Interface, Limits, ProcessId, Trust};
///
/// // SAFETY: nothing here makes a descriptor but by calls of the interface.
/// let trust = unsafe { Trust::new() };
/// let id = Placement::ONE.of(0);
/// let limits = Limits::LIBRARY;
/// let ni = Ni::new(NiConfig { id, uid: 0, jid: 0, interface: 0, limits, get_send_events: false });
/// let fabric = InProc::new(Hub::new(vec![id], Placement::ONE), 0, trust);
/// let interface = Interface::over(ni, fabric, trust);
/// assert_eq!(interface.id(), id);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Trust(());

impl Trust {
    /// # Safety
    ///
    /// Every descriptor that a [`portals_core::Ni`] has or gets which is given to an interface made with this value, but for those
    /// that calls of the interface make, and every segment that a fabric made with it is given, keeps to what
    /// [`RawMemory::new`] asks for.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

/// Copies bytes between described memory and buffers; only whoever has a [`Trust`] has one:
///
/// ```compile_fail,E0423
/// #![forbid(unsafe_code)]
/// let copy = fabric_api::region::LocalCopy(());
/// ```
///
/// Fabrics that move data with the processor use it. Other threads may use the memory meanwhile, as a [`Region`]'s. The segments
/// come from descriptors, whose makers promised them ([`RawMemory::new`], or a [`Region`] kept alive by its interface).
#[derive(Clone, Copy, Debug)]
pub struct LocalCopy(());

impl LocalCopy {
    /// Copies for a fabric that is given segments of descriptors alone.
    pub const fn of(_: Trust) -> Self {
        Self(())
    }

    /// Appends the bytes of `segments` to `out`.
    pub fn gather(self, segments: &[portals_core::Segment], out: &mut Vec<u8>) {
        for s in segments {
            let len = s.len as usize;
            out.reserve(len);
            let from = std::ptr::with_exposed_provenance::<u8>(s.addr as usize);
            let at = out.len();
            // SAFETY: `from` is valid for `len` bytes by the promise of the MD's maker, which
            // `Ni` keeps until the operation's `*_end`; the destination was just reserved.
            unsafe { bytes::copy(from, out.as_mut_ptr().wrapping_add(at), len) };
            // SAFETY: `len` bytes past `at` were just initialised within the reserved capacity.
            unsafe { out.set_len(at + len) };
        }
    }

    /// Copies the bytes of `segments` to the start of `out`; stops at the end of the shorter one.
    #[inline(always)]
    pub fn gather_into(self, segments: &[portals_core::Segment], out: &mut [u8]) {
        match segments {
            [one] => {
                self.read_one(one, out);
            }
            _ => self.gather_pieces(segments, out),
        }
    }

    #[inline(never)]
    fn gather_pieces(self, segments: &[portals_core::Segment], mut out: &mut [u8]) {
        for s in segments {
            let len = self.read_one(s, out);
            out = &mut out[len..];
        }
    }

    /// Copies the bytes of a segment to the start of `out`, as many as both have; how many.
    #[inline(always)]
    fn read_one(self, segment: &portals_core::Segment, out: &mut [u8]) -> usize {
        let len = out.len().min(segment.len as usize);
        let from = std::ptr::with_exposed_provenance::<u8>(segment.addr as usize);
        // SAFETY: `from` is valid for `len <= segment.len` bytes by the promise of the MD's maker,
        // which `Ni` keeps until the operation's `*_end`; `out` has `len` bytes.
        unsafe { bytes::copy(from, out.as_mut_ptr(), len) };
        len
    }

    /// Places `data` into `segments`; stops at the end of the shorter one.
    #[inline(always)]
    pub fn scatter(self, segments: &[portals_core::Segment], data: &[u8]) {
        match segments {
            [one] => {
                self.write_one(one, data);
            }
            _ => self.scatter_pieces(segments, data),
        }
    }

    #[inline(never)]
    fn scatter_pieces(self, segments: &[portals_core::Segment], mut data: &[u8]) {
        for s in segments {
            let len = self.write_one(s, data);
            data = &data[len..];
        }
    }

    /// Places the start of `data` into a segment, as many bytes as both have; how many.
    #[inline(always)]
    fn write_one(self, segment: &portals_core::Segment, data: &[u8]) -> usize {
        let len = data.len().min(segment.len as usize);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(segment.addr as usize);
        // SAFETY: `to` is valid for `len <= segment.len` bytes by the promise of the MD's maker,
        // which `Ni` keeps until the operation's `*_end`.
        unsafe { bytes::copy(data.as_ptr(), to, len) };
        len
    }
}

/// Lets other processes of this user read and write this one's memory, where a security module
/// would restrict that to ancestors. Failure means there is no such restriction to lift.
pub fn permit_memory_access() {
    const PR_SET_PTRACER: libc::c_int = 0x5961_6d61;
    // SAFETY: this prctl takes integers only and changes nothing but a permission.
    let _ = unsafe { libc::prctl(PR_SET_PTRACER, libc::c_ulong::MAX, 0, 0, 0) };
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    // SAFETY: tests of this crate make descriptors and segments of memory that they own.
    pub(crate) const TRUST: Trust = unsafe { Trust::new() };
    const LOCAL: LocalCopy = LocalCopy::of(TRUST);

    #[test]
    fn memory_is_known_by_its_mapping_while_that_lives() {
        let whole = |r: &Region| portals_core::Segment {
            addr: r.addr(),
            len: r.len() as u64,
        };
        let (a, b) = (Region::new(8192).unwrap(), Region::new(8192).unwrap());
        let (of_a, of_b) = (mapping_of(whole(&a)), mapping_of(whole(&b)));
        assert!(of_a.is_some() && of_b.is_some() && of_a != of_b);
        let mut part = whole(&a);
        part.addr += 100;
        assert_eq!(mapping_of(part), None, "it ends beyond the mapping");
        part.len -= 100;
        assert_eq!(mapping_of(part), of_a);
        let memory = whole(&a);
        drop(a);
        assert_ne!(mapping_of(memory), of_a);
    }

    #[test]
    #[cfg_attr(miri, ignore = "it has no forks")]
    fn a_child_maps_memory_though_another_thread_did_so_at_the_fork() {
        let held = mappings();
        // SAFETY: the child maps memory and ends; of its parent's locks it needs none but that of the allocator, which a fork keeps.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // A child that waits is ended by a signal.
            // SAFETY: a number alone.
            unsafe { libc::alarm(20) };
            let known = Region::new(4096).map(|region| {
                let (addr, len) = (region.addr(), 4096);
                mapping_of(portals_core::Segment { addr, len }).is_some()
            });
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!known.unwrap_or(false))) };
        }
        drop(held);
        assert!(child > 0);
        let mut status = -1;
        // SAFETY: the child is this process's, and the status is wanted there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    /// The kernel's flags of the mapping that begins at an address.
    fn flags(addr: u64) -> String {
        let smaps = std::fs::read_to_string("/proc/thread-self/smaps").unwrap();
        let from = smaps.find(&format!("{addr:08x}-")).unwrap();
        let flags = smaps[from..]
            .lines()
            .find_map(|l| l.strip_prefix("VmFlags:"));
        format!("{} ", flags.unwrap())
    }

    #[test]
    fn regions_are_left_out_of_core_dumps() {
        if std::env::var_os("PORTOLAN_DUMP_SEGMENTS").is_some() {
            eprintln!("skipped: PORTOLAN_DUMP_SEGMENTS is set");
            return;
        }
        for region in [
            Region::new(1 << 20).unwrap(),
            Region::shared(1 << 20).unwrap(),
        ] {
            let flags = flags(region.addr());
            assert!(flags.contains(" dd "), "{flags}");
        }
    }

    #[test]
    fn short_and_long_copies_move_all_their_bytes_and_no_more() {
        let source: Vec<u8> = (1..=40).collect();
        let place = |bytes: &[u8], at, len: usize| portals_core::Segment {
            addr: bytes[at..].as_ptr().expose_provenance() as u64,
            len: len as u64,
        };
        for len in 0..=40 {
            let mut out = [0; 48];
            LOCAL.gather_into(&[place(&source, 0, len)], &mut out[4..]);
            let mut expected = [0; 48];
            expected[4..4 + len].copy_from_slice(&source[..len]);
            assert_eq!(out, expected, "gathered {len}");
            let target = Region::new(48).unwrap();
            let mut to = place(&source, 0, len);
            to.addr = target.addr() + 4;
            LOCAL.scatter(&[to], &source);
            target.read(0, &mut out).unwrap();
            assert_eq!(out, expected, "scattered {len}");
            // Within the same memory, three bytes further.
            target.copy_from(7, &target, 4, len).unwrap();
            target.read(0, &mut out).unwrap();
            assert_eq!(out[7..7 + len], source[..len], "moved {len}");
        }
    }

    /// Two threads at one region: each sees old bytes or new ones. `valgrind`, Miri and ThreadSanitizer see no race.
    #[test]
    fn threads_that_read_and_write_see_old_bytes_or_new_ones() {
        const ROUNDS: u8 = if cfg!(miri) { 10 } else { 200 };
        let region = Region::new(4096).unwrap();
        let lengths = [1, 3, 8, 13, 31, 64, 100, 2100];
        std::thread::scope(|s| {
            for own in [1_u8, 2] {
                let region = &region;
                s.spawn(move || {
                    for round in 0..ROUNDS {
                        for (at, len) in (0..).zip(lengths) {
                            let at = at + usize::from(round % 7);
                            region.write(at, &vec![own; len]).unwrap();
                            let mut seen = vec![9; len];
                            region.read(at, &mut seen).unwrap();
                            assert!(seen.iter().all(|b| [1, 2].contains(b)), "{seen:?}");
                            region.copy_from(at, region, at + 3, len).unwrap();
                            region.fill(at, len + 3, own).unwrap();
                        }
                    }
                });
            }
        });
    }

    #[test]
    fn accesses_past_the_end_are_refused() {
        let r = Region::new(100).unwrap();
        let size = r.len();
        assert!(r.write(size - 2, &[1, 2]).is_ok());
        assert!(r.write(size - 1, &[1, 2]).is_err());
        assert!(r.read(usize::MAX, &mut [0; 2]).is_err());
        assert!(r.load_u64(4, Ordering::Relaxed).is_err());
        assert!(r.load_u64(size, Ordering::Relaxed).is_err());
    }
}
