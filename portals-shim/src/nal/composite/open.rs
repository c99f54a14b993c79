//! How a job starts on RDMA verbs and shared memory.
//!
//! ```text
//!  every rank                                              the first of a group
//!  open the device; say address and spot                   ·
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  learn addresses and spots, know the own group           make the memory, put its /proc path
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  map the memory, say who we are there; put whether that worked
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  did it for all of the group? then try to read a neighbour's memory, say whether that works
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  open
//! ```
//!
//! Where it did not work for one, all of its group use the device: both ends of a pair must agree. The first of the
//! group says so.

use super::Composite;
use super::group::{Spot, group};
use crate::fabric::{FabricConfig, FabricError, Ids, Opened, Wishes, identity, rank_config};
use crate::interface::Interface;
use crate::job::Job;
use crate::nal::shm::{Joining, Members, Memory, Options, Shm};
use crate::nal::verbs::channel::{Far, Unconnected};
use crate::nal::verbs::{self, Directory, PREFETCH};
use crate::place::Placement;
use portals_core::{Ni, NiConfig, ProcessId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Opens the device and the memory of this rank's group; collective.
pub(crate) fn open(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Opened, FabricError> {
    let (most, place) = (config.most_sharing, config.place);
    let opening = job.next_opening();
    let ids = Ids::announce(job, wishes, &opening)?;
    let ni = identity(job, place, wishes);
    let device = config.device.as_deref();
    let verbs = Unconnected::new(config.channel, job.rank(), job.size(), device, &ni)?;
    let own = Spot::new(job.host(), place, job.rank(), most);
    let mut said = verbs.contact_bytes();
    said.extend(own.to_bytes());
    job.put(&verbs.key(job.rank(), &opening), said)?;
    job.fence()?;

    let mut directory = verbs.directory(job.reader(), opening.clone());
    let mut spots = vec![None; job.size() as usize];
    // In large jobs that share nothing, addresses are asked for when they are needed.
    if most != 1 || job.size() <= PREFETCH {
        for peer in (0..job.size()).filter(|peer| *peer != job.rank()) {
            spots[peer as usize] = Spot::from_bytes(&directory.learn(peer)?);
        }
    }
    spots[job.rank() as usize] = Some(own);
    let group = group(job.rank(), &spots, most);
    let sharing = Sharing {
        job,
        opening: &opening,
        group: &group,
    };
    let memory = sharing.make()?;
    job.fence()?;
    let joining = sharing.join(memory.as_ref(), &ni)?;
    job.fence()?;
    // All who could have opened it.
    drop(memory);
    let joining = sharing.agree(joining)?;
    let attaches = joining
        .as_ref()
        .is_some_and(|joining| joining.probe(group.len() as u32));
    let ids = ids.collect(job, place)?;
    let members = Members::some(place, &ids, &group);
    let verbs = verbs.nal(&ni, place, ids.clone(), directory)?;
    // From here on every rank answers.
    job.fence()?;
    let shm = joining.map(|joining| joining.nal(&ni, members, attaches));
    Ok(join(ni, ids, shm, verbs, group.len()))
}

/// The interface over what there is.
fn join(
    config: NiConfig,
    peers: Vec<ProcessId>,
    shm: Option<Shm>,
    verbs: Far,
    sharing: usize,
) -> Opened {
    let own = config.id;
    let ni = Ni::new(config);
    let interface = match shm {
        Some(shm) => {
            let processors = std::thread::available_parallelism().map_or(1, usize::from);
            let spin = (sharing > processors).then_some(Duration::ZERO);
            let mut others = peers.iter().filter(|id| **id != own);
            let far = others.any(|id| shm.peer(*id).is_none());
            let nal = Composite {
                shm,
                verbs,
                far,
                spin,
            };
            Interface::direct(ni, nal)
        }
        None => Interface::direct(ni, verbs),
    };
    Opened { interface, peers }
}

/// What a rank says that has joined; others say why they could not.
const JOINED: &str = "ok";

/// The memory of a group, while it is being joined.
struct Sharing<'a> {
    job: &'a Job,
    opening: &'a str,
    group: &'a [u32],
}

impl Sharing<'_> {
    fn key(&self, what: &str, rank: u32) -> String {
        format!("portolan.shm.{what}.{rank}{}", self.opening)
    }

    fn first(&self) -> u32 {
        self.group[0]
    }

    /// Of the first of a group of several: its memory, or why there is none.
    fn make(&self) -> Result<Option<Result<Memory, FabricError>>, FabricError> {
        if self.group.len() < 2 || self.job.rank() != self.first() {
            return Ok(None);
        }
        let memory = Memory::new(self.group.len() as u32);
        let path = memory
            .as_ref()
            .map_or_else(|_| "none".to_owned(), Memory::path);
        self.job.put(&self.key("path", self.first()), path)?;
        Ok(Some(memory))
    }

    /// Maps the memory, and tells the others whether that worked.
    fn join(
        &self,
        made: Option<&Result<Memory, FabricError>>,
        ni: &NiConfig,
    ) -> Result<Option<Joining>, FabricError> {
        if self.group.len() < 2 {
            return Ok(None);
        }
        let own = self.group.iter().position(|r| *r == self.job.rank());
        let own = own.unwrap_or_default() as u32;
        let joining = |memory: &Memory| {
            Joining::new(memory, own, ni, Options::default())
                .and_then(Joining::with_alarm)
                .map_err(|e| e.to_string())
        };
        let joined = match made {
            Some(Ok(memory)) => joining(memory),
            Some(Err(error)) => Err(error.to_string()),
            None => {
                let path = self.job.get(&self.key("path", self.first()))?;
                Memory::open(&path, self.group.len() as u32)
                    .map_err(|e| e.to_string())
                    .and_then(|memory| joining(&memory))
            }
        };
        let word = joined.as_ref().map_or_else(String::as_str, |_| JOINED);
        self.job.put(&self.key("joined", self.job.rank()), word)?;
        Ok(joined.ok())
    }

    /// Whether the memory is used, which all of the group see alike.
    fn agree(&self, joined: Option<Joining>) -> Result<Option<Joining>, FabricError> {
        if self.group.len() < 2 {
            return Ok(None);
        }
        for rank in self.group {
            let word = self.job.get(&self.key("joined", *rank))?;
            if word != JOINED {
                if self.job.rank() == self.first() {
                    tracing::error!(rank, why = %word, "ranks of this machine cannot share memory; they use the \
                        RDMA device");
                }
                return Ok(None);
            }
        }
        Ok(joined)
    }
}

