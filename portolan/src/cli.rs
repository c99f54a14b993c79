//! The words of the command line.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};
use portals_shim::fabric::{Channel, FabricConfig, FabricKind, MOST_PER_NODE, Mode};
use portals_shim::place::Placement;

use crate::calibration;
use crate::cmd::{
    bench, credits, demo, exits, firehose, info, messages, probe, run, seastar_device, seastar_sim,
    summary, trace,
};
use crate::guest::GuestOptions;

/// Portals 3.3 and the GASNet conduit on the networks of today
///
/// Runs programs written for the Portals message interface on a real RDMA network, on SoftRoCE, or on a
/// cycle-approximate model of the Cray SeaStar. Without a command it runs the demo.
#[derive(Debug, Parser)]
#[command(name = "portolan", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Two ranks on the SeaStar model: tables next to the published curves, and plots
    Demo(demo::Options),
    /// Run a program on N ranks over a fabric
    Run(run::Options),
    /// Measure a fabric
    Bench(bench::Options),
    /// What each parameter of Firehose changes: one workload, run with each, as a table
    Firehose(firehose::Options),
    /// What can be used on this machine, and why the rest cannot
    Info(info::Options),
    /// Boot a small QEMU machine with SoftRoCE and run a command in it, on this machine's files
    Guest(GuestOptions),
    /// Run a program on the SeaStar model and write what the machine did: a timeline, a capture, tables
    Trace(trace::Options),
    /// Add up the trace and statistics files of a GASNet program (GASNET_TRACEFILE, GASNET_STATSFILE)
    Summary(summary::Options),
    /// Serve chips of the SeaStar model as PCI devices over vfio-user
    SeastarDevice(seastar_device::Options),
    /// The ranks of one host of a job; started by `run --hosts`
    #[command(hide = true)]
    Agent,
    /// Join the launcher's job and exchange values: tests a launcher without a fabric
    #[command(hide = true)]
    Probe(probe::Options),
    /// A rank that ends in one of many ways: tests how jobs end
    #[command(hide = true)]
    Exits(exits::Options),
    /// Every kind of active message between all neighbours: tests fabrics
    #[command(hide = true)]
    Messages(messages::Options),
    /// Credits of a large job, simulated: how they move to the ranks that need them
    #[command(hide = true)]
    Credits(credits::Options),
    /// The SeaStar model against published measurements: errors, the search for fitted parameters, the
    /// page of the book
    #[command(hide = true)]
    Calibration(calibration::Options),
    /// One rank of a measurement
    #[command(hide = true)]
    BenchRank(bench::RankOptions),
    /// One rank of `firehose`
    #[command(hide = true)]
    FirehoseRank(firehose::RankOptions),
    /// The process that holds the simulated machine
    #[command(hide = true)]
    SeastarSim(seastar_sim::Options),
}

/// The choice of a fabric, the same for every command that needs one.
#[derive(Debug, Clone, Args)]
pub(crate) struct FabricArgs {
    /// Fabric: shm (memory of one machine), verbs (RDMA) or seastar (a model). Without it `run` takes shm, or the
    /// model if anything of that is chosen; the other commands take the model
    #[arg(long, env = "PORTOLAN_FABRIC", value_name = "NAME")]
    pub(crate) fabric: Option<FabricKind>,
    /// Under verbs ranks of one machine talk through the device too, and not through memory
    #[arg(long)]
    pub(crate) no_shm: bool,
    /// How the verbs fabric carries messages: rc (a reliable connection to each peer, RDMA), ud (reliable datagrams, two
    /// queue pairs for all peers) or auto (those, and connections to the peers that are talked to much); rc by default
    #[arg(long, env = FabricConfig::CHANNEL, value_name = "CHANNEL")]
    pub(crate) channel: Option<Channel>,
    /// RDMA device of the verbs fabric, such as rxe0; the first usable one by default
    #[arg(long, env = "PORTOLAN_DEVICE", value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Address of the RDMA device's port: an IP address, or an index that `portolan info` shows; the one that
    /// reaches most peers by default
    #[arg(long, env = "PORTOLAN_GID", value_name = "GID")]
    pub(crate) gid: Option<String>,
    /// Ranks that share a node, numbered within it; elsewhere than on the model it is a node by name
    #[arg(long, env = "PORTOLAN_RANKS_PER_NODE", default_value_t = 1, value_name = "R",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_PER_NODE)))]
    pub(crate) ranks_per_node: u32,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) wrong: FaultArgs,
}

