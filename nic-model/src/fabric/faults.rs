//! Lets the scripted faults of a world happen at their instants.
//!
//! A fault is no event: it happens just before the first event at or after its instant, so that a
//! world at rest stays at rest, and that a machine may boot before its first fault.

use std::collections::VecDeque;

use super::Fabric;
use crate::defs::niccb::crash;
use crate::faults::{Fault, Faults};
use crate::time::SimTime;
use crate::topology::{NodeId, Port};
use crate::trace::What;

/// An instant at which a fault begins or ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Edge {
    at: SimTime,
    fault: Fault,
}

impl Faults {
    /// All beginnings and ends, earliest first; equal ones in the order of the script.
    pub(crate) fn edges(&self) -> VecDeque<Edge> {
        let mut edges = Vec::new();
        for &fault in self.script() {
            let mut edge = |at| edges.push(Edge { at, fault });
            match fault {
                Fault::DeadLink { at, .. } | Fault::DeadNode { at, .. } => edge(at),
                Fault::SlowDma { from, until, .. } | Fault::SlowLink { from, until, .. } => {
                    edge(from);
                    edge(until);
                }
                Fault::StalledHost { from, .. } => edge(from),
                Fault::LinkRates { .. }
                | Fault::LostPacket { .. }
                | Fault::CorruptedPacket { .. } => {}
            }
        }
        edges.sort_by_key(|edge| edge.at);
        edges.into()
    }
}

impl Fabric {
    /// Lets the faults happen that come before the next event.
    pub(crate) fn handle_faults(&mut self) {
        while let Some(&Edge { at, fault }) = self.edges.front() {
            if self.queue.next_time().is_none_or(|next| next < at) {
                return;
            }
            self.edges.pop_front();
            let (node, name) = fault.place();
            self.trace.note(at, node, What::Fault { name });
            self.happen(at, fault);
        }
    }

    fn happen(&mut self, at: SimTime, fault: Fault) {
        match fault {
            Fault::DeadLink { node, port, .. } => {
                self.network
                    .kill_links(&mut self.queue, at, &[(node, port)]);
            }
            Fault::DeadNode { node, router, .. } => {
                self.stop(node, crash::STOPPED, at);
                if router {
                    let topology = &self.network.topology;
                    let links: Vec<(NodeId, Port)> = Port::LINKS
                        .into_iter()
                        .filter(|&port| topology.has_link(node, port))
                        .map(|port| (node, port))
                        .collect();
                    self.network.kill_links(&mut self.queue, at, &links);
                }
            }
            Fault::SlowDma { node, .. } => {
                // Twice the time at half the rate.
                let percent = self.faults.dma_percent(node, at).max(1);
                self.chips[node.index()].faults.dma_slower = 10_000 / percent - 100;
            }
            Fault::SlowLink { node, port, .. } => {
                let topology = &self.network.topology;
                let percent = self.faults.link_percent(topology, node, port, at);
                self.network.slow_link(node, port, percent);
            }
            Fault::StalledHost { node, .. } => {
                let resumes = self.faults.host_resumes(node, at);
                let stalled = &mut self.chips[node.index()].faults.host_stalled;
                *stalled = resumes.max(*stalled);
            }
            Fault::LinkRates { .. } | Fault::LostPacket { .. } | Fault::CorruptedPacket { .. } => {}
        }
        self.network.settle(&mut self.queue, at);
    }
}
