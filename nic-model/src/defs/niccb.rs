//! The NIC control block: counters and control words at 0xFFFFE000.

use super::map::NICCB;

/// A 32-bit word of the NIC control block, by its byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter(pub u16);

impl Counter {
    /// The address of the word.
    #[must_use]
    pub const fn address(self) -> u32 {
        NICCB + self.0 as u32
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident = $offset:literal;)+) => {
        impl Counter {
            $($(#[$doc])+ pub const $name: Self = Self($offset);)+

            /// Every word with a name, in the order of their offsets.
            pub const ALL: &'static [(&'static str, Self)] =
                &[$((stringify!($name), Self::$name)),+];
        }
    };
}

counters! {
    /// Version of the firmware's interface.
    VERSION = 0;
    /// Incremented by the firmware for as long as it lives.
    HEARTBEAT = 16;
    /// Messages dropped because no live process wanted them.
    STATELESS_DROPS = 24;
    /// Transmits ended.
    TX_COMPLETE = 36;
    /// Message headers taken in.
    RX_MESSAGE = 40;
    /// Deposits ended.
    RX_COMPLETE = 44;
    /// Interrupts raised.
    INTERRUPTS = 48;
    /// Messages with a sequence number that was not expected.
    SEQUENCE_ERRORS = 52;
    /// Incoming messages that hold an entry of the content-addressable memory.
    CAM_IN_USE = 56;
    /// Most entries ever held.
    CAM_HIGH_WATER = 60;
    /// Node whose message was dropped last.
    LAST_NID_DROPPED = 64;
    /// Packets taken from the network and thrown away.
    PACKETS_DRAINED = 80;
    /// Transmits waiting for the engine.
    TX_PENDING = 88;
    /// Messages that found every entry taken.
    CAM_OVERFLOW = 96;
    /// Own NID.
    LOCAL_NID = 168;
    /// Times the generic event queue had no room.
    EQ_NEARLY_FULL = 184;
    /// *Ours:* commands carried out.
    COMMANDS = 256;
    /// *Ours:* commands refused.
    COMMANDS_REJECTED = 260;
    /// *Ours:* messages that had to wait for a receive pending.
    RX_PENDING_WAITS = 264;
    /// *Ours:* transfers and writes that host memory refused.
    HOST_FAULTS = 268;
    /// *Ours:* events that could not be posted.
    EVENTS_LOST = 272;
    /// *Ours:* register accesses that nothing answered.
    BAD_ACCESSES = 276;
    /// *Ours:* interrupts that joined one not yet taken.
    INTERRUPTS_COALESCED = 280;
    /// *Ours:* interrupts raised while the interrupt register was zero.
    INTERRUPTS_MASKED = 284;
    /// *Ours:* doorbells with an index outside the ring.
    BAD_DOORBELLS = 288;
    /// *Ours:* results that found no room.
    RESULTS_LOST = 292;
    /// *Ours:* most payload bytes that waited at the node port for a decision.
    PORT_HIGH_WATER = 296;
    /// *Ours:* transfers that ended with a failure.
    TRANSFERS_FAILED = 300;
}
