//! Load and store: segments that are memory of this process too.

use super::op::Rma;
use crate::core::Core;
use crate::fault::Fault;
use crate::memory::Source;
use portals_shim::Region;

impl Core {
    /// The memory of the segment of `node`, and where in it that begins, if it is memory of this process.
    #[inline(always)]
    pub(super) fn near(&self, node: u32) -> Option<(&Region, usize)> {
        let attached = self.attached.as_ref()?;
        let (region, start) = attached.near.get(node as usize)?.as_ref()?;
        Some((region, *start))
    }

    /// Makes a put or get by a copy, at offset `at` of a segment that is memory of this process.
    #[inline(always)]
    pub(super) fn copy_near(&self, op: &Rma, at: u64) -> Result<(), Fault> {
        let (Some((region, start)), Some(own)) = (self.near(op.node), &self.attached) else {
            return Err(no_memory(op.node));
        };
        let at = start + at as usize;
        match (&op.local, op.get) {
            (Source::User(m), true) => Ok(m.copy_from(region, at)?),
            (Source::Segment { offset, len }, true) => {
                Ok(own.region.copy_from(*offset, region, at, *len)?)
            }
            (local, _) => self.copy_source(local, region, at),
        }
    }

    /// Copies a payload to `to`.
    #[inline]
    pub(crate) fn copy_source(&self, source: &Source, to: &Region, at: usize) -> Result<(), Fault> {
        match source {
            Source::Empty | Source::Placed { .. } => {}
            Source::User(m) => m.copy_to(to, at)?,
            Source::Segment { offset, len } => {
                if let Some(a) = &self.attached {
                    to.copy_from(at, &a.region, *offset, *len)?;
                }
            }
        }
        Ok(())
    }
}

/// Nobody chooses a copy for such a segment.
#[cold]
fn no_memory(node: u32) -> Fault {
    Fault::Malformed {
        node,
        what: "a copy of a segment that is no memory of this process",
    }
}
