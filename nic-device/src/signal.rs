//! An event descriptor of a client, counted up by a server that serves others too.
//!
//! A write to an event descriptor that stands at its limit blocks, and whether it does is the client's to say: flags of
//! a descriptor that was handed over belong to both, and between a look and a write it may fill up. So nothing is
//! written. The kernel counts an event descriptor up at the end of an asynchronous read that names it, which never
//! blocks: it saturates. Where a sandbox has no asynchronous reads, a thread of the client's own writes, and blocks
//! alone.
// UNSAFETY: io_setup, io_submit, io_getevents and io_destroy have no functions in the C library.
#![expect(
    unsafe_code,
    reason = "io_setup, io_submit, io_getevents and io_destroy have no functions in the C library"
)]

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{Errno, write};

/// Interrupts that are told at once; a client that has heard of so many and not looked hears of no more.
const MOST: u64 = 16;
/// What threads that write are named.
const THREAD: &str = "nic-interrupt";
/// The descriptor named by [`Request::resfd`] is counted up at the end.
const FLAG_RESFD: u32 = 1;

/// The kernel's `struct iocb`: a read.
#[repr(C)]
struct Request {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: i32,
    #[cfg(target_endian = "big")]
    key: u32,
    opcode: u16,
    reqprio: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Ended {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

const _: () = assert!(size_of::<Request>() == 64 && size_of::<Ended>() == 32);

/// A context of asynchronous reads, of an empty file.
#[derive(Debug)]
struct Reads {
    context: libc::c_ulong,
    file: OwnedFd,
}

impl Reads {
    fn new() -> io::Result<Self> {
        let file = memfd_create("portolan-bell", MemfdFlags::CLOEXEC)?;
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word, which is exclusively borrowed and zero as it demands.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut context) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { context, file })
    }

    /// Counts an event descriptor up by one.
    fn count(&self, event: &OwnedFd) -> io::Result<()> {
        let mut request = Request {
            data: 0,
            key: 0,
            rw_flags: 0,
            opcode: 0,
            reqprio: 0,
            file: self.file.as_raw_fd().cast_unsigned(),
            buffer: 0,
            length: 0,
            offset: 0,
            reserved: 0,
            flags: FLAG_RESFD,
            resfd: event.as_raw_fd().cast_unsigned(),
        };
        let list = [&raw mut request];
        // SAFETY: the list has one request, of the layout asserted above; it reads no bytes, so no memory is written
        // but the request itself, whose key the kernel fills in before the call returns.
        let taken = unsafe { libc::syscall(libc::SYS_io_submit, self.context, 1, list.as_ptr()) };
        if taken < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut ended = Ended::default();
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: the kernel writes at most one event into one that is exclusively borrowed, and reads the time.
        let got = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                self.context,
                0,
                1,
                &raw mut ended,
                &raw const at_once,
            )
        };
        if got < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        // SAFETY: the context is this value's own; its reads, of an empty file, have ended in their calls.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

/// How it is counted up.
#[derive(Debug)]
enum Way {
    Reads(Reads),
    Thread {
        counts: SyncSender<u64>,
        /// Readable once the thread is to end.
        stop: Arc<OwnedFd>,
    },
}

/// An event descriptor that a client has handed over, or whatever it has handed over for one.
#[derive(Debug)]
pub(crate) struct Bell {
    event: OwnedFd,
    way: Way,
}

