//! A whole job of credit machines, simulated: how credits move to the ranks that need them.
//!
//! Every rank has some partners and sends each the same burst of full Mediums in every iteration of
//! its program; from a given iteration on the partners are others. Time is counted in ticks. A
//! target handles in one tick what was sent in the tick before. A rank without credits for its next
//! message sends nothing more in this tick, because a request that waits blocks its caller.
//!
//! Ranks hold state only for the ranks they ever talk to. That is exact as long as all others have
//! the least number of credits, which nobody asks back; [`Scenario::run`] refuses other scenarios.
//! Nothing here is measured: all figures are simulated.

use super::{
    CREDIT_BYTES, CreditByte, Credits, Knobs, MIN_CREDITS, Notice, Plan, PlanError, Wishes,
};
use crate::chunks::CHUNK;

/// Credits of a full Medium.
const COST: u16 = (CHUNK / CREDIT_BYTES) as u16;

/// A job and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Ranks of the job.
    pub ranks: u32,
    /// Ranks that each rank sends to at one time, and that send to it.
    pub partners: u32,
    /// Full Mediums to each partner in an iteration.
    pub burst: u32,
    /// Iterations of the program.
    pub iterations: u32,
    /// The iteration from which on the partners are others; none if not below `iterations`.
    pub change_at: u32,
    /// Credits in the bank of each rank at the least (`GASNET_PORTAL_BANKED_CREDITS`).
    pub banked: Option<u64>,
    /// Requests received that make an epoch (`GASNET_PORTAL_EPOCH_DURATION`).
    pub epoch: u32,
    /// Credits move (`GASNET_PORTAL_DYNAMIC_CREDITS`).
    pub dynamic: bool,
}

/// What happened in one iteration, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Iteration {
    /// Requests that had to wait for credits.
    pub stalls: u64,
    /// Requests sent.
    pub requests: u64,
    /// Ticks until the last rank had all its replies.
    pub ticks: u64,
    /// Credits lent on top.
    pub granted: u64,
    /// Credits that came back to their lenders.
    pub recovered: u64,
    /// System messages about credits.
    pub notices: u64,
}

/// Why a scenario cannot be simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Credits that cannot work.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// Old and new partners of a rank do not fit the job.
    #[error("{ranks} ranks are too few for {partners} partners, and as many others")]
    TooFewRanks {
        /// Ranks.
        ranks: u32,
        /// Partners.
        partners: u32,
    },
    /// Ranks that are not simulated would have credits to give back.
    #[error(
        "with {ranks} ranks each starts with {per_node} credits, more than the least: such jobs are \
         simulated whole, with partners of all ranks"
    )]
    NotSparse {
        /// Ranks.
        ranks: u32,
        /// Credits each starts with.
        per_node: u16,
    },
}

/// One rank; peers are numbered: those it sends to, then those that send to it.
struct Rank {
    credits: Credits,
    inbox: Vec<(u32, What)>,
    /// Partner and message of the burst that are next.
    next: (u32, u32),
    /// The request that waits has been counted; extra credits it will ask for.
    wanted: Option<u8>,
    unanswered: u32,
}

#[derive(Clone, Copy)]
enum What {
    Request(CreditByte),
    Reply(CreditByte),
    Notice(Notice),
}

