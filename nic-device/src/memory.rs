//! Memory of a driver that a chip may read and write at any time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;

use crate::error::DeviceError;

/// Memory that can be given to a chip in this process, in another, or in hardware.
///
/// It is a memfd, read and written by system calls: nothing in this process points into memory
/// that somebody else writes. Clones are the same memory.
#[derive(Debug, Clone)]
pub struct DmaMemory {
    file: Arc<OwnedFd>,
    length: u64,
}

impl DmaMemory {
    /// `length` bytes of zeroes.
    ///
    /// # Errors
    /// The system has none.
    pub fn new(length: u64) -> Result<Self, DeviceError> {
        let failed = |e: Errno| DeviceError::system(format!("make {length} bytes of memory"))(e);
        let file = memfd_create("portolan-dma", MemfdFlags::CLOEXEC).map_err(failed)?;
        ftruncate(&file, length).map_err(failed)?;
        Ok(Self {
            file: Arc::new(file),
            length,
        })
    }

    /// Bytes.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    fn inside(&self, offset: u64, length: usize) -> io::Result<()> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.length => Ok(()),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{offset}+{length} is outside {} bytes", self.length),
            )),
        }
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inside(offset, buf.len())?;
        read_at(self.file.as_fd(), offset, buf)
    }

    /// Stores `data` at `offset`.
    ///
    /// # Errors
    /// The range is not inside.
    pub fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.inside(offset, data.len())?;
        write_at(self.file.as_fd(), offset, data)
    }
}

impl AsFd for DmaMemory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Fills `buf` from `offset` of `file`, all of it or an error.
pub(crate) fn read_at(file: BorrowedFd<'_>, mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match rustix::io::pread(file, &mut *buf, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                offset += n as u64;
                buf = &mut buf[n..];
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}

/// Stores `data` at `offset` of `file`, all of it or an error.
pub(crate) fn write_at(file: BorrowedFd<'_>, mut offset: u64, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        match rustix::io::pwrite(file, data, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                offset += n as u64;
                data = &data[n..];
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(())
}
