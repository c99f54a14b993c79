//! The words of the command line.

use clap::{Parser, Subcommand};

use crate::calibration;
pub(crate) use crate::choice::{FabricArgs, FaultArgs, ModelArgs};
use crate::cmd::{
    bench, credits, demo, doctor, exits, firehose, info, messages, probe, report, run,
    seastar_device, seastar_sim, shell, simulate, summary, sweep, trace, view,
};
use crate::guest::GuestOptions;

/// Two lines that can be typed, at the end of a command's help.
macro_rules! examples {
    ($first:literal, $second:literal) => {
        concat!("Examples:\n  ", $first, "\n  ", $second)
    };
}

/// Portals 3.3 and the GASNet conduit on the networks of today
///
/// Runs programs written for the Portals message interface on a real RDMA network, on SoftRoCE, or on a
/// cycle-approximate model of the Cray SeaStar. Without a command it runs the demo.
#[derive(Debug, Parser)]
#[command(name = "portolan", version, max_term_width = 100,
          after_help = examples!("portolan demo", "portolan run -n 2 -- gups"))]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure the SeaStar model and print it beside published curves
    ///
    /// Two ranks on the model: tables with the published curves beside them, plots, and results as lines of JSON.
    #[command(after_help = examples!("portolan demo", "portolan demo --machine redstorm --sizes 8,1K --out redstorm"))]
    Demo(demo::Options),
    /// Run a program on N ranks over a fabric
    ///
    /// The exit status is 0 when every rank succeeded, and a rank's own status if one failed. It is 128 + the signal if
    /// one was killed, 124 after --timeout, 2 for bad usage, and 3 when the fabric cannot be used here.
    #[command(after_help = examples!("portolan run -n 4 -- gups", "portolan run -n 2 --machine redstorm -- gups --updates 100"))]
    Run(run::Options),
    /// Measure a fabric
    ///
    /// `portolan bench list` tells what can be measured; all measures everything.
    #[command(after_help = examples!("portolan bench pingpong put-bandwidth --sizes 8,1K",
                                     "portolan bench put-latency --fabric shm --sizes 8 --iters 100 --json -"))]
    Bench(bench::Options),
    /// Measure the SeaStar model over a grid of parameters
    ///
    /// Runs portolan bench for each combination of the values, and prints one table. A point that fails ends the sweep
    /// with its status.
    #[command(after_help = examples!("portolan sweep --set protocol.inline_data=0,16 -- bench pingpong --sizes 8,16",
                                     "portolan sweep --set chip.tx_rate=1000,2000 --plot p -- bench put-bandwidth"))]
    Sweep(sweep::Options),
    /// Measure what each parameter of Firehose changes
    ///
    /// One workload is run with each parameter; the table has a row for each.
    #[command(after_help = examples!("portolan firehose --operations 4", "portolan firehose --fabric shm --memory 16M --operations 4"))]
    Firehose(firehose::Options),
    /// Say what can be used on this machine, and why the rest cannot
    #[command(after_help = examples!("portolan info", "portolan info --variables"))]
    Info(info::Options),
    /// Try what a job needs here, and say how to mend it
    ///
    /// A job of two ranks on each fabric that can be used, one by each launcher in PATH, the limit of locked memory, and the
    /// libfabric provider. The exit status is 1 if something that should work does not.
    #[command(after_help = examples!("portolan doctor", "portolan doctor --json --timeout 60"))]
    Doctor(doctor::Options),
    /// Run a command in a small virtual machine with SoftRoCE
    ///
    /// QEMU boots a machine of this machine's files, which has the RDMA device rxe0. What the command writes to files is
    /// discarded.
    #[command(after_help = examples!("portolan guest -- portolan info",
                                     "portolan guest -- portolan run -n 2 --fabric verbs -- gups"))]
    Guest(GuestOptions),
    /// Run a program on the SeaStar model and write what the machine did
    ///
    /// It writes a timeline, a capture of packets, a drawing, and tables. Without --out, --pcap, --svg, --links,
    /// --link-series and --counters the timeline goes to portolan-trace.json. The exit status is that of portolan run, or 1
    /// where a file is not whole.
    #[command(after_help = examples!("portolan trace -n 2 -- gups --updates 100",
                                     "portolan trace -n 2 --svg busy.svg --links -- gups --updates 100"))]
    Trace(trace::Options),
    /// Add up trace and statistics files of a GASNet program
    ///
    /// The files are those of GASNET_TRACEFILE and GASNET_STATSFILE, of this conduit or another one.
    #[command(after_help = examples!("portolan summary trace.0", "portolan summary --per-rank trace.%"))]
    Summary(summary::Options),
    /// Show timelines and results as a page of HTML
    ///
    /// The page needs no server and no network. Of a timeline it shows the torus and what each part of each node did; of a
    /// --link-series how busy each link was when; of results the curves with quartiles, and published figures beside them
    /// where there are any.
    #[command(after_help = examples!("portolan view portolan-trace.json", "portolan view portolan-demo/results.jsonl -o demo.html"))]
    View(view::Options),
    /// Measure the SeaStar model shortly and show it as a page of HTML
    ///
    /// Two ranks on the model: curves beside published ones, and the timeline of a put. The figures are simulated.
    #[command(after_help = examples!("portolan report", "portolan report --machine redstorm --sizes 8,1K -o redstorm.html"))]
    Report(report::Options),
    /// Simulate a machine that programs join when they like
    ///
    /// Programs join it as endpoints that belong to no job. Prints one line, PORTOLAN_SIMULATION=WORD, when the
    /// simulation has begun, and runs until it is ended by a signal. Programs with that variable open endpoints in it at
    /// any time. Whoever has the word may join.
    #[command(after_help = examples!("portolan simulate --places 2", "portolan simulate --places 4 --machine xt3"))]
    Simulate(simulate::Options),
    /// Serve chips of the SeaStar model as PCI devices
    ///
    /// A vfio-user client (another program's driver, a virtual machine) finds a PCI function with vendor 0x17db and
    /// device 0x0101 at PATH.0, PATH.1 and so on: one chip each, in a ring. Virtual time passes when a client touches its
    /// function. When a client leaves, its chip forgets the memory; when the last one leaves, all chips begin anew.
    #[command(after_help = examples!("portolan seastar-device --socket nic", "portolan seastar-device --socket chip --nodes 4 --once"))]
    SeastarDevice(seastar_device::Options),
    /// Print what a shell completes, for bash, zsh or fish
    #[command(after_help = examples!("portolan completions bash", "portolan completions zsh"))]
    Completions(shell::CompletionOptions),
    /// Print a manual page, or write one for each command
    #[command(after_help = examples!("portolan man", "portolan man man1"))]
    Man(shell::ManOptions),
    /// The ranks of one host of a job; started by `run --hosts`
    #[command(hide = true)]
    Agent,
    /// Join the launcher's job and exchange values: tests a launcher without a fabric
    #[command(hide = true)]
    Probe(probe::Options),
    /// A rank that ends in one of many ways: tests how jobs end
    #[command(hide = true)]
    Exits(exits::Options),
    /// Every kind of active message between all neighbours: tests fabrics
    #[command(hide = true)]
    Messages(messages::Options),
    /// Credits of a large job, simulated: how they move to the ranks that need them
    #[command(hide = true)]
    Credits(credits::Options),
    /// The SeaStar model against published measurements: errors, the search for fitted parameters, the
    /// page of the book
    #[command(hide = true)]
    Calibration(calibration::Options),
    /// One rank of a measurement
    #[command(hide = true)]
    BenchRank(bench::RankOptions),
    /// One rank of `firehose`
    #[command(hide = true)]
    FirehoseRank(firehose::RankOptions),
    /// The process that holds the simulated machine
    #[command(hide = true)]
    SeastarSim(seastar_sim::Options),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;
    use portals_shim::fabric::FabricKind;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_contract_is_understood() {
        for line in [
            "portolan",
            "portolan demo",
            "portolan run -n 4 -- prog a -b --c",
            "portolan run -n 4 --fabric verbs --device rxe0 --gid 10.9.0.1 --env A=1 --env B=2 -- prog",
            "portolan run -n 4 --fabric shm -- prog",
            "portolan run -n 4 --fabric verbs --no-shm -- prog",
            "portolan run -n 4 --fabric verbs --channel ud -- prog",
            "portolan run -n 4 --fabric verbs --channel auto -- prog",
            "portolan bench pingpong put-latency -n 2 --fabric seastar --sizes 8,64,1K --iters 10 --json -",
            "portolan bench match-depth --plot dir",
            "portolan bench pingpong --machine redstorm --topology 4x4x2,mesh --ranks-per-node 2",
            "portolan demo --machine ./mine.toml",
            "portolan bench put-rate --mode accelerated",
            "portolan sweep --set host.trap=0.1,0.2 --set chip.tx_rate=1,2 --csv c --json - --plot p -- bench pingpong -n 3",
            "portolan run -n 2 --faults f.toml --fault-seed 7:lost_packets=5 -- prog",
            "portolan info --json",
            "portolan guest --hosts 1 -- true",
            "portolan trace -n 4 -- prog a",
            "portolan simulate --places 4 --machine xt4 --ranks-per-node 2",
            "portolan run --fabric seastar --places 4 -- prog a",
            "portolan trace -n 2 --out f --format perfetto --pcap p --svg s --window 1..2.5 --links --link-series l --bin 0.5 --counters -- prog",
            "portolan seastar-device --socket here --nodes 3 --once",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
        }
    }

    /// The help of each command that is shown, short or long, as a terminal of 80 columns has it.
    fn helps(long: bool) -> Vec<(String, String)> {
        let mut cli = Cli::command().term_width(80);
        cli.build();
        let shown = |c: &&clap::Command| !c.is_hide_set() && c.get_name() != "help";
        let shown = cli.get_subcommands().filter(shown).cloned();
        std::iter::once(cli.clone())
            .chain(shown)
            .map(|mut command| {
                let help = match long {
                    true => command.render_long_help(),
                    false => command.render_help(),
                };
                (command.get_name().to_owned(), help.to_string())
            })
            .collect()
    }

    #[test]
    fn help_fits_80_columns() {
        for long in [false, true] {
            for (name, help) in helps(long) {
                let wide = help.lines().find(|line| line.chars().count() > 80);
                assert_eq!(wide, None, "{name}, long: {long}");
            }
        }
    }

    #[test]
    fn options_are_grouped_and_their_short_help_is_a_line_or_two() {
        for (name, help) in helps(false) {
            for heading in match name.as_str() {
                "run" => &[
                    "Arguments:",
                    "Job:",
                    "Fabric:",
                    "Verbs:",
                    "SeaStar model:",
                    "Hosts:",
                ][..],
                "bench" => &["Job:", "Measurement:", "Output:", "Fabric:", "Verbs:"],
                "trace" => &["Job:", "Output:", "SeaStar model:"],
                _ => &[],
            } {
                assert!(help.lines().any(|l| l == *heading), "{name}: {heading}");
            }
        }
        let mut cli = Cli::command();
        cli.build();
        for command in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
            for arg in command.get_arguments() {
                let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
                let (name, words) = (command.get_name(), help.len());
                assert!((1..=80).contains(&words), "{name} {arg}: {help}");
            }
        }
    }

    #[test]
    fn the_help_of_each_command_ends_with_two_examples_that_are_understood() {
        for (name, help) in helps(false) {
            let (_, examples) = help
                .split_once("\nExamples:\n")
                .unwrap_or_else(|| panic!("{name}"));
            let lines: Vec<&str> = examples.lines().collect();
            assert_eq!(lines.len(), 2, "{name}: {examples}");
            for line in lines {
                let of_it = name == "portolan" || line.starts_with(&format!("  portolan {name}"));
                assert!(of_it, "{name}: {line}");
                let parsed = Cli::try_parse_from(line.split_whitespace());
                assert!(parsed.is_ok(), "{name}: {line}: {parsed:?}");
            }
        }
    }

    /// The fabric that `run` takes after these words.
    fn fabric_of(words: &str) -> FabricKind {
        let line = format!("portolan run -n 2 {words} -- prog");
        match Cli::try_parse_from(line.split_whitespace()) {
            Ok(Cli {
                command: Some(Command::Run(options)),
            }) => options.fabric().kind(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn run_takes_memory_unless_a_fabric_or_the_model_is_meant() {
        if std::env::vars().any(|(name, _)| name.starts_with("PORTOLAN_")) {
            return;
        }
        assert_eq!(fabric_of(""), FabricKind::Shm);
        assert_eq!(fabric_of("--fabric auto"), FabricKind::Shm);
        for word in ["verbs", "rdma", "infiniband", "ib", "roce"] {
            let named = format!("--fabric {word}");
            assert_eq!(fabric_of(&named), FabricKind::Verbs, "{word}");
        }
        assert_eq!(fabric_of("--fabric seastar"), FabricKind::Seastar);
        for words in [
            "--machine xt3",
            "--set host.trap=0.2",
            "--topology 2x1x1",
            "--map random:7",
            "--mode accelerated",
            "--faults f.toml",
            "--fault-seed 7",
        ] {
            assert_eq!(fabric_of(words), FabricKind::Seastar, "{words}");
            let auto = format!("--fabric auto {words}");
            assert_eq!(fabric_of(&auto), FabricKind::Seastar, "{auto}");
            let named = format!("--fabric shm {words}");
            assert_eq!(fabric_of(&named), FabricKind::Shm, "{named}");
        }
    }

    #[test]
    fn nonsense_is_bad_usage() {
        for (line, said) in [
            ("dance", "unrecognized subcommand 'dance'"),
            (
                "run -n 0 -- prog",
                "'0' for '--ranks <N>': 0 is not in 1..=4096",
            ),
            ("run -n 2", "not provided:\n  <PROGRAM>..."),
            ("simulate", "not provided:\n  --places <N>"),
            ("simulate --places 0", "'0' for '--places <N>'"),
            (
                "run -n 2 --places 2 -- prog",
                "'--ranks <N>' cannot be used with '--places <N>'",
            ),
            ("run -- prog", "not provided:\n  --ranks <N>"),
            (
                "run -n abc -- prog",
                "'abc' for '--ranks <N>': a whole number is expected, such as 1",
            ),
            (
                "run -n 2 --fabric myrinet -- prog",
                "unknown fabric \"myrinet\"; the fabrics are auto, verbs, shm and seastar",
            ),
            (
                "run -n 2 --env A -- prog",
                "'A' for '--env <K=V>': K=V is expected",
            ),
            ("bench", "not provided:\n  <NAME>..."),
            (
                "bench teleport",
                "'teleport' for '<NAME>...': there is no such measurement; `portolan bench list` shows all",
            ),
            ("bench pingpon", "is it pingpong?"),
            (
                "run -n 2 --ranks-per-node 0 -- prog",
                "'--ranks-per-node <R>': 0 is not in 1..=64",
            ),
            (
                "run -n 2 --ranks-per-node 65 -- prog",
                "'--ranks-per-node <R>': 65 is not in 1..=64",
            ),
            (
                "bench pingpong --sizes 8,x",
                "'--sizes <LIST>': \"x\" is no size; 8, 64, 1K or 1M is expected",
            ),
            (
                "trace -n 2 --svg s --window 3..2 -- prog",
                "'3..2' for '--window <FROM..TO>': FROM..TO in microseconds is expected",
            ),
            (
                "trace -n 2 --format pdf -- prog",
                "'pdf' for '--format <NAME>'",
            ),
            ("seastar-device", "not provided:\n  --socket <PATH>"),
        ] {
            let words = format!("portolan {line}");
            let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{line}");
            let error = error.to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    /// What `--timeout` is given that is no time, and what is said of it, wherever there is one.
    #[test]
    fn a_time_limit_is_a_number_of_seconds() {
        for (text, said) in [
            ("abc", "a number of seconds is expected"),
            ("", "a number of seconds is expected"),
            ("5s", "a number of seconds is expected"),
            ("1,5", "a number of seconds is expected"),
            ("0", "more than 0 is expected"),
            ("0.0000000001", "more than 0 is expected"),
            (
                "-1",
                "cannot convert float seconds to Duration: value is negative",
            ),
            (
                "nan",
                "cannot convert float seconds to Duration: value is either too big or NaN",
            ),
            (
                "inf",
                "cannot convert float seconds to Duration: value is either too big or NaN",
            ),
            (
                "1e300",
                "cannot convert float seconds to Duration: value is either too big or NaN",
            ),
        ] {
            for start in ["run -n 2", "bench pingpong", "trace -n 2", "firehose"] {
                let option = format!("--timeout={text}");
                let words = start.split(' ').chain([option.as_str(), "--", "prog"]);
                let error = Cli::try_parse_from(["portolan"].into_iter().chain(words)).unwrap_err();
                assert_eq!(error.exit_code(), 2, "{start} {option}");
                let error = error.to_string();
                let said = format!("'{text}' for '--timeout <SECONDS>': {said}");
                assert!(error.contains(&said), "{start} {option}: {error}");
            }
        }
        for (text, limit) in [("0.3", 300_000_000), ("90", 90_000_000_000), ("1e-9", 1)] {
            let limit = Ok(std::time::Duration::from_nanos(limit));
            assert_eq!(crate::cmd::run::seconds(text), limit);
        }
    }
}
