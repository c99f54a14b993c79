//! What a rank counts of each peer since the start: nothing of it decays, and no decision reads it.
//!
//! Counts are made where credits run out or move, which is off the path of a request that finds its credits. A peer
//! with which that never happened has no entry.

use super::Credits;
use super::peer::Peer;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

/// Credits between a rank and one peer. Counts are since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerCredits {
    /// Credits that the peer lends this rank, in use or not.
    pub send: u16,
    /// Of these, credits of requests that are not answered.
    pub in_use: u16,
    /// Credits that this rank lends the peer.
    pub lent: u16,
    /// Requests of this rank to the peer that had to wait for credits.
    pub stalls: u64,
    /// Credits that this rank lent the peer on top of those of the start.
    pub granted: u64,
    /// Credits that the peer gave back to this rank, which had asked for them.
    pub recovered: u64,
}

/// Counts of one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    /// Requests that had to wait.
    pub(super) stalls: u64,
    /// Most credits in use, as of the last decay.
    pub(super) most_used: u16,
    /// Credits that the peer asked for on top.
    pub(super) wanted: u64,
    /// Credits lent on top.
    pub(super) granted: u64,
    /// Times that the peer was asked to give back.
    pub(super) revokes: u64,
    /// Credits that it gave back.
    pub(super) recovered: u64,
}

/// Part of no decision, so all totals are equal to each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals(BTreeMap<u32, Total>);

impl Totals {
    pub(super) fn of(&mut self, peer: u32) -> &mut Total {
        self.0.entry(peer).or_default()
    }

    /// The peer ended an epoch; see [`Peer::decay_send`].
    #[cold]
    pub(super) fn decay_send(&mut self, peer: u32, p: &mut Peer) {
        if p.max > 0 {
            let most = &mut self.of(peer).most_used;
            *most = p.max.max(*most);
        }
        p.decay_send();
    }

    fn read(&self, peer: u32) -> Total {
        self.0.get(&peer).copied().unwrap_or_default()
    }
}

impl PartialEq for Totals {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Totals {}

impl Hash for Totals {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Credits {
    /// Credits between this rank and a peer; `None` of a rank that does not exist.
    pub(crate) fn of_peer(&self, peer: u32) -> Option<PeerCredits> {
        let p = self.peers.get(peer as usize)?;
        let total = self.totals.read(peer);
        Some(PeerCredits {
            send: p.send,
            in_use: p.in_use,
            lent: p.loan,
            stalls: total.stalls,
            granted: total.granted,
            recovered: total.recovered,
        })
    }

    /// Credits to lend.
    pub(crate) fn banked(&self) -> u64 {
        self.bank
    }

    /// A table of all peers as of the end of the last epoch, before anything decayed for it, or of the start: the lines of the
    /// portals-conduit's file `credits.RANK`.
    pub(crate) fn dump(&self) -> String {
        use std::fmt::Write as _;
        let ended = self.counts.epochs;
        let as_of = self.epoch.wrapping_sub(u16::from(ended > 0));
        let requests = ended * u64::from(self.knobs.epoch);
        let mut text = format!("Node: {}  Epoch Counter = {requests}\n{HEADING}\n", self.me);
        for (n, p) in (0u32..).zip(&self.peers) {
            let mut p = *p;
            // Of a peer that was looked at since, the state before is gone.
            if p.as_of != self.epoch {
                p.catch_up(as_of);
            }
            let t = self.totals.read(n);
            let columns = [
                u64::from(p.loan),
                u64::from(p.send),
                u64::from(p.stalls),
                u64::from(p.in_use),
                u64::from(p.max),
                u64::from(p.revoked),
                u64::from(p.requested),
                u64::from(p.given),
                t.stalls,
                u64::from(t.most_used.max(p.max)),
                t.granted,
                t.wanted,
                t.recovered,
                t.revokes,
            ];
            let columns = columns.map(|c| format!(" {c:7}")).concat();
            // A string takes all that is written.
            let _ = writeln!(text, "{n:4}{columns}");
        }
        text
    }
}

/// L is lent, S is lent by the peer; T counts since the start.
const HEADING: &str = "Node  L_Cred  S_Cred S_Stall S_Inuse   S_Max S_Revok   L_Req L_Given \
                       TS_Stal  TS_Max TL_Give  TL_Req  TL_Rev   TL_RR";

#[cfg(test)]
mod tests {
    use super::super::{Knobs, MIN_CREDITS, Plan, Wishes};
    use super::*;

    /// Ranks 0 to 2; 0 lends each of the others 8 credits and has a bank.
    fn ranks(bank: u64, epoch: u32) -> [Credits; 3] {
        let wishes = Wishes {
            per_node: Some(u64::from(MIN_CREDITS)),
            banked: Some(bank),
            ..Wishes::DEFAULT
        };
        let plan = Plan::new(3, wishes).unwrap();
        let knobs = Knobs {
            epoch,
            ..Knobs::DEFAULT
        };
        [0, 1, 2].map(|me| Credits::new(&plan, knobs, me, 3))
    }

