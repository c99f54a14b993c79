//! Registered memory of descriptors, and requests that name it.
// UNSAFETY: registers and names memory by address; the addresses come from MDs, whose makers
// promised that they stay mapped (`RawMemory::new`, or a `Region` kept by its interface).
#![expect(
    unsafe_code,
    reason = "registers descriptors' memory by address, and names it in requests"
)]

use fabric_api::region::Region;
use portals_core::{MdHandle, Segment};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use verbs_backend::batch::PushError;
use verbs_backend::mr::MrError;
use verbs_backend::qp::PostError;
use verbs_backend::{Access, Mr, Pd, Qp, Remote, SendBatch, SendFlags, SendOp};

/// What a registration is for; each is a registration of its own, so that a peer never has a right
/// that its purpose does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Use {
    /// Read by our own requests.
    Local,
    /// Written by our own reads.
    Landing,
    /// Source of a rendezvous: a peer reads it once.
    Source,
    /// Advertised for puts.
    OpenPut,
    /// Advertised for gets.
    OpenGet,
    /// Advertised for both.
    Open,
}

impl Use {
    /// Peers get no right by it.
    fn is_private(self) -> bool {
        matches!(self, Self::Local | Self::Landing)
    }

    /// Peers use it whenever they like, until the advertisement is taken back.
    fn is_advertised(self) -> bool {
        matches!(self, Self::OpenPut | Self::OpenGet | Self::Open)
    }

    /// What memory of this library's own is registered as for it: what may be written serves to be read too, so that it is
    /// locked once for both. By the rules of iWARP landing gives peers a right, which reading does not need; other memory
    /// may be such that nobody can write it.
    fn of_own_memory(self, strict: bool) -> Self {
        match self {
            Self::Local if !strict => Self::Landing,
            other => other,
        }
    }

    /// `strict`: by the rules of iWARP, where the answer to a read is a write of the peer's.
    fn access(self, strict: bool) -> Access {
        match self {
            Self::Local => Access::empty(),
            Self::Landing if strict => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Self::Landing => Access::LOCAL_WRITE,
            Self::Source | Self::OpenGet => Access::REMOTE_READ,
            Self::OpenPut => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Self::Open => Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ,
        }
    }
}

/// One registration and who needs it.
#[derive(Debug)]
struct Entry {
    mr: Mr,
    purpose: Use,
    /// The mapping of this library that holds the memory, if it is one: those tell when they end.
    mapping: Option<u64>,
    /// Bytes of it that count for the budget: all, or none if its pages are not locked.
    locked: u64,
    /// Descriptors that use it.
    users: usize,
    /// When it was last looked for.
    used: u64,
}

/// Memory that stays registered.
#[derive(Clone, Copy, Debug)]
struct Pinned {
    /// One byte past it.
    end: u64,
    keys: (u32, u32),
    /// Peers read it by these.
    open: bool,
}

/// Why there is no registration.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistryError {
    #[error(transparent)]
    Refused(#[from] MrError),
    #[error(
        "cannot register {bytes} bytes: {held} are registered and at most {budget} may be; raise PORTOLAN_MEMLOCK, \
         or \"ulimit -l\" where that is not set"
    )]
    Budget { bytes: u64, held: u64, budget: u64 },
}

impl RegistryError {
    /// Whether memory whose pages are not locked could still be registered.
    fn is_of_locking(&self) -> bool {
        match self {
            Self::Budget { .. } => true,
            Self::Refused(error) => error.is_of_locking(),
        }
    }
}

