//! Frames between endpoints, past the library.

use crate::Shm;
use crate::attach::There;
use crate::near::{Link, Near};
use portals_core::ProcessId;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The peers that share a memory with an endpoint, as far as frames are concerned; see `Interface::links`. Clones are the same, and
/// any thread may call every method.
///
/// An endpoint takes frames of every peer that it is connected with, and whether anybody looks at them is the programs' to agree on.
#[derive(Clone, Debug, Default)]
pub struct Links(Arc<Mutex<BTreeMap<ProcessId, Offered>>>);

/// What [`Links::take`] gives once, and the peer's memory, if the kernel copies from it.
type Offered = (Near, Option<There>);

impl Links {
    fn all(&self) -> MutexGuard<'_, BTreeMap<ProcessId, Offered>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lanes to and from a peer, once for each connection with it. `None` before a message of the peer has come: that says
    /// that the other side takes frames too.
    pub fn take(&self, id: ProcessId) -> Option<Link> {
        let mut all = self.all();
        let (near, there) = all.get(&id)?;
        let link = near.link(near.number(id)?)?.reading(*there);
        all.remove(&id);
        Some(link)
    }

    /// A peer is connected by this memory; before it is sent anything.
    pub(super) fn connected(&self, id: ProcessId, shm: &Shm) {
        let near = shm.near();
        if let Some(number) = near.number(id) {
            near.offer(number);
            self.all().insert(id, (near, shm.there(number)));
        }
    }

    /// A peer is gone.
    pub(super) fn gone(&self, id: ProcessId) {
        self.all().remove(&id);
    }
}
