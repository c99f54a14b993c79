//! What strangers and liars at an endpoint's socket can do.

use super::socket::{Heard, Place, hear, say};
use super::wire::{Knock, Said};
use super::{Endpoint, VISITORS};
use fabric_api::address::Address;
use fabric_api::config::FabricKind;
use fabric_api::identity::{Wishes, endpoint_config};
use fabric_api::nal::Nal;
use host::secret::Secret;
use portals_core::{Ni, NiConfig, ProcessId};
use rustix::event::EventfdFlags;
use std::os::fd::OwnedFd;

/// An endpoint that is driven by hand.
fn endpoint() -> (Ni, Endpoint) {
    let nal = Endpoint::new(&Wishes::default()).unwrap();
    (Ni::new(nal.config), nal)
}

fn stranger(config: NiConfig) -> Address {
    let place = Place::new(1).unwrap();
    Address::new(FabricKind::Shm, config.id, &place.to_bytes()).unwrap()
}

/// The same place as that of the endpoint, so that its address could be one of this machine.
fn neighbour(of: &Endpoint, id: ProcessId) -> Address {
    Address::new(FabricKind::Shm, id, of.book.own().contact()).unwrap()
}

fn files(count: usize) -> Vec<OwnedFd> {
    let file = |_| rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    (0..count).map(file).collect()
}

/// What the endpoint answers; `None` if it closes the socket.
fn answer(ni: &mut Ni, endpoint: &mut Endpoint, socket: &OwnedFd) -> Option<Said> {
    let mut bytes = [0; 600];
    loop {
        endpoint.attend(ni);
        match hear(socket, &mut bytes) {
            Heard::Nothing => {}
            Heard::Message(len, _) => return Said::decode(&bytes[..len]),
            Heard::Closed => return None,
        }
    }
}

#[test]
fn nobody_comes_in_without_the_secret() {
    let (mut ni, mut own) = endpoint();
    let from = neighbour(&own, ProcessId::new(5, 5));
    let right = own.place.secret;
    let mut wrong = *right.bytes();
    wrong[3] ^= 1;
    let knock = |secret: [u8; Secret::LEN]| Knock { from, secret }.encode();
    for said in [&knock(wrong)[..], b"hello", &knock(*right.bytes())[..9]] {
        let socket = own.place.reach().unwrap();
        say(&socket, said, &files(4)).unwrap();
        assert_eq!(answer(&mut ni, &mut own, &socket), None);
    }
    assert!(own.peers.is_empty() && own.meetings.is_empty() && own.book.is_empty());
}

#[test]
fn who_has_the_secret_and_lies_is_told_why_not() {
    let (mut ni, mut own) = endpoint();
    let secret = *own.place.secret.bytes();
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
        let socket = own.place.reach().unwrap();
        say(&socket, &Knock { from, secret }.encode(), &files(count)).unwrap();
        let Some(Said::Refused(said)) = answer(&mut ni, &mut own, &socket) else {
            panic!("{why}: not refused");
        };
        assert!(said.contains(why), "{said:?} for {why:?}");
    }
    let mut version = Knock { from: good, secret }.encode();
    version[8] ^= 0x40;
    let socket = own.place.reach().unwrap();
    say(&socket, &version, &files(4)).unwrap();
    let said = answer(&mut ni, &mut own, &socket);
    assert!(matches!(said, Some(Said::Refused(why)) if why.contains("speaks version")));
    assert!(own.peers.is_empty() && own.meetings.is_empty());
}

/// Those who say nothing take the places of each other, and not of those who speak.
#[test]
fn silent_visitors_keep_nobody_out() {
    let (mut ni, mut own) = endpoint();
    let silent: Vec<OwnedFd> = (0..4 * VISITORS)
        .map(|_| {
            let socket = own.place.reach().unwrap();
            own.attend(&mut ni);
            socket
        })
        .collect();
    assert!(own.visitors.len() <= VISITORS);
    let (mut their_ni, mut theirs) = endpoint();
    theirs.book.insert(own.book.own()).unwrap();
    let address = *own.book.own();
    let step = theirs.knock(&address).unwrap();
    let meeting = super::Meeting {
        id: address.id(),
        token: 99,
        step,
        waiting: Vec::new(),
    };
    theirs.begin(&mut their_ni, meeting);
    while own.peers.is_empty() || theirs.peers.is_empty() {
        own.attend(&mut ni);
        theirs.attend(&mut their_ni);
    }
    drop(silent);
    own.attend(&mut ni);
    assert!(own.visitors.is_empty() && own.peers.len() == 1);
}

/// A peer that writes nonsense is given up, and others are not.
#[test]
fn who_writes_nonsense_is_left() {
    let (mut ni, mut own) = endpoint();
    let mut others: Vec<_> = (0..2).map(|_| endpoint()).collect();
    for (their_ni, theirs) in &mut others {
        let address = *own.book.own();
        theirs.book.insert(&address).unwrap();
        let step = theirs.knock(&address).unwrap();
        let meeting = super::Meeting {
            id: address.id(),
            token: 99,
            step,
            waiting: Vec::new(),
        };
        theirs.begin(their_ni, meeting);
        let id = theirs.config.id;
        while !own.index.contains_key(&id) || theirs.peers.is_empty() {
            own.attend(&mut ni);
            theirs.attend(their_ni);
        }
    }
    let bad = others[0].1.config.id;
    let at = own.index[&bad];
    own.peers[at].shm.spoil_for_test();
    own.progress(&mut ni);
    assert_eq!(own.peers.len(), 1);
    assert!(!own.index.contains_key(&bad));
    // The one that was left hears of it.
    while !others[0].1.peers.is_empty() {
        let (their_ni, theirs) = &mut others[0];
        theirs.attend(their_ni);
    }
}
