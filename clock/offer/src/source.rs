// What a shared library of Portolan gives the preloaded one. Both have this file as a module: they are built apart, and meet in a process.

use libc::c_int;

/// Changes with [`Source`].
pub(crate) const VERSION: u32 = 1;

/// The virtual time of a library of Portolan. It lives as long as the process: such libraries are linked with `nodelete`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Source {
    /// [`VERSION`]
    pub(crate) version: u32,
    /// Writes nanoseconds and returns 1; returns 0 where the calling thread's clock is the host's.
    pub(crate) read: unsafe extern "C" fn(*mut u64) -> c_int,
    /// Returns 1 when so many nanoseconds have passed, and 0 where the calling thread sleeps by the host's clock.
    pub(crate) sleep: extern "C" fn(u64) -> c_int,
}
