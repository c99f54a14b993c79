//! Records of what is under way.

use crate::memory::Staged;
use crate::proto::counts::Counts;
use portals_core::{Header, InPlace, NiFail, OpId, Segments};

/// What the end of an RDMA operation, or a peer's answer, completes.
#[derive(Debug)]
pub(crate) enum Work {
    /// A one-sided put; the ack that the target would have sent.
    Write {
        op: Option<OpId>,
        ack: Option<InPlace>,
        _staged: Option<Box<Staged>>,
    },
    /// A one-sided get; the reply that the target would have sent, whose data is in place.
    Read(InPlace),
    /// Data of a peer's RTS being read into a descriptor.
    RndvRead {
        op: OpId,
        token: u32,
        request: bool,
        staged: Option<Box<StagedRead>>,
    },
}

/// Data of a peer's RTS that is read into a staging buffer, and where it goes from there.
#[derive(Debug)]
pub(crate) struct StagedRead {
    pub(crate) staged: Staged,
    pub(crate) segments: Segments,
    pub(crate) len: u64,
}

/// A record of [`Work`]: for whom, and how many requests of it are still under way.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) peer: usize,
    pub(crate) left: usize,
    pub(crate) fail: NiFail,
    pub(crate) work: Work,
}

impl Record {
    /// A request of it has ended so; of several failures the first is kept.
    #[inline]
    pub(crate) fn fails(&mut self, fail: NiFail) {
        if self.fail == NiFail::OK {
            self.fail = fail;
        }
    }
}

/// Data of ours whose RTS has left and whose ATS has not come.
#[derive(Debug)]
pub(crate) struct RndvSend {
    pub(crate) peer: usize,
    pub(crate) after: After,
    /// The message that the data belongs to.
    pub(crate) header: Header,
    /// Keeps a staging buffer alive until the peer has read it.
    pub(crate) _staged: Option<Staged>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum After {
    Send(Option<OpId>),
    Reply(OpId),
}

/// What is counted here and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    /// Frames that could not be read, or claimed to come from somebody else.
    pub(crate) bad_frames: u64,
    /// Frames taken out of rings.
    pub(crate) ring_frames: u64,
    pub(crate) protocols: Counts,
}
