//! How connections are made: whom to ask, by what, for how long, and how many there may be.

use crate::cm::Joiner;
use crate::contact::Directory;
use crate::endpoint::AddressVector;
use crate::mail::Mail;
use crate::plan::Plan;
use crate::timer::Timer;
use fabric_api::bell::Bell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What connections are made with.
#[derive(Debug)]
pub(crate) struct Conn {
    /// Own user and job.
    pub(crate) who: (u32, u32),
    pub(crate) plan: Plan,
    pub(crate) patience: Duration,
    pub(crate) mail: Mail,
    /// Where connections are made by the connection manager.
    pub(crate) joiner: Option<Joiner>,
    pub(crate) directory: Directory,
    /// Instead, for an endpoint that belongs to no job; its indices are what ranks are in one.
    pub(crate) vector: Option<Box<AddressVector>>,
    /// What others must know to talk to this process.
    pub(crate) token: u64,
    /// Number of the last attempt to connect.
    pub(crate) attempts: u32,
    /// Peers that are being connected, mended or given up; those that have just broken may be missing.
    pub(crate) pending: usize,
    /// Wakes the thread that looks after connections.
    pub(crate) bell: Arc<Bell>,
    /// Peers that were given up, for a fabric that has datagrams too.
    pub(crate) lost: Option<Vec<usize>>,
}

impl Conn {
    /// The time of a new attempt to connect.
    pub(crate) fn timer(&self) -> Timer {
        Timer::new(Instant::now(), self.patience)
    }

    /// The number of a new attempt.
    pub(crate) fn next_attempt(&mut self) -> u32 {
        self.attempts = self.attempts.wrapping_add(1);
        self.attempts
    }
}
