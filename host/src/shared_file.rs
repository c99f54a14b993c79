//! Files without a name that processes map together.

use crate::limit::limit;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::process::Resource;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A new file of `len` bytes, zeroed and sealed, for others to map.
///
/// # Errors
/// The system has no such files, or not of this length.
pub fn create(name: &str, len: usize) -> io::Result<OwnedFd> {
    create_with(name, len, SealFlags::SEAL)
}

/// Makes a file without a name ([`create`]) that its maker may [seal](seal_for_others) once it has mapped it.
///
/// # Errors
/// Those of [`create`].
pub fn create_own(name: &str, len: usize) -> io::Result<OwnedFd> {
    create_with(name, len, SealFlags::empty())
}

fn create_with(name: &str, len: usize, seals: SealFlags) -> io::Result<OwnedFd> {
    // Beyond the limit the process would be killed by a signal that says nothing.
    if let Some(most) = limit(Resource::Fsize).ok().and_then(|l| l.current)
        && len as u64 > most
    {
        let words = format!("{len} bytes are needed, the limit of files (ulimit -f) is {most}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
    }
    let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    rustix::fs::ftruncate(&fd, len as u64)?;
    rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | seals)?;
    Ok(fd)
}

/// Checks that a file has `len` bytes for ever.
///
/// # Errors
/// It has another length, or may shrink.
pub fn look_at(fd: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    let size = rustix::fs::fstat(fd)?.st_size;
    if len == 0 || usize::try_from(size) != Ok(len) {
        let text = format!("the shared memory has {size} bytes, not {len}");
        return Err(io::Error::other(text));
    }
    if !rustix::fs::fcntl_get_seals(fd)?.contains(SealFlags::SHRINK) {
        return Err(io::Error::other("the shared memory is not sealed"));
    }
    Ok(())
}

/// From now on a file that [`create`] made is mapped for reading only, and not written by system calls. What is mapped
/// for writing already stays so.
///
/// # Errors
/// The kernel is older than 5.1.
pub fn seal_for_others(fd: &OwnedFd) -> io::Result<()> {
    rustix::fs::fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)?;
    Ok(())
}
