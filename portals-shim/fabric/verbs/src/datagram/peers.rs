//! The ranks of the job: who may be talked to, and what is kept of those that were.
//!
//! # Invariants
//!
//! * A peer is made once for each rank, never for this one, and its number is that of `verbs_backend::rd`.
//! * The table of peers grows with the ranks that were talked to.

use super::landings::Landings;
use super::open::{Contact, Directory};
use super::queues::Destinations;
use fabric_api::expected::Expected;
use fabric_api::place::Placement;
use portals_core::ProcessId;
use verbs_backend::rd::PeerId;

/// A rank that was talked to.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: usize,
    pub(super) to: Destinations,
    /// Its user and job.
    pub(super) who: (u32, u32),
    /// Frames sent that are no answers, modulo 2^32.
    pub(super) frames_sent: u32,
    /// Requests that wait for an answer, and the numbers of their frames.
    pub(super) expected: Expected,
    pub(super) landings: Landings,
    /// It has closed in good order, as was found out elsewhere.
    pub(super) left: bool,
    /// Words of the peer that nobody has looked at.
    pub(super) words: u8,
}

/// All ranks of the job.
#[derive(Debug)]
pub(super) struct Peers {
    own_rank: usize,
    own_id: ProcessId,
    place: Placement,
    /// By rank.
    ids: Vec<ProcessId>,
    /// By rank.
    known: Vec<Option<PeerId>>,
    /// By [`PeerId`].
    met: Vec<Peer>,
    directory: Directory,
}

impl Peers {
    /// None was talked to; `ids` are those of all ranks, as far as they exist, of `size`.
    pub(super) fn new(
        (own_rank, own_id): (usize, ProcessId),
        size: usize,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
    ) -> Self {
        Self {
            own_rank,
            own_id,
            place,
            ids,
            known: vec![None; size],
            met: Vec::new(),
            directory,
        }
    }

    pub(super) fn own_rank(&self) -> usize {
        self.own_rank
    }

    pub(super) fn own_id(&self) -> ProcessId {
        self.own_id
    }

    /// The rank of a process; `None` for this one, and for those of no rank.
    pub(super) fn rank_of(&self, to: ProcessId) -> Option<usize> {
        self.place
            .find(to, |rank| self.ids.get(rank) == Some(&to))
            .filter(|rank| *rank != self.own_rank)
    }

    /// The process of a rank.
    pub(super) fn process(&self, rank: usize) -> Option<ProcessId> {
        self.ids.get(rank).copied()
    }

    /// Whether a number is that of another rank.
    pub(super) fn is_rank(&self, number: usize) -> bool {
        number < self.ids.len() && number != self.own_rank
    }

    /// How far a process is: 0 for this one, 1 on another node.
    pub(super) fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.own_id {
            return Some(0);
        }
        self.rank_of(to)
            .map(|_| u64::from(to.nid != self.own_id.nid))
    }

    /// The peer of a rank that was talked to.
    pub(super) fn known(&self, rank: usize) -> Option<PeerId> {
        self.known.get(rank).copied().flatten()
    }

    pub(super) fn get(&self, id: PeerId) -> Option<&Peer> {
        self.met.get(id.index())
    }

    pub(super) fn get_mut(&mut self, id: PeerId) -> Option<&mut Peer> {
        self.met.get_mut(id.index())
    }

    pub(super) fn of_rank_mut(&mut self, rank: usize) -> Option<&mut Peer> {
        let id = self.known(rank)?;
        self.get_mut(id)
    }

    /// Those that were talked to.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.met.iter()
    }

    /// How many were talked to.
    pub(super) fn count(&self) -> usize {
        self.met.len()
    }

    /// How a rank can be talked to; `None`, and a line, if nothing says so.
    pub(super) fn contact(&mut self, rank: usize) -> Option<Contact> {
        match self.directory.find(u32::try_from(rank).ok()?) {
            Ok(contact) => Some(contact),
            Err(error) => {
                tracing::error!(peer = rank, %error, "no address");
                None
            }
        }
    }

    /// Adds the peer of a rank, which `rd` has given this number.
    pub(super) fn insert(&mut self, id: PeerId, rank: usize, to: Destinations, who: (u32, u32)) {
        if id.index() == self.met.len() {
            self.met.push(Peer {
                rank,
                to,
                who,
                frames_sent: 0,
                expected: Expected::default(),
                landings: Landings::default(),
                left: false,
                words: 0,
            });
        }
        if let Some(known) = self.known.get_mut(rank) {
            *known = Some(id);
        }
    }
}
