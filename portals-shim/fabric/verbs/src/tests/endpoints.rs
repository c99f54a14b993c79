//! Endpoints that belong to no job: they meet by address, come back, and go.

use super::raw::{Raw, raws_of, until};
use super::*;
use crate::endpoint::{self, EndpointNal, PEERS};
use crate::settings::Settings;
use fabric_api::address::Address;
use fabric_api::call::Call;
use fabric_api::config::{Channel, FabricConfig, FabricKind};
use fabric_api::identity::Wishes;
use portals_core::Ni;
use portals_shim::endpoint::Endpoint;
use std::time::{Duration, Instant};

mod hostile;
mod processes;

pub(super) type End = Raw<EndpointNal>;

const LEN: usize = 100_000;

/// Endpoints with room for so many peers each.
fn ends_of(n: usize, most: u32, settings: &Settings) -> Option<Vec<End>> {
    let device = device()?;
    let parts = (0..n).map(|_| {
        let wishes = Wishes::default();
        let opened = endpoint::open(Some(&device), settings.clone(), &wishes, most);
        let (config, nal) = opened.unwrap();
        (Ni::new(config), nal)
    });
    Some(raws_of(parts.collect(), LEN))
}

fn ends(n: usize) -> Option<Vec<End>> {
    ends_of(n, 8, &Settings::from_env().unwrap())
}

/// Those that give up soon.
fn impatient(n: usize, most: u32) -> Option<Vec<End>> {
    let patience = Duration::from_millis(500);
    let settings = Settings::from_env().unwrap();
    ends_of(
        n,
        most,
        &Settings {
            patience,
            ..settings
        },
    )
}

impl End {
    fn address(&self) -> Address {
        *self.library.nal.book().own()
    }

    fn connect(&self, other: &Self) {
        let travelled = Address::from_bytes(&other.address().to_bytes()).unwrap();
        let id = self.library.nal.book().insert(&travelled).unwrap();
        assert_eq!(id, other.id());
    }

    fn disconnect(&self, other: ProcessId) -> bool {
        self.library.nal.book().remove(other)
    }

    fn knows(&self, other: ProcessId) -> bool {
        self.library.nal.book().find(other).is_some()
    }

    /// Peers that have a place in its tables.
    fn peers(&self) -> usize {
        let verbs = &self.library.nal.verbs;
        let peers = &verbs.peers;
        let ids = (0..).take_while(|rank| peers.id(*rank).is_some());
        assert_eq!(ids.count(), peers.len());
        peers.iter().count()
    }
}

fn close_all(ends: Vec<End>) {
    for mut end in ends {
        end.library.execute(Call::Close).unwrap();
    }
}

/// A put of these bytes from one to another by the library's way or the adapter's, with its end and its ack.
fn put(ends: &mut [End], from: usize, whom: usize, bits: u64, len: usize) {
    let to_whom = ends[whom].id();
    ends.iter_mut().for_each(|e| e.events.clear());
    let bytes = pattern(len, from + whom + len);
    ends[from].work.write(0, &bytes).unwrap();
    ends[from].put(to(to_whom, bits, 0), len as u64, AckRequest::Ack, 5);
    until(ends, "a put", |r| {
        let mut events = r.iter().flat_map(|e| &e.events);
        assert!(events.all(|e| e.ni_fail == NiFail::OK), "{len} bytes");
        let arrived = bits == QUIET || r[whom].seen(EventKind::PutEnd, bits) == (1, 0);
        r[from].seen(EventKind::SendEnd, bits).0 == 1
            && r[from].seen(EventKind::Ack, bits).0 == 1
            && arrived
    });
    let mut seen = vec![0; len];
    let there = [&ends[whom].loud, &ends[whom].quiet][usize::from(bits == QUIET)];
    there.read(0, &mut seen).unwrap();
    assert!(seen == bytes, "{len} bytes are what was put");
}

