// UNSAFETY: functions of the C library, which every part of the program calls, in front of the system's calls.
#![expect(
    unsafe_code,
    reason = "functions of the C library by their names, and the system calls behind them"
)]
//! Memory that the program takes away. `munmap`, `mremap`, `madvise`, `shmdt`, `brk`, `dlclose` and `mmap` over what is there
//! first unpin it. They do so in programs of `GASNET_SEGMENT_LARGE` and `GASNET_SEGMENT_EVERYTHING`, and in all programs whose
//! own memory outside of segments stays pinned ([`conduit::Conduit::keeps_pinned`]).
//!
//! The functions stand in front of those of the C library, whose own calls (in `free`) do not pass here: its allocator
//! is told to give nothing back. `userfaultfd` would see all, but is denied to users on most systems, and says it when
//! the memory is gone: too late for a peer that writes.
//!
//! | file | functions |
//! |---|---|
//! | this one | `munmap`, `mremap`, `madvise`, `process_madvise`, `mmap`, `remap_file_pages` |
//! | `sysv.rs` | `shmat`, `shmdt` |
//! | `heap.rs` | `brk`, `sbrk`; `malloc_trim` and `mallopt`, by which the allocator would give memory back |
//! | `objects.rs` | `dlclose`: the loader's own calls do not pass by a name |
//! | `next.rs` | the C library's functions of these names, and whether the program calls ours |
//!
//! Other threads of the rank (`GASNET_PAR`) keep out between the last look and the system call. A transfer of neighbouring memory
//! in the same unit would pin the whole unit again, with the pages that are about to go. What `dlclose` took is looked at
//! once more when it is gone, because the functions that run at its end may communicate.
//!
//! Some memory goes by other ways: bare system calls, what the library itself and those below it unmap.
//! Of that a program has nothing any more. Where it is given memory in such a place by `mmap`, `mremap`, `shmat` or `sbrk`, what is
//! still pinned there is forgotten before it gets it. Stacks of threads are not kept pinned ([`conduit::Conduit`]).
//!
//! # When a call cannot wait
//!
//! Peers give memory back when they are asked, so the call waits for them, and handles messages meanwhile. In a handler, and
//! for a thread that holds an HSL, it does not wait: then `munmap` and `dlclose` leave the memory where it is, and the others
//! fail with `EBUSY`. So do `brk` and `sbrk` when the end of the heap moves while they wait: a handler may have the allocator put memory there.
//! What other threads than the one that communicates take away in `GASNET_SEQ` goes first; the one that communicates
//! makes nothing of it be pinned before it sends, polls or transfers ([`conduit::Elsewhere`]). The same holds for memory that the
//! library's own threads unmap in any model, as a verbs driver does at the end of a connection. They may hold a lock that the
//! thread with the turn waits for.

mod heap;
mod next;
mod objects;
mod sysv;

pub use heap::{brk, malloc_trim, mallopt, sbrk};
pub use objects::dlclose;
pub use sysv::{shmat, shmdt};

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::ptr::Elements;
use crate::state;

/// The process in which calls are looked at.
static WATCHED: AtomicBool = AtomicBool::new(false);
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Looks at calls from here on. `GASNET_DISABLE_MUNMAP=0` leaves the allocator as it is.
pub(crate) fn watch() {
    let keep = std::env::var("GASNET_DISABLE_MUNMAP");
    let keep = keep.map_or(true, |v| !matches!(v.trim(), "0" | "n" | "N" | "no" | "NO"));
    if keep {
        heap::keep();
    }
    PROCESS.store(std::process::id(), Ordering::Relaxed);
    WATCHED.store(true, Ordering::Release);
}

/// Whether calls of other objects of the process pass here. They do not where this library came by `dlopen` with `RTLD_LOCAL`,
/// or behind the C library.
pub(crate) fn is_in_front() -> bool {
    next::are_ours(&[
        c"munmap", c"mmap", c"mremap", c"madvise", c"shmdt", c"shmat", c"brk", c"sbrk", c"dlclose",
    ])
}

/// A forked child is no rank.
fn is_watched() -> bool {
    WATCHED.load(Ordering::Acquire) && PROCESS.load(Ordering::Relaxed) == std::process::id()
}

/// What the system has given by a call that replaces nothing. It was free, whatever was pinned there.
fn came(addr: *mut c_void, len: usize) -> *mut c_void {
    if addr != libc::MAP_FAILED && is_watched() {
        state::came(addr.addr() as u64, len as u64);
    }
    addr
}

/// Makes the system call that takes ranges away when nothing of them is pinned any more; `None` where that cannot be waited
/// for.
fn take_away<const N: usize, R>(
    ranges: [(*mut c_void, usize); N],
    call: impl FnOnce() -> R,
) -> Option<R> {
    take_all_away(&ranges.map(range), call)
}

fn range((addr, len): (*mut c_void, usize)) -> (u64, u64) {
    (addr.addr() as u64, len as u64)
}

