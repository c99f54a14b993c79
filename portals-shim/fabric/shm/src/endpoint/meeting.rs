//! How two endpoints come to share memory: the steps of each side, between the messages of `wire.rs`.

use super::socket::say;
use super::wire::{Knock, Said};
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
/// The number of the endpoint that knocks, and of the other.
const KNOCKS: u32 = 0;
const WELCOMES: u32 = 1;
/// Descriptors that each side has for the other: its file, and the ends of its alarm and its inbox.
const EACH: usize = 3;

/// An endpoint, as far as a meeting needs it.
#[derive(Debug)]
pub(super) struct Host<'a> {
    pub(super) config: &'a NiConfig,
    pub(super) address: &'a Address,
    pub(super) alarm: &'a Alarm,
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// The own half of a memory: the file, and the socket that regions come by.
#[derive(Debug)]
pub(super) struct Half {
    own: Own,
    inbox: Inbox,
}

impl Half {
    /// A half, and what of it the other side needs.
    fn new(number: u32, host: &Host<'_>) -> Result<(Self, Vec<OwnedFd>), String> {
        let own = Own::new(number, RANKS).map_err(text)?;
        own.introduce(host.config).map_err(text)?;
        let inbox = Inbox::new().map_err(text)?;
        let line = host.alarm.line().map_err(text)?;
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
        host: &Host<'_>,
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
        let mut joining = Joining::of(mapped, host.config, options)
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
pub(super) struct Met {
    pub(super) shm: Shm,
    /// Where the other one may run.
    pub(super) processors: Processors,
}

/// What comes after the last message that this side waits for.
fn open(joining: Joining, attaches: bool, host: &Host<'_>, (own, other): (u32, ProcessId)) -> Met {
    let ids = match own {
        KNOCKS => [host.config.id, other],
        _ => [other, host.config.id],
    };
    let processors = joining.processors_of((RANKS - 1 - own) as usize);
    let members = Members::pair(ids);
    Met {
        shm: joining.nal(host.config, members, attaches, TRUST),
        processors,
    }
}

/// The side that has knocked.
#[derive(Debug)]
pub(super) struct Knocked {
    half: Half,
    common: OwnedFd,
    /// What the other side was given.
    given: Vec<OwnedFd>,
}

impl Knocked {
    /// Makes a memory and says the first message.
    pub(super) fn new(host: &Host<'_>, socket: &OwnedFd, secret: &Secret) -> Result<Self, String> {
        let common = common(RANKS).map_err(text)?;
        let (half, given) = Half::new(KNOCKS, host)?;
        let mut files = vec![common.try_clone().map_err(text)?];
        files.extend(copies(&given)?);
        let knock = Knock {
            from: *host.address,
            secret: *secret.bytes(),
        };
        say(socket, &knock.encode(), &files)?;
        Ok(Self {
            half,
            common,
            given,
        })
    }

    /// After the welcome: says that this side is ready.
    pub(super) fn welcomed(
        self,
        host: &Host<'_>,
        socket: &OwnedFd,
        other: ProcessId,
        files: Vec<OwnedFd>,
    ) -> Result<Met, String> {
        if files.len() != EACH {
            return Err(format!(
                "it has sent {} descriptors, not {EACH}",
                files.len()
            ));
        }
        let both = self.given.into_iter().chain(files).collect();
        let (joining, attaches) = self.half.join(host, &self.common, both, socket)?;
        say(socket, &Said::Ready.encode(), &[])?;
        Ok(open(joining, attaches, host, (KNOCKS, other)))
    }
}

/// The side that was knocked at, and has answered.
#[derive(Debug)]
pub(super) struct Welcomed {
    joining: Joining,
    attaches: bool,
}

impl Welcomed {
    /// Maps the memory and says that the other is welcome. `files`: what came with the knock.
    pub(super) fn new(
        host: &Host<'_>,
        socket: &OwnedFd,
        mut files: Vec<OwnedFd>,
    ) -> Result<Self, String> {
        if files.len() != 1 + EACH {
            let count = files.len();
            return Err(format!("it has sent {count} descriptors, not {}", 1 + EACH));
        }
        let common = files.remove(0);
        let (half, given) = Half::new(WELCOMES, host)?;
        let both = files.into_iter().chain(copies(&given)?).collect();
        let (joining, attaches) = half.join(host, &common, both, socket)?;
        say(socket, &Said::Welcome.encode(), &given)?;
        Ok(Self { joining, attaches })
    }

    /// The other side has said that it is ready.
    pub(super) fn ready(self, host: &Host<'_>, other: ProcessId) -> Met {
        open(self.joining, self.attaches, host, (WELCOMES, other))
    }
}
