//! Frames between ranks that share memory, past the library: no descriptor, no matching, no event.
//!
//! ```text
//!                 lane of requests  ┌────────────────────────────┐
//!   rank a  ───────────────────────►│ cells of 64 bytes │  bulk  │ ──► rank b
//!           ───────────────────────►└────────────────────────────┘
//!                 lane of replies          and the same from b to a
//!
//!   cell   ready u32 │ length u16 │ tag u16 │ the first 56 bytes; the others are in the bulk area
//! ```
//!
//! A program that has its own idea of messages sends a frame of up to [`FRAME`] bytes by writing it, and finds one by
//! looking at the word of the next cell. Full lanes are the flow control. Both lanes of a pair are of the kind that
//! `ring.rs` describes, so what is said and modelled there holds here.
//!
//! # Invariants
//!
//! * A lane has one writer and one reader, and frames of a lane come in order. Nothing orders frames with messages of
//!   the interface, nor the two lanes with each other.
//! * A frame is published when it is complete; whoever dies leaves no half of one, and nobody waits for the dead.
//! * Where the rest of a frame lies in the bulk area follows from the lengths of the frames before it, on both sides
//!   by the same rule ([`place`]): a length that lies moves nothing but the liar's own bytes. Length and tag are copied
//!   once, and the copy is checked; bytes are copied when they are asked for ([`Link::read`]), so whoever asks once
//!   has a copy that nobody changes. Cells that make no sense end the job.
//! * A reader looks only at lanes of ranks that have ever sent it a frame ([`Near::callers`]), and a pair that sends
//!   none touches no memory.
//! * A rank sends frames only to one that takes them and to which it has offered the same, so an answer can always go
//!   the way of its question.
//! * A frame wakes its reader, and room wakes a writer that asked for it, as cells of the fabric do ([`Bell`]): whoever
//!   sleeps looks at its lanes after arming ([`Interface::eq_take_or`](crate::Interface::eq_take_or)).

use super::alarm::Lines;
use super::attach::{self, CopyError, There, Way};
use super::bulk::{give_back, given_back, place};
use super::fault::OnFault;
use super::layout::{Block, LANES, LaneAt, Layout, State};
use super::map::{Line as Cell, Map};
use super::members::Members;
use super::ring::{
    Bell, Corrupt, Order, Producer, SharedConsumer, SharedProducer, is_possible, is_spoiled,
    is_written,
};
use super::{is_dead, nap};
use fabric_api::region::RawMemory;
use portals_core::{Memory, ProcessId, Segment};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The most bytes of a frame: a page, and a head of 16 bytes.
pub const FRAME: usize = 4096 + 16;
/// Bytes of a frame that its cell has.
const INLINE: usize = 56;
const INLINE_AT: usize = 8;
/// Cells that a sender asks for before it writes them: the reader had each of them last, and getting it back takes as
/// long as several frames.
const AHEAD: u32 = 8;
/// Cells that a reader asks for before it looks at them; fewer, so that it does not take them from their writer.
const BEHIND: u32 = 4;
/// The most bytes of a frame in the bulk area.
const REST: usize = FRAME - INLINE;

/// Which of the two lanes of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Of messages that may be answered.
    Requests,
    /// Of answers.
    Replies,
}

impl Lane {
    const ALL: [Self; LANES] = [Self::Requests, Self::Replies];

    const fn index(self) -> usize {
        match self {
            Self::Requests => 0,
            Self::Replies => 1,
        }
    }
}

/// The ranks that share memory with this one, as far as frames are concerned; see
/// `Interface::near`.
#[derive(Debug)]
pub struct Near {
    map: Arc<Map>,
    layout: Layout,
    rank: usize,
    own: Block,
    members: Members,
    /// User and job.
    who: (u32, u32),
    on_fault: OnFault,
    orders: bool,
    lines: Lines,
    /// Who says in its own file that it sends frames to this rank.
    calling: Arc<[AtomicU64]>,
}

impl Near {
    pub(super) fn new(
        (map, calling): (Arc<Map>, Arc<[AtomicU64]>),
        layout: Layout,
        rank: usize,
        members: Members,
        who: (u32, u32),
        on_fault: OnFault,
        (orders, lines): (bool, Lines),
    ) -> Self {
        Self {
            map,
            layout,
            rank,
            own: layout.block(rank),
            members,
            who,
            on_fault,
            orders,
            lines,
            calling,
        }
    }

