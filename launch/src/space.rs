//! The key space of a job, whoever keeps it: put, fence, get, and the ways to leave.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::pmi1::Pmi1;
use super::pmi2::Pmi2;
use super::pmix::Pmix;
use super::{JobError, key, value};

/// What joining gives: who this process is and where the values live.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) rank: u32,
    pub(super) size: u32,
    /// The job's name, one word.
    pub(super) id: String,
    pub(super) space: Space,
}

/// Where the values live. One variant for each protocol, one file for each variant.
#[derive(Debug)]
pub(super) enum Space {
    /// A job of one keeps its own.
    Own(Mutex<BTreeMap<String, Vec<u8>>>),
    /// A process manager that speaks lines.
    Pmi1(Pmi1),
    /// One that speaks frames.
    Pmi2(Pmi2),
    /// One that brings a library.
    Pmix(Box<Pmix>),
}

impl Space {
    /// Puts a value under a key; see [`super::Job::put`].
    pub(super) fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        match self {
            Self::Own(values) => {
                key::check(key, usize::MAX)?;
                let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
                values.insert(key.to_owned(), value.to_vec());
                Ok(())
            }
            Self::Pmi1(pmi) => pmi.put(key, value),
            Self::Pmi2(pmi) => pmi.put(key, value),
            Self::Pmix(pmix) => pmix.put(key, value),
        }
    }

    /// The value of a key; see [`super::Job::get_bytes`].
    pub(super) fn get(&self, key: &str) -> Result<Vec<u8>, JobError> {
        match self {
            Self::Own(values) => {
                key::check(key, usize::MAX)?;
                let values = values.lock().unwrap_or_else(PoisonError::into_inner);
                values.get(key).cloned().ok_or_else(|| JobError::NoSuchKey {
                    key: key.to_owned(),
                })
            }
            Self::Pmi1(pmi) => pmi.get(key),
            Self::Pmi2(pmi) => pmi.get(key),
            Self::Pmix(pmix) => pmix.get(key),
        }
    }

    /// Waits for all ranks; puts before it are visible after it.
    pub(super) fn fence(&self, doing: &'static str) -> Result<(), JobError> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Pmi1(pmi) => pmi.fence(doing),
            Self::Pmi2(pmi) => pmi.fence(doing),
            Self::Pmix(pmix) => pmix.fence(doing),
        }
    }

    /// Leaves in good order.
    pub(super) fn finalize(&self, doing: &'static str) -> Result<(), JobError> {
        match self {
            Self::Own(_) => Ok(()),
            Self::Pmi1(pmi) => pmi.finalize(doing),
            Self::Pmi2(pmi) => pmi.finalize(doing),
            Self::Pmix(pmix) => pmix.finalize(doing),
        }
    }

    /// Asks the launcher to end the job. The process exits in any case, and a launcher that is gone has
    /// ended the job already, so failures are not told.
    pub(super) fn abort(&self, code: i32, message: &str) {
        match self {
            Self::Own(_) => {}
            Self::Pmi1(pmi) => pmi.abort(code, message),
            Self::Pmi2(pmi) => pmi.abort(message),
            Self::Pmix(pmix) => pmix.abort(code, message),
        }
    }

    /// Asks the launcher to end the job with [`AT_ONCE`], in words that were put together before: takes neither a lock nor memory.
    pub(super) fn abort_at_once(&self) {
        match self {
            Self::Own(_) | Self::Pmix(_) => {}
            Self::Pmi1(pmi) => pmi.abort_at_once(),
            Self::Pmi2(pmi) => pmi.abort_at_once(),
        }
    }
}

/// Status and message of [`Space::abort_at_once`]; the rank itself says more.
pub(super) const AT_ONCE: (i32, &str) = (1, "a call that is not allowed where it was made");

/// The launcher's limits, in bytes a string may have (its terminator taken off).
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) key: usize,
    pub(super) value: usize,
}

/// A key space of short printable values, through which [`value`] sends any bytes in parts.
pub(super) trait TextSpace {
    fn limits(&self) -> Limits;
    fn put_text(&self, key: &str, text: &str) -> Result<(), JobError>;
    fn get_text(&self, key: &str) -> Result<String, JobError>;

    fn put(&self, key: &str, value: &[u8]) -> Result<(), JobError> {
        let limits = self.limits();
        key::check(key, limits.key)?;
        for (key, text) in value::split(key, value, limits.value)? {
            key::check_length(&key, limits.key)?;
            self.put_text(&key, &text)?;
        }
        Ok(())
    }

    fn get(&self, key: &str) -> Result<Vec<u8>, JobError> {
        key::check(key, self.limits().key)?;
        let first = self.get_text(key)?;
        let (parts, head) = value::head(key, &first)?;
        let mut text = head.to_owned();
        for part in 1..parts {
            text.push_str(&self.get_text(&value::part_key(key, part))?);
        }
        value::unescape(key, &text)
    }
}

/// A message for people in one line of at most 200 characters, without characters that some protocol
/// gives a meaning.
pub(super) fn plain(message: &str) -> String {
    message
        .chars()
        .take(200)
        .map(|c| if c.is_control() || c == ';' { ' ' } else { c })
        .collect()
}
