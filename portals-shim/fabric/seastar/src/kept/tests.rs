//! Which regions are kept, by weak counts of their owners.

use super::*;
use fabric_api::call::Polled;
use portals_core::{EqHandle, Event, Memory};

const ME: MeHandle = MeHandle::from_raw(0x4000_0003);

/// The handle of descriptor `number` in its life `life`.
const fn md(number: u32, life: u32) -> MdHandle {
    MdHandle::from_raw(0x8000_0000 | life << 17 | number)
}

fn desc(threshold: i32, region: &Region) -> MdDesc {
    MdDesc {
        memory: Memory::contiguous(region.addr(), region.len() as u64),
        threshold,
        max_size: 0,
        options: MdOptions::OP_PUT,
        user_ptr: 0,
        eq: None,
    }
}

fn bind(kept: &mut Kept, md: MdHandle, threshold: i32, len: usize) -> Region {
    let region = Region::new(len).unwrap();
    let call = Call::MdBind {
        desc: desc(threshold, &region),
        unlink: Unlink::Unlink,
    };
    kept.answered(Effect::of(&call, Some(&region)), &Answer::Md(md));
    region
}

fn done(kept: &mut Kept, call: &Call) {
    kept.answered(Effect::of(call, None), &Answer::Done);
}

#[test]
fn a_region_goes_with_its_descriptor_however_that_goes() {
    let mut kept = Kept::default();
    let unlinked = bind(&mut kept, md(0, 0), -1, 1);
    let closed = bind(&mut kept, md(1, 0), -1, 1);
    assert_eq!((unlinked.owners(), closed.owners()), (2, 2));
    done(&mut kept, &Call::MdUnlink(md(0, 1)));
    assert_eq!(unlinked.owners(), 2, "a handle of another life");
    done(&mut kept, &Call::MdUnlink(md(0, 0)));
    assert_eq!((unlinked.owners(), closed.owners()), (1, 2));

    let with_event = bind(&mut kept, md(0, 1), 1, 1);
    let event = Event {
        kind: EventKind::Unlink,
        md_handle: md(0, 1),
        ..Polled::default().event
    };
    let polled = Answer::Polled(Some(Polled {
        event,
        ..Polled::default()
    }));
    let poll = Call::EqPeek(EqHandle::from_raw(0));
    kept.answered(Effect::of(&poll, None), &polled);
    assert_eq!(with_event.owners(), 1);

    let reused = bind(&mut kept, md(0, 2), 1, 1);
    let next = bind(&mut kept, md(0, 3), 1, 1);
    assert_eq!((reused.owners(), next.owners()), (1, 2));

    let attached = Region::new(1).unwrap();
    let attach = Call::MdAttach {
        me: ME,
        desc: desc(-1, &attached),
        unlink: Unlink::Unlink,
    };
    let effect = Effect::of(&attach, Some(&attached));
    kept.answered(effect, &Answer::Md(md(2, 0)));
    done(&mut kept, &Call::MeUnlink(ME));
    assert_eq!(attached.owners(), 1);

    done(&mut kept, &Call::Close);
    assert_eq!((closed.owners(), next.owners()), (1, 1));
}

#[test]
fn memory_before_a_change_stays_while_it_may_be_in_use() {
    let mut kept = Kept::default();
    let mut before = bind(&mut kept, md(0, 0), -1, 1);
    for (in_use, expected) in [(true, 2), (false, 1)] {
        let after = Region::new(1).unwrap();
        update(&mut kept, md(0, 0), &after, in_use);
        assert_eq!((before.owners(), after.owners()), (expected, 2));
        before = after;
    }
    done(&mut kept, &Call::MdUnlink(md(0, 0)));
    assert_eq!(before.owners(), 1);
}

#[test]
fn what_may_have_ended_unseen_is_asked_for_when_it_is_much() {
    let mut kept = Kept::default();
    let len = usize::try_from(UNASKED).unwrap() / 4;
    let endless = bind(&mut kept, md(9, 0), -1, len * 8);
    let regions: Vec<Region> = (0..5)
        .map(|n| {
            assert!(kept.questions().is_empty(), "{n}");
            bind(&mut kept, md(n, 0), 1, len)
        })
        .collect();
    let asked = kept.questions();
    assert_eq!(asked, (0..5).map(|n| md(n, 0)).collect::<Vec<_>>());
    let answers = [Known::Gone, Known::Gone, Known::Gone, Known::Gone];
    let answers: Vec<_> = asked.iter().copied().zip(answers).collect();
    kept.answers(&answers);
    let owners: Vec<usize> = regions.iter().map(Region::owners).collect();
    assert_eq!(owners, [1, 1, 1, 1, 2]);
    assert!(kept.questions().is_empty());
    assert_eq!(endless.owners(), 2);
}

fn update(kept: &mut Kept, md: MdHandle, region: &Region, in_use: bool) {
    let call = Call::MdUpdate {
        md,
        new: desc(-1, region),
        test: None,
    };
    let snapshot = Answer::Snapshot(Polled::default().event.md, in_use);
    kept.answered(Effect::of(&call, Some(region)), &snapshot);
}

#[test]
fn changes_to_the_same_memory_keep_it_once() {
    let mut kept = Kept::default();
    let first = bind(&mut kept, md(0, 0), -1, 1);
    let second = Region::new(1).unwrap();
    for _ in 0..1_000 {
        update(&mut kept, md(0, 0), &first, true);
    }
    assert_eq!(first.owners(), 2);
    for _ in 0..1_000 {
        update(&mut kept, md(0, 0), &second, true);
        update(&mut kept, md(0, 0), &first, true);
    }
    assert_eq!((first.owners(), second.owners()), (3, 2));
    done(&mut kept, &Call::MdUnlink(md(0, 0)));
    assert_eq!((first.owners(), second.owners()), (1, 1));
}

/// Fresh memory for each change, of a descriptor that lasts: what it had before goes once no operation can touch it.
#[test]
fn memory_before_changes_is_asked_for_when_it_is_much() {
    let mut kept = Kept::default();
    let len = usize::try_from(UNASKED).unwrap() / 4;
    let mut weak = vec![bind(&mut kept, md(0, 0), -1, len).downgrade()];
    for _ in 0..4 {
        assert!(kept.questions().is_empty());
        let region = Region::new(len).unwrap();
        update(&mut kept, md(0, 0), &region, true);
        weak.push(region.downgrade());
    }
    let next = Region::new(len).unwrap();
    update(&mut kept, md(0, 0), &next, true);
    assert_eq!(kept.questions(), [md(0, 0)]);
    assert!(weak.iter().all(|region| region.owners() == 1));
    let snapshot = Polled::default().event.md;
    let in_use = Known::of(&Ok(Answer::Snapshot(snapshot, true)));
    kept.answers(&[(md(0, 0), in_use)]);
    assert!(weak.iter().all(|region| region.owners() == 1));
    let idle = Known::of(&Ok(Answer::Snapshot(snapshot, false)));
    kept.answers(&[(md(0, 0), idle)]);
    assert!(weak.iter().all(|region| region.owners() == 0));
    assert_eq!(next.owners(), 2);
    let gone = Known::of(&Err(Error::MdInvalid));
    kept.answers(&[(md(0, 0), gone)]);
    assert_eq!(next.owners(), 1);
}
