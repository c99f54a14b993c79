//! Access control.

use super::case::{Case, LOCAL, case};
use super::rank::*;
use portals_shim::{ANY, AcEntry, Error, ProcessId, Target};

pub(super) const CASES: &[Case] = &[
    case(
        "every field of an entry can refuse",
        "26, 27, rule 4",
        fields,
    ),
    case(
        "indexes past the tables are dropped",
        "28, 45, rules 2, 3",
        indexes,
    ),
    case("entries are checked when set", "29", checked).not_served(LOCAL),
];

fn fields(r: &Rank) {
    const REFUSALS: u64 = 5;
    // The first entry is for every portal.
    let everywhere = [PORTAL, 0, r.ni.limits().max_pt_index as u32];
    if !r.is_target() {
        r.barrier();
        for pt_index in everywhere {
            r.knock(Target { pt_index, ..r.to() }, pt_index.into());
        }
        for _ in 0..REFUSALS + 2 {
            r.barrier();
            let to = Target {
                ac_index: 3,
                ..r.to()
            };
            r.knock(to, 1);
            r.barrier();
        }
        return;
    }
    let t = r.target(8, |_| ());
    let others = r.eq(4);
    for pt_index in &everywhere[1..] {
        r.listener(others, Err((*pt_index, After)), entry(BITS), 0);
    }
    r.barrier();
    r.take(t.eq, &[PutStart, PutEnd]);
    for pt_index in &everywhere[1..] {
        assert_eq!(r.take(others, &[PutEnd])[0].pt_index, *pt_index);
    }
    let from = r.peer();
    let open = AcEntry {
        match_id: from,
        uid: r.ni.uid(),
        jid: r.ni.jid(),
        pt_index: PORTAL,
    };
    let refusing = [
        AcEntry {
            uid: open.uid + 1,
            ..open
        },
        AcEntry {
            jid: open.jid + 1,
            ..open
        },
        AcEntry {
            pt_index: PORTAL + 1,
            ..open
        },
        AcEntry {
            match_id: ProcessId::new(from.nid + 9, from.pid),
            ..open
        },
        AcEntry {
            match_id: ProcessId::new(from.nid, from.pid + 9),
            ..open
        },
    ];
    assert_eq!(refusing.len() as u64, REFUSALS);
    for (i, e) in refusing.into_iter().enumerate() {
        r.ni.ac_entry(3, e).expect("legal");
        r.barrier();
        r.barrier();
        assert_eq!(r.drops(), i as u64 + 1, "{e:?}");
    }
    r.none(t.eq);
    let any = AcEntry {
        match_id: ProcessId::ANY,
        uid: ANY,
        jid: ANY,
        pt_index: ANY,
    };
    for e in [open, any] {
        r.ni.ac_entry(3, e).expect("legal");
        r.barrier();
        r.take(t.eq, &[PutStart, PutEnd]);
        r.barrier();
    }
}

fn indexes(r: &Rank) {
    let limits = r.ni.limits();
    let (past_ac, past_pt) = (
        limits.max_ac_index as u32 + 1,
        limits.max_pt_index as u32 + 1,
    );
    let status = || r.ni.status().expect("a status");
    if r.is_target() {
        let t = r.target(8, |_| ());
        let last = r.eq(4);
        r.listener(last, Err((past_pt - 1, After)), entry(BITS), 0);
        let before = status();
        r.barrier();
        r.barrier();
        r.none(t.eq);
        let s = status();
        assert_eq!((s.drop_count, s.drop_length), (5, 15));
        // A message of each barrier.
        assert_eq!(s.recv_count, before.recv_count + 2);
        assert_eq!(s.recv_length, before.recv_length);
        r.barrier();
        r.take(last, &[PutEnd]);
        return;
    }
    let s = r.source(3, |_| ());
    r.barrier();
    let before = status();
    for (ac_index, pt_index) in [
        (past_ac, PORTAL),
        (0, past_pt),
        (u32::MAX, PORTAL),
        (0, u32::MAX),
    ] {
        let to = Target {
            ac_index,
            pt_index,
            ..r.to()
        };
        r.put(&s, (0, 3), Ack, to, 0);
    }
    // No entry there.
    let to = Target {
        match_bits: !BITS,
        ..r.to()
    };
    r.put(&s, (0, 3), Ack, to, 0);
    let after = status();
    assert_eq!(after.send_count, before.send_count + 5);
    assert_eq!(after.send_length, before.send_length + 15);
    r.barrier();
    r.none(s.eq);
    r.barrier();
    // The last of each table is there.
    let to = Target {
        ac_index: past_ac - 1,
        pt_index: past_pt - 1,
        ..r.to()
    };
    r.knock(to, 0);
}

fn checked(r: &Rank) {
    let limits = r.ni.limits();
    let e = AcEntry::initial(r.ni.uid());
    let at = |pt_index| AcEntry { pt_index, ..e };
    let (past_ac, past_pt) = (
        limits.max_ac_index as u32 + 1,
        limits.max_pt_index as u32 + 1,
    );
    assert_eq!(r.ni.ac_entry(past_ac, e), Err(Error::AcIndexInvalid));
    assert_eq!(r.ni.ac_entry(past_ac - 1, e), Ok(()));
    assert_eq!(r.ni.ac_entry(1, at(past_pt)), Err(Error::PtIndexInvalid));
    assert_eq!(r.ni.ac_entry(1, at(past_pt - 1)), Ok(()));
    assert_eq!(r.ni.ac_entry(1, at(ANY)), Ok(()));
}
