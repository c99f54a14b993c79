//! Records by unit, of which some stand in a queue in the order they came idle.

use crate::Unit;

/// Of a record that does not stand in the queue's middle, and behind the last of a chain.
const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Node<V> {
    unit: Unit,
    /// The next record of its chain.
    chained: u32,
    before: u32,
    behind: u32,
    queued: bool,
    value: V,
}

/// Records by unit, and a queue of some of them; every operation takes constant time. A record is found by a few loads
/// and no vector instructions, since each put to memory that is held looks for one.
#[derive(Clone, Debug)]
pub(crate) struct Table<V> {
    /// The first record of each chain; as many as a power of two, and at least as many as there are records.
    chains: Vec<u32>,
    nodes: Vec<Option<Node<V>>>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
    queued: u32,
}

/// Where a record is; good until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot(u32);

impl<V> Default for Table<V> {
    fn default() -> Self {
        Self {
            chains: Vec::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
            queued: 0,
        }
    }
}

impl<V> Table<V> {
    /// The chain of `unit`, where there are any. One multiplication: units are small numbers of our own making or a
    /// peer's, who only slows itself.
    #[inline(always)]
    fn chain(&self, unit: Unit) -> usize {
        let mixed = unit.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        mixed as usize & self.chains.len().wrapping_sub(1)
    }

    #[inline(always)]
    pub(crate) fn find(&self, unit: Unit) -> Option<Slot> {
        let mut at = *self.chains.get(self.chain(unit))?;
        while let Some(Some(node)) = self.nodes.get(at as usize) {
            if node.unit == unit {
                return Some(Slot(at));
            }
            at = node.chained;
        }
        None
    }

    #[inline(always)]
    fn node(&mut self, slot: u32) -> Option<&mut Node<V>> {
        self.nodes.get_mut(slot as usize)?.as_mut()
    }

    #[inline(always)]
    pub(crate) fn at(&self, slot: Slot) -> Option<&V> {
        Some(&self.nodes.get(slot.0 as usize)?.as_ref()?.value)
    }

    #[inline(always)]
    pub(crate) fn at_mut(&mut self, slot: Slot) -> Option<&mut V> {
        Some(&mut self.node(slot.0)?.value)
    }

    /// The unit of a record.
    pub(crate) fn unit(&self, slot: Slot) -> Option<Unit> {
        Some(self.nodes.get(slot.0 as usize)?.as_ref()?.unit)
    }

    pub(crate) fn get(&self, unit: Unit) -> Option<&V> {
        self.at(self.find(unit)?)
    }

    pub(crate) fn get_mut(&mut self, unit: Unit) -> Option<&mut V> {
        let slot = self.find(unit)?;
        self.at_mut(slot)
    }

    /// A record for `unit`, which has none.
    pub(crate) fn insert(&mut self, unit: Unit, value: V) -> Slot {
        if self.len() >= self.chains.len() {
            self.rechain((2 * self.chains.len()).max(8));
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            (self.nodes.len() - 1) as u32
        });
        let chain = self.chain(unit);
        let chained = std::mem::replace(&mut self.chains[chain], at);
        self.nodes[at as usize] = Some(Node {
            unit,
            chained,
            before: NONE,
            behind: NONE,
            queued: false,
            value,
        });
        Slot(at)
    }

    fn rechain(&mut self, chains: usize) {
        self.chains = vec![NONE; chains];
        for at in 0..self.nodes.len() {
            let Some(unit) = self.unit(Slot(at as u32)) else {
                continue;
            };
            let chain = self.chain(unit);
            let chained = std::mem::replace(&mut self.chains[chain], at as u32);
            if let Some(node) = self.node(at as u32) {
                node.chained = chained;
            }
        }
    }

    pub(crate) fn remove(&mut self, unit: Unit) -> Option<V> {
        let slot = self.find(unit)?;
        self.unqueue(slot);
        let node = self.nodes.get_mut(slot.0 as usize)?.take()?;
        let chain = self.chain(unit);
        let first = self.chains[chain];
        if first == slot.0 {
            self.chains[chain] = node.chained;
        } else {
            let mut at = first;
            while let Some(before) = self.node(at) {
                if before.chained == slot.0 {
                    before.chained = node.chained;
                    break;
                }
                at = before.chained;
            }
        }
        self.free.push(slot.0);
        Some(node.value)
    }

    /// Puts a record at the end of the queue.
    #[inline(always)]
    pub(crate) fn queue(&mut self, slot: Slot) {
        let newest = self.newest;
        let Some(node) = self.node(slot.0).filter(|n| !n.queued) else {
            return;
        };
        (node.before, node.behind, node.queued) = (newest, NONE, true);
        match self.node(newest) {
            Some(last) => last.behind = slot.0,
            None => self.oldest = slot.0,
        }
        self.newest = slot.0;
        self.queued += 1;
    }

    /// Takes a record out of the queue, wherever it stands.
    #[inline(always)]
    pub(crate) fn unqueue(&mut self, slot: Slot) {
        let Some(node) = self.node(slot.0).filter(|n| n.queued) else {
            return;
        };
        node.queued = false;
        let (before, behind) = (node.before, node.behind);
        match self.node(before) {
            Some(n) => n.behind = behind,
            None => self.oldest = behind,
        }
        match self.node(behind) {
            Some(n) => n.before = before,
            None => self.newest = before,
        }
        self.queued -= 1;
    }

    pub(crate) fn is_queued(&self, slot: Slot) -> bool {
        let node = self.nodes.get(slot.0 as usize).and_then(Option::as_ref);
        node.is_some_and(|n| n.queued)
    }

    /// How many stand in the queue.
    pub(crate) fn queued(&self) -> u32 {
        self.queued
    }

    /// Units in the queue, the oldest first.
    pub(crate) fn queue_order(&self) -> impl Iterator<Item = Unit> {
        let mut at = self.oldest;
        std::iter::from_fn(move || {
            let node = self.nodes.get(at as usize)?.as_ref()?;
            at = node.behind;
            Some(node.unit)
        })
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - self.free.len()
    }

    /// Everything, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Unit, &V)> {
        self.nodes.iter().flatten().map(|n| (n.unit, &n.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_keeps_its_order_whatever_leaves_it() {
        let mut t = Table::default();
        let mut plain: Vec<Unit> = vec![];
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..20_000 {
            let unit = Unit(rng.u64(0..12));
            match (rng.u8(0..4), t.find(unit)) {
                (0, None) => {
                    t.insert(unit, unit.0);
                }
                (1, Some(slot)) => {
                    t.queue(slot);
                    if !plain.contains(&unit) {
                        plain.push(unit);
                    }
                }
                (2, Some(slot)) => {
                    t.unqueue(slot);
                    plain.retain(|u| *u != unit);
                }
                (3, Some(_)) => {
                    assert_eq!(t.remove(unit), Some(unit.0));
                    plain.retain(|u| *u != unit);
                }
                _ => {}
            }
            assert_eq!(t.queue_order().collect::<Vec<_>>(), plain);
            assert_eq!(t.queued() as usize, plain.len());
            assert_eq!(t.get(unit).copied(), t.find(unit).map(|_| unit.0));
        }
    }
}
