//! Opening the device, and finding the other ranks.

use super::cm::Joiner;
use super::directory;
use super::endpoint::Means;
use super::frame::SLOT;
use super::mail::{self, Mail};
use super::memory::Registry;
use super::onesided::Published;
use super::plan::{self, Plan};
use super::proto::eager_ring::Rings;
use super::proto::get_by_am::AmGets;
use super::proto::offload::Offloaded;
use super::settings::{Connect, Settings};
use super::witness::Witness;
use crate::advice::{advise, failed, unusable};
use crate::contact::{Contact, Directory, contact_bytes, random_qkey, random_token};
use crate::trusted::TRUST;
use crate::verbs::{Adapter, Conn, Counters, Due, Peers, Queues, Verbs};
use fabric_api::attached::Attached;
use fabric_api::bell::Bell;
use fabric_api::config::FabricError;
use fabric_api::identity::rank_config;

use fabric_api::place::Placement;
use host::processors;
use portals_core::{Ni, NiConfig, ProcessId};
use slab::Slab;
use std::sync::Arc;
use verbs_backend::{BufferPool, Cq, DatagramOptions, Datagrams, Device, Pd, PortInfo, Srq};

/// Send buffers of a process.
const SEND_SLOTS: u32 = 256;
/// Receives for datagrams. What comes while all are filled is lost, and asked again.
const DATAGRAM_RECEIVES: u32 = 256;
const DATAGRAM_SENDS: u32 = 64;
/// Ranks up to which all addresses are asked for at the start; in larger jobs each when it is needed.
pub const PREFETCH: u32 = 256;

