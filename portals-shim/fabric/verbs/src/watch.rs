//! Requests that an adapter forgets: neither completed nor failed, with nothing on the wire.
//!
//! A reliable connection promises an end to every request. SoftRoCE of Linux 6.1 breaks that promise now and then: a
//! READ whose answer a link that goes down swallows may be left without its timer, and then nothing ever happens on
//! that queue pair again. So connections are looked at every [`LOOK`], and one whose oldest request has been under way
//! for longer than a working adapter takes is broken like one whose request failed, and mended (`link.rs`).
//!
//! # Invariants
//!
//! * A connection is judged only when the completion queue has been empty since the last look: a program that makes no
//!   call for long has a full queue, not a forgetful adapter. Nothing is polled here, since without a progress thread
//!   only the program's calls make progress.
//! * A process that was stopped judges nothing by the time it was away: it takes [`LOOKS`] looks, not time alone.

mod oldest;

use super::handshake::Stage;
use crate::verbs::Verbs;
pub(super) use oldest::Watch;
use std::time::{Duration, Instant};

/// How often connections are looked at.
pub(super) const LOOK: Duration = Duration::from_secs(2);
impl Verbs {
    /// When connections are to be looked at next; never without any.
    pub(super) fn next_look(&self) -> Option<Instant> {
        let any = self.peers.met() > 0;
        any.then_some(self.queues.looked() + LOOK)
    }

    /// Looks for forgotten requests, if it is time.
    pub(super) fn look_for_forgotten(&mut self, now: Instant) {
        if now < self.queues.looked() + LOOK || !self.queues.look(now) {
            return;
        }
        for at in 0..self.peers.met() {
            let Some(rank) = self.peers.met_at(at) else {
                break;
            };
            let Some(peer) = self.peer(rank) else {
                continue;
            };
            if !matches!(peer.session.stage(), Stage::Up | Stage::Opening(_)) || peer.sq.is_broken()
            {
                continue;
            }
            if peer.sq.has_forgotten(now) {
                tracing::warn!(
                    peer = rank,
                    "connection broken: the adapter neither completes nor fails a request"
                );
                peer.sq.set_broken(true);
                self.conn.pending += 1;
            }
        }
    }
}
