//! Puts and gets between any memory of two ranks.

use super::Fire;
use super::edge::{load, segment_memory, store};
use super::home::Home;
use super::lanes::Lane;
use super::maps::Maps;
use super::units::For;
use super::wire::{PER_MESSAGE, Reach};
use crate::am::HandlerEntry;
use crate::am::request::Source;
use crate::conduit::{Conduit, Scope};
use crate::core::{Attached, Core, SbUse};
use crate::error::{AttachError, RmaError};
use crate::fault::Fault;
use crate::ops::Key;
use crate::rma::segments::{HIGHEST, LOWEST, Segments};
use crate::segment::SegInfo;
use crate::tmpmd::UserMem;
use ::firehose::{Asked, Grip, LimitError, Limits, OwnError, Refusal, Shape, Span, Unit, Wishes};
use portals_shim::Region;

/// The rest of one put or get.
#[derive(Clone, Copy, Debug)]
struct Part {
    node: u32,
    addr: u64,
    memory: UserMem,
    get: bool,
    op: Key,
}

impl Fire {
    /// A message to a unit of `node` is over.
    #[inline(always)]
    pub(super) fn release_there(&mut self, node: u32, there: Grip) {
        self.holder.release_one(node, there);
        if self.holder.has_outcomes() {
            self.collect();
        }
    }
}

impl Core {
    /// What this rank may pin, bytes: its part of the machine's memory, and what the fabric and the system allow.
    pub(crate) fn pinnable(&self) -> u64 {
        let f = &self.env.firehose;
        let here = self.peers.get(self.me as usize).map(|p| p.nid);
        let ranks = self.peers.iter().filter(|p| Some(p.nid) == here).count() as u64;
        let machine = f
            .physmem_max
            .unwrap_or_else(|| portals_shim::MemoryLimits::now().memory());
        let part = (machine as f64 * f.ratio) as u64 / ranks.max(1);
        self.ni
            .capabilities()
            .pinnable
            .map_or(part, |most| most.min(part))
    }

    /// Nobody new gets `len` bytes at `addr`; the units of them that are still pinned.
    fn forget(&mut self, addr: u64, len: u64) -> Option<(Unit, Unit)> {
        self.home.as_mut()?.forget(addr, len)
    }
}

impl Conduit {
    /// Attaches with memory that is pinned when it is needed.
    pub(crate) fn attach_pinning(
        &self,
        handlers: Vec<HandlerEntry>,
        segments: Segments,
        size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        if self.is_attached() {
            return Err(AttachError::Attached);
        }
        let region = Region::new(size).map_err(|source| AttachError::Segment { size, source })?;
        let segment = SegInfo {
            addr: region.addr(),
            size: if size == 0 { 0 } else { region.len() as u64 },
        };
        let own = segments.named(segment);
        let indexes = self.handlers.borrow_mut().register(handlers)?;
        self.register_pinning()?;
        let rarsrc = self.core.borrow().descriptors.reqsb;
        // Every rank keeps to what the poorest may pin.
        let pinnable = self.core.borrow().pinnable();
        let told = self.exchange(own, pinnable);
        let pinnable = told.iter().map(|t| t.1).min().unwrap_or(0);
        let limits = self
            .pinning_limits(pinnable)
            .map_err(AttachError::Firehose)?;
        let fire = Fire::new(&mut self.core.borrow_mut(), limits);
        let fire = self.check("attach", fire);
        {
            let mut core = self.core.borrow_mut();
            let kept = segments.kept(segment, core.env.firehose.local, self.forgets.get());
            let maps = Maps::new(segments.opened_only());
            let kept = (kept, self.elsewhere.clone());
            let home = Home::new((&core.ni, core.nodes), limits, maps, For::Peers, kept);
            core.home = Some(home);
            core.fire = Some(fire);
            core.segments = segments;
            core.attached = Some(Attached {
                region,
                rarsrc,
                near: vec![None; told.len()],
                segments: told.into_iter().map(|t| t.0).collect(),
            });
        }
        self.meet();
        if let Some(t) = &self.tracer {
            t.introduce();
        }
        Ok(indexes)
    }