impl Scenario {
    /// Plays the scenario; what happened in each iteration. The same scenario gives the same
    /// figures.
    ///
    /// # Errors
    /// When it has too few ranks for its partners, or its credits are none that can be simulated.
    pub fn run(&self) -> Result<Vec<Iteration>, ScenarioError> {
        let k = self.partners;
        let sets = 1 + u32::from(self.change_at < self.iterations);
        if u64::from(self.ranks) <= 2 * u64::from(sets) * u64::from(k) || k == 0 {
            return Err(ScenarioError::TooFewRanks {
                ranks: self.ranks,
                partners: k,
            });
        }
        let wishes = Wishes {
            dynamic: self.dynamic,
            // Static credits share out what dynamic ones bank, so that both have the same memory.
            per_node: None,
            banked: self.banked,
            ..Wishes::DEFAULT
        };
        let plan = Plan::new(self.ranks, wishes)?;
        let plan = if self.dynamic {
            plan
        } else {
            let moving = Plan::new(
                self.ranks,
                Wishes {
                    dynamic: true,
                    ..wishes
                },
            )?;
            let peers = u64::from(self.ranks) - 1;
            Plan {
                per_node: u16::try_from(moving.events / peers).unwrap_or(u16::MAX),
                one_more: 0,
                bank: moving.events % peers,
                ..plan
            }
        };
        if self.dynamic && plan.per_node != MIN_CREDITS {
            return Err(ScenarioError::NotSparse {
                ranks: self.ranks,
                per_node: plan.per_node,
            });
        }
        let knobs = Knobs {
            epoch: self.epoch.max(1),
            ..Knobs::DEFAULT
        };
        let seen = 2 * sets * k;
        let mut job = Job {
            scenario: *self,
            seen,
            // The own number is one past the peers, so that no peer is taken for the rank itself.
            ranks: (0..self.ranks)
                .map(|_| Rank {
                    credits: Credits::new(&plan, knobs, seen, seen),
                    inbox: vec![],
                    next: (0, 0),
                    wanted: None,
                    unanswered: 0,
                })
                .collect(),
            now: Iteration::default(),
        };
        Ok((0..self.iterations).map(|i| job.iterate(i)).collect())
    }
}

struct Job {
    scenario: Scenario,
    seen: u32,
    ranks: Vec<Rank>,
    now: Iteration,
}

impl Job {
    /// Peer `p` of `rank`, and what that one calls `rank`. Peers below half of `seen` are sent to:
    /// peer `p` is `p + 1` above; the other half sends.
    fn peer(&self, rank: u32, p: u32) -> (u32, u32) {
        let (n, half) = (self.scenario.ranks, self.seen / 2);
        if p < half {
            ((rank + p + 1) % n, p + half)
        } else {
            ((rank + n - (p - half) - 1) % n, p - half)
        }
    }

    fn send(&mut self, out: &mut Vec<(u32, u32, What)>, rank: u32, p: u32, what: What) {
        let (to, from) = self.peer(rank, p);
        out.push((to, from, what));
    }

    fn iterate(&mut self, i: u32) -> Iteration {
        let before = self.totals();
        self.now = Iteration::default();
        for r in &mut self.ranks {
            r.next = (0, 0);
        }
        let first = if i < self.scenario.change_at {
            0
        } else {
            self.scenario.partners
        };
        let mut out = Vec::new();
        loop {
            for rank in 0..self.scenario.ranks {
                self.handle(&mut out, rank);
                self.burst(&mut out, rank, first);
            }
            self.now.ticks += 1;
            if out.is_empty() {
                break;
            }
            for (to, from, what) in out.drain(..) {
                self.ranks[to as usize].inbox.push((from, what));
            }
        }
        let after = self.totals();
        Iteration {
            stalls: after.0 - before.0,
            granted: after.1 - before.1,
            recovered: after.2 - before.2,
            ..self.now
        }
    }

    fn totals(&self) -> (u64, u64, u64) {
        self.ranks.iter().fold((0, 0, 0), |t, r| {
            let c = r.credits.counts();
            (t.0 + c.stalls, t.1 + c.granted, t.2 + c.recovered)
        })
    }

    fn handle(&mut self, out: &mut Vec<(u32, u32, What)>, rank: u32) {
        let at = rank as usize;
        let mut inbox = std::mem::take(&mut self.ranks[at].inbox);
        for (from, what) in inbox.drain(..) {
            let r = &mut self.ranks[at];
            // Peers of the simulation say nothing wrong.
            match what {
                What::Request(byte) => {
                    let reply = r.credits.handle_request(from, byte).unwrap_or_default();
                    self.send(out, rank, from, What::Reply(reply));
                }
                What::Reply(byte) => {
                    let told = r.credits.handle_reply(from, byte);
                    debug_assert_eq!(told, Ok(()));
                    r.unanswered -= 1;
                }
                What::Notice(notice) => {
                    let told = r.credits.handle_notice(from, notice);
                    debug_assert_eq!(told, Ok(()));
                }
            }
            while let Some((to, notice)) = self.ranks[at].credits.poll_notice() {
                self.now.notices += 1;
                self.send(out, rank, to, What::Notice(notice));
            }
        }
        self.ranks[at].inbox = inbox;
    }

