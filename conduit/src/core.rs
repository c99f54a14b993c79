//! The state of a rank and what it does with events. Never calls the client: what a message asks of
//! a handler comes out as a [`Delivery`], and the conduit runs it with no state borrowed.

use crate::am::delivery::{Buffers, Delivery, HeldHeader};
use crate::am::longs::Longs;
use crate::bootstrap::StartUp;
use crate::chunks::Chunks;
use crate::credit_files::Dumps;
use crate::credits::{Credits, Notice, Plan};
use crate::descriptors::{Descriptors, Md};
use crate::dissemination::{BarrierName, Dissemination};
use crate::env::Env;
use crate::fault::{Fault, refused};
use crate::leaving::Leaving;
use crate::matchbits::{AM_PORTAL, AmDataBits, Kind, RAR_PORTAL, RmaBits, SysMsg, kind};
use crate::ops::Ops;
use crate::pinning::Pinning;
use crate::ranks::Ranks;
use crate::resources::{Resources, SbUse};
use crate::rma::segments::Segments;
use crate::rma::temporary::{TmpEvent, TmpMds};
use crate::segment::SegInfo;
use portals_shim::{AckRequest, Brief, EventKind, Interface, MdHandle, NiFail, Region, Target};

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
    pub(crate) ranks: Ranks,
    pub(crate) env: Env,
    pub(crate) descriptors: Descriptors,
    pub(crate) attached: Option<Attached>,
    pub(crate) segments: Segments,
    pub(crate) resources: Resources,
    pub(crate) tmpmds: TmpMds,
    pub(crate) credits: Credits,
    /// What writes the credits of each epoch to a file, in a run that asks for that.
    pub(crate) dumps: Option<Box<Dumps>>,
    pub(crate) ops: Ops,
    pub(crate) longs: Longs<HeldHeader>,
    /// The fabric may take a header message that is written straight into the memory it sends from.
    pub(crate) packs: bool,
    pub(crate) meeting: Dissemination,
    pub(crate) barrier: Dissemination,
    pub(crate) leaving: Leaving,
    pub(crate) start_up: StartUp,
    pub(crate) buffers: Buffers,
    pub(crate) pinning: Pinning,
}

impl Core {
    pub(crate) fn new(
        ni: Interface,
        ranks: Ranks,
        env: Env,
        plan: &Plan,
        descriptors: Descriptors,
        reqsb: Chunks<SbUse>,
        rplsb: Chunks<()>,
    ) -> Self {
        let (me, nodes) = (ranks.me(), ranks.count());
        let credits = Credits::new(plan, env.knobs(), me, nodes);
        Self {
            packs: ni.capabilities().packs,
            ni,
            ranks,
            attached: None,
            segments: Segments::default(),
            resources: Resources::new(env.msg_limit, reqsb, rplsb),
            tmpmds: TmpMds::new(env.num_tmpmd),
            dumps: Dumps::open(&env, me, &credits),
            credits,
            ops: Ops::new(),
            longs: Longs::new(),
            meeting: Dissemination::new(me, nodes),
            barrier: Dissemination::new(me, nodes),
            leaving: Leaving::default(),
            start_up: StartUp::default(),
            buffers: Buffers::default(),
            pinning: Pinning::default(),
            env,
            descriptors,
        }
    }

    /// Checks that a message says truly who sent it.
    pub(crate) fn sender(&self, said: u32, event: &Brief) -> Result<u32, Fault> {
        if self.ranks.has(said, event.initiator) {
            Ok(said)
        } else {
            Err(Fault::Malformed {
                node: self.ranks.rank_of(event.initiator),
                what: "it names another sender",
            })
        }
    }

