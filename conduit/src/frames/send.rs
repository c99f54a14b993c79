//! Frames that this rank sends.

use super::Neighbour;
use super::tag::{PLACE, Tag, place};
use crate::conduit::{Conduit, Scope};
use crate::fault::Fault;
use crate::matchbits::Category;
use crate::memory::Source;
use portals_shim::{EventKind, FRAME, Lane, NiFail};
use std::time::Duration;
use zerocopy::IntoBytes;

/// How often a rank that waits for room looks whether the peer still lives.
const LOOK: Duration = Duration::from_millis(100);

/// Looks for room before a rank offers its core to others, of which the reader may be one, and offers before it waits
/// as for anything else. A reader that runs makes room in less than a microsecond.
const SPINS: u32 = 50;
const OFFERS: u32 = 20;

/// Bytes of the largest message.
pub(super) const LARGEST: usize = 4 * crate::am::limits::MAX_ARGS + crate::am::limits::MAX_MEDIUM;
const _: () = assert!(LARGEST <= FRAME);

impl Neighbour {
    /// The lanes as they are.
    #[cfg(test)]
    pub(crate) fn link(&self) -> &portals_shim::Link {
        &self.link
    }

    /// Sends a request; with `shared` other threads may do so too.
    #[inline]
    pub(crate) fn try_request(&self, shared: bool, tag: Tag, head: &[u8], body: &[u8]) -> bool {
        let _turn = shared.then(|| self.turn.take());
        let sent = self.link.try_send(Lane::Requests, tag.encode(), head, body);
        if sent {
            self.requests_sent.add();
        }
        sent
    }
}

impl Neighbour {
    /// Whether a request of `len` bytes finds room; where not, the peer wakes this rank when it has made some.
    pub(crate) fn has_room(&self, shared: bool, len: usize) -> bool {
        let _turn = shared.then(|| self.turn.take());
        self.link.has_room(Lane::Requests, len) || !self.link.waits_for_room(Lane::Requests, len)
    }
}

impl Conduit {
    /// The rank `node`, if active messages to it are frames.
    #[inline]
    pub(crate) fn neighbour(&self, node: u32) -> Option<&Neighbour> {
        self.neighbours.get()?.find(node)
    }

    /// Sends a checked request, and polls. `body`: of a Medium its payload, of a Long what [`Conduit::place_near`] gave.
    #[inline]
    pub(crate) fn request_near(&self, to: &Neighbour, tag: Tag, args: &[i32], body: &[u8]) {
        let head = args.as_bytes();
        if !to.try_request(self.gate.is_some(), tag, head, body) {
            self.request_near_in_time(to, tag, head, body);
        }
        self.poll_after_frame();
    }

    /// Polls until there is room.
    #[cold]
    fn request_near_in_time(&self, to: &Neighbour, tag: Tag, head: &[u8], body: &[u8]) {
        to.waited.add();
        let len = head.len() + body.len();
        let mut look = self.now() + LOOK.as_nanos() as u64;
        let mut tries = 0;
        while !to.try_request(self.gate.is_some(), tag, head, body) {
            tries += 1;
            if tries < SPINS + OFFERS {
                if self.poll_near(Scope::Full) || tries < SPINS {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
                continue;
            }
            let room = || to.has_room(self.gate.is_some(), len);
            self.wait_step_or("sending a request", Scope::Full, Some(LOOK), Some(&room));
            if self.now() >= look {
                self.expect_alive(to);
                look = self.now() + LOOK.as_nanos() as u64;
            }
        }
    }

    /// Ends the job if a peer will not take what waits for it.
    fn expect_alive(&self, peer: &Neighbour) {
        if peer.link.is_gone() {
            let fault = Fault::Network {
                event: EventKind::SendEnd,
                fail: NiFail::FAIL,
                node: Some(peer.node),
            };
            self.fatal("sending a request", &fault);
        }
    }

    /// Sends the reply to a request that came as a frame, for which there is room.
    pub(crate) fn reply_near(&self, node: u32, tag: Tag, args: &[i32], body: &[u8]) {
        let sent = self.neighbour(node).is_some_and(|to| {
            to.replies_sent.add();
            to.link
                .try_send(Lane::Replies, tag.encode(), args.as_bytes(), body)
        });
        if !sent {
            let fault = Fault::Malformed {
                node,
                what: "handled without a reply's resources",
            };
            self.fatal("sending a reply", &fault);
        }
    }

    /// Copies the payload of a Long to `offset` of the segment of `to`, and gives what its frame says of it.
    pub(crate) fn place_near(&self, to: &Neighbour, source: &Source, offset: u64) -> [u8; PLACE] {
        let len = source.len();
        let copied = match &to.window {
            Some((region, start)) if len > 0 => {
                let core = self.core.borrow();
                core.copy_source(source, region, start + offset as usize)
            }
            _ => Ok(()),
        };
        self.check("the payload of a Long", copied);
        place(offset, len)
    }
}

impl Tag {
    #[inline]
    pub(crate) const fn new(category: Category, handler: u8, args: usize) -> Self {
        Self {
            category,
            args,
            handler,
        }
    }
}
