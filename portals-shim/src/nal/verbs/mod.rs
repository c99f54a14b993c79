//! Portals over RDMA verbs: reliable connections between all ranks.
//!
//! ```text
//!   put, get ──► advertised descriptor at the peer?
//!                 ├─ yes, and nothing of ours is under way there:
//!                 │     RDMA WRITE or READ; its completion makes SEND_END, ACK, REPLY   onesided.rs
//!                 └─ no: frame in the peer's shared receive queue, matched there        send.rs
//!                        ├─ up to 8 KiB: the data travels with the header
//!                        └─ more: the header says where the data is, and the target
//!                           reads it straight into the matched descriptor             receive.rs
//! ```
//!
//! | file | decides |
//! |---|---|
//! | `connect.rs` | device, queue pairs, the exchange of addresses |
//! | `send.rs` | the path of an outgoing message |
//! | `receive.rs` | what a frame from a peer does |
//! | `onesided.rs` | which descriptors peers may reach, and their withdrawal |
//! | `peer.rs` | order, credits, send queue of one connection |
//! | `memory.rs` | registration, requests on descriptor memory |
//! | `frame.rs` | the bytes of a frame |
//!
//! # Ordering
//!
//! A reliable connection keeps the order of what is posted, but a frame has its effect when the
//! target's library handles it, while an RDMA operation has its at once. Therefore a one-sided
//! operation is used only when every earlier request to that peer has had its effect
//! (`Peer::is_settled`); otherwise it goes the two-sided way (rule 24).

mod connect;
mod frame;
mod memory;
mod onesided;
mod peer;
mod receive;
mod send;

use super::Nal;
use crate::region::Region;
use memory::{Registry, Staged};
use onesided::Published;
use peer::Peer;
use portals_core::{Error, Header, MdHandle, Ni, NiFail, OpId, ProcessId, Segments, Transmit};
use std::collections::BTreeMap;
use verbs_backend::{Buffer, BufferPool, Completion, Cq, Srq};

pub(crate) use connect::open;
pub use connect::{check, in_threads};

/// Whether bytes of a peer are a frame; for the fuzz target of the parser.
#[doc(hidden)]
pub fn is_frame(bytes: &[u8]) -> bool {
    frame::parse(bytes).is_ok()
}

/// What the end of an RDMA operation, or a peer's answer, completes.
#[derive(Debug)]
enum Work {
    /// A one-sided put; the ack that the target would have sent.
    Write {
        op: Option<OpId>,
        ack: Option<Header>,
        _staged: Option<Staged>,
    },
    /// A one-sided get; the reply that the target would have sent, whose data is in place.
    Read { md: MdHandle, reply: Header },
    /// Announced data being read into a descriptor.
    Fetch {
        op: OpId,
        token: u32,
        request: bool,
        staged: Option<(Staged, Segments, u64)>,
    },
}

/// A record of [`Work`]: for whom, and how many requests of it are still under way.
#[derive(Debug)]
struct Record {
    peer: usize,
    left: usize,
    failed: bool,
    work: Work,
}

/// Data of ours that a peer was told to read.
#[derive(Debug)]
struct Announced {
    peer: usize,
    after: After,
    /// Keeps a stand-in alive until the peer has read it.
    _staged: Option<Staged>,
}

#[derive(Clone, Copy, Debug)]
enum After {
    Send(Option<OpId>),
    Reply(OpId),
}

/// What is counted here and nowhere else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    /// Frames that could not be read, or claimed to come from somebody else.
    bad_frames: u64,
    one_sided: u64,
    two_sided: u64,
}

/// Records by index, reused.
#[derive(Debug)]
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Slab<T> {
    const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }

    fn insert(&mut self, value: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.slots[at] = Some(value);
                at
            }
            None => {
                self.slots.push(Some(value));
                self.slots.len() - 1
            }
        }
    }

    fn get_mut(&mut self, at: usize) -> Option<&mut T> {
        self.slots.get_mut(at)?.as_mut()
    }

    fn remove(&mut self, at: usize) -> Option<T> {
        let value = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(value)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(i, s)| Some((i, s.as_ref()?)))
    }
}

