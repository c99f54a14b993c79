// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Messages, with a tag (`fi_tsend`, `fi_trecv`) and without (`fi_send`, `fi_recv`).

use crate::abi::{Addr, Iovec, Msg, MsgTagged, cap, errno};
use crate::ep::{EndpointFid, Which, refused};
use crate::info::INJECT;
use crate::ptr::{Outcome, buffer, buffers, entry, object, read};
use crate::table::Table;
use ofi_engine::completion::flags;
use ofi_engine::memory::Buffer;
use ofi_engine::{Message, Wanted};
use std::ffi::c_void;
use std::sync::atomic::Ordering;

pub(crate) static MSG: Table<9> = Table::new(&[
    (0, recv as *const c_void),
    (1, recvv as *const c_void),
    (2, recvmsg as *const c_void),
    (3, send as *const c_void),
    (4, sendv as *const c_void),
    (5, sendmsg as *const c_void),
    (6, inject as *const c_void),
    (7, senddata as *const c_void),
    (8, injectdata as *const c_void),
]);
pub(crate) static TAGGED: Table<9> = Table::new(&[
    (0, trecv as *const c_void),
    (1, trecvv as *const c_void),
    (2, trecvmsg as *const c_void),
    (3, tsend as *const c_void),
    (4, tsendv as *const c_void),
    (5, tsendmsg as *const c_void),
    (6, tinject as *const c_void),
    (7, tsenddata as *const c_void),
    (8, tinjectdata as *const c_void),
]);

/// How a message is sent, beside its bytes.
struct How {
    to: Addr,
    tag: Option<u64>,
    data: Option<u64>,
    flags: u64,
    /// None for a message without a completion.
    context: Option<*mut c_void>,
}

/// # Safety
/// `ep` is null or an endpoint that the caller was given; `buffer` holds what [`buffer`] asks for.
unsafe fn go(ep: *mut c_void, buffer: Outcome<Buffer>, how: &How) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        let buffer = buffer?;
        let inject = how.flags & cap::INJECT != 0;
        if inject && buffer.len() > INJECT as u64 {
            return Err(errno::MSGSIZE);
        }
        let kind = flags::SEND | kind_of(how.tag.is_some());
        let op = ep.op(Which::Send, how.context, how.flags, kind)?;
        let message = Message {
            tag: how.tag,
            data: how.data.map(|data| data as u32),
            inject,
        };
        let to = ep.process(how.to)?;
        let sent = ep.endpoint.send(to, message, buffer, op);
        sent.map(|()| 0).map_err(|why| refused(&why))
    })
}

const fn kind_of(tagged: bool) -> u64 {
    if tagged { flags::TAGGED } else { flags::MSG }
}

/// The flags of a send that has none of its own.
///
/// # Safety
/// `ep` is null or an endpoint that the caller was given.
unsafe fn tx_flags(ep: *mut c_void) -> u64 {
    // SAFETY: the condition above.
    let ep = unsafe { object::<EndpointFid>(ep) };
    ep.map_or(0, |ep| ep.tx_flags.load(Ordering::Relaxed))
}

/// The flags of a receive that has none of its own.
///
/// # Safety
/// `ep` is null or an endpoint that the caller was given.
unsafe fn rx_flags(ep: *mut c_void) -> u64 {
    // SAFETY: the condition above.
    let ep = unsafe { object::<EndpointFid>(ep) };
    ep.map_or(0, |ep| ep.rx_flags.load(Ordering::Relaxed))
}

/// What is received, beside the memory.
struct Asked {
    from: Addr,
    tag: Option<(u64, u64)>,
    flags: u64,
    context: *mut c_void,
}

/// # Safety
/// As for [`go`].
unsafe fn ask(ep: *mut c_void, buffer: Outcome<Buffer>, asked: &Asked) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        let tagged = asked.tag.is_some();
        let (tag, ignore) = asked.tag.unwrap_or((0, u64::MAX));
        let wanted = Wanted {
            from: ep.source(asked.from)?,
            tag,
            ignore,
        };
        let flags = asked.flags;
        let op = ep.op(
            Which::Receive,
            Some(asked.context),
            flags,
            flags::RECV | kind_of(tagged),
        )?;
        if tagged && flags & (cap::PEEK | cap::CLAIM | cap::DISCARD) != 0 {
            let claimed = flags & cap::PEEK == 0;
            match flags & (cap::CLAIM | cap::DISCARD) {
                discard if discard & cap::DISCARD != 0 => {
                    ep.endpoint.discard(true, &wanted, claimed, op);
                }
                cap::CLAIM if claimed => {
                    let taken = ep.endpoint.take_claimed(true, &buffer?, op);
                    taken.map_err(|why| refused(&why))?;
                }
                claim => ep.endpoint.peek(true, &wanted, claim != 0, &op),
            }
            return Ok(0);
        }
        let many = flags & cap::MULTI_RECV != 0;
        let least = many.then(|| ep.least.load(Ordering::Relaxed) as u64);
        ep.endpoint.receive(tagged, wanted, buffer?, least, op);
        Ok(0)
    })
}

