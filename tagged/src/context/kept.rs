//! The posted receive that stays in the match list after its message, for the next receive like it. No I/O.
//!
//! A program that awaits the same message again and again, in the same memory, would have an entry and a descriptor freed
//! and made for each. The second such receive in a row, if the first has ended, leaves its own ([`Kept`]), and those after it
//! renew the descriptor. It does so too while the one that was kept before waits, or others behind that: a program may have any
//! number of receives posted for messages that come later, or never.
//!
//! # Invariants
//! * Receives match in the order in which they began: the kept one is renewed only if no receive that was posted behind it
//!   waits.
//! * At most one is kept, beside those that were and still wait, which are given up when they have their message. What is in
//!   the list and awaits nothing takes nothing: its descriptor has taken its one message.

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
    me: MeHandle,
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
    /// Its entry, until it has ended.
    last_waits: Option<MeHandle>,
    /// Descriptors of receives that were kept, and wait while another is.
    retired: Vec<MdHandle>,
    /// Those that have had their message.
    spent: Vec<MdHandle>,
}

impl Kept {
    pub(super) const fn new(able: bool) -> Self {
        Self {
            able,
            entry: None,
            behind: 0,
            number: 0,
            last: None,
            last_waits: None,
            retired: Vec::new(),
            spent: Vec::new(),
        }
    }

    /// How a receive is posted.
    #[inline(always)]
    pub(super) fn plan(&self, like: &Like) -> Plan {
        match &self.entry {
            Some(entry) if !entry.waits && self.behind == 0 => {
                if entry.like == *like {
                    Plan::Renew(entry.md)
                } else {
                    Plan::LetGo(entry.md)
                }
            }
            // The next of this kind can be renewed, over all that waits.
            Some(entry) if self.again(like) => {
                if entry.waits {
                    Plan::Keep
                } else {
                    Plan::LetGo(entry.md)
                }
            }
            None if self.able && self.again(like) => Plan::Keep,
            _ => Plan::Post,
        }
    }

    /// Whether the receive that was posted last was like this, and has ended.
    fn again(&self, like: &Like) -> bool {
        self.last_waits.is_none() && self.last.as_ref() == Some(like)
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
        let spot = match kept {
            Some(md) => {
                if let Some(before) = self.entry.as_ref().map(|entry| entry.md) {
                    self.gone(before);
                    self.retired.push(before);
                }
                self.entry = Some(Entry {
                    like,
                    me,
                    md,
                    waits: true,
                });
                Spot::Kept(md)
            }
            None if self.entry.is_none() => Spot::Alone(me),
            None => {
                self.behind += 1;
                Spot::Behind(me, self.number)
            }
        };
        self.last = Some(like);
        self.last_waits = Some(me);
        spot
    }

    /// A receive waits no more.
    #[inline(always)]
    pub(super) fn ended(&mut self, spot: Spot) {
        let me = match spot {
            Spot::Kept(md) => {
                return match &mut self.entry {
                    Some(entry) if entry.md == md => entry.waits = false,
                    _ => self.spend(md),
                };
            }
            Spot::Behind(me, number) => {
                self.behind -= u32::from(number == self.number);
                me
            }
            Spot::Alone(me) => me,
        };
        if self.last_waits == Some(me) {
            self.last_waits = None;
        }
    }

    /// One that was kept has its message, or is gone.
    #[cold]
    fn spend(&mut self, md: MdHandle) {
        if let Some(at) = self.retired.iter().position(|retired| *retired == md) {
            self.retired.swap_remove(at);
            self.spent.push(md);
        }
    }

    /// A descriptor to be unlinked, of a receive that was kept and has its message.
    pub(super) fn take_spent(&mut self) -> Option<MdHandle> {
        self.spent.pop()
    }

    /// The one with this descriptor, which was kept, is gone from the list.
    pub(super) fn gone(&mut self, md: MdHandle) {
        match self.entry.take_if(|entry| entry.md == md) {
            Some(entry) => {
                self.behind = 0;
                self.number = self.number.wrapping_add(1);
                self.last_waits.take_if(|me| *me == entry.me);
            }
            None => self.retired.retain(|retired| *retired != md),
        }
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
    const NEXT: MeHandle = MeHandle::from_raw(7);
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
        kept.gone(FIRST);
        assert_eq!(kept.plan(&like(4)), Plan::Post);
        assert_eq!(kept.plan(&like(2)), Plan::Keep);
        assert_eq!(Kept::new(false).plan(&like(2)), Plan::Post);
    }

    /// The first of a kind, which ends, and the second, which is kept.
    fn keep(kept: &mut Kept, like: Like, md: MdHandle) -> Spot {
        let first = kept.posted(like, ME, None);
        kept.ended(first);
        assert_eq!(kept.plan(&like), Plan::Keep);
        kept.posted(like, ME, Some(md))
    }

    #[test]
    fn it_is_not_renewed_while_one_behind_it_waits() {
        let mut kept = Kept::new(true);
        let first = keep(&mut kept, like(2), FIRST);
        let behind = kept.posted(like(4), NEXT, None);
        kept.ended(first);
        assert_eq!(kept.plan(&like(2)), Plan::Post);
        kept.ended(behind);
        assert_eq!(kept.plan(&like(2)), Plan::Renew(FIRST));
        // One behind an earlier one counts for nothing.
        let behind = kept.posted(like(4), NEXT, None);
        kept.gone(FIRST);
        let second = kept.posted(like(2), ME, Some(OTHER));
        kept.ended(behind);
        kept.ended(second);
        assert_eq!(kept.plan(&like(2)), Plan::Renew(OTHER));
    }

    #[test]
    fn one_that_waits_is_not_followed_by_a_kept_one() {
        let mut kept = Kept::new(true);
        let first = kept.posted(like(2), ME, None);
        assert_eq!(kept.plan(&like(2)), Plan::Post);
        kept.posted(like(2), NEXT, None);
        kept.ended(first);
        assert_eq!(kept.plan(&like(2)), Plan::Post);
    }

    #[test]
    fn another_is_kept_while_the_one_before_waits_or_those_behind_it() {
        let mut kept = Kept::new(true);
        let waits = keep(&mut kept, like(2), FIRST);
        let second = keep(&mut kept, like(4), OTHER);
        // Which waits too.
        assert_eq!(kept.plan(&like(4)), Plan::Post);
        kept.ended(second);
        assert_eq!(kept.plan(&like(4)), Plan::Renew(OTHER));
        assert_eq!(kept.take_spent(), None);
        kept.ended(waits);
        assert_eq!(kept.take_spent(), Some(FIRST));
        assert_eq!(kept.take_spent(), None);
        assert_eq!(kept.plan(&like(4)), Plan::Renew(OTHER));
        kept.posted(like(6), NEXT, None);
        let again = kept.posted(like(4), ME, None);
        assert_eq!(kept.plan(&like(4)), Plan::Post);
        kept.ended(again);
        assert_eq!(kept.plan(&like(4)), Plan::LetGo(OTHER));
        kept.gone(OTHER);
        assert_eq!(kept.plan(&like(4)), Plan::Keep);
    }

    #[test]
    fn one_that_was_kept_is_cancelled_once() {
        let mut kept = Kept::new(true);
        let waits = keep(&mut kept, like(2), FIRST);
        keep(&mut kept, like(4), OTHER);
        kept.gone(OTHER);
        kept.gone(FIRST);
        // Its message was there, with its descriptor.
        kept.ended(waits);
        assert_eq!(kept.take_spent(), None);
    }
}
