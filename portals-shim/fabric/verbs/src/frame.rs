//! What two libraries say to each other over a reliable connection: one frame for each SEND.
//!
//! ```text
//!  0 kind u8   1 flags u8   2 credits u16   4 requests done u32   8 body …
//! ```
//!
//! `credits` gives receive slots back to the sender's peer; `requests done` says how many of the
//! peer's requests (puts, gets, getputs) have had all their effect here, modulo 2^32. Both ride on
//! every frame.
//!
//! | kind | body | then |
//! |---|---|---|
//! | [`Kind::Message`] | header, data | delivered |
//! | [`Kind::ReadyToSend`] | token (4), where the data is (12), header | RTS: the receiver reads it, then [`Kind::AckToSend`] |
//! | [`Kind::AckToSend`] | token of the RTS (4); flag: the READ failed | ATS: the data may be reused |
//! | [`Kind::Advertise`] | token (4), portal index (4), adverts (56 each) | replaces what was known of that portal |
//! | [`Kind::Withdrawn`] | token of the advertisement (4) | the peer uses the new ones only |
//! | [`Kind::Credit`] | – | takes no credit itself |
//! | [`Kind::Greeting`] | – | all adverts have been sent; operations may come |
//! | [`Kind::Move`] | word (1) | by datagrams only: the pair moves to a connection, or not (`auto/moves.rs`) |
//! | [`Kind::Ring`] | slots (4), bytes of each (4), where they are (12) | short frames are written there (`proto/eager_ring.rs`); no slots: no more |
//! | [`Kind::RingLeft`] | – | the last one was written before |
//! | [`Kind::ReadRequest`] | number (4), where the data is (12), length (4) | the receiver answers with the data (`proto/get_by_am.rs`) |
//! | [`Kind::ReadResponse`] | number of the request (4), data; flag: it has none | – |
//! | [`Kind::Notice`] | length (4), descriptor (4), header | the data of a put has been written there: its events |
//!
//! # Headers
//!
//! A connection has two [`Ends`], so a header on it tells neither its source and target nor the sender's user and
//! job. Of the rest it tells what is there: bytes of a small message cost as much as its handling.
//!
//! ```text
//!  0 operation u8   1 present u8   2 portal u8   3 access control u8   then, as far as present:
//!  bit 0: portal u32, access control u32 (for values above 255; bytes 2 and 3 are then 0)
//!  bit 1: match bits u64
//!  bit 2: length u64 (else the data that follows is all)
//!  bit 3: offset u64
//!  bit 4: extra u64: hdr_data of a put or getput, reply offset of a get
//!  bit 5: md u32: for the ack, of the reply
//!  bit 6: moved u64: moved length of an ack or reply, reply offset of a getput
//! ```
//!
//! What is not present is 0; an md that is not present is none.
//!
//! # Without a header
//!
//! A SEND with an immediate value is a put with the header of the last put that came with one; all of it is data. The
//! value has `credits` in its upper half and the lower half of `requests done`.
//!
//! An RDMA WRITE with such a value is a [`Kind::Notice`] put of the data that it wrote, with the descriptor and header of
//! the last one that came as a frame.

mod fields;

use fields::{EXTRA, HeaderFields, LENGTH, MATCH_BITS, MD, MOVED, OFFSET, WIDE};
use portals_core::{Body as Operation, FieldsError, Header, MdHandle, ProcessId};
use verbs_backend::Remote;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes before the body.
pub(super) const PREFIX: usize = 8;
/// Most bytes of a header.
pub(super) const HEADER: usize = 4 + 8 + 4 * 8 + 4 + 8;
/// Room that a put's header is written with: four words and what is around them.
const PUT_ROOM: usize = 4 + 4 * 8 + 8;
/// Most bytes before the data of a message.
pub(super) const MESSAGE_HEAD: usize = PREFIX + HEADER;
/// Most bytes of an RTS.
pub(super) const READY_TO_SEND: usize = MESSAGE_HEAD + 16;
/// Bytes of a frame of a word.
pub(super) const WORD: usize = PREFIX + 1;
/// Most bytes of a notice.
pub(super) const NOTICE: usize = PREFIX + 8 + PUT_ROOM;
/// Bytes of a frame that tells of a ring.
pub(super) const RING: usize = PREFIX + 8 + size_of::<Place>();
/// Bytes of a frame that has a token and nothing else.
pub(super) const TOKEN: usize = PREFIX + 4;
/// Bytes of a frame that asks for memory.
pub(super) const READ_REQUEST: usize = TOKEN + size_of::<Place>() + 4;
/// Longest data that travels with its header.
pub(super) const EAGER: usize = 8192;

