//! Header caching, part of `eager send` and `eager ring`: a put whose header is that of the put before it on the connection goes
//! without one.
//!
//! ```text
//!   put A ──► frame with header A, data          the receiver keeps A
//!   put A ──► immediate value, data              … and takes it for this one
//!   put B ──► frame with header B, data
//! ```
//!
//! Programs that exchange the same messages again and again save the header's bytes, and a put of 4 or 8 KiB a packet.
//!
//! # Recovery
//!
//! A frame without its header stays whole at the sender: should the connection break, it is sent again whole. A new connection
//! begins with nothing kept at the sender.
//!
//! # Invariants
//!
//! * Every frame is posted by [`SentHeader::send_op`] when it is posted, and what is kept at the receiver is the header of the
//!   last put that came with one; the connection keeps the order, so both ends keep the same.
//! * Where there are no immediate values (iWARP) there is no room to keep a header, and every put goes with its own.
//! * [`SentHeader::put`] is the put whose bytes are kept, with the length of its data: what is equal to it makes the same bytes,
//!   which then need not be made. It is remembered of a put that came twice in a row, and forgotten with the bytes.

use crate::frame::{self, Ends, FrameError, HEADER, PREFIX};
use portals_core::{Body, Header, MdHandle};
use verbs_backend::SendOp;

/// The header of the last put that came with one, as it was read: a put without one needs no reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedHeader {
    put: Option<Header>,
    /// It tells the length of its put, which otherwise is that of the data.
    sized: bool,
}

impl ReceivedHeader {
    pub(crate) const NOTHING: Self = Self {
        put: None,
        sized: false,
    };

    /// Keeps the header of a put that came in `frame`; nothing is kept of what is no put.
    #[inline]
    pub(crate) fn keep(&mut self, frame: &[u8], header: &Header) {
        if let Body::Put { .. } = header.body {
            self.put = Some(*header);
            self.sized = frame::tells_length(frame);
        }
    }

    /// The header of a put of `data` bytes that came without one over the connection between `ends`.
    #[inline(always)]
    pub(crate) fn again(&self, data: usize, ends: &Ends) -> Result<Header, FrameError> {
        let mut header = self.put.ok_or(FrameError::Headless)?;
        (header.uid, header.jid) = ends.who;
        if let Body::Put { length, .. } = &mut header.body
            && !self.sized
        {
            *length = data as u64;
        }
        Ok(header)
    }

    /// No put has come.
    #[cfg(test)]
    pub(crate) fn forget(&mut self) {
        *self = Self::NOTHING;
    }
}

/// The descriptor and header of the last notice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedNotice {
    header: ReceivedHeader,
    md: MdHandle,
}

impl ReceivedNotice {
    pub(crate) const NOTHING: Self = Self {
        header: ReceivedHeader::NOTHING,
        md: MdHandle::from_raw(0),
    };

    /// Keeps those of a notice, which is `frame`.
    pub(crate) fn keep(&mut self, frame: &[u8], header: &Header, md: MdHandle) {
        if let Body::Put { .. } = header.body {
            let header = ReceivedHeader {
                put: Some(*header),
                sized: frame::notice_tells_length(frame),
            };
            *self = Self { header, md };
        }
    }

    /// The header and descriptor of a put of `data` bytes that came by RDMA WRITE with an immediate value, without a notice.
    #[inline(always)]
    pub(crate) fn again(&self, data: usize, ends: &Ends) -> Result<(Header, MdHandle), FrameError> {
        Ok((self.header.again(data, ends)?, self.md))
    }
}

/// The header of the last put of one direction.
#[derive(Debug)]
pub(crate) struct SentHeader {
    /// Room for the longest header, or nothing.
    bytes: Vec<u8>,
    /// 0: none.
    len: usize,
    /// The last put that was posted had the header of the one before.
    repeated: bool,
    /// What the bytes were made of.
    put: Option<Header>,
}

impl SentHeader {
    /// Keeps nothing ever.
    pub(crate) const NEVER: Self = Self {
        bytes: Vec::new(),
        len: 0,
        repeated: false,
        put: None,
    };

    /// Has kept nothing yet.
    pub(crate) fn empty() -> Self {
        Self {
            bytes: vec![0; HEADER],
            ..Self::NEVER
        }
    }

