//! Connections, datagrams or both: the switch.
//!
//! All ranks of a job use the same channel ([`Channel`]); ranks that were told different ones do not find each other's
//! addresses, and the job says so at its start.

use super::advice::unusable;
use super::auto::{self, Auto};
use super::datagram::{self, DatagramNal};
use super::directory::Contact as _;
use super::verbs::Verbs;
use super::{connect, contact};
use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::config::{Channel, FabricError};
use fabric_api::nal::{Armed, Awaiting, Direction, Look, Nal, Outcome, Schedule, Waiter};
use fabric_api::op::{Capabilities, Put};
use fabric_api::place::Placement;
use fabric_api::region::Trust;
use launch::Reader;
use portals_core::{Error, Landing, MdHandle, Ni, NiConfig, OpId, ProcessId, ReadyPut, Transmit};
use std::collections::BTreeMap;
use std::time::Duration;

/// The fabric of an RDMA device.
#[derive(Debug)]
pub enum Far {
    /// A reliable connection to each peer.
    Rc(Box<Verbs>),
    /// Reliable datagrams.
    Ud(Box<DatagramNal>),
    /// Datagrams, and connections to the peers that are worth one.
    Auto(Box<Auto>),
}

/// A rank that has opened the device and said nothing.
#[derive(Debug)]
pub enum Unconnected {
    /// For a reliable connection to each peer.
    Rc(Box<connect::Unconnected>),
    /// For reliable datagrams.
    Ud(Box<datagram::Unconnected>),
    /// For both.
    Auto(Box<auto::Unconnected>),
}

/// How ranks find each other.
#[derive(Debug)]
pub enum Directory {
    /// For connections.
    Rc(contact::Directory),
    /// For datagrams.
    Ud(datagram::Directory),
    /// For both.
    Auto(auto::Directory),
}

impl Directory {
    /// Asks for a rank's address, and gives what the rank has said beside it.
    ///
    /// # Errors
    /// The rank has not said it, or it makes no sense.
    pub fn learn(&mut self, rank: u32) -> Result<Vec<u8>, FabricError> {
        match self {
            Self::Rc(directory) => directory.learn(rank),
            Self::Ud(directory) => directory.learn(rank),
            Self::Auto(directory) => directory.learn(rank),
        }
    }
}

impl Unconnected {
    /// Opens the device, the first one if none is named, for a rank of a job of `size`.
    ///
    /// # Errors
    /// There is none, or it cannot be used.
    pub fn new(
        channel: Channel,
        rank: u32,
        size: u32,
        device: Option<&str>,
        config: &NiConfig,
    ) -> Result<Self, FabricError> {
        let who = (config.uid, config.jid);
        Ok(match channel {
            Channel::Rc => Self::Rc(Box::new(connect::Unconnected::new(rank, size, device)?)),
            Channel::Ud => {
                let made = datagram::Unconnected::new(rank, size, device, who)?;
                Self::Ud(Box::new(made))
            }
            Channel::Auto => {
                let made = auto::Unconnected::new(rank, size, device, who)?;
                Self::Auto(Box::new(made))
            }
        })
    }

    /// For connections, `ranks` of them that are threads of this process, each with what finds the others.
    ///
    /// # Errors
    /// The device cannot be used.
    pub fn in_threads(
        ranks: u32,
        device: Option<&str>,
    ) -> Result<Vec<(Self, Directory)>, FabricError> {
        let made = (0..ranks)
            .map(|rank| connect::Unconnected::new(rank, ranks, device))
            .collect::<Result<Vec<_>, _>>()?;
        let known = made.iter().map(connect::Unconnected::contact);
        let known: BTreeMap<_, _> = (0..ranks).zip(known).collect();
        let all = made.into_iter().map(|own| {
            let directory = Directory::Rc(contact::Directory::of(known.clone()));
            (Self::Rc(Box::new(own)), directory)
        });
        Ok(all.collect())
    }

