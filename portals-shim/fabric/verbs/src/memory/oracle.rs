//! Random use of the registry beside a naive one that forgets nothing and searches everything.

use super::*;
use fabric_api::region::mapping_of;
use std::collections::BTreeSet;

const PAGE: u64 = 4096;
/// Pages of a mapping, of the budget, and of the memory that is nobody's mapping.
const MAPPING: u64 = 16;
const BUDGET: u64 = 24;
const FOREIGN: u64 = 16;
const MAPPINGS: usize = 4;
/// Descriptors at a time.
const MOST: usize = 8;
const STEPS: u32 = 20_000;

const PURPOSES: [Use; 6] = [
    Use::Local,
    Use::Landing,
    Use::Source,
    Use::OpenPut,
    Use::OpenGet,
    Use::Open,
];

/// A descriptor of the program: its memory, and the mapping that holds it.
#[derive(Clone, Copy, Debug)]
struct Md {
    region: Segment,
    /// Index and number of the mapping, if it is one.
    mapping: Option<(usize, u64)>,
}

/// A registration as the naive registry sees it.
#[derive(Clone, Debug)]
struct Known {
    memory: Segment,
    purpose: Use,
    /// Number of the mapping, counted by the test.
    mapping: Option<u64>,
    users: BTreeSet<(MdHandle, Use)>,
    used: u64,
    locked: bool,
}

fn covers(outer: Segment, inner: Segment) -> bool {
    outer.addr <= inner.addr && end(&inner) <= end(&outer)
}

/// Memory of the library's own is registered once for sources and destinations, but by the rules of iWARP.
fn registered_as(purpose: Use, m: &Md, strict: bool) -> Use {
    match (purpose, m.mapping) {
        (Use::Local, Some(_)) if !strict => Use::Landing,
        _ => purpose,
    }
}

#[derive(Debug, Default)]
struct Naive {
    known: Vec<Known>,
    clock: u64,
    /// The device takes faults.
    faults: bool,
    /// By the rules of iWARP.
    strict: bool,
}

impl Naive {
    fn held(&self) -> u64 {
        let locked = self.known.iter().filter(|k| k.locked);
        locked.map(|k| k.memory.len).sum()
    }

    fn of(&self, user: (MdHandle, Use)) -> Option<usize> {
        self.known.iter().position(|k| k.users.contains(&user))
    }

    /// Drops the idle registration whose last use is longest ago.
    fn evict(&mut self) -> bool {
        let idle = |k: &&Known| k.users.is_empty();
        let Some(oldest) = self.known.iter().filter(idle).map(|k| k.used).min() else {
            return false;
        };
        self.known.retain(|k| k.used != oldest);
        true
    }

    fn leave(&mut self, user: (MdHandle, Use)) {
        for k in &mut self.known {
            k.users.remove(&user);
        }
        let stays = |k: &Known| k.purpose.is_private() && k.mapping.is_some();
        self.known.retain(|k| !k.users.is_empty() || stays(k));
    }

