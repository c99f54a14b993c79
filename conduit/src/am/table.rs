//! Handlers by index.

use super::limits::{FIRST_EXTENDED, FIRST_HANDLER};
use super::{Handler, HandlerEntry};
use crate::error::AttachError;
use std::fmt;
use std::rc::Rc;

/// Indices below [`FIRST_HANDLER`] are the conduit's and have no entry here.
pub(crate) struct HandlerTable {
    handlers: Vec<Option<Rc<Handler>>>,
}

impl HandlerTable {
    pub(crate) fn new() -> Self {
        Self {
            handlers: vec![None; 256],
        }
    }

    /// Registers all entries, fixed indexes first; returns the index of each, in order. Ranks that
    /// register equal lists get equal indexes.
    pub(crate) fn register(&mut self, entries: Vec<HandlerEntry>) -> Result<Vec<u8>, AttachError> {
        for index in entries.iter().map(|e| e.index).filter(|i| *i != 0) {
            if index < FIRST_HANDLER {
                return Err(AttachError::HandlerIndex { index });
            }
        }
        let mut table = self.handlers.clone();
        for e in entries.iter().filter(|e| e.index != 0) {
            let slot = &mut table[usize::from(e.index)];
            if slot.is_some() {
                return Err(AttachError::HandlerTwice { index: e.index });
            }
            *slot = Some(e.run.clone());
        }
        let mut indexes = Vec::with_capacity(entries.len());
        let mut next = FIRST_HANDLER..=u8::MAX;
        for e in &entries {
            let index = if e.index != 0 {
                e.index
            } else {
                let free = next
                    .find(|i| table[usize::from(*i)].is_none())
                    .ok_or(AttachError::HandlersExhausted)?;
                table[usize::from(free)] = Some(e.run.clone());
                free
            };
            indexes.push(index);
        }
        self.handlers = table;
        Ok(indexes)
    }

    /// Puts `entries` at their indexes, which are those of the extended API.
    pub(crate) fn register_extended(
        &mut self,
        entries: Vec<HandlerEntry>,
    ) -> Result<(), AttachError> {
        for e in &entries {
            if !(FIRST_EXTENDED..FIRST_HANDLER).contains(&e.index) {
                return Err(AttachError::HandlerIndex { index: e.index });
            }
        }
        for e in entries {
            self.handlers[usize::from(e.index)] = Some(e.run);
        }
        Ok(())
    }

    /// Equal for tables with handlers at the same indexes, and most likely for no others.
    pub(crate) fn fingerprint(&self) -> u64 {
        let used = (0u64..).zip(&self.handlers).filter(|(_, h)| h.is_some());
        used.fold(0xcbf2_9ce4_8422_2325, |hash, (index, _)| {
            (hash ^ index).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Puts entries of the conduit's own at their indexes.
    pub(crate) fn register_own(&mut self, entries: Vec<(u8, HandlerEntry)>) {
        for (index, entry) in entries {
            self.handlers[usize::from(index)] = Some(entry.run);
        }
    }

    pub(crate) fn get(&self, index: u8) -> Option<Rc<Handler>> {
        self.handlers[usize::from(index)].clone()
    }
}

impl fmt::Debug for HandlerTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.handlers.iter().flatten().count();
        f.debug_struct("HandlerTable").field("used", &used).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(index: u8) -> HandlerEntry {
        HandlerEntry::new(index, |_, _, _| {})
    }

    #[test]
    fn free_indexes_go_around_fixed_ones() {
        let mut t = HandlerTable::new();
        let indexes = t
            .register(vec![at(0), at(129), at(0), at(255), at(0)])
            .unwrap();
        assert_eq!(indexes, [128, 129, 130, 255, 131]);
        assert!(t.get(131).is_some() && t.get(132).is_none() && t.get(2).is_none());
    }

    #[test]
    fn bad_tables_change_nothing() {
        let mut t = HandlerTable::new();
        assert!(matches!(
            t.register(vec![at(128), at(127)]),
            Err(AttachError::HandlerIndex { index: 127 })
        ));
        assert!(matches!(
            t.register(vec![at(200), at(200)]),
            Err(AttachError::HandlerTwice { index: 200 })
        ));
        let many = (0..129).map(|_| at(0)).collect();
        assert!(matches!(
            t.register(many),
            Err(AttachError::HandlersExhausted)
        ));
        assert!(t.get(128).is_none() && t.get(200).is_none());
    }
}
