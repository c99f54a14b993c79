//! Lanes on real memory, against queues; peers that lie, sleep or are gone; what a pair that sends nothing costs.

use super::super::alarm::{Alarm, Lines};
use super::super::attach::{There, own_word};
use super::super::layout::{Identity, LANE_CELL, Layout};
use super::super::open::{Memory, Options};
use super::super::ring::{Bell, Order, Words};
use super::super::{Joining, Members, Shm};
use super::{FRAME, INLINE, Lane, Link, Near};
use crate::trusted::TRUST;
use fabric_api::identity::rank_config;
use fabric_api::nal::Nal;
use fabric_api::place::Placement;
use fabric_api::region::RawMemory;
use portals_core::{Ni, Segment};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::thread::futex;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;

/// What the ranks of a memory have for frames, and their ends, which are closed when they are dropped.
fn opened(memory: &Memory, ranks: u32) -> Vec<(Near, Shm)> {
    let place = Placement::ONE;
    let ids: Vec<_> = (0..ranks).map(|r| place.of(r)).collect();
    let joining: Vec<_> = (0..ranks)
        .map(|r| Joining::new(memory, r, &rank_config(place, r, 1), Options::default()).unwrap())
        .collect();
    (0..)
        .zip(joining)
        .map(|(r, joining)| {
            let members = Members::all(place, ids.clone());
            let shm = joining.nal(&rank_config(place, r, 1), members, false, TRUST);
            (shm.near(), shm)
        })
        .collect()
}

fn nears(memory: &Memory, ranks: u32) -> Vec<Near> {
    let all = opened(memory, ranks).into_iter();
    all.map(|(near, _)| near).collect()
}

/// Both ends between ranks 0 and 1.
fn pair(ranks: u32) -> (Memory, Vec<Near>, Link, Link) {
    let memory = Memory::new(ranks).unwrap();
    let nears = nears(&memory, ranks);
    assert!(nears[0].link(1).is_none(), "nobody has offered");
    nears[0].offer(1);
    assert!(
        nears[0].link(1).is_none() && nears[1].link(0).is_none(),
        "one has"
    );
    nears[1].offer(0);
    let (a, b) = (nears[0].link(1).unwrap(), nears[1].link(0).unwrap());
    (memory, nears, a, b)
}

/// All of a frame.
fn bytes(link: &Link, lane: Lane) -> Option<(u16, Vec<u8>)> {
    let frame = link.take(lane)?;
    let mut all = vec![0; frame.len()];
    // In two pieces, wherever they are divided.
    let (first, rest) = all.split_at_mut(frame.len() / 3);
    assert!(link.read(&frame, 0, first) && link.read(&frame, first.len(), rest));
    assert!(!link.read(&frame, frame.len(), &mut [0]), "past the end");
    link.release(&frame);
    Some((frame.tag(), all))
}

/// Frames of all lengths in both lanes and both directions, until lanes are full and empty again and again: what comes
/// out is what went in, in order, and room ends where it must.
#[test]
fn lanes_are_bounded_queues() {
    let mut rng = fastrand::Rng::with_seed(3);
    for ranks in [2, 17, 65] {
        let (_memory, _nears, a, b) = pair(ranks);
        let layout = Layout::new(ranks);
        let (cells, bulk) = {
            let lane = layout.lane(0, 1, 0);
            (lane.cells() as usize, lane.bulk() as usize)
        };
        let mut queues: [VecDeque<(u16, Vec<u8>)>; 4] = Default::default();
        let (mut full, mut most) = (0, 0);
        for round in 0..40_000 {
            // Phases of more sending and of more taking.
            let sends = rng.u8(0..10) < if round / 4000 % 2 == 0 { 8 } else { 2 };
            let which = rng.usize(0..4);
            let lane = [Lane::Requests, Lane::Replies][which % 2];
            let (from, to) = if which < 2 { (&a, &b) } else { (&b, &a) };
            let queue = &mut queues[which];
            if sends {
                let len = match rng.u8(0..4) {
                    0 => rng.usize(0..=FRAME),
                    1 => rng.usize(INLINE - 2..=INLINE + 2),
                    _ => rng.usize(0..INLINE),
                };
                let data: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
                let (head, body) = data.split_at(rng.usize(0..=len.min(100)));
                let tag = rng.u16(..);
                let room = from.has_room(lane, len);
                assert_eq!(from.try_send(lane, tag, head, body), room);
                if room {
                    queue.push_back((tag, data));
                    most = most.max(queue.len());
                } else {
                    full += 1;
                    let used: usize = queue
                        .iter()
                        .map(|(_, d)| d.len().saturating_sub(INLINE).next_multiple_of(64))
                        .sum();
                    // What is lost at the end of the area, and frames whose cells were not yet given back.
                    let waste = 2 * FRAME + bulk / 4;
                    let told = cells / 4 + 1;
                    assert!(queue.len() + told >= cells || used + waste + told * FRAME >= bulk);
                }
            } else {
                assert_eq!(to.is_ready(lane), !queue.is_empty());
                let got = bytes(to, lane);
                assert_eq!(got, queue.pop_front());
                let empty = got.is_none();
                to.tell(lane, empty);
                assert!(!empty || from.has_room(lane, FRAME), "all of it is free");
            }
        }
        assert!(full > 100 && most > cells / 2, "{full} {most}");
        assert!(
            !a.try_send(Lane::Requests, 0, &[0; FRAME], &[0]),
            "too long"
        );
    }
}

