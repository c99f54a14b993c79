//! The path of an outgoing message: a frame with the header and the first data, and for the rest a put.
//!
//! Answers are urgent: they go before requests that wait, which nothing orders them with. So `rd` bounds what waits for a peer
//! that asks faster than it acks, and takes nothing more from it meanwhile; two ranks never wait for each other so
//! (`verbs-backend/src/rd/send.rs` has the proof). Requests are this rank's own.

use super::{After, DatagramNal, EXPECTED, Long, PeerId};
use crate::frame::{self, Kind, MESSAGE_HEAD, Writer};
use crate::trusted::MEMORY;
use portals_core::{Body, Header, Ni, NiFail, Segment, Segments};
use smallvec::SmallVec;
use verbs_backend::rd::{Priority, SendError, Source};

/// Where the bytes of a fragment or put are until they are acked.
#[derive(Debug)]
pub(super) enum Payload {
    /// A frame, copied.
    Frame(SmallVec<[u8; 128]>),
    /// Memory of a descriptor, which stays until the operation's end is told.
    Pieces(Segments),
}

/// Which message goes before which.
fn priority_of(header: &Header) -> Priority {
    match header.body {
        Body::Ack { .. } | Body::Reply { .. } => Priority::Urgent,
        Body::Put { .. } | Body::Get { .. } | Body::GetPut { .. } => Priority::InOrder,
    }
}

/// Bytes of data that travel with a header: all that a datagram of `mtu` bytes has room for.
pub(crate) const fn first_data(mtu: usize) -> usize {
    mtu - verbs_backend::rd::HEAD - MESSAGE_HEAD
}

impl Source for Payload {
    fn fill(&self, offset: u64, to: &mut [u8]) {
        match self {
            Self::Frame(bytes) => bytes.as_slice().fill(offset, to),
            Self::Pieces(pieces) if let [one] = pieces.as_slice() => {
                let from = Segment {
                    addr: one.addr + offset,
                    len: to.len() as u64,
                };
                MEMORY.gather_into(&[from], to);
            }
            Self::Pieces(pieces) => {
                MEMORY.gather_into(&DatagramNal::segments_from(pieces, offset), to);
            }
        }
    }
}

impl DatagramNal {
    /// Queues a header with its data; `after` happens at once if all of it has been copied.
    pub(super) fn send_pieces(
        &mut self,
        ni: &mut Ni,
        peer: PeerId,
        header: &Header,
        data: &Segments,
        after: Option<After>,
    ) {
        let len = header.payload_len();
        let most = self.first_data() as u64;
        let first = len.min(most) as usize;
        let landing = if len > most {
            self.rd.new_landing(peer)
        } else {
            0
        };
        let mut bytes = SmallVec::<[u8; 128]>::new();
        bytes.resize(MESSAGE_HEAD + first, 0);
        let mut writer = Writer::new(&mut bytes, Kind::Message, false);
        writer.header(header, first as u64);
        MEMORY.gather_into(data, writer.room(first));
        let used = writer.len();
        bytes.truncate(used);
        frame::stamp(&mut bytes, 0, landing);
        // What a peer that has gone meanwhile was sent ends with it.
        let priority = priority_of(header);
        let sent = self.send_frame(peer, bytes, 0, priority);
        if sent.is_err() || landing == 0 {
            let fail = if sent.is_ok() {
                NiFail::OK
            } else {
                NiFail::FAIL
            };
            match after {
                Some(After::Send(Some(op))) => ni.send_end(op, fail),
                Some(After::Reply(op)) => ni.reply_end(op, fail),
                Some(After::Send(None)) | None => {}
            }
            return;
        }
        let Some(after) = after else { return };
        let long = Long::Message {
            header: *header,
            landing,
            after,
            ack: None,
        };
        let tag = self.longs.insert(long) as u64 + 1;
        let rest = Self::segments_from(data, most);
        let (now, len) = (self.time.now(), len - most);
        let rest = Payload::Pieces(rest);
        let put = match priority {
            Priority::Urgent => self.rd.put_urgent(now, peer, landing, rest, len, tag),
            Priority::InOrder | Priority::Last => self.rd.put(now, peer, landing, rest, len, tag),
        };
        if let Err(error) = put {
            tracing::debug!(%error, "not sent");
            self.long_end(ni, tag, NiFail::FAIL);
        }
    }

    /// Queues a frame of bytes; an ack of a long put names its landing, anything else 0.
    pub(super) fn send_bytes(&mut self, peer: PeerId, header: &Header, data: &[u8], landing: u32) {
        let mut bytes = SmallVec::<[u8; 128]>::new();
        bytes.resize(MESSAGE_HEAD + data.len(), 0);
        let mut writer = Writer::new(&mut bytes, Kind::Message, false);
        writer.header(header, data.len() as u64);
        writer.push(data);
        let used = writer.len();
        bytes.truncate(used);
        frame::stamp(&mut bytes, 0, landing);
        if let Err(error) = self.send_frame(peer, bytes, 0, priority_of(header)) {
            tracing::debug!(%error, "not sent");
        }
    }

    /// Sends a header that names a landing, whether that is due or not: an ack of a put, or a put whose data stays away.
    #[cfg(test)]
    pub(crate) fn say_header(&mut self, rank: usize, header: &Header, landing: u32) {
        if let Some(peer) = self.meet(rank) {
            self.send_bytes(peer, header, &[], landing);
            self.flush();
        }
    }

    /// Acks that wait for the end of their put.
    #[cfg(test)]
    pub(crate) fn acks_waiting(&self) -> usize {
        let waits = |long: &Long| matches!(long, Long::Message { ack: Some(_), .. });
        self.longs.iter().filter(|(_, long)| waits(long)).count()
    }

    /// Queues a frame, and counts it unless it is an answer: those are not among the numbers of requests.
    pub(super) fn send_frame(
        &mut self,
        to: PeerId,
        bytes: SmallVec<[u8; 128]>,
        tag: u64,
        priority: Priority,
    ) -> Result<(), SendError> {
        let len = bytes.len() as u64;
        let frame = Payload::Frame(bytes);
        self.rd
            .send(self.time.now(), to, frame, len, tag, priority)?;
        if priority != Priority::Urgent
            && let Some(peer) = self.peers.get_mut(to)
        {
            peer.frames_sent = peer.frames_sent.wrapping_add(1);
        }
        Ok(())
    }

    /// See [`first_data`].
    fn first_data(&self) -> usize {
        first_data(self.rd.config().data.mtu)
    }

    pub(super) fn expect_answer(&mut self, peer: PeerId, request: &Header) {
        if let Some(peer) = self.peers.get_mut(peer) {
            if peer.expected.len() >= EXPECTED {
                peer.expected.drop_oldest();
            }
            // Its frame is the next one.
            let number = peer.frames_sent.wrapping_add(1);
            peer.expected.push(number, request);
        }
    }

    /// No answer to this request will come.
    pub(super) fn forget_expected(&mut self, request: &Header) {
        let rank = self.peers.rank_of(request.target);
        if let Some(peer) = rank.and_then(|rank| self.peers.of_rank_mut(rank)) {
            peer.expected.forget(request);
        }
    }
}
