//! Decisions from bytes. Bytes that are missing read as zero.

/// The rest of a target's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// All of `data`.
    #[must_use]
    pub const fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// Whether everything was read.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `N` bytes.
    pub fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        let (head, rest) = self.0.split_at(n);
        out[..n].copy_from_slice(head);
        self.0 = rest;
        out
    }

    /// One byte.
    pub fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u8) -> u8 {
        self.byte() % n.max(1)
    }

    /// One bit.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number of one byte, mostly, or of the kind that breaks sums.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            0..=199 => u64::from(self.byte()),
            200..=219 => u64::from(u32::MAX) - u64::from(self.byte()),
            220..=239 => u64::MAX - u64::from(self.byte()),
            _ => u64::from_le_bytes(self.take()),
        }
    }
}
