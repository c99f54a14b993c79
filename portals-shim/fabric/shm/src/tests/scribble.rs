//! A rank that writes what it likes wherever it can, between two that go on.

use super::*;
use fabric_api::region::share_of;
use host::shared_file::{create_own, seal_for_others};
use portals_core::{ProcessId, Segment};
use std::os::unix::fs::FileExt as _;

const LEN: usize = 1 << 15;
/// Bits of the memory that the scribbler may write by its messages.
const ODD: u64 = 3;
/// User data of the messages that the scribbler sends in another's name.
const FORGED: u64 = 0xf0f0_0000;

/// All that one rank of three can write of the job's memory: what it has mapped, and what it can map for writing of what it
/// was handed.
struct Scribbler {
    own: usize,
    layout: Layout,
    map: Map,
    /// Writes only where the mapping permits it.
    memory: std::fs::File,
    /// Where they begin.
    more: Vec<(usize, Map)>,
}

impl Scribbler {
    fn new(own: usize, layout: Layout, map: Map, files: &[OwnedFd]) -> Self {
        let parts = files.iter().enumerate();
        let more = parts.filter_map(|(rank, fd)| {
            let (at, len) = layout.file(rank);
            Some((at, Map::new(fd, len).ok()?))
        });
        Self {
            own,
            more: more.collect(),
            memory: std::fs::File::options()
                .write(true)
                .open("/proc/self/mem")
                .unwrap(),
            layout,
            map,
        }
    }

    /// Whether it may write there.
    fn may(&self, at: usize) -> bool {
        let within = |(start, len): (usize, usize)| (start..start + len).contains(&at);
        within(self.layout.file(self.own)) || within(self.layout.common())
    }

    /// Tries to write a word; whether it is there.
    fn write(&self, at: usize, word: u32) -> bool {
        if self.may(at) {
            self.map.word(at).store(word, Ordering::Relaxed);
            return true;
        }
        let more = |(start, map): &(usize, Map)| {
            let within = at.checked_sub(*start).filter(|w| w + 4 <= map.len());
            within.map(|w| map.word(w).store(word, Ordering::Relaxed))
        };
        if self.more.iter().find_map(more).is_some() {
            return true;
        }
        let place = std::ptr::from_ref(self.map.word(at)).addr() as u64;
        self.memory.write_at(&word.to_ne_bytes(), place).is_ok()
    }

    /// Words of its own and of others that mean something: positions, states, adverts, cells, frames.
    fn places(&self) -> Vec<usize> {
        let (l, mut all) = (&self.layout, Vec::new());
        for rank in 0..3 {
            // Generation, count, identity, state, sets, adverts, `busy`, positions.
            let block = l.file(rank).0;
            all.extend((64..8192).step_by(4).map(|at| block + at));
            all.push(l.block(rank).bell_at());
            for other in 0..3 {
                for cell in 0..8 {
                    let at = l.ring(rank, other).cell(cell);
                    all.extend((0..128).step_by(4).map(|byte| at + byte));
                    let at = l.lane(rank, other, 0).cell(cell) * LANE_CELL;
                    all.extend((0..16).step_by(4).map(|byte| at + byte));
                }
            }
        }
        all
    }

    /// Says that it has taken all that it was sent, as far as that can be seen: then others copy to what it shows.
    fn take(&self, from: usize) {
        let ring = self.layout.ring(from, self.own);
        let written =
            (0..ring.cells()).map(|c| self.map.word(ring.cell(c)).load(Ordering::Acquire));
        let written = written.max().unwrap_or(0);
        Words::consumed(&ring.words(&self.map)).store(written, Ordering::Release);
    }

    /// Shows memory that it has, or more than it has.
    fn show(&self, region: &Region, rng: &mut fastrand::Rng) {
        let whole = Segment {
            addr: region.addr(),
            len: region.len() as u64,
        };
        let share = share_of(whole).expect("memory that can be mapped");
        let odd = [0, 8, 4096, share.len - 1, share.len, 1 << 40, u64::MAX - 7];
        let mut some = |good: u64| {
            if rng.bool() {
                good
            } else {
                *rng.choice(&odd).unwrap()
            }
        };
        let words = [
            4 | 7 << 32,
            u64::from(u32::MAX) | u64::from(u32::MAX) << 32,
            QUIET,
            0,
            some(whole.addr),
            some(whole.len),
            u64::from(u32::MAX) | u64::from(share.fd.cast_unsigned()) << 32,
            share.inode,
            some(share.len),
            some(0),
        ];
        let block = self.layout.block(self.own);
        let generation = block.generation(&self.map);
        let next = (generation.load(Ordering::Relaxed) | 1).wrapping_add(1);
        for (i, word) in words.into_iter().enumerate() {
            let advert = block.advert(&self.map, 0, i);
            advert.store(word, Ordering::Relaxed);
        }
        block.count(&self.map).store(1, Ordering::Relaxed);
        generation.store(next, Ordering::Release);
    }

