//! Which peers are worth a connection, and how a pair moves from datagrams to one: no I/O, no clock.
//!
//! ```text
//!   asks                                        is asked
//!   OFFER ────────────────────────────────────▶ room for a connection?
//!     (requests go on by datagrams)  ◀───────── AGREE: its last request by datagrams came before this
//!   LAST: so did its own ─────────────────────▶ all requests of both have had their effect
//!                                    ◀───────── DONE: and all answers came before this
//!   connects, sends what waited                 sends what waited once DONE has arrived
//! ```
//!
//! All words travel in the stream of reliable datagrams of the pair, which keeps the order, so each says something of
//! whatever was sent before it. DECLINE instead of AGREE leaves the pair on datagrams. When two offer at the same time,
//! the offer of the lower rank counts.
//!
//! # Invariants
//!
//! * **Order.** A side sends requests by datagrams before its AGREE or LAST, then none until it is in
//!   [`State::Connected`]; answers go the way their request came. It gets there when the peer's whole stream has arrived,
//!   and the peer has had all of its own. So nothing on the connection comes before what went by datagrams.
//! * **The budget.** From its OFFER or AGREE on a side has a connection of its own budget for the peer, until the
//!   peer declines or is gone. One whose budget is used up offers nothing and declines.
//! * **Nobody waits in silence.** A side whose requests wait for a word of the peer repeats its own, which tells it
//!   whether the peer is still there, and changes nothing.
//! * A word that cannot be meant changes nothing and is counted.

/// Nanoseconds from an origin of the user's choice; must not run backwards.
pub(super) type Time = u64;

/// When a peer is chatty, and how many connections there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rules {
    /// Requests within a window that make a peer chatty; a long message does alone.
    pub(super) chatty: u32,
    pub(super) window: Time,
    /// Connections that there may be.
    pub(super) budget: u32,
    /// After which a side that waits repeats its word.
    pub(super) repeat: Time,
}

/// What two sides say to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Word {
    Offer,
    Agree,
    Decline,
    Last,
    Done,
}

impl Word {
    const ALL: [Self; 5] = [
        Self::Offer,
        Self::Agree,
        Self::Decline,
        Self::Last,
        Self::Done,
    ];

    pub(super) fn code(self) -> u8 {
        self as u8
    }

    /// `None` for a word that this version does not know.
    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

/// How far a pair is, seen from one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// Everything goes by datagrams.
    #[default]
    Datagrams,
    /// Has said OFFER; goes on by datagrams.
    Offered,
    /// Has said AGREE; its requests wait for LAST.
    Agreed,
    /// Has said LAST; its requests wait for DONE.
    Leaving,
    /// Has said DONE; its requests wait until that has arrived.
    Finishing,
    /// Everything goes over the connection.
    Connected,
    /// The peer is gone.
    Gone,
}

/// Which way a request goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Datagrams,
    /// It waits for the end of a move.
    Waits,
    Connection,
}

/// What the owner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Todo {
    Nothing,
    /// Say this; when a DONE has arrived, call [`Moves::arrived`].
    Say(Word),
    /// Get a connection ready for the peer, if that can be done, and call [`Moves::answer`].
    Prepare,
    /// The connection that was got ready is not needed.
    Discard,
    /// Connect, and send what waited.
    Connect,
}

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Counts {
    /// Peers that are talked to over a connection.
    pub(super) connected: u32,
    /// Peers that were given up or have closed.
    pub(super) gone: u64,
    /// Pairs that have moved to a connection.
    pub(super) moved: u64,
    /// Chatty peers that stayed on datagrams: this side had no connection left, or the peer declined.
    pub(super) stayed: u64,
    /// Offers of peers that were declined.
    pub(super) declined: u64,
    /// Words that cannot be meant.
    pub(super) odd: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Peer {
    state: State,
    /// The peer has declined: it is not asked again.
    declined: bool,
    /// Counted as one that stays.
    stays: bool,
    /// Among [`Moves::wanted`].
    wanted: bool,
    /// Requests since `since`.
    count: u32,
    /// When the window began; of one that waits, when it repeats its word.
    since: Time,
}

/// All peers of a rank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Moves {
    own: usize,
    rules: Rules,
    /// By rank.
    peers: Vec<Peer>,
    /// Connections that there are, or are meant to be.
    used: u32,
    /// Ranks that have become chatty.
    wanted: Vec<usize>,
    /// Ranks whose word is waited for while requests wait.
    waiting: Vec<usize>,
    counts: Counts,
    closed: bool,
}

