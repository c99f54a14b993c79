//! `portolan demo`: the SeaStar model beside what was published about the machine.

use std::fs;
use std::path::PathBuf;

use clap::Args;
use portals_shim::fabric::FabricKind;

use crate::bench::{Name, write_plots, write_records};
use crate::cli::FabricArgs;
use crate::cmd::bench::{Plan, failed, measure, print_tables, published};
use crate::error::CmdError;

/// What the demo measures.
const NAMES: [Name; 5] = [
    Name::Pingpong,
    Name::PutLatency,
    Name::GetLatency,
    Name::PutBandwidth,
    Name::MatchDepth,
];

/// Options of `portolan demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder for plots and results
    #[arg(long, value_name = "DIR", default_value = "portolan-demo")]
    out: PathBuf,
    /// Machine that the SeaStar model is set up as
    #[arg(
        long,
        env = "PORTOLAN_MACHINE",
        default_value = "xt4",
        value_name = "NAME"
    )]
    machine: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            out: PathBuf::from("portolan-demo"),
            machine: "xt4".to_owned(),
        }
    }
}

/// Measures two ranks of the model, prints tables and draws plots.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let fabric = FabricArgs {
        fabric: FabricKind::Seastar,
        device: None,
        machine: options.machine.clone(),
    };
    println!(
        "Two ranks on a model of the Cray SeaStar ({}): puts and gets of the Portals interface, in virtual time.\n",
        options.machine
    );
    let plan = Plan {
        names: NAMES.to_vec(),
        sizes: Vec::new(),
        iters: None,
    };
    let (status, records) = measure(
        "portolan demo",
        &plan,
        2,
        &fabric.config(),
        fabric.variables(),
        None,
    )?;
    if status != 0 {
        return Ok(status);
    }
    let curves = published(FabricKind::Seastar);
    print_tables(&NAMES, &records, &curves)?;
    println!(
        "Published values are of MPI, which costs time on top of Portals; bandwidths are bytes / one-way time."
    );
    for curve in &curves {
        println!("  {}: {}\n    {}", curve.label, curve.source, curve.status);
    }
    let folder = &options.out;
    fs::create_dir_all(folder).map_err(failed(&format!("make {}", folder.display())))?;
    // What a demo leaves behind is not meant to be committed.
    fs::write(folder.join(".gitignore"), "*\n")
        .map_err(failed(&format!("write into {}", folder.display())))?;
    let results = folder.join("results.jsonl");
    let file =
        fs::File::create(&results).map_err(failed(&format!("create {}", results.display())))?;
    write_records(&records, file).map_err(failed(&format!("write {}", results.display())))?;
    let plots = write_plots(&records, &curves, folder).map_err(CmdError::Failed)?;
    println!(
        "\n{} plots and results.jsonl are in {}",
        plots.len(),
        folder.display()
    );
    Ok(0)
}
