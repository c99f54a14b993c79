//! The client's barrier, split in notify and wait.
//!
//! It travels on system messages, one zero-byte message a round, so it needs neither credits nor
//! tickets and progresses in any poll. The queue holds it: a peer is at most one barrier ahead, which
//! makes at most 2 log2 n messages of it at one time.

use crate::conduit::{Conduit, Scope};
use crate::dissemination::{BarrierName, ClientBarrier};
use crate::error::BarrierError;

impl Conduit {
    /// Enters the barrier without waiting.
    #[track_caller]
    pub fn barrier_notify(&self, name: BarrierName) -> Result<(), BarrierError> {
        self.check_barrier()?;
        if self.barrier.get().own.is_some() {
            return Err(BarrierError::Notified);
        }
        self.mind_elsewhere();
        let advanced = {
            let mut core = self.core.borrow_mut();
            core.barrier.enter(name);
            core.advance_barrier()
        };
        self.check("barrier notify", advanced);
        if let Some(t) = &self.tracer {
            let (flags, id) = name.encode();
            t.barrier_notified(id.cast_signed(), i32::from(flags));
        }
        self.barrier.set(ClientBarrier {
            own: Some(name),
            ..self.barrier.get()
        });
        Ok(())
    }

    /// Waits for every rank to have entered. [`BarrierError::Mismatch`] ends the barrier too.
    #[track_caller]
    pub fn barrier_wait(&self, name: BarrierName) -> Result<(), BarrierError> {
        self.notified()?;
        let since = self.tracer.as_ref().map(|t| t.barrier_awaited());
        let all = self.wait_in("barrier wait", Scope::Full, |c| c.barrier.try_leave());
        if let (Some(t), Some(since)) = (&self.tracer, since) {
            t.waited("BARRIER_WAIT", since);
        }
        self.left(name, all)
    }

    /// Polls once; `Ok(false)` when some rank has not entered.
    #[track_caller]
    pub fn barrier_try(&self, name: BarrierName) -> Result<bool, BarrierError> {
        self.notified()?;
        self.poll();
        let done = self.barrier_look(name);
        if let Some(t) = &self.tracer {
            t.event("BARRIER_TRY", false, u64::from(!matches!(done, Ok(false))));
        }
        done
    }

    /// Looks whether the barrier is complete, without polling and without a line in a trace.
    #[doc(hidden)]
    pub fn barrier_look(&self, name: BarrierName) -> Result<bool, BarrierError> {
        self.notified()?;
        let all = self.core.borrow_mut().barrier.try_leave();
        all.map_or(Ok(false), |all| self.left(name, all).map(|()| true))
    }

    /// Notify and wait in one.
    #[track_caller]
    pub fn barrier(&self, name: BarrierName) -> Result<(), BarrierError> {
        self.barrier_notify(name)?;
        self.barrier_wait(name)
    }

    /// What the last complete barrier was called by all ranks together.
    pub fn barrier_result(&self) -> Option<BarrierName> {
        self.barrier.get().last
    }

    fn check_barrier(&self) -> Result<(), BarrierError> {
        if self.handler_depth.get() > 0 {
            return Err(BarrierError::InHandler);
        }
        if !self.is_attached() {
            return Err(BarrierError::NotAttached);
        }
        Ok(())
    }

    fn notified(&self) -> Result<(), BarrierError> {
        self.check_barrier()?;
        match self.barrier.get().own {
            Some(_) => Ok(()),
            None => Err(BarrierError::NotNotified),
        }
    }

    fn left(&self, name: BarrierName, all: BarrierName) -> Result<(), BarrierError> {
        self.barrier.set(ClientBarrier {
            own: None,
            last: Some(all),
        });
        // What the wait says must suit what all ranks notified; so it suits the own notify too.
        if all.merge(name) == BarrierName::Mismatch {
            return Err(BarrierError::Mismatch);
        }
        Ok(())
    }
}
