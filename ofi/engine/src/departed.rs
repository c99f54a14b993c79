//! Peers that have ended: who comes after them takes their place.
//!
//! # Invariants
//!
//! * A place is taken by another peer only when nothing that is under way names it.
//! * What a peer has sent before its end, and is handled after that is known, finds the peer still there: places become free when
//!   somebody new comes, and not before.

use crate::core::{Core, Pending, Use};
use crate::peers::Acquaintance;
use portals_shim::ProcessId;

impl Core {
    /// The number of a peer, which is a new one if it is not known.
    #[inline]
    pub(crate) fn number(&mut self, id: ProcessId) -> usize {
        match self.peers.find(id) {
            Some(at) => at,
            None => self.meet(id),
        }
    }

    #[cold]
    fn meet(&mut self, id: ProcessId) -> usize {
        let mut departed = std::mem::take(&mut self.departed);
        departed.retain(|at| {
            if self.is_back(*at) {
                return false;
            }
            let named = self.is_named(*at);
            if !named {
                self.peers.vacate(*at);
            }
            named
        });
        self.departed = departed;
        self.peers.number(id)
    }

    /// The fabric has given up the peer of this number.
    pub(crate) fn departs(&mut self, at: usize) {
        if !self.departed.contains(&at) {
            self.departed.push(at);
        }
    }

    /// It was taken for ended, and has spoken or been spoken to since.
    fn is_back(&mut self, at: usize) -> bool {
        let peer = self.peers.get(at);
        peer.state != Acquaintance::New || peer.link.is_some()
    }

    /// Something that is under way is for the peer of this number.
    fn is_named(&mut self, at: usize) -> bool {
        let tells = |told: &Option<(usize, u64)>| told.is_some_and(|(to, _)| to == at);
        let sent = |(to, used): &(usize, Use)| {
            *to == at || matches!(used, Use::Write { told, .. } if tells(told))
        };
        let awaited = |pending: &Pending| match pending {
            Pending::Exposed { peer, .. }
            | Pending::Awaited { peer, .. }
            | Pending::Atomic { peer, .. } => *peer == at,
            Pending::Remote { told, .. } => tells(told),
            Pending::Fetch { .. } => false,
        };
        self.uses.iter().flatten().any(sent)
            || self.pending.values().any(awaited)
            || self.peers.get(at).queue.len() != (0, 0)
    }
}
