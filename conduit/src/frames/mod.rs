//! Active messages between ranks that share memory: frames, and nothing of the interface.
//!
//! ```text
//!   request ─► frame in the lane of requests ─► poll ─► handler ─► frame in the lane of replies ─► poll ─► handler
//!
//!   frame   tag: category (2 bits) │ arguments (5) │ handler (8)
//!           Short:  arguments
//!           Medium: arguments │ payload
//!           Long:   arguments │ offset in the target's segment, length: 8 bytes each; the payload has been copied there
//! ```
//!
//! Which ranks these are the interface says ([`portals_shim::Near`]); the conduit knows no fabric. Between two of them
//! every active message goes this way. Puts and gets of theirs are copies (`rma/copy.rs`). All else, system messages,
//! barriers, exits, goes through the interface as between any two ranks.
//!
//! # Invariants
//!
//! 1. **A reply never waits.** A rank takes a request out of its lane only when the lane of replies to the requester
//!    has room for the largest reply. Nobody else writes to that lane, and the rank does so in the request's handler only.
//! 2. **A request that finds no room polls**, requests and replies, until it does. A request is never sent in a
//!    handler, so whoever waits for room takes what comes.
//! 3. **No deadlock.** A handler of a reply sends nothing, so every poll, of whatever scope, empties the lanes of
//!    replies to this rank. So lanes of replies to ranks that poll get room, and by (1) these ranks take requests.
//!    So lanes of requests get room, and by (2) whoever waits for it goes on. A rank that does not poll holds up
//!    nobody but those who wait for room towards it, or for its answer.
//! 4. A handler that does not reply needs no reply: there is nothing to give back.
//! 5. A pair uses frames for all its active messages or for none. Each offers that before all ranks meet in `attach`,
//!    if it reaches the other's segment by a copy, and the two look whether both did after they have met.
//! 6. Frames are not events: neither tickets, chunks nor credits are taken. What ranks without shared memory send one
//!    another is counted as it was.
//! 7. What a frame says is checked when its bytes have been copied, and before anything is done with them. A frame that
//!    breaks a rule ends the job, as a message of the interface does.

mod receive;
mod send;
mod tag;
mod turn;

#[cfg(test)]
mod explore;

use crate::core::Core;
use portals_shim::{Link, Near, ProcessId, Region};
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
pub(crate) use tag::{Tag, place};
use turn::Turn;

/// Frames handled, or sent, before events of the interface are looked at too, which takes longer than a frame does.
const FRAMES: u32 = 16;

