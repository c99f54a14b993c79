//! Every schedule of two ranks that talk while they move, and long random runs of more.
//!
//! Datagrams and the connection are two streams between the same ranks, each in order and of any delay against the
//! other; the connection is there the moment somebody sends on it, which no device is as quick as. Each stream of
//! requests must arrive in order and once, and so must all that a rank posts to another, requests and answers. Words may
//! be behind: a repeated one says nothing new.

use super::super::*;
use explorer::{Visited, explore};
use std::collections::VecDeque;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Body {
    Request(u8),
    Answer(u8),
    Word(Word),
}

/// What is on its way, with its place among all requests and answers that its sender has posted to that rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Frame {
    place: u8,
    body: Body,
}

/// What rank `from` has under way to rank `to`, and what `to` has had of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Stream {
    datagrams: VecDeque<Frame>,
    connection: VecDeque<Frame>,
    /// DONE has arrived, which the sender does not know yet.
    told: bool,
    /// Requests of `from`: made, waiting, arrived at `to`, answered.
    made: u8,
    held: VecDeque<u8>,
    arrived: u8,
    answered: u8,
    /// Requests and answers of `from`, both ways: posted, arrived.
    posted: u8,
    taken: u8,
    /// Ended because the peer is gone.
    failed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A rank has a request for another.
    Ask(usize, usize),
    /// The oldest frame of a way arrives.
    Datagram(usize, usize),
    Connection(usize, usize),
    Told(usize, usize),
    /// A rank makes an offer that it has to make.
    Offer(usize),
    /// A rank that waits repeats its word.
    Repeat(usize),
    /// The last rank dies.
    Die,
    /// The newest datagram of the dead is lost.
    Lose,
    /// What was sent to the dead is never acknowledged.
    Notice(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Net {
    ranks: Vec<Moves>,
    /// By from and to.
    streams: Vec<Vec<Stream>>,
    requests: u8,
    /// Words that each may still repeat.
    repeats: Vec<u8>,
    mortal: bool,
    dead: bool,
}

impl Net {
    fn new(rules: &[Rules], requests: u8) -> Self {
        let n = rules.len();
        let ranks = (0..n).zip(rules).map(|(own, r)| Moves::new(own, n, *r));
        Self {
            ranks: ranks.collect(),
            streams: vec![vec![Stream::default(); n]; n],
            requests,
            repeats: vec![1; n],
            mortal: false,
            dead: false,
        }
    }

    fn is_dead(&self, rank: usize) -> bool {
        self.dead && rank + 1 == self.ranks.len()
    }

    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let n = self.ranks.len();
        (0..n).flat_map(move |a| (0..n).filter(move |b| *b != a).map(move |b| (a, b)))
    }

    fn post(&mut self, from: usize, to: usize, body: Body, way: Way) {
        let stream = &mut self.streams[from][to];
        let place = stream.posted;
        stream.posted += u8::from(!matches!(body, Body::Word(_)));
        let frame = Frame { place, body };
        match way {
            Way::Datagrams => stream.datagrams.push_back(frame),
            Way::Connection => stream.connection.push_back(frame),
            Way::Waits => panic!("posted although it waits"),
        }
    }

    fn say(&mut self, from: usize, to: usize, word: Option<Word>) {
        if let Some(word) = word {
            self.post(from, to, Body::Word(word), Way::Datagrams);
        }
    }

    fn request(&mut self, from: usize, to: usize) {
        let number = self.streams[from][to].made;
        self.streams[from][to].made += 1;
        match self.ranks[from].way(to) {
            Way::Waits => self.streams[from][to].held.push_back(number),
            way => {
                self.post(from, to, Body::Request(number), way);
                if way == Way::Datagrams {
                    self.ranks[from].count(to, 0, false);
                }
            }
        }
    }

    fn release(&mut self, from: usize, to: usize) {
        while let Some(number) = self.streams[from][to].held.pop_front() {
            self.post(from, to, Body::Request(number), Way::Connection);
        }
    }

    /// A frame arrives by a way.
    fn take(&mut self, from: usize, to: usize, way: Way) {
        let stream = &mut self.streams[from][to];
        let frame = match way {
            Way::Datagrams => stream.datagrams.pop_front(),
            _ => stream.connection.pop_front(),
        };
        let Some(frame) = frame else { return };
        if !matches!(frame.body, Body::Word(_)) {
            assert_eq!(frame.place, stream.taken, "overtaken, or lost, or twice");
            stream.taken += 1;
        }
        match frame.body {
            Body::Request(number) => {
                assert_eq!(number, stream.arrived, "requests out of order");
                stream.arrived += 1;
                self.post(to, from, Body::Answer(number), way);
            }
            Body::Answer(number) => {
                let asked = &mut self.streams[to][from];
                assert_eq!(number, asked.answered, "answers out of order");
                asked.answered += 1;
            }
            Body::Word(word) => {
                self.streams[from][to].told |= word == Word::Done;
                match self.ranks[to].handle(from, word, 0) {
                    Todo::Nothing | Todo::Discard => {}
                    Todo::Say(word) => self.say(to, from, Some(word)),
                    Todo::Prepare => {
                        let word = self.ranks[to].answer(from, true, 0);
                        self.say(to, from, word);
                    }
                    Todo::Connect => self.release(to, from),
                }
            }
        }
    }

    /// Something of a rank for the dead waits for an acknowledgement.
    fn may_notice(&self, rank: usize) -> bool {
        let to_dead = &self.streams[rank][self.ranks.len() - 1];
        let waits = to_dead.told || !to_dead.datagrams.is_empty() || !to_dead.connection.is_empty();
        !self.is_dead(rank) && self.dead && waits && !to_dead.failed
    }
}

