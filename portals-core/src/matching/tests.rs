//! The list with its index against a plain vector, and the parts on their own.

use super::*;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use proptest::prelude::*;

#[derive(Clone, Copy)]
struct By<F>(F);

impl<T, F: Copy + Fn(MdHandle) -> Option<T>> Take<T> for By<F> {
    fn of(&self, md: MdHandle) -> Option<T> {
        self.0(md)
    }
}

const PORTALS: usize = 2;

/// Where the next entry goes.
#[derive(Clone, Copy, Debug)]
enum At {
    Head,
    Tail,
    Before(usize),
    After(usize),
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Add(u32, At, Spec),
    /// Many entries at one place, so that lists grow and labels get narrow.
    Many(u32, At, Spec, usize),
    Remove(usize),
    /// All but a few go, so that indexes are dropped and made again.
    Shrink(u32, usize),
    /// Whether an entry's descriptor takes messages.
    Willing(usize, bool),
    Message(u32, ProcessId, u64),
}

#[derive(Clone, Copy, Debug)]
struct Spec {
    id: ProcessId,
    bits: u64,
    ignore: u64,
    willing: bool,
}

impl Spec {
    fn admits(&self, from: ProcessId, bits: u64) -> bool {
        let same = |rule: u32, id: u32| rule == ANY || rule == id;
        same(self.id.nid, from.nid)
            && same(self.id.pid, from.pid)
            && (0..64).all(|b| (self.ignore >> b | !((self.bits ^ bits) >> b)) & 1 == 1)
    }
}

