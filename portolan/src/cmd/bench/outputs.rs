//! Where the results of `portolan bench` go.

use std::io;
use std::path::Path;

use portals_shim::fabric::FabricConfig;

use super::{Options, Plan, print_tables, published};
use crate::bench::{Record, write_plots, write_records};
use crate::cmd::failed;
use crate::cmd::output::{self, OutputFile};
use crate::error::CmdError;

/// Where results go, which is known to be possible before anything is measured.
pub(super) struct Outputs {
    file: Option<OutputFile>,
    /// The results of other runs, which are drawn beside these.
    others: Vec<Record>,
}

impl Outputs {
    pub(super) fn open(options: &Options) -> Result<Self, CmdError> {
        let file = options.json.as_deref().filter(|path| !is_stdout(path));
        let file = file.map(OutputFile::open).transpose()?;
        if let Some(path) = &options.plot {
            output::folder(path)?;
        }
        let others = options.others()?;
        Ok(Self { file, others })
    }

    pub(super) fn report(
        self,
        options: &Options,
        plan: &Plan,
        config: &FabricConfig,
        mut records: Vec<Record>,
    ) -> Result<(), CmdError> {
        let curves = published(config);
        if options.json.as_deref().is_some_and(is_stdout) {
            write_records(&records, io::stdout().lock())
                .map_err(failed("write standard output"))?;
        } else {
            print_tables(&plan.names, &records, &curves)?;
            if let Some(file) = self.file {
                file.write(|to| write_records(&records, to))?;
            }
        }
        if let Some(folder) = &options.plot {
            records.extend(self.others);
            for file in write_plots(&records, &curves, folder).map_err(CmdError::Failed)? {
                portals_shim::say(format_args!("{}", file.display()));
            }
        }
        Ok(())
    }
}

/// Whether results go to standard output.
fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}
