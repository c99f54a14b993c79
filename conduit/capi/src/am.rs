// UNSAFETY: entries that C calls, and handlers, which are bare functions.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and handlers are bare functions of C"
)]
//! Active messages: sending them, and calling handlers.
//!
//! The header turns a call with any number of arguments into one with an array. A handler is a C function of as many
//! arguments as the message has: the two sides agree on that by convention, as GASNet has it.

use conduit::{AmError, FIRST_HANDLER, MAX_ARGS, Payload, SegInfo, Token, hsl};
use std::ffi::{c_int, c_void};

use crate::job::{BAD_ARG, NOT_INIT, OK};
use crate::ptr::{Array, Count, Elements, Out, Outgoing, Remote, Source, argument};
use crate::state::{Endpoint, Phase, phase};
use crate::{lock, state};

/// A handler that runs, on its thread's stack. A token of a program is its address.
struct Frame {
    token: *mut c_void,
    /// Of the handler that this one interrupts on its thread, an address.
    outer: usize,
}

/// A function of the program runs. The process ends by name where it does not return: an exception of C++, or the end of its
/// thread, would go through frames that have something to put back.
pub(crate) struct Running(&'static str);

impl Running {
    /// `what` is the subject of a sentence.
    pub(crate) fn begin(what: &'static str) -> Self {
        Self(what)
    }

    /// It has returned.
    pub(crate) fn returned(self) {
        std::mem::forget(self);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let what = self.0;
        state::fatal(&format!(
            "{what} has not returned: it let an exception pass, or ended its thread"
        ));
    }
}

macro_rules! replace {
    ($_:literal, $with:ty) => {
        $with
    };
}

macro_rules! arities {
    ($($count:literal: $($i:literal)*;)*) => {
        /// Calls the handler of a Short.
        ///
        /// # Safety
        /// `f` is a handler of a Short with as many arguments as `a` has.
        unsafe fn call_short(f: *mut c_void, token: *mut c_void, a: &[i32]) {
            match a.len() {
                $($count => {
                    type F = unsafe extern "C-unwind" fn(*mut c_void $(, replace!($i, i32))*);
                    // SAFETY: the condition of this function.
                    let f = unsafe { std::mem::transmute::<*mut c_void, F>(f) };
                    // SAFETY: as above.
                    unsafe { f(token $(, a[$i])*) }
                })*
                _ => {}
            }
        }

        /// Calls the handler of a Medium or Long.
        ///
        /// # Safety
        /// `f` is a handler of a Medium or Long with as many arguments as `a` has.
        unsafe fn call_payload(f: *mut c_void, token: *mut c_void, p: *mut c_void, n: usize, a: &[i32]) {
            match a.len() {
                $($count => {
                    type F = unsafe extern "C-unwind" fn(*mut c_void, *mut c_void, usize $(, replace!($i, i32))*);
                    // SAFETY: the condition of this function.
                    let f = unsafe { std::mem::transmute::<*mut c_void, F>(f) };
                    // SAFETY: as above.
                    unsafe { f(token, p, n $(, a[$i])*) }
                })*
                _ => {}
            }
        }
    };
}

arities! {
    0: ;
    1: 0;
    2: 0 1;
    3: 0 1 2;
    4: 0 1 2 3;
    5: 0 1 2 3 4;
    6: 0 1 2 3 4 5;
    7: 0 1 2 3 4 5 6;
    8: 0 1 2 3 4 5 6 7;
    9: 0 1 2 3 4 5 6 7 8;
    10: 0 1 2 3 4 5 6 7 8 9;
    11: 0 1 2 3 4 5 6 7 8 9 10;
    12: 0 1 2 3 4 5 6 7 8 9 10 11;
    13: 0 1 2 3 4 5 6 7 8 9 10 11 12;
    14: 0 1 2 3 4 5 6 7 8 9 10 11 12 13;
    15: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14;
    16: 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15;
}

argument! {
    /// A handler of a program, or null.
    Function(*mut c_void): "It is null or a C function, of the kind and number of arguments that it is sent"
}

// SAFETY: the address of a function, which a GASNet program lets any of its threads run (specification, handlers).
unsafe impl Send for Function {}

impl Function {
    /// Calls the handler of a message with what it was sent.
    fn call(self, token: *mut c_void, payload: Payload<'_>, args: &[i32]) {
        let (p, n) = match payload {
            // SAFETY: a handler of what it is sent: `new`.
            Payload::None => return unsafe { call_short(self.0, token, args) },
            // The buffer is the handler's until it returns.
            Payload::Medium(bytes) => (bytes.as_mut_ptr().cast(), bytes.len()),
            // The payload is in the own segment.
            Payload::Long { addr, len, .. } => {
                (std::ptr::with_exposed_provenance_mut(addr as usize), len)
            }
        };
        // SAFETY: as above.
        unsafe { call_payload(self.0, token, p, n, args) }
    }
}

/// What the conduit runs for a handler of a program; `None` for NULL.
pub(crate) fn handler(
    f: Function,
) -> Option<impl Fn(&mut Token<'_>, Payload<'_>, &[i32]) + Send + 'static> {
    if f.0.is_null() {
        return None;
    }
    Some(
        move |token: &mut Token<'_>, payload: Payload<'_>, args: &[i32]| {
            let mut frame = Frame {
                token: std::ptr::from_mut(token).cast(),
                outer: state::thread(|t| t.frame.get()),
            };
            let frame = &raw mut frame;
            let depth = state::thread(|t| {
                t.frame.set(frame.expose_provenance());
                t.handlers.replace(t.handlers.get() + 1)
            });
            let locks = hsl::held();
            let c_token = frame.cast::<c_void>();
            let running = Running::begin("a handler");
            f.call(c_token, payload, args);
            running.returned();
            lock::handler_returns(locks);
            // SAFETY: the frame is this function's, and handlers end in the order opposite to their start.
            let outer = unsafe { (*frame).outer };
            state::thread(|t| {
                t.handlers.set(depth);
                t.frame.set(outer);
            });
        },
    )
}

