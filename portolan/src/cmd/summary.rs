//! `portolan summary`: what the trace and statistics files of a GASNet job say, added up.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cmd::{failed, say};
use crate::error::CmdError;
use crate::summary::{Sort, Summary};

/// Options of `portolan summary`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// What the rows of each table are ordered by
    #[arg(long, value_enum, default_value_t = Sort::Total, value_name = "BY")]
    sort: Sort,
    /// Ranks apart
    #[arg(long)]
    per_rank: bool,
    /// Files; a name with % stands for those of all ranks, from 0 on
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// The files that a name stands for.
fn expand(name: &Path) -> Vec<PathBuf> {
    let Some(text) = name.to_str().filter(|t| t.contains('%')) else {
        return vec![name.to_path_buf()];
    };
    let files = (0u32..).map(|rank| PathBuf::from(text.replace('%', &rank.to_string())));
    let found: Vec<PathBuf> = files.take_while(|f| f.is_file()).collect();
    if found.is_empty() {
        vec![name.to_path_buf()]
    } else {
        found
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let mut summary = Summary::new(options.sort, options.per_rank);
    for file in options.files.iter().flat_map(|f| expand(f)) {
        let reading = format!("read {}", file.display());
        let open = File::open(&file).map_err(failed(&reading))?;
        let read = summary.read(BufReader::new(open));
        read.map_err(failed(&reading))?;
    }
    if summary.is_empty() {
        let message = "the files have no line of a trace or of statistics".to_owned();
        return Err(CmdError::Failed(message));
    }
    say(summary.to_string().trim_end())?;
    Ok(0)
}
