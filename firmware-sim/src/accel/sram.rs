//! What everything takes of the chip's SRAM: the budget is sources × their size, plus the pendings
//! of every process, plus what the objects of accelerated processes take, beside the image and the
//! tables at fixed addresses.

use nic_model::FirmwareContext;
use nic_model::defs::map;
use nic_model::defs::niccb::Counter;

use super::Accel;
use crate::program::SeaStarFirmware;

/// Bytes of a pending in SRAM.
pub(super) const PENDING: u64 = map::LOWER_PENDING_LEN as u64;

/// Mailboxes, datagram table, control block and RAS area.
const FIXED: u64 =
    (map::HOST_SRAM - map::SRAM) as u64 + (map::SRAM_LEN - (map::NICCB - map::SRAM)) as u64;

/// Objects that a command may make.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Objects {
    pub(super) mes: u64,
    pub(super) mds: u64,
    pub(super) eqs: u64,
}

impl SeaStarFirmware {
    fn objects(&self, objects: Objects) -> u64 {
        objects.mes * u64::from(self.nic.me_size)
            + objects.mds * u64::from(self.nic.md_size)
            + objects.eqs * u64::from(self.nic.eq_size)
    }

    /// Bytes that a process takes.
    pub(super) fn footprint(&self, process: &Accel) -> u64 {
        let usage = process.ni.usage();
        u64::from(process.pendings) * PENDING
            + self.objects(Objects {
                mes: usage.mes.current,
                mds: usage.mds.current,
                eqs: usage.eqs.current,
            })
    }

    fn taken(&self) -> u64 {
        let generic: usize = self
            .processes
            .iter()
            .flatten()
            .map(|p| p.pendings.len())
            .sum();
        let accelerated: u64 = self
            .accels
            .iter()
            .flatten()
            .map(|p| self.footprint(p))
            .sum();
        FIXED
            + u64::from(self.limits.image)
            + u64::from(self.costs.sources) * u64::from(self.limits.source_size)
            + generic as u64 * PENDING
            + accelerated
    }

    /// Whether `more` bytes fit.
    pub(super) fn sram_holds(&self, more: u64) -> bool {
        self.taken() + more <= u64::from(self.nic.sram)
    }

    /// Whether these objects fit.
    pub(super) fn has_room_for(&self, objects: Objects) -> bool {
        self.sram_holds(self.objects(objects))
    }

    /// Shows how much is left.
    pub(super) fn show_sram(&self, ctx: &mut FirmwareContext<'_>) {
        let left = u64::from(self.nic.sram).saturating_sub(self.taken());
        ctx.set_counter(Counter::ACCEL_SRAM_LEFT, left as u32);
    }
}
