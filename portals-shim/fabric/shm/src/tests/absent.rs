//! Memory that is not there, at one side or the other: who has it hears of that, the other one of a failure.

use super::*;
use crate::trusted::TRUST;
use fabric_api::region::RawMemory;
use portals_core::Memory;

/// More than travels through the rings.
const LEN: usize = 1 << 20;
const ABSENT: u64 = 4;

/// How an operation ends at who began it, and at its target if that hears of it.
fn ends(sides: &[Side; 2], kinds: (&[EventKind], &[EventKind])) -> (Vec<NiFail>, Vec<NiFail>) {
    let [a, b] = sides;
    let of = |first: &Side, other: &Side, kinds: &[EventKind]| {
        let mut found = Vec::new();
        let begun = Instant::now();
        while found.len() < kinds.len() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{kinds:?}");
            other.o.interface.progress(Wait::No).unwrap();
            if let Some(e) = first.look().filter(|e| kinds.contains(&e.kind)) {
                assert_eq!(e.kind, kinds[found.len()]);
                found.push(e.ni_fail);
            }
        }
        found
    };
    let ours = of(a, b, kinds.0);
    (ours, of(b, a, kinds.1))
}

#[test]
fn memory_that_is_not_there_is_of_who_has_it() {
    use EventKind::{Ack, GetEnd, PutEnd, ReplyEnd, SendEnd};
    let (here, there) = (NiFail::SEGV, NiFail::FAIL);
    let sides = sides(LEN, false, Options::default());
    let [a, b] = &sides;
    let nowhere = |eq| {
        let memory = RawMemory::trusted(Memory::contiguous(0x1000, LEN as u64), TRUST);
        spec(MdMemory::Raw(memory), eq)
    };
    let ni = &a.o.interface;
    let absent = ni.md_bind(nowhere(Some(a.eq)), Unlink::Retain).unwrap();
    let theirs = &b.o.interface;
    let me = theirs.me_attach(4, entry(ABSENT), InsertPosition::After);
    theirs
        .md_attach(me.unwrap(), nowhere(Some(b.eq)), Unlink::Retain)
        .unwrap();
    let put = |md, bits| {
        ni.put(md, AckRequest::Ack, to(theirs.id(), bits, 0), 0)
            .unwrap()
    };
    let get = |md, bits| ni.get(md, to(theirs.id(), bits, 0)).unwrap();
    // By a rendezvous, from memory that is not there and to it.
    put(absent, LOUD);
    let ended = ends(&sides, (&[SendEnd, Ack], &[PutEnd]));
    assert_eq!(ended, (vec![here; 2], vec![there]));
    put(a.source, ABSENT);
    let ended = ends(&sides, (&[SendEnd, Ack], &[PutEnd]));
    assert_eq!(ended, (vec![there; 2], vec![here]));
    get(absent, LOUD);
    let ended = ends(&sides, (&[ReplyEnd], &[GetEnd]));
    assert_eq!(ended, (vec![here], vec![there]));
    get(a.source, ABSENT);
    let ended = ends(&sides, (&[ReplyEnd], &[GetEnd]));
    assert_eq!(ended, (vec![there], vec![here]));
    // By the initiator alone.
    put(absent, QUIET);
    let ended = ends(&sides, (&[SendEnd, Ack], &[]));
    assert_eq!(ended, (vec![here; 2], vec![]));
    get(absent, QUIET);
    let ended = ends(&sides, (&[ReplyEnd], &[]));
    assert_eq!(ended, (vec![here], vec![]));
    // The pair goes on.
    put(a.source, LOUD);
    let ended = ends(&sides, (&[SendEnd, Ack], &[PutEnd]));
    assert_eq!(ended, (vec![NiFail::OK; 2], vec![NiFail::OK]));
}
