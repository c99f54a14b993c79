//! Every schedule of a small configuration: window 4, of all datagrams up to three lost, and one repeated or
//! overtaken by the next.
//!
//! A run is told what becomes of each datagram by its number; one that is not named arrives at once. Runs make a tree: a
//! run's children name one datagram more, later than all that it names. So each set of fates is played exactly once.

use super::net::{End, small, token};
use verbs_backend::rd::{Channel, Config, Congestion, Event, Priority, Received, Retransmit, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Lost,
    Twice,
    /// Arrives after the next datagram of its direction, or when nothing else happens.
    Overtaken,
}

struct Run {
    ends: [End; 2],
    /// On the wire, by target.
    wire: [Vec<Vec<u8>>; 2],
    behind: [Option<Vec<u8>>; 2],
    got: [Vec<Vec<u8>>; 2],
    now: Time,
    sent: usize,
}

fn config() -> Config {
    let mut config = small(4);
    config.congestion = Congestion::None;
    config.retransmit = Retransmit::Fixed(1_000_000);
    config.reorder = 1;
    config.ack_every = 2;
    config
}

/// What each end sends: five fragments of a segment and one of three chunks; two fragments.
fn wants(own: usize) -> Vec<Vec<u8>> {
    if own == 0 {
        let short = (0..4).map(|i| vec![i; 3]);
        short.chain([vec![9; 220], vec![5; 3]]).collect()
    } else {
        vec![vec![7; 3], vec![8; 3]]
    }
}

impl Run {
    fn new() -> Self {
        let mut run = Self {
            ends: [0, 1].map(|own| {
                let mut end = End::new(config(), own as u32, token(own));
                let _ = end.add_peer(1 - own as u32, token(1 - own));
                end
            }),
            wire: Default::default(),
            behind: Default::default(),
            got: Default::default(),
            now: 1_000_000,
            sent: 0,
        };
        for own in 0..2 {
            for data in wants(own) {
                let end = &mut run.ends[own];
                let peer = end.find(1 - own as u32).unwrap();
                let len = data.len() as u64;
                end.send(run.now, peer, data, len, 0, Priority::InOrder)
                    .unwrap();
            }
        }
        run
    }

    fn pump(&mut self, fates: &[(usize, Fate)]) {
        let mut buffer = [0; 128];
        for own in 0..2 {
            while let Some(t) = self.ends[own].poll_transmit(self.now, &mut buffer) {
                self.ends[own].handle_sent(t.channel, 1);
                let bytes = buffer[..t.len].to_vec();
                let fate = fates.iter().find(|(n, _)| *n == self.sent).map(|f| f.1);
                self.sent += 1;
                let to = 1 - own;
                match fate {
                    None => self.wire[to].push(bytes),
                    Some(Fate::Lost) => {}
                    Some(Fate::Twice) => self.wire[to].extend([bytes.clone(), bytes]),
                    Some(Fate::Overtaken) => {
                        if let Some(earlier) = self.behind[to].replace(bytes) {
                            self.wire[to].push(earlier);
                        }
                        continue;
                    }
                }
                let late = self.behind[to].take();
                self.wire[to].extend(late);
            }
        }
    }

    fn deliver(&mut self, own: usize) -> bool {
        if self.wire[own].is_empty() {
            return false;
        }
        let bytes = self.wire[own].remove(0);
        if let Received::Fragment { data, .. } = self.ends[own].handle_datagram(self.now, &bytes) {
            self.got[own].push(data.to_vec());
        }
        while let Some(event) = self.ends[own].poll_event() {
            match event {
                Event::Fragment { data, .. } => self.got[own].push(data),
                Event::Acked { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        true
    }

    /// Plays to the end; how many datagrams there were.
    fn play(mut self, fates: &[(usize, Fate)]) -> usize {
        for _ in 0..200 {
            self.pump(fates);
            // In turn, so that each end sees some of the other's before all of it.
            if self.deliver(0) | self.deliver(1) {
                continue;
            }
            for own in 0..2 {
                let late = self.behind[own].take();
                self.wire[own].extend(late);
            }
            if self.wire.iter().any(|w| !w.is_empty()) {
                continue;
            }
            if self.ends.iter().all(End::is_idle) {
                assert_eq!(self.got, [wants(1), wants(0)], "{fates:?}");
                assert!(self.ends.iter().all(|e| e.posted(Channel::Data) == 0));
                return self.sent;
            }
            let next = self.ends.iter().filter_map(End::next_timeout).min();
            self.now = next.unwrap_or_else(|| panic!("stuck: {fates:?}"));
            for end in &mut self.ends {
                end.handle_timeout(self.now);
            }
        }
        panic!("no end: {fates:?}");
    }
}

fn explore(fates: &mut Vec<(usize, Fate)>, losses: u32, others: u32, runs: &mut u64) {
    let sent = Run::new().play(fates);
    *runs += 1;
    let first = fates.last().map_or(0, |f| f.0 + 1);
    for at in first..sent {
        for fate in [Fate::Lost, Fate::Twice, Fate::Overtaken] {
            let (l, o) = match fate {
                Fate::Lost if losses > 0 => (losses - 1, others),
                Fate::Twice | Fate::Overtaken if others > 0 => (losses, others - 1),
                _ => continue,
            };
            fates.push((at, fate));
            explore(fates, l, o, runs);
            fates.pop();
        }
    }
}

#[test]
fn every_schedule_of_a_small_configuration_delivers_once_and_in_order() {
    let mut runs = 0;
    explore(&mut Vec::new(), 3, 1, &mut runs);
    println!(
        "{runs} schedules: window 4, up to 3 datagrams lost and 1 repeated or overtaken; all delivered once and in order"
    );
    // Fewer would mean that something was not tried.
    assert_eq!(runs, 41_912);
}
