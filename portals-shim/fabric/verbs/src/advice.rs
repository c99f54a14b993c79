//! What users are told of a device that cannot be used.

use fabric_api::config::{FabricError, FabricKind};
use host::with_causes;
use std::fmt::Display;
use verbs_backend::device::DeviceError;

/// What is wrong, and what a user can do.
pub(crate) fn advise(error: &DeviceError) -> String {
    let remedy = match error {
        DeviceError::NotInstalled(_) => {
            "install libibverbs (Debian: libibverbs1, ibverbs-providers), or put \"portolan guest --\" in front of the command to use SoftRoCE in a virtual machine"
        }
        DeviceError::NoDevice => {
            "add SoftRoCE to a network interface (modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0), or put \"portolan guest --\" in front of the command to use it in a virtual machine"
        }
        DeviceError::NoFiles { .. } => {
            "a container needs them (docker run --device=/dev/infiniband --ulimit memlock=-1), and a machine the module that makes them (modprobe ib_uverbs)"
        }
        DeviceError::NoProvider { .. } => {
            "install it (Debian: ibverbs-providers), in a container too"
        }
        DeviceError::Open { .. } => {
            "its file in /dev/infiniband must be open to users (mode 0666), and its provider installed (Debian: ibverbs-providers)"
        }
        DeviceError::NoPort { why, .. } if why.ends_with("is not active") => {
            "RoCE: the network interface below must be up (ip link set NAME up); InfiniBand: a cable, and a subnet manager in the network"
        }
        _ => return with_causes(error),
    };
    format!("{}: {remedy}", with_causes(error))
}

pub(crate) fn unusable(what: impl Display) -> FabricError {
    FabricError::Unusable {
        kind: FabricKind::Verbs,
        reason: what.to_string(),
    }
}

pub(crate) fn failed(error: impl std::error::Error) -> FabricError {
    unusable(with_causes(&error))
}

/// What is said when a device ends under a running job.
pub(crate) fn unusable_device(name: &str, why: &dyn Display) -> String {
    format!("RDMA device {name} does not work any more: {why}; all operations fail")
}
