//! The router, packet by packet: input buffers, output buffers, credits and arbitration.
//!
//! A packet's head reaches the crossbar with [`Event::Router`]. If nothing is before it, its
//! output is free and the buffer behind has room, it leaves at that instant: no other event.
//! Otherwise it waits in its input's queue, moves to the output's buffer for its input and channel
//! when there is room, and takes part in arbitration there.
//!
//! # Invariants
//!
//! * A bit of [`Output::waiting`] is set exactly if that input's buffer at this output holds a
//!   packet.
//! * An output with packets waiting has an [`Event::Output`] scheduled at `wake_at`, or none of
//!   its packets has credits and no credits are on their way: then the router behind schedules
//!   one when it frees a buffer.
//! * Credits that come back are taken in the order of their times.
//! * A packet is in exactly one place: an event, an input queue or an output buffer.

use std::collections::VecDeque;

use super::link::Passage;
use super::stats::capacity;
use super::{Costs, Crossing, Incident, NODE_PORT, NONE, Network, PORTS, Slot, flag};
use crate::queue::{Event, EventQueue};
use crate::time::{SimDuration, SimTime};
use crate::topology::{NodeId, Port, Topology};

/// Input queues of a router: four for each link, two for the node.
const INPUTS: usize = 26;
const INJECT: usize = 24;
/// Greatest age.
const MAX_AGE: u64 = 255;

/// A first-in-first-out queue through the slots.
#[derive(Debug, Clone, Copy)]
struct Fifo {
    first: u32,
    last: u32,
}

impl Fifo {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };

    fn push(&mut self, slots: &mut [Slot], packet: u32) {
        slots[packet as usize].next = NONE;
        if self.first == NONE {
            self.first = packet;
        } else {
            slots[self.last as usize].next = packet;
        }
        self.last = packet;
    }

    fn pop(&mut self, slots: &[Slot]) -> Option<u32> {
        let first = self.first;
        if first == NONE {
            return None;
        }
        self.first = slots[first as usize].next;
        Some(first)
    }
}

/// An output buffer of one input queue.
#[derive(Debug, Clone, Copy)]
struct Staged {
    fifo: Fifo,
    flits: u16,
}

/// The parts of a router that only packets in each other's way use, and what never changes.
#[derive(Debug)]
pub(super) struct Router {
    neighbours: [NodeId; 6],
    /// Bits of the links that are a ring's dateline.
    wraps: u8,
    inputs: [Fifo; INPUTS],
    /// For each output and input; there from the first packet that waits.
    staged: Vec<Staged>,
}

impl Router {
    pub(super) fn new(topology: &Topology, node: NodeId) -> Self {
        let mut wraps = 0;
        for port in Port::LINKS {
            wraps |= u8::from(topology.is_wrap_link(node, port)) << port.index();
        }
        Self {
            neighbours: Port::LINKS.map(|port| topology.neighbour(node, port)),
            wraps,
            inputs: [Fifo::EMPTY; INPUTS],
            staged: Vec::new(),
        }
    }

    fn staged(&mut self, port: usize, input: usize) -> &mut Staged {
        if self.staged.is_empty() {
            let empty = Staged {
                fifo: Fifo::EMPTY,
                flits: 0,
            };
            self.staged = vec![empty; PORTS * INPUTS];
        }
        &mut self.staged[port * INPUTS + input]
    }
}

/// Credits on their way back.
#[derive(Debug, Clone, Copy)]
struct Return {
    at: SimTime,
    flits: u16,
    vc: u8,
}

/// An output of a router: a link, or the port to the node.
#[derive(Debug)]
pub(super) struct Output {
    pub(super) free_at: SimTime,
    /// When its [`Event::Output`] is; `NEVER` without one. Others are stale.
    wake_at: SimTime,
    /// Inputs with a packet in the output buffer.
    pub(super) waiting: u32,
    /// Free flits of the buffer behind, for each channel; for each class at the node port.
    pub(super) credits: [u16; 4],
    /// Least that `credits` ever were.
    pub(super) least: [u16; 4],
    returns: VecDeque<Return>,
    /// Input that won last.
    last: u8,
    /// Arbitrations so far, modulo 32.
    turn: u8,
    pub(super) retries: u32,
    pub(super) packets: u64,
    pub(super) flits: u64,
    /// Flits in the buffer behind, or on the way there: what the credits are compared with.
    #[cfg(debug_assertions)]
    occupied: [u16; 4],
}

