//! Which protocol an operation goes by, as far as that depends on what a peer has advertised and on what has gone there before;
//! and the table that users see. No device.

use super::*;
use crate::frame::{Kind as FrameKind, Prefix, RemoteMd, Writer};
use crate::memory::Transfer;
use crate::peer::Peer;
use crate::proto::connected::Connected;
use fabric_api::call::RemoteKey;
use portals_core::{Body, Header, ProcessId, Segment};
use zerocopy::FromBytes;

const OWN: ProcessId = ProcessId::new(1, 7);
const PORTAL: u32 = 4;
const BITS: u64 = 0x30;

fn header(body: Body) -> Header {
    Header {
        target: ProcessId::new(2, 7),
        source: OWN,
        uid: 0,
        jid: 0,
        pt_index: PORTAL,
        match_bits: BITS,
        body,
    }
}

fn put(remote_offset: u64, length: u64) -> Header {
    header(Body::Put {
        length,
        remote_offset,
        hdr_data: 0,
        ac_index: 1,
        ack_md: None,
    })
}

fn get(remote_offset: u64, length: u64) -> Header {
    header(Body::Get {
        length,
        remote_offset,
        ac_index: 1,
        reply_md: MdHandle::from_raw(0),
        reply_offset: 0,
    })
}

/// 100 bytes at 5000, for puts and gets of this process through entry 1 of the access control.
const OPEN: RemoteMd = RemoteMd {
    match_id: OWN,
    match_bits: BITS,
    ignore_bits: 0xf,
    start: Remote {
        address: 5000,
        rkey: 9,
    },
    length: 100,
    ac_mask: 0b10,
    put: true,
    get: true,
    ack: true,
    events: None,
};

fn peer(list: &[RemoteMd]) -> Peer {
    let mut peer = Peer::new(ProcessId::new(2, 7), 16, 16);
    peer.adverts.set(PORTAL, list.to_vec());
    peer
}

const THRESHOLDS: Thresholds = Thresholds::new(NOTIFY_FROM, ShortGets::Measured, false);

fn chosen(peer: &Peer, header: &Header) -> Protocol {
    chosen_by_key(peer, header, None)
}

fn chosen_by_key(peer: &Peer, header: &Header, key: Option<&RemoteKey>) -> Protocol {
    let state = Connected::by_key(peer, key);
    select_apart(&Op::of(header, true), &state, &THRESHOLDS)
}

/// Where the adapters alone move the data of an operation in the peer's memory, and by which key.
fn reached(peer: &Peer, header: &Header) -> Option<(u64, u32)> {
    match (header.body, chosen(peer, header)) {
        (Body::Put { .. }, Protocol::RmaWrite { remote, .. })
        | (Body::Get { .. }, Protocol::RmaRead(remote)) => Some((remote.address, remote.rkey)),
        (_, Protocol::Eager) => None,
        (_, other) => panic!("{other:?}"),
    }
}

fn place(peer: &Peer, header: &Header) -> Option<u64> {
    reached(peer, header).map(|(address, _)| address)
}

#[test]
fn an_operation_reaches_what_admits_it_and_holds_it_whole() {
    let all = peer(&[OPEN]);
    assert_eq!(place(&all, &put(0, 100)), Some(5000));
    assert_eq!(place(&all, &get(40, 60)), Some(5040));
    for (offset, length) in [(0, 101), (41, 60), (100, 1), (u64::MAX, 2), (0, 0), (7, 0)] {
        assert_eq!(place(&all, &put(offset, length)), None, "{offset} {length}");
        assert_eq!(place(&all, &get(offset, length)), None, "{offset} {length}");
    }
    let ignored = Header {
        match_bits: BITS | 5,
        ..put(0, 8)
    };
    assert_eq!(place(&all, &ignored), Some(5000));
    let others = [
        Header {
            match_bits: BITS ^ 0x10,
            ..put(0, 8)
        },
        Header {
            pt_index: PORTAL + 1,
            ..put(0, 8)
        },
        Header {
            source: ProcessId::new(1, 8),
            ..put(0, 8)
        },
    ];
    for other in others {
        assert_eq!(place(&all, &other), None, "{other:?}");
    }
    for ac_mask in [0, 0b101, 1 << 31] {
        assert_eq!(
            place(&peer(&[RemoteMd { ac_mask, ..OPEN }]), &put(0, 8)),
            None
        );
    }
}

