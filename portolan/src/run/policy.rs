//! What the end of one rank means for the job: decisions only, no processes and no clock.

use std::collections::BTreeSet;

use super::pmi_server::{End, Stage};
use super::reap::Exit;

/// The job is over, or must be ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Verdict {
    /// The launcher's exit status.
    pub(super) status: u8,
    /// One line for the user, where there is something to say.
    pub(super) line: Option<String>,
}

impl Verdict {
    pub(super) fn new(status: u8, line: String) -> Self {
        Self {
            status,
            line: Some(line),
        }
    }
}

/// How each rank ended so far.
#[derive(Debug)]
pub(super) struct Policy {
    program: String,
    exits: Vec<Option<Exit>>,
    /// Ranks that are ending, and whose end has not been told yet.
    ending: BTreeSet<u32>,
    /// The likeliest cause among the failures told while other ranks were ending, with how likely it is: least first.
    held: Option<(u8, Verdict)>,
    /// The first failure of a rank that had left the job in good order.
    late_failure: Option<(u32, Exit)>,
}

impl Policy {
    pub(super) fn new(size: u32, program: String) -> Self {
        Self {
            program,
            exits: (0..size).map(|_| None).collect(),
            ending: BTreeSet::new(),
            held: None,
            late_failure: None,
        }
    }

    /// `rank` is ending: its line closed before it finalized, or its end will be told next.
    ///
    /// A process closes what it holds before its end can be seen, and peers that notice may have ended by then: while
    /// a rank is ending, the failure of another is not taken for the cause.
    pub(super) fn handle_ending(&mut self, rank: u32) {
        self.ending.insert(rank);
    }

    /// `rank` has not ended though its line has been closed for long.
    pub(super) fn handle_overdue(&mut self, rank: u32) -> Verdict {
        let held = self.held.take().map(|(_, verdict)| verdict);
        held.unwrap_or_else(|| {
            let words = format!("rank {rank} closed its line without finalizing; ending the job");
            Verdict::new(1, words)
        })
    }

    /// Rank `rank`, then at `stage`, ended with `exit`.
    pub(super) fn handle_exit(&mut self, rank: u32, exit: Exit, stage: Stage) -> Option<Verdict> {
        // Of ranks that ended in one moment, a killed one is the likelier cause than one that noticed.
        let doubt = match exit {
            Exit::Signal(_) => 0,
            Exit::Status(0) => 2,
            Exit::Status(_) => 1,
        };
        let verdict = self.judge(rank, exit, stage);
        self.ending.remove(&rank);
        if let Some(verdict) = verdict
            && self.held.as_ref().is_none_or(|(held, _)| doubt < *held)
        {
            self.held = Some((doubt, verdict));
        }
        let told = self
            .held
            .take_if(|(doubt, _)| *doubt == 0 || self.ending.is_empty());
        told.map(|(_, verdict)| verdict)
    }

    fn judge(&mut self, rank: u32, exit: Exit, stage: Stage) -> Option<Verdict> {
        if let Some(slot) = usize::try_from(rank)
            .ok()
            .and_then(|at| self.exits.get_mut(at))
        {
            *slot = Some(exit);
        }
        match (exit, stage) {
            (Exit::Status(0), Stage::Silent | Stage::Finalized) => None,
            (Exit::Status(0), Stage::Joined) => Some(Verdict::new(
                1,
                format!(
                    "rank {rank} exited with status 0 without finalizing{}",
                    self.consequence()
                ),
            )),
            (_, Stage::Finalized) => {
                self.late_failure.get_or_insert((rank, exit));
                None
            }
            _ => Some(Verdict::new(
                exit.code(),
                format!("rank {rank} {exit}{}", self.consequence()),
            )),
        }
    }

    /// Looks at the job as a whole; to be called after ranks joined or ended.
    pub(super) fn poll(&self, stages: impl Iterator<Item = Stage>) -> Option<Verdict> {
        let mut joined = None;
        let mut stayed_out = None;
        for ((rank, exit), stage) in (0_u32..).zip(&self.exits).zip(stages) {
            match stage {
                Stage::Silent if exit.is_some() => stayed_out = stayed_out.or(Some(rank)),
                Stage::Silent => {}
                Stage::Joined | Stage::Finalized => joined = joined.or(Some(rank)),
            }
        }
        if let (Some(joined), Some(out)) = (joined, stayed_out) {
            let line = format!(
                "rank {out} exited with status 0 and never joined the job that rank {joined} joined{}",
                self.consequence()
            );
            return Some(Verdict::new(1, line));
        }
        if self.exits.iter().any(Option::is_none) {
            return None;
        }
        if let Some((rank, exit)) = self.late_failure {
            return Some(Verdict::new(exit.code(), format!("rank {rank} {exit}")));
        }
        let strangers = joined.is_none() && self.exits.len() > 1;
        let line = strangers.then(|| {
            let count = self.exits.len();
            format!(
                "no rank called init: {} ran as {count} separate processes",
                self.program
            )
        });
        Some(Verdict { status: 0, line })
    }

    /// The protocol says that the job must end.
    pub(super) fn protocol_end(end: End) -> Verdict {
        match end {
            End::Abort {
                rank,
                code,
                message,
            } => {
                let status = Exit::Status(code).code();
                let reason = if message.is_empty() {
                    String::new()
                } else {
                    format!(": {message}")
                };
                Verdict::new(
                    status,
                    format!("rank {rank} aborted the job with status {status}{reason}"),
                )
            }
            End::Broken { rank, reason } => {
                Verdict::new(1, format!("rank {rank} {reason}; ending the job"))
            }
        }
    }

