//! The memory of a rank, read and written by the process that holds the simulation.
//!
//! A rank opens its own `/proc/self/mem` and hands the descriptor over with its hello ([`Files`]). The descriptor is of one
//! address space for ever: when that is gone every access fails, whoever has the process's number by then. A process may
//! always open its own, so ranks of other user and PID namespaces than the simulation's are reached like any other.
//!
//! Linux lets this file pass over the protection of a mapping. So the simulation asks `/proc/self/maps`, handed over beside
//! it, what may be read and written ([`super::areas`]).

use super::areas::{Access, AddressSpace};
use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, open};
use rustix::io::{Errno, pread, pwrite};
use rustix::process::{DumpableBehavior, dumpable_behavior};
use serde::{Deserialize, Serialize};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Memory by virtual address; a fault is an answer, never a crash.
pub(super) trait UserMemory: Send + std::fmt::Debug {
    /// Fills `buf`; `false` when a byte is not readable.
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool;
    /// Stores `data`; `false` when a byte is not writable. The process finds it there when [`UserMemory::flush`] has returned.
    fn write(&mut self, addr: u64, data: &[u8]) -> bool;
    /// Makes the writes that the process does not see yet.
    fn flush(&mut self) {}
    /// The process has run: what was known of its mappings may have changed.
    fn has_run(&mut self) {}
}

/// Where a rank has put a word that nobody can guess, and the word.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Probe {
    pub(super) address: u64,
    pub(super) word: [u8; Self::LEN],
}

impl Probe {
    pub(super) const LEN: usize = 16;
}

/// The files of an address space.
#[derive(Debug)]
pub(super) struct Files {
    memory: OwnedFd,
    maps: OwnedFd,
}

/// The magic number of a proc file system.
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

impl Files {
    /// How many descriptors are handed over.
    pub(super) const COUNT: usize = 2;

    /// Of the calling process. An error says why not, as the end of a sentence.
    pub(super) fn own() -> Result<Self, String> {
        // The first thread of a process may have ended before the others, and its memory with it.
        let of_thread = Self::at(Path::new("/proc/thread-self"));
        let of_process = Self::at(Path::new("/proc/self")).and_then(Self::tried);
        of_process
            .or_else(|_| of_thread.and_then(Self::tried))
            .map_err(refusal)
    }