/// Runs `f` with the token of a handler that runs on this thread; `None` for anything else.
fn with_token<R>(token: *mut c_void, f: impl FnOnce(&mut Token<'_>) -> R) -> Option<R> {
    let mut at = state::thread(|t| t.frame.get());
    while at != 0 && at != token.addr() {
        let frame = std::ptr::with_exposed_provenance::<Frame>(at);
        // SAFETY: frames in the list are on this thread's stack, of handlers that run.
        at = unsafe { (*frame).outer };
    }
    if at == 0 {
        return None;
    }
    let frame = std::ptr::with_exposed_provenance::<Frame>(at);
    // SAFETY: the frame of a handler that runs.
    let inner = unsafe { (*frame).token };
    // SAFETY: that handler's token lives until it returns; the handler does nothing but this call.
    let token = unsafe { &mut *inner.cast::<Token<'_>>() };
    Some(f(token))
}

fn code(call: &str, result: Result<(), AmError>) -> c_int {
    match result {
        Ok(()) => OK,
        Err(error) => {
            state::explain(call, &error);
            match error {
                AmError::NotAttached => NOT_INIT,
                _ => BAD_ARG,
            }
        }
    }
}

/// The arguments of a message to a handler, or what is wrong with them. The lower indexes are those of handlers of the library.
fn arguments(
    handler: u8,
    count: Count<c_int>,
    args: Array<i32>,
) -> Result<Elements<i32>, &'static str> {
    if handler < FIRST_HANDLER {
        return Err("the handler index is not 128 to 255");
    }
    match count.checked().filter(|c| c.get() <= MAX_ARGS) {
        None => Err("the number of arguments is not 0 to 16"),
        Some(count) if count.get() > 0 && args.is_null() => Err("no arguments"),
        Some(count) => Ok(args.of(count)),
    }
}

/// The arguments of a message with a payload, and its payload, or what is wrong with them.
fn contents(
    handler: u8,
    (count, args): (Count<c_int>, Array<i32>),
    (source, len): (Source, Count),
) -> Result<(Elements<i32>, Outgoing), &'static str> {
    let payload = source.of(len);
    if payload.len() > isize::MAX as usize {
        return Err("nbytes too large");
    }
    if payload.len() > 0 && payload.is_null() {
        return Err("no payload");
    }
    Ok((arguments(handler, count, args)?, payload))
}

/// Sends a request of these contents.
fn request<A>(
    call: &str,
    contents: Result<A, &'static str>,
    send: impl FnOnce(&Endpoint, A) -> Result<(), AmError>,
) -> c_int {
    if phase() < Phase::Attached {
        state::explain(call, &"not attached");
        return NOT_INIT;
    }
    let contents = match contents {
        Ok(contents) => contents,
        Err(why) => {
            state::explain(call, &why);
            return BAD_ARG;
        }
    };
    if state::checked() {
        lock::may_communicate(call);
    }
    match state::held() {
        Some(endpoint) => code(call, send(endpoint, contents)),
        None => NOT_INIT,
    }
}

