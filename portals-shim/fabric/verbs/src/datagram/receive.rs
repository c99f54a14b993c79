//! What arrives: frames, which are matched, and the rest of their data.

use super::landings::{Landing, Refused};
use super::{After, DatagramNal, Long, PeerId};
use crate::frame::{self, Body as Frame, Ends};
use crate::trusted::MEMORY;
use host::awake::Awake;
use portals_core::{Body, Header, Incoming, Ni, NiFail, OpId};
use std::time::Duration;

/// How long a close waits for the next piece of data that nobody wants.
const SURPLUS: Duration = Duration::from_millis(300);

impl DatagramNal {
    /// Takes one frame. What cannot be read is counted and dropped.
    pub(super) fn frame(&mut self, ni: &mut Ni, id: PeerId, bytes: &[u8]) {
        let Some(peer) = self.peers.get(id) else {
            return;
        };
        let (rank, who, own) = (peer.rank, peer.who, self.peers.own_id());
        let ends = Ends {
            target: own,
            source: self.peers.process(rank).unwrap_or(own),
            who,
        };
        let (prefix, header, data) = match frame::parse(bytes, &ends) {
            Ok((prefix, Frame::Message { header, data })) => (prefix, header, data),
            Ok((_, Frame::Move(word))) => return self.word_came(id, word),
            other => {
                self.counters.bad_frames += 1;
                tracing::warn!(peer = rank, ?other, "frame dropped");
                return;
            }
        };
        if let Body::Ack { .. } | Body::Reply { .. } = header.body
            && let Some(peer) = self.peers.get_mut(id)
        {
            peer.expected.answered(&header);
        }
        let (landing, len) = (prefix.requests_done.get(), header.payload_len());
        let rest = len.saturating_sub(data.len() as u64);
        if rest > 0 && landing == 0 || data.len() as u64 > len {
            self.counters.bad_frames += 1;
            tracing::warn!(
                peer = rank,
                "frame dropped: its data is not what its header says"
            );
            return;
        }
        if self.acked_too_soon(&header, landing) {
            return;
        }
        match ni.handle_header(&header) {
            Incoming::Deposit(d) => {
                let keep = data
                    .len()
                    .min(usize::try_from(d.length).unwrap_or(usize::MAX));
                MEMORY.scatter(&d.segments, &data[..keep]);
                // What is cut off is waited for too: the initiator's SEND_END comes when all has been acked, and an ack of
                // the target must not come before it.
                if rest == 0 {
                    return self.deposited(ni, id, d.op, 0);
                }
                let landing_of = Landing {
                    op: Some(d.op),
                    segments: d.segments,
                    first: data.len() as u64,
                    keep: d.length,
                };
                let Some(peer) = self.peers.get_mut(id) else {
                    return;
                };
                match peer.landings.open(landing, landing_of) {
                    Ok(()) => self.rd.open(id, landing, rest),
                    Err(refused) => {
                        ni.deposit_end(d.op, NiFail::FAIL);
                        self.give_up(id, refused);
                    }
                }
            }
            Incoming::Reply(r) => {
                self.send_pieces(ni, id, &r.header, &r.segments, Some(After::Reply(r.op)));
            }
            Incoming::Swap(s) => {
                let mut old = Vec::new();
                MEMORY.gather(&s.segments, &mut old);
                let taken = data.get(..usize::try_from(s.length).unwrap_or(usize::MAX));
                let fail = match taken {
                    Some(taken) => {
                        MEMORY.scatter(&s.segments, taken);
                        NiFail::OK
                    }
                    None => NiFail::FAIL,
                };
                ni.swap_end(s.op, fail);
                self.send_bytes(id, &s.header, &old, 0);
                self.expect_surplus(id, landing, rest);
            }
            Incoming::Acked | Incoming::Dropped(_) => self.expect_surplus(id, landing, rest),
        }
    }

