//! Whether a process is kept from running.

use crate::procfs;
use std::fs;

/// Whether a thread of the process of this number in the own PID namespace is stopped, by a signal or a debugger; `None` if
/// the system does not say.
pub fn is_held(pid: i32) -> Option<bool> {
    let threads = fs::read_dir(procfs::folder(pid)?.join("task")).ok()?;
    let mut seen = false;
    for thread in threads.flatten() {
        // A thread may end meanwhile.
        let Ok(stat) = fs::read_to_string(thread.path().join("stat")) else {
            continue;
        };
        seen = true;
        if matches!(state(&stat)?, 'T' | 't') {
            return Some(true);
        }
    }
    seen.then_some(false)
}

/// The state behind the name, which may have any characters.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_is_stopped_is_held_until_it_goes_on() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let number = child.id().cast_signed();
        let pid = Pid::from_raw(number).unwrap();
        assert_eq!(is_held(number), Some(false));
        kill_process(pid, Signal::STOP).unwrap();
        waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        assert_eq!(is_held(number), Some(true));
        kill_process(pid, Signal::CONT).unwrap();
        waitpid(Some(pid), WaitOptions::CONTINUED).unwrap();
        assert_eq!(is_held(number), Some(false));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(is_held(number), None);
    }

    #[test]
    fn the_state_stands_behind_any_name() {
        assert_eq!(state("12 (a) T (b)) S 1 2"), Some('S'));
        assert_eq!(state("12 (gdb) t 1"), Some('t'));
        assert_eq!(state("12"), None);
    }
}
