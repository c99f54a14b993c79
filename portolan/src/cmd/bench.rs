//! `portolan bench`: measures a fabric between ranks of this very program.

mod outputs;
mod ranks;
mod sensitivity;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use portals_shim::fabric::{self, FabricConfig, FabricError, FabricKind};
use portals_shim::handover::{self, Handover};
use portals_shim::job::Job;
use portals_shim::nal::seastar;
use portals_shim::with_causes;

use crate::bench::{
    Above, Axis, BenchError, Curve, Model, Name, Pinning, Rank, Record, Setting, Software, Which,
    parse_size, read_records, show_size, table, write_records,
};
use crate::cli::FabricArgs;
use crate::cmd::asked::{Asked, AskedParser, list};
use crate::cmd::launched;
use crate::cmd::numbers::whole;
use crate::cmd::run::RANKS_MAX;
use crate::cmd::{failed, say};
use crate::error::CmdError;
use crate::run::{JobSpec, launch};
use outputs::Outputs;

/// What to measure, for a rank.
#[derive(Debug, Clone, Args)]
pub(crate) struct Plan {
    #[arg(required = true, value_enum, value_name = "NAME")]
    pub(crate) names: Vec<Name>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// How to measure; the same words for the command and for its ranks.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct How {
    /// Message sizes, such as 8,64,1K,1M
    ///
    /// They are entries before the one that matches for match-depth and tag-posted, operations under way for
    /// puts-in-flight, threads for am-threads, and the memory that is put to for random-put.
    #[arg(long, value_delimiter = ',', value_parser = parse_size, value_name = "LIST")]
    pub(crate) sizes: Vec<u64>,
    /// What computes above Portals on the SeaStar model
    ///
    /// It computes for each message of the measurements that are published of MPI: the MPI library of the machine, as in
    /// the published figures, or nothing.
    #[arg(long, value_enum, default_value_t = Layer::Mpi, value_name = "LAYER")]
    pub(crate) software: Layer,
    /// Conduits to measure
    ///
    /// The one over Portals, and as a baseline one over tagged messages. That has am-medium, segment-put and
    /// segment-put-bandwidth.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Which::Portals], value_name = "LIST")]
    pub(crate) conduit: Vec<Which>,
    /// How random-put pins memory; each in a job of its own
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Pinning::Whole, Pinning::Firehose, Pinning::Rendezvous],
          value_name = "LIST")]
    pub(crate) pinning: Vec<Pinning>,
    /// Durations to take at each size
    #[arg(long, value_name = "K", value_parser = whole(1..=1_000_000u64))]
    pub(crate) iters: Option<u64>,
}

/// What is above Portals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Layer {
    /// An MPI library
    Mpi,
    /// Nothing
    None,
}

impl Layer {
    fn word(self) -> &'static str {
        match self {
            Self::Mpi => "mpi",
            Self::None => "none",
        }
    }

    /// What it computes on the machine of `config`.
    fn software(self, config: &FabricConfig) -> Result<Software, FabricError> {
        match (self, config.kind()) {
            (Self::Mpi, FabricKind::Seastar) => {
                let layer = seastar::mpi_layer(config)?;
                Ok(Software {
                    send: layer.send,
                    receive: layer.receive,
                    copy_start: layer.copy_start,
                    copy_rate: layer.copy_rate,
                })
            }
            _ => Ok(Software::default()),
        }
    }
}

/// Options of `portolan bench`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Job")]
pub(crate) struct Options {
    /// Measurements, or all; list tells what there is
    #[arg(required = true, value_name = "NAME", value_parser = AskedParser, hide_possible_values = true,
          help_heading = None::<&'static str>)]
    asked: Vec<Asked>,
    /// Number of ranks, of which 0 and 1 measure; -np too
    #[arg(short = 'n', long = "ranks", value_name = "N", default_value_t = Self::RANKS, value_parser = whole(2..=RANKS_MAX))]
    ranks: u32,
    /// Run the jobs so often, by turns
    ///
    /// Times are then the least, and the middle of the medians. What is compared is compared at the same times, so that
    /// what else the machine does counts for all.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=1000u32))]
    turns: u32,
    /// End each job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::run::seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    how: How,
    /// Name the invented parameters of the model that move a result by more than 10 %
    ///
    /// The measurement runs again with each of them halved and doubled, which takes a hundred jobs. Invented is what no
    /// source has and no fit gave. LIST has sections or parameters, as host,protocol.beyond_slots; all are tried without
    /// it.
    #[arg(long, value_name = "LIST", num_args = 0.., require_equals = true, value_delimiter = ',')]
    sensitivity: Option<Vec<String>>,
    /// Write results into FILE as lines of JSON
    ///
    /// For - they go to standard output, in place of the tables.
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    json: Option<PathBuf>,
    /// Draw one SVG for each measurement into DIR
    #[arg(long, value_name = "DIR", help_heading = OUTPUT)]
    plot: Option<PathBuf>,
    /// Draw results of another run too, a file of --json
    #[arg(long, value_name = "FILE", requires = "plot", help_heading = OUTPUT)]
    beside: Vec<PathBuf>,
    #[command(flatten)]
    fabric: FabricArgs,
}

