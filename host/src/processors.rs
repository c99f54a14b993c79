//! Whether each rank of a machine has a processor, so that a wait may poll.
//!
//! What one rank may run on says nothing about that: a rank that its launcher has bound to one processor is alone there,
//! if the others are bound to others. So ranks tell each other where they may run, and each looks whether all of them
//! can run at once.

use rustix::thread::{CpuSet, sched_getaffinity};

/// Processors that are told of.
pub const MOST: usize = CpuSet::MAX_CPU;
/// 64-bit words of a set.
pub const WORDS: usize = MOST / 64;

/// Where a rank may run; none if that is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Processors(pub [u64; WORDS]);

impl Processors {
    /// Of the calling thread.
    pub fn own() -> Self {
        let mut own = Self::default();
        if let Ok(set) = sched_getaffinity(None) {
            (0..MOST)
                .filter(|p| set.is_set(*p))
                .for_each(|p| own.add(p));
        }
        own
    }

    /// The words that are not 0, with the number of each.
    pub fn to_bytes(self) -> Vec<u8> {
        let some = (0u8..).zip(self.0).filter(|(_, word)| *word != 0);
        some.flat_map(|(i, word)| std::iter::once(i).chain(word.to_be_bytes()))
            .collect()
    }

    /// What a peer has said; `None` if it makes no sense.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut set = Self::default();
        for said in bytes.chunks(9) {
            let (number, word) = said.split_first()?;
            *set.0.get_mut(usize::from(*number))? = u64::from_be_bytes(word.try_into().ok()?);
        }
        Some(set)
    }

    /// Those of these numbers; numbers from [`MOST`] on make a panic.
    #[must_use]
    pub fn of(numbers: &[usize]) -> Self {
        let mut set = Self::default();
        numbers.iter().for_each(|p| set.add(*p));
        set
    }

    fn has(&self, processor: usize) -> bool {
        self.0[processor / 64] & (1 << (processor % 64)) != 0
    }

    fn add(&mut self, processor: usize) {
        self.0[processor / 64] |= 1 << (processor % 64);
    }

    fn count(&self) -> usize {
        self.0.iter().map(|w| w.count_ones() as usize).sum()
    }

    /// Their numbers.
    pub fn each(self) -> impl Iterator<Item = usize> {
        let bits = |(i, word): (usize, u64)| {
            let is_set = move |bit: &usize| word & (1 << bit) != 0;
            (0..64).filter(is_set).map(move |bit| 64 * i + bit)
        };
        self.0.into_iter().enumerate().flat_map(bits)
    }
}

/// The numbers of the processors that this thread may run on; none if that is not known.
pub fn allowed_processors() -> Vec<usize> {
    Processors::own().each().collect()
}

/// How many threads of this process run at once, as far as is known: its processors, or what its control group leaves.
pub fn at_once() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Processors of the machine, whoever may run on them; what this process may use where that is not known.
pub fn of_machine() -> usize {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online");
    online
        .ok()
        .and_then(|list| listed(&list))
        .unwrap_or_else(at_once)
}

/// The processors that this thread may run on, by core: threads of one core stand together. A processor whose core the
/// system does not tell is a core of its own.
pub fn cores() -> Vec<Processors> {
    by_core(Processors::own(), |processor| {
        let file = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
        std::fs::read_to_string(file).ok()
    })
}

fn by_core(own: Processors, siblings: impl Fn(usize) -> Option<String>) -> Vec<Processors> {
    let mut cores: Vec<Processors> = Vec::new();
    for processor in own.each() {
        if cores.iter().any(|core| core.has(processor)) {
            continue;
        }
        let list = siblings(processor).and_then(|list| ranges(&list));
        let list = list.unwrap_or_default();
        let of_core = |p: &usize| list.iter().any(|(first, last)| (first..=last).contains(&p));
        let free = |p: &usize| !cores.iter().any(|core| core.has(*p));
        let mut core = Processors::default();
        core.add(processor);
        own.each()
            .filter(|p| of_core(p) && free(p))
            .for_each(|p| core.add(p));
        cores.push(core);
    }
    cores
}

/// How many numbers a list of the kernel's names: `0-3,8`.
fn listed(list: &str) -> Option<usize> {
    let count = |(first, last): (usize, usize)| last.checked_sub(first)?.checked_add(1);
    ranges(list)?.into_iter().map(count).sum()
}

