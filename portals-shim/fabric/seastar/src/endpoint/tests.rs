use super::*;
use crate::server::{ServeError, serve_places};
use crate::sim::{Setting, SimError};
use crate::{setting, start};
use fabric_api::address::AddressError;
use fabric_api::call::Wait;
use fabric_api::mode::Mode;
use fabric_api::place::Placement;
use fabric_testing::{EndOnPanic, entry, spec, to};
use portals_core::{
    AckRequest, EqHandle, Error, Event, EventKind, InsertPosition, MdHandle, NiFail, ProcessId,
    Unlink,
};
use portals_shim::fabric::Opened;
use portals_shim::{Interface, MdMemory, MdOptions, MdSpec};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

mod strangers;
mod threads;
mod together;

/// Longer than any of this takes on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A simulation in a thread.
struct Served {
    place: Place,
    founder: Option<OwnedFd>,
    ended: Receiver<Result<(), ServeError>>,
}

impl Served {
    fn new(places: u32) -> Self {
        Self::with(places, Placement::ONE, None)
    }

    fn with(places: u32, on: Placement, patience: Option<Duration>) -> Self {
        let setting = Setting {
            patience,
            ..setting(&FabricConfig::default()).unwrap()
        };
        Self::of(places, on, Ok(setting))
    }

    fn of(places: u32, on: Placement, setting: Result<Setting, SimError>) -> Self {
        let place = Place::new(&Job::singleton()).unwrap();
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        bind(&listener, &place.socket_address().unwrap()).unwrap();
        listen(&listener, 4096).unwrap();
        let (founder, theirs) = start::pair().unwrap();
        sockopt::set_socket_timeout(&founder, sockopt::Timeout::Recv, Some(PATIENCE)).unwrap();
        let secret = place.secret;
        let (tell, ended) = channel();
        std::thread::spawn(move || {
            let places = (places, on);
            let _ = tell.send(serve_places(listener, theirs, secret, setting, places));
        });
        Self {
            place,
            founder: Some(founder),
            ended,
        }
    }

    /// Joins as an endpoint of a process that was started alone.
    fn join(&self, process: u64) -> Endpoint {
        self.join_as(Owner::alone(process))
    }

    fn join_as(&self, owner: Owner) -> Endpoint {
        Endpoint::new(join(&self.place, &Wishes::default(), owner).unwrap())
    }

    /// Why nobody is taken.
    fn refusal(&self) -> String {
        match join(&self.place, &Wishes::default(), Owner::alone(1)) {
            Err(error) => error.to_string(),
            Ok(joined) => panic!("{joined:?}"),
        }
    }

    /// What the simulation came to, which ends when its founder is gone.
    fn end(self) -> Result<(), ServeError> {
        drop(self.founder);
        self.ended
            .recv_timeout(PATIENCE)
            .expect("the simulation goes on")
    }
}

/// Takes puts and gets of 64 bytes on portal 4, bits 7.
struct Endpoint {
    ni: Interface,
    book: AddressBook,
    eq: EqHandle,
    /// What is taken, and what is put.
    memory: fabric_api::region::Region,
    from: MdHandle,
}

impl Endpoint {
    fn new(opened: OpenEndpoint) -> Self {
        let OpenEndpoint { attached, book } = opened;
        let ni = Opened::from(attached).interface;
        let eq = ni.eq_alloc(64).unwrap();
        let memory = fabric_api::region::Region::new(128).unwrap();
        let me = ni.me_attach(4, entry(7), InsertPosition::After).unwrap();
        let takes = MdMemory::Region {
            region: memory.clone(),
            offset: 0,
            len: 64,
        };
        ni.md_attach(me, spec(takes, Some(eq)), Unlink::Retain)
            .unwrap();
        let gives = MdMemory::Region {
            region: memory.clone(),
            offset: 64,
            len: 64,
        };
        let from = ni.md_bind(spec(gives, Some(eq)), Unlink::Retain).unwrap();
        Self {
            ni,
            book,
            eq,
            memory,
            from,
        }
    }

