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
    /// Known as "food": a pattern that shows a live image; the firmware writes [`ALIVE`].
    FOOD = 4;
    /// Heartbeat of the host; unused.
    HOST_HEARTBEAT = 8;
    /// Where the firmware's log goes on; unused here.
    LOG_WRITE = 12;
    /// Ticks of the firmware's clock for as long as it lives.
    HEARTBEAT = 16;
    /// Firmware address of host memory; unused here.
    HOST_BASE = 20;
    /// Messages dropped because no live process wanted them, or for want of a source structure.
    STATELESS_DROPS = 24;
    /// When the image was built; unused here.
    BUILD_TIME = 28;
    /// The same as `HOST_BASE`; unused here.
    HOSTBASE = 32;
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
    /// Why the firmware stopped, one of [`crash`]; zero while it runs.
    CRASH_CONTROL = 68;
    /// The heartbeat at which it stopped.
    CRASH_HEARTBEAT = 72;
    /// Source structures left.
    SOURCE_FREELIST = 76;
    /// Packets taken from the network and thrown away.
    PACKETS_DRAINED = 80;
    /// Transmit pending at the engine, all ones when it is idle.
    TX_PENDING_HEAD = 84;
    /// Transmits waiting for the engine.
    TX_PENDING = 88;
    /// Transmit pending that ended last.
    TX_COMPLETION = 92;
    /// Messages that found every entry taken.
    CAM_OVERFLOW = 96;
    /// Datagrams sent.
    IP_TX = 100;
    /// Datagrams not sent.
    IP_TX_DROPPED = 104;
    /// Datagrams received.
    IP_RX = 108;
    /// Datagrams dropped: no buffer, too long, or damaged.
    IP_RX_DROPPED = 112;
    /// Receive credits, write index; unused here.
    RX_CREDIT_WRITE = 116;
    /// Receive credits, read index; unused here.
    RX_CREDIT_READ = 120;
    /// Assignment of CAM entries; unused here.
    CAM_ASSIGNMENT_HEAD = 124;
    /// Assignment of CAM entries; unused here.
    CAM_ASSIGNMENT_MAP = 128;
    /// CAM entries left.
    CAM_FREELIST = 132;
    /// Small-message buffers in use (accelerated processes).
    SMB_IN_USE = 136;
    /// Most small-message buffers ever in use.
    SMB_HIGH_WATER = 140;
    /// Machine-check statistics, 16 bytes; unused here.
    MACHINE_CHECK = 144;
    /// Command of the RAS controller; unused here.
    L0_COMMAND = 160;
    /// Answer to it; unused here.
    L0_RESPONSE = 164;
    /// Own NID in the low half, flags of virtual channel 2 in the high half.
    LOCAL_NID = 168;
    /// Times the generic event queue had no room.
    EQ_NEARLY_FULL = 184;
    /// Sequence recovery at boot: last release in the low half, node booted in the high half.
    BEER = 188;
    /// Trace buffer, 32 bytes; unused here.
    TRACE_BUFFER = 192;
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
    /// *Ours:* refusals sent to peers.
    NACKS_SENT = 304;
    /// *Ours:* refusals from peers.
    NACKS_RECEIVED = 308;
    /// *Ours:* messages sent again.
    RESENT = 312;
    /// *Ours:* questions to silent peers.
    PROBES_SENT = 316;
    /// *Ours:* messages given up because their peer did not take them.
    GIVEN_UP = 320;
    /// *Ours:* headers that failed their CRC.
    HEADER_CRC_ERRORS = 324;
    /// *Ours:* payloads that failed their end-to-end CRC, or of which a part was missing.
    PAYLOAD_CRC_ERRORS = 328;
    /// *Ours:* transmits begun without one of the `dma_slots` slots of the engines.
    BEYOND_SLOTS = 332;
    /// *Ours:* messages in flight, out and in.
    IN_FLIGHT = 336;
    /// *Ours:* protocol packets that made no sense.
    BAD_CONTROL = 340;
    /// *Ours:* packets that reached a node whose firmware has stopped.
    DEAD_PACKETS = 344;
    /// *Ours:* source structures of idle peers that were written to host memory.
    CONTEXTS_SAVED = 348;
    /// *Ours:* contexts read back from there.
    CONTEXTS_FETCHED = 352;
    /// *Ours:* messages that waited for a source structure.
    SOURCE_WAITS = 356;
    /// *Ours:* bytes of SRAM that accelerated processes may still take.
    ACCEL_SRAM_LEFT = 400;
    /// *Ours:* headers matched for accelerated processes.
    ACCEL_MATCHED = 404;
    /// *Ours:* match entries looked at for them.
    ACCEL_SEARCHED = 408;
    /// *Ours:* events written into queues of accelerated processes.
    ACCEL_EVENTS = 412;
    /// *Ours:* processes given to the kernel because SRAM was full.
    ACCEL_MOVED = 416;
    /// *Ours:* messages that had to wait for a pending of an accelerated process.
    ACCEL_RX_WAITS = 420;
    /// *Ours:* commands that had to wait for one.
    ACCEL_TX_WAITS = 424;
}

/// What [`Counter::FOOD`] holds once the firmware runs; *ours*.
pub const ALIVE: u32 = 0x600D_F00D;

/// Reasons in [`Counter::CRASH_CONTROL`]; *ours*.
pub mod crash {
    /// No receive pending for a message, and the machine stops at that (2005).
    pub const NO_RX_PENDING: u32 = 1;
    /// No source structure for a peer, and the machine stops at that.
    pub const NO_SOURCE: u32 = 2;
    /// No CAM entry for a message, and the machine stops at that.
    pub const NO_CAM: u32 = 3;
    /// Stopped from outside: a failed node.
    pub const STOPPED: u32 = 4;
    /// The host wrote this register, or any other value that is not zero.
    pub const HOST: u32 = 5;
}
