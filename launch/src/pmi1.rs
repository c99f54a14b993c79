//! The client of PMI-1: lines `cmd=… key=value` (`portolan run`, MPICH's Hydra, Slurm's pmi2 plugin).

use std::fmt::Display;
use std::os::fd::OwnedFd;

use super::channel::Channel;
use super::space::{AT_ONCE, Joined, Limits, Space, TextSpace, plain};
use super::wire::{self, excerpt, format};
use super::{JobError, env};

/// The longest line, its end included, that every server takes whole: MPICH's and Slurm's read into
/// buffers of 1024 bytes, although they announce values of as many.
const LINE_TAKEN: usize = 1023;

/// The least longest key, and value, that MPICH's process management notes ask of a server.
const KEY_LEAST: usize = 31;
const VALUE_LEAST: usize = 63;

/// A job that was joined over PMI-1.
#[derive(Debug)]
pub(super) struct Pmi1 {
    channel: Channel,
    limits: Limits,
    /// The name of the key space, which is the job's.
    id: String,
    /// An MPI library has joined over the line, and leaves.
    of_mpi: bool,
    /// See [`Space::abort_at_once`].
    last_words: String,
}

/// Joins as `rank` of `size`, both told by the environment.
pub(super) fn join(socket: OwnedFd, rank: u32, size: u32) -> Result<Joined, JobError> {
    env::check(rank, size)?;
    hello(Channel::new(socket)?, rank, size, false)
}

/// Joins over the line of an MPI library of this process that has joined. For servers that take one `init` and one
/// `finalize` of a process: they are the MPI library's.
pub(super) fn join_behind_mpi(socket: OwnedFd, rank: u32, size: u32) -> Result<Joined, JobError> {
    env::check(rank, size)?;
    hello(Channel::new(socket)?, rank, size, true)
}

/// The `PMI_PORT` style: tell the launcher the process id it gave, be told rank and size.
pub(super) fn introduce(socket: OwnedFd, id: u32) -> Result<Joined, JobError> {
    const DOING: &str = "introduce itself";
    let channel = Channel::new(socket)?;
    channel.call(&format("initack", &[("pmiid", &id)]), DOING, "initack")?;
    let (mut rank, mut size) = (None, None);
    // The launcher sends `cmd=set` lines for size, rank and debug, in this order.
    for _ in 0..3 {
        let (text, line) = channel.unasked(DOING)?;
        if line.command() != Some("set") {
            let line = excerpt(&text);
            return Err(JobError::Unexpected {
                doing: DOING,
                expected: "cmd=set",
                line,
            });
        }
        rank = rank.or_else(|| line.number("rank"));
        size = size.or_else(|| line.number("size"));
    }
    let (Some(rank), Some(size)) = (rank, size) else {
        let line = format!("rank {rank:?}, size {size:?}");
        return Err(JobError::Unexpected {
            doing: DOING,
            expected: "a rank and a size",
            line,
        });
    };
    env::check(rank, size)?;
    hello(channel, rank, size, false)
}

fn hello(channel: Channel, rank: u32, size: u32, of_mpi: bool) -> Result<Joined, JobError> {
    if !of_mpi {
        init(&channel)?;
    }

    let doing = "learn the limits";
    let answer = channel.call(&format("get_maxes", &[]), doing, "maxes")?;
    let limit = |name: &'static str, least: usize| {
        let value: usize = answer.number(name).ok_or_else(|| JobError::Unexpected {
            doing,
            expected: name,
            line: excerpt(answer.field(name).unwrap_or("no value")),
        })?;
        // The protocol counts a terminating zero.
        if value > least {
            Ok(value - 1)
        } else {
            Err(JobError::Limit { name, value, least })
        }
    };
    let key = limit("keylen_max", KEY_LEAST)?;
    let value = limit("vallen_max", VALUE_LEAST)?.min(wire::LINE_MAX / 2);

    let doing = "learn the job's name";
    let answer = channel.call(&format("get_my_kvsname", &[]), doing, "my_kvsname")?;
    let id = match answer.field("kvsname") {
        Some(name) if !name.is_empty() && !name.contains(char::is_whitespace) => name.to_owned(),
        other => {
            let line = excerpt(other.unwrap_or("no value"));
            return Err(JobError::Unexpected {
                doing,
                expected: "kvsname",
                line,
            });
        }
    };
    let around = put_line(&id, "", "").len().saturating_add(key);
    let room = LINE_TAKEN.saturating_sub(around).max(VALUE_LEAST);
    let limits = Limits {
        key,
        value: value.min(room),
    };
    Ok(Joined {
        rank,
        size,
        id: id.clone(),
        space: Space::Pmi1(Pmi1 {
            channel,
            limits,
            id,
            of_mpi,
            last_words: abort_line(AT_ONCE.0, AT_ONCE.1),
        }),
    })
}

const ABORTING: &str = "abort the job";

fn abort_line(code: i32, message: &str) -> String {
    let pairs: [(&str, &dyn Display); 2] = [("exitcode", &code), ("message", &plain(message))];
    format("abort", &pairs)
}

fn init(channel: &Channel) -> Result<(), JobError> {
    let hello = format("init", &[("pmi_version", &1), ("pmi_subversion", &1)]);
    let answer = channel.call(&hello, "join the job", "response_to_init")?;
    let major = answer.number("pmi_version").unwrap_or(1);
    let minor = answer.number("pmi_subversion").unwrap_or(1);
    if major != 1 {
        let ours = "1.1";
        return Err(JobError::Version { major, minor, ours });
    }
    Ok(())
}

fn put_line(id: &str, key: &str, text: &str) -> String {
    let pairs: [(&str, &dyn Display); 3] = [("kvsname", &id), ("key", &key), ("value", &text)];
    format("put", &pairs)
}

impl Pmi1 {
    pub(super) fn fence(&self, doing: &'static str) -> Result<(), JobError> {
        self.channel
            .call(&format("barrier_in", &[]), doing, "barrier_out")?;
        Ok(())
    }

    pub(super) fn finalize(&self, doing: &'static str) -> Result<(), JobError> {
        if !self.of_mpi {
            self.channel
                .call(&format("finalize", &[]), doing, "finalize_ack")?;
        }
        Ok(())
    }

    /// Works while another thread waits in a fence.
    pub(super) fn abort(&self, code: i32, message: &str) {
        let _ = self.channel.post(&abort_line(code, message), ABORTING);
    }

    /// See [`Space::abort_at_once`].
    pub(super) fn abort_at_once(&self) {
        let _ = self.channel.post(&self.last_words, ABORTING);
    }
}

impl TextSpace for Pmi1 {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn put_text(&self, key: &str, text: &str) -> Result<(), JobError> {
        let line = put_line(&self.id, key, text);
        self.channel.call(&line, "put a value", "put_result")?;
        Ok(())
    }

    fn get_text(&self, key: &str) -> Result<String, JobError> {
        const DOING: &str = "get a value";
        let pairs: [(&str, &dyn Display); 2] = [("kvsname", &self.id), ("key", &key)];
        let answer = match self
            .channel
            .call(&format("get", &pairs), DOING, "get_result")
        {
            // Servers word an unknown key differently; the code is the same.
            Err(JobError::Refused { .. }) => {
                return Err(JobError::NoSuchKey {
                    key: key.to_owned(),
                });
            }
            other => other?,
        };
        answer
            .field("value")
            .map(str::to_owned)
            .ok_or_else(|| JobError::Unexpected {
                doing: DOING,
                expected: "value",
                line: "no value".to_owned(),
            })
    }
}
