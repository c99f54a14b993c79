//! Header messages: arguments, and what else travels with them.
//!
//! A fabric that sends from memory of its own has the message written there at once, so that a payload is copied once; on
//! others it is written into a chunk, which is put.

use super::limits::round8;
use super::message::Message;
use crate::core::Core;
use crate::fault::{Fault, refused};
use crate::matchbits::{AmHdr, Category};
use crate::memory::Source;
use portals_shim::{MdHandle, Posted, Put, Region, RegionError, Target};
use zerocopy::IntoBytes;

/// Bytes that say where a payload lies: offset in the segment, and length.
pub(crate) const PLACE: usize = 16;

impl Message<'_> {
    /// Bytes of the header message of a Long that is packed, or whose payload is placed, or of another message.
    fn header_len(&self, (packed, placed): (bool, bool)) -> usize {
        let args = 4 * self.args.len();
        match self.category {
            Category::Medium => round8(args) + self.source.len(),
            Category::Long if packed => args + 8 + self.source.len(),
            Category::Long if placed => args + PLACE,
            Category::Short | Category::Long => args,
        }
    }
}

/// Where a header message is written.
trait Place {
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault>;
    /// Copies the payload that `core` has at `source`.
    fn copy(&mut self, at: usize, core: &Core, source: &Source) -> Result<(), Fault>;
}

/// A chunk, which is then put: the region that holds it, and where in that it begins.
struct Chunk<'a>(&'a Region, usize);

impl Place for Chunk<'_> {
    #[inline]
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        Ok(self.0.write(self.1 + at, bytes)?)
    }

    #[inline]
    fn copy(&mut self, at: usize, core: &Core, source: &Source) -> Result<(), Fault> {
        core.copy_source(source, self.0, self.1 + at)
    }
}

/// What the fabric sends from.
struct Frame<'a>(&'a mut [u8]);

impl Frame<'_> {
    fn part(&mut self, at: usize, len: usize) -> Result<&mut [u8], RegionError> {
        let size = self.0.len();
        let part = self.0.get_mut(at..at.saturating_add(len));
        part.ok_or(RegionError::OutOfRange {
            offset: at,
            len,
            size,
        })
    }
}

impl Place for Frame<'_> {
    fn write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Fault> {
        self.part(at, bytes.len())?.copy_from_slice(bytes);
        Ok(())
    }

    fn copy(&mut self, at: usize, core: &Core, source: &Source) -> Result<(), Fault> {
        let part = self.part(at, source.len())?;
        match (source, &core.attached) {
            (Source::User(m), _) => m.copy_to_slice(part),
            (Source::Segment { offset, .. }, Some(a)) => a.region.read(*offset, part)?,
            _ => {}
        }
        Ok(())
    }
}

impl Core {
    /// Writes a header message; returns its length without the final pad.
    fn write_header(
        &self,
        to: &mut impl Place,
        m: &Message<'_>,
        (packed, placed): (bool, bool),
    ) -> Result<usize, Fault> {
        let args = m.args.as_bytes();
        if !args.is_empty() {
            to.write(0, args)?;
        }
        let data = match m.category {
            Category::Short => return Ok(args.len()),
            Category::Medium => {
                let data = round8(args.len());
                to.write(args.len(), &[0; 8][..data - args.len()])?;
                data
            }
            Category::Long if packed => {
                to.write(args.len(), &m.dest.0.to_le_bytes())?;
                args.len() + 8
            }
            Category::Long if placed => {
                let place = [m.dest.1, m.source.len() as u64].map(u64::to_le_bytes);
                to.write(args.len(), place.as_flattened())?;
                return Ok(args.len() + PLACE);
            }
            Category::Long => return Ok(args.len()),
        };
        to.copy(data, self, &m.source)?;
        Ok(data + m.source.len())
    }

    /// Sends a header message, `padded` to whole words. The payload is copied once. It goes into the fabric's send buffer if that
    /// has room now, and otherwise into the caller's chunk at `at` of `from`. `true` if the chunk is free.
    #[inline]
    pub(crate) fn put_header(
        &self,
        (md, from): (MdHandle, &Region),
        (at, padded): (u32, bool),
        to: Target,
        hdr: AmHdr,
        (m, form): (&Message<'_>, (bool, bool)),
    ) -> Result<bool, Fault> {
        let whole = |len: usize| if padded { round8(len) } else { len };
        let hdr = hdr.encode();
        let len = m.header_len(form);
        // Of no bytes there is no copy to save.
        if self.packs && len > 0 {
            let put = Put::new(md, to).region(u64::from(at), whole(len) as u64);
            if self.pack_header(put.hdr_data(hdr).silent(), (m, form))? {
                return Ok(true);
            }
        }
        let len = self.write_header(&mut Chunk(from, at as usize), m, form)?;
        let put = Put::new(md, to).region(u64::from(at), whole(len) as u64);
        let posted = self.ni.post_put(put.hdr_data(hdr).silent());
        posted
            .map(Posted::is_taken)
            .map_err(refused("PtlPutRegion of an active message"))
    }

    /// Sends a header message that is written into what the fabric sends from; `false` if that has no place for it now.
    #[inline(never)]
    fn pack_header(
        &self,
        put: Put<'_>,
        (m, form): (&Message<'_>, (bool, bool)),
    ) -> Result<bool, Fault> {
        let mut written = Ok(0);
        let mut fill = |frame: &mut [u8]| {
            // What pads it.
            let end = frame.len().saturating_sub(8);
            frame[end..].fill(0);
            written = self.write_header(&mut Frame(frame), m, form);
        };
        let posted = self.ni.post_put(put.pack(&mut fill));
        written?;
        posted
            .map(Posted::is_taken)
            .map_err(refused("PtlPutRegion of an active message"))
    }
}
