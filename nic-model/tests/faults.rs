//! Faults as a node's firmware sees them.

use nic_model::{
    Deposit, DmaSegment, Fault, FaultRates, Faults, Fidelity, Firmware, FirmwareContext, HostFault,
    HostMemories, Machine, NodeId, Options, Port, RegisterIo, RxHeader, RxReport, SimTime,
    Topology, TransferFault, TxJob, World, defs::mailbox,
};

/// What happened, in short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Header { source: u16, corrupt: bool },
    Sent(Result<(), TransferFault>),
    Received(Option<TransferFault>),
}

/// Sends its messages once its mailbox is written, and notes what it is told.
#[derive(Default)]
struct Notes {
    to_send: Vec<(NodeId, u32)>,
    seen: Vec<(SimTime, Seen)>,
    interrupt: bool,
}

impl Notes {
    fn next(&mut self, ctx: &mut FirmwareContext<'_>) {
        let Some((destination, length)) = self.to_send.pop() else {
            return;
        };
        let segment = DmaSegment { address: 0, length };
        let job = TxJob {
            destination,
            sequence: 0,
            header_address: 0,
            header_length: 64,
            segments: (length > 0).then_some(segment).into_iter().collect(),
            token: 0,
        };
        ctx.start_tx(job).expect("the engine is idle");
    }

    fn note(&mut self, ctx: &FirmwareContext<'_>, seen: Seen) {
        self.seen.push((ctx.now(), seen));
    }
}

impl Firmware for Notes {
    fn mailbox_written(&mut self, ctx: &mut FirmwareContext<'_>, _: u32, _: u32) {
        if self.interrupt {
            ctx.raise_interrupt();
        }
        self.next(ctx);
    }

    fn header_arrived(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        let (source, corrupt) = (header.source.0, header.corrupt);
        self.note(ctx, Seen::Header { source, corrupt });
        if let Some(payload) = header.payload {
            let segments = vec![DmaSegment {
                address: 0,
                length: 1 << 20,
            }];
            ctx.deposit(payload, Deposit { segments, token: 0 })
                .expect("it has just arrived");
        }
    }

    fn tx_done(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        _: u64,
        result: Result<(), TransferFault>,
    ) {
        self.note(ctx, Seen::Sent(result));
        self.next(ctx);
    }

    fn rx_done(&mut self, ctx: &mut FirmwareContext<'_>, _: u64, report: RxReport) {
        self.note(ctx, Seen::Received(report.fault));
    }

