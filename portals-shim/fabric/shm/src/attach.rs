// UNSAFETY: process_vm_readv and process_vm_writev take raw addresses; the kernel checks those of the other process
// and those of this one, and the memory is that of descriptors whose makers promised it to the library.
#![expect(
    unsafe_code,
    reason = "reads and writes raw addresses of another process, which the kernel checks"
)]
//! Cross-memory attach: the kernel copies between two processes, once and without their help.
//!
//! The kernel is told a number, and a number may come to mean another process. So a process is known by a random word
//! at an address that it told at the start. Every call that reads asks for that word too, in the same call: what comes
//! with another word is not believed. Before a write the word is read. Between the two calls the process would have
//! to end, be waited for, and all other numbers be given away.

use super::open::Unreachable;
use host::fork::Own;
use host::process::{bytes, on_memory_of};
use host::secret::random;
use portals_core::{NiFail, Segment};
use smallvec::SmallVec;
use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;

type Pieces = SmallVec<[libc::iovec; 4]>;

/// Pieces that the kernel takes in one call, the word included.
const MOST_PIECES: usize = 1024;

/// The own word: a forked child has another one, elsewhere.
static WORD: Own<OnceLock<u64>> = Own::unset();

/// The word by which others know this process, and where it is.
pub(super) fn own_word() -> io::Result<(u64, u64)> {
    let own = WORD.get();
    let word = match own.get() {
        Some(word) => word,
        None => {
            let mut made = [0; 8];
            random(&mut made)?;
            own.get_or_init(|| u64::from_ne_bytes(made))
        }
    };
    Ok((*word, std::ptr::from_ref(word).expose_provenance() as u64))
}

/// A process whose memory the kernel may copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct There {
    /// Its number in the own PID namespace.
    pub(super) pid: i32,
    /// Its word, and where it has it.
    pub(super) word: u64,
    pub(super) at: u64,
}

/// Why the kernel has not copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum CopyError {
    /// It does not, or no longer, copy between the two; another way may.
    #[error("the kernel does not copy between the two processes: {0}")]
    Refused(#[source] io::Error),
    /// The number means another process.
    #[error("process {0} is another one than at the start")]
    Stranger(i32),
    /// The other one does not have the memory.
    #[error("memory of the peer cannot be read or written: {0}")]
    Memory(#[source] io::Error),
    /// This process does not have the memory.
    #[error("memory of this process cannot be read or written: {0}")]
    Own(#[source] io::Error),
    /// The other one has closed, so that what it told of its memory may mean anything since.
    #[error("the peer has closed its interface")]
    Closed,
}

/// Why the kernel copies nothing for a rank.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoCopy {
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error(transparent)]
    Copy(#[from] CopyError),
}

impl NoCopy {
    /// What helps, as the end of a sentence; nothing if that is not known.
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Unreachable(Unreachable::Namespace { .. }) => {
                ". One PID namespace for all ranks, and its /proc, helps"
            }
            Self::Copy(CopyError::Refused(_)) => {
                ". kernel.yama.ptrace_scope=0 or the container's permission for it helps"
            }
            _ => "",
        }
    }
}

impl From<io::Error> for CopyError {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EFAULT) => Self::Memory(error),
            _ if error.kind() == io::ErrorKind::UnexpectedEof => Self::Memory(error),
            _ => Self::Refused(error),
        }
    }
}

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
        if n == 0 || out.len() == MOST_PIECES - 1 {
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

/// `len` bytes at an address.
fn piece(addr: u64, len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: std::ptr::with_exposed_provenance_mut::<c_void>(addr as usize),
        iov_len: len,
    }
}

/// Bytes of a word.
const WORD_LEN: usize = size_of::<u64>();

/// Reads the word of a process by the number of one of its threads, and behind it as many bytes of the lists as the
/// kernel takes in one call.
fn read(
    there: &There,
    thread: i32,
    here: &[libc::iovec],
    from: &[libc::iovec],
) -> io::Result<usize> {
    let mut seen = 0u64;
    let word = std::ptr::from_mut(&mut seen).expose_provenance() as u64;
    let (mut into, mut out) = (Pieces::new(), Pieces::new());
    into.push(piece(word, WORD_LEN));
    into.extend_from_slice(here);
    out.push(piece(there.at, WORD_LEN));
    out.extend_from_slice(from);
    let (h, t) = (into.len() as libc::c_ulong, out.len() as libc::c_ulong);
    // SAFETY: the kernel checks both lists of addresses; what it writes here is `seen`, and memory of a descriptor,
    // which its maker promised to the library until the operation's `*_end`.
    let said = unsafe { libc::process_vm_readv(thread, into.as_ptr(), h, out.as_ptr(), t, 0) };
    let read = match bytes(said) {
        // Some piece is not there, of either side. By the word alone it is known which.
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) && !from.is_empty() => {
            read(there, thread, &[], &[])?;
            return Err(error);
        }
        // The system may have no memory for the page of the word: that says nothing about whose number it is.
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => return Err(unread()),
        other => other?,
    };
    if read < WORD_LEN || std::hint::black_box(seen) != there.word {
        return Err(stranger());
    }
    Ok(read - WORD_LEN)
}

