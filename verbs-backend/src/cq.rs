// UNSAFETY: calls a C library that fills arrays of completions.
//! Completion queues.

#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs_sys as sys;

use crate::completion::Completion;
use crate::device::{self, Device};

/// A completion queue cannot be made or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CqError {
    /// The size is beyond the device's.
    #[error("a completion queue of {asked} entries: the device takes 1 to {limit}")]
    Size {
        /// Entries asked for.
        asked: u32,
        /// The device's limit.
        limit: u32,
    },
    /// The device refused to make it.
    #[error("cannot make a completion queue of {entries} entries")]
    Create {
        /// Entries asked for.
        entries: u32,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The queue is broken, most likely because more completions came than it has entries.
    #[error("cannot poll the completion queue of {entries} entries (overrun?): code {code}")]
    Poll {
        /// Entries of the queue.
        entries: u32,
        /// The provider's answer.
        code: i32,
    },
    /// The queue was made without events.
    #[error("the completion queue was made without events")]
    NoEvents,
    /// Arming, or reading an event, failed.
    #[error("completion event failed")]
    Event(#[source] io::Error),
}

/// A completion queue; clones are handles of the same one.
///
/// It must have room for every completion that can be outstanding: a queue that overruns is broken for good.
#[derive(Clone, Debug)]
pub struct Cq(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    device: Arc<device::Inner>,
    raw: NonNull<sys::ibv_cq>,
    channel: Option<NonNull<sys::ibv_comp_channel>>,
    entries: u32,
}

// SAFETY: libibverbs serialises the calls on a queue and its channel (see the crate's "Thread safety").
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: made by `Cq::build`; all queue pairs that use it hold an `Arc` of `self`, so none is left, and
        // every event taken from the channel has been acknowledged.
        if unsafe { (self.device.verbs.ibv_destroy_cq)(self.raw.as_ptr()) } != 0 {
            tracing::error!("libibverbs did not destroy a completion queue");
        } else if let Some(channel) = self.channel {
            destroy_channel(&self.device, channel);
        }
    }
}

/// Destroys a channel that no queue uses any more.
fn destroy_channel(device: &device::Inner, channel: NonNull<sys::ibv_comp_channel>) {
    // SAFETY: made by `Cq::build`; the only queue that used it is gone or was never made.
    if unsafe { (device.verbs.ibv_destroy_comp_channel)(channel.as_ptr()) } != 0 {
        tracing::error!("libibverbs did not destroy a completion channel");
    }
}

impl Cq {
    /// Makes a queue of at least `entries` entries, for polling.
    ///
    /// # Errors
    ///
    /// The device's limits.
    pub fn new(device: &Device, entries: u32) -> Result<Self, CqError> {
        Self::build(device, entries, false)
    }

    /// The same, with a file descriptor that tells of completions; see [`Cq::arm`].
    ///
    /// # Errors
    ///
    /// The device's limits.
    pub fn with_events(device: &Device, entries: u32) -> Result<Self, CqError> {
        Self::build(device, entries, true)
    }

    fn build(device: &Device, entries: u32, events: bool) -> Result<Self, CqError> {
        let device = Arc::clone(&device.0);
        let limit = device.limits().cq_entries;
        let size = match i32::try_from(entries) {
            Ok(size) if (1..=limit).contains(&entries) => size,
            _ => {
                return Err(CqError::Size {
                    asked: entries,
                    limit,
                });
            }
        };
        let context = device.context.as_ptr();
        let mut channel = None;
        if events {
            // SAFETY: the context is open while `device` lives.
            let made = unsafe { (device.verbs.ibv_create_comp_channel)(context) };
            let made =
                NonNull::new(made).ok_or_else(|| CqError::Event(io::Error::last_os_error()))?;
            if let Err(error) = rustix::io::ioctl_fionbio(channel_fd(made), true) {
                destroy_channel(&device, made);
                return Err(CqError::Event(error.into()));
            }
            channel = Some(made);
        }
        let raw_channel = channel.map_or(std::ptr::null_mut(), NonNull::as_ptr);
        let create = device.verbs.ibv_create_cq;
        // SAFETY: the context is open and the channel, if any, was made on it.
        let raw = unsafe { create(context, size, std::ptr::null_mut(), raw_channel, 0) };
        let Some(raw) = NonNull::new(raw) else {
            let source = io::Error::last_os_error();
            if let Some(channel) = channel {
                destroy_channel(&device, channel);
            }
            return Err(CqError::Create { entries, source });
        };
        // SAFETY: the library returned a valid queue, whose size is fixed (it is never resized here).
        let given = unsafe { (*raw.as_ptr()).cqe };
        let entries = u32::try_from(given).unwrap_or(entries);
        Ok(Self(Arc::new(Inner {
            device,
            raw,
            channel,
            entries,
        })))
    }

    /// Entries of the queue, which may be more than were asked for.
    pub fn entries(&self) -> u32 {
        self.0.entries
    }

