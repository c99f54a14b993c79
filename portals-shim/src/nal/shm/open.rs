//! How ranks come to share memory.
//!
//! ```text
//!  rank 0                                   the others
//!  make the memory, put its /proc path      ·
//!  ───────────────────────────── fence ─────────────────────────────
//!  ·                                        open the path, map, look at the signature
//!  say who we are in our block              say who we are in our block
//!  ───────────────────────────── fence ─────────────────────────────
//!  try to read a neighbour's memory, say whether that works
//!  ───────────────────────────── fence ─────────────────────────────
//!  learn who the others are; the descriptor of the memory is closed
//! ```

use super::alarm::Alarm;
use super::attach::{self, There};
use super::layout::{Identity, Layout, MOST_RANKS, VERSION};
use super::map::{self, Map};
use super::nap::{self, Futex};
use super::onesided::Published;
use super::peer::Peer;
use super::ring::Order;
use super::{Core, Counters, Members, Shm};
use crate::fabric::{
    FabricConfig, FabricError, FabricKind, Ids, Opened, Wishes, identity, rank_config,
};
use crate::identity::life::Process;
use crate::interface::Interface;
use crate::job::Job;
use crate::place::Placement;
use crate::region::permit_memory_access;
use portals_core::{Ni, NiConfig, ProcessId};
use rustix::fs::{Mode, OFlags};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a wait polls before it sleeps, where each rank has a processor.
const SPIN: Duration = Duration::from_micros(50);

fn unusable(reason: impl Into<String>) -> FabricError {
    FabricError::Unusable {
        kind: FabricKind::Shm,
        reason: reason.into(),
    }
}

/// Whether this machine can share memory in the way the fabric does.
///
/// # Errors
/// Says what is missing.
pub fn check(ranks: Option<u32>) -> Result<(), String> {
    if let Some(ranks) = ranks.filter(|ranks| *ranks > MOST_RANKS) {
        return Err(too_many(ranks));
    }
    let layout = Layout::new(1);
    let fd = map::create("portolan-check", layout.total())
        .map_err(|e| format!("no anonymous shared memory (memfd_create): {e}"))?;
    let path = path_of(std::process::id(), fd.as_raw_fd());
    let again = rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|e| format!("{path} cannot be opened ({e}); /proc must be mounted"))?;
    let map = Map::new(again, layout.total()).map_err(|e| e.to_string())?;
    drop(map);
    Ok(())
}

fn too_many(ranks: u32) -> String {
    format!("{ranks} ranks; 1 to {MOST_RANKS} ranks can share memory")
}

fn path_of(pid: u32, fd: i32) -> String {
    format!("/proc/{pid}/fd/{fd}")
}

/// The memory of a job, before ranks join.
#[derive(Debug)]
pub struct Memory {
    fd: OwnedFd,
    ranks: u32,
}

impl Memory {
    /// Memory for so many ranks. It lives until this value is gone and all ranks have closed.
    ///
    /// # Errors
    /// The system has none, or it is too many ranks.
    pub fn new(ranks: u32) -> Result<Self, FabricError> {
        if ranks == 0 || ranks > MOST_RANKS {
            return Err(unusable(too_many(ranks)));
        }
        let layout = Layout::new(ranks);
        let fd = map::create("portolan", layout.total())
            .map_err(|e| unusable(format!("no anonymous shared memory (memfd_create): {e}")))?;
        let map = Map::new(&fd, layout.total()).map_err(|e| unusable(e.to_string()))?;
        layout.sign(&map);
        Ok(Self { fd, ranks })
    }

    /// Where other processes of the same user can open it, while this value lives.
    pub fn path(&self) -> String {
        path_of(std::process::id(), self.fd.as_raw_fd())
    }

