//! One interface and its fabric: executes the API's calls.

mod awaited;
mod kept;
#[cfg(test)]
mod tests;

use crate::call::PollError;
use crate::call::{Answer, Call, Place, Polled, Taken, Target};
use crate::delivery::{self, Messages};
use crate::nal::Nal;
use crate::region::{LocalCopy, Region, Trust};
use kept::Kept;
use portals_core::{
    AckRequest, EqHandle, Error, InsertPosition, MdDesc, MdHandle, MeHandle, MeSpec, Ni, NiFail,
    ProcessId, ReadyPut, Transmit, Unlink,
};
use std::time::Instant;

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
        target == self.ni.config().id && !self.nal.carries_own()
    }

    /// The message is large, and stays where it was made.
    #[inline(always)]
    fn transmit(&mut self, tx: &mut Transmit, keep: bool) {
        if keep {
            self.keep(tx);
        } else {
            self.nal.send(&mut self.ni, tx);
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
        if !self.nal.progress(&mut self.ni) && self.own.is_empty() {
            return false;
        }
        self.progressed();
        true
    }

    /// Looks at where an answer is likely to be, between two calls of [`Library::progress`].
    #[inline]
    pub fn glance(&mut self) -> bool {
        let any = self.nal.glance(&mut self.ni);
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
        self.nal.lists_changed(&mut self.ni);
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
    pub fn attend(&mut self, alone: bool) -> (Option<Instant>, bool) {
        if self.nal.attend(&mut self.ni) {
            self.moved = true;
            self.nal.lists_changed(&mut self.ni);
        }
        let mut busy = self.nal.is_busy();
        if alone || busy {
            while self.progress() {}
            self.nal.arm();
            while self.progress() {}
            busy = self.nal.is_busy();
        }
        (self.nal.due(), busy)
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

    /// Makes a put ([`Library::put_here`]) by a call.
    #[inline(never)]
    pub fn put(
        &mut self,
        md: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        to: &Target,
        hdr_data: u64,
        silent: bool,
    ) -> Result<bool, Error> {
        self.put_here(md, region, ack, to, hdr_data, silent)
    }

    /// A put; `true` if its data was taken at once and, as `silent` asks for, no SEND event says so.
    #[inline(always)]
    pub fn put_here(
        &mut self,
        md: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        to: &Target,
        hdr_data: u64,
        silent: bool,
    ) -> Result<bool, Error> {
        let keep = self.keeps(to.process);
        let ready = self.ni.ready_put(
            md,
            region,
            ack,
            to.process,
            to.pt_index,
            to.ac_index,
            to.match_bits,
            to.remote_offset,
            hdr_data,
        )?;
        if !keep && self.ni.has_room() {
            let lent = self.nal.lend_now(&ready.header, &ready.payload, ready.md);
            if let Some(id) = lent {
                let op = self.ni.begin_lent(&ready)?;
                self.nal.begun(id, op);
                self.changed();
                return Ok(false);
            }
        }
        let taken = !keep && self.nal.send_now(&ready.header, &ready.payload);
        if taken {
            self.ni.pass_put(&ready, NiFail::OK, silent);
        } else {
            let mut begun = self.ni.begin_put(ready);
            let tx = begun.as_mut().map_err(|error| *error)?;
            self.transmit(tx, keep);
        }
        self.changed();
        Ok(taken && silent)
    }

    /// A put whose bytes `fill` writes; `false`, and nothing has happened, where the fabric does not take it so now.
    #[inline(always)]
    pub fn put_made(
        &mut self,
        md: MdHandle,
        region: (u64, u64),
        to: &Target,
        hdr_data: u64,
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<bool, Error> {
        if self.keeps(to.process) {
            return Ok(false);
        }
        let ready = self.ni.ready_made(
            md,
            region,
            to.process,
            to.pt_index,
            to.ac_index,
            to.match_bits,
            to.remote_offset,
            hdr_data,
        )?;
        if !self.nal.send_made(&ready.header, fill) {
            return Ok(false);
        }
        self.ni.pass_put(&ready, NiFail::OK, true);
        self.changed();
        Ok(true)
    }

    /// A put with an ack, if the fabric takes its data at once; `false`, and nothing has happened, if not.
    #[inline]
    pub fn put_now(
        &mut self,
        md: MdHandle,
        region: (u64, u64),
        to: &Target,
    ) -> Result<bool, Error> {
        let ready = self.ready_region(md, region, AckRequest::Ack, to, 0)?;
        if self.keeps(to.process) || !self.nal.send_now(&ready.header, &ready.payload) {
            return Ok(false);
        }
        self.ni.pass_put(&ready, NiFail::OK, true);
        self.changed();
        Ok(true)
    }

    /// A put of a region, which has not begun.
    #[inline]
    fn ready_region(
        &mut self,
        md: MdHandle,
        region: (u64, u64),
        ack: AckRequest,
        to: &Target,
        hdr_data: u64,
    ) -> Result<ReadyPut, Error> {
        self.ni.ready_put(
            md,
            Some(region),
            ack,
            to.process,
            to.pt_index,
            to.ac_index,
            to.match_bits,
            to.remote_offset,
            hdr_data,
        )
    }

    /// A put whose data is in place before anything that is sent to the target from here on; `false`, and nothing has
    /// happened, where the fabric cannot promise that.
    pub fn put_ahead(
        &mut self,
        md: MdHandle,
        region: (u64, u64),
        to: &Target,
        hdr_data: u64,
    ) -> Result<bool, Error> {
        let ready = self.ready_region(md, region, AckRequest::NoAck, to, hdr_data)?;
        if self.keeps(to.process) || !self.nal.writes_ahead(&ready.header, &ready.payload) {
            return Ok(false);
        }
        let mut tx = self.ni.begin_put(ready)?;
        self.nal.write_ahead(&mut self.ni, &mut tx);
        self.changed();
        Ok(true)
    }

    #[inline(always)]
    /// See `Interface::get_region`.
    pub fn get(
        &mut self,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> Result<(), Error> {
        if self.nal.fetch_now(&mut self.ni, md, region, from) {
            // No list changes by that, but the descriptor may have been for one operation.
            self.let_go();
            return Ok(());
        }
        self.get_by_message(md, region, from)
    }

    #[inline(never)]
    fn get_by_message(
        &mut self,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> Result<(), Error> {
        let keep = self.keeps(from.process);
        let mut begun = self.ni.get(
            md,
            region,
            from.process,
            from.pt_index,
            from.ac_index,
            from.match_bits,
            from.remote_offset,
        );
        let tx = begun.as_mut().map_err(|error| *error)?;
        self.transmit(tx, keep);
        self.changed();
        Ok(())
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
        self.nal.retire(&mut self.ni, md)
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
                self.put(md, region, ack, &to, hdr_data, false)?;
                return Ok(Answer::Done);
            }
            Call::Get { md, region, from } => {
                self.get(md, region, &from)?;
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
                self.transmit(&mut tx, keep);
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
            Call::Paths => Answer::Paths(self.nal.paths()),
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
