//! Two ranks of a conduit, each in a thread, that take turns: while one runs the other sleeps, so that nothing is
//! counted but what the messages need. A round trip is a Short request without arguments, the handler that replies,
//! and the handler of the reply; or a put of 8 bytes to a page of the other's segment, and its acknowledgement; or a get of a
//! page from there to the own segment.

use conduit::{BarrierName, Conduit, Exchange, ExchangeError, Handle, HandlerEntry};
use portals_shim::fabric::{self, Opened};
use portals_shim::nal::shm;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, Thread};

/// Handler of requests: replies.
const REQUEST: u8 = 200;
/// Handler of replies: counts.
const REPLY: u8 = 201;

/// What lies below the conduit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// The in-process fabric.
    Process,
    /// Shared memory.
    Memory,
}

/// A job of two threads.
#[derive(Debug)]
struct Job {
    rank: u32,
    all: Arc<Barrier>,
}

impl Exchange for Job {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        2
    }

    fn fence(&self) -> Result<(), ExchangeError> {
        self.all.wait();
        Ok(())
    }

    fn leave(&self) {}

    fn end(&self, code: i32) -> ! {
        std::process::exit(code)
    }

    fn abort(&self, code: i32, message: &str) -> ! {
        eprintln!("rank {}: {message}", self.rank);
        std::process::exit(code)
    }
}

/// Whose turn it is.
#[derive(Debug)]
struct Turn(AtomicU32);

impl Turn {
    fn wait(&self, rank: u32) {
        while self.0.load(Ordering::Acquire) != rank {
            thread::park();
        }
    }

    fn pass(&self, to: u32, thread: &Thread) {
        self.0.store(to, Ordering::Release);
        thread.unpark();
    }
}

/// No rank's turn: the second one is to end.
const END: u32 = 2;

/// What the ranks do in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// Nothing.
    Nothing,
    /// A Short request and its reply.
    Request,
    /// A put to a segment that is pinned as a whole.
    PutInSegment,
    /// A put to a segment of which units are pinned, all that are put to.
    PutHeld,
    /// A get from a segment that is pinned as a whole.
    GetInSegment,
    /// A get from a segment of which units are pinned, all that is got.
    GetHeld,
    /// A blocking put of the one rank, whose partner has no turn; over shared memory alone.
    PutAlone,
    /// A blocking get of 8 bytes, likewise.
    GetAlone,
}

impl Doing {
    fn is_held(self) -> bool {
        matches!(self, Self::PutHeld | Self::GetHeld)
    }

    /// Whether the partner has nothing to do.
    fn is_alone(self) -> bool {
        matches!(self, Self::PutAlone | Self::GetAlone)
    }
}

const PAGE: u64 = 4096;
/// Pages of the segment that is put to.
const PAGES: u64 = 64;

/// Bytes of a segment before and after them, so that the units are memory as a whole.
const MARGIN: u64 = 1 << 18;

/// Bytes of a get: more than a chunk holds, so that they land where they belong.
const GOT: usize = 4096;

/// Puts in no order that a cache would know.
fn page(i: u64) -> u64 {
    i.wrapping_mul(0x9e37_79b9) % PAGES
}

fn attached(
    rank: u32,
    all: Arc<Barrier>,
    opened: Opened,
    doing: Doing,
) -> Option<(Conduit, Rc<Cell<u64>>)> {
    let conduit = Conduit::with(Box::new(Job { rank, all }), opened).ok()?;
    let seen = Rc::new(Cell::new(0));
    let counter = Rc::clone(&seen);
    let handlers = vec![
        HandlerEntry::new(REQUEST, |token, _, _| {
            let _ = token.reply_short(REPLY, &[]);
        }),
        HandlerEntry::new(REPLY, move |_, _, _| counter.set(counter.get() + 1)),
    ];
    let bytes = (PAGES * PAGE + 2 * MARGIN) as usize;
    match doing {
        Doing::Nothing | Doing::Request => conduit.attach(handlers, 4096).ok()?,
        Doing::PutInSegment | Doing::GetInSegment | Doing::PutAlone | Doing::GetAlone => {
            conduit.attach(handlers, bytes).ok()?
        }
        Doing::PutHeld | Doing::GetHeld => conduit.attach_large(handlers, bytes).ok()?,
    };
    if doing.is_held() {
        // Whatever is put to later is pinned.
        if rank == 0 {
            let base = conduit.segment(1).addr + MARGIN;
            (0..PAGES).try_for_each(|page| conduit.put(1, base + page * PAGE, &[0; 8]).ok())?;
        }
        conduit.barrier(BarrierName::Anonymous).ok()?;
    }
    Some((conduit, seen))
}

