//! The commands of an accelerated process's mailbox.

use nic_model::FirmwareContext;
use nic_model::defs::accel::{
    AccessCommand, DescriptorCommand, DescriptorRecord, EntryCommand, Exchange, Initiate, Object,
    PieceRecord, QueueCommand, RING_MAX, flags,
};
use nic_model::defs::command::{COMMAND_LEN, Command, OpCode};
use nic_model::defs::event::refusal;
use nic_model::defs::niccb::Counter;
use portals_core::{
    AcEntry, AckRequest, EqHandle, Error, EventKind, InsertPosition, MdDesc, MdHandle, MdOptions,
    MeHandle, Memory, ProcessId, Segment, Unlink,
};
use zerocopy::FromBytes;

use super::sram::Objects;
use super::wire::{self, Outcome};
use super::{Accel, Ring};
use crate::program::SeaStarFirmware;

fn unlink(set: bool) -> Unlink {
    if set { Unlink::Unlink } else { Unlink::Retain }
}

fn position(set: u8) -> InsertPosition {
    if set & flags::AFTER != 0 {
        InsertPosition::After
    } else {
        InsertPosition::Before
    }
}

/// What a command adds to SRAM when it succeeds.
fn adds(op: OpCode) -> Objects {
    let mut objects = Objects::default();
    match op {
        OpCode::ME_ATTACH | OpCode::ME_INSERT => objects.mes = 1,
        OpCode::MD_ATTACH | OpCode::MD_BIND => objects.mds = 1,
        OpCode::ME_MD_POST => {
            objects.mes = 1;
            objects.mds = 1;
        }
        OpCode::EQ_ALLOC => objects.eqs = 1,
        _ => {}
    }
    objects
}

/// Whether a command takes a transmit pending.
fn initiates(op: OpCode) -> bool {
    matches!(op, OpCode::PUT | OpCode::GET | OpCode::GET_PUT)
}

impl SeaStarFirmware {
    /// Whether the commands of a mailbox wait for a transmit pending.
    pub(crate) fn accel_stalled(&self, mailbox: usize) -> bool {
        self.accels[mailbox]
            .as_ref()
            .is_some_and(|p| p.stalled.is_some())
    }

    /// Carries out a command of the mailbox's own process.
    ///
    /// # Errors
    /// A [`refusal`], when nobody is told otherwise.
    pub(crate) fn accel_command(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        entry: &[u8; COMMAND_LEN],
    ) -> Result<(), u8> {
        let op = OpCode(entry[0]);
        let process = self.accels[mailbox].as_mut().ok_or(refusal::STATE)?;
        if initiates(op) && process.tx_free.is_empty() {
            ctx.count(Counter::ACCEL_TX_WAITS, 1);
            process.stalled = Some(*entry);
            return Ok(());
        }
        let added = adds(op);
        if !self.has_room_for(added) {
            self.move_out(ctx, mailbox);
            self.show_waiting(ctx);
            return Ok(());
        }
        let result = self.accel_execute(ctx, mailbox, op, entry);
        self.show_sram(ctx);
        let told = entry[1] & flags::ANSWER != 0;
        if result.is_err() && !told {
            self.end_refused(mailbox, op, entry);
        }
        if told {
            self.answer(ctx, mailbox, result);
        } else {
            self.write_events(ctx, mailbox);
        }
        if op == OpCode::FINI {
            self.accels[mailbox] = None;
            self.show_sram(ctx);
        }
        match result {
            // The process has kept to its own books and is wrong.
            Err(_) if !told => Err(refusal::STATE),
            _ => Ok(()),
        }
    }

    /// A put or get that nobody waits for an answer to was refused: it ends with a failure. The process has kept to books of
    /// its own, and they were wrong; a descriptor that does not exist has nobody who could be told.
    fn end_refused(&mut self, mailbox: usize, op: OpCode, entry: &[u8; COMMAND_LEN]) {
        let ends: &[EventKind] = match op {
            OpCode::PUT if entry[1] & flags::ACK != 0 => &[EventKind::SendEnd, EventKind::Ack],
            OpCode::PUT => &[EventKind::SendEnd],
            OpCode::GET => &[EventKind::ReplyEnd],
            _ => return,
        };
        if let Some(process) = self.accels[mailbox].as_deref_mut() {
            let md = MdHandle::from_raw(Initiate::from_entry(entry).md.get());
            process.ni.could_not_begin(md, ends);
        }
    }

    /// Goes on with the command that waited for a transmit pending.
    pub(super) fn unstall(&mut self, ctx: &mut FirmwareContext<'_>, mailbox: usize) {
        let Some(process) = &mut self.accels[mailbox] else {
            return;
        };
        if process.tx_free.is_empty() {
            return;
        }
        if let Some(entry) = process.stalled.take() {
            // A refusal cannot be told any more; it is counted like any other.
            if self.accel_command(ctx, mailbox, &entry).is_err() {
                ctx.count(Counter::COMMANDS_REJECTED, 1);
            }
            self.poll_again(ctx, mailbox);
        }
    }

