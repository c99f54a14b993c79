//! A conduit for several client threads (`GASNET_PAR`, `GASNET_PARSYNC`).
//!
//! ```text
//!   thread ─ with() ─► gate ─► the conduit, as in GASNET_SEQ
//!                       ▲          │ a wait that finds nothing leaves the gate to the thread that
//!                       └──────────┘ asked first, and asks again
//! ```
//!
//! One lock for all of the conduit's state. A thread holds it for the time of a call, never for the
//! time of a wait; handlers run with it held, one at a time, and never wait for another thread but
//! for a handler-safe lock. Puts and gets of segments that share memory with this rank take no lock.
// UNSAFETY: lets threads take turns with a conduit, which is made for one thread.
#![expect(
    unsafe_code,
    reason = "a lock around state that is not `Send`; see the line above"
)]

use crate::am::{HandlerEntry, Payload, Token};
use crate::conduit::Conduit;
use crate::error::{AttachError, InitError, RmaError};
use crate::exchange::Exchange;
use crate::exit::watch;
use crate::fault::Fault;
use crate::gate::Gate;
use crate::hsl;
use crate::segment::SegInfo;
use portals_shim::Region;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

struct Turns(Conduit);

// SAFETY: a `Turns` is only used by the thread that holds the gate of its `Par` (`Par::with`), or that
// owns the `Par` (`Par::finish`, drop). What in a conduit is not `Send`: the counts of references to
// handlers, which are `Send` themselves and have no other reference (a conduit with a gate refuses
// handlers that do not come from `Par::attach`, which makes the only reference), and addresses of
// memory that callers lend until their call returns or they synchronise.
unsafe impl Send for Turns {}
// SAFETY: as above; the gate is taken before and given back after every use, with the ordering of a
// lock, and at the points where a wait leaves it no state is borrowed.
unsafe impl Sync for Turns {}

/// Segments that this rank reaches by a copy, by rank.
struct Near {
    segments: Vec<SegInfo>,
    windows: Vec<Option<(Region, usize)>>,
}

type Run = dyn Fn(&mut Token<'_>, Payload<'_>, &[i32]) + Send;

/// A handler that may run on any thread.
pub struct ParHandler {
    index: u8,
    run: Box<Run>,
}

impl ParHandler {
    /// As [`HandlerEntry::new`].
    pub fn new(
        index: u8,
        run: impl Fn(&mut Token<'_>, Payload<'_>, &[i32]) + Send + 'static,
    ) -> Self {
        Self {
            index,
            run: Box::new(run),
        }
    }
}

impl std::fmt::Debug for ParHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ParHandler")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

/// A rank's endpoint for any number of threads.
///
/// ```
/// fn assert_shared<T: Send + Sync>() {}
/// assert_shared::<conduit::Par>();
/// ```
pub struct Par {
    turns: Turns,
    gate: Arc<Gate>,
    near: OnceLock<Near>,
    job: Arc<dyn Exchange>,
    longest_exit: Duration,
    me: u32,
    nodes: u32,
}

impl std::fmt::Debug for Par {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Par")
            .field("rank", &self.me)
            .field("ranks", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// Gives the gate back, also when the caller's code panics.
struct Inside<'a>(Option<&'a Gate>);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.0 {
            gate.leave();
        }
    }
}

impl Par {
    /// As [`Conduit::init`].
    pub fn init() -> Result<Self, InitError> {
        Conduit::init().map(Self::share)
    }

    /// Shares a conduit, before it is attached: handlers come by [`Par::attach`].
    ///
    /// # Panics
    /// If the conduit is attached.
    pub fn share(mut conduit: Conduit) -> Self {
        assert!(
            !conduit.is_attached(),
            "a conduit is shared before it is attached"
        );
        let gate = Arc::new(Gate::new());
        conduit.gate = Some(gate.clone());
        Self {
            me: conduit.mynode(),
            nodes: conduit.nodes(),
            job: conduit.job.clone(),
            longest_exit: conduit.longest_exit(),
            turns: Turns(conduit),
            gate,
            near: OnceLock::new(),
        }
    }

