//! Opening the device for both ways, and finding the other ranks.

use super::super::advice::unusable;
use super::super::channel::Far;
use super::super::datagram;
use super::super::plan::Plan;
use super::super::settings::{Settings, WINDOW};
use super::super::{connect, contact};
use super::Auto;
use super::moves::{Moves, Rules, Time};
use crate::trusted::TRUST;
use fabric_api::attached::Attached;
use fabric_api::config::FabricError;
use fabric_api::identity::rank_config;

use fabric_api::place::Placement;
use host::processors;
use launch::Reader;
use portals_core::{Ni, NiConfig, ProcessId};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A side that waits says its word again so often before the peer is given up.
const REPEATS: u32 = 4;

/// What decides about connections, where a test wants something else than users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Requests within a second that make a peer worth a connection.
    pub chatty: u32,
    /// Most connections of a rank.
    pub connections: u32,
}

/// Under which a rank says how it can be talked to.
pub(crate) fn key(rank: u32, opening: &str) -> String {
    format!("portolan.auto.{rank}{opening}")
}

/// How ranks find each other.
#[derive(Debug)]
pub struct Directory {
    datagrams: datagram::Directory,
    connections: contact::Directory,
}

impl Directory {
    /// That of a job, which knows nobody yet.
    pub(crate) fn new(job: Reader, opening: String) -> Self {
        let before = datagram::Contact::BYTES;
        Self {
            connections: contact::Directory::within(job.clone(), opening.clone(), key, before),
            datagrams: datagram::Directory::within(job, opening, key, 0),
        }
    }

    /// Asks for a rank's address, and gives what the rank has said beside it.
    pub(crate) fn learn(&mut self, rank: u32) -> Result<Vec<u8>, FabricError> {
        let rest = self.datagrams.learn(rank)?;
        self.connections.heard(rank, &rest).map(<[u8]>::to_vec)
    }
}

/// A rank that has its queues and has said nothing.
#[derive(Debug)]
pub struct Unconnected {
    rank: u32,
    size: u32,
    datagrams: datagram::Unconnected,
    connections: connect::Unconnected,
    rules: Rules,
}

fn nanos(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

impl Unconnected {
    /// Opens the device.
    pub(crate) fn new(
        rank: u32,
        size: u32,
        device: Option<&str>,
        who: (u32, u32),
    ) -> Result<Self, FabricError> {
        let settings = Settings::from_env().map_err(unusable)?;
        Self::with(rank, size, device, who, settings)
    }

    fn with(
        rank: u32,
        size: u32,
        device: Option<&str>,
        who: (u32, u32),
        settings: Settings,
    ) -> Result<Self, FabricError> {
        let (chatty, patience, most) = (settings.chatty, settings.patience, settings.connections);
        let most = |qps| most.unwrap_or_else(|| Plan::connections(qps, processors::of_machine()));
        let connections = connect::Unconnected::with(rank, size, device, settings.clone(), most)?;
        let datagrams = datagram::Unconnected::with(rank, size, device, who, settings)?;
        let rules = Rules {
            chatty,
            window: nanos(WINDOW),
            budget: connections.connections(),
            repeat: nanos(patience / REPEATS),
        };
        Ok(Self {
            rank,
            size,
            datagrams,
            connections,
            rules,
        })
    }

    /// What others must be told under [`key`]; more may follow it.
    pub(crate) fn contact_bytes(&self) -> Vec<u8> {
        let mut bytes = self.datagrams.contact_bytes();
        bytes.extend(self.connections.contact_bytes());
        bytes
    }

    /// The fabric; `ids` are those of all ranks, as far as they exist. `crowded`: there is no processor for this rank.
    pub(crate) fn nal(
        self,
        config: &NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
        crowded: bool,
    ) -> Result<Auto, FabricError> {
        let (own, size) = (self.rank as usize, self.size as usize);
        let of_datagrams = directory.datagrams;
        let mut datagrams =
            self.datagrams
                .nal(config, place, ids.clone(), of_datagrams, crowded)?;
        let mut connections =
            self.connections
                .nal(config, place, ids, directory.connections, crowded)?;
        datagrams.keep_news();
        connections.conn.lost = Some(Vec::new());
        // One attendant looks after both.
        connections.conn.bell = Arc::clone(datagrams.bell());
        Ok(Auto {
            rank: own,
            connections,
            datagrams,
            moves: Moves::new(own, size, self.rules),
            held: BTreeMap::new(),
        })
    }
}

/// `ranks` interfaces of this process, joined through the device by datagrams and, where it is worth it, connections; for
/// ranks that are threads.
///
/// # Errors
/// The device cannot be had.
pub fn in_threads(
    ranks: u32,
    device: Option<&str>,
    tuning: Option<Tuning>,
) -> Result<Vec<Attached>, FabricError> {
    let mut settings = Settings::from_env().map_err(unusable)?;
    if let Some(tuning) = tuning {
        settings.chatty = tuning.chatty;
        settings.connections = Some(tuning.connections);
    }
    let peers: Vec<ProcessId> = (0..ranks).map(|rank| Placement::ONE.of(rank)).collect();
    let opened = |(ni, nal)| {
        let far = Far::Auto(Box::new(nal));
        Attached::here(ni, far, peers.clone(), TRUST).map_err(unusable)
    };
    let parts = in_parts(ranks, device, &settings)?;
    parts.into_iter().map(opened).collect()
}

/// The parts of interfaces of one job.
pub(crate) fn in_parts(
    ranks: u32,
    device: Option<&str>,
    settings: &Settings,
) -> Result<Vec<(Ni, Auto)>, FabricError> {
    let place = Placement::ONE;
    let crowded = processors::are_crowded(ranks as usize);
    let made = (0..ranks).map(|rank| {
        let config = rank_config(place, rank, 1);
        let who = (config.uid, config.jid);
        let made = Unconnected::with(rank, ranks, device, who, settings.clone())?;
        Ok((made, config))
    });
    let made = made.collect::<Result<Vec<_>, FabricError>>()?;
    let ids: Vec<ProcessId> = made.iter().map(|(_, config)| config.id).collect();
    let by_datagrams = made.iter().map(|(made, _)| made.datagrams.contact());
    let by_datagrams: BTreeMap<_, _> = (0..).zip(by_datagrams).collect();
    let by_connection = made.iter().map(|(made, _)| made.connections.contact());
    let by_connection: BTreeMap<_, _> = (0..).zip(by_connection).collect();
    let parts = made.into_iter().map(|(made, config)| {
        let directory = Directory {
            datagrams: datagram::Directory::of(by_datagrams.clone()),
            connections: contact::Directory::of(by_connection.clone()),
        };
        let nal = made.nal(&config, place, ids.clone(), directory, crowded)?;
        Ok((Ni::new(config), nal))
    });
    parts.collect()
}
