//! How the launcher says that this process is a rank.
//!
//! Launchers stand under one another (`mpirun` within `srun`, `portolan run` within either), and the
//! inner one does not always take away what the outer one has set:
//!
//! 1. `PORTOLAN_LAUNCHER` names the protocol: the user has chosen.
//! 2. Of the launchers that have left a sign the nearest counts (`above`). Signs are `PMI_FD`; `PMI_PORT`; `PMIX_NAMESPACE`
//!    or `PMIX_RANK`. What this process itself has set since its start is none: Open MPI's library sets variables of
//!    PMIx where it makes a job of one.
//! 3. Where that does not tell two apart, as a launcher runs as another user or gives a process several ways: `PMI_FD`
//!    that names a connected socket, as only a process that the launcher itself has started has it; then PMIx; then
//!    `PMI_PORT`; then any `PMI_FD`.
//! 4. No sign: a job of one, unless a launcher says that it started several processes.
//!
//! Over `PMI_FD` PMI-2 is spoken where `PMI_JOBID` comes from the same launcher, which servers of PMI-2 set, else PMI-1.
//! A `PMI_FD` of the nearest launcher that is closed is an error and no job of one: a library of this process may have
//! left the job already.

use std::env;

use super::above::{self, Environment};
use super::adopt::{self, Mpi};
use super::space::Space;
use super::{JobError, pmix};

/// Variable that names the protocol.
pub(super) const CHOICE: &str = "PORTOLAN_LAUNCHER";

/// What counts beside the variables of this process.
pub(super) struct Around<'a> {
    /// Whether a descriptor is a connected socket.
    pub(super) is_live: &'a dyn Fn(i32) -> bool,
    /// The environments of this process, as it was started, and of those above it, the parent's first.
    pub(super) line: &'a dyn Fn() -> Vec<Environment>,
}

/// The ways in which a launcher tells a process that it is a rank, the surest first, and the variables that are its sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    LiveFd,
    Pmix,
    Port,
    DeadFd,
}

impl Way {
    fn sign(self) -> &'static [&'static str] {
        match self {
            Self::LiveFd | Self::DeadFd => &["PMI_FD", "PMI_RANK", "PMI_SIZE"],
            Self::Pmix => &["PMIX_NAMESPACE", "PMIX_RANK"],
            Self::Port => &["PMI_PORT", "PMI_ID"],
        }
    }
}

/// What the environment says about the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// No launcher: a job of one.
    Singleton,
    /// `PMI_FD`, `PMI_RANK`, `PMI_SIZE`: an open socket was inherited, over which PMI-1 is spoken.
    Inherited { fd: i32, rank: u32, size: u32 },
    /// `PMI_PORT` and `PMI_ID`: connect, then be told rank and size.
    Port { address: String, id: u32 },
    /// A line that was inherited, with PMI-2.
    Pmi2 {
        fd: i32,
        rank: u32,
        size: u32,
        job: Option<String>,
    },
    /// The library of PMIx reads the rest of the environment itself.
    Pmix,
}

/// Variables by which launchers say that there are several processes, and what to start them with so
/// that they can become ranks.
const SEVERAL: [(&str, &str, &str); 3] = [
    (
        "PMI_SIZE",
        "PMI_FD",
        "the launcher has not given this process its socket",
    ),
    (
        "SLURM_STEP_NUM_TASKS",
        "PMI_FD",
        "srun started several processes that cannot find each other; use srun --mpi=pmi2 or --mpi=pmix",
    ),
    (
        "OMPI_COMM_WORLD_SIZE",
        "PMIX_NAMESPACE",
        "mpirun started several processes that cannot find each other",
    ),
];

impl Start {
    /// Reads the environment of this process.
    pub(super) fn from_env() -> Result<Self, JobError> {
        let around = Around {
            is_live: &adopt::is_connected,
            line: &above::environments,
        };
        let get = |name: &str| env::var_os(name).map(|v| v.to_string_lossy().into_owned());
        Self::from_lookup(get, &around)
    }

