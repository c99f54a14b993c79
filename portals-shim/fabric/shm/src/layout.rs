//! Where everything is in the memory of a job, and who writes it.
//!
//! ```text
//!  common     header: magic, version, ranks, cells, bulk                                     the rank that makes it
//!             bell of r │ who writes to r, who sends it frames, for each r                   anybody
//!             starved a→b, for each ordered pair                                             a and b
//!  file of r  block: adverts │ who it is │ to whom it writes │ busy[0..n]                     r alone
//!             consumed a→r, freed a→r, for each a
//!             ring r→b: cells │ bulk, for each b
//!             lanes r→b: cells │ bulk areas of two lanes of frames, for each b
//! ```
//!
//! Each file is written by the rank whose it is; others map it for reading only. In the common one stands nothing but what
//! makes somebody look sooner: whoever writes nonsense there makes others look in vain, or later.
//!
//! A page that nobody touches takes no memory: the rings of two ranks that never talk cost nothing.

use super::map::{LINE, Map};
use super::ring::Words;
use host::life::Process;
use host::processors::{self, Processors};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first bytes; "portolan" in ASCII.
const MAGIC: u64 = 0x6e61_6c6f_7472_6f70;
/// Of this layout and of the formats in the rings.
pub const VERSION: u32 = 8;
/// The most ranks of one job.
pub(super) const MOST_RANKS: u32 = 1024;

const PAGE: usize = 4096;
/// Bytes of a cell: its `ready` word, a prefix, a header, and what fits of the data.
pub(super) const CELL: usize = 256;
/// The most adverts of one rank; descriptors beyond that are served by their owner.
pub(super) const ADVERTS: usize = 64;
/// 64-bit words of an advert.
pub(super) const ADVERT_WORDS: usize = 12;

const CONTACTS_AT: usize = 3 * LINE;
const CALLERS_AT: usize = 6 * LINE;
const OFFERS_AT: usize = 8 * LINE;
const PROCESSORS_AT: usize = 10 * LINE;
const ADVERTS_AT: usize = 1024;
const BUSY_AT: usize = ADVERTS_AT + ADVERTS * ADVERT_WORDS * 8;
const _: () = assert!(CONTACTS_AT + MOST_RANKS as usize / 8 <= CALLERS_AT);
const _: () = assert!(CALLERS_AT + MOST_RANKS as usize / 8 <= OFFERS_AT);
const _: () = assert!(OFFERS_AT + MOST_RANKS as usize / 8 <= PROCESSORS_AT);
const _: () = assert!(PROCESSORS_AT + processors::WORDS * 8 <= ADVERTS_AT);
/// What two processors write stands on lines of its own; two of them, because processors fetch pairs.
const APART: usize = 2 * LINE;
/// What anybody writes for a rank: its bell, and two sets of ranks.
const COMMON_LEN: usize = APART + 2 * MOST_RANKS as usize / 8;
/// What a reader writes for a writer: how far it is in the ring, and in each lane.
const HEADS_LEN: usize = (1 + LANES) * APART;

/// Lanes of frames from one rank to another.
pub(super) const LANES: usize = 2;
/// Bytes of a cell of a lane.
pub(super) const LANE_CELL: usize = LINE;

/// Sizes that follow from the number of ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    ranks: usize,
    /// Cells of a ring.
    pub(super) cells: u32,
    /// Bytes of a ring for data that does not fit its cells, a power of two.
    pub(super) bulk: u32,
    /// Cells of a lane.
    lane_cells: u32,
    /// Bytes of a lane for frames that do not fit its cells, a power of two.
    lane_bulk: u32,
    starved_at: usize,
    common_len: usize,
    /// Within a rank's file.
    heads_at: usize,
    rings_at: usize,
    ring_len: usize,
    lanes_at: usize,
    lanes_len: usize,
    file_len: usize,
}

