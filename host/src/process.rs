//! Which thread of a process stands for it in calls that name a process by one.

use crate::procfs;
use std::io;

/// What a system call has said that returns a number of bytes.
pub fn bytes(said: isize) -> io::Result<usize> {
    usize::try_from(said).map_err(|_| io::Error::last_os_error())
}

/// Makes a system call on the memory of process `pid`: by its first thread, or, if that has ended while others go on
/// (`pthread_exit` in `main`), by one that has not, as a thread that has ended has no memory.
pub fn on_memory_of(pid: i32, call: impl Fn(i32) -> io::Result<usize>) -> io::Result<usize> {
    let gone = |result: &io::Result<usize>| {
        let error = result.as_ref().err().and_then(io::Error::raw_os_error);
        error == Some(libc::ESRCH)
    };
    let first = call(pid);
    if !gone(&first) {
        return first;
    }
    let threads = procfs::folder(pid).and_then(|p| std::fs::read_dir(p.join("task")).ok());
    let Some(threads) = threads else {
        return first;
    };
    let threads = threads.filter_map(|t| t.ok()?.file_name().to_str()?.parse().ok());
    let mut others = threads.filter(|t| *t != pid).map(call);
    others.find(|r| !gone(r)).unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_thread_stands_for_one_that_has_ended() {
        let own = std::process::id().cast_signed();
        let gone = || Err(io::Error::from_raw_os_error(libc::ESRCH));
        let found = std::thread::spawn(move || {
            // As if the first thread had ended.
            on_memory_of(own, |thread| match thread {
                first if first == own => gone(),
                other => Ok(other as usize),
            })
        });
        let found = found.join().expect("no panic").expect("this thread");
        assert_ne!(found, own as usize);
        let error = on_memory_of(own, |_| gone()).expect_err("nobody is left");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert_eq!(on_memory_of(own, |_| Ok(7)).expect("the first"), 7);
    }
}
