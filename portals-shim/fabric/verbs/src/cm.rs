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

use super::handshake::{Card, Stage, Word};
use super::mail::host_ports;
use super::{Verbs, mail};
use portals_core::Ni;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use verbs_backend::cm::{CmError, CmEvent, Link, LinkKey, Listener, Manager};
use verbs_backend::{Device, PortInfo};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0x5054_4c4d;
/// How long the manager may look for an address, and for a route.
const LOOK_UP: Duration = Duration::from_secs(2);

/// What comes with a request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Hello {
    magic: U32,
    from: U32,
    to: U32,
    attempt: U32,
    /// Of the process that is asked.
    token: U64,
}

const _: () = assert!(size_of::<Hello>() <= verbs_backend::cm::PRIVATE);

/// A request that is what it should be: of which rank, and of which attempt.
fn read_hello(bytes: &[u8], own: usize, token: u64) -> Option<(usize, u32)> {
    let (hello, _) = Hello::read_from_prefix(bytes).ok()?;
    let fits =
        hello.magic.get() == MAGIC && hello.to.get() as usize == own && hello.token.get() == token;
    fits.then(|| (hello.from.get() as usize, hello.attempt.get()))
}

/// This process's part of the connection manager.
#[derive(Debug)]
pub(super) struct Joiner {
    manager: Manager,
    listener: Listener,
    address: IpAddr,
}

impl Joiner {
    /// Listens at an address of the port, which is `wanted` if that is one.
    pub(super) fn new(
        device: &Device,
        port: &PortInfo,
        wanted: Option<IpAddr>,
    ) -> Result<Self, CmError> {
        let manager = Manager::new()?;
        let address = manager.address(device, port.number, wanted)?;
        let listener = manager.listen(address)?;
        Ok(Self {
            manager,
            listener,
            address,
        })
    }

    /// What carries words to this process.
    pub(super) fn mail(&self) -> std::io::Result<mail::Mail> {
        mail::Mail::host(self.address, self.listener.port())
    }

    pub(super) fn events_fd(&self) -> Option<OwnedFd> {
        self.manager.events_fd().try_clone_to_owned().ok()
    }
}

impl Verbs {
    /// The rank of a connection of the manager.
    fn rank_of_link(&self, key: LinkKey) -> Option<usize> {
        let has = |rank: &&usize| {
            let peer = self.peers[**rank].as_ref();
            peer.is_some_and(|p| p.link.as_ref().is_some_and(|l| l.key() == key))
        };
        self.met.iter().find(has).copied()
    }

    /// A peer has accepted attempt `attempt`: has the manager join the queue pairs.
    pub(super) fn begin_joining(&mut self, ni: &mut Ni, rank: usize, attempt: u32, card: Card) {
        let (Some(joiner), Some(peer)) = (
            self.joiner.as_ref(),
            self.peers.get_mut(rank).and_then(Option::as_deref_mut),
        ) else {
            return;
        };
        // The timer goes on: of the peer's time a part is over, however often it is asked anew.
        peer.stage = Stage::Joining(attempt);
        peer.card = Some(card);
        let begun = match host_ports(&card.address) {
            Some((_, requests)) => joiner
                .manager
                .resolve(joiner.address, requests, LOOK_UP)
                .map_err(|e| super::connect::chain(&e)),
            None => Err("it takes no requests of a connection manager".to_owned()),
        };
        match begun {
            Ok(link) => peer.link = Some(link),
            Err(why) => self.ask_anew(ni, rank, &why),
        }
        self.count_pending();
    }

    /// A connection did not come about: asks again after a while, with a new queue pair.
    fn ask_anew(&mut self, ni: &mut Ni, rank: usize, why: &str) {
        tracing::debug!(peer = rank, why, "no connection yet");
        if let Some(qp) = self.peer(rank).and_then(super::peer::Peer::unlink) {
            self.by_qpn.remove(qp.qpn());
        }
        let qp = match self.new_qp() {
            Ok(qp) => qp,
            Err(why) => return self.fail_peer(ni, rank, &why),
        };
        self.attempts = self.attempts.wrapping_add(1);
        let attempt = self.attempts;
        if let Some(peer) = self.peer(rank) {
            peer.qp = Some(qp);
            peer.stage = Stage::Asking(attempt);
            // The timer sends the word.
            if let Some(timer) = &mut peer.timer {
                timer.next = Instant::now() + timer.interval;
            }
        }
        self.count_pending();
        self.bell.ring();
    }

