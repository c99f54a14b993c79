//! Event queues.

use super::Interface;
use fabric_api::call::{Answer, Brief, Call, PollError, Polled, Taken, Wait};
use portals_core::{EqHandle, Error, Event};

impl Interface {
    /// `PtlEQAlloc`
    pub fn eq_alloc(&self, count: u64) -> Result<EqHandle, Error> {
        match self.call(Call::EqAlloc(count))? {
            Answer::Eq(eq) => Ok(eq),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlEQFree`
    pub fn eq_free(&self, eq: EqHandle) -> Result<(), Error> {
        self.done(Call::EqFree(eq))
    }

    /// Frees a queue, or ends its use where it cannot be freed yet ([`Interface::eq_free`]): then threads that wait on it and
    /// calls that name it are refused too, and calling this again frees it when no descriptor names it any more.
    pub fn eq_retire(&self, eq: EqHandle) -> Result<(), Error> {
        self.done(Call::EqRetire(eq))
    }

    /// `PtlEQGet`: the oldest event, or `None`.
    #[inline]
    pub fn eq_get(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        self.open()?.eq_get(eq)
    }

    /// `PtlEQPeek`: as [`Interface::eq_get`], but the event stays.
    pub fn eq_peek(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        match self.call(Call::EqPeek(eq))? {
            Answer::Polled(p) => Ok(p),
            _ => Err(Error::Fail),
        }
    }

    /// `PtlEQWait`
    #[inline]
    pub fn eq_wait(&self, eq: EqHandle) -> Result<Polled, Error> {
        // Taken where it stays: the event is large.
        let mut polled = Polled::default();
        match self.open()?.eq_take(&[eq], Wait::Forever, &mut polled) {
            Ok(Taken::Nothing) => Err(Error::Fail),
            Ok(_) => Ok(polled),
            Err(refused) => Err(refused.error),
        }
    }

    /// `PtlEQPoll`: the first event of the queues in index order. `None` when the wait ended
    /// without one. An empty list is refused.
    pub fn eq_poll(&self, eqs: &[EqHandle], wait: Wait) -> Result<Option<Polled>, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        self.open().map_err(refused)?.eq_poll(eqs, wait)
    }

    /// `PtlProgress`: serves what others ask of this interface for so long, and takes no event. It needs no queue, so it
    /// works where as many as the limits allow are in use.
    ///
    /// # Errors
    /// [`Error::NiInvalid`] when the interface is closed, before or meanwhile; the fabric's failure.
    pub fn progress(&self, wait: Wait) -> Result<(), Error> {
        self.open()?.progress(wait)
    }

    /// Polls for programs that do so for each message: the event is written to `out`, which is left
    /// as it is when there is none. [`Taken::More`] may be said where no other event is there on a fabric whose library
    /// is not in this process.
    #[inline]
    pub fn eq_take(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        out: &mut Polled,
    ) -> Result<Taken, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        let bridge = self.open().map_err(refused)?;
        // Known where the caller was compiled.
        match wait {
            Wait::Forever => bridge.eq_await(eqs, out),
            _ => bridge.eq_take(eqs, wait, out),
        }
    }

    /// Takes the parts of an event that most programs read; the wait ends too when `other` says
    /// that there is other work, such as a frame ([`Interface::near`]): it is asked between looks, and after whoever makes
    /// such work has been told to wake this process. It must not call the interface, and is not asked on fabrics without
    /// frames.
    #[inline]
    pub fn eq_take_or(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        other: Option<&dyn Fn() -> bool>,
        out: &mut Brief,
    ) -> Result<Taken, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        let bridge = self.open().map_err(refused)?;
        // Known where most callers were compiled.
        match (wait, other) {
            (Wait::Forever, None) => bridge.eq_await_brief(eqs, out),
            _ => bridge.eq_take_or(eqs, wait, other, out),
        }
    }

    /// The first of these queues that is empty while the fabric has given a process up, and no event has said so. A wait for
    /// ever ends by this with [`Error::Fail`], as what it waits for may be lost; each loss is told once.
    pub fn take_lost(&self, eqs: &[EqHandle]) -> Option<usize> {
        self.open().ok()?.take_lost(eqs)
    }

    /// The program has found other work since it last polled: the polls that follow do not count as fruitless, after
    /// many of which a poll offers its core to others first.
    #[inline]
    pub fn found_other(&self) {
        self.inner.bridge.found_other();
    }

    /// Takes an event that is in a queue, after the first one of a poll ([`Interface::eq_take_or`]): the fabric need
    /// not be asked again whether more has arrived.
    #[inline]
    pub fn eq_there(&self, eqs: &[EqHandle], out: &mut Brief) -> Result<Taken, PollError> {
        let refused = |error| PollError { error, which: 0 };
        if eqs.is_empty() {
            return Err(refused(Error::EqInvalid));
        }
        self.open().map_err(refused)?.eq_there(eqs, out)
    }

    /// Takes events of one queue that are there, from the oldest on, as long as `take` says so of each; how many. `take`
    /// sees them where they lie, and must not call the interface. What it refuses stays in the queue, as do events after a
    /// loss, and all of them on a fabric whose library is not in this process: this shortens what a program does with many
    /// events of one kind, and replaces no poll.
    #[inline]
    pub fn eq_take_while(
        &self,
        eq: EqHandle,
        take: &mut dyn FnMut(&Event) -> bool,
    ) -> Result<usize, Error> {
        self.open()?.eq_take_while(eq, take)
    }
}
