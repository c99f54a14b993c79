//! Lines for people, on a standard error that ranks share.

use std::error::Error;
use std::fmt;
use std::io::Write;

/// Writes a line to standard error as one piece, so that those of several ranks do not mix. Any thread may call it.
pub fn say(line: fmt::Arguments<'_>) {
    let text = format!("{line}\n");
    // There is nowhere to tell that nobody can be told.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Says what works, though otherwise than a user may expect: what was chosen, or what goes another way as the system refuses the
/// usual one. For one rank of a job; `PORTOLAN_QUIET` and `GASNET_QUIET` leave it out.
pub fn note(line: fmt::Arguments<'_>) {
    if !crate::variables::is_quiet() {
        say(format_args!("portolan: {line}"));
    }
}

/// An error and its causes in one line.
///
/// ```
/// let missing = std::io::Error::other("no such device");
/// assert_eq!(host::with_causes(&missing), "no such device");
/// ```
pub fn with_causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        line.push_str(": ");
        line.push_str(&error.to_string());
        cause = error.source();
    }
    line
}

/// Longest line of [`say_at_once`], bytes.
const LONGEST: usize = 400;

/// Writes a line to standard error, from a handler of a signal too: takes neither a lock nor memory. What does not fit is cut.
pub fn say_at_once(line: fmt::Arguments<'_>) {
    let mut text = [0; LONGEST];
    let mut rest = &mut text[..LONGEST - 1];
    // A line that is too long is there as far as it fits.
    let _ = rest.write_fmt(line);
    let length = LONGEST - 1 - rest.len();
    text[length] = b'\n';
    let _ = rustix::io::write(std::io::stderr(), &text[..=length]);
}
