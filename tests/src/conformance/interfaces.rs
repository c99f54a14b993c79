//! Several interfaces of one process, and processes of one process id.

use super::case::{Case, LOCAL, case};
use super::rank::*;
use portals_shim::core::NiConfig;
use portals_shim::fabric;
use portals_shim::place::Placement;
use portals_shim::{EqHandle, Error, Interface, Limits, MdHandle, MdSpec, Target, Unlink, Wait};

pub(super) const CASES: &[Case] = &[
    case("interfaces of one process do not mix", "7, 8", mixed).not_served(LOCAL),
    case(
        "limits that were asked for are kept",
        "5, 23, rule 2",
        limits,
    )
    .not_served(LOCAL),
    case(
        "one process id is a process on each node",
        "6, rule 1",
        same_pid,
    )
    .ranks(3),
];

/// An interface of the own process alone, beside that of the case.
fn second(limits: Limits) -> Interface {
    let id = Placement::ONE.of_pid(0, 7);
    let config = NiConfig {
        id,
        uid: 1000,
        jid: 1,
        interface: 1,
        limits,
        get_send_events: false,
    };
    fabric::alone(config).interface
}

fn mixed(r: &Rank) {
    let other = second(Limits::LIBRARY);
    let here = r.source(8, |_| ());
    let buf = Buf::new(8);
    let without = other
        .md_bind(md(buf.memory(), NONE), Unlink::Retain)
        .expect("no queue is none of another interface");
    let eq = other.eq_alloc(4).expect("a queue");
    let named = |eq| MdSpec {
        eq: Some(eq),
        ..md(buf.memory(), NONE)
    };
    for (ni, strange) in [(&r.ni, eq), (&other, here.eq)] {
        let bound = ni.md_bind(named(strange), Unlink::Retain);
        assert_eq!(bound, Err(Error::MdIllegal));
        assert_eq!(ni.eq_get(strange), Err(Error::EqInvalid));
        assert_eq!(ni.eq_free(strange), Err(Error::EqInvalid));
    }
    let none = named(EqHandle::from_raw(u32::MAX));
    let bound = r.ni.md_bind(none, Unlink::Retain);
    assert_eq!(bound, Err(Error::EqInvalid), "none of any interface");
    let polled = r.ni.eq_poll(&[here.eq, eq], Wait::Forever);
    let refused = polled.expect_err("a queue of another interface");
    assert_eq!((refused.error, refused.which), (Error::EqInvalid, 1));
    for (get, put) in [(here.md, without), (without, here.md)] {
        let swapped = r.ni.get_put(get, put, r.to(), 0);
        assert_eq!(swapped, Err(Error::MdIllegal));
    }
    let none = MdHandle::from_raw(u32::MAX);
    for (get, put) in [(here.md, none), (none, here.md)] {
        let swapped = r.ni.get_put(get, put, r.to(), 0);
        assert_eq!(swapped, Err(Error::MdInvalid));
    }
    assert_eq!(r.ni.md_unlink(without), Err(Error::MdInvalid));
    assert_ne!(r.ni.handle(), other.handle());
    other.close().expect("the interface closes");
    assert_eq!(other.eq_get(eq), Err(Error::NiInvalid));
    // The first goes on.
    assert!(r.ni.md_query(here.md).is_ok());
    r.none(here.eq);
}

fn limits(_: &Rank) {
    let wished = Limits {
        max_mes: 5,
        max_mds: 2,
        max_eqs: 1,
        max_ac_index: 0,
        max_pt_index: 3,
        max_md_iovecs: 1,
        max_me_list: 3,
        max_getput_md: 8,
    };
    let ni = second(wished);
    assert_eq!(ni.limits(), wished);
    let attach = |pt| ni.me_attach(pt, entry(0), After);
    assert_eq!(attach(4), Err(Error::PtIndexInvalid));
    let first = attach(3).expect("an entry");
    attach(3).expect("an entry");
    attach(3).expect("an entry");
    assert_eq!(attach(3), Err(Error::MeListTooLong));
    let inserted = ni.me_insert(first, entry(0), Before);
    assert_eq!(inserted, Err(Error::MeListTooLong));
    assert_eq!(ni.list_lengths(3), Ok((3, 3)));
    attach(0).expect("an entry");
    attach(0).expect("an entry");
    assert_eq!(attach(0), Err(Error::NoSpace));
    let buf = Buf::new(16);
    let bind = || ni.md_bind(md(buf.memory(), NONE), Unlink::Retain);
    let one = bind().expect("a descriptor");
    bind().expect("a descriptor");
    assert_eq!(bind(), Err(Error::NoSpace));
    ni.eq_alloc(1).expect("a queue");
    assert_eq!(ni.eq_alloc(1), Err(Error::NoSpace));
    let to = Target {
        process: ni.id(),
        pt_index: 0,
        ac_index: 0,
        match_bits: 0,
        remote_offset: 0,
    };
    let swap = |len| ni.get_put_region(one, one, (0, 0, len), to, 0);
    assert_eq!(swap(9), Err(Error::MdIllegal));
    assert_eq!(swap(8), Ok(()));
    ni.close().expect("the interface closes");
    // A wish raises none.
    let greedy = second(Limits {
        max_mes: i32::MAX,
        max_mds: i32::MAX,
        max_eqs: i32::MAX,
        max_ac_index: i32::MAX,
        max_pt_index: i32::MAX,
        max_md_iovecs: i32::MAX,
        max_me_list: i32::MAX,
        max_getput_md: i32::MAX,
    });
    assert_eq!(greedy.limits(), Limits::LIBRARY);
    greedy.close().expect("the interface closes");
}

fn same_pid(r: &Rank) {
    let ids = &r.peers;
    assert!(ids.iter().all(|id| id.pid == ids[0].pid));
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(ids.iter().position(|other| other.nid == id.nid), Some(i));
    }
    let t = r.target(0, |d| d.memory = portals_shim::MdMemory::Empty);
    r.barrier();
    let n = ids.len();
    let next = (r.rank as usize + 1) % n;
    r.knock(r.to_rank(next), r.rank.into());
    let e = r.take(t.eq, &[PutStart, PutEnd])[1];
    let before = (r.rank as usize + n - 1) % n;
    assert_eq!((e.initiator, e.hdr_data), (ids[before], before as u64));
    r.barrier();
    r.none(t.eq);
}
