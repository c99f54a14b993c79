//! A simulation of ranks that are threads of one process. Nothing serves it: a rank that asks while all others wait lets virtual time
//! pass itself, until it or another one returns. So a call wakes only whom it answers, and often nobody.
//!
//! ```text
//!   rank 0             the stage              rank 1
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
use portals_core::{Error, NiConfig};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The simulation of some threads, and where each hears its answers.
#[derive(Debug)]
struct Together {
    stage: Mutex<Stage>,
    slots: Vec<Slot>,
    /// Ranks that have let go of their seats, until whoever has the stage tells the simulation.
    leavers: Mutex<Vec<usize>>,
    /// See [`Setting::patience`].
    patience: Option<Duration>,
}

/// How far a simulation is.
#[derive(Debug)]
enum Stage {
    /// Ranks are to come.
    Gathering {
        setting: Box<Setting>,
        memory: Arc<Files>,
        configs: Vec<Option<NiConfig>>,
    },
    Begun(Box<Play>),
    /// It never began, or has failed: why.
    Over(String),
}

#[derive(Debug)]
struct Play {
    sim: Sim,
    answers: Answers,
    /// When a rank asked last; measured only where somebody loses patience.
    heard: Instant,
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

/// A lock that is whole whatever has panicked: each change of what it protects is one assignment.
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

/// A rank of the simulation; with this value it leaves.
#[derive(Debug)]
pub(super) struct Seat {
    together: Arc<Together>,
    rank: usize,
}

/// Seats for `ranks` threads. The simulation begins when all have joined.
///
/// # Errors
/// The memory of this process cannot be reached.
pub(super) fn seats(ranks: u32, setting: Setting) -> Result<Vec<Seat>, ServeError> {
    let memory = Files::own().map_err(|why| ServeError::Memory { rank: 0, why })?;
    let ranks = ranks as usize;
    let together = Arc::new(Together {
        slots: (0..ranks).map(|_| Slot::default()).collect(),
        leavers: Mutex::default(),
        patience: setting.patience,
        stage: Mutex::new(Stage::Gathering {
            setting: Box::new(setting),
            memory: Arc::new(memory),
            configs: vec![None; ranks],
        }),
    });
    let seat = |rank| Seat {
        together: Arc::clone(&together),
        rank,
    };
    Ok((0..ranks).map(seat).collect())
}

impl Seat {
    /// Joins as a rank, and waits until all have; an error says why there is no simulation.
    pub(super) fn join(&self, config: &NiConfig) -> Result<Reply, String> {
        self.together.join(self.rank, config);
        let reply = self.hear().ok_or("the simulation ended before it began")?;
        match reply.result {
            Ok(_) => Ok(reply),
            Err(_) => Err(reply.note),
        }
    }

    /// Asks, and waits for the answer; `None`: there will be none.
    pub(super) fn ask(&self, question: Question) -> Option<Reply> {
        self.together.ask(self.rank, question.into());
        self.hear()
    }

