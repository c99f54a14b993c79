//! Measurements of the conduit: active messages between ranks 0 and 1, and the barrier of all ranks.
//!
//! A rank that does not measure waits in the barrier at the end; messages are handled there.

use std::cell::Cell;
use std::hint::black_box;
use std::rc::Rc;

use conduit::{BarrierName, ClockKind, Conduit, Handle, HandlerEntry, Payload, RmaError};

use super::error::BenchError;
use super::name::Name;
use super::samples::{self, Measured, Samples, WARM_UP};

/// Handler of requests: counts one and replies.
const REQUEST: u8 = 200;
/// Handler of replies: counts one.
const REPLY: u8 = 201;
/// Handler of requests that are not answered.
const SILENT: u8 = 202;
/// Messages of one window of `am-rate`, puts of one of `segment-put-rate`.
const WINDOW: u64 = 64;
/// Puts of one window of `segment-put-bandwidth`.
pub(super) const PUT_WINDOW: u64 = 16;

/// Barriers of one duration.
const ROW: u64 = 16;
/// Messages of one duration of `am-flood`.
const FLOOD: u64 = 1024;
/// Bytes that the copies of one duration have together, at least: looking at the clock must not count.
const COPIED: u64 = 1 << 18;
/// The most copies of one duration.
const COPIES: u64 = 1024;

/// Times of one operation that say whether it is timed alone.
const TRIES: u64 = 8;
/// Readings of the clock that it takes then, at least.
const READINGS: u64 = 50;

/// Puts, gets or copies of `bytes` of one duration.
fn row(bytes: u64) -> u64 {
    (COPIED / bytes.max(1)).clamp(1, COPIES)
}
/// Every byte of every payload.
pub(super) const FILL: u8 = 0xa5;

/// What handlers and measurements share.
#[derive(Debug, Default)]
struct Seen {
    /// Replies that have run here.
    replies: Cell<u64>,
    /// Payload that the next request must have, bytes.
    expected: Cell<usize>,
    /// Some request had another payload, or a reply was refused.
    wrong: Cell<bool>,
}

/// The conduit's attached end of one rank.
#[derive(Debug)]
pub(crate) struct Handlers {
    seen: Rc<Seen>,
}

impl Handlers {
    /// Attaches `conduit` with a segment of `segment` bytes. Collective.
    pub(crate) fn attach(conduit: &Conduit, segment: usize) -> Result<Self, BenchError> {
        let seen = Rc::new(Seen::default());
        let (for_requests, for_replies) = (seen.clone(), seen.clone());
        let request = HandlerEntry::new(REQUEST, move |token, payload, _| {
            let seen = &for_requests;
            let good = match &payload {
                Payload::None => true,
                Payload::Medium(bytes) => {
                    // The ends are looked at, not every byte: the handler's time is measured too.
                    let ends = bytes.first().into_iter().chain(bytes.last());
                    bytes.len() == seen.expected.get() && ends.into_iter().all(|b| *b == FILL)
                }
                Payload::Long { len, .. } => *len == seen.expected.get(),
            };
            if !good || token.reply_short(REPLY, &[]).is_err() {
                seen.wrong.set(true);
            }
        });
        let reply = HandlerEntry::new(REPLY, move |_, _, _| {
            for_replies.replies.set(for_replies.replies.get() + 1)
        });
        let silent = HandlerEntry::new(SILENT, |_, _, _| {});
        conduit.attach(vec![request, reply, silent], segment)?;
        Ok(Self { seen })
    }

