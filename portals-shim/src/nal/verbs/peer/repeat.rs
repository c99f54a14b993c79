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
//! * What is kept at the receiver is the header of the last put that came in a frame of its own; the connection keeps the
//!   order, so it is that of the last one that was posted so.
//! * A frame without its header stays whole at the sender: should the connection break, it is sent again whole.

use crate::nal::verbs::frame::PUT_ROOM;

/// The header of the last put of one direction.
#[derive(Debug)]
pub(in crate::nal::verbs) struct Told {
    bytes: [u8; PUT_ROOM],
    /// 0: none.
    len: usize,
}

impl Told {
    pub(super) const NOTHING: Self = Self {
        bytes: [0; PUT_ROOM],
        len: 0,
    };

    /// The header, empty if there was none.
    #[inline]
    pub(in crate::nal::verbs) fn header(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Keeps a header; one that is longer than a put's is none.
    #[inline]
    pub(in crate::nal::verbs) fn keep(&mut self, header: &[u8]) {
        self.len = 0;
        if let Some(place) = self.bytes.get_mut(..header.len()) {
            place.copy_from_slice(header);
            self.len = header.len();
        }
    }

    /// The next put goes with its header.
    #[inline]
    pub(super) fn forget(&mut self) {
        self.len = 0;
    }

    /// Whether a put's header is the one before; keeps it if not.
    #[inline]
    pub(super) fn repeats(&mut self, header: &[u8]) -> bool {
        let same = !header.is_empty() && self.header() == header;
        if !same {
            self.keep(header);
        }
        same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_header_before_is_a_repetition() {
        let mut told = Told::NOTHING;
        assert!(!told.repeats(&[]));
        assert!(!told.repeats(&[1, 2, 3, 4]));
        assert!(told.repeats(&[1, 2, 3, 4]));
        assert!(!told.repeats(&[1, 2, 3, 4, 5, 6, 7, 8]));
        assert!(!told.repeats(&[1, 2, 3, 4]));
        told.forget();
        assert!(!told.repeats(&[1, 2, 3, 4]));
        assert!(!told.repeats(&[9; PUT_ROOM + 1]));
        assert!(!told.repeats(&[9; PUT_ROOM + 1]));
    }
}
