// UNSAFETY: two tables are exported as data, which needs symbols by their C names, and hold
// pointers, which needs a promise that threads may share them.
#![expect(unsafe_code, reason = "exports tables of pointers as data")]
//! Names of codes and event kinds.

use std::ffi::{CStr, c_char};

/// A constant text.
#[repr(transparent)]
#[derive(Clone, Copy, Debug)]
pub struct Text(*const c_char);

// SAFETY: the pointer is to a constant of the program's life, which nobody writes.
unsafe impl Sync for Text {}

impl Text {
    const fn of(text: &'static CStr) -> Self {
        Self(text.as_ptr())
    }

    pub(crate) const fn as_ptr(self) -> *const c_char {
        self.0
    }
}

pub(crate) const UNKNOWN_ERROR: Text = Text::of(c"PTL_UNKNOWN_ERROR");

/// Codes are indexes.
#[unsafe(no_mangle)]
pub static ptl_err_str: [Text; 36] = [
    Text::of(c"PTL_OK"),
    Text::of(c"PTL_AC_INDEX_INVALID"),
    Text::of(c"PTL_EQ_DROPPED"),
    Text::of(c"PTL_EQ_EMPTY"),
    Text::of(c"PTL_EQ_INVALID"),
    Text::of(c"PTL_FAIL"),
    Text::of(c"PTL_HANDLE_INVALID"),
    Text::of(c"PTL_IFACE_INVALID"),
    Text::of(c"PTL_MD_ILLEGAL"),
    Text::of(c"PTL_MD_INVALID"),
    Text::of(c"PTL_MD_IN_USE"),
    Text::of(c"PTL_MD_NO_UPDATE"),
    Text::of(c"PTL_ME_INVALID"),
    Text::of(c"PTL_ME_IN_USE"),
    Text::of(c"PTL_ME_LIST_TOO_LONG"),
    Text::of(c"PTL_NI_INVALID"),
    Text::of(c"PTL_NO_INIT"),
    Text::of(c"PTL_NO_SPACE"),
    Text::of(c"PTL_PID_INVALID"),
    Text::of(c"PTL_PROCESS_INVALID"),
    Text::of(c"PTL_PT_FULL"),
    Text::of(c"PTL_PT_INDEX_INVALID"),
    Text::of(c"PTL_SEGV"),
    Text::of(c"PTL_SR_INDEX_INVALID"),
    UNKNOWN_ERROR,
    UNKNOWN_ERROR,
    Text::of(c"PTL_IFACE_DUP"),
    Text::of(c"PTL_VAL_FAILED"),
    Text::of(c"PTL_NAL_FAILED"),
    Text::of(c"PTL_NOT_IMPLEMENTED"),
    Text::of(c"PTL_NO_ACK"),
    Text::of(c"PTL_PID_IN_USE"),
    Text::of(c"PTL_EQ_IN_USE"),
    Text::of(c"PTL_INV_EQ_SIZE"),
    Text::of(c"PTL_AGAIN"),
    Text::of(c"PTL_IOV_INVALID"),
];

/// Event kinds are indexes.
#[unsafe(no_mangle)]
pub static ptl_event_str: [Text; 12] = [
    Text::of(c"PTL_EVENT_GET_START"),
    Text::of(c"PTL_EVENT_GET_END"),
    Text::of(c"PTL_EVENT_PUT_START"),
    Text::of(c"PTL_EVENT_PUT_END"),
    Text::of(c"PTL_EVENT_GETPUT_START"),
    Text::of(c"PTL_EVENT_GETPUT_END"),
    Text::of(c"PTL_EVENT_REPLY_START"),
    Text::of(c"PTL_EVENT_REPLY_END"),
    Text::of(c"PTL_EVENT_SEND_START"),
    Text::of(c"PTL_EVENT_SEND_END"),
    Text::of(c"PTL_EVENT_ACK"),
    Text::of(c"PTL_EVENT_UNLINK"),
];

pub(crate) const UNKNOWN_EVENT: Text = Text::of(c"PTL_UNKNOWN_EVENT_KIND");
pub(crate) const NI_OK: Text = Text::of(c"PTL_NI_OK");
pub(crate) const NI_FAIL: Text = Text::of(c"PTL_NI_FAIL");
pub(crate) const NI_SEGV: Text = Text::of(c"PTL_NI_SEGV");
pub(crate) const UNKNOWN_NI: Text = Text::of(c"PTL_NI_UNKNOWN_ERROR");

#[cfg(test)]
mod tests {
    use super::*;
    use portals_shim::Error;

    /// The text at a code.
    fn at(code: i32) -> &'static str {
        let text = ptl_err_str[usize::try_from(code).unwrap()];
        // SAFETY: every element is a C string constant.
        unsafe { CStr::from_ptr(text.as_ptr()) }.to_str().unwrap()
    }

    #[test]
    fn names_stand_at_their_codes() {
        for (error, name) in [
            (Error::AcIndexInvalid, "PTL_AC_INDEX_INVALID"),
            (Error::MdInUse, "PTL_MD_IN_USE"),
            (Error::NoInit, "PTL_NO_INIT"),
            (Error::PtFull, "PTL_PT_FULL"),
            (Error::SrIndexInvalid, "PTL_SR_INDEX_INVALID"),
            (Error::EqInUse, "PTL_EQ_IN_USE"),
        ] {
            assert_eq!(at(error.code()), name);
        }
    }
}