#[test]
fn who_has_sent_is_known_and_nobody_else() {
    let (_memory, nears, a, b) = pair(70);
    assert_eq!((nears[1].callers(0), nears[1].words()), (0, 2));
    assert!(b.take(Lane::Requests).is_none());
    assert!(a.try_send(Lane::Replies, 7, b"x", b"yz"));
    assert_eq!((nears[1].callers(0), nears[0].callers(0)), (1, 0));
    assert!(b.take(Lane::Requests).is_none());
    assert_eq!(bytes(&b, Lane::Replies), Some((7, b"xyz".to_vec())));
    assert_eq!(nears[0].number(Placement::ONE.of(0)), None, "itself");
    assert_eq!(nears[0].number(Placement::ONE.of(69)), Some(69));
    assert_eq!(nears[0].number(Placement::ONE.of(70)), None);
    nears[0].offer(1000);
    assert!(nears[0].link(0).is_none() && nears[0].link(1000).is_none());
}

/// Whatever a peer writes into the memory, a reader copies from its own lane only, and goes on; a sender does not
/// believe that its reader is where it cannot be.
#[test]
fn peers_that_lie() {
    let mut rng = fastrand::Rng::with_seed(9);
    let (memory, nears, a, b) = pair(2);
    let map = memory.map_for_test();
    let layout = Layout::new(2);
    // A length that is longer than any frame.
    assert!(a.try_send(Lane::Requests, 1, b"bad", &[]));
    let cell = LANE_CELL * layout.lane(0, 1, 0).cell(0);
    map.word(cell + 4)
        .store(FRAME as u32 + 1, Ordering::Relaxed);
    assert!(a.try_send(Lane::Requests, 2, b"good", &[]));
    assert_eq!(bytes(&b, Lane::Requests), Some((2, b"good".to_vec())));
    assert_eq!(b.dropped(), 1);
    // Random words everywhere in both lanes to rank 1, heads and cells.
    for _ in 0..20_000 {
        let lane = layout.lane(0, 1, rng.usize(0..2));
        let cell = LANE_CELL * lane.cell(rng.u32(..));
        let at = cell + 4 * rng.usize(0..LANE_CELL / 4);
        let word = if rng.bool() {
            rng.u32(..)
        } else {
            rng.u32(0..600)
        };
        map.word(at).store(word, Ordering::Relaxed);
        let _ = bytes(&b, Lane::Requests);
        let _ = bytes(&b, Lane::Replies);
    }
    // A reader that claims to be ahead of its writer.
    let words = layout.lane(1, 0, 0);
    let mut sent = 0;
    while b.try_send(Lane::Requests, 0, &[1; 200], &[]) {
        sent += 1;
    }
    assert!(sent > 100);
    for lie in [u32::MAX, 1 << 30, sent + 1] {
        words.freed(&map).store(lie, Ordering::Relaxed);
        super::super::ring::Word::release(
            super::super::ring::Words::consumed(&words.words(&map)),
            lie,
        );
        assert!(!b.has_room(Lane::Requests, 200), "{lie}");
    }
    // One that is where it can be, and claims to have read more of the bulk area than was written.
    let out = &b.out[Lane::Replies.index()];
    while b.try_send(Lane::Replies, 0, &[1; FRAME], &[]) {}
    let written = out.next.load(Ordering::Relaxed);
    for more in [1, 64, FRAME as u32] {
        out.lane
            .freed(&map)
            .store(written.wrapping_add(more), Ordering::Relaxed);
        assert!(!b.has_room(Lane::Replies, FRAME), "{more}");
    }
    // Nobody calls that could not: bits beyond the ranks are the caller's to bound.
    assert_eq!(nears[1].callers(0) & 3, 1);
}

