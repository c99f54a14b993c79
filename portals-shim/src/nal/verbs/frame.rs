//! What two libraries say to each other over a reliable connection: one frame for each SEND.
//!
//! ```text
//!  0 kind u8   1 flags u8   2 credits u16   4 requests done u32   8 token u32   12 length u32
//! 16 body …
//! ```
//!
//! `credits` gives receive slots back to the sender's peer; `requests done` says how many of the
//! peer's requests (puts, gets, getputs) have had all their effect here, modulo 2^32. Both ride on
//! every frame.
//!
//! | kind | body | then |
//! |---|---|---|
//! | [`Kind::Message`] | header (80), data | delivered |
//! | [`Kind::Announce`] | header (80), where the data is (12) | the receiver reads it, then `Fetched` |
//! | [`Kind::Fetched`] | – (token of the announcement; flag: it failed) | the data may be reused |
//! | [`Kind::Advertise`] | portal index, adverts (52 each) | replaces what was known of that portal |
//! | [`Kind::Withdrawn`] | – (token of the advertisement) | the peer uses the new ones only |
//! | [`Kind::Credit`] | – | takes no credit itself |
//! | [`Kind::Greeting`] | – | all adverts have been sent; operations may come |

use portals_core::header::{DecodeError, WIRE_LEN};
use portals_core::{Header, ProcessId};
use verbs_backend::Remote;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the body.
pub(super) const PREFIX: usize = 16;
/// Bytes before the data of a message.
pub(super) const MESSAGE_HEAD: usize = PREFIX + WIRE_LEN;
/// Longest data that travels with its header.
pub(super) const EAGER: usize = 8192;
/// Bytes of the longest frame.
pub(super) const SLOT: usize = MESSAGE_HEAD + EAGER;

/// The kind of a frame; anything else from a peer is counted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    Announce,
    Fetched,
    Advertise,
    Withdrawn,
    Credit,
    Greeting,
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Message,
        Self::Announce,
        Self::Fetched,
        Self::Advertise,
        Self::Withdrawn,
        Self::Credit,
        Self::Greeting,
    ];
}

/// The first bytes of every frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Prefix {
    kind: u8,
    /// 1: the fetch failed.
    flags: u8,
    pub(super) credits: U16,
    pub(super) requests_done: U32,
    pub(super) token: U32,
    /// Bytes of the body.
    length: U32,
}

const _: () = assert!(size_of::<Prefix>() == PREFIX);

/// Where announced data is.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Place {
    address: U64,
    rkey: U32,
}

/// One advertised descriptor on the wire.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct WireAdvert {
    nid: U32,
    pid: U32,
    match_bits: U64,
    ignore_bits: U64,
    address: U64,
    length: U64,
    rkey: U32,
    ac_mask: U32,
    /// Bit 0: puts, 1: gets, 2: acks.
    rights: U32,
}

const ADVERT: usize = 52;
const _: () = assert!(size_of::<WireAdvert>() == ADVERT);

/// A descriptor of a peer that our NIC may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemoteMd {
    pub(super) match_id: ProcessId,
    pub(super) match_bits: u64,
    pub(super) ignore_bits: u64,
    pub(super) start: Remote,
    pub(super) length: u64,
    pub(super) ac_mask: u32,
    pub(super) put: bool,
    pub(super) get: bool,
    pub(super) ack: bool,
}

impl RemoteMd {
    pub(super) fn to_wire(self) -> WireAdvert {
        WireAdvert {
            nid: self.match_id.nid.into(),
            pid: self.match_id.pid.into(),
            match_bits: self.match_bits.into(),
            ignore_bits: self.ignore_bits.into(),
            address: self.start.address.into(),
            length: self.length.into(),
            rkey: self.start.rkey.into(),
            ac_mask: self.ac_mask.into(),
            rights: (u32::from(self.put) | u32::from(self.get) << 1 | u32::from(self.ack) << 2)
                .into(),
        }
    }

