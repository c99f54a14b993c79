//! The other ranks of a job, or the peers of an endpoint, by their indices.
//!
//! # Invariants
//!
//! * Each index has a place in `ids` and one in `all`, which is taken away at the end.
//! * `met` has the index of each peer that there is, once.
//! * `latest` is the own index, or that of somebody else who was sent to.

use crate::peer::Peer;
use fabric_api::place::Placement;
use portals_core::ProcessId;
use std::collections::BTreeMap;

/// No process has this id.
pub(crate) const NOBODY: ProcessId = ProcessId::new(0, 0);

/// Ranks by the queue pairs of their connections.
#[derive(Debug, Default)]
struct QpTable {
    all: BTreeMap<u32, usize>,
    /// The one asked for last; completions of a queue pair come in rows.
    last: Option<(u32, usize)>,
}

impl QpTable {
    #[inline]
    fn rank(&mut self, qpn: u32) -> Option<usize> {
        match self.last {
            Some((last, rank)) if last == qpn => Some(rank),
            _ => self.find(qpn),
        }
    }

    fn find(&mut self, qpn: u32) -> Option<usize> {
        let rank = *self.all.get(&qpn)?;
        self.last = Some((qpn, rank));
        Some(rank)
    }
}

/// Who there is, and the peers among them that were talked to.
#[derive(Debug)]
pub(crate) struct Peers {
    own: usize,
    place: Placement,
    ids: Vec<ProcessId>,
    /// Whom a message went to last, who is likely to be the next one; the own index at first.
    latest: usize,
    /// None for the own index and those never talked to.
    all: Vec<Option<Box<Peer>>>,
    met: Vec<usize>,
    by_qpn: QpTable,
}

impl Peers {
    /// Nobody of `ids` has been talked to, of which `own` is this process.
    pub(crate) fn new(own: usize, size: usize, place: Placement, ids: Vec<ProcessId>) -> Self {
        Self {
            own,
            place,
            ids,
            latest: own,
            all: (0..size).map(|_| None).collect(),
            met: Vec::new(),
            by_qpn: QpTable::default(),
        }
    }

    /// The index of this process.
    #[inline(always)]
    pub(crate) fn own(&self) -> usize {
        self.own
    }

    /// Indices that there are.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whose index this is.
    pub(crate) fn id(&self, rank: usize) -> Option<ProcessId> {
        self.ids.get(rank).copied()
    }

    /// The index of another process of the job.
    #[inline]
    pub(crate) fn rank_of(&self, to: ProcessId) -> Option<usize> {
        if self.ids.get(self.latest) == Some(&to) && self.latest != self.own {
            return Some(self.latest);
        }
        self.look_up(to)
    }

    fn look_up(&self, to: ProcessId) -> Option<usize> {
        self.place
            .find(to, |rank| self.ids.get(rank) == Some(&to))
            .filter(|rank| *rank != self.own)
    }

    /// A message went to this one.
    #[inline(always)]
    pub(crate) fn sent_to(&mut self, rank: usize) {
        self.latest = rank;
    }

    /// A peer that was talked to.
    #[inline(always)]
    pub(crate) fn get(&self, rank: usize) -> Option<&Peer> {
        self.all.get(rank)?.as_deref()
    }

    /// A peer that was talked to.
    #[inline(always)]
    pub(crate) fn get_mut(&mut self, rank: usize) -> Option<&mut Peer> {
        self.all.get_mut(rank)?.as_deref_mut()
    }

    /// The state kept for a peer, made by `new` when it is first needed.
    pub(crate) fn meet(
        &mut self,
        rank: usize,
        new: impl FnOnce(ProcessId) -> Peer,
    ) -> Option<&mut Peer> {
        let id = *self.ids.get(rank).filter(|_| rank != self.own)?;
        let slot = self.all.get_mut(rank)?;
        if slot.is_none() {
            self.met.push(rank);
        }
        Some(slot.get_or_insert_with(|| Box::new(new(id))))
    }

    /// How many were talked to.
    pub(crate) fn met(&self) -> usize {
        self.met.len()
    }

    /// The index of the `at`th that was talked to.
    pub(crate) fn met_at(&self, at: usize) -> Option<usize> {
        self.met.get(at).copied()
    }

