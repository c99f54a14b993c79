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
//! A peer that asks and gives no credits would have its answers fill this process's memory. So while [`ANSWERS`] times `lent`
//! answers wait for it, it gets back `lent` credits, and one more for each frame that leaves. The answers that wait are at most
//! these, the answers to `2 * lent` frames, and those to one frame for each request of this side that leaves before them.
//! A frame that comes without a credit meanwhile is of a peer that does not count: it is given up ([`Credits::is_overdrawn`]).
//!
//! Two ranks that count never wait for each other. Assume that both, A and B, can give none:
//!
//! * Each has given `lent` credits more than frames of its own have left since it had to count, B since a later time `t`.
//!   Both have spent all credits that they got, as their queues are not empty.
//! * So B has given, since `t`, at least `lent` more than A has given since `t`.
//! * A has given, in all, at least `lent` more than B. Before `t`, therefore, it gave at least `2 * lent` more than B.
//! * But A never gives more than `lent` above what has left by credits of B. So the assumption is false.

/// The answers that wait for a peer when too many do, in slots that it may fill.
const ANSWERS: usize = 8;

/// Credits are held back, because too many answers wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hold {
    /// Credits that may still be given.
    allowed: u16,
    /// Slots that could be used again and are not owed.
    kept: u16,
    /// A frame came without a credit.
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

    /// Frames that may leave.
    pub(super) fn own(&self) -> u16 {
        self.own
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
            Some(hold) => {
                hold.kept += free;
                self.give_allowed();
            }
        }
    }

    #[cold]
    fn filled_in_hold(&mut self, free: bool) {
        let Some(hold) = &mut self.hold else { return };
        if self.owed + self.emptied + hold.kept >= self.lent {
            hold.overdrawn = true;
        } else if free {
            hold.kept += 1;
            self.give_allowed();
        } else {
            self.emptied += 1;
        }
    }

    /// Owes what may be given.
    fn give_allowed(&mut self) {
        if let Some(hold) = &mut self.hold {
            let more = hold.kept.min(hold.allowed);
            hold.kept -= more;
            hold.allowed -= more;
            self.owed += more;
        }
    }

    /// So many answers wait for the peer; of what waited `left` frames have left.
    pub(super) fn answers_wait(&mut self, answers: usize, left: u16) {
        let too_many = answers >= ANSWERS * usize::from(self.lent);
        match &mut self.hold {
            None if too_many => {
                let allowed = self.lent.saturating_sub(self.owed);
                self.hold = Some(Hold {
                    allowed,
                    kept: 0,
                    overdrawn: false,
                });
            }
            Some(hold) if too_many => {
                hold.allowed = hold.allowed.saturating_add(left).min(self.lent);
                self.give_allowed();
            }
            Some(hold) if !hold.overdrawn => {
                self.owed += hold.kept;
                self.hold = None;
            }
            Some(_) | None => {}
        }
    }

    /// The peer has sent a frame without a credit, while too many answers waited for it.
    pub(super) fn is_overdrawn(&self) -> bool {
        self.hold.is_some_and(|hold| hold.overdrawn)
    }

    /// Half of what the peer may send has come, its slots can be used again, and nothing brings it word.
    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.owed > 0 && (self.owed >= self.lent / 2 || self.hold.is_some()) && !self.returning
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

    /// A rank with what waits to leave it: requests, and answers to those of the other.
    struct Rank {
        credits: Credits,
        waiting: VecDeque<bool>,
        /// What is on its way to it: the credits that it brings, and whether it is an answer, unless it brings only them.
        way: VecDeque<(u16, Option<bool>)>,
        /// Slots that it has emptied.
        emptied: u16,
        requests_taken: u32,
        answers_taken: u32,
        most_answers: usize,
    }

    impl Rank {
        fn new(slots: u16, requests: usize) -> Self {
            let mut credits = Credits::new(slots);
            credits.renew(slots);
            Self {
                credits,
                waiting: std::iter::repeat_n(false, requests).collect(),
                way: VecDeque::new(),
                emptied: 0,
                requests_taken: 0,
                answers_taken: 0,
                most_answers: 0,
            }
        }

        fn answers(&self) -> usize {
            self.waiting.iter().filter(|is_answer| **is_answer).count()
        }

        /// As [`super::super::SendQueue::pump`]: posts up to `most` frames to `to`.
        fn pump(&mut self, to: &mut VecDeque<(u16, Option<bool>)>, most: u32, honest: bool) {
            let had = self.credits.own();
            for _ in 0..most {
                if !self.credits.any() {
                    break;
                }
                let Some(is_answer) = self.waiting.pop_front() else {
                    break;
                };
                let gives = if honest { self.credits.owed() } else { 0 };
                to.push_back((gives, Some(is_answer)));
                self.credits.spend();
                self.credits.gave_back();
            }
            self.credits
                .answers_wait(self.answers(), had - self.credits.own());
            if honest && self.credits.is_due() {
                to.push_back((self.credits.owed(), None));
                self.credits.gave_back();
                self.credits.returning(true);
            }
        }

        /// Takes one frame; whether it was one of credits alone.
        fn take(&mut self, answers: u32) -> bool {
            let Some((credits, is_answer)) = self.way.pop_front() else {
                return false;
            };
            self.credits.receive(credits);
            let Some(is_answer) = is_answer else {
                return true;
            };
            self.credits.filled(false);
            self.emptied += 1;
            if is_answer {
                self.answers_taken += 1;
            } else {
                self.requests_taken += 1;
                for _ in 0..answers {
                    self.waiting.push_back(true);
                }
                self.credits.answers_wait(self.answers(), 0);
                self.most_answers = self.most_answers.max(self.answers());
            }
            false
        }
    }

    /// A side that the schedule does not favour is looked after all the same.
    fn step(rng: &mut fastrand::Rng, ranks: &mut [Rank; 2], answers: u32, honest: [bool; 2]) {
        let me = usize::from(rng.bool());
        let [first, second] = ranks;
        let (own, other) = match me {
            0 => (first, second),
            _ => (second, first),
        };
        match rng.u8(0..3) {
            0 => own.pump(&mut other.way, rng.u32(1..20), honest[me]),
            1 => {
                if own.take(answers) {
                    other.credits.returning(false);
                }
            }
            _ => {
                own.emptied = 0;
                own.credits.posted();
            }
        }
    }

    /// Ranks that ask each other for more than either may owe, however the one is looked after and the other not.
    #[test]
    fn two_that_count_never_wait_for_each_other() {
        let mut held = 0;
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let slots = rng.u16(1..9);
            let requests = rng.usize(0..300);
            let answers = rng.u32(1..3);
            let mut ranks = [Rank::new(slots, 300), Rank::new(slots, requests)];
            let due = [requests as u32 * answers, 300 * answers];
            // Each moment is one of these 3 things for one of these 2 ranks, so that nothing is put off for long.
            for steps in 0.. {
                if [ranks[1].answers_taken, ranks[0].answers_taken] == due {
                    break;
                }
                assert!(steps < 200_000, "seed {seed}: both wait");
                step(&mut rng, &mut ranks, answers, [true; 2]);
                let is_held = |rank: &Rank| rank.credits.hold.is_some();
                held += u32::from(ranks.iter().all(is_held));
                assert!(!ranks.iter().any(|rank| rank.credits.is_overdrawn()));
            }
        }
        assert!(held > 1000, "both counted {held} times");
    }

    /// A peer that gives no credits, or one for many requests, is owed no more than the bound.
    #[test]
    fn a_peer_that_gives_no_credits_is_owed_a_bounded_number_of_answers() {
        const SLOTS: u16 = 8;
        for (seed, gives) in [(1, 0), (2, 1)] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut ranks = [Rank::new(SLOTS, 0), Rank::new(SLOTS, 10_000)];
            for _ in 0..1_000_000 {
                step(&mut rng, &mut ranks, 2, [true, false]);
                // A little for a lot.
                if gives > 0 && rng.u32(0..1000) == 0 && ranks[1].credits.owed() > 0 {
                    ranks[0].credits.receive(1);
                    ranks[1].credits.owed -= 1;
                }
            }
            let most = (ANSWERS + 2 * 2) * usize::from(SLOTS);
            let seen = ranks[0].most_answers;
            assert!(seen <= most, "{seen} answers of {most}");
            assert!(ranks[0].credits.hold.is_some() && !ranks[0].credits.is_overdrawn());
        }
    }

    #[test]
    fn a_frame_without_a_credit_is_noticed_while_too_many_answers_wait() {
        let mut credits = Credits::new(2);
        for _ in 0..9 {
            credits.filled(true);
        }
        assert!(!credits.is_overdrawn(), "nothing is counted before");
        credits.gave_back();
        credits.answers_wait(2 * ANSWERS, 0);
        credits.filled(true);
        credits.filled(false);
        assert!(!credits.is_overdrawn());
        credits.filled(true);
        assert!(credits.is_overdrawn());
        credits.answers_wait(0, 0);
        assert!(credits.is_overdrawn(), "nothing makes it honest again");
    }

    #[test]
    fn credits_that_were_held_back_are_owed_when_answers_have_left() {
        let mut credits = Credits::new(4);
        credits.answers_wait(4 * ANSWERS, 0);
        for _ in 0..2 {
            (0..4).for_each(|_| credits.filled(true));
            credits.gave_back();
        }
        assert_eq!(credits.owed(), 0, "as many as were lent have gone back");
        credits.answers_wait(4 * ANSWERS, 1);
        assert_eq!(credits.owed(), 1, "a frame has left");
        assert!(credits.is_due(), "nothing need wait for half of them");
        credits.gave_back();
        credits.answers_wait(4 * ANSWERS - 1, 1);
        assert_eq!(credits.owed(), 3);
        assert_eq!(credits.hold, None);
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
