//! The state of a rank and what it does with events. Never calls the client: what a message asks of
//! a handler comes out as a [`Delivery`], and the conduit runs it with no state borrowed.

use crate::am::delivery::{Delivery, HeldHeader, Values};
use crate::am::lid::Lids;
use crate::chunks::{CHUNK, Chunks};
use crate::credit_files::Dumps;
use crate::credits::{Credits, Notice, Plan};
use crate::descriptors::{Descriptors, Md};
use crate::dissemination::{BarrierName, Dissemination};
use crate::env::Env;
use crate::fault::{Fault, refused};
use crate::leaving::Leaving;
use crate::matchbits::{AM_PORTAL, AmDataBits, Kind, RAR_PORTAL, RmaBits, SysMsg, kind};
use crate::memory::UserMem;
use crate::ops::Ops;
use crate::pinning::{Firehoses, Home};
use crate::rma::segments::Segments;
use crate::rma::temporary::{TmpEvent, TmpMds};
use crate::segment::SegInfo;
use crate::tickets::Tickets;
use portals_shim::{
    AckRequest, Brief, EventKind, Interface, MdHandle, NiFail, ProcessId, Region, Target,
};

/// What a chunk of the request send buffer is lent to.
#[derive(Debug)]
pub(crate) enum SbUse {
    /// A request to this node, until its reply was handled.
    Request { to: u32 },
    /// Data of a put, until it is sent.
    Put,
    /// Room for a get, until it was copied to the client.
    Get { to: UserMem },
}

/// What is needed to answer one request, taken before requests are polled.
#[derive(Debug, Default)]
pub(crate) struct Reserve {
    /// Send tickets, of [`REPLY_TICKETS`].
    pub(crate) tickets: u32,
    pub(crate) tmpmd: bool,
    pub(crate) chunk: Option<u32>,
}

impl Reserve {
    fn is_full(&self) -> bool {
        self.tickets == REPLY_TICKETS && self.tmpmd && self.chunk.is_some()
    }
}

/// A Long reply that is not packed sends two messages.
pub(crate) const REPLY_TICKETS: u32 = 2;

/// The segment, once attached.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) region: Region,
    /// RARSRC.
    pub(crate) rarsrc: MdHandle,
    pub(crate) segments: Vec<SegInfo>,
    /// The segments that puts and gets reach by a copy: the own one, and those of ranks that share memory with this
    /// one. By rank: where the segment begins in the region.
    pub(crate) near: Vec<Option<(Region, usize)>>,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) ni: Interface,
    pub(crate) peers: Vec<ProcessId>,
    pub(crate) me: u32,
    pub(crate) nodes: u32,
    pub(crate) env: Env,
    pub(crate) descriptors: Descriptors,
    pub(crate) attached: Option<Attached>,
    pub(crate) segments: Segments,
    pub(crate) tickets: Tickets,
    pub(crate) tmp_tickets: Tickets,
    pub(crate) tmpmds: TmpMds,
    pub(crate) reqsb: Chunks<SbUse>,
    pub(crate) rplsb: Chunks<()>,
    pub(crate) reserve: Reserve,
    pub(crate) credits: Credits,
    /// What writes the credits of each epoch to a file, in a run that asks for that.
    pub(crate) dumps: Option<Box<Dumps>>,
    pub(crate) ops: Ops,
    pub(crate) lids: Lids<HeldHeader>,
    /// The fabric may take a header message that is written straight into the memory it sends from.
    pub(crate) packs: bool,
    /// Counts the Long replies.
    pub(crate) reply_lids: u32,
    /// Payload messages of Longs whose sender waits: of requests, of replies.
    pub(crate) syncing: [u32; 2],
    /// Puts whose caller waits for local completion.
    pub(crate) local_pending: u32,
    pub(crate) meeting: Dissemination,
    pub(crate) barrier: Dissemination,
    pub(crate) leaving: Leaving,
    /// Start-up exchange rounds that arrived, a bit each.
    pub(crate) boot_rounds: u32,
    /// The least value of [`crate::Conduit::least`] that was heard of, and its rounds that have come, a bit each.
    pub(crate) least: (u64, u32),
    /// Buffers for payloads of Mediums, 8-byte aligned.
    pub(crate) scratch: Vec<Box<[u64]>>,
    /// Room for arguments of a message that is delivered; `None` while one is.
    pub(crate) values: Option<Box<Values>>,
    /// What is pinned of other ranks' memory, in a job whose segments are not pinned as a whole.
    pub(crate) firehoses: Option<Firehoses>,
    /// What is pinned of the own memory when it is needed; `None` where all is pinned at the start, or for each message.
    pub(crate) home: Option<Home>,
}

