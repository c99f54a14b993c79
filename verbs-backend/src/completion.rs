//! Completions: what became of a work request.

use std::fmt;

use verbs_sys as sys;

/// One completion. Only [`Cq::poll`](crate::cq::Cq::poll) makes meaningful ones, which is why it can serve as the proof
/// that the adapter is done with a buffer.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Completion(pub(crate) sys::ibv_wc);

impl Completion {
    /// An empty slot for [`Cq::poll`](crate::cq::Cq::poll) to fill.
    pub const EMPTY: Self = Self(sys::ibv_wc {
        wr_id: 0,
        status: 0,
        opcode: 0,
        vendor_err: 0,
        byte_len: 0,
        imm_data: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: 0,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    });

    /// The id that the caller gave the request. Requests that own their buffer have ids of their own, see
    /// [`Completion::owns_buffer`].
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.wr_id
    }

    /// Was the request one that owns its buffer, to be had back by `take` of its queue?
    #[inline]
    pub fn owns_buffer(&self) -> bool {
        crate::inflight::is_ticket(self.0.wr_id)
    }

    /// How the request ended.
    #[inline]
    pub fn status(&self) -> Status {
        Status(self.0.status)
    }

    /// Did the request succeed?
    #[inline]
    pub fn is_ok(&self) -> bool {
        self.status() == Status::SUCCESS
    }

    /// The failure, if it is one.
    ///
    /// # Errors
    ///
    /// The request failed.
    pub fn result(&self) -> Result<(), CompletionError> {
        if self.is_ok() {
            return Ok(());
        }
        Err(CompletionError {
            status: self.status(),
            vendor: self.0.vendor_err,
            id: self.0.wr_id,
            qpn: self.0.qp_num,
        })
    }

    /// The kind of request; unknown for failures, for which the adapter does not say.
    pub fn opcode(&self) -> Option<Opcode> {
        self.is_ok().then(|| Opcode::from_code(self.0.opcode))
    }

    /// Bytes received by a receive, or read by an RDMA read. Without meaning for the others.
    #[inline]
    pub fn length(&self) -> u32 {
        self.0.byte_len
    }

    /// The immediate value of a receive, if the sender gave one.
    pub fn immediate(&self) -> Option<u32> {
        (self.is_ok() && self.0.wc_flags & sys::IBV_WC_WITH_IMM != 0)
            .then(|| u32::from_be(self.0.imm_data))
    }

    /// Number of this side's queue pair; valid for failures too.
    #[inline]
    pub fn qpn(&self) -> u32 {
        self.0.qp_num
    }

    /// Number of the sender's queue pair; datagrams only.
    pub fn source_qpn(&self) -> u32 {
        self.0.src_qp
    }
}

impl fmt::Debug for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Completion")
            .field("id", &format_args!("{:#x}", self.id()))
            .field("status", &self.status())
            .field("opcode", &self.opcode())
            .field("length", &self.length())
            .field("qpn", &self.qpn())
            .finish_non_exhaustive()
    }
}

/// The kind of a completed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Opcode {
    /// A send, with or without an immediate value.
    Send,
    /// An RDMA write, with or without an immediate value.
    Write,
    /// An RDMA read.
    Read,
    /// A compare and swap.
    CompareSwap,
    /// A fetch and add.
    FetchAdd,
    /// A receive, consumed by a send.
    Receive,
    /// A receive, consumed by an RDMA write with an immediate value.
    ReceiveWrite,
    /// A code that this crate does not know.
    Other(u32),
}

impl Opcode {
    fn from_code(code: u32) -> Self {
        match code {
            sys::IBV_WC_SEND => Self::Send,
            sys::IBV_WC_RDMA_WRITE => Self::Write,
            sys::IBV_WC_RDMA_READ => Self::Read,
            sys::IBV_WC_COMP_SWAP => Self::CompareSwap,
            sys::IBV_WC_FETCH_ADD => Self::FetchAdd,
            sys::IBV_WC_RECV => Self::Receive,
            sys::IBV_WC_RECV_RDMA_WITH_IMM => Self::ReceiveWrite,
            other => Self::Other(other),
        }
    }

    /// Is it one of the two receives?
    #[inline]
    pub fn is_receive(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveWrite)
    }
}

