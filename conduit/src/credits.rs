//! Flow control of active message requests: a pure state machine.
//!
//! A credit is 256 bytes of a target's request buffers and one event of its queue. A rank lends
//! credits to every other; a request uses some, its reply brings them back. The sum of the loans is
//! what the buffers and the queue can hold, so a request that has its credits always finds room.
//!
//! Loans are static: every rank computes the same table ([`Plan::new`]) and nothing is exchanged.
//! The fields of a peer's state and of the credit byte that a dynamic redistribution needs (extra
//! credits asked for and granted, the epoch mark) are carried and obeyed.
//!
//! Invariants: `in_use <= send` for every peer, and the sum of what peers may send us is at most the
//! events of the queue.

use crate::chunks::CHUNK;

/// Bytes of request buffer behind one credit.
pub(crate) const CREDIT_BYTES: usize = 256;
/// Enough for one message of a full chunk.
pub(crate) const MIN_CREDITS: u64 = (CHUNK / CREDIT_BYTES) as u64;
/// Chunks of one request buffer.
const BUFFER_CHUNKS: usize = 1024;
/// Bytes of one request buffer.
pub(crate) const BUFFER_BYTES: usize = BUFFER_CHUNKS * CHUNK;
/// Credits that one buffer backs; its last chunk does not count, because the buffer retires when
/// less than a chunk is left.
const BUFFER_CREDITS: u64 = ((BUFFER_CHUNKS - 1) * CHUNK / CREDIT_BYTES) as u64;
/// A retired buffer takes messages again only when all it held are handled, so one more is there.
const SPARE_BUFFERS: u64 = 1;

/// Nodes, credits of each peer, banked credits.
const TABLE: [(u64, u64, u64); 9] = [
    (1, 200, 200),
    (64, 170, 12_800),
    (128, 170, 25_600),
    (512, 64, 25_600),
    (1024, 32, 25_600),
    (2048, 16, 25_600),
    (3072, 12, 25_600),
    (4096, 8, 25_600),
    (20_480, 8, 25_600),
];

/// Credits of each peer and banked credits for a job of `nodes`, interpolated between the rows.
fn table(nodes: u64) -> (u64, u64) {
    let Some(i) = TABLE.iter().position(|row| row.0 > nodes) else {
        let last = TABLE[TABLE.len() - 1];
        return (last.1, last.2);
    };
    let (lo, hi) = (TABLE[i.saturating_sub(1)], TABLE[i]);
    let span = hi.0 - lo.0;
    if span == 0 {
        return (lo.1, lo.2);
    }
    // Truncation toward zero of the signed product, as the conduit's arithmetic has it.
    let between = |a: u64, b: u64| {
        if b >= a {
            a + (nodes - lo.0) * (b - a) / span
        } else {
            a - (nodes - lo.0) * (a - b) / span
        }
    };
    (between(lo.1, hi.1).max(MIN_CREDITS), between(lo.2, hi.2))
}

/// What the environment says about credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) flow_control: bool,
    /// `GASNET_PORTAL_CRED_PER_NODE`
    pub(crate) per_node: Option<u64>,
    /// `GASNET_PORTAL_AMRECV_SPACE`, bytes
    pub(crate) space: Option<u64>,
}

/// The environment asks for credits that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{per_node} credits per node; a full message needs {MIN_CREDITS}")]
pub(crate) struct TooFewCredits {
    pub(crate) per_node: u64,
}

/// Request buffers, queue length and loans; the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Requests need credits.
    pub(crate) flow_control: bool,
    /// Credits lent to each peer.
    pub(crate) per_node: u16,
    /// So many peers, the lowest ranks first and the lender left out, get one more.
    pub(crate) one_more: u32,
    /// Request buffers.
    pub(crate) buffers: u32,
    /// Events of the queue of requests.
    pub(crate) events: u64,
}

impl Plan {
    /// Sizes for a job of `nodes`. `space` alone sets the credits that its bytes back.
    pub(crate) fn new(nodes: u32, wishes: Wishes) -> Result<Self, TooFewCredits> {
        let peers = u64::from(nodes.saturating_sub(1));
        let small = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        if peers == 0 {
            return Ok(Self {
                flow_control: false,
                per_node: 0,
                one_more: 0,
                buffers: 1,
                events: 10,
            });
        }
        if !wishes.flow_control {
            let buffers = wishes.space.unwrap_or(0) / BUFFER_BYTES as u64 + 1;
            return Ok(Self {
                flow_control: false,
                per_node: 0,
                one_more: 0,
                buffers: small(buffers),
                events: 500 + buffers * BUFFER_CREDITS,
            });
        }
        let (per_node, banked) = match (wishes.per_node, wishes.space) {
            (Some(per_node), _) if per_node < MIN_CREDITS => {
                return Err(TooFewCredits { per_node });
            }
            (Some(per_node), _) => (per_node, 0),
            (None, Some(space)) => ((space / CREDIT_BYTES as u64 / peers).max(MIN_CREDITS), 0),
            (None, None) => {
                let (per_node, banked) = table(u64::from(nodes));
                (per_node + banked / peers, banked % peers)
            }
        };
        let want = banked + peers * per_node;
        let counted = want.div_ceil(BUFFER_CREDITS);
        let total = counted * BUFFER_CREDITS;
        let (per_node, one_more) = match u16::try_from(total / peers) {
            Ok(n) if n < u16::MAX => (n, total % peers),
            _ => (u16::MAX, 0),
        };
        let buffers = counted + SPARE_BUFFERS;
        Ok(Self {
            flow_control: true,
            per_node,
            one_more: small(one_more),
            buffers: small(buffers),
            events: total,
        })
    }

