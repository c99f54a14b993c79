//! Segments that this rank reaches by a copy: its own, and those of ranks that share memory with it.
//!
//! What is here is fixed when the job attaches and needs no lock, no borrow and no operation: the puts
//! and gets of every interface look here first.
// UNSAFETY: copies between a segment and the bare addresses of C callers.
#![expect(
    unsafe_code,
    reason = "copies between a segment and bare addresses of C callers"
)]

use crate::memory::UserMem;
use crate::segment::SegInfo;
use portals_shim::Region;

/// The segment of a rank, as memory of this process.
#[derive(Clone, Debug)]
struct Window {
    segment: SegInfo,
    region: Region,
    /// Where the segment begins in the region.
    start: usize,
}

/// The segments that are memory of this process too, by rank.
#[derive(Clone, Debug, Default)]
pub struct Near {
    windows: Vec<Option<Window>>,
}

impl Near {
    pub(crate) fn new(segments: &[SegInfo], windows: &[Option<(Region, usize)>]) -> Self {
        let window = |(segment, at): (&SegInfo, &Option<(Region, usize)>)| {
            let (region, start) = at.clone()?;
            Some(Window {
                segment: *segment,
                region,
                start,
            })
        };
        Self {
            windows: segments.iter().zip(windows).map(window).collect(),
        }
    }

    /// Where `len` bytes at `addr` of `node` are, if this rank reaches them by a copy.
    #[inline]
    fn at(&self, node: u32, addr: u64, len: usize) -> Option<(&Region, usize)> {
        let w = self.windows.get(node as usize)?.as_ref()?;
        let offset = w.segment.offset_of(addr, len as u64)?;
        Some((&w.region, w.start + offset as usize))
    }

    /// Puts `data`, if it can be done by a copy.
    #[inline]
    pub fn put(&self, node: u32, dest: u64, data: &[u8]) -> bool {
        self.at(node, dest, data.len())
            .is_some_and(|(region, at)| region.write(at, data).is_ok())
    }

    /// Gets `out`, if it can be done by a copy.
    #[inline]
    pub fn get(&self, out: &mut [u8], node: u32, src: u64) -> bool {
        self.at(node, src, out.len())
            .is_some_and(|(region, at)| region.read(at, out).is_ok())
    }

    /// Puts `len` bytes at `offset` of the segment of `own`, if it can be done by a copy.
    #[inline]
    pub(crate) fn put_from(
        &self,
        (own, offset): (u32, usize),
        node: u32,
        dest: u64,
        len: usize,
    ) -> bool {
        let source = self.windows.get(own as usize).and_then(Option::as_ref);
        let (Some(w), Some((region, at))) = (source, self.at(node, dest, len)) else {
            return false;
        };
        let end = offset.checked_add(len);
        end.is_some_and(|end| end as u64 <= w.segment.size)
            && region
                .copy_from(at, &w.region, w.start + offset, len)
                .is_ok()
    }

    /// Puts bytes at an address into a near segment; see [`Near::put`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `src` are readable, or `src` is null, which is refused.
    #[inline]
    pub unsafe fn put_raw(&self, node: u32, dest: u64, src: *const u8, len: usize) -> bool {
        let Some((region, at)) = self.at(node, dest, len).filter(|_| !src.is_null()) else {
            return false;
        };
        // SAFETY: the promise of this function; the memory is not used after it.
        let memory = unsafe { UserMem::new(src.cast_mut(), len, 0) };
        memory.copy_to(region, at).is_ok()
    }

    /// Gets bytes of a near segment to an address; see [`Near::get`].
    ///
    /// # Safety
    ///
    /// `len` bytes at `dest` are writable and not borrowed, or `dest` is null, which is refused.
    #[inline]
    pub unsafe fn get_raw(&self, dest: *mut u8, node: u32, src: u64, len: usize) -> bool {
        let Some((region, at)) = self.at(node, src, len).filter(|_| !dest.is_null()) else {
            return false;
        };
        // SAFETY: the promise of this function; the memory is not used after it.
        let memory = unsafe { UserMem::new(dest, len, 0) };
        memory.copy_from(region, at).is_ok()
    }
}
