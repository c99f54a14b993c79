//! How a job starts on RDMA verbs and shared memory.
//!
//! ```text
//!  every rank                                              the first of a group
//!  open the device; say address and spot                   ·
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  learn addresses and spots, know the own group           make the memory, open the door
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  knock at the door with the end of the own alarm         let them in
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  take the memory and the ends of all, map it,            hand them over
//!  say who we are there; put whether that worked
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  did it for all of the group? then try to read a neighbour's memory, say whether that works
//!  ─────────────────────────────────── fence ───────────────────────────────────
//!  open
//! ```
//!
//! Where it did not work for one, all of its group use the device: both ends of a pair must agree. The first of the
//! group says so.

use super::Composite;
use super::group::group;
use super::location::{Location, is_crowded};
use crate::trusted::TRUST;
use fabric_api::attached::Attached;

use fabric_api::config::{FabricConfig, FabricError, FabricKind};
use fabric_api::identity::{Ids, Wishes, identity, rank_config};
use fabric_api::place::Placement;
use fabric_shm::alarm::Alarm;
use fabric_shm::door::{self, Door, Guest};
use fabric_shm::handing::Inbox;
use fabric_shm::{Joining, Members, Memory, Options, Own, Shm};
use fabric_verbs::PREFETCH;
use fabric_verbs::channel::{Far, Unconnected};
use host::processors;
use launch::Job;
use portals_core::{Ni, NiConfig, ProcessId};
use std::os::fd::OwnedFd;
use std::sync::Once;
use std::time::Duration;

