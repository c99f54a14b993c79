use super::*;
use verbs_backend::{Gid, Mtu};

fn message(word: Word) -> Message {
    Message {
        word,
        from: 3,
        to: 4,
        token: 99,
        attempt: 7,
        card: Card {
            uid: 1000,
            jid: 5,
            attempts: 12,
            received: 77,
            credits: 64,
            address: DatagramAddress {
                qpn: 1,
                qkey: 2,
                lid: 3,
                gid: Gid([9; 16]),
            },
            token: 1 << 63,
        },
        endpoint: Endpoint {
            qpn: 17,
            psn: 5,
            lid: 0,
            gid: Gid([1; 16]),
            mtu: Mtu::B4096,
        },
    }
}

#[test]
fn datagrams_survive_the_wire() {
    for word in [
        Word::Connect,
        Word::Accept,
        Word::Ready,
        Word::Refuse(Refusal::Full),
        Word::Refuse(Refusal::GivenUp),
        Word::Refuse(Refusal::Device),
        Word::Bye { done: None },
        Word::Bye { done: Some(9) },
    ] {
        let bytes = message(word).to_bytes();
        assert_eq!(Message::parse(&bytes), Some(message(word)));
        for end in 0..BYTES {
            assert_eq!(Message::parse(&bytes[..end]), None);
        }
    }
    let mut rng = fastrand::Rng::with_seed(7);
    for _ in 0..10_000 {
        let mut bytes = message(Word::Connect).to_bytes();
        bytes[rng.usize(..BYTES)] = rng.u8(..);
        let _ = Message::parse(&bytes);
    }
}

/// One side of a pair, as far as the stages go.
#[derive(Clone, Debug)]
struct Side {
    rank: u32,
    stage: Stage,
    taken: Option<u32>,
    next: u32,
}

impl Side {
    fn new(rank: u32) -> Self {
        Self {
            rank,
            stage: Stage::Idle,
            taken: None,
            next: rank * 1000,
        }
    }

    fn ask(&mut self) -> (Word, u32) {
        self.next += 1;
        self.stage = Stage::Asking(self.next);
        (Word::Connect, self.next)
    }

    fn take(&mut self, peer: u32, word: Word, attempt: u32, attempts: u32) -> Option<(Word, u32)> {
        match word {
            Word::Connect => match on_connect(self.rank, peer, self.stage, self.taken, attempt) {
                OnConnect::Accept | OnConnect::Renew => {
                    self.taken = Some(attempt);
                    self.stage = Stage::Answered;
                    Some((Word::Accept, attempt))
                }
                OnConnect::Repeat => Some((Word::Accept, attempt)),
                OnConnect::Ignore => None,
                OnConnect::Refuse(why) => Some((Word::Refuse(why), attempt)),
            },
            Word::Accept if self.stage == Stage::Asking(attempt) => {
                self.taken = Some(settled(self.taken, attempts));
                self.stage = Stage::Opening(attempt);
                Some((Word::Ready, attempt))
            }
            Word::Accept if self.stage == Stage::Opening(attempt) => Some((Word::Ready, attempt)),
            Word::Ready if self.stage == Stage::Answered && self.taken == Some(attempt) => {
                self.stage = Stage::Up;
                None
            }
            _ => None,
        }
    }

    /// What its timer sends again.
    fn again(&self) -> Option<(Word, u32)> {
        match self.stage {
            Stage::Asking(attempt) => Some((Word::Connect, attempt)),
            Stage::Opening(attempt) => Some((Word::Ready, attempt)),
            _ => None,
        }
    }
}

/// Whoever asks, and whatever is lost, repeated or late: in the end one attempt connects both.
#[test]
fn both_sides_agree_whatever_the_datagrams_suffer() {
    for seed in 0..2_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut sides = [Side::new(1), Side::new(2)];
        let mut wire: Vec<(usize, Word, u32, u32)> = Vec::new();
        let first = rng.usize(..2);
        let both = rng.bool();
        for at in [first, 1 - first].into_iter().take(1 + usize::from(both)) {
            let (word, attempt) = sides[at].ask();
            wire.push((1 - at, word, attempt, sides[at].next));
        }
        for _ in 0..200 {
            if wire.is_empty() || rng.u8(..8) == 0 {
                for (at, side) in sides.iter().enumerate() {
                    if let Some((word, attempt)) = side.again() {
                        wire.push((1 - at, word, attempt, side.next));
                    }
                }
                if wire.is_empty() {
                    break;
                }
            }
            let at = rng.usize(..wire.len());
            let (to, word, attempt, attempts) = wire[at];
            let fate = rng.u8(..10);
            if fate != 0 {
                wire.swap_remove(at);
            }
            if fate == 1 {
                continue;
            }
            let peer = sides[1 - to].rank;
            if let Some((word, attempt)) = sides[to].take(peer, word, attempt, attempts) {
                wire.push((1 - to, word, attempt, sides[to].next));
            }
            // The one that is up greets over the connection, which the other's timer waits for.
            for at in 0..2 {
                if let Stage::Opening(attempt) = sides[at].stage
                    && sides[1 - at].stage == Stage::Up
                    && sides[1 - at].taken == Some(attempt)
                {
                    sides[at].stage = Stage::Up;
                }
            }
        }
        let stages = [sides[0].stage, sides[1].stage];
        assert_eq!(stages, [Stage::Up, Stage::Up], "seed {seed}: {sides:?}");
    }
}

#[test]
fn one_that_was_given_up_is_told_so() {
    let decision = on_connect(1, 2, Stage::Failed, Some(3), 4);
    assert_eq!(decision, OnConnect::Refuse(Refusal::GivenUp));
}
