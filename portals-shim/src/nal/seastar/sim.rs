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
//! # Invariants
//!
//! * A rank's clock never goes back.
//! * A rank outside (waiting for others by means unknown here) does not hold time; all that are
//!   outside return together, at the latest of their clocks and the present.
//! * When every live rank waits without limit and nothing is on its way, all waits end with
//!   [`Error::Fail`]: a deadlock of the program.

use super::kernel::{HandlerStep, Kernel};
use super::memory::NodeMemory;
use super::ssnal::KERNEL_MEMORY;
use super::usermem::UserMemory;
use crate::call::{Answer, Call, EqList, Wait};
use firmware_sim::SeaStarFirmware;
use nic_model::{
    HostFault, HostMemories, HostMemory, Machine, NodeId, SimDuration, SimTime, Topology, World,
};
use portals_core::{Error, NiConfig};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Why a simulation could not be built.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// The machine's parameters.
    #[error(transparent)]
    Machine(#[from] nic_model::MachineError),
    /// The torus.
    #[error(transparent)]
    Topology(#[from] nic_model::TopologyError),
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
    Leave,
    Rejoin,
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
    },
    Returning,
    Outside,
    Rejoining,
    Gone {
        closed: bool,
    },
}

#[derive(Debug)]
struct Rank {
    state: RankState,
    clock: SimTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    /// The interrupt handler of a node goes on.
    Handler(usize),
    /// Commands that found the mailbox full are tried again.
    Retry(usize),
    /// A wait's limit.
    Deadline {
        rank: usize,
        wait: u64,
    },
    Return(usize),
}

struct Nodes(Vec<Kernel>);

impl HostMemories for Nodes {
    fn read(&mut self, node: NodeId, address: u64, buf: &mut [u8]) -> Result<(), HostFault> {
        let fault = HostFault::new(node, address, buf.len());
        self.0
            .get_mut(node.index())
            .ok_or(fault)?
            .driver()
            .memory
            .read(address, buf)
    }

    fn write(&mut self, node: NodeId, address: u64, data: &[u8]) -> Result<(), HostFault> {
        let fault = HostFault::new(node, address, data.len());
        self.0
            .get_mut(node.index())
            .ok_or(fault)?
            .driver()
            .memory
            .write(address, data)
    }
}

/// How long a kernel waits before it looks at a full mailbox again.
const RETRY: SimDuration = SimDuration::from_us(1);

/// The simulation; one rank per node, rank `r` on node `r`.
pub(super) struct Sim {
    world: World<SeaStarFirmware>,
    nodes: Nodes,
    ranks: Vec<Rank>,
    /// Ordered by time, then by order of creation.
    work: BinaryHeap<Reverse<(SimTime, u64, Work)>>,
    created: u64,
    results: Vec<Option<Result<Answer, Error>>>,
    returns: VecDeque<Return>,
    running: usize,
    now: SimTime,
    waits: u64,
    deadlocks: u64,
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
    /// Boots a machine with a node for each rank's memory. Ranks start running at time 0.
    pub(super) fn new(
        machine: Machine,
        configs: &[NiConfig],
        memories: Vec<Box<dyn UserMemory>>,
    ) -> Result<Self, SimError> {
        let count = configs.len();
        let topology = Topology::torus(near_cube(count as u32))?;
        let nodes = configs
            .iter()
            .zip(memories)
            .enumerate()
            .map(|(n, (config, user))| {
                let node = NodeId(n as u16);
                let memory = NodeMemory::new(node, KERNEL_MEMORY, user);
                Kernel::new(node, *config, count as u32, &machine, memory)
            })
            .collect();
        let world = World::new(machine, topology, |_, machine| {
            SeaStarFirmware::new(machine)
        });
        let mut sim = Self {
            world,
            nodes: Nodes(nodes),
            ranks: (0..count)
                .map(|_| Rank {
                    state: RankState::Running,
                    clock: SimTime::ZERO,
                })
                .collect(),
            work: BinaryHeap::new(),
            created: 0,
            results: (0..count).map(|_| None).collect(),
            returns: VecDeque::new(),
            running: count,
            now: SimTime::ZERO,
            waits: 0,
            deadlocks: 0,
        };
        sim.boot(configs)?;
        Ok(sim)
    }

