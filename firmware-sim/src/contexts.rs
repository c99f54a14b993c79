//! Source structures for more peers than SRAM has room for.
//!
//! ```text
//!  SRAM: source structures                        host memory: context table
//!  ┌──────┬──────┬──────┬──────┐   idle, used      ┌────┬────┬────┬─ ─
//!  │ peer │ peer │ idle │ peer │ ──longest ago──►  │  0 │  1 │  2 │     8 bytes for each node
//!  └──────┴──────┴──▲───┴──────┘                   └────┴────┴────┴─ ─
//!                   └────── a peer that has none ◄───── fetched
//! ```
//!
//! # Rules
//!
//! 1. A peer without a structure takes a free one, or that of the idle peer that was used longest ago. Idle is a
//!    peer to which no message is under way; an acknowledgement that it is owed is sent before.
//! 2. The numbers of a peer outlive its structure: nothing is taken twice, and nothing is skipped.
//! 3. A message to a peer that can have no structure waits in the firmware, in order for each peer. It is not
//!    refused.
//! 4. One structure is left for peers that send: messages to at most as many peers as there are others are under
//!    way.
//! 5. A header that finds no structure, as when the host's table cannot be reached, is refused and sent again.
//! 6. While all peers have had a structure of their own nothing is written or fetched.
//! 7. Without a context table structures are for good, and a command for a peer too many is refused. A firmware
//!    that stops the node when it runs out of room has no use for a table.

use std::collections::{BTreeSet, VecDeque};

use nic_model::defs::context::{CONTEXT_LEN, PeerContext};
use nic_model::defs::event::refusal;
use nic_model::defs::niccb::Counter;
use nic_model::{FirmwareContext, NodeId};
use zerocopy::{FromBytes, IntoBytes};

use crate::program::SeaStarFirmware;
use crate::source::{Body, Owner, Source};
use crate::tx::Queued;

/// A message that waits for a source structure.
#[derive(Debug)]
pub(crate) struct Waiting {
    nid: NodeId,
    owner: Owner,
    body: Body,
}

/// Messages that wait, oldest first.
pub(crate) type WaitingQueue = VecDeque<Waiting>;

impl SeaStarFirmware {
    /// Where the context of a peer is, if the host has given memory for it.
    fn context_at(&self, ctx: &FirmwareContext<'_>, nid: NodeId) -> Option<u64> {
        let table = self.contexts?;
        let offset = u32::from(nid.0) * CONTEXT_LEN as u32;
        ctx.translate(table.checked_add(offset)?)
    }

    /// The source structure of `nid`; `None` when it can have none.
    pub(crate) fn source(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        nid: NodeId,
    ) -> Option<&mut Source> {
        if !self.sources.is_known(nid) && self.contexts.is_some() {
            self.fetch(ctx, nid)?;
        }
        self.sources.entry(nid)
    }

    /// The same, but nothing for a peer that has never had one.
    pub(crate) fn met(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        nid: NodeId,
    ) -> Option<&mut Source> {
        if self.sources.is_known(nid) {
            return self.sources.known(nid);
        }
        let may_have_left = self.sources.have_left();
        if may_have_left {
            self.source(ctx, nid)
        } else {
            None
        }
    }

    /// Makes room for a peer that has no structure, and gives it the one it had.
    fn fetch(&mut self, ctx: &mut FirmwareContext<'_>, nid: NodeId) -> Option<()> {
        if self.sources.free() == 0 {
            self.evict(ctx)?;
        }
        if self.sources.have_left() {
            let at = self.context_at(ctx, nid)?;
            let mut bytes = [0; CONTEXT_LEN as usize];
            ctx.host_read(at, &mut bytes).ok()?;
            let context = PeerContext::read_from_bytes(&bytes).ok()?;
            self.sources.restore(nid, &context);
            ctx.count(Counter::CONTEXTS_FETCHED, 1);
        }
        Some(())
    }

    /// Writes the structure of an idle peer to host memory.
    fn evict(&mut self, ctx: &mut FirmwareContext<'_>) -> Option<()> {
        let nid = self.sources.idle()?;
        let at = self.context_at(ctx, nid)?;
        if !ctx.host_writable(at, CONTEXT_LEN as usize) {
            return None;
        }
        self.acknowledge_first(ctx, nid);
        let context = self.sources.take(nid)?;
        ctx.host_write(at, context.as_bytes());
        ctx.count(Counter::CONTEXTS_SAVED, 1);
        Some(())
    }

    /// Queues a message for a node that exists. `owner` hears of its end: [`Work::TxEnd`](crate::program::Work::TxEnd).
    ///
    /// # Errors
    /// [`refusal::SOURCES`] when there is no context table, and all source structures are taken or all numbers
    /// of this one.
    pub(crate) fn send(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        nid: NodeId,
        owner: Owner,
        body: Body,
    ) -> Result<(), u8> {
        let message = Waiting { nid, owner, body };
        let overtakes = self.tx_waiting.iter().any(|waiting| waiting.nid == nid);
        let Some(message) = self.push_unless(ctx, overtakes, message) else {
            self.start_next(ctx);
            return Ok(());
        };
        if self.contexts.is_none() {
            return Err(refusal::SOURCES);
        }
        ctx.count(Counter::SOURCE_WAITS, 1);
        self.tx_waiting.push_back(message);
        Ok(())
    }

    /// Queues the messages whose peers can have a source structure.
    pub(crate) fn send_waiting(&mut self, ctx: &mut FirmwareContext<'_>) {
        if self.tx_waiting.is_empty() {
            return;
        }
        let mut held = BTreeSet::new();
        for message in std::mem::take(&mut self.tx_waiting) {
            let nid = message.nid;
            let overtakes = held.contains(&nid);
            if let Some(message) = self.push_unless(ctx, overtakes, message) {
                held.insert(nid);
                self.tx_waiting.push_back(message);
            }
        }
        self.start_next(ctx);
    }

    /// Gives a message its number; gives it back when it would overtake another, or its peer can have no structure
    /// or no further number.
    fn push_unless(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        overtakes: bool,
        message: Waiting,
    ) -> Option<Waiting> {
        let nid = message.nid;
        let crowded = self.contexts.is_some() && self.senders >= self.sources.most_senders();
        if overtakes || crowded && !self.sources.sends(nid) {
            return Some(message);
        }
        let slot = !self.beyond_slots(ctx);
        let now = ctx.now();
        let Some(source) = self.source(ctx, nid).filter(|source| !source.is_full()) else {
            return Some(message);
        };
        let before = source.load();
        source.push(now, message.owner, message.body, slot);
        let after = source.load();
        self.count_in_flight(ctx, before, after);
        ctx.set_counter(Counter::SOURCE_FREELIST, self.sources.free());
        self.tx_queue.push_back(Queued::Peer(nid));
        self.watch(ctx);
        None
    }
}
