//! A conduit for several client threads (`GASNET_PAR`, `GASNET_PARSYNC`).
//!
//! ```text
//!   thread ─ with() ─► gate ─► the conduit, as in GASNET_SEQ
//!                       ▲          │ a wait that finds nothing leaves the gate to the thread that
//!                       └──────────┘ asked first, and asks again
//! ```
//!
//! Active messages to ranks that share memory are written without the gate, under a lock of the peer. A thread that finds
//! some to take tries the gate; if another thread has the gate, that one takes them.
//!
//! One lock guards all of the conduit's state. A thread holds it for the time of a call, never for the
//! time of a wait. Handlers run with it held, one at a time. They wait for another thread only
//! for a handler-safe lock. Puts and gets of segments that share memory with this rank take no lock.
// UNSAFETY: lets threads take turns with a conduit, which is made for one thread.
#![expect(
    unsafe_code,
    reason = "threads take turns with a conduit that is not `Send`, by a gate the compiler does not see"
)]

use crate::am::{HandlerEntry, MAX_ARGS, MAX_LONG, MAX_MEDIUM, Payload, Token};
use crate::conduit::Conduit;
use crate::error::{AmError, AttachError, InitError, RmaError};
use crate::exchange::Exchange;
use crate::exit::watch;
use crate::fault::Fault;
use crate::frames::{Neighbour, Neighbours, Tag, place};
use crate::hsl;
use crate::matchbits::Category;
use crate::rma::Near;
use crate::rma::segments::Segments;
use crate::segment::SegInfo;
use portals_shim::gate::Gate;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use zerocopy::IntoBytes;

/// Looks at what a thread waits for before it asks for its turn in the conduit.
const LOOKS: u32 = 1000;

struct Turns(Conduit);

// SAFETY: a `Turns` is only used by the thread that holds the gate of its `Par` (`Par::with`), or that
// owns the `Par` (`Par::finish`, drop). Two things in a conduit are not `Send`. The first are counts of
// references to handlers: handlers are `Send`, and `Par::attach` makes the only reference, for a conduit
// with a gate refuses others. The second are addresses of memory, which callers lend until their call
// returns or they synchronise.
unsafe impl Send for Turns {}
// SAFETY: as above; the gate is taken before and given back after every use, with the ordering of a
// lock, and at the points where a wait leaves it no state is borrowed.
unsafe impl Sync for Turns {}

/// What is fixed when the job attaches.
struct Reach {
    segments: Vec<SegInfo>,
    near: Near,
}

type Run = dyn Fn(&mut Token<'_>, Payload<'_>, &[i32]) + Send;

/// A handler that may run on any thread.
pub struct ParHandler {
    index: u8,
    run: Box<Run>,
}

