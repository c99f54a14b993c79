//! What two endpoints say to each other until they share memory, as bytes.
//!
//! ```text
//!   the one that has something to send           the other
//!   KNOCK: address, the other's secret, files ──► is it of the own user, is the secret right?
//!   maps the files, tries to read its memory ◄── WELCOME: files, and what it has found
//!   READY ──────────────────────────────────────► both use the memory
//! ```
//!
//! Each message is one packet of a Unix socket, and the files are descriptors beside it.

use crate::layout::VERSION;
use fabric_api::address::Address;
use host::secret::Secret;

const MAGIC: [u8; 8] = *b"ptl-meet";
/// Bytes of the longest message but a refusal.
pub(super) const KNOCK: usize = MAGIC.len() + 4 + Address::BYTES + Secret::LEN;
/// Bytes of a refusal at most, its code included.
pub(super) const LONGEST: usize = 512;

const WELCOME: u8 = 1;
const READY: u8 = 2;
const CROSSED: u8 = 3;
const REFUSED: u8 = 4;

/// Why a knock is not answered by a welcome.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unheard {
    /// It is no knock; whoever says so gets no answer.
    Nonsense,
    /// Another version of the layout of the memory.
    Version(u32),
}

/// The first message.
#[derive(Debug)]
pub(super) struct Knock {
    pub(super) from: Address,
    pub(super) secret: [u8; Secret::LEN],
}

impl Knock {
    pub(super) fn encode(&self) -> [u8; KNOCK] {
        let mut b = [0; KNOCK];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12..12 + Address::BYTES].copy_from_slice(&self.from.to_bytes());
        b[12 + Address::BYTES..].copy_from_slice(&self.secret);
        b
    }

    pub(super) fn decode(said: &[u8]) -> Result<Self, Unheard> {
        let b: &[u8; KNOCK] = said.try_into().map_err(|_| Unheard::Nonsense)?;
        let rest = b.strip_prefix(&MAGIC).ok_or(Unheard::Nonsense)?;
        let (version, rest) = rest.split_first_chunk().ok_or(Unheard::Nonsense)?;
        let (from, secret) = rest.split_at(Address::BYTES);
        match u32::from_le_bytes(*version) {
            VERSION => {}
            other => return Err(Unheard::Version(other)),
        }
        Ok(Self {
            from: Address::from_bytes(from).map_err(|_| Unheard::Nonsense)?,
            secret: secret.try_into().map_err(|_| Unheard::Nonsense)?,
        })
    }
}

/// Every message but the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Welcome,
    Ready,
    /// The other's own knock counts, as both have knocked.
    Crossed,
    Refused(String),
}

impl Said {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome => vec![WELCOME],
            Self::Ready => vec![READY],
            Self::Crossed => vec![CROSSED],
            Self::Refused(why) => {
                let why = why.bytes().take(LONGEST - 1);
                std::iter::once(REFUSED).chain(why).collect()
            }
        }
    }

    pub(super) fn decode(said: &[u8]) -> Option<Self> {
        match *said {
            [WELCOME] => Some(Self::Welcome),
            [READY] => Some(Self::Ready),
            [CROSSED] => Some(Self::Crossed),
            [REFUSED, ref why @ ..] => Some(Self::Refused(
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
    fn what_is_said_is_understood_and_the_rest_is_not() {
        let from = Address::new(FabricKind::Shm, ProcessId::new(3, 4), b"there").unwrap();
        let secret = [7; Secret::LEN];
        let mut knock = Knock { from, secret }.encode();
        let heard = Knock::decode(&knock).unwrap();
        assert_eq!((heard.from, heard.secret), (from, secret));
        assert_eq!(
            Knock::decode(&knock[1..]).unwrap_err(),
            Unheard::Nonsense,
            "short"
        );
        knock[8..12].copy_from_slice(&99u32.to_le_bytes());
        assert_eq!(Knock::decode(&knock).unwrap_err(), Unheard::Version(99));
        knock[0] = b'x';
        assert_eq!(Knock::decode(&knock).unwrap_err(), Unheard::Nonsense);

        let long = Said::Refused("w".repeat(2 * LONGEST));
        for said in [
            Said::Welcome,
            Said::Ready,
            Said::Crossed,
            Said::Refused("why".into()),
        ] {
            assert_eq!(Said::decode(&said.encode()), Some(said));
        }
        assert_eq!(long.encode().len(), LONGEST);
        for nonsense in [&b""[..], &[0], &[9], &[WELCOME, 0], &[READY, READY]] {
            assert_eq!(Said::decode(nonsense), None, "{nonsense:?}");
        }
        let escape = Said::decode(&[REFUSED, 27, b'[', 200]).unwrap();
        assert_eq!(escape, Said::Refused(" [\u{fffd}".into()));
    }
}
