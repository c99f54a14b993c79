//! Messages under way. Each has a descriptor over all memory, and its events name that descriptor. A message whose local
//! memory is not pinned has a descriptor of its own besides, which ends with it, as does what the fabric registers for it.

use super::edge::all_memory;
use crate::descriptors::Md;
use crate::memory::UserMem;
use crate::ops::Key;
use crate::rma::segments::LOWEST;
use ::firehose::{Grip, Unit};
use portals_shim::{
    EqHandle, Error, Interface, MdHandle, MdMemory, MdOptions, MdSpec, RawMemory,
    THRESHOLD_INFINITE, Unlink,
};

/// One message of a put or get.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    pub(super) get: bool,
    pub(super) op: Key,
    pub(super) node: u32,
    /// Held at `node`.
    pub(super) there: Grip,
    /// Pinned at home.
    pub(super) here: Option<Unit>,
    /// The chunk that stands for the local memory.
    pub(super) chunk: Option<u32>,
    /// Of local memory that is neither a chunk nor pinned.
    pub(super) own: Option<MdHandle>,
    pub(super) lending: u64,
    /// The local memory is not read any more.
    pub(super) sent: bool,
    /// ACK or REPLY_END came.
    pub(super) answered: bool,
}

impl Lane {
    /// A put of which nothing is known but where it goes.
    #[inline(always)]
    pub(super) fn new(node: u32, there: Grip, op: Key) -> Self {
        Self {
            get: false,
            op,
            node,
            there,
            here: None,
            chunk: None,
            own: None,
            lending: 0,
            sent: false,
            answered: false,
        }
    }
}

#[derive(Debug)]
pub(super) struct Lanes {
    mds: Vec<MdHandle>,
    under_way: Vec<Option<Lane>>,
    free: Vec<usize>,
}

fn bind(
    ni: &Interface,
    safe: EqHandle,
    index: usize,
    memory: RawMemory,
) -> Result<MdHandle, Error> {
    let spec = MdSpec {
        memory: MdMemory::Raw(memory),
        threshold: THRESHOLD_INFINITE,
        max_size: 0,
        options: MdOptions::EVENT_START_DISABLE,
        user_ptr: Md::Lane(index).encode(),
        eq: Some(safe),
    };
    ni.md_bind(spec, Unlink::Retain)
}

/// Where `addr` is in a descriptor over all memory.
pub(super) fn offset_of(addr: u64) -> u64 {
    addr.saturating_sub(LOWEST)
}

impl Lanes {
    pub(super) fn new(ni: &Interface, safe: EqHandle, count: u32) -> Result<Self, Error> {
        let count = count as usize;
        let md = |index| bind(ni, safe, index, all_memory());
        Ok(Self {
            mds: (0..count).map(md).collect::<Result<_, _>>()?,
            under_way: vec![None; count],
            free: (0..count).rev().collect(),
        })
    }

    /// A message with a ticket in hand, by the descriptor over all memory: there are as many lanes.
    #[inline(always)]
    pub(super) fn take(&mut self, lane: &Lane) -> Option<(usize, MdHandle)> {
        let at = self.free.pop()?;
        self.under_way[at] = Some(*lane);
        Some((at, self.mds[at]))
    }

    /// A message with a ticket in hand, by a descriptor over `memory`.
    pub(super) fn take_over(
        &mut self,
        (ni, safe): (&Interface, EqHandle),
        lane: &Lane,
        memory: UserMem,
    ) -> Option<Result<MdHandle, Error>> {
        let at = *self.free.last()?;
        let bound = bind(ni, safe, at, memory.describe());
        if let Ok(md) = bound {
            let own = Some(md);
            self.take(&Lane { own, ..*lane })?;
        }
        Some(bound)
    }

    /// Of a message whose call failed, or that is done.
    #[inline(always)]
    pub(super) fn end(&mut self, index: usize) -> Option<Lane> {
        let lane = self.under_way.get_mut(index)?.take()?;
        self.free.push(index);
        Some(lane)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, index: usize) -> Option<&mut Lane> {
        self.under_way.get_mut(index)?.as_mut()
    }

    /// Whether a message has nothing that its end gives back to the interface.
    pub(super) fn is_plain(&self, index: usize) -> bool {
        let lane = self.under_way.get(index).and_then(Option::as_ref);
        lane.is_some_and(|l| l.own.is_none() && l.here.is_none())
    }

    /// Whether a message still needs the memory of a lending.
    pub(super) fn touches(&self, lending: u64) -> bool {
        let mut all = self.under_way.iter().flatten();
        all.any(|l| {
            l.lending == lending && l.chunk.is_none() && !(if l.get { l.answered } else { l.sent })
        })
    }
}