    /// What `lender` lends `borrower`.
    pub(crate) fn loan(&self, lender: u32, borrower: u32) -> u16 {
        if lender == borrower {
            return 0;
        }
        let place = if borrower < lender {
            borrower
        } else {
            borrower - 1
        };
        self.per_node + u16::from(place < self.one_more)
    }
}

/// Credits that a header message of `bytes` costs; a payload message costs one more.
pub(crate) fn cost(bytes: usize) -> u16 {
    u16::try_from(bytes.div_ceil(CREDIT_BYTES).max(1)).unwrap_or(u16::MAX)
}

/// The byte of a message that moves credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditByte {
    /// The sender ended an epoch.
    pub(crate) epoch: bool,
    /// Extra credits: wanted (request) or granted (reply); at most 7.
    pub(crate) extra: u8,
    /// Credits used (request) or given back (reply); at most 15.
    pub(crate) used: u8,
}

impl CreditByte {
    pub(crate) fn encode(self) -> u8 {
        u8::from(self.epoch) << 7 | (self.extra & 7) << 4 | self.used & 15
    }

    pub(crate) fn decode(byte: u8) -> Self {
        Self {
            epoch: byte & 0x80 != 0,
            extra: byte >> 4 & 7,
            used: byte & 15,
        }
    }
}

/// What is known of the credits between this rank and one peer.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// Credits the peer lent us.
    send: u16,
    /// Those in flight.
    in_use: u16,
    /// Most in flight this epoch.
    max: u16,
    /// Requests that had to wait this epoch.
    stalls: u16,
    /// Credits we lent the peer.
    loan: u16,
}

impl Peer {
    fn decay(&mut self) {
        self.max >>= 2;
        self.stalls >>= 2;
    }
}

/// A reply gave back credits that were not out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overpaid;

/// A request used more credits than its sender was ever lent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overdrawn;

/// The credits of this rank with every peer.
#[derive(Debug)]
pub(crate) struct Credits {
    flow_control: bool,
    peers: Vec<Peer>,
}

impl Credits {
    pub(crate) fn new(plan: &Plan, me: u32, nodes: u32) -> Self {
        let peers = (0..nodes)
            .map(|n| Peer {
                send: plan.loan(n, me),
                loan: plan.loan(me, n),
                ..Peer::default()
            })
            .collect();
        Self {
            flow_control: plan.flow_control,
            peers,
        }
    }

    /// Credits that could be used at once.
    pub(crate) fn available(&self, peer: u32) -> u16 {
        match self.peers.get(peer as usize) {
            Some(p) if self.flow_control => p.send - p.in_use,
            _ => u16::MAX,
        }
    }

    /// Takes `n` for a request; `false` when they are not there.
    pub(crate) fn take(&mut self, peer: u32, n: u16) -> bool {
        if !self.flow_control {
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

    /// A request has to wait; told once for each.
    pub(crate) fn stalled(&mut self, peer: u32) {
        if let Some(p) = self.peers.get_mut(peer as usize) {
            p.stalls = p.stalls.saturating_add(1);
        }
    }

    /// A request that used `n` credits says so. No extra credits are wanted of static loans.
    pub(crate) fn of_request(&self, n: u16) -> CreditByte {
        let used = if self.flow_control {
            n.min(15) as u8
        } else {
            0
        };
        CreditByte {
            epoch: false,
            extra: 0,
            used,
        }
    }

    /// A request arrived; the byte its reply will carry.
    pub(crate) fn handle_request(
        &mut self,
        peer: u32,
        byte: CreditByte,
    ) -> Result<CreditByte, Overdrawn> {
        let p = self.peers.get_mut(peer as usize).ok_or(Overdrawn)?;
        if u16::from(byte.used) > p.loan {
            return Err(Overdrawn);
        }
        if byte.epoch {
            p.decay();
        }
        Ok(CreditByte {
            epoch: false,
            extra: 0,
            used: byte.used,
        })
    }

    /// A reply arrived.
    pub(crate) fn handle_reply(&mut self, peer: u32, byte: CreditByte) -> Result<(), Overpaid> {
        let Some(p) = self.peers.get_mut(peer as usize) else {
            return Err(Overpaid);
        };
        if byte.epoch {
            p.decay();
        }
        p.in_use = p.in_use.checked_sub(u16::from(byte.used)).ok_or(Overpaid)?;
        p.send = p.send.saturating_add(u16::from(byte.extra));
        Ok(())
    }

    /// Credits lent to `peer`.
    #[cfg(test)]
    fn lent(&self, peer: u32) -> u16 {
        self.peers.get(peer as usize).map_or(0, |p| p.loan)
    }
}

#[cfg(test)]
mod tests;
