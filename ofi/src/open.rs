// UNSAFETY: entries get objects by pointers.
#![expect(unsafe_code, reason = "entries get objects of a C caller by pointers")]
//! How a program comes from one object to the next: what a fabric opens, what a domain opens, and the operations of an endpoint.

use crate::abi::{self, Fid, Info, errno};
use crate::domain::Domain;
use crate::ep::{EndpointFid, Operations};
use crate::fabric::Fabric;
use crate::names::of_unopened;
use crate::object::{self, give};
use crate::ptr::{Out, borrow, bytes, entry_int, string};
use crate::table::Table;
use crate::{atomic, av, cntr, cq, eq, info, messages, mr, poll, rma, wait};
use portals_shim::fabric::FabricKind;
use std::ffi::{c_int, c_void};

static FABRIC: Table<6> = Table::new(&[
    (0, open_domain as *const c_void),
    (2, eq::open as *const c_void),
    (4, wait::trywait as *const c_void),
    (5, open_domain2 as *const c_void),
]);
static DOMAIN: Table<12> = Table::new(&[
    (0, av::open as *const c_void),
    (1, cq::open as *const c_void),
    (2, open_endpoint as *const c_void),
    (4, cntr::open as *const c_void),
    (5, poll::open as *const c_void),
    (8, atomic::query as *const c_void),
    (10, open_endpoint2 as *const c_void),
]);

/// `fi_fabric`
pub(crate) unsafe extern "C" fn open_fabric(
    _attr: *mut c_void,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller wants the fabric there.
        let out = unsafe { Out::new(out) }?;
        let fid = Fid::of::<Fabric>(context);
        give(Fabric::new(fid, FABRIC.as_ptr()), &out);
        Ok(0)
    })
}

/// `fi_domain`
unsafe extern "C" fn open_domain(
    fabric: *mut c_void,
    info: *mut Info,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |fabric: &Fabric, fid| {
        // SAFETY: the caller has it of `fi_getinfo`, and it is only read.
        let info = unsafe { borrow(info) }.ok_or(errno::INVAL)?;
        // SAFETY: as above.
        let attr = unsafe { borrow(info.domain_attr) };
        // SAFETY: a name is a string, or null.
        let name = attr.as_ref().and_then(|attr| unsafe { string(attr.name) });
        let kind = name.map(|name| name.parse::<FabricKind>()).transpose();
        let config = kind.map_err(|e| e.to_string()).and_then(info::config);
        let config = config.map_err(|why| {
            tracing::warn!(why, "fi_domain");
            errno::INVAL
        })?;
        let automatic = attr.is_some_and(|attr| {
            let all = [attr.control_progress, attr.data_progress];
            all.contains(&abi::PROGRESS_AUTO) && config.kind() != FabricKind::Seastar
        });
        let tables = (DOMAIN.as_ptr(), mr::MR.as_ptr());
        Ok(Domain::new(
            fid,
            (config, automatic),
            tables,
            fabric.in_use(),
        ))
    };
    // SAFETY: the caller was given the fabric, and wants the domain there.
    unsafe { object::open(fabric, out, context, make) }
}

/// `fi_domain2`
unsafe extern "C" fn open_domain2(
    fabric: *mut c_void,
    info: *mut Info,
    out: *mut *mut c_void,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -errno::BADFLAGS;
    }
    // SAFETY: the same arguments.
    unsafe { open_domain(fabric, info, out, context) }
}

/// `fi_endpoint`
unsafe extern "C" fn open_endpoint(
    domain: *mut c_void,
    info: *mut Info,
    out: *mut *mut c_void,
    context: *mut c_void,
) -> c_int {
    let make = |domain: &Domain, fid| {
        // SAFETY: the caller has it of `fi_getinfo`, and it is only read.
        let info = unsafe { borrow(info) }.ok_or(errno::INVAL)?;
        // SAFETY: as above.
        let kind = unsafe { borrow(info.ep_attr) }.map_or(abi::EP_UNSPEC, |ep| ep.kind);
        let is_offered = [abi::EP_UNSPEC, abi::EP_RDM].contains(&kind) && info::can(info.caps);
        if !is_offered {
            return Err(errno::INVAL);
        }
        // SAFETY: as above.
        let tx = unsafe { borrow(info.tx_attr) }.map_or(0, |tx| tx.op_flags);
        // SAFETY: as above.
        let rx = unsafe { borrow(info.rx_attr) }.map_or(0, |rx| rx.op_flags);
        let operations = Operations {
            msg: messages::MSG.as_ptr(),
            rma: rma::RMA.as_ptr(),
            tagged: messages::TAGGED.as_ptr(),
            atomic: atomic::ATOMIC.as_ptr(),
        };
        let named = match info.src_addr.is_null() {
            true => None,
            // SAFETY: an address has as many bytes as are named.
            false => of_unopened(&unsafe { bytes(info.src_addr, info.src_addrlen) }?),
        };
        let name = named.and_then(|(_, name)| name);
        EndpointFid::new(fid, domain, &operations, info.caps, (tx, rx), name)
    };
    // SAFETY: the caller was given the domain, and wants the endpoint there.
    unsafe { object::open(domain, out, context, make) }
}

/// `fi_endpoint2`
unsafe extern "C" fn open_endpoint2(
    domain: *mut c_void,
    info: *mut Info,
    out: *mut *mut c_void,
    flags: u64,
    context: *mut c_void,
) -> c_int {
    if flags != 0 {
        return -errno::BADFLAGS;
    }
    // SAFETY: the same arguments.
    unsafe { open_endpoint(domain, info, out, context) }
}
