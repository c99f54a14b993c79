// UNSAFETY: the one thing a rank must do between fork and exec is to tie its life to the launcher's, and
// the standard library offers that place only by an unsafe method; personality is a bare system call.
#![expect(
    unsafe_code,
    reason = "CommandExt::pre_exec and personality are unsafe"
)]
//! What happens in a rank's process before its program starts.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

/// Makes the kernel kill the process that `command` starts when the launcher dies, `SIGKILL` included.
///
/// The signal follows the *thread* that starts the process, so `command` must be spawned from the main
/// thread.
pub(super) fn tie_to_launcher(command: &mut Command, launcher: Pid) {
    let before_exec = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // A launcher that died before the line above sends no signal any more.
        if getppid() == Some(launcher) {
            Ok(())
        } else {
            Err(io::Error::from_raw_os_error(libc::ESRCH))
        }
    };
    // SAFETY: the closure runs between fork and exec and makes two system calls; it takes no lock and
    // allocates nothing (io::Error::from_raw_os_error and the errno conversion hold the bare number).
    unsafe { command.pre_exec(before_exec) };
}

/// Has programs that are started from now on find their memory at the same addresses in every run.
pub(crate) fn same_addresses() -> io::Result<()> {
    // SAFETY: the call takes and gives numbers; this value asks for the present ones.
    let present = unsafe { libc::personality(0xFFFF_FFFF) };
    let wanted =
        libc::c_ulong::from(present.cast_unsigned()) | libc::ADDR_NO_RANDOMIZE as libc::c_ulong;
    // SAFETY: as above; addresses of this process stay as they are.
    if present < 0 || unsafe { libc::personality(wanted) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
