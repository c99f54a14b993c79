//! Messages that fail: who is told, and how.

use super::super::header;
use super::super::lost::{self, Answered, Awaited, Request};
use super::super::process::Process;
use super::Ssnal;
use super::transmit::AfterTx;
use fabric_api::place;
use firmware_sim::answer::has_succeeded;
use nic_model::defs::accel::Object;
use nic_model::defs::command::{Command, OpCode};
use portals_core::{Body, Header, NiFail, ProcessId, Transmit};

impl Ssnal {
    /// A message cannot be sent, for the reason that `fail` says: whoever waits for it, or for an answer to it, is told.
    pub(super) fn not_sent(
        &mut self,
        processes: &mut [Process],
        process: usize,
        header: &Header,
        after: AfterTx,
        fail: NiFail,
    ) {
        self.ended(processes, process, after, fail);
        self.will_not_be_answered(processes, process, header, fail);
        if let Body::Reply { .. } = header.body {
            self.say_failed(process, header);
        }
    }

    /// A process sends to one that it does not know: nothing leaves the node.
    pub(crate) fn refuse(&mut self, processes: &mut [Process], process: usize, tx: &Transmit) {
        let after = tx.op.map_or(AfterTx::Nothing, AfterTx::Send);
        self.not_sent(processes, process, &tx.header, after, NiFail::FAIL);
    }

    /// A process wants nothing any more of `peer`: its requests fail, those that are being sent at the end of that.
    pub(crate) fn forget_peer(
        &mut self,
        processes: &mut [Process],
        process: usize,
        peer: ProcessId,
    ) {
        let Some(node) = place::node_index(peer.nid) else {
            return;
        };
        let mut awaited = std::mem::take(&mut self.awaited);
        let of = |r: &Request| r.process == process && r.header.target == peer;
        let (over, sending) = awaited.abandon(node, of, |request| self.is_being_sent(request));
        self.awaited = awaited;
        self.forgotten.extend(sending);
        for request in over {
            self.will_not_be_answered(processes, process, &request.header, NiFail::FAIL);
        }
    }

    /// Whether the initiator of a request whose send has ended has forgotten the target meanwhile.
    fn take_forgotten(&mut self, process: usize, header: &Header) -> bool {
        let is_it = |r: &Request| r.process == process && r.header == *header;
        let at = self.forgotten.iter().position(is_it);
        at.map(|at| self.forgotten.swap_remove(at)).is_some()
    }

    /// An answer to `request` will not come, for the reason that `fail` says.
    pub(crate) fn will_not_be_answered(
        &mut self,
        processes: &mut [Process],
        process: usize,
        request: &Header,
        fail: NiFail,
    ) {
        if let Some(process) = processes.get_mut(process) {
            lost::fail(&mut process.ni, request, fail);
            self.cost += self.costs.event_post;
        }
    }

    /// Tells an initiator that its request has failed.
    pub(crate) fn say_failed(&mut self, process: usize, answer: &Header) {
        if let Some(mut out) = self.outgoing(process, answer) {
            out.packet[header::FLAGS_AT] |= header::FAILED;
            self.backlog.push_back(out);
            self.pump();
        }
    }

    /// The data of a request within the node was not stored; `sent` says whether the initiator's own memory is why.
    pub(crate) fn not_stored(
        &mut self,
        processes: &mut [Process],
        process: usize,
        request: &Header,
        sent: NiFail,
    ) {
        self.counters.faults += 1;
        self.will_not_be_answered(processes, process, request, sent.or_fail());
    }

    /// A request was not delivered.
    pub(crate) fn not_delivered(
        &mut self,
        processes: &mut [Process],
        process: usize,
        request: &Header,
        fail: NiFail,
    ) {
        let node = place::node_index(request.target.nid);
        if node.is_some_and(|node| self.awaited.forget(node, process, request)) {
            self.will_not_be_answered(processes, process, request, fail);
        }
    }