    fn accel_execute(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        op: OpCode,
        entry: &[u8; COMMAND_LEN],
    ) -> Result<Outcome, Error> {
        match op {
            OpCode::PUT => return self.accel_put(ctx, mailbox, &Initiate::from_entry(entry)),
            OpCode::GET => return self.accel_get(ctx, mailbox, &Initiate::from_entry(entry)),
            OpCode::GET_PUT => {
                return self.accel_get_put(ctx, mailbox, &Exchange::from_entry(entry));
            }
            _ => {}
        }
        let most = self.nic.md_segments;
        let process = self.accels[mailbox]
            .as_deref_mut()
            .ok_or(Error::NiInvalid)?;
        let object = Object::from_entry(entry).object.get();
        Ok(match op {
            OpCode::ME_ATTACH | OpCode::ME_INSERT => {
                let command = EntryCommand::from_entry(entry);
                let spec =
                    wire::entry_spec(&command.criteria, unlink(entry[1] & flags::UNLINK != 0));
                let base = command.base.get();
                let at = position(entry[1]);
                if op == OpCode::ME_INSERT {
                    let me = process.ni.me_insert(MeHandle::from_raw(base), spec, at)?;
                    Outcome::Entry(0, me)
                } else if entry[1] & flags::ANY_PORTAL != 0 {
                    let (portal, me) = process.ni.me_attach_any(spec)?;
                    Outcome::Entry(portal, me)
                } else {
                    Outcome::Entry(base, process.ni.me_attach(base, spec, at)?)
                }
            }
            OpCode::ME_UNLINK => {
                process.ni.me_unlink(MeHandle::from_raw(object))?;
                Outcome::Done
            }
            OpCode::MD_ATTACH | OpCode::MD_BIND | OpCode::MD_UPDATE | OpCode::ME_MD_POST => {
                process.describe(ctx, most, &DescriptorCommand::from_entry(entry))?
            }
            OpCode::MD_UNLINK => {
                process.ni.md_unlink(MdHandle::from_raw(object))?;
                Outcome::Done
            }
            OpCode::MD_QUERY => {
                let md = MdHandle::from_raw(object);
                Outcome::State(process.ni.md_query(md)?, process.ni.is_md_in_use(md))
            }
            OpCode::EQ_ALLOC => process.make_queue(&QueueCommand::from_entry(entry))?,
            OpCode::EQ_FREE => {
                let eq = EqHandle::from_raw(object);
                process.ni.eq_free(eq)?;
                process.rings.remove(&eq);
                Outcome::Done
            }
            OpCode::AC_ENTRY => {
                let c = AccessCommand::from_entry(entry);
                let ac = AcEntry {
                    match_id: ProcessId::new(c.nid.get(), c.pid.get()),
                    uid: c.uid.get(),
                    jid: c.jid.get(),
                    pt_index: c.portal.get(),
                };
                process.ni.ac_entry(c.index.get(), ac)?;
                Outcome::Done
            }
            OpCode::STATUS => Outcome::Status(process.ni.status()),
            OpCode::USAGE => Outcome::Usage(process.ni.usage()),
            OpCode::LIST_LENGTHS => {
                let lengths = process.ni.list_lengths(object);
                let (now, most) = lengths.ok_or(Error::PtIndexInvalid)?;
                Outcome::Lengths(now, most)
            }
            OpCode::FINI => {
                process.ni.close();
                Outcome::Done
            }
            _ => return Err(Error::Fail),
        })
    }

    fn accel_put(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        c: &Initiate,
    ) -> Result<Outcome, Error> {
        let process = self.accels[mailbox]
            .as_deref_mut()
            .ok_or(Error::NiInvalid)?;
        let ack = if c.flags & flags::ACK != 0 {
            AckRequest::Ack
        } else {
            AckRequest::NoAck
        };
        let tx = process.ni.put(
            MdHandle::from_raw(c.md.get()),
            region(c),
            ack,
            target(c.nid.get(), c.pid.get()),
            c.portal.into(),
            c.access.into(),
            c.match_bits.get(),
            c.remote_offset.get(),
            c.hdr_data.get(),
        )?;
        let rides = c.flags & flags::INLINE != 0;
        let length = (c.length.get() as usize).min(c.data.len());
        self.initiate(ctx, mailbox, tx, rides.then_some(&c.data[..length]));
        Ok(Outcome::Done)
    }

    fn accel_get(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        c: &Initiate,
    ) -> Result<Outcome, Error> {
        let process = self.accels[mailbox]
            .as_deref_mut()
            .ok_or(Error::NiInvalid)?;
        let tx = process.ni.get(
            MdHandle::from_raw(c.md.get()),
            region(c),
            target(c.nid.get(), c.pid.get()),
            c.portal.into(),
            c.access.into(),
            c.match_bits.get(),
            c.remote_offset.get(),
        )?;
        self.initiate(ctx, mailbox, tx, None);
        Ok(Outcome::Done)
    }

