// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Memory regions, which peers reach by their keys.

use crate::abi::{Fid, Iovec, MrAttr, cap, class, control, errno};
use crate::call::Lent;
use crate::cntr::CompletionCounter;
use crate::domain::{Domain, Shared};
use crate::ep::{EndpointFid, refused};
use crate::object::{self, Object, object, object_if};
use crate::ptr::{Outcome, entry_int, read};
use crate::table::Table;
use ofi_engine::{Access, Refused};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

#[derive(Debug)]
#[repr(C)]
struct MemoryRegion {
    fid: Fid,
    desc: *mut c_void,
    key: u64,
    domain: Arc<Shared>,
}

// SAFETY: it is `repr(C)`, begins with a `Fid`, and is the only one of its class.
unsafe impl Object for MemoryRegion {
    const CLASS: usize = class::MR;
    const OPS: &'static Table<6> = &Table::new(&[
        (0, object::close::<Self> as *const c_void),
        (1, bind as *const c_void),
        (2, do_control as *const c_void),
    ]);

    fn end(&self) -> Outcome<()> {
        let done = self.domain.deregister(self.key);
        done.map_err(|why| refused(&why))
    }
}

/// What may be done with registered memory, here and by peers. Some programs, such as LCI, name the kinds of operations too.
const ACCESSES: u64 = cap::MSG
    | cap::TAGGED
    | cap::RMA
    | cap::ATOMIC
    | cap::SEND
    | cap::RECV
    | cap::READ
    | cap::WRITE
    | cap::REMOTE_READ
    | cap::REMOTE_WRITE
    | cap::COLLECTIVE;

/// What a domain can do with memory.
pub(crate) static MR: Table<3> = Table::new(&[
    (0, register as *const c_void),
    (1, register_pieces as *const c_void),
    (2, register_by as *const c_void),
]);

/// `fi_mr_bind`: counters of what peers do; an endpoint needs not be named, as all of the domain reach the memory.
unsafe extern "C" fn bind(fid: *mut c_void, other: *mut c_void, flags: u64) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the region.
        let mr = unsafe { object::<MemoryRegion>(fid) }?;
        // SAFETY: the caller was given the object.
        let Some(cntr) = unsafe { object_if::<CompletionCounter>(other) }? else {
            // SAFETY: the caller was given the object, to which nothing is said.
            unsafe { object::<EndpointFid>(other) }?;
            return Ok(0);
        };
        if flags & (cap::REMOTE_READ | cap::REMOTE_WRITE) == 0 {
            return Err(errno::BADFLAGS);
        }
        let counted = mr.domain.count(mr.key, flags, &cntr.counting);
        counted.map(|()| 0).map_err(|why| refused(&why))
    })
}

unsafe extern "C" fn do_control(fid: *mut c_void, command: c_int, _arg: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the region.
        unsafe { object::<MemoryRegion>(fid) }?;
        match command {
            control::ENABLE => Ok(0),
            _ => Err(errno::NOSYS),
        }
    })
}

/// The body of the entries that register memory.
///
/// # Safety
/// `domain` and `out` are as for [`object::open`]; until the region is closed the memory may be read and written as `access`
/// says.
unsafe fn open(
    domain: *mut c_void,
    memory: Lent,
    (access, offset, flags): (u64, u64, u64),
    key: u64,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |domain: &Domain, fid| {
        // Others say that the memory is described in another way, or is of another kind.
        if flags & !cap::RMA_EVENT != 0 {
            return Err(errno::BADFLAGS);
        }
        if access & !ACCESSES != 0 || offset != 0 {
            return Err(errno::INVAL);
        }
        // SAFETY: the condition above.
        let buffer = unsafe { memory.buffer() }?;
        // Memory that is only a source needs to be reached by nobody.
        let access = Access {
            read: access & cap::REMOTE_READ != 0,
            write: access & cap::REMOTE_WRITE != 0,
        };
        let registered = domain.shared.register(key, buffer, access);
        registered.map_err(|why| {
            tracing::debug!(%why, key, "memory is not registered");
            match why {
                Refused::Invalid => errno::NOKEY,
                Refused::Again => errno::NOMEM,
                _ => errno::INVAL,
            }
        })?;
        Ok(MemoryRegion {
            fid,
            desc: std::ptr::null_mut(),
            key,
            domain: Arc::clone(&domain.shared),
        })
    };
    // SAFETY: the condition above.
    unsafe { object::open(domain, out, context, make) }
}

/// `fi_mr_reg`
unsafe extern "C" fn register(
    domain: *mut c_void,
    buf: *const c_void,
    len: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let memory = Lent::Piece(buf, len);
    // SAFETY: the caller was given the domain, wants the region there, and lends the memory until it closes the region.
    unsafe { open(domain, memory, (access, offset, flags), key, out, context) }
}

/// `fi_mr_regv`
unsafe extern "C" fn register_pieces(
    domain: *mut c_void,
    iov: *const Iovec,
    count: usize,
    access: u64,
    offset: u64,
    key: u64,
    flags: u64,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let memory = Lent::Pieces(iov, count);
    // SAFETY: the caller was given the domain, wants the region there, and lends the memory until it closes the region.
    unsafe { open(domain, memory, (access, offset, flags), key, out, context) }
}

/// `fi_mr_regattr`
unsafe extern "C" fn register_by(
    domain: *mut c_void,
    attr: *const MrAttr,
    flags: u64,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: the caller says there what it wants.
    let Some(attr) = (unsafe { read(attr) }) else {
        return -errno::INVAL;
    };
    let memory = Lent::Pieces(attr.iov, attr.iov_count);
    let how = (attr.access, attr.offset, flags);
    let (key, context) = (attr.requested_key, attr.context);
    // SAFETY: the caller was given the domain, wants the region there, and lends the memory until it closes the region.
    unsafe { open(domain, memory, how, key, out, context) }
}
