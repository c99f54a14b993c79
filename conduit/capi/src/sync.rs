// UNSAFETY: entries that C calls.
#![expect(unsafe_code, reason = "C calls these entries")]
//! Waiting for operations.

use conduit::{Conduit, Handle};
use std::ffi::{c_int, c_void};

use crate::job::{NOT_READY, OK};
use crate::ptr::{ArrayMut, Count, ElementsMut};
use crate::{coll, rma, state, trace};

/// Waits for one operation.
pub(crate) fn wait_handle(call: &str, handle: Handle) {
    let raw = handle.into_raw();
    if raw != 0 {
        state::wait(call, |c| c.check_sync(Handle::from_raw(raw)).is_ok());
    }
}

/// Polls; always true.
fn poll(conduit: &Conduit) -> bool {
    conduit.poll();
    coll::progress(conduit);
    true
}

fn code(done: bool) -> c_int {
    if done { OK } else { NOT_READY }
}

/// A handle of a program.
fn handle(raw: *mut c_void) -> Handle {
    Handle::from_raw(raw.addr() as u64)
}

/// In debug builds, that a handle is one of an operation.
fn named(call: &str, raw: *mut c_void) {
    if state::checked() && !raw.is_null() && !state::attached(call, |c| c.is_open(&handle(raw))) {
        state::fatal(&format!(
            "{call}: {raw:p} is not the handle of an operation, or was synchronised before"
        ));
    }
}

/// That no access region is open, of whose operations the call would say nothing.
fn outside_of_region(call: &str, conduit: &Conduit) {
    if conduit.in_nbi_region() {
        state::fatal(&format!("{call} within an nbi access region"));
    }
}

/// `gasnet_wait_syncnb`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_wait_syncnb(raw: *mut c_void) {
    named("gasnet_wait_syncnb", raw);
    let since = trace::start();
    wait_handle("gasnet_wait_syncnb", handle(raw));
    trace::waited("WAIT_SYNCNB", since);
}

/// `gasnet_try_syncnb`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_try_syncnb(raw: *mut c_void) -> c_int {
    named("gasnet_try_syncnb", raw);
    let done = raw.is_null()
        || state::attached("gasnet_try_syncnb", |c| {
            poll(c) && c.check_sync(handle(raw)).is_ok()
        });
    trace::tried("TRY_SYNCNB", done);
    code(done)
}

/// `gasnet_try_syncnb_nopoll`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_try_syncnb_nopoll(raw: *mut c_void) -> c_int {
    named("gasnet_try_syncnb_nopoll", raw);
    let done = raw.is_null()
        || state::attached("gasnet_try_syncnb_nopoll", |c| {
            c.check_sync(handle(raw)).is_ok()
        });
    trace::tried("TRY_SYNCNB_NP", done);
    code(done)
}

/// What became of an array of handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Looked {
    completed: usize,
    left: usize,
}

impl Looked {
    fn some(self) -> bool {
        self.completed > 0 || self.left == 0
    }

    fn all(self) -> bool {
        self.left == 0
    }
}

/// Handles of the caller.
type Handles = ElementsMut<*mut c_void>;

/// The handles that a call names.
fn given(call: &str, handles: ArrayMut<*mut c_void>, count: Count) -> Handles {
    let handles = state::given(call, handles.given(count));
    if state::checked() {
        for raw in (0..handles.len()).filter_map(|i| handles.get(i)) {
            named(call, raw);
        }
    }
    handles
}

/// Replaces the handles of complete operations by `GASNET_INVALID_HANDLE`.
fn look(conduit: &Conduit, handles: &Handles) -> Looked {
    let mut looked = Looked {
        completed: 0,
        left: 0,
    };
    for i in 0..handles.len() {
        let Some(raw) = handles.get(i).filter(|raw| !raw.is_null()) else {
            continue;
        };
        if conduit.check_sync(handle(raw)).is_ok() {
            handles.set(i, std::ptr::null_mut());
            looked.completed += 1;
        } else {
            looked.left += 1;
        }
    }
    looked
}

