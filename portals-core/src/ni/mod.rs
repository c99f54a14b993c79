//! One network interface: its objects and their lifetimes.
//!
//! | file | decides |
//! |---|---|
//! | `mod.rs` | match entries, descriptors, queues: creation, unlinking, status |
//! | `update.rs` | conditional update, PtlMEMDPost |
//! | `put.rs` | a put at its initiator: what it sends, its end, its ack where a fabric places the data by itself |
//! | `initiate.rs` | the same of a get or getput; what they share with puts |
//! | `target.rs` | which entry takes a message, the ack, the reply |
//! | `complete.rs` | END events, thresholds, auto-unlink |
//! | `export.rs` | event queues that the interface's owner keeps |

mod complete;
mod export;
mod initiate;
mod put;
mod target;
mod update;

#[cfg(test)]
mod tests;

use crate::ac::AcEntry;
use crate::advert::may_be_advertised;
use crate::eq::EventQueue;
use crate::error::Error;
use crate::event::Event;
use crate::handle::{EqHandle, Handle, MdHandle, MeHandle};
use crate::matching::{MatchTable, Me};
use crate::md::{Md, MdDesc, MdRest, MdTable};
use crate::table::{Pool, Table};
use crate::types::{InsertPosition, Limits, MdOptions, ProcessId, Unlink};
use crate::usage::{Gauge, Usage};
use alloc::vec::Vec;
use complete::{Op, Outlet};
use serde::{Deserialize, Serialize};

pub use export::UnreadEvents;
pub use initiate::{InPlace, Landing, Transmit};
pub use put::{AckRequest, ReadyPut};
pub use target::{Deposit, Deposited, DropReason, Incoming, Place, ReplyOut, Swap};

/// Who an interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NiConfig {
    /// Own process id.
    pub id: ProcessId,
    /// Own user id.
    pub uid: u32,
    /// Own job id.
    pub jid: u32,
    /// Interface number within the process, 0 to 6; part of every handle.
    pub interface: u8,
    /// Limits granted.
    pub limits: Limits,
    /// A get posts SEND events and costs one more threshold count, as Cray's library did (rows 5
    /// and 6 of `docs/src/portals-differences.md`).
    pub get_send_events: bool,
}

/// The match criteria of a new entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MeSpec {
    /// Required initiator.
    pub match_id: ProcessId,
    /// Bits to match.
    pub match_bits: u64,
    /// 1 = do not compare this bit.
    pub ignore_bits: u64,
    /// Whether the entry goes away with its MD.
    pub unlink: Unlink,
}

/// Status registers (`PTL_SR_DROP_COUNT` and on), in the order of the API's indexes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Messages dropped, acks and replies included.
    pub drop_count: u64,
    /// Requested bytes of dropped messages.
    pub drop_length: u64,
    /// Messages accepted.
    pub recv_count: u64,
    /// Bytes accepted.
    pub recv_length: u64,
    /// Messages sent.
    pub send_count: u64,
    /// Bytes sent.
    pub send_length: u64,
}

/// An event taken from the first of several queues that has one.
#[derive(Clone, Copy, Debug)]
pub struct First<'a> {
    /// Index of the queue.
    pub which: usize,
    /// The event, where it lies until the next one is posted.
    pub event: &'a Event,
    /// Events of that queue before it were lost.
    pub lost: bool,
    /// One of the queues has another event.
    pub more: bool,
}

/// A network interface. See the crate documentation for the flow of calls.
#[derive(Debug)]
pub struct Ni {
    pub(crate) config: NiConfig,
    pub(crate) matching: MatchTable,
    pub(crate) mds: MdTable,
    pub(crate) eqs: Table<EventQueue>,
    pub(crate) ac: Vec<AcEntry>,
    pub(crate) ops: Pool<Op>,
    pub(crate) status: Status,
    /// Without the present numbers; see [`Ni::usage`].
    pub(crate) usage: Usage,
    /// The longest that each portal's list has been.
    longest: Vec<u32>,
    /// Portal indexes whose [`Ni::adverts`] may have changed.
    pub(crate) dirty_portals: u64,
    /// Descriptors of each portal that [`may_be_advertised`].
    advertisable: Vec<u32>,
    outlet: Outlet,
}