/// Waits until `event` takes more; `false` when the thread is to end.
fn has_room(event: &OwnedFd, stop: &OwnedFd) -> bool {
    let mut fds = [
        PollFd::new(event, PollFlags::OUT),
        PollFd::new(stop, PollFlags::IN),
    ];
    loop {
        match poll(&mut fds, None) {
            Ok(_) => return fds[1].revents().is_empty(),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Writes for a client that may block it. One that has filled its descriptor is waited for before the write, where the end
/// of the bell is noticed; and an event descriptor that takes anything takes one.
fn write_alone(event: &OwnedFd, stop: &OwnedFd, counts: &Receiver<u64>) {
    while let Ok(count) = counts.recv() {
        for _ in 0..count {
            if !has_room(event, stop) || write(event, &1u64.to_ne_bytes()).is_err() {
                return;
            }
        }
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        if let Way::Thread { stop, .. } = &self.way {
            // It has room: nobody else counts it.
            let _ = write(stop, &1u64.to_ne_bytes());
        }
    }
}

impl Bell {
    /// # Errors
    /// The system has neither a context nor a thread left.
    pub(crate) fn new(event: OwnedFd) -> io::Result<Self> {
        let way = match Reads::new() {
            Ok(reads) => Way::Reads(reads),
            Err(_) => return Self::with_thread(event),
        };
        Ok(Self { event, way })
    }

    fn with_thread(event: OwnedFd) -> io::Result<Self> {
        let (sender, counts) = sync_channel(MOST as usize);
        let own = event.try_clone()?;
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let stopped = Arc::clone(&stop);
        std::thread::Builder::new()
            .name(THREAD.to_owned())
            .spawn(move || write_alone(&own, &stopped, &counts))?;
        Ok(Self {
            event,
            way: Way::Thread {
                counts: sender,
                stop,
            },
        })
    }

    /// Counts up by `count`, as far as the descriptor goes; does not block.
    ///
    /// # Errors
    /// It is no event descriptor.
    pub(crate) fn ring(&self, count: u64) -> io::Result<()> {
        match &self.way {
            Way::Reads(reads) => (0..count.min(MOST)).try_for_each(|_| reads.count(&self.event)),
            Way::Thread { .. } if count == 0 => Ok(()),
            // What a thread that is blocked has no room for joins what it will write.
            Way::Thread { counts, .. } => match counts.try_send(count.min(MOST)) {
                Ok(()) | Err(TrySendError::Full(_)) => Ok(()),
                Err(TrySendError::Disconnected(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::read;
    use std::time::{Duration, Instant};

    fn value(event: &OwnedFd) -> u64 {
        let mut bytes = [0; 8];
        read(event, &mut bytes).unwrap();
        u64::from_ne_bytes(bytes)
    }

    #[test]
    fn it_counts_by_the_number_of_interrupts() {
        let event = eventfd(0, EventfdFlags::empty()).unwrap();
        let bell = Bell::new(event.try_clone().unwrap()).unwrap();
        bell.ring(0).unwrap();
        bell.ring(3).unwrap();
        bell.ring(1).unwrap();
        assert_eq!(value(&event), 4);
        let bell = Bell::with_thread(event.try_clone().unwrap()).unwrap();
        bell.ring(2).unwrap();
        // Written one by one.
        let mut counted = value(&event);
        while counted < 2 {
            counted += value(&event);
        }
        assert_eq!(counted, 2);
    }

    /// Rings for descriptors at their limit, and for what is no event descriptor.
    fn ring_all() {
        for below in [0u64, 1, 2] {
            let event = eventfd(0, EventfdFlags::empty()).unwrap();
            write(&event, &(u64::MAX - 1 - below).to_ne_bytes()).unwrap();
            for way in [Bell::new, Bell::with_thread] {
                let bell = way(event.try_clone().unwrap()).unwrap();
                for _ in 0..50 {
                    bell.ring(7).unwrap();
                }
            }
        }
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let bell = Bell::new(writer).unwrap();
        assert!(bell.ring(1).is_err() || matches!(bell.way, Way::Thread { .. }));
        drop(reader);
    }

    #[test]
    fn it_never_blocks() {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            ring_all();
            tell.send(()).unwrap();
        });
        assert_eq!(
            told.recv_timeout(std::time::Duration::from_secs(30)),
            Ok(())
        );
    }

    /// Threads of this process that write for bells.
    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
        let names = tasks.filter_map(|task| name(task.ok()?).ok());
        names.filter(|name| name.trim() == THREAD).count()
    }

    #[test]
    fn a_bell_that_is_gone_leaves_no_thread_behind() {
        const BELLS: usize = 200;
        for _ in 0..BELLS {
            let event = eventfd(0, EventfdFlags::empty()).unwrap();
            write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
            let bell = Bell::with_thread(event).unwrap();
            bell.ring(3).unwrap();
        }
        // Other tests have some for a while.
        let until = Instant::now() + Duration::from_secs(60);
        while threads() > BELLS / 10 {
            assert!(Instant::now() < until, "{} threads", threads());
            std::thread::yield_now();
        }
    }
}
