//! The mailbox: the ring of commands and the little ring of results of one process.
//!
//! ```text
//!    0  commands   63 x 64 B      4040  result read index     4048  command write index
//! 4032  results     2 x u32       4044  result write index    4052  command read index
//! ```
//!
//! An index counts `0..COMMANDS` (`0..RESULTS`) and wraps; a ring is empty when both are equal and
//! full when the next write index equals the read index. Reads across HyperTransport are slow:
//! a writer keeps its own write index and re-reads the read index only when the ring looks full.

use super::command::COMMAND_LEN;
use super::map::{MAILBOX_COUNT, MAILBOX_LEN, MAILBOXES};
use crate::host::RegisterIo;

/// Commands in the ring; one less can be outstanding.
pub const COMMANDS: u32 = 63;
/// Results in the ring; one less can be outstanding.
pub const RESULTS: u32 = 2;
/// Offset of the result ring.
pub const RESULT_RING: u32 = 4032;
/// Offset of the host's read index of the result ring.
pub const RESULT_READ: u32 = 4040;
/// Offset of the firmware's write index of the result ring.
pub const RESULT_WRITE: u32 = 4044;
/// Offset of the host's write index of the command ring; writing it is the doorbell.
pub const COMMAND_WRITE: u32 = 4048;
/// Offset of the firmware's read index of the command ring.
pub const COMMAND_READ: u32 = 4052;

const _: () = assert!(COMMANDS * COMMAND_LEN as u32 == RESULT_RING);
const _: () = assert!(RESULT_RING + 4 * RESULTS == RESULT_READ);

/// Address of byte `offset` of mailbox `mailbox` (process index - 1, taken modulo the mailboxes).
#[must_use]
pub const fn address(mailbox: u32, offset: u32) -> u32 {
    MAILBOXES + (mailbox % MAILBOX_COUNT) * MAILBOX_LEN + offset
}

/// Address of command entry `slot` (modulo [`COMMANDS`]) of mailbox `mailbox`.
#[must_use]
pub const fn command(mailbox: u32, slot: u32) -> u32 {
    address(mailbox, (slot % COMMANDS) * COMMAND_LEN as u32)
}

/// The index after `index` in the command ring.
#[must_use]
pub const fn next_command(index: u32) -> u32 {
    (index + 1) % COMMANDS
}

/// The index after `index` in the result ring.
#[must_use]
pub const fn next_result(index: u32) -> u32 {
    (index + 1) % RESULTS
}

/// Writes the 64 bytes of a command into entry `slot`; the doorbell is the caller's.
pub fn write_command(io: &mut dyn RegisterIo, mailbox: u32, slot: u32, bytes: &[u8; COMMAND_LEN]) {
    let mut at = command(mailbox, slot);
    for word in bytes.as_chunks::<4>().0 {
        io.write32(at, u32::from_le_bytes(*word));
        at += 4;
    }
}