    fn accel_get_put(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        mailbox: usize,
        c: &Exchange,
    ) -> Result<Outcome, Error> {
        let process = self.accels[mailbox]
            .as_deref_mut()
            .ok_or(Error::NiInvalid)?;
        let whole = c.flags & flags::WHOLE != 0;
        let regions = (c.get_offset.get(), c.put_offset.get(), c.length.get());
        let tx = process.ni.get_put(
            MdHandle::from_raw(c.get_md.get()),
            MdHandle::from_raw(c.put_md.get()),
            (!whole).then_some(regions),
            target(c.nid.get(), c.pid.get()),
            c.portal.into(),
            c.access.into(),
            c.match_bits.get(),
            c.remote_offset.get(),
            c.hdr_data.get(),
        )?;
        self.initiate(ctx, mailbox, tx, None);
        Ok(Outcome::Done)
    }
}

fn target(nid: u16, pid: u16) -> ProcessId {
    ProcessId::new(nid.into(), pid.into())
}

fn region(c: &Initiate) -> Option<(u64, u64)> {
    let whole = c.flags & flags::WHOLE != 0;
    (!whole).then(|| (c.offset.get(), c.length.get().into()))
}

impl Accel {
    /// Makes or changes a descriptor.
    fn describe(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        most: u32,
        c: &DescriptorCommand,
    ) -> Result<Outcome, Error> {
        let desc = self.fetch(ctx, most, c.record.get())?;
        let spent = unlink(c.flags & flags::UNLINK != 0);
        let object = c.object.get();
        let test = (c.flags & flags::TEST != 0).then(|| EqHandle::from_raw(c.test.get()));
        if let Some(eq) = test {
            // A queue that is not one is refused by the command itself.
            let _ = self.ni.eq_taken(eq, c.taken.get());
        }
        Ok(match c.op {
            OpCode::MD_ATTACH => {
                Outcome::Descriptor(self.ni.md_attach(MeHandle::from_raw(object), desc, spent)?)
            }
            OpCode::MD_BIND => Outcome::Descriptor(self.ni.md_bind(desc, spent)?),
            OpCode::MD_UPDATE => {
                let md = MdHandle::from_raw(object);
                let before = self.ni.md_update(md, desc, test)?;
                Outcome::State(before, self.ni.is_md_in_use(md))
            }
            _ => {
                let spec = wire::entry_spec(&c.criteria, unlink(c.entry_unlink != 0));
                let (me, md) = self.ni.me_md_post(
                    MeHandle::from_raw(object),
                    spec,
                    position(c.flags),
                    desc,
                    spent,
                    test,
                )?;
                Outcome::Both(me, md)
            }
        })
    }

    /// Fetches a descriptor from host memory.
    fn fetch(
        &self,
        ctx: &mut FirmwareContext<'_>,
        most: u32,
        record: u64,
    ) -> Result<MdDesc, Error> {
        let mut bytes = [0; size_of::<DescriptorRecord>()];
        ctx.host_read(record, &mut bytes).map_err(|_| Error::Segv)?;
        let record = DescriptorRecord::read_from_bytes(&bytes).map_err(|_| Error::Segv)?;
        let memory = if record.pieces.get() == 0 {
            Memory::contiguous(record.start.get(), record.length.get())
        } else {
            let count = u32::from(record.count.get());
            if count > most {
                return Err(Error::MdIllegal);
            }
            let mut bytes = vec![0; count as usize * size_of::<PieceRecord>()];
            ctx.host_read(record.pieces.get(), &mut bytes)
                .map_err(|_| Error::Segv)?;
            let pieces = <[PieceRecord]>::ref_from_bytes(&bytes).map_err(|_| Error::MdIllegal)?;
            Memory::Iovec {
                start: record.start.get(),
                segments: pieces
                    .iter()
                    .map(|p| Segment {
                        addr: p.address.get(),
                        len: p.length.get(),
                    })
                    .collect(),
            }
        };
        Ok(MdDesc {
            memory,
            threshold: record.threshold.get(),
            max_size: record.max_size.get(),
            options: MdOptions::from_bits_retain(record.options.get()),
            user_ptr: record.user_ptr.get(),
            eq: (record.has_queue != 0).then(|| EqHandle::from_raw(record.eq.get())),
        })
    }

    fn make_queue(&mut self, c: &QueueCommand) -> Result<Outcome, Error> {
        let count = c.count.get();
        if count > RING_MAX {
            return Err(Error::NoSpace);
        }
        let eq = self.ni.eq_alloc(count)?;
        let first = self.ni.eq_sequence(eq)?;
        let ring = Ring {
            base: c.ring.get(),
            count: count.max(1),
            written: 0,
        };
        self.rings.insert(eq, ring);
        Ok(Outcome::Queue(eq, first))
    }
}
