//! The simulation of a job: node kernels, chips and torus in one virtual time.
//!
//! A pure state machine: [`Sim::handle_call`] takes what ranks ask, [`Sim::poll_return`] gives what
//! they are answered. It reads no clock and does no I/O but the ranks' memory.
//!
//! # Virtual time
//!
//! Each rank has a clock, which is the time of its last return. A rank is *running* between a
//! return and its next call, and computing costs nothing, so the next call is made at the clock.
//! Time passes only while no rank runs:
//!
//! ```text
//!   all ranks in a call ──► earliest of: chip and torus event, kernel work, a rank's call
//!                             │
//!                             └─ a return at time t: that rank (and every other that returns
//!                                at t) runs; nothing else happens until they call again
//! ```
//!
//! Therefore nothing that happens before a rank's clock is still to happen when it runs, nothing
//! moves in its memory while it runs, and the order of everything depends on the program alone.
//! At one instant the order is: chip and torus, kernels, calls by rank.
//!
//! A rank that computes ([`Call::Compute`]) returns when its processor has had that time for it.
//!
//! # Invariants
//!
//! * A rank's clock never goes back.
//! * A rank outside (waiting for others by means unknown here) does not hold time; all that are
//!   outside return together, at the latest of their clocks and the present. Leaving is answered,
//!   so that nobody comes back from a fence before the simulation knows who went to it. Other threads of such a rank may
//!   call; what waits outside may wait for them. Their calls are made at the present and do not hold time afterwards.
//! * A rank that runs for longer than [`Setting::patience`] while others are in a call does not hold time any more
//!   (`silent.rs`): what it and they see then depends on the wall clock. Its next call is made at the present.
//! * When every live rank waits without limit and nothing is on its way, all waits end with
//!   [`Error::Fail`]: a deadlock of the program.

mod accelerated;
mod failure;
mod nodes;
mod places;
mod ranks;
#[cfg(test)]
mod scale;
mod silent;
mod waiting_calls;

use super::accel::Accelerated;
use super::grid;
mod trace;

use super::kernel::{HandlerStep, Kernel};
use super::map::Map;
use super::memory::NodeMemory;
use super::ssnal::KERNEL_MEMORY;
use super::usermem::UserMemory;
use fabric_api::call::{Answer, Call, EqList};
use fabric_api::mode::Mode;
use firmware_sim::SeaStarFirmware;
use nic_model::defs::context::CONTEXT_LEN;
use nic_model::{
    Faults, Machine, NodeId, Options, SimDuration, SimTime, StepKind, Topology, World,
};
use portals_core::{Error, NiConfig, ProcessId};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use accelerated::{Fallback, Writing};
use nodes::Nodes;
use places::Places;
use waiting_calls::WaitingCalls;

/// The machine to simulate.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) machine: Machine,
    /// Its grid; the smallest torus that holds the nodes, when none is chosen.
    pub(super) topology: Option<Topology>,
    /// Which rank sits on which place of the grid.
    pub(super) map: Map,
    pub(super) mode: Mode,
    /// What goes wrong; times are those of the world, which has booted first.
    pub(super) faults: Faults,
    /// How long a rank may run without a call, in wall time, before virtual time passes without it; `None`: for ever.
    pub(super) patience: Option<Duration>,
}

