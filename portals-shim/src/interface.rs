//! An open network interface, as programs see it.

use crate::call::{Answer, Call, EqList, Paths, Polled, Taken, Target, Wait};
use crate::direct::Direct;
use crate::library::Library;
use crate::nal::Nal;
use crate::nal::shm::Near;
use crate::region::{RawMemory, Region, RegionError};
use portals_core::{
    AcEntry, AckRequest, EqHandle, Error, Handle, InsertPosition, Limits, MdDesc, MdHandle,
    MdOptions, MdSnapshot, MeHandle, MeSpec, Memory, NiConfig, ProcessId, Segment, Status, Unlink,
    Usage,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a fabric's clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// Simulated time; the same in every run.
    Virtual,
    /// Time of day's kind of time.
    Wall,
}

/// The memory of a new descriptor.
#[derive(Clone, Debug)]
pub enum MdMemory {
    /// Part of a region, which the interface keeps mapped until it closes.
    Region {
        /// The region.
        region: Region,
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
    },
    /// Addresses somebody vouches for.
    Raw(RawMemory),
    /// No bytes at all.
    Empty,
}

impl MdMemory {
    /// A whole region.
    pub fn whole(region: &Region) -> Self {
        Self::Region {
            region: region.clone(),
            offset: 0,
            len: region.len(),
        }
    }
}

/// A new descriptor (`ptl_md_t`).
#[derive(Clone, Debug)]
pub struct MdSpec {
    /// The memory.
    pub memory: MdMemory,
    /// Operations before it becomes inactive; -1 for no limit.
    pub threshold: i32,
    /// See [`MdDesc::max_size`].
    pub max_size: u64,
    /// Options.
    pub options: MdOptions,
    /// Returned in every event.
    pub user_ptr: u64,
    /// Where events go.
    pub eq: Option<EqHandle>,
}

/// Why a poll was refused: the queue at index `which` of its list is not one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error} (index {which} of the poll)")]
pub struct PollError {
    /// Always [`Error::EqInvalid`], or the fabric's failure.
    pub error: Error,
    /// Index in the list given.
    pub which: usize,
}

/// Memory of another rank of this machine, mapped here; see [`Interface::window`].
#[derive(Clone, Debug)]
pub struct Window {
    /// The mapping, which lives as long as this value.
    pub region: Region,
    /// Where the descriptor's memory begins in it, bytes.
    pub offset: usize,
    /// Bytes of the descriptor's memory.
    pub len: usize,
}

/// How calls reach the library.
pub(crate) trait Bridge: Send + Sync + std::fmt::Debug {
    /// Makes the call; `Wait` of a poll is honoured.
    fn call(&self, call: Call) -> Result<Answer, Error>;

    // The calls that programs make for each message have a way of their own, on which a library in
    // this process is not told of them by a value.

