//! Two ranks of this process over shared memory: sizes, peers that lie, die, close or sleep, and windows.

use super::handing::Inbox;
use super::layout::{LANE_CELL, Layout, Ring};
use super::map::Map;
use super::open::{Joining, Memory, Options, Unreachable};
use super::ring::Words;
use super::{Core, Own, cell, common};
use fabric_api::call::{Target, Wait};
use fabric_api::identity::rank_config;
use fabric_api::place::Placement;
use fabric_api::region::Region;
use fabric_testing::{entry, spec, to};
use portals_core::{
    AckRequest, Body, EqHandle, Event, EventKind, Header, InsertPosition, MdHandle, NiFail, Unlink,
};
use portals_shim::MdMemory;
use portals_shim::fabric::Opened;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

mod absent;
mod deaf;
mod nonsense;
mod protocols;
mod scribble;
mod shown;

const LOUD: u64 = 1;
const QUIET: u64 = 2;

/// A rank with memory that has a queue, memory that has none, and memory to work from.
struct Side {
    o: Opened,
    eq: EqHandle,
    work: Region,
    loud: Region,
    quiet: Region,
    source: MdHandle,
    shown: MdHandle,
}

fn side(o: Opened, len: usize, shared: bool) -> Side {
    let ni = &o.interface;
    let eq = ni.eq_alloc(1024).unwrap();
    let [work, loud] = [0; 2].map(|_| Region::new(len).unwrap());
    let quiet = if shared {
        ni.new_region(len).unwrap()
    } else {
        Region::new(len).unwrap()
    };
    let attach = |bits, memory: &Region, eq| {
        let me = ni.me_attach(4, entry(bits), InsertPosition::After).unwrap();
        ni.md_attach(me, spec(MdMemory::whole(memory), eq), Unlink::Retain)
            .unwrap()
    };
    attach(LOUD, &loud, Some(eq));
    let shown = attach(QUIET, &quiet, None);
    let source = ni
        .md_bind(spec(MdMemory::whole(&work), Some(eq)), Unlink::Retain)
        .unwrap();
    Side {
        o,
        eq,
        work,
        loud,
        quiet,
        source,
        shown,
    }
}

fn sides(len: usize, shared: bool, options: Options) -> [Side; 2] {
    let opened = portals_shim::fabric::interfaces(super::in_threads_with(2, options).unwrap());
    let made: Vec<Side> = opened.into_iter().map(|o| side(o, len, shared)).collect();
    made.try_into().ok().unwrap()
}

impl Side {
    fn put(&self, len: usize, target: Target) {
        let ni = &self.o.interface;
        ni.put_region(self.source, (0, len as u64), AckRequest::Ack, target, 0)
            .unwrap();
    }

    fn look(&self) -> Option<Event> {
        let polled = self.o.interface.eq_get(self.eq).unwrap();
        polled.map(|p| p.event)
    }
}

/// Polls all sides until the first has an event of this kind.
fn event(sides: &[&Side], kind: EventKind) -> Event {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) {
        let found = sides[0].look();
        for other in &sides[1..] {
            other.look();
        }
        if let Some(e) = found.filter(|e| e.kind == kind) {
            return e;
        }
    }
    panic!("no {kind:?}")
}

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + seed * 7 + 3) as u8).collect()
}

/// The kernel does not copy.
const WITHOUT: Options = Options {
    attach: false,
    attach_ends: false,
    on_fault: super::OnFault::Count,
    patience: Duration::from_secs(60),
};

const SIZES: [usize; 16] = [
    0, 1, 8, 151, 152, 153, 4096, 8191, 8192, 8193, 32_768, 32_769, 65_536, 131_073, 1_000_003,
    3_000_000,
];

/// More than the last of them.
const LONGEST: usize = 3 << 20;

/// Puts and gets of every size, by every path; the number that initiators served by themselves.
fn every_size(bits: u64, shared: bool, options: Options) -> u64 {
    all_sizes(&sides(LONGEST, shared, options), bits)
}

