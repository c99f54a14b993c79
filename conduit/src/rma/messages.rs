//! Puts and gets to segments that are pinned as a whole, by messages each of which waits for what it needs.
//!
//! The local side is, in this order: RARSRC when the memory is in the own segment, a chunk of ReqSB when it is small and one is
//! free, a temporary descriptor otherwise.

use super::op::Rma;
use super::temporary::TmpUse;
use crate::conduit::{Conduit, Scope};
use crate::core::{Core, GET_CHUNK_DATA};
use crate::fault::{Fault, refused};
use crate::matchbits::RmaBits;
use crate::memory::{Source, UserMem};
use crate::ops::Key;
use crate::resources::SbUse;
use ::firehose::Unit;
use portals_shim::{AckRequest, Put};

/// Largest single message, bytes.
const MAX_TRANSFER: usize = 1 << 31;

/// One message of a put or get.
#[derive(Clone, Copy, Debug)]
struct Piece {
    node: u32,
    /// Offset in the segment of `node`.
    remote: u64,
    local: Source,
    get: bool,
    op: Key,
    /// The caller waits until the memory is free.
    wait_local: bool,
}

/// Where a message finds its local memory, as [`Conduit::choose_local`] says.
#[derive(Clone, Copy, Debug)]
enum Local {
    /// In the own segment, at this offset.
    Segment(usize),
    /// In a chunk, if one is free when the message begins.
    Chunk(UserMem),
    /// Where it is: pinned by this unit, or for the message.
    Memory(UserMem, Option<Unit>),
}

/// How a piece reaches its local memory.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// By the descriptor of the own segment, at this offset.
    Segment(usize),
    /// By a copy to or from this chunk of ReqSB.
    Chunk(u32),
    /// By a descriptor of its own.
    Tmp(UserMem, Option<Unit>),
}

impl Core {
    /// Memory of the client that is in the own segment needs no descriptor of its own.
    pub(crate) fn locate(&self, source: Source) -> Source {
        let Source::User(memory) = source else {
            return source;
        };
        match self.own_offset(memory.addr(), memory.len()) {
            Some(offset) => Source::Segment {
                offset,
                len: memory.len(),
            },
            None => source,
        }
    }

    /// Starts a piece whose resources are in hand.
    fn start(&mut self, piece: &Piece, path: Path) -> Result<(), Fault> {
        let len = piece.local.len() as u64;
        let local_completion = piece.wait_local && matches!(path, Path::Segment(_)) && !piece.get;
        let bits = RmaBits {
            get: piece.get,
            local_completion,
            op: piece.op.index,
            implicit: self.ops.is_implicit(piece.op),
            chunk: if let Path::Chunk(at) = path { at } else { 0 },
        };
        let to = self.rar_target(piece.node, bits.encode(), piece.remote);
        let (md, offset) = match path {
            Path::Segment(offset) => {
                let rarsrc = self.attached.as_ref().map(|a| a.rarsrc);
                (rarsrc.unwrap_or(self.descriptors.reqsb), offset)
            }
            Path::Chunk(at) if piece.get => (self.descriptors.reqsb, at as usize + GET_CHUNK_DATA),
            Path::Chunk(at) => {
                self.copy_source(
                    &piece.local,
                    self.resources.requests().region(),
                    at as usize,
                )?;
                (self.descriptors.reqsb, at as usize)
            }
            Path::Tmp(memory, here) => {
                let what = if piece.get { TmpUse::Get } else { TmpUse::Put };
                if here.is_none() {
                    self.make_room(&memory);
                }
                let safe = self.descriptors.queues.safe;
                let md = self
                    .tmpmds
                    .bind(&self.ni, safe, &memory, (what, here))
                    .map_err(refused("PtlMDBind of client memory"))?;
                (md, 0)
            }
        };
        // Counted before the message exists: its completion cannot come first.
        self.ops.begin(piece.op, piece.get);
        if local_completion {
            self.ops.await_local_completion();
        }
        let region = (offset as u64, len);
        if piece.get {
            self.ni
                .get_region(md, region, to)
                .map_err(refused("PtlGetRegion"))
        } else if let Path::Tmp(..) = path {
            // Its descriptor is let go by the event that says that it was sent.
            self.ni
                .put_region(md, region, AckRequest::Ack, to, 0)
                .map_err(refused("PtlPutRegion"))
        } else {
            let put = Put::new(md, to).region(region.0, region.1);
            let posted = self.ni.post_put(put.ack(AckRequest::Ack).silent());
            if posted.map_err(refused("PtlPutRegion"))?.is_taken() {
                let _ = self.put_sent(matches!(path, Path::Chunk(_)), bits);
            }
            Ok(())
        }
    }
}

impl Conduit {
    /// Chooses where one message finds the first bytes of its local memory, and how many they are. Memory that is too long for a
    /// chunk is pinned by units, if the job keeps such memory pinned. `None`: there is no memory.
    #[inline]
    fn choose_local(&self, local: Source, get: bool) -> Option<(Source, Local)> {
        let memory = match local {
            Source::Empty | Source::Placed { .. } => return None,
            Source::Segment { offset, .. } => return Some((local, Local::Segment(offset))),
            Source::User(memory) => memory,
        };
        let (bounces, stays) = {
            let core = self.core.borrow();
            (
                core.env.bounces(get, memory.len()),
                core.pinning.keeps_own(),
            )
        };
        if bounces {
            return Some((local, Local::Chunk(memory)));
        }
        let (memory, here) = match stays.then(|| self.pin_here(memory)) {
            Some(Ok(Some((unit, n)))) => (memory.part(0, n as usize), Some(unit)),
            _ => (memory, None),
        };
        Some((Source::User(memory), Local::Memory(memory, here)))
    }

    /// Takes what a message with a ticket needs for its local memory.
    #[inline]
    fn take_path(&self, local: Local, get: bool) -> Path {
        let (memory, here) = match local {
            Local::Segment(offset) => return Path::Segment(offset),
            Local::Chunk(memory) => {
                let whose = if get {
                    SbUse::Get { to: memory }
                } else {
                    SbUse::Put
                };
                if let Some(at) = self.core.borrow_mut().resources.requests_mut().take(whose) {
                    return Path::Chunk(at);
                }
                (memory, None)
            }
            Local::Memory(memory, here) => (memory, here),
        };
        // Only SAFE events: a request handler could spend the ticket just taken.
        self.wait_in("a put or get", Scope::Safe, |c| {
            c.tmpmds.may_bind().then_some(())
        });
        Path::Tmp(memory, here)
    }

    /// Starts the messages of a put or get at offset `at` of the segment, which count on `key`.
    pub(super) fn start_messages(&self, op: &Rma, at: u64, key: Key) {
        let whole = self.core.borrow().locate(op.local);
        let len = whole.len();
        let mut done = 0;
        while done < len {
            let n = (len - done).min(MAX_TRANSFER);
            let Some((local, place)) = self.choose_local(whole.part(done, n), op.get) else {
                break;
            };
            let n = local.len();
            let piece = Piece {
                node: op.node,
                remote: at + done as u64,
                local,
                get: op.get,
                op: key,
                wait_local: op.buffered,
            };
            self.wait_in("a put or get", Scope::Full, |c| {
                c.resources.take_tickets(1).then_some(())
            });
            let path = self.take_path(place, op.get);
            let started = self.core.borrow_mut().start(&piece, path);
            self.check(op.name(), started);
            done += n;
        }
        if op.buffered {
            self.wait_in("a put or get", Scope::Full, |c| {
                c.ops.all_locally_complete().then_some(())
            });
        }
    }
}
