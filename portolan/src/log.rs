//! Events of every layer, such as a failed connection, as lines on stderr.

use crate::cli::Command;
use crate::error::CmdError;

/// Shows events on stderr from now on, as programs do.
pub(crate) fn install(command: Option<&Command>) -> Result<(), CmdError> {
    let rank = std::env::var("PMI_RANK");
    let who = match (command, rank) {
        (Some(Command::BenchRank(_)), Ok(rank)) => format!("portolan bench: rank {rank}"),
        _ => "portolan".to_owned(),
    };
    programs::log::install(who).map_err(CmdError::Usage)
}
