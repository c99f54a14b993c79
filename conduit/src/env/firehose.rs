//! The variables of pinning.

use super::reader::{EnvError, Reader};
use ::firehose::Shape;
use std::time::Duration;

/// What the environment says of pinning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pinning {
    /// Memory for peers, and for own transfers, bytes.
    pub(crate) m: Option<u64>,
    pub(crate) max_victim: Option<u64>,
    /// Bytes of a unit.
    region: u64,
    /// Most memory that may be pinned, bytes; and the part of the machine's that may.
    pub(crate) physmem_max: Option<u64>,
    pub(crate) ratio: f64,
    /// Local memory is pinned by units that stay, not for each message.
    pub(crate) local: bool,
    /// Gets by the adapter; otherwise the owner sends the data.
    pub(crate) rdma_gets: bool,
    /// How long a peer may leave a request of pinning without its answer; for ever if `None`.
    pub(crate) timeout: Option<Duration>,
}

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

impl Pinning {
    pub(super) fn read<F: Fn(&str) -> Option<String>>(r: &Reader<F>) -> Result<Self, EnvError> {
        Ok(Self {
            m: r.megabytes("GASNET_FIREHOSE_M", "3/4 of what may be pinned", |n| n)?,
            max_victim: r.megabytes(
                "GASNET_FIREHOSE_MAXVICTIM_M",
                "1/4 of what may be pinned",
                |n| n,
            )?,
            region: r
                .megabytes("GASNET_FIREHOSE_MAXREGION_SIZE", "128K", |n| {
                    n.clamp(PAGE, 1 << 30).next_power_of_two()
                })?
                .unwrap_or(MIB / 8),
            physmem_max: r.number("GASNET_PHYSMEM_MAX", "the machine's")?,
            ratio: r.ratio("GASNET_PHYSMEM_PINNABLE_RATIO", 0.7)?,
            local: r.switch("GASNET_USE_FIREHOSE", true)?,
            rdma_gets: r.switch("GASNET_RDMA_GETS", true)?,
            timeout: r
                .seconds("GASNET_FIREHOSE_TIMEOUT", "none")?
                .filter(|seconds| *seconds > 0.0)
                .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()),
        })
    }

    /// Pages, if a unit is one.
    pub(crate) fn shape(&self) -> Shape {
        if self.region <= PAGE {
            Shape::Pages { log2: 12 }
        } else {
            Shape::Regions {
                log2: self.region.ilog2() - 1,
            }
        }
    }
}