/// Why a simulation could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The choice of machine and grid.
    #[error("{0}")]
    Setting(String),
    /// The grid is too small.
    #[error("{nodes} nodes do not fit a grid of {places}")]
    Grid {
        /// Nodes of the job.
        nodes: usize,
        /// Nodes of the grid.
        places: usize,
    },
    /// A rank is on no node, or is the same process as another one.
    #[error("rank {rank} cannot be process {} of node {}", id.pid, id.nid)]
    Process {
        /// The rank.
        rank: usize,
        /// Who it says it is.
        id: ProcessId,
    },
    /// The torus.
    #[error(transparent)]
    Topology(#[from] nic_model::TopologyError),
    /// A fault is of a node or link that the machine does not have.
    #[error(transparent)]
    Faults(#[from] nic_model::FaultsError),
    /// A chip did not answer a boot command.
    #[error("node {node} did not boot: command {command} gave {result:?}")]
    Boot {
        /// Node.
        node: u32,
        /// Which command.
        command: usize,
        /// Its result, if any.
        result: Option<u32>,
    },
}

/// What a rank asks.
#[derive(Debug)]
pub(super) enum Request {
    Call(Call),
    /// A poll that is a part of a wait for ever.
    Slice(EqList, u64),
    /// A call whose operation is for a process that the rank does not know.
    Strayed(Call),
    Leave,
    Rejoin,
    /// An endpoint has a peer from now on.
    Enter,
    /// What an endpoint awaits of this process will not come.
    Forget(ProcessId),
}

/// An answer to a rank, and its new clock.
#[derive(Debug)]
pub(super) struct Return {
    pub(super) rank: usize,
    pub(super) clock: SimTime,
    pub(super) result: Result<Answer, Error>,
}

#[derive(Debug)]
enum RankState {
    Running,
    Calling(Call),
    /// In a poll that found nothing yet; the number tells this wait from later ones.
    Waiting {
        eqs: EqList,
        wait: u64,
        limited: bool,
        /// It has no limit, or is a part of one that has none: it ends too when a peer is lost.
        forever: bool,
    },
    Returning,
    /// Accelerated: its mailbox has no room for a command.
    Writing(Box<Writing>),
    /// Accelerated: waits for the answer to the command of a call.
    Asking(Call),
    /// The program computes, until `due`; `stolen` is what had been taken from its processor when
    /// that was reckoned, and `late` says that `due` came while the handler ran.
    Computing {
        due: SimTime,
        stolen: SimDuration,
        late: bool,
    },
    /// Threads of it are outside, and none is in a call.
    Outside,
    /// It runs, and has made no call for so long that time passes without it.
    Silent,
    Rejoining,
    /// An endpoint that has met somebody, and waits for those of the other ranks of its job.
    Entering,
    Gone {
        closed: bool,
    },
}

#[derive(Debug)]
struct Rank {
    state: RankState,
    clock: SimTime,
    /// Threads of it that have left and are not back; others may be in a call.
    outside: u32,
    /// Index of its node.
    node: usize,
    /// Index among the processes of the node.
    process: usize,
    /// Has a peer, as every rank of a job; see [`Places`].
    met: bool,
    /// The operation of its call is for a process that it does not know.
    strays: bool,
    /// Its poll is a part of a wait for ever.
    slices: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// The interrupt handler of a node goes on.
    Handler(usize),
    /// Commands that found the mailbox full are tried again.
    Retry(usize),
    /// A message between processes of a node.
    Local(usize),
    /// An accelerated rank tries again to write a command.
    Write(usize),
    /// A rank has computed.
    Computed(usize),
    /// A wait's limit.
    Deadline {
        rank: usize,
        wait: u64,
    },
    Return(usize),
    /// The kernels hear that an endpoint has left.
    Left(ProcessId),
}

/// Most event words of one run of the interrupt handler: words that come as fast as it handles them
/// would otherwise keep it from ever returning.
const WORDS: u32 = 32;

/// Steps of the simulation between two looks at who has gone: some milliseconds of wall time.
const STEPS: u32 = 10_000;

/// How long a kernel waits before it looks at a full mailbox again.
const RETRY: SimDuration = SimDuration::from_us(1);

/// The simulation. A rank's node id says on which node it is.
pub(super) struct Sim {
    world: World<SeaStarFirmware>,
    nodes: Nodes,
    ranks: Vec<Rank>,
    /// Ranks by node, in the order of its processes.
    members: Vec<Vec<usize>>,
    /// Ordered by time, then by order of creation.
    work: BinaryHeap<Reverse<(SimTime, u64, Work)>>,
    created: u64,
    results: Vec<Option<Result<Answer, Error>>>,
    returns: VecDeque<Return>,
    running: usize,
    /// Ranks that are not gone.
    live: usize,
    /// Ranks that are back from outside, while others are not.
    rejoining: usize,
    now: SimTime,
    has_more: bool,
    waits: u64,
    deadlocks: u64,
    calls: trace::Calls,
    waiting_calls: WaitingCalls,
    /// By rank.
    accels: Vec<Option<Box<Accelerated>>>,
    /// By rank: how it has fallen back to its kernel.
    fallbacks: Vec<Option<Fallback>>,
    /// See [`Setting::patience`]; whoever hears the ranks measures it.
    pub(super) patience: Option<Duration>,
    /// The places of endpoints; none in a job.
    places: Option<Box<Places>>,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim")
            .field("now", &self.now)
            .field("ranks", &self.ranks)
            .finish_non_exhaustive()
    }
}

