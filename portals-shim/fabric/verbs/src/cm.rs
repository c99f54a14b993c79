//! Connections made by the RDMA connection manager, behind the same handshake.
//!
//! ```text
//!   asks                                             is asked
//!   CONNECT  (UDP) ────────────────────────────────▶ sets a queue pair aside
//!                                 ◀──────── ACCEPT   (UDP; says at which port its manager listens)
//!   Joining: address, route, request ──────────────▶ attempt and token are those that it has accepted?
//!                                 ◀──────────────── accepts with that queue pair
//!   Opening: adverts and a greeting over the connection
//!                                 ◀════════════════ answers, once a frame has come
//! ```
//!
//! So who talks to whom, which of two requests counts, and what a broken connection has left are decided by the words
//! (`handshake.rs`), as without a manager; the manager only joins two queue pairs that have been agreed on.
//!
//! # Invariants
//!
//! * A request of the manager is accepted only if it carries this process's token and the number of the attempt that this
//!   side has answered, and once: all others are rejected and counted.
//! * The side that asks sends first (iWARP demands it): the other one is ready when a frame has come, never by a word.
//! * A peer's manager connection goes before, or with, its queue pair ([`super::peer::Peer::unlink`]).
//! * A request that fails is made anew under a new attempt, as long as the peer's patience lasts; each time after a longer
//!   while.

mod joiner;

use super::handshake::{Card, Stage, Word};
use super::mail::host_ports;
use super::peer::Peer;
use crate::verbs::Verbs;
use host::with_causes;
pub(super) use joiner::Joiner;
use joiner::{Hello, MAGIC, read_hello};
use portals_core::Ni;
use std::time::{Duration, Instant};
use verbs_backend::cm::{CmEvent, Link, LinkKey};
use zerocopy::IntoBytes;

/// How long the manager may look for an address, and for a route.
const LOOK_UP: Duration = Duration::from_secs(2);

impl Verbs {
    /// The rank of a connection of the manager.
    fn rank_of_link(&self, key: LinkKey) -> Option<usize> {
        let has = |p: &Peer| p.session.link.as_ref().is_some_and(|l| l.key() == key);
        let found = self.peers.iter().find(|(_, peer)| has(peer));
        found.map(|(rank, _)| rank)
    }

    /// A peer has accepted attempt `attempt`: has the manager join the queue pairs.
    pub(super) fn begin_joining(&mut self, ni: &mut Ni, rank: usize, attempt: u32, card: Card) {
        let (Some(joiner), Some(peer)) = (self.conn.joiner.as_ref(), self.peers.get_mut(rank))
        else {
            return;
        };
        // The timer goes on: of the peer's time a part is over, however often it is asked anew.
        peer.enter(Stage::Joining(attempt));
        peer.session.card = Some(card);
        let begun = match host_ports(&card.address) {
            Some((_, requests)) => joiner
                .manager
                .resolve(joiner.address, requests, LOOK_UP)
                .map_err(|e| with_causes(&e)),
            None => Err("it takes no requests of a connection manager".to_owned()),
        };
        match begun {
            Ok(link) => peer.session.link = Some(link),
            Err(why) => self.ask_anew(ni, rank, &why),
        }
        self.count_pending();
    }

    /// A connection did not come about: asks again after a while, with a new queue pair.
    fn ask_anew(&mut self, ni: &mut Ni, rank: usize, why: &str) {
        tracing::debug!(peer = rank, why, "no connection yet");
        if let Some(qp) = self.peer(rank).and_then(super::peer::Peer::unlink) {
            self.peers.parted(qp.qpn());
        }
        let qp = match self.new_qp() {
            Ok(qp) => qp,
            Err(why) => return self.fail_peer(ni, rank, &why),
        };
        let attempt = self.conn.next_attempt();
        if let Some(peer) = self.peer(rank) {
            peer.sq.attach(qp);
            peer.enter(Stage::Asking(attempt));
            // The timer sends the word.
            if let Some(timer) = &mut peer.session.timer {
                timer.again(Instant::now());
            }
        }
        self.count_pending();
        self.conn.bell.ring();
    }

    /// Takes events of the connection manager; whether there were any.
    pub(super) fn manager_events(&mut self, ni: &mut Ni) -> bool {
        let mut any = false;
        loop {
            let event = match self.conn.joiner.as_ref().map(|j| j.manager.take_event()) {
                Some(Ok(Some(event))) => event,
                Some(Err(error)) => {
                    tracing::error!(%error, "the connection manager failed");
                    return any;
                }
                Some(Ok(None)) | None => return any,
            };
            any = true;
            self.manager_event(ni, event);
        }
    }

