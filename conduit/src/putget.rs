//! Puts and gets.
//!
//! The remote side is always RAR, reached by an offset in the peer's segment. The local side is, in
//! this order: RARSRC when the memory is in the own segment, a chunk of ReqSB when it is small and
//! one is free, a temporary descriptor otherwise.

use crate::am::request::Source;
use crate::conduit::{Conduit, Scope};
use crate::core::{Core, GET_CHUNK_DATA, SbUse};
use crate::error::RmaError;
use crate::extended::Counted;
use crate::fault::{Fault, refused};
use crate::matchbits::RmaBits;
use crate::ops::{Handle, Key, Ops};
use crate::rma::segments::{Pinned, Segments};
use crate::tmpmd::{TmpUse, UserMem};
use crate::trace::Transfer;
use ::firehose::Unit;
use portals_shim::{AckRequest, Put};

/// Largest single message, bytes.
const MAX_TRANSFER: usize = 1 << 31;

/// One message of a put or get.
#[derive(Clone, Copy, Debug)]
struct Piece {
    node: u32,
    /// Offset in the segment of `node`.
    remote: u64,
    local: Source,
    get: bool,
    op: Key,
    /// The caller waits until the memory is free.
    wait_local: bool,
}

/// Where a message finds its local memory, as [`Conduit::choose`] says.
#[derive(Clone, Copy, Debug)]
enum Local {
    /// In the own segment, at this offset.
    Segment(usize),
    /// In a chunk, if one is free when the message begins.
    Chunk(UserMem),
    /// Where it is: pinned by this unit, or for the message.
    Memory(UserMem, Option<Unit>),
}

/// How a piece reaches its local memory.
#[derive(Clone, Copy, Debug)]
enum Path {
    /// By the descriptor of the own segment, at this offset.
    Segment(usize),
    /// By a copy to or from this chunk of ReqSB.
    Chunk(u32),
    /// By a descriptor of its own.
    Tmp(UserMem, Option<Unit>),
}

impl Source {
    fn part(&self, from: usize, len: usize) -> Self {
        match self {
            Self::Empty | Self::Placed { .. } => *self,
            Self::User(m) => Self::User(m.part(from, len)),
            Self::Segment { offset, .. } => Self::Segment {
                offset: offset + from,
                len,
            },
        }
    }
}

impl Core {
    /// An explicit operation for messages that begin now, whose handle is that of [`Conduit::begun`].
    pub(crate) fn explicit_op(&mut self) -> Result<Key, RmaError> {
        let op = self.ops.explicit().or_else(|| self.ops.within_call());
        op.ok_or(RmaError::TooManyOperations)
    }

    /// Memory of the client that is in the own segment needs no descriptor of its own.
    pub(crate) fn locate(&self, memory: UserMem) -> Source {
        if self.segments.pinned() == Pinned::ByUnits {
            return Source::User(memory);
        }
        let own = self
            .attached
            .as_ref()
            .and_then(|a| a.segments.get(self.me as usize));
        match own.and_then(|s| s.offset_of(memory.addr(), memory.len() as u64)) {
            Some(offset) => Source::Segment {
                offset: offset as usize,
                len: memory.len(),
            },
            None => Source::User(memory),
        }
    }

    /// Whether some message still needs the memory of a lending.
    pub(crate) fn touches(&self, lending: u64) -> bool {
        self.tmpmds.touches(lending) || self.fire.as_ref().is_some_and(|f| f.touches(lending))
    }

