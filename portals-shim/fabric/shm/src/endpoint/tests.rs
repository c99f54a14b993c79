//! Requests that an endpoint must refuse, and peers that it must leave.

use super::socket::{Contact, Received, try_receive, try_send};
use super::wire::{Answer, Request};
use super::{Endpoint, MOST_ACCEPTED};
use crate::Lane;
use fabric_api::address::Address;
use fabric_api::config::FabricKind;
use fabric_api::identity::{Wishes, endpoint_config};
use fabric_api::nal::{Look, Nal, Waiter};

use fabric_testing::message;
use host::awake::{Awake, STEP};
use host::secret::Secret;
use portals_core::{Body, Header, MdHandle, Ni, NiConfig, ProcessId, Segments, Transmit};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// An endpoint that is driven by hand.
fn endpoint() -> (Ni, Endpoint) {
    let nal = Endpoint::new(&Wishes::default()).unwrap();
    (Ni::new(nal.config), nal)
}

fn stranger(config: NiConfig) -> Address {
    let contact = Contact::new(config.id, 1).unwrap();
    Address::new(FabricKind::Shm, config.id, &contact.to_bytes()).unwrap()
}

/// With the contact of the endpoint, so that its address could be one of this machine.
fn neighbour(of: &Endpoint, id: ProcessId) -> Address {
    Address::new(FabricKind::Shm, id, of.book.own().contact()).unwrap()
}

fn files(count: usize) -> Vec<OwnedFd> {
    let file = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    (0..count).map(file).collect()
}

/// What the endpoint answers; `None` if it closes the socket.
fn answer(ni: &mut Ni, endpoint: &mut Endpoint, socket: &OwnedFd) -> Option<Answer> {
    let mut bytes = [0; 600];
    loop {
        endpoint.attend(ni);
        match try_receive(socket, &mut bytes) {
            Received::Nothing => {}
            Received::Message(len, _) => return Answer::decode(&bytes[..len]),
            Received::Closed => return None,
        }
    }
}

/// Starts a connection of one endpoint to another, whose address it has.
fn request(ni: &mut Ni, from: &mut Endpoint, to: &Endpoint) {
    let address = to.book.own();
    from.book.insert(address).unwrap();
    let attempt = super::Attempt {
        id: address.id(),
        since: from.since(address.id()),
        token: from.token(),
        step: from.request(address).unwrap(),
        waiting: Vec::new(),
    };
    from.start(ni, attempt);
}

/// Another endpoint, which has requested a connection and has it.
fn connected(ni: &mut Ni, own: &mut Endpoint) -> (Ni, Endpoint) {
    let (mut their_ni, mut theirs) = endpoint();
    request(&mut their_ni, &mut theirs, own);
    while !own.index.contains_key(&theirs.config.id) || theirs.peers.is_empty() {
        own.attend(ni);
        theirs.attend(&mut their_ni);
    }
    (their_ni, theirs)
}

#[test]
fn each_connection_has_lanes_for_frames_once() {
    let (mut ni, mut own) = endpoint();
    let (mut their_ni, mut theirs) = connected(&mut ni, &mut own);
    let ids = [own.config.id, theirs.config.id];
    assert!(
        own.links.take(ids[0]).is_none(),
        "there is no way to itself"
    );
    let [to, from] = [own.links.take(ids[1]), theirs.links.take(ids[0])].map(Option::unwrap);
    assert!(own.links.take(ids[1]).is_none());
    assert!(to.try_send(Lane::Requests, 5, b"a frame", b""));
    let frame = from.take(Lane::Requests).unwrap();
    let mut bytes = [0; 7];
    assert!(from.read(&frame, 0, &mut bytes) && &bytes == b"a frame");
    own.part(&mut ni, 0, "it is a test");
    theirs.part(&mut their_ni, 0, "it is a test");
    let (_, others) = connected(&mut ni, &mut own);
    assert!(own.links.take(ids[1]).is_none(), "it is gone");
    assert!(own.links.take(others.config.id).is_some());
    own.part(&mut ni, 0, "it is a test");
    assert!(own.links.take(others.config.id).is_none());
}

