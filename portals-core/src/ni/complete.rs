//! Events of an operation, and what happens to its MD afterwards (rules 27-36, 60-66,
//! unlink rules).

use super::{Ni, NiConfig};
use crate::ack::Ack;
use crate::eq::EventQueue;
use crate::event::{Event, EventKind, MdSnapshot, NiFail};
use crate::handle::{EqHandle, MdHandle, OpId};
use crate::header::{Body, Header};
use crate::md::Md;
use crate::memory::Segment;
use crate::types::{MdOptions, ProcessId};
use alloc::collections::VecDeque;

/// Which `*_end` method an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpKind {
    Send,
    Deposit,
    Reply,
    Swap,
}

/// What an operation takes of its MD when it begins. No function, of which there would be a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Account {
    /// One of the threshold.
    Operation,
    /// That of a message with so many bytes, which moves the local offset.
    Message(u64),
}

impl Account {
    /// Of an MD whose memory has `length` bytes.
    #[inline(always)]
    fn on(self, md: &mut Md, length: u64) {
        match self {
            Self::Operation => md.consume(),
            Self::Message(mlength) => md.account_target(length, mlength),
        }
    }
}

/// What every event of an operation says.
#[derive(Clone, Copy, Debug)]
pub(super) struct What {
    pub(super) initiator: ProcessId,
    pub(super) uid: u32,
    pub(super) jid: u32,
    pub(super) pt_index: u32,
    pub(super) match_bits: u64,
    pub(super) rlength: u64,
    pub(super) mlength: u64,
    pub(super) offset: u64,
    pub(super) hdr_data: u64,
}

impl Event {
    /// Its number, and that of the event it belongs to, if there is such a one (rule 32).
    #[inline(always)]
    fn number(&mut self, sequence: u32, link: Option<u32>) {
        self.link = link.unwrap_or(sequence);
        self.sequence = sequence;
    }
}

impl What {
    /// The successful event that has no number yet.
    #[inline(always)]
    fn event(self, kind: EventKind, md_handle: MdHandle, md: MdSnapshot) -> Event {
        Event {
            kind,
            initiator: self.initiator,
            uid: self.uid,
            jid: self.jid,
            pt_index: self.pt_index,
            match_bits: self.match_bits,
            rlength: self.rlength,
            mlength: self.mlength,
            offset: self.offset,
            md_handle,
            md,
            hdr_data: self.hdr_data,
            link: 0,
            ni_fail: NiFail::OK,
            sequence: 0,
        }
    }

    /// Of something the process did to itself.
    fn own(config: &NiConfig) -> Self {
        Self {
            initiator: config.id,
            uid: config.uid,
            jid: config.jid,
            pt_index: 0,
            match_bits: 0,
            rlength: 0,
            mlength: 0,
            offset: 0,
            hdr_data: 0,
        }
    }
}

/// An operation under way. The MD and the queue stay, because `pending` and `promised` keep them.
#[derive(Debug)]
pub(crate) struct Op {
    kind: OpKind,
    /// The END event as it was known at the start. The queue it shows is where it goes: an update of
    /// the MD meanwhile does not split an operation's events. The options it shows decide whether it
    /// is posted (rule 35).
    end: Event,
    /// Sequence number of the START event, if one was posted.
    link: Option<u32>,
    /// Sent after a successful deposit.
    ack: Option<Ack>,
}

impl Op {
    const BLANK: Self = Self {
        kind: OpKind::Send,
        end: Event::BLANK,
        link: None,
        ack: None,
    };
}

/// Where events go.
#[derive(Debug, Default)]
pub(super) struct Outlet {
    /// Those on their way to queues that the owner keeps; none where they are kept here.
    pub(super) exported: Option<VecDeque<(EqHandle, Event)>>,
    /// Events in all queues that are kept here: most looks find none, and need not ask each queue.
    pub(super) unread: usize,
}

/// The place of the next event of a queue and its number, which is to be written there with [`Event::number`].
#[inline(always)]
fn next<'a>(
    queue: &'a mut EventQueue,
    outlet: &'a mut Outlet,
    eq: EqHandle,
) -> (&'a mut Event, u32) {
    let sequence = queue.stamp();
    let place = match &mut outlet.exported {
        None => {
            outlet.unread += usize::from(!queue.is_at_capacity());
            queue.place()
        }
        Some(exported) => {
            exported.push_back((eq, Event::BLANK));
            let last = exported.len() - 1;
            &mut exported[last].1
        }
    };
    (place, sequence)
}

