// UNSAFETY: a process that shares this one's memory for a moment is made by clone(2).
#![expect(
    unsafe_code,
    reason = "clone takes a function, a stack and an argument by pointers"
)]
//! Processes that are no children of this one, for a library in a program that waits for children of its own.
//!
//! ```text
//!  program ── clone, without a signal at its end ──► go-between ── spawn ──► process
//!     │ waits for it alone (__WCLONE)                    │ ends
//! ```
//!
//! A program may wait for all its children (`wait`), count the signals of their ends, or take those for its own doing. It would
//! wait for ever for one that the library has started and that lives as long as the job. The go-between is no child that
//! `wait` finds, and its end sends no signal. What it has started becomes the child of the nearest process above that
//! takes in orphans, such as `portolan run`.

use crate::own_thread::with_signals_blocked;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::Command;

/// The go-between's stack; only what it uses of it takes memory.
const STACK: usize = 1 << 20;
/// The status of a go-between that knows no reason; reasons are numbers of errors.
const UNKNOWN: c_int = 255;

/// What the go-between is lent.
struct Task<'a> {
    command: &'a mut Command,
    /// Signals that the caller blocks, as what it starts is to.
    mask: libc::sigset_t,
}

/// The go-between: it has the memory of the program, whose thread stands still meanwhile.
extern "C" fn spawn(task: *mut c_void) -> c_int {
    // SAFETY: what `spawn_detached` has lent, which waits until this process has ended.
    let task = unsafe { &mut *task.cast::<Task<'_>>() };
    take_signals(&task.mask);
    match catch_unwind(AssertUnwindSafe(|| task.command.spawn())) {
        Ok(Ok(_)) => 0,
        Ok(Err(error)) => error
            .raw_os_error()
            .filter(|number| (1..UNKNOWN).contains(number))
            .unwrap_or(UNKNOWN),
        Err(_) => UNKNOWN,
    }
}

/// Takes signals as the program does, but that none runs a handler of it: actions are the go-between's own, unlike memory.
fn take_signals(mask: &libc::sigset_t) {
    for signal in 1..=libc::SIGRTMAX() {
        // SAFETY: a structure of integers, for which zeros are values.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: there is room for the action, and none is set.
        let known = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) } == 0;
        if known && ![libc::SIG_IGN, libc::SIG_DFL].contains(&action.sa_sigaction) {
            action.sa_sigaction = libc::SIG_DFL;
            // SAFETY: the default action of a signal.
            unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
        }
    }
    // SAFETY: a mask that the caller has asked the system for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, std::ptr::null_mut()) };
}

/// Signals that this thread blocks.
fn mask() -> libc::sigset_t {
    let mut mask = MaybeUninit::uninit();
    // SAFETY: room for a set; none is set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), mask.as_mut_ptr()) };
    // SAFETY: the call cannot fail without a set to read, and has written it.
    unsafe { mask.assume_init() }
}

/// Starts `command` as a process that is no child of this one. It has no pipes to this one, and nobody here is told of its end. From
/// any thread.
///
/// # Errors
/// The command cannot be started, as [`Command::spawn`] says, or the system has no process left.
///
/// ```
/// host::detached::spawn_detached(&mut std::process::Command::new("true"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn spawn_detached(command: &mut Command) -> io::Result<()> {
    let mut stack: Vec<u128> = Vec::with_capacity(STACK / size_of::<u128>());
    let top = stack.spare_capacity_mut().as_mut_ptr_range().end;
    let mut task = Task {
        command,
        mask: mask(),
    };
    let status = with_signals_blocked(|| {
        let task = &raw mut task;
        // SAFETY: the stack is the go-between's alone and aligned as stacks are. With CLONE_VFORK this thread goes on when the
        // go-between has ended, so that the stack and the task live for all of its life.
        let between = unsafe {
            libc::clone(
                spawn,
                top.cast(),
                libc::CLONE_VM | libc::CLONE_VFORK,
                task.cast(),
            )
        };
        if between < 0 {
            return Err(io::Error::last_os_error());
        }
        collect(between)
    })?;
    match status {
        0 => Ok(()),
        UNKNOWN => Err(io::Error::other("the process could not be started")),
        number => Err(io::Error::from_raw_os_error(number)),
    }
}

/// The status of a process whose end sends no signal.
fn collect(between: libc::pid_t) -> io::Result<c_int> {
    let mut status = 0;
    loop {
        // SAFETY: a process that this one has made and nobody else waits for; its status goes to a variable of this function.
        let ended = unsafe { libc::waitpid(between, &raw mut status, libc::__WCLONE) };
        if ended == between {
            return Ok(if libc::WIFEXITED(status) {
                libc::WEXITSTATUS(status)
            } else {
                UNKNOWN
            });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Stdio;

    #[test]
    fn what_is_started_detached_is_no_child_of_this_process() {
        let (mut read, write) = io::pipe().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo $PPID"]).stdout(write);
        spawn_detached(&mut command).unwrap();
        drop(command);
        let mut said = String::new();
        read.read_to_string(&mut said).unwrap();
        let parent: u32 = said.trim().parse().unwrap();
        assert_ne!(parent, std::process::id());
    }

    /// As from any other start: a process that blocked them could not be ended in order.
    #[test]
    fn what_is_started_detached_takes_the_signals_that_its_starter_takes() {
        let (mut read, write) = io::pipe().unwrap();
        let mut grep = Command::new("grep");
        let own = "/proc/thread-self/status";
        grep.args(["^SigBlk", "/proc/self/status"]).stdout(write);
        spawn_detached(&mut grep).unwrap();
        drop(grep);
        let mut said = String::new();
        read.read_to_string(&mut said).unwrap();
        let status = std::fs::read_to_string(own).unwrap();
        assert!(!said.is_empty() && status.contains(said.trim()), "{said}");
    }

    #[test]
    fn what_cannot_be_started_detached_is_the_systems_error() {
        let error = spawn_detached(&mut Command::new("/no/such/program")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let mut folder = Command::new("/");
        let error = spawn_detached(folder.stdin(Stdio::null())).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
