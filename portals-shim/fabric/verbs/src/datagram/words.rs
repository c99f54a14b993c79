//! What a fabric that has connections too says to a peer by datagrams, and is told.

use super::{DatagramNal, Long, PeerId};
use crate::frame::{Kind, WORD, Writer};
use fabric_api::bell::Bell;
use portals_core::{Ni, NiFail};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use verbs_backend::rd::{Priority, Time};

/// Words of a peer that wait to be looked at. It says fewer before it waits for an answer, if it means them.
const WORDS: u8 = 16;

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// A peer has said this word.
    Word { rank: usize, word: u8 },
    /// A word has arrived at this peer, and all that was sent to it before has had its effect.
    Arrived { rank: usize },
    /// A peer was given up, or has said farewell.
    Gone { rank: usize, said: bool },
}

impl DatagramNal {
    /// News are kept from here on.
    pub(crate) fn keep_news(&mut self) {
        self.news = Some(VecDeque::new());
    }

    /// Whether there are any.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.news.as_ref().is_some_and(|n| !n.is_empty())
    }

    /// The oldest news.
    pub(crate) fn next_news(&mut self) -> Option<News> {
        let next = self.news.as_mut()?.pop_front()?;
        if let News::Word { rank, .. } = next
            && let Some(peer) = self.peers.of_rank_mut(rank)
        {
            peer.words = peer.words.saturating_sub(1);
        }
        Some(next)
    }

    pub(super) fn note(&mut self, news: News) {
        if let Some(all) = &mut self.news {
            all.push_back(news);
        }
    }

    /// A peer has said a word. If nobody listens, or it says more than can be meant, that is counted and dropped.
    pub(super) fn word_came(&mut self, id: PeerId, word: u8) {
        let Some(peer) = self.peers.get_mut(id) else {
            return;
        };
        let rank = peer.rank;
        if self.news.is_none() || peer.words >= WORDS {
            self.counters.bad_frames += 1;
            tracing::warn!(peer = rank, word, "word dropped");
            return;
        }
        peer.words += 1;
        self.note(News::Word { rank, word });
    }

    pub(super) fn word_ended(&mut self, rank: usize, fail: NiFail) {
        // Of one that did not arrive, the peer is gone.
        if fail == NiFail::OK {
            self.note(News::Arrived { rank });
        }
    }

    /// Says a word to a peer, after all that was sent to it; `tells` when it has arrived.
    pub(crate) fn say(&mut self, rank: usize, word: u8, tells: bool) {
        let Some(peer) = self.meet(rank) else { return };
        let mut bytes = SmallVec::<[u8; 128]>::new();
        bytes.resize(WORD, 0);
        Writer::new(&mut bytes, Kind::Move, false).push(&[word]);
        let tag = if tells {
            self.longs.insert(Long::Word(rank)) as u64 + 1
        } else {
            0
        };
        if let Err(error) = self.send_frame(peer, bytes, tag, Priority::Last) {
            tracing::debug!(peer = rank, %error, "word not said");
            if tells {
                let _ = self.longs.try_remove(tag as usize - 1);
            }
        }
        self.flush();
    }

    /// Ends all that is under way to a peer that is gone, as was found out elsewhere; `said` if it has closed in good order.
    pub(crate) fn drop_peer(&mut self, ni: &mut Ni, rank: usize, said: bool) {
        if let Some(id) = self.peers.known(rank) {
            if let Some(peer) = self.peers.get_mut(id) {
                peer.left |= said;
            }
            self.rd.remove(id);
            self.events(ni);
        }
    }

    /// The time of the last look at the clock; nanoseconds of its own.
    pub(crate) fn now(&self) -> Time {
        self.time.now()
    }

    /// When a time is.
    pub(crate) fn time_of(&self, at: Time) -> Option<std::time::Instant> {
        self.time.instant(at)
    }

    /// What wakes the attendant.
    pub(crate) fn bell(&self) -> &Arc<Bell> {
        self.sleep.bell()
    }

    /// How many peers were talked to.
    pub(crate) fn peer_count(&self) -> usize {
        self.peers.count()
    }
}
