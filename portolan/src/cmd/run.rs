//! `portolan run`: a program on N ranks.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use portals_shim::fabric::{self, FabricChoice, FabricKind, MOST_PER_NODE};
use portals_shim::nal::seastar::SIMULATION_VARIABLE;

use super::numbers::whole;
use super::simulate;
use crate::cli::FabricArgs;
use crate::cmd::failed;
use crate::error::CmdError;
use crate::run::clock::{self, Clock};
use crate::run::hosts::list::{self, ListError, Place};
use crate::run::hosts::{self, Hosts};
use crate::run::{JobSpec, find_program, launch, no_program};

/// The most ranks one machine is asked to hold.
pub(crate) const RANKS_MAX: u32 = 4096;

/// Options of `portolan run`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct Options {
    /// Number of ranks; with --gm-conf the file has it; -np too
    #[arg(short = 'n', long = "ranks", value_name = "N", required_unless_present_any = ["gm_conf", "places"],
          value_parser = whole(1..=RANKS_MAX))]
    ranks: Option<u32>,
    /// Simulate a machine with so many places for one program
    ///
    /// The program is started once and is no rank. Endpoints that it or its children open join the simulation, which
    /// ends with the program.
    #[arg(long, value_name = "N", conflicts_with_all = ["ranks", "gm_conf", "hosts", "hostfile", "nodes"],
          value_parser = whole(1..=simulate::PLACES_MAX))]
    places: Option<u32>,
    /// Set a variable for every rank; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = variable)]
    env: Vec<(OsString, OsString)>,
    /// End the job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// Begin each line that a rank writes with its rank
    ///
    /// Lines of standard output and standard error stay apart and are whole, up to 16 KiB.
    #[arg(long, conflicts_with_all = ["places", "hosts", "hostfile", "gm_conf"])]
    tag_output: bool,
    /// What each rank runs on: a core of its own, or any
    ///
    /// core: each rank has one of the cores that this process may run on, and fewer cores than ranks are refused. none:
    /// the system chooses.
    #[arg(long, value_enum, default_value_t = Bind::None, value_name = "WHAT", conflicts_with_all = ["places", "hosts", "hostfile", "gm_conf"])]
    bind: Bind,
    /// Whose time the system's clocks show to a program
    ///
    /// host: they are the host's. virtual: a library is preloaded, by which clocks and sleeps of programs in C take the
    /// time of the model. It is for the model, and takes it if no fabric is named.
    #[arg(long, value_enum, default_value_t = Clock::Host, value_name = "WHOSE", help_heading = "SeaStar model",
          conflicts_with_all = ["hosts", "hostfile", "gm_conf"])]
    clock: Clock,
    #[command(flatten)]
    fabric: FabricArgs,
    #[command(flatten)]
    hosts: HostArgs,
    /// The program and its arguments
    ///
    /// It is looked for as given, in PATH, and beside portolan. Options of portolan go before it.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM", help_heading = None::<&'static str>)]
    program: Vec<OsString>,
}

/// What each rank runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Bind {
    /// A core of its own, of those of the launcher
    Core,
    /// Whatever the system chooses
    None,
}

/// The hosts of a job, where it is not this one alone.
#[derive(Debug, Args)]
#[command(next_help_heading = "Hosts")]
pub(crate) struct HostArgs {
    /// Start the ranks on these hosts, by ssh: HOST or HOST:K, ..
    ///
    /// HOST:K has K of the ranks.
    #[arg(long, value_name = "LIST", conflicts_with_all = ["hostfile", "gm_conf"])]
    hosts: Option<String>,
    /// File of hosts, one a line: HOST, HOST:K or HOST slots=K
    #[arg(long, value_name = "FILE", conflicts_with = "gm_conf")]
    hostfile: Option<PathBuf>,
    /// File of hosts in the form of GM
    ///
    /// Its first line is the number of ranks; HOST PORT follows for each.
    #[arg(long, value_name = "FILE")]
    gm_conf: Option<PathBuf>,
    /// Spread ranks in blocks over so many nodes
    ///
    /// Nodes are hosts, or nodes of the model.
    #[arg(short = 'N', long, value_name = "NODES",
          value_parser = whole(1..=RANKS_MAX), conflicts_with = "gm_conf")]
    nodes: Option<u32>,
    /// Command that reaches a host
    ///
    /// The host's name and a command line for its shell follow.
    #[arg(
        long,
        env = "PORTOLAN_SSH",
        value_name = "COMMAND",
        default_value = "ssh -x -o BatchMode=yes"
    )]
    ssh: String,
    /// Path of portolan on the hosts, if not that of this one
    #[arg(long, env = "PORTOLAN_REMOTE", value_name = "PATH")]
    remote: Option<String>,
    /// Address of this machine for the hosts
    ///
    /// The one that ssh comes from is the default.
    #[arg(long, env = "PORTOLAN_ADDRESS", value_name = "ADDRESS")]
    address: Option<String>,
}

impl HostArgs {
    /// Whether ranks are elsewhere.
    fn elsewhere(&self) -> bool {
        self.hosts.is_some() || self.hostfile.is_some() || self.gm_conf.is_some()
    }

