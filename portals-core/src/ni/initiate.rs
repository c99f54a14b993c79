//! What starting an operation takes; gets and getputs at their initiator, and the reply that a fabric makes in the target's place
//! (rules 14, 17-23, 37-44).

use super::complete::{Account, OpKind, What};
use super::{Ni, NiConfig};
use crate::error::Error;
use crate::event::{EventKind, NiFail};
use crate::handle::{MdHandle, OpId};
use crate::header::{Body, Header};
use crate::md::Md;
use crate::memory::{Segment, Segments};
use crate::types::{MAX_MESSAGE, ProcessId};

/// A message to send.
#[derive(Clone, Debug)]
pub struct Transmit {
    /// What to tell the target.
    pub header: Header,
    /// The descriptor of `payload`, or of `landing` for a get.
    pub md: MdHandle,
    /// The bytes that follow the header, in order.
    pub payload: Segments,
    /// To give to [`Ni::send_end`] once the payload memory may be reused; `None` when nothing
    /// waits for that.
    pub op: Option<OpId>,
    /// For a get: where the reply will land, so that a fabric with remote writes can place it.
    pub landing: Segments,
}

/// Where the reply to a get lands, or what a put sends, checked, of an operation that has had no effect yet ([`Ni::landing`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    /// The descriptor.
    pub md: MdHandle,
    /// Where in it, bytes.
    pub offset: u64,
    /// The memory.
    pub memory: Segment,
    /// The descriptor has no threshold, so that an operation changes nothing of it, and a queue for events.
    pub plain: bool,
}

/// What the target of a put or get would have answered, who took all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InPlace {
    /// The descriptor that waits for the answer.
    pub md: MdHandle,
    /// The target.
    pub target: ProcessId,
    /// Portal index of the request.
    pub pt_index: u32,
    /// Match bits of the request.
    pub match_bits: u64,
    /// In the target's descriptor for a put, in the own one for a get; bytes.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
}

impl Ni {
    /// An MD that may initiate.
    #[inline(always)]
    pub(super) fn source(&self, handle: MdHandle) -> Result<&Md, Error> {
        let md = self.md(handle).filter(|md| md.active);
        md.ok_or(Error::MdInvalid)
    }

    /// The memory of a checked region.
    #[inline(always)]
    pub(super) fn memory_of(
        &self,
        handle: MdHandle,
        md: &Md,
        (offset, length): (u64, u64),
    ) -> Segments {
        let slot = handle.0.slot();
        self.mds.slice(slot, md.region(), offset, length)
    }

    /// The checked region of an MD.
    #[inline(always)]
    pub(super) fn region(
        &self,
        handle: MdHandle,
        md: &Md,
        region: Option<(u64, u64)>,
    ) -> Result<(u64, u64), Error> {
        let whole = self.mds.length(handle.0.slot(), md);
        let (offset, length) = region.unwrap_or((0, whole));
        let end = offset.checked_add(length).ok_or(Error::MdIllegal)?;
        if end > whole || length > MAX_MESSAGE {
            return Err(Error::MdIllegal);
        }
        Ok((offset, length))
    }

    #[inline]
    pub(super) fn header(
        &self,
        target: ProcessId,
        pt_index: u32,
        match_bits: u64,
        body: Body,
    ) -> Header {
        Header {
            target,
            source: self.config.id,
            uid: self.config.uid,
            jid: self.config.jid,
            pt_index,
            match_bits,
            body,
        }
    }

