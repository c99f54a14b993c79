//! The two halves of a Long: header and payload travel as two messages and arrive in any order.
//!
//! Both carry the same long id. Whichever comes first waits here under its sender and id; the second
//! takes it out and the handler runs. Few wait at a time, and ranks that send none take no memory.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Where a payload landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landed {
    /// Offset in the segment, bytes.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
}

#[derive(Debug)]
enum Half<H> {
    Header(H),
    Payload(Landed),
}

/// The same half arrived twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Twice;

/// Marks the long ids of replies, which are counted; those of requests are chunk offsets.
const REPLY: u32 = 1 << 23;

/// The Longs of a rank that travel as two messages.
#[derive(Debug)]
pub(crate) struct Longs<H> {
    /// Halves that wait, by sender and long id.
    waiting: BTreeMap<(u32, u32), Half<H>>,
    /// Counts the own replies.
    replies: u32,
    /// Own payloads whose sender waits until they have left: of requests, of replies.
    leaving: [u32; 2],
}

impl<H> Longs<H> {
    pub(crate) fn new() -> Self {
        Self {
            waiting: BTreeMap::new(),
            replies: 0,
            leaving: [0; 2],
        }
    }

    /// A header arrived; both halves if the payload was here.
    pub(crate) fn header(
        &mut self,
        source: u32,
        lid: u32,
        header: H,
    ) -> Result<Option<(H, Landed)>, Twice> {
        match self.waiting.entry((source, lid)) {
            Entry::Vacant(v) => {
                v.insert(Half::Header(header));
                Ok(None)
            }
            Entry::Occupied(o) => match o.remove() {
                Half::Payload(landed) => Ok(Some((header, landed))),
                Half::Header(_) => Err(Twice),
            },
        }
    }

    /// A payload arrived; both halves if the header was here.
    pub(crate) fn payload(
        &mut self,
        source: u32,
        lid: u32,
        landed: Landed,
    ) -> Result<Option<(H, Landed)>, Twice> {
        match self.waiting.entry((source, lid)) {
            Entry::Vacant(v) => {
                v.insert(Half::Payload(landed));
                Ok(None)
            }
            Entry::Occupied(o) => match o.remove() {
                Half::Header(header) => Ok(Some((header, landed))),
                Half::Payload(_) => Err(Twice),
            },
        }
    }

    /// The long id of the next reply, which no request has.
    pub(crate) fn reply_id(&mut self) -> u32 {
        let id = REPLY | self.replies & (REPLY - 1);
        self.replies = self.replies.wrapping_add(1);
        id
    }

    /// The sender of a request, or of a reply, waits for a payload.
    pub(crate) fn await_payload(&mut self, request: bool) {
        self.leaving[usize::from(!request)] += 1;
    }

    /// A payload that its sender waits for has left.
    pub(crate) fn payload_left(&mut self, request: bool) {
        let n = &mut self.leaving[usize::from(!request)];
        *n = n.saturating_sub(1);
    }

    /// Whether all payloads of requests, or of replies, have left that their senders wait for.
    #[inline]
    pub(crate) fn have_left(&self, request: bool) -> bool {
        self.leaving[usize::from(!request)] == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_meet_in_either_order_and_by_sender() {
        let mut longs = Longs::new();
        let at = |offset| Landed { offset, len: 1 };
        assert_eq!(longs.header(1, 5, "a"), Ok(None));
        assert_eq!(longs.payload(2, 5, at(20)), Ok(None));
        assert_eq!(longs.payload(1, 6, at(10)), Ok(None));
        assert_eq!(longs.payload(1, 5, at(11)), Ok(Some(("a", at(11)))));
        assert_eq!(longs.header(1, 6, "b"), Ok(Some(("b", at(10)))));
        assert_eq!(longs.header(2, 5, "c"), Ok(Some(("c", at(20)))));
        assert_eq!(longs.header(2, 5, "d"), Ok(None), "an id may be used again");
    }

    #[test]
    fn ids_of_replies_are_no_chunk_and_come_around() {
        let mut longs = Longs::<()>::new();
        longs.replies = REPLY - 1;
        let ids: Vec<_> = (0..3).map(|_| longs.reply_id()).collect();
        assert_eq!(ids, [2 * REPLY - 1, REPLY, REPLY + 1]);
    }

    #[test]
    fn requests_and_replies_wait_apart() {
        let mut longs = Longs::<()>::new();
        longs.await_payload(true);
        longs.await_payload(true);
        assert!(!longs.have_left(true) && longs.have_left(false));
        longs.payload_left(false);
        longs.payload_left(true);
        assert!(!longs.have_left(true));
        longs.payload_left(true);
        assert!(longs.have_left(true));
    }

    #[test]
    fn a_half_twice_is_seen() {
        let mut longs = Longs::new();
        let at = Landed { offset: 0, len: 0 };
        assert_eq!(longs.payload(0, 1, at), Ok(None));
        assert_eq!(longs.payload(0, 1, at), Err(Twice));
        assert_eq!(longs.header(0, 2, ()), Ok(None));
        assert_eq!(longs.header(0, 2, ()), Err(Twice));
    }
}
