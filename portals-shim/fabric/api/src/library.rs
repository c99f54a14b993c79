//! One interface and its fabric: executes the API's calls.

mod awaited;
mod kept;
#[cfg(test)]
mod tests;

use crate::call::{Answer, Call, Place, PollError, Polled, RemoteKey, Taken, Target};
use crate::delivery::{self, Messages};
use crate::nal::{Look, Nal, Outcome, Schedule};
use crate::op::{Get, Mode, Posted, Put, Report};
use crate::region::{LocalCopy, Region, Trust};
use kept::Kept;
use portals_core::{
    EqHandle, Error, InsertPosition, MdDesc, MdHandle, MeHandle, MeSpec, Ni, NiFail, ProcessId,
    ReadyPut, Transmit, Unlink,
};

/// The state behind an interface. Sends to the own process never reach the NAL; they wait here for
/// the next progress, because the API forbids delivering them inside the call (rule 22).
#[derive(Debug)]
pub struct Library<N> {
    // It goes before the regions do: a fabric may have told peers of their addresses.
    /// The fabric.
    pub nal: N,
    copy: LocalCopy,
    /// The interface's objects.
    pub ni: Ni,
    /// The regions that descriptors were made of.
    kept: Kept,
    own: Messages,
    /// Those that are being delivered; empty between calls.
    taken: Messages,
    /// For the bytes of an answer; empty between messages.
    answer: Vec<u8>,
    /// Looks that have found an event, and made no progress, since the last that did.
    lucky: u32,
    /// Something arrived or completed since [`Library::take_moved`].
    moved: bool,
}

/// Looks in a row that may find events without any progress: who makes events by each call, and takes them, has to serve others
/// all the same.
const LUCKY: u32 = 64;
/// Messages to the own process that may wait while looks find events.
const OWN: usize = 16;

/// Whether a call was refused for what only progress ends.
pub const fn is_in_use(answer: &Result<Answer, Error>) -> bool {
    matches!(answer, Err(Error::MdInUse | Error::MeInUse))
}

impl<N: Nal> Library<N> {
    /// A library over `nal`.
    pub fn new(ni: Ni, nal: N, trust: Trust) -> Self {
        Self {
            copy: LocalCopy::of(trust),
            nal,
            ni,
            kept: Kept::default(),
            own: Messages::default(),
            taken: Messages::default(),
            answer: Vec::new(),
            lucky: 0,
            moved: false,
        }
    }

    /// Whether messages to `target` stay here.
    #[inline]
    fn keeps(&self, target: ProcessId) -> bool {
        !N::CARRIES_OWN && target == self.ni.config().id
    }

    /// The message is large, and stays where it was made.
    #[inline(always)]
    fn transmit(&mut self, tx: &mut Transmit, keep: bool, key: Option<&RemoteKey>) {
        if keep {
            self.keep(tx);
        } else {
            self.nal.send(&mut self.ni, tx, key);
        }
    }

    /// A message to the own process waits for the next progress.
    #[inline(never)]
    fn keep(&mut self, tx: &Transmit) {
        self.own.put(self.copy, &tx.header, &tx.payload);
        if let Some(op) = tx.op {
            self.ni.send_end(op, NiFail::OK);
        }
    }

    /// Handles arrivals without blocking; returns whether there were any.
    #[inline]
    pub fn progress(&mut self) -> bool {
        // Most looks find nothing.
        if !self.nal.progress(&mut self.ni, Look::All) && self.own.is_empty() {
            return false;
        }
        self.progressed();
        true
    }

    /// Looks at where an answer is likely to be, between two calls of [`Library::progress`].
    #[inline]
    pub fn progress_likely(&mut self) -> bool {
        let any = self.nal.progress(&mut self.ni, Look::Likely);
        if any {
            self.progressed();
        }
        any
    }

    /// What follows arrivals.
    #[inline(always)]
    fn progressed(&mut self) {
        if !self.own.is_empty() {
            self.take_own();
        }
        self.moved = true;
        self.changed();
    }

