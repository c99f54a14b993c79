//! Hosts that stand still, ranks and nodes that are gone, programs that wait for nothing.

use super::{Rank, RankState, Sim};
use nic_model::{NodeId, SimTime};
use portals_core::{EqHandle, Error};

impl Sim {
    /// When the host of a node executes what is due at `at`: later if it is stalled then.
    pub(super) fn runs(&self, n: usize, at: SimTime) -> SimTime {
        self.world.faults().host_resumes(NodeId(n as u16), at)
    }

    /// Whether the chip of a node has stopped for good.
    pub(super) fn is_stopped(&self, n: usize) -> bool {
        self.world.stopped(NodeId(n as u16)).is_some()
    }

    /// The RAS controllers have noticed that a node has failed: the waits of its own ranks end, and
    /// the other kernels are told.
    pub(super) fn node_failed(&mut self, failed: usize) {
        let now = self.now;
        for i in 0..self.members.get(failed).map_or(0, Vec::len) {
            let rank = self.members[failed][i];
            match self.ranks[rank].state {
                RankState::Waiting { .. } => self.finish(rank, now, Err(Error::Fail)),
                RankState::Asking(_) | RankState::Writing(_) => self.accel_strand(now, rank),
                _ => {}
            }
        }
        while let Some((at, node)) = self.world.poll_ras_interrupt() {
            let n = node.index();
            let Some(kernel) = self.nodes.all.get_mut(n) else {
                continue;
            };
            let start = kernel.free_at.max(at) + kernel.interrupt_entry();
            kernel.ras_interrupt(&mut self.world.registers(node, start));
            let done = self.settle(n, start);
            let kernel = &mut self.nodes.all[n];
            kernel.free_at = kernel.free_at.max(done);
            self.wake(n, done);
        }
    }

    /// Nothing will ever happen again. If ranks wait, and no rank vanished in a way its launcher
    /// deals with, their waits fail.
    pub(super) fn break_deadlock(&mut self) -> bool {
        let vanished = |r: &Rank| matches!(r.state, RankState::Gone { closed: false });
        let outside =
            |r: &Rank| r.outside > 0 || matches!(r.state, RankState::Silent | RankState::Rejoining);
        // Who comes may have something for those who wait.
        if self.places.is_some() {
            return false;
        }
        if self.running > 0 || self.ranks.iter().any(|r| vanished(r) || outside(r)) {
            return false;
        }
        let waiting: Vec<usize> = (0..self.ranks.len())
            .filter(|&r| {
                matches!(
                    self.ranks[r].state,
                    RankState::Waiting { limited: false, .. } | RankState::Asking(_)
                )
            })
            .collect();
        if waiting.is_empty() {
            return false;
        }
        self.deadlocks += 1;
        let now = self.now;
        for rank in waiting {
            match self.ranks[rank].state {
                RankState::Asking(_) => self.accel_strand(now, rank),
                _ => self.finish(rank, now, Err(Error::Fail)),
            }
        }
        true
    }

    /// Whether a wait for ever on these queues is over, as a peer was lost and no event says so.
    pub(super) fn has_lost(&mut self, rank: usize, eqs: &[EqHandle]) -> bool {
        let Rank { node, process, .. } = self.ranks[rank];
        self.nodes.all[node].has_lost(process, eqs)
    }

    /// A rank's process is gone.
    pub(crate) fn handle_exit(&mut self, rank: usize) {
        self.depart(rank, false);
    }

    /// A rank does not keep to the rules of its connection, which has been closed: to the others it has left, though its
    /// process lives. Nobody else ends their waits for it.
    pub(crate) fn handle_dismissal(&mut self, rank: usize) {
        self.depart(rank, true);
    }

    fn depart(&mut self, rank: usize, closed: bool) {
        let Some(r) = self.ranks.get_mut(rank) else {
            return;
        };
        match r.state {
            RankState::Gone { .. } => return,
            RankState::Running => self.running -= 1,
            RankState::Rejoining => self.rejoining -= 1,
            _ => {}
        }
        r.state = RankState::Gone { closed };
        self.live -= 1;
        let Rank { node, process, .. } = *r;
        self.nodes.all[node].driver.memory.revoke(process);
        self.vacate(rank, self.now);
        // An interrupt that waited for its call waits no more.
        if !self.nodes.all[node].handling && !self.calling(node) {
            self.interrupt(node);
        }
        self.rejoin();
    }
}
