//! Endpoints joined by a wire in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use verbs_backend::rd::{Channel, Config, Endpoint, Event, PeerId, Priority, Received, Time};

pub(crate) type End = Endpoint<Vec<u8>>;

/// What the wire does. Probabilities are of 1,000,000.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wire {
    /// Nanoseconds of a byte, in thousandths.
    pub(crate) per_kilobyte: Time,
    /// One way, nanoseconds.
    pub(crate) delay: Time,
    pub(crate) loss: u32,
    pub(crate) duplicate: u32,
    /// Those that are late by up to `late`.
    pub(crate) reorder: u32,
    pub(crate) late: Time,
    pub(crate) corrupt: u32,
    pub(crate) truncate: u32,
    /// Bytes that wait for a receiver's port at most; 0: no port.
    pub(crate) queue: u64,
    /// Datagrams that a receiver has buffers for between two polls; 0: any number.
    pub(crate) buffers: usize,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Left(usize, bool),
    Port(usize, Vec<u8>),
    Arrives(usize, Vec<u8>),
}

/// What was handed up at an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Fragment(usize, Vec<u8>),
    Put(usize, u32, u64, Vec<u8>, bool),
    Acked(usize, u64),
    Failed(usize, u64),
    Gone(usize, bool),
}

/// Ends, by number, and the wire between them. Peer `n` of an end is process `n`.
pub(crate) struct Net {
    pub(crate) ends: Vec<End>,
    pub(crate) wire: Wire,
    pub(crate) now: Time,
    /// What was handed up, by end, with the time; taken by the test.
    pub(crate) got: Vec<Vec<(Time, Got)>>,
    /// Datagrams that passed, if they are wanted.
    pub(crate) tap: Option<Vec<(usize, Vec<u8>)>>,
    /// Ends that do not look at what arrives.
    pub(crate) deaf: Vec<bool>,
    /// Opens a landing of this length when a fragment of these bytes is handed up: `(end, data) -> (landing, len)`.
    pub(crate) opens: fn(&[u8]) -> Option<(u32, u64)>,
    pub(crate) dropped: u64,
    waiting: Vec<Vec<Vec<u8>>>,
    events: BinaryHeap<Reverse<(Time, u64, What)>>,
    count: u64,
    free: Vec<[Time; 2]>,
    port: Vec<Time>,
    random: fastrand::Rng,
    buffer: Vec<u8>,
}

pub(crate) fn token(number: usize) -> u64 {
    0x1234_5678_9abc_def0 ^ (number as u64).wrapping_mul(0x9e37_79b9_97f4_a7c1)
}

impl Net {
    pub(crate) fn new(count: usize, config: Config, wire: Wire, seed: u64) -> Self {
        let ends = (0..count)
            .map(|own| {
                let mut end = End::new(config, own as u32, token(own));
                for other in 0..count {
                    let _ = end.add_peer(other as u32, token(other));
                }
                end
            })
            .collect();
        Self {
            ends,
            wire,
            now: 1_000_000,
            got: vec![Vec::new(); count],
            tap: None,
            deaf: vec![false; count],
            opens: |_| None,
            dropped: 0,
            waiting: vec![Vec::new(); count],
            events: BinaryHeap::new(),
            count: 0,
            free: vec![[0; 2]; count],
            port: vec![0; count],
            random: fastrand::Rng::with_seed(seed),
            buffer: vec![0; 1 << 16],
        }
    }

    pub(crate) fn peer(&self, end: usize, other: usize) -> PeerId {
        self.ends[end].find(other as u32).unwrap()
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, data: Vec<u8>, tag: u64) {
        self.send_as(from, to, data, tag, Priority::InOrder);
    }

    pub(crate) fn send_as(
        &mut self,
        from: usize,
        to: usize,
        data: Vec<u8>,
        tag: u64,
        priority: Priority,
    ) {
        let peer = self.peer(from, to);
        let len = data.len() as u64;
        self.ends[from]
            .send(self.now, peer, data, len, tag, priority)
            .unwrap();
    }

    fn at(&mut self, time: Time, what: What) {
        self.count += 1;
        self.events.push(Reverse((time, self.count, what)));
    }

