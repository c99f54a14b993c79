//! A simulation of ranks that are threads of one process. Nothing serves it: a rank that asks while all others wait lets virtual time
//! pass itself, until it or another one returns. So a call wakes only whom it answers, and often nobody.
//!
//! ```text
//!   rank 0           the simulation           rank 1
//!     │ call ─────────► │ rank 1 runs           │
//!     │ sleeps          │                       │
//!     │                 │ ◄──────────────── call │
//!     │ ◄── its answer ─│ time passes           │  on the thread of rank 1
//!     │                 │ ── or rank 1's own ──►│  and it goes on without having slept
//! ```

use super::proto::{Question, Reply};
use super::server::{Answers, ServeError, say_silent};
use super::sim::{Request, Setting, Sim};
use super::trace;
use super::usermem::{Files, ProcessMemory, UserMemory};
use portals_core::NiConfig;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A simulation, and where each of its ranks hears its answers.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    slots: Vec<Slot>,
    /// Ranks that leave, until whoever has the state tells the simulation.
    leavers: Mutex<Vec<usize>>,
    /// See [`Setting::patience`].
    patience: Option<Duration>,
}

/// How far a simulation is.
#[derive(Debug)]
enum State {
    /// Ranks are to come.
    Gathering {
        setting: Box<Setting>,
        memory: Arc<Files>,
        configs: Vec<Option<NiConfig>>,
    },
    Running(Box<Running>),
    /// It could not begin, or has failed: why.
    Failed(String),
}

#[derive(Debug)]
struct Running {
    sim: Sim,
    answers: Answers,
    /// When a rank asked last; measured only where somebody loses patience.
    asked: Instant,
}

