//! What a rank knows of the credits between itself and one peer, and the ring of peers that have
//! more than the least.

/// No peer: the end of a link. No rank of a job has this number.
pub(super) const NIL: u16 = u16::MAX;

/// A system message to the peer is not answered yet.
pub(super) const ASKED: u8 = 0x02;
/// The peer gave nothing back in this epoch.
pub(super) const GAVE_NONE: u8 = 0x04;
/// The peer has not heard of our last epoch's end.
pub(super) const OWES_EPOCH: u8 = 0x08;
/// The peer is on the ring.
pub(super) const LISTED: u8 = 0x10;

/// "Send" is what the peer lends us, "loan" what we lend the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    /// Credits the peer lent us.
    pub(super) send: u16,
    /// Those in flight.
    pub(super) in_use: u16,
    /// Most in flight lately; decays, never below `in_use`.
    pub(super) max: u16,
    /// Requests that had to wait lately; decays.
    pub(super) stalls: u16,
    /// Credits given back lately; decays.
    pub(super) revoked: u16,
    /// Credits we lent the peer.
    pub(super) loan: u16,
    /// Times the peer asked for more lately; decays.
    pub(super) requested: u16,
    /// Credits lent on top lately; decays.
    pub(super) given: u16,
    /// Our epoch as of which the four above and the flags hold; later decays are caught up with
    /// when the peer is next looked at. After 2^16 epochs a peer that was never looked at misses
    /// one round of decays.
    pub(super) as_of: u16,
    /// Neighbours on the ring.
    pub(super) prev: u16,
    pub(super) next: u16,
    pub(super) flags: u8,
}

impl Peer {
    /// The peer ended an epoch: what we recorded of sending to it weighs a quarter.
    ///
    /// Credits in flight stay counted as used. Were `max` to fall below them, a revoke would take
    /// credits whose messages are under way, the lender would lend them again, and its buffers
    /// could overflow.
    pub(super) fn decay_send(&mut self) {
        self.max = (self.max >> 2).max(self.in_use);
        self.stalls >>= 2;
        self.revoked >>= 2;
    }

    /// Catches up with our epochs.
    #[inline]
    pub(super) fn catch_up(&mut self, epoch: u16) {
        if self.as_of != epoch {
            self.decay_loan(epoch);
        }
    }

    #[cold]
    fn decay_loan(&mut self, epoch: u16) {
        let ended = u32::from(epoch.wrapping_sub(self.as_of));
        let decayed = |v: u16| v.checked_shr(2 * ended.min(16)).unwrap_or(0);
        self.requested = decayed(self.requested);
        self.given = decayed(self.given);
        self.flags = (self.flags | OWES_EPOCH) & !GAVE_NONE;
        self.as_of = epoch;
    }

    /// Whether the peer is to be told of an epoch's end; it is told once.
    #[inline]
    pub(super) fn tell_epoch(&mut self) -> bool {
        let owes = self.flags & OWES_EPOCH != 0;
        self.flags &= !OWES_EPOCH;
        owes
    }
}

/// Peers lent more than the least, in a ring; `head` is where the next search begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ring {
    pub(super) head: u16,
    pub(super) len: u16,
}

impl Ring {
    pub(super) const EMPTY: Self = Self { head: NIL, len: 0 };

    /// Puts `at` last in the next search.
    pub(super) fn insert(&mut self, peers: &mut [Peer], at: u16) {
        let i = usize::from(at);
        if i >= peers.len() || peers[i].flags & LISTED != 0 {
            return;
        }
        peers[i].flags |= LISTED;
        self.len += 1;
        if self.head == NIL {
            (peers[i].prev, peers[i].next) = (at, at);
            self.head = at;
            return;
        }
        let head = usize::from(self.head);
        let last = peers[head].prev;
        (peers[i].prev, peers[i].next) = (last, self.head);
        peers[head].prev = at;
        peers[usize::from(last)].next = at;
    }

    pub(super) fn remove(&mut self, peers: &mut [Peer], at: u16) {
        let i = usize::from(at);
        if i >= peers.len() || peers[i].flags & LISTED == 0 {
            return;
        }
        let Peer { prev, next, .. } = peers[i];
        peers[i].flags &= !LISTED;
        self.len -= 1;
        peers[usize::from(prev)].next = next;
        peers[usize::from(next)].prev = prev;
        if self.head == at {
            self.head = next;
        }
        if self.len == 0 {
            self.head = NIL;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(ring: &Ring, peers: &[Peer]) -> Vec<u16> {
        let mut all = vec![];
        let mut at = ring.head;
        for _ in 0..ring.len {
            all.push(at);
            assert_eq!(peers[usize::from(peers[usize::from(at)].next)].prev, at);
            at = peers[usize::from(at)].next;
        }
        assert_eq!(at, ring.head, "a lap ends where it began");
        all
    }

    /// Random insertions and removals against a list.
    #[test]
    fn the_ring_is_a_ring() {
        let mut rng = fastrand::Rng::with_seed(3);
        let mut peers = [Peer::default(); 7];
        let (mut ring, mut list) = (Ring::EMPTY, Vec::<u16>::new());
        for _ in 0..20_000 {
            let at = rng.u16(0..7);
            match rng.u8(0..3) {
                0 if !list.contains(&at) => {
                    ring.insert(&mut peers, at);
                    list.push(at);
                }
                0 => ring.insert(&mut peers, at),
                1 => {
                    ring.remove(&mut peers, at);
                    list.retain(|m| *m != at);
                }
                _ if !list.is_empty() => {
                    ring.head = peers[usize::from(ring.head)].next;
                    list.rotate_left(1);
                }
                _ => {}
            }
            assert_eq!(members(&ring, &peers), list);
        }
    }

    #[test]
    fn epochs_that_passed_unseen_are_caught_up_with() {
        let mut p = Peer {
            given: 32,
            requested: 5,
            flags: GAVE_NONE | ASKED,
            as_of: u16::MAX,
            ..Peer::default()
        };
        p.catch_up(1);
        assert_eq!((p.given, p.requested, p.as_of), (2, 0, 1));
        assert_eq!(p.flags, ASKED | OWES_EPOCH);
        assert!(p.tell_epoch() && !p.tell_epoch());
        p.catch_up(200);
        assert_eq!(p.given, 0);
    }

    #[test]
    fn what_is_in_flight_does_not_decay() {
        let mut p = Peer {
            send: 40,
            in_use: 30,
            max: 40,
            stalls: 3,
            revoked: 9,
            ..Peer::default()
        };
        p.decay_send();
        assert_eq!((p.max, p.stalls, p.revoked), (30, 0, 2));
    }
}
