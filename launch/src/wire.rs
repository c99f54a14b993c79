//! One line of the PMI-1 wire protocol: `cmd=NAME key=value key=value`.
//!
//! The protocol is the one MPICH's process managers speak, written down in Flux RFC 13. A message is a
//! line of `key=value` pairs between blanks, in any order, with keys the reader may not know. Client and
//! server lie on two sides of a trust boundary, so every line is parsed here and nothing else splits text.

use std::fmt::Write as _;

/// The longest line either side accepts, in bytes, newline included.
///
/// Real servers stay near 2 KiB (a 1024-byte value and its names); the limit only stops a peer that
/// never sends a newline from filling this process's memory.
pub const LINE_MAX: usize = 64 * 1024;

/// Why a line is not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// The line has no pair at all.
    #[error("the line is empty")]
    Empty,
    /// The line starts with a word that is not `key=value`.
    #[error("the word {0:?} is not key=value")]
    NotAPair(String),
    /// A pair has nothing before its `=`.
    #[error("the word {0:?} has no key")]
    NoKey(String),
    /// A control character stands in the line.
    #[error("control character {0:#04x} at byte {1}")]
    Control(u32, usize),
}

/// A parsed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    fields: Vec<(String, String)>,
}

impl Line {
    /// Parses one line without its newline.
    ///
    /// A word without `=` after the first pair continues the value before it: servers send
    /// `msg=some words` unquoted. Where a key is repeated the first one counts.
    ///
    /// # Errors
    /// [`LineError`] says what is wrong with the line.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        if let Some((at, c)) = text
            .char_indices()
            .find(|(_, c)| c.is_control() && *c != '\t')
        {
            return Err(LineError::Control(u32::from(c), at));
        }
        let mut fields: Vec<(String, String)> = Vec::new();
        for word in text.split([' ', '\t']).filter(|w| !w.is_empty()) {
            match (word.split_once('='), fields.last_mut()) {
                (Some(("", _)), _) => return Err(LineError::NoKey(excerpt(word))),
                (Some((key, value)), _) => fields.push((key.to_owned(), value.to_owned())),
                (None, Some((_, value))) => {
                    value.push(' ');
                    value.push_str(word);
                }
                (None, None) => return Err(LineError::NotAPair(excerpt(word))),
            }
        }
        if fields.is_empty() {
            Err(LineError::Empty)
        } else {
            Ok(Self { fields })
        }
    }

    /// The command: the value of `cmd`.
    #[must_use]
    pub fn command(&self) -> Option<&str> {
        self.field("cmd")
    }

    /// The value of `key`, where the line has it.
    #[must_use]
    pub fn field(&self, key: &str) -> Option<&str> {
        self.fields
            .iter()
            .find(|(k, _)| k == key)
            .map(|(_, v)| v.as_str())
    }

    /// The value of `key` as a number, where the line has it and it is one.
    #[must_use]
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.field(key)?.parse().ok()
    }
}

/// Writes a message: `cmd=COMMAND` and the pairs, newline at the end.
#[must_use]
pub fn format(command: &str, pairs: &[(&str, &dyn std::fmt::Display)]) -> String {
    let mut line = format!("cmd={command}");
    for (key, value) in pairs {
        // Writing into a String cannot fail.
        let _ = write!(line, " {key}={value}");
    }
    line.push('\n');
    line
}

/// The first 80 characters of `text`, for an error message.
#[must_use]
pub fn excerpt(text: &str) -> String {
    const KEEP: usize = 80;
    match text.char_indices().nth(KEEP) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_in_any_order_with_blanks_and_unknown_keys() {
        let line = Line::parse("  rc=0 cmd=maxes  vallen_max=1024\tnew_key=x ").unwrap();
        assert_eq!(line.command(), Some("maxes"));
        assert_eq!(line.number::<u32>("vallen_max"), Some(1024));
        assert_eq!(line.field("absent"), None);
    }

    #[test]
    fn values_keep_their_equals_signs_and_following_words() {
        let line = Line::parse("cmd=get_result rc=-1 msg=no such key value=a=b=c").unwrap();
        assert_eq!(line.field("msg"), Some("no such key"));
        assert_eq!(line.field("value"), Some("a=b=c"));
        assert_eq!(line.number::<i32>("rc"), Some(-1));
    }

    #[test]
    fn the_first_of_two_equal_keys_counts() {
        let line = Line::parse("cmd=put_result rc=-1 rc=0").unwrap();
        assert_eq!(line.field("rc"), Some("-1"));
    }

    #[test]
    fn hostile_lines_are_errors() {
        assert_eq!(Line::parse(""), Err(LineError::Empty));
        assert_eq!(Line::parse(" \t "), Err(LineError::Empty));
        assert_eq!(
            Line::parse("hello cmd=init"),
            Err(LineError::NotAPair("hello".into()))
        );
        assert_eq!(Line::parse("cmd=a =b"), Err(LineError::NoKey("=b".into())));
        assert_eq!(Line::parse("cmd=a\u{0}b"), Err(LineError::Control(0, 5)));
        assert!(Line::parse("cmd=größe rc=0").is_ok());
        assert_eq!(
            Line::parse("cmd=size n=99999999999")
                .unwrap()
                .number::<u32>("n"),
            None
        );
    }

    #[test]
    fn what_is_written_is_read_back() {
        let text = format("put", &[("kvsname", &"k"), ("value", &42)]);
        assert_eq!(text, "cmd=put kvsname=k value=42\n");
        assert_eq!(
            Line::parse(text.trim_end()).unwrap().field("value"),
            Some("42")
        );
    }

    #[test]
    fn excerpts_cut_between_characters() {
        let long = "é".repeat(200);
        assert_eq!(excerpt(&long).chars().count(), 81);
    }
}
