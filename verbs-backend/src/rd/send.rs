//! Fragments into segments; which goes next, and on which channel.
//!
//! ```text
//!   lost segments (data channel) ─▶ new segments, peers in turn ─▶ acks (command channel) ─▶ farewells
//! ```
//!
//! Lost segments go first, but never on the command channel: where much is lost, acks must get through. A peer is in turn
//! while it has something to send, credits, room in its window and a congestion window that is not full; each turn is of a few
//! segments. Everything sent carries the ack that is due.
//!
//! # A peer that asks faster than it acks
//!
//! A user whose answers are urgent would have those for a peer that does not ack them fill this process's memory. So while
//! [`Config::owed`](super::Config::owed) urgent fragments wait for a peer, nothing of it is taken but acks: its segments are
//! dropped and come again. It is told so by a share of 0, which also tells that this process is there. From half of them on it
//! is told to have one segment under way.
//!
//! ```text
//!   urgent ones that wait:   0 ─────────── owed / 2 ─────────── owed ───────► at most owed + 2 + 4 C
//!   the peer may have:       its share     one segment          nothing is taken
//! ```
//!
//! Two processes that ack never wait for each other. Let each have at most `C` segments under way to the other, each of which
//! makes the receiver owe two urgent fragments at most if it is not urgent itself, and none if it is.
//!
//! * Take the later of the two moments in which an urgent fragment began to wait at an end where none did. That end owes 2, the
//!   other one at most `owed + 1 + 2 C` (with segments that were kept for their turn), and what is under way brings at most `4 C`:
//!   together no more than `V = owed + 6 C + 3`.
//! * From then on a fragment that is not urgent leaves only after every [`Config::overtake`](super::Config::overtake) urgent
//!   ones, at most twice otherwise. With 64 that adds less than `V / 31 + 5`.
//! * Both take nothing only if `2 owed` is at most `V + V / 31 + 5`, which is false for `owed = 8 C` and `C` of 5 or more.
//!
//! So one of the two takes what arrives, and acks it; the other one's urgent fragments leave.

use super::peer::Active;
use super::wire::{self, EXTRA, HEAD, Head, Kind};
use super::{Channel, Congestion, Endpoint, Event, PeerId, Time};
use std::collections::VecDeque;

/// Where the data of a fragment is until it is acked.
pub trait Source {
    /// Copies the bytes from `offset` on to `to`, all of which the fragment has.
    fn fill(&self, offset: u64, to: &mut [u8]);
}

impl<T: AsRef<[u8]>> Source for T {
    fn fill(&self, offset: u64, to: &mut [u8]) {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(from) = self.as_ref().get(start..).and_then(|d| d.get(..to.len())) {
            to.copy_from_slice(from);
        }
    }
}

/// Why something is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// No such peer was added.
    #[error("no peer {0}")]
    NoPeer(usize),
    /// The peer was given up or has said farewell.
    #[error("process {number} is gone")]
    Gone {
        /// Its number in the job.
        number: u32,
    },
    /// A fragment longer than [`Config::longest`](super::Config::longest).
    #[error("a fragment of {length} bytes; at most {longest} are possible")]
    Length {
        /// Bytes given.
        length: u64,
        /// The limit.
        longest: u32,
    },
}

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
const TURN: u32 = 8;
const NO_SEGMENT: u64 = u64::MAX;

/// What the user sends or puts.
#[derive(Debug)]
pub(super) struct Fragment<S> {
    source: S,
    tag: u64,
    len: u64,
    /// What has been cut into segments so far.
    cut: u64,
    /// Segments not acked.
    left: u32,
    /// Its id; for puts the landing.
    id: u32,
    put: bool,
    priority: Priority,
}

/// What goes before what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// After all that was sent before and is not urgent.
    InOrder,
    /// Before those that wait and are not urgent, after urgent ones.
    Urgent,
    /// After all that was sent before, urgent or not.
    Last,
}

/// What was sent or put, and is not kept any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) tag: u64,
    /// One by [`Endpoint::send`] that was not urgent.
    pub(super) in_order: bool,
}

