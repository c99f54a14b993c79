//! What a scenario is: its body, and what the fabrics that serve messages alone do in it.

use super::rank::Rank;

/// One scenario.
pub(super) struct Case {
    /// What is true, in words.
    pub(super) name: &'static str,
    /// Scenarios (`docs/src/scenarios.md`) and rules (`docs/src/mechanisms`).
    pub(super) covers: &'static str,
    pub(super) ranks: u32,
    /// The body closes an interface, so that the ranks cannot meet afterwards.
    pub(super) closes: bool,
    pub(super) one_sided: OneSided,
    pub(super) body: fn(&Rank),
}

/// What adapters do in a case without the target's library, on fabrics where they can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OneSided {
    /// They serve at least so many messages; 0: the case is about messages that they must not serve.
    Serves(u64),
    /// None, because of this.
    No(&'static str),
}

/// Most cases look at both sides.
pub(super) const WATCHED: &str =
    "the target's events are looked at, and a descriptor with a queue is not advertised";
/// Cases of one process, and of what its queues do.
pub(super) const LOCAL: &str = "the path of a message makes no difference";
/// Getputs.
pub(super) const EXCHANGE: &str = "an exchange needs the target's library";
/// Descriptors that count, move their offset, or say what they took.
pub(super) const COUNTS: &str =
    "the target counts or places what it accepts, which needs its library";

/// A case of two ranks.
pub(super) const fn case(name: &'static str, covers: &'static str, body: fn(&Rank)) -> Case {
    Case {
        name,
        covers,
        ranks: 2,
        closes: false,
        one_sided: OneSided::No(WATCHED),
        body,
    }
}

impl Case {
    pub(super) const fn ranks(self, ranks: u32) -> Self {
        Self { ranks, ..self }
    }

    /// Adapters serve at least so many of its messages.
    pub(super) const fn served(self, least: u64) -> Self {
        Self {
            one_sided: OneSided::Serves(least),
            ..self
        }
    }

    pub(super) const fn not_served(self, why: &'static str) -> Self {
        Self {
            one_sided: OneSided::No(why),
            ..self
        }
    }

    pub(super) const fn closes(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }
}
