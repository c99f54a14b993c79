//! What a user may choose, and the sizes that follow.

use crate::context::MOST_CONTEXTS;
use crate::error::OpenError;
use crate::header::OPERATIONS;
use crate::layout::{Layout, NO_RESERVED_BITS, TagMode};

/// The choices. All ranks of a job make the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// The layout of the match bits.
    pub mode: TagMode,
    /// Leading zeros are bits that the layout leaves alone (libfabric's `mem_tag_format`).
    pub format: u64,
    /// Events handled by one call at most; 100 (`mtl_ofi_progress_event_cnt`).
    pub events_per_call: u32,
    /// Contexts, 1 to 6.
    pub contexts: u16,
    /// Communicators take contexts in turn; otherwise all have the first (`mtl_ofi_thread_grouping`).
    pub thread_grouping: bool,
    /// Several threads use one context: a blocking call polls and leaves the lock to others meanwhile.
    pub threads: bool,
    /// The longest message, bytes, that is sent without the receiver's knowledge.
    pub short: usize,
    /// Memory, bytes, of a context for short messages that came before their receive; less than 2 messages a peer is
    /// not possible.
    pub overflow: usize,
    /// Requests of a context at one time.
    pub requests: u32,
    /// Memory, bytes, of a context for what is known of messages that came before their receive and whose data their senders
    /// keep: long ones, and short ones beyond what `overflow` has room for; some 100 bytes each. Senders of more wait until
    /// something is received.
    pub unexpected: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: TagMode::Auto,
            format: NO_RESERVED_BITS,
            events_per_call: 100,
            contexts: 1,
            thread_grouping: false,
            threads: false,
            short: 8192,
            overflow: 64 << 20,
            requests: 8192,
            unexpected: 64 << 20,
        }
    }
}

/// Most credits of a peer.
const MOST_CREDITS: u64 = 64;
/// Overflow buffers of a context.
pub(crate) const OVERFLOW_BUFFERS: usize = 4;

impl Options {
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let bad = |option, value, reason| {
            Err(OpenError::Option {
                option,
                value,
                reason,
            })
        };
        if self.contexts == 0 || self.contexts > MOST_CONTEXTS {
            return bad("contexts", u64::from(self.contexts), "1 to 6");
        }
        if self.events_per_call == 0 {
            return bad("events_per_call", 0, "at least 1");
        }
        if self.short == 0 || self.short > 1 << 20 {
            return bad("short", self.short as u64, "1 to 1048576");
        }
        if self.requests == 0 || self.requests > OPERATIONS {
            return bad("requests", u64::from(self.requests), "1 to 1048576");
        }
        Ok(())
    }

    /// Credits of each peer: short messages that may come before their receive.
    pub fn credits(&self, peers: u64) -> u16 {
        let all = self.overflow as u64 / (self.short as u64 * 2);
        (all / peers.max(1)).clamp(1, MOST_CREDITS) as u16
    }

    /// A hash of what all ranks have to choose alike, of 62 bits.
    pub(crate) fn hash(&self, layout: &Layout, peers: u64) -> u64 {
        let (cid, source, tag) = layout.widths();
        let chosen = [
            u64::from(cid),
            u64::from(source),
            u64::from(tag),
            u64::from(layout.is_full()),
            self.format,
            self.short as u64,
            u64::from(self.credits(peers)),
            u64::from(self.contexts),
            u64::from(self.thread_grouping),
        ];
        let bytes = chosen.iter().flat_map(|value| value.to_le_bytes());
        // FNV-1a.
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        hash >> 2
    }

    /// Half of what all credits may bring, and a message that a buffer's end has no room for. Four of these hold: what
    /// all credits brought and nobody has looked at, what was received of the buffer that is being filled, and the ends
    /// without room.
    pub(crate) fn overflow_buffer_bytes(&self, peers: u64) -> usize {
        let all = peers as usize * usize::from(self.credits(peers)) * self.short;
        all.div_ceil(2).max(self.short) + self.short
    }
}
