// UNSAFETY: calls into libibverbs; work requests name memory and address handles by address.
//! Datagrams: messages of up to a packet to any process, unreliable and without a connection.
//!
//! ```text
//!   Datagrams ── address ──▶ (told to others by some other way) ──▶ Datagrams::resolve ──▶ Destination
//!       │ send(&Destination, bytes)                    each arrives once, or not at all, in any order
//!       └ handle(completion) ──▶ bytes of a datagram that has arrived
//! ```
//!
//! A queue pair of this kind goes to the error state when the port cannot send; [`Datagrams::recover`] brings it
//! back under the same number.

#![expect(unsafe_code, reason = "calls into libibverbs with addresses")]

mod queue;

pub use queue::{Arrival, DatagramQueue};

use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use verbs_sys as sys;

use crate::batch::{SendFlags, SendOp, request};
use crate::buffer::{Buffer, BufferPool};
use crate::completion::Completion;
use crate::cq::{self, Cq};
use crate::device::PortInfo;
use crate::gid::{Gid, GidEntry};
use crate::inflight::Inflight;
use crate::mr::MrError;
use crate::pd::{self, Pd};
use crate::qp::{QpError, QpState, Route, empty_init_attr, modify_cause};
use crate::srq::{lock, post_buffers};

/// Bytes that the adapter puts before every datagram that it receives.
const GRH: usize = 40;

/// What [`Datagrams`] are made of.
#[derive(Clone, Copy, Debug)]
pub struct DatagramOptions {
    /// Port, from 1.
    pub port: u8,
    /// Which of the port's addresses; without, the one that reaches most peers.
    pub gid_index: Option<u8>,
    /// Service level, traffic class and partition.
    pub route: Route,
    /// Key that senders must know. Those with the highest bit set are the kernel's.
    pub qkey: u32,
    /// Receives posted at all times.
    pub receives: u32,
    /// Sends outstanding.
    pub sends: u32,
    /// Bytes of the longest datagram.
    pub size: usize,
}

/// Where datagrams are sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DatagramAddress {
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// Key that it wants.
    pub qkey: u32,
    /// Local identifier of its port; 0 on RoCE.
    pub lid: u16,
    /// Address of its port.
    pub gid: Gid,
}

impl DatagramAddress {
    /// Bytes of the exchanged form.
    pub const BYTES: usize = 26;

    /// The form to exchange, big-endian: qpn 4, qkey 4, lid 2, gid 16.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0..4].copy_from_slice(&self.qpn.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[8..10].copy_from_slice(&self.lid.to_be_bytes());
        bytes[10..26].copy_from_slice(&self.gid.0);
        bytes
    }

    /// Reads the form that [`DatagramAddress::to_bytes`] writes; `None` if the number has more than 24 bits.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let qpn = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let mut gid = [0; 16];
        gid.copy_from_slice(&bytes[10..26]);
        (qpn >> 24 == 0).then_some(Self {
            qpn,
            qkey: u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            lid: u16::from_be_bytes([bytes[8], bytes[9]]),
            gid: Gid(gid),
        })
    }
}

