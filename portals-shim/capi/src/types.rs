//! The structures of `p3api/types.h`; layouts are those of that header.

use portals_shim::{EqHandle, Event, Limits, MdSnapshot, ProcessId};
use std::ffi::{c_int, c_uint, c_void};
use std::mem::{offset_of, size_of};

/// `PTL_INVALID_HANDLE`
pub const INVALID_HANDLE: u32 = 0xffff_ffff;
/// `PTL_EQ_NONE`
pub const EQ_NONE: u32 = 0xbfff_ffff;
/// `PTL_PID_ANY`
pub const PID_ANY: u32 = 0xffff_ffff;
/// `PTL_PID_ANY` of programs that define it themselves, as DART does for Cray's machines, where a process id has 16 bits. No process
/// has this id.
const PID_ANY_OF_16_BITS: u32 = 0xffff;
/// `PTL_TIME_FOREVER`
pub const TIME_FOREVER: u32 = 0xffff_ffff;
/// `PTL_OK`
pub const OK: c_int = 0;
/// `PTL_EQ_DROPPED`
pub const EQ_DROPPED: c_int = 2;
/// `PTL_EQ_EMPTY`
pub const EQ_EMPTY: c_int = 3;

/// `ptl_process_id_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PtlProcessId {
    /// Node id.
    pub nid: u32,
    /// Process id.
    pub pid: u32,
}

/// The process id that a wish or a criterion means, with one name for any.
pub fn wished_or_any(pid: u32) -> u32 {
    match pid {
        PID_ANY_OF_16_BITS => PID_ANY,
        pid => pid,
    }
}

impl PtlProcessId {
    /// What initiators an entry takes.
    pub fn criterion(self) -> ProcessId {
        ProcessId::new(self.nid, wished_or_any(self.pid))
    }
}

impl From<PtlProcessId> for ProcessId {
    fn from(id: PtlProcessId) -> Self {
        Self::new(id.nid, id.pid)
    }
}

impl From<ProcessId> for PtlProcessId {
    fn from(id: ProcessId) -> Self {
        Self {
            nid: id.nid,
            pid: id.pid,
        }
    }
}

/// `ptl_ni_limits_t`
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are those of `Limits`")]
pub struct PtlNiLimits {
    pub max_mes: c_int,
    pub max_mds: c_int,
    pub max_eqs: c_int,
    pub max_ac_index: c_int,
    pub max_pt_index: c_int,
    pub max_md_iovecs: c_int,
    pub max_me_list: c_int,
    pub max_getput_md: c_int,
}

impl From<PtlNiLimits> for Limits {
    fn from(l: PtlNiLimits) -> Self {
        Self {
            max_mes: l.max_mes,
            max_mds: l.max_mds,
            max_eqs: l.max_eqs,
            max_ac_index: l.max_ac_index,
            max_pt_index: l.max_pt_index,
            max_md_iovecs: l.max_md_iovecs,
            max_me_list: l.max_me_list,
            max_getput_md: l.max_getput_md,
        }
    }
}

impl From<Limits> for PtlNiLimits {
    fn from(l: Limits) -> Self {
        Self {
            max_mes: l.max_mes,
            max_mds: l.max_mds,
            max_eqs: l.max_eqs,
            max_ac_index: l.max_ac_index,
            max_pt_index: l.max_pt_index,
            max_md_iovecs: l.max_md_iovecs,
            max_me_list: l.max_me_list,
            max_getput_md: l.max_getput_md,
        }
    }
}

/// `ptl_md_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtlMd {
    /// First byte, or the iovec array.
    pub start: *mut c_void,
    /// Bytes, or entries of that array.
    pub length: u64,
    /// Operations left, -1 without limit.
    pub threshold: c_int,
    /// Room below which the descriptor retires.
    pub max_size: u64,
    /// `PTL_MD_*`.
    pub options: c_uint,
    /// The user's.
    pub user_ptr: *mut c_void,
    /// Event queue or `PTL_EQ_NONE`.
    pub eq_handle: u32,
}

/// A user's pointer that travelled as a number.
fn pointer(address: u64) -> *mut c_void {
    usize::try_from(address).map_or(std::ptr::null_mut(), std::ptr::with_exposed_provenance_mut)
}

