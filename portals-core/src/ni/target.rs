//! Incoming headers: address translation, the decision to ack, where a reply lands
//! (rules 1-18).

use super::Ni;
use super::complete::{Account, Begun, OpKind, What};
use crate::ack::Ack;
use crate::event::{EventKind, NiFail};
use crate::handle::{MdHandle, OpId};
use crate::header::{Body, Header};
use crate::matching::{Take, WALKED};
use crate::md::{Access, Md, MdRest, MdTable};
use crate::memory::{Segment, Segments};

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

/// A put that was taken, with its data, in one step.
#[derive(Clone, Copy, Debug)]
pub struct Deposited {
    /// The descriptor.
    pub md: MdHandle,
    /// The ack that is due.
    pub ack: Option<Header>,
    /// Entries looked at.
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

/// Moves the data of a put that has matched ([`Ni::deposit_put_with`]): the first so many bytes to these places. Says whether
/// it could. A type of its own, and no closure, can ask to be made part of its caller.
pub trait Place {
    /// Moves the first `length` bytes of the data to `pieces`, in their order.
    fn place(self, pieces: &[Segment], length: u64) -> NiFail;
}

/// The same by a closure.
struct By<F>(F);

impl<F: FnOnce(&[Segment], u64) -> NiFail> Place for By<F> {
    #[inline(always)]
    fn place(self, pieces: &[Segment], length: u64) -> NiFail {
        self.0(pieces, length)
    }
}

/// What a message needs of a descriptor.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    mds: &'a MdTable,
    access: Access,
    offset: u64,
    length: u64,
}