fn get(ends: &mut [End], from: usize, whom: usize, len: usize) {
    let there = to(ends[whom].id(), QUIET, 0);
    ends.iter_mut().for_each(|e| e.events.clear());
    let bytes = pattern(len, 77 + len);
    ends[whom].quiet.write(0, &bytes).unwrap();
    ends[from].get(there, len as u64);
    until(ends, "a get", |r| {
        r[from].seen(EventKind::ReplyEnd, QUIET) == (1, 0)
    });
    let mut seen = vec![0; len];
    ends[from].work.read(0, &mut seen).unwrap();
    assert!(seen == bytes, "{len} bytes are what was got");
}

/// Everything that two endpoints do with each other.
fn all_works(ends: &mut [End], one: usize, other: usize) {
    for (from, whom) in [(one, other), (other, one)] {
        for len in [0, 8, 5000, LEN] {
            for bits in [LOUD, QUIET] {
                put(ends, from, whom, bits, len);
            }
            if len > 0 {
                get(ends, from, whom, len);
            }
        }
    }
}

/// A put whose target does not take it has an end, and a failure instead of an ack.
fn fails(ends: &mut [End], from: usize, whom: ProcessId) {
    ends[from].events.clear();
    ends[from].put(to(whom, LOUD, 0), 64, AckRequest::Ack, 5);
    has_failed(ends, from, 1);
}

fn has_failed(ends: &mut [End], from: usize, puts: usize) {
    until(ends, "a put that fails", |r| {
        r[from].seen(EventKind::SendEnd, LOUD).0 == puts
            && r[from].seen(EventKind::Ack, LOUD) == (puts, puts)
    });
}

/// All make progress until nothing of theirs is under way.
fn settle(ends: &mut [End]) {
    let start = Instant::now();
    while !ends.iter_mut().all(|e| e.library.nal.verbs.all_is_sent()) {
        assert!(start.elapsed() < Duration::from_secs(40), "it goes on");
        ends.iter_mut().for_each(Raw::step);
    }
}

#[test]
fn device_two_endpoints_meet_by_address() {
    let Some(mut ends) = ends(2) else { return };
    let [one, other] = [0, 1].map(|k: usize| ends[k].id());
    assert!(one != other && one.nid > 0 && other.nid > 0);
    assert_eq!((ends[0].peers(), ends[1].peers()), (0, 0));
    let (first, second) = (&ends[0], &ends[1]);
    first.connect(second);
    second.connect(first);
    all_works(&mut ends, 0, 1);
    assert_eq!((ends[0].peers(), ends[1].peers()), (1, 1));
    use fabric_api::nal::Nal as _;
    let nal = |k: usize| &ends[k].library.nal;
    assert_eq!(
        (nal(0).distance(one), nal(0).distance(other)),
        (Some(0), Some(1))
    );
    assert_eq!(nal(0).distance(ProcessId::new(7, 7)), None);
    close_all(ends);
}

#[test]
fn device_an_inbound_peer_that_the_program_has_inserted_stays_in_the_book() {
    let Some(mut ends) = ends(2) else { return };
    let inbound = ends[0].id();
    ends[0].connect(&ends[1]);
    put(&mut ends, 0, 1, LOUD, 64);
    let (a, b) = ends.split_at_mut(1);
    b[0].connect(&a[0]);
    let mut gone = ends.remove(0);
    gone.library.execute(Call::Close).unwrap();
    fails(&mut ends, 0, inbound);
    assert!(ends[0].knows(inbound));
    close_all(ends);
}

/// A peer that only its own request has made known is in the book, and can be answered; it is forgotten when it closes.
#[test]
fn device_an_inbound_peer_can_be_answered() {
    let Some(mut ends) = ends(2) else { return };
    let inbound = ends[0].id();
    let target = ends[1].id();
    ends[0].connect(&ends[1]);
    assert!(!ends[1].knows(inbound));
    put(&mut ends, 0, 1, LOUD, 64);
    assert!(ends[1].knows(inbound));
    put(&mut ends, 1, 0, LOUD, 64);
    all_works(&mut ends, 0, 1);
    let mut gone = ends.remove(0);
    gone.library.execute(Call::Close).unwrap();
    until(&mut ends, "the inbound peer is forgotten", |r| {
        !r[0].knows(inbound) && r[0].peers() == 0
    });
    fails(&mut ends, 0, inbound);
    assert_eq!(ends[0].id(), target);
    close_all(ends);
}

