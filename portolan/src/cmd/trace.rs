//! `portolan trace`: a program on the SeaStar model, and what the simulated machine did.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use portals_shim::fabric::{self, FabricKind};
use portals_shim::handover::Handover;
use portals_shim::nal::seastar::{
    BIN_VARIABLE, COUNTERS_VARIABLE, ERRORS_VARIABLE, LINK_SERIES_VARIABLE, LINKS_VARIABLE,
    PACKETS_VARIABLE, PCAP_VARIABLE, SVG_VARIABLE, TITLE_VARIABLE, TRACE_VARIABLE, WINDOW_VARIABLE,
    parse_bin, parse_window,
};

use crate::cli::FabricArgs;
use crate::cmd::failed;
use crate::cmd::launched;
use crate::cmd::numbers::whole;
use crate::cmd::output;
use crate::cmd::run::RANKS_MAX;
use crate::error::CmdError;
use crate::run::{JOB_VARIABLE, JobSpec, find_program, launch, no_program, same_addresses};

/// Heading of the help.
const OUTPUT: &str = "Output";

/// How the timeline is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// JSON of Chrome's trace event format: ui.perfetto.dev, chrome://tracing
    Perfetto,
}

/// Options of `portolan trace`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct Options {
    /// Number of ranks; -np too
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = whole(1..=RANKS_MAX))]
    ranks: u32,
    #[command(flatten)]
    fabric: FabricArgs,
    /// Write the timeline into FILE
    ///
    /// It shows calls, kernels, firmwares, engines and links.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    out: Option<PathBuf>,
    /// How the timeline is written
    #[arg(long, value_enum, default_value_t = Format::Perfetto, value_name = "NAME", help_heading = OUTPUT)]
    format: Format,
    /// Leave packets on links out of the timeline
    #[arg(long, help_heading = OUTPUT)]
    no_packets: bool,
    /// Write packets that came out of the network into FILE
    ///
    /// The form is pcap.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pcap: Option<PathBuf>,
    /// Draw how busy each part of each node was into FILE
    ///
    /// The form is SVG.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    svg: Option<PathBuf>,
    /// Part of the run that --svg draws, in microseconds
    ///
    /// Its messages are drawn too. Times are those of the model's virtual clock.
    #[arg(long, value_name = "FROM..TO", requires = "svg", value_parser = window, help_heading = OUTPUT)]
    window: Option<String>,
    /// Print what each link carried
    #[arg(long, help_heading = OUTPUT)]
    links: bool,
    /// Write what each link carried over time into FILE
    ///
    /// The form is a flat array of JSON objects, one for each link and bin of time; portolan view draws it.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    link_series: Option<PathBuf>,
    /// Width of a bin of --link-series, in microseconds
    ///
    /// It is 1 unless this says another, and 0.001 at least. Bins become twice as wide as often as there are too many.
    #[arg(long, value_name = "US", requires = "link_series", value_parser = bin, help_heading = OUTPUT)]
    bin: Option<String>,
    /// Print the registers of the NIC control blocks at the end
    #[arg(long, help_heading = OUTPUT)]
    counters: bool,
    /// Set a variable for every rank; may be repeated
    #[arg(long = "env", value_name = "K=V", value_parser = super::run::variable)]
    env: Vec<(OsString, OsString)>,
    /// End the job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::run::seconds)]
    timeout: Option<Duration>,
    /// The program and its arguments
    ///
    /// It is looked for as given, in PATH, and beside portolan. Options of portolan go before it.
    #[arg(trailing_var_arg = true, required = true, value_name = "PROGRAM", help_heading = None::<&'static str>)]
    program: Vec<OsString>,
}

fn window(text: &str) -> Result<String, String> {
    parse_window(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "FROM..TO in microseconds is expected, such as 120..180.5".to_owned())
}

fn bin(text: &str) -> Result<String, String> {
    parse_bin(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "microseconds are expected, 0.001 or more, such as 2.5".to_owned())
}