    /// Sends a cell that is good but for a word or two, to be read next.
    fn send(&self, to: &Side, other: ProcessId, rng: &mut fastrand::Rng) {
        let reader = [0, 1, 2].map(|r| Placement::ONE.of(r));
        let reader = reader.iter().position(|id| *id == to.o.interface.id());
        let ring = self.layout.ring(self.own, reader.unwrap());
        let kinds = [
            cell::Kind::Message,
            cell::Kind::More,
            cell::Kind::ReadyToSend,
            cell::Kind::AckToSend,
            cell::Kind::Resent,
        ];
        let mut prefix = cell::Prefix::of(*rng.choice(&kinds).unwrap());
        let odd = [0, 1, 8, 100, 152, 153, 300, 5000];
        prefix.inline = *rng.choice(&odd[..6]).unwrap();
        prefix.token = rng.u32(..3);
        if rng.u8(..4) == 0 {
            prefix.bulk_at = *rng.choice(&[0, 64, 1 << 17, u32::MAX - 3]).unwrap();
            prefix.bulk_len = *rng.choice(&[1, 8, 5000, 1 << 17, u32::MAX]).unwrap();
        }
        let forged = rng.u8(..4) == 0;
        let header = Header {
            target: to.o.interface.id(),
            source: if forged {
                other
            } else {
                Placement::ONE.of(self.own as u32)
            },
            uid: to.o.interface.uid(),
            jid: to.o.interface.jid(),
            pt_index: 4,
            match_bits: ODD,
            body: Body::Put {
                length: u64::from(*rng.choice(&odd).unwrap()),
                remote_offset: *rng.choice(&[0, 8, LEN as u64 - 4, u64::MAX - 3]).unwrap(),
                hdr_data: FORGED,
                ac_index: 0,
                ack_md: None,
            },
        };
        let mut bytes = [0; cell::HEAD + cell::INLINE];
        rng.fill(&mut bytes);
        bytes[..cell::HEAD].copy_from_slice(&cell::encode(&prefix, Some(&header)));
        if let Some((short, _)) = cell::encode_short(&header).filter(|_| rng.bool()) {
            bytes[..cell::SHORT_HEAD].copy_from_slice(&short);
            // Of any length.
            bytes[2] = rng.u8(..);
        }
        if rng.u8(..4) == 0 {
            bytes[rng.usize(..20)] = rng.u8(..);
        }
        let next = Words::consumed(&ring.words(&self.map)).load(Ordering::Relaxed);
        send_cell(&self.map, ring, next, &bytes);
    }
}

/// Two ranks, and memory from which each sends without events.
struct Pair {
    a: Side,
    b: Side,
    silent: [MdHandle; 2],
    /// What the memory of the second that others may write must be.
    shown: Vec<u8>,
    /// Messages between the two.
    count: u64,
}

impl Pair {
    /// Polls both; what they are told of each other is what they have sent.
    fn look(&self, wanted: u64) -> bool {
        let mut came = false;
        for (side, other) in [(&self.a, &self.b), (&self.b, &self.a)] {
            while let Some(event) = side.look() {
                let put = matches!(event.kind, EventKind::PutStart | EventKind::PutEnd);
                if put && event.initiator == other.o.interface.id() {
                    assert!(event.hdr_data <= self.count, "forged: {event:?}");
                    came |= event.kind == EventKind::PutEnd
                        && (event.hdr_data, event.mlength) == (wanted, 8000);
                }
            }
        }
        came
    }

    /// A message each way arrives, and a put goes where it should and nowhere else.
    fn talk(&mut self, at: &str) {
        for turn in 0..2 {
            self.count += 1;
            let data = pattern(8000, self.count as usize);
            let (from, to) = [(&self.a, &self.b), (&self.b, &self.a)][turn];
            from.work.write(0, &data).unwrap();
            let (ni, silent) = (&from.o.interface, self.silent[turn]);
            let there = to.o.interface.id();
            let loud = super::to(there, LOUD, 0);
            ni.put_region(silent, (0, 8000), AckRequest::NoAck, loud, self.count)
                .unwrap();
            let begun = Instant::now();
            while !self.look(self.count) {
                assert!(begun.elapsed() < Duration::from_secs(20), "{at}: lost");
            }
            let mut seen = vec![0; 8000];
            to.loud.read(0, &mut seen).unwrap();
            assert!(seen == data, "{at}: other data");
            if turn == 0 {
                // What was put there before went before this message.
                let mut quiet = vec![0; LEN];
                to.quiet.read(0, &mut quiet).unwrap();
                assert!(quiet == self.shown, "{at}: other memory");
                let place = 100 + 16 * (self.count as usize % 1000);
                let quiet = super::to(there, QUIET, place as u64);
                ni.put_region(silent, (0, 100), AckRequest::NoAck, quiet, 0)
                    .unwrap();
                self.shown[place..place + 100].copy_from_slice(&data[..100]);
            }
        }
    }
}

