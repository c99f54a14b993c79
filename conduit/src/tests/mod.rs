//! Ranks as threads over the in-process fabric, and over shared memory.

mod am;
mod barrier;
mod credits;
mod deferred;
mod elsewhere;
mod everything;
mod exit;
mod extended;
mod flow;
mod frames;
mod holes;
mod hostile;
mod limits;
mod local;
mod notices;
mod par;
mod paths;
mod rma;
mod trace;
mod unreachable;
mod wire;

use crate::threads::RankEnd;

/// The results of ranks that all returned.
fn returned<R: std::fmt::Debug>(ends: Vec<RankEnd<R>>) -> Vec<R> {
    ends.into_iter()
        .map(|end| match end {
            RankEnd::Returned(r) => r,
            other => panic!("a rank ended early: {other:?}"),
        })
        .collect()
}

/// Bytes that differ between messages and along each.
fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len)
        .map(|i| (seed.wrapping_mul(131) ^ i.wrapping_mul(7) ^ (i >> 8)) as u8)
        .collect()
}
