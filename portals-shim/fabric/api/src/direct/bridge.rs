//! The calls of an interface whose library is in the caller's process.

use super::{Direct, Shared, nothing_else};
use crate::bridge::{Bridge, ClockKind, Window};
use crate::call::{Answer, Brief, Call, PollError, Polled, Taken, Target, Wait};
use crate::library::{Library, is_in_use};
use crate::nal::Nal;
use crate::op::{Capabilities, Get, Posted, Put, Report};
use crate::region::Region;
use portals_core::{
    EqHandle, Error, Event, InsertPosition, MdDesc, MdHandle, MeHandle, MeSpec, Unlink,
};
use std::sync::atomic::Ordering;

impl<N: Nal> Direct<N> {
    /// What a call is made on; the progress thread sees that there was one.
    #[inline]
    fn entered(&self) -> &Shared<N> {
        let shared = &*self.shared;
        if shared.attendance().is_some_and(|a| a.thread) {
            shared.calls.fetch_add(1, Ordering::Relaxed);
        }
        shared
    }

    /// Starts an operation, and wakes threads that wait for what it has done.
    #[inline(always)]
    fn start<R>(&self, operation: impl FnOnce(&mut Library<N>) -> R) -> R {
        let shared = self.entered();
        let result = operation(&mut shared.lock());
        shared.wake();
        result
    }

    /// Apart, so that operations without a wait need none of its places.
    #[inline(never)]
    fn put_awaited(&self, put: &mut Put<'_>) -> Result<Posted, Error> {
        self.start_awaited(|library, looks| library.put_awaited(put, looks))
    }

    /// See [`Direct::put_awaited`].
    #[inline(never)]
    fn get_awaited(&self, get: &Get<'_>) -> Result<Posted, Error> {
        self.start_awaited(|library, looks| library.get_awaited(get, looks))
    }

    /// Starts an operation whose caller waits for it, by no more looks than a poll takes that waits.
    #[inline(always)]
    fn start_awaited<R>(&self, operation: impl FnOnce(&mut Library<N>, u32) -> R) -> R {
        let looks = self.shared.looks_of_wait();
        self.shared.fruitless.store(0, Ordering::Relaxed);
        self.start(|library| operation(library, looks))
    }
}

impl<N: Nal> Bridge for Direct<N> {
    fn eq_get(&self, eq: EqHandle) -> Result<Option<Polled>, Error> {
        self.entered().look(eq)
    }

    fn eq_poll(&self, eqs: &[EqHandle], wait: Wait) -> Result<Option<Polled>, PollError> {
        let mut polled = Polled::default();
        let found = self.entered().wait(eqs, wait, &mut polled)?;
        Ok(found.then_some(polled))
    }

    fn eq_take(&self, eqs: &[EqHandle], wait: Wait, out: &mut Polled) -> Result<Taken, PollError> {
        let shared = self.entered();
        if wait != Wait::No {
            return shared.wait_long(eqs, wait, &nothing_else, out);
        }
        shared.take(eqs, out, Library::poll)
    }

    fn eq_await(&self, eqs: &[EqHandle], out: &mut Polled) -> Result<Taken, PollError> {
        self.entered()
            .wait_here(eqs, Wait::Forever, &nothing_else, out)
    }

    fn eq_await_brief(&self, eqs: &[EqHandle], out: &mut Brief) -> Result<Taken, PollError> {
        self.entered()
            .wait_here(eqs, Wait::Forever, &nothing_else, out)
    }

    fn eq_take_or(
        &self,
        eqs: &[EqHandle],
        wait: Wait,
        other: Option<&dyn Fn() -> bool>,
        out: &mut Brief,
    ) -> Result<Taken, PollError> {
        let shared = self.entered();
        match other {
            _ if wait == Wait::No => shared.take(eqs, out, Library::poll),
            Some(other) => shared.wait_long(eqs, wait, other, out),
            None => shared.wait_long(eqs, wait, &nothing_else, out),
        }
    }

