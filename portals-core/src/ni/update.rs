//! Conditional changes: `PtlMDUpdate`, `PtlMEMDPost` (rules 46-50).

use super::{MeSpec, Ni};
use crate::advert::may_be_advertised;
use crate::error::Error;
use crate::event::MdSnapshot;
use crate::handle::{EqHandle, MdHandle, MeHandle};
use crate::md::MdDesc;
use crate::memory::Segment;
use crate::types::{InsertPosition, THRESHOLD_INFINITE, Unlink};

impl Ni {
    /// Rule 47: no unread event and none promised.
    #[inline]
    fn quiet(&self, test: Option<EqHandle>) -> Result<bool, Error> {
        Ok(match test {
            Some(eq) => {
                let eq = self.eq(eq)?;
                eq.is_empty() && eq.promised == 0
            }
            None => true,
        })
    }

    /// The MD's present values; the threshold is what remains.
    pub fn md_query(&self, md: MdHandle) -> Result<MdSnapshot, Error> {
        self.md(md).map(|md| md.shown).ok_or(Error::MdInvalid)
    }

    /// Of the pieces of an MD's memory the first that holds all of `part`, and how many there are.
    pub fn md_piece(&self, md: MdHandle, part: Segment) -> Option<(Segment, usize)> {
        let end = part.addr.checked_add(part.len)?;
        let holds = |s: &Segment| s.addr <= part.addr && end <= s.addr.saturating_add(s.len);
        let whole = self.md(md)?.region();
        if let Some(whole) = whole {
            return holds(&whole).then_some((whole, 1));
        }
        let pieces = self.mds.pieces(md.key(self.config.interface)?)?;
        let piece = pieces.iter().copied().find(holds)?;
        Some((piece, pieces.len()))
    }

    /// Whether operations on an MD are under way.
    pub fn is_md_in_use(&self, md: MdHandle) -> bool {
        self.md(md).is_some_and(|md| md.pending > 0)
    }

    /// `PtlMDUpdate` with new values: atomic with respect to delivery, and refused with
    /// [`Error::MdNoUpdate`] unless `test` is `None` or quiet. With a test queue an operation under
    /// way on the MD refuses too. Returns the old values.
    pub fn md_update(
        &mut self,
        handle: MdHandle,
        new: MdDesc,
        test: Option<EqHandle>,
    ) -> Result<MdSnapshot, Error> {
        let old = self.md_query(handle)?;
        let length = self.check_desc(&new)?;
        let quiet = self.quiet(test)?;
        let pending = self.md(handle).map_or(0, |md| md.pending);
        if !quiet || (test.is_some() && pending > 0) {
            return Err(Error::MdNoUpdate);
        }
        let portal = self.md_portal(handle);
        if let Some(pt_index) = portal {
            let advertisable = self.md(handle).is_some_and(may_be_advertised);
            self.leaves(pt_index, advertisable);
        }
        self.mds.update(handle.0.slot(), &new, length);
        if let Some(eq) = new.eq {
            self.eq_mut(eq)?.users += 1;
        }
        // The queue may have been retired.
        if let Some(eq) = old.eq.and_then(|eq| self.eqs.at_mut(eq.0.slot())) {
            eq.users = eq.users.saturating_sub(1);
        }
        if let Some(pt_index) = portal {
            self.joins(pt_index, handle);
            self.touch(pt_index);
        }
        Ok(old)
    }

    /// Updates an MD with a threshold, which keeps the values that it has but for these: what a program does that
    /// awaits the same message again. Peers are shown no such MD, so nothing changes for them.
    ///
    /// # Errors
    /// Those of [`Ni::md_update`]; [`Error::MdIllegal`] for an MD without a threshold, or if it is to have none.
    #[inline(always)]
    pub fn md_renew(
        &mut self,
        handle: MdHandle,
        threshold: i32,
        user_ptr: u64,
        test: Option<EqHandle>,
    ) -> Result<(), Error> {
        let quiet = self.quiet(test);
        let md = self.md_mut(handle).ok_or(Error::MdInvalid)?;
        if threshold == THRESHOLD_INFINITE || md.shown.threshold == THRESHOLD_INFINITE {
            return Err(Error::MdIllegal);
        }
        if !quiet? || (test.is_some() && md.pending > 0) {
            return Err(Error::MdNoUpdate);
        }
        md.renew(threshold, user_ptr);
        Ok(())
    }

    /// `PtlMEMDPost` in Cray's meaning: insert, attach and activate in one step, or, when the test
    /// queue is not quiet, nothing and [`Error::MdNoUpdate`].
    pub fn me_md_post(
        &mut self,
        base: MeHandle,
        spec: MeSpec,
        position: InsertPosition,
        desc: MdDesc,
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        self.me_md_post_of(base, &spec, position, &desc, unlink, test)
    }

    /// Posts an entry with an MD ([`Ni::me_md_post`]); what is large is left where the caller has it. One function with all that it
    /// needs but what is rare: programs post an entry for each message.
    #[inline(always)]
    pub fn me_md_post_of(
        &mut self,
        base: MeHandle,
        spec: &MeSpec,
        position: InsertPosition,
        desc: &MdDesc,
        unlink: Unlink,
        test: Option<EqHandle>,
    ) -> Result<(MeHandle, MdHandle), Error> {
        // Handles first: who is refused for want of quiet looks through the queue again, here for nothing.
        let (base, pt_index) = self.base(base)?;
        let length = self.check_desc(desc)?;
        if !self.quiet(test)? {
            return Err(Error::MdNoUpdate);
        }
        self.check_list(pt_index)?;
        let md = self.add_md(desc, length, unlink, None)?;
        let posted = match position {
            InsertPosition::Before => self.matching.post_before(base, spec, md),
            InsertPosition::After => self.post_after(base, spec, md),
        };
        let Some(me) = posted else {
            return Err(self.take_back(md));
        };
        self.count_me(pt_index);
        if let Some(rest) = self.mds.rest_at_mut(md.0.slot()) {
            rest.me = Some(me);
        }
        self.joins(pt_index, md);
        self.touch(pt_index);
        Ok((me, md))
    }

    /// The MD of an entry that was refused goes again.
    #[cold]
    fn take_back(&mut self, md: MdHandle) -> Error {
        self.release_md(md);
        Error::NoSpace
    }

    /// Posts an entry behind the base; see [`crate::matching::MatchTable::post_before`].
    #[inline(never)]
    fn post_after(&mut self, base: u32, spec: &MeSpec, md: MdHandle) -> Option<MeHandle> {
        let pt_index = self.matching.at(base)?.pt_index;
        let mut entry = self.new_me(pt_index, spec).ok()?;
        entry.md = Some(md);
        self.matching.insert_after(base, entry)
    }
}
