//! An open network interface, as programs see it.

use crate::call::{Answer, Call, EqList, Polled, Target, Wait};
use crate::library::Library;
use crate::nal::Nal;
use crate::region::{RawMemory, Region};
use portals_core::{
    AcEntry, AckRequest, EqHandle, Error, Handle, InsertPosition, Limits, MdDesc, MdHandle,
    MdOptions, MdSnapshot, MeHandle, MeSpec, Memory, NiConfig, ProcessId, Segment, Status, Unlink,
};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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

/// How calls reach the library.
pub(crate) trait Bridge: Send + Sync + std::fmt::Debug {
    /// Makes the call; `Wait` of a poll is honoured.
    fn call(&self, call: Call) -> Result<Answer, Error>;
    /// Nanoseconds since the fabric was opened.
    fn now(&self) -> u64;
    fn clock(&self) -> ClockKind;
    /// The rank waits for others outside the fabric; see [`Interface::outside`].
    fn leave(&self) -> Result<(), Error> {
        Ok(())
    }
    /// The end of that.
    fn rejoin(&self) -> Result<(), Error> {
        Ok(())
    }
}

/// The library in the caller's process, under one lock.
#[derive(Debug)]
struct Direct<N> {
    library: Mutex<Library<N>>,
    opened: Instant,
    /// Polls in a row that found nothing.
    fruitless: AtomicU32,
}

impl<N: Nal> Direct<N> {
    fn lock(&self) -> MutexGuard<'_, Library<N>> {
        self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fruitless polls before each further one offers the core to others first: to a peer, or to the
/// kernel threads that move the data of a software device. Programs that spin on a non-blocking
/// poll need this as much as blocking ones.
const SPINS: u32 = 64;

impl<N: Nal> Direct<N> {
    fn rest(&self) {
        if self.fruitless.fetch_add(1, Ordering::Relaxed) < SPINS {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }
}

impl<N: Nal> Bridge for Direct<N> {
    fn call(&self, call: Call) -> Result<Answer, Error> {
        let Call::EqPoll { eqs, wait } = call else {
            return self.lock().execute(call);
        };
        let deadline = match wait {
            Wait::Nanos(ns) => Some(Instant::now() + Duration::from_nanos(ns)),
            Wait::No | Wait::Forever => None,
        };
        loop {
            let polled = self.lock().poll(&eqs);
            match polled {
                Ok(None) => {}
                Ok(polled) => {
                    self.fruitless.store(0, Ordering::Relaxed);
                    return Ok(Answer::Polled(polled));
                }
                Err(which) => return Ok(Answer::BadQueue(which)),
            }
            self.rest();
            if wait == Wait::No || deadline.is_some_and(|d| Instant::now() >= d) {
                return Ok(Answer::Polled(None));
            }
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn clock(&self) -> ClockKind {
        ClockKind::Wall
    }
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
        let library = Mutex::new(Library::new(ni, nal));
        Self::bridged(
            Box::new(Direct {
                library,
                opened: Instant::now(),
                fruitless: AtomicU32::new(0),
            }),
            config,
        )
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
    fn call(&self, call: Call) -> Result<Answer, Error> {
        if self.inner.closed.load(Ordering::Acquire) {
            return Err(Error::NiInvalid);
        }
        self.inner.bridge.call(call)
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
        self.eq_poll(&[eq], Wait::No).map_err(|e| e.error)
    }

    /// `PtlEQPeek`: as [`Interface::eq_get`], but the event stays.
    pub fn eq_peek(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        match self.call(Call::EqPeek(eq))? {
            Answer::Polled(p) => Ok(p),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlEQWait`
    pub fn eq_wait(&self, eq: EqHandle) -> Result<Polled, Error> {
        self.eq_poll(&[eq], Wait::Forever)
            .map_err(|e| e.error)?
            .ok_or(Error::Fail)
    }

    /// `PtlEQPoll`: the first event of the queues in index order. `None` when the wait ended
    /// without one. An empty list is refused.
    pub fn eq_poll(&self, eqs: &[EqHandle], wait: Wait) -> Result<Option<Polled>, PollError> {
        if eqs.is_empty() {
            return Err(PollError {
                error: Error::EqInvalid,
                which: 0,
            });
        }
        match self.call(Call::EqPoll {
            eqs: EqList::from_slice(eqs),
            wait,
        }) {
            Ok(Answer::Polled(p)) => Ok(p),
            Ok(Answer::BadQueue(which)) => Err(PollError {
                error: Error::EqInvalid,
                which,
            }),
            Ok(_) => Err(PollError {
                error: Error::Fail,
                which: 0,
            }),
            Err(error) => Err(PollError { error, which: 0 }),
        }
    }

    /// `PtlACEntry`
    pub fn ac_entry(&self, index: u32, entry: AcEntry) -> Result<(), Error> {
        self.done(Call::AcEntry { index, entry })
    }

    /// `PtlPut`
    pub fn put(
        &self,
        md: MdHandle,
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.done(Call::Put {
            md,
            region: None,
            ack,
            to,
            hdr_data,
        })
    }

    /// `PtlPutRegion`: `region` is (local offset, length), bytes.
    pub fn put_region(
        &self,
        md: MdHandle,
        region: (u64, u64),
        ack: AckRequest,
        to: Target,
        hdr_data: u64,
    ) -> Result<(), Error> {
        self.done(Call::Put {
            md,
            region: Some(region),
            ack,
            to,
            hdr_data,
        })
    }

    /// `PtlGet`
    pub fn get(&self, md: MdHandle, from: Target) -> Result<(), Error> {
        self.done(Call::Get {
            md,
            region: None,
            from,
        })
    }

    /// `PtlGetRegion`: `region` is (local offset, length), bytes.
    pub fn get_region(&self, md: MdHandle, region: (u64, u64), from: Target) -> Result<(), Error> {
        self.done(Call::Get {
            md,
            region: Some(region),
            from,
        })
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

    /// `PtlNIStatus`, all registers.
    pub fn status(&self) -> Result<Status, Error> {
        match self.call(Call::Status)? {
            Answer::Status(s) => Ok(s),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlNIFini`: every object of the interface is gone, no events.
    pub fn close(&self) -> Result<(), Error> {
        self.done(Call::Close)?;
        self.inner.closed.store(true, Ordering::Release);
        self.kept().clear();
        Ok(())
    }
}
