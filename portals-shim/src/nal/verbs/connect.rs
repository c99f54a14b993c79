//! Opening the device and connecting all ranks.

use super::frame::SLOT;
use super::memory::Registry;
use super::onesided::Published;
use super::peer::{CREDITS, DEPTH, Peer, RESERVED};
use super::{Counters, Slab, Verbs};
use crate::fabric::{FabricConfig, FabricError, FabricKind, Ids, Opened, Wishes, rank_config};
use crate::interface::Interface;
use crate::job::Job;
use portals_core::{Ni, NiConfig, ProcessId};
use std::collections::BTreeMap;
use std::fmt::Display;
use verbs_backend::device::DeviceError;
use verbs_backend::{BufferPool, Cq, Device, Endpoint, Pd, Qp, QpOptions, Srq};

/// Send buffers of a process.
const SEND_SLOTS: u32 = 256;
const PORT: u8 = 1;

/// Whether a device can be used: it opens, its port is active and has an address.
pub fn check(device: Option<&str>) -> Result<(), String> {
    let device = Device::open(device).map_err(|e| advise(&e))?;
    let port = device.port(PORT).map_err(|e| e.to_string())?;
    if !port.active {
        return Err(format!("port {PORT} of {} is not active", device.name()));
    }
    if port.ethernet {
        device.gid(PORT, None).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// What is wrong, and what a user can do.
fn advise(error: &DeviceError) -> String {
    let remedy = match error {
        DeviceError::NotInstalled(_) => {
            "install libibverbs (Debian: libibverbs1, ibverbs-providers), or put \"portolan guest --\" in front of the command to use SoftRoCE in a virtual machine"
        }
        DeviceError::NoDevice => {
            "add SoftRoCE to a network interface (modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0), or put \"portolan guest --\" in front of the command to use it in a virtual machine"
        }
        _ => return error.to_string(),
    };
    format!("{error}: {remedy}")
}

fn unusable(what: impl Display) -> FabricError {
    FabricError::Unusable {
        kind: FabricKind::Verbs,
        reason: what.to_string(),
    }
}

fn key(from: u32, to: u32, opening: &str) -> String {
    format!("portolan.verbs.{from}.{to}{opening}")
}

/// A rank that has made its queue pairs and is connected to nobody.
struct Unconnected {
    rank: u32,
    max_message: u64,
    cq: Cq,
    srq: Srq,
    pd: Pd,
    send_pool: BufferPool,
    /// By peer; none for the own rank.
    qps: Vec<Option<Qp>>,
}

impl Unconnected {
    fn new(rank: u32, size: u32, device: Option<&str>) -> Result<Self, FabricError> {
        let device = Device::open(device).map_err(|e| unusable(advise(&e)))?;
        let port = device.port(PORT).map_err(unusable)?;
        let pd = Pd::new(&device).map_err(unusable)?;
        let others = size.saturating_sub(1).max(1);
        let slots = others * u32::from(CREDITS + RESERVED);
        let cq = Cq::new(&device, slots + others * DEPTH).map_err(unusable)?;
        let srq = Srq::new(&pd, slots, 1).map_err(unusable)?;
        let receive_pool = BufferPool::new(&pd, slots, SLOT).map_err(unusable)?;
        let send_pool = BufferPool::new(&pd, SEND_SLOTS, SLOT).map_err(unusable)?;
        srq.post_recv(std::iter::from_fn(|| receive_pool.take()).take(slots as usize))
            .map_err(unusable)?;
        let mut options = QpOptions::new(&cq);
        options.srq = Some(&srq);
        options.max_send = DEPTH;
        options.port = PORT;
        let qps = (0..size)
            .map(|peer| {
                (peer != rank)
                    .then(|| Qp::new(&pd, &options).map_err(unusable))
                    .transpose()
            })
            .collect::<Result<_, _>>()?;
        let max_message = u64::from(port.message_bytes.max(4096));
        Ok(Self {
            rank,
            max_message,
            cq,
            srq,
            pd,
            send_pool,
            qps,
        })
    }

    /// The address for each peer.
    fn endpoints(&self) -> impl Iterator<Item = (u32, Endpoint)> {
        (0..)
            .zip(&self.qps)
            .filter_map(|(peer, qp)| Some((peer, qp.as_ref()?.endpoint())))
    }

    /// Connects to every peer; `address` gives the one that peer made for this rank, `ids` has
    /// the ids of all ranks.
    fn connect(
        self,
        config: NiConfig,
        ids: Vec<ProcessId>,
        mut address: impl FnMut(u32) -> Result<Endpoint, FabricError>,
    ) -> Result<Opened, FabricError> {
        let mut peers = Vec::new();
        let mut by_qpn = BTreeMap::new();
        for ((peer, qp), id) in (0..).zip(self.qps).zip(&ids) {
            let Some(qp) = qp else {
                peers.push(None);
                continue;
            };
            qp.connect(&address(peer)?).map_err(unusable)?;
            by_qpn.insert(qp.qpn(), peer as usize);
            peers.push(Some(Peer::new(*id, qp)));
        }
        let nal = Verbs {
            id: config.id,
            cq: self.cq,
            srq: self.srq,
            send_pool: self.send_pool,
            peers,
            by_qpn,
            records: Slab::new(),
            announced: Slab::new(),
            registry: Registry::new(self.pd),
            prune_due: false,
            published: Published::default(),
            max_message: self.max_message,
            counters: Counters::default(),
            spare: Vec::new(),
            slots: Vec::new(),
            closed: false,
        };
        Ok(Opened {
            interface: Interface::direct(Ni::new(config), nal),
            peers: ids,
        })
    }
}

/// Opens the device and connects to the other ranks; collective.
///
/// Every rank makes a queue pair for each other one and publishes its address; after the fence it
/// connects them, and after a second fence everybody is ready to receive.
pub(crate) fn open(
    job: &Job,
    config: &FabricConfig,
    wishes: Option<&Wishes>,
) -> Result<Opened, FabricError> {
    let opening = job.next_opening();
    let ids = Ids::announce(job, wishes, &opening)?;
    let rank = Unconnected::new(job.rank(), job.size(), config.device.as_deref())?;
    for (peer, endpoint) in rank.endpoints() {
        job.put(&key(job.rank(), peer, &opening), endpoint.to_bytes())?;
    }
    job.fence()?;
    let jid = job
        .id()
        .bytes()
        .fold(1u32, |h, b| h.wrapping_mul(31).wrapping_add(u32::from(b)));
    let config = wishes.map_or_else(
        || rank_config(job.rank(), jid),
        |w| w.config(job.rank(), jid),
    );
    let opened = rank.connect(config, ids.collect(job, jid)?, |peer| {
        let bytes = job.get_bytes(&key(peer, job.rank(), &opening))?;
        let bytes = <&[u8; Endpoint::BYTES]>::try_from(bytes.as_slice())
            .map_err(|e| unusable(format!("address of rank {peer}: {e}")))?;
        Endpoint::from_bytes(bytes).map_err(unusable)
    })?;
    job.fence()?;
    Ok(opened)
}

/// `ranks` interfaces of this process, connected through the device; for ranks that are threads.
pub fn in_threads(ranks: u32, device: Option<&str>) -> Result<Vec<Opened>, FabricError> {
    const JID: u32 = 1;
    let unconnected = (0..ranks)
        .map(|rank| Unconnected::new(rank, ranks, device))
        .collect::<Result<Vec<_>, _>>()?;
    let addresses: BTreeMap<(u32, u32), Endpoint> = unconnected
        .iter()
        .flat_map(|u| u.endpoints().map(move |(peer, e)| ((u.rank, peer), e)))
        .collect();
    unconnected
        .into_iter()
        .map(|u| {
            let rank = u.rank;
            let ids = (0..ranks).map(|r| rank_config(r, JID).id).collect();
            u.connect(rank_config(rank, JID), ids, |peer| {
                addresses
                    .get(&(peer, rank))
                    .copied()
                    .ok_or_else(|| unusable(format!("rank {peer} has no address")))
            })
        })
        .collect()
}
