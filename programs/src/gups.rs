//! Random updates of a table that is spread over the ranks.
//!
//! Update `i` of the stream is a 64-bit value that depends on `i` alone; it is exclusive-ored into
//! the word that its low bits name. Rank `r` makes its share of the stream, so the result depends on
//! the length of the stream and not on the ranks. Making all updates twice restores the table.

use crate::job::Failed;
use crate::memory::{Addresses, Memory};
use crate::sum::{Reduction, mix, word64, words};
use conduit::{BarrierName, ClockKind, Conduit, HandlerEntry};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Params {
    /// The table has `2^log2_table` words, at most 2^40.
    pub log2_table: u32,
    /// Updates of all ranks together.
    pub updates: u64,
}

/// What does not depend on the ranks; its text is the line that the program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What was done.
    pub params: Params,
    /// Over the table after one pass.
    pub checksum: u64,
    /// Words that the second pass did not restore.
    pub errors: u64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Params {
            log2_table,
            updates,
        } = self.params;
        let Self {
            checksum, errors, ..
        } = self;
        write!(
            f,
            "gups: table 2^{log2_table} updates {updates} checksum {checksum:#018x} errors {errors}"
        )
    }
}

/// How fast it went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Updates of the first pass, all ranks together.
    pub updates: u64,
    /// Nanoseconds of the fabric's clock that they took.
    pub nanos: u64,
    /// What the clock counts.
    pub clock: ClockKind,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let clock = match self.clock {
            ClockKind::Virtual => "virtual",
            ClockKind::Wall => "wall",
        };
        if self.nanos == 0 {
            // One rank sends no messages, and nothing else takes virtual time.
            return write!(f, "gups: no {clock} time passed");
        }
        let rate = self.updates as f64 * 1e9 / self.nanos as f64;
        write!(f, "gups: {rate:.0} updates/s ({clock} time)")
    }
}

/// Part `index` of `parts` of `0 .. n`.
fn share(n: u64, parts: u32, index: u32) -> Range<u64> {
    let at = |i: u32| (u128::from(n) * u128::from(i) / u128::from(parts)) as u64;
    at(index)..at(index + 1)
}

/// Who has word `word` of a table of `n`.
fn owner(n: u64, parts: u32, word: u64) -> u32 {
    let guess = (u128::from(word) * u128::from(parts) / u128::from(n)) as u32;
    // Shares are rounded down, so the guess is the owner or just below.
    (guess..parts)
        .find(|r| share(n, parts, *r).contains(&word))
        .unwrap_or(parts - 1)
}

/// The words of one rank; word `i` starts as `i`.
#[derive(Clone, Debug)]
struct Table {
    first: u64,
    words: Vec<u64>,
}

impl Table {
    fn new(range: Range<u64>) -> Self {
        Self {
            first: range.start,
            words: range.collect(),
        }
    }

    fn update(&mut self, mask: u64, value: u64) {
        if let Some(word) = self.words.get_mut(((value & mask) - self.first) as usize) {
            *word ^= value;
        }
    }

    fn checksum(&self) -> u64 {
        (self.first..)
            .zip(&self.words)
            .fold(0, |sum: u64, (i, w)| sum.wrapping_add(mix(i, *w)))
    }

    fn errors(&self) -> u64 {
        (self.first..)
            .zip(&self.words)
            .filter(|(i, w)| i != *w)
            .count() as u64
    }
}

const SEED: u64 = 0x6775_7073;

/// One rank and no conduit.
pub fn serial(params: Params) -> Report {
    let size = 1u64 << params.log2_table;
    let mut table = Table::new(0..size);
    let mut pass = || {
        for i in 0..params.updates {
            table.update(size - 1, mix(i, SEED));
        }
        (table.checksum(), table.errors())
    };
    let (checksum, _) = pass();
    let (_, errors) = pass();
    Report {
        params,
        checksum,
        errors,
    }
}

const UPDATE: u8 = 128;
const DONE: u8 = 129;
const SUM: u8 = 130;
const ADDRESS: u8 = 131;

/// Collective; rank 0 gets the report. With [`Memory::Segment`] a rank makes its share of the stream, by messages to the
/// owners of the words; with [`Memory::Everything`] it makes all that concern the part of the rank above, by a get and a
/// put of each word, which nobody else writes.
pub fn run(
    conduit: &Conduit,
    params: Params,
    memory: Memory,
) -> Result<Option<(Report, Rate)>, Failed> {
    match memory {
        Memory::Segment => by_messages(conduit, params),
        Memory::Everything => by_puts(conduit, params),
    }
}

/// What both ways end with: a pass, the checksum; another pass, the errors.
fn report(
    conduit: &Conduit,
    params: Params,
    reduction: &Reduction,
    pass: impl Fn() -> Result<u64, Failed>,
    table: impl Fn() -> Table,
) -> Result<Option<(Report, Rate)>, Failed> {
    let nanos = pass()?;
    let checksum = reduction.run(conduit, table().checksum())?;
    pass()?;
    let errors = reduction.run(conduit, table().errors())?;
    Ok(checksum.zip(errors).map(|(checksum, errors)| {
        (
            Report {
                params,
                checksum,
                errors,
            },
            Rate {
                updates: params.updates,
                nanos,
                clock: conduit.clock(),
            },
        )
    }))
}