    /// Ranks that share the memory, this one included. They are numbered from 0.
    pub fn len(&self) -> usize {
        self.members.ids().len()
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of another rank; `None` if it does not share the memory.
    pub fn number(&self, id: ProcessId) -> Option<usize> {
        self.members.find(id).filter(|rank| *rank != self.rank)
    }

    /// This rank takes frames of that one. To be said before all ranks meet, and [`Near::link`] to be asked afterwards.
    pub fn offer(&self, number: usize) {
        if number < self.len() {
            let word = self.own.offers(&self.map, number / 64);
            word.fetch_or(1 << (number % 64), Ordering::Release);
        }
    }

    fn offered(&self, by: usize, to: usize) -> bool {
        let word = self.layout.block(by).offers(&self.map, to / 64);
        word.load(Ordering::Acquire) & (1 << (to % 64)) != 0
    }

    /// The lanes to and from another rank, where both have [offered](Near::offer). To be taken once for each: a second
    /// one would begin at the first cell again.
    pub fn link(&self, number: usize) -> Option<Link> {
        let other = number < self.len() && number != self.rank;
        if !other || !self.offered(self.rank, number) || !self.offered(number, self.rank) {
            return None;
        }
        let block = self.layout.block(number);
        let who = block.identity(&self.map);
        let own_process = self.own.identity(&self.map).process;
        if (who.uid, who.jid) != self.who {
            return None;
        }
        // The peer orders those that have registered, and this rank has.
        let order = if self.orders && block.orders(&self.map) {
            Order::Sleeper
        } else {
            Order::Both
        };
        let (own, layout) = (self.rank, &self.layout);
        Some(Link {
            map: Arc::clone(&self.map),
            own,
            on_fault: self.on_fault,
            own_block: self.own,
            block,
            pid: who.process.number(own_process),
            order,
            out: Lane::ALL.map(|l| Out::new(layout.lane(own, number, l.index()))),
            incoming: Lane::ALL.map(|l| In::new(layout.lane(number, own, l.index()))),
            met: AtomicBool::new(false),
            number,
            lines: self.lines.clone(),
            bad: AtomicU64::new(0),
            there: None,
            refused: AtomicBool::new(false),
        })
    }

    /// Words of [`Near::callers`].
    pub fn words(&self) -> usize {
        self.len().div_ceil(64)
    }

    /// The numbers from 64 `word` on of ranks that have sent a frame to this one, a bit each.
    #[inline]
    pub fn callers(&self, word: usize) -> u64 {
        let said = self.own.callers(&self.map, word).load(Ordering::Acquire);
        let calling = self.calling.get(word);
        said | calling.map_or(0, |c| c.load(Ordering::Relaxed))
    }
}

/// The sending end of a lane.
#[derive(Debug)]
struct Out {
    lane: LaneAt,
    cells: SharedProducer,
    /// Of the bulk area: the next position, and how far the reader is.
    next: AtomicU32,
    freed: AtomicU32,
}

impl Out {
    fn new(lane: LaneAt) -> Self {
        Self {
            lane,
            cells: SharedProducer::new(lane.cells()),
            next: AtomicU32::new(0),
            freed: AtomicU32::new(0),
        }
    }

    /// Learns how far the reader is. What it cannot mean is an error.
    #[cold]
    fn look(&self, map: &Map) -> Result<(), Corrupt> {
        let mut cells = self.cells.get();
        cells.look(&self.lane.words(map))?;
        self.cells.set(&cells);
        let (next, freed) = (&self.next, &self.freed);
        let (next, before) = (next.load(Ordering::Relaxed), freed.load(Ordering::Relaxed));
        let now = given_back(self.lane.freed(map), before, next)?;
        freed.store(now, Ordering::Relaxed);
        Ok(())
    }

    /// Where `rest` bytes go in the bulk area, and the position after them, if they fit.
    #[inline]
    fn bulk(&self, rest: usize) -> Option<(u32, u32)> {
        let next = self.next.load(Ordering::Relaxed);
        if rest == 0 {
            return Some((0, next));
        }
        let (at, after) = place(next, rest as u32, self.lane.bulk());
        let fits = after.wrapping_sub(self.freed.load(Ordering::Relaxed)) <= self.lane.bulk();
        fits.then_some((at, after))
    }

