//! How long regions stay mapped, on every fabric: as long as an operation may touch them, and no longer.

use fabric_testing::{Rank, device, entry, joined, on_the_model, spec, to, two_ranks};
use portals_shim::fabric;
use portals_shim::nal::seastar::Mode;
use portals_shim::nal::{shm, verbs};
use portals_shim::{
    AckRequest, ClockKind, EventKind, InsertPosition, MdHandle, MdMemory, MdOptions, MdSpec,
    Region, Unlink,
};

fn region() -> Region {
    Region::new(4096).unwrap()
}

/// What these tests do with a rank.
trait Descriptors {
    fn spec(&self, region: &Region, threshold: i32, options: MdOptions) -> MdSpec;
    fn bind(&self, region: &Region, threshold: i32, options: MdOptions) -> MdHandle;
    /// Takes events until one of this kind.
    fn until(&self, kind: EventKind);
    /// A descriptor on the list, for messages of these bits; the region has the length of the one message that it takes.
    fn receives(&self, bits: u64, region: &Region, threshold: i32, options: MdOptions);
}

impl Descriptors for Rank<'_> {
    fn spec(&self, region: &Region, threshold: i32, options: MdOptions) -> MdSpec {
        MdSpec {
            threshold,
            options,
            ..spec(MdMemory::whole(region), Some(self.eq))
        }
    }

    fn bind(&self, region: &Region, threshold: i32, options: MdOptions) -> MdHandle {
        let spec = self.spec(region, threshold, options);
        self.ni.md_bind(spec, Unlink::Unlink).unwrap()
    }

    fn until(&self, kind: EventKind) {
        while self.ni.eq_wait(self.eq).unwrap().event.kind != kind {}
    }

    fn receives(&self, bits: u64, region: &Region, threshold: i32, options: MdOptions) {
        let after = InsertPosition::After;
        let me = self.ni.me_attach(4, entry(bits), after).unwrap();
        let spec = self.spec(region, threshold, options);
        self.ni.md_attach(me, spec, Unlink::Unlink).unwrap();
    }
}

/// By calls.
fn unlinked(r: &Rank<'_>) {
    let (bound, attached, retained) = (region(), region(), region());
    let md = r.bind(&bound, -1, MdOptions::empty());
    assert_eq!(bound.owners(), 2);
    r.ni.md_unlink(md).unwrap();
    assert_eq!(bound.owners(), 1);

    let after = InsertPosition::After;
    for (region, unlink, left) in [
        (&attached, Unlink::Unlink, 1),
        (&retained, Unlink::Retain, 2),
    ] {
        let me = r.ni.me_attach(4, entry(77), after).unwrap();
        let spec = r.spec(region, -1, MdOptions::OP_PUT);
        let md = r.ni.md_attach(me, spec, unlink).unwrap();
        assert_eq!(region.owners(), 2);
        r.ni.me_unlink(me).unwrap();
        assert_eq!(region.owners(), left, "{unlink:?}");
        if left == 2 {
            r.ni.md_unlink(md).unwrap();
            assert_eq!(region.owners(), 1);
        }
    }

    let (first, second) = (region(), region());
    let md = r.bind(&first, -1, MdOptions::empty());
    let changed = r.spec(&second, -1, MdOptions::empty());
    r.ni.md_update(md, changed, Some(r.eq)).unwrap();
    assert_eq!((first.owners(), second.owners()), (1, 2));
    r.ni.md_unlink(md).unwrap();
    assert_eq!(second.owners(), 1);

    // Two descriptors over one, and one that is posted.
    let shared = region();
    let mds = [0, 1].map(|_| r.bind(&shared, -1, MdOptions::empty()));
    r.ni.md_unlink(mds[1]).unwrap();
    assert_eq!(shared.owners(), 2);
    let base = r.ni.me_attach(4, entry(78), after).unwrap();
    let spec = r.spec(&shared, 1, MdOptions::OP_PUT);
    let before = InsertPosition::Before;
    let posted =
        r.ni.me_md_post(base, entry(79), before, spec, Unlink::Unlink, None);
    let (me, _) = posted.unwrap();
    assert_eq!(shared.owners(), 3);
    r.ni.me_unlink(me).unwrap();
    r.ni.md_unlink(mds[0]).unwrap();
    assert_eq!(shared.owners(), 1);
    r.ni.me_unlink(base).unwrap();
}

