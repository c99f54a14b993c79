//! What an endpoint hears: who comes, what meetings say, and which peers are gone.

use super::meeting::Welcomed;
use super::socket::{Heard, accept, hear, say};
use super::wire::{KNOCK, Knock, LONGEST, Said, Unheard};
use super::{CROSSED, Endpoint, LISTENER, MOST_LOOKS, Meeting, SILENCE, Step, VISITORS, Visitor};
use fabric_api::address::Address;
use fabric_api::nal::Nal;
use portals_core::{Ni, ProcessId, Transmit};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// What becomes of a visitor.
enum Admitted {
    Welcome(ProcessId, Box<Welcomed>),
    /// It is told why not.
    Refused(Said),
    /// It is told nothing.
    Stranger,
}

impl Endpoint {
    /// Looks at what has come by the sockets. Returns whether there was anything.
    pub(super) fn look(&mut self, ni: &mut Ni) -> bool {
        let mut any = false;
        for _ in 0..VISITORS {
            let readable = self.watch.readable();
            if readable.is_empty() {
                break;
            }
            any = true;
            for token in readable {
                if token == LISTENER {
                    self.let_in();
                } else if let Some(at) = self.visitors.iter().position(|v| v.token == token) {
                    self.listen_to(ni, at);
                } else if let Some(at) = self.meetings.iter().position(|m| m.token == token) {
                    self.go_on(ni, at);
                } else if let Some(at) = self.peers.iter().position(|p| p.token == token) {
                    self.hear_end(ni, at);
                }
            }
        }
        any
    }

    fn let_in(&mut self) {
        let Some(socket) = accept(&self.listener) else {
            return;
        };
        if self.visitors.len() == VISITORS {
            let longest = self.visitors.remove(0);
            self.watch.remove(&longest.socket);
        }
        let token = self.token();
        match self.watch.add(&socket, token) {
            Ok(()) => self.visitors.push(Visitor {
                token,
                socket,
                since: Instant::now(),
            }),
            Err(error) => tracing::warn!(%error, "a peer cannot be let in"),
        }
    }

    /// A visitor has said something, or has left.
    fn listen_to(&mut self, ni: &mut Ni, at: usize) {
        let mut bytes = [0; KNOCK + 1];
        let heard = hear(&self.visitors[at].socket, &mut bytes);
        let (len, files) = match heard {
            Heard::Nothing => return,
            Heard::Closed => (0, Vec::new()),
            Heard::Message(len, files) => (len, files),
        };
        let Visitor { socket, token, .. } = self.visitors.remove(at);
        let refused = match Knock::decode(&bytes[..len]) {
            Ok(knock) if self.place.secret.is(&knock.secret) => {
                self.admit(ni, &knock.from, (token, &socket), files)
            }
            Ok(_) | Err(Unheard::Nonsense) => {
                tracing::debug!("a visitor without the secret");
                Admitted::Stranger
            }
            Err(Unheard::Version(theirs)) => {
                let why = format!(
                    "it speaks version {theirs} of the shared memory, this endpoint version {}",
                    crate::VERSION
                );
                Admitted::Refused(Said::Refused(why))
            }
        };
        match refused {
            Admitted::Welcome(id, step) => {
                let waiting = self.crossing(id);
                let meeting = Meeting {
                    id,
                    token,
                    step: Step::Welcomed(step, socket),
                    waiting,
                };
                self.meetings.push(meeting);
            }
            Admitted::Stranger => self.watch.remove(&socket),
            Admitted::Refused(said) => {
                if let Err(error) = say(&socket, &said.encode(), &[]) {
                    tracing::debug!(error, "a refusal");
                }
                self.watch.remove(&socket);
            }
        }
    }

    /// What waited for the meeting that another one takes the place of.
    fn crossing(&mut self, id: ProcessId) -> Vec<Transmit> {
        let Some(at) = self.meetings.iter().position(|m| m.id == id) else {
            return Vec::new();
        };
        let meeting = self.meetings.remove(at);
        if let Some(socket) = meeting.step.socket() {
            self.watch.remove(socket);
        }
        meeting.waiting
    }

