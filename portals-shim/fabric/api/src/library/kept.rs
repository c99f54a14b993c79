//! The regions that descriptors were made of: each is kept mapped until no operation can touch it by its descriptor any
//! more. No I/O.
//!
//! # Invariants
//! * The region of a descriptor is here from before the call that made the descriptor returns until [`Ni::take_gone_md`]
//!   has told of its end.
//! * A region that a descriptor had before an update is here until the descriptor has no operation under way, or is gone.

use crate::region::Region;
use portals_core::{MdHandle, Ni};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// By the descriptor's number.
    regions: Vec<Option<Region>>,
    /// Of descriptors that were changed while operations on them were under way.
    former: Vec<(MdHandle, Region)>,
}

impl Kept {
    /// Keeps the region of a new descriptor.
    #[inline(always)]
    pub(super) fn keep(&mut self, ni: &mut Ni, md: MdHandle, region: &Region) {
        // A number is free before it is given again.
        if ni.has_gone_mds() {
            self.release(ni);
        }
        let Some(number) = ni.watch_md(md) else {
            return;
        };
        match self.regions.get_mut(number as usize) {
            Some(place) => *place = Some(region.clone()),
            None => self.grow(number, region),
        }
    }

    #[cold]
    fn grow(&mut self, number: u32, region: &Region) {
        self.regions.resize(number as usize + 1, None);
        self.regions[number as usize] = Some(region.clone());
    }

    /// A descriptor has got other memory, in `region` if that is one.
    #[cold]
    pub(super) fn change(&mut self, ni: &mut Ni, md: MdHandle, region: Option<&Region>) {
        let Some(number) = ni.watch_md(md) else {
            return;
        };
        let place = self.regions.get_mut(number as usize);
        let before = place.and_then(Option::take);
        let kept = |old: &Region| {
            let mut former = self.former.iter().filter(|(of, _)| *of == md);
            region.is_some_and(|new| new.is_same(old)) || former.any(|(_, f)| f.is_same(old))
        };
        let before = before.filter(|old| !kept(old));
        self.former.extend(before.map(|old| (md, old)));
        if let Some(region) = region {
            self.keep(ni, md, region);
        }
    }

    /// Whether [`Kept::release`] may have something to do although no descriptor is gone.
    #[inline(always)]
    pub(super) const fn has_former(&self) -> bool {
        !self.former.is_empty()
    }

    /// Lets go of the regions of descriptors that are gone, and of former ones that nothing is under way on.
    #[cold]
    pub(super) fn release(&mut self, ni: &mut Ni) {
        while let Some(number) = ni.take_gone_md() {
            if let Some(place) = self.regions.get_mut(number as usize) {
                *place = None;
            }
        }
        self.former.retain(|(md, _)| ni.is_md_in_use(*md));
    }

    /// Lets go of all: the interface is closed.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
