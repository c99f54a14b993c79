//! Random sends, receives, probes and cancels on several ranks, judged by MPI's rules of matching.
//!
//! The order in which messages of different sources arrive is the fabric's; everything else is decided:
//!
//! * a receive gets a message that it matches, whole or its beginning, with its source, tag and length;
//! * of two messages of one source that match a receive, it gets the first, unless an earlier receive (or probe) has that;
//! * of two receives that match a message, the earlier one gets it, unless it has another one;
//! * every message is received exactly once; a cancelled receive has none.

use portals_shim::Region;
use portals_shim::fabric::in_process;
use std::convert::Infallible;
use tagged::{Comm, Message, Options, Request, RequestError, Slice, Status, TagMode, World};

const RANKS: u32 = 3;
const SIZES: [usize; 6] = [8, 9, 40, 64, 65, 300];
const ROOM: usize = 512;

/// A message as its sender knows it.
#[derive(Debug)]
struct Sent {
    source: u32,
    to: u32,
    comm: usize,
    tag: i32,
    len: usize,
    /// Of the messages of this source to this rank.
    request: Option<Request>,
    buffer: Region,
    /// The receive that got it.
    got: Option<usize>,
}

/// A receive, or the taking of a message by a probe.
#[derive(Debug)]
struct Received {
    rank: u32,
    comm: usize,
    source: Option<u32>,
    tag: Option<i32>,
    room: usize,
    buffer: Region,
    request: Option<Request>,
    /// The message that it got.
    got: Option<usize>,
    cancelled: bool,
    /// When it began, and for a probe the number of messages... receives only are ordered among each other.
    probe: bool,
}

impl Received {
    fn matches(&self, sent: &Sent) -> bool {
        self.rank == sent.to
            && self.comm == sent.comm
            && self.source.is_none_or(|s| s == sent.source)
            && self.tag.is_none_or(|t| t == sent.tag)
    }
}

struct Run {
    rng: fastrand::Rng,
    comms: Vec<Vec<Comm>>,
    sent: Vec<Sent>,
    received: Vec<Received>,
    taken: Vec<(u32, usize, Message, usize)>,
    spare: Vec<Region>,
}

fn fill(buffer: &Region, number: usize, len: usize) {
    let mut bytes: Vec<u8> = (0..len).map(|i| (number * 31 + i * 7) as u8).collect();
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    buffer.write(0, &bytes).unwrap();
}

impl Run {
    fn buffer(&mut self) -> Region {
        self.spare
            .pop()
            .unwrap_or_else(|| Region::new(ROOM).unwrap())
    }

    fn comm(&self, rank: u32, comm: usize) -> &Comm {
        &self.comms[rank as usize][comm]
    }

    fn send(&mut self) {
        let buffer = self.buffer();
        let (source, to) = (self.rng.u32(0..RANKS), self.rng.u32(0..RANKS));
        let comm = self.rng.usize(0..self.comms[0].len());
        let tag = self.rng.i32(0..3);
        let len = SIZES[self.rng.usize(0..SIZES.len())];
        fill(&buffer, self.sent.len(), len);
        let data = Slice::new(&buffer, 0, len).unwrap();
        let request = match self.rng.u8(0..4) {
            0 => self.comm(source, comm).issend(data, to, tag),
            _ => self.comm(source, comm).isend(data, to, tag),
        };
        self.sent.push(Sent {
            source,
            to,
            comm,
            tag,
            len,
            request: Some(request.unwrap()),
            buffer,
            got: None,
        });
    }

    fn wish(&mut self) -> (Option<u32>, Option<i32>) {
        let source = (self.rng.u8(0..3) > 0).then(|| self.rng.u32(0..RANKS));
        let tag = (self.rng.u8(0..3) > 0).then(|| self.rng.i32(0..3));
        (source, tag)
    }

    fn receive_of(&mut self, rank: u32, comm: usize, source: Option<u32>, tag: Option<i32>) {
        let room = if self.rng.u8(0..5) == 0 { 8 } else { ROOM };
        let buffer = self.buffer();
        let into = Slice::new(&buffer, 0, room).unwrap();
        let request = self.comm(rank, comm).irecv(into, source, tag).unwrap();
        self.received.push(Received {
            rank,
            comm,
            source,
            tag,
            room,
            buffer,
            request: Some(request),
            got: None,
            cancelled: false,
            probe: false,
        });
    }

