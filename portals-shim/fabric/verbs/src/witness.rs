//! Ends of requests on iWARP.
//!
//! On InfiniBand and RoCE the completion of a send or a write says that it has arrived. On iWARP it says that the memory
//! is free: the data may still be on its way, and may get lost with the connection. But an answer to a read is made only
//! when everything sent before it on the connection has been delivered (RFC 5040, section 5.5). So each process has a
//! word that its peers may read, and what a read of it has followed is done.
//!
//! ```text
//!   write ──────▶                       completion: ignored, but something waits now
//!   read of the peer's witness ──────▶
//!                              ◀──────  completion: the write is done; SEND_END, ACK
//! ```
//!
//! Everything that says what has been done (acknowledgements of one-sided puts, frames that need not be sent again, the
//! close) goes by these ends (`peer/send_queue/confirm.rs`).

mod word;

use super::handshake;
use super::peer::Confirmed;
use crate::verbs::Verbs;
use portals_core::{Ni, NiFail};
use verbs_backend::{Completion, Opcode};
pub(super) use word::Witness;

impl Verbs {
    /// Takes a completion where a witness says what is done.
    #[cold]
    pub(super) fn handle_unconfirmed(&mut self, ni: &mut Ni, completion: &Completion) {
        let received = completion.opcode().is_some_and(Opcode::is_receive);
        let rank = self.peers.by_qpn(completion.qpn());
        let peer = rank.and_then(|rank| self.peers.get_mut(rank));
        let (Some(rank), Some(peer), false) = (rank, peer, received) else {
            return self.handle_completion(ni, completion);
        };
        self.due.pump = true;
        let mut id = completion.id();
        let mut buffer = None;
        if completion.owns_buffer() {
            match peer.sq.take_buffer(completion) {
                Some((taken, tag)) => (id, buffer) = (tag, Some(taken)),
                // A failed receive.
                None => return self.queues.recycle(completion),
            }
        }
        let known = peer.sq.ended(id, completion.status(), buffer);
        if let Err(error) = completion.result() {
            if !peer.sq.is_broken()
                && peer.session.stage() != handshake::Stage::Draining
                && !self.closed
            {
                tracing::warn!(peer = rank, %error, "connection broken");
            }
            peer.sq.set_broken(true);
            self.conn.pending += 1;
            return;
        }
        if known && completion.opcode() == Some(Opcode::Read) {
            while let Some((done, last)) = self.peer(rank).and_then(|p| p.sq.take_confirmed(id)) {
                if let Confirmed::Record(done) = done {
                    self.piece_done(ni, done, NiFail::OK);
                }
                if last {
                    break;
                }
            }
        }
        if let Some(peer) = self.peer(rank).filter(|p| !p.sq.is_broken()) {
            peer.sq.ask_if_ended();
        }
    }
}