    /// [`Call::EqPoll`] of one queue without a wait.
    fn eq_get(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        self.eq_poll(&[eq], Wait::No).map_err(|e| e.error)
    }
    /// [`Call::EqPoll`]
    fn eq_poll(&self, eqs: &[EqHandle], wait: Wait) -> Result<Option<Polled>, PollError> {
        let eqs = EqList::from_slice(eqs);
        let (error, which) = match self.call(Call::EqPoll { eqs, wait }) {
            Ok(Answer::Polled(polled)) => return Ok(polled),
            Ok(Answer::BadQueue(which)) => (Error::EqInvalid, which),
            Ok(_) => (Error::Fail, 0),
            Err(error) => (error, 0),
        };
        Err(PollError { error, which })
    }
    /// As [`Bridge::eq_poll`], into `out`.
    #[inline]
    fn eq_take(&self, eqs: &[EqHandle], wait: Wait, out: &mut Polled) -> Result<Taken, PollError> {
        let Some(polled) = self.eq_poll(eqs, wait)? else {
            return Ok(Taken::Nothing);
        };
        *out = polled;
        Ok(Taken::More)
    }
    /// See [`Interface::eq_take_or`].
    fn eq_take_or(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        _other: &dyn Fn() -> bool,
        out: &mut Polled,
    ) -> Result<Taken, PollError> {
        self.eq_take(eqs, wait, out)
    }
    /// See [`Interface::found_other`].
    fn found_other(&self) {}
    /// See [`Interface::eq_there`].
    #[inline]
    fn eq_there(&self, eqs: &[EqHandle], out: &mut Polled) -> Result<Taken, PollError> {
        self.eq_take(eqs, Wait::No, out)
    }
    /// [`Call::Put`]
    #[inline]
    fn put(
        &self,
        md: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        to: &Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.call(Call::Put {
            md,
            region,
            ack,
            to: *to,
            hdr_data,
        })
        .map(|_| ())
    }
    /// See [`Interface::put_region_silent`].
    fn put_silent(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: &Target,
        hdr_data: u64,
    ) -> Result<bool, Error> {
        self.put(md, Some(region), AckRequest::NoAck, to, hdr_data)
            .map(|()| false)
    }
    /// See [`Interface::put_region_ahead`].
    fn put_ahead(
        &self,
        _md: MdHandle,
        _region: (u64, u64),
        _to: &Target,
        _hdr_data: u64,
    ) -> Result<bool, Error> {
        Ok(false)
    }
    /// [`Call::Get`]
    #[inline]
    fn get(&self, md: MdHandle, region: Option<(u64, u64)>, from: &Target) -> Result<(), Error> {
        let from = *from;
        self.call(Call::Get { md, region, from }).map(|_| ())
    }

    /// See [`Interface::remote_key`].
    fn remote_key(&self, _md: MdHandle) -> Result<u32, Error> {
        Ok(0)
    }
    /// See [`Interface::put_region_keyed`].
    fn put_keyed(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: &Target,
        _key: RemoteKey,
    ) -> Result<(), Error> {
        self.put(md, Some(region), AckRequest::Ack, to, 0)
    }
    /// See [`Interface::get_region_keyed`].
    fn get_keyed(
        &self,
        md: MdHandle,
        region: (u64, u64),
        from: &Target,
        _key: RemoteKey,
    ) -> Result<(), Error> {
        self.get(md, Some(region), from)
    }
    /// See [`Interface::pinnable`].
    fn pinnable(&self) -> Option<u64> {
        None
    }

    /// Nanoseconds since the fabric was opened.
    fn now(&self) -> u64;
    fn clock(&self) -> ClockKind;
    /// The rank waits for others outside the fabric; see [`Interface::outside`].
    fn leave(&self) -> Result<(), Error> {
        Ok(())
    }
    /// See [`Interface::new_region`].
    fn shares(&self) -> bool {
        false
    }
    /// See [`Interface::window`].
    fn window(&self, _to: &Target) -> Option<Window> {
        None
    }
    /// See [`Interface::near`].
    fn near(&self) -> Option<Near> {
        None
    }
    /// The end of that.
    fn rejoin(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// How peers' adapters reach the memory of a descriptor, told by its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteKey {
    /// Address of the descriptor's first byte, in the owner's process.
    pub base: u64,
    /// Its length, bytes.
    pub len: u64,
    /// From [`Interface::remote_key`].
    pub rkey: u32,
}

/// An open interface; clones are the same interface. Any thread may call every method.
///
/// Methods have the names, arguments and errors of the API without the prefix `Ptl`; the rules they
/// follow are in the book, from `docs/src/mechanisms/matching.md` on. The interface closes with [`Interface::close`].
#[derive(Clone, Debug)]
pub struct Interface {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    bridge: Box<dyn Bridge>,
    config: NiConfig,
    /// Regions that descriptors were made of, by address; released when the interface closes.
    kept: Mutex<BTreeMap<u64, Region>>,
    closed: AtomicBool,
}

impl Interface {
    /// An interface whose library runs here, over `nal`.
    pub fn direct<N: Nal + 'static>(ni: portals_core::Ni, nal: N) -> Self {
        let config = *ni.config();
        Self::bridged(Box::new(Direct::new(Library::new(ni, nal))), config)
    }