impl<S> Fragment<S> {
    fn of_put(landing: u32, source: S, len: u64, tag: u64, priority: Priority) -> Self {
        Self {
            source,
            tag,
            len,
            cut: 0,
            left: 0,
            id: landing,
            put: true,
            priority,
        }
    }

    fn is_cut(&self) -> bool {
        // Of an empty one its only segment tells.
        self.cut >= self.len && (self.len > 0 || self.left > 0)
    }
}

/// How a numbered segment stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Free,
    UnderWay,
    Lost,
    /// Has arrived, beyond a gap.
    Arrived,
}

/// A numbered segment; its index is its room in the hotel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) peer: u32,
    pub(super) fragment: u32,
    pub(super) seq: u64,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) state: State,
    pub(super) kind: Kind,
    /// Number of its latest transmission to the peer.
    pub(super) order: u64,
    pub(super) sent_at: Time,
    pub(super) sends: u8,
    pub(super) renewals: u8,
    /// Is still with the adapter.
    pub(super) posted: bool,
}

/// Datagrams posted on a channel, in order: the peer, and the segment's number.
#[derive(Debug, Default)]
pub(super) struct Outstanding(VecDeque<(u32, u64)>);

impl<S: super::Source> Endpoint<S> {
    /// Queues a fragment. It is handed up in order with the others of its [`Priority`].
    ///
    /// # Errors
    ///
    /// [`SendError`]; the source is dropped.
    pub fn send(
        &mut self,
        now: Time,
        to: PeerId,
        source: S,
        len: u64,
        tag: u64,
        priority: Priority,
    ) -> Result<(), SendError> {
        if len > u64::from(self.config.longest) {
            return Err(SendError::Length {
                length: len,
                longest: self.config.longest,
            });
        }
        let small = len as usize <= self.config.data.mtu - HEAD;
        let id = match self.peers.get_mut(to.index()) {
            Some(_) if small => 0,
            Some(peer) => {
                let id = peer.next_fragment;
                peer.next_fragment = id.wrapping_add(1);
                id
            }
            None => 0,
        };
        let fragment = Fragment {
            source,
            tag,
            len,
            cut: 0,
            left: 0,
            id,
            put: false,
            priority,
        };
        self.enqueue(now, to, fragment)
    }

    /// Queues data for a landing that the peer opens: each segment says where it belongs, so that it needs no fragment and
    /// no reassembly. Nothing is sent of an empty one.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the source is dropped.
    pub fn put(
        &mut self,
        now: Time,
        to: PeerId,
        landing: u32,
        source: S,
        len: u64,
        tag: u64,
    ) -> Result<(), SendError> {
        let fragment = Fragment::of_put(landing, source, len, tag, Priority::InOrder);
        self.enqueue(now, to, fragment)
    }

    /// The same, before what waits and is not urgent.
    ///
    /// # Errors
    ///
    /// [`SendError`]; the source is dropped.
    pub fn put_urgent(
        &mut self,
        now: Time,
        to: PeerId,
        landing: u32,
        source: S,
        len: u64,
        tag: u64,
    ) -> Result<(), SendError> {
        let fragment = Fragment::of_put(landing, source, len, tag, Priority::Urgent);
        self.enqueue(now, to, fragment)
    }

    /// A number for a landing at a peer, by which its puts will name it, never 0; other ones have other
    /// numbers for a long time.
    pub fn new_landing(&mut self, to: PeerId) -> u32 {
        self.peers.get_mut(to.index()).map_or(0, |peer| {
            let landing = peer.next_landing;
            peer.next_landing = landing.wrapping_add(1).max(1);
            landing
        })
    }

