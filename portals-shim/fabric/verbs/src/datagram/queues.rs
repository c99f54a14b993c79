//! The device's side of reliable datagrams: two queue pairs, their completions, and what becomes of a device that fails.
//!
//! # Invariants
//!
//! * `rd` learns once of each send that it has ended, also of those that a failed queue pair has lost.
//! * A device that is gone stays gone; an interruption ends when both queue pairs work again.

use super::open::{self, Contact};
use super::peers::Peers;
use super::send::Payload;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use verbs_backend::cq::CqError;
use verbs_backend::rd::{Channel, Endpoint, Time};
use verbs_backend::ud::{Arrival, DatagramError};
use verbs_backend::{Completion, Cq, DatagramQueue, Destination, Device, Event};

/// Completions taken in one go.
pub(super) const BATCH: usize = 16;

/// The address handles of a peer's queue pairs.
#[derive(Debug)]
pub(super) struct Destinations {
    command: Destination,
    data: Destination,
}

/// Why a device is of no use any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it was taken away or has failed")]
    Gone,
    #[error("a queue of it is broken")]
    CompletionQueue,
    #[error(transparent)]
    Call(#[from] io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Works,
    /// A queue pair has failed.
    Interrupted,
    /// The device does not work any more.
    Gone,
}

/// Device, queue pairs and completions.
#[derive(Debug)]
pub(super) struct Queues {
    device: Device,
    cq: Cq,
    command: DatagramQueue,
    data: DatagramQueue,
    /// Where a datagram is written when the ring is full, and small ones before they are copied.
    scratch: Vec<u8>,
    slots: Box<[Completion; BATCH]>,
    condition: Condition,
    /// Interruptions are told to nobody any more.
    quiet: bool,
}

impl Queues {
    /// `longest`: bytes of the longest datagram.
    pub(super) fn new(
        device: Device,
        cq: Cq,
        (command, data): (DatagramQueue, DatagramQueue),
        longest: usize,
    ) -> Self {
        Self {
            device,
            cq,
            command,
            data,
            scratch: vec![0; longest],
            slots: Box::new([Completion::EMPTY; BATCH]),
            condition: Condition::Works,
            quiet: false,
        }
    }

    pub(super) fn device_name(&self) -> &str {
        self.device.name()
    }

    pub(super) fn is_gone(&self) -> bool {
        self.condition == Condition::Gone
    }

    /// Whether [`Queues::mend`] has something to do.
    pub(super) fn is_interrupted(&self) -> bool {
        self.condition == Condition::Interrupted
    }

    /// The device does not work any more; whether that is news.
    pub(super) fn set_gone(&mut self) -> bool {
        std::mem::replace(&mut self.condition, Condition::Gone) != Condition::Gone
    }

    /// The interface closes: whoever is interrupted from here on has no more to say.
    pub(super) fn close(&mut self) {
        self.quiet = true;
    }

    /// Makes a peer's addresses usable.
    pub(super) fn resolve(&self, contact: &Contact) -> Result<Destinations, DatagramError> {
        Ok(Destinations {
            command: self.command.resolve(&contact.command)?,
            data: self.data.resolve(&contact.data)?,
        })
    }

    /// Posts all that is to be sent.
    pub(super) fn flush(&mut self, rd: &mut Endpoint<Payload>, peers: &Peers, now: Time) {
        loop {
            let full = self.data.room().is_none();
            let out = match self.data.room() {
                Some(room) => room,
                None => &mut self.scratch[..],
            };
            let Some(t) = rd.poll_transmit(now, out) else {
                break;
            };
            let Some(peer) = peers.get(t.peer) else {
                continue;
            };
            let staged = match t.channel {
                Channel::Data => self.data.stage(&peer.to.data, t.len),
                Channel::Command => {
                    let written = match self.data.room() {
                        Some(room) if !full => &room[..t.len],
                        _ => &self.scratch[..t.len],
                    };
                    self.command.stage_copy(&peer.to.command, written)
                }
            };
            if let Err(error) = staged {
                self.interrupted(&error);
            }
            if t.channel == Channel::Command {
                self.command_left(rd);
            }
        }
        // The last one tells that all have left.
        for result in [self.command.flush(false), self.data.flush(true)] {
            if let Err(error) = result {
                self.interrupted(&error);
            }
        }
    }

