//! From events to handlers: parsing headers, pairing the halves of Longs, running handlers.

use super::Token;
use super::delivery::{Args, Content, Delivery, HeldHeader, Payload, ReplyPath, Values};
use super::header::PLACE;
use super::limits::{MAX_ARGS, NOOP_REPLY, round8};
use super::longs::Landed;
use crate::chunks::CHUNK;
use crate::conduit::Conduit;
use crate::core::Core;
use crate::credits::CreditByte;
use crate::fault::Fault;
use crate::hsl;
use crate::matchbits::{AmBits, AmDataBits, AmHdr, Category, decode_data_hdr};
use crate::resources::SbUse;
use crate::rma::segments::Pinned;
use crate::trace::{Sent, Tracer};
use portals_shim::{Brief, Region};
use zerocopy::IntoBytes;

/// Where the header of a message lies.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// In this request buffer, which exists.
    ReqRb(usize),
    ReqSb,
}

impl Core {
    /// A request's header in request buffer `buffer`.
    #[inline(always)]
    pub(crate) fn handle_request_header(
        &mut self,
        buffer: usize,
        event: &Brief,
    ) -> Result<Option<Delivery>, Fault> {
        let hdr = AmHdr::decode(event.hdr_data);
        let source = self.sender(hdr.source, event)?;
        let malformed = |what| Fault::Malformed { node: source, what };
        let bits = AmBits::decode(event.match_bits)
            .filter(|b| b.request)
            .ok_or(malformed("not the header of a request"))?;
        if buffer >= self.descriptors.reqrb.len() {
            return Err(malformed("no such request buffer"));
        }
        let credits = self
            .credits
            .handle_request(source, CreditByte::decode(hdr.credits))
            .map_err(|fault| Fault::Credits {
                node: source,
                fault,
            })?;
        if let Some(dumps) = &mut self.dumps {
            dumps.note(&self.credits);
        }
        if self.credits.has_notices() {
            self.send_notices()?;
        }
        let reply = ReplyPath::Remote {
            chunk: bits.chunk,
            credits: credits.encode(),
        };
        // The long id of a request is the offset of its chunk.
        let place = Place::ReqRb(buffer);
        self.open(
            source, place, event, bits, hdr.other, bits.chunk, reply, None,
        )
    }

    /// A reply's header in the chunk of its request.
    #[inline(always)]
    pub(crate) fn handle_reply_header(&mut self, event: &Brief) -> Result<Option<Delivery>, Fault> {
        let hdr = AmHdr::decode(event.hdr_data);
        let source = self.sender(hdr.source, event)?;
        let malformed = |what| Fault::Malformed { node: source, what };
        let bits = AmBits::decode(event.match_bits)
            .filter(|b| !b.request)
            .ok_or(malformed("not the header of a reply"))?;
        match self.resources.requests().lent(event.offset) {
            Some(SbUse::Request { to }) if *to == source => {}
            _ => return Err(malformed("a reply to no request")),
        }
        self.credits
            .handle_reply(source, CreditByte::decode(hdr.credits))
            .map_err(|fault| Fault::Credits {
                node: source,
                fault,
            })?;
        if bits.handler == NOOP_REPLY && bits.category == Category::Short {
            self.resources.requests_mut().release(event.offset);
            return Ok(None);
        }
        let chunk = u32::try_from(event.offset).ok();
        self.open(
            source,
            Place::ReqSb,
            event,
            bits,
            hdr.other,
            hdr.other,
            ReplyPath::None,
            chunk,
        )
    }

    fn memory(&self, place: Place) -> &Region {
        match place {
            Place::ReqRb(buffer) => &self.descriptors.reqrb[buffer],
            Place::ReqSb => self.resources.requests().region(),
        }
    }

    /// The arguments that begin at `base` of a place.
    #[inline]
    fn arguments(&mut self, place: Place, base: usize, count: u8) -> Result<Args, Fault> {
        if count == 0 {
            return Ok(Args::default());
        }
        self.read_arguments(place, base, count)
    }

    #[inline(never)]
    fn read_arguments(&mut self, place: Place, base: usize, count: u8) -> Result<Args, Fault> {
        let mut values = self.buffers.take_values();
        let room = values.get_mut(..usize::from(count)).unwrap_or_default();
        self.memory(place).read(base, room.as_mut_bytes())?;
        let values = Some(values);
        Ok(Args { values, count })
    }

    /// The arguments of a message to this rank.
    pub(super) fn own_arguments(&mut self, args: &[i32]) -> Args {
        if args.is_empty() {
            return Args::default();
        }
        let mut values = self.buffers.take_values();
        let room = values.get_mut(..args.len()).unwrap_or_default();
        room.copy_from_slice(&args[..room.len()]);
        Args {
            count: room.len() as u8,
            values: Some(values),
        }
    }