impl Take<(MdHandle, (u64, u64))> for Wanted<'_> {
    #[inline(always)]
    fn of(&self, md: MdHandle) -> Option<(MdHandle, (u64, u64))> {
        // An entry names no descriptor but a current one.
        let slot = md.0.slot();
        let at = self
            .mds
            .accepts(slot, self.access, self.offset, self.length)?;
        Some((md, at))
    }
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
                ack_md: _,
            } => {
                let r = Request {
                    access: Access::Put,
                    length,
                    remote_offset,
                    hdr_data,
                    ac_index,
                };
                return self.put_arrived(h, &r);
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
            Body::Ack(ack) => self.ack_arrived(h, ack),
            Body::Reply {
                md,
                local_offset,
                rlength,
                mlength,
            } => self.reply_arrived(h, md, local_offset, rlength, mlength),
        };
        taken.unwrap_or_else(|reason| self.drop_message(h, reason))
    }

    #[cold]
    fn drop_message(&mut self, h: &Header, reason: DropReason) -> Incoming {
        self.status.drop_count += 1;
        let length = match h.body {
            Body::Get { length, .. } => length,
            _ => h.payload_len(),
        };
        self.status.drop_length = self.status.drop_length.wrapping_add(length);
        Incoming::Dropped(reason)
    }

    /// Rules 3 and 4.
    #[inline(always)]
    fn admits(&self, h: &Header, ac_index: u32) -> Result<(), DropReason> {
        match self.ac.get(ac_index as usize) {
            Some(ac) if ac.admits(h.source, h.uid, h.jid, h.pt_index) => Ok(()),
            _ => Err(DropReason::AccessControl),
        }
    }

    /// Rules 2-9.
    #[inline(always)]
    fn translate(&mut self, h: &Header, r: &Request) -> Result<Match, DropReason> {
        if h.pt_index as usize >= self.matching.portals() {
            return Err(DropReason::PtIndex);
        }
        self.admits(h, r.ac_index)?;
        let wanted = Wanted {
            mds: &self.mds,
            access: r.access,
            offset: r.remote_offset,
            length: r.length,
        };
        let found = self
            .matching
            .search(h.pt_index, h.source, h.match_bits, wanted);
        let Some(((md, (offset, mlength)), searched)) = found else {
            self.matching.searched(h.pt_index);
            return Err(DropReason::NoMatch);
        };
        if searched > WALKED {
            self.matching.searched(h.pt_index);
        }
        Ok(Match {
            md,
            offset,
            mlength,
            searched,
        })
    }

    /// Accounts the message on the MD and posts START (rule 10, one step with the search).
    #[inline(always)]
    fn accept(
        &mut self,
        h: &Header,
        r: &Request,
        m: &Match,
        kind: OpKind,
        events: (EventKind, EventKind),
        ack: Option<Ack>,
    ) -> Result<Begun, DropReason> {
        let what = Self::taken(h, r, m);
        let account = Account::Message(m.mlength);
        let begun = self
            .begin(m.md, account, kind, events, what, ack)
            .ok_or(DropReason::NoSpace)?;
        self.status.recv_count += 1;
        self.status.recv_length = self.status.recv_length.wrapping_add(m.mlength);
        Ok(begun)
    }

    /// The memory that a message is for.
    fn segments(&self, m: &Match, begun: &Begun) -> Segments {
        let slot = m.md.0.slot();
        self.mds.slice(slot, begun.region, m.offset, m.mlength)
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

    /// Written so that the deposit is made where the caller wants it.
    #[inline(always)]
    fn put_arrived(&mut self, h: &Header, r: &Request) -> Incoming {
        let m = match self.translate(h, r) {
            Ok(m) => m,
            Err(reason) => return self.drop_message(h, reason),
        };
        let ack = Ack::of(&h.body, m.mlength);
        let events = (EventKind::PutStart, EventKind::PutEnd);
        let begun = match self.accept(h, r, &m, OpKind::Deposit, events, ack) {
            Ok(begun) => begun,
            Err(reason) => return self.drop_message(h, reason),
        };
        Incoming::Deposit(Deposit {
            op: begun.op,
            md: m.md,
            segments: self.segments(&m, &begun),
            length: m.mlength,
            searched: m.searched,
        })
    }

    /// What a put asks for.
    #[inline(always)]
    fn put_of(h: &Header) -> Option<Request> {
        let Body::Put {
            length,
            remote_offset,
            hdr_data,
            ac_index,
            ack_md: _,
        } = h.body
        else {
            return None;
        };
        Some(Request {
            access: Access::Put,
            length,
            remote_offset,
            hdr_data,
            ac_index,
        })
    }

    /// Takes a put whose data, or as much of it as there is, lies at hand: [`Ni::handle_header`] and
    /// [`Ni::deposit_end`] in one step. `place` is told where the first so many bytes go, moves them, and
    /// says whether it could. `None`: the message was dropped, or was no put, and then nothing happened.
    #[inline(always)]
    pub fn deposit_put(
        &mut self,
        h: &Header,
        place: impl FnOnce(&[Segment], u64) -> NiFail,
    ) -> Option<Deposited> {
        self.deposit_put_with(h, By(place))
    }

    /// Handles a put whose data `place` puts where it belongs; see [`Ni::deposit_put`].
    #[inline(always)]
    pub fn deposit_put_with(&mut self, h: &Header, place: impl Place) -> Option<Deposited> {
        let r = Self::put_of(h)?;
        let m = match self.translate(h, &r) {
            Ok(m) => m,
            Err(reason) => {
                self.drop_message(h, reason);
                return None;
            }
        };
        let slot = m.md.0.slot();
        let fail = match self.mds.at(slot).and_then(Md::region) {
            Some(whole) => {
                let piece = Segment {
                    addr: whole.addr + m.offset,
                    len: m.mlength,
                };
                place.place(&[piece], m.mlength)
            }
            None => place.place(&self.mds.slice(slot, None, m.offset, m.mlength), m.mlength),
        };
        self.deposited(h, &r, &m, fail)
    }

    /// Takes a put whose data its initiator has written into the descriptor `to`, as [`Ni::open_to_writes`] allows: the rest of
    /// [`Ni::deposit_put`]. Entries before it in its list may have come since the initiator learned of the descriptor. So may an
    /// access control entry, if the owner still waits for the initiator's word that it knows of the change; then the put counts as
    /// `earlier`. `None`: it may not be written by this put, which was dropped.
    pub fn notified_put(&mut self, h: &Header, to: MdHandle, earlier: bool) -> Option<Deposited> {
        let r = Self::put_of(h)?;
        let admitted = if earlier {
            Ok(())
        } else {
            self.admits(h, r.ac_index)
        };
        match admitted.and_then(|()| self.written_at(h, &r, to)) {
            Ok(m) => self.deposited(h, &r, &m, NiFail::OK),
            Err(reason) => {
                self.drop_message(h, reason);
                None
            }
        }
    }

    /// Rules 4 to 8 for one descriptor.
    fn written_at(&self, h: &Header, r: &Request, to: MdHandle) -> Result<Match, DropReason> {
        let entry = self
            .md_rest(to)
            .and_then(|rest| self.matching.get(rest.me?));
        let fits = entry.is_some_and(|me| {
            me.pt_index == h.pt_index
                && me.match_id.admits(h.source)
                && (me.match_bits ^ h.match_bits) & !me.ignore_bits == 0
        });
        let slot = to.0.slot();
        let open = self.mds.at(slot).is_some_and(Md::is_open);
        let place = self.mds.accepts(slot, r.access, r.remote_offset, r.length);
        let (offset, mlength) = place.filter(|_| fits && open).ok_or(DropReason::NoMatch)?;
        Ok(Match {
            md: to,
            offset,
            mlength,
            searched: 1,
        })
    }

    /// A put whose data is in place, or has failed: accounts it, posts its events, decides on its ack.
    #[inline(always)]
    fn deposited(&mut self, h: &Header, r: &Request, m: &Match, fail: NiFail) -> Option<Deposited> {
        let what = Self::taken(h, r, m);
        let account = Account::Message(m.mlength);
        let events = (EventKind::PutStart, EventKind::PutEnd);
        self.status.recv_length = self.status.recv_length.wrapping_add(m.mlength);
        let passed = self.pass(m.md, account, events, |_| what, fail, false);
        self.status.recv_count += 1;
        let passed = passed?;
        let granted = passed.acks && fail == NiFail::OK;
        let wanted = Ack::of(&h.body, m.mlength).filter(|_| granted);
        let ack = wanted.map(|ack| self.answer(h, Body::Ack(ack)));
        Some(Deposited {
            md: m.md,
            ack,
            searched: m.searched,
        })
    }

    /// What the events of an accepted message say.
    #[inline(always)]
    fn taken(h: &Header, r: &Request, m: &Match) -> What {
        What {
            initiator: h.source,
            uid: h.uid,
            jid: h.jid,
            pt_index: h.pt_index,
            match_bits: h.match_bits,
            rlength: r.length,
            mlength: m.mlength,
            offset: m.offset,
            hdr_data: r.hdr_data,
        }
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
        let begun = self.accept(h, r, &m, kind, events, None)?;
        let (op, searched) = (begun.op, m.searched);
        let segments = self.segments(&m, &begun);
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

    /// Whether the MD an answer belongs to may still have it (rules 17, 18). An answer that nothing
    /// asked for would let any peer write into any MD whose handle it guesses, so each MD counts
    /// the answers it awaits; `due` names the counter.
    #[inline]
    pub(super) fn await_less(
        &mut self,
        md: MdHandle,
        due: fn(&mut MdRest) -> &mut u32,
    ) -> Result<(), DropReason> {
        let count = due(self.md_rest_mut(md).ok_or(DropReason::Stale)?);
        *count = count.checked_sub(1).ok_or(DropReason::Stale)?;
        Ok(())
    }

    /// What an answer is to the process that asked.
    fn answered(h: &Header, rlength: u64, mlength: u64, offset: u64) -> What {
        What {
            initiator: h.source,
            uid: h.uid,
            jid: h.jid,
            pt_index: h.pt_index,
            match_bits: h.match_bits,
            rlength,
            mlength,
            offset,
            hdr_data: 0,
        }
    }

    fn ack_arrived(&mut self, h: &Header, ack: Ack) -> Result<Incoming, DropReason> {
        let Ack { md, offset, .. } = ack;
        self.await_less(md, |rest| &mut rest.acks_due)?;
        self.md(md)
            .filter(|md| md.active && md.shown.eq.is_some())
            .ok_or(DropReason::Stale)?;
        let what = Self::answered(h, ack.rlength, ack.mlength, offset);
        self.post_ack(md, what, NiFail::OK);
        Ok(Incoming::Acked)
    }

    /// The ack that `put` asked for will not come, for the reason that `fail` says: an ACK event with a failure
    /// takes its place, so that a program which waits for it does not wait for ever.
    pub fn ack_lost(&mut self, put: &Header, fail: NiFail) {
        let Some(ack) = Ack::of_nothing(&put.body) else {
            return;
        };
        let awaited = self.await_less(ack.md, |rest| &mut rest.acks_due).is_ok();
        if awaited && self.md(ack.md).is_some_and(|md| md.shown.eq.is_some()) {
            let mut what = Self::answered(put, ack.rlength, ack.mlength, ack.offset);
            what.initiator = put.target;
            self.post_ack(ack.md, what, fail);
        }
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
        self.await_less(md_handle, |rest| &mut rest.replies_due)?;
        let slot = md_handle.0.slot();
        let md = self
            .md(md_handle)
            .filter(|md| md.active)
            .ok_or(DropReason::Stale)?;
        let room = self
            .mds
            .length(slot, md)
            .checked_sub(local_offset)
            .ok_or(DropReason::Stale)?;
        let length = mlength.min(room);
        let segments = self.mds.slice(slot, md.region(), local_offset, length);
        self.status.recv_count += 1;
        self.status.recv_length = self.status.recv_length.wrapping_add(length);
        let what = Self::answered(h, rlength, length, local_offset);
        let events = (EventKind::ReplyStart, EventKind::ReplyEnd);
        let account = Account::Operation;
        let op = self
            .begin(md_handle, account, OpKind::Deposit, events, what, None)
            .ok_or(DropReason::NoSpace)?
            .op;
        Ok(Incoming::Deposit(Deposit {
            op,
            md: md_handle,
            segments,
            length,
            searched: 0,
        }))
    }
}
