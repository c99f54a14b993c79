//! The rank's side: every call is a question to the simulation.

use super::kept::{Effect, Kept, Known};
use super::owner::Owner;
use super::proto::{
    ARRIVAL, Arrival, HELLO, Handed, Hello, MAX_DATAGRAM, Question, Reply, opening,
};
use super::start::send_with;
use super::threads::ThreadRank;
use super::usermem::{Files, Probe};
use fabric_api::bridge::{Bridge, Caller, ClockKind};
use fabric_api::call::{Answer, Call, EqList, Wait};
use fabric_api::gate::Gate;
use fabric_api::op::Capabilities;
use fabric_api::region::Region;
use host::bystander::bystanders;
use host::secret::{Secret, random};
use portals_core::{Error, MdHandle, NiConfig, ProcessId};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Virtual time after which a wait lets the other threads of its process in, nanoseconds.
const SLICE: u64 = 20_000;

thread_local! {
    /// Calls of this thread that have begun. Without a destructor: a handler of a signal may ask at any time.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// This thread has made a call.
    static HAS_CALLED: Cell<bool> = const { Cell::new(false) };
}

/// This thread is in a call while this lives.
struct Begun;

impl Begun {
    fn new() -> Self {
        CALLS.set(CALLS.get() + 1);
        HAS_CALLED.set(true);
        // A handler that comes from here on sees it.
        compiler_fence(Ordering::SeqCst);
        Self
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        CALLS.set(CALLS.get() - 1);
    }
}

/// A connection to the simulation. Calls of several threads are made one after the other, as a
/// single-processor node would. A wait of one of them is made in slices, so that another may cause
/// what it waits for; such a program's virtual time depends on how its threads run. Each call has its turn in the order of
/// asking: threads that look again and again keep no wait from its next slice.
#[derive(Debug)]
pub(super) struct Client {
    line: Mutex<Line>,
    /// The process is this rank; otherwise its threads are ranks, each with a client of its own.
    own_process: bool,
    /// A mutex says only who is not next.
    gate: Gate,
    /// Picoseconds.
    clock: AtomicU64,
    /// The simulation is gone; said once.
    lost: AtomicBool,
    /// Whose simulation it is.
    whose: &'static str,
    /// This rank has left it; nobody would answer any more.
    closed: AtomicBool,
    /// The regions that descriptors were made of.
    kept: Mutex<Kept>,
}

/// How a client reaches the simulation.
#[derive(Debug)]
enum Line {
    Socket(Socket),
    /// The simulation is in this process.
    Thread(ThreadRank),
}

impl Line {
    /// `None`: there will be no answer.
    fn exchange(&mut self, question: Question) -> Result<Option<Reply>, Error> {
        match self {
            Self::Socket(socket) => socket.exchange(&question),
            Self::Thread(rank) => Ok(rank.ask(question)),
        }
    }
}

/// The socket, and a datagram, which is more than a thread with a small stack has room for.
#[derive(Debug)]
struct Socket {
    socket: OwnedFd,
    datagram: Vec<u8>,
}

impl Socket {
    /// `None`: the other side is gone.
    fn exchange(&mut self, question: &Question) -> Result<Option<Reply>, Error> {
        let bytes = postcard::to_slice(question, &mut self.datagram).map_err(|_| Error::NoSpace)?;
        // Any other failure: the other side has closed the connection, and may have said why before.
        while let Err(Errno::INTR) = send(&self.socket, bytes, SendFlags::NOSIGNAL) {}
        Ok(self.hear())
    }

    /// Waits for an answer; `None`: the other side is gone.
    fn hear<T: DeserializeOwned>(&mut self) -> Option<T> {
        loop {
            match recv(&self.socket, &mut self.datagram[..], RecvFlags::empty()) {
                Ok((n, _)) if n > 0 => return postcard::from_bytes(&self.datagram[..n]).ok(),
                // Said once where the other side has closed without reading all; what it has said follows.
                Err(Errno::INTR | Errno::CONNRESET) => {}
                _ => return None,
            }
        }
    }

