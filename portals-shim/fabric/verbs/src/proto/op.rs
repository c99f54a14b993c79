//! A put or get as the choice of a protocol sees it.

use fabric_api::call::Target;
use portals_core::{Body, Header, ProcessId};

/// What is to be moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Data to memory of the peer.
    Put,
    /// Data from memory of the peer.
    Get,
    /// What the peer's library handles in any case: the reply to a get, an exchange.
    Message,
}

/// An operation of this process on a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) kind: Kind,
    pub(crate) source: ProcessId,
    pub(crate) pt_index: u32,
    pub(crate) ac_index: u32,
    pub(crate) match_bits: u64,
    /// In the memory of the peer.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// The memory of this side is in one piece.
    pub(crate) contiguous: bool,
    /// It may have its effect before earlier operations.
    pub(crate) relaxed: bool,
    /// It begins within its call, without an operation of the library.
    pub(crate) immediate: bool,
}

impl Op {
    /// What a message with this header asks for.
    #[inline(always)]
    pub(crate) fn of(header: &Header, contiguous: bool) -> Self {
        let (kind, ac_index, offset, len) = match header.body {
            Body::Put {
                length,
                remote_offset,
                ac_index,
                ..
            } => (Kind::Put, ac_index, remote_offset, length),
            Body::Get {
                length,
                remote_offset,
                ac_index,
                ..
            } => (Kind::Get, ac_index, remote_offset, length),
            _ => (Kind::Message, 0, 0, header.payload_len()),
        };
        Self {
            kind,
            source: header.source,
            pt_index: header.pt_index,
            ac_index,
            match_bits: header.match_bits,
            offset,
            len,
            contiguous,
            relaxed: false,
            immediate: false,
        }
    }

    /// A put to, or a get of, `len` bytes of a target, which begins within its call; from or into memory in one piece.
    #[inline(always)]
    pub(crate) fn immediate(kind: Kind, source: ProcessId, target: &Target, len: u64) -> Self {
        Self {
            kind,
            source,
            pt_index: target.pt_index,
            ac_index: target.ac_index,
            match_bits: target.match_bits,
            offset: target.remote_offset,
            len,
            contiguous: true,
            relaxed: false,
            immediate: true,
        }
    }

    /// The same operation, which may have its effect before earlier ones.
    #[inline(always)]
    pub(crate) fn relaxed(self) -> Self {
        Self {
            relaxed: true,
            ..self
        }
    }

    /// Bytes that travel with the header, if it goes by a message: the data of a get comes with its reply.
    #[inline(always)]
    pub(crate) fn payload(&self) -> u64 {
        match self.kind {
            Kind::Get => 0,
            Kind::Put | Kind::Message => self.len,
        }
    }
}
