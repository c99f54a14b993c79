//! How many credits there are and who starts with them: the same on every rank, so that nothing is
//! exchanged.

use super::{CREDIT_BYTES, MIN_CREDITS};
use crate::chunks::CHUNK;

/// Chunks of one request buffer.
const BUFFER_CHUNKS: usize = 1024;
/// Bytes of one request buffer.
pub(crate) const BUFFER_BYTES: usize = BUFFER_CHUNKS * CHUNK;
/// Credits that one buffer backs; its last chunk does not count, because the buffer retires when
/// less than a chunk is left.
pub(super) const BUFFER_CREDITS: u64 = ((BUFFER_CHUNKS - 1) * CHUNK / CREDIT_BYTES) as u64;
/// A retired buffer takes messages again only when all it held are handled, so one more is there.
/// One is enough in every thread mode: requests are handled one at a time.
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
pub(super) fn table(nodes: u64) -> (u64, u64) {
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
    (
        between(lo.1, hi.1).max(u64::from(MIN_CREDITS)),
        between(lo.2, hi.2),
    )
}

/// What the environment says about credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wishes {
    pub(crate) flow_control: bool,
    /// Credits move at run time; without flow control there are none.
    pub(crate) dynamic: bool,
    /// `GASNET_PORTAL_CRED_PER_NODE`
    pub(crate) per_node: Option<u64>,
    /// `GASNET_PORTAL_BANKED_CREDITS`
    pub(crate) banked: Option<u64>,
    /// `GASNET_PORTAL_AMRECV_SPACE`, bytes
    pub(crate) space: Option<u64>,
}

impl Wishes {
    /// What counts when the environment says nothing.
    pub(crate) const DEFAULT: Self = Self {
        flow_control: true,
        dynamic: true,
        per_node: None,
        banked: None,
        space: None,
    };
}

/// The environment asks for credits that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Less than one message needs.
    #[error(
        "{per_node} credits for each of {peers} peers; a full message needs {MIN_CREDITS}: \
         raise GASNET_PORTAL_CRED_PER_NODE or GASNET_PORTAL_AMRECV_SPACE"
    )]
    TooFew {
        /// Credits that a peer would have.
        per_node: u64,
        /// Peers.
        peers: u64,
    },
    /// The space does not hold the credits.
    #[error(
        "GASNET_PORTAL_AMRECV_SPACE holds {held} credits of 256 bytes, and {wanted} were asked for"
    )]
    Space {
        /// Credits that the space holds.
        held: u64,
        /// Credits asked for with `GASNET_PORTAL_CRED_PER_NODE` or `GASNET_PORTAL_BANKED_CREDITS`.
        wanted: u64,
    },
    /// More request buffers than can be.
    #[error("{credits} credits need more request buffers than a job can have")]
    TooMany {
        /// Credits asked for.
        credits: u64,
    },
}

/// Request buffers, queue length and loans; the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Requests need credits.
    pub(crate) flow_control: bool,
    /// Credits move at run time.
    pub(crate) dynamic: bool,
    /// Credits lent to each peer at the start.
    pub(crate) per_node: u16,
    /// So many peers, the lowest ranks first and the lender left out, get one more.
    pub(crate) one_more: u32,
    /// Credits that a rank keeps to lend later.
    pub(crate) bank: u64,
    /// Request buffers.
    pub(crate) buffers: u32,
    /// Events of the queue of requests; with flow control also the credits of a rank.
    pub(crate) events: u64,
}

/// More credits than any memory backs: 2^20 buffers of 2 MiB.
const MOST_BUFFERS: u64 = 1 << 20;

