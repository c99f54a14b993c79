//! `portolan bench` as the ranks of a job that mpiexec, srun or another launcher has started; rank 0 reports.
//!
//! Started alone, `portolan bench` starts ranks of its own. A launcher that starts several processes of it means those.

use portals_shim::fabric::{self, FabricConfig};
use portals_shim::job::Job;

use super::{Options, Plan, bounded, failed_bench, measure_in};
use crate::bench::Record;
use crate::error::CmdError;

/// The plan of a job that runs already: what needs jobs of its own is refused, with the same error in every rank.
pub(super) fn plan(job: &Job, options: &Options, plan: &Plan) -> Result<Plan, CmdError> {
    let usage = |message: String| Err(CmdError::Usage(message));
    let ranks = job.size();
    if options.ranks != Options::RANKS && options.ranks != ranks {
        let asked = options.ranks;
        return usage(format!(
            "the launcher has started {ranks} ranks, and -n asks for {asked}; leave -n out"
        ));
    }
    for (option, given) in [
        ("--turns", options.turns > 1),
        ("--timeout", options.timeout.is_some()),
        ("--sensitivity", options.sensitivity.is_some()),
    ] {
        if given {
            return usage(format!(
                "{option} is for jobs that portolan bench starts itself; a launcher has started this one"
            ));
        }
    }
    let mut jobs = plan.jobs();
    let Some((only, variables)) = jobs.pop().filter(|_| jobs.is_empty()) else {
        return usage(
            "these measurements need a job each; name some that share one, or start portolan bench without a launcher"
                .to_owned(),
        );
    };
    if let Some((name, value)) = variables.first() {
        let (name, value) = (name.display(), value.display());
        return usage(format!(
            "the environment of all ranks must say {name}={value}; without a launcher portolan bench sets it"
        ));
    }
    only.check()?;
    Ok(only)
}

/// The fabric that this job takes.
pub(super) fn fabric(job: &Job, options: &Options) -> Result<FabricConfig, CmdError> {
    Ok(fabric::resolve(job, &options.fabric.config())?)
}

/// Measures with the other ranks of the job, and leaves it; rank 0 has the results.
pub(super) fn measured(
    job: Job,
    plan: &Plan,
    config: &FabricConfig,
) -> Result<Vec<Record>, CmdError> {
    let (rank, records) = measure_in(job, plan, config).map_err(failed_bench)?;
    rank.close().map_err(failed_bench)?;
    let records = records.into_iter().map(Record::of_this_command).collect();
    bounded(records, plan, config)
}
