//! Puts whose data a peer has placed in a descriptor with events: the rest is as if the data had come with the header.

use super::world::{GET, NO_START, NONE, PUT, REMOTE, TRUNCATE, desc, spec};
use crate::{
    AcEntry, Body, Event, Header, InsertPosition, Limits, MdDesc, MdHandle, MdOptions, Memory, Ni,
    NiConfig, NiFail, ProcessId, Segment, Unlink,
};
use alloc::vec::Vec;

const OWN: ProcessId = ProcessId::new(1, 1);
const PEER: ProcessId = ProcessId::new(2, 1);
const MEMORY: Segment = Segment {
    addr: 0x1000,
    len: 100,
};

fn ni() -> Ni {
    Ni::new(NiConfig {
        id: OWN,
        uid: 7,
        jid: 8,
        interface: 0,
        limits: Limits::LIBRARY,
        get_send_events: false,
    })
}

fn attach(ni: &mut Ni, bits: u64, desc: MdDesc) -> MdHandle {
    let me = ni.me_attach(4, spec(bits), InsertPosition::After).unwrap();
    ni.md_attach(me, desc, Unlink::Retain).unwrap()
}

/// One that nothing but its queue keeps from being advertised.
fn loud(ni: &mut Ni) -> (MdDesc, crate::EqHandle) {
    let eq = ni.eq_alloc(100).unwrap();
    let desc = MdDesc {
        eq: Some(eq),
        ..desc(MEMORY, PUT | GET | REMOTE)
    };
    (desc, eq)
}

fn put(offset: u64, length: u64) -> Header {
    Header {
        target: OWN,
        source: PEER,
        uid: 7,
        jid: 8,
        pt_index: 4,
        match_bits: 5,
        body: Body::Put {
            length,
            remote_offset: offset,
            hdr_data: 99,
            ac_index: 0,
            ack_md: Some(MdHandle::from_raw(3)),
        },
    }
}

#[test]
fn a_descriptor_is_opened_if_only_its_queue_is_in_the_way() {
    let mut ni = ni();
    let (fit, eq) = loud(&mut ni);
    let open = attach(&mut ni, 5, fit.clone());
    ni.take_dirty_portals();
    assert_eq!(ni.adverts(4, 64), []);
    assert!(ni.open_to_writes(open) && ni.open_to_writes(open));
    assert_eq!(ni.take_dirty_portals(), 1 << 4);
    let adverts = ni.adverts(4, 64);
    let [advert] = adverts.as_slice() else {
        panic!("{adverts:?}");
    };
    assert!(advert.events && advert.put && !advert.get && advert.md == open);
    let unfit = [
        MdDesc {
            eq: None,
            ..fit.clone()
        },
        MdDesc {
            threshold: 1000,
            ..fit.clone()
        },
        MdDesc {
            options: PUT,
            ..fit.clone()
        },
        MdDesc {
            options: GET | REMOTE,
            ..fit.clone()
        },
        MdDesc {
            options: PUT | REMOTE | TRUNCATE,
            ..fit.clone()
        },
        MdDesc {
            options: PUT | REMOTE | MdOptions::PINNED,
            ..fit.clone()
        },
        MdDesc {
            memory: Memory::Iovec {
                start: 0,
                segments: [MEMORY].to_vec(),
            },
            ..fit.clone()
        },
    ];
    for desc in unfit {
        let md = attach(&mut ni, 6, desc.clone());
        assert!(!ni.open_to_writes(md), "{desc:?}");
    }
    // One that is bound is on no list.
    let bound = ni.md_bind(fit.clone(), Unlink::Retain).unwrap();
    assert!(!ni.open_to_writes(bound));
    // An update closes it; so does its end.
    ni.md_update(open, fit.clone(), None).unwrap();
    assert!(ni.adverts(4, 64).iter().all(|a| !a.events));
    assert!(ni.open_to_writes(open));
    ni.take_dirty_portals();
    ni.md_unlink(open).unwrap();
    assert_eq!(ni.take_dirty_portals(), 1 << 4);
    assert!(!ni.open_to_writes(open));
    assert!(ni.eq_get(eq).unwrap().is_none());
}