    /// Opens what [`Memory::path`] named in another process.
    ///
    /// # Errors
    /// It is not there, belongs to somebody else, or is of another version.
    pub fn open(path: &str, ranks: u32) -> Result<Self, FabricError> {
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let fd = fd.map_err(|e| {
            unusable(format!(
                "the memory of rank 0 at {path} cannot be opened ({e}); the ranks must belong to one user \
                 and see each other's processes"
            ))
        })?;
        Ok(Self { fd, ranks })
    }

    /// A mapping for tests that play a rank.
    #[cfg(test)]
    pub(super) fn map_for_test(&self) -> Map {
        Map::new(&self.fd, Layout::new(self.ranks).total()).unwrap()
    }

    fn map(&self) -> Result<(Layout, Map), FabricError> {
        let layout = Layout::new(self.ranks);
        let map = Map::new(&self.fd, layout.total())
            .ok()
            .filter(|map| layout.is_signed(map));
        let map = map.ok_or_else(|| {
            unusable("the shared memory is of another version of portolan, or of another job")
        })?;
        Ok((layout, map))
    }
}

/// What tests may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel may copy between ranks, if it does.
    pub attach: bool,
    /// After the start it does so no longer.
    pub attach_ends: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            attach: true,
            attach_ends: false,
        }
    }
}

/// A rank that has mapped the memory.
#[derive(Debug)]
pub(in crate::nal) struct Joining {
    rank: usize,
    layout: Layout,
    map: Map,
    options: Options,
    orders: bool,
    alarm: Option<Alarm>,
}

/// Whether there are more ranks than processors.
fn is_crowded(ranks: usize) -> bool {
    ranks > std::thread::available_parallelism().map_or(1, usize::from)
}

impl Joining {
    /// First step: who this rank is.
    pub(in crate::nal) fn new(
        memory: &Memory,
        rank: u32,
        config: &NiConfig,
        options: Options,
    ) -> Result<Self, FabricError> {
        let (layout, map) = memory.map()?;
        if rank >= memory.ranks {
            return Err(unusable(format!("rank {rank} of {}", memory.ranks)));
        }
        permit_memory_access();
        let (word, probe) =
            attach::own_word().map_err(|e| unusable(format!("no random numbers: {e}")))?;
        let who = Identity {
            process: Process::own(word),
            uid: config.uid,
            jid: config.jid,
            probe,
        };
        let rank = rank as usize;
        // With more ranks than processors sleeps are frequent, and the fences of messages the smaller price.
        let orders = nap::register_for_order() && !is_crowded(memory.ranks as usize);
        layout.block(rank).set_orders(&map, orders);
        layout.block(rank).introduce(&map, who);
        Ok(Self {
            rank,
            layout,
            map,
            options,
            orders,
            alarm: None,
        })
    }

    /// Part of the first step: this rank will sleep on a descriptor, and not on a futex.
    pub(in crate::nal) fn with_alarm(mut self) -> Result<Self, FabricError> {
        let placed = Alarm::new().and_then(|alarm| Ok((alarm.place()?, alarm)));
        let (place, alarm) = placed.map_err(|e| unusable(format!("no pipe to sleep on: {e}")))?;
        self.layout.block(self.rank).set_alarm(&self.map, place);
        self.alarm = Some(alarm);
        Ok(self)
    }

    /// Second step, when all have made the first: whether the kernel copies for this rank.
    pub(in crate::nal) fn probe(&self, ranks: u32) -> bool {
        let next = (self.rank + 1) % ranks as usize;
        let read = match self.there(next) {
            Some(there) => attach::probe(&there).map_err(|e| e.to_string()),
            None => Err("the ranks are in PID namespaces of their own".to_owned()),
        };
        let can = self.options.attach && read.is_ok();
        if let Err(error) = read
            && self.rank == 0
        {
            tracing::error!(%error, "the kernel does not copy between processes (process_vm_readv); long messages \
                are copied twice. kernel.yama.ptrace_scope=0 or the container's permission for it helps");
        }
        self.layout.block(self.rank).set_attaches(&self.map, can);
        can
    }

