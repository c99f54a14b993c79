//! What the end of a request does: of a receive, a frame; of a send, room; of an RDMA operation, its events.

use super::handshake;
use super::peer::{self, Peer};
use super::proto::ending::Ending;
use super::proto::offload::{End, is_offloaded};
use super::verbs::{BATCH, Record, Verbs, Work};
use portals_core::{Ni, NiFail};
use verbs_backend::{Completion, Opcode};

/// What has a record and a peer that is given up has failed, unless the peer has said that it is done.
pub(super) const ENDING: Ending = Ending {
    under_way: |verbs, rank| records_of(verbs, rank).count(),
    end: |verbs, ni, rank| {
        let records: Vec<usize> = records_of(verbs, rank).collect();
        for index in records {
            verbs.end_record(ni, rank, index);
        }
    },
};

/// The records of a peer, by their numbers.
fn records_of(verbs: &Verbs, rank: usize) -> impl Iterator<Item = usize> {
    let all = verbs.records.iter();
    all.filter(move |(_, record)| record.peer == rank)
        .map(|(index, _)| index)
}

impl Verbs {
    /// Handles up to a batch of completions; returns how many there were.
    #[inline(always)]
    pub(super) fn poll_once(&mut self, ni: &mut Ni) -> usize {
        match self.queues.poll() {
            Ok(0) => 0,
            Ok(count) => {
                self.handle_completions(ni, count);
                count
            }
            Err(error) => {
                self.device_gone(ni, &error);
                0
            }
        }
    }

    #[cold]
    pub(super) fn poll_again(&mut self, ni: &mut Ni) -> usize {
        self.poll_once(ni)
    }

    /// Handles the first `count` of the completions taken. Apart from the poll, most of which find nothing.
    #[inline(never)]
    pub(super) fn handle_completions(&mut self, ni: &mut Ni, count: usize) {
        if self.witness.is_some() {
            for at in 0..count.min(BATCH) {
                let completion = *self.queues.completion(at);
                self.handle_unconfirmed(ni, &completion);
            }
        } else {
            for at in 0..count.min(BATCH) {
                let completion = self.queues.completion(at);
                let (id, qpn, ok) = (completion.id(), completion.qpn(), completion.is_ok());
                if !ok || !self.end_records(ni, id, qpn) {
                    let completion = *self.queues.completion(at);
                    self.due.pump = true;
                    self.handle_completion(ni, &completion);
                }
            }
        }
        if self.due.confirm {
            self.confirm_withdrawn();
        }
        if self.queues.wants_repost() {
            self.repost();
        }
    }

    /// Gives receive buffers back to the queue.
    pub(super) fn repost(&mut self) {
        self.due.pump = true;
        match self.queues.repost() {
            Ok(()) => self.peers.each(|peer| peer.sq.slots_posted()),
            Err(error) if !self.gone => {
                tracing::error!(%error, "receives could not be posted again");
            }
            Err(_) => {}
        }
    }

    pub(super) fn handle_completion(&mut self, ni: &mut Ni, completion: &Completion) {
        let rank = self.peers.by_qpn(completion.qpn());
        if completion
            .opcode()
            .is_some_and(verbs_backend::Opcode::is_receive)
        {
            if let Some(buffer) = self.queues.received(completion) {
                let len = (completion.length() as usize).min(buffer.len());
                if let Some(rank) = rank.filter(|_| self.rings.any()) {
                    self.take_ring(ni, rank);
                }
                match rank {
                    // What it has written is elsewhere.
                    Some(rank) if completion.opcode() == Some(Opcode::ReceiveWrite) => {
                        let (value, len) = (completion.immediate(), completion.length());
                        self.handle_write_immediate(ni, rank, value, len.into());
                    }
                    Some(rank) => {
                        let immediate = completion.immediate();
                        self.handle_frame(ni, rank, &buffer[..len], immediate);
                        self.count_short_frame(rank, len);
                    }
                    None => {}
                }
                self.queues.give_back(buffer);
            }
            return;
        }
        let peer = rank.and_then(|rank| self.peers.get_mut(rank));
        let (Some(rank), Some(peer)) = (rank, peer) else {
            // Of a queue pair that is gone.
            return self.queues.recycle(completion);
        };
        let mut id = completion.id();
        let mut buffer = None;
        if completion.owns_buffer() {
            match peer.sq.take_buffer(completion) {
                Some((taken, tag)) => {
                    id = tag;
                    buffer = Some(taken);
                }
                // A failed receive.
                None => return self.queues.recycle(completion),
            }
        }
        if let Err(error) = completion.result() {
            self.conn.pending += 1;
            if !peer.sq.is_broken()
                && peer.session.stage() != handshake::Stage::Draining
                && !self.closed
            {
                tracing::warn!(peer = rank, %error, "connection broken");
            }
        }
        let mut silent = peer.sq.done_silently(id);
        while let Some(done) = silent {
            self.piece_done(ni, done, NiFail::OK);
            silent = self.peer(rank).and_then(|p| p.sq.done_silently(id));
        }
        let Some(peer) = self.peer(rank) else { return };
        peer.sq.handle_completion(completion.status(), buffer);
        if completion.is_ok() && id < peer::PLAIN {
            self.piece_done(ni, id, NiFail::OK);
        }
    }