/// Has the kernel write to a peer's memory; see [`read`].
fn write(
    there: &There,
    thread: i32,
    here: &[libc::iovec],
    to: &[libc::iovec],
) -> io::Result<usize> {
    read(there, thread, &[], &[])?;
    let (h, t) = (here.len() as libc::c_ulong, to.len() as libc::c_ulong);
    // SAFETY: the kernel checks both lists; it reads here and writes in the other process. When that is the own one,
    // the address is that of an advertised descriptor, promised in the same way.
    bytes(unsafe { libc::process_vm_writev(thread, here.as_ptr(), h, to.as_ptr(), t, 0) })
}

/// What [`read`] says of a process with another word; no system call does.
fn stranger() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// What [`read`] says of a process whose word cannot be read.
fn unread() -> io::Error {
    io::Error::other("the word of the other process cannot be read")
}

/// Whether the kernel copies from there.
///
/// # Errors
/// Why it does not.
pub(super) fn probe(there: &There) -> Result<(), CopyError> {
    on_memory_of(there.pid, |thread| read(there, thread, &[], &[]))
        .map_err(|error| of(error, there))?;
    Ok(())
}

fn of(error: io::Error, there: &There) -> CopyError {
    if error.kind() == io::ErrorKind::InvalidData {
        return CopyError::Stranger(there.pid);
    }
    error.into()
}

/// Moves the first `len` bytes of `remote`, memory of another process, to or from those of `local`.
///
/// # Errors
/// The kernel forbids it, it is another process, a byte is not there, or a list ends early.
pub(super) fn copy(
    way: Way,
    there: &There,
    local: &[Segment],
    remote: &[Segment],
    len: u64,
) -> Result<(), CopyError> {
    let mut done = 0;
    while done < len {
        let near = pieces(local, done, len - done);
        let far = pieces(remote, done, len - done);
        if near.is_empty() || far.is_empty() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let moved = on_memory_of(there.pid, |thread| match way {
            Way::Read => read(there, thread, &near, &far),
            Way::Write => write(there, thread, &near, &far),
        });
        let moved = match moved.map_err(|error| of(error, there)) {
            Ok(0) => Err(io::Error::from_raw_os_error(libc::EFAULT).into()),
            moved => moved,
        };
        done += moved.map_err(|error| whose(error, way, &near))? as u64;
    }
    Ok(())
}

/// What an operation ends with that the kernel was to copy for.
pub(super) fn failure(error: &CopyError) -> NiFail {
    match error {
        CopyError::Own(_) => NiFail::SEGV,
        CopyError::Memory(_)
        | CopyError::Closed
        | CopyError::Refused(_)
        | CopyError::Stranger(_) => NiFail::FAIL,
    }
}

