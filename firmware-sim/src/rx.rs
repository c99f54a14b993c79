//! Receives: from a header packet to the host, from the host's answer to the deposit and its end.

use nic_model::defs::command::{Receive, Release, flags};
use nic_model::defs::event::{EventType, EventWord, refusal};
use nic_model::defs::niccb::{Counter, crash};
use nic_model::defs::packet::reason;
use nic_model::defs::pending::{HEADER_OFFSET, MessageWord, STATUS_OFFSET, lower, status};
use nic_model::{Deposit, FirmwareContext, RxHandle, RxHeader, RxReport, TransferFault};

use crate::accel::Reserved;
use crate::mailbox::Buffer;
use crate::process::Pending;
use crate::program::{Exhaustion, GENERIC, SeaStarFirmware, Work, token};
use crate::source::{Arrival, Load};

impl SeaStarFirmware {
    /// Looks at a header whose intake cost has been spent.
    pub(crate) fn take_header(&mut self, ctx: &mut FirmwareContext<'_>, header: RxHeader) {
        if header.datagram {
            return self.take_datagram(ctx, &header);
        }
        if header.corrupt {
            // Neither source nor number can be trusted: the sender finds out by its silence.
            ctx.count(Counter::HEADER_CRC_ERRORS, 1);
            self.drop_message(ctx, &header);
            let event = EventWord::new(EventType::HEADER_CRC, header.source.0);
            return self.post(ctx, GENERIC, event, true);
        }
        let nid = header.source;
        let Some(source) = self.source(ctx, nid) else {
            ctx.count(Counter::STATELESS_DROPS, 1);
            self.drop_message(ctx, &header);
            return match self.exhaustion {
                Exhaustion::Panic => ctx.crash(crash::NO_SOURCE),
                _ => self.refuse(ctx, nid, reason::SOURCE, header.sequence),
            };
        };
        let arrival = source.arrival(header.sequence);
        let expected = source.expected();
        ctx.set_counter(Counter::SOURCE_FREELIST, self.sources.free());
        match arrival {
            Arrival::Next => self.take_expected(ctx, &header),
            Arrival::Again => {
                ctx.count(Counter::SEQUENCE_ERRORS, 1);
                self.drop_message(ctx, &header);
                self.acknowledge(ctx, nid);
            }
            Arrival::Gap(say) => {
                ctx.count(Counter::SEQUENCE_ERRORS, 1);
                self.drop_message(ctx, &header);
                if say {
                    self.refuse(ctx, nid, reason::SEQUENCE, expected);
                }
            }
        }
    }

    /// Takes a message with the expected number, or refuses it.
    fn take_expected(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        let nid = header.source;
        let accepted = self.accept(ctx, header);
        // It has just been asked for: what has been sent meanwhile has not taken its structure.
        let Some(source) = self.sources.known(nid) else {
            return;
        };
        match accepted {
            Ok(accelerated) => {
                source.taken();
                self.acknowledge(ctx, nid);
                if let Some(reserved) = accelerated {
                    self.accel_header(ctx, reserved, header);
                }
            }
            Err(why) => {
                source.refused();
                if why == reason::RX_PENDING {
                    ctx.count(Counter::RX_PENDING_WAITS, 1);
                }
                self.drop_message(ctx, header);
                match self.exhaustion {
                    Exhaustion::Panic if why == reason::CAM => ctx.crash(crash::NO_CAM),
                    Exhaustion::Panic => ctx.crash(crash::NO_RX_PENDING),
                    _ => self.refuse(ctx, nid, why, header.sequence),
                }
            }
        }
    }

    /// Whether a process takes messages.
    pub(crate) fn is_alive(&self, process: usize) -> bool {
        let process = self.processes.get(process).and_then(Option::as_ref);
        process.is_some_and(|process| process.alive)
    }