impl Ni {
    /// An interface with empty tables; `config.limits` above [`Limits::LIBRARY`] are cut to it.
    pub fn new(mut config: NiConfig) -> Self {
        config.limits = config.limits.min(Limits::LIBRARY);
        config.interface %= 7;
        let count = |largest: i32| largest.max(0) as usize + 1;
        Self {
            matching: MatchTable::new(config.interface, count(config.limits.max_pt_index)),
            mds: MdTable::new(),
            eqs: Table::new(),
            ac: alloc::vec![AcEntry::initial(config.uid); count(config.limits.max_ac_index)],
            ops: Pool::new(),
            status: Status::default(),
            usage: Usage::default(),
            longest: alloc::vec![0; count(config.limits.max_pt_index)],
            dirty_portals: 0,
            advertisable: alloc::vec![0; count(config.limits.max_pt_index)],
            outlet: Outlet::default(),
            config,
        }
    }

    /// The configuration as granted.
    pub const fn config(&self) -> &NiConfig {
        &self.config
    }

    /// Counters.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// What the interface holds and has held.
    pub fn usage(&self) -> Usage {
        let u = self.usage;
        Usage {
            portals: u.portals.at(self.portals_used()),
            messages: Gauge {
                most: u.messages.most.max(self.ops.most() as u64),
                ..u.messages.at(self.ops.len())
            },
            mes: u.mes.at(self.matching.count()),
            mds: u.mds.at(self.mds.len()),
            eqs: u.eqs.at(self.eqs.len()),
            aligned: u.aligned,
        }
    }

    /// Entries on a portal's list now, and at most so far; `None` for a portal that does not exist.
    pub fn list_lengths(&self, pt_index: u32) -> Option<(u64, u64)> {
        let longest = *self.longest.get(pt_index as usize)?;
        Some((self.matching.list_len(pt_index) as u64, longest.into()))
    }

    fn portals_used(&self) -> usize {
        let lists = 0..self.longest.len() as u32;
        lists.filter(|pt| self.matching.list_len(*pt) > 0).count()
    }

    /// An entry has been linked on this portal.
    #[inline(always)]
    fn count_me(&mut self, pt_index: u32) {
        self.usage.mes.count(self.matching.count());
        let len = self.matching.list_len(pt_index);
        if len == 1 {
            self.count_portal();
        }
        if let Some(longest) = self.longest.get_mut(pt_index as usize) {
            *longest = (*longest).max(len as u32);
        }
    }

    /// A list has got its first entry.
    #[cold]
    fn count_portal(&mut self) {
        let used = self.portals_used();
        self.usage.portals.count(used);
    }

    /// The interface's own handle.
    pub const fn handle(&self) -> Handle {
        Handle::interface_handle(self.config.interface)
    }

    /// Portal indexes (bit mask) whose match lists changed since the last call.
    #[inline]
    pub fn take_dirty_portals(&mut self) -> u64 {
        core::mem::take(&mut self.dirty_portals)
    }

    /// The list of a portal has changed. Nothing follows where it has no descriptor to advertise, so that a change of a
    /// long list without one costs no walk.
    #[inline]
    pub(crate) fn touch(&mut self, pt_index: u32) {
        let any = self.advertisable.get(pt_index as usize);
        if any.is_some_and(|n| *n > 0) {
            self.dirty_portals |= 1u64.checked_shl(pt_index).unwrap_or(0);
        }
    }

    /// A descriptor that may be advertised joins the list of a portal.
    #[inline(always)]
    pub(crate) fn joins(&mut self, pt_index: u32, md: MdHandle) {
        if self.mds.at(md.0.slot()).is_some_and(may_be_advertised)
            && let Some(n) = self.advertisable.get_mut(pt_index as usize)
        {
            *n += 1;
        }
    }

    /// One that may have been leaves it.
    #[inline]
    pub(crate) fn leaves(&mut self, pt_index: u32, advertisable: bool) {
        if advertisable {
            self.touch(pt_index);
            if let Some(n) = self.advertisable.get_mut(pt_index as usize) {
                *n = n.saturating_sub(1);
            }
        }
    }

    // ---- match entries ----

    /// Whether one more entry may be on a list.
    #[inline(always)]
    fn check_list(&self, pt_index: u32) -> Result<(), Error> {
        let l = &self.config.limits;
        if self.matching.count() >= l.max_mes as usize {
            return Err(Error::NoSpace);
        }
        if self.matching.list_len(pt_index) >= l.max_me_list as usize {
            return Err(Error::MeListTooLong);
        }
        Ok(())
    }

