//! The words of the command line.

use clap::{Parser, Subcommand};

use crate::calibration;
pub(crate) use crate::choice::{FabricArgs, FaultArgs, ModelArgs};
use crate::cmd::{
    bench, credits, demo, doctor, exits, firehose, info, messages, probe, run, seastar_device,
    seastar_sim, simulate, summary, trace,
};
use crate::guest::GuestOptions;

/// Portals 3.3 and the GASNet conduit on the networks of today
///
/// Runs programs written for the Portals message interface on a real RDMA network, on SoftRoCE, or on a
/// cycle-approximate model of the Cray SeaStar. Without a command it runs the demo.
#[derive(Debug, Parser)]
#[command(name = "portolan", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Two ranks on the SeaStar model: tables next to the published curves, and plots
    Demo(demo::Options),
    /// Run a program on N ranks over a fabric
    Run(run::Options),
    /// Measure a fabric
    Bench(bench::Options),
    /// What each parameter of Firehose changes: one workload, run with each, as a table
    Firehose(firehose::Options),
    /// What can be used on this machine, and why the rest cannot
    Info(info::Options),
    /// Try what a job needs on this machine, and say how to mend what does not work
    Doctor(doctor::Options),
    /// Boot a small QEMU machine with SoftRoCE and run a command in it, on this machine's files
    Guest(GuestOptions),
    /// Run a program on the SeaStar model and write what the machine did: a timeline, a capture, tables
    Trace(trace::Options),
    /// Add up the trace and statistics files of a GASNet program (GASNET_TRACEFILE, GASNET_STATSFILE)
    Summary(summary::Options),
    /// Simulate a machine that programs join when they like, as endpoints of no job
    Simulate(simulate::Options),
    /// Serve chips of the SeaStar model as PCI devices over vfio-user
    SeastarDevice(seastar_device::Options),
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
            "portolan run -n 2 --faults f.toml --fault-seed 7:lost_packets=5 -- prog",
            "portolan info --json",
            "portolan guest --hosts 1 -- true",
            "portolan trace -n 4 -- prog a",
            "portolan simulate --places 4 --machine xt4 --ranks-per-node 2",
            "portolan run --fabric seastar --places 4 -- prog a",
            "portolan trace -n 2 --out f --format perfetto --pcap p --svg s --window 1..2.5 --links --counters -- prog",
            "portolan seastar-device --socket here --nodes 3 --once",
        ] {
            let parsed = Cli::try_parse_from(line.split(' '));
            assert!(parsed.is_ok(), "{line}: {parsed:?}");
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
            "--topology 2x1x1",
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
                "run -n 2 --fabric myrinet -- prog",
                "unknown fabric \"myrinet\"; the fabrics are auto, verbs, shm and seastar",
            ),
            (
                "run -n 2 --env A -- prog",
                "'A' for '--env <K=V>': K=V is expected",
            ),
            ("bench", "not provided:\n  <NAME>..."),
            ("bench teleport", "'teleport' for '<NAME>...'"),
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
