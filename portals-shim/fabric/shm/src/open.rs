//! How ranks come to share memory.
//!
//! ```text
//!  rank 0                                   the others
//!  make the memory, open the door           ·
//!  ───────────────────────────── fence ─────────────────────────────
//!  let them in                              knock at the door
//!  ───────────────────────────── fence ─────────────────────────────
//!  hand over the memory                     map it, look at the signature
//!  say who we are in our block              say who we are in our block
//!  ───────────────────────────── fence ─────────────────────────────
//!  try to read a neighbour's memory, say whether that works
//!  ───────────────────────────── fence ─────────────────────────────
//!  learn who the others are; the descriptor of the memory is closed
//! ```

use super::alarm::{Alarm, Lines};
use super::attach::{self, NoCopy, There};
use super::door::{Door, DoorError, Guest};
use super::handing::{Handing, Inbox};
use super::layout::{Identity, Layout, MOST_RANKS, VERSION};
use super::map::Map;
use super::nap::{self, Futex};
use super::onesided::Published;
use super::peer::Peer;
use super::ring::Order;
use super::{Core, Counters, Members, OnFault, Shm};
use crate::trusted::TRUST;
use fabric_api::attached::Attached;
use fabric_api::config::{FabricConfig, FabricError, FabricKind};
use fabric_api::identity::{Ids, Wishes, identity, rank_config};
use host::life::{Process, is_process};
use host::shared_file;

use fabric_api::place::Placement;
use fabric_api::region::{Trust, permit_memory_access};
use host::processors::{self, Processors};
use launch::Job;
use portals_core::{Ni, NiConfig, ProcessId};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Once};
use std::time::Duration;

/// How long a wait polls before it sleeps, where each rank has a processor.
const SPIN: Duration = Duration::from_micros(50);

pub(super) fn unusable(reason: impl Into<String>) -> FabricError {
    FabricError::Unusable {
        kind: FabricKind::Shm,
        reason: reason.into(),
    }
}

/// Why the kernel does not copy from a rank's memory for this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreachable {
    #[error(
        "rank {rank} on this machine is in another PID namespace, or in one that /proc does not show, and has no number here"
    )]
    Namespace { rank: usize },
    #[error("ranks {rank} and {other} on this machine say that they are the same process")]
    Same { rank: usize, other: usize },
    #[error(
        "rank {rank} on this machine says that it is process {pid}, which is the number of a thread here, or of nobody"
    )]
    NoProcess { rank: usize, pid: i32 },
}

/// Whether this machine can share memory in the way the fabric does.
///
/// # Errors
/// Says what is missing.
pub fn check(ranks: Option<u32>) -> Result<(), String> {
    if let Some(ranks) = ranks.filter(|ranks| *ranks > MOST_RANKS) {
        return Err(too_many(ranks));
    }
    let own = Own::new(0, 1).map_err(FabricError::into_reason)?;
    drop(own);
    Ok(())
}

fn too_many(ranks: u32) -> String {
    format!("{ranks} ranks; 1 to {MOST_RANKS} ranks can share memory")
}

fn mapping(error: std::io::Error) -> FabricError {
    let why = match error.raw_os_error() {
        Some(libc::ENOMEM) => {
            "; the address space (ulimit -v), the mappings of a process (vm.max_map_count) or memory are at their limit"
        }
        _ => "",
    };
    unusable(format!("the shared memory cannot be mapped: {error}{why}"))
}

/// Whether the kernel copies between processes: asked of this one, to which all is permitted that is to any.
///
/// # Errors
/// Says what refuses it.
pub fn check_copies() -> Result<(), String> {
    let (word, at) = attach::own_word().map_err(|e| e.to_string())?;
    let pid = std::process::id().cast_signed();
    attach::probe(&There { pid, word, at }).map_err(|e| e.to_string())
}

fn no_memory(error: std::io::Error) -> FabricError {
    unusable(format!(
        "no anonymous shared memory (memfd_create): {error}"
    ))
}