    /// Takes what the manager tells; whether there was something.
    pub(super) fn manager_events(&mut self, ni: &mut Ni) -> bool {
        let mut any = false;
        loop {
            let event = match self.joiner.as_ref().map(|j| j.manager.take_event()) {
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
                let (device, port) = (verbs.device.clone(), verbs.port);
                let link = verbs.peer(rank)?.link.as_ref()?;
                if !link.is_on(&device, port) {
                    return Some(Err("its address is reached by another device".to_owned()));
                }
                Some(link.route(LOOK_UP).map_err(|e| super::connect::chain(&e)))
            }),
            CmEvent::Routed(key) => self.go_on(ni, key, |verbs, rank| {
                let [from, own] = [verbs.rank, rank].map(|index| verbs.name_of(index).0);
                let peer = verbs.peer(rank)?;
                let (Stage::Joining(attempt), Some(card)) = (peer.stage, peer.card) else {
                    return None;
                };
                let hello = Hello {
                    magic: MAGIC.into(),
                    from: from.into(),
                    to: own.into(),
                    attempt: attempt.into(),
                    token: card.token.into(),
                };
                let qp = peer.qp.clone()?;
                let asked = peer.link.as_mut()?.connect(&qp, hello.as_bytes());
                Some(asked.map_err(|e| super::connect::chain(&e)))
            }),
            CmEvent::Response(key, depths) => {
                self.go_on(ni, key, |verbs, rank| {
                    let finished = verbs.peer(rank)?.link.as_ref()?.finish(depths);
                    Some(finished.map_err(|e| super::connect::chain(&e)))
                });
                self.joined(ni, key);
            }
            CmEvent::Established(key) => self.joined(ni, key),
            CmEvent::Failed { key, what, status } => {
                let Some(rank) = self.rank_of_link(key) else {
                    return;
                };
                match self.peer(rank).map(|p| p.stage) {
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
                match self.peer(rank).map(|p| p.stage) {
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
            && peer.stage != Stage::Draining
        {
            peer.broken = true;
            self.pending += 1;
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
        if !matches!(self.peer(rank).map(|p| p.stage), Some(Stage::Joining(_))) {
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
        let timer = self.timer();
        let Some(peer) = self.peer(rank) else { return };
        let (Stage::Joining(attempt), Some(card), Some(qpn)) = (
            peer.stage,
            peer.card.take(),
            peer.qp.as_ref().map(verbs_backend::Qp::qpn),
        ) else {
            return;
        };
        peer.stage = Stage::Opening(attempt);
        peer.timer = Some(timer);
        self.by_qpn.insert(qpn, rank);
        self.renew(ni, rank, &card);
        self.greet(ni, rank);
        self.count_pending();
    }

    /// Somebody asks the manager for a connection.
    fn joining_request(&mut self, mut link: Link, private: &[u8]) {
        let own = self.name_of(self.rank).0 as usize;
        let asked = read_hello(private, own, self.token);
        let closed = self.closed;
        let (device, port) = (&self.device, self.port);
        let on = link.is_on(device, port);
        let answered = |rank: usize, attempt| {
            let peer = self.peers.get(rank).and_then(Option::as_deref);
            peer.is_some_and(|p| p.stage == Stage::Answered && p.taken == Some(attempt))
        };
        let named = asked.and_then(|(name, attempt)| {
            let rank = self.named(name, |rank| answered(rank, attempt))?;
            Some((rank, attempt))
        });
        let peer = named.and_then(|(rank, attempt)| {
            let peer = self.peers.get_mut(rank)?.as_deref_mut()?;
            let fits =
                peer.stage == Stage::Answered && peer.taken == Some(attempt) && peer.link.is_none();
            (fits && on && !closed).then_some((rank, peer))
        });
        let Some((rank, peer)) = peer else {
            self.counters.bad_frames += 1;
            tracing::warn!(?asked, "a request of the connection manager is rejected");
            return link.reject();
        };
        let Some(qp) = peer.qp.clone() else {
            return link.reject();
        };
        match link.accept(&qp) {
            Ok(()) => peer.link = Some(link),
            // Whoever asked finds out, and asks anew.
            Err(error) => {
                let why = super::connect::chain(&error);
                tracing::warn!(peer = rank, why, "a request cannot be accepted");
            }
        }
    }

    /// Tells a peer that accepts words alone that this side is ready.
    pub(super) fn say_ready(&mut self, rank: usize, attempt: u32) {
        if self.joiner.is_none() {
            let ready = self.datagram(rank, Word::Ready, attempt, super::link::NOWHERE);
            self.tell_peer(rank, &ready.to_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(to: u32, token: u64) -> Vec<u8> {
        let hello = Hello {
            magic: MAGIC.into(),
            from: 3.into(),
            to: to.into(),
            attempt: 9.into(),
            token: token.into(),
        };
        hello.as_bytes().to_vec()
    }

    #[test]
    fn a_request_is_for_this_process_or_nothing() {
        let mut bytes = hello(5, 77);
        assert_eq!(read_hello(&bytes, 5, 77), Some((3, 9)));
        assert_eq!(read_hello(&bytes, 4, 77), None);
        assert_eq!(read_hello(&bytes, 5, 78), None);
        for end in 0..bytes.len() {
            assert_eq!(read_hello(&bytes[..end], 5, 77), None, "{end} bytes");
        }
        // InfiniBand pads.
        bytes.resize(verbs_backend::cm::PRIVATE, 0);
        assert_eq!(read_hello(&bytes, 5, 77), Some((3, 9)));
        bytes[0] ^= 1;
        assert_eq!(read_hello(&bytes, 5, 77), None);
    }
}
