//! A process as the firmware knows it: its tables, its pendings, its event queue.

use std::collections::VecDeque;
use std::ops::Range;

use nic_model::defs::command::{InitEq, InitProcess};
use nic_model::defs::context::CONTEXT_LEN;
use nic_model::defs::event::{EQ_MAX_ENTRIES, EQ_MIN_ENTRIES, refusal};
use nic_model::defs::map;
use nic_model::defs::pending::{UPPER_PENDING_LEN, lower};
use nic_model::{FirmwareContext, Machine, NodeId, RxHandle};

use crate::eq::EventRing;

/// Who has a pending, and for what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pending {
    /// Transmit, the host's.
    TxIdle,
    /// Transmit, queued or at the engine.
    TxBusy,
    /// Receive, the firmware's.
    RxFree,
    /// Receive, the host's: its header event has been posted, its payload (if any) waits.
    RxHeader(Option<RxHandle>),
    /// Receive, at the engine.
    RxDeposit {
        /// Goes back to the free list at the end.
        release: bool,
        /// Ends without event, unless it fails.
        silent: bool,
        /// Keeps nothing.
        drop: bool,
    },
    /// Receive, the host's: everything done, to be released.
    RxEnded,
}

/// Most pendings of a process: what 32 B each leave room for in host-managed SRAM.
const MAX_PENDINGS: u32 = (map::NICCB - map::HOST_SRAM) / map::LOWER_PENDING_LEN;

/// What SRAM has room for: the tables that hosts place, below what the firmware itself takes.
///
/// ```text
///  HOST_SRAM                                              end                NICCB
///  │ lower pendings, event queue control blocks, ... free │ sources │ image  │
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Budget {
    end: u32,
    generic_pendings: u32,
}

impl Budget {
    pub(crate) fn new(machine: &Machine) -> Self {
        let limits = &machine.protocol;
        let sources = machine.firmware.sources.saturating_mul(limits.source_size);
        let own = sources.saturating_add(limits.image);
        Self {
            end: map::NICCB.saturating_sub(own).max(map::HOST_SRAM),
            generic_pendings: limits.generic_pendings,
        }
    }

    /// The range of `count` entries of `length` bytes from `base`, if it lies in host-managed SRAM.
    fn table(self, base: u32, count: u32, length: u32) -> Option<Range<u32>> {
        let end = u64::from(base) + u64::from(count) * u64::from(length);
        let fits = base.is_multiple_of(4) && base >= map::HOST_SRAM && end <= u64::from(self.end);
        fits.then_some(base..end as u32)
    }
}

fn overlap(a: &Range<u32>, b: &Range<u32>) -> bool {
    a.start < b.end && b.start < a.end
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) alive: bool,
    /// Pendings below this are for transmits.
    pub(crate) tx_limit: u16,
    pub(crate) pendings: Vec<Pending>,
    /// Receive pendings without message; used in turn, so that a stale look of the host at a
    /// pending it has given back is as harmless as can be.
    pub(crate) rx_free: VecDeque<u16>,
    pub(crate) eq: Option<EventRing>,
    upper_table: u32,
    /// Lower pendings and event queue control blocks in SRAM.
    pub(crate) tables: [Range<u32>; 2],
}

/// Whether `length` bytes from firmware address `base` are mapped at both ends and aligned.
fn mapped(ctx: &FirmwareContext<'_>, base: u32, length: u64) -> bool {
    let last = u64::from(base) + length.max(1) - 1;
    base.is_multiple_of(4)
        && u32::try_from(last)
            .is_ok_and(|last| ctx.translate(base).is_some() && ctx.translate(last).is_some())
}