/// `ranks` interfaces of this process, of which each `together` share memory and the others use the device; for ranks
/// that are threads.
///
/// # Errors
/// The device or the memory cannot be had.
pub fn in_threads(
    ranks: u32,
    together: u32,
    device: Option<&str>,
) -> Result<Vec<Opened>, FabricError> {
    const JID: u32 = 1;
    let place = Placement::ONE;
    let ids: Vec<ProcessId> = (0..ranks).map(|r| place.of(r)).collect();
    let verbs = (0..ranks)
        .map(|rank| verbs::Unconnected::new(rank, ranks, device))
        .collect::<Result<Vec<_>, _>>()?;
    let known: BTreeMap<_, _> = (0..ranks)
        .zip(verbs.iter().map(verbs::Unconnected::contact))
        .collect();
    let all: Vec<u32> = (0..ranks).collect();
    let mut near = Vec::new();
    for group in all.chunks(together.max(1) as usize) {
        let size = group.len() as u32;
        if size < 2 {
            near.push(None);
            continue;
        }
        let memory = Memory::new(size)?;
        let joining = (0..)
            .zip(group)
            .map(|(number, rank)| {
                let config = rank_config(place, *rank, JID);
                Joining::new(&memory, number, &config, Options::default())?.with_alarm()
            })
            .collect::<Result<Vec<_>, _>>()?;
        let attaches: Vec<bool> = joining.iter().map(|j| j.probe(size)).collect();
        for ((joining, attaches), rank) in joining.into_iter().zip(attaches).zip(group) {
            let members = Members::some(place, &ids, group);
            let config = rank_config(place, *rank, JID);
            near.push(Some(joining.nal(&config, members, attaches)));
        }
    }
    (0..)
        .zip(verbs.into_iter().zip(near))
        .map(|(rank, (verbs, shm))| {
            let config = rank_config(place, rank, JID);
            let directory = Directory::of(known.clone());
            let verbs = verbs.nal(&config, place, ids.clone(), directory)?;
            let far = Far::Rc(Box::new(verbs));
            Ok(join(config, ids.clone(), shm, far, ranks as usize))
        })
        .collect()
}
