//! Which operations go past the peer's library, by what it has advertised and by what has gone there before. No device.

use super::*;
use crate::frame::{Kind, Prefix, Writer};
use portals_core::ProcessId;
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

/// Where the operation goes in the peer's memory.
fn place(peer: &Peer, header: &Header) -> Option<u64> {
    peer.reach(header, None).map(|reach| reach.remote.address)
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
    let (written, read) = (both.reach(&put(8, 8), None), both.reach(&get(8, 8), None));
    let seen = |reach: Option<Reach>| reach.map(|r| (r.remote.address, r.remote.rkey, r.acks));
    assert_eq!(seen(written), Some((9008, 10, false)));
    assert_eq!(seen(read), Some((5008, 9, true)));
    assert_eq!(place(&peer(&[read_only]), &put(0, 8)), None);
    assert_eq!(place(&peer(&[write_only]), &get(0, 8)), None);
}

#[test]
fn adapters_alone_do_not_serve_a_descriptor_with_events() {
    let events = Some(MdHandle::from_raw(7));
    let peer = peer(&[RemoteMd { events, ..OPEN }, OPEN]);
    for header in [put(0, 8), get(0, 8)] {
        assert_eq!(place(&peer, &header), None, "nor one behind it");
        assert_eq!(peer.advertised(&header).and_then(|r| r.events), events);
    }
    assert_eq!(peer.way(&put(0, 8), 2048), Way::Frame);
}

/// What a frame of the peer says about requests that it has done.
fn says(peer: &mut Peer, requests_done: u32) {
    let mut bytes = [0; 64];
    Writer::new(&mut bytes, Kind::Message, false);
    let (mut prefix, _) = Prefix::read_from_prefix(&bytes).unwrap();
    prefix.requests_done = requests_done.into();
    peer.handle_prefix(&prefix, true);
}

/// An operation of the adapters has its effect at once, so it must not pass a request in a frame whose effect is still
/// to come.
#[test]
fn nothing_overtakes_a_request_that_is_not_done() {
    let mut peer = peer(&[OPEN]);
    let reach = peer.reach(&put(0, 8), None).unwrap();
    assert_eq!(peer.way(&put(0, 8), 2048), Way::OpenEndpoint(reach));
    peer.requests_sent = 2;
    for done in [0, 1] {
        says(&mut peer, done);
        assert_eq!(peer.way(&put(0, 8), 2048), Way::Frame, "{done} of 2 done");
        assert!(peer.reach(&put(0, 8), None).is_none() && peer.reach(&get(0, 8), None).is_none());
        // What need not keep the order is told where it would go.
        assert!(peer.advertised(&put(0, 8)).is_some());
    }
    // More than was sent is not believed.
    says(&mut peer, 3);
    assert_eq!(peer.way(&put(0, 8), 2048), Way::Frame);
    says(&mut peer, 2);
    assert_eq!(peer.way(&put(0, 8), 2048), Way::OpenEndpoint(reach));
    assert!(peer.reach(&get(0, 8), None).is_some());
    let elsewhere = Header {
        pt_index: PORTAL + 1,
        ..put(0, 8)
    };
    assert_eq!(peer.way(&elsewhere, 2048), Way::Frame);
    // What waits for room in the send queue, too.
    let transfer = Transfer {
        local: Segment { addr: 0, len: 8 },
        lkey: 0,
        remote: OPEN.start,
        read: false,
        again: false,
    };
    peer.transfer(transfer, 0);
    assert!(peer.way(&put(0, 8), 2048) == Way::Frame && peer.reach(&put(0, 8), None).is_none());
}

/// A peer that has closed answers no more: what it has done it never meant to answer, the rest has no effect.
#[test]
fn a_peer_that_has_closed_owes_answers_to_what_it_has_not_done() {
    let waiting = |done: u32| {
        let mut peer = peer(&[OPEN]);
        peer.requests_sent = u32::MAX - 1;
        for _ in 0..4 {
            peer.requests_sent = peer.requests_sent.wrapping_add(1);
            peer.expect_answer(&get(0, 8));
        }
        peer.forget_done(done);
        peer.expected.len()
    };
    let last = u32::MAX;
    assert_eq!([last - 1, 0, 2].map(waiting), [4, 2, 0]);
    // More than was sent is not believed.
    assert_eq!(waiting(3), 4);
}
