//! `portolan seastar-device`: chips of the SeaStar model as PCI devices of another program.

use std::path::PathBuf;

use clap::Args;
use nic_device::{Chips, Listeners, ServeOptions, serve};
use nic_model::Machine;
use portals_shim::fabric::{FabricConfig, ModelOption};

use crate::cmd::numbers::whole;
use crate::cmd::say;
use crate::error::CmdError;

/// Options of `portolan seastar-device`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the sockets are made: PATH.0, PATH.1, ..
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Chips in the ring
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = whole(1..=64u16))]
    nodes: u16,
    /// Machine whose parameters are used
    #[arg(
        long,
        env = "PORTOLAN_MACHINE",
        default_value = "xt4",
        value_name = "NAME"
    )]
    machine: String,
    /// Another value of a parameter of the machine; repeatable
    ///
    /// SECTION.KEY=VALUE, as host.interrupt_entry=2.0. The parameters are those of machine files. Times are microseconds, or
    /// have ps, ns, us, ms or s behind them.
    #[arg(long, env = FabricConfig::SET, value_name = "KEY=VALUE", value_delimiter = ',')]
    set: Vec<String>,
    /// End when the last client has left
    #[arg(long)]
    once: bool,
}

/// Serves until the last client has left, or for ever.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let usage = |message: String| CmdError::Usage(message);
    let machine = Machine::named(&options.machine).map_err(|e| usage(e.to_string()))?;
    let set = |machine: Machine, setting: &String| machine.with_setting(setting);
    let machine = options.set.iter().try_fold(machine, set);
    let machine = machine.map_err(|e| usage(format!("{}: {e}", ModelOption::SET)))?;
    let mut chips = Chips::new(machine, options.nodes).map_err(|e| usage(e.to_string()))?;
    let listeners = Listeners::bind(&options.socket, options.nodes)?;
    for path in listeners.paths() {
        say(&path.display().to_string())?;
    }
    let how_long = if options.once {
        ServeOptions::once()
    } else {
        ServeOptions::default()
    };
    serve(&listeners, &mut chips, how_long)?;
    Ok(0)
}