#[test]
fn device_both_connect_at_the_same_time() {
    for _ in 0..4 {
        let Some(mut ends) = ends(2) else { return };
        ends[0].connect(&ends[1]);
        ends[1].connect(&ends[0]);
        let ids = [0, 1].map(|k: usize| ends[k].id());
        for from in 0..2 {
            for number in 0..3 {
                ends[from].put(to(ids[1 - from], LOUD, 0), 64, AckRequest::Ack, number);
            }
        }
        until(&mut ends, "both meet", |r| {
            r.iter().all(|e| {
                e.seen(EventKind::PutEnd, LOUD) == (3, 0) && e.seen(EventKind::Ack, LOUD) == (3, 0)
            })
        });
        for end in &ends {
            let puts = end.events.iter().filter(|e| e.kind == EventKind::PutEnd);
            assert!(puts.map(|e| e.hdr_data).eq(0..3), "in order");
        }
        close_all(ends);
    }
}

/// Whichever side disconnects: what was under way fails, what comes later too, and then they meet again.
#[test]
fn device_who_has_disconnected_can_connect_again() {
    let Some(mut ends) = ends(2) else { return };
    let ids = [0, 1].map(|k: usize| ends[k].id());
    ends[0].connect(&ends[1]);
    for round in 0..4 {
        let (from, whom) = (round % 2, 1 - round % 2);
        all_works(&mut ends, 0, 1);
        ends.iter_mut().for_each(|e| e.events.clear());
        // The target makes no progress: the long one cannot end.
        ends[from].put(to(ids[whom], LOUD, 0), LEN as u64, AckRequest::Ack, 1);
        assert!(ends[from].disconnect(ids[whom]));
        ends[from].put(to(ids[whom], LOUD, 0), 8, AckRequest::Ack, 2);
        ends[from].look();
        assert_eq!(ends[from].seen(EventKind::SendEnd, LOUD), (2, 2));
        assert_eq!(ends[from].seen(EventKind::Ack, LOUD), (2, 2));
        assert_eq!(ends[from].peers(), 0);
        until(&mut ends, "the other side sees it", |r| {
            r[whom].peers() == 0
        });
        ends[from].connect(&ends[whom]);
    }
    all_works(&mut ends, 1, 0);
    // One that has nothing under way is told too.
    settle(&mut ends);
    assert!(ends[0].disconnect(ids[1]));
    until(&mut ends, "the idle side sees it", |r| r[1].peers() == 0);
    close_all(ends);
}

/// Disconnected and connected again before the fabric has looked, and without a word that arrives: still a new beginning.
#[test]
fn device_a_new_beginning_is_one_for_the_other_side_too() {
    let Some(mut ends) = ends(2) else { return };
    let target = ends[1].id();
    let inbound = ends[0].id();
    ends[0].connect(&ends[1]);
    ends[1].connect(&ends[0]);
    all_works(&mut ends, 0, 1);
    ends.iter_mut().for_each(|e| e.events.clear());
    // Under way from both.
    ends[0].put(to(target, LOUD, 0), LEN as u64, AckRequest::Ack, 1);
    ends[1].put(to(inbound, LOUD, 0), LEN as u64, AckRequest::Ack, 1);
    let index = ends[0].library.nal.verbs.index_of(target).unwrap();
    if let Some(peer) = ends[0].library.nal.verbs.peer(index) {
        // The word that says so gets lost.
        peer.session.way = None;
    }
    assert!(ends[0].disconnect(target));
    ends[0].connect(&ends[1]);
    ends[0].put(to(target, BELL, 0), 0, AckRequest::NoAck, 2);
    until(&mut ends, "the bell rings", |r| {
        r[1].seen(EventKind::PutEnd, BELL) == (1, 0)
    });
    assert_eq!(ends[0].seen(EventKind::Ack, LOUD), (1, 1));
    has_failed(&mut ends, 1, 1);
    all_works(&mut ends, 0, 1);
    close_all(ends);
}

