//! How long regions stay mapped where the library is in another process, which does not tell of the end of each descriptor.
//! No I/O.
//!
//! A descriptor is gone when a call has unlinked it, when an UNLINK event says so, or when its number is another's. What may
//! have ended without any of these is asked for ([`Kept::questions`]) once so much memory is kept for it that it matters.

use fabric_api::call::{Answer, Call};
use fabric_api::region::Region;
use portals_core::{EventKind, MdDesc, MdHandle, MdOptions, MeHandle, THRESHOLD_INFINITE, Unlink};
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
    /// Bytes kept for mortal ones, each counted for itself.
    mortal: u64,
    /// As many as are kept before they are asked for.
    most: u64,
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
        /// No operation was under way.
        idle: bool,
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
            Call::MdUpdate { md, new, test } => Self::Changed {
                md: *md,
                region,
                mortal: is_mortal(new),
                idle: test.is_some(),
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
            (
                Effect::Changed {
                    md,
                    region,
                    mortal,
                    idle,
                },
                Answer::Snapshot(_),
            ) => self.changed(md, region, mortal, idle),
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
        self.mortal += entry.counted();
        self.by_number.insert(number, entry);
    }

    fn changed(&mut self, md: MdHandle, region: Option<Region>, mortal: bool, idle: bool) {
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
        self.mortal -= entry.counted();
        entry.former.extend(entry.region.take());
        if idle {
            entry.former.clear();
        }
        entry.region = region;
        entry.mortal = mortal && entry.unlink == Unlink::Unlink;
        self.mortal += entry.counted();
    }

    fn gone(&mut self, md: MdHandle) {
        let number = md.number();
        if self.by_number.get(&number).is_none_or(|e| e.md != md) {
            return;
        }
        if let Some(entry) = self.by_number.remove(&number) {
            self.mortal -= entry.counted();
            if let Some(me) = entry.me {
                self.by_me.remove(&me);
            }
        }
    }

    /// Descriptors that may have ended, if it is time to ask for them.
    pub(crate) fn questions(&mut self) -> Vec<MdHandle> {
        if self.mortal <= self.most.max(UNASKED) {
            return Vec::new();
        }
        let mortal = self.by_number.values().filter(|e| e.mortal);
        mortal.map(|e| e.md).collect()
    }

    /// Those of [`Kept::questions`] of which the library knows nothing any more.
    pub(crate) fn answers(&mut self, gone: &[MdHandle]) {
        for md in gone {
            self.gone(*md);
        }
        self.most = self.mortal * 2;
    }
}

impl Entry {
    fn counted(&self) -> u64 {
        let region = self.region.as_ref().filter(|_| self.mortal);
        region.map_or(0, |region| region.len() as u64)
    }
}

#[cfg(test)]
mod tests;
