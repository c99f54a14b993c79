//! Parts of puts and gets that begin after their call returned, because a peer's answer is needed first.
//!
//! ```text
//!   a miss ─► Asked ── the owner's answer ──► Held ── ticket, local memory ──► a message (messages.rs)
//!               │ cannot be pinned              │ own memory cannot be pinned
//!               └──────────► Copied ◄───────────┘
//!                              └─ a Medium, its answer, the next one ─► done
//! ```
//!
//! Every call that may handle messages goes on with them ([`Conduit::flush_pinning`]).
//!
//! # Invariants
//!
//! 1. A part counts as a message of its operation until all messages of it have begun, so whoever waits for the operation waits
//!    for the part.
//! 2. Memory that is the caller's again when the call returns is in a chunk. Such chunks are at most a quarter of all, so a
//!    request for a unit finds one.
//! 3. A part that waits for a peer holds nothing but such a chunk. One that holds a unit waits for own messages alone.

use super::talk::COPY;
use super::transfer::Part;
use super::wire::Reach;
use crate::conduit::Conduit;
use crate::core::Core;
use crate::fault::Fault;
use crate::memory::UserMem;
use crate::resources::SbUse;
use ::firehose::{Asked, Grip, Span, Ticket, Unit};
use portals_shim::TimeLeft;
use std::collections::VecDeque;
use std::time::Duration;

/// Most parts that wait; the call of another waits itself.
const MOST: usize = 256;

/// What a part waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stage {
    /// The answer of the unit's owner; `anew` to a second request, for memory that came to the unit after the first.
    Asked { ticket: Ticket, anew: bool },
    /// A ticket and local memory, for a message to this piece.
    Held(Grip, Reach),
    /// Copies by the processors, of which so many bytes are done, and the answer to the next.
    Copied { done: usize, answer: Option<Ticket> },
}

impl Stage {
    /// Nothing is copied yet.
    pub(super) const COPIES: Self = Self::Copied {
        done: 0,
        answer: None,
    };

    /// The answer of the peer that is missing.
    fn awaited(&self) -> Option<Ticket> {
        match self {
            Self::Asked { ticket, .. } => Some(*ticket),
            Self::Copied { answer, .. } => *answer,
            Self::Held(..) => None,
        }
    }
}

/// A part that has not begun.
#[derive(Clone, Copy, Debug)]
struct Deferred {
    /// Its local memory is not touched if there is a chunk.
    part: Part,
    unit: Unit,
    /// Where the bytes of a put are whose memory is its caller's again.
    chunk: Option<u32>,
    /// Whether own memory is to stay pinned by units, as the calling thread saw it.
    stays: bool,
    stage: Stage,
}

/// All parts that have not begun, from the oldest on.
#[derive(Debug, Default)]
pub(super) struct Queue {
    parts: VecDeque<Deferred>,
    /// Chunks that they hold.
    chunks: usize,
    /// A copy is being sent.
    sending: bool,
    /// What is left of `GASNET_FIREHOSE_TIMEOUT` for the oldest answer that is awaited.
    time_left: Option<(Ticket, TimeLeft)>,
}

impl Queue {
    pub(super) fn any(&self) -> bool {
        !self.parts.is_empty()
    }
}

/// How far a part came.
enum Step {
    /// It waits as before.
    Waits(Deferred),
    /// It has come further.
    Went(Deferred),
    /// All of it has begun, or is done.
    Over,
}

/// A copy to be sent.
enum Copy {
    Store(Vec<u8>),
    Fetch(UserMem),
}

impl Core {
    /// Keeps a part for later; `false`, and nothing has happened, if its call has to wait. `stays`: own memory is to stay pinned by
    /// units.
    pub(super) fn defer(
        &mut self,
        part: Part,
        unit: Unit,
        (stage, stays): (Stage, bool),
    ) -> Result<bool, Fault> {
        let lent = part.memory.lending != 0;
        let fits = !part.get && self.env.bounces(false, part.memory.len());
        let Some(firehoses) = &mut self.pinning.firehoses else {
            return Ok(false);
        };
        let queue = &mut firehoses.deferred;
        let requests = self.resources.requests_mut();
        let room = queue.chunks < requests.count() / 4;
        if queue.parts.len() >= MOST || lent && !(fits && room) {
            return Ok(false);
        }
        let chunk = if lent {
            let Some(at) = requests.take(SbUse::Put) else {
                return Ok(false);
            };
            part.memory.copy_to(requests.region(), at as usize)?;
            queue.chunks += 1;
            Some(at)
        } else {
            None
        };
        queue.parts.push_back(Deferred {
            part,
            unit,
            chunk,
            stays,
            stage,
        });
        self.ops.begin(part.op, part.get);
        Ok(true)
    }