impl Output {
    /// The outputs of all routers.
    pub(super) fn all(costs: &Costs, nodes: usize) -> Vec<Self> {
        (0..nodes * PORTS)
            .map(|n| {
                let credits = capacity(costs, n % PORTS);
                Self {
                    free_at: SimTime::ZERO,
                    wake_at: SimTime::NEVER,
                    waiting: 0,
                    credits,
                    least: credits,
                    returns: VecDeque::new(),
                    last: 0,
                    turn: 0,
                    retries: 0,
                    packets: 0,
                    flits: 0,
                    #[cfg(debug_assertions)]
                    occupied: [0; 4],
                }
            })
            .collect()
    }

    /// Takes the credits that have come back by `now`.
    #[inline]
    fn collect(&mut self, now: SimTime) {
        while let Some(back) = self.returns.front() {
            if back.at > now {
                break;
            }
            self.credits[usize::from(back.vc)] += back.flits;
            self.returns.pop_front();
        }
    }

    /// The input that is to send: the one bit of `eligible`, the oldest packet, or the next one
    /// round robin.
    fn choose(&mut self, eligible: u32, select: u32, age: impl Fn(u8) -> u64) -> u8 {
        let by_age = select >> (self.turn & 31) & 1 != 0;
        self.turn = (self.turn + 1) & 31;
        // Inputs behind the last winner come first.
        let behind = u32::MAX.checked_shl(u32::from(self.last) + 1).unwrap_or(0);
        let round = [eligible & behind, eligible & !behind];
        let mut best = None;
        for mut inputs in round {
            while inputs != 0 {
                let input = inputs.trailing_zeros() as u8;
                inputs &= inputs - 1;
                if !by_age {
                    self.last = input;
                    return input;
                }
                let age = age(input);
                if best.is_none_or(|(oldest, _)| age > oldest) {
                    best = Some((age, input));
                }
            }
        }
        let winner = best.map_or(0, |(_, input)| input);
        self.last = winner;
        winner
    }
}

/// Which credits a packet needs: those of its channel, of its class at the node port.
fn credit_index(slot: &Slot) -> usize {
    if usize::from(slot.output) == NODE_PORT {
        usize::from(slot.class())
    } else {
        usize::from(slot.vc)
    }
}

impl Network {
    /// An injected packet is on its way through the node port into its first router.
    pub(super) fn enter_router(&mut self, queue: &mut EventQueue, now: SimTime, index: u32) {
        let slot = &mut self.slots[index as usize];
        let node = slot.node;
        let input = (INJECT + usize::from(slot.class())) as u8;
        slot.input = input;
        let injection = &mut self.injections[node.index()];
        let at = now.max(injection.free_at);
        injection.free_at = at + self.costs.flit * u64::from(slot.flits);
        let event = Event::Router {
            node,
            input,
            packet: index,
        };
        queue.push(at, event);
    }

