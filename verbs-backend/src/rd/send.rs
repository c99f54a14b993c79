//! What the user sends and puts, and how much of that may wait for a peer.
//!
//! # A peer that asks faster than it acks
//!
//! A user whose answers are urgent would have those for a peer that does not ack them fill this process's memory. So while
//! [`Config::owed`](super::Config::owed) urgent fragments wait for a peer, nothing of it is taken but acks: its segments are
//! dropped and come again. It is told so by a share of 0, which also tells that this process is there. From half of them on it
//! is told to have one segment under way.
//!
//! ```text
//!   urgent ones that wait:   0 ─────────── owed / 2 ─────────── owed ───────► at most owed + 2 + 4 C
//!   the peer may have:       its share     one segment          nothing is taken
//! ```
//!
//! Two processes that ack never wait for each other. Let each have at most `C` segments under way to the other, each of which
//! makes the receiver owe two urgent fragments at most if it is not urgent itself, and none if it is.
//!
//! * Take the later of the two moments in which an urgent fragment began to wait at an end where none did. That end owes 2, the
//!   other one at most `owed + 1 + 2 C` (with segments that were kept for their turn), and what is under way brings at most `4 C`:
//!   together no more than `V = owed + 6 C + 3`.
//! * From then on a fragment that is not urgent leaves only after every [`Config::overtake`](super::Config::overtake) urgent
//!   ones, at most twice otherwise. With 64 that adds less than `V / 31 + 5`.
//! * Both take nothing only if `2 owed` is at most `V + V / 31 + 5`, which is false for `owed = 8 C` and `C` of 5 or more.
//!
//! So one of the two takes what arrives, and acks it; the other one's urgent fragments leave.

use super::config::Time;
use super::fragment::{Fragment, Priority, Source};
use super::peer::Active;
use super::{Endpoint, Event, PeerId};

/// Why something is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No such peer was added.
    #[error("no peer {0}")]
    NoPeer(usize),
    /// The peer was given up or has said farewell.
    #[error("process {number} is gone")]
    Gone {
        /// Its number in the job.
        number: u32,
    },
    /// A fragment longer than [`Config::longest`](super::Config::longest).
    #[error("a fragment of {length} bytes; at most {longest} are possible")]
    Length {
        /// Bytes given.
        length: u64,
        /// The limit.
        longest: u32,
    },
}

impl<S: Source> Endpoint<S> {
    /// Queues a fragment. It is handed up in order with the others of its [`Priority`].
    ///
    /// # Errors
    ///
    /// [`SendError`]; the source is dropped.
    pub fn send(
        &mut self,
        now: Time,
        to: PeerId,
        source: S,
        len: u64,
        tag: u64,
        priority: Priority,
    ) -> Result<(), SendError> {
        if len > u64::from(self.config.longest) {
            return Err(SendError::Length {
                length: len,
                longest: self.config.longest,
            });
        }
        let Some(peer) = self.peers.get_mut(to.index()) else {
            return Err(SendError::NoPeer(to.index()));
        };
        let mtu = self.config.data.mtu;
        let fragment = Fragment::message(source, len, tag, priority, mtu, &mut peer.ids);
        self.enqueue(now, to, fragment)
    }

    /// Queues data for a landing that the peer opens: each segment says where it belongs, so that it needs no fragment and
    /// no reassembly. Nothing is sent of an empty one.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the source is dropped.
    pub fn put(
        &mut self,
        now: Time,
        to: PeerId,
        landing: u32,
        source: S,
        len: u64,
        tag: u64,
    ) -> Result<(), SendError> {
        let fragment = Fragment::put(landing, source, len, tag, Priority::InOrder);
        self.enqueue(now, to, fragment)
    }

    /// The same, before what waits and is not urgent.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the source is dropped.
    pub fn put_urgent(
        &mut self,
        now: Time,
        to: PeerId,
        landing: u32,
        source: S,
        len: u64,
        tag: u64,
    ) -> Result<(), SendError> {
        let fragment = Fragment::put(landing, source, len, tag, Priority::Urgent);
        self.enqueue(now, to, fragment)
    }

    /// A number for a landing at a peer, by which its puts will name it, never 0; other ones have other
    /// numbers for a long time.
    pub fn new_landing(&mut self, to: PeerId) -> u32 {
        let peer = self.peers.get_mut(to.index());
        peer.map_or(0, |peer| peer.ids.landing())
    }

    fn enqueue(&mut self, now: Time, to: PeerId, fragment: Fragment<S>) -> Result<(), SendError> {
        let index = to.index();
        let Some(peer) = self.peers.get_mut(index) else {
            return Err(SendError::NoPeer(index));
        };
        if peer.dead {
            return Err(SendError::Gone {
                number: peer.number,
            });
        }
        if let Some(tag) = fragment.is_nothing() {
            self.events.push_back(Event::Acked { peer: to, tag });
            return Ok(());
        }
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        if active.sends_nothing() {
            peer.pace.hear(now);
        }
        let priority = fragment.priority();
        let key = self.fragments.insert(fragment) as u32;
        active.waiting.push(key, priority);
        let owed = u64::from(active.waiting.urgent());
        self.stats.most_owed = self.stats.most_owed.max(owed);
        self.refresh(to.0);
        Ok(())
    }
}
