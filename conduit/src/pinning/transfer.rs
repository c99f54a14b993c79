//! Puts and gets between any memory of two ranks.

use super::edge::{load, segment_memory, store};
use super::firehoses::Firehoses;
use super::lanes::Lane;
use super::wire::Reach;
use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::error::RmaError;
use crate::fault::Fault;
use crate::memory::{Source, UserMem};
use crate::ops::Key;
use crate::resources::SbUse;
use crate::rma::Rma;
use crate::rma::segments::{HIGHEST, LOWEST};
use ::firehose::{Asked, Grip, OwnError, Refusal, Shape, Span, Unit};

/// The rest of one put or get.
#[derive(Clone, Copy, Debug)]
struct Part {
    node: u32,
    addr: u64,
    memory: UserMem,
    get: bool,
    op: Key,
}

impl Firehoses {
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
    /// Memory of this side, as a transfer by units needs it.
    #[inline(always)]
    pub(crate) fn own_memory(&self, source: &Source) -> Option<UserMem> {
        match source {
            Source::Empty | Source::Placed { .. } => None,
            Source::User(memory) => Some(*memory),
            Source::Segment { offset, len } => {
                let own = self.attached.as_ref();
                own.and_then(|a| segment_memory(&a.region, *offset, *len))
            }
        }
    }
}

impl Conduit {
    /// Starts the messages of a put or get, which count on `op`.
    pub(crate) fn start_units(&self, rma: &Rma, op: Key) -> Result<(), RmaError> {
        let Some(memory) = self.core.borrow().own_memory(&rma.local) else {
            return Ok(());
        };
        let (node, addr, get) = (rma.node, rma.addr, rma.get);
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
        let limits = core.pinning.home.as_ref().map(|h| h.limits.shape);
        limits.unwrap_or(Shape::Pages { log2: 12 })
    }

    /// A put or get to the own rank is a copy. `None`: there is no memory.
    pub(crate) fn transfer_here(&self, addr: u64, memory: UserMem, get: bool) -> Option<()> {
        let mut core = self.core.borrow_mut();
        let maps = &mut core.pinning.home.as_mut()?.maps;
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
        self.wait_in(what, Scope::Full, |c| {
            c.resources.take_tickets(1).then_some(())
        });
        let chunk = {
            let mut core = self.core.borrow_mut();
            let whose = if p.get {
                SbUse::Get { to: p.memory }
            } else {
                SbUse::Put
            };
            let bounces = core.env.bounces(p.get, p.memory.len());
            bounces
                .then(|| core.resources.requests_mut().take(whose))
                .flatten()
        };
        let here = match chunk {
            Some(_) => None,
            None => match self.pin_here(p.memory) {
                Ok(here) => here,
                Err(()) => {
                    self.core.borrow_mut().resources.give_ticket();
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
                Some(at) if !p.get => p
                    .memory
                    .copy_to(core.resources.requests().region(), at as usize),
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
        if let Some(firehoses) = self.core.borrow_mut().pinning.firehoses.as_mut() {
            firehoses.release_there(node, there);
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
            let firehoses = core.pinning.firehoses.as_mut()?;
            firehoses.holder.renew(node, unit);
            firehoses.release_there(node, there);
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
        let held = |firehoses: &Firehoses| {
            let (there, reaches) = firehoses.holder.held_by(node, unit)?;
            Some((there, reaches.at(addr).copied()))
        };
        let ticket = {
            let mut core = self.core.borrow_mut();
            let firehoses = core.pinning.firehoses.as_mut()?;
            if let Some((there, reaches)) = firehoses.holder.hit(node, unit) {
                return Some((there, reaches.at(addr).copied()));
            }
            let ticket = firehoses.ticket();
            match firehoses.holder.ask(node, Span::one(unit), ticket) {
                Ok(Asked::Ready) => return held(firehoses),
                Ok(Asked::Waits) => ticket,
                Err(_) => return None,
            }
        };
        let pinned = self.wait_for_peer("pinning", Some(node), |c| {
            c.pinning.firehoses.as_mut()?.outcomes.remove(&ticket)
        });
        let core = self.core.borrow();
        core.pinning
            .firehoses
            .as_ref()
            .filter(|_| pinned)
            .and_then(held)
    }

    /// Pins the first bytes of local memory: the unit, and how many. `Ok(None)` where the fabric pins for each message,
    /// `Err` where no more memory can be pinned.
    pub(crate) fn pin_here(&self, memory: UserMem) -> Result<Option<(Unit, u64)>, ()> {
        let (addr, len) = (memory.addr(), memory.len() as u64);
        let kept = |c: &Core| c.pinning.home.as_ref().is_some_and(|h| h.keeps(addr, len));
        if !kept(&self.core.borrow()) {
            self.leave_own_stack();
            return Ok(None);
        }
        let pinned = self.wait_flushing(|c| match c.pinning.home.as_mut()?.take(addr, len) {
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
        if let Some(home) = &mut self.core.borrow_mut().pinning.home {
            home.leave_own_stack();
        }
        self.mind_elsewhere();
    }
}