fn layout_of(ranks: u32) -> Result<Layout, FabricError> {
    if ranks == 0 || ranks > MOST_RANKS {
        return Err(unusable(too_many(ranks)));
    }
    Ok(Layout::new(ranks))
}

/// The file that all ranks write, which says of which layout the memory is.
pub fn common(ranks: u32) -> Result<OwnedFd, FabricError> {
    let layout = layout_of(ranks)?;
    let (_, len) = layout.common();
    let fd = shared_file::create("portolan", len).map_err(no_memory)?;
    layout.sign(&Map::new(&fd, len).map_err(mapping)?);
    Ok(fd)
}

/// The memory of a job whose ranks are threads.
#[derive(Debug)]
pub struct Memory {
    ranks: u32,
    common: OwnedFd,
    /// By rank.
    files: Vec<OwnedFd>,
}

impl Memory {
    /// Memory for so many ranks. It lives until this value is gone and all ranks have closed.
    ///
    /// # Errors
    /// The system has none, or it is too many ranks.
    pub fn new(ranks: u32) -> Result<Self, FabricError> {
        let len = layout_of(ranks)?.file(0).1;
        let files = (0..ranks).map(|_| shared_file::create_own("portolan", len));
        Ok(Self {
            ranks,
            common: common(ranks)?,
            files: files.collect::<Result<_, _>>().map_err(no_memory)?,
        })
    }

    /// A mapping of all for tests that play ranks, and may write everything.
    #[cfg(test)]
    pub(super) fn map_for_test(&self) -> Map {
        let layout = Layout::new(self.ranks);
        let mut map = Map::reserve(layout.total()).unwrap();
        map.place(&self.common, layout.common(), true).unwrap();
        for (rank, fd) in self.files.iter().enumerate() {
            map.place(fd, layout.file(rank), true).unwrap();
        }
        map
    }

    /// The memory, mapped by rank `rank`.
    fn mapped(&self, rank: u32) -> Result<Mapped, FabricError> {
        let own = self.files.get(rank as usize);
        let own = own.ok_or_else(|| unusable(format!("rank {rank} of {}", self.ranks)))?;
        let layout = layout_of(self.ranks)?;
        let mut map = Map::reserve(layout.total()).map_err(mapping)?;
        map.place(own, layout.file(rank as usize), true)
            .map_err(mapping)?;
        Mapped { rank, layout, map }.with(&self.common, &self.files)
    }
}

/// The memory as one rank maps it.
#[derive(Debug)]
pub struct Mapped {
    rank: u32,
    layout: Layout,
    map: Map,
}

impl Mapped {
    /// The mapping, for a test that plays the rank.
    #[cfg(test)]
    pub(super) fn map_for_test(self) -> Map {
        self.map
    }

    /// Says in the own file who this process is, and where it may run.
    fn introduce(&self, config: &NiConfig) -> Result<(), FabricError> {
        permit_memory_access();
        let (word, probe) =
            attach::own_word().map_err(|e| unusable(format!("no random numbers: {e}")))?;
        let who = Identity {
            process: Process::own(word),
            uid: config.uid,
            jid: config.jid,
            probe,
        };
        let block = self.layout.block(self.rank as usize);
        block.set_processors(&self.map, &Processors::own());
        block.introduce(&self.map, who);
        Ok(())
    }

    /// What others have handed over: the common file, and everybody's, of which the own one is mapped already.
    fn with(mut self, common: &OwnedFd, files: &[OwnedFd]) -> Result<Self, FabricError> {
        let Self { rank, layout, map } = &mut self;
        map.place(common, layout.common(), true).map_err(mapping)?;
        let others = files
            .iter()
            .enumerate()
            .filter(|(r, _)| *r != *rank as usize);
        for (other, fd) in others {
            map.place(fd, layout.file(other), false).map_err(|e| {
                unusable(format!("the memory of rank {other} cannot be mapped: {e}"))
            })?;
        }
        if !layout.is_signed(map) {
            return Err(unusable(
                "the shared memory is of another version of portolan, or of another job",
            ));
        }
        Ok(self)
    }
}

