//! What the tests of several fabrics share: descriptors that take everything, two ranks that are threads, an end for a run
//! in which a rank panics, and processes whose system calls fail.

use fabric_api::call::Target;
use fabric_api::config::FabricConfig;
use fabric_api::mode::Mode;
use portals_core::{Body, EqHandle, Header, MdOptions, MeSpec, ProcessId, Unlink};
use portals_shim::fabric::Opened;
use portals_shim::nal::seastar;
use portals_shim::{Interface, MdMemory, MdSpec};
use std::cell::Cell;
use std::io::Write;
use std::sync::{Barrier, Once};

thread_local! {
    /// Whether a panic of this thread ends the run.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Ends the whole test run when a rank panics: the others would wait for it for ever.
///
/// The panic is told on standard error itself: what the harness has captured goes with the process.
#[derive(Debug)]
pub struct EndOnPanic(());

impl EndOnPanic {
    /// The guard of a rank's thread.
    pub fn guard() -> EndOnPanic {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                if GUARDED.get() {
                    // Not `eprintln!`, which the harness captures.
                    let _ = writeln!(std::io::stderr(), "a rank {panic}");
                }
                usual(panic);
            }));
        });
        GUARDED.set(true);
        EndOnPanic(())
    }
}

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
        GUARDED.set(false);
    }
}

/// A rank of two, which are threads of one process.
#[derive(Debug)]
pub struct Rank<'a> {
    /// 0 or 1.
    pub number: usize,
    /// Its interface.
    pub ni: &'a Interface,
    /// A queue for 64 events.
    pub eq: EqHandle,
    /// The other rank.
    pub peer: ProcessId,
    barrier: &'a Barrier,
}

impl Rank<'_> {
    /// Waits for the other rank.
    pub fn meet(&self) {
        self.ni.outside(|| self.barrier.wait()).unwrap();
    }
}

/// Runs `rank` on two interfaces, each of which is opened in the thread that uses it.
pub fn two_ranks(opened: Vec<impl FnOnce() -> Opened + Send>, rank: impl Fn(&Rank<'_>) + Sync) {
    let (barrier, rank) = (&Barrier::new(2), &rank);
    std::thread::scope(|s| {
        for (number, join) in opened.into_iter().enumerate() {
            s.spawn(move || {
                let _guard = EndOnPanic::guard();
                let Opened { interface, peers } = join();
                let ni = &interface;
                rank(&Rank {
                    number,
                    ni,
                    eq: ni.eq_alloc(64).unwrap(),
                    peer: *peers.iter().find(|p| **p != ni.id()).unwrap(),
                    barrier,
                });
            });
        }
    });
}

/// Interfaces that are open, for [`two_ranks`].
pub fn joined(opened: Vec<Opened>) -> Vec<impl FnOnce() -> Opened + Send> {
    opened.into_iter().map(|o| move || o).collect()
}

/// Two interfaces of the SeaStar model that are still to join, for [`two_ranks`].
pub fn on_the_model(mode: Mode) -> Vec<impl FnOnce() -> Opened + Send> {
    let config = FabricConfig {
        mode,
        ..FabricConfig::default()
    };
    let waiting = seastar::in_threads_of(2, &config).unwrap();
    let join = |w: seastar::InThread| move || Opened::from(w.join().unwrap());
    waiting.into_iter().map(join).collect()
}

/// A message between two processes, on portal 4.
pub fn message(body: Body) -> Header {
    Header {
        target: ProcessId::new(1, 1),
        source: ProcessId::new(2, 1),
        uid: 0,
        jid: 0,
        pt_index: 4,
        match_bits: 0,
        body,
    }
}

/// A descriptor without a limit, for puts and gets at the offsets that their initiators name.
pub fn spec(memory: MdMemory, eq: Option<EqHandle>) -> MdSpec {
    MdSpec {
        memory,
        threshold: -1,
        max_size: 0,
        options: MdOptions::OP_PUT | MdOptions::OP_GET | MdOptions::MANAGE_REMOTE,
        user_ptr: 0,
        eq,
    }
}

/// An entry for messages of everybody with these bits.
pub fn entry(match_bits: u64) -> MeSpec {
    MeSpec {
        match_id: ProcessId::ANY,
        match_bits,
        ignore_bits: 0,
        unlink: Unlink::Retain,
    }
}

/// The entry of these bits on portal 4.
pub fn to(process: ProcessId, match_bits: u64, remote_offset: u64) -> Target {
    Target {
        process,
        pt_index: 4,
        ac_index: 0,
        match_bits,
        remote_offset,
    }
}

/// The device to test on; `None`, with a word about it, without one.
pub fn device() -> Option<String> {
    let device = std::env::var("PORTOLAN_TEST_DEVICE")
        .ok()
        .filter(|d| !d.is_empty());
    if device.is_none() {
        println!("skipped: no RDMA device (PORTOLAN_TEST_DEVICE is not set)");
    }
    // What goes wrong below is only logged.
    let _ = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .try_init();
    device
}

/// Marks the copy of a test whose system calls fail.
const DENIED: &str = "PORTOLAN_TEST_DENIED";

/// Whether this is a copy of `test`, the path of a test of this program, in which these system calls fail with `error` (`EPERM`).
/// The test itself runs that copy, which has to pass; without a C compiler it says so instead.
pub fn is_denied(error: &str, calls: &str, test: &str) -> bool {
    if std::env::var_os(DENIED).is_some() {
        return true;
    }
    let Some(deny) = deny::Deny::compile() else {
        return false;
    };
    let own = std::env::current_exe().expect("this test");
    let output = deny
        .command(error, calls)
        .arg(own)
        .args(["--exact", "--nocapture", test])
        .env(DENIED, "")
        .output()
        .expect("it was just made");
    let said = String::from_utf8_lossy(&output.stdout);
    let passed = output.status.success() && said.contains("1 passed");
    let more = String::from_utf8_lossy(&output.stderr);
    assert!(passed, "{calls}: {error}: {said}{more}");
    false
}
