//! `portolan seastar-device`: chips of the SeaStar model as PCI devices of another program.

use std::path::PathBuf;

use clap::Args;
use nic_device::{Chips, Listeners, ServeOptions, serve};
use nic_model::Machine;

use crate::cmd::say;
use crate::error::CmdError;

/// Options of `portolan seastar-device`.
///
/// A vfio-user client (another program's driver, a virtual machine) finds a PCI function with
/// vendor 0x17db and device 0x0101 at PATH.0, PATH.1 and so on: one chip each, in a ring. Virtual
/// time passes when a client touches its function. When a client leaves, its chip forgets the
/// memory; when the last one leaves, all chips begin anew.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Where the sockets are made: PATH.0 for the first chip, PATH.1 for the second
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Chips in the ring
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
    /// Machine whose parameters are used
    #[arg(
        long,
        env = "PORTOLAN_MACHINE",
        default_value = "xt4",
        value_name = "NAME"
    )]
    machine: String,
    /// End when the last client has left
    #[arg(long)]
    once: bool,
}

/// Serves until the last client has left, or for ever.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let usage = |message: String| CmdError::Usage(message);
    let machine = Machine::named(&options.machine).map_err(|e| usage(e.to_string()))?;
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
