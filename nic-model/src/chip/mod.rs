//! One chip: SRAM, the registers around it, the two DMA engines' state.

pub(crate) mod control;
pub(crate) mod fault;
pub(crate) mod rx;
pub(crate) mod tx;

use std::collections::VecDeque;

use crate::defs::map;
use crate::defs::niccb::Counter;
use crate::defs::ras;
use crate::host::RegisterIo;
use crate::time::{SimDuration, SimTime};
use crate::topology::NodeId;

/// Words of a page of SRAM: 1 KiB.
const SRAM_PAGE: usize = 256;

#[derive(Debug)]
pub(crate) struct Chip {
    /// Pages, each there from its first write that is not zero: a large machine does not pay
    /// 384 KiB for each idle node.
    sram: Vec<Option<Box<[u32; SRAM_PAGE]>>>,
    pub(crate) ht_map: [u32; map::HT_SLOTS as usize],
    pub(crate) ht_interrupt: u32,
    pub(crate) nid: u16,
    pub(crate) tx: tx::TxEngine,
    pub(crate) rx: rx::RxEngine,
    pub(crate) processor: Processor,
    /// An interrupt has been delivered that the host has not taken.
    pub(crate) interrupt_waiting: bool,
    /// A RAS interrupt has been delivered that the host has not taken.
    pub(crate) ras_waiting: bool,
    pub(crate) faults: fault::ChipFaults,
}

/// The embedded processor: one piece of work at a time, the others behind it.
#[derive(Debug, Default)]
pub(crate) struct Processor {
    /// Costs of the work behind the present piece.
    backlog: VecDeque<SimDuration>,
    working: bool,
    /// Until when blocking reads have held it.
    stalled: SimTime,
}

impl Processor {
    /// Takes on work announced at `at`; when it ends, if it can begin now.
    pub(crate) fn announce(&mut self, at: SimTime, cost: SimDuration) -> Option<SimTime> {
        if self.working {
            self.backlog.push_back(cost);
            return None;
        }
        self.working = true;
        Some(self.stalled.max(at) + cost)
    }

    /// The present piece is done at `at`; when the next one ends, if there is one.
    pub(crate) fn finish(&mut self, at: SimTime) -> Option<SimTime> {
        let next = self.backlog.pop_front();
        self.working = next.is_some();
        next.map(|cost| self.stalled.max(at) + cost)
    }

    /// A blocking read holds the processor until `at`.
    pub(crate) fn stall(&mut self, at: SimTime) {
        self.stalled = self.stalled.max(at);
    }
}

/// What a host's write did besides storing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteEffect {
    None,
    Doorbell {
        mailbox: u32,
        index: u32,
    },
    /// The host stops the firmware.
    Crash,
}

impl Chip {
    pub(crate) fn new(node: NodeId) -> Self {
        let mut chip = Self {
            sram: vec![None; map::SRAM_LEN as usize / 4 / SRAM_PAGE],
            ht_map: [0; map::HT_SLOTS as usize],
            ht_interrupt: 0,
            nid: node.0,
            tx: tx::TxEngine::default(),
            rx: rx::RxEngine::default(),
            processor: Processor::default(),
            interrupt_waiting: false,
            ras_waiting: false,
            faults: fault::ChipFaults::default(),
        };
        chip.sram_write(Counter::LOCAL_NID.address(), u32::from(node.0));
        ras::init(&mut SramIo(&mut chip), node.0, u32::from(node.0 % 4));
        chip
    }

    fn sram_index(address: u32) -> Option<usize> {
        (address >= map::SRAM && address.is_multiple_of(4))
            .then(|| ((address - map::SRAM) / 4) as usize)
    }

    pub(crate) fn sram_read(&self, address: u32) -> Option<u32> {
        let index = Self::sram_index(address)?;
        Some(match &self.sram[index / SRAM_PAGE] {
            Some(page) => page[index % SRAM_PAGE],
            None => 0,
        })
    }

    pub(crate) fn sram_write(&mut self, address: u32, value: u32) -> bool {
        match Self::sram_index(address) {
            Some(index) => {
                match &mut self.sram[index / SRAM_PAGE] {
                    Some(page) => page[index % SRAM_PAGE] = value,
                    None if value == 0 => {}
                    empty => {
                        let page = empty.insert(Box::new([0; SRAM_PAGE]));
                        page[index % SRAM_PAGE] = value;
                    }
                }
                true
            }
            None => false,
        }
    }

    pub(crate) fn counter(&self, counter: Counter) -> u32 {
        self.sram_read(counter.address()).unwrap_or(0)
    }

    pub(crate) fn count(&mut self, counter: Counter, amount: u32) {
        let value = self.counter(counter).wrapping_add(amount);
        self.sram_write(counter.address(), value);
    }

    /// Raises a high-water mark.
    pub(crate) fn count_max(&mut self, counter: Counter, value: u32) {
        if value > self.counter(counter) {
            self.sram_write(counter.address(), value);
        }
    }

