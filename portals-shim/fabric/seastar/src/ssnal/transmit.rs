//! Messages on their way out: packets, transmit pendings, their end events.

use super::super::header::{self, PACKET, is_short};
use super::super::lost::Request;
use super::super::process::Process;
use super::{KernelBuffer, Ssnal, UPPER_PENDINGS, piece};
use fabric_api::place;
use firmware_sim::accel::TRIES;
use nic_model::defs::command::{self, Command, OpCode, flags};
use nic_model::defs::pending::{UPPER_PENDING_LEN, UpperPending, status};
use portals_core::{Header, NiFail, OpId, Segment, Transmit};
use zerocopy::{FromBytes, IntoBytes};

/// With fewer transmit pendings left, every transmit asks for an interrupt at its end, so that the
/// driver is sure to get one back.
const TX_LOW: usize = 8;

/// What waits for the end of a transmit.
#[derive(Clone, Copy, Debug)]
pub(super) enum AfterTx {
    Nothing,
    Send(OpId),
    /// A send of whose request the target says already that it has failed there. Whose fault that is, the end of the send says.
    Refused(OpId),
    Reply(OpId),
}

/// A message on its way to the chip.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Whose operation it is, by index.
    process: usize,
    /// Target's place in the machine.
    node: u16,
    pub(super) packet: [u8; PACKET],
    packet_len: usize,
    payload: Vec<command::Segment>,
    length: u32,
    after: AfterTx,
    /// Kernel buffers to free at the end.
    buffers: Vec<KernelBuffer>,
    /// What it says.
    header: Header,
    /// How often it has been given up.
    pub(super) tries: u8,
}

/// A transmit at the chip.
#[derive(Debug)]
pub(super) struct Sent {
    process: usize,
    pub(super) after: AfterTx,
    buffers: Vec<KernelBuffer>,
    pub(super) header: Header,
    tries: u8,
}

impl Ssnal {
    /// Sends a message of process `process`, which is not for this node.
    pub(crate) fn send(&mut self, processes: &mut [Process], process: usize, tx: &Transmit) {
        let after = tx.op.map_or(AfterTx::Nothing, AfterTx::Send);
        self.transmit(processes, process, &tx.header, &tx.payload, after);
    }

    /// A message of `header` alone; `None` when its target cannot exist.
    pub(super) fn outgoing(&mut self, process: usize, header: &Header) -> Option<Outgoing> {
        self.cost += self.costs.header_build;
        let node = place::node_index(header.target.nid).filter(|n| *n < self.nodes)?;
        let (bytes, packet_len) = header::encode(header);
        let mut packet = [0; PACKET];
        packet[..packet_len].copy_from_slice(&bytes[..packet_len]);
        Some(Outgoing {
            process,
            node: node as u16,
            packet,
            packet_len,
            payload: Vec::new(),
            length: 0,
            after: AfterTx::Nothing,
            buffers: Vec::new(),
            header: *header,
            tries: 0,
        })
    }

    /// User data for which the header packet has room.
    fn room(&self, out: &Outgoing) -> usize {
        self.packet.saturating_sub(out.packet_len)
    }

    /// Gives `out` data that the kernel holds: in the header packet, or else from a kernel buffer.
    fn carry(&mut self, out: &mut Outgoing, data: &[u8]) {
        if is_short(data.len() as u64, self.room(out)) {
            out.packet[out.packet_len..out.packet_len + data.len()].copy_from_slice(data);
            out.packet_len += data.len();
            return;
        }
        let at = self.memory.alloc(data.len());
        if let Some(buffer) = self.memory.kernel(at, data.len()) {
            buffer.copy_from_slice(data);
        }
        out.buffers.push((at, data.len()));
        out.payload.push(piece(at, data.len() as u64));
        out.length = data.len() as u32;
    }

