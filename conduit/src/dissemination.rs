//! The barrier algorithm: in round k each rank tells the one 2^k above it what it knows.
//!
//! After ceil(log2 n) rounds every rank has heard, directly or not, of every other. A rank sends
//! round k only when it entered the barrier and has heard rounds 0..k. A peer can be at most one
//! barrier ahead, so two sets of arrivals, told apart by a phase bit, are enough.
//!
//! A pure state machine: the owner sends what [`Dissemination::poll_send`] gives.

/// What a barrier is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarrierName {
    /// Matches the same number and anonymous ones.
    Named(i32),
    /// Matches every name.
    Anonymous,
    /// Matches nothing: the caller knows of a mismatch among its own parts.
    Mismatch,
}

impl BarrierName {
    /// What two ranks know together.
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            (Self::Anonymous, x) | (x, Self::Anonymous) => x,
            (Self::Named(a), Self::Named(b)) if a == b => self,
            _ => Self::Mismatch,
        }
    }

    /// Flags and id of a system message.
    pub(crate) fn encode(self) -> (u8, u32) {
        match self {
            Self::Named(id) => (0, id.cast_unsigned()),
            Self::Anonymous => (1, 0),
            Self::Mismatch => (2, 0),
        }
    }

    pub(crate) fn decode(flags: u8, id: u32) -> Option<Self> {
        match flags {
            0 => Some(Self::Named(id.cast_signed())),
            1 => Some(Self::Anonymous),
            2 => Some(Self::Mismatch),
            _ => None,
        }
    }
}

/// A message to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) to: u32,
    pub(crate) phase: u8,
    pub(crate) round: u8,
    pub(crate) name: BarrierName,
}

/// The distances 1, 2, 4 … below `nodes`.
pub(crate) fn distances(nodes: u32) -> impl Iterator<Item = u32> {
    (0..32).map(|k| 1u32 << k).take_while(move |d| *d < nodes)
}

#[derive(Debug)]
pub(crate) struct Dissemination {
    me: u32,
    nodes: u32,
    rounds: u8,
    phase: u8,
    /// In the barrier, with what was known on entry and since.
    entered: Option<BarrierName>,
    /// Rounds heard in order and merged.
    heard: u8,
    /// Rounds sent.
    sent: u8,
    arrivals: [[Option<BarrierName>; 32]; 2],
}

/// A message that no correct peer sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unexpected;

impl Dissemination {
    pub(crate) fn new(me: u32, nodes: u32) -> Self {
        Self {
            me,
            nodes,
            rounds: distances(nodes).count() as u8,
            phase: 0,
            entered: None,
            heard: 0,
            sent: 0,
            arrivals: [[None; 32]; 2],
        }
    }

    #[cfg(test)]
    fn is_entered(&self) -> bool {
        self.entered.is_some()
    }

    /// Enters; `false` when inside already.
    pub(crate) fn enter(&mut self, name: BarrierName) -> bool {
        if self.entered.is_some() {
            return false;
        }
        self.entered = Some(name);
        true
    }

    /// A peer's round arrived.
    pub(crate) fn handle(
        &mut self,
        phase: u8,
        round: u8,
        name: BarrierName,
    ) -> Result<(), Unexpected> {
        if phase > 1 || round >= self.rounds {
            return Err(Unexpected);
        }
        let slot = &mut self.arrivals[usize::from(phase)][usize::from(round)];
        if slot.is_some() {
            return Err(Unexpected);
        }
        *slot = Some(name);
        Ok(())
    }

    /// The next message to send, if one is due.
    pub(crate) fn poll_send(&mut self) -> Option<Round> {
        let known = self.entered.as_mut()?;
        while self.heard < self.sent
            && let Some(name) = self.arrivals[usize::from(self.phase)][usize::from(self.heard)]
        {
            *known = known.merge(name);
            self.heard += 1;
        }
        if self.sent >= self.rounds || self.sent > self.heard {
            return None;
        }
        let round = self.sent;
        self.sent += 1;
        let to = (u64::from(self.me) + (1u64 << round)) % u64::from(self.nodes);
        Some(Round {
            to: to as u32,
            phase: self.phase,
            round,
            name: *known,
        })
    }

