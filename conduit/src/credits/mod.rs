//! Flow control of active message requests: a pure state machine.
//!
//! A credit is 256 bytes of a target's request buffers and one event of its queue. A rank lends
//! credits to every other; a request uses some, its reply brings them back. Credits that nobody
//! started with are in the lender's bank. A request that had to wait asks for more, which come with
//! its reply; when the bank is short, the lender asks peers that did not need theirs to give some
//! back. Epochs, counted in requests received, make what is remembered of needs fade.
//!
//! ```text
//!   plan.rs   how many there are and who starts with them      byte.rs   what messages carry
//!   peer.rs   the state of one peer, the ring to search        stats.rs  the statistics file
//!   migration.rs   a whole job of these machines, simulated    totals.rs counts of each peer, the dump of an epoch
//! ```
//!
//! No I/O, no clock: requests, replies and notices come in by `handle_*`, notices to send go out by
//! [`Credits::poll_notice`]. Decisions where the sources differ: `docs/src/mechanisms/credits.md`.
//!
//! # Invariants
//!
//! For a lender `Y` and each peer `X`; `explore.rs` checks them in every state that three ranks can
//! reach with a few requests each, and along random runs of 64:
//!
//! 1. *Conserved*: the bank of `Y` and its loans add up to its total at all times.
//! 2. *Two ledgers, one truth*: `Y`'s loan to `X` = what `X` may send + grants on their way in
//!    replies + returns on their way back.
//! 3. *Covered*: what `X` has in use is what its unanswered requests used, and never more than it
//!    may send. With 1 and 2: all requests that `Y` has not answered fit its total, which its
//!    buffers and its queue hold. The catch basin is out of reach.
//! 4. *Live*: `X` may always send at least [`MIN_CREDITS`], a full message; a request that waits
//!    waits only for replies, which wait for nothing.
//! 5. *Bounded*: between `Y` and `X` at most one revoke and one return are on their way in each
//!    direction, so the queue of system messages cannot overflow.

mod byte;
pub mod migration;
mod peer;
mod plan;
mod stats;
mod totals;

use crate::chunks::CHUNK;
pub(crate) use byte::{CreditByte, Notice};
use byte::{MAX_EXTRA, MAX_USED};
use peer::{ASKED, GAVE_NONE, Peer, Ring};
pub use plan::PlanError;
pub(crate) use plan::{BUFFER_BYTES, Plan, Wishes};
pub(crate) use stats::Counts;
pub use totals::PeerCredits;
use totals::Totals;

/// Bytes of request buffer behind one credit.
pub(crate) const CREDIT_BYTES: usize = 256;
/// Memory of what is known of one peer.
#[cfg(test)]
pub(crate) const PEER_BYTES: usize = size_of::<Peer>();
/// Enough for one message of a full chunk.
pub(crate) const MIN_CREDITS: u16 = (CHUNK / CREDIT_BYTES) as u16;

/// What controls how fast credits move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Knobs {
    /// Credits that a peer keeps whatever happens; a full message.
    pub(crate) least: u16,
    /// Most credits lent to one peer.
    pub(crate) most: u16,
    /// Most credits lent to one peer on top in an epoch.
    pub(crate) lend_limit: u16,
    /// Most credits given back to one lender in an epoch.
    pub(crate) revoke_limit: u16,
    /// Most peers that are asked to give back at one time.
    pub(crate) targets: u16,
    /// Requests received that make an epoch.
    pub(crate) epoch: u32,
}

impl Knobs {
    pub(crate) const DEFAULT: Self = Self {
        least: MIN_CREDITS,
        most: 400,
        lend_limit: 32,
        revoke_limit: 32,
        targets: 6,
        epoch: 1024,
    };
}

/// Peers looked at in one search of the ring; the next search goes on from there.
const SEARCH: u16 = 64;

/// Credits that a header message of `bytes` costs; a payload message costs one more.
pub(crate) fn cost(bytes: usize) -> u16 {
    u16::try_from(bytes.div_ceil(CREDIT_BYTES).max(1)).unwrap_or(u16::MAX)
}

/// A message says of credits what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CreditFault {
    #[error("credits used that were not lent")]
    Overdrawn,
    #[error("credits returned that were not out")]
    Overpaid,
    #[error("credits given back that were not asked for or not lent")]
    NotLent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mode {
    Off,
    Static,
    Dynamic,
}

