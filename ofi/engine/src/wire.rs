//! What a message's 64 bits of header data say.
//!
//! ```text
//!   63..60   kind
//!   59       the message carries data of the program's, in the low half
//!   58       the sender has more unexpected bytes of the receiver's than it likes: send envelopes alone
//!   55..48   messages that the sender may be sent more
//!   47..32   number of the message; of a hello and its answer that of the next message
//!   31..0    data of the program's; of a hello and its answer whether the sender looks for frames
//! ```
//!
//! The match bits of a message are its tag, all 64 bits of it: matching is the engine's, and the entries that messages
//! land in take every tag.

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A message with its bytes.
    Eager = 1,
    /// An [`Envelope`]: how long the message is, and where its bytes are exposed.
    Envelope = 2,
    /// The same two without a tag.
    UntaggedEager = 3,
    UntaggedEnvelope = 4,
    /// Nothing but messages that the receiver may send more.
    Credits = 5,
    /// The first message to a peer: how many it may send, and that it is to say the same.
    Hello = 6,
    /// The answer.
    Grant = 7,
    /// A write with data of the program's has had its effect: see [`note`].
    Written = 8,
    /// An atomic operation.
    Atomic = 9,
    /// The end of one: what was there before, or that it could not be made.
    AtomicDone = 10,
    /// The bytes of a message that was announced by an envelope have been read where they are, or cannot be.
    Fetched = 11,
    /// They are exposed now.
    Exposed = 12,
}

impl Kind {
    const ALL: [Self; 12] = [
        Self::Eager,
        Self::Envelope,
        Self::UntaggedEager,
        Self::UntaggedEnvelope,
        Self::Credits,
        Self::Hello,
        Self::Grant,
        Self::Written,
        Self::Atomic,
        Self::AtomicDone,
        Self::Fetched,
        Self::Exposed,
    ];

    /// Of a message of the program's: with or without a tag, with its bytes or without.
    pub(crate) fn of(tagged: bool, eager: bool) -> Self {
        match (tagged, eager) {
            (true, true) => Self::Eager,
            (true, false) => Self::Envelope,
            (false, true) => Self::UntaggedEager,
            (false, false) => Self::UntaggedEnvelope,
        }
    }

    /// Whether it begins something with a peer: then it has the number of the next message, and none of its own.
    pub(crate) fn begins(self) -> bool {
        matches!(self, Self::Hello | Self::Grant)
    }

    /// Whether it takes the place of a credit.
    pub(crate) fn costs(self) -> bool {
        !matches!(self, Self::Credits | Self::Hello | Self::Grant)
    }
}

/// Header data, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) kind: Kind,
    pub(crate) data: Option<u32>,
    pub(crate) credits: u8,
    pub(crate) envelopes: bool,
    /// See [`Order`](crate::order::Order).
    pub(crate) number: u16,
}

impl Said {
    pub(crate) fn encode(self) -> u64 {
        let data = self.data.map_or(0, |data| 1 << 59 | u64::from(data));
        (self.kind as u64) << 60
            | data
            | u64::from(self.envelopes) << 58
            | u64::from(self.credits) << 48
            | u64::from(self.number) << 32
    }

    /// `None`: no engine says so.
    pub(crate) fn decode(word: u64) -> Option<Self> {
        let kind = (word >> 60) as u8;
        Some(Self {
            kind: *Kind::ALL.iter().find(|k| **k as u8 == kind)?,
            data: (word >> 59 & 1 == 1).then_some(word as u32),
            credits: (word >> 48) as u8,
            envelopes: word >> 58 & 1 == 1,
            number: (word >> 32) as u16,
        })
    }
}

/// The match bits of a message of the program's, and the data beside it. A message without a tag has the upper half of its data in
/// place of one; there is no room for that half beside a tag.
pub(crate) const fn words(tag: Option<u64>, data: Option<u64>) -> (u64, Option<u32>) {
    match (tag, data) {
        (Some(tag), Some(data)) => (tag, Some(data as u32)),
        (Some(tag), None) => (tag, None),
        (None, Some(data)) => (data >> 32, Some(data as u32)),
        (None, None) => (0, None),
    }
}

/// What [`words`] was made of: the tag, 0 for none, and the data.
pub(crate) fn meant(tagged: bool, bits: u64, data: Option<u32>) -> (u64, Option<u64>) {
    let (tag, upper) = if tagged { (bits, 0) } else { (0, bits << 32) };
    (tag, data.map(|data| upper | u64::from(data)))
}

/// The match bits and the data of what tells of a write: bytes, of which an operation has less than 2^32, and the upper half of the
/// data.
pub(crate) const fn note(len: u64, data: u64) -> (u64, Option<u32>) {
    (len & u32::MAX as u64 | data >> 32 << 32, Some(data as u32))
}

/// The bytes and the data that [`note`] was made of.
pub(crate) fn noted(bits: u64, data: Option<u32>) -> (u64, u64) {
    let lower = u64::from(data.unwrap_or_default());
    (bits & u64::from(u32::MAX), bits >> 32 << 32 | lower)
}

/// Data of a hello, or of its answer: the sender looks for [frames](crate::frames).
pub(crate) const TAKES_FRAMES: u32 = 1;

/// What an envelope says of the message that it announces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// Bytes of the message.
    pub(crate) len: u64,
    /// The match bits under which they are exposed.
    pub(crate) key: u64,
    /// Where they are in the sender's memory; 0 if they are in several pieces.
    pub(crate) addr: u64,
    /// They are exposed already. If not, the sender has to be asked for it.
    pub(crate) exposed: bool,
}

impl Envelope {
    /// Bytes of one.
    pub(crate) const LEN: usize = 32;

    pub(crate) fn encode(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        let words = [self.len, self.key, self.addr, self.exposed.into()];
        for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(bytes: [u8; Self::LEN]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |at: usize| words.get(at).map_or(0, |word| u64::from_le_bytes(*word));
        Self {
            len: word(0),
            key: word(1),
            addr: word(2),
            exposed: word(3) != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_beside_a_tag_has_32_bits_and_other_data_64() {
        let (tag, data) = (u64::MAX - 5, 0x1234_5678_9abc_def0);
        for (tag, data, tagged) in [
            (Some(tag), Some(data & 0xffff_ffff), true),
            (Some(tag), None, true),
            (None, Some(data), false),
            (None, None, false),
        ] {
            let (bits, half) = words(tag, data);
            assert_eq!(meant(tagged, bits, half), (tag.unwrap_or(0), data));
        }
        for len in [0, 5, 1 << 31] {
            let (bits, half) = note(len, data);
            assert_eq!(noted(bits, half), (len, data));
        }
    }

    #[test]
    fn what_is_said_is_understood() {
        for kind in Kind::ALL {
            for (data, credits, envelopes, number) in [
                (None, 0, false, 0),
                (Some(0), 255, true, u16::MAX),
                (Some(u32::MAX), 7, false, 1),
            ] {
                let said = Said {
                    kind,
                    data,
                    credits,
                    envelopes,
                    number,
                };
                assert_eq!(Said::decode(said.encode()), Some(said));
            }
        }
        assert_eq!(Said::decode(0), None);
        assert_eq!(Said::decode(15 << 60), None);
        for exposed in [false, true] {
            let envelope = Envelope {
                len: 5,
                key: u64::MAX - 1,
                addr: 7 << 40,
                exposed,
            };
            assert_eq!(Envelope::decode(envelope.encode()), envelope);
        }
    }
}
