//! The 64 bits of header data that travel with a message: who sends, which operation to fetch from, credits.

/// ```text
///  0..32 source, rank of the job   32..52 operation   52..64 credits given back
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HeaderData {
    pub(crate) source: u32,
    /// The sender's request, below [`OPERATIONS`].
    pub(crate) operation: u32,
    /// At most [`MOST_CREDITS`].
    pub(crate) credits: u16,
}

/// Requests that can be told apart.
pub(crate) const OPERATIONS: u32 = 1 << 20;
/// Credits that one message can give back.
pub(crate) const MOST_CREDITS: u16 = (1 << 12) - 1;

impl HeaderData {
    pub(crate) const fn pack(self) -> u64 {
        self.source as u64 | (self.operation as u64) << 32 | (self.credits as u64) << 52
    }

    pub(crate) const fn unpack(bits: u64) -> Self {
        Self {
            source: bits as u32,
            operation: (bits >> 32) as u32 & (OPERATIONS - 1),
            credits: (bits >> 52) as u16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        for source in [0, 1, u32::MAX] {
            for operation in [0, 5, OPERATIONS - 1] {
                for credits in [0, 1, MOST_CREDITS] {
                    let data = HeaderData {
                        source,
                        operation,
                        credits,
                    };
                    assert_eq!(HeaderData::unpack(data.pack()), data);
                }
            }
        }
    }
}