#[test]
fn a_peer_that_closed_is_gone() {
    let memory = Memory::new(2).unwrap();
    let mut opened = opened(&memory, 2);
    let ((b, mut second), (a, _first)) = (opened.pop().unwrap(), opened.pop().unwrap());
    a.offer(1);
    b.offer(0);
    let link = a.link(1).unwrap();
    assert!(!link.is_gone());
    second.close(&mut Ni::new(rank_config(Placement::ONE, 1, 1)));
    assert!(link.is_gone());
}

/// Has a link copy what is at an address into `to`.
fn fetch(link: &Link, addr: u64, to: &mut [[u8; 4]]) -> bool {
    let piece = |bytes: &mut [u8; 4]| Segment {
        addr: bytes.as_mut_ptr().expose_provenance() as u64,
        len: 4,
    };
    let pieces: Vec<_> = to.iter_mut().map(piece).collect();
    let memory = match pieces[..] {
        [piece] => portals_core::Memory::contiguous(piece.addr, piece.len),
        _ => portals_core::Memory::Iovec {
            start: 0,
            segments: pieces,
        },
    };
    link.fetch(addr, RawMemory::trusted(memory, TRUST)).is_ok()
}

#[test]
fn what_a_peer_has_is_fetched_until_it_has_closed() {
    let memory = Memory::new(2).unwrap();
    let mut opened = opened(&memory, 2);
    let ((b, mut second), (a, _first)) = (opened.pop().unwrap(), opened.pop().unwrap());
    a.offer(1);
    b.offer(0);
    let (word, at) = own_word().unwrap();
    let pid = std::process::id().cast_signed();
    let there = There { pid, word, at };
    let theirs = [1u8, 2, 3, 4, 5, 6, 7, 8];
    let addr = theirs.as_ptr().expose_provenance() as u64;
    let link = a.link(1).unwrap();
    assert!(!link.fetches() && !fetch(&link, addr, &mut [[0; 4]]));
    let link = a.link(1).unwrap().reading(Some(there));
    let (mut one, mut two) = ([[0; 4]], [[0; 4]; 2]);
    assert!(link.fetches() && fetch(&link, addr + 2, &mut one));
    assert!(fetch(&link, addr, &mut two));
    assert_eq!((one, two), ([[3, 4, 5, 6]], [[1, 2, 3, 4], [5, 6, 7, 8]]));
    // An address that means nothing is the peer's fault, and says nothing about the others.
    assert!(!fetch(&link, 8, &mut one) && link.fetches());
    assert!(fetch(&link, addr, &mut one));
    second.close(&mut Ni::new(rank_config(Placement::ONE, 1, 1)));
    assert!(!fetch(&link, addr, &mut one), "it may mean anything now");
    // A process of the same number is another one.
    let stranger = There {
        word: word ^ 1,
        ..there
    };
    let link = a.link(1).unwrap().reading(Some(stranger));
    assert!(link.fetches() && !fetch(&link, addr, &mut one));
    assert!(!link.fetches());
}

/// Rank 1 says who it is.
fn introduce(memory: &Memory, change: impl FnOnce(&mut Identity)) {
    let (map, block) = (memory.map_for_test(), Layout::new(2).block(1));
    let mut who = block.identity(&map);
    change(&mut who);
    block.introduce(&map, who);
}

#[test]
fn ranks_of_another_user_or_job_have_no_link() {
    let (memory, nears, _a, _b) = pair(2);
    for change in [(|who| who.uid ^= 1) as fn(&mut Identity), |who| {
        who.jid ^= 1
    }] {
        introduce(&memory, change);
        assert!(nears[0].link(1).is_none());
        introduce(&memory, change);
        assert!(nears[0].link(1).is_some());
    }
}

#[test]
fn a_peer_that_died_is_gone() {
    let memory = Memory::new(2).unwrap();
    let opened = opened(&memory, 2);
    let near = &opened[0].0;
    near.offer(1);
    opened[1].0.offer(0);
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let pid = child.id();
    child.wait().unwrap();
    introduce(&memory, |who| who.process.pid = std::process::id());
    assert!(!near.link(1).unwrap().is_gone());
    introduce(&memory, |who| who.process.pid = pid);
    assert!(near.link(1).unwrap().is_gone());
}