/// Bytes of the longest frame.
pub(super) const SLOT: usize = MESSAGE_HEAD + EAGER;

/// The kind of a frame; anything else from a peer is counted and dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Message,
    ReadyToSend,
    AckToSend,
    Advertise,
    Withdrawn,
    Credit,
    Greeting,
    Move,
    Notice,
    Ring,
    RingLeft,
    ReadRequest,
    ReadResponse,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::Message,
        Self::ReadyToSend,
        Self::AckToSend,
        Self::Advertise,
        Self::Withdrawn,
        Self::Credit,
        Self::Greeting,
        Self::Move,
        Self::Notice,
        Self::Ring,
        Self::RingLeft,
        Self::ReadRequest,
        Self::ReadResponse,
    ];
}

/// The first bytes of every frame.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Prefix {
    kind: u8,
    /// 1: the READ failed, or there is nothing to be read.
    flags: u8,
    pub(super) credits: U16,
    pub(super) requests_done: U32,
}

const _: () = assert!(size_of::<Prefix>() == PREFIX);

/// Where memory of the sender is.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Place {
    address: U64,
    rkey: U32,
}

impl Place {
    fn remote(&self) -> Remote {
        Remote {
            address: self.address.get(),
            rkey: self.rkey.get(),
        }
    }
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
    /// Bit 0: puts, 1: gets, 2: acks, 3: events.
    rights: U32,
    md: U32,
}

const ADVERT: usize = 56;
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
    /// Its owner is to be notified of puts, by this handle.
    pub(super) events: Option<MdHandle>,
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
            rights: (u32::from(self.put)
                | u32::from(self.get) << 1
                | u32::from(self.ack) << 2
                | u32::from(self.events.is_some()) << 3)
                .into(),
            md: self.events.map_or(0, MdHandle::raw).into(),
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
            events: (rights & 8 != 0).then(|| MdHandle::from_raw(w.md.get())),
        }
    }

    /// Rules 3 to 5 of address translation, as the owner would apply them.
    #[inline]
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
    #[error("portal {0} of an advertisement does not exist")]
    Portal(u32),
    #[error("an advertised descriptor of {length} bytes at {address:#x} wraps around")]
    Wraps { address: u64, length: u64 },
    #[error(transparent)]
    Body(#[from] FieldsError),
    #[error("no put came before this one, which has no header")]
    Headless,
    #[error("a put is said to be written where it may not be")]
    Notice,
    #[error("a ring of {slots} slots of {size} bytes is not one for this connection")]
    Ring { slots: u32, size: u32 },
    #[error("a ring is left that was not there, or not clean")]
    RingLeft,
    #[error("an answer to what was not asked")]
    NotAsked,
}

/// Who talks over a connection, seen by the receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ends {
    pub(super) target: ProcessId,
    pub(super) source: ProcessId,
    /// User and job of the source.
    pub(super) who: (u32, u32),
}

/// The next bytes.
#[inline]
fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk::<N>()?;
    *from = rest;
    Some(*first)
}

/// A frame as the receiver sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body<'a> {
    Message {
        header: Header,
        data: &'a [u8],
    },
    ReadyToSend {
        header: Header,
        token: u32,
        from: Remote,
    },
    AckToSend {
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
    Move(u8),
    Notice {
        header: Header,
        md: MdHandle,
    },
    Ring {
        slots: u32,
        size: u32,
        at: Remote,
    },
    RingLeft,
    ReadRequest {
        number: u32,
        at: Remote,
        length: u32,
    },
    /// Without data: there is nothing that may be read.
    ReadResponse {
        number: u32,
        data: Option<&'a [u8]>,
    },
}

