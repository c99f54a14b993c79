//! Connections: made when first needed, mended when they break, given up when neither works.
//!
//! ```text
//!        dial                 ACCEPT                 greeting
//!  Idle ──────▶ Asking ────────────────▶ Opening ───────────────▶ Up
//!    │                                                            ▲  │ completion failed, CONNECT anew
//!    │ CONNECT            READY, or a frame over the connection   │  ▼
//!    └────────▶ Answered ─────────────────────────────────────────┘ Draining ──▶ Asking, Answered
//!  Asking ── ACCEPT ──▶ Joining ── joined ──▶ Opening, where the connection manager joins queue pairs (`cm.rs`)
//!  any ── patience over, refused, peer closed, device gone ──▶ Failed
//! ```
//!
//! A broken queue pair is put into the error state, its completions are awaited (so that it is known which frames
//! of the peer have arrived), and a new one is made by a new handshake. No peer reaches memory through a queue pair in
//! the error state, so a broken connection confirms every withdrawal.

use super::endpoint::Sender;
use super::frame::{Kind, PREFIX, SLOT};
use super::handshake::{self, Card, Message, OnConnect, Refusal, Stage, Word, on_connect, settled};
use super::peer::Peer;
use super::proto;
use super::timer::{Due, Timer};
use super::verbs::Verbs;
use fabric_api::delivery;
use portals_core::{Ni, NiFail};
use std::time::{Duration, Instant};
use verbs_backend::{BufferPool, Endpoint, Gid, Mtu, Qp};

/// How long the flushed requests of a broken queue pair may take.
const FLUSH: Duration = Duration::from_secs(1);

/// An endpoint for datagrams that tell none.
pub(super) const NOWHERE: Endpoint = Endpoint {
    qpn: 0,
    psn: 0,
    lid: 0,
    gid: Gid([0; 16]),
    mtu: Mtu::B256,
};

impl Verbs {
    /// The state kept for a peer, made when it is first needed.
    pub(super) fn meet(&mut self, rank: usize) -> Option<&mut Peer> {
        let (lent, depth) = (self.conn.plan.credits, self.conn.plan.depth);
        self.peers.meet(rank, |id| Peer::new(id, lent, depth))
    }

    pub(super) fn peer(&mut self, rank: usize) -> Option<&mut Peer> {
        self.peers.get_mut(rank)
    }

    fn card(&self, rank: usize) -> Card {
        let peer = self.peers.get(rank);
        Card {
            uid: self.conn.who.0,
            jid: self.conn.who.1,
            attempts: self.conn.attempts,
            received: peer.map_or(0, |p| p.received.frames()),
            credits: self.conn.plan.credits,
            address: self.conn.mail.address(),
            token: self.conn.token,
        }
    }

    pub(super) fn datagram(
        &self,
        rank: usize,
        word: Word,
        attempt: u32,
        endpoint: Endpoint,
    ) -> Message {
        let way = self.peers.get(rank).and_then(|p| p.session.way.as_ref());
        let [from, to] = [self.peers.own(), rank].map(|index| self.name_of(index).0);
        Message {
            word,
            from,
            to,
            token: way.map_or(0, |(_, token)| *token),
            attempt,
            card: self.card(rank),
            endpoint,
        }
    }

    /// Sends a datagram to a peer whose address is known. A loss is no error: somebody asks again.
    pub(super) fn tell_peer(&mut self, rank: usize, word: &[u8; handshake::BYTES]) {
        let Some((way, _)) = self.peer(rank).and_then(|p| p.session.way.clone()) else {
            return;
        };
        let whole = self.with_tail(rank, word);
        let bytes = whole.as_ref().map_or(&word[..], |whole| &whole[..]);
        if let Err(why) = self.conn.mail.send(&way, bytes) {
            tracing::debug!(peer = rank, why, "datagram not sent");
        }
    }

    /// Asks those to look whose answer is awaited: their programs may compute, and their attendants make no progress by
    /// themselves.
    pub(super) fn ask_to_look(&mut self, ranks: impl IntoIterator<Item = usize>) {
        for rank in ranks {
            let look = self.datagram(rank, Word::Look, 0, NOWHERE);
            self.tell_peer(rank, &look.to_bytes());
        }
    }

    /// A queue pair of the next connection, ready for the peer's address.
    pub(super) fn new_qp(&mut self) -> Result<Qp, String> {
        let depth = self.conn.plan.depth;
        self.adapter
            .queue_pair(&self.registry.pd, &self.queues, depth)
    }