    fn new_me(&self, pt_index: u32, spec: &MeSpec) -> Result<Me, Error> {
        self.check_list(pt_index)?;
        Ok(Me::new(
            spec.match_id,
            spec.match_bits,
            spec.ignore_bits,
            spec.unlink,
            pt_index,
        ))
    }

    /// `PtlMEAttach`: a new entry at the head or tail of a portal's list.
    pub fn me_attach(
        &mut self,
        pt_index: u32,
        spec: MeSpec,
        position: InsertPosition,
    ) -> Result<MeHandle, Error> {
        if i64::from(pt_index) > i64::from(self.config.limits.max_pt_index) {
            return Err(Error::PtIndexInvalid);
        }
        let me = self.new_me(pt_index, &spec)?;
        self.touch(pt_index);
        match position {
            InsertPosition::Before => self.matching.push_front(me),
            InsertPosition::After => self.matching.push_back(me),
        }
        .ok_or(Error::NoSpace)
        .inspect(|_| self.count_me(pt_index))
    }

    /// `PtlMEAttachAny`: a new entry on the lowest portal index whose list is empty.
    pub fn me_attach_any(&mut self, spec: MeSpec) -> Result<(u32, MeHandle), Error> {
        let pt_index = self.matching.first_empty().ok_or(Error::PtFull)?;
        let me = self.me_attach(pt_index, spec, InsertPosition::After)?;
        Ok((pt_index, me))
    }

    /// `PtlMEInsert`: a new entry next to `base`.
    pub fn me_insert(
        &mut self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
    ) -> Result<MeHandle, Error> {
        let (base, pt_index) = self.base(base)?;
        let me = self.new_me(pt_index, &spec)?;
        self.touch(pt_index);
        self.insert(base, me, position)
    }

    /// The slot of an entry and its portal.
    #[inline]
    fn base(&self, me: MeHandle) -> Result<(u32, u32), Error> {
        let slot = self.matching.slot(me).ok_or(Error::MeInvalid)?;
        let entry = self.matching.at(slot).ok_or(Error::MeInvalid)?;
        Ok((slot, entry.pt_index))
    }

    /// Beside the entry in the slot `base`, which is there.
    fn insert(&mut self, base: u32, me: Me, position: InsertPosition) -> Result<MeHandle, Error> {
        let pt_index = me.pt_index;
        let linked = match position {
            InsertPosition::Before => self.matching.insert_before(base, me),
            InsertPosition::After => self.matching.insert_after(base, me),
        };
        let Some(me) = linked else {
            return Err(Error::NoSpace);
        };
        self.count_me(pt_index);
        Ok(me)
    }

    /// `PtlMEUnlink`: removes the entry, and its MD if that was made with [`Unlink::Unlink`]; a
    /// retained MD stays as a free-floating one (unlink rule 6).
    pub fn me_unlink(&mut self, handle: MeHandle) -> Result<(), Error> {
        let me = self.matching.get(handle).ok_or(Error::MeInvalid)?;
        let (pt_index, md) = (me.pt_index, me.md);
        if let Some(md_handle) = md {
            let md = self.md(md_handle).ok_or(Error::MeInvalid)?;
            if md.pending > 0 {
                return Err(Error::MeInUse);
            }
            let goes = md.unlink == Unlink::Unlink;
            let advertisable = may_be_advertised(md);
            self.leaves(pt_index, advertisable);
            if let Some(rest) = self.md_rest_mut(md_handle) {
                rest.me = None;
            }
            if goes {
                self.let_go(md_handle);
            }
        }
        self.matching.remove(handle);
        self.touch(pt_index);
        Ok(())
    }

    /// The MD of an entry.
    pub fn me_md(&self, me: MeHandle) -> Option<MdHandle> {
        self.matching.get(me)?.md
    }

    // ---- memory descriptors ----

    #[inline]
    pub(crate) fn md(&self, handle: MdHandle) -> Option<&Md> {
        self.mds.get(handle.key(self.config.interface)?)
    }

    #[inline]
    pub(crate) fn md_mut(&mut self, handle: MdHandle) -> Option<&mut Md> {
        self.mds.get_mut(handle.key(self.config.interface)?)
    }

    #[inline]
    pub(crate) fn md_rest(&self, handle: MdHandle) -> Option<&MdRest> {
        self.mds.rest(handle.key(self.config.interface)?)
    }

