//! Starting operations (rules 14, 19-23, 37-44).

use super::Ni;
use super::complete::{OpKind, What};
use crate::error::Error;
use crate::event::EventKind;
use crate::handle::{MdHandle, OpId};
use crate::header::{Body, Header};
use crate::md::Md;
use crate::memory::Segments;
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

impl Ni {
    /// An MD that may initiate, and the checked region of it.
    fn source(&self, md: MdHandle, region: Option<(u64, u64)>) -> Result<(u64, u64), Error> {
        let slot = md.0.slot();
        let md = self.md(md).filter(|md| md.active).ok_or(Error::MdInvalid)?;
        let whole = self.mds.length(slot, md);
        let (offset, length) = region.unwrap_or((0, whole));
        let end = offset.checked_add(length).ok_or(Error::MdIllegal)?;
        if end > whole || length > MAX_MESSAGE {
            return Err(Error::MdIllegal);
        }
        Ok((offset, length))
    }

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
        let (offset, length) = self.source(md_handle, region)?;
        let md = self.md(md_handle).ok_or(Error::MdInvalid)?;
        let payload = self
            .mds
            .slice(md_handle.0.slot(), md.region(), offset, length);
        let ack_md = (ack == AckRequest::Ack && md.shown.eq.is_some()).then_some(md_handle);
        let header = self.header(
            target,
            pt_index,
            match_bits,
            Body::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ack_md,
            },
        );
        let op = self.start_send(md_handle, &header, offset, length, hdr_data)?;
        if ack_md.is_some()
            && let Some(rest) = self.md_rest_mut(md_handle)
        {
            rest.acks_due = rest.acks_due.saturating_add(1);
        }
        Ok(Transmit {
            header,
            md: md_handle,
            payload,
            op: Some(op),
            landing: Segments::new(),
        })
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
        let (offset, length) = self.source(md_handle, region)?;
        let md = self.md(md_handle).ok_or(Error::MdInvalid)?;
        let landing = self
            .mds
            .slice(md_handle.0.slot(), md.region(), offset, length);
        let header = self.header(
            target,
            pt_index,
            match_bits,
            Body::Get {
                length,
                remote_offset,
                ac_index,
                reply_md: md_handle,
                reply_offset: offset,
            },
        );
        let op = if self.config.get_send_events {
            Some(self.start_send(md_handle, &header, offset, length, 0)?)
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
        let (offset, length) = self.source(put_md, regions.map(|(_, p, l)| (p, l)))?;
        let (reply_offset, _) = match regions {
            Some((g, _, l)) => self.source(get_md, Some((g, l)))?,
            None => self.source(get_md, Some((0, 0)))?,
        };
        if length > self.config.limits.max_getput_md as u64 {
            return Err(Error::MdIllegal);
        }
        let md = self.md(put_md).ok_or(Error::MdInvalid)?;
        let payload = self.mds.slice(put_md.0.slot(), md.region(), offset, length);
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
        let op = self.start_send(put_md, &header, offset, length, hdr_data)?;
        self.expect_reply(get_md);
        Ok(Transmit {
            header,
            md: put_md,
            payload,
            op: Some(op),
            landing: Segments::new(),
        })
    }

    fn expect_reply(&mut self, md: MdHandle) {
        if let Some(rest) = self.md_rest_mut(md) {
            rest.replies_due = rest.replies_due.saturating_add(1);
        }
    }

    /// SEND_START, one threshold count, and the record that SEND_END needs.
    fn start_send(
        &mut self,
        md: MdHandle,
        header: &Header,
        offset: u64,
        length: u64,
        hdr_data: u64,
    ) -> Result<OpId, Error> {
        if !self.has_room() {
            return Err(Error::NoSpace);
        }
        self.status.send_count += 1;
        self.status.send_length += header.payload_len();
        let what = What {
            initiator: self.config.id,
            uid: self.config.uid,
            jid: self.config.jid,
            pt_index: header.pt_index,
            match_bits: header.match_bits,
            rlength: length,
            mlength: length,
            offset,
            hdr_data,
        };
        let events = (EventKind::SendStart, EventKind::SendEnd);
        let account = |md: &mut Md, _| md.consume();
        self.begin(md, account, OpKind::Send, events, what, None)
            .map(|begun| begun.op)
            .ok_or(Error::NoSpace)
    }
}
