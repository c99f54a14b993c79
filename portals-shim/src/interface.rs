//! An open network interface, as programs see it.
//!
//! | file | has |
//! |---|---|
//! | `interface/clock.rs` | the clock, and computing |
//! | `interface/entries.rs` | match entries, memory descriptors, access control |
//! | `interface/events.rs` | event queues |
//! | `interface/movement.rs` | puts and gets |

mod clock;
mod entries;
mod events;
mod movement;

use crate::nal::shm::{Links, Near};
use fabric_api::attached::{Attached, Parts};
use fabric_api::bridge::{Bridge, Window};
use fabric_api::call::{Answer, Call, Paths, Target};
use fabric_api::nal::Nal;
use fabric_api::op::Capabilities;
use fabric_api::region::{Region, RegionError, Trust};
use portals_core::{Error, Handle, Limits, NiConfig, ProcessId, Status, Usage};
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use entries::{MdMemory, MdSpec, RegionPart};

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
    /// What the fabric offers past the library, until it is taken.
    extension: Mutex<Option<Box<dyn Any + Send>>>,
    closed: AtomicBool,
}

impl Interface {
    /// An interface whose library runs here, over a fabric of the caller's without descriptors; see [`Trust`].
    pub fn over<N: Nal + 'static>(ni: portals_core::Ni, nal: N, trust: Trust) -> Self {
        Self::attached(Attached::unattended(ni, nal, Vec::new(), trust)).0
    }

    /// The interface to a library that its fabric has joined.
    pub(crate) fn attached(attached: Attached) -> (Self, Vec<ProcessId>) {
        let Parts {
            bridge,
            config,
            peers,
            extension,
        } = attached.into_parts(crate::trusted::TRUST);
        let inner = Inner {
            bridge,
            config,
            extension: Mutex::new(extension),
            closed: AtomicBool::new(false),
        };
        let inner = Arc::new(inner);
        (Self { inner }, peers)
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

    /// Runs `f`, in which this rank waits for other ranks by means the fabric knows nothing of (a
    /// fence of the job). On a simulated fabric time may pass for the others meanwhile, and all
    /// ranks that were outside return at the same virtual instant; elsewhere it just calls `f`.
    ///
    /// Waiting for others outside the fabric without this stops virtual time for them. Virtual times repeat themselves only
    /// where `f` meets all ranks: a rank that comes back before another one has left makes them depend on the wall clock.
    pub fn outside<R>(&self, f: impl FnOnce() -> R) -> Result<R, Error> {
        self.inner.bridge.leave()?;
        let result = f();
        self.inner.bridge.rejoin()?;
        Ok(result)
    }

    /// Memory for descriptors that others put to and get from often: where the fabric can, it is such that ranks of
    /// this machine map it and copy by themselves. Otherwise as [`Region::new`].
    pub fn new_region(&self, len: usize) -> Result<Region, RegionError> {
        if self.capabilities().shares {
            Region::shared(len)
        } else {
            Region::new(len)
        }
    }

    /// What the fabric can do; what of it are limits may change.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.bridge.capabilities()
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
        self.take_extension().map(|near| *near)
    }

    /// Frames between an endpoint and the peers that share memory with it, as [`Interface::near`] has them between ranks. `None` on a
    /// fabric that has none, and every time but the first.
    pub fn links(&self) -> Option<Links> {
        self.take_extension().map(|links| *links)
    }

    /// What the fabric offers past the library, if it is of this type.
    fn take_extension<T: 'static>(&self) -> Option<Box<T>> {
        if self.inner.closed.load(Ordering::Acquire) {
            return None;
        }
        let extension = self.inner.extension.lock();
        let mut extension = extension.unwrap_or_else(PoisonError::into_inner);
        let extension = extension.take_if(|offered| offered.is::<T>())?;
        extension.downcast().ok()
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

    /// `PtlNIFini`: every object of the interface is gone, no events.
    pub fn close(&self) -> Result<(), Error> {
        self.done(Call::Close)?;
        self.inner.closed.store(true, Ordering::Release);
        Ok(())
    }
}
