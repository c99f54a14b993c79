//! What an endpoint does with what arrives, and with what its program asks for.

use crate::completion::{End, Failure, Op};
use crate::core::{Core, Life, Pending, Use};
use crate::landing::{ACCESS, CONTROL, LANDING, Landed, NUMBER, PENDING, SLOT};
use crate::matching::{Body, Lists, MultiReceive, Receive, Unexpected, Wanted};
use crate::memory::Buffer;
use crate::multi_receives::Part;
use crate::order::Turn;
use crate::peers::Acquaintance;
use crate::wire::{Envelope, Kind, Said, TAKES_FRAMES, meant, noted};
use portals_shim::{Brief, EventKind, NiFail, PollError, Taken, Wait};

/// Looks in vain after which a look on the model is a wait, and how long that is in virtual time, nanoseconds.
const VAIN: u32 = 4;
const MOMENT: u64 = 20_000;

impl Core {
    /// Handles what has happened; waits for something so long if nothing has. Returns whether there was anything.
    pub(crate) fn progress(&mut self, wait: Wait) -> bool {
        let (any, polled) = self.progress_or(wait, None);
        if let Err(error) = polled {
            tracing::debug!(?error, "a poll");
        }
        any
    }

    /// The same, with what Portals has refused. The wait ends too when `other` says so, which is asked while Portals is locked.
    pub(crate) fn progress_or(
        &mut self,
        wait: Wait,
        other: Option<&dyn Fn() -> bool>,
    ) -> (bool, Result<(), PollError>) {
        if self.life != Life::Open {
            return (false, Ok(()));
        }
        // Whoever looks in vain waits for something; on the model each look is a step of the simulation.
        let vain = self.simulated && self.idle >= VAIN && wait == Wait::No;
        let wait = if vain { Wait::Nanos(MOMENT) } else { wait };
        let (mut any, mut polled) = (self.take_frames(), Ok(()));
        if !any {
            polled = self.take_events(wait, other, &mut any);
            // The wait may have ended by them, or they have come meanwhile.
            any |= self.take_frames();
        }
        self.release_notes();
        self.idle = if any { 0 } else { self.idle.saturating_add(1) };
        if std::mem::take(&mut self.woken) && self.queued > 0 {
            for at in 0..self.peers.len() {
                self.pump(at);
            }
        }
        (any, polled)
    }

    /// Handles events; waits for the first, or for a frame.
    fn take_events(
        &mut self,
        mut wait: Wait,
        other: Option<&dyn Fn() -> bool>,
        any: &mut bool,
    ) -> Result<(), PollError> {
        let mut event = Brief::default();
        let (eqs, count) = self.queues();
        loop {
            let (frames, peers) = (&self.frames, &self.peers);
            let more = || frames.are_there(peers) || other.is_some_and(|other| other());
            let taken = self
                .ni
                .eq_take_or(&eqs[..count], wait, Some(&more), &mut event)?;
            if taken == Taken::Nothing {
                return Ok(());
            }
            (*any, wait) = (true, Wait::No);
            if event.dropped && event.which > 0 {
                self.lost_accesses();
            } else if event.dropped {
                tracing::error!("events were lost: more was under way than was granted");
            }
            self.handle(&event);
            if taken == Taken::Last {
                return Ok(());
            }
        }
    }

    pub(crate) fn handle(&mut self, event: &Brief) {
        let number = event.user_ptr & NUMBER;
        match event.user_ptr & !NUMBER {
            LANDING => match event.kind {
                EventKind::PutEnd => self.arrived(number as usize, event),
                EventKind::Unlink => {
                    if let Err(error) = self.landing.post(&self.ni, number as usize) {
                        tracing::error!(%error, "a buffer for messages is lost");
                    }
                }
                _ => {}
            },
            SLOT => self.slot_event(number as usize, event),
            CONTROL if Failure::of(event.ni_fail) == Some(Failure::Unreachable) => {
                self.gone(event.initiator);
            }
            PENDING => self.pending_event(number, event),
            ACCESS => self.accessed(event),
            _ => {}
        }
    }

