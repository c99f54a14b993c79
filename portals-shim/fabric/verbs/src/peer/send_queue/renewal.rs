//! What a broken connection left undone, and what a new one does with it.

use super::lost::{Lost, Recovery};
use super::waiting::Queued;
use super::window::Flying;
use super::{COPY, SendQueue};
use crate::frame;
use portals_core::NiFail;
use std::collections::VecDeque;
use verbs_backend::{Buffer, Status};

/// How a one-sided request whose completion was lost ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) id: u64,
    pub(crate) fail: NiFail,
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
                match status.is_of_own_memory() {
                    true => Lost::Fault(id),
                    false => Lost::Refused(id),
                }
            }
            Flying::RelaxedWrite { transfer, id, .. } => Lost::RelaxedWrite { transfer, id },
            Flying::Read { transfer, id } => Lost::Read { transfer, id },
            Flying::Write { id, .. } => Lost::Write(id),
        };
        self.undone.push(lost);
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
        self.unread = 0;
        self.undone.clear();
        self.leave_ring();
    }

    /// The connection is ready for use by a new queue pair, through which the peer takes `granted` frames. The
    /// `received` frames that the peer has had are not sent again; says how one-sided requests of the old
    /// connection ended. What becomes of what was left undone, and has `arrived` or not, is for its protocol to `recover`.
    pub(in crate::peer) fn renew(
        &mut self,
        granted: u16,
        received: u32,
        recover: impl Fn(&Lost, bool) -> Recovery,
    ) -> Vec<Ended> {
        self.unhold();
        let inline = self.qp.as_ref().map_or(0, |q| q.capabilities().max_inline);
        self.max_inline = (inline as usize).min(COPY);
        self.window.open();
        self.headers.forget();
        self.confirm_anew();
        self.withdrawn.clear();
        self.leave_ring();
        self.broken = false;
        self.credits.renew(granted);
        let mut ended = Vec::new();
        let mut again = VecDeque::new();
        for (lost, arrived) in self.undone.settle(received) {
            match (recover(&lost, arrived), lost) {
                (Recovery::Again, Lost::Frame(bytes)) => again.push_back(Queued::Frame { bytes }),
                (
                    Recovery::Again,
                    Lost::Read { transfer, id } | Lost::RelaxedWrite { transfer, id },
                ) => again.push_back(Queued::Transfer { transfer, id }),
                (
                    Recovery::Again,
                    Lost::WriteImmediate {
                        transfer,
                        id,
                        frame: bytes,
                    },
                ) => {
                    again.push_back(Queued::Transfer { transfer, id });
                    again.push_back(Queued::Frame { bytes });
                }
                // Of any other request nothing is kept by which it could be posted again.
                (recovery, lost) => ended.extend(lost.id().map(|id| Ended {
                    id,
                    fail: recovery.fail(),
                })),
            }
        }
        again.append(&mut self.queue.take());
        // Rings end with their connection.
        again.retain(|waiting| match waiting {
            Queued::Frame { bytes } => !frame::is_of_rings(bytes),
            _ => true,
        });
        let again = super::rma_write_send::as_messages(again, &mut ended);
        self.queue.extend(again);
        self.queue.set_much(self.credits.much());
        self.count_answers();
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, Writer};
    use crate::memory::Transfer;
    use crate::proto;
    use fabric_testing::message;
    use portals_core::{Body, MdHandle, Segment};
    use verbs_backend::Remote;

    fn transfer(data: &[u8], read: bool) -> Transfer {
        Transfer {
            local: Segment {
                addr: data.as_ptr() as u64,
                len: data.len() as u64,
            },
            lkey: 0,
            remote: Remote {
                address: 0,
                rkey: 0,
            },
            read,
            again: !read,
            announced: false,
        }
    }

    /// The frame of a notified put of so many bytes.
    fn notice(length: u32) -> Vec<u8> {
        let put = message(Body::Put {
            length: length.into(),
            remote_offset: 0,
            hdr_data: 0,
            ac_index: 0,
            ack_md: None,
        });
        let mut place = [0; COPY];
        let mut writer = Writer::new(&mut place, Kind::Notice, false);
        writer.notice(length, MdHandle::from_raw(3));
        writer.header(&put, length.into());
        let len = writer.len();
        place[..len].to_vec()
    }

    fn frame(kind: Kind, number: u8) -> Lost {
        Lost::Frame(vec![kind as u8, 0, 0, 0, 0, 0, 0, 0, number])
    }

    #[test]
    fn what_has_not_arrived_is_posted_again_or_has_failed() {
        let data = *b"notified";
        let mut sq = SendQueue::new(1, 4, 16);
        for lost in [
            frame(Kind::Message, 1),
            Lost::Write(1),
            Lost::RelaxedWrite {
                transfer: transfer(&data, false),
                id: 2,
            },
            frame(Kind::Message, 2),
            Lost::Read {
                transfer: transfer(&data, true),
                id: 3,
            },
            Lost::Write(4),
            Lost::RelaxedWrite {
                transfer: transfer(&data, false),
                id: 5,
            },
            Lost::Refused(6),
            Lost::WriteImmediate {
                transfer: transfer(&data, false),
                id: 7,
                frame: notice(8),
            },
            frame(Kind::Ring, 4),
            frame(Kind::Message, 5),
        ] {
            if matches!(lost, Lost::Frame(_) | Lost::WriteImmediate { .. }) {
                sq.undone.count_frame();
            }
            sq.undone.push(lost);
        }
        let ended = sq.renew(4, 2, proto::recover);
        let ended_with = |id, fail| Ended { id, fail };
        let well = |id| ended_with(id, NiFail::OK);
        let failed = |id| ended_with(id, NiFail::FAIL);
        let all = [well(1), well(2), failed(4), failed(6), well(7)];
        assert_eq!(ended, all);
        let mut queue = sq.queue.iter();
        for id in [3, 5] {
            let next = queue.next();
            let is = matches!(next, Some(Queued::Transfer { id: own, .. }) if *own == id);
            assert!(is, "{next:?} is not {id}");
        }
        // The notified put is a message now, with its data; rings end with their connection.
        let mut frame = || match queue.next() {
            Some(Queued::Frame { bytes }) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        let (message, last) = (frame(), frame());
        assert_eq!(message[0], Kind::Message as u8);
        assert!(message.ends_with(&data), "{message:?}");
        assert_eq!(last[8], 5);
        assert!(queue.next().is_none());
        assert_eq!(sq.undone.sent(), 2, "two have arrived");
    }

    /// What the adapter says of a request names the culprit: memory here, memory there, or nobody yet.
    #[test]
    fn a_request_that_own_memory_ends_does_not_blame_the_peer() {
        let data = *b"data";
        let read = |id| Flying::Read {
            transfer: transfer(&data, true),
            id,
        };
        let mut sq = SendQueue::new(1, 4, 16);
        sq.window.open();
        for (id, status) in [
            (1, Status::LOCAL_PROTECTION),
            (2, Status::REMOTE_ACCESS),
            (3, Status::RETRY_EXCEEDED),
            (4, Status::FLUSHED),
        ] {
            sq.lose(read(id), status, None);
        }
        sq.lose(
            Flying::Write {
                id: 5,
                len: 4,
                silent: false,
            },
            Status::LOCAL_PROTECTION,
            None,
        );
        let ended = sq.renew(4, 0, proto::recover);
        let with = |id, fail| Ended { id, fail };
        let all = [
            with(1, NiFail::SEGV),
            with(2, NiFail::FAIL),
            with(5, NiFail::SEGV),
        ];
        assert_eq!(ended, all);
        // Those that the connection has ended go again.
        assert_eq!(sq.queue.iter().count(), 2);
    }
}
