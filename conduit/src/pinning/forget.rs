//! Memory that is given back: what of it is pinned goes before it does.

use crate::conduit::Conduit;
use crate::core::Core;
use ::firehose::Unit;

impl Core {
    /// Nobody new gets `len` bytes at `addr`; the units of them that are still pinned.
    fn forget(&mut self, addr: u64, len: u64) -> Option<(Unit, Unit)> {
        self.pinning.home.as_mut()?.forget(addr, len)
    }
}

impl Conduit {
    /// Sees to it that what other threads took away is pinned by nobody, if there is such memory. Not in handlers, which may
    /// not wait.
    #[inline(always)]
    pub(crate) fn mind_elsewhere(&self) {
        if self.elsewhere.is_due() {
            self.forget_elsewhere();
        }
    }

    #[cold]
    fn forget_elsewhere(&self) {
        if self.handler_depth.get() > 0 {
            return;
        }
        for &(addr, len) in self.elsewhere.take().as_slice() {
            self.renew_mapped(addr, len);
        }
    }

    /// Gives back what this rank holds of the memory of `node` and does not use: its owner may unpin it, and a later put or
    /// get there asks for it anew. Nothing to do in a job with segments, nor in a handler.
    pub fn let_go(&self, node: u32) {
        if self.handler_depth.get() > 0 {
            return;
        }
        self.let_go_later(node);
        self.flush_pinning();
    }

    /// Gives back what is held of a peer's memory ([`Conduit::let_go`]); the next wait or poll sends it.
    pub(crate) fn let_go_later(&self, node: u32) {
        if let Some(firehoses) = self.core.borrow_mut().pinning.firehoses.as_mut() {
            firehoses.holder.let_go(node);
        }
    }

    /// Tells the conduit that `len` bytes at `addr` are about to be unmapped, or remapped. On return nothing of them is
    /// pinned, and no peer reaches them. Nothing to do in a job whose segments are pinned as a whole, unless the program has
    /// promised it ([`Conduit::promise_to_forget`]).
    ///
    /// In a handler, which may not wait, it ends the job if it has to.
    pub fn forget(&self, addr: u64, len: u64) {
        let left = self.core.borrow_mut().forget(addr, len);
        if let Some((first, last)) = left {
            self.wait_until_gone(first, last);
        }
    }

    /// Waits until nothing of these units is pinned.
    fn wait_until_gone(&self, first: Unit, last: Unit) {
        if let Some(home) = &mut self.core.borrow_mut().pinning.home {
            home.owner.bar(first, last);
        }
        self.wait_flushing(|c| {
            let owner = &mut c.pinning.home.as_mut()?.owner;
            let gone = owner.is_gone(first, last);
            gone.then(|| owner.unbar(first, last))
        });
    }

    /// The system has given `len` bytes at `addr` anew. What is pinned of them is what was there before and went unsaid: it is
    /// forgotten; what a handler, which cannot wait, leaves pinned of it is gone before the next call that sends.
    pub fn renew_mapped(&self, addr: u64, len: u64) {
        let stale = self.core.try_borrow().is_ok_and(|core| {
            let home = core.pinning.home.as_ref();
            home.is_some_and(|h| h.pins_any(addr, len))
        });
        if stale {
            tracing::debug!(addr, len, "memory went unsaid while it was pinned");
            if !self.forget_if_possible(&[(addr, len)]) {
                self.elsewhere.forget(addr, len);
            }
        }
    }

    /// Whether any of `len` bytes at `addr` is pinned, for a peer or for transfers of this rank.
    pub fn is_pinned(&self, addr: u64, len: u64) -> bool {
        self.mind_elsewhere();
        let core = self.core.borrow();
        let home = core.pinning.home.as_ref();
        home.is_some_and(|h| h.pins_any(addr, len))
    }

    /// Makes a call that takes ranges away, addresses and lengths, when nothing of them is pinned any more; from anywhere. `None`,
    /// and the call is not made, in a handler while something of them is still pinned. Memory that the library itself gives
    /// back within a call is not looked at, nor any memory once this rank leaves the job.
    pub fn take_away<R>(&self, ranges: &[(u64, u64)], call: impl FnOnce() -> R) -> Option<R> {
        self.forget_if_possible(ranges).then(call)
    }

    /// Forgets several ranges ([`Conduit::forget`]); `false` where it may not wait.
    fn forget_if_possible(&self, ranges: &[(u64, u64)]) -> bool {
        if self.ended.get() {
            return true;
        }
        loop {
            let mut waited = false;
            for (addr, len) in ranges.iter().filter(|(_, len)| *len > 0) {
                let left = match self.core.try_borrow_mut() {
                    Ok(mut core) => core.forget(*addr, *len),
                    Err(_) => return true,
                };
                match left {
                    None => {}
                    Some(_) if self.handler_depth.get() > 0 => return false,
                    Some((first, last)) => {
                        self.wait_until_gone(first, last);
                        waited = true;
                    }
                }
            }
            // What went before a wait may be back.
            if !waited {
                return true;
            }
        }
    }
}
