//! Active messages that several threads of rank 0 send at one time, each thread to ranks of its own.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};

use conduit::{AmError, BarrierName, ClockKind, Conduit, Par, ParHandler};

use super::error::BenchError;
use super::samples::{Measured, Samples, WARM_UP};

/// Handler of requests that are not answered.
const SILENT: u8 = 200;
/// Handler of the last one of a row: replies.
const LAST: u8 = 201;
/// Handler of replies: counts one.
const BACK: u8 = 202;

/// The conduit's attached end of one rank, for threads.
#[derive(Debug)]
pub(super) struct Threads {
    par: Par,
    back: Arc<AtomicU64>,
    wrong: Arc<AtomicBool>,
}

impl Threads {
    /// Attaches `conduit` without a segment. Collective.
    pub(super) fn attach(conduit: Conduit) -> Result<Self, BenchError> {
        let (back, wrong) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let (b, w) = (back.clone(), wrong.clone());
        let handlers = vec![
            ParHandler::new(SILENT, |_, _, _| {}),
            ParHandler::new(LAST, move |token, _, _| {
                if token.reply_short(BACK, &[]).is_err() {
                    w.store(true, Ordering::Relaxed);
                }
            }),
            ParHandler::new(BACK, move |_, _, _| {
                b.fetch_add(1, Ordering::Release);
            }),
        ];
        let par = Par::share(conduit);
        par.attach(handlers, 0)?;
        Ok(Self { par, back, wrong })
    }

    /// Leaves the job, once all ranks are done.
    pub(super) fn finish(self) {
        self.par.finish();
    }

    /// Messages that each rank gets in one duration: where time is wall time, far more than starting the threads
    /// together takes.
    fn row(&self) -> u64 {
        match self.par.with(Conduit::clock) {
            ClockKind::Wall => 8192,
            ClockKind::Virtual => 64,
        }
    }

    /// Measures rows of Shorts from `threads` threads of rank 0 to all other ranks, of which each is one thread's.
    /// All ranks must call it alike; rank 0 gets the durations, from the start of the threads to the handling of the
    /// last message.
    pub(super) fn measure(&self, threads: u64, iters: u64) -> Result<Measured, BenchError> {
        let threads = usize::try_from(threads.max(1)).map_err(|_| BenchError::TooLarge(threads))?;
        let (row, peers) = (self.row(), self.par.nodes().saturating_sub(1));
        let barrier = || self.par.with(|c| c.barrier(BarrierName::Anonymous));
        barrier()?;
        let samples = if self.par.mynode() == 0 {
            self.rows(threads, row, iters)?
        } else {
            Samples::new()
        };
        barrier()?;
        if self.wrong.load(Ordering::Relaxed) {
            return Err(BenchError::Payload);
        }
        Ok(Measured {
            samples,
            operations: row * u64::from(peers),
            bytes: 0,
            found: None,
        })
    }

    fn rows(&self, threads: usize, row: u64, iters: u64) -> Result<Samples, BenchError> {
        let (par, meet, failed) = (&self.par, Barrier::new(threads + 1), AtomicBool::new(false));
        let mut samples = Samples::new();
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..threads)
                .map(|thread| {
                    let (meet, failed) = (&meet, &failed);
                    scope.spawn(move || -> Result<(), AmError> {
                        let mut sent = Ok(());
                        for _ in 0..WARM_UP + iters {
                            meet.wait();
                            // Whatever happens, the others are met.
                            sent = sent.and_then(|()| send(par, (thread, threads), row));
                            failed.fetch_or(sent.is_err(), Ordering::Relaxed);
                            meet.wait();
                        }
                        sent
                    })
                })
                .collect();
            let peers = u64::from(par.nodes().saturating_sub(1));
            for i in 0..WARM_UP + iters {
                let done = self.back.load(Ordering::Acquire) + peers;
                let start = par.with(Conduit::now);
                meet.wait();
                meet.wait();
                par.block_until(|| {
                    self.back.load(Ordering::Acquire) >= done || failed.load(Ordering::Relaxed)
                });
                if i >= WARM_UP {
                    samples.add(par.with(Conduit::now) - start);
                }
            }
            all.into_iter().try_for_each(|thread| match thread.join() {
                Ok(sent) => sent.map_err(BenchError::from),
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })?;
        Ok(samples)
    }
}

/// Sends the part of thread `thread` of `threads`: a row to each rank that is its own.
fn send(par: &Par, (thread, threads): (usize, usize), row: u64) -> Result<(), AmError> {
    let own = (1..par.nodes()).skip(thread).step_by(threads);
    for _ in 1..row {
        own.clone()
            .try_for_each(|to| par.am_request_short(to, SILENT, &[]))?;
    }
    own.into_iter()
        .try_for_each(|to| par.am_request_short(to, LAST, &[]))
}
