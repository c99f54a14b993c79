//! What a peer advertises.

use crate::frame::RemoteMd;

/// What a peer advertises, by portal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Adverts(Vec<Vec<RemoteMd>>);

impl Adverts {
    #[inline]
    pub(crate) fn of(&self, portal: u32) -> &[RemoteMd] {
        self.0.get(portal as usize).map_or(&[], Vec::as_slice)
    }

    /// Replaces what was known of a portal, which the frame's reader has found to exist.
    pub(crate) fn set(&mut self, portal: u32, list: Vec<RemoteMd>) {
        let at = portal as usize;
        if self.0.len() <= at {
            self.0.resize_with(at + 1, Vec::new);
        }
        self.0[at] = list;
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}