/// The word of a disconnection gets lost, and the other side goes on: it is told.
#[test]
fn device_who_does_not_know_of_a_disconnection_is_told() {
    let Some(mut ends) = ends(2) else { return };
    let ids = [0, 1].map(|k: usize| ends[k].id());
    ends[0].connect(&ends[1]);
    ends[1].connect(&ends[0]);
    all_works(&mut ends, 0, 1);
    let index = ends[0].library.nal.verbs.index_of(ids[1]).unwrap();
    if let Some(peer) = ends[0].library.nal.verbs.peer(index) {
        peer.session.way = None;
    }
    assert!(ends[0].disconnect(ids[1]));
    fails(&mut ends, 1, ids[0]);
    assert!(!ends[0].knows(ids[1]), "its old request was not taken");
    assert_eq!(ends[1].peers(), 0);
    // What is sent from here on begins a session.
    put(&mut ends, 1, 0, LOUD, 64);
    all_works(&mut ends, 0, 1);
    close_all(ends);
}

#[test]
fn device_unknown_processes_and_dead_peers_fail() {
    let Some(mut ends) = impatient(3, 8) else {
        return;
    };
    fails(&mut ends, 0, ProcessId::new(1, 1));
    fails(&mut ends, 0, ProcessId::new(77, 7));
    // Known to itself alone.
    let third = ends[2].id();
    fails(&mut ends, 0, third);
    assert_eq!(ends[0].seen(EventKind::SendEnd, LOUD), (1, 1));
    assert_eq!(ends[0].peers(), 0);
    ends[0].connect(&ends[1]);
    ends[0].connect(&ends[2]);
    all_works(&mut ends, 0, 1);
    all_works(&mut ends, 0, 2);
    let second = ends[1].id();
    // One closes, one dies.
    let mut closed = ends.remove(1);
    closed.library.execute(Call::Close).unwrap();
    fails(&mut ends, 0, second);
    fails(&mut ends, 0, second);
    let dead = ends.remove(1);
    drop(dead);
    let start = Instant::now();
    fails(&mut ends, 0, third);
    println!("a dead peer is given up after {:?}", start.elapsed());
    // From then on at once.
    ends[0].events.clear();
    ends[0].put(to(third, LOUD, 0), 64, AckRequest::Ack, 5);
    ends[0].look();
    assert_eq!(ends[0].seen(EventKind::Ack, LOUD), (1, 1));
    close_all(ends);
}

/// Addresses of endpoints that are gone.
#[test]
fn device_nobody_at_an_address_is_a_failure() {
    let Some(mut ends) = impatient(2, 8) else {
        return;
    };
    ends[0].connect(&ends[1]);
    let gone = ends.remove(1).id();
    fails(&mut ends, 0, gone);
    close_all(ends);
}

/// A peer that was given up is heard again when it connects.
#[test]
fn device_who_was_given_up_may_connect() {
    // Which of two requests counts depends on the ids.
    for _ in 0..5 {
        given_up_and_connected();
    }
}

fn given_up_and_connected() {
    let Some(mut ends) = impatient(2, 8) else {
        return;
    };
    let ids = [0, 1].map(|k: usize| ends[k].id());
    ends[0].connect(&ends[1]);
    ends[0].put(to(ids[1], LOUD, 0), 64, AckRequest::Ack, 5);
    // The other side does nothing.
    until(&mut ends[..1], "it gives up", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (1, 1)
    });
    ends[1].connect(&ends[0]);
    put(&mut ends, 1, 0, LOUD, 64);
    all_works(&mut ends, 0, 1);
    close_all(ends);
}