/// Writes a frame into memory that is large enough for every frame ([`SLOT`]).
#[derive(Debug)]
pub(super) struct Writer<'a> {
    bytes: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    #[inline(always)]
    pub(super) fn new(bytes: &'a mut [u8], kind: Kind, failed: bool) -> Self {
        let mut writer = Self { bytes, len: 0 };
        writer.push_array([kind as u8, u8::from(failed), 0, 0, 0, 0, 0, 0]);
        writer
    }

    /// [`Writer::push`] of a few bytes.
    #[inline(always)]
    fn push_array<const N: usize>(&mut self, data: [u8; N]) {
        match self
            .bytes
            .get_mut(self.len..)
            .and_then(|b| b.first_chunk_mut())
        {
            Some(place) => {
                *place = data;
                self.len += N;
            }
            None => self.push(&data),
        }
    }

    /// Appends; what does not fit is cut off, which the receiver finds out by the length.
    #[inline(never)]
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

    /// A header that `data` bytes follow.
    #[inline]
    pub(super) fn header(&mut self, header: &Header, data: u64) {
        match self.put_header(header, data) {
            Some(len) => self.len += len,
            None => HeaderFields::new(header, data).write(self),
        }
    }

    /// [`HeaderFields::write`] of a put, which comes most often, straight from the header; the bytes it has. `None`, and
    /// nothing is written, of other operations and of wide portals, and where there is little room.
    #[inline]
    fn put_header(&mut self, header: &Header, data: u64) -> Option<usize> {
        let Operation::Put {
            length,
            remote_offset,
            hdr_data,
            ac_index,
            ack_md,
        } = header.body
        else {
            return None;
        };
        let (Ok(pt), Ok(ac)) = (u8::try_from(header.pt_index), u8::try_from(ac_index)) else {
            return None;
        };
        let room: &mut [u8; PUT_ROOM] = self.bytes.get_mut(self.len..)?.first_chunk_mut()?;
        let (mut at, mut present) = (4, 0);
        let mut word = |bit: u8, value: u64, there: bool| {
            // Written in any case, and written over where it is not there.
            if let Some(place) = room.get_mut(at..at + 8) {
                place.copy_from_slice(&value.to_le_bytes());
            }
            at += 8 * usize::from(there);
            present |= bit * u8::from(there);
        };
        word(MATCH_BITS, header.match_bits, header.match_bits != 0);
        word(LENGTH, length, length != data);
        word(OFFSET, remote_offset, remote_offset != 0);
        word(EXTRA, hdr_data, hdr_data != 0);
        if let Some(md) = ack_md
            && let Some(place) = room.get_mut(at..at + 4)
        {
            place.copy_from_slice(&md.raw().to_le_bytes());
            at += 4;
            present |= MD;
        }
        let [first @ .., _, _, _, _] = room.first_chunk_mut::<8>()?;
        *first = [0, present, pt, ac];
        Some(at)
    }

    pub(super) fn token(&mut self, token: u32) {
        self.push_array(token.to_le_bytes());
    }

    /// What is before the header of a notified put.
    pub(super) fn notice(&mut self, length: u32, md: MdHandle) {
        self.push_array(length.to_le_bytes());
        self.push_array(md.raw().to_le_bytes());
    }

    pub(super) fn place(&mut self, at: Remote) {
        let place = Place {
            address: at.address.into(),
            rkey: at.rkey.into(),
        };
        self.push(place.as_bytes());
    }

    /// A question for `len` bytes.
    pub(super) fn read_request(&mut self, number: u32, at: Remote, len: u32) {
        self.token(number);
        self.place(at);
        self.token(len);
    }

    /// A ring of so many slots of `size` bytes.
    pub(super) fn ring(&mut self, slots: u32, size: usize, at: Remote) {
        self.token(slots);
        self.token(size as u32);
        self.place(at);
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

/// Sets what rides on every frame. Called when the frame is posted.
#[inline]
pub(super) fn stamp(frame: &mut [u8], credits: u16, requests_done: u32) {
    if let Ok((prefix, _)) = Prefix::mut_from_prefix(frame) {
        prefix.credits = credits.into();
        prefix.requests_done = requests_done.into();
    }
}

/// What [`stamp`] has set, as an immediate value.
#[inline]
pub(super) fn stamp_value(frame: &[u8]) -> u32 {
    Prefix::ref_from_prefix(frame)
        .map_or(0, |(p, _)| value_of(p.credits.get(), p.requests_done.get()))
}

/// The value ([`stamp_value`]) of these credits and this count of requests.
#[inline]
pub(super) fn value_of(credits: u16, requests_done: u32) -> u32 {
    u32::from(credits) << 16 | requests_done & 0xffff
}

/// What rides on a put without a header, whose sender had said before that `done` requests are done. Each request takes one of
/// at most 65,535 slots, which a frame gives back, so that no more are done between two frames.
#[inline]
pub(super) fn prefix_of(value: u32, done: u32) -> Prefix {
    let more = (value as u16).wrapping_sub(done as u16);
    Prefix {
        kind: Kind::Message as u8,
        flags: 0,
        credits: ((value >> 16) as u16).into(),
        requests_done: done.wrapping_add(more.into()).into(),
    }
}

/// Portals that can be advertised: the table of changes is a word of bits (`Ni::take_dirty_portals`).
const PORTALS: u32 = 64;

/// How many adverts fit a frame.
pub(super) const ADVERTS_PER_FRAME: usize = (SLOT - PREFIX - 8) / ADVERT;

/// What is before a frame's body, and the body.
#[inline(always)]
pub(super) fn split(bytes: &[u8]) -> Result<(Prefix, Kind, &[u8]), FrameError> {
    let short = FrameError::Short(bytes.len());
    let (prefix, body) = Prefix::read_from_prefix(bytes).map_err(|_| short)?;
    let kind = *Kind::ALL
        .get(usize::from(prefix.kind))
        .ok_or(FrameError::Kind(prefix.kind))?;
    Ok((prefix, kind, body))
}

/// Reads the body of a [`Kind::Message`]. What comes most often is made where it is used.
#[inline(always)]
pub(super) fn message<'a>(body: &'a [u8], ends: &Ends) -> Result<(Header, &'a [u8]), FrameError> {
    let (fields, data) = HeaderFields::read(body)?;
    Ok((fields.header(ends, data.len() as u64)?, data))
}