/// Heading of the help.
const OUTPUT: &str = "Output";

/// Options of one rank of a measurement.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    #[command(flatten)]
    plan: Plan,
    /// File or handover that rank 0 writes its results into
    #[arg(long)]
    out: PathBuf,
}

impl Plan {
    /// All points, in the order they are measured.
    fn points(&self) -> Vec<(Name, u64)> {
        let of = |name: &Name| match self.how.sizes.as_slice() {
            [_, ..] if name.axis() != Axis::Nothing => self.how.sizes.clone(),
            _ => name.default_points(),
        };
        let points = |name: &Name| {
            of(name)
                .into_iter()
                .map(|point| (*name, point))
                .collect::<Vec<_>>()
        };
        self.names.iter().flat_map(points).collect()
    }

    /// All points with the conduits that they are measured on.
    fn work(&self) -> Vec<(Name, u64, Which)> {
        let each = |(name, point): (Name, u64)| {
            let conduits: &[Which] = if name.is_of_conduit() {
                &self.how.conduit
            } else {
                &[Which::Portals]
            };
            conduits.iter().map(move |which| (name, point, *which))
        };
        self.points().into_iter().flat_map(each).collect()
    }

    /// Refuses points that a measurement does not have.
    pub(crate) fn check(&self) -> Result<(), CmdError> {
        for (name, _, which) in self.work() {
            if !which.has(name) {
                let which = which.word();
                return Err(CmdError::Usage(format!(
                    "the {which} conduit has no {name}"
                )));
            }
        }
        for (name, point) in self.points() {
            if let Some(most) = name.largest().filter(|most| point > *most) {
                let (most, point) = (show_size(most), show_size(point));
                return Err(CmdError::Usage(format!(
                    "{name} goes up to {most}, not {point}"
                )));
            }
        }
        Ok(())
    }

    /// What the plan measures beside the interface. The conduit's segment has room for the longest Long.
    fn above(&self) -> Result<Above, BenchError> {
        let longest = |largest: u64, (name, point): &(Name, u64)| match name {
            Name::AmLong
            | Name::SegmentPut
            | Name::SegmentGet
            | Name::SegmentPutRate
            | Name::SegmentPutBandwidth => largest.max(*point),
            _ => largest,
        };
        let bytes = self.points().iter().fold(4096, longest);
        if self.names.iter().any(|name| name.is_of_threads()) {
            return Ok(Above::Threads);
        }
        if self.names.iter().any(|name| name.is_of_pinning()) {
            let bytes = self.points().iter().map(|p| p.1).max().unwrap_or(0);
            let whole = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
            let pinning = self.how.pinning.first().copied();
            let pinning = pinning.unwrap_or(Pinning::Whole);
            return Ok(Above::Pinned(pinning, whole));
        }
        if !self.names.iter().any(|name| name.is_of_conduit()) {
            return Ok(Above::None);
        }
        let segment = usize::try_from(bytes).map_err(|_| BenchError::TooLarge(bytes))?;
        Ok(Above::Conduit(segment))
    }

    /// The plan as jobs, with variables of theirs: threads share a conduit of their own kind, and each way to pin memory
    /// has a job of its own.
    fn jobs(&self) -> Vec<(Self, Vec<(OsString, OsString)>)> {
        let of = |which: &dyn Fn(&Name) -> bool| {
            let names: Vec<Name> = self.names.iter().copied().filter(which).collect();
            let how = self.how.clone();
            (!names.is_empty()).then_some(Self { names, how })
        };
        let threads = of(&|name| name.is_of_threads());
        let pinned = of(&|name| name.is_of_pinning());
        let others = of(&|name| !name.is_of_threads() && !name.is_of_pinning());
        let plain = others.into_iter().chain(threads);
        let mut jobs: Vec<_> = plain.map(|plan| (plan, Vec::new())).collect();
        if let Some(plan) = pinned {
            jobs.extend(self.how.pinning.iter().map(|pinning| plan.pinned(*pinning)));
        }
        jobs
    }

