//! Requests.

use super::delivery::{Content, Delivery, ReplyPath};
use super::limits::{MAX_ARGS, MAX_LONG, MAX_MEDIUM, round8};
use super::longs::Landed;
use super::message::Message;
use crate::chunks::CHUNK;
use crate::conduit::{Conduit, Scope};
use crate::core::Core;
use crate::credits::cost;
use crate::error::AmError;
use crate::fault::{Fault, refused};
use crate::frames::Tag;
use crate::matchbits::{AmBits, AmDataBits, AmHdr, Category, data_hdr};
use crate::memory::Source;
use crate::resources::SbUse;
use crate::rma::segments::{LongForm, Pinned};
use crate::rma::temporary::TmpUse;
use crate::trace::Sent;
use portals_shim::{Posted, Put};

impl Core {
    /// Sends the payload of a Long that is not packed; the caller holds a ticket, and one for a
    /// temporary descriptor if the payload is not in the segment. `true` where it will be in its place before the header
    /// arrives, so that no event of it is needed there.
    pub(crate) fn send_payload(
        &mut self,
        node: u32,
        m: &Message<'_>,
        request: bool,
        sync: bool,
        lid: u32,
    ) -> Result<bool, Fault> {
        let bits = AmDataBits {
            request,
            sync,
            handler: m.handler,
            args: m.args.len() as u8,
        };
        let to = self.rar_target(node, bits.encode(), m.dest.1);
        let quiet = self.rar_target(node, bits.encode_quiet(), m.dest.1);
        let hdr = data_hdr(self.ranks.me(), lid);
        if sync {
            self.longs.await_payload(request);
        }
        let here = match &m.source {
            Source::User(memory) => {
                let here = self.pin_now(memory);
                if here.is_none() {
                    self.make_room(memory);
                }
                here
            }
            _ => None,
        };
        let (md, region) = match (&m.source, &self.attached) {
            (Source::User(mem), _) => {
                let safe = self.descriptors.queues.safe;
                let md = self
                    .tmpmds
                    .bind(&self.ni, safe, mem, (TmpUse::PutNoAck, here))
                    .map_err(refused("PtlMDBind of a payload"))?;
                (md, (0, mem.len() as u64))
            }
            (Source::Segment { offset, len }, Some(a)) => (a.rarsrc, (*offset as u64, *len as u64)),
            (_, Some(a)) => (a.rarsrc, (0, 0)),
            (_, None) => (self.descriptors.rplsb, (0, 0)),
        };
        let call = "PtlPutRegion of a payload";
        let put = |to| Put::new(md, to).region(region.0, region.1).hdr_data(hdr);
        let posted = self.ni.post_put(put(quiet).relaxed());
        if posted.map_err(refused(call))? != Posted::Declined {
            return Ok(true);
        }
        self.ni.post_put(put(to)).map_err(refused(call))?;
        Ok(false)
    }

    /// Sends a request whose resources are all in hand. `credits`: used, and wanted on top.
    #[inline(always)]
    fn send_request(
        &mut self,
        node: u32,
        m: &Message<'_>,
        packed: bool,
        credits: (u16, u8),
        chunk: u32,
        sync: bool,
    ) -> Result<(), Fault> {
        let placed = m.category == Category::Long
            && !packed
            && (m.is_placed() || self.send_payload(node, m, true, sync, chunk)?);
        let form = (packed, placed);
        let bits = AmBits {
            category: m.category,
            request: true,
            packed,
            placed,
            handler: m.handler,
            args: m.args.len() as u8,
            chunk,
        };
        let inline = m.category == Category::Medium || packed;
        let hdr = AmHdr {
            source: self.ranks.me(),
            other: if inline { m.source.len() as u32 } else { 0 },
            credits: self.credits.of_request(node, credits.0, credits.1).encode(),
        };
        let to = self.am_target(node, bits.encode(), 0);
        let from = (self.descriptors.reqsb, self.resources.requests().region());
        // Padded, as requests lie one behind the other.
        if self.put_header(from, (chunk, true), to, hdr, (m, form))? {
            self.resources.give_ticket();
        }
        Ok(())
    }

