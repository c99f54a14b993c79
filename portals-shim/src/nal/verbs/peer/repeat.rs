//! Headers that are not sent again: a put whose header is that of the put before it on the connection goes without one.
//!
//! ```text
//!   put A ──► frame with header A, data          the receiver keeps A
//!   put A ──► immediate value, data              … and takes it for this one
//!   put B ──► frame with header B, data
//! ```
//!
//! Programs that exchange the same messages again and again save the header's bytes, and a put of 4 or 8 KiB a packet.
//!
//! # Invariants
//!
//! * Every frame takes its way from [`Told::way`] when it is posted, and what is kept at the receiver is the header of the
//!   last put that came with one; the connection keeps the order, so both ends keep the same.
//! * A new connection begins with nothing kept at the sender.
//! * Where there are no immediate values (iWARP) there is no room to keep a header, and every put goes with its own.
//! * A frame without its header stays whole at the sender: should the connection break, it is sent again whole.

use crate::nal::verbs::frame::{self, HEADER, PREFIX};
use verbs_backend::SendOp;

/// The header of the last put of one direction.
#[derive(Debug)]
pub(in crate::nal::verbs) struct Told {
    /// As long as a header can be, or empty.
    bytes: Vec<u8>,
    /// 0: none.
    len: usize,
}

impl Told {
    /// Keeps nothing ever.
    pub(super) const NEVER: Self = Self {
        bytes: Vec::new(),
        len: 0,
    };

    /// Has kept nothing yet.
    pub(super) fn nothing() -> Self {
        Self {
            bytes: vec![0; HEADER],
            len: 0,
        }
    }

    /// The header, empty if there was none.
    #[inline]
    pub(in crate::nal::verbs) fn header(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Keeps a header; what is longer than a header is none.
    #[inline]
    pub(in crate::nal::verbs) fn keep(&mut self, header: &[u8]) {
        self.len = 0;
        if let Some(place) = self.bytes.get_mut(..header.len()) {
            place.copy_from_slice(header);
            self.len = header.len();
        }
    }

    /// The next put goes with its header.
    pub(super) fn forget(&mut self) {
        self.len = 0;
    }

    /// How a frame goes that is posted next, and from which of its bytes on.
    #[inline]
    pub(super) fn way(&mut self, frame: &[u8]) -> (SendOp, usize) {
        let Some((head, header)) =
            frame::put_head(frame).and_then(|head| Some((head, frame.get(PREFIX..head)?)))
        else {
            return (SendOp::Send, 0);
        };
        if self.header() == header {
            return (SendOp::SendImmediate(frame::stamp_value(frame)), head);
        }
        self.keep(header);
        (SendOp::Send, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nal::verbs::frame::{Kind, Writer};
    use portals_core::{Body, Header, MdHandle, ProcessId};

    /// A put as a frame, or one of the same bytes and another kind.
    fn frame(kind: Kind, match_bits: u64, pt_index: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        let mut writer = Writer::new(&mut bytes, kind, false);
        let header = Header {
            target: ProcessId::new(0, 1),
            source: ProcessId::new(0, 2),
            uid: 0,
            jid: 0,
            pt_index,
            match_bits,
            body: Body::Put {
                length: data.len() as u64,
                remote_offset: 7,
                hdr_data: 9,
                ac_index: 0,
                ack_md: Some(MdHandle::from_raw(5)),
            },
        };
        writer.header(&header, data.len() as u64);
        writer.push(data);
        let len = writer.len();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn the_second_put_of_a_kind_goes_without_its_header() {
        let mut told = Told::nothing();
        let mut goes = |frame: &[u8]| {
            let (op, from) = told.way(frame);
            match op {
                SendOp::SendImmediate(_) => Some(frame[from..].to_vec()),
                _ => {
                    assert_eq!(from, 0);
                    None
                }
            }
        };
        let put = |bits, data: &[u8]| frame(Kind::Message, bits, 4, data);
        assert_eq!(goes(&put(5, b"one")), None);
        assert_eq!(goes(&put(5, b"two, longer")), Some(b"two, longer".to_vec()));
        // What is no put changes nothing.
        assert_eq!(goes(&frame(Kind::Announce, 6, 4, b"")), None);
        assert_eq!(goes(&frame(Kind::Credit, 0, 4, b"")[..PREFIX]), None);
        assert_eq!(goes(&put(5, b"")), Some(Vec::new()));
        assert_eq!(goes(&put(6, b"one")), None);
        assert_eq!(goes(&put(5, b"one")), None);
        assert_eq!(goes(&put(5, b"one")), Some(b"one".to_vec()));
        let wide = frame(Kind::Message, 5, 300, b"one");
        assert_eq!(goes(&wide), None);
        assert_eq!(goes(&wide), Some(b"one".to_vec()));
        told.forget();
        assert_eq!(told.way(&wide), (SendOp::Send, 0));
    }
}
