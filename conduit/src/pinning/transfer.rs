//! Puts and gets between any memory of two ranks.

use super::edge::{HIGHEST, LOWEST, load, segment_memory, store};
use super::lanes::Lane;
use super::units::{Pin, Pinner};
use super::wire::{PER_MESSAGE, Reach};
use super::{Fire, Reached};
use crate::am::HandlerEntry;
use crate::am::request::Source;
use crate::conduit::{Conduit, Scope};
use crate::core::{Attached, Core, SbUse};
use crate::error::{AttachError, RmaError};
use crate::fault::Fault;
use crate::ops::Key;
use crate::segment::SegInfo;
use crate::tmpmd::UserMem;
use ::firehose::{Asked, Grip, LimitError, Limits, OwnError, Shape, Span, Unit, Wishes};
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
    fn pins(&mut self) -> (&mut ::firehose::Owner<Pin>, Pinner<'_>) {
        (&mut self.owner, self.units.with(&mut self.maps))
    }

    /// A message no longer needs a unit of own memory.
    pub(super) fn release_here(&mut self, unit: Unit) {
        let (owner, mut pins) = self.pins();
        owner.release(Span::one(unit), &mut pins);
    }

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
    fn pinnable(&self) -> u64 {
        let f = &self.env.firehose;
        let here = self.peers.get(self.me as usize).map(|p| p.nid);
        let ranks = self.peers.iter().filter(|p| Some(p.nid) == here).count() as u64;
        let machine = f.physmem_max.unwrap_or_else(super::maps::physical_memory);
        let part = (machine as f64 * f.ratio) as u64 / ranks.max(1);
        self.ni.pinnable().map_or(part, |most| most.min(part))
    }

    /// Nobody new gets `len` bytes at `addr`; the units of them that are still pinned.
    fn forget(&mut self, addr: u64, len: u64) -> Option<(Unit, Unit)> {
        let fire = self.fire.as_mut()?;
        fire.maps.forget();
        let (first, last) = fire.limits.shape.touching(addr, len);
        let (owner, mut pins) = fire.pins();
        (!owner.forget(first, last, &mut pins)).then_some((first, last))
    }
}