/// Begins a put's frame with the bytes of its header, which were made before: `begin` has room for both.
#[inline(always)]
pub(super) fn again(begin: &mut [u8], header: &[u8]) {
    let Some((prefix, room)) = begin.split_first_chunk_mut::<PREFIX>() else {
        return;
    };
    *prefix = [Kind::Message as u8, 0, 0, 0, 0, 0, 0, 0];
    let (room, words) = (room.as_chunks_mut::<4>().0, header.as_chunks::<4>().0);
    for (place, word) in room.iter_mut().zip(words) {
        *place = *word;
    }
}

/// Whether the header of a message tells the length of its data.
#[inline]
pub(super) fn tells_length(frame: &[u8]) -> bool {
    head_tells_length(frame.get(PREFIX..).unwrap_or_default())
}

/// The same of a notice.
pub(super) fn notice_tells_length(frame: &[u8]) -> bool {
    let head = notice_head(frame).and_then(|head| head.get(4..));
    head_tells_length(head.unwrap_or_default())
}

#[inline]
fn head_tells_length(header: &[u8]) -> bool {
    header.get(1).is_some_and(|present| present & LENGTH != 0)
}

/// Where the header of a put ends, in a frame that has one.
#[inline]
pub(super) fn put_head(frame: &[u8]) -> Option<usize> {
    let (kind, [operation, present, ..]) =
        (frame.first()?, frame.get(PREFIX..)?.first_chunk::<4>()?);
    let words = (present & (WIDE | MATCH_BITS | LENGTH | OFFSET | EXTRA | MOVED)).count_ones();
    let md = usize::from(present & MD != 0);
    let is_put = *kind == Kind::Message as u8 && *operation == 0;
    is_put.then_some(PREFIX + 4 + 8 * words as usize + 4 * md)
}

/// Where a notified put's descriptor and header are in its frame: what is the same for another put of the kind.
pub(super) fn notice_head(frame: &[u8]) -> Option<&[u8]> {
    let is_written = *frame.first()? == Kind::Notice as u8;
    frame.get(PREFIX + 4..).filter(|_| is_written)
}

/// A put of `length` bytes, which are written, by the [`notice_head`] of one that came before.
pub(super) fn notice(
    head: &[u8],
    length: u64,
    ends: &Ends,
) -> Result<(Header, MdHandle), FrameError> {
    let (md, fields) = head.split_first_chunk().ok_or(FrameError::Headless)?;
    let (fields, _) = HeaderFields::read(fields)?;
    let header = fields.header(ends, length)?;
    let md = MdHandle::from_raw(u32::from_le_bytes(*md));
    Ok((header, md))
}

/// Begins the notice of a put of `length` bytes with a [`notice_head`] that was made before; its bytes.
#[inline(always)]
pub(super) fn notice_again(begin: &mut [u8], length: u32, head: &[u8]) -> usize {
    if let Some((prefix, room)) = begin.split_first_chunk_mut::<PREFIX>()
        && let Some((size, room)) = room.split_first_chunk_mut::<4>()
    {
        *prefix = [Kind::Notice as u8, 0, 0, 0, 0, 0, 0, 0];
        *size = length.to_le_bytes();
        let (room, words) = (room.as_chunks_mut::<4>().0, head.as_chunks::<4>().0);
        for (place, word) in room.iter_mut().zip(words) {
            *place = *word;
        }
    }
    PREFIX + 4 + head.len()
}

