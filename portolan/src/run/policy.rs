//! What the end of one rank means for the job: decisions only, no processes and no clock.

use std::collections::BTreeMap;

use super::pmi_server::{End, Stage};
use super::reap::Exit;
use signal_hook::consts::{SIGABRT, SIGPIPE};

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

/// How likely a failure is to follow from that of another rank: least first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Doubt {
    /// Killed by a signal that no process sends to itself over a failure.
    Killed,
    /// It exited with a status, by a signal that it had sent to itself or that a lost peer costs, or asked for the end
    /// of the job before any other rank had shown a sign of its end.
    Failed,
    /// It exited with status 0 without finalizing.
    Left,
    /// It asked for the end of the job after another rank had begun to end.
    Noticed,
}

/// A failure that may be the cause of the job's end.
#[derive(Debug)]
struct Cause {
    doubt: Doubt,
    /// The place of its rank's first sign among the signs of all ranks.
    sign: u64,
    verdict: Verdict,
}

/// How each rank ended so far, and which failure came first.
///
/// A rank that fails shows *signs*, which are told in the order in which they came: it closes its line without having
/// finalized, it says that the job is to be ended, it ends. A process closes what it holds before its end can be seen,
/// and peers that notice may have ended by then. So while a rank is *ending*, which is after its line was closed and
/// before its end was told, the failure of another is not taken for the cause, unless it is beyond [doubt](Doubt).
#[derive(Debug)]
pub(super) struct Policy {
    program: String,
    exits: Vec<Option<Exit>>,
    /// The place of the first sign of each rank that showed one and did not end well.
    signs: BTreeMap<u32, u64>,
    /// Signs so far.
    shown: u64,
    /// Ranks that are ending, and whose end has not been told yet.
    ending: BTreeMap<u32, u64>,
    /// The failures told so far, by rank: the first of each.
    causes: BTreeMap<u32, Cause>,
    /// The first failure of a rank that had left the job in good order.
    late_failure: Option<(u32, Exit)>,
}

impl Policy {
    pub(super) fn new(size: u32, program: String) -> Self {
        Self {
            program,
            exits: (0..size).map(|_| None).collect(),
            signs: BTreeMap::new(),
            shown: 0,
            ending: BTreeMap::new(),
            causes: BTreeMap::new(),
            late_failure: None,
        }
    }

    /// The place of the first sign of `rank`, which is now if it has shown none.
    fn sign(&mut self, rank: u32) -> u64 {
        self.shown += 1;
        *self.signs.entry(rank).or_insert(self.shown)
    }

    /// `rank` is ending: its line closed before it finalized, or its end will be told next.
    pub(super) fn handle_ending(&mut self, rank: u32) {
        let sign = self.sign(rank);
        self.ending.insert(rank, sign);
    }

    /// `rank` has not ended though its line has been closed for long.
    pub(super) fn handle_overdue(&mut self, rank: u32) -> Verdict {
        // Who asked for the end after that had seen it: this rank cannot be reached.
        let sign = self.sign(rank);
        let noticed = |c: &Cause| c.doubt == Doubt::Noticed && c.sign > sign;
        self.causes.retain(|_, cause| !noticed(cause));
        self.poll_likeliest().unwrap_or_else(|| {
            let words = format!("rank {rank} closed its line without finalizing; ending the job");
            Verdict::new(1, words)
        })
    }

    /// The protocol says that the job must end.
    pub(super) fn handle_said(&mut self, end: End) {
        let rank = end.rank();
        let sign = self.sign(rank);
        let noticed = self.signs.values().any(|other| *other < sign);
        let doubt = if noticed {
            Doubt::Noticed
        } else {
            Doubt::Failed
        };
        let verdict = Self::protocol_end(end);
        self.ending.remove(&rank);
        self.add(rank, doubt, verdict);
    }

    /// Rank `rank`, then at `stage`, ended with `exit`.
    pub(super) fn handle_exit(&mut self, rank: u32, exit: Exit, stage: Stage) {
        let doubt = match exit {
            Exit::Signal(SIGABRT | SIGPIPE) => Doubt::Failed,
            Exit::Signal(_) => Doubt::Killed,
            Exit::Status(0) => Doubt::Left,
            Exit::Status(_) | Exit::Unknown => Doubt::Failed,
        };
        let verdict = self.judge(rank, exit, stage);
        self.ending.remove(&rank);
        match verdict {
            Some(verdict) => self.add(rank, doubt, verdict),
            None => drop(self.signs.remove(&rank)),
        }
    }

