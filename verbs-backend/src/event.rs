// UNSAFETY: reads events that a C library fills in.
//! What a device tells unasked: ports that come and go, queues that broke, the device's own end.

#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::io;
use std::os::fd::BorrowedFd;

use verbs_sys as sys;

use crate::device::Device;

/// An event of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The device has failed or was taken away; nothing of it works any more.
    DeviceGone,
    /// The port carries traffic.
    PortUp(u8),
    /// The port carries none.
    PortDown(u8),
    /// The port's addresses have changed.
    Addresses(u8),
    /// A queue pair is broken; its requests complete as flushed.
    QueuePair {
        /// Its number.
        qpn: u32,
        /// The event's code (`enum ibv_event_type`).
        code: u32,
    },
    /// No more receives of a shared queue will be taken for this queue pair, which is in the error state.
    LastReceive {
        /// Its number.
        qpn: u32,
    },
    /// A connection had its first packet before its side was ready to send.
    Established {
        /// The queue pair's number.
        qpn: u32,
    },
    /// A completion queue is broken, most likely because it overran.
    CompletionQueue,
    /// A shared receive queue is broken.
    ReceiveQueue,
    /// A shared receive queue has fewer receives than its limit.
    ReceivesLow,
    /// A code that this crate does not know.
    Other(u32),
}

impl Device {
    /// The descriptor that becomes readable when there is an event, to be given to `poll(2)`.
    pub fn events_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open while `self` lives, and never changes its descriptor.
        let fd = unsafe { (*self.as_raw()).async_fd };
        // SAFETY: open until the device is closed, which the borrow of `self` prevents.
        unsafe { BorrowedFd::borrow_raw(fd) }
    }

    /// The next event, without waiting.
    ///
    /// # Errors
    ///
    /// The system call failed.
    pub fn take_event(&self) -> io::Result<Option<Event>> {
        rustix::io::ioctl_fionbio(self.events_fd(), true)?;
        let mut event = sys::ibv_async_event {
            element: sys::ibv_async_element { port_num: 0 },
            event_type: 0,
        };
        let verbs = self.0.verbs;
        // SAFETY: the context is open, and `event` has room for the answer.
        if unsafe { (verbs.ibv_get_async_event)(self.as_raw(), &mut event) } != 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
                _ => Err(error),
            };
        }
        let port = || {
            // SAFETY: events of ports carry the port's number.
            let port = unsafe { event.element.port_num };
            u8::try_from(port).unwrap_or(0)
        };
        let qpn = || {
            // SAFETY: events of queue pairs carry one, which is not destroyed before the event is acknowledged below.
            let qp = unsafe { event.element.qp };
            // SAFETY: as above.
            unsafe { (*qp).qp_num }
        };
        let told = match event.event_type {
            sys::IBV_EVENT_DEVICE_FATAL => Event::DeviceGone,
            sys::IBV_EVENT_PORT_ACTIVE => Event::PortUp(port()),
            sys::IBV_EVENT_PORT_ERR => Event::PortDown(port()),
            sys::IBV_EVENT_GID_CHANGE => Event::Addresses(port()),
            sys::IBV_EVENT_QP_LAST_WQE_REACHED => Event::LastReceive { qpn: qpn() },
            sys::IBV_EVENT_COMM_EST => Event::Established { qpn: qpn() },
            code @ (sys::IBV_EVENT_QP_FATAL
            | sys::IBV_EVENT_QP_REQ_ERR
            | sys::IBV_EVENT_QP_ACCESS_ERR) => Event::QueuePair { qpn: qpn(), code },
            sys::IBV_EVENT_CQ_ERR => Event::CompletionQueue,
            sys::IBV_EVENT_SRQ_ERR => Event::ReceiveQueue,
            sys::IBV_EVENT_SRQ_LIMIT_REACHED => Event::ReceivesLow,
            other => Event::Other(other),
        };
        // SAFETY: the event that was just taken, once.
        unsafe { (verbs.ibv_ack_async_event)(&mut event) };
        Ok(Some(told))
    }
}