/// A rank spares the fence only where both ends are registered with the kernel: one that sleeps has a fence put into those.
#[test]
fn the_fence_is_left_out_where_both_ends_are_ordered() {
    let (memory, mut nears, _a, _b) = pair(2);
    let map = memory.map_for_test();
    for (own, peer) in [(false, false), (false, true), (true, false), (true, true)] {
        nears[0].orders = own;
        Layout::new(2).block(1).set_orders(&map, peer);
        let spares = nears[0].link(1).unwrap().order == Order::Sleeper;
        assert_eq!(spares, own && peer, "{own} {peer}");
    }
}

#[test]
fn a_frame_wakes_its_reader_and_room_a_writer_that_asked() {
    let (memory, _nears, a, b) = pair(2);
    let (map, layout) = (memory.map_for_test(), Layout::new(2));
    let bells = [0, 1].map(|rank| layout.block(rank).bell(&map));
    let asleep = |rank: usize| bells[rank].load(Ordering::Relaxed) == 1;
    let prepare = || bells.iter().for_each(|bell| Bell::prepare(*bell));
    prepare();
    assert!(!a.try_send(Lane::Requests, 0, &[0; FRAME], &[0]) && asleep(1));
    assert!(a.try_send(Lane::Requests, 0, b"x", &[]));
    assert!(!asleep(1) && asleep(0), "the reader alone is woken");
    assert!(
        !a.waits_for_room(Lane::Requests, 1),
        "there is room, so nobody waits"
    );
    while a.try_send(Lane::Requests, 0, b"x", &[]) {}
    let starved = Words::starved(&layout.lane(0, 1, 0).words(&map)).load(Ordering::Relaxed);
    assert_eq!(starved, 1);
    let empty = || {
        while bytes(&b, Lane::Requests).is_some() {}
        b.tell(Lane::Requests, true);
    };
    // What was asked before is answered once.
    empty();
    prepare();
    while a.try_send(Lane::Requests, 0, b"x", &[]) {}
    prepare();
    empty();
    assert!(asleep(0), "it has not asked since");
    while a.try_send(Lane::Requests, 0, b"x", &[]) {}
    assert!(!a.has_room(Lane::Requests, 1) && a.waits_for_room(Lane::Requests, 1));
    prepare();
    // A writer that waits is told before the reader is idle.
    let cells = layout.lane(0, 1, 0).cells();
    for _ in 0..=cells / 4 {
        assert!(bytes(&b, Lane::Requests).is_some());
    }
    b.tell(Lane::Requests, false);
    assert!(!asleep(0) && asleep(1), "the writer alone is woken");
    assert!(a.has_room(Lane::Requests, 1));
    // For little room it is told when the reader is idle.
    while a.try_send(Lane::Requests, 0, b"x", &[]) {}
    assert!(a.waits_for_room(Lane::Requests, 1));
    prepare();
    assert!(bytes(&b, Lane::Requests).is_some());
    b.tell(Lane::Requests, false);
    assert!(asleep(0));
    b.tell(Lane::Requests, true);
    assert!(!asleep(0));
}

/// Whoever sleeps, on the futex or on a socket, is woken by the ring and not by the end of its time.
#[test]
fn the_ring_reaches_a_sleeper() {
    let (memory, mut nears, a, _b) = pair(2);
    let (map, block) = (memory.map_for_test(), Layout::new(2).block(1));
    Bell::prepare(block.bell(&map));
    let long = rustix::event::Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        let sleeper = s.spawn(|| {
            tell.send(host::ids::thread().unwrap()).unwrap();
            futex::wait(block.bell(&map), futex::Flags::empty(), 1, Some(&long))
        });
        let task = told.recv().unwrap().as_raw_nonzero();
        let stat = format!("/proc/self/task/{task}/stat");
        // It sleeps, or is about to: a word that has changed is as good as a ring then.
        while !std::fs::read_to_string(&stat).is_ok_and(|text| text.contains(") S ")) {
            std::thread::yield_now();
        }
        assert!(a.try_send(Lane::Requests, 0, b"x", &[]));
        let woken = sleeper.join().unwrap();
        assert_ne!(woken, Err(rustix::io::Errno::TIMEDOUT));
    });

    let alarm = Alarm::new().unwrap();
    let line = || alarm.line().unwrap();
    let mut near = nears.swap_remove(0);
    near.lines = Lines::new(vec![line(), line()]);
    Bell::prepare(block.bell(&map));
    let link = near.link(1).unwrap();
    link.ring();
    let fd = alarm.descriptor().unwrap();
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let readable = poll(&mut fds, Some(&rustix::event::Timespec::default()));
    assert_eq!(readable, Ok(1));
}
