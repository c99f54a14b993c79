//! One rank of a measurement: the Portals interface, and the conduit where the plan has a use for it.

use std::sync::Arc;

use conduit::Conduit;
use portals_shim::ClockKind;
use portals_shim::fabric::Opened;
use portals_shim::job::Job;

use super::am::Handlers;
use super::error::BenchError;
use super::name::{Name, Unit};
use super::portals::{Endpoint, Software, bandwidth, depth, flood, latency};
use super::random::{Pinning, RandomPuts};
use super::samples::Measured;
use super::tags::Tags;
use super::threads::Threads;
use super::which::Which;

/// An open interface, ready to measure.
#[derive(Debug)]
pub(crate) struct Rank {
    endpoint: Endpoint,
    opened: Opened,
    /// Opened by the first measurement of tagged messages.
    tags: Option<Tags>,
    /// Shared with the conduit where that is measured, which leaves it.
    job: Arc<Job>,
    holder: Holder,
}

#[derive(Debug)]
enum Holder {
    Conduit(Box<Conduit>, Handlers),
    Threads(Box<Threads>),
    Random(Box<RandomPuts>),
    None,
}

/// What of a rank is measured beside the Portals interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Above {
    /// Nothing.
    None,
    /// The conduit, with a segment of so many bytes.
    Conduit(usize),
    /// The conduit, shared by threads.
    Threads,
    /// The conduit, with so many bytes of memory pinned in this way.
    Pinned(Pinning, usize),
}

impl Rank {
    /// Prepares an open interface. Collective.
    pub(crate) fn new(
        job: Job,
        opened: &Opened,
        above: Above,
        software: Software,
    ) -> Result<Self, BenchError> {
        let place =
            usize::try_from(job.rank()).map_err(|_| BenchError::TooLarge(job.rank().into()))?;
        let mut endpoint = Endpoint::new(opened, place)?;
        endpoint.set_software(software);
        let job = Arc::new(job);
        endpoint.outside(|| job.fence())??;
        let of_conduit = || Box::new(Arc::clone(&job));
        let holder = match above {
            Above::Conduit(segment) => {
                let conduit = Conduit::with(of_conduit(), opened.clone())?;
                let handlers = Handlers::attach(&conduit, segment)?;
                Holder::Conduit(Box::new(conduit), handlers)
            }
            Above::Threads => {
                let conduit = Conduit::with(of_conduit(), opened.clone())?;
                Holder::Threads(Box::new(Threads::attach(conduit)?))
            }
            Above::Pinned(pinning, bytes) => {
                let conduit = Conduit::with(of_conduit(), opened.clone())?;
                let puts = RandomPuts::attach(conduit, pinning, bytes)?;
                Holder::Random(Box::new(puts))
            }
            Above::None => Holder::None,
        };
        Ok(Self {
            endpoint,
            opened: opened.clone(),
            tags: None,
            job,
            holder,
        })
    }

    /// What the durations count.
    pub(crate) fn clock(&self) -> ClockKind {
        self.endpoint.clock()
    }

    /// Measures `name` at `point`; all ranks must call it alike. Rank 0 gets the durations, the others
    /// an empty result.
    pub(crate) fn measure(
        &mut self,
        name: Name,
        point: u64,
        conduit: Which,
        iters: Option<u64>,
    ) -> Result<Measured, BenchError> {
        let iters = iters.unwrap_or_else(|| default_iters(self.clock(), name, point));
        if name.is_of_tags() || conduit == Which::Mpi {
            let tags = match &mut self.tags {
                Some(tags) => tags,
                none => none.insert(Tags::open(&self.opened, &mut self.endpoint, &self.job)?),
            };
            return match conduit {
                Which::Mpi => tags.as_conduit(&mut self.endpoint, name, point, iters),
                Which::Portals => tags.measure(&mut self.endpoint, name, point, iters),
            };
        }
        match (name, &self.holder) {
            (name, Holder::Conduit(conduit, handlers)) if name.is_of_conduit() => {
                handlers.measure(conduit, name, point, iters)
            }
            (Name::AmThreads, Holder::Threads(threads)) => threads.measure(point, iters),
            (Name::RandomPut, Holder::Random(puts)) => puts.measure(point, iters),
            _ => measure_portals(&mut self.endpoint, name, point, iters),
        }
    }

    /// Closes the interface and leaves the job, once all ranks are done.
    pub(crate) fn close(mut self) -> Result<(), BenchError> {
        self.endpoint.barrier()?;
        match self.holder {
            Holder::Conduit(conduit, _) => conduit.finish(),
            Holder::Threads(threads) => threads.finish(),
            Holder::Random(puts) => puts.finish(),
            Holder::None => {
                self.endpoint.close()?;
                self.job.finalize()?;
            }
        }
        Ok(())
    }
}

/// Measures `plan` on one of the ranks, which are threads. Rank 0 gets the payload and the median of each, bytes and
/// the unit of the measurement; `meet` waits for the other ranks.
pub(crate) fn measure_on(
    opened: &Opened,
    rank: usize,
    software: Software,
    plan: &[(Name, u64)],
    meet: impl FnOnce(),
) -> Result<Vec<(u64, f64)>, BenchError> {
    let mut endpoint = Endpoint::new(opened, rank)?;
    endpoint.set_software(software);
    endpoint.outside(meet)?;
    let mut medians = Vec::new();
    for &(name, point) in plan {
        // Virtual time repeats itself but for what comes up now and then, such as a look for room in an
        // event queue; the median leaves that out. Rates also vary with the message at which an interrupt comes.
        let iters = match name.unit() {
            Unit::Microseconds => 2,
            _ => default_iters(ClockKind::Virtual, name, point),
        };
        let measured = measure_portals(&mut endpoint, name, point, iters)?;
        let covered = measured.bytes.saturating_mul(measured.operations);
        let summary = measured
            .samples
            .summary(name.unit(), covered, measured.operations);
        medians.extend(summary.map(|s| (measured.bytes, s.median)));
    }
    endpoint.barrier()?;
    endpoint.close()?;
    Ok(medians)
}

