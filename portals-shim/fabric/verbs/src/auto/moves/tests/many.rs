//! A job of two thousand ranks in which everybody talks much to everybody, with budgets for a few: simulated, as no machine at hand
//! has as many processes.

use super::super::*;
use std::collections::{HashMap, VecDeque};

const RANKS: usize = 2000;

/// The ranks, and words on their way: those of a pair arrive in order, and otherwise any may be the next.
struct Job {
    ranks: Vec<Moves>,
    words: HashMap<(usize, usize), VecDeque<Word>>,
    /// Pairs that have words on their way.
    busy: Vec<(usize, usize)>,
    random: fastrand::Rng,
    /// The most connections that a rank had, or was getting, at any time.
    most: Vec<u32>,
}

impl Job {
    /// Rank `r` may have `budget(r)` connections.
    fn new(budget: impl Fn(usize) -> u32) -> Self {
        let rules = |rank| Rules {
            chatty: 1,
            window: 100,
            budget: budget(rank),
            repeat: 50,
        };
        Self {
            ranks: (0..RANKS).map(|r| Moves::new(r, RANKS, rules(r))).collect(),
            words: HashMap::new(),
            busy: Vec::new(),
            random: fastrand::Rng::with_seed(7),
            most: vec![0; RANKS],
        }
    }

    fn say(&mut self, from: usize, to: usize, word: Word) {
        let words = self.words.entry((from, to)).or_default();
        if words.is_empty() {
            self.busy.push((from, to));
        }
        words.push_back(word);
    }

    fn offers(&mut self, rank: usize) {
        while let Some(peer) = self.ranks[rank].next_wanted() {
            if let Some(word) = self.ranks[rank].offer(peer, true) {
                self.say(rank, peer, word);
            }
            self.look(rank);
        }
    }

    fn look(&mut self, rank: usize) {
        self.most[rank] = self.most[rank].max(self.ranks[rank].used);
    }

    /// Delivers one word; `false` if none is on its way.
    fn deliver(&mut self) -> bool {
        if self.busy.is_empty() {
            return false;
        }
        let at = self.random.usize(..self.busy.len());
        let (from, to) = self.busy[at];
        let words = self.words.get_mut(&(from, to)).expect("a busy pair");
        let word = words.pop_front().expect("a word");
        if words.is_empty() {
            self.busy.swap_remove(at);
        }
        let said = match self.ranks[to].handle(from, word, 1) {
            Todo::Say(word) => Some(word),
            Todo::Prepare => self.ranks[to].answer(from, true, 1),
            Todo::Nothing | Todo::Discard | Todo::Connect => None,
        };
        if let Some(said) = said {
            self.say(to, from, said);
        }
        if word == Word::Done {
            self.ranks[from].arrived(to);
        }
        self.look(to);
        true
    }

    /// Every rank has a request for every other one, in an order of its own, while words arrive.
    fn everybody_talks_to_everybody(&mut self) {
        let mut order: Vec<usize> = (0..RANKS).collect();
        for round in 1..RANKS {
            self.random.shuffle(&mut order);
            for rank in order.iter().copied() {
                let peer = (rank + round) % RANKS;
                if self.ranks[rank].way(peer) == Way::Datagrams {
                    self.ranks[rank].count(peer, 1, false);
                }
                self.offers(rank);
                self.deliver();
            }
        }
        while self.deliver() {}
    }
}

fn holds(budget: impl Fn(usize) -> u32) -> Job {
    let mut job = Job::new(&budget);
    job.everybody_talks_to_everybody();
    for (rank, moves) in job.ranks.iter().enumerate() {
        assert!(job.most[rank] <= budget(rank), "rank {rank}");
        let connected = |peer: &usize| moves.state(*peer) == State::Connected;
        let peers: Vec<usize> = (0..RANKS).filter(connected).collect();
        assert_eq!(moves.counts().connected as usize, peers.len());
        assert_eq!(moves.used as usize, peers.len(), "rank {rank}");
        assert_eq!(moves.counts().odd, 0);
        for peer in peers {
            assert_eq!(job.ranks[peer].state(rank), State::Connected);
        }
        // Nobody's requests wait for a word that will never be said.
        assert!((0..RANKS).all(|peer| moves.way(peer) != Way::Waits));
    }
    job
}

#[test]
fn two_thousand_ranks_stay_within_their_budgets() {
    let job = holds(|_| 16);
    let connected: u32 = job.ranks.iter().map(|m| m.counts().connected).sum();
    // Offers that are declined leave connections unused; most budgets are used up all the same.
    assert!(
        connected > 16 * RANKS as u32 / 2,
        "{connected} ends of connections"
    );
}

#[test]
fn budgets_may_differ_and_some_may_be_nothing() {
    let job = holds(|rank| [0, 1, 4, 64][rank % 4]);
    for rank in (0..RANKS).step_by(4) {
        assert_eq!(job.ranks[rank].counts().moved, 0);
    }
}
