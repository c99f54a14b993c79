//! What a frame from a peer does.

use super::frame::{self, Body as FrameBody, Ends, FrameError, Kind, TOKEN};
use super::handshake::Stage;
use super::peer::{Late, Peer};
use super::proto::select::{self, Protocol};
use super::verbs::{After, Verbs};
use crate::trusted::MEMORY;
use portals_core::{Body, Header, Incoming, Ni, NiFail, Place, Segment};

pub(super) fn is_request(header: &Header) -> bool {
    matches!(
        header.body,
        Body::Put { .. } | Body::Get { .. } | Body::GetPut { .. }
    )
}

/// The data of a put as it lies in its frame.
struct Arrived<'a> {
    data: &'a [u8],
    fail: NiFail,
}

impl Place for Arrived<'_> {
    #[inline(always)]
    fn place(self, pieces: &[Segment], length: u64) -> NiFail {
        let keep = usize::try_from(length).map_or(self.data.len(), |l| l.min(self.data.len()));
        MEMORY.scatter(pieces, &self.data[..keep]);
        self.fail
    }
}

impl Verbs {
    /// Takes one frame of peer `rank`, or with an immediate value the data of a put without a header. What cannot be
    /// read is counted and dropped.
    pub(super) fn handle_frame(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        bytes: &[u8],
        immediate: Option<u32>,
    ) {
        let own = self.id;
        let Some(peer) = self.peer(rank) else {
            return;
        };
        // Without a handshake there are no frames.
        let Some(who) = peer.session.who else { return };
        let ends = Ends {
            target: own,
            source: peer.id,
            who,
        };
        // Made in its place, and not moved there from each way of reading it.
        let header;
        let (prefix, data) = match immediate {
            None => {
                let (prefix, body) = match frame::split(bytes) {
                    Ok((prefix, Kind::Message, body)) => (prefix, body),
                    Ok(_) => return self.handle_control(ni, rank, &ends, bytes),
                    Err(error) => return self.bad_frame(rank, &error),
                };
                let data;
                (header, data) = match frame::message(body, &ends) {
                    Ok(read) => read,
                    Err(error) => return self.bad_frame(rank, &error),
                };
                peer.received.keep_header(bytes, &header);
                (prefix, data)
            }
            Some(value) => {
                header = match peer.received.header_again(bytes.len(), &ends) {
                    Ok(header) => header,
                    Err(error) => return self.bad_frame(rank, &error),
                };
                (frame::prefix_of(value, peer.requests.done()), bytes)
            }
        };
        peer.handle_prefix(&prefix, true);
        if peer.session.stage() == Stage::Answered {
            self.ready(ni, rank);
        }
        self.message(ni, rank, &header, data);
    }

    #[cold]
    pub(super) fn bad_frame(&mut self, rank: usize, error: &FrameError) {
        if let Some(peer) = self.peer(rank) {
            peer.handle_bad_frame();
        }
        self.counters.bad_frames += 1;
        tracing::warn!(peer = rank, %error, "frame dropped");
    }

    /// Takes a frame that is no message. In a call of its own, as all that is no put: what a put needs lies close together.
    #[inline(never)]
    fn handle_control(&mut self, ni: &mut Ni, rank: usize, ends: &Ends, bytes: &[u8]) {
        let (prefix, body) = match frame::parse(bytes, ends) {
            Ok(parsed) => parsed,
            Err(error) => return self.bad_frame(rank, &error),
        };
        let Some(peer) = self.peer(rank) else { return };
        peer.handle_prefix(&prefix, body != FrameBody::Credit);
        if peer.session.stage() == Stage::Answered {
            self.ready(ni, rank);
        }
        match body {
            FrameBody::Message { header, data } => self.message_apart(ni, rank, &header, data),
            FrameBody::ReadyToSend {
                header,
                token,
                from,
            } => {
                self.handle_rts(ni, rank, &header, token, from);
            }
            FrameBody::AckToSend { token, failed } => self.handle_ats(ni, rank, token, failed),
            FrameBody::Advertise {
                portal,
                token,
                adverts,
            } => {
                if let Some(peer) = self.peer(rank) {
                    peer.adverts.set(portal, adverts);
                }
                self.confirm(rank, token);
            }
            FrameBody::Withdrawn { token } => self.published.confirmed(rank, token),
            FrameBody::Greeting => self.greeted(ni, rank),
            FrameBody::Move(word) => {
                self.counters.bad_frames += 1;
                tracing::warn!(peer = rank, word, "a word for datagrams on a connection");
            }
            FrameBody::Notice { header, md } => {
                if let Some(peer) = self.peer(rank) {
                    peer.received.keep_notice(bytes, &header, md);
                }
                self.handle_notice(ni, rank, &header, md);
            }
            FrameBody::Ring { slots, size, at } => self.handle_ring_offer(rank, at, slots, size),
            FrameBody::RingLeft => self.handle_ring_left(rank),
            FrameBody::ReadRequest { number, at, length } => {
                self.answer_am_get(rank, number, at, length);
            }
            FrameBody::ReadResponse { number, data } => {
                self.am_get_answered(ni, rank, number, data);
            }
            FrameBody::Credit => {}
        }
    }

    /// The effect of one more request of the peer is complete.
    pub(super) fn request_done(&mut self, rank: usize) {
        if let Some(peer) = self.peer(rank) {
            peer.sq.request_done();
        }
    }