    fn from_wire(w: &WireAdvert) -> Self {
        let rights = w.rights.get();
        Self {
            match_id: ProcessId::new(w.nid.get(), w.pid.get()),
            match_bits: w.match_bits.get(),
            ignore_bits: w.ignore_bits.get(),
            start: Remote {
                address: w.address.get(),
                rkey: w.rkey.get(),
            },
            length: w.length.get(),
            ac_mask: w.ac_mask.get(),
            put: rights & 1 != 0,
            get: rights & 2 != 0,
            ack: rights & 4 != 0,
        }
    }

    /// Rules 3 to 5 of address translation, as the owner would apply them.
    pub(super) fn admits(&self, initiator: ProcessId, ac_index: u32, bits: u64) -> bool {
        ac_index < 32
            && self.ac_mask & (1 << ac_index) != 0
            && self.match_id.admits(initiator)
            && (self.match_bits ^ bits) & !self.ignore_bits == 0
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("frame of {0} bytes is too short")]
    Short(usize),
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error(transparent)]
    Header(#[from] DecodeError),
}

/// A frame as the receiver sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    Message {
        header: Header,
        data: &'a [u8],
    },
    Announce {
        header: Header,
        token: u32,
        from: Remote,
    },
    Fetched {
        token: u32,
        failed: bool,
    },
    Advertise {
        portal: u32,
        token: u32,
        adverts: Vec<RemoteMd>,
    },
    Withdrawn {
        token: u32,
    },
    Credit,
    Greeting,
}

/// Writes a frame into memory that is large enough for every frame ([`SLOT`]).
#[derive(Debug)]
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(super) fn new(bytes: &'a mut [u8], kind: Kind, token: u32, failed: bool) -> Self {
        let prefix = Prefix {
            kind: kind as u8,
            flags: u8::from(failed),
            credits: 0.into(),
            requests_done: 0.into(),
            token: token.into(),
            length: 0.into(),
        };
        let mut writer = Self { bytes, len: 0 };
        writer.push(prefix.as_bytes());
        writer
    }

    /// Appends; what does not fit is cut off, which the receiver finds out by the length.
    pub(super) fn push(&mut self, data: &[u8]) {
        let room = self.room(data.len());
        let fits = room.len();
        room.copy_from_slice(&data[..fits]);
    }

    /// Room for `len` more bytes, or for as many as fit.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        let start = self.len;
        self.len = start.saturating_add(len).min(self.bytes.len());
        &mut self.bytes[start..self.len]
    }

    pub(super) fn header(&mut self, header: &Header) {
        self.push(&header.encode());
    }

    pub(super) fn place(&mut self, at: Remote) {
        let place = Place {
            address: at.address.into(),
            rkey: at.rkey.into(),
        };
        self.push(place.as_bytes());
    }

    pub(super) fn adverts(&mut self, portal: u32, adverts: &[RemoteMd]) {
        self.push(&portal.to_le_bytes());
        for a in adverts {
            self.push(a.to_wire().as_bytes());
        }
    }

    /// Bytes written.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

/// Sets what rides on every frame, and the body's length. Called when the frame is posted.
pub(super) fn stamp(frame: &mut [u8], credits: u16, requests_done: u32) {
    let body = frame.len().saturating_sub(PREFIX) as u32;
    if let Ok((prefix, _)) = Prefix::mut_from_prefix(frame) {
        prefix.credits = credits.into();
        prefix.requests_done = requests_done.into();
        prefix.length = body.into();
    }
}

/// How many adverts fit a frame.
pub(super) const ADVERTS_PER_FRAME: usize = (SLOT - PREFIX - 4) / ADVERT;

