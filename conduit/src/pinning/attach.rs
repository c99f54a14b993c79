//! Attaching with memory that is pinned when it is needed.
// UNSAFETY: takes the promises of programs whose memory is named by its address alone.
#![expect(
    unsafe_code,
    reason = "programs promise what they do with memory that is named by its address"
)]

use super::firehoses::Firehoses;
use super::home::Home;
use super::maps::Maps;
use super::units::For;
use super::wire::PER_MESSAGE;
use crate::am::HandlerEntry;
use crate::conduit::Conduit;
use crate::core::{Attached, Core};
use crate::error::AttachError;
use crate::fault::{Fault, refused};
use crate::rma::segments::Segments;
use crate::segment::SegInfo;
use ::firehose::{LimitError, Limits, Wishes};
use portals_shim::Region;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

impl Core {
    /// What this rank may pin, bytes: its part of the machine's memory, and what the fabric and the system allow.
    pub(crate) fn pinnable(&self) -> u64 {
        let f = &self.env.firehose;
        let machine = f
            .physmem_max
            .unwrap_or_else(|| portals_shim::MemoryLimits::now().memory());
        let part = (machine as f64 * f.ratio) as u64 / self.ranks.on_this_node().max(1);
        self.ni
            .capabilities()
            .pinnable
            .map_or(part, |most| most.min(part))
    }

    fn new_firehoses(&mut self, limits: Limits) -> Result<Firehoses, Fault> {
        let none = Fault::Malformed {
            node: self.ranks.me(),
            what: "no room for an operation",
        };
        let longs = self.ops.explicit().ok_or(none)?;
        let to = (&self.ni, self.descriptors.queues.safe);
        let firehoses = Firehoses::new(to, (limits, self.ranks.count()), self.env.msg_limit, longs);
        firehoses.map_err(refused("PtlMDBind of all memory"))
    }
}

impl Conduit {
    /// Attaches with memory that is pinned when it is needed.
    pub(crate) fn attach_pinning(
        &self,
        handlers: Vec<HandlerEntry>,
        segments: Segments,
        size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        if self.is_attached() {
            return Err(AttachError::Attached);
        }
        let region = Region::new(size).map_err(|source| AttachError::Segment { size, source })?;
        let segment = SegInfo {
            addr: region.addr(),
            size: if size == 0 { 0 } else { region.len() as u64 },
        };
        let own = segments.named(segment);
        let indexes = self.handlers.borrow_mut().register(handlers)?;
        self.register_pinning()?;
        let rarsrc = self.core.borrow().descriptors.reqsb;
        // Every rank keeps to what the poorest may pin.
        let pinnable = self.core.borrow().pinnable();
        let told = self.exchange(own, pinnable);
        let pinnable = told.iter().map(|t| t.1).min().unwrap_or(0);
        let limits = self
            .pinning_limits(pinnable)
            .map_err(AttachError::Firehose)?;
        let firehoses = self.core.borrow_mut().new_firehoses(limits);
        let firehoses = self.check("attach", firehoses);
        {
            let mut core = self.core.borrow_mut();
            let kept = segments.kept(segment, core.env.firehose.local, self.forgets.get());
            let maps = Maps::new(segments.opened_only());
            let kept = (kept, self.elsewhere.clone());
            let home = Home::new(
                (&core.ni, core.ranks.count()),
                limits,
                maps,
                For::Peers,
                kept,
            );
            core.pinning.home = Some(home);
            core.pinning.firehoses = Some(firehoses);
            core.segments = segments;
            core.attached = Some(Attached {
                region,
                rarsrc,
                near: vec![None; told.len()],
                segments: told.into_iter().map(|t| t.0).collect(),
            });
        }
        self.meet();
        if let Some(t) = &self.tracer {
            t.introduce();
        }
        Ok(indexes)
    }

    fn pinning_limits(&self, pinnable: u64) -> Result<Limits, LimitError> {
        let core = self.core.borrow();
        let f = &core.env.firehose;
        Limits::plan(&Wishes {
            pinnable,
            prepinned: 0,
            m: f.m,
            max_victim: f.max_victim,
            nodes: core.ranks.count(),
            remote: true,
            shape: f.shape(),
            per_message: PER_MESSAGE,
        })
    }

    /// Memory outside of the own segment that puts, gets and Longs read or write is pinned by units that stay pinned, and not
    /// for each message, in whatever way this rank attaches. To be called before that, and on all ranks alike.
    ///
    /// # Safety
    ///
    /// Memory that was ever a source or a destination of a put, a get or a Long of this rank is given to
    /// [`Conduit::forget`] before it is unmapped, or its contents are taken away.
    pub unsafe fn promise_to_forget(&self) {
        self.forgets.set(true);
    }

    /// Registers handlers, with no segment: puts and gets name any memory of any rank by its address
    /// (`GASNET_SEGMENT_EVERYTHING`). What is pinned for it, and when, is decided by firehoses; see
    /// `docs/src/mechanisms/firehose.md`. Collective, and instead of [`Conduit::attach`].
    ///
    /// # Safety
    ///
    /// Peers write to and read from this process at the addresses that its own and their programs choose. For each put
    /// and get the memory at its target is mapped, writable, and not borrowed in a way that forbids the access. Memory
    /// that a put or get ever named is given to [`Conduit::forget`] before it is unmapped.
    pub unsafe fn attach_everything(
        &self,
        handlers: Vec<HandlerEntry>,
    ) -> Result<Vec<u8>, AttachError> {
        if self.gate.is_some() {
            return Err(AttachError::Shared);
        }
        self.attach_pinning(handlers, Segments::Everything, 0)
    }

    /// Attaches with a segment of `size` bytes that may be larger than what can be pinned
    /// (`GASNET_SEGMENT_LARGE`): what of it peers reach at a time is decided by firehoses. Collective.
    pub fn attach_large(
        &self,
        handlers: Vec<HandlerEntry>,
        size: usize,
    ) -> Result<Vec<u8>, AttachError> {
        if self.gate.is_some() {
            return Err(AttachError::Shared);
        }
        self.attach_pinning(handlers, Segments::Large, size)
    }

    /// Registers handlers, with no segment: puts, gets and Longs name memory of other ranks by its address, where these
    /// have opened it ([`Conduit::open`]); all else is no memory to them. What of it is pinned, and when, is decided by
    /// firehoses; sources and destinations of the own side are pinned for each message. Collective, and instead of
    /// [`Conduit::attach`].
    pub fn attach_open(&self, handlers: Vec<HandlerEntry>) -> Result<Vec<u8>, AttachError> {
        if self.gate.is_some() {
            return Err(AttachError::Shared);
        }
        self.attach_pinning(handlers, Segments::Opened, 0)
    }

    /// Opens words of the heap to all ranks and gives their address, which is good as long as the process lives: the
    /// memory is never freed. In a job of [`Conduit::attach_open`]; elsewhere it changes nothing.
    ///
    /// Other ranks write them at any time; what is written before a barrier is read after it.
    pub fn open(&self, words: &Arc<[AtomicU64]>) -> u64 {
        let addr = words.as_ptr().expose_provenance() as u64;
        if let Some(home) = self.core.borrow_mut().pinning.home.as_mut() {
            home.maps
                .open(addr, size_of_val::<[AtomicU64]>(words) as u64);
            std::mem::forget(words.clone());
        }
        addr
    }
}
