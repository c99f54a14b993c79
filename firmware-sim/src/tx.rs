//! Transmits: from a command to the engine, to the peer's answer, to the end event.

use nic_model::defs::command::{SendDatagram, Transmit, flags};
use nic_model::defs::datagram;
use nic_model::defs::event::{EventType, EventWord, refusal};
use nic_model::defs::niccb::Counter;
use nic_model::defs::packet::Control;
use nic_model::defs::pending::{HEADER_OFFSET, STATUS_OFFSET, lower, status};
use nic_model::{DmaSegment, FirmwareContext, NodeId, TransferFault, TxJob};

use crate::header::GETPUT_LEN;
use crate::mailbox::{Buffer, byte_address};
use crate::process::Pending;
use crate::program::{SeaStarFirmware, Work};
use crate::source::{Body, Load, Next, Owner, Packet};

/// Bytes of a header that is not data, in the header packet.
const HEADER_LEN: u32 = 48;

/// What waits for the engine.
#[derive(Debug)]
pub(crate) enum Queued {
    /// The peer's window has something to send, or had.
    Peer(NodeId),
    Datagram(Datagram),
}

/// A datagram on its way out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Datagram {
    nid: NodeId,
    address: u64,
    length: u32,
    owner: Owner,
}

/// What the engine is at.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Active {
    Message { nid: NodeId, sequence: u16 },
    Datagram(Owner),
}

/// How a transmit has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxOutcome {
    /// The peer has taken the message.
    Done,
    /// Host memory could not be read.
    Fault,
    /// No path leads to the peer, or a datagram was not sent.
    Failed,
    /// The peer has not taken it for as long as the firmware tries.
    Undelivered,
}

impl SeaStarFirmware {
    /// A transmit pending that the host may use.
    fn idle_pending(&self, mailbox: usize, pending: u16) -> Result<(), u8> {
        let process = self.processes[mailbox].as_ref().ok_or(refusal::STATE)?;
        if pending >= process.tx_limit {
            return Err(refusal::PENDING);
        }
        if process.pendings[usize::from(pending)] != Pending::TxIdle {
            return Err(refusal::PENDING_STATE);
        }
        Ok(())
    }

    pub(crate) fn transmit(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &Transmit,
    ) -> Result<(), u8> {
        let pending = command.pending_index.get();
        self.idle_pending(mailbox, pending)?;
        if command.flags & !flags::INTERRUPT != 0 {
            return Err(refusal::FLAGS);
        }
        let nid = NodeId(command.nid.get());
        if !ctx.node_exists(nid) {
            return Err(refusal::NODE);
        }
        let length = command.header_length.get();
        let most = (HEADER_LEN + self.limits.inline_data).max(GETPUT_LEN as u32);
        if !(1..=most).contains(&u32::from(length)) {
            return Err(refusal::LENGTH);
        }
        let process = self.processes[mailbox].as_ref().ok_or(refusal::STATE)?;
        let upper = process.upper(ctx, pending).ok_or(refusal::ADDRESS)?;
        let buffer = Buffer {
            address: command.address.get(),
            byte: 0,
            segments: command.segments.get(),
            length: command.length.get(),
            bytewise: false,
        };
        let segments = self.buffer(ctx, buffer)?;
        let body = Body {
            header: Packet::Host {
                address: upper + HEADER_OFFSET,
                length: length as u8,
            },
            segments,
        };
        let owner = Owner::Pending {
            process: mailbox,
            pending,
            interrupt: command.flags & flags::INTERRUPT != 0,
        };
        self.send(ctx, nid, owner, body)?;
        if let Some(process) = &mut self.processes[mailbox] {
            process.pendings[usize::from(pending)] = Pending::TxBusy;
            let state = lower::state::SENDING;
            process.show(ctx, pending, state, nid, command.length.get());
        }
        Ok(())
    }

