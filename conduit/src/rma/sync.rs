//! Waiting for puts and gets.

use crate::conduit::{Conduit, Scope};
use crate::error::RmaError;
use crate::ops::{Handle, Implicit, Key};

impl Conduit {
    /// Waits until an operation is complete.
    #[track_caller]
    #[inline]
    pub fn wait(&self, handle: Handle) {
        let since = self.tracer.as_ref().map(|t| t.now());
        self.wait_done(handle);
        self.trace_wait("WAIT_SYNCNB", since);
    }

    #[inline]
    pub(crate) fn wait_done(&self, handle: Handle) {
        if let Handle(Some(key)) = handle {
            self.wait_until_done(key);
        }
    }

    #[inline(never)]
    fn wait_until_done(&self, key: Key) {
        self.wait_in("waiting for puts and gets", Scope::Full, |c| {
            c.ops.finish(key).then_some(())
        });
    }

    #[track_caller]
    #[inline]
    fn trace_wait(&self, name: &'static str, since: Option<u64>) {
        if let (Some(t), Some(since)) = (&self.tracer, since) {
            t.waited(name, since);
        }
    }

    #[track_caller]
    #[inline]
    fn trace_try(&self, name: &'static str, done: bool) {
        if let Some(t) = &self.tracer {
            t.event(name, false, u64::from(done));
        }
    }

    /// Waits until the implicit operations are complete that are the calling thread's now.
    #[track_caller]
    fn wait_implicit(&self, name: &'static str, puts: bool, gets: bool) {
        let since = self.tracer.as_ref().map(|t| t.now());
        let base = self.core.borrow().ops.base();
        self.wait_in("waiting for puts and gets", Scope::Full, |c| {
            c.ops.base_done(base, puts, gets).then_some(())
        });
        self.trace_wait(name, since);
    }

    /// Polls once; `Err` gives the handle back if its operation is not complete.
    #[track_caller]
    pub fn try_sync(&self, handle: Handle) -> Result<(), Handle> {
        if handle != Handle::DONE {
            self.poll();
        }
        let done = self.check_sync(handle);
        self.trace_try("TRY_SYNCNB", done.is_ok());
        done
    }

    /// Waits until all implicit puts are complete.
    #[track_caller]
    pub fn wait_nbi_puts(&self) {
        self.wait_implicit("WAIT_SYNCNBI_PUTS", true, false);
    }

    /// Waits until all implicit gets are complete.
    #[track_caller]
    pub fn wait_nbi_gets(&self) {
        self.wait_implicit("WAIT_SYNCNBI_GETS", false, true);
    }

    /// Waits until all implicit puts and gets are complete.
    #[track_caller]
    pub fn wait_nbi_all(&self) {
        self.wait_implicit("WAIT_SYNCNBI_ALL", true, true);
    }

    /// Polls once; whether the implicit puts, gets, or both that are asked about are complete.
    #[track_caller]
    pub fn try_nbi(&self, puts: bool, gets: bool) -> bool {
        self.poll();
        let done = self.core.borrow().ops.implicit_done(puts, gets);
        let name = match (puts, gets) {
            (true, true) => "TRY_SYNCNBI_ALL",
            (true, false) => "TRY_SYNCNBI_PUTS",
            _ => "TRY_SYNCNBI_GETS",
        };
        self.trace_try(name, done);
        done
    }

    /// Later implicit operations belong to an access region.
    pub fn begin_nbi_region(&self) -> Result<(), RmaError> {
        let mut core = self.core.borrow_mut();
        if core.ops.in_region() {
            return Err(RmaError::AccessRegion);
        }
        core.ops.begin_region().ok_or(RmaError::TooManyOperations)
    }

    /// Ends the access region; the handle stands for all its operations.
    pub fn end_nbi_region(&self) -> Result<Handle, RmaError> {
        let key = self.core.borrow_mut().ops.end_region();
        key.map(|k| Handle(Some(k))).ok_or(RmaError::AccessRegion)
    }

    /// Whether an access region is open, whose operations no wait for implicit ones waits for.
    #[inline]
    pub fn in_nbi_region(&self) -> bool {
        self.core.borrow().ops.in_region()
    }

    /// Whether nobody has synchronised with the operation yet. A number used twice, or made up, names none
    /// ([`Handle::from_raw`]).
    pub fn is_open(&self, handle: &Handle) -> bool {
        let ops = &self.core.borrow().ops;
        handle.0.is_some_and(|key| ops.is_open(key))
    }

    /// Looks whether an operation is complete, without polling; `Err` gives the handle back.
    #[inline]
    pub fn check_sync(&self, handle: Handle) -> Result<(), Handle> {
        let Handle(Some(key)) = handle else {
            return Ok(());
        };
        if self.core.borrow_mut().ops.finish(key) {
            return Ok(());
        }
        Err(Handle(Some(key)))
    }

    /// Whether the implicit operations that are asked about are complete, without polling.
    pub fn check_nbi(&self, puts: bool, gets: bool) -> bool {
        self.core.borrow().ops.implicit_done(puts, gets)
    }

    /// Implicit operations of one more thread of the client; `None` when there is no slot for it.
    pub fn new_implicit(&self) -> Option<Implicit> {
        self.core.borrow_mut().ops.new_implicit()
    }

    /// Implicit operations count on `other` from here on, which becomes what they counted on.
    pub fn swap_implicit(&self, other: &mut Implicit) {
        self.core.borrow_mut().ops.swap_implicit(other);
    }

    /// The access region that is open, if one is, has no handle: its thread has ended.
    pub fn abandon_nbi_region(&self) {
        self.core.borrow_mut().ops.abandon_region();
    }
}
