//! Fragments that arrive in chunks, and landings of puts.
//!
//! A chunk goes to its place in its fragment's buffer whenever it arrives; the fragment is handed up when all before its last
//! chunk is here. A put needs neither: its segments say where they belong, and go there as they arrive if the landing
//! is open, which the user does when the message that announces the put is handed up. Before that they are kept.

use super::window::KEEP;

/// A fragment of which chunks are missing, or whose turn has not come.
#[derive(Debug)]
struct Partial {
    id: u32,
    data: Vec<u8>,
    /// Bytes of chunks that are here.
    got: u32,
    /// Bytes of chunks whose turn has come.
    passed: u32,
}

/// What became of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chunk {
    /// It is in its place; so many bytes were allocated for its fragment.
    Taken(usize),
    /// At odds with its fragment.
    Bad,
    /// No memory for its fragment at this time.
    Refused,
}

/// A chunk: `data` at `offset` of the fragment `id`, which has `size` bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkOf<'a> {
    pub(super) id: u32,
    pub(super) size: u32,
    pub(super) offset: u32,
    pub(super) data: &'a [u8],
}

/// The unfinished fragments of a peer.
///
/// # Invariants
///
/// * None has the id of another.
/// * Of each, at most `got` bytes are here, of which `passed` are those of chunks in order; neither is more than it has.
/// * A fragment leaves with the chunk that makes `passed` its length.
#[derive(Debug, Default)]
pub(super) struct Partials(Vec<Partial>);

impl Partials {
    /// Copies a chunk to its place. `room` is what may be allocated, `next` says that the chunk is the next in order.
    pub(super) fn take(&mut self, chunk: &ChunkOf<'_>, room: usize, next: bool) -> Chunk {
        let ChunkOf {
            id,
            size,
            offset,
            data,
        } = *chunk;
        let len = data.len() as u32;
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > size) {
            return Chunk::Bad;
        }
        let (at, allocated) = match self.0.iter().rposition(|p| p.id == id) {
            Some(at) => (at, 0),
            None if size as usize > room && !next => return Chunk::Refused,
            None => {
                self.0.push(Partial {
                    id,
                    data: vec![0; size as usize],
                    got: 0,
                    passed: 0,
                });
                (self.0.len() - 1, size as usize)
            }
        };
        let partial = &mut self.0[at];
        if partial.data.len() != size as usize || len > size - partial.got {
            return Chunk::Bad;
        }
        let start = offset as usize;
        partial.data[start..start + data.len()].copy_from_slice(data);
        partial.got += len;
        Chunk::Taken(allocated)
    }

    /// The turn of a chunk has come; the fragment, if it was the last one.
    pub(super) fn pass(&mut self, id: u32, len: u32) -> Option<Vec<u8>> {
        let at = self.0.iter().position(|p| p.id == id)?;
        let partial = &mut self.0[at];
        partial.passed += len;
        let whole = partial.passed as usize >= partial.data.len();
        whole.then(|| self.0.remove(at).data)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes that their fragments have.
    pub(super) fn allocated(&self) -> usize {
        self.0.iter().map(|partial| partial.data.len()).sum()
    }

    /// Bytes behind it, without those.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Partial>()
    }

    pub(super) fn shrink(&mut self) {
        self.0.shrink_to(KEEP);
    }
}

/// Where a put's data goes: bytes of it, and bytes that are missing.
#[derive(Clone, Copy, Debug)]
struct Landing {
    number: u32,
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

/// The landings that are open for a peer.
///
/// # Invariants
///
/// Of each something is missing, and no more than its length; it closes with the last byte.
#[derive(Debug, Default)]
pub(super) struct Landings(Vec<Landing>);

impl Landings {
    /// Opens one for `len` bytes; none is opened for nothing.
    pub(super) fn open(&mut self, number: u32, len: u64) {
        if len > 0 {
            let left = len;
            self.0.push(Landing { number, len, left });
        }
    }

