//! The offloaded requests that are under way.
//!
//! # Invariants
//!
//! * `free` has each place without a request, once.

use fabric_api::nal::Awaiting;
use portals_core::{InPlace, MdHandle, NiFail, ProcessId};

/// Marks the ids of these requests; those with a record have its index.
const OFFLOADED: u64 = 1 << 59;

/// What the end of a request is answered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No request.
    Free,
    Nothing,
    Ack,
    Reply,
}

const NO_ANSWER: InPlace = InPlace {
    md: MdHandle::from_raw(u32::MAX),
    target: ProcessId::ANY,
    pt_index: 0,
    match_bits: 0,
    offset: 0,
    length: 0,
};

#[derive(Clone, Copy, Debug)]
struct Place {
    peer: usize,
    end: End,
    answer: InPlace,
}

/// The request whose caller waits for it, whose end says so here and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Waited {
    #[default]
    Nothing,
    /// The request in this place.
    For(usize),
    /// It has succeeded.
    Done,
    /// It has failed, and would have been answered so.
    Failed(End, InPlace, NiFail),
}

/// The requests under way.
#[derive(Debug, Default)]
pub(crate) struct Offloaded {
    places: Vec<Place>,
    free: Vec<usize>,
    /// Place of the last one that began.
    latest: usize,
    pub(super) waited: Waited,
}

impl Offloaded {
    /// A put, which may end with an ack; its id.
    #[inline(always)]
    pub(crate) fn put(&mut self, peer: usize, ack: Option<InPlace>) -> u64 {
        let (end, answer) = match ack {
            Some(ack) => (End::Ack, ack),
            None => (End::Nothing, NO_ANSWER),
        };
        self.begin(Place { peer, end, answer })
    }

    /// A get, and its id.
    #[inline(always)]
    pub(crate) fn get(&mut self, peer: usize, answer: InPlace) -> u64 {
        let end = End::Reply;
        self.begin(Place { peer, end, answer })
    }

    #[inline(always)]
    fn begin(&mut self, place: Place) -> u64 {
        let at = match self.free.pop() {
            Some(at) => at,
            None => self.grow(place),
        };
        if let Some(free) = self.places.get_mut(at) {
            *free = place;
        }
        self.latest = at;
        OFFLOADED | at as u64
    }

    #[cold]
    fn grow(&mut self, place: Place) -> usize {
        self.places.push(place);
        self.places.len() - 1
    }

    /// The request of this id is over, and what is to be answered.
    #[inline(always)]
    pub(crate) fn end(&mut self, id: u64, fail: NiFail) -> Option<(End, &InPlace)> {
        let at = (id & !OFFLOADED) as usize;
        let place = self.places.get_mut(at)?;
        let end = std::mem::replace(&mut place.end, End::Free);
        if end == End::Free {
            return None;
        }
        self.free.push(at);
        if self.waited == Waited::For(at) {
            self.waited = match fail {
                NiFail::OK => Waited::Done,
                fail => Waited::Failed(end, place.answer, fail),
            };
            return Some((End::Nothing, &place.answer));
        }
        Some((end, &place.answer))
    }

    /// The caller of the request that began last waits for it.
    #[inline]
    pub(crate) fn wait_for_latest(&mut self) {
        self.waited = Waited::For(self.latest);
    }

