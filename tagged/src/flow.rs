//! How much a sender may have on its way to a receiver: no message without a place for it. No I/O, no clock.
//!
//! # Invariants
//! * Short messages in flight to a peer, or there and not received, plus credits here, plus credits on their way back,
//!   plus those owed there, are [`Peer::new`]'s `most`, always.
//! * At most `most` messages that the receiver releases are under way to a peer, and [`RESERVE`] of the library's own:
//!   those never wait for the program to receive something, so communicators can agree and meet whatever else waits. One is
//!   under way until the receiver has released it, or has a note of it and says so ([`Flow::noted`]): then it takes no place in
//!   a queue any more, and only memory.
//! * A receiver has fewer than [`Flow::due`] unnoted messages of a peer after its progress, unless its notes have no room: so
//!   a sender of any number of messages is held up by the receiver's memory alone.
//! * A receiver owes less than [`Flow::due`] after its progress, so a sender that waits for a credit gets one.

/// One peer, both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    /// Short messages that may be sent to it.
    credits: u16,
    /// Of ours, not released by it.
    unreleased: u16,
    /// Short ones of its received here and not given back.
    owed: u16,
    /// Of its, to be released here, those that came before their receive and are not noted.
    unnoted: u16,
}

/// All peers.
#[derive(Debug)]
pub(crate) struct Flow {
    most: u16,
    peers: Vec<Peer>,
    /// Peers that are owed so much that nobody should wait for a message to carry it.
    due: Vec<u32>,
    /// Peers so many of whose messages are not noted that they may wait for that, each once.
    notes: Vec<u32>,
    /// No message goes any more.
    refused: bool,
    /// Credits that a peer gave back and did not have.
    pub(crate) excess: u64,
}

/// Messages of the library's own to a peer, which the receiver releases, beyond those of the program.
pub(crate) const RESERVE: u16 = 8;

/// How a message may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// At once, with a credit.
    Short,
    /// At once, to be released by the receiver.
    Released,
    /// Later.
    Wait,
}

impl Flow {
    pub(crate) fn new(peers: usize, most: u16) -> Self {
        let peer = Peer {
            credits: most,
            unreleased: 0,
            owed: 0,
            unnoted: 0,
        };
        Self {
            most,
            peers: vec![peer; peers],
            due: Vec::new(),
            notes: Vec::new(),
            refused: false,
            excess: 0,
        }
    }

    /// What is owed when it is given back without waiting for a message: half, at least one.
    fn threshold(&self) -> u16 {
        (self.most / 2).max(1)
    }

    /// Takes a credit; `false` when there is none.
    #[inline(always)]
    pub(crate) fn take_credit(&mut self, to: u32) -> bool {
        match self.peers.get_mut(to as usize) {
            Some(peer) if peer.credits > 0 => {
                peer.credits -= 1;
                true
            }
            _ => false,
        }
    }

    /// Takes what a message needs; `own` is one of the library's.
    pub(crate) fn take(&mut self, to: u32, short: bool, own: bool) -> Way {
        let most = self.most + if own { RESERVE } else { 0 };
        let Some(peer) = self.peers.get_mut(to as usize) else {
            return Way::Wait;
        };
        if short && peer.credits > 0 {
            peer.credits -= 1;
            Way::Short
        } else if peer.unreleased < most {
            peer.unreleased += 1;
            Way::Released
        } else {
            Way::Wait
        }
    }

    /// What a message took is free again: it was not sent.
    pub(crate) fn untake(&mut self, to: u32, way: Way) {
        if let Some(peer) = self.peers.get_mut(to as usize) {
            match way {
                Way::Short => peer.credits += 1,
                Way::Released => peer.unreleased -= 1,
                Way::Wait => {}
            }
        }
    }

    /// The peer has a note of one.
    pub(crate) fn noted(&mut self, by: u32) {
        self.released(by);
    }

    /// One of the peer's came before its receive.
    pub(crate) fn notable(&mut self, from: u32) {
        let threshold = self.threshold();
        if let Some(peer) = self.peers.get_mut(from as usize) {
            peer.unnoted = peer.unnoted.saturating_add(1);
            // The list is short and seldom used: a search costs less than a flag in the entry of each peer.
            if peer.unnoted >= threshold && !self.notes.contains(&from) {
                self.notes.push(from);
            }
        }
    }

    /// It is noted, or received.
    pub(crate) fn unnotable(&mut self, from: u32) {
        if let Some(peer) = self.peers.get_mut(from as usize) {
            peer.unnoted = peer.unnoted.saturating_sub(1);
        }
    }

    /// A peer whose messages are to be noted.
    pub(crate) fn note(&mut self) -> Option<u32> {
        self.notes.pop()
    }

    /// No message goes any more.
    pub(crate) fn refuse(&mut self) {
        self.refused = true;
    }