    fn receive(&mut self) {
        let (rank, comm) = (
            self.rng.u32(0..RANKS),
            self.rng.usize(0..self.comms[0].len()),
        );
        let (source, tag) = self.wish();
        self.receive_of(rank, comm, source, tag);
    }

    /// Takes a message by a probe, which counts as a receive that began then.
    fn probe(&mut self) {
        let (rank, comm) = (
            self.rng.u32(0..RANKS),
            self.rng.usize(0..self.comms[0].len()),
        );
        let (source, tag) = self.wish();
        if self.rng.bool() {
            let found = self.comm(rank, comm).iprobe(source, tag).unwrap();
            if let Some(status) = found {
                assert!(
                    source.is_none_or(|s| s == status.source)
                        && tag.is_none_or(|t| t == status.tag)
                );
                assert!(SIZES.contains(&status.len));
            }
            return;
        }
        let Some(message) = self.comm(rank, comm).improbe(source, tag).unwrap() else {
            return;
        };
        let buffer = self.buffer();
        self.taken.push((rank, comm, message, self.received.len()));
        self.received.push(Received {
            rank,
            comm,
            source,
            tag,
            room: ROOM,
            buffer,
            request: None,
            got: None,
            cancelled: false,
            probe: true,
        });
    }

    fn receive_taken(&mut self) {
        if self.taken.is_empty() {
            return;
        }
        let at = self.rng.usize(0..self.taken.len());
        let (rank, comm, message, number) = self.taken.swap_remove(at);
        let status = message.status();
        let into = Slice::new(&self.received[number].buffer, 0, ROOM).unwrap();
        let request = self.comm(rank, comm).imrecv(message, into).unwrap();
        self.received[number].request = Some(request);
        assert!(SIZES.contains(&status.len));
    }

    fn ended(&mut self, number: usize, end: Result<Status, RequestError>) {
        let (status, len) = match end {
            Ok(status) => (status, status.len),
            Err(RequestError::Truncated { status, sent }) => (status, sent as usize),
            Err(RequestError::Cancelled) => {
                assert!(self.received[number].cancelled);
                return;
            }
            Err(other) => panic!("{other}"),
        };
        let received = &self.received[number];
        assert!(!received.cancelled);
        let mut bytes = vec![0; status.len];
        received.buffer.read(0, &mut bytes).unwrap();
        let message = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let sent = &self.sent[message];
        assert!(received.matches(sent), "{received:?} got {sent:?}");
        assert_eq!(
            (status.source, status.tag, len),
            (sent.source, sent.tag, sent.len)
        );
        assert_eq!(status.len, sent.len.min(received.room));
        assert!(
            bytes[8..]
                .iter()
                .enumerate()
                .all(|(i, b)| *b == (message * 31 + (i + 8) * 7) as u8)
        );
        assert_eq!(sent.got, None, "received twice");
        self.sent[message].got = Some(number);
        self.received[number].got = Some(message);
    }

    fn test_all(&mut self) -> bool {
        let mut open = false;
        for number in 0..self.received.len() {
            let received = &mut self.received[number];
            let Some(request) = received.request.take() else {
                continue;
            };
            let (rank, comm) = (received.rank, received.comm);
            match self.comm(rank, comm).test(&request).unwrap() {
                Some(end) => self.ended(number, end),
                None => {
                    self.received[number].request = Some(request);
                    open = true;
                }
            }
        }
        for number in 0..self.sent.len() {
            let sent = &mut self.sent[number];
            let Some(request) = sent.request.take() else {
                continue;
            };
            let (rank, comm) = (sent.source, sent.comm);
            match self.comm(rank, comm).test(&request).unwrap() {
                Some(end) => assert!(end.is_ok(), "{end:?}"),
                None => {
                    self.sent[number].request = Some(request);
                    open = true;
                }
            }
        }
        open
    }

    fn cancel(&mut self) {
        if self.received.is_empty() {
            return;
        }
        let number = self.rng.usize(0..self.received.len());
        let received = &self.received[number];
        if let Some(request) = &received.request {
            let done = self
                .comm(received.rank, received.comm)
                .cancel(request)
                .unwrap();
            assert!(!(done && received.cancelled));
            self.received[number].cancelled |= done;
        }
    }

