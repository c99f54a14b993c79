//! Which segment goes next, and on which channel.
//!
//! ```text
//!   lost segments (data channel) ─▶ new segments, peers in turn ─▶ acks (command channel) ─▶ farewells
//! ```
//!
//! Lost segments go first, but never on the command channel: where much is lost, acks must get through. A peer is in turn
//! while it has something to send, credits, room in its window and a congestion window that is not full; each turn is of a few
//! segments. Everything sent carries the ack that is due.

use super::config::{Channel, Time};
use super::credits::NO_SEGMENT;
use super::fragment::{Ended, Source};
use super::peer::Active;
use super::wire::{self, HEAD, Head, Kind};
use super::{Endpoint, PeerId};

/// A datagram to be posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// To whom.
    pub peer: PeerId,
    /// By which queue pair; [`Endpoint::handle_sent`] is to be told when it has left.
    pub channel: Channel,
    /// Bytes.
    pub len: usize,
    /// Nothing is to be said any more to this peer after it.
    pub last: bool,
}

/// Segments that a peer sends in one turn.
const TURN: u64 = 8;

impl<S: Source> Endpoint<S> {
    /// Puts a peer into the lists that it belongs to.
    #[inline]
    pub(super) fn refresh(&mut self, id: u32) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        let Some(active) = peer.active.as_deref() else {
            return;
        };
        if !peer.may_send(&self.config) {
            return;
        }
        if active.unacked.has_lost() {
            self.again.add(id, &mut peer.marks.again);
        }
        if !active.waiting.is_empty() && peer.window.is_open(self.config.window) {
            self.ready.add(id, &mut peer.marks.ready);
        }
    }

    /// What is to be sent next, written to `out`, which has room for the longest datagram of either channel. `None`:
    /// nothing, until something arrives, completes, expires or is queued.
    pub fn poll_transmit(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        if out.len() < self.config.data.mtu {
            return None;
        }
        self.poll_again(now, out)
            .or_else(|| self.poll_new(now, out))
            .or_else(|| self.poll_ack(out))
            .or_else(|| self.poll_bye(out))
    }

    fn poll_again(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        while let Some(id) = self.again.first() {
            if !self.posted.has_credit(&self.config, Channel::Data) {
                return None;
            }
            if let Some(at) = self.next_lost(id) {
                self.stats.resends += 1;
                return self.transmit(now, at, Channel::Data, out);
            }
            let peer = &mut self.peers[id as usize];
            self.again.remove_first(&mut peer.marks.again);
        }
        None
    }

    /// The next lost segment of a peer that is lost still, and may be sent.
    fn next_lost(&mut self, id: u32) -> Option<u32> {
        let peer = self.peers.get_mut(id as usize)?;
        if !peer.may_send(&self.config) {
            return None;
        }
        let active = peer.active.as_deref_mut()?;
        active.unacked.pop_lost(&peer.window, &self.segments)
    }

    fn poll_new(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let mut looked = 0;
        while looked < self.ready.len() {
            let id = self.ready.first()?;
            let Some((fragment, channel)) = self.next_fragment(id) else {
                let peer = &mut self.peers[id as usize];
                self.ready.remove_first(&mut peer.marks.ready);
                continue;
            };
            if !self.posted.has_credit(&self.config, channel) {
                self.ready.rotate();
                looked += 1;
                continue;
            }
            let at = self.cut(id, fragment)?;
            let sent = self.transmit(now, at, channel, out);
            let window = &self.peers[id as usize].window;
            if window.transmissions().is_multiple_of(TURN) {
                self.ready.rotate();
            }
            return sent;
        }
        None
    }

    /// The fragment whose turn it is at a peer that may be sent more, and the channel of its next segment.
    fn next_fragment(&self, id: u32) -> Option<(u32, Channel)> {
        let config = &self.config;
        let peer = self.peers.get(id as usize)?;
        if !peer.window.is_open(config.window) || !peer.may_send(config) {
            return None;
        }
        let waiting = &peer.active.as_deref()?.waiting;
        let key = waiting.next(&self.fragments, config.overtake)?;
        let tiny = self
            .fragments
            .get(key as usize)?
            .is_tiny(config.command.mtu);
        let goes = tiny && peer.posted.may_cross(config.cross);
        let channel = if goes && self.posted.has_room_beside_acks(config) {
            Channel::Command
        } else {
            Channel::Data
        };
        Some((key, channel))
    }

    /// Numbers the next segment of a fragment; which it is.
    fn cut(&mut self, id: u32, key: u32) -> Option<u32> {
        let peer = &mut self.peers[id as usize];
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        let fragment = self.fragments.get_mut(key as usize)?;
        let piece = fragment.cut(key, self.config.data.mtu);
        match piece.kind {
            Kind::Put { .. } => self.stats.put_sends += 1,
            Kind::Chunk { .. } => self.stats.chunk_sends += 1,
            _ => self.stats.fragment_sends += 1,
        }
        if fragment.is_cut() {
            active.waiting.pop(key);
        }
        let (unacked, segments) = (&mut active.unacked, &mut self.segments);
        let at = peer.window.number(unacked, segments, id, piece);
        self.stats.most_unacked = self.stats.most_unacked.max(unacked.len() as u64);
        Some(at)
    }

    /// Writes a segment, starts its timer, and takes the credits.
    fn transmit(
        &mut self,
        now: Time,
        at: u32,
        channel: Channel,
        out: &mut [u8],
    ) -> Option<Transmit> {
        let segment = self.segments.get_mut(at as usize)?;
        let id = segment.peer();
        let peer = &mut self.peers[id as usize];
        peer.window.transmit(now, segment);
        peer.posted.post(channel);
        let deadline = now + peer.pace.timeout(self.config.retransmit);
        self.timers.check_in(at, deadline);
        let piece = segment.piece();
        let start = piece.kind.head();
        let len = start + piece.len as usize;
        if let Some(fragment) = self.fragments.get(piece.fragment as usize) {
            fragment.fill(piece.offset, &mut out[start..len]);
        }
        let (seq, kind) = (segment.seq(), (piece.kind, segment.is_repeated()));
        Some(self.finish(id, channel, seq, kind, len, out))
    }

    /// Writes the head; what rides on every datagram.
    fn finish(
        &mut self,
        id: u32,
        channel: Channel,
        seq: u64,
        (kind, again): (Kind, bool),
        len: usize,
        out: &mut [u8],
    ) -> Transmit {
        let share = self.crowd.share(&self.config);
        let peer = &mut self.peers[id as usize];
        // An end that is owed much is asked for less, and is told if nothing of it is taken.
        let share = match peer.waiting_for_it() {
            waiting if waiting >= self.config.owed => 0,
            waiting if waiting >= self.config.owed / 2 => 1,
            _ => share,
        };
        // This is the ack that was due.
        peer.ack.sent();
        self.ack_timers.check_out(id);
        let head = Head {
            sender: self.number,
            seq: if seq == NO_SEGMENT {
                peer.window.next()
            } else {
                seq
            },
            ack: peer.arrived.next(),
            share,
            repeats: peer.ack.repeats(),
            again,
            kind,
        };
        wire::write(out, len, &head, peer.keys.out, self.config.checksum);
        self.posted.push(channel, id, seq);
        self.stats.sends += 1;
        Transmit {
            peer: PeerId(id),
            channel,
            len,
            last: kind == Kind::Bye,
        }
    }

    fn poll_ack(&mut self, out: &mut [u8]) -> Option<Transmit> {
        while let Some(id) = self.acks.first() {
            if !self.posted.has_credit(&self.config, Channel::Command) {
                return None;
            }
            let peer = &mut self.peers[id as usize];
            self.acks.remove_first(&mut peer.marks.acks);
            // Something has carried it, and there is no gap to tell of.
            if peer.dead || !(peer.ack.is_due() || peer.keeps_some()) {
                continue;
            }
            let most = self.config.command.mtu - HEAD;
            let bits = &mut out[HEAD..HEAD + most.min(wire::MOST_BITS / 8)];
            let active = peer.active.as_deref();
            let bits = active.map_or(0, |active| peer.arrived.beyond(&active.kept, bits));
            self.stats.ack_sends += 1;
            return Some(self.finish(
                id,
                Channel::Command,
                NO_SEGMENT,
                (Kind::Ack, false),
                HEAD + bits,
                out,
            ));
        }
        None
    }

    fn poll_bye(&mut self, out: &mut [u8]) -> Option<Transmit> {
        if !self.posted.has_credit(&self.config, Channel::Command) {
            return None;
        }
        let id = self.byes.pop_front()?;
        let kind = (Kind::Bye, false);
        Some(self.finish(id, Channel::Command, NO_SEGMENT, kind, HEAD, out))
    }

    /// Tells a peer that nothing more will be said, and what has arrived. One datagram that may be lost; to be called
    /// several times, when all is acked.
    pub fn farewell(&mut self, peer: PeerId) {
        if self.peers.get(peer.index()).is_some_and(|p| !p.dead) {
            self.byes.push_back(peer.0);
        }
    }

    /// The oldest `count` datagrams of a channel have left.
    pub fn handle_sent(&mut self, channel: Channel, count: usize) {
        for _ in 0..count {
            let Some((id, seq)) = self.posted.pop(channel) else {
                return;
            };
            if seq == NO_SEGMENT {
                continue;
            }
            let Some(peer) = self.peers.get_mut(id as usize) else {
                continue;
            };
            peer.posted.left(channel);
            let active = peer.active.as_deref();
            let at = active.and_then(|active| active.unacked.find(&peer.window, seq));
            if let Some(segment) = at.and_then(|at| self.segments.get_mut(at as usize)) {
                segment.left();
            }
            self.refresh(id);
        }
    }

    /// Datagrams posted and not reported.
    pub fn posted(&self, channel: Channel) -> usize {
        self.posted.len(channel)
    }

    /// A segment will not be sent again; frees it, and its fragment with the last. What the user called that one.
    pub(super) fn release(&mut self, at: u32) -> Option<Ended> {
        self.timers.check_out(at);
        let segment = self.segments.try_remove(at as usize)?;
        let key = segment.piece().fragment;
        let fragment = self.fragments.get_mut(key as usize)?;
        if fragment.segment_gone() {
            return self.drop_fragment(key);
        }
        None
    }

    pub(super) fn drop_fragment(&mut self, key: u32) -> Option<Ended> {
        let fragment = self.fragments.try_remove(key as usize)?;
        Some(fragment.ended())
    }
}