/// By operations: puts, gets and what they reach, each with an UNLINK event and without.
fn spent(r: &Rank<'_>) {
    // Without an event nobody tells a library that is in another process.
    let told = r.ni.clock() == ClockKind::Virtual;
    for silent in [MdOptions::empty(), MdOptions::EVENT_AUTO_UNLINK_DISABLE] {
        let silent_end = !silent.is_empty();
        let most = if told && silent_end { 2 } else { 1 };
        let last = |end| if silent_end { end } else { EventKind::Unlink };
        let (put_to, get_from) = (region(), region());
        r.receives(1, &put_to, 1, MdOptions::OP_PUT | silent);
        r.receives(2, &get_from, 1, MdOptions::OP_GET | silent);
        assert_eq!((put_to.owners(), get_from.owners()), (2, 2));
        r.meet();

        // One after the other: a queue's events of several would come in any order.
        let (source, landing) = (region(), region());
        for (bits, region, own) in [(1, &put_to, &source), (2, &get_from, &landing)] {
            for active in [true, false] {
                if active == (r.ni.id() < r.peer) {
                    let threshold = 1;
                    let md = r.bind(own, threshold, silent);
                    let target = to(r.peer, bits, 0);
                    if bits == 1 {
                        r.ni.put(md, AckRequest::NoAck, target, 0).unwrap();
                        r.until(last(EventKind::SendEnd));
                    } else {
                        r.ni.get(md, target).unwrap();
                        r.until(last(EventKind::ReplyEnd));
                    }
                    assert!(own.owners() <= most, "{bits} {silent:?}");
                } else {
                    let end = [EventKind::PutEnd, EventKind::GetEnd][bits as usize - 1];
                    r.until(last(end));
                    assert!(region.owners() <= most, "{bits} {silent:?}");
                }
                r.meet();
            }
        }
        // More descriptors than there are numbers that are given in turn.
        if most == 2 {
            for _ in 0..300 {
                let md = r.bind(&region(), -1, MdOptions::empty());
                r.ni.md_unlink(md).unwrap();
            }
        }
        for region in [put_to, get_from, source, landing] {
            assert_eq!(region.owners(), 1, "{silent:?}");
        }
    }
}

fn both(r: &Rank<'_>) {
    unlinked(r);
    spent(r);
    let left = region();
    r.bind(&left, -1, MdOptions::empty());
    assert_eq!(left.owners(), 2);
    r.meet();
    r.ni.close().unwrap();
    assert_eq!(left.owners(), 1);
}

#[test]
fn regions_are_freed_in_process() {
    two_ranks(joined(fabric::in_process(2)), both);
}

#[test]
fn regions_are_freed_over_shared_memory() {
    two_ranks(
        joined(fabric::interfaces(shm::in_threads(2).unwrap())),
        both,
    );
}

#[test]
fn regions_are_freed_on_the_model() {
    for mode in [Mode::Generic, Mode::Accelerated] {
        two_ranks(on_the_model(mode), both);
    }
}

#[test]
fn device_regions_are_freed() {
    if let Some(device) = device() {
        let opened = verbs::in_threads(2, Some(&device)).unwrap();
        two_ranks(joined(fabric::interfaces(opened)), both);
    }
}

#[test]
fn an_interface_that_is_dropped_frees_its_regions() {
    let region = region();
    let opened = fabric::in_process(1).remove(0);
    let bound = spec(MdMemory::whole(&region), None);
    opened.interface.md_bind(bound, Unlink::Retain).unwrap();
    assert_eq!(region.owners(), 2);
    drop(opened);
    assert_eq!(region.owners(), 1);
}
