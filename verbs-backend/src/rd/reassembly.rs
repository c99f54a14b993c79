//! Fragments that arrive in chunks, and landings of puts.
//!
//! A chunk goes to its place in its fragment's buffer whenever it arrives; the fragment is handed up when all before its last
//! chunk is here. A put needs neither: its segments say where they belong, and go there as they arrive if the landing
//! is open, which the user does when the message that announces the put is handed up. Before that they are kept.

use super::{Endpoint, PeerId, Source};

/// A fragment of which chunks are missing, or whose turn has not come.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) id: u32,
    data: Vec<u8>,
    /// Bytes of chunks that are here.
    got: u32,
    /// Bytes of chunks whose turn has come.
    passed: u32,
}

/// Where a put's data goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landing {
    pub(super) number: u32,
    /// Bytes of it, and bytes that are missing.
    len: u64,
    left: u64,
}

/// What becomes of data for a landing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is not open.
    Closed,
    /// The data is not within it.
    Outside,
    /// There is a place; it is complete with that.
    Here { complete: bool },
}

impl Partial {
    /// Bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    Taken,
    /// At odds with its fragment.
    Bad,
    /// No memory for its fragment at this time.
    Refused,
}

impl super::peer::Active {
    /// What becomes of `len` bytes at `offset`; a landing that is complete closes.
    pub(super) fn place(&mut self, number: u32, offset: u64, len: u64) -> Place {
        let Some(at) = self.landings.iter().rposition(|l| l.number == number) else {
            return Place::Closed;
        };
        let landing = &mut self.landings[at];
        let end = offset.checked_add(len);
        if len == 0 || len > landing.left || end.is_none_or(|end| end > landing.len) {
            return Place::Outside;
        }
        landing.left -= len;
        let complete = landing.left == 0;
        if complete {
            self.landings.remove(at);
        }
        Place::Here { complete }
    }

    /// Copies a chunk to its place. `room` is what may be allocated, `next` says that the chunk is the next in order.
    pub(super) fn take_chunk(
        &mut self,
        id: u32,
        size: u32,
        offset: u32,
        data: &[u8],
        room: usize,
        next: bool,
    ) -> Chunk {
        let len = data.len() as u32;
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > size) {
            return Chunk::Bad;
        }
        let at = self.partials.iter().rposition(|p| p.id == id);
        let at = match at {
            Some(at) => at,
            None if size as usize > room && !next => return Chunk::Refused,
            None => {
                self.partials.push(Partial {
                    id,
                    data: vec![0; size as usize],
                    got: 0,
                    passed: 0,
                });
                self.partials.len() - 1
            }
        };
        let partial = &mut self.partials[at];
        if partial.data.len() != size as usize || len > size - partial.got {
            return Chunk::Bad;
        }
        let start = offset as usize;
        partial.data[start..start + data.len()].copy_from_slice(data);
        partial.got += len;
        Chunk::Taken
    }

    /// Whether a fragment is being put together.
    pub(super) fn knows(&self, id: u32) -> bool {
        self.partials.iter().any(|p| p.id == id)
    }

    /// The turn of a chunk has come; the fragment, if it was the last one.
    pub(super) fn pass_chunk(&mut self, id: u32, len: u32) -> Option<Vec<u8>> {
        let at = self.partials.iter().position(|p| p.id == id)?;
        let partial = &mut self.partials[at];
        partial.passed += len;
        let whole = partial.passed as usize >= partial.data.len();
        whole.then(|| self.partials.remove(at).data)
    }
}

impl<S: Source> Endpoint<S> {
    /// Data of `len` bytes that a peer will put under this number is wanted: it is given to the user from here on, in
    /// whatever order it comes, until all of it is here. To be called when the message that announces it has been handed up,
    /// and before the next datagram. Of a landing that is not opened the data is dropped.
    pub fn open(&mut self, peer: PeerId, landing: u32, len: u64) {
        let Some(p) = self.peers.get_mut(peer.index()).filter(|p| !p.dead) else {
            return;
        };
        if len > 0 {
            let active = super::Active::of(&mut p.active, &mut self.spare_active);
            active.landings.push(Landing {
                number: landing,
                len,
                left: len,
            });
        }
    }
}