    /// What is in the command queue leaves at once, and few of its sends make completions: half of its places count as
    /// free although their completions have not come.
    fn command_left(&self, rd: &mut Endpoint<Payload>) {
        let known = self
            .command
            .outstanding()
            .saturating_sub(open::COMMAND.1 as usize / 2);
        let posted = rd.posted(Channel::Command);
        rd.handle_sent(Channel::Command, posted.saturating_sub(known));
    }

    /// Sends of the command queue that the adapter is not known to be done with.
    pub(super) fn commands_outstanding(&self) -> usize {
        self.command.outstanding()
    }

    /// A queue pair does not work. What was posted is as good as lost; it will be sent again.
    fn interrupted(&mut self, error: &DatagramError) {
        if self.condition == Condition::Works {
            if !self.quiet {
                tracing::warn!(%error, "datagrams are interrupted");
            }
            self.condition = Condition::Interrupted;
        }
    }

    /// Makes both queue pairs work again, if the device lets them.
    pub(super) fn mend(&mut self, rd: &mut Endpoint<Payload>) {
        for queue in [&mut self.command, &mut self.data] {
            if let Err(error) = queue.recover() {
                tracing::debug!(%error, "no datagrams yet");
                return;
            }
        }
        self.condition = Condition::Works;
        for channel in [Channel::Command, Channel::Data] {
            let lost = rd.posted(channel);
            rd.handle_sent(channel, lost);
        }
    }

    /// Fetches completions; how many, at most [`BATCH`].
    pub(super) fn poll(&mut self) -> Result<usize, CqError> {
        Ok(self.cq.poll(&mut self.slots[..])?.len().min(BATCH))
    }

    fn queue(&mut self, channel: Channel) -> &mut DatagramQueue {
        match channel {
            Channel::Command => &mut self.command,
            Channel::Data => &mut self.data,
        }
    }

    /// Handles the completion at `at` of those that were fetched: what has arrived, which [`Queues::give_back`] wants again.
    pub(super) fn complete(
        &mut self,
        at: usize,
        rd: &mut Endpoint<Payload>,
    ) -> Option<(Channel, Arrival)> {
        let completion = *self.slots.get(at)?;
        let channel = if completion.qpn() == self.data.qpn() {
            Channel::Data
        } else {
            Channel::Command
        };
        let queue = self.queue(channel);
        let before = queue.outstanding();
        let arrival = queue.handle(&completion);
        let left = before.saturating_sub(queue.outstanding());
        if left > 0 {
            match channel {
                Channel::Data => rd.handle_sent(Channel::Data, left),
                Channel::Command => self.command_left(rd),
            }
        }
        match arrival {
            Ok(arrival) => arrival.map(|arrival| (channel, arrival)),
            Err(error) => {
                self.interrupted(&error);
                None
            }
        }
    }

    /// Posts the buffer of an arrival again.
    pub(super) fn give_back(&mut self, (channel, arrival): (Channel, Arrival)) {
        if let Err(error) = self.queue(channel).give_back(arrival) {
            self.interrupted(&error);
        }
    }

    /// Takes what the device tells.
    pub(super) fn device_events(&mut self) -> Result<(), Unusable> {
        while let Some(event) = self.device.take_event()? {
            match event {
                Event::DeviceGone => return Err(Unusable::Gone),
                Event::CompletionQueue => return Err(Unusable::CompletionQueue),
                Event::QueuePair { qpn, .. } => {
                    let is_ours = [self.command.qpn(), self.data.qpn()].contains(&qpn);
                    if is_ours && !self.is_gone() {
                        self.condition = Condition::Interrupted;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has the next completion make a descriptor readable; whether it will.
    pub(super) fn arm(&mut self) -> bool {
        let armed = self.cq.drain_events().and_then(|_| self.cq.arm(false));
        armed.is_ok() && !self.is_gone()
    }

    /// Descriptors that completions and the device's events make readable.
    pub(super) fn descriptors(&self) -> Option<(OwnedFd, OwnedFd)> {
        let dup = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().ok();
        Some((
            dup(self.cq.event_fd().ok()?)?,
            dup(self.device.events_fd())?,
        ))
    }
}
