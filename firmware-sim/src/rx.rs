//! Receives: from a header packet to the host, from the host's answer to the deposit and its end.

use nic_model::defs::command::{Receive, Release, flags};
use nic_model::defs::event::{EventType, EventWord, refusal};
use nic_model::defs::niccb::Counter;
use nic_model::defs::pending::{HEADER_OFFSET, MessageWord, STATUS_OFFSET, status};
use nic_model::{Deposit, FirmwareContext, RxHandle, RxHeader, RxReport};

use crate::mailbox::Buffer;
use crate::process::Pending;
use crate::program::{SeaStarFirmware, Work};

/// The process that takes messages in generic mode.
const GENERIC: usize = 0;
/// Token of a deposit that nobody waits for.
const DRAIN: u64 = u64::MAX;

impl SeaStarFirmware {
    /// Looks at a header whose intake cost has been spent.
    pub(crate) fn take_header(&mut self, ctx: &mut FirmwareContext<'_>, header: RxHeader) {
        if header.corrupt {
            if let Some(source) = self.sources.entry(header.source) {
                source.rx_next = header.sequence.wrapping_add(1);
            }
            self.drop_message(ctx, &header);
            let event = EventWord::new(EventType::HEADER_CRC, header.source.0);
            self.post(ctx, GENERIC, event, true);
            return;
        }
        let Some(source) = self.sources.entry(header.source) else {
            ctx.count(Counter::STATELESS_DROPS, 1);
            self.drop_message(ctx, &header);
            return;
        };
        if source.rx_next != header.sequence {
            ctx.count(Counter::SEQUENCE_ERRORS, 1);
            self.drop_message(ctx, &header);
            return;
        }
        source.rx_next = header.sequence.wrapping_add(1);
        let alive = self.processes[GENERIC]
            .as_ref()
            .is_some_and(|process| process.alive);
        if !alive {
            ctx.count(Counter::STATELESS_DROPS, 1);
            self.drop_message(ctx, &header);
            return;
        }
        ctx.count(Counter::RX_MESSAGE, 1);
        self.rx_waiting.push_back(header);
        if !self.show_waiting(ctx) {
            ctx.count(Counter::RX_PENDING_WAITS, 1);
        }
    }

    /// Throws a message away.
    fn drop_message(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        ctx.set_counter(Counter::LAST_NID_DROPPED, u32::from(header.source.0));
        ctx.count(Counter::PACKETS_DRAINED, 1);
        if let Some(payload) = header.payload {
            self.drain(ctx, payload);
        }
    }

    fn drain(&mut self, ctx: &mut FirmwareContext<'_>, payload: RxHandle) {
        // A message that has ended has nothing left to drain.
        let _ = ctx.deposit(
            payload,
            Deposit {
                segments: Vec::new(),
                token: DRAIN,
            },
        );
    }

    /// Shows waiting headers to the host while there are receive pendings; whether none is left.
    fn show_waiting(&mut self, ctx: &mut FirmwareContext<'_>) -> bool {
        while let Some(header) = self.rx_waiting.front() {
            let Some(process) = &mut self.processes[GENERIC] else {
                return false;
            };
            let Some(pending) = process.rx_free.pop_front() else {
                return false;
            };
            let upper = process.upper(ctx, pending);
            process.pendings[usize::from(pending)] = Pending::RxHeader(header.payload);
            let mut word = MessageWord(0);
            word.set_source(header.source.0);
            word.set_header_length(u16::from(header.length));
            word.set_has_payload(header.payload.is_some());
            let state = if header.payload.is_some() {
                status::IN_PROGRESS
            } else {
                status::DONE
            };
            let mut words = [0; 16];
            words[0..4].copy_from_slice(&word.0.to_le_bytes());
            words[4..8].copy_from_slice(&state.to_le_bytes());
            match upper {
                Some(upper) => {
                    ctx.host_write(upper, &words);
                    ctx.host_write(upper + HEADER_OFFSET, &header.bytes);
                }
                None => ctx.count(Counter::HOST_FAULTS, 1),
            }
            self.rx_waiting.pop_front();
            self.post(
                ctx,
                GENERIC,
                EventWord::new(EventType::HEADER, pending),
                true,
            );
        }
        true
    }