    fn enqueue(&mut self, now: Time, to: PeerId, fragment: Fragment<S>) -> Result<(), SendError> {
        let index = to.index();
        let Some(peer) = self.peers.get_mut(index) else {
            return Err(SendError::NoPeer(index));
        };
        if peer.dead {
            return Err(SendError::Gone {
                number: peer.number,
            });
        }
        if fragment.put && fragment.len == 0 {
            let tag = fragment.tag;
            self.events.push_back(Event::Acked { peer: to, tag });
            return Ok(());
        }
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        if active.sends_nothing() {
            peer.heard = now;
        }
        let urgent = fragment.priority == Priority::Urgent;
        let at = match self.free_fragments.pop() {
            Some(at) => {
                self.fragments[at as usize] = Some(fragment);
                at
            }
            None => {
                self.fragments.push(Some(fragment));
                self.fragments.len() as u32 - 1
            }
        };
        if urgent {
            active.urgent.push_back(at);
            self.stats.most_owed = self.stats.most_owed.max(active.urgent.len() as u64);
        } else {
            active.queue.push_back(at);
        }
        self.refresh(to.0);
        Ok(())
    }

    /// How many segments may be under way to a peer.
    #[inline]
    fn allowance(&self, peer: &super::Peer) -> u32 {
        match self.config.congestion {
            Congestion::None => u32::from(self.config.window),
            Congestion::Adaptive { .. } => peer
                .pace
                .window()
                .min(u32::from(peer.share.max(1)))
                .min(u32::from(self.config.window)),
        }
    }

    #[inline]
    fn may_send(&self, peer: &super::Peer) -> bool {
        !peer.dead
            && peer.posted < self.config.peer_credits
            && peer.under_way < self.allowance(peer)
    }

