//! The conduit of one rank, and how it polls.
//!
//! ```text
//!            one eq_poll ──► SYS_EQ   shutdown, barriers         always first
//!                            SAFE_EQ  completions, replies       anywhere
//!                            AM_EQ    requests                   only with a reply's resources
//! ```
//!
//! A step asks for one event of all queues that may be handled now, in this order, and handles it.
//! Whoever waits, waits in that call: on a fabric whose time is virtual a blocking poll lets time
//! jump, and on any other it leaves the core to others.

use crate::am::delivery::{Content, Delivery};
use crate::am::{HandlerEntry, HandlerTable};
use crate::core::Core;
use crate::credits::PeerCredits;
use crate::dissemination::ClientBarrier;
use crate::error::AttachError;
use crate::exchange::Exchange;
use crate::exclusive::Exclusive;
use crate::fault::Fault;
use crate::frames::Neighbours;
use crate::memory::Source;
use crate::pinning::Elsewhere;
use crate::segment::SegInfo;
use crate::signals::Signals;
use crate::trace::Tracer;
use portals_shim::gate::Gate;
use portals_shim::{Brief, ClockKind, Interface, Region, Taken, Wait};
use std::cell::{Cell, OnceCell};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use zerocopy::IntoBytes;

/// A rank's GASNet endpoint, for one client thread (`GASNET_SEQ`); [`crate::Par`] is for several.
///
/// It is neither [`Send`] nor [`Sync`]: handlers run on the thread that polls, inside any call that
/// waits, and share state with the program through `Rc` and `Cell`.
///
/// ```compile_fail,E0277
/// fn assert_sync<T: Sync>() {}
/// assert_sync::<conduit::Conduit>();
/// ```
///
/// Network failures, lost events and messages to handlers that do not exist end the whole job with
/// a line that names the rank and the call. A mistake of the caller is an `Err`.
///
/// Dropping it leaves the job: every other rank that still runs ends with status 0 at its next call
/// that polls, as after [`Conduit::exit`] with 0. Programs meet in a barrier first.
#[derive(Debug)]
pub struct Conduit {
    pub(crate) core: Exclusive<Core>,
    pub(crate) handlers: Exclusive<HandlerTable>,
    pub(crate) job: Arc<dyn Exchange>,
    /// Handlers that are running, one inside the other.
    pub(crate) handler_depth: Cell<u32>,
    /// The rank has left, or is leaving, the job.
    pub(crate) ended: Cell<bool>,
    /// The rank is in `finish`, and joins an exit without obeying it.
    pub(crate) finishing: Cell<bool>,
    /// A request was sent since the fabric was looked at.
    pub(crate) requested: Cell<bool>,
    /// Every request looks at it.
    pub(crate) polls_each: bool,
    pub(crate) lendings: Cell<u64>,
    /// How long a wait may last before [`Conduit::flush_pinning`] is to be called again; see `pinning/deferred.rs`.
    pub(crate) look_again: Cell<Option<Duration>>,
    /// Blocking operations since the last poll, in a row, that needed none.
    pub(crate) row: Cell<u32>,
    /// Memory that goes is told of; see [`Conduit::promise_to_forget`].
    pub(crate) forgets: Cell<bool>,
    pub(crate) elsewhere: Elsewhere,
    pub(crate) barrier: Cell<ClientBarrier>,
    /// Taken by whoever uses this conduit, where several threads do; see [`crate::Par`].
    pub(crate) gate: Option<Arc<Gate>>,
    pub(crate) signals: OnceCell<Signals>,
    /// See [`Conduit::set_signal_status`].
    pub(crate) signal_status: Arc<Mutex<Option<i32>>>,
    /// Writes the files of `GASNET_TRACEFILE` and `GASNET_STATSFILE`, if there are any.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Ranks that share memory with this one, once attached.
    pub(crate) neighbours: OnceCell<Arc<Neighbours>>,
    /// Replies and requests taken of each of them in one poll.
    pub(crate) frame_limits: (u32, u32),
    me: u32,
    nodes: u32,
    single_thread: PhantomData<Rc<()>>,
}

/// How long a wait keeps the gate, nanoseconds.
const TURN: u64 = 50_000;

/// What says that there is other work than events.
pub(crate) type Other<'a> = Option<&'a dyn Fn() -> bool>;

/// Which events may be handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    Full,
    /// Those that never need resources: no requests.
    Safe,
}

/// Where events are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// Among those that are there.
    There,
    /// In the fabric too, for so long.
    Poll(Wait),
}