    /// What a request that is one message needs, all of it or nothing: whether it is packed, its credits, its chunk
    /// and a ticket. `None` too for a request of two messages.
    fn take_for_request(&mut self, node: u32, m: &Message<'_>) -> Option<(bool, (u16, u8), u32)> {
        let (packed, credits) = self.form(node, m);
        if m.category == Category::Long && !packed
            || self.credits.available(node) < credits
            || !self.resources.take_tickets(1)
        {
            return None;
        }
        let Some(chunk) = self
            .resources
            .requests_mut()
            .take(SbUse::Request { to: node })
        else {
            self.resources.give_ticket();
            return None;
        };
        // They are there, as seen above.
        self.credits.take(node, credits);
        Some((packed, (credits, 0), chunk))
    }

    /// Whether a Long is packed, and the credits of the request.
    #[inline]
    fn form(&self, node: u32, m: &Message<'_>) -> (bool, u16) {
        let args = 4 * m.args.len();
        let (whole, header) = match m.category {
            Category::Short => (round8(args), None),
            Category::Medium => (round8(round8(args) + m.source.len()), None),
            Category::Long => (round8(args + 8 + m.source.len()), Some(round8(args))),
        };
        let whole_cost = cost(whole);
        let Some(header) = header else {
            return (false, whole_cost);
        };
        let split_cost = cost(header) + 1;
        if self.segments.long_form() == LongForm::PackedOrPut {
            // Whoever sends it has put the payload of one that is not packed.
            return if m.is_placed() {
                (false, split_cost)
            } else {
                (true, whole_cost)
            };
        }
        // Packing must not cause a wait that two messages would not.
        let waits = whole_cost > split_cost && whole_cost > self.credits.available(node);
        if self.env.packs(m.source.len()) && whole <= CHUNK && !waits {
            (true, whole_cost)
        } else {
            (false, split_cost)
        }
    }
}

impl Conduit {
    /// Sends a Short request: arguments only. May poll.
    #[track_caller]
    pub fn am_request_short(&self, node: u32, handler: u8, args: &[i32]) -> Result<(), AmError> {
        if let Some(to) = self.neighbour(node) {
            let tag = self.frame(Category::Short, handler, args)?;
            self.trace_frame("AMREQUEST_SHORT", (node, tag), args, None, None);
            self.request_near(to, tag, args, &[]);
            return Ok(());
        }
        self.request_short_far(node, handler, args)
    }

    // Apart, so that the way through memory is short.
    #[track_caller]
    #[inline(never)]
    fn request_short_far(&self, node: u32, handler: u8, args: &[i32]) -> Result<(), AmError> {
        self.check_request(node)?;
        let m = self.message(Category::Short, handler, args, Source::Empty, (0, 0))?;
        self.trace_am("AMREQUEST_SHORT", ("dest", node), &m);
        self.request(node, &m, true);
        Ok(())
    }

    /// Sends a Medium request: `payload` arrives in a buffer of the handler. May poll; `payload` is
    /// free again on return.
    #[track_caller]
    pub fn am_request_medium(
        &self,
        node: u32,
        handler: u8,
        payload: &[u8],
        args: &[i32],
    ) -> Result<(), AmError> {
        if let Some(to) = self.neighbour(node) {
            check_len(payload.len(), MAX_MEDIUM)?;
            let tag = self.frame(Category::Medium, handler, args)?;
            let place = Some((payload.as_ptr().addr() as u64, payload.len()));
            self.trace_frame("AMREQUEST_MEDIUM", (node, tag), args, place, None);
            self.request_near(to, tag, args, payload);
            return Ok(());
        }
        self.check_request(node)?;
        check_len(payload.len(), MAX_MEDIUM)?;
        if let Some(t) = &self.tracer {
            t.am(&Sent {
                name: "AMREQUEST_MEDIUM",
                peer: ("dest", node),
                handler,
                args,
                payload: Some((payload.as_ptr().addr() as u64, payload.len())),
                dest: None,
            });
        }
        self.lend(payload, Scope::Full, |mem| {
            let source = Source::User(mem);
            let m = self.message(Category::Medium, handler, args, source, (0, 0))?;
            self.request(node, &m, true);
            Ok(())
        })
    }