    #[inline]
    pub(crate) fn md_rest_mut(&mut self, handle: MdHandle) -> Option<&mut MdRest> {
        self.mds.rest_mut(handle.key(self.config.interface)?)
    }

    /// The portal on whose list the entry of an MD is.
    pub(crate) fn md_portal(&self, handle: MdHandle) -> Option<u32> {
        let me = self.md_rest(handle)?.me?;
        Some(self.matching.get(me)?.pt_index)
    }

    #[inline]
    pub(crate) fn eq(&self, handle: EqHandle) -> Result<&EventQueue, Error> {
        let queue = self.eqs.at(handle.0.slot());
        queue.filter(|q| q.handle == handle).ok_or(Error::EqInvalid)
    }

    #[inline]
    pub(crate) fn eq_mut(&mut self, handle: EqHandle) -> Result<&mut EventQueue, Error> {
        let queue = self.eqs.at_mut(handle.0.slot());
        queue.filter(|q| q.handle == handle).ok_or(Error::EqInvalid)
    }

    /// Checks a description; returns the byte length.
    #[inline]
    pub(crate) fn check_desc(&self, desc: &MdDesc) -> Result<u64, Error> {
        let length = desc
            .memory
            .checked_len(self.config.limits.max_md_iovecs as usize)?;
        if let Some(eq) = desc.eq {
            match eq.0.interface() {
                Some(i) if i != self.config.interface => return Err(Error::MdIllegal),
                _ => self.eq(eq)?,
            };
        }
        Ok(length)
    }

    /// Makes an MD of a description that has not been checked; see [`Ni::add_md`].
    fn new_md(
        &mut self,
        desc: &MdDesc,
        unlink: Unlink,
        me: Option<MeHandle>,
    ) -> Result<MdHandle, Error> {
        let length = self.check_desc(desc)?;
        self.add_md(desc, length, unlink, me)
    }

    /// A new descriptor of `length` bytes; the description has been checked.
    #[inline(always)]
    fn add_md(
        &mut self,
        desc: &MdDesc,
        length: u64,
        unlink: Unlink,
        me: Option<MeHandle>,
    ) -> Result<MdHandle, Error> {
        if self.mds.len() >= self.config.limits.max_mds as usize {
            return Err(Error::NoSpace);
        }
        let (eq, start) = (desc.eq, desc.memory.start());
        let (slot, generation) = self
            .mds
            .insert(desc, length, unlink, me)
            .ok_or(Error::NoSpace)?;
        self.usage.mds.count(self.mds.len());
        self.usage.count_start(start);
        if let Some(queue) = eq.and_then(|eq| self.eqs.at_mut(eq.0.slot())) {
            queue.users += 1;
        }
        Ok(MdHandle::of(self.config.interface, generation, slot))
    }

    /// The owner of the interface keeps something for this descriptor, and [`Ni::take_gone_md`] tells it of the descriptor's
    /// end. Returns the number by which it does, which is another descriptor's afterwards; `None` if there is no such
    /// descriptor.
    #[inline]
    pub fn watch_md(&mut self, md: MdHandle) -> Option<u32> {
        let slot = md.0.slot();
        self.md(md)?;
        self.mds.watch(slot);
        Some(slot)
    }

    /// Whether a watched descriptor is gone of which [`Ni::take_gone_md`] has not told.
    #[inline(always)]
    pub const fn has_gone_mds(&self) -> bool {
        self.mds.has_gone()
    }

    /// The number of a watched descriptor that is gone, and whose operations are over; each once. The owner takes all before
    /// it makes a descriptor, which might get the same number. Nothing is told of those that [`Ni::close`] ends.
    pub fn take_gone_md(&mut self) -> Option<u32> {
        self.mds.take_gone()
    }

    /// `PtlMDAttach`: gives an entry its memory.
    pub fn md_attach(
        &mut self,
        me: MeHandle,
        desc: MdDesc,
        unlink: Unlink,
    ) -> Result<MdHandle, Error> {
        let entry = self.matching.get(me).ok_or(Error::MeInvalid)?;
        if entry.md.is_some() {
            return Err(Error::MeInUse);
        }
        let pt_index = entry.pt_index;
        let md = self.new_md(&desc, unlink, Some(me))?;
        self.matching.set_md(me, Some(md));
        self.joins(pt_index, md);
        self.touch(pt_index);
        Ok(md)
    }

