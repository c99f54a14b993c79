//! Where ranks are, and how they leave.

use super::{Rank, RankState, Return, Sim, SimError};
use fabric_api::place;
use portals_core::NiConfig;

impl Sim {
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
        // The process may use its memory for anything from here on (rule 66).
        self.nodes.0[node].driver.memory.revoke(process);
        self.returns.push_back(Return {
            rank,
            clock,
            result,
        });
    }
}

/// Node and process index of each rank: node ids say the node, and processes count by rank.
pub(super) fn place(configs: &[NiConfig]) -> Result<Vec<(usize, usize)>, SimError> {
    let mut places: Vec<(usize, usize)> = Vec::with_capacity(configs.len());
    for (rank, config) in configs.iter().enumerate() {
        let id = config.id;
        let refuse = || SimError::Process { rank, id };
        // Every node up to the last needs a kernel: ids are as dense as ranks.
        let node = place::node_index(id.nid).filter(|n| (*n as usize) < configs.len());
        let node = node.ok_or_else(refuse)? as usize;
        if configs[..rank].iter().any(|c| c.id == id) {
            return Err(refuse());
        }
        let process = places.iter().filter(|p| p.0 == node).count();
        places.push((node, process));
    }
    Ok(places)
}
