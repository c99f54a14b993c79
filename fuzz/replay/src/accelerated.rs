//! What a process may do to its NIC in accelerated mode: any command, descriptor, list of pieces,
//! answer, event ring or doorbell, in its own mailbox and in the kernel's.
//!
//! The bytes are a sequence of acts on a ring of three booted nodes, each with a process that has a
//! queue, an entry with a descriptor and a free descriptor, so that messages between them arrive.

use crate::input::Input;
use crate::registers::{Memories, NODES, boot, read_results};
use firmware_sim::SeaStarFirmware;
use nic_model::defs::accel::{
    DescriptorCommand, DescriptorRecord, EntryCommand, Exchange, InitAccel, Initiate, NO_HANDLE,
    Object, PieceRecord, QueueCommand, flags,
};
use nic_model::defs::command::{COMMAND_LEN, Command, OpCode};
use nic_model::defs::niccb::{Counter, crash};
use nic_model::defs::{mailbox, map};
use nic_model::{Machine, NodeId, RegisterIo, Topology, World};
use portals_core::MdOptions;
use std::sync::OnceLock;
use zerocopy::{FromZeros, IntoBytes};

const MAILBOX: u32 = 1;
const PID: u16 = 128;
/// Node id of node 0.
const FIRST_NID: u16 = 1;
const PORTAL: u8 = 4;
/// Where a process has what it shares with its NIC.
const COMPLETION: u64 = 0x1_0000;
const RECORD: u64 = 0x1_0200;
const PIECES: u64 = 0x1_0300;
const SMALL_BUFFERS: u64 = 0x1_1000;
const RING: u64 = 0x2_0000;
const DATA: u64 = 0x3_0000;
const LENGTH: u64 = 0x4000;
/// Acts of one run, and steps in all: an input ends, whatever it says.
const ACTS: u32 = 120;
const STEPS: u32 = 3_000;

fn init(node: u16) -> InitAccel {
    InitAccel {
        op: OpCode::INIT_ACCEL,
        process_index: MAILBOX as u8 + 1,
        interface: 0,
        flags: 0,
        nid: (FIRST_NID + node).into(),
        pid: PID.into(),
        uid: 0.into(),
        jid: 0.into(),
        nodes: u32::from(NODES).into(),
        completion: COMPLETION.into(),
        memory: 0.into(),
        small_buffers: SMALL_BUFFERS.into(),
        max_mes: 16.into(),
        max_mds: 16.into(),
        max_eqs: 4.into(),
        max_me_list: 16.into(),
        max_ac_index: 8,
        max_pt_index: 8,
        max_md_pieces: 4,
        max_getput: 64,
    }
}

fn record() -> DescriptorRecord {
    let options = MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE;
    let mut record = DescriptorRecord::new_zeroed();
    record.start = DATA.into();
    record.length = LENGTH.into();
    record.threshold = (-1).into();
    record.options = options.bits().into();
    record
}

/// A handle that a command may name: small numbers are, or nothing, or anything.
fn handle(input: &mut Input<'_>) -> u32 {
    match input.below(8) {
        0 => NO_HANDLE,
        1 => input.number() as u32,
        _ => u32::from(input.below(6)),
    }
}

/// Commands that set a process up so that messages reach it.
fn ready() -> [[u8; COMMAND_LEN]; 4] {
    let mut queue = QueueCommand::new_zeroed();
    queue.op = OpCode::EQ_ALLOC;
    queue.flags = flags::ANSWER;
    queue.count = 64.into();
    queue.ring = RING.into();
    let mut entry = EntryCommand::new_zeroed();
    entry.op = OpCode::ME_ATTACH;
    entry.flags = flags::ANSWER | flags::AFTER;
    entry.base = u32::from(PORTAL).into();
    entry.criteria.nid = u32::MAX.into();
    entry.criteria.pid = u32::MAX.into();
    entry.criteria.ignore_bits = u64::MAX.into();
    let mut attach = DescriptorCommand::new_zeroed();
    attach.op = OpCode::MD_ATTACH;
    attach.flags = flags::ANSWER;
    attach.record = RECORD.into();
    let mut bind = attach;
    bind.op = OpCode::MD_BIND;
    [
        queue.to_entry(),
        entry.to_entry(),
        attach.to_entry(),
        bind.to_entry(),
    ]
}

/// A command with fields in reach, and sometimes one byte of it anything.
fn command(input: &mut Input<'_>, node: u16) -> [u8; COMMAND_LEN] {
    let to = FIRST_NID + u16::from(input.below(NODES as u8 + 1));
    let initiates = |op: OpCode, input: &mut Input<'_>| {
        let mut command = Initiate::new_zeroed();
        command.op = op;
        command.flags = input.byte();
        command.nid = to.into();
        command.pid = PID.into();
        command.portal = PORTAL;
        command.md = handle(input).into();
        command.length = (input.number() as u32).into();
        command.offset = input.number().into();
        command.remote_offset = input.number().into();
        command.to_entry()
    };
    let mut entry = match input.below(12) {
        0..=2 => initiates(OpCode::PUT, input),
        3..=4 => initiates(OpCode::GET, input),
        5 => {
            let mut command = Exchange::new_zeroed();
            command.op = OpCode::GET_PUT;
            command.flags = input.byte();
            command.nid = to.into();
            command.pid = PID.into();
            command.portal = PORTAL;
            command.get_md = handle(input).into();
            command.put_md = handle(input).into();
            command.length = input.number().into();
            command.to_entry()
        }
        6 => ready()[usize::from(input.below(4))],
        7 => {
            let mut command = DescriptorCommand::new_zeroed();
            command.op = OpCode([21, 22, 25, 26][usize::from(input.below(4))]);
            command.flags = input.byte();
            command.entry_unlink = input.byte();
            command.object = handle(input).into();
            command.test = handle(input).into();
            command.record = RECORD.into();
            command.to_entry()
        }
        8 => {
            let mut command = EntryCommand::new_zeroed();
            command.op = OpCode([18, 19][usize::from(input.below(2))]);
            command.flags = input.byte();
            command.base = handle(input).into();
            command.criteria.ignore_bits = u64::MAX.into();
            command.to_entry()
        }
        9 => {
            let mut command = QueueCommand::new_zeroed();
            command.op = OpCode::EQ_ALLOC;
            command.flags = input.byte();
            command.count = input.number().into();
            command.ring = RING.into();
            command.to_entry()
        }
        10 => {
            let mut command = Object::new_zeroed();
            command.op = OpCode(16 + input.below(22));
            command.flags = input.byte();
            command.object = handle(input).into();
            command.to_entry()
        }
        _ => init(node).to_entry(),
    };
    if input.below(4) == 0 {
        entry[usize::from(input.below(COMMAND_LEN as u8))] = input.byte();
    }
    entry
}

