//! Two ends that ask each other for more than either can answer at once: what each owes is bounded, and neither waits for ever.

use super::net::{Got, Net, Wire, small};
use verbs_backend::rd::{Congestion, Priority, Retransmit, Time};

/// Segments that an end may have under way.
const WINDOW: u16 = 16;
const OWED: u32 = 8 * WINDOW as u32;
/// The first byte of a request, and of an answer.
const REQUEST: u8 = 0;
const ANSWER: u8 = 1;

/// Ends that answer each request twice, over a wire of this seed; requests of each.
struct Flood {
    net: Net,
    requests: [usize; 2],
    answers: [usize; 2],
    looked: [usize; 2],
}

impl Flood {
    fn new(seed: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let wire = Wire {
            per_kilobyte: 800,
            delay: random.u64(1_000..50_000),
            loss: random.u32(..50_000),
            duplicate: random.u32(..20_000),
            reorder: random.u32(..100_000),
            late: 50_000,
            ..Wire::default()
        };
        let mut config = small(WINDOW);
        config.overtake = 64;
        config.owed = OWED;
        config.receives = WINDOW.into();
        if random.bool() {
            // Nobody minds what the other one wants, so that more comes than is taken.
            config.congestion = Congestion::None;
        }
        config.retransmit = Retransmit::Adaptive {
            initial: 1_000_000,
            least: 500_000,
            most: 5_000_000,
        };
        let requests = [1000, random.usize(0..1000)];
        let mut flood = Self {
            net: Net::new(2, config, wire, seed),
            requests,
            answers: [0; 2],
            looked: [0; 2],
        };
        for (own, requests) in requests.into_iter().enumerate() {
            for number in 0..requests {
                let data = vec![REQUEST, number as u8, (number >> 8) as u8];
                flood.net.send(own, 1 - own, data, 0);
            }
        }
        flood
    }

    /// Answers what has been taken at an end since it was looked at.
    fn answer(&mut self, own: usize) {
        let new: Vec<Got> = self.net.got[own][self.looked[own]..]
            .iter()
            .map(|(_, got)| got.clone())
            .collect();
        self.looked[own] += new.len();
        for got in new {
            match got {
                Got::Fragment(_, data) if data[0] == REQUEST => {
                    for _ in 0..2 {
                        let answer = vec![ANSWER; 100];
                        self.net.send_as(own, 1 - own, answer, 0, Priority::Urgent);
                    }
                    self.net.pump(own);
                }
                Got::Fragment(..) => self.answers[own] += 1,
                Got::Gone(..) => panic!("somebody was given up"),
                _ => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        (0..2).all(|own| self.answers[own] == 2 * self.requests[own])
    }
}

#[test]
fn ends_that_flood_each_other_owe_a_bounded_number_and_never_wait_for_each_other() {
    const LIMIT: Time = 60_000_000_000;
    let mut refused = 0;
    for seed in 0..60 {
        let mut flood = Flood::new(seed);
        (0..2).for_each(|own| flood.net.pump(own));
        let until = flood.net.now + LIMIT;
        while !flood.is_over() {
            assert!(flood.net.step(until), "seed {seed}: both wait");
            (0..2).for_each(|own| flood.answer(own));
        }
        for own in 0..2 {
            let stats = flood.net.ends[own].stats();
            let most = u64::from(OWED) + 2 + 4 * u64::from(WINDOW);
            assert!(stats.most_owed <= most, "seed {seed}: {}", stats.most_owed);
            refused += stats.owed_refused;
        }
        // Each in its order, and once.
        for own in 0..2 {
            let all = flood.net.fragments(own, 1 - own);
            let requests = all.iter().filter(|data| data[0] == REQUEST);
            let numbers = requests.map(|data| usize::from(data[1]) | usize::from(data[2]) << 8);
            assert!(numbers.eq(0..flood.requests[1 - own]), "seed {seed}");
        }
    }
    assert!(refused > 1000, "{refused} were refused");
}
