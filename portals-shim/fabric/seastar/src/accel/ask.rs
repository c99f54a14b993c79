//! Calls as commands of the mailbox, and what their answers mean.

use super::super::memory::NodeMemory;
use super::{Accelerated, Begun};
use fabric_api::call::{Answer, Call, Target};
use firmware_sim::accel::wire::{self, Outcome, OutcomeKind};
use nic_model::defs::accel::{
    AccessCommand, Criteria, DescriptorCommand, DescriptorRecord, EVENT_LEN, EntryCommand,
    Exchange, INLINE_DATA, Initiate, NO_HANDLE, Object, PieceRecord, QueueCommand, RING_MAX, flags,
};
use nic_model::defs::command::{COMMAND_LEN, Command, OpCode};
use portals_core::{
    AckRequest, EqHandle, Error, InsertPosition, MdDesc, MdHandle, MeHandle, Memory, Unlink,
};
use zerocopy::{FromZeros, IntoBytes};

/// Pieces that a list in the staging area has room for; a longer one is refused by every library.
const PIECES: usize = 255;
const LIST: u64 = size_of::<DescriptorRecord>() as u64;
/// Bytes of the staging area: a descriptor and its list.
pub(super) const STAGING: usize = LIST as usize + (PIECES + 1) * size_of::<PieceRecord>();

/// A command whose answer is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) kind: OutcomeKind,
    pub(super) about: About,
}

/// What is learnt from success, besides the answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum About {
    Nothing,
    /// The portal was the library's to choose.
    AnyPortal,
    Entry,
    EntryGone(MeHandle),
    Descriptor,
    DescriptorGone(MdHandle),
    Changed,
    Both,
    Queue {
        ring: u64,
        count: u64,
    },
    QueueGone(EqHandle),
    /// The queue is to go ([`About::QueueGone`]); also where the firmware refuses it, no poll may name it any more.
    QueueRetired(EqHandle),
}

/// A descriptor that the answer to its command makes known.
#[derive(Debug)]
pub(super) struct Described {
    pub(super) desc: MdDesc,
    pub(super) unlink: Unlink,
    pub(super) me: Option<MeHandle>,
    pub(super) md: Option<MdHandle>,
}

fn spent(unlink: Unlink) -> u8 {
    match unlink {
        Unlink::Unlink => flags::UNLINK,
        Unlink::Retain => 0,
    }
}

fn place(position: InsertPosition) -> u8 {
    match position {
        InsertPosition::After => flags::AFTER,
        InsertPosition::Before => 0,
    }
}

fn byte(index: u32) -> u8 {
    index.min(255) as u8
}

/// A node id of 16 bits; one that has more is nobody's.
fn node(nid: u32) -> u16 {
    u16::try_from(nid).unwrap_or(u16::MAX)
}

fn object(op: OpCode, object: u32) -> [u8; COMMAND_LEN] {
    Object {
        op,
        flags: flags::ANSWER,
        object: object.into(),
        ..Object::new_zeroed()
    }
    .to_entry()
}

fn no_criteria() -> Criteria {
    Criteria::new_zeroed()
}

impl Accelerated {
    fn ask(&mut self, kind: OutcomeKind, about: About, entry: [u8; COMMAND_LEN]) -> Begun {
        self.answers = self.answers.wrapping_add(1);
        self.asked = Some(Asked { kind, about });
        self.counts.asked += 1;
        Begun::Asked(entry)
    }