impl From<MdSnapshot> for PtlMd {
    fn from(md: MdSnapshot) -> Self {
        Self {
            start: pointer(md.start),
            length: md.length,
            threshold: md.threshold,
            max_size: md.max_size,
            options: md.options.bits(),
            user_ptr: pointer(md.user_ptr),
            eq_handle: md.eq.map_or(EQ_NONE, EqHandle::raw),
        }
    }
}

/// `ptl_md_iovec_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PtlMdIovec {
    /// First byte.
    pub iov_base: *mut c_void,
    /// Bytes.
    pub iov_len: u64,
}

impl PtlMdIovec {
    pub(crate) fn new(address: u64, len: u64) -> Self {
        Self {
            iov_base: pointer(address),
            iov_len: len,
        }
    }
}

/// `ptl_event_t`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the fields are those of `Event`")]
pub struct PtlEvent {
    pub kind: c_uint,
    pub initiator: PtlProcessId,
    pub uid: u32,
    pub jid: u32,
    pub pt_index: u32,
    pub match_bits: u64,
    pub rlength: u64,
    pub mlength: u64,
    pub offset: u64,
    pub md_handle: u32,
    pub md: PtlMd,
    pub hdr_data: u64,
    pub link: u32,
    pub ni_fail_type: u32,
    pub sequence: u32,
}

impl From<Event> for PtlEvent {
    fn from(e: Event) -> Self {
        Self {
            kind: e.kind as c_uint,
            initiator: e.initiator.into(),
            uid: e.uid,
            jid: e.jid,
            pt_index: e.pt_index,
            match_bits: e.match_bits,
            rlength: e.rlength,
            mlength: e.mlength,
            offset: e.offset,
            md_handle: e.md_handle.raw(),
            md: e.md.into(),
            hdr_data: e.hdr_data,
            link: e.link,
            ni_fail_type: e.ni_fail.0,
            sequence: e.sequence,
        }
    }
}

/// `ptl_eq_handler_t`, where it is not null. It must return; C++ exceptions end the process.
pub type Handler = extern "C-unwind" fn(event: *mut PtlEvent);

const _: () = {
    assert!(size_of::<PtlProcessId>() == 8);
    assert!(size_of::<PtlNiLimits>() == 32);
    assert!(offset_of!(PtlNiLimits, max_ac_index) == 12);
    assert!(offset_of!(PtlNiLimits, max_pt_index) == 16);
    assert!(offset_of!(PtlNiLimits, max_getput_md) == 28);
    assert!(size_of::<PtlMdIovec>() == 16);
    assert!(offset_of!(PtlMdIovec, iov_len) == 8);
};

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<PtlMd>() == 56);
    assert!(offset_of!(PtlMd, length) == 8);
    assert!(offset_of!(PtlMd, threshold) == 16);
    assert!(offset_of!(PtlMd, max_size) == 24);
    assert!(offset_of!(PtlMd, options) == 32);
    assert!(offset_of!(PtlMd, user_ptr) == 40);
    assert!(offset_of!(PtlMd, eq_handle) == 48);
    assert!(size_of::<PtlEvent>() == 144);
    assert!(offset_of!(PtlEvent, kind) == 0);
    assert!(offset_of!(PtlEvent, initiator) == 4);
    assert!(offset_of!(PtlEvent, uid) == 12);
    assert!(offset_of!(PtlEvent, jid) == 16);
    assert!(offset_of!(PtlEvent, pt_index) == 20);
    assert!(offset_of!(PtlEvent, match_bits) == 24);
    assert!(offset_of!(PtlEvent, rlength) == 32);
    assert!(offset_of!(PtlEvent, mlength) == 40);
    assert!(offset_of!(PtlEvent, offset) == 48);
    assert!(offset_of!(PtlEvent, md_handle) == 56);
    assert!(offset_of!(PtlEvent, md) == 64);
    assert!(offset_of!(PtlEvent, hdr_data) == 120);
    assert!(offset_of!(PtlEvent, link) == 128);
    assert!(offset_of!(PtlEvent, ni_fail_type) == 132);
    assert!(offset_of!(PtlEvent, sequence) == 136);
};