impl Plan {
    /// Sizes for a job of `nodes`.
    pub(crate) fn new(nodes: u32, wishes: Wishes) -> Result<Self, PlanError> {
        let peers = u64::from(nodes.saturating_sub(1));
        let alone = Self {
            flow_control: false,
            dynamic: false,
            per_node: 0,
            one_more: 0,
            bank: 0,
            buffers: 1,
            events: 10,
        };
        if peers == 0 {
            return Ok(alone);
        }
        if !wishes.flow_control {
            let buffers = wishes.space.unwrap_or(0) / BUFFER_BYTES as u64 + 1;
            return Ok(Self {
                buffers: count(buffers, buffers)?,
                events: 500 + buffers * BUFFER_CREDITS,
                ..alone
            });
        }
        let (per_node, banked) = wanted(nodes, peers, &wishes)?;
        if per_node < u64::from(MIN_CREDITS) {
            return Err(PlanError::TooFew { per_node, peers });
        }
        let per_node = per_node.min(u64::from(u16::MAX));
        let want = peers * per_node + banked;
        let counted = want.div_ceil(BUFFER_CREDITS);
        let total = counted * BUFFER_CREDITS;
        let buffers = count(counted + SPARE_BUFFERS, want)?;
        // What whole buffers hold beyond the wish is banked, or lent as evenly as it goes.
        let (lent, one_more) = if wishes.dynamic {
            (per_node, 0)
        } else {
            match total / peers {
                n if n < u64::from(u16::MAX) => (n, total % peers),
                _ => (u64::from(u16::MAX), 0),
            }
        };
        Ok(Self {
            flow_control: true,
            dynamic: wishes.dynamic,
            per_node: u16::try_from(lent).unwrap_or(u16::MAX),
            one_more: u32::try_from(one_more).unwrap_or(0),
            bank: total - lent * peers - one_more,
            buffers,
            events: total,
        })
    }

