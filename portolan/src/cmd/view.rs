//! `portolan view`: timelines, loads of links and results as one page of HTML.

use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::cmd::output::OutputFile;
use crate::cmd::say;
use crate::error::CmdError;
use crate::page;

/// Where the page goes that has no name.
const PAGE: &str = "portolan-view.html";

/// Options of `portolan view`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Timelines and --link-series of portolan trace, results of bench or sweep --json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the page into OUT.html
    #[arg(short, long, value_name = "OUT.html", default_value = PAGE)]
    out: PathBuf,
}

/// Whether both are the same file, by whatever names.
fn same(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| path.canonicalize().ok();
    whole(one).is_some_and(|path| Some(path) == whole(other))
}

/// Writes the page.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let out = options.out.display();
    if options.files.iter().any(|file| same(file, &options.out)) {
        let message =
            format!("{out} is read, so that the page cannot go there; name another file with -o");
        return Err(CmdError::Usage(message));
    }
    let output = OutputFile::open(&options.out)?;
    let sources = options.files.iter().map(|file| page::read(file));
    let sources = sources.collect::<Result<Vec<_>, _>>()?;
    output.write(|to| page::write(&sources, BufWriter::new(to)))?;
    say(&format!("{out}: open it in a browser"))?;
    Ok(0)
}
