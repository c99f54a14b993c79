// UNSAFETY: entries get objects and memory of a C caller by pointers.
#![expect(
    unsafe_code,
    reason = "entries get objects and memory of a C caller by pointers"
)]
//! Atomic operations (`fi_atomic`, `fi_fetch_atomic`, `fi_compare_atomic`).

use crate::abi::{Addr, AtomicAttr, Ioc, MsgAtomic, cap, errno};
use crate::call::{Call, Lent};
use crate::domain::Domain;
use crate::ep::{EndpointFid, Which, refused};
use crate::object::object;
use crate::options::Kind;
use crate::ptr::{Out, Outcome, entry, entry_int, gathered, read};
use crate::table::Table;
use ofi_engine::atomic::{Datatype, Form, Operation};
use ofi_engine::completion::flags;
use ofi_engine::memory::{Buffer, MOST_PIECES};
use ofi_engine::{AtomicCall, Remote};
use std::ffi::{c_int, c_void};

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
enum Elements {
    Piece(*const c_void, usize),
    Pieces(*const Ioc, usize),
}

impl Elements {
    /// The memory of elements of this size.
    ///
    /// # Safety
    /// Until the completion of the operation each piece may be read, and that of a result be written; there are as many as are
    /// named.
    unsafe fn buffer(self, size: usize) -> Outcome<Buffer> {
        let bytes = |count: usize| count.checked_mul(size).ok_or(errno::INVAL);
        let (iov, count) = match self {
            // SAFETY: the condition above.
            Self::Piece(p, count) => return unsafe { Lent::Piece(p, bytes(count)?).buffer() },
            Self::Pieces(iov, count) => (iov, count),
        };
        if count > MOST_PIECES {
            return Err(errno::INVAL);
        }
        let piece = |index| {
            // SAFETY: there are so many pieces, by the condition above.
            let ioc = unsafe { read(iov.wrapping_add(index)) }.ok_or(errno::INVAL)?;
            Ok((ioc.addr.cast_const(), bytes(ioc.count)?))
        };
        // SAFETY: the condition above.
        unsafe { gathered((0..count).map(piece)) }
    }
}

/// What an operation works with.
#[derive(Clone, Copy)]
struct Operands {
    operand: Elements,
    compare: Option<Elements>,
    result: Option<Elements>,
}

impl Operands {
    const fn of(operand: Elements) -> Self {
        Self {
            operand,
            compare: None,
            result: None,
        }
    }

    const fn comparing(self, compare: Elements) -> Self {
        Self {
            compare: Some(compare),
            ..self
        }
    }

    const fn fetching(self, result: Elements) -> Self {
        Self {
            result: Some(result),
            ..self
        }
    }
}

/// An operation on a peer's memory, by the numbers that C has for it.
#[derive(Clone, Copy)]
struct What {
    remote: Remote,
    /// How many elements of the peer's memory it means, if it says so: as many as the operands have.
    count: Option<usize>,
    datatype: c_int,
    operation: c_int,
}

impl What {
    const fn new((offset, key): (u64, u64), datatype: c_int, operation: c_int) -> Self {
        Self {
            remote: Remote { offset, key },
            count: None,
            datatype,
            operation,
        }
    }
}

/// # Safety
/// `ep` is null or an endpoint that the caller was given; the operands are lent as [`Elements::buffer`] asks.
unsafe fn go(ep: *mut c_void, operands: Operands, what: What, call: Call) -> isize {
    entry(|| {
        // SAFETY: the condition above.
        let ep = unsafe { object::<EndpointFid>(ep) }?;
        let (datatype, operation) = named(what.datatype, what.operation)?;
        // SAFETY: the condition above.
        let of = |elements: Elements| unsafe { elements.buffer(datatype.size()) };
        let operand = match operation {
            // An operand that is not needed may be anything.
            Operation::Read => Buffer::default(),
            _ => of(operands.operand)?,
        };
        let atomic = AtomicCall {
            datatype,
            operation,
            compare: operands.compare.map(of).transpose()?,
            result: operands.result.map(of).transpose()?,
        };
        let flags = call.flags(&ep.tx_flags)?;
        let (form, bytes) = (atomic.form(), atomic.reach(&operand));
        let meant = |count: usize| count.checked_mul(datatype.size()).map(|b| b as u64);
        if what.count.is_some_and(|count| meant(count) != Some(bytes)) {
            return Err(errno::INVAL);
        }
        let most = AtomicCall::most(datatype, form) * datatype.size();
        if bytes > most as u64 {
            return Err(errno::MSGSIZE);
        }
        let inject = flags & cap::INJECT != 0;
        ep.options.bounded(Kind::Atomic, bytes, inject)?;
        let (which, kind) = match atomic.result {
            Some(_) => (Which::Read, flags::READ),
            None => (Which::Write, flags::WRITE),
        };
        let op = ep.op(which, call.context, flags, cap::ATOMIC | kind)?;
        let peer = ep.process(call.peer)?;
        let done = ep.endpoint.atomic(peer, what.remote, &operand, atomic, op);
        done.map(|()| 0).map_err(|why| refused(&why))
    })
}

