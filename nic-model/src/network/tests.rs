//! The network alone: random traffic, receivers of every speed, faults.

use super::*;
use crate::defs::packet::{kind, vc};
use crate::faults::{FaultRates, SplitMix};

/// The network with sources and receivers that follow a plan.
struct Bed {
    network: Network,
    queue: EventQueue,
    now: SimTime,
    /// Packets that a source has not injected, last first: destination, response, bytes.
    to_send: Vec<Vec<(u16, bool, u16)>>,
    /// Numbers of the next packet to arrive, by source, destination and class.
    expected: Vec<u16>,
    /// The number of the next packet injected, likewise.
    next: Vec<u16>,
    received: u64,
    bytes: u64,
    corrupt: u64,
    /// Packets lie in a receiver's buffer for this long.
    hold: SimDuration,
    /// Whether a pair may have gaps, where packets are lost.
    gaps: bool,
    recount_every: u64,
    steps: u64,
    trace: Vec<(u64, u16, u64)>,
}

/// The largest number of packets that a pair's packet numbers tell apart.
const NUMBERS: u16 = u16::MAX;

impl Bed {
    fn new(topology: Topology, fidelity: Fidelity, faults: &Faults) -> Self {
        let machine = Machine::named("xt4").unwrap();
        Self::with_machine(&machine, topology, fidelity, faults)
    }

    fn with_machine(
        machine: &Machine,
        topology: Topology,
        fidelity: Fidelity,
        faults: &Faults,
    ) -> Self {
        let nodes = topology.nodes();
        Self {
            network: Network::new(machine, topology, fidelity, faults).unwrap(),
            queue: EventQueue::default(),
            now: SimTime::ZERO,
            to_send: vec![Vec::new(); nodes],
            expected: vec![0; nodes * nodes * 2],
            next: vec![0; nodes * nodes * 2],
            received: 0,
            bytes: 0,
            corrupt: 0,
            hold: SimDuration::ZERO,
            gaps: false,
            recount_every: 1_000,
            steps: 0,
            trace: Vec::new(),
        }
    }

    fn pair(&self, source: u16, destination: u16, response: bool) -> usize {
        let nodes = self.to_send.len();
        (usize::from(source) * nodes + usize::from(destination)) * 2 + usize::from(response)
    }

    /// Injects whatever has room.
    fn feed(&mut self, source: u16) {
        while let Some(&(destination, response, length)) = self.to_send[usize::from(source)].last()
        {
            let length = usize::from(length);
            if !self.network.room(NodeId(source), response, length) {
                return;
            }
            self.to_send[usize::from(source)].pop();
            let pair = self.pair(source, destination, response);
            let number = self.next[pair];
            assert!(number < NUMBERS);
            self.next[pair] += 1;
            let mut header = PacketHeader(0);
            header.set_source(source);
            header.set_destination(destination);
            header.set_kind(kind::PAYLOAD);
            header.set_vc(if response { vc::RESPONSE } else { vc::REQUEST });
            header.set_sequence(number);
            let payload = vec![number as u8; length];
            let (queue, now) = (&mut self.queue, self.now);
            let sent = self.network.inject(queue, now, header, false, &payload);
            if sent.is_err() {
                self.next[pair] -= 1;
            }
        }
    }

    fn start(&mut self) {
        for source in 0..self.to_send.len() as u16 {
            self.feed(source);
        }
    }

    fn step(&mut self) -> bool {
        let Some((now, event)) = self.queue.pop() else {
            return false;
        };
        assert!(now >= self.now);
        self.now = now;
        self.steps += 1;
        match event {
            Event::Router {
                node,
                input,
                packet,
            } => self
                .network
                .route(&mut self.queue, now, node, input, packet),
            Event::Output { node, port } => {
                self.network.wake_output(&mut self.queue, now, node, port);
            }
            Event::Delivered { node, packet } => {
                if self.network.arrive(packet) {
                    self.check(node, packet);
                    let token = packet.into();
                    let at = now + self.hold;
                    self.queue.push(at, Event::Alarm { node, token });
                }
            }
            Event::Alarm { token, .. } => self.network.remove(token as u32),
            Event::TxStep { node } => self.feed(node.0),
            other => unreachable!("{other:?} is not of the network"),
        }
        self.network.settle(&mut self.queue, now);
        if self.steps.is_multiple_of(self.recount_every)
            && self.network.fidelity() == Fidelity::Packet
        {
            self.network.recount();
        }
        true
    }

