//! Calls of ranks in accelerated mode: no trap, no kernel; and the way of a rank into the kernel when
//! its node's firmware gives it up.
//!
//! A rank with an [`Accelerated`] is accelerated. Whoever falls back loses it, and from then on is
//! a rank like those of generic mode.

use super::super::accel::{Accelerated, Begun, Found};
use super::super::kernel::Kernel;
use super::{RankState, Sim, SimError, Work};
use fabric_api::call::{Answer, Call, EqList, Wait};
use nic_model::defs::command::COMMAND_LEN;
use nic_model::defs::map::MAILBOX_COUNT;
use nic_model::{Machine, NodeId, SimDuration, SimTime};
use portals_core::{Error, NiConfig};

/// A command that a rank is about to write.
#[derive(Debug)]
pub(super) struct Writing {
    entry: [u8; COMMAND_LEN],
    /// The call whose answer it then waits for.
    asks: Option<Call>,
}

/// How a rank in accelerated mode fell back.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fallback {
    /// Bytes of its state that the kernel has taken from the NIC.
    bytes: u64,
}

impl Sim {
    /// Makes the first processes of every node accelerated, as many as there are mailboxes and as fit
    /// into SRAM; the others stay with the kernel.
    pub(super) fn boot_accelerated(
        &mut self,
        machine: &Machine,
        configs: &[NiConfig],
    ) -> Result<(), SimError> {
        for n in 0..self.members.len() {
            let node = NodeId(n as u16);
            self.nodes.all[n].uses_chip = true;
            for mailbox in 1..MAILBOX_COUNT {
                let process = mailbox as usize - 1;
                let Some(&rank) = self.members[n].get(process) else {
                    break;
                };
                let nodes = self.members.len() as u32;
                let kernel = &mut self.nodes.all[n];
                let memory = &mut kernel.driver.memory;
                let config = &configs[rank];
                let accel = Accelerated::new(mailbox, process, config, nodes, machine, memory);
                let entry = accel.boot_command(config);
                kernel.write_command(&mut self.world.registers(node, self.now), &entry);
                while self.world.step(&mut self.nodes).is_some() {}
                self.now = self.world.now();
                match Kernel::take_result(&mut self.world.registers(node, self.now)) {
                    Some(0) => self.accels[rank] = Some(Box::new(accel)),
                    // No room: the rank stays with the kernel.
                    Some(_) => {}
                    None => {
                        return Err(SimError::Boot {
                            node: n as u32,
                            command: 3,
                            result: None,
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether a rank is accelerated at present.
    pub(super) fn is_accelerated(&self, rank: usize) -> bool {
        self.accels[rank].is_some()
    }

    /// Makes the call of an accelerated rank.
    pub(super) fn accel_call(&mut self, at: SimTime, rank: usize, call: Call) {
        let n = self.ranks[rank].node;
        self.trace_made(rank, super::trace::name(&call));
        let Some(accel) = self.accels[rank].as_deref_mut() else {
            return;
        };
        let wait = Accelerated::wait_of(&call);
        let begun = accel.begin(&call, &mut self.nodes.all[n].driver.memory);
        let now = at + accel.take_cost();
        self.ranks[rank].clock = now;
        match begun {
            Begun::Over(result) => self.return_or_wait(at, now, rank, result, wait),
            Begun::Posted(entry) => self.accel_write(now, rank, Writing { entry, asks: None }),
            Begun::Asked(entry) => {
                let asks = Some(call);
                self.accel_write(now, rank, Writing { entry, asks });
            }
        }
    }

    /// Writes a command, as soon as the mailbox has room.
    fn accel_write(&mut self, at: SimTime, rank: usize, writing: Writing) {
        let n = self.ranks[rank].node;
        if self.is_stopped(n) {
            self.ranks[rank].state = RankState::Writing(Box::new(writing));
            return self.accel_strand(at, rank);
        }
        let node = NodeId(n as u16);
        let Some(accel) = self.accels[rank].as_deref_mut() else {
            return;
        };
        let io = &mut self.world.registers(node, at);
        let (written, cost) = accel.write(io, &writing.entry);
        let done = at + cost;
        self.ranks[rank].clock = done;
        if !written.done {
            self.ranks[rank].state = RankState::Writing(Box::new(writing));
            self.schedule(done, Work::Write(rank));
            return;
        }
        match writing.asks {
            Some(call) => self.ranks[rank].state = RankState::Asking(call),
            None => self.finish(rank, done, Ok(Answer::Done)),
        }
    }

    /// Ends the call of an accelerated rank whose answer will not come.
    pub(super) fn accel_strand(&mut self, at: SimTime, rank: usize) {
        let closes = match &self.ranks[rank].state {
            RankState::Asking(call) => matches!(call, Call::Close),
            RankState::Writing(writing) => matches!(writing.asks, Some(Call::Close)),
            _ => return,
        };
        if closes {
            self.finish(rank, at, Ok(Answer::Done));
            self.close(rank);
        } else {
            self.finish(rank, at, Err(Error::Fail));
        }
    }

    /// Tries again to write a command.
    pub(super) fn accel_retry(&mut self, at: SimTime, rank: usize) {
        let state = &mut self.ranks[rank].state;
        match std::mem::replace(state, RankState::Returning) {
            RankState::Writing(writing) => self.accel_write(at, rank, *writing),
            other => *state = other,
        }
    }

    /// The NIC has written into memory of a node: accelerated ranks that spin there may find what
    /// they wait for.
    pub(super) fn accel_notice(&mut self, at: SimTime, node: NodeId) {
        let n = node.index();
        for i in 0..self.members.get(n).map_or(0, Vec::len) {
            let rank = self.members[n][i];
            let Some(accel) = self.accels[rank].as_deref_mut() else {
                continue;
            };
            let memory = &mut self.nodes.all[n].driver.memory;
            let seen = at.max(self.ranks[rank].clock) + accel.wake_cost();
            let seen = self.world.faults().host_resumes(node, seen);
            match &self.ranks[rank].state {
                RankState::Asking(_) => match accel.look(memory) {
                    Found::Nothing => {}
                    Found::Moved => self.fall_back(seen, rank),
                    Found::Answer(result) => {
                        let closes =
                            matches!(self.ranks[rank].state, RankState::Asking(Call::Close));
                        self.ranks[rank].clock = seen;
                        self.finish(rank, seen, result);
                        if closes {
                            self.close(rank);
                        }
                    }
                },
                RankState::Waiting { eqs, .. } => match accel.poll(eqs, memory) {
                    Answer::Polled(None) => {}
                    answer => self.finish(rank, seen, Ok(answer)),
                },
                _ => {}
            }
        }
    }

    /// The kernel of a node takes the processes that its firmware has given up.
    pub(super) fn adopt(&mut self, n: usize) {
        let Some(firmware) = self.world.firmware_mut(NodeId(n as u16)) else {
            return;
        };
        while let Some(mut moved) = firmware.take_moved() {
            let rank = self.members[n].iter().copied().find(|rank| {
                let accel = self.accels[*rank].as_deref();
                accel.is_some_and(|a| a.mailbox() == moved.mailbox)
            });
            let Some(rank) = rank else { continue };
            let process = self.ranks[rank].process;
            let small_buffers = self.accels[rank].as_ref().map_or(0, |a| a.small_buffers());
            let kernel = &mut self.nodes.all[n];
            kernel
                .driver
                .orphans
                .insert(process, &mut moved, small_buffers);
            kernel.processes[process].ni = moved.ni;
            let awaited = &mut moved.awaited;
            kernel
                .driver
                .inherit(&mut kernel.processes, process, awaited);
            self.fallbacks[rank] = Some(Fallback { bytes: moved.bytes });
        }
    }

    /// A rank has been told that the kernel has it now: it traps, the kernel takes its state over,
    /// and the call is made again there.
    fn fall_back(&mut self, at: SimTime, rank: usize) {
        let n = self.ranks[rank].node;
        self.adopt(n);
        let state = std::mem::replace(&mut self.ranks[rank].state, RankState::Returning);
        let (RankState::Asking(call), Some(mut accel)) = (state, self.accels[rank].take()) else {
            return;
        };
        let process = self.ranks[rank].process;
        let kernel = &mut self.nodes.all[n];
        let unread = accel.hand_over(&mut kernel.driver.memory);
        kernel.processes[process].ni.import_events(unread);
        let bytes = self.fallbacks[rank].map_or(0, |f| f.bytes);
        let machine = self.world.machine();
        let cost = machine.host.trap
            + machine.accelerated.take_over
            + machine.host.memcpy_rate.time(bytes);
        let begins = at.max(self.nodes.all[n].free_at);
        self.nodes.all[n].free_at = begins + cost;
        self.ranks[rank].clock = begins + cost;
        self.ranks[rank].state = RankState::Calling(call);
        self.waiting_calls.add(rank, begins + cost);
    }

    /// Returns a result, or waits for one as a poll of `wait` does that began at `at`.
    pub(super) fn return_or_wait(
        &mut self,
        at: SimTime,
        done: SimTime,
        rank: usize,
        result: Result<Answer, Error>,
        wait: Option<(EqList, Wait)>,
    ) {
        let slices = std::mem::take(&mut self.ranks[rank].slices);
        let (Ok(Answer::Polled(None)), Some((eqs, limit))) = (&result, wait) else {
            return self.finish(rank, done, result);
        };
        let forever = slices || limit == Wait::Forever;
        if forever && self.has_lost(rank, &eqs) {
            return self.finish(rank, done, Err(Error::Fail));
        }
        self.waits += 1;
        let wait = self.waits;
        let limited = match limit {
            Wait::Nanos(ns) => {
                self.schedule(at + SimDuration::from_ns(ns), Work::Deadline { rank, wait });
                true
            }
            Wait::No | Wait::Forever => false,
        };
        self.ranks[rank].state = RankState::Waiting {
            eqs,
            wait,
            limited,
            forever,
        };
    }
}