/// A rank's own file, before it has others'.
#[derive(Debug)]
pub struct Own {
    mapped: Mapped,
    fd: OwnedFd,
    ranks: u32,
}

impl Own {
    /// Of rank `rank` of so many. From now on it is written by this process alone.
    pub fn new(rank: u32, ranks: u32) -> Result<Self, FabricError> {
        let layout = layout_of(ranks)?;
        let place = layout.file(rank as usize);
        let fd = shared_file::create_own("portolan", place.1).map_err(no_memory)?;
        let mut map = Map::reserve(layout.total()).map_err(mapping)?;
        map.place(&fd, place, true).map_err(mapping)?;
        if let Err(error) = shared_file::seal_for_others(&fd) {
            tracing::debug!(%error, "ranks could write each other's memory, if they wanted to");
        }
        let mapped = Mapped { rank, layout, map };
        Ok(Self { mapped, fd, ranks })
    }

    /// Says in it who this process is, so that whoever has it may try to read this process's memory.
    pub(super) fn introduce(&self, config: &NiConfig) -> Result<(), FabricError> {
        self.mapped.introduce(config)
    }

    /// To be handed to the others, who can read it.
    pub fn descriptor(&self) -> Result<OwnedFd, FabricError> {
        let fd = self.fd.try_clone();
        fd.map_err(|e| unusable(format!("no descriptor for the memory: {e}")))
    }

    /// With what the others have handed over: the common file, and by rank the file of each.
    pub fn with(self, common: &OwnedFd, files: &[OwnedFd]) -> Result<Mapped, FabricError> {
        if files.len() != self.ranks as usize {
            return Err(unusable(format!(
                "{} files for {} ranks",
                files.len(),
                self.ranks
            )));
        }
        self.mapped.with(common, files)
    }
}

/// What tests may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The kernel may copy between ranks, if it does.
    pub attach: bool,
    /// After the start it does so no longer.
    pub attach_ends: bool,
    /// What happens when a peer writes nonsense.
    pub on_fault: OnFault,
    /// How long a peer may be at work on what a rank shows, before that is nonsense.
    pub patience: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            attach: true,
            attach_ends: false,
            on_fault: OnFault::Count,
            patience: Duration::from_secs(60),
        }
    }
}

/// A rank that has mapped the memory.
#[derive(Debug)]
pub struct Joining {
    rank: usize,
    layout: Layout,
    map: Map,
    options: Options,
    orders: bool,
    /// This rank has no processor of its own.
    crowded: bool,
    alarm: Option<Alarm>,
    lines: Lines,
    handing: Option<(Inbox, Vec<OwnedFd>)>,
    /// The number of every other rank, by the kernel; without a value their own words are believed.
    proof: Option<Option<i32>>,
}

impl Joining {
    /// First step, of a rank that is a thread.
    pub fn new(
        memory: &Memory,
        rank: u32,
        config: &NiConfig,
        options: Options,
    ) -> Result<Self, FabricError> {
        Self::of(memory.mapped(rank)?, config, options)
    }

    /// First step, of a rank that is a process.
    pub fn process(mapped: Mapped, config: &NiConfig) -> Result<Self, FabricError> {
        let options = Options {
            on_fault: OnFault::End,
            ..Options::default()
        };
        Self::of(mapped, config, options)
    }

    /// Who this rank is.
    pub(super) fn of(
        mapped: Mapped,
        config: &NiConfig,
        options: Options,
    ) -> Result<Self, FabricError> {
        mapped.introduce(config)?;
        let Mapped { rank, layout, map } = mapped;
        Ok(Self {
            rank: rank as usize,
            layout,
            map,
            options,
            orders: false,
            crowded: false,
            alarm: None,
            lines: Lines::new(Vec::new()),
            handing: None,
            proof: None,
        })
    }

