//! The messages of the handshake, as bytes. Their names are those of InfiniBand's connection manager.
//!
//! ```text
//!   active side                                    passive side
//!   REQUEST: address, the other's secret, files ──► is it of the own user, is the secret right?
//!   maps the files, tries to read its memory ◄──── REPLY: files, and what it has found
//!   READY TO USE ─────────────────────────────────► both use the memory
//! ```
//!
//! Each message is one packet of a Unix socket, and the files are descriptors beside it.

use crate::layout::VERSION;
use fabric_api::address::Address;
use host::secret::Secret;

const MAGIC: [u8; 8] = *b"ptl-conn";
/// Bytes of a request.
pub(super) const REQUEST: usize = MAGIC.len() + 4 + Address::BYTES + Secret::LEN;
/// Bytes of an answer at most, its code included.
pub(super) const LONGEST: usize = 512;

const REPLY: u8 = 1;
const READY_TO_USE: u8 = 2;
const CROSSED: u8 = 3;
const REJECTED: u8 = 4;

/// Why bytes are no request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// No version of this protocol would send it: its sender gets no answer.
    Nonsense,
    /// Another version of the layout of the memory.
    Version(u32),
}

/// The first message, of the active side.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) from: Address,
    pub(super) secret: [u8; Secret::LEN],
}

impl Request {
    pub(super) fn encode(&self) -> [u8; REQUEST] {
        let mut b = [0; REQUEST];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12..12 + Address::BYTES].copy_from_slice(&self.from.to_bytes());
        b[12 + Address::BYTES..].copy_from_slice(&self.secret);
        b
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let b: &[u8; REQUEST] = bytes.try_into().map_err(|_| DecodeError::Nonsense)?;
        let rest = b.strip_prefix(&MAGIC).ok_or(DecodeError::Nonsense)?;
        let (version, rest) = rest.split_first_chunk().ok_or(DecodeError::Nonsense)?;
        let (from, secret) = rest.split_at(Address::BYTES);
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(DecodeError::Version(other)),
        }
        Ok(Self {
            from: Address::from_bytes(from).map_err(|_| DecodeError::Nonsense)?,
            secret: secret.try_into().map_err(|_| DecodeError::Nonsense)?,
        })
    }
}

/// Every later message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Reply,
    ReadyToUse,
    /// Both have sent a request, and the sender's own counts.
    Crossed,
    Rejected(String),
}

impl Answer {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Reply => vec![REPLY],
            Self::ReadyToUse => vec![READY_TO_USE],
            Self::Crossed => vec![CROSSED],
            Self::Rejected(why) => {
                let why = why.bytes().take(LONGEST - 1);
                std::iter::once(REJECTED).chain(why).collect()
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        match *bytes {
            [REPLY] => Some(Self::Reply),
            [READY_TO_USE] => Some(Self::ReadyToUse),
            [CROSSED] => Some(Self::Crossed),
            [REJECTED, ref why @ ..] => Some(Self::Rejected(
                String::from_utf8_lossy(why)
                    .chars()
                    .map(|c| if c.is_control() { ' ' } else { c })
                    .collect(),
            )),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fabric_api::config::FabricKind;
    use portals_core::ProcessId;

    #[test]
    fn messages_are_decoded_and_other_bytes_are_not() {
        let from = Address::new(FabricKind::Shm, ProcessId::new(3, 4), b"there").unwrap();
        let secret = [7; Secret::LEN];
        let mut bytes = Request { from, secret }.encode();
        let decoded = Request::decode(&bytes).unwrap();
        assert_eq!((decoded.from, decoded.secret), (from, secret));
        assert_eq!(
            Request::decode(&bytes[1..]).unwrap_err(),
            DecodeError::Nonsense,
            "short"
        );
        bytes[8..12].copy_from_slice(&99u32.to_le_bytes());
        assert_eq!(
            Request::decode(&bytes).unwrap_err(),
            DecodeError::Version(99)
        );
        bytes[0] = b'x';
        assert_eq!(Request::decode(&bytes).unwrap_err(), DecodeError::Nonsense);

        let long = Answer::Rejected("w".repeat(2 * LONGEST));
        for answer in [
            Answer::Reply,
            Answer::ReadyToUse,
            Answer::Crossed,
            Answer::Rejected("why".into()),
        ] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
        assert_eq!(long.encode().len(), LONGEST);
        for nonsense in [
            &b""[..],
            &[0],
            &[9],
            &[REPLY, 0],
            &[READY_TO_USE, READY_TO_USE],
        ] {
            assert_eq!(Answer::decode(nonsense), None, "{nonsense:?}");
        }
        let escape = Answer::decode(&[REJECTED, 27, b'[', 200]).unwrap();
        assert_eq!(escape, Answer::Rejected(" [\u{fffd}".into()));
    }
}
