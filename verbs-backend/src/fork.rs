// UNSAFETY: calls into libibverbs and the kernel's memory advice.
//! Registered memory and `fork(2)`.
//!
//! A child shares its parent's pages until one of the two writes. Where the kernel does not copy registered pages
//! for the child at once (Linux before 5.12), the parent's write then leaves the adapter with the child's copy.
//! [`protect`] keeps registered pages out of children on such kernels, and does nothing on newer ones.
//!
//! A child can use nothing of this crate; it may `exec`, or go on without RDMA.

#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::io;
use std::sync::OnceLock;

use verbs_sys as sys;

/// `IBV_FORK_UNNEEDED`. rdma-core 44 keeps pages out of children all the same once `ibv_fork_init` has been called.
const UNNEEDED: i32 = 2;

/// Makes `fork` safe for memory that is registered from now on. Must come before the first registration of the
/// process; later calls give the first one's answer.
///
/// # Errors
///
/// libibverbs is absent or refuses.
pub fn protect() -> io::Result<()> {
    static DONE: OnceLock<Result<(), i32>> = OnceLock::new();
    let done = DONE.get_or_init(|| {
        let verbs = sys::verbs().map_err(|_| libc::ENOSYS)?;
        if let Some(status) = verbs.fork_status {
            // SAFETY: takes nothing, asks the kernel.
            let status = unsafe { status() };
            if status == UNNEEDED {
                return Ok(());
            }
        }
        // SAFETY: no precondition but the one documented above, whose breach is an error and not undefined.
        match unsafe { (verbs.ibv_fork_init)() } {
            0 => Ok(()),
            code => Err(code.abs()),
        }
    });
    done.map_err(io::Error::from_raw_os_error)
}