    /// Takes completions into `slots` and gives those it found, maybe none. Never waits or allocates.
    ///
    /// # Errors
    ///
    /// The queue is broken.
    #[inline]
    pub fn poll<'a>(&self, slots: &'a mut [Completion]) -> Result<&'a [Completion], CqError> {
        let room = i32::try_from(slots.len()).unwrap_or(i32::MAX);
        let first = slots.as_mut_ptr().cast();
        // SAFETY: the queue is live; `Completion` is a transparent `ibv_wc`, and `slots` has room for `room` of them.
        let count = unsafe { sys::inline::poll_cq(self.0.raw.as_ptr(), room, first) };
        match usize::try_from(count) {
            Ok(count) => Ok(slots.get(..count).unwrap_or(slots)),
            Err(_) => Err(CqError::Poll {
                entries: self.0.entries,
                code: count,
            }),
        }
    }

    /// Asks for one event when the next completion comes (with `solicited_only`: the next solicited one or
    /// failure). Completions that are already there make no event: poll once more after arming, then wait.
    ///
    /// # Errors
    ///
    /// The queue has no events, or the provider refused.
    pub fn arm(&self, solicited_only: bool) -> Result<(), CqError> {
        self.channel()?;
        // SAFETY: the queue is live.
        let status =
            unsafe { sys::inline::req_notify_cq(self.0.raw.as_ptr(), i32::from(solicited_only)) };
        match status {
            0 => Ok(()),
            error => Err(CqError::Event(io::Error::from_raw_os_error(error.abs()))),
        }
    }

    /// Waits until an armed event comes, for `timeout` at most; true if one came. The queue must then be armed
    /// again.
    ///
    /// # Errors
    ///
    /// The queue has no events, or the system call failed.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool, CqError> {
        let channel = self.channel()?;
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let fd = channel_fd(channel);
        loop {
            match poll(&mut [PollFd::new(&fd, PollFlags::IN)], timeout.as_ref()) {
                Ok(0) => return Ok(false),
                Ok(_) => return self.take_event(),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(CqError::Event(error.into())),
            }
        }
    }

    /// Whether an event is there, which stays.
    ///
    /// # Errors
    ///
    /// The queue has no events, or the system call failed.
    pub fn has_event(&self) -> Result<bool, CqError> {
        let fd = channel_fd(self.channel()?);
        let now = Timespec::default();
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)) {
            Ok(ready) => Ok(ready > 0),
            Err(error) => Err(CqError::Event(error.into())),
        }
    }

    /// Takes an event if there is one, without waiting.
    ///
    /// # Errors
    ///
    /// The queue has no events, or the system call failed.
    pub fn take_event(&self) -> Result<bool, CqError> {
        let channel = self.channel()?;
        let (mut cq, mut cookie) = (std::ptr::null_mut(), std::ptr::null_mut());
        let verbs = self.0.device.verbs;
        // SAFETY: the channel is live; its descriptor does not block (`build`).
        let status = unsafe { (verbs.ibv_get_cq_event)(channel.as_ptr(), &mut cq, &mut cookie) };
        if status != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(false),
                _ => Err(CqError::Event(error)),
            };
        }
        // SAFETY: the event just taken came from this queue, the channel's only one.
        unsafe { (verbs.ibv_ack_cq_events)(self.0.raw.as_ptr(), 1) };
        Ok(true)
    }

    /// Takes all events there are, so that the descriptor is readable only for a new one. To be called before
    /// [`Cq::arm`]; gives how many there were.
    ///
    /// # Errors
    ///
    /// Those of [`Cq::take_event`].
    pub fn drain_events(&self) -> Result<usize, CqError> {
        let mut count = 0;
        while self.take_event()? {
            count += 1;
        }
        Ok(count)
    }

    /// The descriptor that becomes readable when an armed event comes, to be given to `poll(2)` with others.
    ///
    /// # Errors
    ///
    /// The queue has no events.
    pub fn event_fd(&self) -> Result<BorrowedFd<'_>, CqError> {
        Ok(channel_fd(self.channel()?))
    }

    /// The raw object, for calls that this crate does not cover. It stays owned by this handle.
    pub fn as_raw(&self) -> *mut sys::ibv_cq {
        self.0.raw.as_ptr()
    }

    fn channel(&self) -> Result<NonNull<sys::ibv_comp_channel>, CqError> {
        self.0.channel.ok_or(CqError::NoEvents)
    }
}

/// The channel's descriptor; callers hold the queue that owns the channel for as long as they use it.
fn channel_fd<'a>(channel: NonNull<sys::ibv_comp_channel>) -> BorrowedFd<'a> {
    // SAFETY: the library returned a valid channel, whose descriptor it never changes.
    let fd = unsafe { (*channel.as_ptr()).fd };
    // SAFETY: open until the channel is destroyed, which the callers' hold of the queue prevents.
    unsafe { BorrowedFd::borrow_raw(fd) }
}