/// Reads a frame.
pub(super) fn parse(bytes: &[u8]) -> Result<(Prefix, Body<'_>), FrameError> {
    let short = FrameError::Short(bytes.len());
    let (prefix, rest) = Prefix::read_from_prefix(bytes).map_err(|_| short)?;
    let body = rest.get(..prefix.length.get() as usize).ok_or(short)?;
    let kind = *Kind::ALL
        .get(usize::from(prefix.kind))
        .ok_or(FrameError::Kind(prefix.kind))?;
    let token = prefix.token.get();
    let parsed = match kind {
        Kind::Message => Body::Message {
            header: Header::decode(body)?,
            data: body.get(WIRE_LEN..).ok_or(short)?,
        },
        Kind::Announce => {
            let header = Header::decode(body)?;
            let place = body.get(WIRE_LEN..).ok_or(short)?;
            let (place, _) = Place::read_from_prefix(place).map_err(|_| short)?;
            let from = Remote {
                address: place.address.get(),
                rkey: place.rkey.get(),
            };
            Body::Announce {
                header,
                token,
                from,
            }
        }
        Kind::Fetched => Body::Fetched {
            token,
            failed: prefix.flags & 1 != 0,
        },
        Kind::Advertise => {
            let (portal, list) = body.split_first_chunk::<4>().ok_or(short)?;
            let adverts = list
                .chunks_exact(ADVERT)
                .filter_map(|c| WireAdvert::read_from_bytes(c).ok())
                .map(|w| RemoteMd::from_wire(&w))
                .collect();
            Body::Advertise {
                portal: u32::from_le_bytes(*portal),
                token,
                adverts,
            }
        }
        Kind::Withdrawn => Body::Withdrawn { token },
        Kind::Credit => Body::Credit,
        Kind::Greeting => Body::Greeting,
    };
    Ok((prefix, parsed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_core::Body as Operation;

    fn header() -> Header {
        Header {
            target: ProcessId::new(1, 128),
            source: ProcessId::new(0, 128),
            uid: 5,
            jid: 6,
            pt_index: 38,
            match_bits: 9,
            body: Operation::Put {
                length: 3,
                remote_offset: 0,
                hdr_data: 1,
                ac_index: 0,
                ack_md: None,
            },
        }
    }

    /// A finished frame.
    fn frame(kind: Kind, token: u32, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut bytes = vec![0; SLOT];
        let mut writer = Writer::new(&mut bytes, kind, token, false);
        body(&mut writer);
        let len = writer.len();
        bytes.truncate(len);
        stamp(&mut bytes, 7, 99);
        bytes
    }

    #[test]
    fn frames_survive_the_wire() {
        let b = frame(Kind::Message, 0, |w| {
            w.header(&header());
            w.push(b"abc");
        });
        let (prefix, body) = parse(&b).unwrap();
        assert_eq!((prefix.credits.get(), prefix.requests_done.get()), (7, 99));
        assert_eq!(
            body,
            Body::Message {
                header: header(),
                data: b"abc"
            }
        );

        let md = RemoteMd {
            match_id: ProcessId::ANY,
            match_bits: 0,
            ignore_bits: !15,
            start: Remote {
                address: 4096,
                rkey: 77,
            },
            length: 10,
            ac_mask: 255,
            put: true,
            get: false,
            ack: true,
        };
        let b = frame(Kind::Advertise, 3, |w| w.adverts(38, &[md, md]));
        let (_, body) = parse(&b).unwrap();
        assert_eq!(
            body,
            Body::Advertise {
                portal: 38,
                token: 3,
                adverts: vec![md, md]
            }
        );
        assert!(md.admits(ProcessId::new(4, 4), 0, 0xfff0));
        assert!(!md.admits(ProcessId::new(4, 4), 0, 1));
        assert!(!md.admits(ProcessId::new(4, 4), 8, 0));
    }

    #[test]
    fn every_prefix_of_a_frame_and_every_corruption_is_an_answer() {
        let b = frame(Kind::Announce, 1, |w| {
            w.header(&header());
            w.place(Remote {
                address: 1,
                rkey: 2,
            });
        });
        assert!(parse(&b).is_ok());
        for end in 0..b.len() {
            assert!(parse(&b[..end]).is_err(), "{end}");
        }
        let mut rng = fastrand::Rng::with_seed(3);
        for _ in 0..10_000 {
            let mut c = b.clone();
            c[rng.usize(..b.len())] = rng.u8(..);
            let _ = parse(&c);
        }
    }

    #[test]
    fn a_frame_never_grows_past_its_memory() {
        let mut bytes = [0; 40];
        let mut w = Writer::new(&mut bytes, Kind::Message, 0, false);
        w.header(&header());
        assert_eq!(w.len(), 40);
    }
}