/// Events still allowed of each queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    sys: u32,
    safe: u32,
    am: u32,
    /// The last event taken was not the last there was.
    more: bool,
}

impl Budget {
    /// `u32::MAX` is never counted down.
    const fn unlimited() -> Self {
        Self {
            sys: u32::MAX,
            safe: u32::MAX,
            am: u32::MAX,
            more: true,
        }
    }
}

impl Core {
    /// Takes and handles one event. `None`: there was none, or the budget is spent, or `other` said that there is other
    /// work.
    #[inline(always)]
    fn step(
        &mut self,
        scope: Scope,
        look: Look,
        budget: &mut Budget,
        other: Other<'_>,
    ) -> Result<Option<Option<Delivery>>, Fault> {
        let all = self.descriptors.queues.list();
        let apart = [all[0], all[2]];
        let am = scope == Scope::Full && budget.am > 0 && self.stock_reserve();
        // Index of the first queue of the list; of [`apart`] the second one is the third of all.
        let (list, first) = match (budget.sys > 0, budget.safe > 0, am) {
            (true, true, true) => (&all[..], 0),
            (true, true, false) => (&all[..2], 0),
            (true, false, true) => (&apart[..], 0),
            (true, false, false) => (&all[..1], 0),
            (false, true, true) => (&all[1..], 1),
            (false, true, false) => (&all[1..2], 1),
            (false, false, true) => (&all[2..], 2),
            (false, false, false) => return Ok(None),
        };
        let mut event = Brief::default();
        let found = match look {
            Look::There => self.ni.eq_there(list, &mut event),
            Look::Poll(wait) => self.ni.eq_take_or(list, wait, other, &mut event),
        };
        let found = found.map_err(|e| Fault::Portals {
            call: "PtlEQPoll",
            error: e.error,
        })?;
        if found == Taken::Nothing {
            return Ok(None);
        }
        budget.more = found == Taken::More;
        let (left, queue, own) = match first + event.which {
            0 => (&mut budget.sys, "SYS", false),
            1 if budget.safe > 0 => (&mut budget.safe, "SAFE", budget.more),
            _ => (&mut budget.am, "AM", false),
        };
        // Queues are sized so that none can overflow; a lost event could be anybody's completion.
        if event.dropped {
            return Err(Fault::Lost { queue });
        }
        if *left != u32::MAX {
            *left -= 1;
        }
        let delivery = self.handle(&event)?;
        if own {
            self.settle(left)?;
        }
        Ok(Some(delivery))
    }
}

impl Conduit {
    pub(crate) fn assemble(core: Core, job: Box<dyn Exchange>) -> Self {
        let (me, nodes) = (core.ranks.me(), core.ranks.count());
        let polls_each = core.ni.clock() == ClockKind::Virtual;
        let frame_limits = (core.env.safe_limit, core.env.am_limit);
        let job: Arc<dyn Exchange> = Arc::from(job);
        Self {
            core: Exclusive::new(core, job.clone()),
            handlers: Exclusive::new(HandlerTable::new(), job.clone()),
            job,
            handler_depth: Cell::new(0),
            ended: Cell::new(false),
            finishing: Cell::new(false),
            requested: Cell::new(false),
            polls_each,
            lendings: Cell::new(0),
            look_again: Cell::new(None),
            row: Cell::new(0),
            forgets: Cell::new(false),
            elsewhere: Elsewhere::default(),
            barrier: Cell::default(),
            gate: None,
            signals: OnceCell::new(),
            signal_status: Arc::default(),
            tracer: None,
            neighbours: OnceCell::new(),
            frame_limits,
            me,
            nodes,
            single_thread: PhantomData,
        }
    }

    /// This rank.
    pub fn mynode(&self) -> u32 {
        self.me
    }

    /// Ranks of the job.
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// `GASNET_MAX_SEGSIZE`, bytes: the largest segment that a program may be offered; `None` without it.
    pub fn max_segment(&self) -> Option<u64> {
        self.core.borrow().env.max_segment
    }

    /// The segment of a rank; empty for a rank that does not exist, and before `attach`.
    pub fn segment(&self, node: u32) -> SegInfo {
        let core = self.core.borrow();
        core.attached
            .as_ref()
            .and_then(|a| a.segments.get(node as usize))
            .copied()
            .unwrap_or_default()
    }

    /// The memory of the own segment; `None` before `attach`.
    pub fn local_segment(&self) -> Option<Region> {
        self.core
            .borrow()
            .attached
            .as_ref()
            .map(|a| a.region.clone())
    }

