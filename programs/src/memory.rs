//! Memory of other ranks: a segment, or plain memory of the heap whose address each rank tells.

use crate::job::Failed;
use crate::sum::{word64, words};
use conduit::{BarrierName, Conduit, HandlerEntry, Token};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Where a program has what other ranks reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Memory {
    /// In a segment, pinned as a whole.
    Segment,
    /// On the heap, pinned where it is used.
    Everything,
}

/// Tells ranks' addresses to each other.
#[derive(Debug)]
pub(crate) struct Addresses {
    all: Rc<RefCell<Vec<u64>>>,
    handler: u8,
}

impl Addresses {
    /// Uses the handler index `handler`; and the entry to register there.
    pub(crate) fn new(conduit: &Conduit, handler: u8) -> (Self, HandlerEntry) {
        let all = Rc::new(RefCell::new(vec![0; conduit.nodes() as usize]));
        let told = all.clone();
        let entry = HandlerEntry::new(handler, move |token: &mut Token<'_>, _, args| {
            if let Some(of) = told.borrow_mut().get_mut(token.source() as usize) {
                *of = word64(args);
            }
        });
        (Self { all, handler }, entry)
    }

    /// Collective: opens `words`, and gives the address of every rank's.
    pub(crate) fn tell(
        &self,
        conduit: &Conduit,
        memory: &Arc<[AtomicU64]>,
    ) -> Result<Vec<u64>, Failed> {
        let addr = conduit.open(memory);
        for node in 0..conduit.nodes() {
            conduit.am_request_short(node, self.handler, &words(addr))?;
        }
        conduit.block_until(|| self.all.borrow().iter().all(|a| *a != 0));
        conduit.barrier(BarrierName::Anonymous)?;
        Ok(self.all.borrow().clone())
    }
}
