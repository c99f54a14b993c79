//! The client of PMI-2 (Slurm's `srun --mpi=pmi2`, MPICH's Hydra): a conversation of questions and answers.
//!
//! ```text
//!   cmd=init pmi_version=2 pmi_subversion=0 ⏎ ─▶   a line, as in PMI-1
//!   ◀─ cmd=response_to_init rc=0 pmi_version=2 … ⏎
//!   fullinit, job-getid                            then frames (`wire`)
//!   kvs-put …, kvs-fence, kvs-get …
//!   finalize
//! ```
//!
//! `abort` has no answer and no exit status: where that must not be lost the rank itself exits with it.
//! Slurm takes the first of all ranks' versions for the whole job.

pub mod wire;

#[cfg(test)]
mod tests;

use std::fmt::Display;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use self::wire::{Frame, encode, take};
use super::space::{AT_ONCE, Joined, Limits, Space, TextSpace, plain};
use super::stream::Stream;
use super::wire::{LINE_MAX, Line, excerpt, format as line};
use super::{JobError, env};

/// What the headers of PMI-2 fix: a key has fewer bytes than 64. A value may have fewer than 1024, but
/// Slurm makes up its answer, names and all, in a buffer that some versions limit to as many.
const LIMITS: Limits = Limits {
    key: 63,
    value: 900,
};

/// A job that was joined over PMI-2.
#[derive(Debug)]
pub(super) struct Pmi2 {
    stream: Stream,
    /// Bytes received and not yet taken. The lock also keeps questions and answers in step.
    inbox: Mutex<Vec<u8>>,
    /// The job's name.
    id: String,
    /// See [`Space::abort_at_once`].
    last_words: Vec<u8>,
}

const ABORTING: &str = "abort the job";

fn abort_message(message: &str) -> Vec<u8> {
    let pairs: [(&str, &dyn Display); 2] = [("isworld", &"TRUE"), ("msg", &plain(message))];
    encode("abort", &pairs)
}

/// Joins as `rank` of `size` of the job that the launcher calls `job`.
pub(super) fn join(
    socket: OwnedFd,
    rank: u32,
    size: u32,
    job: Option<&str>,
) -> Result<Joined, JobError> {
    env::check(rank, size)?;
    let mut pmi = Pmi2 {
        stream: Stream::new(socket)?,
        inbox: Mutex::new(Vec::new()),
        id: String::new(),
        last_words: abort_message(AT_ONCE.1),
    };
    pmi.agree_on_version()?;

    const DOING: &str = "join the job";
    let mut pairs: Vec<(&str, &dyn Display)> = Vec::new();
    if let Some(job) = &job {
        pairs.push(("pmijobid", job));
    }
    pairs.push(("pmirank", &rank));
    pairs.push(("threaded", &"FALSE"));
    let told = pmi.call("fullinit", &pairs, DOING, "fullinit-response")?;
    let wrong = |expected| JobError::Unexpected {
        doing: DOING,
        expected,
        line: format!(
            "rank {:?}, size {:?}",
            told.field("rank"),
            told.field("size")
        ),
    };
    let rank: u32 = told.number("rank").ok_or_else(|| wrong("a rank"))?;
    let size: u32 = told.number("size").ok_or_else(|| wrong("a size"))?;
    env::check(rank, size)?;

    const NAME: &str = "learn the job's name";
    let answer = pmi.call("job-getid", &[], NAME, "job-getid-response")?;
    let id = match answer.field("jobid") {
        Some(name) if !name.is_empty() && !name.contains(char::is_whitespace) => name.to_owned(),
        other => {
            return Err(JobError::Unexpected {
                doing: NAME,
                expected: "jobid",
                line: excerpt(other.unwrap_or("no value")),
            });
        }
    };
    pmi.id.clone_from(&id);
    Ok(Joined {
        rank,
        size,
        id,
        space: Space::Pmi2(pmi),
    })
}