    /// The plan with one way to pin memory, and the variables of that.
    fn pinned(&self, pinning: Pinning) -> (Self, Vec<(OsString, OsString)>) {
        let mut plan = self.clone();
        plan.how.pinning = vec![pinning];
        let missing = |v: &&(&str, &str)| std::env::var_os(v.0).is_none();
        let variables = pinning.variables().iter().filter(missing);
        (plan, variables.map(|v| (v.0.into(), v.1.into())).collect())
    }

    /// The words that make a rank measure this plan.
    fn words(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = self.names.iter().map(|n| n.word().into()).collect();
        let how = &self.how;
        for size in &how.sizes {
            words.extend(["--sizes".into(), size.to_string().into()]);
        }
        words.extend(["--software".into(), how.software.word().into()]);
        for which in &how.conduit {
            words.extend(["--conduit".into(), which.word().into()]);
        }
        for pinning in &how.pinning {
            words.extend(["--pinning".into(), pinning.word().into()]);
        }
        if let Some(iters) = how.iters {
            words.extend(["--iters".into(), iters.to_string().into()]);
        }
        words
    }
}

impl Options {
    /// Ranks of a job of its own.
    const RANKS: u32 = 2;

    /// What was asked for; none where that is the list of what there is.
    fn plan(&self) -> Result<Option<Plan>, CmdError> {
        let has = |what: Asked| self.asked.contains(&what);
        let usage = |message: &str| Err(CmdError::Usage(message.to_owned()));
        if (has(Asked::List) || has(Asked::All)) && self.asked.len() > 1 {
            return usage("all and list stand alone");
        }
        if has(Asked::List) {
            return Ok(None);
        }
        if has(Asked::All) && !self.how.sizes.is_empty() {
            let message =
                "all measures each at sizes of its own; name the measurements that --sizes is for";
            return usage(message);
        }
        let names = self.asked.iter().flat_map(|asked| asked.names()).copied();
        let names = names.collect();
        let how = self.how.clone();
        Ok(Some(Plan { names, how }))
    }

    /// What is measured over a grid of parameters, and with which ranks and fabric, where output is not chosen here.
    pub(crate) fn swept(&self) -> Result<(Plan, u32, &FabricArgs), CmdError> {
        let usage = |message: String| Err(CmdError::Usage(message));
        for (option, given) in [
            ("--json", self.json.is_some()),
            ("--plot", self.plot.is_some()),
            ("--beside", !self.beside.is_empty()),
            ("--sensitivity", self.sensitivity.is_some()),
        ] {
            if given {
                let message = "stands among the words of bench; a sweep has files of its own, named before the --, and \
                               parameters of its own";
                return usage(format!("{option} {message}"));
            }
        }
        match self.plan()? {
            Some(plan) => Ok((plan, self.ranks, &self.fabric)),
            None => usage("list measures nothing; name a measurement".to_owned()),
        }
    }

    /// Runs all jobs of `plan` on `fabric`; the results, or the status of a job that failed.
    pub(crate) fn measured(
        &self,
        title: &'static str,
        plan: &Plan,
        fabric: &FabricArgs,
    ) -> Result<Result<Vec<Record>, u8>, CmdError> {
        let jobs = plan.jobs();
        for (plan, _) in &jobs {
            plan.check()?;
        }
        let config = fabric.config();
        let mut records = Vec::new();
        for (plan, variables) in (0..self.turns).flat_map(|_| &jobs) {
            let mut env = fabric.variables(Some(self.ranks));
            env.extend(variables.iter().cloned());
            let (status, found) = measure(title, plan, self.ranks, &config, env, self.timeout)?;
            if status != 0 {
                return Ok(Err(status));
            }
            records.extend(found);
        }
        Ok(Ok(Record::of_turns(records)))
    }

    /// The results of other runs, which stand beside these.
    fn others(&self) -> Result<Vec<Record>, CmdError> {
        let mut records = Vec::new();
        for file in &self.beside {
            let told = format!("read {}", file.display());
            let text = File::open(file).map_err(failed(&told))?;
            records.extend(read_records(BufReader::new(text)).map_err(failed(&told))?);
        }
        Ok(records)
    }
}