    /// The interface below, for what it tells about itself.
    pub fn interface(&self) -> Interface {
        self.core.borrow().ni.clone()
    }

    /// Nanoseconds of the fabric's clock, from an arbitrary start.
    pub fn now(&self) -> u64 {
        self.core.borrow().ni.now()
    }

    /// What [`Conduit::now`] counts.
    pub fn clock(&self) -> ClockKind {
        self.core.borrow().ni.clock()
    }

    /// Credits between this rank and another; `None` of a rank that does not exist. All are 0 of this rank itself, and without
    /// flow control. Active messages by frames take none, so between ranks that share memory nothing moves.
    ///
    /// ```
    /// # use conduit::{BarrierName, threads};
    /// let ends = threads::run(2, |conduit| {
    ///     conduit.attach(vec![], 0)?;
    ///     let lent = conduit.credits(1).map(|c| c.send);
    ///     conduit.barrier(BarrierName::Anonymous).ok();
    ///     Ok::<_, conduit::AttachError>((lent, conduit.banked_credits()))
    /// });
    /// let threads::RankEnd::Returned(Ok(first)) = &ends[0] else {
    ///     panic!("{:?}", ends[0])
    /// };
    /// assert_eq!(*first, (Some(200), 7984));
    /// ```
    pub fn credits(&self, node: u32) -> Option<PeerCredits> {
        self.core.borrow().credits.of_peer(node)
    }

    /// Credits that this rank holds back, to lend them to ranks that ask for more.
    pub fn banked_credits(&self) -> u64 {
        self.core.borrow().credits.banked()
    }

    /// What writes this rank's trace and statistics; `None` in most runs.
    #[inline]
    pub fn tracer(&self) -> Option<&Arc<Tracer>> {
        self.tracer.as_ref()
    }

    /// The queue of completions.
    #[cfg(test)]
    pub(crate) fn safe_queue(&self) -> portals_shim::EqHandle {
        self.core.borrow().descriptors.queues.safe
    }

    /// Whether this rank has left the job, or is leaving it.
    pub fn has_ended(&self) -> bool {
        self.ended.get()
    }

    /// Whether a call is at work on the state of this conduit, as one may be that a handler of the system's signals interrupted.
    pub fn is_in_use(&self) -> bool {
        self.core.try_borrow_mut().is_err()
    }

    /// Registers handlers of a layer between the conduit and the client, at indexes 64 to 127.
    /// Before [`Conduit::attach`], and the same on all ranks.
    pub fn register_extended(&self, handlers: Vec<HandlerEntry>) -> Result<(), AttachError> {
        if self.is_attached() {
            return Err(AttachError::Attached);
        }
        self.handlers.borrow_mut().register_extended(handlers)
    }

    pub(crate) fn is_attached(&self) -> bool {
        self.core.borrow().attached.is_some()
    }

    /// Handles what has arrived, up to the limits of `GASNET_PORTAL_*_LIMIT`; does not wait.
    /// Nothing within a handler.
    #[inline]
    pub fn poll(&self) {
        if let Some(t) = &self.tracer {
            t.count("AMPOLL");
        }
        if self.handler_depth.get() == 0 {
            self.serve();
        }
    }

    /// Polls on behalf of a program that has not called for it.
    pub(crate) fn serve(&self) {
        self.flush_pinning();
        let any = self.poll_near(Scope::Full);
        // Where there are many frames, events are looked at now and then.
        if !any || self.is_look_due() {
            self.poll_events(any);
        }
    }

    /// Handles events that are there, up to the limits; `found`: frames were found before.
    pub(crate) fn poll_events(&self, found: bool) {
        if found {
            self.core.borrow().ni.found_other();
        }
        self.poll_within_limits(Scope::Full);
    }

    fn is_look_due(&self) -> bool {
        self.neighbours.get().is_none_or(|n| n.is_due())
    }

    /// Services the network until `ready`, which must depend only on what handlers and
    /// synchronisation change: the wait ends only when an event was handled.
    pub fn block_until(&self, mut ready: impl FnMut() -> bool) {
        while !ready() {
            self.wait_step("polling", Scope::Full);
        }
    }

    /// Waits for some frames or one event and handles them. A conduit that several threads share waits no longer than a
    /// turn.
    pub fn service(&self) {
        self.wait_step("polling", Scope::Full);
    }

    /// Waits for some frames or one event, for no longer than this, of the fabric's time, and handles them; whether there were any.
    pub fn service_within(&self, longest: Option<Duration>) -> bool {
        self.wait_step_or("polling", Scope::Full, longest, None)
    }