    fn id(&self) -> ProcessId {
        self.book.own().id()
    }

    fn meets(&self, other: &Self) -> ProcessId {
        let bytes = other.book.own().to_bytes();
        self.book
            .insert(&Address::from_bytes(&bytes).unwrap())
            .unwrap()
    }

    /// Puts `text` to a process, with an ack.
    fn put(&self, process: ProcessId, text: &[u8]) {
        self.memory.write(64, text).unwrap();
        let region = (0, text.len() as u64);
        self.ni
            .put_region(self.from, region, AckRequest::Ack, to(process, 7, 0), 5)
            .unwrap();
    }

    /// The next event of this kind; others than starts are none before it.
    fn next(&self, kind: EventKind) -> NiFail {
        loop {
            let event = self.soon();
            if event.kind == kind {
                return event.ni_fail;
            }
            let starts = [
                EventKind::SendStart,
                EventKind::PutStart,
                EventKind::ReplyStart,
            ];
            assert!(starts.contains(&event.kind), "{event:?} and not {kind:?}");
        }
    }

    /// The next event, which comes within a second of virtual time.
    fn soon(&self) -> Event {
        let second = Wait::Nanos(1_000_000_000);
        let polled = self.ni.eq_poll(&[self.eq], second).unwrap();
        polled.expect("an event that is due").event
    }

    /// No event comes within a millisecond of virtual time.
    fn hears_nothing(&self) {
        let polled = self.ni.eq_poll(&[self.eq], Wait::Nanos(1_000_000)).unwrap();
        assert!(polled.is_none(), "{polled:?}");
    }

    fn has(&self, text: &[u8]) {
        let mut there = vec![0; text.len()];
        self.memory.read(0, &mut there).unwrap();
        assert_eq!(there, text);
    }

    /// Sends `text` to another endpoint of this thread and sees that it arrives.
    fn reaches(&self, other: &Self, text: &[u8]) {
        self.put(other.id(), text);
        assert_eq!(other.next(EventKind::PutEnd), NiFail::OK);
        other.has(text);
        assert_eq!(self.next(EventKind::SendEnd), NiFail::OK);
        assert_eq!(self.next(EventKind::Ack), NiFail::OK);
    }
}

#[test]
fn endpoints_meet_by_their_addresses_and_exchange() {
    let served = Served::new(4);
    let (one, other) = (served.join(1), served.join(1));
    assert_eq!(
        (one.id(), other.id()),
        (Placement::ONE.of(0), Placement::ONE.of(1))
    );
    assert_eq!(one.ni.id(), one.id());
    assert_eq!(one.ni.jid(), other.ni.jid());
    one.meets(&other);
    other.meets(&one);
    one.reaches(&other, b"there");
    other.reaches(&one, b"and back, more than a header packet has room for");
    for end in [one, other] {
        end.ni.close().unwrap();
    }
    served.end().unwrap();
}

#[test]
fn several_endpoints_share_a_node() {
    let served = Served::with(3, Placement::new(2).unwrap(), None);
    let all = [served.join(1), served.join(1), served.join(1)];
    let ids = [(1, 128), (1, 129), (2, 128)].map(|(nid, pid)| ProcessId::new(nid, pid));
    assert_eq!(all.each_ref().map(Endpoint::id), ids);
    for one in &all {
        for other in &all {
            one.meets(other);
        }
    }
    all[0].reaches(&all[1], b"on the node");
    all[1].reaches(&all[2], b"to the next");
    served.end().unwrap();
}

/// What is sent to a process that the book does not have fails, and the simulation goes on.
#[test]
fn who_is_not_in_the_book_is_not_reached() {
    let served = Served::new(2);
    let (one, other) = (served.join(1), served.join(1));
    let fails = || {
        one.put(other.id(), b"lost");
        assert_eq!(one.next(EventKind::SendEnd), NiFail::FAIL);
        assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    };
    fails();
    let id = one.meets(&other);
    one.reaches(&other, b"taken");
    assert!(one.book.remove(id));
    fails();
    one.ni.get_region(one.from, (0, 8), to(id, 7, 0)).unwrap();
    assert_eq!(one.next(EventKind::ReplyEnd), NiFail::FAIL);
    other.hears_nothing();
    other.has(b"taken");
    one.meets(&other);
    one.reaches(&other, b"again");
    served.end().unwrap();
}

