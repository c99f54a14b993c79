//! libfabric's binary interface, as far as a provider needs it (`rdma/fabric.h` and what it includes; versions 1.17 to 2.6).
//!
//! Structures only ever grew at their end, so what is declared here is a beginning that all versions share.

use std::ffi::{c_char, c_int, c_void};

/// `fi_addr_t`
pub(crate) type Addr = u64;
pub(crate) const ADDR_UNSPEC: Addr = u64::MAX;

/// Capabilities and flags of operations.
pub(crate) mod cap {
    pub(crate) const MSG: u64 = 1 << 1;
    pub(crate) const RMA: u64 = 1 << 2;
    pub(crate) const TAGGED: u64 = 1 << 3;
    pub(crate) const ATOMIC: u64 = 1 << 4;
    pub(crate) const MULTICAST: u64 = 1 << 5;
    pub(crate) const COLLECTIVE: u64 = 1 << 6;
    pub(crate) const READ: u64 = 1 << 8;
    pub(crate) const WRITE: u64 = 1 << 9;
    pub(crate) const RECV: u64 = 1 << 10;
    pub(crate) const SEND: u64 = 1 << 11;
    pub(crate) const REMOTE_READ: u64 = 1 << 12;
    pub(crate) const REMOTE_WRITE: u64 = 1 << 13;
    pub(crate) const MULTI_RECV: u64 = 1 << 16;
    pub(crate) const REMOTE_CQ_DATA: u64 = 1 << 17;
    pub(crate) const MORE: u64 = 1 << 18;
    pub(crate) const PEEK: u64 = 1 << 19;
    pub(crate) const TRIGGER: u64 = 1 << 20;
    pub(crate) const FENCE: u64 = 1 << 21;
    pub(crate) const COMPLETION: u64 = 1 << 24;
    /// Of an address vector: insertions end with an event.
    pub(crate) const EVENT: u64 = COMPLETION;
    pub(crate) const INJECT: u64 = 1 << 25;
    pub(crate) const INJECT_COMPLETE: u64 = 1 << 26;
    pub(crate) const TRANSMIT_COMPLETE: u64 = 1 << 27;
    pub(crate) const DELIVERY_COMPLETE: u64 = 1 << 28;
    pub(crate) const COMMIT_COMPLETE: u64 = 1 << 30;
    pub(crate) const MATCH_COMPLETE: u64 = 1 << 31;
    pub(crate) const TAGGED_DIRECTED_RECV: u64 = 1 << 45;
    pub(crate) const TAGGED_MULTI_RECV: u64 = 1 << 46;
    /// A flag of operations, in libfabric 1.
    pub(crate) const VARIABLE_MSG: u64 = 1 << 48;
    /// A capability, in libfabric 2.
    pub(crate) const EXACT_DIRECTED_RECV: u64 = 1 << 48;
    pub(crate) const LOCAL_COMM: u64 = 1 << 51;
    pub(crate) const REMOTE_COMM: u64 = 1 << 52;
    pub(crate) const RMA_EVENT: u64 = 1 << 56;
    pub(crate) const NUMERICHOST: u64 = 1 << 55;
    pub(crate) const SOURCE: u64 = 1 << 57;
    pub(crate) const DISCARD: u64 = 1 << 58;
    pub(crate) const DIRECTED_RECV: u64 = 1 << 59;
    /// Of an insertion: what has become of each address is wanted.
    pub(crate) const SYNC_ERR: u64 = 1 << 58;
    pub(crate) const FETCH_ATOMIC: u64 = 1 << 58;
    pub(crate) const COMPARE_ATOMIC: u64 = 1 << 59;
    pub(crate) const CLAIM: u64 = 1 << 59;
    /// Of an address vector: a hint.
    pub(crate) const SYMMETRIC: u64 = 1 << 59;
    pub(crate) const SELECTIVE_COMPLETION: u64 = 1 << 59;
}

/// Orders of messages.
pub(crate) mod order {
    pub(crate) const WAW: u64 = 1 << 4;
    pub(crate) const WAS: u64 = 1 << 5;
    pub(crate) const SAW: u64 = 1 << 7;
    pub(crate) const SAS: u64 = 1 << 8;
    pub(crate) const RMA_WAW: u64 = 1 << 35;
    /// All orders of atomic operations among each other.
    pub(crate) const ATOMIC: u64 = 0xf << 36;
}