/// Whether the last of `times` turns left nothing undone.
fn all_done(conduit: &Conduit, doing: Doing, times: u64, seen: u64) -> u64 {
    match (doing, conduit.firehose_stats()) {
        (Doing::Nothing | Doing::Request, _) => seen,
        (_, Some(s)) if s.remote.misses > PAGES => 0,
        _ => times,
    }
}

/// `times` turns of both ranks, with a round trip in each. How many came to their end.
pub fn round_trips(over: Over, doing: Doing, times: u64) -> Option<u64> {
    if doing.is_alone() && over != Over::Memory {
        // A partner without a turn takes nothing.
        return None;
    }
    let idle = doing == Doing::Nothing;
    let mut opened = match over {
        Over::Process => fabric::in_process(2),
        Over::Memory => fabric::interfaces(shm::in_threads(2).ok()?),
    }
    .into_iter();
    let (first, second) = opened.next().zip(opened.next())?;
    let (all, turn) = (Arc::new(Barrier::new(2)), Turn(AtomicU32::new(0)));
    let back = thread::current();
    thread::scope(|scope| {
        let (turn, other) = (&turn, Arc::clone(&all));
        let partner = scope.spawn(move || {
            let (conduit, _) = attached(1, other, second, doing)?;
            loop {
                while turn.0.load(Ordering::Acquire) == 0 {
                    thread::park();
                }
                if turn.0.load(Ordering::Acquire) == END {
                    break;
                }
                if !idle {
                    conduit.poll();
                }
                turn.pass(0, &back);
            }
            conduit.finish();
            Some(())
        });
        let (conduit, seen) = attached(0, all, first, doing)?;
        let base = conduit.segment(1).addr + MARGIN;
        let own = usize::try_from(MARGIN).ok()?;
        let mut got = [0; 8];
        for i in 0..times {
            let mut started = Handle::DONE;
            match doing {
                Doing::Nothing => {}
                Doing::Request => conduit.am_request_short(1, REQUEST, &[]).ok()?,
                Doing::PutInSegment | Doing::PutHeld => {
                    let data = i.to_ne_bytes();
                    started = conduit.put_nb(1, base + page(i) * PAGE, &data).ok()?;
                }
                Doing::GetInSegment | Doing::GetHeld => {
                    let there = base + page(i) * PAGE;
                    started = conduit.get_to_segment_nb(own, 1, there, GOT).ok()?;
                }
                Doing::PutAlone => {
                    conduit
                        .put(1, base + page(i) * PAGE, &i.to_ne_bytes())
                        .ok()?;
                }
                Doing::GetAlone => {
                    conduit.get(&mut got, 1, base + page(i) * PAGE).ok()?;
                }
            }
            if doing.is_alone() {
                continue;
            }
            turn.pass(1, partner.thread());
            turn.wait(0);
            match doing {
                Doing::Nothing => {}
                Doing::Request => conduit.poll(),
                _ => conduit.wait(started),
            }
        }
        let done = all_done(&conduit, doing, times, seen.get());
        turn.pass(END, partner.thread());
        conduit.finish();
        partner.join().ok()??;
        Some(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_is_a_round_trip() {
        for over in [Over::Process, Over::Memory] {
            assert_eq!(
                round_trips(over, Doing::Request, 500),
                Some(500),
                "{over:?}"
            );
            assert_eq!(round_trips(over, Doing::Nothing, 10), Some(0), "{over:?}");
        }
        for doing in [
            Doing::PutInSegment,
            Doing::PutHeld,
            Doing::GetInSegment,
            Doing::GetHeld,
        ] {
            assert_eq!(round_trips(Over::Process, doing, 500), Some(500));
        }
        for doing in [Doing::PutAlone, Doing::GetAlone] {
            assert_eq!(round_trips(Over::Memory, doing, 500), Some(500));
            assert_eq!(round_trips(Over::Process, doing, 500), None);
        }
    }
}
