//! The API's calls as values, so that they can be made in the caller's process or carried by a
//! trap into a node's kernel. One variant for each function that needs
//! the library's state.

use portals_core::{
    AcEntry, AckRequest, EqHandle, Error, Event, EventKind, InsertPosition, MdDesc, MdHandle,
    MdSnapshot, MeHandle, MeSpec, NiFail, ProcessId, Status, Unlink, Usage,
};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Where a message goes: the arguments that put, get and getput share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Process that owns the remote portal table.
    pub process: ProcessId,
    /// Index in it.
    pub pt_index: u32,
    /// Index in the target's access control table.
    pub ac_index: u32,
    /// Bits compared with each match entry.
    pub match_bits: u64,
    /// Used only if the chosen descriptor is remotely managed, bytes.
    pub remote_offset: u64,
}

/// Event queues of one poll.
pub type EqList = SmallVec<[EqHandle; 4]>;

/// How long a poll may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wait {
    /// Not at all.
    No,
    /// At most this many nanoseconds of the fabric's time.
    Nanos(u64),
    /// Until an event comes.
    Forever,
}

/// An event taken from one of several queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Polled {
    /// The event.
    pub event: Event,
    /// Events of that queue before this one were lost (`PTL_EQ_DROPPED`).
    pub dropped: bool,
    /// Index of the queue in the poll's list.
    pub which: usize,
}

/// What a program that knows its descriptors reads of an event that it takes from one of several queues; less to copy than
/// a [`Polled`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// What happened.
    pub kind: EventKind,
    /// Whether the operation failed.
    pub ni_fail: NiFail,
    /// Who initiated the operation; for ACK and REPLY the process that sent them.
    pub initiator: ProcessId,
    /// The user's value of the descriptor.
    pub user_ptr: u64,
    /// Match bits of the request.
    pub match_bits: u64,
    /// The put's 64 bits of user data.
    pub hdr_data: u64,
    /// Where in the descriptor the operation worked, bytes.
    pub offset: u64,
    /// Requested length, bytes.
    pub rlength: u64,
    /// Length moved, bytes.
    pub mlength: u64,
    /// The same number in the START and END of one operation.
    pub link: u32,
    /// Events of that queue before this one were lost (`PTL_EQ_DROPPED`).
    pub dropped: bool,
    /// Index of the queue in the poll's list.
    pub which: usize,
}

impl Brief {
    /// Of an event of the queue at index `which`.
    #[inline(always)]
    pub const fn new(event: &Event, dropped: bool, which: usize) -> Self {
        Self {
            kind: event.kind,
            ni_fail: event.ni_fail,
            initiator: event.initiator,
            user_ptr: event.md.user_ptr,
            match_bits: event.match_bits,
            hdr_data: event.hdr_data,
            offset: event.offset,
            rlength: event.rlength,
            mlength: event.mlength,
            link: event.link,
            dropped,
            which,
        }
    }
}

/// Nothing that happened: what stands in a place before an event does.
impl Default for Brief {
    #[inline(always)]
    fn default() -> Self {
        Self {
            kind: EventKind::SendEnd,
            ni_fail: NiFail::OK,
            initiator: ProcessId::ANY,
            user_ptr: 0,
            match_bits: 0,
            hdr_data: 0,
            offset: 0,
            rlength: 0,
            mlength: 0,
            link: 0,
            dropped: false,
            which: 0,
        }
    }
}

/// Where a poll puts the event that it takes, or as much of it as is asked for.
pub trait Place {
    /// Each part is moved once, from where it lies in the queue at index `which`.
    fn put(&mut self, event: &Event, dropped: bool, which: usize);
}

impl Place for Polled {
    #[inline(always)]
    fn put(&mut self, event: &Event, dropped: bool, which: usize) {
        self.event = *event;
        (self.dropped, self.which) = (dropped, which);
    }
}

impl Place for Brief {
    #[inline(always)]
    fn put(&mut self, event: &Event, dropped: bool, which: usize) {
        *self = Self::new(event, dropped, which);
    }
}

/// What a poll that writes its event elsewhere took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// No event.
    Nothing,
    /// An event, and the queues of the poll have no other.
    Last,
    /// An event, and there is another one.
    More,
}