/// Measures and reports.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    let Some(plan) = options.plan()? else {
        say(&list())?;
        return Ok(0);
    };
    options.fabric.check()?;
    let trials = sensitivity::trials(options)?;
    if let Some(job) = launched::job()? {
        return run_launched(job, options, &plan);
    }
    options.fabric.say_unread();
    let outputs = Outputs::open(options)?;
    let mut measured = options.measured("portolan bench", &plan, &options.fabric)?;
    if let (Some(trials), Ok(records)) = (trials, &measured) {
        measured = sensitivity::add(options, &plan, &trials, records.clone())?;
    }
    match measured {
        Ok(records) => outputs.report(options, &plan, &options.fabric.config(), records)?,
        Err(status) => return Ok(status),
    }
    Ok(0)
}

/// Measures as one rank of a job that a launcher has started; rank 0 reports.
fn run_launched(job: Job, options: &Options, plan: &Plan) -> Result<u8, CmdError> {
    let plan = match ranks::plan(&job, options, plan) {
        Ok(plan) => plan,
        Err(error) => return Ok(launched::end(&job, &error)),
    };
    let first = job.rank() == 0;
    let outputs = match first.then(|| Outputs::open(options)).transpose() {
        Ok(outputs) => outputs,
        Err(error) => return Ok(launched::end(&job, &error)),
    };
    let config = ranks::fabric(&job, options)?;
    let records = ranks::measured(job, &plan, &config)?;
    if let Some(outputs) = outputs {
        outputs.report(options, &plan, &config, records)?;
    }
    Ok(0)
}

/// Runs a plan on `ranks` ranks; gives the job's status and, where that is 0, the results.
pub(crate) fn measure(
    title: &'static str,
    plan: &Plan,
    ranks: u32,
    fabric: &FabricConfig,
    env: Vec<(OsString, OsString)>,
    timeout: Option<Duration>,
) -> Result<(u8, Vec<Record>), CmdError> {
    plan.check()?;
    fabric::check_for(fabric, Some(ranks))?;
    let own = std::env::current_exe().map_err(failed("find this executable"))?;
    let out = Handover::new().map_err(failed("make a file for the results"))?;
    let mut args: Vec<OsString> = vec!["bench-rank".into()];
    args.extend(plan.words());
    args.extend(["--out".into(), out.name().into()]);
    let status = launch(&JobSpec {
        title,
        ranks,
        pmi: true,
        program: own.into(),
        args,
        env,
        timeout,
        bind: false,
        tag_output: false,
    })?;
    if status != 0 {
        return Ok((status, Vec::new()));
    }
    let records =
        read_records(BufReader::new(out.into_file())).map_err(failed("read the results"))?;
    let records = records.into_iter().map(Record::of_this_command).collect();
    Ok((0, bounded(records, plan, fabric)?))
}

/// Results of the model with their bounds; refuses those that break one.
fn bounded(
    records: Vec<Record>,
    plan: &Plan,
    fabric: &FabricConfig,
) -> Result<Vec<Record>, CmdError> {
    if fabric.kind() != FabricKind::Seastar {
        return Ok(records);
    }
    let machine = seastar::machine(fabric)?;
    let model = Model {
        machine: &machine,
        mode: fabric.mode,
        software: plan.how.software.software(fabric)?,
        same_node: fabric.place.per_node() > 1,
    };
    let each = records.into_iter().map(|record| record.bounded(&model));
    each.collect::<Result<_, _>>()
        .map_err(|broken| CmdError::Failed(broken.to_string()))
}

/// Prints a table for each of `names`.
pub(crate) fn print_tables(
    names: &[Name],
    records: &[Record],
    curves: &[Curve],
) -> Result<(), CmdError> {
    names
        .iter()
        .try_for_each(|name| say(&table(*name, records, curves)))
}

/// The published curves that belong beside the results of a fabric: of the machine that is modelled,
/// or all where none is published of it.
pub(crate) fn published(fabric: &FabricConfig) -> Vec<Curve> {
    if fabric.kind() != FabricKind::Seastar {
        return Vec::new();
    }
    let mut curves = Curve::all();
    if curves.iter().any(|c| c.machine == fabric.machine) {
        curves.retain(|c| c.machine == fabric.machine);
    }
    curves
}

/// One rank of a measurement, started by [`measure`].
pub(crate) fn rank(options: &RankOptions) -> Result<u8, CmdError> {
    measure_as_rank(options).map_err(failed_bench)?;
    Ok(0)
}

