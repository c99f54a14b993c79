//! The places of an open simulation: endpoints come and go at any time, and belong to no job.
//!
//! # Virtual time
//!
//! * The clock of an endpoint begins at the present.
//! * An endpoint is outside until it has *met* somebody: it has told the simulation of a peer, or a wait or look of it has
//!   taken an event. Before that it holds nobody's time, and its calls are made at the present.
//! * Endpoints of processes that a launcher has started together ([`Owner`]) begin at the same time: one that has met somebody waits until
//!   all have, for some wall time at most.
//! * From then on it is like a rank of a job. One that is back from outside waits for nobody.
//! * Of the endpoints of one process the one that called last stands for the process. The others are silent as long: their
//!   threads, if they have any, hold no time.
//! * A place without an endpoint is a rank that is gone.
//!
//! A place is free again when its endpoint has closed or died. Every endpoint has a process id that no other of its node
//! has had, so what is late for one of them reaches no other.
//!
//! # Who has left
//!
//! The kernels of those who have sent something to an endpoint, or were sent something by it, hear that it has left, [`NOTICE`] after it has:
//! what it had sent before has arrived by then, mostly. What they await of it fails, and so does what they send to it later. A wait for ever
//! ends then, unless an event says what has failed.

use super::super::owner::{Number, Owner};
use super::super::usermem::UserMemory;
use super::{Rank, RankState, Return, Setting, Sim, SimError, Work};
use fabric_api::call::{Answer, Call};
use fabric_api::mode::Mode;
use fabric_api::place::{self, LARGEST_PID, Placement, RANK_PID};
use nic_model::{SimDuration, SimTime};
use portals_core::{Limits, NiConfig, ProcessId};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// How long after an endpoint has left the others hear of it: some times what a message of 4 MiB takes. Assumed: the machine has no such
/// notice, as its jobs end together.
pub(super) const NOTICE: SimDuration = SimDuration::from_us(10_000);

/// Endpoints that begin together do so at the next time that is so many whole times this: more than their setting up takes, and nothing
/// happens meanwhile.
const BEGINNING: SimDuration = SimDuration::from_us(100_000);

/// What a simulation knows of the endpoints that may join it.
#[derive(Debug)]
pub(super) struct Places {
    /// By place: whose its endpoint is.
    owners: Vec<Owner>,
    /// Processes that were started together, by how many: nobody waits for the others of these any more.
    scattered: BTreeSet<u32>,
    /// Endpoints with the places of those who have sent something to them or were sent something by them, until it is heard that they have
    /// left.
    acquainted: BTreeSet<(ProcessId, usize)>,
    /// Who has left, and has been heard of.
    left: BTreeSet<ProcessId>,
}

impl Rank {
    /// Takes part in time from now on; whether it runs, and did not hold time before.
    pub(super) fn enter(&mut self) -> bool {
        if std::mem::replace(&mut self.met, true) {
            return false;
        }
        self.outside = self.outside.saturating_sub(1);
        let runs = self.outside == 0 && matches!(self.state, RankState::Outside);
        if runs {
            self.state = RankState::Running;
        }
        runs
    }
}

impl Sim {
    /// Boots a machine with room for endpoints, none of which is there.
    pub(crate) fn open(setting: Setting, places: u32, place: Placement) -> Result<Self, SimError> {
        if setting.mode != Mode::Generic {
            let why = "endpoints join in generic mode only: the firmware knows the processes of accelerated mode from the start";
            return Err(SimError::Setting(why.to_owned()));
        }
        let per_node = place.per_node();
        let on = |rank: u32| ((rank / per_node) as usize, (rank % per_node) as usize);
        let all: Vec<(usize, usize)> = (0..places).map(on).collect();
        let mut sim = Self::on(setting, &all, &[], Vec::new())?;
        sim.places = Some(Box::new(Places {
            owners: vec![Owner::alone(0); all.len()],
            scattered: BTreeSet::new(),
            acquainted: BTreeSet::new(),
            left: BTreeSet::new(),
        }));
        Ok(sim)
    }

    /// Whether nobody is at a place, and the one who was has its last answer.
    fn is_free(&self, rank: usize) -> bool {
        matches!(self.ranks[rank].state, RankState::Gone { .. })
            && !self.returns.iter().any(|r| r.rank == rank)
    }

    /// The place that an endpoint of `owner` has in every run: that of its process's number, and for further endpoints of the
    /// process places behind those of the others' first.
    fn own_place(&self, owner: Owner) -> Option<usize> {
        let Number { rank, of } = owner.number?;
        let places = self.places.as_ref()?;
        let there = places.owners.iter().zip(&self.ranks);
        let before = there
            .filter(|(other, r)| **other == owner && !matches!(r.state, RankState::Gone { .. }))
            .count();
        before.checked_mul(of as usize)?.checked_add(rank as usize)
    }

