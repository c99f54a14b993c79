//! Events of an operation, and what happens to its MD afterwards (rules 27-36, 60-66,
//! unlink rules).

use super::Ni;
use crate::event::{Event, EventKind, NiFail};
use crate::handle::{EqHandle, GENERATIONS, MdHandle, OpId, SLOT_BITS};
use crate::header::Header;
use crate::types::{MdOptions, ProcessId, Unlink};

/// Which `*_end` method an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Send,
    Deposit,
    Reply,
    Swap,
}

/// What is known of an operation when it starts.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpStart {
    pub(super) kind: OpKind,
    pub(super) initiator: ProcessId,
    pub(super) uid: u32,
    pub(super) jid: u32,
    pub(super) pt_index: u32,
    pub(super) match_bits: u64,
    pub(super) rlength: u64,
    pub(super) mlength: u64,
    pub(super) offset: u64,
    pub(super) hdr_data: u64,
    pub(super) start: EventKind,
    pub(super) end: EventKind,
    /// Sent after a successful deposit.
    pub(super) ack: Option<Header>,
}

/// An operation under way. The MD stays, because `pending` keeps it.
#[derive(Debug)]
pub(crate) struct Op {
    md: MdHandle,
    /// The queue at the start; an update of the MD meanwhile does not split an operation's events.
    eq: Option<EqHandle>,
    what: OpStart,
    /// Sequence number of the START event, if one was posted.
    link: Option<u32>,
    /// Whether END is posted; as for the queue, the options at the start decide (rule 35).
    ends: bool,
}

impl Ni {
    /// Whether one more operation can be recorded; asked before anything is accounted.
    pub(super) fn has_room(&self) -> bool {
        self.ops.len() < 1 << SLOT_BITS
    }

    fn op_id(key: (u32, u16)) -> OpId {
        OpId(u32::from(key.1) << SLOT_BITS | key.0)
    }

    fn event(
        &self,
        md_handle: MdHandle,
        what: &OpStart,
        kind: EventKind,
        fail: NiFail,
    ) -> Option<Event> {
        let md = self.md(md_handle)?;
        Some(Event {
            kind,
            initiator: what.initiator,
            uid: what.uid,
            jid: what.jid,
            pt_index: what.pt_index,
            match_bits: what.match_bits,
            rlength: what.rlength,
            mlength: what.mlength,
            offset: what.offset,
            md_handle,
            md: md.snapshot(),
            hdr_data: what.hdr_data,
            link: 0,
            ni_fail: fail,
            sequence: 0,
        })
    }

    /// Posts with `link`, or with the event's own sequence number when there is none (rule 32).
    fn post(
        &mut self,
        eq: Option<EqHandle>,
        event: Option<Event>,
        link: Option<u32>,
    ) -> Option<u32> {
        let (mut event, eq) = (event?, self.eq_mut(eq?).ok()?);
        event.link = link.unwrap_or(eq.next_sequence());
        Some(eq.post(event))
    }

    /// Marks the MD in use and posts START. The caller has already accounted the threshold.
    /// `None` when no more operations can be recorded.
    pub(super) fn begin(&mut self, md_handle: MdHandle, what: OpStart) -> Option<OpId> {
        let md = self.md(md_handle)?;
        let (eq, options) = (md.desc.eq, md.desc.options);
        let key = self.ops.insert(Op {
            md: md_handle,
            eq,
            what,
            link: None,
            ends: !options.contains(MdOptions::EVENT_END_DISABLE),
        })?;
        self.md_mut(md_handle)?.pending += 1;
        if let Some(queue) = eq.and_then(|eq| self.eq_mut(eq).ok()) {
            queue.promised += 1;
        }
        if !options.contains(MdOptions::EVENT_START_DISABLE) {
            let event = self.event(md_handle, &what, what.start, NiFail::OK);
            let link = self.post(eq, event, None);
            if let Some(op) = self.ops.get_mut(key) {
                op.link = link;
            }
        }
        Some(Self::op_id(key))
    }

    /// Posts END, frees the MD from use, and lets it go if that was its last operation.
    /// `None` for an operation that is not known (any more) or of another kind.
    fn finish(&mut self, op: OpId, kind: OpKind, fail: NiFail) -> Option<OpStart> {
        let slot = op.0 & ((1 << SLOT_BITS) - 1);
        let key = (slot, (op.0 >> SLOT_BITS) as u16 % GENERATIONS);
        if self.ops.get(key)?.what.kind != kind {
            return None;
        }
        let Op {
            md: md_handle,
            eq,
            what,
            link,
            ends,
        } = self.ops.remove(key)?;
        let md = self.md_mut(md_handle)?;
        md.pending = md.pending.saturating_sub(1);
        let mut last = link;
        if ends {
            let event = self.event(md_handle, &what, what.end, fail);
            last = self.post(eq, event, link).or(link);
        }
        if let Some(queue) = eq.and_then(|eq| self.eq_mut(eq).ok()) {
            queue.promised = queue.promised.saturating_sub(1);
        }
        self.unlink_if_spent(md_handle, &what, last);
        Some(what)
    }

    /// Unlink rules 1 and 4: a spent MD goes once nothing is under way on it, with an UNLINK
    /// event that carries the fields of the operation that caused it.
    pub(super) fn unlink_if_spent(
        &mut self,
        md_handle: MdHandle,
        what: &OpStart,
        last: Option<u32>,
    ) {
        let Some(md) = self.md(md_handle) else { return };
        if md.active || !md.retired || md.pending > 0 || md.unlink == Unlink::Retain {
            return;
        }
        let eq = md.desc.eq;
        let event = self.event(md_handle, what, EventKind::Unlink, NiFail::OK);
        self.release_md(md_handle);
        self.post(eq, event, last);
    }

    /// The ACK event: one event, no START (rule 27), one threshold count.
    pub(super) fn post_ack(&mut self, md_handle: MdHandle, what: &OpStart) {
        let Some(md) = self.md_mut(md_handle) else {
            return;
        };
        md.consume();
        let eq = md.desc.eq;
        let event = self.event(md_handle, what, EventKind::Ack, NiFail::OK);
        let last = self.post(eq, event, None);
        self.unlink_if_spent(md_handle, what, last);
    }

    /// The payload of a [`super::Transmit`] may be reused by its owner (or could not be sent).
    ///
    /// Comes before the answer to the same message goes to [`Ni::handle_header`]: an ack cannot be
    /// told to which of several puts it belongs, and SEND_END precedes ACK (rules 27 and 60).
    pub fn send_end(&mut self, op: OpId, fail: NiFail) {
        self.finish(op, OpKind::Send, fail);
    }

    /// The data of a [`super::Deposit`] is in memory (or could not be placed). Returns the ack to
    /// send, if one is due: asked for, not disabled, and the put succeeded (rule 14).
    pub fn deposit_end(&mut self, op: OpId, fail: NiFail) -> Option<Header> {
        let what = self.finish(op, OpKind::Deposit, fail)?;
        what.ack.filter(|_| fail == NiFail::OK)
    }

    /// The data of a [`super::ReplyOut`] has been read.
    pub fn reply_end(&mut self, op: OpId, fail: NiFail) {
        self.finish(op, OpKind::Reply, fail);
    }

    /// The exchange of a [`super::Swap`] has been made.
    pub fn swap_end(&mut self, op: OpId, fail: NiFail) {
        self.finish(op, OpKind::Swap, fail);
    }
}
