//! Joining and leaving a job, the same in every program.

use crate::log;
use conduit::{AmError, AttachError, BarrierError, Conduit, InitError, RmaError};
use std::io::Write as _;
use std::process::ExitCode;

/// A call of the conduit failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failed {
    /// Start-up.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// An active message.
    #[error(transparent)]
    Am(#[from] AmError),
    /// A put or get.
    #[error(transparent)]
    Rma(#[from] RmaError),
    /// A barrier.
    #[error(transparent)]
    Barrier(#[from] BarrierError),
    /// The own segment.
    #[error(transparent)]
    Memory(#[from] conduit::RegionError),
}

/// Joins the job and runs `body`; its error is said in one line and ends all ranks with status 2.
/// A fabric that cannot be used here is status 3.
///
/// What the fabric reports meanwhile, such as a failed connection, is shown on stderr: errors, or
/// what `PORTOLAN_LOG` says.
///
/// Rank 0 speaks for all: another rank says its error only if rank 0 has none.
pub fn start<E: std::error::Error>(
    program: &str,
    body: impl FnOnce(&Conduit) -> Result<(), E>,
) -> ExitCode {
    let who = std::env::var("PMI_RANK").map_or_else(
        |_| program.to_owned(),
        |rank| format!("{program}: rank {rank}"),
    );
    if let Err(e) = log::install(who) {
        portals_shim::say(format_args!("{program}: {e}"));
        return ExitCode::from(2);
    }
    let conduit = match Conduit::init() {
        Ok(conduit) => conduit,
        Err(e) => {
            portals_shim::say(format_args!("{program}: {}", portals_shim::with_causes(&e)));
            return ExitCode::from(if matches!(e, InitError::Fabric(_)) {
                3
            } else {
                1
            });
        }
    };
    if let Err(e) = body(&conduit) {
        portals_shim::say(format_args!("{program}: {}", portals_shim::with_causes(&e)));
        conduit.exit(2);
    }
    conduit.finish();
    ExitCode::SUCCESS
}

/// Writes a result to standard output. Whether it arrived; where not, that is said, and the program ends with status 1.
pub fn shown(program: &str, result: impl std::fmt::Display) -> bool {
    let mut to = std::io::stdout().lock();
    let written = writeln!(to, "{result}").and_then(|()| to.flush());
    if let Err(e) = &written {
        portals_shim::say(format_args!("{program}: cannot write standard output: {e}"));
    }
    written.is_ok()
}