/// Registrations, made when first needed.
///
/// # Registered memory stays mapped
///
/// What is registered is the memory of a live descriptor, or more of the same mapping of this library. The maker of the
/// descriptor promised that its memory stays mapped until it is unlinked (`RawMemory::new`). Before a call that unlinks
/// it returns, `Nal::retire` has seen the end of its operations, and its registrations end: those of a pinned
/// descriptor in [`Registry::unpin`], others in [`Registry::prune`] (`Nal::publish`).
///
/// A descriptor that unlinks itself is neither pinned (`Verbs::remote_key` takes those without a limit) nor advertised,
/// so that no registration of its memory lets a peer write. What it has may stay until the next `prune`; no request
/// names it any more, and the kernel holds the pages for as long as they are registered. Memory that this library has
/// mapped itself may stay registered after its descriptor, until `prune` finds the mapping gone.
///
/// # How long
///
/// * Each piece of a descriptor in pieces has its own. Of memory that a descriptor had before an update they end with the
///   operations that were under way then.
/// * One that gives peers rights covers exactly its descriptor's memory and ends with the descriptor.
/// * Others end with the last descriptor that uses them, after which the program may unmap the memory. Memory that
///   this library has mapped itself ([`Region`]) stays registered longer: its unmapping is known here, and a
///   registration of memory that is gone is not found any more. Such registrations are shared, also by sources and
///   destinations, made larger where they touch, and dropped in the order of their last use when the budget demands it.
///
/// # Locked or not
///
/// Pages are locked, which makes each access as fast as it can be, as long as the budget and the system allow it. What they
/// refuse is registered without locking where the device can take faults (on-demand paging), and counts for nothing.
#[derive(Debug)]
pub(super) struct Registry {
    pub(super) pd: Pd,
    /// Most bytes locked for descriptors.
    budget: Option<u64>,
    /// Whether the device takes faults; not known before it is needed.
    faults: OnceLock<bool>,
    /// What makes a registration one that locks nothing.
    unlocked: Access,
    /// By the rules of iWARP.
    strict: bool,
    held: u64,
    clock: u64,
    entries: slab::Slab<Entry>,
    /// Of each piece of a descriptor's memory that was asked for.
    by_md: BTreeMap<(MdHandle, Use), SmallVec<[usize; 1]>>,
    /// Of memory that a descriptor had before an update, while operations on it are under way.
    former: Vec<(MdHandle, usize)>,
    /// Memory pinned by its owner's word (`MdOptions::PINNED`): by first byte and descriptor. Own transfers within it use
    /// its registrations, whatever descriptor they go by.
    pinned: BTreeMap<(u64, MdHandle), Pinned>,
    /// The registration found last; none after a change.
    last: Option<Found>,
    /// The entry that was read last for a peer, if it is still there.
    read: usize,
}

/// A registration that serves a descriptor.
#[derive(Clone, Copy, Debug)]
struct Found {
    md: MdHandle,
    purpose: Use,
    memory: Segment,
    keys: (u32, u32),
}

fn end(s: &Segment) -> u64 {
    s.addr.saturating_add(s.len)
}

impl Registry {
    pub(super) fn new(pd: Pd, budget: Option<u64>, strict: bool) -> Self {
        Self {
            pd,
            budget,
            faults: OnceLock::new(),
            unlocked: Access::ON_DEMAND,
            strict,
            held: 0,
            clock: 0,
            entries: slab::Slab::new(),
            by_md: BTreeMap::new(),
            former: Vec::new(),
            pinned: BTreeMap::new(),
            last: None,
            read: 0,
        }
    }

    /// The keys of a descriptor ([`Registry::of_md`]), if it was the last one asked for; operations on one come in rows.
    #[inline]
    pub(super) fn again(&self, md: MdHandle, piece: Segment, purpose: Use) -> Option<(u32, u32)> {
        let last = self.last.as_ref()?;
        let inside = piece.addr >= last.memory.addr && end(&piece) <= end(&last.memory);
        (last.md == md && last.purpose == purpose && inside).then_some(last.keys)
    }

