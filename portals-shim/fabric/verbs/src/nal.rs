//! The fabric's methods ([`Nal`]): what the library asks of connections, and which part answers.

use super::cm;
use super::peer::Fill;
use super::proto::connected::Connected;
use super::proto::op::Op;
use super::proto::select::{self, Protocol};
use super::verbs::{BATCH, Verbs};
use fabric_api::call::{Paths, RemoteKey, Target};
use fabric_api::nal::{
    Armed, Attendance, Awaiting, Direction, LOOKS, Look, Nal, Outcome, Schedule, Waiter,
};
use fabric_api::op::{Capabilities, Mode, Put};
use portals_core::{
    Error, Header, Landing, MdHandle, Ni, OpId, ProcessId, ReadyPut, Segment, Transmit,
};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

/// A put that leaves at once or not at all.
#[derive(Clone, Copy, Debug)]
struct PutNow<'a> {
    header: &'a Header,
    /// Its descriptor and memory; none of one whose bytes somebody packs, which is in one piece if it does not leave so.
    memory: Option<(MdHandle, &'a [Segment])>,
    key: Option<&'a RemoteKey>,
    /// That memory may be read after the call.
    lend: bool,
}

impl Verbs {
    /// Starts a put that can leave at once, whose bytes `fill` writes into its frame.
    #[inline(always)]
    fn put_now(&mut self, ni: &Ni, put: &PutNow<'_>, fill: impl Fill) -> Outcome {
        let header = put.header;
        let rank = self.rank_of(header.target);
        let peer = rank.and_then(|rank| Some((rank, self.peers.get(rank)?)));
        let peer = peer.filter(|(_, peer)| !self.closed && peer.takes_now());
        let Some((rank, peer)) = peer else {
            return Outcome::Declined;
        };
        let piece = match put.memory {
            Some((md, [piece])) => Some((*piece, md)),
            _ => None,
        };
        let contiguous = piece.is_some() || put.memory.is_none();
        let op = Op::of(header, contiguous);
        let state = Connected::by_key(peer, put.key);
        let taken = match select::select_apart(&op, &state, &self.thresholds) {
            // Where a key was given, what goes by a message has an operation of its own.
            Protocol::Eager => put.key.is_none() && self.send_eager_now(rank, header, fill),
            Protocol::RmaWrite { remote, acks } => piece
                .is_some_and(|(data, _)| self.rma_write_now(rank, header, data, (remote, acks))),
            Protocol::RmaWriteSend { remote, md } => {
                let piece = piece.filter(|_| put.lend && ni.has_room());
                let number =
                    piece.and_then(|p| self.rma_write_send_now(rank, header, p, (remote, md)));
                return number.map_or(Outcome::Declined, Outcome::Lent);
            }
            Protocol::RndvRead | Protocol::RmaRead(_) | Protocol::GetByAm(_) => false,
        };
        match taken {
            true => Outcome::Taken,
            false => Outcome::Declined,
        }
    }

    /// [`Look::All`]
    pub(super) fn look_everywhere(&mut self, ni: &mut Ni) -> bool {
        if self.gone {
            return false;
        }
        self.look_for_answer();
        let ringed = self.rings.any() && self.look_at_rings(ni);
        if ringed && self.rings_are_enough() {
            return true;
        }
        let mut count = self.poll_once(ni);
        let any = count > 0 || ringed;
        while count == BATCH {
            count = self.poll_again(ni);
        }
        // Out of the way of an answer to what has just arrived.
        if !any && self.queues.has_spare() {
            self.repost();
        }
        if self.due.pump {
            self.pump();
        }
        if self.conn.pending > 0 {
            self.mend(ni, count);
            self.due.pump = true;
        }
        any
    }

    /// [`Look::Likely`]
    fn look_at_likely(&mut self, ni: &mut Ni) -> bool {
        if !self.rings.any() || self.gone {
            return self.look_everywhere(ni);
        }
        self.look_for_answer();
        let ringed = self.rings.watch() && self.look_at_rings(ni);
        if ringed && !self.rings_are_enough() {
            self.look_everywhere(ni);
        }
        ringed
    }

    fn attendance(&self) -> Option<Attendance> {
        let dup = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().ok();
        Some(Attendance {
            alarm: vec![dup(self.queues.event_fd()?)?],
            control: {
                let manager = self.conn.joiner.as_ref().and_then(cm::Joiner::events_fd);
                let own = [
                    self.conn.mail.events_fd()?,
                    dup(self.adapter.device().events_fd())?,
                ];
                own.into_iter().chain(manager).collect()
            },
            bell: Arc::clone(&self.conn.bell),
            thread: self.thread,
            longest: None,
        })
    }
}