    /// The command of a call that needs one.
    pub(super) fn command(&mut self, call: &Call, memory: &mut NodeMemory) -> Begun {
        match call {
            Call::MeAttach {
                pt_index,
                spec,
                position,
            } => {
                let mut c = EntryCommand::new_zeroed();
                c.op = OpCode::ME_ATTACH;
                c.flags = flags::ANSWER | spent(spec.unlink) | place(*position);
                c.base = (*pt_index).into();
                c.criteria = wire::criteria(spec);
                self.ask(OutcomeKind::Entry, About::Entry, c.to_entry())
            }
            Call::MeAttachAny { spec } => {
                let mut c = EntryCommand::new_zeroed();
                c.op = OpCode::ME_ATTACH;
                c.flags = flags::ANSWER | spent(spec.unlink) | flags::ANY_PORTAL;
                c.criteria = wire::criteria(spec);
                self.ask(OutcomeKind::Entry, About::AnyPortal, c.to_entry())
            }
            Call::MeInsert {
                base,
                spec,
                position,
            } => {
                let mut c = EntryCommand::new_zeroed();
                c.op = OpCode::ME_INSERT;
                c.flags = flags::ANSWER | spent(spec.unlink) | place(*position);
                c.base = base.raw().into();
                c.criteria = wire::criteria(spec);
                self.ask(OutcomeKind::Entry, About::Entry, c.to_entry())
            }
            Call::MeUnlink(me) => {
                let entry = object(OpCode::ME_UNLINK, me.raw());
                self.ask(OutcomeKind::Done, About::EntryGone(*me), entry)
            }
            Call::MdAttach { me, desc, unlink } => {
                let c = self.describe(memory, desc, *unlink, None);
                self.described = Some(Described {
                    desc: desc.clone(),
                    unlink: *unlink,
                    me: Some(*me),
                    md: None,
                });
                let c = DescriptorCommand {
                    op: OpCode::MD_ATTACH,
                    object: me.raw().into(),
                    ..c
                };
                self.ask(OutcomeKind::Descriptor, About::Descriptor, c.to_entry())
            }
            Call::MdBind { desc, unlink } => {
                let c = self.describe(memory, desc, *unlink, None);
                self.described = Some(Described {
                    desc: desc.clone(),
                    unlink: *unlink,
                    me: None,
                    md: None,
                });
                let c = DescriptorCommand {
                    op: OpCode::MD_BIND,
                    ..c
                };
                self.ask(OutcomeKind::Descriptor, About::Descriptor, c.to_entry())
            }
            Call::MdUnlink(md) => {
                let entry = object(OpCode::MD_UNLINK, md.raw());
                self.ask(OutcomeKind::Done, About::DescriptorGone(*md), entry)
            }
            Call::MdQuery(md) => {
                let entry = object(OpCode::MD_QUERY, md.raw());
                self.ask(OutcomeKind::State, About::Nothing, entry)
            }
            Call::MdUpdate { md, new, test } => {
                let c = self.describe(memory, new, Unlink::Retain, *test);
                self.described = Some(Described {
                    desc: new.clone(),
                    unlink: Unlink::Retain,
                    me: None,
                    md: Some(*md),
                });
                let c = DescriptorCommand {
                    op: OpCode::MD_UPDATE,
                    object: md.raw().into(),
                    ..c
                };
                self.ask(OutcomeKind::State, About::Changed, c.to_entry())
            }
            Call::MeMdPost {
                base,
                spec,
                position,
                desc,
                unlink,
                test,
            } => {
                let c = self.describe(memory, desc, *unlink, *test);
                self.described = Some(Described {
                    desc: desc.clone(),
                    unlink: *unlink,
                    me: None,
                    md: None,
                });
                let c = DescriptorCommand {
                    op: OpCode::ME_MD_POST,
                    flags: c.flags | place(*position),
                    entry_unlink: u8::from(spec.unlink == Unlink::Unlink),
                    object: base.raw().into(),
                    criteria: wire::criteria(spec),
                    ..c
                };
                self.ask(OutcomeKind::Both, About::Both, c.to_entry())
            }
            Call::EqAlloc(count) => {
                let entries = (*count).max(1);
                // A queue that the firmware will refuse needs no memory.
                let ring = if entries <= RING_MAX {
                    memory.reserve(entries * EVENT_LEN)
                } else {
                    0
                };
                let mut c = QueueCommand::new_zeroed();
                c.op = OpCode::EQ_ALLOC;
                c.flags = flags::ANSWER;
                c.count = (*count).into();
                c.ring = ring.into();
                let about = About::Queue {
                    ring,
                    count: entries,
                };
                self.ask(OutcomeKind::Queue, about, c.to_entry())
            }
            Call::EqFree(eq) => {
                let entry = object(OpCode::EQ_FREE, eq.raw());
                self.ask(OutcomeKind::Done, About::QueueGone(*eq), entry)
            }
            Call::EqRetire(eq) => {
                let entry = object(OpCode::EQ_FREE, eq.raw());
                self.ask(OutcomeKind::Done, About::QueueRetired(*eq), entry)
            }
            Call::AcEntry { index, entry } => {
                let mut c = AccessCommand::new_zeroed();
                c.op = OpCode::AC_ENTRY;
                c.flags = flags::ANSWER;
                c.index = (*index).into();
                c.nid = entry.match_id.nid.into();
                c.pid = entry.match_id.pid.into();
                c.uid = entry.uid.into();
                c.jid = entry.jid.into();
                c.portal = entry.pt_index.into();
                self.ask(OutcomeKind::Done, About::Nothing, c.to_entry())
            }
            Call::Put {
                md,
                region,
                ack,
                to,
                hdr_data,
            } => {
                let mut c = initiate(OpCode::PUT, *md, *region, to);
                c.hdr_data = (*hdr_data).into();
                if *ack == AckRequest::Ack {
                    c.flags |= flags::ACK;
                }
                self.start(c, *region, *md, memory)
            }
            Call::Get { md, region, from } => {
                let c = initiate(OpCode::GET, *md, *region, from);
                self.start(c, *region, *md, memory)
            }
            Call::GetPut {
                get,
                put,
                regions,
                to,
                hdr_data,
            } => {
                let (get_offset, put_offset, length) = regions.unwrap_or_default();
                let c = Exchange {
                    op: OpCode::GET_PUT,
                    flags: flags::ANSWER | if regions.is_none() { flags::WHOLE } else { 0 },
                    nid: node(to.process.nid).into(),
                    pid: (to.process.pid as u16).into(),
                    portal: byte(to.pt_index),
                    access: byte(to.ac_index),
                    get_md: get.raw().into(),
                    put_md: put.raw().into(),
                    get_offset: get_offset.into(),
                    put_offset: put_offset.into(),
                    length: length.into(),
                    match_bits: to.match_bits.into(),
                    remote_offset: to.remote_offset.into(),
                    hdr_data: (*hdr_data).into(),
                };
                self.ask(OutcomeKind::Done, About::Nothing, c.to_entry())
            }
            Call::Status => self.ask(
                OutcomeKind::Status,
                About::Nothing,
                object(OpCode::STATUS, 0),
            ),
            Call::Usage => self.ask(OutcomeKind::Usage, About::Nothing, object(OpCode::USAGE, 0)),
            Call::ListLengths(portal) => self.ask(
                OutcomeKind::Lengths,
                About::Nothing,
                object(OpCode::LIST_LENGTHS, *portal),
            ),
            Call::Close => self.ask(OutcomeKind::Done, About::Nothing, object(OpCode::FINI, 0)),
            // These are no commands.
            Call::EqPeek(_)
            | Call::EqPoll { .. }
            | Call::Distance(_)
            | Call::Paths
            | Call::Compute(_) => Begun::Over(Err(Error::Fail)),
        }
    }