fn failed_bench(error: BenchError) -> CmdError {
    match error {
        BenchError::Fabric(error) => CmdError::Fabric(error),
        error => CmdError::Failed(format!("bench: {}", with_causes(&error))),
    }
}

fn measure_as_rank(options: &RankOptions) -> Result<(), BenchError> {
    let job = Job::from_env()?;
    let config = fabric::resolve(&job, &FabricConfig::from_env()?)?;
    let first = job.rank() == 0;
    let (rank, records) = measure_in(job, &options.plan, &config)?;
    if first {
        let path = options.out.display().to_string();
        handover::create(&options.out)
            .and_then(|file| write_records(&records, file))
            .map_err(|source| BenchError::Write { path, source })?;
    }
    rank.close()
}

/// Measures a plan as one rank of a job, which is still to be left; rank 0 has the results.
fn measure_in(
    job: Job,
    plan: &Plan,
    config: &FabricConfig,
) -> Result<(Rank, Vec<Record>), BenchError> {
    let opened = fabric::open(&job, config)?;
    let work = plan.work();
    let (first, ranks) = (job.rank() == 0, job.size());
    let progress = progress(first, work.len());
    let software = plan.how.software.software(config)?;
    let mut rank = Rank::new(job, &opened, plan.above()?, software)?;
    let modelled = config.kind() == FabricKind::Seastar;
    let setting = Setting {
        fabric: config.kind().name().to_owned(),
        mode: mode(config).to_owned(),
        ranks,
        clock: rank.clock(),
        machine: modelled.then(|| config.machine.clone()),
        set: (modelled && !config.set.is_empty()).then(|| config.set.join(", ")),
        map: config.map.clone().filter(|_| modelled),
        software,
    };
    let mut records = Vec::new();
    for (name, point, which) in work {
        progress.set_message(format!("{name} {}", show_size(point)));
        let measured = rank.measure(name, point, which, plan.how.iters)?;
        let record = Record::new(&setting, name, point, &measured);
        let pinning = plan.how.pinning.first().copied();
        let told = |record: Record| record.of_conduit(name, which).of_pinning(name, pinning);
        records.extend(record.map(told));
        progress.inc(1);
    }
    progress.finish_and_clear();
    Ok((rank, records))
}

/// How the fabric works, for the reader of a result.
fn mode(config: &FabricConfig) -> &'static str {
    match config.kind() {
        FabricKind::Seastar => config.mode.name(),
        FabricKind::Verbs => config.channel.name(),
        FabricKind::Shm => "memory",
    }
}

