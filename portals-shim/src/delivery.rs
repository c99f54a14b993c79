//! Delivery by the processor: data that arrived together with its header is copied to where the
//! match says, and the answer is made.

use crate::region::LocalCopy;
use portals_core::{Header, Incoming, Ni, NiFail};

/// A header and the data that follows it.
#[derive(Clone, Debug)]
pub struct Message {
    /// The header.
    pub header: Header,
    /// Its payload; as many bytes as the header says, or fewer if the wire lost some.
    pub data: Vec<u8>,
}

/// Delivers one message. Returns the ack or reply to send.
///
/// A payload shorter than the header claims fails the operation (`PTL_NI_FAIL` in the END event);
/// nothing is read past it.
pub(crate) fn deliver(ni: &mut Ni, header: &Header, payload: &[u8]) -> Option<Message> {
    let whole = payload.len() as u64 >= header.payload_len();
    let fail = if whole { NiFail::OK } else { NiFail::FAIL };
    match ni.handle_header(header) {
        Incoming::Deposit(d) => {
            let keep = payload
                .len()
                .min(usize::try_from(d.length).unwrap_or(usize::MAX));
            LocalCopy::scatter(&d.segments, &payload[..keep]);
            let ack = ni.deposit_end(d.op, fail)?;
            Some(Message {
                header: ack,
                data: Vec::new(),
            })
        }
        Incoming::Reply(r) => {
            let mut data = Vec::new();
            LocalCopy::gather(&r.segments, &mut data);
            ni.reply_end(r.op, NiFail::OK);
            Some(Message {
                header: r.header,
                data,
            })
        }
        Incoming::Swap(s) => {
            let mut old = Vec::new();
            LocalCopy::gather(&s.segments, &mut old);
            if whole {
                LocalCopy::scatter(&s.segments, &payload[..s.length as usize]);
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