    /// A packet's head is at the crossbar of `node`.
    pub(crate) fn route(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        input: u8,
        packet: u32,
    ) {
        if self.routers.is_empty() {
            self.route_unit(queue, now, node, packet);
            return;
        }
        self.stats.hops += 1;
        let slot = &mut self.slots[packet as usize];
        slot.arrived = now;
        slot.node = node;
        slot.input = input;
        if slot.flags & flag::LOST != 0 {
            self.drop_at_input(queue, now, packet);
            return;
        }
        let port = if slot.flags & flag::DETOUR == 0 {
            self.routes.next(&self.topology, node, slot.to)
        } else {
            let destination = NodeId(slot.packet.header.destination());
            self.routes.next_of_detour(node, destination)
        };
        let port = usize::from(port);
        if port > NODE_PORT {
            self.drop_at_input(queue, now, packet);
            return;
        }
        let slot = &mut self.slots[packet as usize];
        if usize::from(input) >> 3 != port >> 1 {
            // Another dimension, or the first: its datelines are all ahead.
            slot.flags &= !flag::CROSSED;
        }
        slot.output = port as u8;
        let second =
            slot.flags & flag::DETOUR != 0 || slot.flags & flag::CROSSED != 0 && self.datelines;
        slot.vc = 2 * slot.class() + u8::from(second);
        let (flits, credit) = (slot.flits, credit_index(slot));
        let router = &mut self.routers[node.index()];
        let output = &mut self.outputs[node.index() * PORTS + port];
        if output.waiting == 0
            && output.free_at <= now
            && router.inputs[usize::from(input)].first == NONE
        {
            output.collect(now);
            if output.credits[credit] >= flits {
                self.leave_input(queue, now, node, input, flits);
                self.depart(queue, now, packet);
                return;
            }
        }
        self.stats.blocked += 1;
        router.inputs[usize::from(input)].push(&mut self.slots, packet);
        self.advance(queue, now, node, usize::from(input));
    }

    /// Moves packets from an input queue to output buffers, as far as there is room.
    fn advance(&mut self, queue: &mut EventQueue, now: SimTime, node: NodeId, input: usize) {
        loop {
            let router = &mut self.routers[node.index()];
            let packet = router.inputs[input].first;
            if packet == NONE {
                return;
            }
            let slot = self.slots[packet as usize];
            if slot.flags & flag::LOST != 0 {
                router.inputs[input].pop(&self.slots);
                self.drop_at_input(queue, now, packet);
                continue;
            }
            let port = usize::from(slot.output);
            let staged = router.staged(port, input);
            if staged.flits + slot.flits > self.costs.output_buffer {
                return;
            }
            staged.flits += slot.flits;
            router.inputs[input].pop(&self.slots);
            self.routers[node.index()]
                .staged(port, input)
                .fifo
                .push(&mut self.slots, packet);
            self.outputs[node.index() * PORTS + port].waiting |= 1 << input;
            self.leave_input(queue, now, node, input as u8, slot.flits);
            self.kick(queue, now, node, port);
        }
    }

    /// Gives an output the occasion to send.
    pub(super) fn kick(&mut self, queue: &mut EventQueue, now: SimTime, node: NodeId, port: usize) {
        let free_at = self.outputs[node.index() * PORTS + port].free_at;
        if free_at > now {
            self.wake(queue, node, port, free_at);
        } else {
            self.arbitrate(queue, now, node, port);
        }
    }

    /// Schedules an occasion, unless there is an earlier one.
    fn wake(&mut self, queue: &mut EventQueue, node: NodeId, port: usize, at: SimTime) {
        let output = &mut self.outputs[node.index() * PORTS + port];
        if at < output.wake_at {
            output.wake_at = at;
            let port = port as u8;
            queue.push(at, Event::Output { node, port });
        }
    }

    /// An [`Event::Output`].
    pub(crate) fn wake_output(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        port: u8,
    ) {
        let output = &mut self.outputs[node.index() * PORTS + usize::from(port)];
        if output.wake_at == now {
            output.wake_at = SimTime::NEVER;
            if output.waiting != 0 {
                self.kick(queue, now, node, usize::from(port));
            }
        }
    }

