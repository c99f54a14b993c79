// UNSAFETY: receives name memory by address.
//! Shared receive queues, and the posting of receives, which queue pairs of their own receive queue share.

#![expect(unsafe_code, reason = "calls into libibverbs with addresses")]

use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs_sys as sys;

use crate::batch::{Segment, check_id};
use crate::buffer::Buffer;
use crate::completion::Completion;
use crate::inflight::Inflight;
use crate::pd::{self, Pd};

/// Receives are posted in chains of up to this many, made on the stack.
const CHAIN: usize = 16;

/// A shared receive queue cannot be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SrqError {
    /// The size is beyond the device's.
    #[error(
        "a shared receive queue of {requests} receives with {segments} segments: \
         the device takes 1 to {request_limit} with 1 to {segment_limit}"
    )]
    Size {
        /// Receives asked for.
        requests: u32,
        /// Segments asked for.
        segments: u32,
        /// The device's limit of receives.
        request_limit: u32,
        /// The device's limit of segments.
        segment_limit: u32,
    },
    /// The device refused.
    #[error("cannot make a shared receive queue of {requests} receives")]
    Create {
        /// Receives asked for.
        requests: u32,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The device refused to watch the fill.
    #[error("cannot set the shared receive queue's limit to {limit}")]
    Limit {
        /// The limit asked for.
        limit: u32,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// Receives were not all accepted.
#[derive(Debug, thiserror::Error)]
#[error("{posted} receives posted, {} not", returned.len())]
pub struct RecvError {
    /// How many were accepted.
    pub posted: usize,
    /// The buffers that were not; iterators are not drawn from after the first refusal.
    pub returned: Vec<Buffer>,
    /// The answer: out of memory means that the queue is full.
    #[source]
    pub source: io::Error,
}

/// A receive queue that many queue pairs draw from; clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Srq(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pd: Arc<pd::Inner>,
    pub(crate) raw: NonNull<sys::ibv_srq>,
    requests: u32,
    segments: u32,
    /// Freed after `drop` has destroyed the queue.
    inflight: Mutex<Inflight>,
}

// SAFETY: libibverbs serialises the calls on a queue; the rest is behind a mutex.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: made by `Srq::new`; all queue pairs that use it hold an `Arc` of `self`, so none is left.
        if unsafe { (self.pd.device.verbs.ibv_destroy_srq)(self.raw.as_ptr()) } != 0 {
            tracing::error!(
                "libibverbs did not destroy a shared receive queue; its buffers are leaked"
            );
            std::mem::forget(std::mem::take(&mut *lock(&self.inflight)));
        }
    }
}