    /// The header, empty if there was none.
    #[inline]
    pub(crate) fn header(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }

    /// Keeps a header; what is longer than a header is none.
    #[inline(never)]
    pub(crate) fn keep(&mut self, header: &[u8]) {
        self.forget();
        if let Some(place) = self.bytes.get_mut(..header.len()) {
            place.copy_from_slice(header);
            self.len = header.len();
        }
    }

    /// The next put goes with its header.
    pub(crate) fn forget(&mut self) {
        self.len = 0;
        self.repeated = false;
        self.put = None;
    }

    /// Remembers the put that was posted last, if it was a repeated one.
    #[inline(always)]
    pub(crate) fn remember(&mut self, put: &Header) {
        if self.repeated && self.put.is_none() {
            self.put = Some(*put);
        }
    }

    /// Remembers the put that the kept bytes are of.
    pub(crate) fn remember_kept(&mut self, put: &Header) {
        self.put = Some(*put);
    }

    /// The bytes of the header of `put`, if they are those that are kept.
    #[inline(always)]
    pub(crate) fn bytes_of(&self, put: &Header) -> Option<&[u8]> {
        match &self.put {
            Some(kept) if is_same_put(kept, put) => self.bytes.get(..self.len),
            _ => None,
        }
    }

    /// How a frame goes that is posted next, and from which of its bytes on.
    #[inline(always)]
    pub(crate) fn send_op(&mut self, frame: &[u8]) -> (SendOp, usize) {
        let Some((head, header)) =
            frame::put_head(frame).and_then(|head| Some((head, frame.get(PREFIX..head)?)))
        else {
            return (SendOp::Send, 0);
        };
        if is_same(self.header(), header) {
            self.repeated = true;
            return (SendOp::SendImmediate(frame::stamp_value(frame)), head);
        }
        self.keep(header);
        (SendOp::Send, 0)
    }
}

/// Whether two headers are of puts to one peer, and the same. Their ends are those of the connection.
#[inline(always)]
fn is_same_put(one: &Header, other: &Header) -> bool {
    match (one.body, other.body) {
        (
            Body::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ack_md,
            },
            Body::Put {
                length: other_length,
                remote_offset: other_offset,
                hdr_data: other_data,
                ac_index: other_ac,
                ack_md: other_md,
            },
        ) => {
            one.match_bits == other.match_bits
                && one.pt_index == other.pt_index
                && length == other_length
                && remote_offset == other_offset
                && hdr_data == other_data
                && ac_index == other_ac
                && ack_md == other_md
        }
        _ => false,
    }
}