/// The first and the last number of each range of such a list.
fn ranges(list: &str) -> Option<Vec<(usize, usize)>> {
    let range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some((first.parse().ok()?, last.parse().ok()?))
    };
    list.trim().split(',').map(range).collect()
}

/// Whether so many ranks that are threads of this process, bound to nothing, are more than it has processors.
pub fn are_crowded(threads: usize) -> bool {
    threads > at_once()
}

/// Whether rank `own` shares processors with more ranks than those are: there is a set of processors with too few for the
/// ranks that may run nowhere else, and it is one of these. `at_once`: as [`at_once`] says.
pub fn is_crowded(own: usize, ranks: &[Processors], at_once: usize) -> bool {
    let known = |p: &Processors| p.count() > 0;
    let limited = ranks.get(own).is_none_or(|p| at_once < p.count());
    if limited || !ranks.iter().all(known) {
        return ranks.len() > at_once;
    }
    Seats::new(ranks).is_short(own)
}

const NOBODY: usize = usize::MAX;

/// Ranks, each on a processor of its own, as far as there are.
struct Seats<'a> {
    ranks: &'a [Processors],
    /// By processor: the rank on it.
    on: Vec<usize>,
    standing: Vec<usize>,
}

impl<'a> Seats<'a> {
    fn new(ranks: &'a [Processors]) -> Self {
        let mut seats = Self {
            ranks,
            on: vec![NOBODY; MOST],
            standing: Vec::new(),
        };
        for rank in 0..ranks.len() {
            if !seats.seat(rank) {
                seats.standing.push(rank);
            }
        }
        seats
    }

    /// Finds a processor for a rank, moving others if they can be.
    fn seat(&mut self, rank: usize) -> bool {
        // By processor: who asked for it.
        let mut asked = vec![NOBODY; MOST];
        let mut queue = vec![rank];
        let mut at = 0;
        while let Some(asks) = queue.get(at).copied() {
            at += 1;
            for processor in self.ranks[asks].each() {
                if asked[processor] != NOBODY {
                    continue;
                }
                asked[processor] = asks;
                match self.on[processor] {
                    NOBODY => {
                        self.shift(processor, &asked, rank);
                        return true;
                    }
                    sitting => queue.push(sitting),
                }
            }
        }
        false
    }

    /// A free processor was found: each that asked takes what it asked for, and leaves its own to who asked for that.
    fn shift(&mut self, mut free: usize, asked: &[usize], last: usize) {
        loop {
            let rank = asked[free];
            let old = self.on.iter().position(|r| *r == rank);
            self.on[free] = rank;
            match old {
                Some(old) if rank != last => free = old,
                _ => return,
            }
        }
    }

