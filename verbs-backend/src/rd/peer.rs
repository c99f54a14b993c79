//! What is kept of a peer.
//!
//! Of each peer that was ever met a [`Peer`]: numbers, keys, pace. What it takes to send and to sort what arrives is in
//! [`Active`], which a peer has only while something is under way; it goes back to a pool when all is acked and handed
//! up, so that memory follows what happens at a time and not the size of the job.
//!
//! | part | file | whose rule is |
//! |---|---|---|
//! | [`SendWindow`], [`Unacked`] | `window.rs` | how each numbered segment stands |
//! | [`Waiting`], [`Ids`] | `fragment.rs` | what goes before what |
//! | [`PeerPosted`] | `credits.rs` | what is with the adapter, and which channel may overtake the other |
//! | [`Pace`] | `pace.rs` | what may be under way, and for how long |
//! | [`ReceiveWindow`], [`Kept`], [`AckDue`] | `order.rs` | what is here, in which order it is handed up, what the peer is told |
//! | [`Partials`], [`Landings`] | `reassembly.rs` | where data goes |
//! | [`Seen`] | `share.rs` | who counts as a sender |
//! | [`Marks`] | `list.rs` | which lists it is in |

use super::config::Config;
use super::credits::PeerPosted;
use super::fragment::{Ids, Waiting};
use super::list::Mark;
use super::order::{AckDue, Kept, ReceiveWindow, Slot};
use super::pace::Pace;
use super::reassembly::{Landings, Partials};
use super::share::Seen;
use super::window::{SendWindow, Unacked};
use super::wire;

/// Most bytes of a peer with which nothing is under way, everything counted.
pub const IDLE_PEER_BYTES: usize = 256;

/// A peer, as far as it is always there.
#[derive(Debug)]
pub(super) struct Peer {
    /// In the job.
    pub(super) number: u32,
    pub(super) keys: Keys,
    /// Nothing is sent to it or taken from it any more.
    pub(super) dead: bool,

    pub(super) window: SendWindow,
    pub(super) posted: PeerPosted,
    pub(super) pace: Pace,
    pub(super) ids: Ids,

    pub(super) arrived: ReceiveWindow,
    pub(super) ack: AckDue,
    pub(super) seen: Seen,

    pub(super) marks: Marks,
    pub(super) active: Option<Box<Active>>,
}

// With its place in the table of numbers, its room for acks, and what vectors have to spare.
const _: () = assert!(size_of::<Peer>() + 8 + 24 <= IDLE_PEER_BYTES);

/// The keys of the checks of what is sent and of what arrives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    pub(super) out: u64,
    pub(super) back: u64,
}

/// Which lists of the endpoint a peer is in.
#[derive(Debug, Default)]
pub(super) struct Marks {
    pub(super) ready: Mark,
    pub(super) again: Mark,
    pub(super) acks: Mark,
    pub(super) deliverable: Mark,
}

/// What a peer has while something is under way.
#[derive(Debug, Default)]
pub(super) struct Active {
    pub(super) waiting: Waiting,
    pub(super) unacked: Unacked,
    pub(super) kept: Kept,
    pub(super) partials: Partials,
    pub(super) landings: Landings,
}

/// Those that no peer needs, each in the box in which a peer will have it.
pub(super) type Spare = Vec<Box<Active>>;

/// Idle ones kept.
const POOL: usize = 64;
/// Bytes behind an [`Active`] with one segment in each direction: queues have room for 4.
pub(super) const FEW: usize = 4 * 4 * 2 + 4 * size_of::<Slot>();

impl Active {
    /// That of a peer, from the pool if it has none.
    #[inline]
    pub(super) fn of<'a>(place: &'a mut Option<Box<Self>>, spare: &mut Spare) -> &'a mut Self {
        place.get_or_insert_with(|| spare.pop().unwrap_or_default())
    }

    pub(super) fn sends_nothing(&self) -> bool {
        self.waiting.is_empty() && self.unacked.is_empty()
    }

    fn is_empty(&self) -> bool {
        self.sends_nothing()
            && !self.unacked.has_lost()
            && self.kept.is_empty()
            && self.partials.is_empty()
            && self.landings.is_empty()
    }

    /// Gives back what an idle peer does not need.
    #[inline]
    pub(super) fn settle(place: &mut Option<Box<Self>>, spare: &mut Spare) {
        if place.as_ref().is_some_and(|active| active.is_empty())
            && let Some(mut active) = place.take()
            && spare.len() < POOL
        {
            active.shrink();
            spare.push(active);
        }
    }

    /// Bytes behind it.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.bytes()
            + self.unacked.bytes()
            + self.kept.bytes()
            + self.partials.bytes()
            + self.landings.bytes()
    }

    fn shrink(&mut self) {
        self.waiting.shrink();
        self.unacked.shrink();
        self.kept.shrink();
        self.partials.shrink();
        self.landings.shrink();
    }
}

impl Peer {
    pub(super) fn new(config: &Config, number: u32, keys: Keys) -> Self {
        Self {
            number,
            keys,
            dead: false,
            window: SendWindow::new(wire::first_seq(keys.out)),
            posted: PeerPosted::default(),
            pace: Pace::new(config.congestion, config.window),
            ids: Ids::default(),
            arrived: ReceiveWindow::new(wire::first_seq(keys.back)),
            ack: AckDue::default(),
            seen: Seen::default(),
            marks: Marks::default(),
            active: None,
        }
    }

    /// Urgent fragments that wait for it.
    #[inline]
    pub(super) fn waiting_for_it(&self) -> u32 {
        let active = self.active.as_deref();
        active.map_or(0, |active| active.waiting.urgent())
    }

    /// Whether segments of it are kept, of which some may wait for one that is missing.
    #[inline]
    pub(super) fn keeps_some(&self) -> bool {
        let active = self.active.as_deref();
        active.is_some_and(|active| !active.kept.is_empty())
    }

    /// Whether one more segment may be sent to it, as far as it is for others to say.
    #[inline]
    pub(super) fn may_send(&self, config: &Config) -> bool {
        !self.dead
            && self.posted.has_credit(config.peer_credits)
            && self.window.under_way() < self.pace.allowance(config)
    }

    /// Whether everything sent to it is acked and everything received has been, or it is gone.
    pub(super) fn is_drained(&self) -> bool {
        let active = self.active.as_deref();
        let sent = active.is_none_or(Active::sends_nothing);
        self.dead || (sent && self.window.is_empty() && !self.ack.is_due())
    }
}