    fn check(&mut self, node: NodeId, index: u32) {
        let packet = *self.network.packet(index);
        let header = packet.header;
        assert_eq!(header.destination(), node.0);
        let response = header.vc() >= 2;
        let pair = self.pair(header.source(), node.0, response);
        let number = header.sequence();
        if self.gaps {
            assert!(number >= self.expected[pair], "pair out of order");
        } else {
            assert_eq!(number, self.expected[pair], "pair out of order");
        }
        self.expected[pair] = number + 1;
        let payload = self.network.payload(index);
        assert_eq!(payload.len(), usize::from(packet.length));
        let intact = payload.iter().all(|&byte| byte == number as u8);
        if packet.corrupt {
            self.corrupt += 1;
        }
        assert!(intact != packet.corrupt || payload.is_empty());
        self.received += 1;
        self.bytes += payload.len() as u64;
        self.trace.push((self.now.0, node.0, header.0));
    }

    /// Runs to rest.
    fn run(&mut self) {
        while self.step() {}
        if self.network.fidelity() == Fidelity::Packet {
            self.network.recount();
        }
    }

    /// Random traffic: `packets` from each node to any node.
    fn random(&mut self, seed: u64, packets: usize, longest: u64) {
        let mut random = SplitMix::new(seed);
        let nodes = self.to_send.len() as u64;
        for source in 0..self.to_send.len() {
            for _ in 0..packets {
                let destination = random.below(nodes) as u16;
                let response = random.below(3) == 0;
                let length = match random.below(3) {
                    0 => 8,
                    1 => longest,
                    _ => random.below(longest + 1),
                };
                self.to_send[source].push((destination, response, length as u16));
            }
        }
    }

    fn assert_all_arrived(&self, nodes: usize, packets: usize) {
        let stats = self.network.stats();
        assert_eq!(self.received, (nodes * packets) as u64, "{stats:?}");
        assert_eq!(stats.in_network, 0);
        assert_eq!(self.network.packets_in_flight(), 0);
    }
}

/// Shapes with rings, rows, both, and the smallest of each.
fn shapes() -> Vec<Topology> {
    vec![
        Topology::torus([2, 1, 1]).unwrap(),
        Topology::torus([9, 1, 1]).unwrap(),
        Topology::torus([4, 4, 1]).unwrap(),
        Topology::torus([3, 4, 5]).unwrap(),
        Topology::mesh([5, 4, 2]).unwrap(),
        Topology::grid([3, 3, 4], [false, false, true]).unwrap(),
        Topology::grid([1, 6, 2], [true, true, false]).unwrap(),
    ]
}

#[test]
fn every_packet_arrives_once_and_in_order_seed_1_to_3() {
    for topology in shapes() {
        for seed in 1..=3 {
            let (dims, nodes) = (topology.dims(), topology.nodes());
            let mut bed = Bed::new(topology.clone(), Fidelity::Packet, &Faults::none());
            // Small enough to recount at every step.
            bed.recount_every = if nodes < 10 { 1 } else { 500 };
            bed.random(seed, 300, 64);
            bed.start();
            bed.run();
            println!("{dims:?} seed {seed}: {}", bed.now);
            bed.assert_all_arrived(nodes, 300);
            assert!(bed.network.stats().blocked > 0 || nodes == 2);
        }
    }
}

#[test]
fn units_arrive_once_and_in_order_seed_1() {
    for topology in shapes() {
        let nodes = topology.nodes();
        let mut bed = Bed::new(topology, Fidelity::Message, &Faults::none());
        bed.random(1, 200, 4096);
        bed.start();
        bed.run();
        bed.assert_all_arrived(nodes, 200);
    }
}

/// Receivers that hold every packet, small buffers, a long ring: all of it is full.
fn saturate(datelines: bool, tie_break: u32, nodes: u16, links: u16) -> Bed {
    let mut machine = Machine::named("xt4").unwrap();
    machine.network.tie_break = tie_break;
    machine.network.input_buffer = 18;
    let topology = Topology::torus([nodes, 1, 1]).unwrap();
    let mut bed = Bed::with_machine(&machine, topology, Fidelity::Packet, &Faults::none());
    bed.network.datelines = datelines;
    for source in 0..nodes {
        // Several links: every packet needs more than its own.
        bed.to_send[usize::from(source)] = vec![((source + links) % nodes, false, 64); 400];
    }
    bed.hold = SimDuration::from_ns(30);
    bed.start();
    bed.run();
    bed
}