fn scribbled(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let own = seed as usize % 3;
    let options = Options {
        patience: Duration::from_millis(20),
        ..WITHOUT
    };
    let layout = Layout::new(3);
    let config = |r| rank_config(Placement::ONE, r, 1);
    let ids: Vec<_> = (0..3).map(|r| Placement::ONE.of(r)).collect();
    let common = common(3).unwrap();
    let ranks = [0, 1, 2].map(|r| Own::new(r, 3).unwrap());
    let files = ranks.each_ref().map(|r| r.descriptor().unwrap());
    let mut ranks = ranks.map(|r| Some(r.with(&common, &files).unwrap()));
    let map = ranks[own].take().unwrap().map_for_test();
    let joining = (0..).zip(ranks).filter_map(|(r, mapped)| {
        let joining = Joining::of(mapped?, &config(r), options).unwrap();
        Some((r, joining))
    });
    let joining: Vec<_> = joining.collect();
    let other = layout.block(joining[0].0 as usize).identity(&map);
    layout.block(own).introduce(&map, other);
    let sides = joining.into_iter().map(|(r, joining)| {
        let opened = joining.open(config(r), Placement::ONE, ids.clone(), false);
        let side = side(opened.into(), LEN, true);
        let ni = &side.o.interface;
        let me = ni.me_attach(4, entry(ODD), InsertPosition::After).unwrap();
        let odd = MdMemory::whole(&Region::new(LEN).unwrap());
        ni.md_attach(me, spec(odd, Some(side.eq)), Unlink::Retain)
            .unwrap();
        side
    });
    let sides: Vec<Side> = sides.collect();
    let [a, b]: [Side; 2] = sides.try_into().ok().unwrap();
    let silent = [&a, &b].map(|side| {
        let memory = spec(MdMemory::whole(&side.work), None);
        side.o.interface.md_bind(memory, Unlink::Retain).unwrap()
    });
    let mut pair = Pair {
        a,
        b,
        silent,
        shown: vec![0; LEN],
        count: 0,
    };
    let scribbler = Scribbler::new(own, layout, map, &files);
    let region = Region::shared(LEN).unwrap();
    let places = scribbler.places();
    for rank in (0..3).filter(|r| *r != own) {
        let last = layout.file(rank).0 + layout.file(rank).1 - 4;
        assert!(
            !scribbler.write(last, 1),
            "rank {own} writes what is rank {rank}'s"
        );
    }
    for step in 0..2000u64 {
        for _ in 0..rng.usize(0..8) {
            let at = if rng.u8(..8) == 0 {
                4 * rng.usize(16..layout.total() / 4)
            } else {
                places[rng.usize(..places.len())]
            };
            // The header says of which version the memory is, and is looked at once.
            if at >= 64 {
                scribbler.write(at, *rng.choice(&[0, 3, 5, 300, 1 << 20, u32::MAX]).unwrap());
            }
        }
        let (a, b) = (&pair.a, &pair.b);
        let (to, other) = [(a, b), (b, a)][rng.usize(..2)];
        if rng.bool() {
            scribbler.send(to, other.o.interface.id(), &mut rng);
        }
        if rng.u8(..4) == 0 {
            let numbers = (0..3).filter(|r| *r != own);
            numbers.for_each(|from| scribbler.take(from));
            scribbler.show(&region, &mut rng);
            to.put(
                rng.usize(0..5000),
                super::to(ids[own], QUIET, rng.u64(..40_000)),
            );
        }
        pair.look(0);
        if step % 500 == 0 {
            // It says that it copies, and so holds up what is shown.
            for rank in (0..3).filter(|r| *r != own) {
                let block = layout.block(own);
                block.busy(&scribbler.map, rank).store(1, Ordering::Relaxed);
            }
            let ni = &pair.a.o.interface;
            let me = ni.me_attach(4, entry(77), InsertPosition::After);
            let shown = spec(MdMemory::whole(&Region::new(64).unwrap()), None);
            ni.md_attach(me.unwrap(), shown, Unlink::Retain).unwrap();
        }
        if step % 50 == 0 {
            pair.talk(&format!("seed {seed}, step {step}"));
        }
    }
}

/// Whichever of the three it is: what the other two say to each other arrives, in their own names; nothing else of them changes.
#[test]
fn a_rank_that_scribbles_harms_nobody_else() {
    if seal_for_others(&create_own("test", 4096).unwrap()).is_err() {
        println!("skipped: this kernel has no F_SEAL_FUTURE_WRITE");
        return;
    }
    (0..6).for_each(scribbled);
}
