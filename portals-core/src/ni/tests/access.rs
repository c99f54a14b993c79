//! Access control.

use super::world::*;
use crate::{ANY, AcEntry, DropReason, Error, Incoming, NiConfig, ProcessId};

/// Scenario 26: entry 0 as made.
#[test]
fn the_first_entry_lets_the_own_user_in_everywhere() {
    let mut w = World::new();
    let eq = w[1].eq(8);
    for pt in [0, 63] {
        listener(&mut w[1], eq, Err((pt, After)), spec(0), 1);
        w.knock(To { pt, ..to(1) });
    }
    assert_eq!(w[1].kinds(eq), [PutEnd, PutEnd]);

    let stranger = NiConfig {
        uid: 1001,
        ..config(0)
    };
    let mut w = World::of([stranger, config(1)]);
    let t = w.target(8, PUT);
    w.knock(to(1));
    assert!(w[1].events(t.eq).is_empty());
    assert_eq!(w[1].drops(), 1);
}

/// Scenario 27; rule 4.
#[test]
fn every_field_of_an_entry_can_refuse_alone() {
    let open = AcEntry {
        match_id: ProcessId::new(0, 7),
        uid: 1000,
        jid: 5,
        pt_index: 4,
    };
    let refusing = [
        AcEntry { uid: 1001, ..open },
        AcEntry { jid: 6, ..open },
        AcEntry {
            pt_index: 5,
            ..open
        },
        AcEntry {
            match_id: ProcessId::new(2, 7),
            ..open
        },
        AcEntry {
            match_id: ProcessId::new(0, 8),
            ..open
        },
    ];
    let mut w = World::new();
    let t = w.target(8, PUT);
    for (i, entry) in refusing.into_iter().enumerate() {
        w[1].ni.ac_entry(3, entry).unwrap();
        w.knock(To { ac: 3, ..to(1) });
        assert_eq!(w[1].drops(), i as u64 + 1, "{entry:?}");
        assert!(w[1].events(t.eq).is_empty());
    }
    w[1].ni.ac_entry(3, open).unwrap();
    w.knock(To { ac: 3, ..to(1) });
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
    let any = AcEntry {
        match_id: ProcessId::ANY,
        uid: ANY,
        jid: ANY,
        pt_index: ANY,
    };
    w[1].ni.ac_entry(3, any).unwrap();
    w.knock(To { ac: 3, ..to(1) });
    assert_eq!(w[1].kinds(t.eq), [PutStart, PutEnd]);
}

/// Scenario 28; rules 2 and 3: both indexes are checked against the table, exactly.
#[test]
fn indexes_past_the_tables_are_dropped() {
    let mut w = World::new();
    w.target(8, PUT);
    let src = w.source(3);
    for (ac, pt, reason) in [
        (8, 4, DropReason::AccessControl),
        (u32::MAX, 4, DropReason::AccessControl),
        (0, 64, DropReason::PtIndex),
        (0, u32::MAX, DropReason::PtIndex),
    ] {
        let before = w[1].ni.status();
        w.put(0, src.md, None, NoAck, To { ac, pt, ..to(1) }, 0)
            .unwrap();
        assert!(
            matches!(w.arrive(), Some((1, Incoming::Dropped(r), _)) if r == reason),
            "{ac} {pt}"
        );
        let after = w[1].ni.status();
        assert_eq!(after.drop_count, before.drop_count + 1);
        assert_eq!(after.drop_length, before.drop_length + 3);
    }
    w.knock(To { ac: 7, ..to(1) });
    assert_eq!(w[1].drops(), 4);
}

/// Scenario 29.
#[test]
fn entries_are_checked_when_they_are_set() {
    let mut w = World::new();
    let e = AcEntry::initial(1000);
    let ni = &mut w[1].ni;
    assert_eq!(ni.ac_entry(8, e), Err(Error::AcIndexInvalid));
    assert_eq!(ni.ac_entry(7, e), Ok(()));
    let at = |pt_index| AcEntry { pt_index, ..e };
    assert_eq!(ni.ac_entry(0, at(64)), Err(Error::PtIndexInvalid));
    assert_eq!(ni.ac_entry(0, at(63)), Ok(()));
    assert_eq!(ni.ac_entry(0, at(ANY)), Ok(()));
}
