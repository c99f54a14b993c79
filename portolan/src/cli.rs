//! The words of the command line.

use std::ffi::OsString;

use clap::{Args, Parser, Subcommand};
use portals_shim::fabric::{FabricConfig, FabricKind};

use crate::cmd::{bench, demo, info, probe, run, seastar_sim};
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
    /// What can be used on this machine, and why the rest cannot
    Info(info::Options),
    /// Boot a small QEMU machine with SoftRoCE and run a command in it, on this machine's files
    Guest(GuestOptions),
    /// Join the launcher's job and exchange values: tests a launcher without a fabric
    #[command(hide = true)]
    Probe(probe::Options),
    /// One rank of a measurement
    #[command(hide = true)]
    BenchRank(bench::RankOptions),
    /// The process that holds the simulated machine
    #[command(hide = true)]
    SeastarSim(seastar_sim::Options),
}

/// The choice of a fabric, the same for every command that needs one.
#[derive(Debug, Clone, Args)]
pub(crate) struct FabricArgs {
    /// Fabric: seastar (a model, works everywhere) or verbs (RDMA)
    #[arg(long, env = "PORTOLAN_FABRIC", default_value_t = FabricKind::Seastar, value_name = "NAME")]
    pub(crate) fabric: FabricKind,
    /// RDMA device of the verbs fabric, such as rxe0; the first usable one by default
    #[arg(long, env = "PORTOLAN_DEVICE", value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Machine that the SeaStar model is set up as
    #[arg(
        long,
        env = "PORTOLAN_MACHINE",
        default_value = "xt4",
        value_name = "NAME"
    )]
    pub(crate) machine: String,
}

impl FabricArgs {
    /// The choice as the fabric's own configuration.
    pub(crate) fn config(&self) -> FabricConfig {
        FabricConfig {
            kind: self.fabric,
            device: self.device.clone(),
            machine: self.machine.clone(),
        }
    }

    /// The variables that carry the choice to ranks.
    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        let mut variables = vec![
            ("PORTOLAN_FABRIC".into(), self.fabric.name().into()),
            ("PORTOLAN_MACHINE".into(), self.machine.clone().into()),
        ];
        if let Some(device) = &self.device {
            variables.push(("PORTOLAN_DEVICE".into(), device.into()));
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
            "portolan run -n 4 --fabric verbs --device rxe0 --env A=1 --env B=2 -- prog",
            "portolan bench pingpong put-latency -n 2 --fabric seastar --sizes 8,64,1K --iters 10 --json -",
            "portolan bench match-depth --plot dir",
            "portolan info --json",
            "portolan guest --hosts 1 -- true",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    #[test]
    fn nonsense_is_bad_usage() {
        for line in [
            "portolan dance",
            "portolan run -n 0 -- prog",
            "portolan run -n 2",
            "portolan run -- prog",
            "portolan run -n 2 --fabric myrinet -- prog",
            "portolan run -n 2 --env A -- prog",
            "portolan bench",
            "portolan bench teleport",
            "portolan bench pingpong --sizes 8,x",
        ] {
            let error = Cli::try_parse_from(line.split(' '))
                .map(|_| ())
                .unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }
}