    /// Measures `name`, which is one of the conduit's, with payloads of `bytes`; all ranks must call it
    /// alike. Rank 0 gets the durations.
    pub(super) fn measure(
        &self,
        conduit: &Conduit,
        name: Name,
        bytes: u64,
        iters: u64,
    ) -> Result<Measured, BenchError> {
        let len = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
        self.seen.expected.set(len);
        if let Some(segment) = conduit.local_segment() {
            let what = if name == Name::SegmentGet { FILL } else { 0 };
            segment.fill(0, len, what)?;
        }
        conduit.barrier(BarrierName::Anonymous)?;
        let (samples, operations) = match name {
            Name::Barrier => (barriers(conduit, iters)?, ROW),
            Name::AmRate => (self.windows(conduit, iters)?, WINDOW),
            Name::AmFlood => (self.floods(conduit, iters)?, FLOOD),
            Name::SegmentPutRate => {
                let payload = vec![FILL; len];
                let put = |dest| conduit.put_nb(1, dest, black_box(&payload));
                (windows_of(conduit, put, WINDOW, iters)?, WINDOW)
            }
            Name::SegmentPutBandwidth => {
                if let (0, Some(segment)) = (conduit.mynode(), conduit.local_segment()) {
                    segment.fill(0, len, FILL)?;
                }
                let put = |dest| conduit.put_from_segment_nb(1, dest, 0, len);
                (windows_of(conduit, put, PUT_WINDOW, iters)?, PUT_WINDOW)
            }
            Name::SegmentPut => {
                let (dest, payload) = (conduit.segment(1).addr, vec![FILL; len]);
                let put = || Ok(conduit.put(1, dest, black_box(&payload))?);
                rows_of(conduit, bytes, iters, put)?
            }
            Name::SegmentGet => {
                let (from, mut own) = (conduit.segment(1).addr, vec![0; len]);
                let get = || Ok(conduit.get(black_box(&mut own), 1, from)?);
                let rows = rows_of(conduit, bytes, iters, get)?;
                if conduit.mynode() == 0 && own.iter().any(|b| *b != FILL) {
                    return Err(BenchError::Payload);
                }
                rows
            }
            Name::Memcpy => {
                let (payload, mut own) = (vec![FILL; len], vec![0; len]);
                let copy = || {
                    black_box(&mut own).copy_from_slice(black_box(&payload));
                    Ok(())
                };
                rows_of(conduit, bytes, iters, copy)?
            }
            _ => (self.round_trips(conduit, name, &vec![FILL; len], iters)?, 1),
        };
        conduit.barrier(BarrierName::Anonymous)?;
        let lands = matches!(
            name,
            Name::AmLong | Name::SegmentPut | Name::SegmentPutRate | Name::SegmentPutBandwidth
        );
        if self.seen.wrong.get() || (lands && !self.arrived(conduit, len)?) {
            return Err(BenchError::Payload);
        }
        Ok(Measured {
            samples,
            operations,
            bytes,
            found: None,
        })
    }

    /// Requests of `name`, each until its reply has run.
    fn round_trips(
        &self,
        conduit: &Conduit,
        name: Name,
        payload: &[u8],
        iters: u64,
    ) -> Result<Samples, BenchError> {
        let mut samples = Samples::new();
        if conduit.mynode() != 0 {
            return Ok(samples);
        }
        let dest = conduit.segment(1).addr;
        let reading = reading_of(conduit);
        for i in 0..WARM_UP + iters {
            let start = conduit.now();
            let replies = self.seen.replies.get();
            match name {
                Name::AmMedium => conduit.am_request_medium(1, REQUEST, payload, &[])?,
                Name::AmLong => conduit.am_request_long(1, REQUEST, payload, dest, &[])?,
                _ => conduit.am_request_short(1, REQUEST, &[])?,
            }
            conduit.block_until(|| self.seen.replies.get() > replies);
            if i >= WARM_UP {
                samples.add((conduit.now() - start).saturating_sub(reading));
            }
        }
        Ok(samples)
    }

    /// Windows of Shorts, each until all replies have run.
    fn windows(&self, conduit: &Conduit, iters: u64) -> Result<Samples, BenchError> {
        let mut samples = Samples::new();
        if conduit.mynode() != 0 {
            return Ok(samples);
        }
        let reading = reading_of(conduit);
        for i in 0..WARM_UP + iters {
            let start = conduit.now();
            let all = self.seen.replies.get() + WINDOW;
            for _ in 0..WINDOW {
                conduit.am_request_short(1, REQUEST, &[])?;
            }
            conduit.block_until(|| self.seen.replies.get() >= all);
            if i >= WARM_UP {
                samples.add((conduit.now() - start).saturating_sub(reading));
            }
        }
        Ok(samples)
    }

    /// Rows of Shorts that nobody answers, but for the last. Messages of a pair arrive in order, so that its reply
    /// says that all were handled.
    fn floods(&self, conduit: &Conduit, iters: u64) -> Result<Samples, BenchError> {
        let mut samples = Samples::new();
        if conduit.mynode() != 0 {
            return Ok(samples);
        }
        for i in 0..WARM_UP + iters {
            let start = conduit.now();
            let replies = self.seen.replies.get();
            for _ in 1..FLOOD {
                conduit.am_request_short(1, SILENT, &[])?;
            }
            conduit.am_request_short(1, REQUEST, &[])?;
            conduit.block_until(|| self.seen.replies.get() > replies);
            if i >= WARM_UP {
                samples.add(conduit.now() - start);
            }
        }
        Ok(samples)
    }

    /// Whether rank 1 holds the payload of the Longs.
    fn arrived(&self, conduit: &Conduit, len: usize) -> Result<bool, BenchError> {
        let (1, Some(segment)) = (conduit.mynode(), conduit.local_segment()) else {
            return Ok(true);
        };
        let mut bytes = vec![0; len];
        segment.read(0, &mut bytes)?;
        Ok(bytes.iter().all(|b| *b == FILL))
    }
}