    /// Receives what is left, and takes back what nobody sent to.
    fn drain(&mut self) {
        while !self.taken.is_empty() {
            self.receive_taken();
        }
        for _ in 0..40 {
            self.test_all();
        }
        for number in 0..self.received.len() {
            let received = &self.received[number];
            if let Some(request) = &received.request {
                let done = self
                    .comm(received.rank, received.comm)
                    .cancel(request)
                    .unwrap();
                self.received[number].cancelled |= done;
            }
        }
        self.test_all();
        for number in 0..self.sent.len() {
            let Sent { to, comm, got, .. } = self.sent[number];
            if got.is_none() {
                self.receive_of(to, comm, None, None);
            }
        }
        for _ in 0..10_000 {
            if !self.test_all() {
                return;
            }
        }
        panic!("something never ends");
    }

    fn judge(&self) {
        for (number, sent) in self.sent.iter().enumerate() {
            assert!(
                sent.got.is_some(),
                "message {number} was received by nobody"
            );
        }
        for (r, received) in self.received.iter().enumerate() {
            let Some(m) = received.got else {
                assert!(received.cancelled);
                continue;
            };
            // Messages of this source before it, which the receive matches, have earlier receives.
            for (earlier, sent) in self.sent[..m].iter().enumerate() {
                if sent.source == self.sent[m].source && received.matches(sent) {
                    let by = sent.got.unwrap();
                    assert!(
                        by < r,
                        "receive {r} got {m}, and {earlier} of the same source went to {by}"
                    );
                }
            }
            // Receives before it, which match the message, have another message or were taken back.
            for (earlier, other) in self.received[..r].iter().enumerate() {
                if !other.probe && other.matches(&self.sent[m]) {
                    assert!(
                        other.got.is_some() || other.cancelled,
                        "receive {earlier} was passed by {r}"
                    );
                    if let Some(n) = other.got {
                        let same = self.sent[n].source == self.sent[m].source;
                        assert!(!same || n < m, "receive {earlier} got {n}, {r} got {m}");
                    }
                }
            }
        }
    }
}

fn world(options: &Options) -> Vec<World> {
    let opened = in_process(RANKS);
    (0..)
        .zip(opened)
        .map(|(rank, opened)| {
            World::open(opened, rank, options, || Ok::<(), Infallible>(())).unwrap()
        })
        .collect()
}

fn run(mode: TagMode, seed: u64, batches: usize) -> usize {
    let mut rng = fastrand::Rng::with_seed(seed);
    let short = 64;
    // From one credit a peer to more than are ever used.
    let overflow = short * 2 * RANKS as usize * [1, 2, 5, 64][rng.usize(0..4)];
    let options = Options {
        mode,
        short,
        overflow,
        requests: 4096,
        // With few events a call, messages wait in the queues while receives are posted.
        events_per_call: [1, 2, 100][rng.usize(0..3)],
        ..Options::default()
    };
    let worlds = world(&options);
    let comms = worlds.iter().map(|w| vec![w.comm()]).collect();
    let mut operations = 0;
    let mut run = Run {
        rng,
        comms,
        sent: Vec::new(),
        received: Vec::new(),
        taken: Vec::new(),
        spare: Vec::new(),
    };
    for _ in 0..batches {
        let (sends, receives) = (run.rng.u8(1..8), run.rng.u8(1..8));
        for _ in 0..200 {
            let step = run.rng.u8(0..sends + receives + 4);
            if step < sends {
                run.send();
            } else if step < sends + receives {
                run.receive();
            } else {
                match step - sends - receives {
                    0 => run.probe(),
                    1 => run.receive_taken(),
                    2 => run.cancel(),
                    _ => {
                        run.test_all();
                    }
                }
            }
            operations += 1;
        }
        run.drain();
        run.judge();
        let Run { sent, received, .. } = &mut run;
        let used: Vec<Region> = sent
            .drain(..)
            .map(|s| s.buffer)
            .chain(received.drain(..).map(|r| r.buffer))
            .collect();
        run.spare.extend(used);
    }
    for world in &worlds {
        let counts = world.counts();
        assert_eq!(counts[0].forged, 0);
    }
    operations
}

#[test]
fn a_million_operations_keep_the_rules_of_matching() {
    let mut operations = 0;
    let mut seed = 0;
    while operations < 1_000_000 {
        let mode = [TagMode::Full, TagMode::Tag1, TagMode::Tag2][seed as usize % 3];
        operations += run(mode, seed, 50);
        seed += 1;
    }
    println!("{operations} operations, seeds 0 to {}", seed - 1);
}