    /// What the registry should do; `taken` is the memory that it found, where several registrations would do.
    fn of_md(&mut self, md: MdHandle, m: &Md, purpose: Use, taken: Option<Segment>) -> bool {
        self.clock += 1;
        let (now, user) = (self.clock, (md, purpose));
        let mapping = m.mapping.map(|(_, number)| number);
        let own = self.of(user);
        if let Some(at) = own.filter(|at| covers(self.known[*at].memory, m.region)) {
            self.known[at].used = now;
            return true;
        }
        let shared = mapping.is_some() && purpose.is_private();
        let purpose = registered_as(purpose, m, self.strict);
        let alike = |k: &Known| k.purpose == purpose && k.mapping == mapping;
        let mut fitting = self
            .known
            .iter()
            .enumerate()
            .filter(|(_, k)| shared && alike(k) && covers(k.memory, m.region));
        let several: Vec<usize> = fitting.by_ref().map(|(at, _)| at).collect();
        let chosen = several
            .iter()
            .copied()
            .find(|at| Some(self.known[*at].memory) == taken);
        assert_eq!(
            chosen.is_some(),
            !several.is_empty(),
            "one that fits is used"
        );
        let mut memory = m.region;
        if chosen.is_none() {
            let touching = |k: &Known, memory: Segment| {
                shared
                    && alike(k)
                    && k.users.is_empty()
                    && k.memory.addr <= end(&memory)
                    && memory.addr <= end(&k.memory)
            };
            while let Some(at) = self.known.iter().position(|k| touching(k, memory)) {
                let other = self.known.remove(at).memory;
                let start = memory.addr.min(other.addr);
                memory = Segment {
                    addr: start,
                    len: end(&memory).max(end(&other)) - start,
                };
            }
            let full = |naive: &Self| naive.held() + memory.len > BUDGET * PAGE;
            while full(self) && self.evict() {}
            let locked = !full(self);
            if !locked && !self.faults {
                return false;
            }
            self.known.push(Known {
                locked,
                memory,
                purpose,
                mapping,
                users: BTreeSet::new(),
                used: now,
            });
        }
        let at = chosen.unwrap_or(self.known.len() - 1);
        self.known[at].used = now;
        // Before the old one is left, whose end would move the others.
        let own_use = (MdHandle::from_raw(0), purpose);
        if self.known[at].users.is_empty() {
            self.known[at].users.insert(own_use);
        }
        self.leave(user);
        let at = self.known.iter().position(|k| k.used == now);
        let entry = &mut self.known[at.expect("it is in use")];
        entry.users.remove(&own_use);
        entry.users.insert(user);
        true
    }

    /// `mapping` is the number of the live mapping that holds memory.
    fn prune(&mut self, alive: &BTreeMap<u32, Md>, mapping: impl Fn(Segment) -> Option<u64>) {
        let users: Vec<_> = self.known.iter().flat_map(|k| k.users.clone()).collect();
        for user in users {
            if !alive.contains_key(&user.0.raw()) {
                self.leave(user);
            }
        }
        self.known
            .retain(|k| !k.users.is_empty() || mapping(k.memory) == k.mapping);
    }
}

/// Everything that both know.
fn compare(registry: &Registry, naive: &Naive) {
    let mut real: Vec<_> = registry
        .entries
        .iter()
        .map(|(_, e)| {
            (
                e.mr.address() as u64,
                e.mr.length() as u64,
                e.purpose,
                e.users,
                e.locked > 0,
            )
        })
        .collect();
    let mut expected: Vec<_> = naive
        .known
        .iter()
        .map(|k| {
            let Segment { addr, len } = k.memory;
            (addr, len, k.purpose, k.users.len(), k.locked)
        })
        .collect();
    real.sort_unstable();
    expected.sort_unstable();
    assert_eq!(real, expected);
    assert_eq!(registry.held, naive.held());
    assert!(registry.held <= BUDGET * PAGE, "over the budget");
}

type Mappings = [Option<(u64, Region)>; MAPPINGS];

/// Both hear which descriptors there are.
fn prune(registry: &mut Registry, naive: &mut Naive, mds: &BTreeMap<u32, Md>, mappings: &Mappings) {
    registry.prune(|md| mds.contains_key(&md.raw()), |_| false);
    naive.prune(mds, |memory| {
        let holds = |r: &Region| {
            let whole = Segment {
                addr: r.addr(),
                len: r.len() as u64,
            };
            covers(whole, memory)
        };
        let mut live = mappings.iter().flatten();
        live.find(|(_, r)| holds(r)).map(|(number, _)| *number)
    });
}

#[test]
fn device_the_registry_does_what_a_naive_one_does() {
    random_use(false, false);
}

/// A destination gives peers a right there, so that a source is registered for itself.
#[test]
fn device_the_registry_by_the_rules_of_iwarp_does_what_a_naive_one_does() {
    random_use(false, true);
}

/// What the budget refuses is registered without locking: here as any other, because SoftRoCE takes no faults.
#[test]
fn device_the_registry_of_a_device_that_takes_faults_does_what_a_naive_one_does() {
    random_use(true, false);
}

