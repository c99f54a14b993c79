// UNSAFETY: process_vm_readv and process_vm_writev take raw addresses; the kernel checks those of the other process
// and those of this one, and the memory is that of descriptors whose makers promised it to the library.
#![expect(
    unsafe_code,
    reason = "reads and writes raw addresses of another process, which the kernel checks"
)]
//! Cross-memory attach: the kernel copies between two processes, once and without their help.

use crate::process::{bytes, on_memory_of};
use portals_core::Segment;
use smallvec::SmallVec;
use std::ffi::c_void;
use std::io;

type Pieces = SmallVec<[libc::iovec; 4]>;

/// Pieces that the kernel takes in one call.
const MOST_PIECES: usize = 1024;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From the other process.
    Read,
    /// To it.
    Write,
}

/// The part of `pieces` between `skip` and `skip + len`, as far as one call takes it.
fn pieces(pieces: &[Segment], mut skip: u64, mut len: u64) -> Pieces {
    let mut out = Pieces::new();
    for s in pieces {
        if skip >= s.len {
            skip -= s.len;
            continue;
        }
        let n = (s.len - skip).min(len);
        if n == 0 || out.len() == MOST_PIECES {
            break;
        }
        out.push(libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut::<c_void>((s.addr + skip) as usize),
            iov_len: n as usize,
        });
        len -= n;
        skip = 0;
    }
    out
}

/// Moves the first `len` bytes of `remote`, memory of process `pid`, to or from those of `local`.
///
/// # Errors
/// The kernel forbids it, a byte is not there, or a list ends early.
pub(super) fn copy(
    way: Way,
    pid: i32,
    local: &[Segment],
    remote: &[Segment],
    len: u64,
) -> io::Result<()> {
    let mut done = 0;
    while done < len {
        let here = pieces(local, done, len - done);
        let there = pieces(remote, done, len - done);
        let (h, t) = (here.len() as libc::c_ulong, there.len() as libc::c_ulong);
        let moved = on_memory_of(pid, |pid| {
            bytes(match way {
                // SAFETY: the kernel checks both lists of addresses; what it writes here is memory of a descriptor,
                // which its maker promised to the library until the operation's `*_end`.
                Way::Read => unsafe {
                    libc::process_vm_readv(pid, here.as_ptr(), h, there.as_ptr(), t, 0)
                },
                // SAFETY: the kernel checks both lists; it reads here and writes in the other process. When that is the
                // own one, the address is that of an advertised descriptor, promised in the same way.
                Way::Write => unsafe {
                    libc::process_vm_writev(pid, here.as_ptr(), h, there.as_ptr(), t, 0)
                },
            })
        })?;
        match moved {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            n => done += n as u64,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(bytes: &mut [u8]) -> Segment {
        Segment {
            addr: bytes.as_mut_ptr().expose_provenance() as u64,
            len: bytes.len() as u64,
        }
    }

    #[test]
    fn lists_of_different_shape_are_joined() {
        let own = std::process::id().cast_signed();
        let mut from: Vec<u8> = (0..=255).collect();
        let (mut a, mut b) = (vec![0u8; 100], vec![0u8; 120]);
        let there = [place(&mut from[..30]), place(&mut from[30..])];
        let here = [place(&mut a), place(&mut b)];
        copy(Way::Read, own, &here, &there, 220).unwrap();
        a.extend_from_slice(&b);
        assert_eq!(a[..], from[..220]);
        a.fill(9);
        let here = [place(&mut a)];
        copy(Way::Write, own, &here, &there, 40).unwrap();
        assert!(from[..40].iter().all(|v| *v == 9) && from[40] == 40);
    }

    #[test]
    fn more_pieces_than_a_call_takes_are_moved() {
        let own = std::process::id().cast_signed();
        let mut from = vec![5u8; 3000];
        let there: Vec<Segment> = from.chunks_mut(1).map(place).collect();
        let mut to = vec![0u8; 3000];
        copy(Way::Read, own, &[place(&mut to)], &there, 3000).unwrap();
        assert_eq!(to, from);
    }

    #[test]
    fn bad_memory_is_an_error() {
        let own = std::process::id().cast_signed();
        let mut to = [0u8; 8];
        let there = [Segment { addr: 8, len: 8 }];
        assert!(copy(Way::Read, own, &[place(&mut to)], &there, 8).is_err());
        let mut from = [0u8; 4];
        let short = [place(&mut from)];
        assert!(copy(Way::Read, own, &[place(&mut to)], &short, 8).is_err());
    }
}
