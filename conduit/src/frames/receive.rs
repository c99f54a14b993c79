//! Frames that this rank takes.

use super::send::LARGEST;
use super::tag::{PLACE, Tag};
use super::{Neighbour, Neighbours};
use crate::am::{MAX_ARGS, MAX_MEDIUM, Payload, ReplyPath};
use crate::conduit::{Conduit, Scope};
use crate::fault::Fault;
use crate::matchbits::Category;
use portals_shim::{Frame, Lane};
use zerocopy::IntoBytes;

impl Neighbours {
    /// Whether a poll of this scope would take a frame. Where one is there that must not be taken yet, the requester
    /// wakes this rank when it has taken replies.
    #[inline]
    pub(crate) fn has_frame(&self, scope: Scope) -> bool {
        self.callers().any(|n| {
            n.link.is_ready(Lane::Replies)
                || (scope == Scope::Full
                    && n.link.is_ready(Lane::Requests)
                    && (n.link.has_room(Lane::Replies, LARGEST)
                        || !n.link.waits_for_room(Lane::Replies, LARGEST)))
        })
    }

    /// Whether a thread that has sent a frame should poll. For any thread: it may err where another one polls.
    #[inline]
    pub(crate) fn wants_poll(&self) -> bool {
        let ready =
            |n: &Neighbour| n.link.is_ready(Lane::Replies) || n.link.is_ready(Lane::Requests);
        self.is_due() | self.callers().any(ready)
    }
}

impl Conduit {
    /// Handles frames that are there, of each neighbour up to the limits of a poll; whether there was one.
    #[inline]
    pub(crate) fn poll_near(&self, scope: Scope) -> bool {
        match self.neighbours.get() {
            Some(neighbours) => self.poll_neighbours(neighbours, scope),
            None => false,
        }
    }

    fn poll_neighbours(&self, neighbours: &Neighbours, scope: Scope) -> bool {
        // A handler is not entered from another one's wait.
        if scope == Scope::Full && self.handler_depth.get() > 0 {
            self.fatal("polling", &Fault::WaitInHandler);
        }
        let mut any = false;
        for from in neighbours.callers() {
            any |= self.take_near(from, Lane::Replies);
            if scope == Scope::Full {
                any |= self.take_near(from, Lane::Requests);
            }
        }
        any
    }

    /// After a frame was sent: polls frames, and now and then events.
    #[inline]
    pub(crate) fn poll_after_frame(&self) {
        let any = self.poll_near(Scope::Full);
        if self.neighbours.get().is_some_and(|n| n.is_due()) {
            self.poll_events(any);
        }
    }

    /// Handles frames of one lane.
    #[inline]
    fn take_near(&self, from: &Neighbour, lane: Lane) -> bool {
        if !from.link.is_ready(lane) {
            from.link.tell(lane, true);
            return false;
        }
        let limit = match lane {
            Lane::Replies => self.frame_limits.0,
            Lane::Requests => self.frame_limits.1,
        };
        let mut taken = 0;
        // Replies that had been sent when there was room for one more, which none takes without being counted.
        let mut answerable = None;
        while taken < limit {
            let sent = Some(from.replies_sent.get());
            if lane == Lane::Requests && answerable != sent {
                if !from.link.has_room(Lane::Replies, LARGEST) {
                    break;
                }
                answerable = sent;
            }
            let Some(frame) = from.link.take(lane) else {
                break;
            };
            self.handle_frame(from, &frame, lane);
            taken += 1;
        }
        from.link.tell(lane, false);
        taken > 0
    }

    /// Runs the handler of a frame, which is free before that.
    #[inline]
    fn handle_frame(&self, from: &Neighbour, frame: &Frame, lane: Lane) {
        let (link, node) = (&from.link, from.node);
        let Some(tag) = Tag::decode(frame.tag()) else {
            self.refuse(node, "not the frame of a message");
        };
        let mut values = [0i32; MAX_ARGS];
        let Some(args) = values.get_mut(..tag.args) else {
            self.refuse(node, "its arguments do not fit");
        };
        let args_len = 4 * tag.args;
        if tag.args > 0 && !link.read(frame, 0, args.as_mut_bytes()) {
            self.refuse(node, "its arguments do not fit");
        }
        let rest = frame.len().saturating_sub(args_len);
        let reply = match lane {
            Lane::Replies => {
                from.replies_taken.add();
                ReplyPath::None
            }
            Lane::Requests => {
                from.requests_taken.add();
                ReplyPath::Near
            }
        };
        match tag.category {
            Category::Short => {
                if rest != 0 {
                    self.refuse(node, "a Short with a payload");
                }
                link.release(frame);
                self.run_handler(node, tag.handler, reply, Payload::None, args);
            }
            Category::Medium => {
                if rest > MAX_MEDIUM {
                    self.refuse(node, "its payload does not fit");
                }
                let mut buffer = self.core.borrow_mut().buffers.take_scratch();
                let bytes = buffer.as_mut_bytes().get_mut(..rest).unwrap_or_default();
                if !link.read(frame, args_len, bytes) {
                    self.refuse(node, "its payload does not fit");
                }
                link.release(frame);
                self.run_handler(node, tag.handler, reply, Payload::Medium(bytes), args);
                self.core.borrow_mut().buffers.give_scratch(buffer);
            }
            Category::Long => {
                let mut place = [0u64; PLACE / 8];
                if rest != PLACE || !link.read(frame, args_len, place.as_mut_bytes()) {
                    self.refuse(node, "not the frame of a Long");
                }
                link.release(frame);
                let [offset, len] = place.map(u64::from_le);
                let own = self.segment(self.mynode());
                if offset.checked_add(len).is_none_or(|end| end > own.size) {
                    self.refuse(node, "its destination is not in the segment");
                }
                // Within the segment, which is memory of this process.
                let payload = Payload::Long {
                    addr: own.addr + offset,
                    offset: offset as usize,
                    len: len as usize,
                };
                self.run_handler(node, tag.handler, reply, payload, args);
            }
        }
    }

    #[cold]
    fn refuse(&self, node: u32, what: &'static str) -> ! {
        self.fatal("polling", &Fault::Malformed { node, what })
    }
}
