//! The places of an open simulation: endpoints come and go at any time, and belong to no job.
//!
//! # Virtual time
//!
//! * The clock of an endpoint begins at the present.
//! * An endpoint is outside until it has *met* somebody: it has told the simulation of a peer, or a wait or look of it has
//!   taken an event. Before that it holds nobody's time, and its calls are made at the present.
//! * Endpoints of the ranks of a launcher's job ([`Owner`]) begin at the same time: one that has met somebody waits until one of each rank
//!   has, for some wall time at most.
//! * From then on it is like a rank of a job. One that is back from outside waits for nobody.
//! * Of the endpoints of one process the one that called last stands for the process. The others are silent as long: their
//!   threads, if they have any, hold no time. While another thread is in a call, as in a wait, none holds time: what keeps it from
//!   calling may be that thread.
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

use super::super::owner::{JobRank, Owner};
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

/// Ranks of a job begin together at a virtual time that is a multiple of this. Setting up their endpoints takes less, and nothing else
/// happens before. Chosen, not measured.
const BEGINNING: SimDuration = SimDuration::from_us(100_000);

/// What a simulation knows of the endpoints that may join it.
#[derive(Debug)]
pub(super) struct Places {
    /// By place: whose its endpoint is.
    owners: Vec<Owner>,
    /// Places of endpoints that wait to begin together with the other ranks of their jobs.
    entering: BTreeSet<usize>,
    /// Sizes of jobs whose ranks no longer wait for each other, as some did not come.
    scattered: BTreeSet<u32>,
    /// Endpoints with the places of those who have sent something to them or were sent something by them, until it is heard that they have
    /// left.
    acquainted: BTreeSet<(ProcessId, usize)>,
    /// Who has left, and has been heard of.
    left: BTreeSet<ProcessId>,
}

impl Places {
    /// The other places that the process of a place has, or had last.
    fn others_of_process(&self, rank: usize) -> impl Iterator<Item = usize> {
        let own = self.owners.get(rank);
        let all = self.owners.iter().enumerate();
        all.filter(move |(other, owner)| *other != rank && own == Some(*owner))
            .map(|(other, _)| other)
    }
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
            entering: BTreeSet::new(),
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

    /// The place that an endpoint of `owner` has in every run: that of the rank. Further endpoints of a rank have places behind the
    /// first ones of all ranks.
    fn own_place(&self, owner: Owner) -> Option<usize> {
        let JobRank { rank, size } = owner.job_rank?;
        let places = self.places.as_ref()?;
        let there = places.owners.iter().zip(&self.ranks);
        let before = there
            .filter(|(other, r)| **other == owner && !matches!(r.state, RankState::Gone { .. }))
            .count();
        before
            .checked_mul(size as usize)?
            .checked_add(rank as usize)
    }

    /// Gives an endpoint of `owner` its place, or the first free one, and its process id; `None`: there is none.
    pub(crate) fn admit(
        &mut self,
        wished: NiConfig,
        memory: Box<dyn UserMemory>,
        owner: Owner,
    ) -> Option<(usize, ProcessId)> {
        let pid = |sim: &Self, rank: usize| {
            let before = sim.nodes.all[sim.ranks[rank].node].processes.len();
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
            process: self.nodes.all[node].admit(config, memory),
            met: false,
            strays: false,
            slices: false,
        };
        Some((rank, id))
    }

    /// An endpoint that has met somebody takes part in time. One of a rank of a job waits for the other ranks.
    pub(super) fn enter(&mut self, rank: usize) {
        let has_met = self.ranks[rank].met;
        let awaiting = self
            .places
            .as_mut()
            .filter(|_| !has_met)
            .and_then(|places| {
                let JobRank { size, .. } = places.owners[rank].job_rank?;
                let waits = !places.scattered.contains(&size);
                waits.then(|| places.entering.insert(rank)).map(|_| size)
            });
        let r = &mut self.ranks[rank];
        if let Some(size) = awaiting {
            r.state = RankState::Entering;
            if self.are_all_here(size) {
                self.begin_together(size);
            }
            return;
        }
        let enters = r.enter();
        self.returns.push_back(Return {
            rank,
            clock: r.clock,
            result: Ok(Answer::Done),
        });
        self.running += usize::from(enters);
    }

