//! What a datagram does: check, window, order, acks that are due.

use super::peer::{Active, Peer, Slot};
use super::reassembly::{Chunk, Place};
use super::wire::{self, Bad, Head, Kind};
use super::{Endpoint, Event, PeerId, Received, Source, Time};

impl Peer {
    /// Writes which segments after the next one are here, a bit each; how many bytes.
    pub(super) fn beyond(&self, out: &mut [u8]) -> usize {
        let Some(active) = self.active.as_deref() else {
            return 0;
        };
        let skip = (self.next_in - self.handed) as usize + 1;
        let mut len = 0;
        for (i, slot) in active
            .slots
            .iter()
            .skip(skip)
            .take(out.len() * 8)
            .enumerate()
        {
            let (byte, bit) = (i / 8, i % 8);
            if byte >= len {
                out[len..=byte].fill(0);
                len = byte + 1;
            }
            out[byte] |= u8::from(!slot.is_empty()) << bit;
        }
        len
    }
}

impl<S: Source> Endpoint<S> {
    /// Takes a datagram that has arrived on either channel. What cannot be meant is counted and dropped.
    #[inline]
    pub fn handle_datagram<'a>(&mut self, now: Time, bytes: &'a [u8]) -> Received<'a> {
        self.stats.receives += 1;
        self.crowd.advance(now);
        let Some(sender) = wire::sender(bytes) else {
            self.stats.short += 1;
            return Received::Nothing;
        };
        let id = self.by_number.get(sender as usize).copied();
        let Some(peer) = id.and_then(|id| self.peers.get_mut(id as usize)) else {
            self.stats.unknown_sender += 1;
            return Received::Nothing;
        };
        let id = id.unwrap_or_default();
        let read = wire::read(
            bytes,
            peer.next_in,
            peer.acked,
            peer.key_back,
            self.config.checksum,
        );
        let (head, data) = match read {
            Ok(read) => read,
            Err(bad) => {
                match bad {
                    Bad::Short => self.stats.short += 1,
                    Bad::Kind => self.stats.unknown_kind += 1,
                    Bad::Check => self.stats.bad_check += 1,
                }
                return Received::Nothing;
            }
        };
        if peer.dead {
            self.stats.from_dead += 1;
            return Received::Nothing;
        }
        let needless = head.repeats.wrapping_sub(peer.repeated);
        // An older datagram says less than is known.
        if needless < 128 && needless > 0 {
            peer.repeated = head.repeats;
            peer.pace.needless(needless);
        }
        if head.share == 0 {
            // It is there, and takes nothing yet.
            peer.heard = now;
        }
        if peer.share != head.share {
            peer.share = head.share;
            self.refresh(id);
        }
        let beyond = if head.kind == Kind::Ack { data } else { &[] };
        if !self.handle_ack(now, id, head.ack, beyond) {
            self.stats.bad_ack += 1;
            return Received::Nothing;
        }
        match head.kind {
            Kind::Ack => {
                self.stats.ack_receives += 1;
                Received::Nothing
            }
            Kind::Bye => {
                self.end_peer(id, true);
                Received::Nothing
            }
            _ => self.segment(now, id, &head, data),
        }
    }

    /// A numbered segment.
    #[inline]
    fn segment<'a>(&mut self, now: Time, id: u32, head: &Head, data: &'a [u8]) -> Received<'a> {
        let peer = &mut self.peers[id as usize];
        self.crowd.heard(peer);
        if head.seq < peer.next_in {
            self.stats.window_low += 1;
            peer.repeats = peer.repeats.wrapping_add(1);
            self.ack_soon(id);
            return Received::Nothing;
        }
        let ahead = head.seq - peer.next_in;
        if ahead >= u64::from(self.config.window) {
            self.stats.window_high += 1;
            return Received::Nothing;
        }
        if peer.waiting_for_it() >= self.config.owed {
            self.stats.owed_refused += 1;
            self.ack_soon(id);
            return Received::Nothing;
        }
        let plain = peer.active.as_ref().is_none_or(|a| a.slots.is_empty());
        if ahead == 0 && plain && peer.handed == peer.next_in {
            return self.in_order(now, id, head, data);
        }
        self.ahead(id, head, data, ahead)
    }

    /// The next segment, and nothing is kept.
    #[inline]
    fn in_order<'a>(&mut self, now: Time, id: u32, head: &Head, data: &'a [u8]) -> Received<'a> {
        let peer = &mut self.peers[id as usize];
        let mut received = Received::Nothing;
        let mut last = false;
        match head.kind {
            Kind::Fragment => {
                self.stats.fragment_receives += 1;
                received = Received::Fragment {
                    peer: PeerId(id),
                    data,
                };
            }
            Kind::Chunk {
                id: of,
                size,
                offset,
            } => {
                if size > self.config.longest {
                    self.stats.bad_chunk += 1;
                    return Received::Nothing;
                }
                let active = Active::of(&mut peer.active, &mut self.spare_active);
                let new = !active.knows(of);
                match active.take_chunk(of, size, offset, data, 0, true) {
                    Chunk::Taken => {}
                    Chunk::Bad | Chunk::Refused => {
                        self.stats.bad_chunk += 1;
                        self.settle(id);
                        return Received::Nothing;
                    }
                }
                if new {
                    self.assembling += size as usize;
                }
                self.stats.chunk_receives += 1;
                if let Some(whole) = active.pass_chunk(of, data.len() as u32) {
                    last = true;
                    self.assembling -= whole.len();
                    self.events.push_back(Event::Fragment {
                        peer: PeerId(id),
                        data: whole,
                    });
                }
            }
            Kind::Put { landing, offset } => {
                let active = Active::of(&mut peer.active, &mut self.spare_active);
                match active.place(landing, offset, data.len() as u64) {
                    Place::Here { complete } => {
                        last = complete;
                        received = Received::Place {
                            peer: PeerId(id),
                            landing,
                            offset,
                            data,
                            complete,
                        };
                    }
                    Place::Outside => {
                        self.stats.bad_put += 1;
                        self.settle(id);
                        return Received::Nothing;
                    }
                    Place::Closed => self.stats.unwanted_puts += 1,
                }
                self.stats.put_receives += 1;
            }
            Kind::Ack | Kind::Bye => {}
        }
        self.crowd.arrived(&self.config, 0, false);
        let peer = &mut self.peers[id as usize];
        peer.next_in += 1;
        peer.handed += 1;
        if peer.active.is_some() && last {
            self.settle(id);
        }
        self.ack_later(now, id, last);
        received
    }

    /// A segment within the window that cannot be handed up where it lies.
    fn ahead<'a>(&mut self, id: u32, head: &Head, data: &'a [u8], ahead: u64) -> Received<'a> {
        // What is missing is to be told, and so is that nothing is.
        self.ack_soon(id);
        let peer = &mut self.peers[id as usize];
        let at = (head.seq - peer.handed) as usize;
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        if active.slots.get(at).is_some_and(|s| !s.is_empty()) {
            self.stats.duplicates += 1;
            peer.repeats = peer.repeats.wrapping_add(1);
            return Received::Nothing;
        }
        // What the next one needs is always there: nothing else can free what the others have.
        let next = ahead == 0;
        let mut received = Received::Nothing;
        let slot = match head.kind {
            Kind::Chunk {
                id: of,
                size,
                offset,
            } => {
                if size > self.config.longest {
                    self.stats.bad_chunk += 1;
                    return Received::Nothing;
                }
                let room = self.config.reassembly.saturating_sub(self.assembling);
                let new = !active.knows(of);
                match active.take_chunk(of, size, offset, data, room, next) {
                    Chunk::Taken => {}
                    Chunk::Bad => {
                        self.stats.bad_chunk += 1;
                        self.settle(id);
                        return Received::Nothing;
                    }
                    Chunk::Refused => {
                        self.stats.reassembly_refused += 1;
                        self.settle(id);
                        return Received::Nothing;
                    }
                }
                if new {
                    self.assembling += size as usize;
                }
                self.stats.chunk_receives += 1;
                let len = data.len() as u32;
                Slot::Chunk { id: of, len }
            }
            Kind::Put { landing, offset } => {
                match active.place(landing, offset, data.len() as u64) {
                    Place::Here { complete } => {
                        self.stats.put_receives += 1;
                        received = Received::Place {
                            peer: PeerId(id),
                            landing,
                            offset,
                            data,
                            complete,
                        };
                        Slot::Placed
                    }
                    Place::Outside => {
                        self.stats.bad_put += 1;
                        self.settle(id);
                        return Received::Nothing;
                    }
                    Place::Closed => {
                        if !next && active.held + data.len() > self.config.hold {
                            self.stats.hold_refused += 1;
                            self.settle(id);
                            return Received::Nothing;
                        }
                        active.held += data.len();
                        Slot::Put {
                            landing,
                            offset,
                            data: copy(&mut self.buffers, data),
                        }
                    }
                }
            }
            _ => {
                if !next && active.held + data.len() > self.config.hold {
                    self.stats.hold_refused += 1;
                    self.settle(id);
                    return Received::Nothing;
                }
                active.held += data.len();
                Slot::Fragment(copy(&mut self.buffers, data))
            }
        };
        let seen = active
            .slots
            .len()
            .max((peer.next_in - peer.handed) as usize);
        self.crowd.arrived(
            &self.config,
            at.saturating_sub(seen) as u32,
            at < seen && !head.again,
        );
        self.stats.held += 1;
        self.stats.most_ahead = self.stats.most_ahead.max(ahead);
        if active.slots.len() <= at {
            active.slots.resize_with(at + 1, || Slot::Empty);
        }
        active.slots[at] = slot;
        // The window moves over all that is here.
        let mut next_in = (peer.next_in - peer.handed) as usize;
        while active.slots.get(next_in).is_some_and(|s| !s.is_empty()) {
            next_in += 1;
        }
        let next_in = peer.handed + next_in as u64;
        if next_in > peer.next_in {
            peer.next_in = next_in;
            if !peer.in_deliverable {
                peer.in_deliverable = true;
                self.deliverable.push_back(id);
            }
        }
        received
    }

    /// What the acks of the last datagram have ended. That was before its data, which [`Endpoint::handle_datagram`] has
    /// returned: who cares for the order asks for this first, and then looks at the data.
    #[inline]
    pub fn poll_ended(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// What has happened, and what was kept and is in order now.
    #[inline]
    pub fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        if self.deliverable.is_empty() {
            return None;
        }
        self.poll_kept()
    }

    fn poll_kept(&mut self) -> Option<Event> {
        while let Some(&id) = self.deliverable.front() {
            let peer = &mut self.peers[id as usize];
            let active = peer.active.as_deref_mut();
            let slot = active
                .filter(|_| peer.handed < peer.next_in)
                .and_then(|a| a.slots.pop_front());
            let Some(slot) = slot else {
                self.deliverable.pop_front();
                peer.in_deliverable = false;
                self.settle(id);
                continue;
            };
            peer.handed += 1;
            if let Some(event) = self.unfold(id, slot) {
                return Some(event);
            }
        }
        None
    }

    /// The turn of a kept segment has come.
    fn unfold(&mut self, id: u32, slot: Slot) -> Option<Event> {
        let active = self.peers[id as usize].active.as_deref_mut()?;
        let peer = PeerId(id);
        match slot {
            Slot::Empty | Slot::Placed => None,
            Slot::Chunk { id: of, len } => {
                let data = active.pass_chunk(of, len)?;
                self.assembling -= data.len();
                Some(Event::Fragment { peer, data })
            }
            Slot::Fragment(data) => {
                active.held -= data.len();
                self.stats.fragment_receives += 1;
                Some(Event::Fragment { peer, data })
            }
            Slot::Put {
                landing,
                offset,
                data,
            } => {
                active.held -= data.len();
                self.stats.put_receives += 1;
                match active.place(landing, offset, data.len() as u64) {
                    Place::Here { complete } => Some(Event::Place {
                        peer,
                        landing,
                        offset,
                        data,
                        complete,
                    }),
                    Place::Outside => {
                        self.stats.bad_put += 1;
                        self.recycle(data);
                        None
                    }
                    Place::Closed => {
                        self.stats.unwanted_puts += 1;
                        self.recycle(data);
                        None
                    }
                }
            }
        }
    }

    /// An ack is due, and may wait for something to ride on; not with the last segment of something long.
    #[inline]
    fn ack_later(&mut self, now: Time, id: u32, last: bool) {
        let peer = &mut self.peers[id as usize];
        peer.unacked_receives = peer.unacked_receives.saturating_add(1);
        if last || peer.unacked_receives >= self.config.ack_every {
            return self.ack_soon(id);
        }
        if peer.unacked_receives == 1 && !peer.in_acks {
            self.ack_timers.check_in(id, now + self.config.ack_delay);
        }
    }

    /// Acks that wait for something to ride on wait no longer: nothing will be sent for a while.
    pub fn ack_all(&mut self) {
        while let Some(id) = self.ack_timers.any() {
            self.ack_soon(id);
        }
    }

    /// An ack is to be sent now.
    pub(super) fn ack_soon(&mut self, id: u32) {
        let Some(peer) = self.peers.get_mut(id as usize) else {
            return;
        };
        peer.unacked_receives = peer.unacked_receives.max(1);
        self.ack_timers.check_out(id);
        if !peer.in_acks {
            peer.in_acks = true;
            self.acks.push_back(id);
        }
    }
}

fn copy(spare: &mut Vec<Vec<u8>>, data: &[u8]) -> Vec<u8> {
    let mut buffer = spare.pop().unwrap_or_default();
    buffer.clear();
    buffer.extend_from_slice(data);
    buffer
}