/// The fabric below one interface.
#[derive(Debug)]
struct Verbs {
    id: ProcessId,
    cq: Cq,
    srq: Srq,
    send_pool: BufferPool,
    /// By rank; none for the own one.
    peers: Vec<Option<Peer>>,
    by_qpn: BTreeMap<u32, usize>,
    records: Slab<Record>,
    announced: Slab<Announced>,
    registry: Registry,
    /// Descriptors may have gone since registrations were last looked through.
    prune_due: bool,
    published: Published,
    /// Longest message of the port, bytes.
    max_message: u64,
    counters: Counters,
    /// Receive buffers to be given back to the queue.
    spare: Vec<Buffer>,
    /// Where completions are polled into.
    slots: Vec<Completion>,
    closed: bool,
}

/// Completions taken in one go.
const BATCH: usize = 16;
/// Receive buffers kept back before they are posted again; credits for them are kept back too.
const REPOST_AT: usize = 16;

impl Verbs {
    /// The connection to a process, if it can exist.
    fn peer_of(&self, to: ProcessId) -> Option<usize> {
        let rank = to.nid as usize;
        let peer = self.peers.get(rank)?.as_ref()?;
        (to == peer.id).then_some(rank)
    }

    /// A contiguous copy of `segments`, registered for `purpose`.
    fn stage(
        &self,
        segments: &[portals_core::Segment],
        len: u64,
        purpose: memory::Use,
        fill: bool,
    ) -> Option<Staged> {
        let region = Region::new(usize::try_from(len).ok()?).ok()?;
        if fill {
            let mut data = Vec::new();
            crate::region::LocalCopy::gather(segments, &mut data);
            region.write(0, &data).ok()?;
        }
        let mr = self.registry.of_buffer(&region, purpose).ok()?;
        Some(Staged { mr, region })
    }

    /// Handles up to a batch of completions; returns how many there were.
    fn poll_once(&mut self, ni: &mut Ni) -> usize {
        let mut slots = std::mem::take(&mut self.slots);
        slots.resize(BATCH, Completion::EMPTY);
        let count = match self.cq.poll(&mut slots) {
            Ok(done) => done.len(),
            Err(error) => {
                tracing::error!(%error, "completion queue failed");
                for rank in 0..self.peers.len() {
                    self.fail_peer(ni, rank);
                }
                0
            }
        };
        for completion in &slots[..count] {
            self.handle_completion(ni, completion);
        }
        self.slots = slots;
        if self.spare.len() >= REPOST_AT {
            self.repost();
        }
        count
    }

    /// Gives receive buffers back to the queue.
    fn repost(&mut self) {
        let spare = std::mem::take(&mut self.spare);
        if let Err(error) = self.srq.post_recv(spare) {
            tracing::error!(%error, "receives could not be posted again");
            return;
        }
        for peer in self.peers.iter_mut().flatten() {
            peer.slots_posted();
        }
    }

    fn handle_completion(&mut self, ni: &mut Ni, completion: &Completion) {
        let Some(&rank) = self.by_qpn.get(&completion.qpn()) else {
            return;
        };
        if completion
            .opcode()
            .is_some_and(verbs_backend::Opcode::is_receive)
        {
            if let Some(buffer) = self.srq.take(completion) {
                let len = (completion.length() as usize).min(buffer.len());
                self.handle_frame(ni, rank, &buffer[..len]);
                self.spare.push(buffer);
            }
            return;
        }
        let Some(peer) = self.peers[rank].as_mut() else {
            return;
        };
        let mut id = completion.id();
        if completion.owns_buffer() {
            match peer.qp.take(completion) {
                Some((_buffer, tag)) => id = tag,
                // A failed receive.
                None => {
                    self.spare.extend(self.srq.take(completion));
                    return;
                }
            }
        }
        let failed = !completion.is_ok();
        if failed {
            if let Err(error) = completion.result()
                && !peer.failed
                && !self.closed
            {
                tracing::error!(peer = rank, %error, "connection failed");
            }
            peer.failed = true;
        } else {
            peer.handle_completion(id);
        }
        if id < peer::PLAIN {
            self.piece_done(ni, id as usize, failed);
        }
        if failed {
            self.fail_peer(ni, rank);
        }
    }

    /// One request of a record has completed.
    fn piece_done(&mut self, ni: &mut Ni, index: usize, failed: bool) {
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        record.left = record.left.saturating_sub(1);
        record.failed |= failed;
        if record.left == 0
            && let Some(record) = self.records.remove(index)
        {
            self.finish(ni, record);
        }
    }