impl Core {
    #[expect(clippy::too_many_arguments, reason = "assembled once, in bootstrap")]
    pub(crate) fn new(
        ni: Interface,
        peers: Vec<ProcessId>,
        me: u32,
        env: Env,
        plan: &Plan,
        descriptors: Descriptors,
        reqsb: Chunks<SbUse>,
        rplsb: Chunks<()>,
    ) -> Self {
        let nodes = peers.len() as u32;
        let credits = Credits::new(plan, env.knobs(), me, nodes);
        Self {
            packs: ni.capabilities().packs,
            ni,
            me,
            nodes,
            attached: None,
            segments: Segments::default(),
            tickets: Tickets::new(env.msg_limit),
            tmp_tickets: Tickets::new(env.num_tmpmd),
            tmpmds: TmpMds::default(),
            reqsb,
            rplsb,
            reserve: Reserve::default(),
            dumps: Dumps::open(&env, me, &credits),
            credits,
            ops: Ops::new(),
            lids: Lids::new(),
            reply_lids: 0,
            syncing: [0; 2],
            local_pending: 0,
            meeting: Dissemination::new(me, nodes),
            barrier: Dissemination::new(me, nodes),
            leaving: Leaving::default(),
            boot_rounds: 0,
            least: (u64::MAX, 0),
            scratch: Vec::new(),
            values: None,
            firehoses: None,
            home: None,
            peers,
            env,
            descriptors,
        }
    }

    /// The interface's name of a rank.
    pub(crate) fn peer(&self, node: u32) -> ProcessId {
        self.peers
            .get(node as usize)
            .copied()
            .unwrap_or(ProcessId::ANY)
    }

    fn node_of(&self, id: ProcessId) -> u32 {
        self.peers
            .iter()
            .position(|p| *p == id)
            .map_or(u32::MAX, |n| n as u32)
    }

    /// Checks that a message says truly who sent it.
    pub(crate) fn sender(&self, said: u32, event: &Brief) -> Result<u32, Fault> {
        if self.peers.get(said as usize) == Some(&event.initiator) {
            Ok(said)
        } else {
            Err(Fault::Malformed {
                node: self.node_of(event.initiator),
                what: "it names another sender",
            })
        }
    }

    pub(crate) fn am_target(&self, node: u32, match_bits: u64, remote_offset: u64) -> Target {
        Target {
            process: self.peer(node),
            pt_index: AM_PORTAL,
            ac_index: 0,
            match_bits,
            remote_offset,
        }
    }

    pub(crate) fn rar_target(&self, node: u32, match_bits: u64, remote_offset: u64) -> Target {
        Target {
            pt_index: RAR_PORTAL,
            ..self.am_target(node, match_bits, remote_offset)
        }
    }

    /// Sends a system message; needs no resources and is never waited for.
    pub(crate) fn send_sys(&self, to: u32, message: SysMsg) -> Result<(), Fault> {
        let (bits, data) = message.encode();
        self.ni
            .put(
                self.descriptors.sys_send,
                AckRequest::NoAck,
                self.am_target(to, bits, 0),
                data,
            )
            .map_err(refused("PtlPut of a system message"))
    }

    /// Takes what a reply needs, as far as it is there; whether all of it is.
    #[inline]
    pub(crate) fn stock_reserve(&mut self) -> bool {
        self.reserve.is_full() || self.restock()
    }

    #[inline(never)]
    fn restock(&mut self) -> bool {
        let r = &mut self.reserve;
        while r.tickets < REPLY_TICKETS && self.tickets.take(1) {
            r.tickets += 1;
        }
        if !r.tmpmd {
            r.tmpmd = self.tmp_tickets.take(1);
        }
        if r.chunk.is_none() {
            r.chunk = self.rplsb.take(());
        }
        r.is_full()
    }

