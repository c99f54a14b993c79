//! The launcher's half of PMI-1: a state machine with no I/O and no clock.
//!
//! Lines of ranks go in by [`PmiServer::handle_line`], lines to ranks come out of it; what ends the whole
//! job comes out of [`PmiServer::poll_end`].
//!
//! ```text
//!              init                    finalize
//!   Silent ───────────▶ Joined ───────────────────▶ Finalized
//!                        │  ▲
//!             barrier_in │  │ all are in: barrier_out to each, puts become visible
//!                        ▼  │
//!                      waiting
//! ```
//!
//! A rank may join more than once: an MPI library and the Portals library of one process share its line, each with
//! its own init and finalize. It has left when as many have finalized as have joined, or when one has and the line is
//! closed: MPICH's library shuts it down for all.
//!
//! A put becomes visible when a barrier that follows it is complete, which is the least that PMI-1
//! promises: a program that forgets the fence fails here as it would on a large machine.

use std::collections::BTreeMap;

use portals_shim::job::wire::{Line, excerpt, format};

/// Longest names and values, terminating zero included, as announced to ranks. They are MPICH's.
const KVSNAME_MAX: usize = 256;
const KEYLEN_MAX: usize = 64;
const VALLEN_MAX: usize = 1024;

/// How far a rank has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// It has said nothing: perhaps not a program for this launcher at all.
    Silent,
    /// It has joined the job.
    Joined,
    /// It has left the job in good order.
    Finalized,
}

/// Why the job must end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// A rank asked for it.
    Abort {
        rank: u32,
        code: i32,
        message: String,
    },
    /// A rank does not follow the protocol, and others may wait for it for ever.
    Broken { rank: u32, reason: String },
}

impl End {
    /// Whose doing it is.
    pub(super) fn rank(&self) -> u32 {
        match self {
            Self::Abort { rank, .. } | Self::Broken { rank, .. } => *rank,
        }
    }
}

#[derive(Debug, Clone)]
struct RankState {
    stage: Stage,
    /// Libraries of the process that have joined and not finalized.
    libraries: u32,
    /// One of them has finalized.
    leaving: bool,
    waiting: bool,
    /// Inside a spawn request, which is the one message of several lines.
    spawning: bool,
}

/// The job's key space, barriers and ranks.
#[derive(Debug)]
pub(crate) struct PmiServer {
    id: String,
    ranks: Vec<RankState>,
    /// What ranks may get.
    visible: BTreeMap<String, String>,
    /// Puts since the last complete barrier.
    pending: BTreeMap<String, String>,
    end: Option<End>,
}

impl PmiServer {
    /// A server for `size` ranks, all on this machine; `id` is the job's name, one word.
    pub(crate) fn new(size: u32, id: &str) -> Self {
        Self::with_mapping(size, id, format!("(vector,(0,1,{size}))"))
    }

    /// A server for `size` ranks on the machines that `mapping` says, in the words of PMI.
    pub(crate) fn with_mapping(size: u32, id: &str, mapping: String) -> Self {
        let rank = RankState {
            stage: Stage::Silent,
            libraries: 0,
            leaving: false,
            waiting: false,
            spawning: false,
        };
        Self {
            id: id.to_owned(),
            ranks: (0..size).map(|_| rank.clone()).collect(),
            visible: BTreeMap::from([("PMI_process_mapping".to_owned(), mapping)]),
            pending: BTreeMap::new(),
            end: None,
        }
    }

    /// How far `rank` has come; a rank outside the job is silent.
    pub(crate) fn stage(&self, rank: u32) -> Stage {
        self.rank(rank).map_or(Stage::Silent, |r| r.stage)
    }

