//! Own memory that is pinned by units which stay: for peers, and for own transfers.

use super::elsewhere::Elsewhere;
use super::maps::Maps;
use super::stacks;
use super::units::{For, Pin, Pinner, Units};
use crate::rma::segments::Kept;
use ::firehose::{Limits, OwnError, Owner, Span, Unit};
use portals_shim::Interface;

/// What is pinned of the memory of this rank.
#[derive(Debug)]
pub(crate) struct Home {
    kept: Kept,
    pub(super) owner: Owner<Pin>,
    pub(super) units: Units,
    pub(super) maps: Maps,
    pub(super) limits: Limits,
    /// What other threads took away.
    went: Elsewhere,
}

impl Home {
    pub(super) fn new(
        (ni, nodes): (&Interface, u32),
        limits: Limits,
        maps: Maps,
        whom: For,
        (kept, went): (Kept, Elsewhere),
    ) -> Self {
        Self {
            kept,
            went,
            owner: Owner::new(limits, nodes),
            units: Units::new(ni, limits.shape, whom),
            maps,
            limits,
        }
    }

    pub(super) fn pins(&mut self) -> (&mut Owner<Pin>, Pinner<'_>) {
        (&mut self.owner, self.units.with(&mut self.maps))
    }

    /// Whether own transfers of `len` bytes at `addr` are to use units.
    #[inline]
    pub(crate) fn keeps(&self, addr: u64, len: u64) -> bool {
        match self.kept {
            Kept::Nothing => false,
            Kept::Range(from, size) => {
                let offset = addr.checked_sub(from);
                offset.is_some_and(|o| o.checked_add(len).is_some_and(|end| end <= size))
            }
            Kept::All => !stacks::is_near(addr) || self.keeps_near(addr),
        }
    }

    /// [`Home::keeps`] near the stack pointer. The first thread's stack stays, but is only looked at near the pointer.
    fn keeps_near(&self, addr: u64) -> bool {
        stacks::is_own(addr).map_or(self.units.whom() == For::Peers, |own| !own)
    }

    /// What pins and is idle goes, so that there is room for what is registered without a unit.
    pub(crate) fn clear(&mut self) {
        let (owner, mut pins) = self.pins();
        owner.clear(&mut pins);
    }

    /// Pins the first of `len` bytes at `addr` for an own transfer: the unit to release, and how many bytes of them it holds.
    /// `None`: there are some that cannot be pinned, or are of a stack.
    ///
    /// # Errors
    /// See [`OwnError`].
    pub(crate) fn take(&mut self, addr: u64, len: u64) -> Result<Option<(Unit, u64)>, OwnError> {
        if self.went.is_due() {
            self.forget_elsewhere();
        }
        let (unit, n) = self.limits.shape.reach(addr, len);
        let held = |pin: &Pin| {
            let reach = pin.reaches.at(addr)?;
            Some(n.min(reach.len - (addr - reach.base)))
        };
        let found = match self.owner.hit(unit) {
            Some(pin) => held(pin),
            None => {
                self.leave_own_stack();
                if self.units.stacks.touch(addr, 1) {
                    return Ok(None);
                }
                let (owner, mut pins) = self.pins();
                owner.acquire(Span::one(unit), &mut pins)?;
                owner.key(unit).and_then(held)
            }
        };
        let found = found.or_else(|| {
            if self.units.stacks.touch(addr, 1) {
                return None;
            }
            let (owner, mut pins) = self.pins();
            owner.renew(unit, &mut pins).and_then(held)
        });
        if found.is_none() {
            self.release(unit);
        }
        Ok(found.map(|n| (unit, n)))
    }

    /// [`Home::take`] of all of `len` bytes at `addr`, if they are pinned as one piece.
    #[inline]
    pub(crate) fn hit(&mut self, addr: u64, len: u64) -> Option<Unit> {
        let (unit, n) = self.limits.shape.reach(addr, len);
        if n < len || !self.keeps(addr, len) || self.went.is_due() {
            return None;
        }
        let pin = self.owner.hit(unit)?;
        let reach = pin.reaches.at(addr);
        if reach.is_some_and(|r| r.offset_of(addr, len).is_some()) {
            return Some(unit);
        }
        self.release(unit);
        None
    }

    /// A transfer needs a unit no more.
    #[inline]
    pub(crate) fn release(&mut self, unit: Unit) {
        let (owner, mut pins) = self.pins();
        owner.release(Span::one(unit), &mut pins);
    }

    /// Whether any of `len` bytes at `addr` is pinned.
    pub(crate) fn pins_any(&self, addr: u64, len: u64) -> bool {
        let (first, last) = self.limits.shape.touching(addr, len);
        let mut pinned = self.owner.pinned_within(first, last);
        pinned.any(|pin| pin.reaches.touch(addr, len))
    }

    /// What other threads took away is not for new transfers; what peers hold of it is asked back.
    #[cold]
    fn forget_elsewhere(&mut self) {
        for &(addr, len) in self.went.take().as_slice() {
            if self.pins_any(addr, len) {
                self.forget_unwaited(addr, len);
            }
        }
    }

    /// From here on nothing of the calling thread's stack is pinned but for a message; units of it are pinned up to their last use.
    #[cold]
    pub(super) fn leave_own_stack(&mut self) {
        let Some((addr, len)) = stacks::own() else {
            return;
        };
        if !self.units.stacks.holds(addr, len) {
            self.units.stacks.add(addr, len);
            self.forget_unwaited(addr, len);
        }
    }

    /// Forgets memory ([`Home::forget`]) where nobody can wait: what is still pinned is waited for by the next call that looks
    /// ([`crate::Conduit::mind_elsewhere`]).
    pub(super) fn forget_unwaited(&mut self, addr: u64, len: u64) {
        if self.forget(addr, len).is_some() {
            self.went.forget(addr, len);
        }
    }

    /// Nobody new gets `len` bytes at `addr`; the units of them that are still pinned, for which the caller waits.
    #[must_use]
    pub(super) fn forget(&mut self, addr: u64, len: u64) -> Option<(Unit, Unit)> {
        self.maps.forget();
        let (first, last) = self.limits.shape.touching(addr, len);
        let (owner, mut pins) = self.pins();
        (!owner.forget(first, last, &mut pins)).then_some((first, last))
    }
}