/// Whether two headers are the same. They have up to 60 bytes, in whole words of 4: fewer than a call is worth.
#[inline(always)]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    let ((words, rest), (other_words, other_rest)) = (one.as_chunks::<4>(), other.as_chunks());
    let mut pairs = words.iter().zip(other_words);
    one.len() == other.len()
        && pairs.all(|(a, b)| u32::from_ne_bytes(*a) == u32::from_ne_bytes(*b))
        && (rest.is_empty() || rest == other_rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Kind, Writer};
    use portals_core::{Ack, Body, Header, MdHandle, ProcessId};

    fn put(match_bits: u64, pt_index: u32, length: u64) -> Header {
        Header {
            target: ProcessId::new(0, 1),
            source: ProcessId::new(0, 2),
            uid: 0,
            jid: 0,
            pt_index,
            match_bits,
            body: Body::Put {
                length,
                remote_offset: 7,
                hdr_data: 9,
                ac_index: 0,
                ack_md: Some(MdHandle::from_raw(5)),
            },
        }
    }

    /// A put that is as long as its data, before `data`; or a frame of the same bytes and another kind.
    fn frame_of(put: &Header, kind: Kind, data: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 128];
        let mut writer = Writer::new(&mut bytes, kind, false);
        writer.header(put, put.payload_len());
        writer.push(data);
        let len = writer.len();
        bytes.truncate(len);
        bytes
    }

    fn frame(kind: Kind, match_bits: u64, pt_index: u32, data: &[u8]) -> Vec<u8> {
        frame_of(&put(match_bits, pt_index, data.len() as u64), kind, data)
    }

    #[test]
    fn the_second_put_of_a_kind_goes_without_its_header() {
        let mut sent = SentHeader::empty();
        let mut goes = |frame: &[u8]| {
            let (op, from) = sent.send_op(frame);
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
        assert_eq!(goes(&frame(Kind::ReadyToSend, 6, 4, b"")), None);
        assert_eq!(goes(&frame(Kind::Credit, 0, 4, b"")[..PREFIX]), None);
        assert_eq!(goes(&put(5, b"")), Some(Vec::new()));
        assert_eq!(goes(&put(6, b"one")), None);
        assert_eq!(goes(&put(5, b"one")), None);
        assert_eq!(goes(&put(5, b"one")), Some(b"one".to_vec()));
        let wide = frame(Kind::Message, 5, 300, b"one");
        assert_eq!(goes(&wide), None);
        assert_eq!(goes(&wide), Some(b"one".to_vec()));
        sent.forget();
        assert_eq!(sent.send_op(&wide), (SendOp::Send, 0));
    }

    /// Whatever header came last, a put without one is read as if it had come with that, and what is no put changes
    /// nothing.
    #[test]
    fn a_put_without_a_header_is_read_as_one_with_the_header_before() {
        let mut ends = Ends {
            target: ProcessId::new(0, 1),
            source: ProcessId::new(0, 2),
            who: (3, 4),
        };
        let mut received = ReceivedHeader::NOTHING;
        assert_eq!(received.again(8, &ends), Err(FrameError::Headless));
        let mut rng = fastrand::Rng::with_seed(11);
        for _ in 0..20_000 {
            let mut some = |most: u64| rng.u64(0..=most) * u64::from(rng.bool());
            let (bits, offset, extra) = (some(u64::MAX), some(u64::MAX), some(u64::MAX));
            let (portal, index) = (some(300) as u32, some(300) as u32);
            let md = some(u64::from(u32::MAX)) as u32;
            let (data, more) = (some(64), some(1));
            let mut header = Header {
                target: ends.target,
                source: ends.source,
                uid: ends.who.0,
                jid: ends.who.1,
                pt_index: portal,
                match_bits: bits,
                body: Body::Put {
                    length: data + more,
                    remote_offset: offset,
                    hdr_data: extra,
                    ac_index: index,
                    ack_md: (md > 0).then(|| MdHandle::from_raw(md)),
                },
            };
            let written = |header: &Header, data: u64| {
                let mut bytes = vec![0; 256];
                let mut writer = Writer::new(&mut bytes, Kind::Message, false);
                writer.header(header, data);
                writer.push(&vec![7; data as usize]);
                let len = writer.len();
                bytes.truncate(len);
                bytes
            };
            let read = |bytes: &[u8], ends: &Ends| match frame::parse(bytes, ends) {
                Ok((_, frame::Body::Message { header, .. })) => header,
                other => panic!("{other:?}"),
            };
            let bytes = written(&header, data);
            received.keep(&bytes, &read(&bytes, &ends));
            let ack = Header {
                body: Body::Ack(Ack {
                    md: MdHandle::from_raw(1),
                    offset: 1,
                    rlength: 1,
                    mlength: 1,
                }),
                ..header
            };
            let ack = written(&ack, 0);
            received.keep(&ack, &read(&ack, &ends));
            let next = some(64);
            // What the whole frame would have been: its header tells a length or not, as that before.
            let mut whole = bytes[..bytes.len() - data as usize].to_vec();
            whole.extend(vec![9; next as usize]);
            ends.who = (some(9) as u32, some(9) as u32);
            assert_eq!(
                received.again(next as usize, &ends),
                Ok(read(&whole, &ends))
            );
            header.uid = ends.who.0;
            header.jid = ends.who.1;
            if more == 0 {
                let Body::Put { length, .. } = &mut header.body else {
                    unreachable!()
                };
                *length = next;
            }
            assert_eq!(received.again(next as usize, &ends), Ok(header));
        }
    }

    /// A notified put without a frame is read as if it had come with the frame before, whose length was that of its data or
    /// said by itself.
    #[test]
    fn a_notified_put_without_a_frame_is_read_as_one_with_the_frame_before() {
        let ends = Ends {
            target: ProcessId::new(0, 1),
            source: ProcessId::new(0, 2),
            who: (3, 4),
        };
        let mut received = ReceivedNotice::NOTHING;
        assert!(matches!(
            received.again(8, &ends),
            Err(FrameError::Headless)
        ));
        for (md, length, next) in [(7, 4096, 4096), (7, 4096, 2048), (9, 5000, 8192)] {
            let md = MdHandle::from_raw(md);
            let mut bytes = vec![0; 128];
            let mut writer = Writer::new(&mut bytes, Kind::Notice, false);
            writer.notice(4096, md);
            writer.header(&put(6, 4, length), 4096);
            let len = writer.len();
            bytes.truncate(len);
            let Ok((_, frame::Body::Notice { header, md: read })) = frame::parse(&bytes, &ends)
            else {
                panic!("no notice");
            };
            assert_eq!(read, md);
            received.keep(&bytes, &header, md);
            let head = frame::notice_head(&bytes).unwrap();
            let whole = frame::notice(head, next, &ends).unwrap();
            assert_eq!(received.again(next as usize, &ends), Ok(whole));
            // The frame that would tell of it, from the bytes that are kept of the one before.
            let mut again = [0xff; 128];
            let len = frame::notice_again(&mut again, 4096, head);
            assert_eq!(again[..len], bytes);
        }
    }

    /// Whether a put goes without its header.
    fn goes_without(sent: &mut SentHeader, put: &Header) -> bool {
        let (op, _) = sent.send_op(&frame_of(put, Kind::Message, &[0; 8]));
        sent.remember(put);
        matches!(op, SendOp::SendImmediate(_))
    }

    #[test]
    fn what_is_remembered_is_what_would_be_made() {
        let mut sent = SentHeader::empty();
        let one = put(7, 4, 8);
        assert!(!goes_without(&mut sent, &one));
        assert_eq!(sent.bytes_of(&one), None, "sent once");
        assert!(goes_without(&mut sent, &one));
        let whole = frame_of(&one, Kind::Message, &[]);
        assert_eq!(sent.bytes_of(&one), Some(&whole[PREFIX..]));
        let mut begin = vec![0xff; whole.len()];
        frame::again(&mut begin, sent.header());
        assert_eq!(begin, whole);
    }

    #[test]
    fn another_put_is_none_that_is_remembered() {
        let mut sent = SentHeader::empty();
        let one = put(7, 4, 8);
        let other_bits = put(8, 4, 8);
        let (mut elsewhere, mut with_more, mut without_ack) = (one, one, one);
        let of_put =
            |header: &mut Header, change: &dyn Fn(&mut u64, &mut u64, &mut Option<MdHandle>)| {
                if let Body::Put {
                    remote_offset,
                    hdr_data,
                    ack_md,
                    ..
                } = &mut header.body
                {
                    change(remote_offset, hdr_data, ack_md);
                }
            };
        of_put(&mut elsewhere, &|offset, _, _| *offset += 1);
        of_put(&mut with_more, &|_, more, _| *more += 1);
        of_put(&mut without_ack, &|_, _, md| *md = None);
        for _ in 0..2 {
            goes_without(&mut sent, &one);
        }
        for other in [
            other_bits,
            put(7, 5, 8),
            put(7, 4, 9),
            elsewhere,
            with_more,
            without_ack,
        ] {
            assert_eq!(sent.bytes_of(&other), None, "{other:?}");
        }
        assert!(sent.bytes_of(&one).is_some());
        assert!(!goes_without(&mut sent, &other_bits));
        assert_eq!(
            (sent.bytes_of(&one), sent.bytes_of(&other_bits)),
            (None, None)
        );
    }

    #[test]
    fn nothing_is_remembered_of_a_connection_that_ended() {
        let mut sent = SentHeader::empty();
        let one = put(7, 4, 8);
        for _ in 0..2 {
            goes_without(&mut sent, &one);
        }
        sent.forget();
        assert_eq!(sent.bytes_of(&one), None);
        assert!(!goes_without(&mut sent, &one));
        assert_eq!(sent.bytes_of(&one), None);
    }
}
