// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! Puts, gets, memset.
//!
//! Local memory has `n` bytes, readable for a put and writable for a get. It stays so, unchanged by others, until the
//! specification of the call says that it is free. That is what the arguments' types promise.

use conduit::{Conduit, Counted, Handle, Near, RmaError};
use std::ffi::{c_int, c_void};

use crate::ptr::{Count, Dest, Incoming, Outgoing, Own, Remote, Source};
use crate::state::Phase;
use crate::{state, sync, trace};

/// The result of starting an operation.
pub(crate) fn started<R>(call: &str, result: Result<R, RmaError>) -> R {
    match result {
        Ok(value) => value,
        Err(error) => state::fatal(&format!("{call}: {error}")),
    }
}

/// A handle as C has it.
pub(crate) fn raw(handle: Handle) -> *mut c_void {
    std::ptr::without_provenance_mut(handle.into_raw() as usize)
}

/// In debug builds, that both addresses of a call without `bulk` suit an object of its size.
fn aligned(call: &str, len: usize, addresses: [u64; 2]) {
    if state::checked()
        && matches!(len, 2 | 4 | 8)
        && addresses.iter().any(|a| !a.is_multiple_of(len as u64))
    {
        state::fatal(&format!("{call}: an address is not a multiple of {len}"));
    }
}

/// A put or get that needs nothing but a bounds check and a copy.
#[inline]
fn is_copied(copy: impl FnOnce(&Near) -> bool) -> bool {
    state::near().is_some_and(copy)
}

/// Whether a call's memory at `node` is that of the own node and not looked at, as ranges of debug builds are.
pub(crate) fn is_own(node: u32) -> bool {
    // Up to the end: another thread may be about to end the process.
    node == state::me() && state::phase() >= Phase::Attached && !state::checked()
}

/// Memory that a call names, if it is of the own node and not looked at; null is looked at.
#[inline]
pub(crate) fn own(node: u32, there: Remote, n: Count) -> Option<Own> {
    there.own((node, state::me()), n).filter(|_| is_own(node))
}

/// A put to the own node's memory outside of its segment, which GASNet makes by a copy unless it is a debug build.
#[inline]
fn puts_own(node: u32, dest: Remote, from: Outgoing, n: Count) -> bool {
    let own = own(node, dest, n).filter(|_| !from.is_null());
    own.inspect(|own| own.put(from)).is_some()
}

/// A get from there.
#[inline]
fn gets_own(into: Incoming, node: u32, src: Remote, n: Count) -> bool {
    let own = own(node, src, n).filter(|_| !into.is_null());
    own.inspect(|own| own.get(into)).is_some()
}

macro_rules! puts {
    ($blocking:ident, $nb:ident, $nbi:ident, $bulk:literal, $names:expr) => {
        #[doc = concat!("`", stringify!($blocking), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $blocking(node: u32, dest: Remote, src: Source, n: Count) {
            let call = stringify!($blocking);
            let (to, from) = (dest.address(), src.of(n));
            if is_copied(|near| from.put_near(near, node, to)) {
                return;
            }
            if !$bulk {
                aligned(call, n.get(), [to, from.address()]);
            }
            trace::put($names[0], node, to, from);
            if puts_own(node, dest, from, n) {
                return;
            }
            let handle = state::attached(call, |c| from.put_awaited(c, node, to));
            sync::wait_handle(call, started(call, handle));
        }

        #[doc = concat!("`", stringify!($nb), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $nb(node: u32, dest: Remote, src: Source, n: Count) -> *mut c_void {
            let call = stringify!($nb);
            let (to, from) = (dest.address(), src.of(n));
            if is_copied(|near| from.put_near(near, node, to)) {
                return raw(Handle::DONE);
            }
            if !$bulk {
                aligned(call, n.get(), [to, from.address()]);
            }
            trace::put($names[1], node, to, from);
            if puts_own(node, dest, from, n) {
                return raw(Handle::DONE);
            }
            let handle = state::attached(call, |c| from.put_nb(c, node, to, $bulk));
            raw(started(call, handle))
        }

        #[doc = concat!("`", stringify!($nbi), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $nbi(node: u32, dest: Remote, src: Source, n: Count) {
            let call = stringify!($nbi);
            let (to, from) = (dest.address(), src.of(n));
            if is_copied(|near| from.put_near(near, node, to)) {
                return;
            }
            if !$bulk {
                aligned(call, n.get(), [to, from.address()]);
            }
            trace::put($names[2], node, to, from);
            if puts_own(node, dest, from, n) {
                return;
            }
            let result = state::attached_own(call, |c| from.put_nbi(c, node, to, $bulk));
            started(call, result);
        }
    };
}

