//! `portolan firehose`: what each parameter of Firehose changes, as a table of one workload run with each.
//!
//! ```text
//!   phases of rank 0, each over so much memory of rank 1 (--memory), at the same random places in every run:
//!     put    8 bytes, from a chunk
//!     get    16 KiB, to a random place of the own segment, which is pinned for it
//!     Long   1500 bytes with a request
//! ```

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use conduit::{BarrierName, Conduit, FirehoseStats, HandlerEntry};
use portals_shim::fabric;
use portals_shim::handover::{self, Handover};

use crate::bench::{BenchError, Numbers, parse_size, show_size};
use crate::cli::FabricArgs;
use crate::cmd::numbers::whole;
use crate::cmd::{failed, say};
use crate::error::CmdError;
use crate::run::{JobSpec, launch};

/// Options of `portolan firehose`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Measurement")]
pub(crate) struct Options {
    /// Memory of rank 1 that is put to and got from
    #[arg(long, value_name = "BYTES", value_parser = parse_size, default_value = "8M")]
    memory: u64,
    /// Operations of each kind that count
    ///
    /// As many before them do not count.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = whole(1..=1_000_000u64))]
    operations: u64,
    /// End each job after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = super::run::seconds)]
    timeout: Option<Duration>,
    #[command(flatten)]
    fabric: FabricArgs,
}

/// Options of one rank.
#[derive(Debug, Args)]
pub(crate) struct RankOptions {
    #[arg(long)]
    memory: u64,
    #[arg(long)]
    operations: u64,
    /// File that rank 0 writes its results into
    #[arg(long)]
    out: PathBuf,
}

const RANKS: u32 = 2;
const PAGE: u64 = 4096;
const GET: usize = 16 << 10;
const LONG: usize = 1500;

/// Variables of the first run; each other one differs by its own.
const BASE: [(&str, &str); 2] = [
    ("GASNET_FIREHOSE_M", "4M"),
    ("GASNET_FIREHOSE_MAXVICTIM_M", "2M"),
];

/// Taken from the environment of every run.
const ALL: [&str; 8] = [
    "GASNET_FIREHOSE_M",
    "GASNET_FIREHOSE_MAXVICTIM_M",
    "GASNET_FIREHOSE_MAXREGION_SIZE",
    "GASNET_USE_FIREHOSE",
    "GASNET_RDMA_GETS",
    "GASNET_PACKEDLONG_LIMIT",
    "GASNET_PHYSMEM_MAX",
    "GASNET_PHYSMEM_PINNABLE_RATIO",
];

/// What each run sets beside [`BASE`], or in its place; with no value: as if not set.
type Change = &'static [(&'static str, &'static str)];

const CHANGES: [Change; 17] = [
    &[],
    &[("GASNET_FIREHOSE_M", "1M")],
    &[("GASNET_FIREHOSE_M", "16M")],
    &[("GASNET_FIREHOSE_M", "32M")],
    &[("GASNET_FIREHOSE_MAXVICTIM_M", "512K")],
    &[("GASNET_FIREHOSE_MAXVICTIM_M", "16M")],
    &[("GASNET_FIREHOSE_MAXREGION_SIZE", "4K")],
    &[("GASNET_FIREHOSE_MAXREGION_SIZE", "32K")],
    &[("GASNET_FIREHOSE_MAXREGION_SIZE", "512K")],
    &[("GASNET_USE_FIREHOSE", "no")],
    &[("GASNET_RDMA_GETS", "no")],
    &[("GASNET_PACKEDLONG_LIMIT", "0")],
    &[
        ("GASNET_PHYSMEM_MAX", "64M"),
        ("GASNET_FIREHOSE_M", ""),
        ("GASNET_FIREHOSE_MAXVICTIM_M", ""),
    ],
    &[
        ("GASNET_PHYSMEM_MAX", "64M"),
        ("GASNET_PHYSMEM_PINNABLE_RATIO", "0.1"),
        ("GASNET_FIREHOSE_M", ""),
        ("GASNET_FIREHOSE_MAXVICTIM_M", ""),
    ],
    &[
        ("GASNET_PHYSMEM_MAX", "64M"),
        ("GASNET_FIREHOSE_M", ""),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "40M"),
    ],
    &[
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "4K"),
        ("GASNET_FIREHOSE_M", "16M"),
    ],
    &[
        ("GASNET_FIREHOSE_M", "64K"),
        ("GASNET_FIREHOSE_MAXVICTIM_M", "16K"),
        ("GASNET_FIREHOSE_MAXREGION_SIZE", "4K"),
    ],
];

/// What a run found, in the order of its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Found {
    /// Of each kind of operation: nanoseconds of all, units that were held, and units that were not.
    kinds: [[u64; 3]; 3],
    /// Requests for units that rank 0 sent, units that it gave up for others, messages of copies.
    sent: [u64; 3],
    /// Units that rank 0 pinned for its own transfers, and found pinned.
    own: [u64; 2],
    /// Units that rank 1 pinned and unpinned, bytes that are pinned there at the end.
    owner: [u64; 3],
}