#[test]
fn datelines_are_what_keeps_full_rings_moving() {
    // Three links plus; and half way round, where parity fills both directions at once.
    for (tie_break, nodes, links) in [(0, 8, 3), (0, 8, 4), (1, 16, 8)] {
        let sent = u64::from(nodes) * 400;
        saturate(true, tie_break, nodes, links).assert_all_arrived(nodes.into(), 400);
        let stuck = saturate(false, tie_break, nodes, links);
        assert!(stuck.received < sent, "nothing needed the datelines");
        assert!(stuck.network.stats().in_network > 0);
        let next = stuck.queue.next_time();
        assert_eq!(next, None, "at rest, with packets inside");
    }
}

#[test]
fn full_receivers_hold_up_the_network_and_nothing_is_lost() {
    let mut bed = Bed::new(
        Topology::torus([6, 1, 1]).unwrap(),
        Fidelity::Packet,
        &Faults::none(),
    );
    // Node 3 takes a packet in 5 us: its 512 flits hold 56.
    bed.hold = SimDuration::from_us(5);
    for source in [1u16, 2] {
        bed.to_send[usize::from(source)] = vec![(3, false, 64); 200];
    }
    bed.start();
    while bed.now < SimTime(4_000_000) && bed.step() {}
    let held = bed.network.link(NodeId(3), Port::Node).unwrap();
    assert_eq!(held.high_water[0], 504, "56 packets of 9 flits");
    let link = bed.network.link(NodeId(2), Port::XPlus).unwrap();
    assert_eq!(link.high_water[0], 90, "10 packets of 9 flits");
    assert!(bed.network.injection_high_water(NodeId(2)) > 400);
    assert!(!bed.to_send[2].is_empty(), "the source is held up too");
    bed.run();
    bed.assert_all_arrived(2, 200);
}

#[test]
fn responses_pass_requests_that_wait() {
    let mut bed = Bed::new(
        Topology::torus([4, 1, 1]).unwrap(),
        Fidelity::Packet,
        &Faults::none(),
    );
    bed.hold = SimDuration::from_us(100);
    bed.to_send[0] = vec![(1, false, 64); 300];
    bed.start();
    while bed.now < SimTime(20_000_000) && bed.step() {}
    let before = bed.received;
    assert!(before <= 57, "requests wait: {before}");
    bed.to_send[3] = vec![(1, true, 8)];
    bed.feed(3);
    let sent = bed.now;
    while bed.received == before {
        assert!(bed.step());
    }
    let took = bed.now - sent;
    assert!(took < SimDuration::from_ns(400), "{took}");
}

#[test]
fn the_oldest_packet_wins_and_round_robin_shares() {
    // Nodes 0 to 5 of a row send to 6 over the link 5 -> 6; who gets how much of the first part?
    let share = |select: u32| {
        let mut machine = Machine::named("xt4").unwrap();
        machine.network.age_rr_select = select;
        let topology = Topology::mesh([7, 1, 1]).unwrap();
        let mut bed = Bed::with_machine(&machine, topology, Fidelity::Packet, &Faults::none());
        for source in 0..6 {
            bed.to_send[source] = vec![(6, false, 64); 400];
        }
        bed.start();
        while bed.received < 600 && bed.step() {}
        let mut shares = [0; 6];
        for &(_, _, header) in &bed.trace {
            shares[usize::from(PacketHeader(header).source())] += 1;
        }
        shares
    };
    let (round, age) = (share(0), share(u32::MAX));
    // Round robin halves at every merge: the far nodes starve. Age makes it fair.
    assert!(round[5] > 10 * round[0], "{round:?}");
    assert!(age[5] < 3 * age[0], "{age:?}");
    assert!(age[0] > 3 * round[0], "{age:?} against {round:?}");
}

#[test]
fn wrong_bits_cost_time_and_never_a_packet() {
    let run = |link_bit_errors| {
        let rates = FaultRates {
            link_bit_errors,
            ..FaultRates::default()
        };
        let faults = Faults::seeded(5).with_rates(rates);
        let mut bed = Bed::new(
            Topology::torus([4, 1, 1]).unwrap(),
            Fidelity::Packet,
            &faults,
        );
        bed.to_send[0] = vec![(1, false, 64); 1_000];
        bed.start();
        bed.run();
        bed.assert_all_arrived(1, 1_000);
        let link = bed.network.link(NodeId(0), Port::XPlus).unwrap();
        assert_eq!(u64::from(link.crc_retries), bed.network.stats().crc_retries);
        (bed.now, link.crc_retries, bed.trace.clone())
    };
    let (clean, none, _) = run(0);
    assert_eq!(none, 0);
    let (slow, retries, trace) = run(50_000_000);
    assert!((15..60).contains(&retries), "{retries}");
    assert!(slow - clean >= SimDuration::from_us(1) * u64::from(retries));
    assert_eq!(run(50_000_000).2, trace, "the same seed, the same run");
}

