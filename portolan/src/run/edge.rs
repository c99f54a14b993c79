// UNSAFETY: a process becomes two; what a rank must do between fork and exec has a place in the standard library that
// only an unsafe method offers; personality and what a signal does are bare calls of the C library.
#![expect(
    unsafe_code,
    reason = "fork, dup2, sigaction, personality and CommandExt::pre_exec are unsafe"
)]
//! What happens in a rank's process before its program starts, and what the front does to itself.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use host::ids::{Parent, parent};
use rustix::process::{Pid, Signal, set_parent_process_death_signal, setsid};
use rustix::thread::{CpuSet, sched_setaffinity};

/// Whether the signal of a child's end was ignored when this process began.
static CHILDREN_IGNORED: AtomicBool = AtomicBool::new(false);

/// Has the system keep how children end until this process asks. Daemons ignore `SIGCHLD`, the programs that they start
/// inherit that, and the system then forgets children at their end and may give their numbers to others.
pub(crate) fn keep_children() -> io::Result<()> {
    let former = set_action(libc::SIGCHLD, libc::SIG_DFL)?;
    if former.sa_sigaction == libc::SIG_IGN {
        CHILDREN_IGNORED.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// Gives the process that `command` starts a session of its own, and makes the kernel kill it when the launcher dies,
/// `SIGKILL` included.
///
/// The signal follows the *thread* that starts the process, so `command` must be spawned from the main
/// thread. Where there is a set of processors, the process runs on those alone.
pub(super) fn tie_to_launcher(command: &mut Command, launcher: Option<Pid>, on: Option<CpuSet>) {
    let ignored = CHILDREN_IGNORED.load(Ordering::Relaxed);
    let gone = || Err(io::Error::from_raw_os_error(libc::ESRCH));
    let before_exec = move || {
        if ignored {
            // As the program would have it without a launcher.
            ignore(libc::SIGCHLD)?;
        }
        if let Some(on) = &on {
            sched_setaffinity(None, on)?;
        }
        setsid()?;
        // Where a filter of system calls refuses that, a rank watches the launcher by itself.
        let _ = set_parent_process_death_signal(Some(Signal::KILL));
        // A launcher that died before the line above sends no signal any more. Where the system does not say whose child this
        // is, that moment is not noticed.
        match (parent(), launcher) {
            (Parent::Is(parent), Some(launcher)) if parent != launcher => gone(),
            (Parent::Outside, _) => gone(),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure runs between fork and exec and makes at most five system calls; it takes no lock and
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

/// Makes two processes of this one, in which one thread works; none in the new one.
pub(super) fn fork() -> io::Result<Option<Pid>> {
    // SAFETY: the caller has seen that no other thread works, so no lock is held that nobody would release, and the
    // new process may go on as this one.
    match unsafe { libc::fork() } {
        ..0 => Err(io::Error::last_os_error()),
        child => Ok(Pid::from_raw(child)),
    }
}

/// Makes `new` the standard input of this process.
pub(super) fn take_as_input(new: &OwnedFd) -> io::Result<()> {
    // SAFETY: both descriptors are open; that of standard input is nobody's own.
    match unsafe { libc::dup2(new.as_raw_fd(), libc::STDIN_FILENO) } {
        ..0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// What a signal does, as the C library has it.
fn action(handler: libc::sighandler_t) -> libc::sigaction {
    // SAFETY: a structure of numbers and a function that may be none, for which zeros are values.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = handler;
    action
}

/// From now on `signal` is ignored.
pub(super) fn ignore(signal: i32) -> io::Result<()> {
    set_action(signal, libc::SIG_IGN).map(drop)
}

/// Sets what `signal` does; what it did before.
fn set_action(signal: i32, handler: libc::sighandler_t) -> io::Result<libc::sigaction> {
    let new = action(handler);
    let mut former = new;
    // SAFETY: both structures are whole, and the second may be written.
    match unsafe { libc::sigaction(signal, &raw const new, &raw mut former) } {
        0 => Ok(former),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Stops this process by `signal`, as if it were not caught; returns when the process goes on, or at once where the
/// system does not stop it.
pub(super) fn stop_by(signal: i32) -> io::Result<()> {
    let caught = set_action(signal, libc::SIG_DFL)?;
    // SAFETY: sends a signal whose action is the default one.
    unsafe { libc::raise(signal) };
    // SAFETY: puts back what the first call has written.
    match unsafe { libc::sigaction(signal, &raw const caught, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
