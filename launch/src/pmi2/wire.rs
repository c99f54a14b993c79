//! One message of the PMI-2 wire protocol: six characters with the length in decimal, then
//! `cmd=NAME;key=value;key=value;`.
//!
//! The protocol is the one that MPICH's Hydra and Slurm's `pmi2` plugin speak. A `;` within a value is
//! written twice by MPICH; Slurm writes and reads it as it is, so nothing that is sent from here has one.
//! Every message is taken apart here and nowhere else: the server is on the other side of a trust boundary.

use std::fmt::Write as _;

use crate::wire::excerpt;

/// Characters of the length.
pub const PREFIX: usize = 6;

/// The longest message that is taken, in bytes. Servers stay near 2 KiB; the limit stops one that
/// announces a length and never ends from filling this process's memory.
pub const FRAME_MAX: usize = 64 * 1024;

/// Why bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The first six bytes are no number.
    #[error("the length {0:?} is no number")]
    Length(String),
    /// The message is longer than any may be.
    #[error("the length {0} is over the limit of {FRAME_MAX}")]
    TooLong(usize),
    /// A pair has no `=`.
    #[error("{0:?} is not key=value;")]
    NotAPair(String),
    /// A pair has nothing before its `=`.
    #[error("{0:?} has no key")]
    NoKey(String),
    /// The message has no pair at all.
    #[error("the message is empty")]
    Empty,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    fields: Vec<(String, String)>,
}

impl Frame {
    /// Takes the bytes after the length apart. Where a key is repeated the first one counts; what is
    /// not UTF-8 is replaced, as no value of ours has it.
    ///
    /// # Errors
    /// [`FrameError`] says what is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        let text = String::from_utf8_lossy(bytes);
        let mut fields = Vec::new();
        // Some servers end a message with a zero or a line end.
        let mut rest = text.trim_end_matches(['\0', '\n', ' ']);
        while !rest.is_empty() {
            let (pair, tail) = cut(rest);
            let (key, value) = pair
                .split_once('=')
                .ok_or_else(|| FrameError::NotAPair(excerpt(&pair)))?;
            if key.is_empty() {
                return Err(FrameError::NoKey(excerpt(&pair)));
            }
            fields.push((key.to_owned(), value.to_owned()));
            rest = tail;
        }
        if fields.is_empty() {
            Err(FrameError::Empty)
        } else {
            Ok(Self { fields })
        }
    }

    /// The command: the value of `cmd`.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        self.field("cmd")
    }

    /// The value of `key`, where the message has it.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(k, _)| k == key);
        found.map(|(_, v)| v.as_str())
    }

    /// The value of `key` as a number, where the message has it and it is one.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.field(key)?.trim().parse().ok()
    }
}

/// The first pair, its doubled `;` made single, and what follows it.
fn cut(text: &str) -> (String, &str) {
    let mut pair = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(';') {
        pair.push_str(before);
        let Some(beyond) = after.strip_prefix(';') else {
            return (pair, after);
        };
        pair.push(';');
        rest = beyond;
    }
    pair.push_str(rest);
    (pair, "")
}

/// Writes a message, its length first. A `;` in a value is doubled.
#[must_use]
pub fn encode(command: &str, pairs: &[(&str, &dyn std::fmt::Display)]) -> Vec<u8> {
    let mut text = format!("cmd={command};");
    for (key, value) in pairs {
        let value = value.to_string().replace(';', ";;");
        // Writing into a String cannot fail.
        let _ = write!(text, "{key}={value};");
    }
    format!("{:>PREFIX$}{text}", text.len()).into_bytes()
}

/// Takes the first whole message out of `inbox`; none where more bytes must come first.
///
/// # Errors
/// The bytes are no message. They stay, so the same error comes again.
pub fn take(inbox: &mut Vec<u8>) -> Result<Option<Frame>, FrameError> {
    let Some(prefix) = inbox.first_chunk::<PREFIX>() else {
        return Ok(None);
    };
    let digits = String::from_utf8_lossy(prefix);
    let len: usize = digits
        .trim()
        .parse()
        .map_err(|_| FrameError::Length(excerpt(&digits)))?;
    if len > FRAME_MAX {
        return Err(FrameError::TooLong(len));
    }
    let end = PREFIX + len;
    let Some(body) = inbox.get(PREFIX..end) else {
        return Ok(None);
    };
    let frame = Frame::parse(body)?;
    inbox.drain(..end);
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_however_it_arrives() {
        let bytes = [
            encode("kvs-put", &[("key", &"addr.0"), ("value", &"a=b")]),
            encode(
                "abort",
                &[("isworld", &"TRUE"), ("msg", &"one;two;;three;")],
            ),
        ]
        .concat();
        assert!(bytes.starts_with(b"    33cmd=kvs-put;key=addr.0;value=a=b;"));
        for step in 1..bytes.len() {
            let mut inbox = Vec::new();
            let mut frames = Vec::new();
            for chunk in bytes.chunks(step) {
                inbox.extend_from_slice(chunk);
                while let Some(frame) = take(&mut inbox).unwrap() {
                    frames.push(frame);
                }
            }
            assert_eq!(frames.len(), 2, "in steps of {step}");
            assert_eq!(frames[0].command(), Some("kvs-put"));
            assert_eq!(frames[0].field("value"), Some("a=b"));
            assert_eq!(frames[1].field("msg"), Some("one;two;;three;"));
            assert_eq!(inbox, b"");
        }
    }

    #[test]
    fn an_answer_of_slurm_is_understood() {
        // Slurm writes the length to the left, MPICH to the right.
        let text = "cmd=fullinit-response;rc=0;rank=1;size=4;appnum=-1;extra=;";
        let mut inbox = format!("{:<6}{text}", text.len()).into_bytes();
        let frame = take(&mut inbox).unwrap().unwrap();
        assert_eq!(frame.command(), Some("fullinit-response"));
        assert_eq!(frame.number::<u32>("rank"), Some(1));
        assert_eq!(frame.number::<i32>("appnum"), Some(-1));
        assert_eq!(frame.field("extra"), Some(""));
    }

    #[test]
    fn hostile_frames_are_errors() {
        let mut inbox = b"cmd=in".to_vec();
        assert_eq!(take(&mut inbox), Err(FrameError::Length("cmd=in".into())));
        let mut inbox = b"    -1cmd=x;".to_vec();
        assert!(matches!(take(&mut inbox), Err(FrameError::Length(_))));
        let mut inbox = b"999999".to_vec();
        assert_eq!(take(&mut inbox), Err(FrameError::TooLong(999_999)));
        let mut inbox = b"     0".to_vec();
        assert_eq!(take(&mut inbox), Err(FrameError::Empty));
        assert!(matches!(
            Frame::parse(b"hello;"),
            Err(FrameError::NotAPair(_))
        ));
        assert_eq!(Frame::parse(b"=x;"), Err(FrameError::NoKey("=x".into())));
        assert_eq!(take(&mut b"   12".to_vec()), Ok(None));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let mut inbox: Vec<u8> = (0..rng.usize(..40)).map(|_| rng.u8(..)).collect();
            if rng.bool() {
                let len = inbox.len().saturating_sub(PREFIX);
                inbox.splice(0..PREFIX.min(inbox.len()), format!("{len:>6}").into_bytes());
            }
            if let Err(error) = take(&mut inbox) {
                assert!(error.to_string().len() < 1000);
            }
        }
    }
}
