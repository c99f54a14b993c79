//! Making connections: what two processes say to each other in datagrams, and what follows.
//!
//! ```text
//!   asks                                   is asked
//!   CONNECT ──────────────────────────────▶ makes a queue pair, ready to receive and send
//!     (again until answered)     ◀──────── ACCEPT   (again for each repeated CONNECT)
//!   ready to receive and send
//!   READY ────────────────────────────────▶ sends its adverts and a greeting over the connection
//!     (again until greeted)      ◀════════
//!   operations that waited are sent
//! ```
//!
//! Where the RDMA connection manager joins the queue pairs, as on iWARP, it does so between ACCEPT and READY (`cm.rs`), and
//! READY is not said: a frame says it.
//!
//! Datagrams get lost, come twice, and come late. Attempts of a process have ascending numbers; what belongs to an
//! older one than the last that was taken is ignored, and an answer settles all requests that its sender made
//! before. When two ask each other at the same time, the request of the
//! lower rank counts, and the other one's queue pair answers it.
//!
//! Endpoints that belong to no job have no ranks; what their words say besides is in `endpoint/words.rs`.
//!
//! A datagram must carry the token of its target, a random number that only members of the job learn, from the
//! job's key space. CONNECT and ACCEPT tell who the process is (user, job): frames that claim another one later are
//! dropped. They also say how many frames their sender has received on earlier connections, so that the other side
//! sends again exactly what was lost.

use verbs_backend::{DatagramAddress, Endpoint};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

const MAGIC: u32 = 0x5054_4c33;
const VERSION: u8 = 3;

/// What a datagram says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Connect,
    Accept,
    Ready,
    /// The request is refused for good.
    Refuse(Refusal),
    /// The sender closes in good order. If it says how many requests of the other process it has done, those are the
    /// first ones: what they were not answered they never will be, because their target dropped them or refused to
    /// acknowledge them. Later ones had no effect.
    Bye {
        done: Option<u32>,
    },
    /// The sender waits for the confirmation of what it has advertised.
    Look,
    /// The sender, an endpoint, ends the session. It is still there, and may be called again.
    Disconnect,
}

/// Why a process wants no connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The connections that its device holds are in use.
    Full,
    /// It has given the asker up before, and told its program so.
    GivenUp,
    /// It cannot make a queue pair; its log says why.
    Device,
    /// It knows nothing of the session that the asker means: an endpoint that has disconnected.
    Forgotten,
    /// A reason that this version does not know.
    Other,
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Self::Full => 1,
            Self::GivenUp => 2,
            Self::Device => 3,
            Self::Forgotten => 4,
            Self::Other => 0,
        }
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Full => "all connections that its device holds are in use",
            Self::GivenUp => "it gave this process up before",
            Self::Device => "it cannot make a queue pair",
            Self::Forgotten => "it has disconnected",
            Self::Other => "it gives no reason",
        })
    }
}

/// A datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) word: Word,
    pub(super) from: u32,
    pub(super) to: u32,
    /// Token of the process it is for.
    pub(super) token: u64,
    /// Number of the attempt, by the side that asked.
    pub(super) attempt: u32,
    /// Who sends.
    pub(super) card: Card,
    /// The sender's end of the connection.
    pub(super) endpoint: Endpoint,
}

/// Who a process is, and what it tells about its side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) uid: u32,
    pub(super) jid: u32,
    /// Number of its last attempt, to whomever: requests up to it are settled by an answer.
    pub(super) attempts: u32,
    /// Frames received from the other process so far, modulo 2^32.
    pub(super) received: u32,
    /// Receive slots for the other process.
    pub(super) credits: u16,
    /// Where it takes datagrams, and with which token.
    pub(super) address: DatagramAddress,
    pub(super) token: u64,
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: U32,
    version: u8,
    word: u8,
    reason: u8,
    zero: u8,
    from: U32,
    to: U32,
    token: U64,
    attempt: U32,
    uid: U32,
    jid: U32,
    attempts: U32,
    received: U32,
    done: U32,
    credits: U16,
    address: [u8; DatagramAddress::BYTES],
    own_token: U64,
    endpoint: [u8; Endpoint::BYTES],
}

/// Bytes of a datagram.
pub(super) const BYTES: usize = 112;
const _: () = assert!(size_of::<Wire>() == BYTES);

