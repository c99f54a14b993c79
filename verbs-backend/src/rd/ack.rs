//! What an ack ends and what it says is lost, and timers that run out.
//!
//! An ack names the next number that is expected, and may name segments beyond it that are here. A segment is taken for
//! lost when [`Config::reorder`](super::Config::reorder) transmissions that were made after its own have arrived, be it
//! the first or a repeated one; or when its timer runs out. A number alone says nothing about losses: repeated acks without
//! news answer segments that arrived twice.

use super::send::{Ended, State};
use super::{Endpoint, Event, PeerId, Source, Time};
use std::collections::VecDeque;

/// Timers that a segment which has not left yet gets, before it is sent again all the same.
const RENEWALS: u8 = 3;

/// Adds a lost number. The earliest goes first: all others wait for it, and it is the one that the receiver has always
/// room for.
fn insert(lost: &mut VecDeque<u64>, seq: u64) {
    let place = match lost.back() {
        Some(last) if *last > seq => lost.partition_point(|s| *s < seq),
        _ => lost.len(),
    };
    lost.insert(place, seq);
}

impl<S: Source> Endpoint<S> {
    /// Takes what a datagram of a peer says has arrived; `false` if it cannot be meant.
    pub(super) fn handle_ack(&mut self, now: Time, id: u32, ack: u64, beyond: &[u8]) -> bool {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return false;
        };
        if ack > peer.next_seq {
            return false;
        }
        if ack < peer.acked {
            self.stats.old_acks += 1;
            return true;
        }
        let count = ack - peer.acked;
        if count == 0 && beyond.is_empty() {
            return true;
        }
        if count > 0 {
            peer.heard = now;
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
        let before = self.peers[id as usize].under_way;
        let allowed = self.peers[id as usize].pace.window();
        let mut count = 0;
        let mut sample = None;
        while let Some(peer) = self.peers.get_mut(id as usize)
            && peer.acked < ack
        {
            let active = peer.active.as_deref_mut();
            let Some(at) = active.and_then(|a| a.sent.pop_front()) else {
                break;
            };
            peer.acked += 1;
            let segment = self.segments[at as usize];
            match segment.state {
                State::UnderWay => {
                    peer.under_way -= 1;
                    count += 1;
                    peer.newest = peer.newest.max(segment.order);
                    if segment.sends == 1 {
                        sample = Some(now.saturating_sub(segment.sent_at));
                    }
                }
                // It was not lost after all.
                State::Lost => count += 1,
                State::Arrived | State::Free => {}
            }
            if let Some(Ended { tag, .. }) = self.release(at) {
                let peer = PeerId(id);
                self.events.push_back(Event::Acked { peer, tag });
            }
        }
        let window = u32::from(self.config.window);
        if let Some(peer) = self.peers.get_mut(id as usize) {
            if peer.acked == peer.next_seq
                && let Some(active) = peer.active.as_deref_mut()
            {
                active.lost.clear();
            }
            if let Some(rtt) = sample {
                peer.pace.sample(rtt);
            }
            let full = before * 2 >= allowed;
            peer.pace
                .acked(count, peer.acked, peer.next_seq, full, window);
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
                let at = 1 + byte * 8 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let Some(&at) = active.sent.get(at) else {
                    break;
                };
                let segment = &mut self.segments[at as usize];
                match segment.state {
                    State::UnderWay => peer.under_way -= 1,
                    State::Lost => {}
                    State::Arrived | State::Free => continue,
                }
                news = true;
                segment.state = State::Arrived;
                peer.newest = peer.newest.max(segment.order);
                self.timers.check_out(at);
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
        for &at in &active.sent {
            let segment = &mut self.segments[at as usize];
            if segment.state != State::UnderWay {
                continue;
            }
            if segment.order + limit > peer.newest {
                // Those behind one that was sent once were all sent after it.
                if segment.sends == 1 {
                    break;
                }
                continue;
            }
            segment.state = State::Lost;
            self.timers.check_out(at);
            peer.under_way -= 1;
            peer.pace.lost();
            insert(&mut active.lost, segment.seq);
            self.stats.fast_resends += 1;
        }
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
        let segment = &mut self.segments[at as usize];
        let id = segment.peer;
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        if now.saturating_sub(peer.heard) > self.config.give_up {
            return self.give_up(id);
        }
        if segment.posted && segment.renewals < RENEWALS {
            segment.renewals += 1;
            self.stats.renewals += 1;
            let deadline = now + peer.pace.timeout(self.config.retransmit);
            self.timers.check_in(at, deadline);
            return;
        }
        if segment.state != State::UnderWay {
            return;
        }
        segment.state = State::Lost;
        peer.under_way -= 1;
        self.stats.timeouts += 1;
        // Several that run out together are one event.
        if segment.order > peer.expired_until {
            peer.expired_until = peer.order;
            peer.pace.expired();
        }
        let seq = segment.seq;
        if let Some(active) = peer.active.as_deref_mut() {
            insert(&mut active.lost, seq);
        }
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
        peer.under_way = 0;
        peer.unacked_receives = 0;
        peer.acked = peer.next_seq;
        self.ack_timers.check_out(id);
        let active = peer.active.take();
        let peer = PeerId(id);
        let mut unacked = 0;
        if let Some(mut active) = active {
            let mut ended = Vec::new();
            for at in active.sent.drain(..) {
                ended.extend(self.release(at));
            }
            for at in active.urgent.drain(..).chain(active.queue.drain(..)) {
                ended.extend(self.drop_fragment(at));
            }
            for partial in active.partials.drain(..) {
                self.assembling -= partial.bytes();
            }
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