    /// Brings every chip up; the ranks' time starts afterwards.
    fn boot(&mut self, configs: &[NiConfig]) -> Result<(), SimError> {
        for (n, config) in configs.iter().enumerate() {
            let node = NodeId(n as u16);
            Kernel::open_chip(&mut self.world.registers(node, self.now));
            let commands = Kernel::boot_commands(config.id.pid, config.jid, config.uid);
            for (command, entry) in commands.iter().enumerate() {
                self.nodes.0[n].write_command(&mut self.world.registers(node, self.now), entry);
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
        for (rank, kernel) in self.ranks.iter_mut().zip(&mut self.nodes.0) {
            rank.clock = self.now;
            kernel.free_at = self.now;
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
        self.ranks
            .iter()
            .filter(|r| !matches!(r.state, RankState::Gone { .. }))
            .count()
    }

    /// Times at which every rank waited for nothing.
    pub(super) fn deadlocks(&self) -> u64 {
        self.deadlocks
    }

    /// A rank calls. Ignored unless it is running (or outside, for [`Request::Rejoin`]): a rank
    /// has one call at a time.
    pub(super) fn handle_call(&mut self, rank: usize, request: Request) {
        let Some(r) = self.ranks.get_mut(rank) else {
            return;
        };
        match (&r.state, request) {
            (RankState::Running, Request::Call(call)) => {
                self.running -= 1;
                r.state = RankState::Calling(call);
            }
            (RankState::Running, Request::Leave) => {
                self.running -= 1;
                r.state = RankState::Outside;
            }
            (RankState::Outside, Request::Rejoin) => {
                r.state = RankState::Rejoining;
                self.rejoin();
            }
            _ => {}
        }
    }

    /// A rank's process is gone.
    pub(super) fn handle_exit(&mut self, rank: usize) {
        let Some(r) = self.ranks.get_mut(rank) else {
            return;
        };
        match r.state {
            RankState::Gone { .. } => return,
            RankState::Running => self.running -= 1,
            _ => {}
        }
        r.state = RankState::Gone { closed: false };
        // An interrupt that waited for its call waits no more.
        if !self.nodes.0[rank].handling {
            self.interrupt(rank);
        }
        self.rejoin();
    }

    /// Lets the ranks that are back in, once nobody is outside any more.
    fn rejoin(&mut self) {
        if self
            .ranks
            .iter()
            .any(|r| matches!(r.state, RankState::Outside))
        {
            return;
        }
        let back: Vec<usize> = (0..self.ranks.len())
            .filter(|&r| matches!(self.ranks[r].state, RankState::Rejoining))
            .collect();
        let at = back
            .iter()
            .map(|&r| self.ranks[r].clock)
            .fold(self.now, SimTime::max);
        for rank in back {
            self.ranks[rank].state = RankState::Returning;
            self.finish(rank, at, Ok(Answer::Done));
        }
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

    /// The earliest call that can be executed: of a rank whose processor is not in the handler.
    fn next_call(&self) -> Option<(SimTime, usize)> {
        self.ranks
            .iter()
            .enumerate()
            .filter(|(n, r)| matches!(r.state, RankState::Calling(_)) && !self.nodes.0[*n].handling)
            .map(|(n, r)| (r.clock.max(self.nodes.0[n].free_at), n))
            .min()
    }

    /// Lets time pass until a rank returns; `None` when all that can happen next is a call of a
    /// running rank, or nothing.
    pub(super) fn poll_return(&mut self) -> Option<Return> {
        loop {
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
    }

    fn step_world(&mut self) {
        self.world.step(&mut self.nodes);
        while let Some((at, node)) = self.world.poll_interrupt() {
            let n = node.index();
            let Some(kernel) = self.nodes.0.get_mut(n) else {
                continue;
            };
            if kernel.handling || kernel.interrupt_again {
                kernel.interrupt_again = true;
                continue;
            }
            kernel.handling = true;
            let start = kernel.free_at.max(at) + kernel.interrupt_entry();
            self.schedule(start, Work::Handler(n));
        }
    }

    fn do_work(&mut self, at: SimTime, work: Work) {
        match work {
            Work::Handler(n) => self.handler(n, at),
            Work::Retry(n) => {
                self.settle(n, at);
            }
            Work::Deadline { rank, wait } => {
                if matches!(self.ranks[rank].state, RankState::Waiting { wait: w, .. } if w == wait)
                {
                    self.finish(rank, at, Ok(Answer::Polled(None)));
                }
            }
            Work::Return(rank) => {
                let Some(result) = self.results[rank].take() else {
                    return;
                };
                let r = &mut self.ranks[rank];
                if !matches!(r.state, RankState::Returning) {
                    return;
                }
                r.state = RankState::Running;
                r.clock = at;
                self.running += 1;
                self.returns.push_back(Return {
                    rank,
                    clock: at,
                    result,
                });
            }
        }
    }

    /// Writes the commands of a node's driver from `at` on; returns when its processor is done.
    fn settle(&mut self, n: usize, at: SimTime) -> SimTime {
        let world = &mut self.world;
        let (done, left) = self.nodes.0[n].settle(at, |kernel, now, command| {
            let node = kernel.node;
            kernel.write_command(&mut world.registers(node, now), command)
        });
        if left {
            self.schedule(done + RETRY, Work::Retry(n));
        }
        done
    }

    fn handler(&mut self, n: usize, at: SimTime) {
        match self.nodes.0[n].interrupt_step(at) {
            HandlerStep::More(next) => {
                let next = self.settle(n, next);
                self.schedule(next, Work::Handler(n));
            }
            HandlerStep::Done(free) => {
                let kernel = &mut self.nodes.0[n];
                kernel.handling = false;
                kernel.free_at = kernel.free_at.max(free);
                // A process that has waited for the processor gets it for one call before the next
                // interrupt is taken: peers that answer every reply with a request could otherwise
                // keep it out for ever.
                if !matches!(self.ranks[n].state, RankState::Calling(_)) {
                    self.interrupt(n);
                }
                self.wake(n, free);
            }
        }
    }

    /// Takes the interrupt that came while the processor was busy, if one did.
    fn interrupt(&mut self, n: usize) {
        let kernel = &mut self.nodes.0[n];
        if std::mem::take(&mut kernel.interrupt_again) {
            kernel.handling = true;
            let start = kernel.free_at + kernel.interrupt_entry();
            self.schedule(start, Work::Handler(n));
        }
    }

    /// Ends the wait of a rank whose queues have got an event.
    fn wake(&mut self, rank: usize, at: SimTime) {
        let RankState::Waiting { eqs, .. } = &self.ranks[rank].state else {
            return;
        };
        let kernel = &mut self.nodes.0[rank];
        match kernel.poll(eqs) {
            Answer::Polled(None) => {}
            answer => {
                let at = at.max(self.ranks[rank].clock) + kernel.wake_cost();
                self.finish(rank, at, Ok(answer));
            }
        }
    }

    fn do_call(&mut self, at: SimTime, rank: usize) {
        let RankState::Calling(call) =
            std::mem::replace(&mut self.ranks[rank].state, RankState::Returning)
        else {
            return;
        };
        let closes = matches!(call, Call::Close);
        let wait = match &call {
            Call::EqPoll { eqs, wait } if *wait != Wait::No => Some((eqs.clone(), *wait)),
            _ => None,
        };
        let kernel = &mut self.nodes.0[rank];
        let entered = at + kernel.entry_cost(&call);
        let result = kernel.execute(call);
        let done = self.settle(rank, entered);
        self.nodes.0[rank].free_at = done;
        self.ranks[rank].clock = done;
        if !self.nodes.0[rank].handling {
            self.interrupt(rank);
        }
        match (&result, wait) {
            (Ok(Answer::Polled(None)), Some((eqs, limit))) => {
                self.waits += 1;
                let wait = self.waits;
                let limited = match limit {
                    Wait::Nanos(ns) => {
                        self.schedule(at + SimDuration::from_ns(ns), Work::Deadline { rank, wait });
                        true
                    }
                    Wait::No | Wait::Forever => false,
                };
                self.ranks[rank].state = RankState::Waiting { eqs, wait, limited };
            }
            _ => self.finish(rank, done, result),
        }
        if closes {
            // The process still gets its answer; it is the last.
            self.close(rank);
        }
    }

    /// Answers the last call of a rank and counts it out.
    fn close(&mut self, rank: usize) {
        let Some(result) = self.results[rank].take() else {
            return;
        };
        let clock = self.ranks[rank].clock;
        self.ranks[rank].state = RankState::Gone { closed: true };
        self.returns.push_back(Return {
            rank,
            clock,
            result,
        });
    }

    /// Nothing will ever happen again. If ranks wait, and no rank vanished in a way its launcher
    /// deals with, their waits fail.
    fn break_deadlock(&mut self) -> bool {
        let vanished = |r: &Rank| matches!(r.state, RankState::Gone { closed: false });
        let outside = |r: &Rank| matches!(r.state, RankState::Outside | RankState::Rejoining);
        if self.running > 0 || self.ranks.iter().any(|r| vanished(r) || outside(r)) {
            return false;
        }
        let waiting: Vec<usize> = (0..self.ranks.len())
            .filter(|&r| {
                matches!(
                    self.ranks[r].state,
                    RankState::Waiting { limited: false, .. }
                )
            })
            .collect();
        if waiting.is_empty() {
            return false;
        }
        self.deadlocks += 1;
        let now = self.now;
        for rank in waiting {
            self.finish(rank, now, Err(Error::Fail));
        }
        true
    }
}

/// The most cubic `x × y × z >= n` with each side as small as possible, largest first.
fn near_cube(n: u32) -> [u16; 3] {
    let n = n.max(1);
    let mut best = [n as u16, 1, 1];
    let mut volume = u64::from(n);
    let mut spread = n;
    for x in 1..=n.min(64) {
        for y in 1..=x {
            let z = n.div_ceil(x * y);
            if z > y {
                continue;
            }
            let v = u64::from(x) * u64::from(y) * u64::from(z);
            if v < volume || (v == volume && x - z < spread) {
                best = [x as u16, y as u16, z as u16];
                volume = v;
                spread = x - z;
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::near_cube;

    #[test]
    fn tori_are_compact() {
        assert_eq!(near_cube(1), [1, 1, 1]);
        assert_eq!(near_cube(2), [2, 1, 1]);
        assert_eq!(near_cube(4), [2, 2, 1]);
        assert_eq!(near_cube(8), [2, 2, 2]);
        assert_eq!(near_cube(64), [4, 4, 4]);
        assert_eq!(near_cube(7), [7, 1, 1]);
    }
}
