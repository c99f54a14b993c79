use super::super::ssnal::KERNEL_MEMORY;
use super::super::usermem::UserMemory;
use super::*;
use fabric_api::call::Target;
use fabric_api::identity::rank_config;
use fabric_api::place::Placement;
use firmware_sim::SeaStarFirmware;
use nic_model::{HostFault, HostMemories, HostMemory as _, Topology, World};
use portals_core::{AckRequest, EventKind, MdDesc, Memory, NiFail, Unlink};

#[test]
fn a_full_mailbox_is_looked_at_again_once_at_a_time() {
    let machine = Machine::named("xt4").unwrap();
    let memory = NodeMemory::new(NodeId(0), KERNEL_MEMORY, Vec::new());
    let mut kernel = Kernel::new(NodeId(0), &[], 2, &machine, memory);
    let settle = |kernel: &mut Kernel, done| {
        let (_, again) = kernel.settle(SimTime::ZERO, |_, _, _| Written { done, reads: 1 });
        again
    };
    for look in 0..3 {
        kernel.driver.node_failed(&mut [], 1, true);
        assert_eq!(settle(&mut kernel, false), look == 0, "look {look}");
    }
    kernel.retries = false;
    assert!(settle(&mut kernel, false));
    kernel.retries = false;
    assert!(!settle(&mut kernel, true));
}

/// A process all of whose memory is zeros.
#[derive(Debug)]
struct Zeros;

impl UserMemory for Zeros {
    fn read(&mut self, _: u64, buf: &mut [u8]) -> bool {
        buf.fill(0);
        true
    }

    fn write(&mut self, _: u64, _: &[u8]) -> bool {
        false
    }
}

/// The memory of node 0; the others have none.
struct First<'a>(&'a mut NodeMemory);

impl HostMemories for First<'_> {
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        match node {
            NodeId(0) => self.0.read(address, buf),
            _ => Err(HostFault::new(node, address, buf.len())),
        }
    }

    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        match node {
            NodeId(0) => self.0.write(address, data),
            _ => Err(HostFault::new(node, address, data.len())),
        }
    }
}

/// The kernel of node 0 and its chip, which has a source structure for one peer and no table for more.
struct Node {
    world: World<SeaStarFirmware>,
    kernel: Kernel,
}

impl Node {
    fn boot() -> Self {
        let mut machine = Machine::named("xt4").unwrap();
        machine.firmware.sources = 1;
        let topology = Topology::torus([3, 1, 1]).unwrap();
        let config = rank_config(Placement::ONE, 0, 1);
        let memory = NodeMemory::new(NodeId(0), KERNEL_MEMORY, vec![Box::new(Zeros)]);
        let mut node = Self {
            kernel: Kernel::new(NodeId(0), &[config], 3, &machine, memory),
            world: World::new(machine, topology, |_, machine| {
                SeaStarFirmware::new(machine)
            }),
        };
        let now = node.world.now();
        Kernel::open_chip(&mut node.world.registers(NodeId(0), now));
        for entry in Kernel::boot_commands(config.id.pid, config.jid, config.uid, false) {
            let now = node.world.now();
            let mut registers = node.world.registers(NodeId(0), now);
            assert!(node.kernel.write_command(&mut registers, &entry).done);
            node.settle();
            let now = node.world.now();
            Kernel::take_result(&mut node.world.registers(NodeId(0), now)).unwrap();
        }
        node
    }

    /// Writes what the driver has to write, and lets the chip come to rest.
    fn settle(&mut self) {
        let now = self.world.now();
        let world = &mut self.world;
        self.kernel.settle(now, |kernel, _, command| {
            kernel.write_command(&mut world.registers(NodeId(0), now), command)
        });
        while world
            .step(&mut First(&mut self.kernel.driver.memory))
            .is_some()
        {}
    }

    fn call(&mut self, call: Call) -> Answer {
        self.kernel.execute(0, call).unwrap()
    }
}

/// More than a header packet carries: the send ends with the command.
const LONG: u64 = 64;

#[test]
fn a_refusal_ends_what_was_refused_however_many_commands_follow_it() {
    let mut node = Node::boot();
    let Answer::Eq(eq) = node.call(Call::EqAlloc(16)) else {
        panic!("no queue");
    };
    let desc = MdDesc {
        memory: Memory::contiguous(0x1000, LONG),
        threshold: -1,
        max_size: 0,
        options: MdOptions::empty(),
        user_ptr: 0,
        eq: Some(eq),
    };
    let unlink = Unlink::Retain;
    let Answer::Md(md) = node.call(Call::MdBind { desc, unlink }) else {
        panic!("no descriptor");
    };
    // The only structure is for the first peer.
    for rank in [1, 2] {
        let to = Target {
            process: Placement::ONE.of(rank),
            pt_index: 4,
            ac_index: 0,
            match_bits: 0,
            remote_offset: 0,
        };
        node.call(Call::Put {
            md,
            region: None,
            ack: AckRequest::NoAck,
            to,
            hdr_data: 0,
        });
        node.settle();
    }
    for _ in 0..1_000 {
        node.kernel.driver.node_failed(&mut [], 2, true);
        node.settle();
    }
    let mut ends = Vec::new();
    while let HandlerStep::More(_) = node.kernel.interrupt_step(SimTime::ZERO, u32::MAX) {
        while let Answer::Polled(Some(polled)) = node.kernel.poll(0, &[eq]) {
            let event = polled.event;
            ends.extend((event.kind == EventKind::SendEnd).then_some(event.ni_fail));
        }
    }
    assert_eq!(ends, [NiFail::OK, NiFail::FAIL]);
}