// Each of the entries below gets what libfabric promises it: an endpoint that was opened here, memory that is lent until the
// operation's completion, and arrays of as many elements as are named.

unsafe extern "C" fn recv(
    ep: *mut c_void,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { rx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let asked = Asked {
        from,
        tag: None,
        flags,
        context,
    };
    // SAFETY: the caller's endpoint.
    unsafe { ask(ep, buffer, &asked) }
}

unsafe extern "C" fn recvv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { rx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(iov, count) };
    let asked = Asked {
        from,
        tag: None,
        flags,
        context,
    };
    // SAFETY: the caller's endpoint.
    unsafe { ask(ep, buffer, &asked) }
}

unsafe extern "C" fn recvmsg(ep: *mut c_void, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    let Some(msg) = (unsafe { read(msg) }) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(msg.iov, msg.iov_count) };
    let asked = Asked {
        from: msg.addr,
        tag: None,
        flags,
        context: msg.context,
    };
    // SAFETY: the caller's endpoint.
    unsafe { ask(ep, buffer, &asked) }
}

unsafe extern "C" fn send(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { tx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: None,
        data: None,
        flags,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn sendv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { tx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(iov, count) };
    let how = How {
        to,
        tag: None,
        data: None,
        flags,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

/// The data of a call, if its flags say that there is some.
pub(crate) fn data_of(flags: u64, data: u64) -> Option<u64> {
    (flags & cap::REMOTE_CQ_DATA != 0).then_some(data)
}

unsafe extern "C" fn sendmsg(ep: *mut c_void, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    let Some(msg) = (unsafe { read(msg) }) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(msg.iov, msg.iov_count) };
    let how = How {
        to: msg.addr,
        tag: None,
        data: data_of(flags, msg.data),
        flags,
        context: Some(msg.context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn inject(ep: *mut c_void, buf: *const c_void, len: usize, to: Addr) -> isize {
    // SAFETY: the memory is copied before this returns.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: None,
        data: None,
        flags: cap::INJECT,
        context: None,
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn senddata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { tx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: None,
        data: Some(data),
        flags,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn injectdata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: Addr,
) -> isize {
    // SAFETY: the memory is copied before this returns.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: None,
        data: Some(data),
        flags: cap::INJECT,
        context: None,
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn trecv(
    ep: *mut c_void,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: Addr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { rx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let asked = Asked {
        from,
        tag: Some((tag, ignore)),
        flags,
        context,
    };
    // SAFETY: the caller's endpoint.
    unsafe { ask(ep, buffer, &asked) }
}

unsafe extern "C" fn trecvv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: Addr,
    tag: u64,
    ignore: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { rx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(iov, count) };
    let asked = Asked {
        from,
        tag: Some((tag, ignore)),
        flags,
        context,
    };
    // SAFETY: the caller's endpoint.
    unsafe { ask(ep, buffer, &asked) }
}

unsafe extern "C" fn trecvmsg(ep: *mut c_void, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    let Some(msg) = (unsafe { read(msg) }) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(msg.iov, msg.iov_count) };
    let asked = Asked {
        from: msg.addr,
        tag: Some((msg.tag, msg.ignore)),
        flags,
        context: msg.context,
    };
    // SAFETY: the caller's endpoint.
    unsafe { ask(ep, buffer, &asked) }
}

unsafe extern "C" fn tsend(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: Addr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { tx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: Some(tag),
        data: None,
        flags,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn tsendv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: Addr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { tx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(iov, count) };
    let how = How {
        to,
        tag: Some(tag),
        data: None,
        flags,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn tsendmsg(ep: *mut c_void, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    let Some(msg) = (unsafe { read(msg) }) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(msg.iov, msg.iov_count) };
    let how = How {
        to: msg.addr,
        tag: Some(msg.tag),
        data: data_of(flags, msg.data),
        flags,
        context: Some(msg.context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn tinject(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    to: Addr,
    tag: u64,
) -> isize {
    // SAFETY: the memory is copied before this returns.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: Some(tag),
        data: None,
        flags: cap::INJECT,
        context: None,
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn tsenddata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    to: Addr,
    tag: u64,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint.
    let flags = unsafe { tx_flags(ep) };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: Some(tag),
        data: Some(data),
        flags,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}

unsafe extern "C" fn tinjectdata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: Addr,
    tag: u64,
) -> isize {
    // SAFETY: the memory is copied before this returns.
    let buffer = unsafe { buffer(buf, len) };
    let how = How {
        to,
        tag: Some(tag),
        data: Some(data),
        flags: cap::INJECT,
        context: None,
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &how) }
}
