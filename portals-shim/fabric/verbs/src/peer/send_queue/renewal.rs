//! What a broken connection left undone, and what a new one does with it.

use super::flight::Flying;
use super::queue::Queued;
use super::{COPY, SendQueue};
use crate::frame;
use crate::memory::Transfer;
use std::collections::VecDeque;
use verbs_backend::{Buffer, Status};

/// What a broken connection left undone, as far as this side knows.
#[derive(Debug)]
pub(super) enum Lost {
    Frame(Vec<u8>),
    Read {
        transfer: Transfer,
        id: u64,
    },
    Write(u64),
    RelaxedWrite {
        transfer: Transfer,
        id: u64,
    },
    /// A notified put; the frame of its notice.
    WriteImmediate {
        transfer: Transfer,
        id: u64,
        frame: Vec<u8>,
    },
    /// Refused for a reason that a new connection does not mend.
    Refused(u64),
}

/// How a one-sided request whose completion was lost ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) failed: bool,
}

impl SendQueue {
    #[cold]
    pub(super) fn lose(&mut self, flying: Flying, status: Status, buffer: Option<Buffer>) {
        self.broken = true;
        let refused = !status.is_of_connection();
        let copy = |len| Some(self.window.bytes_of_popped(len)?.to_vec());
        // A notified put goes another way then.
        let follows = self.window.front().and_then(|next| match next {
            Flying::Small { len, .. } => self.window.bytes_of_oldest(*len),
            _ => None,
        });
        let is_written = follows.is_some_and(|frame| frame::notice_head(frame).is_some());
        let lost = match flying {
            Flying::Small { len, .. } => match copy(len) {
                Some(frame) => Lost::Frame(frame),
                None => return,
            },
            Flying::WriteImmediate { transfer, id, len } => match copy(len) {
                Some(frame) => Lost::WriteImmediate {
                    transfer,
                    id,
                    frame,
                },
                None => return,
            },
            Flying::RelaxedWrite { transfer, id, .. } if is_written => {
                Lost::RelaxedWrite { transfer, id }
            }
            Flying::Buffered(len) => match buffer.as_ref().and_then(|b| b.get(..len)) {
                Some(bytes) => Lost::Frame(bytes.to_vec()),
                None => return,
            },
            Flying::Credit | Flying::Mark => return,
            Flying::Read { id, .. }
            | Flying::RelaxedWrite { id, .. }
            | Flying::Write { id, .. }
                if refused =>
            {
                Lost::Refused(id)
            }
            Flying::RelaxedWrite { transfer, id, .. } => Lost::RelaxedWrite { transfer, id },
            Flying::Read { transfer, id } => Lost::Read { transfer, id },
            Flying::Write { id, .. } => Lost::Write(id),
        };
        self.lost.push_back(lost);
    }

    /// The queue pair is to be destroyed although not all completions have come.
    pub(crate) fn abandon(&mut self) {
        self.unbatch(0);
        self.unhold();
        self.suspect_oldest();
        while !self.window.is_empty() {
            let (status, buffer) = self.unconfirmed_oldest();
            self.handle_completion(status, buffer);
        }
    }

    /// Forgets everything that waits; the owner ends the operations.
    pub(in crate::peer) fn give_up(&mut self) {
        self.queue.clear();
        self.lost.clear();
        self.leave_ring();
    }

    /// The connection is ready for use by a new queue pair, through which the peer takes `granted` frames. The
    /// `received` frames that the peer has had are not sent again; says how one-sided requests of the old
    /// connection ended.
    pub(in crate::peer) fn renew(&mut self, granted: u16, received: u32) -> Vec<Ended> {
        self.unhold();
        let inline = self.qp.as_ref().map_or(0, |q| q.capabilities().max_inline);
        self.max_inline = (inline as usize).min(COPY);
        self.window.open();
        self.sent_header.forget();
        self.sent_notice.forget();
        self.confirm_anew();
        self.withdrawn.clear();
        self.leave_ring();
        self.broken = false;
        self.credits.renew(granted);
        let is_frame = |lost: &Lost| matches!(lost, Lost::Frame(_) | Lost::WriteImmediate { .. });
        let frames = self.lost.iter().filter(|l| is_frame(l)).count() as u32;
        let first = self.frames_sent.wrapping_sub(frames);
        // A peer cannot have had more than was sent.
        let mut had = received.wrapping_sub(first);
        if had > frames {
            had = 0;
        }
        self.frames_sent = first.wrapping_add(had);
        // Up to the last frame that arrived, writes have been done: a connection keeps the order.
        let mut done = self.lost.len();
        let mut left = had;
        for (at, lost) in self.lost.iter().enumerate() {
            if left == 0 {
                done = at;
                break;
            }
            left -= u32::from(is_frame(lost));
        }
        if had == 0 {
            done = 0;
        }
        let mut ended = Vec::new();
        let mut again = VecDeque::new();
        for (at, lost) in std::mem::take(&mut self.lost).into_iter().enumerate() {
            match lost {
                Lost::Frame(_) if at < done => {}
                Lost::Frame(bytes) => again.push_back(Queued::Frame { bytes }),
                Lost::Read { transfer, id } => again.push_back(Queued::Transfer { transfer, id }),
                Lost::RelaxedWrite { id, .. } | Lost::WriteImmediate { id, .. } if at < done => {
                    ended.push(Ended { id, failed: false });
                }
                Lost::WriteImmediate {
                    transfer,
                    id,
                    frame,
                } => {
                    again.push_back(Queued::Transfer { transfer, id });
                    again.push_back(Queued::Frame { bytes: frame });
                }
                Lost::RelaxedWrite { transfer, id } => {
                    again.push_back(Queued::Transfer { transfer, id })
                }
                Lost::Write(id) => ended.push(Ended {
                    id,
                    failed: at >= done,
                }),
                Lost::Refused(id) => ended.push(Ended { id, failed: true }),
            }
        }
        again.append(&mut self.queue);
        // Rings end with their connection.
        again.retain(|waiting| match waiting {
            Queued::Frame { bytes } => !frame::is_of_rings(bytes),
            _ => true,
        });
        self.queue = super::rma_write_send::as_messages(again, &mut ended);
        ended
    }
}
