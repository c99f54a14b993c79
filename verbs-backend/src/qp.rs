// UNSAFETY: work requests name memory by address.
//! Queue pairs for reliable connections.
//!
//! ```text
//!   new        init             ready_to_receive         ready_to_send
//!  ─────▶ RESET ────▶ INIT ────────────────────▶ RTR ────────────────▶ RTS
//!           ▲          │ receives may be posted   │ receives arrive     │ sends may be posted
//!           │ reset    └───────────────┬──────────┴─────────────────────┘
//!           └───────────────────── ERR ◀ to_error, or any failed request: the rest is flushed
//! ```
//!
//! The two sides exchange their [`Endpoint`]s by some other way between `new` and `ready_to_receive`.

#![expect(unsafe_code, reason = "calls into libibverbs with addresses")]

mod endpoint;
mod options;

use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use verbs_sys as sys;

pub(crate) use endpoint::modify_cause;
pub use endpoint::{Endpoint, EndpointError, Mtu, QpState};
pub(crate) use options::empty_init_attr;
pub use options::{Capabilities, QpOptions, Route};

use crate::batch::{
    PushError, Rejected, Segment, SendBatch, SendFlags, SendOp, address, check_id, request,
};
use crate::buffer::Buffer;
use crate::cm::Depths;
use crate::completion::Completion;
use crate::device::{DeviceError, PortInfo};
use crate::gid::GidEntry;
use crate::inflight::Inflight;
use crate::pd::{self, Pd};
use crate::srq::{RecvError, lock, post_buffers, post_segments};
use crate::{cq, srq};

/// A queue pair cannot be made or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QpError {
    /// The port or its address is not usable.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device refused to make it.
    #[error(
        "cannot make a queue pair with {max_send} sends of {send_segments} segments and {max_recv} receives"
    )]
    Create {
        /// Sends asked for.
        max_send: u32,
        /// Segments of a send asked for.
        send_segments: u32,
        /// Receives asked for.
        max_recv: u32,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The system has no random bytes.
    #[error("no random bytes for the first packet sequence number of a queue pair")]
    Random(#[source] io::Error),
    /// A size is beyond the device's.
    #[error("{asked} {what} of a queue pair: the device takes at most {limit}")]
    Size {
        /// What is limited.
        what: &'static str,
        /// How many were asked for.
        asked: u32,
        /// The device's limit.
        limit: u32,
    },
    /// A change of state was refused.
    #[error("queue pair {qpn:#x} cannot go from {from} to {to} ({cause})")]
    Modify {
        /// Number of the queue pair.
        qpn: u32,
        /// Its state before.
        from: QpState,
        /// The state asked for.
        to: QpState,
        /// The system's answer.
        #[source]
        source: io::Error,
        /// The likely cause.
        cause: &'static str,
    },
    /// The state cannot be read.
    #[error("cannot query queue pair {qpn:#x}")]
    Query {
        /// Number of the queue pair.
        qpn: u32,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

/// The attributes of the InfiniBand specification.
const STANDARD: u32 = (1 << 21) - 1;

/// Most requests of [`Qp::post_inline_chain`].
pub const CHAIN: usize = 32;

/// Requests were not all accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// A request is malformed and was not given to the adapter.
    #[error(transparent)]
    Request(#[from] PushError),
    /// The send queue has no room: completions must be polled first.
    #[error("queue pair {qpn:#x}: send queue full after {accepted} requests")]
    Full {
        /// Number of the queue pair.
        qpn: u32,
        /// How many of the requests were accepted.
        accepted: usize,
    },
    /// The adapter refused a request.
    #[error(
        "queue pair {qpn:#x} refused request {accepted} of the post (not connected, more segments or inline \
         bytes than its capabilities, or a read without a signal)"
    )]
    Refused {
        /// Number of the queue pair.
        qpn: u32,
        /// How many of the requests were accepted.
        accepted: usize,
        /// The provider's answer.
        #[source]
        source: io::Error,
    },
}

impl PostError {
    /// How many of the requests were accepted.
    pub fn accepted(&self) -> usize {
        match self {
            Self::Request(_) => 0,
            Self::Full { accepted, .. } | Self::Refused { accepted, .. } => *accepted,
        }
    }
}

/// A queue pair of a reliable connection; clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Qp(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    raw: NonNull<sys::ibv_qp>,
    pd: Arc<pd::Inner>,
    /// Held so that they outlive the queue pair.
    queues: (Arc<cq::Inner>, Arc<cq::Inner>, Option<Arc<srq::Inner>>),
    capabilities: Capabilities,
    options: options::Connection,
    port: PortInfo,
    gid: Option<GidEntry>,
    qpn: u32,
    psn: u32,
    /// Freed after `drop` has destroyed the queue pair.
    sends: Mutex<Inflight>,
    receives: Mutex<Inflight>,
    /// Calls that gave the adapter requests to send.
    posts: AtomicU64,
    /// Destroyed already.
    gone: bool,
}