/// As over connections: who has the address of an endpoint may talk to it, and is answered.
#[test]
fn who_has_sent_something_is_answered_without_its_address() {
    let served = Served::new(3);
    let (one, other, third) = (served.join(1), served.join(1), served.join(1));
    one.meets(&other);
    third.meets(&one);
    let fails = |to: &Endpoint| {
        other.put(to.id(), b"lost");
        assert_eq!(other.next(EventKind::SendEnd), NiFail::FAIL);
        assert_eq!(other.next(EventKind::Ack), NiFail::FAIL);
    };
    fails(&one);
    one.reaches(&other, b"asks");
    other.reaches(&one, b"answers");
    // Of one that talked to somebody else it knows nothing.
    third.reaches(&one, b"asks");
    fails(&third);
    // Inserted and removed, it has to talk again.
    let id = other.meets(&one);
    other.reaches(&one, b"known");
    assert!(other.book.remove(id));
    fails(&one);
    one.reaches(&other, b"asks again");
    other.reaches(&one, b"answers again");
    served.end().unwrap();
}

/// An id that nobody has is like one on any network: the message leaves, and nobody answers. One of no node fails.
#[test]
fn operations_to_ids_that_nobody_has_end_as_in_a_job() {
    let served = Served::new(2);
    let one = served.join(1);
    let contact = *one.book.own().contact();
    let meet = |nid, pid| {
        let id = ProcessId::new(nid, pid);
        let address = Address::new(FabricKind::Seastar, id, &contact).unwrap();
        one.book.insert(&address).unwrap()
    };
    for id in [meet(1, 300), meet(2, 128)] {
        one.put(id, b"nobody");
        assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
        one.hears_nothing();
    }
    one.put(meet(7, 128), b"nowhere");
    assert_eq!(one.next(EventKind::SendEnd), NiFail::FAIL);
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    served.end().unwrap();
}

#[test]
fn a_full_simulation_says_so_and_a_place_has_another_process_id_each_time() {
    let served = Served::new(2);
    let (one, first) = (served.join(1), served.join(1));
    let told = served.refusal();
    let why = "the simulation did not take this endpoint: each of its 2 places is taken (portolan simulate --places)";
    assert!(told.ends_with(why), "{told}");
    one.meets(&first);
    one.reaches(&first, b"first");
    first.ni.close().unwrap();
    let second = served.join(1);
    assert_eq!(
        (second.id().nid, second.id().pid),
        (first.id().nid, first.id().pid + 1)
    );
    // What is for the first fails, as all have heard that it has left: nobody held time when it did.
    one.put(first.id(), b"late");
    assert_eq!(one.next(EventKind::SendEnd), NiFail::FAIL);
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    second.hears_nothing();
    one.meets(&second);
    one.reaches(&second, b"second");
    served.end().unwrap();
}

/// A request that waits for a peer that is gone ends when the peer is disconnected.
#[test]
fn a_disconnected_peer_owes_nothing() {
    let served = Served::new(2);
    let (one, other) = (served.join(1), served.join(1));
    let id = one.meets(&other);
    one.reaches(&other, b"here");
    drop(other);
    one.put(id, b"gone");
    assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
    one.hears_nothing();
    assert!(one.book.remove(id));
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    one.hears_nothing();
    // Also if it is connected again before the next call.
    let other = served.join(1);
    let id = one.meets(&other);
    let address = one.book.entry(id).unwrap().address;
    one.reaches(&other, b"here");
    drop(other);
    one.put(id, b"gone");
    assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
    assert!(one.book.remove(id));
    one.book.insert(&address).unwrap();
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    // One that has just been sent.
    let other = served.join(1);
    let id = one.meets(&other);
    one.reaches(&other, b"here");
    one.put(id, &[1; 64]);
    assert!(one.book.remove(id));
    assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
    let last = one.next(EventKind::Ack);
    assert!([NiFail::OK, NiFail::FAIL].contains(&last));
    one.hears_nothing();
    served.end().unwrap();
}

