//! Access control entries (rules 3 and 4).

use crate::types::{ANY, ProcessId};
use serde::{Deserialize, Serialize};

/// Who may reach which portal through this entry; [`ANY`] is a wildcard in every field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AcEntry {
    /// Allowed initiator.
    pub match_id: ProcessId,
    /// Allowed user id.
    pub uid: u32,
    /// Allowed job id.
    pub jid: u32,
    /// Allowed portal index.
    pub pt_index: u32,
}

impl AcEntry {
    /// The initial state of every entry: any process of the own user, every portal.
    pub const fn initial(uid: u32) -> Self {
        Self {
            match_id: ProcessId::ANY,
            uid,
            jid: ANY,
            pt_index: ANY,
        }
    }

    /// Whether a message with these initiator values may pass.
    #[inline(always)]
    pub const fn admits(&self, initiator: ProcessId, uid: u32, jid: u32, pt_index: u32) -> bool {
        (self.uid == ANY || self.uid == uid)
            && (self.pt_index == ANY || self.pt_index == pt_index)
            && (self.jid == ANY || self.jid == jid)
            && self.match_id.admits(initiator)
    }
}
