//! The conformance cases of two ranks (or of as many as the job has) with a process for each rank, over the fabric of
//! the environment: `mpiexec -n 2 conformance_job`, on one host or several. `PORTOLAN_CASE` picks cases.

use portals_shim::job::Job;
use portolan_tests::conformance;

fn main() {
    match Job::from_env() {
        Ok(job) => conformance::run_job(job),
        Err(error) => {
            portals_shim::say(format_args!("conformance_job: {error}"));
            std::process::exit(2);
        }
    }
}