fn all_sizes([a, b]: &[Side; 2], bits: u64) -> u64 {
    let there = b.o.interface.id();
    let memory = if bits == LOUD { &b.loud } else { &b.quiet };
    for (seed, size) in SIZES.into_iter().enumerate() {
        let data = pattern(size, seed);
        a.work.write(0, &data).unwrap();
        a.put(size, to(there, bits, 5));
        let ack = event(&[a, b], EventKind::Ack);
        assert_eq!((ack.ni_fail, ack.mlength), (NiFail::OK, size as u64));
        let mut seen = vec![0; size];
        memory.read(5, &mut seen).unwrap();
        assert!(seen == data, "put of {size} bytes");
        a.work.fill(0, size, 0).unwrap();
        let region = (0, size as u64);
        let ni = &a.o.interface;
        ni.get_region(a.source, region, to(there, bits, 5)).unwrap();
        let reply = event(&[a, b], EventKind::ReplyEnd);
        assert_eq!((reply.ni_fail, reply.mlength), (NiFail::OK, size as u64));
        a.work.read(0, &mut seen).unwrap();
        assert!(seen == data, "get of {size} bytes");
    }
    a.o.interface.paths().unwrap().one_sided
}

#[test]
fn data_of_every_size_arrives_on_every_path() {
    let without = WITHOUT;
    // What was tried at the start and worked is refused later: no byte is lost, and no operation fails.
    let later = Options {
        attach_ends: true,
        ..Options::default()
    };
    assert_eq!(every_size(LOUD, false, later), 0);
    assert_eq!(every_size(QUIET, false, later), 0);
    let served = 2 * SIZES.len() as u64 - 2;
    assert_eq!(every_size(LOUD, false, Options::default()), 0);
    assert_eq!(every_size(LOUD, false, without), 0);
    assert_eq!(every_size(QUIET, true, Options::default()), served);
    assert_eq!(every_size(QUIET, true, without), served, "mapped");
    assert_eq!(every_size(QUIET, false, Options::default()), served);
    assert_eq!(every_size(QUIET, false, without), 0, "no way to its memory");
}

/// Ranks of PID namespaces of their own have no number of each other by which a file could be opened: they are handed it.
#[test]
fn regions_are_mapped_where_numbers_name_nobody() {
    let layout = Layout::new(2);
    let config = |r| rank_config(Placement::ONE, r, 1);
    let opened = |handing: bool| {
        let memory = Memory::new(2).unwrap();
        let inboxes = [0, 1].map(|_| Inbox::new().unwrap());
        let lines = || inboxes.iter().map(|i| i.line().unwrap()).collect();
        let lines: [Vec<OwnedFd>; 2] = [lines(), lines()];
        let joined = (0..).zip(inboxes.into_iter().zip(lines));
        let mut joined = joined.map(|(r, (own, all))| {
            let joining = Joining::new(&memory, r, &config(r), Options::default()).unwrap();
            if handing {
                joining.with_inboxes(own, all)
            } else {
                joining
            }
        });
        let mut joined = [(); 2].map(|()| joined.next().unwrap());
        let map = memory.map_for_test();
        for r in 0..2 {
            let mut who = layout.block(r).identity(&map);
            who.process.namespace = 1000 + r as u64;
            layout.block(r).introduce(&map, who);
        }
        joined.iter_mut().for_each(|j| assert!(!j.probe(2, false)));
        let ids: Vec<_> = (0..2).map(|r| Placement::ONE.of(r)).collect();
        let mut rank = 0..;
        joined.map(|joining| {
            let config = config(rank.next().unwrap());
            let opened = joining.open(config, Placement::ONE, ids.clone(), false);
            side(opened.into(), LONGEST, true)
        })
    };
    assert_eq!(all_sizes(&opened(false), QUIET), 0);
    let sides = opened(true);
    assert_eq!(all_sizes(&sides, QUIET), 2 * SIZES.len() as u64 - 2);
    let [a, b] = sides;
    let there = to(b.o.interface.id(), QUIET, 0);
    let window = a.o.interface.window(&there).unwrap();
    window.region.write(window.offset, b"by a window").unwrap();
    let mut seen = [0; 11];
    b.quiet.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"by a window");
}