// SAFETY: libibverbs serialises the calls on a queue pair; the rest is constant or behind a mutex.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        self.destroy();
    }
}

impl Inner {
    /// Destroys the queue pair, unless that is done. Should the library refuse, its buffers are leaked.
    fn destroy(&mut self) {
        if std::mem::replace(&mut self.gone, true) {
            return;
        }
        // SAFETY: made by `Qp::new`, and destroyed only here, once.
        if unsafe { (self.pd.device.verbs.ibv_destroy_qp)(self.raw.as_ptr()) } != 0 {
            tracing::error!(
                qpn = self.qpn,
                "libibverbs did not destroy a queue pair; its buffers are leaked"
            );
            std::mem::forget(std::mem::take(&mut *lock(&self.sends)));
            std::mem::forget(std::mem::take(&mut *lock(&self.receives)));
        }
    }
}

impl Qp {
    /// Makes a queue pair in the state RESET.
    ///
    /// # Errors
    ///
    /// The device's limits, or a port without address.
    pub fn new(pd: &Pd, options: &QpOptions<'_>) -> Result<Self, QpError> {
        let device = pd.device();
        options.check(device.limits())?;
        let port = device.port(options.port)?;
        // On InfiniBand the local identifier is the address, and a GID only goes with it. On iWARP neither is one.
        let gid = match device.gid(options.port, options.gid_index) {
            _ if port.iwarp => None,
            Ok(gid) => Some(gid),
            Err(_) if !port.ethernet && options.gid_index.is_none() => None,
            Err(error) => return Err(error.into()),
        };
        let psn = endpoint::random_psn().map_err(QpError::Random)?;
        let pd = Arc::clone(&pd.0);
        let mut inline = options.max_inline;
        let (raw, capabilities) = loop {
            let mut init = options.init_attr(inline);
            // SAFETY: the protection domain and the queues in `init` are live: `pd` and `options` hold them.
            let raw = unsafe { (pd.device.verbs.ibv_create_qp)(pd.raw.as_ptr(), &mut init) };
            if let Some(raw) = NonNull::new(raw) {
                break (raw, Capabilities::new(&init.cap));
            }
            let source = io::Error::last_os_error();
            // Adapters do not say how much inline data they take; less is tried until one agrees.
            if inline == 0 || source.raw_os_error() != Some(libc::EINVAL) {
                return Err(QpError::Create {
                    max_send: options.max_send,
                    send_segments: options.send_segments,
                    max_recv: options.max_recv,
                    source,
                });
            }
            inline /= 2;
        };
        // SAFETY: the library returned a valid queue pair, whose number it never changes.
        let qpn = unsafe { (*raw.as_ptr()).qp_num };
        Ok(Self(Arc::new(Inner {
            raw,
            options: options.connection(pd.device.limits()),
            pd,
            queues: options.queues(),
            capabilities,
            port,
            gid,
            qpn,
            psn,
            sends: Mutex::default(),
            receives: Mutex::default(),
            posts: AtomicU64::new(0),
            gone: false,
        })))
    }

    /// Destroys the queue pair, if this is its last handle. Gives the buffers of requests to send whose completions were not
    /// taken, with their tags, in the order of the posts: the adapter does not touch them any more.
    pub fn destroy(self) -> Vec<(Buffer, u64)> {
        let Some(mut inner) = Arc::into_inner(self.0) else {
            return Vec::new();
        };
        inner.destroy();
        lock(&inner.sends).take_all()
    }

    /// The queue pair's number, as completions have it.
    pub fn qpn(&self) -> u32 {
        self.0.qpn
    }

    /// How often requests to send were given to the adapter, one or a chain at a time: each costs a doorbell. Exact as
    /// long as one thread at a time posts.
    pub fn posts(&self) -> u64 {
        self.0.posts.load(Ordering::Relaxed)
    }

    /// What the device gave, which may be more than was asked for.
    pub fn capabilities(&self) -> &Capabilities {
        &self.0.capabilities
    }

