//! Which fabric a job takes that names none. Rank 0 decides for all, from what each rank has said of itself.
//!
//! ```text
//!  every rank                                               rank 0
//!  say the machine, and what the user asks for              ·
//!  ──────────────────────────────────── fence ────────────────────────────────────
//!  ·                                                        read all, decide, say so
//!  ──────────────────────────────────── fence ────────────────────────────────────
//!  read the decision; between machines: try the device,     ·
//!  say whether that works
//!  ──────────────────────────────────── fence ────────────────────────────────────
//!  ·                                                        read all, decide, say so
//!  ──────────────────────────────────── fence ────────────────────────────────────
//!  read the decision
//! ```
//!
//! One rank decides, so that no two ranks can take different fabrics, and so that a rank reads two values and not those of all.
//! Ranks of one machine open no device.

use crate::fabric::{FabricChoice, FabricConfig, FabricError, FabricKind, ModelOption};
use fabric_shm::machine_of;
use launch::{Job, JobError};
use std::collections::BTreeSet;
use std::sync::Once;

/// Set by a launcher that has taken the fabric for its ranks, where the user named none: why it is this one.
pub const REASON_VARIABLE: &str = "PORTOLAN_FABRIC_REASON";

/// The choice of a job with the fabric that it comes to, the same on all ranks. Collective where the choice names no fabric;
/// rank 0 then says what was taken.
pub fn resolve(job: &Job, config: &FabricConfig) -> Result<FabricConfig, FabricError> {
    let choice = config.fabric;
    let (kind, reason) = match choice {
        FabricChoice::Named(kind) => (kind, std::env::var(REASON_VARIABLE).ok()),
        _ if job.size() == 1 => (choice.on_one_machine(), choice.reason(1)),
        _ => {
            let (kind, reason) = ask_all(job, config)?;
            (kind, Some(reason))
        }
    };
    if let Some(reason) = reason.filter(|reason| job.rank() == 0 && !reason.is_empty()) {
        say(kind, &reason);
    }
    Ok(FabricConfig {
        fabric: kind.into(),
        ..config.clone()
    })
}

/// Says once in this process which fabric was taken; a job may open several interfaces.
fn say(kind: FabricKind, reason: &str) {
    static ONCE: Once = Once::new();
    let simulated = match kind {
        FabricKind::Seastar => " (a simulation)",
        FabricKind::Verbs | FabricKind::Shm => "",
    };
    ONCE.call_once(|| host::note(format_args!("fabric {kind}{simulated}: {reason}")));
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Statement {
    /// Its host id, one word.
    host: String,
    /// `Auto`, or the property of the model.
    choice: FabricChoice,
}

impl Statement {
    fn to_text(&self) -> String {
        let asked = match self.choice {
            FabricChoice::Model(option) => option.variable,
            _ => FabricChoice::AUTO,
        };
        format!("{asked} {}", self.host)
    }

    /// What a peer has said; `None` if it makes no sense.
    fn from_text(text: &str) -> Option<Self> {
        let (asked, host) = text.split_once(' ')?;
        let option = ModelOption::ALL.into_iter().find(|o| o.variable == asked);
        let choice = match option {
            Some(option) => FabricChoice::Model(option),
            None if asked == FabricChoice::AUTO => FabricChoice::Auto,
            None => return None,
        };
        let host = host.to_owned();
        Some(Self { host, choice })
    }

    /// The name of its host.
    fn name(&self) -> &str {
        self.host.split('/').next().unwrap_or_default()
    }
}

/// What rank 0 decides.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// This fabric, for this reason.
    Take(FabricKind, String),
    /// Every rank is to try its device.
    TryDevices,
    /// None, for this reason.
    Refuse(String),
}

impl Decision {
    const TRY: &str = "devices";
    const REFUSE: &str = "none";

    fn to_text(&self) -> String {
        match self {
            Self::Take(kind, reason) => format!("{kind} {reason}"),
            Self::TryDevices => format!("{} ", Self::TRY),
            Self::Refuse(reason) => format!("{} {reason}", Self::REFUSE),
        }
    }