    /// All that were talked to, and their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Peer)> {
        let met = self.met.iter();
        met.filter_map(|rank| Some((*rank, self.get(*rank)?)))
    }

    /// Does something with each that was talked to.
    #[inline]
    pub(crate) fn each(&mut self, mut does: impl FnMut(&mut Peer)) {
        for rank in &self.met {
            if let Some(peer) = self.all.get_mut(*rank).and_then(Option::as_deref_mut) {
                does(peer);
            }
        }
    }

    /// Who is at the other end of a queue pair.
    #[inline]
    pub(crate) fn by_qpn(&mut self, qpn: u32) -> Option<usize> {
        self.by_qpn.rank(qpn)
    }

    /// A queue pair is the peer's.
    pub(crate) fn joined(&mut self, qpn: u32, rank: usize) {
        self.by_qpn.last = None;
        self.by_qpn.all.insert(qpn, rank);
    }

    /// A queue pair is nobody's any more.
    pub(crate) fn parted(&mut self, qpn: u32) {
        self.by_qpn.last = None;
        self.by_qpn.all.remove(&qpn);
    }

    /// An index is that of this process from here on; the first one past the end is a new one.
    pub(crate) fn name(&mut self, rank: usize, id: ProcessId) -> Option<()> {
        if rank == self.ids.len() {
            self.ids.push(NOBODY);
            self.all.push(None);
        }
        *self.ids.get_mut(rank)? = id;
        Some(())
    }

    /// Forgets what was said between a peer and this side.
    pub(crate) fn forget(&mut self, rank: usize) {
        if let Some(slot) = self.all.get_mut(rank) {
            *slot = None;
        }
        self.met.retain(|met| *met != rank);
    }

    /// An index is nobody's any more.
    pub(crate) fn unname(&mut self, rank: usize) {
        if self.latest == rank {
            self.latest = self.own;
        }
        if let Some(id) = self.ids.get_mut(rank) {
            *id = NOBODY;
        }
    }

    /// Nobody is known any more.
    pub(crate) fn clear(&mut self) {
        self.by_qpn = QpTable::default();
        self.all.clear();
        self.met.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPTH: u32 = 4;

    fn of_job(size: usize, own: usize) -> Peers {
        let ids = (0..size)
            .map(|rank| Placement::ONE.of(rank as u32))
            .collect();
        Peers::new(own, size, Placement::ONE, ids)
    }

    fn meet(peers: &mut Peers, rank: usize) -> bool {
        peers.meet(rank, |id| Peer::new(id, 1, DEPTH)).is_some()
    }

    fn met(peers: &Peers) -> Vec<usize> {
        peers.iter().map(|(rank, _)| rank).collect()
    }

    #[test]
    fn nobody_is_its_own_peer_and_each_is_met_once() {
        let mut peers = of_job(4, 1);
        assert!(!meet(&mut peers, 1) && !meet(&mut peers, 4));
        assert!(meet(&mut peers, 3) && meet(&mut peers, 0) && meet(&mut peers, 3));
        assert_eq!((met(&peers), peers.met(), peers.len()), (vec![3, 0], 2, 4));
        assert!(peers.get(2).is_none() && peers.get_mut(1).is_none());
        let mut seen = 0;
        peers.each(|_| seen += 1);
        assert_eq!(seen, 2);
        peers.forget(3);
        assert!(peers.get(3).is_none());
        assert_eq!(
            (met(&peers), peers.met_at(0), peers.met_at(1)),
            (vec![0], Some(0), None)
        );
    }

    #[test]
    fn an_id_leads_to_its_index_and_the_own_one_to_none() {
        let mut peers = of_job(3, 2);
        for rank in 0..2 {
            let id = peers.id(rank).unwrap();
            assert_eq!(peers.rank_of(id), Some(rank));
            peers.sent_to(rank);
            assert_eq!(peers.rank_of(id), Some(rank));
        }
        assert_eq!(peers.rank_of(peers.id(2).unwrap()), None);
        peers.sent_to(2);
        assert_eq!(peers.rank_of(peers.id(2).unwrap()), None);
    }

    #[test]
    fn what_was_forgotten_is_no_likely_receiver() {
        let mut peers = Peers::new(0, 1, Placement::ONE, vec![ProcessId::new(9, 9)]);
        let (first, second) = (ProcessId::new(5, 1), ProcessId::new(5, 2));
        assert_eq!(
            (peers.name(1, first), peers.name(3, second)),
            (Some(()), None)
        );
        peers.sent_to(1);
        assert_eq!(peers.rank_of(first), Some(1));
        assert!(meet(&mut peers, 1));
        peers.forget(1);
        peers.unname(1);
        assert_eq!(
            (peers.rank_of(first), peers.id(1), peers.met()),
            (None, Some(NOBODY), 0)
        );
        assert_eq!(peers.rank_of(NOBODY), None);
        assert_eq!((peers.name(1, second), peers.len()), (Some(()), 2));
        assert_eq!(peers.id(peers.len()), None);
    }

    #[test]
    fn a_queue_pair_is_its_last_peers() {
        let mut peers = of_job(3, 0);
        peers.joined(70, 1);
        assert_eq!(peers.by_qpn(70), Some(1));
        peers.joined(70, 2);
        assert_eq!(peers.by_qpn(70), Some(2));
        peers.parted(70);
        assert_eq!((peers.by_qpn(70), peers.by_qpn(71)), (None, None));
    }

    #[test]
    fn after_the_end_nobody_is_met() {
        let mut peers = of_job(3, 0);
        assert!(meet(&mut peers, 1));
        peers.joined(70, 1);
        peers.clear();
        assert_eq!((peers.len(), peers.met(), peers.by_qpn(70)), (0, 0, None));
        assert!(!meet(&mut peers, 1) && peers.met() == 0);
    }
}
