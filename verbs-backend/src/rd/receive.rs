//! What a datagram does: check, window, order, acks that are due.

use super::config::Time;
use super::fragment::Source;
use super::order::{AckTime, Distance, Slot};
use super::peer::Active;
use super::reassembly::{Chunk, ChunkOf, Place};
use super::wire::{self, Bad, Head, Kind};
use super::{Endpoint, Event, PeerId, Received};

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
            peer.arrived.next(),
            peer.window.acked(),
            peer.keys.back,
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
        peer.pace.take_repeats(head.repeats);
        if peer.pace.take_share(now, head.share) {
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
        self.crowd.heard(&mut peer.seen);
        let ahead = match peer.arrived.judge(head.seq, self.config.window) {
            Distance::Ahead(ahead) => ahead,
            Distance::Before => {
                self.stats.window_low += 1;
                peer.ack.repeated();
                self.ack_soon(id);
                return Received::Nothing;
            }
            Distance::Beyond => {
                self.stats.window_high += 1;
                return Received::Nothing;
            }
        };
        if peer.waiting_for_it() >= self.config.owed {
            self.stats.owed_refused += 1;
            self.ack_soon(id);
            return Received::Nothing;
        }
        if ahead == 0 && !peer.keeps_some() && peer.arrived.is_handed_up() {
            return self.in_order(now, id, head, data);
        }
        self.ahead(id, head, data, ahead)
    }

    /// The next segment, and nothing is kept.
    #[inline]
    fn in_order<'a>(&mut self, now: Time, id: u32, head: &Head, data: &'a [u8]) -> Received<'a> {
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
                let chunk = ChunkOf {
                    id: of,
                    size,
                    offset,
                    data,
                };
                if !self.take_chunk(id, &chunk, 0, true) {
                    return Received::Nothing;
                }
                if let Some(event) = self.pass_chunk(id, of, data.len() as u32) {
                    last = true;
                    self.events.push_back(event);
                }
            }
            Kind::Put { landing, offset } => match self.place(id, landing, offset, data) {
                Ok((placed, complete)) => {
                    last = complete;
                    received = placed;
                    self.stats.put_receives += 1;
                }
                Err(Place::Closed) => {
                    self.stats.unwanted_puts += 1;
                    self.stats.put_receives += 1;
                }
                Err(_) => return Received::Nothing,
            },
            Kind::Ack | Kind::Bye => {}
        }
        self.crowd.arrived(&self.config, 0, false);
        let peer = &mut self.peers[id as usize];
        peer.arrived.pass();
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
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        if peer.arrived.has(&active.kept, head.seq) {
            self.stats.duplicates += 1;
            peer.ack.repeated();
            return Received::Nothing;
        }
        // What the next one needs is always there: nothing else can free what the others have.
        let next = ahead == 0;
        let holds = next || active.kept.held() + data.len() <= self.config.hold;
        let mut received = Received::Nothing;
        let slot = match head.kind {
            Kind::Chunk {
                id: of,
                size,
                offset,
            } => {
                let room = self.config.reassembly.saturating_sub(self.assembling);
                let chunk = ChunkOf {
                    id: of,
                    size,
                    offset,
                    data,
                };
                if !self.take_chunk(id, &chunk, room, next) {
                    return Received::Nothing;
                }
                let len = data.len() as u32;
                Slot::Chunk { id: of, len }
            }
            Kind::Put { landing, offset } => match self.place(id, landing, offset, data) {
                Ok((placed, _)) => {
                    received = placed;
                    self.stats.put_receives += 1;
                    Slot::Placed
                }
                Err(Place::Closed) if holds => Slot::Put {
                    landing,
                    offset,
                    data: copy(&mut self.buffers, data),
                },
                Err(Place::Closed) => return self.refuse_to_hold(id),
                Err(_) => return Received::Nothing,
            },
            _ if holds => Slot::Fragment(copy(&mut self.buffers, data)),
            _ => return self.refuse_to_hold(id),
        };
        let peer = &mut self.peers[id as usize];
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        let arrival = peer.arrived.keep(&mut active.kept, head.seq, slot);
        let late = arrival.fills && !head.again;
        self.crowd.arrived(&self.config, arrival.missing, late);
        self.stats.held += 1;
        self.stats.most_ahead = self.stats.most_ahead.max(ahead);
        if arrival.delivers {
            self.deliverable.add(id, &mut peer.marks.deliverable);
        }
        received
    }

    /// There is no room for a segment out of order; it comes again.
    fn refuse_to_hold(&mut self, id: u32) -> Received<'static> {
        self.stats.hold_refused += 1;
        self.settle(id);
        Received::Nothing
    }

    /// Copies a chunk to its place; `false` if it is dropped.
    fn take_chunk(&mut self, id: u32, chunk: &ChunkOf<'_>, room: usize, next: bool) -> bool {
        if chunk.size > self.config.longest {
            self.stats.bad_chunk += 1;
            return false;
        }
        let peer = &mut self.peers[id as usize];
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        match active.partials.take(chunk, room, next) {
            Chunk::Taken(allocated) => {
                self.assembling += allocated;
                self.stats.chunk_receives += 1;
                return true;
            }
            Chunk::Bad => self.stats.bad_chunk += 1,
            Chunk::Refused => self.stats.reassembly_refused += 1,
        }
        self.settle(id);
        false
    }

    /// The turn of a chunk has come; the fragment, if it was its last one.
    fn pass_chunk(&mut self, id: u32, of: u32, len: u32) -> Option<Event> {
        let active = self.peers[id as usize].active.as_deref_mut()?;
        let data = active.partials.pass(of, len)?;
        self.assembling -= data.len();
        let peer = PeerId(id);
        Some(Event::Fragment { peer, data })
    }

    /// Data of a put for the user to place, and whether its landing is complete; or why not. Data outside of its landing is dropped.
    fn place<'a>(
        &mut self,
        id: u32,
        landing: u32,
        offset: u64,
        data: &'a [u8],
    ) -> Result<(Received<'a>, bool), Place> {
        let active = self.peers[id as usize].active.as_deref_mut();
        let place = active.map_or(Place::Closed, |active| {
            active.landings.place(landing, offset, data.len() as u64)
        });
        match place {
            Place::Here { complete } => Ok((
                Received::Place {
                    peer: PeerId(id),
                    landing,
                    offset,
                    data,
                    complete,
                },
                complete,
            )),
            Place::Outside => {
                self.stats.bad_put += 1;
                self.settle(id);
                Err(place)
            }
            Place::Closed => Err(place),
        }
    }

    /// Data of `len` bytes that a peer will put under this number is wanted: it is given to the user from here on, in
    /// whatever order it comes, until all of it is here. To be called when the message that announces it has been handed up,
    /// and before the next datagram. Of a landing that is not opened the data is dropped.
    pub fn open(&mut self, peer: PeerId, landing: u32, len: u64) {
        let Some(p) = self.peers.get_mut(peer.index()).filter(|p| !p.dead) else {
            return;
        };
        if len > 0 {
            let active = Active::of(&mut p.active, &mut self.spare_active);
            active.landings.open(landing, len);
        }
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
        self.deliverable.first()?;
        self.poll_kept()
    }

    fn poll_kept(&mut self) -> Option<Event> {
        while let Some(id) = self.deliverable.first() {
            let peer = &mut self.peers[id as usize];
            let active = peer.active.as_deref_mut();
            let slot = active.and_then(|active| peer.arrived.pop(&mut active.kept));
            let Some(slot) = slot else {
                self.deliverable.remove_first(&mut peer.marks.deliverable);
                self.settle(id);
                continue;
            };
            if let Some(event) = self.unfold(id, slot) {
                return Some(event);
            }
        }
        None
    }

    /// The turn of a kept segment has come.
    fn unfold(&mut self, id: u32, slot: Slot) -> Option<Event> {
        let peer = PeerId(id);
        match slot {
            Slot::Empty | Slot::Placed => None,
            Slot::Chunk { id: of, len } => self.pass_chunk(id, of, len),
            Slot::Fragment(data) => {
                self.stats.fragment_receives += 1;
                Some(Event::Fragment { peer, data })
            }
            Slot::Put {
                landing,
                offset,
                data,
            } => {
                self.stats.put_receives += 1;
                let active = self.peers[id as usize].active.as_deref_mut()?;
                match active.landings.place(landing, offset, data.len() as u64) {
                    Place::Here { complete } => {
                        return Some(Event::Place {
                            peer,
                            landing,
                            offset,
                            data,
                            complete,
                        });
                    }
                    Place::Outside => self.stats.bad_put += 1,
                    Place::Closed => self.stats.unwanted_puts += 1,
                }
                self.recycle(data);
                None
            }
        }
    }

    /// After something has been acked or handed up: gives back what an idle peer does not need.
    #[inline]
    pub(super) fn settle(&mut self, id: u32) {
        if let Some(peer) = self.peers.get_mut(id as usize) {
            Active::settle(&mut peer.active, &mut self.spare_active);
        }
    }

    /// An ack is due, and may wait for something to ride on; not with the last segment of something long.
    #[inline]
    fn ack_later(&mut self, now: Time, id: u32, last: bool) {
        let peer = &mut self.peers[id as usize];
        match peer.ack.receive(last, self.config.ack_every) {
            AckTime::Now => self.ack_soon(id),
            AckTime::Delayed if !peer.marks.acks.is_set() => {
                self.ack_timers.check_in(id, now + self.config.ack_delay);
            }
            AckTime::Delayed | AckTime::Due => {}
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
        peer.ack.demand();
        self.ack_timers.check_out(id);
        self.acks.add(id, &mut peer.marks.acks);
    }
}

fn copy(spare: &mut Vec<Vec<u8>>, data: &[u8]) -> Vec<u8> {
    let mut buffer = spare.pop().unwrap_or_default();
    buffer.clear();
    buffer.extend_from_slice(data);
    buffer
}
