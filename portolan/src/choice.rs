//! The words by which every command chooses a fabric.

use std::ffi::OsString;

use clap::Args;
use portals_shim::fabric::{
    Channel, FabricChoice, FabricConfig, FabricKind, MOST_PER_NODE, Mode, ModelOption,
    REASON_VARIABLE,
};
use portals_shim::place::Placement;

use crate::cmd::numbers::whole;
use crate::error::CmdError;

/// Headings of the help.
const VERBS: &str = "Verbs";
const MODEL: &str = "SeaStar model";

/// The choice of a fabric, the same for every command that needs one.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Fabric")]
pub(crate) struct FabricArgs {
    /// Fabric: auto, shm, verbs (RDMA) or seastar (a model)
    ///
    /// auto takes shm, the memory of one machine, if all ranks are on one. Between machines it takes verbs. It takes the
    /// model if an option of the model is given. Other words for verbs are infiniband, ib, roce and rdma.
    #[arg(long, env = "PORTOLAN_FABRIC", value_name = "NAME", default_value_t = FabricChoice::Auto)]
    pub(crate) fabric: FabricChoice,
    /// Have ranks of one machine talk through the device too
    ///
    /// Without it ranks of one machine talk through memory, under verbs too.
    #[arg(long, help_heading = VERBS)]
    pub(crate) no_shm: bool,
    /// How messages are carried: rc, ud or auto; rc by default
    ///
    /// rc is a reliable connection to each peer, and RDMA. ud is reliable datagrams, with two queue pairs for all peers.
    /// auto begins with datagrams and connects to the peers that are talked to much.
    #[arg(long, env = FabricConfig::CHANNEL, value_name = "CHANNEL", help_heading = VERBS)]
    pub(crate) channel: Option<Channel>,
    /// RDMA device, such as rxe0; the first usable one by default
    ///
    /// NAME:PORT names a port too. `portolan info` lists devices and ports.
    #[arg(long, env = "PORTOLAN_DEVICE", value_name = "NAME", help_heading = VERBS)]
    pub(crate) device: Option<String>,
    /// Address of the device's port: an IP address or an index
    ///
    /// `portolan info` shows the addresses with their indices. The one that reaches most peers is the default.
    #[arg(long, env = "PORTOLAN_GID", value_name = "GID", help_heading = VERBS)]
    pub(crate) gid: Option<String>,
    /// Ranks that share a node, numbered within it
    ///
    /// On the model the ranks of a node share its NIC. Elsewhere a node is so by name, and GASNet's supernodes follow it.
    #[arg(long, env = "PORTOLAN_RANKS_PER_NODE", default_value_t = 1, value_name = "R",
          value_parser = whole(1..=MOST_PER_NODE))]
    pub(crate) ranks_per_node: u32,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    #[command(flatten)]
    pub(crate) wrong: FaultArgs,
}

/// What goes wrong on the machine that is modelled.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = MODEL)]
pub(crate) struct FaultArgs {
    /// What goes wrong: a fault file
    ///
    /// The book describes the file under Faults of the SeaStar model. Times in it are from the start of the simulated
    /// machine, as in traces.
    #[arg(long, env = FabricConfig::FAULTS, value_name = "FILE", value_parser = whole_path)]
    pub(crate) faults: Option<String>,
    /// Seed of what goes wrong at random: N or N:RATE=VALUE,..
    ///
    /// It replaces the fault file's seed, and the rates that it names, such as
    /// 7:lost_packets=1000,corrupted_packets=1000 (of 10^9) or 7:link_bit_errors=1000 (of 10^12).
    #[arg(long, env = FabricConfig::FAULT_SEED, value_name = "SEED")]
    pub(crate) fault_seed: Option<String>,
}

/// The choice of the machine that is modelled.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = MODEL)]
pub(crate) struct ModelArgs {
    /// Machine: xt4, xt3, redstorm, .. or a file; xt4 by default
    ///
    /// The machines are xt4, xt4-linux, xt3, xt3-linux, redstorm and redstorm-2005. A path with a / or that ends in
    /// .toml is a machine file.
    #[arg(long, env = "PORTOLAN_MACHINE", value_name = "NAME", value_parser = machine)]
    pub(crate) machine: Option<String>,
    /// Another value of a parameter of the machine; repeatable
    ///
    /// SECTION.KEY=VALUE, as host.interrupt_entry=2.0. The parameters are those of machine files. Times are microseconds, or
    /// have ps, ns, us, ms or s behind them.
    #[arg(long, env = FabricConfig::SET, value_name = "KEY=VALUE", value_delimiter = ',')]
    pub(crate) set: Vec<String>,
    /// Grid of nodes: XxYxZ, or XxYxZ,mesh, such as 4x4x2
    ///
    /// A mesh has no links that close its rows. The smallest torus that holds the nodes is the default. Nodes fill rows
    /// of x first.
    #[arg(long, env = "PORTOLAN_TOPOLOGY", value_name = "GRID")]
    pub(crate) topology: Option<String>,
    /// Place of each rank on the grid: linear, blocked:N, random:SEED or a file
    ///
    /// linear fills rows of x first. blocked:N fills cubes of N places a side, one after another; N is 2 if it is not said.
    /// random:SEED draws the places. FILE has a line for each rank: the number of its place, or x y z. Ranks of a node
    /// have one place.
    #[arg(long, env = "PORTOLAN_MAP", value_name = "MAP", value_parser = map)]
    pub(crate) map: Option<String>,
    /// Who matches: generic or accelerated; generic by default
    ///
    /// generic: the kernels of the nodes. accelerated: the firmware of their NICs.
    #[arg(long, env = "PORTOLAN_SEASTAR_MODE", value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
}

