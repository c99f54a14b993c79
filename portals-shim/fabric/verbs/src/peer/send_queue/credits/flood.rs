//! Two ranks that ask each other for more than either may owe, under random schedules: what each owes and has unread is
//! bounded, and neither waits for ever.

use super::super::waiting::{Queued, Waiting};
use super::{ANSWERS, Credits, LEAST};
use crate::frame::{Kind, PREFIX, TOKEN, Writer};
use std::collections::VecDeque;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// The RTS of a long put that asks for an ack, which causes a read, and then ATS and ACK.
    Put,
    /// A long get, which causes the RTS of a reply.
    Get,
    /// That RTS, which causes a read, and then its ATS.
    Reply,
    ReplyAts,
    PutAts,
    Ack,
}

const WORDS: [Word; 6] = [
    Word::Put,
    Word::Get,
    Word::Reply,
    Word::ReplyAts,
    Word::PutAts,
    Word::Ack,
];

fn queued(word: Word) -> Queued {
    let kind = match word {
        Word::Put | Word::Get => Kind::ReadRequest,
        Word::Reply | Word::ReplyAts | Word::PutAts | Word::Ack => Kind::AckToSend,
    };
    let mut bytes = vec![0; TOKEN];
    Writer::new(&mut bytes, kind, false).token(word as u32);
    Queued::Frame { bytes }
}

fn word_of(item: &Queued) -> Word {
    match item {
        Queued::Frame { bytes } => WORDS[usize::from(bytes[PREFIX])],
        other => panic!("{other:?}"),
    }
}

/// A rank, as [`super::super::SendQueue`] and its protocols are for one peer.
struct Rank {
    credits: Credits,
    waiting: Waiting,
    /// What is on its way to it: the credits that it brings, and what it is, unless it brings only them.
    way: VecDeque<(u16, Option<Word>)>,
    reads: VecDeque<Word>,
    /// It gives credits, and acknowledges.
    counts: bool,
    acknowledges: bool,
    answered: u32,
    unread: usize,
    most_owed: usize,
    most_unread: usize,
}

impl Rank {
    fn new(lent: u16, granted: u16, requests: u32) -> Self {
        let mut credits = Credits::new(lent);
        credits.renew(granted);
        let mut waiting = Waiting::default();
        waiting.set_much(credits.much());
        for number in 0..requests {
            waiting.push_back(queued(if number % 3 == 0 {
                Word::Put
            } else {
                Word::Get
            }));
        }
        Self {
            credits,
            waiting,
            way: VecDeque::new(),
            reads: VecDeque::new(),
            counts: true,
            acknowledges: true,
            answered: 0,
            unread: 0,
            most_owed: 0,
            most_unread: 0,
        }
    }

    fn count(&mut self) {
        self.credits.answers_wait(self.waiting.owed());
        self.most_owed = self.most_owed.max(self.waiting.owed());
        self.most_unread = self.most_unread.max(self.unread);
    }

    fn send(&mut self, word: Word) {
        self.waiting.push_back(queued(word));
    }

    /// As [`super::super::SendQueue::pump`]: posts up to `most` frames to `to`.
    fn pump(&mut self, to: &mut VecDeque<(u16, Option<Word>)>, most: u32) {
        for _ in 0..most {
            if !self.credits.any() {
                break;
            }
            let Some(next) = self.waiting.pop(true) else {
                break;
            };
            let gives = if self.counts { self.credits.owed() } else { 0 };
            to.push_back((gives, Some(word_of(&next))));
            self.credits.spend();
            self.credits.gave_back();
        }
        self.count();
        if self.counts && self.credits.is_due() {
            to.push_back((self.credits.owed(), None));
            self.credits.gave_back();
            self.credits.returning(true);
        }
    }

    /// Takes one frame; whether it was one of credits alone.
    fn take(&mut self) -> bool {
        let Some((credits, word)) = self.way.pop_front() else {
            return false;
        };
        self.credits.receive(credits);
        let Some(word) = word else { return true };
        self.credits.filled(false);
        match word {
            Word::Put | Word::Reply => {
                self.waiting.promise(if word == Word::Put { 2 } else { 1 });
                self.reads.push_back(word);
            }
            Word::Get => {
                self.send(Word::Reply);
                self.unread += 1;
            }
            Word::ReplyAts => self.unread -= 1,
            Word::PutAts => {}
            Word::Ack => self.answered += 1,
        }
        self.count();
        false
    }