impl explorer::World for Net {
    type Step = Step;

    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (a, b) in self.pairs() {
            let stream = &self.streams[a][b];
            if stream.made < self.requests && !self.is_dead(a) && !stream.failed {
                steps.push(Step::Ask(a, b));
            }
            if self.is_dead(b) || stream.failed || self.streams[b][a].failed {
                continue;
            }
            if !stream.datagrams.is_empty() {
                steps.push(Step::Datagram(a, b));
            }
            if !stream.connection.is_empty() {
                steps.push(Step::Connection(a, b));
            }
            if stream.told && !self.is_dead(a) {
                steps.push(Step::Told(a, b));
            }
        }
        for (rank, moves) in self.ranks.iter().enumerate() {
            if moves.next_timeout().is_some() && self.repeats[rank] > 0 && !self.is_dead(rank) {
                steps.push(Step::Repeat(rank));
            }
            if moves.has_wanted() && !self.is_dead(rank) {
                steps.push(Step::Offer(rank));
            }
            if self.may_notice(rank) {
                steps.push(Step::Notice(rank));
            }
        }
        if self.mortal && !self.dead {
            steps.push(Step::Die);
        }
        let last = self.ranks.len() - 1;
        if self.dead && (0..last).any(|r| !self.streams[last][r].datagrams.is_empty()) {
            steps.push(Step::Lose);
        }
        steps
    }

    fn is_new(step: &Step) -> bool {
        matches!(step, Step::Ask(..) | Step::Die)
    }

    fn apply(&mut self, step: Step) {
        match step {
            Step::Ask(from, to) => self.request(from, to),
            Step::Datagram(from, to) => self.take(from, to, Way::Datagrams),
            Step::Connection(from, to) => self.take(from, to, Way::Connection),
            Step::Told(from, to) => {
                self.streams[from][to].told = false;
                if self.ranks[from].arrived(to) {
                    self.release(from, to);
                }
            }
            Step::Offer(rank) => {
                if let Some(to) = self.ranks[rank].next_wanted() {
                    let word = self.ranks[rank].offer(to, true);
                    self.say(rank, to, word);
                }
            }
            Step::Repeat(rank) => {
                self.repeats[rank] -= 1;
                if let Some((to, word)) = self.ranks[rank].handle_timeout(Time::MAX) {
                    self.say(rank, to, Some(word));
                }
            }
            Step::Die => {
                self.dead = true;
                // As often as it takes.
                self.repeats.fill(1);
            }
            Step::Lose => {
                let last = self.ranks.len() - 1;
                for to in 0..last {
                    self.streams[last][to].datagrams.pop_back();
                }
            }
            Step::Notice(rank) => {
                let last = self.ranks.len() - 1;
                self.ranks[rank].gone(last);
                let stream = &mut self.streams[rank][last];
                stream.failed = true;
                stream.held.clear();
                stream.datagrams.clear();
                stream.connection.clear();
            }
        }
    }

    fn check(&self) {
        for moves in &self.ranks {
            assert!(moves.used <= moves.rules.budget);
            let (counts, states) = (moves.counts, moves.peers.iter().map(|p| p.state));
            let is_one = |s: &State| *s == State::Connected;
            assert_eq!(counts.connected as usize, states.filter(is_one).count());
            assert_eq!(counts.odd, 0);
        }
        for (a, b) in self.pairs() {
            let mut way = self.streams[a][b].datagrams.iter();
            assert!(
                self.ranks[a].way(b) != Way::Connection
                    || way.all(|f| matches!(f.body, Body::Word(_)))
            );
        }
    }

    fn is_done(&self) -> bool {
        self.pairs().all(|(a, b)| {
            let stream = &self.streams[a][b];
            if self.is_dead(a) {
                return true;
            }
            if self.is_dead(b) {
                // Nothing waits; what has no answer is failed once the death is noticed.
                return stream.held.is_empty();
            }
            let same = (self.ranks[a].state(b) == State::Connected)
                == (self.ranks[b].state(a) == State::Connected);
            let open = matches!(
                self.ranks[a].state(b),
                State::Offered | State::Agreed | State::Leaving | State::Finishing
            );
            same && !open && stream.held.is_empty() && stream.answered == stream.made
        })
    }
}

