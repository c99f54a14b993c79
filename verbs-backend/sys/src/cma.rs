//! Types and constants of `rdma/rdma_cma.h` (rdma-core 44).
//!
//! Names and meanings are those of the header and of the manual pages `rdma_*(3)`.
//!
//! Derived from headers copyright (c) 2005 Voltaire Inc.; (c) 2005-2014 Intel Corporation. All rights reserved. Used
//! under the OpenIB.org BSD license (`LICENSE-OpenIB.txt`).

#![expect(missing_docs, reason = "names and meanings are those of rdma_cma.h")]
#![expect(non_camel_case_types, reason = "names are those of rdma_cma.h")]

use std::ffi::{c_int, c_uint, c_void};

use crate::types::{ibv_context, ibv_qp};

/// Declares an enumeration of the header as constants of its integer type.
macro_rules! codes {
    ($type:ident { $($name:ident = $value:expr),+ $(,)? }) => {
        pub type $type = c_uint;
        $(pub const $name: $type = $value;)+
    };
}

codes!(rdma_cm_event_type {
    RDMA_CM_EVENT_ADDR_RESOLVED = 0,
    RDMA_CM_EVENT_ADDR_ERROR = 1,
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
    RDMA_CM_EVENT_ROUTE_ERROR = 3,
    RDMA_CM_EVENT_CONNECT_REQUEST = 4,
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
    RDMA_CM_EVENT_CONNECT_ERROR = 6,
    RDMA_CM_EVENT_UNREACHABLE = 7,
    RDMA_CM_EVENT_REJECTED = 8,
    RDMA_CM_EVENT_ESTABLISHED = 9,
    RDMA_CM_EVENT_DISCONNECTED = 10,
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
    RDMA_CM_EVENT_MULTICAST_JOIN = 12,
    RDMA_CM_EVENT_MULTICAST_ERROR = 13,
    RDMA_CM_EVENT_ADDR_CHANGE = 14,
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
});

/// Port space of reliable connections.
pub const RDMA_PS_TCP: c_uint = 0x0106;

#[repr(C)]
#[derive(Debug)]
pub struct rdma_event_channel {
    pub fd: c_int,
}

/// The beginning of the structure, which the library makes.
#[repr(C)]
#[derive(Debug)]
pub struct rdma_cm_id {
    pub verbs: *mut ibv_context,
    pub channel: *mut rdma_event_channel,
    pub context: *mut c_void,
    pub qp: *mut ibv_qp,
    /// `struct rdma_route`, of which nothing is used.
    pub route: [u64; 39],
    pub ps: c_uint,
    pub port_num: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct rdma_conn_param {
    pub private_data: *const c_void,
    pub private_data_len: u8,
    pub responder_resources: u8,
    pub initiator_depth: u8,
    pub flow_control: u8,
    pub retry_count: u8,
    pub rnr_retry_count: u8,
    pub srq: u8,
    pub qp_num: u32,
}

#[repr(C)]
#[derive(Debug)]
pub struct rdma_cm_event {
    pub id: *mut rdma_cm_id,
    pub listen_id: *mut rdma_cm_id,
    pub event: rdma_cm_event_type,
    pub status: c_int,
    /// The union's member for reliable connections.
    pub conn: rdma_conn_param,
    /// The rest of the union.
    pub rest: [u64; 4],
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(rdma_cm_id, qp) == 24);
    assert!(offset_of!(rdma_cm_id, ps) == 344);
    assert!(offset_of!(rdma_cm_id, port_num) == 348);
    assert!(size_of::<rdma_conn_param>() == 24);
    assert!(offset_of!(rdma_conn_param, qp_num) == 16);
    assert!(size_of::<rdma_cm_event>() == 80);
    assert!(offset_of!(rdma_cm_event, conn) == 24);
};