    fn hear(&self) -> Option<Reply> {
        loop {
            match self.together.slots[self.rank].hear(self.together.patience) {
                Ok(heard) => return heard,
                Err(()) => self.together.lose_patience(),
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        whole(&self.together.leavers).push(self.rank);
        self.together.look_who_leaves();
    }
}

impl Together {
    /// The stage; `None` when somebody panicked on it.
    fn stage(&self) -> Option<MutexGuard<'_, Stage>> {
        self.stage.lock().ok()
    }

    fn join(&self, rank: usize, config: &NiConfig) {
        let Some(mut stage) = self.stage() else {
            return self.slots[rank].close();
        };
        match &mut *stage {
            Stage::Gathering { configs, .. } => configs[rank] = Some(*config),
            Stage::Begun(_) => return self.slots[rank].close(),
            Stage::Over(why) => return self.slots[rank].say(refusal(why)),
        }
        self.begin(&mut stage);
    }

    /// Begins when all ranks have joined.
    fn begin(&self, stage: &mut Stage) {
        let Stage::Gathering {
            setting,
            memory,
            configs,
        } = stage
        else {
            return;
        };
        let Some(configs) = configs.iter().copied().collect::<Option<Vec<NiConfig>>>() else {
            return;
        };
        let memories = configs
            .iter()
            .map(|_| Box::new(ProcessMemory::new(Arc::clone(memory))) as Box<dyn UserMemory>);
        let panics = CloseAll(self);
        let begun = Sim::new((**setting).clone(), &configs, memories.collect());
        panics.none();
        match begun {
            Ok(mut sim) => {
                trace::begin(&mut sim);
                for slot in &self.slots {
                    slot.say(Reply::started(&sim));
                }
                *stage = Stage::Begun(Box::new(Play {
                    answers: Answers::new(&sim),
                    sim,
                    heard: Instant::now(),
                }));
            }
            Err(error) => self.fail(stage, &ServeError::from(error)),
        }
    }

    /// Tells everybody who has come why there is no simulation; who comes later is told then.
    fn fail(&self, stage: &mut Stage, error: &ServeError) {
        tracing::error!("simulation: {error}");
        let why = host::with_causes(error);
        for slot in &self.slots {
            slot.say(refusal(&why));
        }
        *stage = Stage::Over(why);
    }

    fn ask(&self, rank: usize, request: Request) {
        let Some(mut stage) = self.stage() else {
            return self.slots[rank].close();
        };
        let Stage::Begun(play) = &mut *stage else {
            return self.slots[rank].close();
        };
        if self.patience.is_some() {
            play.heard = Instant::now();
        }
        if !play.sim.handle_call(rank, request) {
            tracing::error!(
                "rank {rank} asks what it may not ask now; the simulation goes on without it"
            );
            self.slots[rank].close();
            play.sim.handle_dismissal(rank);
            play.answers.end(&mut play.sim);
        }
        self.go_on(play);
    }

    /// Lets time pass until a rank runs, and hands out what ranks are answered.
    fn go_on(&self, play: &mut Play) {
        let panics = CloseAll(self);
        loop {
            for rank in std::mem::take(&mut *whole(&self.leavers)) {
                let live = play.sim.live();
                self.slots[rank].close();
                play.sim.handle_exit(rank);
                if play.sim.live() < live {
                    // It has vanished; others have closed their interfaces before.
                    play.answers.end(&mut play.sim);
                }
            }
            while let Some(returned) = play.sim.poll_return() {
                let (rank, reply) = play.answers.of(&mut play.sim, returned);
                self.slots[rank].say(reply);
            }
            if !play.sim.has_more() {
                break;
            }
        }
        play.answers.heard_all(&play.sim);
        if play.sim.live() == 0 {
            play.answers.end(&mut play.sim);
        }
        panics.none();
    }

    /// Ranks have let go of their seats.
    fn look_who_leaves(&self) {
        let Some(mut stage) = self.stage() else {
            return;
        };
        match &mut *stage {
            Stage::Begun(play) => self.go_on(play),
            Stage::Over(_) => {}
            Stage::Gathering { .. } => {
                let leaver = whole(&self.leavers).first().copied();
                if let Some(rank) = leaver {
                    self.fail(&mut stage, &ServeError::Left { rank });
                }
            }
        }
    }

    /// A rank has waited for as long as one may run without a call.
    fn lose_patience(&self) {
        let Some(mut stage) = self.stage() else {
            return;
        };
        let Stage::Begun(play) = &mut *stage else {
            return;
        };
        if self
            .patience
            .is_some_and(|patience| play.heard.elapsed() < patience)
        {
            return;
        }
        for rank in play.sim.go_on_without_silent() {
            say_silent("rank", rank, self.patience);
        }
        self.go_on(play);
    }
}

fn refusal(why: &str) -> Reply {
    Reply {
        clock: 0,
        result: Err(Error::Fail),
        note: why.to_owned(),
    }
}

/// A panic on the stage ends the simulation for all, who would wait for ever otherwise.
struct CloseAll<'a>(&'a Together);

impl CloseAll<'_> {
    fn none(self) {
        std::mem::forget(self);
    }
}

