//! `portolan seastar-sim`: the process that holds the simulated machine of a job.

use std::ffi::OsString;

use crate::error::CmdError;

/// Runs the simulation until its ranks have gone.
pub(crate) fn run(_args: &[OsString]) -> Result<u8, CmdError> {
    Err(CmdError::Usage(
        "this command is started by portolan run".to_owned(),
    ))
}
