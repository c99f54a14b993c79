//! Headers that the peer keeps, of what this side has sent: of the last put, and of the last notified one.
//!
//! # Invariants
//!
//! * Both are of one connection: they are forgotten together, when it breaks or refuses a request.

use crate::proto::header_cache::SentHeader;
use portals_core::Header;
use verbs_backend::SendOp;

/// The two headers.
#[derive(Debug)]
pub(super) struct SentHeaders {
    put: SentHeader,
    notice: SentHeader,
}

impl SentHeaders {
    /// Nothing has been sent.
    pub(super) fn new() -> Self {
        Self {
            put: SentHeader::empty(),
            notice: SentHeader::empty(),
        }
    }

    /// Every put goes with its header from here on.
    pub(super) fn keep_none(&mut self) {
        self.put = SentHeader::NEVER;
        self.notice = SentHeader::NEVER;
    }

    /// The next put goes with its header, and the next notified one.
    pub(super) fn forget(&mut self) {
        self.put.forget();
        self.notice.forget();
    }

    /// How a frame is posted, and from which byte on ([`SentHeader::send_op`]).
    #[inline(always)]
    pub(super) fn send_op(&mut self, frame: &[u8]) -> (SendOp, usize) {
        self.put.send_op(frame)
    }

    /// Remembers the put that was posted last, if it was a repeated one.
    #[inline(always)]
    pub(super) fn remember(&mut self, put: &Header) {
        self.put.remember(put);
    }

    /// The bytes of a put's header, if the peer keeps them.
    #[inline(always)]
    pub(super) fn of_put(&self, put: &Header) -> Option<&[u8]> {
        self.put.bytes_of(put)
    }

    /// That of the last notified put.
    #[inline]
    pub(super) fn notice(&mut self) -> &mut SentHeader {
        &mut self.notice
    }
}
