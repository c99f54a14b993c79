// UNSAFETY: PROCMAP_QUERY is an ioctl on /proc/PID/maps.
#![expect(
    unsafe_code,
    reason = "asks /proc/PID/maps for one mapping by an ioctl, which takes a pointer"
)]
//! What may be read and written in an address space: the mappings that its `/proc/PID/maps` shows.
//!
//! Since Linux 6.11 one mapping is asked for at a time, and what is known is forgotten whenever the process has run. Older
//! kernels show all mappings as text; there they are read again when an access is to none of them or is not permitted. So
//! memory that is made read-only after it was used is taken for writable there.

use rustix::io::{Errno, pread};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::os::fd::BorrowedFd;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// A mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Area {
    start: u64,
    /// The first byte behind it.
    end: u64,
    read: bool,
    write: bool,
}

impl Area {
    const fn permits(&self, access: Access) -> bool {
        match access {
            Access::Read => self.read,
            Access::Write => self.write,
        }
    }
}

/// How a kernel tells of mappings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Way {
    #[default]
    Query,
    Text,
}

/// What is known of the mappings of a process.
#[derive(Debug, Default)]
pub(super) struct AddressSpace {
    /// By address, none over another.
    areas: Vec<Area>,
    way: Way,
}

/// Mappings that are remembered of one run of the process.
const REMEMBERED: usize = 64;

impl AddressSpace {
    /// The process has run and may have changed its mappings.
    pub(super) fn forget(&mut self) {
        if self.way == Way::Query {
            self.areas.clear();
        }
    }

    /// Whether what is known is so until [`AddressSpace::forget`], as long as the process does not run.
    pub(super) fn are_current(&self) -> bool {
        self.way == Way::Query
    }

    /// Whether all of `len` bytes from `addr` may be accessed, by what `maps` says.
    pub(super) fn permits(
        &mut self,
        maps: BorrowedFd<'_>,
        (addr, len): (u64, usize),
        access: Access,
    ) -> bool {
        let Some(end) = addr.checked_add(len as u64) else {
            return false;
        };
        let mut at = addr;
        while at < end {
            let known = self.known(at).filter(|area| area.permits(access));
            let Some(area) = known.or_else(|| self.ask(maps, at)) else {
                return false;
            };
            if !area.permits(access) {
                return false;
            }
            at = area.end;
        }
        true
    }

    fn known(&self, at: u64) -> Option<Area> {
        let after = self.areas.partition_point(|area| area.end <= at);
        let area = self.areas.get(after)?;
        (area.start <= at).then_some(*area)
    }

    /// The mapping of `at`, by the kernel.
    fn ask(&mut self, maps: BorrowedFd<'_>, at: u64) -> Option<Area> {
        if self.way == Way::Query {
            match query(maps, at) {
                Ok(area) => {
                    self.remember(area);
                    return Some(area);
                }
                Err(Errno::NOTTY | Errno::NOSYS | Errno::PERM) => self.way = Way::Text,
                Err(_) => return None,
            }
        }
        self.areas = read_text(maps).ok()?;
        self.known(at)
    }

    fn remember(&mut self, area: Area) {
        if self.areas.len() >= REMEMBERED {
            self.areas.clear();
        }
        // Another thread may have changed mappings since: what overlaps is of before.
        self.areas
            .retain(|other| other.end <= area.start || area.end <= other.start);
        let at = self.areas.partition_point(|other| other.start < area.start);
        self.areas.insert(at, area);
    }
}