    /// What `lender` lends `borrower` at the start.
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

fn count(buffers: u64, credits: u64) -> Result<u32, PlanError> {
    u32::try_from(buffers.min(MOST_BUFFERS + 1))
        .ok()
        .filter(|n| u64::from(*n) <= MOST_BUFFERS)
        .ok_or(PlanError::TooMany { credits })
}

/// Credits of each peer and of the bank, before buffers are rounded up.
fn wanted(nodes: u32, peers: u64, w: &Wishes) -> Result<(u64, u64), PlanError> {
    let (per_node, banked) = table(u64::from(nodes));
    let held = w.space.map(|s| s / CREDIT_BYTES as u64);
    let least = u64::from(MIN_CREDITS);
    let fits = |held: u64, wanted: u64| {
        held.checked_sub(wanted)
            .ok_or(PlanError::Space { held, wanted })
    };
    // More than any buffers back is refused later; here it only must not overflow.
    let c = w.per_node.map(|c| c.min(u64::from(u16::MAX)));
    let b = w.banked.map(|b| b.min(u64::from(u32::MAX) << 16));
    if !w.dynamic {
        return Ok(match (c, held) {
            (Some(c), _) => (c, 0),
            (None, Some(held)) => ((held / peers).max(least), 0),
            (None, None) => (per_node + banked / peers, banked % peers),
        });
    }
    Ok(match (c, b, held) {
        (Some(c), Some(b), _) => (c, b),
        (Some(c), None, Some(held)) => (c, fits(held, c * peers)?),
        (Some(c), None, None) => (c, banked),
        (None, Some(b), Some(held)) => (fits(held, b)? / peers, b),
        (None, Some(b), None) => (per_node, b),
        (None, None, Some(held)) => (held / peers, 0),
        (None, None, None) => (per_node, banked),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFAULT: Wishes = Wishes::DEFAULT;
    const STATIC: Wishes = Wishes {
        dynamic: false,
        ..DEFAULT
    };

    #[test]
    fn the_table_has_the_worked_values() {
        for (nodes, per_node, banked) in [
            (2, 200, 400),
            (64, 170, 12_800),
            (96, 170, 19_200),
            (256, 135, 25_600),
            (768, 48, 25_600),
            (1024, 32, 25_600),
            (1536, 24, 25_600),
            (8192, 8, 25_600),
            (60_000, 8, 25_600),
        ] {
            assert_eq!(table(nodes), (per_node, banked), "{nodes} nodes");
        }
    }

    #[test]
    fn a_thousand_nodes_need_eight_buffers_and_a_spare() {
        assert_eq!(BUFFER_CREDITS, 8184);
        let p = Plan::new(1024, STATIC).unwrap();
        assert_eq!((p.buffers, p.events), (9, 65_472));
        assert_eq!((p.per_node, p.one_more, p.bank), (64, 0, 0));
        let p = Plan::new(1024, DEFAULT).unwrap();
        assert_eq!((p.buffers, p.events), (9, 65_472));
        assert_eq!(
            (p.per_node, p.one_more, p.bank),
            (32, 0, 65_472 - 1023 * 32)
        );
    }

    #[test]
    fn loans_and_bank_add_up_to_the_queue_on_every_rank() {
        for nodes in [2u32, 3, 5, 64, 100, 777, 5000] {
            for wishes in [DEFAULT, STATIC] {
                let p = Plan::new(nodes, wishes).unwrap();
                for lender in [0, 1, nodes / 2, nodes - 1] {
                    let lent: u64 = (0..nodes).map(|b| u64::from(p.loan(lender, b))).sum();
                    assert_eq!(lent + p.bank, p.events, "{nodes} nodes, lender {lender}");
                }
                let room = u64::from(p.buffers - 1) * BUFFER_CREDITS;
                assert!(p.events <= room && p.per_node >= MIN_CREDITS);
                assert!(p.dynamic || p.bank == 0);
            }
        }
    }

    #[test]
    fn one_node_and_no_flow_control() {
        let one = Plan::new(1, DEFAULT).unwrap();
        assert_eq!((one.flow_control, one.buffers, one.events), (false, 1, 10));
        let off = Wishes {
            flow_control: false,
            space: Some(5 << 20),
            ..DEFAULT
        };
        let off = Plan::new(4, off).unwrap();
        assert_eq!((off.buffers, off.events), (3, 500 + 3 * 8184));
    }

    #[test]
    fn static_overrides() {
        let with = |per_node, space| {
            Plan::new(
                4,
                Wishes {
                    per_node,
                    space,
                    ..STATIC
                },
            )
        };
        let few = PlanError::TooFew {
            per_node: 7,
            peers: 3,
        };
        assert_eq!(with(Some(7), None), Err(few));
        let c = with(Some(8), None).unwrap();
        assert_eq!((c.per_node, c.one_more, c.buffers), (2728, 0, 2));
        // 32768 credits for 3 peers, 10922 each: five buffers' worth.
        let s = with(None, Some(8 << 20)).unwrap();
        assert_eq!((s.buffers, s.per_node), (6, 13_640));
        assert_eq!(with(None, Some(0)).unwrap().per_node, 2728);
    }

    /// Every row of the override matrix; 8184 credits a buffer, 4 peers.
    #[test]
    fn dynamic_overrides() {
        let plan = |per_node, banked, space| {
            let wishes = Wishes {
                per_node,
                banked,
                space,
                ..DEFAULT
            };
            Plan::new(5, wishes).map(|p| (p.per_node, p.bank, p.buffers))
        };
        let both = Ok((10, 8184 - 40, 2));
        assert_eq!(plan(Some(10), Some(100), None), both);
        assert_eq!(plan(Some(10), Some(100), Some(1)), both);
        let kib = |n: u64| Some(n << 10);
        assert_eq!(plan(Some(10), None, kib(10)), Ok((10, 8184 - 40, 2)));
        assert_eq!(plan(Some(10), None, kib(4096)), Ok((10, 24_552 - 40, 4)));
        let space = |held, wanted| Err(PlanError::Space { held, wanted });
        assert_eq!(plan(Some(10), None, kib(9)), space(36, 40));
        let few = |per_node| Err(PlanError::TooFew { per_node, peers: 4 });
        assert_eq!(plan(Some(7), None, None), few(7));
        assert_eq!(plan(None, Some(20), kib(10)), few(5));
        assert_eq!(plan(None, Some(41), kib(10)), space(40, 41));
        assert_eq!(plan(None, Some(0), kib(10)), Ok((10, 8184 - 40, 2)));
        let (per_node, banked) = table(5);
        let lent = 4 * per_node;
        let rest = |bank: u64| (lent + bank).div_ceil(8184) * 8184 - lent;
        assert_eq!(plan(None, Some(9000), None).unwrap().1, rest(9000));
        assert_eq!(plan(None, None, None).unwrap().1, rest(banked));
        assert_eq!(plan(Some(200), None, None).unwrap().0, 200);
        assert_eq!(plan(None, None, kib(7)), few(7));
        assert_eq!(plan(None, None, kib(8)), Ok((8, 8184 - 32, 2)));
        assert_eq!(plan(Some(1 << 40), Some(0), None).unwrap().0, u16::MAX);
        assert!(matches!(
            plan(None, Some(u64::MAX), None),
            Err(PlanError::TooMany { .. })
        ));
    }
}
