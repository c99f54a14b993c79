//! Portals over RDMA verbs.

use crate::fabric::{FabricConfig, FabricError, FabricKind, Opened};
use crate::job::Job;

/// Whether a device can be used; the error says why not and what to do.
pub fn check(_device: Option<&str>) -> Result<(), String> {
    Err("no RDMA device".to_owned())
}

/// Opens the device and connects to the other ranks.
pub fn open(_job: &Job, config: &FabricConfig) -> Result<Opened, FabricError> {
    check(config.device.as_deref()).map_err(|reason| FabricError::Unusable {
        kind: FabricKind::Verbs,
        reason,
    })?;
    Err(FabricError::Unusable {
        kind: FabricKind::Verbs,
        reason: "no RDMA device".to_owned(),
    })
}