impl Conduit {
    /// Attaches with memory that is pinned when it is needed.
    pub(crate) fn attach_pinning(
        &self,
        handlers: Vec<HandlerEntry>,
        what: Reached,
    ) -> Result<Vec<u8>, AttachError> {
        if self.is_attached() {
            return Err(AttachError::Attached);
        }
        let size = match what {
            Reached::Segment(size) => size,
            Reached::Everything | Reached::Opened => 0,
        };
        let region = Region::new(size).map_err(|source| AttachError::Segment { size, source })?;
        let own = match what {
            Reached::Everything | Reached::Opened => SegInfo {
                addr: 0,
                size: HIGHEST,
            },
            Reached::Segment(0) => SegInfo::default(),
            Reached::Segment(_) => SegInfo {
                addr: region.addr(),
                size: region.len() as u64,
            },
        };
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
        let fire = Fire::new(&mut self.core.borrow_mut(), limits, what);
        let fire = self.check("attach", fire);
        {
            let mut core = self.core.borrow_mut();
            core.fire = Some(fire);
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

    /// Whether puts and gets go by firehoses here.
    pub(crate) fn is_pinning(&self) -> bool {
        self.core.borrow().fire.is_some()
    }

    /// Whether there are no segments here, and any memory is named by its address.
    pub(crate) fn is_everything(&self) -> bool {
        self.segment(self.mynode()).size == HIGHEST
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
            self.transfer_part(part, unit)?;
            done += n as usize;
        }
        Ok(())
    }

    fn shape(&self) -> Shape {
        let core = self.core.borrow();
        let limits = core.fire.as_ref().map(|f| f.limits.shape);
        limits.unwrap_or(Shape::Pages { log2: 12 })
    }

    /// A put or get to the own rank is a copy. `None`: there is no memory.
    pub(crate) fn transfer_here(&self, addr: u64, memory: UserMem, get: bool) -> Option<()> {
        let mut core = self.core.borrow_mut();
        let maps = &mut core.fire.as_mut()?.maps;
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

    fn transfer_part(&self, p: Part, unit: Unit) -> Result<(), RmaError> {
        let len = p.memory.len() as u64;
        let what = if p.get { "get" } else { "put" };
        let (rdma_gets, bounce) = {
            let core = self.core.borrow();
            let env = &core.env;
            let limit = if p.get {
                env.get_bounce
            } else {
                env.put_bounce
            };
            (env.firehose.rdma_gets, p.memory.len() <= limit)
        };
        let held = if p.get && !rdma_gets {
            None
        } else {
            self.hold(p.node, unit)
        };
        let Some((there, reach)) = held else {
            return self.copy(p);
        };
        if reach.offset_of(p.addr, len).is_none() {
            self.give_back(p.node, there);
            return self.copy(p);
        }
        // What is taken from here on comes back by itself: others that have it wait for nothing.
        self.wait_in(what, Scope::Full, |c| c.tickets.take(1).then_some(()));
        let chunk = bounce.then(|| {
            let mut core = self.core.borrow_mut();
            core.reqsb.take(if p.get {
                SbUse::Get { to: p.memory }
            } else {
                SbUse::Put
            })
        });
        let chunk = chunk.flatten();
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
        let lane = Lane {
            get: p.get,
            op: p.op,
            node: p.node,
            there,
            here,
            chunk,
            own: None,
            lending: p.memory.lending,
            sent: false,
            answered: false,
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
        Ok(())
    }

    fn copy(&self, p: Part) -> Result<(), RmaError> {
        if p.get {
            self.copy_in(p.node, p.addr, p.memory)
        } else {
            self.copy_out(p.node, p.addr, p.memory)
        }
    }

    fn give_back(&self, node: u32, there: Grip) {
        if let Some(fire) = self.core.borrow_mut().fire.as_mut() {
            fire.release_there(node, there);
        }
    }

    /// Holds a unit of a peer; `None` when it cannot be pinned there.
    #[inline]
    fn hold(&self, node: u32, unit: Unit) -> Option<(Grip, Reach)> {
        let held = |fire: &Fire| {
            let (there, reach) = fire.holder.held_by(node, unit)?;
            Some((there, *reach))
        };
        let ticket = {
            let mut core = self.core.borrow_mut();
            let fire = core.fire.as_mut()?;
            if let Some((there, reach)) = fire.holder.hit(node, unit) {
                return Some((there, *reach));
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

    /// Pins local memory, which lies in one unit; `Ok(None)` where the fabric pins for each message, `Err` where it cannot be pinned.
    fn pin_here(&self, memory: UserMem) -> Result<Option<Unit>, ()> {
        let unit = {
            let core = self.core.borrow();
            let kept = |f: &&Fire| core.env.firehose.local && !f.maps.is_closed();
            let Some(fire) = core.fire.as_ref().filter(kept) else {
                return Ok(None);
            };
            fire.limits.shape.reach(memory.addr(), 1).0
        };
        let span = Span::one(unit);
        let covers = |pin: &Pin| {
            let (addr, len) = (memory.addr(), memory.len() as u64);
            pin.reach.offset_of(addr, len).is_some()
        };
        let pinned = self.wait_flushing(|c| {
            let fire = c.fire.as_mut()?;
            if let Some(pin) = fire.owner.hit(unit) {
                return Some(Ok(covers(pin)));
            }
            let (owner, mut pins) = fire.pins();
            match owner.acquire(span, &mut pins) {
                Err(OwnError::Busy) => None,
                Err(other) => Some(Err(other)),
                Ok(()) => Some(Ok(owner.key(unit).is_some_and(covers))),
            }
        });
        match pinned {
            Ok(true) => Ok(Some(unit)),
            // It lies in a part of its unit that is not pinned.
            Ok(false) => {
                if let Some(fire) = self.core.borrow_mut().fire.as_mut() {
                    fire.release_here(unit);
                }
                Ok(None)
            }
            Err(_) => Err(()),
        }
    }

    /// Gives back what this rank holds of the memory of `node` and does not use: its owner may unpin it, and a later put or
    /// get there asks for it anew. Nothing to do in a job with segments, nor in a handler.
    pub fn let_go(&self, node: u32) {
        if self.handler_depth.get() > 0 {
            return;
        }
        if let Some(fire) = self.core.borrow_mut().fire.as_mut() {
            fire.holder.let_go(node);
        }
        self.flush_pinning();
    }

    /// Tells the conduit that `len` bytes at `addr` are about to be unmapped, or remapped. On return nothing of them is
    /// pinned, and no peer reaches them. Nothing to do in a job with segments.
    ///
    /// In a handler, which may not wait, it ends the job if it has to.
    pub fn forget(&self, addr: u64, len: u64) {
        let left = self.core.borrow_mut().forget(addr, len);
        if let Some((first, last)) = left {
            self.wait_flushing(|c| c.fire.as_ref()?.owner.is_gone(first, last).then_some(()));
        }
    }

    /// As [`Conduit::forget`], for whoever may be called from anywhere; `false` in a handler, where something of it is
    /// still pinned. Memory that the library itself gives back within a call is not looked at, nor any memory once this
    /// rank leaves the job.
    pub fn forget_if_possible(&self, addr: u64, len: u64) -> bool {
        if self.ended.get() {
            return true;
        }
        let left = match self.core.try_borrow_mut() {
            Ok(mut core) => core.forget(addr, len),
            Err(_) => return true,
        };
        match left {
            None => true,
            Some(_) if self.handler_depth.get() > 0 => false,
            Some((first, last)) => {
                self.wait_flushing(|c| c.fire.as_ref()?.owner.is_gone(first, last).then_some(()));
                true
            }
        }
    }
}
