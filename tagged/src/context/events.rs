//! What each event means.

use super::kept::Kept;
use super::receive::ended;
use super::{Context, OTHERS, Place as Whereabouts, Receipts, owner};
use crate::error::{CallError, RequestError};
use crate::flow::Flow;
use crate::header::{HeaderData, Word};
use crate::request::{Kind, Requests};
use crate::unexpected::{Arrived, Loss, Place};
use crate::{Counts, Status};
use portals_shim::{Brief, Event, EventKind, NiFail};

/// The source of a message that is not from whom it says.
const NOBODY: u32 = u32::MAX;

impl Context {
    /// An event of another descriptor than that of a posted receive.
    #[inline(never)]
    pub(super) fn handle_other<const FULL: bool>(
        &mut self,
        event: &Brief,
    ) -> Result<(), CallError> {
        let (owner, index) = ((event.user_ptr >> 32) as u32, event.user_ptr as u32);
        match (owner, event.kind) {
            (owner::SOURCE, EventKind::SendEnd) => self.handle_sent(event),
            (owner::OVERFLOW | owner::HEADER, EventKind::PutStart) => {
                self.handle_start::<FULL>(event);
            }
            (owner::OVERFLOW, EventKind::PutEnd) => self.handle_end(event, Some(index)),
            (owner::OVERFLOW, EventKind::Unlink) => return self.handle_full(index),
            (owner::HEADER, EventKind::PutEnd) => self.handle_end(event, None),
            (owner::RELEASED, EventKind::SendEnd | EventKind::Ack | EventKind::GetEnd) => {
                self.handle_released(index, event);
            }
            (owner::FETCH, EventKind::ReplyEnd) => self.handle_fetched(index, event),
            (owner::CREDIT, EventKind::PutEnd) => {
                let data = HeaderData::unpack(event.hdr_data);
                if self.is_from(event, data.source) {
                    self.flow.given_back(data.source, data.credits);
                    return self.handle_word(data.source, Word::unpack(event.match_bits));
                }
            }
            // The end of a descriptor that was made for one operation.
            _ => {}
        }
        Ok(())
    }

    /// Whether rank `source` sent what an event tells of; counted if not.
    #[inline]
    fn is_from(&mut self, event: &Brief, source: u32) -> bool {
        is_from(&self.place, &mut self.counts, event, source)
    }

    /// See [`read_header`].
    #[inline]
    fn handle_header<const FULL: bool>(&mut self, event: &Brief) -> Option<HeaderData> {
        read_header::<FULL>(&self.place, &mut self.counts, &mut self.flow, event)
    }

    fn handle_start<const FULL: bool>(&mut self, event: &Brief) {
        let sync = event.match_bits & self.place.layout.sync_bit() != 0;
        // A message of nobody keeps its place until its data is there, and no receive finds it.
        let known = self.handle_header::<FULL>(event);
        let (source, operation) = known.map_or((NOBODY, 0), |data| (data.source, data.operation));
        let arrived = Arrived {
            bits: event.match_bits,
            source,
            operation,
            sync,
            length: event.rlength,
            place: Place::Arriving,
            taker: None,
            noted: false,
        };
        let id = self.unexpected.push(arrived, event.link);
        if known.is_none() {
            self.unexpected.take(id);
        }
    }

    fn handle_end(&mut self, event: &Brief, buffer: Option<u32>) {
        let Some(id) = self.unexpected.ended(event.link) else {
            return;
        };
        let failed = event.ni_fail != NiFail::OK;
        let Some(arrived) = self.unexpected.get_mut(id) else {
            return;
        };
        if arrived.source == NOBODY {
            self.unexpected.remove(id);
            return;
        }
        arrived.place = match buffer {
            _ if failed => Place::Lost(match event.ni_fail {
                NiFail::SEGV => Loss::Memory,
                _ => Loss::Fabric,
            }),
            Some(buffer) => Place::Buffer {
                buffer,
                offset: usize::try_from(event.offset).unwrap_or(usize::MAX),
            },
            None if arrived.sync => Place::AtSender,
            None => Place::Lost(Loss::NoRoom),
        };
        let kept = matches!(arrived.place, Place::AtSender);
        let (taker, source) = (arrived.taker, arrived.source);
        if kept {
            self.unexpected.notable(id);
            self.flow.notable(source);
        }
        if let Some(slot) = taker {
            self.deliver(slot, id);
        }
    }

    /// What a message of the library's own says, beside credits.
    fn handle_word(&mut self, source: u32, word: Word) -> Result<(), CallError> {
        match word {
            Word::Credits => Ok(()),
            Word::Note(slot) => {
                if let Some(Kind::Released { to, noted, .. }) = self.requests.active(slot)
                    && *to == source
                    && !*noted
                {
                    *noted = true;
                    self.flow.noted(source);
                }
                Ok(())
            }
            Word::Hello(options) if options == self.options => Ok(()),
            Word::Hello(_) | Word::Refused => self.refuse(source),
        }
    }

    /// An overflow buffer takes no more: what is in it makes room, and it is posted anew.
    fn handle_full(&mut self, buffer: u32) -> Result<(), CallError> {
        if let Some(region) = self.overflow.get(buffer as usize) {
            self.counts.moved += self.unexpected.vacate(buffer, |offset, bytes| {
                region.read(offset, bytes).map_err(|_| Loss::NoRoom)
            });
        }
        self.post_overflow(buffer).map_err(CallError::Portals)
    }