/// The credits of this rank with every peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Credits {
    mode: Mode,
    knobs: Knobs,
    me: u32,
    /// Ours to lend.
    bank: u64,
    /// Epochs ended.
    epoch: u16,
    /// Requests received since.
    received: u32,
    /// Peers that have not answered a revoke.
    asked: u16,
    ring: Ring,
    peers: Vec<Peer>,
    outbox: Vec<(u32, Notice)>,
    counts: Counts,
    totals: Totals,
}

impl Credits {
    pub(crate) fn new(plan: &Plan, knobs: Knobs, me: u32, nodes: u32) -> Self {
        let mut peers: Vec<Peer> = (0..nodes)
            .map(|n| Peer {
                send: plan.loan(n, me),
                loan: plan.loan(me, n),
                ..Peer::default()
            })
            .collect();
        let mut ring = Ring::EMPTY;
        if plan.dynamic {
            for n in 0..peers.len() {
                if let (true, Ok(at)) = (peers[n].loan > knobs.least, u16::try_from(n)) {
                    ring.insert(&mut peers, at);
                }
            }
        }
        Self {
            mode: match (plan.flow_control, plan.dynamic) {
                (false, _) => Mode::Off,
                (true, false) => Mode::Static,
                (true, true) => Mode::Dynamic,
            },
            knobs,
            me,
            bank: plan.bank,
            epoch: 0,
            received: 0,
            asked: 0,
            ring,
            peers,
            outbox: Vec::new(),
            counts: Counts::default(),
            totals: Totals::default(),
        }
    }

    /// Credits that could be used at once.
    pub(crate) fn available(&self, peer: u32) -> u16 {
        match self.peers.get(peer as usize) {
            Some(p) if self.mode != Mode::Off => p.send.saturating_sub(p.in_use),
            _ => u16::MAX,
        }
    }

    /// Takes `n` for a request; `false` when they are not there.
    pub(crate) fn take(&mut self, peer: u32, n: u16) -> bool {
        if self.mode == Mode::Off {
            return true;
        }
        if n > self.available(peer) {
            return false;
        }
        if let Some(p) = self.peers.get_mut(peer as usize) {
            p.in_use += n;
            p.max = p.max.max(p.in_use);
        }
        true
    }

    /// A request for `n` credits has to wait; told once for each. The extra credits that it shall
    /// ask for when it goes.
    #[cold]
    pub(crate) fn stall(&mut self, peer: u32, n: u16) -> u8 {
        let short = n.saturating_sub(self.available(peer));
        self.counts.stalls += 1;
        self.totals.of(peer).stalls += 1;
        if let Some(p) = self.peers.get_mut(peer as usize) {
            p.stalls = p.stalls.saturating_add(1);
        }
        match self.mode {
            Mode::Dynamic => short.min(MAX_EXTRA) as u8,
            _ => 0,
        }
    }

    /// What a request that took `n` credits, and would have liked `extra` more, says.
    #[inline]
    pub(crate) fn of_request(&mut self, peer: u32, n: u16, extra: u8) -> CreditByte {
        if self.mode == Mode::Off {
            return CreditByte::default();
        }
        let epoch = self.epoch;
        let told = self.peers.get_mut(peer as usize).is_some_and(|p| {
            p.catch_up(epoch);
            p.tell_epoch()
        });
        CreditByte {
            epoch: told,
            extra,
            used: n.min(MAX_USED) as u8,
        }
    }

    /// A request arrived; the byte its reply will carry.
    #[inline]
    pub(crate) fn handle_request(
        &mut self,
        peer: u32,
        byte: CreditByte,
    ) -> Result<CreditByte, CreditFault> {
        let epoch = self.epoch;
        let p = self
            .peers
            .get_mut(peer as usize)
            .ok_or(CreditFault::Overdrawn)?;
        if u16::from(byte.used) > p.loan {
            return Err(CreditFault::Overdrawn);
        }
        p.catch_up(epoch);
        if byte.epoch {
            self.totals.decay_send(peer, p);
        }
        let told = p.tell_epoch();
        let extra = match byte.extra {
            0 => 0,
            wanted => self.lend(peer, wanted),
        };
        if self.mode == Mode::Dynamic {
            self.received += 1;
            if self.received >= self.knobs.epoch {
                self.received = 0;
                self.epoch = self.epoch.wrapping_add(1);
                self.counts.epochs += 1;
            }
        }
        Ok(CreditByte {
            epoch: told,
            extra,
            used: byte.used,
        })
    }

