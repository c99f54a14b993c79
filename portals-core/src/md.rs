//! Memory descriptors: acceptance, thresholds, retirement (rules 6-12, 37-45,
//! unlink rules).
//!
//! A delivery reads and writes everything in [`Md`] and nothing in [`MdRest`]. An [`Md`] is one cache
//! line, because among 100,000 descriptors it is in no cache.

use crate::event::MdSnapshot;
use crate::handle::{EqHandle, MeHandle};
use crate::memory::{Memory, Segment, Segments, cut};
use crate::table::Table;
use crate::types::{MdOptions, THRESHOLD_INFINITE, Unlink};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What the user says of an MD (`ptl_md_t`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MdDesc {
    /// The memory.
    pub memory: Memory,
    /// Operations before the MD becomes inactive; [`THRESHOLD_INFINITE`] for no limit, other
    /// negative values count as 0.
    pub threshold: i32,
    /// With [`MdOptions::MAX_SIZE`]: the MD becomes inactive when less than this many bytes remain.
    pub max_size: u64,
    /// Options.
    pub options: MdOptions,
    /// Returned in every event.
    pub user_ptr: u64,
    /// Where events go.
    pub eq: Option<EqHandle>,
}

/// What a message asks of an MD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Put,
    Get,
    GetPut,
}

/// What a delivery needs of a descriptor.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Md {
    /// What events show of it: the threshold is what remains, the length of an iovec the number of
    /// its pieces.
    pub(crate) shown: MdSnapshot,
    local_offset: u64,
    /// Operations under way.
    pub(crate) pending: u32,
    pub(crate) active: bool,
    /// An operation, not the user, made it inactive; only then auto-unlink applies (unlink rule
    /// 3).
    retired: bool,
    pub(crate) unlink: Unlink,
    shape: Shape,
}

/// How the memory lies, and who may write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Whole,
    /// In one piece, and advertised to writers although it has an event queue.
    Open,
    /// An iovec.
    Pieces,
}

const _: () = assert!(size_of::<Option<Md>>() == 64);

/// What a delivery does not need of a descriptor.
#[derive(Debug)]
pub(crate) struct MdRest {
    pub(crate) me: Option<MeHandle>,
    /// Acks that may still come; an ack nobody asked for is not one.
    pub(crate) acks_due: u32,
    /// Replies that may still come.
    pub(crate) replies_due: u32,
    /// The owner is told when it is gone.
    watched: bool,
    /// Bytes of the memory.
    length: u64,
    /// The memory of an iovec.
    pieces: Vec<Segment>,
}

impl MdRest {
    const BLANK: Self = Self {
        me: None,
        acks_due: 0,
        replies_due: 0,
        watched: false,
        length: 0,
        pieces: Vec::new(),
    };

    #[inline(never)]
    fn set_pieces(&mut self, pieces: &[Segment]) {
        self.pieces = pieces.to_vec();
    }
}

/// What a threshold that the user gave means.
#[inline(always)]
fn taken_threshold(given: i32) -> i32 {
    match given {
        THRESHOLD_INFINITE => THRESHOLD_INFINITE,
        t => t.max(0),
    }
}

impl Md {
    /// An active descriptor at offset 0.
    #[inline(always)]
    fn new(desc: &MdDesc, unlink: Unlink) -> Self {
        let threshold = taken_threshold(desc.threshold);
        Self {
            shown: MdSnapshot {
                start: desc.memory.start(),
                length: desc.memory.user_length(),
                threshold,
                max_size: desc.max_size,
                options: desc.options,
                user_ptr: desc.user_ptr,
                eq: desc.eq,
            },
            local_offset: 0,
            pending: 0,
            active: threshold != 0,
            retired: false,
            unlink,
            shape: match desc.memory {
                Memory::Contiguous(_) => Shape::Whole,
                Memory::Iovec { .. } => Shape::Pieces,
            },
        }
    }

    /// The memory, when it is one region.
    #[inline]
    pub(crate) fn region(&self) -> Option<Segment> {
        (self.shape != Shape::Pieces).then_some(Segment {
            addr: self.shown.start,
            len: self.shown.length,
        })
    }