/// More than rings hold, without a poll in between; nothing is lost and the order stays.
#[test]
fn what_finds_no_room_waits() {
    let [a, b] = sides(1 << 20, false, WITHOUT);
    let there = b.o.interface.id();
    let ni = &a.o.interface;
    let quiet = ni
        .md_bind(spec(MdMemory::whole(&a.work), None), Unlink::Retain)
        .unwrap();
    let lens: Vec<u64> = (0..400).map(|i| [0, 8, 200, 20_000][i % 4]).collect();
    for (i, len) in lens.iter().enumerate() {
        ni.put_region(
            quiet,
            (0, *len),
            AckRequest::NoAck,
            to(there, LOUD, 0),
            i as u64,
        )
        .unwrap();
    }
    for (i, len) in lens.iter().enumerate() {
        let e = event(&[&b, &a], EventKind::PutEnd);
        assert_eq!((e.hdr_data, e.mlength), (i as u64, *len));
    }
}

/// A rank whose thread sleeps is woken by a message, and one that waits for room by room.
#[test]
fn sleepers_are_woken() {
    let [a, b] = sides(1 << 16, false, WITHOUT);
    let there = b.o.interface.id();
    std::thread::scope(|s| {
        let b = &b;
        let receiving = s.spawn(move || {
            for i in 0..300 {
                let e = loop {
                    let e = b.o.interface.eq_wait(b.eq).unwrap().event;
                    if e.kind == EventKind::PutEnd {
                        break e;
                    }
                };
                assert_eq!(e.hdr_data, i);
            }
        });
        for i in 0..300u64 {
            let len = [8u64, 60_000][i as usize % 2];
            let ni = &a.o.interface;
            ni.put_region(a.source, (0, len), AckRequest::NoAck, to(there, LOUD, 0), i)
                .unwrap();
            if i % 3 == 0 {
                // Sleeps until its message has left the memory.
                while a.o.interface.eq_wait(a.eq).unwrap().event.kind != EventKind::SendEnd {}
            }
        }
        while !receiving.is_finished() {
            let ni = &a.o.interface;
            ni.eq_poll(&[a.eq], Wait::Nanos(5_000_000)).unwrap();
        }
    });
}

#[test]
fn an_unlinked_descriptor_is_out_of_reach() {
    let [a, b] = sides(4096, true, Options::default());
    let there = b.o.interface.id();
    a.work.write(0, b"one").unwrap();
    a.put(3, to(there, QUIET, 0));
    assert_eq!(event(&[&a], EventKind::Ack).ni_fail, NiFail::OK);
    b.o.interface.md_unlink(b.shown).unwrap();
    a.work.write(0, b"two").unwrap();
    a.put(3, to(there, QUIET, 0));
    let mut seen = [0; 3];
    for _ in 0..100 {
        assert!(b.look().is_none());
    }
    b.quiet.read(0, &mut seen).unwrap();
    assert_eq!(&seen, b"one");
    assert_eq!(b.o.interface.status().unwrap().drop_count, 1);
}

#[test]
fn a_window_is_the_peers_memory() {
    let [a, b] = sides(8192, true, Options::default());
    let target = to(b.o.interface.id(), QUIET, 0);
    let window = a.o.interface.window(&target).unwrap();
    assert_eq!((window.offset, window.len), (0, 8192));
    window.region.write(window.offset + 100, b"here").unwrap();
    let mut seen = [0; 4];
    b.quiet.read(100, &mut seen).unwrap();
    assert_eq!(&seen, b"here");
    // Memory that its owner watches, and memory that cannot be mapped.
    assert!(
        a.o.interface
            .window(&to(b.o.interface.id(), LOUD, 0))
            .is_none()
    );
    let [a, b] = sides(8192, false, Options::default());
    assert!(
        a.o.interface
            .window(&to(b.o.interface.id(), QUIET, 0))
            .is_none()
    );
    // It outlives its owner.
    drop(b);
    window.region.write(0, b"still").unwrap();
}