#[test]
fn rights_and_acks_are_those_of_the_first_descriptor_that_fits() {
    let read_only = RemoteMd { put: false, ..OPEN };
    let start = Remote {
        address: 9000,
        rkey: 10,
    };
    let write_only = RemoteMd {
        start,
        get: false,
        ack: false,
        ..OPEN
    };
    let both = peer(&[read_only, write_only]);
    let Protocol::RmaWrite { remote, acks } = chosen(&both, &put(8, 8)) else {
        panic!("no write");
    };
    assert_eq!((remote.address, remote.rkey, acks), (9008, 10, false));
    assert_eq!(reached(&both, &get(8, 8)), Some((5008, 9)));
    assert_eq!(place(&peer(&[read_only]), &put(0, 8)), None);
    assert_eq!(place(&peer(&[write_only]), &get(0, 8)), None);
}

#[test]
fn a_descriptor_with_events_is_not_offloaded() {
    let events = Some(MdHandle::from_raw(7));
    let peer = peer(&[RemoteMd { events, ..OPEN }, OPEN]);
    for header in [put(0, 8), get(0, 8)] {
        assert_eq!(place(&peer, &header), None, "nor one behind it");
    }
}

/// What a frame of the peer says about requests that it has done.
fn says(peer: &mut Peer, requests_done: u32) {
    let mut bytes = [0; 64];
    Writer::new(&mut bytes, FrameKind::Message, false);
    let (mut prefix, _) = Prefix::read_from_prefix(&bytes).unwrap();
    prefix.requests_done = requests_done.into();
    peer.handle_prefix(&prefix, true);
}

/// An operation of the adapters has its effect at once, so it must not pass a request in a frame whose effect is still
/// to come.
#[test]
fn nothing_overtakes_a_request_that_is_not_done() {
    let mut peer = peer(&[OPEN]);
    let (put, get) = (put(0, 8), get(0, 8));
    let places = |peer: &Peer| (place(peer, &put), place(peer, &get));
    let both = (Some(5000), Some(5000));
    assert_eq!(places(&peer), both);
    peer.requests.count_sent(2);
    for done in [0, 1] {
        says(&mut peer, done);
        assert_eq!(places(&peer), (None, None), "{done} of 2 done");
        // What need not keep the order goes where it would go.
        let relaxed = Op::of(&put, true).relaxed();
        let chosen = select(&relaxed, &Connected::now(&peer), &THRESHOLDS);
        assert!(matches!(chosen, Protocol::RmaWrite { .. }), "{chosen:?}");
    }
    // More than was sent is not believed.
    says(&mut peer, 3);
    assert_eq!(places(&peer), (None, None));
    says(&mut peer, 2);
    assert_eq!(places(&peer), both);
    let elsewhere = Header {
        pt_index: PORTAL + 1,
        ..put
    };
    assert_eq!(place(&peer, &elsewhere), None);
    // What waits for room in the send queue, too.
    let transfer = Transfer {
        local: Segment { addr: 0, len: 8 },
        lkey: 0,
        remote: OPEN.start,
        read: false,
        again: false,
        announced: false,
    };
    peer.sq.transfer(transfer, 0);
    assert_eq!(places(&peer), (None, None));
}

/// A peer that has closed answers no more: what it has done it never meant to answer, the rest has no effect.
#[test]
fn a_peer_that_has_closed_owes_answers_to_what_it_has_not_done() {
    let waiting = |done: u32| {
        let mut peer = peer(&[OPEN]);
        peer.requests.count_sent(u32::MAX - 1);
        for _ in 0..4 {
            peer.requests.request_sent(&get(0, 8));
        }
        peer.requests.forget_done(done);
        peer.requests.awaited()
    };
    let last = u32::MAX;
    assert_eq!([last - 1, 0, 2].map(waiting), [4, 2, 0]);
    // More than was sent is not believed.
    assert_eq!(waiting(3), 4);
}