    /// Handles one event.
    #[inline(always)]
    pub(crate) fn handle(&mut self, event: &Brief) -> Result<Option<Delivery>, Fault> {
        // The headers of active messages are what a round trip consists of.
        if event.kind == EventKind::PutEnd && event.ni_fail == NiFail::OK {
            if let Some(buffer) = Md::request_buffer(event.user_ptr) {
                return self.handle_request_header(buffer, event);
            }
            if event.user_ptr == Md::ReqSb.encode() {
                return self.handle_reply_header(event);
            }
        }
        self.handle_other(event)
    }

    #[inline(never)]
    fn handle_other(&mut self, event: &Brief) -> Result<Option<Delivery>, Fault> {
        if event.ni_fail != NiFail::OK {
            return self.handle_failure(event);
        }
        let md = Md::decode(event.user_ptr).ok_or(Fault::Malformed {
            node: self.me,
            what: "an event of an unknown descriptor",
        })?;
        match (md, event.kind) {
            (Md::Sys, EventKind::PutEnd) => self.handle_sys(event).map(|()| None),
            (Md::Boot, EventKind::PutEnd) => {
                self.boot_rounds |= 1u32.checked_shl(event.hdr_data as u32).unwrap_or(0);
                Ok(None)
            }
            (Md::CatchBasin, EventKind::PutEnd) => Err(Fault::CatchBasin {
                node: self.node_of(event.initiator),
            }),
            (Md::ReqRb(buffer), EventKind::Unlink) => {
                // Every message of the buffer was handled before this event was taken.
                self.descriptors
                    .relink(&self.ni, buffer)
                    .map_err(refused("PtlMEMDPost of a request buffer"))?;
                Ok(None)
            }
            (Md::RarAm | Md::RarSrc, EventKind::PutEnd) => self.handle_payload(event),
            (
                Md::RarSrc | Md::ReqSb | Md::RplSb | Md::Tmp(_),
                EventKind::SendEnd | EventKind::Ack | EventKind::ReplyEnd,
            ) => self.handle_own(md, event).map(|()| None),
            (Md::Lane(index), _) => self.handle_lane(index, event).map(|()| None),
            // Cray's library posts SEND events of gets; START events are disabled.
            _ => Ok(None),
        }
    }

    /// An operation failed, or a rank was given up: the job cannot go on, unless nobody needs the message.
    #[cold]
    fn handle_failure(&self, event: &Brief) -> Result<Option<Delivery>, Fault> {
        let ours = event.initiator == self.peer(self.me);
        let message = match Md::decode(event.user_ptr) {
            Some(Md::Sys) if ours => SysMsg::decode(event.match_bits, event.hdr_data),
            _ => None,
        };
        let of_credits = matches!(
            message,
            Some(SysMsg::CreditRevoke { .. } | SysMsg::CreditReturn { .. })
        );
        // A rank that has left before this one needs no credits.
        if of_credits && self.leaving.is_telling() {
            return Ok(None);
        }
        // The acknowledgement, which fails too, says of whom.
        let put = kind(event.match_bits) == Some(Kind::Put);
        if ours && put && event.kind == EventKind::SendEnd && message.is_none() {
            return Ok(None);
        }
        let node = if ours {
            self.target_of(event, message)
        } else {
            Some(self.node_of(event.initiator))
        };
        Err(Fault::Network {
            event: event.kind,
            fail: event.ni_fail,
            node,
        })
    }

    /// Whom an own message was for, as far as it says so.
    fn target_of(&self, event: &Brief, message: Option<SysMsg>) -> Option<u32> {
        let above = |distance: u32| {
            let to = (u64::from(self.me) + u64::from(distance)) % u64::from(self.nodes);
            Some(to as u32)
        };
        match message {
            Some(SysMsg::Shutdown { distance, .. } | SysMsg::Barrier { distance, .. }) => {
                above(distance)
            }
            Some(SysMsg::ClientBarrier { round, .. } | SysMsg::Least { round, .. }) => {
                above(1 << (round % 32))
            }
            Some(_) => None,
            None => match (Md::decode(event.user_ptr), self.reqsb.lent(event.offset)) {
                (Some(Md::ReqSb), Some(SbUse::Request { to })) => Some(*to),
                _ => None,
            },
        }
    }