    /// Sends what there are credits for.
    fn burst(&mut self, out: &mut Vec<(u32, u32, What)>, rank: u32, first: u32) {
        let Scenario {
            partners, burst, ..
        } = self.scenario;
        loop {
            let r = &mut self.ranks[rank as usize];
            let (partner, message) = r.next;
            if partner == partners {
                return;
            }
            let p = first + partner;
            if !r.credits.take(p, COST) {
                if r.wanted.is_none() {
                    r.wanted = Some(r.credits.stall(p, COST));
                }
                return;
            }
            let byte = r.credits.of_request(p, COST, r.wanted.take().unwrap_or(0));
            r.unanswered += 1;
            r.next = if message + 1 == burst {
                (partner + 1, 0)
            } else {
                (partner, message + 1)
            };
            self.now.requests += 1;
            self.send(out, rank, p, What::Request(byte));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All start with the least, and the bank of 928 credits is enough for one set of partners, which
    /// want 56 more each, and not for two.
    const SMALL: Scenario = Scenario {
        ranks: 5_000,
        partners: 12,
        burst: 8,
        iterations: 32,
        change_at: 12,
        banked: Some(900),
        epoch: 96,
        dynamic: true,
    };

    #[test]
    fn credits_go_where_they_are_needed_and_stay() {
        let fixed = Scenario {
            dynamic: false,
            ..SMALL
        };
        let [dynamic, fixed] = std::thread::scope(|s| {
            let run = |scenario: Scenario| s.spawn(move || scenario.run().unwrap());
            [SMALL, fixed].map(run).map(|run| run.join().unwrap())
        });
        assert!(dynamic.iter().any(|i| i.recovered > 0), "{dynamic:#?}");
        // Static credits stall alike in every iteration.
        assert!(
            fixed
                .iter()
                .all(|i| i.stalls == fixed[0].stalls && i.stalls > 0)
        );
        assert!(fixed.iter().all(|i| (i.granted, i.notices) == (0, 0)));
        for phase in [&dynamic[..12], &dynamic[12..]] {
            assert!(phase[0].stalls > 0 && phase[0].granted > 0);
            // Steady at the end of each phase: nobody waits and nothing moves.
            for i in &phase[phase.len() - 3..] {
                let moved = (i.stalls, i.granted, i.recovered, i.notices);
                assert_eq!(moved, (0, 0, 0, 0), "{dynamic:#?}");
            }
            assert!(phase[phase.len() - 1].ticks < fixed[0].ticks / 4);
        }
    }

    /// The same scenario gives the same figures, and traffic that fits the loans moves none.
    #[test]
    fn static_traffic_moves_no_credits() {
        let quiet = Scenario { burst: 1, ..SMALL };
        let all = quiet.run().unwrap();
        assert_eq!(all, quiet.run().unwrap());
        for i in all {
            assert_eq!((i.stalls, i.granted, i.recovered, i.notices), (0, 0, 0, 0));
            assert_eq!(i.requests, 5_000 * 12);
        }
    }

    #[test]
    fn what_cannot_be_simulated_is_refused() {
        let few = Scenario { ranks: 20, ..SMALL };
        assert!(matches!(few.run(), Err(ScenarioError::TooFewRanks { .. })));
        let dense = Scenario {
            ranks: 1000,
            ..SMALL
        };
        let not = ScenarioError::NotSparse {
            ranks: 1000,
            per_node: 34,
        };
        assert_eq!(dense.run(), Err(not));
    }
}
