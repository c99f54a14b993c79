//! Opening the device, and finding the other ranks.

use super::super::advice::{advise, failed, unusable};
use super::super::contact::{random_qkey, random_token};
use super::super::directory;
use super::super::settings::Settings;
use super::super::verbs::Counters;
use super::DatagramNal;
use super::peers::Peers;
use super::queues::Queues;
use super::sleep::Sleep;
use super::time::Timekeeper;
use crate::trusted::TRUST;
use fabric_api::attached::Attached;
use fabric_api::config::FabricError;
use fabric_api::identity::rank_config;
use slab::Slab;

use fabric_api::place::Placement;
use host::processors;
use portals_core::{Ni, NiConfig, ProcessId};
use verbs_backend::rd::{ChannelConfig, Config, Endpoint};
use verbs_backend::{Cq, DatagramAddress, DatagramOptions, DatagramQueue, Device, Pd};

/// Receives and sends of the data channel.
const DATA: (u32, u32) = (512, 256);
/// Receives and sends of the command channel.
pub(super) const COMMAND: (u32, u32) = (256, 128);
/// Answers that go before a request that waits.
const TURN: u8 = 64;
/// The longest datagram of the command channel.
const COMMAND_MTU: usize = 768;

/// How a rank can be talked to, and in whose name it speaks.
#[derive(Clone, Copy, Debug)]
pub struct Contact {
    pub(super) command: DatagramAddress,
    pub(super) data: DatagramAddress,
    pub(super) token: u64,
    /// User and job.
    pub(super) who: (u32, u32),
}

impl Contact {
    /// Bytes of one.
    pub(crate) const BYTES: usize = 2 * DatagramAddress::BYTES + 8 + 4 + 4;

    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(self.command.to_bytes());
        bytes.extend(self.data.to_bytes());
        bytes.extend(self.token.to_be_bytes());
        bytes.extend(self.who.0.to_be_bytes());
        bytes.extend(self.who.1.to_be_bytes());
        bytes
    }
}

impl directory::Contact for Contact {
    fn key(rank: u32, opening: &str) -> String {
        format!("portolan.datagrams.{rank}{opening}")
    }

    fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (command, rest) = bytes.split_first_chunk::<{ DatagramAddress::BYTES }>()?;
        let (data, rest) = rest.split_first_chunk::<{ DatagramAddress::BYTES }>()?;
        let (token, rest) = rest.split_first_chunk::<8>()?;
        let (uid, rest) = rest.split_first_chunk::<4>()?;
        let (jid, rest) = rest.split_first_chunk::<4>()?;
        let contact = Self {
            command: DatagramAddress::from_bytes(command)?,
            data: DatagramAddress::from_bytes(data)?,
            token: u64::from_be_bytes(*token),
            who: (u32::from_be_bytes(*uid), u32::from_be_bytes(*jid)),
        };
        Some((contact, rest))
    }
}

/// How ranks find each other.
pub(crate) type Directory = directory::Directory<Contact>;

/// A rank that has its queue pairs and has said nothing.
#[derive(Debug)]
pub struct Unconnected {
    rank: u32,
    size: u32,
    settings: Settings,
    device: Device,
    cq: Cq,
    command: DatagramQueue,
    data: DatagramQueue,
    config: Config,
    token: u64,
    who: (u32, u32),
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

