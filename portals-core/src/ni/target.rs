//! Incoming headers: address translation, the decision to ack, where a reply lands
//! (rules 1-18).

use super::Ni;
use super::complete::{OpKind, OpStart};
use crate::event::EventKind;
use crate::handle::{MdHandle, OpId};
use crate::header::{Body, Header};
use crate::md::{Access, Md};
use crate::memory::Segments;
use crate::types::MdOptions;

/// What to do with a message. `op` goes back to the matching `*_end` method.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// Place data (of a put or a reply).
    Deposit(Deposit),
    /// Send data (for a get).
    Reply(ReplyOut),
    /// Exchange data (for a getput).
    Swap(Swap),
    /// An ack: its event is posted, nothing else to do.
    Acked,
    /// Refused and counted; data that follows the header is to be discarded.
    Dropped(DropReason),
}

/// Data to place: the first `length` bytes of what follows the header go to `segments`, the rest
/// is discarded. End with [`Ni::deposit_end`].
#[derive(Clone, Debug)]
pub struct Deposit {
    /// The operation.
    pub op: OpId,
    /// The descriptor.
    pub md: MdHandle,
    /// Destination.
    pub segments: Segments,
    /// Bytes to keep (`mlength`).
    pub length: u64,
    /// Entries looked at before one took the message; the cost of matching.
    pub searched: u32,
}

/// Data to send: `header` and then the bytes of `segments`. End with [`Ni::reply_end`].
#[derive(Clone, Debug)]
pub struct ReplyOut {
    /// The operation.
    pub op: OpId,
    /// The reply's header.
    pub header: Header,
    /// The descriptor.
    pub md: MdHandle,
    /// Source.
    pub segments: Segments,
    /// Entries looked at.
    pub searched: u32,
}

/// Data to exchange: read `length` bytes of `segments`, write the first `length` bytes that
/// followed the request there, send `header` with the old bytes; one step with respect to every
/// other exchange on this memory (rule 21). End with [`Ni::swap_end`].
#[derive(Clone, Debug)]
pub struct Swap {
    /// The operation.
    pub op: OpId,
    /// The reply's header.
    pub header: Header,
    /// Where to exchange.
    pub segments: Segments,
    /// Bytes.
    pub length: u64,
    /// Entries looked at.
    pub searched: u32,
}

/// Why a message was dropped; all count in [`super::Status::drop_count`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The portal index is out of range (rule 2).
    PtIndex,
    /// The access control index is out of range or the entry refuses (rules 3, 4).
    AccessControl,
    /// No entry takes it (rule 9).
    NoMatch,
    /// The MD of an ack or reply is gone, inactive, has no queue, or awaits none (rules 17, 18).
    Stale,
    /// Too many operations under way.
    NoSpace,
}

struct Request {
    access: Access,
    length: u64,
    remote_offset: u64,
    hdr_data: u64,
    ac_index: u32,
}

struct Match {
    md: MdHandle,
    offset: u64,
    mlength: u64,
    searched: u32,
}

impl Ni {
    /// Takes a message from the wire.
    pub fn handle_header(&mut self, h: &Header) -> Incoming {
        let taken = match h.body {
            Body::Put {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                ack_md,
            } => {
                let r = Request {
                    access: Access::Put,
                    length,
                    remote_offset,
                    hdr_data,
                    ac_index,
                };
                self.put_arrived(h, &r, ack_md)
            }
            Body::Get {
                length,
                remote_offset,
                ac_index,
                reply_md,
                reply_offset,
            } => {
                let r = Request {
                    access: Access::Get,
                    length,
                    remote_offset,
                    hdr_data: 0,
                    ac_index,
                };
                self.get_arrived(h, &r, reply_md, reply_offset)
            }
            Body::GetPut {
                length,
                remote_offset,
                hdr_data,
                ac_index,
                reply_md,
                reply_offset,
            } => {
                let r = Request {
                    access: Access::GetPut,
                    length,
                    remote_offset,
                    hdr_data,
                    ac_index,
                };
                self.get_arrived(h, &r, reply_md, reply_offset)
            }
            Body::Ack {
                md,
                offset,
                rlength,
                mlength,
            } => self.ack_arrived(h, md, offset, rlength, mlength),
            Body::Reply {
                md,
                local_offset,
                rlength,
                mlength,
            } => self.reply_arrived(h, md, local_offset, rlength, mlength),
        };
        taken.unwrap_or_else(|reason| {
            self.status.drop_count += 1;
            let length = match h.body {
                Body::Get { length, .. } => length,
                _ => h.payload_len(),
            };
            self.status.drop_length = self.status.drop_length.wrapping_add(length);
            Incoming::Dropped(reason)
        })
    }

