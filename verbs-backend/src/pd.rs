// UNSAFETY: makes and destroys an object of a C library.
//! Protection domains: which memory regions a queue pair may use.

#![expect(unsafe_code, reason = "calls into libibverbs")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys as sys;

use crate::device::{self, Device};

/// A protection domain; clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Pd(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) device: Arc<device::Inner>,
    pub(crate) raw: NonNull<sys::ibv_pd>,
}

// SAFETY: libibverbs serialises the calls on a protection domain (see the crate's "Thread safety").
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: made by `Pd::new`; all objects made from it hold an `Arc` of `self`, so none is left.
        if unsafe { (self.device.verbs.ibv_dealloc_pd)(self.raw.as_ptr()) } != 0 {
            tracing::error!("libibverbs did not free a protection domain");
        }
    }
}

impl Pd {
    /// Makes a protection domain on `device`.
    ///
    /// # Errors
    ///
    /// The device's limit is reached.
    pub fn new(device: &Device) -> io::Result<Self> {
        let device = Arc::clone(&device.0);
        // SAFETY: the context is open while `device` lives.
        let raw = unsafe { (device.verbs.ibv_alloc_pd)(device.context.as_ptr()) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self(Arc::new(Inner { device, raw })))
    }

    /// The device it was made on.
    pub fn device(&self) -> Device {
        Device(Arc::clone(&self.0.device))
    }

    /// The raw object, for calls that this crate does not cover. It stays owned by this handle.
    pub fn as_raw(&self) -> *mut sys::ibv_pd {
        self.0.raw.as_ptr()
    }
}