    /// A put or get: posted when it cannot be refused.
    fn start(
        &mut self,
        mut c: Initiate,
        region: Option<(u64, u64)>,
        md: MdHandle,
        memory: &mut NodeMemory,
    ) -> Begun {
        let Some(part) = self.known.part(md, region) else {
            c.flags |= flags::ANSWER;
            return self.ask(OutcomeKind::Done, About::Nothing, c.to_entry());
        };
        if c.op == OpCode::PUT
            && part.length <= INLINE_DATA as u64
            && let Some(data) = memory.gather(self.process, &part.segments)
        {
            self.cost += self.costs.memcpy_fixed;
            c.flags |= flags::INLINE;
            c.length = (data.len() as u32).into();
            c.data[..data.len()].copy_from_slice(&data);
        }
        self.counts.posted += 1;
        Begun::Posted(c.to_entry())
    }

    /// Writes a descriptor into the staging area; the command that refers to it.
    fn describe(
        &mut self,
        memory: &mut NodeMemory,
        desc: &MdDesc,
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> DescriptorCommand {
        self.cost += self.costs.memcpy_fixed;
        let mut record = DescriptorRecord::new_zeroed();
        record.start = desc.memory.start().into();
        record.max_size = desc.max_size.into();
        record.user_ptr = desc.user_ptr.into();
        record.threshold = desc.threshold.into();
        record.options = desc.options.bits().into();
        record.eq = desc.eq.map_or(NO_HANDLE, EqHandle::raw).into();
        record.has_queue = u8::from(desc.eq.is_some());
        match &desc.memory {
            Memory::Contiguous(s) => record.length = s.len.into(),
            Memory::Iovec { segments, .. } => {
                record.pieces = (self.staging + LIST).into();
                record.count = (segments.len().min(PIECES + 1) as u16).into();
                let list: Vec<PieceRecord> = segments
                    .iter()
                    .take(PIECES + 1)
                    .map(|s| PieceRecord {
                        address: s.addr.into(),
                        length: s.len.into(),
                    })
                    .collect();
                let bytes = list.as_bytes();
                if let Some(to) = memory.kernel(self.staging + LIST, bytes.len()) {
                    to.copy_from_slice(bytes);
                }
            }
        }
        if let Some(to) = memory.kernel(self.staging, LIST as usize) {
            to.copy_from_slice(record.as_bytes());
        }
        let taken = test.and_then(|eq| self.rings.next(eq)).unwrap_or(0);
        DescriptorCommand {
            op: OpCode::MD_BIND,
            flags: flags::ANSWER | spent(unlink) | if test.is_some() { flags::TEST } else { 0 },
            entry_unlink: 0,
            reserved: 0,
            object: 0.into(),
            test: test.map_or(NO_HANDLE, EqHandle::raw).into(),
            taken: taken.into(),
            record: self.staging.into(),
            criteria: no_criteria(),
            reserved2: [0; 16],
        }
    }

    /// Gives back what was got ready for a command that failed.
    pub(super) fn forget(&mut self, about: About, memory: &mut NodeMemory) {
        self.described = None;
        match about {
            About::Queue { ring, .. } => memory.unreserve(ring),
            // The firmware goes on to write events there.
            About::QueueRetired(eq) => self.rings.retire(eq),
            _ => {}
        }
    }

    /// Takes in what a command's success means.
    pub(super) fn learn(
        &mut self,
        about: About,
        outcome: Outcome,
        memory: &mut NodeMemory,
    ) -> Result<Answer, Error> {
        let described = self.described.take();
        match (about, outcome) {
            (About::EntryGone(me), Outcome::Done) => {
                self.known.entry_gone(me);
                Ok(Answer::Done)
            }
            (About::DescriptorGone(md), Outcome::Done) => {
                self.known.remove(md);
                Ok(Answer::Done)
            }
            (About::QueueGone(eq) | About::QueueRetired(eq), Outcome::Done) => {
                if let Some(ring) = self.rings.remove(eq) {
                    memory.unreserve(ring);
                }
                Ok(Answer::Done)
            }
            (_, Outcome::Done) => Ok(Answer::Done),
            (About::AnyPortal, Outcome::Entry(portal, me)) => Ok(Answer::PortalMe(portal, me)),
            (_, Outcome::Entry(_, me)) => Ok(Answer::Me(me)),
            (_, Outcome::Descriptor(md)) => {
                if let Some(d) = described {
                    self.known.insert(md, &d.desc, d.unlink, d.me);
                }
                Ok(Answer::Md(md))
            }
            (_, Outcome::Both(me, md)) => {
                if let Some(d) = described {
                    self.known.insert(md, &d.desc, d.unlink, Some(me));
                }
                Ok(Answer::MeMd(me, md))
            }
            (About::Queue { ring, count }, Outcome::Queue(eq, first)) => {
                self.rings.insert(eq, ring, count, first);
                Ok(Answer::Eq(eq))
            }
            (about, Outcome::State(state, in_use)) => {
                if let (About::Changed, Some(d)) = (about, described)
                    && let Some(md) = d.md
                {
                    self.known.update(md, &d.desc);
                }
                Ok(Answer::Snapshot(state, in_use))
            }
            (_, Outcome::Status(status)) => Ok(Answer::Status(status)),
            (_, Outcome::Usage(usage)) => Ok(Answer::Usage(usage)),
            (_, Outcome::Lengths(now, most)) => Ok(Answer::ListLengths(now, most)),
            (_, Outcome::Queue(..)) => Err(Error::Fail),
        }
    }
}

/// A put or get without its data and its answer.
fn initiate(op: OpCode, md: MdHandle, region: Option<(u64, u64)>, to: &Target) -> Initiate {
    // A region that 32 bits cannot say is longer than any message may be; so is all ones.
    let (offset, length) = region.unwrap_or_default();
    let (offset, length) = match u32::try_from(length) {
        Ok(length) => (offset, length),
        Err(_) => (u64::MAX, u32::MAX),
    };
    Initiate {
        op,
        flags: if region.is_none() { flags::WHOLE } else { 0 },
        nid: node(to.process.nid).into(),
        pid: (to.process.pid as u16).into(),
        portal: byte(to.pt_index),
        access: byte(to.ac_index),
        md: md.raw().into(),
        length: length.into(),
        offset: offset.into(),
        match_bits: to.match_bits.into(),
        remote_offset: to.remote_offset.into(),
        hdr_data: 0.into(),
        data: [0; INLINE_DATA],
    }
}
