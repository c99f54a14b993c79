//! Buffers of multi-receives: a program has one back when no message is under way into it any more.
//!
//! A short message is there at once, while the bytes of a long one are still to be fetched. So the message that fills a buffer, and the
//! end of the receive, may come before the bytes of earlier messages.

use crate::completion::{End, Failure, Op, flags};
use crate::matching::Receive;
use rustc_hash::FxHashMap;

/// What a message takes of the buffer of a receive.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// The number of the multi-receive, or 0.
    pub(crate) number: u64,
    /// Behind it is too little room for another message.
    pub(crate) fills: bool,
}

/// What ends a multi-receive.
#[derive(Debug)]
pub(crate) enum Ending {
    /// There is no room for another message: the last one that ends says so.
    Full,
    /// The receive takes no more for this reason, and has an end of its own, behind the last message.
    Failed(Receive, Failure),
}

#[derive(Debug, Default)]
struct Buffer {
    under_way: usize,
    ending: Option<Ending>,
}

/// The buffers into which messages are under way, by the numbers of their receives. A number is never 0.
#[derive(Debug, Default)]
pub(crate) struct MultiReceives(FxHashMap<u64, Buffer>);

impl MultiReceives {
    /// A message is in its part, and ends so. Who gives a buffer back is told of even if the program wants no completions.
    #[inline]
    pub(crate) fn has_come(&mut self, part: Part, op: &mut Op, end: &mut End) {
        if part.fills && self.ends(part.number, Ending::Full).is_some() {
            give_back(op, end);
        }
    }

    /// The bytes of a message are to be fetched into its part.
    pub(crate) fn begins(&mut self, part: Part, end: &mut End) {
        if part.number == 0 {
            return;
        }
        end.multi = part.number;
        let buffer = self.0.entry(part.number).or_default();
        buffer.under_way += 1;
        if part.fills {
            buffer.ending = Some(Ending::Full);
        }
    }

    /// No further message goes into a buffer. Gives that back if no message is under way; else the last of them gives it.
    pub(crate) fn ends(&mut self, number: u64, ending: Ending) -> Option<Ending> {
        match self.0.get_mut(&number) {
            Some(buffer) => {
                buffer.ending = Some(ending);
                None
            }
            None => Some(ending),
        }
    }

    /// A message is not under way any more, and ends so. Gives the receive that ends behind it.
    pub(crate) fn landed(&mut self, op: &mut Op, end: &mut End) -> Option<(Receive, Failure)> {
        let buffer = self.0.get_mut(&end.multi)?;
        buffer.under_way -= 1;
        if buffer.under_way > 0 {
            return None;
        }
        match self.0.remove(&end.multi)?.ending? {
            Ending::Full => give_back(op, end),
            Ending::Failed(receive, why) => return Some((receive, why)),
        }
        None
    }
}

fn give_back(op: &mut Op, end: &mut End) {
    op.told = true;
    end.flags |= flags::MULTI_RECV;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_given_back_behind_the_last_message() {
        let mut all = MultiReceives::default();
        let part = |number, fills| Part { number, fills };
        // A message that is there, and says whether it gives the buffer back.
        let short = |all: &mut MultiReceives, part| {
            let (mut op, mut end) = (Op::default(), End::default());
            all.has_come(part, &mut op, &mut end);
            assert_eq!(op.told, end.flags != 0);
            op.told
        };
        let begins = |all: &mut MultiReceives, part| {
            let mut end = End::default();
            all.begins(part, &mut end);
            end
        };
        let landed = |all: &mut MultiReceives, mut end: End| {
            let mut op = Op::default();
            assert!(all.landed(&mut op, &mut end).is_none());
            op.told
        };
        assert!(short(&mut all, part(7, true)), "nothing is under way");
        let first = begins(&mut all, part(7, false));
        let second = begins(&mut all, part(7, false));
        let other = begins(&mut all, part(8, false));
        let alone = begins(&mut all, Part::default());
        assert!(!landed(&mut all, first));
        assert!(!short(&mut all, part(7, true)));
        assert!(!landed(&mut all, other), "it takes further messages");
        assert!(!landed(&mut all, alone));
        assert!(landed(&mut all, second));
        let last = begins(&mut all, part(9, true));
        assert!(landed(&mut all, last));
        assert!(all.0.is_empty());
    }
}