    /// See [`crate::Ni::open_to_writes`].
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.shape == Shape::Open
    }

    /// Only for one whose memory is one region.
    pub(crate) fn set_open(&mut self, open: bool) {
        self.shape = if open { Shape::Open } else { Shape::Whole };
    }

    /// Rules 6-8: the offset and length at which this MD of `length` bytes would take the message, or
    /// `None`.
    #[inline(always)]
    fn accepts(
        &self,
        length: u64,
        access: Access,
        remote_offset: u64,
        rlength: u64,
    ) -> Option<(u64, u64)> {
        let options = self.shown.options;
        let needed = match access {
            Access::Put => MdOptions::OP_PUT,
            Access::Get => MdOptions::OP_GET,
            Access::GetPut => MdOptions::OP_PUT.union(MdOptions::OP_GET),
        };
        if !self.active || !options.contains(needed) {
            return None;
        }
        let offset = if options.contains(MdOptions::MANAGE_REMOTE) {
            remote_offset
        } else {
            self.local_offset
        };
        let room = length.checked_sub(offset)?;
        if rlength <= room {
            Some((offset, rlength))
        } else if options.contains(MdOptions::TRUNCATE) {
            Some((offset, room))
        } else {
            None
        }
    }

    /// Rule 10: accounts an accepted message of `mlength` of the MD's `length` bytes.
    #[inline(always)]
    pub(crate) fn account_target(&mut self, length: u64, mlength: u64) {
        self.consume();
        let options = self.shown.options;
        if options.contains(MdOptions::MANAGE_REMOTE) {
            return;
        }
        self.local_offset += mlength;
        // Rule 12: MAX_SIZE means nothing without a local offset.
        if options.contains(MdOptions::MAX_SIZE) && length - self.local_offset < self.shown.max_size
        {
            self.active = false;
            self.retired = true;
        }
    }

    /// One operation of the threshold (rule 37).
    #[inline(always)]
    pub(crate) fn consume(&mut self) {
        if self.shown.threshold > 0 {
            self.shown.threshold -= 1;
            if self.shown.threshold == 0 {
                self.active = false;
                self.retired = true;
            }
        }
    }

    /// Whether it has no threshold, so that no number of operations ends it.
    #[inline(always)]
    pub(crate) fn is_endless(&self) -> bool {
        self.shown.threshold < 0
    }

    /// Active again, with these values and the others as they are; only for one with a threshold.
    #[inline(always)]
    pub(crate) fn renew(&mut self, threshold: i32, user_ptr: u64) {
        let threshold = taken_threshold(threshold);
        self.shown.threshold = threshold;
        self.shown.user_ptr = user_ptr;
        self.local_offset = 0;
        self.active = threshold != 0;
        self.retired = false;
    }

    /// Unlink rules 1 and 4: whether it goes away now.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.retired && !self.active && self.pending == 0 && self.unlink == Unlink::Unlink
    }
}

/// All descriptors of an interface.
#[derive(Debug)]
pub(crate) struct MdTable {
    mds: Table<Md>,
    /// By slot; meaningful where there is an [`Md`].
    rests: Vec<MdRest>,
    /// Slots of watched descriptors that are gone, until the owner has taken them.
    gone: Vec<u32>,
}

impl MdTable {
    pub(crate) const fn new() -> Self {
        Self {
            mds: Table::new(),
            rests: Vec::new(),
            gone: Vec::new(),
        }
    }

    /// From now on [`MdTable::take_gone`] tells of the end of the descriptor in a slot that is in use.
    #[inline]
    pub(crate) fn watch(&mut self, slot: u32) {
        if let Some(rest) = self.rests.get_mut(slot as usize) {
            rest.watched = true;
        }
    }

    /// Whether [`MdTable::take_gone`] has one.
    #[inline(always)]
    pub(crate) const fn has_gone(&self) -> bool {
        !self.gone.is_empty()
    }

    /// The slot of a watched descriptor that is gone.
    pub(crate) fn take_gone(&mut self) -> Option<u32> {
        self.gone.pop()
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.mds.len()
    }