    /// What becomes of `len` bytes at `offset`; a landing that is complete closes.
    pub(super) fn place(&mut self, number: u32, offset: u64, len: u64) -> Place {
        let Some(at) = self.0.iter().rposition(|l| l.number == number) else {
            return Place::Closed;
        };
        let landing = &mut self.0[at];
        let end = offset.checked_add(len);
        if len == 0 || len > landing.left || end.is_none_or(|end| end > landing.len) {
            return Place::Outside;
        }
        landing.left -= len;
        let complete = landing.left == 0;
        if complete {
            self.0.remove(at);
        }
        Place::Here { complete }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes behind it.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<Landing>()
    }

    pub(super) fn shrink(&mut self) {
        self.0.shrink_to(KEEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(id: u32, size: u32, offset: u32, data: &[u8]) -> ChunkOf<'_> {
        ChunkOf {
            id,
            size,
            offset,
            data,
        }
    }

    #[test]
    fn a_fragment_is_whole_when_the_turn_of_all_its_chunks_has_come() {
        let mut partials = Partials::default();
        let take =
            |p: &mut Partials, offset, data: &[u8]| p.take(&chunk(3, 6, offset, data), 6, false);
        assert_eq!(take(&mut partials, 4, b"ef"), Chunk::Taken(6));
        assert_eq!(take(&mut partials, 0, b"abcd"), Chunk::Taken(0));
        assert_eq!(partials.allocated(), 6);
        assert_eq!(partials.pass(3, 4), None);
        assert_eq!(partials.pass(4, 2), None, "nobody knows it");
        assert_eq!(partials.pass(3, 2), Some(b"abcdef".to_vec()));
        assert_eq!((partials.is_empty(), partials.allocated()), (true, 0));
    }

    #[test]
    fn memory_for_a_fragment_is_refused_to_all_but_the_next_chunk() {
        let mut partials = Partials::default();
        assert_eq!(
            partials.take(&chunk(1, 9, 0, &[1]), 8, false),
            Chunk::Refused
        );
        assert_eq!(
            partials.take(&chunk(1, 9, 0, &[1]), 8, true),
            Chunk::Taken(9)
        );
        assert_eq!(
            partials.take(&chunk(1, 9, 1, &[1]), 0, false),
            Chunk::Taken(0)
        );
    }

    #[test]
    fn chunks_at_odds_with_their_fragment_are_bad() {
        let mut partials = Partials::default();
        for bad in [
            chunk(1, 9, 9, &[1]),
            chunk(1, 9, 0, &[]),
            chunk(1, 9, u32::MAX, &[1]),
        ] {
            assert_eq!(partials.take(&bad, 100, true), Chunk::Bad);
        }
        assert!(partials.is_empty(), "no memory for these");
        assert_eq!(
            partials.take(&chunk(1, 9, 0, &[1; 6]), 100, true),
            Chunk::Taken(9)
        );
        assert_eq!(partials.take(&chunk(1, 8, 6, &[1]), 100, true), Chunk::Bad);
        assert_eq!(
            partials.take(&chunk(1, 9, 0, &[1; 4]), 100, true),
            Chunk::Bad,
            "more than it has"
        );
    }

    #[test]
    fn a_landing_closes_with_its_last_byte() {
        let mut landings = Landings::default();
        landings.open(5, 10);
        landings.open(6, 0);
        assert_eq!(landings.place(6, 0, 1), Place::Closed);
        for (offset, len) in [(5, 6), (10, 1), (u64::MAX, 1), (0, 0)] {
            assert_eq!(landings.place(5, offset, len), Place::Outside);
        }
        assert_eq!(landings.place(5, 4, 6), Place::Here { complete: false });
        assert_eq!(
            landings.place(5, 0, 5),
            Place::Outside,
            "4 bytes are missing"
        );
        assert_eq!(landings.place(5, 0, 4), Place::Here { complete: true });
        assert_eq!(landings.place(5, 0, 4), Place::Closed);
        assert!(landings.is_empty());
    }
}