    /// Whether somebody who knows the secret may come in.
    fn admit(
        &mut self,
        ni: &mut Ni,
        from: &Address,
        (token, socket): (u64, &OwnedFd),
        files: Vec<OwnedFd>,
    ) -> Admitted {
        let id = from.id();
        let own = self.config.id;
        let refused = |why: String| Admitted::Refused(Said::Refused(why));
        if id == own {
            return refused("it has the id of this endpoint".to_owned());
        }
        if self
            .meetings
            .iter()
            .any(|m| m.id == id && matches!(m.step, Step::Welcomed(..)))
        {
            return refused("it is being met already".to_owned());
        }
        let knocked = |m: &Meeting| m.id == id && matches!(m.step, Step::Knocked(..));
        if own < id && self.meetings.iter().any(knocked) {
            return Admitted::Refused(Said::Crossed);
        }
        if let Some(at) = self.index.get(&id).copied() {
            // It may have parted, and its end not been heard of.
            if !matches!(hear(&self.peers[at].socket, &mut [0; 1]), Heard::Closed) {
                return refused("it is connected already".to_owned());
            }
            self.part(ni, at, "it comes again");
        }
        if let Err(error) = self.book.insert(from) {
            return refused(error.to_string());
        }
        match Welcomed::new(&self.host(), socket, files) {
            Ok(welcomed) => {
                tracing::debug!(?id, token, "a peer is let in");
                Admitted::Welcome(id, Box::new(welcomed))
            }
            Err(why) => {
                tracing::warn!(?id, why, "a peer cannot share memory");
                refused(why)
            }
        }
    }

    /// The other side of a meeting has said something, or has left.
    fn go_on(&mut self, ni: &mut Ni, at: usize) {
        let Some(socket) = self.meetings[at].step.socket() else {
            return;
        };
        let mut bytes = [0; LONGEST + 1];
        let (said, files) = match hear(socket, &mut bytes) {
            Heard::Nothing => return,
            Heard::Closed => (None, Vec::new()),
            Heard::Message(len, files) => match Said::decode(&bytes[..len]) {
                Some(said) => (Some(said), files),
                None => (
                    Some(Said::Refused("what it says makes no sense".to_owned())),
                    files,
                ),
            },
        };
        let mut meeting = self.meetings.swap_remove(at);
        let (id, token) = (meeting.id, meeting.token);
        match (meeting.step, said) {
            (Step::Knocked(knocked, socket), Some(Said::Welcome)) => {
                match knocked.welcomed(&self.host(), &socket, id, files) {
                    Ok(met) => {
                        self.met(ni, (id, token, socket), met);
                        self.leave_meeting(ni, meeting.waiting);
                    }
                    Err(why) => {
                        meeting.step = Step::Later(Instant::now());
                        self.watch.remove(&socket);
                        self.fail(ni, meeting, &why);
                    }
                }
            }
            (Step::Welcomed(welcomed, socket), Some(Said::Ready)) => {
                let met = welcomed.ready(&self.host(), id);
                self.met(ni, (id, token, socket), met);
                self.leave_meeting(ni, meeting.waiting);
            }
            (Step::Knocked(_, socket), Some(Said::Crossed)) => {
                // Its own knock is on the way, unless it ends meanwhile.
                self.watch.remove(&socket);
                meeting.step = Step::Later(Instant::now() + CROSSED);
                self.meetings.push(meeting);
            }
            (step, said) => {
                let why = match said {
                    Some(Said::Refused(why)) => why,
                    Some(_) => "what it says is out of turn".to_owned(),
                    None => "it has closed, or has ended".to_owned(),
                };
                meeting.step = step;
                self.fail(ni, meeting, &why);
            }
        }
    }

    /// A peer's socket is readable: nothing is said there, so it is closed.
    fn hear_end(&mut self, ni: &mut Ni, at: usize) {
        if matches!(hear(&self.peers[at].socket, &mut [0; 16]), Heard::Nothing) {
            return;
        }
        // What it had sent before comes first.
        let mut most = MOST_LOOKS;
        while most > 0 && self.peers[at].shm.progress(ni) {
            most -= 1;
        }
        self.part(ni, at, "it has closed, or has ended");
    }

    /// Knocks again where there was no room, and shows out who is silent.
    pub(super) fn retry(&mut self, ni: &mut Ni) {
        let now = Instant::now();
        let is_due = |m: &Meeting| matches!(m.step, Step::Later(at) if at <= now);
        while let Some(at) = self.meetings.iter().position(is_due) {
            let mut meeting = self.meetings.swap_remove(at);
            let address = self.book.find(meeting.id);
            match address.map(|address| self.knock(&address)) {
                Some(Ok(step)) => {
                    meeting.step = step;
                    self.begin(ni, meeting);
                }
                Some(Err(why)) => self.fail(ni, meeting, &why),
                None => self.fail(ni, meeting, "the program has disconnected it"),
            }
        }
        let silent = |v: &Visitor| now.duration_since(v.since) > SILENCE;
        while let Some(at) = self.visitors.iter().position(silent) {
            let visitor = self.visitors.remove(at);
            self.watch.remove(&visitor.socket);
        }
    }
}