    pub(crate) fn send_datagram(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &SendDatagram,
    ) -> Result<(), u8> {
        let pending = command.pending_index.get();
        self.idle_pending(mailbox, pending)?;
        let nid = NodeId(command.nid.get());
        if !ctx.node_exists(nid) {
            return Err(refusal::NODE);
        }
        let length = u64::from(command.length.get()) * 4 + 4;
        if length > u64::from(self.limits.datagram) {
            return Err(refusal::LENGTH);
        }
        let address = byte_address(command.address.get(), 0, false)?;
        if let Some(process) = &mut self.processes[mailbox] {
            process.pendings[usize::from(pending)] = Pending::TxBusy;
            process.show(ctx, pending, lower::state::SENDING, nid, length as u32);
        }
        self.tx_queue.push_back(Queued::Datagram(Datagram {
            nid,
            address,
            length: length as u32,
            owner: Owner::Pending {
                process: mailbox,
                pending,
                interrupt: true,
            },
        }));
        self.start_next(ctx);
        Ok(())
    }

    /// The messages to a peer have become more or fewer, or those that come in.
    pub(crate) fn count_in_flight(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        before: Load,
        after: Load,
    ) {
        match (before.messages, after.messages) {
            (0, 1..) => self.senders += 1,
            (1.., 0) => self.senders = self.senders.saturating_sub(1),
            _ => {}
        }
        let load = &mut self.load;
        load.messages = (load.messages + after.messages).saturating_sub(before.messages);
        load.slots = (load.slots + after.slots).saturating_sub(before.slots);
        let in_flight = load.messages as u32 + ctx.cam_in_use();
        ctx.set_counter(Counter::IN_FLIGHT, in_flight);
    }

    /// Whether the engines' slots are all taken. A message that is accepted then has none: when its
    /// turn comes, the engine waits until the firmware has set it up by hand.
    pub(crate) fn beyond_slots(&self, ctx: &FirmwareContext<'_>) -> bool {
        self.load.slots as u32 + ctx.cam_in_use() >= self.limits.dma_slots
    }

    /// Gives the engine its next message.
    pub(crate) fn start_next(&mut self, ctx: &mut FirmwareContext<'_>) {
        while self.tx_active.is_none()
            && let Some(queued) = self.tx_queue.pop_front()
        {
            match queued {
                Queued::Datagram(datagram) => self.start_datagram(ctx, &datagram),
                Queued::Peer(nid) => self.start_message(ctx, nid),
            }
        }
        ctx.set_counter(Counter::TX_PENDING, self.tx_queue.len() as u32);
        if self.tx_active.is_none() {
            ctx.set_counter(Counter::TX_PENDING_HEAD, u32::MAX);
        }
    }

    fn start_message(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId) {
        let Some(source) = self.sources.known(nid) else {
            return;
        };
        match source.next(ctx.now()) {
            Next::Nothing => {}
            Next::Control(what, sequence) => {
                ctx.send_control(nid, Control::new(what, 0, sequence));
                self.tx_queue.push_front(Queued::Peer(nid));
            }
            Next::Message {
                sequence,
                body,
                owner,
                again,
                slot,
            } => {
                if !slot {
                    ctx.count(Counter::BEYOND_SLOTS, 1);
                    ctx.busy(self.limits.beyond_slots);
                }
                if again {
                    ctx.count(Counter::RESENT, 1);
                    ctx.busy(self.costs.tx_message);
                }
                if let Some(Owner::Pending { pending, .. }) = owner {
                    ctx.set_counter(Counter::TX_PENDING_HEAD, u32::from(pending));
                }
                let (header_address, header_length, built) = match body.header {
                    Packet::Host { address, length } => (address, length, None),
                    Packet::Built { bytes, length } => (0, length, Some(bytes)),
                };
                let job = TxJob {
                    destination: nid,
                    sequence,
                    header_address,
                    header_length,
                    segments: body.segments,
                    token: 0,
                };
                let started = match built {
                    Some(bytes) => ctx.start_tx_built(job, bytes),
                    None => ctx.start_tx(job),
                };
                match started {
                    Ok(()) => self.tx_active = Some(Active::Message { nid, sequence }),
                    // Only `start_next` starts the engine, when it is idle.
                    Err(_) => ctx.count(Counter::TRANSFERS_FAILED, 1),
                }
            }
        }
    }