    /// Says hello and waits for the answer.
    fn introduce(
        &mut self,
        mut bytes: Vec<u8>,
        hello: &impl Serialize,
        files: Option<&Files>,
    ) -> Option<Reply> {
        bytes.extend_from_slice(postcard::to_slice(hello, &mut self.datagram).ok()?);
        let fds = files.map(Files::descriptors);
        let fds = fds.as_ref().map_or(&[][..], |fds| &fds[..]);
        // As in `exchange`.
        let _ = send_with(self.socket.as_fd(), &bytes, fds);
        self.hear()
    }

    /// Says who it is, with its memory, and waits until it has joined; an error says why it has not.
    fn join<H: Serialize>(
        socket: OwnedFd,
        opening: Vec<u8>,
        hello: impl FnOnce(Handed) -> H,
    ) -> Result<(Self, Reply), String> {
        let mut line = Self {
            socket,
            datagram: vec![0; MAX_DATAGRAM],
        };
        // Somewhere in memory, for the simulation to show that it reads there.
        let mut word = Box::new([0; Probe::LEN]);
        random(&mut word[..]).map_err(|e| format!("no random bytes: {e}"))?;
        let files = Files::own();
        let memory = match &files {
            Ok(_) => Handed::Files(Probe {
                address: word.as_ptr().expose_provenance() as u64,
                word: *word,
            }),
            Err(why) => Handed::Refused(why.chars().take(1000).collect()),
        };
        let files = files.as_ref().ok();
        let reply = line.introduce(opening, &hello(memory), files);
        drop(word);
        let reply = reply.ok_or("the simulation ended before it began")?;
        match reply.result {
            Ok(_) => Ok((line, reply)),
            Err(_) => Err(reply.note),
        }
    }
}

/// Gives the gate back.
struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Client {
    /// Joins as a rank and waits until all ranks have; an error says why not.
    pub(super) fn join(
        socket: OwnedFd,
        secret: &Secret,
        rank: u32,
        config: &NiConfig,
    ) -> Result<Self, String> {
        let (socket, reply) = Socket::join(socket, opening(HELLO, secret), |memory| Hello {
            rank,
            config: *config,
            memory,
        })?;
        Ok(Self::new(Line::Socket(socket), &reply, "of this job"))
    }

    /// Joins as a rank that is a thread, and waits until all ranks have; an error says why not.
    pub(super) fn join_thread(rank: ThreadRank, config: &NiConfig) -> Result<Self, String> {
        let reply = rank.join(config)?;
        Ok(Self::new(Line::Thread(rank), &reply, "of this job"))
    }

    /// Joins an open simulation as an endpoint of `owner`, and gives its process id; an error says why not.
    pub(super) fn arrive(
        socket: OwnedFd,
        secret: &Secret,
        config: &NiConfig,
        owner: Owner,
    ) -> Result<(Self, ProcessId), String> {
        let opening = opening(ARRIVAL, secret);
        let (mut socket, reply) = Socket::join(socket, opening, |memory| Arrival {
            config: *config,
            owner,
            memory,
        })?;
        let id = socket.hear().ok_or("the simulation has ended")?;
        let client = Self::new(Line::Socket(socket), &reply, "of this endpoint");
        Ok((client, id))
    }

    fn new(line: Line, joined: &Reply, whose: &'static str) -> Self {
        // Joining was a call.
        HAS_CALLED.set(true);
        Self {
            own_process: matches!(line, Line::Socket(_)),
            line: Mutex::new(line),
            gate: Gate::new(),
            clock: AtomicU64::new(joined.clock),
            lost: AtomicBool::new(false),
            whose,
            closed: AtomicBool::new(false),
            kept: Mutex::default(),
        }
    }

    fn lost(&self) -> Error {
        if !self.lost.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "the SeaStar simulation {} has ended; every further call fails",
                self.whose
            );
        }
        Error::Fail
    }

    pub(super) fn ask(&self, question: Question) -> Result<Answer, Error> {
        let _begun = Begun::new();
        let reply = self.exchange(question)?;
        if !reply.note.is_empty() {
            tracing::error!("{}", reply.note);
        }
        reply.result
    }

    fn exchange(&self, question: Question) -> Result<Reply, Error> {
        let closes = matches!(question, Question::Call(Call::Close));
        self.gate.enter();
        let _inside = Inside(&self.gate);
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::NiInvalid);
        }
        let reply = line.exchange(question)?.ok_or_else(|| self.lost())?;
        self.clock.store(reply.clock, Ordering::Relaxed);
        if closes && reply.result.is_ok() {
            self.closed.store(true, Ordering::Release);
        }
        Ok(reply)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A wait of a process with several threads; `between` is done before each slice.
    pub(super) fn wait_in_slices(
        &self,
        eqs: &EqList,
        wait: Wait,
        between: impl Fn() -> Result<(), Error>,
    ) -> Result<Answer, Error> {
        let mut left = match wait {
            Wait::No => 0,
            Wait::Nanos(ns) => ns,
            Wait::Forever => u64::MAX,
        };
        loop {
            between()?;
            let slice = left.min(SLICE);
            let eqs = eqs.clone();
            let answer = self.ask(match wait {
                Wait::Forever => Question::Slice(eqs, slice),
                _ => Question::Call(Call::EqPoll {
                    eqs,
                    wait: Wait::Nanos(slice),
                }),
            })?;
            if wait != Wait::Forever {
                left -= slice;
            }
            if !matches!(answer, Answer::Polled(None)) || left == 0 {
                return Ok(answer);
            }
        }
    }
}

