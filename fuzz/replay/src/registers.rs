//! What a host may do to its chip: any register, mailbox entry, pending, segment or event word.
//!
//! The bytes are a sequence of acts on a ring of three booted nodes: raw writes and reads of the
//! window, commands that are nearly right, doorbells, host memory, time. Between acts the world
//! goes on for some steps.

use crate::input::Input;
use firmware_sim::SeaStarFirmware;
use nic_model::defs::command::{COMMAND_LEN, Command, InitEq, InitProcess, MarkAlive, OpCode};
use nic_model::defs::niccb::{Counter, crash};
use nic_model::defs::{mailbox, map};
use nic_model::{HostFault, HostMemories, Machine, NodeId, RegisterIo, Topology, World};
use std::sync::OnceLock;

pub(crate) const NODES: u16 = 3;
const MEMORY: usize = 0x4_0000;
const EQ: u64 = 0x1000;
const UPPER: u64 = 0x4000;
const PENDINGS: u16 = 32;
/// Acts of one run, and steps in all: an input ends, whatever it says.
const ACTS: u32 = 120;
const STEPS: u32 = 2_000;

pub(crate) struct Memories(Vec<Vec<u8>>);

impl Memories {
    /// Writes what is in range.
    pub(crate) fn store(&mut self, node: NodeId, address: u64, data: &[u8]) {
        let _ = self.write(node, address, data);
    }

    /// A byte; 0 where there is none.
    pub(crate) fn load(&mut self, node: NodeId, address: u64) -> u8 {
        self.range(node, address, 1).map_or(0, |byte| byte[0])
    }

    fn range(&mut self, node: NodeId, address: u64, length: usize) -> Result<&mut [u8], HostFault> {
        let fault = HostFault::new(node, address, length);
        let memory = self.0.get_mut(node.index()).ok_or(fault)?;
        let at = usize::try_from(address).map_err(|_| fault)?;
        let end = at.checked_add(length).ok_or(fault)?;
        memory.get_mut(at..end).ok_or(fault)
    }
}

impl HostMemories for Memories {
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        buf.copy_from_slice(self.range(node, address, buf.len())?);
        Ok(())
    }

    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        self.range(node, address, data.len())?.copy_from_slice(data);
        Ok(())
    }
}

fn boot_commands() -> [[u8; COMMAND_LEN]; 3] {
    let mut init = InitProcess::from_entry(&[0; COMMAND_LEN]);
    init.op = OpCode::INIT_PROCESS;
    init.process_index = 1;
    init.num_pendings = PENDINGS.into();
    init.pending_tx_limit = (PENDINGS / 2).into();
    init.num_eqcbs = 1.into();
    init.pending_table = map::HOST_SRAM.into();
    init.eqcb_table = (map::HOST_SRAM + u32::from(PENDINGS) * map::LOWER_PENDING_LEN).into();
    init.up_pending_table_ht = map::firmware_address(8, UPPER).into();
    let mut eq = InitEq::from_entry(&[0; COMMAND_LEN]);
    eq.op = OpCode::INIT_EQ;
    eq.base = map::firmware_address(8, EQ).into();
    eq.count = 1024.into();
    let mut alive = MarkAlive::from_entry(&[0; COMMAND_LEN]);
    alive.op = OpCode::MARK_ALIVE;
    alive.process_index = 1;
    [init.to_entry(), eq.to_entry(), alive.to_entry()]
}

/// A command with fields in reach, and one byte of it anything.
fn command(input: &mut Input<'_>) -> [u8; COMMAND_LEN] {
    let mut entry = [0; COMMAND_LEN];
    entry[0] = [3, 4, 5, 13, 0, 1, 2, input.byte()][usize::from(input.below(8))];
    entry[1] = input.below(4);
    entry[2] = input.below(4);
    entry[4..6].copy_from_slice(&input.take::<2>());
    entry[8..10].copy_from_slice(&input.take::<2>());
    entry[16] = input.below(PENDINGS as u8 + 1);
    entry[18] = input.below(66);
    if input.flag() {
        entry[usize::from(input.below(COMMAND_LEN as u8))] = input.byte();
    }
    entry
}

/// The host has read all results of a mailbox: the firmware carries no command out whose result has no room.
pub(crate) fn read_results(world: &mut World<SeaStarFirmware>, node: NodeId, mailbox: u32) {
    let now = world.now();
    let mut io = world.registers(node, now);
    let written = io.read32(mailbox::address(mailbox, mailbox::RESULT_WRITE));
    io.write32(mailbox::address(mailbox, mailbox::RESULT_READ), written);
}

