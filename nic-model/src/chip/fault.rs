//! Faults of a chip and its host, and what the RAS controllers make of them.
//!
//! | fault | what happens |
//! |---|---|
//! | [`World::stop_node`] | firmware and engines stop; packets for the node are thrown away and counted; after `declared_dead` every other node's controller is told and interrupts its host |
//! | [`World::stall_host`] | the host takes no interrupt until later; everything else goes on |
//! | [`World::slow_dma`] | both engines of a node take a multiple of their time |
//!
//! A real dead node does not take packets: they fill its router until the RAS system reroutes.
//! Here they are thrown away, so that the rest of the machine goes on.

use super::{Chip, SramIo};
use crate::defs::niccb::{Counter, crash};
use crate::defs::ras::{Channel, RasEvent, event};
use crate::fabric::Fabric;
use crate::queue::Event;
use crate::time::{SimDuration, SimTime};
use crate::topology::NodeId;
use crate::world::World;

/// What is wrong with a chip.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ChipFaults {
    /// Why the firmware has stopped.
    pub(crate) crashed: Option<u32>,
    /// The host takes no interrupt before.
    pub(crate) host_stalled: SimTime,
    /// Time of the engines in percent of a sound chip's, less 100.
    pub(crate) dma_slower: u32,
}

impl ChipFaults {
    /// What a transfer takes that takes `time` on a sound chip.
    pub(crate) fn dma(&self, time: SimDuration) -> SimDuration {
        match self.dma_slower {
            0 => time,
            more => time + SimDuration(time.0.saturating_mul(u64::from(more)) / 100),
        }
    }
}

impl Chip {
    /// Brings the heartbeat up to date.
    pub(crate) fn tick(&mut self, now: SimTime, period: SimDuration) {
        if self.faults.crashed.is_none() {
            let beats = now.0 / period.0.max(1);
            self.sram_write(Counter::HEARTBEAT.address(), beats as u32);
        }
    }

    /// Stops firmware and engines; what they hold is lost.
    pub(crate) fn stop(&mut self, reason: u32, now: SimTime, period: SimDuration) {
        self.tick(now, period);
        self.faults.crashed = Some(reason);
        let beat = self.counter(Counter::HEARTBEAT);
        self.sram_write(Counter::CRASH_CONTROL.address(), reason);
        self.sram_write(Counter::CRASH_HEARTBEAT.address(), beat);
    }
}

impl Fabric {
    /// Stops a node that runs.
    pub(crate) fn stop(&mut self, node: NodeId, reason: u32, now: SimTime) {
        let Some(chip) = self.chips.get_mut(node.index()) else {
            return;
        };
        if chip.faults.crashed.is_some() {
            return;
        }
        let protocol = self.machine.protocol;
        chip.stop(reason, now, protocol.heartbeat);
        chip.tx.stop();
        for packet in chip.rx.stop() {
            self.network.remove(packet);
        }
        self.queue
            .push(now + protocol.declared_dead, Event::NodeFailed { node });
    }

    /// The silence of `failed` has been noticed: every live node's controller tells its host.
    pub(crate) fn node_declared_dead(&mut self, failed: NodeId) {
        let news = RasEvent {
            code: event::NODE_FAILED,
            nid: failed.0,
            data: Vec::new(),
        };
        for (n, chip) in self.chips.iter_mut().enumerate() {
            if chip.faults.crashed.is_some() {
                continue;
            }
            // A host that leaves its channel full misses the event; it can read the heartbeats.
            news.post(Channel::EventDown, &mut SramIo(chip));
            if !chip.ras_waiting {
                chip.ras_waiting = true;
                self.ras_interrupts.push_back((self.now, NodeId(n as u16)));
            }
        }
    }
}

impl<F> World<F> {
    /// Stops the firmware and the engines of `node` at the present, as a node that fails.
    pub fn stop_node(&mut self, node: NodeId) {
        let now = self.fabric.now;
        self.fabric.stop(node, crash::STOPPED, now);
    }

    /// Why the firmware of `node` has stopped, one of [`crash`]; `None` while it runs.
    #[must_use]
    pub fn stopped(&self, node: NodeId) -> Option<u32> {
        self.fabric.chips.get(node.index())?.faults.crashed
    }

    /// The host of `node` takes no interrupt before `until`.
    pub fn stall_host(&mut self, node: NodeId, until: SimTime) {
        if let Some(chip) = self.fabric.chips.get_mut(node.index()) {
            chip.faults.host_stalled = until;
        }
    }

    /// Both engines of `node` take `percent` of their time, at least 100.
    pub fn slow_dma(&mut self, node: NodeId, percent: u32) {
        if let Some(chip) = self.fabric.chips.get_mut(node.index()) {
            chip.faults.dma_slower = percent.saturating_sub(100);
        }
    }

    /// The oldest interrupt of a RAS controller: when, and of which host. The host reads its
    /// [event channel](crate::defs::ras) until that is empty.
    pub fn poll_ras_interrupt(&mut self) -> Option<(SimTime, NodeId)> {
        let (time, node) = self.fabric.ras_interrupts.pop_front()?;
        self.fabric.chips[node.index()].ras_waiting = false;
        Some((time, node))
    }

    /// What the host of `node` has written for its controller: the next event.
    pub fn poll_ras_event(&mut self, node: NodeId) -> Option<RasEvent> {
        let chip = self.fabric.chips.get_mut(node.index())?;
        RasEvent::take(Channel::EventUp, &mut SramIo(chip))
    }

    /// What the host of `node` has written to its console since the last call.
    pub fn poll_console(&mut self, node: NodeId) -> Vec<u8> {
        match self.fabric.chips.get_mut(node.index()) {
            Some(chip) => Channel::ConsoleUp.read(&mut SramIo(chip), usize::MAX),
            None => Vec::new(),
        }
    }

    /// Types `bytes` on the console of `node`; whether there was room.
    pub fn type_console(&mut self, node: NodeId, bytes: &[u8]) -> bool {
        match self.fabric.chips.get_mut(node.index()) {
            Some(chip) => Channel::ConsoleDown.write(&mut SramIo(chip), bytes),
            None => false,
        }
    }
}
