//! A process as the firmware knows it: its tables, its pendings, its event queue.

use std::collections::VecDeque;

use nic_model::defs::command::{InitEq, InitProcess};
use nic_model::defs::event::{EQ_MAX_ENTRIES, EQ_MIN_ENTRIES, refusal};
use nic_model::defs::map;
use nic_model::defs::pending::UPPER_PENDING_LEN;
use nic_model::{FirmwareContext, RxHandle};

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
}

/// Whether `length` bytes from firmware address `base` are mapped at both ends and aligned.
fn mapped(ctx: &FirmwareContext<'_>, base: u32, length: u64) -> bool {
    let last = u64::from(base) + length.max(1) - 1;
    base.is_multiple_of(4)
        && u32::try_from(last)
            .is_ok_and(|last| ctx.translate(base).is_some() && ctx.translate(last).is_some())
}

/// Whether `count` entries of `length` bytes from `base` lie in host-managed SRAM.
fn in_sram(base: u32, count: u32, length: u32) -> bool {
    let end = u64::from(base) + u64::from(count) * u64::from(length);
    base.is_multiple_of(4) && base >= map::HOST_SRAM && end <= u64::from(map::NICCB)
}

impl Process {
    /// # Errors
    /// The [`refusal`] of the command.
    pub(crate) fn new(ctx: &FirmwareContext<'_>, command: &InitProcess) -> Result<Self, u8> {
        let pendings = command.num_pendings.get();
        let tx_limit = command.pending_tx_limit.get();
        let eqcbs = u32::from(command.num_eqcbs.get());
        let table = command.pending_table.get();
        if pendings == 0
            || u32::from(pendings) > MAX_PENDINGS
            || tx_limit > pendings
            || !in_sram(table, u32::from(pendings), map::LOWER_PENDING_LEN)
            || eqcbs == 0
            || !in_sram(command.eqcb_table.get(), eqcbs, map::LOWER_PENDING_LEN)
        {
            return Err(refusal::TABLE);
        }
        let upper_table = command.up_pending_table_ht.get();
        if !mapped(ctx, upper_table, u64::from(pendings) * UPPER_PENDING_LEN) {
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
        })
    }

    /// # Errors
    /// The [`refusal`] of the command.
    pub(crate) fn init_eq(
        &mut self,
        ctx: &FirmwareContext<'_>,
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
        self.eq = Some(EventRing::new(base, count));
        Ok(())
    }

    /// Host physical address of an upper pending; `None` when the host has unmapped it since.
    pub(crate) fn upper(&self, ctx: &FirmwareContext<'_>, pending: u16) -> Option<u64> {
        ctx.translate(self.upper_table + u32::from(pending) * UPPER_PENDING_LEN as u32)
    }
}
