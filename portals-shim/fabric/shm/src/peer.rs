//! What one rank keeps for another: both ends of their rings, what waits for room, what arrives in parts.

use super::attach::{CopyError, There};
use super::bulk::Bulk;
use super::cell::{self, HEAD, INLINE, INLINE_AT, Kind, Prefix, SHORT_AT};
use super::fault::OnFault;
use super::is_dead;
use super::layout::{Identity, Ring};
use super::map::{Cursor, Map};
use super::onesided::Table;
use super::ring::{Consumer, Order, Producer};
use super::waiting::Waiting;
use fabric_api::expected::Expected;
use portals_core::{Header, OpId, ProcessId, Segment, Segments};
use smallvec::SmallVec;

/// Cells that a sender asks for before it writes them: the reader had each of them last, and getting it back takes as
/// long as several messages.
const AHEAD: u32 = 8;

/// What happens when the memory of an outgoing message is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    Send(OpId),
    Reply(OpId),
}

/// The data of an outgoing message.
#[derive(Clone, Debug)]
pub(super) enum Load {
    /// In a descriptor, until the operation ends.
    Pieces(Segments),
    /// A copy.
    Bytes(SmallVec<[u8; 64]>),
}

impl Load {
    pub(super) fn none() -> Self {
        Self::Bytes(SmallVec::new())
    }
}

/// A message, as far as it has not been written to the ring.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    pub(super) header: Option<Header>,
    pub(super) load: Load,
    /// Bytes of the load.
    pub(super) len: u64,
    /// Bytes of it that are in the ring.
    pub(super) sent: u64,
    pub(super) token: u32,
    pub(super) failed: bool,
    pub(super) absent: bool,
    pub(super) refused: bool,
    pub(super) after: After,
}

impl Outgoing {
    /// A message that carries its data.
    pub(super) fn message(header: Header, load: Load, after: After) -> Self {
        Self {
            kind: Kind::Message,
            len: header.payload_len(),
            header: Some(header),
            load,
            sent: 0,
            token: 0,
            failed: false,
            absent: false,
            refused: false,
            after,
        }
    }

    /// Whether a part of it is in the ring.
    pub(super) fn is_begun(&self) -> bool {
        self.sent > 0
    }
}

/// A message that arrives in parts.
#[derive(Debug)]
pub(super) struct Stream {
    /// None: the message was dropped, or is not kept.
    pub(super) op: Option<OpId>,
    pub(super) segments: Segments,
    /// Bytes to keep.
    pub(super) keep: u64,
    /// Bytes that have come.
    pub(super) done: u64,
    /// Bytes that will have come.
    pub(super) total: u64,
}

/// A message whose data the kernel did not copy from the peer, which will send it.
#[derive(Debug)]
pub(super) struct Awaited {
    /// Of the RTS.
    pub(super) token: u32,
    pub(super) op: OpId,
    pub(super) segments: Segments,
    /// Bytes to keep.
    pub(super) keep: u64,
    /// Bytes that will come.
    pub(super) total: u64,
}

#[derive(Debug)]
pub(super) struct Peer {
    pub(super) id: ProcessId,
    /// User and job, as told at the start.
    pub(super) who: (u32, u32),
    /// Its number here, if it has one.
    pub(super) pid: Option<i32>,
    /// Its memory, while the kernel copies between it and this process.
    pub(super) there: Option<There>,
    /// It can read this process's memory, as far as is known.
    pub(super) attaches: bool,
    /// RTS of ours whose ATS has not come.
    pub(super) rndv_sends: u32,
    /// The ring to it, and the one from it.
    pub(super) to: Ring,
    pub(super) from: Ring,
    /// How its sleeps are ordered with what this rank writes.
    pub(super) order: Order,
    /// It knows that this rank writes to it.
    pub(super) met: bool,
    /// Its number is another's.
    ended: bool,
    /// It is dead or has closed.
    pub(super) gone: bool,
    pub(super) waiting: Waiting,
    out: Producer,
    bulk: Bulk,
    pub(super) arriving: Consumer,
    pub(super) stream: Option<Stream>,
    pub(super) awaited: Vec<Awaited>,
    pub(super) table: Table,
    /// Requests whose answer has not come; kept where peers are given up one by one.
    pub(super) expected: Expected,
    /// Words and cells of it that made no sense.
    pub(super) nonsense: u64,
    /// The numbers of this rank and of the peer, for whoever says so.
    ranks: (usize, usize),
    on_fault: OnFault,
}

impl Peer {
    pub(super) fn new(
        id: ProcessId,
        who: Identity,
        (ranks, on_fault): ((usize, usize), OnFault),
        pid: Option<i32>,
        (cells, bulk): (u32, u32),
        (to, from): (Ring, Ring),
    ) -> Self {
        Self {
            id,
            who: (who.uid, who.jid),
            pid,
            ranks,
            on_fault,
            there: None,
            attaches: false,
            rndv_sends: 0,
            to,
            from,
            order: Order::Both,
            met: false,
            ended: false,
            gone: false,
            waiting: Waiting::new(cells),
            out: Producer::new(cells),
            bulk: Bulk::new(bulk),
            arriving: Consumer::new(cells),
            stream: None,
            awaited: Vec::new(),
            table: Table::default(),
            expected: Expected::default(),
            nonsense: 0,
        }
    }

    /// Learns from what the kernel has said whether it still copies between the two.
    pub(super) fn believe(&mut self, copied: &Result<(), CopyError>) {
        match copied {
            Ok(()) | Err(CopyError::Memory(_) | CopyError::Own(_)) => {}
            Err(error) => {
                tracing::debug!(%error, peer = %self.id.pid, "long messages of this peer are copied twice");
                self.there = None;
                if matches!(error, CopyError::Stranger(_)) {
                    // Its number is another's, so it has ended; nobody is asked about it any more.
                    self.pid = None;
                    self.ended = true;
                }
            }
        }
    }

