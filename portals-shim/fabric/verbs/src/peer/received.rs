//! What has come from a peer over its connection.
//!
//! # Invariants
//!
//! * `frames` counts the frames of the peer that took a slot here, however often the connection breaks. The
//!   peer's send queue counts the same frames, and a new connection sends only those that are not among them.
//! * `in_ring` holds while a frame is handled that came by a ring, whose slot is free again at once.
//! * The headers kept are those of the last put, and of the last notice, that came with one.

mod late;

use crate::frame::{Ends, FrameError};
use crate::proto::eager_ring::ACTIVE;
use crate::proto::header_cache::{ReceivedHeader, ReceivedNotice};
pub(crate) use late::{Late, LateAnswers};
use portals_core::{Header, MdHandle};

/// What has come from one peer.
#[derive(Debug)]
pub(crate) struct Received {
    frames: u32,
    in_ring: bool,
    header: ReceivedHeader,
    notice: ReceivedNotice,
    activity: Activity,
    /// Long puts that came in frames.
    long_puts: u32,
    /// The peer is told of descriptors that it may write although they have event queues.
    notifies: bool,
    late: LateAnswers,
}

/// Short frames of a peer in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Activity {
    /// Of the rank, when the first of them came.
    sleeps: u32,
    frames: u32,
}

impl Received {
    pub(super) fn new() -> Self {
        Self {
            frames: 0,
            in_ring: false,
            header: ReceivedHeader::NOTHING,
            notice: ReceivedNotice::NOTHING,
            activity: Activity::default(),
            long_puts: 0,
            notifies: false,
            late: LateAnswers::default(),
        }
    }

    /// A new connection.
    pub(super) fn renew(&mut self) {
        self.notifies = false;
    }

    /// Frames that took a slot here, ever.
    #[inline]
    pub(crate) fn frames(&self) -> u32 {
        self.frames
    }

    /// One more frame took a slot; whether it is free again at once.
    #[inline]
    pub(super) fn count_frame(&mut self) -> bool {
        self.frames = self.frames.wrapping_add(1);
        self.in_ring
    }

    /// What is handled from here on came by a ring, or did not.
    #[inline]
    pub(crate) fn by_ring(&mut self, in_ring: bool) {
        self.in_ring = in_ring;
    }

    /// Keeps the header of a put that came in `frame`.
    #[inline]
    pub(crate) fn keep_header(&mut self, frame: &[u8], header: &Header) {
        self.header.keep(frame, header);
    }

    /// The header of a put of `data` bytes that came without one.
    #[inline(always)]
    pub(crate) fn header_again(&self, data: usize, ends: &Ends) -> Result<Header, FrameError> {
        self.header.again(data, ends)
    }

    /// No put has come.
    #[cfg(test)]
    pub(crate) fn forget_header(&mut self) {
        self.header.forget();
    }

    /// Keeps header and descriptor of a notice, which is `frame`.
    pub(crate) fn keep_notice(&mut self, frame: &[u8], header: &Header, md: MdHandle) {
        self.notice.keep(frame, header, md);
    }

    /// Header and descriptor of a put of `data` bytes that was written without a notice.
    #[inline(always)]
    pub(crate) fn notice_again(
        &self,
        data: usize,
        ends: &Ends,
    ) -> Result<(Header, MdHandle), FrameError> {
        self.notice.again(data, ends)
    }

    /// One more short frame was taken as a message; whether the peer is active: [`ACTIVE`] of them came since the rank
    /// slept for the `sleeps`th time.
    #[inline]
    pub(crate) fn is_active(&mut self, sleeps: u32) -> bool {
        if self.activity.sleeps != sleeps {
            self.activity = Activity { sleeps, frames: 0 };
        }
        self.activity.frames = self.activity.frames.wrapping_add(1);
        self.activity.frames.is_multiple_of(ACTIVE)
    }

    /// One more long put came in a frame; whether so many have that each `often`th one has come.
    pub(crate) fn count_long_put(&mut self, often: u32) -> bool {
        self.long_puts = self.long_puts.wrapping_add(1);
        self.long_puts.is_multiple_of(often)
    }

    #[cfg(test)]
    pub(crate) fn long_puts(&self) -> u32 {
        self.long_puts
    }

    /// Whether the peer is told of descriptors with event queues.
    pub(crate) fn notifies(&self) -> bool {
        self.notifies
    }

    /// The peer is told of them from here on; whether it was not before.
    pub(crate) fn begin_to_notify(&mut self) -> bool {
        !std::mem::replace(&mut self.notifies, true)
    }

    /// Whether an answer to what comes now must wait for the data of earlier puts.
    #[inline]
    pub(crate) fn awaits_data(&self) -> bool {
        self.late.must_wait()
    }

    /// Answers that do.
    #[inline]
    pub(crate) fn late(&mut self) -> &mut LateAnswers {
        &mut self.late
    }
}
