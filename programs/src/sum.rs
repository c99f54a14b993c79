//! Sums that do not depend on who adds first.

use conduit::{BarrierName, Conduit, HandlerEntry, Token};
use std::cell::Cell;
use std::rc::Rc;

/// A well mixed value for a position and its content; checksums are wrapping sums of these.
pub(crate) fn mix(position: u64, bits: u64) -> u64 {
    // The finaliser of splitmix64, twice.
    let step = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    };
    step(step(position.wrapping_add(0x9e37_79b9_7f4a_7c15)) ^ bits)
}

/// Two arguments of an active message, high word first.
pub(crate) fn words(x: u64) -> [i32; 2] {
    [((x >> 32) as u32).cast_signed(), (x as u32).cast_signed()]
}

/// The value of two arguments.
pub(crate) fn word64(args: &[i32]) -> u64 {
    let at = |i: usize| u64::from(args.get(i).copied().unwrap_or(0).cast_unsigned());
    at(0) << 32 | at(1)
}

/// Adds up over all ranks at rank 0.
#[derive(Debug)]
pub(crate) struct Reduction {
    sum: Rc<Cell<u64>>,
    arrived: Rc<Cell<u32>>,
    handler: u8,
}

impl Reduction {
    /// A reduction that uses the handler index `handler`, and the entry to register there.
    pub(crate) fn new(handler: u8) -> (Self, HandlerEntry) {
        let (sum, arrived) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0)));
        let (s, a) = (sum.clone(), arrived.clone());
        let entry = HandlerEntry::new(handler, move |_: &mut Token<'_>, _, args| {
            s.set(s.get().wrapping_add(word64(args)));
            a.set(a.get() + 1);
        });
        (
            Self {
                sum,
                arrived,
                handler,
            },
            entry,
        )
    }

    /// Collective: the wrapping sum of `part` over all ranks, at rank 0; `None` elsewhere.
    pub(crate) fn run(
        &self,
        conduit: &Conduit,
        part: u64,
    ) -> Result<Option<u64>, crate::job::Failed> {
        conduit.am_request_short(0, self.handler, &words(part))?;
        let total = (conduit.mynode() == 0).then(|| {
            conduit.block_until(|| self.arrived.get() == conduit.nodes());
            self.arrived.set(0);
            self.sum.replace(0)
        });
        // The next reduction must not begin before this one is read.
        conduit.barrier(BarrierName::Anonymous)?;
        Ok(total)
    }
}
