//! Copies of bytes that other threads may read and write meanwhile.
// UNSAFETY: copies through raw pointers, on x86-64 by the processor's own instructions: the language has no atomic copy of
// many bytes.
#![expect(
    unsafe_code,
    reason = "copies memory that other threads may use meanwhile, by the processor's instructions"
)]
//!
//! Each byte is loaded and stored as a relaxed atomic one is: a copy that meets another one sees of each byte the old value
//! or the new one, and there is no data race. To the compiler an instruction of `asm!` is opaque, so it cannot assume
//! anything else; and the processor has no data races. Where there are none of these instructions (other processors, Miri) bytes
//! are copied as [`AtomicU8`], and words where both sides are aligned.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use std::arch::asm;
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
use std::sync::atomic::AtomicU64;
use std::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a block that is copied by wide registers.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WIDE: usize = 128;

/// Copies `len` bytes; the places may overlap.
///
/// # Safety
/// `len` bytes at `from` are readable and as many at `to` writable, and no Rust reference to any of them forbids that. Other
/// threads may use them meanwhile, by atomic operations or by this module's functions.
#[inline(always)]
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    if len <= 32 {
        // SAFETY: by the caller.
        unsafe { copy_short(from, to, len) }
    } else {
        // SAFETY: by the caller.
        unsafe { copy_long(from, to, len) }
    }
}

/// Copies at most 32 bytes, all of which are loaded before one is stored.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // A message may well have no bytes.
        0 => {}
        // SAFETY: the first 8 bytes of 8 to 16 and the last 8, both by the caller's promise.
        8..=16 => unsafe {
            asm!(
                "mov {first}, [{from}]",
                "mov {last}, [{from} + {len} - 8]",
                "mov [{to}], {first}",
                "mov [{to} + {len} - 8], {last}",
                from = in(reg) from,
                to = in(reg) to,
                len = in(reg) len,
                first = out(reg) _,
                last = out(reg) _,
                options(nostack, preserves_flags)
            );
        },
        // SAFETY: the first 4 bytes of 4 to 7 and the last 4.
        4..=7 => unsafe {
            asm!(
                "mov {first:e}, [{from}]",
                "mov {last:e}, [{from} + {len} - 4]",
                "mov [{to}], {first:e}",
                "mov [{to} + {len} - 4], {last:e}",
                from = in(reg) from,
                to = in(reg) to,
                len = in(reg) len,
                first = out(reg) _,
                last = out(reg) _,
                options(nostack, preserves_flags)
            );
        },
        // SAFETY: the first 16 bytes of 17 to 32 and the last 16.
        17..=32 => unsafe {
            asm!(
                "movups {first}, [{from}]",
                "movups {last}, [{from} + {len} - 16]",
                "movups [{to}], {first}",
                "movups [{to} + {len} - 16], {last}",
                from = in(reg) from,
                to = in(reg) to,
                len = in(reg) len,
                first = out(xmm_reg) _,
                last = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        },
        // SAFETY: the first, the middle and the last byte of 1 to 3.
        _ => unsafe {
            asm!(
                "mov {first}, [{from}]",
                "mov {middle}, [{from} + {half}]",
                "mov {last}, [{from} + {end}]",
                "mov [{to}], {first}",
                "mov [{to} + {half}], {middle}",
                "mov [{to} + {end}], {last}",
                from = in(reg) from,
                to = in(reg) to,
                half = in(reg) len / 2,
                end = in(reg) len - 1,
                first = out(reg_byte) _,
                middle = out(reg_byte) _,
                last = out(reg_byte) _,
                options(nostack, preserves_flags)
            );
        },
    }
}

/// Copies more than 32 bytes.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    if len <= 64 {
        // SAFETY: the first 32 bytes of 33 to 64 and the last 32, all loaded before one is stored.
        unsafe {
            asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + {len} - 32]",
                "movups {d}, [{from} + {len} - 16]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + {len} - 32], {c}",
                "movups [{to} + {len} - 16], {d}",
                from = in(reg) from,
                to = in(reg) to,
                len = in(reg) len,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    let mut left = len;
    if to.addr().wrapping_sub(from.addr()) < len {
        // It begins within the source: from the end on.
        while left > 0 {
            let part = left.min(32);
            left -= part;
            // SAFETY: a part of the caller's range.
            unsafe { copy_short(from.wrapping_add(left), to.wrapping_add(left), part) };
        }
        return;
    }
    if len >= WIDE && is_x86_feature_detected!("avx") {
        // SAFETY: the caller's range, and the processor has AVX.
        left = unsafe { copy_wide(from, to, len) };
    }
    while left >= 64 {
        let at = len - left;
        // SAFETY: the next 64 bytes of the caller's range, all loaded before one is stored.
        unsafe {
            asm!(
                "movups {a}, [{from}]",
                "movups {b}, [{from} + 16]",
                "movups {c}, [{from} + 32]",
                "movups {d}, [{from} + 48]",
                "movups [{to}], {a}",
                "movups [{to} + 16], {b}",
                "movups [{to} + 32], {c}",
                "movups [{to} + 48], {d}",
                from = in(reg) from.wrapping_add(at),
                to = in(reg) to.wrapping_add(at),
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                d = out(xmm_reg) _,
                options(nostack, preserves_flags)
            );
        }
        left -= 64;
    }
    while left > 0 {
        let (at, part) = (len - left, left.min(32));
        // SAFETY: a part of the caller's range.
        unsafe { copy_short(from.wrapping_add(at), to.wrapping_add(at), part) };
        left -= part;
    }
}