/// What is known of a peer, whatever makes it so.
#[derive(Clone, Copy, Debug)]
struct State {
    reach: Option<Reach>,
    settled: bool,
    may_notify: bool,
    sooner: bool,
}

const THERE: Remote = Remote {
    address: 5000,
    rkey: 9,
};

/// Of a peer that advertises memory without events, where nothing is under way.
const DIRECT: State = State {
    reach: Some(Reach {
        remote: THERE,
        acks: true,
        events: None,
    }),
    settled: true,
    may_notify: true,
    sooner: true,
};

const MD: MdHandle = MdHandle::from_raw(7);

/// The same memory, whose owner posts events.
const NOTIFIED: State = State {
    reach: Some(Reach {
        remote: THERE,
        acks: true,
        events: Some(MD),
    }),
    ..DIRECT
};

const MATCHED: State = State {
    reach: None,
    ..DIRECT
};

impl PeerState for State {
    fn may_reach(&self, _: u32) -> bool {
        self.reach.is_some()
    }

    fn reach(&self, _: &Op) -> Option<Reach> {
        self.reach
    }

    fn is_settled(&self) -> bool {
        self.settled
    }

    fn may_notify(&self) -> bool {
        self.may_notify
    }

    fn answers_sooner(&self) -> bool {
        self.sooner
    }
}

const WRITE: Protocol = Protocol::RmaWrite {
    remote: THERE,
    acks: true,
};
const WRITE_SEND: Protocol = Protocol::RmaWriteSend {
    remote: THERE,
    md: MD,
};
const READ: Protocol = Protocol::RmaRead(THERE);
const BY_AM: Protocol = Protocol::GetByAm(THERE);

fn op(kind: Kind, len: u64) -> Op {
    let header = put(0, len);
    Op {
        kind,
        ..Op::of(&header, true)
    }
}

#[test]
fn a_put_has_one_protocol() {
    use Protocol::{Eager, RndvRead};
    let unsettled = |state| State {
        settled: false,
        ..state
    };
    let no_room = |state| State {
        may_notify: false,
        ..state
    };
    for (state, len, expected) in [
        (DIRECT, 1, WRITE),
        (DIRECT, 2048, WRITE),
        (DIRECT, 1 << 30, WRITE),
        (unsettled(DIRECT), 8, Eager),
        (unsettled(DIRECT), 4096, Eager),
        (unsettled(DIRECT), 8192, Eager),
        (unsettled(DIRECT), 8193, RndvRead),
        (no_room(DIRECT), 4096, WRITE),
        (NOTIFIED, 2047, Eager),
        (NOTIFIED, 2048, WRITE_SEND),
        (NOTIFIED, 8192, WRITE_SEND),
        (NOTIFIED, 8193, RndvRead),
        // Those that are written follow each other without waiting.
        (unsettled(NOTIFIED), 2048, WRITE_SEND),
        (unsettled(NOTIFIED), 8, Eager),
        (no_room(NOTIFIED), 2048, Eager),
        (MATCHED, 0, Eager),
        (MATCHED, 8192, Eager),
        (MATCHED, 8193, RndvRead),
    ] {
        let put = op(Kind::Put, len);
        assert_eq!(
            select(&put, &state, &THRESHOLDS),
            expected,
            "{len} {state:?}"
        );
    }
    let pieces = |len| Op {
        contiguous: false,
        ..op(Kind::Put, len)
    };
    assert_eq!(select(&pieces(4096), &NOTIFIED, &THRESHOLDS), Eager);
    assert_eq!(select(&pieces(4096), &DIRECT, &THRESHOLDS), WRITE);
    let relaxed = op(Kind::Put, 8).relaxed();
    assert_eq!(select(&relaxed, &unsettled(DIRECT), &THRESHOLDS), WRITE);
    assert_eq!(select(&relaxed, &unsettled(NOTIFIED), &THRESHOLDS), Eager);
}