impl Process {
    /// # Errors
    /// The [`refusal`] of the command.
    pub(crate) fn new(
        ctx: &FirmwareContext<'_>,
        command: &InitProcess,
        budget: Budget,
        taken: &[Range<u32>],
    ) -> Result<Self, u8> {
        let pendings = command.num_pendings.get();
        let tx_limit = command.pending_tx_limit.get();
        let eqcbs = u32::from(command.num_eqcbs.get());
        let most = match command.process_index {
            1 => budget.generic_pendings.min(MAX_PENDINGS),
            _ => MAX_PENDINGS,
        };
        if !(1..=most).contains(&u32::from(pendings)) || tx_limit > pendings || eqcbs == 0 {
            return Err(refusal::TABLE);
        }
        let table = |base, count| budget.table(base, count, map::LOWER_PENDING_LEN);
        let tables = [
            table(command.pending_table.get(), u32::from(pendings)),
            table(command.eqcb_table.get(), eqcbs),
        ];
        let [Some(lower), Some(eqcb)] = tables else {
            return Err(refusal::TABLE);
        };
        let clash = |table: &Range<u32>| taken.iter().any(|other| overlap(table, other));
        if overlap(&lower, &eqcb) || clash(&lower) || clash(&eqcb) {
            return Err(refusal::TABLE);
        }
        let upper_table = command.up_pending_table_ht.get();
        if !mapped(ctx, upper_table, u64::from(pendings) * UPPER_PENDING_LEN) {
            return Err(refusal::ADDRESS);
        }
        let contexts = command.context_table_ht.get();
        if contexts != 0 && !mapped(ctx, contexts, ctx.nodes() as u64 * CONTEXT_LEN) {
            return Err(refusal::ADDRESS);
        }
        let kind = |n| {
            if n < tx_limit {
                Pending::TxIdle
            } else {
                Pending::RxFree
            }
        };
        Ok(Self {
            alive: false,
            tx_limit,
            pendings: (0..pendings).map(kind).collect(),
            rx_free: (tx_limit..pendings).collect(),
            eq: None,
            upper_table,
            tables: [lower, eqcb],
        })
    }

    /// Writes what is known of a message into its lower pending.
    pub(crate) fn show(
        &self,
        ctx: &mut FirmwareContext<'_>,
        pending: u16,
        state: u32,
        nid: NodeId,
        length: u32,
    ) {
        let at = self.tables[0].start + u32::from(pending) * map::LOWER_PENDING_LEN;
        ctx.sram_write32(at + lower::STATE, state);
        ctx.sram_write32(at + lower::NID, u32::from(nid.0));
        ctx.sram_write32(at + lower::LENGTH, length);
    }

    /// Writes the state of a message into its lower pending.
    pub(crate) fn show_state(&self, ctx: &mut FirmwareContext<'_>, pending: u16, state: u32) {
        let at = self.tables[0].start + u32::from(pending) * map::LOWER_PENDING_LEN;
        ctx.sram_write32(at + lower::STATE, state);
    }

    /// # Errors
    /// The [`refusal`] of the command.
    pub(crate) fn init_eq(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        command: &InitEq,
    ) -> Result<(), u8> {
        let count = command.count.get();
        if command.eqcb_index.get() != 0 || !(EQ_MIN_ENTRIES..=EQ_MAX_ENTRIES).contains(&count) {
            return Err(refusal::EQ);
        }
        if self.eq.is_some() {
            return Err(refusal::STATE);
        }
        let base = command.base.get();
        if !mapped(ctx, base, 4 * u64::from(count)) {
            return Err(refusal::ADDRESS);
        }
        let control = self.tables[1].start;
        ctx.sram_write32(control, base);
        ctx.sram_write32(control + 4, count);
        self.eq = Some(EventRing::new(base, count, control));
        Ok(())
    }

    /// Host physical address of an upper pending; `None` when the host has unmapped it since.
    pub(crate) fn upper(&self, ctx: &FirmwareContext<'_>, pending: u16) -> Option<u64> {
        ctx.translate(self.upper_table + u32::from(pending) * UPPER_PENDING_LEN as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1,024 sources and 1,274 pendings of 32 bytes and an image of 22 KiB leave room for four
    /// processes' worth of either, and not for nine.
    #[test]
    fn the_budget_of_sram_is_what_sources_and_image_leave() {
        let machine = Machine::named("xt4").unwrap();
        let budget = Budget::new(&machine);
        assert_eq!(budget.end, map::NICCB - 1024 * 32 - 22 * 1024);
        let room = budget.end - map::HOST_SRAM;
        assert_eq!(room / (1274 * 32), 7);
        let table = |count| budget.table(map::HOST_SRAM, count, 32);
        assert!(table(room / 32).is_some());
        assert!(table(room / 32 + 1).is_none());
        assert!(budget.table(map::HOST_SRAM - 4, 1, 4).is_none());
        assert!(budget.table(map::HOST_SRAM + 2, 1, 4).is_none());
        assert!(budget.table(u32::MAX - 3, u32::MAX, u32::MAX).is_none());
    }

    #[test]
    fn a_budget_that_is_spent_leaves_nothing() {
        let mut machine = Machine::named("xt4").unwrap();
        machine.firmware.sources = 32_768;
        machine.protocol.source_size = 1_024;
        assert_eq!(Budget::new(&machine).end, map::HOST_SRAM);
    }
}
