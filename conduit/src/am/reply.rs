//! Replies.

use super::Token;
use super::delivery::ReplyPath;
use super::limits::{MAX_ARGS, MAX_MEDIUM, MAX_PACKED, NOOP_REPLY};
use super::message::Message;
use super::request::check_len;
use crate::chunks::CHUNK;
use crate::conduit::Scope;
use crate::core::Core;
use crate::error::AmError;
use crate::fault::Fault;
use crate::frames::Tag;
use crate::hsl;
use crate::matchbits::{AmBits, AmHdr, Category};
use crate::memory::Source;
use crate::rma::segments::LongForm;
use crate::trace::Sent;

impl Core {
    /// Sends a reply with the resources of the reserve.
    fn send_reply(
        &mut self,
        node: u32,
        chunk: u32,
        credits: u8,
        m: &Message<'_>,
    ) -> Result<(), Fault> {
        let packed = m.category == Category::Long
            && (self.env.packs(m.source.len())
                || self.segments.long_form() == LongForm::PackedOrPut)
            && 4 * m.args.len() + 8 + m.source.len() <= CHUNK;
        let two = m.category == Category::Long && !packed;
        let tmpmd = two && matches!(m.source, Source::User(_));
        let Some(own) = self.resources.take_for_reply(1 + u32::from(two), tmpmd) else {
            return Err(Fault::Malformed {
                node,
                what: "handled without a reply's resources",
            });
        };
        let mut other = m.source.len() as u32;
        if two {
            other = self.longs.reply_id();
        }
        let placed = two && self.send_payload(node, m, false, true, other)?;
        let form = (packed, placed);
        let bits = AmBits {
            category: m.category,
            request: false,
            packed,
            placed,
            handler: m.handler,
            args: m.args.len() as u8,
            chunk: own,
        };
        let hdr = AmHdr {
            source: self.ranks.me(),
            other,
            credits,
        };
        let to = self.am_target(node, bits.encode(), u64::from(chunk));
        let from = (self.descriptors.rplsb, self.resources.reply_memory());
        if self.put_header(from, (own, false), to, hdr, (m, form))? {
            self.resources.give_to_reserve(own);
        }
        Ok(())
    }
}

/// A reply's event in the trace.
fn name_of(category: Category) -> &'static str {
    match category {
        Category::Short => "AMREPLY_SHORT",
        Category::Medium => "AMREPLY_MEDIUM",
        Category::Long => "AMREPLY_LONG",
    }
}

