// UNSAFETY: exported symbols.
#![expect(unsafe_code, reason = "exports symbols for C")]
//! Names, progress, debug masks and dumps.

use portals_shim::core::HandleKind;
use portals_shim::{Error, Wait};
use std::ffi::{c_char, c_int, c_uint};
use std::io::Write as _;
use std::sync::atomic::Ordering;

use crate::eq::wait_of;
use crate::names::{
    NI_FAIL, NI_OK, NI_SEGV, Text, UNKNOWN_ERROR, UNKNOWN_EVENT, UNKNOWN_NI, ptl_err_str,
    ptl_event_str,
};
use crate::state;
use crate::types::{INVALID_HANDLE, OK};
use crate::{me_md, ni};

fn name(table: &[Text], index: c_uint, unknown: Text) -> *const c_char {
    table
        .get(index as usize)
        .copied()
        .unwrap_or(unknown)
        .as_ptr()
}

/// `PtlErrorStr`
#[unsafe(no_mangle)]
pub extern "C" fn PtlErrorStr(ptl_errno: c_uint) -> *const c_char {
    name(&ptl_err_str, ptl_errno, UNKNOWN_ERROR)
}

/// `PtlEventKindStr`
#[unsafe(no_mangle)]
pub extern "C" fn PtlEventKindStr(ev_kind: c_uint) -> *const c_char {
    name(&ptl_event_str, ev_kind, UNKNOWN_EVENT)
}

/// `PtlNIFailStr`; every fabric has the same codes, so the interface does not matter.
#[unsafe(no_mangle)]
pub extern "C" fn PtlNIFailStr(_ni: u32, nal_errno: u32) -> *const c_char {
    name(&[NI_OK, NI_FAIL, NI_SEGV], nal_errno, UNKNOWN_NI)
}

/// `PtlProgress`. Waiting for ever would be for an event that nobody can name; it is one round.
#[unsafe(no_mangle)]
pub extern "C" fn PtlProgress(handle: u32, timeout: c_uint) -> c_int {
    state::entry(|| {
        state::initialised()?;
        let open = ni::of_any(handle).map_err(|e| match e {
            Error::HandleInvalid => Error::NiInvalid,
            other => other,
        })?;
        let wait = match wait_of(timeout) {
            Wait::Forever => Wait::No,
            other => other,
        };
        open.interface.progress(wait)?;
        Ok(OK)
    })
}

/// `PtlNIDebug`: a mask that is kept for programs that ask for it again. A forked child has none.
#[unsafe(no_mangle)]
pub extern "C" fn PtlNIDebug(ni: u32, mask: c_uint) -> c_uint {
    state::guarded(0, || {
        // Without a lock, which another thread may have held at the fork.
        if state::is_forked() {
            return 0;
        }
        if ni == INVALID_HANDLE {
            return std::mem::replace(&mut state::shared().debug_mask, mask);
        }
        state::ni(ni).map_or(0, |open| open.debug_mask.swap(mask, Ordering::Relaxed))
    })
}

/// Prints a line, where that can be done.
fn print(line: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// `PtlNIEqDump`: what the interface is and has counted.
#[unsafe(no_mangle)]
pub extern "C" fn PtlNIEqDump(ni_handle: u32) -> c_int {
    state::entry(|| {
        let open = state::ni(ni_handle)?;
        let (id, status) = (open.interface.id(), open.interface.status()?);
        print(format_args!(
            "interface {ni_handle:#010x}: nid {} pid {}; received {} ({} bytes), sent {} ({} bytes), dropped {} ({} bytes)",
            id.nid,
            id.pid,
            status.recv_count,
            status.recv_length,
            status.send_count,
            status.send_length,
            status.drop_count,
            status.drop_length,
        ));
        Ok(OK)
    })
}

/// `PtlTblDump`: whether the portal exists.
#[unsafe(no_mangle)]
pub extern "C" fn PtlTblDump(ni: u32, pt_index: c_int) -> c_int {
    state::entry(|| {
        let open = state::ni(ni)?;
        let last = open.interface.limits().max_pt_index;
        if !(0..=last).contains(&pt_index) {
            return Err(Error::PtIndexInvalid);
        }
        print(format_args!(
            "interface {ni:#010x}: portal {pt_index} of 0 to {last}"
        ));
        Ok(OK)
    })
}

/// `PtlMEDump`: whether the entry has a descriptor.
#[unsafe(no_mangle)]
pub extern "C" fn PtlMEDump(me_handle: u32) -> c_int {
    state::entry_on(Error::MeInvalid, || {
        let open = state::object(me_handle, HandleKind::Me, Error::MeInvalid)?;
        let words = match me_md::me_state(&open, me_handle) {
            Error::MdIllegal => "no descriptor",
            Error::MeInUse => "a descriptor",
            other => return Err(other),
        };
        print(format_args!("match entry {me_handle:#010x}: has {words}"));
        Ok(OK)
    })
}