    /// Everybody is here: leaves, and says what all know together. Everything due must have been
    /// sent.
    pub(crate) fn try_leave(&mut self) -> Option<BarrierName> {
        let known = self.entered?;
        if self.heard < self.rounds {
            return None;
        }
        self.arrivals[usize::from(self.phase)] = [None; 32];
        self.phase ^= 1;
        self.entered = None;
        self.heard = 0;
        self.sent = 0;
        Some(known)
    }
}

/// What the client said and heard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClientBarrier {
    /// Name given to the notify that waits for its wait.
    pub(crate) own: Option<BarrierName>,
    /// What the last complete barrier was called.
    pub(crate) last: Option<BarrierName>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use BarrierName::{Anonymous, Mismatch, Named};

    /// Runs one barrier after another with messages delivered in random order.
    fn run(nodes: u32, names: &[Vec<BarrierName>], seed: u64) -> Vec<Vec<BarrierName>> {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut ranks: Vec<_> = (0..nodes).map(|r| Dissemination::new(r, nodes)).collect();
        let mut done = vec![vec![]; nodes as usize];
        let mut wire: Vec<Round> = vec![];
        while done.iter().any(|d: &Vec<_>| d.len() < names.len()) {
            let r = rng.usize(0..nodes as usize);
            if !ranks[r].is_entered() && done[r].len() < names.len() {
                assert!(ranks[r].enter(names[done[r].len()][r]));
                assert!(!ranks[r].enter(Anonymous));
            }
            while let Some(round) = ranks[r].poll_send() {
                wire.push(round);
            }
            if let Some(name) = ranks[r].try_leave() {
                // Nobody leaves before everybody entered.
                let k = done[r].len();
                assert!(ranks.iter().enumerate().all(|(o, d)| o == r
                    || done[o].len() > k
                    || done[o].len() == k && d.is_entered()));
                done[r].push(name);
            }
            if !wire.is_empty() && rng.bool() {
                let m = wire.swap_remove(rng.usize(0..wire.len()));
                ranks[m.to as usize]
                    .handle(m.phase, m.round, m.name)
                    .unwrap();
            }
        }
        done
    }

    #[test]
    fn all_sizes_meet_and_agree() {
        for nodes in [1u32, 2, 3, 4, 5, 7, 8, 13, 16] {
            let named: Vec<_> = (0..6).map(|i| vec![Named(i); nodes as usize]).collect();
            for per_rank in run(nodes, &named, u64::from(nodes)) {
                assert_eq!(per_rank, (0..6).map(Named).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn one_different_name_is_seen_by_all() {
        for nodes in [2u32, 3, 6, 8] {
            for odd in 0..nodes as usize {
                let mut a = vec![Anonymous; nodes as usize];
                a[odd] = Named(4);
                let mut b = vec![Named(4); nodes as usize];
                b[odd] = Named(5);
                let mut c = vec![Anonymous; nodes as usize];
                c[odd] = Mismatch;
                for per_rank in run(nodes, &[a, b, c], 3) {
                    assert_eq!(per_rank, [Named(4), Mismatch, Mismatch]);
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut d = Dissemination::new(0, 4);
        assert_eq!(d.handle(2, 0, Anonymous), Err(Unexpected));
        assert_eq!(d.handle(0, 2, Anonymous), Err(Unexpected));
        assert_eq!(d.handle(0, 1, Anonymous), Ok(()));
        assert_eq!(d.handle(0, 1, Anonymous), Err(Unexpected));
        assert_eq!(BarrierName::decode(3, 0), None);
        let (flags, id) = Named(-5).encode();
        assert_eq!(BarrierName::decode(flags, id), Some(Named(-5)));
    }
}
