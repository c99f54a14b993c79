//! How long regions stay mapped where the library is in another process, which does not tell of the end of each descriptor.
//! No I/O.
//!
//! A descriptor is gone when a call has unlinked it, when an UNLINK event says so, or when its number is another's. What may
//! have ended without any of these is asked for ([`Kept::questions`]) once so much memory is kept for it that it matters. So
//! are descriptors that were changed while operations on them were under way: what they had before is kept until none is.

use fabric_api::call::{Answer, Call};
use fabric_api::region::Region;
use portals_core::{
    Error, EventKind, MdDesc, MdHandle, MdOptions, MeHandle, THRESHOLD_INFINITE, Unlink,
};
use std::collections::BTreeMap;

/// Bytes of regions that may be kept for descriptors that end by themselves before these are asked for.
const UNASKED: u64 = 64 << 20;

#[derive(Debug)]
struct Entry {
    md: MdHandle,
    /// The one that its memory is part of.
    region: Option<Region>,
    /// Those that it had before a change during operations.
    former: Vec<Region>,
    /// An operation may end it.
    mortal: bool,
    unlink: Unlink,
    /// Takes it along.
    me: Option<MeHandle>,
}

/// The regions of descriptors, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    by_number: BTreeMap<u32, Entry>,
    /// The descriptor of an entry, with which it goes.
    by_me: BTreeMap<MeHandle, MdHandle>,
    /// Bytes kept for mortal ones and from before changes, each counted for itself.
    unsure: u64,
    /// Most that are kept before they are asked for.
    most: u64,
}

/// What the library knows of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Gone,
    /// No operation on it is under way.
    Idle,
    InUse,
}

impl Known {
    /// By the answer to [`Call::MdQuery`]; of one that failed otherwise the worst is assumed.
    pub(crate) fn of(answer: &Result<Answer, Error>) -> Self {
        match answer {
            Err(Error::MdInvalid) => Self::Gone,
            Ok(Answer::Snapshot(_, false)) => Self::Idle,
            _ => Self::InUse,
        }
    }
}

/// What a call will have done if it succeeds.
#[derive(Debug)]
pub(crate) enum Effect {
    Nothing,
    Made {
        region: Option<Region>,
        mortal: bool,
        unlink: Unlink,
        me: Option<MeHandle>,
    },
    Changed {
        md: MdHandle,
        region: Option<Region>,
        mortal: bool,
    },
    Unlinked(MdHandle),
    EntryUnlinked(MeHandle),
    Closed,
}

/// Whether an operation may end a descriptor, or make it inactive.
fn is_mortal(desc: &MdDesc) -> bool {
    desc.threshold != THRESHOLD_INFINITE || desc.options.contains(MdOptions::MAX_SIZE)
}

impl Effect {
    /// Of a call that describes memory in `region`, if that is one.
    pub(crate) fn of(call: &Call, region: Option<&Region>) -> Self {
        let region = region.cloned();
        match call {
            Call::MdAttach { me, desc, unlink } => Self::Made {
                region,
                mortal: is_mortal(desc),
                unlink: *unlink,
                me: Some(*me),
            },
            Call::MdBind { desc, unlink } | Call::MeMdPost { desc, unlink, .. } => Self::Made {
                region,
                mortal: is_mortal(desc),
                unlink: *unlink,
                me: None,
            },
            Call::MdUpdate { md, new, .. } => Self::Changed {
                md: *md,
                region,
                mortal: is_mortal(new),
            },
            Call::MdUnlink(md) => Self::Unlinked(*md),
            Call::MeUnlink(me) => Self::EntryUnlinked(*me),
            Call::Close => Self::Closed,
            _ => Self::Nothing,
        }
    }
}

