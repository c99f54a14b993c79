//! Mailboxes: polling, the commands that set a process up, results, refusals.

use nic_model::defs::accel::{InitAccel, Object};
use nic_model::defs::command::{
    COMMAND_LEN, Command, InitEq, InitProcess, MarkAlive, OpCode, Receive, Release, Segment,
    SendDatagram, Transmit,
};
use nic_model::defs::event::{
    EventType, EventWord, RESULT_EQ_OK, RESULT_OK, RESULT_REFUSED, RejectedCommand, refusal,
};
use nic_model::defs::mailbox;
use nic_model::defs::map::MAILBOX_COUNT;
use nic_model::defs::niccb::Counter;
use nic_model::trace::What;
use nic_model::{DmaSegment, FirmwareContext, SimDuration};
use zerocopy::FromBytes;

use crate::eq::EventRing;
use crate::process::Process;
use crate::program::{Exhaustion, GENERIC, SeaStarFirmware, Work, alarm};

/// What the firmware remembers of one mailbox.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    /// Next command to fetch.
    read: u32,
    /// The host's write index as the last doorbell brought it.
    write: u32,
    /// A poll is announced.
    polling: bool,
    /// Next result to write.
    result_write: u32,
    /// The host has to read a result before the next command; a look whether it has is on its way.
    waits: bool,
}

/// Whether a command is answered in the result ring.
fn has_result(op: OpCode) -> bool {
    op.0 <= OpCode::INIT_EQ.0 || op == OpCode::INIT_ACCEL
}

/// A buffer as a command names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buffer {
    /// Quad-byte address of the buffer or of the segment array.
    pub(crate) address: u64,
    pub(crate) byte: u16,
    pub(crate) segments: u16,
    pub(crate) length: u32,
    /// Whether pieces may start within a quad-byte.
    pub(crate) bytewise: bool,
}

impl SeaStarFirmware {
    pub(crate) fn doorbell(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: usize, index: u32) {
        let Some(state) = self
            .mailboxes
            .get_mut(mailbox)
            .filter(|_| index < mailbox::COMMANDS)
        else {
            ctx.count(Counter::BAD_DOORBELLS, 1);
            return;
        };
        state.write = index;
        if !state.polling && state.read != state.write {
            state.polling = true;
            self.later(ctx, self.costs.mailbox_poll, Work::Poll { mailbox });
        }
    }

    /// Fetches one command; its cost goes before the next poll.
    pub(crate) fn poll(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: usize) {
        let state = &mut self.mailboxes[mailbox];
        state.polling = false;
        if state.read == state.write || self.accel_stalled(mailbox) || self.is_held(ctx, mailbox) {
            return;
        }
        let state = &mut self.mailboxes[mailbox];
        let slot = state.read;
        state.read = mailbox::next_command(slot);
        let (read, more) = (state.read, state.read != state.write);
        state.polling = more;
        let mut entry = [0; COMMAND_LEN];
        let mut address = mailbox::command(mailbox as u32, slot);
        for word in entry.as_chunks_mut::<4>().0 {
            *word = ctx.sram_read32(address).to_le_bytes();
            address += 4;
        }
        ctx.sram_write32(
            mailbox::address(mailbox as u32, mailbox::COMMAND_READ),
            read,
        );
        let cost = self.cost(&entry);
        self.later(ctx, cost, Work::Command { mailbox, entry });
        if more {
            self.later(ctx, self.costs.mailbox_poll, Work::Poll { mailbox });
        }
    }

    /// Whether the next command has to wait, as the host has not read enough of what was said of those before.
    fn is_held(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: usize) -> bool {
        let eq = self.processes[mailbox].as_ref().and_then(|p| p.eq.as_ref());
        if eq.is_some_and(EventRing::is_behind) {
            // It goes on when the queue has room.
            return true;
        }
        let slot = self.mailboxes[mailbox].read;
        let entry = ctx.sram_read32(mailbox::command(mailbox as u32, slot));
        if !has_result(OpCode(entry as u8)) || self.has_result_room(ctx, mailbox) {
            return false;
        }
        if !std::mem::replace(&mut self.mailboxes[mailbox].waits, true) {
            let again = alarm::RESULTS | mailbox as u64;
            ctx.alarm(ctx.machine().firmware.eq_retry, again);
        }
        true
    }

    /// A look whether a host has read its results is due.
    pub(crate) fn look_at_results(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: usize) {
        if let Some(state) = self.mailboxes.get_mut(mailbox) {
            state.waits = false;
            self.poll_again(ctx, mailbox);
        }
    }