/// Whether a device can be used: it opens, its port is active and has an address.
pub fn check(device: Option<&str>) -> Result<(), String> {
    let settings = Settings::from_env().map_err(|e| e.to_string())?;
    let (device, port) = Device::choose(device).map_err(|e| advise(&e))?;
    if settings.connect(&port) != Connect::Words {
        let joiner = Joiner::new(&device, &port, settings.address());
        return joiner.map(|_| ()).map_err(|e| host::with_causes(&e));
    }
    let index = settings.gid_index(&device, port.number)?;
    if port.ethernet || index.is_some() {
        device.gid(port.number, index).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The entry of a port's table that the settings of the environment choose; `None` if they choose none that is there, and on
/// iWARP, which goes by IP addresses.
pub fn chosen_gid(device: &Device, port: u8) -> Option<verbs_backend::GidEntry> {
    if device.port(port).ok()?.iwarp {
        return None;
    }
    let index = Settings::from_env().ok()?.gid_index(device, port).ok()?;
    device.gid(port, index).ok()
}

/// A rank that has its queues and is connected to nobody.
#[derive(Debug)]
pub struct Unconnected {
    rank: u32,
    size: u32,
    settings: Settings,
    plan: Plan,
    /// Connections that there may be at a time.
    connections: u32,
    device: Device,
    port: PortInfo,
    gid_index: Option<u8>,
    cq: Cq,
    srq: Srq,
    pd: Pd,
    send_pool: BufferPool,
    mail: Mail,
    joiner: Option<Joiner>,
    /// The rules of iWARP hold: no immediate values, ends of requests by the word of a witness.
    strict: bool,
    token: u64,
}

impl Unconnected {
    /// Opens the device.
    pub(crate) fn new(rank: u32, size: u32, device: Option<&str>) -> Result<Self, FabricError> {
        let settings = Settings::from_env().map_err(unusable)?;
        Self::with(rank, size, device, settings, |_| size.saturating_sub(1))
    }

    /// Opens the device for as many connections as `most` says, which is told how many queue pairs the device has.
    pub(super) fn with(
        rank: u32,
        size: u32,
        device: Option<&str>,
        settings: Settings,
        most: impl FnOnce(u32) -> u32,
    ) -> Result<Self, FabricError> {
        let (device, port) = Device::choose(device).map_err(|e| unusable(advise(&e)))?;
        // Before the first registration.
        if let Err(error) = verbs_backend::fork::protect() {
            tracing::warn!(%error, "registered memory is not protected from fork");
        }
        let gid_index = match port.iwarp {
            true => None,
            false => settings.gid_index(&device, port.number).map_err(unusable)?,
        };
        let limits = device.limits();
        let most = most(limits.qps).min(size.saturating_sub(1));
        let plan = Plan::new(
            most.saturating_add(1),
            plan::Device {
                qps: limits.qps,
                qp_requests: limits.qp_requests,
                cq_entries: limits.cq_entries,
                srq_requests: limits.srq_requests,
            },
        );
        let plan = plan.ok_or_else(|| {
            unusable(format!(
                "{} is too small: {} queue pairs, {} completions, {} receives",
                device.name(),
                limits.qps,
                limits.cq_entries,
                limits.srq_requests
            ))
        })?;
        let pd = Pd::new(&device).map_err(failed)?;
        let cq = Cq::with_events(&device, plan.cq_entries).map_err(failed)?;
        let srq = Srq::new(&pd, plan.slots, 1).map_err(failed)?;
        let send_pool = BufferPool::new(&pd, SEND_SLOTS, SLOT).map_err(failed)?;
        let (mail, joiner) = match settings.connect(&port) {
            Connect::Words => (Self::adapter_mail(&pd, &port, gid_index, &settings)?, None),
            Connect::Manager | Connect::Iwarp => {
                let joiner = Joiner::new(&device, &port, settings.address()).map_err(failed)?;
                let mail = joiner
                    .mail()
                    .map_err(|e| unusable(format!("no socket for words: {e}")))?;
                (mail, Some(joiner))
            }
        };
        let strict = settings.connect(&port) == Connect::Iwarp;
        Ok(Self {
            rank,
            size,
            settings,
            plan,
            connections: most.min(plan.peers),
            device,
            port,
            gid_index,
            cq,
            srq,
            pd,
            send_pool,
            mail,
            joiner,
            strict,
            token: random_token().map_err(failed)?,
        })
    }

    /// Words in datagrams of the adapter.
    fn adapter_mail(
        pd: &Pd,
        port: &PortInfo,
        gid_index: Option<u8>,
        settings: &Settings,
    ) -> Result<Mail, FabricError> {
        let cq = Cq::with_events(&pd.device(), DATAGRAM_RECEIVES + DATAGRAM_SENDS);
        let cq = cq.map_err(failed)?;
        let options = DatagramOptions {
            port: port.number,
            gid_index,
            route: settings.route,
            qkey: random_qkey().map_err(failed)?,
            receives: DATAGRAM_RECEIVES,
            sends: DATAGRAM_SENDS,
            size: mail::LONGEST,
        };
        let datagrams = Datagrams::new(pd, &cq, &options).map_err(failed)?;
        Ok(Mail::adapter(datagrams, cq))
    }

    /// Connections that there may be at a time.
    pub(super) fn connections(&self) -> u32 {
        self.connections
    }

    /// That of an endpoint, which others may talk to with this token; it knows nobody yet.
    pub(super) fn for_endpoint(self, token: u64) -> Self {
        Self {
            size: 1,
            token,
            ..self
        }
    }

    /// How an endpoint makes connections.
    pub(super) fn means(&self) -> Means {
        match self.settings.connect(&self.port) {
            Connect::Words if self.port.ethernet => Means::Ethernet,
            Connect::Words => Means::InfiniBand,
            Connect::Manager => Means::Manager,
            Connect::Iwarp => Means::Iwarp,
        }
    }

    pub(crate) fn contact(&self) -> Contact {
        (self.mail.address(), self.token)
    }

    /// What others must be told under [`key`]; more may follow it.
    pub(crate) fn contact_bytes(&self) -> Vec<u8> {
        contact_bytes(&self.contact()).to_vec()
    }

    /// The fabric; `ids` are those of all ranks, as far as they exist. `crowded`: there is no processor for this rank.
    pub(crate) fn nal(
        self,
        config: &NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
        crowded: bool,
    ) -> Result<Verbs, FabricError> {
        let bell = Bell::new().map_err(|e| unusable(format!("no event descriptor: {e}")))?;
        let registry = Registry::new(self.pd, self.settings.budget, self.strict);
        let witness = match self.strict {
            true => Some(Arc::new(Witness::new(&registry).map_err(failed)?)),
            false => None,
        };
        let size = self.size as usize;
        Ok(Verbs {
            id: config.id,
            peers: Peers::new(self.rank as usize, size, place, ids),
            adapter: Adapter::new(self.device, &self.port, self.gid_index, self.settings.route),
            queues: Queues::new(self.cq, self.srq),
            conn: Conn {
                who: (config.uid, config.jid),
                plan: self.plan,
                patience: self.settings.patience,
                mail: self.mail,
                joiner: self.joiner,
                directory,
                vector: None,
                token: self.token,
                attempts: random_token().map_err(failed)? as u32,
                pending: 0,
                bell: Arc::new(bell),
                lost: None,
            },
            send_pool: self.send_pool,
            records: Slab::new(),
            offloaded: Offloaded::default(),
            am_gets: AmGets::default(),
            rndv_sends: Slab::new(),
            registry,
            published: Published::default(),
            rings: Rings::new(self.settings.rings(crowded)),
            witness,
            thresholds: self.settings.thresholds(self.strict),
            due: Due::default(),
            counters: Counters::default(),
            thread: self.settings.thread,
            crowded,
            closed: false,
            gone: false,
        })
    }

    fn open(
        self,
        config: NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
        crowded: bool,
    ) -> Result<Attached, FabricError> {
        let nal = self.nal(&config, place, ids.clone(), directory, crowded)?;
        Attached::here(Ni::new(config), nal, ids, TRUST).map_err(unusable)
    }

    /// What an interface is made of.
    #[cfg(test)]
    fn parts(
        self,
        config: NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
        crowded: bool,
    ) -> Result<(Ni, Verbs), FabricError> {
        let nal = self.nal(&config, place, ids, directory, crowded)?;
        Ok((Ni::new(config), nal))
    }
}

/// `ranks` interfaces of this process, connected through the device; for ranks that are threads.
pub fn in_threads(ranks: u32, device: Option<&str>) -> Result<Vec<Attached>, FabricError> {
    in_threads_of(ranks, ranks, device)
}

/// The first `ranks` interfaces of a job of `size`, of which the others do not exist.
pub fn in_threads_of(
    ranks: u32,
    size: u32,
    device: Option<&str>,
) -> Result<Vec<Attached>, FabricError> {
    joined(&vec![1; ranks as usize], size, device)
}

/// Interfaces of this process that belong to these jobs.
#[cfg(test)]
pub(super) fn in_threads_as(jids: &[u32], device: &str) -> Result<Vec<Attached>, FabricError> {
    joined(jids, jids.len() as u32, Some(device))
}

/// The parts of interfaces of one job, which somebody has to drive.
#[cfg(test)]
pub(super) fn in_parts(ranks: u32, device: &str) -> Result<Vec<(Ni, Verbs)>, FabricError> {
    in_parts_by(ranks, device, Settings::from_env().map_err(unusable)?)
}

/// The same, by these settings.
#[cfg(test)]
pub(super) fn in_parts_by(
    ranks: u32,
    device: &str,
    settings: Settings,
) -> Result<Vec<(Ni, Verbs)>, FabricError> {
    let jids = vec![1; ranks as usize];
    each(&jids, ranks, Some(device), &settings, Unconnected::parts)
}

fn joined(jids: &[u32], size: u32, device: Option<&str>) -> Result<Vec<Attached>, FabricError> {
    let settings = Settings::from_env().map_err(unusable)?;
    each(jids, size, device, &settings, Unconnected::open)
}

/// Ranks of one process that know each other's addresses, each finished by `end`.
fn each<T>(
    jids: &[u32],
    size: u32,
    device: Option<&str>,
    settings: &Settings,
    end: impl Fn(
        Unconnected,
        NiConfig,
        Placement,
        Vec<ProcessId>,
        Directory,
        bool,
    ) -> Result<T, FabricError>,
) -> Result<Vec<T>, FabricError> {
    let crowded = processors::are_crowded(jids.len());
    let ranks = (0..).zip(jids).map(|(rank, jid)| {
        let config = rank_config(Placement::ONE, rank, *jid);
        let most = |_| size.saturating_sub(1);
        let made = Unconnected::with(rank, size, device, settings.clone(), most)?;
        Ok((made, config))
    });
    let contact = |(rank, _): &(Unconnected, _)| rank.contact();
    directory::acquainted(ranks, size, contact, |(rank, config), ids, directory| {
        end(rank, config, Placement::ONE, ids, directory, crowded)
    })
}
