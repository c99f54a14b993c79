//! `portolan bench --sensitivity`: the measurement again with each invented parameter halved and doubled.

use std::io::{self, IsTerminal as _};

use portals_shim::fabric::FabricKind;
use portals_shim::nal::seastar;

use super::{Options, Plan};
use crate::bench::Record;
use crate::bench::sensitivity::{self, Trial};
use crate::error::CmdError;

/// Adds to `records`, which are of `plan`, what the parameters of `trials` do to them; or the status of a job that
/// failed.
pub(super) fn add(
    options: &Options,
    plan: &Plan,
    trials: &[Trial],
    mut records: Vec<Record>,
) -> Result<Result<Vec<Record>, u8>, CmdError> {
    for (at, trial) in trials.iter().enumerate() {
        if io::stderr().is_terminal() {
            let count = trials.len();
            portals_shim::say(format_args!(
                "parameter {} of {count}: {}",
                at + 1,
                trial.parameter
            ));
        }
        let measured = |setting: Option<&String>| {
            let Some(setting) = setting else {
                return Ok(Ok(None));
            };
            let mut fabric = options.fabric.clone();
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

/// The parameters that are to be tried, where that is asked for.
pub(super) fn trials(options: &Options) -> Result<Option<Vec<Trial>>, CmdError> {
    let Some(wished) = &options.sensitivity else {
        return Ok(None);
    };
    let config = options.fabric.config();
    let kind = config.kind();
    if kind != FabricKind::Seastar {
        return Err(CmdError::Usage(format!(
            "--sensitivity is of the parameters of --fabric seastar; here the fabric is {kind}"
        )));
    }
    let set = config.set.iter().filter_map(|set| set.split_once('='));
    let chosen: Vec<&str> = set.map(|(name, _)| name.trim()).collect();
    let mut trials = sensitivity::trials(&seastar::machine(&config)?, config.mode, &chosen);
    for word in wished {
        if !trials.iter().any(|trial| trial.is_of(word)) {
            return Err(CmdError::Usage(format!(
                "--sensitivity: {word} is no invented parameter of this machine and mode, and no section of them"
            )));
        }
    }
    trials.retain(|trial| wished.is_empty() || wished.iter().any(|word| trial.is_of(word)));
    Ok(Some(trials))
}