#[test]
fn an_endpoint_that_dies_is_nobody_and_the_others_go_on() {
    let served = Served::with(3, Placement::ONE, None);
    let (one, other, dies) = (served.join(1), served.join(1), served.join(2));
    for peer in [&other, &dies] {
        one.meets(peer);
    }
    other.meets(&one);
    one.reaches(&other, b"before");
    // In the middle: it has met somebody, runs, and so holds time.
    let gone = dies.meets(&one);
    assert_eq!(gone, one.id());
    one.ni.outside(|| dies.ni.status().unwrap()).unwrap();
    let gone = dies.id();
    drop(dies);
    one.reaches(&other, b"after");
    // Neither data nor an ack, also of nothing, until the kernel has heard of it; and then at once.
    for text in [&b"data"[..], b""] {
        one.put(gone, text);
        assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
        one.hears_nothing();
    }
    one.ni.get_region(one.from, (0, 8), to(gone, 7, 0)).unwrap();
    let before = one.ni.now();
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    assert_eq!(one.next(EventKind::ReplyEnd), NiFail::FAIL);
    let waited = one.ni.now() - before;
    assert!((1_000_000..10_100_000).contains(&waited), "{waited} ns");
    one.put(gone, b"later");
    assert_eq!(one.next(EventKind::SendEnd), NiFail::FAIL);
    assert_eq!(one.next(EventKind::Ack), NiFail::FAIL);
    one.reaches(&other, b"and on");
    served.end().unwrap();
}

/// Who had sent something to an endpoint that has left is told by descriptors that want failures; others hear nothing.
#[test]
fn who_knew_an_endpoint_that_leaves_is_told() {
    for per_node in [1, 3] {
        let served = Served::with(3, Placement::new(per_node).unwrap(), None);
        let (one, other, leaves) = (served.join(1), served.join(1), served.join(2));
        let wants = |end: &Endpoint| {
            let spec = MdSpec {
                memory: MdMemory::Empty,
                threshold: -1,
                max_size: 0,
                options: MdOptions::EVENT_FAILURE_ENABLE,
                user_ptr: 99,
                eq: Some(end.eq),
            };
            end.ni.md_bind(spec, Unlink::Retain).unwrap();
        };
        [&one, &other].into_iter().for_each(wants);
        for peer in [&other, &leaves] {
            one.meets(peer);
        }
        other.meets(&one);
        one.reaches(&other, b"before");
        let id = leaves.id();
        one.ni.outside(|| leaves.ni.status().unwrap()).unwrap();
        drop(leaves);
        let before = one.ni.now();
        one.put(id, b"late");
        assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
        let told = [(); 2].map(|()| (one.soon(), one.ni.now()));
        assert!(told.iter().all(|(e, _)| e.ni_fail == NiFail::FAIL));
        let of = |user_ptr: u64| told.iter().find(|(e, _)| e.md.user_ptr == user_ptr);
        assert_eq!(of(99).unwrap().0.initiator, id);
        let (ack, at) = of(0).unwrap();
        assert_eq!(ack.kind, EventKind::Ack);
        // The kernel of the same node knows it, and says it at once.
        assert_eq!(at - before < 1_000_000, per_node > 1, "{} ns", at - before);
        other.hears_nothing();
        served.end().unwrap();
    }
}

/// Whether the one that leaves was sent something, or has only sent itself.
#[test]
fn a_wait_for_ever_ends_when_a_peer_leaves() {
    let served = Served::with(3, Placement::ONE, None);
    let (one, other, leaves) = (served.join(1), served.join(1), served.join(1));
    one.meets(&leaves);
    leaves.meets(&other);
    one.reaches(&leaves, b"to it");
    leaves.reaches(&other, b"from it");
    drop(leaves);
    let before = one.ni.now();
    for end in [&one, &other] {
        assert_eq!(end.ni.eq_wait(end.eq), Err(Error::Fail));
        // Once; who waits for some time hears nothing of it.
        end.hears_nothing();
    }
    let waited = one.ni.now() - before;
    assert!((9_000_000..12_000_000).contains(&waited), "{waited} ns");
    served.end().unwrap();
}