/// Mappings come and go, at addresses that were used before; descriptors are made, used and unlinked in any order.
fn random_use(faults: bool, strict: bool) {
    let Some(device) = super::super::tests::device() else {
        return;
    };
    let (device, _) = verbs_backend::Device::choose(Some(&device)).unwrap();
    let pd = Pd::new(&device).unwrap();
    let mut registry = Registry::new(pd, Some(BUDGET * PAGE), strict);
    registry.faults = faults.into();
    registry.unlocked = Access::empty();
    let mut naive = Naive {
        faults,
        strict,
        ..Naive::default()
    };
    let mut random = fastrand::Rng::with_seed(11);
    let foreign = vec![0u8; (FOREIGN * PAGE) as usize];
    let mut mappings: Mappings = [const { None }; MAPPINGS];
    let (mut made, mut next) = (0u64, 1u32);
    let mut mds: BTreeMap<u32, Md> = BTreeMap::new();
    let (mut refused, mut hits, mut again, mut unlocked) = (0, 0, 0, 0);
    let mut bases = BTreeSet::new();
    for _ in 0..STEPS {
        let at = random.usize(..MAPPINGS);
        match random.u32(..20) {
            0 => {
                if mappings[at].is_none() {
                    let region = Region::new((MAPPING * PAGE) as usize).unwrap();
                    again += u32::from(!bases.insert(region.addr()));
                    made += 1;
                    mappings[at] = Some((made, region));
                }
            }
            1 => {
                // A program unlinks, and then unmaps what no descriptor needs; nobody tells the registry.
                let inside = |m: &Md| m.mapping.is_some_and(|(i, _)| i == at);
                mds.retain(|_, m| !inside(m));
                prune(&mut registry, &mut naive, &mds, &mappings);
                mappings[at] = None;
            }
            2..=4 if mds.len() < MOST => {
                let (pages, base, mapping) = match &mappings[at] {
                    Some((number, region)) => (MAPPING, region.addr(), Some((at, *number))),
                    None => (FOREIGN, foreign.as_ptr().addr() as u64, None),
                };
                // On and off the bounds of pages.
                let first = random.u64(..pages * PAGE);
                let len = random.u64(1..=(pages * PAGE - first).min(6 * PAGE));
                let region = Segment {
                    addr: base + first,
                    len,
                };
                mds.insert(next, Md { region, mapping });
                next += 1;
            }
            5..=6 => {
                let keys: Vec<u32> = mds.keys().copied().collect();
                if let Some(key) = random.choice(keys) {
                    mds.remove(&key);
                    prune(&mut registry, &mut naive, &mds, &mappings);
                }
            }
            _ => {
                let keys: Vec<u32> = mds.keys().copied().collect();
                let Some(key) = random.choice(keys) else {
                    continue;
                };
                let (md, m) = (MdHandle::from_raw(key), mds[&key]);
                let purpose = PURPOSES[random.usize(..PURPOSES.len())];
                let before = registry.clock;
                let keys = registry.of_md(md, (m.region, 1), purpose);
                assert_eq!(registry.clock, before + 1);
                let entry = keys.as_ref().ok().map(|keys| {
                    let at = registry.by_md[&(md, purpose)][0];
                    let entry = registry.entries.get_mut(at).unwrap();
                    assert_eq!(*keys, (entry.mr.rkey(), entry.mr.lkey()));
                    assert!(
                        entry
                            .mr
                            .covers(m.region.addr as usize, m.region.len as usize)
                    );
                    assert_eq!(entry.purpose, registered_as(purpose, &m, strict));
                    assert_eq!(
                        entry.mapping,
                        mapping_of(m.region),
                        "of memory that is gone"
                    );
                    let memory = Segment {
                        addr: entry.mr.address() as u64,
                        len: entry.mr.length() as u64,
                    };
                    if !purpose.is_private() {
                        assert_eq!(memory, m.region, "rights to exactly the descriptor");
                    }
                    memory
                });
                let count = naive.known.len();
                let expected = naive.of_md(md, &m, purpose, entry);
                assert_eq!(keys.is_ok(), expected, "{keys:?}");
                refused += u32::from(!expected);
                unlocked += naive.known.iter().filter(|k| !k.locked).count();
                hits += u32::from(expected && naive.known.len() == count);
            }
        }
        compare(&registry, &naive);
    }
    println!(
        "{STEPS} steps: {hits} times nothing new, {refused} times no room, {unlocked} times one not locked, {again} \
         mappings where one was before"
    );
    assert!(hits > 100 && again > 10, "every way was gone");
    assert_eq!(
        (refused > 100, unlocked > 100),
        (!faults, faults),
        "what finds no room"
    );
    registry.clear();
    assert_eq!(registry.held, 0);
}