    fn chance(&mut self, of_million: u32) -> bool {
        of_million > 0 && self.random.u32(..1_000_000) < of_million
    }

    /// Posts all that an end wants to send.
    pub(crate) fn pump(&mut self, own: usize) {
        let mut buffer = std::mem::take(&mut self.buffer);
        while let Some(t) = self.ends[own].poll_transmit(self.now, &mut buffer) {
            let command = t.channel == Channel::Command;
            let to = self.ends[own].number(t.peer).unwrap() as usize;
            let took = t.len as Time * self.wire.per_kilobyte / 1000;
            // Each channel has its queue; the port serves both at once, since commands are small.
            let free = &mut self.free[own][usize::from(command)];
            *free = (*free).max(self.now) + took;
            let left = *free;
            self.at(left, What::Left(own, command));
            let bytes = buffer[..t.len].to_vec();
            if let Some(tap) = &mut self.tap {
                tap.push((to, bytes.clone()));
            }
            self.fly(left, to, bytes);
        }
        self.buffer = buffer;
    }

    /// A datagram on the wire from `left` on.
    pub(crate) fn fly(&mut self, left: Time, to: usize, mut bytes: Vec<u8>) {
        let wire = self.wire;
        if self.chance(wire.loss) {
            self.dropped += 1;
            return;
        }
        if self.chance(wire.duplicate) {
            let late = self.random.u64(..=wire.late);
            self.at(left + wire.delay + late, What::Port(to, bytes.clone()));
        }
        if self.chance(wire.corrupt) && !bytes.is_empty() {
            let at = self.random.usize(..bytes.len());
            bytes[at] ^= 1 << self.random.u32(..8);
        }
        if self.chance(wire.truncate) {
            let len = self.random.usize(..=bytes.len());
            bytes.truncate(len);
        }
        let late = if self.chance(wire.reorder) {
            self.random.u64(..=wire.late)
        } else {
            0
        };
        self.at(left + wire.delay + late, What::Port(to, bytes));
    }

    fn events_of(&mut self, own: usize) {
        while let Some(event) = self.ends[own].poll_event() {
            let number = |end: &End, peer| end.number(peer).unwrap() as usize;
            let end = &mut self.ends[own];
            let got = match event {
                Event::Fragment { peer, data } => {
                    if let Some((landing, len)) = (self.opens)(&data) {
                        end.open(peer, landing, len);
                    }
                    let got = Got::Fragment(number(end, peer), data.clone());
                    end.recycle(data);
                    got
                }
                Event::Place {
                    peer,
                    landing,
                    offset,
                    data,
                    complete,
                } => Got::Put(number(end, peer), landing, offset, data, complete),
                Event::Acked { peer, tag } => Got::Acked(number(end, peer), tag),
                Event::Failed { peer, tag } => Got::Failed(number(end, peer), tag),
                Event::Gone { peer, said, .. } => Got::Gone(number(end, peer), said),
            };
            self.got[own].push((self.now, got));
        }
    }

    /// A datagram is handed to an end.
    pub(crate) fn arrive(&mut self, own: usize, bytes: &[u8]) {
        let end = &mut self.ends[own];
        let got = match end.handle_datagram(self.now, bytes) {
            Received::Nothing => None,
            Received::Fragment { peer, data } => {
                let data = data.to_vec();
                if let Some((landing, len)) = (self.opens)(&data) {
                    end.open(peer, landing, len);
                }
                Some(Got::Fragment(end.number(peer).unwrap() as usize, data))
            }
            Received::Place {
                peer,
                landing,
                offset,
                data,
                complete,
            } => {
                let from = end.number(peer).unwrap() as usize;
                Some(Got::Put(from, landing, offset, data.to_vec(), complete))
            }
        };
        self.got[own].extend(got.map(|g| (self.now, g)));
        self.events_of(own);
    }

    /// Lets an end hear again what has come since it became deaf.
    pub(crate) fn listen(&mut self, own: usize) {
        self.deaf[own] = false;
        for bytes in std::mem::take(&mut self.waiting[own]) {
            self.arrive(own, &bytes);
        }
        self.pump(own);
    }