    /// Under which a rank says how it can be talked to.
    pub fn key(&self, rank: u32, opening: &str) -> String {
        match self {
            Self::Rc(_) => contact::Contact::key(rank, opening),
            Self::Ud(_) => datagram::Contact::key(rank, opening),
            Self::Auto(_) => auto::key(rank, opening),
        }
    }

    /// What others must be told under that; more may follow it.
    pub fn contact_bytes(&self) -> Vec<u8> {
        match self {
            Self::Rc(own) => own.contact_bytes(),
            Self::Ud(own) => own.contact_bytes(),
            Self::Auto(own) => own.contact_bytes(),
        }
    }

    /// That of a job, which knows nobody yet.
    pub fn directory(&self, job: Reader, opening: String) -> Directory {
        match self {
            Self::Rc(_) => Directory::Rc(contact::Directory::new(job, opening)),
            Self::Ud(_) => Directory::Ud(datagram::Directory::new(job, opening)),
            Self::Auto(_) => Directory::Auto(auto::Directory::new(job, opening)),
        }
    }

    /// The fabric, for an [`Ni`] of the caller's ([`Trust`]); `ids` are those of all ranks. `crowded`: there is no processor for
    /// this rank.
    ///
    /// # Errors
    /// The directory is of another channel, or the device cannot give what the fabric needs.
    pub fn nal(
        self,
        config: &NiConfig,
        place: Placement,
        ids: Vec<ProcessId>,
        directory: Directory,
        crowded: bool,
        _: Trust,
    ) -> Result<Far, FabricError> {
        match (self, directory) {
            (Self::Rc(own), Directory::Rc(directory)) => {
                let nal = own.nal(config, place, ids, directory, crowded)?;
                Ok(Far::Rc(Box::new(nal)))
            }
            (Self::Ud(own), Directory::Ud(directory)) => {
                let nal = own.nal(config, place, ids, directory, crowded)?;
                Ok(Far::Ud(Box::new(nal)))
            }
            (Self::Auto(own), Directory::Auto(directory)) => {
                let nal = own.nal(config, place, ids, directory, crowded)?;
                Ok(Far::Auto(Box::new(nal)))
            }
            _ => Err(unusable("addresses of another channel")),
        }
    }
}

/// What a fabric that is made of this and another one needs.
impl Far {
    /// Shows the portals of this set to the others, as they are.
    #[inline]
    pub fn tell_peers(&mut self, ni: &mut Ni, portals: u64) {
        match self {
            Self::Rc(verbs) => verbs.tell_peers(ni, portals, &mut |_| {}),
            Self::Auto(auto) => auto.tell_peers(ni, portals),
            // Nobody reaches a descriptor past its owner.
            Self::Ud(_) => {}
        }
    }

    /// Whether nothing is under way to others.
    pub fn is_drained(&mut self) -> bool {
        match self {
            Self::Rc(verbs) => verbs.is_drained(),
            Self::Auto(auto) => auto.is_drained(),
            Self::Ud(nal) => nal.is_drained(),
        }
    }

    /// How long a close may wait for that.
    pub fn closing_time(&self) -> Duration {
        match self {
            Self::Rc(verbs) => verbs.closing_time(),
            Self::Auto(auto) => auto.closing_time(),
            Self::Ud(nal) => nal.closing_time(),
        }
    }
}