    /// What rank 0 has said; `None` if it makes no sense.
    fn from_text(text: &str) -> Option<Self> {
        let (word, reason) = text.split_once(' ')?;
        Some(match word {
            Self::TRY => Self::TryDevices,
            Self::REFUSE => Self::Refuse(reason.to_owned()),
            kind => Self::Take(kind.parse().ok()?, reason.to_owned()),
        })
    }

    /// Of ranks that have said this of themselves; `None` for one that has said nothing.
    fn by_place(said: &[Option<Statement>]) -> Self {
        let Some(all) = said.iter().cloned().collect::<Option<Vec<_>>>() else {
            let silent = said.iter().position(Option::is_none).unwrap_or_default();
            return Self::Refuse(format!("rank {silent} {NOT_ALIKE}"));
        };
        let asks = |s: &Statement| matches!(s.choice, FabricChoice::Model(_));
        let model = (0..).zip(&all).find(|(_, s)| asks(s));
        let other = (0..).zip(&all).find(|(_, s)| !asks(s));
        match (model, other) {
            (Some((rank, model)), Some((other, no_model))) => {
                let variable = match model.choice {
                    FabricChoice::Model(option) => option.variable,
                    _ => FabricChoice::AUTO,
                };
                return Self::Refuse(format!(
                    "rank {rank} on {} asks for the model by {variable}, rank {other} on {} does not; \
                     set the variable for all ranks or for none",
                    model.name(),
                    no_model.name()
                ));
            }
            (None, Some(_)) if machines(&all) > 1 => return Self::TryDevices,
            _ => {}
        }
        let ranks = u32::try_from(all.len()).unwrap_or(u32::MAX);
        let choice = all.first().map_or(FabricChoice::Auto, |s| s.choice);
        let reason = choice.reason(ranks).unwrap_or_default();
        Self::Take(choice.on_one_machine(), reason)
    }

    /// Of ranks on several machines that have tried their devices; `shares` says whether ranks of one machine share memory.
    fn by_devices(all: &[Statement], tried: &[Result<(), String>], shares: bool) -> Self {
        let (ranks, machines) = (all.len(), machines(all));
        let first = (0..).zip(all.iter().zip(tried)).find_map(|(rank, (s, t))| {
            let why = t.as_ref().err()?;
            Some((rank, s.name(), why))
        });
        let Some((rank, host, why)) = first else {
            let sharing = if shares && ranks > machines {
                ", and those of one machine share memory"
            } else {
                ""
            };
            let reason = format!("{ranks} ranks are on {machines} machines{sharing}");
            return Self::Take(FabricKind::Verbs, reason);
        };
        let such = match tried.iter().filter(|t| t.is_err()).count() {
            1 => String::new(),
            such => format!(", the first of {such} such ranks,"),
        };
        Self::Refuse(format!(
            "{ranks} ranks are on {machines} machines, and rank {rank} on {host}{such} has no RDMA device to use: {why}"
        ))
    }
}

/// How many machines ranks are on.
fn machines(all: &[Statement]) -> usize {
    let each = all.iter().map(|s| machine_of(&s.host));
    each.collect::<BTreeSet<_>>().len()
}

