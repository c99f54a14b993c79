//! One-sided operations of one request each, while they are under way: what their ends do.
//!
//! A get into memory in one piece, or a put whose data the post has copied, needs nothing at its end but the answer that
//! the target would have given. These are the operations that come in rows, so that their records are written where they
//! stay, left there, and used again; all others have a [`Record`](super::Record).

mod table;

use crate::verbs::Verbs;
use portals_core::{InPlace, Ni, NiFail};
pub(super) use table::{Alone, is_alone};
use table::{End, Waited};

impl Verbs {
    /// The request of an id that [`is_alone`] has succeeded.
    #[inline(always)]
    pub(super) fn alone_done(&mut self, ni: &mut Ni, id: u64) {
        self.get_over(id, true);
        match self.alone.end(id, false) {
            Some((End::Reply, answer)) => ni.reply_in_place(answer, NiFail::OK),
            Some((End::Ack, answer)) => ni.ack_in_place(answer),
            _ => {}
        }
    }

    /// Ends an operation by the adapters alone that has failed; see [`Verbs::alone_done`].
    #[cold]
    pub(super) fn alone_failed(&mut self, ni: &mut Ni, id: u64) {
        self.get_over(id, false);
        if let Some((end, answer)) = self.alone.end(id, true) {
            let answer = *answer;
            self.answer_failed(ni, end, &answer);
        }
    }

    fn answer_failed(&self, ni: &mut Ni, end: End, answer: &InPlace) {
        match end {
            End::Reply => ni.reply_in_place(answer, NiFail::FAIL),
            End::Ack => ni.ack_lost(&self.unanswered(answer)),
            End::Free | End::Nothing => {}
        }
    }

    /// Nobody waits for a request by itself any more: it is answered as any other.
    pub(super) fn wait_no_more(&mut self, ni: &mut Ni) {
        if let Waited::Failed(end, answer) = std::mem::take(&mut self.alone.waited) {
            self.answer_failed(ni, end, &answer);
        }
    }
}
