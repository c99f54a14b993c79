//! What an endpoint is made with.

/// Nanoseconds from an origin of the user's choice; must not run backwards.
pub type Time = u64;

/// Which queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channel {
    /// Acks and tiny fragments.
    Command,
    /// Everything else.
    Data,
}

/// Size of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelConfig {
    /// Bytes of the longest datagram, head included; at least 64.
    pub mtu: usize,
    /// Datagrams that may be posted and not yet reported by [`Endpoint::handle_sent`](super::Endpoint::handle_sent).
    pub depth: u32,
}

/// When to send again what is not acked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retransmit {
    /// Always after this time; nanoseconds.
    Fixed(Time),
    /// After a time that follows the round trip and grows with each expiry; nanoseconds.
    Adaptive {
        /// Before anything is known.
        initial: Time,
        /// The least.
        least: Time,
        /// The most.
        most: Time,
    },
}

/// How many segments may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// The number that the window allows.
    None,
    /// The number that gets through, and that the receiver wants.
    Adaptive {
        /// Before anything is known.
        initial: u16,
    },
}

/// What an endpoint is made with. All of a job must have the same `window`, `mtu`s and `checksum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Numbers that may be unacked, 1 to 4096.
    pub window: u16,
    /// The channel of acks and tiny fragments.
    pub command: ChannelConfig,
    /// The channel of the rest.
    pub data: ChannelConfig,
    /// Datagrams of one peer that may be posted and not yet reported, so that no peer takes a whole channel.
    pub peer_credits: u16,
    /// How many segments must have overtaken another before that is taken for lost; 1 is the first sign.
    pub reorder: u16,
    /// By how many segments of a peer the command channel may overtake its data channel.
    pub cross: u16,
    /// Urgent fragments that may go before a waiting one that is not; 64 or more where both ends of a pair owe each other urgent
    /// ones for what they take (`send.rs` has the proof).
    pub overtake: u8,
    /// Urgent fragments that may wait for a peer before nothing more is taken from it; 8 times what either end may have under
    /// way, where both owe each other.
    pub owed: u32,
    /// Received segments after which an ack does not wait.
    pub ack_every: u16,
    /// How long an ack waits for something to ride on.
    pub ack_delay: Time,
    /// Retransmission times.
    pub retransmit: Retransmit,
    /// Congestion control.
    pub congestion: Congestion,
    /// Segments that may be on their way to this process in all: the receives that are posted.
    pub receives: u32,
    /// How long a peer may say nothing to what it is sent before it is given up. That it takes nothing yet is an answer.
    pub give_up: Time,
    /// Bytes kept of one peer's segments out of order.
    pub hold: usize,
    /// Bytes of unfinished fragments, all peers together.
    pub reassembly: usize,
    /// Bytes of the longest fragment.
    pub longest: u32,
    /// The check covers data too; without, the wire's own checksum must.
    pub checksum: bool,
}

impl Default for Config {
    fn default() -> Self {
        const MS: Time = 1_000_000;
        Self {
            window: 4096,
            command: ChannelConfig {
                mtu: 768,
                depth: 128,
            },
            data: ChannelConfig {
                mtu: 4096,
                depth: 256,
            },
            peer_credits: 64,
            reorder: 3,
            cross: 2,
            overtake: 8,
            owed: 8 * 1024,
            ack_every: 16,
            ack_delay: MS / 20,
            retransmit: Retransmit::Adaptive {
                initial: 5 * MS,
                least: MS,
                most: 200 * MS,
            },
            congestion: Congestion::Adaptive { initial: 32 },
            receives: 1024,
            give_up: 10_000 * MS,
            hold: 1 << 20,
            reassembly: 16 << 20,
            longest: 4 << 20,
            checksum: false,
        }
    }
}