    fn process(&self, rank: usize) -> Process {
        self.layout.block(rank).identity(&self.map).process
    }

    /// A rank's memory, if it has a number here.
    fn there(&self, rank: usize) -> Option<There> {
        let who = self.layout.block(rank).identity(&self.map);
        let pid = who.process.number(self.process(self.rank))?;
        Some(There {
            pid,
            word: who.process.word,
            at: who.probe,
        })
    }

    /// Third step, when all have made the second: the fabric.
    pub(in crate::nal) fn nal(self, config: &NiConfig, members: Members, attaches: bool) -> Shm {
        let own = self.process(self.rank);
        let mut there: Vec<_> = (0..members.ids().len()).map(|r| self.there(r)).collect();
        if self.options.attach_ends {
            // No process has this number.
            there.iter_mut().flatten().for_each(|t| t.pid = i32::MAX);
        }
        let Self {
            rank,
            layout,
            map,
            orders,
            alarm,
            ..
        } = self;
        let peers = members
            .ids()
            .iter()
            .enumerate()
            .map(|(r, id)| {
                let block = layout.block(r);
                let rings = (layout.ring(rank, r), layout.ring(r, rank));
                let sizes = (layout.cells, layout.bulk);
                let who = block.identity(&map);
                let mut peer = Peer::new(*id, who, who.process.number(own), sizes, rings);
                peer.attaches = block.attaches(&map);
                peer.there = there[r].filter(|_| attaches);
                // The peer orders those that have registered, and this rank has.
                if orders && block.orders(&map) {
                    peer.order = Order::Sleeper;
                }
                peer
            })
            .collect::<Vec<_>>();
        let map = Arc::new(map);
        let nap = Arc::new(Futex::new(Arc::clone(&map), layout.block(rank)));
        let spin = if is_crowded(peers.len()) {
            Duration::ZERO
        } else {
            SPIN
        };
        let core = Core {
            layout,
            rank,
            who: (config.uid, config.jid),
            members,
            contacts: vec![0; peers.len().div_ceil(64)],
            peers,
            latest: usize::MAX,
            callers: Vec::new(),
            backlog: Vec::new(),
            announced: Vec::new(),
            spare_tokens: Vec::new(),
            outstanding: 0,
            published: Published::default(),
            orders,
            counters: Counters::default(),
            looked: None,
            closed: false,
        };
        Shm {
            map,
            core,
            nap,
            spin,
            alarm,
            near_given: false,
        }
    }

    /// The third step for all ranks of a job.
    pub(super) fn open(
        self,
        config: NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        attaches: bool,
    ) -> Opened {
        let nal = self.nal(&config, Members::all(place, ids.clone()), attaches);
        Opened {
            interface: Interface::direct(Ni::new(config), nal),
            peers: ids,
        }
    }
}

/// Makes or opens the memory of the job; collective.
pub(crate) fn open(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Opened, FabricError> {
    let opening = job.next_opening();
    let ids = Ids::announce(job, wishes, &opening)?;
    let key = format!("portolan.shm{opening}");
    let made = if job.rank() == 0 {
        let made = Memory::new(job.size())?;
        let (path, host) = (made.path(), job.host());
        job.put(&key, format!("{VERSION} {path} {host}"))?;
        Some(made)
    } else {
        None
    };
    job.fence()?;
    let memory = match made {
        Some(made) => made,
        None => find(job, &key)?,
    };
    let place = config.place;
    let config = identity(job, place, wishes);
    let joining = Joining::new(&memory, job.rank(), &config, Options::default())?;
    job.fence()?;
    let ids = ids.collect(job, place)?;
    let attaches = joining.probe(job.size());
    job.fence()?;
    Ok(joining.open(config, place, ids, attaches))
}

/// The memory that rank 0 made.
fn find(job: &Job, key: &str) -> Result<Memory, FabricError> {
    let told = job.get(key)?;
    let path = path_told(&told, job.rank(), job.host()).map_err(unusable)?;
    Memory::open(path, job.size())
}

/// Where the memory is by what rank 0 has told, if it is of this version and machine.
fn path_told<'a>(told: &'a str, rank: u32, host: &str) -> Result<&'a str, String> {
    let mut words = told.split(' ');
    let mut word = || words.next().unwrap_or_default();
    let (version, path, there) = (word(), word(), word());
    if version != VERSION.to_string() {
        return Err(format!(
            "rank 0 speaks version {version:?} of the fabric, rank {rank} version {VERSION}"
        ));
    }
    if there != host {
        return Err(format!(
            "it joins the ranks of one machine, and rank {rank} is on {host}, rank 0 on {there}"
        ));
    }
    Ok(path)
}

