//! The handshake by which two endpoints come to share memory: the steps of each side, between the messages of `wire.rs`.

use super::socket::try_send;
use super::wire::{Answer, Request};
use crate::alarm::Alarm;
use crate::fault::OnFault;
use crate::handing::Inbox;
use crate::members::Members;
use crate::open::{Joining, Options, Own, common};
use crate::trusted::TRUST;
use crate::{PATIENCE, Shm, sorted};
use fabric_api::address::Address;
use host::peer::Credentials;
use host::processors::Processors;
use host::secret::Secret;
use portals_core::{NiConfig, ProcessId};
use std::os::fd::OwnedFd;

/// Of a memory that two endpoints share.
const RANKS: u32 = 2;
/// The number of the endpoint that requests the connection, and of the other.
const ACTIVE: u32 = 0;
const PASSIVE: u32 = 1;
/// Descriptors that each side has for the other: its file, and the ends of its alarm and its inbox.
const EACH: usize = 3;

/// The endpoint of this process, as far as a handshake needs it.
#[derive(Debug)]
pub(super) struct Local<'a> {
    pub(super) config: &'a NiConfig,
    pub(super) address: &'a Address,
    pub(super) alarm: &'a Alarm,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// This process's half of a memory: the file, and the socket by which regions come.
#[derive(Debug)]
pub(super) struct Half {
    own: Own,
    inbox: Inbox,
}

impl Half {
    /// A half, and what of it the other side needs.
    fn new(number: u32, local: &Local<'_>) -> Result<(Self, Vec<OwnedFd>), String> {
        let own = Own::new(number, RANKS).map_err(text)?;
        own.introduce(local.config).map_err(text)?;
        let inbox = Inbox::new().map_err(text)?;
        let line = local.alarm.line().map_err(text)?;
        let files = vec![
            own.descriptor().map_err(text)?,
            line,
            inbox.line().map_err(text)?,
        ];
        Ok((Self { own, inbox }, files))
    }

    /// Joins the halves. `socket`: where the other side is, whose number the kernel knows.
    fn join(
        self,
        local: &Local<'_>,
        common: &OwnedFd,
        both: Vec<OwnedFd>,
        socket: &OwnedFd,
    ) -> Result<(Joining, bool), String> {
        let [files, lines, inboxes] = sorted::<EACH>(both);
        let mapped = self.own.with(common, &files).map_err(text)?;
        let options = Options {
            on_fault: OnFault::GiveUp,
            patience: PATIENCE,
            ..Options::default()
        };
        let peer = Credentials::of(socket).map_err(text)?;
        let mut joining = Joining::of(mapped, local.config, options)
            .map_err(text)?
            .with_lines(lines)
            .with_inboxes(self.inbox, inboxes)
            .with_proof(peer.pid);
        let crowded = joining.is_crowded(RANKS);
        let attaches = joining.probe(RANKS, crowded);
        Ok((joining, attaches))
    }
}

/// A copy of each of these descriptors.
fn copies(of: &[OwnedFd]) -> Result<Vec<OwnedFd>, String> {
    of.iter().map(|fd| fd.try_clone().map_err(text)).collect()
}

/// What both sides have at the end.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) shm: Shm,
    /// Where the other one may run.
    pub(super) processors: Processors,
}

/// The connection, after the last message for which this side waits.
fn open(
    joining: Joining,
    attaches: bool,
    local: &Local<'_>,
    (own, other): (u32, ProcessId),
) -> Connected {
    let ids = match own {
        ACTIVE => [local.config.id, other],
        _ => [other, local.config.id],
    };
    let processors = joining.processors_of((RANKS - 1 - own) as usize);
    let members = Members::pair(ids);
    Connected {
        shm: joining.nal(local.config, members, attaches, TRUST),
        processors,
    }
}

/// The side that has sent a request.
#[derive(Debug)]
pub(super) struct Requested {
    half: Half,
    common: OwnedFd,
    /// What the other side was given.
    given: Vec<OwnedFd>,
}

impl Requested {
    /// Makes a memory and sends the request.
    pub(super) fn new(
        local: &Local<'_>,
        socket: &OwnedFd,
        secret: &Secret,
    ) -> Result<Self, String> {
        let common = common(RANKS).map_err(text)?;
        let (half, given) = Half::new(ACTIVE, local)?;
        let mut files = vec![common.try_clone().map_err(text)?];
        files.extend(copies(&given)?);
        let request = Request {
            from: *local.address,
            secret: *secret.bytes(),
        };
        try_send(socket, &request.encode(), &files)?;
        Ok(Self {
            half,
            common,
            given,
        })
    }

    /// After the reply: maps the memory and says that it is ready to use.
    pub(super) fn replied(
        self,
        local: &Local<'_>,
        socket: &OwnedFd,
        other: ProcessId,
        files: Vec<OwnedFd>,
    ) -> Result<Connected, String> {
        if files.len() != EACH {
            return Err(format!(
                "it has sent {} descriptors, not {EACH}",
                files.len()
            ));
        }
        let both = self.given.into_iter().chain(files).collect();
        let (joining, attaches) = self.half.join(local, &self.common, both, socket)?;
        try_send(socket, &Answer::ReadyToUse.encode(), &[])?;
        Ok(open(joining, attaches, local, (ACTIVE, other)))
    }
}

/// The side that has replied to a request.
#[derive(Debug)]
pub(super) struct Replied {
    joining: Joining,
    attaches: bool,
}

impl Replied {
    /// Maps the memory and sends the reply. `files`: the descriptors beside the request.
    pub(super) fn new(
        local: &Local<'_>,
        socket: &OwnedFd,
        mut files: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        if files.len() != 1 + EACH {
            let count = files.len();
            return Err(format!("it has sent {count} descriptors, not {}", 1 + EACH));
        }
        let common = files.remove(0);
        let (half, given) = Half::new(PASSIVE, local)?;
        let both = files.into_iter().chain(copies(&given)?).collect();
        let (joining, attaches) = half.join(local, &common, both, socket)?;
        try_send(socket, &Answer::Reply.encode(), &given)?;
        Ok(Self { joining, attaches })
    }

    /// The connection, once the other side says that it is ready to use.
    pub(super) fn ready(self, local: &Local<'_>, other: ProcessId) -> Connected {
        open(self.joining, self.attaches, local, (PASSIVE, other))
    }
}
