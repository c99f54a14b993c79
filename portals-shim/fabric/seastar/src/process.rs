//! A process as the kernel of its node knows it: its library, whose messages the kernel takes.

use crate::trusted::TRUST;
use fabric_api::call::RemoteKey;
use fabric_api::library::Library;
use fabric_api::nal::{Look, Nal};
use fabric_api::place;
use portals_core::{Ni, NiConfig, ProcessId, Transmit};
use std::collections::VecDeque;

/// The Portals state of one process.
pub(super) type Process = Library<Outbox>;

/// The state of a process at the start.
pub(super) fn new(config: NiConfig, nodes: u32) -> Process {
    let outbox = Outbox {
        own: config.id,
        nodes,
        sent: VecDeque::new(),
    };
    let mut ni = Ni::new(config);
    // The kernel walks, and pays for each step.
    ni.walk_lists();
    Library::new(ni, outbox, TRUST)
}

/// What lies below a process's library: messages wait here until the kernel, at the end of the
/// trap, gives them to the driver or to another process of the node.
#[derive(Debug)]
pub(super) struct Outbox {
    own: ProcessId,
    nodes: u32,
    pub(super) sent: VecDeque<Transmit>,
}

impl Nal for Outbox {
    const CARRIES_OWN: bool = true;

    fn send(&mut self, _ni: &mut Ni, tx: &mut Transmit, _: Option<&RemoteKey>) {
        self.sent.push_back(tx.clone());
    }

    fn progress(&mut self, _ni: &mut Ni, _: Look) -> bool {
        false
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        place::node_index(to.nid)
            .filter(|node| *node < self.nodes)
            .map(|_| u64::from(to.nid != self.own.nid))
    }
}
