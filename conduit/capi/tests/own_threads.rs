// UNSAFETY: functions of the C interface.
#![expect(unsafe_code, reason = "functions that C programs call")]
//! What the library's own threads take away, while a thread of the program has the turn (`GASNET_PAR`). The process is a rank,
//! which ends as such: there is no harness.

use std::ffi::c_void;
use std::ptr::{null_mut, without_provenance_mut};
use std::sync::mpsc::channel;
use std::time::Duration;

use conduit::spawn_own_thread;
use gasnet_c::job::{gasnet_attach, gasnet_exit};
use gasnet_c::ptr::{ArrayMut, Count};
use gasnet_c::unmap::{mmap, munmap};
use gasnet_c::{Build, Endpoint, Mode, Reach, endpoint, init};

const PAGE: usize = 4096;

/// A page that nobody else knows.
fn page() -> *mut c_void {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: wherever the system likes.
    unsafe { mmap(null_mut(), PAGE, rights, flags, -1, 0) }
}

fn main() {
    // Memory is pinned where it is used, so that unmapping is looked at on every fabric.
    let build = Build {
        mode: Mode::Par,
        reach: Reach::Large,
        checked: false,
    };
    // SAFETY: no other thread has begun.
    unsafe { std::env::set_var("PORTOLAN_FABRIC", "shm") };
    assert_eq!(init(build, 0), 0);
    // SAFETY: no handlers.
    let table = unsafe { ArrayMut::new(null_mut()) };
    // SAFETY: as above.
    let count = unsafe { Count::new(0) };
    assert_eq!(gasnet_attach(table, count, PAGE, 0), 0);
    let Some(Endpoint::Shared(rank)) = endpoint() else {
        panic!("no endpoint for threads");
    };
    let (go, gone_on) = channel();
    let (tell, told) = channel();
    let page = page().expose_provenance();
    let unmap = move || {
        let mut told = tell.send(0);
        if gone_on.recv().is_ok() {
            // SAFETY: a page of this test.
            told = tell.send(unsafe { munmap(without_provenance_mut(page), PAGE) });
        }
        told
    };
    assert!(spawn_own_thread("own", unmap).is_ok());
    // It has begun: what the start of a thread maps is none of its own doing.
    assert_eq!(told.recv(), Ok(0));
    rank.with(|_| {
        assert!(go.send(()).is_ok());
        // It would wait for the end of this.
        assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(0));
    });
    println!("what the library's own threads unmap waits for no thread of the program: ok");
    gasnet_exit(0);
}
