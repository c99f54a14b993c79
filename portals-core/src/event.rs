//! Events (rules 27 to 36; numbers are those of `portals-shim/include/p3api/types.h`).

use crate::handle::{EqHandle, Handle, MdHandle};
use crate::types::{MdOptions, ProcessId};
use serde::{Deserialize, Serialize};

/// The kind of an event; discriminants are the C API's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u32)]
#[expect(missing_docs, reason = "the names are the specification's")]
pub enum EventKind {
    GetStart = 0,
    GetEnd = 1,
    PutStart = 2,
    PutEnd = 3,
    GetPutStart = 4,
    GetPutEnd = 5,
    ReplyStart = 6,
    ReplyEnd = 7,
    SendStart = 8,
    SendEnd = 9,
    Ack = 10,
    Unlink = 11,
}

/// `ni_fail_type`: 0 is success. The specification leaves the other values to the implementation; they name who has failed, as
/// far as that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NiFail(pub u32);

impl NiFail {
    /// `PTL_NI_OK`
    pub const OK: Self = Self(0);
    /// `PTL_NI_FAIL`: the peer cannot be reached, has failed or was refused, or data was lost on the way.
    pub const FAIL: Self = Self(1);
    /// `PTL_NI_SEGV`: memory of this process could not be read, written, or given to the adapter. It says nothing against the peer.
    pub const SEGV: Self = Self(2);

    /// What takes the place of the answer to an operation whose send has ended so.
    #[must_use]
    pub const fn or_fail(self) -> Self {
        match self {
            Self::OK => Self::FAIL,
            failure => failure,
        }
    }
}

/// An MD as an event shows it: `start`, `length` as the user gave them, `threshold` what remains
/// after the operation of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdSnapshot {
    /// Address of the region, or of the caller's iovec array.
    pub start: u64,
    /// Bytes, or entries of the iovec array.
    pub length: u64,
    /// Remaining operations, -1 infinite.
    pub threshold: i32,
    /// See [`crate::MdDesc::max_size`].
    pub max_size: u64,
    /// Options as given.
    pub options: MdOptions,
    /// The user's value.
    pub user_ptr: u64,
    /// The MD's queue.
    pub eq: Option<EqHandle>,
}

/// One event (`ptl_event_t`); which fields mean what: rule 30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Who initiated the operation; for ACK and REPLY the process that sent them.
    pub initiator: ProcessId,
    /// User id of that process.
    pub uid: u32,
    /// Job id of that process.
    pub jid: u32,
    /// Portal index of the request.
    pub pt_index: u32,
    /// Match bits of the request.
    pub match_bits: u64,
    /// Requested length, bytes.
    pub rlength: u64,
    /// Length moved, bytes.
    pub mlength: u64,
    /// Where in this event's MD the operation worked, bytes.
    pub offset: u64,
    /// The MD.
    pub md_handle: MdHandle,
    /// The MD's state after the operation was accounted.
    pub md: MdSnapshot,
    /// The put's 64 bits of user data.
    pub hdr_data: u64,
    /// The same number in the START and END of one operation; in UNLINK the sequence number of the
    /// event that caused it.
    pub link: u32,
    /// Whether the operation failed.
    pub ni_fail: NiFail,
    /// +1 for each event of a queue, wrapping.
    pub sequence: u32,
}

/// Nothing that happened: what stands in a place before an event does.
impl Default for Event {
    fn default() -> Self {
        Self::BLANK
    }
}

impl Event {
    pub(crate) const BLANK: Self = Self {
        kind: EventKind::SendEnd,
        initiator: ProcessId::ANY,
        uid: 0,
        jid: 0,
        pt_index: 0,
        match_bits: 0,
        rlength: 0,
        mlength: 0,
        offset: 0,
        md_handle: MdHandle(Handle::INVALID),
        md: MdSnapshot {
            start: 0,
            length: 0,
            threshold: 0,
            max_size: 0,
            options: MdOptions::empty(),
            user_ptr: 0,
            eq: None,
        },
        hdr_data: 0,
        link: 0,
        ni_fail: NiFail::OK,
        sequence: 0,
    };
}
