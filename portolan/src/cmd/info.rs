//! `portolan info`: what can be used on this machine, why the rest cannot, and what to do about it.

use clap::Args;
use portals_shim::fabric::{self, FabricConfig, FabricError, FabricKind};
use serde::Serialize;

use crate::error::CmdError;

/// Options of `portolan info`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// One fabric, as `--json` prints it.
#[derive(Debug, Serialize)]
struct FabricInfo {
    fabric: &'static str,
    usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Prints what there is.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    for kind in FabricKind::ALL {
        let info = fabric_info(kind);
        if options.json {
            let line = serde_json::to_string(&info)
                .map_err(|error| CmdError::Failed(format!("cannot write JSON: {error}")))?;
            println!("{line}");
        } else {
            let state = if info.usable { "usable" } else { "not usable" };
            let reason = info.reason.map(|r| format!(": {r}")).unwrap_or_default();
            println!("{:<10} {state}{reason}", info.fabric);
        }
    }
    Ok(0)
}

fn fabric_info(kind: FabricKind) -> FabricInfo {
    let config = FabricConfig {
        kind,
        ..FabricConfig::default()
    };
    let reason = match fabric::check(&config) {
        Ok(()) => None,
        Err(FabricError::Unusable { reason, .. }) => Some(reason),
        Err(error) => Some(error.to_string()),
    };
    FabricInfo {
        fabric: kind.name(),
        usable: reason.is_none(),
        reason,
    }
}
