//! The posted receive that stays in the match list after its message, for the next receive like it. No I/O.
//!
//! A program that awaits the same message again and again, in the same memory, would have an entry and a descriptor freed
//! and made for each. The second such receive in a row leaves its own ([`Kept`]), and those after it renew the descriptor.
//!
//! # Invariants
//! * Receives match in the order in which they began: the kept one is renewed only if no receive that was posted behind it
//!   waits.
//! * At most one is kept. What is kept and awaits nothing takes nothing: its descriptor has taken its one message.

use crate::layout::Pattern;
use portals_shim::{MdHandle, MeHandle};

/// What a receive awaits, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Like {
    pub(super) pattern: Pattern,
    pub(super) source: Option<u32>,
    /// Memory; address 0 if it has no bytes.
    pub(super) addr: u64,
    pub(super) len: usize,
}

impl PartialEq for Like {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.pattern.bits == other.pattern.bits
            && self.pattern.ignore == other.pattern.ignore
            && self.source == other.source
            && self.addr == other.addr
            && self.len == other.len
    }
}

/// Where in the list a receive was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// While none was kept.
    Alone(MeHandle),
    /// Behind the kept one of this number.
    Behind(MeHandle, u32),
    /// It is the kept one.
    Kept(MdHandle),
}

/// What to do about a receive that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Renew this descriptor.
    Renew(MdHandle),
    /// Unlink this descriptor, and ask again.
    LetGo(MdHandle),
    /// Post it, and keep it.
    Keep,
    /// Post it.
    Post,
}

#[derive(Debug)]
struct Entry {
    like: Like,
    md: MdHandle,
    waits: bool,
}

/// The kept receive, if there is one.
#[derive(Debug)]
pub(super) struct Kept {
    /// The fabric renews descriptors.
    able: bool,
    entry: Option<Entry>,
    /// Receives behind it that wait.
    behind: u32,
    /// The number of the one that is kept, or will be.
    number: u32,
    /// The receive that was posted last.
    last: Option<Like>,
}

impl Kept {
    pub(super) const fn new(able: bool) -> Self {
        Self {
            able,
            entry: None,
            behind: 0,
            number: 0,
            last: None,
        }
    }

    /// How a receive is posted.
    #[inline(always)]
    pub(super) fn plan(&self, like: &Like) -> Plan {
        match &self.entry {
            Some(entry) if entry.waits || self.behind > 0 => Plan::Post,
            Some(entry) if entry.like == *like => Plan::Renew(entry.md),
            Some(entry) => Plan::LetGo(entry.md),
            None if self.able && self.last.as_ref() == Some(like) => Plan::Keep,
            None => Plan::Post,
        }
    }

    /// The kept one waits again.
    #[inline(always)]
    pub(super) fn renewed(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.waits = true;
        }
    }

    /// A receive was posted by an entry, to be kept if its descriptor is given.
    #[inline]
    pub(super) fn posted(&mut self, like: Like, me: MeHandle, kept: Option<MdHandle>) -> Spot {
        self.last = Some(like);
        if let Some(md) = kept {
            self.entry = Some(Entry {
                like,
                md,
                waits: true,
            });
            return Spot::Kept(md);
        }
        if self.entry.is_none() {
            return Spot::Alone(me);
        }
        self.behind += 1;
        Spot::Behind(me, self.number)
    }

    /// A receive waits no more.
    #[inline(always)]
    pub(super) fn ended(&mut self, spot: Spot) {
        // One after the other, which takes no jump by a table.
        if let Spot::Kept(_) = spot {
            if let Some(entry) = &mut self.entry {
                entry.waits = false;
            }
        } else if let Spot::Behind(_, number) = spot
            && number == self.number
        {
            self.behind -= 1;
        }
    }

    /// The kept one is gone from the list.
    pub(super) fn gone(&mut self) {
        self.entry = None;
        self.behind = 0;
        self.number = self.number.wrapping_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(bits: u64) -> Like {
        Like {
            pattern: Pattern { bits, ignore: 1 },
            source: Some(1),
            addr: 64,
            len: 8,
        }
    }

    const ME: MeHandle = MeHandle::from_raw(4);
    const FIRST: MdHandle = MdHandle::from_raw(5);
    const OTHER: MdHandle = MdHandle::from_raw(6);

    #[test]
    fn the_second_of_a_kind_is_kept_and_renewed_by_the_third() {
        let mut kept = Kept::new(true);
        assert_eq!(kept.plan(&like(2)), Plan::Post);
        assert_eq!(kept.posted(like(2), ME, None), Spot::Alone(ME));
        kept.ended(Spot::Alone(ME));
        assert_eq!(kept.plan(&like(2)), Plan::Keep);
        let spot = kept.posted(like(2), ME, Some(FIRST));
        // Where it waits, another is posted behind it.
        assert_eq!(kept.plan(&like(2)), Plan::Post);
        kept.ended(spot);
        assert_eq!(kept.plan(&like(2)), Plan::Renew(FIRST));
        kept.renewed();
        kept.ended(spot);
        assert_eq!(kept.plan(&like(4)), Plan::LetGo(FIRST));
        kept.gone();
        assert_eq!(kept.plan(&like(4)), Plan::Post);
        assert_eq!(kept.plan(&like(2)), Plan::Keep);
        assert_eq!(Kept::new(false).plan(&like(2)), Plan::Post);
    }

    #[test]
    fn it_is_not_renewed_while_one_behind_it_waits() {
        let mut kept = Kept::new(true);
        kept.posted(like(2), ME, None);
        let first = kept.posted(like(2), ME, Some(FIRST));
        let behind = kept.posted(like(4), ME, None);
        kept.ended(first);
        assert_eq!(kept.plan(&like(2)), Plan::Post);
        kept.ended(behind);
        assert_eq!(kept.plan(&like(2)), Plan::Renew(FIRST));
        // One behind an earlier one counts for nothing.
        let behind = kept.posted(like(4), ME, None);
        kept.gone();
        let second = kept.posted(like(2), ME, Some(OTHER));
        kept.ended(behind);
        kept.ended(second);
        assert_eq!(kept.plan(&like(2)), Plan::Renew(OTHER));
    }
}