    /// Receive slots for one more connection, and its place in the completion queue; `false` if there is none.
    fn make_room(&mut self, rank: usize) -> bool {
        let others = self.peers.iter().filter(|(at, _)| *at != rank);
        let needed = others.filter(|(_, p)| p.sq.qp().is_some()).count() + 1;
        if needed > self.conn.plan.peers as usize {
            return false;
        }
        if self.queues.has_receives(needed) {
            return true;
        }
        let each = self.conn.plan.slots_of_peer();
        let pool = BufferPool::new(&self.registry.pd, each, SLOT).map_err(|e| e.to_string());
        let added = pool.and_then(|pool| self.queues.add_receives(&pool, each));
        if let Err(error) = &added {
            tracing::error!(peer = rank, %error, "no receives for a connection");
        }
        added.is_ok()
    }

    /// Sets aside for a peer what a connection takes; `false` if the device has not got it.
    pub(super) fn prepare(&mut self, rank: usize) -> bool {
        if self.closed || self.gone || self.meet(rank).is_none() || !self.make_room(rank) {
            return false;
        }
        if self.peer(rank).is_none_or(|p| p.sq.qp().is_some()) {
            return true;
        }
        match self.new_qp() {
            Ok(qp) => {
                if let Some(peer) = self.peer(rank) {
                    peer.sq.attach(qp);
                }
                true
            }
            Err(why) => {
                tracing::warn!(peer = rank, why, "no connection");
                false
            }
        }
    }

    /// Gives back what was set aside, if the connection was not begun.
    pub(super) fn discard(&mut self, rank: usize) {
        if let Some(peer) = self.peer(rank).filter(|p| p.session.stage() == Stage::Idle) {
            drop(peer.unlink());
        }
    }

    /// Starts to connect to a peer, unless that is under way.
    pub(super) fn connect(&mut self, ni: &mut Ni, rank: usize) {
        if self
            .peer(rank)
            .is_some_and(|p| p.session.stage() == Stage::Idle)
        {
            self.dial(ni, rank);
        }
    }

    /// A peer has closed in good order, and has done so many requests of this side, if it says so.
    pub(super) fn peer_closed(&mut self, ni: &mut Ni, rank: usize, done: Option<u32>) {
        // What it sent before has arrived, and counts.
        while self.poll_once(ni) > 0 {}
        self.take_ring(ni, rank);
        if let Some(peer) = self.peer(rank) {
            peer.session.said_bye = true;
            if let Some(done) = done {
                peer.requests.forget_done(done);
            }
        }
        self.fail_peer(ni, rank, &"it has closed");
    }

    /// Whether a peer has closed in good order.
    pub(super) fn has_left(&mut self, rank: usize) -> bool {
        self.peer(rank).is_some_and(|p| p.session.said_bye)
    }

    /// A peer is gone, as was found out elsewhere; `said` if it has closed in good order.
    pub(super) fn end_peer(&mut self, ni: &mut Ni, rank: usize, said: bool) {
        if said {
            return self.peer_closed(ni, rank, None);
        }
        self.fail_peer(ni, rank, &"no answer");
    }

    /// Starts to connect to a peer.
    pub(super) fn dial(&mut self, ni: &mut Ni, rank: usize) {
        if self.gone {
            return self.fail_peer(ni, rank, &"the device is gone");
        }
        if !self.make_room(rank) {
            let why = format!(
                "at most {} connections fit the device",
                self.conn.plan.peers
            );
            return self.fail_peer(ni, rank, &why);
        }
        self.find_way(rank);
        let prepared = self.peer(rank).and_then(|p| p.sq.detach());
        let qp = match prepared.map_or_else(|| self.new_qp(), Ok) {
            Ok(qp) => qp,
            Err(why) => return self.fail_peer(ni, rank, &why),
        };
        let (attempt, timer) = (self.conn.next_attempt(), self.conn.timer());
        let endpoint = self.own_end(&qp);
        if let Some(peer) = self.peer(rank) {
            peer.enter(Stage::Asking(attempt));
            peer.sq.attach(qp);
            // A connection that is being mended has had part of its time.
            let before = peer.session.timer.filter(|_| peer.session.met);
            peer.session.timer = Some(before.map_or(timer, |before| timer.after(&before)));
        }
        self.conn.pending += 1;
        let message = self.datagram(rank, Word::Connect, attempt, endpoint);
        self.tell_peer(rank, &message.to_bytes());
        self.conn.bell.ring();
    }

