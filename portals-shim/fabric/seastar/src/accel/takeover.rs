//! The kernel's side of a process that the firmware has given up: its operations that were under way
//! on the NIC end here.

use super::super::process::Process;
use super::super::ssnal::Ssnal;
use firmware_sim::accel::{Flight, Moved, moved_index};
use firmware_sim::awaited::Request;
use nic_model::HostMemory;
use nic_model::defs::accel::SMALL_BUFFER;
use portals_core::{Header, NiFail, OpId};
use std::collections::BTreeMap;

/// Pendings of processes that were taken over, by the index of their end event.
#[derive(Debug, Default)]
pub(crate) struct Orphans(BTreeMap<u16, Orphan>);

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
    pub(crate) fn insert(&mut self, process: usize, moved: &mut Moved, small_buffers: u64) {
        for (pending, flight, request) in moved.flights.drain(..) {
            let orphan = Orphan {
                process,
                flight,
                small_buffer: small_buffers + SMALL_BUFFER * u64::from(pending),
                request,
            };
            self.0.insert(moved_index(moved.mailbox, pending), orphan);
        }
    }

    fn sending(&mut self, process: usize, request: &Request) -> Option<(OpId, &mut Orphan)> {
        let op = request.op?;
        let mut orphans = self.0.values_mut();
        let orphan = orphans.find(|o| o.sends(process, op, &request.header))?;
        Some((op, orphan))
    }

    /// The target says that `request` has failed there. Whether its send is still to end, which ends the request too.
    pub(crate) fn refused(&mut self, process: usize, request: &Request) -> bool {
        let Some((op, orphan)) = self.sending(process, request) else {
            return false;
        };
        orphan.flight = Flight::Refused(op);
        true
    }

    /// An answer to `request` has come: the send that has ended with it, if its end event is still to come.
    pub(crate) fn answered(&mut self, process: usize, request: &Request) -> Option<OpId> {
        let (op, orphan) = self.sending(process, request)?;
        orphan.flight = Flight::Message;
        orphan.request = None;
        Some(op)
    }

    /// Whether the send of this request has still to end.
    pub(crate) fn is_being_sent(&self, process: usize, op: OpId, request: &Header) -> bool {
        self.0.values().any(|o| o.sends(process, op, request))
    }
}

impl Orphan {
    /// Whether it is the send of this request.
    fn sends(&self, process: usize, op: OpId, request: &Header) -> bool {
        matches!(self.flight, Flight::Send(sent) if sent == op)
            && self.process == process
            && self.request.as_ref() == Some(request)
    }
}

impl Ssnal {
    /// A pending of a process that was taken over has ended.
    pub(crate) fn orphan_ended(&mut self, processes: &mut [Process], index: u16, fail: NiFail) {
        let Some(orphan) = self.orphans.0.remove(&index) else {
            self.counters.unknown_events += 1;
            return;
        };
        let process = orphan.process;
        let sends = matches!(orphan.flight, Flight::Send(_));
        match orphan.flight {
            Flight::Idle | Flight::Message | Flight::Answer(..) => {}
            Flight::Send(op) => self.send_ended(processes, process, op, fail),
            Flight::Refused(op) => {
                self.send_ended(processes, process, op, fail);
                if let Some(request) = orphan.request {
                    self.will_not_be_answered(processes, process, &request, fail.or_fail());
                }
                return;
            }
            Flight::Reply(op, _) => self.reply_ended(processes, process, op, fail),
            Flight::Deposit(op, failure) => self.deposited(processes, process, op, fail, failure),
            Flight::Exchange(swap) => {
                let mut data = vec![0; swap.length as usize];
                let read = self.memory.read(orphan.small_buffer, &mut data);
                match Some(data).filter(|_| fail == NiFail::OK && read.is_ok()) {
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
        if (fail != NiFail::OK || sends)
            && let Some(request) = orphan.request
        {
            self.send_over(processes, process, &request, fail);
        }
    }
}