impl Found {
    fn numbers(&self) -> Vec<u64> {
        let all = [&self.sent[..], &self.own, &self.owner];
        self.kinds
            .iter()
            .flatten()
            .chain(all.into_iter().flatten())
            .copied()
            .collect()
    }

    fn of(text: &str) -> Option<Self> {
        let mut numbers = text.split_whitespace().map(|w| w.parse().ok());
        let mut next = || numbers.next().flatten();
        let mut three = || Some([next()?, next()?, next()?]);
        let kinds = [three()?, three()?, three()?];
        let sent = three()?;
        let own = [next()?, next()?];
        Some(Self {
            kinds,
            sent,
            own,
            owner: [next()?, next()?, next()?],
        })
    }

    /// Microseconds of one operation of a kind, and the part of its units that were held.
    fn kind(&self, kind: usize, operations: u64) -> (f64, String) {
        let [ns, hits, misses] = self.kinds[kind];
        let all = hits + misses;
        let part = match all {
            0 => "–".to_owned(),
            _ => format!("{:.0} %", 100.0 * hits as f64 / all as f64),
        };
        (ns as f64 / 1000.0 / operations as f64, part)
    }
}

/// Runs the workload with each change and prints a table.
pub(crate) fn run(options: &Options) -> Result<u8, CmdError> {
    // Memory that ranks share is not pinned, and would have nothing to show.
    let chosen = options.fabric.modelled();
    let config = chosen.config();
    fabric::check_for(&config, Some(RANKS))?;
    let clock = match config.kind() {
        fabric::FabricKind::Seastar => "modelled: virtual time",
        _ => "measured: wall time",
    };
    let n = options.operations;
    say(&format!(
        "{} ({clock}); {n} operations of each kind on {} of rank 1; the first row sets {}\n",
        config.kind().name(),
        show_size(options.memory),
        BASE.map(|(name, value)| format!("{name}={value}"))
            .join(" "),
    ))?;
    say(
        "| set | put 8 B, µs | hits | get 16 KiB, µs | hits | Long 1500 B, µs | requests | given up | copies | own pins \
         | of uses | owner pins | unpins | pinned, MiB |",
    )?;
    say("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")?;
    for change in CHANGES {
        match one(options, &chosen, change)? {
            Ok(found) => say(&row(change, &found, n))?,
            Err(status) => return Ok(status),
        }
    }
    Ok(0)
}

fn row(change: Change, f: &Found, operations: u64) -> String {
    let (put, put_hits) = f.kind(0, operations);
    let (get, get_hits) = f.kind(1, operations);
    let (long, _) = f.kind(2, operations);
    let word = |(name, value): &(&str, &str)| {
        let name = name
            .trim_start_matches("GASNET_")
            .trim_start_matches("FIREHOSE_");
        match *value {
            "" => format!("{name} not set"),
            value => format!("{name}={value}"),
        }
    };
    let words: Vec<String> = change.iter().map(word).collect();
    let words = match words.as_slice() {
        [] => "nothing more".to_owned(),
        words => words.join(", "),
    };
    let ([requests, given_up, copies], [pins, hits]) = (f.sent, f.own);
    let [owner_pins, unpins, pinned] = f.owner;
    let pinned = pinned as f64 / f64::from(1 << 20);
    format!(
        "| {words} | {put:.2} | {put_hits} | {get:.2} | {get_hits} | {long:.2} | {requests} | {given_up} | {copies} | {pins} \
         | {} | {owner_pins} | {unpins} | {pinned:.2} |",
        pins + hits
    )
}