    /// Rules 2-9.
    fn translate(&self, h: &Header, r: &Request) -> Result<Match, DropReason> {
        if i64::from(h.pt_index) > i64::from(self.config.limits.max_pt_index) {
            return Err(DropReason::PtIndex);
        }
        let ac = self
            .ac
            .get(r.ac_index as usize)
            .ok_or(DropReason::AccessControl)?;
        if !ac.admits(h.source, h.uid, h.jid, h.pt_index) {
            return Err(DropReason::AccessControl);
        }
        if !self.has_room() {
            return Err(DropReason::NoSpace);
        }
        let taken = self
            .matching
            .search(h.pt_index, h.source, h.match_bits, |me| {
                let md = me.md?;
                let at = self.md(md)?.accepts(r.access, r.remote_offset, r.length)?;
                Some((md, at))
            });
        let ((md, (offset, mlength)), searched) = taken.ok_or(DropReason::NoMatch)?;
        Ok(Match {
            md,
            offset,
            mlength,
            searched,
        })
    }

    /// Accounts the message on the MD and posts START (rule 10, one step with the search).
    fn accept(
        &mut self,
        h: &Header,
        r: &Request,
        m: &Match,
        kind: OpKind,
        events: (EventKind, EventKind),
        ack: Option<Header>,
    ) -> Result<(OpId, Segments), DropReason> {
        let md = self.md_mut(m.md).ok_or(DropReason::NoMatch)?;
        let (was_active, me) = (md.active, md.me);
        md.account_target(m.mlength);
        let changed = was_active != md.active;
        let segments = md.desc.memory.slice(m.offset, m.mlength);
        if changed
            && let Some(pt) = me
                .and_then(|me| self.matching.get(me))
                .map(|me| me.pt_index)
        {
            self.touch(pt);
        }
        self.status.recv_count += 1;
        self.status.recv_length = self.status.recv_length.wrapping_add(m.mlength);
        let what = OpStart {
            kind,
            initiator: h.source,
            uid: h.uid,
            jid: h.jid,
            pt_index: h.pt_index,
            match_bits: h.match_bits,
            rlength: r.length,
            mlength: m.mlength,
            offset: m.offset,
            hdr_data: r.hdr_data,
            start: events.0,
            end: events.1,
            ack,
        };
        let op = self.begin(m.md, what).ok_or(DropReason::NoSpace)?;
        Ok((op, segments))
    }

    fn answer(&self, h: &Header, body: Body) -> Header {
        Header {
            target: h.source,
            source: self.config.id,
            uid: self.config.uid,
            jid: self.config.jid,
            pt_index: h.pt_index,
            match_bits: h.match_bits,
            body,
        }
    }

    fn put_arrived(
        &mut self,
        h: &Header,
        r: &Request,
        ack_md: Option<MdHandle>,
    ) -> Result<Incoming, DropReason> {
        let m = self.translate(h, r)?;
        let acks = self
            .md(m.md)
            .is_some_and(|md| !md.desc.options.contains(MdOptions::ACK_DISABLE));
        let ack = ack_md.filter(|_| acks).map(|md| {
            self.answer(
                h,
                Body::Ack {
                    md,
                    offset: r.remote_offset,
                    rlength: r.length,
                    mlength: m.mlength,
                },
            )
        });
        let events = (EventKind::PutStart, EventKind::PutEnd);
        let (op, segments) = self.accept(h, r, &m, OpKind::Deposit, events, ack)?;
        Ok(Incoming::Deposit(Deposit {
            op,
            md: m.md,
            segments,
            length: m.mlength,
            searched: m.searched,
        }))
    }