    fn start_datagram(&mut self, ctx: &mut FirmwareContext<'_>, datagram: &Datagram) {
        let rest = datagram.length - datagram::HEADER_LEN;
        let segments = match rest {
            0 => Vec::new(),
            length => vec![DmaSegment {
                address: datagram.address + u64::from(datagram::HEADER_LEN),
                length,
            }],
        };
        let job = TxJob {
            destination: datagram.nid,
            sequence: 0,
            header_address: datagram.address,
            header_length: datagram::HEADER_LEN as u8,
            segments,
            token: 0,
        };
        match ctx.start_tx_datagram(job) {
            Ok(()) => self.tx_active = Some(Active::Datagram(datagram.owner)),
            Err(_) => ctx.count(Counter::TRANSFERS_FAILED, 1),
        }
    }

    pub(crate) fn tx_finished(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        result: Result<(), TransferFault>,
    ) {
        match self.tx_active.take() {
            Some(Active::Message { nid, sequence }) => {
                let reached = !matches!(result, Err(TransferFault::Header(_)));
                let now = ctx.now();
                if let Some(source) = self.sources.known(nid) {
                    let before = source.load();
                    let sent = source.sent(now, sequence, result.is_err(), reached);
                    let after = source.load();
                    self.count_in_flight(ctx, before, after);
                    for _ in 0..sent.queued {
                        self.tx_queue.push_back(Queued::Peer(nid));
                    }
                    if let Some(owner) = sent.failed {
                        let outcome = match result {
                            Err(TransferFault::Header(_) | TransferFault::Payload(_)) => {
                                TxOutcome::Fault
                            }
                            _ => TxOutcome::Failed,
                        };
                        self.end_later(ctx, owner, outcome);
                    }
                    for owner in sent.done {
                        self.end_later(ctx, owner, TxOutcome::Done);
                    }
                }
            }
            Some(Active::Datagram(owner)) => {
                let (counter, outcome) = match result {
                    Ok(()) => (Counter::IP_TX, TxOutcome::Done),
                    Err(_) => (Counter::IP_TX_DROPPED, TxOutcome::Failed),
                };
                ctx.count(counter, 1);
                self.end_later(ctx, owner, outcome);
            }
            None => {}
        }
        self.send_waiting(ctx);
        self.start_next(ctx);
    }

    pub(crate) fn end_later(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        owner: Owner,
        outcome: TxOutcome,
    ) {
        self.later(ctx, self.costs.tx_complete, Work::TxEnd { owner, outcome });
    }

    pub(crate) fn tx_end(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        owner: Owner,
        outcome: TxOutcome,
    ) {
        ctx.count(Counter::TX_COMPLETE, 1);
        let Owner::Pending {
            process,
            pending,
            interrupt,
        } = owner;
        ctx.set_counter(Counter::TX_COMPLETION, u32::from(pending));
        if self.is_accelerated(process) {
            return self.accel_sent(ctx, process, pending, outcome);
        }
        let Some(owner) = &mut self.processes[process] else {
            return;
        };
        owner.pendings[usize::from(pending)] = Pending::TxIdle;
        owner.show_state(ctx, pending, lower::state::IDLE);
        let (kind, word) = match outcome {
            TxOutcome::Done => (EventType::TX_END, status::DONE),
            TxOutcome::Fault => (EventType::TX_FAULT, status::FAULT),
            TxOutcome::Failed => (EventType::TX_FAILED, status::FAILED),
            TxOutcome::Undelivered => (EventType::TX_FAILED, status::UNDELIVERED),
        };
        if let Some(upper) = owner.upper(ctx, pending) {
            ctx.host_write(upper + STATUS_OFFSET, &word.to_le_bytes());
        }
        self.post(
            ctx,
            process,
            EventWord::new(kind, pending),
            interrupt || outcome != TxOutcome::Done,
        );
    }
}
