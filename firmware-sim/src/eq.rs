//! An event queue in host memory, as the firmware fills it.

use std::collections::VecDeque;

use nic_model::FirmwareContext;
use nic_model::defs::event::{EventType, EventWord};
use nic_model::defs::niccb::Counter;
use nic_model::trace::What;

/// Entries looked at when the known empty ones are used up.
const SCAN: u32 = 64;
/// Refusals that wait for room before the mailbox is left alone; a host that never drains its queue cannot grow the rest, which
/// its pendings limit.
const MANY_REFUSALS: usize = 1024;

/// One queue. The next entry is written only once it has been seen empty, so that a slow host
/// loses nothing.
#[derive(Debug)]
pub(crate) struct EventRing {
    /// Firmware address of entry 0.
    base: u32,
    count: u32,
    next: u32,
    /// Entries from `next` on that are known to be empty.
    room: u32,
    /// Events without room, and whether each interrupts.
    backlog: VecDeque<(EventWord, bool)>,
    /// Refusals among them.
    refusals: usize,
    /// A retry is on its way.
    retrying: bool,
    /// SRAM address of its control block: base, count, next.
    control: u32,
}

impl EventRing {
    pub(crate) fn new(base: u32, count: u32, control: u32) -> Self {
        Self {
            base,
            count,
            next: 0,
            room: 0,
            backlog: VecDeque::new(),
            refusals: 0,
            retrying: false,
            control,
        }
    }

    /// Posts an event behind all earlier ones; with `alarm` as the token of a retry.
    pub(crate) fn post(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        event: EventWord,
        interrupt: bool,
        alarm: u64,
    ) {
        self.refusals += usize::from(event.kind() == EventType::REJECTED);
        self.backlog.push_back((event, interrupt));
        if !self.retrying {
            self.flush(ctx, alarm);
        }
    }

    /// Whether so many refusals wait for room that no further command may be carried out: it might be refused too.
    pub(crate) fn is_behind(&self) -> bool {
        self.refusals >= MANY_REFUSALS
    }

    /// The oldest event has its place, or none.
    fn drop_oldest(&mut self) {
        if let Some((event, _)) = self.backlog.pop_front() {
            self.refusals -= usize::from(event.kind() == EventType::REJECTED);
        }
    }

    /// A retry is due.
    pub(crate) fn retry(&mut self, ctx: &mut FirmwareContext<'_>, alarm: u64) {
        self.retrying = false;
        self.flush(ctx, alarm);
    }

    fn flush(&mut self, ctx: &mut FirmwareContext<'_>, alarm: u64) {
        while let Some(&(event, interrupt)) = self.backlog.front() {
            let Some(address) = ctx.translate(self.base + 4 * self.next) else {
                self.drop_oldest();
                ctx.count(Counter::EVENTS_LOST, 1);
                continue;
            };
            if self.room == 0 {
                match self.scan(ctx, address) {
                    Some(0) => {
                        ctx.count(Counter::EQ_NEARLY_FULL, 1);
                        // The host may be asleep: tell it that there is something to drain.
                        ctx.raise_interrupt();
                        self.retrying = true;
                        ctx.alarm(ctx.machine().firmware.eq_retry, alarm);
                        return;
                    }
                    Some(room) => self.room = room,
                    None => {
                        self.drop_oldest();
                        ctx.count(Counter::EVENTS_LOST, 1);
                        continue;
                    }
                }
            }
            self.drop_oldest();
            ctx.host_write(address, &event.0.to_le_bytes());
            ctx.trace(What::Event {
                word: event,
                interrupt,
            });
            self.room -= 1;
            self.next = (self.next + 1) % self.count;
            ctx.sram_write32(self.control + 8, self.next);
            if interrupt {
                ctx.raise_interrupt();
            }
        }
    }

    /// Empty entries at `next`; `None` when host memory cannot be read.
    fn scan(&self, ctx: &mut FirmwareContext<'_>, address: u64) -> Option<u32> {
        let entries = SCAN.min(self.count - self.next);
        let mut bytes = [0; 4 * SCAN as usize];
        let bytes = &mut bytes[..4 * entries as usize];
        ctx.host_read(address, bytes).ok()?;
        let used = bytes
            .as_chunks::<4>()
            .0
            .iter()
            .position(|entry| *entry != [0; 4]);
        Some(used.map_or(entries, |n| n as u32))
    }
}
