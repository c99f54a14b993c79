//! What the library of an accelerated process remembers of its descriptors, so that it need not ask the
//! NIC whether a put or get is possible.
//!
//! A descriptor is *steady* when nothing but its own process can make it inactive: it has no limit of
//! operations, and does not go inactive when it is nearly full. An operation on a steady descriptor
//! within its memory cannot be refused, so the call returns without an answer. Everything else is
//! asked: whether a descriptor with a limit is still active, only the NIC knows.

use portals_core::{
    MAX_MESSAGE, MdDesc, MdHandle, MdOptions, MeHandle, Memory, Segments, THRESHOLD_INFINITE,
    Unlink,
};
use std::collections::BTreeMap;

#[derive(Debug)]
struct Descriptor {
    memory: Memory,
    length: u64,
    /// The entry that takes it along when it is unlinked.
    leaves_with: Option<MeHandle>,
}

/// The steady descriptors of a process. Others may go away by themselves, and are not remembered.
#[derive(Debug, Default)]
pub(super) struct Known(BTreeMap<MdHandle, Descriptor>);

fn length(memory: &Memory) -> u64 {
    match memory {
        Memory::Contiguous(s) => s.len,
        Memory::Iovec { segments, .. } => segments.iter().map(|s| s.len).sum(),
    }
}

fn steady(desc: &MdDesc) -> bool {
    let fills = desc.options.contains(MdOptions::MAX_SIZE)
        && !desc.options.contains(MdOptions::MANAGE_REMOTE);
    desc.threshold == THRESHOLD_INFINITE && !fills
}

/// A region that an operation cannot be refused.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) length: u64,
    pub(super) segments: Segments,
}

impl Known {
    /// A descriptor has been made.
    pub(super) fn insert(
        &mut self,
        md: MdHandle,
        desc: &MdDesc,
        unlink: Unlink,
        me: Option<MeHandle>,
    ) {
        let descriptor = Descriptor {
            length: length(&desc.memory),
            memory: desc.memory.clone(),
            leaves_with: me.filter(|_| unlink == Unlink::Unlink),
        };
        if steady(desc) {
            self.0.insert(md, descriptor);
        }
    }

    /// A descriptor has been changed.
    pub(super) fn update(&mut self, md: MdHandle, desc: &MdDesc) {
        if !steady(desc) {
            self.0.remove(&md);
        } else if let Some(known) = self.0.get_mut(&md) {
            known.length = length(&desc.memory);
            known.memory = desc.memory.clone();
        }
    }

    /// A descriptor has been unlinked.
    pub(super) fn remove(&mut self, md: MdHandle) {
        self.0.remove(&md);
    }

    /// An entry has been unlinked.
    pub(super) fn entry_gone(&mut self, me: MeHandle) {
        self.0.retain(|_, known| known.leaves_with != Some(me));
    }

    /// The part of a descriptor that an operation is about; `None` when it cannot be had for sure.
    pub(super) fn part(&self, md: MdHandle, region: Option<(u64, u64)>) -> Option<Part> {
        let known = self.0.get(&md)?;
        let (offset, length) = region.unwrap_or((0, known.length));
        let end = offset.checked_add(length)?;
        (end <= known.length && length <= MAX_MESSAGE).then(|| Part {
            length,
            segments: known.memory.slice(offset, length),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(threshold: i32, options: MdOptions) -> MdDesc {
        MdDesc {
            memory: Memory::contiguous(0x1000, 100),
            threshold,
            max_size: 10,
            options,
            user_ptr: 0,
            eq: None,
        }
    }

    #[test]
    fn only_what_cannot_be_refused_is_steady() {
        let put = MdOptions::OP_PUT;
        assert!(steady(&desc(-1, put)));
        assert!(steady(&desc(
            -1,
            put | MdOptions::MAX_SIZE | MdOptions::MANAGE_REMOTE
        )));
        assert!(!steady(&desc(-1, put | MdOptions::MAX_SIZE)));
        assert!(!steady(&desc(5, put)));
        assert!(!steady(&desc(-2, put)));
    }

    #[test]
    fn parts_end_with_the_memory_and_go_with_the_entry() {
        let mut known = Known::default();
        let (md, me) = (MdHandle::from_raw(0x8000_0001), MeHandle::from_raw(7));
        known.insert(md, &desc(-1, MdOptions::OP_PUT), Unlink::Unlink, Some(me));
        assert_eq!(known.part(md, None).map(|p| p.length), Some(100));
        assert!(known.part(md, Some((60, 40))).is_some());
        assert!(known.part(md, Some((61, 40))).is_none());
        assert!(known.part(md, Some((u64::MAX, 2))).is_none());
        known.entry_gone(me);
        assert!(known.part(md, None).is_none());
    }
}
