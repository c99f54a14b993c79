//! Where ranks are, how they call, wait outside, return and leave.

use super::{Rank, RankState, Request, Return, Sim, SimError};
use fabric_api::call::{Answer, Call, Wait};
use fabric_api::place;
use nic_model::SimTime;
use portals_core::NiConfig;

impl Rank {
    /// Whether a thread of it is in a call.
    pub(super) fn is_in_call(&self) -> bool {
        match self.state {
            RankState::Calling(_)
            | RankState::Waiting { .. }
            | RankState::Returning
            | RankState::Writing(_)
            | RankState::Asking(_)
            | RankState::Computing { .. } => true,
            RankState::Running
            | RankState::Outside
            | RankState::Silent
            | RankState::Rejoining
            | RankState::Entering
            | RankState::Gone { .. } => false,
        }
    }

    /// Whether the ranks that are back from outside wait for it.
    fn is_awaited(&self) -> bool {
        let is_back = matches!(self.state, RankState::Rejoining | RankState::Gone { .. });
        self.outside > 0 && !is_back
    }
}

impl Sim {
    /// A rank calls. `false`, and nothing happens: it may not ask that now, as a rank has one call at a time.
    #[must_use]
    pub(crate) fn handle_call(&mut self, rank: usize, request: Request) -> bool {
        let now = self.now;
        if self.places.is_some() {
            self.take_turn(rank);
        }
        let Some(r) = self.ranks.get_mut(rank) else {
            return false;
        };
        if matches!(r.state, RankState::Silent) {
            r.state = RankState::Running;
            r.clock = r.clock.max(now);
            self.running += 1;
        }
        let runs = match r.state {
            RankState::Running => true,
            RankState::Outside => false,
            _ => return false,
        };
        self.nodes.all[r.node].driver.memory.has_run(r.process);
        if !runs {
            // Time has passed without it.
            r.clock = r.clock.max(now);
        }
        let returned = |r: &Rank| Return {
            rank,
            clock: r.clock,
            result: Ok(Answer::Done),
        };
        match request {
            Request::Call(call) => r.state = RankState::Calling(call),
            Request::Slice(eqs, nanos) => {
                r.slices = true;
                let wait = Wait::Nanos(nanos);
                r.state = RankState::Calling(Call::EqPoll { eqs, wait });
            }
            Request::Strayed(call) if self.places.is_some() => {
                r.strays = true;
                r.state = RankState::Calling(call);
            }
            Request::Enter if self.places.is_some() => {
                self.enter(rank);
                return true;
            }
            Request::Forget(peer) if self.places.is_some() => {
                self.returns.push_back(returned(r));
                self.forget_peer(rank, peer);
                return true;
            }
            Request::Strayed(_) | Request::Enter | Request::Forget(_) => return false,
            Request::Leave => {
                r.state = RankState::Outside;
                r.outside += 1;
                self.returns.push_back(returned(r));
            }
            Request::Rejoin if runs => return false,
            Request::Rejoin if r.outside > 1 => {
                r.outside -= 1;
                self.returns.push_back(returned(r));
            }
            Request::Rejoin => {
                r.state = RankState::Rejoining;
                self.rejoining += 1;
                self.rejoin();
            }
        }
        let r = &self.ranks[rank];
        if matches!(r.state, RankState::Calling(_)) {
            self.waiting_calls.add(rank, r.clock);
        }
        if runs {
            self.running -= 1;
        }
        true
    }

    /// Lets the ranks that are back in, once nobody is outside any more.
    pub(super) fn rejoin(&mut self) {
        if self.rejoining == 0 || self.places.is_none() && self.ranks.iter().any(Rank::is_awaited) {
            return;
        }
        self.rejoining = 0;
        let back: Vec<usize> = (0..self.ranks.len())
            .filter(|&r| matches!(self.ranks[r].state, RankState::Rejoining))
            .collect();
        let at = back
            .iter()
            .map(|&r| self.ranks[r].clock)
            .fold(self.now, SimTime::max);
        for rank in back {
            let r = &mut self.ranks[rank];
            r.outside = u32::from(!r.met);
            self.finish(rank, at, Ok(Answer::Done));
        }
    }

    /// Answers a rank, which runs from `at` on; one of which a thread is outside does not hold time, and none whose process has another
    /// thread in a call.
    pub(super) fn return_to(&mut self, rank: usize, at: SimTime) {
        let Some(result) = self.results[rank].take() else {
            return;
        };
        let others_call = self.has_others_in_calls(rank);
        let r = &mut self.ranks[rank];
        if !matches!(r.state, RankState::Returning) {
            return;
        }
        if !r.met && matches!(result, Ok(Answer::Polled(Some(_)))) {
            // It has heard of somebody.
            r.enter();
        }
        if r.outside > 0 {
            r.state = RankState::Outside;
        } else if others_call {
            r.state = RankState::Silent;
        } else {
            r.state = RankState::Running;
            self.running += 1;
        }
        r.clock = at;
        self.trace_return(rank, at);
        self.returns.push_back(Return {
            rank,
            clock: at,
            result,
        });
    }

    /// Answers the last call of a rank and counts it out.
    pub(super) fn close(&mut self, rank: usize) {
        let Some(result) = self.results[rank].take() else {
            return;
        };
        let Rank {
            clock,
            node,
            process,
            ..
        } = self.ranks[rank];
        self.ranks[rank].state = RankState::Gone { closed: true };
        self.live -= 1;
        // The process may use its memory for anything from here on (rule 66).
        self.nodes.all[node].driver.memory.revoke(process);
        self.vacate(rank, clock);
        self.returns.push_back(Return {
            rank,
            clock,
            result,
        });
        self.rejoin();
    }
}

/// Node and process index of each rank: node ids say the node, and processes count by rank.
pub(super) fn place(configs: &[NiConfig]) -> Result<Vec<(usize, usize)>, SimError> {
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(configs.len());
    let mut pids: Vec<Vec<u32>> = vec![Vec::new(); configs.len()];
    for (rank, config) in configs.iter().enumerate() {
        let id = config.id;
        let refuse = || SimError::Process { rank, id };
        // Every node up to the last needs a kernel: ids are as dense as ranks.
        let node = place::node_index(id.nid).filter(|n| (*n as usize) < configs.len());
        let node = node.ok_or_else(refuse)? as usize;
        let of_node = &mut pids[node];
        if of_node.contains(&id.pid) {
            return Err(refuse());
        }
        places.push((node, of_node.len()));
        of_node.push(id.pid);
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_core::{Limits, ProcessId};

    fn placed(names: &[(u32, u32)]) -> Result<Vec<(usize, usize)>, SimError> {
        let config = |&(node, pid): &(u32, u32)| NiConfig {
            id: ProcessId {
                nid: place::FIRST_NID + node,
                pid,
            },
            uid: 0,
            jid: 0,
            interface: 0,
            limits: Limits::LIBRARY,
            get_send_events: false,
        };
        place(&names.iter().map(config).collect::<Vec<_>>())
    }

    #[test]
    fn processes_of_a_node_count_by_rank() {
        let placed = placed(&[(1, 7), (0, 7), (1, 5), (0, 8)]).unwrap();
        assert_eq!(placed, [(1, 0), (0, 0), (1, 1), (0, 1)]);
    }

    #[test]
    fn two_ranks_of_one_name_or_a_node_too_far_are_refused() {
        assert!(placed(&[(0, 1), (1, 1), (0, 1)]).is_err());
        assert!(placed(&[(0, 1), (2, 1)]).is_err());
    }
}
