//! How a queue pair is made.

use std::sync::Arc;

use verbs_sys as sys;

use super::{Mtu, QpError};
use crate::cq::{self, Cq};
use crate::device::{Limits, PortInfo};
use crate::gid::{Gid, GidEntry};
use crate::mr::Access;
use crate::srq::{self, Srq};

/// What packets carry for the network to sort them by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Service level on InfiniBand, 0 to 15; the priority on RoCE version 1.
    pub service_level: u8,
    /// Traffic class of the IP header on RoCE version 2 (the upper six bits are the DSCP), and of global routes on
    /// InfiniBand.
    pub traffic_class: u8,
    /// Index of the partition key in the port's table.
    pub pkey_index: u16,
    /// On InfiniBand: name peers by their GID, through routers, also where the LID would do. RoCE always does.
    pub global: bool,
}

impl Route {
    /// The way to a port from `port`, whose own address is `from`.
    pub(crate) fn ah_attr(
        &self,
        port: &PortInfo,
        from: Option<GidEntry>,
        gid: Gid,
        lid: u16,
    ) -> sys::ibv_ah_attr {
        let mut way = sys::ibv_ah_attr {
            dlid: lid,
            sl: self.service_level,
            port_num: port.number,
            ..Default::default()
        };
        if let (true, Some(from)) = (port.ethernet || self.global || lid == 0, from) {
            way.is_global = 1;
            way.grh.dgid = sys::ibv_gid { raw: gid.0 };
            way.grh.sgid_index = from.index;
            way.grh.hop_limit = 64;
            way.grh.traffic_class = self.traffic_class;
        }
        way
    }
}

/// What a queue pair is made of; [`QpOptions::new`] gives values that suit most uses.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct QpOptions<'a> {
    /// Where completions of sends go.
    pub send_cq: &'a Cq,
    /// Where completions of receives go.
    pub recv_cq: &'a Cq,
    /// Where receives come from, instead of an own queue.
    pub srq: Option<&'a Srq>,
    /// Sends outstanding.
    pub max_send: u32,
    /// Receives outstanding in the own queue; ignored with a shared one.
    pub max_recv: u32,
    /// Segments of a send.
    pub send_segments: u32,
    /// Segments of a receive.
    pub recv_segments: u32,
    /// Inline bytes wished for; if the device refuses, half of it is tried, and so on. The capabilities tell.
    pub max_inline: u32,
    /// Port, from 1.
    pub port: u8,
    /// Which of the port's addresses; without, the one that reaches most peers.
    pub gid_index: Option<u8>,
    /// Service level, traffic class and partition.
    pub route: Route,
    /// What the peer may do to regions that allow it.
    pub access: Access,
    /// Upper limit of the packet size.
    pub max_mtu: Mtu,
    /// RDMA reads outstanding in each direction; lowered to the device's limits.
    pub rd_atomic: u8,
    /// Time to wait for an acknowledgement, as 4.096 µs × 2^n; 0 waits for ever. At most 31.
    pub timeout: u8,
    /// Repetitions without an acknowledgement before the queue pair fails, 0 to 7. SoftRoCE takes 7 for no limit.
    pub retry_count: u8,
    /// Repetitions when the peer has no receive, 0 to 6; 7 repeats for ever.
    pub rnr_retry: u8,
    /// How long a peer waits when this side has no receive: code of the InfiniBand specification, table 45 (12 is
    /// 0.64 ms). 0 to 31.
    pub min_rnr_timer: u8,
}

impl<'a> QpOptions<'a> {
    /// 128 sends and receives of one segment, 256 inline bytes, port 1, all rights to the peer, 16 reads,
    /// 67 ms × 6 repetitions, and for ever while the peer has no receive.
    pub fn new(cq: &'a Cq) -> Self {
        Self {
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            max_send: 128,
            max_recv: 128,
            send_segments: 1,
            recv_segments: 1,
            max_inline: 256,
            port: 1,
            gid_index: None,
            route: Route::default(),
            access: Access::LOCAL_WRITE
                | Access::REMOTE_WRITE
                | Access::REMOTE_READ
                | Access::REMOTE_ATOMIC,
            max_mtu: Mtu::B4096,
            rd_atomic: 16,
            timeout: 14,
            retry_count: 6,
            rnr_retry: 7,
            min_rnr_timer: 12,
        }
    }

