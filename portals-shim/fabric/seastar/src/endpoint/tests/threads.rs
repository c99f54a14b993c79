//! Endpoints of one process that several threads use.

use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// How long an endpoint may be silent: longer than any of this takes.
const LONG: Duration = Duration::from_secs(30);

/// A thread may be kept from calling by another one that waits, as by a lock that this one has. So what waits is not held up, though
/// another endpoint of the process has called last.
#[test]
fn a_wait_of_one_thread_ends_while_another_one_makes_no_call() {
    let served = Served::with(2, Placement::ONE, Some(LONG));
    let (one, other) = (served.join(1), served.join(1));
    one.meets(&other);
    other.meets(&one);
    let begun = AtomicBool::new(false);
    let before = Instant::now();
    std::thread::scope(|s| {
        let waits = s.spawn(|| {
            begun.store(true, Ordering::SeqCst);
            let millis = Wait::Nanos(20_000_000);
            assert!(one.ni.eq_poll(&[one.eq], millis).unwrap().is_none());
        });
        // The wait has begun, and this endpoint has called after that.
        let mut until = u64::MAX;
        while other.ni.now() < until {
            other.ni.status().unwrap();
            if until == u64::MAX && begun.load(Ordering::SeqCst) {
                until = other.ni.now() + 1_000_000;
            }
        }
        waits.join().unwrap();
    });
    assert!(before.elapsed() < LONG, "somebody lost patience");
    for end in [one, other] {
        end.ni.close().unwrap();
    }
    served.end().unwrap();
}
