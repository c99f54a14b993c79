//! Frames that a test makes and has posted as they are, with or without a credit.
//!
//! # Invariants
//!
//! * A frame made by hand has a number, since the peer counts it as any other. Without one the peer would wait for ever for
//!   the next frame in its ring. A new connection would repeat frames that the peer has had.
//! * A frame made by hand is in the window: its completion is its own, and its place in the send queue is taken.
//! * A frame made by hand that is a request counts as one, because the peer says that it is done.
//! * A frame made by hand gives no credits back. The header kept here is forgotten, because the peer keeps another.

use super::super::Peer;
use super::SendQueue;
use super::window::Flying;
use crate::frame::{self, Body, Ends};
use portals_core::{Body as Operation, Header, ProcessId};
use verbs_backend::{Buffer, SendFlags, SendOp};

/// Whether the peer counts a request when it has taken a frame.
fn is_request(bytes: &[u8]) -> bool {
    let nobody = Ends {
        target: ProcessId::ANY,
        source: ProcessId::ANY,
        who: (0, 0),
    };
    let asks = |header: &Header| {
        matches!(
            header.body,
            Operation::Put { .. } | Operation::Get { .. } | Operation::GetPut { .. }
        )
    };
    match frame::parse(bytes, &nobody) {
        Ok((_, Body::Message { header, .. } | Body::ReadyToSend { header, .. })) => asks(&header),
        Ok((_, Body::Notice { .. })) => true,
        Ok(_) | Err(_) => false,
    }
}

impl Peer {
    /// Posts the first `len` bytes of a buffer past what waits. A put without a header is taken for one that the peer cannot
    /// read, and a written one for one that it can.
    pub(crate) fn post_as_is(&mut self, op: SendOp, buffer: Buffer, len: usize) {
        let request = match op {
            SendOp::Send => is_request(&buffer[..len]),
            SendOp::WriteImmediate(..) => true,
            _ => false,
        };
        self.sq.post_as_is(op, buffer, len);
        if request {
            let sent = self.requests.sent();
            self.requests.count_sent(sent.wrapping_add(1));
            self.requests.framed();
        }
    }
}

impl SendQueue {
    /// Whether a frame that a test makes has a credit and room.
    pub(crate) fn may_say(&self) -> bool {
        self.credits.any() && self.has_room()
    }

    /// No frame goes that brings nothing but credits, or again.
    pub(crate) fn keep_credits(&mut self, keeps: bool) {
        self.credits.returning(keeps);
    }

    /// Frames that wait and that the peer has caused.
    pub(crate) fn answers_waiting(&self) -> usize {
        self.queue.owed()
    }

    fn post_as_is(&mut self, op: SendOp, buffer: Buffer, len: usize) {
        self.flush();
        let qp = self.qp.clone().expect("a link");
        let posted = qp.post_owned(self.window.plain(0), op, buffer, 0..len, SendFlags::empty());
        assert!(posted.is_ok(), "the send queue has room");
        let before = self.credits;
        self.posted(Flying::Buffered(len));
        self.credits = before;
        self.credits.spend();
        self.headers.forget();
    }
}
