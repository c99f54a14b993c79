//! Events of an endpoint's sockets: requests, answers, and peers that have closed.

use super::handshake::Replied;
use super::socket::{Received, accept, try_receive, try_send};
use super::wire::{Answer, DecodeError, LONGEST, REQUEST, Request};
use super::{
    Accepted, Attempt, CROSSED_RETRY, Endpoint, LISTENER, MOST_ACCEPTED, MOST_LOOKS, PAUSE,
    REQUEST_TIMEOUT, Step,
};
use fabric_api::address::Address;
use fabric_api::nal::Look;
use fabric_api::nal::Nal;
use host::awake::Awake;
use portals_core::{Ni, ProcessId, Transmit};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// What becomes of a request.
enum Admission {
    /// The reply was sent.
    Accept(ProcessId, Box<Replied>),
    /// The sender is told why not.
    Reject(Answer),
    /// The sender is told nothing.
    Ignore,
}

impl Endpoint {
    /// Handles what the sockets have received. Returns whether there was anything.
    pub(super) fn poll_sockets(&mut self, ni: &mut Ni) -> bool {
        let mut any = false;
        for _ in 0..MOST_ACCEPTED {
            let readable = self.watch.readable();
            if readable.is_empty() {
                break;
            }
            any = true;
            for token in readable {
                if token == LISTENER {
                    self.accept();
                } else if let Some(at) = self.accepted.iter().position(|v| v.token == token) {
                    self.handle_request(ni, at);
                } else if let Some(at) = self.attempts.iter().position(|m| m.token == token) {
                    self.handle_answer(ni, at);
                } else if let Some(at) = self.peers.iter().position(|p| p.token == token) {
                    self.handle_close(ni, at);
                }
            }
        }
        any
    }

    fn accept(&mut self) {
        let socket = match accept(&self.listener) {
            Ok(Some(socket)) => socket,
            Ok(None) => return,
            Err(refused) => {
                if !std::mem::replace(&mut self.told, true) {
                    tracing::warn!(%refused, "an endpoint cannot accept connections, and tries again");
                }
                // Its socket stays readable until then.
                self.watch.remove(&self.listener);
                self.pause = Some(Instant::now() + PAUSE);
                return;
            }
        };
        self.told = false;
        if self.accepted.len() == MOST_ACCEPTED {
            let longest = self.accepted.remove(0);
            self.watch.remove(&longest.socket);
        }
        let token = self.token();
        match self.watch.add(&socket, token) {
            Ok(()) => self.accepted.push(Accepted {
                token,
                socket,
                left: Awake::new(REQUEST_TIMEOUT),
            }),
            Err(error) => tracing::warn!(%error, "a peer cannot be accepted"),
        }
    }

    /// An accepted socket has a message, or is closed.
    fn handle_request(&mut self, ni: &mut Ni, at: usize) {
        let mut bytes = [0; REQUEST + 1];
        let (len, files) = match try_receive(&self.accepted[at].socket, &mut bytes) {
            Received::Nothing => return,
            Received::Closed => (0, Vec::new()),
            Received::Message(len, files) => (len, files),
        };
        let Accepted { socket, token, .. } = self.accepted.remove(at);
        let admission = match Request::decode(&bytes[..len]) {
            Ok(request) if self.contact.secret.is(&request.secret) => {
                self.admit(ni, &request.from, (token, &socket), files)
            }
            Ok(_) | Err(DecodeError::Nonsense) => {
                tracing::debug!("a request without the secret");
                Admission::Ignore
            }
            Err(DecodeError::Version(theirs)) => {
                let why = format!(
                    "it speaks version {theirs} of the shared memory, this endpoint version {}",
                    crate::VERSION
                );
                Admission::Reject(Answer::Rejected(why))
            }
        };
        match admission {
            Admission::Accept(id, step) => {
                let (since, waiting) = self.take_over(id);
                let attempt = Attempt {
                    id,
                    since,
                    token,
                    step: Step::Replied(step, socket),
                    waiting,
                };
                self.attempts.push(attempt);
            }
            Admission::Ignore => self.watch.remove(&socket),
            Admission::Reject(answer) => {
                if let Err(error) = try_send(&socket, &answer.encode(), &[]) {
                    tracing::debug!(error, "a refusal");
                }
                self.watch.remove(&socket);
            }
        }
    }

    /// Ends an attempt that the peer's own has overtaken; gives the messages that wait for it, and since when.
    fn take_over(&mut self, id: ProcessId) -> (u64, Vec<Transmit>) {
        let Some(at) = self.attempts.iter().position(|m| m.id == id) else {
            return (self.since(id), Vec::new());
        };
        let attempt = self.attempts.remove(at);
        if let Some(socket) = attempt.step.socket() {
            self.watch.remove(socket);
        }
        (attempt.since, attempt.waiting)
    }

