//! Sizes of active messages, and the indexes of their handlers.

use crate::chunks::CHUNK;

/// Most arguments of an active message.
pub const MAX_ARGS: usize = 16;
/// Largest payload of a Medium, bytes.
pub const MAX_MEDIUM: usize = CHUNK - 4 * MAX_ARGS;
/// Largest payload of a Long, bytes.
pub const MAX_LONG: usize = 1 << 30;
/// Largest payload of a Long that travels with its header, bytes; that of any Long reply where memory is pinned when it
/// is needed ([`crate::Conduit::attach_large`], [`crate::Conduit::attach_everything`]).
pub const MAX_PACKED: usize = CHUNK - 4 * MAX_ARGS - 8;
/// First handler index of clients; lower ones are the conduit's.
pub const FIRST_HANDLER: u8 = 128;

/// First handler index of layers between the conduit and the client.
pub const FIRST_EXTENDED: u8 = 64;

/// The reply sent for a handler that did not reply; runs nothing.
pub(crate) const NOOP_REPLY: u8 = 2;

/// `n` bytes in whole 8-byte words.
pub(crate) const fn round8(n: usize) -> usize {
    (n + 7) & !7
}