    /// Opens the device ([`Unconnected::new`]) with these settings.
    pub(crate) fn with(
        rank: u32,
        size: u32,
        device: Option<&str>,
        who: (u32, u32),
        settings: Settings,
    ) -> Result<Self, FabricError> {
        let (device, port) = Device::choose(device).map_err(|e| unusable(advise(&e)))?;
        if port.iwarp {
            let name = device.name();
            let why = "iWARP, which has no datagrams: use the channel rc";
            return Err(unusable(format!("{name} is {why}")));
        }
        if let Err(error) = verbs_backend::fork::protect() {
            tracing::warn!(%error, "registered memory is not protected from fork");
        }
        let gid_index = settings.gid_index(&device, port.number).map_err(unusable)?;
        let pd = Pd::new(&device).map_err(failed)?;
        let entries = DATA.0 + DATA.1 + COMMAND.0 + COMMAND.1;
        let cq = Cq::with_events(&device, entries).map_err(failed)?;
        let mtu = port.mtu.bytes();
        let options = |qkey, (receives, sends): (u32, u32), size: usize| DatagramOptions {
            port: port.number,
            gid_index,
            route: settings.route,
            qkey,
            receives,
            sends,
            size,
        };
        let small = COMMAND_MTU.min(mtu);
        let queue = |depth, size| {
            let qkey = random_qkey().map_err(failed)?;
            DatagramQueue::new(&pd, &cq, &options(qkey, depth, size)).map_err(failed)
        };
        let (command, data) = (queue(COMMAND, small)?, queue(DATA, mtu)?);
        let patience = u64::try_from(settings.patience.as_nanos()).unwrap_or(u64::MAX);
        let config = Config {
            command: ChannelConfig {
                mtu: small,
                depth: COMMAND.1 / 2,
            },
            data: ChannelConfig { mtu, depth: DATA.1 },
            receives: DATA.0,
            overtake: TURN,
            owed: 8 * DATA.0,
            give_up: patience,
            ..Config::default()
        };
        Ok(Self {
            rank,
            size,
            settings,
            device,
            cq,
            command,
            data,
            config,
            token: random_token().map_err(failed)?,
            who,
        })
    }

    pub(crate) fn contact(&self) -> Contact {
        Contact {
            command: self.command.address(),
            data: self.data.address(),
            token: self.token,
            who: self.who,
        }
    }

    /// What others must be told under [`key`]; more may follow it.
    pub(crate) fn contact_bytes(&self) -> Vec<u8> {
        self.contact().to_bytes()
    }

    /// The fabric; `ids` are those of all ranks, as far as they exist. `crowded`: there is no processor for this rank.
    pub(crate) fn nal(
        self,
        config: &NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
        crowded: bool,
    ) -> Result<DatagramNal, FabricError> {
        let sleep = Sleep::new(self.settings.thread, crowded)
            .map_err(|e| unusable(format!("no event descriptor: {e}")))?;
        let rd = Endpoint::new(self.config, self.rank, self.token);
        let longest = rd.config().data.mtu;
        let own = (self.rank as usize, config.id);
        Ok(DatagramNal {
            queues: Queues::new(self.device, self.cq, (self.command, self.data), longest),
            rd,
            peers: Peers::new(own, self.size as usize, place, ids, directory),
            longs: Slab::new(),
            news: None,
            time: Timekeeper::new(),
            sleep,
            patience: self.settings.patience,
            closed: false,
            counters: Counters::default(),
        })
    }
}

/// `ranks` interfaces of this process, joined by datagrams through the device; for ranks that are threads.
///
/// # Errors
/// The device cannot be had.
pub fn in_threads(ranks: u32, device: Option<&str>) -> Result<Vec<Attached>, FabricError> {
    let made = (0..ranks).map(|rank| {
        let config = rank_config(Placement::ONE, rank, 1);
        let made = Unconnected::new(rank, ranks, device, (config.uid, config.jid))?;
        Ok((made, config))
    });
    let contact = |(made, _): &(Unconnected, _)| made.contact();
    let crowded = processors::are_crowded(ranks as usize);
    directory::acquainted(made, ranks, contact, |(made, config), peers, directory| {
        let nal = made.nal(&config, Placement::ONE, peers.clone(), directory, crowded)?;
        let far = super::super::channel::Far::Ud(Box::new(nal));
        Attached::here(Ni::new(config), far, peers, TRUST).map_err(unusable)
    })
}