fn spec() -> impl Strategy<Value = Spec> {
    let half = || prop_oneof![2 => 0..3u32, 1 => Just(ANY)];
    let ignore = prop_oneof![6 => Just(0), 1 => Just(1u64), 1 => Just(!0), 1 => 0..8u64];
    (half(), half(), 0..6u64, ignore, prop::bool::weighted(0.8)).prop_map(
        |(nid, pid, bits, ignore, willing)| Spec {
            id: ProcessId::new(nid, pid),
            bits,
            ignore,
            willing,
        },
    )
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![
        1 => Just(At::Head),
        2 => Just(At::Tail),
        2 => any::<usize>().prop_map(At::Before),
        2 => any::<usize>().prop_map(At::After),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let pt = || 0..PORTALS as u32;
    // An initiator whose id is a wildcard does not exist, but a hostile header may say so.
    let half = || prop_oneof![9 => 0..4u32, 1 => Just(ANY)];
    prop_oneof![
        6 => (pt(), at(), spec()).prop_map(|(p, a, s)| Step::Add(p, a, s)),
        1 => (pt(), at(), spec(), 2..40usize).prop_map(|(p, a, s, n)| Step::Many(p, a, s, n)),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => (pt(), 0..20usize).prop_map(|(p, n)| Step::Shrink(p, n)),
        2 => (any::<usize>(), any::<bool>()).prop_map(|(i, w)| Step::Willing(i, w)),
        8 => (0..PORTALS as u32 + 1, half(), half(), 0..7u64)
            .prop_map(|(p, nid, pid, bits)| Step::Message(p, ProcessId::new(nid, pid), bits)),
    ]
}

/// The list as the specification says it, with the table under test.
struct Pair {
    table: MatchTable,
    lists: [Vec<(MeHandle, Spec)>; PORTALS],
    /// Whether the table keeps an index.
    indexed: [bool; PORTALS],
    /// Sets of ignored bits that the index has buckets for.
    masks: [Vec<u64>; PORTALS],
    dead: Vec<MeHandle>,
    refusing: BTreeSet<MdHandle>,
}

/// The descriptor of an entry in these tests.
fn md(me: MeHandle) -> MdHandle {
    MdHandle::from_raw(me.raw())
}

impl Pair {
    fn new() -> Self {
        Self {
            table: MatchTable::new(3, PORTALS),
            lists: [Vec::new(), Vec::new()],
            indexed: [false; PORTALS],
            masks: [Vec::new(), Vec::new()],
            dead: Vec::new(),
            refusing: BTreeSet::new(),
        }
    }

    /// The portal and position of the `i`th of all entries, counted round.
    fn find(&self, i: usize) -> Option<(usize, usize)> {
        let i = i.checked_rem(self.lists.iter().map(Vec::len).sum())?;
        let first = self.lists[0].len();
        Some(if i < first { (0, i) } else { (1, i - first) })
    }

    fn add(&mut self, pt: u32, at: At, spec: Spec) {
        let list = &mut self.lists[pt as usize];
        let len = list.len();
        let me = Me::new(spec.id, spec.bits, spec.ignore, Unlink::Retain, pt);
        let (i, handle) = match at {
            At::Before(i) if len > 0 => (
                i % len,
                self.table.insert_before(list[i % len].0.0.slot(), me),
            ),
            At::After(i) if len > 0 => (
                i % len + 1,
                self.table.insert_after(list[i % len].0.0.slot(), me),
            ),
            At::Head => (0, self.table.push_front(me)),
            _ => (len, self.table.push_back(me)),
        };
        let handle = handle.unwrap();
        list.insert(i, (handle, spec));
        self.note(pt as usize);
        self.attach(handle, spec.willing);
    }

    /// An unwilling entry has no descriptor, or one that takes nothing.
    fn attach(&mut self, me: MeHandle, willing: bool) {
        self.refusing.remove(&md(me));
        if !willing && me.raw().is_multiple_of(2) {
            return self.table.set_md(me, None);
        }
        if !willing {
            self.refusing.insert(md(me));
        }
        self.table.set_md(me, Some(md(me)));
    }

    fn remove(&mut self, pt: usize, i: usize) {
        let (handle, _) = self.lists[pt].remove(i);
        assert!(self.table.remove(handle).is_some());
        self.dead.push(handle);
        self.note(pt);
    }

    /// The first few sets of ignored bits that come up while there is an index have buckets, in the order of the list
    /// when it is made.
    fn note(&mut self, pt: usize) {
        match self.lists[pt].len() {
            n if n <= SHORT => {
                self.indexed[pt] = false;
                self.masks[pt].clear();
            }
            _ => {}
        }
        if self.indexed[pt] {
            for (_, spec) in &self.lists[pt] {
                let masks = &mut self.masks[pt];
                if spec.ignore != 0 && !masks.contains(&spec.ignore) && masks.len() < index::MASKS {
                    masks.push(spec.ignore);
                }
            }
        }
    }

    /// The first willing entry that admits the message, and the entries a search looks at: in a
    /// list without an index all before it, in another those it cannot exclude by their key.
    fn expected(&self, pt: u32, from: ProcessId, bits: u64) -> Option<(MeHandle, u32)> {
        let mut looked = 0;
        for (handle, s) in self.lists.get(pt as usize)? {
            let admits = s.admits(from, bits);
            let pt = pt as usize;
            let keyed = s.ignore == 0 || self.masks[pt].contains(&s.ignore);
            looked += u32::from(!self.indexed[pt] || !keyed || admits);
            if admits && s.willing {
                return Some((*handle, looked));
            }
        }
        None
    }

    fn message(&mut self, pt: u32, from: ProcessId, bits: u64) {
        let refusing = &self.refusing;
        let found = self.table.search(
            pt,
            from,
            bits,
            By(|md| (!refusing.contains(&md)).then_some(md)),
        );
        let expected = self.expected(pt, from, bits);
        assert_eq!(found, expected.map(|(me, looked)| (md(me), looked)));
        if found.is_none_or(|(_, looked)| looked > WALKED) {
            self.table.searched(pt);
            let long = |list: &Vec<_>| list.len() > WALKED as usize;
            if self.lists.get(pt as usize).is_some_and(long) {
                self.indexed[pt as usize] = true;
                self.note(pt as usize);
            }
        }
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Add(pt, at, spec) => self.add(pt, at, spec),
            Step::Many(pt, at, spec, n) => {
                for i in 0..n as u64 {
                    let bits = spec.bits + i % 5;
                    self.add(pt, at, Spec { bits, ..spec });
                }
            }
            Step::Remove(i) => {
                if let Some((pt, i)) = self.find(i) {
                    self.remove(pt, i);
                }
            }
            Step::Shrink(pt, keep) => {
                while self.lists[pt as usize].len() > keep {
                    let i = self.lists[pt as usize].len() * 7 / 10;
                    self.remove(pt as usize, i);
                }
            }
            Step::Willing(i, willing) => {
                if let Some((pt, i)) = self.find(i) {
                    let (handle, spec) = &mut self.lists[pt][i];
                    spec.willing = willing;
                    let handle = *handle;
                    self.attach(handle, willing);
                }
            }
            Step::Message(pt, from, bits) => self.message(pt, from, bits),
        }
    }

    /// Everything the table keeps beside the entries agrees with them.
    fn check(&self) {
        for (pt, list) in self.lists.iter().enumerate() {
            let walked: Vec<_> = self.table.walk(pt as u32).collect();
            assert!(walked.iter().map(|w| w.0).eq(list.iter().map(|l| l.0)));
            assert_eq!(self.table.list_len(pt as u32), list.len());
            let index = &self.table.lists[pt].index;
            assert_eq!(index.is_some(), self.indexed[pt]);
            if let Some(index) = index {
                assert!(walked.is_sorted_by(|a, b| a.1.label < b.1.label));
                for (me, spec) in list {
                    let (id, bits) = (spec.id, spec.bits);
                    assert_eq!(self.table.keys[me.0.slot() as usize], Key { id, bits });
                }
                assert_eq!(index.check(&self.table.entries), list.len());
            }
        }
        for dead in &self.dead {
            assert!(self.table.get(*dead).is_none());
        }
        let all = self.lists.iter().map(Vec::len).sum::<usize>();
        assert_eq!(self.table.count(), all);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    /// Rule 5: the first in list order, always.
    #[test]
    fn finds_what_a_walk_finds(steps in prop::collection::vec(step(), 1..120)) {
        let mut pair = Pair::new();
        for s in steps {
            pair.run(s);
        }
        pair.check();
        for pt in 0..PORTALS as u32 {
            for n in 0..48 {
                pair.message(pt, ProcessId::new(n % 4, n / 4 % 3), u64::from(n % 7));
            }
        }
    }
}

fn willing(id: ProcessId, bits: u64, ignore: u64) -> Me {
    let mut me = Me::new(id, bits, ignore, Unlink::Retain, 0);
    me.md = Some(MdHandle::of(0, 0, 0));
    me
}

fn exact(nid: u32, bits: u64) -> Me {
    willing(ProcessId::new(nid, 1), bits, 0)
}

fn looked(table: &mut MatchTable, nid: u32, bits: u64) -> Option<u32> {
    let found = table.search(0, ProcessId::new(nid, 1), bits, By(|_| Some(())));
    if found.is_none_or(|(_, looked)| looked > WALKED) {
        table.searched(0);
    }
    found.map(|((), looked)| looked)
}

/// A search in vain, of a list that is long enough.
fn make_index(table: &mut MatchTable) {
    assert_eq!(looked(table, ANY - 1, u64::MAX), None);
    assert!(table.lists[0].index.is_some());
}

#[test]
fn an_exact_entry_is_found_at_once_among_100_000() {
    let mut table = MatchTable::new(0, 1);
    for i in 0..100_000 {
        table.push_back(exact(i % 10, u64::from(i / 10))).unwrap();
    }
    make_index(&mut table);
    assert_eq!(looked(&mut table, 9, 9_999), Some(1));
    assert_eq!(looked(&mut table, 0, 0), Some(1));
    assert_eq!(looked(&mut table, 0, 10_000), None);
    // Entries that ignore bits are found by those that they compare.
    let masked = |bits| willing(ProcessId::ANY, bits, 1);
    table.push_front(masked(1 << 40)).unwrap();
    table.push_back(masked(1 << 50)).unwrap();
    assert_eq!(looked(&mut table, 5, 5_000), Some(1));
    assert_eq!(looked(&mut table, 5, 1 << 50), Some(1));
    assert_eq!(looked(&mut table, 5, 1 | 1 << 40), Some(1));
    // Of many ways to ignore bits the last ones are looked at one by one, those after the right one are not.
    for i in 0..20 {
        table
            .push_front(willing(ProcessId::ANY, 1 << 40, 2 << i))
            .unwrap();
        table
            .push_back(willing(ProcessId::ANY, 1 << 40, 2 << i))
            .unwrap();
    }
    assert_eq!(looked(&mut table, 5, 5_000), Some(1 + 15));
}

#[test]
fn an_entry_that_ignores_bits_is_found_at_once_among_100_000() {
    let mut table = MatchTable::new(0, 1);
    // Receives as MPI has them: exact but for a protocol's bit, of any source, of any tag.
    for i in 0..100_000u64 {
        let from = |nid| ProcessId::new(nid, 1);
        let me = match i % 4 {
            0 | 1 => willing(from(i as u32 % 10), i << 8, 1),
            2 => willing(ProcessId::ANY, i << 8, 1),
            _ => willing(from(i as u32 % 10), i << 40, 0xff_ffff_ff01),
        };
        table.push_back(me).unwrap();
    }
    make_index(&mut table);
    for i in [0u64, 1, 2, 3, 50_000, 99_998, 99_999] {
        let bits = if i % 4 == 3 {
            i << 40 | 0x1234 << 8
        } else {
            i << 8 | 1
        };
        assert_eq!(looked(&mut table, i as u32 % 10, bits), Some(1), "{i}");
    }
    assert_eq!(looked(&mut table, 0, 1 << 2), None);
}

/// The farthest group stays near home however the keys are made.
#[test]
fn no_pattern_of_keys_crowds_the_table() {
    let patterns: [fn(u64) -> (u32, u64); 6] = [
        |i| (0, i),
        |i| (i as u32, 0),
        |i| (0, i << 48),
        |i| (i as u32, i),
        |i| ((i as u32).reverse_bits(), i << 32),
        |i| (i as u32 % 16, (i / 16).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    ];
    for (n, pattern) in patterns.iter().enumerate() {
        let mut table = MatchTable::new(n as u8, 1);
        for i in 0..20_000 {
            let (nid, bits) = pattern(i);
            table.push_back(exact(nid, bits)).unwrap();
            if i == 40 {
                make_index(&mut table);
            }
        }
        let index = table.lists[0].index.as_ref().unwrap();
        assert!(index.farthest() <= 64, "pattern {n}: {}", index.farthest());
        assert_eq!(index.check(&table.entries), 20_000);
    }
}

/// Keys chosen against the first seed: every one at home in the same 32 cells.
#[test]
fn keys_that_meet_are_scattered_by_another_seed() {
    let mut table = MatchTable::new(0, 1);
    let mut made = 0;
    for bits in 0.. {
        if made == 600 {
            break;
        }
        let me = exact(1, bits);
        if buckets::Buckets::new(0).home(&me) % (1 << 11) < 32 {
            table.push_back(me).unwrap();
            made += 1;
            if made == 40 {
                make_index(&mut table);
            }
        }
    }
    let index = table.lists[0].index.as_ref().unwrap();
    assert!(index.farthest() < 40, "{}", index.farthest());
    assert_eq!(index.check(&table.entries), 600);
}

/// Equal keys, put in at the same place again and again: the worst for labels and for a list
/// that is searched for its place.
#[test]
fn insertion_at_one_place_costs_little() {
    const N: u64 = 30_000;
    type Place = fn(&mut MatchTable, [MeHandle; 2], Me) -> Option<MeHandle>;
    let places: [Place; 4] = [
        |t, [first, _], me| t.insert_after(first.0.slot(), me),
        |t, [_, last], me| t.insert_before(last.0.slot(), me),
        |t, _, me| t.push_front(me),
        |t, _, me| t.push_back(me),
    ];
    for (n, place) in places.iter().enumerate() {
        let mut table = MatchTable::new(0, 1);
        let ends = [(); 2].map(|()| table.push_back(exact(1, 1)).unwrap());
        let mut order = Vec::new();
        for i in 0..N {
            order.push(place(&mut table, ends, exact(1, 1)).unwrap());
            if i == 40 {
                make_index(&mut table);
            }
        }
        let labels: Vec<_> = table.walk(0).map(|(_, me)| me.label).collect();
        assert_eq!(labels.len() as u64, N + 2);
        assert!(labels.is_sorted_by(|a, b| a < b), "place {n}");
        if n == 0 || n == 2 {
            order.reverse();
        }
        let mut walked: Vec<_> = table.walk(0).map(|(h, _)| h).collect();
        walked.retain(|h| !ends.contains(h));
        assert_eq!(walked, order);
        let index = table.lists[0].index.as_ref().unwrap();
        assert_eq!(index.check(&table.entries), labels.len());
        let height = index.tallest(&table.entries);
        assert!(height < 60, "place {n}: height {height}");
    }
}

/// The number of entries labelled anew for each insertion grows like the logarithm of the list.
#[test]
fn labelling_anew_is_rare() {
    const N: u32 = 20_000;
    for ahead in [false, true] {
        let mut entries: Table<Me> = Table::new();
        let (slot, _) = entries.insert(exact(1, 1)).unwrap();
        // Ends whose labels are next to each other, so that there is no room from the start.
        let ends = [slot, entries.insert(exact(1, 1)).unwrap().0];
        entries.at_mut(ends[0]).unwrap().label = 5;
        entries.at_mut(ends[1]).unwrap().label = 6;
        entries.at_mut(ends[0]).unwrap().next = ends[1];
        entries.at_mut(ends[1]).unwrap().prev = ends[0];
        let (mut prev, mut next) = (ends[0], ends[1]);
        let mut moved_in_all = 0;
        for i in 0..N {
            let (label, moved) = order::between(&mut entries, prev, next);
            assert!(i > 0 || moved > 0);
            moved_in_all += moved;
            let mut me = exact(1, 1);
            (me.label, me.prev, me.next) = (label, prev, next);
            let (slot, _) = entries.insert(me).unwrap();
            entries.at_mut(prev).unwrap().next = slot;
            entries.at_mut(next).unwrap().prev = slot;
            assert!(entries.at(prev).unwrap().label < label);
            assert!(label < entries.at(next).unwrap().label);
            if ahead { next = slot } else { prev = slot }
        }
        assert!(moved_in_all < N * 32, "{moved_in_all}");
        let mut at = ends[0];
        let mut count = 1;
        while at != ends[1] {
            let me = entries.at(at).unwrap();
            assert!(me.label < entries.at(me.next).unwrap().label);
            at = me.next;
            count += 1;
        }
        assert_eq!(count, N + 2);
    }
}

#[test]
fn labels_at_both_ends_of_the_numbers_make_room() {
    for (label, front) in [
        (0, true),
        (1, true),
        (u64::MAX, false),
        (u64::MAX - 1, false),
    ] {
        let mut entries: Table<Me> = Table::new();
        let (slot, _) = entries.insert(exact(1, 1)).unwrap();
        entries.at_mut(slot).unwrap().label = label;
        let ends = if front { (NONE, slot) } else { (slot, NONE) };
        let (new, _) = order::between(&mut entries, ends.0, ends.1);
        let old = entries.at(slot).unwrap().label;
        assert!(if front { new < old } else { old < new }, "{new} {old}");
    }
}

/// An index that is made of a long list is the one that grew with it.
#[test]
fn an_index_can_be_made_late() {
    let mut table = MatchTable::new(0, 1);
    for i in 0..20_000u64 {
        let bits = i * 7 % 1000;
        let ignore = [0, 1, 0xff][i as usize % 3];
        let me = willing(ProcessId::new(1, 1), bits << 8, ignore);
        if i % 2 == 0 {
            table.push_back(me).unwrap();
        } else {
            table.push_front(me).unwrap();
        }
    }
    make_index(&mut table);
    let labels: Vec<_> = table.walk(0).map(|(_, me)| me.label).collect();
    assert!(labels.is_sorted_by(|a, b| a < b));
    let index = table.lists[0].index.as_ref().unwrap();
    assert_eq!(index.check(&table.entries), 20_000);
    assert!(index.tallest(&table.entries) < 60);
}

#[test]
fn an_index_exists_from_a_long_search_until_the_list_is_short() {
    let mut table = MatchTable::new(0, 1);
    let entries: Vec<_> = (0..33)
        .map(|i| table.push_back(exact(1, i)).unwrap())
        .collect();
    // Among the first the entry is found by a walk.
    assert_eq!(looked(&mut table, 1, 31), Some(32));
    assert!(table.lists[0].index.is_none());
    assert_eq!(looked(&mut table, 1, 32), Some(33));
    assert!(table.lists[0].index.is_some());
    assert_eq!(looked(&mut table, 1, 32), Some(1));
    assert_eq!(looked(&mut table, 1, 31), Some(1));
    for (i, me) in entries.iter().enumerate() {
        assert_eq!(table.lists[0].index.is_some(), i < 17, "{i}");
        table.remove(*me).unwrap();
    }
    let mut walker = MatchTable::new(0, 1);
    walker.walk_always();
    for i in 0..100 {
        walker.push_back(exact(1, i)).unwrap();
    }
    assert_eq!(looked(&mut walker, 1, 99), Some(100));
    assert_eq!(looked(&mut walker, 1, 100), None);
    assert!(walker.lists[0].index.is_none());
}