    /// Handles a message in a frame that rarely has one; a call of its own keeps it out of the short path.
    #[inline(never)]
    fn message_apart(&mut self, ni: &mut Ni, rank: usize, header: &Header, data: &[u8]) {
        self.message(ni, rank, header, data);
    }

    /// A header whose data came with it.
    #[inline(always)]
    fn message(&mut self, ni: &mut Ni, rank: usize, header: &Header, data: &[u8]) {
        let whole = data.len() as u64 >= header.payload_len();
        let fail = if whole { NiFail::OK } else { NiFail::FAIL };
        if let Body::Put { .. } = header.body {
            let taken = ni.deposit_put_with(header, Arrived { data, fail });
            self.request_done(rank);
            if let Some(taken) = taken {
                if let Some(ack) = taken.ack {
                    self.eager(rank, &ack, |_| {});
                }
                self.count_framed_put(ni, rank, header, taken.md);
            }
            return;
        }
        self.no_put(ni, rank, header, data, fail);
    }

    /// A header of anything but a put, whose data came with it.
    #[inline(never)]
    fn no_put(&mut self, ni: &mut Ni, rank: usize, header: &Header, data: &[u8], fail: NiFail) {
        if let Some(peer) = self.peer(rank)
            && !is_request(header)
        {
            peer.requests.answered(header);
            if matches!(header.body, Body::Ack { .. }) && peer.requests.holds(header) {
                return;
            }
        }
        match ni.handle_header(header) {
            Incoming::Deposit(d) => {
                let keep = data
                    .len()
                    .min(usize::try_from(d.length).unwrap_or(usize::MAX));
                MEMORY.scatter(&d.segments, &data[..keep]);
                if is_request(header) {
                    self.request_done(rank);
                }
                if let Some(ack) = ni.deposit_end(d.op, fail) {
                    self.eager(rank, &ack, |_| {});
                }
            }
            Incoming::Reply(r) => self.answer(ni, rank, Late::Reply(r)),
            Incoming::Swap(s) => {
                // What waits keeps its data.
                let data = if fail == NiFail::OK { data } else { &[] };
                self.answer(ni, rank, Late::Swap(s, data.to_vec(), fail));
            }
            Incoming::Acked | Incoming::Dropped(_) => {
                if is_request(header) {
                    self.request_done(rank);
                }
            }
        }
    }

    /// Answers a request that has matched, or keeps it until the data of the puts before it is in place.
    fn answer(&mut self, ni: &mut Ni, rank: usize, late: Late) {
        match self.peer(rank) {
            Some(peer) if peer.received.awaits_data() => {
                peer.sq.promise(1);
                peer.received.late().wait(late);
            }
            _ => self.answer_now(ni, rank, late),
        }
    }

    fn answer_now(&mut self, ni: &mut Ni, rank: usize, late: Late) {
        match late {
            Late::Reply(r) if select::by_message(r.header.payload_len()) == Protocol::Eager => {
                self.request_done(rank);
                self.eager(rank, &r.header, |room| {
                    MEMORY.gather_into(&r.segments, room)
                });
                ni.reply_end(r.op, NiFail::OK);
            }
            Late::Reply(r) => {
                self.send_rts(ni, rank, &r.header, r.md, &r.segments, After::Reply(r.op));
                self.request_done(rank);
            }
            Late::Swap(s, new, fail) => {
                let mut old = Vec::new();
                MEMORY.gather(&s.segments, &mut old);
                if fail == NiFail::OK {
                    MEMORY.scatter(&s.segments, &new[..s.length as usize]);
                }
                self.request_done(rank);
                ni.swap_end(s.op, fail);
                self.eager(rank, &s.header, |room| {
                    let n = room.len().min(old.len());
                    room[..n].copy_from_slice(&old[..n]);
                });
            }
        }
    }

    /// The data of the oldest put of a peer that was being read is in place, or will not come: answers that waited for it
    /// go.
    pub(super) fn put_in_place(&mut self, ni: &mut Ni, rank: usize) {
        let Some(peer) = self.peer(rank) else { return };
        peer.received.late().end();
        while let Some(late) = self.peer(rank).and_then(Peer::next_late) {
            self.answer_now(ni, rank, late);
        }
    }

    /// Tells a peer that its new advertisement is in force. What was asked of its library, by the old one, is read before.
    fn confirm(&mut self, rank: usize, token: u32) {
        self.read_unanswered();
        if self
            .peer(rank)
            .is_some_and(|p| p.sq.confirms_at_once(token))
        {
            self.say_withdrawn(rank, token);
        } else {
            self.due.confirm = true;
        }
    }

    /// Confirms to connected peers what they withdrew before the reads that are done now.
    #[cold]
    pub(super) fn confirm_withdrawn(&mut self) {
        self.due.confirm = false;
        for at in 0..self.peers.met() {
            let Some(rank) = self.peers.met_at(at) else {
                break;
            };
            let next = |v: &mut Self| {
                v.peer(rank)
                    .filter(|p| p.sq.is_connected())?
                    .sq
                    .next_confirmable()
            };
            while let Some(token) = next(self) {
                self.say_withdrawn(rank, token);
            }
            self.due.confirm |= self.peer(rank).is_some_and(|p| p.sq.awaits_reads());
        }
    }

    pub(super) fn say_withdrawn(&mut self, rank: usize, token: u32) {
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        peer.sq
            .send(&self.send_pool, Kind::Withdrawn, false, TOKEN, |w| {
                w.token(token)
            });
    }
}