    /// Reads the variables through `get`.
    pub(super) fn from_lookup(
        get: impl Fn(&str) -> Option<String>,
        around: &Around<'_>,
    ) -> Result<Self, JobError> {
        match get(CHOICE).as_deref() {
            None | Some("") => {}
            Some("none") => return Ok(Self::Singleton),
            Some("pmix") => return pmix(&get),
            Some("pmi2") => return inherited(&get, true),
            Some("pmi1") if get("PMI_FD").is_none() && get("PMI_PORT").is_some() => {
                return port(&get);
            }
            Some("pmi1") => return inherited(&get, false),
            other => return Err(bad(CHOICE, other, "pmi1, pmi2, pmix or none is expected")),
        }
        let sign = |names: &[&'static str]| -> Vec<(&'static str, String)> {
            let set = |name: &&'static str| get(name).map(|value| (*name, value));
            names.iter().filter_map(set).collect()
        };
        let is_live = |fd: String| fd.parse().is_ok_and(around.is_live);
        let fd = get("PMI_FD").map(|fd| {
            if is_live(fd) {
                Way::LiveFd
            } else {
                Way::DeadFd
            }
        });
        let pmix_is_there = get("PMIX_NAMESPACE").is_some() || get("PMIX_RANK").is_some();
        let mut ways: Vec<Way> = fd.filter(|w| *w == Way::LiveFd).into_iter().collect();
        ways.extend(pmix_is_there.then_some(Way::Pmix));
        ways.extend(get("PMI_PORT").map(|_| Way::Port));
        ways.extend(fd.filter(|w| *w == Way::DeadFd));
        let job = sign(&["PMI_JOBID"]);
        let line = if ways.len() > 1 || !job.is_empty() {
            (around.line)()
        } else {
            Vec::new()
        };
        let was_given = |way: &Way| above::was_given(&sign(way.sign()), &line);
        if ways.iter().any(was_given) {
            ways.retain(was_given);
        }
        let reach = |way: Way| above::reach(&sign(way.sign()), &line);
        // Of equal ones the first.
        match ways.iter().min_by_key(|way| reach(**way)) {
            Some(Way::Pmix) => return pmix(&get),
            Some(Way::Port) => return port(&get),
            Some(way) => {
                let second = !job.is_empty() && above::reach(&job, &line) <= reach(*way);
                return inherited(&get, second);
            }
            None => {}
        }
        let several = |name: &str| {
            let count = get(name).and_then(|n| n.trim().parse::<u32>().ok());
            count.is_some_and(|n| n > 1)
        };
        match SEVERAL.iter().find(|(sign, ..)| several(sign)) {
            Some((_, missing, reason)) => Err(bad(missing, None, reason)),
            None => Ok(Self::Singleton),
        }
    }
}

/// Whether an MPI library of this process has joined the job over the line to a server that takes one `init` of a process,
/// and answers no other. Slurm's plugin for PMI-2 and PMI-1 is such a server; it is known by `PMI_JOBID`.
///
/// # Errors
/// That library will join later, and would wait for an answer for ever.
pub(super) fn is_behind_mpi(mpi: Mpi, job: Option<&str>) -> Result<bool, JobError> {
    match (mpi, job) {
        (Mpi::Absent, _) | (_, None) => Ok(false),
        (Mpi::Joined, Some(_)) => Ok(true),
        (Mpi::Waiting, job) => Err(bad(
            "PMI_JOBID",
            job,
            "this server lets a process join once, so MPI_Init must come first",
        )),
    }
}

/// Whether the user has chosen the protocol.
pub(super) fn is_chosen() -> bool {
    env::var_os(CHOICE).is_some_and(|choice| !choice.is_empty())
}

/// Whether a library of this process has made a job of its own by PMIx, of which no launcher knows.
pub(super) fn has_job_of_its_own() -> bool {
    const NAME: &str = "PMIX_NAMESPACE";
    let name = env::var_os(NAME).map(|v| v.to_string_lossy().into_owned());
    name.is_some_and(|name| !above::was_given(&[(NAME, name)], &above::environments()))
}

/// Whether the launcher does not notice a rank that exits with 0 without leaving the job: Slurm's plugin
/// for PMI-2 and PMI-1, which is known by `PMI_JOBID`, any server of PMI-2, as Slurm's may be chosen, and any of
/// PMIx but that of Open MPI, which does and is not to be asked.
pub(super) fn leaves_unnoticed(space: &Space) -> bool {
    match space {
        Space::Pmi2(_) => true,
        Space::Pmi1(_) => env::var_os("PMI_JOBID").is_some(),
        Space::Pmix(_) => !pmix::of_open_mpi(),
        Space::Own(_) => false,
    }
}

