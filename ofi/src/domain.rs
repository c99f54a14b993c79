// UNSAFETY: a C caller has the object by a pointer to its first field.
#![expect(unsafe_code, reason = "C callers have the object by a pointer")]
//! Domains: the choice of a fabric, and what endpoints share.

use crate::abi::{Fid, class};
use crate::cntr::{Accesses, Counting};
use crate::fabric::InUse;
use crate::object::{self, Object};
use crate::progress::Users;
use crate::table::Table;
use ofi_engine::memory::Buffer;
use ofi_engine::{Access, Endpoint, Refused};
use portals_shim::endpoint::Address;
use portals_shim::fabric::FabricConfig;
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// What a domain's endpoints share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: FabricConfig,
    /// Endpoints make progress while the program makes no call.
    pub(crate) automatic: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    endpoints: Vec<Weak<Endpoint>>,
    memory: BTreeMap<u64, Memory>,
}

impl State {
    /// Those that are still there.
    fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.endpoints.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Memory that peers reach by a key.
#[derive(Debug)]
struct Memory {
    buffer: Buffer,
    access: Access,
    accesses: Accesses,
    /// Its close has begun: no further endpoint gets it.
    ends: bool,
}

impl Memory {
    /// Peers reach it by these endpoints, or by none of them after an error.
    fn register(&self, key: u64, endpoints: &[Arc<Endpoint>]) -> Result<(), Refused> {
        let one = |endpoint: &Arc<Endpoint>| {
            endpoint.register(key, &self.buffer, self.access)?;
            self.accesses.count(endpoint, Some(key))
        };
        let done = endpoints.iter().try_for_each(one);
        if done.is_err() {
            take_back(key, endpoints);
        }
        done
    }
}

/// Peers reach the memory of a key by none of these endpoints any more.
fn take_back(key: u64, endpoints: &[Arc<Endpoint>]) {
    for endpoint in endpoints {
        if let Err(error) = endpoint.deregister(key, Users::serve_all) {
            tracing::error!(%error, key, "peers may still reach memory");
        }
    }
}

impl Shared {
    /// Bytes of an address, of an endpoint of the domain and of its peers.
    pub(crate) fn address_len(&self) -> usize {
        Address::len_on(self.config.kind())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An endpoint is used from now on: all memory is reached by it.
    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>) -> Result<(), Refused> {
        let mut state = self.state();
        let one = std::slice::from_ref(endpoint);
        for (key, memory) in state.memory.iter().filter(|(_, memory)| !memory.ends) {
            if let Err(why) = memory.register(*key, one) {
                let before = state.memory.range(..key);
                before.for_each(|(key, _)| take_back(*key, one));
                return Err(why);
            }
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
        let memory = Memory {
            buffer,
            access,
            accesses: Accesses::default(),
            ends: false,
        };
        memory.register(key, &state.endpoints())?;
        state.memory.insert(key, memory);
        Ok(())
    }

    /// A counter counts what peers do with the memory of this key.
    pub(crate) fn count(&self, key: u64, flags: u64, counting: &Counting) -> Result<(), Refused> {
        let state = &mut *self.state();
        let memory = state.memory.get_mut(&key).ok_or(Refused::Invalid)?;
        memory.accesses.bind(flags, counting);
        let mut endpoints = state.endpoints.iter().filter_map(Weak::upgrade);
        endpoints.try_for_each(|endpoint| memory.accesses.count(&endpoint, Some(key)))
    }

    /// No endpoint is reached at the memory any more; after an error some are.
    pub(crate) fn deregister(&self, key: u64) -> Result<(), Refused> {
        let endpoints = {
            let mut state = self.state();
            if let Some(memory) = state.memory.get_mut(&key) {
                memory.ends = true;
            }
            state.endpoints()
        };
        // Without the lock: what keeps an access under way may be a thread of this process that asks for it.
        for endpoint in endpoints {
            endpoint.deregister(key, Users::serve_all)?;
        }
        self.state().memory.remove(&key);
        Ok(())
    }
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Domain {
    fid: Fid,
    ops: *const c_void,
    mr: *const c_void,
    pub(crate) shared: Arc<Shared>,
    _fabric: InUse,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for Domain {
    const CLASS: usize = class::DOMAIN;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (1, object::bind_to_nothing::<Self> as *const c_void),
    ]);

    /// Endpoints, queues and memory of it are still there.
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.shared) > 1
    }
}

impl Domain {
    /// A domain on this fabric, with or without automatic progress; `ops` and `mr` are its tables of operations.
    pub(crate) fn new(
        fid: Fid,
        (config, automatic): (FabricConfig, bool),
        (ops, mr): (*const c_void, *const c_void),
        fabric: InUse,
    ) -> Self {
        let shared = Arc::new(Shared {
            config,
            automatic,
            state: Mutex::default(),
        });
        Self {
            fid,
            ops,
            mr,
            shared,
            _fabric: fabric,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::endpoint;

    const ALL: Access = Access {
        read: true,
        write: true,
    };

    fn shared() -> Shared {
        Shared {
            config: FabricConfig::default(),
            automatic: false,
            state: Mutex::default(),
        }
    }

    /// Whether peers reach memory of this key by an endpoint; no longer after this.
    fn has(endpoint: &Endpoint, key: u64) -> bool {
        let taken = endpoint.register(key, &Buffer::default(), ALL).is_err();
        endpoint.deregister(key, || ()).unwrap();
        taken
    }

    #[test]
    fn memory_that_one_endpoint_refuses_is_reached_by_none() {
        let (shared, all) = (shared(), [endpoint(), endpoint()]);
        for one in &all {
            shared.add(one).unwrap();
        }
        all[1].register(5, &Buffer::default(), ALL).unwrap();
        let refused = shared.register(5, Buffer::default(), ALL);
        assert_eq!(refused, Err(Refused::Invalid));
        assert!(!has(&all[0], 5));
        shared.register(5, Buffer::default(), ALL).unwrap();
        assert!(all.iter().all(|one| has(one, 5)));
    }

    #[test]
    fn an_endpoint_that_refuses_some_memory_is_reached_at_none() {
        let (shared, one) = (shared(), endpoint());
        for key in [1, 2, 3] {
            shared.register(key, Buffer::default(), ALL).unwrap();
        }
        one.register(2, &Buffer::default(), ALL).unwrap();
        assert_eq!(shared.add(&one), Err(Refused::Invalid));
        assert!(![1, 2, 3].into_iter().any(|key| has(&one, key)));
    }
}