    pub(crate) const fn is_refused(&self) -> bool {
        self.refused
    }

    /// The peer released one.
    pub(crate) fn released(&mut self, by: u32) {
        if let Some(peer) = self.peers.get_mut(by as usize) {
            peer.unreleased = peer.unreleased.saturating_sub(1);
        }
    }

    /// The peer gives credits back.
    #[inline]
    pub(crate) fn given_back(&mut self, by: u32, credits: u16) {
        let Some(peer) = self.peers.get_mut(by as usize) else {
            return;
        };
        let room = self.most - peer.credits;
        self.excess += u64::from(credits.saturating_sub(room));
        peer.credits += credits.min(room);
    }

    /// A short message of the peer has been received.
    #[inline]
    pub(crate) fn received(&mut self, from: u32) {
        self.owe(from, 1);
    }

    /// Credits of the peer that are to be given back, again if a message that was to do it was not sent.
    #[inline(always)]
    pub(crate) fn owe(&mut self, to: u32, credits: u16) {
        let threshold = self.threshold();
        if let Some(peer) = self.peers.get_mut(to as usize) {
            let before = peer.owed;
            peer.owed = peer.owed.saturating_add(credits);
            if before < threshold && peer.owed >= threshold {
                self.due.push(to);
            }
        }
    }

    /// What a message to the peer gives back.
    #[inline]
    pub(crate) fn give_back(&mut self, to: u32, most: u16) -> u16 {
        let Some(peer) = self.peers.get_mut(to as usize) else {
            return 0;
        };
        let given = peer.owed.min(most);
        peer.owed -= given;
        given
    }

    /// Whether [`Flow::due`] or [`Flow::note`] may give something, or nothing goes any more.
    #[inline]
    pub(crate) const fn is_any_due(&self) -> bool {
        !self.due.is_empty() || !self.notes.is_empty() || self.refused
    }

    /// A peer that must get its credits in a message of their own.
    pub(crate) fn due(&mut self) -> Option<u32> {
        let threshold = self.threshold();
        while let Some(peer) = self.due.pop() {
            if self
                .peers
                .get(peer as usize)
                .is_some_and(|p| p.owed >= threshold)
            {
                return Some(peer);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two flows and the wire between them, at random: the sum of the invariant, and nobody stuck.
    #[test]
    fn credits_are_never_lost_nor_made() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let most = rng.u16(1..9);
            let (mut sender, mut receiver) = (Flow::new(1, most), Flow::new(1, most));
            let (mut there, mut back, mut sent) = (0u16, Vec::new(), 0);
            let mut released = 0u16;
            for _ in 0..5000 {
                match rng.u8(0..4) {
                    0 => match sender.take(0, rng.bool(), false) {
                        Way::Short => {
                            there += 1;
                            sent += 1;
                        }
                        Way::Released => released += 1,
                        Way::Wait => assert_eq!(released, most),
                    },
                    1 if there > 0 => {
                        there -= 1;
                        receiver.received(0);
                        while let Some(peer) = receiver.due() {
                            back.push(receiver.give_back(peer, u16::MAX));
                        }
                    }
                    2 if released > 0 => {
                        released -= 1;
                        sender.released(0);
                    }
                    _ => {
                        if let Some(credits) = back.pop() {
                            sender.given_back(0, credits);
                        }
                    }
                }
                let wire: u16 = back.iter().sum();
                let (s, r) = (sender.peers[0], receiver.peers[0]);
                assert_eq!(s.credits + there + wire + r.owed, most, "seed {seed}");
                assert_eq!(s.unreleased, released);
                assert!(r.owed < receiver.threshold());
            }
            assert!(sent > u32::from(most));
            assert_eq!(sender.excess, 0);
        }
    }

    #[test]
    fn a_peer_is_listed_once_however_often_it_comes_to_wait() {
        let mut flow = Flow::new(2, 4);
        for _ in 0..100 {
            for _ in 0..flow.threshold() {
                flow.notable(1);
            }
            // They are received before there is room for a note of one.
            for _ in 0..flow.threshold() {
                flow.unnotable(1);
            }
        }
        assert_eq!((flow.note(), flow.note()), (Some(1), None));
        flow.notable(1);
        assert_eq!(flow.note(), None);
        flow.notable(1);
        assert_eq!(flow.note(), Some(1));
    }

    #[test]
    fn credits_that_nobody_had_are_counted_and_dropped() {
        let mut flow = Flow::new(2, 4);
        assert_eq!(flow.take(1, true, false), Way::Short);
        flow.given_back(1, 9);
        assert_eq!(flow.excess, 8);
        assert_eq!(flow.peers[1].credits, 4);
        flow.given_back(7, 1);
        flow.received(7);
        flow.released(7);
        assert_eq!(flow.give_back(7, 5), 0);
        assert_eq!(flow.take(7, true, false), Way::Wait);
    }
}
