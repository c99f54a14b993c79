//! What can go wrong between a rank and its launcher.

use std::io;

use super::pmi2::wire::FrameError;
use super::wire::LineError;

/// A failure of job start-up or of an exchange through the launcher.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// A variable the launcher must set is absent or not what it should be.
    #[error("{name} is {value}: {reason}")]
    Environment {
        /// The variable.
        name: &'static str,
        /// Its value in quotes, or `not set`.
        value: String,
        /// What it should have been.
        reason: &'static str,
    },
    /// `PMI_FD` names no open descriptor.
    #[error("PMI_FD names descriptor {fd}, which is not open here")]
    NotOpen {
        /// The number in `PMI_FD`.
        fd: i32,
        /// Why it could not be looked at.
        #[source]
        source: io::Error,
    },
    /// This rank would outlive its launcher.
    #[error("cannot arrange that this rank ends with its launcher")]
    Tie {
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The system does not let this process use what `PMI_FD` names.
    #[error("PMI_FD names descriptor {fd}, which the system does not let this process use")]
    Forbidden {
        /// The number in `PMI_FD`.
        fd: i32,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// `PMI_FD` names something other than a socket.
    #[error("PMI_FD names descriptor {fd}, which is {target} and not a socket")]
    NotASocket {
        /// The number in `PMI_FD`.
        fd: i32,
        /// What the descriptor is.
        target: String,
    },
    /// This process joined its job before.
    #[error("this process has already joined its job")]
    AlreadyJoined,
    /// The launcher's port could not be reached.
    #[error("cannot connect to the launcher at {address}")]
    Connect {
        /// The value of `PMI_PORT`.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The launcher closed the connection.
    #[error("the launcher closed the connection while this rank wanted to {doing}")]
    LauncherGone {
        /// What the rank was about.
        doing: &'static str,
    },
    /// The system refused an operation on the connection.
    #[error("cannot {doing} over the connection to the launcher")]
    Io {
        /// What the rank was about.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The launcher sent no end of line.
    #[error("the launcher sent {limit} bytes without a line end when asked to {doing}")]
    LineTooLong {
        /// What the rank was about.
        doing: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The launcher sent something that is not a message.
    #[error("the launcher's answer to {doing} is malformed: {line:?}")]
    Malformed {
        /// What the rank was about.
        doing: &'static str,
        /// The line, cut short.
        line: String,
        /// What is wrong with it.
        #[source]
        source: LineError,
    },
    /// The launcher answered something else, or left something out.
    #[error("the launcher's answer to {doing} is {line:?} where {expected} was expected")]
    Unexpected {
        /// What the rank was about.
        doing: &'static str,
        /// The command or pair that was expected.
        expected: &'static str,
        /// The line, cut short.
        line: String,
    },
    /// The launcher answered with a failure code.
    #[error("the launcher refused to {doing}: rc {rc}, {detail}")]
    Refused {
        /// What the rank was about.
        doing: &'static str,
        /// The code, as sent.
        rc: String,
        /// The launcher's words.
        detail: String,
    },
    /// The launcher sent bytes that are no message of PMI-2.
    #[error("the launcher's answer to {doing} is malformed")]
    BadFrame {
        /// What the rank was about.
        doing: &'static str,
        /// What is wrong with it.
        #[source]
        source: FrameError,
    },
    /// The launcher speaks another protocol version.
    #[error("the launcher speaks PMI {major}.{minor}, this rank PMI {ours}")]
    Version {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
        /// The version that was asked for.
        ours: &'static str,
    },
    /// The launcher speaks PMIx, and its library cannot be used here.
    #[error(
        "PMIX_NAMESPACE says that a PMIx launcher started this rank, but {library} cannot be used: {reason}"
    )]
    NoLibrary {
        /// File name of the library.
        library: &'static str,
        /// What the dynamic linker said.
        reason: String,
    },
    /// A call of the PMIx library failed.
    #[error("cannot {doing}: {call} of the launcher's library says {status} ({words})")]
    Library {
        /// What the rank was about.
        doing: &'static str,
        /// The function.
        call: &'static str,
        /// Its status, as in `pmix_common.h`.
        status: i32,
        /// The library's words for it.
        words: String,
    },
    /// What a rank put through the PMIx library is not what this program puts.
    #[error("rank {rank} put something that no rank of this program puts: {reason}")]
    ForeignBlob {
        /// The rank whose values were asked for.
        rank: u32,
        /// What is wrong.
        reason: String,
    },
    /// A limit the launcher announced leaves no room to work.
    #[error("the launcher allows {name} {value}, at least {least} is needed")]
    Limit {
        /// The limit's name in the protocol.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least that would do.
        least: usize,
    },
    /// A key has characters that cannot travel, or is too long.
    #[error("key {key:?} of {len} bytes: {reason} (at most {max} bytes)", len = key.len())]
    BadKey {
        /// The key, cut short.
        key: String,
        /// What is wrong.
        reason: &'static str,
        /// The longest key the launcher takes.
        max: usize,
    },
    /// No rank has put this key, or its put is not yet fenced.
    #[error("no value for key {key:?}")]
    NoSuchKey {
        /// The key.
        key: String,
    },
    /// A value is not one that `Job::put` wrote.
    #[error("the value of key {key:?} is not one a rank put: {reason}")]
    BadValue {
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// This process is a child of a rank.
    #[error("cannot {doing}: this process is a child of the rank, and no rank")]
    Child {
        /// What the process was about.
        doing: &'static str,
    },
    /// The job is finalized.
    #[error("cannot {doing}: this rank has already finalized its job")]
    Finalized {
        /// What the rank was about.
        doing: &'static str,
    },
}