/// `struct procmap_query` of `<linux/fs.h>`.
#[repr(C)]
#[derive(Default)]
struct Query {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

const _: () = assert!(size_of::<Query>() == 104);

/// `_IOWR('f', 17, struct procmap_query)`.
const PROCMAP_QUERY: Opcode = opcode::read_write::<Query>(b'f', 17);
const VMA_READABLE: u64 = 1;
const VMA_WRITABLE: u64 = 2;

/// The mapping of `at`; `NOENT` where there is none.
fn query(maps: BorrowedFd<'_>, at: u64) -> Result<Area, Errno> {
    let mut query = Query {
        size: size_of::<Query>() as u64,
        query_addr: at,
        ..Query::default()
    };
    // SAFETY: `PROCMAP_QUERY` reads and writes one `Query`.
    let request = unsafe { Updater::<PROCMAP_QUERY, Query>::new(&mut query) };
    // SAFETY: the kernel accesses `size` bytes of `query`, which has as many, and follows no pointer in it, as the sizes of
    // name and build id are zero. Descriptors that are no maps refuse the request.
    unsafe { ioctl(maps, request) }?;
    Ok(Area {
        start: query.vma_start,
        end: query.vma_end,
        read: query.vma_flags & VMA_READABLE != 0,
        write: query.vma_flags & VMA_WRITABLE != 0,
    })
}

/// All mappings.
fn read_text(maps: BorrowedFd<'_>) -> Result<Vec<Area>, Errno> {
    let mut text = Vec::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match pread(maps, &mut buffer[..], text.len() as u64) {
            Ok(0) => break,
            Ok(n) => text.extend_from_slice(&buffer[..n]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(parse(&text))
}

/// Lines as `7ffc2000-7ffc3000 rw-p 00000000 00:00 0`. What is no such line is left out.
fn parse(text: &[u8]) -> Vec<Area> {
    let line = |line: &[u8]| {
        // The name at the end may be any bytes.
        let mut words = line.split(|b| *b == b' ');
        let (start, end) = std::str::from_utf8(words.next()?).ok()?.split_once('-')?;
        let may = words.next()?;
        Some(Area {
            start: u64::from_str_radix(start, 16).ok()?,
            end: u64::from_str_radix(end, 16).ok()?,
            read: may.first() == Some(&b'r'),
            write: may.get(1) == Some(&b'w'),
        })
    };
    let areas = text.split(|b| *b == b'\n').filter_map(line);
    areas.filter(|area| area.start < area.end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn lines_of_maps_become_mappings() {
        let text = b"7f00-8000 r-xp 00000000 00:00 0 /a b\n9000-a000 -w-s 0\nnonsense\n\n5-5 rw-p\nb000-c000 ---p";
        let area = |start, end, read, write| Area {
            start,
            end,
            read,
            write,
        };
        let expected = [
            area(0x7f00, 0x8000, true, false),
            area(0x9000, 0xa000, false, true),
            area(0xb000, 0xc000, false, false),
        ];
        assert_eq!(parse(text), expected);
        let long = [
            b"10-20 r--p 0 0:0 0 /".as_slice(),
            &[0xc3; 300],
            b"\n30-40 rw-p",
        ]
        .concat();
        assert_eq!(parse(&long).len(), 2);
    }

    #[test]
    fn both_ways_to_ask_agree() {
        let maps = std::fs::File::open("/proc/self/maps").unwrap();
        let text = read_text(maps.as_fd()).unwrap();
        assert!(text.len() > 5, "{text:?}");
        let data = Box::new([1u8; 64]);
        let code = both_ways_to_ask_agree as fn();
        for (at, write) in [(data.as_ptr().addr(), true), (code as usize, false)] {
            let at = at as u64;
            for way in [Way::Query, Way::Text] {
                let mut space = AddressSpace {
                    way,
                    ..AddressSpace::default()
                };
                assert!(
                    space.permits(maps.as_fd(), (at, 8), Access::Read),
                    "{way:?}"
                );
                assert_eq!(
                    space.permits(maps.as_fd(), (at, 8), Access::Write),
                    write,
                    "{way:?}"
                );
                assert!(!space.permits(maps.as_fd(), (8, 8), Access::Read));
                assert!(!space.permits(maps.as_fd(), (u64::MAX - 3, 8), Access::Read));
                assert!(
                    space.permits(maps.as_fd(), (8, 0), Access::Write),
                    "nothing is permitted"
                );
            }
        }
    }

    #[test]
    fn a_range_over_several_mappings_needs_all_of_them() {
        let area = |start, end, write| Area {
            start,
            end,
            read: true,
            write,
        };
        let mut space = AddressSpace {
            areas: vec![area(10, 20, true), area(20, 30, false), area(40, 50, true)],
            way: Way::Text,
        };
        let none = std::fs::File::open("/dev/null").unwrap();
        for (from, len, access, may) in [(10, 20, Access::Read, true), (15, 15, Access::Read, true)]
        {
            assert_eq!(space.permits(none.as_fd(), (from, len), access), may);
        }
        // Asked again, as the text says what is now: there is nothing.
        assert!(!space.permits(none.as_fd(), (10, 20), Access::Write));
    }

    #[test]
    fn a_mapping_that_is_learnt_takes_the_place_of_what_it_overlaps() {
        let area = |start, end| Area {
            start,
            end,
            read: true,
            write: true,
        };
        let mut space = AddressSpace::default();
        for (start, end) in [(10, 20), (40, 50), (20, 30), (15, 45)] {
            space.remember(area(start, end));
        }
        assert_eq!(space.areas, [area(15, 45)]);
        space.forget();
        assert_eq!(space.areas, []);
        for n in 0..1000 {
            space.remember(area(10 * n, 10 * n + 10));
            assert_eq!(space.known(10 * n + 5), Some(area(10 * n, 10 * n + 10)));
            assert!(space.areas.len() <= REMEMBERED);
        }
    }
}
