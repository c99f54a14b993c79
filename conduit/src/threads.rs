//! Ranks that are threads of one process, over the in-process fabric or shared memory: for tests.

use crate::conduit::Conduit;
use crate::env::{Env, EnvError};
use crate::exchange::{Exchange, ExchangeError};
use crate::par::Par;
use portals_shim::Interface;
use portals_shim::fabric::{self, FabricError, Opened};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RankEnd<R> {
    /// Its function returned.
    Returned(R),
    /// It exited, or another rank did, with this code.
    Exited(i32),
    /// It, or another rank, ended the job with this message.
    Aborted(String),
}

/// Carried by the unwinding of a rank that ends.
enum Unwound {
    Exited(i32),
    Aborted(String),
}

#[derive(Debug, Default)]
struct State {
    waiting: u32,
    generation: u64,
    /// The first abort's message.
    aborted: Option<String>,
}

#[derive(Debug)]
struct Hub {
    size: u32,
    state: Mutex<State>,
    changed: Condvar,
    /// Closed by an abort, which wakes whoever waits in one.
    interfaces: Vec<Interface>,
}

impl Hub {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn abort(&self, message: String) -> String {
        let mut state = self.lock();
        let first = state.aborted.get_or_insert(message).clone();
        drop(state);
        self.changed.notify_all();
        for interface in &self.interfaces {
            let _ = interface.close();
        }
        first
    }
}

/// One thread's side.
#[derive(Debug)]
struct ThreadJob {
    rank: u32,
    hub: Arc<Hub>,
}

impl Exchange for ThreadJob {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.hub.size
    }

    fn fence(&self) -> Result<(), ExchangeError> {
        let mut state = self.hub.lock();
        state.waiting += 1;
        if state.waiting == self.hub.size {
            state.waiting = 0;
            state.generation += 1;
            self.hub.changed.notify_all();
            return Ok(());
        }
        let generation = state.generation;
        while state.generation == generation {
            if let Some(reason) = state.aborted.clone() {
                return Err(ExchangeError { reason });
            }
            state = self
                .hub
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }

    fn leave(&self) {}

    fn end(&self, code: i32) -> ! {
        resume_unwind(Box::new(Unwound::Exited(code)))
    }

    fn abort(&self, _code: i32, message: &str) -> ! {
        let message = format!("rank {} of {}: {message}", self.rank, self.hub.size);
        let first = self.hub.abort(message);
        resume_unwind(Box::new(Unwound::Aborted(first)))
    }

    fn panicked(&self) -> bool {
        self.hub.abort(format!("rank {} panicked", self.rank));
        true
    }
}

/// Runs `rank` on `n` ranks that are threads, and says how each ended, by rank. Ranks that return
/// wait for the others to, as with [`Conduit::finish`]. Where the job cannot start, every rank ends with
/// [`RankEnd::Aborted`] and the reason.
///
/// # Panics
///
/// With the panic of a rank, if one panicked.
pub fn run<R: Send>(n: u32, rank: impl Fn(&Conduit) -> R + Sync) -> Vec<RankEnd<R>> {
    run_in(n, &[], rank)
}

/// Runs ranks ([`run`]) with these variables and no others in the environment of the conduit. `PORTOLAN_FABRIC=shm` has the
/// threads share memory as processes do. Bad variables are a reason not to start.
///
/// # Panics
///
/// With the panic of a rank, if one panicked.
pub fn run_in<R: Send>(
    n: u32,
    variables: &[(&str, &str)],
    rank: impl Fn(&Conduit) -> R + Sync,
) -> Vec<RankEnd<R>> {
    run_whole(n, variables, |conduit| {
        let result = rank(&conduit);
        conduit.finish();
        result
    })
}

/// Runs ranks ([`run_in`]) that have threads of their own.
///
/// # Panics
///
/// With the panic of a rank, if one panicked.
pub fn run_par<R: Send>(
    n: u32,
    variables: &[(&str, &str)],
    rank: impl Fn(&Par) -> R + Sync,
) -> Vec<RankEnd<R>> {
    run_whole(n, variables, |conduit| {
        let par = Par::share(conduit);
        let result = rank(&par);
        par.finish();
        result
    })
}