    fn handle_sys(&mut self, event: &Brief) -> Result<(), Fault> {
        let Some(message) = SysMsg::decode(event.match_bits, event.hdr_data) else {
            return Err(self.not_sys(event));
        };
        match message {
            SysMsg::Shutdown {
                distance,
                code,
                sender,
            } => {
                self.sender(sender, event)?;
                self.leaving.handle(distance, code);
            }
            SysMsg::Barrier {
                phase,
                distance,
                sender,
            } => {
                self.sender(sender, event)?;
                let taken = distance.checked_ilog2().is_some_and(|round| {
                    self.meeting
                        .handle(phase as u8, round as u8, BarrierName::Anonymous)
                        .is_ok()
                });
                if !taken {
                    return Err(self.not_sys(event));
                }
                self.advance_meeting()?;
            }
            SysMsg::Wake => {}
            SysMsg::CreditRevoke { epoch, sender } => {
                self.sender(sender, event)?;
                self.handle_notice(sender, Notice::Revoke { epoch })?;
            }
            SysMsg::CreditReturn {
                credits,
                epoch,
                sender,
            } => {
                self.sender(sender, event)?;
                self.handle_notice(sender, Notice::Return { credits, epoch })?;
            }
            SysMsg::ClientBarrier {
                phase,
                round,
                flags,
                id,
                sender,
            } => {
                self.sender(sender, event)?;
                let taken = BarrierName::decode(flags, id)
                    .is_some_and(|name| self.barrier.handle(phase, round, name).is_ok());
                if !taken {
                    return Err(self.not_sys(event));
                }
                self.advance_barrier()?;
            }
            SysMsg::Least {
                round,
                value,
                sender,
            } => {
                self.sender(sender, event)?;
                let bit = 1u32.checked_shl(u32::from(round));
                let bit = bit.ok_or_else(|| self.not_sys(event))?;
                // The same of all rounds: what a rank has heard early is a value of the job too.
                self.least = (self.least.0.min(value), self.least.1 | bit);
            }
        }
        Ok(())
    }

    fn handle_notice(&mut self, node: u32, notice: Notice) -> Result<(), Fault> {
        self.credits
            .handle_notice(node, notice)
            .map_err(|fault| Fault::Credits { node, fault })?;
        self.send_notices()
    }

    /// Sends what the credits have due.
    #[cold]
    pub(crate) fn send_notices(&mut self) -> Result<(), Fault> {
        let sender = self.me;
        while let Some((to, notice)) = self.credits.poll_notice() {
            let message = match notice {
                Notice::Revoke { epoch } => SysMsg::CreditRevoke { epoch, sender },
                Notice::Return { credits, epoch } => SysMsg::CreditReturn {
                    credits,
                    epoch,
                    sender,
                },
            };
            self.send_sys(to, message)?;
        }
        Ok(())
    }

    fn not_sys(&self, event: &Brief) -> Fault {
        Fault::Malformed {
            node: self.node_of(event.initiator),
            what: "not a system message",
        }
    }

    /// Sends what the conduit's own barrier has due.
    pub(crate) fn advance_meeting(&mut self) -> Result<(), Fault> {
        while let Some(r) = self.meeting.poll_send() {
            let message = SysMsg::Barrier {
                phase: u32::from(r.phase),
                distance: 1 << r.round,
                sender: self.me,
            };
            self.send_sys(r.to, message)?;
        }
        Ok(())
    }

    /// Sends what the client's barrier has due.
    pub(crate) fn advance_barrier(&mut self) -> Result<(), Fault> {
        while let Some(r) = self.barrier.poll_send() {
            let (flags, id) = r.name.encode();
            let message = SysMsg::ClientBarrier {
                phase: r.phase,
                round: r.round,
                flags,
                id,
                sender: self.me,
            };
            self.send_sys(r.to, message)?;
        }
        Ok(())
    }

