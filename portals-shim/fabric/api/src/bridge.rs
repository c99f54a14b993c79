//! How calls reach the library: in this process, or by a trap.

use crate::call::{Answer, Brief, Call, EqList, PollError, Polled, Taken, Target, Wait};
use crate::op::{Capabilities, Get, Mode, Posted, Put};
use crate::region::Region;
use portals_core::{
    EqHandle, Error, Event, InsertPosition, MdDesc, MdHandle, MeHandle, MeSpec, Unlink,
};

/// What a fabric's clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockKind {
    /// Simulated time; the same in every run.
    Virtual,
    /// Time of day's kind of time.
    Wall,
}

/// What a thread has to do with the interfaces of its process whose time is virtual.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It has made no call.
    Stranger,
    /// It has made calls, and is in none.
    Between,
    /// It is in a call: a handler of a signal has interrupted one, and must make no call.
    Inside,
}

/// Memory of another rank of this machine, mapped here; see `Interface::window`.
#[derive(Clone, Debug)]
pub struct Window {
    /// The mapping, which lives as long as this value.
    pub region: Region,
    /// Where the descriptor's memory begins in it, bytes.
    pub offset: usize,
    /// Bytes of the descriptor's memory.
    pub len: usize,
}

/// How calls reach the library.
pub trait Bridge: Send + Sync + std::fmt::Debug {
    /// Makes the call; `Wait` of a poll is honoured. The memory of a descriptor that it makes or changes is part of `region`,
    /// if that is given, which stays mapped until no operation can touch it by that descriptor any more.
    fn call_with(&self, call: Call, region: Option<&Region>) -> Result<Answer, Error>;

    /// Makes a call that describes no region.
    fn call(&self, call: Call) -> Result<Answer, Error> {
        self.call_with(call, None)
    }

    // The calls that programs make for each message have a way of their own, on which a library in
    // this process is not told of them by a value.

    /// [`Call::EqPoll`] of one queue without a wait.
    fn eq_get(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        self.eq_poll(&[eq], Wait::No).map_err(|e| e.error)
    }
    /// [`Call::EqPoll`]
    fn eq_poll(&self, eqs: &[EqHandle], wait: Wait) -> Result<Option<Polled>, PollError> {
        let eqs = EqList::from_slice(eqs);
        let (error, which) = match self.call(Call::EqPoll { eqs, wait }) {
            Ok(Answer::Polled(polled)) => return Ok(polled),
            Ok(Answer::BadQueue(which)) => (Error::EqInvalid, which),
            Ok(_) => (Error::Fail, 0),
            Err(error) => (error, 0),
        };
        Err(PollError { error, which })
    }
    /// See `Interface::progress`: a poll of no queue.
    fn progress(&self, wait: Wait) -> Result<(), Error> {
        let polled = self.eq_poll(&[], wait);
        polled.map(|_| ()).map_err(|refused| refused.error)
    }
    /// Polls queues ([`Bridge::eq_poll`]) and writes the event to `out`.
    #[inline]
    fn eq_take(&self, eqs: &[EqHandle], wait: Wait, out: &mut Polled) -> Result<Taken, PollError> {
        let Some(polled) = self.eq_poll(eqs, wait)? else {
            return Ok(Taken::Nothing);
        };
        *out = polled;
        Ok(Taken::More)
    }
    /// Waits for an event of the queues as long as it takes.
    fn eq_await(&self, eqs: &[EqHandle], out: &mut Polled) -> Result<Taken, PollError> {
        self.eq_take(eqs, Wait::Forever, out)
    }
    /// Waits as long as it takes ([`Bridge::eq_await`]) for what `Interface::eq_take_or` gives.
    fn eq_await_brief(&self, eqs: &[EqHandle], out: &mut Brief) -> Result<Taken, PollError> {
        self.eq_take_or(eqs, Wait::Forever, None, out)
    }
    /// See `Interface::eq_take_or`.
    fn eq_take_or(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        _other: Option<&dyn Fn() -> bool>,
        out: &mut Brief,
    ) -> Result<Taken, PollError> {
        let Some(polled) = self.eq_poll(eqs, wait)? else {
            return Ok(Taken::Nothing);
        };
        *out = Brief::new(&polled.event, polled.dropped, polled.which);
        Ok(Taken::More)
    }
    /// See `Interface::found_other`.
    fn found_other(&self) {}
    /// See `Interface::take_lost`.
    fn take_lost(&self, _: &[EqHandle]) -> Option<usize> {
        None
    }
    /// See `Interface::eq_there`.
    fn eq_there(&self, eqs: &[EqHandle], out: &mut Brief) -> Result<Taken, PollError> {
        self.eq_take_or(eqs, Wait::No, None, out)
    }
    /// See `Interface::eq_take_while`.
    fn eq_take_while(
        &self,
        _eq: EqHandle,
        _take: &mut dyn FnMut(&Event) -> bool,
    ) -> Result<usize, Error> {
        Ok(0)
    }
    /// Makes a put. A library that is told of it by a value takes those that are as the API has them.
    fn put(&self, put: Put<'_>) -> Result<Posted, Error> {
        if !matches!(put.mode, Mode::Standard) {
            return Ok(Posted::Declined);
        }
        let Put {
            md,
            region,
            ack,
            to,
            hdr_data,
            ..
        } = put;
        let call = Call::Put {
            md,
            region,
            ack,
            to,
            hdr_data,
        };
        self.call(call).map(|_| Posted::Begun)
    }

    /// Makes a get.
    fn get(&self, get: Get<'_>) -> Result<Posted, Error> {
        let Get {
            md, region, from, ..
        } = get;
        self.call(Call::Get { md, region, from })
            .map(|_| Posted::Begun)
    }

    /// [`Call::MeMdPost`], with the region that the memory is part of, as for [`Bridge::call_with`].
    fn me_md_post(
        &self,
        base: MeHandle,
        spec: &MeSpec,
        position: InsertPosition,
        (desc, region): (&MdDesc, Option<&Region>),
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        let call = Call::MeMdPost {
            base,
            spec: *spec,
            position,
            desc: desc.clone(),
            unlink,
            test,
        };
        match self.call_with(call, region)? {
            Answer::MeMd(me, md) => Ok((me, md)),
            _ => Err(Error::Fail),
        }
    }

    /// See `Interface::md_renew`.
    fn md_renew(
        &self,
        _md: MdHandle,
        _threshold: i32,
        _user_ptr: u64,
        _test: Option<EqHandle>,
    ) -> Result<(), Error> {
        Err(Error::Fail)
    }

    /// See `Interface::remote_key`.
    fn remote_key(&self, _md: MdHandle) -> Result<u32, Error> {
        Ok(0)
    }
    /// What the fabric can do.
    fn capabilities(&self) -> Capabilities {
        Capabilities::default()
    }

    /// Nanoseconds since the fabric was opened.
    fn now(&self) -> u64;
    /// What [`Bridge::now`] counts.
    fn clock(&self) -> ClockKind;
    /// What the calling thread is, where time is virtual.
    fn caller(&self) -> Caller {
        Caller::Stranger
    }
    /// The rank waits for others outside the fabric; see `Interface::outside`.
    fn leave(&self) -> Result<(), Error> {
        Ok(())
    }
    /// The end of that.
    fn rejoin(&self) -> Result<(), Error> {
        Ok(())
    }
    /// See `Interface::window`.
    fn window(&self, _to: &Target) -> Option<Window> {
        None
    }
}