    /// Finds out how to send datagrams to a peer, unless that is known.
    fn find_way(&mut self, rank: usize) {
        if self.peer(rank).is_none_or(|p| p.session.way.is_some()) {
            return;
        }
        let way = self.contact_of(rank).and_then(|(address, token)| {
            let way = self.conn.mail.resolve(&address);
            way.map(|way| (way, token))
        });
        match (way, self.peer(rank)) {
            (Ok(way), Some(peer)) => peer.session.way = Some(way),
            // The way to an address may come back with the link; it is looked for again until patience ends.
            (Err(why), _) => tracing::debug!(peer = rank, why, "no way to a peer yet"),
            (Ok(_), None) => {}
        }
    }

    /// The end of a connection, as its peer gets it.
    fn own_end(&self, qp: &Qp) -> Endpoint {
        let end = qp.endpoint();
        match &self.witness {
            Some(witness) => witness.encode_in(end),
            None => end,
        }
    }

    /// Connects the peer's queue pair to `remote`, unless the connection manager does.
    fn join(&mut self, rank: usize, remote: &Endpoint, card: &Card) -> Result<Endpoint, String> {
        let managed = self.conn.joiner.is_some();
        let witness = self.witness.clone();
        let Some(peer) = self.peer(rank) else {
            return Err("no such peer".to_owned());
        };
        peer.session.who = Some((card.uid, card.jid));
        peer.sq.confirm_by(witness.map(|witness| (witness, remote)));
        let Some(qp) = peer.sq.qp().cloned() else {
            return Err("no queue pair".to_owned());
        };
        if !managed {
            qp.connect(remote).map_err(|e| e.to_string())?;
        }
        self.peers.joined(qp.qpn(), rank);
        Ok(self.own_end(&qp))
    }

    /// A queue pair is connected: what a broken one left is settled, frames may go.
    pub(super) fn renew(&mut self, ni: &mut Ni, rank: usize, card: &Card) {
        // Every slot is posted again, so that the peer's credits are whole.
        self.repost();
        let Some(peer) = self.peer(rank) else { return };
        for ended in peer.renew(card.credits, card.received, proto::recover) {
            self.piece_done(ni, ended.id, ended.fail);
        }
    }

    /// Tells a peer what it may reach, and that this is all.
    pub(super) fn greet(&mut self, ni: &mut Ni, rank: usize) {
        self.advertise_all(ni, rank);
        let pool = self.send_pool.clone();
        if let Some(peer) = self.peer(rank) {
            peer.sq.send(&pool, Kind::Greeting, false, PREFIX, |_| {});
        }
    }

    /// The peer has told what it advertises: operations that waited for it go now.
    pub(super) fn greeted(&mut self, ni: &mut Ni, rank: usize) {
        let Some(peer) = self.peer(rank) else { return };
        peer.session.greeted = true;
        if matches!(peer.session.stage(), Stage::Opening(_)) {
            peer.enter(Stage::Up);
        }
        if peer.session.stage() == Stage::Up {
            peer.session.timer = None;
        }
        self.count_pending();
        while let Some(tx) = self
            .peer(rank)
            .filter(|p| p.is_open())
            .and_then(|p| p.held.pop_front())
        {
            self.start(ni, rank, &tx, None);
        }
    }

    /// The side that asked is ready: by its word, or because a frame of it has come.
    #[cold]
    pub(super) fn ready(&mut self, ni: &mut Ni, rank: usize) {
        let Some(peer) = self.peer(rank) else { return };
        if peer.session.stage() != Stage::Answered {
            return;
        }
        peer.enter(Stage::Up);
        peer.session.timer = None;
        self.count_pending();
        self.greet(ni, rank);
    }

    pub(super) fn count_pending(&mut self) {
        let waits = |p: &Peer| p.sq.is_broken() || p.session.is_pending();
        self.conn.pending = self.peers.iter().filter(|(_, p)| waits(p)).count();
    }