#[test]
fn a_clock_begins_at_the_present() {
    let served = Served::new(2);
    let one = served.join(1);
    one.ni.compute(3_000_000).unwrap();
    let before = one.ni.now();
    let late = join(&served.place, &Wishes::default(), Owner::alone(1)).unwrap();
    // Before it has made a call.
    let other = Opened::from(late.attached).interface;
    assert!(before >= 3_000_000 && other.now() >= before);
    served.end().unwrap();
}

/// The same endpoints in the same order of joins and calls see the same times.
#[test]
fn the_same_order_takes_the_same_time_twice() {
    let run = || {
        let served = Served::with(3, Placement::ONE, None);
        let (one, other) = (served.join(1), served.join(1));
        one.meets(&other);
        other.meets(&one);
        let mut times = Vec::new();
        for round in 0..5 {
            one.reaches(&other, &[round; 64]);
            times.extend([one.ni.now(), other.ni.now()]);
        }
        let late = served.join(1);
        late.meets(&one);
        late.reaches(&one, b"late");
        times.extend([one.ni.now(), late.ni.now()]);
        served.end().unwrap();
        times
    };
    let first = run();
    assert_eq!(run(), first);
    assert!(first.iter().all(|t| *t > 10_000), "{first:?}");
}

/// Endpoints that have met nobody may do what they like outside: time passes for the others.
#[test]
fn who_has_met_nobody_holds_no_time() {
    let served = Served::with(3, Placement::ONE, None);
    let (one, other) = (served.join(1), served.join(2));
    let _idle = served.join(3);
    one.meets(&other);
    std::thread::scope(|s| {
        s.spawn(|| {
            let _end = EndOnPanic::guard();
            assert_eq!(other.next(EventKind::PutEnd), NiFail::OK);
            other.ni.close().unwrap();
        });
        one.put(other.id(), b"past it");
        assert_eq!(one.next(EventKind::SendEnd), NiFail::OK);
        assert_eq!(one.next(EventKind::Ack), NiFail::OK);
        one.ni.close().unwrap();
    });
    served.end().unwrap();
}

/// One that has met somebody holds time like a rank of a job, for as long as the setting says.
#[test]
fn who_has_met_somebody_holds_time_for_so_long() {
    let served = Served::with(2, Placement::ONE, Some(Duration::from_millis(200)));
    let (one, other) = (served.join(1), served.join(2));
    one.meets(&other);
    one.ni.status().unwrap();
    let began = std::time::Instant::now();
    let before = one.ni.now();
    other.ni.compute(1_000_000).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    // Its next call is made at the present.
    one.ni.status().unwrap();
    assert!(one.ni.now() >= before + 1_000_000);
    served.end().unwrap();
}

/// Whoever an event has come for has met somebody.
#[test]
fn who_has_taken_an_event_holds_time() {
    let served = Served::with(2, Placement::ONE, Some(Duration::from_millis(200)));
    let (one, other) = (served.join(1), served.join(2));
    one.meets(&other);
    one.put(other.id(), b"hear");
    std::thread::scope(|s| {
        let taken = s.spawn(|| other.ni.eq_wait(other.eq).unwrap());
        one.ni.outside(|| taken.join().unwrap()).unwrap();
    });
    let began = std::time::Instant::now();
    one.ni.compute(1_000_000).unwrap();
    assert!(began.elapsed() >= Duration::from_millis(200));
    served.end().unwrap();
}