    /// Takes the header and what came with it apart.
    #[inline(always)]
    #[expect(
        clippy::too_many_arguments,
        reason = "what the two kinds of header differ in"
    )]
    fn open(
        &mut self,
        source: u32,
        place: Place,
        event: &Brief,
        bits: AmBits,
        len: u32,
        lid: u32,
        reply: ReplyPath,
        chunk: Option<u32>,
    ) -> Result<Option<Delivery>, Fault> {
        let malformed = |what| Fault::Malformed { node: source, what };
        let base = usize::try_from(event.offset).unwrap_or(usize::MAX);
        let room = usize::try_from(event.mlength).unwrap_or(0);
        let count = usize::from(bits.args);
        if count > MAX_ARGS || 4 * count > room || room > CHUNK {
            return Err(malformed("its arguments do not fit"));
        }
        let header = HeldHeader {
            handler: bits.handler,
            args: self.arguments(place, base, bits.args)?,
            reply,
            chunk,
        };
        if bits.category == Category::Short {
            return Ok(Some(header.with(source, Content::Empty)));
        }
        let at = (place, base, room);
        self.open_payload(source, at, bits, (len as usize, lid), header)
    }

    /// Takes what is no Short apart, which has `room` bytes at `base` of a place: a payload of `len` bytes, or one of long id
    /// `lid`.
    #[inline(never)]
    fn open_payload(
        &mut self,
        source: u32,
        (place, base, room): (Place, usize, usize),
        bits: AmBits,
        (len, lid): (usize, u32),
        header: HeldHeader,
    ) -> Result<Option<Delivery>, Fault> {
        let malformed = |what| Fault::Malformed { node: source, what };
        let args_len = 4 * usize::from(bits.args);
        let content = match bits.category {
            Category::Short => Content::Empty,
            Category::Medium => {
                let at = round8(args_len);
                if at + len > room {
                    return Err(malformed("its payload does not fit"));
                }
                let mut buffer = self.buffers.take_scratch();
                self.memory(place)
                    .read(base + at, &mut buffer.as_mut_bytes()[..len])?;
                Content::Medium { buffer, len }
            }
            Category::Long if bits.packed => {
                let at = args_len + 8;
                if at + len > room {
                    return Err(malformed("its payload does not fit"));
                }
                let mut dest = [0u8; 8];
                let region = self.memory(place);
                region.read(base + args_len, &mut dest)?;
                let dest = u64::from_le_bytes(dest);
                Content::Long(match self.segments.pinned() {
                    Pinned::Whole => self.place(source, dest, region, base + at, len)?,
                    Pinned::ByUnits => {
                        let mut data = [0; CHUNK];
                        let data = &mut data[..len];
                        region.read(base + at, data)?;
                        self.place_anywhere(source, dest, data)?
                    }
                })
            }
            Category::Long if bits.placed => {
                let mut said = [[0u8; 8]; 2];
                if args_len + PLACE > room {
                    return Err(malformed("it does not say where its payload is"));
                }
                self.memory(place)
                    .read(base + args_len, said.as_flattened_mut())?;
                let [offset, len] = said.map(u64::from_le_bytes);
                let own = self.attached.as_ref();
                let size = own.map_or(0, |a| a.segments[self.ranks.me() as usize].size);
                if offset.checked_add(len).is_none_or(|end| end > size) {
                    return Err(malformed("its destination is not in the segment"));
                }
                Content::Long(Landed { offset, len })
            }
            Category::Long => {
                let both = self
                    .longs
                    .header(source, lid, header)
                    .map_err(|_| malformed("the header of a Long twice"))?;
                return Ok(both.map(|(header, landed)| header.with(source, Content::Long(landed))));
            }
        };
        Ok(Some(header.with(source, content)))
    }

    /// Copies the payload of a packed Long to its destination.
    fn place(
        &self,
        source: u32,
        dest: u64,
        from: &Region,
        at: usize,
        len: usize,
    ) -> Result<Landed, Fault> {
        let outside = Fault::Malformed {
            node: source,
            what: "its destination is not in the segment",
        };
        let Some(attached) = &self.attached else {
            return Err(outside);
        };
        let own = attached.segments[self.ranks.me() as usize];
        let Some(offset) = own.offset_of(dest, len as u64) else {
            return Err(outside);
        };
        attached.region.copy_from(offset as usize, from, at, len)?;
        Ok(Landed {
            offset,
            len: len as u64,
        })
    }

    /// Puts the payload where it belongs ([`Core::place`]), where memory is pinned when it is needed.
    fn place_anywhere(&mut self, source: u32, dest: u64, data: &[u8]) -> Result<Landed, Fault> {
        let len = data.len() as u64;
        let own = self
            .attached
            .as_ref()
            .and_then(|a| a.segments.get(self.ranks.me() as usize));
        let offset = own.and_then(|s| s.offset_of(dest, len));
        match offset.filter(|_| self.store_anywhere(dest, data)) {
            Some(offset) => Ok(Landed { offset, len }),
            None => Err(Fault::Malformed {
                node: source,
                what: "its destination is no memory",
            }),
        }
    }

    /// The payload of a Long is in the segment.
    pub(crate) fn handle_payload(&mut self, event: &Brief) -> Result<Option<Delivery>, Fault> {
        let (source, lid) = decode_data_hdr(event.hdr_data);
        let source = self.sender(source, event)?;
        let bits = AmDataBits::decode(event.match_bits);
        let landed = Landed {
            offset: event.offset,
            len: event.mlength,
        };
        let both = self
            .longs
            .payload(source, lid, landed)
            .map_err(|_| Fault::Malformed {
                node: source,
                what: "the payload of a Long twice",
            })?;
        let Some((header, landed)) = both else {
            return Ok(None);
        };
        if bits.handler != header.handler || bits.args != header.args.count {
            return Err(Fault::Malformed {
                node: source,
                what: "header and payload of a Long differ",
            });
        }
        Ok(Some(header.with(source, Content::Long(landed))))
    }

    /// After the handler: resources go back.
    #[inline]
    fn finish(&mut self, chunk: Option<u32>, values: Option<Box<Values>>) {
        if let Some(chunk) = chunk {
            self.resources.requests_mut().release(u64::from(chunk));
        }
        self.buffers.give_values(values);
    }
}

