//! What a rank does that waits, on fabrics whose ranks are threads of one process.

use fabric_testing::{Rank, entry, joined, spec, to, two_ranks};
use host::ids::thread;
use portals_shim::fabric::{self, Opened};
use portals_shim::nal::shm;
use portals_shim::{AckRequest, EventKind, InsertPosition, MdMemory, Region, Unlink, Wait};
use std::sync::mpsc::channel;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(30);
const BITS: u64 = 7;

/// Returns when a thread of this process has been asleep at many looks in a row. One that polls is so at none, however little
/// of a processor it gets.
fn sleeps(tid: i32) {
    let stat = format!("/proc/self/task/{tid}/stat");
    let (begun, mut looks) = (Instant::now(), 0);
    while looks < 1000 {
        assert!(begun.elapsed() < LIMIT, "it does not sleep");
        let stat = std::fs::read_to_string(&stat).unwrap();
        let (_, state) = stat.rsplit_once(") ").unwrap();
        looks = if state.starts_with('S') { looks + 1 } else { 0 };
    }
}

/// One rank waits, with a limit and for ever: it sleeps, and a message of the other ends its sleep.
fn waits_sleep(opened: Vec<Opened>) {
    let (say, hear) = channel();
    let (say, hear) = (Mutex::new(say), Mutex::new(hear));
    two_ranks(joined(opened), |r: &Rank<'_>| {
        let region = Region::new(8).unwrap();
        let memory = spec(MdMemory::whole(&region), Some(r.eq));
        if r.number == 1 {
            let me = r.ni.me_attach(4, entry(BITS), InsertPosition::After);
            r.ni.md_attach(me.unwrap(), memory, Unlink::Retain).unwrap();
            let say = say.lock().unwrap_or_else(PoisonError::into_inner);
            say.send(thread().unwrap().as_raw_nonzero().get()).unwrap();
            let nanos = u64::try_from(LIMIT.as_nanos()).unwrap();
            for wait in [Wait::Nanos(nanos), Wait::Forever] {
                let begun = Instant::now();
                for kind in [EventKind::PutStart, EventKind::PutEnd] {
                    let polled = r.ni.eq_poll(&[r.eq], wait).unwrap();
                    assert_eq!(polled.map(|p| p.event.kind), Some(kind));
                }
                assert!(begun.elapsed() < LIMIT, "nothing has woken it");
                r.meet();
            }
        } else {
            let hear = hear.lock().unwrap_or_else(PoisonError::into_inner);
            let tid = hear.recv().unwrap();
            let md = r.ni.md_bind(memory, Unlink::Retain).unwrap();
            for _ in 0..2 {
                sleeps(tid);
                r.ni.put(md, AckRequest::NoAck, to(r.peer, BITS, 0), 0)
                    .unwrap();
                r.meet();
            }
        }
    });
}

#[test]
fn a_wait_in_process_sleeps() {
    waits_sleep(fabric::in_process(2));
}

#[test]
fn a_wait_over_shared_memory_sleeps() {
    waits_sleep(fabric::interfaces(shm::in_threads(2).unwrap()));
}