    /// Handles one datagram.
    fn handle_datagram(&mut self, ni: &mut Ni, bytes: &[u8]) {
        let Some(message) = Message::parse(bytes).filter(|m| m.token == self.conn.token) else {
            self.counters.bad_frames += 1;
            return;
        };
        if self.closed {
            return;
        }
        let (rank, session) = match self.sender(ni, &message, bytes) {
            Sender::Peer(rank, session) => (rank, session),
            Sender::Done => return,
            Sender::Nobody => {
                self.counters.bad_frames += 1;
                return;
            }
        };
        let [own, theirs] = [self.peers.own(), rank].map(|index| self.name_of(index));
        let managed = self.conn.joiner.is_some();
        let Some(peer) = self.meet(rank) else {
            self.counters.bad_frames += 1;
            return;
        };
        let (stage, taken) = (peer.session.stage(), peer.session.taken);
        let known = stage == Stage::Asking(message.attempt);
        match message.word {
            Word::Connect => match on_connect(own, theirs, stage, taken, message.attempt) {
                OnConnect::Accept => {
                    self.heard(rank, session);
                    self.accept(ni, rank, &message);
                }
                OnConnect::Repeat => {
                    if let Some((_, answer)) =
                        peer.session.answer.filter(|a| a.0 == message.attempt)
                    {
                        self.tell_peer(rank, &answer);
                    }
                }
                OnConnect::Ignore => {}
                OnConnect::Renew => {
                    peer.session.asked = Some(message);
                    if stage != Stage::Draining {
                        self.drain(rank);
                    }
                }
                OnConnect::Refuse(why) => self.refuse(rank, &message, why),
            },
            Word::Accept if known => {
                self.heard(rank, session);
                match self.join(rank, &message.endpoint, &message.card) {
                    Ok(_) => {}
                    Err(why) => return self.fail_peer(ni, rank, &why),
                }
                let timer = self.conn.timer();
                if let Some(peer) = self.peer(rank) {
                    peer.session.taken = Some(settled(peer.session.taken, message.card.attempts));
                }
                if managed {
                    return self.begin_joining(ni, rank, message.attempt, message.card);
                }
                if let Some(peer) = self.peer(rank) {
                    peer.enter(Stage::Opening(message.attempt));
                    peer.session.timer = Some(timer);
                }
                self.renew(ni, rank, &message.card);
                self.say_ready(rank, message.attempt);
                self.greet(ni, rank);
            }
            // Where a manager joins queue pairs, a frame says so.
            Word::Ready
                if stage == Stage::Answered && taken == Some(message.attempt) && !managed =>
            {
                self.ready(ni, rank);
            }
            Word::Refuse(why) if known => self.peer_refused(ni, rank, why),
            Word::Bye { done } if peer.session.met => {
                self.peer_closed(ni, rank, done);
                self.forget_inbound(ni, rank);
            }
            Word::Look => self.due.look = true,
            Word::Disconnect if session != 0 => self.peer_disconnected(ni, rank),
            Word::Accept | Word::Ready | Word::Refuse(_) | Word::Bye { .. } | Word::Disconnect => {}
        }
    }

    fn way_back(&mut self, rank: usize, message: &Message) -> Result<(), String> {
        let way = self.conn.mail.resolve(&message.card.address)?;
        if let Some(peer) = self.peer(rank) {
            peer.session.way = Some((way, message.card.token));
        }
        Ok(())
    }

    fn refuse(&mut self, rank: usize, message: &Message, why: Refusal) {
        tracing::warn!(peer = rank, %why, "connection refused");
        if self.way_back(rank, message).is_ok() {
            let answer = self.datagram(rank, Word::Refuse(why), message.attempt, NOWHERE);
            self.tell_peer(rank, &answer.to_bytes());
        }
    }

    /// Accepts a request, by the queue pair that was to ask with if there is one.
    fn accept(&mut self, ni: &mut Ni, rank: usize, message: &Message) {
        if !self.make_room(rank) {
            return self.refuse(rank, message, Refusal::Full);
        }
        let made = self.way_back(rank, message).and_then(|()| {
            if self.peer(rank).is_some_and(|p| p.sq.qp().is_none()) {
                let qp = self.new_qp()?;
                if let Some(peer) = self.peer(rank) {
                    peer.sq.attach(qp);
                }
            }
            self.join(rank, &message.endpoint, &message.card)
        });
        let endpoint = match made {
            Ok(endpoint) => endpoint,
            Err(why) => {
                tracing::error!(peer = rank, why, "cannot accept a connection");
                if let Some(peer) = self.peer(rank) {
                    drop(peer.unlink());
                }
                return self.refuse(rank, message, Refusal::Device);
            }
        };
        let timer = self.conn.timer();
        if let Some(peer) = self.peer(rank) {
            peer.enter(Stage::Answered);
            peer.session.taken = Some(message.attempt);
            peer.session.timer = Some(timer);
        }
        // After the stage, and before the answer tells how many frames have come.
        self.renew(ni, rank, &message.card);
        let answer = self.datagram(rank, Word::Accept, message.attempt, endpoint);
        let answer = answer.to_bytes();
        if let Some(peer) = self.peer(rank) {
            peer.session.answer = Some((message.attempt, answer));
        }
        self.conn.pending += 1;
        self.tell_peer(rank, &answer);
    }