    pub(crate) fn bridged(bridge: Box<dyn Bridge>, config: NiConfig) -> Self {
        Self {
            inner: Arc::new(Inner {
                bridge,
                config,
                kept: Mutex::default(),
                closed: AtomicBool::new(false),
            }),
        }
    }

    /// Every call after the close is refused here: nobody below is left to answer.
    #[inline]
    fn open(&self) -> Result<&dyn Bridge, Error> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::NiInvalid);
        }
        Ok(&*self.inner.bridge)
    }

    fn call(&self, call: Call) -> Result<Answer, Error> {
        self.open()?.call(call)
    }

    fn done(&self, call: Call) -> Result<(), Error> {
        self.call(call).map(|_| ())
    }

    /// `PtlGetId`
    pub fn id(&self) -> ProcessId {
        self.inner.config.id
    }

    /// `PtlGetUid`
    pub fn uid(&self) -> u32 {
        self.inner.config.uid
    }

    /// `PtlGetJid`
    pub fn jid(&self) -> u32 {
        self.inner.config.jid
    }

    /// The limits granted.
    pub fn limits(&self) -> Limits {
        self.inner.config.limits
    }

    /// The interface's own handle.
    pub fn handle(&self) -> Handle {
        Handle::interface_handle(self.inner.config.interface)
    }

    /// Nanoseconds of the fabric's clock, from an arbitrary start.
    pub fn now(&self) -> u64 {
        self.inner.bridge.now()
    }

    /// What [`Interface::now`] counts.
    pub fn clock(&self) -> ClockKind {
        self.inner.bridge.clock()
    }

    /// Runs `f`, in which this rank waits for other ranks by means the fabric knows nothing of (a
    /// fence of the job). On a simulated fabric time may pass for the others meanwhile, and all
    /// ranks that were outside return at the same virtual instant; elsewhere it just calls `f`.
    ///
    /// Waiting for others outside the fabric without this stops virtual time for them.
    pub fn outside<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        self.inner.bridge.leave()?;
        let result = f();
        self.inner.bridge.rejoin()?;
        Ok(result)
    }

    /// Memory for descriptors that others put to and get from often: where the fabric can, it is such that ranks of
    /// this machine map it and copy by themselves. Otherwise as [`Region::new`].
    pub fn new_region(&self, len: usize) -> Result<Region, RegionError> {
        if self.inner.bridge.shares() {
            Region::shared(len)
        } else {
            Region::new(len)
        }
    }

    /// The memory that puts and gets to `to` reach, if it belongs to a rank of this machine, can be mapped here
    /// ([`Interface::new_region`]), takes puts and gets, and needs no part of its owner's library. `None` otherwise.
    ///
    /// What is read and written there is not ordered with messages by anything but the program's own events and
    /// barriers. The owner must keep the descriptor linked while others use the window; afterwards the memory is
    /// still there, and means nothing.
    pub fn window(&self, to: &Target) -> Option<Window> {
        if self.inner.closed.load(Ordering::Acquire) {
            return None;
        }
        self.inner.bridge.window(to)
    }

    /// Frames between this rank and those that share memory with it, for a program that has its own idea of messages
    /// and of their flow control: they need no descriptor and make no event, and nothing orders them with messages of
    /// the interface. `None` on a fabric that has none, and every time but the first.
    pub fn near(&self) -> Option<Near> {
        if self.inner.closed.load(Ordering::Acquire) {
            return None;
        }
        self.inner.bridge.near()
    }

    /// `PtlMEAttach`
    pub fn me_attach(
        &self,
        pt_index: u32,
        spec: MeSpec,
        position: InsertPosition,
    ) -> Result<MeHandle, Error> {
        match self.call(Call::MeAttach {
            pt_index,
            spec,
            position,
        })? {
            Answer::Me(me) => Ok(me),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMEAttachAny`
    pub fn me_attach_any(&self, spec: MeSpec) -> Result<(u32, MeHandle), Error> {
        match self.call(Call::MeAttachAny { spec })? {
            Answer::PortalMe(pt_index, me) => Ok((pt_index, me)),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMEInsert`
    pub fn me_insert(
        &self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
    ) -> Result<MeHandle, Error> {
        match self.call(Call::MeInsert {
            base,
            spec,
            position,
        })? {
            Answer::Me(me) => Ok(me),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMEUnlink`
    pub fn me_unlink(&self, me: MeHandle) -> Result<(), Error> {
        self.done(Call::MeUnlink(me))
    }

    /// Keeps a region mapped and describes its memory to the library.
    fn describe(&self, spec: MdSpec) -> Result<MdDesc, Error> {
        let memory = match spec.memory {
            MdMemory::Region {
                region,
                offset,
                len,
            } => {
                if offset.checked_add(len).is_none_or(|end| end > region.len()) {
                    return Err(Error::MdIllegal);
                }
                let addr = region.addr();
                self.kept().entry(addr).or_insert(region);
                Memory::Contiguous(Segment {
                    addr: addr + offset as u64,
                    len: len as u64,
                })
            }
            MdMemory::Raw(raw) => raw.memory,
            MdMemory::Empty => Memory::contiguous(0, 0),
        };
        Ok(MdDesc {
            memory,
            threshold: spec.threshold,
            max_size: spec.max_size,
            options: spec.options,
            user_ptr: spec.user_ptr,
            eq: spec.eq,
        })
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<u64, Region>> {
        self.inner
            .kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn new_md(&self, call: Call) -> Result<MdHandle, Error> {
        match self.call(call)? {
            Answer::Md(md) => Ok(md),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMDAttach`
    pub fn md_attach(&self, me: MeHandle, spec: MdSpec, unlink: Unlink) -> Result<MdHandle, Error> {
        let desc = self.describe(spec)?;
        self.new_md(Call::MdAttach { me, desc, unlink })
    }

    /// `PtlMDBind`
    pub fn md_bind(&self, spec: MdSpec, unlink: Unlink) -> Result<MdHandle, Error> {
        let desc = self.describe(spec)?;
        self.new_md(Call::MdBind { desc, unlink })
    }

    /// `PtlMDUnlink`
    pub fn md_unlink(&self, md: MdHandle) -> Result<(), Error> {
        self.done(Call::MdUnlink(md))
    }

    fn snapshot(&self, call: Call) -> Result<MdSnapshot, Error> {
        match self.call(call)? {
            Answer::Snapshot(s) => Ok(s),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlMDUpdate` without new values.
    pub fn md_query(&self, md: MdHandle) -> Result<MdSnapshot, Error> {
        self.snapshot(Call::MdQuery(md))
    }

    /// `PtlMDUpdate` with new values; returns the old ones.
    pub fn md_update(
        &self,
        md: MdHandle,
        new: MdSpec,
        test: Option<EqHandle>,
    ) -> Result<MdSnapshot, Error> {
        let new = self.describe(new)?;
        self.snapshot(Call::MdUpdate { md, new, test })
    }

    /// `PtlMEMDPost`
    pub fn me_md_post(
        &self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
        md: MdSpec,
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        let desc = self.describe(md)?;
        match self.call(Call::MeMdPost {
            base,
            spec,
            position,
            desc,
            unlink,
            test,
        })? {
            Answer::MeMd(me, md) => Ok((me, md)),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlEQAlloc`
    pub fn eq_alloc(&self, count: u64) -> Result<EqHandle, Error> {
        match self.call(Call::EqAlloc(count))? {
            Answer::Eq(eq) => Ok(eq),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlEQFree`
    pub fn eq_free(&self, eq: EqHandle) -> Result<(), Error> {
        self.done(Call::EqFree(eq))
    }

    /// `PtlEQGet`: the oldest event, or `None`.
    pub fn eq_get(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        self.open()?.eq_get(eq)
    }

    /// `PtlEQPeek`: as [`Interface::eq_get`], but the event stays.
    pub fn eq_peek(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        match self.call(Call::EqPeek(eq))? {
            Answer::Polled(p) => Ok(p),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlEQWait`
    #[inline]
    pub fn eq_wait(&self, eq: EqHandle) -> Result<Polled, Error> {
        // Taken where it stays: the event is large.
        let mut polled = Polled::default();
        match self.open()?.eq_take(&[eq], Wait::Forever, &mut polled) {
            Ok(Taken::Nothing) => Err(Error::Fail),
            Ok(_) => Ok(polled),
            Err(refused) => Err(refused.error),
        }
    }

    /// `PtlEQPoll`: the first event of the queues in index order. `None` when the wait ended
    /// without one. An empty list is refused.
    pub fn eq_poll(&self, eqs: &[EqHandle], wait: Wait) -> Result<Option<Polled>, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        self.open().map_err(refused)?.eq_poll(eqs, wait)
    }

    /// As [`Interface::eq_poll`], for programs that poll for each message: the event is written to `out`, which is left
    /// as it is when there is none. [`Taken::More`] may be said where no other event is there, after a wait and on a
    /// fabric whose library is not in this process.
    #[inline]
    pub fn eq_take(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        out: &mut Polled,
    ) -> Result<Taken, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        self.open().map_err(refused)?.eq_take(eqs, wait, out)
    }

    /// As [`Interface::eq_take`], but the wait ends too when `other` says that there is other work, such as a frame
    /// ([`Interface::near`]): it is asked between looks, and after whoever makes such work has been told to wake this
    /// process. It must not call the interface, and is not asked on fabrics without frames.
    pub fn eq_take_or(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        other: &dyn Fn() -> bool,
        out: &mut Polled,
    ) -> Result<Taken, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        self.open()
            .map_err(refused)?
            .eq_take_or(eqs, wait, other, out)
    }

    /// The program has found other work since it last polled: the polls that follow do not count as fruitless, after
    /// many of which a poll offers its core to others first.
    pub fn found_other(&self) {
        self.inner.bridge.found_other();
    }

    /// As [`Interface::eq_take`] without a wait, for the events that come after the first one of a poll: the fabric need
    /// not be asked again whether more has arrived.
    #[inline]
    pub fn eq_there(&self, eqs: &[EqHandle], out: &mut Polled) -> Result<Taken, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        self.open().map_err(refused)?.eq_there(eqs, out)
    }

    /// `PtlACEntry`
    pub fn ac_entry(&self, index: u32, entry: AcEntry) -> Result<(), Error> {
        self.done(Call::AcEntry { index, entry })
    }

    /// `PtlPut`
    #[inline]
    pub fn put(
        &self,
        md: MdHandle,
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.open()?.put(md, None, ack, &to, hdr_data)
    }

    /// `PtlPutRegion`: `region` is (local offset, length), bytes.
    #[inline]
    pub fn put_region(
        &self,
        md: MdHandle,
        region: (u64, u64),
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.open()?.put(md, Some(region), ack, &to, hdr_data)
    }

    /// As [`Interface::put_region`] without an ack, for a caller that wants no event where none is needed: `true` says
    /// that the fabric has taken the data, the memory is free again, and neither SEND_START nor SEND_END will come.
    /// After `false` they come as ever. What becomes of the descriptor is the same: its threshold counts, and an UNLINK
    /// event is posted.
    pub fn put_region_silent(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        hdr_data: u64,
    ) -> Result<bool, Error> {
        self.open()?.put_silent(md, region, &to, hdr_data)
    }

    /// As [`Interface::put_region`] without an ack, if the fabric can promise that the data is in the target's memory
    /// before anything arrives that this process sends there afterwards; `false`, and nothing has happened, if it cannot.
    /// The put may have its effect before earlier messages (which `PtlPut` may not), and the target's descriptor must be one
    /// that needs no part of its library. Over verbs it is an RDMA write; should the connection break before a later message
    /// has arrived, the write is made again, so nobody may look at the memory before such a message says so.
    pub fn put_region_ahead(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        hdr_data: u64,
    ) -> Result<bool, Error> {
        self.open()?.put_ahead(md, region, &to, hdr_data)
    }

    /// `PtlGet`
    #[inline]
    pub fn get(&self, md: MdHandle, from: Target) -> Result<(), Error> {
        self.open()?.get(md, None, &from)
    }

    /// `PtlGetRegion`: `region` is (local offset, length), bytes.
    #[inline]
    pub fn get_region(&self, md: MdHandle, region: (u64, u64), from: Target) -> Result<(), Error> {
        self.open()?.get(md, Some(region), &from)
    }

    /// Pins the memory of a descriptor that was made with [`MdOptions::PINNED`], as far as the fabric pins memory; returns what
    /// peers' adapters need to reach it, and 0 where they need nothing. It stays so until the descriptor is unlinked, by
    /// when nobody may use the key any more: the call does not ask peers.
    pub fn remote_key(&self, md: MdHandle) -> Result<u32, Error> {
        self.open()?.remote_key(md)
    }

    /// As [`Interface::put_region`] with an ack, to a descriptor that `key` reaches: a fabric that can serves it by the
    /// adapters alone.
    pub fn put_region_keyed(
        &self,
        md: MdHandle,
        region: (u64, u64),
        to: Target,
        key: RemoteKey,
    ) -> Result<(), Error> {
        self.open()?.put_keyed(md, region, &to, key)
    }

    /// As [`Interface::get_region`], from a descriptor that `key` reaches.
    pub fn get_region_keyed(
        &self,
        md: MdHandle,
        region: (u64, u64),
        from: Target,
        key: RemoteKey,
    ) -> Result<(), Error> {
        self.open()?.get_keyed(md, region, &from, key)
    }

    /// Most bytes that the fabric and the system let this process pin for its messages; `None` where that is not
    /// limited.
    pub fn pinnable(&self) -> Option<u64> {
        self.inner.bridge.pinnable()
    }

    /// `PtlGetPut`
    pub fn get_put(
        &self,
        get: MdHandle,
        put: MdHandle,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.done(Call::GetPut {
            get,
            put,
            regions: None,
            to,
            hdr_data,
        })
    }

    /// `PtlGetPutRegion`: `regions` is (get offset, put offset, length), bytes.
    pub fn get_put_region(
        &self,
        get: MdHandle,
        put: MdHandle,
        regions: (u64, u64, u64),
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.done(Call::GetPut {
            get,
            put,
            regions: Some(regions),
            to,
            hdr_data,
        })
    }

    /// `PtlNIDist`
    pub fn distance(&self, to: ProcessId) -> Result<u64, Error> {
        match self.call(Call::Distance(to))? {
            Answer::Distance(d) => Ok(d),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlNIStatus`, registers 0 to 5.
    pub fn status(&self) -> Result<Status, Error> {
        match self.call(Call::Status)? {
            Answer::Status(s) => Ok(s),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlNIStatus`, registers 6 to 28.
    pub fn usage(&self) -> Result<Usage, Error> {
        match self.call(Call::Usage)? {
            Answer::Usage(u) => Ok(u),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlNIStatus`, the registers of a portal: entries on its list now, and at most so far.
    pub fn list_lengths(&self, pt_index: u32) -> Result<(u64, u64), Error> {
        match self.call(Call::ListLengths(pt_index))? {
            Answer::ListLengths(now, most) => Ok((now, most)),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlNIStatus`, registers 29 and 30.
    pub fn paths(&self) -> Result<Paths, Error> {
        match self.call(Call::Paths)? {
            Answer::Paths(p) => Ok(p),
            _ => Err(Error::Fail),
        }
    }

    /// On a simulated fabric this rank's clock advances as if its program had computed for `nanos`:
    /// interrupts of its processor come on top. Elsewhere nothing happens.
    pub fn compute(&self, nanos: u64) -> Result<(), Error> {
        if nanos == 0 || self.clock() == ClockKind::Wall {
            return Ok(());
        }
        self.done(Call::Compute(nanos))
    }

    /// `PtlNIFini`: every object of the interface is gone, no events.
    pub fn close(&self) -> Result<(), Error> {
        self.done(Call::Close)?;
        self.inner.closed.store(true, Ordering::Release);
        self.kept().clear();
        Ok(())
    }
}
