//! A process that does not fit SRAM any more goes to the kernel of its node.
//!
//! ```text
//!  firmware                                   kernel                      process
//!   a command does not fit
//!   writes the state into host memory
//!   answers MOVED  ─────────────────────────────────────────────────────►  traps, same call
//!   headers for it are the generic process's ─► takes the state, matches ◄──┘
//!   pendings in flight end as MOVED_END ──────► ends the operation
//! ```
//!
//! The model hands the state over as a value ([`SeaStarFirmware::take_moved`]); what writing its
//! bytes costs is charged to the processor, and what reading them costs is the kernel's to charge.

use nic_model::FirmwareContext;
use nic_model::defs::accel::{Completion, MOVED};
use nic_model::defs::event::{EventType, EventWord};
use nic_model::defs::niccb::Counter;
use portals_core::{Header, Ni, NiFail, OpId, Swap};
use zerocopy::IntoBytes;

use crate::awaited::Awaited;
use crate::program::SeaStarFirmware;

/// What a pending is for.
#[derive(Debug, Default)]
pub enum Flight {
    /// Nothing.
    #[default]
    Idle,
    /// A message without an operation that waits for its end: a get, data that rides in the header
    /// packet.
    Message,
    /// An ack or a reply without an operation, and how often it has been given up.
    Answer(Header, u8),
    /// The data of a put or getput.
    Send(OpId),
    /// The same, of which the target says already that it has failed there. Whose fault that is, the end of the send says.
    Refused(OpId),
    /// The data of a get's reply.
    Reply(OpId, Header),
    /// Data on its way into a descriptor, with the answer that says that it failed.
    Deposit(OpId, Option<Header>),
    /// The data of a getput, on its way into the pending's small-message buffer.
    Exchange(Swap),
}

/// The state of a process that has been given to the kernel.
#[derive(Debug)]
pub struct Moved {
    /// Its interface; event queues are still kept in host memory.
    pub ni: Ni,
    /// Index of its mailbox.
    pub mailbox: usize,
    /// Pendings in flight. Each ends with an event that names it: [`MOVED_END`](EventType::MOVED_END),
    /// [`MOVED_FAILED`](EventType::MOVED_FAILED) or [`MOVED_FAULT`](EventType::MOVED_FAULT). With the request that is
    /// sent, to fail it when it cannot be delivered.
    pub flights: Vec<(u16, Flight, Option<Header>)>,
    /// Requests whose answer has not come.
    pub awaited: Awaited,
    /// Bytes of SRAM that it took.
    pub bytes: u64,
}

/// The index of an event about pending `pending` of the process that had mailbox `mailbox`:
/// bits 15..14 the mailbox, bits 13..0 the pending.
#[must_use]
pub const fn moved_index(mailbox: usize, pending: u16) -> u16 {
    (mailbox as u16) << 14 | (pending & 0x3FFF)
}

impl SeaStarFirmware {
    /// The oldest process that the kernel has not taken over yet.
    pub fn take_moved(&mut self) -> Option<Moved> {
        self.moved.pop_front()
    }

    /// Gives a process to the kernel and tells the process.
    pub(super) fn move_out(&mut self, ctx: &mut FirmwareContext<'_>, index: usize) {
        self.write_events(ctx, index);
        let Some(process) = self.accels[index].take() else {
            return;
        };
        let bytes = self.footprint(&process);
        ctx.busy(ctx.machine().chip.rx_rate.time(bytes));
        ctx.count(Counter::ACCEL_MOVED, 1);
        let record = Completion {
            tag: process.answers.wrapping_add(1).into(),
            code: MOVED.into(),
            data: [0; nic_model::defs::accel::COMPLETION_DATA],
        };
        ctx.host_write(process.completion, record.as_bytes());
        let flights = (0..).zip(process.flights).zip(process.requests);
        self.moved.push_back(Moved {
            ni: process.ni,
            mailbox: index,
            flights: flights
                .map(|((pending, flight), request)| (pending, flight, request))
                .filter(|(_, flight, _)| !matches!(flight, Flight::Idle))
                .collect(),
            awaited: process.awaited,
            bytes,
        });
        self.orphaned[index] = true;
        self.show_sram(ctx);
    }

    /// Tells the kernel that a pending of a process it has taken over has ended.
    pub(super) fn orphan_ended(
        &mut self,
        ctx: &mut FirmwareContext<'_>,
        index: usize,
        pending: u16,
        fail: NiFail,
    ) {
        if self.orphaned[index] {
            let kind = match fail {
                NiFail::OK => EventType::MOVED_END,
                NiFail::SEGV => EventType::MOVED_FAULT,
                _ => EventType::MOVED_FAILED,
            };
            let word = EventWord::new(kind, moved_index(index, pending));
            self.post(ctx, 0, word, true);
        }
    }
}
