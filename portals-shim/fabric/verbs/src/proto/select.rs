//! The choice of a protocol: the only place that says how an operation goes over a connection.
//!
//! ```text
//!   Op, PeerState, Thresholds ─► select ─► Protocol ─► started at once, or by the general path
//!   a frame that is posted ────► carrier ─► ring or send
//! ```
//!
//! # Invariants
//!
//! * The choice changes nothing, so that an operation that could not begin at once is chosen for again, with the same result.
//! * The table that users see (`protocols.rs`) asks [`select`] and [`carrier`] too.
//! * An RDMA operation has its effect at once, a frame when the peer's library handles it. So memory of the peer is reached
//!   only when every earlier request has had its effect; where the owner posts events, only those in frames must have.

use super::op::{Kind, Op};
use crate::adverts::Reach;
use crate::frame::EAGER;
use portals_core::MdHandle;
use verbs_backend::Remote;

/// How an operation goes over a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// Header and data in one frame.
    Eager,
    /// The header says where the data is, and the peer's adapter reads it.
    RndvRead,
    /// RDMA WRITE, and nothing for the peer's library to do; `acks`: the descriptor acknowledges puts.
    RmaWrite { remote: Remote, acks: bool },
    /// RDMA WRITE into the descriptor `md`, and a message that has its owner post the events.
    RmaWriteSend { remote: Remote, md: MdHandle },
    /// RDMA READ, and nothing for the peer's library to do.
    RmaRead(Remote),
    /// The peer's library reads its memory, and answers with the data.
    GetByAm(Remote),
}

/// How a frame leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carrier {
    /// RDMA WRITE into so many bytes of the peer's ring.
    Ring(usize),
    /// SEND, which takes a receive of the peer.
    Send,
}

/// What users say of short gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ShortGets {
    /// The quicker protocol, as it was measured.
    Measured,
    /// RDMA READ.
    RmaRead,
    /// The peer's library, wherever that may be.
    GetByAm,
}

/// Puts of so many bytes and more go by [`Protocol::RmaWriteSend`], up to what a frame takes. Below, copying them twice is
/// cheaper than the protocol that leaves them where they are: measured by `portolan bench pingpong` over SoftRoCE.
pub(crate) const NOTIFY_FROM: usize = 2048;

/// Longest get by [`Protocol::GetByAm`], bytes: its answer fits a ring's slot.
pub(crate) const SHORT_GET: u64 = 192;

/// What settings and the kind of adapter decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thresholds {
    /// Shortest put whose data is written into a descriptor with an event queue.
    notify_from: usize,
    short_gets: ShortGets,
}

impl Thresholds {
    /// `iwarp`: by the rules of iWARP, where a witness confirms what the adapters do, and the peer's library answers no gets.
    pub(crate) const fn new(notify_from: usize, short_gets: ShortGets, iwarp: bool) -> Self {
        let short_gets = match iwarp {
            true => ShortGets::RmaRead,
            false => short_gets,
        };
        Self {
            notify_from,
            short_gets,
        }
    }

    /// Whether puts of `len` bytes are written where the owner posts the events.
    #[inline(always)]
    pub(crate) const fn notifies(&self, len: u64) -> bool {
        self.notify_from as u64 <= len && len <= EAGER as u64
    }

    /// No put is written any more where the owner posts the events.
    pub(crate) fn stop_notifying(&mut self) {
        self.notify_from = usize::MAX;
    }

    /// What is quicker for short gets is to be found out.
    #[inline(always)]
    pub(crate) fn measures(&self) -> bool {
        self.short_gets == ShortGets::Measured
    }

    /// Whether a get of `len` bytes may go by [`Protocol::GetByAm`].
    #[inline(always)]
    pub(crate) fn may_get_by_am(&self, len: u64) -> bool {
        len <= SHORT_GET && self.short_gets != ShortGets::RmaRead
    }
}

/// What is known of a peer to which operations may be sent.
pub(crate) trait PeerState {
    /// Whether any memory of the portal can be reached.
    fn may_reach(&self, pt_index: u32) -> bool;
    /// The memory that adapters reach for an operation.
    fn reach(&self, op: &Op) -> Option<Reach>;
    /// Nothing waits, and every earlier request has had its effect.
    fn is_settled(&self) -> bool;
    /// Every earlier request in a frame has had its effect, and a write and its message can be posted.
    fn may_notify(&self) -> bool;
    /// Whether the peer's library is to answer the next short get, as far as that was measured.
    fn answers_sooner(&self) -> bool;
}

/// How an operation goes now. Nothing has happened after that.
#[inline(always)]
pub(crate) fn select(op: &Op, peer: &impl PeerState, thresholds: &Thresholds) -> Protocol {
    let by_message = by_message(op.payload());
    if !peer.may_reach(op.pt_index) {
        return by_message;
    }
    let notifies = op.kind == Kind::Put && op.contiguous && thresholds.notifies(op.len);
    let in_order = op.relaxed || peer.is_settled();
    if !in_order && !notifies {
        return by_message;
    }
    let Some(reach) = peer.reach(op) else {
        return by_message;
    };
    let Reach { remote, acks, .. } = reach;
    match (op.kind, reach.events) {
        (Kind::Put, Some(md)) if notifies && peer.may_notify() => {
            Protocol::RmaWriteSend { remote, md }
        }
        (_, Some(_)) => by_message,
        (_, None) if !in_order => by_message,
        (Kind::Put, None) => Protocol::RmaWrite { remote, acks },
        (Kind::Get, None) if op.contiguous => match get_by_am(op, peer, thresholds) {
            true => Protocol::GetByAm(remote),
            false => Protocol::RmaRead(remote),
        },
        (Kind::Get | Kind::Message, None) => by_message,
    }
}

/// What [`select`] chooses, by a call where memory of the portal can be reached, which most often is not so.
#[inline(always)]
pub(crate) fn select_apart(op: &Op, peer: &impl PeerState, thresholds: &Thresholds) -> Protocol {
    match peer.may_reach(op.pt_index) {
        true => select_where_memory_is(op, peer, thresholds),
        false => by_message(op.payload()),
    }
}

#[inline(never)]
fn select_where_memory_is(op: &Op, peer: &impl PeerState, thresholds: &Thresholds) -> Protocol {
    select(op, peer, thresholds)
}

/// Whether the peer's library answers a get that its adapter could.
#[inline(always)]
fn get_by_am(op: &Op, peer: &impl PeerState, thresholds: &Thresholds) -> bool {
    op.immediate
        && thresholds.may_get_by_am(op.len)
        && (!thresholds.measures() || peer.answers_sooner())
}

/// How a message with `len` bytes of data goes.
#[inline(always)]
pub(crate) const fn by_message(len: u64) -> Protocol {
    if len <= EAGER as u64 {
        Protocol::Eager
    } else {
        Protocol::RndvRead
    }
}

/// How a frame of `len` bytes leaves, of which a post copies at most `inline`. `ring`: the peer polls one; `ordered`: no data
/// that was written before need be visible first.
#[inline(always)]
pub(crate) fn carrier(len: usize, inline: usize, ring: bool, ordered: bool) -> Carrier {
    match super::eager_ring::taken(len) {
        Some(taken) if ring && ordered && taken <= inline => Carrier::Ring(taken),
        _ => Carrier::Send,
    }
}

#[cfg(test)]
mod tests;
