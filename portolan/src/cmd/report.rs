//! `portolan report`: a few measurements of the model and the timeline of a put, as one page of HTML.

use std::io::{BufWriter, Read as _};
use std::path::PathBuf;

use clap::Args;
use portals_shim::fabric::FabricKind;
use portals_shim::handover::Handover;
use portals_shim::nal::seastar::{TITLE_VARIABLE, TRACE_VARIABLE};

use crate::bench::{Name, Which, parse_size};
use crate::cli::{FabricArgs, FaultArgs, ModelArgs};
use crate::cmd::bench::{How, Layer, Plan, measure};
use crate::cmd::output::OutputFile;
use crate::cmd::{failed, launched, say};
use crate::error::CmdError;
use crate::page::{self, Source, Timeline, What};
use crate::run::JOB_VARIABLE;

/// What a report measures.
const NAMES: [Name; 4] = [
    Name::Pingpong,
    Name::PutLatency,
    Name::PutBandwidth,
    Name::AmMedium,
];
/// Durations of each point; the model repeats itself.
const ITERS: u64 = 5;

/// Options of `portolan report`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Write the page into OUT.html
    #[arg(
        short,
        long,
        value_name = "OUT.html",
        default_value = "portolan-report.html"
    )]
    out: PathBuf,
    /// Message sizes to measure in place of the usual ones
    #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "LIST")]
    sizes: Vec<u64>,
    #[command(flatten)]
    model: ModelArgs,
}

/// Two ranks on the model.
pub(crate) fn fabric(model: &ModelArgs) -> FabricArgs {
    FabricArgs {
        fabric: FabricKind::Seastar.into(),
        no_shm: false,
        channel: None,
        device: None,
        gid: None,
        ranks_per_node: 1,
        model: model.clone(),
        wrong: FaultArgs::default(),
    }
}

/// A plan for the model.
pub(crate) fn plan(names: &[Name], sizes: &[u64], iters: Option<u64>) -> Plan {
    Plan {
        names: names.to_vec(),
        how: How {
            sizes: sizes.to_vec(),
            software: Layer::Mpi,
            conduit: vec![Which::Portals],
            iters,
            pinning: Vec::new(),
        },
    }
}

/// The timeline of puts of 8 bytes from rank 0 to rank 1, each until its ack; or the status of a job that failed.
pub(crate) fn traced_put(
    title: &'static str,
    fabric: &FabricArgs,
) -> Result<Result<Source, u8>, CmdError> {
    let file = Handover::new().map_err(failed("make a file for the timeline"))?;
    let mut env = fabric.variables(Some(2));
    env.push((JOB_VARIABLE.into(), "trace".into()));
    env.push((TRACE_VARIABLE.into(), file.name().into()));
    env.push((TITLE_VARIABLE.into(), "put-latency of 8 bytes".into()));
    let plan = plan(&[Name::PutLatency], &[8], Some(1));
    let (status, _) = measure(title, &plan, 2, &fabric.config(), env, None)?;
    if status != 0 {
        return Ok(Err(status));
    }
    let mut text = Vec::new();
    let read = file.into_file().read_to_end(&mut text);
    read.map_err(failed("read the timeline"))?;
    let timeline = Timeline::parse(&text);
    let timeline = timeline.map_err(|error| {
        CmdError::Failed(format!(
            "the timeline of a put: {}",
            portals_shim::with_causes(&error)
        ))
    })?;
    Ok(Ok(Source {
        name: "A put, step by step".to_owned(),
        what: What::Timeline(timeline),
    }))
}

/// Measures, and writes the page.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    const TITLE: &str = "portolan report";
    if let Some(status) = launched::refused("report") {
        return Ok(status);
    }
    let output = OutputFile::open(&options.out)?;
    let fabric = fabric(&options.model);
    let config = fabric.config();
    let plan = plan(&NAMES, &options.sizes, Some(ITERS));
    let (status, records) = measure(TITLE, &plan, 2, &config, fabric.variables(Some(2)), None)?;
    if status != 0 {
        return Ok(status);
    }
    let put = match traced_put(TITLE, &fabric)? {
        Ok(put) => put,
        Err(status) => return Ok(status),
    };
    let results = Source {
        name: format!("Two ranks on the model ({})", options.model.machine()),
        what: What::Results(records),
    };
    output.write(|to| page::write(&[results, put], BufWriter::new(to)))?;
    let out = options.out.display();
    say(&format!(
        "{out}: simulated figures and the timeline of a put; open it in a browser"
    ))?;
    Ok(0)
}