    fn pinning_limits(&self, pinnable: u64) -> Result<Limits, LimitError> {
        let core = self.core.borrow();
        let f = &core.env.firehose;
        Limits::plan(&Wishes {
            pinnable,
            prepinned: 0,
            m: f.m,
            max_victim: f.max_victim,
            nodes: core.nodes,
            remote: true,
            shape: f.shape(),
            per_message: PER_MESSAGE,
        })
    }

    /// Memory of the own segment, as a transfer needs it.
    pub(crate) fn own_memory(&self, source: &Source) -> Option<UserMem> {
        match source {
            Source::Empty | Source::Placed { .. } => None,
            Source::User(memory) => Some(*memory),
            Source::Segment { offset, len } => {
                let core = self.core.borrow();
                core.attached
                    .as_ref()
                    .and_then(|a| segment_memory(&a.region, *offset, *len))
            }
        }
    }

    /// Starts a put or get of `memory`, which is in use until the operation is complete.
    pub(crate) fn transfer_anywhere(
        &self,
        node: u32,
        addr: u64,
        memory: UserMem,
        get: bool,
        op: Key,
    ) -> Result<(), RmaError> {
        let unmapped = |len| RmaError::Unmapped { node, addr, len };
        if addr < LOWEST || addr.saturating_add(memory.len() as u64) > HIGHEST {
            return Err(unmapped(memory.len()));
        }
        if node == self.mynode() {
            return self
                .transfer_here(addr, memory, get)
                .ok_or(unmapped(memory.len()));
        }
        let shape = self.shape();
        let mut done = 0;
        while done < memory.len() {
            let at = addr + done as u64;
            let (unit, n) = shape.reach(at, (memory.len() - done) as u64);
            // In one unit at home too, so that one registration holds it.
            let (_, n) = shape.reach(memory.addr() + done as u64, n);
            let part = Part {
                node,
                addr: at,
                memory: memory.part(done, n as usize),
                get,
                op,
            };
            done += self.transfer_part(part, unit)?;
        }
        Ok(())
    }

    fn shape(&self) -> Shape {
        let core = self.core.borrow();
        let limits = core.home.as_ref().map(|h| h.limits.shape);
        limits.unwrap_or(Shape::Pages { log2: 12 })
    }

    /// A put or get to the own rank is a copy. `None`: there is no memory.
    pub(crate) fn transfer_here(&self, addr: u64, memory: UserMem, get: bool) -> Option<()> {
        let mut core = self.core.borrow_mut();
        let maps = &mut core.home.as_mut()?.maps;
        if !maps.holds(addr, memory.len() as u64) {
            return None;
        }
        let mut buffer = vec![0; memory.len()];
        if get {
            load(addr, &mut buffer);
            memory.fill(&buffer);
        } else {
            memory.copy_to_slice(&mut buffer);
            store(addr, &buffer);
        }
        Some(())
    }

    /// Starts a message of the first bytes of `p`, as many as lie in one piece of `unit` and of a unit at home; how many.
    fn transfer_part(&self, mut p: Part, unit: Unit) -> Result<usize, RmaError> {
        let what = if p.get { "get" } else { "put" };
        let rdma_gets = self.core.borrow().env.firehose.rdma_gets;
        let held = if p.get && !rdma_gets {
            None
        } else {
            self.hold(p.node, unit, p.addr)
        };
        let Some((there, reach)) = held else {
            return self.copy(p);
        };
        let within = reach.len - (p.addr - reach.base);
        p.memory = p.memory.part(0, within as usize);
        // What is taken from here on comes back by itself: others that have it wait for nothing.
        self.wait_in(what, Scope::Full, |c| c.tickets.take(1).then_some(()));
        let chunk = {
            let mut core = self.core.borrow_mut();
            let whose = if p.get {
                SbUse::Get { to: p.memory }
            } else {
                SbUse::Put
            };
            let bounces = core.env.bounces(p.get, p.memory.len());
            bounces.then(|| core.reqsb.take(whose)).flatten()
        };
        let here = match chunk {
            Some(_) => None,
            None => match self.pin_here(p.memory) {
                Ok(here) => here,
                Err(()) => {
                    self.core.borrow_mut().tickets.give(1);
                    self.give_back(p.node, there);
                    return self.copy(p);
                }
            },
        };
        if let Some((_, within)) = here {
            p.memory = p.memory.part(0, within as usize);
        }
        let lane = Lane {
            get: p.get,
            here: here.map(|(unit, _)| unit),
            chunk,
            lending: p.memory.lending,
            ..Lane::new(p.node, there, p.op)
        };
        let started = {
            let core = &mut *self.core.borrow_mut();
            let copied = match chunk {
                Some(at) if !p.get => p.memory.copy_to(core.reqsb.region(), at as usize),
                _ => Ok(()),
            };
            copied
                .map_err(Fault::from)
                .and_then(|()| core.start_lane(&lane, &reach, p.addr, p.memory))
        };
        self.check(what, started);
        Ok(p.memory.len())
    }