    /// A new descriptor whose memory has `length` bytes; `None` when all slots are taken.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        desc: &MdDesc,
        length: u64,
        unlink: Unlink,
        me: Option<MeHandle>,
    ) -> Option<(u32, u16)> {
        let key = self.mds.insert_with(|| Md::new(desc, unlink))?;
        let rest = self.mds.beside(&mut self.rests, key.0, || MdRest::BLANK)?;
        rest.me = me;
        rest.acks_due = 0;
        rest.replies_due = 0;
        rest.length = length;
        // A descriptor that is gone has left no pieces.
        if let Memory::Iovec { segments, .. } = &desc.memory {
            rest.set_pieces(segments);
        }
        Some(key)
    }

    /// Gives the descriptor in `slot` the values of `desc`; operations under way stay its own.
    pub(crate) fn update(&mut self, slot: u32, desc: &MdDesc, length: u64) {
        if let (Some(md), Some(rest)) = (self.mds.at_mut(slot), self.rests.get_mut(slot as usize)) {
            *md = Md {
                pending: md.pending,
                ..Md::new(desc, md.unlink)
            };
            rest.length = length;
            rest.set_pieces(match &desc.memory {
                Memory::Contiguous(_) => &[],
                Memory::Iovec { segments, .. } => segments,
            });
        }
    }

    /// The memory of an iovec.
    pub(crate) fn pieces(&self, key: (u32, u16)) -> Option<&[Segment]> {
        self.rest(key).map(|rest| rest.pieces.as_slice())
    }

    #[inline]
    pub(crate) fn get(&self, key: (u32, u16)) -> Option<&Md> {
        self.mds.get(key)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: (u32, u16)) -> Option<&mut Md> {
        self.mds.get_mut(key)
    }

    /// The MD in a slot that is in use; see [`Table::at`].
    #[inline]
    pub(crate) fn at(&self, slot: u32) -> Option<&Md> {
        self.mds.at(slot)
    }

    /// Slots in use or free again.
    pub(crate) fn slots(&self) -> u32 {
        self.rests.len() as u32
    }

    /// The generation of a slot with a descriptor.
    pub(crate) fn generation(&self, slot: u32) -> Option<u16> {
        self.mds.at(slot).map(|_| self.mds.generation(slot))
    }

    /// The MD in a slot that is in use, to be changed; see [`Table::at`].
    #[inline]
    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut Md> {
        self.mds.at_mut(slot)
    }

    /// The rest of the descriptor that `key` names.
    #[inline]
    pub(crate) fn rest(&self, key: (u32, u16)) -> Option<&MdRest> {
        self.mds.get(key)?;
        self.rests.get(key.0 as usize)
    }

    /// The rest of an MD, to be changed; see [`MdTable::rest`].
    #[inline]
    pub(crate) fn rest_mut(&mut self, key: (u32, u16)) -> Option<&mut MdRest> {
        self.mds.get(key)?;
        self.rests.get_mut(key.0 as usize)
    }

    /// The rest of the MD in a slot that the caller knows to be in use.
    #[inline]
    pub(crate) fn rest_at_mut(&mut self, slot: u32) -> Option<&mut MdRest> {
        self.rests.get_mut(slot as usize)
    }

    /// Bytes of the memory of `md`, in `slot`.
    #[inline]
    pub(crate) fn length(&self, slot: u32, md: &Md) -> u64 {
        if md.shape == Shape::Pieces {
            self.rests.get(slot as usize).map_or(0, |rest| rest.length)
        } else {
            md.shown.length
        }
    }

    /// Rules 6-8: the offset and length at which the MD in `slot` would take the message, or `None`.
    #[inline(always)]
    pub(crate) fn accepts(
        &self,
        slot: u32,
        access: Access,
        remote_offset: u64,
        rlength: u64,
    ) -> Option<(u64, u64)> {
        let md = self.at(slot)?;
        md.accepts(self.length(slot, md), access, remote_offset, rlength)
    }

    /// The MD in a slot, and the bytes of its memory.
    #[inline]
    pub(crate) fn at_mut_with_length(&mut self, slot: u32) -> Option<(&mut Md, u64)> {
        let md = self.mds.at_mut(slot)?;
        let length = if md.shape == Shape::Pieces {
            self.rests.get(slot as usize).map_or(0, |rest| rest.length)
        } else {
            md.shown.length
        };
        Some((md, length))
    }

    /// The pieces of an MD that hold bytes `offset .. offset + len`; the caller has checked the range.
    /// The MD is in `slot` and has this `region`.
    #[inline]
    pub(crate) fn slice(
        &self,
        slot: u32,
        region: Option<Segment>,
        offset: u64,
        len: u64,
    ) -> Segments {
        match region {
            Some(whole) => Segments::from_buf([Segment {
                addr: whole.addr + offset,
                len,
            }]),
            None => self
                .rests
                .get(slot as usize)
                .map_or_else(Segments::new, |rest| cut(&rest.pieces, offset, len)),
        }
    }

    /// Frees a slot that is in use; the descriptor's entry.
    #[inline(always)]
    pub(crate) fn remove(&mut self, slot: u32) -> Option<MeHandle> {
        self.mds.free(slot);
        let rest = self.rests.get_mut(slot as usize)?;
        if !rest.pieces.is_empty() {
            rest.pieces = Vec::new();
        }
        if rest.watched {
            rest.watched = false;
            self.gone.push(slot);
        }
        rest.me.take()
    }

    pub(crate) fn clear(&mut self) {
        self.mds.clear();
        self.rests.iter_mut().for_each(|rest| {
            rest.me = None;
            rest.watched = false;
            rest.pieces = Vec::new();
        });
        self.gone.clear();
    }
}