#[test]
fn a_get_has_one_protocol() {
    let now = |len| Op {
        immediate: true,
        ..op(Kind::Get, len)
    };
    let slower = State {
        sooner: false,
        ..DIRECT
    };
    let unsettled = State {
        settled: false,
        ..DIRECT
    };
    for (state, op, expected) in [
        (DIRECT, now(1), BY_AM),
        (DIRECT, now(192), BY_AM),
        (DIRECT, now(193), READ),
        (slower, now(1), READ),
        (DIRECT, op(Kind::Get, 1), READ),
        (unsettled, now(8), Protocol::Eager),
        // The request is short, whatever it is for.
        (unsettled, now(1 << 20), Protocol::Eager),
        (NOTIFIED, now(4096), Protocol::Eager),
        (MATCHED, now(1 << 20), Protocol::Eager),
        (DIRECT, op(Kind::Message, 8192), Protocol::Eager),
        (DIRECT, op(Kind::Message, 8193), Protocol::RndvRead),
    ] {
        assert_eq!(
            select(&op, &state, &THRESHOLDS),
            expected,
            "{op:?} {state:?}"
        );
    }
    let pieces = Op {
        contiguous: false,
        ..now(8)
    };
    assert_eq!(select(&pieces, &DIRECT, &THRESHOLDS), Protocol::Eager);
}

#[test]
fn settings_and_adapter_decide_of_short_gets_and_notified_puts() {
    let get = Op {
        immediate: true,
        ..op(Kind::Get, 8)
    };
    let slower = State {
        sooner: false,
        ..DIRECT
    };
    let by = |short_gets, iwarp, state: State| {
        select(
            &get,
            &state,
            &Thresholds::new(NOTIFY_FROM, short_gets, iwarp),
        )
    };
    assert_eq!(by(ShortGets::GetByAm, false, slower), BY_AM);
    assert_eq!(by(ShortGets::RmaRead, false, DIRECT), READ);
    for short_gets in [ShortGets::Measured, ShortGets::GetByAm] {
        assert_eq!(by(short_gets, true, DIRECT), READ, "{short_gets:?}");
    }
    let mut thresholds = Thresholds::new(4096, ShortGets::Measured, false);
    let mut put = |len, stop: bool| {
        if stop {
            thresholds.stop_notifying();
        }
        select(&op(Kind::Put, len), &NOTIFIED, &thresholds)
    };
    assert_eq!(put(4095, false), Protocol::Eager);
    assert_eq!(put(4096, false), WRITE_SEND);
    assert_eq!(put(4096, true), Protocol::Eager);
}

/// Memory whose key its owner has given is reached as one that is advertised without events, and by nothing else.
#[test]
fn a_key_reaches_its_memory() {
    let key = RemoteKey {
        base: 7000,
        len: 100,
        rkey: 11,
    };
    let mut peer = peer(&[OPEN]);
    let by_key = |peer: &Peer, header: &Header| match chosen_by_key(peer, header, Some(&key)) {
        Protocol::RmaWrite { remote, acks: true } | Protocol::RmaRead(remote) => {
            Some((remote.address, remote.rkey))
        }
        Protocol::Eager => None,
        other => panic!("{other:?}"),
    };
    assert_eq!(by_key(&peer, &put(40, 60)), Some((7040, 11)));
    assert_eq!(by_key(&peer, &get(0, 100)), Some((7000, 11)));
    for (offset, length) in [(41, 60), (0, 0), (u64::MAX, 1)] {
        assert_eq!(by_key(&peer, &put(offset, length)), None);
    }
    peer.requests.count_sent(1);
    assert_eq!(by_key(&peer, &put(0, 8)), None);
}

#[test]
fn short_frames_leave_by_a_ring_that_is_polled() {
    // A slot has 240 bytes for a frame, and 16 for how it ends.
    let by_ring = |len| match carrier(len, 256, true, true) {
        Carrier::Ring(taken) => Some(taken),
        Carrier::Send => None,
    };
    assert_eq!([0, 8, 240].map(by_ring), [16, 24, 256].map(Some));
    assert_eq!(by_ring(241), None);
    for (inline, ring, ordered) in [(23, true, true), (256, false, true), (256, true, false)] {
        assert_eq!(carrier(8, inline, ring, ordered), Carrier::Send);
    }
}
