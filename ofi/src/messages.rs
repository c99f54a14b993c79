// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Messages, with a tag (`fi_tsend`, `fi_trecv`) and without (`fi_send`, `fi_recv`).

use crate::abi::{Addr, Iovec, Msg, MsgTagged, cap, errno};
use crate::call::{Call, Lent};
use crate::ep::{EndpointFid, Which, refused};
use crate::object::object;
use crate::options::Kind;
use crate::ptr::{entry, read};
use crate::table::Table;
use ofi_engine::completion::flags;
use ofi_engine::{Message, Wanted};
use std::ffi::c_void;

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

const fn kind_of(tagged: bool) -> u64 {
    if tagged { flags::TAGGED } else { flags::MSG }
}

/// Sends a message, with a tag or without.
///
/// # Safety
/// `ep` is null or an endpoint that the caller was given; the memory is lent as [`Lent::buffer`] asks.
unsafe fn go(ep: *mut c_void, lent: Lent, tag: Option<u64>, call: Call) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        // SAFETY: the condition above.
        let buffer = unsafe { lent.buffer() }?;
        let flags = call.flags(&ep.tx_flags)?;
        let inject = flags & cap::INJECT != 0;
        let size = tag.map_or(Kind::Message, |_| Kind::Tagged);
        ep.options.bounded(size, buffer.len(), inject)?;
        let kind = flags::SEND | kind_of(tag.is_some());
        let op = ep.op(Which::Send, call.context, flags, kind)?;
        let message = Message {
            tag,
            data: call.data,
            inject,
        };
        let sent = ep
            .endpoint
            .send(ep.process(call.peer)?, message, buffer, op);
        sent.map(|()| 0).map_err(|why| refused(&why))
    })
}

/// Receives a message, with this tag but for the bits that do not matter, or one without a tag.
///
/// # Safety
/// Those of [`go`].
unsafe fn ask(ep: *mut c_void, lent: Lent, tag: Option<(u64, u64)>, call: Call) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        // SAFETY: the condition above.
        let buffer = unsafe { lent.buffer() };
        let tagged = tag.is_some();
        let (tag, ignore) = tag.unwrap_or((0, u64::MAX));
        let wanted = Wanted {
            from: ep.source(call.peer, tagged)?,
            tag,
            ignore,
        };
        let flags = call.flags(&ep.rx_flags)?;
        let kind = flags::RECV | kind_of(tagged);
        let op = ep.op(Which::Receive, call.context, flags, kind)?;
        if flags & (cap::PEEK | cap::CLAIM | cap::DISCARD) != 0 {
            let claimed = flags & cap::PEEK == 0;
            match flags & (cap::CLAIM | cap::DISCARD) {
                discard if discard & cap::DISCARD != 0 => {
                    ep.endpoint.discard(tagged, &wanted, claimed, op);
                }
                cap::CLAIM if claimed => {
                    let taken = ep.endpoint.take_claimed(tagged, &buffer?, op);
                    taken.map_err(|why| refused(&why))?;
                }
                claim => ep.endpoint.peek(tagged, &wanted, claim != 0, &op),
            }
            return Ok(0);
        }
        let many = flags & cap::MULTI_RECV != 0;
        let least = many.then(|| ep.options.least() as u64);
        ep.endpoint.receive(tagged, wanted, buffer?, least, op);
        Ok(0)
    })
}

/// What a call says that is described by a structure, if there is one.
///
/// # Safety
/// `msg` is null or such a structure.
unsafe fn described(msg: *const Msg, flags: u64) -> Option<(Lent, Call)> {
    // SAFETY: the condition above.
    let msg = unsafe { read(msg) }?;
    let call = Call::described(msg.addr, msg.context, flags, msg.data);
    Some((Lent::Pieces(msg.iov, msg.iov_count), call))
}