/// Whether the operations are complete; replaces the handles of those that are, from the last on. A complete one leaves the
/// array and is not looked at again, so a wait for many looks at one of them in each turn.
fn all(conduit: &Conduit, handles: &mut Handles) -> bool {
    while let Some(last) = handles.len().checked_sub(1) {
        if let Some(raw) = handles.get(last).filter(|raw| !raw.is_null()) {
            if conduit.check_sync(handle(raw)).is_err() {
                return false;
            }
            handles.set(last, std::ptr::null_mut());
        }
        handles.drop_last();
    }
    true
}

/// Whether one of the operations is complete, or there is none.
fn some(conduit: &Conduit, handles: &mut Handles) -> bool {
    look(conduit, handles).some()
}

macro_rules! arrays {
    ($wait:ident, $try:ident, $enough:ident, $waited:literal, $tried:literal) => {
        #[doc = concat!("`", stringify!($wait), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $wait(handles: ArrayMut<*mut c_void>, count: Count) {
            let since = trace::start();
            let mut handles = given(stringify!($wait), handles, count);
            state::wait(stringify!($wait), |c| $enough(c, &mut handles));
            trace::waited($waited, since);
        }

        #[doc = concat!("`", stringify!($try), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $try(handles: ArrayMut<*mut c_void>, count: Count) -> c_int {
            let handles = given(stringify!($try), handles, count);
            let done = state::attached(stringify!($try), |c| {
                poll(c);
                look(c, &handles).$enough()
            });
            trace::tried($tried, done);
            code(done)
        }
    };
}

arrays!(
    gasnet_wait_syncnb_some,
    gasnet_try_syncnb_some,
    some,
    "WAIT_SYNCNB_SOME",
    "TRY_SYNCNB_SOME"
);
arrays!(
    gasnet_wait_syncnb_all,
    gasnet_try_syncnb_all,
    all,
    "WAIT_SYNCNB_ALL",
    "TRY_SYNCNB_ALL"
);

macro_rules! implicit {
    ($wait:ident, $try:ident, $puts:literal, $gets:literal, $waited:literal, $tried:literal) => {
        #[doc = concat!("`", stringify!($wait), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $wait() {
            let since = trace::start();
            state::wait(stringify!($wait), |c| {
                outside_of_region(stringify!($wait), c);
                c.check_nbi($puts, $gets)
            });
            trace::waited($waited, since);
        }

        #[doc = concat!("`", stringify!($try), "`.")]
        #[unsafe(no_mangle)]
        pub extern "C" fn $try() -> c_int {
            let done = state::attached(stringify!($try), |c| {
                poll(c);
                state::count_own(c);
                outside_of_region(stringify!($try), c);
                c.check_nbi($puts, $gets)
            });
            trace::tried($tried, done);
            code(done)
        }
    };
}

implicit!(
    gasnet_wait_syncnbi_puts,
    gasnet_try_syncnbi_puts,
    true,
    false,
    "WAIT_SYNCNBI_PUTS",
    "TRY_SYNCNBI_PUTS"
);
implicit!(
    gasnet_wait_syncnbi_gets,
    gasnet_try_syncnbi_gets,
    false,
    true,
    "WAIT_SYNCNBI_GETS",
    "TRY_SYNCNBI_GETS"
);
implicit!(
    gasnet_wait_syncnbi_all,
    gasnet_try_syncnbi_all,
    true,
    true,
    "WAIT_SYNCNBI_ALL",
    "TRY_SYNCNBI_ALL"
);

/// `gasnet_begin_nbi_accessregion`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_begin_nbi_accessregion() {
    let call = "gasnet_begin_nbi_accessregion";
    rma::started(call, state::attached_own(call, Conduit::begin_nbi_region));
}

/// `gasnet_end_nbi_accessregion`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_end_nbi_accessregion() -> *mut c_void {
    let call = "gasnet_end_nbi_accessregion";
    let handle = state::attached_own(call, Conduit::end_nbi_region);
    rma::raw(rma::started(call, handle))
}