    fn has_result_room(&self, ctx: &mut FirmwareContext<'_>, mailbox: usize) -> bool {
        let next = mailbox::next_result(self.mailboxes[mailbox].result_write);
        let read = mailbox::address(mailbox as u32, mailbox::RESULT_READ);
        ctx.sram_read32(read) % mailbox::RESULTS != next
    }

    /// Goes on with the commands of a mailbox that had to wait.
    pub(crate) fn poll_again(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: usize) {
        let state = &mut self.mailboxes[mailbox];
        if !state.polling && state.read != state.write {
            state.polling = true;
            self.later(ctx, self.costs.mailbox_poll, Work::Poll { mailbox });
        }
    }

    fn cost(&self, entry: &[u8; COMMAND_LEN]) -> SimDuration {
        let segments = |count: u16| self.costs.segment * u64::from(count);
        match OpCode(entry[0]) {
            OpCode::TRANSMIT => {
                self.costs.tx_message + segments(Transmit::from_entry(entry).segments.get())
            }
            OpCode::RECEIVE => {
                self.costs.rx_command + segments(Receive::from_entry(entry).segments.get())
            }
            OpCode::RELEASE => self.costs.release,
            OpCode::DATAGRAM => self.costs.tx_message,
            OpCode::PUT | OpCode::GET | OpCode::GET_PUT => self.nic.nic_initiate,
            OpCode(op) if op > OpCode::INIT_ACCEL.0 => self.nic.nic_command,
            _ => self.costs.control_command,
        }
    }

    /// Carries out a command.
    pub(crate) fn command(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        entry: &[u8; COMMAND_LEN],
    ) {
        let outcome = match OpCode(entry[0]) {
            OpCode::INIT_PROCESS => {
                let outcome = self.init_process(ctx, mailbox, &InitProcess::from_entry(entry));
                self.result(ctx, mailbox, outcome, RESULT_OK);
                outcome
            }
            OpCode::MARK_ALIVE => {
                let outcome = self.mark_alive(mailbox, &MarkAlive::from_entry(entry));
                self.result(ctx, mailbox, outcome, RESULT_OK);
                outcome
            }
            OpCode::INIT_EQ => {
                let outcome = self.init_eq(ctx, mailbox, &InitEq::from_entry(entry));
                self.result(ctx, mailbox, outcome, RESULT_EQ_OK);
                outcome
            }
            OpCode::TRANSMIT => self.transmit(ctx, mailbox, &Transmit::from_entry(entry)),
            OpCode::RECEIVE => self.receive(ctx, mailbox, &Receive::from_entry(entry)),
            OpCode::RELEASE => self.release(ctx, mailbox, &Release::from_entry(entry)),
            OpCode::DATAGRAM => self.send_datagram(ctx, mailbox, &SendDatagram::from_entry(entry)),
            OpCode::INIT_ACCEL => {
                let outcome = self.init_accel(ctx, mailbox, &InitAccel::from_entry(entry));
                self.result(ctx, mailbox, outcome, RESULT_OK);
                outcome
            }
            OpCode(op) if (OpCode::FINI.0..=OpCode::LIST_LENGTHS.0).contains(&op) => {
                self.accel_command(ctx, mailbox, entry)
            }
            OpCode::NODE_FAILED => {
                let node = Object::from_entry(entry).object.get();
                self.node_failed(ctx, mailbox, node)
            }
            _ => Err(refusal::OP_CODE),
        };
        ctx.trace(What::Command {
            mailbox: mailbox as u32,
            op: entry[0],
            refused: outcome.err(),
        });
        match outcome {
            Ok(()) => ctx.count(Counter::COMMANDS, 1),
            Err(reason) => {
                ctx.count(Counter::COMMANDS_REJECTED, 1);
                // Commands that set up answer in the result ring instead, those of accelerated
                // processes in their completion.
                let answered = OpCode::INIT_ACCEL.0..=OpCode::LIST_LENGTHS.0;
                if entry[0] > OpCode::INIT_EQ.0 && !answered.contains(&entry[0]) {
                    let index = RejectedCommand::new(waiting(entry), reason).0;
                    self.post(
                        ctx,
                        mailbox,
                        EventWord::new(EventType::REJECTED, index),
                        true,
                    );
                }
            }
        }
    }

    fn init_process(
        &mut self,
        ctx: &FirmwareContext<'_>,
        mailbox: usize,
        command: &InitProcess,
    ) -> Result<(), u8> {
        let index = process_of(mailbox, command.process_index)?;
        if self.processes[index].is_some() {
            return Err(refusal::STATE);
        }
        let taken: Vec<_> = self
            .processes
            .iter()
            .flatten()
            .flat_map(|process| process.tables.clone())
            .collect();
        self.processes[index] = Some(Process::new(ctx, command, self.budget, &taken)?);
        if index == GENERIC && self.exhaustion != Exhaustion::Panic {
            let table = command.context_table_ht.get();
            self.contexts = (table != 0).then_some(table);
        }
        Ok(())
    }