    fn slot_event(&mut self, slot: usize, event: &Brief) {
        let waits = match self.uses.get(slot) {
            Some(Some((_, used))) => used.last_event(),
            _ => return,
        };
        if event.kind != waits {
            return;
        }
        if let Some((at, used)) = self.uses[slot].take() {
            self.slots.give_back(slot);
            let lost = event.ni_fail != NiFail::OK && !matches!(used, Use::Write { .. });
            self.used(used, event.ni_fail, event.mlength);
            self.woken = true;
            if lost {
                self.restart(at);
            }
        }
    }

    fn arrived(&mut self, buffer: usize, event: &Brief) {
        let Some(said) = Said::decode(event.hdr_data) else {
            return tracing::warn!("a message that no engine sends");
        };
        let at = self.number(event.initiator);
        if said.kind.begins() {
            return self.begin(at, said, false);
        }
        self.in_turn(at, &mut Landed::new(said, buffer, event));
    }

    /// Handles a message in its turn, and those whose turn has come by that.
    #[inline]
    pub(crate) fn in_turn(&mut self, at: usize, landed: &mut Landed) {
        let number = landed.said.number;
        match self.peers.get(at).order.arrived(number) {
            Turn::Now => self.take_turn(at, landed),
            Turn::Later => {
                let copied = self.landing.take_out(landed, &mut self.pool);
                self.peers.get(at).order.keep(number, copied);
            }
            Turn::Never => return tracing::warn!("a message that no engine sends"),
        }
        while let Some(mut landed) = self.peers.get(at).order.due() {
            self.take_turn(at, &mut landed);
            self.pool.give_back(landed.into_bytes());
        }
    }

    /// A peer says hello, or answers that, in a frame or by Portals; the answer goes the same way.
    pub(crate) fn begin(&mut self, at: usize, said: Said, framed: bool) {
        if said.data == Some(TAKES_FRAMES) {
            self.link(at);
        }
        for mut landed in self.peers.get(at).order.restart(said.number) {
            self.take_turn(at, &mut landed);
        }
        let peer = self.peers.get(at);
        peer.envelopes = said.envelopes;
        let greeted = peer.state == Acquaintance::Greeted;
        if greeted || said.kind == Kind::Hello {
            (peer.state, peer.credits) = (Acquaintance::Open, said.credits.into());
        }
        if said.kind == Kind::Hello && !greeted {
            let window = peer.grant();
            if let Err(error) = self.landing.reserve(&self.ni, self.peers.granted()) {
                tracing::error!(%error, "a peer is granted nothing");
            } else {
                self.say_by(at, Kind::Grant, window, framed);
            }
        }
        self.pump(at);
    }

    /// Handles a message whose turn has come.
    fn take_turn(&mut self, at: usize, landed: &mut Landed) {
        let said = landed.said;
        let peer = self.peers.get(at);
        peer.envelopes = said.envelopes;
        peer.credits = peer.credits.saturating_add(said.credits.into());
        let mut owed = said.kind.costs();
        match said.kind {
            Kind::Eager => self.message(true, at, landed),
            Kind::UntaggedEager => self.message(false, at, landed),
            Kind::Envelope => self.enveloped(true, at, landed),
            Kind::UntaggedEnvelope => self.enveloped(false, at, landed),
            Kind::Written => {
                let (len, data) = noted(landed.bits, said.data);
                owed = self.told_of_write(at, landed.from, (data, len));
            }
            Kind::Atomic => {
                let bytes = self.landing.bytes(landed, &mut self.pool);
                self.make_atomic(at, landed.bits, &bytes);
                self.pool.give_back(bytes);
            }
            Kind::AtomicDone => {
                let bytes = self.landing.bytes(landed, &mut self.pool);
                self.atomic_done(at, landed.bits, said.data == Some(1), &bytes);
                self.pool.give_back(bytes);
            }
            Kind::Fetched => self.fetched(at, landed.bits, said.data == Some(1)),
            Kind::Exposed => self.exposed(at, landed.bits),
            Kind::Credits | Kind::Hello | Kind::Grant => {}
        }
        if owed {
            self.owe(at);
        }
        if said.credits > 0 && self.queued > 0 {
            self.pump(at);
        }
    }

