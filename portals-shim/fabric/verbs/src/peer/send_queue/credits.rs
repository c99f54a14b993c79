//! Credits: how many frames each side may send without a word from the other.
//!
//! ```text
//!   credits ──(a frame leaves)──► its slot at the peer ──(taken, posted again)──► owed there ──(rides on a frame)──► credits
//! ```
//!
//! # Invariants
//!
//! * A frame that takes a slot leaves only with a credit.
//! * Credits are never more than the peer has granted, nor what is owed and emptied more than was lent.
//! * At most one frame is under way that brings nothing but credits.

/// The credits of one connection, of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Credits {
    /// Frames that may leave.
    own: u16,
    /// Slots of the peer for this side, as it said.
    granted: u16,
    /// Slots of ours for the peer.
    lent: u16,
    /// Slots of ours that the peer's frames have left and that are posted again, or free in a ring.
    owed: u16,
    /// Slots of ours that its frames have left and that are not posted again yet.
    emptied: u16,
    /// A credit frame has been posted and has not completed.
    returning: bool,
}

impl Credits {
    /// The peer may send so many frames, and has granted none.
    pub(super) fn new(lent: u16) -> Self {
        Self {
            own: 0,
            granted: 0,
            lent,
            owed: 0,
            emptied: 0,
            returning: false,
        }
    }

    /// A new connection, over which the peer takes so many frames. What was owed was granted anew with it.
    pub(super) fn renew(&mut self, granted: u16) {
        *self = Self {
            own: granted,
            granted,
            ..Self::new(self.lent)
        };
    }

    /// Whether a frame may leave.
    #[inline(always)]
    pub(super) fn any(&self) -> bool {
        self.own > 0
    }

    /// A frame has left that takes a slot.
    #[inline(always)]
    pub(super) fn spend(&mut self) {
        self.own = self.own.saturating_sub(1);
    }

    /// Slots of the peer for this side.
    pub(super) fn granted(&self) -> u16 {
        self.granted
    }

    /// Slots of ours for the peer.
    #[inline(always)]
    pub(super) fn lent(&self) -> u16 {
        self.lent
    }

    /// What the next frame gives back.
    #[inline(always)]
    pub(super) fn owed(&self) -> u16 {
        self.owed
    }

    /// A frame has given back what was owed.
    #[inline(always)]
    pub(super) fn gave_back(&mut self) {
        self.owed = 0;
    }

    /// What a frame of the peer gives back.
    #[inline(always)]
    pub(super) fn receive(&mut self, credits: u16) {
        self.own = self.own.saturating_add(credits).min(self.granted);
    }

    /// A slot of ours was filled by a frame; `free`: it can be used again at once, as one of a ring.
    #[inline(always)]
    pub(super) fn filled(&mut self, free: bool) {
        let slot = if free {
            &mut self.owed
        } else {
            &mut self.emptied
        };
        *slot = slot.saturating_add(1).min(self.lent);
    }

    /// All receive slots are posted.
    #[inline(always)]
    pub(super) fn posted(&mut self) {
        self.owed = (self.owed + std::mem::take(&mut self.emptied)).min(self.lent);
    }

    /// Half of what the peer may send has come, its slots can be used again, and nothing brings it word.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.owed > 0 && self.owed >= self.lent / 2 && !self.returning
    }

    /// A frame that brings nothing but credits is under way, or not any more.
    #[inline(always)]
    pub(super) fn returning(&mut self, under_way: bool) {
        self.returning = under_way;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// Two sides that send, take and post at random: a frame always finds a slot, and none is lost.
    #[test]
    fn a_frame_always_finds_a_slot() {
        const SLOTS: u16 = 8;
        let mut rng = fastrand::Rng::with_seed(5);
        let mut sides = [Credits::new(SLOTS); 2];
        sides.iter_mut().for_each(|side| side.renew(SLOTS));
        // What is on its way to each: the credits that it brings, and whether it takes a slot.
        let mut ways = [VecDeque::new(), VecDeque::new()];
        // Slots that each has posted for the other, and those that it has emptied.
        let (mut posted, mut emptied) = ([SLOTS; 2], [0; 2]);
        let mut frames = 0;
        for _ in 0..100_000 {
            let (me, it) = if rng.bool() { (0, 1) } else { (1, 0) };
            match rng.u8(0..4) {
                0 if sides[me].any() => {
                    ways[it].push_back((sides[me].owed(), true));
                    sides[me].spend();
                    sides[me].gave_back();
                    frames += 1;
                }
                1 if sides[me].is_due() => {
                    ways[it].push_back((sides[me].owed(), false));
                    sides[me].gave_back();
                    sides[me].returning(true);
                }
                2 => {
                    if let Some((credits, takes)) = ways[me].pop_front() {
                        sides[me].receive(credits);
                        if takes {
                            assert!(posted[me] > 0, "a frame without a slot");
                            posted[me] -= 1;
                            emptied[me] += 1;
                            sides[me].filled(false);
                        } else {
                            sides[it].returning(false);
                        }
                    }
                }
                _ => {
                    posted[me] += std::mem::take(&mut emptied[me]);
                    sides[me].posted();
                }
            }
            for (me, it) in [(0, 1), (1, 0)] {
                let on_way: u16 = ways[me].iter().map(|(credits, _)| credits).sum();
                let frames = ways[it].iter().filter(|(_, takes)| *takes).count() as u16;
                let Credits { own, .. } = sides[me];
                let Credits { owed, emptied, .. } = sides[it];
                assert_eq!(own + on_way + frames + owed + emptied, SLOTS);
            }
        }
        assert!(frames > 10_000, "{frames} frames");
    }

    #[test]
    fn a_peer_cannot_give_more_than_it_granted() {
        let mut credits = Credits::new(4);
        credits.renew(3);
        credits.spend();
        credits.receive(u16::MAX);
        assert_eq!((credits.own, credits.granted()), (3, 3));
        for _ in 0..9 {
            credits.filled(true);
            credits.filled(false);
        }
        assert_eq!((credits.owed, credits.emptied), (4, 4));
        credits.posted();
        assert_eq!(credits.owed(), 4);
    }

    #[test]
    fn a_slot_is_owed_when_it_can_be_used_again() {
        let mut credits = Credits::new(4);
        credits.filled(false);
        assert_eq!(credits.owed(), 0, "its receive is not posted");
        credits.filled(true);
        assert_eq!(credits.owed(), 1, "a slot of a ring is free");
        credits.posted();
        assert_eq!(credits.owed(), 2);
    }

    #[test]
    fn half_of_what_was_lent_goes_back_by_one_frame_at_a_time() {
        let mut credits = Credits::new(4);
        credits.filled(true);
        assert!(!credits.is_due());
        credits.filled(true);
        assert!(credits.is_due());
        credits.returning(true);
        assert!(!credits.is_due());
        credits.returning(false);
        assert!(credits.is_due());
        credits.gave_back();
        assert!(!credits.is_due());
        // Of a single slot half is none.
        let mut single = Credits::new(1);
        assert!(!single.is_due());
        single.filled(true);
        assert!(single.is_due());
    }

    #[test]
    fn a_new_connection_owes_nothing() {
        let mut credits = Credits::new(4);
        credits.renew(3);
        credits.filled(true);
        credits.filled(false);
        credits.returning(true);
        credits.renew(2);
        let fresh = Credits {
            own: 2,
            granted: 2,
            ..Credits::new(4)
        };
        assert_eq!(credits, fresh);
    }
}