    /// `PtlMDBind`: memory for initiating only.
    pub fn md_bind(&mut self, desc: MdDesc, unlink: Unlink) -> Result<MdHandle, Error> {
        self.new_md(&desc, unlink, None)
    }

    /// `PtlMDUnlink`: no event unless the descriptor asks for one
    /// ([`MdOptions::EVENT_MANUAL_UNLINK_ENABLE`]); the entry goes too if it was made with
    /// [`Unlink::Unlink`].
    pub fn md_unlink(&mut self, handle: MdHandle) -> Result<(), Error> {
        if self.md(handle).ok_or(Error::MdInvalid)?.pending > 0 {
            return Err(Error::MdInUse);
        }
        self.let_go(handle);
        Ok(())
    }

    /// The program takes an MD away, and may have asked to be told so.
    fn let_go(&mut self, handle: MdHandle) {
        let told = MdOptions::EVENT_MANUAL_UNLINK_ENABLE;
        if self
            .md(handle)
            .is_some_and(|md| md.shown.options.contains(told))
        {
            self.unlink_by_program(handle);
        } else {
            self.release_md(handle);
        }
    }

    /// Frees the MD and detaches or removes its entry.
    pub(crate) fn release_md(&mut self, handle: MdHandle) {
        if self.md(handle).is_some() {
            self.release_at(handle.0.slot());
        }
    }

    /// Lets go of the MD in a slot that is in use; see [`Ni::release_md`].
    #[inline]
    pub(crate) fn release_at(&mut self, slot: u32) {
        let Some(md) = self.mds.at(slot) else {
            return;
        };
        let (eq, advertisable) = (md.shown.eq, may_be_advertised(md));
        let me = self.mds.remove(slot);
        if let Some(queue) = eq.and_then(|eq| self.eqs.at_mut(eq.0.slot())) {
            queue.users = queue.users.saturating_sub(1);
        }
        // The entry names the MD, so it is there.
        if let Some(me) = me
            && let Some(entry) = self.matching.at(me.0.slot())
        {
            let pt_index = entry.pt_index;
            if entry.unlink == Unlink::Unlink {
                self.matching.unlink(me.0.slot());
            } else {
                self.matching.set_md(me, None);
            }
            self.leaves(pt_index, advertisable);
            self.touch(pt_index);
        }
    }

    // ---- event queues ----

    /// `PtlEQAlloc`: room for `count` events, at least 1.
    pub fn eq_alloc(&mut self, count: u64) -> Result<EqHandle, Error> {
        if count > u64::from(u32::MAX) || self.eqs.len() >= self.config.limits.max_eqs as usize {
            return Err(Error::NoSpace);
        }
        // A queue that could not be held in memory is refused rather than aborting the process.
        const LARGEST: u64 = 1 << 24;
        if count > LARGEST {
            return Err(Error::NoSpace);
        }
        let count = count.max(1) as usize;
        let queue = if self.outlet.exported.is_some() {
            Some(EventQueue::exported(count))
        } else {
            EventQueue::new(count)
        };
        let (slot, generation) = queue
            .and_then(|queue| self.eqs.insert(queue))
            .ok_or(Error::NoSpace)?;
        self.usage.eqs.count(self.eqs.len());
        let handle = EqHandle::of(self.config.interface, generation, slot);
        if let Some(queue) = self.eqs.at_mut(slot) {
            queue.handle = handle;
        }
        Ok(handle)
    }

    /// `PtlEQFree`: refused while an MD names the queue (row 13 of
    /// `docs/src/portals-differences.md`).
    pub fn eq_free(&mut self, handle: EqHandle) -> Result<(), Error> {
        let eq = self.eq(handle)?;
        if eq.users > 0 || eq.promised > 0 {
            return Err(Error::EqInUse);
        }
        if let Some(key) = handle.key(self.config.interface) {
            self.drop_queue(key);
        }
        Ok(())
    }

    fn drop_queue(&mut self, key: (u32, u16)) {
        let unread = self.eqs.remove(key).map_or(0, |queue| queue.unread());
        self.outlet.unread -= unread;
    }