#[test]
fn a_request_without_the_secret_is_ignored() {
    let (mut ni, mut own) = endpoint();
    let from = neighbour(&own, ProcessId::new(5, 5));
    let right = own.contact.secret;
    let mut wrong = *right.bytes();
    wrong[3] ^= 1;
    let request = |secret: [u8; Secret::LEN]| Request { from, secret }.encode();
    for bytes in [&request(wrong)[..], b"hello", &request(*right.bytes())[..9]] {
        let socket = own.contact.connect().unwrap();
        try_send(&socket, bytes, &files(4)).unwrap();
        assert_eq!(answer(&mut ni, &mut own, &socket), None);
    }
    assert!(own.peers.is_empty() && own.attempts.is_empty() && own.book.is_empty());
}

#[test]
fn a_request_that_cannot_be_met_is_rejected_with_the_reason() {
    let (mut ni, mut own) = endpoint();
    let secret = *own.contact.secret.bytes();
    let other = endpoint_config(&Wishes::default()).unwrap();
    let good = neighbour(&own, other.id);
    let own_id = neighbour(&own, own.config.id);
    for (from, count, why) in [
        (good, 0, "0 descriptors, not 4"),
        (good, 9, "9 descriptors, not 4"),
        (good, 4, "shared memory"),
        (stranger(other), 4, "another machine"),
        (own_id, 4, "the id of this endpoint"),
    ] {
        let socket = own.contact.connect().unwrap();
        try_send(&socket, &Request { from, secret }.encode(), &files(count)).unwrap();
        let Some(Answer::Rejected(text)) = answer(&mut ni, &mut own, &socket) else {
            panic!("{why}: not refused");
        };
        assert!(text.contains(why), "{text:?} for {why:?}");
    }
    let mut version = Request { from: good, secret }.encode();
    version[8] ^= 0x40;
    let socket = own.contact.connect().unwrap();
    try_send(&socket, &version, &files(4)).unwrap();
    let answer = answer(&mut ni, &mut own, &socket);
    assert!(matches!(answer, Some(Answer::Rejected(why)) if why.contains("speaks version")));
    assert!(own.peers.is_empty() && own.attempts.is_empty() && own.book.is_empty());
}

/// Silent sockets make room for each other; a request is answered.
#[test]
fn silent_sockets_keep_no_request_out() {
    let (mut ni, mut own) = endpoint();
    let silent: Vec<OwnedFd> = (0..4 * MOST_ACCEPTED)
        .map(|_| {
            let socket = own.contact.connect().unwrap();
            own.attend(&mut ni);
            socket
        })
        .collect();
    assert!(own.accepted.len() <= MOST_ACCEPTED);
    let _peer = connected(&mut ni, &mut own);
    drop(silent);
    own.attend(&mut ni);
    assert!(own.accepted.is_empty() && own.peers.len() == 1);
}

/// Time in which the process stood still is none in which a peer was silent.
#[test]
fn a_socket_is_silent_only_while_the_endpoint_runs() {
    let (mut ni, mut own) = endpoint();
    let _silent = own.contact.connect().unwrap();
    own.attend(&mut ni);
    own.accepted[0].left = Awake::since(3 * STEP, Instant::now() - 30 * STEP);
    own.attend(&mut ni);
    assert_eq!(own.accepted.len(), 1);
    let began = Instant::now();
    while !own.accepted.is_empty() {
        assert!(own.due().is_some_and(|due| due <= Instant::now() + STEP));
        own.attend(&mut ni);
        std::thread::yield_now();
    }
    assert!(began.elapsed() > STEP);
}

/// A peer that writes nonsense is left, and others are not.
#[test]
fn a_peer_that_writes_nonsense_is_left() {
    let (mut ni, mut own) = endpoint();
    let mut others = [(); 2].map(|()| connected(&mut ni, &mut own));
    let bad = others[0].1.config.id;
    let at = own.index[&bad];
    own.peers[at].shm.spoil_for_test();
    own.progress(&mut ni, Look::All);
    assert_eq!(own.peers.len(), 1);
    assert!(!own.index.contains_key(&bad));
    // The one that was left hears of it.
    while !others[0].1.peers.is_empty() {
        let (their_ni, theirs) = &mut others[0];
        theirs.attend(their_ni);
    }
}