/// Nothing panics, and a chip whose firmware has stopped says why in its crash register. How many
/// answers and events came into the processes' memory.
pub fn run(data: &[u8]) -> u32 {
    static XT4: OnceLock<Machine> = OnceLock::new();
    let mut machine = XT4
        .get_or_init(|| Machine::named("xt4").expect("a built-in machine"))
        .clone();
    let mut input = Input::new(data);
    machine.protocol.exhaustion = u32::from(input.below(3));
    // Few enough pendings to run out of them, and on some machines SRAM for a few objects only.
    machine.accelerated.pendings = 8;
    if input.flag() {
        machine.accelerated.me_size = 1_024;
    }
    let topology = Topology::torus([NODES, 1, 1]).expect("three nodes");
    let mut world = World::new(machine, topology, |_, machine| {
        SeaStarFirmware::new(machine)
    });
    let mut memories = boot(&mut world);
    let mut left = STEPS;
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
    let mut slots = [[3_u32, 0]; NODES as usize];
    let mut write = |world: &mut World<SeaStarFirmware>, node: NodeId, kernel, entry: &_| {
        let mailbox = if kernel { 0 } else { MAILBOX };
        let slot = &mut slots[node.index()][mailbox as usize];
        let now = world.now();
        let mut io = world.registers(node, now);
        mailbox::write_command(&mut io, mailbox, *slot, entry);
        *slot = mailbox::next_command(*slot);
        io.write32(mailbox::address(mailbox, mailbox::COMMAND_WRITE), *slot);
    };
    for node in (0..NODES).map(NodeId) {
        memories.store(node, RECORD, record().as_bytes());
        write(&mut world, node, true, &init(node.0).to_entry());
    }
    step(&mut world, &mut memories, 100);
    for node in (0..NODES).map(NodeId) {
        for entry in ready() {
            write(&mut world, node, false, &entry);
        }
    }
    step(&mut world, &mut memories, 200);
    for _ in 0..ACTS {
        if input.is_done() {
            break;
        }
        let node = NodeId(u16::from(input.below(NODES as u8)));
        match input.below(12) {
            0..=5 => {
                let entry = command(&mut input, node.0);
                write(&mut world, node, false, &entry);
            }
            6 => {
                let entry = command(&mut input, node.0);
                write(&mut world, node, true, &entry);
            }
            7 => {
                let mut record = record();
                record.start = input.number().into();
                record.length = input.number().into();
                record.max_size = input.number().into();
                record.threshold = (input.number() as i32).into();
                record.options = u32::from_le_bytes(input.take()).into();
                record.eq = handle(&mut input).into();
                record.has_queue = input.byte();
                record.count = u16::from(input.below(8)).into();
                record.pieces = [0, PIECES, input.number()][usize::from(input.below(3))].into();
                memories.store(node, RECORD, record.as_bytes());
            }
            8 => {
                let piece = PieceRecord {
                    address: input.number().into(),
                    length: input.number().into(),
                };
                let at = PIECES + 16 * u64::from(input.below(8));
                memories.store(node, at, piece.as_bytes());
            }
            9 => {
                let at = 0x1_0000 + u64::from(u16::from_le_bytes(input.take()));
                memories.store(node, at, &[input.byte()]);
            }
            10 => {
                let now = world.now();
                let mut io = world.registers(node, now);
                let doorbell = mailbox::address(u32::from(input.below(4)), mailbox::COMMAND_WRITE);
                io.write32(doorbell, input.number() as u32);
            }
            _ => {
                let word = u32::from_le_bytes(input.take()) % (map::SRAM_LEN / 4);
                let now = world.now();
                let mut io = world.registers(node, now);
                io.write32(map::SRAM + 4 * word, input.number() as u32);
            }
        }
        step(&mut world, &mut memories, u32::from(input.below(60)));
        for mailbox in [0, MAILBOX] {
            read_results(&mut world, node, mailbox);
        }
    }
    step(&mut world, &mut memories, u32::MAX);
    let mut seen = 0;
    for node in (0..NODES).map(NodeId) {
        let register = world.counter(node, Counter::CRASH_CONTROL);
        assert_eq!(register, world.stopped(node).unwrap_or(0), "{node:?}");
        assert!(register <= crash::HOST);
        seen += u32::from(memories.load(node, RING)) + u32::from(memories.load(node, COMPLETION));
    }
    seen
}
