//! What a cell from a peer does.

use super::Core;
use super::attach::{self, CopyError, Way};
use super::cell::{
    self, CellError, Ends, HEAD, INLINE, INLINE_AT, Kind, Prefix, SHORT, SHORT_AT, SHORT_HEAD,
};
use super::fault::OnFault;
use super::layout::{Ring, State};
use super::map::{Cursor, Map};
use super::peer::{After, Awaited, Load, Outgoing, Stream};
use crate::trusted::MEMORY;
use portals_core::{Body, Header, Incoming, Ni, NiFail, OpId, Segment, Segments};
use smallvec::SmallVec;

/// Cells that a reader asks for before it looks at them, while one is there after the other: more, or asked for while there
/// is none, would take them from their writer.
const BEHIND: u32 = 3;

/// The most messages of a peer whose data it is to send after all. It learns with the first of them that it must, and
/// has no more under way than its ring has cells.
const MOST_AWAITED: usize = 1024;

/// Data in shared memory, within its area.
#[derive(Clone, Copy, Debug)]
struct Part {
    at: usize,
    len: usize,
}

impl Core {
    /// Handles what a peer has written, at most a ring full of it, and nothing while the peer is owed enough; returns whether
    /// anything was handled.
    #[inline]
    pub(super) fn drain(&mut self, map: &Map, ni: &mut Ni, rank: usize) -> bool {
        let peer = &self.peers[rank];
        let ring = peer.from;
        let ready = peer.arriving.ready(&ring.words(map));
        match ready.filter(|_| !peer.waiting.owes_enough()) {
            Some(first) => {
                self.drain_from(map, ni, rank, ring, first);
                true
            }
            None => {
                if !peer.arriving.is_told() {
                    self.tell(map, rank, ring, true);
                }
                false
            }
        }
    }

    fn drain_from(&mut self, map: &Map, ni: &mut Ni, rank: usize, ring: Ring, first: u32) {
        let (mut count, mut index) = (0, first);
        loop {
            self.handle_cell(map, ni, rank, ring, index);
            let peer = &mut self.peers[rank];
            let arriving = &mut peer.arriving;
            arriving.release();
            count += 1;
            if count == ring.cells() || peer.waiting.owes_enough() {
                break;
            }
            match arriving.ready(&ring.words(map)) {
                Some(next) => {
                    index = next;
                    map.prepare_read(ring.line(next.wrapping_add(BEHIND)));
                }
                None => break,
            }
            // A peer that waits for room need not wait for all.
            if count & (ring.cells() / 4 - 1) == 0 {
                self.tell(map, rank, ring, false);
            }
        }
        self.tell(map, rank, ring, false);
    }

    #[inline]
    fn tell(&mut self, map: &Map, rank: usize, ring: Ring, idle: bool) {
        let peer = &mut self.peers[rank];
        let order = peer.order;
        if peer.arriving.tell(&ring.words(map), idle, order) {
            self.ring(map, rank, order);
        }
    }

    /// A cell cannot be read, or claims another sender.
    #[cold]
    pub(super) fn bad(&mut self, rank: usize, why: &dyn std::fmt::Display) {
        let first = self.peers[rank].nonsense == 0;
        self.peers[rank].nonsense += 1;
        self.counters.bad_cells += 1;
        let what = format_args!("has written a message that makes no sense ({why})");
        self.on_fault.found((self.rank, rank), &what, first);
    }

