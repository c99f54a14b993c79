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

const PER_NODE: &str = "GASNET_PORTAL_CRED_PER_NODE";
const BANKED: &str = "GASNET_PORTAL_BANKED_CREDITS";
const SPACE: &str = "GASNET_PORTAL_AMRECV_SPACE";

/// The environment asks for credits that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Less than one message needs.
    #[error(
        "{variable}={value} lends each of {peers} peers {per_node} credits, and a full message needs \
         {MIN_CREDITS}: the least value is {least}"
    )]
    TooFew {
        /// The variable that says so.
        variable: &'static str,
        /// Its value.
        value: u64,
        /// Credits that a peer would have.
        per_node: u64,
        /// Peers.
        peers: u64,
        /// The least value of the variable in this job.
        least: u64,
    },
    /// The space does not hold the credits.
    #[error(
        "GASNET_PORTAL_AMRECV_SPACE={space} holds {held} credits of 256 bytes, and {wanted} were asked for: \
         the least value is {least}"
    )]
    Space {
        /// The space, bytes.
        space: u64,
        /// Credits that the space holds.
        held: u64,
        /// Credits asked for with `GASNET_PORTAL_CRED_PER_NODE` or `GASNET_PORTAL_BANKED_CREDITS`.
        wanted: u64,
        /// The least space, bytes.
        least: u64,
    },
    /// More request buffers than can be.
    #[error(
        "{variable}={value} needs more request buffers than a job can have: the most is {most}"
    )]
    TooMany {
        /// The variable that says so.
        variable: &'static str,
        /// Its value.
        value: u64,
        /// The largest value of the variable in this job.
        most: u64,
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
    /// Events of the queue of requests; with flow control at least the credits of a rank.
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
            let buffers = unguarded_buffers(nodes, peers, wishes.space)?;
            return Ok(Self {
                buffers,
                events: 500 + u64::from(buffers) * BUFFER_CREDITS,
                ..alone
            });
        }
        let Wanted {
            per_node,
            banked,
            exact,
        } = wanted(nodes, peers, &wishes)?;
        let want = peers * per_node + banked;
        let counted = want.div_ceil(BUFFER_CREDITS);
        let buffers = u32::try_from(counted + SPARE_BUFFERS)
            .ok()
            .filter(|_| counted <= MOST_BUFFERS)
            .ok_or_else(|| too_many(peers * per_node, &wishes))?;
        let total = counted * BUFFER_CREDITS;
        // What whole buffers hold beyond the wish is banked, or lent as evenly as it goes.
        let (lent, one_more, bank) = match (exact, wishes.dynamic) {
            (true, _) => (per_node, 0, banked),
            (false, true) => (per_node, 0, total - per_node * peers),
            (false, false) => match total / peers {
                n if n < u64::from(u16::MAX) => (n, total % peers, 0),
                _ => (u64::from(u16::MAX), 0, total - u64::from(u16::MAX) * peers),
            },
        };
        Ok(Self {
            flow_control: true,
            dynamic: wishes.dynamic,
            per_node: u16::try_from(lent).unwrap_or(u16::MAX),
            one_more: u32::try_from(one_more).unwrap_or(0),
            bank,
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

/// Request buffers where no credits guard them: those of the table's credits, unless the space is given.
fn unguarded_buffers(nodes: u32, peers: u64, space: Option<u64>) -> Result<u32, PlanError> {
    let (per_node, banked) = table(u64::from(nodes));
    let space = space.unwrap_or((peers * per_node + banked) * CREDIT_BYTES as u64);
    let buffers = space / BUFFER_BYTES as u64 + 1;
    u32::try_from(buffers)
        .ok()
        .filter(|n| u64::from(*n) <= MOST_BUFFERS)
        .ok_or(PlanError::TooMany {
            variable: SPACE,
            value: space,
            most: MOST_BUFFERS * BUFFER_BYTES as u64 - 1,
        })
}

/// The refusal of a bank, or a space, that needs more than [`MOST_BUFFERS`].
fn too_many(lent: u64, w: &Wishes) -> PlanError {
    let credits = MOST_BUFFERS * BUFFER_CREDITS;
    match (w.banked, w.space) {
        (Some(value), _) if w.dynamic => PlanError::TooMany {
            variable: BANKED,
            value,
            most: credits.saturating_sub(lent),
        },
        (_, space) => PlanError::TooMany {
            variable: SPACE,
            value: space.unwrap_or(0),
            most: credits * CREDIT_BYTES as u64,
        },
    }
}

/// Credits before request buffers are rounded up.
struct Wanted {
    per_node: u64,
    banked: u64,
    /// All that is asked for is given, so that no more is lent or banked: a sweep of numbers has the numbers that it says.
    exact: bool,
}

fn wanted(nodes: u32, peers: u64, w: &Wishes) -> Result<Wanted, PlanError> {
    let (per_node, banked) = table(u64::from(nodes));
    let least = u64::from(MIN_CREDITS);
    let given = match (w.per_node, w.banked, w.space) {
        (Some(value), ..) if value < least => {
            return Err(PlanError::TooFew {
                variable: PER_NODE,
                value,
                per_node: value,
                peers,
                least,
            });
        }
        (c, b, s) => (
            // More than any buffers back is refused later; here it only must not overflow.
            c.map(|c| c.min(u64::from(u16::MAX))),
            b.map(|b| b.min(u64::from(u32::MAX) << 16)),
            s,
        ),
    };
    let rounded = |per_node, banked| Wanted {
        per_node,
        banked,
        exact: false,
    };
    let exact = |per_node, banked| Wanted {
        per_node,
        banked,
        exact: true,
    };
    if !w.dynamic {
        return Ok(match given {
            (Some(c), ..) => exact(c, 0),
            (None, _, Some(space)) => rounded(lent_evenly(space, 0, peers).max(least), 0),
            (None, _, None) => rounded(per_node + banked / peers, banked % peers),
        });
    }
    Ok(match given {
        (Some(c), Some(b), _) => exact(c, b),
        (Some(c), None, Some(space)) => rounded(c, left(space, c * peers, c * peers)?),
        (Some(c), None, None) => rounded(c, banked),
        (None, Some(b), Some(space)) => {
            left(space, b, b + least * peers)?;
            rounded(enough(space, b, peers)?, b)
        }
        (None, Some(b), None) => rounded(per_node, b),
        (None, None, Some(space)) => rounded(enough(space, 0, peers)?, 0),
        (None, None, None) => rounded(per_node, banked),
    })
}

/// Credits that are left of a space beside `taken`; a space that works holds `least`.
fn left(space: u64, taken: u64, least: u64) -> Result<u64, PlanError> {
    let bytes = CREDIT_BYTES as u64;
    let held = space / bytes;
    held.checked_sub(taken).ok_or(PlanError::Space {
        space,
        held,
        wanted: taken,
        least: least.saturating_mul(bytes),
    })
}

/// Credits of each peer when a space beside a bank is lent evenly.
fn lent_evenly(space: u64, banked: u64, peers: u64) -> u64 {
    let held = space / CREDIT_BYTES as u64;
    (held.saturating_sub(banked) / peers).min(u64::from(u16::MAX))
}

/// The same; refused where it is less than a full message.
fn enough(space: u64, banked: u64, peers: u64) -> Result<u64, PlanError> {
    let per_node = lent_evenly(space, banked, peers);
    let least = u64::from(MIN_CREDITS);
    if per_node < least {
        return Err(PlanError::TooFew {
            variable: SPACE,
            value: space,
            per_node,
            peers,
            least: (banked + least * peers).saturating_mul(CREDIT_BYTES as u64),
        });
    }
    Ok(per_node)
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
        let sized = |nodes, wishes| {
            let off = Plan::new(nodes, wishes).unwrap();
            (off.buffers, off.events)
        };
        assert_eq!(sized(4, off), (3, 500 + 3 * 8184));
        // Without a space, that of the table's credits: 600, 23,510 and 58,336 of 256 bytes.
        let off = Wishes { space: None, ..off };
        assert_eq!(sized(2, off), (1, 500 + 8184));
        assert_eq!(sized(64, off), (3, 500 + 3 * 8184));
        assert_eq!(sized(1024, off), (8, 500 + 8 * 8184));
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
        assert_eq!(with(Some(7), None), Err(few(PER_NODE, 7, 7, 3, 8)));
        // What is given is given, although two buffers hold more.
        let c = with(Some(8), None).unwrap();
        assert_eq!((c.per_node, c.one_more, c.buffers), (8, 0, 2));
        assert_eq!((c.bank, c.events), (0, 8184));
        // 32768 credits for 3 peers, 10922 each: five buffers' worth.
        let s = with(None, Some(8 << 20)).unwrap();
        assert_eq!((s.buffers, s.per_node), (6, 13_640));
        assert_eq!(with(None, Some(0)).unwrap().per_node, 2728);
    }

    fn few(variable: &'static str, value: u64, per_node: u64, peers: u64, least: u64) -> PlanError {
        PlanError::TooFew {
            variable,
            value,
            per_node,
            peers,
            least,
        }
    }

    /// The least value that a refusal names is the least that is taken.
    #[test]
    fn refusals_name_the_least_value_that_works() {
        for nodes in [2u32, 5, 17] {
            for banked in [None, Some(0), Some(41)] {
                let plan = |space| {
                    let wishes = Wishes {
                        banked,
                        space: Some(space),
                        ..DEFAULT
                    };
                    Plan::new(nodes, wishes)
                };
                let mut refused = 0;
                for space in [0, 1, 100, 1000, 10_000] {
                    let (Err(PlanError::TooFew { value, least, .. })
                    | Err(PlanError::Space {
                        space: value,
                        least,
                        ..
                    })) = plan(space)
                    else {
                        continue;
                    };
                    refused += 1;
                    assert_eq!(value, space);
                    assert!(plan(least - 1).is_err(), "{nodes} {banked:?} {least}");
                    assert!(plan(least).unwrap().per_node >= MIN_CREDITS);
                }
                assert!(refused > 1, "{nodes} {banked:?}");
            }
        }
    }

    /// The same of the most.
    #[test]
    fn refusals_name_the_most_that_works() {
        let bank = |n| Wishes {
            banked: Some(n),
            ..DEFAULT
        };
        let both = |n| Wishes {
            per_node: Some(100),
            ..bank(n)
        };
        let space = |n| Wishes {
            per_node: Some(100),
            space: Some(n),
            ..DEFAULT
        };
        let unguarded = |n| Wishes {
            flow_control: false,
            space: Some(n),
            ..DEFAULT
        };
        let all: [&dyn Fn(u64) -> Wishes; 4] = [&bank, &both, &space, &unguarded];
        for wishes in all {
            let Err(PlanError::TooMany { value, most, .. }) = Plan::new(5, wishes(u64::MAX)) else {
                panic!("a plan of too many")
            };
            assert_eq!(value, u64::MAX);
            assert!(Plan::new(5, wishes(most)).is_ok(), "{most}");
            assert!(Plan::new(5, wishes(most + 256)).is_err(), "{most}");
        }
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
        // Both given: what the buffer holds beyond them stays there.
        let both = Ok((10, 100, 2));
        assert_eq!(plan(Some(10), Some(100), None), both);
        assert_eq!(plan(Some(10), Some(100), Some(1)), both);
        assert_eq!(plan(Some(8), Some(0), None), Ok((8, 0, 2)));
        let kib = |n: u64| Some(n << 10);
        assert_eq!(plan(Some(10), None, kib(10)), Ok((10, 8184 - 40, 2)));
        assert_eq!(plan(Some(10), None, kib(4096)), Ok((10, 24_552 - 40, 4)));
        let space = |kib: u64, held, wanted, least: u64| {
            Err(PlanError::Space {
                space: kib << 10,
                held,
                wanted,
                least: least * 256,
            })
        };
        assert_eq!(plan(Some(10), None, kib(9)), space(9, 36, 40, 40));
        let few = |variable, value, per_node, least| Err(few(variable, value, per_node, 4, least));
        assert_eq!(plan(Some(7), None, None), few(PER_NODE, 7, 7, 8));
        assert_eq!(plan(Some(7), None, kib(1)), few(PER_NODE, 7, 7, 8));
        assert_eq!(
            plan(None, Some(20), kib(10)),
            few(SPACE, 10 << 10, 5, 52 * 256)
        );
        assert_eq!(plan(None, Some(41), kib(10)), space(10, 40, 41, 41 + 32));
        assert_eq!(plan(None, Some(0), kib(10)), Ok((10, 8184 - 40, 2)));
        let (per_node, banked) = table(5);
        let lent = 4 * per_node;
        let rest = |bank: u64| (lent + bank).div_ceil(8184) * 8184 - lent;
        assert_eq!(plan(None, Some(9000), None).unwrap().1, rest(9000));
        assert_eq!(plan(None, None, None).unwrap().1, rest(banked));
        assert_eq!(plan(Some(200), None, None).unwrap().0, 200);
        assert_eq!(plan(None, None, kib(7)), few(SPACE, 7 << 10, 7, 32 * 256));
        assert_eq!(plan(None, None, kib(8)), Ok((8, 8184 - 32, 2)));
        assert_eq!(plan(Some(1 << 40), Some(0), None).unwrap().0, u16::MAX);
    }
}