impl Moves {
    /// Those of rank `own` in a job of `size`.
    pub(super) fn new(own: usize, size: usize, rules: Rules) -> Self {
        Self {
            own,
            rules,
            peers: vec![Peer::default(); size],
            used: 0,
            wanted: Vec::new(),
            waiting: Vec::new(),
            counts: Counts::default(),
            closed: false,
        }
    }

    pub(super) fn counts(&self) -> Counts {
        self.counts
    }

    /// A peer has said what is no word.
    pub(super) fn odd(&mut self) {
        self.counts.odd += 1;
    }

    pub(super) fn state(&self, rank: usize) -> State {
        self.peers.get(rank).map_or(State::Gone, |p| p.state)
    }

    /// Which way a request to a peer goes. To one that is gone it goes by datagrams, which refuse it.
    #[inline]
    pub(super) fn way(&self, rank: usize) -> Way {
        match self.state(rank) {
            State::Connected => Way::Connection,
            State::Agreed | State::Leaving | State::Finishing => Way::Waits,
            State::Datagrams | State::Offered | State::Gone => Way::Datagrams,
        }
    }

    /// A request goes by datagrams; the peer may be wanted then ([`Moves::next_wanted`]).
    pub(super) fn count(&mut self, rank: usize, now: Time, long: bool) {
        let rules = self.rules;
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        if peer.state != State::Datagrams || peer.declined || peer.wanted || rank == self.own {
            return;
        }
        if now.saturating_sub(peer.since) > rules.window {
            (peer.since, peer.count) = (now, 0);
        }
        peer.count = peer.count.saturating_add(1);
        if peer.count >= rules.chatty || long {
            peer.wanted = true;
            self.wanted.push(rank);
        }
    }

