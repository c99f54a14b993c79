//! Memory descriptors: acceptance, thresholds, retirement (rules 6-12, 37-45,
//! unlink rules).

use crate::event::MdSnapshot;
use crate::handle::{EqHandle, MeHandle};
use crate::memory::Memory;
use crate::types::{MdOptions, THRESHOLD_INFINITE, Unlink};
use serde::{Deserialize, Serialize};

/// What the user says of an MD (`ptl_md_t`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdDesc {
    /// The memory.
    pub memory: Memory,
    /// Operations before the MD becomes inactive; [`THRESHOLD_INFINITE`] for no limit, other
    /// negative values count as 0.
    pub threshold: i32,
    /// With [`MdOptions::MAX_SIZE`]: the MD becomes inactive when less than this many bytes remain.
    pub max_size: u64,
    /// Options.
    pub options: MdOptions,
    /// Returned in every event.
    pub user_ptr: u64,
    /// Where events go.
    pub eq: Option<EqHandle>,
}

/// What a message asks of an MD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Put,
    Get,
    GetPut,
}

#[derive(Debug)]
pub(crate) struct Md {
    pub(crate) desc: MdDesc,
    /// Bytes of the memory.
    pub(crate) length: u64,
    pub(crate) local_offset: u64,
    /// Remaining operations, -1 infinite.
    pub(crate) threshold: i32,
    pub(crate) active: bool,
    /// An operation, not the user, made it inactive; only then auto-unlink applies (unlink rule
    /// 3).
    pub(crate) retired: bool,
    pub(crate) unlink: Unlink,
    pub(crate) me: Option<MeHandle>,
    /// Operations under way.
    pub(crate) pending: u32,
    /// Acks that may still come; an ack nobody asked for is not one.
    pub(crate) acks_due: u32,
    /// Replies that may still come.
    pub(crate) replies_due: u32,
}

impl Md {
    pub(crate) fn new(desc: MdDesc, length: u64, unlink: Unlink, me: Option<MeHandle>) -> Self {
        let mut md = Self {
            desc,
            length,
            local_offset: 0,
            threshold: 0,
            active: false,
            retired: false,
            unlink,
            me,
            pending: 0,
            acks_due: 0,
            replies_due: 0,
        };
        md.arm();
        md
    }

    /// Takes the threshold of the description and starts from offset 0.
    pub(crate) fn arm(&mut self) {
        self.threshold = match self.desc.threshold {
            THRESHOLD_INFINITE => THRESHOLD_INFINITE,
            t => t.max(0),
        };
        self.active = self.threshold != 0;
        self.retired = false;
        self.local_offset = 0;
    }

    /// Rules 6-8: the offset and length at which this MD would take the message, or `None`.
    pub(crate) fn accepts(
        &self,
        access: Access,
        remote_offset: u64,
        rlength: u64,
    ) -> Option<(u64, u64)> {
        let needed = match access {
            Access::Put => MdOptions::OP_PUT,
            Access::Get => MdOptions::OP_GET,
            Access::GetPut => MdOptions::OP_PUT.union(MdOptions::OP_GET),
        };
        if !self.active || !self.desc.options.contains(needed) {
            return None;
        }
        let offset = if self.desc.options.contains(MdOptions::MANAGE_REMOTE) {
            remote_offset
        } else {
            self.local_offset
        };
        let room = self.length.checked_sub(offset)?;
        if rlength <= room {
            Some((offset, rlength))
        } else if self.desc.options.contains(MdOptions::TRUNCATE) {
            Some((offset, room))
        } else {
            None
        }
    }

    /// Rule 10: accounts an accepted message of `mlength` bytes.
    pub(crate) fn account_target(&mut self, mlength: u64) {
        if !self.desc.options.contains(MdOptions::MANAGE_REMOTE) {
            self.local_offset += mlength;
        }
        self.consume();
        let o = self.desc.options;
        // Rule 12: MAX_SIZE means nothing without a local offset.
        if o.contains(MdOptions::MAX_SIZE)
            && !o.contains(MdOptions::MANAGE_REMOTE)
            && self.length - self.local_offset < self.desc.max_size
        {
            self.active = false;
            self.retired = true;
        }
    }

    /// One operation of the threshold (rule 37).
    pub(crate) fn consume(&mut self) {
        if self.threshold > 0 {
            self.threshold -= 1;
            if self.threshold == 0 {
                self.active = false;
                self.retired = true;
            }
        }
    }

    pub(crate) fn snapshot(&self) -> MdSnapshot {
        MdSnapshot {
            start: self.desc.memory.start(),
            length: self.desc.memory.user_length(),
            threshold: self.threshold,
            max_size: self.desc.max_size,
            options: self.desc.options,
            user_ptr: self.desc.user_ptr,
            eq: self.desc.eq,
        }
    }
}
