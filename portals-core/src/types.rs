//! Identifiers, limits and options of the API (`portals-shim/include/p3api/types.h`).

use bitflags::bitflags;
use serde::{Deserialize, Serialize};

/// The wildcard of every 32-bit identifier: `PTL_NID_ANY`, `PTL_PID_ANY`, `PTL_UID_ANY`,
/// `PTL_JID_ANY`, `PTL_PT_INDEX_ANY`.
pub const ANY: u32 = u32::MAX;

/// `PTL_MD_THRESH_INF`.
pub const THRESHOLD_INFINITE: i32 = -1;

/// The longest single message, bytes. Wire headers carry 32-bit lengths on every fabric.
pub const MAX_MESSAGE: u64 = u32::MAX as u64;

/// A process: node and process id within the node. Either half may be [`ANY`] in a match rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Node id.
    pub nid: u32,
    /// Process id on that node.
    pub pid: u32,
}

impl ProcessId {
    /// Matches every process.
    pub const ANY: Self = Self { nid: ANY, pid: ANY };

    /// A concrete process, or a rule when a half is [`ANY`].
    pub const fn new(nid: u32, pid: u32) -> Self {
        Self { nid, pid }
    }

    /// Whether this rule admits `other`; each half is compared on its own (rule 5).
    pub const fn admits(self, other: Self) -> bool {
        (self.nid == ANY || self.nid == other.nid) && (self.pid == ANY || self.pid == other.pid)
    }
}

/// Limits of an interface (`ptl_ni_limits_t`); indexes are the largest valid value, not counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Match entries at one time.
    pub max_mes: i32,
    /// Memory descriptors at one time.
    pub max_mds: i32,
    /// Event queues at one time.
    pub max_eqs: i32,
    /// Largest access control index.
    pub max_ac_index: i32,
    /// Largest portal index.
    pub max_pt_index: i32,
    /// Iovec entries of one MD.
    pub max_md_iovecs: i32,
    /// Match entries on one portal index.
    pub max_me_list: i32,
    /// Longest GetPut, bytes.
    pub max_getput_md: i32,
}

impl Limits {
    /// What this library can hold. Handles have 17 index bits; portal indexes reach 63 because
    /// clients use 30 to 39.
    pub const LIBRARY: Self = Self {
        max_mes: 131_072,
        max_mds: 131_072,
        max_eqs: 65_536,
        max_ac_index: 7,
        max_pt_index: 63,
        max_md_iovecs: 64,
        max_me_list: 131_072,
        max_getput_md: 64,
    };

    /// The field-wise minimum; negative wishes count as zero.
    pub fn min(self, other: Self) -> Self {
        let m = |a: i32, b: i32| a.min(b).max(0);
        Self {
            max_mes: m(self.max_mes, other.max_mes),
            max_mds: m(self.max_mds, other.max_mds),
            max_eqs: m(self.max_eqs, other.max_eqs),
            max_ac_index: m(self.max_ac_index, other.max_ac_index),
            max_pt_index: m(self.max_pt_index, other.max_pt_index),
            max_md_iovecs: m(self.max_md_iovecs, other.max_md_iovecs),
            max_me_list: m(self.max_me_list, other.max_me_list),
            max_getput_md: m(self.max_getput_md, other.max_getput_md),
        }
    }
}

bitflags! {
    /// Options of an MD (`PTL_MD_*`); unknown bits are kept and ignored.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct MdOptions: u32 {
        /// Accepts puts.
        const OP_PUT = 0x0001;
        /// Accepts gets.
        const OP_GET = 0x0002;
        /// The initiator's remote offset is used instead of the MD's local offset.
        const MANAGE_REMOTE = 0x0004;
        /// Takes what fits of a message that is too long.
        const TRUNCATE = 0x0008;
        /// Never causes an ack.
        const ACK_DISABLE = 0x0010;
        /// `start` is an iovec array.
        const IOVEC = 0x0020;
        /// `max_size` is meaningful.
        const MAX_SIZE = 0x0040;
        /// No START events.
        const EVENT_START_DISABLE = 0x0080;
        /// No END events; ACK and UNLINK still come (rule 31).
        const EVENT_END_DISABLE = 0x0100;
        /// An unlink by the program makes an UNLINK event too (Cray's; the value is ours).
        const EVENT_MANUAL_UNLINK_ENABLE = 0x0800;
        /// The END event of an operation that failed comes although END events are disabled, and a
        /// process that the fabric has given up is told of ([`crate::Ni::lost`]) (ours).
        const EVENT_FAILURE_ENABLE = 0x1000;
        /// No UNLINK event when the descriptor goes by itself, for owners whom its last operation's event tells as
        /// much (ours).
        const EVENT_AUTO_UNLINK_DISABLE = 0x2000;
        /// The memory is pinned from now until the descriptor goes, and peers are told of it by its owner alone
        /// (ours, as is the value).
        const PINNED = 0x1_0000;
        /// The memory stays pinned from now on, also when the descriptor has gone: its owner uses it for messages to the
        /// end. Of effect where the pages of each message are pinned; peers are told of it as of any other (ours, as is the value).
        const RESIDENT = 0x2_0000;
        const _ = !0;
    }
}

/// What happens to an object when it is spent (`ptl_unlink_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unlink {
    /// It stays (`PTL_RETAIN`).
    Retain,
    /// It goes away by itself (`PTL_UNLINK`).
    Unlink,
}

/// Where a new match entry goes (`ptl_ins_pos_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InsertPosition {
    /// Head of the list, or just before the base entry.
    Before,
    /// Tail of the list, or just after the base entry.
    After,
}