/// What a rank counts of its frames to and from another; written by one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    #[inline]
    fn add(&self) {
        let count = self.0.load(Ordering::Relaxed);
        self.0.store(count + 1, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A rank that shares memory with this one.
#[derive(Debug)]
pub(crate) struct Neighbour {
    node: u32,
    link: Link,
    /// Its segment, and where that begins in the region; none if it is empty.
    window: Option<(Region, usize)>,
    /// Held by whoever sends a request, where several threads do.
    turn: Turn,
    requests_sent: Count,
    replies_sent: Count,
    requests_taken: Count,
    replies_taken: Count,
    /// Requests that had to wait for room.
    waited: Count,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Neighbours {
    near: Near,
    /// Words of the set of those that have sent frames.
    words: usize,
    /// By their numbers in the memory.
    links: Vec<Option<Box<Neighbour>>>,
    /// The lowest rank of them, and the number of each from there on; none has [`NONE`].
    first: u32,
    numbers: Vec<u16>,
    /// Sent or handled since the interface was last looked at.
    frames: AtomicU32,
}

/// The number of a rank that is no neighbour.
const NONE: u16 = u16::MAX;

impl Neighbours {
    /// Those of `peers` that have offered the same, after all ranks have met.
    pub(crate) fn new(near: Near, core: &Core) -> Self {
        let mut links: Vec<Option<Box<Neighbour>>> = Vec::new();
        links.resize_with(near.len(), || None);
        let mut nodes = Vec::new();
        for (node, peer) in core.ranks.iter() {
            let Some(number) = number_of(&near, peer) else {
                continue;
            };
            let Some((link, slot)) = near.link(number).zip(links.get_mut(number)) else {
                continue;
            };
            let attached = core.attached.as_ref();
            *slot = Some(Box::new(Neighbour {
                node,
                link,
                window: attached.and_then(|a| a.near.get(node as usize).cloned().flatten()),
                turn: Turn::default(),
                requests_sent: Count::default(),
                replies_sent: Count::default(),
                requests_taken: Count::default(),
                replies_taken: Count::default(),
                waited: Count::default(),
            }));
            nodes.push((node, number as u16));
        }
        let first = nodes.first().map_or(0, |(node, _)| *node);
        let many = nodes.last().map_or(0, |(node, _)| node - first + 1);
        let mut numbers = vec![NONE; many as usize];
        for (node, number) in nodes {
            if let Some(slot) = numbers.get_mut((node - first) as usize) {
                *slot = number;
            }
        }
        Self {
            words: near.words(),
            near,
            links,
            first,
            numbers,
            frames: AtomicU32::new(0),
        }
    }

    /// The neighbour that is rank `node`.
    #[inline]
    pub(crate) fn find(&self, node: u32) -> Option<&Neighbour> {
        let number = self.numbers.get(node.wrapping_sub(self.first) as usize)?;
        self.links.get(usize::from(*number))?.as_deref()
    }

    /// Those that have sent frames to this rank.
    #[inline]
    fn callers(&self) -> Callers<'_> {
        Callers {
            all: self,
            words: 0..self.words,
            left: 0,
            links: &[],
        }
    }

    /// Counts a frame, or a poll that found some; whether the interface is to be looked at.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let frames = self.frames.load(Ordering::Relaxed) + 1;
        let due = frames >= FRAMES;
        self.frames
            .store(if due { 0 } else { frames }, Ordering::Relaxed);
        due
    }

    /// For the statistics file.
    pub(crate) fn report(&self) -> impl fmt::Display + '_ {
        Report(self)
    }
}

/// Says which ranks this one takes frames of, before all ranks meet.
pub(crate) fn offer(core: &Core) -> Option<Near> {
    if !core.env.near {
        return None;
    }
    let near = core.ni.near()?;
    let attached = core.attached.as_ref()?;
    for (node, peer) in core.ranks.iter() {
        let node = node as usize;
        let mapped = attached.near.get(node).is_some_and(Option::is_some);
        let empty = attached.segments.get(node).is_some_and(|s| s.size == 0);
        if let Some(number) = number_of(&near, peer).filter(|_| mapped || empty) {
            near.offer(number);
        }
    }
    Some(near)
}

fn number_of(near: &Near, peer: ProcessId) -> Option<usize> {
    near.number(peer).filter(|n| *n < usize::from(NONE))
}

/// See [`Neighbours::callers`].
struct Callers<'a> {
    all: &'a Neighbours,
    /// Words of the set that are still to be looked at.
    words: std::ops::Range<usize>,
    /// What is left of one, and the neighbours from its first on.
    left: u64,
    links: &'a [Option<Box<Neighbour>>],
}

impl<'a> Iterator for Callers<'a> {
    type Item = &'a Neighbour;

    #[inline]
    fn next(&mut self) -> Option<&'a Neighbour> {
        loop {
            while self.left != 0 {
                let bit = self.left.trailing_zeros() as usize;
                self.left &= self.left - 1;
                if let Some(Some(caller)) = self.links.get(bit) {
                    return Some(caller);
                }
            }
            let word = self.words.next()?;
            self.left = self.all.near.callers(word);
            self.links = self.all.links.get(word * 64..).unwrap_or_default();
        }
    }
}

struct Report<'a>(&'a Neighbours);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "# frames, without credits: peer requests-sent waited replies-sent requests-taken replies-taken dropped"
        )?;
        for n in self.0.links.iter().flatten() {
            writeln!(
                f,
                "frames {} {} {} {} {} {} {}",
                n.node,
                n.requests_sent.get(),
                n.waited.get(),
                n.replies_sent.get(),
                n.requests_taken.get(),
                n.replies_taken.get(),
                n.link.dropped()
            )?;
        }
        Ok(())
    }
}