    /// A message of a peer has been handled.
    pub(crate) fn owe(&mut self, at: usize) {
        let peer = self.peers.get(at);
        match peer.state {
            // It was taken for lost, and lives. What it was sent then may be lost, and it waits for that.
            Acquaintance::New => return self.greet(at),
            // It was sent before the peer has heard the hello, which grants a whole window.
            Acquaintance::Greeted => return,
            Acquaintance::Open => peer.owed += 1,
        }
        let to_send = peer.is_to_send_envelopes();
        let changed = std::mem::replace(&mut peer.told, to_send) != to_send;
        if changed || peer.owed * 2 >= peer.window {
            let owed = std::mem::take(&mut peer.owed);
            self.say(at, Kind::Credits, owed);
        }
    }

    fn enveloped(&mut self, tagged: bool, at: usize, landed: &Landed) {
        let mut bytes = [0; Envelope::LEN];
        if landed.len != Envelope::LEN as u64 || !self.landing.read(landed, &mut bytes) {
            return tracing::warn!("an envelope of another length");
        }
        let (tag, data) = meant(tagged, landed.bits, landed.said.data);
        let message = Unexpected {
            from: landed.from,
            tag,
            data,
            body: Body::There(Envelope::decode(bytes)),
            claimed: None,
        };
        let list = &mut self.lists[usize::from(tagged)];
        match list.receive_for(landed.from, tag) {
            Some(posted) => self.give_to_posted(tagged, posted, message),
            None => self.keep(tagged, at, message),
        }
    }

    fn keep(&mut self, tagged: bool, at: usize, message: Unexpected) {
        let backlog = &mut self.peers.get(at).backlog;
        backlog.add(&message.body);
        let overflows = backlog.overflows();
        self.lists[usize::from(tagged)].keep(message);
        if overflows {
            self.expel(
                at,
                "it sends more than it may to a program that does not receive",
            );
        }
    }

    /// Takes a message that was kept.
    pub(crate) fn take_kept(&mut self, tagged: bool, at: usize) -> Option<Unexpected> {
        let message = self.lists[usize::from(tagged)].take(at)?;
        if let Some(at) = self.peers.find(message.from) {
            self.peers.get(at).backlog.remove(&message.body);
        }
        Some(message)
    }

    /// A message with its bytes.
    fn message(&mut self, tagged: bool, at: usize, landed: &mut Landed) {
        let (from, len) = (landed.from, landed.len);
        let (tag, data) = meant(tagged, landed.bits, landed.said.data);
        let list = &mut self.lists[usize::from(tagged)];
        let Some(posted) = list.receive_for(from, tag) else {
            let message = Unexpected {
                from,
                tag,
                data,
                body: Body::Here(self.landing.bytes(landed, &mut self.pool)),
                claimed: None,
            };
            return self.keep(tagged, at, message);
        };
        let Some((mut receive, place, part)) = take_room(list, posted, len) else {
            return;
        };
        let room = place.len();
        self.landing.store(landed, &place);
        let mut end = End {
            len: len.min(room),
            buf: place.place(0),
            data,
            tag,
            source: Some(from),
            ..End::default()
        };
        self.multi_receives.has_come(part, &mut receive, &mut end);
        match len > room {
            true => self
                .reporter
                .failed(&receive, Failure::Truncated, &end, len - room),
            false => self.reporter.done(&receive, &end),
        }
    }

    /// Gives a kept message, or an envelope, to a receive that is posted.
    fn give_to_posted(&mut self, tagged: bool, posted: usize, message: Unexpected) {
        let list = &mut self.lists[usize::from(tagged)];
        if let Some((op, place, part)) = take_room(list, posted, message.body.len()) {
            self.give(message, op, &place, part);
        }
    }

    /// Gives a message to whoever has asked for it.
    pub(crate) fn give(&mut self, message: Unexpected, mut op: Op, place: &Buffer, part: Part) {
        let (len, room) = (message.body.len(), place.len());
        let fits = len.min(room);
        let mut end = End {
            len: fits,
            buf: place.place(0),
            data: message.data,
            tag: message.tag,
            source: Some(message.from),
            ..End::default()
        };
        match message.body {
            Body::Here(bytes) => {
                place.store_bytes(bytes.get(..fits as usize).unwrap_or(&bytes));
                self.pool.give_back(bytes);
                self.multi_receives.has_come(part, &mut op, &mut end);
                match len > room {
                    true => self
                        .reporter
                        .failed(&op, Failure::Truncated, &end, len - room),
                    false => self.reporter.done(&op, &end),
                }
            }
            Body::There(envelope) => {
                self.multi_receives.begins(part, &mut end);
                let waiting = (op, end, len - fits);
                self.take_there(message.from, envelope, place.sub(0, fits), waiting);
            }
        }
    }