fn inherited(get: &impl Fn(&str) -> Option<String>, second: bool) -> Result<Start, JobError> {
    let fd = number::<i32>("PMI_FD", get("PMI_FD").as_deref())?;
    if fd < 0 {
        return Err(bad(
            "PMI_FD",
            Some(&fd.to_string()),
            "a descriptor number is expected",
        ));
    }
    let rank = number("PMI_RANK", get("PMI_RANK").as_deref())?;
    let size = number("PMI_SIZE", get("PMI_SIZE").as_deref())?;
    check(rank, size)?;
    if !second {
        return Ok(Start::Inherited { fd, rank, size });
    }
    let job = get("PMI_JOBID");
    // It stands in a message whose parts end with `;`.
    if job
        .as_deref()
        .is_some_and(|j| j.is_empty() || j.contains([';', '=']))
    {
        return Err(bad("PMI_JOBID", job.as_deref(), "a word is expected"));
    }
    Ok(Start::Pmi2 {
        fd,
        rank,
        size,
        job,
    })
}

fn port(get: &impl Fn(&str) -> Option<String>) -> Result<Start, JobError> {
    let address = get("PMI_PORT").ok_or_else(|| bad("PMI_PORT", None, "HOST:PORT is expected"))?;
    // Hydra says PMI_ID, some servers only PMI_RANK.
    let id = get("PMI_ID").or_else(|| get("PMI_RANK"));
    Ok(Start::Port {
        address,
        id: number("PMI_ID", id.as_deref())?,
    })
}

fn pmix(get: &impl Fn(&str) -> Option<String>) -> Result<Start, JobError> {
    let name = get("PMIX_NAMESPACE");
    if name.as_deref().is_none_or(str::is_empty) {
        let reason = "the job's name in PMIx is expected, as PMIX_RANK says that there is one";
        return Err(bad("PMIX_NAMESPACE", name.as_deref(), reason));
    }
    number::<u32>("PMIX_RANK", get("PMIX_RANK").as_deref())?;
    Ok(Start::Pmix)
}

/// Refuses a rank outside its job and an empty job.
pub(super) fn check(rank: u32, size: u32) -> Result<(), JobError> {
    if rank < size {
        return Ok(());
    }
    Err(bad(
        "PMI_RANK",
        Some(&rank.to_string()),
        "it must be less than PMI_SIZE",
    ))
}

fn number<T: std::str::FromStr>(name: &'static str, value: Option<&str>) -> Result<T, JobError> {
    let parsed = value.and_then(|v| v.parse().ok());
    parsed.ok_or_else(|| bad(name, value, "a number is expected"))
}