impl Message {
    pub(super) fn to_bytes(self) -> [u8; BYTES] {
        let (word, reason) = match self.word {
            Word::Connect => (1, 0),
            Word::Accept => (2, 0),
            Word::Ready => (3, 0),
            Word::Refuse(reason) => (4, reason.code()),
            Word::Bye { done } => (5, u8::from(done.is_some())),
            Word::Look => (6, 0),
            Word::Disconnect => (7, 0),
        };
        let wire = Wire {
            magic: MAGIC.into(),
            version: VERSION,
            word,
            reason,
            zero: 0,
            from: self.from.into(),
            to: self.to.into(),
            token: self.token.into(),
            attempt: self.attempt.into(),
            uid: self.card.uid.into(),
            jid: self.card.jid.into(),
            attempts: self.card.attempts.into(),
            received: self.card.received.into(),
            done: match self.word {
                Word::Bye { done } => done.unwrap_or_default().into(),
                _ => 0.into(),
            },
            credits: self.card.credits.into(),
            address: self.card.address.to_bytes(),
            own_token: self.card.token.into(),
            endpoint: self.endpoint.to_bytes(),
        };
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(wire.as_bytes());
        bytes
    }

    /// Reads a datagram; `None` for anything else.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (wire, _) = Wire::read_from_prefix(bytes).ok()?;
        if wire.magic.get() != MAGIC || wire.version != VERSION {
            return None;
        }
        let word = match (wire.word, wire.reason) {
            (1, _) => Word::Connect,
            (2, _) => Word::Accept,
            (3, _) => Word::Ready,
            (4, 1) => Word::Refuse(Refusal::Full),
            (4, 2) => Word::Refuse(Refusal::GivenUp),
            (4, 3) => Word::Refuse(Refusal::Device),
            (4, 4) => Word::Refuse(Refusal::Forgotten),
            (4, _) => Word::Refuse(Refusal::Other),
            (5, known) => Word::Bye {
                done: (known == 1).then(|| wire.done.get()),
            },
            (6, _) => Word::Look,
            (7, _) => Word::Disconnect,
            _ => return None,
        };
        Some(Self {
            word,
            from: wire.from.get(),
            to: wire.to.get(),
            token: wire.token.get(),
            attempt: wire.attempt.get(),
            card: Card {
                uid: wire.uid.get(),
                jid: wire.jid.get(),
                attempts: wire.attempts.get(),
                received: wire.received.get(),
                credits: wire.credits.get(),
                address: DatagramAddress::from_bytes(&wire.address)?,
                token: wire.own_token.get(),
            },
            endpoint: Endpoint::from_bytes(&wire.endpoint).ok()?,
        })
    }
}

/// How far the connection with a peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// None is wanted.
    Idle,
    /// Asked; with which attempt.
    Asking(u32),
    /// Accepted by the peer; the connection manager joins the queue pairs (`cm.rs`); own attempt.
    Joining(u32),
    /// Accepted by the peer, which has not greeted yet; own attempt.
    Opening(u32),
    /// Accepted the peer's attempt, which is not ready yet as far as this side knows.
    Answered,
    /// In use.
    Up,
    /// Broken; waits for the end of what was under way.
    Draining,
    /// Given up; there is no way back.
    Failed,
}

/// What to do about a CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OnConnect {
    /// Answer with a queue pair: the one that was to ask with, or a new one.
    Accept,
    /// Answer as before.
    Repeat,
    /// Do nothing.
    Ignore,
    /// End the connection there is, then accept.
    Renew,
    Refuse(Refusal),
}

/// The number up to which requests of a peer are settled, once it has answered and said that `attempts` is its
/// last one.
pub(super) fn settled(taken: Option<u32>, attempts: u32) -> u32 {
    match taken {
        Some(taken) if later(taken, attempts) => taken,
        _ => attempts,
    }
}

/// Whether attempt `a` is later than `b`.
pub(super) fn later(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

/// Decides about a CONNECT with number `attempt`; `taken` is the last of the peer's that was accepted.
pub(super) fn on_connect<N: PartialOrd>(
    own: N,
    peer: N,
    stage: Stage,
    taken: Option<u32>,
    attempt: u32,
) -> OnConnect {
    if stage == Stage::Failed {
        return OnConnect::Refuse(Refusal::GivenUp);
    }
    match taken {
        Some(taken) if taken == attempt => {
            return match stage {
                Stage::Answered | Stage::Up => OnConnect::Repeat,
                _ => OnConnect::Ignore,
            };
        }
        Some(taken) if !later(attempt, taken) => return OnConnect::Ignore,
        _ => {}
    }
    match stage {
        Stage::Idle => OnConnect::Accept,
        Stage::Asking(_) if own < peer => OnConnect::Ignore,
        Stage::Asking(_) => OnConnect::Accept,
        // The peer asks anew, so it has given up what this side takes for a connection.
        Stage::Joining(_) | Stage::Opening(_) | Stage::Answered | Stage::Up | Stage::Draining => {
            OnConnect::Renew
        }
        Stage::Failed => OnConnect::Refuse(Refusal::GivenUp),
    }
}

#[cfg(test)]
mod tests;
