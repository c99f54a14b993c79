//! What a channel counts.

/// Counts since the start; nothing is reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Datagrams sent, of every kind.
    pub sends: u64,
    /// Whole fragments sent, first time.
    pub fragment_sends: u64,
    /// Chunks sent, first time.
    pub chunk_sends: u64,
    /// Put segments sent, first time.
    pub put_sends: u64,
    /// Explicit acks sent.
    pub ack_sends: u64,
    /// Segments sent again.
    pub resends: u64,
    /// Of these, because of a timer.
    pub timeouts: u64,
    /// Of these, because of what acks said.
    pub fast_resends: u64,
    /// Timers that ran out while the segment had not left this side yet.
    pub renewals: u64,
    /// Datagrams that arrived, of every kind.
    pub receives: u64,
    /// Whole fragments received, once each.
    pub fragment_receives: u64,
    /// Chunks received, once each.
    pub chunk_receives: u64,
    /// Put segments received, once each.
    pub put_receives: u64,
    /// Explicit acks received.
    pub ack_receives: u64,
    /// Dropped: shorter than its head.
    pub short: u64,
    /// Dropped: of an unknown kind.
    pub unknown_kind: u64,
    /// Dropped: of a number that no peer has.
    pub unknown_sender: u64,
    /// Dropped: check wrong; truncated, corrupted, forged, or very late.
    pub bad_check: u64,
    /// Dropped: of a peer that has been given up.
    pub from_dead: u64,
    /// Dropped and acked: before the window, so it had arrived.
    pub window_low: u64,
    /// Dropped: after the window.
    pub window_high: u64,
    /// Dropped and acked: within the window, and here already.
    pub duplicates: u64,
    /// Dropped: a chunk outside its fragment, at odds with the fragment's other chunks, or of a fragment too long.
    pub bad_chunk: u64,
    /// Dropped: a put segment outside its landing.
    pub bad_put: u64,
    /// Dropped: an ack of what was never sent.
    pub bad_ack: u64,
    /// Arrived out of order, and kept.
    pub held: u64,
    /// Dropped: the memory for segments out of order is used up. They come again.
    pub hold_refused: u64,
    /// Dropped: the memory for unfinished fragments is used up. They come again.
    pub reassembly_refused: u64,
    /// Dropped: too many urgent fragments wait for their sender. They come again.
    pub owed_refused: u64,
    /// Put segments whose message the receiver did not want.
    pub unwanted_puts: u64,
    /// Acks older than what is known.
    pub old_acks: u64,
    /// Acks that say what is known.
    pub duplicate_acks: u64,
    /// Peers given up because they did not answer.
    pub given_up: u64,
    /// Most segments that were unacked at one peer.
    pub most_unacked: u64,
    /// Most urgent fragments that waited for one peer.
    pub most_owed: u64,
    /// Farthest that a segment was ahead of its order.
    pub most_ahead: u64,
}

impl Stats {
    /// Datagrams that were dropped as bad input.
    pub const fn dropped(&self) -> u64 {
        self.short
            + self.unknown_kind
            + self.unknown_sender
            + self.bad_check
            + self.from_dead
            + self.window_high
            + self.bad_chunk
            + self.bad_put
            + self.bad_ack
    }
}