const EAGER: Rules = Rules {
    chatty: 1,
    window: 100,
    budget: 1,
    repeat: 10,
};
const CALM: Rules = Rules { chatty: 2, ..EAGER };
const NONE: Rules = Rules { budget: 0, ..EAGER };

fn visit(rules: [Rules; 2], mortal: bool) -> Visited {
    let net = Net {
        mortal,
        ..Net::new(&rules, if mortal { 2 } else { 3 })
    };
    explore(net, 3_000_000)
}

#[test]
fn every_schedule_of_a_pair_keeps_order_and_loses_nothing() {
    for rules in [[EAGER, EAGER], [EAGER, CALM], [CALM, EAGER], [CALM, CALM]] {
        let visited = visit(rules, false);
        println!("{visited:?}");
        assert!(visited.states > 1000);
    }
}

#[test]
fn a_side_without_budget_keeps_the_pair_on_datagrams() {
    for rules in [[EAGER, NONE], [NONE, EAGER], [NONE, NONE]] {
        println!("{:?}", visit(rules, false));
    }
    // Nothing stays reserved, and who was declined asks once.
    let mut net = Net::new(&[EAGER, NONE], 3);
    run(&mut net, &mut fastrand::Rng::with_seed(1));
    let counts = (net.ranks[0].counts, net.ranks[1].counts);
    assert_eq!((net.ranks[0].used, net.ranks[1].used), (0, 0));
    assert_eq!(
        (counts.0.stayed, counts.1.stayed, counts.1.declined),
        (1, 1, 1)
    );
}

#[test]
fn a_peer_that_dies_in_a_move_leaves_nobody_waiting() {
    for rules in [[EAGER, EAGER], [EAGER, CALM], [CALM, EAGER]] {
        println!("{:?}", visit(rules, true));
    }
}

/// Steps at random until nothing is left to do.
fn run(net: &mut Net, rng: &mut fastrand::Rng) {
    use explorer::World as _;
    loop {
        let steps = net.steps();
        let Some(step) = rng.choice(steps) else {
            break;
        };
        net.apply(step);
        net.check();
    }
    assert!(net.is_done(), "{net:?}");
}

#[test]
fn many_ranks_with_budgets_of_all_sizes_keep_order_and_agree_who_is_connected() {
    let mut rng = fastrand::Rng::with_seed(9);
    let (mut moved, mut stayed) = (0, 0);
    for _ in 0..300 {
        let rules: Vec<Rules> = (0..5)
            .map(|_| Rules {
                chatty: rng.u32(1..6),
                budget: rng.u32(0..5),
                ..EAGER
            })
            .collect();
        let mut net = Net::new(&rules, 12);
        run(&mut net, &mut rng);
        moved += net.ranks.iter().map(|r| r.counts.moved).sum::<u64>();
        stayed += net.ranks.iter().map(|r| r.counts.stayed).sum::<u64>();
    }
    assert!(moved > 500 && stayed > 500, "{moved} {stayed}");
}