    /// Whether a peer that knows the secret is accepted.
    fn admit(
        &mut self,
        ni: &mut Ni,
        from: &Address,
        (token, socket): (u64, &OwnedFd),
        files: Vec<OwnedFd>,
    ) -> Admission {
        let id = from.id();
        let own = self.config.id;
        let refused = |why: String| Admission::Reject(Answer::Rejected(why));
        if id == own {
            return refused("it has the id of this endpoint".to_owned());
        }
        if self
            .attempts
            .iter()
            .any(|m| m.id == id && matches!(m.step, Step::Replied(..)))
        {
            return refused("it is being connected already".to_owned());
        }
        let is_requested = |m: &Attempt| m.id == id && matches!(m.step, Step::Requested(..));
        if own < id && self.attempts.iter().any(is_requested) {
            return Admission::Reject(Answer::Crossed);
        }
        if let Some(at) = self.index.get(&id).copied() {
            // It may have closed, and nobody has looked at its socket since.
            if !matches!(
                try_receive(&self.peers[at].socket, &mut [0; 1]),
                Received::Closed
            ) {
                return refused("it is connected already".to_owned());
            }
            self.part(ni, at, "it connects again");
        }
        if let Err(error) = self.book.insert_inbound(from) {
            return refused(error.to_string());
        }
        match Replied::new(&self.local(), socket, files) {
            Ok(replied) => {
                tracing::debug!(?id, token, "a peer is accepted");
                Admission::Accept(id, Box::new(replied))
            }
            Err(why) => {
                tracing::warn!(?id, why, "a peer cannot share memory");
                self.book.remove_inbound(id);
                refused(why)
            }
        }
    }

    /// The socket of an attempt has a message, or is closed.
    fn handle_answer(&mut self, ni: &mut Ni, at: usize) {
        let Some(socket) = self.attempts[at].step.socket() else {
            return;
        };
        let mut bytes = [0; LONGEST + 1];
        let (answer, files) = match try_receive(socket, &mut bytes) {
            Received::Nothing => return,
            Received::Closed => (None, Vec::new()),
            Received::Message(len, files) => match Answer::decode(&bytes[..len]) {
                Some(answer) => (Some(answer), files),
                None => (
                    Some(Answer::Rejected("what it says makes no sense".to_owned())),
                    files,
                ),
            },
        };
        let mut attempt = self.attempts.swap_remove(at);
        let (id, since, token) = (attempt.id, attempt.since, attempt.token);
        match (attempt.step, answer) {
            (Step::Requested(requested, socket), Some(Answer::Reply)) => {
                match requested.replied(&self.local(), &socket, id, files) {
                    Ok(connected) => {
                        self.connected(ni, (id, since), (token, socket), connected);
                        self.send_waiting(ni, attempt.waiting);
                    }
                    Err(why) => {
                        attempt.step = Step::Later(Instant::now());
                        self.watch.remove(&socket);
                        self.fail(ni, attempt, &why);
                    }
                }
            }
            (Step::Replied(replied, socket), Some(Answer::ReadyToUse)) => {
                let connected = replied.ready(&self.local(), id);
                self.connected(ni, (id, since), (token, socket), connected);
                self.send_waiting(ni, attempt.waiting);
            }
            (Step::Requested(_, socket), Some(Answer::Crossed)) => {
                // Its own request is on the way, unless it ends meanwhile.
                self.watch.remove(&socket);
                attempt.step = Step::Later(Instant::now() + CROSSED_RETRY);
                self.attempts.push(attempt);
            }
            (step, answer) => {
                let why = match answer {
                    Some(Answer::Rejected(why)) => why,
                    Some(_) => "what it says is out of turn".to_owned(),
                    None => "it has closed, or has ended".to_owned(),
                };
                attempt.step = step;
                self.fail(ni, attempt, &why);
            }
        }
    }

    /// A peer's socket is readable: peers send nothing there, so it is closed.
    fn handle_close(&mut self, ni: &mut Ni, at: usize) {
        if matches!(
            try_receive(&self.peers[at].socket, &mut [0; 16]),
            Received::Nothing
        ) {
            return;
        }
        // What the peer had sent before comes first.
        let mut most = MOST_LOOKS;
        while most > 0 && self.peers[at].shm.progress(ni, Look::All) {
            most -= 1;
        }
        self.part(ni, at, "it has closed, or has ended");
    }

    /// Tries again where a queue was full or a connection was refused, and closes accepted sockets that stay silent.
    pub(super) fn retry(&mut self, ni: &mut Ni) {
        let now = Instant::now();
        if self.pause.is_some_and(|until| until <= now) {
            self.pause = match self.watch.add(&self.listener, LISTENER) {
                Ok(()) => None,
                Err(_) => Some(now + PAUSE),
            };
        }
        let is_due = |m: &Attempt| matches!(m.step, Step::Later(at) if at <= now);
        while let Some(at) = self.attempts.iter().position(is_due) {
            let mut attempt = self.attempts.swap_remove(at);
            let address = self.book.find(attempt.id);
            match address.map(|address| self.request(&address)) {
                Some(Ok(step)) => {
                    attempt.step = step;
                    self.start(ni, attempt);
                }
                Some(Err(why)) => self.fail(ni, attempt, &why),
                None => self.fail(ni, attempt, "the program has disconnected it"),
            }
        }
        let silent = |v: &mut Accepted| v.left.is_over();
        while let Some(at) = self.accepted.iter_mut().position(silent) {
            let accepted = self.accepted.remove(at);
            self.watch.remove(&accepted.socket);
        }
    }
}