impl Nal for Far {
    #[inline]
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        match self {
            Self::Rc(verbs) => verbs.send(ni, tx, key),
            Self::Auto(auto) => auto.send(ni, tx, key),
            Self::Ud(nal) => nal.send(ni, tx, key),
        }
    }

    #[inline(always)]
    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        match self {
            Self::Rc(verbs) => verbs.put(ni, ready, put),
            Self::Auto(auto) => auto.put(ni, ready, put),
            Self::Ud(_) => Outcome::Declined,
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        match self {
            Self::Rc(verbs) => verbs.begun(number, op),
            Self::Auto(auto) => auto.begun(number, op),
            Self::Ud(nal) => nal.begun(number, op),
        }
    }

    #[inline(always)]
    fn get(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        match self {
            Self::Rc(verbs) => verbs.get(ni, md, region, from),
            Self::Auto(auto) => auto.get(ni, md, region, from),
            Self::Ud(_) => false,
        }
    }

    #[inline]
    fn transfer(&mut self, way: Direction, local: &Landing, remote: &Target) -> bool {
        match self {
            Self::Rc(verbs) => verbs.transfer(way, local, remote),
            Self::Auto(_) | Self::Ud(_) => false,
        }
    }

    #[inline]
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        match self {
            Self::Rc(verbs) => verbs.await_end(ni),
            Self::Auto(auto) => auto.await_end(ni),
            Self::Ud(nal) => nal.await_end(ni),
        }
    }

    fn unawait(&mut self, ni: &mut Ni) {
        match self {
            Self::Rc(verbs) => verbs.unawait(ni),
            Self::Auto(auto) => auto.unawait(ni),
            Self::Ud(nal) => nal.unawait(ni),
        }
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        match self {
            Self::Rc(verbs) => verbs.progress(ni, look),
            Self::Auto(auto) => auto.progress(ni, look),
            Self::Ud(nal) => nal.progress(ni, look),
        }
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        match self {
            Self::Rc(verbs) => verbs.attend(ni),
            Self::Auto(auto) => auto.attend(ni),
            Self::Ud(nal) => nal.attend(ni),
        }
    }

    fn schedule(&self) -> Schedule {
        match self {
            Self::Rc(verbs) => verbs.schedule(),
            Self::Auto(auto) => auto.schedule(),
            Self::Ud(nal) => nal.schedule(),
        }
    }

    fn waiter(&self) -> Waiter {
        match self {
            Self::Rc(verbs) => verbs.waiter(),
            Self::Auto(auto) => auto.waiter(),
            Self::Ud(nal) => nal.waiter(),
        }
    }

    fn arm(&mut self) -> Armed {
        match self {
            Self::Rc(verbs) => verbs.arm(),
            Self::Auto(auto) => auto.arm(),
            Self::Ud(nal) => nal.arm(),
        }
    }

    #[inline]
    fn publish(&mut self, ni: &mut Ni) {
        match self {
            Self::Rc(verbs) => verbs.publish(ni),
            Self::Auto(auto) => auto.publish(ni),
            Self::Ud(nal) => nal.publish(ni),
        }
    }

    fn withdraw(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        match self {
            Self::Rc(verbs) => verbs.withdraw(ni, md),
            Self::Auto(auto) => auto.withdraw(ni, md),
            Self::Ud(nal) => nal.withdraw(ni, md),
        }
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        match self {
            Self::Rc(verbs) => verbs.remote_key(ni, md),
            Self::Auto(auto) => auto.remote_key(ni, md),
            Self::Ud(nal) => nal.remote_key(ni, md),
        }
    }

    fn capabilities(&self) -> Capabilities {
        match self {
            Self::Rc(verbs) => verbs.capabilities(),
            Self::Auto(auto) => auto.capabilities(),
            Self::Ud(nal) => nal.capabilities(),
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        match self {
            Self::Rc(verbs) => verbs.distance(to),
            Self::Auto(auto) => auto.distance(to),
            Self::Ud(nal) => nal.distance(to),
        }
    }

    fn statistics(&self) -> Paths {
        match self {
            Self::Rc(verbs) => verbs.statistics(),
            Self::Auto(auto) => auto.statistics(),
            Self::Ud(nal) => nal.statistics(),
        }
    }

    fn close(&mut self, ni: &mut Ni) {
        match self {
            Self::Rc(verbs) => verbs.close(ni),
            Self::Auto(auto) => auto.close(ni),
            Self::Ud(nal) => nal.close(ni),
        }
    }
}