    fn manager_event(&mut self, ni: &mut Ni, event: CmEvent) {
        match event {
            CmEvent::Request { link, private } => self.joining_request(link, &private),
            CmEvent::Resolved(key) => self.go_on(ni, key, |verbs, rank| {
                let (device, port) = (verbs.adapter.device().clone(), verbs.adapter.port());
                let link = verbs.peer(rank)?.session.link.as_ref()?;
                if !link.is_on(&device, port) {
                    return Some(Err("its address is reached by another device".to_owned()));
                }
                Some(link.route(LOOK_UP).map_err(|e| with_causes(&e)))
            }),
            CmEvent::Routed(key) => self.go_on(ni, key, |verbs, rank| {
                let [from, own] = [verbs.peers.own(), rank].map(|index| verbs.name_of(index).0);
                let peer = verbs.peer(rank)?;
                let (Stage::Joining(attempt), Some(card)) =
                    (peer.session.stage(), peer.session.card)
                else {
                    return None;
                };
                let hello = Hello {
                    magic: MAGIC.into(),
                    from: from.into(),
                    to: own.into(),
                    attempt: attempt.into(),
                    token: card.token.into(),
                };
                let qp = peer.sq.qp().cloned()?;
                let asked = peer.session.link.as_mut()?.connect(&qp, hello.as_bytes());
                Some(asked.map_err(|e| with_causes(&e)))
            }),
            CmEvent::Response(key, depths) => {
                self.go_on(ni, key, |verbs, rank| {
                    let finished = verbs.peer(rank)?.session.link.as_ref()?.finish(depths);
                    Some(finished.map_err(|e| with_causes(&e)))
                });
                self.joined(ni, key);
            }
            CmEvent::Established(key) => self.joined(ni, key),
            CmEvent::Failed { key, what, status } => {
                let Some(rank) = self.rank_of_link(key) else {
                    return;
                };
                match self.peer(rank).map(|p| p.session.stage()) {
                    Some(Stage::Joining(_)) => {
                        self.ask_anew(ni, rank, &format!("{what} ({status})"));
                    }
                    // Whoever asked does so anew.
                    Some(Stage::Answered) => {}
                    _ => self.link_ended(rank),
                }
            }
            CmEvent::Disconnected(key) => {
                let Some(rank) = self.rank_of_link(key) else {
                    return;
                };
                tracing::debug!(peer = rank, "disconnected");
                match self.peer(rank).map(|p| p.session.stage()) {
                    Some(Stage::Joining(_)) => self.ask_anew(ni, rank, "disconnected"),
                    _ => self.link_ended(rank),
                }
            }
            CmEvent::DeviceGone(_) => self.device_gone(ni, &"it is being taken away"),
            other => tracing::debug!(?other, "event of the connection manager"),
        }
    }

    fn link_ended(&mut self, rank: usize) {
        if let Some(peer) = self.peer(rank)
            && !peer.is_failed()
            && peer.session.stage() != Stage::Draining
        {
            peer.sq.set_broken(true);
            self.conn.pending += 1;
        }
    }

    /// One step of a connection that this side has asked for.
    fn go_on(
        &mut self,
        ni: &mut Ni,
        key: LinkKey,
        step: impl FnOnce(&mut Self, usize) -> Option<Result<(), String>>,
    ) {
        let Some(rank) = self.rank_of_link(key) else {
            return;
        };
        if !matches!(
            self.peer(rank).map(|p| p.session.stage()),
            Some(Stage::Joining(_))
        ) {
            return;
        }
        if let Some(Err(why)) = step(self, rank) {
            self.ask_anew(ni, rank, &why);
        }
    }

    /// The queue pairs are joined: what the ACCEPT would have led to at once without a manager.
    fn joined(&mut self, ni: &mut Ni, key: LinkKey) {
        let Some(rank) = self.rank_of_link(key) else {
            return;
        };
        let timer = self.conn.timer();
        let Some(peer) = self.peer(rank) else { return };
        let (Stage::Joining(attempt), Some(card), Some(qpn)) = (
            peer.session.stage(),
            peer.session.card.take(),
            peer.sq.qp().map(verbs_backend::Qp::qpn),
        ) else {
            return;
        };
        peer.enter(Stage::Opening(attempt));
        peer.session.timer = Some(timer);
        self.peers.joined(qpn, rank);
        self.renew(ni, rank, &card);
        self.greet(ni, rank);
        self.count_pending();
    }

    /// Somebody asks the manager for a connection.
    fn joining_request(&mut self, mut link: Link, private: &[u8]) {
        let own = self.name_of(self.peers.own()).0 as usize;
        let asked = read_hello(private, own, self.conn.token);
        let closed = self.closed;
        let (device, port) = (self.adapter.device(), self.adapter.port());
        let on = link.is_on(device, port);
        let answered = |rank: usize, attempt| {
            let peer = self.peers.get(rank);
            peer.is_some_and(|p| {
                p.session.stage() == Stage::Answered && p.session.taken == Some(attempt)
            })
        };
        let named = asked.and_then(|(name, attempt)| {
            let rank = self.named(name, |rank| answered(rank, attempt))?;
            Some((rank, attempt))
        });
        let peer = named.and_then(|(rank, attempt)| {
            let peer = self.peers.get_mut(rank)?;
            let fits = peer.session.stage() == Stage::Answered
                && peer.session.taken == Some(attempt)
                && peer.session.link.is_none();
            (fits && on && !closed).then_some((rank, peer))
        });
        let Some((rank, peer)) = peer else {
            self.counters.bad_frames += 1;
            tracing::warn!(?asked, "a request of the connection manager is rejected");
            return link.reject();
        };
        let Some(qp) = peer.sq.qp().cloned() else {
            return link.reject();
        };
        match link.accept(&qp) {
            Ok(()) => peer.session.link = Some(link),
            // Whoever asked finds out, and asks anew.
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!(peer = rank, why, "a request cannot be accepted");
            }
        }
    }

    /// Says READY, where no connection manager does.
    pub(super) fn say_ready(&mut self, rank: usize, attempt: u32) {
        if self.conn.joiner.is_none() {
            let ready = self.datagram(rank, Word::Ready, attempt, super::link::NOWHERE);
            self.tell_peer(rank, &ready.to_bytes());
        }
    }
}