/// `ranks` interfaces of this process, for ranks that are threads.
///
/// # Errors
/// As [`Memory::new`].
pub fn in_threads(ranks: u32) -> Result<Vec<Opened>, FabricError> {
    in_threads_with(ranks, Options::default())
}

/// As [`in_threads`], with less than the machine can do.
///
/// # Errors
/// As [`Memory::new`].
pub fn in_threads_with(ranks: u32, options: Options) -> Result<Vec<Opened>, FabricError> {
    const JID: u32 = 1;
    let memory = Memory::new(ranks)?;
    let place = Placement::ONE;
    let ids: Vec<ProcessId> = (0..ranks).map(|r| place.of(r)).collect();
    let joining = (0..ranks)
        .map(|r| Joining::new(&memory, r, &rank_config(place, r, JID), options))
        .collect::<Result<Vec<_>, _>>()?;
    let attaches: Vec<bool> = joining.iter().map(|j| j.probe(ranks)).collect();
    let ranks = (0..).zip(joining).zip(attaches);
    Ok(ranks
        .map(|((r, j), attaches)| j.open(rank_config(place, r, JID), place, ids.clone(), attaches))
        .collect())
}

/// One rank of a job of processes that share `memory`; `meet` waits for all of them and is called twice.
///
/// # Errors
/// The memory is not of this version.
pub fn join(
    memory: &Memory,
    rank: u32,
    options: Options,
    mut meet: impl FnMut(),
) -> Result<Opened, FabricError> {
    let place = Placement::ONE;
    let config = rank_config(place, rank, 1);
    let ids = (0..memory.ranks).map(|r| place.of(r)).collect();
    let joining = Joining::new(memory, rank, &config, options)?;
    meet();
    let attaches = joining.probe(memory.ranks);
    meet();
    Ok(joining.open(config, place, ids, attaches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_or_machine_is_named_in_the_refusal() {
        let told = |version: u32| format!("{version} /proc/7/fd/3 here/1/2");
        assert_eq!(path_told(&told(VERSION), 3, "here/1/2"), Ok("/proc/7/fd/3"));
        let other = path_told(&told(VERSION + 1), 3, "here/1/2").unwrap_err();
        let (ours, theirs) = (VERSION, VERSION + 1);
        assert_eq!(
            other,
            format!("rank 0 speaks version \"{theirs}\" of the fabric, rank 3 version {ours}")
        );
        let far = path_told(&told(VERSION), 3, "there/1/2").unwrap_err();
        assert_eq!(
            far,
            "it joins the ranks of one machine, and rank 3 is on there/1/2, rank 0 on here/1/2"
        );
        assert!(path_told("", 1, "here").is_err());
    }

    #[test]
    fn more_ranks_than_fit_are_refused() {
        assert!(check(Some(MOST_RANKS)).is_ok());
        let words = "1025 ranks; 1 to 1024 ranks can share memory";
        assert_eq!(check(Some(MOST_RANKS + 1)), Err(words.to_owned()));
        assert!(Memory::new(0).is_err() && Memory::new(MOST_RANKS + 1).is_err());
    }
}
