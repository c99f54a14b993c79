//! `rndv read`: a rendezvous. A message announces the data, and the target's adapter reads it into the matched descriptor.
//!
//! ```text
//!   initiator                                    target
//!   start:  registered, Announce ──────────────▶ matched: PUT_START, or REPLY_START
//!                                ◀──── READ ─────
//!   complete:  SEND_END          ◀──── Fetched ── PUT_END, ack; or REPLY_END
//! ```
//!
//! # Recovery
//!
//! An announcement that a broken connection left undone is sent again, and a READ is made again, as every frame and READ. Data
//! that the target cannot read is a failure at both ends, and so is data whose peer is given up.
//!
//! # Invariants
//!
//! * Data stays registered, and its descriptor in use, until the target has said that it has read it.
//! * What a get or an exchange reads at the target is read when the puts before it are in place (`peer/late.rs`).

use crate::frame::{ANNOUNCEMENT, Kind, MESSAGE_HEAD, TOKEN};
use crate::memory::{Transfer, Use};
use crate::receive::is_request;
use crate::trusted::MEMORY;
use crate::verbs::{After, Announced, Fetched, Verbs, Work};
use fabric_api::delivery;
use portals_core::{Header, Incoming, MdHandle, Ni, NiFail, OpId, Segment};
use verbs_backend::Remote;

impl Verbs {
    /// Announces long data to the peer; `after` happens when it has read it.
    pub(crate) fn announce(
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
            return self.not_announced(ni, rank, header, after);
        };
        let token = self.announced.insert(Announced {
            peer: rank,
            after,
            header: *header,
            _staged: staged,
        });
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        peer.send(&self.send_pool, Kind::Announce, false, ANNOUNCEMENT, |w| {
            w.token(token as u32);
            w.place(remote);
            w.header(header, 0);
        });
    }

    /// Long data that cannot be registered is not sent. A request ends here, as if it had never been made; of a
    /// reply the peer gets the header alone, which ends its operation with a failure.
    fn not_announced(&mut self, ni: &mut Ni, rank: usize, header: &Header, after: After) {
        match after {
            After::Send(op) => {
                if let Some(peer) = self.peer(rank) {
                    peer.requests_sent = peer.requests_sent.wrapping_sub(1);
                    peer.expected.forget(header);
                }
                if let Some(op) = op {
                    ni.send_end(op, NiFail::FAIL);
                }
                delivery::fail_answer(ni, header);
            }
            After::Reply(op) => {
                ni.reply_end(op, NiFail::FAIL);
                let Some(peer) = self.peers.get_mut(rank) else {
                    return;
                };
                let pool = &self.send_pool;
                peer.send(pool, Kind::Message, false, MESSAGE_HEAD, |w| {
                    w.header(header, 0);
                });
            }
        }
    }

    /// A header whose data is to be read from the peer.
    pub(crate) fn handle_announcement(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        header: &Header,
        token: u32,
        from: Remote,
    ) {
        let request = is_request(header);
        if let Some(peer) = self.peer(rank) {
            peer.expected.answered(header);
        }
        let d = match ni.handle_header(header) {
            Incoming::Deposit(d) if d.length > 0 => d,
            Incoming::Deposit(d) => {
                return self.fetched(ni, rank, token, request, Some(d.op), NiFail::OK);
            }
            // Gets and exchanges are never announced; a peer that does so gets nothing.
            Incoming::Reply(r) => {
                ni.reply_end(r.op, NiFail::FAIL);
                return self.fetched(ni, rank, token, request, None, NiFail::FAIL);
            }
            Incoming::Swap(s) => {
                ni.swap_end(s.op, NiFail::FAIL);
                return self.fetched(ni, rank, token, request, None, NiFail::FAIL);
            }
            Incoming::Acked | Incoming::Dropped(_) => {
                return self.fetched(ni, rank, token, request, None, NiFail::OK);
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
                let fetched = Fetched {
                    staged: s,
                    segments: d.segments.clone(),
                    len: d.length,
                };
                (local, lkey, Some(Box::new(fetched)))
            }),
        };
        let Some((local, lkey, staged)) = target else {
            return self.fetched(ni, rank, token, request, Some(d.op), NiFail::FAIL);
        };
        let transfer = Transfer {
            local,
            lkey,
            remote: from,
            read: true,
            again: false,
        };
        if request && let Some(peer) = self.peer(rank) {
            peer.late.begin();
        }
        self.post_transfer(
            rank,
            transfer,
            Work::Fetch {
                op: d.op,
                token,
                request,
                staged,
            },
        );
    }

    /// Announced data has been read into the matched descriptor, or into a stand-in, or will not be.
    pub(crate) fn fetch_done(
        &mut self,
        ni: &mut Ni,
        rank: usize,
        (token, request): (u32, bool),
        staged: Option<Box<Fetched>>,
        op: OpId,
        fail: NiFail,
    ) {
        if let Some(fetched) = staged.filter(|_| fail == NiFail::OK) {
            let mut data = vec![0; fetched.len as usize];
            if fetched.staged.region.read(0, &mut data).is_ok() {
                MEMORY.scatter(&fetched.segments, &data);
            }
        }
        self.fetched(ni, rank, token, request, Some(op), fail);
        if request {
            self.put_in_place(ni, rank);
        }
    }

    /// Announced data has been read, or will not be: frees it at its owner, ends the deposit, acks.
    pub(crate) fn fetched(
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
        peer.send(
            &self.send_pool,
            Kind::Fetched,
            fail != NiFail::OK,
            TOKEN,
            |w| w.token(token),
        );
        if let Some(ack) = ack {
            self.eager(rank, &ack, |_| {});
        }
    }

    /// A peer has read what was announced to it by this token, or has failed to.
    pub(crate) fn announced_read(&mut self, ni: &mut Ni, rank: usize, token: u32, failed: bool) {
        let announced = self.announced.get_mut(token as usize);
        let own = announced.filter(|a| a.peer == rank);
        let Some((header, after)) = own.map(|a| (a.header, a.after)) else {
            self.counters.bad_frames += 1;
            tracing::warn!(peer = rank, token, "nothing was announced by this token");
            return;
        };
        let fail = if failed { NiFail::FAIL } else { NiFail::OK };
        self.source_free(ni, token as usize, fail);
        // A put that failed at its target is not acknowledged by it.
        if failed && matches!(after, After::Send(_)) {
            if let Some(peer) = self.peer(rank) {
                peer.expected.forget(&header);
            }
            delivery::fail_answer(ni, &header);
        }
    }

    /// A peer is done with data of ours.
    pub(crate) fn source_free(&mut self, ni: &mut Ni, token: usize, fail: NiFail) {
        match self.announced.try_remove(token).map(|a| a.after) {
            Some(After::Send(Some(op))) => ni.send_end(op, fail),
            Some(After::Reply(op)) => ni.reply_end(op, fail),
            Some(After::Send(None)) | None => {}
        }
    }
}
