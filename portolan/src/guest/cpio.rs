//! Writer of the "newc" cpio archives that the Linux kernel unpacks as its first file system.
//!
//! Format: `Documentation/driver-api/early-userspace/buffer-format.rst` of the kernel: each entry is a
//! 110-byte ASCII header, the name with its NUL padded to 4 bytes, then the data padded to 4 bytes; the
//! archive ends with an entry named `TRAILER!!!`.

use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const CHARACTER: u32 = 0o020_000;

/// Archive under construction; [`Archive::finish`] must be called for the kernel to accept it.
#[derive(Debug)]
pub(super) struct Archive<W: Write> {
    to: W,
    /// Inode numbers must differ, or the kernel takes two entries for hard links of one file.
    next_inode: u32,
}

impl<W: Write> Archive<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, next_inode: 1 }
    }

    /// A directory, mode 0755.
    pub(super) fn directory(&mut self, name: &str) -> io::Result<()> {
        self.entry(name, DIRECTORY | 0o755, (0, 0), &[])
    }

    /// A regular file with the permission bits `mode`.
    pub(super) fn file(&mut self, name: &str, mode: u32, data: &[u8]) -> io::Result<()> {
        self.entry(name, REGULAR | mode, (0, 0), data)
    }

    /// A character device node, mode 0600.
    pub(super) fn character_device(
        &mut self,
        name: &str,
        major: u32,
        minor: u32,
    ) -> io::Result<()> {
        self.entry(name, CHARACTER | 0o600, (major, minor), &[])
    }

    /// Writes the trailer and gives the writer back.
    pub(super) fn finish(mut self) -> io::Result<W> {
        self.next_inode = 0;
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.to.flush()?;
        Ok(self.to)
    }

    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) -> io::Result<()> {
        let size = u32::try_from(data.len())
            .map_err(|_| io::Error::other(format!("{name}: too large for a cpio archive")))?;
        let name_size = name.len() + 1;
        let inode = self.next_inode;
        self.next_inode += 1;
        // magic, inode, mode, uid, gid, links, mtime, size, device of the file system (2), device of the
        // node (2), size of the name with its NUL, checksum (unused in this variant).
        write!(
            self.to,
            "070701{inode:08X}{mode:08X}{:08X}{:08X}{:08X}{:08X}{size:08X}{:08X}{:08X}{:08X}{:08X}{name_size:08X}{:08X}",
            0, 0, 1, 0, 0, 0, device.0, device.1, 0
        )?;
        self.to.write_all(name.as_bytes())?;
        self.to.write_all(&[0; 4][..1 + padding(110 + name_size)])?;
        self.to.write_all(data)?;
        self.to.write_all(&[0; 4][..padding(data.len())])
    }
}

/// Bytes from `length` up to the next multiple of four.
fn padding(length: usize) -> usize {
    length.wrapping_neg() % 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_named() {
        let mut archive = Archive::new(Vec::new());
        archive.directory("dev").unwrap();
        archive.character_device("dev/console", 5, 1).unwrap();
        archive.file("init", 0o755, b"hello").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % 4, 0);
        let field = |at: usize, index: usize| {
            let start = at + 6 + index * 8;
            u32::from_str_radix(std::str::from_utf8(&bytes[start..start + 8]).unwrap(), 16).unwrap()
        };
        let mut seen = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let (size, name_size) = (field(at, 6) as usize, field(at, 11) as usize);
            let name =
                String::from_utf8(bytes[at + 110..at + 110 + name_size - 1].to_vec()).unwrap();
            let data = (at + 110 + name_size).next_multiple_of(4);
            seen.push((
                name,
                field(at, 1),
                field(at, 9),
                field(at, 10),
                bytes[data..data + size].to_vec(),
            ));
            at = (data + size).next_multiple_of(4);
        }
        assert_eq!(
            seen,
            [
                ("dev".into(), 0o040_755, 0, 0, vec![]),
                ("dev/console".into(), 0o020_600, 5, 1, vec![]),
                ("init".into(), 0o100_755, 0, 0, b"hello".to_vec()),
                ("TRAILER!!!".into(), 0, 0, 0, vec![]),
            ]
        );
    }
}