    /// Queues `header` with the bytes of `segments`. What `after` names ends when the data has
    /// been read: at once when it fits the header packet, else at the transmit's end event.
    pub(super) fn transmit(
        &mut self,
        processes: &mut [Process],
        process: usize,
        header: &Header,
        segments: &[Segment],
        after: AfterTx,
    ) {
        let length: u64 = segments.iter().map(|s| s.len).sum();
        let fits = length <= self.max_message;
        let Some(mut out) = self.outgoing(process, header).filter(|_| fits) else {
            return self.not_sent(processes, process, header, after, NiFail::FAIL);
        };
        let small = is_short(length, self.room(&out));
        let aligned = segments.iter().all(|s| s.addr & 3 == 0);
        if small || !aligned {
            let Some(data) = self.gather(process, segments) else {
                self.counters.faults += 1;
                return self.not_sent(processes, process, header, after, NiFail::SEGV);
            };
            self.carry(&mut out, &data);
            // The data has left the process's memory.
            self.ended(processes, process, after, NiFail::OK);
        } else {
            let Some(pieces) = self.pieces(process, segments) else {
                self.counters.faults += 1;
                return self.not_sent(processes, process, header, after, NiFail::SEGV);
            };
            out.payload = pieces;
            out.length = length as u32;
            out.after = after;
        }
        let op = match out.after {
            AfterTx::Send(op) => Some(op),
            AfterTx::Nothing | AfterTx::Refused(_) | AfterTx::Reply(_) => None,
        };
        self.awaited.asked(out.node.into(), process, header, op);
        self.backlog.push_back(out);
        self.pump();
    }

    /// Sends bytes the kernel holds.
    pub(super) fn transmit_bytes(&mut self, process: usize, header: &Header, data: &[u8]) {
        if let Some(mut out) = self.outgoing(process, header) {
            self.carry(&mut out, data);
            self.backlog.push_back(out);
            self.pump();
        }
    }

    /// Turns queued messages into commands while there are pendings.
    pub(super) fn pump(&mut self) {
        while !self.backlog.is_empty() {
            let Some(pending) = self.tx_free.pop_front() else {
                return;
            };
            let Some(mut out) = self.backlog.pop_front() else {
                return;
            };
            let at = UPPER_PENDINGS + UPPER_PENDING_LEN * u64::from(pending);
            let mut upper = UpperPending::read_from_bytes(&[0; UPPER_PENDING_LEN as usize]).ok();
            let (mut address, mut segments) = (0u64, 0u16);
            match out.payload.as_slice() {
                [] => {}
                [one] => address = one.address.get(),
                many => {
                    segments = many.len() as u16;
                    let bytes = many.as_bytes();
                    let array = self.memory.alloc(bytes.len());
                    out.buffers.push((array, bytes.len()));
                    if let Some(buffer) = self.memory.kernel(array, bytes.len()) {
                        buffer.copy_from_slice(bytes);
                    }
                    address = array >> 2;
                }
            }
            if let Some(upper) = upper.as_mut() {
                upper.header = out.packet;
                if let Some(memory) = self.memory.kernel(at, UPPER_PENDING_LEN as usize) {
                    memory.copy_from_slice(upper.as_bytes());
                }
            }
            let wants_interrupt = self.costs.tx_interrupt == 1
                || !matches!(out.after, AfterTx::Nothing)
                || self.tx_free.len() < TX_LOW;
            let transmit = command::Transmit {
                op: OpCode::TRANSMIT,
                flags: if wants_interrupt { flags::INTERRUPT } else { 0 },
                nid: out.node.into(),
                length: out.length.into(),
                address: address.into(),
                pending_index: pending.into(),
                header_length: (out.packet_len as u16).into(),
                segments: segments.into(),
                reserved: [0; 42],
            };
            self.commands.push_back(transmit.to_entry());
            if let AfterTx::Send(op) = out.after {
                self.sending.insert((out.process, op), pending);
            }
            self.tx[usize::from(pending)] = Some(Sent {
                process: out.process,
                after: out.after,
                buffers: out.buffers,
                header: out.header,
                tries: out.tries,
            });
        }
    }

