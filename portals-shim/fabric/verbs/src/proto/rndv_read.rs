//! `rndv read`: a rendezvous by RDMA READ. RTS (ready to send) says where the data is, the target's adapter reads it into the
//! matched descriptor, and ATS (acknowledge to send) gives it back. The names are UCX's.
//!
//! ```text
//!   initiator                                    target
//!   start:  registered, RTS ───────────────────▶ matched: PUT_START, or REPLY_START
//!                                ◀──── READ ─────
//!   complete:  SEND_END          ◀───── ATS ───── PUT_END, ack; or REPLY_END
//! ```
//!
//! # Recovery
//!
//! An RTS that a broken connection left undone is sent again, and a READ is made again, as every frame and READ. Data
//! that the target cannot read is a failure at both ends, and so is data whose peer is given up.
//!
//! # Invariants
//!
//! * Data stays registered, and its descriptor in use, until the target has said that it has read it.
//! * A peer that acknowledges none of its long replies is given up when it has had too many (`send_queue/credits.rs`).
//! * What a get or an exchange reads at the target is read when the puts before it are in place (`peer/received/late.rs`).

use super::ending::Ending;
use crate::frame::{Kind, MESSAGE_HEAD, READY_TO_SEND, TOKEN};
use crate::memory::{Transfer, Use};
use crate::peer::Late;
use crate::receive::is_request;
use crate::trusted::MEMORY;
use crate::verbs::{After, RndvSend, StagedRead, Verbs, Work};
use fabric_api::delivery;
use portals_core::{Header, Incoming, MdHandle, Ni, NiFail, OpId, Segment};
use verbs_backend::Remote;

/// A rendezvous whose target is given up ends as if it had been refused there.
pub(super) const ENDING: Ending = Ending {
    under_way: |verbs, rank| sends_to(verbs, rank).count(),
    end: |verbs, ni, rank| {
        let tokens: Vec<usize> = sends_to(verbs, rank).collect();
        for token in tokens {
            verbs.source_free(ni, token, NiFail::FAIL);
        }
    },
};

/// Answers that the end of a read brings, at most: an ATS, and the ack of a request.
const fn answers_of(request: bool) -> usize {
    if request { 2 } else { 1 }
}

/// Data for a peer, by its token.
fn sends_to(verbs: &Verbs, rank: usize) -> impl Iterator<Item = usize> {
    let all = verbs.rndv_sends.iter();
    all.filter(move |(_, send)| send.peer == rank)
        .map(|(token, _)| token)
}

/// Answers that wait for the data of a peer that is given up are not given.
pub(super) const ENDING_AT_TARGET: Ending = Ending {
    under_way: |_, _| 0,
    end: |verbs, ni, rank| {
        let late = verbs.peer(rank).map(|peer| peer.received.late().give_up());
        for late in late.into_iter().flatten() {
            match late {
                Late::Reply(reply) => ni.reply_end(reply.op, NiFail::FAIL),
                Late::Swap(swap, ..) => ni.swap_end(swap.op, NiFail::FAIL),
            }
        }
    },
};

impl Verbs {
    /// Sends the RTS of long data; `after` happens when the peer has read it.
    pub(crate) fn send_rts(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        md: MdHandle,
        data: &[Segment],
        after: After,
    ) {
        let len = header.payload_len();
        let place = match data {
            [one] => self.registered(ni, md, *one, Use::Source).map(|(rkey, _)| {
                (
                    Remote {
                        address: one.addr,
                        rkey,
                    },
                    None,
                )
            }),
            pieces => self
                .stage(pieces, len, Use::Source, true)
                .and_then(|s| Some((s.mr.remote(0)?, Some(s)))),
        };
        let Some((remote, staged)) = place else {
            return self.cannot_send_rts(ni, rank, header, after);
        };
        let token = self.rndv_sends.insert(RndvSend {
            peer: rank,
            after,
            header: *header,
            _staged: staged,
        });
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        if let After::Reply(_) = after {
            peer.sq.reply_begun();
        }
        peer.sq.send(
            &self.send_pool,
            Kind::ReadyToSend,
            false,
            READY_TO_SEND,
            |w| {
                w.token(token as u32);
                w.place(remote);
                w.header(header, 0);
            },
        );
    }

    /// Long data that cannot be registered is not sent. A request ends here, as if it had never been made; of a
    /// reply the peer gets the header alone, which ends its operation with a failure.
    fn cannot_send_rts(&mut self, ni: &mut Ni, rank: usize, header: &Header, after: After) {
        match after {
            After::Send(op) => {
                if let Some(peer) = self.peer(rank) {
                    peer.requests.take_back(header);
                }
                if let Some(op) = op {
                    ni.send_end(op, NiFail::SEGV);
                }
                delivery::fail_answer(ni, header, NiFail::SEGV);
            }
            After::Reply(op) => {
                ni.reply_end(op, NiFail::SEGV);
                let Some(peer) = self.peers.get_mut(rank) else {
                    return;
                };
                let pool = &self.send_pool;
                peer.sq.send(pool, Kind::Message, false, MESSAGE_HEAD, |w| {
                    w.header(header, 0);
                });
            }
        }
    }