    /// What a rank said of its end explains how it ended.
    fn add(&mut self, rank: u32, doubt: Doubt, verdict: Verdict) {
        let sign = self.sign(rank);
        self.causes.entry(rank).or_insert(Cause {
            doubt,
            sign,
            verdict,
        });
    }

    /// The cause of the job's end, where it is known: to be asked when all that has come was handed in.
    pub(super) fn poll_cause(&mut self) -> Option<Verdict> {
        (self.is_sure() || self.ending.is_empty())
            .then(|| self.poll_likeliest())
            .flatten()
    }

    /// Whether a failure was told that may be the cause.
    pub(super) fn suspects(&self) -> bool {
        !self.causes.is_empty()
    }

    /// Whether one was told that is beyond doubt.
    pub(super) fn is_sure(&self) -> bool {
        self.causes.values().any(|c| c.doubt == Doubt::Killed)
    }

    /// The likeliest cause so far; of equal ones that whose first sign was the first.
    fn poll_likeliest(&mut self) -> Option<Verdict> {
        let likeliest = self.causes.values().min_by_key(|c| (c.doubt, c.sign));
        let verdict = likeliest.map(|c| c.verdict.clone());
        self.causes.clear();
        verdict
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

    fn protocol_end(end: End) -> Verdict {
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

    /// Tells of an end, and asks for the cause.
    fn exit(p: &mut Policy, rank: u32, exit: Exit, stage: Stage) -> Option<Verdict> {
        p.handle_exit(rank, exit, stage);
        p.poll_cause()
    }

    fn line(verdict: Option<Verdict>) -> (u8, String) {
        let verdict = verdict.expect("a verdict");
        (verdict.status, verdict.line.unwrap_or_default())
    }

    #[test]
    fn good_ends_are_silent() {
        let mut p = policy(2);
        assert_eq!(exit(&mut p, 0, Exit::Status(0), Finalized), None);
        assert_eq!(p.poll([Finalized, Joined].into_iter()), None);
        assert_eq!(exit(&mut p, 1, Exit::Status(0), Finalized), None);
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
        let end = line(exit(&mut p, 2, Exit::Signal(9), Joined));
        let words = "rank 2 was killed by signal 9 (SIGKILL); ending the job";
        assert_eq!(end, (137, words.to_owned()));
        let mut p = policy(4);
        assert_eq!(line(exit(&mut p, 2, Exit::Status(3), Silent)).0, 3);
    }

    #[test]
    fn a_killed_rank_is_the_cause_though_others_end_first() {
        let mut p = policy(4);
        p.handle_ending(2);
        p.handle_ending(0);
        assert_eq!(exit(&mut p, 0, Exit::Status(1), Joined), None);
        let end = line(exit(&mut p, 2, Exit::Signal(9), Joined));
        let words = "rank 2 was killed by signal 9 (SIGKILL); ending the job";
        assert_eq!(end, (137, words.to_owned()));
    }

    #[test]
    fn the_first_failure_is_told_once_no_other_rank_is_ending() {
        let mut p = policy(4);
        p.handle_ending(1);
        p.handle_ending(3);
        assert_eq!(exit(&mut p, 1, Exit::Status(5), Joined), None);
        let end = line(exit(&mut p, 3, Exit::Status(6), Joined));
        assert_eq!(
            end,
            (5, "rank 1 exited with status 5; ending the job".into())
        );

        // One that only did not finalize is less telling, whichever is told first.
        for ends in [[(1, 0), (3, 6)], [(3, 6), (1, 0)]] {
            let mut p = policy(4);
            p.handle_ending(1);
            p.handle_ending(3);
            let told = ends.map(|(rank, status)| exit(&mut p, rank, Exit::Status(status), Joined));
            assert_eq!(told[0], None);
            assert_eq!(line(told[1].clone()).0, 6);
        }

        let mut p = policy(4);
        p.handle_ending(3);
        assert_eq!(exit(&mut p, 1, Exit::Status(5), Joined), None);
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
            line(exit(&mut p, 0, Exit::Status(3), Joined)).1,
            "rank 0 exited with status 3"
        );
    }

    #[test]
    fn leaving_without_finalize_is_a_failure() {
        let mut p = policy(2);
        let (status, words) = line(exit(&mut p, 1, Exit::Status(0), Joined));
        assert_eq!(status, 1);
        assert!(
            words.contains("rank 1") && words.contains("without finalizing"),
            "{words}"
        );
    }

    #[test]
    fn a_failure_after_finalize_lets_the_others_finish() {
        let mut p = policy(2);
        assert_eq!(exit(&mut p, 1, Exit::Status(5), Finalized), None);
        assert_eq!(p.poll([Joined, Finalized].into_iter()), None);
        assert_eq!(exit(&mut p, 0, Exit::Status(6), Finalized), None);
        let end = line(p.poll([Finalized, Finalized].into_iter()));
        assert_eq!(end, (5, "rank 1 exited with status 5".to_owned()));
    }

    #[test]
    fn programs_that_never_join_are_pointed_out() {
        let mut p = policy(2);
        assert_eq!(exit(&mut p, 0, Exit::Status(0), Silent), None);
        assert_eq!(p.poll([Silent, Silent].into_iter()), None);
        assert_eq!(exit(&mut p, 1, Exit::Status(0), Silent), None);
        let (status, words) = line(p.poll([Silent, Silent].into_iter()));
        assert_eq!(status, 0);
        assert!(words.starts_with("no rank called init: prog"), "{words}");
        let mut p = policy(1);
        exit(&mut p, 0, Exit::Status(0), Silent);
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
        assert_eq!(exit(&mut p, 1, Exit::Status(0), Silent), None);
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
        let mut p = policy(4);
        p.handle_said(end);
        let verdict = p.poll_cause().expect("a verdict");
        assert_eq!(verdict.status, 2);
        let words = "rank 3 aborted the job with status 2: bad input";
        assert_eq!(verdict.line.as_deref(), Some(words));
    }

    fn abort(rank: u32) -> End {
        End::Abort {
            rank,
            code: 1,
            message: "polling: node 1 cannot be reached".into(),
        }
    }

    #[test]
    fn who_notices_is_not_the_cause_whichever_is_told_first() {
        // Rank 1 is killed, or exits; rank 0 notices, and asks for the end.
        for end in [Exit::Signal(9), Exit::Status(3), Exit::Status(0)] {
            let mut p = policy(3);
            p.handle_ending(1);
            p.handle_said(abort(0));
            assert_eq!(p.poll_cause(), None, "{end}");
            p.handle_exit(1, end, Joined);
            let (_, words) = line(p.poll_cause());
            assert!(words.starts_with(&format!("rank 1 {end}")), "{words}");

            let mut p = policy(3);
            p.handle_exit(1, end, Joined);
            p.handle_said(abort(0));
            let (_, words) = line(p.poll_cause());
            assert!(words.starts_with(&format!("rank 1 {end}")), "{words}");
        }
        // It lives, and only its line is closed.
        let mut p = policy(3);
        p.handle_ending(1);
        p.handle_said(abort(0));
        let words = "rank 1 closed its line without finalizing; ending the job";
        assert_eq!(p.handle_overdue(1), Verdict::new(1, words.into()));
        let mut p = policy(3);
        p.handle_said(abort(0));
        p.handle_ending(1);
        assert!(
            line(Some(p.handle_overdue(1)))
                .1
                .starts_with("rank 0 aborted")
        );
        // The kill is told last.
        let mut p = policy(3);
        p.handle_said(abort(0));
        p.handle_exit(1, Exit::Signal(9), Joined);
        assert_eq!(line(p.poll_cause()).0, 137);
    }

    #[test]
    fn a_signal_that_a_lost_peer_costs_is_not_beyond_doubt() {
        for signal in [SIGABRT, SIGPIPE] {
            let mut p = policy(3);
            p.handle_exit(2, Exit::Status(3), Joined);
            p.handle_exit(1, Exit::Signal(signal), Joined);
            assert_eq!(line(p.poll_cause()).0, 3);
            let mut p = policy(3);
            p.handle_exit(1, Exit::Signal(signal), Joined);
            p.handle_exit(2, Exit::Status(3), Joined);
            assert_eq!(i32::from(line(p.poll_cause()).0), 128 + signal);
        }
    }

    #[test]
    fn an_abort_of_a_rank_explains_its_exit_and_a_good_end_before_it_is_no_sign() {
        let mut p = policy(3);
        p.handle_ending(2);
        p.handle_exit(2, Exit::Status(0), Finalized);
        p.handle_said(abort(0));
        p.handle_exit(0, Exit::Status(9), Joined);
        p.handle_exit(1, Exit::Status(5), Joined);
        let (status, words) = line(p.poll_cause());
        assert_eq!(status, 1);
        assert!(words.starts_with("rank 0 aborted"), "{words}");
    }
}
