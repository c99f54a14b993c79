//! The order of a peer's messages.
//!
//! Portals begins the messages of a pair in the order in which they were sent. It ends them in any order: one that rides in its header has
//! ended while the data of a longer one is still on its way. So messages have numbers, and one that is early waits.

use std::collections::VecDeque;

/// When a message is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Now,
    /// Others that were sent before it have not arrived.
    Later,
    /// No engine sends it: it has the number of another, or so many are never under way.
    Never,
}

/// The most numbers that a message may be early by. A peer has a window of at most 64 messages under way, and answers of credits.
const MOST_EARLY: u16 = 1024;

/// The numbers of both directions, and messages of the peer that are early.
#[derive(Debug)]
pub(crate) struct Order<T> {
    /// Number of the next message that is sent.
    sends: u16,
    /// Number of the next message that is handled.
    awaits: u16,
    early: VecDeque<(u16, T)>,
}

impl<T> Default for Order<T> {
    fn default() -> Self {
        Self {
            sends: 0,
            awaits: 0,
            early: VecDeque::new(),
        }
    }
}

impl<T> Order<T> {
    /// The number of the next message that is sent.
    pub(crate) const fn next(&self) -> u16 {
        self.sends
    }

    /// The message with the number [`Order::next`] was sent.
    pub(crate) const fn sent(&mut self) {
        self.sends = self.sends.wrapping_add(1);
    }

    /// A message with this number has arrived. One from before a restart, of which nobody waits for others, is handled at once.
    #[inline]
    pub(crate) fn arrived(&mut self, number: u16) -> Turn {
        let ahead = number.wrapping_sub(self.awaits);
        if ahead == 0 {
            self.awaits = number.wrapping_add(1);
        }
        if ahead == 0 || ahead > u16::MAX / 2 {
            Turn::Now
        } else if ahead > MOST_EARLY || self.early.iter().any(|(n, _)| *n == number) {
            Turn::Never
        } else {
            Turn::Later
        }
    }

    /// Keeps a message whose turn is later.
    #[cold]
    pub(crate) fn keep(&mut self, number: u16, message: T) {
        self.early.push_back((number, message));
    }

    /// The message whose turn has come, if it has arrived already.
    #[inline]
    pub(crate) fn due(&mut self) -> Option<T> {
        if self.early.is_empty() {
            return None;
        }
        self.take(self.awaits)
    }

    #[cold]
    fn take(&mut self, number: u16) -> Option<T> {
        let at = self.early.iter().position(|(n, _)| *n == number)?;
        self.awaits = number.wrapping_add(1);
        self.early.remove(at).map(|(_, message)| message)
    }

    /// What waits for messages that will not come is dropped.
    pub(crate) fn forget_early(&mut self) {
        self.early.clear();
    }

    /// The peer begins anew with this number: what it has sent before and has arrived is handled, in order; of the rest nobody
    /// waits for any.
    pub(crate) fn restart(&mut self, number: u16) -> Vec<T> {
        let before = |n: u16| n.wrapping_sub(number) > u16::MAX / 2;
        let early = self.early.drain(..);
        let (mut due, early): (Vec<_>, Vec<_>) = early.partition(|(n, _)| before(*n));
        due.sort_by_key(|(n, _)| n.wrapping_sub(number));
        self.early = early.into();
        self.awaits = number;
        due.into_iter().map(|(_, message)| message).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is handled when these arrive.
    fn handled(order: &mut Order<u16>, arrive: &[u16]) -> Vec<u16> {
        let mut handled = Vec::new();
        for number in arrive {
            match order.arrived(*number) {
                Turn::Now => handled.push(*number),
                Turn::Later => order.keep(*number, *number),
                Turn::Never => {}
            }
            handled.extend(std::iter::from_fn(|| order.due()));
        }
        handled
    }

    #[test]
    fn messages_are_handled_in_the_order_of_their_numbers() {
        let mut order = Order::default();
        assert_eq!(handled(&mut order, &[0, 2, 4, 3]), [0]);
        assert_eq!(handled(&mut order, &[1]), [1, 2, 3, 4]);
        assert_eq!(handled(&mut order, &[5]), [5]);
    }

    #[test]
    fn a_peer_cannot_have_messages_kept_without_bound() {
        let mut order = Order::default();
        for number in 1..u16::MAX / 2 {
            for _ in 0..2 {
                assert_eq!(handled(&mut order, &[number]), []);
            }
        }
        assert_eq!(order.early.len(), usize::from(MOST_EARLY));
        let all: Vec<u16> = (0..=MOST_EARLY).collect();
        assert_eq!(handled(&mut order, &[0]), all);
        assert!(order.early.is_empty());
    }

    #[test]
    fn numbers_begin_again_after_the_last() {
        let mut order = Order::default();
        let all: Vec<u16> = (0..u16::MAX - 1).collect();
        assert_eq!(handled(&mut order, &all), all);
        let around = [0, u16::MAX - 1, 1, u16::MAX];
        assert_eq!(handled(&mut order, &around), [u16::MAX - 1, u16::MAX, 0, 1]);
        for _ in 0..=u16::MAX {
            order.sent();
        }
        assert_eq!(order.next(), 0);
    }

    #[test]
    fn of_what_is_lost_nobody_waits_after_a_restart() {
        let mut order = Order::default();
        assert_eq!(handled(&mut order, &[0, 3, 2, 9]), [0]);
        // 1 is lost, the peer goes on with 8, and 5 is late.
        assert_eq!(order.restart(8), [2, 3]);
        assert_eq!(handled(&mut order, &[5, 8]), [5, 8, 9]);
        assert_eq!(handled(&mut order, &[11, 10]), [10, 11]);
    }
}
