//! Puts and gets whose data a fabric has placed by itself: their targets send no answer, so that the initiator's side
//! makes the event that the answer would have made (rules 14, 17, 18).

use super::Ni;
use super::complete::{Account, What};
use crate::event::{EventKind, NiFail};
use crate::handle::MdHandle;
use crate::types::ProcessId;

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
    #[inline]
    fn in_place(&self, answer: &InPlace, mlength: u64) -> What {
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
    fn drop_in_place(&mut self, length: u64) {
        self.status.drop_count += 1;
        self.status.drop_length = self.status.drop_length.wrapping_add(length);
    }
}