    /// This rank. Takes no lock, as all of the following that only look.
    pub fn mynode(&self) -> u32 {
        self.me
    }

    /// Ranks of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// As [`Conduit::attach`].
    pub fn attach(
        &self,
        handlers: Vec<ParHandler>,
        segment_size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        self.with(|conduit| {
            let entries = handlers
                .into_iter()
                .map(|h| HandlerEntry::new(h.index, h.run))
                .collect();
            let indexes = conduit.attach_entries(entries, segment_size)?;
            if let Some(a) = &conduit.core.borrow().attached {
                let _ = self.near.set(Near {
                    segments: a.segments.clone(),
                    windows: a.near.clone(),
                });
            }
            Ok(indexes)
        })
    }

    /// Calls the conduit. Waits in `call` let other threads have their turns; a handler that gets here
    /// goes straight on. A thread that holds a handler-safe lock, or is in a no-interrupt section,
    /// must not: it ends the job.
    pub fn with<R>(&self, call: impl FnOnce(&Conduit) -> R) -> R {
        let conduit = &self.turns.0;
        if self.gate.is_mine() {
            return call(conduit);
        }
        let quiet = hsl::is_quiet();
        self.gate.enter();
        let _inside = Inside(Some(&self.gate));
        if quiet {
            conduit.fatal("a call", &Fault::HslHeld);
        }
        call(conduit)
    }

    /// As [`Conduit::exit`]; the first thread ends the job, others wait here for the end. Holding
    /// locks is allowed.
    pub fn exit(&self, code: i32) -> ! {
        if !self.gate.is_mine() {
            // A thread that never gives the gate back, such as one in a handler that waits for a lock
            // of this thread, does not keep the job.
            let message = "an exit waited for a thread that never came out of a call".to_owned();
            let _watch = watch(self.job.clone(), self.longest_exit, code.max(1), message);
            self.gate.enter();
        }
        self.turns.0.exit(code)
    }

    /// As [`Conduit::finish`].
    pub fn finish(self) {
        let mut conduit = self.turns.0;
        conduit.gate = None;
        conduit.finish();
    }

    /// The segment of a rank, as [`Conduit::segment`].
    pub fn segment(&self, node: u32) -> SegInfo {
        self.near
            .get()
            .and_then(|n| n.segments.get(node as usize))
            .copied()
            .unwrap_or_default()
    }

    /// Where `len` bytes at `addr` of `node` are, if this rank reaches them by a copy.
    fn window(&self, node: u32, addr: u64, len: usize) -> Option<(&Region, usize)> {
        let near = self.near.get()?;
        let (region, start) = near.windows.get(node as usize)?.as_ref()?;
        let offset = near
            .segments
            .get(node as usize)?
            .offset_of(addr, len as u64)?;
        Some((region, start + usize::try_from(offset).ok()?))
    }

    /// As [`Conduit::put`]; without a lock where `node` shares memory with this rank.
    pub fn put(&self, node: u32, dest: u64, data: &[u8]) -> Result<(), RmaError> {
        if let Some((region, at)) = self.window(node, dest, data.len())
            && !hsl::is_quiet()
            && !self.gate.is_mine()
            && region.write(at, data).is_ok()
        {
            return Ok(());
        }
        self.with(|conduit| conduit.put(node, dest, data))
    }

    /// As [`Conduit::get`]; without a lock where `node` shares memory with this rank.
    pub fn get(&self, out: &mut [u8], node: u32, src: u64) -> Result<(), RmaError> {
        if let Some((region, at)) = self.window(node, src, out.len())
            && !hsl::is_quiet()
            && !self.gate.is_mine()
            && region.read(at, out).is_ok()
        {
            return Ok(());
        }
        self.with(|conduit| conduit.get(out, node, src))
    }
}