    /// Frees a queue, or ends its use where it cannot be freed yet ([`Ni::eq_free`]): then no call can name the queue any
    /// more but this one, which frees it when the last MD has let go of it.
    pub fn eq_retire(&mut self, handle: EqHandle) -> Result<(), Error> {
        let key = handle.key(self.config.interface).ok_or(Error::EqInvalid)?;
        let eq = self.eqs.get_mut(key).ok_or(Error::EqInvalid)?;
        if eq.users > 0 || eq.promised > 0 {
            eq.handle = EqHandle(Handle::INVALID);
            return Err(Error::EqInUse);
        }
        self.drop_queue(key);
        Ok(())
    }

    /// Takes the oldest event; the flag says that events before it were lost.
    #[inline]
    pub fn eq_get(&mut self, handle: EqHandle) -> Result<Option<(Event, bool)>, Error> {
        match self.eq_next(handle) {
            Ok(Some((event, lost))) => Ok(Some((*event, lost))),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Takes the next event of a queue; the event, which is large, is left where it lies for the caller to copy.
    #[inline]
    pub fn eq_next(&mut self, handle: EqHandle) -> Result<Option<(&Event, bool)>, Error> {
        let queue = self.eq_mut(handle)?;
        if queue.unread() == 0 {
            return Ok(None);
        }
        self.outlet.unread -= 1;
        Ok(self.eqs.at_mut(handle.0.slot()).and_then(EventQueue::get))
    }

    /// Whether any queue has an event.
    #[inline(always)]
    pub fn has_events(&self) -> bool {
        self.outlet.unread > 0
    }

    /// Takes the next event of the first of several queues that has one; an error with the index of the first handle that
    /// is none, whichever queue has an event, and none is taken then.
    #[inline(always)]
    pub fn eq_first(&mut self, handles: &[EqHandle]) -> Result<Option<First<'_>>, (usize, Error)> {
        for (which, handle) in handles.iter().enumerate() {
            let queue = self.eq(*handle).map_err(|e| (which, e))?;
            let left = match queue.unread() {
                0 => continue,
                unread => unread - 1,
            };
            // Those before it are empty, as was just seen.
            let rest = handles.get(which + 1..).unwrap_or_default();
            let any = self.eq_any(rest);
            let more = any.map_err(|(at, e)| (which + 1 + at, e))? || left > 0;
            self.outlet.unread -= 1;
            let taken = self.eqs.at_mut(handle.0.slot()).and_then(EventQueue::get);
            return Ok(taken.map(|(event, lost)| First {
                which,
                event,
                lost,
                more,
            }));
        }
        Ok(None)
    }

    /// Takes events from the oldest on as long as `take` says so of each, which sees them where they lie; how many. Events
    /// after a loss are left to [`Ni::eq_next`], which tells of it.
    pub fn eq_take_while(
        &mut self,
        handle: EqHandle,
        take: &mut dyn FnMut(&Event) -> bool,
    ) -> Result<usize, Error> {
        let taken = self.eq_mut(handle)?.take_while(take);
        self.outlet.unread -= taken;
        Ok(taken)
    }

    /// Whether one of several queues has an event; an error with the index of the first handle that is none.
    #[inline]
    fn eq_any(&self, handles: &[EqHandle]) -> Result<bool, (usize, Error)> {
        let mut any = false;
        for (at, handle) in handles.iter().enumerate() {
            any |= self.eq(*handle).map_err(|e| (at, e))?.unread() > 0;
        }
        Ok(any)
    }

    /// Like [`Ni::eq_get`] without taking the event.
    pub fn eq_peek(&self, handle: EqHandle) -> Result<Option<(Event, bool)>, Error> {
        Ok(self.eq(handle)?.peek())
    }

    // ---- access control ----

    /// `PtlACEntry`.
    pub fn ac_entry(&mut self, index: u32, entry: AcEntry) -> Result<(), Error> {
        if entry.pt_index != crate::types::ANY
            && i64::from(entry.pt_index) > i64::from(self.config.limits.max_pt_index)
        {
            return Err(Error::PtIndexInvalid);
        }
        *self
            .ac
            .get_mut(index as usize)
            .ok_or(Error::AcIndexInvalid)? = entry;
        self.dirty_portals = u64::MAX;
        Ok(())
    }

    /// Ends the interface: every object is gone, no events, later completions are ignored.
    pub fn close(&mut self) {
        self.matching.clear();
        self.mds.clear();
        self.eqs.clear();
        self.ops.clear();
        if let Some(exported) = &mut self.outlet.exported {
            exported.clear();
        }
        self.outlet.unread = 0;
        self.advertisable.fill(0);
        self.dirty_portals = u64::MAX;
    }
}