    #[inline]
    fn handle_cell(&mut self, map: &Map, ni: &mut Ni, rank: usize, ring: Ring, index: u32) {
        let cell = ring.cell(index);
        // The short form is all that most cells have; what follows of the others is read after it.
        let mut short = [0; SHORT_HEAD];
        map.read(cell::head_at(cell), &mut short);
        if short[0] == Kind::Short as u8 {
            return self.short(map, ni, rank, cell, &short);
        }
        let mut head = [0; HEAD];
        head[..SHORT_HEAD].copy_from_slice(&short);
        map.read(cell::head_at(cell) + SHORT_HEAD, &mut head[SHORT_HEAD..]);
        let prefix = match cell::decode(&head) {
            Ok(prefix) => prefix,
            Err(error) => return self.bad(rank, &error),
        };
        let part = if prefix.bulk_len == 0 {
            let len = usize::from(prefix.inline);
            Part {
                at: cell + INLINE_AT,
                len,
            }
        } else if let Some(at) = ring.bulk(prefix.bulk_at, prefix.bulk_len) {
            let len = prefix.bulk_len as usize;
            Part { at, len }
        } else {
            return self.bad(rank, &"data outside the ring");
        };
        if prefix.kind != Kind::More {
            self.cut_off(map, ni, rank);
        }
        match prefix.kind {
            Kind::Message | Kind::ReadyToSend => {
                let header = match cell::header(&head) {
                    Ok(header) => header,
                    Err(error) => return self.bad(rank, &error),
                };
                let peer = &self.peers[rank];
                if header.source != peer.id || (header.uid, header.jid) != peer.who {
                    return self.bad(rank, &"a message in another process's name");
                }
                if self.on_fault == OnFault::GiveUp {
                    self.peers[rank].expected.answered(&header);
                }
                if prefix.kind == Kind::Message {
                    self.message(map, ni, rank, &header, part);
                } else {
                    self.handle_rts(map, ni, rank, &header, &prefix, part);
                }
            }
            Kind::More => self.more(map, ni, rank, part),
            Kind::AckToSend => self.handle_ats(map, ni, rank, &prefix),
            Kind::Resent => self.resent(map, ni, rank, &prefix, part),
            // Has been seen to.
            Kind::Short => {}
        }
    }

    /// A message begins: one that is not complete will never be.
    #[inline]
    fn cut_off(&mut self, map: &Map, ni: &mut Ni, rank: usize) {
        if self.peers[rank].stream.is_some() {
            self.end_stream(map, ni, rank);
        }
    }

    #[cold]
    fn end_stream(&mut self, map: &Map, ni: &mut Ni, rank: usize) {
        if let Some(cut) = self.peers[rank].stream.take() {
            self.bad(rank, &"a message was cut off");
            self.end_deposit(map, ni, rank, cut.op, NiFail::FAIL);
        }
    }

    /// A put in the short form.
    #[inline]
    fn short(&mut self, map: &Map, ni: &mut Ni, rank: usize, cell: usize, head: &[u8; SHORT_HEAD]) {
        let inline = u16::from_le_bytes([head[2], head[3]]);
        let len = usize::from(inline);
        if len > SHORT {
            return self.bad(rank, &CellError::Inline(inline));
        }
        self.cut_off(map, ni, rank);
        let peer = &self.peers[rank];
        let ends = Ends {
            source: peer.id,
            target: ni.config().id,
            who: peer.who,
        };
        let header = cell::decode_short(head, inline, ends);
        let at = cell + SHORT_AT;
        self.whole_put(map, ni, rank, &header, Part { at, len });
    }

    /// A put with all its data.
    #[inline]
    fn whole_put(&mut self, map: &Map, ni: &mut Ni, rank: usize, header: &Header, part: Part) {
        let taken = ni.deposit_put(header, |places, length| {
            let keep = part.len.min(usize::try_from(length).unwrap_or(usize::MAX));
            map.scatter(part.at, &mut Cursor::new(places, 0), keep);
            NiFail::OK
        });
        if let Some(ack) = taken.and_then(|t| t.ack) {
            self.acknowledge(map, ni, rank, ack);
        }
    }

    #[inline(never)]
    fn acknowledge(&mut self, map: &Map, ni: &mut Ni, rank: usize, ack: Header) {
        let ack = Outgoing::message(ack, Load::none(), After::Nothing);
        self.post(map, ni, rank, ack);
    }

    /// A deposit is over; sends the ack that is due.
    fn end_deposit(&mut self, map: &Map, ni: &mut Ni, rank: usize, op: Option<OpId>, fail: NiFail) {
        if let Some(ack) = op.and_then(|op| ni.deposit_end(op, fail)) {
            let ack = Outgoing::message(ack, Load::none(), After::Nothing);
            self.post(map, ni, rank, ack);
        }
    }