/// Takes away memory by addresses and lengths; see [`take_away`].
fn take_all_away<R>(ranges: &[(u64, u64)], call: impl FnOnce() -> R) -> Option<R> {
    let nothing = ranges.iter().all(|(_, len)| *len == 0);
    if nothing || !is_watched() {
        return Some(call());
    }
    state::take_away(ranges, call)
}

fn busy<R>(result: R) -> R {
    fails_with(libc::EBUSY, result)
}

fn fails_with<R>(number: c_int, result: R) -> R {
    // SAFETY: takes nothing.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the thread's own error number, as the C library says where it is.
    unsafe { errno.write(number) };
    result
}

/// `munmap`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's call.
    let call = || unsafe { libc::syscall(libc::SYS_munmap, addr, len) };
    take_away([(addr, len)], call).map_or(0, |done| done as c_int)
}

/// `mremap`, with its new address, which is only looked at with `MREMAP_FIXED`.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let replaced = match flags & libc::MREMAP_FIXED {
        0 => 0,
        _ => new_len,
    };
    // SAFETY: the caller's call.
    let call = || unsafe { libc::syscall(libc::SYS_mremap, old, old_len, new_len, flags, new) };
    let done = take_away([(old, old_len), (new, replaced)], call);
    let done = done.map_or_else(|| busy(libc::MAP_FAILED), pointer);
    if replaced == 0 {
        came(done, new_len)
    } else {
        done
    }
}

/// Of Linux 5.18 and 6.13, which not every C library names.
const MADV_DONTNEED_LOCKED: c_int = 24;
const MADV_GUARD_INSTALL: c_int = 102;

/// Whether advice takes the contents away.
fn drops(advice: c_int) -> bool {
    let all = [
        libc::MADV_DONTNEED,
        libc::MADV_REMOVE,
        libc::MADV_FREE,
        MADV_DONTNEED_LOCKED,
        MADV_GUARD_INSTALL,
    ];
    all.contains(&advice)
}

/// `madvise`: advice that takes the contents away.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn madvise(addr: *mut c_void, len: usize, advice: c_int) -> c_int {
    // SAFETY: the caller's call.
    let call = || unsafe { libc::syscall(libc::SYS_madvise, addr, len, advice) };
    let taken = if drops(advice) { len } else { 0 };
    take_away([(addr, taken)], call).map_or_else(|| busy(-1), |done| done as c_int)
}

/// `process_madvise`, by which a process advises itself too; the ranges count as its own, whosever they are.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn process_madvise(
    process: c_int,
    pieces: *const libc::iovec,
    count: usize,
    advice: c_int,
    flags: std::ffi::c_uint,
) -> isize {
    // SAFETY: the caller's call.
    let call = || unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            process,
            pieces,
            count,
            advice,
            flags,
        )
    };
    let mut ranges = Vec::new();
    if drops(advice) && !pieces.is_null() && is_watched() {
        // SAFETY: the caller's pieces.
        let pieces = unsafe { Elements::new(pieces, count.min(libc::UIO_MAXIOV as usize)) };
        ranges.extend(pieces.iter().map(|p| range((p.iov_base, p.iov_len))));
    }
    take_all_away(&ranges, call).map_or_else(|| busy(-1), |done| done as isize)
}

/// `remap_file_pages`: other pages of the file in the place of those that are there.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn remap_file_pages(
    addr: *mut c_void,
    len: usize,
    rights: c_int,
    page: usize,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's call.
    let call =
        || unsafe { libc::syscall(libc::SYS_remap_file_pages, addr, len, rights, page, flags) };
    take_away([(addr, len)], call).map_or_else(|| busy(-1), |done| done as c_int)
}

/// `mmap`: with `MAP_FIXED` in the place of what is there.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    let replaces = flags & libc::MAP_FIXED != 0 && flags & libc::MAP_FIXED_NOREPLACE == 0;
    // SAFETY: the caller's call.
    let call = || unsafe { libc::syscall(libc::SYS_mmap, addr, len, rights, flags, file, offset) };
    if !replaces {
        return came(pointer(call()), len);
    }
    take_away([(addr, len)], call).map_or_else(|| busy(libc::MAP_FAILED), pointer)
}

/// `mmap64`, which is `mmap` on 64-bit systems.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    rights: c_int,
    flags: c_int,
    file: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's call.
    unsafe { mmap(addr, len, rights, flags, file, offset) }
}

/// Whether any of `len` bytes at `addr` is pinned, for a peer or for transfers of this node: for tests, and for people with a
/// debugger.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_is_pinned(addr: *const c_void, len: usize) -> c_int {
    let (addr, len) = range((addr.cast_mut(), len));
    state::with(|conduit| conduit.is_pinned(addr, len)).map_or(0, c_int::from)
}

/// What a system call gave as an address.
fn pointer(result: c_long) -> *mut c_void {
    std::ptr::with_exposed_provenance_mut(result as usize)
}
