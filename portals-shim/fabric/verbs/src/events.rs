//! What the device tells by itself, and when somebody has to look after connections.

use super::advice::unusable_device;
use super::verbs::Verbs;
use portals_core::Ni;
use std::time::{Duration, Instant};
use verbs_backend::Event;

/// How often a port that cannot send is tried again.
const RETRY: Duration = Duration::from_millis(100);

impl Verbs {
    pub(super) fn device_events(&mut self, ni: &mut Ni) -> bool {
        let mut any = false;
        while !self.gone {
            let event = match self.adapter.device().take_event() {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    self.device_gone(ni, &error);
                    return true;
                }
            };
            any = true;
            match event {
                Event::DeviceGone => {
                    self.device_gone(ni, &"it was taken away or has failed");
                }
                Event::PortDown(port) if port == self.adapter.port() => {
                    tracing::warn!(device = self.adapter.device().name(), port, "port is down");
                }
                Event::PortUp(port) if port == self.adapter.port() => {
                    tracing::warn!(device = self.adapter.device().name(), port, "port is up");
                }
                Event::CompletionQueue | Event::ReceiveQueue => {
                    self.device_gone(ni, &"a queue of it is broken");
                }
                Event::QueuePair { qpn, code } => {
                    tracing::debug!(qpn, code, "queue pair failed");
                    if let Some(rank) = self.peers.by_qpn(qpn)
                        && let Some(peer) = self.peer(rank)
                    {
                        peer.sq.set_broken(true);
                        self.conn.pending += 1;
                    }
                }
                _ => {}
            }
        }
        any
    }

    /// Nothing works any more: every operation ends with a failure.
    pub(super) fn device_gone(&mut self, ni: &mut Ni, why: &dyn std::fmt::Display) {
        if !std::mem::replace(&mut self.gone, true) {
            tracing::error!("{}", unusable_device(self.adapter.device().name(), why));
        }
        for rank in 0..self.peers.len() {
            if self.peers.get(rank).is_some_and(|p| !p.is_failed()) {
                self.fail_peer(ni, rank, &"the device is gone");
            }
        }
        // The kernel waits for the end of all that its connection manager has given out.
        self.conn.joiner = None;
    }

    /// When [`Verbs::tend`] has something to do.
    pub(super) fn next_time(&self) -> Option<Instant> {
        let now = Instant::now();
        let timers = self.peers.iter().filter_map(|(_, p)| p.session.timer);
        let next = (self.conn.pending > 0)
            .then(|| timers.map(|t| t.next()).min())
            .flatten();
        let retry = self.conn.mail.is_down().then(|| now + RETRY);
        let all = [next, retry, self.next_look(), self.rings.next_look()];
        all.into_iter().flatten().min()
    }
}