    /// Whether [`Moves::next_wanted`] has anything to look at.
    #[inline]
    pub(super) fn has_wanted(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// A chatty peer that there is a connection left for: get it ready, if that can be done, and call [`Moves::offer`].
    pub(super) fn next_wanted(&mut self) -> Option<usize> {
        while let Some(rank) = self.wanted.pop() {
            let Some(peer) = self.peers.get_mut(rank) else {
                continue;
            };
            peer.wanted = false;
            if peer.state != State::Datagrams || self.closed {
                continue;
            }
            if self.used < self.rules.budget {
                return Some(rank);
            }
            self.stay(rank);
        }
        None
    }

    fn stay(&mut self, rank: usize) {
        if let Some(peer) = self.peers.get_mut(rank)
            && !std::mem::replace(&mut peer.stays, true)
        {
            self.counts.stayed += 1;
        }
    }

    /// Whether a connection for a chatty peer is `ready`; what to say to it.
    pub(super) fn offer(&mut self, rank: usize, ready: bool) -> Option<Word> {
        if !ready {
            // What the device could not do it will hardly be able to do with the next message.
            if let Some(peer) = self.peers.get_mut(rank) {
                peer.declined = true;
            }
            self.stay(rank);
            return None;
        }
        if self.state(rank) != State::Datagrams {
            return None;
        }
        self.used += 1;
        self.enter(rank, State::Offered, 0);
        Some(Word::Offer)
    }

    fn enter(&mut self, rank: usize, state: State, now: Time) {
        let repeat = self.rules.repeat;
        let Some(peer) = self.peers.get_mut(rank) else {
            return;
        };
        if peer.state == State::Connected {
            self.counts.connected -= 1;
        }
        if state == State::Connected {
            self.counts.connected += 1;
            self.counts.moved += 1;
        }
        peer.state = state;
        self.waiting.retain(|r| *r != rank);
        if matches!(state, State::Agreed | State::Leaving) {
            peer.since = now.saturating_add(repeat);
            self.waiting.push(rank);
        }
    }

    /// A peer has said a word.
    pub(super) fn handle(&mut self, rank: usize, word: Word, now: Time) -> Todo {
        match (word, self.state(rank)) {
            (Word::Offer, State::Datagrams) if self.closed || self.used >= self.rules.budget => {
                self.counts.declined += 1;
                Todo::Say(Word::Decline)
            }
            (Word::Offer, State::Datagrams) => Todo::Prepare,
            // Both have offered.
            (Word::Offer, State::Offered) if self.own < rank => Todo::Nothing,
            (Word::Offer, State::Offered) => {
                self.enter(rank, State::Agreed, now);
                Todo::Say(Word::Agree)
            }
            (Word::Agree, State::Offered) => {
                self.enter(rank, State::Leaving, now);
                Todo::Say(Word::Last)
            }
            (Word::Decline, State::Offered) => {
                self.used -= 1;
                self.enter(rank, State::Datagrams, now);
                if let Some(peer) = self.peers.get_mut(rank) {
                    peer.declined = true;
                }
                self.stay(rank);
                Todo::Discard
            }
            (Word::Last, State::Agreed) => {
                self.enter(rank, State::Finishing, now);
                Todo::Say(Word::Done)
            }
            (Word::Done, State::Leaving) => {
                self.enter(rank, State::Connected, now);
                Todo::Connect
            }
            // Repeated.
            (Word::Agree, State::Leaving) | (Word::Last, State::Finishing | State::Connected) => {
                Todo::Nothing
            }
            // Of one that was given up; it will find out.
            (_, State::Gone) => Todo::Nothing,
            _ => {
                self.odd();
                Todo::Nothing
            }
        }
    }

    /// Whether a connection for a peer that has offered is `ready`; what to say to it.
    pub(super) fn answer(&mut self, rank: usize, ready: bool, now: Time) -> Option<Word> {
        if self.state(rank) != State::Datagrams {
            return None;
        }
        if !ready {
            self.counts.declined += 1;
            return Some(Word::Decline);
        }
        self.used += 1;
        self.enter(rank, State::Agreed, now);
        Some(Word::Agree)
    }

    /// DONE has arrived at a peer; whether what waited is to be sent.
    pub(super) fn arrived(&mut self, rank: usize) -> bool {
        let finishing = self.state(rank) == State::Finishing;
        if finishing {
            self.enter(rank, State::Connected, 0);
        }
        finishing
    }

    /// A peer is gone, by whichever way that was found out.
    pub(super) fn gone(&mut self, rank: usize) {
        match self.state(rank) {
            State::Gone => return,
            State::Datagrams => {}
            _ => self.used -= 1,
        }
        self.enter(rank, State::Gone, 0);
        self.counts.gone += 1;
    }

    /// No pair begins to move from here on.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// When [`Moves::handle_timeout`] has something to do.
    pub(super) fn next_timeout(&self) -> Option<Time> {
        let waiting = self.waiting.iter();
        waiting
            .filter_map(|rank| Some(self.peers.get(*rank)?.since))
            .min()
    }

    /// A word that is to be repeated, and to whom; asked until there is none.
    pub(super) fn handle_timeout(&mut self, now: Time) -> Option<(usize, Word)> {
        for rank in &self.waiting {
            let Some(peer) = self.peers.get_mut(*rank).filter(|p| p.since <= now) else {
                continue;
            };
            let word = match peer.state {
                State::Agreed => Word::Agree,
                State::Leaving => Word::Last,
                _ => continue,
            };
            peer.since = now.saturating_add(self.rules.repeat.max(1));
            return Some((*rank, word));
        }
        None
    }
}

#[cfg(test)]
mod tests;