/// A peer accepts a request of somebody who has given it up meanwhile: it is told, and keeps nothing.
#[test]
fn device_an_old_request_leaves_nothing() {
    let Some(mut ends) = impatient(2, 8) else {
        return;
    };
    let ids = [0, 1].map(|k: usize| ends[k].id());
    ends[0].connect(&ends[1]);
    ends[0].put(to(ids[1], LOUD, 0), 64, AckRequest::Ack, 5);
    until(&mut ends[..1], "it gives up", |r| {
        r[0].seen(EventKind::Ack, LOUD) == (1, 1)
    });
    until(&mut ends[1..], "it accepts", |r| r[0].peers() == 1);
    assert!(ends[1].knows(ids[0]));
    until(&mut ends, "it is told", |r| r[1].peers() == 0);
    assert!(!ends[1].knows(ids[0]));
    close_all(ends);
}

/// Many come and go, and the tables stay as they are. Who is one too many is refused, until somebody goes.
#[test]
fn device_peers_come_and_go_and_the_tables_stay() {
    const MOST: usize = 3;
    let Some(mut ends) = impatient(1, MOST as u32) else {
        return;
    };
    let slots = |r: &[End]| r[0].library.nal.verbs.peers.len();
    for round in 0..3 {
        let mut more = impatient(MOST + 1, 8).unwrap();
        ends.append(&mut more);
        for k in 1..=MOST {
            // Some connect, some are connected to.
            let (from, whom) = [(0, k), (k, 0)][(k + round) % 2];
            ends[from].connect(&ends[whom]);
            put(&mut ends, from, whom, LOUD, 64);
        }
        let last = MOST + 1;
        let ids = [0, last].map(|k| ends[k].id());
        ends[last].connect(&ends[0]);
        fails(&mut ends, last, ids[0]);
        assert!(!ends[0].knows(ids[1]), "who was refused is in no table");
        ends[0].connect(&ends[last]);
        fails(&mut ends, 0, ids[1]);
        assert!(ends[0].disconnect(ids[1]));
        // One goes, the last one comes.
        let one = ends[1].id();
        assert!(ends[0].disconnect(one));
        put(&mut ends, last, 0, LOUD, 64);
        // Nothing is under way that would find out who is dead.
        settle(&mut ends);
        // Some close, some die. Whoever comes is taken when that is noticed, which is looked for when no place is free.
        for (k, mut end) in ends.drain(1..).enumerate() {
            if k % 2 == 0 {
                end.library.execute(Call::Close).unwrap();
            }
        }
        for k in 1..=MOST {
            let mut more = impatient(1, 8).unwrap();
            ends.append(&mut more);
            ends[k].connect(&ends[0]);
            let there = to(ends[0].id(), LOUD, 0);
            loop {
                ends[k].events.clear();
                ends[k].put(there, 64, AckRequest::Ack, 5);
                until(&mut ends, "an end", |r| {
                    r[k].seen(EventKind::Ack, LOUD).0 == 1
                });
                if ends[k].seen(EventKind::Ack, LOUD) == (1, 0) {
                    break;
                }
                until(&mut ends, "a dead peer is noticed", |r| {
                    let mut peers = r[0].library.nal.verbs.peers.iter();
                    peers.any(|(_, peer)| peer.is_failed())
                });
            }
        }
        for mut end in ends.drain(1..) {
            end.library.execute(Call::Close).unwrap();
        }
        until(&mut ends, "inbound peers are forgotten", |r| {
            r[0].peers() == 0
        });
        assert!(slots(&ends) <= MOST + 1);
    }
    close_all(ends);
}

