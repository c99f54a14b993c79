//! Message sizes on the command line and in tables: `8,64,1K,1M`.

/// The largest message a measurement may ask for, bytes.
const SIZE_MAX: u64 = 1 << 30;

/// The suffixes, each 1024 times the one before.
const SUFFIXES: [char; 3] = ['K', 'M', 'G'];

/// Parses one size: a number of bytes with an optional K, M or G (1024, 1024², 1024³).
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let upper = text.to_ascii_uppercase();
    let power = upper
        .chars()
        .last()
        .and_then(|last| SUFFIXES.iter().position(|s| *s == last));
    let (digits, shift) = match power {
        Some(at) => (&upper[..upper.len() - 1], 10 * (at + 1)),
        None => (upper.as_str(), 0),
    };
    let bad = || format!("{text:?} is no size; 8, 64, 1K or 1M is expected");
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let number: u64 = digits.parse().map_err(|_| bad())?;
    match number.checked_mul(1 << shift) {
        Some(size) if size <= SIZE_MAX => Ok(size),
        _ => Err(format!("{text:?} is more than 1G")),
    }
}

/// Writes a size the way [`parse`] reads it, with a suffix where that is exact.
pub(crate) fn show(size: u64) -> String {
    let mut left = size;
    let mut suffix = String::new();
    for s in SUFFIXES {
        if left == 0 || !left.is_multiple_of(1024) {
            break;
        }
        left /= 1024;
        suffix = s.to_string();
    }
    format!("{left}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, size) in [
            ("0", 0),
            ("8", 8),
            ("1K", 1024),
            ("3k", 3072),
            (" 1M", 1 << 20),
            ("1G", 1 << 30),
        ] {
            assert_eq!(parse(text), Ok(size), "{text:?}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "K",
            "-1",
            "+1",
            "1.5K",
            "1T",
            "x",
            "2G",
            "99999999999999999999",
            "8 K",
            "1KK",
            "é",
        ] {
            let why = match text {
                "2G" => "is more than 1G",
                _ => "is no size; 8, 64, 1K or 1M is expected",
            };
            assert_eq!(parse(text), Err(format!("{text:?} {why}")));
        }
        assert_eq!(parse("1G"), Ok(1 << 30));
        assert_eq!(
            parse("1073741825"),
            Err("\"1073741825\" is more than 1G".to_owned())
        );
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for size in [
            0,
            1,
            12,
            1023,
            1024,
            1536,
            65_536,
            1 << 20,
            3 << 20,
            1 << 30,
        ] {
            assert_eq!(parse(&show(size)), Ok(size));
        }
        assert_eq!(show(1536), "1536");
        assert_eq!(show(1 << 16), "64K");
    }
}