impl Kept {
    /// A call with this effect was answered so.
    pub(crate) fn answered(&mut self, effect: Effect, answer: &Answer) {
        match (effect, answer) {
            (_, Answer::Polled(Some(polled))) if polled.event.kind == EventKind::Unlink => {
                self.gone(polled.event.md_handle);
            }
            (
                Effect::Made {
                    region,
                    mortal,
                    unlink,
                    me,
                },
                Answer::Md(md) | Answer::MeMd(_, md),
            ) => {
                let me = match answer {
                    Answer::MeMd(me, _) => Some(*me),
                    _ => me,
                };
                self.made(Entry {
                    md: *md,
                    region,
                    former: Vec::new(),
                    mortal: mortal && unlink == Unlink::Unlink,
                    unlink,
                    me: me.filter(|_| unlink == Unlink::Unlink),
                });
            }
            (Effect::Changed { md, region, mortal }, Answer::Snapshot(_, in_use)) => {
                self.changed(md, region, mortal, *in_use)
            }
            (Effect::Unlinked(md), Answer::Done) => self.gone(md),
            (Effect::EntryUnlinked(me), Answer::Done) => {
                if let Some(md) = self.by_me.get(&me) {
                    self.gone(*md);
                }
            }
            (Effect::Closed, Answer::Done) => *self = Self::default(),
            _ => {}
        }
    }

    fn made(&mut self, entry: Entry) {
        let number = entry.md.number();
        // Whatever had the number is gone.
        if let Some(before) = self.by_number.get(&number).map(|before| before.md) {
            self.gone(before);
        }
        if entry.region.is_none() {
            return;
        }
        if let Some(me) = entry.me {
            self.by_me.insert(me, entry.md);
        }
        self.unsure += entry.counted();
        self.by_number.insert(number, entry);
    }

    fn changed(&mut self, md: MdHandle, region: Option<Region>, mortal: bool, in_use: bool) {
        let number = md.number();
        let Some(entry) = self.by_number.get_mut(&number).filter(|e| e.md == md) else {
            // It had no region so far; whether it goes with its entry is not known, only that its number will be another's.
            return self.made(Entry {
                md,
                region,
                former: Vec::new(),
                mortal,
                unlink: Unlink::Unlink,
                me: None,
            });
        };
        self.unsure -= entry.counted();
        let before = std::mem::replace(&mut entry.region, region);
        if in_use {
            let kept = |old: &Region| entry.regions().any(|region| region.is_same(old));
            let before = before.filter(|old| !kept(old));
            entry.former.extend(before);
        } else {
            entry.former.clear();
        }
        entry.mortal = mortal && entry.unlink == Unlink::Unlink;
        self.unsure += entry.counted();
    }

    fn gone(&mut self, md: MdHandle) {
        let number = md.number();
        if self.by_number.get(&number).is_none_or(|e| e.md != md) {
            return;
        }
        if let Some(entry) = self.by_number.remove(&number) {
            self.unsure -= entry.counted();
            if let Some(me) = entry.me {
                self.by_me.remove(&me);
            }
        }
    }

    /// Descriptors that may have ended, if it is time to ask for them.
    pub(crate) fn questions(&mut self) -> Vec<MdHandle> {
        if self.unsure <= self.most.max(UNASKED) {
            return Vec::new();
        }
        let unsure = |e: &&Entry| e.mortal || !e.former.is_empty();
        self.by_number
            .values()
            .filter(unsure)
            .map(|e| e.md)
            .collect()
    }

    /// What the library knows of those of [`Kept::questions`].
    pub(crate) fn answers(&mut self, answers: &[(MdHandle, Known)]) {
        for (md, known) in answers {
            match known {
                Known::Gone => self.gone(*md),
                Known::Idle => self.idle(*md),
                Known::InUse => {}
            }
        }
        self.most = self.unsure * 2;
    }

    /// Nothing is under way on a descriptor.
    fn idle(&mut self, md: MdHandle) {
        let entry = self.by_number.get_mut(&md.number());
        if let Some(entry) = entry.filter(|e| e.md == md) {
            self.unsure -= entry.counted();
            entry.former.clear();
            self.unsure += entry.counted();
        }
    }
}

impl Entry {
    fn regions(&self) -> impl Iterator<Item = &Region> {
        self.region.iter().chain(&self.former)
    }

    /// Bytes that it may keep for nothing.
    fn counted(&self) -> u64 {
        let sure = usize::from(self.region.is_some() && !self.mortal);
        self.regions().skip(sure).map(|r| r.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests;
