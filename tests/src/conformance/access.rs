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
    if !r.is_target() {
        r.barrier();
        r.knock(r.to(), 0);
        for _ in 0..=REFUSALS {
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
    r.barrier();
    r.take(t.eq, &[PutStart, PutEnd]);
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
    r.ni.ac_entry(3, open).expect("legal");
    r.barrier();
    r.take(t.eq, &[PutStart, PutEnd]);
    r.barrier();
}

fn indexes(r: &Rank) {
    let limits = r.ni.limits();
    let (past_ac, past_pt) = (
        limits.max_ac_index as u32 + 1,
        limits.max_pt_index as u32 + 1,
    );
    if r.is_target() {
        let t = r.target(8, |_| ());
        r.barrier();
        r.barrier();
        r.none(t.eq);
        let s = r.ni.status().expect("a status");
        assert_eq!((s.drop_count, s.drop_length), (4, 12));
        return;
    }
    let s = r.source(3, |_| ());
    r.barrier();
    for (ac_index, pt_index) in [(past_ac, PORTAL), (0, past_pt), (u32::MAX, PORTAL)] {
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
    r.barrier();
    r.none(s.eq);
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
    assert_eq!(r.ni.ac_entry(1, at(past_pt)), Err(Error::PtIndexInvalid));
    assert_eq!(r.ni.ac_entry(1, at(ANY)), Ok(()));
}
