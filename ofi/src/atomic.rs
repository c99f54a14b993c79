// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Atomic operations (`fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic`).

use crate::abi::{Addr, AtomicAttr, Ioc, Iovec, MsgAtomic, cap, errno};
use crate::ep::{EndpointFid, Which, refused};
use crate::ptr::{Out, Outcome, buffers, entry, entry_int, object, read};
use crate::table::Table;
use ofi_engine::atomic::{Datatype, Form, Operation};
use ofi_engine::completion::flags;
use ofi_engine::memory::{Buffer, MOST_PIECES};
use ofi_engine::{AtomicCall, Remote};
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering;

pub(crate) static ATOMIC: Table<13> = Table::new(&[
    (0, write as *const c_void),
    (1, writev as *const c_void),
    (2, writemsg as *const c_void),
    (3, inject as *const c_void),
    (4, readwrite as *const c_void),
    (5, readwritev as *const c_void),
    (6, readwritemsg as *const c_void),
    (7, compwrite as *const c_void),
    (8, compwritev as *const c_void),
    (9, compwritemsg as *const c_void),
    (10, writevalid as *const c_void),
    (11, readwritevalid as *const c_void),
    (12, compwritevalid as *const c_void),
]);

/// Operands of a call, in elements.
#[derive(Clone, Copy)]
struct Elements {
    iov: *const Ioc,
    count: usize,
}

/// Elements in one piece.
fn piece(addr: *const c_void, count: usize) -> Ioc {
    Ioc {
        addr: addr.cast_mut(),
        count,
    }
}

/// A call, whose operands are described in elements.
struct What {
    peer: Addr,
    remote: Remote,
    datatype: c_int,
    operation: c_int,
    /// None: those of the endpoint.
    flags: Option<u64>,
    /// None for an operation without a completion.
    context: Option<*mut c_void>,
}

/// # Safety
/// The elements are null or so many; until the completion of the operation each piece may be read, and that of a result be
/// written.
unsafe fn memory(elements: Elements, size: usize) -> Outcome<Buffer> {
    if elements.count > MOST_PIECES || (elements.iov.is_null() && elements.count > 0) {
        return Err(errno::INVAL);
    }
    let mut pieces = Vec::with_capacity(elements.count);
    for index in 0..elements.count {
        // SAFETY: there are so many pieces, by the condition above.
        let ioc = unsafe { read(elements.iov.wrapping_add(index)) }.ok_or(errno::INVAL)?;
        pieces.push(Iovec {
            base: ioc.addr,
            len: ioc.count.checked_mul(size).ok_or(errno::INVAL)?,
        });
    }
    // SAFETY: the condition above.
    unsafe { buffers(pieces.as_ptr(), pieces.len()) }
}

/// # Safety
/// `ep` is null or an endpoint that the caller was given; of the elements holds what [`memory`] asks for.
unsafe fn go(
    ep: *mut c_void,
    operand: Elements,
    compare: Option<Elements>,
    result: Option<Elements>,
    what: &What,
) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        let (datatype, operation) = named(what.datatype, what.operation)?;
        let size = datatype.size();
        // An operand that is not needed may be anything.
        let operand = match operation {
            Operation::Read => Buffer::default(),
            // SAFETY: the condition above.
            _ => unsafe { memory(operand, size) }?,
        };
        // SAFETY: the condition above.
        let of = |elements: Elements| unsafe { memory(elements, size) };
        let call = AtomicCall {
            datatype,
            operation,
            compare: compare.map(of).transpose()?,
            result: result.map(of).transpose()?,
        };
        let flags = what
            .flags
            .unwrap_or_else(|| ep.tx_flags.load(Ordering::Relaxed));
        let (which, kind) = match call.result {
            Some(_) => (Which::Read, flags::READ),
            None => (Which::Write, flags::WRITE),
        };
        let op = ep.op(which, what.context, flags, cap::ATOMIC | kind)?;
        let peer = ep.process(what.peer)?;
        let done = ep.endpoint.atomic(peer, what.remote, &operand, call, op);
        done.map(|()| 0).map_err(|why| refused(&why))
    })
}

fn named(datatype: c_int, operation: c_int) -> Outcome<(Datatype, Operation)> {
    let datatype = u32::try_from(datatype).ok().and_then(Datatype::of);
    let operation = u32::try_from(operation).ok().and_then(Operation::of);
    datatype.zip(operation).ok_or(errno::OPNOTSUPP)
}

const fn at(offset: u64, key: u64) -> Remote {
    Remote { offset, key }
}

const fn one(ioc: &Ioc) -> Elements {
    Elements {
        iov: std::ptr::from_ref(ioc),
        count: 1,
    }
}

// Each of the entries below gets what libfabric promises it: an endpoint that was opened here, memory that is lent until the
// operation's completion, and arrays of as many elements as are named.

unsafe extern "C" fn write(
    ep: *mut c_void,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, one(&piece(buf, count)), None, None, &what) }
}

unsafe extern "C" fn writev(
    ep: *mut c_void,
    iov: *const Ioc,
    _desc: *mut *mut c_void,
    count: usize,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: None,
        context: Some(context),
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Elements { iov, count }, None, None, &what) }
}

/// # Safety
/// As for [`go`]; `msg` is null or says what the caller wants.
unsafe fn by_message(
    ep: *mut c_void,
    msg: *const MsgAtomic,
    compare: Option<Elements>,
    result: Option<Elements>,
    flags: u64,
) -> isize {
    // SAFETY: the condition above.
    let Some(msg) = (unsafe { read(msg) }) else {
        return -(errno::INVAL as isize);
    };
    // SAFETY: the caller says there which memory of the peer it means.
    let remote = unsafe { read(msg.rma_iov) };
    let (1, Some(remote)) = (msg.rma_iov_count, remote) else {
        return -(errno::INVAL as isize);
    };
    let what = What {
        peer: msg.addr,
        remote: at(remote.addr, remote.key),
        datatype: msg.datatype,
        operation: msg.op,
        flags: Some(flags),
        context: Some(msg.context),
    };
    let operand = Elements {
        iov: msg.iov,
        count: msg.iov_count,
    };
    // SAFETY: the condition above.
    unsafe { go(ep, operand, compare, result, &what) }
}