fn by_puts(conduit: &Conduit, params: Params) -> Result<Option<(Report, Rate)>, Failed> {
    let size = 1u64 << params.log2_table;
    let (me, ranks) = (conduit.mynode(), conduit.nodes());
    let mine = share(size, ranks, me);
    let table: Arc<[AtomicU64]> = mine.clone().map(AtomicU64::new).collect();
    let (reduction, sum) = Reduction::new(SUM);
    let (addresses, address) = Addresses::new(conduit, ADDRESS);
    conduit.attach_open(vec![sum, address])?;
    let addresses = addresses.tell(conduit, &table)?;
    let above = (me + 1) % ranks;
    let theirs = share(size, ranks, above);
    let pass = || -> Result<u64, Failed> {
        conduit.barrier(BarrierName::Anonymous)?;
        let start = conduit.now();
        for i in 0..params.updates {
            let value = mix(i, SEED);
            let word = value & (size - 1);
            if !theirs.contains(&word) {
                continue;
            }
            let at = addresses[above as usize] + 8 * (word - theirs.start);
            let mut bytes = [0; 8];
            conduit.get(&mut bytes, above, at)?;
            let new = u64::from_ne_bytes(bytes) ^ value;
            conduit.put(above, at, &new.to_ne_bytes())?;
        }
        conduit.barrier(BarrierName::Anonymous)?;
        Ok(conduit.now() - start)
    };
    let seen = || Table {
        first: mine.start,
        words: table.iter().map(|w| w.load(Ordering::Relaxed)).collect(),
    };
    report(conduit, params, &reduction, pass, seen)
}

fn by_messages(conduit: &Conduit, params: Params) -> Result<Option<(Report, Rate)>, Failed> {
    let size = 1u64 << params.log2_table;
    let (me, ranks) = (conduit.mynode(), conduit.nodes());
    let table = Rc::new(RefCell::new(Table::new(share(size, ranks, me))));
    let done = Rc::new(Cell::new(0u64));
    let (t, d) = (table.clone(), done.clone());
    let (reduction, sum) = Reduction::new(SUM);
    let handlers = vec![
        HandlerEntry::new(UPDATE, move |token, _, args| {
            t.borrow_mut().update(size - 1, word64(args));
            if let Err(e) = token.reply_short(DONE, &[]) {
                portals_shim::say(format_args!("gups: {e}"));
                token.conduit().exit(1);
            }
        }),
        HandlerEntry::new(DONE, move |_, _, _| d.set(d.get() + 1)),
        sum,
    ];
    conduit.attach(handlers, 0)?;
    let pass = || -> Result<u64, Failed> {
        conduit.barrier(BarrierName::Anonymous)?;
        let start = conduit.now();
        let mine = share(params.updates, ranks, me);
        let count = mine.end - mine.start;
        done.set(0);
        for i in mine {
            let value = mix(i, SEED);
            let to = owner(size, ranks, value & (size - 1));
            conduit.am_request_short(to, UPDATE, &words(value))?;
        }
        conduit.block_until(|| done.get() == count);
        conduit.barrier(BarrierName::Anonymous)?;
        Ok(conduit.now() - start)
    };
    report(conduit, params, &reduction, pass, || table.borrow().clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use conduit::threads::{self, RankEnd};

    #[test]
    fn any_number_of_ranks_gives_the_table_of_one() {
        let params = Params {
            log2_table: 9,
            updates: 3001,
        };
        let alone = serial(params);
        assert_eq!(alone.errors, 0);
        assert_ne!(
            alone.checksum,
            serial(Params {
                updates: 3000,
                ..params
            })
            .checksum
        );
        let memories = [Memory::Segment, Memory::Everything];
        let all = [1, 2, 3, 4, 8].map(|ranks| memories.map(|m| (ranks, m)));
        for (ranks, memory) in all.into_iter().flatten() {
            let ends = threads::run(ranks, |conduit| run(conduit, params, memory).unwrap());
            for (rank, end) in ends.into_iter().enumerate() {
                let RankEnd::Returned(report) = end else {
                    panic!("{end:?}")
                };
                assert_eq!(
                    report.map(|(r, _)| r),
                    (rank == 0).then_some(alone),
                    "{ranks} ranks, {memory:?}"
                );
                assert!(report.is_none_or(|(_, rate)| rate.nanos > 0));
            }
        }
        let line = alone.to_string();
        assert!(
            line.starts_with("gups: table 2^9 updates 3001 checksum 0x"),
            "{line}"
        );
        assert!(line.ends_with(" errors 0"), "{line}");
    }

    #[test]
    fn every_word_has_one_owner() {
        for parts in [1, 2, 3, 7, 8, 100] {
            for word in 0..64 {
                let r = owner(64, parts, word);
                assert!(
                    share(64, parts, r).contains(&word),
                    "{word} of 64, {parts} parts"
                );
            }
            assert_eq!(share(64, parts, parts - 1).end, 64);
        }
    }

    #[test]
    fn an_update_missed_is_an_error() {
        let mut t = Table::new(8..16);
        t.update(15, 0xf0f9);
        assert_eq!(t.errors(), 1);
        t.update(15, 0xf0f9);
        assert_eq!(t.errors(), 0);
    }
}