#[test]
fn device_a_disconnection_rings_for_the_attendant() {
    use fabric_api::nal::{Attendance, Nal, Waiter};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(ends) = ends(2) else { return };
    ends[0].connect(&ends[1]);
    let Waiter::Descriptors(Attendance { bell, .. }) = ends[0].library.nal.waiter() else {
        panic!("an endpoint sleeps on descriptors");
    };
    bell.silence();
    let rung = || {
        let mut fds = [PollFd::new(bell.descriptor(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
    };
    assert!(!rung());
    assert!(ends[0].disconnect(ends[1].id()) && rung());
    close_all(ends);
}

/// Threads that wait, and a disconnection by another one: it ends the wait long before patience does.
#[test]
fn device_a_disconnection_wakes_who_waits() {
    let Some(device) = device() else { return };
    let config = FabricConfig {
        fabric: FabricKind::Verbs.into(),
        device: Some(device.clone()),
        ..FabricConfig::default()
    };
    let own = Endpoint::open(&config).unwrap();
    // Nobody makes progress for this one.
    let mut silent = ends(1).unwrap();
    let id = own.connect(&silent[0].address().to_bytes()).unwrap();
    let ni = own.interface();
    let eq = ni.eq_alloc(64).unwrap();
    let region = Region::new(64).unwrap();
    let md = ni
        .md_bind(spec(MdMemory::whole(&region), Some(eq)), Unlink::Retain)
        .unwrap();
    let there = to(id, LOUD, 0);
    ni.put_region(md, (0, 64), AckRequest::Ack, there, 0)
        .unwrap();
    std::thread::scope(|s| {
        let waiter = s.spawn(|| {
            loop {
                let polled = ni.eq_poll(&[eq], PATIENCE).unwrap();
                let event = polled.expect("an end").event;
                if event.kind == EventKind::Ack {
                    break event.ni_fail;
                }
            }
        });
        // It sleeps when it has polled for a while; whether it does so yet makes no difference to what is to come.
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(50) {
            std::thread::yield_now();
        }
        assert!(own.disconnect(id) && !own.disconnect(id));
        assert_eq!(waiter.join().unwrap(), NiFail::FAIL);
        let taken = start.elapsed();
        assert!(taken < Duration::from_secs(5), "{taken:?}");
    });
    own.interface().close().unwrap();
    silent[0].step();
    close_all(silent);
}

/// Memory is taken back while a peer that makes no progress is told of it: a disconnection ends that wait too.
#[test]
fn device_a_disconnection_ends_the_wait_for_a_silent_peer() {
    let Some(mut ends) = ends(2) else { return };
    let memory = Region::new(64).unwrap();
    let md = ends[0].attach(60, Some(&memory), None);
    ends[0].connect(&ends[1]);
    all_works(&mut ends, 0, 1);
    let (book, silent) = (ends[0].library.nal.book().clone(), ends[1].id());
    let start = Instant::now();
    let (unlinked, took) = std::thread::scope(|s| {
        s.spawn(|| {
            while start.elapsed() < Duration::from_millis(100) {
                std::thread::yield_now();
            }
            assert!(book.remove(silent));
        });
        let unlinked = ends[0].library.execute(Call::MdUnlink(md));
        (unlinked, start.elapsed())
    });
    println!("taken back after {took:?}");
    unlinked.expect("it is not in use");
    assert!(took < Duration::from_secs(4), "{took:?}");
    close_all(ends);
}

#[test]
fn device_endpoints_of_other_channels_are_refused_in_words() {
    let Some(device) = device() else { return };
    for channel in [Channel::Ud, Channel::Auto] {
        let config = FabricConfig {
            fabric: FabricKind::Verbs.into(),
            device: Some(device.clone()),
            channel,
            ..FabricConfig::default()
        };
        let why = Endpoint::open(&config).unwrap_err().to_string();
        assert!(
            why.contains(channel.name()) && why.contains("for jobs"),
            "{why}"
        );
    }
}

/// The wishes are heard, but for the process id; as many peers as the documentation says.
#[test]
fn device_an_endpoint_has_what_it_wishes_for() {
    let Some(device) = device() else { return };
    let settings = Settings::from_env().unwrap();
    let wishes = Wishes {
        jid: Some(9),
        interface: 2,
        pid: 500,
        ..Wishes::default()
    };
    let (config, nal) = endpoint::open(Some(&device), settings, &wishes, PEERS).unwrap();
    assert_eq!((config.jid, config.interface), (9, 2));
    assert_eq!(nal.book().own().id(), config.id);
    assert_eq!(nal.verbs.conn.plan.peers, PEERS);
}