    /// Sends the packet that wins the free output, if one has credits.
    fn arbitrate(&mut self, queue: &mut EventQueue, now: SimTime, node: NodeId, port: usize) {
        let output = &mut self.outputs[node.index() * PORTS + port];
        output.collect(now);
        let router = &mut self.routers[node.index()];
        let mut eligible = 0u32;
        let mut inputs = output.waiting;
        while inputs != 0 {
            let input = inputs.trailing_zeros();
            inputs &= inputs - 1;
            let first = router.staged[port * INPUTS + input as usize].fifo.first;
            let slot = &self.slots[first as usize];
            if slot.flits <= output.credits[credit_index(slot)] {
                eligible |= 1 << input;
            }
        }
        if eligible == 0 {
            let back = output.returns.front().map(|back| back.at);
            if let Some(at) = back.filter(|_| output.waiting != 0) {
                self.wake(queue, node, port, at);
            }
            return;
        }
        let input = if eligible & (eligible - 1) == 0 {
            output.turn = (output.turn + 1) & 31;
            output.last = eligible.trailing_zeros() as u8;
            usize::from(output.last)
        } else {
            let (slots, clock) = (&self.slots, self.costs.age_clock);
            let age = |input: u8| {
                let first = router.staged[port * INPUTS + usize::from(input)].fifo.first;
                age(&slots[first as usize], now, clock)
            };
            usize::from(output.choose(eligible, self.costs.age_select, age))
        };
        let staged = router.staged(port, input);
        let Some(packet) = staged.fifo.pop(&self.slots) else {
            return;
        };
        staged.flits -= self.slots[packet as usize].flits;
        if staged.fifo.first == NONE {
            output.waiting &= !(1 << input);
        }
        self.depart(queue, now, packet);
        self.advance(queue, now, node, input);
        let output = &self.outputs[node.index() * PORTS + port];
        if output.waiting != 0 {
            let at = output.free_at;
            self.wake(queue, node, port, at);
        }
    }

    /// A packet leaves its input's buffer: the router before it, or the engine, may send more.
    fn leave_input(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        input: u8,
        flits: u16,
    ) {
        if usize::from(input) >= INJECT {
            self.injection_drained(queue, now, node, usize::from(input) - INJECT, flits);
            return;
        }
        let (port, vc) = (usize::from(input) >> 2, input & 3);
        let mut at = now + self.costs.flit * u64::from(flits) + self.costs.credit;
        if self.link_faults.any {
            // Credits go back in a flit of the other direction.
            let back = node.index() * PORTS + port;
            at += self.link_faults.stretch(back, self.costs.flit);
        }
        let before = self.routers[node.index()].neighbours[port];
        let port = port ^ 1;
        let output = &mut self.outputs[before.index() * PORTS + port];
        if let Some(last) = output.returns.back() {
            at = at.max(last.at);
        }
        output.returns.push_back(Return { at, flits, vc });
        #[cfg(debug_assertions)]
        {
            output.occupied[usize::from(vc)] -= flits;
            output.check(&self.costs);
        }
        if output.waiting != 0 && output.wake_at > at {
            let at = at.max(output.free_at);
            self.wake(queue, before, port, at);
        }
    }

    /// A packet goes out through its output, which is free and has the credits.
    fn depart(&mut self, queue: &mut EventQueue, now: SimTime, packet: u32) {
        let slot = &mut self.slots[packet as usize];
        let (node, port, flits) = (slot.node, usize::from(slot.output), slot.flits);
        let credit = credit_index(slot);
        if self.costs.age_clock != 0 {
            let bias = self.costs.age_bias[usize::from(slot.class())];
            slot.age = (age(slot, now, self.costs.age_clock) + u64::from(bias)).min(MAX_AGE) as u16;
        }
        let link = node.index() * PORTS + port;
        let output = &mut self.outputs[link];
        output.credits[credit] -= flits;
        output.least[credit] = output.least[credit].min(output.credits[credit]);
        let counter = output.packets;
        output.packets += 1;
        output.flits += u64::from(flits);
        let time = self.costs.flit * u64::from(flits);
        output.free_at = now + time;
        if port == NODE_PORT {
            slot.flags |= flag::LEFT;
            let event = Event::Delivered { node, packet };
            queue.push(now + self.costs.hop + time, event);
            return;
        }
        #[cfg(debug_assertions)]
        {
            output.occupied[credit] += flits;
            output.check(&self.costs);
        }
        let router = &self.routers[node.index()];
        if router.wraps & 1 << port != 0 {
            slot.flags |= flag::CROSSED;
        }
        let next = router.neighbours[port];
        slot.node = next;
        let input = ((port as u8) ^ 1) << 2 | slot.vc;
        slot.input = input;
        let mut at = now + self.costs.hop + self.costs.wire;
        if self.link_faults.any {
            let delay = self.fail(packet, link, (counter, 1), time, time);
            at += delay;
            self.outputs[link].free_at += delay;
        }
        let event = Event::Router {
            node: next,
            input,
            packet,
        };
        queue.push(at, event);
    }