    fn consequence(&self) -> &'static str {
        if self.exits.iter().all(Option::is_some) {
            ""
        } else {
            "; ending the job"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Stage::{Finalized, Joined, Silent};

    fn policy(size: u32) -> Policy {
        Policy::new(size, "prog".into())
    }

    fn line(verdict: Option<Verdict>) -> (u8, String) {
        let verdict = verdict.expect("a verdict");
        (verdict.status, verdict.line.unwrap_or_default())
    }

    #[test]
    fn good_ends_are_silent() {
        let mut p = policy(2);
        assert_eq!(p.handle_exit(0, Exit::Status(0), Finalized), None);
        assert_eq!(p.poll([Finalized, Joined].into_iter()), None);
        assert_eq!(p.handle_exit(1, Exit::Status(0), Finalized), None);
        let end = p.poll([Finalized, Finalized].into_iter());
        assert_eq!(
            end,
            Some(Verdict {
                status: 0,
                line: None
            })
        );
    }

    #[test]
    fn a_killed_rank_ends_the_job() {
        let mut p = policy(4);
        let end = line(p.handle_exit(2, Exit::Signal(9), Joined));
        let words = "rank 2 was killed by signal 9 (SIGKILL); ending the job";
        assert_eq!(end, (137, words.to_owned()));
        let mut p = policy(4);
        assert_eq!(line(p.handle_exit(2, Exit::Status(3), Silent)).0, 3);
    }

    #[test]
    fn a_killed_rank_is_the_cause_though_others_end_first() {
        let mut p = policy(4);
        p.handle_ending(2);
        p.handle_ending(0);
        assert_eq!(p.handle_exit(0, Exit::Status(1), Joined), None);
        let end = line(p.handle_exit(2, Exit::Signal(9), Joined));
        let words = "rank 2 was killed by signal 9 (SIGKILL); ending the job";
        assert_eq!(end, (137, words.to_owned()));
    }

    #[test]
    fn the_first_failure_is_told_once_no_other_rank_is_ending() {
        let mut p = policy(4);
        p.handle_ending(1);
        p.handle_ending(3);
        assert_eq!(p.handle_exit(1, Exit::Status(5), Joined), None);
        let end = line(p.handle_exit(3, Exit::Status(6), Joined));
        assert_eq!(
            end,
            (5, "rank 1 exited with status 5; ending the job".into())
        );

        // One that only did not finalize is less telling, whichever is told first.
        for ends in [[(1, 0), (3, 6)], [(3, 6), (1, 0)]] {
            let mut p = policy(4);
            p.handle_ending(1);
            p.handle_ending(3);
            let told = ends.map(|(rank, status)| p.handle_exit(rank, Exit::Status(status), Joined));
            assert_eq!(told[0], None);
            assert_eq!(line(told[1].clone()).0, 6);
        }

        let mut p = policy(4);
        p.handle_ending(3);
        assert_eq!(p.handle_exit(1, Exit::Status(5), Joined), None);
        assert_eq!(p.handle_overdue(3).status, 5);

        let mut p = policy(4);
        p.handle_ending(3);
        let words = "rank 3 closed its line without finalizing; ending the job";
        assert_eq!(p.handle_overdue(3), Verdict::new(1, words.into()));
    }

    #[test]
    fn the_last_rank_ends_no_job() {
        let mut p = policy(1);
        assert_eq!(
            line(p.handle_exit(0, Exit::Status(3), Joined)).1,
            "rank 0 exited with status 3"
        );
    }

    #[test]
    fn leaving_without_finalize_is_a_failure() {
        let mut p = policy(2);
        let (status, words) = line(p.handle_exit(1, Exit::Status(0), Joined));
        assert_eq!(status, 1);
        assert!(
            words.contains("rank 1") && words.contains("without finalizing"),
            "{words}"
        );
    }

    #[test]
    fn a_failure_after_finalize_lets_the_others_finish() {
        let mut p = policy(2);
        assert_eq!(p.handle_exit(1, Exit::Status(5), Finalized), None);
        assert_eq!(p.poll([Joined, Finalized].into_iter()), None);
        assert_eq!(p.handle_exit(0, Exit::Status(6), Finalized), None);
        let end = line(p.poll([Finalized, Finalized].into_iter()));
        assert_eq!(end, (5, "rank 1 exited with status 5".to_owned()));
    }

    #[test]
    fn programs_that_never_join_are_pointed_out() {
        let mut p = policy(2);
        assert_eq!(p.handle_exit(0, Exit::Status(0), Silent), None);
        assert_eq!(p.poll([Silent, Silent].into_iter()), None);
        assert_eq!(p.handle_exit(1, Exit::Status(0), Silent), None);
        let (status, words) = line(p.poll([Silent, Silent].into_iter()));
        assert_eq!(status, 0);
        assert!(words.starts_with("no rank called init: prog"), "{words}");
        let mut p = policy(1);
        p.handle_exit(0, Exit::Status(0), Silent);
        assert_eq!(
            p.poll([Silent].into_iter()),
            Some(Verdict {
                status: 0,
                line: None
            })
        );
    }

    #[test]
    fn half_a_job_is_an_error() {
        let mut p = policy(2);
        assert_eq!(p.handle_exit(1, Exit::Status(0), Silent), None);
        let (status, words) = line(p.poll([Joined, Silent].into_iter()));
        assert_eq!(status, 1);
        assert!(
            words.contains("rank 1") && words.contains("rank 0 joined"),
            "{words}"
        );
    }

    #[test]
    fn aborts_carry_code_and_words() {
        let end = End::Abort {
            rank: 3,
            code: 258,
            message: "bad input".into(),
        };
        let verdict = Policy::protocol_end(end);
        assert_eq!(verdict.status, 2);
        let words = "rank 3 aborted the job with status 2: bad input";
        assert_eq!(verdict.line.as_deref(), Some(words));
    }
}
