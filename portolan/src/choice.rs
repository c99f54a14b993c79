//! The words by which every command chooses a fabric.

use std::ffi::OsString;

use clap::Args;
use portals_shim::fabric::{
    Channel, FabricChoice, FabricConfig, FabricKind, MOST_PER_NODE, Mode, ModelOption,
    REASON_VARIABLE,
};
use portals_shim::place::Placement;

use crate::error::CmdError;

/// The choice of a fabric, the same for every command that needs one.
#[derive(Debug, Clone, Args)]
pub(crate) struct FabricArgs {
    /// Fabric: shm (memory of one machine), verbs (RDMA; also infiniband, ib, roce, rdma), seastar (a model), or auto: shm on
    /// one machine, verbs between machines, and the model if an option of it is given
    #[arg(long, env = "PORTOLAN_FABRIC", value_name = "NAME", default_value_t = FabricChoice::Auto)]
    pub(crate) fabric: FabricChoice,
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
    /// The choice, which an option of the model makes where no fabric is named.
    pub(crate) fn choice(&self) -> FabricChoice {
        let Self { model, wrong, .. } = self;
        let given = [
            (ModelOption::MACHINE, model.machine.is_some()),
            (ModelOption::TOPOLOGY, model.topology.is_some()),
            (ModelOption::MODE, model.mode.is_some()),
            (ModelOption::FAULTS, wrong.faults.is_some()),
            (ModelOption::FAULT_SEED, wrong.fault_seed.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        self.fabric.with(given.map(|(option, _)| option))
    }

    /// The choice of a command that is for the model: that, unless another is named.
    pub(crate) fn modelled(&self) -> Self {
        match self.fabric {
            FabricChoice::Named(_) => self.clone(),
            _ => self.named(FabricKind::Seastar),
        }
    }

    /// The same with this fabric.
    pub(crate) fn named(&self, kind: FabricKind) -> Self {
        Self {
            fabric: kind.into(),
            ..self.clone()
        }
    }

    /// The fabric for ranks that are all on this machine.
    pub(crate) fn kind(&self) -> FabricKind {
        self.choice().on_one_machine()
    }

    /// Refuses what contradicts itself, for ranks that are all on this machine.
    pub(crate) fn check(&self) -> Result<(), CmdError> {
        if self.no_shm && self.kind() == FabricKind::Shm {
            let message = "--no-shm is for --fabric verbs; here the fabric is shm".to_owned();
            return Err(CmdError::Usage(message));
        }
        Ok(())
    }

    /// The choice as the fabric's own configuration.
    pub(crate) fn config(&self) -> FabricConfig {
        FabricConfig {
            fabric: self.choice(),
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

    /// The variables that carry the choice to ranks: `here` are all on this machine, others find out where they are.
    pub(crate) fn variables(&self, here: Option<u32>) -> Vec<(OsString, OsString)> {
        let choice = self.choice();
        let (fabric, reason) = match (choice, here) {
            (FabricChoice::Auto, None) => (choice, None),
            _ => (self.kind().into(), choice.reason(here.unwrap_or(1))),
        };
        let mut variables = vec![
            ("PORTOLAN_FABRIC".into(), fabric.to_string().into()),
            (REASON_VARIABLE.into(), reason.unwrap_or_default().into()),
            (
                "PORTOLAN_RANKS_PER_NODE".into(),
                self.ranks_per_node.to_string().into(),
            ),
        ];
        // To ranks that choose, each of these is a word for the model.
        if fabric != FabricChoice::Auto {
            let (machine, mode) = (self.model.machine(), self.model.mode());
            variables.extend([
                (ModelOption::MACHINE.variable.into(), machine.into()),
                (ModelOption::MODE.variable.into(), mode.name().into()),
            ]);
        }
        if let Some(topology) = &self.model.topology {
            variables.push((ModelOption::TOPOLOGY.variable.into(), topology.into()));
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
