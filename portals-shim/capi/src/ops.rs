// UNSAFETY: exported symbols.
#![expect(unsafe_code, reason = "exports symbols for C")]
//! Data movement: `PtlPut`, `PtlGet`, `PtlGetPut` and their regions.

use portals_shim::core::HandleKind;
use portals_shim::{AckRequest, Error, MdHandle, Target};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::state::{self, Open};
use crate::types::{OK, PtlProcessId};

/// Starts an operation on the descriptor `raw`.
fn start(raw: u32, operation: impl FnOnce(&Open, MdHandle) -> Result<(), Error>) -> c_int {
    state::quick_on(Error::MdInvalid, || {
        state::with_object(raw, HandleKind::Md, Error::MdInvalid, |open| {
            operation(open, MdHandle::from_raw(raw)).map(|()| OK)
        })
    })
}

fn md_open(raw: u32) -> Result<(Arc<Open>, MdHandle), Error> {
    let open = state::object(raw, HandleKind::Md, Error::MdInvalid)?;
    Ok((open, MdHandle::from_raw(raw)))
}

/// `ptl_ack_req_t`: `PTL_ACK_REQ` is 0.
fn ack_of(value: c_uint) -> AckRequest {
    if value == 0 {
        AckRequest::Ack
    } else {
        AckRequest::NoAck
    }
}

fn target(
    process: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
) -> Target {
    Target {
        process: process.into(),
        pt_index,
        ac_index,
        match_bits,
        remote_offset,
    }
}

/// `PtlPut`
#[unsafe(no_mangle)]
pub extern "C" fn PtlPut(
    md_handle: u32,
    ack_req: c_uint,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
    hdr_data: u64,
) -> c_int {
    start(md_handle, |open, md| {
        let to = target(target_id, pt_index, ac_index, match_bits, remote_offset);
        open.interface.put(md, ack_of(ack_req), to, hdr_data)
    })
}

/// `PtlPutRegion`
#[unsafe(no_mangle)]
pub extern "C" fn PtlPutRegion(
    md_handle: u32,
    local_offset: u64,
    length: u64,
    ack_req: c_uint,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
    hdr_data: u64,
) -> c_int {
    start(md_handle, |open, md| {
        let to = target(target_id, pt_index, ac_index, match_bits, remote_offset);
        let region = (local_offset, length);
        open.interface
            .put_region(md, region, ack_of(ack_req), to, hdr_data)
    })
}

/// `PtlGet`
#[unsafe(no_mangle)]
pub extern "C" fn PtlGet(
    md_handle: u32,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
) -> c_int {
    start(md_handle, |open, md| {
        let from = target(target_id, pt_index, ac_index, match_bits, remote_offset);
        open.interface.get(md, from)
    })
}

/// `PtlMDMDCopy`: [`PtlGet`] by another name. On Cray's systems the process had to be one of the own node.
#[unsafe(no_mangle)]
pub extern "C" fn PtlMDMDCopy(
    md_handle: u32,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
) -> c_int {
    PtlGet(
        md_handle,
        target_id,
        pt_index,
        ac_index,
        match_bits,
        remote_offset,
    )
}

/// `PtlGetRegion`
#[unsafe(no_mangle)]
pub extern "C" fn PtlGetRegion(
    md_handle: u32,
    local_offset: u64,
    length: u64,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
) -> c_int {
    start(md_handle, |open, md| {
        let from = target(target_id, pt_index, ac_index, match_bits, remote_offset);
        open.interface.get_region(md, (local_offset, length), from)
    })
}

/// Both descriptors of a getput, which must be of one interface.
fn two_mds(get: u32, put: u32) -> Result<(Arc<Open>, MdHandle, MdHandle), Error> {
    let (open, get) = md_open(get)?;
    let (other, put) = md_open(put)?;
    if Arc::ptr_eq(&open, &other) {
        Ok((open, get, put))
    } else {
        Err(Error::MdIllegal)
    }
}

/// `PtlGetPut`
#[unsafe(no_mangle)]
pub extern "C" fn PtlGetPut(
    get_md_handle: u32,
    put_md_handle: u32,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
    hdr_data: u64,
) -> c_int {
    state::entry_on(Error::MdInvalid, || {
        let (open, get, put) = two_mds(get_md_handle, put_md_handle)?;
        let to = target(target_id, pt_index, ac_index, match_bits, remote_offset);
        open.interface.get_put(get, put, to, hdr_data)?;
        Ok(OK)
    })
}

/// `PtlGetPutRegion`
#[unsafe(no_mangle)]
pub extern "C" fn PtlGetPutRegion(
    get_md_handle: u32,
    get_local_offset: u64,
    put_md_handle: u32,
    put_local_offset: u64,
    length: u64,
    target_id: PtlProcessId,
    pt_index: u32,
    ac_index: u32,
    match_bits: u64,
    remote_offset: u64,
    hdr_data: u64,
) -> c_int {
    state::entry_on(Error::MdInvalid, || {
        let (open, get, put) = two_mds(get_md_handle, put_md_handle)?;
        let to = target(target_id, pt_index, ac_index, match_bits, remote_offset);
        let regions = (get_local_offset, put_local_offset, length);
        open.interface
            .get_put_region(get, put, regions, to, hdr_data)?;
        Ok(OK)
    })
}