    /// Puts a peer into the lists that it belongs to.
    #[inline]
    pub(super) fn refresh(&mut self, id: u32) {
        let Some(peer) = self.peers.get(id as usize) else {
            return;
        };
        let Some(active) = peer.active.as_deref() else {
            return;
        };
        if !self.may_send(peer) {
            return;
        }
        let again = !peer.in_again && !active.lost.is_empty();
        let open = peer.next_seq - peer.acked < u64::from(self.config.window);
        let waiting = !(active.queue.is_empty() && active.urgent.is_empty());
        let new = !peer.in_ready && waiting && open;
        if again {
            self.again.push_back(id);
            self.peers[id as usize].in_again = true;
        }
        if new {
            self.ready.push_back(id);
            self.peers[id as usize].in_ready = true;
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

    fn has_credit(&self, channel: Channel) -> bool {
        let (config, used) = match channel {
            Channel::Command => (&self.config.command, &self.command),
            Channel::Data => (&self.config.data, &self.data),
        };
        used.0.len() < config.depth as usize
    }

    fn poll_again(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        while let Some(&id) = self.again.front() {
            if !self.has_credit(Channel::Data) {
                return None;
            }
            let may = self
                .peers
                .get(id as usize)
                .is_some_and(|p| self.may_send(p));
            if may && let Some(at) = self.next_lost(id) {
                self.stats.resends += 1;
                return Some(self.transmit(now, at, Channel::Data, out));
            }
            self.again.pop_front();
            if let Some(peer) = self.peers.get_mut(id as usize) {
                peer.in_again = false;
            }
        }
        None
    }

    /// The next lost segment of a peer that is lost still.
    fn next_lost(&mut self, id: u32) -> Option<u32> {
        let peer = self.peers.get_mut(id as usize)?;
        let active = peer.active.as_deref_mut()?;
        while let Some(seq) = active.lost.pop_front() {
            let at = seq.checked_sub(peer.acked);
            let at = at.and_then(|at| active.sent.get(at as usize)).copied();
            if let Some(at) = at
                && self.segments[at as usize].state == State::Lost
            {
                return Some(at);
            }
        }
        None
    }

    fn poll_new(&mut self, now: Time, out: &mut [u8]) -> Option<Transmit> {
        let mut looked = 0;
        while looked < self.ready.len() {
            let id = *self.ready.front()?;
            let peer = &self.peers[id as usize];
            let open = peer.next_seq - peer.acked < u64::from(self.config.window);
            let next = (open && self.may_send(peer)).then(|| self.next_fragment(id));
            let Some(Some((fragment, channel))) = next else {
                self.ready.pop_front();
                self.peers[id as usize].in_ready = false;
                continue;
            };
            if !self.has_credit(channel) {
                self.ready.rotate_left(1);
                looked += 1;
                continue;
            }
            let at = self.cut(id, fragment);
            let sent = self.transmit(now, at, channel, out);
            if self.peers[id as usize]
                .order
                .is_multiple_of(u64::from(TURN))
            {
                self.ready.rotate_left(1);
            }
            return Some(sent);
        }
        None
    }

    /// The fragment whose turn it is at a peer, and the channel of its next segment.
    fn next_fragment(&self, id: u32) -> Option<(u32, Channel)> {
        let peer = self.peers.get(id as usize)?;
        let active = peer.active.as_deref()?;
        let next = active.queue.front();
        let next = next.and_then(|at| self.fragments[*at as usize].as_ref());
        let pass = peer.overtaken < self.config.overtake
            || next.is_none_or(|fragment| fragment.priority == Priority::Last);
        let urgent = active.urgent.front().filter(|_| pass);
        let at = *urgent.or(active.queue.front()).or(active.urgent.front())?;
        let fragment = self.fragments[at as usize].as_ref()?;
        let tiny = !fragment.put && fragment.len as usize <= self.config.command.mtu - HEAD;
        // All that is on the data channel is overtaken, by all that goes past it.
        let near = peer.posted_data == 0 || peer.posted_data + peer.crossed <= self.config.cross;
        // What is left is for acks.
        let room = self.command.0.len()
            < (self.config.command.depth - self.config.command.depth / 4) as usize;
        let channel = if tiny && near && room {
            Channel::Command
        } else {
            Channel::Data
        };
        Some((at, channel))
    }

    /// Numbers the next segment of a fragment; which it is.
    fn cut(&mut self, id: u32, at: u32) -> u32 {
        let peer = &mut self.peers[id as usize];
        let active = Active::of(&mut peer.active, &mut self.spare_active);
        let Some(fragment) = self.fragments[at as usize].as_mut() else {
            return 0;
        };
        let whole = !fragment.put && fragment.len as usize <= self.config.data.mtu - HEAD;
        let most = self.config.data.mtu - HEAD - if whole { 0 } else { EXTRA };
        let len = (fragment.len - fragment.cut).min(most as u64);
        let kind = if fragment.put {
            self.stats.put_sends += 1;
            Kind::Put {
                landing: fragment.id,
                offset: fragment.cut,
            }
        } else if whole {
            self.stats.fragment_sends += 1;
            Kind::Fragment
        } else {
            self.stats.chunk_sends += 1;
            Kind::Chunk {
                id: fragment.id,
                size: fragment.len as u32,
                offset: fragment.cut as u32,
            }
        };
        let segment = Segment {
            peer: id,
            fragment: at,
            seq: peer.next_seq,
            offset: fragment.cut,
            len: len as u32,
            state: State::Lost,
            kind,
            order: 0,
            sent_at: 0,
            sends: 0,
            renewals: 0,
            posted: false,
        };
        fragment.cut += len;
        fragment.left += 1;
        if fragment.is_cut() {
            if active.urgent.front() == Some(&at) {
                active.urgent.pop_front();
                if !active.queue.is_empty() {
                    peer.overtaken = peer.overtaken.saturating_add(1);
                }
            } else {
                active.queue.pop_front();
                peer.overtaken = 0;
            }
        }
        peer.next_seq += 1;
        let at = match self.free_segments.pop() {
            Some(at) => {
                self.segments[at as usize] = segment;
                at
            }
            None => {
                self.segments.push(segment);
                self.segments.len() as u32 - 1
            }
        };
        active.sent.push_back(at);
        self.stats.most_unacked = self.stats.most_unacked.max(active.sent.len() as u64);
        at
    }

    /// Writes a segment, starts its timer, and takes the credits.
    fn transmit(&mut self, now: Time, at: u32, channel: Channel, out: &mut [u8]) -> Transmit {
        let segment = &mut self.segments[at as usize];
        let id = segment.peer;
        let peer = &mut self.peers[id as usize];
        peer.order += 1;
        peer.under_way += 1;
        segment.order = peer.order;
        segment.state = State::UnderWay;
        segment.sent_at = now;
        segment.sends = segment.sends.saturating_add(1);
        segment.renewals = 0;
        segment.posted = true;
        peer.posted += 1;
        match channel {
            Channel::Data => peer.posted_data += 1,
            Channel::Command if peer.posted_data > 0 => peer.crossed += 1,
            Channel::Command => {}
        }
        let deadline = now + peer.pace.timeout(self.config.retransmit);
        self.timers.check_in(at, deadline);
        let start = segment.kind.head();
        let len = start + segment.len as usize;
        let (kind, seq) = (segment.kind, segment.seq);
        if let Some(fragment) = self.fragments[segment.fragment as usize].as_ref() {
            fragment.source.fill(segment.offset, &mut out[start..len]);
        }
        let again = segment.sends > 1;
        self.finish(id, channel, seq, (kind, again), len, out)
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
        peer.unacked_receives = 0;
        self.ack_timers.check_out(id);
        let head = Head {
            sender: self.number,
            seq: if seq == NO_SEGMENT {
                peer.next_seq
            } else {
                seq
            },
            ack: peer.next_in,
            share,
            repeats: peer.repeats,
            again,
            kind,
        };
        wire::write(out, len, &head, peer.key, self.config.checksum);
        match channel {
            Channel::Command => self.command.0.push_back((id, seq)),
            Channel::Data => self.data.0.push_back((id, seq)),
        }
        self.stats.sends += 1;
        Transmit {
            peer: PeerId(id),
            channel,
            len,
            last: kind == Kind::Bye,
        }
    }

    fn poll_ack(&mut self, out: &mut [u8]) -> Option<Transmit> {
        while let Some(&id) = self.acks.front() {
            if !self.has_credit(Channel::Command) {
                return None;
            }
            self.acks.pop_front();
            let peer = &mut self.peers[id as usize];
            peer.in_acks = false;
            // Something has carried it, and there is no gap to tell of.
            let gaps = peer.active.as_ref().is_some_and(|a| !a.slots.is_empty());
            if peer.dead || (peer.unacked_receives == 0 && !gaps) {
                continue;
            }
            let most = self.config.command.mtu - HEAD;
            let bits = peer.beyond(&mut out[HEAD..HEAD + most.min(wire::MOST_BITS / 8)]);
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
        if !self.has_credit(Channel::Command) {
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
            let sent = match channel {
                Channel::Command => self.command.0.pop_front(),
                Channel::Data => self.data.0.pop_front(),
            };
            let Some((id, seq)) = sent else { return };
            if seq == NO_SEGMENT {
                continue;
            }
            let Some(peer) = self.peers.get_mut(id as usize) else {
                continue;
            };
            peer.posted = peer.posted.saturating_sub(1);
            if channel == Channel::Data {
                peer.posted_data = peer.posted_data.saturating_sub(1);
                if peer.posted_data == 0 {
                    peer.crossed = 0;
                }
            }
            let at = seq.checked_sub(peer.acked);
            let active = peer.active.as_deref();
            let at = at.and_then(|at| active?.sent.get(at as usize)).copied();
            if let Some(at) = at {
                self.segments[at as usize].posted = false;
            }
            self.refresh(id);
        }
    }

    /// Datagrams posted and not reported.
    pub fn posted(&self, channel: Channel) -> usize {
        match channel {
            Channel::Command => self.command.0.len(),
            Channel::Data => self.data.0.len(),
        }
    }

    /// A segment will not be sent again; frees it, and its fragment with the last. What the user called that one.
    pub(super) fn release(&mut self, at: u32) -> Option<Ended> {
        self.timers.check_out(at);
        let segment = &mut self.segments[at as usize];
        segment.state = State::Free;
        let of = segment.fragment;
        self.free_segments.push(at);
        let fragment = self.fragments[of as usize].as_mut()?;
        fragment.left -= 1;
        if fragment.left > 0 || fragment.cut < fragment.len {
            return None;
        }
        self.drop_fragment(of)
    }

    pub(super) fn drop_fragment(&mut self, at: u32) -> Option<Ended> {
        let fragment = self.fragments.get_mut(at as usize)?.take()?;
        self.free_fragments.push(at);
        Some(Ended {
            tag: fragment.tag,
            in_order: !fragment.put && fragment.priority != Priority::Urgent,
        })
    }
}
