//! What ranks say to each other: requests for units and their answers, recalls, and copies of what cannot be pinned.
//!
//! The handlers are the conduit's own. Requests leave in calls of the program; whoever waits sends what there is to send first.

use super::edge::{load, store};
use super::{maps::Maps, wire};
use crate::am::{HandlerEntry, MAX_MEDIUM, Payload, Token};
use crate::conduit::Conduit;
use crate::error::{AmError, AttachError, RmaError};
use crate::fault::Fault;
use crate::memory::UserMem;
use ::firehose::{Ticket, Unit};

const MOVE: u8 = 8;
const MOVED: u8 = 9;
const RECALL: u8 = 10;
const STORE: u8 = 11;
const STORED: u8 = 12;
const FETCH: u8 = 13;
const FETCHED: u8 = 14;

/// Bytes that one copy carries.
pub(super) const COPY: usize = MAX_MEDIUM;

fn halves(n: u64) -> [i32; 2] {
    [(n as u32).cast_signed(), ((n >> 32) as u32).cast_signed()]
}

fn whole(args: &[i32], at: usize) -> Option<u64> {
    let (low, high) = (args.get(at)?, args.get(at + 1)?);
    Some(u64::from(low.cast_unsigned()) | u64::from(high.cast_unsigned()) << 32)
}

fn bad(token: &Token<'_>, what: &'static str) -> ! {
    let node = token.source();
    token
        .conduit()
        .fatal("pinning", &Fault::Malformed { node, what })
}

/// Runs a handler that says what a peer got wrong.
fn entry(
    index: u8,
    run: impl Fn(&mut Token<'_>, &mut [u8], &[i32]) -> Result<(), &'static str> + 'static,
) -> (u8, HandlerEntry) {
    let run = move |token: &mut Token<'_>, payload: Payload<'_>, args: &[i32]| {
        let done = match payload {
            Payload::Medium(bytes) => run(token, bytes, args),
            _ => run(token, &mut [], args),
        };
        if let Err(what) = done {
            bad(token, what);
        }
    };
    (index, HandlerEntry::new(index, run))
}

/// The handlers of pinning.
pub(super) fn handlers() -> Vec<(u8, HandlerEntry)> {
    vec![
        entry(MOVE, |token, bytes, _| {
            let m = wire::decode_move(bytes).ok_or("no request for units")?;
            let moved = {
                let core = &mut *token.conduit().core.borrow_mut();
                let (_, home) = core
                    .pinning
                    .both_sides()
                    .ok_or("a request for units in a job with segments")?;
                let (owner, mut pins) = home.pins();
                owner
                    .handle_move(token.source(), &m, &mut pins)
                    .map_err(|_| "a request for units that it may not make")?
            };
            let answers = moved.answers.iter();
            let answers = answers.map(|a| a.as_ref().map(|pin| &pin.reaches).map_err(|why| *why));
            let reply = wire::encode_moved(moved.number, answers);
            token
                .reply_medium(MOVED, &reply, &[])
                .map_err(|_| "an answer that cannot be sent")
        }),
        entry(MOVED, |token, bytes, _| {
            let moved = wire::decode_moved(bytes).ok_or("no answer about units")?;
            let core = &mut *token.conduit().core.borrow_mut();
            let firehoses = core
                .pinning
                .firehoses
                .as_mut()
                .ok_or("an answer about units in a job with segments")?;
            firehoses
                .holder
                .handle_moved(token.source(), moved)
                .map_err(|_| "an answer to no request")?;
            firehoses.collect();
            Ok(())
        }),
        entry(RECALL, |token, _, args| {
            let unit = whole(args, 0).ok_or("no unit")?;
            let core = &mut *token.conduit().core.borrow_mut();
            let firehoses = core
                .pinning
                .firehoses
                .as_mut()
                .ok_or("a recall in a job with segments")?;
            firehoses.holder.handle_recall(token.source(), Unit(unit));
            Ok(())
        }),
        entry(STORE, |token, bytes, args| {
            let addr = whole(args, 0).ok_or("no address")?;
            let there = token.maps(|maps| maps.holds(addr, bytes.len() as u64))?;
            if there {
                store(addr, bytes);
            }
            let ticket = args.get(2).copied().unwrap_or(0);
            token
                .reply_short(STORED, &[ticket, i32::from(there)])
                .map_err(|_| "an answer that cannot be sent")
        }),
        entry(STORED, |token, _, args| {
            let [ticket, there] = args else {
                return Err("no answer to a copy");
            };
            token.copied(ticket.cast_unsigned(), *there != 0)
        }),
        entry(FETCH, |token, _, args| {
            let addr = whole(args, 0).ok_or("no address")?;
            let len = usize::try_from(args.get(2).copied().unwrap_or(-1)).unwrap_or(usize::MAX);
            let ticket = args.get(3).copied().unwrap_or(0);
            let mut buffer = [0; COPY];
            let room = buffer.get_mut(..len).ok_or("a copy that is too long")?;
            let there = token.maps(|maps| maps.holds(addr, len as u64))?;
            if there {
                load(addr, room);
            }
            token
                .reply_medium(FETCHED, room, &[ticket, i32::from(there)])
                .map_err(|_| "an answer that cannot be sent")
        }),
        entry(FETCHED, |token, bytes, args| {
            let (Some(ticket), Some(there)) = (args.first(), args.get(1)) else {
                return Err("no answer to a copy");
            };
            let ticket = ticket.cast_unsigned();
            let landing = {
                let core = &mut *token.conduit().core.borrow_mut();
                let firehoses = core
                    .pinning
                    .firehoses
                    .as_mut()
                    .ok_or("an answer in a job with segments")?;
                firehoses.landings.remove(&ticket)
            };
            let Some(memory) = landing.filter(|m| m.len() == bytes.len()) else {
                return Err("an answer to no copy");
            };
            if *there != 0 {
                memory.fill(bytes);
            }
            token.copied(ticket, *there != 0)
        }),
    ]
}

impl Token<'_> {
    fn maps<R>(&self, look: impl FnOnce(&mut Maps) -> R) -> Result<R, &'static str> {
        let core = &mut *self.conduit().core.borrow_mut();
        let (_, home) = core
            .pinning
            .both_sides()
            .ok_or("a copy in a job with segments")?;
        Ok(look(&mut home.maps))
    }

    fn copied(&self, ticket: Ticket, there: bool) -> Result<(), &'static str> {
        let core = &mut *self.conduit().core.borrow_mut();
        let firehoses = core
            .pinning
            .firehoses
            .as_mut()
            .ok_or("an answer in a job with segments")?;
        firehoses.copied.insert(ticket, there);
        Ok(())
    }
}