    /// Whether a rank is one of those that are too many where they may run: one that stands, or one on a processor
    /// that such a one may run on.
    fn is_short(&self, own: usize) -> bool {
        let mut short = vec![false; self.ranks.len()];
        let mut queue = self.standing.clone();
        while let Some(rank) = queue.pop() {
            if std::mem::replace(&mut short[rank], true) {
                continue;
            }
            let sitting = self.ranks[rank].each().map(|p| self.on[p]);
            queue.extend(sitting.filter(|r| *r != NOBODY));
        }
        short.get(own).copied().unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(processors: &[usize]) -> Processors {
        Processors::of(processors)
    }

    #[test]
    fn lists_of_processors_are_counted() {
        assert_eq!(listed("0-3,8\n"), Some(5));
        assert_eq!(listed("0\n"), Some(1));
        assert_eq!(listed("0-63,128-191"), Some(128));
        for wrong in ["", "a", "3-1", "0-18446744073709551615"] {
            assert_eq!(listed(wrong), None, "{wrong}");
        }
        assert!(of_machine() >= at_once());
    }

    #[test]
    fn threads_of_a_core_stand_together_as_far_as_this_process_may_run_on_them() {
        let siblings = |p: usize| Some(format!("{},{}\n", p % 4, p % 4 + 4));
        let core = |processors: &[usize]| set(processors);
        let all = set(&[0, 1, 2, 3, 4, 5, 6, 7]);
        let four = [core(&[0, 4]), core(&[1, 5]), core(&[2, 6]), core(&[3, 7])];
        assert_eq!(by_core(all, siblings), four);
        assert_eq!(
            by_core(set(&[1, 4, 5]), siblings),
            [core(&[1, 5]), core(&[4])]
        );
        let alone = [core(&[2]), core(&[9])];
        assert_eq!(by_core(set(&[2, 9]), |_| None), alone);
        assert_eq!(by_core(set(&[2, 9]), |_| Some("nonsense".into())), alone);
        assert_eq!(
            by_core(set(&[0, 1]), |_| Some("0-3".into())),
            [core(&[0, 1])]
        );
        let own: Vec<usize> = cores().iter().flat_map(|core| core.each()).collect();
        assert_eq!(own.len(), allowed_processors().len());
    }

    /// Which of the ranks are crowded.
    fn crowded(ranks: &[&[usize]]) -> Vec<usize> {
        let sets: Vec<_> = ranks.iter().map(|r| set(r)).collect();
        let is = |own: &usize| is_crowded(*own, &sets, sets[*own].count());
        (0..ranks.len()).filter(is).collect()
    }

    #[test]
    fn ranks_on_processors_of_their_own_are_not_crowded() {
        assert!(crowded(&[&[0], &[1]]).is_empty());
        assert!(crowded(&[&[0, 1], &[0, 1]]).is_empty());
        assert!(crowded(&[&[0, 1], &[0]]).is_empty(), "the first can go");
        assert!(crowded(&[&[0, 1], &[1, 2], &[0]]).is_empty(), "both move");
        assert!(crowded(&[&[1023], &[63], &[64]]).is_empty());
    }

    #[test]
    fn more_ranks_than_processors_are_wherever_they_are_bound() {
        assert_eq!(crowded(&[&[0], &[0]]), [0, 1]);
        assert_eq!(crowded(&[&[0, 1], &[0, 1], &[0, 1]]), [0, 1, 2]);
        // Two share one, and the others are not concerned.
        assert_eq!(crowded(&[&[5], &[0], &[5], &[1, 2]]), [0, 2]);
        // One that may run anywhere goes where nobody is.
        assert_eq!(crowded(&[&[0], &[0], &[0, 1, 2]]), [0, 1]);
        assert_eq!(crowded(&[&[0, 1], &[0], &[1]]), [0, 1, 2]);
    }

    #[test]
    fn where_little_is_known_it_is_counted() {
        let unknown = Processors::default();
        assert!(is_crowded(0, &[unknown, set(&[1])], 1));
        assert!(!is_crowded(0, &[unknown, set(&[1])], 2));
        // A control group leaves two processors of four.
        let four = set(&[0, 1, 2, 3]);
        assert!(!is_crowded(0, &[four, four], 2));
        assert!(is_crowded(0, &[four, four, four], 2));
    }

    /// Against all ways of giving processors away.
    #[test]
    fn random_sets_are_judged_as_by_trying_everything() {
        fn fit(ranks: &[Processors], used: u64) -> bool {
            let Some((first, rest)) = ranks.split_first() else {
                return true;
            };
            (first.each()).any(|p| used & (1 << p) == 0 && fit(rest, used | 1 << p))
        }
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..2000 {
            let ranks: Vec<_> = (0..rng.usize(1..6))
                .map(|_| {
                    let some: Vec<_> = (0..5).filter(|_| rng.u8(..3) == 0).collect();
                    set(if some.is_empty() { &[0] } else { &some })
                })
                .collect();
            // A rank is crowded if some too small set of processors is all that it and others have.
            let is = |own: usize| {
                (0u32..1 << ranks.len()).any(|chosen| {
                    let of: Vec<_> = (0..ranks.len())
                        .filter(|r| chosen & (1 << r) != 0)
                        .collect();
                    let union = of.iter().fold(0, |u, r| u | ranks[*r].0[0]);
                    of.contains(&own) && (union.count_ones() as usize) < of.len()
                })
            };
            let any = (0..ranks.len()).any(is);
            assert_eq!(any, !fit(&ranks, 0));
            let judged: Vec<_> = (0..ranks.len())
                .filter(|r| is_crowded(*r, &ranks, ranks[*r].count()))
                .collect();
            assert_eq!(judged.is_empty(), !any, "{ranks:?}");
            for own in judged {
                assert!(is(own), "{own} of {ranks:?}");
            }
        }
    }
}
