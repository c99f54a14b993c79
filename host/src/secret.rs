//! Random bytes that nobody can guess, and the word by which ranks of a job know each other.

use std::io;

/// Fills `bytes` with random ones, as good as the kernel has them, also where a filter of system calls refuses getrandom.
pub fn random(bytes: &mut [u8]) -> io::Result<()> {
    getrandom::fill(bytes).map_err(|error| missing(error.into()))
}

/// What the system said of it alone may be of a file that nobody here has named.
fn missing(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("no random bytes: {error}"))
}

/// 128 random bits that the ranks of one job have, and nobody else. Not shown by `Debug`.
#[derive(Clone, Copy)]
pub struct Secret([u8; Self::LEN]);

impl Secret {
    /// Bytes.
    pub const LEN: usize = 16;

    /// A new one.
    pub fn new() -> io::Result<Self> {
        let mut bytes = [0; Self::LEN];
        random(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// The secret of these bytes, which somebody has sent.
    pub const fn from_bytes(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// To be sent to whoever may have it.
    pub const fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }

    /// The secret in 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|b| format!("{b:02x}")).collect()
    }

    /// What [`Secret::to_hex`] made.
    pub fn from_hex(text: &str) -> Option<Self> {
        let digits = text.as_bytes();
        if digits.len() != 2 * Self::LEN || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        let number = u128::from_str_radix(text, 16).ok()?;
        Some(Self(number.to_be_bytes()))
    }

    /// Whether `said` is it, in a time that does not depend on how much of it is right.
    pub fn is(&self, said: &[u8]) -> bool {
        if said.len() != Self::LEN {
            return false;
        }
        let differing = self.0.iter().zip(said).fold(0, |d, (a, b)| d | (a ^ b));
        std::hint::black_box(differing) == 0
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::again::{again_denied, role};

    #[test]
    fn what_is_missing_is_said() {
        let said = missing(io::ErrorKind::NotFound.into());
        assert_eq!(said.kind(), io::ErrorKind::NotFound);
        assert!(said.to_string().starts_with("no random bytes: "));
    }

    #[test]
    fn random_bytes_are_had_where_getrandom_is_refused() {
        let [a, b] = [(); 2].map(|()| Secret::new().unwrap());
        assert!(!a.is(b.bytes()));
        if role().is_none() {
            let test = "secret::tests::random_bytes_are_had_where_getrandom_is_refused";
            for error in ["EPERM", "ENOSYS"] {
                again_denied(error, "getrandom", test);
            }
        }
    }

    #[test]
    fn a_secret_is_itself_as_bytes_and_as_text_and_nothing_else() {
        let secret = Secret::new().unwrap();
        assert!(secret.is(secret.bytes()));
        let text = secret.to_hex();
        assert_eq!(text.len(), 32);
        assert!(Secret::from_hex(&text).unwrap().is(secret.bytes()));
        for bit in 0..8 * Secret::LEN {
            let mut other = *secret.bytes();
            other[bit / 8] ^= 1 << (bit % 8);
            assert!(!secret.is(&other), "bit {bit}");
        }
        assert!(!secret.is(&secret.bytes()[..15]));
        assert!(!secret.is(&[]));
        for bad in [
            "",
            &text[1..],
            &format!("{text}0"),
            &"g".repeat(32),
            &format!("+{}", &text[1..]),
        ] {
            assert!(Secret::from_hex(bad).is_none(), "{bad:?}");
        }
        assert!(!format!("{secret:?}").contains(&text[..4]));
    }

    #[test]
    fn two_secrets_differ() {
        let [a, b] = [Secret::new().unwrap(), Secret::new().unwrap()];
        assert!(!a.is(b.bytes()));
    }
}