    /// Sends a Long request: `payload` arrives at address `dest` of the segment of `node`. May poll;
    /// `payload` is free again on return.
    #[track_caller]
    pub fn am_request_long(
        &self,
        node: u32,
        handler: u8,
        payload: &[u8],
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        self.check_request(node)?;
        let to = self.check_dest(node, dest, payload.len())?;
        if let Some(t) = &self.tracer {
            t.am(&Sent {
                name: "AMREQUEST_LONG",
                peer: ("dest", node),
                handler,
                args,
                payload: Some((payload.as_ptr().addr() as u64, payload.len())),
                dest: Some(dest),
            });
        }
        if self.segments().pinned() == Pinned::ByUnits {
            return self.lend(payload, Scope::Full, |mem| {
                self.long_anywhere(node, handler, mem, (dest, to), args)
            });
        }
        if self.neighbour(node).is_some() {
            // Copied before this returns, so that nothing is left to wait for.
            return self.lend(payload, Scope::Safe, |mem| {
                self.long_near(node, handler, &Source::User(mem), to, args)
            });
        }
        self.lend(payload, Scope::Full, |mem| {
            let by_units = self.long_by_units((node, handler), mem, (dest, to), args);
            if let Some(sent) = by_units {
                return sent;
            }
            let source = Source::User(mem);
            let m = self.message(Category::Long, handler, args, source, (dest, to))?;
            self.request(node, &m, true);
            Ok(())
        })
    }

    /// Sends a Long request whose payload is at `offset` of the own segment, without a
    /// copy; that memory is free again on return.
    #[track_caller]
    pub fn am_request_long_from_segment(
        &self,
        node: u32,
        handler: u8,
        offset: usize,
        len: usize,
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        self.long_from_segment(node, handler, (offset, len), dest, args, true)
    }

    /// Sends a Long request from the own segment, whose memory must stay untouched until the
    /// handler of the reply runs (`LongAsync`).
    #[track_caller]
    pub fn am_request_long_async_from_segment(
        &self,
        node: u32,
        handler: u8,
        offset: usize,
        len: usize,
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        self.long_from_segment(node, handler, (offset, len), dest, args, false)
    }

    #[track_caller]
    fn long_from_segment(
        &self,
        node: u32,
        handler: u8,
        (offset, len): (usize, usize),
        dest: u64,
        args: &[i32],
        sync: bool,
    ) -> Result<(), AmError> {
        self.check_request(node)?;
        let to = self.check_dest(node, dest, len)?;
        let source = self.own_segment(offset, len);
        let source = source.ok_or(AmError::Source { offset, len })?;
        let name = if sync {
            "AMREQUEST_LONG"
        } else {
            "AMREQUEST_LONGASYNC"
        };
        let by_units = self.segments().pinned() == Pinned::ByUnits;
        let memory = by_units.then(|| self.core.borrow().own_memory(&source));
        if let Some(memory) = memory.flatten() {
            let m = self.message(Category::Long, handler, args, source, (dest, to))?;
            self.trace_am(name, ("dest", node), &m);
            return self.long_anywhere(node, handler, memory, (dest, to), args);
        }
        if self.neighbour(node).is_some() {
            let tag = self.frame(Category::Long, handler, args)?;
            let payload = self.address_of(&source);
            self.trace_frame(name, (node, tag), args, payload, Some(dest));
            return self.long_near(node, handler, &source, to, args);
        }
        let m = self.message(Category::Long, handler, args, source, (dest, to))?;
        self.trace_am(name, ("dest", node), &m);
        self.request(node, &m, sync);
        Ok(())
    }

