//! What a program calls for each message, compiled for each kind of layout.
//!
//! Each is one function with all that it usually needs: what is rare is called from there. `nm` shows them, see the book's
//! page on tags.

use crate::comm::Comm;
use crate::context::Context;
use crate::error::{CallError, TagError};
use crate::layout::{Layout, Pattern};
use crate::request::{End, Request, Ticket};
use crate::world::Shared;
use crate::{Slice, Status};
use std::sync::MutexGuard;

/// A send: its data, target and tag, and whether it is synchronous.
type Sending<R> = fn(&Comm, &Slice, u32, i32, bool) -> R;
/// A receive: its memory, source and tag; `None` is any.
type Receiving<R> = fn(&Comm, &Slice, Option<u32>, Option<i32>) -> R;

/// The functions for one kind of layout.
#[derive(Debug)]
pub(crate) struct Calls {
    pub(crate) pattern: fn(&Layout, u32, Option<u32>, Option<i32>) -> Pattern,
    pub(crate) send: Sending<Result<(), TagError>>,
    pub(crate) isend: Sending<Result<Ticket, CallError>>,
    pub(crate) receive: Receiving<Result<Status, TagError>>,
    pub(crate) ireceive: Receiving<Result<Ticket, CallError>>,
    pub(crate) wait: fn(&Comm, &Ticket) -> Result<Status, TagError>,
    pub(crate) wait_all: fn(&Comm, &[Request]) -> Result<(), TagError>,
    pub(crate) progress: fn(&mut Context) -> Result<bool, CallError>,
    pub(crate) progress_wait: fn(&mut Context) -> Result<(), CallError>,
    pub(crate) cancel: fn(&mut Context, &Ticket) -> Result<bool, CallError>,
    pub(crate) abandon: fn(&mut Context, &Ticket),
}

impl Calls {
    const fn of<const FULL: bool>() -> Self {
        Self {
            pattern: |layout, cid, source, tag| layout.pattern::<FULL>(cid, source, tag),
            send: send::<FULL>,
            isend: isend::<FULL>,
            receive: receive::<FULL>,
            ireceive: ireceive::<FULL>,
            wait: wait::<FULL>,
            wait_all: wait_all::<FULL>,
            progress: Context::progress::<FULL>,
            progress_wait: Context::progress_wait::<FULL>,
            cancel: Context::cancel::<FULL>,
            abandon: Context::abandon::<FULL>,
        }
    }
}

/// By whether the layout is full.
pub(crate) static CALLS: [Calls; 2] = [Calls::of::<false>(), Calls::of::<true>()];

/// Sends.
fn send<const FULL: bool>(
    comm: &Comm,
    data: &Slice,
    to: u32,
    tag: i32,
    sync: bool,
) -> Result<(), TagError> {
    let to = (comm.cid, comm.of_job(to)?, tag);
    let mut context = comm.shared.context(comm.context)?;
    match context.send::<FULL>(to, data, sync)? {
        None => Ok(()),
        Some(request) => sent::<FULL>(comm, context, &request),
    }
}

/// The end of a send that has not ended within its call.
#[cold]
fn sent<'a, const FULL: bool>(
    comm: &'a Comm,
    context: MutexGuard<'a, Context>,
    request: &Ticket,
) -> Result<(), TagError> {
    wait_in::<FULL>(comm, context, request).map(drop)
}

/// Begins a send.
fn isend<const FULL: bool>(
    comm: &Comm,
    data: &Slice,
    to: u32,
    tag: i32,
    sync: bool,
) -> Result<Ticket, CallError> {
    let to = (comm.cid, comm.of_job(to)?, tag);
    let mut context = comm.shared.context(comm.context)?;
    match context.send::<FULL>(to, data, sync)? {
        None => Ok(Ticket::sent(comm.context, data.len)),
        Some(request) => Ok(request),
    }
}

/// Receives.
fn receive<const FULL: bool>(
    comm: &Comm,
    into: &Slice,
    source: Option<u32>,
    tag: Option<i32>,
) -> Result<Status, TagError> {
    let wanted = (comm.cid, comm.source_of_job(source)?, tag);
    let mut context = comm.shared.context(comm.context)?;
    let request = context.receive::<FULL>(wanted, into)?;
    wait_in::<FULL>(comm, context, &request)
}

/// Begins a receive.
fn ireceive<const FULL: bool>(
    comm: &Comm,
    into: &Slice,
    source: Option<u32>,
    tag: Option<i32>,
) -> Result<Ticket, CallError> {
    let wanted = (comm.cid, comm.source_of_job(source)?, tag);
    let mut context = comm.shared.context(comm.context)?;
    context.receive::<FULL>(wanted, into)
}

/// Waits for the end of a request.
fn wait<const FULL: bool>(comm: &Comm, request: &Ticket) -> Result<Status, TagError> {
    if let Some(status) = request.ended_at_once() {
        return comm.end(&Ok(status));
    }
    wait_in::<FULL>(comm, comm.shared.context(request.context)?, request)
}

/// Waits for the ends of requests, with the context locked once for all of them where no other thread may need it.
fn wait_all<const FULL: bool>(comm: &Comm, requests: &[Request]) -> Result<(), TagError> {
    let together =
        !comm.shared.threads && requests.iter().all(|r| r.ticket.context == comm.context);
    let mut all = Ok(());
    if !together {
        for request in requests {
            all = all.and(wait::<FULL>(comm, &request.ticket).map(drop));
        }
        return all;
    }
    let mut context = comm.shared.context(comm.context)?;
    for request in requests {
        if request.ticket.ended_at_once().is_some() {
            continue;
        }
        let end = ended::<FULL>(&mut context, &request.ticket).map_err(TagError::from);
        all = all.and(end.and_then(|end| comm.end(end)).map(drop));
    }
    all
}

/// The end of a request, which is waited for.
#[inline(always)]
fn ended<'a, const FULL: bool>(
    context: &'a mut Context,
    request: &Ticket,
) -> Result<&'a End, CallError> {
    while !context.has_ended(request)? {
        context.progress_wait::<FULL>()?;
    }
    context.ended(request)
}

/// Waits for a request ([`wait`]); the lock of the context is held where no other thread may need it.
#[inline(always)]
fn wait_in<'a, const FULL: bool>(
    comm: &'a Comm,
    mut context: MutexGuard<'a, Context>,
    request: &Ticket,
) -> Result<Status, TagError> {
    if comm.shared.threads {
        context = poll::<FULL>(&comm.shared, context, request)?;
    }
    comm.end(ended::<FULL>(&mut context, request)?)
}

/// Returns when a request has ended; others may have the lock meanwhile.
#[inline(never)]
fn poll<'a, const FULL: bool>(
    shared: &'a Shared,
    mut context: MutexGuard<'a, Context>,
    request: &Ticket,
) -> Result<MutexGuard<'a, Context>, CallError> {
    while !context.has_ended(request)? {
        shared.progress_once(context)?;
        context = shared.context(request.context)?;
    }
    Ok(context)
}