impl super::Firehoses {
    /// Keeps what the holder says of waits for those who wait.
    pub(super) fn collect(&mut self) {
        while let Some(outcome) = self.holder.poll_outcome() {
            self.outcomes.insert(outcome.ticket, outcome.result.is_ok());
        }
    }
}

impl Conduit {
    pub(super) fn register_pinning(&self) -> Result<(), AttachError> {
        self.handlers.borrow_mut().register_own(handlers());
        Ok(())
    }

    /// Sends requests and recalls that are due, and goes on with what was deferred; whether there was any of these. To send may
    /// poll: who then waits looks first whether what it waits for has been handled. Not in handlers.
    #[inline]
    pub(crate) fn flush_pinning(&self) -> bool {
        self.mind_elsewhere();
        let (due, deferred) = {
            let pinning = &self.core.borrow().pinning;
            let recalls = || pinning.home.as_ref().is_some_and(|h| h.owner.has_recalls());
            match &pinning.firehoses {
                Some(f) => (f.holder.has_moves() || recalls(), f.deferred.any()),
                None => (recalls(), false),
            }
        };
        if due {
            self.flush_messages();
        }
        deferred && self.resume_deferred() || due
    }

    #[inline(never)]
    fn flush_messages(&self) {
        loop {
            let due = {
                let core = &mut *self.core.borrow_mut();
                let Some((firehoses, home)) = core.pinning.both_sides() else {
                    return;
                };
                match firehoses.holder.poll_move() {
                    Some(due) => Ok(due),
                    None => match home.owner.poll_recall() {
                        Some(recall) => Err(recall),
                        None => return,
                    },
                }
            };
            let sent = match due {
                Ok((to, m)) => self.am_request_medium(to, MOVE, &wire::encode_move(&m), &[]),
                Err((to, unit)) => self.am_request_short(to, RECALL, &halves(unit.0)),
            };
            if let Err(error) = sent {
                tracing::error!(%error, "pinning");
            }
        }
    }

    /// Sends the bytes of a copy, to be stored at `addr` of `node`.
    pub(super) fn store_there(
        &self,
        node: u32,
        addr: u64,
        data: &[u8],
        ticket: Ticket,
    ) -> Result<(), AmError> {
        let [low, high] = halves(addr);
        self.am_request_medium(node, STORE, data, &[low, high, ticket.cast_signed()])
    }

    /// Asks for the bytes of a copy at `addr` of `node`.
    pub(super) fn fetch_from(
        &self,
        node: u32,
        addr: u64,
        memory: UserMem,
        ticket: Ticket,
    ) -> Result<(), AmError> {
        if let Some(firehoses) = self.core.borrow_mut().pinning.firehoses.as_mut() {
            firehoses.landings.insert(ticket, memory);
        }
        let [low, high] = halves(addr);
        let args = [low, high, memory.len() as i32, ticket.cast_signed()];
        self.am_request_short(node, FETCH, &args)
    }

    /// Puts a piece by copies, where it cannot be pinned.
    pub(super) fn copy_out(&self, node: u32, addr: u64, memory: UserMem) -> Result<(), RmaError> {
        let mut done = 0;
        while done < memory.len() {
            let part = memory.part(done, COPY);
            let mut data = [0; COPY];
            let data = &mut data[..part.len()];
            part.copy_to_slice(data);
            let ticket = self.copy_ticket();
            self.store_there(node, addr + done as u64, data, ticket)
                .map_err(|_| RmaError::InHandler)?;
            self.copy_answer(node, addr, memory.len(), ticket)?;
            done += part.len();
        }
        Ok(())
    }

    /// Gets a piece by copies.
    pub(super) fn copy_in(&self, node: u32, addr: u64, memory: UserMem) -> Result<(), RmaError> {
        let mut done = 0;
        while done < memory.len() {
            let part = memory.part(done, COPY);
            let ticket = self.copy_ticket();
            self.fetch_from(node, addr + done as u64, part, ticket)
                .map_err(|_| RmaError::InHandler)?;
            self.copy_answer(node, addr, memory.len(), ticket)?;
            done += part.len();
        }
        Ok(())
    }

    fn copy_ticket(&self) -> Ticket {
        let mut core = self.core.borrow_mut();
        core.pinning.firehoses.as_mut().map_or(0, |f| {
            f.copies += 1;
            f.ticket()
        })
    }

    fn copy_answer(
        &self,
        node: u32,
        addr: u64,
        len: usize,
        ticket: Ticket,
    ) -> Result<(), RmaError> {
        let there = self.wait_for_peer("a copy", Some(node), |c| {
            c.pinning.firehoses.as_mut()?.copied.remove(&ticket)
        });
        if there {
            Ok(())
        } else {
            Err(RmaError::Unmapped { node, addr, len })
        }
    }
}