    /// The data of a message has left its memory, or never will. A request to a node that has failed, whose
    /// answer had to come behind that, will have none.
    pub(crate) fn send_over(
        &mut self,
        processes: &mut [Process],
        process: usize,
        request: &Header,
        fail: NiFail,
    ) {
        let node = place::node_index(request.target.nid);
        let over = fail != NiFail::OK || node.is_some_and(|node| self.failed.contains(&node));
        if self.take_forgotten(process, request) || over {
            self.not_delivered(processes, process, request, fail.or_fail());
        }
    }

    /// What the firmware awaited for a process, whose state the kernel has now, is awaited here from now on.
    pub(crate) fn inherit(
        &mut self,
        processes: &mut [Process],
        process: usize,
        awaited: &mut Awaited,
    ) {
        self.awaited.inherit(process, awaited);
        for node in self.failed.clone() {
            self.give_up_on(processes, node);
        }
    }

    /// The peer has not taken an answer: an ack goes again, a reply, whose data is gone, as a failure.
    /// Whoever asked has no other way to know.
    pub(super) fn answer_again(&mut self, process: usize, answer: &Header, tries: u8) {
        if !matches!(answer.body, Body::Ack { .. } | Body::Reply { .. }) {
            return;
        }
        if let Some(mut out) = self.outgoing(process, answer) {
            out.packet[header::FLAGS_AT] |= header::AGAIN;
            if !has_succeeded(&answer.body) {
                out.packet[header::FLAGS_AT] |= header::FAILED;
            }
            out.tries = tries;
            self.backlog.push_back(out);
        }
    }

    /// An answer has come: the request's send has ended, also if the chip has not said so yet. After one that says that it has
    /// failed, the end of the send ends the request: its data may have been missing here.
    pub(super) fn answered(
        &mut self,
        processes: &mut [Process],
        process: usize,
        answer: &Header,
        flags: u8,
    ) -> Answered {
        let Some(node) = place::node_index(answer.source.nid) else {
            return Answered::Unknown;
        };
        let answered = self.awaited.answered(node, process, answer, flags);
        let Answered::Request(request) = answered else {
            return answered;
        };
        self.take_forgotten(process, &request.header);
        if flags & header::FAILED != 0 {
            return match self.refused_early(process, &request) {
                true => Answered::Over,
                false => answered,
            };
        }
        if let Some(op) = request.op
            && let Some(pending) = self.sending.get(&(process, op))
            && let Some(sent) = self.tx[usize::from(*pending)].as_mut()
            && sent.header == request.header
        {
            sent.after = AfterTx::Nothing;
            self.sending.remove(&(process, op));
            self.ended(processes, process, AfterTx::Send(op), NiFail::OK);
        }
        if let Some(op) = self.orphans.answered(process, &request) {
            self.send_ended(processes, process, op, NiFail::OK);
        }
        answered
    }

    /// The RAS controller says that `node` has failed: nothing that it owes will come.
    /// The firmware is told, where it holds the state of processes.
    pub(crate) fn node_failed(&mut self, processes: &mut [Process], node: u32, accelerated: bool) {
        if accelerated {
            let command = Object {
                op: OpCode::NODE_FAILED,
                flags: 0,
                reserved: [0; 2],
                object: node.into(),
                reserved2: [0; 56],
            };
            self.commands.push_back(command.to_entry());
        }
        self.failed.insert(node);
        self.give_up_on(processes, node);
    }

    /// Ends what a node that has failed owes, but for requests that are being sent.
    fn give_up_on(&mut self, processes: &mut [Process], node: u32) {
        let mut awaited = std::mem::take(&mut self.awaited);
        let lost = awaited.lost(node, |request| self.is_being_sent(request));
        self.awaited = awaited;
        for request in lost {
            self.will_not_be_answered(processes, request.process, &request.header, NiFail::FAIL);
        }
    }

    /// Whether the send of this request has still to end.
    fn is_being_sent(&self, request: &Request) -> bool {
        let Some(op) = request.op else { return false };
        let at_the_chip = self.sending.get(&(request.process, op));
        let sent = at_the_chip.and_then(|pending| self.tx[usize::from(*pending)].as_ref());
        sent.is_some_and(|sent| sent.header == request.header)
            || self.waits(request.process, op, &request.header)
            || self
                .orphans
                .is_being_sent(request.process, op, &request.header)
    }
}