impl Conduit {
    /// The lines of a handler that starts.
    #[cold]
    fn trace_delivery(
        &self,
        tracer: &Tracer,
        (source, handler): (u32, u8),
        args: &[i32],
        payload: &Payload<'_>,
        reply: ReplyPath,
    ) {
        let request = reply != ReplyPath::None;
        let (name, payload) = match (payload, request) {
            (Payload::None, true) => ("AMREQUEST_SHORT_HANDLER", None),
            (Payload::None, false) => ("AMREPLY_SHORT_HANDLER", None),
            (Payload::Medium(bytes), _) => {
                let name = if request {
                    "AMREQUEST_MEDIUM_HANDLER"
                } else {
                    "AMREPLY_MEDIUM_HANDLER"
                };
                (name, Some((bytes.as_ptr().addr() as u64, bytes.len())))
            }
            (Payload::Long { addr, len, .. }, _) => {
                let name = if request {
                    "AMREQUEST_LONG_HANDLER"
                } else {
                    "AMREPLY_LONG_HANDLER"
                };
                (name, Some((*addr, *len)))
            }
        };
        tracer.am(&Sent {
            name,
            peer: ("src", source),
            handler,
            args,
            payload,
            dest: None,
        });
    }

    /// Runs the handler of a message, and replies if the handler of a request did not.
    #[inline(always)]
    pub(crate) fn deliver(&self, delivery: Delivery) {
        let Delivery {
            source,
            handler,
            args,
            content,
            reply,
            chunk,
        } = delivery;
        match content {
            Content::Empty => {
                self.run_handler(source, handler, reply, Payload::None, args.as_slice());
            }
            content => self.deliver_payload((source, handler), args.as_slice(), content, reply),
        }
        if chunk.is_some() || args.values.is_some() {
            self.core.borrow_mut().finish(chunk, args.values);
        }
    }

    #[inline(never)]
    fn deliver_payload(
        &self,
        (source, handler): (u32, u8),
        args: &[i32],
        content: Content,
        reply: ReplyPath,
    ) {
        match content {
            Content::Empty => {}
            Content::Medium { mut buffer, len } => {
                let payload = Payload::Medium(&mut buffer.as_mut_bytes()[..len]);
                self.run_handler(source, handler, reply, payload, args);
                self.core.borrow_mut().buffers.give_scratch(buffer);
            }
            Content::Long(Landed { offset, len }) => {
                let payload = Payload::Long {
                    addr: self.segment(self.mynode()).addr + offset,
                    offset: offset as usize,
                    len: len as usize,
                };
                self.run_handler(source, handler, reply, payload, args);
            }
        }
    }

    /// Runs a handler, and replies if that of a request did not and must.
    #[inline]
    pub(crate) fn run_handler(
        &self,
        source: u32,
        handler: u8,
        reply: ReplyPath,
        payload: Payload<'_>,
        args: &[i32],
    ) {
        let Some(run) = self.handlers.borrow().get(handler) else {
            self.fatal(
                "polling",
                &Fault::Unregistered {
                    node: source,
                    handler,
                },
            );
        };
        if let Some(t) = &self.tracer {
            self.trace_delivery(t, (source, handler), args, &payload, reply);
        }
        let mut token = Token::new(self, source, reply);
        let locks = self.gate.as_ref().map(|_| hsl::held());
        self.handler_depth.set(self.handler_depth.get() + 1);
        run(&mut token, payload, args);
        if locks.is_some_and(|before| before != hsl::held()) {
            self.fatal("the end of a handler", &Fault::HslHeld);
        }
        token.finish();
        self.handler_depth.set(self.handler_depth.get() - 1);
    }
}
