//! Puts and gets between any memory of two ranks.

use super::deferred::Stage;
use super::edge::{load, segment_memory, store};
use super::firehoses::Firehoses;
use super::wire::Reach;
use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::error::RmaError;
use crate::memory::{Source, UserMem};
use crate::ops::Key;
use crate::rma::segments::{HIGHEST, LOWEST};
use crate::rma::{Completion, Rma};
use ::firehose::{Asked, Grip, OwnError, Refusal, Shape, Span, Ticket, Unit};

/// The rest of one put or get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) node: u32,
    pub(super) addr: u64,
    pub(super) memory: UserMem,
    pub(super) get: bool,
    pub(super) op: Key,
    /// It may begin after its call.
    pub(super) later: bool,
}

/// What a part finds of the unit that it goes to.
enum Found {
    /// It is held, and this piece of it has the first byte.
    Held(Grip, Reach),
    /// The part goes on when the owner has answered.
    Deferred,
    /// It cannot be pinned.
    Nothing,
}

/// What a question for a unit led to.
enum Asking {
    /// It is held, and has this piece.
    Held(Grip, Option<Reach>),
    /// The owner's answer will tell.
    Waits(Ticket),
    /// It cannot be asked for.
    Nothing,
}

impl Firehoses {
    /// A unit of `node` that a transfer holds, and its piece that has the byte at `addr`.
    fn held(&self, node: u32, unit: Unit, addr: u64) -> Option<(Grip, Option<Reach>)> {
        let (there, reaches) = self.holder.held_by(node, unit)?;
        Some((there, reaches.at(addr).copied()))
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
    /// Whether own memory is to stay pinned by units, as the calling thread sees it.
    fn keeps_own(&self, addr: u64, len: u64) -> bool {
        let home = self.pinning.home.as_ref();
        home.is_some_and(|h| h.keeps(addr, len))
    }

    /// Pins the first bytes of own memory: the unit, and how many, or `None` where the message has to pin them. Without a value
    /// nothing is free; `Err` where no more memory can be pinned.
    pub(super) fn pin_own(
        &mut self,
        addr: u64,
        len: u64,
    ) -> Option<Result<Option<(Unit, u64)>, ()>> {
        match self.pinning.home.as_mut()?.take(addr, len) {
            Ok(here) => Some(Ok(here)),
            Err(OwnError::Busy) => None,
            // It may be read and not written.
            Err(OwnError::Refused {
                refusal: Refusal::Unmapped,
                ..
            }) => Some(Ok(None)),
            Err(_) => Some(Err(())),
        }
    }

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
        let (shape, later) = (self.shape(), self.may_defer(rma));
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
                later,
            };
            done += self.transfer_part(part, unit)?;
        }
        Ok(())
    }

    /// Whether parts of an operation may begin after its call. A Long's payload is waited for, as a blocking call's data is.
    fn may_defer(&self, rma: &Rma) -> bool {
        let core = self.core.borrow();
        let longs = core.pinning.firehoses.as_ref().map(|f| f.longs);
        match rma.completion {
            Completion::Blocking => false,
            Completion::Part(key) => Some(key) != longs,
            Completion::Explicit | Completion::Implicit => true,
        }
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
        let rdma = !p.get || self.core.borrow().env.firehose.rdma_gets;
        let found = if rdma {
            self.hold(p, unit)
        } else {
            Found::Nothing
        };
        let (there, reach) = match found {
            Found::Held(there, reach) => (there, reach),
            Found::Deferred => return Ok(p.memory.len()),
            Found::Nothing => return self.copy(p, unit),
        };
        let within = reach.len - (p.addr - reach.base);
        p.memory = p.memory.part(0, within as usize);
        // What is taken from here on comes back by itself: others that have it wait for nothing.
        self.wait_in(what, Scope::Full, |c| {
            c.resources.take_tickets(1).then_some(())
        });
        let bounced = self.core.borrow_mut().bounce(p.get, p.memory);
        let chunk = self.check(what, bounced);
        let here = match chunk {
            Some(_) => None,
            None => match self.pin_here(p.memory) {
                Ok(here) => here,
                Err(()) => {
                    self.core.borrow_mut().resources.give_ticket();
                    self.give_back(p.node, there);
                    return self.copy(p, unit);
                }
            },
        };
        let started = self
            .core
            .borrow_mut()
            .start_part(&p, (there, &reach), chunk, here);
        Ok(self.check(what, started))
    }

    /// A part that cannot be pinned goes by copies.
    fn copy(&self, p: Part, unit: Unit) -> Result<usize, RmaError> {
        if self.defer(p, unit, Stage::COPIES) {
            return Ok(p.memory.len());
        }
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

    /// Keeps a part for later, if its call need not wait; whether it did.
    fn defer(&self, p: Part, unit: Unit, stage: Stage) -> bool {
        if !p.later {
            return false;
        }
        let (addr, len) = (p.memory.addr(), p.memory.len() as u64);
        let lent = p.memory.lending != 0;
        let stays = !lent && self.core.borrow().keeps_own(addr, len);
        if !lent && !stays {
            self.leave_own_stack();
        }
        let kept = self.core.borrow_mut().defer(p, unit, (stage, stays));
        let deferred = self.check("a put or get", kept);
        if deferred {
            self.flush_pinning();
        }
        deferred
    }

    /// Holds the unit of a part, or keeps the part until its owner has answered.
    #[inline]
    fn hold(&self, p: Part, unit: Unit) -> Found {
        for anew in [false, true] {
            let (there, reach) = match self.ask(p.node, unit, p.addr) {
                Asking::Held(there, reach) => (there, reach),
                Asking::Waits(ticket) => {
                    if self.defer(p, unit, Stage::Asked { ticket, anew }) {
                        return Found::Deferred;
                    }
                    match self.await_unit(&p, unit, ticket) {
                        Some(held) => held,
                        None => return Found::Nothing,
                    }
                }
                Asking::Nothing => return Found::Nothing,
            };
            if let Some(reach) = reach {
                return Found::Held(there, reach);
            }
            let mut core = self.core.borrow_mut();
            let Some(firehoses) = core.pinning.firehoses.as_mut() else {
                return Found::Nothing;
            };
            if !anew {
                // Memory may have come to the unit since it was pinned.
                firehoses.holder.renew(p.node, unit);
            }
            firehoses.release_there(p.node, there);
        }
        Found::Nothing
    }

    /// Asks for a unit of a peer, and for the piece of it that has the byte at `addr`.
    #[inline]
    fn ask(&self, node: u32, unit: Unit, addr: u64) -> Asking {
        let mut core = self.core.borrow_mut();
        let Some(firehoses) = core.pinning.firehoses.as_mut() else {
            return Asking::Nothing;
        };
        if let Some((there, reaches)) = firehoses.holder.hit(node, unit) {
            return Asking::Held(there, reaches.at(addr).copied());
        }
        let ticket = firehoses.ticket();
        match firehoses.holder.ask(node, Span::one(unit), ticket) {
            Ok(Asked::Ready) => match firehoses.held(node, unit, addr) {
                Some((there, reach)) => Asking::Held(there, reach),
                None => Asking::Nothing,
            },
            Ok(Asked::Waits) => Asking::Waits(ticket),
            Err(_) => Asking::Nothing,
        }
    }

    /// Waits for the owner's answer; `None` when nothing of the unit can be pinned.
    fn await_unit(&self, p: &Part, unit: Unit, ticket: Ticket) -> Option<(Grip, Option<Reach>)> {
        let pinned = self.wait_for_peer("pinning", Some(p.node), |c| {
            c.pinning.firehoses.as_mut()?.outcomes.remove(&ticket)
        });
        let core = self.core.borrow();
        let firehoses = core.pinning.firehoses.as_ref().filter(|_| pinned)?;
        firehoses.held(p.node, unit, p.addr)
    }

    /// Pins the first bytes of local memory: the unit, and how many. `Ok(None)` where the fabric pins for each message,
    /// `Err` where no more memory can be pinned.
    pub(crate) fn pin_here(&self, memory: UserMem) -> Result<Option<(Unit, u64)>, ()> {
        let (addr, len) = (memory.addr(), memory.len() as u64);
        if !self.core.borrow().keeps_own(addr, len) {
            self.leave_own_stack();
            return Ok(None);
        }
        self.wait_flushing(|c| c.pin_own(addr, len))
    }

    /// See [`super::home::Home::leave_own_stack`].
    fn leave_own_stack(&self) {
        if let Some(home) = &mut self.core.borrow_mut().pinning.home {
            home.leave_own_stack();
        }
        self.mind_elsewhere();
    }
}