#[test]
fn messages_to_a_rank_that_has_closed_fail() {
    let [a, b] = sides(1 << 20, false, Options::default());
    let there = b.o.interface.id();
    // It is told of, and never read.
    a.put(100_000, to(there, LOUD, 0));
    b.o.interface.close().unwrap();
    assert_eq!(event(&[&a], EventKind::SendEnd).ni_fail, NiFail::FAIL);
    assert_eq!(event(&[&a], EventKind::Ack).ni_fail, NiFail::FAIL);
    a.put(8, to(there, LOUD, 0));
    assert_eq!(event(&[&a], EventKind::Ack).ni_fail, NiFail::FAIL);
}

/// A process that is over.
fn dead_process() -> u32 {
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

/// Rank 0 of two, of which rank 1 is played by the test, which has the memory; it says that its process is `pid`.
fn alone(pid: u32) -> (Side, Map, Layout) {
    alone_with(pid, Options::default())
}

fn alone_with(pid: u32, options: Options) -> (Side, Map, Layout) {
    let memory = Memory::new(2).unwrap();
    let layout = Layout::new(2);
    let config = |r| rank_config(Placement::ONE, r, 1);
    let join = |r| Joining::new(&memory, r, &config(r), options).unwrap();
    let (us, them) = (join(0), join(1));
    drop(them);
    let map = memory.map_for_test();
    let mut who = layout.block(1).identity(&map);
    who.process.pid = pid;
    layout.block(1).introduce(&map, who);
    layout.block(1).set_attaches(&map, true);
    let ids = (0..2).map(|r| Placement::ONE.of(r)).collect();
    let opened = Opened::from(us.open(config(0), Placement::ONE, ids, true));
    (side(opened, 1 << 16, true), map, layout)
}

/// A peer whose data is not taken in time closes all the same, and may then use its memory for something else.
#[test]
fn what_a_closed_peer_had_to_send_is_no_data() {
    let (us, map, layout) = alone(std::process::id());
    layout.block(0).contacts(&map, 0).store(2, Ordering::SeqCst);
    let theirs = pattern(20_000, 1);
    let place = portals_core::Segment {
        addr: theirs.as_ptr().expose_provenance() as u64,
        len: theirs.len() as u64,
    };
    let pieces = cell::write_pieces(&[place]);
    let mut prefix = cell::Prefix::of(cell::Kind::ReadyToSend);
    prefix.inline = pieces.len() as u16;
    let head = cell::encode(&prefix, Some(&put_header(&us, place.len)));
    let bytes = [&head[..], &pieces].concat();
    for (position, fail) in [(0, NiFail::OK), (1, NiFail::FAIL)] {
        send_cell(&map, layout.ring(1, 0), position, &bytes);
        if fail == NiFail::FAIL {
            layout.block(1).set_closed(&map);
        }
        assert_eq!(event(&[&us], EventKind::PutEnd).ni_fail, fail);
    }
    let mut seen = vec![0; theirs.len()];
    us.loud.read(0, &mut seen).unwrap();
    assert!(seen == theirs, "the first");
}

#[test]
fn the_dead_are_not_waited_for() {
    let (us, map, layout) = alone(dead_process());
    // It died while it copied.
    layout.block(1).busy(&map, 0).store(1, Ordering::SeqCst);
    us.o.interface.md_unlink(us.shown).unwrap();
    // What is meant for it fails once its ring is full, and so does what it was to read.
    us.put(20_000, to(us.o.peers[1], LOUD, 0));
    assert_eq!(event(&[&us], EventKind::SendEnd).ni_fail, NiFail::FAIL);
    assert_eq!(event(&[&us], EventKind::Ack).ni_fail, NiFail::FAIL);
    us.o.interface.close().unwrap();
}

#[test]
fn a_living_peer_that_never_leaves_makes_the_descriptor_stay() {
    let (us, map, layout) = alone(std::process::id());
    layout.block(1).busy(&map, 0).store(1, Ordering::SeqCst);
    let refused = us.o.interface.md_unlink(us.shown);
    assert_eq!(refused, Err(portals_core::Error::MdInUse));
    layout.block(1).busy(&map, 0).store(0, Ordering::SeqCst);
    us.o.interface.md_unlink(us.shown).unwrap();
}

/// Writes a cell as rank 1 would.
fn send_cell(map: &Map, ring: Ring, position: u32, bytes: &[u8]) {
    let at = ring.cell(position);
    map.write(at + 4, bytes);
    map.word(at)
        .store(position.wrapping_add(1), Ordering::Release);
}

fn put_header(us: &Side, length: u64) -> Header {
    Header {
        target: us.o.peers[0],
        source: us.o.peers[1],
        uid: us.o.interface.uid(),
        jid: us.o.interface.jid(),
        pt_index: 4,
        match_bits: LOUD,
        body: Body::Put {
            length,
            remote_offset: 0,
            hdr_data: 9,
            ac_index: 0,
            ack_md: None,
        },
    }
}

/// Whatever a peer writes, this side goes on, and takes the next good message.
#[test]
fn peers_may_write_what_they_like() {
    let mut rng = fastrand::Rng::with_seed(17);
    for round in 0..20 {
        let (us, map, layout) = alone(std::process::id());
        layout
            .block(0)
            .contacts(&map, 0)
            .store(!0, Ordering::SeqCst);
        let ring = layout.ring(1, 0);
        let mut position = 0;
        for _ in 0..500 {
            let mut prefix = cell::Prefix::of(cell::Kind::Message);
            let length = *rng.choice(&[0u64, 8, 5000, u64::MAX]).unwrap();
            prefix.inline = rng.u16(0..=200);
            if rng.bool() {
                prefix.bulk_at = *rng.choice(&[0, 100, 1 << 17, u32::MAX]).unwrap();
                prefix.bulk_len = *rng.choice(&[0, 8, 5000, 1 << 17, u32::MAX]).unwrap();
            }
            let mut bytes = [0; cell::HEAD + cell::INLINE];
            rng.fill(&mut bytes);
            bytes[..cell::HEAD]
                .copy_from_slice(&cell::encode(&prefix, Some(&put_header(&us, length))));
            bytes[0] = rng.u8(0..6);
            for _ in 0..rng.usize(0..3) {
                bytes[rng.usize(..cell::HEAD)] = rng.u8(..);
            }
            send_cell(&map, ring, position, &bytes);
            position += 1;
            // Words of the ring towards it, and of its own block.
            let back = layout.ring(0, 1).words(&map);
            Words::consumed(&back).store(rng.u32(..), Ordering::Relaxed);
            layout
                .block(1)
                .count(&map)
                .store(rng.u64(..), Ordering::Relaxed);
            let generation = layout.block(1).generation(&map);
            generation.store(rng.u64(..) & !1, Ordering::Relaxed);
            for word in 0..10 {
                let advert = layout.block(1).advert(&map, 0, word);
                advert.store(rng.u64(..), Ordering::Relaxed);
            }
            while us.look().is_some() {}
            if rng.u8(..) == 0 {
                us.put(8, to(us.o.peers[1], QUIET, 0));
            }
        }
        // Ends a message that was never finished.
        let mut last = cell::Prefix::of(cell::Kind::Message);
        last.inline = 8;
        let mut bytes = [7; cell::HEAD + 8];
        bytes[..cell::HEAD].copy_from_slice(&cell::encode(&last, Some(&put_header(&us, 8))));
        while us.look().is_some() {}
        send_cell(&map, ring, position, &bytes);
        let e = event(&[&us], EventKind::PutEnd);
        let good = e.ni_fail == NiFail::OK && e.mlength == 8;
        assert!(good || us.look().is_some(), "round {round}: {e:?}");
    }
}

#[test]
fn a_message_in_another_name_is_dropped() {
    let (us, map, layout) = alone(std::process::id());
    layout
        .block(0)
        .contacts(&map, 0)
        .store(0b10, Ordering::SeqCst);
    let ring = layout.ring(1, 0);
    let good = put_header(&us, 0);
    let forged = [
        Header {
            source: us.o.peers[0],
            ..good
        },
        Header {
            uid: good.uid + 1,
            ..good
        },
        Header {
            jid: good.jid + 1,
            ..good
        },
    ];
    let prefix = cell::Prefix::of(cell::Kind::Message);
    for (position, header) in (0..).zip(&forged) {
        send_cell(&map, ring, position, &cell::encode(&prefix, Some(header)));
    }
    assert!(us.look().is_none() && us.look().is_none());
    send_cell(&map, ring, 3, &cell::encode(&prefix, Some(&good)));
    assert_eq!(event(&[&us], EventKind::PutEnd).hdr_data, 9);
}

#[test]
fn memory_of_another_job_or_version_is_refused() {
    let files = |n| -> Vec<OwnedFd> {
        let own = (0..n).map(|r| Own::new(r, n).unwrap().descriptor().unwrap());
        own.collect()
    };
    let said = |own: Own, common: &OwnedFd, files: &[OwnedFd]| {
        own.with(common, files).err().map(|e| e.to_string())
    };
    let own = || Own::new(0, 2).unwrap();
    let (two, three) = (common(2).unwrap(), common(3).unwrap());
    assert_eq!(said(own(), &two, &files(2)), None);
    assert!(said(own(), &two, &files(3)[..2]).unwrap().contains("bytes"));
    assert!(
        said(own(), &two, &files(2)[..1])
            .unwrap()
            .contains("1 files")
    );
    assert!(said(own(), &three, &files(2)).is_some());
    let (layout, other) = (Layout::new(2), common(2).unwrap());
    let map = Map::new(&other, layout.common().1).unwrap();
    map.word(8).fetch_add(1, Ordering::Relaxed);
    let version = said(own(), &other, &files(2)).unwrap();
    assert!(version.contains("another version"), "{version}");
    assert!(Memory::new(0).is_err() && Memory::new(1025).is_err());
}

/// All of the machine state between calls is in `Core`; nothing in it may be larger than one peer's share.
#[test]
fn a_peer_costs_little() {
    assert!(
        size_of::<super::Peer>() <= 512,
        "{}",
        size_of::<super::Peer>()
    );
    assert!(size_of::<Core>() <= 1024);
}

/// Who writes to whom stands in the common file too, which anybody can spoil: a message is found all the same.
#[test]
fn a_spoiled_hint_hides_no_message() {
    let memory = Memory::new(2).unwrap();
    let layout = Layout::new(2);
    let config = |r| rank_config(Placement::ONE, r, 1);
    let join = |r| Joining::new(&memory, r, &config(r), WITHOUT).unwrap();
    let joined = [join(0), join(1)];
    let map = memory.map_for_test();
    let ids: Vec<_> = (0..2).map(|r| Placement::ONE.of(r)).collect();
    let mut sides = (0..).zip(joined).map(|(r, joining)| {
        let opened = Opened::from(joining.open(config(r), Placement::ONE, ids.clone(), false));
        side(opened, 4096, false)
    });
    let (a, b) = (sides.next().unwrap(), sides.next().unwrap());
    a.put(8, to(ids[1], LOUD, 0));
    layout.block(1).contacts(&map, 0).store(0, Ordering::SeqCst);
    layout.block(1).bell(&map).store(0, Ordering::SeqCst);
    assert_eq!(event(&[&b], EventKind::PutEnd).mlength, 8);
}

/// A rank that says that it copies, and goes on saying so, holds up what another shows only so long.
#[test]
fn an_edited_word_holds_up_no_attach() {
    let memory = Memory::new(2).unwrap();
    let layout = Layout::new(2);
    let options = Options {
        patience: Duration::from_millis(10),
        ..WITHOUT
    };
    let config = rank_config(Placement::ONE, 0, 1);
    let joining = Joining::new(&memory, 0, &config, options).unwrap();
    let map = memory.map_for_test();
    // Alive, as it is this process.
    let own = layout.block(0).identity(&map);
    layout.block(1).introduce(&map, own);
    layout.block(1).busy(&map, 0).store(7, Ordering::SeqCst);
    let ids = (0..2).map(|r| Placement::ONE.of(r)).collect();
    let us = side(
        joining.open(config, Placement::ONE, ids, false).into(),
        4096,
        true,
    );
    us.o.interface.close().unwrap();
}

/// A rank that tells the numbers of another, of a thread of it, or its word would have others write to that one.
#[test]
fn who_says_that_it_is_another_rank_is_not_copied_to() {
    let memory = Memory::new(3).unwrap();
    let options = Options {
        on_fault: super::OnFault::End,
        ..Options::default()
    };
    let join = |r| {
        let config = rank_config(Placement::ONE, r, 1);
        Joining::new(&memory, r, &config, options).unwrap()
    };
    let ranks = [join(0), join(1), join(2)];
    let (map, layout) = (memory.map_for_test(), Layout::new(3));
    let own = layout.block(0).identity(&map);
    let mut child = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let (told, thread) = std::sync::mpsc::channel();
    let (go, waits) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        told.send(
            host::ids::thread()
                .unwrap()
                .as_raw_nonzero()
                .get()
                .cast_unsigned(),
        )
        .unwrap();
        let _ = waits.recv();
    });
    let thread = thread.recv().unwrap();
    // Rank 2 is far away, so that it cannot be the one that is told twice.
    let mut away = layout.block(2).identity(&map);
    (away.process.pid, away.process.word) = (1, 3);
    layout.block(2).introduce(&map, away);
    let tells = |pid, word| {
        let mut who = layout.block(1).identity(&map);
        (who.process.pid, who.process.word) = (pid, word);
        layout.block(1).introduce(&map, who);
        ranks[0]
            .there(1, 3)
            .map(|t| (t.pid.cast_unsigned(), t.word))
    };
    let rank = 1;
    let same = Unreachable::Same { rank, other: 0 };
    assert_eq!(tells(child.id(), 7), Ok((child.id(), 7)));
    assert_eq!(tells(own.process.pid, 7), Err(same), "its number");
    assert_eq!(tells(child.id(), own.process.word), Err(same), "its word");
    let pid = thread.cast_signed();
    assert_eq!(
        tells(thread, 7),
        Err(Unreachable::NoProcess { rank, pid }),
        "a thread of it"
    );
    drop(go);
    other.join().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// A debugger holds a peer while it copies, for longer than a copy may take: it is waited for.
#[test]
fn a_peer_that_is_held_while_it_copies_is_waited_for() {
    use rustix::process::{Pid, Signal, kill_process};
    let mut child = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    while host::held::is_held(child.id().cast_signed()) != Some(true) {
        std::thread::yield_now();
    }
    let options = Options {
        patience: Duration::from_millis(5),
        ..WITHOUT
    };
    let (us, map, layout) = alone_with(child.id(), options);
    let busy = layout.block(1).busy(&map, 0);
    busy.store(1, Ordering::SeqCst);
    let ni = &us.o.interface;
    let me = ni.me_attach(4, entry(77), InsertPosition::After).unwrap();
    std::thread::scope(|s| {
        s.spawn(|| {
            let held = Instant::now();
            while held.elapsed() < 40 * options.patience {
                std::thread::yield_now();
            }
            busy.store(0, Ordering::SeqCst);
        });
        let shown = spec(MdMemory::whole(&us.work), None);
        ni.md_attach(me, shown, Unlink::Retain).unwrap();
        assert_eq!(busy.load(Ordering::SeqCst), 0, "it still copies");
    });
    child.kill().unwrap();
    child.wait().unwrap();
}
