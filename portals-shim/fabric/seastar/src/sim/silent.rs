//! Ranks that run and make no call: they hold virtual time, and with it all others.

use super::{RankState, Sim};

impl Sim {
    /// Lets virtual time pass without the ranks that run, while others are in a call; returns which those are. From
    /// its next call on, made at the present, such a rank holds time again.
    pub(crate) fn go_on_without_silent(&mut self) -> Vec<usize> {
        let waits = |state: &RankState| {
            let elsewhere = matches!(
                state,
                RankState::Running
                    | RankState::Silent
                    | RankState::Outside
                    | RankState::Gone { .. }
            );
            !elsewhere
        };
        if !self.ranks.iter().any(|r| waits(&r.state)) {
            return Vec::new();
        }
        let mut silent = Vec::new();
        for (rank, r) in self.ranks.iter_mut().enumerate() {
            if matches!(r.state, RankState::Running) {
                r.state = RankState::Silent;
                self.running -= 1;
                silent.push(rank);
            }
        }
        silent
    }
}