    /// Starts a piece whose resources are in hand.
    fn start(&mut self, piece: &Piece, path: Path) -> Result<(), Fault> {
        let len = piece.local.len() as u64;
        let local_completion = piece.wait_local && matches!(path, Path::Segment(_)) && !piece.get;
        let bits = RmaBits {
            get: piece.get,
            local_completion,
            op: piece.op.index,
            implicit: self.ops.is_implicit(piece.op),
            chunk: if let Path::Chunk(at) = path { at } else { 0 },
        };
        let to = self.rar_target(piece.node, bits.encode(), piece.remote);
        let (md, offset) = match path {
            Path::Segment(offset) => {
                let rarsrc = self.attached.as_ref().map(|a| a.rarsrc);
                (rarsrc.unwrap_or(self.descriptors.reqsb), offset)
            }
            Path::Chunk(at) if piece.get => (self.descriptors.reqsb, at as usize + GET_CHUNK_DATA),
            Path::Chunk(at) => {
                self.copy_source(&piece.local, self.reqsb.region(), at as usize)?;
                (self.descriptors.reqsb, at as usize)
            }
            Path::Tmp(memory, here) => {
                let what = if piece.get { TmpUse::Get } else { TmpUse::Put };
                if here.is_none() {
                    self.make_room(&memory);
                }
                let safe = self.descriptors.queues.safe;
                let md = self
                    .tmpmds
                    .bind(&self.ni, safe, &memory, (what, here))
                    .map_err(refused("PtlMDBind of client memory"))?;
                (md, 0)
            }
        };
        // Counted before the message exists: its completion cannot come first.
        self.ops.begin(piece.op, piece.get);
        if local_completion {
            self.local_pending += 1;
        }
        let region = (offset as u64, len);
        if piece.get {
            self.ni
                .get_region(md, region, to)
                .map_err(refused("PtlGetRegion"))
        } else if let Path::Tmp(..) = path {
            // Its descriptor is let go by the event that says that it was sent.
            self.ni
                .put_region(md, region, AckRequest::Ack, to, 0)
                .map_err(refused("PtlPutRegion"))
        } else {
            let put = Put::new(md, to).region(region.0, region.1);
            let posted = self.ni.post_put(put.ack(AckRequest::Ack).silent());
            if posted.map_err(refused("PtlPutRegion"))?.is_taken() {
                let _ = self.put_sent(matches!(path, Path::Chunk(_)), bits);
            }
            Ok(())
        }
    }

    /// A put or get by a copy, where the segment of `node` is memory of this process too. `None`: it is not.
    #[inline]
    fn copy_near(
        &self,
        node: u32,
        local: &Source,
        remote: u64,
        get: bool,
    ) -> Option<Result<(), Fault>> {
        let a = self.attached.as_ref()?;
        let (region, start) = a.near.get(node as usize)?.as_ref()?;
        let at = start + remote as usize;
        Some(match (local, get) {
            (Source::User(m), true) => m.copy_from(region, at).map_err(Fault::from),
            (Source::Segment { offset, len }, true) => a
                .region
                .copy_from(*offset, region, at, *len)
                .map_err(Fault::from),
            (local, _) => self.copy_source(local, region, at),
        })
    }
}

impl Conduit {
    /// Puts `data` at address `dest` of the segment of `node`; returns when it is there.
    #[track_caller]
    pub fn put(&self, node: u32, dest: u64, data: &[u8]) -> Result<(), RmaError> {
        self.trace_put("PUT", node, dest, data);
        if self.wrote_near(node, dest, data) {
            return Ok(());
        }
        let handle = match self.put_slice_awaited(node, dest, data) {
            Some(handle) => handle,
            None => self.start_put(node, dest, data)?,
        };
        self.wait_done(handle);
        Ok(())
    }

    /// The lines of a put of a slice.
    #[track_caller]
    #[inline]
    fn trace_put(&self, name: &'static str, node: u32, remote: u64, data: &[u8]) {
        if let Some(t) = &self.tracer {
            t.transfer(&Transfer {
                name,
                node,
                remote,
                local: data.as_ptr().addr() as u64,
                len: data.len(),
                data,
            });
        }
    }

    /// The lines of an operation between segments.
    #[track_caller]
    #[inline]
    fn trace_segment(
        &self,
        name: &'static str,
        node: u32,
        remote: u64,
        (offset, len): (usize, usize),
    ) {
        if let Some(t) = &self.tracer {
            t.transfer(&Transfer {
                name,
                node,
                remote,
                local: self.segment(self.mynode()).addr + offset as u64,
                len,
                data: &[],
            });
        }
    }