impl Layout {
    /// For so many ranks, from 1 to [`MOST_RANKS`].
    pub(super) const fn new(ranks: u32) -> Self {
        let (cells, bulk, lane_cells, lane_bulk) = match ranks {
            0..=16 => (64, 128 << 10, 256, 64 << 10),
            17..=64 => (32, 32 << 10, 64, 16 << 10),
            _ => (16, 16 << 10, 16, 8 << 10),
        };
        let ranks = ranks as usize;
        let starved_at = PAGE + ranks * COMMON_LEN;
        let common_len = (starved_at + ranks * ranks * LINE).next_multiple_of(PAGE);
        let heads_at = BUSY_AT + ranks * LINE;
        let rings_at = (heads_at + ranks * HEADS_LEN).next_multiple_of(PAGE);
        let ring = (cells as usize * CELL + bulk as usize).next_multiple_of(PAGE);
        let lane = lane_cells as usize * LANE_CELL + lane_bulk as usize;
        let lanes_at = rings_at + ranks * ring;
        let lanes_len = (LANES * lane).next_multiple_of(PAGE);
        Self {
            ranks,
            cells,
            bulk,
            lane_cells,
            lane_bulk,
            starved_at,
            common_len,
            heads_at,
            rings_at,
            ring_len: ring,
            lanes_at,
            lanes_len,
            file_len: lanes_at + ranks * lanes_len,
        }
    }

    /// Where the common file is, and its bytes.
    pub(super) const fn common(&self) -> (usize, usize) {
        (0, self.common_len)
    }

    /// Where the file of a rank is, and its bytes.
    pub(super) const fn file(&self, rank: usize) -> (usize, usize) {
        (self.common_len + rank * self.file_len, self.file_len)
    }

    /// Bytes of all.
    pub(super) const fn total(&self) -> usize {
        self.common_len + self.ranks * self.file_len
    }

    /// The block of a rank.
    #[inline]
    pub(super) const fn block(&self, rank: usize) -> Block {
        Block {
            at: self.file(rank).0,
            common: PAGE + rank * COMMON_LEN,
        }
    }

    /// What the reader of what `from` sends to `to` writes for it.
    const fn heads(&self, from: usize, to: usize) -> usize {
        self.file(to).0 + self.heads_at + from * HEADS_LEN
    }

    /// The words by which the two of a pair ask for being woken, one for the ring and one for each lane.
    const fn starved(&self, from: usize, to: usize) -> usize {
        self.starved_at + (from * self.ranks + to) * LINE
    }

    /// The ring from one rank to another.
    pub(super) const fn ring(&self, from: usize, to: usize) -> Ring {
        Ring {
            at: self.file(from).0 + self.rings_at + to * self.ring_len,
            consumed: self.heads(from, to),
            starved: self.starved(from, to),
            cells: self.cells,
            bulk: self.bulk,
        }
    }

    /// Lane `lane`, below [`LANES`], from one rank to another. The cells of all lanes come before what few frames need.
    pub(super) const fn lane(&self, from: usize, to: usize, lane: usize) -> LaneAt {
        let at = self.file(from).0 + self.lanes_at + to * self.lanes_len;
        let cells = self.lane_cells as usize * LANE_CELL;
        LaneAt {
            head: self.heads(from, to) + (1 + lane) * APART,
            starved: self.starved(from, to) + 4 * (1 + lane),
            first: (at + lane * cells) / LANE_CELL,
            bulk_at: at + LANES * cells + lane * self.lane_bulk as usize,
            mask: self.lane_cells - 1,
            bulk: self.lane_bulk,
        }
    }

    /// Says in new memory what it is.
    pub(super) fn sign(&self, map: &Map) {
        let words = [
            VERSION,
            self.ranks as u32,
            self.cells,
            CELL as u32,
            self.bulk,
        ];
        for (i, word) in words.into_iter().enumerate() {
            map.word(8 + 4 * i).store(word, Ordering::Relaxed);
        }
        map.long(0).store(MAGIC, Ordering::Release);
    }

    /// Whether the memory says that it is this.
    pub(super) fn is_signed(&self, map: &Map) -> bool {
        let words = [
            VERSION,
            self.ranks as u32,
            self.cells,
            CELL as u32,
            self.bulk,
        ];
        let mut same = map.long(0).load(Ordering::Acquire) == MAGIC;
        for (i, word) in words.into_iter().enumerate() {
            same &= map.word(8 + 4 * i).load(Ordering::Relaxed) == word;
        }
        same
    }
}

/// A rank's block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// In the rank's own file.
    at: usize,
    /// In the common one.
    common: usize,
}

