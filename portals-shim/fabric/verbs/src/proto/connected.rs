//! What the choice of a protocol knows of a connected peer.

use super::op::Op;
use super::select::PeerState;
use crate::adverts::{self, Reach};
use crate::peer::Peer;
use fabric_api::call::RemoteKey;

/// A connected peer, and what an operation on it brings along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected<'a> {
    pub(crate) peer: &'a Peer,
    /// Reaches the memory that the operation is for.
    pub(crate) key: Option<&'a RemoteKey>,
    /// A get is being timed, so that others are neither timed nor answered by the peer's library.
    pub(crate) timing: bool,
}

impl<'a> Connected<'a> {
    /// A peer, and nothing else.
    #[inline(always)]
    pub(crate) fn now(peer: &'a Peer) -> Self {
        Self {
            peer,
            key: None,
            timing: false,
        }
    }

    /// A peer, whose memory `key` reaches.
    #[inline(always)]
    pub(crate) fn by_key(peer: &'a Peer, key: Option<&'a RemoteKey>) -> Self {
        Self {
            key,
            ..Self::now(peer)
        }
    }
}

impl PeerState for Connected<'_> {
    #[inline(always)]
    fn may_reach(&self, pt_index: u32) -> bool {
        self.key.is_some() || !self.peer.adverts.of(pt_index).is_empty()
    }

    #[inline(always)]
    fn reach(&self, op: &Op) -> Option<Reach> {
        match self.key {
            Some(key) => adverts::by_key(key, op),
            None => self.peer.adverts.find(op),
        }
    }

    #[inline(always)]
    fn is_settled(&self) -> bool {
        self.peer.is_settled()
    }

    #[inline(always)]
    fn may_notify(&self) -> bool {
        self.peer.may_notify()
    }

    #[inline(always)]
    fn answers_sooner(&self) -> bool {
        !self.timing && self.peer.gets.is_by_am()
    }
}
