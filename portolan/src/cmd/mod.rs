//! One file for each subcommand: its options and what it does with them.

pub(crate) mod asked;
pub(crate) mod bench;
pub(crate) mod credits;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod exits;
pub(crate) mod firehose;
pub(crate) mod info;
pub(crate) mod launched;
pub(crate) mod messages;
pub(crate) mod numbers;
pub(crate) mod output;
pub(crate) mod probe;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod seastar_device;
pub(crate) mod seastar_sim;
pub(crate) mod shell;
pub(crate) mod simulate;
pub(crate) mod summary;
pub(crate) mod sweep;
pub(crate) mod trace;
pub(crate) mod view;

use std::io::{self, Write as _};

use crate::error::CmdError;

/// Writes `text` and a line end to standard output. A reader that has gone away is an error, not a panic.
pub(crate) fn say(text: &str) -> Result<(), CmdError> {
    writeln!(io::stdout(), "{text}").map_err(failed("write standard output"))
}

/// Makes an I/O error of trying to do `what`.
pub(crate) fn failed(what: &str) -> impl FnOnce(io::Error) -> CmdError + use<> {
    let what = format!("cannot {what}");
    move |source| CmdError::System { what, source }
}
