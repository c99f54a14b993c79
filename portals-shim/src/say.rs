//! Lines for people, on a standard error that ranks share.

use std::fmt;
use std::io::Write;

/// Writes a line to standard error as one piece, so that those of several ranks do not mix. Any thread may call it.
pub fn say(line: fmt::Arguments<'_>) {
    let text = format!("{line}\n");
    // There is nowhere to tell that nobody can be told.
    let _ = std::io::stderr().write_all(text.as_bytes());
}