    #[inline]
    pub(crate) fn awaited(&self) -> Awaiting {
        match self.waited {
            Waited::For(_) => Awaiting::Yet,
            Waited::Failed(..) => Awaiting::Failed,
            Waited::Done | Waited::Nothing => Awaiting::Done,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, &Place)> {
        let all = (OFFLOADED..).zip(&self.places);
        all.filter(|(_, place)| place.end != End::Free)
    }

    /// Whether a get into this descriptor is under way.
    pub(crate) fn reads_into(&self, md: MdHandle) -> bool {
        let mut all = self.iter();
        all.any(|(_, place)| place.end == End::Reply && place.answer.md == md)
    }

    /// The ids of a peer's.
    pub(crate) fn of(&self, peer: usize) -> Vec<u64> {
        let its = self.iter().filter(|(_, place)| place.peer == peer);
        its.map(|(id, _)| id).collect()
    }
}

/// Whether a request is one of these.
#[inline(always)]
pub(crate) fn is_offloaded(id: u64) -> bool {
    id & OFFLOADED != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(md: u32) -> InPlace {
        InPlace {
            md: MdHandle::from_raw(md),
            target: ProcessId::new(1, 1),
            pt_index: 4,
            match_bits: 0,
            offset: 0,
            length: 8,
        }
    }

    #[test]
    fn a_request_ends_once_and_its_place_is_used_again() {
        let mut offloaded = Offloaded::default();
        let (get, put) = (
            offloaded.get(3, answer(1)),
            offloaded.put(4, Some(answer(2))),
        );
        assert!(is_offloaded(get) && is_offloaded(put) && get != put && get < crate::peer::PLAIN);
        assert_eq!((offloaded.of(3), offloaded.of(4)), (vec![get], vec![put]));
        assert_eq!(
            offloaded.end(get, NiFail::OK),
            Some((End::Reply, &answer(1)))
        );
        assert_eq!(offloaded.end(get, NiFail::OK), None);
        assert_eq!(offloaded.put(5, None), get);
        assert_eq!(offloaded.end(put, NiFail::OK), Some((End::Ack, &answer(2))));
        assert_eq!(
            offloaded.end(get, NiFail::OK),
            Some((End::Nothing, &NO_ANSWER))
        );
        assert!(
            offloaded.of(3).is_empty() && offloaded.of(4).is_empty() && offloaded.of(5).is_empty()
        );
        assert_eq!(offloaded.end(OFFLOADED | 7, NiFail::OK), None);
    }

    #[test]
    fn what_is_waited_for_is_answered_by_nothing() {
        let mut offloaded = Offloaded::default();
        let other = offloaded.get(3, answer(1));
        let get = offloaded.get(3, answer(2));
        offloaded.wait_for_latest();
        assert_eq!(offloaded.awaited(), Awaiting::Yet);
        assert_eq!(
            offloaded.end(other, NiFail::OK),
            Some((End::Reply, &answer(1)))
        );
        assert_eq!(offloaded.awaited(), Awaiting::Yet);
        assert_eq!(
            offloaded.end(get, NiFail::OK),
            Some((End::Nothing, &answer(2)))
        );
        assert_eq!(offloaded.awaited(), Awaiting::Done);

        let put = offloaded.put(3, Some(answer(3)));
        offloaded.wait_for_latest();
        assert_eq!(
            offloaded.end(put, NiFail::SEGV),
            Some((End::Nothing, &answer(3)))
        );
        assert_eq!(
            offloaded.waited,
            Waited::Failed(End::Ack, answer(3), NiFail::SEGV)
        );
        assert_eq!(offloaded.awaited(), Awaiting::Failed);
    }

    #[test]
    fn what_is_no_longer_waited_for_is_answered_as_any_other() {
        let mut offloaded = Offloaded::default();
        let get = offloaded.get(3, answer(1));
        offloaded.wait_for_latest();
        offloaded.waited = Waited::Nothing;
        assert_eq!(
            offloaded.end(get, NiFail::OK),
            Some((End::Reply, &answer(1)))
        );
        // Its place is used again, by one that nobody waits for.
        let again = offloaded.get(3, answer(2));
        assert_eq!(again, get);
        assert_eq!(
            offloaded.end(again, NiFail::OK),
            Some((End::Reply, &answer(2)))
        );
    }

    #[test]
    fn a_descriptor_is_read_into_until_the_get_ends() {
        let mut offloaded = Offloaded::default();
        let (get, put) = (
            offloaded.get(3, answer(1)),
            offloaded.put(3, Some(answer(2))),
        );
        let md = MdHandle::from_raw;
        assert!(offloaded.reads_into(md(1)) && !offloaded.reads_into(md(2)));
        assert!(offloaded.end(get, NiFail::OK).is_some() && !offloaded.reads_into(md(1)));
        assert!(offloaded.end(put, NiFail::OK).is_some());
    }
}
