// UNSAFETY: entries that C calls: exported symbols, pointers of the caller, and the promise that
// a descriptor's memory stays mapped, which only the caller can give.
#![expect(
    unsafe_code,
    reason = "exports symbols for C, takes the caller's word that memory stays mapped"
)]
//! An entry and its descriptor in one call: Cray's `PtlMEMDAttach`, `PtlMEMDInsert`, `PtlMEMDPost`.
//!
//! Each makes both or neither. An entry without a descriptor matches nothing, so no message sees
//! the moment between the two.

use portals_shim::{Error, MdSpec, MeHandle, MeSpec, Segment};
use std::ffi::{c_int, c_uint};
use std::sync::Arc;

use crate::me_md::{
    eq_of, keep_if_iovec, md_spec, me_exists, me_open, me_spec, position_of, unlink_of,
};
use crate::ptr::Out;
use crate::state::{self, Open};
use crate::types::{OK, PtlMd, PtlProcessId};

/// Where the two handles go.
struct Pair {
    me: Out<u32>,
    md: Out<u32>,
}

/// What is wrong with a descriptor, unless the entry that it is to stand beside is none: handles are looked at before
/// values.
fn unless_gone(open: &Open, base: u32, error: Error) -> Error {
    if me_exists(open, base) {
        error
    } else {
        Error::MeInvalid
    }
}

/// Attaches a descriptor to the entry that `make` makes; without the descriptor the entry is unlinked.
fn both(
    open: &Open,
    out: Pair,
    (spec, pieces): (MdSpec, Option<Vec<Segment>>),
    unlink_op: c_uint,
    make: impl FnOnce() -> Result<MeHandle, Error>,
) -> Result<c_int, Error> {
    let me = make()?;
    match open.interface.md_attach(me, spec, unlink_of(unlink_op)) {
        Ok(md) => {
            keep_if_iovec(open, md, pieces);
            out.me.set(me.raw());
            out.md.set(md.raw());
            Ok(OK)
        }
        Err(error) => {
            // Only another thread that guessed the handle can have unlinked it before.
            let _ = open.interface.me_unlink(me);
            // An entry that is gone although it was made just now went with its interface.
            state::ni(open.handle)?;
            Err(error)
        }
    }
}

/// `PtlMEMDAttach`: `PtlMEAttach` and `PtlMDAttach`.
///
/// # Safety
/// `me_handle` and `md_handle` are null or may be written; `md` is as for `PtlMDBind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMEMDAttach(
    ni_handle: u32,
    pt_index: u32,
    match_id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
    position: c_uint,
    md: PtlMd,
    unlink_op: c_uint,
    me_handle: *mut u32,
    md_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let me = unsafe { Out::new(me_handle) }?;
        let out = Pair {
            me,
            // SAFETY: the same.
            md: unsafe { Out::new(md_handle) }?,
        };
        let open = state::ni(ni_handle)?;
        let spec: MeSpec = me_spec(match_id, match_bits, ignore_bits, unlink);
        let make = || {
            open.interface
                .me_attach(pt_index, spec, position_of(position))
        };
        // SAFETY: the same.
        let described = unsafe { md_spec(&open, &md) }?;
        both(&open, out, described, unlink_op, make)
    })
}

/// `PtlMEMDInsert`: `PtlMEInsert` and `PtlMDAttach`.
///
/// # Safety
/// `me_handle` and `md_handle` are null or may be written; `md` is as for `PtlMDBind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMEMDInsert(
    ni_handle: u32,
    base: u32,
    match_id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
    position: c_uint,
    md: PtlMd,
    unlink_op: c_uint,
    me_handle: *mut u32,
    md_handle: *mut u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let me = unsafe { Out::new(me_handle) }?;
        let out = Pair {
            me,
            // SAFETY: the same.
            md: unsafe { Out::new(md_handle) }?,
        };
        let open = state::ni(ni_handle)?;
        if !Arc::ptr_eq(&open, &me_open(base)?) {
            return Err(Error::MeInvalid);
        }
        let spec = me_spec(match_id, match_bits, ignore_bits, unlink);
        let base = MeHandle::from_raw(base);
        let make = || open.interface.me_insert(base, spec, position_of(position));
        // SAFETY: the same.
        let described = unsafe { md_spec(&open, &md) };
        let described = described.map_err(|e| unless_gone(&open, base.raw(), e))?;
        both(&open, out, described, unlink_op, make)
    })
}

/// `PtlMEMDPost`
///
/// # Safety
/// `me_handle` and `md_handle` are null or may be written; `md` is as for `PtlMDBind`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn PtlMEMDPost(
    ni_handle: u32,
    base: u32,
    match_id: PtlProcessId,
    match_bits: u64,
    ignore_bits: u64,
    unlink: c_uint,
    position: c_uint,
    md: PtlMd,
    unlink_op: c_uint,
    me_handle: *mut u32,
    md_handle: *mut u32,
    eq_handle: u32,
) -> c_int {
    state::entry(|| {
        state::initialised()?;
        // SAFETY: the condition of this function.
        let out_me = unsafe { Out::new(me_handle) }?;
        // SAFETY: the same.
        let out_md = unsafe { Out::new(md_handle) }?;
        let open = state::ni(ni_handle)?;
        if !Arc::ptr_eq(&open, &me_open(base)?) {
            return Err(Error::MeInvalid);
        }
        // SAFETY: the same.
        let described = unsafe { md_spec(&open, &md) };
        let (desc, pieces) = described.map_err(|e| unless_gone(&open, base, e))?;
        let (me, md) = open.interface.me_md_post(
            MeHandle::from_raw(base),
            me_spec(match_id, match_bits, ignore_bits, unlink),
            position_of(position),
            desc,
            unlink_of(unlink_op),
            eq_of(&open, eq_handle)?,
        )?;
        keep_if_iovec(&open, md, pieces);
        out_me.set(me.raw());
        out_md.set(md.raw());
        Ok(OK)
    })
}