    fn ht_slot(address: u32) -> Option<usize> {
        let slots = map::HT_MAP..map::HT_MAP + 4 * map::HT_SLOTS;
        (slots.contains(&address) && address.is_multiple_of(4))
            .then(|| ((address - map::HT_MAP) / 4) as usize)
    }

    /// A read by the host.
    pub(crate) fn host_register_read(&mut self, address: u32) -> u32 {
        if let Some(value) = self.sram_read(address) {
            return value;
        }
        match address {
            map::NID => return u32::from(self.nid),
            map::HT_INTERRUPT => return self.ht_interrupt,
            _ => {}
        }
        match Self::ht_slot(address) {
            Some(slot) => self.ht_map[slot],
            None => {
                self.count(Counter::BAD_ACCESSES, 1);
                u32::MAX
            }
        }
    }

    /// A write by the host.
    pub(crate) fn host_register_write(&mut self, address: u32, value: u32) -> WriteEffect {
        if self.sram_write(address, value) {
            if address == Counter::CRASH_CONTROL.address() {
                // Writing zero does not bring a stopped firmware back.
                if let Some(reason) = self.faults.crashed {
                    self.sram_write(address, reason);
                } else if value != 0 {
                    return WriteEffect::Crash;
                }
            }
            let offset = address - map::SRAM;
            let mailbox = offset / map::MAILBOX_LEN;
            return if mailbox < map::MAILBOX_COUNT
                && offset % map::MAILBOX_LEN == crate::defs::mailbox::COMMAND_WRITE
            {
                WriteEffect::Doorbell {
                    mailbox,
                    index: value,
                }
            } else {
                WriteEffect::None
            };
        }
        if address == map::HT_INTERRUPT {
            self.ht_interrupt = value;
        } else if let Some(slot) = Self::ht_slot(address) {
            self.ht_map[slot] = value;
        } else {
            self.count(Counter::BAD_ACCESSES, 1);
        }
        WriteEffect::None
    }
}

/// SRAM as its own controller sees it.
#[derive(Debug)]
pub(crate) struct SramIo<'a>(pub(crate) &'a mut Chip);

impl RegisterIo for SramIo<'_> {
    fn read32(&mut self, address: u32) -> u32 {
        self.0.sram_read(address).unwrap_or(u32::MAX)
    }

    fn write32(&mut self, address: u32, value: u32) {
        self.0.sram_write(address, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::defs::niccb::crash;

    #[test]
    fn a_host_stops_the_firmware_once() {
        let mut chip = Chip::new(NodeId(1));
        let register = Counter::CRASH_CONTROL.address();
        assert_eq!(chip.host_register_write(register, 0), WriteEffect::None);
        assert_eq!(chip.host_register_write(register, 77), WriteEffect::Crash);
        chip.stop(crash::HOST, SimTime(5), SimDuration(2));
        assert_eq!(chip.counter(Counter::CRASH_HEARTBEAT), 2);
        assert_eq!(chip.host_register_write(register, 0), WriteEffect::None);
        assert_eq!(chip.host_register_read(register), crash::HOST);
        chip.tick(SimTime(1000), SimDuration(2));
        assert_eq!(chip.host_register_read(Counter::HEARTBEAT.address()), 2);
    }

    #[test]
    fn work_waits_for_work_and_for_blocking_reads() {
        let mut processor = Processor::default();
        let cost = SimDuration(10);
        assert_eq!(processor.announce(SimTime(100), cost), Some(SimTime(110)));
        assert_eq!(processor.announce(SimTime(101), cost), None);
        processor.stall(SimTime(150));
        assert_eq!(processor.finish(SimTime(110)), Some(SimTime(160)));
        assert_eq!(processor.finish(SimTime(160)), None);
        assert_eq!(processor.announce(SimTime(120), cost), Some(SimTime(160)));
    }

    #[test]
    fn only_the_registers_that_exist_answer() {
        let mut chip = Chip::new(NodeId(3));
        assert_eq!(chip.host_register_read(map::NID), 3);
        assert_eq!(
            chip.host_register_write(map::L0 + 0xFFC, 7),
            WriteEffect::None
        );
        assert_eq!(chip.host_register_read(0xFFFF_FFFC), 7);
        assert_eq!(chip.host_register_read(map::SRAM + 1), u32::MAX);
        assert_eq!(chip.host_register_read(0), u32::MAX);
        chip.host_register_write(map::WINDOW, 1);
        assert_eq!(chip.counter(Counter::BAD_ACCESSES), 3);
        let doorbell = crate::defs::mailbox::address(2, crate::defs::mailbox::COMMAND_WRITE);
        assert_eq!(
            chip.host_register_write(doorbell, 5),
            WriteEffect::Doorbell {
                mailbox: 2,
                index: 5
            }
        );
    }
}