    fn work(&mut self, _: &mut FirmwareContext<'_>) {}

    fn alarm(&mut self, _: &mut FirmwareContext<'_>, _: u64) {}
}

struct Memory;

impl HostMemories for Memory {
    fn read(&mut self, _: NodeId, _: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        buf.fill(0x5A);
        Ok(())
    }

    fn write(&mut self, _: NodeId, _: u64, _: &[u8]) -> Result<(), HostFault> {
        Ok(())
    }
}

/// Runs `messages` (source, destination, payload) on a row of four nodes, or a ring.
fn run(topology: Topology, faults: Faults, messages: &[(u16, u16, u32)]) -> World<Notes> {
    let options = Options {
        fidelity: Fidelity::Packet,
        faults,
    };
    let machine = Machine::named("xt4").unwrap();
    let mut world = World::with_options(machine, topology, options, |node, _| Notes {
        to_send: messages
            .iter()
            .rev()
            .filter(|m| m.0 == node.0)
            .map(|m| (NodeId(m.1), m.2))
            .collect(),
        interrupt: true,
        ..Notes::default()
    })
    .unwrap();
    for node in 0..world.topology().nodes() as u16 {
        let mut registers = world.registers(NodeId(node), SimTime::ZERO);
        registers.write32(nic_model::defs::map::HT_INTERRUPT, 1);
        registers.write32(mailbox::address(0, mailbox::COMMAND_WRITE), 1);
    }
    while world.step(&mut Memory).is_some() {}
    world
}

fn row() -> Topology {
    Topology::mesh([4, 1, 1]).unwrap()
}

fn seen(world: &World<Notes>, node: u16) -> Vec<Seen> {
    let firmware = world.firmware(NodeId(node)).unwrap();
    firmware.seen.iter().map(|(_, seen)| *seen).collect()
}

fn last_time(world: &World<Notes>, node: u16) -> SimTime {
    world.firmware(NodeId(node)).unwrap().seen.last().unwrap().0
}

fn packet(number: u64, lost: bool) -> Faults {
    let (source, destination) = (NodeId(0), NodeId(3));
    Faults::none().with(match lost {
        true => Fault::LostPacket {
            source,
            destination,
            packet: number,
        },
        false => Fault::CorruptedPacket {
            source,
            destination,
            packet: number,
        },
    })
}

#[test]
fn a_damaged_header_and_a_damaged_payload_are_told_apart() {
    let header = |corrupt| Seen::Header { source: 0, corrupt };
    let sound = run(row(), Faults::none(), &[(0, 3, 1000)]);
    assert_eq!(seen(&sound, 3), [header(false), Seen::Received(None)]);
    let damaged = run(row(), packet(0, false), &[(0, 3, 0)]);
    assert_eq!(seen(&damaged, 3), [header(true)]);
    let crc = Seen::Received(Some(TransferFault::Crc));
    let damaged = run(row(), packet(5, false), &[(0, 3, 1000)]);
    assert_eq!(seen(&damaged, 3), [header(false), crc]);
    assert_eq!(damaged.network_stats().corrupted, 1);
    // A packet that is missing fails its message as a damaged one does.
    let missing = run(row(), packet(5, true), &[(0, 3, 1000)]);
    assert_eq!(seen(&missing, 3), [header(false), crc]);
    assert_eq!(missing.network_stats().lost, 1);
}

#[test]
fn a_sender_is_told_that_there_is_no_way() {
    let cut = Faults::none().with(Fault::DeadLink {
        node: NodeId(1),
        port: Port::XPlus,
        at: SimTime(0),
    });
    let messages = [(0, 3, 100), (0, 1, 100)];
    let mut world = run(row(), cut.clone(), &messages);
    assert_eq!(
        seen(&world, 0),
        [
            Seen::Sent(Err(TransferFault::Unreachable)),
            Seen::Sent(Ok(()))
        ]
    );
    assert_eq!(seen(&world, 3), []);
    assert!(seen(&world, 1).contains(&Seen::Received(None)));
    assert_eq!(world.network_stats().unreachable, 1);
    assert!(!world.is_reachable(NodeId(0), NodeId(3)));
    assert!(world.link(NodeId(1), Port::XPlus).unwrap().dead);
    // A ring has another way.
    let mut ring = run(Topology::torus([4, 1, 1]).unwrap(), cut, &messages);
    assert!(seen(&ring, 3).contains(&Seen::Received(None)));
    assert_eq!(ring.path(NodeId(1), NodeId(2)).unwrap().len(), 3);
}

#[test]
fn a_link_that_dies_in_a_message_ends_it_for_the_sender() {
    let cut = Faults::none().with(Fault::DeadLink {
        node: NodeId(2),
        port: Port::XPlus,
        at: SimTime(20_000_000),
    });
    let world = run(row(), cut, &[(0, 3, 1 << 20)]);
    assert_eq!(
        seen(&world, 0),
        [Seen::Sent(Err(TransferFault::Unreachable))]
    );
    assert!(world.network_stats().lost > 0);
    assert_eq!(world.network_stats().in_network, 0);
}

#[test]
fn a_dead_node_takes_nothing_and_lets_others_pass() {
    let faults = Faults::from_toml("[[dead_node]]\nnode = 1\nat_ns = 0\n").unwrap();
    let world = run(row(), faults, &[(0, 1, 100_000), (0, 2, 100_000)]);
    assert_eq!(seen(&world, 1), []);
    assert!(seen(&world, 2).contains(&Seen::Received(None)));
    assert!(world.stopped(NodeId(1)).is_some());
    let faults = "[[dead_node]]\nnode = 1\nat_ns = 0\nrouter = true\n";
    let world = run(
        row(),
        Faults::from_toml(faults).unwrap(),
        &[(0, 2, 100), (2, 3, 100)],
    );
    assert_eq!(
        seen(&world, 0),
        [Seen::Sent(Err(TransferFault::Unreachable))]
    );
    assert!(seen(&world, 3).contains(&Seen::Received(None)));
}

#[test]
fn slow_engines_and_stalled_hosts_are_slow_for_as_long_as_said() {
    let time = |text: &str| {
        let world = run(row(), Faults::from_toml(text).unwrap(), &[(0, 1, 1 << 20)]);
        last_time(&world, 1).as_ns()
    };
    let sound = time("");
    let window = "[[slow_dma]]\nnode = 0\nfrom_ns = 0\nuntil_ns = 100_000\npercent = 50\n";
    let slow = time(window);
    // 100 us at half the rate: 50 us lost.
    assert!((45_000..55_000).contains(&(slow - sound)), "{sound} {slow}");
    let mut world = run(
        row(),
        Faults::from_toml("[[stalled_host]]\nnode = 2\nfrom_ns = 0\nuntil_ns = 90_000\n").unwrap(),
        &[(2, 1, 8)],
    );
    let mut interrupts = Vec::new();
    while let Some((at, node)) = world.poll_interrupt() {
        interrupts.push((node.0, at.as_ns() >= 90_000));
    }
    interrupts.sort_unstable();
    assert_eq!(
        interrupts,
        [(0, false), (1, false), (2, true), (3, false)],
        "only the stalled host is late"
    );
}

#[test]
fn wrong_bits_slow_a_message_down_and_are_counted_by_link() {
    let rates = FaultRates {
        link_bit_errors: 20_000_000,
        ..FaultRates::default()
    };
    let faults = Faults::seeded(2).with_rates(rates);
    let sound = run(row(), Faults::none(), &[(0, 3, 1 << 20)]);
    let noisy = run(row(), faults, &[(0, 3, 1 << 20)]);
    assert!(seen(&noisy, 3).contains(&Seen::Received(None)));
    assert!(last_time(&noisy, 3) > last_time(&sound, 3));
    let by_link: u64 = noisy.links().map(|l| u64::from(l.2.crc_retries)).sum();
    assert_eq!(by_link, noisy.network_stats().crc_retries);
    assert!(by_link > 100, "{by_link}");
    assert!(noisy.link(NodeId(0), Port::XMinus).is_none());
    let used = noisy.link(NodeId(0), Port::XPlus).unwrap();
    assert!(used.utilisation_ppm(noisy.now()) > 300_000, "{used:?}");
    assert!(used.high_water[0] > 9);
}

#[test]
fn a_mebibyte_between_neighbours_costs_few_events() {
    let options = Options::default();
    let machine = Machine::named("xt4").unwrap();
    let mut world = World::with_options(machine, row(), options, |node, _| Notes {
        to_send: vec![(NodeId(1), 1 << 20); usize::from(node.0 == 0)],
        ..Notes::default()
    })
    .unwrap();
    let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
    let mut registers = world.registers(NodeId(0), SimTime::ZERO);
    registers.write32(doorbell, 1);
    let mut events = 0;
    while world.step(&mut Memory).is_some() {
        events += 1;
    }
    assert!(seen(&world, 1).contains(&Seen::Received(None)));
    // 16,384 packets: two routers, the node port, a deposit, and a fourth of a burst.
    assert!(events < 16_384 * 425 / 100 + 100, "{events} events");
}

/// Counts what is told of packets on their way.
#[derive(Default)]
struct Told {
    lost: u64,
    retries: u64,
}

struct Teller(std::sync::Arc<std::sync::Mutex<Told>>);

impl nic_model::trace::Sink for Teller {
    fn record(&mut self, record: &nic_model::trace::Record<'_>) {
        use nic_model::trace::What;
        let mut told = self.0.lock().unwrap();
        match record.what {
            What::Lost { header } => {
                assert_eq!((header.source(), header.destination()), (0, 3));
                told.lost += 1;
            }
            What::Retry { times, port, .. } => {
                assert_ne!(port, Port::Node);
                told.retries += u64::from(times);
            }
            _ => {}
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_recorder_is_told_of_lost_packets_and_retries() {
    let faults = Faults::seeded(3).with_rates(FaultRates {
        link_bit_errors: 50_000_000,
        lost_packets: 20_000_000,
        corrupted_packets: 0,
    });
    let told = std::sync::Arc::default();
    let watched = |fidelity| {
        *std::sync::Mutex::lock(&told).unwrap() = Told::default();
        let faults = faults.clone();
        let options = Options { fidelity, faults };
        let machine = Machine::named("xt4").unwrap();
        let mut world = World::with_options(machine, row(), options, |node, _| Notes {
            to_send: vec![(NodeId(3), 60_000); usize::from(node.0 == 0)],
            ..Notes::default()
        })
        .unwrap();
        world.trace_to(Box::new(Teller(std::sync::Arc::clone(&told))));
        world
            .registers(NodeId(0), SimTime::ZERO)
            .write32(mailbox::address(0, mailbox::COMMAND_WRITE), 1);
        while world.step(&mut Memory).is_some() {}
        let stats = world.network_stats();
        let told = std::sync::Mutex::lock(&told).unwrap();
        assert_eq!((told.lost, told.retries), (stats.lost, stats.crc_retries));
        assert!(told.lost > 0 && told.retries > 5, "{stats:?}");
    };
    watched(Fidelity::Packet);
    watched(Fidelity::Message);
}

fn slow(percent: u32, until: SimTime) -> Faults {
    Faults::none().with(Fault::SlowLink {
        node: NodeId(2),
        port: Port::XMinus,
        from: SimTime::ZERO,
        until,
        percent,
    })
}

/// When the header of a message without payload came.
fn header_time(faults: Faults, (source, destination): (u16, u16)) -> SimTime {
    let world = run(row(), faults, &[(source, destination, 0)]);
    let seen = &world.firmware(NodeId(destination)).unwrap().seen;
    let header = |of: &&(SimTime, Seen)| matches!(of.1, Seen::Header { .. });
    seen.iter().find(header).unwrap().0
}

#[test]
fn a_slow_link_costs_a_packet_the_longer_time_of_its_flits() {
    // A header packet: one flit of the network's header and 64 bytes of the message's.
    let packet = Machine::named("xt4").unwrap().flit_wire_time() * 9;
    let late = |faults: Faults, pair| {
        let sound = header_time(Faults::none(), pair);
        header_time(faults, pair).since(sound)
    };
    // In both directions of the link between nodes 1 and 2, and nowhere else.
    for pair in [(0, 3), (3, 0), (1, 2)] {
        assert_eq!(late(slow(25, SimTime::NEVER), pair), packet * 3, "{pair:?}");
        assert_eq!(late(slow(50, SimTime::NEVER), pair), packet, "{pair:?}");
        assert_eq!(late(slow(100, SimTime::NEVER), pair).as_ps(), 0);
    }
    for pair in [(0, 1), (1, 0), (2, 3)] {
        assert_eq!(late(slow(25, SimTime::NEVER), pair).as_ps(), 0, "{pair:?}");
    }
    // It is over before the packet comes.
    let short = SimTime(1_000);
    assert_eq!(late(slow(25, short), (0, 3)).as_ps(), 0);
    // Of two faults the worse counts.
    let both = slow(25, SimTime::NEVER).with(Fault::SlowLink {
        node: NodeId(1),
        port: Port::XPlus,
        from: SimTime::ZERO,
        until: SimTime::NEVER,
        percent: 50,
    });
    assert_eq!(late(both, (0, 3)), packet * 3);
}

#[test]
fn a_long_message_has_the_rate_of_its_slowest_link_packet_by_packet_and_in_units() {
    let machine = Machine::named("xt4").unwrap();
    for fidelity in [Fidelity::Packet, Fidelity::Message] {
        let options = Options {
            fidelity,
            faults: slow(10, SimTime::NEVER),
        };
        let mut world = World::with_options(machine.clone(), row(), options, |node, _| Notes {
            to_send: vec![(NodeId(3), 1 << 20); usize::from(node.0 == 0)],
            ..Notes::default()
        })
        .unwrap();
        let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
        let mut registers = world.registers(NodeId(0), SimTime::ZERO);
        registers.write32(doorbell, 1);
        while world.step(&mut Memory).is_some() {}
        let link = world.link(NodeId(1), Port::XPlus).unwrap();
        // Nine flits for each 64 bytes, and for the header packet.
        assert_eq!(link.flits, 9 * 16_385, "{fidelity:?}");
        let busy = machine.flit_wire_time() * link.flits * 10;
        assert_eq!(link.busy, busy, "{fidelity:?}");
        let fast = world.link(NodeId(0), Port::XPlus).unwrap();
        assert_eq!(fast.busy * 10, busy, "{fidelity:?}");
        let took = last_time(&world, 3).as_ns();
        assert!(took > busy.as_ns(), "{fidelity:?}: {took} ns");
        // The rest of the way, and the host's.
        assert!(took < busy.as_ns() + 10_000, "{fidelity:?}: {took} ns");
    }
}

#[test]
fn a_credit_over_a_slow_link_comes_back_later_by_what_a_flit_takes_longer() {
    let machine = Machine::named("xt4").unwrap();
    let flit = machine.flit_wire_time();
    let network = machine.network;
    // Room for one packet: each waits for the credits of the one before.
    let machine = machine.with("network.input_buffer", 9).unwrap();
    let took = |percent: u32, packets: u32| {
        let options = Options {
            fidelity: Fidelity::Packet,
            faults: slow(percent, SimTime::NEVER),
        };
        let mut world = World::with_options(machine.clone(), row(), options, |node, _| Notes {
            to_send: vec![(NodeId(3), 64 * packets); usize::from(node.0 == 0)],
            ..Notes::default()
        })
        .unwrap();
        let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
        let mut registers = world.registers(NodeId(0), SimTime::ZERO);
        registers.write32(doorbell, 1);
        while world.step(&mut Memory).is_some() {}
        last_time(&world, 3)
    };
    for (percent, times) in [(100, 1), (50, 2), (10, 10), (2, 50)] {
        let found = took(percent, 1_100).since(took(percent, 100));
        // The head's way; 9 slow flits, first to come and then to leave the buffer; and a slow one with the credits.
        let way = network.router_hop + network.link_wire + network.credit_return;
        let period = way + flit * 9 * times + flit * (times - 1);
        assert_eq!(found, period * 1_000, "at {percent} %");
    }
}

#[test]
fn a_recorder_sees_a_slow_link_busy_from_when_a_head_left() {
    use nic_model::trace::{Record, Sink, What};
    use std::sync::{Arc, Mutex};

    type Hops = Arc<Mutex<Vec<(SimTime, nic_model::SimDuration)>>>;
    struct Hopper(Hops);
    impl Sink for Hopper {
        fn record(&mut self, record: &Record<'_>) {
            if let What::Hop {
                from, busy, port, ..
            } = record.what
                && (record.node, port) == (NodeId(1), Port::XPlus)
            {
                self.0.lock().unwrap().push((from, busy));
            }
        }

        fn finish(&mut self) -> Result<(), String> {
            Ok(())
        }
    }
    let hops = |faults: Faults| {
        let options = Options {
            fidelity: Fidelity::Packet,
            faults,
        };
        let machine = Machine::named("xt4").unwrap();
        let mut world = World::with_options(machine, row(), options, |node, _| Notes {
            to_send: vec![(NodeId(3), 0); usize::from(node.0 == 0)],
            ..Notes::default()
        })
        .unwrap();
        let hops = Hops::default();
        world.trace_to(Box::new(Hopper(Arc::clone(&hops))));
        let doorbell = mailbox::address(0, mailbox::COMMAND_WRITE);
        let mut registers = world.registers(NodeId(0), SimTime::ZERO);
        registers.write32(doorbell, 1);
        while world.step(&mut Memory).is_some() {}
        let hops = hops.lock().unwrap();
        assert_eq!(hops.len(), 1);
        hops[0]
    };
    let (sound, slow) = (hops(Faults::none()), hops(slow(20, SimTime::NEVER)));
    assert_eq!(slow.0, sound.0);
    assert_eq!(slow.1, sound.1 * 5);
}

#[test]
fn a_link_with_rates_of_its_own_fails_as_if_all_had_them_and_the_others_do_not() {
    let rates = FaultRates {
        link_bit_errors: 20_000_000,
        ..FaultRates::default()
    };
    let message = [(0, 3, 1 << 20)];
    let text = "seed = 2\n[[link_rates]]\nlink = \"(2,0,0) x-\"\nlink_bit_errors = 20_000_000\n";
    let one = run(row(), Faults::from_toml(text).unwrap(), &message);
    let all = run(row(), Faults::seeded(2).with_rates(rates), &message);
    let retries =
        |world: &World<Notes>, node| world.link(NodeId(node), Port::XPlus).unwrap().crc_retries;
    assert!(retries(&one, 1) > 50, "{}", retries(&one, 1));
    assert_eq!(retries(&one, 1), retries(&all, 1));
    assert_eq!((retries(&one, 0), retries(&one, 2)), (0, 0));
    assert!(retries(&all, 0) > 0 && retries(&all, 2) > 0);
    // A link that says 0 is sound on a machine whose others are not.
    let sound = Fault::LinkRates {
        node: NodeId(1),
        port: Port::XPlus,
        rates: nic_model::LinkRates {
            link_bit_errors: Some(0),
            ..nic_model::LinkRates::default()
        },
    };
    let but_one = run(
        row(),
        Faults::seeded(2).with_rates(rates).with(sound),
        &message,
    );
    assert_eq!(retries(&but_one, 1), 0);
    assert_eq!(retries(&but_one, 0), retries(&all, 0));
}