    /// Part of the first step: this rank, as all others, will sleep on a descriptor, and not on a futex. `lines`: how each
    /// is woken, by number.
    pub fn with_alarm(mut self, alarm: Alarm, lines: Vec<OwnedFd>) -> Self {
        self.alarm = Some(alarm);
        self.lines = Lines::new(lines);
        self
    }

    /// Part of the first step: whoever uses the fabric sleeps on a descriptor, which `lines` make readable.
    pub(super) fn with_lines(mut self, lines: Vec<OwnedFd>) -> Self {
        self.lines = Lines::new(lines);
        self
    }

    /// Part of the first step: the kernel has said which number the one other process has here, if it has one.
    pub(super) fn with_proof(mut self, pid: Option<i32>) -> Self {
        self.proof = Some(pid);
        self
    }

    /// Where a rank may run, by what it says.
    pub(super) fn processors_of(&self, rank: usize) -> Processors {
        self.layout.block(rank).processors(&self.map)
    }

    /// Whether this rank has no processor of its own among those of this memory; when all have made the first step.
    pub(super) fn is_crowded(&self, ranks: u32) -> bool {
        let sets = (0..ranks as usize).map(|r| self.layout.block(r).processors(&self.map));
        let sets: Vec<_> = sets.collect();
        processors::is_crowded(self.rank, &sets, processors::at_once())
    }

    /// Part of the first step: where this rank gets descriptors, and the same of each, by number.
    pub fn with_inboxes(mut self, own: Inbox, all: Vec<OwnedFd>) -> Self {
        self.handing = Some((own, all));
        self
    }

    /// Second step, when all have made the first: whether the kernel copies for this rank. `crowded`: it has no processor
    /// of its own.
    pub fn probe(&mut self, ranks: u32, crowded: bool) -> bool {
        self.crowded = crowded;
        // With more ranks than processors sleeps are frequent, and the fences of messages the smaller price.
        self.orders = nap::register_for_order() && !self.crowded;
        let block = self.layout.block(self.rank);
        block.set_orders(&self.map, self.orders);
        let next = (self.rank + 1) % ranks as usize;
        let read = match self.there(next, ranks as usize) {
            Ok(there) => attach::probe(&there).map_err(NoCopy::from),
            Err(unreachable) => Err(NoCopy::from(unreachable)),
        };
        let can = self.options.attach && read.is_ok();
        if let Err(error) = read
            && self.rank == 0
        {
            static ONCE: Once = Once::new();
            let remedy = error.remedy();
            ONCE.call_once(|| {
                host::note(format_args!(
                    "the kernel does not copy between processes (process_vm_readv); long messages are copied \
                     twice{remedy} ({error})"
                ));
            });
        }
        self.layout.block(self.rank).set_attaches(&self.map, can);
        can
    }

    fn process_of(&self, rank: usize) -> Process {
        self.layout.block(rank).identity(&self.map).process
    }

    /// A rank's memory, if the kernel can copy from it by a number that is known to be the rank's.
    pub(super) fn there(&self, rank: usize, ranks: usize) -> Result<There, Unreachable> {
        let who = self.layout.block(rank).identity(&self.map);
        let seen = who.process.number(self.process_of(self.rank));
        let pid = seen.ok_or(Unreachable::Namespace { rank })?;
        if rank != self.rank && self.proof.is_some_and(|proof| proof != Some(pid)) {
            return Err(Unreachable::NoProcess { rank, pid });
        }
        let told = |p: Process| (p.pid, p.namespace);
        let is_one = |p: Process| told(p) == told(who.process) || p.word == who.process.word;
        // Who says that it is another rank, or one of its threads, would have others write to that one.
        let same = |r: &usize| *r != rank && is_one(self.process_of(*r));
        if self.options.on_fault == OnFault::End {
            if let Some(other) = (0..ranks).find(same) {
                return Err(Unreachable::Same { rank, other });
            }
            if !is_process(pid) {
                return Err(Unreachable::NoProcess { rank, pid });
            }
        }
        Ok(There {
            pid,
            word: who.process.word,
            at: who.probe,
        })
    }