fn run_whole<R: Send>(
    n: u32,
    variables: &[(&str, &str)],
    rank: impl Fn(Conduit) -> R + Sync,
) -> Vec<RankEnd<R>> {
    match opened(n, variables) {
        Ok(opened) => run_over(opened, variables, rank),
        Err(why) => not_started(n as usize, &why),
    }
}

/// Interfaces of `n` ranks, over what the variables say.
pub(crate) fn opened(n: u32, variables: &[(&str, &str)]) -> Result<Vec<Opened>, FabricError> {
    if variables.contains(&("PORTOLAN_FABRIC", "shm")) {
        portals_shim::nal::shm::in_threads(n).map(fabric::interfaces)
    } else {
        Ok(fabric::in_process(n))
    }
}

/// How the ranks of a job end that cannot start.
fn not_started<R>(n: usize, why: &dyn std::fmt::Display) -> Vec<RankEnd<R>> {
    let ends = (0..n).map(|_| RankEnd::Aborted(why.to_string()));
    ends.collect()
}

/// Runs ranks ([`run_in`]) over interfaces that are there, of a fabric whose ranks may be threads; the function finishes by itself.
///
/// # Panics
///
/// With the panic of a rank, if one panicked.
pub fn run_over<R: Send>(
    opened: Vec<Opened>,
    variables: &[(&str, &str)],
    rank: impl Fn(Conduit) -> R + Sync,
) -> Vec<RankEnd<R>> {
    let env = |name: &str| {
        variables
            .iter()
            .find(|(n, _)| *n == name)
            .map(|(_, v)| (*v).to_owned())
    };
    let env: Result<Env, EnvError> = Env::read(env);
    let env = match env {
        Ok(env) => env,
        Err(why) => return not_started(opened.len(), &why),
    };
    let hub = Arc::new(Hub {
        size: opened.len() as u32,
        state: Mutex::default(),
        changed: Condvar::new(),
        interfaces: opened.iter().map(|o| o.interface.clone()).collect(),
    });
    // A test whose ranks would wait for ever fails and says so.
    #[cfg(test)]
    let _limit = crate::exit::watch(
        Arc::new(ThreadJob {
            rank: 0,
            hub: hub.clone(),
        }),
        std::time::Duration::from_secs(180),
        1,
        "not ended after 180 s".to_owned(),
    );
    let rank = &rank;
    let ends: Vec<Result<RankEnd<R>, Box<dyn Any + Send>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(opened)
            .map(|(r, opened)| {
                let (hub, env) = (hub.clone(), env.clone());
                scope.spawn(move || {
                    let job = ThreadJob {
                        rank: r,
                        hub: hub.clone(),
                    };
                    let body =
                        AssertUnwindSafe(|| match Conduit::with_env(Box::new(job), opened, env) {
                            Ok(conduit) => rank(conduit),
                            Err(why) => {
                                let first = hub.abort(format!("rank {r}: {why}"));
                                resume_unwind(Box::new(Unwound::Aborted(first)))
                            }
                        });
                    let end = catch_unwind(body);
                    match end {
                        Ok(result) => Ok(RankEnd::Returned(result)),
                        Err(payload) => match payload.downcast::<Unwound>() {
                            Ok(u) => Ok(match *u {
                                Unwound::Exited(code) => RankEnd::Exited(code),
                                Unwound::Aborted(message) => RankEnd::Aborted(message),
                            }),
                            Err(panic) => {
                                // Ranks that wait for this one would wait for ever. It may have no conduit yet.
                                hub.abort(format!("rank {r} panicked"));
                                Err(panic)
                            }
                        },
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| t.join().unwrap_or_else(Err))
            .collect()
    });
    let mut all = Vec::with_capacity(ends.len());
    for end in ends {
        match end {
            Ok(end) => all.push(end),
            Err(panic) => resume_unwind(panic),
        }
    }
    all
}