    /// Lends up to `wanted` more, as far as limits and bank allow.
    #[cold]
    fn lend(&mut self, peer: u32, wanted: u8) -> u8 {
        if self.mode != Mode::Dynamic {
            return 0;
        }
        let Some(p) = self.peers.get_mut(peer as usize) else {
            return 0;
        };
        p.requested = p.requested.saturating_add(1);
        let allowed = u16::from(wanted)
            .min(self.knobs.lend_limit.saturating_sub(p.given))
            .min(self.knobs.most.saturating_sub(p.loan));
        let granted = allowed.min(u16::try_from(self.bank).unwrap_or(u16::MAX));
        p.given += granted;
        p.loan += granted;
        self.bank -= u64::from(granted);
        self.counts.granted += u64::from(granted);
        let total = self.totals.of(peer);
        total.wanted += u64::from(wanted);
        total.granted += u64::from(granted);
        if let (true, Ok(at)) = (p.loan > self.knobs.least, u16::try_from(peer)) {
            self.ring.insert(&mut self.peers, at);
        }
        if granted < allowed {
            self.counts.short += 1;
            self.scavenge();
        }
        granted as u8
    }

    /// Asks peers that did not need their credits lately to give some back.
    fn scavenge(&mut self) {
        let mut left = self.ring.len.min(SEARCH);
        while left > 0 && self.asked < self.knobs.targets {
            let at = usize::from(self.ring.head);
            let Some(p) = self.peers.get_mut(at) else {
                return;
            };
            self.ring.head = p.next;
            left -= 1;
            p.catch_up(self.epoch);
            let quiet = p.requested == 0 && p.flags & (ASKED | GAVE_NONE) == 0;
            if quiet && p.loan > self.knobs.least {
                p.flags |= ASKED;
                self.asked += 1;
                self.counts.revokes += 1;
                self.totals.of(at as u32).revokes += 1;
                let epoch = p.tell_epoch();
                self.outbox.push((at as u32, Notice::Revoke { epoch }));
            }
        }
    }

    /// A reply arrived.
    #[inline]
    pub(crate) fn handle_reply(&mut self, peer: u32, byte: CreditByte) -> Result<(), CreditFault> {
        let p = self
            .peers
            .get_mut(peer as usize)
            .ok_or(CreditFault::Overpaid)?;
        // The largest loan of any lender fits; a sum that does not is no lender's doing.
        let send = p
            .send
            .checked_add(u16::from(byte.extra))
            .ok_or(CreditFault::Overpaid)?;
        p.in_use = p
            .in_use
            .checked_sub(u16::from(byte.used))
            .ok_or(CreditFault::Overpaid)?;
        p.send = send;
        if byte.epoch {
            self.totals.decay_send(peer, p);
        }
        Ok(())
    }

    /// A system message about credits arrived.
    pub(crate) fn handle_notice(&mut self, peer: u32, notice: Notice) -> Result<(), CreditFault> {
        let epoch = self.epoch;
        let p = self
            .peers
            .get_mut(peer as usize)
            .filter(|_| peer != self.me)
            .ok_or(CreditFault::NotLent)?;
        p.catch_up(epoch);
        match notice {
            Notice::Revoke { epoch } => {
                if epoch {
                    self.totals.decay_send(peer, p);
                }
                let spare = if p.stalls > 0 {
                    0
                } else {
                    p.send
                        .saturating_sub(p.max.max(p.in_use).max(self.knobs.least))
                };
                let credits = spare.min(self.knobs.revoke_limit.saturating_sub(p.revoked));
                p.send -= credits;
                p.revoked += credits;
                self.counts.returned += u64::from(credits);
                let epoch = p.tell_epoch();
                self.outbox.push((peer, Notice::Return { credits, epoch }));
            }
            Notice::Return { credits, epoch } => {
                let kept = p.loan.checked_sub(credits);
                if p.flags & ASKED == 0 || kept.is_none_or(|k| k < self.knobs.least) {
                    return Err(CreditFault::NotLent);
                }
                if epoch {
                    self.totals.decay_send(peer, p);
                }
                p.flags &= !(ASKED | GAVE_NONE);
                p.loan -= credits;
                if credits == 0 {
                    p.flags |= GAVE_NONE;
                }
                let least = p.loan <= self.knobs.least;
                self.asked -= 1;
                self.bank += u64::from(credits);
                self.counts.recovered += u64::from(credits);
                self.totals.of(peer).recovered += u64::from(credits);
                if let (true, Ok(at)) = (least, u16::try_from(peer)) {
                    self.ring.remove(&mut self.peers, at);
                }
            }
        }
        Ok(())
    }

    /// Whether there is a system message to send.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next system message to send.
    #[inline]
    pub(crate) fn poll_notice(&mut self) -> Option<(u32, Notice)> {
        self.outbox.pop()
    }
}

#[cfg(test)]
mod explore;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;