/// Addresses of a format that only the provider knows (`FI_FORMAT_UNSPEC`).
pub(crate) const FORMAT_UNSPEC: u32 = 0;
pub(crate) const MR_BASIC: c_int = 1;
pub(crate) const MR_SCALABLE: c_int = 2;
pub(crate) const AV_UNSPEC: c_int = 0;
pub(crate) const AV_TABLE: c_int = 2;
pub(crate) const PROGRESS_AUTO: c_int = 1;
pub(crate) const PROGRESS_MANUAL: c_int = 2;
/// The last of `enum fi_progress`, in libfabric 2.
pub(crate) const PROGRESS_LAST: c_int = 3;
pub(crate) const RM_ENABLED: c_int = 2;
pub(crate) const EP_UNSPEC: c_int = 0;
pub(crate) const EP_RDM: c_int = 3;
pub(crate) const THREAD_UNSPEC: c_int = 0;
pub(crate) const THREAD_SAFE: c_int = 1;
/// The last of `enum fi_threading`.
pub(crate) const THREAD_LAST: c_int = 5;
/// `FI_CQ_FORMAT_UNSPEC`
pub(crate) const FORMAT_UNSPEC_CQ: c_int = 0;
/// `FI_CQ_FORMAT_CONTEXT`
pub(crate) const FORMAT_CONTEXT: c_int = 1;
/// `FI_CQ_COND_NONE`
pub(crate) const COND_NONE: c_int = 0;
/// `FI_CQ_COND_THRESHOLD`
pub(crate) const COND_THRESHOLD: c_int = 1;
/// `FI_CNTR_EVENTS_COMP`
pub(crate) const EVENTS_COMP: c_int = 0;

/// Classes of objects.
pub(crate) mod class {
    pub(crate) const FABRIC: usize = 1;
    pub(crate) const DOMAIN: usize = 2;
    pub(crate) const EP: usize = 3;
    pub(crate) const AV: usize = 11;
    pub(crate) const MR: usize = 12;
    pub(crate) const EQ: usize = 13;
    pub(crate) const CQ: usize = 14;
    pub(crate) const CNTR: usize = 15;
    pub(crate) const POLL: usize = 17;
}

/// Errors; calls return them negative.
pub(crate) mod errno {
    pub(crate) const IO: i32 = 5;
    pub(crate) const AGAIN: i32 = 11;
    pub(crate) const NOMEM: i32 = 12;
    pub(crate) const BUSY: i32 = 16;
    pub(crate) const INVAL: i32 = 22;
    pub(crate) const NOSYS: i32 = 38;
    pub(crate) const NOMSG: i32 = 42;
    pub(crate) const NODATA: i32 = 61;
    pub(crate) const MSGSIZE: i32 = 90;
    pub(crate) const NOPROTOOPT: i32 = 92;
    pub(crate) const OPNOTSUPP: i32 = 95;
    pub(crate) const ADDRINUSE: i32 = 98;
    pub(crate) const ADDRNOTAVAIL: i32 = 99;
    pub(crate) const TIMEDOUT: i32 = 110;
    pub(crate) const OTHER: i32 = 256;
    pub(crate) const TOOSMALL: i32 = 257;
    pub(crate) const OPBADSTATE: i32 = 258;
    pub(crate) const AVAIL: i32 = 259;
    pub(crate) const BADFLAGS: i32 = 260;
    pub(crate) const NOEQ: i32 = 261;
    pub(crate) const NOCQ: i32 = 263;
    pub(crate) const NOAV: i32 = 267;
    pub(crate) const NOKEY: i32 = 266;
}

/// Commands of `fi_control`.
pub(crate) mod control {
    use std::ffi::c_int;
    pub(crate) const GET_OPS_FLAG: c_int = 2;
    pub(crate) const SET_OPS_FLAG: c_int = 3;
    pub(crate) const GET_WAIT: c_int = 5;
    pub(crate) const ENABLE: c_int = 6;
}

/// `struct iovec`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Iovec {
    pub(crate) base: *mut c_void,
    pub(crate) len: usize,
}

/// `struct fid`
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) class: usize,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const c_void,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct TxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
    pub(crate) rma_iov_limit: usize,
    pub(crate) tclass: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct RxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: usize,
    pub(crate) size: usize,
    pub(crate) iov_limit: usize,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct EpAttr {
    pub(crate) kind: c_int,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: usize,
    pub(crate) msg_prefix_size: usize,
    pub(crate) max_order_raw_size: usize,
    pub(crate) max_order_war_size: usize,
    pub(crate) max_order_waw_size: usize,
    pub(crate) mem_tag_format: u64,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) auth_key_size: usize,
    pub(crate) auth_key: *mut u8,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct DomainAttr {
    pub(crate) domain: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
    pub(crate) mr_key_size: usize,
    pub(crate) cq_data_size: usize,
    pub(crate) cq_cnt: usize,
    pub(crate) ep_cnt: usize,
    pub(crate) tx_ctx_cnt: usize,
    pub(crate) rx_ctx_cnt: usize,
    pub(crate) max_ep_tx_ctx: usize,
    pub(crate) max_ep_rx_ctx: usize,
    pub(crate) max_ep_stx_ctx: usize,
    pub(crate) max_ep_srx_ctx: usize,
    pub(crate) cntr_cnt: usize,
    pub(crate) mr_iov_limit: usize,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) auth_key: *mut u8,
    pub(crate) auth_key_size: usize,
    pub(crate) max_err_data: usize,
    pub(crate) mr_cnt: usize,
    pub(crate) tclass: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct FabricAttr {
    pub(crate) fabric: *mut c_void,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
    pub(crate) api_version: u32,
}

