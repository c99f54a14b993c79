//! Transmits: from a command to the engine to the end event.

use nic_model::defs::command::{Transmit, flags};
use nic_model::defs::event::{EventType, EventWord, refusal};
use nic_model::defs::niccb::Counter;
use nic_model::defs::pending::{HEADER_OFFSET, STATUS_OFFSET, status};
use nic_model::{DmaSegment, FirmwareContext, NodeId, TransferFault, TxJob};

use crate::mailbox::Buffer;
use crate::process::Pending;
use crate::program::{SeaStarFirmware, Work};

/// A transmit that waits for the engine or is at it.
#[derive(Debug)]
pub(crate) struct Queued {
    process: usize,
    pending: u16,
    nid: NodeId,
    header_address: u64,
    header_length: u8,
    segments: Vec<DmaSegment>,
    interrupt: bool,
}

impl SeaStarFirmware {
    pub(crate) fn transmit(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &Transmit,
    ) -> Result<(), u8> {
        let pending = command.pending_index.get();
        let process = self.processes[mailbox].as_ref().ok_or(refusal::STATE)?;
        if pending >= process.tx_limit {
            return Err(refusal::PENDING);
        }
        if process.pendings[usize::from(pending)] != Pending::TxIdle {
            return Err(refusal::PENDING_STATE);
        }
        if command.flags & !flags::INTERRUPT != 0 {
            return Err(refusal::FLAGS);
        }
        let nid = NodeId(command.nid.get());
        if !ctx.node_exists(nid) {
            return Err(refusal::NODE);
        }
        let header_length = command.header_length.get();
        if !(1..=64).contains(&header_length) {
            return Err(refusal::LENGTH);
        }
        let upper = process.upper(ctx, pending).ok_or(refusal::ADDRESS)?;
        let buffer = Buffer {
            address: command.address.get(),
            byte: 0,
            segments: command.segments.get(),
            length: command.length.get(),
            bytewise: false,
        };
        let segments = self.buffer(ctx, buffer)?;
        if self.sources.entry(nid).is_none() {
            return Err(refusal::SOURCES);
        }
        if let Some(process) = &mut self.processes[mailbox] {
            process.pendings[usize::from(pending)] = Pending::TxBusy;
        }
        self.tx_queue.push_back(Queued {
            process: mailbox,
            pending,
            nid,
            header_address: upper + HEADER_OFFSET,
            header_length: header_length as u8,
            segments,
            interrupt: command.flags & flags::INTERRUPT != 0,
        });
        self.start_next(ctx);
        Ok(())
    }

    /// Gives the engine its next message. The sequence number is taken only now: a message whose
    /// header cannot be read never reaches the network, and its number is used again.
    fn start_next(&mut self, ctx: &mut FirmwareContext<'_>) {
        if self.tx_active.is_none()
            && let Some(mut queued) = self.tx_queue.pop_front()
        {
            let sequence = match self.sources.entry(queued.nid) {
                Some(source) => {
                    let sequence = source.tx_next;
                    source.tx_next = sequence.wrapping_add(1);
                    sequence
                }
                None => 0,
            };
            let job = TxJob {
                destination: queued.nid,
                sequence,
                header_address: queued.header_address,
                header_length: queued.header_length,
                segments: std::mem::take(&mut queued.segments),
                token: u64::from(queued.pending),
            };
            match ctx.start_tx(job) {
                Ok(()) => self.tx_active = Some(queued),
                // Only this function starts the engine, so it was idle.
                Err(_) => ctx.count(Counter::TRANSFERS_FAILED, 1),
            }
        }
        ctx.set_counter(Counter::TX_PENDING, self.tx_queue.len() as u32);
    }

    pub(crate) fn tx_finished(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        result: Result<(), TransferFault>,
    ) {
        if let Some(queued) = self.tx_active.take() {
            if let (Err(TransferFault::Header(_)), Some(source)) =
                (result, self.sources.entry(queued.nid))
            {
                source.tx_next = source.tx_next.wrapping_sub(1);
            }
            let Queued {
                process,
                pending,
                interrupt,
                ..
            } = queued;
            let end = Work::TxEnd {
                process,
                pending,
                interrupt,
                failed: result.is_err(),
            };
            self.later(ctx, self.costs.tx_complete, end);
        }
        self.start_next(ctx);
    }

    pub(crate) fn tx_end(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        process: usize,
        pending: u16,
        interrupt: bool,
        failed: bool,
    ) {
        ctx.count(Counter::TX_COMPLETE, 1);
        let Some(owner) = &mut self.processes[process] else {
            return;
        };
        owner.pendings[usize::from(pending)] = Pending::TxIdle;
        let (kind, word) = if failed {
            (EventType::TX_FAILED, status::FAILED)
        } else {
            (EventType::TX_END, status::DONE)
        };
        if let Some(upper) = owner.upper(ctx, pending) {
            ctx.host_write(upper + STATUS_OFFSET, &word.to_le_bytes());
        }
        self.post(
            ctx,
            process,
            EventWord::new(kind, pending),
            interrupt || failed,
        );
    }
}