    /// The receive pending a command names.
    fn rx_pending(&mut self, mailbox: usize, pending: u16) -> Result<&mut Pending, u8> {
        let process = self.processes[mailbox].as_mut().ok_or(refusal::STATE)?;
        if pending < process.tx_limit {
            return Err(refusal::PENDING);
        }
        process
            .pendings
            .get_mut(usize::from(pending))
            .ok_or(refusal::PENDING)
    }

    pub(crate) fn receive(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &Receive,
    ) -> Result<(), u8> {
        let pending = command.pending_index.get();
        let Pending::RxHeader(Some(payload)) = *self.rx_pending(mailbox, pending)? else {
            return Err(refusal::PENDING_STATE);
        };
        if command.flags & !(flags::RELEASE | flags::SILENT) != 0 {
            return Err(refusal::FLAGS);
        }
        let buffer = Buffer {
            address: command.address.get(),
            byte: command.byte.get(),
            segments: command.segments.get(),
            length: command.length.get(),
            bytewise: true,
        };
        let segments = self.buffer(ctx, buffer)?;
        *self.rx_pending(mailbox, pending)? = Pending::RxDeposit {
            release: command.flags & flags::RELEASE != 0,
            silent: command.flags & flags::SILENT != 0,
            drop: command.length.get() == 0,
        };
        let token = (mailbox as u64) << 16 | u64::from(pending);
        ctx.deposit(payload, Deposit { segments, token })
            .map_err(|_| refusal::PENDING_STATE)
    }

    pub(crate) fn release(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &Release,
    ) -> Result<(), u8> {
        let pending = command.pending_index.get();
        match *self.rx_pending(mailbox, pending)? {
            Pending::RxHeader(payload) => {
                if let Some(payload) = payload {
                    self.drain(ctx, payload);
                }
            }
            Pending::RxEnded => {}
            _ => return Err(refusal::PENDING_STATE),
        }
        self.free(ctx, mailbox, pending);
        Ok(())
    }

    /// Puts a receive pending back and lets a waiting header have it.
    fn free(&mut self, ctx: &mut FirmwareContext<'_>, process: usize, pending: u16) {
        if let Some(owner) = &mut self.processes[process] {
            owner.pendings[usize::from(pending)] = Pending::RxFree;
            owner.rx_free.push_back(pending);
        }
        self.show_waiting(ctx);
    }

    pub(crate) fn rx_finished(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        token: u64,
        report: RxReport,
    ) {
        if token != DRAIN {
            let (process, pending) = ((token >> 16) as usize, token as u16);
            self.later(
                ctx,
                self.costs.rx_complete,
                Work::RxEnd {
                    process,
                    pending,
                    report,
                },
            );
        }
    }

    pub(crate) fn rx_end(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        process: usize,
        pending: u16,
        report: RxReport,
    ) {
        ctx.count(Counter::RX_COMPLETE, 1);
        let Some(owner) = self.processes.get_mut(process).and_then(Option::as_mut) else {
            return;
        };
        let upper = owner.upper(ctx, pending);
        let Some(state) = owner.pendings.get_mut(usize::from(pending)) else {
            return;
        };
        let Pending::RxDeposit {
            release,
            silent,
            drop,
        } = *state
        else {
            return;
        };
        *state = Pending::RxEnded;
        let (kind, word) = match report.fault {
            Some(_) => (EventType::RX_FAILED, status::FAILED),
            None if drop => (EventType::DROPPED, status::DROPPED),
            None => (EventType::RX_DONE, status::DONE),
        };
        if let Some(upper) = upper {
            let mut words = [0; 12];
            words[0..4].copy_from_slice(&word.to_le_bytes());
            words[4..8].copy_from_slice(&report.deposited.to_le_bytes());
            words[8..12].copy_from_slice(&report.discarded.to_le_bytes());
            ctx.host_write(upper + STATUS_OFFSET, &words);
        }
        if !silent || report.fault.is_some() {
            self.post(ctx, process, EventWord::new(kind, pending), true);
        }
        if release {
            self.free(ctx, process, pending);
        }
    }
}