    /// What follows a call that may have ended or changed descriptors: their regions go, and peers are told.
    #[inline(always)]
    pub fn changed(&mut self) {
        // One branch for both, as neither is common.
        if self.ni.has_gone_mds() | self.kept.has_former() {
            self.kept.release(&mut self.ni);
        }
        self.nal.publish(&mut self.ni);
    }

    /// Delivers what the process has sent to itself. Answers to own messages are own messages again; this ends,
    /// since an ack or reply causes none.
    #[inline(never)]
    fn take_own(&mut self) {
        let mut taken = std::mem::take(&mut self.taken);
        while !self.own.is_empty() {
            std::mem::swap(&mut taken, &mut self.own);
            for m in taken.iter() {
                let (ni, answer) = (&mut self.ni, &mut self.answer);
                if let Some(h) = delivery::deliver(self.copy, ni, &m.header, &m.data, answer) {
                    self.own.push(&h, answer);
                }
            }
            taken.clear();
        }
        self.taken = taken;
    }

    /// Progress after a look that has found an event, if it is due.
    #[inline(always)]
    pub fn progress_if_due(&mut self) {
        self.lucky += 1;
        if self.lucky >= LUCKY || self.own.len() >= OWN {
            self.progress_due();
        }
    }

    #[cold]
    fn progress_due(&mut self) {
        self.lucky = 0;
        self.progress();
    }