fn named(datatype: c_int, operation: c_int) -> Outcome<(Datatype, Operation)> {
    let datatype = u32::try_from(datatype).ok().and_then(Datatype::of);
    let operation = u32::try_from(operation).ok().and_then(Operation::of);
    datatype.zip(operation).ok_or(errno::OPNOTSUPP)
}

/// `more` adds what is not in the structure.
///
/// # Safety
/// `msg` is null or says what the caller wants; otherwise as for [`go`].
unsafe fn described(
    ep: *mut c_void,
    msg: *const MsgAtomic,
    more: impl FnOnce(Operands) -> Operands,
    flags: u64,
) -> isize {
    // SAFETY: the condition above.
    let msg = unsafe { read(msg) };
    // SAFETY: the caller says there which memory of the peer it means.
    let remote = msg.and_then(|msg| unsafe { read(msg.rma_iov) });
    let (Some(msg), Some(remote)) = (msg.filter(|msg| msg.rma_iov_count == 1), remote) else {
        return -(errno::INVAL as isize);
    };
    let operands = more(Operands::of(Elements::Pieces(msg.iov, msg.iov_count)));
    let what = What {
        count: Some(remote.count),
        ..What::new((remote.addr, remote.key), msg.datatype, msg.op)
    };
    let call = Call::described(msg.addr, msg.context, flags, msg.data);
    // SAFETY: the condition above.
    unsafe { go(ep, operands, what, call) }
}

// Each of the entries below gets what libfabric promises it: an endpoint that was opened here, and arrays of as many elements as
// are named. Memory is lent until the operation's completion.

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
    let operands = Operands::of(Elements::Piece(buf, count));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::new(peer, context)) }
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
    let operands = Operands::of(Elements::Pieces(iov, count));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::new(peer, context)) }
}

unsafe extern "C" fn writemsg(ep: *mut c_void, msg: *const MsgAtomic, flags: u64) -> isize {
    // SAFETY: the caller's endpoint and memory.
    unsafe { described(ep, msg, |operands| operands, flags) }
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
    let operands = Operands::of(Elements::Piece(buf, count));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::inject(peer)) }
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
    let operands = Operands::of(Elements::Piece(buf, count));
    let operands = operands.fetching(Elements::Piece(result, count));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::new(peer, context)) }
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
    let operands = Operands::of(Elements::Pieces(iov, count));
    let operands = operands.fetching(Elements::Pieces(result, results));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::new(peer, context)) }
}

unsafe extern "C" fn readwritemsg(
    ep: *mut c_void,
    msg: *const MsgAtomic,
    result: *mut Ioc,
    _result_desc: *mut *mut c_void,
    results: usize,
    flags: u64,
) -> isize {
    let more = |operands: Operands| operands.fetching(Elements::Pieces(result, results));
    // SAFETY: the caller's endpoint and memory.
    unsafe { described(ep, msg, more, flags) }
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
    let operands = Operands::of(Elements::Piece(buf, count));
    let operands = operands.comparing(Elements::Piece(compare, count));
    let operands = operands.fetching(Elements::Piece(result, count));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::new(peer, context)) }
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
    let operands = Operands::of(Elements::Pieces(iov, count));
    let operands = operands.comparing(Elements::Pieces(compare, compares));
    let operands = operands.fetching(Elements::Pieces(result, results));
    let what = What::new((addr, key), datatype, operation);
    // SAFETY: the caller's endpoint and memory.
    unsafe { go(ep, operands, what, Call::new(peer, context)) }
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
    let more = |operands: Operands| {
        let operands = operands.comparing(Elements::Pieces(compare, compares));
        operands.fetching(Elements::Pieces(result, results))
    };
    // SAFETY: the caller's endpoint and memory.
    unsafe { described(ep, msg, more, flags) }
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
/// `ep` is null or an endpoint that the caller was given; `count` is null or may be written.
unsafe fn say(ep: *mut c_void, count: *mut usize, valid: Outcome<(usize, usize)>) -> c_int {
    entry_int(|| {
        // SAFETY: the condition above.
        unsafe { object::<EndpointFid>(ep) }?;
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
    ep: *mut c_void,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller was given the endpoint, and wants the number there.
    unsafe { say(ep, count, valid(datatype, op, Form::Plain)) }
}

unsafe extern "C" fn readwritevalid(
    ep: *mut c_void,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller was given the endpoint, and wants the number there.
    unsafe { say(ep, count, valid(datatype, op, Form::Fetch)) }
}

unsafe extern "C" fn compwritevalid(
    ep: *mut c_void,
    datatype: c_int,
    op: c_int,
    count: *mut usize,
) -> c_int {
    // SAFETY: the caller was given the endpoint, and wants the number there.
    unsafe { say(ep, count, valid(datatype, op, Form::Compare)) }
}

/// `fi_query_atomic`
pub(crate) unsafe extern "C" fn query(
    domain: *mut c_void,
    datatype: c_int,
    op: c_int,
    attr: *mut AtomicAttr,
    flags: u64,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the domain.
        unsafe { object::<Domain>(domain) }?;
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