    /// Keys (rkey, lkey) of a registration that holds `region`, one of `pieces` of `md`'s memory, and serves `purpose`. With more pieces
    /// than these the one that was asked for first ends.
    pub(super) fn of_md(
        &mut self,
        md: MdHandle,
        (region, pieces): (Segment, usize),
        purpose: Use,
    ) -> Result<(u32, u32), RegistryError> {
        self.clock += 1;
        let now = self.clock;
        let covers = |e: &Entry| e.mr.covers(region.addr as usize, region.len as usize);
        let known = self.by_md.get(&(md, purpose)).into_iter().flatten();
        let known = known
            .copied()
            .find(|at| self.entries.get(*at).is_some_and(covers));
        if let Some(entry) = known.and_then(|at| self.entries.get_mut(at)) {
            entry.used = now;
            let keys = (entry.mr.rkey(), entry.mr.lkey());
            // Registrations that give peers rights are looked at each time.
            if purpose.is_private() {
                self.last = Some(Found {
                    md,
                    purpose,
                    memory: Segment {
                        addr: entry.mr.address() as u64,
                        len: entry.mr.length() as u64,
                    },
                    keys,
                });
            }
            return Ok(keys);
        }
        let mapping = fabric_api::region::mapping_of(region);
        let shared = mapping.filter(|_| purpose.is_private());
        let held_for = match mapping {
            Some(_) => purpose.of_own_memory(self.strict),
            None => purpose,
        };
        let found = shared.and_then(|_| {
            let fits = |e: &Entry| e.purpose == held_for && e.mapping == mapping && covers(e);
            self.entries.iter().find(|(_, e)| fits(e)).map(|(at, _)| at)
        });
        let at = match found {
            Some(at) => at,
            None => {
                let whole = match shared {
                    Some(_) => self.union(region, mapping, held_for),
                    None => region,
                };
                let (mr, locked) = self.register(whole, held_for)?;
                self.held += locked;
                self.entries.insert(Entry {
                    mr,
                    purpose: held_for,
                    mapping,
                    locked,
                    users: 0,
                    used: now,
                })
            }
        };
        let of_md = self.by_md.entry((md, purpose)).or_default();
        of_md.push(at);
        let surplus = (of_md.len() > pieces.max(1)).then(|| of_md.remove(0));
        if let Some(old) = surplus {
            self.leave(old);
        }
        let Some(entry) = self.entries.get_mut(at) else {
            return Err(MrError::Memory {
                length: region.len as usize,
            }
            .into());
        };
        entry.users += 1;
        entry.used = now;
        Ok((entry.mr.rkey(), entry.mr.lkey()))
    }

    /// Pins a descriptor's memory until [`Registry::unpin`]; gives its rkey. `open`: for peers, and not only for own transfers.
    pub(super) fn pin(
        &mut self,
        md: MdHandle,
        region: Segment,
        open: bool,
    ) -> Result<u32, RegistryError> {
        let purpose = if open { Use::Open } else { Use::Landing };
        let keys = self.of_md(md, (region, 1), purpose)?;
        let end = end(&region);
        let pinned = Pinned { end, keys, open };
        self.pinned.insert((region.addr, md), pinned);
        Ok(keys.0)
    }

    /// Ends what [`Registry::pin`] began, and every registration of the descriptor; `false` if it was not pinned.
    pub(super) fn unpin(&mut self, md: MdHandle, start: u64) -> bool {
        if self.pinned.remove(&(start, md)).is_none() {
            return false;
        }
        self.last = None;
        for at in self.take(md) {
            self.leave(at);
        }
        true
    }

    /// All registrations of a descriptor; it has none any more.
    fn take(&mut self, md: MdHandle) -> Vec<usize> {
        let of_md = self.by_md.range((md, Use::Local)..=(md, Use::Open));
        let uses: Vec<_> = of_md.map(|(user, _)| *user).collect();
        let taken = uses.iter().filter_map(|user| self.by_md.remove(user));
        taken.flatten().collect()
    }

    /// The descriptor may get other memory, or may go, and no peer has an advertisement of it any more: rights by those end. What
    /// its own operations use stays registered while they are under way, as [`Registry::prune`] finds out.
    pub(super) fn retire(&mut self, md: MdHandle) {
        self.last = None;
        for at in self.take(md) {
            let purpose = self.entries.get(at).map(|e| e.purpose);
            if purpose.is_some_and(Use::is_advertised) {
                self.leave(at);
            } else {
                self.former.push((md, at));
            }
        }
    }

    /// Keys of pinned memory that holds `piece` and serves `purpose`. Pinned ranges of a job have one length and begin at most twice
    /// in it, but for those at the ends of mappings, so that the nearest few are all that can.
    #[inline]
    pub(super) fn within_pinned(
        &self,
        md: MdHandle,
        piece: Segment,
        purpose: Use,
    ) -> Option<(u32, u32)> {
        if self.pinned.is_empty() {
            return None;
        }
        // Whatever the handle, all that begin at or before the piece.
        let past = (piece.addr.checked_add(1)?, md);
        let near = self.pinned.range(..past).rev();
        let mut near = near.filter(|((start, _), _)| *start <= piece.addr).take(4);
        let private = purpose.is_private();
        near.find(|(_, p)| end(&piece) <= p.end && (private || p.open))
            .map(|(_, p)| p.keys)
    }

