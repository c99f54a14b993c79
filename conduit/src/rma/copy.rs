//! Load and store: segments that are memory of this process too.

use super::op::Rma;
use crate::core::Core;
use crate::fault::Fault;
use crate::memory::Source;

impl Core {
    /// Makes a put or get by a copy, at offset `at` of a segment that is memory of this process.
    #[inline(always)]
    pub(super) fn copy_near(&self, op: &Rma, at: u64) -> Result<(), Fault> {
        let attached = self.attached.as_ref();
        let found = attached.and_then(|a| Some((a, a.near.get(op.node as usize)?.as_ref()?)));
        let Some((a, (region, start))) = found else {
            return Ok(());
        };
        let at = start + at as usize;
        match (&op.local, op.get) {
            (Source::User(m), true) => Ok(m.copy_from(region, at)?),
            (Source::Segment { offset, len }, true) => {
                Ok(a.region.copy_from(*offset, region, at, *len)?)
            }
            (local, _) => self.copy_source(local, region, at),
        }
    }

    /// Copies a payload to `to`.
    pub(crate) fn copy_source(
        &self,
        source: &Source,
        to: &portals_shim::Region,
        at: usize,
    ) -> Result<(), Fault> {
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
