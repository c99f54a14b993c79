// UNSAFETY: functions of the C interface.
#![expect(unsafe_code, reason = "functions that C programs call")]
//! The conduit of a program that was compiled for one thread (`GASNET_SEQ`) is that thread's alone. The process is a rank,
//! which ends as such: there is no harness.

use gasnet_c::job::gasnet_exit;
use gasnet_c::{Build, Endpoint, Mode, Reach, endpoint, init};

fn main() {
    let build = Build {
        mode: Mode::Seq,
        reach: Reach::Fast,
        checked: false,
    };
    // SAFETY: no other thread has begun.
    unsafe { std::env::set_var("PORTOLAN_FABRIC", "shm") };
    assert!(endpoint().is_none(), "before `gasnet_init`");
    assert_eq!(init(build, 0), 0);
    let is_here = || matches!(endpoint(), Some(Endpoint::Alone(_)));
    let elsewhere = std::thread::spawn(is_here).join();
    assert_eq!((is_here(), elsewhere.ok()), (true, Some(false)));
    println!("what is one thread's no other gets: ok");
    gasnet_exit(0);
}
