//! Starting operations (rules 14, 19-23, 37-44).

use super::complete::{Account, OpKind, What};
use super::{Ni, NiConfig};
use crate::error::Error;
use crate::event::{EventKind, NiFail};
use crate::handle::{MdHandle, OpId};
use crate::header::{Body, Header};
use crate::md::Md;
use crate::memory::{Segment, Segments};
use crate::types::{MAX_MESSAGE, ProcessId};
use serde::{Deserialize, Serialize};

/// Whether a put wants an ack (`ptl_ack_req_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AckRequest {
    /// `PTL_ACK_REQ`
    Ack,
    /// `PTL_NO_ACK_REQ`
    NoAck,
}

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

/// A put that was checked and has had no effect yet ([`Ni::ready_put`]).
#[derive(Clone, Debug)]
pub struct ReadyPut {
    /// What to tell the target.
    pub header: Header,
    /// The bytes that follow the header, in order.
    pub payload: Segments,
    /// The descriptor of the payload.
    pub md: MdHandle,
    offset: u64,
    // What the header has too, for when it has left.
    length: u64,
    ack_md: Option<MdHandle>,
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

impl Ni {
    /// An MD that may initiate.
    #[inline(always)]
    fn source(&self, handle: MdHandle) -> Result<&Md, Error> {
        let md = self.md(handle).filter(|md| md.active);
        md.ok_or(Error::MdInvalid)
    }

    /// The memory of a checked region.
    #[inline(always)]
    fn memory_of(&self, handle: MdHandle, md: &Md, (offset, length): (u64, u64)) -> Segments {
        let slot = handle.0.slot();
        self.mds.slice(slot, md.region(), offset, length)
    }

    /// The checked region of an MD.
    #[inline(always)]
    fn region(
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
    fn header(&self, target: ProcessId, pt_index: u32, match_bits: u64, body: Body) -> Header {
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

    /// `PtlPut`, or `PtlPutRegion` when `region` is `(local offset, length)`.
    ///
    /// The ack is asked for only when the MD has a queue to receive it (rule 14).
    #[expect(
        clippy::too_many_arguments,
        reason = "the specification's argument list"
    )]
    #[inline]
    pub fn put(
        &mut self,
        md_handle: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        target: ProcessId,
        pt_index: u32,
        ac_index: u32,
        match_bits: u64,
        remote_offset: u64,
        hdr_data: u64,
    ) -> Result<Transmit, Error> {
        let ready = self.ready_put(
            md_handle,
            region,
            ack,
            target,
            pt_index,
            ac_index,
            match_bits,
            remote_offset,
            hdr_data,
        )?;
        self.begin_put(ready)
    }

    /// The first half of [`Ni::put`]: the checks, which change nothing. To be followed by
    /// [`Ni::begin_put`] or [`Ni::pass_put`] before anything else is asked of the interface, or by
    /// nothing.
    #[expect(
        clippy::too_many_arguments,
        reason = "those of PtlPutRegion in the specification, which callers have one by one"
    )]
    #[inline(always)]
    pub fn ready_put(
        &self,
        md_handle: MdHandle,
        region: Option<(u64, u64)>,
        ack: AckRequest,
        target: ProcessId,
        pt_index: u32,
        ac_index: u32,
        match_bits: u64,
        remote_offset: u64,
        hdr_data: u64,
    ) -> Result<ReadyPut, Error> {
        let md = self.source(md_handle)?;
        let region = self.region(md_handle, md, region)?;
        let payload = self.memory_of(md_handle, md, region);
        let ack_md = (ack == AckRequest::Ack && md.shown.eq.is_some()).then_some(md_handle);
        let to = (target, pt_index, ac_index, match_bits, remote_offset);
        let header = self.put_header(to, region.1, hdr_data, ack_md);
        Ok(ReadyPut {
            header,
            payload,
            md: md_handle,
            offset: region.0,
            length: region.1,
            ack_md,
        })
    }

    /// The header of a put of `length` bytes to a process, portal, access control index, bits and offset.
    #[inline(always)]
    fn put_header(
        &self,
        (target, pt_index, ac_index, match_bits, remote_offset): (ProcessId, u32, u32, u64, u64),
        length: u64,
        hdr_data: u64,
        ack_md: Option<MdHandle>,
    ) -> Header {
        let body = Body::Put {
            length,
            remote_offset,
            hdr_data,
            ac_index,
            ack_md,
        };
        self.header(target, pt_index, match_bits, body)
    }

    /// The second half of [`Ni::put`].
    #[inline]
    pub fn begin_put(&mut self, ready: ReadyPut) -> Result<Transmit, Error> {
        let op = self.begin_lent(&ready)?;
        Ok(Transmit {
            header: ready.header,
            md: ready.md,
            payload: ready.payload,
            op: Some(op),
            landing: Segments::new(),
        })
    }

    /// Begins a put that has left, and whose memory is read until [`Ni::send_end`]. Does not fail where
    /// [`Ni::has_room`] has just been true.
    #[inline]
    pub fn begin_lent(&mut self, ready: &ReadyPut) -> Result<OpId, Error> {
        self.check_room()?;
        let what = Self::sending(&self.config, &ready.header, ready.offset, ready.length);
        let op = self.start_send(ready.md, what, ready.length)?;
        self.expect_ack(ready.ack_md);
        Ok(op)
    }

    /// A put whose payload has been sent, or could not be: begun and ended in one step. With `silent` it
    /// posts neither SEND_START nor SEND_END, for a caller that is told otherwise.
    #[inline(always)]
    pub fn pass_put(&mut self, ready: &ReadyPut, fail: NiFail, silent: bool) {
        let (header, offset, length) = (&ready.header, ready.offset, ready.length);
        let what = |config: &NiConfig| Self::sending(config, header, offset, length);
        self.status.send_length += ready.length;
        let events = (EventKind::SendStart, EventKind::SendEnd);
        let account = Account::Operation;
        self.expect_ack(ready.ack_md);
        self.pass(ready.md, account, events, what, fail, silent);
        self.status.send_count += 1;
    }

    #[inline]
    fn expect_ack(&mut self, ack_md: Option<MdHandle>) {
        if let Some(md) = ack_md
            && let Some(rest) = self.md_rest_mut(md)
        {
            rest.acks_due = rest.acks_due.saturating_add(1);
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

    /// Counts a put that was waited for and is acknowledged; see [`Ni::pass_awaited_get`].
    #[inline]
    pub fn pass_awaited_put(&mut self, source: &Landing) {
        self.count_sent(source.memory.len);
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

    fn check_room(&self) -> Result<(), Error> {
        self.has_room().then_some(()).ok_or(Error::NoSpace)
    }

    #[inline]
    fn count_sent(&mut self, bytes: u64) {
        self.status.send_count += 1;
        self.status.send_length += bytes;
    }

    /// What the events of a request say.
    #[inline(always)]
    fn sending(config: &NiConfig, header: &Header, offset: u64, length: u64) -> What {
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
    fn start_send(&mut self, md: MdHandle, what: What, sent: u64) -> Result<OpId, Error> {
        self.count_sent(sent);
        let events = (EventKind::SendStart, EventKind::SendEnd);
        let account = Account::Operation;
        self.begin(md, account, OpKind::Send, events, what, None)
            .map(|begun| begun.op)
            .ok_or(Error::NoSpace)
    }
}
