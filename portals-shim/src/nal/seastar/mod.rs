//! Portals over the simulated SeaStar.

use crate::fabric::{FabricConfig, FabricError, FabricKind, Opened};
use crate::job::Job;

/// Whether the machine's parameters are known.
pub fn check(machine: &str) -> Result<(), String> {
    if machine == "xt4" {
        Ok(())
    } else {
        Err(format!("no machine \"{machine}\""))
    }
}

/// Joins the simulation of the job.
pub fn open(_job: &Job, config: &FabricConfig) -> Result<Opened, FabricError> {
    check(&config.machine).map_err(|reason| FabricError::Unusable {
        kind: FabricKind::Seastar,
        reason,
    })?;
    Err(FabricError::Unusable {
        kind: FabricKind::Seastar,
        reason: "not running".to_owned(),
    })
}