/// Opens the device and the memory of this rank's group; collective.
pub fn open(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Attached, FabricError> {
    let (most, place) = (config.most_sharing, config.place);
    let opening = job.next_opening();
    let ids = Ids::announce(job, wishes, &opening)?;
    let ni = identity(job, place, wishes);
    let device = config.device.as_deref();
    let verbs = Unconnected::new(config.channel, job.rank(), job.size(), device, &ni)?;
    let own = Location::own(job.host(), place, job.rank(), most);
    let mut said = verbs.contact_bytes();
    said.extend(own.to_bytes());
    job.put(&verbs.key(job.rank(), &opening), said)?;
    job.fence()?;

    let mut directory = verbs.directory(job.reader(), opening.clone());
    let mut locations = vec![None; job.size() as usize];
    // In large jobs that share nothing, addresses are asked for when they are needed.
    if most != 1 || job.size() <= PREFETCH {
        for peer in (0..job.size()).filter(|peer| *peer != job.rank()) {
            locations[peer as usize] = Location::from_bytes(&directory.learn(peer)?);
        }
    }
    locations[job.rank() as usize] = Some(own);
    let spots: Vec<_> = locations.iter().map(|l| l.map(|l| l.spot)).collect();
    let group = group(job.rank(), &spots, most);
    let crowded = is_crowded(job.rank(), &locations, processors::at_once());
    let sharing = Sharing {
        job,
        opening: &opening,
        group: &group,
    };
    let made = sharing.make()?;
    job.fence()?;
    let met = sharing.meet(made)?;
    job.fence()?;
    let joining = sharing.join(met, &ni)?;
    job.fence()?;
    let mut joining = sharing.agree(joining)?;
    let attaches = joining
        .as_mut()
        .is_some_and(|joining| joining.probe(group.len() as u32, crowded));
    let ids = ids.collect(job, place)?;
    let members = Members::some(place, &ids, &group);
    let verbs = verbs.nal(&ni, place, ids.clone(), directory, crowded, TRUST)?;
    // From here on every rank answers.
    job.fence()?;
    let shm = joining.map(|joining| joining.nal(&ni, members, attaches, TRUST));
    join(ni, ids, shm, verbs, crowded)
}

/// The interface over what there is.
fn join(
    config: NiConfig,
    peers: Vec<ProcessId>,
    shm: Option<Shm>,
    verbs: Far,
    crowded: bool,
) -> Result<Attached, FabricError> {
    let own = config.id;
    let ni = Ni::new(config);
    let attached = match shm {
        Some(shm) => {
            let spin = crowded.then_some(Duration::ZERO);
            let mut others = peers.iter().filter(|id| **id != own);
            let far = others.any(|id| shm.peer(*id).is_none());
            let nal = Composite {
                shm,
                verbs,
                far,
                spin,
            };
            let near = Box::new(nal.shm.near());
            let attached = Attached::here(ni, nal, peers, TRUST);
            attached.map(|attached| attached.with_extension(near))
        }
        None => Attached::here(ni, verbs, peers, TRUST),
    };
    attached.map_err(|e| FabricError::Unusable {
        kind: FabricKind::Verbs,
        reason: e.to_string(),
    })
}

/// What a rank says that has joined; others say why they could not.
const JOINED: &str = "ok";
/// What the first of a group tells that has no door; nobody finds it.
const NONE: &str = "none";

/// Descriptors that each rank of a group brings: its file, and the ends of its alarm and its inbox that others have.
const EACH: usize = 3;

/// The common file of a group and the door, or why there is none.
type Made = Result<(OwnedFd, Door), String>;

/// A rank's file, alarm and inbox.
type Mine = (Own, Alarm, Inbox);

/// A rank that has met its group, or why it has not.
type Met = Result<(Mine, Side), String>;

/// Which side of the door it is on.
enum Side {
    /// Inside, with what it brings.
    First(OwnedFd, Door, Vec<OwnedFd>),
    Guest(Guest),
}

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

    fn size(&self) -> u32 {
        self.group.len() as u32
    }

    /// The number of this rank in the group.
    fn number(&self) -> u32 {
        let own = self.group.iter().position(|r| *r == self.job.rank());
        own.unwrap_or_default() as u32
    }

    /// Of the first of a group of several: its memory and the door to it, or why there is none.
    fn make(&self) -> Result<Option<Made>, FabricError> {
        if self.size() < 2 || self.number() != 0 {
            return Ok(None);
        }
        let make = || -> Made {
            let common = fabric_shm::common(self.size()).map_err(|e| e.to_string())?;
            let door = Door::open(self.size(), EACH).map_err(|e| e.to_string())?;
            Ok((common, door))
        };
        let made = make();
        let told = made.as_ref().map(|(_, door)| door.told());
        let told = told.unwrap_or_else(|_| NONE.to_owned());
        self.job.put(&self.key("door", self.first()), told)?;
        Ok(Some(made))
    }

    /// What this rank has for the group.
    fn bring(&self) -> Result<(Mine, Vec<OwnedFd>), String> {
        let no_socket = |e| format!("no socket to sleep on, or for descriptors: {e}");
        let alarm = Alarm::new().map_err(no_socket)?;
        let own = Own::new(self.number(), self.size()).map_err(|e| e.to_string())?;
        let file = own.descriptor().map_err(|e| e.to_string())?;
        let line = alarm.line().map_err(no_socket)?;
        let inbox = Inbox::new().map_err(no_socket)?;
        let to_inbox = inbox.line().map_err(no_socket)?;
        Ok(((own, alarm, inbox), vec![file, line, to_inbox]))
    }

    /// Comes to the door, and tells the first whether that worked; the first looks who is there.
    fn meet(&self, made: Option<Made>) -> Result<Option<Met>, FabricError> {
        if self.size() < 2 {
            return Ok(None);
        }
        let mine = self.bring();
        if let Some(made) = made {
            let made = made.and_then(|(common, mut door)| {
                door.expect().map_err(|e| e.to_string())?;
                Ok((common, door))
            });
            return Ok(Some(mine.and_then(|(mine, bring)| {
                let (common, door) = made?;
                Ok((mine, Side::First(common, door, bring)))
            })));
        }
        let told = self.job.get(&self.key("door", self.first()))?;
        let met = mine.and_then(|(mine, bring)| {
            let guest = Guest::knock(&told, self.number(), bring);
            Ok((mine, Side::Guest(guest.map_err(|e| e.to_string())?)))
        });
        let word = match &met {
            Ok((_, Side::Guest(guest))) => guest.word().to_owned(),
            Ok(_) => String::new(),
            Err(why) => door::failed(why),
        };
        self.job.put(&self.key("came", self.job.rank()), word)?;
        Ok(Some(met))
    }

    /// Maps the memory, and tells the others whether that worked.
    fn join(&self, met: Option<Met>, ni: &NiConfig) -> Result<Option<Joining>, FabricError> {
        let Some(met) = met else {
            return Ok(None);
        };
        let words = match &met {
            Ok((_, Side::First(..))) => {
                let others = self.group.iter().skip(1);
                let words = others.map(|rank| self.job.get(&self.key("came", *rank)));
                let words = std::iter::once(Ok(String::new())).chain(words);
                words.collect::<Result<Vec<_>, _>>()?
            }
            _ => Vec::new(),
        };
        let joined = met.and_then(|((own, alarm, inbox), side)| {
            let (common, all) = self.hand_over(side, &words)?;
            let [files, lines, inboxes] = fabric_shm::sorted::<EACH>(all);
            let mapped = own.with(&common, &files);
            let joining = mapped.and_then(|mapped| Joining::process(mapped, ni));
            let joining = joining.map_err(|e| e.to_string())?;
            let joining = joining.with_alarm(alarm, lines);
            Ok(joining.with_inboxes(inbox, inboxes))
        });
        let word = joined.as_ref().map_or_else(String::as_str, |_| JOINED);
        self.job.put(&self.key("joined", self.job.rank()), word)?;
        Ok(joined.ok())
    }

    /// The common file, and by number what each has brought.
    fn hand_over(&self, side: Side, words: &[String]) -> Result<(OwnedFd, Vec<OwnedFd>), String> {
        match side {
            Side::First(common, door, bring) => {
                let common = [common];
                let all = door.serve(&common, bring, words);
                let all = all.map_err(|e| e.to_string())?;
                let [common] = common;
                Ok((common, all.into_iter().flatten().collect()))
            }
            Side::Guest(guest) => {
                let taken = guest.take(1 + EACH * self.group.len());
                let mut all = taken.map_err(|e| e.to_string())?;
                Ok((all.remove(0), all))
            }
        }
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
                    static ONCE: Once = Once::new();
                    ONCE.call_once(|| {
                        host::note(format_args!(
                            "ranks of this machine cannot share memory; they use the RDMA device (rank {rank}: {word})"
                        ));
                    });
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
) -> Result<Vec<Attached>, FabricError> {
    const JID: u32 = 1;
    let place = Placement::ONE;
    let ids: Vec<ProcessId> = (0..ranks).map(|r| place.of(r)).collect();
    let verbs = Unconnected::in_threads(ranks, device)?;
    let all: Vec<u32> = (0..ranks).collect();
    let crowded = processors::are_crowded(ranks as usize);
    let mut near = Vec::new();
    for group in all.chunks(together.max(1) as usize) {
        let size = group.len() as u32;
        if size < 2 {
            near.push(None);
            continue;
        }
        let memory = Memory::new(size)?;
        let unusable = |e: std::io::Error| FabricError::Unusable {
            kind: FabricKind::Shm,
            reason: e.to_string(),
        };
        let alarms = (group.iter().map(|_| Alarm::new()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(unusable)?;
        let lines = || alarms.iter().map(Alarm::line).collect();
        let lines = (group.iter().map(|_| lines()))
            .collect::<Result<Vec<Vec<OwnedFd>>, _>>()
            .map_err(unusable)?;
        let mut joining = (0..)
            .zip(group)
            .zip(alarms.into_iter().zip(lines))
            .map(|((number, rank), (alarm, lines))| {
                let config = rank_config(place, *rank, JID);
                let joining = Joining::new(&memory, number, &config, Options::default())?;
                Ok(joining.with_alarm(alarm, lines))
            })
            .collect::<Result<Vec<_>, FabricError>>()?;
        let attaches: Vec<bool> = joining.iter_mut().map(|j| j.probe(size, crowded)).collect();
        for ((joining, attaches), rank) in joining.into_iter().zip(attaches).zip(group) {
            let members = Members::some(place, &ids, group);
            let config = rank_config(place, *rank, JID);
            near.push(Some(joining.nal(&config, members, attaches, TRUST)));
        }
    }
    (0..)
        .zip(verbs.into_iter().zip(near))
        .map(|(rank, ((verbs, directory), shm))| {
            let config = rank_config(place, rank, JID);
            let far = verbs.nal(&config, place, ids.clone(), directory, crowded, TRUST)?;
            join(config, ids.clone(), shm, far, crowded)
        })
        .collect()
}
