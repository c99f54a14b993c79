//! `portolan demo`: the SeaStar model beside what was published about the machine.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::bench::{Name, parse_size, write_plots, write_records};
use crate::cli::ModelArgs;
use crate::cmd::bench::{measure, print_tables, published};
use crate::cmd::output::{self, OutputFile};
use crate::cmd::report::{fabric, plan, traced_put};
use crate::cmd::{failed, launched, say};
use crate::error::CmdError;
use crate::page::{Source, What, write as write_page};

const TITLE: &str = "portolan demo";

/// What the demo measures.
const NAMES: [Name; 6] = [
    Name::Pingpong,
    Name::PutLatency,
    Name::GetLatency,
    Name::PutBandwidth,
    Name::AmMedium,
    Name::AmLong,
];

/// Options of `portolan demo`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Folder for plots and results
    #[arg(long, value_name = "DIR", default_value = "portolan-demo")]
    out: PathBuf,
    /// Message sizes to measure in place of the usual ones
    #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "LIST")]
    sizes: Vec<u64>,
    #[command(flatten)]
    model: ModelArgs,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            out: PathBuf::from("portolan-demo"),
            sizes: Vec::new(),
            model: ModelArgs::default(),
        }
    }
}

/// Measures two ranks of the model, prints tables and draws plots.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    if let Some(status) = launched::refused("demo") {
        return Ok(status);
    }
    let fabric = fabric(&options.model);
    let folder = &options.out;
    make_folder(folder)?;
    let results = OutputFile::open(&folder.join("results.jsonl"))?;
    let page = OutputFile::open(&folder.join("report.html"))?;
    say(&format!(
        "Two ranks on a model of the Cray SeaStar ({}): puts and gets of Portals, active messages of the\n\
         conduit, in virtual time. Model values are modelled, not measured.\n",
        options.model.shown()
    ))?;
    let plan = plan(&NAMES, &options.sizes, None);
    let (status, records) = measure(
        TITLE,
        &plan,
        2,
        &fabric.config(),
        fabric.variables(Some(2)),
        None,
    )?;
    if status != 0 {
        return Ok(status);
    }
    let put = match traced_put(TITLE, &fabric)? {
        Ok(put) => put,
        Err(status) => return Ok(status),
    };
    let curves = published(&fabric.config());
    print_tables(&NAMES, &records, &curves)?;
    say(
        "Published values are of MPI, which costs time on top of Portals. Only one-way times are published: \
         bandwidths derived from them are\nbytes / time of single messages (put-bandwidth has many under way), \
         and an operation that ends with an answer is set beside\nthe message and an empty one back.",
    )?;
    for curve in &curves {
        say(&format!(
            "  {}: {}\n    {}",
            curve.label, curve.source, curve.status
        ))?;
    }
    results.write(|to| write_records(&records, to))?;
    let plots = write_plots(&records, &curves, folder).map_err(CmdError::Failed)?;
    let results = Source {
        name: "Two ranks on the model".to_owned(),
        what: What::Results(records),
    };
    page.write(|to| write_page(&[results, put], BufWriter::new(to)))?;
    say(&format!(
        "\n{} plots, results.jsonl and report.html are in {}",
        plots.len(),
        folder.display()
    ))?;
    Ok(0)
}

/// Makes the folder. One that is new is kept out of version control: what a demo leaves behind is not
/// meant to be committed.
fn make_folder(folder: &Path) -> Result<(), CmdError> {
    if !output::folder(folder)? {
        return Ok(());
    }
    let marker = folder.join(".gitignore");
    fs::write(&marker, "*\n").map_err(failed(&format!("write {}", marker.display())))
}