impl Pmi2 {
    /// The first question and its answer are lines.
    fn agree_on_version(&self) -> Result<(), JobError> {
        const DOING: &str = "agree on PMI-2";
        let hello = line("init", &[("pmi_version", &2), ("pmi_subversion", &0)]);
        self.stream.post(hello.as_bytes(), DOING)?;
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        let end = loop {
            if let Some(end) = inbox.iter().position(|b| *b == b'\n') {
                break end;
            }
            if inbox.len() >= LINE_MAX {
                return Err(JobError::LineTooLong {
                    doing: DOING,
                    limit: LINE_MAX,
                });
            }
            self.stream.fill(&mut inbox, DOING)?;
        };
        let bytes: Vec<u8> = inbox.drain(..=end).take(end).collect();
        let text = String::from_utf8_lossy(&bytes);
        let answer = Line::parse(&text).map_err(|source| JobError::Malformed {
            doing: DOING,
            line: excerpt(&text),
            source,
        })?;
        if answer.command() != Some("response_to_init") {
            return Err(JobError::Unexpected {
                doing: DOING,
                expected: "response_to_init",
                line: excerpt(&text),
            });
        }
        let major = answer.number("pmi_version").unwrap_or(2);
        if major != 2 || !matches!(answer.field("rc"), None | Some("0")) {
            return Err(JobError::Version {
                major,
                minor: answer.number("pmi_subversion").unwrap_or(0),
                ours: "2.0",
            });
        }
        Ok(())
    }

    /// Asks and waits for the answer, whose command must be `answer`.
    fn call(
        &self,
        command: &str,
        pairs: &[(&str, &dyn Display)],
        doing: &'static str,
        answer: &'static str,
    ) -> Result<Frame, JobError> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.stream.post(&encode(command, pairs), doing)?;
        let frame = loop {
            match take(&mut inbox) {
                Ok(Some(frame)) => break frame,
                Ok(None) => self.stream.fill(&mut inbox, doing)?,
                Err(source) => return Err(JobError::BadFrame { doing, source }),
            }
        };
        if frame.command() != Some(answer) {
            return Err(JobError::Unexpected {
                doing,
                expected: answer,
                line: excerpt(frame.command().unwrap_or("no cmd")),
            });
        }
        match frame.field("rc") {
            None | Some("0") => Ok(frame),
            Some(rc) => Err(JobError::Refused {
                doing,
                rc: excerpt(rc),
                detail: excerpt(frame.field("errmsg").unwrap_or("no reason given")),
            }),
        }
    }

    pub(super) fn fence(&self, doing: &'static str) -> Result<(), JobError> {
        self.call("kvs-fence", &[], doing, "kvs-fence-response")?;
        Ok(())
    }

    pub(super) fn finalize(&self, doing: &'static str) -> Result<(), JobError> {
        self.call("finalize", &[], doing, "finalize-response")?;
        Ok(())
    }

    /// Works while another thread waits in a fence.
    pub(super) fn abort(&self, message: &str) {
        let _ = self.stream.post(&abort_message(message), ABORTING);
    }

    /// See [`Space::abort_at_once`].
    pub(super) fn abort_at_once(&self) {
        let _ = self.stream.post(&self.last_words, ABORTING);
    }
}

impl TextSpace for Pmi2 {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn put_text(&self, key: &str, text: &str) -> Result<(), JobError> {
        let pairs: [(&str, &dyn Display); 2] = [("key", &key), ("value", &text)];
        self.call("kvs-put", &pairs, "put a value", "kvs-put-response")?;
        Ok(())
    }

    fn get_text(&self, key: &str) -> Result<String, JobError> {
        const DOING: &str = "get a value";
        // No rank of the job in particular.
        let pairs: [(&str, &dyn Display); 3] = [("jobid", &self.id), ("srcid", &-1), ("key", &key)];
        let missing = || JobError::NoSuchKey {
            key: key.to_owned(),
        };
        let answer = match self.call("kvs-get", &pairs, DOING, "kvs-get-response") {
            Err(JobError::Refused { .. }) => return Err(missing()),
            other => other?,
        };
        // Slurm and MPICH both say `found`, some older servers `flag`.
        let found = answer.field("found").or_else(|| answer.field("flag"));
        if found.is_some_and(|word| !word.eq_ignore_ascii_case("true")) {
            return Err(missing());
        }
        answer.field("value").map(str::to_owned).ok_or_else(missing)
    }
}