impl Sim {
    /// Boots a machine with the ranks' nodes. Ranks start running at time 0.
    pub(super) fn new(
        setting: Setting,
        configs: &[NiConfig],
        memories: Vec<Box<dyn UserMemory>>,
    ) -> Result<Self, SimError> {
        let places = ranks::place(configs)?;
        Self::on(setting, &places, configs, memories)
    }

    /// Boots a machine with the nodes of `places`: node and process of each rank, of which those without a configuration
    /// are still to come.
    fn on(
        setting: Setting,
        places: &[(usize, usize)],
        configs: &[NiConfig],
        memories: Vec<Box<dyn UserMemory>>,
    ) -> Result<Self, SimError> {
        let Setting {
            machine,
            topology,
            map,
            mode,
            faults,
            patience,
        } = setting;
        let count = places.iter().map(|p| p.0 + 1).max().unwrap_or(1);
        let topology = match topology {
            Some(topology) => topology,
            None => Topology::torus(grid::near_cube(count as u32))?,
        };
        if topology.nodes() < count {
            return Err(SimError::Grid {
                nodes: count,
                places: topology.nodes(),
            });
        }
        let on: Vec<usize> = places.iter().map(|p| p.0).collect();
        let topology = map.apply(&topology, &on).map_err(SimError::Setting)?;
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut users: Vec<Vec<Box<dyn UserMemory>>> = (0..count).map(|_| Vec::new()).collect();
        for (rank, (node, _)) in places.iter().enumerate() {
            members[*node].push(rank);
        }
        for ((node, _), user) in places.iter().zip(memories) {
            users[*node].push(user);
        }
        // A job whose nodes all have source structures of their own needs no table.
        let contexts = if count > machine.firmware.sources as usize {
            topology.nodes() as u64 * CONTEXT_LEN
        } else {
            0
        };
        let kernel = |(n, users): (usize, Vec<Box<dyn UserMemory>>)| {
            let node = NodeId(n as u16);
            let own: Vec<NiConfig> = members[n]
                .iter()
                .filter_map(|r| configs.get(*r).copied())
                .collect();
            let memory = NodeMemory::new(node, KERNEL_MEMORY + contexts as usize, users);
            Kernel::new(node, &own, count as u32, &machine, memory)
        };
        let nodes = users.into_iter().enumerate().map(kernel).collect();
        let options = Options {
            faults,
            ..Options::default()
        };
        let world = World::with_options(machine.clone(), topology, options, |_, machine| {
            SeaStarFirmware::new(machine)
        })?;
        let rank = |(rank, &(node, process)): (usize, &(usize, usize))| Rank {
            state: match configs.get(rank) {
                Some(_) => RankState::Running,
                None => RankState::Gone { closed: true },
            },
            clock: SimTime::ZERO,
            outside: 0,
            node,
            process,
            met: true,
            strays: false,
            slices: false,
        };
        let mut sim = Self {
            world,
            nodes: Nodes::new(nodes),
            ranks: places.iter().enumerate().map(rank).collect(),
            members,
            work: BinaryHeap::new(),
            created: 0,
            results: places.iter().map(|_| None).collect(),
            returns: VecDeque::new(),
            running: configs.len(),
            live: configs.len(),
            rejoining: 0,
            now: SimTime::ZERO,
            has_more: false,
            waits: 0,
            deadlocks: 0,
            calls: trace::Calls::default(),
            waiting_calls: WaitingCalls::new(places.len(), count),
            accels: places.iter().map(|_| None).collect(),
            fallbacks: vec![None; places.len()],
            patience,
            places: None,
        };
        sim.boot(configs, contexts > 0)?;
        if mode == Mode::Accelerated {
            sim.boot_accelerated(&machine, configs)?;
        }
        for rank in &mut sim.ranks {
            rank.clock = sim.now;
        }
        for kernel in &mut sim.nodes.all {
            kernel.free_at = sim.now;
        }
        Ok(sim)
    }