    /// Where `ranks` ranks run, and how many there are; none where that is this machine.
    fn places(&self, ranks: Option<u32>) -> Result<(u32, Vec<Place>), CmdError> {
        let read = |path: &PathBuf| {
            fs::read_to_string(path).map_err(|error| {
                CmdError::Usage(format!("cannot read {}: {error}", path.display()))
            })
        };
        let wrong = |path: &PathBuf, error: ListError| {
            CmdError::Usage(format!("{}: {error}", path.display()))
        };
        if let Some(path) = &self.gm_conf {
            let hosts = list::parse_gm(&read(path)?).map_err(|e| wrong(path, e))?;
            let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
            let places = list::one_by_one(&hosts);
            return match ranks {
                Some(ranks) if ranks != count => Err(CmdError::Usage(format!(
                    "{} has {count} ranks, and -n asks for {ranks}",
                    path.display()
                ))),
                _ => Ok((count, places)),
            };
        }
        let ranks = ranks.unwrap_or(1);
        let hosts = match (&self.hosts, &self.hostfile) {
            (Some(words), _) => {
                list::parse_words(words).map_err(|e| CmdError::Usage(format!("--hosts: {e}")))?
            }
            (None, Some(path)) => list::parse_file(&read(path)?).map_err(|e| wrong(path, e))?,
            (None, None) => return Ok((ranks, Vec::new())),
        };
        let nodes = self.nodes.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
        let places = list::by_block(&hosts, ranks, nodes);
        Ok((ranks, places.map_err(|e| CmdError::Usage(e.to_string()))?))
    }

    fn hosts(&self, places: Vec<Place>) -> Result<Hosts, CmdError> {
        let ssh: Vec<String> = self.ssh.split_whitespace().map(str::to_owned).collect();
        if ssh.is_empty() {
            return Err(CmdError::Usage("--ssh names no command".to_owned()));
        }
        let own = || {
            std::env::current_exe()
                .ok()?
                .into_os_string()
                .into_string()
                .ok()
        };
        let remote = self.remote.clone().or_else(own);
        let remote = remote.ok_or_else(|| CmdError::Usage("--remote is needed".to_owned()))?;
        Ok(Hosts {
            places,
            ssh,
            remote,
            address: self.address.clone(),
        })
    }
}

impl Options {
    /// The choice of a fabric. Places are of the model, and on other hosts only the device is another way than memory.
    pub(crate) fn fabric(&self) -> FabricArgs {
        let mut chosen = match self.fabric.choice() {
            _ if self.places.is_some() || self.clock == Clock::Virtual => self.fabric.modelled(),
            FabricChoice::Auto if self.hosts.elsewhere() && self.fabric.no_shm => {
                self.fabric.named(FabricKind::Verbs)
            }
            _ => self.fabric.clone(),
        };
        if let (Some(nodes), Some(ranks), false) =
            (self.hosts.nodes, self.ranks, self.hosts.elsewhere())
        {
            chosen.ranks_per_node = ranks.div_ceil(nodes).clamp(1, MOST_PER_NODE);
        }
        chosen
    }
}

/// Runs the program and returns the job's exit status.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let Some((program, args)) = options.program.split_first() else {
        return Err(CmdError::Usage("no program to run".to_owned()));
    };
    let elsewhere = options.hosts.elsewhere();
    if !elsewhere && find_program(program).is_none() {
        return Err(CmdError::Usage(no_program(program)));
    }
    let (ranks, places) = options.hosts.places(options.ranks)?;
    let chosen = options.fabric();
    chosen.check()?;
    if options.clock == Clock::Virtual && chosen.kind() != FabricKind::Seastar {
        let kind = chosen.kind();
        let message = format!("--clock virtual is for --fabric seastar; here the fabric is {kind}");
        return Err(CmdError::Usage(message));
    }
    // Other hosts look at their own fabric.
    if !elsewhere {
        chosen.say_unread();
        fabric::check_for(&chosen.config(), Some(ranks))?;
    }
    let mut env = chosen.variables((!elsewhere).then_some(ranks));
    // Ends when this function does.
    let _simulation = match options.places {
        Some(places) => {
            let simulation = simulate::start(&chosen, places)?;
            env.push((SIMULATION_VARIABLE.into(), simulation.word().into()));
            Some(simulation)
        }
        None => None,
    };
    env.extend(options.env.iter().cloned());
    if options.clock == Clock::Virtual {
        let own = std::env::current_exe().map_err(failed("find this executable"))?;
        let variable = clock::variable(&own, clock::given(&env));
        env.push(variable.map_err(|error| CmdError::Failed(error.to_string()))?);
    }
    let spec = JobSpec {
        title: "portolan run",
        ranks,
        pmi: options.places.is_none(),
        program: program.clone(),
        args: args.to_vec(),
        env,
        timeout: options.timeout,
        bind: options.bind == Bind::Core,
        tag_output: options.tag_output,
    };
    if elsewhere {
        hosts::launch(&spec, &options.hosts.hosts(places)?)
    } else {
        launch(&spec)
    }
}

/// Parses `K=V`.
pub(crate) fn variable(text: &str) -> Result<(OsString, OsString), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("K=V is expected".to_owned()),
    }
}

/// Parses a time of more than nothing, in seconds.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "a number of seconds is expected".to_owned())?;
    let limit = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    if limit.is_zero() {
        Err("more than 0 is expected".to_owned())
    } else {
        Ok(limit)
    }
}