/// Measures what needs the interface alone.
fn measure_portals(
    endpoint: &mut Endpoint,
    name: Name,
    point: u64,
    iters: u64,
) -> Result<Measured, BenchError> {
    match name {
        Name::Pingpong => latency::pingpong(endpoint, point, iters),
        Name::PutLatency => latency::put(endpoint, point, iters),
        Name::GetLatency => latency::get(endpoint, point, iters),
        Name::PutBandwidth | Name::PutRate => bandwidth::put(endpoint, point, iters),
        Name::MessageRate => flood::messages(endpoint, point, iters),
        Name::PutsInFlight => flood::in_flight(endpoint, point, iters),
        Name::GetBandwidth => bandwidth::get(endpoint, point, iters),
        Name::PutBidirectional => bandwidth::both(endpoint, point, iters),
        Name::MatchDepth => depth::put_behind(endpoint, point, iters),
        Name::AmShort
        | Name::AmMedium
        | Name::AmLong
        | Name::AmRate
        | Name::AmFlood
        | Name::AmThreads
        | Name::SegmentPut
        | Name::SegmentGet
        | Name::SegmentPutRate
        | Name::SegmentPutBandwidth
        | Name::Memcpy
        | Name::RandomPut
        | Name::Barrier => Err(BenchError::NoConduit),
        Name::TagPingpong | Name::TagPosted | Name::TagPingAck | Name::TagBandwidth => {
            Err(BenchError::NoTags)
        }
    }
}

/// Durations taken where the user gives no number: virtual time repeats itself, wall time does not.
fn default_iters(clock: ClockKind, name: Name, point: u64) -> u64 {
    if name == Name::RandomPut {
        return 8;
    }
    let bytes = match name {
        Name::MatchDepth | Name::TagPosted => 0,
        Name::PutsInFlight => flood::IN_FLIGHT,
        _ => point,
    };
    match (clock, bytes) {
        (ClockKind::Virtual, 0..=4096) => 10,
        (ClockKind::Virtual, _) => 2,
        (ClockKind::Wall, 0..=65_536) => 1000,
        (ClockKind::Wall, _) => 100,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portals_shim::fabric::in_process;
    use std::thread;

    /// Runs every Portals measurement on `ranks` threads and returns what rank 0 has.
    fn on_ranks(ranks: u32) -> Vec<(Name, u64, u64, u64)> {
        let body = |at: usize, opened: &Opened| {
            let mut endpoint = Endpoint::new(opened, at)?;
            let mut counts = Vec::new();
            for name in Name::ALL.into_iter().filter(|n| {
                !n.is_of_conduit() && !n.is_of_threads() && !n.is_of_tags() && !n.is_of_pinning()
            }) {
                for point in [0, 1, 8, 900] {
                    let measured = measure_portals(&mut endpoint, name, point, 3)?;
                    counts.push((name, point, measured.samples.len(), measured.bytes));
                }
            }
            endpoint.barrier()?;
            endpoint.close()?;
            Ok::<_, BenchError>(counts)
        };
        let threads: Vec<_> = (0..)
            .zip(in_process(ranks))
            .map(|(at, opened)| thread::spawn(move || body(at, &opened)))
            .collect();
        let results: Vec<_> = threads
            .into_iter()
            .map(|t| t.join().unwrap().unwrap())
            .collect();
        results.into_iter().next().unwrap()
    }

    #[test]
    fn every_measurement_of_portals_measures_on_two_and_three_ranks() {
        for ranks in [2, 3] {
            let counts = on_ranks(ranks);
            assert_eq!(counts.len(), 10 * 4);
            for (name, point, samples, bytes) in counts {
                assert_eq!(samples, 3, "{name} at {point}");
                let expected = match name {
                    Name::MatchDepth => 8,
                    Name::PutsInFlight => flood::IN_FLIGHT,
                    _ => point,
                };
                assert_eq!(bytes, expected, "{name}");
            }
        }
    }

    #[test]
    fn one_rank_is_too_few_and_no_conduit_measures_no_messages() {
        let opened = in_process(1).remove(0);
        assert!(matches!(
            Endpoint::new(&opened, 0),
            Err(BenchError::TooFewRanks(1))
        ));
        let opened = in_process(2).remove(0);
        let mut endpoint = Endpoint::new(&opened, 0).unwrap();
        let refused = measure_portals(&mut endpoint, Name::AmShort, 0, 1);
        assert!(matches!(refused, Err(BenchError::NoConduit)));
    }

    #[test]
    fn virtual_time_needs_few_repetitions() {
        let wall = default_iters(ClockKind::Wall, Name::PutLatency, 8);
        assert!(default_iters(ClockKind::Virtual, Name::PutLatency, 8) < wall);
        assert_eq!(
            default_iters(ClockKind::Wall, Name::MatchDepth, 1 << 20),
            wall
        );
    }
}
