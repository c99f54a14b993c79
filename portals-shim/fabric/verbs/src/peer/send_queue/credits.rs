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
//!
//! # A peer that takes no answers
//!
//! A peer that asks and gives no credits, or announces data faster than it can be read, would have what it is owed fill this
//! process's memory. A rank *owes* the answers that wait for the peer, and those that reads of the peer's data and answers that
//! are put off will bring. Let `m` be the larger number of slots of the two sides, and 8 at least.
//!
//! * While a rank owes [`ANSWERS`] times `m`, it gives no credits. A frame that comes without one meanwhile is of a peer that
//!   does not count, which is given up ([`Credits::is_overdrawn`]).
//! * While a rank owes [`MUCH`] times `m`, its own requests leave only after every 64 answers (`waiting.rs`), and no withdrawal
//!   is confirmed. What takes no credit leaves all the same.
//! * A new connection grants credits anew. So a peer that is owed [`LIMIT`] times `m` is given up, which takes 27
//!   connections at least that broke while 8 times `m` were owed.
//!
//! Two ranks that count never wait for each other. Let a request make its target owe two answers at most (ATS and ACK), the RTS of
//! a long reply one (ATS), and other answers none. Let `F` be what both owe, and what the frames on their way will make them owe.
//!
//! * Take the later of the two moments in which a rank began to owe `2 m`. It owes `2 m + 1` then, and what comes to it brings
//!   `2 m`. The other one owes, with what comes to it, at most `8 m + 1 + 2 m`: so `F` is at most `14 m + 2`.
//! * From then on an answer that leaves adds nothing to `F`, and a request two. At most `2 F` answers leave besides those that
//!   requests cause, and so at most `F / 30 + 3` requests: `F` stays below `(14 m + 2) * 16 / 15 + 6`.
//! * Were both to give no credits, `F` would be `16 m` at least, which is more for an `m` of 8 or more.
//!
//! So one of the two gives its credits back, and the other one's answers leave. Reads and what they put off end without credits.
//!
//! # A peer that does not acknowledge long replies
//!
//! Of a long reply a record is kept until its ATS. Replies that have been read, or will be, are owed an ATS by the peer: those of a
//! peer that counts are at most what both owe and what is on its way, `10 m + m + 10 m + m + 2`. One with more than [`LIMIT`]
//! times `m` is given up.

/// What a rank owes when it gives no credits, in slots.
const ANSWERS: usize = 8;
/// What a rank owes when its requests wait for answers.
const MUCH: usize = 2;
/// What no peer is owed that counts.
const LIMIT: usize = 64;
/// With fewer slots than so many the proof does not hold; then these count.
const LEAST: u16 = 8;

/// Credits are held back, because too many answers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    /// Slots that could be used again and are not owed.
    kept: u16,
    /// A frame came without a credit, or more is owed than a peer that counts can be owed.
    overdrawn: bool,
}

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
    hold: Option<Hold>,
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
            hold: None,
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
        if self.hold.is_some() {
            return self.filled_in_hold(free);
        }
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
        let free = std::mem::take(&mut self.emptied);
        match &mut self.hold {
            None => self.owed = (self.owed + free).min(self.lent),
            Some(hold) => hold.kept += free,
        }
    }

    #[cold]
    fn filled_in_hold(&mut self, free: bool) {
        let Some(hold) = &mut self.hold else { return };
        if self.owed + self.emptied + hold.kept >= self.lent {
            hold.overdrawn = true;
        } else if free {
            hold.kept += 1;
        } else {
            self.emptied += 1;
        }
    }

    /// The slots that count: the larger number of the two sides.
    fn slots(&self) -> usize {
        self.lent.max(self.granted).max(LEAST).into()
    }

    /// Owed so much, requests wait for answers.
    pub(super) fn much(&self) -> usize {
        MUCH * self.slots()
    }

    /// More than a peer that counts can be owed.
    pub(super) fn limit(&self) -> usize {
        LIMIT * self.slots()
    }

    /// So much is owed to the peer.
    pub(super) fn answers_wait(&mut self, owed: usize) {
        let too_many = owed >= ANSWERS * self.slots();
        let overdrawn = owed > self.limit();
        match &mut self.hold {
            None if too_many => self.hold = Some(Hold { kept: 0, overdrawn }),
            Some(hold) if too_many => hold.overdrawn |= overdrawn,
            Some(hold) if !hold.overdrawn => {
                self.owed += hold.kept;
                self.hold = None;
            }
            Some(_) | None => {}
        }
    }

    /// The peer has sent a frame without a credit while too many answers waited for it, or is owed more than one that counts.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.hold.is_some_and(|hold| hold.overdrawn)
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
mod flood;

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
    fn a_frame_without_a_credit_is_noticed_while_too_many_answers_wait() {
        let mut credits = Credits::new(8);
        for _ in 0..20 {
            credits.filled(true);
        }
        assert!(!credits.is_overdrawn(), "nothing is counted before");
        credits.gave_back();
        credits.answers_wait(8 * ANSWERS);
        (0..8).for_each(|slot| credits.filled(slot % 2 == 0));
        assert!(!credits.is_overdrawn());
        credits.filled(true);
        assert!(credits.is_overdrawn());
        credits.answers_wait(0);
        assert!(credits.is_overdrawn(), "nothing makes it honest again");
    }

    #[test]
    fn credits_that_were_held_back_are_owed_when_answers_have_left() {
        let mut credits = Credits::new(4);
        // Eight count at least.
        credits.answers_wait(8 * ANSWERS - 1);
        credits.filled(true);
        assert_eq!(credits.owed(), 1);
        credits.gave_back();
        credits.answers_wait(8 * ANSWERS);
        (0..3).for_each(|_| credits.filled(true));
        credits.posted();
        assert_eq!((credits.owed(), credits.is_due()), (0, false));
        credits.answers_wait(8 * ANSWERS - 1);
        assert_eq!((credits.owed(), credits.hold), (3, None));
    }

    /// A peer that is granted credits by connection after connection is given up in the end.
    #[test]
    fn a_new_connection_takes_nothing_off_what_is_owed() {
        let mut credits = Credits::new(16);
        credits.renew(16);
        for (owed, is) in [(8 * 16, false), (64 * 16, false), (64 * 16 + 1, true)] {
            credits.renew(16);
            credits.answers_wait(owed);
            assert_eq!((credits.hold.is_some(), credits.is_overdrawn()), (true, is));
        }
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