    /// Memory that peers may read by this key, if all of it is.
    pub(super) fn readable(&mut self, at: Remote, len: u64) -> Option<Segment> {
        let (addr, key) = (at.address, at.rkey);
        let start = usize::try_from(addr).ok()?;
        let end = usize::try_from(len).ok()?;
        let serves = |e: &Entry| {
            let open = matches!(e.purpose, Use::OpenGet | Use::Open);
            open && e.mr.rkey() == key && e.mr.covers(start, end)
        };
        // Those of one descriptor come in rows.
        let last = self.entries.get(self.read).filter(|e| serves(e));
        if last.is_none() {
            self.read = self.entries.iter().find(|(_, e)| serves(e))?.0;
        }
        Some(Segment { addr, len })
    }

    /// What of the budget descriptors may still pin for good: a quarter is left for what is registered now and then.
    pub(super) fn room(&self) -> Option<u64> {
        self.budget
            .map(|most| most.saturating_sub(self.held) / 4 * 3)
    }

    /// What of the budget is not locked; `None` where there is none, or where memory beyond it is registered too.
    pub(super) fn left(&self) -> Option<u64> {
        let budget = self.budget?;
        (!self.takes_faults()).then(|| budget.saturating_sub(self.held))
    }

    /// `region` and every registration that it overlaps or touches; idle ones of them are dropped, because the one
    /// to be made replaces them.
    fn union(&mut self, region: Segment, mapping: Option<u64>, purpose: Use) -> Segment {
        let mut whole = region;
        loop {
            let touching = self.entries.iter().find_map(|(at, e)| {
                let other = Segment {
                    addr: e.mr.address() as u64,
                    len: e.mr.length() as u64,
                };
                let same = e.purpose == purpose && e.mapping == mapping && e.users == 0;
                let touches = other.addr <= end(&whole) && whole.addr <= end(&other);
                (same && touches).then_some((at, other))
            });
            let Some((at, other)) = touching else {
                return whole;
            };
            self.drop_entry(at);
            let start = whole.addr.min(other.addr);
            whole = Segment {
                addr: start,
                len: end(&whole).max(end(&other)) - start,
            };
        }
    }

    /// Registers; says how many bytes are locked.
    fn register(&mut self, region: Segment, purpose: Use) -> Result<(Mr, u64), RegistryError> {
        let error = match self.lock(region, purpose.access(self.strict)) {
            Ok(mr) => return Ok((mr, region.len)),
            Err(error) => error,
        };
        if error.is_of_locking() && self.takes_faults() {
            let access = purpose.access(self.strict) | self.unlocked;
            if let Ok(mr) = self.make(region, access) {
                return Ok((mr, 0));
            }
        }
        Err(error)
    }

    fn takes_faults(&self) -> bool {
        let found = || verbs_backend::mr::on_demand(&self.pd);
        *self.faults.get_or_init(found)
    }

    /// Registers and locks, after dropping as many idle registrations as the budget or the system demands.
    fn lock(&mut self, region: Segment, access: Access) -> Result<Mr, RegistryError> {
        if let Some(budget) = self.budget {
            while self.held.saturating_add(region.len) > budget {
                if !self.evict() {
                    return Err(RegistryError::Budget {
                        bytes: region.len,
                        held: self.held,
                        budget,
                    });
                }
            }
        }
        loop {
            match self.make(region, access) {
                Ok(mr) => return Ok(mr),
                Err(error) if !self.evict() => return Err(error.into()),
                Err(_) => {}
            }
        }
    }

    fn make(&self, region: Segment, access: Access) -> Result<Mr, MrError> {
        let address = std::ptr::with_exposed_provenance_mut::<u8>(region.addr as usize);
        // SAFETY: the memory of a live descriptor stays mapped until the registration has ended, or is used by nobody
        // any more; pinned or not: "Registered memory stays mapped", above `Registry`, has the cases.
        unsafe { Mr::register_raw(&self.pd, address, region.len as usize, access) }
    }

    /// Drops the idle registration that was not looked for longest; `false` if none is idle.
    fn evict(&mut self) -> bool {
        let idle = self.entries.iter().filter(|(_, e)| e.users == 0);
        match idle.min_by_key(|(_, e)| e.used).map(|(at, _)| at) {
            Some(at) => {
                self.drop_entry(at);
                true
            }
            None => false,
        }
    }

    fn drop_entry(&mut self, at: usize) {
        self.last = None;
        if let Some(entry) = self.entries.try_remove(at) {
            self.held = self.held.saturating_sub(entry.locked);
        }
    }

    /// A descriptor needs the registration no more.
    fn leave(&mut self, at: usize) {
        let Some(entry) = self.entries.get_mut(at) else {
            return;
        };
        entry.users = entry.users.saturating_sub(1);
        if entry.users == 0 && !(entry.purpose.is_private() && entry.mapping.is_some()) {
            self.drop_entry(at);
        }
    }