impl ModelArgs {
    /// The machine that was chosen, or the usual one.
    pub(crate) fn machine(&self) -> String {
        let usual = || FabricConfig::default().machine;
        self.machine.clone().unwrap_or_else(usual)
    }

    /// The machine in words, with what was set of it.
    pub(crate) fn shown(&self) -> String {
        match self.set.as_slice() {
            [] => self.machine(),
            set => format!("{} with {}", self.machine(), set.join(", ")),
        }
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

/// A word for a map, or the whole path of a file of places.
fn map(text: &str) -> Result<String, String> {
    match portals_shim::nal::seastar::is_map_file(text) {
        true => whole_path(text),
        false => Ok(text.to_owned()),
    }
}

/// The whole path of a file: ranks may have other working directories.
fn whole_path(text: &str) -> Result<String, String> {
    let path = std::path::absolute(text).map_err(|error| format!("{text}: {error}"))?;
    let path = path.into_os_string().into_string();
    path.map_err(|path| format!("{} is not UTF-8", path.display()))
}

impl FabricArgs {
    /// The options of the model that were given.
    fn of_model(&self) -> impl Iterator<Item = ModelOption> + use<> {
        let Self { model, wrong, .. } = self;
        let given = [
            (ModelOption::MACHINE, model.machine.is_some()),
            (ModelOption::SET, !model.set.is_empty()),
            (ModelOption::TOPOLOGY, model.topology.is_some()),
            (ModelOption::MAP, model.map.is_some()),
            (ModelOption::MODE, model.mode.is_some()),
            (ModelOption::FAULTS, wrong.faults.is_some()),
            (ModelOption::FAULT_SEED, wrong.fault_seed.is_some()),
        ];
        let given = given.into_iter().filter(|(_, given)| *given);
        given.map(|(option, _)| option)
    }

    /// The choice, which an option of the model makes where no fabric is named.
    pub(crate) fn choice(&self) -> FabricChoice {
        self.fabric.with(self.of_model())
    }

    /// The options that were given and that this fabric does not read, with their variables.
    fn unread(&self, kind: FabricKind) -> Vec<String> {
        let device = [
            ("--channel", FabricConfig::CHANNEL, self.channel.is_some()),
            ("--device", "PORTOLAN_DEVICE", self.device.is_some()),
            ("--gid", "PORTOLAN_GID", self.gid.is_some()),
        ];
        let device = device.into_iter().filter(|(.., given)| *given);
        let device = device.map(|(option, variable, _)| format!("{option} ({variable})"));
        let mut unread = Vec::new();
        if kind != FabricKind::Verbs {
            unread.extend(device);
        }
        if kind != FabricKind::Seastar {
            unread.extend(self.of_model().map(|option| option.to_string()));
        }
        unread
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

    /// Says which options have no effect, for ranks that are all on this machine. In a rank of a job variables are those of its
    /// launcher, which names a machine on every fabric: there it says nothing.
    pub(crate) fn say_unread(&self) {
        let kind = self.kind();
        let unread = self.unread(kind);
        let is_rank = std::env::var_os(REASON_VARIABLE).is_some();
        if unread.is_empty() || is_rank {
            return;
        }
        let has = if unread.len() == 1 { "has" } else { "have" };
        let unread = unread.join(", ");
        host::note(format_args!(
            "{unread} {has} no effect: the fabric is {kind}"
        ));
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
            set: self.model.set.clone(),
            topology: self.model.topology.clone(),
            map: self.model.map.clone(),
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
        if !self.model.set.is_empty() {
            let all = self.model.set.join(",");
            variables.push((FabricConfig::SET.into(), all.into()));
        }
        if let Some(topology) = &self.model.topology {
            variables.push((ModelOption::TOPOLOGY.variable.into(), topology.into()));
        }
        if let Some(map) = &self.model.map {
            variables.push((ModelOption::MAP.variable.into(), map.into()));
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