    /// The oldest read ends.
    fn read(&mut self) {
        match self.reads.pop_front() {
            Some(Word::Put) => {
                self.waiting.keep(2);
                self.send(Word::PutAts);
                self.send(Word::Ack);
            }
            Some(Word::Reply) => {
                self.waiting.keep(1);
                self.answered += 1;
                if self.acknowledges {
                    self.send(Word::ReplyAts);
                }
            }
            _ => {}
        }
        self.count();
    }
}

/// One of few things for one of the two. `favours` one of the ranks, and one of the things.
fn step(rng: &mut fastrand::Rng, ranks: &mut [Rank; 2], favours: (usize, u8)) {
    let me = match rng.u8(0..8) {
        0 => 1 - favours.0,
        1..4 => favours.0,
        _ => usize::from(rng.bool()),
    };
    let [first, second] = ranks;
    let (own, other) = match me {
        0 => (first, second),
        _ => (second, first),
    };
    let what = if rng.u8(0..4) == 0 {
        favours.1
    } else {
        rng.u8(0..4)
    };
    match what {
        0 => own.pump(&mut other.way, rng.u32(1..20)),
        1 => {
            if own.take() {
                other.credits.returning(false);
            }
        }
        2 => own.read(),
        _ => own.credits.posted(),
    }
}

fn slots(lent: [u16; 2]) -> usize {
    lent[0].max(lent[1]).max(LEAST).into()
}

#[test]
fn two_that_flood_each_other_never_wait_for_each_other() {
    let (mut held, mut both) = (0, 0);
    for seed in 0..300 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let lent = [rng.u16(1..17), rng.u16(1..17)];
        let requests = [2000, rng.u32(0..2000)];
        let mut ranks = [
            Rank::new(lent[0], lent[1], requests[0]),
            Rank::new(lent[1], lent[0], requests[1]),
        ];
        let favours = (rng.usize(0..2), rng.u8(0..4));
        for steps in 0.. {
            if (0..2).all(|me| ranks[me].answered == requests[me]) {
                break;
            }
            assert!(steps < 1_000_000, "seed {seed}: both wait");
            step(&mut rng, &mut ranks, favours);
            let holds = |rank: &Rank| rank.credits.hold.is_some();
            held += u32::from(ranks.iter().any(holds));
            both += u32::from(ranks.iter().all(holds));
            assert!(!ranks.iter().any(|rank| rank.credits.is_overdrawn()));
        }
        let m = slots(lent);
        for rank in &ranks {
            let (owed, unread) = (rank.most_owed, rank.most_unread);
            assert!(owed <= ANSWERS * m + 1 + 2 * m, "seed {seed}: {owed} owed");
            assert!(unread <= 22 * m + 2, "seed {seed}: {unread} unread");
        }
    }
    assert!(held > 10_000, "credits were held back {held} times");
    assert_eq!(both, 0, "both held credits back");
}

/// A peer that gives no credits is owed no more than the bound.
#[test]
fn a_peer_that_gives_no_credits_is_owed_a_bounded_number_of_answers() {
    for seed in 0..10 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let lent = [rng.u16(1..17), rng.u16(1..17)];
        let mut ranks = [
            Rank::new(lent[0], lent[1], 0),
            Rank::new(lent[1], lent[0], 100_000),
        ];
        ranks[1].counts = false;
        for _ in 0..200_000 {
            step(&mut rng, &mut ranks, (1, 0));
            // A little for a lot, which lets an answer leave for two that come.
            if rng.u32(0..100) == 0 && ranks[1].credits.owed() > 0 {
                ranks[0].credits.receive(1);
                ranks[1].credits.owed -= 1;
            }
        }
        let (m, owed) = (slots(lent), ranks[0].most_owed);
        assert!(owed <= ANSWERS * m + 1 + 2 * m, "seed {seed}: {owed} owed");
        assert!(!ranks[0].credits.is_overdrawn());
    }
}

/// A peer that gives credits, and acknowledges no long reply, has more of them than one that does.
#[test]
fn a_peer_that_acknowledges_nothing_is_noticed() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut ranks = [Rank::new(4, 4, 0), Rank::new(4, 4, 100_000)];
    ranks[1].acknowledges = false;
    let limit = ranks[0].credits.limit();
    for steps in 0.. {
        if ranks[0].unread > limit {
            break;
        }
        assert!(steps < 1_000_000, "{} unread", ranks[0].unread);
        step(&mut rng, &mut ranks, (1, 0));
    }
    assert!(ranks[0].most_owed <= ANSWERS * slots([4, 4]) + 9);
}
