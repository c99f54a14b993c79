// UNSAFETY: gives the adapter access to ranges of memory.
//! Memory regions: ranges that the adapter may reach.

#![expect(unsafe_code, reason = "calls into libibverbs with addresses")]

use std::io;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_sys as sys;

use crate::batch::Segment;
use crate::buffer::{BufferPool, Remote};
use crate::pd::{self, Pd};

bitflags::bitflags! {
    /// What may be done to a region besides being read by this side's own requests.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// Written by this side's receives and RDMA reads. Needed for the two remote writing rights.
        const LOCAL_WRITE = sys::IBV_ACCESS_LOCAL_WRITE;
        /// Written by peers.
        const REMOTE_WRITE = sys::IBV_ACCESS_REMOTE_WRITE;
        /// Read by peers.
        const REMOTE_READ = sys::IBV_ACCESS_REMOTE_READ;
        /// Changed atomically by peers.
        const REMOTE_ATOMIC = sys::IBV_ACCESS_REMOTE_ATOMIC;
        /// Pages are not locked; the adapter takes faults. Few devices do ([`on_demand`]).
        const ON_DEMAND = sys::IBV_ACCESS_ON_DEMAND;
    }
}

/// A range could not be registered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MrError {
    /// The range is empty or longer than the device takes.
    #[error("cannot register {length} bytes: the device takes 1 to {limit}")]
    Length {
        /// Bytes asked for.
        length: usize,
        /// The device's limit.
        limit: u64,
    },
    /// The system refused.
    #[error("cannot register {length} bytes at {address:#x}{hint}")]
    Refused {
        /// Start of the range.
        address: usize,
        /// Bytes of the range.
        length: usize,
        /// The system's answer.
        #[source]
        source: io::Error,
        /// The likely cause, and what to do.
        hint: String,
    },
    /// No memory for a buffer.
    #[error("cannot allocate {length} bytes for registered memory")]
    Memory {
        /// Bytes asked for.
        length: usize,
    },
}

impl MrError {
    /// Whether the system refused to lock the pages, which may be locked later, or registered without that
    /// ([`Access::ON_DEMAND`]).
    pub fn is_of_locking(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if is_of_locking(source))
    }
}

/// Linux says EPERM, and not ENOMEM, to a process that may lock nothing at all (`can_do_mlock` in the kernel's
/// `mm/mlock.c`).
fn is_of_locking(error: &io::Error) -> bool {
    match error.raw_os_error() {
        Some(libc::ENOMEM) => true,
        Some(libc::EPERM) => memlock_limit() == Some(0),
        _ => false,
    }
}

/// A registered range. Dropping it takes the adapter's access away; requests that still name it then fail.
#[derive(Debug)]
pub struct Mr {
    pd: Arc<pd::Inner>,
    raw: NonNull<sys::ibv_mr>,
    address: usize,
    length: usize,
    lkey: u32,
    rkey: u32,
}