    /// Goes on with the parts that wait for nothing any more; whether there was one.
    fn resume_deferred(&mut self) -> Result<bool, Fault> {
        let mut any = false;
        for _ in 0..self.deferred().map_or(0, |parts| parts.len()) {
            let mut next = self.deferred().and_then(VecDeque::pop_front);
            while let Some(part) = next.take() {
                match self.step_deferred(part)? {
                    Step::Waits(part) => {
                        if let Some(parts) = self.deferred() {
                            parts.push_back(part);
                        }
                    }
                    Step::Went(part) => (any, next) = (true, Some(part)),
                    Step::Over => any = true,
                }
            }
        }
        Ok(any)
    }

    fn deferred(&mut self) -> Option<&mut VecDeque<Deferred>> {
        let firehoses = self.pinning.firehoses.as_mut()?;
        Some(&mut firehoses.deferred.parts)
    }

    fn step_deferred(&mut self, mut d: Deferred) -> Result<Step, Fault> {
        match d.stage {
            Stage::Asked { ticket, anew } => Ok(self.look_for_unit(d, ticket, anew)),
            Stage::Held(there, reach) => self.start_deferred(d, there, reach),
            Stage::Copied { answer: None, .. } => Ok(Step::Waits(d)),
            Stage::Copied {
                done,
                answer: Some(ticket),
            } => {
                let (node, addr, len) = (d.part.node, d.part.addr, d.part.memory.len());
                let answers = self.pinning.firehoses.as_mut().map(|f| &mut f.copied);
                match answers.and_then(|answers| answers.remove(&ticket)) {
                    None => Ok(Step::Waits(d)),
                    Some(false) => Err(Fault::Unmapped { node, addr, len }),
                    Some(true) if done + COPY < len => {
                        let done = done + COPY;
                        d.stage = Stage::Copied { done, answer: None };
                        Ok(Step::Went(d))
                    }
                    Some(true) => {
                        if let Some(at) = d.chunk {
                            self.resources.requests_mut().release(u64::from(at));
                        }
                        self.end_deferred(&d)
                    }
                }
            }
        }
    }

    /// Whether the owner has answered, and what.
    fn look_for_unit(&mut self, mut d: Deferred, ticket: Ticket, anew: bool) -> Step {
        let Part { node, addr, .. } = d.part;
        d.stage = Stage::COPIES;
        let Some(firehoses) = &mut self.pinning.firehoses else {
            return Step::Went(d);
        };
        let Some(pinned) = firehoses.outcomes.remove(&ticket) else {
            d.stage = Stage::Asked { ticket, anew };
            return Step::Waits(d);
        };
        let held = firehoses.holder.held_by(node, d.unit).filter(|_| pinned);
        let Some((there, reaches)) = held else {
            return Step::Went(d);
        };
        if let Some(reach) = reaches.at(addr).copied() {
            d.stage = Stage::Held(there, reach);
            return Step::Went(d);
        }
        if !anew {
            firehoses.holder.renew(node, d.unit);
        }
        firehoses.release_there(node, there);
        if !anew {
            self.ask_deferred(&mut d, true);
        }
        Step::Went(d)
    }

    /// Asks for the unit of a part that holds nothing.
    fn ask_deferred(&mut self, d: &mut Deferred, anew: bool) {
        d.stage = Stage::COPIES;
        let Some(firehoses) = &mut self.pinning.firehoses else {
            return;
        };
        let ticket = firehoses.ticket();
        let asked = firehoses.holder.ask(d.part.node, Span::one(d.unit), ticket);
        if let Ok(asked) = asked {
            if asked == Asked::Ready {
                firehoses.outcomes.insert(ticket, true);
            }
            d.stage = Stage::Asked { ticket, anew };
        }
    }

    /// Starts a message of the first bytes, to a unit that is held, if what it needs is free.
    fn start_deferred(
        &mut self,
        mut d: Deferred,
        there: Grip,
        reach: Reach,
    ) -> Result<Step, Fault> {
        let len = d.part.memory.len();
        let within = (reach.len - (d.part.addr - reach.base)).min(len as u64) as usize;
        if d.chunk.is_some() && within < len {
            return Ok(self.copy_instead(d, there));
        }
        if !self.resources.take_tickets(1) {
            return Ok(Step::Waits(d));
        }
        let memory = d.part.memory.part(0, within);
        let chunk = match d.chunk {
            None => self.bounce(d.part.get, memory)?,
            taken => taken,
        };
        let pinned = if chunk.is_some() || !d.stays {
            Some(Ok(None))
        } else {
            self.pin_own(memory.addr(), within as u64)
        };
        let Some(Ok(here)) = pinned else {
            self.resources.give_ticket();
            return Ok(match pinned {
                None => Step::Waits(d),
                Some(_) => self.copy_instead(d, there),
            });
        };
        let part = Part { memory, ..d.part };
        let n = self.start_part(&part, (there, &reach), chunk, here)?;
        if n == len {
            return self.end_deferred(&d);
        }
        d.part.addr += n as u64;
        d.part.memory = d.part.memory.part(n, len - n);
        self.ask_deferred(&mut d, false);
        Ok(Step::Went(d))
    }

