//! Why a device cannot be had, or does not answer.

use std::io;
use std::path::PathBuf;

use crate::dma::DmaMapError;

/// Why an operation on a device failed; where the user can do something about it, the message
/// says what.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The system refused something.
    #[error("{what}")]
    System {
        /// What was tried, as `cannot …`.
        what: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nobody serves the socket.
    #[error(
        "no device is served at {}; start one with: portolan seastar-device --socket PATH",
        path.display()
    )]
    NotServed {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody else serves the socket.
    #[error("{} is served by user {user}, who is neither root nor who runs this", path.display())]
    OtherUser {
        /// The socket.
        path: PathBuf,
        /// Who does.
        user: u32,
    },
    /// A socket is there and somebody serves it.
    #[error("{} is in use by another server; choose another path or end that one", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The other side closed the connection.
    #[error("the other side closed the connection")]
    Closed,
    /// The other side does not answer.
    #[error("no answer within {seconds} s")]
    Silent {
        /// How long was waited.
        seconds: u64,
    },
    /// The other side said something that the protocol does not have.
    #[error("the other side does not keep to vfio-user: {0}")]
    Protocol(String),
    /// The server refused a command.
    #[error("the server refused {command}: {source}")]
    Refused {
        /// What it was asked.
        command: &'static str,
        /// Its reason.
        #[source]
        source: io::Error,
    },
    /// The function is not a SeaStar.
    #[error("vendor {vendor:#06x} device {device:#06x} is no SeaStar (0x17db, 0x0101)")]
    NotSeaStar {
        /// PCI vendor.
        vendor: u16,
        /// PCI device.
        device: u16,
    },
    /// The function lacks something that a SeaStar has.
    #[error("the function has no usable {0}")]
    Lacks(&'static str),
    /// A range cannot be mapped.
    #[error(transparent)]
    Map(#[from] DmaMapError),
    /// What was given is no PCI address.
    #[error("{0:?} is no PCI address; lspci -D shows them, such as 0000:03:00.0")]
    Address(String),
    /// There is no such function.
    #[error("no PCI function at {address} ({} does not exist); lspci -D shows all", path.display())]
    NoFunction {
        /// The address.
        address: String,
        /// Where it would be.
        path: PathBuf,
    },
    /// The function is in no IOMMU group.
    #[error(
        "PCI function {0} is in no IOMMU group; switch the IOMMU on, in the firmware set-up and \
         with intel_iommu=on or amd_iommu=on on the kernel's command line"
    )]
    NoGroup(String),
    /// The kernel has no VFIO.
    #[error("{} does not exist; load the driver: modprobe vfio-pci", path.display())]
    NoVfio {
        /// Where the container would be.
        path: PathBuf,
    },
    /// The function's group is not VFIO's.
    #[error(
        "{} does not exist: {address} is not bound to vfio-pci; as root: \
         echo vfio-pci > /sys/bus/pci/devices/{address}/driver_override; \
         echo {address} > /sys/bus/pci/drivers_probe",
        path.display()
    )]
    NotBound {
        /// The function.
        address: String,
        /// Where the group would be.
        path: PathBuf,
    },
    /// A file of VFIO may not be opened.
    #[error("{0} may not be opened; run as root, or as root: chown $USER {0}", path.display())]
    NotPermitted {
        /// The file.
        path: PathBuf,
    },
    /// Another program has the function.
    #[error("{} is in use by another program", path.display())]
    Busy {
        /// The group.
        path: PathBuf,
    },
    /// Not all functions of the group are VFIO's.
    #[error(
        "IOMMU group {group} has functions with other drivers; bind all of \
         /sys/kernel/iommu_groups/{group}/devices to vfio-pci"
    )]
    NotViable {
        /// The group.
        group: String,
    },
    /// The kernel's VFIO cannot do what is needed.
    #[error("{} is no VFIO container of a known kind", path.display())]
    NotVfio {
        /// The file.
        path: PathBuf,
    },
}

impl DeviceError {
    /// Makes an error of trying to do `what`.
    pub(crate) fn system<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        let what = format!("cannot {}", what.into());
        move |source| Self::System {
            what,
            source: source.into(),
        }
    }
}
