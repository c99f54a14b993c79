//! What a program was asked to do.

use clap::Parser;
use std::io::Write as _;

/// The arguments of this process. Help is printed, or what is wrong is said on standard error, and the process ends with
/// status 0 or 2: in one write, because the ranks of a job share the stream and all have the same to say.
pub fn arguments<C: Parser>() -> C {
    C::try_parse().unwrap_or_else(|error| {
        let text = error.render().to_string();
        // There is nowhere to tell that nobody can be told.
        let _ = match error.use_stderr() {
            true => std::io::stderr().write_all(text.as_bytes()),
            false => std::io::stdout().write_all(text.as_bytes()),
        };
        std::process::exit(error.exit_code())
    })
}