    /// Brings every chip up; the ranks' time starts afterwards.
    fn boot(&mut self, configs: &[NiConfig], contexts: bool) -> Result<(), SimError> {
        for n in 0..self.members.len() {
            let node = NodeId(n as u16);
            // A node without ranks has a job's number of zero.
            let first = self.members[n].first().and_then(|r| configs.get(*r));
            let (pid, jid, uid) = first.map_or((0, 0, 0), |c| (c.id.pid, c.jid, c.uid));
            Kernel::open_chip(&mut self.world.registers(node, self.now));
            let commands = Kernel::boot_commands(pid, jid, uid, contexts);
            for (command, entry) in commands.iter().enumerate() {
                self.nodes.all[n].write_command(&mut self.world.registers(node, self.now), entry);
                while self.world.step(&mut self.nodes).is_some() {}
                self.now = self.world.now();
                let result = Kernel::take_result(&mut self.world.registers(node, self.now));
                // An event queue answers 1, the others 0 (book: the SeaStar model).
                if result != Some(u32::from(command == 1)) {
                    return Err(SimError::Boot {
                        node: n as u32,
                        command,
                        result,
                    });
                }
            }
        }
        Ok(())
    }

    /// The clock at which all ranks start.
    pub(super) fn start(&self) -> SimTime {
        self.now
    }

    /// Virtual time so far.
    pub(super) fn now(&self) -> SimTime {
        self.now
    }

    /// Ranks that have not left the simulation.
    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Times at which every rank waited for nothing.
    pub(super) fn deadlocks(&self) -> u64 {
        self.deadlocks
    }

    fn schedule(&mut self, at: SimTime, work: Work) {
        self.created += 1;
        self.work.push(Reverse((at, self.created, work)));
    }

    /// Has `rank` return at `at`.
    fn finish(&mut self, rank: usize, at: SimTime, result: Result<Answer, Error>) {
        self.ranks[rank].state = RankState::Returning;
        self.results[rank] = Some(result);
        self.schedule(at, Work::Return(rank));
    }

    /// Whether a process of a node has a call that waits.
    fn calling(&self, node: usize) -> bool {
        let mut members = self.members[node].iter();
        members.any(|r| matches!(self.ranks[*r].state, RankState::Calling(_)))
    }

    /// Whether [`Sim::poll_return`] gave nothing only to have somebody look who has gone.
    pub(super) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Lets time pass until a rank returns; `None` when all that can happen next is a call of a
    /// running rank, or nothing, and every now and then when there is more to do. Ranks find in their memory what has arrived.
    pub(super) fn poll_return(&mut self) -> Option<Return> {
        let returned = self.pass_time();
        self.nodes.flush();
        returned
    }

    fn pass_time(&mut self) -> Option<Return> {
        self.has_more = false;
        for _ in 0..STEPS {
            if let Some(r) = self.returns.pop_front() {
                return Some(r);
            }
            let work = self.work.peek().map(|Reverse((at, _, work))| (*at, *work));
            if self.running > 0 {
                match work {
                    Some((at, Work::Return(_))) if at == self.now => {}
                    _ => return None,
                }
            }
            let world = self.world.next_event_time();
            let call = self.next_call();
            let earliest = [world, work.map(|w| w.0), call.map(|c| c.0)]
                .into_iter()
                .flatten()
                .min();
            let Some(at) = earliest else {
                if self.break_deadlock() {
                    continue;
                }
                return None;
            };
            self.now = self.now.max(at);
            if world == Some(at) && self.running == 0 {
                self.step_world();
            } else if let Some((_, work)) = work.filter(|w| w.0 == at) {
                self.work.pop();
                self.do_work(at, work);
            } else if let Some((_, rank)) = call.filter(|_| self.running == 0) {
                self.do_call(at, rank);
            } else {
                return None;
            }
        }
        self.has_more = true;
        None
    }

    fn step_world(&mut self) {
        let step = self.world.step(&mut self.nodes);
        match step.map(|s| (s.kind, s)) {
            Some((StepKind::NodeFailed, step)) => self.node_failed(step.node.index()),
            Some((StepKind::HostWrite, step)) => self.accel_notice(step.time, step.node),
            _ => {}
        }
        while let Some((at, node)) = self.world.poll_interrupt() {
            let n = node.index();
            let Some(kernel) = self.nodes.all.get_mut(n) else {
                continue;
            };
            if kernel.handling || kernel.interrupt_again {
                kernel.interrupt_again = true;
                continue;
            }
            self.enter_handler(n, at);
        }
    }