    /// Gives the unit of a part back, which goes by copies.
    fn copy_instead(&mut self, mut d: Deferred, there: Grip) -> Step {
        if let Some(firehoses) = &mut self.pinning.firehoses {
            firehoses.release_there(d.part.node, there);
        }
        d.stage = Stage::COPIES;
        Step::Went(d)
    }

    /// All messages of a part have begun, or it is done.
    fn end_deferred(&mut self, d: &Deferred) -> Result<Step, Fault> {
        let firehoses = self.pinning.firehoses.as_mut();
        if let Some(firehoses) = firehoses.filter(|_| d.chunk.is_some()) {
            firehoses.deferred.chunks -= 1;
        }
        let bad = Fault::Malformed {
            node: self.ranks.me(),
            what: "the end of a part that did not begin",
        };
        self.ops.complete(d.part.op.index, d.part.get).ok_or(bad)?;
        Ok(Step::Over)
    }

    /// The next copy that is due: to whom, the address there, and the number of its answer.
    fn next_copy(&mut self) -> Result<Option<(Copy, u32, u64, Ticket)>, Fault> {
        let Some(firehoses) = self.pinning.firehoses.as_mut() else {
            return Ok(None);
        };
        if firehoses.deferred.sending {
            return Ok(None);
        }
        let ticket = firehoses.ticket();
        let due = |d: &&mut Deferred| matches!(d.stage, Stage::Copied { answer: None, .. });
        let Some(d) = firehoses.deferred.parts.iter_mut().find(due) else {
            return Ok(None);
        };
        let Stage::Copied { done, answer } = &mut d.stage else {
            return Ok(None);
        };
        *answer = Some(ticket);
        let memory = d.part.memory.part(*done, COPY);
        let copy = if d.part.get {
            Copy::Fetch(memory)
        } else {
            let mut data = vec![0; memory.len()];
            match d.chunk {
                Some(at) => {
                    let chunks = self.resources.requests().region();
                    chunks.read(at as usize + *done, &mut data)?;
                }
                None => memory.copy_to_slice(&mut data),
            }
            Copy::Store(data)
        };
        let (node, addr) = (d.part.node, d.part.addr + *done as u64);
        firehoses.copies += 1;
        firehoses.deferred.sending = true;
        Ok(Some((copy, node, addr, ticket)))
    }

    /// How long to wait before the oldest answer that is awaited is looked for again, or what is to be said of one that lasted too
    /// long. `None`: it may last as long as it likes.
    fn time_for_answers(&mut self) -> Option<(&'static str, Result<Option<Duration>, Fault>)> {
        let timeout = self.env.firehose.timeout?;
        let awaited = self.awaited_answer();
        let queue = &mut self.pinning.firehoses.as_mut()?.deferred;
        let before = queue.time_left.take();
        let (ticket, node, call) = awaited?;
        let (now, clock) = (self.ni.now(), self.ni.clock());
        let mut time = match before {
            Some((of, time)) if of == ticket => time,
            _ => TimeLeft::new(clock, now, timeout),
        };
        let left = time.at(now);
        if left.is_zero() {
            let seconds = timeout.as_secs_f64();
            return Some((call, Err(Fault::Unanswered { node, seconds })));
        }
        queue.time_left = Some((ticket, time));
        Some((call, Ok(Some(time.slice(left)))))
    }

    /// The peer whose answer the oldest part waits for that waits for one.
    fn awaited_answer(&self) -> Option<(Ticket, u32, &'static str)> {
        let parts = &self.pinning.firehoses.as_ref()?.deferred.parts;
        parts.iter().find_map(|d| {
            let call = match d.stage {
                Stage::Copied { .. } => "a copy",
                _ => "pinning",
            };
            Some((d.stage.awaited()?, d.part.node, call))
        })
    }
}

impl Conduit {
    /// Goes on with deferred parts, and sends the copies of those that cannot be pinned; whether there was anything to do.
    #[inline(never)]
    pub(super) fn resume_deferred(&self) -> bool {
        let resumed = self.core.borrow_mut().resume_deferred();
        let mut any = self.check("a put or get", resumed);
        loop {
            let next = self.core.borrow_mut().next_copy();
            let Some((copy, node, addr, ticket)) = self.check("a copy", next) else {
                self.check_answers();
                return any;
            };
            let sent = match copy {
                Copy::Store(data) => self.store_there(node, addr, &data, ticket),
                Copy::Fetch(memory) => self.fetch_from(node, addr, memory, ticket),
            };
            if let Err(error) = sent {
                tracing::error!(%error, "pinning");
            }
            if let Some(firehoses) = &mut self.core.borrow_mut().pinning.firehoses {
                firehoses.deferred.sending = false;
            }
            any = true;
        }
    }

    /// Ends the job if a peer leaves a part without an answer for `GASNET_FIREHOSE_TIMEOUT`, and sets when waits look again.
    fn check_answers(&self) {
        let looked = self.core.borrow_mut().time_for_answers();
        let (call, slice) = looked.unwrap_or(("pinning", Ok(None)));
        self.look_again.set(self.check(call, slice));
    }
}