/// The decision of rank 0. Collective.
fn ask_all(job: &Job, config: &FabricConfig) -> Result<(FabricKind, String), FabricError> {
    let own = Statement {
        host: job.host().to_owned(),
        choice: config.fabric,
    };
    let exchange = Exchange {
        job,
        opening: job.next_opening(),
    };
    let mut statements = Vec::new();
    let decision = exchange.round("place", &own.to_text(), |said| {
        let parse = |text: Option<String>| Statement::from_text(&text?);
        let said: Vec<_> = said.into_iter().map(parse).collect();
        let decision = Decision::by_place(&said);
        statements = said.into_iter().flatten().collect();
        decision
    })?;
    let decision = match decision {
        Decision::TryDevices => {
            let tried = super::check(&FabricConfig {
                fabric: FabricKind::Verbs.into(),
                ..config.clone()
            });
            let said = tried.map_or_else(FabricError::into_reason, |()| String::new());
            exchange.round("device", &said, |said| {
                let tried = said.into_iter().map(|text| match text {
                    Some(text) if text.is_empty() => Ok(()),
                    Some(why) => Err(why),
                    None => Err("it has said nothing of one".to_owned()),
                });
                let tried: Vec<_> = tried.collect();
                Decision::by_devices(&statements, &tried, config.most_sharing != 1)
            })?
        }
        decision => decision,
    };
    match decision {
        Decision::Take(kind, reason) => Ok((kind, reason)),
        Decision::Refuse(reason) => Err(FabricError::Undecided { reason }),
        Decision::TryDevices => Err(not_alike("rank 0")),
    }
}

/// What is the matter with a rank that does not say what the others wait for.
const NOT_ALIKE: &str = "has taken another fabric by name, or is of another version; PORTOLAN_FABRIC must be the same for all ranks";

fn not_alike(who: &str) -> FabricError {
    let reason = format!("{who} {NOT_ALIKE}");
    FabricError::Undecided { reason }
}

/// The error of a fabric's opening: a value that is not there is one of a rank that opens another fabric.
pub(super) fn explain(error: FabricError) -> FabricError {
    match error {
        FabricError::Job(JobError::NoSuchKey { .. }) => not_alike("another rank"),
        error => error,
    }
}

/// The values of one opening.
struct Exchange<'a> {
    job: &'a Job,
    opening: String,
}

