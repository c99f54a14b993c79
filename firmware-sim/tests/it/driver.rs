//! A host that is just enough of a driver to exercise chip and firmware, over any way to the chips.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use firmware_sim::SeaStarFirmware;
use nic_model::defs::command::{
    Command, InitEq, InitProcess, MarkAlive, OpCode, Receive, Release, Segment, Transmit, flags,
};
use nic_model::defs::event::{EventType, EventWord};
use nic_model::defs::map;
use nic_model::defs::niccb::Counter;
use nic_model::defs::pending::{MessageWord, UpperPending};
use nic_model::{
    Faults, Firmware, HostFault, HostMemory, HostParams, Machine, NodeId, RegisterIo, SimTime,
    Topology, World, defs::mailbox,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub(crate) const TX_PENDINGS: u16 = 64;
pub(crate) const RX_PENDINGS: u16 = 64;
pub(crate) const EQ_ENTRIES: u32 = 1024;
pub(crate) const EQ: u64 = 0x1000;
pub(crate) const UPPER: u64 = 0x4000;
/// The context table, in hosts that have one.
const CONTEXTS: u64 = 0x8000;
/// Segment arrays, and from there on the buffers of tests.
pub(crate) const LISTS: u64 = 0x8_0000;
pub(crate) const DATA: u64 = 0x10_0000;

/// Host memory from address zero.
#[derive(Debug)]
pub(crate) struct Flat {
    pub(crate) bytes: Vec<u8>,
}

impl Flat {
    fn range(&self, address: u64, length: usize) -> Result<std::ops::Range<usize>, HostFault> {
        let end = address + length as u64;
        if end > self.bytes.len() as u64 {
            return Err(HostFault::new(NodeId(0), address, length));
        }
        Ok(address as usize..end as usize)
    }
}

impl HostMemory for Flat {
    fn read(&mut self, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let range = self.range(address, buf.len())?;
        buf.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write(&mut self, address: u64, data: &[u8]) -> Result<(), HostFault> {
        let range = self.range(address, data.len())?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }
}

/// The chips of a machine and the memory of their hosts, as drivers reach them: the model itself,
/// or functions in another process.
pub(crate) trait Chips {
    /// All hosts' memories.
    type Memory;

    fn time(&self) -> SimTime;
    fn costs(&self) -> HostParams;
    /// The registers of `node` at an instant.
    fn io(&mut self, node: u16, at: SimTime) -> impl RegisterIo;
    /// When something happens by itself; `None` when nothing will.
    fn next_time(&self) -> Option<SimTime>;
    /// Lets the next thing happen, if there is one.
    fn advance(&mut self, memory: &mut Self::Memory) -> bool;
    /// Packets in the network, as far as one can know.
    fn in_flight(&self) -> usize;
    fn count(&self, node: u16, counter: Counter) -> u32;
    /// An interrupt that has reached a host.
    fn interrupt(&mut self) -> Option<(SimTime, u16)>;
    fn load(memory: &Self::Memory, node: u16, address: u64, buf: &mut [u8]);
    fn store(memory: &mut Self::Memory, node: u16, address: u64, data: &[u8]);
}

impl<F: Firmware> Chips for World<F> {
    type Memory = Vec<Flat>;

    fn time(&self) -> SimTime {
        self.now()
    }

    fn costs(&self) -> HostParams {
        self.machine().host
    }

    fn io(&mut self, node: u16, at: SimTime) -> impl RegisterIo {
        self.registers(NodeId(node), at)
    }

    fn next_time(&self) -> Option<SimTime> {
        self.next_event_time()
    }

    fn advance(&mut self, memory: &mut Self::Memory) -> bool {
        self.step(memory).is_some()
    }

    fn in_flight(&self) -> usize {
        self.packets_in_flight()
    }

    fn count(&self, node: u16, counter: Counter) -> u32 {
        self.counter(NodeId(node), counter)
    }

    fn interrupt(&mut self) -> Option<(SimTime, u16)> {
        self.poll_interrupt().map(|(when, node)| (when, node.0))
    }

    fn load(memory: &Self::Memory, node: u16, address: u64, buf: &mut [u8]) {
        let at = address as usize;
        buf.copy_from_slice(&memory[usize::from(node)].bytes[at..at + buf.len()]);
    }

    fn store(memory: &mut Self::Memory, node: u16, address: u64, data: &[u8]) {
        let at = address as usize;
        memory[usize::from(node)].bytes[at..at + data.len()].copy_from_slice(data);
    }
}

/// A message that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrived {
    pub(crate) time: SimTime,
    pub(crate) source: u16,
    pub(crate) id: u32,
    pub(crate) inline: Vec<u8>,
    pub(crate) deposited: u32,
    pub(crate) discarded: u32,
    pub(crate) kind: EventType,
}

/// A message to be sent; the first 20 bytes of its header tell the receiver what to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    pub(crate) to: u16,
    pub(crate) id: u32,
    pub(crate) inline: Vec<u8>,
    /// Payload pieces, host byte address and length.
    pub(crate) payload: Vec<(u64, u32)>,
    /// Where the receiver puts it, byte address.
    pub(crate) deposit: u64,
    /// Bytes the receiver keeps.
    pub(crate) keep: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Host {
    command_write: u32,
    command_read: u32,
    /// When it last rang the doorbell, which it does not in the past of that.
    rang: SimTime,
    eq_next: u32,
    tx_free: VecDeque<u16>,
    /// By transmit pending: the message.
    sending: BTreeMap<u16, u32>,
    /// How each message has ended here.
    pub(crate) ended: Vec<(u32, EventType)>,
    scheduled: bool,
    /// Messages that wait for a transmit pending.
    outbox: VecDeque<Message>,
    /// Events as read, with the time of the handler.
    pub(crate) log: Vec<(SimTime, EventWord)>,
    pub(crate) arrived: Vec<Arrived>,
    /// Do not answer headers.
    pub(crate) deaf: bool,
    pub(crate) unanswered: Vec<u16>,
}

pub(crate) fn init_process() -> InitProcess {
    let mut init = InitProcess::new_zeroed();
    init.op = OpCode::INIT_PROCESS;
    init.process_index = 1;
    init.num_pendings = (TX_PENDINGS + RX_PENDINGS).into();
    init.pending_tx_limit = TX_PENDINGS.into();
    init.num_eqcbs = 1.into();
    init.pending_table = map::HOST_SRAM.into();
    init.eqcb_table =
        (map::HOST_SRAM + u32::from(TX_PENDINGS + RX_PENDINGS) * map::LOWER_PENDING_LEN).into();
    init.up_pending_table_ht = map::firmware_address(8, UPPER).into();
    init
}

pub(crate) fn init_eq() -> InitEq {
    let mut eq = InitEq::new_zeroed();
    eq.op = OpCode::INIT_EQ;
    eq.base = map::firmware_address(8, EQ).into();
    eq.count = EQ_ENTRIES.into();
    eq
}

pub(crate) fn mark_alive() -> MarkAlive {
    let mut alive = MarkAlive::new_zeroed();
    alive.op = OpCode::MARK_ALIVE;
    alive.process_index = 1;
    alive
}

pub(crate) struct Sim<C: Chips = World<SeaStarFirmware>> {
    pub(crate) world: C,
    pub(crate) memory: C::Memory,
    pub(crate) hosts: Vec<Host>,
    handlers: BTreeSet<(SimTime, u16)>,
    /// Hosts give their firmware a context table.
    pub(crate) contexts: bool,
}

impl Sim {
    pub(crate) fn new(dims: [u16; 3], memory: usize) -> Self {
        Self::with_machine(Machine::named("xt4").unwrap(), dims, memory)
    }

    pub(crate) fn with_machine(machine: Machine, dims: [u16; 3], memory: usize) -> Self {
        Self::with_firmware(machine, dims, memory, |_, machine| {
            SeaStarFirmware::new(machine)
        })
    }

    /// A simulation of a machine with faults.
    pub(crate) fn with_faults(
        machine: Machine,
        dims: [u16; 3],
        memory: usize,
        faults: Faults,
    ) -> Self {
        Self::with_options(machine, dims, memory, faults, |_, machine| {
            SeaStarFirmware::new(machine)
        })
    }

    /// Two booted neighbours.
    pub(crate) fn pair(memory: usize) -> Self {
        let mut sim = Self::new([2, 1, 1], memory);
        sim.boot_all();
        sim
    }
}

impl<F: Firmware> Sim<World<F>> {
    pub(crate) fn with_firmware(
        machine: Machine,
        dims: [u16; 3],
        memory: usize,
        firmware: impl FnMut(NodeId, &Machine) -> F,
    ) -> Self {
        Self::with_options(machine, dims, memory, Faults::none(), firmware)
    }

    fn with_options(
        machine: Machine,
        dims: [u16; 3],
        memory: usize,
        faults: Faults,
        firmware: impl FnMut(NodeId, &Machine) -> F,
    ) -> Self {
        let topology = Topology::torus(dims).unwrap();
        let nodes = topology.nodes();
        let options = nic_model::Options {
            faults,
            ..nic_model::Options::default()
        };
        Self {
            world: World::with_options(machine, topology, options, firmware).unwrap(),
            memory: (0..nodes)
                .map(|_| Flat {
                    bytes: vec![0; memory],
                })
                .collect(),
            hosts: (0..nodes).map(|_| Host::default()).collect(),
            handlers: BTreeSet::new(),
            contexts: false,
        }
    }
}

impl<C: Chips> Sim<C> {
    /// Drivers over `nodes` chips, not booted.
    #[allow(dead_code, reason = "for chips that are not in this process")]
    pub(crate) fn over(world: C, memory: C::Memory, nodes: u16) -> Self {
        Self {
            world,
            memory,
            hosts: (0..nodes).map(|_| Host::default()).collect(),
            handlers: BTreeSet::new(),
            contexts: false,
        }
    }

    pub(crate) fn now(&self) -> SimTime {
        self.world.time()
    }

    pub(crate) fn load(&self, node: u16, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        C::load(&self.memory, node, address, &mut bytes);
        bytes
    }

    pub(crate) fn store(&mut self, node: u16, address: u64, data: &[u8]) {
        C::store(&mut self.memory, node, address, data);
    }

    pub(crate) fn boot_all(&mut self) {
        for node in 0..self.hosts.len() as u16 {
            self.boot(node, true);
        }
    }

    pub(crate) fn boot(&mut self, node: u16, alive: bool) {
        let now = self.now();
        let mut io = self.world.io(node, now);
        assert_eq!(io.read32(map::NID), u32::from(node));
        io.write32(map::ht_slot(8), map::HtMapEntry::mapping(0).unwrap().0);
        io.write32(map::HT_INTERRUPT, 0xFD00_0000);
        drop(io);
        let mut init = init_process();
        if self.contexts {
            init.context_table_ht = map::firmware_address(8, CONTEXTS).into();
        }
        assert_eq!(self.control(node, &init), 0);
        assert_eq!(self.control(node, &init_eq()), 1);
        if alive {
            assert_eq!(self.control(node, &mark_alive()), 0);
        }
        self.hosts[usize::from(node)].tx_free = (0..TX_PENDINGS).collect();
    }

    /// Writes a command and waits for its result.
    pub(crate) fn control(&mut self, node: u16, command: &impl Command) -> u32 {
        let now = self.now();
        self.write(node, now, command);
        while self.world.advance(&mut self.memory) {}
        let mut io = self.world.io(node, now);
        let read = io.read32(mailbox::address(0, mailbox::RESULT_READ));
        assert_ne!(
            read,
            io.read32(mailbox::address(0, mailbox::RESULT_WRITE)),
            "no result"
        );
        let result = io.read32(mailbox::address(0, mailbox::RESULT_RING + 4 * read));
        io.write32(
            mailbox::address(0, mailbox::RESULT_READ),
            mailbox::next_result(read),
        );
        result
    }

    /// Writes a command at `at` and rings the doorbell; waits while the ring is full.
    pub(crate) fn write(&mut self, node: u16, at: SimTime, command: &impl Command) {
        loop {
            let host = &mut self.hosts[usize::from(node)];
            let at = at.max(host.rang);
            host.rang = at;
            let next = mailbox::next_command(host.command_write);
            let mut io = self.world.io(node, at);
            if next == host.command_read {
                host.command_read = io.read32(mailbox::address(0, mailbox::COMMAND_READ));
            }
            if next != host.command_read {
                mailbox::write_command(&mut io, 0, host.command_write, &command.to_entry());
                io.write32(mailbox::address(0, mailbox::COMMAND_WRITE), next);
                host.command_write = next;
                return;
            }
            drop(io);
            self.step();
        }
    }

    pub(crate) fn step(&mut self) -> bool {
        let stepped = self.world.advance(&mut self.memory);
        self.collect();
        stepped
    }

    /// Has a handler run for each interrupt that has come.
    fn collect(&mut self) {
        // The work for an event word goes before the handler, which takes all words at one instant.
        let entry = self.world.costs().interrupt_entry + self.world.costs().event_handle;
        while let Some((when, node)) = self.world.interrupt() {
            let host = &mut self.hosts[usize::from(node)];
            if !host.scheduled {
                host.scheduled = true;
                self.handlers.insert((when + entry, node));
            }
        }
    }

    /// Until nothing more happens.
    pub(crate) fn run(&mut self) {
        self.run_until(SimTime::NEVER);
    }

    /// Until nothing more happens before `until`.
    pub(crate) fn run_until(&mut self, until: SimTime) {
        loop {
            self.collect();
            let handler = self.handlers.first().map(|h| h.0);
            let next = self.world.next_time().into_iter().chain(handler);
            if next.min().is_none_or(|at| at > until) {
                return;
            }
            match (self.handlers.first().copied(), self.world.next_time()) {
                (Some((at, node)), next) if next.is_none_or(|next| at < next) => {
                    self.handlers.pop_first();
                    self.handler(node, at);
                }
                (_, Some(_)) => {
                    self.step();
                }
                (_, None) => return,
            }
        }
    }

    /// Sends at `at`, or when a transmit pending comes back.
    pub(crate) fn send_later(&mut self, from: u16, at: SimTime, message: &Message) {
        let host = &mut self.hosts[usize::from(from)];
        if host.tx_free.is_empty() {
            host.outbox.push_back(message.clone());
        } else {
            self.send(from, at, message);
        }
    }

    fn handler(&mut self, node: u16, mut at: SimTime) {
        let index = usize::from(node);
        self.hosts[index].scheduled = false;
        let costs = self.world.costs();
        loop {
            let slot = EQ + 4 * u64::from(self.hosts[index].eq_next);
            let mut word = [0; 4];
            C::load(&self.memory, node, slot, &mut word);
            let event = EventWord(u32::from_le_bytes(word));
            if event.is_empty() {
                return;
            }
            self.store(node, slot, &[0; 4]);
            at += costs.eq_read;
            let host = &mut self.hosts[index];
            host.eq_next = (host.eq_next + 1) % EQ_ENTRIES;
            host.log.push((at, event));
            match event.kind() {
                EventType::TX_END | EventType::TX_FAILED | EventType::TX_FAULT => {
                    host.tx_free.push_back(event.index());
                    if let Some(id) = host.sending.remove(&event.index()) {
                        host.ended.push((id, event.kind()));
                    }
                    if let Some(message) = host.outbox.pop_front() {
                        at += costs.command_write;
                        self.send(node, at, &message);
                    }
                }
                EventType::HEADER if host.deaf => host.unanswered.push(event.index()),
                EventType::HEADER => {
                    at += costs.match_fixed + costs.command_write;
                    self.answer(node, at, event.index());
                }
                EventType::RX_DONE
                | EventType::DROPPED
                | EventType::RX_FAILED
                | EventType::RX_FAULT => {
                    let upper = self.upper(node, event.index());
                    self.record(node, at, &upper, event.kind());
                    self.release(node, at, event.index());
                }
                _ => {}
            }
        }
    }

    /// Answers the headers a deaf host has left.
    pub(crate) fn answer_all(&mut self, node: u16) {
        let at = self.now();
        self.hosts[usize::from(node)].deaf = false;
        for pending in std::mem::take(&mut self.hosts[usize::from(node)].unanswered) {
            self.answer(node, at, pending);
        }
    }

    fn answer(&mut self, node: u16, at: SimTime, pending: u16) {
        let upper = self.upper(node, pending);
        if !MessageWord(upper.message.get()).has_payload() {
            self.record(node, at, &upper, EventType::HEADER);
            self.release(node, at, pending);
            return;
        }
        let keep = u32::from_le_bytes(upper.header[4..8].try_into().unwrap());
        let deposit = u64::from_le_bytes(upper.header[8..16].try_into().unwrap());
        let mut receive = Receive::new_zeroed();
        receive.op = OpCode::RECEIVE;
        receive.length = keep.into();
        receive.address = (deposit >> 2).into();
        receive.byte = ((deposit & 3) as u16).into();
        receive.pending_index = pending.into();
        self.write(node, at, &receive);
    }

    pub(crate) fn release(&mut self, node: u16, at: SimTime, pending: u16) {
        let mut release = Release::new_zeroed();
        release.op = OpCode::RELEASE;
        release.pending_index = pending.into();
        self.write(node, at, &release);
    }

    pub(crate) fn upper(&self, node: u16, pending: u16) -> UpperPending {
        let at = UPPER + 128 * u64::from(pending);
        UpperPending::read_from_bytes(&self.load(node, at, 128)).unwrap()
    }

    fn record(&mut self, node: u16, time: SimTime, upper: &UpperPending, kind: EventType) {
        let word = MessageWord(upper.message.get());
        self.hosts[usize::from(node)].arrived.push(Arrived {
            time,
            source: word.source(),
            id: u32::from_le_bytes(upper.header[0..4].try_into().unwrap()),
            inline: upper.header[48..usize::from(word.header_length())].to_vec(),
            deposited: upper.deposited.get(),
            discarded: upper.discarded.get(),
            kind,
        });
    }

    /// Sends at `at`; runs the world while all transmit pendings are taken.
    pub(crate) fn send(&mut self, from: u16, at: SimTime, message: &Message) {
        let index = usize::from(from);
        let pending = loop {
            if let Some(pending) = self.hosts[index].tx_free.pop_front() {
                break pending;
            }
            match self.handlers.first().copied() {
                Some((due, node)) if self.world.next_time().is_none_or(|t| due < t) => {
                    self.handlers.pop_first();
                    self.handler(node, due);
                }
                _ => {
                    let stepped = self.step();
                    assert!(
                        stepped || !self.handlers.is_empty(),
                        "no transmit pending comes back"
                    );
                }
            }
        };
        self.hosts[index].sending.insert(pending, message.id);
        let upper = UPPER + 128 * u64::from(pending);
        let mut header = self.load(from, upper + 64, 64);
        header[0..4].copy_from_slice(&message.id.to_le_bytes());
        header[4..8].copy_from_slice(&message.keep.to_le_bytes());
        header[8..16].copy_from_slice(&message.deposit.to_le_bytes());
        header[48..48 + message.inline.len()].copy_from_slice(&message.inline);
        self.store(from, upper + 64, &header);
        let mut transmit = Transmit::new_zeroed();
        transmit.op = OpCode::TRANSMIT;
        transmit.flags = flags::INTERRUPT;
        transmit.nid = message.to.into();
        transmit.pending_index = pending.into();
        transmit.header_length = (48 + message.inline.len() as u16).into();
        transmit.length = message.payload.iter().map(|p| p.1).sum::<u32>().into();
        if let [(address, _)] = message.payload[..] {
            transmit.address = (address >> 2).into();
        } else if !message.payload.is_empty() {
            let list = LISTS + 1024 * u64::from(pending);
            for (n, &(address, length)) in (0..).zip(&message.payload) {
                let mut segment = Segment::new_zeroed();
                segment.address = (address >> 2).into();
                segment.length = length.into();
                self.store(from, list + 16 * n, segment.as_bytes());
            }
            transmit.segments = (message.payload.len() as u16).into();
            transmit.address = (list >> 2).into();
        }
        self.write(from, at, &transmit);
    }

    pub(crate) fn counter(&self, node: u16, counter: Counter) -> u32 {
        self.world.count(node, counter)
    }
}
