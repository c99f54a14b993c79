//! The model and the memory of its hosts, advanced in bounded pieces.

use firmware_sim::SeaStarFirmware;
use nic_model::defs::niccb::Counter;
use nic_model::{
    HostFault, HostMemories, HostMemory, Machine, NodeId, RegisterIo, SimDuration, SimTime,
    Topology, TopologyError, World,
};

use crate::dma::DmaMap;

/// Virtual time that passes at most while a host waits for one register.
pub const TOUCH: SimDuration = SimDuration::from_us(10_000);

#[derive(Debug)]
struct Hosts(Vec<DmaMap>);

impl HostMemories for Hosts {
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        match self.0.get_mut(node.index()) {
            Some(map) => map.read(address, buf),
            None => Err(HostFault::new(node, address, buf.len())),
        }
    }

    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        match self.0.get_mut(node.index()) {
            Some(map) => map.write(address, data),
            None => Err(HostFault::new(node, address, data.len())),
        }
    }
}

/// A ring of chips, each with what its host has mapped for it.
///
/// The hosts live in wall time and the chips in virtual time, so a host's accesses happen at the
/// present of the world, and [`Chips::advance`] moves that.
#[derive(Debug)]
pub struct Chips {
    world: World<SeaStarFirmware>,
    hosts: Hosts,
    /// Interrupts not yet taken, by node.
    raised: Vec<u64>,
    /// Hosts that hear of interrupts, by node.
    listening: Vec<bool>,
    /// Those that have been interrupted and have not done anything since; time waits for them.
    interrupted: Vec<bool>,
    machine: Machine,
    now: SimTime,
}

impl Chips {
    /// `nodes` chips in a ring.
    ///
    /// # Errors
    /// There is no ring of so many.
    pub fn new(machine: Machine, nodes: u16) -> Result<Self, TopologyError> {
        let topology = Topology::torus([nodes, 1, 1])?;
        Ok(Self {
            world: World::new(machine.clone(), topology, |_, machine| {
                SeaStarFirmware::new(machine)
            }),
            hosts: Hosts((0..nodes).map(|n| DmaMap::new(NodeId(n))).collect()),
            raised: vec![0; usize::from(nodes)],
            listening: vec![false; usize::from(nodes)],
            interrupted: vec![false; usize::from(nodes)],
            machine,
            now: SimTime::ZERO,
        })
    }

    /// How many.
    #[must_use]
    pub fn nodes(&self) -> u16 {
        self.raised.len() as u16
    }

    /// The present.
    #[must_use]
    pub fn now(&self) -> SimTime {
        self.now
    }

    /// A counter of a chip, read without a register access.
    #[must_use]
    pub fn counter(&self, node: NodeId, counter: Counter) -> u32 {
        self.world.counter(node, counter)
    }

    /// What the host of `node` has mapped; `None` where there is no such node.
    pub fn memory(&mut self, node: NodeId) -> Option<&mut DmaMap> {
        self.hosts.0.get_mut(node.index())
    }

    /// Reads a register of `node`.
    pub fn read32(&mut self, node: NodeId, address: u32) -> u32 {
        self.world.registers(node, self.now).read32(address)
    }

    /// Writes a register of `node`.
    pub fn write32(&mut self, node: NodeId, address: u32, value: u32) {
        self.world.registers(node, self.now).write32(address, value);
    }

    /// Says whether the host of `node` hears of interrupts.
    pub fn listen(&mut self, node: NodeId, hears: bool) {
        if let Some(listening) = self.listening.get_mut(node.index()) {
            *listening = hears;
        }
        if !hears {
            self.touched(node);
        }
    }

    /// The host of `node` has done something: time need not wait for it.
    pub fn touched(&mut self, node: NodeId) {
        if let Some(interrupted) = self.interrupted.get_mut(node.index()) {
            *interrupted = false;
        }
    }