    /// A header, and the first part of its data.
    #[inline]
    fn message(&mut self, map: &Map, ni: &mut Ni, rank: usize, header: &Header, part: Part) {
        let total = header.payload_len();
        if part.len as u64 > total {
            return self.bad(rank, &"more data than the header says");
        }
        let whole = part.len as u64 == total;
        if whole && matches!(header.body, Body::Put { .. }) {
            return self.whole_put(map, ni, rank, header, part);
        }
        let rest = |op, segments, keep| Stream {
            op,
            segments,
            keep,
            done: part.len as u64,
            total,
        };
        match ni.handle_header(header) {
            Incoming::Deposit(d) => {
                let keep = part.len.min(d.length as usize);
                map.scatter(part.at, &mut Cursor::new(&d.segments, 0), keep);
                if whole {
                    self.end_deposit(map, ni, rank, Some(d.op), NiFail::OK);
                } else {
                    self.peers[rank].stream = Some(rest(Some(d.op), d.segments, d.length));
                }
            }
            Incoming::Reply(r) => {
                self.send_pieces(map, ni, rank, r.header, r.segments, After::Reply(r.op));
            }
            Incoming::Swap(s) => {
                let length = s.length as usize;
                let mut old: SmallVec<[u8; 64]> = SmallVec::from_elem(0, length);
                MEMORY.gather_into(&s.segments, &mut old);
                let fail = if part.len >= length {
                    map.scatter(part.at, &mut Cursor::new(&s.segments, 0), length);
                    NiFail::OK
                } else {
                    NiFail::FAIL
                };
                ni.swap_end(s.op, fail);
                if !whole {
                    self.peers[rank].stream = Some(rest(None, Segments::new(), 0));
                }
                let reply = Outgoing::message(s.header, Load::Bytes(old), After::Nothing);
                self.post(map, ni, rank, reply);
            }
            Incoming::Acked | Incoming::Dropped(_) => {
                if !whole {
                    self.peers[rank].stream = Some(rest(None, Segments::new(), 0));
                }
            }
        }
    }

    /// A further part.
    fn more(&mut self, map: &Map, ni: &mut Ni, rank: usize, part: Part) {
        let Some(s) = &mut self.peers[rank].stream else {
            return self.bad(rank, &"a part of no message");
        };
        let len = part.len as u64;
        if len == 0 || len > s.total - s.done {
            let op = s.op;
            self.peers[rank].stream = None;
            self.bad(rank, &"a part that is too long");
            return self.end_deposit(map, ni, rank, op, NiFail::FAIL);
        }
        let keep = len.min(s.keep.saturating_sub(s.done));
        let mut to = Cursor::new(&s.segments, s.done.min(s.keep));
        map.scatter(part.at, &mut to, keep as usize);
        s.done += len;
        if s.done == s.total {
            let op = s.op;
            self.peers[rank].stream = None;
            self.end_deposit(map, ni, rank, op, NiFail::OK);
        }
    }

