//! A launcher that starts several processes of one command of `portolan`.
//!
//! Most commands start ranks of their own. Several of them would measure beside each other and write the same files.

use portals_shim::job::Job;
use portals_shim::with_causes;

use crate::error::CmdError;

/// The job in which a launcher has started this process beside others.
pub(crate) fn job() -> Result<Option<Job>, CmdError> {
    let told = |error| CmdError::Failed(with_causes(&error));
    let job = Job::from_env().map_err(told)?;
    if job.size() > 1 {
        return Ok(Some(job));
    }
    job.finalize().map_err(told)?;
    Ok(None)
}

/// Ends a job whose ranks have all found `error`: rank 0 says it and ends the job, the others wait for that. Their status.
pub(crate) fn end(job: &Job, error: &CmdError) -> u8 {
    if job.rank() == 0 {
        job.abort(error.status().into(), &with_causes(error));
    }
    // The launcher ends this process meanwhile, or lets it go on without rank 0.
    let _ = job.fence();
    error.status()
}

/// Refuses a command that starts ranks of its own where a launcher has started several of it; their status.
pub(crate) fn refused(command: &str) -> Option<u8> {
    // A launcher that this process cannot join has no ranks to be refused.
    let job = job().ok().flatten()?;
    let count = job.size();
    let error = CmdError::Usage(format!(
        "the launcher has started {count} of portolan {command}, which starts ranks of its own; start it without the launcher"
    ));
    Some(end(&job, &error))
}
