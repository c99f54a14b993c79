//! Communicators.

use crate::calls::Calls;
use crate::error::{CallError, RequestError, TagError};
use crate::layout::Pattern;
use crate::request::{End, Message, Request, Ticket};
use crate::world::{Shared, lock};
use crate::{Slice, Status};
use std::borrow::Borrow;
use std::sync::Arc;

/// The members of a communicator.
#[derive(Clone, Debug)]
pub(crate) enum Group {
    /// All ranks of the job as they are: this many.
    All(u32),
    /// Ranks of the job, by rank; and pairs (of the job, of the communicator) in order.
    Some {
        members: Vec<u32>,
        by_job: Vec<(u32, u32)>,
    },
}

impl Group {
    /// Of `job` ranks those in `members`.
    pub(crate) fn new(job: u32, members: Vec<u32>) -> Self {
        if members.iter().copied().eq(0..job) {
            return Self::All(job);
        }
        let mut by_job: Vec<(u32, u32)> = members.iter().copied().zip(0..).collect();
        by_job.sort_unstable();
        Self::Some { members, by_job }
    }

    const fn size(&self) -> u32 {
        match self {
            Self::All(size) => *size,
            Self::Some { members, .. } => members.len() as u32,
        }
    }

    /// The rank of the job that a rank of the communicator is.
    #[inline]
    pub(crate) fn of_job(&self, rank: u32) -> Option<u32> {
        match self {
            Self::All(size) => (rank < *size).then_some(rank),
            Self::Some { members, .. } => members.get(rank as usize).copied(),
        }
    }

    /// The other way; what is no member stays as it is.
    #[inline]
    fn of_comm(&self, rank: u32) -> u32 {
        match self {
            Self::All(_) => rank,
            Self::Some { by_job, .. } => by_job
                .binary_search_by_key(&rank, |pair| pair.0)
                .ok()
                .and_then(|at| by_job.get(at))
                .map_or(rank, |pair| pair.1),
        }
    }
}

/// Ranks that send to each other, apart from all other communicators.
///
/// In all calls `None` for a source or a tag is any; tags of a program are from 0 to [`Comm::max_tag`].
#[derive(Debug)]
pub struct Comm {
    pub(crate) shared: Arc<Shared>,
    calls: &'static Calls,
    pub(crate) cid: u32,
    pub(crate) context: u16,
    group: Group,
    rank: u32,
    max_tag: i32,
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.cid != 0 {
            lock(&self.shared.ids).leave(self.cid);
        }
    }
}

impl Comm {
    pub(crate) fn new(shared: &Arc<Shared>, cid: u32, group: Group, rank: u32) -> Self {
        Self {
            shared: Arc::clone(shared),
            calls: shared.calls,
            cid,
            context: shared.context_of(cid),
            group,
            rank,
            max_tag: shared.place.layout.max_tag(),
        }
    }

    /// This process's rank.
    pub const fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks.
    pub fn size(&self) -> u32 {
        self.group.size()
    }

    /// The largest tag.
    #[inline]
    pub const fn max_tag(&self) -> i32 {
        self.max_tag
    }

    /// The id, which is the communicator's part of the match bits.
    pub const fn id(&self) -> u32 {
        self.cid
    }

    pub(crate) const fn group(&self) -> &Group {
        &self.group
    }

    /// The rank of the job that a member is.
    #[inline]
    pub(crate) fn of_job(&self, rank: u32) -> Result<u32, CallError> {
        match self.group.of_job(rank) {
            Some(rank) => Ok(rank),
            None => Err(CallError::Rank {
                rank,
                size: self.size(),
            }),
        }
    }

    /// The rank in the job of a source, which may be any.
    #[inline]
    pub(crate) fn source_of_job(&self, source: Option<u32>) -> Result<Option<u32>, CallError> {
        match source {
            Some(rank) => self.of_job(rank).map(Some),
            None => Ok(None),
        }
    }

