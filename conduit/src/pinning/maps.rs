//! Which addresses of this process are memory that may be read and written.

/// Ranges of readable and writable memory, in order, joined where they touch.
#[derive(Clone, Debug)]
pub(crate) struct Maps {
    ranges: Vec<(u64, u64)>,
    /// Only what was opened counts; never shrinks.
    opened: Option<Vec<(u64, u64)>>,
}

impl Maps {
    /// Asks the kernel what is mapped now.
    pub(crate) fn look(&mut self) {
        if let Some(opened) = &self.opened {
            self.ranges.clone_from(opened);
            return;
        }
        // Not of `self`, which is the first thread: that may have ended while others go on.
        self.ranges = std::fs::read_to_string("/proc/thread-self/maps")
            .map(|text| parse(&text))
            .unwrap_or_default();
    }

    /// The parts of `len` bytes at `addr` that are memory, from the lowest up.
    pub(crate) fn within(&self, addr: u64, len: u64) -> Vec<(u64, u64)> {
        let end = addr.saturating_add(len);
        let from = self.ranges.partition_point(|r| r.1 <= addr);
        let parts = self.ranges[from..].iter().take_while(|r| r.0 < end);
        parts
            .map(|r| (r.0.max(addr), r.1.min(end) - r.0.max(addr)))
            .collect()
    }

    fn is_whole(&self, addr: u64, len: u64) -> bool {
        let at = self.ranges.partition_point(|r| r.1 <= addr);
        let range = self.ranges.get(at);
        range.is_some_and(|r| r.0 <= addr && addr.saturating_add(len) <= r.1)
    }

    /// The parts of `len` bytes at `addr` that are memory ([`Maps::within`]); asks the kernel unless all of it was before.
    pub(crate) fn writable(&mut self, addr: u64, len: u64) -> Vec<(u64, u64)> {
        if !self.is_whole(addr, len) {
            self.look();
        }
        self.within(addr, len)
    }

    /// Whether all of it is memory.
    pub(crate) fn holds(&mut self, addr: u64, len: u64) -> bool {
        if len == 0 || self.is_whole(addr, len) {
            return true;
        }
        self.look();
        self.is_whole(addr, len)
    }

    /// With `closed` only what is opened counts.
    pub(crate) fn new(closed: bool) -> Self {
        Self {
            ranges: Vec::new(),
            opened: closed.then(Vec::new),
        }
    }

    /// Opens `len` bytes at `addr`, which overlap nothing that is open.
    pub(crate) fn open(&mut self, addr: u64, len: u64) {
        if let Some(opened) = &mut self.opened {
            let at = opened.partition_point(|r| r.0 < addr);
            opened.insert(at, (addr, addr.saturating_add(len)));
        }
    }

    /// A range is about to be unmapped.
    pub(crate) fn forget(&mut self) {
        self.ranges.clear();
    }
}

fn parse(text: &str) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some((range, rights)) = words.next().zip(words.next()) else {
            continue;
        };
        let hex = |s| u64::from_str_radix(s, 16).ok();
        let Some((from, to)) = range.split_once('-') else {
            continue;
        };
        let (Some(from), Some(to)) = (hex(from), hex(to)) else {
            continue;
        };
        if !rights.starts_with("rw") {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => ranges.push((from, to)),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_that_may_be_written_counts() {
        let text = "1000-3000 rw-p 0 0 0\n3000-4000 rw-s 0 0 0 /x\n4000-5000 r--p 0 0 0\n5000-9000 ---p 0 0 0\n\
                    9000-a000 rw-p 0 0 0\nrubbish\n";
        let m = Maps {
            ranges: parse(text),
            opened: None,
        };
        assert_eq!(m.ranges, [(0x1000, 0x4000), (0x9000, 0xa000)]);
        assert_eq!(m.within(0x1000, 0x3000), [(0x1000, 0x3000)]);
        assert_eq!(
            m.within(0x2000, 0x7800),
            [(0x2000, 0x2000), (0x9000, 0x800)]
        );
        assert_eq!(m.within(0x8000, 0x1800), [(0x9000, 0x800)]);
        assert_eq!(m.within(0x4000, 0x1000), []);
        assert_eq!(m.within(u64::MAX, 8), []);
        assert!(m.is_whole(0x1000, 0x3000) && !m.is_whole(0x1000, 0x3001));
        assert!(!m.is_whole(0xfff, 2) && !m.is_whole(u64::MAX, 8));
    }

    #[test]
    fn what_is_not_opened_is_closed() {
        let mut m = Maps::new(true);
        let heap = vec![0u8; 8192];
        let addr = heap.as_ptr() as u64;
        assert!(!m.holds(addr, 1));
        m.open(addr + 4096, 16);
        m.open(addr, 8);
        assert!(m.holds(addr, 8) && m.holds(addr + 4096, 16));
        assert!(!m.holds(addr, 9) && !m.holds(addr + 8, 1) && !m.holds(addr + 4095, 2));
        m.forget();
        assert!(m.holds(addr, 8) && !m.holds(addr, 9));
    }

    #[test]
    fn what_was_memory_is_asked_for_again_once_forgotten() {
        // No process has memory there.
        let mut m = Maps {
            ranges: vec![(0x1000, 0x4000)],
            opened: None,
        };
        assert!(m.holds(0x1000, 8));
        m.forget();
        assert!(!m.holds(0x1000, 8));
    }

    #[test]
    fn own_memory_is_found_and_constants_are_not() {
        let mut m = Maps::new(false);
        let heap = vec![0u8; 1 << 20];
        assert!(m.holds(heap.as_ptr() as u64, 1 << 20));
        let text: &'static [u8] = b"constant";
        assert!(!m.holds(text.as_ptr() as u64, 8) && !m.holds(8, 8));
        assert!(!m.holds(heap.as_ptr() as u64, 1 << 46));
    }
}