/// What the simulation hands over for this command to print: the variable that names it, and where it goes.
type Table = (&'static str, Handover);

fn tables(options: &Options) -> Result<Vec<Table>, CmdError> {
    let wanted = [
        (LINKS_VARIABLE, options.links),
        (COUNTERS_VARIABLE, options.counters),
    ];
    let wanted = wanted.into_iter().filter(|(_, wanted)| *wanted);
    wanted.map(|(name, _)| Ok((name, handover()?))).collect()
}

fn handover() -> Result<Handover, CmdError> {
    Handover::new().map_err(failed("make a file for what the simulation says"))
}

/// What was handed over.
fn text_of(handover: Handover) -> Result<String, CmdError> {
    io::read_to_string(handover.into_file()).map_err(failed("read what the simulation said"))
}

/// The whole path of a file that another process is to write, once it is known to be writable.
fn writable(path: &Path) -> Result<OsString, CmdError> {
    fs::File::create(path).map_err(|error| output::refused("create", path, error))?;
    let path = std::path::absolute(path).map_err(failed("find the working directory"))?;
    Ok(path.into())
}

/// The program's name and its arguments.
fn title(program: &[OsString]) -> String {
    let (first, rest) = program.split_at(program.len().min(1));
    let name = first.iter().map(|p| Path::new(p).file_name().unwrap_or(p));
    let words = name.chain(rest.iter().map(OsString::as_os_str));
    let words: Vec<_> = words.map(|word| word.to_string_lossy()).collect();
    words.join(" ")
}

/// Runs the program and returns the job's exit status.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    if let Some(status) = launched::refused("trace") {
        return Ok(status);
    }
    let Some((program, args)) = options.program.split_first() else {
        return Err(CmdError::Usage("no program to run".to_owned()));
    };
    let chosen = options.fabric.modelled();
    if chosen.kind() != FabricKind::Seastar {
        return Err(CmdError::Usage(
            "only the SeaStar model can be traced: --fabric seastar".to_owned(),
        ));
    }
    if find_program(program).is_none() {
        return Err(CmdError::Usage(no_program(program)));
    }
    fabric::check_for(&chosen.config(), Some(options.ranks))?;
    let Format::Perfetto = options.format;
    let tables = tables(options)?;
    let files = [
        (PCAP_VARIABLE, &options.pcap),
        (SVG_VARIABLE, &options.svg),
        (LINK_SERIES_VARIABLE, &options.link_series),
    ];
    let nothing = files.iter().all(|(_, path)| path.is_none()) && tables.is_empty();
    let timeline = match &options.out {
        Some(path) => Some(path.clone()),
        None => nothing.then(|| PathBuf::from("portolan-trace.json")),
    };
    let mut env = chosen.variables(Some(options.ranks));
    // The same job in every run: its id is in every message.
    env.push((JOB_VARIABLE.into(), "trace".into()));
    let files = [(TRACE_VARIABLE, &timeline)].into_iter().chain(files);
    let files: Vec<_> = files.collect();
    for (variable, path) in &files {
        if let Some(path) = path {
            env.push(((*variable).into(), writable(path)?));
        }
    }
    let errors = handover()?;
    env.push((ERRORS_VARIABLE.into(), errors.name().into()));
    for (variable, table) in &tables {
        env.push(((*variable).into(), table.name().into()));
    }
    if options.no_packets {
        env.push((PACKETS_VARIABLE.into(), "0".into()));
    }
    env.push((TITLE_VARIABLE.into(), title(&options.program).into()));
    if let Some(window) = &options.window {
        env.push((WINDOW_VARIABLE.into(), window.into()));
    }
    if let Some(bin) = &options.bin {
        env.push((BIN_VARIABLE.into(), bin.into()));
    }
    env.extend(options.env.iter().cloned());
    // What a program sends may hold addresses.
    if let Err(error) = same_addresses() {
        tracing::warn!(%error, "a capture may differ from run to run");
    }
    let status = launch(&JobSpec {
        title: "portolan trace",
        ranks: options.ranks,
        pmi: true,
        program: program.clone(),
        args: args.to_vec(),
        env,
        timeout: options.timeout,
        bind: false,
        tag_output: false,
    })?;
    for (_, table) in tables {
        // Empty when the program never opened the fabric.
        let text = text_of(table)?;
        if !text.is_empty() {
            super::say(text.trim_end())?;
        }
    }
    let errors = text_of(errors)?;
    if !errors.is_empty() {
        for line in errors.lines() {
            portals_shim::say(format_args!("portolan trace: {line}"));
        }
        // A program that failed has said more.
        return Ok(if status == 0 { 1 } else { status });
    }
    for path in files.into_iter().filter_map(|(_, path)| path.as_ref()) {
        let name = path.display();
        match fs::metadata(path) {
            Ok(file) if file.len() > 0 => portals_shim::say(format_args!("{name}")),
            _ => portals_shim::say(format_args!(
                "portolan trace: {name} is empty: the program did not use the fabric, or was ended"
            )),
        }
    }
    Ok(status)
}
