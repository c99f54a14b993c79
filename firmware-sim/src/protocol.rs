//! The words between firmwares: acknowledgements, refusals, questions, and what time does.
//!
//! ```text
//!  sender                                        receiver
//!    │ message n ───────────────────────────────► no receive pending: thrown away
//!    │ message n+1 ─────────────────────────────► not the number expected: thrown away
//!    │ ◄──────────────────────────────── NACK n
//!    │   back-off, 10 to 100 µs
//!    │ message n, message n+1 ──────────────────► taken
//!    │ ◄────────────────────────── ACK n+1, n+2
//!    │
//!    │ message n+2 ───────────────────✗ (lost, or its header damaged)
//!    │   silence for probe_after
//!    │ PROBE n+3 ───────────────────────────────► n+2 is missing
//!    │ ◄────────────────────────────── NACK n+2
//! ```
//!
//! A peer that does not move for `give_up` has its messages given up: TX_FAILED, and the host
//! makes of that what its interface has for it.

use nic_model::defs::niccb::Counter;
use nic_model::defs::packet::{Control, control, reason};
use nic_model::{FirmwareContext, NodeId, SimTime};

use crate::program::{SeaStarFirmware, Work, alarm};
use crate::source::{Answered, Load};
use crate::tx::{Queued, TxOutcome};

impl SeaStarFirmware {
    /// Acknowledges what has been taken from `nid`; one word for all that comes meanwhile.
    pub(crate) fn acknowledge(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId) {
        if let Some(source) = self.sources.known(nid)
            && !std::mem::replace(&mut source.ack_queued, true)
        {
            self.later(ctx, self.limits.control, Work::Acknowledge { nid });
        }
    }

    pub(crate) fn send_ack(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId) {
        if let Some(source) = self.sources.known(nid)
            && std::mem::take(&mut source.ack_queued)
        {
            let word = Control::new(control::ACK, 0, source.expected());
            ctx.send_control(nid, word);
        }
    }

    /// Refuses the message `sequence` of `nid` and all behind it.
    pub(crate) fn refuse(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        nid: NodeId,
        why: u8,
        sequence: u16,
    ) {
        ctx.count(Counter::NACKS_SENT, 1);
        let word = Control::new(control::NACK, why, sequence);
        self.later(ctx, self.limits.control, Work::Say { nid, word });
    }

    /// A word whose intake cost has been spent.
    pub(crate) fn take_control(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        nid: NodeId,
        word: Control,
    ) {
        let now = ctx.now();
        let n = word.sequence();
        match word.what() {
            control::ACK | control::NACK => {
                let Some(source) = self.sources.known(nid) else {
                    // Nothing is under way to it.
                    let stranger = !self.sources.have_left();
                    return ctx.count(Counter::BAD_CONTROL, u32::from(stranger));
                };
                let before = source.load();
                let answered = if word.what() == control::ACK {
                    source.ack(now, n)
                } else {
                    ctx.count(Counter::NACKS_RECEIVED, 1);
                    source.nack(now, n, word.reason(), &self.limits)
                };
                let after = source.load();
                self.count_in_flight(ctx, before, after);
                self.answered(ctx, nid, answered);
                self.send_waiting(ctx);
            }
            control::PROBE => {
                let Some(source) = self.source(ctx, nid) else {
                    return self.refuse(ctx, nid, reason::SOURCE, n.wrapping_sub(1));
                };
                match source.question(n) {
                    control::ACK => self.acknowledge(ctx, nid),
                    _ => {
                        let expected = source.expected();
                        self.refuse(ctx, nid, reason::SEQUENCE, expected);
                    }
                }
            }
            control::SKIP => {
                let Some(source) = self.met(ctx, nid) else {
                    return ctx.count(Counter::BAD_CONTROL, 1);
                };
                if source.expected() == n {
                    source.taken();
                    self.acknowledge(ctx, nid);
                }
            }
            control::SYNC => {
                if let Some(source) = self.source(ctx, nid) {
                    source.synchronise(n);
                    ctx.set_counter(Counter::SOURCE_FREELIST, self.sources.free());
                }
            }
            _ => ctx.count(Counter::BAD_CONTROL, 1),
        }
    }

    fn answered(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId, answered: Answered) {
        for owner in answered.done {
            self.end_later(ctx, owner, TxOutcome::Done);
        }
        if answered.hopeless {
            return self.give_up(ctx, nid);
        }
        match answered.wait {
            Some(delay) => ctx.alarm(delay, alarm::RESUME | u64::from(nid.0)),
            None => self.queue_again(ctx, nid, answered.queued),
        }
    }

    fn queue_again(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId, messages: usize) {
        for _ in 0..messages {
            self.tx_queue.push_back(Queued::Peer(nid));
        }
        self.start_next(ctx);
    }

    /// A back-off is over.
    pub(crate) fn resume(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId) {
        if let Some(source) = self.sources.known(nid) {
            let answered = source.unblock(ctx.now(), &self.limits);
            self.answered(ctx, nid, answered);
            // All its messages may have been acknowledged meanwhile: it is idle only now.
            self.send_waiting(ctx);
        }
    }

    fn give_up(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId) {
        let Some(source) = self.sources.known(nid) else {
            return;
        };
        let before = source.load();
        let lost = source.give_up();
        self.count_in_flight(ctx, before, Load::default());
        ctx.count(Counter::GIVEN_UP, lost.len() as u32);
        for owner in lost {
            self.end_later(ctx, owner, TxOutcome::Undelivered);
        }
        self.send_waiting(ctx);
    }

    /// Has the peers looked after for as long as something is expected of one.
    pub(crate) fn watch(&mut self, ctx: &mut FirmwareContext<'_>) {
        if !std::mem::replace(&mut self.watching, true) {
            ctx.alarm(self.limits.probe_after, alarm::WATCH);
        }
    }

    /// Looks after the peers.
    pub(crate) fn look(&mut self, ctx: &mut FirmwareContext<'_>) {
        self.watching = false;
        let now = ctx.now();
        let (mut ask, mut hopeless, mut waits) = (Vec::new(), Vec::new(), false);
        for (nid, source) in self.sources.iter_mut() {
            let (question, dead) = source.watch(now, &self.limits);
            waits |= source.in_flight() > 0 && !dead;
            if dead {
                hopeless.push(nid);
            } else if let Some(n) = question {
                ask.push((nid, n));
            }
        }
        for nid in hopeless {
            self.give_up(ctx, nid);
        }
        for (nid, n) in ask {
            ctx.count(Counter::PROBES_SENT, 1);
            let word = Control::new(control::PROBE, 0, n);
            self.later(ctx, self.limits.control, Work::Say { nid, word });
        }
        ctx.cut_silent(SimTime(now.0.saturating_sub(self.limits.give_up.0)));
        if waits || ctx.awaits_packets() {
            self.watch(ctx);
        }
    }
}
