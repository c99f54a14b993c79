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

/// What a message to the credit portal says, beside credits: its match bits.
///
/// ```text
///  0 credits   1..2^20 a note of request n - 1   2^62 refused   2^63 + 0..2^62 a hash of the options
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// Nothing else.
    Credits,
    /// The receiver has a note of the message of this request, and its queues have room for another.
    Note(u32),
    /// The sender's options.
    Hello(u64),
    /// Some rank has other options than another.
    Refused,
}

impl Word {
    const REFUSED: u64 = 1 << 62;
    const HELLO: u64 = 1 << 63;

    pub(crate) const fn pack(self) -> u64 {
        match self {
            Self::Credits => 0,
            Self::Note(slot) => slot as u64 + 1,
            Self::Hello(options) => Self::HELLO | options & (Self::REFUSED - 1),
            Self::Refused => Self::REFUSED,
        }
    }

    pub(crate) const fn unpack(bits: u64) -> Self {
        match bits {
            1..=0x10_0000 => Self::Note(bits as u32 - 1),
            Self::REFUSED => Self::Refused,
            _ if bits & Self::HELLO != 0 => Self::Hello(bits & (Self::REFUSED - 1)),
            // What nobody sends.
            _ => Self::Credits,
        }
    }
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
    fn words_are_unpacked() {
        let words = [
            Word::Credits,
            Word::Note(0),
            Word::Note(OPERATIONS - 1),
            Word::Hello(0),
            Word::Hello(u64::MAX >> 2),
            Word::Refused,
        ];
        for word in words {
            assert_eq!(Word::unpack(word.pack()), word);
        }
        assert_eq!(Word::unpack(u64::from(OPERATIONS) + 1), Word::Credits);
    }

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