    /// A checked Long to a rank that shares memory with this one.
    fn long_near(
        &self,
        node: u32,
        handler: u8,
        source: &Source,
        offset: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        let tag = self.frame(Category::Long, handler, args)?;
        if let Some(to) = self.neighbour(node) {
            let place = self.place_near(to, source, offset);
            self.request_near(to, tag, args, &place);
        }
        Ok(())
    }

    /// What a frame says of a request.
    #[inline]
    fn frame(&self, category: Category, handler: u8, args: &[i32]) -> Result<Tag, AmError> {
        if self.handler_depth.get() > 0 {
            return Err(AmError::InHandler);
        }
        if args.len() > MAX_ARGS {
            return Err(AmError::Args { count: args.len() });
        }
        Ok(Tag::new(category, handler, args.len()))
    }

    /// The lines of a request in a frame.
    #[track_caller]
    #[inline]
    fn trace_frame(
        &self,
        name: &'static str,
        (node, tag): (u32, Tag),
        args: &[i32],
        payload: Option<(u64, usize)>,
        dest: Option<u64>,
    ) {
        if let Some(t) = &self.tracer {
            t.am(&Sent {
                name,
                peer: ("dest", node),
                handler: tag.handler,
                args,
                payload,
                dest,
            });
        }
    }

    /// Where a payload is.
    pub(super) fn address_of(&self, source: &Source) -> Option<(u64, usize)> {
        match source {
            Source::Empty | Source::Placed { .. } => None,
            Source::User(mem) => Some((mem.addr(), mem.len())),
            Source::Segment { offset, len } => {
                Some((self.segment(self.mynode()).addr + *offset as u64, *len))
            }
        }
    }