    /// Whether it is proven to have ended.
    pub(super) fn is_dead(&self) -> bool {
        self.ended || is_dead(self.pid)
    }

    /// Learns how far the peer is.
    fn look(&mut self, map: &Map, ring: Ring) {
        let before = self.out.seen();
        match self.out.look(&ring.words(map)) {
            Ok(now) if now != before => {
                let last = now.wrapping_sub(1) as usize & (self.bulk.marks.len().max(1) - 1);
                if let Some(mark) = self.bulk.marks.get(last) {
                    self.bulk.freed = *mark;
                }
            }
            Ok(_) => {}
            Err(error) => {
                let first = self.nonsense == 0;
                self.nonsense += 1;
                let what = format_args!("has written a word that makes no sense ({error})");
                self.on_fault.found(self.ranks, &what, first);
            }
        }
    }

    /// Whether everything sent to the peer has had its effect there. Data whose ATS has not come may yet have to be sent.
    pub(super) fn is_settled(&mut self, map: &Map, ring: Ring) -> bool {
        if !self.waiting.is_empty() || self.rndv_sends != 0 {
            return false;
        }
        if self.out.seen() != self.out.position() {
            self.look(map, ring);
        }
        self.out.seen() == self.out.position()
    }

    /// Writes a put in the short form. `false`, and nothing has happened, if it has none, or there is no room.
    #[inline]
    pub(super) fn write_short(
        &mut self,
        map: &Map,
        ring: Ring,
        header: &Header,
        payload: &[Segment],
    ) -> bool {
        let Some((head, len)) = cell::encode_short(header) else {
            return false;
        };
        if self.out.room().is_none() {
            self.look(map, ring);
        }
        let Some(index) = self.out.room() else {
            return false;
        };
        let cell = ring.cell(index);
        map.write(cell::head_at(cell), &head);
        map.gather(cell + SHORT_AT, &mut Cursor::new(payload, 0), len);
        // Without marks nothing has ever been in the bulk area.
        if let Some(mark) = self.bulk.marks.get_mut(index as usize) {
            *mark = self.bulk.next;
        }
        self.out.publish(&ring.words(map));
        if let Some(later) = self.out.room_after(AHEAD) {
            map.prepare_write(ring.line(later));
        }
        true
    }

    /// Before sleeping with something that waits for room: the peer shall ring when there is some.
    pub(super) fn starve(&self, map: &Map, ring: Ring) {
        Producer::starve(&ring.words(map));
    }

    /// Writes what waits, as much as the ring takes of it, and gives the message of which that was all.
    pub(super) fn write_waiting(
        &mut self,
        map: &Map,
        ring: Ring,
        wrote: &mut bool,
    ) -> Option<Outgoing> {
        let mut m = self.waiting.pop()?;
        if !self.write(map, ring, &mut m, wrote) {
            self.waiting.put_back(m);
            return None;
        }
        self.waiting.written(&m);
        Some(m)
    }

    /// Writes as much of a message as the ring takes. `true`: all of it. `wrote` becomes true if anything was
    /// published.
    pub(super) fn write(
        &mut self,
        map: &Map,
        ring: Ring,
        m: &mut Outgoing,
        wrote: &mut bool,
    ) -> bool {
        loop {
            let index = match self.out.room() {
                Some(index) => index,
                None => {
                    self.look(map, ring);
                    match self.out.room() {
                        Some(index) => index,
                        None => return false,
                    }
                }
            };
            let left = m.len - m.sent;
            let first = m.sent == 0;
            let mut prefix = Prefix::of(if first { m.kind } else { Kind::More });
            (prefix.token, prefix.failed) = (m.token, m.failed);
            (prefix.absent, prefix.refused) = (m.absent, m.refused);
            let mut bulk_next = self.bulk.next;
            let cell = ring.cell(index);
            let (at, part) = if left <= INLINE as u64 {
                prefix.inline = left as u16;
                (cell + INLINE_AT, left as u32)
            } else {
                let part = left.min(u64::from(ring.part())) as u32;
                let room = self.bulk.room(part).or_else(|| {
                    self.look(map, ring);
                    self.bulk.room(part)
                });
                let Some((offset, next)) = room else {
                    return false;
                };
                // An offset of the own account is within the area.
                let Some(at) = ring.bulk(offset, part) else {
                    return false;
                };
                (prefix.bulk_at, prefix.bulk_len, bulk_next) = (offset, part, next);
                (at, part)
            };
            let head: [u8; HEAD] = cell::encode(&prefix, m.header.as_ref().filter(|_| first));
            map.write(cell::head_at(cell), &head);
            match &m.load {
                Load::Pieces(pieces) => {
                    map.gather(at, &mut Cursor::new(pieces, m.sent), part as usize);
                }
                Load::Bytes(bytes) => {
                    let from = (m.sent as usize).min(bytes.len());
                    let to = (from + part as usize).min(bytes.len());
                    map.write(at, &bytes[from..to]);
                }
            }
            if self.bulk.marks.is_empty() {
                self.bulk.marks = vec![0; ring.cells() as usize];
            }
            self.bulk.marks[index as usize] = bulk_next;
            self.bulk.next = bulk_next;
            self.out.publish(&ring.words(map));
            *wrote = true;
            m.sent += u64::from(part);
            if m.sent >= m.len {
                return true;
            }
        }
    }
}
