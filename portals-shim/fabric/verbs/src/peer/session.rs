//! What two processes have said to each other to connect, and how far they are.

use crate::handshake::{self, Stage};
use crate::mail::Way;
use crate::timer::Timer;
use verbs_backend::cm::Link;

/// The connecting to one peer.
#[derive(Debug)]
pub(crate) struct Session {
    stage: Stage,
    pub(crate) timer: Option<Timer>,
    /// The connection was in use once.
    pub(crate) met: bool,
    /// The peer has told what it advertises.
    pub(crate) greeted: bool,
    /// The peer has closed in good order.
    pub(crate) said_bye: bool,
    /// How the peer is sent datagrams, and the token that they carry.
    pub(crate) way: Option<(Way, u64)>,
    /// User and job that the peer said to be.
    pub(crate) who: Option<(u32, u32)>,
    /// The last attempt of the peer that was accepted, and the answer to it.
    pub(crate) taken: Option<u32>,
    pub(crate) answer: Option<(u32, [u8; handshake::BYTES])>,
    /// A request of the peer that waits for the end of the old connection.
    pub(crate) asked: Option<handshake::Message>,
    /// What the peer has said of itself in its ACCEPT, while the manager joins the queue pairs.
    pub(crate) card: Option<handshake::Card>,
    /// The connection manager's part of the connection.
    pub(crate) link: Option<Link>,
}

impl Session {
    /// Nothing was said.
    pub(super) fn new() -> Self {
        Self {
            stage: Stage::Idle,
            timer: None,
            met: false,
            greeted: false,
            said_bye: false,
            way: None,
            who: None,
            taken: None,
            answer: None,
            asked: None,
            card: None,
            link: None,
        }
    }

    /// How far it is.
    #[inline]
    pub(crate) fn stage(&self) -> Stage {
        self.stage
    }

    /// It has come so far; [`Peer::enter`](super::Peer::enter) tells the send queue too.
    pub(super) fn enter(&mut self, stage: Stage) {
        self.stage = stage;
    }

    /// Somebody has to look after it.
    pub(crate) fn is_pending(&self) -> bool {
        self.timer.is_some() || self.stage == Stage::Draining
    }
}
