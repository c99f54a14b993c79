//! What waits to be posted, and what is posted at once because nothing waits.

use super::SendQueue;
use super::waiting::Queued;
use crate::frame::{self, Kind, PREFIX, SLOT, Writer};
use crate::memory::Transfer;
use crate::trusted::MEMORY;
use portals_core::{Header, Segment};
use verbs_backend::{BufferPool, SendOp};

/// Writes the bytes of a put into its frame. No closure, of which there would be a call.
pub(crate) trait Fill {
    fn fill(self, room: &mut [u8]);
}

/// Bytes that lie in memory.
impl Fill for &[Segment] {
    #[inline(always)]
    fn fill(self, room: &mut [u8]) {
        MEMORY.gather_into(self, room);
    }
}

/// Bytes that somebody makes.
impl Fill for &mut dyn FnMut(&mut [u8]) {
    #[inline(always)]
    fn fill(self, room: &mut [u8]) {
        self(room);
    }
}

impl SendQueue {
    /// Posts a frame of at most `size` bytes, written by `build`, if nothing waits before it and there is room; gives
    /// `build` back, and nothing has happened, if not. Part of its caller.
    #[inline(always)]
    fn post_now<B: FnOnce(&mut Writer<'_>)>(
        &mut self,
        pool: &BufferPool,
        kind: Kind,
        failed: bool,
        size: usize,
        build: B,
    ) -> Result<(), B> {
        self.flush_batch();
        if !self.queue.is_clear() || !self.credits.any() || !self.has_room() {
            self.flush();
            return Err(build);
        }
        if size <= self.max_inline
            && let Some(copy) = self.place_of_frame()
        {
            let len = written(copy, kind, failed, build);
            self.post_copy_here(len, true);
            return Ok(());
        }
        let Some(mut buffer) = pool.take() else {
            self.flush();
            return Err(build);
        };
        let len = written_apart(&mut buffer, kind, failed, build);
        self.post_buffer(buffer, len, true);
        Ok(())
    }

    /// Sends a message's frame of at most `size` bytes, written by `build`, if it can be posted at once. After `false`
    /// nothing has happened.
    #[inline(always)]
    pub(crate) fn send_now(
        &mut self,
        pool: &BufferPool,
        size: usize,
        build: impl FnOnce(&mut Writer<'_>),
    ) -> bool {
        self.post_now(pool, Kind::Message, false, size, build)
            .is_ok()
    }

    /// Sends a put of `len` bytes, written by `fill`, that is the same as the one before on the connection, if it can be
    /// posted at once by a copy: no header is made. Gives `fill` back, and nothing has happened, if not. Part of its caller.
    #[inline(always)]
    pub(crate) fn send_again<F: Fill>(
        &mut self,
        put: &Header,
        len: usize,
        fill: F,
    ) -> Result<(), F> {
        let Some(header) = self.headers.of_put(put) else {
            return Err(fill);
        };
        let head = PREFIX + header.len();
        let size = head + len;
        let waits = !self.queue.is_clear() || self.kept_back() > 0;
        if waits || !self.credits.any() || size > self.max_inline || !self.has_room() {
            return Err(fill);
        }
        let Some(frame) = self.window.place_mut() else {
            return Err(fill);
        };
        let Some((begin, data)) = frame
            .get_mut(..size)
            .and_then(|f| f.split_at_mut_checked(head))
        else {
            return Err(fill);
        };
        frame::again(begin, header);
        if len > 0 {
            fill.fill(data);
        }
        let value = frame::value_of(self.credits.owed(), self.requests_done);
        if !self.post_in_ring(SendOp::SendImmediate(value), head, size) {
            self.post_copy(size, true);
        }
        Ok(())
    }

    /// Sends a frame of at most `size` bytes, written by `build`.
    #[inline(never)]
    pub(crate) fn send(
        &mut self,
        pool: &BufferPool,
        kind: Kind,
        failed: bool,
        size: usize,
        build: impl FnOnce(&mut Writer<'_>),
    ) {
        if let Err(build) = self.post_now(pool, kind, failed, size, build) {
            let mut bytes = vec![0; size.min(SLOT)];
            let len = written_apart(&mut bytes, kind, failed, build);
            bytes.truncate(len);
            self.queue.push_back(Queued::Frame { bytes });
            self.count_answers();
        }
    }

    /// Posts a transfer, or queues it behind what waits. A write of relaxed order waits for its message.
    #[inline(always)]
    pub(crate) fn transfer(&mut self, transfer: Transfer, id: u64) {
        self.flush();
        if self.queue.is_empty() && self.has_room() {
            if transfer.again {
                self.relaxed.hold(transfer, id);
            } else {
                self.post_transfer(&transfer, id);
            }
        } else {
            self.queue.push_back(Queued::Transfer { transfer, id });
        }
    }

    /// Posts what waits, as far as there is room, and returns credits that nothing else carries.
    pub(crate) fn pump(&mut self, pool: &BufferPool) {
        self.flush();
        while self.has_room() {
            match self.queue.pop(self.credits.any()) {
                Some(Queued::Frame { bytes }) => {
                    let len = bytes.len();
                    let place = self.window.place_mut();
                    let place = place.filter(|_| len <= self.max_inline);
                    if let Some(place) = place.and_then(|copy| copy.get_mut(..len)) {
                        place.copy_from_slice(&bytes);
                        self.post_copy(len, true);
                    } else if let Some(mut buffer) = pool.take() {
                        let len = bytes.len().min(buffer.len());
                        buffer[..len].copy_from_slice(&bytes[..len]);
                        self.post_buffer(buffer, len, true);
                    } else {
                        self.queue.push_front(Queued::Frame { bytes });
                        break;
                    }
                }
                Some(Queued::Transfer { transfer, id }) => self.post_transfer(&transfer, id),
                Some(Queued::Inline { data, remote, id }) => {
                    self.post_write_inline(&data, remote, id)
                }
                None => break,
            }
        }
        if self.withdrawn.are_any() {
            self.requests_left();
        }
        self.count_answers();
        // Who mends connections gives the peer up.
        self.broken |= self.fault().is_some();
        // Nothing carries the credits back.
        if self.credits.is_due() && self.has_room() {
            self.credits.returning(true);
            let place = self.window.place_mut();
            if let Some(place) = place.filter(|_| frame::PREFIX <= self.max_inline) {
                let len = Writer::new(place, Kind::Credit, false).len();
                self.post_copy(len, false);
            } else if let Some(mut buffer) = pool.take() {
                let len = Writer::new(&mut buffer, Kind::Credit, false).len();
                self.post_buffer(buffer, len, false);
            } else {
                self.credits.returning(false);
            }
        }
    }
}

/// Writes a frame ([`written`]) by a call, where it is rare.
#[inline(never)]
fn written_apart(
    place: &mut [u8],
    kind: Kind,
    failed: bool,
    build: impl FnOnce(&mut Writer<'_>),
) -> usize {
    written(place, kind, failed, build)
}

/// Writes a frame; its bytes.
#[inline(always)]
fn written(
    place: &mut [u8],
    kind: Kind,
    failed: bool,
    build: impl FnOnce(&mut Writer<'_>),
) -> usize {
    let mut writer = Writer::new(place, kind, failed);
    build(&mut writer);
    writer.len()
}