    /// Registers a buffer of our own.
    pub(super) fn of_buffer(&self, buffer: &Region, purpose: Use) -> Result<Mr, MrError> {
        let address = std::ptr::with_exposed_provenance_mut::<u8>(buffer.addr() as usize);
        // SAFETY: the region outlives the registration: `Staged` holds both and drops the
        // registration first.
        unsafe { Mr::register_raw(&self.pd, address, buffer.len(), purpose.access(self.strict)) }
    }

    /// Ends the use of descriptors that `alive` does not know, and of former memory of those that are not `busy`, and drops
    /// registrations of memory that is gone.
    pub(super) fn prune(
        &mut self,
        alive: impl Fn(MdHandle) -> bool,
        busy: impl Fn(MdHandle) -> bool,
    ) {
        self.last = None;
        let over = |(md, _): &mut (MdHandle, usize)| !busy(*md);
        let over: Vec<_> = self.former.extract_if(.., over).collect();
        for (_, at) in over {
            self.leave(at);
        }
        let gone: Vec<_> = self
            .by_md
            .keys()
            .filter(|(md, _)| !alive(*md))
            .copied()
            .collect();
        for key in gone {
            for at in self.by_md.remove(&key).into_iter().flatten() {
                self.leave(at);
            }
        }
        let stale: Vec<usize> = self
            .entries
            .iter()
            .filter(|(_, e)| {
                let memory = Segment {
                    addr: e.mr.address() as u64,
                    len: e.mr.length() as u64,
                };
                e.users == 0 && fabric_api::region::mapping_of(memory) != e.mapping
            })
            .map(|(at, _)| at)
            .collect();
        for at in stale {
            self.drop_entry(at);
        }
    }

    /// Whether operations on former memory of descriptors were under way when that was looked at last.
    pub(super) fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// Drops everything.
    pub(super) fn clear(&mut self) {
        self.last = None;
        self.by_md.clear();
        self.former.clear();
        self.pinned.clear();
        self.entries = slab::Slab::new();
        self.held = 0;
    }

    /// Descriptors with a registration, by what for, and former registrations.
    pub(super) fn len(&self) -> usize {
        self.by_md.len() + self.former.len()
    }
}

/// A contiguous stand-in for memory that cannot be named in one piece.
#[derive(Debug)]
pub(super) struct Staged {
    // Before the region: the adapter loses its access before the memory is unmapped.
    pub(super) mr: Mr,
    pub(super) region: Region,
}

/// One RDMA read or write between descriptor memory and a peer's, in pieces that the port takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) local: Segment,
    pub(super) lkey: u32,
    pub(super) remote: Remote,
    pub(super) read: bool,
    /// A write that may be made again, if the connection breaks before anything sent after it has arrived.
    pub(super) again: bool,
    /// A read of data that the peer has announced by an RTS.
    pub(super) announced: bool,
}

impl Transfer {
    /// The first piece of at most `most` bytes, and the rest.
    pub(super) fn split(self, most: u64) -> (Self, Option<Self>) {
        if self.local.len <= most {
            return (self, None);
        }
        let mut first = self;
        first.local.len = most;
        let mut rest = self;
        rest.local = Segment {
            addr: self.local.addr + most,
            len: self.local.len - most,
        };
        rest.remote.address = self.remote.address.wrapping_add(most);
        (first, Some(rest))
    }

    /// What a request of it names.
    #[inline(always)]
    fn request(&self) -> Result<(SendOp, verbs_backend::Segment), PushError> {
        let Segment { addr, len } = self.local;
        let segment = verbs_backend::Segment::new(addr as usize, len as usize, self.lkey);
        let end = len as usize;
        let segment = segment.ok_or(PushError::Range { start: 0, end })?;
        let op = if self.read {
            SendOp::Read(self.remote)
        } else {
            SendOp::Write(self.remote)
        };
        Ok((op, segment))
    }

    /// Posts it, signalled, under `id`.
    #[inline(always)]
    pub(super) fn post(&self, qp: &Qp, id: u64) -> Result<(), PostError> {
        let (op, segment) = self.request()?;
        // SAFETY: the memory belongs to an operation under way (its MD is in use, or waits for it in
        // `Nal::retire`), or to a `Staged` buffer that the operation's record owns until the
        // completion; nobody changes it meanwhile by the rules of the API.
        unsafe { qp.post_raw(id, op, &[segment], SendFlags::SIGNALLED) }
    }

