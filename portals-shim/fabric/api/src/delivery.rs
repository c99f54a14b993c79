//! Delivery by the processor: data that arrived together with its header is copied to where the
//! match says, and the answer is made.

use crate::region::LocalCopy;
use portals_core::{Body, Header, Incoming, Ni, NiFail, Segment, Transmit};

/// A header and the data that follows it.
#[derive(Clone, Debug)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// Its payload; as many bytes as the header says, or fewer if the wire lost some.
    pub data: Vec<u8>,
}

/// Messages in the order of their arrival. Their places, and the buffers of these, stay for the next ones, so that a
/// message needs no memory of its own.
#[derive(Debug, Default)]
pub struct Messages {
    places: Vec<Message>,
    /// Places that hold a message; they come first.
    used: usize,
}

/// Places that [`Messages`] keep, and the largest buffer of one, bytes.
const KEPT: usize = 16;
const LARGEST_KEPT: usize = 64 << 10;

impl Messages {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.used
    }

    /// Each, in the order of their arrival.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Message> {
        self.places[..self.used].iter()
    }

    /// The place of one more message; its buffer is empty.
    #[inline]
    fn place(&mut self, header: &Header) -> &mut Message {
        let at = self.used;
        self.used += 1;
        if at == self.places.len() {
            self.grow(header);
        }
        let place = &mut self.places[at];
        place.header = *header;
        place
    }

    #[cold]
    fn grow(&mut self, header: &Header) {
        self.places.push(Message {
            header: *header,
            data: Vec::new(),
        });
    }

    /// Adds a message with the bytes of `payload`.
    #[inline]
    pub fn put(&mut self, copy: LocalCopy, header: &Header, payload: &[Segment]) {
        copy.gather(payload, &mut self.place(header).data);
    }

    /// Adds a message whose bytes are those of `data`, which is left empty with a buffer for the next.
    #[inline]
    pub fn push(&mut self, header: &Header, data: &mut Vec<u8>) {
        let place = self.place(header);
        if !data.is_empty() {
            std::mem::swap(&mut place.data, data);
        }
    }

    /// All messages have been read.
    #[inline]
    pub fn clear(&mut self) {
        for place in &mut self.places[..self.used] {
            place.data.clear();
            keep(&mut place.data);
        }
        if self.places.len() > KEPT {
            self.places.truncate(KEPT);
        }
        self.used = 0;
    }
}

/// Empties a buffer for its next use; one that is too large to be kept goes.
fn keep(buffer: &mut Vec<u8>) {
    buffer.clear();
    if buffer.capacity() > LARGEST_KEPT {
        *buffer = Vec::new();
    }
}

/// Delivers one message. Returns the header of the ack or reply to send, whose bytes are put into `answer`, which is empty.
///
/// A payload shorter than the header claims fails the operation (`PTL_NI_FAIL` in the END event);
/// nothing is read past it.
#[inline]
pub fn deliver(
    copy: LocalCopy,
    ni: &mut Ni,
    header: &Header,
    payload: &[u8],
    answer: &mut Vec<u8>,
) -> Option<Header> {
    let whole = payload.len() as u64 >= header.payload_len();
    let fail = if whole { NiFail::OK } else { NiFail::FAIL };
    if let Body::Put { .. } = header.body {
        let taken = ni.deposit_put(header, |places, length| {
            copy.scatter(places, up_to(payload, length));
            fail
        });
        return taken?.ack;
    }
    deliver_other(copy, ni, header, payload, (fail, answer))
}

/// [`deliver`] of what is no Put.
#[inline(never)]
fn deliver_other(
    copy: LocalCopy,
    ni: &mut Ni,
    header: &Header,
    payload: &[u8],
    (fail, answer): (NiFail, &mut Vec<u8>),
) -> Option<Header> {
    match ni.handle_header(header) {
        Incoming::Deposit(d) => {
            copy.scatter(&d.segments, up_to(payload, d.length));
            ni.deposit_end(d.op, fail)
        }
        Incoming::Reply(r) => {
            copy.gather(&r.segments, answer);
            ni.reply_end(r.op, NiFail::OK);
            Some(r.header)
        }
        Incoming::Swap(s) => {
            copy.gather(&s.segments, answer);
            if fail == NiFail::OK {
                copy.scatter(&s.segments, up_to(payload, s.length));
            }
            ni.swap_end(s.op, fail);
            Some(s.header)
        }
        Incoming::Acked | Incoming::Dropped(_) => None,
    }
}

/// The first `length` bytes, or all where there are fewer.
fn up_to(payload: &[u8], length: u64) -> &[u8] {
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    payload.get(..length).unwrap_or(payload)
}

/// A message is not sent: its operation fails, and so does its answer.
#[cold]
pub fn refuse(ni: &mut Ni, tx: &Transmit) {
    if let Some(op) = tx.op {
        ni.send_end(op, NiFail::FAIL);
    }
    fail_answer(ni, &tx.header, NiFail::FAIL);
}

/// The answer to `request` will not come: its ACK or REPLY event says that it failed, and how.
pub fn fail_answer(ni: &mut Ni, request: &Header, fail: NiFail) {
    let (md, offset, length) = match request.body {
        Body::Get {
            reply_md,
            reply_offset,
            length,
            ..
        }
        | Body::GetPut {
            reply_md,
            reply_offset,
            length,
            ..
        } => (reply_md, reply_offset, length),
        Body::Put { .. } => return ni.ack_lost(request, fail),
        Body::Ack { .. } | Body::Reply { .. } => return,
    };
    let reply = Header {
        target: request.source,
        source: request.target,
        body: Body::Reply {
            md,
            local_offset: offset,
            rlength: length,
            mlength: 0,
        },
        ..*request
    };
    if let Incoming::Deposit(d) = ni.handle_header(&reply) {
        ni.deposit_end(d.op, fail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_core::ProcessId;

    #[test]
    fn buffers_of_answers_are_used_again() {
        let id = ProcessId::new(0, 1);
        let header = Header {
            target: id,
            source: id,
            uid: 0,
            jid: 0,
            pt_index: 0,
            match_bits: 0,
            body: Body::Put {
                length: 3,
                remote_offset: 0,
                hdr_data: 0,
                ac_index: 0,
                ack_md: None,
            },
        };
        let (mut queue, mut data) = (Messages::default(), Vec::new());
        let mut buffers = Vec::new();
        for round in 0..6 {
            data.extend([round; 3]);
            buffers.push(data.as_ptr());
            queue.push(&header, &mut data);
            assert!(data.is_empty());
            let came: Vec<_> = queue.iter().map(|m| m.data.clone()).collect();
            assert_eq!(came, [[round; 3]]);
            queue.clear();
        }
        // Two of them: one is filled while the other is read.
        assert_eq!(buffers[2..4], buffers[..2]);
        assert_eq!(buffers[4..], buffers[..2]);

        data.resize(LARGEST_KEPT + 1, 0);
        queue.push(&header, &mut data);
        queue.clear();
        queue.push(&header, &mut vec![1]);
        assert!(queue.iter().all(|m| m.data.capacity() <= LARGEST_KEPT));
    }
}
