//! `portolan sweep`: `portolan bench` on the model for each point of a grid of machine parameters.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _, Parser as _};
use portals_shim::fabric::{self, FabricKind};
use portals_shim::nal::seastar;

use crate::bench::{Name, draw_swept, swept_table};
use crate::cli::{Cli, Command, FabricArgs};
use crate::cmd::bench::{self, Plan};
use crate::cmd::output::OutputFile;
use crate::cmd::{failed, launched, say};
use crate::error::CmdError;
use crate::sweep::{Grid, Point, Row, Wished, write_csv, write_json};
use crate::words;

/// Heading of the help.
const OUTPUT: &str = "Output";

/// Options of `portolan sweep`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Values of a parameter of the machine; repeatable
    ///
    /// SECTION.KEY=VALUE,VALUE,.. as host.trap=0.1,0.2. The parameters are those of machine files. Times are microseconds, or
    /// have ps, ns, us, ms or s behind them. Several parameters are a grid, in which the last one varies fastest.
    #[arg(long, required = true, value_name = "KEY=LIST")]
    set: Vec<Wished>,
    /// Write results into FILE as comma-separated values
    ///
    /// For - they go to standard output, in place of the table.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    csv: Option<PathBuf>,
    /// Write results into FILE as one array of flat JSON objects
    ///
    /// For - they go to standard output, in place of the table.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// Draw the results of one measurement into FILE, as SVG
    ///
    /// The first axis has the sizes, or, where there is one size, the first parameter with several values. There is a line
    /// for each combination of the others.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    plot: Option<PathBuf>,
    /// The words of portolan bench, without its outputs
    #[arg(last = true, required = true, value_name = "bench NAME", help_heading = None::<&'static str>)]
    bench: Vec<OsString>,
}

/// What is measured at each point.
struct Measurement {
    options: bench::Options,
    plan: Plan,
    ranks: u32,
    fabric: FabricArgs,
}

impl Measurement {
    /// What the words after `--` mean; clap answers those that it does not understand.
    fn of(typed: &[OsString]) -> Result<Self, CmdError> {
        let usage = |message: String| Err(CmdError::Usage(message));
        let first = typed.first().map(|word| word.to_string_lossy());
        if first.as_deref() != Some("bench") {
            let first = first.unwrap_or_default();
            return usage(format!(
                "\"{first}\" stands after the --; bench and its words are expected"
            ));
        }
        let line = std::iter::once("portolan".into()).chain(typed.iter().cloned());
        let line = words::of_mpi(&Cli::command(), line.collect());
        let cli = Cli::try_parse_from(line).unwrap_or_else(|error| error.exit());
        let Some(Command::Bench(options)) = cli.command else {
            return usage("bench and its words are expected after the --".to_owned());
        };
        let (plan, ranks, fabric) = options.swept()?;
        let (plan, fabric) = (plan, fabric.modelled());
        let kind = fabric.kind();
        if kind != FabricKind::Seastar {
            return usage(format!(
                "a sweep is over parameters of --fabric seastar; here the fabric is {kind}"
            ));
        }
        fabric.check()?;
        plan.check()?;
        Ok(Self {
            options,
            plan,
            ranks,
            fabric,
        })
    }

    /// The grid on the machine that is chosen, all of whose points can be simulated.
    fn grid(&self, wished: &[Wished]) -> Result<Grid, CmdError> {
        let config = self.fabric.config();
        fabric::check_for(&config, Some(self.ranks))?;
        let grid = Grid::of(wished, &seastar::machine(&config)?);
        let grid = grid.map_err(|error| CmdError::Usage(error.to_string()))?;
        let set = config.set.iter().filter_map(|set| set.split_once('='));
        let fixed = set.map(|(name, _)| name.trim());
        if let Some(name) = fixed.into_iter().find(|name| grid.has(name)) {
            return Err(CmdError::Usage(format!(
                "{name} has a list of values, and one value by bench --set or PORTOLAN_MACHINE_SET; leave one out"
            )));
        }
        Ok(grid)
    }

    /// The fabric of one point.
    fn at(&self, settings: Vec<String>) -> FabricArgs {
        let mut fabric = self.fabric.clone();
        fabric.model.set.extend(settings);
        fabric
    }
}

/// Files to be written, opened before anything is measured.
struct Files {
    csv: Option<OutputFile>,
    json: Option<OutputFile>,
    plot: Option<(OutputFile, Name)>,
}