    /// A request of `n` credits and its reply, after a wait for `short` more than there were.
    fn request(r: &mut [Credits; 3], (from, to): (u32, u32), n: u16, short: u16) {
        let [sender, target] = [from as usize, to as usize];
        let lacking = r[sender].available(to) + short;
        let extra = if short == 0 {
            0
        } else {
            r[sender].stall(to, lacking)
        };
        assert!(r[sender].take(to, n));
        let byte = r[sender].of_request(to, n, extra);
        let reply = r[target].handle_request(from, byte).unwrap();
        r[sender].handle_reply(to, reply).unwrap();
    }

    /// Notices until there are none.
    fn settle(r: &mut [Credits; 3]) {
        for from in (0..3).cycle().take(12) {
            while let Some((to, notice)) = r[from].poll_notice() {
                r[to as usize].handle_notice(from as u32, notice).unwrap();
            }
        }
    }

    #[test]
    fn a_peer_is_seen_from_both_sides() {
        let mut r = ranks(9, 1024);
        assert!(r[1].take(0, 3));
        let waiting = r[1].of_peer(0).unwrap();
        assert_eq!(
            (waiting.send, waiting.in_use),
            (8, 3),
            "those in use are its own too"
        );
        r[1].peers[0].in_use = 0;
        request(&mut r, (1, 0), 8, 5);
        request(&mut r, (1, 0), 3, 0);
        request(&mut r, (1, 0), 1, 2);
        // Only 2 of these 6 are there.
        request(&mut r, (1, 0), 1, 6);
        let lender = r[0].of_peer(1).unwrap();
        let borrower = r[1].of_peer(0).unwrap();
        assert_eq!((lender.lent, lender.granted, lender.stalls), (17, 9, 0));
        assert_eq!((borrower.send, borrower.in_use), (17, 0));
        assert_eq!((borrower.stalls, borrower.granted), (3, 0));
        assert_eq!((r[0].banked(), r[1].banked()), (0, 9));
        assert_eq!(
            r[0].of_peer(0),
            Some(PeerCredits::default()),
            "none to itself"
        );
        assert_eq!(r[0].of_peer(3), None);
    }

    /// A bank that is empty asks the quiet peer, whose credits come back and are lent to the other.
    #[test]
    fn credits_that_came_back_are_counted_of_their_peer() {
        let mut r = ranks(7, 1024);
        request(&mut r, (1, 0), 1, 7);
        assert_eq!(r[0].banked(), 0);
        // The stall of the past weighs on rank 1 until rank 0 has ended epochs.
        r[1].peers[0].stalls = 0;
        r[0].peers[1].requested = 0;
        request(&mut r, (2, 0), 1, 7);
        settle(&mut r);
        let [busy, quiet] = [2, 1].map(|n| r[0].of_peer(n).unwrap());
        assert_eq!((quiet.recovered, quiet.lent, busy.recovered), (7, 8, 0));
        assert_eq!(r[0].banked(), 7);
        assert_eq!(r[1].of_peer(0).unwrap().send, 8);
        assert_eq!(r[1].of_peer(0).unwrap().recovered, 0, "it lent none back");
    }

    /// Counts of the start stay where what is remembered of needs decays; the table has both.
    #[test]
    fn a_dump_is_of_the_end_of_an_epoch_before_it_decays() {
        let mut r = ranks(100, 4);
        let start = r[0].dump();
        let lines: Vec<_> = start.lines().collect();
        assert_eq!(lines[0], "Node: 0  Epoch Counter = 0");
        assert_eq!(lines[1], HEADING);
        assert_eq!(lines[1].len(), lines[2].len());
        let row = |text: &str, node: usize| -> Vec<u32> {
            let line = text.lines().nth(node + 2).unwrap();
            line.split_whitespace()
                .map(|n| n.parse().unwrap())
                .collect()
        };
        assert_eq!(row(&start, 0), [0; 15]);
        let fresh = [1, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(row(&start, 1), fresh);
        for _ in 0..4 {
            request(&mut r, (1, 0), 8, 6);
        }
        assert_eq!(r[0].counts().epochs, 1);
        let ended = r[0].dump();
        assert!(ended.starts_with("Node: 0  Epoch Counter = 4\n"));
        let lent = [1, 32, 8, 0, 0, 0, 0, 4, 24, 0, 0, 24, 24, 0, 0];
        assert_eq!(row(&ended, 1), lent);
        // One request of rank 0 says that the epoch has ended; rank 1 forgets, but for its counts.
        request(&mut r, (1, 0), 1, 0);
        let borrower = row(&r[1].dump(), 0);
        assert_eq!(borrower, [0, 8, 32, 1, 0, 2, 0, 0, 0, 4, 8, 0, 0, 0, 0]);
        let later = row(&r[0].dump(), 1);
        assert_eq!(later[7..9], [1, 6], "decayed for the epoch that has ended");
    }
}