    /// Enters the interrupt handler of a node, at `at` or when its kernel is free.
    fn enter_handler(&mut self, n: usize, at: SimTime) {
        let kernel = &mut self.nodes.all[n];
        kernel.handling = true;
        let due = kernel.free_at.max(at);
        let began = self.runs(n, due);
        let kernel = &mut self.nodes.all[n];
        kernel.handler_began = began;
        let start = kernel.handler_began + kernel.interrupt_entry();
        self.schedule(start, Work::Handler(n));
    }

    fn do_work(&mut self, at: SimTime, work: Work) {
        match work {
            Work::Handler(n) => self.handler(n, at),
            Work::Retry(n) => {
                self.nodes.all[n].retries = false;
                self.settle(n, at);
            }
            Work::Local(n) => self.local(n, at),
            Work::Computed(rank) => self.computed(rank),
            Work::Write(rank) => self.accel_retry(at, rank),
            Work::Deadline { rank, wait } => {
                if matches!(self.ranks[rank].state, RankState::Waiting { wait: w, .. } if w == wait)
                {
                    self.finish(rank, at, Ok(Answer::Polled(None)));
                }
            }
            Work::Return(rank) => self.return_to(rank, at),
            Work::Left(id) => self.tell_of(at, id),
        }
    }

    /// Writes the commands of a node's driver from `at` on; returns when its processor is done.
    fn settle(&mut self, n: usize, at: SimTime) -> SimTime {
        if self.is_stopped(n) {
            // Nobody takes commands any more.
            return self.nodes.all[n].forget_commands(at);
        }
        let world = &mut self.world;
        let (done, again) = self.nodes.all[n].settle(at, |kernel, now, command| {
            let node = kernel.node;
            kernel.write_command(&mut world.registers(node, now), command)
        });
        if again {
            self.schedule(done + RETRY, Work::Retry(n));
        }
        done
    }

    fn handler(&mut self, n: usize, at: SimTime) {
        self.adopt(n);
        match self.nodes.all[n].interrupt_step(at, WORDS) {
            HandlerStep::More(next) => {
                let next = self.settle(n, next);
                self.trace_handler(n, at, next);
                self.schedule(next, Work::Handler(n));
            }
            HandlerStep::Done(free) => {
                self.trace_handler(n, at, free);
                let kernel = &mut self.nodes.all[n];
                kernel.handling = false;
                kernel.free_at = kernel.free_at.max(free);
                let free_at = kernel.free_at;
                kernel.stolen += free.since(kernel.handler_began);
                let local = std::mem::take(&mut kernel.local_late);
                self.waiting_calls.unpark(n, free_at);
                self.wake(n, free);
                // A message between processes, or a call, that has waited for the kernel gets it once
                // before the next interrupt is taken: peers that answer every reply with a request
                // could otherwise keep it out for ever.
                if local {
                    self.local(n, free);
                } else if !self.calling(n) {
                    self.interrupt(n);
                }
                if let Some(&first) = self.members[n].first() {
                    self.computed(first);
                }
            }
        }
    }

    /// Takes the interrupt that came while the processor was busy, if one did.
    fn interrupt(&mut self, n: usize) {
        let kernel = &mut self.nodes.all[n];
        if std::mem::take(&mut kernel.interrupt_again) {
            // A call that did not enter the kernel may have come after it was free.
            let at = kernel.free_at.max(self.now);
            self.enter_handler(n, at);
        }
    }

    /// The same behind a call, which the interrupt has let pass: every call does this, since no other interrupt is taken
    /// before.
    fn interrupt_unless_handled(&mut self, n: usize) {
        if !self.nodes.all[n].handling {
            self.interrupt(n);
        }
    }

    /// Delivers a message between processes of a node, once its kernel is free.
    fn local(&mut self, n: usize, at: SimTime) {
        let kernel = &mut self.nodes.all[n];
        if kernel.handling {
            kernel.local_late = true;
        } else if kernel.free_at > at {
            let free = kernel.free_at;
            self.schedule(free, Work::Local(n));
        } else {
            kernel.local_step();
            let done = self.settle(n, at);
            self.nodes.all[n].free_at = done;
            self.wake(n, done);
            self.local_due(n, done);
            if !self.calling(n) {
                self.interrupt(n);
            }
        }
    }