    /// Takes a connection out of use; what was under way is awaited.
    fn drain(&mut self, rank: usize) {
        let now = Instant::now();
        let patience = self.conn.patience;
        let Some(peer) = self.peer(rank) else { return };
        peer.sq.set_broken(false);
        peer.session.greeted = false;
        peer.adverts.clear();
        peer.enter(Stage::Draining);
        peer.session.timer = Some(Timer::once(now, FLUSH, patience));
        if let Some(qp) = peer.sq.qp()
            && let Err(error) = qp.to_error()
        {
            tracing::debug!(peer = rank, %error, "queue pair not put into the error state");
        }
        peer.sq.mark();
        self.conn.pending += 1;
        self.published.forget_peer(rank);
        self.conn.bell.ring();
    }

    /// Looks after broken connections. Called after polls; cheap when there is nothing to do.
    pub(super) fn mend(&mut self, ni: &mut Ni, found: usize) {
        for rank in 0..self.peers.len() {
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            if peer.sq.is_broken() && peer.session.stage() != Stage::Draining && !peer.is_failed() {
                let fault = peer.sq.fault();
                if self.closed {
                    self.fail_peer(ni, rank, &"the interface closes");
                } else if let Some(why) = fault {
                    self.fail_peer(ni, rank, &why);
                } else {
                    self.drain(rank);
                }
                continue;
            }
            if peer.session.stage() != Stage::Draining || found > 0 {
                continue;
            }
            // The completion queue is empty. What does not come in time will not come.
            if !peer.sq.is_still()
                && peer
                    .session
                    .timer
                    .is_some_and(|t| !t.is_due(Instant::now()))
            {
                continue;
            }
            self.end_ring(ni, rank);
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            if let Some(qp) = peer.unlink_confirmed() {
                let qpn = qp.qpn();
                peer.sq.given_back(qp.destroy());
                self.peers.parted(qpn);
            }
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            peer.sq.abandon();
            peer.sq.set_broken(false);
            if peer.sq.has_gap() {
                self.fail_peer(
                    ni,
                    rank,
                    &"what was to be sent again stayed with the adapter",
                );
                continue;
            }
            if let Some(qp) = peer.unlink() {
                self.peers.parted(qp.qpn());
            }
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            peer.enter(Stage::Idle);
            if let Some(message) = peer.session.asked.take() {
                self.accept(ni, rank, &message);
            } else if self.closed {
                self.fail_peer(ni, rank, &"the interface closes");
            } else {
                self.dial(ni, rank);
            }
        }
        self.count_pending();
    }

    /// Repeats what was not answered, and gives up what took too long.
    fn look_at_timers(&mut self, ni: &mut Ni) -> bool {
        let now = Instant::now();
        let mut any = false;
        for rank in 0..self.peers.len() {
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            let stage = peer.session.stage();
            let Some(timer) = peer.session.timer.as_mut() else {
                continue;
            };
            // The end of its time is for `mend` to see.
            if stage == Stage::Draining {
                any |= timer.is_due(now);
                continue;
            }
            let due = timer.expire(now);
            any |= due != Due::Nothing;
            if due == Due::Nothing {
                continue;
            }
            if due == Due::GiveUp {
                match stage {
                    Stage::Answered if !peer.session.met || peer.is_unused() => {
                        // The one that asked has vanished; it may ask again.
                        peer.session.timer = None;
                        if peer.is_unused() {
                            self.forget_connection(rank);
                            continue;
                        }
                    }
                    _ => {}
                }
                let seconds = self.conn.patience.as_secs_f64();
                let why = format!("no answer for {seconds} s (PORTOLAN_CONNECT_TIMEOUT)");
                self.fail_peer(ni, rank, &why);
                continue;
            }
            match stage {
                Stage::Asking(attempt) => {
                    self.find_way(rank);
                    let qp = self.peer(rank).and_then(|p| p.sq.qp().cloned());
                    let endpoint = qp.map_or(NOWHERE, |qp| self.own_end(&qp));
                    let message = self.datagram(rank, Word::Connect, attempt, endpoint);
                    self.tell_peer(rank, &message.to_bytes());
                }
                Stage::Opening(attempt) => self.say_ready(rank, attempt),
                _ => {}
            }
        }
        any
    }