#[test]
fn lost_and_corrupted_packets_are_counted_and_leave_no_trace_in_the_buffers() {
    for fidelity in [Fidelity::Packet, Fidelity::Message] {
        let rates = FaultRates {
            lost_packets: 20_000_000,
            corrupted_packets: 10_000_000,
            ..FaultRates::default()
        };
        let faults = Faults::seeded(6).with_rates(rates);
        let mut bed = Bed::new(Topology::torus([4, 4, 2]).unwrap(), fidelity, &faults);
        bed.gaps = true;
        bed.random(9, 200, 64);
        bed.start();
        bed.run();
        let stats = bed.network.stats();
        assert!(stats.lost > 50, "{stats:?}");
        assert!(bed.corrupt > 25, "{}", bed.corrupt);
        assert_eq!(stats.delivered + stats.lost, 32 * 200);
        assert_eq!(bed.network.packets_in_flight(), 0);
        assert!(bed.to_send.iter().all(Vec::is_empty));
    }
}

#[test]
fn a_scripted_packet_is_lost_or_corrupted_and_no_other() {
    let faults = Faults::none()
        .with(Fault::LostPacket {
            source: NodeId(0),
            destination: NodeId(1),
            packet: 17,
        })
        .with(Fault::CorruptedPacket {
            source: NodeId(0),
            destination: NodeId(1),
            packet: 3,
        });
    let mut bed = Bed::new(
        Topology::torus([2, 2, 1]).unwrap(),
        Fidelity::Packet,
        &faults,
    );
    bed.gaps = true;
    bed.to_send[0] = vec![(1, false, 64); 30];
    bed.to_send[2] = vec![(1, false, 64); 30];
    bed.start();
    bed.run();
    assert_eq!((bed.received, bed.corrupt), (59, 1));
    let mut numbers = bed.trace.iter().map(|t| PacketHeader(t.2));
    assert!(!numbers.any(|h| h.source() == 0 && h.sequence() == 17));
}

#[test]
fn a_link_that_dies_loses_what_it_must_and_the_rest_takes_a_detour() {
    for (topology, fidelity) in [
        (Topology::torus([4, 4, 2]).unwrap(), Fidelity::Packet),
        (Topology::mesh([4, 4, 2]).unwrap(), Fidelity::Packet),
        (
            Topology::grid([4, 4, 2], [false, true, false]).unwrap(),
            Fidelity::Packet,
        ),
        (Topology::torus([4, 4, 2]).unwrap(), Fidelity::Message),
    ] {
        let mut bed = Bed::new(topology, fidelity, &Faults::none());
        bed.gaps = true;
        bed.recount_every = 50;
        bed.random(4, 300, 64);
        bed.start();
        for (at, link) in [
            (3_000_000, (NodeId(5), Port::XPlus)),
            (5_000_000, (NodeId(6), Port::YMinus)),
            (7_000_000, (NodeId(5), Port::XMinus)),
        ] {
            while bed.now < SimTime(at) && bed.step() {}
            bed.network.kill_links(&mut bed.queue, bed.now, &[link]);
        }
        bed.run();
        let stats = bed.network.stats();
        assert_eq!(stats.in_network, 0, "{stats:?}");
        assert_eq!(stats.unreachable, 0);
        assert_eq!(bed.received + stats.lost, 32 * 300);
        assert!(stats.lost > 0 && bed.received > 3_000, "{stats:?}");
        let dead = bed.network.link(NodeId(5), Port::XPlus).unwrap();
        assert!(dead.dead);
    }
}

#[test]
fn detours_under_load_never_wait_for_themselves_seed_1_to_4() {
    for seed in 1..=4 {
        let mut machine = Machine::named("xt4").unwrap();
        machine.network.input_buffer = 18;
        for topology in [
            Topology::torus([4, 4, 2]).unwrap(),
            Topology::mesh([4, 3, 3]).unwrap(),
        ] {
            let nodes = topology.nodes();
            let mut bed = Bed::with_machine(&machine, topology, Fidelity::Packet, &Faults::none());
            let links = [
                (NodeId(5), Port::XPlus),
                (NodeId(5), Port::XMinus),
                (NodeId(9), Port::YPlus),
            ];
            bed.network
                .kill_links(&mut bed.queue, SimTime::ZERO, &links);
            bed.hold = SimDuration::from_ns(200);
            bed.random(seed, 400, 64);
            bed.start();
            bed.run();
            bed.assert_all_arrived(nodes, 400);
        }
    }
}

