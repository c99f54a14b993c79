//! The byte of a message that moves credits, and what system messages say of them.

/// Largest number of extra credits that one message asks for or grants.
pub(crate) const MAX_EXTRA: u16 = 7;
/// Largest number of credits that one request uses.
pub(crate) const MAX_USED: u16 = 15;

/// `EXXXNNNN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct CreditByte {
    /// The sender ended an epoch.
    pub(crate) epoch: bool,
    /// Extra credits: wanted (request) or granted (reply); at most [`MAX_EXTRA`].
    pub(crate) extra: u8,
    /// Credits used (request) or given back (reply); at most [`MAX_USED`].
    pub(crate) used: u8,
}

impl CreditByte {
    pub(crate) fn encode(self) -> u8 {
        u8::from(self.epoch) << 7 | (self.extra & 7) << 4 | self.used & 15
    }

    pub(crate) fn decode(byte: u8) -> Self {
        Self {
            epoch: byte & 0x80 != 0,
            extra: byte >> 4 & 7,
            used: byte & 15,
        }
    }
}

/// A system message about credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Notice {
    /// The lender asks for credits that are not needed.
    Revoke { epoch: bool },
    /// The answer; perhaps none.
    Return { credits: u16, epoch: bool },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_epoch_extra_used() {
        let b = CreditByte {
            epoch: true,
            extra: 5,
            used: 9,
        };
        assert_eq!(b.encode(), 0b1101_1001);
        for raw in 0..=255 {
            assert_eq!(CreditByte::decode(raw).encode(), raw);
        }
    }
}