fn bad(name: &'static str, value: Option<&str>, reason: &'static str) -> JobError {
    let value = value.map_or_else(
        || "not set".to_owned(),
        |v| format!("{:?}", super::wire::excerpt(v)),
    );
    JobError::Environment {
        name,
        value,
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With sockets that are open, and nothing known of the processes above.
    fn start(vars: &[(&str, &str)]) -> Result<Start, JobError> {
        start_below(vars, true, &[])
    }

    fn start_below(
        vars: &[(&str, &str)],
        live: bool,
        above: &[Environment],
    ) -> Result<Start, JobError> {
        let get = |n: &str| {
            let found = vars.iter().find(|(k, _)| *k == n);
            found.map(|(_, v)| (*v).to_owned())
        };
        let around = Around {
            is_live: &|_| live,
            line: &|| {
                let own = Environment::new(vars);
                std::iter::once(own).chain(above.iter().cloned()).collect()
            },
        };
        Start::from_lookup(get, &around)
    }

    #[test]
    fn no_variables_mean_a_job_of_one() {
        assert_eq!(start(&[]).unwrap(), Start::Singleton);
        assert_eq!(start(&[("PMI_RANK", "3")]).unwrap(), Start::Singleton);
    }

    #[test]
    fn both_styles_are_understood() {
        let got = start(&[("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")]).unwrap();
        assert_eq!(
            got,
            Start::Inherited {
                fd: 7,
                rank: 2,
                size: 4
            }
        );
        let got = start(&[("PMI_PORT", "localhost:9"), ("PMI_ID", "1")]).unwrap();
        assert_eq!(
            got,
            Start::Port {
                address: "localhost:9".into(),
                id: 1
            }
        );
    }

    #[test]
    fn nonsense_names_the_variable_and_its_value() {
        let says = |vars: &[(&str, &str)]| start(vars).unwrap_err().to_string();
        let fd = says(&[("PMI_FD", "seven")]);
        assert_eq!(fd, "PMI_FD is \"seven\": a number is expected");
        assert!(says(&[("PMI_FD", "-1")]).contains("descriptor"));
        assert!(says(&[("PMI_FD", "3"), ("PMI_RANK", "0")]).starts_with("PMI_SIZE is not set"));
        let out = says(&[("PMI_FD", "3"), ("PMI_RANK", "4"), ("PMI_SIZE", "4")]);
        assert!(out.starts_with("PMI_RANK is \"4\""), "{out}");
        assert!(says(&[("PMI_PORT", "h:1")]).starts_with("PMI_ID"));
    }

    const PMI: [(&str, &str); 3] = [("PMI_FD", "7"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
    const PMIX: [(&str, &str); 2] = [("PMIX_NAMESPACE", "prterun-1@1"), ("PMIX_RANK", "0")];

    #[test]
    fn of_launchers_that_cannot_be_told_apart_the_surest_sign_counts() {
        let slurm = [
            &PMI[..],
            &[("PMI_JOBID", "3.0"), ("SLURM_STEP_NUM_TASKS", "4")],
        ]
        .concat();
        let pmi2 = Start::Pmi2 {
            fd: 7,
            rank: 2,
            size: 4,
            job: Some("3.0".into()),
        };
        assert_eq!(start(&slurm).unwrap(), pmi2);
        let both = [&slurm[..], &PMIX[..]].concat();
        assert_eq!(start(&both).unwrap(), pmi2);
        assert_eq!(start_below(&both, false, &[]).unwrap(), Start::Pmix);
        let chosen = |word| start(&[&both[..], &[(CHOICE, word)]].concat());
        assert_eq!(chosen("pmi2").unwrap(), pmi2);
        assert!(matches!(chosen("pmi1"), Ok(Start::Inherited { fd: 7, .. })));
        assert_eq!(chosen("pmix").unwrap(), Start::Pmix);
        assert_eq!(chosen("none").unwrap(), Start::Singleton);
        assert_eq!(chosen("").unwrap(), pmi2);
        let words = chosen("mpd").unwrap_err().to_string();
        assert!(words.starts_with("PORTOLAN_LAUNCHER is \"mpd\""), "{words}");
    }

    #[test]
    fn of_several_launchers_the_nearest_counts() {
        let both = [&PMI[..], &PMIX[..]].concat();
        let pmi1 = Start::Inherited {
            fd: 7,
            rank: 2,
            size: 4,
        };
        let of = |vars: &[(&str, &str)]| Environment::new(vars);
        for live in [true, false] {
            let start = |above: &[Environment]| start_below(&both, live, above).unwrap();
            // `mpiexec.hydra` under `mpirun`, and the other way round, with a script between launcher and rank. A closed
            // socket of the nearest launcher is refused where it is taken over.
            let script = of(&both);
            assert_eq!(start(&[script.clone(), of(&PMIX)]), pmi1);
            assert_eq!(start(&[script.clone(), of(&PMI)]), Start::Pmix);
            // Another rank's variables are another launcher's.
            let other = [&PMIX[..], &[("PMI_FD", "7"), ("PMI_RANK", "0")]].concat();
            assert_eq!(start(&[of(&other), of(&[])]), pmi1);
        }
        let ported = [&PMIX[..], &[("PMI_PORT", "h:1"), ("PMI_ID", "3")]].concat();
        let start = |above: &[Environment]| start_below(&ported, true, above).unwrap();
        assert!(matches!(start(&[of(&PMIX)]), Start::Port { id: 3, .. }));
        assert_eq!(start(&[of(&[])]), Start::Pmix);
    }

    #[test]
    fn what_the_process_has_set_itself_is_no_sign() {
        let both = [&PMI[..], &PMIX[..]].concat();
        let get = |n: &str| {
            let found = both.iter().find(|(k, _)| *k == n);
            found.map(|(_, v)| (*v).to_owned())
        };
        let given = |own: &[(&str, &str)], above: &[(&str, &str)]| {
            let around = Around {
                is_live: &|_| false,
                line: &|| [own, above].map(Environment::new).to_vec(),
            };
            Start::from_lookup(get, &around).unwrap()
        };
        // With a script between launcher and rank, whose socket a library has closed.
        assert!(matches!(given(&PMI, &PMI), Start::Inherited { .. }));
        assert_eq!(given(&PMIX, &[]), Start::Pmix);
        // A test, or a program that starts a server of its own.
        assert_eq!(given(&[], &[]), Start::Pmix);
    }

    #[test]
    fn the_job_of_another_launcher_does_not_make_it_pmi_2() {
        let of = |vars: &[(&str, &str)]| Environment::new(vars);
        let vars = [&PMI[..], &[("PMI_JOBID", "3.0")]].concat();
        let second = |above: &[Environment]| {
            let start = start_below(&vars, true, above).unwrap();
            matches!(start, Start::Pmi2 { .. })
        };
        assert!(second(&[]) && second(&[of(&[])]) && second(&[of(&vars), of(&[])]));
        // `mpiexec.hydra` in a shell that `srun --mpi=pmi2` has started.
        assert!(!second(&[of(&[
            ("PMI_JOBID", "3.0"),
            ("PMI_FD", "5"),
            ("PMI_RANK", "0")
        ])]));
    }

    #[test]
    fn a_server_that_takes_one_init_is_shared_with_an_mpi_library_that_came_first() {
        for (mpi, behind) in [(Mpi::Absent, false), (Mpi::Joined, true)] {
            assert_eq!(is_behind_mpi(mpi, Some("3.0")).unwrap(), behind);
            assert!(!is_behind_mpi(mpi, None).unwrap());
        }
        assert!(!is_behind_mpi(Mpi::Waiting, None).unwrap());
        let words = is_behind_mpi(Mpi::Waiting, Some("3.0"))
            .unwrap_err()
            .to_string();
        assert!(words.contains("MPI_Init must come first"), "{words}");
    }

    #[test]
    fn half_a_launcher_names_the_variable_that_is_missing() {
        let says = |vars: &[(&str, &str)]| start(vars).unwrap_err().to_string();
        assert!(says(&PMIX[..1]).starts_with("PMIX_RANK is not set"));
        assert!(says(&PMIX[1..]).starts_with("PMIX_NAMESPACE is not set"));
        assert!(says(&[PMIX[0], ("PMIX_RANK", "x")]).starts_with("PMIX_RANK is \"x\""));
        assert!(says(&PMI[1..]).starts_with("PMI_FD is not set"));
        assert!(says(&[(CHOICE, "pmi2")]).starts_with("PMI_FD is not set"));
        assert!(says(&[(CHOICE, "pmi1")]).starts_with("PMI_FD is not set"));
        let words = says(&[&PMI[..], &[("PMI_JOBID", "a;b")]].concat());
        assert!(words.starts_with("PMI_JOBID is \"a;b\""), "{words}");
    }

    #[test]
    fn several_processes_without_a_way_to_meet_are_no_jobs_of_one() {
        let says = |vars: &[(&str, &str)]| start(vars).unwrap_err().to_string();
        let words = says(&[("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PROCID", "0")]);
        assert!(words.starts_with("PMI_FD is not set"), "{words}");
        assert!(words.contains("srun --mpi=pmi2"), "{words}");
        assert!(says(&[("OMPI_COMM_WORLD_SIZE", "2")]).starts_with("PMIX_NAMESPACE is not set"));
        assert_eq!(
            start(&[("SLURM_STEP_NUM_TASKS", "1")]).unwrap(),
            Start::Singleton
        );
        assert_eq!(start(&[("SLURM_NTASKS", "4")]).unwrap(), Start::Singleton);
    }
}