/// Who is back from outside waits for nobody: endpoints know of no fence.
#[test]
fn who_is_back_from_outside_goes_on() {
    let served = Served::with(3, Placement::ONE, None);
    let (one, other, waits) = (served.join(1), served.join(2), served.join(3));
    for end in [&one, &other, &waits] {
        end.meets(match std::ptr::eq(end, &raw const one) {
            true => &other,
            false => &one,
        });
    }
    waits
        .ni
        .outside(|| {
            // Held by nobody, though one runs only while this thread does not ask for the other.
            one.ni.outside(|| other.ni.compute(1000).unwrap()).unwrap();
            other.ni.outside(|| one.ni.compute(1000).unwrap()).unwrap();
        })
        .unwrap();
    served.end().unwrap();
}

/// In a job this would be a deadlock; here somebody may come.
#[test]
fn a_wait_ends_when_somebody_comes_and_sends() {
    let served = Served::new(2);
    let one = served.join(1);
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            let _end = EndOnPanic::guard();
            assert_eq!(one.next(EventKind::PutEnd), NiFail::OK);
            one.ni.close().unwrap();
        });
        let other = served.join(2);
        other.meets(&one);
        other.put(one.id(), b"late");
        assert_eq!(other.next(EventKind::SendEnd), NiFail::OK);
        assert_eq!(other.next(EventKind::Ack), NiFail::OK);
        other.ni.outside(|| waits.join().unwrap()).unwrap();
    });
    one.has(b"late");
    served.end().unwrap();
}

#[test]
fn the_simulation_ends_with_its_founder() {
    let served = Served::new(2);
    let one = served.join(1);
    one.ni.status().unwrap();
    served.end().unwrap();
    assert_eq!(one.ni.status(), Err(Error::Fail));
    assert_eq!(one.ni.close(), Err(Error::Fail));
}

#[test]
fn an_endpoint_of_another_simulation_is_refused() {
    let [one, other] = [Served::new(1), Served::new(2)];
    // The first of each would have the same process id.
    let (a, _first, b) = (one.join(1), other.join(1), other.join(1));
    let reason =
        "it is in another simulation; both must join the one that PORTOLAN_SIMULATION names";
    let refused = a.book.insert(b.book.own());
    assert_eq!(
        refused,
        Err(AddressError::Elsewhere {
            reason: reason.to_owned()
        })
    );
    one.end().unwrap();
    other.end().unwrap();
}

#[test]
fn a_founder_is_told_why_there_is_no_simulation() {
    let told = |setting| {
        let served = Served::of(1, Placement::ONE, setting);
        let mut buffer = vec![0; crate::proto::MAX_DATAGRAM];
        let founder = served.founder.as_ref().unwrap();
        let (n, _) =
            rustix::net::recv(founder, &mut buffer[..], rustix::net::RecvFlags::empty()).unwrap();
        let reply: crate::proto::Reply = postcard::from_bytes(&buffer[..n]).unwrap();
        assert!(reply.result.is_err());
        let served = served.ended.recv_timeout(PATIENCE).unwrap();
        assert_eq!(served.unwrap_err().to_string(), reply.note);
        reply.note
    };
    let why = told(Err(SimError::Setting("no such machine".to_owned())));
    assert_eq!(why, "no such machine");
    let accelerated = FabricConfig {
        mode: Mode::Accelerated,
        ..FabricConfig::default()
    };
    let why = told(Ok(setting(&accelerated).unwrap()));
    assert!(
        why.starts_with("endpoints join in generic mode only: "),
        "{why}"
    );
}

#[test]
fn a_word_leads_to_its_simulation_and_others_are_refused() {
    let place = Place::new(&Job::singleton()).unwrap();
    let word = place.to_word();
    assert!(
        word.chars()
            .all(|c| c.is_ascii_graphic() && !"[]*?$&|;<>()'\"`\\".contains(c)),
        "{word}"
    );
    let back = Place::from_word(&word).unwrap();
    assert_eq!(
        (back.to_text(), back.name()),
        (place.to_text(), place.name())
    );
    for bad in ["", "x", "x:y:z", &word[1..], &word.replace(':', " ")] {
        assert!(Place::from_word(bad).is_none(), "{bad:?}");
    }
    let nobody = join(&place, &Wishes::default(), Owner::alone(1))
        .unwrap_err()
        .to_string();
    assert!(nobody.contains("cannot reach the simulation"), "{nobody}");
}