    /// A header whose data the kernel is to copy from the peer.
    fn handle_rts(
        &mut self,
        map: &Map,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        prefix: &Prefix,
        part: Part,
    ) {
        let mut bytes = [0; INLINE];
        let bytes = &mut bytes[..part.len.min(INLINE)];
        map.read(part.at, bytes);
        let places = cell::read_pieces(bytes);
        let (mut refused, mut absent) = (false, false);
        let (op, fail) = match ni.handle_header(header) {
            Incoming::Deposit(d) => match self.fetch(map, rank, &d.segments, &places, d.length) {
                Ok(()) => (Some(d.op), NiFail::OK),
                Err(error @ (CopyError::Memory(_) | CopyError::Own(_) | CopyError::Closed)) => {
                    tracing::error!(%error, peer = rank, "the operation fails");
                    absent = matches!(error, CopyError::Memory(_));
                    (Some(d.op), attach::failure(&error))
                }
                Err(_) if self.peers[rank].awaited.len() >= MOST_AWAITED => {
                    (Some(d.op), NiFail::FAIL)
                }
                Err(_) => {
                    refused = true;
                    self.peers[rank].awaited.push(Awaited {
                        token: prefix.token,
                        op: d.op,
                        segments: d.segments,
                        keep: d.length,
                        total: header.payload_len(),
                    });
                    (None, NiFail::OK)
                }
            },
            // No RTS is of a get or an exchange; a peer that sends one gets nothing.
            Incoming::Reply(r) => {
                ni.reply_end(r.op, NiFail::FAIL);
                (None, NiFail::FAIL)
            }
            Incoming::Swap(s) => {
                ni.swap_end(s.op, NiFail::FAIL);
                (None, NiFail::FAIL)
            }
            Incoming::Acked | Incoming::Dropped(_) => (None, NiFail::OK),
        };
        // Before the ack: SEND_END precedes ACK.
        let done = Outgoing {
            kind: Kind::AckToSend,
            header: None,
            load: Load::none(),
            len: 0,
            sent: 0,
            token: prefix.token,
            failed: fail != NiFail::OK,
            absent,
            refused,
            after: After::Nothing,
        };
        self.post(map, ni, rank, done);
        self.end_deposit(map, ni, rank, op, fail);
    }

    /// Has the kernel copy from a peer, as long as it does. Memory of a peer that has closed by then may have had another purpose.
    fn fetch(
        &mut self,
        map: &Map,
        rank: usize,
        to: &[Segment],
        from: &[Segment],
        len: u64,
    ) -> Result<(), CopyError> {
        let peer = &mut self.peers[rank];
        let Some(there) = peer.there else {
            return Err(CopyError::Refused(std::io::ErrorKind::Unsupported.into()));
        };
        let copied = attach::copy(Way::Read, &there, to, from, len);
        peer.believe(&copied);
        match self.layout.block(rank).state(map) {
            State::Closed => copied.and(Err(CopyError::Closed)),
            _ => copied,
        }
    }

    /// The first part of what the kernel did not copy from the peer.
    fn resent(&mut self, map: &Map, ni: &mut Ni, rank: usize, prefix: &Prefix, part: Part) {
        let awaited = &mut self.peers[rank].awaited;
        let Some(at) = awaited.iter().position(|a| a.token == prefix.token) else {
            return self.bad(rank, &"data of no RTS");
        };
        let a = awaited.remove(at);
        self.peers[rank].stream = Some(Stream {
            op: Some(a.op),
            segments: a.segments,
            keep: a.keep,
            done: 0,
            total: a.total,
        });
        self.more(map, ni, rank, part);
    }

    /// A peer is done with data of ours.
    fn handle_ats(&mut self, map: &Map, ni: &mut Ni, rank: usize, prefix: &Prefix) {
        let token = prefix.token as usize;
        let slot = self.rndv_sends.get_mut(token);
        let Some(a) = slot.and_then(|slot| slot.take_if(|a| a.rank == rank)) else {
            return self.bad(rank, &"an ATS for no RTS");
        };
        self.spare_tokens.push(token);
        self.outstanding -= 1;
        let peer = &mut self.peers[rank];
        peer.rndv_sends = peer.rndv_sends.saturating_sub(1);
        if prefix.refused {
            peer.attaches = false;
            let resent = Outgoing {
                kind: Kind::Resent,
                token: prefix.token,
                ..Outgoing::message(a.header, Load::Pieces(a.data), a.after)
            };
            return self.post(map, ni, rank, resent);
        }
        let fail = match prefix {
            Prefix { failed: false, .. } => NiFail::OK,
            // Its data is memory of this process.
            Prefix { absent: true, .. } => NiFail::SEGV,
            Prefix { absent: false, .. } => NiFail::FAIL,
        };
        Self::end(ni, a.after, fail);
        if fail != NiFail::OK {
            peer.expected.forget(&a.header);
            fabric_api::delivery::fail_answer(ni, &a.header, fail);
        }
    }
}