    /// Whether any progress was made since the last time.
    #[inline]
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.moved)
    }

    /// What the attendant does when it wakes: connections and the device's events, and with `alone` all
    /// progress. Gives when to come back, and whether it must watch the alarm too.
    pub fn attend(&mut self, alone: bool) -> Schedule {
        if self.nal.attend(&mut self.ni) {
            self.moved = true;
            self.nal.publish(&mut self.ni);
        }
        if alone || self.nal.schedule().busy {
            while self.progress() {}
            self.nal.arm();
            while self.progress() {}
        }
        self.nal.schedule()
    }

    /// Takes the first event of the queues in index order, after one round of progress if all are empty.
    #[inline(always)]
    pub fn poll(&mut self, eqs: &[EqHandle], out: &mut impl Place) -> Result<Taken, PollError> {
        // Mostly there is none in any queue; then the look after the progress says too whether these are queues.
        let early = self.ni.has_events();
        if early {
            let taken = self.look(eqs, out)?;
            if taken != Taken::Nothing {
                self.progress_if_due();
                return Ok(taken);
            }
        }
        if self.progress() || !early {
            self.look(eqs, out)
        } else {
            Ok(Taken::Nothing)
        }
    }

    /// Takes the first event of the queues in index order.
    #[inline(always)]
    pub fn look(&mut self, eqs: &[EqHandle], out: &mut impl Place) -> Result<Taken, PollError> {
        match self.ni.eq_first(eqs) {
            Ok(Some(first)) => {
                out.put(first.event, first.lost, first.which);
                Ok(if first.more { Taken::More } else { Taken::Last })
            }
            Ok(None) => Ok(Taken::Nothing),
            Err((which, error)) => Err(PollError { error, which }),
        }
    }

    /// A put without a wait; the caller makes those ([`Library::put_awaited`]).
    #[inline(always)]
    pub fn put(&mut self, put: &mut Put<'_>) -> Result<Posted, Error> {
        let keep = self.keeps(put.to.process);
        let ready = self.ready(put)?;
        let outcome = match keep {
            false => self.nal.put(&mut self.ni, &ready, put),
            true => Outcome::Declined,
        };
        let mut posted = Posted::Begun;
        match outcome {
            Outcome::Taken => {
                // Each way is compiled for itself: a silent one makes no event.
                if put.report == Report::Events {
                    self.ni.pass_put(&ready, NiFail::OK, false);
                } else {
                    self.ni.pass_put(&ready, NiFail::OK, true);
                    posted = Posted::Taken;
                }
            }
            Outcome::Declined => {
                if !matches!(put.mode, Mode::Standard) {
                    return Ok(Posted::Declined);
                }
                let mut begun = self.ni.begin_put(ready);
                let tx = begun.as_mut().map_err(|error| *error)?;
                self.transmit(tx, keep, put.key);
            }
            Outcome::Lent(number) => {
                let op = self.ni.begin_lent(&ready)?;
                self.nal.begun(number, op);
            }
        }
        self.changed();
        Ok(posted)
    }

    /// Checks a put, which has not begun afterwards.
    #[inline(always)]
    fn ready(&mut self, put: &Put<'_>) -> Result<ReadyPut, Error> {
        self.ni.ready_put(
            put.md,
            put.region,
            put.ack,
            put.to.process,
            put.to.pt_index,
            put.to.ac_index,
            put.to.match_bits,
            put.to.remote_offset,
            put.hdr_data,
        )
    }

    /// A get without a wait; the caller makes those ([`Library::get_awaited`]).
    #[inline(always)]
    pub fn get(&mut self, get: &Get<'_>) -> Result<Posted, Error> {
        let Get {
            md, region, from, ..
        } = get;
        if get.key.is_none() && self.nal.get(&mut self.ni, *md, *region, from) {
            // No list changes by that, but the descriptor may have been for one operation.
            self.let_go();
            return Ok(Posted::Begun);
        }
        self.get_by_message(get)
    }

    #[inline(never)]
    fn get_by_message(&mut self, get: &Get<'_>) -> Result<Posted, Error> {
        let from = &get.from;
        let keep = self.keeps(from.process);
        let mut begun = self.ni.get(
            get.md,
            get.region,
            from.process,
            from.pt_index,
            from.ac_index,
            from.match_bits,
            from.remote_offset,
        );
        let tx = begun.as_mut().map_err(|error| *error)?;
        self.transmit(tx, keep, get.key);
        self.changed();
        Ok(Posted::Begun)
    }

    /// Regions of descriptors that are gone go.
    #[inline(always)]
    fn let_go(&mut self) {
        if self.ni.has_gone_mds() {
            self.kept.release(&mut self.ni);
        }
    }

    /// [`Call::MeMdPost`], with the region that the memory is part of.
    #[inline(always)]
    pub fn me_md_post(
        &mut self,
        base: MeHandle,
        spec: &MeSpec,
        position: InsertPosition,
        (desc, region): (&MdDesc, Option<&Region>),
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        let made = self
            .ni
            .me_md_post_of(base, spec, position, desc, unlink, test)?;
        if let Some(region) = region {
            self.kept.keep(&mut self.ni, made.1, region);
        }
        self.changed();
        Ok(made)
    }

    fn retire(&mut self, md: MdHandle) -> Result<(), Error> {
        self.nal.withdraw(&mut self.ni, md)
    }

    /// Executes one call; a poll does not block here. One that is refused because something is in use has made progress:
    /// a program may repeat it until it succeeds.
    pub fn execute(&mut self, call: Call) -> Result<Answer, Error> {
        self.execute_with(call, None)
    }

    /// Executes a call that describes memory in `region`; otherwise [`Library::execute`].
    pub fn execute_with(&mut self, call: Call, region: Option<&Region>) -> Result<Answer, Error> {
        let answer = self.answer(call, region);
        if is_in_use(&answer) {
            self.progress();
        }
        answer
    }

    fn answer(&mut self, call: Call, region: Option<&Region>) -> Result<Answer, Error> {
        let changed = match &call {
            Call::MdUpdate { md, .. } => Some(*md),
            _ => None,
        };
        let ni = &mut self.ni;
        let answer = match call {
            Call::MeAttach {
                pt_index,
                spec,
                position,
            } => Answer::Me(ni.me_attach(pt_index, spec, position)?),
            Call::MeAttachAny { spec } => {
                let (pt_index, me) = ni.me_attach_any(spec)?;
                Answer::PortalMe(pt_index, me)
            }
            Call::MeInsert {
                base,
                spec,
                position,
            } => Answer::Me(ni.me_insert(base, spec, position)?),
            Call::MeUnlink(me) => {
                if let Some(md) = ni.me_md(me) {
                    self.retire(md)?;
                }
                self.ni.me_unlink(me)?;
                Answer::Done
            }
            Call::MdAttach { me, desc, unlink } => Answer::Md(ni.md_attach(me, desc, unlink)?),
            Call::MdBind { desc, unlink } => Answer::Md(ni.md_bind(desc, unlink)?),
            Call::MdUnlink(md) => {
                self.retire(md)?;
                self.ni.md_unlink(md)?;
                Answer::Done
            }
            Call::MdQuery(md) => Answer::Snapshot(ni.md_query(md)?, ni.is_md_in_use(md)),
            Call::MdUpdate { md, new, test } => {
                self.retire(md)?;
                let before = self.ni.md_update(md, new, test)?;
                Answer::Snapshot(before, self.ni.is_md_in_use(md))
            }
            Call::MeMdPost {
                base,
                spec,
                position,
                desc,
                unlink,
                test,
            } => {
                let (me, md) = ni.me_md_post(base, spec, position, desc, unlink, test)?;
                Answer::MeMd(me, md)
            }
            Call::EqAlloc(count) => Answer::Eq(ni.eq_alloc(count)?),
            Call::EqFree(eq) => {
                ni.eq_free(eq)?;
                Answer::Done
            }
            Call::EqRetire(eq) => {
                ni.eq_retire(eq)?;
                Answer::Done
            }
            Call::EqPeek(eq) => {
                self.progress();
                let seen = self.ni.eq_peek(eq)?;
                Answer::Polled(seen.map(|(event, dropped)| Polled {
                    event,
                    dropped,
                    which: 0,
                }))
            }
            Call::EqPoll { eqs, .. } => {
                let mut polled = Polled::default();
                match self.poll(&eqs, &mut polled) {
                    Ok(taken) => Answer::Polled((taken != Taken::Nothing).then_some(polled)),
                    Err(refused) => Answer::BadQueue(refused.which),
                }
            }
            Call::AcEntry { index, entry } => {
                ni.ac_entry(index, entry)?;
                Answer::Done
            }
            Call::Put {
                md,
                region,
                ack,
                to,
                hdr_data,
            } => {
                let put = Put {
                    region,
                    ack,
                    hdr_data,
                    ..Put::new(md, to)
                };
                self.put(&mut { put })?;
                return Ok(Answer::Done);
            }
            Call::Get { md, region, from } => {
                self.get(&Get {
                    region,
                    ..Get::new(md, from)
                })?;
                return Ok(Answer::Done);
            }
            Call::GetPut {
                get,
                put,
                regions,
                to,
                hdr_data,
            } => {
                let Target {
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                } = to;
                let mut tx = ni.get_put(
                    get,
                    put,
                    regions,
                    process,
                    pt_index,
                    ac_index,
                    match_bits,
                    remote_offset,
                    hdr_data,
                )?;
                let keep = self.keeps(process);
                self.transmit(&mut tx, keep, None);
                Answer::Done
            }
            Call::Distance(to) => {
                Answer::Distance(self.nal.distance(to).ok_or(Error::ProcessInvalid)?)
            }
            Call::Status => Answer::Status(ni.status()),
            Call::Usage => Answer::Usage(ni.usage()),
            Call::ListLengths(pt_index) => {
                let lengths = ni.list_lengths(pt_index);
                let (now, most) = lengths.ok_or(Error::PtIndexInvalid)?;
                Answer::ListLengths(now, most)
            }
            Call::Paths => Answer::Paths(self.nal.statistics()),
            // Real computing takes real time; a simulation does not pass this call on.
            Call::Compute(_) => Answer::Done,
            Call::Close => {
                self.nal.close(&mut self.ni);
                self.ni.close();
                self.kept.clear();
                Answer::Done
            }
        };
        match (&answer, region) {
            (Answer::Md(md) | Answer::MeMd(_, md), Some(region)) => {
                self.kept.keep(&mut self.ni, *md, region);
            }
            (Answer::Snapshot(..), _) => {
                if let Some(md) = changed {
                    self.kept.change(&mut self.ni, md, region);
                }
            }
            _ => {}
        }
        self.changed();
        Ok(answer)
    }
}
