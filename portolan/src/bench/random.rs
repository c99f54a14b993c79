//! Puts to random pages of a working set of rank 1, by three ways to have it pinned.

use conduit::{BarrierName, Conduit};

use super::error::BenchError;
use super::samples::{Measured, Samples, WARM_UP};

/// How the memory that is put to is pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Pinning {
    /// All of it, at the start
    Whole,
    /// Where it is used, and kept as far as there is room: by firehoses
    Firehose,
    /// For each put, and not kept: a request, its answer, and word that the put is over, a pin and an unpin
    Rendezvous,
}

impl Pinning {
    /// The word of the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Firehose => "firehose",
            Self::Rendezvous => "rendezvous",
        }
    }

    /// Variables of its job, as far as the environment does not have them. For a rendezvous there is room for pages whose
    /// word that they are free is still under way; of those that nobody uses the owner keeps four.
    pub(crate) fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Whole => &[],
            Self::Firehose => &[
                ("GASNET_FIREHOSE_M", "64M"),
                ("GASNET_FIREHOSE_MAXVICTIM_M", "16M"),
            ],
            Self::Rendezvous => &[
                ("GASNET_FIREHOSE_MAXREGION_SIZE", "4K"),
                ("GASNET_FIREHOSE_M", "64K"),
                ("GASNET_FIREHOSE_MAXVICTIM_M", "16K"),
            ],
        }
    }
}

const PAGE: u64 = 4096;
/// Bytes of a put.
const BYTES: usize = 8;
/// Puts of one duration.
const ROW: u64 = 64;
/// Puts before those that count, so that what can be held is held.
const BEFORE: u64 = 4096;

/// Random numbers, the same on every machine.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n.max(1)
    }
}

/// A conduit whose rank 1 has memory to put to.
#[derive(Debug)]
pub(super) struct RandomPuts {
    conduit: Conduit,
    pinning: Pinning,
}

impl RandomPuts {
    /// Attaches with a segment of `bytes`. Collective.
    pub(super) fn attach(
        conduit: Conduit,
        pinning: Pinning,
        bytes: usize,
    ) -> Result<Self, BenchError> {
        match pinning {
            Pinning::Whole => conduit.attach(Vec::new(), bytes)?,
            Pinning::Firehose | Pinning::Rendezvous => conduit.attach_large(Vec::new(), bytes)?,
        };
        Ok(Self { conduit, pinning })
    }

    /// Rows of blocking puts of rank 0 to pages of the first `set` bytes; all ranks must call it alike. Rank 0 gets the
    /// durations.
    pub(super) fn measure(&self, set: u64, iters: u64) -> Result<Measured, BenchError> {
        let conduit = &self.conduit;
        let mut samples = Samples::new();
        let mut found = None;
        conduit.barrier(BarrierName::Anonymous)?;
        if conduit.mynode() == 0 {
            let base = conduit.segment(1).addr;
            let pages = (set / PAGE).max(1);
            let mut numbers = Numbers(set);
            let mut row = |puts: u64| -> Result<(), BenchError> {
                for i in 0..puts {
                    let data = i.to_ne_bytes();
                    conduit.put(1, base + numbers.below(pages) * PAGE, &data[..BYTES])?;
                    if self.pinning == Pinning::Rendezvous {
                        conduit.let_go(1);
                    }
                }
                Ok(())
            };
            let pinned_later = conduit.firehose_stats().is_some();
            row(if pinned_later { BEFORE } else { WARM_UP * ROW })?;
            let before = conduit.firehose_stats().unwrap_or_default().remote;
            for _ in 0..iters {
                let start = conduit.now();
                row(ROW)?;
                samples.add(conduit.now() - start);
            }
            let after = conduit.firehose_stats().unwrap_or_default().remote;
            let (hits, misses) = (after.hits - before.hits, after.misses - before.misses);
            found = pinned_later.then(|| hits as f64 / (hits + misses).max(1) as f64);
        }
        conduit.barrier(BarrierName::Anonymous)?;
        Ok(Measured {
            samples,
            operations: ROW,
            bytes: BYTES as u64,
            found,
        })
    }

    pub(super) fn finish(self) {
        self.conduit.finish();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variables_make_sense_together() {
        for pinning in [Pinning::Whole, Pinning::Firehose, Pinning::Rendezvous] {
            let names: Vec<_> = pinning.variables().iter().map(|v| v.0).collect();
            assert!(names.iter().all(|n| n.starts_with("GASNET_FIREHOSE_")));
            assert_eq!(names.is_empty(), pinning == Pinning::Whole);
        }
    }
}
