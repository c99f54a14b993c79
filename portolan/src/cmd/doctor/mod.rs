//! `portolan doctor`: tries what a job needs on this machine, and says how to mend what does not work.
//!
//! `info` looks; this does: a job of two ranks on each fabric that can be used, one by each launcher that is in `PATH`, and the
//! libfabric provider as a program would find it.

mod trial;

use crate::cmd::{info, say};
use crate::error::CmdError;
use clap::Args;
use portals_shim::fabric::FabricKind;
use portals_shim::limit::limit;
use portals_shim::unknown_variables;
use rustix::process::Resource;
use serde::Serialize;
use std::path::PathBuf;
use trial::Trial;

/// Options of `portolan doctor`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
    /// End a trial that takes longer
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

/// How a finding is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// It works.
    Good,
    /// It is not here, and nobody need miss it.
    Absent,
    /// It works, but not as well or not for everything.
    Warning,
    /// It should work and does not.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: String,
    verdict: Verdict,
    said: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

impl Finding {
    fn new(what: impl Into<String>, verdict: Verdict, said: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            verdict,
            said: said.into(),
            fix: None,
        }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }

    fn words(&self) -> String {
        let verdict = match self.verdict {
            Verdict::Good => "good",
            Verdict::Absent => "absent",
            Verdict::Warning => "warning",
            Verdict::Bad => "bad",
        };
        let fix = self.fix.as_ref();
        let fix = fix.map_or_else(String::new, |fix| format!("\n{:9}fix: {fix}", ""));
        format!("{verdict:<8} {}: {}{fix}", self.what, self.said)
    }
}

/// Locked memory below which long messages over RDMA may find no room: three quarters of it hold what is under way.
const LOCKED: u64 = 256 << 20;

/// Tries everything, printing each finding as it comes; 1 if something is bad.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let own = std::env::current_exe().map_err(crate::cmd::failed("find this executable"))?;
    let trial = Trial::new(options.timeout);
    let mut bad = false;
    let mut tell = |finding: Finding| -> Result<(), CmdError> {
        bad |= finding.verdict == Verdict::Bad;
        if options.json {
            let text = serde_json::to_string(&finding)
                .map_err(|error| CmdError::Failed(format!("cannot write JSON: {error}")))?;
            return say(&text);
        }
        say(&finding.words())
    };
    let mut usable = Vec::new();
    for kind in [FabricKind::Shm, FabricKind::Verbs, FabricKind::Seastar] {
        let reason = info::why_not(kind);
        if reason.is_none() {
            usable.push(kind);
        }
        tell(fabric(kind, reason, || trial.job(&own, kind)))?;
    }
    if usable.contains(&FabricKind::Verbs) {
        let locked = limit(Resource::Memlock).ok().map(|l| l.current);
        tell(locked_memory(locked))?;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut launchers = 0;
    for one in trial::LAUNCHERS {
        if let Some(file) = info::program(one.name, &path) {
            launchers += 1;
            let tries = |choice: Option<&str>| trial.launch(&one, &file, choice, &own);
            tell(launcher(one.name, one.choices, tries))?;
        }
    }
    if launchers == 0 {
        let said = "none is in PATH; `portolan run` starts jobs, on several machines by --hosts";
        tell(Finding::new("launchers", Verdict::Absent, said))?;
    }
    let beside = provider_beside(&own);
    let asks = info::program("fi_info", &path);
    tell(provider(
        beside,
        asks.map(|fi_info| move |folder: &_| trial.offers(&fi_info, folder)),
    ))?;
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for line in unknown_variables(names) {
        let finding = Finding::new("environment", Verdict::Warning, line);
        tell(finding.fix("unset it, or see `portolan info` for the names"))?;
    }
    Ok(u8::from(bad))
}

/// What a trial ends with: nothing, or why it is no good.
type Tried = Result<(), String>;

fn fabric(kind: FabricKind, reason: Option<String>, job: impl FnOnce() -> Tried) -> Finding {
    let what = format!("fabric {kind}");
    if let Some(reason) = reason {
        // The reason says what to do. Not every machine has RDMA; memory and a processor all have.
        let verdict = match kind {
            FabricKind::Verbs => Verdict::Absent,
            _ => Verdict::Bad,
        };
        return Finding::new(what, verdict, reason);
    }
    match job() {
        Ok(()) => Finding::new(
            what,
            Verdict::Good,
            "two ranks exchanged all kinds of messages",
        ),
        Err(said) => Finding::new(what, Verdict::Bad, said).fix(format!(
            "see why by PORTOLAN_LOG=info portolan run -n 2 --fabric {kind} -- portolan messages"
        )),
    }
}

/// `None`: the system does not tell; no limit is `Some(None)`.
fn locked_memory(locked: Option<Option<u64>>) -> Finding {
    let what = "locked memory";
    match locked {
        None => Finding::new(what, Verdict::Warning, "the system does not tell the limit"),
        Some(None) => Finding::new(what, Verdict::Good, "unlimited"),
        Some(Some(bytes)) if bytes >= LOCKED => {
            Finding::new(what, Verdict::Good, format!("{} MiB", bytes >> 20))
        }
        Some(Some(bytes)) => {
            let said = format!("{} KiB, which long messages over RDMA exceed", bytes >> 10);
            Finding::new(what, Verdict::Warning, said).fix(
                "`* - memlock unlimited` in /etc/security/limits.conf; under Slurm LimitMEMLOCK=infinity for slurmd",
            )
        }
    }
}