#[test]
fn a_notified_put_has_the_events_of_one_that_came_with_its_data() {
    for options in [NONE, NO_START, MdOptions::ACK_DISABLE] {
        let sides = [false, true].map(|written| {
            let mut ni = ni();
            let (mut desc, eq) = loud(&mut ni);
            desc.options |= options;
            let md = attach(&mut ni, 5, desc);
            assert!(ni.open_to_writes(md));
            let mut acks = Vec::new();
            for (offset, length) in [(0, 100), (40, 60), (99, 1), (7, 0)] {
                let put = put(offset, length);
                let taken = match written {
                    true => ni.notified_put(&put, md, false),
                    false => ni.deposit_put(&put, |places, len| {
                        assert_eq!((places[0].addr, places[0].len), (0x1000 + offset, len));
                        NiFail::OK
                    }),
                };
                let taken = taken.unwrap();
                assert_eq!(taken.md, md);
                acks.push(taken.ack);
            }
            let next = |_| ni.eq_get(eq).unwrap().map(|(event, _)| event);
            let events: Vec<Event> = (0..).map_while(next).collect();
            (acks, events, ni.status())
        });
        let [came, written] = sides;
        assert_eq!(came, written);
        assert!(!written.1.is_empty());
    }
}

#[test]
fn a_put_is_not_written_where_it_may_not_be() {
    let mut ni = ni();
    let (fit, eq) = loud(&mut ni);
    let open = attach(&mut ni, 5, fit.clone());
    let closed = attach(&mut ni, 5, fit.clone());
    assert!(ni.open_to_writes(open));
    let good = put(0, 100);
    let body = |ac_index| Body::Put {
        length: 100,
        remote_offset: 0,
        hdr_data: 0,
        ac_index,
        ack_md: None,
    };
    let lies = [
        (closed, good),
        (MdHandle::from_raw(u32::MAX), good),
        (open, put(1, 100)),
        (open, put(u64::MAX, 1)),
        (
            open,
            Header {
                match_bits: 4,
                ..good
            },
        ),
        (
            open,
            Header {
                pt_index: 3,
                ..good
            },
        ),
        (
            open,
            Header {
                body: body(u32::MAX),
                ..good
            },
        ),
    ];
    for (n, (md, header)) in (1..).zip(lies) {
        assert!(ni.notified_put(&header, md, false).is_none(), "{header:?}");
        assert_eq!(ni.status().drop_count, n);
    }
    assert!(ni.eq_get(eq).unwrap().is_none());
    // An entry of the access control list that has come since the initiator was told, and one before it.
    ni.ac_entry(
        0,
        AcEntry {
            match_id: OWN,
            uid: 7,
            jid: 8,
            pt_index: 4,
        },
    )
    .unwrap();
    assert!(ni.notified_put(&good, open, false).is_none());
    assert!(ni.notified_put(&good, open, true).is_some());
    let first = ni.me_attach(4, spec(5), InsertPosition::Before).unwrap();
    ni.md_attach(first, fit, Unlink::Retain).unwrap();
    assert!(ni.notified_put(&good, open, true).is_some());
    ni.md_unlink(open).unwrap();
    assert!(ni.notified_put(&good, open, true).is_none());
}

/// What a list offers is its beginning, whoever attaches at its end: a list of any length costs as much to show.
#[test]
fn a_long_list_offers_its_first_descriptors() {
    let mut ni = ni();
    let (fit, _) = loud(&mut ni);
    let quiet = MdDesc { eq: None, ..fit };
    let all: Vec<MdHandle> = (0..300)
        .map(|bits| attach(&mut ni, bits, quiet.clone()))
        .collect();
    let mds = |ni: &Ni, most| -> Vec<MdHandle> {
        let adverts = ni.adverts(4, most);
        adverts.iter().map(|a| a.md).collect()
    };
    assert_eq!(mds(&ni, 64), all[..64]);
    assert_eq!(mds(&ni, 1000), all);
    ni.md_unlink(all[0]).unwrap();
    assert_eq!(mds(&ni, 64), all[1..65]);
    // Entries that offer nothing are passed over, but not more than four for each descriptor.
    for md in &all[1..297] {
        ni.md_unlink(*md).unwrap();
    }
    assert_eq!(mds(&ni, 74), [], "of 300 entries 296 are looked at");
    assert_eq!(mds(&ni, 75), all[297..]);
}