/// Whether there is a key: 0 is what fabrics give that need none.
#[inline(always)]
fn given(key: &&RemoteKey) -> bool {
    key.rkey != 0
}

impl Nal for Verbs {
    fn send(&mut self, ni: &mut Ni, tx: &mut Transmit, key: Option<&RemoteKey>) {
        self.due.pump = true;
        self.read_unanswered();
        self.send_message(ni, tx, key.filter(given));
    }

    #[inline(always)]
    fn put(&mut self, ni: &mut Ni, ready: &ReadyPut, put: &mut Put<'_>) -> Outcome {
        self.read_unanswered();
        let of_memory = PutNow {
            header: &ready.header,
            memory: Some((ready.md, &ready.payload)),
            key: put.key.filter(given),
            lend: matches!(put.mode, Mode::Standard),
        };
        match &mut put.mode {
            Mode::Standard | Mode::AtOnce => self.put_now(ni, &of_memory, &*ready.payload),
            Mode::Relaxed => self.rma_write_relaxed(ni, ready),
            Mode::Pack(pack) => {
                let pack: &mut dyn FnMut(&mut [u8]) = &mut **pack;
                let memory = None;
                self.put_now(
                    ni,
                    &PutNow {
                        memory,
                        ..of_memory
                    },
                    pack,
                )
            }
        }
    }

    fn begun(&mut self, number: u64, op: OpId) {
        self.put_begun(number, op);
    }

    #[inline(always)]
    fn get(
        &mut self,
        ni: &mut Ni,
        md: MdHandle,
        region: Option<(u64, u64)>,
        from: &Target,
    ) -> bool {
        self.get_now(ni, md, region, from)
    }

    #[inline(always)]
    fn transfer(&mut self, way: Direction, local: &Landing, remote: &Target) -> bool {
        let left = match way {
            Direction::Read => self.rma_read_now(local, remote),
            Direction::Write => self.rma_write_awaited(local, remote),
        };
        if left {
            self.offloaded.wait_for_latest();
        }
        left
    }

    #[inline]
    fn await_end(&mut self, ni: &mut Ni) -> (Awaiting, bool) {
        self.watch_for_answer();
        let any = if self.gone || self.rings.any() || self.conn.pending > 0 {
            self.look_everywhere(ni)
        } else {
            let any = self.poll_once(ni) > 0;
            if self.due.pump {
                self.pump();
            }
            any
        };
        (self.offloaded.awaited(), any)
    }

    fn unawait(&mut self, ni: &mut Ni) {
        self.wait_no_more(ni);
    }

    #[inline(always)]
    fn progress(&mut self, ni: &mut Ni, look: Look) -> bool {
        match look {
            Look::All => self.look_everywhere(ni),
            Look::Likely => self.look_at_likely(ni),
        }
    }

    fn attend(&mut self, ni: &mut Ni) -> bool {
        self.due.pump = true;
        self.rings.looked(Instant::now());
        self.tend(ni)
    }

    fn schedule(&self) -> Schedule {
        Schedule {
            due: self.next_time(),
            busy: (self.conn.pending > 0 || self.due.look) && !self.gone,
            gone: self.gone,
            spin: None,
            looks: if self.crowded { 1 } else { LOOKS },
        }
    }

    fn waiter(&self) -> Waiter {
        self.attendance().map_or(Waiter::Poll, Waiter::Descriptors)
    }

    fn arm(&mut self) -> Armed {
        self.due.look = false;
        self.read_unanswered();
        let armed = self.queues.arm();
        self.shut_rings();
        Armed {
            rings: !self.gone && armed,
            longest: self.rings.nap(),
        }
    }

    #[inline]
    fn publish(&mut self, ni: &mut Ni) {
        let portals = ni.take_dirty_portals();
        self.tell_peers(ni, portals, &mut |_| {});
    }

    fn withdraw(&mut self, ni: &mut Ni, md: MdHandle) -> Result<(), Error> {
        self.withdraw_beside(ni, md, &mut |_| {})
    }

    fn remote_key(&mut self, ni: &Ni, md: MdHandle) -> Result<u32, Error> {
        self.pinned_key(ni, md)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            packs: true,
            pins: true,
            pinnable: self.registry.room(),
            exposable: self.registry.left(),
            ..Capabilities::default()
        }
    }

    fn distance(&self, to: ProcessId) -> Option<u64> {
        if to == self.id {
            return Some(0);
        }
        self.rank_of(to).map(|_| u64::from(to.nid != self.id.nid))
    }

    fn statistics(&self) -> Paths {
        self.counters.protocols.paths()
    }

    /// Waits until what was sent has left, then ends the connections; the memory of every
    /// descriptor is out of peers' reach afterwards.
    fn close(&mut self, ni: &mut Ni) {
        self.farewell(ni);
        self.end(ni);
    }
}