unsafe extern "C" fn writemsg(ep: *mut c_void, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { by_message(ep, msg, None, None, flags) }
}

unsafe extern "C" fn inject(
    ep: *mut c_void,
    buf: *const c_void,
    count: usize,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: Some(cap::INJECT),
        context: None,
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, one(&piece(buf, count)), None, None, &what) }
}

unsafe extern "C" fn readwrite(
    ep: *mut c_void,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: None,
        context: Some(context),
    };
    let result = piece(result, count);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, one(&piece(buf, count)), None, Some(one(&result)), &what) }
}

unsafe extern "C" fn readwritev(
    ep: *mut c_void,
    iov: *const Ioc,
    _desc: *mut *mut c_void,
    count: usize,
    result: *mut Ioc,
    _result_desc: *mut *mut c_void,
    results: usize,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: None,
        context: Some(context),
    };
    let result = Elements {
        iov: result,
        count: results,
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, Elements { iov, count }, None, Some(result), &what) }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut c_void,
    msg: *const MsgAtomic,
    result: *mut Ioc,
    _result_desc: *mut *mut c_void,
    results: usize,
    flags: u64,
) -> isize {
    let result = Elements {
        iov: result,
        count: results,
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { by_message(ep, msg, None, Some(result), flags) }
}

unsafe extern "C" fn compwrite(
    ep: *mut c_void,
    buf: *const c_void,
    count: usize,
    _desc: *mut c_void,
    compare: *const c_void,
    _compare_desc: *mut c_void,
    result: *mut c_void,
    _result_desc: *mut c_void,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: None,
        context: Some(context),
    };
    let (compare, result) = (piece(compare, count), piece(result, count));
    let (compare, result) = (Some(one(&compare)), Some(one(&result)));
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, one(&piece(buf, count)), compare, result, &what) }
}

unsafe extern "C" fn compwritev(
    ep: *mut c_void,
    iov: *const Ioc,
    _desc: *mut *mut c_void,
    count: usize,
    compare: *const Ioc,
    _compare_desc: *mut *mut c_void,
    compares: usize,
    result: *mut Ioc,
    _result_desc: *mut *mut c_void,
    results: usize,
    peer: Addr,
    addr: u64,
    key: u64,
    datatype: c_int,
    operation: c_int,
    context: *mut c_void,
) -> isize {
    let what = What {
        peer,
        remote: at(addr, key),
        datatype,
        operation,
        flags: None,
        context: Some(context),
    };
    let compare = Elements {
        iov: compare,
        count: compares,
    };
    let result = Elements {
        iov: result,
        count: results,
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe {
        go(
            ep,
            Elements { iov, count },
            Some(compare),
            Some(result),
            &what,
        )
    }
}

unsafe extern "C" fn compwritemsg(
    ep: *mut c_void,
    msg: *const MsgAtomic,
    compare: *const Ioc,
    _compare_desc: *mut *mut c_void,
    compares: usize,
    result: *mut Ioc,
    _result_desc: *mut *mut c_void,
    results: usize,
    flags: u64,
) -> isize {
    let compare = Elements {
        iov: compare,
        count: compares,
    };
    let result = Elements {
        iov: result,
        count: results,
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { by_message(ep, msg, Some(compare), Some(result), flags) }
}

/// How many elements an operation takes, if there is such a one.
fn valid(datatype: c_int, operation: c_int, form: Form) -> Outcome<(usize, usize)> {
    let (datatype, operation) = named(datatype, operation)?;
    if !operation.is_valid(datatype, form) {
        return Err(errno::OPNOTSUPP);
    }
    Ok((AtomicCall::most(datatype, form), datatype.size()))
}

/// # Safety
/// `count` is null or may be written.
unsafe fn say(count: *mut usize, valid: Outcome<(usize, usize)>) -> c_int {
    entry_int(|| {
        let (most, _) = valid?;
        // SAFETY: the condition above.
        let count = unsafe { Out::new(count) };
        if let Ok(count) = count {
            count.set(most);
        }
        Ok(0)
    })
}

unsafe extern "C" fn writevalid(
    _ep: *mut c_void,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller wants the number there.
    unsafe { say(count, valid(datatype, op, Form::Plain)) }
}

unsafe extern "C" fn readwritevalid(
    _ep: *mut c_void,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller wants the number there.
    unsafe { say(count, valid(datatype, op, Form::Fetch)) }
}

unsafe extern "C" fn compwritevalid(
    _ep: *mut c_void,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller wants the number there.
    unsafe { say(count, valid(datatype, op, Form::Compare)) }
}

/// `fi_query_atomic`
pub(crate) unsafe extern "C" fn query(
    _domain: *mut c_void,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    entry_int(|| {
        let form = match flags & (cap::FETCH_ATOMIC | cap::COMPARE_ATOMIC) {
            0 => Form::Plain,
            cap::FETCH_ATOMIC => Form::Fetch,
            cap::COMPARE_ATOMIC => Form::Compare,
            _ => return Err(errno::INVAL),
        };
        let (count, size) = valid(datatype, op, form)?;
        // SAFETY: the caller wants the numbers there.
        unsafe { Out::new(attr) }?.set(AtomicAttr { count, size });
        Ok(0)
    })
}
