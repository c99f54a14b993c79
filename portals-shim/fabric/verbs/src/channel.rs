//! Connections, datagrams or both: the switch.
//!
//! All ranks of a job use the same channel ([`Channel`]); ranks that were told different ones do not find each other's
//! addresses, and the job says so at its start.

use super::auto::{self, Auto};
use super::datagram::{self, DatagramNal};
use super::directory::Contact as _;
use super::{Verbs, connect};
use fabric_api::call::RemoteKey;
use fabric_api::call::{Paths, Target};
use fabric_api::config::{Channel, FabricError};
use fabric_api::nal::{Attendance, Awaiting, Nal};
use fabric_api::place::Placement;
use fabric_api::region::Trust;
use launch::Reader;
use portals_core::{
    Error, Header, Landing, MdHandle, Ni, NiConfig, OpId, ProcessId, Segment, Transmit,
};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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
    Rc(connect::Directory),
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
            let directory = Directory::Rc(connect::Directory::of(known.clone()));
            (Self::Rc(Box::new(own)), directory)
        });
        Ok(all.collect())
    }

    /// Under which a rank says how it can be talked to.
    pub fn key(&self, rank: u32, opening: &str) -> String {
        match self {
            Self::Rc(_) => connect::Contact::key(rank, opening),
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
            Self::Rc(_) => Directory::Rc(connect::Directory::new(job, opening)),
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
            _ => Err(connect::unusable("addresses of another channel")),
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
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        match self {
            Self::Rc(verbs) => verbs.send(ni, tx),
            Self::Auto(auto) => auto.send(ni, tx),
            Self::Ud(nal) => nal.send_message(ni, tx),
        }
    }

    #[inline(always)]
    fn send_now(&mut self, header: &Header, payload: &[Segment]) -> bool {
        match self {
            Self::Rc(verbs) => verbs.send_now(header, payload),
            Self::Auto(auto) => auto.send_now(header, payload),
            Self::Ud(_) => false,
        }
    }

    #[inline(always)]
    fn lend_now(&mut self, header: &Header, payload: &[Segment], md: MdHandle) -> Option<u64> {
        match self {
            Self::Rc(verbs) => verbs.lend_now(header, payload, md),
            Self::Auto(auto) => auto.lend_now(header, payload, md),
            Self::Ud(_) => None,
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        match self {
            Self::Rc(verbs) => verbs.begun(number, op),
            Self::Auto(auto) => auto.begun(number, op),
            Self::Ud(_) => {}
        }
    }

    fn makes_puts(&self) -> bool {
        match self {
            Self::Rc(verbs) => verbs.makes_puts(),
            Self::Auto(auto) => auto.makes_puts(),
            Self::Ud(_) => false,
        }
    }

    fn send_made(&mut self, header: &Header, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        match self {
            Self::Rc(verbs) => verbs.send_made(header, fill),
            Self::Auto(auto) => auto.send_made(header, fill),
            Self::Ud(_) => false,
        }
    }

    fn writes_ahead(&self, header: &Header, payload: &[Segment]) -> bool {
        match self {
            Self::Rc(verbs) => verbs.writes_ahead(header, payload),
            Self::Auto(auto) => auto.writes_ahead(header, payload),
            Self::Ud(_) => false,
        }
    }

    fn write_ahead(&mut self, ni: &mut Ni, tx: &mut Transmit) {
        match self {
            Self::Rc(verbs) => verbs.write_ahead(ni, tx),
            Self::Auto(auto) => auto.write_ahead(ni, tx),
            Self::Ud(nal) => nal.send_message(ni, tx),
        }
    }

    #[inline]
    fn progress(&mut self, ni: &mut Ni) -> bool {
        match self {
            Self::Rc(verbs) => verbs.progress(ni),
            Self::Auto(auto) => auto.progress(ni),
            Self::Ud(nal) => nal.make_progress(ni),
        }
    }

    #[inline]
    fn glance(&mut self, ni: &mut Ni) -> bool {
        match self {
            Self::Rc(verbs) => verbs.glance(ni),
            other => other.progress(ni),
        }
    }

    #[inline(always)]
    fn fetch_now(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        match self {
            Self::Rc(verbs) => verbs.fetch_now(ni, md, region, from),
            Self::Auto(auto) => auto.fetch_now(ni, md, region, from),
            Self::Ud(_) => false,
        }
    }

    #[inline]
    fn fetch_awaited(&mut self, landing: &Landing, from: &Target) -> bool {
        match self {
            Self::Rc(verbs) => verbs.fetch_awaited(landing, from),
            Self::Auto(_) | Self::Ud(_) => false,
        }
    }

    #[inline]
    fn send_awaited(&mut self, source: &Landing, to: &Target) -> bool {
        match self {
            Self::Rc(verbs) => verbs.send_awaited(source, to),
            Self::Auto(_) | Self::Ud(_) => false,
        }
    }

    #[inline]
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        match self {
            Self::Rc(verbs) => verbs.await_end(ni),
            other => (Awaiting::Yet, other.progress(ni)),
        }
    }

    fn unawait(&mut self, ni: &mut Ni) {
        if let Self::Rc(verbs) = self {
            verbs.unawait(ni);
        }
    }

    #[inline]
    fn lists_changed(&mut self, ni: &mut Ni) {
        match self {
            Self::Rc(verbs) => verbs.lists_changed(ni),
            Self::Auto(auto) => auto.lists_changed(ni),
            // Nobody reaches a descriptor past its owner.
            Self::Ud(_) => {
                ni.take_dirty_portals();
            }
        }
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        match self {
            Self::Rc(verbs) => verbs.remote_key(ni, md),
            Self::Auto(auto) => auto.remote_key(ni, md),
            Self::Ud(_) => Ok(0),
        }
    }

    fn aim(&mut self, key: Option<RemoteKey>) {
        match self {
            Self::Rc(verbs) => verbs.aim(key),
            Self::Auto(auto) => auto.aim(key),
            Self::Ud(_) => {}
        }
    }

    fn pins(&self) -> bool {
        !matches!(self, Self::Ud(_))
    }

    fn pinnable(&self) -> Option<u64> {
        match self {
            Self::Rc(verbs) => verbs.pinnable(),
            Self::Auto(auto) => auto.pinnable(),
            // Data is copied, by the processors.
            Self::Ud(_) => None,
        }
    }

    fn exposable(&self) -> Option<u64> {
        match self {
            Self::Rc(verbs) => verbs.exposable(),
            Self::Auto(auto) => auto.exposable(),
            Self::Ud(_) => None,
        }
    }

    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        match self {
            Self::Rc(verbs) => verbs.retire(ni, md),
            Self::Auto(auto) => auto.retire(ni, md),
            Self::Ud(_) => Ok(()),
        }
    }

    fn attendance(&self) -> Option<Attendance> {
        match self {
            Self::Rc(verbs) => verbs.attendance(),
            Self::Auto(auto) => auto.attendance(),
            Self::Ud(nal) => nal.make_attendance(),
        }
    }

    fn looks(&self) -> u32 {
        match self {
            Self::Rc(verbs) => verbs.looks(),
            Self::Auto(auto) => auto.looks(),
            Self::Ud(nal) => nal.look_count(),
        }
    }

    fn arm(&mut self) -> bool {
        match self {
            Self::Rc(verbs) => verbs.arm(),
            Self::Auto(auto) => auto.arm(),
            Self::Ud(nal) => nal.arm_alarm(),
        }
    }

    fn longest(&self) -> Option<Duration> {
        match self {
            Self::Rc(verbs) => verbs.longest(),
            Self::Auto(auto) => auto.longest(),
            Self::Ud(_) => None,
        }
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        match self {
            Self::Rc(verbs) => verbs.attend(ni),
            Self::Auto(auto) => auto.attend(ni),
            Self::Ud(nal) => nal.attend_timers(ni),
        }
    }

    fn due(&self) -> Option<Instant> {
        match self {
            Self::Rc(verbs) => verbs.due(),
            Self::Auto(auto) => auto.due(),
            Self::Ud(nal) => nal.due_at(),
        }
    }

    fn is_busy(&self) -> bool {
        match self {
            Self::Rc(verbs) => verbs.is_busy(),
            Self::Auto(auto) => auto.is_busy(),
            Self::Ud(nal) => nal.is_down(),
        }
    }

    fn is_gone(&self) -> bool {
        match self {
            Self::Rc(verbs) => verbs.is_gone(),
            Self::Auto(auto) => auto.is_gone(),
            Self::Ud(nal) => nal.has_gone(),
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        match self {
            Self::Rc(verbs) => verbs.distance(to),
            Self::Auto(auto) => auto.distance(to),
            Self::Ud(nal) => nal.distance_to(to),
        }
    }

    fn paths(&self) -> Paths {
        match self {
            Self::Rc(verbs) => verbs.paths(),
            Self::Auto(auto) => auto.paths(),
            Self::Ud(nal) => nal.way_counts(),
        }
    }

    fn close(&mut self, ni: &mut Ni) {
        match self {
            Self::Rc(verbs) => verbs.close(ni),
            Self::Auto(auto) => auto.close(ni),
            Self::Ud(nal) => nal.close_all(ni),
        }
    }
}