    /// Lets happen what goes wrong with a packet on a link; how much longer it takes.
    ///
    /// `all` is its time on the link at the normal rate, `first` what is sent again of it at once. A slow link holds the head
    /// back for as long as its tail comes late: routers behind it send at the normal rate, and never wait for flits.
    pub(super) fn fail(
        &mut self,
        packet: u32,
        link: usize,
        (counter, packets): (u64, u16),
        all: SimDuration,
        first: SimDuration,
    ) -> SimDuration {
        let flits = self.slots[packet as usize].flits;
        let passage = self.link_faults.pass(link, counter, flits, packets);
        let late = self.link_faults.stretch(link, all);
        let again = self.link_faults.stretch(link, first);
        let retries = u64::from(passage.retries);
        self.link_faults.add_stretched(link, late + again * retries);
        let delay = late + self.note(packet, link, passage, first + again);
        if self.watched {
            let crossing = Crossing {
                flits: u64::from(flits) * (retries + 1),
                busy: all + late + (first + again) * retries,
                late: delay,
            };
            self.held.insert(packet, crossing);
        }
        delay
    }

    /// Counts what happened to a packet on a link, and lets it happen; the delay of its retries.
    fn note(
        &mut self,
        packet: u32,
        link: usize,
        passage: Passage,
        time: SimDuration,
    ) -> SimDuration {
        if passage == Passage::default() {
            return SimDuration::ZERO;
        }
        let retries = passage.retries;
        let slot = &mut self.slots[packet as usize];
        if passage.lost {
            slot.flags |= flag::LOST;
        }
        let output = &mut self.outputs[link];
        output.retries += retries;
        output.flits += u64::from(retries) * u64::from(slot.flits);
        self.stats.crc_retries += u64::from(retries);
        self.stats.crc_misses += u64::from(passage.missed);
        if self.watched && retries > 0 {
            self.incidents.push(Incident::Retried {
                node: NodeId((link / PORTS) as u16),
                port: Port::from_index(link % PORTS),
                header: slot.packet.header,
                times: retries,
            });
        }
        if let Some(bits) = passage.corrupt {
            self.corrupt(packet, bits);
        }
        (time + self.costs.retry) * u64::from(retries)
    }

    /// Throws a packet away that is at the head of its input.
    fn drop_at_input(&mut self, queue: &mut EventQueue, now: SimTime, packet: u32) {
        let Slot {
            node, input, flits, ..
        } = self.slots[packet as usize];
        self.leave_input(queue, now, node, input, flits);
        self.lose(packet);
    }

    /// Throws away what waits at a dead output.
    pub(super) fn drain_output(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        port: usize,
    ) {
        for input in 0..INPUTS {
            loop {
                let staged = self.routers[node.index()].staged(port, input);
                let Some(packet) = staged.fifo.pop(&self.slots) else {
                    break;
                };
                staged.flits -= self.slots[packet as usize].flits;
                self.lose(packet);
            }
        }
        self.outputs[node.index() * PORTS + port].waiting = 0;
        for input in 0..INPUTS {
            self.advance_lost(queue, now, node, input, port);
        }
    }

    /// Frees an input queue whose packets go to a dead output: those are lost and dropped, and
    /// the others move up.
    fn advance_lost(
        &mut self,
        queue: &mut EventQueue,
        now: SimTime,
        node: NodeId,
        input: usize,
        port: usize,
    ) {
        let mut at = self.routers[node.index()].inputs[input].first;
        while at != NONE {
            let slot = &mut self.slots[at as usize];
            if usize::from(slot.output) == port {
                slot.flags |= flag::LOST;
            }
            at = slot.next;
        }
        self.advance(queue, now, node, input);
    }