    /// A connection that nobody uses is undone.
    fn forget_connection(&mut self, rank: usize) {
        let Some(peer) = self.peer(rank) else { return };
        peer.enter(Stage::Idle);
        peer.sq.abandon();
        if let Some(qp) = peer.unlink() {
            self.peers.parted(qp.qpn());
        }
        self.drop_ring(rank);
        self.count_pending();
    }

    /// Datagrams, events of the device, timers, broken connections.
    pub(super) fn tend(&mut self, ni: &mut Ni) -> bool {
        let mut any = self.device_events(ni);
        if self.gone {
            return any;
        }
        if self.conn.vector.is_some() {
            any |= self.follow_book(ni);
        }
        any |= self.poll_datagrams(ni);
        if self.conn.mail.arm() {
            any |= self.poll_datagrams(ni);
        }
        self.conn.mail.recover();
        if self.conn.joiner.is_some() {
            any |= self.manager_events(ni);
        }
        self.look_for_forgotten(Instant::now());
        if self.conn.pending > 0 {
            any |= self.look_at_timers(ni);
            self.count_pending();
        }
        any
    }

    fn poll_datagrams(&mut self, ni: &mut Ni) -> bool {
        let mut words = Vec::new();
        let mut any = false;
        while self.conn.mail.take(&mut words) || !words.is_empty() {
            for word in words.drain(..) {
                any = true;
                self.handle_datagram(ni, &word);
            }
        }
        any
    }

    /// Ends everything that waits for a peer, which is given up: what its protocols keep as each of them says, answers that will
    /// not come with what tells the initiator so.
    pub(super) fn fail_peer(&mut self, ni: &mut Ni, rank: usize, why: &dyn std::fmt::Display) {
        let Some(peer) = self.peer(rank) else { return };
        if peer.is_failed() {
            return;
        }
        let (id, left) = (peer.id, peer.session.said_bye);
        if let Some(lost) = &mut self.conn.lost {
            lost.push(rank);
        }
        let Some(peer) = self.peer(rank) else { return };
        peer.sq.abandon();
        peer.give_up();
        let held = std::mem::take(&mut peer.held);
        let expected = peer.requests.give_up();
        if let Some(qp) = peer.unlink() {
            // Its buffers stay with the adapter until then.
            let _ = qp.to_error();
            self.peers.parted(qp.qpn());
        }
        let operations = proto::under_way(self, rank) + held.len() + expected.len();
        if operations > 0 && !self.closed {
            tracing::error!(
                peer = rank,
                nid = id.nid,
                pid = id.pid,
                operations,
                "peer given up, its operations fail: {why}"
            );
        } else {
            tracing::debug!(peer = rank, "peer given up: {why}");
        }
        // Of frames that left and had no effect nothing else says so: they have had their SEND_END.
        // A job ends with its ranks; whoever has met endpoints may wait for one that has closed.
        if !self.closed && (!left || self.conn.vector.is_some()) {
            ni.lost(id);
        }
        proto::end(self, ni, rank);
        for tx in held {
            delivery::refuse(ni, &tx);
        }
        for request in expected.into_requests() {
            delivery::fail_answer(ni, &request, NiFail::FAIL);
        }
        self.published.forget_peer(rank);
        self.count_pending();
    }

    /// Tells connected peers that this side closes; `whole` if nothing of what they have sent is under way.
    pub(super) fn say_bye(&mut self, whole: bool) {
        for rank in 0..self.peers.len() {
            let peer = self.peer(rank).filter(|p| p.sq.is_connected());
            if let Some(done) = peer.map(|p| p.sq.requests_done()) {
                let word = Word::Bye {
                    done: whole.then_some(done),
                };
                let bye = self.datagram(rank, word, 0, NOWHERE);
                self.tell_peer(rank, &bye.to_bytes());
            }
        }
    }
}