    fn get_arrived(
        &mut self,
        h: &Header,
        r: &Request,
        reply_md: MdHandle,
        reply_offset: u64,
    ) -> Result<Incoming, DropReason> {
        let m = self.translate(h, r)?;
        let header = self.answer(
            h,
            Body::Reply {
                md: reply_md,
                local_offset: reply_offset,
                rlength: r.length,
                mlength: m.mlength,
            },
        );
        let (kind, events) = match r.access {
            Access::GetPut => (OpKind::Swap, (EventKind::GetPutStart, EventKind::GetPutEnd)),
            _ => (OpKind::Reply, (EventKind::GetStart, EventKind::GetEnd)),
        };
        let (op, segments) = self.accept(h, r, &m, kind, events, None)?;
        let searched = m.searched;
        Ok(if kind == OpKind::Swap {
            Incoming::Swap(Swap {
                op,
                header,
                segments,
                length: m.mlength,
                searched,
            })
        } else {
            Incoming::Reply(ReplyOut {
                op,
                md: m.md,
                header,
                segments,
                searched,
            })
        })
    }

    /// The MD an answer belongs to, if it may still have it (rules 17, 18). An answer that nothing
    /// asked for would let any peer write into any MD whose handle it guesses, so each MD counts
    /// the answers it awaits; `due` names the counter.
    fn waiting(
        &mut self,
        md: MdHandle,
        due: fn(&mut Md) -> &mut u32,
    ) -> Result<&mut Md, DropReason> {
        let md = self.md_mut(md).ok_or(DropReason::Stale)?;
        let count = due(md);
        *count = count.checked_sub(1).ok_or(DropReason::Stale)?;
        if md.active {
            Ok(md)
        } else {
            Err(DropReason::Stale)
        }
    }

    fn answered(
        h: &Header,
        rlength: u64,
        mlength: u64,
        offset: u64,
        start: EventKind,
        end: EventKind,
    ) -> OpStart {
        OpStart {
            kind: OpKind::Deposit,
            initiator: h.source,
            uid: h.uid,
            jid: h.jid,
            pt_index: h.pt_index,
            match_bits: h.match_bits,
            rlength,
            mlength,
            offset,
            hdr_data: 0,
            start,
            end,
            ack: None,
        }
    }

    fn ack_arrived(
        &mut self,
        h: &Header,
        md: MdHandle,
        offset: u64,
        rlength: u64,
        mlength: u64,
    ) -> Result<Incoming, DropReason> {
        self.waiting(md, |md| &mut md.acks_due)?
            .desc
            .eq
            .ok_or(DropReason::Stale)?;
        let what = Self::answered(h, rlength, mlength, offset, EventKind::Ack, EventKind::Ack);
        self.post_ack(md, &what);
        Ok(Incoming::Acked)
    }

    /// A reply longer than the room at its offset is truncated (rule 18).
    fn reply_arrived(
        &mut self,
        h: &Header,
        md_handle: MdHandle,
        local_offset: u64,
        rlength: u64,
        mlength: u64,
    ) -> Result<Incoming, DropReason> {
        if !self.has_room() {
            return Err(DropReason::NoSpace);
        }
        let room = self
            .waiting(md_handle, |md| &mut md.replies_due)?
            .length
            .checked_sub(local_offset)
            .ok_or(DropReason::Stale)?;
        let length = mlength.min(room);
        let what = Self::answered(
            h,
            rlength,
            length,
            local_offset,
            EventKind::ReplyStart,
            EventKind::ReplyEnd,
        );
        let md = self.md_mut(md_handle).ok_or(DropReason::Stale)?;
        md.consume();
        let segments = md.desc.memory.slice(local_offset, length);
        self.status.recv_count += 1;
        self.status.recv_length = self.status.recv_length.wrapping_add(length);
        let op = self.begin(md_handle, what).ok_or(DropReason::NoSpace)?;
        Ok(Incoming::Deposit(Deposit {
            op,
            md: md_handle,
            segments,
            length,
            searched: 0,
        }))
    }
}
