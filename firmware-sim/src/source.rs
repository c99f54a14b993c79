//! Source structures: what the firmware remembers of each peer.

use std::collections::BTreeMap;

use nic_model::NodeId;

/// The sequence numbers of one peer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Source {
    /// Of the next message to it.
    pub(crate) tx_next: u16,
    /// Expected of its next message.
    pub(crate) rx_next: u16,
}

/// All peers, at most as many as SRAM has room for.
#[derive(Debug)]
pub(crate) struct Sources {
    limit: usize,
    known: BTreeMap<u16, Source>,
}

impl Sources {
    pub(crate) fn new(limit: u32) -> Self {
        Self {
            limit: limit as usize,
            known: BTreeMap::new(),
        }
    }

    /// The structure of `nid`, taken from the free list at first sight; `None` when all are taken.
    pub(crate) fn entry(&mut self, nid: NodeId) -> Option<&mut Source> {
        if self.known.len() >= self.limit && !self.known.contains_key(&nid.0) {
            return None;
        }
        Some(self.known.entry(nid.0).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_run_out_but_known_ones_stay() {
        let mut sources = Sources::new(2);
        sources.entry(NodeId(7)).unwrap().tx_next = 5;
        assert!(sources.entry(NodeId(8)).is_some());
        assert!(sources.entry(NodeId(9)).is_none());
        assert_eq!(sources.entry(NodeId(7)).unwrap().tx_next, 5);
    }
}
