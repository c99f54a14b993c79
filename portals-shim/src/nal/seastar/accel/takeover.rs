//! The kernel's side of a process that the firmware has given up: its operations that were under way
//! on the NIC end here.

use super::super::process::Process;
use super::super::ssnal::Ssnal;
use firmware_sim::accel::{Flight, Moved, moved_index};
use firmware_sim::answer::answers_exactly;
use nic_model::defs::accel::SMALL_BUFFER;
use portals_core::{Header, NiFail, OpId};
use std::collections::{BTreeMap, VecDeque};

/// Pendings of processes that were taken over.
#[derive(Debug, Default)]
pub(in super::super) struct Orphans {
    /// By the index of their end event.
    pendings: BTreeMap<u16, Orphan>,
    /// Those whose data is on its way and whose send has not ended, oldest first.
    sending: VecDeque<u16>,
}

#[derive(Debug)]
struct Orphan {
    process: usize,
    flight: Flight,
    small_buffer: u64,
    /// What it sends.
    request: Option<Header>,
}

impl Orphans {
    /// Process `process` has been taken over; its small-message buffers are at `small_buffers`.
    pub(in super::super) fn insert(
        &mut self,
        process: usize,
        moved: &mut Moved,
        small_buffers: u64,
    ) {
        for (pending, flight, request) in moved.flights.drain(..) {
            let orphan = Orphan {
                process,
                flight,
                small_buffer: small_buffers + SMALL_BUFFER * u64::from(pending),
                request,
            };
            let index = moved_index(moved.mailbox, pending);
            if matches!(orphan.flight, Flight::Send(_)) {
                self.sending.push_back(index);
            }
            self.pendings.insert(index, orphan);
        }
    }

    /// An answer has come: the send that it shows to have ended, whose end event is still to come.
    pub(in super::super) fn answered(&mut self, process: usize, answer: &Header) -> Option<OpId> {
        let asked = |index: &u16| {
            let orphan = self.pendings.get(index).filter(|o| o.process == process);
            orphan.and_then(|o| o.request).is_some_and(|request| {
                request.target == answer.source && answers_exactly(&answer.body, &request)
            })
        };
        let at = self.sending.iter().position(asked)?;
        let orphan = self.pendings.get_mut(&self.sending.remove(at)?)?;
        orphan.request = None;
        match std::mem::replace(&mut orphan.flight, Flight::Message) {
            Flight::Send(op) => Some(op),
            _ => None,
        }
    }
}

impl Ssnal {
    /// A pending of a process that was taken over has ended.
    pub(in super::super) fn orphan_ended(
        &mut self,
        processes: &mut [Process],
        index: u16,
        fail: NiFail,
    ) {
        let Some(orphan) = self.orphans.pendings.remove(&index) else {
            self.counters.unknown_events += 1;
            return;
        };
        self.orphans.sending.retain(|i| *i != index);
        let process = orphan.process;
        match orphan.flight {
            Flight::Idle | Flight::Message | Flight::Answer(..) => {}
            Flight::Send(op) => self.send_ended(processes, process, op, fail),
            Flight::Reply(op, _) => self.reply_ended(processes, process, op, fail),
            Flight::Deposit(op, failure) => self.deposited(processes, process, op, fail, failure),
            Flight::Exchange(swap) => {
                let length = swap.length as usize;
                let data = self.memory.kernel(orphan.small_buffer, length);
                match data
                    .map(|data| data.to_vec())
                    .filter(|_| fail == NiFail::OK)
                {
                    Some(data) => self.swap(processes, process, swap, &data),
                    None => {
                        if let Some(p) = processes.get_mut(process) {
                            p.ni.swap_end(swap.op, NiFail::FAIL);
                        }
                        self.say_failed(process, &swap.header);
                    }
                }
            }
        }
        if fail != NiFail::OK
            && let Some(request) = orphan.request
        {
            self.not_delivered(processes, process, &request);
        }
    }
}