    /// The event that was read is of a posted receive, which has no other than PUT_END.
    #[inline(always)]
    pub(super) fn handle_receipt<const FULL: bool>(&mut self) {
        let Self {
            place,
            requests,
            kept,
            flow,
            counts,
            polled,
            ..
        } = self;
        receipt::<FULL>(place, requests, kept, flow, counts, polled);
    }

    /// Takes the events of posted receives that follow the one that was read, at most so many, where they lie and with the
    /// library locked once for all of them.
    #[inline]
    pub(super) fn receipts<const FULL: bool>(&mut self, most: u32) -> Result<Receipts, CallError> {
        let Self {
            place,
            queues,
            requests,
            kept,
            flow,
            counts,
            polled,
            ..
        } = self;
        let (mut count, mut other) = (0, false);
        let mut take = |event: &Event| {
            other = count == most || !is_receipt(event.md.user_ptr);
            if other {
                return false;
            }
            count += 1;
            let brief = Brief::new(event, false, OTHERS);
            receipt::<FULL>(place, requests, kept, flow, counts, &brief);
            true
        };
        place.ni.eq_take_while(queues[OTHERS], &mut take)?;
        // The queue of unexpected messages had none when the event was taken, if that was of this queue.
        Ok(Receipts {
            count,
            all: count > 0 && !other && polled.which == OTHERS,
        })
    }

    fn handle_sent(&mut self, event: &Brief) {
        let slot = HeaderData::unpack(event.hdr_data).operation;
        if matches!(self.requests.active(slot), Some(Kind::Short)) {
            let end = if event.ni_fail == NiFail::OK {
                Ok(Status::sent(
                    usize::try_from(event.rlength).unwrap_or(usize::MAX),
                ))
            } else {
                Err(RequestError::of(event.ni_fail, NOBODY))
            };
            self.requests.end(slot, end);
        }
    }

    /// A message that the receiver releases: its data is on its way, a receive has it, or it was fetched.
    fn handle_released(&mut self, slot: u32, event: &Brief) {
        let Some(Kind::Released {
            to,
            len,
            me,
            sent,
            released,
            noted,
        }) = self.requests.active(slot)
        else {
            return;
        };
        match event.kind {
            EventKind::SendEnd => *sent = true,
            _ => *released = true,
        }
        let failed = event.ni_fail != NiFail::OK;
        if !(failed || *sent && *released) {
            return;
        }
        let (to, len, me) = (*to, *len, *me);
        if !*noted {
            self.flow.released(to);
        }
        let gone = self.place.ni.me_unlink(me);
        if let Err(error) = gone {
            tracing::debug!("the entry of a message that was released: {error}");
        }
        let end = if failed {
            Err(RequestError::of(event.ni_fail, to))
        } else {
            Ok(Status::sent(len))
        };
        self.requests.end(slot, end);
    }

    fn handle_fetched(&mut self, slot: u32, event: &Brief) {
        let Some(Kind::Fetching { status, sent }) = self.requests.active(slot) else {
            return;
        };
        let (status, sent) = (*status, *sent);
        let end = if event.ni_fail == NiFail::OK {
            ended(status, sent)
        } else {
            Err(RequestError::of(event.ni_fail, status.source))
        };
        self.requests.end(slot, end);
    }
}

/// Whether an event with this user's value is of a posted receive.
#[inline(always)]
pub(super) const fn is_receipt(user_ptr: u64) -> bool {
    user_ptr >> 32 == owner::POSTED as u64
}

/// What the PUT_END of a posted receive does.
#[inline(always)]
fn receipt<const FULL: bool>(
    place: &Whereabouts,
    requests: &mut Requests,
    kept: &mut Kept,
    flow: &mut Flow,
    counts: &mut Counts,
    event: &Brief,
) {
    let slot = event.user_ptr as u32;
    let known = read_header::<FULL>(place, counts, flow, event).is_some();
    let told = HeaderData::unpack(event.hdr_data).source;
    let Some((end, spot)) = requests.receipt(slot) else {
        return;
    };
    kept.ended(spot);
    if event.ni_fail != NiFail::OK || !known {
        *end = Err(RequestError::of(event.ni_fail, told));
        return;
    }
    let layout = &place.layout;
    if event.match_bits & layout.sync_bit() == 0 {
        flow.received(told);
    }
    let status = Status {
        source: told,
        tag: layout.tag(event.match_bits),
        len: usize::try_from(event.mlength).unwrap_or(usize::MAX),
    };
    if event.rlength > event.mlength {
        *end = ended(status, event.rlength);
    } else {
        *end = Ok(status);
    }
}

/// Whether rank `source` sent what an event tells of; counted if not.
#[inline(always)]
fn is_from(everybody: &Whereabouts, counts: &mut Counts, event: &Brief, source: u32) -> bool {
    let is = everybody.peers.get(source as usize) == Some(&event.initiator);
    counts.forged += u64::from(!is);
    is
}

/// What the header of a message says, and the credits that it brings; `None` if it is not from whom it says.
#[inline(always)]
fn read_header<const FULL: bool>(
    everybody: &Whereabouts,
    counts: &mut Counts,
    flow: &mut Flow,
    event: &Brief,
) -> Option<HeaderData> {
    let data = HeaderData::unpack(event.hdr_data);
    let source = everybody
        .layout
        .source::<FULL>(event.match_bits, data.source);
    if source != data.source || !is_from(everybody, counts, event, source) {
        return None;
    }
    flow.given_back(source, data.credits);
    Some(data)
}