    /// Takes the completion of a request of this id that has succeeded, and of the silent ones before it. `false`: it is
    /// one without a record, and nothing has happened.
    #[inline(always)]
    fn end_records(&mut self, ni: &mut Ni, id: u64, qpn: u32) -> bool {
        if id >= peer::PLAIN {
            return false;
        }
        let Some(rank) = self.peers.by_qpn(qpn) else {
            return false;
        };
        let mut any = false;
        while let Some(peer) = self.peers.get_mut(rank)
            && let Some(done) = peer.sq.done_up_to(id)
        {
            any = true;
            self.due.pump |= peer.sq.wants_pump();
            self.piece_done(ni, done, NiFail::OK);
            if done == id {
                break;
            }
        }
        any
    }

    /// A request that has a record, or was offloaded, is over.
    #[inline]
    pub(super) fn piece_done(&mut self, ni: &mut Ni, id: u64, fail: NiFail) {
        match is_offloaded(id) {
            true if fail != NiFail::OK => self.offloaded_failed(ni, id, fail),
            true => self.offloaded_done(ni, id),
            false => self.part_done(ni, id as usize, fail),
        }
    }

    /// An offloaded request has succeeded: what its target would have answered.
    #[inline(always)]
    fn offloaded_done(&mut self, ni: &mut Ni, id: u64) {
        self.stop_timing(id, true);
        match self.offloaded.end(id, NiFail::OK) {
            Some((End::Reply, answer)) => ni.reply_in_place(answer, NiFail::OK),
            Some((End::Ack, answer)) => ni.ack_in_place(answer),
            _ => {}
        }
    }

    /// One request of a record is over.
    #[inline(never)]
    fn part_done(&mut self, ni: &mut Ni, index: usize, fail: NiFail) {
        let Some(record) = self.records.get_mut(index) else {
            return;
        };
        record.left = record.left.saturating_sub(1);
        record.fails(fail);
        if record.left == 0
            && let Some(record) = self.records.try_remove(index)
        {
            let written = matches!(record.work, Work::Write { .. }).then_some(record.peer);
            self.finish(ni, record);
            if let Some(rank) = written {
                self.write_ended(ni, rank, index as u64);
            }
        }
    }

    /// Ends the record of a peer that is given up.
    fn end_record(&mut self, ni: &mut Ni, rank: usize, index: usize) {
        let said = |peer: &mut Peer| peer.requests.says_done(index as u64);
        let done = self.peer(rank).is_some_and(said);
        if let Some(mut record) = self.records.try_remove(index) {
            record.fails(if done { NiFail::OK } else { NiFail::FAIL });
            self.finish(ni, record);
            self.write_ended(ni, rank, index as u64);
        }
    }

    /// A put has had its SEND_END: acks that waited for it have their events.
    #[inline]
    pub(super) fn write_ended(&mut self, ni: &mut Ni, rank: usize, record: u64) {
        if let Some(peer) = self.peer(rank) {
            peer.requests.write_ended(record);
        }
        while let Some(ack) = self.peer(rank).and_then(|p| p.requests.next_ack()) {
            ni.handle_header(&ack);
        }
    }

    fn finish(&mut self, ni: &mut Ni, record: Record) {
        let fail = record.fail;
        match record.work {
            Work::Write { op, ack, .. } => self.write_done(ni, op, ack, fail),
            Work::Read(reply) => ni.reply_in_place(&reply, fail),
            Work::RndvRead {
                op,
                token,
                request,
                staged,
            } => {
                self.rndv_read_done(ni, record.peer, (token, request), staged, op, fail);
            }
        }
    }
}
