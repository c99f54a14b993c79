// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Remote memory (`fi_read`, `fi_write`).

use crate::abi::{Addr, Iovec, MsgRma, cap, errno};
use crate::call::{Call, Lent};
use crate::ep::{EndpointFid, Which, refused};
use crate::object::object;
use crate::options::Kind;
use crate::ptr::{entry, read as read_at};
use crate::table::Table;
use ofi_engine::Remote;
use ofi_engine::completion::flags;
use std::ffi::c_void;

pub(crate) static RMA: Table<9> = Table::new(&[
    (0, read as *const c_void),
    (1, readv as *const c_void),
    (2, readmsg as *const c_void),
    (3, write as *const c_void),
    (4, writev as *const c_void),
    (5, writemsg as *const c_void),
    (6, inject as *const c_void),
    (7, writedata as *const c_void),
    (8, injectdata as *const c_void),
]);

/// Which way the bytes go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

const fn at(offset: u64, key: u64) -> Remote {
    Remote { offset, key }
}

/// # Safety
/// `ep` is null or an endpoint that the caller was given; the memory is lent as [`Lent::buffer`] asks.
unsafe fn go(ep: *mut c_void, way: Way, lent: Lent, remote: Remote, call: Call) -> isize {
    // SAFETY: the condition above.
    unsafe { go_over(ep, way, lent, (remote, None), call) }
}

/// The same for a caller that may say how many bytes of the peer's memory it means, which are as many as its own.
///
/// # Safety
/// As for [`go`].
unsafe fn go_over(
    ep: *mut c_void,
    way: Way,
    lent: Lent,
    (remote, len): (Remote, Option<usize>),
    call: Call,
) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        // SAFETY: the condition above.
        let buffer = unsafe { lent.buffer() }?;
        if len.is_some_and(|len| len as u64 != buffer.len()) {
            return Err(errno::INVAL);
        }
        let flags = call.flags(&ep.tx_flags)?;
        let inject = way == Way::Write && flags & cap::INJECT != 0;
        ep.options.bounded(Kind::Remote, buffer.len(), inject)?;
        let peer = ep.process(call.peer)?;
        let op = |which, kind| ep.op(which, call.context, flags, flags::RMA | kind);
        let done = match way {
            Way::Write => {
                let op = op(Which::Write, flags::WRITE)?;
                ep.endpoint
                    .write(peer, remote, buffer, (call.data, inject), op)
            }
            Way::Read => ep
                .endpoint
                .read(peer, remote, buffer, op(Which::Read, flags::READ)?),
        };
        done.map(|()| 0).map_err(|why| refused(&why))
    })
}

/// # Safety
/// `msg` is null or says what the caller wants; otherwise as for [`go`].
unsafe fn described(ep: *mut c_void, way: Way, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the condition above.
    let msg = unsafe { read_at(msg) };
    // SAFETY: the caller says there which memory of the peer it means.
    let remote = msg.and_then(|msg| unsafe { read_at(msg.rma_iov) });
    let (Some(msg), Some(remote)) = (msg.filter(|msg| msg.rma_iov_count == 1), remote) else {
        return -(errno::INVAL as isize);
    };
    let lent = Lent::Pieces(msg.iov, msg.iov_count);
    let call = Call::described(msg.addr, msg.context, flags, msg.data);
    let there = (at(remote.addr, remote.key), Some(remote.len));
    // SAFETY: the condition above.
    unsafe { go_over(ep, way, lent, there, call) }
}

// Each of the entries below gets what libfabric promises it: an endpoint that was opened here, and arrays of as many elements as
// are named. Memory is lent until the operation's completion, or until an inject returns.

unsafe extern "C" fn read(
    ep: *mut c_void,
    buf: *mut c_void,
    len: usize,
    _desc: *mut c_void,
    peer: Addr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (lent, call) = (Lent::Piece(buf, len), Call::new(peer, context));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Read, lent, at(addr, key), call) }
}

unsafe extern "C" fn readv(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: Addr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (lent, call) = (Lent::Pieces(iov, count), Call::new(peer, context));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Read, lent, at(addr, key), call) }
}

unsafe extern "C" fn readmsg(ep: *mut c_void, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the same arguments.
    unsafe { described(ep, Way::Read, msg, flags) }
}

unsafe extern "C" fn write(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    peer: Addr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (lent, call) = (Lent::Piece(buf, len), Call::new(peer, context));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Write, lent, at(addr, key), call) }
}

unsafe extern "C" fn writev(
    ep: *mut c_void,
    iov: *const Iovec,
    _desc: *mut *mut c_void,
    count: usize,
    peer: Addr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (lent, call) = (Lent::Pieces(iov, count), Call::new(peer, context));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Write, lent, at(addr, key), call) }
}

unsafe extern "C" fn writemsg(ep: *mut c_void, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the same arguments.
    unsafe { described(ep, Way::Write, msg, flags) }
}

unsafe extern "C" fn inject(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    peer: Addr,
    addr: u64,
    key: u64,
) -> isize {
    let (lent, call) = (Lent::Piece(buf, len), Call::inject(peer));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Write, lent, at(addr, key), call) }
}

unsafe extern "C" fn writedata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    _desc: *mut c_void,
    data: u64,
    peer: Addr,
    addr: u64,
    key: u64,
    context: *mut c_void,
) -> isize {
    let (lent, call) = (Lent::Piece(buf, len), Call::new(peer, context).with(data));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Write, lent, at(addr, key), call) }
}

unsafe extern "C" fn injectdata(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    data: u64,
    peer: Addr,
    addr: u64,
    key: u64,
) -> isize {
    let (lent, call) = (Lent::Piece(buf, len), Call::inject(peer).with(data));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Way::Write, lent, at(addr, key), call) }
}
