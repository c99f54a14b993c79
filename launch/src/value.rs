//! How a value of any bytes and any length travels through a PMI key space.
//!
//! PMI-1 values are printable ASCII without blanks and shorter than the server's `vallen_max`. A value is
//! therefore written with `%XX` for every byte outside a small safe set, cut into parts, and stored as
//!
//! ```text
//!   key      = "<number of parts>:<part 0>"
//!   key~1    = part 1
//!   key~2    = part 2 …
//! ```
//!
//! `~` is refused in a caller's key, so part keys never meet a caller's.

use std::fmt::Write as _;

use super::JobError;

/// The character between a key and the number of a part.
pub(super) const PART_MARK: char = '~';

/// The most parts one value may have; with 1 KiB parts this is 64 MiB.
const PARTS_MAX: usize = 65_536;

/// Bytes that travel as they are. `%` is not among them, nor `=`, nor a blank.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.:,/+@".contains(&byte)
}

/// `bytes` as printable ASCII.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            // Writing into a String cannot fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// The bytes that `escape` wrote as `text`.
pub(super) fn unescape(key: &str, text: &str) -> Result<Vec<u8>, JobError> {
    let bad = |reason: String| JobError::BadValue {
        key: key.to_owned(),
        reason,
    };
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = tail;
        if first != b'%' {
            bytes.push(first);
            continue;
        }
        let digits = tail
            .first_chunk::<2>()
            .map(|d| d.map(|b| char::from(b).to_digit(16)));
        let Some([Some(high), Some(low)]) = digits else {
            return Err(bad(format!(
                "a % without two hex digits {} bytes from the end",
                tail.len()
            )));
        };
        // Two hex digits are at most 255.
        bytes.push(u8::try_from(high * 16 + low).unwrap_or(u8::MAX));
        rest = &tail[2..];
    }
    Ok(bytes)
}

/// The key of part `part` of `key`.
pub(super) fn part_key(key: &str, part: usize) -> String {
    if part == 0 {
        key.to_owned()
    } else {
        format!("{key}{PART_MARK}{part}")
    }
}

/// Cuts `value` into `(key, text)` pairs whose texts are at most `room` bytes.
pub(super) fn split(
    key: &str,
    value: &[u8],
    room: usize,
) -> Result<Vec<(String, String)>, JobError> {
    let text = escape(value);
    // The head needs as many digits as the number of parts, which depends on the room the head leaves.
    let digits = text
        .len()
        .div_ceil(room.max(1))
        .saturating_add(1)
        .to_string()
        .len();
    let Some(first_room) = room.checked_sub(digits + 1) else {
        return Err(JobError::Limit {
            name: "vallen_max",
            value: room,
            least: digits + 2,
        });
    };
    let (head, mut rest) = text.split_at(text.len().min(first_room));
    let parts = 1 + rest.len().div_ceil(room.max(1));
    if parts > PARTS_MAX {
        return Err(JobError::BadValue {
            key: key.to_owned(),
            reason: format!(
                "{} bytes need {parts} parts, at most {PARTS_MAX}",
                value.len()
            ),
        });
    }
    let mut pairs = vec![(part_key(key, 0), format!("{parts}:{head}"))];
    while !rest.is_empty() {
        let (part, tail) = rest.split_at(rest.len().min(room));
        pairs.push((part_key(key, pairs.len()), part.to_owned()));
        rest = tail;
    }
    Ok(pairs)
}

/// Splits the head `"<parts>:<text>"` that stands under a value's own key.
pub(super) fn head<'a>(key: &str, text: &'a str) -> Result<(usize, &'a str), JobError> {
    let bad = |reason| JobError::BadValue {
        key: key.to_owned(),
        reason,
    };
    let (count, first) = text.split_once(':').ok_or_else(|| {
        bad(format!(
            "{:?} has no part count",
            super::wire::excerpt(text)
        ))
    })?;
    match count.parse::<usize>() {
        Ok(parts) if (1..=PARTS_MAX).contains(&parts) => Ok((parts, first)),
        _ => Err(bad(format!("part count {:?}", super::wire::excerpt(count)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(pairs: &[(String, String)]) -> Vec<u8> {
        let (parts, first) = head(&pairs[0].0, &pairs[0].1).unwrap();
        assert_eq!(parts, pairs.len());
        let mut text = first.to_owned();
        for (_, part) in &pairs[1..] {
            text.push_str(part);
        }
        unescape("k", &text).unwrap()
    }

    #[test]
    fn every_length_and_every_byte_comes_back() {
        let mut rng = fastrand::Rng::with_seed(7);
        for room in [4, 5, 17, 63, 1023] {
            for len in 0..300 {
                let value: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                let Ok(pairs) = split("key", &value, room) else {
                    assert!(room < 6, "room {room} is enough for {len} bytes");
                    continue;
                };
                assert!(
                    pairs.iter().all(|(_, t)| t.len() <= room),
                    "room {room}, {len} bytes"
                );
                assert!(
                    pairs
                        .iter()
                        .all(|(_, t)| t.bytes().all(|b| b.is_ascii_graphic()))
                );
                assert_eq!(join(&pairs), value);
            }
        }
    }

    #[test]
    fn part_keys_are_distinct() {
        let pairs = split("key", &[0; 100], 64).unwrap();
        assert_eq!(pairs.len(), 5);
        assert_eq!(pairs[0].0, "key");
        assert_eq!(pairs[4].0, "key~4");
    }

    #[test]
    fn a_room_too_small_is_an_error() {
        assert!(matches!(split("k", b"abc", 1), Err(JobError::Limit { .. })));
        assert!(matches!(split("k", b"abc", 0), Err(JobError::Limit { .. })));
    }

    #[test]
    fn foreign_values_are_errors() {
        assert!(head("k", "(vector,(0,1,4))").is_err());
        assert!(head("k", "0:").is_err());
        assert!(head("k", "99999999999999999999:x").is_err());
        assert!(unescape("k", "abc%").is_err());
        assert!(unescape("k", "abc%4").is_err());
        assert!(unescape("k", "abc%zz").is_err());
        assert_eq!(unescape("k", "a%20b").unwrap(), b"a b");
    }
}
