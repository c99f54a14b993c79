//! Peers that ask and do not read, and peers that ask each other at once.

use super::*;
use portals_core::{MdHandle, ProcessId};
use portals_shim::MdSpec;

/// Cells of a ring of two ranks, and answers that wait at most.
const RING: u32 = 64;
const ENOUGH: u32 = 512;

/// Rank 1, as the test plays it.
struct Player {
    us: Side,
    map: Map,
    /// To rank 0, and from it.
    to: Ring,
    from: Ring,
    written: u32,
    read: u32,
}

impl Player {
    fn new() -> Self {
        let (us, map, layout) = alone_with(std::process::id(), WITHOUT);
        layout.block(0).contacts(&map, 0).store(2, Ordering::SeqCst);
        Self {
            us,
            map,
            to: layout.ring(1, 0),
            from: layout.ring(0, 1),
            written: 0,
            read: 0,
        }
    }

    /// Cells that rank 0 has taken.
    fn taken(&self) -> u32 {
        Words::consumed(&self.to.words(&self.map)).load(Ordering::SeqCst)
    }

    /// Has rank 0 take what it will of messages with this header and no data, `most` in all; how many it has taken.
    fn ask(&mut self, header: &Header, most: u32) -> u32 {
        let bytes = cell::encode(&cell::Prefix::of(cell::Kind::Message), Some(header));
        let mut idle = 0;
        while idle < 100 && self.taken() < most {
            while self.written < most && self.written - self.taken() < RING {
                send_cell(&self.map, self.to, self.written, &bytes);
                self.written += 1;
            }
            let before = self.taken();
            while self.us.look().is_some() {}
            idle = if self.taken() == before { idle + 1 } else { 0 };
        }
        self.taken()
    }

    /// Reads the next cell, if there is one, and says whether it is an answer.
    fn hear(&mut self) -> Option<bool> {
        let at = self.from.cell(self.read);
        if self.map.word(at).load(Ordering::Acquire) != self.read + 1 {
            return None;
        }
        let mut head = [0; cell::HEAD];
        self.map.read(cell::head_at(at), &mut head);
        let answer = head[0] != cell::Kind::Short as u8
            && matches!(
                cell::header(&head).unwrap().body,
                Body::Ack { .. } | Body::Reply { .. }
            );
        self.read += 1;
        let words = self.from.words(&self.map);
        Words::consumed(&words).store(self.read, Ordering::SeqCst);
        Some(answer)
    }

    fn header(&self, body: Body) -> Header {
        Header {
            body,
            ..put_header(&self.us, 0)
        }
    }
}

fn acknowledged() -> Body {
    Body::Put {
        length: 0,
        remote_offset: 0,
        hdr_data: 9,
        ac_index: 0,
        ack_md: Some(MdHandle::from_raw(5)),
    }
}

/// A peer that asks and does not read is left alone with its messages; once it reads, every one of them is answered, and what
/// this rank sends meanwhile arrives too.
#[test]
fn a_peer_that_does_not_read_is_owed_no_more_than_enough() {
    const ALL: u32 = 10_000;
    let mut peer = Player::new();
    let header = peer.header(acknowledged());
    assert_eq!(peer.ask(&header, ALL), RING + ENOUGH);
    peer.us.put(0, to(peer.us.o.peers[1], LOUD, 0));
    let (mut answers, mut before) = (0, None);
    for _ in 0..ALL {
        peer.ask(&header, ALL);
        while peer.us.look().is_some() {}
        while let Some(answer) = peer.hear() {
            if answer {
                answers += 1;
            } else {
                assert_eq!(before.replace(answers), None);
            }
        }
        if answers == ALL {
            break;
        }
    }
    assert_eq!((answers, peer.taken()), (ALL, ALL));
    // The ring was full of answers already.
    assert_eq!(before, Some(RING + 64));
}

/// An exchange has its answer's bytes copied: memory is what counts.
#[test]
fn a_peer_that_does_not_read_is_owed_few_long_answers() {
    let mut peer = Player::new();
    let header = peer.header(Body::GetPut {
        length: 1 << 16,
        remote_offset: 0,
        hdr_data: 9,
        ac_index: 0,
        reply_md: MdHandle::from_raw(5),
        reply_offset: 0,
    });
    // The bulk area has room for two, and two of 64 KiB are more than enough.
    let taken = peer.ask(&header, 1000);
    assert!(taken <= 4, "{taken}");
}

/// Of `side`: a descriptor that takes so many puts, each of which is matched by the library.
fn counted(side: &Side, bits: u64, threshold: i32) {
    let ni = &side.o.interface;
    let me = ni.me_attach(4, entry(bits), InsertPosition::After).unwrap();
    let memory = MdSpec {
        threshold,
        ..spec(MdMemory::whole(&side.work), None)
    };
    ni.md_attach(me, memory, Unlink::Retain).unwrap();
}

/// Both ask each other without end and read when they like: every request is answered, whoever is how far.
#[test]
fn two_that_ask_each_other_at_once_never_wait_for_each_other() {
    const EACH: u32 = 3000;
    const COUNTED: u64 = 5;
    // What two ranks do who look rarely, often, and not before they have asked for everything.
    for (seed, looks) in (0..).zip([1, 3, 20, 60]) {
        for options in [WITHOUT, Options::default()] {
            let mut rng = fastrand::Rng::with_seed(seed);
            let sides = sides(20_000, false, options);
            let queues = sides.each_ref().map(|side| {
                counted(side, COUNTED, i32::MAX);
                let ni = &side.o.interface;
                let eq = ni.eq_alloc(4 * u64::from(EACH)).unwrap();
                let memory = spec(MdMemory::whole(&side.work), Some(eq));
                (eq, ni.md_bind(memory, Unlink::Retain).unwrap())
            });
            let (mut asked, mut answered) = ([0; 2], [0; 2]);
            let ids: [ProcessId; 2] = [0, 1].map(|r| sides[r].o.interface.id());
            let mut idle = 0;
            while answered != [EACH; 2] {
                let r = rng.usize(..2);
                let ni = &sides[r].o.interface;
                let (eq, md) = queues[r];
                if asked[r] < EACH && rng.u32(..61) >= looks {
                    let target = to(ids[1 - r], COUNTED, 0);
                    let len = *rng.choice(&[0, 8, 9000]).unwrap();
                    if rng.bool() {
                        ni.put_region(md, (0, len), AckRequest::Ack, target, 0)
                            .unwrap();
                    } else {
                        ni.get_region(md, (0, len), target).unwrap();
                    }
                    asked[r] += 1;
                    continue;
                }
                idle += 1;
                while let Some(polled) = ni.eq_get(eq).unwrap() {
                    let kind = polled.event.kind;
                    if matches!(kind, EventKind::Ack | EventKind::ReplyEnd) {
                        assert_eq!(polled.event.ni_fail, NiFail::OK);
                        answered[r] += 1;
                        idle = 0;
                    }
                }
                assert!(
                    idle < 10_000,
                    "{answered:?} of {EACH} are answered, seed {seed}"
                );
            }
        }
    }
}