    fn pending_event(&mut self, number: u64, event: &Brief) {
        let waits = match self.pending.get(&number) {
            Some(Pending::Atomic { .. } | Pending::Awaited { .. }) => false,
            Some(Pending::Exposed { .. }) => event.kind == EventKind::GetEnd,
            Some(Pending::Fetch { .. }) => event.kind == EventKind::ReplyEnd,
            Some(Pending::Remote { .. }) => {
                matches!(event.kind, EventKind::Ack | EventKind::ReplyEnd)
            }
            None => false,
        };
        if !waits {
            return;
        }
        let failure = Failure::of(event.ni_fail);
        self.woken = true;
        match self.pending.remove(&number) {
            Some(Pending::Exposed { op, len, tag, .. }) => {
                self.reporter.sent(&op, failure, len, tag);
            }
            Some(Pending::Fetch { op, end, missing }) => {
                self.has_fetched((op, end, missing), failure);
            }
            Some(Pending::Remote {
                md, op, len, told, ..
            }) => {
                if let Err(error) = self.ni.md_unlink(md) {
                    tracing::debug!(%error, "a descriptor whose operation has ended");
                }
                self.written(op, len, told, event.ni_fail, event.mlength);
            }
            Some(Pending::Atomic { .. } | Pending::Awaited { .. }) | None => {}
        }
    }

    /// Takes the message that a receive asks for, or waits for it.
    pub(crate) fn receive(&mut self, tagged: bool, mut receive: Receive) {
        loop {
            let list = &mut self.lists[usize::from(tagged)];
            let Some(at) = list.find(&receive.wanted) else {
                return list.post(receive);
            };
            let Some(message) = self.take_kept(tagged, at) else {
                return;
            };
            let Some(multi) = receive.multi else {
                return self.give(message, receive.op, &receive.buffer, Part::default());
            };
            let (place, rest, part) = divide(&receive.buffer, message.body.len(), multi);
            self.give(message, receive.op, &place, part);
            if part.fills {
                return;
            }
            receive.buffer = rest;
        }
    }

    /// Looks for a message without taking it; whoever claims it takes it later.
    pub(crate) fn peek(&mut self, tagged: bool, wanted: &Wanted, claim: Option<usize>, op: &Op) {
        self.progress(Wait::No);
        let list = &mut self.lists[usize::from(tagged)];
        let found = list.find(wanted).and_then(|at| list.message(at));
        let Some(message) = found else {
            return self.reporter.found_none(op, wanted.tag);
        };
        if claim.is_some() {
            message.claimed = claim;
        }
        let end = message.end();
        self.reporter.looked(op, &end);
    }
}

/// Divides the buffer of a multi-receive into what a message of `len` bytes takes and what is left. Without any room it would cut off every
/// further message, so it is full then whatever the program has asked for.
fn divide(buffer: &Buffer, len: u64, multi: MultiReceive) -> (Buffer, Buffer, Part) {
    let rest = buffer.sub(len, u64::MAX);
    let part = Part {
        number: multi.number,
        fills: rest.len() < multi.least.max(1),
    };
    (buffer.sub(0, len.max(1)), rest, part)
}

/// The room that a posted receive has for a message.
fn take_room(list: &mut Lists, at: usize, len: u64) -> Option<(Op, Buffer, Part)> {
    let posted = list.posted(at)?;
    let Some(multi) = posted.multi else {
        let receive = list.remove_posted(at)?;
        return Some((receive.op, receive.buffer, Part::default()));
    };
    let op = posted.op;
    let (place, rest, part) = divide(&posted.buffer, len, multi);
    match part.fills {
        false => posted.buffer = rest,
        true => list.remove_posted(at).map(drop)?,
    }
    Some((op, place, part))
}