    /// Gives an endpoint of `owner` its place, or the first free one, and its process id; `None`: there is none.
    pub(crate) fn admit(
        &mut self,
        wished: NiConfig,
        memory: Box<dyn UserMemory>,
        owner: Owner,
    ) -> Option<(usize, ProcessId)> {
        let pid = |sim: &Self, rank: usize| {
            let before = sim.nodes.0[sim.ranks[rank].node].processes.len();
            let pid = u32::try_from(before).ok()?.checked_add(RANK_PID)?;
            (pid <= LARGEST_PID).then_some(pid)
        };
        let own = self.own_place(owner).filter(|at| *at < self.ranks.len());
        let mut free = own.into_iter().chain(0..self.ranks.len());
        let mut free = free.by_ref().filter(|rank| self.is_free(*rank));
        let (rank, pid) = free.find_map(|rank| Some((rank, pid(self, rank)?)))?;
        let node = self.ranks[rank].node;
        let id = ProcessId::new(place::nid(u32::try_from(node).ok()?), pid);
        let places = self.places.as_mut()?;
        places.owners[rank] = owner;
        places.acquainted.retain(|(_, of)| *of != rank);
        // What was to happen to the one before.
        self.work.retain(|Reverse((_, _, work))| match *work {
            Work::Return(of) | Work::Computed(of) | Work::Write(of) => of != rank,
            Work::Deadline { rank: of, .. } => of != rank,
            Work::Handler(_) | Work::Retry(_) | Work::Local(_) | Work::Left(_) => true,
        });
        self.results[rank] = None;
        let config = NiConfig {
            id,
            limits: wished.limits.min(Limits::LIBRARY),
            ..wished
        };
        self.live += 1;
        self.ranks[rank] = Rank {
            state: RankState::Outside,
            clock: self.now,
            outside: 1,
            node,
            process: self.nodes.0[node].admit(config, memory),
            met: false,
            strays: false,
            slices: false,
        };
        Some((rank, id))
    }

    /// An endpoint that has met somebody takes part in time. Those whose processes were started together begin together.
    pub(super) fn enter(&mut self, rank: usize) {
        let number = self.places.as_ref().and_then(|p| p.owners[rank].number);
        let has_met = self.ranks[rank].met;
        let awaited = number.filter(|n| !has_met && !self.is_scattered(n.of));
        let r = &mut self.ranks[rank];
        let Some(Number { of, .. }) = awaited else {
            let enters = r.enter();
            self.returns.push_back(Return {
                rank,
                clock: r.clock,
                result: Ok(Answer::Done),
            });
            self.running += usize::from(enters);
            return;
        };
        r.state = RankState::Entering;
        if self.are_all_here(of) {
            self.begin_together(of);
        }
    }

    fn is_scattered(&self, of: u32) -> bool {
        self.places
            .as_ref()
            .is_some_and(|places| places.scattered.contains(&of))
    }

