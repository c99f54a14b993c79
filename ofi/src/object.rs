// UNSAFETY: a C caller has objects by bare addresses; here they are checked for NULL and for their class.
#![expect(unsafe_code, reason = "C callers have objects by pointers")]
//! The objects that a C caller was given: how they are opened, found again and closed.

use crate::abi::{Fid, errno};
use crate::ptr::{Out, Outcome, entry_int};
use crate::table::Table;
use host::fork;
use std::ffi::{c_int, c_void};

/// An object that a C caller has by a pointer to its first field, a [`Fid`].
///
/// # Safety
/// The type is `repr(C)`, its first field is a [`Fid`], and no other type has this class.
pub(crate) unsafe trait Object: Sized {
    /// Of its `fid`.
    const CLASS: usize;

    /// What its `fid` can do.
    const OPS: &'static Table<6>;

    /// Other objects use it, so it cannot be closed.
    fn is_used(&self) -> bool {
        false
    }

    /// What else ends with it, before it is gone; after an error it stays, and may be closed again.
    fn end(&self) -> Outcome<()> {
        Ok(())
    }
}

impl Fid {
    /// The first field of an object.
    pub(crate) const fn of<T: Object>(context: *mut c_void) -> Self {
        Self {
            class: T::CLASS,
            context,
            ops: T::OPS.as_ptr(),
        }
    }
}

/// An object as a caller has it.
#[derive(Debug)]
#[repr(C)]
struct Given<T> {
    object: T,
    /// Of the process that has opened it.
    generation: usize,
}

/// The object behind a pointer, and whether this process has opened it.
///
/// # Safety
/// Those of [`object`].
unsafe fn given<'a, T: Object>(fid: *const c_void) -> Outcome<(&'a T, bool)> {
    // SAFETY: not null, so it is an object by the condition above, and each begins with a `Fid`.
    if fid.is_null() || unsafe { (*fid.cast::<Fid>()).class } != T::CLASS {
        return Err(errno::INVAL);
    }
    // SAFETY: it has the class of `T`, and whoever calls promises that it still exists.
    let given = unsafe { &*fid.cast::<Given<T>>() };
    Ok((&given.object, given.generation == fork::generation()))
}

/// The object behind a pointer; `EOPBADSTATE` in a forked child of the process that has opened it.
///
/// # Safety
/// The pointer is null, or was given out by [`give`] and its object is not closed.
pub(crate) unsafe fn object<'a, T: Object>(fid: *const c_void) -> Outcome<&'a T> {
    // SAFETY: the condition above.
    match unsafe { given(fid) }? {
        (object, true) => Ok(object),
        (_, false) => Err(errno::OPBADSTATE),
    }
}

/// The object behind a pointer, if it is of this class; for entries that take objects of several. An object of a forked child's parent
/// is no other class's: the entry fails.
///
/// # Safety
/// Those of [`object`].
pub(crate) unsafe fn object_if<'a, T: Object>(fid: *const c_void) -> Outcome<Option<&'a T>> {
    // SAFETY: the condition above.
    match unsafe { object(fid) } {
        Ok(object) => Ok(Some(object)),
        Err(errno::INVAL) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Hands an object to the caller.
pub(crate) fn give<T: Object>(object: T, out: &Out<*mut c_void>) {
    let given = Given {
        object,
        generation: fork::generation(),
    };
    out.set(Box::into_raw(Box::new(given)).cast());
}

/// The body of an entry that opens an object of another.
///
/// # Safety
/// `of` is as for [`object`]; `out` is null or may be written.
pub(crate) unsafe fn open<P: Object, T: Object>(
    of: *mut c_void,
    out: *mut *mut c_void,
    context: *mut c_void,
    make: impl FnOnce(&P, Fid) -> Outcome<T>,
) -> c_int {
    entry_int(|| {
        // SAFETY: the condition above.
        let of = unsafe { object::<P>(of) }?;
        // SAFETY: the condition above.
        let out = unsafe { Out::new(out) }?;
        give(make(of, Fid::of::<T>(context))?, &out);
        Ok(0)
    })
}

/// `fi_close`: `EBUSY` while other objects use it. A forked child lets go of its parent's object, and nothing else happens.
pub(crate) unsafe extern "C" fn close<T: Object>(fid: *mut c_void) -> c_int {
    entry_int(|| {
        // SAFETY: the caller closes what it was given.
        let (object, own) = unsafe { given::<T>(fid) }?;
        if !own {
            return Ok(0);
        }
        if object.is_used() {
            return Err(errno::BUSY);
        }
        object.end()?;
        // SAFETY: it has the class of `T`, so `give` made it of a box, and its caller uses it no more.
        drop(unsafe { Box::from_raw(fid.cast::<Given<T>>()) });
        Ok(0)
    })
}

/// `fi_bind` of an object that has nothing to tell: what is bound to it is left alone.
pub(crate) unsafe extern "C" fn bind_to_nothing<T: Object>(
    fid: *mut c_void,
    _other: *mut c_void,
    _flags: u64,
) -> c_int {
    // SAFETY: the caller was given the object.
    entry_int(|| unsafe { object::<T>(fid) }.map(|_| 0))
}
