//! Measurements of the Portals interface itself, between ranks 0 and 1; other ranks only keep the barriers.

mod bandwidth;
mod depth;
mod endpoint;
mod latency;

use portals_shim::ClockKind;
use portals_shim::fabric::Opened;

use super::error::BenchError;
use super::name::Name;
use super::record::Measured;
use endpoint::Endpoint;

/// How often an operation is repeated before its durations count.
const WARM_UP: u64 = 2;

/// The interface of one rank, ready to measure.
#[derive(Debug)]
pub(crate) struct Rank {
    endpoint: Endpoint,
}

impl Rank {
    /// Prepares an open interface; `rank` is this process's place in `opened.peers`.
    pub(crate) fn new(opened: &Opened, rank: usize) -> Result<Self, BenchError> {
        if opened.peers.len() < 2 {
            return Err(BenchError::TooFewRanks(opened.peers.len()));
        }
        Ok(Self {
            endpoint: Endpoint::new(opened, rank)?,
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
        iters: Option<u64>,
    ) -> Result<Measured, BenchError> {
        let iters = iters.unwrap_or_else(|| default_iters(self.clock(), name, point));
        match name {
            Name::Pingpong => latency::pingpong(&mut self.endpoint, point, iters),
            Name::PutLatency => latency::put(&mut self.endpoint, point, iters),
            Name::GetLatency => latency::get(&mut self.endpoint, point, iters),
            Name::PutBandwidth | Name::PutRate => bandwidth::put(&mut self.endpoint, point, iters),
            Name::GetBandwidth => bandwidth::get(&mut self.endpoint, point, iters),
            Name::MatchDepth => depth::put_behind(&mut self.endpoint, point, iters),
        }
    }

    /// Closes the interface once all ranks are done.
    pub(crate) fn close(mut self) -> Result<(), BenchError> {
        self.endpoint.barrier()?;
        self.endpoint.close()
    }
}

/// Durations taken where the user gives no number: virtual time repeats itself, wall time does not.
fn default_iters(clock: ClockKind, name: Name, point: u64) -> u64 {
    let bytes = if name == Name::MatchDepth { 0 } else { point };
    match (clock, bytes) {
        (ClockKind::Virtual, 0..=4096) => 20,
        (ClockKind::Virtual, _) => 4,
        (ClockKind::Wall, 0..=65_536) => 1000,
        (ClockKind::Wall, _) => 100,
    }
}

#[cfg(test)]
mod tests;