    /// Whether an endpoint of each rank of the jobs of this size has met somebody.
    fn are_all_here(&self, size: u32) -> bool {
        let Some(places) = &self.places else {
            return false;
        };
        let has_met = |(place, owner): (usize, &Owner)| {
            let JobRank { rank, size: of } = owner.job_rank?;
            let is_here =
                self.ranks[place].met && !matches!(self.ranks[place].state, RankState::Gone { .. });
            (of == size && (is_here || places.entering.contains(&place))).then_some(rank)
        };
        let ranks: BTreeSet<u32> = places
            .owners
            .iter()
            .enumerate()
            .filter_map(has_met)
            .collect();
        ranks.len() == size as usize
    }

    /// Lets the ranks of jobs of this size begin that wait for each other.
    fn begin_together(&mut self, size: u32) {
        let Some(places) = &mut self.places else {
            return;
        };
        let owners = &places.owners;
        let is_of = |place: &usize| owners[*place].job_rank.is_some_and(|job| job.size == size);
        let all: Vec<usize> = places.entering.iter().copied().filter(is_of).collect();
        places.entering.retain(|place| !is_of(place));
        let clocks = all.iter().map(|place| self.ranks[*place].clock);
        let latest = clocks.fold(self.now, SimTime::max).as_ps();
        let step = BEGINNING.as_ps();
        let at = SimTime::ZERO + SimDuration::from_ps(latest.div_ceil(step).saturating_mul(step));
        for place in all {
            self.ranks[place].enter();
            self.finish(place, at, Ok(Answer::Done));
        }
    }

    /// Whether ranks of a job wait for each other.
    pub(crate) fn is_gathering(&self) -> bool {
        self.places
            .as_ref()
            .is_some_and(|places| !places.entering.is_empty())
    }

    /// The ranks that wait begin, and later ones of jobs of their sizes do not wait.
    pub(crate) fn stop_gathering(&mut self) {
        let Some(places) = &mut self.places else {
            return;
        };
        let jobs = places
            .entering
            .iter()
            .filter_map(|place| places.owners[*place].job_rank);
        let sizes: BTreeSet<u32> = jobs.map(|job| job.size).collect();
        places.scattered.extend(&sizes);
        for size in sizes {
            self.begin_together(size);
        }
    }

    /// A rank is about to call: the other endpoints of its process do not hold time.
    pub(super) fn take_turn(&mut self, rank: usize) {
        let Some(places) = &self.places else { return };
        for other in places.others_of_process(rank) {
            let r = &mut self.ranks[other];
            if matches!(r.state, RankState::Running) {
                r.state = RankState::Silent;
                self.running -= 1;
            }
        }
    }

    /// Whether another endpoint of the same process is in a call.
    pub(super) fn has_others_in_calls(&self, rank: usize) -> bool {
        self.places.as_ref().is_some_and(|places| {
            let mut others = places.others_of_process(rank);
            others.any(|other| self.ranks[other].is_in_call())
        })
    }

    /// An endpoint wants nothing any more of a process.
    pub(super) fn forget_peer(&mut self, rank: usize, peer: ProcessId) {
        let Rank { node, process, .. } = self.ranks[rank];
        let kernel = &mut self.nodes.all[node];
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
        let node = place::node_index(to.nid).and_then(|node| self.nodes.all.get(node as usize));
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
        let Some(places) = &mut self.places else {
            return;
        };
        places.entering.remove(&rank);
        let Rank { node, process, .. } = self.ranks[rank];
        let kernel = &mut self.nodes.all[node];
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
            let kernel = &mut self.nodes.all[node];
            kernel.processes[process].ni.lost(left);
            let start = kernel.free_at.max(at);
            let done = self.settle(node, start);
            self.nodes.all[node].free_at = done;
            self.wake(node, done);
        }
    }
}