/// How a request ended (`enum ibv_wc_status`); any code is a valid value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self(sys::IBV_WC_SUCCESS);
    /// The message is longer than the receive's memory, or than the port takes.
    pub const LOCAL_LENGTH: Self = Self(sys::IBV_WC_LOC_LEN_ERR);
    /// A segment names memory that its key does not cover, or that must not be written.
    pub const LOCAL_PROTECTION: Self = Self(sys::IBV_WC_LOC_PROT_ERR);
    /// The queue pair went to the error state before the request was done.
    pub const FLUSHED: Self = Self(sys::IBV_WC_WR_FLUSH_ERR);
    /// The target could not accept the request.
    pub const REMOTE_INVALID: Self = Self(sys::IBV_WC_REM_INV_REQ_ERR);
    /// The target's key does not allow the access.
    pub const REMOTE_ACCESS: Self = Self(sys::IBV_WC_REM_ACCESS_ERR);
    /// The peer does not answer.
    pub const RETRY_EXCEEDED: Self = Self(sys::IBV_WC_RETRY_EXC_ERR);
    /// The peer has no receive posted.
    pub const RNR_RETRY_EXCEEDED: Self = Self(sys::IBV_WC_RNR_RETRY_EXC_ERR);

    /// Is the connection to blame, so that the same request may succeed over a new one? Otherwise the request asks
    /// for what its memory or the peer's does not allow.
    pub fn is_of_connection(self) -> bool {
        !matches!(
            self.0,
            sys::IBV_WC_LOC_LEN_ERR
                | sys::IBV_WC_LOC_PROT_ERR
                | sys::IBV_WC_LOC_ACCESS_ERR
                | sys::IBV_WC_REM_INV_REQ_ERR
                | sys::IBV_WC_REM_ACCESS_ERR
                | sys::IBV_WC_REM_OP_ERR
        )
    }

    /// Is memory of this process to blame: its key does not cover the segment, or a page of it could not be had?
    pub fn is_of_own_memory(self) -> bool {
        matches!(
            self.0,
            sys::IBV_WC_LOC_LEN_ERR | sys::IBV_WC_LOC_PROT_ERR | sys::IBV_WC_LOC_ACCESS_ERR
        )
    }

    fn text(self) -> Option<&'static str> {
        Some(match self.0 {
            sys::IBV_WC_SUCCESS => "success",
            sys::IBV_WC_LOC_LEN_ERR => "message longer than the receive's memory",
            sys::IBV_WC_LOC_QP_OP_ERR => "request not valid for the queue pair",
            sys::IBV_WC_LOC_PROT_ERR => "segment outside its memory region or not writable",
            sys::IBV_WC_WR_FLUSH_ERR => "flushed: the queue pair is in the error state",
            sys::IBV_WC_MW_BIND_ERR => "memory window not bound",
            sys::IBV_WC_BAD_RESP_ERR => "unexpected answer from the peer",
            sys::IBV_WC_LOC_ACCESS_ERR => "peer's write not allowed by the local memory region",
            sys::IBV_WC_REM_INV_REQ_ERR => "request refused as invalid by the peer",
            sys::IBV_WC_REM_ACCESS_ERR => "access refused by the peer's memory region",
            sys::IBV_WC_REM_OP_ERR => "request failed at the peer",
            sys::IBV_WC_RETRY_EXC_ERR => "no answer from the peer",
            sys::IBV_WC_RNR_RETRY_EXC_ERR => "peer has no receive posted",
            sys::IBV_WC_REM_ABORT_ERR => "aborted by the peer",
            sys::IBV_WC_FATAL_ERR => "fatal error of the adapter",
            sys::IBV_WC_RESP_TIMEOUT_ERR => "answer came too late",
            sys::IBV_WC_GENERAL_ERR => "error without a category",
            _ => return None,
        })
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => write!(f, "completion status {}", self.0),
        }
    }
}

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("queue pair {qpn:#x}, request {id:#x}: {status} (vendor code {vendor:#x})")]
pub struct CompletionError {
    /// How it ended.
    pub status: Status,
    /// The adapter's own code.
    pub vendor: u32,
    /// The request's id.
    pub id: u64,
    /// The queue pair.
    pub qpn: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_codes_are_data() {
        let completion = Completion(sys::ibv_wc {
            status: 77,
            opcode: 99,
            imm_data: 5,
            wc_flags: sys::IBV_WC_WITH_IMM,
            ..Completion::EMPTY.0
        });
        assert!(!completion.is_ok());
        assert_eq!(completion.opcode(), None);
        assert_eq!(completion.immediate(), None);
        let error = completion.result().unwrap_err();
        assert_eq!(
            error.to_string(),
            "queue pair 0x0, request 0x0: completion status 77 (vendor code 0x0)"
        );
        let fine = Completion(sys::ibv_wc {
            opcode: 99,
            ..Completion::EMPTY.0
        });
        assert_eq!(fine.opcode(), Some(Opcode::Other(99)));
    }

    #[test]
    fn immediate_values_are_in_network_order_on_the_wire() {
        let completion = Completion(sys::ibv_wc {
            opcode: sys::IBV_WC_RECV,
            imm_data: u32::from_ne_bytes([1, 2, 3, 4]),
            wc_flags: sys::IBV_WC_WITH_IMM,
            ..Completion::EMPTY.0
        });
        assert_eq!(completion.immediate(), Some(0x0102_0304));
        assert_eq!(completion.opcode().map(Opcode::is_receive), Some(true));
    }
}