/// What goes wrong on the machine that is modelled.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct FaultArgs {
    /// What goes wrong on the SeaStar model: a fault file, as in the book under Faults of the
    /// SeaStar model; times in it are from the start of the simulated machine, as in traces
    #[arg(long, env = FabricConfig::FAULTS, value_name = "FILE", value_parser = whole_path)]
    pub(crate) faults: Option<String>,
    /// Seed of what goes wrong at random, instead of the fault file's, and perhaps the rates, such
    /// as 7:lost_packets=1000,corrupted_packets=1000 (of 10^9) or 7:link_bit_errors=1000 (of 10^12)
    #[arg(long, env = FabricConfig::FAULT_SEED, value_name = "N[:RATE=VALUE,..]")]
    pub(crate) fault_seed: Option<String>,
}

/// The choice of the machine that is modelled.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ModelArgs {
    /// Machine that the SeaStar model is set up as: xt4, xt4-linux, xt3, xt3-linux, redstorm,
    /// redstorm-2005, or a machine file (a path with a / or ending in .toml); xt4 by default
    #[arg(
        long,
        env = "PORTOLAN_MACHINE",
        value_name = "NAME|FILE",
        value_parser = machine
    )]
    pub(crate) machine: Option<String>,
    /// Grid of the SeaStar model, such as 4x4x2, or 4x4x2,mesh without the links that close its
    /// rows; by default the smallest torus that holds the nodes. Nodes fill rows of x first
    #[arg(long, env = "PORTOLAN_TOPOLOGY", value_name = "XxYxZ[,mesh]")]
    pub(crate) topology: Option<String>,
    /// Who matches on the SeaStar model: generic (the kernels of the nodes), which is the default, or
    /// accelerated (the firmware of their NICs)
    #[arg(long, env = "PORTOLAN_SEASTAR_MODE", value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
}

impl ModelArgs {
    /// The machine that was chosen, or the usual one.
    pub(crate) fn machine(&self) -> String {
        let usual = || FabricConfig::default().machine;
        self.machine.clone().unwrap_or_else(usual)
    }

    fn mode(&self) -> Mode {
        self.mode.unwrap_or(Mode::Generic)
    }
}

/// A machine's name, or the whole path of its file.
fn machine(text: &str) -> Result<String, String> {
    if !portals_shim::nal::seastar::is_machine_file(text) {
        return Ok(text.to_owned());
    }
    whole_path(text)
}

/// The whole path of a file: ranks may have other working directories.
fn whole_path(text: &str) -> Result<String, String> {
    let path = std::path::absolute(text).map_err(|error| format!("{text}: {error}"))?;
    let path = path.into_os_string().into_string();
    path.map_err(|path| format!("{} is not UTF-8", path.display()))
}

impl FabricArgs {
    /// The choice for ranks that are all on this machine: memory, unless a fabric is named, or something of the
    /// model that only it has.
    pub(crate) fn on_one_machine(&self) -> Self {
        let Self { model, wrong, .. } = self;
        let of_model = model.machine.is_some()
            || model.mode.is_some()
            || model.topology.is_some()
            || wrong.faults.is_some()
            || wrong.fault_seed.is_some();
        let usual = if of_model {
            FabricKind::Seastar
        } else {
            FabricKind::Shm
        };
        Self {
            fabric: Some(self.fabric.unwrap_or(usual)),
            ..self.clone()
        }
    }

    /// The fabric that was named, or the model.
    pub(crate) fn kind(&self) -> FabricKind {
        self.fabric.unwrap_or(FabricKind::Seastar)
    }