    /// Has the next message between processes of a node delivered, if there is one.
    fn local_due(&mut self, n: usize, at: SimTime) {
        if let Some(due) = self.nodes.all[n].local_due(at) {
            self.schedule(due, Work::Local(n));
        }
    }

    /// Ends the computing of a rank if it is over: what interrupts have taken from its processor
    /// comes on top. They are taken by the processor of the first process.
    fn computed(&mut self, rank: usize) {
        let Rank {
            state: RankState::Computing { due, stolen, late },
            node,
            ..
        } = &mut self.ranks[rank]
        else {
            return;
        };
        let first = self.members[*node].first() == Some(&rank);
        let kernel = &self.nodes.all[*node];
        if *due > self.now && !*late {
            return;
        }
        if first && kernel.handling {
            *late = true;
            return;
        }
        let taken = SimDuration(kernel.stolen.0.saturating_sub(stolen.0));
        let end = if first { *due + taken } else { *due };
        if end > self.now {
            *due = end;
            *stolen = kernel.stolen;
            *late = false;
            self.schedule(end, Work::Computed(rank));
        } else {
            let now = self.now;
            self.finish(rank, now, Ok(Answer::Done));
        }
    }

    /// Ends the waits of ranks of a node whose queues have got an event.
    fn wake(&mut self, n: usize, at: SimTime) {
        for i in 0..self.members[n].len() {
            let rank = self.members[n][i];
            let RankState::Waiting { eqs, forever, .. } = &self.ranks[rank].state else {
                continue;
            };
            if self.is_accelerated(rank) {
                continue;
            }
            let kernel = &mut self.nodes.all[n];
            let process = self.ranks[rank].process;
            let ended = match kernel.poll(process, eqs) {
                Answer::Polled(None) if *forever && kernel.has_lost(process, eqs) => {
                    Err(Error::Fail)
                }
                Answer::Polled(None) => continue,
                answer => Ok(answer),
            };
            let at = at.max(self.ranks[rank].clock) + kernel.wake_cost();
            let at = self.runs(n, at);
            self.finish(rank, at, ended);
        }
    }

    fn do_call(&mut self, at: SimTime, rank: usize) {
        let RankState::Calling(call) =
            std::mem::replace(&mut self.ranks[rank].state, RankState::Returning)
        else {
            return;
        };
        let (n, process) = (self.ranks[rank].node, self.ranks[rank].process);
        if self.is_stopped(n) {
            if !matches!(call, Call::Close) {
                return self.finish(rank, at, Err(Error::Fail));
            }
            if self.is_accelerated(rank) {
                self.finish(rank, at, Ok(Answer::Done));
                return self.close(rank);
            }
        }
        if let Call::Compute(nanos) = call {
            let due = self.ranks[rank].clock + SimDuration::from_ns(nanos);
            let stolen = self.nodes.all[n].stolen;
            self.ranks[rank].state = RankState::Computing {
                due,
                stolen,
                late: false,
            };
            self.schedule(due, Work::Computed(rank));
            return self.interrupt_unless_handled(n);
        }
        if self.is_accelerated(rank) {
            self.accel_call(at, rank, call);
            return self.interrupt_unless_handled(n);
        }
        let closes = matches!(call, Call::Close);
        let strays =
            self.is_for_one_that_left(rank, &call) | std::mem::take(&mut self.ranks[rank].strays);
        let name = trace::name(&call);
        let wait = Accelerated::wait_of(&call);
        let kernel = &mut self.nodes.all[n];
        let entered = at + kernel.entry_cost(&call);
        let result = match strays {
            false => kernel.execute(process, call),
            true => kernel.execute_strayed(process, call),
        };
        let done = self.settle(n, entered);
        self.nodes.all[n].free_at = done;
        self.trace_call(rank, name, at, done);
        self.ranks[rank].clock = done;
        self.local_due(n, done);
        self.interrupt_unless_handled(n);
        self.return_or_wait(at, done, rank, result, wait);
        if closes {
            // The process still gets its answer; it is the last.
            self.close(rank);
        }
    }
}