    /// Third step, when all have made the second: the fabric, for an [`Ni`] of the caller's ([`Trust`]).
    pub fn nal(self, config: &NiConfig, members: Members, attaches: bool, _: Trust) -> Shm {
        let own = self.process_of(self.rank);
        let ranks = members.ids().len();
        let mut there: Vec<_> = (0..ranks).map(|r| self.there(r, ranks).ok()).collect();
        if self.options.attach_ends {
            // No process has this number.
            there.iter_mut().flatten().for_each(|t| t.pid = i32::MAX);
        }
        let Self {
            rank,
            layout,
            map,
            orders,
            crowded,
            alarm,
            lines,
            handing,
            options,
            proof: _,
        } = self;
        let number = |r: usize| layout.block(r).identity(&map).process.number(own);
        let reads = |r: usize| layout.block(r).attaches(&map);
        let needs = |r: usize| r != rank && (!reads(r) || number(r).is_none());
        let gets = !reads(rank) || (0..ranks).any(|r| number(r).is_none());
        let handing = handing.and_then(|both| Handing::new(rank, both, needs, gets));
        let peers = members
            .ids()
            .iter()
            .enumerate()
            .map(|(r, id)| {
                let block = layout.block(r);
                let rings = (layout.ring(rank, r), layout.ring(r, rank));
                let sizes = (layout.cells, layout.bulk);
                let who = block.identity(&map);
                let mut peer = Peer::new(
                    *id,
                    who,
                    ((rank, r), options.on_fault),
                    who.process.number(own),
                    sizes,
                    rings,
                );
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
        let spin = if crowded { Duration::ZERO } else { SPIN };
        let core = Core {
            layout,
            rank,
            who: (config.uid, config.jid),
            members,
            contacts: vec![0; peers.len().div_ceil(64)],
            on_fault: options.on_fault,
            handing,
            patience: options.patience,
            calling: (0..peers.len().div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            idle: 0,
            asked: None,
            peers,
            lines,
            latest: usize::MAX,
            callers: Vec::new(),
            backlog: Vec::new(),
            rndv_sends: Vec::new(),
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
        }
    }

    /// The third step for all ranks of a job.
    pub(super) fn open(
        self,
        config: NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        attaches: bool,
    ) -> Attached {
        let nal = self.nal(&config, Members::all(place, ids.clone()), attaches, TRUST);
        let near = Box::new(nal.near());
        Attached::unattended(Ni::new(config), nal, ids, TRUST).with_extension(near)
    }
}

/// Makes or opens the memory of the job; collective.
pub fn open(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Attached, FabricError> {
    let opening = job.next_opening();
    let ids = Ids::announce(job, wishes, &opening)?;
    let key = format!("portolan.shm{opening}");
    // The number of an opening stands last: behind the key alone a rank's number would be taken for one.
    let came = |rank: u32| format!("portolan.shm.came.{rank}{opening}");
    let shut = |e: DoorError| unusable(e.to_string());
    let own = Own::new(job.rank(), job.size())?;
    let no_socket = |e| unusable(format!("no socket for descriptors: {e}"));
    let inbox = Inbox::new().map_err(no_socket)?;
    let bring = vec![own.descriptor()?, inbox.line().map_err(no_socket)?];
    let (common, all): (_, Vec<OwnedFd>) = if job.rank() == 0 {
        let common = common(job.size())?;
        let mut door = Door::open(job.size(), bring.len()).map_err(shut)?;
        let (told, host) = (door.told(), job.host());
        job.put(&key, format!("{VERSION} {host} {told}"))?;
        job.fence()?;
        door.expect().map_err(shut)?;
        job.fence()?;
        let words = (1..job.size()).map(|rank| job.get(&came(rank)));
        let words = std::iter::once(Ok(String::new())).chain(words);
        let words = words.collect::<Result<Vec<_>, _>>()?;
        let common = [common];
        let files = door.serve(&common, bring, &words).map_err(shut)?;
        let [common] = common;
        (common, files.into_iter().flatten().collect())
    } else {
        job.fence()?;
        let told = job.get(&key)?;
        let told = door_told(&told, job.rank(), job.host()).map_err(unusable)?;
        let guest = Guest::knock(told, job.rank(), bring).map_err(shut)?;
        job.put(&came(job.rank()), guest.word())?;
        job.fence()?;
        let mut files = guest.take(1 + 2 * job.size() as usize).map_err(shut)?;
        (files.remove(0), files)
    };
    let [files, inboxes] = sorted(all);
    let place = config.place;
    let config = identity(job, place, wishes);
    let joining = Joining::process(own.with(&common, &files)?, &config)?;
    let mut joining = joining.with_inboxes(inbox, inboxes);
    drop((common, files));
    job.fence()?;
    let ids = ids.collect(job, place)?;
    let crowded = joining.is_crowded(job.size());
    let attaches = joining.probe(job.size(), crowded);
    job.fence()?;
    Ok(joining.open(config, place, ids, attaches))
}

/// What ranks have brought, `N` descriptors each, by kind and rank.
pub fn sorted<const N: usize>(all: Vec<OwnedFd>) -> [Vec<OwnedFd>; N] {
    let mut kinds = [const { Vec::new() }; N];
    for (i, fd) in all.into_iter().enumerate() {
        kinds[i % N].push(fd);
    }
    kinds
}

/// Where the door is by what rank 0 has told, if it is of this version and machine.
fn door_told<'a>(told: &'a str, rank: u32, host: &str) -> Result<&'a str, String> {
    let mut words = told.splitn(3, ' ');
    let mut word = || words.next().unwrap_or_default();
    let (version, there, door) = (word(), word(), word());
    if version != VERSION.to_string() {
        return Err(format!(
            "rank 0 speaks version {version:?} of the fabric, rank {rank} version {VERSION}"
        ));
    }
    if !is_one_kernel(there, host) {
        return Err(format!(
            "it joins the ranks of one machine, and rank {rank} is on {host}, rank 0 on {there}"
        ));
    }
    Ok(door)
}

/// Whether two host ids are of one machine. Containers of one have names and IPC namespaces of their own, which memory
/// that is handed over does not mind.
fn is_one_kernel(a: &str, b: &str) -> bool {
    machine_of(a) == machine_of(b)
}

/// The machine in a host id: what tells one start of a kernel from all others, where that is known.
pub fn machine_of(host: &str) -> &str {
    let boot = host.split('/').nth(1).unwrap_or_default();
    if boot.is_empty() { host } else { boot }
}

/// `ranks` interfaces of this process, for ranks that are threads.
///
/// # Errors
/// Those of [`Memory::new`].
pub fn in_threads(ranks: u32) -> Result<Vec<Attached>, FabricError> {
    in_threads_with(ranks, Options::default())
}

/// Opens the fabric for ranks that are threads of this process, with less than the machine can do.
///
/// # Errors
/// Those of [`Memory::new`].
pub fn in_threads_with(ranks: u32, options: Options) -> Result<Vec<Attached>, FabricError> {
    const JID: u32 = 1;
    let memory = Memory::new(ranks)?;
    let place = Placement::ONE;
    let ids: Vec<ProcessId> = (0..ranks).map(|r| place.of(r)).collect();
    let mut joining = (0..ranks)
        .map(|r| Joining::new(&memory, r, &rank_config(place, r, JID), options))
        .collect::<Result<Vec<_>, _>>()?;
    let crowded = processors::are_crowded(ranks as usize);
    let attaches: Vec<bool> = joining
        .iter_mut()
        .map(|j| j.probe(ranks, crowded))
        .collect();
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
) -> Result<Attached, FabricError> {
    let place = Placement::ONE;
    let config = rank_config(place, rank, 1);
    let ids = (0..memory.ranks).map(|r| place.of(r)).collect();
    let mut joining = Joining::new(memory, rank, &config, options)?;
    meet();
    let crowded = joining.is_crowded(memory.ranks);
    let attaches = joining.probe(memory.ranks, crowded);
    meet();
    Ok(joining.open(config, place, ids, attaches))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_the_system_refuses_is_not_of_another_version() {
        // More than there are addresses.
        let refused = Map::reserve(1 << 60).unwrap_err();
        let said = mapping(refused).to_string();
        assert!(said.contains("Cannot allocate memory"), "{said}");
        assert!(said.contains("ulimit -v"), "{said}");
        assert!(!said.contains("version"), "{said}");
    }

    #[test]
    fn another_version_or_machine_is_named_in_the_refusal() {
        let told = |version: u32| format!("{version} here/1/2 name secret /a place");
        let door = Ok("name secret /a place");
        assert_eq!(door_told(&told(VERSION), 3, "here/1/2").as_deref(), door);
        // Another container of the same machine.
        assert_eq!(door_told(&told(VERSION), 3, "there/1/9").as_deref(), door);
        let other = door_told(&told(VERSION + 1), 3, "here/1/2").unwrap_err();
        let (ours, theirs) = (VERSION, VERSION + 1);
        assert_eq!(
            other,
            format!("rank 0 speaks version \"{theirs}\" of the fabric, rank 3 version {ours}")
        );
        let far = door_told(&told(VERSION), 3, "there/3/2").unwrap_err();
        assert_eq!(
            far,
            "it joins the ranks of one machine, and rank 3 is on there/3/2, rank 0 on here/1/2"
        );
        assert!(door_told("", 1, "here").is_err());
        assert!(is_one_kernel("a//", "a//") && !is_one_kernel("a//", "b//"));
    }

    /// Two ranks, each opened by a thread that may run on these processors only: which of them poll before they sleep.
    fn polling(on: [Option<usize>; 2]) -> Vec<bool> {
        use rustix::thread::{CpuSet, sched_setaffinity};
        let memory = Memory::new(2).unwrap();
        let join = |rank: u32| {
            if let Some(processor) = on[rank as usize] {
                let mut set = CpuSet::new();
                set.set(processor);
                sched_setaffinity(None, &set).unwrap();
            }
            let config = rank_config(Placement::ONE, rank, 1);
            Joining::new(&memory, rank, &config, Options::default()).unwrap()
        };
        let joined = std::thread::scope(|s| {
            let ranks = [0, 1].map(|r| s.spawn(move || (join(r), r)));
            ranks.map(|rank| rank.join().unwrap())
        });
        joined.iter().map(|(rank, _)| !rank.is_crowded(2)).collect()
    }

    /// A rank that is bound to a processor polls as one that is not, unless another is bound to the same.
    #[test]
    fn bound_ranks_poll_where_each_has_a_processor() {
        let own = Processors::own();
        let all: Vec<usize> = own.each().collect();
        let [first, second, ..] = all[..] else {
            println!("skipped: one processor only");
            return;
        };
        if processors::at_once() < all.len() {
            println!("skipped: a control group limits the processors");
            return;
        }
        assert_eq!(polling([None, None]), [true, true]);
        assert_eq!(polling([Some(first), Some(second)]), [true, true]);
        assert_eq!(polling([Some(first), Some(first)]), [false, false]);
    }

    #[test]
    fn more_ranks_than_fit_are_refused() {
        assert!(check(Some(MOST_RANKS)).is_ok());
        let words = "1025 ranks; 1 to 1024 ranks can share memory";
        assert_eq!(check(Some(MOST_RANKS + 1)), Err(words.to_owned()));
        assert!(Memory::new(0).is_err() && Memory::new(MOST_RANKS + 1).is_err());
    }
}