impl Token<'_> {
    /// Replies with a Short.
    #[track_caller]
    #[inline]
    pub fn reply_short(&mut self, handler: u8, args: &[i32]) -> Result<(), AmError> {
        self.may_reply()?;
        if self.reply == ReplyPath::Near {
            let tag = Tag::new(Category::Short, handler, args.len());
            return self.reply_near(tag, args, &[], None, None);
        }
        let m = self
            .conduit
            .message(Category::Short, handler, args, Source::Empty, (0, 0))?;
        self.reply(&m);
        Ok(())
    }

    /// Replies with a Medium; `payload` is free again on return.
    #[track_caller]
    pub fn reply_medium(
        &mut self,
        handler: u8,
        payload: &[u8],
        args: &[i32],
    ) -> Result<(), AmError> {
        self.may_reply()?;
        check_len(payload.len(), MAX_MEDIUM)?;
        if self.reply == ReplyPath::Near {
            let tag = Tag::new(Category::Medium, handler, args.len());
            let place = (payload.as_ptr().addr() as u64, payload.len());
            return self.reply_near(tag, args, payload, Some(place), None);
        }
        let conduit = self.conduit;
        conduit.lend(payload, Scope::Safe, |mem| {
            let m = conduit.message(Category::Medium, handler, args, Source::User(mem), (0, 0))?;
            self.reply(&m);
            Ok(())
        })
    }

    /// Replies with a Long to address `dest` of the requester's segment; `payload` is free again on
    /// return. Handlers of replies may run meanwhile.
    #[track_caller]
    pub fn reply_long(
        &mut self,
        handler: u8,
        payload: &[u8],
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        self.may_reply()?;
        let to = self.check_long(dest, payload.len())?;
        let conduit = self.conduit;
        conduit.lend(payload, Scope::Safe, |mem| {
            if self.reply == ReplyPath::Near {
                return self.reply_long_near(handler, &Source::User(mem), (dest, to), args);
            }
            let m =
                conduit.message(Category::Long, handler, args, Source::User(mem), (dest, to))?;
            self.reply(&m);
            Ok(())
        })
    }

    /// Replies with a Long message whose payload is at `offset` of the own segment, without a copy.
    #[track_caller]
    pub fn reply_long_from_segment(
        &mut self,
        handler: u8,
        offset: usize,
        len: usize,
        dest: u64,
        args: &[i32],
    ) -> Result<(), AmError> {
        self.may_reply()?;
        let to = self.check_long(dest, len)?;
        let source = self.conduit.own_segment(offset, len);
        let source = source.ok_or(AmError::Source { offset, len })?;
        if self.reply == ReplyPath::Near {
            return self.reply_long_near(handler, &source, (dest, to), args);
        }
        let m = self
            .conduit
            .message(Category::Long, handler, args, source, (dest, to))?;
        self.reply(&m);
        Ok(())
    }

    /// Offset of a Long reply's destination in the requester's segment. Where memory is pinned when it is needed, the
    /// payload travels with the header: a handler cannot wait until its destination is pinned.
    fn check_long(&self, dest: u64, len: usize) -> Result<u64, AmError> {
        if self.conduit.segments().long_form() == LongForm::PackedOrPut {
            check_len(len, MAX_PACKED)?;
        }
        self.conduit.check_dest(self.source, dest, len)
    }

    fn may_reply(&self) -> Result<(), AmError> {
        match self.reply {
            ReplyPath::None => Err(AmError::NotARequest),
            _ if self.replied => Err(AmError::Replied),
            _ => Ok(()),
        }
    }

    /// A reply in a frame. `payload` and `dest` are for its lines.
    #[track_caller]
    #[inline]
    fn reply_near(
        &mut self,
        tag: Tag,
        args: &[i32],
        body: &[u8],
        payload: Option<(u64, usize)>,
        dest: Option<u64>,
    ) -> Result<(), AmError> {
        if args.len() > MAX_ARGS {
            return Err(AmError::Args { count: args.len() });
        }
        self.begin_reply();
        let conduit = self.conduit;
        if let Some(t) = &conduit.tracer {
            t.am(&Sent {
                name: name_of(tag.category),
                peer: ("dest", self.source),
                handler: tag.handler,
                args,
                payload,
                dest,
            });
        }
        conduit.reply_near(self.source, tag, args, body);
        Ok(())
    }

    /// A Long reply whose payload goes to address and offset `dest` of the requester's segment.
    #[track_caller]
    fn reply_long_near(
        &mut self,
        handler: u8,
        source: &Source,
        dest: (u64, u64),
        args: &[i32],
    ) -> Result<(), AmError> {
        let conduit = self.conduit;
        let to = conduit.neighbour(self.source);
        let place = to.map(|to| conduit.place_near(to, source, dest.1));
        let tag = Tag::new(Category::Long, handler, args.len());
        let payload = conduit.address_of(source);
        self.reply_near(tag, args, &place.unwrap_or_default(), payload, Some(dest.0))
    }

    fn begin_reply(&mut self) {
        self.replied = true;
        let conduit = self.conduit;
        if conduit.gate.is_some() && hsl::held() > 0 {
            conduit.fatal("a reply", &Fault::HslHeld);
        }
    }

    #[track_caller]
    fn reply(&mut self, m: &Message<'_>) {
        if self.conduit.tracer.is_some() && m.handler != NOOP_REPLY {
            let name = name_of(m.category);
            self.conduit.trace_am(name, ("dest", self.source), m);
        }
        self.begin_reply();
        let conduit = self.conduit;
        // Replies in frames are made where they are asked for.
        if let ReplyPath::Remote { chunk, credits } = self.reply {
            let sent = conduit
                .core
                .borrow_mut()
                .send_reply(self.source, chunk, credits, m);
            conduit.check("sending a reply", sent);
            // Handlers of requests must not run inside this one; those of replies may.
            conduit.wait_for(Scope::Safe, |c| c.longs.have_left(false).then_some(()));
        } else if let ReplyPath::Loopback = self.reply {
            conduit.run_here(m, ReplyPath::None);
        }
    }

    /// After the handler: a request that was not replied to is, so that its chunk and credits
    /// return.
    pub(crate) fn finish(&mut self) {
        if let (false, ReplyPath::Remote { .. }) = (self.replied, self.reply)
            && let Ok(m) =
                self.conduit
                    .message(Category::Short, NOOP_REPLY, &[], Source::Empty, (0, 0))
        {
            self.reply(&m);
        }
    }
}