    /// The choice as the fabric's own configuration.
    pub(crate) fn config(&self) -> FabricConfig {
        FabricConfig {
            kind: self.kind(),
            device: self.device.clone(),
            channel: self.channel.unwrap_or_default(),
            machine: self.model.machine(),
            // Out of range only where clap's range was not asked.
            place: Placement::new(self.ranks_per_node).unwrap_or_default(),
            most_sharing: u32::from(self.no_shm),
            topology: self.model.topology.clone(),
            mode: self.model.mode(),
            faults: self.wrong.faults.clone(),
            fault_seed: self.wrong.fault_seed.clone(),
        }
    }

    /// The variables that carry the choice to ranks.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = vec![
            ("PORTOLAN_FABRIC".into(), self.kind().name().into()),
            ("PORTOLAN_MACHINE".into(), self.model.machine().into()),
            (
                "PORTOLAN_SEASTAR_MODE".into(),
                self.model.mode().name().into(),
            ),
            (
                "PORTOLAN_RANKS_PER_NODE".into(),
                self.ranks_per_node.to_string().into(),
            ),
        ];
        if let Some(topology) = &self.model.topology {
            variables.push(("PORTOLAN_TOPOLOGY".into(), topology.into()));
        }
        let wrong = [
            (FabricConfig::FAULTS, &self.wrong.faults),
            (FabricConfig::FAULT_SEED, &self.wrong.fault_seed),
        ];
        for (variable, value) in wrong {
            if let Some(value) = value {
                variables.push((variable.into(), value.into()));
            }
        }
        if self.no_shm {
            variables.push((FabricConfig::MOST_SHARING.into(), "1".into()));
        }
        if let Some(channel) = self.channel {
            variables.push((FabricConfig::CHANNEL.into(), channel.name().into()));
        }
        if let Some(device) = &self.device {
            variables.push(("PORTOLAN_DEVICE".into(), device.into()));
        }
        if let Some(gid) = &self.gid {
            variables.push(("PORTOLAN_GID".into(), gid.into()));
        }
        variables
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_contract_is_understood() {
        for line in [
            "portolan",
            "portolan demo",
            "portolan run -n 4 -- prog a -b --c",
            "portolan run -n 4 --fabric verbs --device rxe0 --gid 10.9.0.1 --env A=1 --env B=2 -- prog",
            "portolan run -n 4 --fabric shm -- prog",
            "portolan run -n 4 --fabric verbs --no-shm -- prog",
            "portolan run -n 4 --fabric verbs --channel ud -- prog",
            "portolan run -n 4 --fabric verbs --channel auto -- prog",
            "portolan bench pingpong put-latency -n 2 --fabric seastar --sizes 8,64,1K --iters 10 --json -",
            "portolan bench match-depth --plot dir",
            "portolan bench pingpong --machine redstorm --topology 4x4x2,mesh --ranks-per-node 2",
            "portolan demo --machine ./mine.toml",
            "portolan bench put-rate --mode accelerated",
            "portolan run -n 2 --faults f.toml --fault-seed 7:lost_packets=5 -- prog",
            "portolan info --json",
            "portolan guest --hosts 1 -- true",
            "portolan trace -n 4 -- prog a",
            "portolan trace -n 2 --out f --format perfetto --pcap p --svg s --window 1..2.5 --links --counters -- prog",
            "portolan seastar-device --socket here --nodes 3 --once",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    /// The fabric that `run` takes after these words.
    fn fabric_of(words: &str) -> FabricKind {
        let line = format!("portolan run -n 2 {words} -- prog");
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli {
                command: Some(Command::Run(options)),
            }) => options.fabric().kind(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn run_takes_memory_unless_a_fabric_or_the_model_is_meant() {
        if std::env::vars().any(|(name, _)| name.starts_with("PORTOLAN_")) {
            return;
        }
        assert_eq!(fabric_of(""), FabricKind::Shm);
        assert_eq!(fabric_of("--fabric verbs"), FabricKind::Verbs);
        assert_eq!(fabric_of("--fabric seastar"), FabricKind::Seastar);
        for words in [
            "--machine xt3",
            "--topology 2x1x1",
            "--mode accelerated",
            "--faults f.toml",
            "--fault-seed 7",
        ] {
            assert_eq!(fabric_of(words), FabricKind::Seastar, "{words}");
            let named = format!("--fabric shm {words}");
            assert_eq!(fabric_of(&named), FabricKind::Shm, "{named}");
        }
    }

    #[test]
    fn nonsense_is_bad_usage() {
        for (line, said) in [
            ("dance", "unrecognized subcommand 'dance'"),
            (
                "run -n 0 -- prog",
                "'0' for '--ranks <N>': 0 is not in 1..=4096",
            ),
            ("run -n 2", "not provided:\n  <PROGRAM>..."),
            ("run -- prog", "not provided:\n  --ranks <N>"),
            (
                "run -n 2 --fabric myrinet -- prog",
                "unknown fabric \"myrinet\"; the fabrics are seastar, verbs and shm",
            ),
            (
                "run -n 2 --env A -- prog",
                "'A' for '--env <K=V>': K=V is expected",
            ),
            ("bench", "not provided:\n  <NAME>..."),
            ("bench teleport", "'teleport' for '<NAME>...'"),
            (
                "run -n 2 --ranks-per-node 0 -- prog",
                "'--ranks-per-node <R>': 0 is not in 1..=64",
            ),
            (
                "run -n 2 --ranks-per-node 65 -- prog",
                "'--ranks-per-node <R>': 65 is not in 1..=64",
            ),
            (
                "bench pingpong --sizes 8,x",
                "'--sizes <LIST>': \"x\" is no size; 8, 64, 1K or 1M is expected",
            ),
            (
                "trace -n 2 --svg s --window 3..2 -- prog",
                "'3..2' for '--window <FROM..TO>': FROM..TO in microseconds is expected",
            ),
            (
                "trace -n 2 --format pdf -- prog",
                "'pdf' for '--format <NAME>'",
            ),
            ("seastar-device", "not provided:\n  --socket <PATH>"),
        ] {
            let words = format!("portolan {line}");
            let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            let error = error.to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    /// What `--timeout` is given that is no time, and what is said of it, wherever there is one.
    #[test]
    fn a_time_limit_is_a_number_of_seconds() {
        for (text, said) in [
            ("abc", "a number of seconds is expected"),
            ("", "a number of seconds is expected"),
            ("5s", "a number of seconds is expected"),
            ("1,5", "a number of seconds is expected"),
            ("0", "more than 0 is expected"),
            ("0.0000000001", "more than 0 is expected"),
            (
                "-1",
                "cannot convert float seconds to Duration: value is negative",
            ),
            (
                "nan",
                "cannot convert float seconds to Duration: value is either too big or NaN",
            ),
            (
                "inf",
                "cannot convert float seconds to Duration: value is either too big or NaN",
            ),
            (
                "1e300",
                "cannot convert float seconds to Duration: value is either too big or NaN",
            ),
        ] {
            for start in ["run -n 2", "bench pingpong", "trace -n 2", "firehose"] {
                let option = format!("--timeout={text}");
                let words = start.split(' ').chain([option.as_str(), "--", "prog"]);
                let error = Cli::try_parse_from(["portolan"].into_iter().chain(words)).unwrap_err();
                assert_eq!(error.exit_code(), 2, "{start} {option}");
                let error = error.to_string();
                let said = format!("'{text}' for '--timeout <SECONDS>': {said}");
                assert!(error.contains(&said), "{start} {option}: {error}");
            }
        }
        for (text, limit) in [("0.3", 300_000_000), ("90", 90_000_000_000), ("1e-9", 1)] {
            let limit = Ok(std::time::Duration::from_nanos(limit));
            assert_eq!(crate::cmd::run::seconds(text), limit);
        }
    }
}