    fn copy(&self, p: Part) -> Result<usize, RmaError> {
        if p.get {
            self.copy_in(p.node, p.addr, p.memory)?;
        } else {
            self.copy_out(p.node, p.addr, p.memory)?;
        }
        Ok(p.memory.len())
    }

    fn give_back(&self, node: u32, there: Grip) {
        if let Some(fire) = self.core.borrow_mut().fire.as_mut() {
            fire.release_there(node, there);
        }
    }

    /// Holds a unit of a peer; `None` when what is at `addr` cannot be pinned there.
    #[inline]
    fn hold(&self, node: u32, unit: Unit, addr: u64) -> Option<(Grip, Reach)> {
        let (there, reach) = self.ask(node, unit, addr)?;
        if let Some(reach) = reach {
            return Some((there, reach));
        }
        // Memory may have come to the unit since it was pinned.
        {
            let mut core = self.core.borrow_mut();
            let fire = core.fire.as_mut()?;
            fire.holder.renew(node, unit);
            fire.release_there(node, there);
        }
        let (there, reach) = self.ask(node, unit, addr)?;
        if reach.is_none() {
            self.give_back(node, there);
        }
        Some((there, reach?))
    }

    /// Holds a unit of a peer, and the piece of it that has the byte at `addr`; `None` when nothing of it can be pinned.
    #[inline]
    fn ask(&self, node: u32, unit: Unit, addr: u64) -> Option<(Grip, Option<Reach>)> {
        let held = |fire: &Fire| {
            let (there, reaches) = fire.holder.held_by(node, unit)?;
            Some((there, reaches.at(addr).copied()))
        };
        let ticket = {
            let mut core = self.core.borrow_mut();
            let fire = core.fire.as_mut()?;
            if let Some((there, reaches)) = fire.holder.hit(node, unit) {
                return Some((there, reaches.at(addr).copied()));
            }
            let ticket = fire.ticket();
            match fire.holder.ask(node, Span::one(unit), ticket) {
                Ok(Asked::Ready) => return held(fire),
                Ok(Asked::Waits) => ticket,
                Err(_) => return None,
            }
        };
        let pinned = self.wait_for_peer("pinning", Some(node), |c| {
            c.fire.as_mut()?.outcomes.remove(&ticket)
        });
        let core = self.core.borrow();
        core.fire.as_ref().filter(|_| pinned).and_then(held)
    }

    /// Pins the first bytes of local memory: the unit, and how many. `Ok(None)` where the fabric pins for each message,
    /// `Err` where no more memory can be pinned.
    pub(crate) fn pin_here(&self, memory: UserMem) -> Result<Option<(Unit, u64)>, ()> {
        let (addr, len) = (memory.addr(), memory.len() as u64);
        let kept = |c: &Core| c.home.as_ref().is_some_and(|h| h.keeps(addr, len));
        if !kept(&self.core.borrow()) {
            self.leave_own_stack();
            return Ok(None);
        }
        let pinned = self.wait_flushing(|c| match c.home.as_mut()?.take(addr, len) {
            Err(OwnError::Busy) => None,
            done => Some(done),
        });
        match pinned {
            Ok(here) => Ok(here),
            // It may be read and not written.
            Err(OwnError::Refused {
                refusal: Refusal::Unmapped,
                ..
            }) => Ok(None),
            Err(_) => Err(()),
        }
    }

