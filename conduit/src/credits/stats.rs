//! What a rank counts of its credits, and the text of the statistics file.

use super::{Credits, Mode};
use std::fmt;
use std::hash::{Hash, Hasher};

/// Since the start. Part of no decision, so all counts are equal to each other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Requests of ours that had to wait for credits.
    pub(crate) stalls: u64,
    /// Credits lent on top.
    pub(crate) granted: u64,
    /// Wishes that the bank could not meet.
    pub(crate) short: u64,
    /// Peers asked to give back.
    pub(crate) revokes: u64,
    /// Credits that came back for it.
    pub(crate) recovered: u64,
    /// Credits given back to lenders.
    pub(crate) returned: u64,
    /// Epochs ended.
    pub(crate) epochs: u64,
}

impl PartialEq for Counts {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Counts {}

impl Hash for Counts {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Credits {
    /// What happened since the start.
    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// The statistics file: a heading, then a line for each peer.
    pub(crate) fn report(&self) -> impl fmt::Display + '_ {
        Report(self)
    }
}

struct Report<'a>(&'a Credits);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = self.0;
        let mode = match c.mode {
            Mode::Off => "off",
            Mode::Static => "static",
            Mode::Dynamic => "dynamic",
        };
        let lent: u64 = c.peers.iter().map(|p| u64::from(p.loan)).sum();
        writeln!(f, "# credits of rank {} of {}: {mode}", c.me, c.peers.len())?;
        writeln!(f, "# bank {} lent {lent} total {}", c.bank, c.bank + lent)?;
        let n = &c.counts;
        writeln!(
            f,
            "# stalls {} granted {} short {} revokes {} recovered {} returned {} epochs {}",
            n.stalls, n.granted, n.short, n.revokes, n.recovered, n.returned, n.epochs
        )?;
        writeln!(f, "# peer loan given send in-use max stalls revoked")?;
        for (rank, p) in c.peers.iter().enumerate() {
            if rank as u32 == c.me {
                continue;
            }
            writeln!(
                f,
                "{rank} {} {} {} {} {} {} {}",
                p.loan, p.given, p.send, p.in_use, p.max, p.stalls, p.revoked
            )?;
        }
        Ok(())
    }
}