impl Exchange<'_> {
    /// Every rank says something, rank 0 decides from it, and all have the decision.
    fn round(
        &self,
        about: &str,
        said: &str,
        decide: impl FnOnce(Vec<Option<String>>) -> Decision,
    ) -> Result<Decision, FabricError> {
        let Self { job, opening } = self;
        // The number of an opening stands last: behind the key alone a rank's number would be taken for one.
        let of = |rank: u32| format!("portolan.fabric.{about}.said.{rank}{opening}");
        let decided = format!("portolan.fabric.{about}.decided{opening}");
        job.put(&of(job.rank()), said)?;
        job.fence()?;
        if job.rank() == 0 {
            let all = (0..job.size()).map(|rank| match job.get(&of(rank)) {
                Ok(text) => Ok(Some(text)),
                Err(JobError::NoSuchKey { .. }) => Ok(None),
                Err(error) => Err(error),
            });
            let decision = decide(all.collect::<Result<_, _>>()?);
            job.put(&decided, decision.to_text())?;
            job.fence()?;
            return Ok(decision);
        }
        job.fence()?;
        let decision = match job.get(&decided) {
            Ok(text) => Decision::from_text(&text),
            Err(JobError::NoSuchKey { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        decision.ok_or_else(|| not_alike("rank 0"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rank of a host with this name, on this start of a kernel.
    fn on(name: &str, boot: &str) -> Statement {
        Statement {
            host: format!("{name}/{boot}/ipc:[1]"),
            choice: FabricChoice::Auto,
        }
    }

    fn asking(option: ModelOption, mut of: Statement) -> Statement {
        of.choice = FabricChoice::Model(option);
        of
    }

    fn decided(said: &[Statement]) -> Decision {
        let said: Vec<_> = said.iter().cloned().map(Some).collect();
        Decision::by_place(&said)
    }

    #[test]
    fn ranks_of_one_kernel_share_memory_whatever_their_names_are() {
        let taken = Decision::Take(FabricKind::Shm, "all 3 ranks are on one machine".to_owned());
        let containers = [on("a", "1"), on("b", "1"), on("c", "1")];
        assert_eq!(decided(&containers), taken);
    }

    #[test]
    fn ranks_of_two_kernels_need_devices_though_their_names_are_equal() {
        let clones = [on("node", "1"), on("node", "1"), on("node", "2")];
        assert_eq!(decided(&clones), Decision::TryDevices);
        let unknown = [on("a", ""), on("b", "")];
        assert_eq!(decided(&unknown), Decision::TryDevices);
    }

    #[test]
    fn the_model_is_taken_only_where_all_ask_for_it() {
        let far = [on("a", "1"), on("b", "2")];
        let all = far.clone().map(|s| asking(ModelOption::TOPOLOGY, s));
        let Decision::Take(FabricKind::Seastar, reason) = decided(&all) else {
            panic!("{:?}", decided(&all))
        };
        assert!(reason.contains("PORTOLAN_TOPOLOGY"), "{reason}");

        let [first, second] = far;
        let refused = decided(&[first, asking(ModelOption::MACHINE, second)]);
        let words = "rank 1 on b asks for the model by PORTOLAN_MACHINE, rank 0 on a does not; \
                     set the variable for all ranks or for none";
        assert_eq!(refused, Decision::Refuse(words.to_owned()));
    }

    #[test]
    fn a_rank_that_says_nothing_is_named() {
        let said = [Some(on("a", "1")), None, Some(on("a", "1"))];
        let Decision::Refuse(reason) = Decision::by_place(&said) else {
            panic!("taken")
        };
        assert!(reason.starts_with("rank 1 "), "{reason}");
        assert!(reason.contains("PORTOLAN_FABRIC"), "{reason}");
    }

    #[test]
    fn a_missing_value_is_explained_and_other_errors_stay() {
        let key = "portolan.shm".to_owned();
        let missing = FabricError::Job(JobError::NoSuchKey { key });
        let said = explain(missing).to_string();
        assert!(
            said.contains("PORTOLAN_FABRIC must be the same for all ranks"),
            "{said}"
        );
        let gone = FabricError::Job(JobError::LauncherGone { doing: "fence" });
        assert!(matches!(
            explain(gone),
            FabricError::Job(JobError::LauncherGone { .. })
        ));
    }

    #[test]
    fn machines_are_joined_by_devices_if_every_rank_has_one() {
        let all = [on("a", "1"), on("a", "1"), on("b", "2")];
        let usable = vec![Ok(()); 3];
        let taken = |reason: &str| Decision::Take(FabricKind::Verbs, reason.to_owned());
        let share = "3 ranks are on 2 machines, and those of one machine share memory";
        assert_eq!(Decision::by_devices(&all, &usable, true), taken(share));
        let apart = taken("3 ranks are on 2 machines");
        assert_eq!(Decision::by_devices(&all, &usable, false), apart);

        let missing = || Err("no RDMA device: add SoftRoCE".to_owned());
        let one = [Ok(()), Ok(()), missing()];
        let words = "3 ranks are on 2 machines, and rank 2 on b has no RDMA device to use: no RDMA device: add SoftRoCE";
        let refused = |words: &str| Decision::Refuse(words.to_owned());
        assert_eq!(Decision::by_devices(&all, &one, true), refused(words));
        let two = [missing(), Ok(()), missing()];
        let words = "3 ranks are on 2 machines, and rank 0 on a, the first of 2 such ranks, has no RDMA device to use: \
                     no RDMA device: add SoftRoCE";
        assert_eq!(Decision::by_devices(&all, &two, true), refused(words));
    }

    #[test]
    fn statements_and_decisions_travel_as_text() {
        for statement in [on("a", "1"), asking(ModelOption::FAULTS, on("b", "2"))] {
            let text = statement.to_text();
            assert_eq!(Statement::from_text(&text), Some(statement));
        }
        for decision in [
            Decision::Take(FabricKind::Shm, "one machine".to_owned()),
            Decision::TryDevices,
            Decision::Refuse("no device: add one".to_owned()),
        ] {
            let text = decision.to_text();
            assert_eq!(Decision::from_text(&text), Some(decision));
        }
        for nonsense in ["", "auto", "myrinet a/1/2", "PORTOLAN_FABRIC a/1/2"] {
            assert_eq!(Statement::from_text(nonsense), None, "{nonsense}");
            assert_eq!(Decision::from_text(nonsense), None, "{nonsense}");
        }
    }
}
