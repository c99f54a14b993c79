// UNSAFETY: a C caller has the object by a pointer to its first field.
#![expect(unsafe_code, reason = "C callers have the object by a pointer")]
//! Domains: the choice of a fabric, and what endpoints share.

use crate::abi::{Fid, class};
use crate::object::{self, Object};
use crate::table::Table;
use ofi_engine::memory::Buffer;
use ofi_engine::{Access, Endpoint, Refused};
use portals_shim::fabric::FabricConfig;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a domain's endpoints share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: FabricConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    endpoints: Vec<Weak<Endpoint>>,
    memory: HashMap<u64, (Buffer, Access)>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An endpoint is used from now on: all memory is reached by it.
    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>) -> Result<(), Refused> {
        let mut state = self.state();
        for (key, (buffer, access)) in &state.memory {
            endpoint.register(*key, buffer, *access)?;
        }
        state.endpoints.retain(|e| e.strong_count() > 0);
        state.endpoints.push(Arc::downgrade(endpoint));
        Ok(())
    }

    /// All endpoints are reached at the memory by this key.
    pub(crate) fn register(&self, key: u64, buffer: Buffer, access: Access) -> Result<(), Refused> {
        let mut state = self.state();
        if state.memory.contains_key(&key) {
            return Err(Refused::Invalid);
        }
        for endpoint in state.endpoints.iter().filter_map(Weak::upgrade) {
            endpoint.register(key, &buffer, access)?;
        }
        state.memory.insert(key, (buffer, access));
        Ok(())
    }

    pub(crate) fn deregister(&self, key: u64) {
        let mut state = self.state();
        state.memory.remove(&key);
        for endpoint in state.endpoints.iter().filter_map(Weak::upgrade) {
            endpoint.deregister(key);
        }
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Domain {
    fid: Fid,
    ops: *const c_void,
    mr: *const c_void,
    pub(crate) shared: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for Domain {
    const CLASS: usize = class::DOMAIN;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (1, object::bind_to_nothing as *const c_void),
    ]);

    /// Endpoints, queues and memory of it are still there.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }
}

impl Domain {
    /// A domain on this fabric; `ops` and `mr` are its tables of operations.
    pub(crate) fn new(
        fid: Fid,
        config: FabricConfig,
        ops: *const c_void,
        mr: *const c_void,
    ) -> Self {
        let shared = Arc::new(Shared {
            config,
            state: Mutex::default(),
        });
        Self {
            fid,
            ops,
            mr,
            shared,
        }
    }
}