#[derive(Debug)]
#[repr(C)]
pub(crate) struct Info {
    pub(crate) next: *mut Info,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: usize,
    pub(crate) dest_addrlen: usize,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut c_void,
    pub(crate) tx_attr: *mut TxAttr,
    pub(crate) rx_attr: *mut RxAttr,
    pub(crate) ep_attr: *mut EpAttr,
    pub(crate) domain_attr: *mut DomainAttr,
    pub(crate) fabric_attr: *mut FabricAttr,
    pub(crate) nic: *mut c_void,
}

/// `struct fi_provider`
#[derive(Debug)]
#[repr(C)]
pub struct Provider {
    pub(crate) version: u32,
    pub(crate) fi_version: u32,
    /// The core's.
    pub(crate) context: [*mut c_void; 4],
    pub(crate) name: *const c_char,
    pub(crate) getinfo: *const c_void,
    pub(crate) fabric: *const c_void,
    pub(crate) cleanup: *const c_void,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AvAttr {
    pub(crate) kind: c_int,
    pub(crate) rx_ctx_bits: c_int,
    pub(crate) count: usize,
    pub(crate) ep_per_node: usize,
    pub(crate) name: *const c_char,
    pub(crate) map_addr: *mut c_void,
    pub(crate) flags: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

/// Wait objects (`enum fi_wait_obj`).
pub(crate) mod wait {
    use std::ffi::c_int;
    pub(crate) const NONE: c_int = 0;
    pub(crate) const UNSPEC: c_int = 1;
    pub(crate) const FD: c_int = 3;
    pub(crate) const YIELD: c_int = 5;
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EqAttr {
    pub(crate) size: usize,
    pub(crate) flags: u64,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_set: *mut c_void,
}

/// `FI_AV_COMPLETE`
pub(crate) const AV_COMPLETE: u32 = 5;

/// `struct fi_eq_err_entry`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct EqErrEntry {
    pub(crate) fid: *mut c_void,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CntrAttr {
    pub(crate) events: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) wait_set: *mut c_void,
    pub(crate) flags: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CqErrEntry {
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) len: usize,
    pub(crate) buf: usize,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: usize,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MrAttr {
    pub(crate) iov: *const Iovec,
    pub(crate) iov_count: usize,
    pub(crate) access: u64,
    pub(crate) offset: u64,
    pub(crate) requested_key: u64,
    pub(crate) context: *mut c_void,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Msg {
    pub(crate) iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: Addr,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MsgTagged {
    pub(crate) iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: Addr,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RmaIov {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) key: u64,
}

/// `struct fi_ioc`
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Ioc {
    pub(crate) addr: *mut c_void,
    pub(crate) count: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RmaIoc {
    pub(crate) addr: u64,
    pub(crate) count: usize,
    pub(crate) key: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MsgAtomic {
    pub(crate) iov: *const Ioc,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: Addr,
    pub(crate) rma_iov: *const RmaIoc,
    pub(crate) rma_iov_count: usize,
    pub(crate) datatype: c_int,
    pub(crate) op: c_int,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct AtomicAttr {
    pub(crate) count: usize,
    pub(crate) size: usize,
}

#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct MsgRma {
    pub(crate) iov: *const Iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: usize,
    pub(crate) addr: Addr,
    pub(crate) rma_iov: *const RmaIov,
    pub(crate) rma_iov_count: usize,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// By a C program over the headers of libfabric 1.17 on a machine of 64 bits.
    #[test]
    fn structures_are_those_of_the_headers() {
        let sizes = [
            size_of::<Fid>(),
            size_of::<TxAttr>(),
            size_of::<RxAttr>(),
            size_of::<EpAttr>(),
            size_of::<Info>(),
            size_of::<Provider>(),
            size_of::<AvAttr>(),
            size_of::<CqAttr>(),
            size_of::<EqAttr>(),
            size_of::<EqErrEntry>(),
            size_of::<CqErrEntry>(),
            size_of::<Msg>(),
            size_of::<MsgTagged>(),
            size_of::<MsgRma>(),
            size_of::<MsgAtomic>(),
        ];
        assert_eq!(
            sizes,
            [24, 80, 64, 96, 120, 72, 48, 40, 32, 48, 80, 48, 64, 64, 72]
        );
        let offsets = [
            offset_of!(DomainAttr, mr_mode),
            offset_of!(DomainAttr, caps),
            offset_of!(DomainAttr, mr_cnt),
            offset_of!(EpAttr, mem_tag_format),
            offset_of!(Info, tx_attr),
            offset_of!(Info, fabric_attr),
            offset_of!(MrAttr, requested_key),
        ];
        assert_eq!(offsets, [36, 136, 176, 56, 72, 104, 32]);
    }
}