    /// `PtlGet`, or `PtlGetRegion` when `region` is `(local offset, length)`.
    #[expect(
        clippy::too_many_arguments,
        reason = "the specification's argument list"
    )]
    pub fn get(
        &mut self,
        md_handle: MdHandle,
        region: Option<(u64, u64)>,
        target: ProcessId,
        pt_index: u32,
        ac_index: u32,
        match_bits: u64,
        remote_offset: u64,
    ) -> Result<Transmit, Error> {
        let md = self.source(md_handle)?;
        let (offset, length) = self.region(md_handle, md, region)?;
        let landing = self.memory_of(md_handle, md, (offset, length));
        let body = Body::Get {
            length,
            remote_offset,
            ac_index,
            reply_md: md_handle,
            reply_offset: offset,
        };
        let header = self.header(target, pt_index, match_bits, body);
        let op = if self.config.get_send_events {
            self.check_room()?;
            let what = Self::sending(&self.config, &header, offset, length);
            Some(self.start_send(md_handle, what, 0)?)
        } else {
            self.status.send_count += 1;
            None
        };
        self.expect_reply(md_handle);
        Ok(Transmit {
            header,
            md: md_handle,
            payload: Segments::new(),
            op,
            landing,
        })
    }

    /// The checks of [`Ni::get`], which change nothing, of one that needs no record: `None` where the reply lands in pieces,
    /// or SEND events are posted of gets. To be followed by [`Ni::pass_get`] before anything else is asked of the
    /// interface, or by nothing.
    #[inline(always)]
    pub fn landing(
        &self,
        md_handle: MdHandle,
        region: Option<(u64, u64)>,
    ) -> Result<Option<Landing>, Error> {
        let md = self.source(md_handle)?;
        let (offset, len) = self.region(md_handle, md, region)?;
        let whole = md.region().filter(|_| !self.config.get_send_events);
        Ok(whole.map(|whole| Landing {
            md: md_handle,
            offset,
            memory: Segment {
                addr: whole.addr + offset,
                len,
            },
            plain: md.is_endless() && md.shown.eq.is_some(),
        }))
    }

    /// The get of a landing has left.
    #[inline(always)]
    pub fn pass_get(&mut self, landing: &Landing) {
        self.status.send_count += 1;
        if let Some(rest) = self.mds.rest_at_mut(landing.md.0.slot()) {
            rest.replies_due = rest.replies_due.saturating_add(1);
        }
    }

    /// The get of a landing has left, and its data is there. Its caller knows, so that no event says so; only for descriptors
    /// to which nothing happens by it ([`Landing::plain`]).
    #[inline]
    pub fn pass_awaited_get(&mut self, landing: &Landing) {
        self.status.send_count += 1;
        self.status.recv_count += 1;
        let received = self.status.recv_length.wrapping_add(landing.memory.len);
        self.status.recv_length = received;
        self.count_passed();
    }

    /// `PtlGetPut`, or `PtlGetPutRegion` when `regions` is `(get offset, put offset, length)`.
    /// At most `max_getput_md` bytes.
    #[expect(
        clippy::too_many_arguments,
        reason = "the specification's argument list"
    )]
    pub fn get_put(
        &mut self,
        get_md: MdHandle,
        put_md: MdHandle,
        regions: Option<(u64, u64, u64)>,
        target: ProcessId,
        pt_index: u32,
        ac_index: u32,
        match_bits: u64,
        remote_offset: u64,
        hdr_data: u64,
    ) -> Result<Transmit, Error> {
        let own = Some(self.config.interface);
        if [get_md, put_md]
            .iter()
            .any(|md| md.0.interface().is_some() && md.0.interface() != own)
        {
            return Err(Error::MdIllegal);
        }
        // Both handles are looked at before either region.
        let (md, into) = (self.source(put_md)?, self.source(get_md)?);
        let (offset, length) = self.region(put_md, md, regions.map(|(_, p, l)| (p, l)))?;
        let payload = self.memory_of(put_md, md, (offset, length));
        let get_region = regions.map_or((0, 0), |(g, _, l)| (g, l));
        let (reply_offset, _) = self.region(get_md, into, Some(get_region))?;
        if length > self.config.limits.max_getput_md as u64 {
            return Err(Error::MdIllegal);
        }
        let header = self.header(
            target,
            pt_index,
            match_bits,
            Body::GetPut {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                reply_md: get_md,
                reply_offset,
            },
        );
        self.check_room()?;
        let what = Self::sending(&self.config, &header, offset, length);
        let op = self.start_send(put_md, what, length)?;
        self.expect_reply(get_md);
        Ok(Transmit {
            header,
            md: put_md,
            payload,
            op: Some(op),
            landing: Segments::new(),
        })
    }

    #[inline]
    fn expect_reply(&mut self, md: MdHandle) {
        if let Some(rest) = self.md_rest_mut(md) {
            rest.replies_due = rest.replies_due.saturating_add(1);
        }
    }

    pub(super) fn check_room(&self) -> Result<(), Error> {
        self.has_room().then_some(()).ok_or(Error::NoSpace)
    }

    #[inline]
    pub(super) fn count_sent(&mut self, bytes: u64) {
        self.status.send_count += 1;
        self.status.send_length += bytes;
    }

    /// What the events of a request say.
    #[inline(always)]
    pub(super) fn sending(config: &NiConfig, header: &Header, offset: u64, length: u64) -> What {
        let hdr_data = match header.body {
            Body::Put { hdr_data, .. } | Body::GetPut { hdr_data, .. } => hdr_data,
            _ => 0,
        };
        What {
            initiator: config.id,
            uid: config.uid,
            jid: config.jid,
            pt_index: header.pt_index,
            match_bits: header.match_bits,
            rlength: length,
            mlength: length,
            offset,
            hdr_data,
        }
    }

    /// SEND_START, one threshold count, and the record that SEND_END needs.
    pub(super) fn start_send(
        &mut self,
        md: MdHandle,
        what: What,
        sent: u64,
    ) -> Result<OpId, Error> {
        self.count_sent(sent);
        let events = (EventKind::SendStart, EventKind::SendEnd);
        let account = Account::Operation;
        self.begin(md, account, OpKind::Send, events, what, None)
            .map(|begun| begun.op)
            .ok_or(Error::NoSpace)
    }

    #[inline]
    pub(super) fn in_place(&self, answer: &InPlace, mlength: u64) -> What {
        What {
            initiator: answer.target,
            uid: self.config.uid,
            jid: self.config.jid,
            pt_index: answer.pt_index,
            match_bits: answer.match_bits,
            rlength: answer.length,
            mlength,
            offset: answer.offset,
            hdr_data: 0,
        }
    }

    /// Handles the reply of a get in place, which no peer sends, and ends its deposit.
    #[inline]
    pub fn reply_in_place(&mut self, answer: &InPlace, fail: NiFail) {
        match self.room_for_reply(answer) {
            Some(length) => {
                self.status.recv_count += 1;
                self.status.recv_length = self.status.recv_length.wrapping_add(length);
                let what = self.in_place(answer, length);
                let events = (EventKind::ReplyStart, EventKind::ReplyEnd);
                let account = Account::Operation;
                self.pass(answer.md, account, events, |_| what, fail, false);
            }
            None => self.drop_in_place(answer.length),
        }
    }

    /// How much of a reply that is awaited lies in its descriptor.
    #[inline(always)]
    fn room_for_reply(&mut self, answer: &InPlace) -> Option<u64> {
        let slot = answer.md.0.slot();
        let rest = self.md_rest_mut(answer.md)?;
        rest.replies_due = rest.replies_due.checked_sub(1)?;
        let md = self.mds.at(slot).filter(|md| md.active)?;
        let room = self.mds.length(slot, md).checked_sub(answer.offset)?;
        Some(answer.length.min(room))
    }

    #[cold]
    pub(super) fn drop_in_place(&mut self, length: u64) {
        self.status.drop_count += 1;
        self.status.drop_length = self.status.drop_length.wrapping_add(length);
    }
}