/// The message that has the data of a notified put with it, instead of its notice.
pub(super) fn message_of_notice(frame: &[u8], data: &[u8]) -> Option<Vec<u8>> {
    let header = notice_head(frame)?.get(4..)?;
    let mut bytes = vec![0; PREFIX];
    *bytes.first_mut()? = Kind::Message as u8;
    bytes.extend_from_slice(header);
    bytes.extend_from_slice(data);
    Some(bytes)
}

/// Reads a frame that came over the connection between `ends`.
pub(super) fn parse<'a>(bytes: &'a [u8], ends: &Ends) -> Result<(Prefix, Body<'a>), FrameError> {
    let (prefix, kind, mut body) = split(bytes)?;
    let short = FrameError::Short(bytes.len());
    if kind == Kind::Message {
        let (header, data) = message(body, ends)?;
        return Ok((prefix, Body::Message { header, data }));
    }
    let mut token = || take(&mut body).map(u32::from_le_bytes).ok_or(short);
    let parsed = match kind {
        Kind::ReadyToSend => {
            let token = token()?;
            let (place, rest) = Place::read_from_prefix(body).map_err(|_| short)?;
            let (fields, _) = HeaderFields::read(rest)?;
            Body::ReadyToSend {
                header: fields.header(ends, 0)?,
                token,
                from: place.remote(),
            }
        }
        Kind::AckToSend => Body::AckToSend {
            token: token()?,
            failed: prefix.flags & 1 != 0,
        },
        Kind::Advertise => {
            let (token, portal) = (token()?, token()?);
            if portal >= PORTALS {
                return Err(FrameError::Portal(portal));
            }
            let adverts: Vec<RemoteMd> = body
                .chunks_exact(ADVERT)
                .filter_map(|c| WireAdvert::read_from_bytes(c).ok())
                .map(|w| RemoteMd::from_wire(&w))
                .collect();
            for md in &adverts {
                let (address, length) = (md.start.address, md.length);
                if address.checked_add(length).is_none() {
                    return Err(FrameError::Wraps { address, length });
                }
            }
            Body::Advertise {
                portal,
                token,
                adverts,
            }
        }
        Kind::Withdrawn => Body::Withdrawn { token: token()? },
        Kind::Notice => {
            let length = token()?;
            let (header, md) = notice(body, length.into(), ends)?;
            Body::Notice { header, md }
        }
        Kind::Credit | Kind::Message => Body::Credit,
        Kind::Ring => {
            let (slots, size) = (token()?, token()?);
            let (place, _) = Place::read_from_prefix(body).map_err(|_| short)?;
            let at = place.remote();
            Body::Ring { slots, size, at }
        }
        Kind::RingLeft => Body::RingLeft,
        Kind::ReadRequest => {
            let number = token()?;
            let (place, mut rest) = Place::read_from_prefix(body).map_err(|_| short)?;
            let length = take(&mut rest).map(u32::from_le_bytes).ok_or(short)?;
            let at = place.remote();
            Body::ReadRequest { number, at, length }
        }
        Kind::ReadResponse => {
            let number = token()?;
            let data = (prefix.flags & 1 == 0).then_some(body);
            Body::ReadResponse { number, data }
        }
        Kind::Greeting => Body::Greeting,
        Kind::Move => Body::Move(*body.first().ok_or(short)?),
    };
    Ok((prefix, parsed))
}

/// Whether a frame is one that tells of a ring, or of its end.
#[inline]
pub(super) fn is_of_rings(frame: &[u8]) -> bool {
    frame
        .first()
        .is_some_and(|kind| *kind == Kind::Ring as u8 || *kind == Kind::RingLeft as u8)
}

/// Whether the receiver of a frame has caused it: an ack, a reply, what ends a rendezvous, a withdrawal or a read.
pub(super) fn is_answer(frame: &[u8]) -> bool {
    let of_header = |at: usize| {
        frame
            .get(at)
            .is_some_and(|operation| fields::answers(*operation))
    };
    match split(frame) {
        Ok((_, Kind::AckToSend | Kind::Withdrawn | Kind::ReadResponse, _)) => true,
        Ok((_, Kind::Message, _)) => of_header(PREFIX),
        Ok((_, Kind::ReadyToSend, _)) => of_header(TOKEN + size_of::<Place>()),
        Ok(_) | Err(_) => false,
    }
}

/// Whether bytes are a frame between some ends.
pub(super) fn is_frame(bytes: &[u8]) -> bool {
    let nobody = ProcessId::new(0, 0);
    let ends = Ends {
        target: nobody,
        source: nobody,
        who: (0, 0),
    };
    parse(bytes, &ends).is_ok()
}

#[cfg(test)]
mod tests;
