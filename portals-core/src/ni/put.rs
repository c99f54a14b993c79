//! A put at its initiator: its checks, its beginning, its end, and the ACK that a fabric makes in the target's place
//! (rules 14, 19-23, 37-44).

use super::complete::Account;
use super::initiate::{InPlace, Landing, Transmit};
use super::{Ni, NiConfig};
use crate::error::Error;
use crate::event::{EventKind, NiFail};
use crate::handle::{MdHandle, OpId};
use crate::header::{Body, Header};
use crate::memory::Segments;
use crate::types::ProcessId;
use serde::{Deserialize, Serialize};

/// Whether a put wants an ack (`ptl_ack_req_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AckRequest {
    /// `PTL_ACK_REQ`
    Ack,
    /// `PTL_NO_ACK_REQ`
    NoAck,
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

impl Ni {
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

    /// Counts a put that was waited for and is acknowledged; see [`Ni::pass_awaited_get`].
    #[inline]
    pub fn pass_awaited_put(&mut self, source: &Landing) {
        self.count_sent(source.memory.len);
        self.count_passed();
    }

    /// Handles the ack of a put in place, which no peer sends.
    #[inline]
    pub fn ack_in_place(&mut self, answer: &InPlace) {
        let awaited = self.await_less(answer.md, |rest| &mut rest.acks_due);
        let md = self.mds.at(answer.md.0.slot());
        if awaited.is_err() || !md.is_some_and(|md| md.active && md.shown.eq.is_some()) {
            return self.drop_in_place(0);
        }
        let what = self.in_place(answer, answer.length);
        self.post_ack(answer.md, what, NiFail::OK);
    }
}
