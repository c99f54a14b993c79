// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Remote memory (`fi_read`, `fi_write`).

use crate::abi::{Addr, Iovec, MsgRma, cap, errno};
use crate::ep::{EndpointFid, Which, refused};
use crate::info::INJECT;
use crate::messages::data_of;
use crate::ptr::{Outcome, buffer, buffers, entry, object, read as read_at};
use crate::table::Table;
use ofi_engine::Remote;
use ofi_engine::completion::flags;
use ofi_engine::memory::Buffer;
use std::ffi::c_void;
use std::sync::atomic::Ordering;

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

/// What is done, beside the memory here.
struct What {
    writes: bool,
    peer: Addr,
    remote: Remote,
    data: Option<u64>,
    /// None: those of the endpoint.
    flags: Option<u64>,
    /// None for an operation without a completion.
    context: Option<*mut c_void>,
}

/// # Safety
/// `ep` is null or an endpoint that the caller was given; `buffer` holds what [`buffer`] asks for.
unsafe fn go(ep: *mut c_void, buffer: Outcome<Buffer>, what: &What) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        let buffer = buffer?;
        let flags = what
            .flags
            .unwrap_or_else(|| ep.tx_flags.load(Ordering::Relaxed));
        let inject = what.writes && flags & cap::INJECT != 0;
        if inject && buffer.len() > INJECT as u64 {
            return Err(errno::MSGSIZE);
        }
        let peer = ep.process(what.peer)?;
        let done = if what.writes {
            let op = ep.op(Which::Write, what.context, flags, flags::RMA | flags::WRITE)?;
            let data = what.data.map(|data| data as u32);
            ep.endpoint
                .write(peer, what.remote, buffer, (data, inject), op)
        } else {
            let op = ep.op(Which::Read, what.context, flags, flags::RMA | flags::READ)?;
            ep.endpoint.read(peer, what.remote, buffer, op)
        };
        done.map(|()| 0).map_err(|why| refused(&why))
    })
}

const fn at(offset: u64, key: u64) -> Remote {
    Remote { offset, key }
}

// Each of the entries below gets what libfabric promises it: an endpoint that was opened here, memory that is lent until the
// operation's completion, and arrays of as many elements as are named.

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
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let what = What {
        writes: false,
        peer,
        remote: at(addr, key),
        data: None,
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
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
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(iov, count) };
    let what = What {
        writes: false,
        peer,
        remote: at(addr, key),
        data: None,
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
}

/// # Safety
/// `msg` is null or says what the caller wants.
unsafe fn by_message(ep: *mut c_void, msg: *const MsgRma, flags: u64, writes: bool) -> isize {
    // SAFETY: the condition above.
    let Some(msg) = (unsafe { read_at(msg) }) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller says there which memory of the peer it means.
    let remote = unsafe { read_at(msg.rma_iov) };
    let (1, Some(remote)) = (msg.rma_iov_count, remote) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(msg.iov, msg.iov_count) };
    let what = What {
        writes,
        peer: msg.addr,
        remote: at(remote.addr, remote.key),
        data: data_of(flags, msg.data),
        flags: Some(flags),
        context: Some(msg.context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
}

unsafe extern "C" fn readmsg(ep: *mut c_void, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the same arguments.
    unsafe { by_message(ep, msg, flags, false) }
}

unsafe extern "C" fn writemsg(ep: *mut c_void, msg: *const MsgRma, flags: u64) -> isize {
    // SAFETY: the same arguments.
    unsafe { by_message(ep, msg, flags, true) }
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
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let what = What {
        writes: true,
        peer,
        remote: at(addr, key),
        data: None,
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
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
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffers(iov, count) };
    let what = What {
        writes: true,
        peer,
        remote: at(addr, key),
        data: None,
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
}

unsafe extern "C" fn inject(
    ep: *mut c_void,
    buf: *const c_void,
    len: usize,
    peer: Addr,
    addr: u64,
    key: u64,
) -> isize {
    // SAFETY: the memory is copied before this returns.
    let buffer = unsafe { buffer(buf, len) };
    let what = What {
        writes: true,
        peer,
        remote: at(addr, key),
        data: None,
        flags: Some(cap::INJECT),
        context: None,
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
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
    // SAFETY: the caller lends the memory until the completion.
    let buffer = unsafe { buffer(buf, len) };
    let what = What {
        writes: true,
        peer,
        remote: at(addr, key),
        data: Some(data),
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
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
    // SAFETY: the memory is copied before this returns.
    let buffer = unsafe { buffer(buf, len) };
    let what = What {
        writes: true,
        peer,
        remote: at(addr, key),
        data: Some(data),
        flags: Some(cap::INJECT),
        context: None,
    };
    // SAFETY: the caller's endpoint.
    unsafe { go(ep, buffer, &what) }
}