    fn progress(&self, wait: Wait) -> Result<(), Error> {
        // A queue that is gone would end the wait, but there is none.
        let closed = || self.shared.ended.load(Ordering::SeqCst);
        self.eq_take_or(&[], wait, Some(&closed), &mut Brief::default())
            .map_err(|refused| refused.error)?;
        if closed() {
            return Err(Error::NiInvalid);
        }
        Ok(())
    }

    fn found_other(&self) {
        self.shared.fruitless.store(0, Ordering::Relaxed);
    }

    fn take_lost(&self, eqs: &[EqHandle]) -> Option<usize> {
        self.shared.lock().ni.take_lost(eqs)
    }

    fn eq_there(&self, eqs: &[EqHandle], out: &mut Brief) -> Result<Taken, PollError> {
        self.entered().take(eqs, out, Library::look)
    }

    fn eq_take_while(
        &self,
        eq: EqHandle,
        take: &mut dyn FnMut(&Event) -> bool,
    ) -> Result<usize, Error> {
        self.entered().lock().ni.eq_take_while(eq, take)
    }

    fn put(&self, mut put: Put<'_>) -> Result<Posted, Error> {
        match put.report {
            Report::Wait => self.put_awaited(&mut put),
            Report::Events | Report::Silent => self.start(|library| library.put(&mut put)),
        }
    }

    fn get(&self, get: Get<'_>) -> Result<Posted, Error> {
        match get.report {
            Report::Wait => self.get_awaited(&get),
            Report::Events | Report::Silent => self.start(|library| library.get(&get)),
        }
    }

    fn me_md_post(
        &self,
        base: MeHandle,
        spec: &MeSpec,
        position: InsertPosition,
        memory: (&MdDesc, Option<&Region>),
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        self.start(|library| library.me_md_post(base, spec, position, memory, unlink, test))
    }

    fn md_renew(
        &self,
        md: MdHandle,
        threshold: i32,
        user_ptr: u64,
        test: Option<EqHandle>,
    ) -> Result<(), Error> {
        // No list changes by that.
        self.start(|library| library.ni.md_renew(md, threshold, user_ptr, test))
    }

    fn call_with(&self, call: Call, region: Option<&Region>) -> Result<Answer, Error> {
        let shared = self.entered();
        if let Call::EqPoll { eqs, wait } = call {
            let mut polled = Polled::default();
            return match shared.wait(&eqs, wait, &mut polled) {
                Ok(found) => Ok(Answer::Polled(found.then_some(polled))),
                Err(refused) => Ok(Answer::BadQueue(refused.which)),
            };
        }
        let last = matches!(call, Call::Close);
        let answer = shared.lock().execute_with(call, region);
        if last {
            // Threads that wait for no queue are woken to see it.
            shared.ended.store(true, Ordering::SeqCst);
        }
        shared.wake();
        if is_in_use(&answer) {
            // What the program waits for may be the attendant's or another process's to do.
            shared.rest(1);
        }
        if last {
            self.dismiss();
        }
        answer
    }

    fn remote_key(&self, md: MdHandle) -> Result<u32, Error> {
        let library = &mut *self.entered().lock();
        library.nal.remote_key(&library.ni, md)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            renews: true,
            ..self.shared.lock().nal.capabilities()
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.shared.opened.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn clock(&self) -> ClockKind {
        ClockKind::Wall
    }

    fn window(&self, to: &Target) -> Option<Window> {
        let (region, offset, len) = self.shared.lock().nal.window(to)?;
        Some(Window {
            region,
            offset: usize::try_from(offset).ok()?,
            len: usize::try_from(len).ok()?,
        })
    }

    fn leave(&self) -> Result<(), Error> {
        self.shared.outside.fetch_add(1, Ordering::SeqCst);
        if let Some(attendance) = self.shared.attendance() {
            attendance.bell.ring();
        }
        Ok(())
    }

    fn rejoin(&self) -> Result<(), Error> {
        self.shared.outside.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}
