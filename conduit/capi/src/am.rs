// UNSAFETY: entries that C calls, pointers of the caller, and handlers, which are bare functions.
#![expect(
    unsafe_code,
    reason = "C calls these entries, and handlers are bare functions of C"
)]
//! Active messages: sending them, and calling handlers.
//!
//! The header turns a call with any number of arguments into one with an array. A handler is a C function of as many
//! arguments as the message has: the two sides agree on that by convention, as GASNet has it.

use conduit::{AmError, MAX_ARGS, Payload, SegInfo, Token, hsl};
use std::ffi::{c_int, c_void};

use crate::job::{BAD_ARG, NOT_INIT, OK};
use crate::state::{Endpoint, Phase, phase};
use crate::{lock, ptr, state};

/// A handler that runs, on its thread's stack. A token of a program is its address.
struct Frame {
    token: *mut c_void,
    /// Of the handler that this one interrupts on its thread, an address.
    outer: usize,
}

type Function = *mut c_void;

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
        unsafe fn call_short(f: Function, token: *mut c_void, a: &[i32]) {
            match a.len() {
                $($count => {
                    type F = unsafe extern "C" fn(*mut c_void $(, replace!($i, i32))*);
                    // SAFETY: the condition of this function.
                    let f = unsafe { std::mem::transmute::<Function, F>(f) };
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
        unsafe fn call_payload(f: Function, token: *mut c_void, p: *mut c_void, n: usize, a: &[i32]) {
            match a.len() {
                $($count => {
                    type F = unsafe extern "C" fn(*mut c_void, *mut c_void, usize $(, replace!($i, i32))*);
                    // SAFETY: the condition of this function.
                    let f = unsafe { std::mem::transmute::<Function, F>(f) };
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

/// A handler of a program, callable from every thread.
#[derive(Clone, Copy)]
struct Code(Function);

// SAFETY: the address of a function, which a GASNet program lets any of its threads run (specification, handlers).
unsafe impl Send for Code {}

impl Code {
    fn address(self) -> Function {
        self.0
    }
}

/// What the conduit runs for a handler of a program; `None` for NULL.
///
/// # Safety
/// `f` is null or a C function, of the kind and number of arguments that it is sent.
pub(crate) unsafe fn handler(
    f: Function,
) -> Option<impl Fn(&mut Token<'_>, Payload<'_>, &[i32]) + Send + 'static> {
    if f.is_null() {
        return None;
    }
    let code = Code(f);
    Some(
        move |token: &mut Token<'_>, payload: Payload<'_>, args: &[i32]| {
            let f = code.address();
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
            match payload {
                // SAFETY: a handler of what it is sent, by the condition of this function.
                Payload::None => unsafe { call_short(f, c_token, args) },
                Payload::Medium(bytes) => {
                    let (p, n) = (bytes.as_mut_ptr().cast(), bytes.len());
                    // SAFETY: as above; the buffer is the handler's until it returns.
                    unsafe { call_payload(f, c_token, p, n, args) }
                }
                Payload::Long { addr, len, .. } => {
                    let p = std::ptr::with_exposed_provenance_mut(addr as usize);
                    // SAFETY: as above; the payload is in the own segment.
                    unsafe { call_payload(f, c_token, p, len, args) }
                }
            }
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

/// The arguments of a message, or what is wrong with them.
///
/// # Safety
/// `args` is null or has `count` elements, if that is at most 16.
unsafe fn arguments<'a>(count: c_int, args: *const i32) -> Result<&'a [i32], &'static str> {
    let count = usize::try_from(count).ok().filter(|c| *c <= MAX_ARGS);
    match count {
        None => Err("the number of arguments is not 0 to 16"),
        Some(0) => Ok(&[]),
        Some(_) if args.is_null() => Err("no arguments"),
        // SAFETY: the condition of this function; not null.
        Some(count) => Ok(unsafe { std::slice::from_raw_parts(args, count) }),
    }
}

/// The arguments of a message with a payload, and its payload, or what is wrong with them.
///
/// # Safety
/// That of [`arguments`]; `source` is null or has `len` bytes that nobody changes while the result is in use.
unsafe fn contents<'a>(
    (count, args): (c_int, *const i32),
    (source, len): (*const c_void, usize),
) -> Result<(&'a [i32], &'a [u8]), &'static str> {
    if len > 0 && source.is_null() {
        return Err("no payload");
    }
    // SAFETY: the condition of this function.
    let args = unsafe { arguments(count, args) }?;
    // SAFETY: the condition of this function.
    Ok((args, unsafe { ptr::bytes(source, len) }))
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
///
/// # Safety
/// `args` is null or has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMRequestShort(
    node: u32,
    handler: u8,
    count: c_int,
    args: *const i32,
) -> c_int {
    // SAFETY: the condition of this function.
    let args = unsafe { arguments(count, args) };
    request("gasnet_AMRequestShort", args, |e, args| {
        e.am_request_short(node, handler, args)
    })
}

/// `gasnet_AMRequestMedium`.
///
/// # Safety
/// `args` is null or has `count` elements; `source` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMRequestMedium(
    node: u32,
    handler: u8,
    source: *const c_void,
    len: usize,
    count: c_int,
    args: *const i32,
) -> c_int {
    // SAFETY: the condition of this function.
    let contents = unsafe { contents((count, args), (source, len)) };
    request("gasnet_AMRequestMedium", contents, |e, (args, payload)| {
        e.am_request_medium(node, handler, payload, args)
    })
}

/// Where in the own segment `len` bytes at `source` are; `None` for no bytes, and where all memory is alike.
fn in_segment(own: SegInfo, source: *const c_void, len: usize) -> Option<usize> {
    if state::reach() == state::Reach::Everything {
        return None;
    }
    let offset = own.offset_of(ptr::address(source), len as u64)?;
    usize::try_from(offset).ok().filter(|_| len > 0)
}

/// A Long request.
///
/// # Safety
/// `args` is null or has `count` elements; `source` is null or has `len` bytes.
#[expect(
    clippy::too_many_arguments,
    reason = "those of the function of the specification"
)]
unsafe fn long(
    call: &str,
    node: u32,
    handler: u8,
    source: *const c_void,
    len: usize,
    dest: *const c_void,
    count: c_int,
    args: *const i32,
    sync: bool,
) -> c_int {
    // SAFETY: the condition of this function.
    let contents = unsafe { contents((count, args), (source, len)) };
    let dest = ptr::address(dest);
    request(call, contents, |e, (args, payload)| {
        match in_segment(e.segment(e.mynode()), source, len) {
            Some(at) if sync => e.am_request_long_from_segment(node, handler, at, len, dest, args),
            Some(at) => e.am_request_long_async_from_segment(node, handler, at, len, dest, args),
            None => e.am_request_long(node, handler, payload, dest, args),
        }
    })
}

/// `gasnet_AMRequestLong`.
///
/// # Safety
/// `args` is null or has `count` elements; `source` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMRequestLong(
    node: u32,
    handler: u8,
    source: *const c_void,
    len: usize,
    dest: *const c_void,
    count: c_int,
    args: *const i32,
) -> c_int {
    let call = "gasnet_AMRequestLong";
    // SAFETY: the condition of this function.
    unsafe { long(call, node, handler, source, len, dest, count, args, true) }
}

/// `gasnet_AMRequestLongAsync`.
///
/// # Safety
/// `args` is null or has `count` elements; `source` is null or has `len` bytes, which do not change until the reply.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMRequestLongAsync(
    node: u32,
    handler: u8,
    source: *const c_void,
    len: usize,
    dest: *const c_void,
    count: c_int,
    args: *const i32,
) -> c_int {
    let call = "gasnet_AMRequestLongAsync";
    // SAFETY: the condition of this function.
    unsafe { long(call, node, handler, source, len, dest, count, args, false) }
}

/// `gasnet_AMReplyShort`.
///
/// # Safety
/// `args` is null or has `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMReplyShort(
    token: *mut c_void,
    handler: u8,
    count: c_int,
    args: *const i32,
) -> c_int {
    // SAFETY: the condition of this function.
    let args = unsafe { arguments(count, args) };
    reply("gasnet_AMReplyShort", token, args, |t, args| {
        t.reply_short(handler, args)
    })
}

/// `gasnet_AMReplyMedium`.
///
/// # Safety
/// `args` is null or has `count` elements; `source` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMReplyMedium(
    token: *mut c_void,
    handler: u8,
    source: *const c_void,
    len: usize,
    count: c_int,
    args: *const i32,
) -> c_int {
    // SAFETY: the condition of this function.
    let contents = unsafe { contents((count, args), (source, len)) };
    reply(
        "gasnet_AMReplyMedium",
        token,
        contents,
        |t, (args, payload)| t.reply_medium(handler, payload, args),
    )
}