    /// What the peer needs to connect to this queue pair.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint {
            qpn: self.0.qpn,
            psn: self.0.psn,
            lid: self.0.port.lid,
            gid: self.0.gid.map(|entry| entry.gid).unwrap_or_default(),
            mtu: self.0.options.mtu(self.0.port.mtu),
        }
    }

    /// RESET to INIT: receives may be posted from now on.
    ///
    /// # Errors
    ///
    /// [`QpError::Modify`].
    pub fn init(&self) -> Result<(), QpError> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            pkey_index: self.0.options.route.pkey_index,
            port_num: self.0.port.number,
            qp_access_flags: self.0.options.access.bits(),
            ..Default::default()
        };
        let mut mask = sys::IBV_QP_STATE | sys::IBV_QP_ACCESS_FLAGS;
        if !self.is_iwarp() {
            mask |= sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT;
        }
        self.modify(&mut attr, mask, QpState::INIT)
    }

    /// INIT to RTR: connects to `remote` and accepts what it sends.
    ///
    /// # Errors
    ///
    /// [`QpError::Modify`].
    pub fn ready_to_receive(&self, remote: &Endpoint) -> Result<(), QpError> {
        let own = self.endpoint();
        let route = self
            .0
            .options
            .route
            .ah_attr(&self.0.port, self.0.gid, remote.gid, remote.lid);
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTR,
            ah_attr: route,
            path_mtu: own.mtu.min(remote.mtu).code(),
            dest_qp_num: remote.qpn,
            rq_psn: remote.psn,
            max_dest_rd_atomic: self.0.options.rd_atomic_target,
            min_rnr_timer: self.0.options.min_rnr_timer,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_AV
            | sys::IBV_QP_PATH_MTU
            | sys::IBV_QP_DEST_QPN
            | sys::IBV_QP_RQ_PSN
            | sys::IBV_QP_MAX_DEST_RD_ATOMIC
            | sys::IBV_QP_MIN_RNR_TIMER;
        self.modify(&mut attr, mask, QpState::RTR)
    }

    /// RTR to RTS: sends may be posted from now on.
    ///
    /// # Errors
    ///
    /// [`QpError::Modify`].
    pub fn ready_to_send(&self) -> Result<(), QpError> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RTS,
            timeout: self.0.options.timeout,
            retry_cnt: self.0.options.retry_count,
            rnr_retry: self.0.options.rnr_retry,
            sq_psn: self.0.psn,
            max_rd_atomic: self.0.options.rd_atomic_initiator,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE
            | sys::IBV_QP_TIMEOUT
            | sys::IBV_QP_RETRY_CNT
            | sys::IBV_QP_RNR_RETRY
            | sys::IBV_QP_SQ_PSN
            | sys::IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify(&mut attr, mask, QpState::RTS)
    }

    /// A step that the connection manager has made up, with this side's own timing.
    pub(crate) fn step(
        &self,
        attr: &mut sys::ibv_qp_attr,
        mask: u32,
        depths: Depths,
        to: QpState,
    ) -> Result<(), QpError> {
        let options = &self.0.options;
        attr.max_dest_rd_atomic = depths.target;
        attr.max_rd_atomic = depths.initiator;
        attr.min_rnr_timer = options.min_rnr_timer;
        attr.timeout = options.timeout;
        attr.retry_cnt = options.retry_count;
        attr.rnr_retry = options.rnr_retry;
        // The kernel sets bits of its own for RoCE, which it does not take back.
        self.modify(attr, mask & STANDARD, to)
    }

    /// Whether its device is an iWARP one.
    pub fn is_iwarp(&self) -> bool {
        self.0.port.iwarp
    }

    /// The reads and atomics that its options allow.
    pub(crate) fn depths(&self) -> Depths {
        Depths {
            target: self.0.options.rd_atomic_target,
            initiator: self.0.options.rd_atomic_initiator,
        }
    }

    /// Its counts of repetitions, and of those for want of a receive.
    pub(crate) fn retries(&self) -> (u8, u8) {
        (self.0.options.retry_count, self.0.options.rnr_retry)
    }

    /// Whether its receives come from a shared queue.
    pub(crate) fn has_srq(&self) -> bool {
        self.0.queues.2.is_some()
    }

    /// From RESET or INIT to RTS: the three steps in one.
    ///
    /// # Errors
    ///
    /// [`QpError::Modify`] of the step that failed.
    pub fn connect(&self, remote: &Endpoint) -> Result<(), QpError> {
        if self.state()? == QpState::RESET {
            self.init()?;
        }
        self.ready_to_receive(remote)?;
        self.ready_to_send()
    }

    /// To ERR, from any state: all outstanding requests complete as flushed.
    ///
    /// # Errors
    ///
    /// [`QpError::Modify`].
    pub fn to_error(&self) -> Result<(), QpError> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_ERR,
            ..Default::default()
        };
        self.modify(&mut attr, sys::IBV_QP_STATE, QpState::ERROR)
    }

    /// To RESET, from any state, to be connected again: requests that were outstanding are forgotten without
    /// completions, and those that own a buffer give it back to its pool.
    ///
    /// # Errors
    ///
    /// [`QpError::Modify`].
    pub fn reset(&self) -> Result<(), QpError> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RESET,
            ..Default::default()
        };
        self.modify(&mut attr, sys::IBV_QP_STATE, QpState::RESET)?;
        // In RESET the adapter holds no request; late completions find nothing, since tickets are not used twice.
        *lock(&self.0.sends) = Inflight::default();
        *lock(&self.0.receives) = Inflight::default();
        Ok(())
    }

    /// The state that the device reports.
    ///
    /// # Errors
    ///
    /// [`QpError::Query`].
    pub fn state(&self) -> Result<QpState, QpError> {
        let mut attr = sys::ibv_qp_attr::default();
        let mut init = options::empty_init_attr();
        let query = self.0.pd.device.verbs.ibv_query_qp;
        let mask = sys::IBV_QP_STATE.cast_signed();
        // SAFETY: the queue pair is live, and both structures have room for the answer.
        match unsafe { query(self.0.raw.as_ptr(), &mut attr, mask, &mut init) } {
            0 => Ok(QpState(attr.qp_state)),
            error => Err(QpError::Query {
                qpn: self.0.qpn,
                source: io::Error::from_raw_os_error(error.abs()),
            }),
        }
    }

    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32, to: QpState) -> Result<(), QpError> {
        let modify = self.0.pd.device.verbs.ibv_modify_qp;
        // SAFETY: the queue pair is live, and `attr` has the fields that the mask names.
        match unsafe { modify(self.0.raw.as_ptr(), attr, mask.cast_signed()) } {
            0 => Ok(()),
            error => {
                let source = io::Error::from_raw_os_error(error.abs());
                let from = self.state().unwrap_or(QpState(u32::MAX));
                let cause = endpoint::modify_cause(from, to, &source);
                Err(QpError::Modify {
                    qpn: self.0.qpn,
                    from,
                    to,
                    source,
                    cause,
                })
            }
        }
    }

    /// Posts the requests of `batch` in one call. On success the batch is empty; on failure it holds those that
    /// were not accepted, from the refused one on.
    ///
    /// # Errors
    ///
    /// The queue is full, or a request is not valid for the queue pair.
    pub fn post(&self, batch: &mut SendBatch) -> Result<(), PostError> {
        let total = batch.len();
        if total == 0 {
            return Ok(());
        }
        // Before the post: completions may be polled by another thread as soon as it is posted.
        let count = batch.hand_over(|buffer, tag| lock(&self.0.sends).insert(buffer, tag));
        if count == 0 {
            return Err(PostError::Full {
                qpn: self.0.qpn,
                accepted: 0,
            });
        }
        let head = batch.link(count);
        // SAFETY: `link` made a valid chain; the memory it names is the batch's own (copied by the post), owned by
        // `sends`, or answered for by the caller of `push_raw`.
        let result = unsafe { self.post_chain(head, count) };
        match result {
            Ok(()) => {
                batch.posted(count);
                if count < total {
                    return Err(PostError::Full {
                        qpn: self.0.qpn,
                        accepted: count,
                    });
                }
                Ok(())
            }
            Err((accepted, error)) => {
                batch.take_back(accepted, |ticket| lock(&self.0.sends).take(ticket));
                batch.posted(accepted);
                Err(error)
            }
        }
    }

    /// Posts one send or write of `data`, copied by the call: it needs no registered memory.
    ///
    /// # Errors
    ///
    /// Posts a request whose data may be too long for the capabilities.
    // Where the operation is known its request is made without a jump by a table.
    #[inline(always)]
    pub fn post_inline(
        &self,
        id: u64,
        op: SendOp,
        data: &[u8],
        flags: SendFlags,
    ) -> Result<(), PostError> {
        check_id(id)?;
        let length = u32::try_from(data.len()).map_err(|_| PushError::Range {
            start: 0,
            end: data.len(),
        })?;
        let mut segment = sys::ibv_sge {
            addr: address(data.as_ptr()),
            length,
            lkey: 0,
        };
        let mut request = request(id, op, flags | SendFlags::INLINE);
        request.sg_list = &mut segment;
        request.num_sge = 1;
        // SAFETY: a chain of one, whose data the provider copies before the call returns.
        unsafe { self.post_chain(&mut request, 1) }.map_err(|(_, error)| error)
    }

    /// Posts up to [`CHAIN`] sends or writes in one call, each with its id and its data, which the call copies; the
    /// last of them makes a completion, by which all are done. Further ones are left in the iterator. Says how many were
    /// posted.
    ///
    /// # Errors
    ///
    /// Those of [`Qp::post`]; the error says how many were accepted, none of which need make a completion.
    pub fn post_inline_chain(
        &self,
        requests: &mut dyn Iterator<Item = (u64, SendOp, &[u8])>,
    ) -> Result<usize, PostError> {
        // Left uninitialised beyond `count`: clearing them costs more than posting one request.
        let mut chain = [const { MaybeUninit::<sys::ibv_send_wr>::uninit() }; CHAIN];
        let mut segments = [const { MaybeUninit::<sys::ibv_sge>::uninit() }; CHAIN];
        let head = chain.as_mut_ptr().cast::<sys::ibv_send_wr>();
        let first_segment = segments.as_mut_ptr().cast::<sys::ibv_sge>();
        let mut count = 0;
        for (id, op, data) in requests.take(CHAIN) {
            check_id(id)?;
            let length = u32::try_from(data.len()).map_err(|_| PushError::Range {
                start: 0,
                end: data.len(),
            })?;
            let segment = first_segment.wrapping_add(count);
            let addr = address(data.as_ptr());
            let lkey = 0;
            // SAFETY: `segment` points into `segments`: `count` is below its length, by `take`.
            unsafe { segment.write(sys::ibv_sge { addr, length, lkey }) };
            let mut made = request(id, op, SendFlags::INLINE);
            made.sg_list = segment;
            made.num_sge = 1;
            made.next = head.wrapping_add(count + 1);
            // SAFETY: as above, in `chain`, which has the same length.
            unsafe { head.wrapping_add(count).write(made) };
            count += 1;
        }
        let Some(last) = count.checked_sub(1) else {
            return Ok(0);
        };
        // SAFETY: written in the loop, and nothing else refers to it.
        let last = unsafe { &mut *head.wrapping_add(last) };
        last.next = std::ptr::null_mut();
        last.send_flags |= SendFlags::SIGNALLED.bits();
        // SAFETY: `chain` holds `count` requests, linked one to the next, whose data the provider copies before the
        // call returns.
        let result = unsafe { self.post_chain(head, count) };
        result.map(|()| count).map_err(|(_, error)| error)
    }

    /// Posts one request on the bytes `range` of `buffer`, which the queue owns until the completion (always asked
    /// for) has been given to [`Qp::take`]; `tag` comes back with it.
    ///
    /// # Errors
    ///
    /// Those of [`Qp::post`]; the buffer comes back.
    pub fn post_owned(
        &self,
        tag: u64,
        op: SendOp,
        buffer: Buffer,
        range: Range<usize>,
        flags: SendFlags,
    ) -> Result<(), Rejected<PostError>> {
        let Some(segment) = buffer.segment(range.clone()) else {
            let error = PushError::Range {
                start: range.start,
                end: range.end,
            }
            .into();
            return Err(Rejected { error, buffer });
        };
        let ticket = match lock(&self.0.sends).insert(buffer, tag) {
            Ok(ticket) => ticket,
            Err(buffer) => {
                let error = PostError::Full {
                    qpn: self.0.qpn,
                    accepted: 0,
                };
                return Err(Rejected { error, buffer });
            }
        };
        let flags = (flags | SendFlags::SIGNALLED) & !SendFlags::INLINE;
        let mut request = request(ticket, op, flags);
        let mut segment = segment.0;
        request.sg_list = &mut segment;
        request.num_sge = 1;
        // SAFETY: a chain of one, on memory that `sends` owns from the line above on.
        let result = unsafe { self.post_chain(&mut request, 1) };
        result.or_else(|(_, error)| match lock(&self.0.sends).take(ticket) {
            Some((buffer, _)) => Err(Rejected { error, buffer }),
            // A refused request cannot have completed, so that nobody else can have taken it.
            None => Ok(()),
        })
    }

    /// Posts one request on any registered memory.
    ///
    /// # Errors
    ///
    /// Those of [`Qp::post`].
    ///
    /// # Safety
    ///
    /// That of [`SendBatch::push_raw`].
    #[inline]
    pub unsafe fn post_raw(
        &self,
        id: u64,
        op: SendOp,
        segments: &[Segment],
        flags: SendFlags,
    ) -> Result<(), PostError> {
        check_id(id)?;
        let mut request = request(id, op, flags);
        // `Segment` is a transparent `ibv_sge`; the library only reads the list.
        request.sg_list = segments.as_ptr().cast::<sys::ibv_sge>().cast_mut();
        request.num_sge = i32::try_from(segments.len()).unwrap_or(i32::MAX);
        // SAFETY: a chain of one; the caller answers for the memory it names.
        unsafe { self.post_chain(&mut request, 1) }.map_err(|(_, error)| error)
    }

    /// Posts the chain of `count` requests at `head`; on failure says how many were accepted.
    ///
    /// # Safety
    ///
    /// The chain is valid and contiguous, and so is the memory it names until the requests complete.
    #[inline]
    unsafe fn post_chain(
        &self,
        head: *mut sys::ibv_send_wr,
        count: usize,
    ) -> Result<(), (usize, PostError)> {
        // Not one locked addition: a post costs little more.
        let posts = self.0.posts.load(Ordering::Relaxed);
        self.0.posts.store(posts + 1, Ordering::Relaxed);
        let mut bad = std::ptr::null_mut();
        // SAFETY: the queue pair is live; the caller answers for the chain.
        let status = unsafe { sys::inline::post_send(self.0.raw.as_ptr(), head, &mut bad) };
        if status == 0 {
            return Ok(());
        }
        Err(self.not_accepted(status, head, count, bad))
    }

    /// How many of the `count` requests at `head` were accepted before `bad`, and why that was not.
    #[cold]
    fn not_accepted(
        &self,
        status: i32,
        head: *mut sys::ibv_send_wr,
        count: usize,
        bad: *mut sys::ibv_send_wr,
    ) -> (usize, PostError) {
        // A provider that fails without naming the request accepted none.
        let accepted = (0..count)
            .find(|&index| head.wrapping_add(index) == bad)
            .unwrap_or(0);
        let qpn = self.0.qpn;
        let error = match status.abs() {
            libc::ENOMEM | libc::ENOSPC => PostError::Full { qpn, accepted },
            error => {
                let source = io::Error::from_raw_os_error(error);
                PostError::Refused {
                    qpn,
                    accepted,
                    source,
                }
            }
        };
        (accepted, error)
    }

    /// Posts receives to the queue pair's own receive queue, as [`Srq::post_recv`](crate::srq::Srq::post_recv)
    /// does to a shared one.
    ///
    /// # Errors
    ///
    /// The queue is full, the state is RESET, or the queue pair has a shared queue instead.
    pub fn post_recv(&self, buffers: impl IntoIterator<Item = Buffer>) -> Result<usize, RecvError> {
        let raw = self.0.raw.as_ptr();
        post_buffers(&self.0.receives, buffers, |head, bad| {
            // SAFETY: the queue pair is live; `post_buffers` gives a valid chain on memory that `receives` owns.
            unsafe { sys::inline::post_recv(raw, head, bad) }
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
    /// That of [`Srq::post_recv_raw`](crate::srq::Srq::post_recv_raw).
    pub unsafe fn post_recv_raw(&self, id: u64, segments: &[Segment]) -> io::Result<()> {
        let raw = self.0.raw.as_ptr();
        post_segments(id, segments, |head, bad| {
            // SAFETY: the queue pair is live; the chain is valid, and the caller answers for the memory it names.
            unsafe { sys::inline::post_recv(raw, head, bad) }
        })
    }

    /// The buffer and tag of the request that `completion` completes; `None` if it is not one of this queue pair's
    /// that own their buffer, or was taken already. The tag of a receive is 0.
    pub fn take(&self, completion: &Completion) -> Option<(Buffer, u64)> {
        let id = completion.id();
        let sent = lock(&self.0.sends).take(id);
        sent.or_else(|| lock(&self.0.receives).take(id))
    }

    /// The raw object, for calls that this crate does not cover. It stays owned by this handle.
    pub fn as_raw(&self) -> *mut sys::ibv_qp {
        self.0.raw.as_ptr()
    }
}