/// The kernel does not say which of the two processes does not have the memory where it stopped. Whether this one has its pieces
/// is asked by a copy of their first bytes within it.
#[cold]
fn whose(error: CopyError, way: Way, near: &[libc::iovec]) -> CopyError {
    let CopyError::Memory(cause) = error else {
        return error;
    };
    let mut seen = vec![0u8; near.len()];
    let first = |base| libc::iovec {
        iov_base: base,
        iov_len: 1,
    };
    let from: Pieces = near.iter().map(|piece| first(piece.iov_base)).collect();
    // What was to be written is written onto itself.
    let into: Pieces = match way {
        Way::Read => from.clone(),
        Way::Write => seen
            .iter_mut()
            .map(|byte| first(std::ptr::from_mut(byte).cast()))
            .collect(),
    };
    let pieces = near.len() as libc::c_ulong;
    // SAFETY: asks for a number.
    let thread = unsafe { libc::gettid() };
    // SAFETY: the kernel checks both lists of addresses; what it writes is `seen`, or memory of a descriptor, which is the
    // library's until the operation's `*_end`, with the values that it has.
    let said =
        unsafe { libc::process_vm_readv(thread, into.as_ptr(), pieces, from.as_ptr(), pieces, 0) };
    let has_all = match bytes(said) {
        Ok(read) => read == near.len(),
        Err(error) => error.raw_os_error() != Some(libc::EFAULT),
    };
    match has_all {
        true => CopyError::Memory(cause),
        false => CopyError::Own(cause),
    }
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
    fn what_helps_is_what_is_in_the_way() {
        let namespace = Unreachable::Namespace { rank: 1 };
        let refused = CopyError::from(io::Error::from_raw_os_error(libc::EPERM));
        let (rank, other) = (1, 2);
        for (error, words) in [
            (NoCopy::from(namespace), ". One PID namespace for all ranks"),
            (refused.into(), ". kernel.yama.ptrace_scope=0 or"),
            (Unreachable::Same { rank, other }.into(), ""),
            (CopyError::Stranger(7).into(), ""),
        ] {
            let remedy = error.remedy();
            let is_so = remedy.starts_with(words) && remedy.is_empty() == words.is_empty();
            assert!(is_so, "{error}: {remedy}");
        }
    }

    fn own() -> There {
        let (word, at) = own_word().unwrap();
        There {
            pid: std::process::id().cast_signed(),
            word,
            at,
        }
    }

    #[test]
    fn a_forked_child_has_a_word_of_its_own_elsewhere() {
        let inherited = own_word().unwrap();
        // SAFETY: the child asks for random bytes and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let own = own_word().is_ok_and(|(word, at)| word != inherited.0 && at != inherited.1);
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(i32::from(!own)) };
        }
        let mut status = -1;
        // SAFETY: the child is this process's, and the status is wanted there.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!((status, own_word().unwrap()), (0, inherited));
    }

    #[test]
    fn lists_of_different_shape_are_joined() {
        let own = own();
        let mut from: Vec<u8> = (0..=255).collect();
        let (mut a, mut b) = (vec![0u8; 100], vec![0u8; 120]);
        let there = [place(&mut from[..30]), place(&mut from[30..])];
        let here = [place(&mut a), place(&mut b)];
        copy(Way::Read, &own, &here, &there, 220).unwrap();
        a.extend_from_slice(&b);
        assert_eq!(a[..], from[..220]);
        a.fill(9);
        let here = [place(&mut a)];
        copy(Way::Write, &own, &here, &there, 40).unwrap();
        assert!(from[..40].iter().all(|v| *v == 9) && from[40] == 40);
    }

    #[test]
    fn more_pieces_than_a_call_takes_are_moved() {
        let own = own();
        let mut from = vec![5u8; 3000];
        let there: Vec<Segment> = from.chunks_mut(1).map(place).collect();
        let mut to = vec![0u8; 3000];
        copy(Way::Read, &own, &[place(&mut to)], &there, 3000).unwrap();
        assert_eq!(to, from);
    }

    #[test]
    fn bad_memory_is_an_error() {
        let own = own();
        let mut to = [0u8; 8];
        let there = [Segment { addr: 8, len: 8 }];
        let is_memory = |r| matches!(r, Err(CopyError::Memory(_)));
        assert!(is_memory(copy(
            Way::Read,
            &own,
            &[place(&mut to)],
            &there,
            8
        )));
        assert!(is_memory(copy(
            Way::Write,
            &own,
            &[place(&mut to)],
            &there,
            8
        )));
        // Own memory where no user's can be: the kernel refuses the call before it looks at the other process.
        let is_own = |r| matches!(r, Err(CopyError::Own(_)));
        let nowhere = [Segment {
            addr: 1 << 47,
            len: 8,
        }];
        let mut good = [0u8; 8];
        let there = [place(&mut good)];
        for way in [Way::Read, Way::Write] {
            let said = copy(way, &own, &nowhere, &there, 8);
            assert!(is_own(said), "{way:?}");
        }
        let mut from = [0u8; 4];
        let short = [place(&mut from)];
        assert!(is_memory(copy(
            Way::Read,
            &own,
            &[place(&mut to)],
            &short,
            8
        )));
    }

    /// Pages of which some may not be read, or not be written.
    struct Pages {
        base: *mut c_void,
        len: usize,
    }

    impl Pages {
        const PAGE: usize = 4096;

        fn of(rights: &[libc::c_int]) -> Self {
            let len = rights.len() * Self::PAGE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let all = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: new memory, at an address that the kernel chooses.
            let base = unsafe { libc::mmap(std::ptr::null_mut(), len, all, flags, -1, 0) };
            assert_ne!(base, libc::MAP_FAILED);
            for (page, rights) in rights.iter().enumerate() {
                let at = base.wrapping_byte_add(page * Self::PAGE);
                // SAFETY: a page of the memory above, which nobody has a reference to.
                assert_eq!(unsafe { libc::mprotect(at, Self::PAGE, *rights) }, 0);
            }
            Self { base, len }
        }

        /// All of it but its first `skip` bytes.
        fn from(&self, skip: usize) -> Segment {
            Segment {
                addr: (self.base.expose_provenance() + skip) as u64,
                len: (self.len - skip) as u64,
            }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: mapped in `of`, and unmapped here only.
            unsafe { libc::munmap(self.base, self.len) };
        }
    }

    /// Memory fails on the one side or the other, in its first page or behind that, in one piece or in several.
    #[test]
    fn it_is_known_whose_memory_is_not_there() {
        const BOTH: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;
        const NONE: libc::c_int = libc::PROT_NONE;
        let own = own();
        for bad in [[NONE, BOTH], [BOTH, NONE]] {
            for split in [false, true] {
                let (good, bad) = (Pages::of(&[BOTH; 2]), Pages::of(&bad));
                let list = |pages: &Pages| match split {
                    false => vec![pages.from(100)],
                    true => {
                        let mut first = pages.from(100);
                        first.len = 3000;
                        vec![first, pages.from(3100)]
                    }
                };
                let (good, bad) = (list(&good), list(&bad));
                let len = good.iter().map(|s| s.len).sum();
                for way in [Way::Read, Way::Write] {
                    let theirs = copy(way, &own, &good, &bad, len);
                    assert!(
                        matches!(theirs, Err(CopyError::Memory(_))),
                        "{way:?}: {theirs:?}"
                    );
                    let ours = copy(way, &own, &bad, &good, len);
                    assert!(matches!(ours, Err(CopyError::Own(_))), "{way:?}: {ours:?}");
                }
            }
        }
    }

    /// Memory that may be read alone serves as a source, and fails as a destination on the side that has it.
    #[test]
    fn memory_that_may_not_be_written_is_of_who_has_it() {
        let own = own();
        let read_only = Pages::of(&[libc::PROT_READ]);
        let good = Pages::of(&[libc::PROT_READ | libc::PROT_WRITE]);
        let (read_only, good) = ([read_only.from(0)], [good.from(0)]);
        copy(Way::Read, &own, &good, &read_only, 4096).unwrap();
        copy(Way::Write, &own, &read_only, &good, 4096).unwrap();
        let ours = copy(Way::Read, &own, &read_only, &good, 4096);
        assert!(matches!(ours, Err(CopyError::Own(_))), "{ours:?}");
        let theirs = copy(Way::Write, &own, &good, &read_only, 4096);
        assert!(matches!(theirs, Err(CopyError::Memory(_))), "{theirs:?}");
    }

    /// A process that came to have the number of another one is neither read nor written.
    #[test]
    fn another_process_of_the_same_number_is_not_touched() {
        let good = own();
        let (mut theirs, mut ours) = ([1u8; 64], [2u8; 64]);
        let other_word = There {
            word: good.word ^ 1,
            ..good
        };
        // It has nothing there, or the system no memory to say what: nobody knows who that is.
        let no_word = There { at: 8, ..good };
        for (there, known) in [(other_word, true), (no_word, false)] {
            let is_expected = |said: Result<(), CopyError>| match said {
                Err(CopyError::Stranger(_)) => known,
                Err(CopyError::Refused(_)) => !known,
                _ => false,
            };
            assert!(is_expected(probe(&there)));
            for way in [Way::Write, Way::Read] {
                let (local, remote) = ([place(&mut ours)], [place(&mut theirs)]);
                assert!(is_expected(copy(way, &there, &local, &remote, 64)));
            }
        }
        assert_eq!(theirs, [1; 64]);
        probe(&good).unwrap();
    }

    #[test]
    fn what_the_kernel_does_not_do_is_no_fault_of_the_memory() {
        let gone = There {
            pid: i32::MAX,
            ..own()
        };
        assert!(matches!(probe(&gone), Err(CopyError::Refused(_))));
        for errno in [libc::EPERM, libc::ENOSYS, libc::ESRCH, libc::EACCES] {
            let said = CopyError::from(io::Error::from_raw_os_error(errno));
            assert!(matches!(said, CopyError::Refused(_)), "{errno}");
        }
    }
}