/// A bar on standard error, drawn by rank 0 where that is a terminal.
fn progress(first: bool, points: usize) -> ProgressBar {
    let drawn = first && io::stderr().is_terminal();
    let target = if drawn {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(points as u64), target);
    match ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}, about {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use portals_shim::fabric::Channel;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        plan: Plan,
    }

    #[test]
    fn figures_over_datagrams_say_so() {
        let of = |kind: FabricKind, channel| {
            let config = FabricConfig::default();
            mode(&FabricConfig {
                fabric: kind.into(),
                channel,
                ..config
            })
        };
        assert_eq!(of(FabricKind::Verbs, Channel::Ud), "ud");
        assert_eq!(of(FabricKind::Verbs, Channel::Rc), "rc");
        assert_eq!(of(FabricKind::Shm, Channel::Ud), "memory");
    }

    /// A result of rank 0 on the model, as its line of JSON.
    fn result(rate: &str) -> Vec<Record> {
        let line = format!(
            "{{\"bench\":\"message-rate\",\"fabric\":\"seastar\",\"mode\":\"generic\",\"ranks\":2,\"bytes\":64,\"iters\":10,\
             \"clock\":\"virtual\",\"unit\":\"op/s\",\"min\":300000,\"median\":300000,\"p99\":{rate},\"max\":{rate}}}\n"
        );
        read_records(line.as_bytes()).unwrap()
    }

    #[test]
    fn a_result_that_its_machine_does_not_allow_is_refused_with_status_1() {
        let plan = plan("message-rate --sizes 64");
        let on = |kind: FabricKind, rate| {
            let config = FabricConfig {
                fabric: kind.into(),
                ..FabricConfig::default()
            };
            bounded(result(rate), &plan, &config)
        };
        let refused = on(FabricKind::Seastar, "3605726").unwrap_err();
        assert_eq!(refused.status(), 1);
        let said = refused.to_string();
        assert!(
            said.contains("message-rate at 64: 3605726.000 op/s"),
            "{said}"
        );
        let kept = on(FabricKind::Seastar, "343789").unwrap();
        assert_eq!(
            kept[0].bound_by.as_deref(),
            Some("the receiver's processor")
        );
        assert!(
            kept[0]
                .bound
                .is_some_and(|b| b > 343_789.0 && b < 500_000.0)
        );
        let measured = on(FabricKind::Shm, "3605726").unwrap();
        assert_eq!(measured, result("3605726"));
    }

    fn plan(line: &str) -> Plan {
        Words::parse_from(["x"].into_iter().chain(line.split(' '))).plan
    }

    #[test]
    fn a_rank_is_told_the_same_plan() {
        let first = plan("pingpong match-depth --sizes 0,1K,1M --iters 7");
        let words = ["x".into()].into_iter().chain(first.words());
        let second = Words::parse_from(words).plan;
        assert_eq!(second.points(), first.points());
        assert_eq!(second.how.iters, Some(7));
        assert_eq!(first.points().len(), 6);
        assert_eq!(first.points()[2], (Name::Pingpong, 1 << 20));
    }

    #[test]
    fn without_sizes_each_measurement_has_its_own() {
        let expected =
            Name::PutRate.default_points().len() + Name::MatchDepth.default_points().len();
        assert_eq!(plan("put-rate match-depth").points().len(), expected);
    }

    #[test]
    fn the_segment_holds_the_longest_message_of_the_conduit() {
        let above = |line: &str| plan(line).above().unwrap();
        assert_eq!(above("pingpong --sizes 1M"), Above::None);
        assert_eq!(above("am-short --sizes 1M"), Above::Conduit(4096));
        let long = above("am-long pingpong --sizes 8,1M");
        assert_eq!(long, Above::Conduit(1 << 20));
        assert_eq!(above("am-threads pingpong --sizes 2"), Above::Threads);
    }

    /// The names of each job.
    fn jobs(line: &str) -> Vec<Vec<Name>> {
        let jobs = plan(line).jobs();
        jobs.into_iter().map(|(plan, _)| plan.names).collect()
    }

    #[test]
    fn threads_and_ways_to_pin_are_measured_in_jobs_of_their_own() {
        use Name::{AmShort, AmThreads, Barrier, RandomPut};
        let threads = vec![AmThreads];
        assert_eq!(jobs("am-threads"), [[AmThreads]]);
        assert_eq!(
            jobs("am-threads am-short"),
            [vec![AmShort], threads.clone()]
        );
        let two = jobs("barrier random-put am-threads am-short --pinning whole,firehose");
        let pinned = vec![RandomPut];
        let expected = [vec![Barrier, AmShort], threads, pinned.clone(), pinned];
        assert_eq!(two, expected);
        let of_two = plan("random-put --pinning whole,firehose").jobs();
        let ways: Vec<_> = of_two
            .iter()
            .map(|(plan, _)| plan.how.pinning.as_slice())
            .collect();
        assert_eq!(ways, [[Pinning::Whole], [Pinning::Firehose]]);
    }

    #[test]
    fn what_has_no_size_is_measured_once() {
        assert_eq!(plan("barrier --sizes 8,64").points(), [(Name::Barrier, 0)]);
    }

    #[test]
    fn conduits_are_measured_in_turn_and_the_one_over_messages_has_three_measurements() {
        let plan_of = plan("am-medium segment-put pingpong --sizes 8 --conduit portals,mpi");
        assert!(plan_of.check().is_ok());
        let work = plan_of.work();
        assert_eq!(work.len(), 5);
        assert_eq!(work[1], (Name::AmMedium, 8, Which::Mpi));
        let words = ["x".into()].into_iter().chain(plan_of.words());
        assert_eq!(Words::parse_from(words).plan.work(), work);
        assert!(matches!(
            plan("am-long --conduit mpi").check(),
            Err(CmdError::Usage(_))
        ));
    }

    #[test]
    fn a_match_list_is_not_endless() {
        assert!(plan("match-depth --sizes 100000").check().is_ok());
        assert!(matches!(
            plan("am-medium --sizes 1M").check(),
            Err(CmdError::Usage(_))
        ));
        assert!(plan("am-medium").check().is_ok());
        assert!(matches!(
            plan("match-depth --sizes 100001").check(),
            Err(CmdError::Usage(_))
        ));
        assert!(plan("pingpong --sizes 1M").check().is_ok());
    }
}
