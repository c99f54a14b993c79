//! Datagrams that arrive: from the header packet to a buffer of the host's table.

use nic_model::defs::datagram::{DatagramHeader, HEADER_LEN, TYPE_IP, buffer_entry};
use nic_model::defs::event::{EventType, EventWord};
use nic_model::defs::map::DATAGRAM_BUFFER_COUNT;
use nic_model::defs::niccb::Counter;
use nic_model::{Deposit, DmaSegment, FirmwareContext, RxHeader, RxReport};

use crate::program::{GENERIC, SeaStarFirmware, Work, token};

/// The buffers, as the firmware uses them.
#[derive(Debug)]
pub(crate) struct Datagrams {
    /// Where to look for the next buffer.
    next: u32,
    /// The host has been told that there are none.
    told: bool,
    /// Datagrams on their way into a buffer: its address, and the bytes to come.
    filling: Vec<Option<(u64, u32)>>,
}

impl Datagrams {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            told: false,
            filling: vec![None; DATAGRAM_BUFFER_COUNT as usize],
        }
    }

    /// Takes a buffer out of the host's table: its index and address.
    fn take(&mut self, ctx: &mut FirmwareContext<'_>) -> Option<(u32, u64)> {
        for index in (self.next..self.next + DATAGRAM_BUFFER_COUNT).map(|n| n % 64) {
            let at = buffer_entry(index);
            let quad = u64::from(ctx.sram_read32(at + 4)) << 32 | u64::from(ctx.sram_read32(at));
            let free = self
                .filling
                .get(index as usize)
                .is_some_and(Option::is_none);
            if quad == 0 || quad >> 62 != 0 || !free {
                continue;
            }
            ctx.sram_write32(at, 0);
            ctx.sram_write32(at + 4, 0);
            self.next = (index + 1) % DATAGRAM_BUFFER_COUNT;
            return Some((index, quad << 2));
        }
        None
    }
}

impl SeaStarFirmware {
    pub(crate) fn take_datagram(&mut self, ctx: &mut FirmwareContext<'_>, header: &RxHeader) {
        let word = header
            .bytes
            .first_chunk()
            .map_or(0, |w| u32::from_le_bytes(*w));
        let datagram = DatagramHeader(word);
        let length = (u32::from(datagram.length()) + 1) * 4;
        let sound = !header.corrupt
            && !header.overflow
            && u32::from(header.length) >= HEADER_LEN
            && datagram.class() == TYPE_IP
            && length <= self.limits.datagram
            && (length > HEADER_LEN) == header.payload.is_some();
        if header.corrupt {
            ctx.count(Counter::HEADER_CRC_ERRORS, 1);
        }
        if !sound || !self.is_alive(GENERIC) {
            ctx.count(Counter::IP_RX_DROPPED, 1);
            return self.drop_message(ctx, header);
        }
        let Some((index, address)) = self.datagrams.take(ctx) else {
            ctx.count(Counter::IP_RX_DROPPED, 1);
            if !std::mem::replace(&mut self.datagrams.told, true) {
                let event = EventWord::new(EventType::DATAGRAM_EMPTY, 0);
                self.post(ctx, GENERIC, event, true);
            }
            return self.drop_message(ctx, header);
        };
        let rest = length - HEADER_LEN;
        ctx.host_write(address, &word.to_le_bytes());
        self.datagrams.filling[index as usize] = Some((address, rest));
        let report = match header.payload {
            None => Some(RxReport {
                deposited: 0,
                discarded: 0,
                fault: None,
            }),
            Some(payload) => {
                ctx.busy(self.costs.rx_command);
                let segments = vec![DmaSegment {
                    address: address + u64::from(HEADER_LEN),
                    length: rest,
                }];
                let token = token::DATAGRAM | u64::from(index);
                self.watch(ctx);
                // The payload has just arrived with its header: nobody else has a claim on it.
                let lost = ctx.deposit(payload, Deposit { segments, token }).is_err();
                lost.then_some(RxReport {
                    deposited: 0,
                    discarded: rest,
                    fault: None,
                })
            }
        };
        if let Some(report) = report {
            self.later(
                ctx,
                self.costs.rx_complete,
                Work::DatagramEnd { index, report },
            );
        }
    }

    pub(crate) fn datagram_end(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: u32,
        report: RxReport,
    ) {
        let filling = self.datagrams.filling.get_mut(index as usize);
        let Some((address, rest)) = filling.and_then(Option::take) else {
            return;
        };
        if report.fault.is_some() || report.deposited != rest || report.discarded > 0 {
            ctx.count(Counter::IP_RX_DROPPED, 1);
            // The buffer is the firmware's still, unless the host has put another there.
            let at = buffer_entry(index);
            if ctx.sram_read32(at) == 0 && ctx.sram_read32(at + 4) == 0 {
                ctx.sram_write32(at + 4, (address >> 34) as u32);
                ctx.sram_write32(at, (address >> 2) as u32);
            }
            return;
        }
        ctx.count(Counter::IP_RX, 1);
        self.datagrams.told = false;
        let event = EventWord::new(EventType::DATAGRAM, index as u16);
        self.post(ctx, GENERIC, event, true);
    }
}
