// UNSAFETY: a C caller has values of options, and room for them, by pointers.
#![expect(unsafe_code, reason = "reads and writes values of options by pointers")]
//! Options of an endpoint: sizes that a program asks for, and may lower (`fi_getopt`, `fi_setopt`).

use crate::abi::errno;
use crate::ep::EndpointFid;
use crate::info::{INJECT, MOST};
use crate::object::object;
use crate::ptr::{Outcome, borrow, entry_int, read, write_bytes};
use ofi_engine::AtomicCall;
use ofi_engine::atomic::{Datatype, Form};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `FI_OPT_ENDPOINT`
const LEVEL: c_int = 0;
/// `FI_OPT_MIN_MULTI_RECV`
const MIN_MULTI_RECV: c_int = 0;
/// `FI_OPT_MAX_MSG_SIZE`, behind which the other kinds of operations follow.
const MAX_SIZE: usize = 12;
/// `FI_OPT_INJECT_MSG_SIZE`, likewise.
const INJECT_SIZE: usize = 16;
/// Bytes of an atomic operation with one operand.
const ATOMIC: usize = AtomicCall::most(Datatype::U8, Form::Plain);

/// Operations that have a size of their own, in the order of the options.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Message,
    Tagged,
    Remote,
    Atomic,
}

/// How many kinds there are.
const KINDS: usize = 4;

/// The most bytes of an operation of each [`Kind`].
const MOST_OF: [usize; KINDS] = [MOST, MOST, MOST, ATOMIC];
/// The same of one whose memory is free when the call returns.
const INJECT_OF: [usize; KINDS] = [INJECT, INJECT, INJECT, ATOMIC];

/// The options of an endpoint. Any thread may call every method.
#[derive(Debug)]
pub(crate) struct Options {
    /// Bytes with fewer of which a multi-receive gives its buffer back.
    least: AtomicUsize,
    most: [AtomicUsize; KINDS],
    inject: [AtomicUsize; KINDS],
}

impl Default for Options {
    fn default() -> Self {
        Self {
            least: AtomicUsize::new(64),
            most: MOST_OF.map(AtomicUsize::new),
            inject: INJECT_OF.map(AtomicUsize::new),
        }
    }
}

impl Options {
    /// Bytes with fewer of which a multi-receive gives its buffer back.
    pub(crate) fn least(&self) -> usize {
        self.least.load(Ordering::Relaxed)
    }

    /// `EMSGSIZE` for more bytes than one operation of this kind moves, or copies at once.
    #[inline]
    pub(crate) fn bounded(&self, kind: Kind, bytes: u64, inject: bool) -> Outcome<()> {
        let all = if inject { &self.inject } else { &self.most };
        let most = all[kind as usize].load(Ordering::Relaxed);
        match bytes > most as u64 {
            true => Err(errno::MSGSIZE),
            false => Ok(()),
        }
    }

    /// Where an option is, and what it is at most; `ENOPROTOOPT` where it is none of these.
    fn option(&self, level: c_int, name: c_int) -> Outcome<(&AtomicUsize, usize)> {
        if (level, name) == (LEVEL, MIN_MULTI_RECV) {
            return Ok((&self.least, usize::MAX));
        }
        let name = usize::try_from(name).ok().filter(|_| level == LEVEL);
        let at = |first: usize| name?.checked_sub(first).filter(|kind| *kind < KINDS);
        let most = at(MAX_SIZE).map(|kind| (&self.most[kind], MOST_OF[kind]));
        let inject = at(INJECT_SIZE).map(|kind| (&self.inject[kind], INJECT_OF[kind]));
        most.or(inject).ok_or(errno::NOPROTOOPT)
    }
}

/// `fi_getopt`
pub(crate) unsafe extern "C" fn getopt(
    fid: *mut c_void,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut usize,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the endpoint.
        let ep = unsafe { object::<EndpointFid>(fid) }?;
        let (option, _) = ep.options.option(level, name)?;
        // SAFETY: the caller says there how much room it has, and reads how much is needed.
        let len = unsafe { borrow(len) }.ok_or(errno::INVAL)?;
        let room = std::mem::replace(len, size_of::<usize>());
        if room < size_of::<usize>() {
            return Err(errno::TOOSMALL);
        }
        let now = option.load(Ordering::Relaxed);
        // SAFETY: there is so much room.
        unsafe { write_bytes(value, &now.to_ne_bytes()) }?;
        Ok(0)
    })
}

/// `fi_setopt`: `EINVAL` for a size beyond what the endpoint was offered with.
pub(crate) unsafe extern "C" fn setopt(
    fid: *mut c_void,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: usize,
) -> c_int {
    entry_int(|| {
        // SAFETY: the caller was given the endpoint.
        let ep = unsafe { object::<EndpointFid>(fid) }?;
        let (option, most) = ep.options.option(level, name)?;
        if len != size_of::<usize>() {
            return Err(errno::INVAL);
        }
        // SAFETY: the value is there, of this length.
        let wanted = unsafe { read(value.cast::<usize>()) }.ok_or(errno::INVAL)?;
        if wanted > most {
            return Err(errno::INVAL);
        }
        option.store(wanted, Ordering::Relaxed);
        Ok(0)
    })
}