    fn mark_alive(&mut self, mailbox: usize, command: &MarkAlive) -> Result<(), u8> {
        let index = process_of(mailbox, command.process_index)?;
        match &mut self.processes[index] {
            Some(process) if !process.alive && process.eq.is_some() => {
                process.alive = true;
                Ok(())
            }
            _ => Err(refusal::STATE),
        }
    }

    fn init_eq(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        command: &InitEq,
    ) -> Result<(), u8> {
        let index = match command.process_index {
            0 => mailbox,
            index => process_of(mailbox, index)?,
        };
        self.processes[index]
            .as_mut()
            .ok_or(refusal::STATE)?
            .init_eq(ctx, command)
    }

    fn result(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        outcome: Result<(), u8>,
        success: u32,
    ) {
        if !self.has_result_room(ctx, mailbox) {
            // There was room when the command was fetched: the host has written to what it reads.
            ctx.count(Counter::RESULTS_LOST, 1);
            return;
        }
        let at = |offset| mailbox::address(mailbox as u32, offset);
        let state = &mut self.mailboxes[mailbox];
        let next = mailbox::next_result(state.result_write);
        let value = match outcome {
            Ok(()) => success,
            Err(reason) => RESULT_REFUSED | u32::from(reason),
        };
        ctx.sram_write32(at(mailbox::RESULT_RING + 4 * state.result_write), value);
        state.result_write = next;
        ctx.sram_write32(at(mailbox::RESULT_WRITE), next);
    }

    /// The pieces of a buffer, checked; reads the segment array from host memory.
    pub(crate) fn buffer(
        &self,
        ctx: &mut FirmwareContext<'_>,
        buffer: Buffer,
    ) -> Result<Vec<DmaSegment>, u8> {
        let limits = ctx.machine().chip;
        if buffer.length > limits.max_message {
            return Err(refusal::LENGTH);
        }
        if buffer.segments == 0 {
            if buffer.length == 0 {
                return Ok(Vec::new());
            }
            let address = byte_address(buffer.address, u32::from(buffer.byte), buffer.bytewise)?;
            return Ok(vec![DmaSegment {
                address,
                length: buffer.length,
            }]);
        }
        if u32::from(buffer.segments) > limits.max_segments {
            return Err(refusal::SEGMENTS);
        }
        let mut array = vec![0; usize::from(buffer.segments) * size_of::<Segment>()];
        let address = byte_address(buffer.address, 0, false)?;
        ctx.host_read(address, &mut array)
            .map_err(|_| refusal::SEGMENTS)?;
        let array = <[Segment]>::ref_from_bytes(&array).map_err(|_| refusal::SEGMENTS)?;
        let mut pieces = Vec::with_capacity(array.len());
        let mut total = 0u64;
        for segment in array {
            let address = byte_address(segment.address.get(), segment.byte.get(), buffer.bytewise)?;
            total += u64::from(segment.length.get());
            pieces.push(DmaSegment {
                address,
                length: segment.length.get(),
            });
        }
        if total == u64::from(buffer.length) {
            Ok(pieces)
        } else {
            Err(refusal::LENGTH)
        }
    }
}

/// The pending whose end the host waits for behind a command.
fn waiting(entry: &[u8; COMMAND_LEN]) -> Option<u16> {
    match OpCode(entry[0]) {
        OpCode::TRANSMIT => Some(Transmit::from_entry(entry).pending_index.get()),
        OpCode::RECEIVE => Some(Receive::from_entry(entry).pending_index.get()),
        _ => None,
    }
}

/// The process a command of `mailbox` may speak for: its own, or any when it is the generic one.
fn process_of(mailbox: usize, process_index: u8) -> Result<usize, u8> {
    match usize::from(process_index).checked_sub(1) {
        Some(index) if index < MAILBOX_COUNT as usize && (mailbox == 0 || mailbox == index) => {
            Ok(index)
        }
        _ => Err(refusal::PROCESS),
    }
}

/// The byte address of a quad-byte address.
pub(crate) fn byte_address(quad: u64, byte: u32, bytewise: bool) -> Result<u64, u8> {
    if byte > 3 || (byte > 0 && !bytewise) {
        return Err(refusal::ALIGNMENT);
    }
    if quad >> 62 != 0 {
        return Err(refusal::ADDRESS);
    }
    Ok(quad << 2 | u64::from(byte))
}