    /// The endpoints of processes of which so many were started together.
    fn together(&self, of: u32) -> impl Iterator<Item = (usize, u32)> + '_ {
        let owners = self.places.iter().flat_map(|places| &places.owners);
        owners.enumerate().filter_map(move |(rank, owner)| {
            let number = owner.number.filter(|n| n.of == of)?;
            let gone = matches!(self.ranks[rank].state, RankState::Gone { .. });
            (!gone).then_some((rank, number.rank))
        })
    }

    fn are_all_here(&self, of: u32) -> bool {
        let has_begun = |rank: usize| {
            let r = &self.ranks[rank];
            r.met || matches!(r.state, RankState::Entering)
        };
        let begun = self.together(of).filter(|(rank, _)| has_begun(*rank));
        let numbers: BTreeSet<u32> = begun.map(|(_, number)| number).collect();
        numbers.len() == of as usize
    }

    /// Lets those in that wait for each other: at a whole [`BEGINNING`], so that the chips are in the same phase in every run.
    fn begin_together(&mut self, of: u32) {
        let entering =
            |(rank, _): &(usize, u32)| matches!(self.ranks[*rank].state, RankState::Entering);
        let all: Vec<usize> = self
            .together(of)
            .filter(entering)
            .map(|(rank, _)| rank)
            .collect();
        let clocks = all.iter().map(|rank| self.ranks[*rank].clock);
        let latest = clocks.fold(self.now, SimTime::max).as_ps();
        let whole = BEGINNING.as_ps();
        let whole = latest.div_ceil(whole).saturating_mul(whole);
        let at = SimTime::ZERO + SimDuration::from_ps(whole);
        for rank in all {
            self.ranks[rank].enter();
            self.finish(rank, at, Ok(Answer::Done));
        }
    }

    /// Whether endpoints wait for others of processes that were started together with theirs.
    pub(crate) fn is_gathering(&self) -> bool {
        let mut states = self.ranks.iter().map(|r| &r.state);
        states.any(|state| matches!(state, RankState::Entering))
    }

    /// They wait no longer, nor does who comes later.
    pub(crate) fn stop_gathering(&mut self) {
        let entering = |rank: &usize| matches!(self.ranks[*rank].state, RankState::Entering);
        let waiting: Vec<usize> = (0..self.ranks.len()).filter(entering).collect();
        let Some(places) = &mut self.places else {
            return;
        };
        let numbers = waiting
            .iter()
            .filter_map(|rank| places.owners[*rank].number);
        let scattered: BTreeSet<u32> = numbers.map(|number| number.of).collect();
        places.scattered.extend(&scattered);
        for of in scattered {
            self.begin_together(of);
        }
    }

    /// A rank is about to call: the other endpoints of its process do not hold time.
    pub(super) fn take_turn(&mut self, rank: usize) {
        let Some(places) = &self.places else { return };
        let Some(own) = places.owners.get(rank) else {
            return;
        };
        let others = self.ranks.iter_mut().zip(&places.owners).enumerate();
        for (other, (r, owner)) in others {
            if other != rank && owner == own && matches!(r.state, RankState::Running) {
                r.state = RankState::Silent;
                self.running -= 1;
            }
        }
    }

    /// An endpoint wants nothing any more of a process.
    pub(super) fn forget_peer(&mut self, rank: usize, peer: ProcessId) {
        let Rank { node, process, .. } = self.ranks[rank];
        let kernel = &mut self.nodes.0[node];
        kernel
            .driver
            .forget_peer(&mut kernel.processes, process, peer);
    }

    /// Whether the operation of a call is for an endpoint that has left, as the caller's kernel has heard. Notes who sends to
    /// whom.
    pub(super) fn is_for_one_that_left(&mut self, rank: usize, call: &Call) -> bool {
        let (Some(places), Some(to)) = (&mut self.places, call.target()) else {
            return false;
        };
        if places.left.contains(&to) {
            return true;
        }
        // Ids that nobody has had are not kept, since there is no end of them.
        let node = place::node_index(to.nid).and_then(|node| self.nodes.0.get(node as usize));
        let process = to.pid.checked_sub(RANK_PID);
        if node
            .zip(process)
            .is_some_and(|(node, at)| (at as usize) < node.processes.len())
        {
            self.acquaint(rank, to);
        }
        false
    }

    /// A place's endpoint sends something to a process: each of them is told when the other has left.
    fn acquaint(&mut self, rank: usize, to: ProcessId) {
        let Some(places) = &mut self.places else {
            return;
        };
        if !places.acquainted.insert((to, rank)) {
            return;
        }
        let own = self.process_of(rank);
        let receiver = (0..self.ranks.len()).find(|r| self.process_of(*r) == to);
        if let Some((places, receiver)) = self.places.as_mut().zip(receiver) {
            places.acquainted.insert((own, receiver));
        }
    }

    /// Who is at a place, or was last.
    fn process_of(&self, rank: usize) -> ProcessId {
        let Rank { node, process, .. } = self.ranks[rank];
        let nid = u32::try_from(node).map_or(u32::MAX, place::nid);
        let pid = u32::try_from(process).map_or(u32::MAX, |p| p.saturating_add(RANK_PID));
        ProcessId::new(nid, pid)
    }

    /// The endpoint of a place has left at `at`: its library goes, and the others will hear of it.
    pub(super) fn vacate(&mut self, rank: usize, at: SimTime) {
        if self.places.is_none() {
            return;
        }
        let Rank { node, process, .. } = self.ranks[rank];
        let kernel = &mut self.nodes.0[node];
        let id = kernel.processes[process].ni.config().id;
        kernel.dismiss(process);
        self.schedule(at.max(self.now) + NOTICE, Work::Left(id));
    }

    /// The kernels hear that an endpoint has left.
    pub(super) fn tell_of(&mut self, at: SimTime, left: ProcessId) {
        let Some(places) = &mut self.places else {
            return;
        };
        places.left.insert(left);
        let of = (left, usize::MIN)..=(left, usize::MAX);
        let peers: Vec<usize> = places.acquainted.range(of).map(|(_, rank)| *rank).collect();
        places.acquainted.retain(|(id, _)| *id != left);
        for rank in peers {
            if matches!(self.ranks[rank].state, RankState::Gone { .. }) {
                continue;
            }
            self.forget_peer(rank, left);
            let Rank { node, process, .. } = self.ranks[rank];
            let kernel = &mut self.nodes.0[node];
            kernel.processes[process].ni.lost(left);
            let start = kernel.free_at.max(at);
            let done = self.settle(node, start);
            self.nodes.0[node].free_at = done;
            self.wake(node, done);
        }
    }
}
