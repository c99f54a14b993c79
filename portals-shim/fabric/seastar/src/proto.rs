//! What a rank and the simulation say to each other: one datagram of a sequenced-packet socket for
//! each question and each answer.
//!
//! ```text
//!   rank                         simulation
//!    │ hello, its memory ────────► │   (all ranks, then time starts)
//!    │ ◄──────────── Reply Done    │
//!    │ Call ─────────────────────► │
//!    │ ◄──────────── Reply answer  │   … one question at a time
//! ```
//!
//! What opens a connection begins with bytes that no build has otherwise ([`opening`]):
//!
//! | bytes | what |
//! |---|---|
//! | 0–7 | [`HELLO`] of a rank, [`ARRIVAL`] of an endpoint, or [`BEGIN`] of whoever has started the simulation |
//! | 8–11 | [`VERSION`], little endian |
//! | 12–27 | the secret of the simulation |
//! | 28– | of a hello: [`Hello`]; of an arrival: [`Arrival`] |
//!
//! Beside a hello are the descriptors of the rank's memory, beside the beginning that of the listening socket.

use super::owner::Owner;
use super::usermem::Probe;
use fabric_api::call::{Answer, Call, EqList};
use host::secret::Secret;
use nic_model::SimTime;
use portals_core::{Error, NiConfig, ProcessId};
use serde::{Deserialize, Serialize};

/// Both sides must be built alike; the number changes with every change of these types.
pub(super) const VERSION: u32 = 11;
/// Longest datagram, bytes: a call with 64 iovec entries fits many times.
pub(super) const MAX_DATAGRAM: usize = 16 * 1024;
/// Begins the hello of a rank.
pub(super) const HELLO: [u8; 8] = *b"\x89SeaStar";
/// Begins what an endpoint says that joins an open simulation.
pub(super) const ARRIVAL: [u8; 8] = *b"\x89Seajoin";
/// Begins what rank 0 says before.
pub(super) const BEGIN: [u8; 8] = *b"\x89Seabegn";
/// Bytes before what is particular.
const OPENING: usize = 8 + 4 + Secret::LEN;

/// Who a rank is.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hello {
    /// Its rank in the job.
    pub(super) rank: u32,
    /// Who it is; its node id says on which node.
    pub(super) config: NiConfig,
    pub(super) memory: Handed,
}

/// Who wants to join an open simulation. It is answered by a [`Reply`], and then by its process id.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Arrival {
    /// What it wishes; the process id is the simulation's choice.
    pub(super) config: NiConfig,
    /// The process that opens it.
    pub(super) owner: Owner,
    pub(super) memory: Handed,
}

/// How a rank's memory is reached.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Handed {
    /// By the descriptors beside the hello.
    Files(Probe),
    /// Not at all, and why: the end of a sentence.
    Refused(String),
}

/// What a rank says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// An API call.
    Call(Call),
    /// A part of a wait for ever, of so many nanoseconds, of a process with several threads.
    Slice(EqList, u64),
    /// The rank waits for others outside.
    Leave,
    /// It is back.
    Rejoin,
    /// An endpoint calls with an operation for a process that its address book does not have.
    Strayed(Call),
    /// An endpoint has a peer.
    Enter,
    /// An endpoint wants nothing any more of this process.
    Forget(ProcessId),
}

/// What it is answered.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Reply {
    /// The rank's clock, picoseconds.
    pub(super) clock: u64,
    /// The call's result.
    pub(super) result: Result<Answer, Error>,
    /// What the user should know of a failure; empty otherwise.
    pub(super) note: String,
}

impl Reply {
    /// What everybody is told first: the clock at which the simulation begins for it.
    pub(super) fn begun(clock: SimTime) -> Self {
        Self {
            clock: clock.as_ps(),
            result: Ok(Answer::Done),
            note: String::new(),
        }
    }

    /// Why there will be no answers.
    pub(super) fn refusal(why: &str) -> Self {
        Self {
            clock: 0,
            result: Err(Error::Fail),
            note: why.to_owned(),
        }
    }
}

/// The first bytes of a connection.
pub(super) fn opening(kind: [u8; 8], secret: &Secret) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(OPENING);
    bytes.extend(kind);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(secret.bytes());
    bytes
}

/// What the first bytes of a connection say.
#[derive(Debug)]
pub(super) struct Opened<'a> {
    pub(super) version: u32,
    /// Of as many bytes as a secret.
    pub(super) secret: &'a [u8],
    pub(super) rest: &'a [u8],
}

/// Reads what [`opening`] wrote; `None` when it was something else.
pub(super) fn read_opening(kind: [u8; 8], datagram: &[u8]) -> Option<Opened<'_>> {
    let (said, rest) = datagram.split_first_chunk::<8>()?;
    let (version, rest) = rest.split_first_chunk::<4>()?;
    let (secret, rest) = rest.split_at_checked(Secret::LEN)?;
    (*said == kind).then_some(Opened {
        version: u32::from_le_bytes(*version),
        secret,
        rest,
    })
}
