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
    /// An envelope: how long the message is, and where its bytes are exposed.
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
    /// A write with data of the program's has had its effect.
    Written = 8,
    /// An atomic operation.
    Atomic = 9,
    /// The end of one: what was there before, or that it could not be made.
    AtomicDone = 10,
}

impl Kind {
    const ALL: [Self; 10] = [
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

/// Data of a hello, or of its answer: the sender looks for [frames](crate::frames).
pub(crate) const TAKES_FRAMES: u32 = 1;

/// Bytes of an envelope.
pub(crate) const ENVELOPE: usize = 16;

/// The bytes of an envelope: length of the message, and the match bits of what is exposed.
pub(crate) fn envelope(len: u64, key: u64) -> [u8; ENVELOPE] {
    let mut bytes = [0; ENVELOPE];
    let (a, b) = bytes.split_at_mut(8);
    a.copy_from_slice(&len.to_le_bytes());
    b.copy_from_slice(&key.to_le_bytes());
    bytes
}

/// Length and match bits of an envelope.
pub(crate) fn read_envelope(bytes: [u8; ENVELOPE]) -> (u64, u64) {
    let both = u128::from_le_bytes(bytes);
    (both as u64, (both >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(read_envelope(envelope(5, u64::MAX - 1)), (5, u64::MAX - 1));
    }
}