/// A function of the API with its arguments, as a trap takes it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each is the function of the API that it is named after, with its arguments or what it gives"
)]
pub enum Call {
    MeAttach {
        pt_index: u32,
        spec: MeSpec,
        position: InsertPosition,
    },
    MeAttachAny {
        spec: MeSpec,
    },
    MeInsert {
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
    },
    MeUnlink(MeHandle),
    MdAttach {
        me: MeHandle,
        desc: MdDesc,
        unlink: Unlink,
    },
    MdBind {
        desc: MdDesc,
        unlink: Unlink,
    },
    MdUnlink(MdHandle),
    MdQuery(MdHandle),
    MdUpdate {
        md: MdHandle,
        new: MdDesc,
        test: Option<EqHandle>,
    },
    MeMdPost {
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
        desc: MdDesc,
        unlink: Unlink,
        test: Option<EqHandle>,
    },
    EqAlloc(u64),
    EqFree(EqHandle),
    EqRetire(EqHandle),
    EqPeek(EqHandle),
    EqPoll {
        eqs: EqList,
        wait: Wait,
    },
    AcEntry {
        index: u32,
        entry: AcEntry,
    },
    Put {
        md: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    },
    Get {
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: Target,
    },
    GetPut {
        get: MdHandle,
        put: MdHandle,
        regions: Option<(u64, u64, u64)>,
        to: Target,
        hdr_data: u64,
    },
    Distance(ProcessId),
    Status,
    Usage,
    ListLengths(u32),
    Paths,
    /// The program computes, nanoseconds.
    Compute(u64),
    Close,
}

impl Call {
    /// The process that the call's operation is for.
    pub const fn target(&self) -> Option<ProcessId> {
        match self {
            Self::Put { to, .. } | Self::GetPut { to, .. } => Some(to.process),
            Self::Get { from, .. } => Some(from.process),
            _ => None,
        }
    }
}

/// How peers' adapters reach the memory of a descriptor, told by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteKey {
    /// Address of the descriptor's first byte, in the owner's process.
    pub base: u64,
    /// Its length, bytes.
    pub len: u64,
    /// From `Interface::remote_key`.
    pub rkey: u32,
}

/// Why a poll was refused: the queue at index `which` of its list is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error} (index {which} of the poll)")]
pub struct PollError {
    /// [`Error::EqInvalid`], the fabric's failure, or [`Error::Fail`] of a wait for ever (see `Interface::take_lost`).
    pub error: Error,
    /// Index in the list given.
    pub which: usize,
}

/// Which way the messages of an interface went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    /// Served by the network adapters alone: the target's library had no part.
    pub one_sided: u64,
    /// Handled by the target's library.
    pub two_sided: u64,
    /// Notified puts: RDMA writes whose messages have the target's library post the events; over verbs.
    pub notified: u64,
    /// Gets by active message: the target's library answered although its adapter could have; over verbs.
    pub get_by_am: u64,
    /// Of all these, to ranks that share memory with this one.
    pub by_memory: u64,
    /// By which channel of the verbs fabric, where it chooses for each peer; all 0 elsewhere.
    pub channels: Channels,
}

impl Paths {
    /// The messages of both, and the channels of the second.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self {
            one_sided: self.one_sided + other.one_sided,
            two_sided: self.two_sided + other.two_sided,
            notified: self.notified + other.notified,
            get_by_am: self.get_by_am + other.get_by_am,
            by_memory: self.by_memory + other.by_memory,
            channels: other.channels,
        }
    }
}

/// How the verbs fabric talks to its peers over the channel `auto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channels {
    /// Peers that were talked to and have no connection.
    pub on_datagrams: u64,
    /// Peers that are talked to over a connection.
    pub on_connections: u64,
    /// Moves from the one to the other so far.
    pub moves: u64,
    /// Chatty peers that were left on datagrams, since this side or the peer had no connection for them.
    pub stays: u64,
    /// Connections that peers asked for and this side declined.
    pub declined: u64,
}

/// What a call gives back when it succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(
    missing_docs,
    reason = "each is the function of the API that it is named after, with its arguments or what it gives"
)]
pub enum Answer {
    Done,
    Me(MeHandle),
    PortalMe(u32, MeHandle),
    Md(MdHandle),
    MeMd(MeHandle, MdHandle),
    Eq(EqHandle),
    /// Of a descriptor, and whether operations on it are under way.
    Snapshot(MdSnapshot, bool),
    Polled(Option<Polled>),
    /// The queue at this index of a poll's list is not one.
    BadQueue(usize),
    Distance(u64),
    Status(Status),
    Usage(Usage),
    /// Now, and at most so far.
    ListLengths(u64, u64),
    Paths(Paths),
}
