//! Messages that came before their receive, in the order of arrival. No I/O.
//!
//! # Invariants
//! * The list has every message that a receive may still take, and none that one has taken.
//! * A receive takes the first that it matches. A message whose data is still on its way has its place in the list by
//!   its START event, and whoever takes it waits.

use crate::layout::Pattern;

/// Where the data of a message is.
#[derive(Debug)]
pub(crate) enum Place {
    /// On its way.
    Arriving,
    /// In an overflow buffer.
    Buffer { buffer: u32, offset: usize },
    /// Out of the way of an overflow buffer.
    Own(Vec<u8>),
    /// Where the sender has it.
    AtSender,
    /// Nowhere any more.
    Lost(Loss),
}

/// Why data is nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The fabric failed.
    Fabric,
    /// The memory for it could not be written.
    Memory,
    /// There was no room, and the sender keeps nothing.
    NoRoom,
}

/// A message that came.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) bits: u64,
    pub(crate) source: u32,
    /// The sender's request, for one that it keeps.
    pub(crate) operation: u32,
    /// The receiver releases it.
    pub(crate) sync: bool,
    pub(crate) length: u64,
    pub(crate) place: Place,
    /// The request that waits for the rest of it.
    pub(crate) taker: Option<u32>,
    /// The sender knows that it is here.
    pub(crate) noted: bool,
}

/// A message of the slab; valid until it is removed.
pub(crate) type Id = u32;

#[derive(Debug)]
struct Entry {
    arrived: Option<Arrived>,
    previous: Option<Id>,
    next: Option<Id>,
    listed: bool,
    /// Its id is among those that wait for a note, perhaps of an earlier message.
    notable: bool,
    /// Of arrival.
    order: u64,
}

/// The messages.
#[derive(Debug, Default)]
pub(crate) struct Unexpected {
    slab: Vec<Entry>,
    free: Vec<Id>,
    first: Option<Id>,
    last: Option<Id>,
    /// Those whose data is on its way, by the number that START and END share.
    arriving: Vec<(u32, Id)>,
    listed: usize,
    came: u64,
    /// Those whose senders keep the data and wait for a note, perhaps, and such as are gone; each id once, so that there are
    /// no more than there were messages at a time.
    notable: Vec<Id>,
    /// Memory of messages that were out of the way of an overflow buffer: no more pieces than there were such messages
    /// at a time, none much longer than a short message.
    spares: Vec<Vec<u8>>,
}

impl Unexpected {
    /// Whether every message that has come has been taken by a receive.
    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Messages that no receive has taken.
    #[cfg(test)]
    pub(crate) const fn len(&self) -> usize {
        self.listed
    }

    fn entry(&mut self, id: Id) -> Option<&mut Entry> {
        self.slab.get_mut(id as usize)
    }

    /// A message.
    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Arrived> {
        self.entry(id)?.arrived.as_mut()
    }

    /// At the end of the list; `link` is that of its START event.
    pub(crate) fn push(&mut self, arrived: Arrived, link: u32) -> Id {
        let entry = Entry {
            arrived: Some(arrived),
            previous: self.last,
            next: None,
            listed: true,
            notable: false,
            order: self.came,
        };
        self.came += 1;
        let id = match self.free.pop() {
            Some(id) => {
                if let Some(slot) = self.entry(id) {
                    let notable = slot.notable;
                    *slot = Entry { notable, ..entry };
                }
                id
            }
            None => {
                self.slab.push(entry);
                (self.slab.len() - 1) as Id
            }
        };
        match self.last.and_then(|last| self.slab.get_mut(last as usize)) {
            Some(last) => last.next = Some(id),
            None => self.first = Some(id),
        }
        self.last = Some(id);
        self.listed += 1;
        self.arriving.push((link, id));
        id
    }

    /// The message whose END has this link.
    pub(crate) fn ended(&mut self, link: u32) -> Option<Id> {
        let at = self.arriving.iter().position(|(l, _)| *l == link)?;
        Some(self.arriving.swap_remove(at).1)
    }

