// UNSAFETY: functions of the C library, which every part of the program calls, in front of the system's calls.
#![expect(
    unsafe_code,
    reason = "functions of the C library by their names, and the system calls behind them"
)]
//! Shared memory of System V that goes, or comes over what is there.

use std::ffi::{c_int, c_void};

use super::{busy, came, is_watched, pointer, take_away};

/// Where no end is known.
const HIGHEST: usize = 1 << 47;
/// What `SHM_RND` rounds to, at most, on the machines that we know.
const SHMLBA: usize = 1 << 16;
/// Segments of huge pages begin at multiples of this and end there.
const HUGE: usize = 2 << 20;

/// `shmdt`: all of the segment that is attached at an address goes.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmdt(addr: *const c_void) -> c_int {
    // SAFETY: the caller's call.
    let call = || unsafe { libc::syscall(libc::SYS_shmdt, addr) } as c_int;
    if !is_watched() {
        return call();
    }
    let addr = addr.cast_mut();
    // Not of `self`, which is the first thread: that may have ended while others go on.
    let maps = std::fs::read_to_string("/proc/thread-self/maps");
    let len = maps.map_or_else(
        |_| HIGHEST.saturating_sub(addr.addr()),
        |text| attached(&text, addr.addr()),
    );
    take_away([(addr, len)], call).unwrap_or_else(|| busy(-1))
}

/// `shmat`: with `SHM_REMAP` in the place of what is there.
///
/// # Safety
/// That of the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shmat(id: c_int, addr: *const c_void, flags: c_int) -> *mut c_void {
    // SAFETY: the caller's call.
    let call = || pointer(unsafe { libc::syscall(libc::SYS_shmat, id, addr, flags) });
    if !is_watched() {
        return call();
    }
    if flags & libc::SHM_REMAP == 0 {
        let at = call();
        return came(at, size(id, at.addr()));
    }
    let from = match flags & libc::SHM_RND {
        0 => addr.addr(),
        _ => addr.addr() & !(SHMLBA - 1),
    };
    let unit = if from.is_multiple_of(HUGE) { HUGE } else { 1 };
    let len = size(id, from).checked_next_multiple_of(unit);
    let len = len.unwrap_or(usize::MAX).saturating_add(addr.addr() - from);
    let from = addr.cast_mut().with_addr(from);
    take_away([(from, len)], call).unwrap_or_else(|| busy(libc::MAP_FAILED))
}

/// Bytes of a segment, which begins at `addr`; all up to the highest address where it does not say.
fn size(id: c_int, addr: usize) -> usize {
    // SAFETY: numbers, for which zeroes are good.
    let mut about: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: asks about a segment; the answer is written to `about`.
    let asked = unsafe { libc::shmctl(id, libc::IPC_STAT, &raw mut about) };
    if asked < 0 {
        return HIGHEST.saturating_sub(addr);
    }
    about.shm_segsz
}

/// How many bytes `shmdt` of `addr` takes, by the kernel's list of mappings: up to the end of the last mapping of the segment
/// whose first byte is, or was, there. None where nothing is attached.
fn attached(maps: &str, addr: usize) -> usize {
    let hex = |word: &str| usize::from_str_radix(word, 16).ok();
    let mut segment = None;
    let mut end = addr;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some(range), Some(_), Some(offset), Some(_), inode, Some(name)) = (
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
            words.next(),
        ) else {
            continue;
        };
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let (Some(from), Some(to), Some(offset)) = (hex(from), hex(to), hex(offset)) else {
            continue;
        };
        let begins = from.checked_sub(offset) == Some(addr);
        if begins && name.starts_with("/SYSV") && segment.is_none_or(|known| known == inode) {
            segment = Some(inode);
            end = to;
        }
    }
    end - addr
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_ends_with_its_last_mapping() {
        let maps = "\
7f0000000000-7f0000010000 rw-s 00000000 00:01 32770                      /SYSV00000000 (deleted)
7f0000010000-7f0000020000 r--s 00010000 00:01 32770                      /SYSV00000000 (deleted)
7f0000021000-7f0000030000 rw-s 00021000 00:01 32770                      /SYSV00000000 (deleted)
7f0000030000-7f0000040000 rw-s 00000000 00:01 32770                      /SYSV00000000 (deleted)
7f0000040000-7f0000050000 rw-s 00001000 00:01 32771                      /SYSV0000002a
7f0000050000-7f0000060000 rw-p 00000000 00:00 0
7f0000060000-7f0000070000 rw-s 00000000 00:01 7                          /dev/zero
rubbish
";
        assert_eq!(attached(maps, 0x7f00_0000_0000), 0x3_0000);
        assert_eq!(attached(maps, 0x7f00_0003_0000), 0x1_0000);
        // Its first page went before.
        assert_eq!(attached(maps, 0x7f00_0003_f000), 0x1_1000);
        for nothing in [0x7f00_0000_1000, 0x7f00_0005_0000, 0x7f00_0006_0000, 0] {
            assert_eq!(attached(maps, nothing), 0, "{nothing:x}");
        }
    }
}