    /// Gives a message to the process it is for. `Ok` also when none wants it: it is thrown away
    /// and counted. A message for an accelerated process is still to be dealt with, by what was
    /// reserved for it.
    ///
    /// # Errors
    /// The [`reason`] for which there is no room; nothing has been done.
    fn accept(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        header: &RxHeader,
    ) -> Result<Option<Reserved>, u8> {
        let accelerated = self.accel_for(ctx, header);
        if accelerated.is_none() && !self.is_alive(GENERIC) {
            ctx.count(Counter::STATELESS_DROPS, 1);
            self.drop_message(ctx, header);
            return Ok(None);
        }
        if header.overflow {
            return Err(reason::CAM);
        }
        if let Some(index) = accelerated {
            if let Some(passes) = self.accel_passes(ctx, index, header) {
                ctx.count(Counter::RX_MESSAGE, 1);
                return Ok(Some(passes));
            }
            let reserved = self.accel_reserve(ctx, index);
            if self.rx_waiting.is_empty() && reserved.is_some() {
                ctx.count(Counter::RX_MESSAGE, 1);
                return Ok(reserved);
            }
            if let Some(reserved) = reserved {
                self.accel_unreserve(reserved);
            }
            if self.exhaustion != Exhaustion::Wait {
                return Err(reason::RX_PENDING);
            }
        }
        let free = accelerated.is_none()
            && self.processes[GENERIC]
                .as_ref()
                .is_some_and(|process| !process.rx_free.is_empty());
        if !free || !self.rx_waiting.is_empty() {
            if self.exhaustion != Exhaustion::Wait {
                return Err(reason::RX_PENDING);
            }
            ctx.count(Counter::RX_PENDING_WAITS, 1);
        }
        ctx.count(Counter::RX_MESSAGE, 1);
        self.rx_waiting.push_back(*header);
        self.show_waiting(ctx);
        Ok(None)
    }

    /// Throws a message away.
    pub(crate) fn drop_message(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        ctx.set_counter(Counter::LAST_NID_DROPPED, u32::from(header.source.0));
        ctx.count(Counter::PACKETS_DRAINED, 1);
        if let Some(payload) = header.payload {
            self.drain(ctx, payload);
        }
    }

    pub(crate) fn drain(&mut self, ctx: &mut FirmwareContext<'_>, payload: RxHandle) {
        // A message that has ended has nothing left to drain.
        let _ = ctx.deposit(
            payload,
            Deposit {
                segments: Vec::new(),
                token: token::DRAIN,
            },
        );
    }

    /// Shows waiting headers to the host while there are receive pendings, and deals with those for
    /// accelerated processes.
    pub(crate) fn show_waiting(&mut self, ctx: &mut FirmwareContext<'_>) {
        while let Some(header) = self.rx_waiting.front().copied() {
            if let Some(index) = self.accel_for(ctx, &header) {
                let Some(reserved) = self.accel_reserve(ctx, index) else {
                    return;
                };
                self.rx_waiting.pop_front();
                self.accel_header(ctx, reserved, &header);
                continue;
            }
            let Some(process) = &mut self.processes[GENERIC] else {
                return;
            };
            let Some(pending) = process.rx_free.pop_front() else {
                return;
            };
            let upper = process.upper(ctx, pending);
            process.pendings[usize::from(pending)] = Pending::RxHeader(header.payload);
            process.show(ctx, pending, lower::state::HEADER, header.source, 0);
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
        if let Some(process) = &self.processes[mailbox] {
            process.show_state(ctx, pending, lower::state::DEPOSIT);
        }
        self.watch(ctx);
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
            owner.show_state(ctx, pending, lower::state::IDLE);
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
        self.count_in_flight(ctx, Load::default(), Load::default());
        if token & token::KIND == token::DATAGRAM {
            let index = token as u32;
            let end = Work::DatagramEnd { index, report };
            self.later(ctx, self.costs.rx_complete, end);
        } else if token != token::DRAIN {
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
        if self.is_accelerated(process) {
            return self.accel_rx_end(ctx, process, pending, report);
        }
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
        owner.show_state(ctx, pending, lower::state::ENDED);
        if matches!(
            report.fault,
            Some(TransferFault::Crc | TransferFault::Truncated)
        ) {
            ctx.count(Counter::PAYLOAD_CRC_ERRORS, 1);
        }
        let (kind, word) = match report.fault {
            Some(TransferFault::Header(_) | TransferFault::Payload(_)) => {
                (EventType::RX_FAULT, status::FAULT)
            }
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