    /// The first message that a receive matches.
    #[inline]
    pub(crate) fn find(&self, pattern: Pattern, source: Option<u32>) -> Option<Id> {
        let mut at = self.first;
        while let Some(id) = at {
            let entry = self.slab.get(id as usize)?;
            if let Some(arrived) = &entry.arrived
                && pattern.admits(arrived.bits)
                && source.is_none_or(|source| source == arrived.source)
            {
                return Some(id);
            }
            at = entry.next;
        }
        None
    }

    /// Out of the list: some receive has it.
    pub(crate) fn take(&mut self, id: Id) {
        let Some(entry) = self.entry(id).filter(|e| e.listed) else {
            return;
        };
        entry.listed = false;
        let (previous, next) = (entry.previous.take(), entry.next.take());
        match previous {
            Some(p) => self.slab[p as usize].next = next,
            None => self.first = next,
        }
        match next {
            Some(n) => self.slab[n as usize].previous = previous,
            None => self.last = previous,
        }
        self.listed -= 1;
    }

    /// Back in the list, where it was.
    pub(crate) fn put_back(&mut self, id: Id) {
        let entry = self.slab.get(id as usize);
        let Some(order) = entry
            .filter(|e| !e.listed && e.arrived.is_some())
            .map(|e| e.order)
        else {
            return;
        };
        let (mut previous, mut next) = (self.last, None);
        while let Some(at) = previous
            && let Some(entry) = self.slab.get(at as usize)
            && entry.order > order
        {
            (previous, next) = (entry.previous, Some(at));
        }
        if let Some(entry) = self.entry(id) {
            (entry.previous, entry.next) = (previous, next);
            entry.listed = true;
        }
        match previous {
            Some(p) => self.slab[p as usize].next = Some(id),
            None => self.first = Some(id),
        }
        match next {
            Some(n) => self.slab[n as usize].previous = Some(id),
            None => self.last = Some(id),
        }
        self.listed += 1;
    }

    /// Whether there is one whose match bits are so.
    pub(crate) fn any(&self, bits: impl Fn(u64) -> bool) -> bool {
        let mut arrived = self.slab.iter().filter_map(|e| e.arrived.as_ref());
        arrived.any(|a| bits(a.bits))
    }

    /// Bytes of what is known of the messages, without their data.
    pub(crate) fn held(&self) -> usize {
        (self.slab.len() - self.free.len()) * size_of::<Entry>()
    }

    /// Its sender keeps the data, and waits for a note, perhaps.
    pub(crate) fn notable(&mut self, id: Id) {
        if let Some(entry) = self.entry(id).filter(|e| !e.notable) {
            entry.notable = true;
            self.notable.push(id);
        }
    }

    /// A message of `source` of which its sender gets a note from here on; the sender's number of it.
    pub(crate) fn take_notable(&mut self, source: u32) -> Option<(Id, u32)> {
        let mut at = 0;
        while let Some(id) = self.notable.get(at).copied() {
            let arrived = self.entry(id).and_then(|e| e.arrived.as_mut());
            match arrived.filter(|a| !a.noted && matches!(a.place, Place::AtSender)) {
                Some(arrived) if arrived.source == source => {
                    arrived.noted = true;
                    let operation = arrived.operation;
                    self.drop_notable(at);
                    return Some((id, operation));
                }
                Some(_) => at += 1,
                None => self.drop_notable(at),
            }
        }
        None
    }

    fn drop_notable(&mut self, at: usize) {
        let id = self.notable.swap_remove(at);
        if let Some(entry) = self.entry(id) {
            entry.notable = false;
        }
    }

    /// Gone.
    pub(crate) fn remove(&mut self, id: Id) -> Option<Arrived> {
        self.take(id);
        let arrived = self.entry(id)?.arrived.take()?;
        self.free.push(id);
        Some(arrived)
    }

