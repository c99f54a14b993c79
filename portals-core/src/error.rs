//! The API's error codes (`portals-shim/include/p3/errno.h`).

use serde::{Deserialize, Serialize};

/// Why a call was refused; each is one Portals return code, see [`Error::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Error {
    /// `PTL_AC_INDEX_INVALID`
    #[error("access control index out of range")]
    AcIndexInvalid,
    /// `PTL_EQ_INVALID`
    #[error("not an event queue of this interface")]
    EqInvalid,
    /// `PTL_EQ_IN_USE`
    #[error("event queue is in use by a memory descriptor")]
    EqInUse,
    /// `PTL_FAIL`
    #[error("the fabric failed")]
    Fail,
    /// `PTL_HANDLE_INVALID`
    #[error("not a handle")]
    HandleInvalid,
    /// `PTL_IFACE_INVALID`
    #[error("no such interface")]
    IfaceInvalid,
    /// `PTL_MD_ILLEGAL`
    #[error("memory descriptor or region not usable")]
    MdIllegal,
    /// `PTL_MD_INVALID`
    #[error("not an active memory descriptor of this interface")]
    MdInvalid,
    /// `PTL_MD_IN_USE`
    #[error("an operation on the memory descriptor is under way")]
    MdInUse,
    /// `PTL_MD_NO_UPDATE`
    #[error("the test queue is not empty")]
    MdNoUpdate,
    /// `PTL_ME_INVALID`
    #[error("not a match entry of this interface")]
    MeInvalid,
    /// `PTL_ME_IN_USE`
    #[error("the match entry is in use")]
    MeInUse,
    /// `PTL_ME_LIST_TOO_LONG`
    #[error("the match list is full")]
    MeListTooLong,
    /// `PTL_NI_INVALID`
    #[error("not an open interface")]
    NiInvalid,
    /// `PTL_NO_INIT`
    #[error("the library is not initialised")]
    NoInit,
    /// `PTL_NO_SPACE`
    #[error("out of objects or memory")]
    NoSpace,
    /// `PTL_PID_INVALID`
    #[error("process id not usable")]
    PidInvalid,
    /// `PTL_PROCESS_INVALID`
    #[error("no such process")]
    ProcessInvalid,
    /// `PTL_PT_FULL`
    #[error("no free portal index")]
    PtFull,
    /// `PTL_PT_INDEX_INVALID`
    #[error("portal index out of range")]
    PtIndexInvalid,
    /// `PTL_SEGV`
    #[error("bad pointer")]
    Segv,
    /// `PTL_SR_INDEX_INVALID`
    #[error("no such status register")]
    SrIndexInvalid,
}

impl Error {
    const ALL: [Self; 22] = [
        Self::AcIndexInvalid,
        Self::EqInvalid,
        Self::Fail,
        Self::HandleInvalid,
        Self::IfaceInvalid,
        Self::MdIllegal,
        Self::MdInvalid,
        Self::MdInUse,
        Self::MdNoUpdate,
        Self::MeInvalid,
        Self::MeInUse,
        Self::MeListTooLong,
        Self::NiInvalid,
        Self::NoInit,
        Self::NoSpace,
        Self::PidInvalid,
        Self::ProcessInvalid,
        Self::PtFull,
        Self::PtIndexInvalid,
        Self::Segv,
        Self::SrIndexInvalid,
        Self::EqInUse,
    ];

    /// The error with this [`Error::code`].
    pub fn from_code(code: i32) -> Option<Self> {
        Self::ALL.into_iter().find(|error| error.code() == code)
    }

    /// The value of the C API. `PTL_EQ_IN_USE` is not in the reference header; it stands above its
    /// last code.
    pub const fn code(self) -> i32 {
        match self {
            Self::AcIndexInvalid => 1,
            Self::EqInvalid => 4,
            Self::Fail => 5,
            Self::HandleInvalid => 6,
            Self::IfaceInvalid => 7,
            Self::MdIllegal => 8,
            Self::MdInvalid => 9,
            Self::MdInUse => 10,
            Self::MdNoUpdate => 11,
            Self::MeInvalid => 12,
            Self::MeInUse => 13,
            Self::MeListTooLong => 14,
            Self::NiInvalid => 15,
            Self::NoInit => 16,
            Self::NoSpace => 17,
            Self::PidInvalid => 18,
            Self::ProcessInvalid => 19,
            Self::PtFull => 20,
            Self::PtIndexInvalid => 21,
            Self::Segv => 22,
            Self::SrIndexInvalid => 23,
            Self::EqInUse => 32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_lead_back() {
        for error in Error::ALL {
            assert_eq!(Error::from_code(error.code()), Some(error));
        }
        assert_eq!(Error::from_code(0), None);
    }
}