    /// A put that needs nothing but a bounds check and a copy; `false`: it is another one, or an error.
    #[inline]
    fn wrote_near(&self, node: u32, dest: u64, data: &[u8]) -> bool {
        if self.handler_depth.get() > 0 {
            return false;
        }
        let core = self.core.borrow();
        let Some(a) = &core.attached else {
            return false;
        };
        let at = node as usize;
        let (Some(segment), Some(Some((region, start)))) = (a.segments.get(at), a.near.get(at))
        else {
            return false;
        };
        let offset = segment.offset_of(dest, data.len() as u64);
        offset.is_some_and(|offset| region.write(start + offset as usize, data).is_ok())
    }

    /// Starts a put; `data` is free again on return.
    #[track_caller]
    pub fn put_nb(&self, node: u32, dest: u64, data: &[u8]) -> Result<Handle, RmaError> {
        self.trace_put("PUT_NB", node, dest, data);
        if self.wrote_near(node, dest, data) {
            return Ok(Handle::DONE);
        }
        self.start_put(node, dest, data)
    }

    fn start_put(&self, node: u32, dest: u64, data: &[u8]) -> Result<Handle, RmaError> {
        if let Some(handle) = self.put_slice_at_once(node, dest, data, Counted::Explicit) {
            return Ok(handle);
        }
        let remote = self.check_remote(node, dest, data.len())?;
        self.lend(data, Scope::Full, |m| {
            self.explicit(node, remote, Source::User(m), false, false)
        })
    }

    /// Starts a put of a slice that is counted with the implicit operations.
    #[track_caller]
    pub fn put_nbi(&self, node: u32, dest: u64, data: &[u8]) -> Result<(), RmaError> {
        self.trace_put("PUT_NBI", node, dest, data);
        if self.wrote_near(node, dest, data) {
            return Ok(());
        }
        let at_once = self.put_slice_at_once(node, dest, data, Counted::Implicit);
        if at_once.is_some() {
            return Ok(());
        }
        let remote = self.check_remote(node, dest, data.len())?;
        self.lend(data, Scope::Full, |m| {
            self.transfer(node, remote, Source::User(m), false, None, false)
        })
    }

    /// Puts `len` bytes at `offset` of the own segment to address `dest` of `node`'s, without a
    /// copy; returns when they are there.
    #[track_caller]
    pub fn put_from_segment(
        &self,
        node: u32,
        dest: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("PUT_BULK", node, dest, (offset, len));
        let (remote, local) = self.check_both(node, dest, offset, len)?;
        let handle = self.explicit(node, remote, local, false, false)?;
        self.wait_done(handle);
        Ok(())
    }

    /// Starts a put from the own segment, whose bytes must not change until the handle is
    /// synchronised.
    #[track_caller]
    pub fn put_from_segment_nb(
        &self,
        node: u32,
        dest: u64,
        offset: usize,
        len: usize,
    ) -> Result<Handle, RmaError> {
        self.trace_segment("PUT_NB_BULK", node, dest, (offset, len));
        let (remote, local) = self.check_both(node, dest, offset, len)?;
        self.explicit(node, remote, local, false, false)
    }

    /// Starts a put from the own segment that is counted with the implicit operations.
    #[track_caller]
    pub fn put_from_segment_nbi(
        &self,
        node: u32,
        dest: u64,
        offset: usize,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("PUT_NBI_BULK", node, dest, (offset, len));
        let (remote, local) = self.check_both(node, dest, offset, len)?;
        self.transfer(node, remote, local, false, None, false)
    }

    /// Gets `len` bytes at address `src` of `node`'s segment to `offset` of the own; returns when
    /// they are there.
    #[track_caller]
    pub fn get_to_segment(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("GET_BULK", node, src, (offset, len));
        let handle = self.get_segment(offset, node, src, len)?;
        self.wait_done(handle);
        Ok(())
    }

