//! The bytes of a datagram.
//!
//! ```text
//!   0 check u32   4 sender u32   8 seq u16   10 ack u16   12 share u16   14 kind u8   15 repeats u8   16 body
//! ```
//!
//! | kind | body | takes a sequence number |
//! |---|---|---|
//! | 1 ack | which segments beyond the gap have arrived, a bit each, 0 to [`MOST_BITS`] / 8 bytes | no |
//! | 2 fragment | a whole fragment | yes |
//! | 3 chunk | fragment id u32, fragment size u32, offset u32, data | yes |
//! | 4 put | landing u32, offset u64, data | yes |
//! | 5 bye | – | no |
//!
//! All little-endian. `sender` is the sender's number in the job, by which the receiver finds its state without a
//! search. `ack` is the next sequence number that the sender of the datagram expects; it is on every datagram.
//! The highest bit of `kind` says that the segment was sent before. `repeats` is how many segments have arrived twice at the
//! sender of the datagram, modulo 256. `share` is how many segments the sender of the datagram wants to have on their way to it from this peer.
//!
//! # The check
//!
//! A keyed sum of the head, the length and, if both sides are told so, the data. Sequence numbers of 16 bits stand for
//! numbers of 64 (the one nearest to what is expected), and **the sum is over the long ones**: a datagram that was held up
//! for so long that its number comes round again fails the check, as a truncated, corrupted or misdirected one does.
//! The key is made of both processes' secrets, so that who knows neither cannot speak for either. It is a sum against
//! accidents and guesses, not a cryptographic one: whoever reads the wire can break it.

/// Bytes before the body.
pub const HEAD: usize = 16;
/// Bytes of a chunk's or put's own fields.
pub(super) const EXTRA: usize = 12;
/// The segment was sent before.
const AGAIN: u8 = 0x80;
/// Most segments that an ack says something about, beyond the cumulative number.
pub(super) const MOST_BITS: usize = 512;

/// The kind of a datagram, with what its body says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ack,
    Fragment,
    Chunk { id: u32, size: u32, offset: u32 },
    Put { landing: u32, offset: u64 },
    Bye,
}

/// A datagram's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) sender: u32,
    pub(super) seq: u64,
    pub(super) ack: u64,
    pub(super) share: u16,
    pub(super) repeats: u8,
    pub(super) again: bool,
    pub(super) kind: Kind,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Ack => 1,
            Self::Fragment => 2,
            Self::Chunk { .. } => 3,
            Self::Put { .. } => 4,
            Self::Bye => 5,
        }
    }

    /// Bytes of the datagram before the data.
    pub(super) const fn head(self) -> usize {
        match self {
            Self::Ack | Self::Fragment | Self::Bye => HEAD,
            Self::Chunk { .. } | Self::Put { .. } => HEAD + EXTRA,
        }
    }
}

fn stir(sum: u64, word: u64) -> u64 {
    (sum ^ word)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
}

/// A key that both processes can make and others cannot: of what `from` sends to `to`.
pub(super) fn pair_key(from: u64, to: u64) -> u64 {
    stir(stir(0x5bd1_e995_7b93_b1a7, from), to)
}

/// The first sequence number of a direction: another one in each job, which the other side knows without being told.
pub(super) fn first_seq(key: u64) -> u64 {
    // Low enough that a number before it exists.
    0x1_0000 + (stir(key, 1) >> 48)
}

/// Sum over what is in the datagram and what is not. `data` is empty where only the head is covered.
fn check(key: u64, len: usize, seq: u64, ack: u64, rest: [u64; 3], data: &[u8]) -> u32 {
    let mut sum = stir(key, len as u64);
    for word in [seq, ack, rest[0], rest[1], rest[2]] {
        sum = stir(sum, word);
    }
    let mut words = data.chunks_exact(8);
    for word in &mut words {
        sum = stir(sum, u64::from_le_bytes(word.try_into().unwrap_or_default()));
    }
    for byte in words.remainder() {
        sum = stir(sum, u64::from(*byte));
    }
    (sum ^ (sum >> 32)) as u32
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// The words of the head that the check covers as they are: sender; share, kind, repeats; the extra fields.
fn rest(bytes: &[u8], head: usize) -> [u64; 3] {
    let sender = word(bytes, 0) >> 32;
    let tail = u64::from(u32::from_le_bytes([
        bytes[12], bytes[13], bytes[14], bytes[15],
    ]));
    let mut rest = [sender << 32 | tail, 0, 0];
    if head > HEAD {
        rest[1] = word(bytes, HEAD);
        rest[2] = u64::from(u32::from_le_bytes([
            bytes[24], bytes[25], bytes[26], bytes[27],
        ]));
    }
    rest
}

/// Writes the head before data that is in place; `len` is that of the whole datagram, at most `bytes`.
pub(super) fn write(bytes: &mut [u8], len: usize, head: &Head, key: u64, cover: bool) {
    bytes[4..8].copy_from_slice(&head.sender.to_le_bytes());
    bytes[8..10].copy_from_slice(&(head.seq as u16).to_le_bytes());
    bytes[10..12].copy_from_slice(&(head.ack as u16).to_le_bytes());
    bytes[12..14].copy_from_slice(&head.share.to_le_bytes());
    bytes[14] = head.kind.code() | if head.again { AGAIN } else { 0 };
    bytes[15] = head.repeats;
    match head.kind {
        Kind::Chunk { id, size, offset } => {
            bytes[16..20].copy_from_slice(&id.to_le_bytes());
            bytes[20..24].copy_from_slice(&size.to_le_bytes());
            bytes[24..28].copy_from_slice(&offset.to_le_bytes());
        }
        Kind::Put { landing, offset } => {
            bytes[16..20].copy_from_slice(&landing.to_le_bytes());
            bytes[20..28].copy_from_slice(&offset.to_le_bytes());
        }
        Kind::Ack | Kind::Fragment | Kind::Bye => {}
    }
    let start = head.kind.head();
    let data = if cover { &bytes[start..len] } else { &[] };
    let sum = check(key, len, head.seq, head.ack, rest(bytes, start), data);
    bytes[0..4].copy_from_slice(&sum.to_le_bytes());
}

/// The number of the sender, if there is as much as a head.
pub(super) fn sender(bytes: &[u8]) -> Option<u32> {
    let sender = bytes.get(4..8).filter(|_| bytes.len() >= HEAD)?;
    Some(u32::from_le_bytes(sender.try_into().ok()?))
}

/// The long number nearest to `expected` that ends in these bits.
pub(super) fn extend(expected: u64, low: u16) -> u64 {
    let by = i64::from(low.wrapping_sub(expected as u16).cast_signed());
    expected.wrapping_add_signed(by)
}

/// Why bytes are not a datagram of this peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bad {
    Short,
    Kind,
    Check,
}