impl Drop for CloseAll<'_> {
    fn drop(&mut self) {
        for slot in &self.0.slots {
            slot.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{each, to};
    use super::super::trace::LINKS_VARIABLE;
    use super::super::{InThread, in_threads, setting};
    use super::{CloseAll, seats};
    use fabric_api::call::Wait;
    use fabric_api::config::FabricConfig;
    use fabric_api::region::Region;
    use fabric_testing::spec;
    use portals_core::{AckRequest, Unlink};
    use portals_shim::MdMemory;
    use portals_shim::fabric::Opened;
    use std::process::Command;
    use std::thread;

    /// How often this thread has slept.
    fn sleeps() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |l: &str| Some(l.strip_prefix("voluntary_ctxt_switches:")?.trim().parse());
        status.lines().find_map(line).unwrap().unwrap()
    }

    #[test]
    fn calls_that_wait_for_nobody_sleep_never() {
        let slept = each(in_threads(1, "xt4").unwrap(), |_, opened| {
            let ni = &opened.interface;
            let eq = ni.eq_alloc(4).unwrap();
            let before = sleeps();
            for _ in 0..1000 {
                assert!(ni.eq_poll(&[eq], Wait::Nanos(1000)).unwrap().is_none());
            }
            sleeps() - before
        });
        assert!(slept[0] < 100, "{slept:?} of 1000 calls");
    }

    #[test]
    fn ranks_are_told_who_has_left_before_all_had_joined() {
        let mut waiting = in_threads(3, "xt4").unwrap();
        let late = waiting.pop().unwrap();
        let first = waiting.remove(0);
        thread::scope(|s| {
            let joins = s.spawn(|| first.join().map(drop).unwrap_err().to_string());
            // Rank 1, whether rank 0 is there already or not.
            waiting.clear();
            let told = joins.join().unwrap();
            assert!(
                told.contains("rank 1 left before all ranks had joined"),
                "{told}"
            );
        });
        let told = late.join().map(drop).unwrap_err().to_string();
        assert!(told.contains("rank 1 left"), "{told}");
    }

    #[test]
    fn a_panic_of_the_simulation_is_its_end_for_all() {
        let setting = setting(&FabricConfig::default()).unwrap();
        let seats = seats(2, setting).unwrap();
        let together = &seats[0].together;
        thread::scope(|s| {
            let waits = seats.iter().map(|seat| s.spawn(|| seat.hear()));
            let waits: Vec<_> = waits.collect();
            let panics = s.spawn(|| {
                let _stage = together.stage().unwrap();
                let _panics = CloseAll(together);
                panic!("meant");
            });
            assert!(panics.join().is_err());
            for wait in waits {
                assert!(wait.join().unwrap().is_none());
            }
        });
        assert!(together.stage().is_none());
    }

    /// What ranks do after another one has closed is in the files that the environment asks for.
    #[test]
    fn the_last_rank_that_closes_ends_the_files() {
        let test = "threads::tests::the_last_rank_that_closes_ends_the_files";
        if std::env::var_os(LINKS_VARIABLE).is_none() {
            let file = tempfile::NamedTempFile::new().unwrap();
            let mut again = Command::new(std::env::current_exe().unwrap());
            again
                .args([test, "--exact"])
                .env(LINKS_VARIABLE, file.path());
            assert!(again.output().unwrap().status.success());
            let links = std::fs::read_to_string(file.path()).unwrap();
            let last = links.lines().last().unwrap_or_default();
            let used: Option<u32> = last.split(' ').next().and_then(|n| n.parse().ok());
            assert!(used.is_some_and(|n| n > 0), "{links}");
            return;
        }
        each(in_threads(3, "xt4").unwrap(), |rank, opened| {
            let ni = &opened.interface;
            if rank == 2 {
                return;
            }
            let eq = ni.eq_alloc(4).unwrap();
            let waits = || {
                let _ = ni.eq_poll(&[eq], Wait::Nanos(100_000)).unwrap();
            };
            waits();
            if rank == 0 {
                let region = Region::new(8).unwrap();
                let md = ni
                    .md_bind(spec(MdMemory::whole(&region), None), Unlink::Retain)
                    .unwrap();
                ni.put_region(md, (0, 8), AckRequest::NoAck, to(opened.peers[1], 0), 0)
                    .unwrap();
            }
            waits();
        });
    }

    /// Nobody waits for a rank whose thread has ended.
    #[test]
    fn a_rank_that_lets_go_holds_no_time() {
        let waiting = in_threads(2, "xt4").unwrap();
        thread::scope(|s| {
            let run = |rank: InThread| {
                let at = rank.rank();
                let opened = Opened::from(rank.join().unwrap());
                if at == 1 {
                    return;
                }
                let ni = &opened.interface;
                let eq = ni.eq_alloc(4).unwrap();
                assert!(ni.eq_poll(&[eq], Wait::Nanos(1_000_000)).unwrap().is_none());
                ni.close().unwrap();
            };
            for rank in waiting {
                s.spawn(move || run(rank));
            }
        });
    }
}