    /// Compares with what the device can do, so that a refusal says which number was too large.
    pub(super) fn check(&self, limits: &Limits) -> Result<(), QpError> {
        let own_receives = if self.srq.is_some() { 0 } else { self.max_recv };
        for (what, asked, limit) in [
            ("sends", self.max_send, limits.qp_requests),
            ("receives", own_receives, limits.qp_requests),
            ("segments of a send", self.send_segments, limits.segments),
            ("segments of a receive", self.recv_segments, limits.segments),
        ] {
            if asked > limit {
                return Err(QpError::Size { what, asked, limit });
            }
        }
        Ok(())
    }

    pub(super) fn init_attr(&self, max_inline_data: u32) -> sys::ibv_qp_init_attr {
        let own = self.srq.is_none();
        sys::ibv_qp_init_attr {
            send_cq: self.send_cq.as_raw(),
            recv_cq: self.recv_cq.as_raw(),
            srq: self.srq.map_or(std::ptr::null_mut(), Srq::as_raw),
            cap: sys::ibv_qp_cap {
                max_send_wr: self.max_send,
                max_recv_wr: if own { self.max_recv } else { 0 },
                max_send_sge: self.send_segments,
                max_recv_sge: if own { self.recv_segments } else { 0 },
                max_inline_data,
            },
            ..empty_init_attr()
        }
    }

    pub(super) fn queues(&self) -> (Arc<cq::Inner>, Arc<cq::Inner>, Option<Arc<srq::Inner>>) {
        (
            Arc::clone(&self.send_cq.0),
            Arc::clone(&self.recv_cq.0),
            self.srq.map(|srq| Arc::clone(&srq.0)),
        )
    }

    pub(super) fn connection(&self, limits: &Limits) -> Connection {
        let within = |limit: u32| self.rd_atomic.min(u8::try_from(limit).unwrap_or(u8::MAX));
        Connection {
            access: self.access,
            route: self.route,
            max_mtu: self.max_mtu,
            rd_atomic_initiator: within(limits.rd_atomic_initiator),
            rd_atomic_target: within(limits.rd_atomic_target),
            timeout: self.timeout,
            retry_count: self.retry_count,
            rnr_retry: self.rnr_retry,
            min_rnr_timer: self.min_rnr_timer,
        }
    }
}

pub(crate) fn empty_init_attr() -> sys::ibv_qp_init_attr {
    sys::ibv_qp_init_attr {
        qp_context: std::ptr::null_mut(),
        send_cq: std::ptr::null_mut(),
        recv_cq: std::ptr::null_mut(),
        srq: std::ptr::null_mut(),
        cap: sys::ibv_qp_cap::default(),
        qp_type: sys::IBV_QPT_RC,
        sq_sig_all: 0,
    }
}

/// The options that matter after the making.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) access: Access,
    pub(super) route: Route,
    max_mtu: Mtu,
    pub(super) rd_atomic_initiator: u8,
    pub(super) rd_atomic_target: u8,
    pub(super) timeout: u8,
    pub(super) retry_count: u8,
    pub(super) rnr_retry: u8,
    pub(super) min_rnr_timer: u8,
}

impl Connection {
    /// The packet size to offer on a port.
    pub(super) fn mtu(&self, port: Mtu) -> Mtu {
        self.max_mtu.min(port)
    }
}

/// What the device gave a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capabilities {
    /// Sends outstanding.
    pub max_send: u32,
    /// Receives outstanding in the own queue.
    pub max_recv: u32,
    /// Segments of a send.
    pub send_segments: u32,
    /// Segments of a receive.
    pub recv_segments: u32,
    /// Bytes of inline data of a send.
    pub max_inline: u32,
}

impl Capabilities {
    pub(super) fn new(cap: &sys::ibv_qp_cap) -> Self {
        Self {
            max_send: cap.max_send_wr,
            max_recv: cap.max_recv_wr,
            send_segments: cap.max_send_sge,
            recv_segments: cap.max_recv_sge,
            max_inline: cap.max_inline_data,
        }
    }
}