    #[inline]
    const fn check_tag(&self, tag: i32) -> Result<i32, CallError> {
        let max = self.max_tag;
        if tag >= 0 && tag <= max {
            Ok(tag)
        } else {
            Err(CallError::Tag { tag, max })
        }
    }

    /// With its source as a rank of this communicator.
    #[inline]
    fn own(&self, status: Status) -> Status {
        Status {
            source: self.group.of_comm(status.source),
            ..status
        }
    }

    /// A request's end, as this communicator tells of it.
    #[inline]
    pub(crate) fn end(&self, end: &End) -> Result<Status, TagError> {
        match end {
            Ok(status) => Ok(self.own(*status)),
            Err(error) => Err(self.own_error(*error).into()),
        }
    }

    #[cold]
    fn own_error(&self, error: RequestError) -> RequestError {
        match error {
            RequestError::Truncated { status, sent } => RequestError::Truncated {
                status: self.own(status),
                sent,
            },
            other => other,
        }
    }

    fn pattern(
        &self,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<(Pattern, Option<u32>), CallError> {
        let source = self.source_of_job(source)?;
        let pattern = (self.calls.pattern)(&self.shared.place.layout, self.cid, source, tag);
        Ok((pattern, source))
    }

    /// Sends with any tag, also one of the library's.
    pub(crate) fn send_any(
        &self,
        data: &Slice,
        to: u32,
        tag: i32,
        sync: bool,
    ) -> Result<(), TagError> {
        (self.calls.send)(self, data, to, tag, sync)
    }

    /// Begins a receive with any tag, also one of the library's.
    pub(crate) fn start_receive(
        &self,
        into: &Slice,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Request, CallError> {
        self.request((self.calls.ireceive)(self, into, source, tag))
    }

    #[inline]
    fn request(&self, begun: Result<Ticket, CallError>) -> Result<Request, CallError> {
        begun.map(|ticket| Request::new(ticket, &self.shared))
    }

    /// Begins a send. The data must stay as it is until the request has ended.
    #[inline]
    pub fn isend(&self, data: impl Borrow<Slice>, to: u32, tag: i32) -> Result<Request, CallError> {
        self.request((self.calls.isend)(
            self,
            data.borrow(),
            to,
            self.check_tag(tag)?,
            false,
        ))
    }

    /// Starts a synchronous send: the request ends when the message has been received.
    #[inline]
    pub fn issend(
        &self,
        data: impl Borrow<Slice>,
        to: u32,
        tag: i32,
    ) -> Result<Request, CallError> {
        self.request((self.calls.isend)(
            self,
            data.borrow(),
            to,
            self.check_tag(tag)?,
            true,
        ))
    }

    /// Sends; returns when the data may be changed.
    #[inline]
    pub fn send(&self, data: impl Borrow<Slice>, to: u32, tag: i32) -> Result<(), TagError> {
        (self.calls.send)(self, data.borrow(), to, self.check_tag(tag)?, false)
    }

    /// Sends a message and returns when it has been received.
    #[inline]
    pub fn ssend(&self, data: impl Borrow<Slice>, to: u32, tag: i32) -> Result<(), TagError> {
        (self.calls.send)(self, data.borrow(), to, self.check_tag(tag)?, true)
    }

    #[inline]
    const fn check_any_tag(&self, tag: Option<i32>) -> Result<Option<i32>, CallError> {
        match tag {
            Some(tag) => match self.check_tag(tag) {
                Ok(tag) => Ok(Some(tag)),
                Err(error) => Err(error),
            },
            None => Ok(None),
        }
    }

    /// Begins a receive. Receives that match the same message get messages in the order in which they began.
    #[inline]
    pub fn irecv(
        &self,
        into: impl Borrow<Slice>,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Request, CallError> {
        let tag = self.check_any_tag(tag)?;
        self.request((self.calls.ireceive)(self, into.borrow(), source, tag))
    }

    /// Receives.
    #[inline]
    pub fn recv(
        &self,
        into: impl Borrow<Slice>,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Status, TagError> {
        (self.calls.receive)(self, into.borrow(), source, self.check_any_tag(tag)?)
    }

    /// Receives a message with any tag, also one of the library's.
    pub(crate) fn receive_any(
        &self,
        into: &Slice,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Status, TagError> {
        (self.calls.receive)(self, into, source, tag)
    }

    /// The message that a receive would get, if one has come.
    pub fn iprobe(
        &self,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Option<Status>, CallError> {
        let tag = self.check_any_tag(tag)?;
        let (pattern, source) = self.pattern(source, tag)?;
        let found = self.shared.probe(self.context, pattern, source)?;
        Ok(found.map(|status| self.own(status)))
    }

    /// Waits for a message that a receive would get, and leaves it; see [`Comm::iprobe`].
    pub fn probe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Status, CallError> {
        loop {
            if let Some(status) = self.iprobe(source, tag)? {
                return Ok(status);
            }
            self.shared.idle(self.context)?;
        }
    }

    /// Looks for a message and takes it out of the matching: no other receive gets it any more, and it must be received with
    /// [`Comm::imrecv`].
    pub fn improbe(
        &self,
        source: Option<u32>,
        tag: Option<i32>,
    ) -> Result<Option<Message>, CallError> {
        let tag = self.check_any_tag(tag)?;
        let (pattern, source) = self.pattern(source, tag)?;
        let found = self.shared.probe_message(self.context, pattern, source)?;
        Ok(found.map(|mut message| {
            message.status = self.own(message.status);
            Message::new(message, &self.shared)
        }))
    }

    /// Waits for a message and takes it out of the matching; see [`Comm::improbe`].
    pub fn mprobe(&self, source: Option<u32>, tag: Option<i32>) -> Result<Message, CallError> {
        loop {
            if let Some(message) = self.improbe(source, tag)? {
                return Ok(message);
            }
            self.shared.idle(self.context)?;
        }
    }

    /// Begins the receive of a message that a probe took.
    pub fn imrecv(
        &self,
        mut message: Message,
        into: impl Borrow<Slice>,
    ) -> Result<Request, CallError> {
        let begun = self.shared.receive_message(&message.found, into.borrow());
        if begun.is_ok() {
            message.spend();
        }
        self.request(begun)
    }

    /// Receives a message that a probe took.
    pub fn mrecv(&self, message: Message, into: impl Borrow<Slice>) -> Result<Status, TagError> {
        let request = self.imrecv(message, into)?;
        self.wait(request)
    }

    /// Takes a receive back. `false` when it has its message, or is a send, which is not taken back; the request is to
    /// be waited for in either case, and ends as [`crate::RequestError::Cancelled`] when this says `true`.
    pub fn cancel(&self, request: &Request) -> Result<bool, CallError> {
        self.shared.cancel(&request.ticket)
    }

    /// Waits for a request of this communicator.
    #[inline]
    pub fn wait(&self, request: Request) -> Result<Status, TagError> {
        (self.calls.wait)(self, &request.spend())
    }

    /// Waits for each of these requests of this communicator, which are used up: none is left. The first error
    /// is that of all; the others are waited for nevertheless.
    #[inline]
    pub fn wait_all(&self, requests: &mut Vec<Request>) -> Result<(), TagError> {
        let all = (self.calls.wait_all)(self, requests);
        for request in requests.drain(..) {
            request.spend();
        }
        all
    }

    /// Whether a request has ended, and how; it is used up then. Of a send that ended within its call this may be asked again.
    pub fn test(&self, request: &Request) -> Result<Option<End>, CallError> {
        let request = &request.ticket;
        if let Some(status) = request.ended_at_once() {
            return Ok(Some(Ok(self.own(status))));
        }
        let (ended, mut context) = self.shared.test(request)?;
        if !ended {
            return Ok(None);
        }
        let end = *context.ended(request)?;
        drop(context);
        let own = end.map(|status| self.own(status));
        Ok(Some(own.map_err(|error| self.own_error(error))))
    }
}
