//! Datagrams that are with the adapter: of each channel, and of each peer.

use super::config::{Channel, Config};
use std::collections::VecDeque;

/// Of a datagram without a numbered segment.
pub(super) const NO_SEGMENT: u64 = u64::MAX;

/// Datagrams posted on each channel and not reported, in order: the peer, and the segment's number.
///
/// # Invariants
///
/// A channel has at most as many as its depth, and datagrams leave it in the order in which they were posted.
#[derive(Debug, Default)]
pub(super) struct Posted {
    command: VecDeque<(u32, u64)>,
    data: VecDeque<(u32, u64)>,
}

impl Posted {
    #[inline]
    const fn queue(&self, channel: Channel) -> &VecDeque<(u32, u64)> {
        match channel {
            Channel::Command => &self.command,
            Channel::Data => &self.data,
        }
    }

    #[inline]
    const fn queue_mut(&mut self, channel: Channel) -> &mut VecDeque<(u32, u64)> {
        match channel {
            Channel::Command => &mut self.command,
            Channel::Data => &mut self.data,
        }
    }

    #[inline]
    pub(super) fn len(&self, channel: Channel) -> usize {
        self.queue(channel).len()
    }

    /// Whether a channel takes one more datagram.
    #[inline]
    pub(super) fn has_credit(&self, config: &Config, channel: Channel) -> bool {
        let depth = match channel {
            Channel::Command => config.command.depth,
            Channel::Data => config.data.depth,
        };
        self.len(channel) < depth as usize
    }

    /// Whether the command channel takes a fragment; a quarter of it is for acks.
    #[inline]
    pub(super) fn has_room_beside_acks(&self, config: &Config) -> bool {
        let depth = config.command.depth;
        self.command.len() < (depth - depth / 4) as usize
    }

    /// A datagram goes to the adapter.
    #[inline]
    pub(super) fn push(&mut self, channel: Channel, peer: u32, seq: u64) {
        self.queue_mut(channel).push_back((peer, seq));
    }

    /// The oldest one of a channel has left.
    #[inline]
    pub(super) fn pop(&mut self, channel: Channel) -> Option<(u32, u64)> {
        self.queue_mut(channel).pop_front()
    }
}

/// Segments of one peer that are with the adapter.
///
/// # Invariants
///
/// Those on the data channel are among all. `crossed` on the command channel have gone past them; it is 0 while there are none.
#[derive(Debug, Default)]
pub(super) struct PeerPosted {
    all: u16,
    data: u16,
    crossed: u16,
}

impl PeerPosted {
    /// Whether one more may be posted, of at most `credits`.
    #[inline]
    pub(super) const fn has_credit(&self, credits: u16) -> bool {
        self.all < credits
    }

    /// Whether one may go past those on the data channel, if that channel may be overtaken by `cross`.
    #[inline]
    pub(super) const fn may_cross(&self, cross: u16) -> bool {
        // All that is on the data channel is overtaken, by all that goes past it.
        self.data == 0 || self.data + self.crossed <= cross
    }

    #[inline]
    pub(super) const fn post(&mut self, channel: Channel) {
        self.all += 1;
        match channel {
            Channel::Data => self.data += 1,
            Channel::Command if self.data > 0 => self.crossed += 1,
            Channel::Command => {}
        }
    }

    /// One has left.
    #[inline]
    pub(super) const fn left(&mut self, channel: Channel) {
        self.all = self.all.saturating_sub(1);
        if matches!(channel, Channel::Data) {
            self.data = self.data.saturating_sub(1);
            if self.data == 0 {
                self.crossed = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rd::ChannelConfig;

    #[test]
    fn a_channel_takes_its_depth_and_keeps_a_quarter_for_acks() {
        let mut config = Config::default();
        (config.command.depth, config.data) = (8, ChannelConfig { depth: 2, mtu: 64 });
        let mut posted = Posted::default();
        for n in 0..6 {
            assert!(posted.has_room_beside_acks(&config));
            posted.push(Channel::Command, 0, n);
        }
        assert!(!posted.has_room_beside_acks(&config));
        assert!(posted.has_credit(&config, Channel::Command));
        for n in 0..2 {
            assert!(posted.has_credit(&config, Channel::Data));
            posted.push(Channel::Data, 1, n);
        }
        assert!(!posted.has_credit(&config, Channel::Data));
        assert_eq!(posted.pop(Channel::Data), Some((1, 0)));
        assert!(posted.has_credit(&config, Channel::Data));
        let lens = [Channel::Command, Channel::Data].map(|c| posted.len(c));
        assert_eq!(lens, [6, 1]);
    }

    #[test]
    fn the_command_channel_goes_past_few_of_the_data_channel() {
        let mut posted = PeerPosted::default();
        for _ in 0..9 {
            assert!(posted.may_cross(2), "nothing is there to go past");
            posted.post(Channel::Command);
        }
        posted.post(Channel::Data);
        assert!(posted.may_cross(2));
        posted.post(Channel::Command);
        assert!(posted.may_cross(2));
        posted.post(Channel::Command);
        assert!(!posted.may_cross(2), "one was overtaken by two");
        posted.left(Channel::Command);
        assert!(!posted.may_cross(2), "it went past all the same");
        posted.left(Channel::Data);
        assert!(posted.may_cross(2));
        posted.post(Channel::Data);
        assert!(posted.may_cross(1), "it was overtaken by none");
    }

    #[test]
    fn a_peer_has_its_credits_on_both_channels_together() {
        let mut posted = PeerPosted::default();
        posted.post(Channel::Command);
        posted.post(Channel::Data);
        assert!(posted.has_credit(3) && !posted.has_credit(2));
        posted.left(Channel::Command);
        assert!(posted.has_credit(2));
        // More reports than datagrams do no harm.
        for _ in 0..3 {
            posted.left(Channel::Data);
        }
        assert!(posted.has_credit(1) && !posted.has_credit(0));
    }
}