/// What a rank says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) process: Process,
    pub(super) uid: u32,
    pub(super) jid: u32,
    /// The address of the process's random word, which others may read to see whether they can, and whether it is
    /// still that process.
    pub(super) probe: u64,
}

/// The state of a rank's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is there, or will be.
    Open,
    /// It takes nothing any more.
    Closed,
}

impl Block {
    /// What its threads sleep on.
    #[inline]
    pub(super) fn bell(self, map: &Map) -> &AtomicU32 {
        map.word(self.bell_at())
    }

    /// Where the bell is.
    #[inline]
    pub(super) const fn bell_at(self) -> usize {
        self.common
    }

    /// Of its adverts: even, or odd while they change.
    pub(super) fn generation(self, map: &Map) -> &AtomicU64 {
        map.long(self.at + LINE)
    }

    /// How many adverts there are.
    pub(super) fn count(self, map: &Map) -> &AtomicU64 {
        map.long(self.at + LINE + 8)
    }

    /// A word of an advert.
    pub(super) fn advert(self, map: &Map, index: usize, word: usize) -> &AtomicU64 {
        map.long(self.at + ADVERTS_AT + (index * ADVERT_WORDS + word) * 8)
    }

    /// This rank is copying to or from advertised memory of rank `of`.
    pub(super) fn busy(self, map: &Map, of: usize) -> &AtomicU32 {
        map.word(self.at + BUSY_AT + of * LINE)
    }

    /// 64 bits of the set of ranks that write to this one, as others say.
    pub(super) fn contacts(self, map: &Map, word: usize) -> &AtomicU64 {
        map.long(self.common + APART + word * 8)
    }

    /// 64 bits of the set of ranks that send frames to this one, as others say.
    #[inline]
    pub(super) fn callers(self, map: &Map, word: usize) -> &AtomicU64 {
        map.long(self.common + APART + MOST_RANKS as usize / 8 + word * 8)
    }

    /// 64 bits of the set of ranks that this one writes to.
    pub(super) fn writes_to(self, map: &Map, word: usize) -> &AtomicU64 {
        map.long(self.at + CONTACTS_AT + word * 8)
    }

    /// 64 bits of the set of ranks that this one sends frames to.
    pub(super) fn calls(self, map: &Map, word: usize) -> &AtomicU64 {
        map.long(self.at + CALLERS_AT + word * 8)
    }

    /// 64 bits of the set of ranks whose frames this one takes.
    pub(super) fn offers(self, map: &Map, word: usize) -> &AtomicU64 {
        map.long(self.at + OFFERS_AT + word * 8)
    }

    /// Where the rank may run; to be told before it introduces itself.
    pub(super) fn set_processors(self, map: &Map, set: &Processors) {
        for (i, word) in set.0.iter().enumerate() {
            let at = self.at + PROCESSORS_AT + 8 * i;
            map.long(at).store(*word, Ordering::Relaxed);
        }
    }

    pub(super) fn processors(self, map: &Map) -> Processors {
        let word = |i| map.long(self.at + PROCESSORS_AT + 8 * i);
        Processors(std::array::from_fn(|i| word(i).load(Ordering::Relaxed)))
    }

    fn field(self, map: &Map, index: usize) -> &AtomicU32 {
        map.word(self.at + 2 * LINE + 4 * index)
    }

    pub(super) fn introduce(self, map: &Map, who: Identity) {
        let fields = [who.process.pid, who.uid, who.jid];
        for (i, value) in fields.into_iter().enumerate() {
            self.field(map, i).store(value, Ordering::Relaxed);
        }
        let longs = [who.process.namespace, who.process.word];
        for (i, value) in longs.into_iter().enumerate() {
            map.long(self.at + 2 * LINE + 48 + 8 * i)
                .store(value, Ordering::Relaxed);
        }
        map.long(self.at + 2 * LINE + 32)
            .store(who.probe, Ordering::Release);
    }

    /// To be called once for each rank, after all have introduced themselves.
    pub(super) fn identity(self, map: &Map) -> Identity {
        let probe = map.long(self.at + 2 * LINE + 32).load(Ordering::Acquire);
        let field = |i| self.field(map, i).load(Ordering::Relaxed);
        let long = |at| map.long(self.at + 2 * LINE + at).load(Ordering::Relaxed);
        Identity {
            process: Process {
                pid: field(0),
                namespace: long(48),
                word: long(56),
            },
            uid: field(1),
            jid: field(2),
            probe,
        }
    }