/// Durations of `operation`, by rank 0, and how many of it are in one: a row, unless one alone takes so long that reading the
/// clock does not count.
fn rows_of(
    conduit: &Conduit,
    bytes: u64,
    iters: u64,
    mut operation: impl FnMut() -> Result<(), BenchError>,
) -> Result<(Samples, u64), BenchError> {
    let mut samples = Samples::new();
    if conduit.mynode() != 0 {
        return Ok((samples, 1));
    }
    let reading = reading_of(conduit);
    let mut row = row(bytes);
    if conduit.clock() == ClockKind::Wall {
        let mut shortest = u64::MAX;
        for _ in 0..WARM_UP + TRIES {
            let start = conduit.now();
            operation()?;
            shortest = shortest.min(conduit.now() - start);
        }
        if shortest >= READINGS * reading.max(1) {
            row = 1;
        }
    }
    for i in 0..WARM_UP + iters {
        let start = conduit.now();
        for _ in 0..row {
            operation()?;
        }
        if i >= WARM_UP {
            samples.add((conduit.now() - start).saturating_sub(reading));
        }
    }
    Ok((samples, row))
}

/// Windows of puts into the segment of rank 1, each until all are complete, by rank 0. `put` starts one to an address.
fn windows_of(
    conduit: &Conduit,
    put: impl Fn(u64) -> Result<Handle, RmaError>,
    window: u64,
    iters: u64,
) -> Result<Samples, BenchError> {
    let mut samples = Samples::new();
    if conduit.mynode() != 0 {
        return Ok(samples);
    }
    let dest = conduit.segment(1).addr;
    let reading = reading_of(conduit);
    let mut handles = Vec::with_capacity(window as usize);
    for i in 0..WARM_UP + iters {
        let start = conduit.now();
        for _ in 0..window {
            handles.push(put(dest)?);
        }
        handles.drain(..).for_each(|h| conduit.wait(h));
        if i >= WARM_UP {
            samples.add((conduit.now() - start).saturating_sub(reading));
        }
    }
    Ok(samples)
}

/// Rows of barriers of all ranks, timed by rank 0. A single one may be short where rank 0 is the last to
/// come and long where it is the first; in a row the others' times are in it.
fn barriers(conduit: &Conduit, iters: u64) -> Result<Samples, BenchError> {
    let mut samples = Samples::new();
    let reading = reading_of(conduit);
    for i in 0..WARM_UP + iters {
        let start = conduit.now();
        for _ in 0..ROW {
            conduit.barrier(BarrierName::Anonymous)?;
        }
        if i >= WARM_UP && conduit.mynode() == 0 {
            samples.add((conduit.now() - start).saturating_sub(reading));
        }
    }
    Ok(samples)
}

/// What reading the clock takes, nanoseconds; nothing where time is virtual.
fn reading_of(conduit: &Conduit) -> u64 {
    match conduit.clock() {
        ClockKind::Wall => samples::reading(|| conduit.now()),
        ClockKind::Virtual => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conduit::threads::{self, RankEnd};
    use std::sync::Mutex;

    #[test]
    fn every_measurement_of_the_conduit_measures() {
        for ranks in [2, 3] {
            // Kept outside, because a rank may hear that another leaves before it has returned.
            let results = Mutex::new(Vec::new());
            let ends = threads::run(ranks, |conduit| {
                let handlers = Handlers::attach(conduit, 8192).unwrap();
                let names = Name::ALL.into_iter().filter(|n| n.is_of_conduit());
                let points = names.flat_map(|n| [0, 8, 900].map(|bytes| (n, bytes)));
                let measure = |(name, bytes)| handlers.measure(conduit, name, bytes, 3).unwrap();
                let counts: Vec<_> = points.map(measure).map(|m| m.samples.len()).collect();
                results.lock().unwrap().push((conduit.mynode(), counts));
            });
            let good =
                |end: &RankEnd<()>| matches!(end, RankEnd::Returned(()) | RankEnd::Exited(0));
            assert!(ends.iter().all(good), "{ends:?}");
            let mut results = results.into_inner().unwrap();
            results.sort();
            for (rank, (node, counts)) in (0..ranks).zip(&results) {
                assert_eq!((*node, counts.len()), (rank, 33));
                let samples = if rank == 0 { 3 } else { 0 };
                assert!(
                    counts.iter().all(|c| *c == samples),
                    "rank {rank}: {counts:?}"
                );
            }
        }
    }
}