/// Gives every node its kernel's memory and has it carry out the boot commands.
pub(crate) fn boot(world: &mut World<SeaStarFirmware>) -> Memories {
    let mut memories = Memories(vec![vec![0; MEMORY]; usize::from(NODES)]);
    for node in (0..NODES).map(NodeId) {
        let now = world.now();
        let mut io = world.registers(node, now);
        io.write32(map::ht_slot(8), 0x8000);
        io.write32(map::HT_INTERRUPT, 1);
        for (slot, entry) in (0..).zip(boot_commands()) {
            let now = world.now();
            let mut io = world.registers(node, now);
            mailbox::write_command(&mut io, 0, slot, &entry);
            io.write32(mailbox::address(0, mailbox::COMMAND_WRITE), slot + 1);
            for _ in 0..100 {
                if world.step(&mut memories).is_none() {
                    break;
                }
            }
            read_results(world, node, 0);
        }
    }
    memories
}

/// Nothing panics. A chip whose firmware has stopped says why in its crash register; one that has
/// not answers its host: it carries a command out, refuses it and counts that, or counts a doorbell
/// that makes no sense.
pub fn run(data: &[u8]) -> u32 {
    static XT4: OnceLock<Machine> = OnceLock::new();
    let mut machine = XT4
        .get_or_init(|| Machine::named("xt4").expect("a built-in machine"))
        .clone();
    machine.protocol.exhaustion = u32::from(data.first().copied().unwrap_or(1) % 3);
    let topology = Topology::torus([NODES, 1, 1]).expect("three nodes");
    let mut world = World::new(machine, topology, |_, machine| {
        SeaStarFirmware::new(machine)
    });
    let mut memories = boot(&mut world);
    let mut input = Input::new(data.get(1..).unwrap_or_default());
    let mut left = STEPS;
    let mut slots = [3u32; NODES as usize];
    let mut step = |world: &mut World<SeaStarFirmware>, memories: &mut Memories, most: u32| {
        for _ in 0..most {
            if left == 0 || world.step(memories).is_none() {
                return;
            }
            left -= 1;
            world.poll_interrupt();
            world.poll_ras_interrupt();
        }
    };
    step(&mut world, &mut memories, 200);
    for _ in 0..ACTS {
        if input.is_done() {
            break;
        }
        let node = NodeId(u16::from(input.below(NODES as u8)));
        let now = world.now();
        let mut io = world.registers(node, now);
        match input.below(10) {
            0..=3 => {
                let slot = &mut slots[node.index()];
                mailbox::write_command(&mut io, 0, *slot, &command(&mut input));
                *slot = mailbox::next_command(*slot);
                io.write32(mailbox::address(0, mailbox::COMMAND_WRITE), *slot);
            }
            4 => io.write32(
                mailbox::address(u32::from(input.below(4)), mailbox::COMMAND_WRITE),
                input.number() as u32,
            ),
            5 => {
                let word = u32::from_le_bytes(input.take()) % (map::SRAM_LEN / 4);
                io.write32(map::SRAM + 4 * word, input.number() as u32);
            }
            6 => {
                let offset = u32::from(u16::from_le_bytes(input.take()) % 0x2000);
                io.write32(map::NICCB + offset, input.number() as u32);
            }
            7 => {
                let address = u32::from_le_bytes(input.take());
                io.read32(address);
                io.write32(address, input.number() as u32);
                io.write32(map::ht_slot(u32::from(input.byte())), input.number() as u32);
            }
            8 => {
                let at = usize::from(u16::from_le_bytes(input.take()));
                memories.0[node.index()][at] = input.byte();
            }
            // The host reads what it was told.
            _ => {
                memories.0[node.index()][EQ as usize..EQ as usize + 4096].fill(0);
                io.write32(map::ht_slot(8), 0x8000);
                read_results(&mut world, node, 0);
            }
        }
        step(&mut world, &mut memories, u32::from(input.below(40)));
    }
    step(&mut world, &mut memories, u32::MAX);
    let mut carried_out = 0;
    for node in (0..NODES).map(NodeId) {
        let register = world.counter(node, Counter::CRASH_CONTROL);
        match world.stopped(node) {
            Some(reason) => assert_eq!(register, reason, "{node:?}"),
            None => assert_eq!(register, 0, "{node:?}"),
        }
        assert!(register <= crash::HOST);
        carried_out += world.counter(node, Counter::COMMANDS) % 1_000;
    }
    carried_out
}