/// Sends a reply of these contents.
fn reply<A>(
    call: &str,
    token: *mut c_void,
    contents: Result<A, &'static str>,
    send: impl FnOnce(&mut Token<'_>, A) -> Result<(), AmError>,
) -> c_int {
    let contents = match contents {
        Ok(contents) => contents,
        Err(why) => {
            state::explain(call, &why);
            return BAD_ARG;
        }
    };
    if state::checked() {
        lock::may_reply(call);
    }
    match with_token(token, |t| send(t, contents)) {
        Some(result) => code(call, result),
        None => {
            state::explain(call, &"bad token");
            BAD_ARG
        }
    }
}

/// `gasnet_AMRequestShort`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMRequestShort(
    node: u32,
    handler: u8,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let args = arguments(handler, count, args);
    request("gasnet_AMRequestShort", args, |e, args| {
        e.am_request_short(node, handler, args.as_slice())
    })
}

/// `gasnet_AMRequestMedium`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMRequestMedium(
    node: u32,
    handler: u8,
    source: Source,
    len: Count,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let contents = contents(handler, (count, args), (source, len));
    request("gasnet_AMRequestMedium", contents, |e, (args, payload)| {
        e.am_request_medium(node, handler, payload.bytes(), args.as_slice())
    })
}

/// Where in the own segment a payload is ([`crate::Reach::offset_in`]).
fn in_segment(own: SegInfo, payload: Outgoing) -> Option<(usize, usize)> {
    state::reach().offset_in(own, payload.address(), payload.len())
}

/// A Long request.
#[expect(
    clippy::too_many_arguments,
    reason = "those of the function of the specification"
)]
fn long(
    call: &str,
    node: u32,
    handler: u8,
    source: Source,
    len: Count,
    dest: Remote,
    count: Count<c_int>,
    args: Array<i32>,
    sync: bool,
) -> c_int {
    let contents = contents(handler, (count, args), (source, len));
    let dest = dest.address();
    request(call, contents, |e, (args, payload)| {
        let args = args.as_slice();
        match in_segment(e.segment(e.mynode()), payload) {
            Some((at, len)) if sync => {
                e.am_request_long_from_segment(node, handler, at, len, dest, args)
            }
            Some((at, len)) => {
                e.am_request_long_async_from_segment(node, handler, at, len, dest, args)
            }
            None => e.am_request_long(node, handler, payload.bytes(), dest, args),
        }
    })
}

/// `gasnet_AMRequestLong`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMRequestLong(
    node: u32,
    handler: u8,
    source: Source,
    len: Count,
    dest: Remote,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let call = "gasnet_AMRequestLong";
    long(call, node, handler, source, len, dest, count, args, true)
}

/// `gasnet_AMRequestLongAsync`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMRequestLongAsync(
    node: u32,
    handler: u8,
    source: Source,
    len: Count,
    dest: Remote,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let call = "gasnet_AMRequestLongAsync";
    long(call, node, handler, source, len, dest, count, args, false)
}

/// `gasnet_AMReplyShort`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMReplyShort(
    token: *mut c_void,
    handler: u8,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let args = arguments(handler, count, args);
    reply("gasnet_AMReplyShort", token, args, |t, args| {
        t.reply_short(handler, args.as_slice())
    })
}

/// `gasnet_AMReplyMedium`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMReplyMedium(
    token: *mut c_void,
    handler: u8,
    source: Source,
    len: Count,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let contents = contents(handler, (count, args), (source, len));
    reply(
        "gasnet_AMReplyMedium",
        token,
        contents,
        |t, (args, payload)| t.reply_medium(handler, payload.bytes(), args.as_slice()),
    )
}

/// `gasnet_AMReplyLong`.
#[unsafe(no_mangle)]
pub extern "C" fn gasneti_AMReplyLong(
    token: *mut c_void,
    handler: u8,
    source: Source,
    len: Count,
    dest: Remote,
    count: Count<c_int>,
    args: Array<i32>,
) -> c_int {
    let contents = contents(handler, (count, args), (source, len));
    let dest = dest.address();
    reply(
        "gasnet_AMReplyLong",
        token,
        contents,
        |t, (args, payload)| {
            let own = t.conduit().segment(t.conduit().mynode());
            let args = args.as_slice();
            match in_segment(own, payload) {
                Some((at, len)) => t.reply_long_from_segment(handler, at, len, dest, args),
                None => t.reply_long(handler, payload.bytes(), dest, args),
            }
        },
    )
}

/// `gasnet_AMGetMsgSource`.
#[unsafe(no_mangle)]
pub extern "C" fn gasnet_AMGetMsgSource(token: *mut c_void, source: Out<u32>) -> c_int {
    let Some(node) = with_token(token, |t| t.source()) else {
        state::explain("gasnet_AMGetMsgSource", &"bad token");
        return BAD_ARG;
    };
    if !source.set(node) {
        state::explain("gasnet_AMGetMsgSource", &"bad src ptr");
        return BAD_ARG;
    }
    OK
}
