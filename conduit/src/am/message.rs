//! An active message as a value.

use crate::matchbits::Category;
use crate::memory::Source;

/// One active message, checked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) category: Category,
    pub(crate) handler: u8,
    /// At most [`MAX_ARGS`].
    pub(crate) args: &'a [i32],
    pub(crate) source: Source,
    /// Of a Long: address, and offset in the destination's segment.
    pub(crate) dest: (u64, u64),
}

impl Message<'_> {
    /// The payload of a Long is at its destination.
    pub(super) fn is_placed(&self) -> bool {
        matches!(self.source, Source::Placed { .. })
    }
}
