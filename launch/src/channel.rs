//! Lines over the socket to the launcher: one question, one answer.

use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

use super::JobError;
use super::stream::Stream;
use super::wire::{LINE_MAX, Line, excerpt};

/// The socket and what was read from it beyond the last line.
#[derive(Debug)]
pub(super) struct Channel {
    stream: Stream,
    /// Bytes received and not yet handed out. The lock also keeps questions and answers in step when
    /// several threads use one job.
    inbox: Mutex<Vec<u8>>,
}

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Result<Self, JobError> {
        Ok(Self {
            stream: Stream::new(socket)?,
            inbox: Mutex::new(Vec::new()),
        })
    }

    /// Sends `line` and returns the answer, whose command must be `answer`.
    pub(super) fn call(
        &self,
        line: &str,
        doing: &'static str,
        answer: &'static str,
    ) -> Result<Line, JobError> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.post(line, doing)?;
        let (text, line) = self.next(&mut inbox, doing)?;
        if line.command() != Some(answer) {
            return Err(JobError::Unexpected {
                doing,
                expected: answer,
                line: excerpt(&text),
            });
        }
        match line.field("rc") {
            None | Some("0") => Ok(line),
            Some(rc) => Err(JobError::Refused {
                doing,
                rc: excerpt(rc),
                detail: excerpt(line.field("msg").unwrap_or("no reason given")),
            }),
        }
    }

    /// Reads one line that nothing asked for (the set-up lines of the `PMI_PORT` style).
    pub(super) fn unasked(&self, doing: &'static str) -> Result<(String, Line), JobError> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        self.next(&mut inbox, doing)
    }

    /// Sends `line` without waiting for an answer; takes no lock, so that a job can be aborted while
    /// another thread waits in a barrier.
    pub(super) fn post(&self, line: &str, doing: &'static str) -> Result<(), JobError> {
        self.stream.post(line.as_bytes(), doing)
    }

    fn next(&self, inbox: &mut Vec<u8>, doing: &'static str) -> Result<(String, Line), JobError> {
        let mut searched = 0;
        let end = loop {
            let fresh = inbox.get(searched..).unwrap_or_default();
            if let Some(at) = fresh.iter().position(|&b| b == b'\n') {
                break searched + at;
            }
            searched = inbox.len();
            if searched >= LINE_MAX {
                return Err(JobError::LineTooLong {
                    doing,
                    limit: LINE_MAX,
                });
            }
            self.stream.fill(inbox, doing)?;
        };
        let bytes: Vec<u8> = inbox.drain(..=end).take(end).collect();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        match Line::parse(&text) {
            Ok(line) => Ok((text, line)),
            Err(source) => Err(JobError::Malformed {
                doing,
                line: excerpt(&text),
                source,
            }),
        }
    }
}