/// Datagrams cannot be set up or sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatagramError {
    /// The queue pair cannot be made or changed.
    #[error(transparent)]
    Qp(#[from] QpError),
    /// No memory for the messages.
    #[error(transparent)]
    Memory(#[from] MrError),
    /// The address cannot be reached from this port.
    #[error("no way to address {gid} (LID {lid})")]
    Unreachable {
        /// The port's address.
        gid: Gid,
        /// Its local identifier.
        lid: u16,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// The message is longer than the datagrams were set up for.
    #[error("a datagram of {length} bytes; at most {limit} fit")]
    Length {
        /// Bytes given.
        length: usize,
        /// The limit.
        limit: usize,
    },
    /// Receives could not be posted.
    #[error("receives for datagrams cannot be posted")]
    Receive(#[source] io::Error),
    /// The adapter refused a send.
    #[error("a datagram cannot be sent")]
    Send(#[source] io::Error),
}

/// A resolved [`DatagramAddress`]; clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct Destination(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    pd: Arc<pd::Inner>,
    raw: NonNull<sys::ibv_ah>,
    qpn: u32,
    qkey: u32,
}

// SAFETY: libibverbs serialises the calls on an address handle, which is constant.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: made by `Datagrams::resolve`, destroyed only here; sends under way hold a clone.
        if unsafe { (self.pd.device.verbs.ibv_destroy_ah)(self.raw.as_ptr()) } != 0 {
            tracing::warn!("libibverbs did not destroy an address handle");
        }
    }
}

/// A queue pair for datagrams, with its buffers.
#[derive(Debug)]
pub struct Datagrams {
    raw: NonNull<sys::ibv_qp>,
    pd: Arc<pd::Inner>,
    /// Held so that it outlives the queue pair.
    _cq: Arc<cq::Inner>,
    options: DatagramOptions,
    port: PortInfo,
    gid: Option<GidEntry>,
    qpn: u32,
    /// Freed after `drop` has destroyed the queue pair.
    sends: Mutex<Inflight>,
    receives: Mutex<Inflight>,
    /// Destinations of sends under way, by ticket.
    used: Mutex<BTreeMap<u64, Destination>>,
    pool: BufferPool,
    /// Buffers of a [`DatagramQueue`] that may be with the adapter; freed with the others.
    lent: Vec<Buffer>,
    /// Bytes that a send can carry in the request.
    max_inline: usize,
}

// SAFETY: libibverbs serialises the calls on a queue pair; the rest is constant or behind a mutex.
unsafe impl Send for Datagrams {}
// SAFETY: as above.
unsafe impl Sync for Datagrams {}

impl Drop for Datagrams {
    fn drop(&mut self) {
        // SAFETY: made by `Datagrams::new`, and destroyed only here.
        if unsafe { (self.pd.device.verbs.ibv_destroy_qp)(self.raw.as_ptr()) } != 0 {
            tracing::error!(
                qpn = self.qpn,
                "libibverbs did not destroy a queue pair; its buffers are leaked"
            );
            std::mem::forget(std::mem::take(&mut *lock(&self.sends)));
            std::mem::forget(std::mem::take(&mut *lock(&self.receives)));
            std::mem::forget(std::mem::take(&mut self.lent));
        }
    }
}

impl Datagrams {
    /// Makes a queue pair that sends and receives at once. `cq` must have room for all its sends and receives.
    ///
    /// # Errors
    ///
    /// [`DatagramError`].
    pub fn new(pd: &Pd, cq: &Cq, options: &DatagramOptions) -> Result<Self, DatagramError> {
        Self::build(pd, cq, options, options.receives + options.sends, 0)
    }

    /// A queue with so many buffers of its own, and sends that can carry `inline` bytes if the device has
    /// such.
    fn build(
        pd: &Pd,
        cq: &Cq,
        options: &DatagramOptions,
        buffers: u32,
        inline: u32,
    ) -> Result<Self, DatagramError> {
        let device = pd.device();
        let port = device.port(options.port).map_err(QpError::from)?;
        let gid = match device.gid(options.port, options.gid_index) {
            Ok(gid) => Some(gid),
            Err(_) if !port.ethernet && options.gid_index.is_none() => None,
            Err(error) => return Err(QpError::from(error).into()),
        };
        let pool = BufferPool::new(pd, buffers, GRH + options.size)?;
        let pd = Arc::clone(&pd.0);
        let mut init = sys::ibv_qp_init_attr {
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            cap: sys::ibv_qp_cap {
                max_send_wr: options.sends,
                max_recv_wr: options.receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: inline,
            },
            qp_type: sys::IBV_QPT_UD,
            ..empty_init_attr()
        };
        // SAFETY: the protection domain and the queue are live: `pd` and `cq` hold them.
        let raw = unsafe { (pd.device.verbs.ibv_create_qp)(pd.raw.as_ptr(), &mut init) };
        let raw = NonNull::new(raw).ok_or_else(|| QpError::Create {
            max_send: options.sends,
            send_segments: 1,
            max_recv: options.receives,
            source: io::Error::last_os_error(),
        })?;
        // SAFETY: the library returned a valid queue pair, whose number it never changes.
        let qpn = unsafe { (*raw.as_ptr()).qp_num };
        let made = Self {
            raw,
            pd,
            _cq: Arc::clone(&cq.0),
            options: *options,
            port,
            gid,
            qpn,
            sends: Mutex::default(),
            receives: Mutex::default(),
            used: Mutex::default(),
            pool,
            lent: Vec::new(),
            max_inline: usize::try_from(init.cap.max_inline_data).unwrap_or(0),
        };
        made.start()?;
        Ok(made)
    }

    /// Number of the queue pair, as completions have it.
    pub fn qpn(&self) -> u32 {
        self.qpn
    }

    /// Where others send to.
    pub fn address(&self) -> DatagramAddress {
        DatagramAddress {
            qpn: self.qpn,
            qkey: self.options.qkey,
            lid: self.port.lid,
            gid: self.gid.map(|entry| entry.gid).unwrap_or_default(),
        }
    }

    /// RESET to RTS, with all receives posted.
    fn start(&self) -> Result<(), DatagramError> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_INIT,
            pkey_index: self.options.route.pkey_index,
            port_num: self.options.port,
            qkey: self.options.qkey,
            ..Default::default()
        };
        let mask = sys::IBV_QP_STATE | sys::IBV_QP_PKEY_INDEX | sys::IBV_QP_PORT | sys::IBV_QP_QKEY;
        self.modify(&mut attr, mask, QpState::INIT)?;
        self.fill()?;
        attr.qp_state = sys::IBV_QPS_RTR;
        self.modify(&mut attr, sys::IBV_QP_STATE, QpState::RTR)?;
        attr.qp_state = sys::IBV_QPS_RTS;
        attr.sq_psn = 0;
        self.modify(
            &mut attr,
            sys::IBV_QP_STATE | sys::IBV_QP_SQ_PSN,
            QpState::RTS,
        )?;
        Ok(())
    }

    fn modify(&self, attr: &mut sys::ibv_qp_attr, mask: u32, to: QpState) -> Result<(), QpError> {
        let modify = self.pd.device.verbs.ibv_modify_qp;
        // SAFETY: the queue pair is live, and `attr` has the fields that the mask names.
        match unsafe { modify(self.raw.as_ptr(), attr, mask.cast_signed()) } {
            0 => Ok(()),
            error => {
                let source = io::Error::from_raw_os_error(error.abs());
                let from = QpState(u32::MAX);
                Err(QpError::Modify {
                    qpn: self.qpn,
                    from,
                    to,
                    cause: modify_cause(from, to, &source),
                    source,
                })
            }
        }
    }

    /// Posts receives until as many are posted as were asked for.
    fn fill(&self) -> Result<(), DatagramError> {
        let wanted = usize::try_from(self.options.receives).unwrap_or(usize::MAX);
        let missing = wanted.saturating_sub(lock(&self.receives).len());
        let buffers = std::iter::from_fn(|| self.pool.take()).take(missing);
        let raw = self.raw.as_ptr();
        post_buffers(&self.receives, buffers, |head, bad| {
            // SAFETY: the queue pair is live; `post_buffers` gives a valid chain on memory that `receives` owns.
            unsafe { sys::inline::post_recv(raw, head, bad) }
        })
        .map_err(|error| DatagramError::Receive(error.source))?;
        Ok(())
    }

    /// Makes an address usable.
    ///
    /// # Errors
    ///
    /// [`DatagramError::Unreachable`].
    pub fn resolve(&self, to: &DatagramAddress) -> Result<Destination, DatagramError> {
        let mut attr = self
            .options
            .route
            .ah_attr(&self.port, self.gid, to.gid, to.lid);
        let create = self.pd.device.verbs.ibv_create_ah;
        // SAFETY: the protection domain is live, and `attr` is complete.
        let raw = unsafe { create(self.pd.raw.as_ptr(), &mut attr) };
        let raw = NonNull::new(raw).ok_or_else(|| DatagramError::Unreachable {
            gid: to.gid,
            lid: to.lid,
            source: io::Error::last_os_error(),
        })?;
        Ok(Destination(Arc::new(Handle {
            pd: Arc::clone(&self.pd),
            raw,
            qpn: to.qpn,
            qkey: to.qkey,
        })))
    }

    /// Sends `data`; `false` if all sends are under way, so that it was dropped.
    ///
    /// # Errors
    ///
    /// It is too long, or the adapter refused.
    pub fn send(&self, to: &Destination, data: &[u8]) -> Result<bool, DatagramError> {
        if data.len() > self.options.size {
            return Err(DatagramError::Length {
                length: data.len(),
                limit: self.options.size,
            });
        }
        let most = usize::try_from(self.options.sends).unwrap_or(usize::MAX);
        if lock(&self.sends).len() >= most {
            return Ok(false);
        }
        let Some(mut buffer) = self.pool.take() else {
            return Ok(false);
        };
        buffer[..data.len()].copy_from_slice(data);
        let Some(mut segment) = buffer.segment(0..data.len()).map(|s| s.0) else {
            return Ok(false);
        };
        let Ok(ticket) = lock(&self.sends).insert(buffer, 0) else {
            return Ok(false);
        };
        self.used().insert(ticket, to.clone());
        let mut request = request(ticket, SendOp::Send, SendFlags::SIGNALLED);
        request.sg_list = &mut segment;
        request.num_sge = 1;
        request.wr.ud = sys::ibv_ud_wr {
            ah: to.0.raw.as_ptr(),
            remote_qpn: to.0.qpn,
            remote_qkey: to.0.qkey,
        };
        let mut bad = std::ptr::null_mut();
        // SAFETY: a chain of one, on memory that `sends` owns and a handle that `used` keeps alive.
        match unsafe { sys::inline::post_send(self.raw.as_ptr(), &mut request, &mut bad) } {
            0 => Ok(true),
            error => {
                self.sent(ticket);
                Err(DatagramError::Send(io::Error::from_raw_os_error(
                    error.abs(),
                )))
            }
        }
    }

    /// Sends under way.
    pub fn outstanding(&self) -> usize {
        lock(&self.sends).len()
    }

    fn used(&self) -> MutexGuard<'_, BTreeMap<u64, Destination>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sent(&self, ticket: u64) -> Option<Buffer> {
        self.used().remove(&ticket);
        lock(&self.sends).take(ticket).map(|(buffer, _)| buffer)
    }

    /// Takes a completion of this queue pair; gives the bytes of a datagram that has arrived to `arrived` and
    /// posts its receive again. Completions of others are left alone.
    ///
    /// # Errors
    ///
    /// The request failed: the queue pair is in the error state until [`Datagrams::recover`].
    pub fn handle(
        &self,
        completion: &Completion,
        arrived: impl FnOnce(&[u8]),
    ) -> Result<(), DatagramError> {
        let ticket = completion.id();
        if let Some((buffer, _)) = lock(&self.receives).take(ticket) {
            if completion.is_ok() {
                let end = usize::try_from(completion.length()).unwrap_or(0);
                if let Some(data) = buffer.get(GRH..end) {
                    arrived(data);
                }
            }
            drop(buffer);
        } else if self.sent(ticket).is_none() {
            return Ok(());
        }
        if let Err(error) = completion.result() {
            return Err(DatagramError::Send(io::Error::other(error)));
        }
        self.fill()
    }

    /// From any state to working order, under the same number; what was under way is lost.
    ///
    /// # Errors
    ///
    /// The device refuses, as it does while it is gone.
    pub fn recover(&self) -> Result<(), DatagramError> {
        let mut attr = sys::ibv_qp_attr {
            qp_state: sys::IBV_QPS_RESET,
            ..Default::default()
        };
        self.modify(&mut attr, sys::IBV_QP_STATE, QpState::RESET)?;
        // In RESET the adapter holds no request; late completions find nothing, since tickets are not used twice.
        *lock(&self.receives) = Inflight::default();
        *lock(&self.sends) = Inflight::default();
        self.used().clear();
        self.start()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_wire() {
        let address = DatagramAddress {
            qpn: 0x12_3456,
            qkey: 0x7fff_ffff,
            lid: 9,
            gid: Gid([3; 16]),
        };
        let mut bytes = address.to_bytes();
        assert_eq!(DatagramAddress::from_bytes(&bytes), Some(address));
        bytes[0] = 1;
        assert_eq!(DatagramAddress::from_bytes(&bytes), None);
    }
}