/// Where a rank hears.
#[derive(Debug, Default)]
struct Slot {
    heard: Mutex<Heard>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Heard {
    reply: Option<Reply>,
    /// Nothing more will come.
    closed: bool,
}

/// A lock that a panic leaves whole.
fn whole<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Slot {
    fn say(&self, reply: Reply) {
        whole(&self.heard).reply = Some(reply);
        self.bell.notify_one();
    }

    fn close(&self) {
        whole(&self.heard).closed = true;
        self.bell.notify_one();
    }

    /// Waits for an answer; `None`: nothing more will come. An error: nothing came for as long as `patience`.
    fn hear(&self, patience: Option<Duration>) -> Result<Option<Reply>, ()> {
        let mut heard = whole(&self.heard);
        loop {
            if let Some(reply) = heard.reply.take() {
                return Ok(Some(reply));
            }
            if heard.closed {
                return Ok(None);
            }
            heard = match patience {
                None => self
                    .bell
                    .wait(heard)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(patience) => {
                    let waited = self.bell.wait_timeout(heard, patience);
                    let (heard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
                    if timeout.timed_out() && heard.reply.is_none() && !heard.closed {
                        return Err(());
                    }
                    heard
                }
            };
        }
    }
}

/// A rank that is a thread; with this value it leaves.
#[derive(Debug)]
pub(super) struct ThreadRank {
    shared: Arc<Shared>,
    rank: usize,
}

/// The ranks of a simulation in this process, which begins when all have joined.
///
/// # Errors
/// The memory of this process cannot be reached.
pub(super) fn thread_ranks(ranks: u32, setting: Setting) -> Result<Vec<ThreadRank>, ServeError> {
    let memory = Files::own().map_err(|why| ServeError::Memory { rank: 0, why })?;
    let ranks = ranks as usize;
    let shared = Arc::new(Shared {
        slots: (0..ranks).map(|_| Slot::default()).collect(),
        leavers: Mutex::default(),
        patience: setting.patience,
        state: Mutex::new(State::Gathering {
            setting: Box::new(setting),
            memory: Arc::new(memory),
            configs: vec![None; ranks],
        }),
    });
    let of = |rank| ThreadRank {
        shared: Arc::clone(&shared),
        rank,
    };
    Ok((0..ranks).map(of).collect())
}

impl ThreadRank {
    /// Joins, and waits until all ranks have; an error says why there is no simulation.
    pub(super) fn join(&self, config: &NiConfig) -> Result<Reply, String> {
        let Self { shared, rank } = self;
        shared.with_state(|state| shared.join(state, *rank, config));
        let reply = self.hear().ok_or("the simulation ended before it began")?;
        match reply.result {
            Ok(_) => Ok(reply),
            Err(_) => Err(reply.note),
        }
    }

    /// Asks, and waits for the answer; `None`: there will be none.
    pub(super) fn ask(&self, question: Question) -> Option<Reply> {
        let Self { shared, rank } = self;
        shared.with_state(|state| shared.ask(state, *rank, question.into()));
        self.hear()
    }

    fn hear(&self) -> Option<Reply> {
        let shared = &self.shared;
        loop {
            match shared.slots[self.rank].hear(shared.patience) {
                Ok(heard) => return heard,
                Err(()) => shared.with_state(|state| shared.lose_patience(state)),
            }
        }
    }
}

impl Drop for ThreadRank {
    fn drop(&mut self) {
        let shared = &self.shared;
        // Before the lock, for whoever has it now.
        whole(&shared.leavers).push(self.rank);
        shared.with_state(|state| shared.look_who_leaves(state));
    }
}

impl Shared {
    /// Does something with the state. A panic is the simulation's end for all, as it would be on a thread of its own.
    fn with_state(&self, act: impl FnOnce(&mut State)) {
        let mut state = whole(&self.state);
        if catch_unwind(AssertUnwindSafe(|| act(&mut state))).is_err() {
            *state = State::Failed("the simulation has panicked".to_owned());
            for slot in &self.slots {
                slot.close();
            }
        }
    }

    fn join(&self, state: &mut State, rank: usize, config: &NiConfig) {
        match state {
            State::Gathering { configs, .. } => configs[rank] = Some(*config),
            State::Running(_) => return self.slots[rank].close(),
            State::Failed(why) => return self.slots[rank].say(Reply::refusal(why)),
        }
        self.begin(state);
    }

    /// Begins when all ranks have joined.
    fn begin(&self, state: &mut State) {
        let State::Gathering {
            setting,
            memory,
            configs,
        } = state
        else {
            return;
        };
        let Some(configs) = configs.iter().copied().collect::<Option<Vec<NiConfig>>>() else {
            return;
        };
        let memories = configs
            .iter()
            .map(|_| Box::new(ProcessMemory::new(Arc::clone(memory))) as Box<dyn UserMemory>);
        match Sim::new((**setting).clone(), &configs, memories.collect()) {
            Ok(mut sim) => {
                trace::begin(&mut sim);
                for slot in &self.slots {
                    slot.say(Reply::begun(sim.start()));
                }
                *state = State::Running(Box::new(Running {
                    answers: Answers::new(&sim),
                    sim,
                    asked: Instant::now(),
                }));
            }
            Err(error) => self.fail(state, &ServeError::from(error)),
        }
    }

    /// Tells everybody who has come why there is no simulation; who comes later is told then.
    fn fail(&self, state: &mut State, error: &ServeError) {
        tracing::error!("simulation: {error}");
        let why = host::with_causes(error);
        for slot in &self.slots {
            slot.say(Reply::refusal(&why));
        }
        *state = State::Failed(why);
    }

    fn ask(&self, state: &mut State, rank: usize, request: Request) {
        let State::Running(running) = state else {
            return self.slots[rank].close();
        };
        if self.patience.is_some() {
            running.asked = Instant::now();
        }
        if !running.sim.handle_call(rank, request) {
            tracing::error!(
                "rank {rank} asks what it may not ask now; the simulation goes on without it"
            );
            self.slots[rank].close();
            running.sim.handle_dismissal(rank);
            running.answers.end(&mut running.sim);
        }
        self.go_on(running);
    }

    /// Lets time pass until a rank runs, and hands out what ranks are answered.
    fn go_on(&self, running: &mut Running) {
        let Running { sim, answers, .. } = running;
        loop {
            for rank in std::mem::take(&mut *whole(&self.leavers)) {
                let live = sim.live();
                self.slots[rank].close();
                sim.handle_exit(rank);
                if sim.live() < live {
                    // It has vanished; others have closed their interfaces before.
                    answers.end(sim);
                }
            }
            while let Some(returned) = sim.poll_return() {
                let (rank, reply) = answers.of(sim, returned);
                self.slots[rank].say(reply);
            }
            if !sim.has_more() {
                break;
            }
        }
        answers.all_given(sim);
        if sim.live() == 0 {
            answers.end(sim);
        }
    }

    /// Ranks leave.
    fn look_who_leaves(&self, state: &mut State) {
        match state {
            State::Running(running) => self.go_on(running),
            State::Failed(_) => {}
            State::Gathering { .. } => {
                let leaver = whole(&self.leavers).first().copied();
                if let Some(rank) = leaver {
                    self.fail(state, &ServeError::Left { rank });
                }
            }
        }
    }

    /// A rank has waited for as long as one may run without a call.
    fn lose_patience(&self, state: &mut State) {
        let State::Running(running) = state else {
            return;
        };
        let over = |patience| running.asked.elapsed() >= patience;
        if !self.patience.is_some_and(over) {
            return;
        }
        for rank in running.sim.go_on_without_silent() {
            say_silent("rank", rank, self.patience);
        }
        self.go_on(running);
    }
}

#[cfg(test)]
mod tests;