    /// The target says that `request` has failed there. Whether its send is still to end, which ends the request too.
    pub(super) fn refused_early(&mut self, process: usize, request: &Request) -> bool {
        let Some(op) = request.op else { return false };
        let is_it = |after: AfterTx| matches!(after, AfterTx::Send(sends) if sends == op);
        let at_the_chip = self.sending.get(&(process, op));
        let sent = at_the_chip.and_then(|pending| self.tx[usize::from(*pending)].as_mut());
        if let Some(sent) = sent.filter(|sent| sent.header == request.header) {
            sent.after = AfterTx::Refused(op);
            self.sending.remove(&(process, op));
            return true;
        }
        let mut waiting = self.backlog.iter_mut();
        let waiting = waiting
            .find(|out| out.process == process && is_it(out.after) && out.header == request.header);
        if let Some(out) = waiting {
            out.after = AfterTx::Refused(op);
            return true;
        }
        self.orphans.refused(process, request)
    }

    /// Whether the send of `header` waits for a transmit pending.
    pub(super) fn waits(&self, process: usize, op: OpId, header: &Header) -> bool {
        self.backlog.iter().any(|out| {
            out.process == process
                && matches!(out.after, AfterTx::Send(sends) if sends == op)
                && out.header == *header
        })
    }

    pub(super) fn ended(
        &mut self,
        processes: &mut [Process],
        process: usize,
        after: AfterTx,
        fail: NiFail,
    ) {
        let Some(ni) = processes.get_mut(process).map(|p| &mut p.ni) else {
            return;
        };
        match after {
            AfterTx::Nothing => return,
            AfterTx::Send(op) | AfterTx::Refused(op) => ni.send_end(op, fail),
            AfterTx::Reply(op) => ni.reply_end(op, fail),
        }
        self.cost += self.costs.event_post;
    }

    /// The data of an operation that was begun elsewhere has left its memory.
    pub(crate) fn send_ended(
        &mut self,
        processes: &mut [Process],
        process: usize,
        op: OpId,
        fail: NiFail,
    ) {
        self.ended(processes, process, AfterTx::Send(op), fail);
    }

    /// The same for a reply.
    pub(crate) fn reply_ended(
        &mut self,
        processes: &mut [Process],
        process: usize,
        op: OpId,
        fail: NiFail,
    ) {
        self.ended(processes, process, AfterTx::Reply(op), fail);
    }

    pub(super) fn tx_ended(&mut self, processes: &mut [Process], pending: u16, fail: NiFail) {
        let at = UPPER_PENDINGS + UPPER_PENDING_LEN * u64::from(pending);
        let upper = self.memory.kernel(at, UPPER_PENDING_LEN as usize);
        let undelivered = fail != NiFail::OK
            && upper
                .and_then(|bytes| UpperPending::read_from_bytes(bytes).ok())
                .is_some_and(|upper| upper.status.get() == status::UNDELIVERED);
        self.tx_over(processes, pending, fail, undelivered);
    }

    /// A transmit has ended, or was refused; `undelivered`: its peer may take the message another time.
    pub(super) fn tx_over(
        &mut self,
        processes: &mut [Process],
        pending: u16,
        fail: NiFail,
        undelivered: bool,
    ) {
        let Some(sent) = self.tx.get_mut(usize::from(pending)).and_then(Option::take) else {
            self.counters.unknown_events += 1;
            return;
        };
        for (at, len) in sent.buffers {
            self.memory.free(at, len);
        }
        if fail != NiFail::OK {
            self.counters.faults += 1;
        }
        self.tx_free.push_back(pending);
        if let AfterTx::Send(op) = sent.after {
            self.sending.remove(&(sent.process, op));
        }
        if undelivered && let Some(process) = processes.get_mut(sent.process) {
            process.ni.lost(sent.header.target);
        }
        self.ended(processes, sent.process, sent.after, fail);
        if let AfterTx::Refused(_) = sent.after {
            self.will_not_be_answered(processes, sent.process, &sent.header, fail.or_fail());
        } else if fail != NiFail::OK || matches!(sent.after, AfterTx::Send(_)) {
            self.send_over(processes, sent.process, &sent.header, fail);
        }
        if undelivered && sent.tries < TRIES {
            self.answer_again(sent.process, &sent.header, sent.tries + 1);
        }
        self.pump();
    }
}
