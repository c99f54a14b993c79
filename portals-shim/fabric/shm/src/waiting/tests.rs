use super::super::peer::After;
use super::*;
use portals_core::{Header, MdHandle, ProcessId};
use smallvec::SmallVec;

const CELLS: u32 = 16;

fn header(body: Body) -> Header {
    Header {
        target: ProcessId::new(1, 1),
        source: ProcessId::new(1, 2),
        uid: 0,
        jid: 0,
        pt_index: 4,
        match_bits: 0,
        body,
    }
}

fn of(body: Body, copied: usize) -> Outgoing {
    let load = Load::Bytes(SmallVec::from_elem(0, copied));
    Outgoing::message(header(body), load, After::Nothing)
}

fn put(length: u64) -> Outgoing {
    let body = Body::Put {
        length,
        remote_offset: 0,
        hdr_data: 0,
        ac_index: 0,
        ack_md: None,
    };
    of(body, 0)
}

fn reply(copied: usize) -> Outgoing {
    let body = Body::Reply {
        md: MdHandle::from_raw(5),
        local_offset: 0,
        rlength: copied as u64,
        mlength: copied as u64,
    };
    of(body, copied)
}

fn short(kind: Kind) -> Outgoing {
    Outgoing {
        kind,
        header: None,
        ..put(0)
    }
}

/// What waits leaves in this order: `r` for a request, `a` for an answer.
fn order(waiting: &mut Waiting) -> String {
    let mut all = String::new();
    while let Some(m) = waiting.pop() {
        waiting.written(&m);
        all.push(match Class::of(&m) {
            Class::Request => 'r',
            Class::Answer => 'a',
        });
    }
    all
}

#[test]
fn answers_leave_first_and_keep_no_request_here() {
    let mut waiting = Waiting::new(CELLS);
    (0..3).for_each(|_| waiting.push(put(8)));
    (0..130).for_each(|_| waiting.push(short(Kind::AckToSend)));
    let turn = "a".repeat(64);
    assert_eq!(order(&mut waiting), format!("{turn}r{turn}raar"));
}

/// A peer that asks again whenever it has room gives requests their turn, though no answer waits.
#[test]
fn answers_that_need_not_wait_keep_no_request_here() {
    let mut waiting = Waiting::new(CELLS);
    waiting.push(put(8));
    for written in 0.. {
        if !waiting.is_next(&reply(8)) {
            assert_eq!(written, 64);
            break;
        }
        waiting.written(&reply(8));
    }
    waiting.push(reply(8));
    assert_eq!(order(&mut waiting), "ra");
}

#[test]
fn what_has_begun_ends_first() {
    let begun = |m: Outgoing| Outgoing { sent: 1, ..m };
    let mut waiting = Waiting::new(CELLS);
    waiting.push(begun(put(8)));
    assert!(!waiting.is_next(&reply(8)));
    waiting.push(reply(8));
    assert_eq!(order(&mut waiting), "ra");
    waiting.push(begun(reply(8)));
    waiting.push(put(8));
    waiting.since = u32::MAX;
    assert_eq!(order(&mut waiting), "ar");
    // Of an answer that finds room for a part alone.
    waiting.since = 0;
    waiting.push(put(8));
    waiting.push(reply(8));
    let first = waiting.pop().unwrap();
    waiting.put_back(begun(first));
    waiting.since = u32::MAX;
    assert_eq!(order(&mut waiting), "ar");
}

#[test]
fn requests_do_not_pass_what_waits() {
    let mut waiting = Waiting::new(CELLS);
    assert!(waiting.is_next(&put(8)) && waiting.is_next(&reply(8)));
    waiting.push(put(8));
    assert!(!waiting.is_next(&put(8)) && waiting.is_next(&reply(8)));
    assert_eq!(order(&mut waiting), "r");
    waiting.push(reply(8));
    assert!(!waiting.is_next(&put(8)) && !waiting.is_next(&reply(8)));
}

#[test]
fn what_is_owed_is_answers_and_what_they_copy() {
    let mut waiting = Waiting::new(CELLS);
    (0..1000).for_each(|_| waiting.push(put(8)));
    for kind in [Kind::AckToSend, Kind::Resent] {
        (0..63).for_each(|_| waiting.push(short(kind)));
    }
    waiting.push(reply(64));
    assert!(!waiting.owes_enough());
    waiting.push(reply(64));
    assert!(waiting.owes_enough());
    let first = waiting.pop().unwrap();
    assert!(!waiting.owes_enough());
    waiting.put_back(first);
    assert!(waiting.owes_enough());
    assert_eq!(order(&mut waiting).len(), 1128);
    assert!(!waiting.owes_enough());
    // One of 32 KiB counts as 128 more.
    waiting.push(reply(32 << 10));
    assert!(waiting.owes_enough());
}
