//! The rank's side: every call is a question to the simulation.

use super::proto::{MAX_DATAGRAM, Question, Reply, VERSION};
use crate::call::{Answer, Call};
use crate::interface::{Bridge, ClockKind};
use portals_core::{Error, NiConfig};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A connection to the simulation. Calls of several threads are made one after the other, as a
/// single-processor node would.
#[derive(Debug)]
pub(super) struct Client {
    socket: Mutex<OwnedFd>,
    /// Picoseconds.
    clock: AtomicU64,
    /// The simulation is gone; said once.
    lost: AtomicBool,
    /// This rank has left it; nobody would answer any more.
    closed: AtomicBool,
}

impl Client {
    /// Joins as a rank and waits until all ranks have; an error says why not.
    pub(super) fn join(socket: OwnedFd, config: &NiConfig) -> Result<Self, String> {
        let client = Self {
            socket: Mutex::new(socket),
            clock: AtomicU64::new(0),
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
        };
        let hello = Question::Hello {
            version: VERSION,
            config: *config,
        };
        match client.exchange(&hello) {
            Ok(reply) if reply.result.is_ok() => Ok(client),
            Ok(reply) => Err(reply.note),
            Err(_) => Err("the simulation ended before it began".to_owned()),
        }
    }

    fn lost(&self) -> Error {
        if !self.lost.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the SeaStar simulation of this job has ended; every further call fails"
            );
        }
        Error::Fail
    }

    fn tell(&self, socket: &OwnedFd, question: &Question) -> Result<(), Error> {
        let mut buffer = [0; MAX_DATAGRAM];
        let bytes = postcard::to_slice(question, &mut buffer).map_err(|_| Error::NoSpace)?;
        loop {
            match send(socket, bytes, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return Err(self.lost()),
            }
        }
    }

    fn ask(&self, question: &Question) -> Result<Answer, Error> {
        let reply = self.exchange(question)?;
        if !reply.note.is_empty() {
            tracing::error!("{}", reply.note);
        }
        reply.result
    }

    fn exchange(&self, question: &Question) -> Result<Reply, Error> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::NiInvalid);
        }
        self.tell(&socket, question)?;
        let mut buffer = [0; MAX_DATAGRAM];
        let n = loop {
            match recv(&*socket, &mut buffer, RecvFlags::empty()) {
                Ok((n, _)) if n > 0 => break n,
                Err(rustix::io::Errno::INTR) => {}
                _ => return Err(self.lost()),
            }
        };
        let reply: Reply = postcard::from_bytes(&buffer[..n]).map_err(|_| self.lost())?;
        self.clock.store(reply.clock, Ordering::Relaxed);
        if matches!(question, Question::Call(Call::Close)) && reply.result.is_ok() {
            self.closed.store(true, Ordering::Release);
        }
        Ok(reply)
    }
}

impl Bridge for Client {
    fn call(&self, call: Call) -> Result<Answer, Error> {
        self.ask(&Question::Call(call))
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed) / 1_000
    }

    fn clock(&self) -> ClockKind {
        ClockKind::Virtual
    }

    fn leave(&self) -> Result<(), Error> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(&socket, &Question::Leave)
    }

    fn rejoin(&self) -> Result<(), Error> {
        self.ask(&Question::Rejoin).map(|_| ())
    }
}