/// The same of a message with a tag, which comes last with the bits of it that do not matter.
///
/// # Safety
/// `msg` is null or such a structure.
unsafe fn described_tagged(msg: *const MsgTagged, flags: u64) -> Option<(Lent, Call, (u64, u64))> {
    // SAFETY: the condition above.
    let msg = unsafe { read(msg) }?;
    let call = Call::described(msg.addr, msg.context, flags, msg.data);
    let lent = Lent::Pieces(msg.iov, msg.iov_count);
    Some((lent, call, (msg.tag, msg.ignore)))
}

/// What an entry gives that is called without its structure.
const NOTHING_DESCRIBED: isize = -(errno::INVAL as isize);

// Each of the entries below gets what libfabric promises it: an endpoint that was opened here, and arrays of as many elements as
// are named. Memory is lent until the operation's completion, or until an inject returns.

unsafe extern "C" fn recv(
    ep: *mut c_void,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    from: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { ask(ep, Lent::Piece(buf, len), None, Call::new(from, context)) }
}

unsafe extern "C" fn recvv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    from: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { ask(ep, Lent::Pieces(iov, count), None, Call::new(from, context)) }
}

unsafe extern "C" fn recvmsg(ep: *mut c_void, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    match unsafe { described(msg, flags) } {
        // SAFETY: the caller's endpoint and memory.
        Some((lent, call)) => unsafe { ask(ep, lent, None, call) },
        None => NOTHING_DESCRIBED,
    }
}

unsafe extern "C" fn send(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    to: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), None, Call::new(to, context)) }
}

unsafe extern "C" fn sendv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    to: Addr,
    context: *mut c_void,
) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Pieces(iov, count), None, Call::new(to, context)) }
}

unsafe extern "C" fn sendmsg(ep: *mut c_void, msg: *const Msg, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    match unsafe { described(msg, flags) } {
        // SAFETY: the caller's endpoint and memory.
        Some((lent, call)) => unsafe { go(ep, lent, None, call) },
        None => NOTHING_DESCRIBED,
    }
}

unsafe extern "C" fn inject(ep: *mut c_void, buf: *const c_void, len: usize, to: Addr) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), None, Call::inject(to)) }
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
    let call = Call::new(to, context).with(data);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), None, call) }
}

unsafe extern "C" fn injectdata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: Addr,
) -> isize {
    let call = Call::inject(to).with(data);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), None, call) }
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
    let (lent, call) = (Lent::Piece(buf, len), Call::new(from, context));
    // SAFETY: the caller's endpoint and memory.
    unsafe { ask(ep, lent, Some((tag, ignore)), call) }
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
    let (lent, call) = (Lent::Pieces(iov, count), Call::new(from, context));
    // SAFETY: the caller's endpoint and memory.
    unsafe { ask(ep, lent, Some((tag, ignore)), call) }
}

unsafe extern "C" fn trecvmsg(ep: *mut c_void, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    match unsafe { described_tagged(msg, flags) } {
        // SAFETY: the caller's endpoint and memory.
        Some((lent, call, tag)) => unsafe { ask(ep, lent, Some(tag), call) },
        None => NOTHING_DESCRIBED,
    }
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
    let call = Call::new(to, context);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), Some(tag), call) }
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
    let call = Call::new(to, context);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Pieces(iov, count), Some(tag), call) }
}

unsafe extern "C" fn tsendmsg(ep: *mut c_void, msg: *const MsgTagged, flags: u64) -> isize {
    // SAFETY: the caller says there what it wants.
    match unsafe { described_tagged(msg, flags) } {
        // SAFETY: the caller's endpoint and memory.
        Some((lent, call, (tag, _))) => unsafe { go(ep, lent, Some(tag), call) },
        None => NOTHING_DESCRIBED,
    }
}

unsafe extern "C" fn tinject(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    to: Addr,
    tag: u64,
) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), Some(tag), Call::inject(to)) }
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
    let call = Call::new(to, context).with(data);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), Some(tag), call) }
}

unsafe extern "C" fn tinjectdata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    data: u64,
    to: Addr,
    tag: u64,
) -> isize {
    let call = Call::inject(to).with(data);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Lent::Piece(buf, len), Some(tag), call) }
}
