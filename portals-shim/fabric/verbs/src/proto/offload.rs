//! RDMA operations of one request each, while they are under way: what their ends do.
//!
//! A get into memory in one piece, or a put whose data the post has copied, needs nothing at its end but the answer that
//! the target would have given. These are the operations that come in rows, so that their records are written where they
//! stay, left there, and used again; all others have a [`Record`](crate::verbs::Record).

mod table;

use super::ending::Ending;
use crate::verbs::Verbs;
use portals_core::{Body, Header, InPlace, MdHandle, Ni, NiFail};
use table::Waited;
pub(crate) use table::{End, Offloaded, is_offloaded};

/// Those of a peer that is given up fail.
pub(super) const ENDING: Ending = Ending {
    under_way: |verbs, rank| verbs.offloaded.of(rank).len(),
    end: |verbs, ni, rank| {
        for id in verbs.offloaded.of(rank) {
            verbs.offloaded_failed(ni, id, NiFail::FAIL);
        }
    },
};

/// The answer to a request whose target gives none itself, for `md`.
#[inline(always)]
pub(crate) fn answer_in_place(request: &Header, md: MdHandle, offset: u64, length: u64) -> InPlace {
    InPlace {
        md,
        target: request.target,
        pt_index: request.pt_index,
        match_bits: request.match_bits,
        offset,
        length,
    }
}

impl Verbs {
    /// Ends an offloaded operation that has failed.
    #[cold]
    pub(crate) fn offloaded_failed(&mut self, ni: &mut Ni, id: u64, fail: NiFail) {
        self.stop_timing(id, false);
        if let Some((end, answer)) = self.offloaded.end(id, fail) {
            let answer = *answer;
            self.answer_failed(ni, end, &answer, fail);
        }
    }

    fn answer_failed(&self, ni: &mut Ni, end: End, answer: &InPlace, fail: NiFail) {
        match end {
            End::Reply => ni.reply_in_place(answer, fail),
            End::Ack => ni.ack_lost(&self.unanswered(answer), fail),
            End::Free | End::Nothing => {}
        }
    }

    /// Nobody waits for a request by itself any more: it is answered as any other.
    pub(crate) fn wait_no_more(&mut self, ni: &mut Ni) {
        if let Waited::Failed(end, answer, fail) = std::mem::take(&mut self.offloaded.waited) {
            self.answer_failed(ni, end, &answer, fail);
        }
    }

    /// The put that an ack is not coming for, as far as it is looked at.
    pub(crate) fn unanswered(&self, ack: &InPlace) -> Header {
        Header {
            target: ack.target,
            source: self.id,
            uid: self.conn.who.0,
            jid: self.conn.who.1,
            pt_index: ack.pt_index,
            match_bits: ack.match_bits,
            body: Body::Put {
                length: ack.length,
                remote_offset: ack.offset,
                hdr_data: 0,
                ac_index: 0,
                ack_md: Some(ack.md),
            },
        }
    }
}
