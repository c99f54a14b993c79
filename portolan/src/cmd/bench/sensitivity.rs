//! `portolan bench --sensitivity`: the measurement again with each invented parameter halved and doubled.

use std::io::{self, IsTerminal as _};

use portals_shim::fabric::FabricKind;
use portals_shim::nal::seastar;

use super::{Options, Plan};
use crate::bench::{Record, sensitivity};
use crate::cli::FabricArgs;
use crate::error::CmdError;

/// Adds to `records`, which are of `plan`, what the invented parameters of the machine do to them; or the status of a
/// job that failed.
pub(super) fn add(
    options: &Options,
    plan: &Plan,
    fabric: &FabricArgs,
    mut records: Vec<Record>,
) -> Result<Result<Vec<Record>, u8>, CmdError> {
    let config = fabric.config();
    let set = config.set.iter().filter_map(|set| set.split_once('='));
    let chosen: Vec<&str> = set.map(|(name, _)| name.trim()).collect();
    let trials = sensitivity::trials(&seastar::machine(&config)?, config.mode, &chosen);
    for (at, trial) in trials.iter().enumerate() {
        if io::stderr().is_terminal() {
            let count = trials.len();
            eprintln!("parameter {} of {count}: {}", at + 1, trial.parameter);
        }
        let measured = |setting: Option<&String>| {
            let Some(setting) = setting else {
                return Ok(Ok(None));
            };
            let mut fabric = fabric.clone();
            fabric.model.set.push(setting.clone());
            let found = options.measured("portolan bench", plan, &fabric)?;
            Ok::<_, CmdError>(found.map(Some))
        };
        let halved = match measured(trial.halved.as_ref())? {
            Ok(found) => found,
            Err(status) => return Ok(Err(status)),
        };
        let doubled = match measured(trial.doubled.as_ref())? {
            Ok(found) => found,
            Err(status) => return Ok(Err(status)),
        };
        sensitivity::note(
            &mut records,
            &trial.parameter,
            halved.as_deref(),
            doubled.as_deref(),
        );
    }
    Ok(Ok(records))
}

/// Refuses what has no machine file.
pub(super) fn check(fabric: &FabricArgs) -> Result<(), CmdError> {
    match fabric.config().kind() {
        FabricKind::Seastar => Ok(()),
        kind => Err(CmdError::Usage(format!(
            "--sensitivity is of the parameters of --fabric seastar; here the fabric is {kind}"
        ))),
    }
}
