//! The memory that one chip reaches: ranges of addresses, each a part of a file.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use nic_model::{HostFault, HostMemory, NodeId};
use rustix::fs::{FileType, fstat, fstatfs};

use crate::memory::{read_at, write_at};

/// File systems whose files are memory: tmpfs (a memfd's too), hugetlbfs, ramfs.
const MEMORY: [u32; 3] = [0x0102_1994, 0x9584_58F6, 0x8584_58F6];

/// Ranges a device takes.
const MOST: usize = 4096;

/// Why a range cannot be mapped or unmapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DmaMapError {
    /// The range is empty, or wraps, or no access is allowed.
    #[error("{size} bytes at {address:#x} are no range that can be mapped")]
    Range {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Something is mapped there.
    #[error("{size} bytes at {address:#x} overlap what is mapped")]
    Overlap {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// Nothing with these bounds is mapped.
    #[error("{size} bytes at {address:#x} are not mapped as one range")]
    NotMapped {
        /// First byte.
        address: u64,
        /// Bytes.
        size: u64,
    },
    /// The file is not memory, or shorter than the range.
    #[error("the descriptor does not hold bytes {offset}+{size}")]
    File {
        /// First byte in the file.
        offset: u64,
        /// Bytes.
        size: u64,
    },
    /// The file is on a disk, or served by somebody, who may keep the reader waiting for ever.
    #[error("the descriptor is no memory; use a memfd, or a file of tmpfs or hugetlbfs")]
    Kind,
    /// Too many ranges.
    #[error("{MOST} ranges are mapped already")]
    Full,
}

#[derive(Debug)]
struct Range {
    size: u64,
    file: OwnedFd,
    offset: u64,
    readable: bool,
    writable: bool,
}

/// What is mapped for the chip of one node.
///
/// Files are read and written by system calls, so one that is cut off later makes an access
/// fail; it does not end this process.
#[derive(Debug)]
pub struct DmaMap {
    node: NodeId,
    ranges: BTreeMap<u64, Range>,
}

impl DmaMap {
    /// Nothing mapped for `node`.
    #[must_use]
    pub fn new(node: NodeId) -> Self {
        Self {
            node,
            ranges: BTreeMap::new(),
        }
    }

    /// Maps `size` bytes at `address` to `file` from `offset`.
    ///
    /// # Errors
    /// The range is empty, wraps or overlaps another, or the file does not hold it.
    pub fn map(
        &mut self,
        address: u64,
        size: u64,
        (file, offset): (OwnedFd, u64),
        (readable, writable): (bool, bool),
    ) -> Result<(), DmaMapError> {
        let bad = DmaMapError::Range { address, size };
        let last = address
            .checked_add(size.checked_sub(1).ok_or(bad)?)
            .ok_or(bad)?;
        if !readable && !writable {
            return Err(bad);
        }
        if self.ranges.len() >= MOST {
            return Err(DmaMapError::Full);
        }
        let before = self.ranges.range(..=last).next_back();
        if before.is_some_and(|(at, range)| at + (range.size - 1) >= address) {
            return Err(DmaMapError::Overlap { address, size });
        }
        let end = offset
            .checked_add(size)
            .filter(|&end| i64::try_from(end).is_ok());
        let held = fstat(&file).is_ok_and(|stat| {
            FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
                && end.is_some_and(|end| end <= stat.st_size.cast_unsigned())
        });
        if !held {
            return Err(DmaMapError::File { offset, size });
        }
        if !fstatfs(&file).is_ok_and(|fs| MEMORY.contains(&(fs.f_type as u32))) {
            return Err(DmaMapError::Kind);
        }
        let range = Range {
            size,
            file,
            offset,
            readable,
            writable,
        };
        self.ranges.insert(address, range);
        Ok(())
    }

    /// Unmaps the range that was mapped with these bounds.
    ///
    /// # Errors
    /// There is none.
    pub fn unmap(&mut self, address: u64, size: u64) -> Result<(), DmaMapError> {
        if self.ranges.get(&address).is_none_or(|r| r.size != size) {
            return Err(DmaMapError::NotMapped { address, size });
        }
        self.ranges.remove(&address);
        Ok(())
    }

    /// Bytes of the range that begins at `address`.
    #[must_use]
    pub fn size_at(&self, address: u64) -> Option<u64> {
        self.ranges.get(&address).map(|r| r.size)
    }

    /// Unmaps everything.
    pub fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Calls `access` with each piece of `address`+`length`: its range, where in the file, and
    /// which of the bytes. First all pieces are looked up, so that nothing happens unless all
    /// are there.
    fn pieces(
        &self,
        address: u64,
        length: usize,
        mut access: impl FnMut(&Range, u64, std::ops::Range<usize>) -> bool,
    ) -> Result<(), HostFault> {
        let fault = HostFault::new(self.node, address, length);
        for dry in [true, false] {
            let mut done = 0;
            while done < length {
                let at = address.checked_add(done as u64).ok_or(fault)?;
                let (start, range) = self.ranges.range(..=at).next_back().ok_or(fault)?;
                let within = at - start;
                if within >= range.size {
                    return Err(fault);
                }
                let rest = range.size - within;
                let count = usize::try_from(rest).map_or(length - done, |r| r.min(length - done));
                if !dry && !access(range, range.offset + within, done..done + count) {
                    return Err(fault);
                }
                done += count;
            }
        }
        Ok(())
    }
}

impl HostMemory for DmaMap {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let length = buf.len();
        self.pieces(address, length, |range, offset, bytes| {
            range.readable && read_at(range.file.as_fd(), offset, &mut buf[bytes]).is_ok()
        })
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), HostFault> {
        self.pieces(address, data.len(), |range, offset, bytes| {
            // A file that has become shorter would grow again.
            let held = fstat(&range.file)
                .is_ok_and(|stat| offset + bytes.len() as u64 <= stat.st_size.cast_unsigned());
            range.writable && held && write_at(range.file.as_fd(), offset, &data[bytes]).is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DmaMemory;

    fn file(memory: &DmaMemory) -> OwnedFd {
        memory.as_fd().try_clone_to_owned().unwrap()
    }

    #[test]
    fn an_access_crosses_adjacent_ranges_and_nothing_else() {
        let memory = DmaMemory::new(0x3000).unwrap();
        let mut map = DmaMap::new(NodeId(0));
        map.map(0x1000, 0x1000, (file(&memory), 0x2000), (true, true))
            .unwrap();
        map.map(0x2000, 0x1000, (file(&memory), 0), (true, true))
            .unwrap();
        map.write(0x1FFE, &[1, 2, 3, 4]).unwrap();
        let mut two = [0; 2];
        memory.read(0x2FFE, &mut two).unwrap();
        assert_eq!(two, [1, 2]);
        memory.read(0, &mut two).unwrap();
        assert_eq!(two, [3, 4]);
        let fault = |address, length| Err(HostFault::new(NodeId(0), address, length));
        assert_eq!(map.write(0x2FFE, &[9; 4]), fault(0x2FFE, 4));
        memory.read(0xFFE, &mut two).unwrap();
        assert_eq!(two, [0, 0], "all or nothing");
        assert_eq!(map.read(0xFFF, &mut two), fault(0xFFF, 2));
        assert_eq!(map.read(u64::MAX, &mut two), fault(u64::MAX, 2));
        map.unmap(0x1000, 0x1000).unwrap();
        assert_eq!(map.read(0x1FFE, &mut two), fault(0x1FFE, 2));
    }

    /// A file of another kind may be served by somebody who keeps its readers waiting.
    #[test]
    fn only_memory_is_mapped() {
        let file = std::fs::File::open("/sys/kernel/mm/transparent_hugepage/enabled")
            .or_else(|_| std::fs::File::open("/sys/kernel/uevent_seqnum"));
        let Ok(file) = file else {
            println!("skipped: no file of sysfs can be opened");
            return;
        };
        let held = file.metadata().unwrap().len();
        let mut map = DmaMap::new(NodeId(0));
        let error = map.map(0, held.max(1), (file.into(), 0), (true, false));
        assert!(matches!(error, Err(DmaMapError::Kind)), "{error:?}");
    }

    #[test]
    fn absurd_ranges_are_refused() {
        let memory = DmaMemory::new(0x2000).unwrap();
        let mut map = DmaMap::new(NodeId(0));
        let mut try_map =
            |address, size, offset, access| map.map(address, size, (file(&memory), offset), access);
        let both = (true, true);
        for (address, size, access) in [
            (0, 0, both),
            (u64::MAX - 1, 4, both),
            (0, 0x1000, (false, false)),
        ] {
            let got = try_map(address, size, 0, access);
            assert_eq!(got, Err(DmaMapError::Range { address, size }));
        }
        for (size, offset) in [(0x3000, 0), (0x1000, 0x1001), (0x1000, u64::MAX - 8)] {
            let got = try_map(0, size, offset, both);
            assert_eq!(got, Err(DmaMapError::File { offset, size }));
        }
        try_map(0x1000, 0x1000, 0, both).unwrap();
        for (address, size) in [(0x1000, 0x1000), (0x1FFF, 1), (0x800, 0x801), (0, 0x2000)] {
            let got = try_map(address, size, 0, both);
            assert_eq!(got, Err(DmaMapError::Overlap { address, size }));
        }
        let (address, size) = (0x1000, 0x800);
        let got = map.unmap(address, size);
        assert_eq!(got, Err(DmaMapError::NotMapped { address, size }));
    }

    #[test]
    fn a_file_that_is_cut_off_is_a_fault() {
        let memory = DmaMemory::new(0x2000).unwrap();
        let mut map = DmaMap::new(NodeId(0));
        map.map(0, 0x2000, (file(&memory), 0), (true, true))
            .unwrap();
        rustix::fs::ftruncate(&memory, 0x1000).unwrap();
        let mut word = [0; 4];
        let fault = Err(HostFault::new(NodeId(0), 0x1FF0, 4));
        assert_eq!(map.read(0x1FF0, &mut word), fault);
        assert_eq!(map.write(0x1FF0, &word), fault);
        assert_eq!(map.write(0x0FF0, &word), Ok(()));
    }

    #[test]
    fn a_pipe_is_no_memory() {
        let (reader, _writer) = rustix::pipe::pipe().unwrap();
        let mut map = DmaMap::new(NodeId(0));
        let got = map.map(0, 1, (reader, 0), (true, true));
        assert_eq!(got, Err(DmaMapError::File { offset: 0, size: 1 }));
    }
}