    /// See [`super::home::Home::leave_own_stack`].
    fn leave_own_stack(&self) {
        if let Some(home) = &mut self.core.borrow_mut().home {
            home.leave_own_stack();
        }
        self.mind_elsewhere();
    }

    /// Gives back what this rank holds of the memory of `node` and does not use: its owner may unpin it, and a later put or
    /// get there asks for it anew. Nothing to do in a job with segments, nor in a handler.
    pub fn let_go(&self, node: u32) {
        if self.handler_depth.get() > 0 {
            return;
        }
        self.let_go_later(node);
        self.flush_pinning();
    }

    /// Gives back what is held of a peer's memory ([`Conduit::let_go`]); the next wait or poll sends it.
    pub(crate) fn let_go_later(&self, node: u32) {
        if let Some(fire) = self.core.borrow_mut().fire.as_mut() {
            fire.holder.let_go(node);
        }
    }

    /// Tells the conduit that `len` bytes at `addr` are about to be unmapped, or remapped. On return nothing of them is
    /// pinned, and no peer reaches them. Nothing to do in a job whose segments are pinned as a whole, unless the program has
    /// promised it ([`Conduit::promise_to_forget`]).
    ///
    /// In a handler, which may not wait, it ends the job if it has to.
    pub fn forget(&self, addr: u64, len: u64) {
        let left = self.core.borrow_mut().forget(addr, len);
        if let Some((first, last)) = left {
            self.wait_until_gone(first, last);
        }
    }

    /// Waits until nothing of these units is pinned.
    fn wait_until_gone(&self, first: Unit, last: Unit) {
        if let Some(home) = &mut self.core.borrow_mut().home {
            home.owner.bar(first, last);
        }
        self.wait_flushing(|c| {
            let owner = &mut c.home.as_mut()?.owner;
            let gone = owner.is_gone(first, last);
            gone.then(|| owner.unbar(first, last))
        });
    }

    /// The system has given `len` bytes at `addr` anew. What is pinned of them is what was there before and went unsaid: it is
    /// forgotten; what a handler, which cannot wait, leaves pinned of it is gone before the next call that sends.
    pub fn renew_mapped(&self, addr: u64, len: u64) {
        let stale = self.core.try_borrow().is_ok_and(|core| {
            let home = core.home.as_ref();
            home.is_some_and(|h| h.pins_any(addr, len))
        });
        if stale {
            tracing::debug!(addr, len, "memory went unsaid while it was pinned");
            if !self.forget_if_possible(&[(addr, len)]) {
                self.elsewhere.forget(addr, len);
            }
        }
    }

    /// Whether any of `len` bytes at `addr` is pinned, for a peer or for transfers of this rank.
    pub fn is_pinned(&self, addr: u64, len: u64) -> bool {
        self.mind_elsewhere();
        let core = self.core.borrow();
        let home = core.home.as_ref();
        home.is_some_and(|h| h.pins_any(addr, len))
    }

    /// Makes a call that takes ranges away, addresses and lengths, when nothing of them is pinned any more; from anywhere. `None`,
    /// and the call is not made, in a handler while something of them is still pinned. Memory that the library itself gives
    /// back within a call is not looked at, nor any memory once this rank leaves the job.
    pub fn take_away<R>(&self, ranges: &[(u64, u64)], call: impl FnOnce() -> R) -> Option<R> {
        self.forget_if_possible(ranges).then(call)
    }

    /// Forgets several ranges ([`Conduit::forget`]); `false` where it may not wait.
    fn forget_if_possible(&self, ranges: &[(u64, u64)]) -> bool {
        if self.ended.get() {
            return true;
        }
        loop {
            let mut waited = false;
            for (addr, len) in ranges.iter().filter(|(_, len)| *len > 0) {
                let left = match self.core.try_borrow_mut() {
                    Ok(mut core) => core.forget(*addr, *len),
                    Err(_) => return true,
                };
                match left {
                    None => {}
                    Some(_) if self.handler_depth.get() > 0 => return false,
                    Some((first, last)) => {
                        self.wait_until_gone(first, last);
                        waited = true;
                    }
                }
            }
            // What went before a wait may be back.
            if !waited {
                return true;
            }
        }
    }
}