impl ParHandler {
    /// An entry for a handler; see [`HandlerEntry::new`].
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
    reach: OnceLock<Reach>,
    /// Calls write lines, which the conduit does.
    traced: bool,
    /// See [`Par::tolerate_locks`].
    tolerant: bool,
    neighbours: OnceLock<Arc<Neighbours>>,
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
    /// Joins the job; see [`Conduit::init`].
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
        if let Some(t) = &conduit.tracer {
            t.name_threads();
        }
        Self {
            me: conduit.mynode(),
            nodes: conduit.nodes(),
            job: conduit.job.clone(),
            longest_exit: conduit.longest_exit(),
            traced: conduit.tracer.is_some(),
            tolerant: false,
            turns: Turns(conduit),
            gate,
            reach: OnceLock::new(),
            neighbours: OnceLock::new(),
        }
    }

    /// Has calls of threads that hold a handler-safe lock, or are in a no-interrupt section, wait for their turn instead of
    /// ending the job. Whether such a wait ends is the program's to know: a handler may wait for the lock.
    #[must_use]
    pub fn tolerate_locks(mut self, tolerant: bool) -> Self {
        self.tolerant = tolerant;
        self
    }

    /// This rank. Takes no lock, as all of the following that only look.
    pub fn mynode(&self) -> u32 {
        self.me
    }

    /// Ranks of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// Registers handlers and makes the segment; see [`Conduit::attach`].
    pub fn attach(
        &self,
        handlers: Vec<ParHandler>,
        segment_size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        self.attach_by(handlers, |c, h| c.attach_entries(h, segment_size))
    }

    /// Attaches with a segment that may be larger than what can be pinned; see [`Conduit::attach_large`].
    pub fn attach_large(
        &self,
        handlers: Vec<ParHandler>,
        segment_size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        self.attach_by(handlers, |c, h| {
            c.attach_pinning(h, Segments::Large, segment_size)
        })
    }

    /// Attaches with all memory as the segment; see [`Conduit::attach_everything`].
    ///
    /// # Safety
    ///
    /// That of [`Conduit::attach_everything`].
    pub unsafe fn attach_everything(
        &self,
        handlers: Vec<ParHandler>,
    ) -> Result<Vec<u8>, AttachError> {
        self.attach_by(handlers, |c, h| {
            c.attach_pinning(h, Segments::Everything, 0)
        })
    }

    fn attach_by(
        &self,
        handlers: Vec<ParHandler>,
        attach: impl FnOnce(&Conduit, Vec<HandlerEntry>) -> Result<Vec<u8>, AttachError>,
    ) -> Result<Vec<u8>, AttachError> {
        self.with(|conduit| {
            let entries = handlers
                .into_iter()
                .map(|h| HandlerEntry::new(h.index, h.run))
                .collect();
            let indexes = attach(conduit, entries)?;
            let near = conduit.near();
            if let Some(a) = &conduit.core.borrow().attached {
                let segments = a.segments.clone();
                let _ = self.reach.set(Reach { segments, near });
            }
            if let Some(neighbours) = conduit.neighbours.get() {
                let _ = self.neighbours.set(neighbours.clone());
            }
            Ok(indexes)
        })
    }

    /// Calls the conduit. Waits in `call` let other threads have their turns; a handler that gets here
    /// goes straight on. A thread that holds a handler-safe lock, or is in a no-interrupt section,
    /// must not, unless they are [tolerated](Par::tolerate_locks): it ends the job.
    pub fn with<R>(&self, call: impl FnOnce(&Conduit) -> R) -> R {
        let conduit = &self.turns.0;
        if self.gate.is_mine() {
            return call(conduit);
        }
        let quiet = !self.tolerant && hsl::is_quiet();
        self.enter();
        let _inside = Inside(Some(&self.gate));
        if quiet {
            conduit.fatal("a call", &Fault::HslHeld);
        }
        call(conduit)
    }

    /// Waits for this thread's turn. A handler of a signal that has interrupted its thread on the way in or out ends the job.
    fn enter(&self) {
        if self.gate.is_passing() {
            self.turns.0.core.refuse();
        }
        self.gate.enter();
    }

    /// Makes a call that takes ranges away ([`Conduit::take_away`]). No other thread has a turn between the last look and the end of
    /// `call`: one that transferred from or to what lies beside would have all of its unit pinned anew.
    pub fn take_away<R>(&self, ranges: &[(u64, u64)], call: impl FnOnce() -> R) -> Option<R> {
        self.with(|c| c.take_away(ranges, call))
    }

    /// Exits ([`Conduit::exit`]): the first thread ends the job, others wait here for the end. Holding
    /// locks is allowed.
    pub fn exit(&self, code: i32) -> ! {
        if !self.gate.is_mine() {
            // A thread in a handler that waits for a lock of this thread gives the gate up; one that never gives it
            // back does not keep the job.
            let message = "an exit waited for a thread that never came out of a call".to_owned();
            let _watch = watch(self.job.clone(), self.longest_exit, code.max(1), message);
            hsl::ask_for_way(&self.gate);
            self.gate.enter_last();
            hsl::has_way(&self.gate);
        }
        self.turns.0.exit(code)
    }

    /// Ends the conduit in good order; see [`Conduit::finish`].
    pub fn finish(self) {
        let mut conduit = self.turns.0;
        conduit.gate = None;
        conduit.finish();
    }

    /// The rank `node`, if this thread may send it a frame without the gate.
    fn neighbour(&self, node: u32) -> Option<&Neighbour> {
        let found = self.neighbours.get()?.find(node)?;
        let may = !self.traced && !hsl::is_quiet() && !self.gate.is_mine();
        may.then_some(found)
    }

    /// Sends a frame if there is room, and polls if there is something and no other thread does.
    fn sent(&self, to: &Neighbour, tag: Tag, args: &[i32], body: &[u8]) -> bool {
        if tag.args > MAX_ARGS || !to.try_request(true, tag, args.as_bytes(), body) {
            return false;
        }
        if self.neighbours.get().is_some_and(|n| n.wants_poll()) {
            self.poll();
        }
        true
    }

    /// Sends a Short request. To a rank that shares memory with this one it takes no lock but that of the
    /// peer, for as long as the message takes to write.
    pub fn am_request_short(&self, node: u32, handler: u8, args: &[i32]) -> Result<(), AmError> {
        let tag = Tag::new(Category::Short, handler, args.len());
        if let Some(to) = self.neighbour(node)
            && self.sent(to, tag, args, &[])
        {
            return Ok(());
        }
        self.with(|conduit| conduit.am_request_short(node, handler, args))
    }

    /// Sends a Medium request, with the locks of [`Par::am_request_short`].
    pub fn am_request_medium(
        &self,
        node: u32,
        handler: u8,
        payload: &[u8],
        args: &[i32],
    ) -> Result<(), AmError> {
        let tag = Tag::new(Category::Medium, handler, args.len());
        if let Some(to) = self.neighbour(node)
            && payload.len() <= MAX_MEDIUM
            && self.sent(to, tag, args, payload)
        {
            return Ok(());
        }
        self.with(|conduit| conduit.am_request_medium(node, handler, payload, args))
    }

    /// Sends a Long request, with the locks of [`Par::am_request_short`].
    pub fn am_request_long(
        &self,
        node: u32,
        handler: u8,
        payload: &[u8],
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        let put = |near: &Near| near.put(node, dest, payload);
        if self.long_sent(node, handler, (dest, payload.len()), args, put) {
            return Ok(());
        }
        self.with(|conduit| conduit.am_request_long(node, handler, payload, dest, args))
    }

    /// Sends a Long request from the own segment, with the locks of [`Par::am_request_short`].
    pub fn am_request_long_from_segment(
        &self,
        node: u32,
        handler: u8,
        offset: usize,
        len: usize,
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        let put = |near: &Near| near.put_from((self.me, offset), node, dest, len);
        if self.long_sent(node, handler, (dest, len), args, put) {
            return Ok(());
        }
        self.with(|c| c.am_request_long_from_segment(node, handler, offset, len, dest, args))
    }

    /// Sends a Long request from the own segment, whose memory stays untouched until the reply, with the locks of
    /// [`Par::am_request_short`].
    pub fn am_request_long_async_from_segment(
        &self,
        node: u32,
        handler: u8,
        offset: usize,
        len: usize,
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        let put = |near: &Near| near.put_from((self.me, offset), node, dest, len);
        if self.long_sent(node, handler, (dest, len), args, put) {
            return Ok(());
        }
        self.with(|c| c.am_request_long_async_from_segment(node, handler, offset, len, dest, args))
    }

    /// Copies a payload to `dest` by `put` and sends the frame that says so; where not, the conduit does all of it, or
    /// says why not. Nothing is copied for a message that breaks a rule.
    fn long_sent(
        &self,
        node: u32,
        handler: u8,
        (dest, len): (u64, usize),
        args: &[i32],
        put: impl FnOnce(&Near) -> bool,
    ) -> bool {
        let tag = Tag::new(Category::Long, handler, args.len());
        let Some(to) = self.neighbour(node) else {
            return false;
        };
        let Some(offset) = self.segment(node).offset_of(dest, len as u64) else {
            return false;
        };
        len <= MAX_LONG
            && tag.args <= MAX_ARGS
            && (len == 0 || self.near().is_some_and(put))
            && self.sent(to, tag, args, &place(offset, len))
    }

    /// Polls; does nothing where another thread is in the conduit, which polls.
    pub fn poll(&self) {
        if self.gate.is_mine() || hsl::is_quiet() {
            self.with(Conduit::poll);
        } else if self.gate.try_enter() {
            let _inside = Inside(Some(&self.gate));
            self.turns.0.poll();
        }
    }

    /// Waits until `ready`, and polls ([`Conduit::block_until`]). While another thread is in the conduit, and so polls, this one
    /// looks at `ready`.
    pub fn block_until(&self, mut ready: impl FnMut() -> bool) {
        if self.gate.is_mine() || hsl::is_quiet() {
            return self.with(|conduit| conduit.block_until(ready));
        }
        let mut looks = 0;
        while !ready() {
            if !self.gate.try_enter() {
                looks += 1;
                if looks < LOOKS {
                    std::hint::spin_loop();
                    continue;
                }
                self.enter();
            }
            looks = 0;
            let _inside = Inside(Some(&self.gate));
            self.turns.0.service();
        }
    }

    /// The segment of a rank, as [`Conduit::segment`].
    pub fn segment(&self, node: u32) -> SegInfo {
        self.reach
            .get()
            .and_then(|r| r.segments.get(node as usize))
            .copied()
            .unwrap_or_default()
    }

    /// Whether the calling thread is in a call: in a handler, say.
    pub fn is_inside(&self) -> bool {
        self.gate.is_mine()
    }

    /// What this thread may copy to and from by itself; `None` where a call has to say why not.
    fn near(&self) -> Option<&Near> {
        let reach = self.reach.get()?;
        let may = !self.traced && !hsl::is_quiet() && !self.gate.is_mine();
        may.then_some(&reach.near)
    }

    /// Puts `data`, without a lock where `node` shares memory with this rank; see [`Conduit::put`].
    pub fn put(&self, node: u32, dest: u64, data: &[u8]) -> Result<(), RmaError> {
        if self.near().is_some_and(|n| n.put(node, dest, data)) {
            return Ok(());
        }
        self.with(|conduit| conduit.put(node, dest, data))
    }

    /// Gets to `out`, without a lock where `node` shares memory with this rank; see [`Conduit::get`].
    pub fn get(&self, out: &mut [u8], node: u32, src: u64) -> Result<(), RmaError> {
        if self.near().is_some_and(|n| n.get(out, node, src)) {
            return Ok(());
        }
        self.with(|conduit| conduit.get(out, node, src))
    }
}