    /// Events of messages that this rank initiated.
    pub(crate) fn handle_own(&mut self, md: Md, event: &Brief) -> Result<(), Fault> {
        let node = self.me;
        let bad = || Fault::Malformed {
            node,
            what: "an event of no message of ours",
        };
        if let Md::Lane(index) = md {
            return self.handle_lane(index, event);
        }
        if let Md::Tmp(index) = md {
            let what = match event.kind {
                EventKind::SendEnd if is_get(event.match_bits) => return Ok(()),
                EventKind::SendEnd => TmpEvent::Sent,
                _ => TmpEvent::Answered,
            };
            match self.tmpmds.handle(&self.ni, index, what) {
                Some(Ok(Some(end))) => {
                    self.tmp_tickets.give(1);
                    if let Some(unit) = end.here {
                        self.release_unit(unit);
                    }
                }
                Some(Ok(None)) => {}
                Some(Err(e)) => return Err(refused("PtlMDUnlink")(e)),
                None => return Err(bad()),
            }
        }
        match (kind(event.match_bits), event.kind) {
            (Some(Kind::Put), EventKind::SendEnd) => {
                let bits = RmaBits::decode(event.match_bits);
                self.put_sent(md == Md::ReqSb, bits).ok_or_else(bad)?;
            }
            // The ticket is held until the acknowledgement, which keeps SAFE_EQ within its size.
            (Some(Kind::Put), EventKind::Ack) => {
                let bits = RmaBits::decode(event.match_bits);
                self.tickets.give(1);
                self.ops.complete(bits.op, false).ok_or_else(bad)?;
            }
            (Some(Kind::Get), EventKind::ReplyEnd) => {
                let bits = RmaBits::decode(event.match_bits);
                if event.mlength != event.rlength {
                    let node = self.node_of(event.initiator);
                    return Err(Fault::Malformed {
                        node,
                        what: "a get was answered in part",
                    });
                }
                if md == Md::ReqSb {
                    let at = u64::from(bits.chunk);
                    let Some(SbUse::Get { to }) = self.reqsb.release(at) else {
                        return Err(bad());
                    };
                    to.copy_from(self.reqsb.region(), bits.chunk as usize + GET_CHUNK_DATA)?;
                }
                self.tickets.give(1);
                self.ops.complete(bits.op, true).ok_or_else(bad)?;
            }
            (Some(Kind::AmHeader), EventKind::SendEnd) => {
                self.tickets.give(1);
                if md == Md::RplSb {
                    self.rplsb.release(event.offset).ok_or_else(bad)?;
                }
            }
            (Some(Kind::AmData), EventKind::SendEnd) => {
                self.tickets.give(1);
                let bits = AmDataBits::decode(event.match_bits);
                if bits.sync {
                    let n = &mut self.syncing[usize::from(!bits.request)];
                    *n = n.saturating_sub(1);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The memory of a put is free; `None` if its chunk was.
    pub(crate) fn put_sent(&mut self, of_chunk: bool, bits: RmaBits) -> Option<()> {
        if of_chunk {
            self.reqsb.release(u64::from(bits.chunk))?;
        }
        if bits.local_completion {
            self.local_pending = self.local_pending.saturating_sub(1);
        }
        Some(())
    }

    /// An 8-byte aligned buffer that holds a chunk.
    pub(crate) fn take_scratch(&mut self) -> Box<[u64]> {
        self.scratch
            .pop()
            .unwrap_or_else(|| vec![0; CHUNK / 8].into_boxed_slice())
    }

    /// Back for the next message.
    pub(crate) fn give_scratch(&mut self, buffer: Box<[u64]>) {
        self.scratch.push(buffer);
    }
}

/// Where in its chunk a get's data lands; the first 8 bytes stay free, as in the conduit's format.
pub(crate) const GET_CHUNK_DATA: usize = 8;

fn is_get(bits: u64) -> bool {
    kind(bits) == Some(Kind::Get)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credits::PEER_BYTES;

    /// What a rank keeps for each other rank, without the message buffers: addresses, segments, credits. The blocks
    /// of the start-up exchange lie in the request send buffer, see `bootstrap.rs`.
    #[test]
    fn a_peer_takes_at_most_64_bytes() {
        let peer = size_of::<ProcessId>()
            + size_of::<SegInfo>()
            + size_of::<Option<(Region, usize)>>()
            + PEER_BYTES;
        println!("{peer} bytes");
        assert!(peer <= 64, "{peer}");
    }
}
