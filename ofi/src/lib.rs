// UNSAFETY: libfabric finds this provider by the name of a function, and C gets a structure that lives for ever.
#![expect(
    unsafe_code,
    reason = "exports a function by its name, and hands out a structure"
)]
//! A libfabric provider over Portals: MPI, OpenSHMEM and every other libfabric program on shared memory, on RDMA verbs and on the
//! SeaStar model.
//!
//! ```text
//!   MPI ── libfabric ── libportolan_fi.so: C structures, pointers, errors       this crate
//!                        └── ofi-engine: messages, matching, remote memory      safe Rust
//!                             └── portals-shim: an endpoint that belongs to no job
//! ```
//!
//! | file | has |
//! |---|---|
//! | `info.rs` | what is offered to whom (`fi_getinfo`) |
//! | `fabric.rs`, `domain.rs`, `av.rs`, `cq.rs`, `cntr.rs`, `eq.rs`, `poll.rs`, `ep.rs`, `mr.rs` | the objects, by their names in libfabric; `object.rs`: what they have in common |
//! | `open.rs` | how a program comes from one object to the next |
//! | `options.rs` | sizes of an endpoint that a program may lower |
//! | `messages.rs`, `rma.rs`, `atomic.rs` | the operations; `call.rs`: what they have in common |
//! | `progress.rs`, `wait.rs` | who drives endpoints; how programs sleep |
//! | `abi.rs`, `table.rs` | libfabric's structures and tables |
//! | `loader.rs` | the libfabric that has loaded this provider |
//! | `ptr.rs` | a C caller's pointers |
//!
//! Every entry checks its object and its pointers for NULL and for their class, and gives an error of libfabric; none unwinds
//! into C. Any thread may call every entry, as for `FI_THREAD_SAFE`.

mod abi;
mod atomic;
mod av;
mod call;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod info;
mod loader;
mod messages;
mod mr;
mod names;
mod object;
mod open;
mod options;
mod poll;
mod progress;
mod ptr;
mod rma;
mod table;
#[cfg(test)]
mod testing;
mod wait;

pub use abi::Provider;
use std::ffi::c_void;

/// What libfabric calls as the process ends.
extern "C" fn cleanup() {
    ptr::entry(|| {
        progress::Users::leave();
        Ok(0)
    });
}

/// Says what goes wrong, and with `FI_LOG_LEVEL` more.
fn begin_log() {
    let level = std::env::var("FI_LOG_LEVEL").unwrap_or_default();
    let level = match level.to_ascii_lowercase().as_str() {
        "trace" => tracing::Level::TRACE,
        "debug" => tracing::Level::DEBUG,
        "info" => tracing::Level::INFO,
        _ => tracing::Level::WARN,
    };
    // A program may have a log of its own.
    let _ = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .try_init();
}

/// What libfabric calls when it has loaded this library.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut Provider {
    begin_log();
    if let Err(error) = host::fork::watch() {
        tracing::warn!(%error, "forked children are not noticed");
    }
    // One for each libfabric in the process: it writes into its own.
    let provider = Provider {
        version: info::VERSION,
        fi_version: loader::version(),
        context: [std::ptr::null_mut(); 4],
        name: c"portolan".as_ptr(),
        getinfo: info::getinfo as *const c_void,
        fabric: open::open_fabric as *const c_void,
        cleanup: cleanup as *const c_void,
    };
    let made = Box::into_raw(Box::new(provider));
    loader::define(made);
    made
}
