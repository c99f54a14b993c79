//! Puts whose data is written into the peer's descriptor, and the message that tells of it.
//!
//! ```text
//!   put A ──► WRITE data, frame with descriptor and header A     one call      the receiver keeps A
//!   put A ──► WRITE data with an immediate value                 one request   … and takes it for this one
//!   put B ──► WRITE data, frame with descriptor and header B
//! ```
//!
//! # Invariants
//!
//! * Data is written only when all earlier requests that travelled in frames, whose data the peer copies when it comes to
//!   them, have had their effect; those that were written have had it on this memory when they arrived.
//! * A write and its message are posted by one call or not at all: the memory is free when the message has left.
//! * What a broken connection left undone is not written again, since the peer may have taken the descriptor back: it
//!   goes over the new connection as a message with its data.

use super::SendQueue;
use super::renewal::Ended;
use super::waiting::Queued;
use super::window::Flying;
use crate::frame::{self, Kind, Writer};
use crate::memory::Transfer;
use crate::trusted::MEMORY;
use portals_core::{Header, MdHandle, NiFail};
use std::collections::VecDeque;

impl SendQueue {
    /// Whether a put can be posted now, and a message behind it.
    #[inline]
    pub(in crate::peer) fn has_room_to_notify(&self) -> bool {
        self.queue.is_clear()
            && self.credits.any()
            && self.window.fits(self.batch.len() + 2)
            && self.max_inline >= frame::NOTICE
    }

    /// Posts a put for which there is room ([`SendQueue::has_room_to_notify`]), into the peer's descriptor `md`. What is done
    /// when the memory is free has the record `id`.
    pub(crate) fn post_write_send(
        &mut self,
        transfer: Transfer,
        id: u64,
        header: &Header,
        md: MdHandle,
    ) {
        self.flush();
        let length = header.payload_len() as u32;
        let to = md.raw().to_le_bytes();
        let known = self.headers.notice().bytes_of(header);
        if !known.is_some_and(|head| head.starts_with(&to))
            && !self.notice_is_cached(header, length, md, (transfer, id))
        {
            return;
        }
        let value = frame::value_of(self.credits.owed(), self.requests_done);
        let Some(qp) = &self.qp else { return };
        let posted = transfer.post_whole(qp, id, value);
        // For a new connection, if this one breaks: made while the data is under way.
        let head = self.headers.notice().header();
        let len = match self.window.place_mut() {
            Some(place) => frame::notice_again(place, length, head),
            None => 0,
        };
        match posted {
            Ok(()) => self.posted(Flying::WriteImmediate { transfer, id, len }),
            Err(error) => {
                let place = self.window.place();
                let frame = place.and_then(|p| p.get(..len)).map(<[u8]>::to_vec);
                self.not_posted(&error, frame);
                self.queue.push_front(Queued::Transfer { transfer, id });
            }
        }
    }

    /// Whether the peer keeps the header of a put for `md` and takes it for this one; if not, the put is posted, and a
    /// frame with its header.
    fn notice_is_cached(
        &mut self,
        header: &Header,
        length: u32,
        md: MdHandle,
        relaxed: (Transfer, u64),
    ) -> bool {
        let Some(place) = self.window.place_mut() else {
            return false;
        };
        let mut writer = Writer::new(place, Kind::Notice, false);
        writer.notice(length, md);
        writer.header(header, length.into());
        let len = writer.len();
        let head = frame::notice_head(&place[..len]).unwrap_or_default();
        if self.headers.notice().header() == head {
            self.headers.notice().remember_kept(header);
            return true;
        }
        self.headers.notice().keep(head);
        let frame = *place;
        self.relaxed.hold(relaxed.0, relaxed.1);
        if let Some(place) = self.place_of_frame() {
            *place = frame;
            self.post_copy(len, true);
        }
        false
    }
}

/// Puts that were to be written, as messages with their data; says which memory is free by that.
pub(super) fn as_messages(queue: VecDeque<Queued>, ended: &mut Vec<Ended>) -> VecDeque<Queued> {
    let mut out: VecDeque<Queued> = VecDeque::with_capacity(queue.len());
    for waiting in queue {
        if let Queued::Frame { bytes } = &waiting
            && let Some(Queued::Transfer { transfer, id }) = out.back()
            && transfer.again
        {
            let mut data = Vec::new();
            MEMORY.gather(&[transfer.local], &mut data);
            if let Some(bytes) = frame::message_of_notice(bytes, &data) {
                ended.push(Ended {
                    id: *id,
                    fail: NiFail::OK,
                });
                out.pop_back();
                out.push_back(Queued::Frame { bytes });
                continue;
            }
        }
        out.push_back(waiting);
    }
    out
}