/// One job.
fn one(
    options: &Options,
    chosen: &FabricArgs,
    change: Change,
) -> Result<Result<Found, u8>, CmdError> {
    let out = Handover::new().map_err(failed("make a file for the results"))?;
    let mut args: Vec<OsString> = vec!["firehose-rank".into()];
    args.extend(["--memory".into(), options.memory.to_string().into()]);
    args.extend(["--operations".into(), options.operations.to_string().into()]);
    args.extend(["--out".into(), out.name().into()]);
    let value = |name: &str| {
        let of = |list: &[(&str, &'static str)]| list.iter().find(|v| v.0 == name).map(|v| v.1);
        of(change).or_else(|| of(&BASE)).unwrap_or("")
    };
    let mut env = chosen.variables(Some(RANKS));
    env.extend(ALL.map(|name| (name.into(), value(name).into())));
    let status = launch(&JobSpec {
        title: "portolan firehose",
        ranks: RANKS,
        pmi: true,
        program: std::env::current_exe()
            .map_err(failed("find this executable"))?
            .into(),
        args,
        env,
        timeout: options.timeout,
        bind: false,
        tag_output: false,
    })?;
    if status != 0 {
        return Ok(Err(status));
    }
    let text = std::io::read_to_string(out.into_file()).map_err(failed("read the results"))?;
    let found = Found::of(&text);
    found
        .map(Ok)
        .ok_or_else(|| CmdError::Failed(format!("results that are none: {text:?}")))
}

/// One rank of [`run`].
pub(crate) fn rank(options: &RankOptions) -> Result<u8, CmdError> {
    let conduit = Conduit::init().map_err(|e| CmdError::Failed(portals_shim::with_causes(&e)))?;
    let done = work(&conduit, options);
    let done =
        done.map_err(|e| CmdError::Failed(format!("firehose: {}", portals_shim::with_causes(&e))))?;
    if let Some(found) = done {
        let words: Vec<String> = found.numbers().iter().map(u64::to_string).collect();
        let what = format!("write {}", options.out.display());
        let mut file = handover::create(&options.out).map_err(failed(&what))?;
        let text = words.join(" ");
        file.write_all(text.as_bytes()).map_err(failed(&what))?;
    }
    conduit.finish();
    Ok(0)
}

fn remote(conduit: &Conduit) -> [u64; 2] {
    let s = conduit.firehose_stats().unwrap_or_default().remote;
    [s.hits, s.misses]
}

/// The phases of rank 0; what rank 1 counted comes at the end, by its segment.
fn work(conduit: &Conduit, o: &RankOptions) -> Result<Option<Found>, BenchError> {
    let set = o.memory / PAGE * PAGE;
    let told = usize::try_from(set).map_err(|_| BenchError::TooLarge(set))?;
    // What is got lies behind what is put to; the numbers behind both.
    let handlers = vec![HandlerEntry::new(200, |_, _, _| {})];
    conduit.attach_large(handlers, told + GET + PAGE as usize)?;
    let base = conduit.segment(1).addr;
    let mut found = Found {
        kinds: [[0; 3]; 3],
        sent: [0; 3],
        own: [0; 2],
        owner: [0; 3],
    };
    conduit.barrier(BarrierName::Anonymous)?;
    if conduit.mynode() == 0 {
        let data = [7; LONG];
        for kind in 0..3 {
            let mut numbers = Numbers(10);
            let mut place = || numbers.below(set / PAGE) * PAGE;
            let mut some = |operations: u64| -> Result<(), BenchError> {
                for _ in 0..operations {
                    let there = base + place();
                    match kind {
                        0 => conduit.put(1, there, &data[..8])?,
                        1 => {
                            let own = usize::try_from(place()).unwrap_or(0);
                            conduit.get_to_segment(own, 1, there, GET)?;
                        }
                        _ => conduit.am_request_long(1, 200, &data, there, &[])?,
                    }
                }
                Ok(())
            };
            some(o.operations)?;
            let (start, before) = (conduit.now(), remote(conduit));
            some(o.operations)?;
            let after = remote(conduit);
            found.kinds[kind] = [
                conduit.now() - start,
                after[0] - before[0],
                after[1] - before[1],
            ];
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    let s: FirehoseStats = conduit.firehose_stats().unwrap_or_default();
    if conduit.mynode() == 1 {
        let numbers = [s.own.pins, s.own.unpins, s.pinned].map(u64::to_ne_bytes);
        if let Some(segment) = conduit.local_segment() {
            let _ = segment.write(told + GET, numbers.as_flattened());
        }
    }
    conduit.barrier(BarrierName::Anonymous)?;
    if conduit.mynode() != 0 {
        return Ok(None);
    }
    let mut numbers = [[0; 8]; 3];
    conduit.get(numbers.as_flattened_mut(), 1, base + (told + GET) as u64)?;
    found.owner = numbers.map(u64::from_ne_bytes);
    found.sent = [s.remote.moves, s.remote.evictions, s.copies];
    found.own = [s.own.pins, s.own.hits];
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_back_and_rubbish_does_not() {
        let found = Found {
            kinds: [[1, 2, 3], [4, 5, 6], [7, 0, 0]],
            sent: [10, 11, 12],
            own: [13, 14],
            owner: [15, 16, 2 << 20],
        };
        let words: Vec<String> = found.numbers().iter().map(u64::to_string).collect();
        assert_eq!(Found::of(&words.join(" ")), Some(found));
        assert_eq!(Found::of(&words[1..].join(" ")), None);
        let line = row(CHANGES[1], &found, 1);
        assert!(
            line.starts_with("| M=1M | 0.00 | 40 % | 0.00 | 45 % |"),
            "{line}"
        );
        assert!(line.ends_with("| 15 | 16 | 2.00 |"), "{line}");
    }

    #[test]
    fn every_variable_of_a_change_is_taken_from_the_environment() {
        for (name, _) in CHANGES.iter().copied().flatten().chain(&BASE) {
            assert!(ALL.contains(name), "{name}");
        }
        for name in ALL {
            let varied = CHANGES.iter().copied().flatten().any(|v| v.0 == name);
            assert!(varied, "{name}");
        }
    }
}