#[inline]
pub(crate) fn lock(inflight: &Mutex<Inflight>) -> MutexGuard<'_, Inflight> {
    inflight.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Srq {
    /// Makes a queue of at least `requests` receives of up to `segments` segments each.
    ///
    /// # Errors
    ///
    /// The device's limits.
    pub fn new(pd: &Pd, requests: u32, segments: u32) -> Result<Self, SrqError> {
        let pd = Arc::clone(&pd.0);
        let limits = pd.device.limits();
        let (request_limit, segment_limit) = (limits.srq_requests, limits.srq_segments);
        if !(1..=request_limit).contains(&requests) || !(1..=segment_limit).contains(&segments) {
            return Err(SrqError::Size {
                requests,
                segments,
                request_limit,
                segment_limit,
            });
        }
        let mut init = sys::ibv_srq_init_attr {
            srq_context: std::ptr::null_mut(),
            attr: sys::ibv_srq_attr {
                max_wr: requests,
                max_sge: segments,
                srq_limit: 0,
            },
        };
        // SAFETY: the protection domain is live; `init` is complete, and the library writes what it gave.
        let raw = unsafe { (pd.device.verbs.ibv_create_srq)(pd.raw.as_ptr(), &mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| SrqError::Create {
            requests,
            source: io::Error::last_os_error(),
        })?;
        Ok(Self(Arc::new(Inner {
            pd,
            raw,
            requests: init.attr.max_wr,
            segments: init.attr.max_sge,
            inflight: Mutex::default(),
        })))
    }

    /// Receives the queue holds, which may be more than were asked for.
    pub fn requests(&self) -> u32 {
        self.0.requests
    }

    /// Segments a receive may have.
    pub fn segments(&self) -> u32 {
        self.0.segments
    }

    /// Posts a receive for each of `buffers`, which the queue owns until their completions have been given to
    /// [`Srq::take`]; says how many. Chains of 16 go to the adapter in one call.
    ///
    /// # Errors
    ///
    /// The queue is full; buffers that were drawn and not posted come back.
    pub fn post_recv(&self, buffers: impl IntoIterator<Item = Buffer>) -> Result<usize, RecvError> {
        let raw = self.0.raw.as_ptr();
        post_buffers(&self.0.inflight, buffers, |head, bad| {
            // SAFETY: the queue is live; `post_buffers` gives a valid chain on memory that `inflight` owns.
            unsafe { sys::inline::post_srq_recv(raw, head, bad) }
        })
    }

    /// Posts one receive into any registered memory. `id` must not have bit 63 set.
    ///
    /// # Errors
    ///
    /// The queue is full, or the id is reserved.
    ///
    /// # Safety
    ///
    /// Until the completion of this receive has been polled, or the queue is gone: the memory that the segments
    /// name stays allocated, and nothing reads or writes it.
    pub unsafe fn post_recv_raw(&self, id: u64, segments: &[Segment]) -> io::Result<()> {
        let raw = self.0.raw.as_ptr();
        post_segments(id, segments, |head, bad| {
            // SAFETY: the queue is live; the chain is valid, and the caller answers for the memory it names.
            unsafe { sys::inline::post_srq_recv(raw, head, bad) }
        })
    }

    /// The buffer of the receive that `completion` completes; `None` if it is not one of this queue's, or was taken
    /// already.
    #[inline]
    pub fn take(&self, completion: &Completion) -> Option<Buffer> {
        lock(&self.0.inflight)
            .take(completion.id())
            .map(|(buffer, _)| buffer)
    }

    /// Receives posted with buffers and not taken yet.
    pub fn outstanding(&self) -> usize {
        lock(&self.0.inflight).len()
    }

    /// Asks for an asynchronous event when fewer than `limit` receives are left; once, then it must be asked
    /// again.
    ///
    /// # Errors
    ///
    /// The device does not do it, or the limit is above the queue's size.
    pub fn arm_limit(&self, limit: u32) -> Result<(), SrqError> {
        let mut attr = sys::ibv_srq_attr {
            srq_limit: limit,
            ..Default::default()
        };
        let modify = self.0.pd.device.verbs.ibv_modify_srq;
        let mask = sys::IBV_SRQ_LIMIT.cast_signed();
        // SAFETY: the queue is live, and `attr` has the field that the mask names.
        match unsafe { modify(self.0.raw.as_ptr(), &mut attr, mask) } {
            0 => Ok(()),
            error => Err(SrqError::Limit {
                limit,
                source: io::Error::from_raw_os_error(error.abs()),
            }),
        }
    }

    /// The raw object, for calls that this crate does not cover. It stays owned by this handle.
    pub fn as_raw(&self) -> *mut sys::ibv_srq {
        self.0.raw.as_ptr()
    }
}

/// How a chain of receives reaches the adapter.
type PostRecv<'a> =
    &'a mut dyn FnMut(*mut sys::ibv_recv_wr, &mut *mut sys::ibv_recv_wr) -> std::ffi::c_int;

/// Posts a receive for each buffer, in chains, by `post`; `inflight` owns the buffers of those accepted.
pub(crate) fn post_buffers(
    inflight: &Mutex<Inflight>,
    buffers: impl IntoIterator<Item = Buffer>,
    mut post: impl FnMut(*mut sys::ibv_recv_wr, &mut *mut sys::ibv_recv_wr) -> std::ffi::c_int,
) -> Result<usize, RecvError> {
    let mut buffers = buffers.into_iter();
    let mut posted = 0;
    loop {
        let mut ids = [0; CHAIN];
        // Left uninitialised beyond `count`: clearing them costs more than posting one receive.
        let mut segments = [const { MaybeUninit::uninit() }; CHAIN];
        let mut count = 0;
        let mut refused = None;
        for buffer in buffers.by_ref().take(CHAIN) {
            let Some(segment) = buffer.segment(0..buffer.len()) else {
                refused = Some((buffer, io::Error::from(io::ErrorKind::InvalidInput)));
                break;
            };
            // Before the post: its completion may be polled by another thread as soon as it is posted.
            match lock(inflight).insert(buffer, 0) {
                Ok(ticket) => {
                    ids[count] = ticket;
                    segments[count].write(segment.0);
                    count += 1;
                }
                Err(buffer) => {
                    refused = Some((buffer, io::Error::from_raw_os_error(libc::ENOMEM)));
                    break;
                }
            }
        }
        if count > 0 {
            let (accepted, error) = post_chain(&ids[..count], &mut segments[..count], &mut post);
            posted += accepted;
            if let Some(source) = error {
                let mut table = lock(inflight);
                let back = ids[accepted..count].iter().filter_map(|&id| table.take(id));
                let mut returned: Vec<Buffer> = back.map(|(buffer, _)| buffer).collect();
                returned.extend(refused.map(|(buffer, _)| buffer));
                return Err(RecvError {
                    posted,
                    returned,
                    source,
                });
            }
        }
        if let Some((buffer, source)) = refused {
            return Err(RecvError {
                posted,
                returned: vec![buffer],
                source,
            });
        }
        if count < CHAIN {
            return Ok(posted);
        }
    }
}

/// Posts a chain of receives of one segment each, all of which are initialised; how many were accepted, and the
/// error if not all were.
fn post_chain(
    ids: &[u64],
    segments: &mut [MaybeUninit<sys::ibv_sge>],
    post: PostRecv<'_>,
) -> (usize, Option<io::Error>) {
    let count = ids.len().min(segments.len()).min(CHAIN);
    let first_segment = segments.as_mut_ptr().cast::<sys::ibv_sge>();
    let mut requests = [const { MaybeUninit::<sys::ibv_recv_wr>::uninit() }; CHAIN];
    let head = requests.as_mut_ptr().cast::<sys::ibv_recv_wr>();
    let mut next = std::ptr::null_mut();
    for (index, &wr_id) in ids.iter().enumerate().take(count).rev() {
        let place = head.wrapping_add(index);
        let sg_list = first_segment.wrapping_add(index);
        // SAFETY: `place` points into `requests`, since the index is below its length.
        unsafe {
            place.write(sys::ibv_recv_wr {
                wr_id,
                next,
                sg_list,
                num_sge: 1,
            })
        };
        next = place;
    }
    let mut bad = std::ptr::null_mut();
    match post(head, &mut bad) {
        0 => (count, None),
        status => {
            // A provider that fails without naming the request accepted none.
            let accepted = (0..count)
                .find(|&index| head.wrapping_add(index) == bad)
                .unwrap_or(0);
            (accepted, Some(io::Error::from_raw_os_error(status.abs())))
        }
    }
}

/// Posts one receive of raw segments by `post`.
pub(crate) fn post_segments(
    id: u64,
    segments: &[Segment],
    post: impl FnOnce(*mut sys::ibv_recv_wr, &mut *mut sys::ibv_recv_wr) -> std::ffi::c_int,
) -> io::Result<()> {
    check_id(id).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let mut request = sys::ibv_recv_wr {
        wr_id: id,
        next: std::ptr::null_mut(),
        // `Segment` is a transparent `ibv_sge`; the library only reads the list.
        sg_list: segments.as_ptr().cast::<sys::ibv_sge>().cast_mut(),
        num_sge: i32::try_from(segments.len())
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?,
    };
    let mut bad = std::ptr::null_mut();
    match post(&mut request, &mut bad) {
        0 => Ok(()),
        status => Err(io::Error::from_raw_os_error(status.abs())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::BufferPool;

    /// Stands for the adapter: accepts `room` receives in all and notes the ids.
    fn adapter<'a>(
        room: &'a mut usize,
        seen: &'a mut Vec<u64>,
    ) -> impl FnMut(*mut sys::ibv_recv_wr, &mut *mut sys::ibv_recv_wr) -> std::ffi::c_int + 'a {
        |mut at, bad| {
            while !at.is_null() {
                if *room == 0 {
                    *bad = at;
                    return libc::ENOMEM;
                }
                // SAFETY: a chain that the code under test has just linked.
                let request = unsafe { *at };
                // SAFETY: each request of these tests has one segment.
                let segment = unsafe { *request.sg_list };
                assert_eq!(segment.length, 32);
                *room -= 1;
                seen.push(request.wr_id);
                at = request.next;
            }
            0
        }
    }

    #[test]
    fn a_full_queue_gives_the_rest_back() {
        let pool = BufferPool::unregistered(100, 32);
        let table = Mutex::new(Inflight::default());
        let (mut room, mut seen) = (37, Vec::new());
        let buffers = std::iter::from_fn(|| pool.take());
        let error = post_buffers(&table, buffers, adapter(&mut room, &mut seen)).unwrap_err();
        // The third chain of 16 was drawn, and 5 of it accepted.
        assert_eq!((error.posted, error.returned.len()), (37, 11));
        assert_eq!((lock(&table).len(), pool.available()), (37, 52));
        drop(error);
        assert_eq!(pool.available(), 63);
        for id in seen {
            assert!(lock(&table).take(id).is_some());
        }
        assert_eq!(pool.available(), 100);
    }

    #[test]
    fn chains_cover_all_buffers() {
        let pool = BufferPool::unregistered(40, 32);
        for wanted in [0, 1, 15, 16, 17, 32, 40] {
            let table = Mutex::new(Inflight::default());
            let (mut room, mut seen) = (1000, Vec::new());
            let buffers = std::iter::from_fn(|| pool.take()).take(wanted);
            let posted = post_buffers(&table, buffers, adapter(&mut room, &mut seen)).unwrap();
            assert_eq!(
                (posted, seen.len(), lock(&table).len()),
                (wanted, wanted, wanted)
            );
        }
    }

    #[test]
    fn reserved_ids_are_refused() {
        let error = post_segments(1 << 63, &[], |_, _| 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