    /// Starts a get to the own segment.
    #[track_caller]
    pub fn get_to_segment_nb(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<Handle, RmaError> {
        self.trace_segment("GET_NB_BULK", node, src, (offset, len));
        self.get_segment(offset, node, src, len)
    }

    fn get_segment(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<Handle, RmaError> {
        let (remote, local) = self.check_both(node, src, offset, len)?;
        match self.get_segment_at_once(node, src, &local, Counted::Explicit) {
            Some(handle) => Ok(handle),
            None => self.explicit(node, remote, local, true, false),
        }
    }

    /// Starts a get to the own segment that is counted with the implicit operations.
    #[track_caller]
    pub fn get_to_segment_nbi(
        &self,
        offset: usize,
        node: u32,
        src: u64,
        len: usize,
    ) -> Result<(), RmaError> {
        self.trace_segment("GET_NBI_BULK", node, src, (offset, len));
        let (remote, local) = self.check_both(node, src, offset, len)?;
        match self.get_segment_at_once(node, src, &local, Counted::Implicit) {
            Some(_) => Ok(()),
            None => self.transfer(node, remote, local, true, None, false),
        }
    }

    /// Waits until an operation is complete.
    #[track_caller]
    pub fn wait(&self, handle: Handle) {
        let since = self.tracer.as_ref().map(|t| t.now());
        self.wait_done(handle);
        self.trace_wait("WAIT_SYNCNB", since);
    }

    pub(crate) fn wait_done(&self, handle: Handle) {
        if let Handle(Some(key)) = handle {
            self.wait_in("waiting for puts and gets", Scope::Full, |c| {
                c.ops.finish(key).then_some(())
            });
        }
    }

    #[track_caller]
    #[inline]
    fn trace_wait(&self, name: &'static str, since: Option<u64>) {
        if let (Some(t), Some(since)) = (&self.tracer, since) {
            t.waited(name, since);
        }
    }

    #[track_caller]
    #[inline]
    fn trace_try(&self, name: &'static str, done: bool) {
        if let Some(t) = &self.tracer {
            t.event(name, false, u64::from(done));
        }
    }

    /// Waits until the implicit operations are complete that are the calling thread's now.
    #[track_caller]
    fn wait_implicit(&self, name: &'static str, puts: bool, gets: bool) {
        let since = self.tracer.as_ref().map(|t| t.now());
        let base = self.core.borrow().ops.base();
        self.wait_in("waiting for puts and gets", Scope::Full, |c| {
            c.ops.base_done(base, puts, gets).then_some(())
        });
        self.trace_wait(name, since);
    }

    /// Polls once; `Err` gives the handle back if its operation is not complete.
    #[track_caller]
    pub fn try_sync(&self, handle: Handle) -> Result<(), Handle> {
        if handle != Handle::DONE {
            self.poll();
        }
        let done = self.check_sync(handle);
        self.trace_try("TRY_SYNCNB", done.is_ok());
        done
    }

    /// Waits until all implicit puts are complete.
    #[track_caller]
    pub fn wait_nbi_puts(&self) {
        self.wait_implicit("WAIT_SYNCNBI_PUTS", true, false);
    }

    /// Waits until all implicit gets are complete.
    #[track_caller]
    pub fn wait_nbi_gets(&self) {
        self.wait_implicit("WAIT_SYNCNBI_GETS", false, true);
    }

    /// Waits until all implicit puts and gets are complete.
    #[track_caller]
    pub fn wait_nbi_all(&self) {
        self.wait_implicit("WAIT_SYNCNBI_ALL", true, true);
    }

    /// Polls once; whether the implicit puts, gets, or both that are asked about are complete.
    #[track_caller]
    pub fn try_nbi(&self, puts: bool, gets: bool) -> bool {
        self.poll();
        let done = self.core.borrow().ops.implicit_done(puts, gets);
        let name = match (puts, gets) {
            (true, true) => "TRY_SYNCNBI_ALL",
            (true, false) => "TRY_SYNCNBI_PUTS",
            _ => "TRY_SYNCNBI_GETS",
        };
        self.trace_try(name, done);
        done
    }

    /// Later implicit operations belong to an access region.
    pub fn begin_nbi_region(&self) -> Result<(), RmaError> {
        let mut core = self.core.borrow_mut();
        if core.ops.in_region() {
            return Err(RmaError::AccessRegion);
        }
        core.ops.begin_region().ok_or(RmaError::TooManyOperations)
    }

    /// Ends the access region; the handle stands for all its operations.
    pub fn end_nbi_region(&self) -> Result<Handle, RmaError> {
        let key = self.core.borrow_mut().ops.end_region();
        key.map(|k| Handle(Some(k))).ok_or(RmaError::AccessRegion)
    }

    pub(crate) fn start_put_raw(
        &self,
        node: u32,
        dest: u64,
        memory: UserMem,
        bulk: bool,
        implicit: bool,
    ) -> Result<Handle, RmaError> {
        let remote = self.check_remote(node, dest, memory.len())?;
        let local = self.core.borrow().locate(memory);
        let handle = if implicit {
            self.transfer(node, remote, local, false, None, !bulk)?;
            Handle::DONE
        } else {
            self.explicit(node, remote, local, false, !bulk)?
        };
        if !bulk {
            let lending = memory.lending;
            self.wait_in("a put or get", Scope::Full, |c| {
                (!c.touches(lending)).then_some(())
            });
        }
        Ok(handle)
    }

    pub(crate) fn start_get(
        &self,
        memory: UserMem,
        node: u32,
        src: u64,
    ) -> Result<Handle, RmaError> {
        if let Some(handle) = self.get_at_once(node, src, &memory, Counted::Explicit) {
            return Ok(handle);
        }
        let remote = self.check_remote(node, src, memory.len())?;
        let local = self.core.borrow().locate(memory);
        self.explicit(node, remote, local, true, false)
    }

    pub(crate) fn start_get_nbi(
        &self,
        memory: UserMem,
        node: u32,
        src: u64,
    ) -> Result<(), RmaError> {
        let at_once = self.get_at_once(node, src, &memory, Counted::Implicit);
        if at_once.is_some() {
            return Ok(());
        }
        let remote = self.check_remote(node, src, memory.len())?;
        let local = self.core.borrow().locate(memory);
        self.transfer(node, remote, local, true, None, false)
    }

    pub(crate) fn check_remote(&self, node: u32, addr: u64, len: usize) -> Result<u64, RmaError> {
        if self.handler_depth.get() > 0 {
            return Err(RmaError::InHandler);
        }
        if !self.is_attached() {
            return Err(RmaError::NotAttached);
        }
        if node >= self.nodes() {
            return Err(RmaError::Node {
                node,
                nodes: self.nodes(),
            });
        }
        // Nothing is nowhere: clients move ranges that may be empty.
        if len == 0 {
            return Ok(0);
        }
        self.segment(node)
            .offset_of(addr, len as u64)
            .ok_or(RmaError::Remote { node, addr, len })
    }

    fn check_both(
        &self,
        node: u32,
        addr: u64,
        offset: usize,
        len: usize,
    ) -> Result<(u64, Source), RmaError> {
        let remote = self.check_remote(node, addr, len)?;
        let local = self.own_segment(offset, len);
        Ok((remote, local.ok_or(RmaError::Local { offset, len })?))
    }

    /// Memory of the own segment by its offset, if this rank has a segment and it is that long.
    pub(crate) fn own_segment(&self, offset: usize, len: usize) -> Option<Source> {
        let has =
            self.segments().has_segment() && self.segment(self.mynode()).contains(offset, len);
        has.then_some(Source::Segment { offset, len })
    }

    /// The segment mode of the job.
    #[inline]
    pub(crate) fn segments(&self) -> Segments {
        self.core.borrow().segments
    }

    pub(crate) fn explicit(
        &self,
        node: u32,
        remote: u64,
        local: Source,
        get: bool,
        wait_local: bool,
    ) -> Result<Handle, RmaError> {
        if local.len() == 0 || self.copied(node, &local, remote, get) {
            return Ok(Handle::DONE);
        }
        let key = self.core.borrow_mut().explicit_op()?;
        match self.transfer(node, remote, local, get, Some(key), wait_local) {
            Ok(()) => Ok(self.begun(key)),
            Err(error) => {
                // What of it is under way ends first.
                self.wait(Handle(Some(key)));
                Err(error)
            }
        }
    }

    /// The handle of an explicit operation whose messages have all begun; waits for one that may not outlive its call.
    #[inline]
    pub(crate) fn begun(&self, key: Key) -> Handle {
        if Ops::ends_in_call(key) {
            self.wait_done(Handle(Some(key)));
            return Handle::DONE;
        }
        Handle(Some(key))
    }

    /// Makes a checked put or get by a copy, if that can be.
    #[inline]
    pub(crate) fn copied(&self, node: u32, local: &Source, remote: u64, get: bool) -> bool {
        let copied = self.core.borrow().copy_near(node, local, remote, get);
        match copied {
            Some(done) => {
                self.check("a put or get within this machine", done);
                true
            }
            None => false,
        }
    }

    /// Chooses where one message finds the first bytes of its local memory, and how many they are. Memory that is too long for a
    /// chunk is pinned by units, if the job keeps such memory pinned. `None`: there is no memory.
    #[inline]
    fn choose(&self, local: Source, get: bool) -> Option<(Source, Local)> {
        let memory = match local {
            Source::Empty | Source::Placed { .. } => return None,
            Source::Segment { offset, .. } => return Some((local, Local::Segment(offset))),
            Source::User(memory) => memory,
        };
        let (bounces, stays) = {
            let core = self.core.borrow();
            (core.env.bounces(get, memory.len()), core.home.is_some())
        };
        if bounces {
            return Some((local, Local::Chunk(memory)));
        }
        let (memory, here) = match stays.then(|| self.pin_here(memory)) {
            Some(Ok(Some((unit, n)))) => (memory.part(0, n as usize), Some(unit)),
            _ => (memory, None),
        };
        Some((Source::User(memory), Local::Memory(memory, here)))
    }

    /// Takes what a message with a ticket needs for its local memory.
    #[inline]
    fn take_path(&self, local: Local, get: bool) -> Path {
        let (memory, here) = match local {
            Local::Segment(offset) => return Path::Segment(offset),
            Local::Chunk(memory) => {
                let whose = if get {
                    SbUse::Get { to: memory }
                } else {
                    SbUse::Put
                };
                if let Some(at) = self.core.borrow_mut().reqsb.take(whose) {
                    return Path::Chunk(at);
                }
                (memory, None)
            }
            Local::Memory(memory, here) => (memory, here),
        };
        // Only SAFE events: a request handler could spend the ticket just taken.
        self.wait_in("a put or get", Scope::Safe, |c| {
            c.tmp_tickets.take(1).then_some(())
        });
        Path::Tmp(memory, here)
    }

    /// Starts the messages of a checked put or get; those without a key are implicit.
    pub(crate) fn transfer(
        &self,
        node: u32,
        remote: u64,
        local: Source,
        get: bool,
        key: Option<Key>,
        wait_local: bool,
    ) -> Result<(), RmaError> {
        let len = local.len();
        if len == 0 {
            return Ok(());
        }
        if self.segments().pinned() == Pinned::ByUnits {
            let Some(memory) = self.own_memory(&local) else {
                return Ok(());
            };
            let op = key.unwrap_or_else(|| self.core.borrow().ops.implicit());
            let addr = self.segment(node).addr + remote;
            return self.transfer_anywhere(node, addr, memory, get, op);
        }
        if key.is_none() && self.copied(node, &local, remote, get) {
            return Ok(());
        }
        let op = key.unwrap_or_else(|| self.core.borrow().ops.implicit());
        let mut done = 0;
        while done < len {
            let n = (len - done).min(MAX_TRANSFER);
            let Some((local, place)) = self.choose(local.part(done, n), get) else {
                break;
            };
            let n = local.len();
            let piece = Piece {
                node,
                remote: remote + done as u64,
                local,
                get,
                op,
                wait_local,
            };
            self.wait_in("a put or get", Scope::Full, |c| {
                c.tickets.take(1).then_some(())
            });
            let path = self.take_path(place, get);
            let started = self.core.borrow_mut().start(&piece, path);
            self.check(if get { "get" } else { "put" }, started);
            done += n;
        }
        if wait_local {
            self.wait_in("a put or get", Scope::Full, |c| {
                (c.local_pending == 0).then_some(())
            });
        }
        Ok(())
    }
}