    /// Goes on to the next thing that happens, if that is not after `until`; whether there was one.
    pub(crate) fn step(&mut self, until: Time) -> bool {
        let timeouts = self.ends.iter().enumerate().filter(|(i, _)| !self.deaf[*i]);
        let timeout = timeouts
            .filter_map(|(i, end)| Some((end.next_timeout()?, i)))
            .min();
        let arrival = self.events.peek().map(|Reverse((time, _, _))| *time);
        let is_timeout = timeout.is_some_and(|(at, _)| arrival.is_none_or(|a| at < a));
        let next = if is_timeout {
            timeout.map(|t| t.0)
        } else {
            arrival
        };
        let Some(next) = next.filter(|next| *next <= until) else {
            self.now = until.max(self.now);
            return false;
        };
        self.now = next.max(self.now);
        if is_timeout {
            let own = timeout.unwrap().1;
            self.ends[own].handle_timeout(self.now);
            self.events_of(own);
            self.pump(own);
            return true;
        }
        let Some(Reverse((_, _, what))) = self.events.pop() else {
            return false;
        };
        match what {
            What::Left(own, command) => {
                let channel = if command {
                    Channel::Command
                } else {
                    Channel::Data
                };
                self.ends[own].handle_sent(channel, 1);
                self.pump(own);
            }
            What::Port(to, bytes) => {
                if self.wire.queue == 0 {
                    self.receive(to, bytes);
                } else {
                    let took = bytes.len() as Time * self.wire.per_kilobyte / 1000;
                    let waits = self.port[to].saturating_sub(self.now);
                    if waits * 1000 / self.wire.per_kilobyte.max(1) > self.wire.queue {
                        self.dropped += 1;
                    } else {
                        self.port[to] = self.port[to].max(self.now) + took;
                        self.at(self.port[to], What::Arrives(to, bytes));
                    }
                }
            }
            What::Arrives(to, bytes) => self.receive(to, bytes),
        }
        true
    }

    fn receive(&mut self, to: usize, bytes: Vec<u8>) {
        if self.deaf[to] {
            if self.wire.buffers == 0 || self.waiting[to].len() < self.wire.buffers {
                self.waiting[to].push(bytes);
            } else {
                self.dropped += 1;
            }
            return;
        }
        self.arrive(to, &bytes);
        self.pump(to);
    }

    /// Runs for a time.
    pub(crate) fn run(&mut self, time: Time) {
        for own in 0..self.ends.len() {
            self.pump(own);
        }
        let until = self.now + time;
        while self.step(until) {}
    }

    /// Runs until nothing is under way; panics after `limit`.
    pub(crate) fn settle(&mut self, limit: Time) {
        for own in 0..self.ends.len() {
            self.pump(own);
        }
        let until = self.now + limit;
        while self.step(until) {
            if self.events.is_empty() && self.ends.iter().all(End::is_idle) {
                return;
            }
        }
        let idle: Vec<bool> = self.ends.iter().map(End::is_idle).collect();
        assert!(
            idle.iter().all(|i| *i),
            "not settled after {limit} ns: {idle:?}"
        );
    }

    /// Data of fragments that came from `from`, in the order in which they were handed up at `to`.
    pub(crate) fn fragments(&self, to: usize, from: usize) -> Vec<Vec<u8>> {
        let of = |(_, got): &(Time, Got)| match got {
            Got::Fragment(who, data) if *who == from => Some(data.clone()),
            _ => None,
        };
        self.got[to].iter().filter_map(of).collect()
    }

    /// Fragments handed up at `to`.
    pub(crate) fn fragments_count(&self, to: usize) -> usize {
        let is = |g: &&(Time, Got)| matches!(g.1, Got::Fragment(..));
        self.got[to].iter().filter(is).count()
    }

    /// Tags that were acked at `own` by `by`.
    pub(crate) fn acked(&self, own: usize, by: usize) -> Vec<u64> {
        let of = |(_, got): &(Time, Got)| match got {
            Got::Acked(who, tag) if *who == by => Some(*tag),
            _ => None,
        };
        self.got[own].iter().filter_map(of).collect()
    }
}

/// A configuration of small datagrams, so that little data makes many.
pub(crate) fn small(window: u16) -> Config {
    let mut config = Config {
        window,
        checksum: true,
        ..Config::default()
    };
    config.command.mtu = 64;
    config.data.mtu = 128;
    config
}
