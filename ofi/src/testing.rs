//! What tests of this crate open.

use ofi_engine::Endpoint;
use portals_shim::fabric::{FabricConfig, FabricKind};
use std::sync::Arc;

/// An endpoint over shared memory.
pub(crate) fn endpoint() -> Arc<Endpoint> {
    let config = FabricConfig {
        fabric: FabricKind::Shm.into(),
        ..FabricConfig::default()
    };
    Arc::new(Endpoint::open(&config).unwrap())
}
