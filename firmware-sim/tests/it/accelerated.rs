//! Processes of accelerated mode on a machine in which something goes wrong: puts with acks and
//! gets, judged by the events that the firmware writes at both ends.

use std::collections::BTreeMap;

use firmware_sim::accel::wire::{self, Outcome as Answer, OutcomeKind};
use nic_model::defs::accel::{
    Completion, DescriptorCommand, DescriptorRecord, EVENT_LEN, EntryCommand, EventRecord,
    InitAccel, Initiate, Object, QueueCommand, flags,
};
use nic_model::defs::command::{Command, OpCode};
use nic_model::defs::mailbox;
use nic_model::defs::niccb::Counter;
use nic_model::defs::ras::{Channel, RasEvent, event};
use nic_model::{Machine, NodeId, RegisterIo, SimDuration, SimTime};
use portals_core::{
    EqHandle, Event, EventKind, MdHandle, MdOptions, MeSpec, NiFail, ProcessId, Unlink,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::driver::{DATA, LISTS, Sim};
use super::faults::{BOOTED, MEMORY, MESSAGES, May, Outcome, Plan, SENDERS, SLOT, TARGET, length};

const MAILBOX: u32 = 1;
const PID: u16 = 128;
/// Node id of node 0.
const FIRST_NID: u16 = 1;
const PORTAL: u8 = 4;
/// Match bits of memory that is there, and of memory that is not.
const GOOD: u64 = 0;
const BAD: u64 = 1;
const NOWHERE: u64 = 1 << 40;
/// Where each process has what it shares with its NIC.
const COMPLETION: u64 = LISTS;
const RECORD: u64 = LISTS + 0x200;
const SMALL_BUFFERS: u64 = LISTS + 0x1000;
const RING: u64 = LISTS + 0x1_0000;
const EVENTS: u64 = 1024;

/// A process of the machine.
#[derive(Debug, Default)]
struct Process {
    command_write: u32,
    answers: u32,
    /// Descriptors to send from and to get into.
    good: Option<MdHandle>,
    bad: Option<MdHandle>,
}

/// The processes, one on each node.
struct Job {
    sim: Sim,
    processes: Vec<Process>,
}

impl Job {
    fn new(mut sim: Sim) -> Self {
        sim.boot_all();
        let nodes = sim.hosts.len() as u16;
        let mut job = Self {
            sim,
            processes: (0..nodes).map(|_| Process::default()).collect(),
        };
        for node in 0..nodes {
            job.boot(node, nodes);
        }
        job
    }

    fn boot(&mut self, node: u16, nodes: u16) {
        let init = InitAccel {
            op: OpCode::INIT_ACCEL,
            process_index: MAILBOX as u8 + 1,
            interface: 0,
            flags: 0,
            nid: (FIRST_NID + node).into(),
            pid: PID.into(),
            uid: 0.into(),
            jid: 0.into(),
            nodes: u32::from(nodes).into(),
            completion: COMPLETION.into(),
            memory: 0.into(),
            small_buffers: SMALL_BUFFERS.into(),
            max_mes: 16.into(),
            max_mds: 16.into(),
            max_eqs: 4.into(),
            max_me_list: 16.into(),
            max_ac_index: 8,
            max_pt_index: 8,
            max_md_pieces: 1,
            max_getput: 64,
        };
        assert_eq!(self.sim.control(node, &init), 0);
        let mut queue = QueueCommand::new_zeroed();
        queue.op = OpCode::EQ_ALLOC;
        queue.flags = flags::ANSWER;
        queue.count = EVENTS.into();
        queue.ring = RING.into();
        let Answer::Queue(eq, _) = self.ask(node, &queue, OutcomeKind::Queue) else {
            panic!("no queue");
        };
        for (bits, start) in [(GOOD, DATA), (BAD, NOWHERE)] {
            let spec = MeSpec {
                match_id: ProcessId::ANY,
                match_bits: bits,
                ignore_bits: 0,
                unlink: Unlink::Retain,
            };
            let mut entry = EntryCommand::new_zeroed();
            entry.op = OpCode::ME_ATTACH;
            entry.flags = flags::ANSWER | flags::AFTER;
            entry.base = u32::from(PORTAL).into();
            entry.criteria = wire::criteria(&spec);
            let Answer::Entry(_, me) = self.ask(node, &entry, OutcomeKind::Entry) else {
                panic!("no entry");
            };
            self.describe(node, OpCode::MD_ATTACH, me.raw(), (start, eq));
            let md = self.describe(node, OpCode::MD_BIND, 0, (start, eq));
            let process = &mut self.processes[usize::from(node)];
            match bits {
                GOOD => process.good = Some(md),
                _ => process.bad = Some(md),
            }
        }
    }

    fn describe(
        &mut self,
        node: u16,
        op: OpCode,
        object: u32,
        (start, eq): (u64, EqHandle),
    ) -> MdHandle {
        let options = MdOptions::OP_PUT
            | MdOptions::OP_GET
            | MdOptions::MANAGE_REMOTE
            | MdOptions::EVENT_START_DISABLE;
        let mut record = DescriptorRecord::new_zeroed();
        record.start = start.into();
        record.length = (MEMORY as u64 - DATA).into();
        record.threshold = (-1).into();
        record.options = options.bits().into();
        record.eq = eq.raw().into();
        record.has_queue = 1;
        self.sim.store(node, RECORD, record.as_bytes());
        let mut command = DescriptorCommand::new_zeroed();
        command.op = op;
        command.flags = flags::ANSWER;
        command.object = object.into();
        command.record = RECORD.into();
        match self.ask(node, &command, OutcomeKind::Descriptor) {
            Answer::Descriptor(md) => md,
            other => panic!("{other:?}"),
        }
    }

    /// Writes a command into the process's own mailbox once that has room.
    fn write(&mut self, node: u16, command: &impl Command) {
        let next = mailbox::next_command(self.processes[usize::from(node)].command_write);
        loop {
            let now = self.sim.world.now();
            let mut io = self.sim.world.registers(NodeId(node), now);
            if io.read32(mailbox::address(MAILBOX, mailbox::COMMAND_READ)) != next {
                let process = &mut self.processes[usize::from(node)];
                let entry = command.to_entry();
                mailbox::write_command(&mut io, MAILBOX, process.command_write, &entry);
                io.write32(mailbox::address(MAILBOX, mailbox::COMMAND_WRITE), next);
                process.command_write = next;
                return;
            }
            if self.sim.world.stopped(NodeId(node)).is_some() {
                return;
            }
            assert!(self.sim.step(), "the mailbox stays full");
        }
    }

    /// Writes a command and waits for its answer.
    fn ask(&mut self, node: u16, command: &impl Command, kind: OutcomeKind) -> Answer {
        self.write(node, command);
        self.sim.run();
        let process = &mut self.processes[usize::from(node)];
        process.answers += 1;
        let bytes = self.sim.load(node, COMPLETION, size_of::<Completion>());
        let completion = Completion::read_from_bytes(&bytes).unwrap();
        assert_eq!(completion.tag.get(), process.answers);
        wire::outcome(&completion, kind).unwrap()
    }

    /// Tells the firmware which nodes the RAS controller has given up, as a kernel does.
    fn tell_of_dead_nodes(&mut self) {
        while let Some((at, node)) = self.sim.world.poll_ras_interrupt() {
            let mut io = self.sim.world.registers(node, at);
            let news = RasEvent::take(Channel::EventDown, &mut io).unwrap();
            assert_eq!(news.code, event::NODE_FAILED);
            let mut command = Object::new_zeroed();
            command.op = OpCode::NODE_FAILED;
            command.object = u32::from(news.nid).into();
            self.sim.write(node.0, at, &command);
        }
    }

    /// All events of a process, oldest first.
    fn events(&self, node: u16) -> Vec<Event> {
        (0..EVENTS)
            .map_while(|n| {
                let bytes = self
                    .sim
                    .load(node, RING + EVENT_LEN * n, EVENT_LEN as usize);
                wire::event_of(&EventRecord::read_from_bytes(&bytes).unwrap())
            })
            .collect()
    }
}

/// An operation of the job, by its place in the memory of both ends.
struct Asked {
    from: u16,
    get: bool,
    data: Vec<u8>,
}

/// Runs puts and gets of two processes towards a third.
pub(crate) fn run(machine: Machine, plan: Plan, rng: &mut fastrand::Rng, context: &str) -> Outcome {
    let may = plan.may;
    let sim = Sim::with_faults(machine, [3, 1, 1], MEMORY, plan.faults);
    let mut job = Job::new(sim);
    let now = job.sim.world.now();
    assert!(now.as_ns() < BOOTED, "{now}");
    let start = SimTime(0) + SimDuration::from_ns(BOOTED);
    let mut calls: Vec<(SimTime, u16)> = (0..MESSAGES)
        .flat_map(|_| SENDERS)
        .map(|from| (start + SimDuration::from_ns(rng.u64(0..60_000)), from))
        .collect();
    calls.sort_unstable();
    let mut asked = BTreeMap::new();
    let mut number = [0u32; 3];
    for (when, from) in calls {
        let n = number[usize::from(from)];
        number[usize::from(from)] += 1;
        let get = n % 3 == 2;
        let slot = SLOT * u64::from(u32::from(from) * MESSAGES + n);
        let bad = |wanted: bool| wanted && !get && n % 8 == 4;
        let mut length = if plan.light { 0 } else { length(n, rng) };
        if bad(plan.bad_target) {
            // What the firmware writes itself, up to 16 bytes, does not fail.
            length = length.max(17);
        }
        let data: Vec<u8> = (0..length).map(|_| rng.u8(..)).collect();
        job.sim
            .store(if get { TARGET } else { from }, DATA + slot, &data);
        job.sim.run_until(when);
        if job.sim.world.stopped(NodeId(from)).is_none() {
            let process = &job.processes[usize::from(from)];
            let md = if bad(plan.bad_source) {
                process.bad
            } else {
                process.good
            };
            let mut command = Initiate::new_zeroed();
            command.op = if get { OpCode::GET } else { OpCode::PUT };
            command.flags = if get { 0 } else { flags::ACK };
            command.nid = (FIRST_NID + TARGET).into();
            command.pid = PID.into();
            command.portal = PORTAL;
            command.md = md.map_or(0, MdHandle::raw).into();
            command.length = length.into();
            command.offset = slot.into();
            command.remote_offset = slot.into();
            command.match_bits = if bad(plan.bad_target) { BAD } else { GOOD }.into();
            job.write(from, &command);
        }
        asked.insert(slot, Asked { from, get, data });
    }
    job.sim.run();
    job.tell_of_dead_nodes();
    job.sim.run();
    judge(&job, &asked, may, context)
}

/// Looks at both ends of every operation.
fn judge(job: &Job, asked: &BTreeMap<u64, Asked>, may: May, context: &str) -> Outcome {
    let sim = &job.sim;
    let dead = |node: u16| sim.world.stopped(NodeId(node)).is_some();
    let events: Vec<Vec<Event>> = (0..3).map(|node| job.events(node)).collect();
    let mut outcome = Outcome::default();
    for (&slot, op) in asked {
        let of = |node: u16, kind: EventKind| -> Vec<NiFail> {
            events[usize::from(node)]
                .iter()
                .filter(|e| e.kind == kind && e.offset == slot)
                .map(|e| e.ni_fail)
                .collect()
        };
        let (there, back) = match op.get {
            true => (EventKind::GetEnd, EventKind::ReplyEnd),
            false => (EventKind::PutEnd, EventKind::Ack),
        };
        let (taken, ends) = (of(TARGET, there), of(op.from, back));
        let context = format!("{context}: {back:?} at {slot:#x}: {ends:?} for {taken:?}");
        assert!(taken.len() <= 1, "{context}: came twice");
        if dead(op.from) {
            outcome.dead += 1;
            continue;
        }
        assert_eq!(ends.len(), 1, "{context}");
        if !op.get {
            assert_eq!(of(op.from, EventKind::SendEnd).len(), 1, "{context}");
        }
        match (ends[0], &taken[..]) {
            (NiFail::OK, [NiFail::OK]) => {
                let at = if op.get { op.from } else { TARGET };
                let bytes = sim.load(at, DATA + slot, op.data.len());
                assert!(bytes == op.data, "{context}: other data");
                outcome.arrived += 1;
            }
            (NiFail::OK, _) => {
                assert!(dead(TARGET), "{context}");
                outcome.dead += 1;
            }
            (_, [_]) => outcome.damaged += 1,
            (_, _) => outcome.failed += 1,
        }
    }
    if may != May::Failure {
        assert_eq!(outcome.failed, 0, "{context}: {outcome:?}");
    }
    if may == May::Nothing {
        assert_eq!(outcome.damaged, 0, "{context}: {outcome:?}");
    }
    let stats = sim.world.network_stats();
    assert_eq!(sim.world.packets_in_flight(), 0, "{context}: {stats:?}");
    for node in (0..3).filter(|n| !dead(*n)) {
        for counter in [Counter::CAM_IN_USE, Counter::IN_FLIGHT] {
            assert_eq!(
                sim.counter(node, counter),
                0,
                "{context}: {node}, {counter:?}"
            );
        }
    }
    outcome
}

/// A put or get that is refused after its caller has gone on ends with a failure, once.
#[test]
fn what_is_posted_and_refused_ends_with_a_failure() {
    let mut job = Job::new(Sim::new([2, 1, 1], MEMORY));
    let md = job.processes[0].good.unwrap().raw();
    let post = |job: &mut Job, op, flags, md: u32| {
        let mut command = Initiate::new_zeroed();
        (command.op, command.flags, command.portal) = (op, flags, PORTAL);
        command.nid = (FIRST_NID + 1).into();
        command.pid = PID.into();
        command.md = md.into();
        // Beyond its memory.
        command.offset = (MEMORY as u64).into();
        command.length = 8.into();
        job.write(0, &command);
        job.sim.run();
    };
    for (n, (op, more, ends)) in [
        (OpCode::PUT, 0, &[EventKind::SendEnd][..]),
        (
            OpCode::PUT,
            flags::ACK,
            &[EventKind::SendEnd, EventKind::Ack],
        ),
        (OpCode::GET, 0, &[EventKind::ReplyEnd]),
    ]
    .into_iter()
    .enumerate()
    {
        let before = job.events(0).len();
        post(&mut job, op, more, md);
        let new: Vec<_> = job.events(0).split_off(before);
        let kinds: Vec<_> = new.iter().map(|event| event.kind).collect();
        assert_eq!(kinds, ends);
        assert!(new.iter().all(|event| event.ni_fail == NiFail::FAIL));
        assert_eq!(job.sim.counter(0, Counter::COMMANDS_REJECTED), n as u32 + 1);
    }
    // Of a descriptor that there is not nobody can be told.
    let before = job.events(0).len();
    post(&mut job, OpCode::PUT, flags::ACK, md ^ 0x100);
    assert_eq!(job.events(0).len(), before);
}