/// Posts the event that `fill` writes with `link`, or with its own number when there is none (rule 32). Returns where it
/// lies, so that the caller can change it there instead of moving it twice.
#[inline(always)]
fn post<'a>(
    queue: &'a mut EventQueue,
    outlet: &'a mut Outlet,
    eq: EqHandle,
    link: Option<u32>,
    fill: impl FnOnce(&mut Event),
) -> &'a mut Event {
    let (posted, sequence) = next(queue, outlet, eq);
    fill(posted);
    posted.number(sequence, link);
    posted
}

/// An operation that has begun.
pub(super) struct Begun {
    pub(super) op: OpId,
    /// Its memory, when it is one region.
    pub(super) region: Option<Segment>,
}

/// What of its MD an operation that has passed asks for.
pub(super) struct Passed {
    /// The MD allows acks.
    pub(super) acks: bool,
}

impl Ni {
    /// Whether one more operation can be recorded; asked before anything is accounted.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.ops.is_full()
    }

    /// Posts `event` to the queue that it shows; its sequence number.
    fn post(&mut self, event: &Event, link: Option<u32>) -> Option<u32> {
        let eq = event.md.eq?;
        let queue = self.eqs.at_mut(eq.0.slot())?;
        Some(post(queue, &mut self.outlet, eq, link, |e| *e = *event).sequence)
    }

    /// Accounts an operation on the MD by `account`; marks the MD in use and
    /// posts START. `None`, and nothing has happened, when no more operations can be recorded.
    ///
    /// Part of each caller, so that the record is written once, where it stays.
    #[inline(always)]
    pub(super) fn begin(
        &mut self,
        md_handle: MdHandle,
        account: Account,
        kind: OpKind,
        (start, end): (EventKind, EventKind),
        what: What,
        ack: Option<Ack>,
    ) -> Option<Begun> {
        let (md, length) = self.mds.at_mut_with_length(md_handle.0.slot())?;
        let (id, op) = self.ops.take(|| Op::BLANK)?;
        account.on(md, length);
        let (eq, options) = (md.shown.eq, md.shown.options);
        md.pending += 1;
        op.kind = kind;
        op.end = what.event(end, md_handle, md.shown);
        op.link = None;
        op.ack = ack.filter(|_| !options.contains(MdOptions::ACK_DISABLE));
        if let Some(eq) = eq
            && let Some(queue) = self.eqs.at_mut(eq.0.slot())
        {
            queue.promised += 1;
            if !options.contains(MdOptions::EVENT_START_DISABLE) {
                let posted = post(queue, &mut self.outlet, eq, None, |e| *e = op.end);
                posted.kind = start;
                op.link = Some(posted.sequence);
            }
        }
        self.usage.messages.made += 1;
        Some(Begun {
            op: OpId(id),
            region: md.region(),
        })
    }

    /// Begins and finishes in one step an operation whose data has been moved: nothing
    /// is recorded. With `silent` the operation posts neither START nor END. `what` is called for events that are posted.
    /// `None`, and nothing has happened, when there is no such MD.
    #[inline(always)]
    pub(super) fn pass(
        &mut self,
        md_handle: MdHandle,
        account: Account,
        (start, end): (EventKind, EventKind),
        what: impl Fn(&NiConfig) -> What,
        fail: NiFail,
        silent: bool,
    ) -> Option<Passed> {
        let (md, length) = self.mds.at_mut_with_length(md_handle.0.slot())?;
        account.on(md, length);
        let options = md.shown.options;
        let passed = Passed {
            acks: !options.contains(MdOptions::ACK_DISABLE),
        };
        let mut last = None;
        if !silent
            && let Some(eq) = md.shown.eq
            && let Some(queue) = self.eqs.at_mut(eq.0.slot())
        {
            if !options.contains(MdOptions::EVENT_START_DISABLE) {
                // Made where it stays, as below.
                let (posted, sequence) = next(queue, &mut self.outlet, eq);
                *posted = what(&self.config).event(start, md_handle, md.shown);
                posted.number(sequence, None);
                last = Some(sequence);
            }
            if !options.contains(MdOptions::EVENT_END_DISABLE) {
                let (posted, sequence) = next(queue, &mut self.outlet, eq);
                *posted = what(&self.config).event(end, md_handle, md.shown);
                posted.ni_fail = fail;
                posted.number(sequence, last);
                last = Some(sequence);
            }
        }
        self.usage.messages.count(self.ops.len() + 1);
        if md.is_spent() {
            if options.contains(MdOptions::EVENT_AUTO_UNLINK_DISABLE) {
                self.release_at(md_handle.0.slot());
            } else {
                let cause = what(&self.config).event(end, md_handle, md.shown);
                self.unlink_told(&cause, last);
            }
        }
        Some(passed)
    }

    /// A message that was over at once.
    #[inline]
    pub(super) fn count_passed(&mut self) {
        self.usage.messages.count(self.ops.len() + 1);
    }

    /// Posts END, frees the MD from use, and lets it go if that was its last operation. Returns the
    /// ack that is due, if any. Nothing happens to an operation that is not known (any more) or of
    /// another kind.
    fn finish(&mut self, id: OpId, kind: OpKind, fail: NiFail) -> Option<Header> {
        // `begin` counted this operation on both, so neither count is 0.
        let op = self.ops.get(id.0).filter(|op| op.kind == kind)?;
        let md = self.mds.at_mut(op.end.md_handle.0.slot())?;
        md.pending -= 1;
        let mut last = op.link;
        if let Some(eq) = op.end.md.eq
            && let Some(queue) = self.eqs.at_mut(eq.0.slot())
        {
            queue.promised -= 1;
            let options = op.end.md.options;
            if !options.contains(MdOptions::EVENT_END_DISABLE)
                || fail != NiFail::OK && options.contains(MdOptions::EVENT_FAILURE_ENABLE)
            {
                let posted = post(queue, &mut self.outlet, eq, op.link, |e| *e = op.end);
                posted.md = md.shown;
                posted.ni_fail = fail;
                last = Some(posted.sequence);
                queue.lost &= fail == NiFail::OK;
            }
        }
        let ack = match op.ack {
            Some(ack) if fail == NiFail::OK => Some(Self::ack(&self.config, &op.end, ack)),
            _ => None,
        };
        if md.is_spent() {
            let end = op.end;
            self.unlink_spent(&end, last);
        }
        self.ops.remove(id.0);
        ack
    }

    fn ack(config: &NiConfig, end: &Event, ack: Ack) -> Header {
        Header {
            target: end.initiator,
            source: config.id,
            uid: config.uid,
            jid: config.jid,
            pt_index: end.pt_index,
            match_bits: end.match_bits,
            body: Body::Ack(ack),
        }
    }

    /// The end of a spent MD.
    #[cold]
    fn unlink_spent(&mut self, cause: &Event, link: Option<u32>) {
        if cause
            .md
            .options
            .contains(MdOptions::EVENT_AUTO_UNLINK_DISABLE)
        {
            self.release_md(cause.md_handle);
        } else {
            self.unlink_told(cause, link);
        }
    }

    /// The end of an MD, with an UNLINK event; of a spent one it carries the fields of the operation
    /// that caused it.
    #[cold]
    fn unlink_told(&mut self, cause: &Event, link: Option<u32>) {
        if let Some(md) = self.md(cause.md_handle) {
            let unlink = Event {
                kind: EventKind::Unlink,
                md: md.shown,
                ni_fail: NiFail::OK,
                ..*cause
            };
            self.post(&unlink, link);
            self.release_md(cause.md_handle);
        }
    }

    /// An unlink by the program, with an event: the process itself caused it.
    pub(super) fn unlink_by_program(&mut self, md_handle: MdHandle) {
        if let Some(md) = self.md(md_handle) {
            let what = What::own(&self.config);
            let cause = what.event(EventKind::Unlink, md_handle, md.shown);
            self.unlink_told(&cause, None);
        }
    }

    /// The ACK event: one event, no START (rule 27), one threshold count.
    #[inline(always)]
    pub(super) fn post_ack(&mut self, md_handle: MdHandle, what: What, fail: NiFail) {
        let Some(md) = self.md_mut(md_handle) else {
            return;
        };
        md.consume();
        let (spent, shown) = (md.is_spent(), md.shown);
        let mut last = None;
        if let Some(eq) = shown.eq
            && let Some(queue) = self.eqs.at_mut(eq.0.slot())
        {
            let fill = |e: &mut Event| *e = what.event(EventKind::Ack, md_handle, shown);
            let posted = post(queue, &mut self.outlet, eq, None, fill);
            posted.ni_fail = fail;
            last = Some(posted.sequence);
            queue.lost &= fail == NiFail::OK;
        }
        if spent {
            self.unlink_spent(&what.event(EventKind::Ack, md_handle, shown), last);
        }
    }

    /// The fabric has given `process` up: messages to and from it may be lost, also such as have had
    /// their SEND_END. Each descriptor with [`MdOptions::EVENT_FAILURE_ENABLE`] gets a SEND_END with a
    /// failure, whose initiator is that process. Where there is none, each queue whose events say nothing of a failure
    /// is one of [`Ni::take_lost`], so that a wait on it ends.
    pub fn lost(&mut self, process: ProcessId) {
        let mut told = false;
        for slot in 0..self.mds.slots() {
            let Some((md, generation)) = self.mds.at(slot).zip(self.mds.generation(slot)) else {
                continue;
            };
            let shown = md.shown;
            if shown.options.contains(MdOptions::EVENT_FAILURE_ENABLE) {
                let what = What {
                    initiator: process,
                    ..What::own(&self.config)
                };
                let handle = MdHandle::of(self.config.interface, generation, slot);
                let mut event = what.event(EventKind::SendEnd, handle, shown);
                event.ni_fail = NiFail::FAIL;
                told |= self.post(&event, None).is_some();
            }
        }
        if told {
            return;
        }
        for queue in self.eqs.values_mut() {
            queue.handle_lost();
        }
    }

    /// An operation on a descriptor could not begin, and its caller is not told otherwise: the events that end it come with a
    /// failure. Nothing where there is no such descriptor, or it has no queue.
    pub fn could_not_begin(&mut self, handle: MdHandle, ends: &[EventKind]) {
        let Some(shown) = self.md(handle).map(|md| md.shown) else {
            return;
        };
        for kind in ends {
            let mut event = What::own(&self.config).event(*kind, handle, shown);
            event.ni_fail = NiFail::FAIL;
            self.post(&event, None);
        }
    }

    /// The first of these queues that is empty while a process was given up and no event has said so; each loss is told once
    /// for all of them.
    pub fn take_lost(&mut self, eqs: &[EqHandle]) -> Option<usize> {
        let mut first = None;
        for (which, eq) in eqs.iter().enumerate() {
            if let Ok(queue) = self.eq_mut(*eq)
                && queue.is_empty()
                && core::mem::take(&mut queue.lost)
            {
                first = first.or(Some(which));
            }
        }
        first
    }

    /// The payload of a [`super::Transmit`] may be reused by its owner (or could not be sent).
    ///
    /// Comes before the answer to the same message goes to [`Ni::handle_header`]: an ack cannot be
    /// told to which of several puts it belongs, and SEND_END precedes ACK (rules 27 and 60).
    #[inline]
    pub fn send_end(&mut self, op: OpId, fail: NiFail) {
        self.finish(op, OpKind::Send, fail);
    }

    /// The data of a [`super::Deposit`] is in memory (or could not be placed). Returns the ack to
    /// send, if one is due: asked for, not disabled, and the put succeeded (rule 14).
    #[inline]
    pub fn deposit_end(&mut self, op: OpId, fail: NiFail) -> Option<Header> {
        self.finish(op, OpKind::Deposit, fail)
    }

    /// The data of a [`super::ReplyOut`] has been read.
    #[inline]
    pub fn reply_end(&mut self, op: OpId, fail: NiFail) {
        self.finish(op, OpKind::Reply, fail);
    }

    /// The exchange of a [`super::Swap`] has been made.
    #[inline]
    pub fn swap_end(&mut self, op: OpId, fail: NiFail) {
        self.finish(op, OpKind::Swap, fail);
    }
}