/// Copies as many blocks of 128 bytes as there are, forwards; how many bytes are left.
///
/// # Safety
/// That of [`copy`], where the destination does not begin within the source; the processor has AVX.
#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx")]
unsafe fn copy_wide(from: *const u8, to: *mut u8, len: usize) -> usize {
    let blocks = len / WIDE;
    // SAFETY: the blocks are part of the caller's range; of each, all is loaded before it is stored. `vzeroupper` leaves the
    // upper halves as code without AVX wants them.
    unsafe {
        asm!(
            "2:",
            "vmovups ymm0, [rsi]",
            "vmovups ymm1, [rsi + 32]",
            "vmovups ymm2, [rsi + 64]",
            "vmovups ymm3, [rsi + 96]",
            "vmovups [rdi], ymm0",
            "vmovups [rdi + 32], ymm1",
            "vmovups [rdi + 64], ymm2",
            "vmovups [rdi + 96], ymm3",
            "sub rsi, -128",
            "sub rdi, -128",
            "dec rcx",
            "jnz 2b",
            "vzeroupper",
            inout("rsi") from => _,
            inout("rdi") to => _,
            inout("rcx") blocks => _,
            // Every vector register, as `vzeroupper` changes all.
            clobber_abi("C"),
            options(nostack)
        );
    }
    len % WIDE
}

/// Copies at most 32 bytes.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
#[inline(always)]
unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: by the caller.
    unsafe { copy_long(from, to, len) }
}

/// Copies more than 32 bytes.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    // Words would be other sizes than those of the copies that they meet, which is no race of the processor's.
    let aligned = |at: *const u8| at.addr().is_multiple_of(8);
    let words = !cfg!(miri) && aligned(from) && aligned(to) && len.is_multiple_of(8);
    let step = if words { 8 } else { 1 };
    let backwards = to.addr().wrapping_sub(from.addr()) < len;
    for n in 0..len / step {
        let n = if backwards { len / step - 1 - n } else { n };
        let (from, to) = (from.wrapping_add(n * step), to.wrapping_add(n * step));
        if words {
            // SAFETY: an aligned word of the caller's source.
            let source = unsafe { AtomicU64::from_ptr(from.cast_mut().cast()) };
            let value = source.load(Ordering::Relaxed);
            // SAFETY: an aligned word of the caller's destination.
            unsafe { AtomicU64::from_ptr(to.cast()) }.store(value, Ordering::Relaxed);
        } else {
            // SAFETY: a byte of the caller's source.
            let source = unsafe { AtomicU8::from_ptr(from.cast_mut()) };
            let value = source.load(Ordering::Relaxed);
            // SAFETY: a byte of the caller's destination.
            unsafe { AtomicU8::from_ptr(to) }.store(value, Ordering::Relaxed);
        }
    }
}

/// Sets `len` bytes.
///
/// # Safety
/// That of the destination of [`copy`].
pub(super) unsafe fn fill(to: *mut u8, len: usize, value: u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= 64 {
        // SAFETY: the caller's range, forwards, as the direction flag is clear in every function.
        unsafe {
            asm!(
                "rep stosb",
                inout("rcx") len => _,
                inout("rdi") to => _,
                in("al") value,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    for at in 0..len {
        // SAFETY: a byte of the caller's range.
        unsafe { AtomicU8::from_ptr(to.wrapping_add(at)) }.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_fills_of_every_length_and_overlap() {
        let lengths = (0..=200).chain([2047, 2048, 2049, 5000]);
        for len in lengths {
            for shift in [-300_isize, -64, -33, -8, -1, 0, 1, 7, 31, 32, 65, 300] {
                let mut memory: Vec<u8> = (0..len + 700).map(|n| (n * 7 % 251) as u8).collect();
                let mut expected = memory.clone();
                let (from, to) = (310, 310_usize.strict_add_signed(shift));
                expected.copy_within(from..from + len, to);
                let base = memory.as_mut_ptr();
                // SAFETY: both ranges are within the vector, which nothing borrows.
                unsafe { copy(base.wrapping_add(from), base.wrapping_add(to), len) };
                assert!(memory == expected, "{len} bytes moved by {shift}");
            }
            let mut memory = vec![1_u8; len + 2];
            // SAFETY: within the vector, which nothing borrows.
            unsafe { fill(memory.as_mut_ptr().wrapping_add(1), len, 9) };
            let nines = memory.iter().filter(|b| **b == 9).count();
            assert_eq!((nines, memory[0], memory[len + 1]), (len, 1, 1));
        }
    }
}