    /// Gets every message, taken or not, out of an overflow buffer by `read`, which is given the offset; how many.
    pub(crate) fn vacate(
        &mut self,
        buffer: u32,
        mut read: impl FnMut(usize, &mut [u8]) -> Result<(), Loss>,
    ) -> u64 {
        let mut moved = 0;
        for arrived in self.slab.iter_mut().filter_map(|e| e.arrived.as_mut()) {
            if let Place::Buffer { buffer: b, offset } = arrived.place
                && b == buffer
            {
                let mut bytes = self.spares.pop().unwrap_or_default();
                bytes.resize(usize::try_from(arrived.length).unwrap_or(0), 0);
                arrived.place = match read(offset, &mut bytes) {
                    Ok(()) => Place::Own(bytes),
                    Err(loss) => Place::Lost(loss),
                };
                moved += 1;
            }
        }
        moved
    }

    /// Takes back the memory of a message that [`Unexpected::vacate`] moved.
    pub(crate) fn spare(&mut self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.spares.push(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrived(bits: u64) -> Arrived {
        Arrived {
            bits,
            source: 0,
            operation: 0,
            sync: false,
            length: 0,
            place: Place::Arriving,
            taker: None,
            noted: false,
        }
    }

    /// A message that its sender keeps.
    fn kept(list: &mut Unexpected, link: u32) -> Id {
        let id = list.push(arrived(0), link);
        assert_eq!(list.ended(link), Some(id));
        let message = list.get_mut(id).unwrap();
        message.place = Place::AtSender;
        message.operation = link;
        list.notable(id);
        id
    }

    #[test]
    fn messages_that_are_gone_without_a_note_leave_nothing() {
        let mut list = Unexpected::default();
        for link in 0..10_000 {
            let id = kept(&mut list, link);
            assert!(list.remove(id).is_some());
        }
        assert_eq!(list.notable.len(), 1);
        let ids = [10_000, 10_001].map(|link| kept(&mut list, link));
        let mut noted = [0; 2].map(|_| list.take_notable(0).unwrap());
        noted.sort_unstable();
        assert_eq!(noted, [(ids[0], 10_000), (ids[1], 10_001)]);
        assert_eq!(list.take_notable(0), None);
        assert!(list.notable.is_empty());
        // A note that could not be sent.
        list.get_mut(ids[1]).unwrap().noted = false;
        list.notable(ids[1]);
        assert_eq!(list.take_notable(0), Some(noted[1]));
    }

    /// Beside a plain vector, at random.
    #[test]
    fn the_first_that_matches_is_found() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut list = Unexpected::default();
        let mut plain: Vec<(Id, u64)> = Vec::new();
        let mut taken: Vec<Id> = Vec::new();
        for n in 0..20_000u32 {
            match rng.u8(0..3) {
                0 => {
                    let bits = rng.u64(0..8);
                    let id = list.push(arrived(bits), n);
                    assert_eq!(list.ended(n), Some(id));
                    assert_eq!(list.ended(n), None);
                    plain.push((id, bits));
                }
                1 => {
                    let pattern = Pattern {
                        bits: rng.u64(0..8),
                        ignore: rng.u64(0..8),
                    };
                    let at = plain.iter().position(|(_, bits)| pattern.admits(*bits));
                    assert_eq!(list.find(pattern, None), at.map(|at| plain[at].0));
                    assert_eq!(list.find(pattern, Some(1)), None);
                    if let Some(at) = at {
                        let (id, bits) = plain.remove(at);
                        if rng.u8(0..3) == 0 {
                            list.take(id);
                            list.put_back(id);
                            list.put_back(id);
                            plain.insert(at, (id, bits));
                        } else if rng.bool() {
                            list.take(id);
                            taken.push(id);
                        } else {
                            assert_eq!(list.remove(id).map(|a| a.bits), Some(bits));
                            assert!(list.remove(id).is_none());
                        }
                    }
                }
                _ => {
                    if let Some(id) = taken.pop() {
                        assert!(list.remove(id).is_some());
                    }
                }
            }
            assert_eq!(list.len(), plain.len());
            assert_eq!(
                list.slab.iter().filter(|e| e.arrived.is_some()).count(),
                plain.len() + taken.len()
            );
        }
    }
}