    /// The cell for a frame of `len` bytes, and where its rest goes, as far as the reader was when it was last looked at.
    #[inline]
    fn room(&self, len: usize) -> Option<(u32, (u32, u32))> {
        let rest = len.saturating_sub(INLINE);
        self.cells.get().room().zip(self.bulk(rest))
    }
}

/// The receiving end of a lane.
#[derive(Debug)]
struct In {
    lane: LaneAt,
    cells: SharedConsumer,
    /// Position in the bulk area.
    next: AtomicU32,
}

impl In {
    fn new(lane: LaneAt) -> Self {
        Self {
            lane,
            cells: SharedConsumer::new(lane.cells()),
            next: AtomicU32::new(0),
        }
    }
}

/// A frame that has been found, until it is [released](Link::release).
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    tag: u16,
    len: usize,
    lane: Lane,
    /// The line that is its cell.
    cell: usize,
    /// In the shared memory, the bytes that are not in the cell.
    rest_at: usize,
    /// Position of the bulk area after it.
    after: u32,
}

impl Frame {
    /// The sender's.
    #[inline]
    pub fn tag(&self) -> u16 {
        self.tag
    }

    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The lanes between this rank and another one.
///
/// Each lane is used by one thread at a time in each direction, which is the caller's to see to: two at once spoil
/// each other's frames, and nothing else. [`Link::is_ready`] and [`Link::is_gone`] are for any thread.
#[derive(Debug)]
pub struct Link {
    map: Arc<Map>,
    own: usize,
    on_fault: OnFault,
    own_block: Block,
    block: Block,
    pid: Option<i32>,
    /// How the peer's sleeps are ordered with what this rank writes.
    order: Order,
    out: [Out; LANES],
    incoming: [In; LANES],
    /// The peer knows that this rank sends frames.
    met: AtomicBool,
    /// Its number, and how it is woken.
    number: usize,
    lines: Lines,
    /// Cells of it that made no sense.
    bad: AtomicU64,
    /// Its memory, if the kernel copies from it, and whether the kernel has refused to since.
    there: Option<There>,
    refused: AtomicBool,
}

/// A peer's memory could not be read into that of this process; what of the destination has been written is not known.
#[derive(Debug, thiserror::Error)]
#[error("what the peer has cannot be read: {0}")]
pub struct Unfetched(#[source] CopyError);

impl Link {
    /// Sends a frame: `head`, and `body` behind it. `false`, and nothing has happened: there is no room for it, or it
    /// is longer than [`FRAME`].
    #[inline]
    pub fn try_send(&self, lane: Lane, tag: u16, head: &[u8], body: &[u8]) -> bool {
        let len = head.len() + body.len();
        let out = &self.out[lane.index()];
        let map = &*self.map;
        if len > FRAME {
            return false;
        }
        let Some((index, (at, after))) = self.room(out, len) else {
            return false;
        };
        let cell = map.line(out.lane.cell(index));
        if len <= INLINE {
            write(cell, INLINE_AT, head);
            write(cell, INLINE_AT + head.len(), body);
        } else {
            write_long(map, (cell, out.lane.bulk_at(at)), head, body);
            out.next.store(after, Ordering::Relaxed);
        }
        let said = len as u32 | u32::from(tag) << 16;
        cell.word(1).store(said, Ordering::Relaxed);
        let mut cells = out.cells.get();
        cells.publish_in(cell.word(0));
        out.cells.set(&cells);
        if let Some(later) = cells.room_after(AHEAD) {
            map.prepare_write(out.lane.cell(later));
        }
        self.call();
        true
    }

    /// Room for a frame ([`Out::room`]), by the peer's words of now if there seemed to be none.
    #[inline]
    fn room(&self, out: &Out, len: usize) -> Option<(u32, (u32, u32))> {
        out.room(len).or_else(|| {
            if let Err(error) = out.look(&self.map) {
                let what = format_args!("has written a word that makes no sense ({error})");
                self.bad(&what);
            }
            out.room(len)
        })
    }

    /// Whether a frame of `len` bytes would find room.
    #[inline]
    pub fn has_room(&self, lane: Lane, len: usize) -> bool {
        self.room(&self.out[lane.index()], len).is_some()
    }

    /// Whether there is room for a frame; where there is none, the peer wakes this rank when it has made some. To be called after
    /// [`Link::has_room`] said no, before every sleep.
    pub fn waits_for_room(&self, lane: Lane, len: usize) -> bool {
        let out = &self.out[lane.index()];
        Producer::starve(&out.lane.words(&self.map));
        !self.has_room(lane, len)
    }

    /// Whether there is a frame.
    #[inline]
    pub fn is_ready(&self, lane: Lane) -> bool {
        let from = &self.incoming[lane.index()];
        let next = from.cells.position();
        let cell = self.map.line(from.lane.cell(next));
        is_written(cell.word(0), next)
    }

    /// The next frame, to be [released](Link::release) before the next one is taken.
    #[inline]
    pub fn take(&self, lane: Lane) -> Option<Frame> {
        let from = &self.incoming[lane.index()];
        let map = &*self.map;
        // A writer that goes on writing nonsense keeps nobody here.
        for _ in 0..from.lane.cells() {
            let position = from.cells.position();
            let cell = from.lane.cell(position);
            let line = map.line(cell);
            if !is_written(line.word(0), position) {
                return None;
            }
            let said = line.word(1).load(Ordering::Relaxed);
            let (len, tag) = ((said & 0xffff) as usize, (said >> 16) as u16);
            if len > FRAME {
                from.cells.release();
                self.bad(&format_args!(
                    "has written a frame of {len} bytes; {FRAME} are the most"
                ));
                continue;
            }
            map.prepare_read(from.lane.cell(position.wrapping_add(BEHIND)));
            let next = from.next.load(Ordering::Relaxed);
            let (rest_at, after) = match len.saturating_sub(INLINE) {
                0 => (0, next),
                rest => place(next, rest as u32, from.lane.bulk()),
            };
            return Some(Frame {
                tag,
                len,
                lane,
                cell,
                rest_at: from.lane.bulk_at(rest_at),
                after,
            });
        }
        None
    }

    /// Copies bytes of a frame out, from its byte `at` on. `false`, and nothing is copied, if it has not so many. To be
    /// called before the frame is released, and once for each byte: what a peer changes meanwhile may differ.
    #[inline]
    pub fn read(&self, frame: &Frame, at: usize, out: &mut [u8]) -> bool {
        let end = at.checked_add(out.len());
        if end.is_none_or(|end| end > frame.len) {
            return false;
        }
        let here = INLINE.saturating_sub(at).min(out.len());
        let (first, rest) = out.split_at_mut(here);
        if !first.is_empty() {
            self.map.line(frame.cell).read(INLINE_AT + at, first);
        }
        if !rest.is_empty() {
            // Within the bulk area: `place` put `len - INLINE` bytes there.
            let from = (at + here).saturating_sub(INLINE);
            self.map.read(frame.rest_at + from, rest);
        }
        true
    }

    /// The frame that was taken last is no longer needed.
    #[inline]
    pub fn release(&self, frame: &Frame) {
        let from = &self.incoming[frame.lane.index()];
        from.cells.release();
        from.next.store(frame.after, Ordering::Relaxed);
    }

    /// After some frames have been released, or with `idle` after none was there: the sender learns of its room.
    #[inline]
    pub fn tell(&self, lane: Lane, idle: bool) {
        let from = &self.incoming[lane.index()];
        if !from.cells.is_told() {
            self.tell_room(from, idle);
        }
    }

    fn tell_room(&self, from: &In, idle: bool) {
        let mut cells = from.cells.get();
        let map = &*self.map;
        let next = from.next.load(Ordering::Relaxed);
        give_back(from.lane.freed(map), next);
        let due = cells.tell(&from.lane.words(map), idle, self.order);
        from.cells.set(&cells);
        if due {
            self.ring();
        }
    }

    /// Whether the peer is proven to have died, or has closed its interface. Makes system calls.
    #[cold]
    pub fn is_gone(&self) -> bool {
        for from in &self.incoming {
            let ready = |position| {
                let ready = self.map.line(from.lane.cell(position)).word(0);
                is_possible(ready, position, from.lane.cells())
            };
            if is_spoiled(|| from.cells.position(), ready) {
                self.bad(&"has spoiled a frame that it had not finished");
            }
        }
        self.block.state(&self.map) == State::Closed || is_dead(self.pid)
    }

    /// Cells of the peer that made no sense, and were dropped.
    #[inline]
    pub fn dropped(&self) -> u64 {
        self.bad.load(Ordering::Relaxed)
    }

    #[cold]
    fn bad(&self, what: &dyn std::fmt::Display) {
        let first = self.bad.fetch_add(1, Ordering::Relaxed) == 0;
        self.on_fault.found((self.own, self.number), what, first);
    }

    /// The same lanes to a process whose memory the kernel copies from.
    pub(super) fn reading(self, there: Option<There>) -> Self {
        Self { there, ..self }
    }

    /// Whether [`Link::fetch`] may succeed: the kernel copies from the peer's memory, and has not refused it yet.
    #[inline]
    pub fn fetches(&self) -> bool {
        self.there.is_some() && !self.refused.load(Ordering::Relaxed)
    }

    /// Has the kernel copy what the peer has at an address of its own, as many bytes as `into` has. To be called for an address that
    /// the peer has told: any other may mean memory of another purpose, or none. A peer that has closed its interface meanwhile may have
    /// given its memory another purpose, and then this fails.
    ///
    /// # Errors
    /// The kernel refuses it, the peer's process is another one, the peer has closed its interface, or one of the two does not have the
    /// memory.
    pub fn fetch(&self, addr: u64, into: RawMemory) -> Result<(), Unfetched> {
        let read = self.read_memory(addr, &into.into_memory());
        if matches!(&read, Err(CopyError::Refused(_) | CopyError::Stranger(_))) {
            self.refused.store(true, Ordering::Relaxed);
        }
        read.map_err(Unfetched)
    }

    fn read_memory(&self, addr: u64, into: &Memory) -> Result<(), CopyError> {
        let there = self.there.as_ref().filter(|_| self.fetches());
        let unsupported = || CopyError::Refused(std::io::ErrorKind::Unsupported.into());
        let there = there.ok_or_else(unsupported)?;
        let local = match into {
            Memory::Contiguous(piece) => std::slice::from_ref(piece),
            Memory::Iovec { segments, .. } => segments,
        };
        let len = local.iter().map(|piece| piece.len).sum();
        attach::copy(Way::Read, there, local, &[Segment { addr, len }], len)?;
        match self.block.state(&self.map) {
            State::Closed => Err(CopyError::Closed),
            _ => Ok(()),
        }
    }

    /// A frame was published: makes sure that the peer looks.
    #[inline]
    fn call(&self) {
        if !self.met.load(Ordering::Relaxed) {
            self.meet();
        }
        self.ring();
    }

    #[cold]
    fn meet(&self) {
        self.met.store(true, Ordering::Relaxed);
        let calls = self.own_block.calls(&self.map, self.number / 64);
        calls.fetch_or(1 << (self.number % 64), Ordering::Release);
        let word = self.block.callers(&self.map, self.own / 64);
        word.fetch_or(1 << (self.own % 64), Ordering::SeqCst);
    }

    #[inline]
    fn ring(&self) {
        if Bell::is_due(self.block.bell(&self.map), self.order) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if !self.lines.ring(self.number) {
            nap::wake(self.block.bell(&self.map));
        }
    }
}

/// Copies bytes into a cell, if there are any.
#[inline]
fn write(cell: Cell<'_>, at: usize, bytes: &[u8]) {
    if !bytes.is_empty() {
        cell.write(at, bytes);
    }
}

/// Copies what does not fit a cell, into the cell and the bulk area from a place there on.
#[inline(never)]
fn write_long(map: &Map, (cell, bulk): (Cell<'_>, usize), head: &[u8], body: &[u8]) {
    let (first, rest) = head.split_at(head.len().min(INLINE));
    let (more, last) = body.split_at((INLINE - first.len()).min(body.len()));
    write(cell, INLINE_AT, first);
    write(cell, INLINE_AT + first.len(), more);
    map.write(bulk, rest);
    map.write(bulk + rest.len(), last);
}

/// The most bytes that a frame has in its bulk area fit the smallest one twice, so that a whole frame finds room
/// however the area is divided.
const _: () =
    assert!(2 * REST.next_multiple_of(64) <= Layout::new(65).lane(0, 0, 0).bulk() as usize);

#[cfg(test)]
mod tests;