    /// A peer breaks the protocol: nothing is taken from it any more.
    fn give_up(&mut self, id: PeerId, why: Refused) {
        self.counters.bad_frames += 1;
        let peer = self.peers.get(id).map(|peer| peer.rank);
        tracing::error!(peer, "peer given up: {why}");
        self.rd.remove(id);
    }

    /// An ack of a put whose data the datagrams' own acks have not ended yet: it waits, so that SEND_END comes first (rule 27).
    fn acked_too_soon(&mut self, header: &Header, landing: u32) -> bool {
        if landing == 0 || !matches!(header.body, Body::Ack { .. }) {
            return false;
        }
        let waiting = self.longs.iter_mut().find_map(|(_, long)| match long {
            Long::Message {
                header: put,
                landing: its,
                ack,
                ..
            } if *its == landing && put.target == header.source && ack.is_none() => Some(ack),
            _ => None,
        });
        match waiting {
            Some(ack) => {
                *ack = Some(*header);
                true
            }
            None => false,
        }
    }

    /// The rest of a message will come, and nobody wants it. Its sender does not know that: until it has been told that
    /// all has arrived, a farewell would tell it that the message had failed.
    fn expect_surplus(&mut self, id: PeerId, landing: u32, rest: u64) {
        let peer = self.peers.get_mut(id);
        let Some(peer) = peer.filter(|_| rest > 0) else {
            return;
        };
        match peer.landings.open_unwanted(landing) {
            Ok(true) => self.rd.open(id, landing, rest),
            Ok(false) => {}
            Err(refused) => self.give_up(id, refused),
        }
    }

    /// All of a message is in place; of a long one at this landing, else 0.
    fn deposited(&mut self, ni: &mut Ni, id: PeerId, op: OpId, landing: u32) {
        if let Some(ack) = ni.deposit_end(op, NiFail::OK) {
            self.send_bytes(id, &ack, &[], landing);
        }
    }

    /// More data of a message whose header was matched.
    pub(super) fn place(
        &mut self,
        ni: &mut Ni,
        id: PeerId,
        landing: u32,
        offset: u64,
        data: &[u8],
        complete: bool,
    ) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let Some(place) = peer.landings.get(landing) else {
            return;
        };
        let at = place.first + offset;
        let keep = place.keep.saturating_sub(at).min(data.len() as u64) as usize;
        if keep > 0 {
            let to = Self::segments_from(&place.segments, at);
            MEMORY.scatter(&to, &data[..keep]);
        }
        if complete && let Some(op) = peer.landings.finish(landing).and_then(|place| place.op) {
            self.deposited(ni, id, op, landing);
        }
    }
}

/// How long a close waits for data that nobody wants: while it comes.
#[derive(Debug)]
pub(super) struct Surplus {
    /// Pieces that had come.
    pieces: u64,
    /// What is left of the time for the next one.
    left: Awake,
}

impl Surplus {
    pub(super) fn new() -> Self {
        Self {
            pieces: 0,
            left: Awake::new(SURPLUS),
        }
    }

    /// Whether nothing is to be waited for: `left` messages are not whole, and `pieces` have come so far.
    pub(super) fn is_over(&mut self, left: usize, pieces: u64) -> bool {
        if self.pieces != pieces {
            *self = Self {
                pieces,
                ..Self::new()
            };
        }
        left == 0 || self.left.is_over()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn unwanted_data_is_waited_for_while_it_comes_and_while_the_process_stands_still() {
        let mut surplus = Surplus::new();
        assert!(surplus.is_over(0, 0));
        for pieces in 0..3 {
            assert!(!surplus.is_over(1, pieces));
            surplus.left = Awake::since(SURPLUS, Instant::now() - 10 * SURPLUS);
            assert!(!surplus.is_over(1, pieces), "it stood still");
        }
        while !surplus.is_over(1, 2) {
            std::thread::yield_now();
        }
        assert!(!surplus.is_over(1, 3));
    }
}