/// `gasnet_AMReplyLong`.
///
/// # Safety
/// `args` is null or has `count` elements; `source` is null or has `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasneti_AMReplyLong(
    token: *mut c_void,
    handler: u8,
    source: *const c_void,
    len: usize,
    dest: *const c_void,
    count: c_int,
    args: *const i32,
) -> c_int {
    // SAFETY: the condition of this function.
    let contents = unsafe { contents((count, args), (source, len)) };
    let dest = ptr::address(dest);
    reply(
        "gasnet_AMReplyLong",
        token,
        contents,
        |t, (args, payload)| {
            let own = t.conduit().segment(t.conduit().mynode());
            match in_segment(own, source, len) {
                Some(at) => t.reply_long_from_segment(handler, at, len, dest, args),
                None => t.reply_long(handler, payload, dest, args),
            }
        },
    )
}

/// `gasnet_AMGetMsgSource`.
///
/// # Safety
/// `source` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gasnet_AMGetMsgSource(token: *mut c_void, source: *mut u32) -> c_int {
    let Some(node) = with_token(token, |t| t.source()) else {
        state::explain("gasnet_AMGetMsgSource", &"bad token");
        return BAD_ARG;
    };
    if source.is_null() {
        state::explain("gasnet_AMGetMsgSource", &"bad src ptr");
        return BAD_ARG;
    }
    // SAFETY: not null, so it may be written by the condition of this function.
    unsafe { ptr::set(source, 0, node) };
    OK
}