    /// The rank can read and write the memory of others.
    pub(super) fn set_attaches(self, map: &Map, can: bool) {
        self.field(map, 3).store(u32::from(can), Ordering::Release);
    }

    pub(super) fn attaches(self, map: &Map) -> bool {
        self.field(map, 3).load(Ordering::Acquire) == 1
    }

    /// Before the rank sleeps it orders all registered processes ([`super::nap::order_all`]).
    pub(super) fn set_orders(self, map: &Map, does: bool) {
        self.field(map, 5).store(u32::from(does), Ordering::Release);
    }

    pub(super) fn orders(self, map: &Map) -> bool {
        self.field(map, 5).load(Ordering::Acquire) == 1
    }

    pub(super) fn set_closed(self, map: &Map) {
        self.field(map, 4).store(1, Ordering::Release);
    }

    pub(super) fn state(self, map: &Map) -> State {
        match self.field(map, 4).load(Ordering::Acquire) {
            0 => State::Open,
            _ => State::Closed,
        }
    }
}

/// A ring.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ring {
    at: usize,
    consumed: usize,
    starved: usize,
    cells: u32,
    bulk: u32,
}

impl Ring {
    /// How many cells there are.
    pub(super) const fn cells(&self) -> u32 {
        self.cells
    }

    /// The most bytes of the bulk area that one cell takes.
    pub(super) const fn part(&self) -> u32 {
        self.bulk / 4
    }

    /// The first byte of a cell.
    #[inline]
    pub(super) const fn cell(&self, index: u32) -> usize {
        self.at + (index & (self.cells - 1)) as usize * CELL
    }

    /// The first line of a cell.
    #[inline]
    pub(super) const fn line(&self, index: u32) -> usize {
        self.cell(index) / LINE
    }

    /// Bytes `offset .. offset + len` of the bulk area, if it has them.
    pub(super) fn bulk(&self, offset: u32, len: u32) -> Option<usize> {
        let end = offset.checked_add(len)?;
        let start = self.at + self.cells as usize * CELL;
        (end <= self.bulk).then_some(start + offset as usize)
    }

    pub(super) const fn words(self, map: &Map) -> RingWords<'_> {
        RingWords { map, ring: self }
    }
}

/// The words of a ring.
#[derive(Debug)]
pub(super) struct RingWords<'a> {
    map: &'a Map,
    ring: Ring,
}

impl Words for RingWords<'_> {
    type Word = AtomicU32;

    #[inline]
    fn ready(&self, index: u32) -> &AtomicU32 {
        self.map.word(self.ring.cell(index))
    }
    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        self.map.word(self.ring.consumed)
    }
    #[inline]
    fn starved(&self) -> &AtomicU32 {
        self.map.word(self.ring.starved)
    }
}

/// A lane of frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneAt {
    head: usize,
    starved: usize,
    /// The line of the first cell.
    first: usize,
    bulk_at: usize,
    /// Cells, a power of two, less one.
    mask: u32,
    bulk: u32,
}

impl LaneAt {
    /// How many cells there are.
    #[inline]
    pub(super) const fn cells(&self) -> u32 {
        self.mask + 1
    }

    /// Bytes of the bulk area.
    #[inline]
    pub(super) const fn bulk(&self) -> u32 {
        self.bulk
    }

    /// The line that is the cell of a position.
    #[inline]
    pub(super) const fn cell(&self, position: u32) -> usize {
        self.first + (position & self.mask) as usize
    }

    /// A place in the bulk area; `offset` is below its size.
    #[inline]
    pub(super) const fn bulk_at(&self, offset: u32) -> usize {
        self.bulk_at + offset as usize
    }

    /// How far in the bulk area the reader is; written before `consumed`.
    #[inline]
    pub(super) fn freed<'a>(&self, map: &'a Map) -> &'a AtomicU32 {
        map.word(self.head + 4)
    }

    #[inline]
    pub(super) const fn words(self, map: &Map) -> LaneWords<'_> {
        LaneWords { map, lane: self }
    }
}

