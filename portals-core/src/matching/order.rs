//! Order maintenance: a label for every entry, so that two entries compare without a walk.
//!
//! Labels are 64 bits wide and spaced. An entry that finds no room between its neighbours has the
//! smallest sparse range around it labelled anew: among the aligned ranges of 2, 4, 8, … labels the
//! first that is at most (2/3)^i full, which spreads over O(log n) entries for each insertion, over
//! any sequence of insertions (Bender, Cole, Demaine, Farach-Colton, Zito 2002).

use super::{Me, NONE};
use crate::table::Table;

/// Distance of an entry at the head or tail from its neighbour.
const STRIDE: u64 = 1 << 32;
const MIDDLE: u64 = 1 << 63;

/// Labels all entries of a list from `head` on.
pub(super) fn label_all(entries: &mut Table<Me>, head: u32) {
    let (mut at, mut label) = (head, MIDDLE);
    while let Some(me) = entries.at_mut(at) {
        me.label = label;
        label += STRIDE;
        at = me.next;
    }
}

/// A label for a new entry between the slots `prev` and `next` ([`NONE`] at an end of the list),
/// and how many existing entries were labelled anew for it; their order stays.
pub(super) fn between(entries: &mut Table<Me>, prev: u32, next: u32) -> (u64, u32) {
    let label = |slot| entries.at(slot).map(|me: &Me| me.label);
    let free = match (label(prev), label(next)) {
        (None, None) => Some(MIDDLE),
        (Some(low), None) => {
            let room = STRIDE.min((u64::MAX - low) / 2);
            (room > 0).then(|| low + room)
        }
        (None, Some(high)) => {
            let room = STRIDE.min(high / 2);
            (room > 0).then(|| high - room)
        }
        (Some(low), Some(high)) => {
            let room = (high - low) / 2;
            (room > 0).then(|| low + room)
        }
    };
    match free {
        Some(label) => (label, 0),
        None => make_room(entries, prev, next),
    }
}

/// Labels the smallest sparse range around the gap anew and returns the label left free in it.
#[cold]
fn make_room(entries: &mut Table<Me>, prev: u32, next: u32) -> (u64, u32) {
    // The range grows from this entry; the gap is beside it.
    let anchor = if prev == NONE { next } else { prev };
    let Some(at) = entries.at(anchor).map(|me| me.label) else {
        return (MIDDLE, 0);
    };
    let (mut first, mut last) = (anchor, anchor);
    // With the new entry.
    let mut count = 2u64;
    // (4/3)^i in 1/65536: how many entries a range of 2^i labels may hold.
    let mut allowed = 1u64 << 16;
    for bits in 1..=64 {
        allowed += allowed / 3;
        let mask = u64::MAX >> (64 - bits);
        let (low, high) = (at & !mask, at | mask);
        while let Some(me) = neighbour(entries, first, |me| me.prev)
            && me.1 >= low
        {
            first = me.0;
            count += 1;
        }
        while let Some(me) = neighbour(entries, last, |me| me.next)
            && me.1 <= high
        {
            last = me.0;
            count += 1;
        }
        if count <= allowed >> 16 || bits == 64 {
            let step = ((1u128 << bits) / u128::from(count)) as u64;
            let free = spread(entries, first, (prev, last), low + step / 2, step);
            return (free, count as u32 - 1);
        }
    }
    (MIDDLE, 0)
}

/// The neighbour's slot and label.
fn neighbour(entries: &Table<Me>, slot: u32, to: fn(&Me) -> u32) -> Option<(u32, u64)> {
    let slot = to(entries.at(slot)?);
    Some((slot, entries.at(slot)?.label))
}

/// Labels `label`, `label + step`, … from slot `first` to slot `last`, leaving one free after slot
/// `gap`, or before everything when that is [`NONE`].
fn spread(
    entries: &mut Table<Me>,
    first: u32,
    (gap, last): (u32, u32),
    mut label: u64,
    step: u64,
) -> u64 {
    let mut free = label;
    if gap == NONE {
        label = label.wrapping_add(step);
    }
    let mut slot = first;
    while let Some(me) = entries.at_mut(slot) {
        me.label = label;
        label = label.wrapping_add(step);
        let next = me.next;
        if slot == gap {
            free = label;
            label = label.wrapping_add(step);
        }
        if slot == last {
            break;
        }
        slot = next;
    }
    free
}