/// Whether whoever sleeps on the endpoint's descriptors would be woken.
fn is_readable(endpoint: &Endpoint) -> bool {
    let Waiter::Descriptors(attendance) = endpoint.waiter() else {
        panic!("an endpoint sleeps on descriptors");
    };
    let fds = attendance.alarm.iter();
    let mut fds: Vec<_> = fds.map(|fd| PollFd::new(fd, PollFlags::IN)).collect();
    poll(&mut fds, Some(&Timespec::default())).unwrap() > 0
}

/// Only an armed endpoint is woken: a peer that may sleep is not called at every message.
#[test]
fn a_message_wakes_a_peer_that_has_armed() {
    let (mut ni, mut own) = endpoint();
    let (mut their_ni, mut theirs) = connected(&mut ni, &mut own);
    let mut message = Transmit {
        header: Header {
            source: theirs.config.id,
            target: own.config.id,
            ..message(Body::Put {
                ack_md: None,
                hdr_data: 0,
                length: 0,
                ac_index: 0,
                remote_offset: 0,
            })
        },
        md: MdHandle::from_raw(0),
        payload: Segments::new(),
        op: None,
        landing: Segments::new(),
    };
    theirs.send(&mut their_ni, &mut message, None);
    assert!(own.progress(&mut ni, Look::All) && !is_readable(&own));
    assert!(own.arm().rings && !is_readable(&own));
    theirs.send(&mut their_ni, &mut message, None);
    assert!(is_readable(&own));
}

/// What waits for a connection belongs to the peer that was known then, and not to one that is inserted again.
#[test]
fn a_peer_that_is_removed_and_inserted_again_is_connected_anew() {
    let (mut ni, mut own) = endpoint();
    let (_their_ni, theirs) = endpoint();
    request(&mut ni, &mut own, &theirs);
    let address = *theirs.book.own();
    own.book.remove(address.id());
    own.book.insert(&address).unwrap();
    own.progress(&mut ni, Look::All);
    assert!(own.attempts.is_empty());
    let (_, theirs) = connected(&mut ni, &mut own);
    let address = *theirs.book.own();
    own.book.remove(address.id());
    own.book.insert(&address).unwrap();
    own.progress(&mut ni, Look::All);
    assert!(own.peers.is_empty() && own.index.is_empty());
}

#[test]
fn who_connects_and_ends_leaves_nothing_in_the_book() {
    let (mut ni, mut own) = endpoint();
    for _ in 0..3 {
        let (_, theirs) = connected(&mut ni, &mut own);
        assert_eq!(own.book.len(), 1);
        drop(theirs);
        own.part(&mut ni, 0, "it is a test");
        assert!(own.book.is_empty());
    }
    let (_, theirs) = connected(&mut ni, &mut own);
    own.book.insert(theirs.book.own()).unwrap();
    own.part(&mut ni, 0, "it is a test");
    assert_eq!(own.book.len(), 1, "the program knows it");
    // One that ends before it is connected.
    let (mut their_ni, mut theirs) = endpoint();
    request(&mut their_ni, &mut theirs, &own);
    while own.attempts.is_empty() {
        own.attend(&mut ni);
    }
    assert_eq!(own.book.len(), 2);
    drop(theirs);
    while !own.attempts.is_empty() {
        own.attend(&mut ni);
    }
    assert_eq!(own.book.len(), 1);
}

/// The socket stays readable: whoever waits for it would spin. It is looked at again after a while.
#[test]
fn a_connection_that_the_system_refuses_is_left_alone_for_a_while() {
    let test = "endpoint::tests::a_connection_that_the_system_refuses_is_left_alone_for_a_while";
    let denied = fabric_testing::is_denied("EPERM", "accept4", test);
    let (mut ni, mut own) = endpoint();
    let socket = own.contact.connect().unwrap();
    if denied {
        assert_eq!(own.watch.readable(), [super::LISTENER]);
        own.attend(&mut ni);
        let until = own.pause.unwrap();
        assert!(own.watch.readable().is_empty());
        assert_eq!(own.schedule().due, Some(until));
        assert!(own.told, "and said once");
        return;
    }
    // As after a refusal whose time is over.
    own.watch.remove(&own.listener);
    (own.pause, own.told) = (Some(Instant::now()), true);
    try_send(&socket, b"nonsense", &[]).unwrap();
    assert!(answer(&mut ni, &mut own, &socket).is_none());
    assert_eq!((own.pause, own.told), (None, false));
}