/// The words of a lane.
#[derive(Debug)]
pub(super) struct LaneWords<'a> {
    map: &'a Map,
    lane: LaneAt,
}

impl Words for LaneWords<'_> {
    type Word = AtomicU32;

    #[inline]
    fn ready(&self, index: u32) -> &AtomicU32 {
        self.map.line(self.lane.cell(index)).word(0)
    }
    #[inline]
    fn consumed(&self) -> &AtomicU32 {
        self.map.word(self.lane.head)
    }
    #[inline]
    fn starved(&self) -> &AtomicU32 {
        self.map.word(self.lane.starved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_overlaps() {
        for ranks in [1, 2, 16, 17, 64, 65, MOST_RANKS] {
            let l = Layout::new(ranks);
            let n = ranks as usize;
            assert!(l.cells.is_power_of_two() && l.bulk.is_power_of_two());
            // The common file.
            assert_eq!(l.block(n).common, l.starved_at);
            assert_eq!(l.starved(n - 1, n), l.starved(n, 0));
            assert!(l.starved(n, 0) <= l.common_len && 4 * (1 + LANES) <= LINE);
            // Files one behind the other, and a rank's.
            assert_eq!(l.file(0).0, l.common_len);
            assert_eq!(l.file(n).0, l.total());
            assert_eq!(l.file(0).1, l.file_len);
            for start in [l.common_len, l.file_len, l.rings_at, l.lanes_at] {
                assert!(start.is_multiple_of(PAGE));
            }
            let last = l.file(n - 1).0;
            assert_eq!(l.block(n - 1).at, last);
            assert!(BUSY_AT + n * LINE <= l.heads_at);
            assert!(l.heads(n, n - 1) <= last + l.rings_at);
            assert_eq!(l.ring(n - 1, n).at, last + l.lanes_at);
            assert_eq!(l.lane(n - 1, n, 0).first * LINE, l.total());
            // What a reader writes is in its own file.
            let own = l.file(n - 1).0..l.file(n - 1).0 + l.rings_at;
            assert!(own.contains(&l.ring(0, n - 1).consumed));
            assert!(own.contains(&(l.lane(0, n - 1, LANES - 1).head + APART - 1)));
            assert_eq!(l.lane(0, 0, 0).head, l.ring(0, 0).consumed + APART);
            assert_eq!(l.lane(0, 0, 1).head, l.ring(0, 0).consumed + 2 * APART);
            // Lanes of a pair.
            let (first, last) = (l.lane(0, 0, 0), l.lane(0, 0, LANES - 1));
            assert_eq!(first.cell(l.lane_cells - 1) + 1, last.first);
            assert_eq!((last.cell(l.lane_cells - 1) + 1) * LINE, first.bulk_at);
            assert_eq!(first.cell(l.lane_cells), first.first);
            assert_eq!(first.bulk_at(0) + l.lane_bulk as usize, last.bulk_at);
            let end = last.bulk_at(0) + l.lane_bulk as usize;
            assert!(end <= first.first * LINE + l.lanes_len);
            let ring = l.ring(0, 0);
            let last = ring.bulk(0, l.bulk).unwrap() + l.bulk as usize;
            assert!(last <= ring.at + l.ring_len);
            assert_eq!(ring.cell(l.cells - 1) + CELL, ring.bulk(0, 1).unwrap());
            assert_eq!(ring.bulk(l.bulk, 1), None);
            assert_eq!(ring.bulk(u32::MAX, 2), None);
        }
    }

    #[test]
    fn a_pair_reserves_what_is_promised() {
        for (ranks, kib) in [(16, 608), (64, 160), (MOST_RANKS, 80)] {
            let l = Layout::new(ranks);
            assert_eq!(2 * (l.ring_len + l.lanes_len), kib << 10, "{ranks}");
        }
    }

    #[test]
    fn memory_of_another_layout_is_recognised() {
        let l = Layout::new(2);
        let fd = host::shared_file::create("test", l.total()).unwrap();
        let map = Map::new(fd, l.total()).unwrap();
        assert!(!l.is_signed(&map));
        l.sign(&map);
        assert!(l.is_signed(&map));
        map.word(8).store(VERSION + 1, Ordering::Relaxed);
        assert!(!l.is_signed(&map));
    }
}