    fn at(folder: &Path) -> Result<Self, Errno> {
        let memory = open(
            folder.join("mem"),
            OFlags::RDWR | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let maps = open(
            folder.join("maps"),
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        Ok(Self { memory, maps })
    }

    /// Itself, if it reaches this process. Some kernels let nobody write by this file.
    fn tried(self) -> Result<Self, Errno> {
        let mut word = Box::new(0x5ea5_7a12_u64);
        let address = std::ptr::from_mut::<u64>(&mut word).expose_provenance() as u64;
        let mut back = [0; 8];
        let read = read_all(self.memory.as_fd(), address, &mut back);
        let written = write_all(self.memory.as_fd(), address, &(!*word).to_ne_bytes());
        let now = std::hint::black_box(word);
        if read && written && back == (!*now).to_ne_bytes() {
            Ok(self)
        } else {
            Err(Errno::IO)
        }
    }

    /// To be sent beside a hello.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; Self::COUNT] {
        [self.memory.as_fd(), self.maps.as_fd()]
    }

    /// What came beside a hello, if it is what [`Files::descriptors`] sends and shows the word of `probe`. An error says why
    /// not, as the end of a sentence.
    pub(super) fn received(fds: Vec<OwnedFd>, probe: &Probe) -> Result<Self, String> {
        let Ok([memory, maps]) = <[OwnedFd; Self::COUNT]>::try_from(fds) else {
            return Err("its descriptors did not arrive; are as many open as the limit permits (ulimit -n)?".to_owned());
        };
        // Nothing else is read or written here: other files may have the simulation wait for somebody.
        let of_proc = |fd: &OwnedFd| -> Result<bool, Errno> {
            let regular = FileType::from_raw_mode(fstat(fd)?.st_mode).is_file();
            Ok(regular && fstatfs(fd)?.f_type as u64 == PROC_SUPER_MAGIC)
        };
        let unknown = |errno| format!("what it handed over cannot be looked at: {errno}");
        for fd in [&memory, &maps] {
            if !of_proc(fd).map_err(unknown)? {
                return Err("what it handed over is not of a /proc".to_owned());
            }
        }
        let mut word = [0; Probe::LEN];
        if !read_all(memory.as_fd(), probe.address, &mut word) || word != probe.word {
            return Err("what it handed over does not show its memory".to_owned());
        }
        Ok(Self { memory, maps })
    }
}

/// Why a process cannot hand its own memory over.
fn refusal(errno: Errno) -> String {
    let there = |path| Path::new(path).exists();
    match errno {
        Errno::NOENT if there("/proc/version") => {
            "the /proc that is mounted here is of another PID namespace".to_owned()
        }
        Errno::NOENT => "/proc is not mounted here".to_owned(),
        Errno::ACCESS | Errno::PERM if !is_dumpable() => format!(
            "the kernel closes its /proc/self/mem, as {} (PR_GET_DUMPABLE)",
            closed_because()
        ),
        errno => format!("its /proc/self/mem cannot be used: {errno}"),
    }
}

fn is_dumpable() -> bool {
    !matches!(
        dumpable_behavior(),
        Ok(DumpableBehavior::NotDumpable | DumpableBehavior::DumpableReadableOnlyByRoot)
    )
}

/// Why this process is not dumpable, as far as it can be seen.
fn closed_because() -> String {
    match std::env::current_exe() {
        Ok(exe) if std::fs::File::open(&exe).is_err() => {
            format!("its user may run, but not read, {}", exe.display())
        }
        _ => "it has got or given up privileges (set-user-id, capabilities, setuid), or has asked for that by prctl"
            .to_owned(),
    }
}

/// The memory of the process whose files these are.
///
/// Where the kernel says what is mapped now, writes are combined until the process may look. What another thread of it takes
/// away meanwhile is lost with the memory that it was for, as on a NIC, whose pages stay until it has written.
#[derive(Debug)]
pub(super) struct ProcessMemory {
    files: Arc<Files>,
    areas: AddressSpace,
    writes: WriteBuffer,
}

impl ProcessMemory {
    pub(super) fn new(files: Arc<Files>) -> Self {
        Self {
            files,
            areas: AddressSpace::default(),
            writes: WriteBuffer::default(),
        }
    }

    fn may(&mut self, addr: u64, len: usize, access: Access) -> bool {
        self.areas
            .permits(self.files.maps.as_fd(), (addr, len), access)
    }
}

impl UserMemory for ProcessMemory {
    fn read(&mut self, addr: u64, buf: &mut [u8]) -> bool {
        if self.writes.overlaps(addr, buf.len()) {
            self.flush();
        }
        self.may(addr, buf.len(), Access::Read) && read_all(self.files.memory.as_fd(), addr, buf)
    }

    fn write(&mut self, addr: u64, data: &[u8]) -> bool {
        if !self.may(addr, data.len(), Access::Write) {
            return false;
        }
        if self.areas.are_current() {
            if self.writes.add(addr, data) {
                return true;
            }
            self.flush();
            if self.writes.add(addr, data) {
                return true;
            }
        }
        write_all(self.files.memory.as_fd(), addr, data)
    }

    fn flush(&mut self) {
        let mut all = true;
        for (addr, bytes) in self.writes.take() {
            all &= write_all(self.files.memory.as_fd(), addr, bytes);
        }
        if !all {
            // It ends, or has changed its mappings: the next access asks again.
            self.areas.forget();
        }
    }

    fn has_run(&mut self) {
        self.flush();
        self.areas.forget();
    }
}

fn read_all(memory: BorrowedFd<'_>, mut addr: u64, mut buf: &mut [u8]) -> bool {
    while !buf.is_empty() {
        match pread(memory, &mut *buf, addr) {
            // The address space is gone.
            Ok(0) => return false,
            Ok(n) => {
                addr += n as u64;
                buf = &mut buf[n..];
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

fn write_all(memory: BorrowedFd<'_>, mut addr: u64, mut data: &[u8]) -> bool {
    while !data.is_empty() {
        match pwrite(memory, data, addr) {
            Ok(0) => return false,
            Ok(n) => {
                addr += n as u64;
                data = &data[n..];
            }
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

mod write_buffer;
use write_buffer::WriteBuffer;

#[cfg(test)]
mod tests;