/// Reads a datagram of a peer from which `seq` is expected next and that is expected to expect `ack`.
pub(super) fn read(
    bytes: &[u8],
    seq: u64,
    ack: u64,
    key: u64,
    cover: bool,
) -> Result<(Head, &[u8]), Bad> {
    let sender = sender(bytes).ok_or(Bad::Short)?;
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let full = |at: usize| {
        let field = bytes.get(at..at + 4).and_then(|f| f.try_into().ok());
        field.map(u32::from_le_bytes).ok_or(Bad::Short)
    };
    let kind = match bytes[14] & !AGAIN {
        1 => Kind::Ack,
        2 => Kind::Fragment,
        3 => Kind::Chunk {
            id: full(16)?,
            size: full(20)?,
            offset: full(24)?,
        },
        4 => Kind::Put {
            landing: full(16)?,
            offset: u64::from(full(20)?) | u64::from(full(24)?) << 32,
        },
        5 => Kind::Bye,
        _ => return Err(Bad::Kind),
    };
    let start = kind.head();
    let data = bytes.get(start..).ok_or(Bad::Short)?;
    let (seq, ack) = (extend(seq, half(8)), extend(ack, half(10)));
    let covered = if cover { data } else { &[] };
    let sum = check(key, bytes.len(), seq, ack, rest(bytes, start), covered);
    if sum.to_le_bytes() != bytes[0..4] {
        return Err(Bad::Check);
    }
    let head = Head {
        sender,
        seq,
        ack,
        share: half(12),
        repeats: bytes[15],
        again: bytes[14] & AGAIN != 0,
        kind,
    };
    Ok((head, data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(kind: Kind, data: &[u8]) -> (Head, Vec<u8>) {
        let head = Head {
            sender: 7,
            seq: 0x1_ffff,
            ack: 0x3_0002,
            share: 99,
            repeats: 200,
            again: true,
            kind,
        };
        let start = kind.head();
        let mut bytes = vec![0; start + data.len()];
        bytes[start..].copy_from_slice(data);
        let len = bytes.len();
        write(&mut bytes, len, &head, 42, true);
        (head, bytes)
    }

    const KINDS: [Kind; 5] = [
        Kind::Ack,
        Kind::Fragment,
        Kind::Chunk {
            id: 1,
            size: 70_000,
            offset: 4000,
        },
        Kind::Put {
            landing: 3,
            offset: 1 << 40,
        },
        Kind::Bye,
    ];

    #[test]
    fn datagrams_survive_the_wire() {
        for kind in KINDS {
            let (head, bytes) = datagram(kind, b"some data here");
            let read = read(&bytes, 0x2_0001, 0x2_fff0, 42, true);
            assert_eq!(read, Ok((head, &b"some data here"[..])), "{kind:?}");
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_seen() {
        for kind in KINDS {
            let (_, bytes) = datagram(kind, b"some data here");
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                assert!(
                    read(&bad, 0x1_ffff, 0x3_0000, 42, true).is_err(),
                    "bit {bit}"
                );
            }
            for len in 0..bytes.len() {
                assert!(
                    read(&bytes[..len], 0x1_ffff, 0x3_0000, 42, true).is_err(),
                    "{len} bytes"
                );
            }
        }
    }

    #[test]
    fn a_number_that_came_round_and_a_wrong_key_fail_the_check() {
        let (_, bytes) = datagram(Kind::Fragment, b"x");
        assert!(read(&bytes, 0x1_ffff, 0x3_0000, 42, true).is_ok());
        assert_eq!(read(&bytes, 0x2_ffff, 0x3_0000, 42, true), Err(Bad::Check));
        assert_eq!(read(&bytes, 0x1_ffff, 0x4_0000, 42, true), Err(Bad::Check));
        assert_eq!(read(&bytes, 0x1_ffff, 0x3_0000, 43, true), Err(Bad::Check));
    }

    #[test]
    fn the_nearest_number_is_meant() {
        assert_eq!(extend(0x1_fffe, 3), 0x2_0003);
        assert_eq!(extend(0x2_0003, 0xfffe), 0x1_fffe);
        assert_eq!(extend(0x2_0003, 3), 0x2_0003);
        assert_ne!(pair_key(1, 2), pair_key(2, 1));
        assert!(first_seq(9) >= 0x1_0000);
    }
}