/// A launcher as it is, or with the first of its choices by which ranks meet.
fn launcher(name: &str, choices: &[&str], tries: impl Fn(Option<&str>) -> Tried) -> Finding {
    let what = format!("launcher {name}");
    let Err(said) = tries(None) else {
        return Finding::new(what, Verdict::Good, "started two ranks, which met");
    };
    match choices.iter().find(|choice| tries(Some(choice)).is_ok()) {
        Some(choice) => {
            let said = format!("started two ranks, which met, with {choice} and not without");
            let default = choice.trim_start_matches("--mpi=");
            Finding::new(what, Verdict::Warning, said).fix(format!(
                "`{name} {choice}`, or MpiDefault={default} in slurm.conf"
            ))
        }
        None => Finding::new(what, Verdict::Warning, said)
            .fix("`portolan run` needs no other launcher; see Starting a job in the book"),
    }
}

/// The folder of the provider in the installation that the command is of.
fn provider_beside(own: &std::path::Path) -> Option<PathBuf> {
    let provider = crate::installed::library(own, "libfabric/libportolan-fi.so")?;
    provider.parent().map(PathBuf::from)
}

fn provider(
    beside: Option<PathBuf>,
    offers: Option<impl FnOnce(&std::path::Path) -> Tried>,
) -> Finding {
    let what = "libfabric provider";
    let (Some(folder), Some(offers)) = (&beside, offers) else {
        let said = match beside {
            None => "not installed beside this command".to_owned(),
            Some(folder) => format!("{}; there is no fi_info to ask", folder.display()),
        };
        return Finding::new(what, Verdict::Absent, said);
    };
    match offers(folder) {
        Ok(()) => {
            let said = format!(
                "libfabric loads it with FI_PROVIDER_PATH={}",
                folder.display()
            );
            Finding::new(what, Verdict::Good, said)
        }
        Err(said) => Finding::new(what, Verdict::Bad, said).fix(format!(
            "see why by FI_LOG_LEVEL=info FI_PROVIDER_PATH={} fi_info -p portolan",
            folder.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fabric_is_tried_only_where_it_can_be_used() {
        let never = || panic!("it cannot be used");
        let absent = fabric(FabricKind::Verbs, Some("no device".into()), never);
        assert_eq!(
            (absent.verdict, absent.said.as_str()),
            (Verdict::Absent, "no device")
        );
        let none = fabric(FabricKind::Shm, Some("no memfd".into()), never);
        assert_eq!(none.verdict, Verdict::Bad);
        assert_eq!(
            fabric(FabricKind::Shm, None, || Ok(())).verdict,
            Verdict::Good
        );
        let failed = fabric(FabricKind::Verbs, None, || Err("it hung".into()));
        assert_eq!(failed.verdict, Verdict::Bad);
        assert_eq!(failed.said, "it hung");
        assert!(failed.fix.unwrap().contains("--fabric verbs"));
    }

    #[test]
    fn little_locked_memory_is_warned_of_with_the_remedy() {
        assert_eq!(locked_memory(Some(None)).verdict, Verdict::Good);
        assert_eq!(locked_memory(Some(Some(LOCKED))).verdict, Verdict::Good);
        let little = locked_memory(Some(Some(LOCKED - 1)));
        assert_eq!(little.verdict, Verdict::Warning);
        assert!(little.fix.unwrap().contains("memlock unlimited"));
        assert_eq!(locked_memory(None).verdict, Verdict::Warning);
    }

    #[test]
    fn a_provider_that_is_not_loaded_is_bad_and_a_missing_one_is_not() {
        let folder = || Some(PathBuf::from("/p/lib/libfabric"));
        let never = |_: &std::path::Path| -> Tried { panic!("there is none") };
        assert_eq!(provider(None, Some(never)).verdict, Verdict::Absent);
        let unasked = provider(folder(), None::<fn(&std::path::Path) -> Tried>);
        assert_eq!(unasked.verdict, Verdict::Absent);
        let good = provider(folder(), Some(|_: &std::path::Path| Ok(())));
        assert!(good.said.contains("FI_PROVIDER_PATH=/p/lib/libfabric"));
        let bad = provider(
            folder(),
            Some(|_: &std::path::Path| Err("not offered".into())),
        );
        assert_eq!(bad.verdict, Verdict::Bad);
    }

    #[test]
    fn a_finding_says_its_fix_on_a_line_of_its_own() {
        let plain = Finding::new("x", Verdict::Good, "it works");
        assert_eq!(plain.words(), "good     x: it works");
        let fix = Finding::new("x", Verdict::Bad, "it does not").fix("do that");
        assert_eq!(
            fix.words(),
            "bad      x: it does not\n         fix: do that"
        );
    }
}
