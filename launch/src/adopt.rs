// UNSAFETY: the launcher names the rank's socket by number in PMI_FD; borrowing a bare number is unsafe by nature, and so
// is to ask an MPI library of the process.
#![expect(
    unsafe_code,
    reason = "PMI_FD is a bare descriptor number, and functions of an MPI library are found by name"
)]
//! The socket that the launcher opened for this rank.
//!
//! # Invariants
//!
//! * The descriptor that the launcher passed stays the process's: an MPI library beside this one speaks over it too, and
//!   closes it when it has finalized. This library uses a duplicate.
//! * Neither is inherited by programs that the rank starts.

use std::ffi::{c_int, c_void};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;
use rustix::io::Errno;

use super::JobError;

/// Whether this process has already taken its place in its job.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Lets the first caller in the life of the process through.
pub(super) fn once() -> Result<(), JobError> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Err(JobError::AlreadyJoined);
    }
    Ok(())
}

/// An MPI library of this process that speaks PMI over the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mpi {
    /// There is none.
    Absent,
    /// It has not joined the job.
    Waiting,
    /// It has.
    Joined,
}

/// Looks for an MPI library as MPICH's. Open MPI's speaks PMIx alone.
pub(super) fn mpi() -> Mpi {
    type Initialized = extern "C" fn(*mut c_int) -> c_int;
    // SAFETY: looks for a name among the libraries of the process.
    let open_mpi = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"ompi_mpi_comm_world".as_ptr()) };
    // SAFETY: as above.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Initialized".as_ptr()) };
    if found.is_null() || !open_mpi.is_null() {
        return Mpi::Absent;
    }
    // SAFETY: the function of the MPI standard of this name, which may be called at any time, is of this type in C.
    let initialized = unsafe { std::mem::transmute::<*mut c_void, Initialized>(found) };
    let mut flag = 0;
    initialized(&raw mut flag);
    match flag {
        0 => Mpi::Waiting,
        _ => Mpi::Joined,
    }
}

/// A file by its device and its number there.
type File = (u64, u64);

/// The descriptor that `PMI_FD` names.
#[derive(Debug)]
pub(super) struct Inherited {
    fd: RawFd,
    /// The socket.
    socket: File,
}

impl Inherited {
    /// The file behind a number, and its type. It is asked of the number, and not of `/proc`, which a rank in a container
    /// need not have.
    fn read(fd: RawFd) -> std::io::Result<(File, FileType)> {
        if fd < 0 {
            return Err(Errno::BADF.into());
        }
        // SAFETY: the number is not negative; one that names nothing is refused by the kernel, and nothing is changed.
        let lent = unsafe { BorrowedFd::borrow_raw(fd) };
        let stat = rustix::fs::fstat(lent)?;
        Ok((
            (stat.st_dev, stat.st_ino),
            FileType::from_raw_mode(stat.st_mode),
        ))
    }

    /// Whether somebody in this process has closed it: a library that has left the job over it.
    pub(super) fn is_closed(&self) -> bool {
        Self::read(self.fd).map_or(true, |(now, _)| now != self.socket)
    }
}

/// Whether `fd` is a connected socket of this process.
pub(super) fn is_connected(fd: RawFd) -> bool {
    if !Inherited::read(fd).is_ok_and(|(_, kind)| kind == FileType::Socket) {
        return false;
    }
    // SAFETY: the descriptor is open, as was asked above, and is only asked for its peer.
    let lent = unsafe { BorrowedFd::borrow_raw(fd) };
    rustix::net::getpeername(lent).is_ok()
}

/// Duplicates descriptor `fd`, once in the life of the process.
///
/// The number must name an open socket: a stale `PMI_FD` that was inherited through a program which
/// closed it would otherwise let this process talk PMI into one of its own files.
pub(super) fn socket(fd: RawFd) -> Result<(OwnedFd, Inherited), JobError> {
    let not_open = |source: std::io::Error| match source.raw_os_error() {
        Some(libc::EBADF) => JobError::NotOpen { fd, source },
        _ => JobError::Forbidden { fd, source },
    };
    let (socket, kind) = Inherited::read(fd).map_err(not_open)?;
    if kind != FileType::Socket {
        return Err(JobError::NotASocket {
            fd,
            target: std::fs::read_link(format!("/proc/self/fd/{fd}"))
                .map_or_else(|_| format!("{kind:?}"), |path| path.display().to_string()),
        });
    }
    once()?;
    // SAFETY: the descriptor is open as was asked above, and who closes it does so when it leaves the job,
    // which is not while this library joins.
    let lent = unsafe { BorrowedFd::borrow_raw(fd) };
    // Not below 3, whatever is free there: what is printed would go to the launcher.
    let own = rustix::io::fcntl_dupfd_cloexec(lent, 3).map_err(|errno| not_open(errno.into()))?;
    rustix::io::fcntl_setfd(lent, rustix::io::FdFlags::CLOEXEC)
        .map_err(|errno| not_open(errno.into()))?;
    Ok((own, Inherited { fd, socket }))
}