    /// Posts it, a write, signalled, under `id`, so that the peer gets `value` when the data is there.
    pub(super) fn post_whole(&self, qp: &Qp, id: u64, value: u32) -> Result<(), PostError> {
        let (_, segment) = self.request()?;
        let op = SendOp::WriteImmediate(self.remote, value);
        // SAFETY: as in `post`.
        unsafe { qp.post_raw(id, op, &[segment], SendFlags::SIGNALLED) }
    }

    /// Adds it to `chain` under `id`, without a completion of its own. A write of at most `inline` bytes is copied by
    /// the post.
    pub(super) fn push(
        &self,
        chain: &mut SendBatch,
        id: u64,
        inline: usize,
    ) -> Result<(), PushError> {
        let (op, segment) = self.request()?;
        let flags = if !self.read && (1..=inline as u64).contains(&self.local.len) {
            SendFlags::INLINE
        } else {
            SendFlags::empty()
        };
        // SAFETY: as in `post`; the operation goes on until a later request of the chain has completed, or this one has
        // failed.
        unsafe { chain.push_raw(id, op, &[segment], flags) }
    }
}

/// Posts, signalled under `id`, a write of `data`, which the call copies.
#[inline]
pub(super) fn write_inline(
    qp: &Qp,
    id: u64,
    data: Segment,
    remote: Remote,
) -> Result<(), PostError> {
    let end = data.len as usize;
    let segment = verbs_backend::Segment::new(data.addr as usize, end, 0);
    let segment = segment.ok_or(PushError::Range { start: 0, end })?;
    // SAFETY: the memory belongs to an operation under way, whose MD keeps it mapped, and it is read before the
    // call returns.
    unsafe {
        qp.post_raw(
            id,
            SendOp::Write(remote),
            &[segment],
            SendFlags::SIGNALLED | SendFlags::INLINE,
        )
    }
}

#[cfg(test)]
mod oracle;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_registrations_stay_while_operations_use_them() {
        let Some(device) = super::super::tests::device() else {
            return;
        };
        let (device, _) = verbs_backend::Device::choose(Some(&device)).unwrap();
        let mut registry = Registry::new(Pd::new(&device).unwrap(), None, false);
        let (memory, md) = (vec![0u8; 1 << 16], MdHandle::from_raw(7));
        let piece = |n: u64| Segment {
            addr: memory.as_ptr().addr() as u64 + n * 4096,
            len: 4096,
        };
        let of = |r: &mut Registry, n, pieces, purpose| {
            r.of_md(md, (piece(n), pieces), purpose).unwrap()
        };
        // Two pieces side by side, and what peers read whenever they like.
        let first = of(&mut registry, 0, 2, Use::Source);
        let second = of(&mut registry, 1, 2, Use::Source);
        assert_eq!(of(&mut registry, 0, 2, Use::Source), first);
        assert_eq!(of(&mut registry, 1, 2, Use::Source), second);
        of(&mut registry, 0, 1, Use::OpenGet);
        assert_eq!(registry.held, 3 * 4096);
        // An update, while operations are under way: the advertised right ends at once.
        registry.retire(md);
        registry.prune(|_| true, |_| true);
        assert_eq!(registry.held, 2 * 4096);
        assert!(registry.has_former());
        let other = of(&mut registry, 0, 1, Use::Source);
        assert_ne!(other, first, "that one is to end");
        registry.prune(|_| true, |_| false);
        assert_eq!(registry.held, 4096);
        assert_eq!(of(&mut registry, 0, 1, Use::Source), other);
        registry.prune(|_| false, |_| false);
        assert_eq!((registry.held, registry.len()), (0, 0));
    }

    #[test]
    fn pieces_cover_the_transfer() {
        let mut next = Some(Transfer {
            local: Segment {
                addr: 1000,
                len: 25,
            },
            lkey: 1,
            remote: Remote {
                address: 5000,
                rkey: 2,
            },
            read: false,
            again: false,
            announced: false,
        });
        let mut pieces = Vec::new();
        while let Some(t) = next {
            let (first, rest) = t.split(10);
            pieces.push((first.local.addr, first.local.len, first.remote.address));
            next = rest;
        }
        assert_eq!(
            pieces,
            [(1000, 10, 5000), (1010, 10, 5010), (1020, 5, 5020)]
        );
    }
}
