//! What a wait costs on fabrics whose ranks are threads of one process.

use fabric_testing::{Rank, entry, joined, spec, to, two_ranks};
use portals_shim::fabric;
use portals_shim::nal::shm;
use portals_shim::{AckRequest, EventKind, InsertPosition, MdMemory, Region, Unlink, Wait};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// How long nothing comes.
const IDLE: Duration = Duration::from_millis(500);
const BITS: u64 = 7;

/// Processor time of this thread.
fn used() -> Duration {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// What a call returns, after it has slept most of the time that it took.
fn asleep<T>(call: impl FnOnce() -> T) -> T {
    let (begun, before) = (Instant::now(), used());
    let result = call();
    let (took, used) = (begun.elapsed(), used() - before);
    assert!(took >= IDLE / 2, "{took:?}");
    assert!(used < took / 10, "{used:?} of {took:?}");
    result
}

/// Of two ranks one waits with a limit and one for ever: both sleep, and a message ends the sleep of the other.
fn both_sleep(r: &Rank<'_>) {
    let region = Region::new(8).unwrap();
    let me = r.ni.me_attach(4, entry(BITS), InsertPosition::After);
    let memory = spec(MdMemory::whole(&region), Some(r.eq));
    r.ni.md_attach(me.unwrap(), memory, Unlink::Retain).unwrap();
    r.meet();
    if r.number == 0 {
        let nanos = IDLE.as_nanos() as u64;
        let nothing = asleep(|| r.ni.eq_poll(&[r.eq], Wait::Nanos(nanos)).unwrap());
        assert_eq!(nothing.map(|p| p.event.kind), None);
        let md =
            r.ni.md_bind(spec(MdMemory::whole(&region), None), Unlink::Retain);
        r.ni.put(md.unwrap(), AckRequest::NoAck, to(r.peer, BITS, 0), 0)
            .unwrap();
    } else {
        let start = asleep(|| r.ni.eq_wait(r.eq).unwrap());
        assert_eq!(start.event.kind, EventKind::PutStart);
        assert_eq!(r.ni.eq_wait(r.eq).unwrap().event.kind, EventKind::PutEnd);
    }
    r.meet();
}

#[test]
fn a_wait_in_process_sleeps() {
    two_ranks(joined(fabric::in_process(2)), both_sleep);
}

#[test]
fn a_wait_over_shared_memory_sleeps() {
    let opened = fabric::interfaces(shm::in_threads(2).unwrap());
    two_ranks(joined(opened), both_sleep);
}