    /// The stages of all ranks, in order.
    pub(crate) fn stages(&self) -> impl Iterator<Item = Stage> + '_ {
        self.ranks.iter().map(|r| r.stage)
    }

    /// Why the job must end, once: the first reason counts.
    pub(crate) fn poll_end(&mut self) -> Option<End> {
        self.end.take()
    }

    /// Takes one line of `rank`, without its newline, and returns the lines to send, in order.
    pub(crate) fn handle_line(&mut self, rank: u32, text: &str) -> Vec<(u32, String)> {
        let Some(state) = self.rank(rank) else {
            return Vec::new();
        };
        if state.spawning {
            return self.spawn_line(rank, text);
        }
        let line = match Line::parse(text) {
            Ok(line) => line,
            Err(error) => {
                self.broken(rank, format!("sent {:?}: {error}", excerpt(text)));
                return Vec::new();
            }
        };
        if line.field("mcmd") == Some("spawn") {
            self.set(rank, |r| r.spawning = true);
            return Vec::new();
        }
        let Some(command) = line.command() else {
            self.broken(rank, format!("sent {:?}, which has no cmd", excerpt(text)));
            return Vec::new();
        };
        let stage = self.stage(rank);
        if stage == Stage::Silent && !matches!(command, "init" | "abort") {
            self.broken(rank, format!("asked {:?} before init", excerpt(command)));
            return Vec::new();
        }
        if stage == Stage::Finalized && command != "abort" {
            self.broken(rank, format!("asked {:?} after finalize", excerpt(command)));
            return Vec::new();
        }
        let answer = match command {
            "init" => self.init(rank, &line),
            "get_maxes" => format(
                "maxes",
                &[
                    ("rc", &0),
                    ("kvsname_max", &KVSNAME_MAX),
                    ("keylen_max", &KEYLEN_MAX),
                    ("vallen_max", &VALLEN_MAX),
                ],
            ),
            "get_appnum" => format("appnum", &[("rc", &0), ("appnum", &0)]),
            "get_my_kvsname" => format("my_kvsname", &[("rc", &0), ("kvsname", &self.id)]),
            "get_universe_size" => {
                format("universe_size", &[("rc", &0), ("size", &self.ranks.len())])
            }
            "put" => self.put(&line),
            "get" => self.get(&line),
            "barrier_in" => return self.barrier(rank),
            "finalize" => self.finalize(rank),
            "abort" => {
                // The code is the rank's; a line without one is still an abort.
                let code = line.number("exitcode").unwrap_or(1);
                let message = line.field("message").or_else(|| line.field("error_msg"));
                let message = message.unwrap_or_default().to_owned();
                self.end.get_or_insert(End::Abort {
                    rank,
                    code,
                    message,
                });
                return Vec::new();
            }
            "publish_name" => refusal("publish_result"),
            "unpublish_name" => refusal("unpublish_result"),
            "lookup_name" => refusal("lookup_result"),
            _ => {
                self.broken(
                    rank,
                    format!("asked {:?}, which PMI-1 does not have", excerpt(command)),
                );
                return Vec::new();
            }
        };
        vec![(rank, answer)]
    }

    /// Rank `rank` sends a line that has no end.
    pub(crate) fn handle_endless(&mut self, rank: u32) {
        self.broken(rank, "sent a line without an end".to_owned());
    }

    fn init(&mut self, rank: u32, line: &Line) -> String {
        if line.number::<u32>("pmi_version") != Some(1) {
            return format(
                "response_to_init",
                &[
                    ("rc", &-1),
                    ("pmi_version", &1),
                    ("pmi_subversion", &1),
                    ("msg", &"only_PMI_1"),
                ],
            );
        }
        self.set(rank, |r| {
            r.stage = Stage::Joined;
            r.libraries = r.libraries.saturating_add(1);
        });
        format(
            "response_to_init",
            &[("rc", &0), ("pmi_version", &1), ("pmi_subversion", &1)],
        )
    }

    fn put(&mut self, line: &Line) -> String {
        let refuse = |why: &str| format("put_result", &[("rc", &-1), ("msg", &why)]);
        if line.field("kvsname") != Some(self.id.as_str()) {
            return refuse("unknown_kvsname");
        }
        let key = line.field("key").unwrap_or_default();
        let value = line.field("value").unwrap_or_default();
        if key.is_empty() || key.len() >= KEYLEN_MAX {
            return refuse("bad_key_length");
        }
        if value.len() >= VALLEN_MAX {
            return refuse("value_too_long");
        }
        if self.visible.contains_key(key) || self.pending.contains_key(key) {
            return refuse("duplicate_key");
        }
        self.pending.insert(key.to_owned(), value.to_owned());
        format("put_result", &[("rc", &0), ("msg", &"success")])
    }

    fn get(&self, line: &Line) -> String {
        if line.field("kvsname") != Some(self.id.as_str()) {
            return format("get_result", &[("rc", &-1), ("msg", &"unknown_kvsname")]);
        }
        match line.field("key").and_then(|key| self.visible.get(key)) {
            Some(value) => format(
                "get_result",
                &[("rc", &0), ("msg", &"success"), ("value", value)],
            ),
            None => format("get_result", &[("rc", &-1), ("msg", &"key_not_found")]),
        }
    }

    fn barrier(&mut self, rank: u32) -> Vec<(u32, String)> {
        if self.rank(rank).is_some_and(|r| r.waiting) {
            self.broken(rank, "entered the barrier it is in".to_owned());
            return Vec::new();
        }
        self.set(rank, |r| r.waiting = true);
        self.refuse_barrier_without(|r| r.stage == Stage::Finalized);
        if !self.ranks.iter().all(|r| r.waiting) {
            return Vec::new();
        }
        self.visible.append(&mut self.pending);
        for rank in &mut self.ranks {
            rank.waiting = false;
        }
        let out = format("barrier_out", &[("rc", &0)]);
        (0..)
            .zip(&self.ranks)
            .map(|(rank, _)| (rank, out.clone()))
            .collect()
    }

    fn finalize(&mut self, rank: u32) -> String {
        self.set(rank, |r| {
            r.libraries = r.libraries.saturating_sub(1);
            r.leaving = true;
            if r.libraries == 0 {
                r.stage = Stage::Finalized;
            }
        });
        self.refuse_barrier_without(|r| r.stage == Stage::Finalized);
        format("finalize_ack", &[("rc", &0)])
    }

    /// Nothing more comes from `rank`; how far it has come.
    pub(crate) fn handle_closed(&mut self, rank: u32) -> Stage {
        self.set(rank, |r| {
            if r.leaving {
                r.stage = Stage::Finalized;
            }
        });
        self.refuse_barrier_without(|r| r.stage == Stage::Finalized);
        self.stage(rank)
    }

    /// Ends the job where a rank waits in a barrier that some rank which is `gone` will never enter.
    fn refuse_barrier_without(&mut self, gone: impl Fn(&RankState) -> bool) {
        let position = |found: Option<usize>| found.and_then(|at| u32::try_from(at).ok());
        let waiter = position(self.ranks.iter().position(|r| r.waiting));
        let leaver = position(self.ranks.iter().position(gone));
        if let (Some(waiter), Some(leaver)) = (waiter, leaver) {
            let reason = format!("finalized although rank {waiter} waits for it in a barrier");
            self.broken(leaver, reason);
        }
    }

    fn spawn_line(&mut self, rank: u32, text: &str) -> Vec<(u32, String)> {
        if text.trim() != "endcmd" {
            return Vec::new();
        }
        self.set(rank, |r| r.spawning = false);
        vec![(rank, refusal("spawn_result"))]
    }

    fn broken(&mut self, rank: u32, reason: String) {
        self.end.get_or_insert(End::Broken { rank, reason });
    }

    fn rank(&self, rank: u32) -> Option<&RankState> {
        self.ranks.get(usize::try_from(rank).ok()?)
    }

    fn set(&mut self, rank: u32, change: impl FnOnce(&mut RankState)) {
        if let Some(state) = usize::try_from(rank)
            .ok()
            .and_then(|at| self.ranks.get_mut(at))
        {
            change(state);
        }
    }
}

/// The answer to an operation that starts or finds other jobs.
fn refusal(command: &str) -> String {
    format(
        command,
        &[("rc", &-1), ("msg", &"not_offered_by_this_launcher")],
    )
}

#[cfg(test)]
mod tests;
