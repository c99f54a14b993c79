//! What an ack ends and what it says is lost, and timers that run out.
//!
//! An ack names the next number that is expected, and may name segments beyond it that are here. A segment is taken for
//! lost when [`Config::reorder`](super::Config::reorder) transmissions that were made after its own have arrived, be it
//! the first or a repeated one; or when its timer runs out. A number alone says nothing about losses: repeated acks without
//! news answer segments that arrived twice.

use super::config::Time;
use super::fragment::{Ended, Source};
use super::window::{AckNumber, Expiry};
use super::{Endpoint, Event, PeerId};

impl<S: Source> Endpoint<S> {
    /// Takes what a datagram of a peer says has arrived; `false` if it cannot be meant.
    pub(super) fn handle_ack(&mut self, now: Time, id: u32, ack: u64, beyond: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return false;
        };
        let count = match peer.window.judge(ack) {
            AckNumber::Wrong => return false,
            AckNumber::Old => {
                self.stats.old_acks += 1;
                return true;
            }
            AckNumber::News(count) => count,
        };
        if count == 0 && beyond.is_empty() {
            return true;
        }
        if count > 0 {
            peer.pace.hear(now);
            self.take_acked(now, id, ack);
        }
        if !beyond.is_empty() {
            self.take_beyond(id, beyond);
        }
        self.find_lost(id);
        self.refresh(id);
        if count > 0 {
            self.settle(id);
        }
        true
    }

    /// All before `ack` have arrived.
    fn take_acked(&mut self, now: Time, id: u32, ack: u64) {
        let peer = &self.peers[id as usize];
        let full = peer.window.under_way() * 2 >= peer.pace.window();
        let mut count = 0;
        let mut sample = None;
        while let Some(peer) = self.peers.get_mut(id as usize)
            && peer.window.acked() < ack
        {
            let active = peer.active.as_deref_mut();
            let Some(at) = active.and_then(|a| peer.window.ack_first(&mut a.unacked)) else {
                break;
            };
            if let Some(segment) = self.segments.get(at as usize) {
                sample = segment.round_trip(now).or(sample);
                count += u32::from(peer.window.acknowledge(segment));
            }
            if let Some(Ended { tag, .. }) = self.release(at) {
                let peer = PeerId(id);
                self.events.push_back(Event::Acked { peer, tag });
            }
        }
        let most = u32::from(self.config.window);
        if let Some(peer) = self.peers.get_mut(id as usize) {
            if let Some(rtt) = sample {
                peer.pace.sample(rtt);
            }
            let (acked, next) = (peer.window.acked(), peer.window.next());
            peer.pace.acked(count, acked, next, full, most);
        }
    }

    /// Segments beyond the gap: bit `i` is that of number `acked + 1 + i`.
    fn take_beyond(&mut self, id: u32, beyond: &[u8]) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        let Some(active) = peer.active.as_deref_mut() else {
            return;
        };
        let mut news = false;
        for (byte, bits) in beyond.iter().enumerate() {
            let mut bits = *bits;
            while bits != 0 {
                let place = 1 + byte * 8 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(at) = active.unacked.get(place) else {
                    break;
                };
                if let Some(segment) = self.segments.get_mut(at as usize)
                    && peer.window.arrive(segment)
                {
                    news = true;
                    self.timers.check_out(at);
                }
            }
        }
        if !news {
            self.stats.duplicate_acks += 1;
        }
    }

    /// Segments that enough others have overtaken.
    fn find_lost(&mut self, id: u32) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        let limit = peer.pace.reorder(self.config.reorder);
        let Some(active) = peer.active.as_deref_mut() else {
            return;
        };
        let (unacked, segments) = (&mut active.unacked, &mut self.segments);
        peer.window.find_lost(unacked, segments, limit, |at| {
            self.timers.check_out(at);
            peer.pace.lost();
            self.stats.fast_resends += 1;
        });
    }

    /// Does what the time has come for.
    pub fn handle_timeout(&mut self, now: Time) {
        self.crowd.advance(now);
        while let Some(at) = self.timers.expire(now) {
            self.expired(now, at);
        }
        while let Some(id) = self.ack_timers.expire(now) {
            self.ack_soon(id);
        }
    }

    fn expired(&mut self, now: Time, at: u32) {
        let Some(segment) = self.segments.get_mut(at as usize) else {
            return;
        };
        let id = segment.peer();
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        if peer.pace.silence(now) > self.config.give_up {
            return self.give_up(id);
        }
        if segment.renew() {
            self.stats.renewals += 1;
            let deadline = now + peer.pace.timeout(self.config.retransmit);
            self.timers.check_in(at, deadline);
            return;
        }
        let unacked = peer.active.as_deref_mut().map(|a| &mut a.unacked);
        match peer.window.expire(unacked, segment) {
            Expiry::None => return,
            Expiry::Same => {}
            Expiry::First => peer.pace.expired(),
        }
        self.stats.timeouts += 1;
        self.refresh(id);
    }

    fn give_up(&mut self, id: u32) {
        self.stats.given_up += 1;
        self.end_peer(id, false);
    }

    /// Ends a peer: everything that was not acked has failed, what was received in part is dropped.
    pub fn remove(&mut self, peer: PeerId) {
        if !self.is_gone(peer) {
            self.end_peer(peer.0, false);
        }
    }

    pub(super) fn end_peer(&mut self, id: u32, said: bool) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        peer.dead = true;
        peer.window.end();
        peer.ack.sent();
        self.ack_timers.check_out(id);
        let active = peer.active.take();
        let peer = PeerId(id);
        let mut unacked = 0;
        if let Some(mut active) = active {
            let mut ended = Vec::new();
            for at in active.unacked.drain() {
                ended.extend(self.release(at));
            }
            for key in active.waiting.drain() {
                ended.extend(self.drop_fragment(key));
            }
            self.assembling -= active.partials.allocated();
            for Ended { tag, in_order } in ended {
                unacked += u32::from(in_order);
                self.events.push_back(Event::Failed { peer, tag });
            }
        }
        self.events.push_back(Event::Gone {
            peer,
            said,
            unacked,
        });
    }
}