macro_rules! gets {
    ($blocking:ident, $nb:ident, $nbi:ident, $bulk:literal, $names:expr) => {
        #[doc = concat!("`", stringify!($blocking), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $blocking(dest: Dest, node: u32, src: Remote, n: Count) {
            let call = stringify!($blocking);
            let (into, from) = (dest.of(n), src.address());
            if is_copied(|near| into.get_near(near, node, from)) {
                return;
            }
            if !$bulk {
                aligned(call, n.get(), [into.address(), from]);
            }
            trace::get($names[0], into, node, from);
            if gets_own(into, node, src, n) {
                return;
            }
            let handle = state::attached(call, |c| into.get_awaited(c, node, from));
            sync::wait_handle(call, started(call, handle));
        }

        #[doc = concat!("`", stringify!($nb), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $nb(dest: Dest, node: u32, src: Remote, n: Count) -> *mut c_void {
            let call = stringify!($nb);
            let (into, from) = (dest.of(n), src.address());
            if is_copied(|near| into.get_near(near, node, from)) {
                return raw(Handle::DONE);
            }
            if !$bulk {
                aligned(call, n.get(), [into.address(), from]);
            }
            trace::get($names[1], into, node, from);
            if gets_own(into, node, src, n) {
                return raw(Handle::DONE);
            }
            let handle = state::attached(call, |c| into.get_nb(c, node, from));
            raw(started(call, handle))
        }

        #[doc = concat!("`", stringify!($nbi), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $nbi(dest: Dest, node: u32, src: Remote, n: Count) {
            let call = stringify!($nbi);
            let (into, from) = (dest.of(n), src.address());
            if is_copied(|near| into.get_near(near, node, from)) {
                return;
            }
            if !$bulk {
                aligned(call, n.get(), [into.address(), from]);
            }
            trace::get($names[2], into, node, from);
            if gets_own(into, node, src, n) {
                return;
            }
            let result = state::attached_own(call, |c| into.get_nbi(c, node, from));
            started(call, result);
        }
    };
}

puts!(
    gasnet_put,
    gasnet_put_nb,
    gasnet_put_nbi,
    false,
    ["PUT", "PUT_NB", "PUT_NBI"]
);
puts!(
    gasnet_put_bulk,
    gasnet_put_nb_bulk,
    gasnet_put_nbi_bulk,
    true,
    ["PUT_BULK", "PUT_NB_BULK", "PUT_NBI_BULK"]
);
gets!(
    gasnet_get,
    gasnet_get_nb,
    gasnet_get_nbi,
    false,
    ["GET", "GET_NB", "GET_NBI"]
);
gets!(
    gasnet_get_bulk,
    gasnet_get_nb_bulk,
    gasnet_get_nbi_bulk,
    true,
    ["GET_BULK", "GET_NB_BULK", "GET_NBI_BULK"]
);

fn memset(
    (call, name): (&str, &'static str),
    counted: Counted,
    (node, dest, value, n): (u32, Remote, c_int, Count),
) -> Handle {
    let to = dest.address();
    trace::memset(name, node, to, n.get());
    let value = value as u8;
    if let Some(own) = own(node, dest, n) {
        own.fill(value);
        return Handle::DONE;
    }
    let set = |c: &Conduit| c.memset_quietly(node, to, value, n.get(), counted);
    started(call, state::attached_own(call, set))
}

/// `gasnet_memset`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_memset(node: u32, dest: Remote, value: c_int, n: Count) {
    let call = "gasnet_memset";
    let names = (call, "MEMSET");
    let handle = memset(names, Counted::Explicit, (node, dest, value, n));
    sync::wait_handle(call, handle);
}

/// `gasnet_memset_nb`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_memset_nb(node: u32, dest: Remote, value: c_int, n: Count) -> *mut c_void {
    let names = ("gasnet_memset_nb", "MEMSET_NB");
    raw(memset(names, Counted::Explicit, (node, dest, value, n)))
}

/// `gasnet_memset_nbi`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_memset_nbi(node: u32, dest: Remote, value: c_int, n: Count) {
    let names = ("gasnet_memset_nbi", "MEMSET_NBI");
    let handle = memset(names, Counted::Implicit, (node, dest, value, n));
    debug_assert_eq!(handle, Handle::DONE);
}