#[test]
fn nowhere_is_refused_and_counted() {
    let mut bed = Bed::new(
        Topology::mesh([3, 1, 1]).unwrap(),
        Fidelity::Packet,
        &Faults::none(),
    );
    let link = (NodeId(1), Port::XPlus);
    bed.network
        .kill_links(&mut bed.queue, SimTime::ZERO, &[link]);
    bed.to_send[0] = vec![(2, false, 8), (1, false, 8)];
    bed.start();
    bed.run();
    assert_eq!(bed.received, 1);
    assert_eq!(bed.network.stats().unreachable, 1);
    assert!(!bed.network.is_reachable(NodeId(0), NodeId(2)));
    assert!(!bed.network.is_reachable(NodeId(0), NodeId(77)));
    assert!(bed.network.is_reachable(NodeId(2), NodeId(2)));
}

#[test]
fn the_same_run_twice_is_the_same_seed_8() {
    let run = || {
        let rates = FaultRates {
            link_bit_errors: 5_000_000,
            lost_packets: 1_000_000,
            corrupted_packets: 1_000_000,
        };
        let faults = Faults::seeded(8).with_rates(rates);
        let mut bed = Bed::new(
            Topology::torus([3, 3, 3]).unwrap(),
            Fidelity::Packet,
            &faults,
        );
        bed.gaps = true;
        bed.random(8, 200, 64);
        bed.start();
        bed.run();
        (bed.trace, bed.network.stats(), bed.steps)
    };
    assert!(run() == run());
}

#[test]
fn a_lone_packet_costs_one_event_per_router() {
    let mut bed = Bed::new(
        Topology::torus([9, 1, 1]).unwrap(),
        Fidelity::Packet,
        &Faults::none(),
    );
    bed.to_send[0] = vec![(4, false, 64)];
    bed.start();
    bed.run();
    // Five routers, the delivery, and the receiver of this test.
    assert_eq!(bed.steps, 5 + 2);
    let costs = bed.network.costs;
    let expected = (costs.hop + costs.wire) * 4 + costs.hop + costs.flit * 9;
    assert_eq!(bed.trace[0].0, expected.0);
}

/// Virtual times of standard runs: a change of the network shows as a change of numbers.
#[test]
fn times_of_standard_runs() {
    use std::fmt::Write;
    let mut table =
        String::from("shape        traffic      packets        end  MB/s/node blocked\n");
    let torus = |d| Topology::torus(d).unwrap();
    for (name, topology) in [
        ("torus 4x4x4", torus([4, 4, 4])),
        ("torus 8x1x1", torus([8, 1, 1])),
        ("mesh 4x4x4", Topology::mesh([4, 4, 4]).unwrap()),
        (
            "mixed 4x4x4",
            Topology::grid([4, 4, 4], [false, false, true]).unwrap(),
        ),
    ] {
        let nodes = topology.nodes() as u16;
        for traffic in ["neighbour", "shift", "random", "hot"] {
            let mut bed = Bed::new(topology.clone(), Fidelity::Packet, &Faults::none());
            let mut random = SplitMix::new(12);
            for source in 0..nodes {
                bed.to_send[usize::from(source)] = (0..200)
                    .map(|_| match traffic {
                        "neighbour" => (source + 1) % nodes,
                        "shift" => (source + nodes / 2) % nodes,
                        "random" => random.below(u64::from(nodes)) as u16,
                        _ => 0,
                    })
                    .map(|to| (to, false, 64))
                    .collect();
            }
            bed.start();
            bed.run();
            bed.assert_all_arrived(usize::from(nodes), 200);
            let rate = bed.bytes * 1_000_000 / bed.now.0 / u64::from(nodes);
            writeln!(
                table,
                "{name:12} {traffic:10} {:9} {:>10} {rate:9} {:7}",
                bed.received,
                bed.now.0,
                bed.network.stats().blocked
            )
            .unwrap();
        }
    }
    let golden = include_str!("tests.golden");
    assert_eq!(table, golden, "\n{table}");
}
