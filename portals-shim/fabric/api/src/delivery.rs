//! Delivery by the processor: data that arrived together with its header is copied to where the
//! match says, and the answer is made.

use crate::region::LocalCopy;
use portals_core::{Body, Header, Incoming, Ni, NiFail, Segment};

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

    /// Adds a message, whose data it takes.
    #[inline]
    pub fn push(&mut self, message: &mut Message) {
        let place = self.place(&message.header);
        if !message.data.is_empty() {
            std::mem::swap(&mut place.data, &mut message.data);
        }
    }

    /// All messages have been read.
    pub fn clear(&mut self) {
        for place in &mut self.places[..self.used] {
            place.data.clear();
            if place.data.capacity() > LARGEST_KEPT {
                place.data = Vec::new();
            }
        }
        if self.places.len() > KEPT {
            self.places.truncate(KEPT);
        }
        self.used = 0;
    }
}

/// Delivers one message. Returns the ack or reply to send.
///
/// A payload shorter than the header claims fails the operation (`PTL_NI_FAIL` in the END event);
/// nothing is read past it.
pub fn deliver(copy: LocalCopy, ni: &mut Ni, header: &Header, payload: &[u8]) -> Option<Message> {
    let whole = payload.len() as u64 >= header.payload_len();
    let fail = if whole { NiFail::OK } else { NiFail::FAIL };
    if let Body::Put { .. } = header.body {
        let taken = ni.deposit_put(header, |places, length| {
            let keep = payload
                .len()
                .min(usize::try_from(length).unwrap_or(usize::MAX));
            copy.scatter(places, &payload[..keep]);
            fail
        });
        return taken?.ack.map(|header| Message {
            header,
            data: Vec::new(),
        });
    }
    match ni.handle_header(header) {
        Incoming::Deposit(d) => {
            let keep = payload
                .len()
                .min(usize::try_from(d.length).unwrap_or(usize::MAX));
            copy.scatter(&d.segments, &payload[..keep]);
            let ack = ni.deposit_end(d.op, fail)?;
            Some(Message {
                header: ack,
                data: Vec::new(),
            })
        }
        Incoming::Reply(r) => {
            let mut data = Vec::new();
            copy.gather(&r.segments, &mut data);
            ni.reply_end(r.op, NiFail::OK);
            Some(Message {
                header: r.header,
                data,
            })
        }
        Incoming::Swap(s) => {
            let mut old = Vec::new();
            copy.gather(&s.segments, &mut old);
            if whole {
                copy.scatter(&s.segments, &payload[..s.length as usize]);
            }
            ni.swap_end(s.op, fail);
            Some(Message {
                header: s.header,
                data: old,
            })
        }
        Incoming::Acked | Incoming::Dropped(_) => None,
    }
}

/// The answer to `request` will not come: its ACK or REPLY event says that it failed.
pub fn fail_answer(ni: &mut Ni, request: &Header) {
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
        Body::Put { .. } => return ni.ack_lost(request),
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
        ni.deposit_end(d.op, NiFail::FAIL);
    }
}