    fn finish(&mut self, ni: &mut Ni, record: Record) {
        let fail = if record.failed {
            NiFail::FAIL
        } else {
            NiFail::OK
        };
        match record.work {
            Work::Write { op, ack, .. } => {
                if let Some(op) = op {
                    ni.send_end(op, fail);
                }
                if let Some(ack) = ack.filter(|_| !record.failed) {
                    ni.handle_header(&ack);
                }
            }
            Work::Read { reply, .. } => {
                if let portals_core::Incoming::Deposit(d) = ni.handle_header(&reply) {
                    ni.deposit_end(d.op, fail);
                }
            }
            Work::Fetch {
                op,
                token,
                request,
                staged,
            } => {
                if let Some((staged, segments, len)) = staged.filter(|_| !record.failed) {
                    let mut data = vec![0; len as usize];
                    if staged.region.read(0, &mut data).is_ok() {
                        crate::region::LocalCopy::scatter(&segments, &data);
                    }
                }
                self.fetched(ni, record.peer, token, request, Some(op), fail);
            }
        }
    }

    /// Ends everything that waits for a peer whose connection has failed: sends and one-sided
    /// operations with a failure, announced data as if it had been refused.
    fn fail_peer(&mut self, ni: &mut Ni, rank: usize) {
        if let Some(Some(peer)) = self.peers.get_mut(rank) {
            peer.failed = true;
        }
        let records: Vec<usize> = self
            .records
            .iter()
            .filter(|(_, r)| r.peer == rank)
            .map(|(i, _)| i)
            .collect();
        for index in records {
            if let Some(mut record) = self.records.remove(index) {
                record.failed = true;
                self.finish(ni, record);
            }
        }
        let announced: Vec<usize> = self
            .announced
            .iter()
            .filter(|(_, a)| a.peer == rank)
            .map(|(i, _)| i)
            .collect();
        for token in announced {
            self.source_free(ni, token, NiFail::FAIL);
        }
        self.published.forget_peer(rank);
    }

    /// A peer is done with data of ours.
    fn source_free(&mut self, ni: &mut Ni, token: usize, fail: NiFail) {
        match self.announced.remove(token).map(|a| a.after) {
            Some(After::Send(Some(op))) => ni.send_end(op, fail),
            Some(After::Reply(op)) => ni.reply_end(op, fail),
            Some(After::Send(None)) | None => {}
        }
    }

    fn pump(&mut self) {
        for peer in self.peers.iter_mut().flatten() {
            peer.pump(&self.send_pool);
        }
    }

    /// Makes progress until `done`, for at most `limit`; `false` when the limit came first.
    fn progress_until(
        &mut self,
        ni: &mut Ni,
        limit: std::time::Duration,
        mut done: impl FnMut(&mut Self) -> bool,
    ) -> bool {
        let end = std::time::Instant::now() + limit;
        while !done(self) {
            if !self.progress(ni) {
                if std::time::Instant::now() >= end {
                    return false;
                }
                std::thread::yield_now();
            }
        }
        true
    }
}

/// How long a peer that neither answers nor fails can hold up a withdrawal or the close.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

impl Nal for Verbs {
    fn send(&mut self, ni: &mut Ni, tx: Transmit) {
        self.send_message(ni, tx);
    }

    fn progress(&mut self, ni: &mut Ni) -> bool {
        let mut count = self.poll_once(ni);
        let any = count > 0;
        while count == BATCH {
            count = self.poll_once(ni);
        }
        // Out of the way of an answer to what has just arrived.
        if !any && !self.spare.is_empty() {
            self.repost();
        }
        self.pump();
        any
    }

    fn lists_changed(&mut self, ni: &mut Ni) {
        self.publish(ni);
        if std::mem::take(&mut self.prune_due) {
            self.registry.prune(|md| ni.md_query(md).is_ok());
        }
    }

    fn retire(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.withdraw(ni, md)
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.id {
            return Some(0);
        }
        self.peer_of(to).map(|_| 1)
    }

    /// Waits until what was sent has left, then ends the connections; the memory of every
    /// descriptor is out of peers' reach afterwards.
    fn close(&mut self, ni: &mut Ni) {
        self.closed = true;
        self.progress_until(ni, PATIENCE, |v| {
            v.peers.iter().flatten().all(Peer::is_drained)
        });
        self.by_qpn.clear();
        self.peers.clear();
        self.registry.prune(|_| false);
    }
}

#[cfg(test)]
mod tests;