    /// One event, on behalf of `call`; whether there was one.
    fn step(
        &self,
        call: &str,
        scope: Scope,
        look: Look,
        budget: &mut Budget,
        other: Other<'_>,
    ) -> bool {
        // Another request would spend the resources kept for this handler's reply.
        if scope == Scope::Full && self.handler_depth.get() > 0 {
            self.fatal(call, &Fault::WaitInHandler);
        }
        self.obey_signal();
        if look != Look::There {
            self.requested.set(false);
        }
        let stepped = self.core.borrow_mut().step(scope, look, budget, other);
        let delivery = match stepped {
            Ok(None) => return false,
            Ok(Some(delivery)) => delivery,
            Err(fault) => self.fatal(call, &fault),
        };
        if let Some(delivery) = delivery {
            self.deliver(delivery);
        }
        self.obey_shutdown();
        true
    }

    pub(crate) fn poll_within_limits(&self, scope: Scope) {
        let mut budget = {
            let core = self.core.borrow();
            let env = &core.env;
            Budget {
                sys: env.sys_limit,
                safe: env.safe_limit,
                am: env.am_limit,
                more: true,
            }
        };
        // One look into the fabric is one poll; what comes while its events are handled is for the next.
        let mut look = Look::Poll(Wait::No);
        while self.step("polling", scope, look, &mut budget, None) && budget.more {
            look = Look::There;
        }
    }

    /// Waits ([`Conduit::wait_in`]) in an active message.
    pub(crate) fn wait_for<T>(&self, scope: Scope, ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        self.wait_in("an active message", scope, ready)
    }

    /// Services the network on behalf of `call` until `ready` gives something.
    pub(crate) fn wait_in<T>(
        &self,
        call: &str,
        scope: Scope,
        mut ready: impl FnMut(&mut Core) -> Option<T>,
    ) -> T {
        loop {
            if let Some(found) = ready(&mut self.core.borrow_mut()) {
                return found;
            }
            self.wait_step(call, scope);
        }
    }

    /// Some frames or one event, or a turn for other threads.
    pub(crate) fn wait_step(&self, call: &str, scope: Scope) {
        self.wait_step_or(call, scope, None, None);
    }

    /// Takes a step of a wait; one for an event takes no longer than `longest`, and ends when `other` says so. Whether
    /// anything was handled.
    pub(crate) fn wait_step_or(
        &self,
        call: &str,
        scope: Scope,
        longest: Option<Duration>,
        other: Other<'_>,
    ) -> bool {
        if scope == Scope::Full && self.flush_pinning() {
            return true;
        }
        let mut budget = Budget::unlimited();
        if self.poll_near(scope) {
            if self.is_look_due() {
                self.step(call, scope, Look::Poll(Wait::No), &mut budget, None);
            }
            return true;
        }
        let neighbours = self.neighbours.get();
        let either =
            || other.is_some_and(|o| o()) || neighbours.is_some_and(|n| n.has_frame(scope));
        // Nothing is asked between looks where there is nobody to be asked.
        let other = (other.is_some() || neighbours.is_some()).then_some(&either as _);
        let longest = match (longest, self.look_again.get()) {
            (Some(longest), Some(look)) => Some(longest.min(look)),
            (longest, look) => longest.or(look),
        };
        let wait = longest.map_or(Wait::Forever, |longest| {
            Wait::Nanos(u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX))
        });
        let Some(gate) = &self.gate else {
            return self.step(call, scope, Look::Poll(wait), &mut budget, other);
        };
        let wait = if gate.is_wanted() {
            Wait::No
        } else {
            Wait::Nanos(TURN)
        };
        let stepped = self.step(call, scope, Look::Poll(wait), &mut budget, other);
        // A handler is not interrupted: what it holds of the conduit is for its reply.
        if !stepped && self.handler_depth.get() == 0 && gate.leave() {
            gate.enter();
        }
        stepped
    }

    /// Ends the job when a call could not be made.
    pub(crate) fn check<T>(&self, call: &str, result: Result<T, Fault>) -> T {
        match result {
            Ok(value) => value,
            Err(fault) => self.fatal(call, &fault),
        }
    }

    /// A Medium's buffer with the payload of `source`.
    pub(crate) fn fill_scratch(&self, mut buffer: Box<[u64]>, source: &Source) -> Content {
        let len = source.len();
        if let Source::User(mem) = source {
            mem.copy_to_slice(&mut buffer.as_mut_bytes()[..len]);
        }
        Content::Medium { buffer, len }
    }
}