    /// Packets that wait at an output of `node`.
    pub(super) fn waiting(&self, node: NodeId, port: usize) -> u32 {
        let Some(router) = self.routers.get(node.index()) else {
            return 0;
        };
        let mut count = 0;
        for staged in router.staged.iter().skip(port * INPUTS).take(INPUTS) {
            let mut at = staged.fifo.first;
            while at != NONE {
                count += 1;
                at = self.slots[at as usize].next;
            }
        }
        count
    }
}

/// How old a packet is: what it has grown in routers, and in the time it has waited here.
fn age(slot: &Slot, now: SimTime, clock: u64) -> u64 {
    let waited = now.since(slot.arrived).as_ps();
    let waited = if waited == 0 { 0 } else { waited / clock };
    (u64::from(slot.age) + waited).min(MAX_AGE)
}

#[cfg(debug_assertions)]
impl Output {
    /// The sum of the credits of each channel.
    fn check(&self, costs: &Costs) {
        let mut sums = self.occupied;
        for back in &self.returns {
            sums[usize::from(back.vc)] += back.flits;
        }
        for (vc, (sum, credits)) in sums.into_iter().zip(self.credits).enumerate() {
            assert_eq!(credits + sum, costs.input_buffer, "credits of channel {vc}");
        }
    }
}

#[cfg(test)]
impl Network {
    /// Recounts all packets and compares them with queues, credits and counters.
    pub(super) fn recount(&self) {
        let nodes = self.topology.nodes();
        let mut held = vec![[0u16; 4]; nodes * PORTS];
        let mut queued = vec![false; self.slots.len()];
        let mut staged_packets = vec![false; self.slots.len()];
        for (n, router) in self.routers.iter().enumerate() {
            for input in 0..INPUTS {
                let mut at = router.inputs[input].first;
                while at != NONE {
                    assert!(!std::mem::replace(&mut queued[at as usize], true));
                    at = self.slots[at as usize].next;
                }
            }
            for (place, staged) in router.staged.iter().enumerate() {
                let mut flits = 0;
                let mut at = staged.fifo.first;
                while at != NONE {
                    assert!(!std::mem::replace(&mut staged_packets[at as usize], true));
                    flits += self.slots[at as usize].flits;
                    at = self.slots[at as usize].next;
                }
                assert_eq!(flits, staged.flits);
                let (port, input) = (place / INPUTS, place % INPUTS);
                let bit = self.outputs[n * PORTS + port].waiting >> input & 1;
                assert_eq!(bit == 1, staged.fifo.first != NONE);
            }
        }
        for (index, slot) in self.slots.iter().enumerate() {
            let in_buffer = slot.flags & (flag::VACANT | flag::LEFT) == 0 && !staged_packets[index];
            if slot.flags & flag::LEFT != 0 && slot.flags & flag::VACANT == 0 {
                held[slot.node.index() * PORTS + NODE_PORT][usize::from(slot.class())] +=
                    slot.flits;
            } else if in_buffer && usize::from(slot.input) < INJECT {
                let (port, vc) = (usize::from(slot.input) >> 2, slot.input & 3);
                let before = self.routers[slot.node.index()].neighbours[port];
                held[before.index() * PORTS + (port ^ 1)][usize::from(vc)] += slot.flits;
            }
        }
        for (n, output) in self.outputs.iter().enumerate() {
            let capacity = capacity(&self.costs, n % PORTS);
            for vc in 0..4 {
                let back: u16 = output
                    .returns
                    .iter()
                    .filter(|back| usize::from(back.vc) == vc)
                    .map(|back| back.flits)
                    .sum();
                assert_eq!(
                    output.credits[vc] + back + held[n][vc],
                    capacity[vc],
                    "output {} of node {}, channel {vc}",
                    n % PORTS,
                    n / PORTS
                );
            }
        }
    }
}