// SAFETY: libibverbs serialises the calls on a region; this type holds no reference to the memory itself.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Mr {
    /// Registers `length` bytes from `address`.
    ///
    /// # Errors
    ///
    /// [`MrError`]: the range is not mapped with the rights asked for, or a limit is reached.
    ///
    /// # Safety
    ///
    /// While the region lives, the memory must stay allocated. If `access` has a remote right, peers may read
    /// or change the memory at any time during that life: no Rust reference may cover it, save shared ones
    /// where peers may only read.
    pub unsafe fn register_raw(
        pd: &Pd,
        address: *mut u8,
        length: usize,
        access: Access,
    ) -> Result<Self, MrError> {
        let limit = pd.0.device_limits().mr_bytes;
        if length == 0 || u64::try_from(length).is_ok_and(|length| length > limit) {
            return Err(MrError::Length { length, limit });
        }
        let register = pd.0.device.verbs.ibv_reg_mr;
        let rights = access.bits().cast_signed();
        // SAFETY: the protection domain is live; the caller answers for the memory.
        let raw = unsafe { register(pd.0.raw.as_ptr(), address.cast(), length, rights) };
        let address = address.addr();
        let Some(raw) = NonNull::new(raw) else {
            let source = io::Error::last_os_error();
            let hint = match source.raw_os_error() {
                _ if is_of_locking(&source) => memlock_hint(),
                Some(libc::EFAULT) => " (not mapped, or not writable)".to_owned(),
                Some(libc::EINVAL) => " (remote writing needs LOCAL_WRITE too)".to_owned(),
                _ => format!(": {source}"),
            };
            return Err(MrError::Refused {
                address,
                length,
                source,
                hint,
            });
        };
        // SAFETY: the library returned a valid region, whose keys it never changes.
        let lkey = unsafe { (*raw.as_ptr()).lkey };
        // SAFETY: as above.
        let rkey = unsafe { (*raw.as_ptr()).rkey };
        Ok(Self {
            pd: Arc::clone(&pd.0),
            raw,
            address,
            length,
            lkey,
            rkey,
        })
    }

    /// Key for this side's requests.
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// Key for peers' requests.
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Start of the range.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Bytes of the range.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Does the region hold `length` bytes from `address`?
    pub fn covers(&self, address: usize, length: usize) -> bool {
        address >= self.address
            && address
                .checked_sub(self.address)
                .and_then(|offset| offset.checked_add(length))
                .is_some_and(|end| end <= self.length)
    }

    /// The segment of `length` bytes from `offset`, if the region holds it and it is shorter than 4 GiB.
    pub fn segment(&self, offset: usize, length: usize) -> Option<Segment> {
        let address = self.address.checked_add(offset)?;
        if !self.covers(address, length) {
            return None;
        }
        Segment::new(address, length, self.lkey)
    }

    /// What a peer needs to reach the byte at `offset`.
    pub fn remote(&self, offset: usize) -> Option<Remote> {
        let address = self.address.checked_add(offset)?;
        self.covers(address, 0).then_some(Remote {
            address: u64::try_from(address).ok()?,
            rkey: self.rkey,
        })
    }
}

/// Bytes that this process may lock in memory (`RLIMIT_MEMLOCK`); `None` is no limit, or one that the system does not tell.
pub fn memlock_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the structure is whole, and may be written while the call lasts. A call that is refused leaves it.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn memlock_hint() -> String {
    match memlock_limit() {
        Some(limit) => format!(
            ": locked memory is limited to {limit} bytes; raise it with \"ulimit -l unlimited\", for users by \
             memlock in /etc/security/limits.conf, under Slurm by PropagateResourceLimitsExcept=MEMLOCK"
        ),
        None => ": the device or the machine has no memory for it".to_owned(),
    }
}

/// Does the device register memory without locking its pages (on-demand paging)? Found out by trying.
pub fn on_demand(pd: &Pd) -> bool {
    let Ok(probe) = BufferPool::new(pd, 1, 4096) else {
        return false;
    };
    let Some(buffer) = probe.take() else {
        return false;
    };
    let access = Access::LOCAL_WRITE | Access::ON_DEMAND;
    let start = buffer.as_ptr().cast_mut();
    // SAFETY: the buffer outlives the region, which no request uses.
    unsafe { Mr::register_raw(pd, start, buffer.len(), access) }.is_ok()
}

impl Drop for Mr {
    fn drop(&mut self) {
        // SAFETY: made by `register_raw`, and destroyed only here.
        if unsafe { (self.pd.device.verbs.ibv_dereg_mr)(self.raw.as_ptr()) } != 0 {
            tracing::error!(
                address = self.address,
                "libibverbs did not deregister a region"
            );
        }
    }
}

impl pd::Inner {
    fn device_limits(&self) -> crate::Limits {
        *self.device.limits()
    }
}
