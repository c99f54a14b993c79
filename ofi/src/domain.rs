// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Domains: the choice of a fabric, and the memory that peers reach by keys.

use crate::abi::{Fid, Info, Iovec, MrAttr, cap, class, errno};
use crate::fabric::is_fabric;
use crate::ptr::{
    Object, Out, Outcome, borrow, buffer, buffers, entry_int, give, object, read, string, take,
};
use crate::table::Table;
use crate::{atomic, av, ep, info, queue};
use ofi_engine::memory::Buffer;
use ofi_engine::{Access, Endpoint, Refused};
use portals_shim::fabric::{FabricConfig, FabricKind};
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
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

    fn register(&self, key: u64, buffer: Buffer, access: Access) -> Result<(), Refused> {
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

    fn deregister(&self, key: u64) {
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
}

#[derive(Debug)]
#[repr(C)]
struct MemoryRegion {
    fid: Fid,
    desc: *mut c_void,
    key: u64,
    shared: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for MemoryRegion {
    const CLASS: usize = class::MR;
}

static DOMAIN_FID: Table<6> =
    Table::new(&[(0, close as *const c_void), (1, bind as *const c_void)]);
static DOMAIN: Table<11> = Table::new(&[
    (0, av::open as *const c_void),
    (1, queue::open as *const c_void),
    (2, ep::open as *const c_void),
    (4, queue::open_counter as *const c_void),
    (8, atomic::query as *const c_void),
    (10, ep::open_with_flags as *const c_void),
]);
static MEMORY: Table<3> = Table::new(&[
    (0, register as *const c_void),
    (1, register_pieces as *const c_void),
    (2, register_by as *const c_void),
]);
static REGION_FID: Table<6> = Table::new(&[
    (0, close_region as *const c_void),
    (1, bind as *const c_void),
    (2, control as *const c_void),
]);

/// `fi_domain`
pub(crate) unsafe extern "C" fn open(
    fabric: *mut c_void,
    info: *mut Info,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the fabric.
        unsafe { is_fabric(fabric, info) }?;
        // SAFETY: the caller wants the domain there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: the caller has it of `fi_getinfo`, and it is only read.
        let info = unsafe { borrow(info) }.ok_or(errno::INVAL)?;
        // SAFETY: as above.
        let attr = unsafe { borrow(info.domain_attr) };
        // SAFETY: a name is a string, or null.
        let name = attr.and_then(|attr| unsafe { string(attr.name) });
        let kind = name.map(|name| name.parse::<FabricKind>()).transpose();
        let config = kind.map_err(|e| e.to_string()).and_then(info::config);
        let config = config.map_err(|why| {
            tracing::warn!(why, "fi_domain");
            errno::INVAL
        })?;
        let shared = Arc::new(Shared {
            config,
            state: Mutex::default(),
        });
        let fid = Fid {
            class: class::DOMAIN,
            context,
            ops: DOMAIN_FID.as_ptr(),
        };
        let (ops, mr) = (DOMAIN.as_ptr(), MEMORY.as_ptr());
        let domain = Domain {
            fid,
            ops,
            mr,
            shared,
        };
        give(domain, &out);
        Ok(0)
    })
}

/// `fi_domain2`
pub(crate) unsafe extern "C" fn open_with_flags(
    fabric: *mut c_void,
    info: *mut Info,
    out: *mut *mut c_void,
    _flags: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the same arguments.
    unsafe { open(fabric, info, out, context) }
}

unsafe extern "C" fn close(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        let domain = unsafe { object::<Domain>(fid) }?;
        // Endpoints, queues and memory of it are still there.
        if Arc::strong_count(&domain.shared) > 1 {
            return Err(errno::BUSY);
        }
        // SAFETY: the caller closes what it was given, and uses it no more.
        unsafe { take::<Domain>(fid) }?;
        Ok(0)
    })
}

/// Event queues and counters of domains and of memory tell of nothing that happens here.
unsafe extern "C" fn bind(_fid: *mut c_void, _other: *mut c_void, _flags: u64) -> c_int {
    0
}

unsafe extern "C" fn control(_fid: *mut c_void, command: c_int, _arg: *mut c_void) -> c_int {
    entry_int(|| match command {
        crate::abi::control::ENABLE => Ok(0),
        _ => Err(errno::NOSYS),
    })
}

fn make(
    domain: &Domain,
    buffer: Buffer,
    access: u64,
    key: u64,
    context: *mut c_void,
    out: &Out<*mut c_void>,
) -> Outcome {
    // Memory that is only a source needs to be reached by nobody.
    let access = Access {
        read: access & cap::REMOTE_READ != 0,
        write: access & cap::REMOTE_WRITE != 0,
    };
    domain.shared.register(key, buffer, access).map_err(|why| {
        tracing::debug!(%why, key, "memory is not registered");
        match why {
            Refused::Invalid => errno::NOKEY,
            Refused::Again => errno::NOMEM,
            _ => errno::INVAL,
        }
    })?;
    let fid = Fid {
        class: class::MR,
        context,
        ops: REGION_FID.as_ptr(),
    };
    let region = MemoryRegion {
        fid,
        desc: std::ptr::null_mut(),
        key,
        shared: Arc::clone(&domain.shared),
    };
    give(region, out);
    Ok(0)
}

unsafe extern "C" fn register(
    domain: *mut c_void,
    buf: *const c_void,
    len: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        let domain = unsafe { object::<Domain>(domain) }?;
        // SAFETY: the caller wants the region there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: the caller lends the memory until it closes the region.
        let buffer = unsafe { buffer(buf, len) }?;
        make(domain, buffer, access, key, context, &out)
    })
}

unsafe extern "C" fn register_pieces(
    domain: *mut c_void,
    iov: *const Iovec,
    count: usize,
    access: u64,
    _offset: u64,
    key: u64,
    _flags: u64,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        let domain = unsafe { object::<Domain>(domain) }?;
        // SAFETY: the caller wants the region there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: the caller lends the memory until it closes the region.
        let buffer = unsafe { buffers(iov, count) }?;
        make(domain, buffer, access, key, context, &out)
    })
}

unsafe extern "C" fn register_by(
    domain: *mut c_void,
    attr: *const MrAttr,
    _flags: u64,
    out: *mut *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        let domain = unsafe { object::<Domain>(domain) }?;
        // SAFETY: the caller wants the region there.
        let out = unsafe { Out::new(out) }?;
        // SAFETY: the caller says there what it wants.
        let attr = unsafe { read(attr) }.ok_or(errno::INVAL)?;
        // SAFETY: the caller lends the memory until it closes the region.
        let buffer = unsafe { buffers(attr.iov, attr.iov_count) }?;
        make(
            domain,
            buffer,
            attr.access,
            attr.requested_key,
            attr.context,
            &out,
        )
    })
}

unsafe extern "C" fn close_region(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller closes what it was given, and uses it no more.
        let region = unsafe { take::<MemoryRegion>(fid) }?;
        region.shared.deregister(region.key);
        Ok(0)
    })
}