    /// The lines of a message, whose payload is in the own segment if it has one.
    #[track_caller]
    #[inline]
    pub(super) fn trace_am(&self, name: &'static str, peer: (&'static str, u32), m: &Message<'_>) {
        if let Some(t) = &self.tracer {
            let payload = self.address_of(&m.source);
            t.am(&Sent {
                name,
                peer,
                handler: m.handler,
                args: m.args,
                payload,
                dest: (m.category == Category::Long).then_some(m.dest.0),
            });
        }
    }

    fn check_request(&self, node: u32) -> Result<(), AmError> {
        if self.handler_depth.get() > 0 {
            return Err(AmError::InHandler);
        }
        if !self.is_attached() {
            return Err(AmError::NotAttached);
        }
        if node >= self.nodes() {
            return Err(AmError::Node {
                node,
                nodes: self.nodes(),
            });
        }
        Ok(())
    }

    /// Offset of a Long's destination in the segment of `node`.
    pub(crate) fn check_dest(&self, node: u32, addr: u64, len: usize) -> Result<u64, AmError> {
        check_len(len, MAX_LONG)?;
        self.segment(node)
            .offset_of(addr, len as u64)
            .ok_or(AmError::Destination { node, addr, len })
    }

    #[inline]
    pub(crate) fn message<'a>(
        &self,
        category: Category,
        handler: u8,
        args: &'a [i32],
        source: Source,
        dest: (u64, u64),
    ) -> Result<Message<'a>, AmError> {
        if args.len() > MAX_ARGS {
            return Err(AmError::Args { count: args.len() });
        }
        Ok(Message {
            category,
            handler,
            args,
            source,
            dest,
        })
    }

    #[inline]
    pub(crate) fn request(&self, node: u32, m: &Message<'_>, sync: bool) {
        self.mind_elsewhere();
        if node == self.mynode() {
            self.run_here(m, ReplyPath::Loopback);
            return;
        }
        let two = {
            let mut core = self.core.borrow_mut();
            match core.take_for_request(node, m) {
                Some((packed, credits, chunk)) => {
                    let sent = core.send_request(node, m, packed, credits, chunk, sync);
                    drop(core);
                    self.check("sending a request", sent);
                    false
                }
                None => {
                    drop(core);
                    self.request_in_time(node, m, sync)
                }
            }
        };
        if self.looks_after_request() {
            self.poll_near(Scope::Full);
            self.poll_within_limits(Scope::Full);
        }
        if two && sync {
            self.wait_for(Scope::Full, |c| c.longs.have_left(true).then_some(()));
        }
    }

    /// Whether a request is to look for what has arrived: each but the first since this rank looked last. Who sends one
    /// will most often look for its reply next. Where time is virtual a poll is a step of the program, which every request
    /// makes.
    #[inline]
    fn looks_after_request(&self) -> bool {
        self.polls_each || self.requested.replace(true)
    }

    /// Sends a request, one thing that it needs after the other; whether it was two messages.
    #[inline(never)]
    fn request_in_time(&self, node: u32, m: &Message<'_>, sync: bool) -> bool {
        let (packed, credits) = self.take_credits(node, m);
        let chunk = self.wait_for(Scope::Full, |c| {
            c.resources.requests_mut().take(SbUse::Request { to: node })
        });
        let two = m.category == Category::Long && !packed && !m.is_placed();
        // Only SAFE events are handled here: a request handler could spend the tickets gathered.
        self.wait_for(Scope::Safe, |c| {
            c.resources.take_tickets(1 + u32::from(two)).then_some(())
        });
        if two && matches!(m.source, Source::User(_)) {
            self.wait_for(Scope::Full, |c| c.tmpmds.may_bind().then_some(()));
        }
        let mut core = self.core.borrow_mut();
        let sent = core.send_request(node, m, packed, credits, chunk, sync);
        drop(core);
        self.check("sending a request", sent);
        two
    }

    /// Waits for the credits of a request; says whether a Long is packed, how many it took, and how
    /// many more it would have liked.
    fn take_credits(&self, node: u32, m: &Message<'_>) -> (bool, (u16, u8)) {
        let mut wanted = None;
        self.wait_for(Scope::Full, |c| {
            let choice = c.form(node, m);
            if c.credits.take(node, choice.1) {
                return Some((choice.0, (choice.1, wanted.unwrap_or(0))));
            }
            wanted.get_or_insert_with(|| c.credits.stall(node, choice.1));
            None
        })
    }

    /// Runs a message to this rank in place.
    pub(crate) fn run_here(&self, m: &Message<'_>, reply: ReplyPath) {
        let content = self.loopback_content(m);
        let args = self.core.borrow_mut().own_arguments(m.args);
        self.deliver(Delivery {
            source: self.mynode(),
            handler: m.handler,
            args,
            content,
            reply,
            chunk: None,
        });
    }

    fn loopback_content(&self, m: &Message<'_>) -> Content {
        let mut core = self.core.borrow_mut();
        match m.category {
            Category::Short => Content::Empty,
            Category::Medium => {
                let buffer = core.buffers.take_scratch();
                drop(core);
                self.fill_scratch(buffer, &m.source)
            }
            Category::Long => {
                let placed = match &core.attached {
                    _ if core.segments.pinned() == Pinned::ByUnits => {
                        drop(core);
                        return self.place_here(m);
                    }
                    Some(a) => core.copy_source(&m.source, &a.region, m.dest.1 as usize),
                    None => Ok(()),
                };
                drop(core);
                self.check("a Long to this rank", placed);
                Content::Long(Landed {
                    offset: m.dest.1,
                    len: m.source.len() as u64,
                })
            }
        }
    }
}

pub(crate) fn check_len(len: usize, max: usize) -> Result<(), AmError> {
    if len > max {
        return Err(AmError::Payload { len, max });
    }
    Ok(())
}