impl Options {
    fn is_output(path: Option<&PathBuf>) -> bool {
        path.is_some_and(|path| path == Path::new("-"))
    }

    fn files(&self, plan: &Plan) -> Result<Files, CmdError> {
        let both = Self::is_output(self.csv.as_ref()) && Self::is_output(self.json.as_ref());
        if both {
            let message = "--csv - and --json - both want standard output; name a file for one";
            return Err(CmdError::Usage(message.to_owned()));
        }
        let name = match (&self.plot, plan.names.as_slice()) {
            (Some(_), [name]) => Some(*name),
            (Some(_), names) => {
                let count = names.len();
                return Err(CmdError::Usage(format!(
                    "--plot draws one measurement, and bench has {count}"
                )));
            }
            (None, _) => None,
        };
        let file = |path: &Option<PathBuf>| {
            let path = path.as_ref().filter(|path| !Self::is_output(Some(path)));
            path.map(|path| OutputFile::open(path)).transpose()
        };
        Ok(Files {
            csv: file(&self.csv)?,
            json: file(&self.json)?,
            plot: self
                .plot
                .as_deref()
                .map(OutputFile::open)
                .transpose()?
                .zip(name),
        })
    }
}

/// Measures all points and reports.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    if let Some(status) = launched::refused("sweep") {
        return Ok(status);
    }
    let measurement = Measurement::of(&options.bench)?;
    let grid = measurement.grid(&options.set)?;
    let files = options.files(&measurement.plan)?;
    let points = grid.points();
    let mut results: Vec<(Point, Row)> = Vec::new();
    for (at, point) in points.iter().enumerate() {
        let settings = grid.settings(point);
        let told = format!(
            "point {} of {}: {}",
            at + 1,
            points.len(),
            settings.join(", ")
        );
        if io::stderr().is_terminal() {
            portals_shim::say(format_args!("{told}"));
        }
        let fabric = measurement.at(settings);
        let Measurement { options, plan, .. } = &measurement;
        let failure =
            |what: String| portals_shim::say(format_args!("portolan sweep: {told}{what}"));
        let records = match options.measured("portolan sweep", plan, &fabric) {
            Ok(Ok(records)) => records,
            Ok(Err(status)) => {
                failure(format!(
                    ": ended with status {status}; no result is printed"
                ));
                return Ok(status);
            }
            Err(error) => {
                failure(": failed".to_owned());
                return Err(error);
            }
        };
        let names = grid.names().map(str::to_owned);
        let parameters: Vec<_> = names.zip(point.numbers()).collect();
        results.extend(records.into_iter().map(|record| {
            let parameters = parameters.clone();
            (point.clone(), Row { parameters, record })
        }));
    }
    report(options, files, &measurement.plan, &grid, &results)?;
    Ok(0)
}

fn report(
    options: &Options,
    files: Files,
    plan: &Plan,
    grid: &Grid,
    results: &[(Point, Row)],
) -> Result<(), CmdError> {
    let headings = grid.headings();
    let rows: Vec<Row> = results.iter().map(|(_, row)| row.clone()).collect();
    let printed = failed("write standard output");
    if Options::is_output(options.json.as_ref()) {
        write_json(&rows, io::stdout().lock()).map_err(printed)?;
    } else if Options::is_output(options.csv.as_ref()) {
        write_csv(&rows, io::stdout().lock()).map_err(printed)?;
    } else {
        let shown: Vec<(Vec<String>, _)> = results
            .iter()
            .map(|(point, row)| {
                let numbers = point.numbers().map(|number| number.to_string());
                (numbers.collect(), &row.record)
            })
            .collect();
        for name in &plan.names {
            say(&swept_table(*name, &headings, &shown))?;
        }
    }
    if let Some(file) = files.csv {
        file.write(|to| write_csv(&rows, io::BufWriter::new(to)))?;
    }
    if let Some(file) = files.json {
        file.write(|to| write_json(&rows, io::BufWriter::new(to)))?;
    }
    if let Some((file, name)) = files.plot {
        let drawn: Vec<(Vec<f64>, _)> = results
            .iter()
            .map(|(point, row)| (point.numbers().collect(), &row.record))
            .collect();
        let svg = draw_swept(name, &headings, grid.varied(), &drawn).map_err(CmdError::Failed)?;
        file.write(|mut to| to.write_all(svg.as_bytes()))?;
    }
    Ok(())
}