/// Whether the process has other threads than this one that may make calls.
pub(super) fn has_threads() -> bool {
    // A link each from the folder itself, its parent, and the folder of each thread. Bystanders are asked for last: one
    // that ends meanwhile is taken for a thread that calls, which costs slices, and not the other way round.
    let links = rustix::fs::stat("/proc/self/task").map(|s| usize::try_from(s.st_nlink));
    matches!(links, Ok(Ok(links)) if links > 3 + bystanders())
}

impl Bridge for Client {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            pins: true,
            ..Capabilities::default()
        }
    }

    fn call_with(&self, call: Call, region: Option<&Region>) -> Result<Answer, Error> {
        let _begun = Begun::new();
        let effect = Effect::of(&call, region);
        if matches!(effect, Effect::Nothing) {
            let answer = match &call {
                Call::EqPoll { eqs, wait }
                    if *wait != Wait::No && self.own_process && has_threads() =>
                {
                    self.wait_in_slices(eqs, *wait, || Ok(()))?
                }
                _ => self.ask(Question::Call(call))?,
            };
            self.kept().answered(effect, &answer);
            return Ok(answer);
        }
        // In the order in which the simulation answers: numbers of descriptors come back.
        let mut kept = self.kept();
        let answer = self.ask(Question::Call(call))?;
        kept.answered(effect, &answer);
        let questions = kept.questions();
        if !questions.is_empty() {
            let ask = |md: MdHandle| self.ask(Question::Call(Call::MdQuery(md)));
            let known = |md| (md, Known::of(&ask(md)));
            let answers: Vec<(MdHandle, Known)> = questions.into_iter().map(known).collect();
            kept.answers(&answers);
        }
        Ok(answer)
    }

    fn now(&self) -> u64 {
        self.clock.load(Ordering::Relaxed) / 1_000
    }

    fn clock(&self) -> ClockKind {
        ClockKind::Virtual
    }

    fn caller(&self) -> Caller {
        match (CALLS.get(), HAS_CALLED.get()) {
            (0, false) => Caller::Stranger,
            (0, true) => Caller::Between,
            _ => Caller::Inside,
        }
    }

    fn leave(&self) -> Result<(), Error> {
        self.ask(Question::Leave).map(|_| ())
    }

    fn rejoin(&self) -> Result<(), Error> {
        self.ask(Question::Rejoin).map(|_| ())
    }
}