    /// A header whose data is to be read from the peer.
    pub(crate) fn handle_rts(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        token: u32,
        from: Remote,
    ) {
        let request = is_request(header);
        if let Some(peer) = self.peer(rank) {
            peer.requests.answered(header);
        }
        let d = match ni.handle_header(header) {
            Incoming::Deposit(d) if d.length > 0 => d,
            Incoming::Deposit(d) => {
                return self.send_ats(ni, rank, token, request, Some(d.op), NiFail::OK);
            }
            // No RTS is of a get or an exchange; a peer that sends one gets nothing.
            Incoming::Reply(r) => {
                ni.reply_end(r.op, NiFail::FAIL);
                return self.send_ats(ni, rank, token, request, None, NiFail::FAIL);
            }
            Incoming::Swap(s) => {
                ni.swap_end(s.op, NiFail::FAIL);
                return self.send_ats(ni, rank, token, request, None, NiFail::FAIL);
            }
            Incoming::Acked | Incoming::Dropped(_) => {
                return self.send_ats(ni, rank, token, request, None, NiFail::OK);
            }
        };
        let target = match d.segments.as_slice() {
            [one] => self
                .registered(ni, d.md, *one, Use::Landing)
                .map(|(_, lkey)| (*one, lkey, None)),
            pieces => self.stage(pieces, d.length, Use::Landing, false).map(|s| {
                let local = Segment {
                    addr: s.region.addr(),
                    len: d.length,
                };
                let lkey = s.mr.lkey();
                let staged = StagedRead {
                    staged: s,
                    segments: d.segments.clone(),
                    len: d.length,
                };
                (local, lkey, Some(Box::new(staged)))
            }),
        };
        let Some((local, lkey, staged)) = target else {
            return self.send_ats(ni, rank, token, request, Some(d.op), NiFail::SEGV);
        };
        let transfer = Transfer {
            local,
            lkey,
            remote: from,
            read: true,
            again: false,
            announced: true,
        };
        if let Some(peer) = self.peer(rank) {
            peer.sq.promise(answers_of(request));
            if request {
                peer.received.late().begin();
            }
        }
        self.post_transfer(
            rank,
            transfer,
            Work::RndvRead {
                op: d.op,
                token,
                request,
                staged,
            },
        );
    }

    /// The READ has ended, into the matched descriptor or into a staging buffer.
    pub(crate) fn rndv_read_done(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        (token, request): (u32, bool),
        staged: Option<Box<StagedRead>>,
        op: OpId,
        fail: NiFail,
    ) {
        if let Some(read) = staged.filter(|_| fail == NiFail::OK) {
            let mut data = vec![0; read.len as usize];
            if read.staged.region.read(0, &mut data).is_ok() {
                MEMORY.scatter(&read.segments, &data);
            }
        }
        if let Some(peer) = self.peer(rank) {
            peer.sq.keep_promise(answers_of(request));
        }
        self.send_ats(ni, rank, token, request, Some(op), fail);
        if request {
            self.put_in_place(ni, rank);
        }
    }

    /// The data of an RTS has been read, or will not be: the ATS frees it at its owner. Ends the deposit, acks.
    pub(crate) fn send_ats(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        token: u32,
        request: bool,
        op: Option<OpId>,
        fail: NiFail,
    ) {
        let ack = op.and_then(|op| ni.deposit_end(op, fail));
        if request {
            self.request_done(rank);
        }
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        peer.sq.send(
            &self.send_pool,
            Kind::AckToSend,
            fail != NiFail::OK,
            TOKEN,
            |w| w.token(token),
        );
        if let Some(ack) = ack {
            self.eager(rank, &ack, |_| {});
        }
    }

    /// The ATS of a peer: it has read the data of the RTS with this token, or has failed to.
    pub(crate) fn handle_ats(&mut self, ni: &mut Ni, rank: usize, token: u32, failed: bool) {
        let send = self.rndv_sends.get_mut(token as usize);
        let own = send.filter(|a| a.peer == rank);
        let Some((header, after)) = own.map(|a| (a.header, a.after)) else {
            self.counters.bad_frames += 1;
            tracing::warn!(peer = rank, token, "an ATS whose token is of no RTS");
            return;
        };
        let fail = if failed { NiFail::FAIL } else { NiFail::OK };
        self.source_free(ni, token as usize, fail);
        // A put that failed at its target is not acknowledged by it.
        if failed && matches!(after, After::Send(_)) {
            if let Some(peer) = self.peer(rank) {
                peer.requests.failed(&header);
            }
            delivery::fail_answer(ni, &header, fail);
        }
    }

    /// A peer is done with data of ours.
    pub(crate) fn source_free(&mut self, ni: &mut Ni, token: usize, fail: NiFail) {
        let send = self.rndv_sends.try_remove(token);
        if let Some(send) = &send
            && let After::Reply(_) = send.after
            && let Some(peer) = self.peers.get_mut(send.peer)
        {
            peer.sq.reply_ended();
        }
        match send.map(|a| a.after) {
            Some(After::Send(Some(op))) => ni.send_end(op, fail),
            Some(After::Reply(op)) => ni.reply_end(op, fail),
            Some(After::Send(None)) | None => {}
        }
    }
}