    pub(crate) fn am_target(&self, node: u32, match_bits: u64, remote_offset: u64) -> Target {
        Target {
            process: self.ranks.process(node),
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
        self.resources.stock_reserve(&mut self.tmpmds)
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
            node: self.ranks.me(),
            what: "an event of an unknown descriptor",
        })?;
        match (md, event.kind) {
            (Md::Sys, EventKind::PutEnd) => self.handle_sys(event).map(|()| None),
            (Md::Boot, EventKind::PutEnd) => {
                self.start_up.handle_blocks(event.hdr_data);
                Ok(None)
            }
            (Md::CatchBasin, EventKind::PutEnd) => Err(Fault::CatchBasin {
                node: self.ranks.rank_of(event.initiator),
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
        let ours = event.initiator == self.ranks.process(self.ranks.me());
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
            Some(self.ranks.rank_of(event.initiator))
        };
        Err(Fault::Network {
            event: event.kind,
            fail: event.ni_fail,
            node,
        })
    }

    /// Whom an own message was for, as far as it says so.
    fn target_of(&self, event: &Brief, message: Option<SysMsg>) -> Option<u32> {
        let above = |distance| Some(self.ranks.above(distance));
        match message {
            Some(SysMsg::Shutdown { distance, .. } | SysMsg::Barrier { distance, .. }) => {
                above(distance)
            }
            Some(SysMsg::ClientBarrier { round, .. } | SysMsg::Least { round, .. }) => {
                above(1 << (round % 32))
            }
            Some(_) => None,
            None => match (
                Md::decode(event.user_ptr),
                self.resources.requests().lent(event.offset),
            ) {
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
                let taken = self.start_up.handle_least(round, value);
                taken.ok_or_else(|| self.not_sys(event))?;
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
        let sender = self.ranks.me();
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
            node: self.ranks.rank_of(event.initiator),
            what: "not a system message",
        }
    }

    /// Sends what the conduit's own barrier has due.
    pub(crate) fn advance_meeting(&mut self) -> Result<(), Fault> {
        while let Some(r) = self.meeting.poll_send() {
            let message = SysMsg::Barrier {
                phase: u32::from(r.phase),
                distance: 1 << r.round,
                sender: self.ranks.me(),
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
                sender: self.ranks.me(),
            };
            self.send_sys(r.to, message)?;
        }
        Ok(())
    }

    /// Events of messages that this rank initiated.
    pub(crate) fn handle_own(&mut self, md: Md, event: &Brief) -> Result<(), Fault> {
        let node = self.ranks.me();
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
                self.resources.give_ticket();
                self.ops.complete(bits.op, false).ok_or_else(bad)?;
            }
            (Some(Kind::Get), EventKind::ReplyEnd) => {
                let bits = RmaBits::decode(event.match_bits);
                if event.mlength != event.rlength {
                    let node = self.ranks.rank_of(event.initiator);
                    return Err(Fault::Malformed {
                        node,
                        what: "a get was answered in part",
                    });
                }
                if md == Md::ReqSb {
                    let at = u64::from(bits.chunk);
                    let Some(SbUse::Get { to }) = self.resources.requests_mut().release(at) else {
                        return Err(bad());
                    };
                    to.copy_from(
                        self.resources.requests().region(),
                        bits.chunk as usize + GET_CHUNK_DATA,
                    )?;
                }
                self.resources.give_ticket();
                self.ops.complete(bits.op, true).ok_or_else(bad)?;
            }
            (Some(Kind::AmHeader), EventKind::SendEnd) => {
                self.resources.give_ticket();
                if md == Md::RplSb {
                    self.resources
                        .give_reply_chunk(event.offset)
                        .ok_or_else(bad)?;
                }
            }
            (Some(Kind::AmData), EventKind::SendEnd) => {
                self.resources.give_ticket();
                let bits = AmDataBits::decode(event.match_bits);
                if bits.sync {
                    self.longs.payload_left(bits.request);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The memory of a put is free; `None` if its chunk was.
    pub(crate) fn put_sent(&mut self, of_chunk: bool, bits: RmaBits) -> Option<()> {
        if of_chunk {
            self.resources
                .requests_mut()
                .release(u64::from(bits.chunk))?;
        }
        if bits.local_completion {
            self.ops.locally_complete();
        }
        Some(())
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
        let peer = size_of::<portals_shim::ProcessId>()
            + size_of::<SegInfo>()
            + size_of::<Option<(Region, usize)>>()
            + PEER_BYTES;
        println!("{peer} bytes");
        assert!(peer <= 64, "{peer}");
    }
}