    /// Whether time waits for a host that has been interrupted.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.interrupted.contains(&true)
    }

    /// Whether time waits for the host of `node`.
    #[must_use]
    pub fn is_held_by(&self, node: NodeId) -> bool {
        self.interrupted.get(node.index()) == Some(&true)
    }

    /// Lets virtual time pass until the world is at rest, a listening host is interrupted, or
    /// `limit` has passed; whether it is at rest. No time passes while it
    /// [waits for a host](Chips::is_held).
    pub fn advance(&mut self, limit: SimDuration) -> bool {
        let until = self.now + limit;
        while let Some(at) = self.world.next_event_time() {
            if self.is_held() {
                return false;
            }
            if at > until {
                self.now = until;
                return false;
            }
            self.world.step(&mut self.hosts);
            self.now = self.now.max(at);
            while let Some((_, node)) = self.world.poll_interrupt() {
                if let Some(raised) = self.raised.get_mut(node.index()) {
                    *raised += 1;
                    self.interrupted[node.index()] = self.listening[node.index()];
                }
            }
        }
        true
    }

    /// Whether nothing is going to happen until a host does something.
    #[must_use]
    pub fn at_rest(&self) -> bool {
        self.world.next_event_time().is_none()
    }

    /// Interrupts of `node` since the last call.
    pub fn take_interrupts(&mut self, node: NodeId) -> u64 {
        self.raised.get_mut(node.index()).map_or(0, std::mem::take)
    }

    /// Everything as it was at the start, and nothing mapped.
    pub fn reset(&mut self) {
        // The same number of nodes made a ring before.
        if let Ok(fresh) = Self::new(self.machine.clone(), self.nodes()) {
            let listening = std::mem::take(&mut self.listening);
            *self = Self { listening, ..fresh };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::DmaMemory;
    use nic_model::defs::command::{Command as _, InitEq, InitProcess, MarkAlive, OpCode};
    use nic_model::defs::{mailbox, map};
    use std::os::fd::AsFd as _;
    use zerocopy::FromZeros as _;

    struct Io<'a>(&'a mut Chips, NodeId);

    impl RegisterIo for Io<'_> {
        fn read32(&mut self, address: u32) -> u32 {
            self.0.read32(self.1, address)
        }

        fn write32(&mut self, address: u32, value: u32) {
            self.0.write32(self.1, address, value);
        }
    }

    fn command(chips: &mut Chips, node: NodeId, slot: u32, entry: &[u8; 64]) {
        let mut io = Io(chips, node);
        mailbox::write_command(&mut io, 0, slot, entry);
        io.write32(mailbox::address(0, mailbox::COMMAND_WRITE), slot + 1);
    }

    fn taken(chips: &mut Chips, node: NodeId) -> u32 {
        chips.read32(node, mailbox::address(0, mailbox::COMMAND_READ))
    }

    fn boot(chips: &mut Chips, node: NodeId) {
        let memory = DmaMemory::new(1 << 20).unwrap();
        let file = memory.as_fd().try_clone_to_owned().unwrap();
        let map = chips.memory(node).unwrap();
        map.map(0, 1 << 20, (file, 0), (true, true)).unwrap();
        chips.write32(
            node,
            map::ht_slot(8),
            map::HtMapEntry::mapping(0).unwrap().0,
        );
        chips.write32(node, map::HT_INTERRUPT, 1);
        let mut init = InitProcess::new_zeroed();
        init.op = OpCode::INIT_PROCESS;
        init.process_index = 1;
        init.num_pendings = 16.into();
        init.pending_tx_limit = 8.into();
        init.num_eqcbs = 1.into();
        init.pending_table = map::HOST_SRAM.into();
        init.eqcb_table = (map::HOST_SRAM + 16 * map::LOWER_PENDING_LEN).into();
        init.up_pending_table_ht = map::firmware_address(8, 0x4000).into();
        let mut eq = InitEq::new_zeroed();
        eq.op = OpCode::INIT_EQ;
        eq.base = map::firmware_address(8, 0).into();
        eq.count = 1024.into();
        let mut alive = MarkAlive::new_zeroed();
        alive.op = OpCode::MARK_ALIVE;
        alive.process_index = 1;
        for (slot, entry) in [init.to_entry(), eq.to_entry(), alive.to_entry()]
            .iter()
            .enumerate()
        {
            command(chips, node, slot as u32, entry);
            assert!(chips.advance(TOUCH));
            let result = mailbox::address(0, mailbox::RESULT_WRITE);
            let write = chips.read32(node, result);
            chips.write32(node, mailbox::address(0, mailbox::RESULT_READ), write);
        }
        assert_eq!(taken(chips, node), 3);
    }

    #[test]
    fn an_interrupt_stops_time_until_its_host_does_something() {
        let mut chips = Chips::new(Machine::named("xt4").unwrap(), 2).unwrap();
        let (near, far) = (NodeId(0), NodeId(1));
        for node in [near, far] {
            boot(&mut chips, node);
            chips.listen(node, true);
        }
        // A command that is refused ends with an interrupt.
        let mut bad = [0; 64];
        bad[0] = 77;
        command(&mut chips, far, 3, &bad);
        assert!(!chips.at_rest());
        chips.advance(TOUCH);
        assert!(chips.is_held_by(far));
        let then = chips.now();
        command(&mut chips, near, 3, &bad);
        assert!(!chips.advance(TOUCH));
        assert_eq!((chips.now(), taken(&mut chips, near)), (then, 3));
        chips.touched(far);
        chips.advance(TOUCH);
        assert_eq!(taken(&mut chips, near), 4);
        assert!(chips.is_held_by(near) && !chips.is_held_by(far));
        // A host that hears of no interrupts holds nobody up.
        chips.listen(near, false);
        assert!(!chips.is_held());
        assert_eq!(
            (chips.take_interrupts(near), chips.take_interrupts(far)),
            (1, 1)
        );
    }

    #[test]
    fn a_reset_forgets_everything_but_who_listens() {
        let mut chips = Chips::new(Machine::named("xt4").unwrap(), 1).unwrap();
        let node = NodeId(0);
        boot(&mut chips, node);
        chips.listen(node, true);
        chips.reset();
        assert_eq!((chips.now(), taken(&mut chips, node)), (SimTime::ZERO, 0));
        assert!(chips.memory(node).unwrap().size_at(0).is_none());
        boot(&mut chips, node);
    }
}
